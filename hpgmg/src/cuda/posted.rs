//! Communication by messages that kernels start, take and wait for by themselves, between ranks that do not reach each other's
//! memory: `--comm kernel` over a NIC. Behind the launch that writes a vector comes one of libmp's (`mp_steps`), which posts the
//! requests to the NIC: the neighbours' planes go straight into the ghosts, from level memory to level memory, and the CPU does
//! nothing. Counts are in the GPU's memory, so graphs hold it.
//!
//! Unlike in [`super::peers`], where blocks of the writing launch store and signal, an exchange begins when that launch is over.

use gdsync::Buffer;
use libmp::{Communicator, Deadline, DeviceRecv, DeviceSend, Region, Step};

use super::borders::{Border, Exchanged, border_number, exchanges, gather_number};
use super::error::CudaError;
use super::layout::Grid;
use super::partition::Partition;
use super::solver::Gpu;
use crate::backend::Vector;
use crate::comm::CommError;

/// Tags of the messages: this and the number of the exchange.
const TAG: u64 = 3000;

/// The messages of a border.
struct Link {
    send: DeviceSend,
    receive: DeviceRecv,
}

/// The prepared messages of a rank.
pub(super) struct Posted {
    communicator: Communicator,
    partition: Partition,
    /// By number of the exchange.
    routes: Vec<Vec<Link>>,
}

impl Posted {
    /// Prepares the messages of all exchanges in `memory`, that of the levels; `dims` are theirs. Collective.
    ///
    /// # Errors
    /// When libmp refuses; what ended the world.
    pub fn prepare(
        communicator: &Communicator,
        partition: &Partition,
        memory: &[Buffer<f64>],
        dims: &[usize],
    ) -> Result<Self, CudaError> {
        let (rank, size) = (communicator.rank(), communicator.size());
        let links = |(number, Exchanged { level: l, vector, borders })| {
            let (grid, tag) = (Grid::slab(dims[l], partition.planes(l)), TAG + number as u64);
            let planes = |(k, count): (isize, usize)| -> Result<Region<f64>, CudaError> {
                let first = vector.index() * grid.volume() + grid.plane_at(k);
                Ok(Region::from_buffer(memory[l].slice(first..first + count * grid.plane())?))
            };
            let link = |border: Border| -> Result<Link, CudaError> {
                let peer = communicator.peer(border.peer).map_err(CommError::from)?;
                let send = peer.send(&planes(border.send)?, tag).prepare_device();
                let receive = peer.recv(&planes(border.receive)?, tag).prepare_device();
                let send = send.map_err(CommError::from)?;
                Ok(Link { send, receive: receive.map_err(CommError::from)? })
            };
            borders.into_iter().map(link).collect()
        };
        let all = exchanges(partition, rank, size).into_iter().enumerate();
        let routes = all.map(links).collect::<Result<_, CudaError>>()?;
        let posted =
            Self { communicator: communicator.clone(), partition: partition.clone(), routes };
        // Both ends are known before kernels of any rank wait for any.
        posted.check()?;
        communicator.barrier().map_err(CommError::from)?;
        Ok(posted)
    }

    /// Enqueues sending the border planes of a vector of level `l`, U or scratch, to the neighbours and receiving theirs.
    pub fn exchange(&self, gpu: &Gpu, l: usize, vector: Vector) -> Result<(), CudaError> {
        self.run(gpu, border_number(l, vector), l)
    }

    /// Enqueues giving every rank the others' shares of the right-hand side of the first whole level.
    pub fn gather(&self, gpu: &Gpu) -> Result<(), CudaError> {
        self.run(gpu, gather_number(&self.partition), self.partition.whole())
    }

    /// Whether the ranks are there.
    ///
    /// # Errors
    /// What ended the world.
    pub fn check(&self) -> Result<(), CudaError> {
        for Link { send, receive } in self.routes.iter().flatten() {
            send.handle().map_err(CommError::from)?;
            receive.handle().map_err(CommError::from)?;
        }
        Ok(())
    }

    /// Waits for the stream and for what its kernels have reported.
    ///
    /// # Errors
    /// A wait that failed, what ended the world, the deadline.
    pub fn synchronize(&self, gpu: &Gpu, deadline: Deadline) -> Result<(), CudaError> {
        Ok(self.communicator.synchronize(&gpu.stream, deadline).map_err(CommError::from)?)
    }

    fn run(&self, gpu: &Gpu, number: usize, l: usize) -> Result<(), CudaError> {
        let links = &self.routes[number];
        // Behind everything that has read the ghosts: the neighbours may write them. Waits come last.
        let mut steps: Vec<Step<'_>> = Vec::with_capacity(3 * links.len());
        steps.extend(links.iter().map(|link| link.receive.start()));
        steps.extend(links.iter().map(|link| link.send.start()));
        steps.extend(links.iter().map(|link| link.receive.wait()));
        gpu.traced(l, "exchange", || {
            Ok(self.communicator.enqueue(&gpu.stream, &steps).map_err(CommError::from)?)
        })
    }
}
