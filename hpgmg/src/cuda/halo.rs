//! What this rank has with the others where kernels and streams communicate by themselves (`--comm kernel`, `--comm stream`): the
//! borders of its slabs, the shares of the first level that every rank has, and the largest of the ranks' values. All of it is
//! libmp's; here is which planes go to whom. Epochs are in the GPU's memory, so graphs hold it, and a NIC makes no difference.

use gdsync::{Buffer, Device, Stream};
use libmp::exchange::{Cells, Exchange, Field, Neighbour, Phase};
use libmp::{Collective, Communicator, Deadline, ReduceOp, Region};

use super::borders::{Border, Exchanged, border_number, exchanges, gather_number, neighbours};
use super::device::{Slab, Turns};
use super::error::CudaError;
use super::layout::{BASE, GHOSTS, Grid};
use super::partition::Partition;
use super::solver::Gpu;
use crate::backend::Vector;
use crate::comm::CommError;

/// What ranks do together on streams and in kernels.
pub(super) struct Halo {
    communicator: Communicator,
    /// Blocks store, signal and wait themselves; else exchanges are launches of their own.
    in_kernels: bool,
    /// No other rank is on this rank's GPU: blocks may wait.
    apart: bool,
    /// Of the vectors that smoothers alternate between, of each cut level, with the ranks below and above.
    borders: Exchange,
    /// Of the right-hand side of the first whole level, with all ranks.
    shares: Exchange,
    largest: Collective,
}

/// How ranks communicate through it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub in_kernels: bool,
    pub apart: bool,
    /// Kernels of mapped ranks store straight into the ghosts.
    pub direct: bool,
    /// The domain wraps around: the first rank and the last are neighbours.
    pub around: bool,
    /// Values that are agreed on at a time.
    pub values: usize,
}

impl Halo {
    /// Prepares all of it in `memory`, that of the levels; `dims` are theirs. Waits last no longer than those of
    /// `communicator`. Collective.
    ///
    /// # Errors
    /// When libmp refuses; what ended the world.
    pub fn prepare(
        communicator: Communicator,
        device: &Device,
        partition: &Partition,
        memory: &[Buffer<f64>],
        dims: &[usize],
        form: Form,
    ) -> Result<Self, CudaError> {
        let (rank, size) = (communicator.rank(), communicator.size());
        let all = exchanges(partition, rank, size, form.around);
        let field = |exchanged: &Exchanged| {
            let Exchanged { level: l, vector, borders } = exchanged;
            let grid = Grid::slab(dims[*l], partition.planes(*l));
            let region = Region::from_buffer(memory[*l].clone());
            // A cell of the field is an element of a plane, ghosts and all; planes count from the beginning of the level.
            let origin = (vector.index() * grid.volume() + BASE + GHOSTS * grid.plane()) as isize;
            let origin = origin - grid.shift() as isize;
            let field = Field::new(&region, origin, [grid.plane(); 2]).buffered(!form.direct);
            let planes = |(k, count): (isize, usize)| -> Cells {
                [0..grid.plane() as i32, 0..1, k as i32..(k + count as isize) as i32]
            };
            borders.iter().fold(field, |field, Border { send, receive, .. }| {
                field.border(planes(*send), planes(*receive))
            })
        };
        let (slabs, shares) = all.split_at(gather_number(partition));
        let slabs: Vec<Field> = slabs.iter().map(field).collect();
        let shares: Vec<Field> = shares.iter().map(|share| field(share).buffered(false)).collect();
        let cut = partition.whole() > 0;
        let sides = neighbours(rank, size, form.around).map(|side| side.filter(|_| cut));
        let [below, above] = sides;
        let sides = [
            below.map(|peer| Neighbour::toward(peer, [0, 0, -1])),
            above.map(|peer| Neighbour::toward(peer, [0, 0, 1])),
        ];
        let others: Vec<_> = (0..size)
            .filter(|&peer| peer != rank && cut)
            .map(|peer| Some(Neighbour::new(peer)))
            .collect();
        let borders = communicator.exchange(device, &sides, &slabs).map_err(CommError::from)?;
        let shares = communicator.exchange(device, &others, &shares).map_err(CommError::from)?;
        let largest = communicator.prepare_collective(device, 8 * form.values);
        let largest = largest.map_err(CommError::from)?;
        let Form { in_kernels, apart, .. } = form;
        Ok(Self { communicator, in_kernels, apart, borders, shares, largest })
    }

