//! Puts into a [`Window`], with a signal, and waits for signals, as steps of streams: prepared once, started any number of
//! times, in lists with messages, in graphs that are replayed. What kernels do with the window by themselves is `window`.
//!
//! A put is an end of a message that never waits for room, and a wait for a signal one that never posts: the same kernels
//! and the same counters serve them (`Endpoint::of_window`).

use std::fmt;
use std::sync::Arc;

use bytemuck::Pod;
use gdsync::Device;

use crate::data::endpoint::{Endpoint, OneSided, Side};
use crate::data::fused::Steps;
use crate::data::operation::sealed::Sealed;
use crate::data::operation::{Inside, Operation};
use crate::data::plane::Plane;
use crate::data::region::Region;
use crate::data::steps::Step;
use crate::data::window::Window;
use crate::error::{Error, Result};

/// A put into the memory of another rank, with or without a signal: [`Window::prepare_put`].
///
/// # Order
/// The bytes are what the region holds when the stream, or the group of threads, gets there; behind the start the region may
/// be written again. Start number n raises the signal to n, at system scope, when the bytes are there, and so are those of
/// every put that was started before it on the same stream. Nothing makes the put wait: that the other rank has read what the last one
/// brought, the two agree on by signals. The signal is this operation's: nothing else raises it.
///
/// # Dropping
/// As [`Send`](crate::Send).
pub struct Put {
    plane: Arc<Plane>,
    end: Arc<Endpoint>,
}

/// A wait for a signal of this rank: [`Window::prepare_wait`]. Wait number n is through when the signal is at least n,
/// so each takes one start of the [`Put`] that raises it; what that put brought is then visible behind it.
pub struct SignalWait {
    plane: Arc<Plane>,
    end: Arc<Endpoint>,
}

impl<T: Pod> Window<T> {
    /// Prepares a put of the whole region into the memory of rank `rank`, from its element `at` on, and then a signal of it, if
    /// one is named. The region is memory of this rank's device; an empty one is a signal alone.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`], [`Error::OutOfRange`]; [`Error::Mismatch`] for memory of another device than the window's;
    /// [`Error::Memory`].
    pub fn prepare_put(
        &self,
        rank: usize,
        at: u64,
        source: &Region<T>,
        signal: Option<usize>,
    ) -> Result<Put> {
        let at = self.range_of("a put", rank, at, source.len())?;
        let target = self.target(rank, at, source.buffer().size())?;
        let theirs = signal.map(|signal| self.signal_memory(rank, signal)).transpose()?;
        let ordinal = |device: &Device| device.as_cuda().map(gdsync::CudaDevice::ordinal);
        let memory = source.buffer().device();
        if ordinal(memory) != ordinal(self.device()) {
            return Err(Error::Mismatch {
                op: format!("a put to rank {rank}"),
                reason: format!("its source belongs to {memory}, its window to {}", self.device()),
            });
        }
        let end = Endpoint::of_window(
            &self.plane,
            OneSided {
                side: Side::Send,
                verb: if signal.is_some() { "put and signal" } else { "put" },
                signal: signal.unwrap_or_default() as u64,
                rank: self.world_rank(rank)?,
                memory: Some(source.buffer().bytes()),
                device: self.device().clone(),
                target,
                word: theirs,
                timeout: self.timeout,
            },
        )?;
        Ok(Put { plane: self.plane.clone(), end })
    }

    /// Prepares a wait for a signal of this rank.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Memory`].
    pub fn prepare_wait(&self, signal: usize) -> Result<SignalWait> {
        let end = Endpoint::of_window(
            &self.plane,
            OneSided {
                side: Side::Recv,
                verb: "signal",
                signal: signal as u64,
                rank: self.world_rank(self.rank())?,
                memory: None,
                device: self.device().clone(),
                target: None,
                word: Some(self.signal_memory(self.rank(), signal)?),
                timeout: self.timeout,
            },
        )?;
        Ok(SignalWait { plane: self.plane.clone(), end })
    }

    fn target(&self, rank: usize, at: usize, len: usize) -> Result<Option<gdsync::Buffer<u8>>> {
        let memory = self.memory_of(rank)?.bytes();
        if len == 0 {
            return Ok(None);
        }
        let failed = |source| Error::Memory { op: "a put".into(), source };
        memory.slice(at..at + len).map(Some).map_err(failed)
    }
}

impl Put {
    /// Puts, by the host.
    ///
    /// # Errors
    /// [`Error::Started`] if the last start has not been seen complete; [`Error::Memory`]; what ended the world.
    pub fn start(&self) -> Result<()> {
        self.end.start(&self.plane)
    }

    /// Puts when the stream gets there.
    ///
    /// # Errors
    /// [`Error::Mismatch`] for a stream of another device; [`Error::Memory`]; what ended the world.
    pub fn start_on(&self, stream: impl Steps) -> Result<()> {
        stream.add(Step::start(self))
    }

    /// What `mp::put` of `mp/window.cuh` takes to start the same operation in a kernel. Valid while this object lives.
    ///
    /// # Errors
    /// What ended the world.
    pub fn handle(&self) -> Result<mp_kernels::Put> {
        let message = self.end.handle(&self.plane)?;
        Ok(mp_kernels::Put { send: mp_kernels::Send { message } })
    }
}

impl SignalWait {
    /// Blocks the stream until the signal is there, or the communicator's timeout is over.
    ///
    /// # Errors
    /// As [`Put::start_on`].
    pub fn wait_on(&self, stream: impl Steps) -> Result<()> {
        stream.add(Step::wait(self))
    }

    /// What `mp::wait` of `mp/window.cuh` takes to wait for it in a kernel. Valid while this object lives.
    ///
    /// # Errors
    /// What ended the world.
    pub fn handle(&self) -> Result<mp_kernels::SignalWait> {
        let message = self.end.handle(&self.plane)?;
        Ok(mp_kernels::SignalWait { recv: mp_kernels::Recv { message } })
    }
}

macro_rules! operation {
    ($operation:ident) => {
        impl Operation for $operation {}

        impl Sealed for $operation {
            fn inside(&self) -> Inside<'_> {
                Inside { end: &self.end, plane: &self.plane }
            }
        }
    };
}

operation!(Put);
operation!(SignalWait);

impl fmt::Debug for Put {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.end.name)
    }
}

impl fmt::Debug for SignalWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.end.name)
    }
}
