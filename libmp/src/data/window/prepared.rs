//! Puts into a [`Window`], with a signal, gets from it, and waits for signals, prepared once and started any number of times: by the
//! host, on streams, in lists with messages, in graphs that are replayed, and in kernels, over mapped memory and through a NIC.
//!
//! A put or a get is an end of a message that never waits for room, and a wait for a signal one that never posts: the same kernels
//! and the same counters serve them (`Endpoint::of_window`).

use std::fmt;
use std::sync::Arc;

use bytemuck::Pod;

use super::Window;
use crate::data::endpoint::Endpoint;
use crate::data::endpoint::stream::Step;
use crate::data::fused::Steps;
use crate::data::operation::sealed::Sealed;
use crate::data::operation::{Inside, Operation};
use crate::data::plane::Plane;
use crate::data::region::Region;
use crate::error::{Error, Result};
use crate::transport::{Connection, OneSided, OneSidedKind};

/// A put into the memory of another rank, with or without a signal: [`Window::prepare_put`].
///
/// # Order
/// The bytes are what the region holds when the host, the stream, or the group of threads, gets there; behind the start, by the
/// host once it is complete, the region may be written again. Start number n raises the signal to n, at system scope, when the bytes
/// are there, and so are those of every put that was started before it on the same stream. Nothing makes the put wait: that the other
/// rank has read what the last one brought, the two agree on by signals. The signal is this operation's: nothing else raises it.
///
/// # Dropping
/// As [`Send`](crate::Send). It keeps the other rank's share; the window itself may be dropped before.
///
/// ```
/// use std::time::Duration;
///
/// use libmp::{Deadline, Device, Step, World};
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// # let share = world.alloc::<u64>(&Device::Host, 4)?;
/// # let window = world.window(&share, 1)?; // a collective call; one signal for each rank
/// # let right = (world.rank() + 1) % world.size();
/// # let mine = world.alloc::<u64>(&Device::Host, 2)?;
/// let put = window.prepare_put(right, 0, &mine, Some(0))?;
/// let arrived = window.prepare_wait(0)?;
/// let stream = world.stream(&Device::Host)?;
/// for _ in 0..3 {
///     world.enqueue(&stream, &[Step::start(&put), Step::wait(&arrived)])?;
/// }
/// world.synchronize(&stream, Deadline::after(Duration::from_secs(10)))?;
/// assert_eq!(window.read_signal(0)?, 3);
/// # world.barrier()?;
/// # world.finish()
/// # }
/// ```
pub struct Put {
    plane: Arc<Plane>,
    end: Arc<Endpoint>,
    _connection: Arc<dyn Connection>,
}

/// A get from the memory of another rank: [`Window::prepare_get`]. Behind a start on a stream, in a kernel behind a barrier of the
/// group, and by the host once it is complete, the region holds what the rank's memory held meanwhile; that it was whole the two
/// agree on by signals.
///
/// # Dropping
/// As [`Put`].
///
/// ```
/// use std::time::Duration;
///
/// use libmp::{Deadline, Device, Operation, World};
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// # let share = world.alloc::<u64>(&Device::Host, 4)?;
/// # let window = world.window(&share, 1)?; // a collective call; one signal for each rank
/// # let right = (world.rank() + 1) % world.size();
/// # let mine = world.alloc::<u64>(&Device::Host, 2)?;
/// let get = window.prepare_get(right, 1, &mine)?;
/// get.start()?;
/// get.wait(Deadline::after(Duration::from_secs(10)))?;
/// assert_eq!(mine.to_vec()?, [0, 0]);
/// # world.barrier()?;
/// # world.finish()
/// # }
/// ```
pub struct Get {
    plane: Arc<Plane>,
    end: Arc<Endpoint>,
    _connection: Arc<dyn Connection>,
}

/// A wait for a signal of this rank: [`Window::prepare_wait`]. Wait number n is through when the signal is at least n, so each takes
/// one start of the [`Put`] that raises it; what that put brought is then visible to whoever waited.
///
/// ```
/// use std::time::Duration;
///
/// use libmp::{Deadline, Device, Operation, World};
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// # let share = world.alloc::<u64>(&Device::Host, 4)?;
/// # let window = world.window(&share, 1)?; // a collective call; one signal for each rank
/// # let right = (world.rank() + 1) % world.size();
/// # let mine = world.alloc::<u64>(&Device::Host, 2)?;
/// let put = window.prepare_put(right, 0, &mine, Some(0))?;
/// let arrived = window.prepare_wait(0)?;
/// put.start()?;
/// arrived.start()?;
/// arrived.wait(Deadline::after(Duration::from_secs(10)))?; // for the first start of the put
/// # put.wait(Deadline::after(Duration::from_secs(10)))?;
/// # world.barrier()?;
/// # world.finish()
/// # }
/// ```
pub struct SignalWait {
    plane: Arc<Plane>,
    end: Arc<Endpoint>,
    _connection: Arc<dyn Connection>,
}

impl<T: Pod> Window<T> {
    /// Prepares a put of the whole region into the memory of rank `rank`, from its element `at` on, and then a signal of it, if
    /// one is named. The region is memory of this rank's device; an empty one is a signal alone.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`], [`Error::OutOfRange`]; [`Error::Mismatch`] for memory of another device than the window's;
    /// [`Error::Memory`], [`Error::Nic`]; what ended the world.
    pub fn prepare_put(
        &self,
        rank: usize,
        at: u64,
        source: &Region<T>,
        signal: Option<usize>,
    ) -> Result<Put> {
        let signals = signal.is_some();
        let kind = OneSidedKind::Put { signals };
        let verb = if signals { "put and signal" } else { "put" };
        let (end, connection) = self.prepare(kind, verb, rank, at, source, signal)?;
        Ok(Put { plane: self.plane.clone(), end, _connection: connection })
    }