    /// Ahead of a launch that reads ghosts of one vector and writes another that has some: what it is to do with the
    /// neighbours.
    pub fn enter(
        &self,
        gpu: &Gpu,
        read: Option<(usize, Vector)>,
        written: Option<(usize, Vector)>,
    ) -> Result<Turns, CudaError> {
        if !self.in_kernels {
            return Ok(Turns::default());
        }
        let number = |(l, vector)| border_number(l, vector);
        let (read_field, field, waits) = (read.map(number), written.map(number), self.apart);
        if let (false, Some((l, _))) = (self.apart, written.or(read)) {
            gpu.traced(l, "wait", || {
                Ok(self.borders.wait_on(&gpu.stream, read_field).map_err(CommError::from)?)
            })?;
        }
        let phase = Phase { read: read_field, written: field, waits };
        let mut halo: Turns = self.borders.handle(phase).map_err(CommError::from)?;
        if let Some((l, _)) = written {
            // Kernels count elements from before the ghosts in front of plane 0.
            let before = 8 * (BASE + GHOSTS * gpu.levels[l].grid.plane()) as u64;
            for link in halo.links.iter_mut().filter(|link| link.twin != 0) {
                link.twin = link.twin.wrapping_sub(before);
            }
        }
        Ok(halo)
    }

    /// Behind such a launch.
    pub fn leave(&self, gpu: &Gpu, l: usize, written: Option<Vector>) -> Result<(), CudaError> {
        let Some(vector) = written.filter(|_| !self.in_kernels) else { return Ok(()) };
        gpu.traced(l, "exchange", || {
            let number = border_number(l, vector);
            Ok(self.borders.run_on(&gpu.stream, number).map_err(CommError::from)?)
        })
    }

    /// Gives every rank the shares that the others have written of the right-hand side of the first whole level.
    pub fn gather(&self, gpu: &Gpu) -> Result<(), CudaError> {
        gpu.traced(gpu.partition.whole(), "gather", || {
            Ok(self.shares.run_on(&gpu.stream, 0).map_err(CommError::from)?)
        })
    }

    /// A vector of a cut level was set to zero, ghosts included: so is what may still come into them.
    pub fn zero(&self, stream: &Stream, l: usize, vector: Vector) -> Result<(), CudaError> {
        let number = border_number(l, vector);
        Ok(self.borders.clear_on(stream, number).map_err(CommError::from)?)
    }

    /// Replaces values by the largest of all ranks: bit patterns of numbers that are not negative.
    pub fn agree(&self, stream: &Stream, values: &Buffer<u64>) -> Result<(), CudaError> {
        let values = Region::from_buffer(values.clone());
        let largest = self.largest.all_reduce(ReduceOp::Max, &values, &values);
        Ok(largest.start_on(stream).map_err(CommError::from)?)
    }

    /// Waits for the stream and for what its kernels have reported.
    ///
    /// # Errors
    /// A wait that failed, and for whom; what ended the world; the deadline.
    pub fn synchronize(&self, stream: &Stream, deadline: Deadline) -> Result<(), CudaError> {
        Ok(self.communicator.synchronize(stream, deadline).map_err(CommError::from)?)
    }
}

/// What a launch over planes `first` to `end` of a level of `n` cells a side, of which `held` more on both sides are in memory,
/// has to do with others.
pub(super) fn slab(partition: &Partition, l: usize, n: usize, halo: Turns) -> Slab {
    let share = partition.share(l);
    let held = if partition.is_cut(l) { GHOSTS } else { n };
    let (first, end) = (share.start as i32, share.end as i32);
    Slab { halo, first, end, held: held as i32, reserved: 0 }
}
