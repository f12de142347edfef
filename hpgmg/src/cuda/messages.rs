//! Communication on a stream between ranks that do not reach each other's memory (algorithm 2 of Agostini et al.): borders are
//! copied to pinned memory, libmp's messages go from there, and what arrives is copied into the ghosts, all of it enqueued.
//! The CPU waits for nothing within a solve. `--comm stream` over a NIC; epochs of messages are constants of what is
//! enqueued, so no graph can hold them.

use gdsync::{Buffer, Device, Stream};
use libmp::{Communicator, Operation, PreparedRecv, PreparedSend, Region};

use super::borders::{Border, Exchanged, border_number, exchanges, gather_number};
use super::error::CudaError;
use super::layout::Grid;
use super::partition::Partition;
use super::solver::Gpu;
use crate::backend::Vector;
use crate::comm::CommError;

/// Tags of the messages: this and the number of the exchange.
const TAG: u64 = 2000;

/// A border and its messages.
struct Link {
    border: Border,
    send: (Buffer<f64>, PreparedSend),
    receive: (Buffer<f64>, PreparedRecv),
}

/// The prepared messages of a rank.
pub(super) struct Messages {
    pub partition: Partition,
    /// By number of the exchange.
    routes: Vec<Vec<Link>>,
}

impl Messages {
    /// Prepares the messages of all exchanges. `dims` are those of the levels.
    ///
    /// # Errors
    /// When libmp refuses.
    pub fn prepare(
        communicator: &Communicator,
        device: &Device,
        partition: &Partition,
        dims: &[usize],
    ) -> Result<Self, CudaError> {
        let (rank, size) = (communicator.rank(), communicator.size());
        let link = |border: Border, plane: usize, tag: u64| -> Result<Link, CudaError> {
            let peer = communicator.peer(border.peer).map_err(CommError::from)?;
            let out = device.alloc_pinned::<f64>(border.send.1 * plane)?;
            let into = device.alloc_pinned::<f64>(border.receive.1 * plane)?;
            let send = peer.send(&Region::from_buffer(out.clone()), tag).prepare();
            let receive = peer.recv(&Region::from_buffer(into.clone()), tag).prepare();
            let send = (out, send.map_err(CommError::from)?);
            Ok(Link { border, send, receive: (into, receive.map_err(CommError::from)?) })
        };
        let links = |(number, Exchanged { level, borders, .. })| {
            let (plane, tag) = (Grid::new(dims[level]).plane(), TAG + number as u64);
            borders.into_iter().map(|border| link(border, plane, tag)).collect()
        };
        let all = exchanges(partition, rank, size).into_iter().enumerate();
        let routes = all.map(links).collect::<Result<_, CudaError>>()?;
        Ok(Self { partition: partition.clone(), routes })
    }

    /// Enqueues sending the border planes of a vector of level `l` to the neighbours and receiving theirs.
    pub fn exchange(&self, gpu: &Gpu, l: usize, vector: Vector) -> Result<(), CudaError> {
        self.run(gpu, border_number(l, vector), l, vector)
    }

    /// Enqueues giving every rank the others' shares of a vector of the first whole level.
    pub fn gather(&self, gpu: &Gpu, vector: Vector) -> Result<(), CudaError> {
        self.run(gpu, gather_number(&self.partition), self.partition.whole(), vector)
    }

    /// While the stream is waited for: answers what other ranks ask of this one.
    ///
    /// # Errors
    /// What ended the world.
    pub fn progress(&self) -> Result<(), CudaError> {
        let mut links = self.routes.iter().flatten();
        links.try_for_each(|link| {
            link.receive.1.test().map_err(CommError::from)?;
            Ok(())
        })
    }

    fn run(&self, gpu: &Gpu, number: usize, l: usize, vector: Vector) -> Result<(), CudaError> {
        let stream: &Stream = &gpu.stream;
        let (links, level) = (&self.routes[number], &gpu.levels[l]);
        let planes = |(k, count)| level.planes(vector.index(), k, count);
        // What was received last has been copied by then, so the buffers may be the senders' again.
        for Link { receive: (_, receive), .. } in links {
            receive.start_on(stream).map_err(CommError::from)?;
        }
        for Link { border, send: (out, send), .. } in links {
            gpu.traced(l, "pack", || Ok(stream.copy(out, &planes(border.send)?)?))?;
            gpu.traced(l, "send", || Ok(send.start_on(stream).map_err(CommError::from)?))?;
        }
        for Link { border, send: (_, send), receive: (into, receive) } in links {
            gpu.traced(l, "receive", || Ok(receive.wait_on(stream).map_err(CommError::from)?))?;
            gpu.traced(l, "unpack", || Ok(stream.copy(&planes(border.receive)?, into)?))?;
            // The next message is copied into the same memory.
            send.wait_on(stream).map_err(CommError::from)?;
        }
        Ok(())
    }
}