    /// Prepares a get of the memory of rank `rank`, from its element `at` on, that fills the whole region. The region is memory
    /// of this rank's device.
    ///
    /// # Errors
    /// As [`prepare_put`](Self::prepare_put).
    pub fn prepare_get(&self, rank: usize, at: u64, target: &Region<T>) -> Result<Get> {
        let (end, connection) = self.prepare(OneSidedKind::Get, "get", rank, at, target, None)?;
        Ok(Get { plane: self.plane.clone(), end, _connection: connection })
    }

    /// Prepares a wait for a signal of this rank.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Memory`]; what ended the world.
    pub fn prepare_wait(&self, signal: usize) -> Result<SignalWait> {
        let part = self.check_signal("a wait", self.rank, signal)?;
        let none = self.own.memory().slice(0..0).map_err(super::failed("a wait"))?;
        let what = OneSided { kind: OneSidedKind::Wait, at: 0, memory: none, signal: Some(signal) };
        let end = self.end_of(part, "signal", what)?;
        let connection = part.connection.clone();
        Ok(SignalWait { plane: self.plane.clone(), end, _connection: connection })
    }

    fn prepare(
        &self,
        kind: OneSidedKind,
        verb: &'static str,
        rank: usize,
        at: u64,
        region: &Region<T>,
        signal: Option<usize>,
    ) -> Result<(Arc<Endpoint>, Arc<dyn Connection>)> {
        let (part, at) = self.range(verb, rank, at, region.len())?;
        if let Some(signal) = signal {
            self.check_signal(verb, rank, signal)?;
        }
        let (memory, device) = (region.buffer().device(), self.all.table.device());
        if memory.ordinal() != device.ordinal() {
            return Err(Error::Mismatch {
                op: format!("a {verb} of rank {rank}"),
                reason: format!("its region belongs to {memory}, its window to {device}"),
            });
        }
        let memory = region.buffer().bytes();
        let end = self.end_of(part, verb, OneSided { kind, at, memory, signal })?;
        Ok((end, part.connection.clone()))
    }

    fn end_of(
        &self,
        part: &super::Part,
        verb: &'static str,
        what: OneSided,
    ) -> Result<Arc<Endpoint>> {
        let named = (verb, part.rank);
        let device = self.all.table.device();
        Endpoint::of_window(&self.plane, self.timeout, named, &*part.connection, device, what)
    }
}

macro_rules! operation {
    ($operation:ident, $start:literal, $start_on:literal, $wait_on:literal, $step_in_kernel:literal, $handle:ident, $($of:tt)+) => {
        impl $operation {
            #[doc = $start]
            ///
            /// # Errors
            /// [`Error::Started`] if the last start has not been seen complete; [`Error::Memory`]; what ended the world.
            pub fn start(&self) -> Result<()> {
                self.end.start(&self.plane)
            }

            #[doc = $start_on]
            ///
            /// # Errors
            /// [`Error::Mismatch`] for a stream of another device; [`Error::Memory`]; what ended the world.
            pub fn start_on(&self, stream: impl Steps) -> Result<()> {
                stream.add(Step::start(self))
            }

            #[doc = $wait_on]
            ///
            /// # Errors
            /// As [`start_on`](Self::start_on).
            pub fn wait_on(&self, stream: impl Steps) -> Result<()> {
                stream.add(Step::wait(self))
            }

            #[doc = $step_in_kernel]
            ///
            /// # Errors
            /// What ended the world.
            pub fn handle(&self) -> Result<mp_kernels::$handle> {
                let of = $($of)+;
                self.end.handle(&self.plane).map(of)
            }
        }

        impl Operation for $operation {}

        impl Sealed for $operation {
            fn inside(&self) -> Inside<'_> {
                Inside { end: &self.end, plane: &self.plane }
            }
        }

        impl Drop for $operation {
            fn drop(&mut self) {
                self.end.retire(&self.plane);
            }
        }

        impl fmt::Debug for $operation {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.end.name)
            }
        }
    };
}

operation!(
    Put,
    "Puts, by the host.",
    "Puts when the stream gets there.",
    "Makes a stream wait until what the host has started is complete.",
    "What `mp::put` of `mp/window.cuh` takes to start the same operation in a kernel. Valid while this object lives.",
    Put,
    |message| mp_kernels::Put { send: mp_kernels::Send { message } }
);
operation!(
    Get,
    "Gets, by the host.",
    "Gets when the stream gets there: what comes after it on the stream finds the bytes.",
    "Makes a stream wait until what the host has started is complete.",
    "What `mp::get` of `mp/window.cuh` takes to start the same operation in a kernel. Valid while this object lives.",
    Get,
    |message| mp_kernels::Get { send: mp_kernels::Send { message } }
);
operation!(
    SignalWait,
    "Begins a wait of the host: [`wait`](Operation::wait) and [`test`](Operation::test) say when it is through.",
    "Nothing: a stream waits where it is told to.",
    "Blocks the stream until the signal is there, or the communicator's timeout is over.",
    "What `mp::wait` of `mp/window.cuh` takes to wait for it in a kernel. Valid while this object lives.",
    SignalWait,
    |message| mp_kernels::SignalWait { recv: mp_kernels::Recv { message } }
);
