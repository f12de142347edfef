//! Messages as their users hold them: the prepared send and the prepared receive.

use std::fmt;
use std::sync::Arc;

use super::endpoint::Endpoint;
use super::endpoint::stream::Step;
use super::fused::Steps;
use super::operation::sealed::Sealed;
use super::operation::{Inside, Operation};
use super::plane::Plane;
use crate::error::Result;

/// A prepared send: copies the region into the buffer that the peer has posted, each time it is started – by the host, on a
/// stream or in a kernel, in any mixture, whatever starts the peer's receive. Starts are counted in the memory of the device
/// that the region belongs to, so a captured graph that starts it can be replayed. They must not overlap: one is complete, or
/// ordered before on the same stream, when the next begins.
///
/// # Order
/// Seen complete by the host means: the bytes are at the peer, and the region may be written again. On a stream, or in a group
/// of threads after a barrier, the region may be written behind the start. A peer that sees its receive complete sees the
/// bytes. The n-th start here meets the n-th start of the peer's receive, wherever both are started. Two sends are received in
/// the order of their own receives; they are in no other order, and messages of at most 8 KiB between GPUs order nothing else.
///
/// A start waits until there is room, on the device that does it; a start of the host is left to later calls of this rank. Up to
/// four messages of at most 8 KiB between GPUs, or to a GPU through a NIC, are on their way unasked, three or four of at most 96
/// bytes between hosts' memories that are mapped, and one from a host to a GPU, which fetches it; others wait for the posted buffer. Streams and kernels wait at most for the communicator's timeout;
/// [`Communicator::synchronize`](crate::Communicator::synchronize) says so.
///
/// # Dropping
/// Drop it when nothing that starts it runs or will run: streams, kernels that have its handle, graphs. What the host has started
/// before is still sent if this rank makes other calls. The peer's receive gets no more messages: a new pair is prepared on both
/// sides.
///
/// ```
/// use std::time::Duration;
///
/// use libmp::{Deadline, Device, Operation, World};
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// # let (edge, ghost) = (world.alloc::<f64>(&Device::Host, 9)?, world.alloc::<f64>(&Device::Host, 9)?);
/// # let right = world.peer((world.rank() + 1) % world.size())?;
/// # let left = world.peer((world.rank() + world.size() - 1) % world.size())?;
/// # let recv = left.recv(&ghost, 7).prepare()?;
/// let send = right.send(&edge, 7).prepare()?;
/// for step in 0..3 {
///     # recv.start()?;
///     edge.write(&[f64::from(step); 9])?;
///     send.start()?;
///     send.wait(Deadline::after(Duration::from_secs(10)))?; // the bytes are at the peer
///     # recv.wait(Deadline::after(Duration::from_secs(10)))?;
/// }
/// # world.finish()
/// # }
/// ```
pub struct Send {
    plane: Arc<Plane>,
    end: Arc<Endpoint>,
}

/// A prepared receive: posts the region to the peer, and is complete when the peer's message is in it, each time it is started,
/// by the host, on a stream or in a kernel, as a [`Send`].
///
/// # Order
/// From its start on the region is the peer's to write. Once the receive is seen complete the bytes are visible to whoever saw
/// it – the thread, what comes after `wait_on` on the stream, the group of threads – and nobody writes the region until the
/// next start. One start, one wait; on host memory further waits return at once.
///
/// # Dropping
/// As [`Send`]. If it is dropped before it is complete, the peer may still write the memory, which is kept for that as long as
/// the peer keeps its end.
///
/// ```
/// use std::time::Duration;
///
/// use libmp::{Deadline, Device, Operation, World};
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// # let (edge, ghost) = (world.alloc::<f64>(&Device::Host, 9)?, world.alloc::<f64>(&Device::Host, 9)?);
/// # let right = world.peer((world.rank() + 1) % world.size())?;
/// # let left = world.peer((world.rank() + world.size() - 1) % world.size())?;
/// # let send = right.send(&edge, 7).prepare()?;
/// let recv = left.recv(&ghost, 7).prepare()?;
/// for step in 0..3 {
///     recv.start()?; // the peer may write the region
///     # edge.write(&[f64::from(step); 9])?;
///     # send.start()?;
///     recv.wait(Deadline::after(Duration::from_secs(10)))?;
///     assert_eq!(ghost.to_vec()?, [f64::from(step); 9]);
///     # send.wait(Deadline::after(Duration::from_secs(10)))?;
/// }
/// # world.finish()
/// # }
/// ```
pub struct Recv {
    plane: Arc<Plane>,
    end: Arc<Endpoint>,
}

