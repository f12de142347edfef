//! The mean of a solution, which the operator of a domain that wraps around does not see (Poisson): after each cycle it is taken away.
//! It is the CPU's bit by bit, whoever has which planes (`cuda/general.cu`): ranks add up the rows that they have, and all get the
//! sums of all rows before they add up those.

use std::cell::RefCell;

use gdsync::{Arg, Buffer, Device, Dims};
use libmp::{Collective, ReduceOp, Region};

use super::cycle::Ghosts;
use super::device::Pass;
use super::error::CudaError;
use super::ranks::{Mode, Team};
use super::solver::Gpu;
use super::upload::OnGpu;
use crate::backend::Vector;
use crate::comm::{CommError, Group};
use crate::pencils::STARTS;

/// What it is found with.
pub(super) struct Mean {
    /// Sums of rows: bits, which ranks that have others do not touch.
    rows: Buffer<u64>,
    /// Sums of boxes, and behind them what is added to the cells.
    totals: Buffer<f64>,
    between: Between,
}

/// How ranks get each other's sums.
enum Between {
    Nobody,
    Stream(Box<Collective>),
    Cpu(RefCell<Staged>),
}

/// What the CPU sends them with.
struct Staged {
    group: Box<dyn Group>,
    sums: Buffer<u64>,
}

impl Mean {
    /// For solves from any of the first levels, which are `cut` among the ranks or not. Collective.
    ///
    /// # Errors
    /// When the ranks lose each other; what the driver says.
    pub fn new(
        levels: &[OnGpu],
        team: Option<&Team<'_>>,
        device: &Device,
        cut: bool,
    ) -> Result<Self, CudaError> {
        let starts = || levels.iter().take(STARTS);
        let rows = starts().map(OnGpu::row_pieces).max().unwrap_or(0);
        let boxes = starts().map(|level| level.boxes().pow(3)).max().unwrap_or(0);
        let between = match team.filter(|_| cut) {
            None => Between::Nobody,
            Some(team) if team.mode == Mode::Staged => {
                let all: Vec<usize> = (0..team.comm.size()).collect();
                let group = team.comm.group(&all)?.ok_or(CudaError::NoPeers)?;
                Between::Cpu(RefCell::new(Staged { group, sums: device.alloc_pinned(rows)? }))
            }
            Some(team) => {
                let communicator = team.comm.communicator().ok_or(CudaError::NoPeers)?;
                let sums = communicator.prepare_collective(device, size_of::<u64>() * rows);
                Between::Stream(Box::new(sums.map_err(CommError::from)?))
            }
        };
        Ok(Self { rows: device.alloc(rows)?, totals: device.alloc(boxes + 1)?, between })
    }
}

impl Gpu {
    /// Enqueues that the mean of u of level `l` is made zero, where the operator does not see it.
    pub(super) fn remove_mean(&self, l: usize) -> Result<(), CudaError> {
        let Some(mean) = &self.mean else { return Ok(()) };
        let on_gpu = &self.levels[l];
        let (level, n, boxes) = (&on_gpu.view(), on_gpu.grid.n, on_gpu.boxes());
        let rows = mean.rows.slice(0..on_gpu.row_pieces())?;
        let cut = self.partition.is_cut(l);
        if cut {
            self.stream.fill(&rows, 0)?;
        }
        let [of_rows, of_boxes, finish] = &self.kernels.means;
        let launch = |kernel, dims, args: &[Arg<'_>]| {
            self.traced(l, gdsync::Kernel::name(kernel), || {
                // SAFETY: the kernels' parameters; their vectors live as long as `self`.
                unsafe { self.machine.launch(&self.stream, kernel, dims, args) }
            })
        };
        let address = |buffer: Option<u64>| buffer.unwrap_or(0);
        let sums = address(rows.device_address());
        // Rows are whole.
        let [_, rows_here, planes_here] = self.partition.part(l);
        let (dims, extent) = self.extent([0..boxes, rows_here, planes_here]);
        let box_dim = (n / boxes) as i32;
        let args = [
            Arg::new(level),
            Arg::new(&level.u),
            Arg::new(&sums),
            Arg::new(&extent),
            Arg::new(&box_dim),
        ];
        // Of ranks that have the same cells one says what they are.
        if self.partition.speaks(l) {
            launch(of_rows, dims, &args)?;
        }
        if cut {
            self.traced(l, "gather", || mean.gather(self, &rows))?;
        }
        let totals = address(mean.totals.device_address());
        let count = box_dim * box_dim;
        let args = [Arg::new(&sums), Arg::new(&totals), Arg::new(&count)];
        let all = boxes.pow(3);
        launch(of_boxes, Dims::linear(all as u32, 256), &args)?;
        let (shift, count, cells) = (totals + 8 * all as u64, all as i32, (n as f64).powi(3));
        let args = [Arg::new(&totals), Arg::new(&shift), Arg::new(&count), Arg::new(&cells)];
        launch(finish, Dims::linear(1, 32), &args)?;
        let (dims, planes, tiles) = self.pairs(l);
        let pass = Pass { x: level.u, out: level.u, rhs: shift, planes, tiles, ..Pass::default() };
        let args = [Arg::new(level), Arg::new(&pass)];
        let ghosts = Ghosts { read: None, written: Some(Vector::U) };
        // SAFETY: as above.
        unsafe { self.phase(l, l, &self.passes(l).shift, dims, args, ghosts) }
    }
}

impl Mean {
    /// Gives every rank the sums that the others have found.
    fn gather(&self, gpu: &Gpu, rows: &Buffer<u64>) -> Result<(), CudaError> {
        match &self.between {
            Between::Nobody => Ok(()),
            Between::Stream(sums) => {
                let rows = Region::from_buffer(rows.clone());
                let all = sums.all_reduce(ReduceOp::Or, &rows, &rows);
                Ok(all.start_on(&gpu.stream).map_err(CommError::from)?)
            }
            Between::Cpu(both) => {
                let Staged { group, sums } = &mut *both.borrow_mut();
                let staging = sums.slice(0..rows.len())?;
                gpu.stream.copy(&staging, rows)?;
                gpu.wait()?;
                // SAFETY: the copy into it has been waited for, and the one out of it is before this rank comes here again.
                group.sum(bytemuck::cast_slice_mut(unsafe { staging.as_mut_slice()? }))?;
                gpu.stream.copy(rows, &staging)?;
                // The next use overwrites it.
                gpu.wait()
            }
        }
    }
}
