//! Communication as without GPU-aware messages (algorithm 1 of Agostini et al.): the CPU waits for the kernel, the borders
//! are copied to pinned memory, messages go from there, and what arrives is copied into the ghosts. Borders of slabs are whole
//! planes, which copies take as they are; those of boxes are packed and unpacked by a kernel. `--comm mpi` and `--comm host`, which
//! the others are compared with.

use std::cell::RefCell;

use gdsync::{Arg, Buffer, Device, Dims};

use super::borders::{Border, Exchanged, border_number, exchanges};
use super::device::Copy;
use super::error::CudaError;
use super::layout::{Grid, Region};
use super::partition::Partition;
use super::solver::Gpu;
use crate::backend::Vector;
use crate::comm::{Comm, Exchange, Message};

/// Tags of the messages: this and the number of the exchange.
const TAG: i32 = 1000;

/// One exchange of one vector.
struct Route {
    exchanged: Exchanged,
    exchange: Box<dyn Exchange>,
    buffers: Vec<[Buffer<f64>; 2]>,
    /// The GPU may still be reading what was received.
    open: bool,
}

/// The prepared messages of a rank.
pub(super) struct Staged {
    /// By number of the exchange.
    routes: RefCell<Vec<Route>>,
}

impl Staged {
    /// Prepares the messages of all exchanges; the domain wraps around if `around`.
    ///
    /// # Errors
    /// When the library refuses, or has no buffers that the GPU can copy from.
    pub fn prepare(
        comm: &dyn Comm,
        device: &Device,
        partition: &Partition,
        around: bool,
    ) -> Result<Self, CudaError> {
        let route = |(number, mut exchanged): (usize, Exchanged)| {
            in_order(&mut exchanged.borders);
            let l = exchanged.level;
            let grid = partition.grid(l);
            Route::prepare(comm, device, TAG + number as i32, exchanged, &grid)
        };
        let all = exchanges(partition, around).into_iter().enumerate();
        Ok(Self { routes: RefCell::new(all.map(route).collect::<Result<_, _>>()?) })
    }

    /// Sends the borders of a vector of level `l` to the neighbours and receives theirs.
    pub fn exchange(&self, gpu: &Gpu, l: usize, vector: Vector) -> Result<(), CudaError> {
        self.run(gpu, border_number(l, vector))
    }

    /// Gives this rank what the others have of its part of the right-hand side of level `l`.
    pub fn gather(&self, gpu: &Gpu, l: usize) -> Result<(), CudaError> {
        let stages: Vec<usize> = {
            let routes = self.routes.borrow();
            let of_level =
                |route: &Route| (route.exchanged.level, route.exchanged.vector) == (l, Vector::R);
            (0..routes.len()).filter(|&number| of_level(&routes[number])).collect()
        };
        stages.into_iter().try_for_each(|number| self.run(gpu, number))
    }

    fn run(&self, gpu: &Gpu, number: usize) -> Result<(), CudaError> {
        let mut routes = self.routes.borrow_mut();
        let l = routes[number].exchanged.level;
        // Buffers alternate, and each exchange waits for the GPU, so this is rare.
        if std::mem::take(&mut routes[number].open) {
            gpu.wait()?;
            routes[number].exchange.end()?;
        }
        routes[number].exchange.begin()?;
        let Route { exchanged, buffers, .. } = &routes[number];
        for (border, [send, _]) in exchanged.borders.iter().zip(buffers) {
            gpu.traced(l, "pack", || gpu.pack(exchanged, &border.send, send, true))?;
        }
        gpu.traced_on_cpu(l, "wait for the GPU", || gpu.wait())?;
        // The GPU has read what other exchanges have received.
        for route in routes.iter_mut().filter(|route| route.open) {
            route.open = false;
            route.exchange.end()?;
        }
        let Route { exchanged, exchange, buffers, open } = &mut routes[number];
        gpu.traced_on_cpu(l, "send", || {
            Ok((0..buffers.len()).try_for_each(|index| exchange.start(index))?)
        })?;
        for (index, (border, [_, received])) in exchanged.borders.iter().zip(buffers).enumerate() {
            gpu.traced_on_cpu(l, "receive", || Ok(exchange.receive(index)?))?;
            gpu.traced(l, "unpack", || gpu.pack(exchanged, &border.receive, received, false))?;
        }
        *open = true;
        // The ranks also meet in other ways than by these messages.
        gpu.traced_on_cpu(l, "wait for what was sent", || Ok(exchange.sent()?))
    }
}

