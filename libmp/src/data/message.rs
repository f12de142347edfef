//! Messages as their users hold them: the prepared send and the prepared receive.

use std::fmt;
use std::sync::Arc;

use gdsync::Stream;

use super::half::Half;
use super::operation::sealed::Sealed;
use super::operation::{Inside, Operation, Progress};
use super::plane::Plane;
use crate::error::Result;

/// A prepared send: copies the region into the buffer that the peer has posted, each time it is started.
///
/// # Order
/// Complete means: the bytes are in the peer's buffer, and the region may be written again. A peer that sees its receive
/// complete sees the bytes. The n-th start here meets the n-th start of the peer's receive, wherever both are started.
///
/// # Dropping
/// Drop it when it is complete. What was started before that is still sent if this rank makes other calls. The peer's
/// receive gets no more messages: a new pair is prepared on both sides.
pub struct PreparedSend {
    plane: Arc<Plane>,
    half: Arc<Half>,
}

impl PreparedSend {
    pub(crate) fn new(plane: Arc<Plane>, half: Arc<Half>) -> PreparedSend {
        PreparedSend { plane, half }
    }

    /// Starts it and returns. If the peer's buffer is there, the bytes are copied now; otherwise by whichever call of this
    /// rank comes after the peer has posted it.
    ///
    /// # Errors
    /// [`Error::Started`](crate::Error::Started) if the last start has not been seen complete by [`test`](Operation::test)
    /// or [`wait`](Operation::wait); [`Error::Truncated`](crate::Error::Truncated) or
    /// [`Error::Memory`](crate::Error::Memory) if the two sides do not fit together and that is known by now; what ended
    /// the world.
    pub fn start(&self) -> Result<()> {
        self.half.start(&self.plane)
    }

    /// Starts it on a stream and returns: the stream waits for the peer's buffer, copies, and signals. What the stream did
    /// before is in the message; what it does afterwards may write the region. It may be started again on the same stream
    /// at once. The first time, the call waits until the peer has prepared its receive.
    ///
    /// Not for a stream that captures a graph: the epoch is a constant of what is enqueued, so a replay would not wait.
    ///
    /// # Errors
    /// As [`start`](Self::start); [`Error::Late`](crate::Error::Late) if the peer has not prepared within the
    /// communicator's timeout; [`Error::Memory`](crate::Error::Memory) if the stream cannot reach the memory.
    pub fn start_on(&self, stream: &Stream) -> Result<()> {
        self.half.start_on(&self.plane, stream)
    }

    /// Makes a stream wait until the last start is complete, started by the host or on another stream.
    ///
    /// # Errors
    /// As [`start_on`](Self::start_on).
    pub fn wait_on(&self, stream: &Stream) -> Result<()> {
        self.half.wait_on(&self.plane, stream)
    }

    /// Length of the message in bytes.
    pub fn len(&self) -> u64 {
        self.half.memory.len() as u64
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.half.memory.is_empty()
    }
}

/// A prepared receive: posts the region to the peer, and is complete when the peer's message is in it, each time it is
/// started.
///
/// # Order
/// From `start` on the region is the peer's to write. Once the receive is seen complete the bytes are visible to whoever saw
/// it – the thread, or what comes after `wait_on` on the stream – and nobody writes the region until the next start.
///
/// # Dropping
/// Drop it when it is complete. If it is dropped before, the peer may still write the memory, which is kept for that as long
/// as the peer keeps its half.
pub struct PreparedRecv {
    plane: Arc<Plane>,
    half: Arc<Half>,
}

impl PreparedRecv {
    pub(crate) fn new(plane: Arc<Plane>, half: Arc<Half>) -> PreparedRecv {
        PreparedRecv { plane, half }
    }

    /// Posts the region and returns. If the peer has not prepared its send yet, it is posted by whichever call of this
    /// rank comes after that.
    ///
    /// # Errors
    /// As [`PreparedSend::start`].
    pub fn start(&self) -> Result<()> {
        self.half.start(&self.plane)
    }

    /// Posts the region when the stream gets there: what the stream did before may have read it. The first time, the call
    /// waits until the peer has prepared its send. It may be started again on a stream that was made to
    /// [wait](Self::wait_on) for it.
    ///
    /// Not for a stream that captures a graph, as [`PreparedSend::start_on`].
    ///
    /// # Errors
    /// As [`PreparedSend::start_on`].
    pub fn start_on(&self, stream: &Stream) -> Result<()> {
        self.half.start_on(&self.plane, stream)
    }

    /// Makes a stream wait until the last start is complete, started by the host or on any stream. If the world ends
    /// meanwhile, the stream is released, and what it then reads means nothing.
    ///
    /// # Errors
    /// As [`PreparedSend::start_on`].
    pub fn wait_on(&self, stream: &Stream) -> Result<()> {
        self.half.wait_on(&self.plane, stream)
    }

    /// Length of the peer's messages in bytes; `None` if it has not prepared its send, as far as is known here.
    ///
    /// # Errors
    /// [`Error::Truncated`](crate::Error::Truncated) if they are longer than the region.
    pub fn message_len(&self) -> Result<Option<u64>> {
        Ok(self.half.other()?.map(|other| other.len))
    }
}

macro_rules! operation {
    ($operation:ident) => {
        impl Operation for $operation {}

        impl Sealed for $operation {
            fn inside(&self) -> Inside<'_> {
                Inside { half: &self.half, plane: &self.plane }
            }
        }

        impl fmt::Debug for $operation {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let Progress { what, .. } = self.half.progress();
                write!(f, "{what}")
            }
        }

        impl Drop for $operation {
            fn drop(&mut self) {
                self.half.retire(&self.plane);
            }
        }
    };
}

operation!(PreparedSend);
operation!(PreparedRecv);
