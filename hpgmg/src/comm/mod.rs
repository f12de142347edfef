//! What the solver asks of a messaging library, and the libraries that give it.
//!
//! Messages are *prepared* once (peer, length, tag) and then started and completed many times, which
//! maps onto persistent MPI requests, onto prepared operations of a GPU-initiated library, and onto
//! shared buffers between threads. Every wait has a deadline; a failed wait is an error value that
//! names the peer. Nothing here allocates after `prepare`.

mod alone;
pub mod libmp;
#[cfg(feature = "mpi")]
pub mod mpi;

use std::sync::Arc;
use std::time::Duration;

use gdsync::{Buffer, Device};

pub use alone::Alone;

/// A failure of communication.
///
/// See [`Comm`] for an example.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CommError {
    /// A message or a reduction did not complete in time.
    #[error("rank {rank} waited {waited:?} for {what}; expected it within {limit:?}")]
    Timeout {
        /// The waiting rank.
        rank: usize,
        /// What for: operation, peer and tag.
        what: String,
        /// How long it waited.
        waited: Duration,
        /// The deadline.
        limit: Duration,
    },
    /// A message of a rank that is alone.
    #[error("a message with rank {peer}, tag {tag}, of a rank that is alone")]
    Alone {
        /// The other end.
        peer: usize,
        /// Its tag.
        tag: i32,
    },
    /// Two ranks prepared a message of different lengths.
    #[error(
        "message {from} → {to} tag {tag} has {sender} elements at the sender, {receiver} at the receiver"
    )]
    Length {
        /// Sender.
        from: usize,
        /// Receiver.
        to: usize,
        /// Tag.
        tag: i32,
        /// Length at the sender.
        sender: usize,
        /// Length at the receiver.
        receiver: usize,
    },
    /// Two libraries number the ranks differently.
    #[error("rank {} of {} of libmp is rank {} of {} of MPI", .rank[0], .size[0], .rank[1], .size[1])]
    OtherRanks {
        /// This rank, by libmp and by MPI.
        rank: [usize; 2],
        /// How many there are.
        size: [usize; 2],
    },
    /// No memory for a message.
    #[error("memory for a message")]
    Memory(#[from] gdsync::Error),
    /// libmp failed.
    #[error(transparent)]
    Libmp(#[from] ::libmp::Error),
    /// Streams and tasks have no messages of the library.
    #[error("--comm stream and --comm kernel send messages of libmp; these are ranks of {0}")]
    NotLibmp(&'static str),
    /// A stream of the host refused.
    #[error("a stream of the solve")]
    Stream(#[source] gdsync::Error),
    /// A task on a stream panicked.
    #[error("rank {rank}: a task of the solve panicked")]
    Panicked {
        /// The rank.
        rank: usize,
    },
    /// A call into the messaging library failed.
    #[error("{call} failed on rank {rank} with code {code}")]
    Library {
        /// Function of the library.
        call: &'static str,
        /// The calling rank.
        rank: usize,
        /// Its return code.
        code: i32,
    },
}

impl CommError {
    /// Whether it only says that another rank has failed.
    pub fn is_about_another_rank(&self) -> bool {
        use ::libmp::Error;
        matches!(self, CommError::Libmp(Error::PeerLost { .. } | Error::Aborted { .. }))
    }
}

/// One message of a phase in each direction between this rank and a peer.
///
/// See [`Comm`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The peer.
    pub peer: usize,
    /// Elements to send; 0 is no message.
    pub send: usize,
    /// Elements to receive; 0 is no message.
    pub receive: usize,
}

/// A set of ranks that exchange messages.
///
/// ```
/// use std::time::Duration;
///
/// use hpgmg::comm::{Comm, Message};
/// use hpgmg::launch::on_threads;
///
/// on_threads(2, Duration::from_secs(60), |comm| {
///     let other = 1 - comm.rank();
///     let mut phase = comm.prepare(7, &[Message { peer: other, send: 1, receive: 1 }])?; // once
///     for turn in 0..3 {
///         phase.begin()?;
///         phase.send_buffer(0)[0] = f64::from(turn) + 0.5 * comm.rank() as f64;
///         phase.start(0)?;
///         assert_eq!(phase.receive(0)?, [f64::from(turn) + 0.5 * other as f64]);
///         phase.end()?;
///     }
///     let everybody = comm.group(&[0, 1])?;
///     assert!(everybody.is_some());
///     Ok(())
/// })?;
/// # Ok::<(), hpgmg::error::Error>(())
/// ```
pub trait Comm {
    /// This rank.
    fn rank(&self) -> usize;
    /// Number of ranks.
    fn size(&self) -> usize;
    /// Name of the messaging library as shown to the user.
    fn name(&self) -> &'static str;
    /// libmp's communicator of these ranks, for what reaches memory of the others; `None` for other libraries.
    fn communicator(&self) -> Option<&::libmp::Communicator> {
        None
    }
    /// Itself, if these are ranks of a libmp world.
    fn as_libmp(&self) -> Option<&libmp::LibmpComm> {
        None
    }
    /// This rank's number on its host, where the library knows it.
    fn local_rank(&self) -> Option<usize> {
        None
    }
    /// The GPU that the launcher has chosen for this rank.
    fn assigned_gpu(&self) -> Option<&str> {
        None
    }
    /// Prepares the messages of one phase. A tag is prepared once per pair of ranks.
    ///
    /// # Errors
    /// [`CommError`] when the library refuses.
    fn prepare(&self, tag: i32, messages: &[Message]) -> Result<Box<dyn Exchange>, CommError> {
        self.prepare_for(&Device::Host, tag, messages)
    }
    /// As [`prepare`](Self::prepare), with buffers that the copy engines of `device` reach, where the library has such:
    /// see [`Exchange::buffers`].
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare); when there is no such memory.
    fn prepare_for(
        &self,
        device: &Device,
        tag: i32,
        messages: &[Message],
    ) -> Result<Box<dyn Exchange>, CommError>;
    /// The group of `members` (increasing); every rank of the communicator calls it in the same order and
    /// non-members get `None`.
    ///
    /// # Errors
    /// [`CommError`] when the library refuses or a rank does not come.
    fn group(&self, members: &[usize]) -> Result<Option<Box<dyn Group>>, CommError>;
}

/// The prepared messages of one phase, indexed as given to [`Comm::prepare`].
///
/// One use is: `begin`; fill `send_buffer` and `start` of every message with something to send;
/// `receive` of every message with something to receive; `end`.
///
/// See [`Comm`] for an example.
pub trait Exchange {
    /// Posts the receives and makes the send buffers writable (waits until the last use has left them).
    ///
    /// # Errors
    /// [`CommError`] on deadline or peer failure.
    fn begin(&mut self) -> Result<(), CommError>;
    /// Buffer of message `index`, between `begin` and `start`.
    fn send_buffer(&mut self, index: usize) -> &mut [f64];
    /// The memory of the buffers of message `index`, to send and to receive, for streams to copy from and to at the times
    /// when this crate may access them; `None` if only the CPU reaches it.
    fn buffers(&self, _index: usize) -> Option<[Buffer<f64>; 2]> {
        None
    }
    /// Sends message `index`.
    ///
    /// # Errors
    /// [`CommError`] when the library refuses.
    fn start(&mut self, index: usize) -> Result<(), CommError>;
    /// The place in `waiting` of a message to receive next: the first, or one that has come, see [`Starter::Task`].
    ///
    /// # Errors
    /// [`CommError`] on deadline or peer failure.
    fn first(&mut self, _waiting: &[usize]) -> Result<usize, CommError> {
        Ok(0)
    }
    /// Waits for message `index` and returns it; valid until `end`.
    ///
    /// # Errors
    /// [`CommError`] on deadline or peer failure.
    fn receive(&mut self, index: usize) -> Result<&[f64], CommError>;
    /// Waits until what was sent has left, where the library does not see to it by itself while this rank does something
    /// else.
    ///
    /// # Errors
    /// [`CommError`] on deadline or peer failure.
    fn sent(&mut self) -> Result<(), CommError> {
        Ok(())
    }
    /// Gives the received buffers back.
    ///
    /// # Errors
    /// [`CommError`] when the library refuses.
    fn end(&mut self) -> Result<(), CommError>;
    /// From now on `starter` starts the messages, where the library can tell the difference; for streams the messages, if there
    /// are any.
    ///
    /// # Errors
    /// [`CommError`] on deadline or peer failure.
    fn hand_over(&mut self, _starter: Starter) -> Result<Option<Arc<libmp::Links>>, CommError> {
        Ok(None)
    }
}

/// Who starts the messages of an [`Exchange`] and waits for them.
///
/// See [`Enqueued`](crate::enqueued::Enqueued) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starter {
    /// Whoever calls; messages are received in the order of the ranks.
    Caller,
    /// Whoever calls, a task of a stream; messages are received as they come.
    Task,
    /// A stream, on which sends, receives and waits are enqueued ([`libmp::Links`]): between them its tasks fill and read
    /// the buffers, and calls start and wait for nothing.
    Stream,
}

/// Ranks that reduce together. All members call the same operations in the same order.
///
/// See [`Comm`] for an example.
pub trait Group {
    /// Number of members.
    fn size(&self) -> usize;
    /// Element-wise maximum over the members; NaN where one of them has NaN.
    ///
    /// # Errors
    /// [`CommError`] on deadline or peer failure.
    fn max(&mut self, values: &mut [f64]) -> Result<(), CommError>;
    /// Element-wise sum over the members, in an order that the library chooses: exact, and so
    /// independent of it, where every element is nonzero on one member only.
    ///
    /// # Errors
    /// [`CommError`] on deadline or peer failure.
    fn sum(&mut self, values: &mut [f64]) -> Result<(), CommError>;
}
