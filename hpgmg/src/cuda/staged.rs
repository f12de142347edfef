//! Communication as without GPU-aware messages (algorithm 1 of Agostini et al.): the CPU waits for the kernel, the borders
//! are copied to pinned memory, messages go from there, and what arrives is copied into the ghosts. Borders are whole
//! planes, so nothing has to be packed. `--comm mpi` and `--comm host`, which the others are compared with.

use std::cell::RefCell;

use gdsync::{Buffer, Device};

use super::borders::{Border, Exchanged, border_number, exchanges, gather_number};
use super::error::CudaError;
use super::layout::Grid;
use super::partition::Partition;
use super::solver::Gpu;
use crate::backend::Vector;
use crate::comm::{Comm, Exchange, Message};

/// Tags of the messages: this and the number of the exchange.
const TAG: i32 = 1000;

/// One exchange of one vector.
struct Route {
    borders: Vec<Border>,
    exchange: Box<dyn Exchange>,
    buffers: Vec<[Buffer<f64>; 2]>,
    /// The GPU may still be reading what was received.
    open: bool,
}

/// The prepared messages of a rank.
pub(super) struct Staged {
    partition: Partition,
    /// By number of the exchange.
    routes: RefCell<Vec<Route>>,
}

impl Staged {
    /// Prepares the messages of all exchanges. `dims` are those of the levels; the domain wraps around if `around`.
    ///
    /// # Errors
    /// When the library refuses, or has no buffers that the GPU can copy from.
    pub fn prepare(
        comm: &dyn Comm,
        device: &Device,
        partition: &Partition,
        dims: &[usize],
        around: bool,
    ) -> Result<Self, CudaError> {
        let (rank, size) = (comm.rank(), comm.size());
        let route = |(number, Exchanged { level, mut borders, .. })| {
            // Messages to one rank come in the order in which it sends them: around a ring of two that of its other side first.
            if let [below, above] = &mut borders[..]
                && below.peer == above.peer
            {
                std::mem::swap(&mut below.receive, &mut above.receive);
            }
            Route::prepare(comm, device, TAG + number as i32, borders, dims[level])
        };
        let all = exchanges(partition, rank, size, around).into_iter().enumerate();
        let routes = all.map(route).collect::<Result<_, _>>()?;
        Ok(Self { partition: partition.clone(), routes: RefCell::new(routes) })
    }

    /// Sends the border planes of a vector of level `l` to the neighbours and receives theirs.
    pub fn exchange(&self, gpu: &Gpu, l: usize, vector: Vector) -> Result<(), CudaError> {
        self.run(gpu, border_number(l, vector), l, vector)
    }

    /// Gives every rank the others' shares of a vector of the first whole level.
    pub fn gather(&self, gpu: &Gpu, vector: Vector) -> Result<(), CudaError> {
        self.run(gpu, gather_number(&self.partition), self.partition.whole(), vector)
    }

    fn run(&self, gpu: &Gpu, number: usize, l: usize, vector: Vector) -> Result<(), CudaError> {
        let mut routes = self.routes.borrow_mut();
        let level = &gpu.levels[l];
        let planes = |(k, count)| level.planes(vector.index(), k, count);
        // Buffers alternate, and each exchange waits for the GPU, so this is rare.
        if std::mem::take(&mut routes[number].open) {
            gpu.wait()?;
            routes[number].exchange.end()?;
        }
        routes[number].exchange.begin()?;
        for (border, [send, _]) in routes[number].borders.iter().zip(&routes[number].buffers) {
            gpu.traced(l, "pack", || Ok(gpu.stream.copy(send, &planes(border.send)?)?))?;
        }
        gpu.traced_on_cpu(l, "wait for the GPU", || gpu.wait())?;
        // The GPU has read what other exchanges have received.
        for route in routes.iter_mut().filter(|route| route.open) {
            route.open = false;
            route.exchange.end()?;
        }
        let Route { borders, exchange, buffers, open } = &mut routes[number];
        gpu.traced_on_cpu(l, "send", || {
            Ok((0..borders.len()).try_for_each(|index| exchange.start(index))?)
        })?;
        for (index, (border, [_, received])) in borders.iter().zip(buffers).enumerate() {
            gpu.traced_on_cpu(l, "receive", || Ok(exchange.receive(index)?))?;
            gpu.traced(l, "unpack", || Ok(gpu.stream.copy(&planes(border.receive)?, received)?))?;
        }
        *open = true;
        // The ranks also meet in other ways than by these messages.
        gpu.traced_on_cpu(l, "wait for what was sent", || Ok(exchange.sent()?))
    }
}

impl Route {
    fn prepare(
        comm: &dyn Comm,
        device: &Device,
        tag: i32,
        borders: Vec<Border>,
        dim: usize,
    ) -> Result<Self, CudaError> {
        let plane = Grid::new(dim).plane();
        let messages: Vec<Message> = borders
            .iter()
            .map(|border| Message {
                peer: border.peer,
                send: border.send.1 * plane,
                receive: border.receive.1 * plane,
            })
            .collect();
        let exchange = comm.prepare_for(device, tag, &messages)?;
        let buffers = (0..borders.len())
            .map(|index| exchange.buffers(index).ok_or(CudaError::NoBuffers(comm.name())))
            .collect::<Result<_, _>>()?;
        Ok(Self { borders, exchange, buffers, open: false })
    }
}