/// Messages to one rank come in the order in which it sends them, that of the directions in which this rank is of it: opposite ones.
fn in_order(borders: &mut [Border]) {
    let sent: Vec<Border> = borders.to_vec();
    for (at, border) in borders.iter_mut().enumerate() {
        let of_peer = |border: &&Border| border.peer == sent[at].peer;
        let before = sent[..at].iter().filter(of_peer).count();
        let Some(received) = sent.iter().rev().filter(of_peer).nth(before) else { continue };
        border.receive = received.receive.clone();
    }
}

/// Elements of a region of a vector of `grid` that are copied, ghosts between them among whole planes.
fn elements(exchanged: &Exchanged, region: &Region, grid: &Grid) -> usize {
    match exchanged.planes {
        true => region[2].len() * grid.plane(),
        false => Grid::pairs_at(region).iter().map(|along| along.len()).product(),
    }
}

impl Gpu {
    /// Enqueues the copy of a region of what is exchanged to a buffer, or back.
    fn pack(
        &self,
        exchanged: &Exchanged,
        region: &Region,
        buffer: &Buffer<f64>,
        out: bool,
    ) -> Result<(), CudaError> {
        let level = &self.levels[exchanged.level];
        let vector = exchanged.vector;
        if exchanged.planes {
            let planes = level.planes(vector.index(), region[2].start, region[2].len())?;
            let (to, from) = if out { (buffer, &planes) } else { (&planes, buffer) };
            return Ok(self.stream.copy(to, from)?);
        }
        let numbering = level.grid.in_pairs();
        let [x, y, z] = Grid::pairs_at(region);
        let [row, plane] = numbering.strides.map(|stride| stride as i64);
        let first = i64::from(x.start) + i64::from(y.start) * row + i64::from(z.start) * plane;
        // The view's addresses are those of the level's first cell, if it were here.
        let at = level.view().vector(vector).wrapping_add(8 * level.grid.shift() as u64);
        let at = at.wrapping_add_signed(8 * (numbering.origin as i64 + first));
        let [row_len, rows, planes] = [x.len() as i64, y.len() as i64, z.len() as i64];
        let (there, dense) = (buffer.device_address().unwrap_or(0), [row_len, row_len * rows]);
        let ((from, from_strides), (to, to_strides)) = match out {
            true => ((at, [row, plane]), (there, dense)),
            false => ((there, dense), (at, [row, plane])),
        };
        let copy = Copy { from, to, from_strides, to_strides, row: row_len, rows, planes };
        let blocks = (row_len * rows * planes).unsigned_abs().div_ceil(1024).clamp(1, 64) as u32;
        // SAFETY: the kernel's parameter; level and buffer live as long as `self`, and the region lies in the level.
        unsafe {
            self.machine.launch(
                &self.stream,
                &self.kernels.copy,
                Dims::linear(blocks, 256),
                &[Arg::new(&copy)],
            )
        }
    }
}

impl Route {
    fn prepare(
        comm: &dyn Comm,
        device: &Device,
        tag: i32,
        exchanged: Exchanged,
        grid: &Grid,
    ) -> Result<Self, CudaError> {
        let message = |border: &Border| Message {
            peer: border.peer,
            send: elements(&exchanged, &border.send, grid),
            receive: elements(&exchanged, &border.receive, grid),
        };
        let messages: Vec<Message> = exchanged.borders.iter().map(message).collect();
        let exchange = comm.prepare_for(device, tag, &messages)?;
        let buffers = (0..messages.len())
            .map(|index| exchange.buffers(index).ok_or(CudaError::NoBuffers(comm.name())))
            .collect::<Result<_, _>>()?;
        Ok(Self { exchanged, exchange, buffers, open: false })
    }
}