impl Send {
    /// Starts it and returns. If the peer's buffer is there, the bytes are copied now; otherwise by whichever call of this
    /// rank comes after the peer has posted it. For memory of a GPU, on a stream of the operation's own.
    ///
    /// # Errors
    /// [`Error::Started`](crate::Error::Started) if the last start has not been seen complete by [`test`](Operation::test)
    /// or [`wait`](Operation::wait); [`Error::Truncated`](crate::Error::Truncated) or
    /// [`Error::Memory`](crate::Error::Memory) if the two sides do not fit together and that is known by now; what ended
    /// the world.
    pub fn start(&self) -> Result<()> {
        self.end.start(&self.plane)
    }

    /// Starts it on a stream of its memory's device and returns: the stream waits for room, moves the message, and signals.
    /// What the stream did before is in the message; what it does afterwards may write the region. The first time the call
    /// waits until the peer has prepared its receive.
    ///
    /// # Errors
    /// As [`start`](Self::start), where a start ordered before on the same stream does no harm;
    /// [`Error::Late`](crate::Error::Late) if the peer has not prepared within the communicator's timeout;
    /// [`Error::Mismatch`](crate::Error::Mismatch) for a stream of another device.
    pub fn start_on(&self, stream: impl Steps) -> Result<()> {
        stream.add(Step::start(self))
    }

    /// Makes a stream wait until what the host has started is complete.
    ///
    /// # Errors
    /// As [`start_on`](Self::start_on).
    pub fn wait_on(&self, stream: impl Steps) -> Result<()> {
        stream.add(Step::wait(self))
    }

    /// What `mp::send` of `mp/message.cuh` takes. Valid while this object lives. Waits until the peer has prepared its
    /// receive and, the first time through a NIC, until a call of the peer has connected its side for kernels.
    ///
    /// # Errors
    /// As [`start_on`](Self::start_on); [`Error::Mismatch`](crate::Error::Mismatch) for a message in pieces.
    pub fn handle(&self) -> Result<mp_kernels::Send> {
        Ok(mp_kernels::Send { message: self.end.handle(&self.plane)? })
    }

    /// Length of the message in bytes.
    pub fn len(&self) -> u64 {
        self.end.memory.len() as u64
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.end.memory.is_empty()
    }
}

impl Recv {
    /// Posts the region and returns. If the peer has not prepared its send yet, it is posted by whichever call of this
    /// rank comes after that.
    ///
    /// # Errors
    /// As [`Send::start`].
    pub fn start(&self) -> Result<()> {
        self.end.start(&self.plane)
    }

    /// Posts the region when the stream gets there: what the stream did before may have read it. The first time the call
    /// waits until the peer has prepared its send. It may be started again on a stream that was made to
    /// [wait](Self::wait_on) for it.
    ///
    /// # Errors
    /// As [`Send::start_on`].
    pub fn start_on(&self, stream: impl Steps) -> Result<()> {
        stream.add(Step::start(self))
    }

    /// Makes a stream wait for the message, wherever the receive was started. If the world ends meanwhile or the timeout
    /// passes, the stream goes on, what it then reads means nothing, and
    /// [`Communicator::synchronize`](crate::Communicator::synchronize) says why.
    ///
    /// # Errors
    /// As [`Send::start_on`].
    pub fn wait_on(&self, stream: impl Steps) -> Result<()> {
        stream.add(Step::wait(self))
    }

    /// What `mp::post` and `mp::recv` of `mp/message.cuh` take, as [`Send::handle`].
    ///
    /// # Errors
    /// As [`Send::handle`].
    pub fn handle(&self) -> Result<mp_kernels::Recv> {
        Ok(mp_kernels::Recv { message: self.end.handle(&self.plane)? })
    }

    /// Length of the peer's messages in bytes; `None` if it has not prepared its send, as far as is known here.
    ///
    /// # Errors
    /// [`Error::Truncated`](crate::Error::Truncated) if they are longer than the region.
    pub fn message_len(&self) -> Result<Option<u64>> {
        Ok(self.end.way()?.map(|way| way.len))
    }
}

macro_rules! operation {
    ($operation:ident) => {
        impl $operation {
            pub(crate) fn new(plane: Arc<Plane>, end: Arc<Endpoint>) -> $operation {
                $operation { plane, end }
            }
        }

        impl Operation for $operation {}

        impl Sealed for $operation {
            fn inside(&self) -> Inside<'_> {
                Inside { end: &self.end, plane: &self.plane }
            }
        }

        impl fmt::Debug for $operation {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.end.progress(&self.plane).what)
            }
        }

        impl Drop for $operation {
            fn drop(&mut self) {
                self.end.retire(&self.plane);
            }
        }
    };
}

operation!(Send);
operation!(Recv);
