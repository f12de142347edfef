//! What can go wrong with a NIC, a queue pair or a request.

use std::sync::Arc;
use std::time::Duration;

use gdsync_sys::LoadError;

use crate::verbs;
use crate::wqe::{Completion, CompletionError, EncodeError, ReceiveError, RingError, Syndrome};

/// The result of every fallible call of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a NIC, a queue pair or a request.
///
/// See [`QueuePairOptions`](super::QueuePairOptions) for an example.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Memory, a stream or the system.
    #[error(transparent)]
    Device(#[from] crate::Error),

    /// An option is out of range.
    #[error("{option} is {value}: {expected}")]
    Option {
        /// The option.
        option: &'static str,
        /// What was given.
        value: String,
        /// What would do.
        expected: &'static str,
    },

    /// Memory that this NIC cannot reach.
    #[error("{what} cannot be registered with {nic}: {why}")]
    Register {
        /// The NIC.
        nic: String,
        /// The memory, in words.
        what: String,
        /// The reason.
        why: &'static str,
    },

    /// The request does not fit an entry.
    #[error(transparent)]
    Encode(#[from] EncodeError),

    /// The receive does not fit an entry.
    #[error(transparent)]
    Receive(#[from] ReceiveError),

    /// The ring cannot hold the entry.
    #[error(transparent)]
    Ring(#[from] RingError),

    /// The queue has no room until earlier entries complete: back-pressure, try again after polling.
    #[error("the {queue} queue of queue pair {qpn:#x} is full: {used} of {size} in use")]
    Full {
        /// Which queue.
        queue: &'static str,
        /// The queue pair.
        qpn: u32,
        /// Basic blocks, or entries, not known to be complete.
        used: u64,
        /// How many there are.
        size: u64,
    },

    /// The CPU was to post, or to take completions, where only kernels do ([`Posters::Kernels`](super::Posters::Kernels)).
    #[error("queue pair {qpn:#x}: only kernels of {device} post to it")]
    KernelsOnly {
        /// The queue pair.
        qpn: u32,
        /// Whose kernels.
        device: String,
    },

    /// Entries before this one were never rung.
    #[error(
        "queue pair {qpn:#x}: entry {begin} cannot be rung: after {after:?} the entries up to it had not been, only those below {published}"
    )]
    OutOfOrder {
        /// The queue pair.
        qpn: u32,
        /// First block of the entry.
        begin: u64,
        /// How far the queue is rung.
        published: u64,
        /// How long the call waited.
        after: Duration,
    },

    /// A request or a receive failed.
    #[error("queue pair {:#x}: {what} {} failed: {syndrome}{detail}", completion.qpn, completion.index)]
    Failed {
        /// "request" or "receive".
        what: &'static str,
        /// Why.
        syndrome: Syndrome,
        /// The whole completion.
        completion: Completion,
        /// What the queue pair knows of the cause (begins with a separator), or empty.
        detail: String,
    },

    /// A completion queue holds what is no completion.
    #[error("queue pair {qpn:#x}: {source}")]
    Completion {
        /// The queue pair.
        qpn: u32,
        /// What was wrong with it.
        source: CompletionError,
    },

    /// A deadline passed.
    #[error("queue pair {qpn:#x}: {what} not finished after {after:?}{detail}")]
    Timeout {
        /// The queue pair.
        qpn: u32,
        /// What was waited for.
        what: String,
        /// How long.
        after: Duration,
        /// What the queue pair knows (begins with a separator), or empty.
        detail: String,
    },

    /// The two sides cannot be connected.
    #[error("queue pair {qpn:#x} cannot be connected: {why}")]
    Connect {
        /// The queue pair.
        qpn: u32,
        /// The reason.
        why: String,
        /// The process on this host that could not be reached, if that is the reason.
        process: Option<u32>,
    },

    /// The connection is gone.
    #[error("queue pair {qpn:#x} lost its peer: {why}")]
    Lost {
        /// The queue pair.
        qpn: u32,
        /// The reason.
        why: String,
    },

    /// libmlx5 is not there, or too old.
    #[error(transparent)]
    Library(Arc<LoadError>),

    /// The device is of another kind.
    #[error("{device} is no mlx5 adapter: only their queues can be mapped for a GPU")]
    OtherDevice {
        /// The device.
        device: String,
    },

    /// A call of libibverbs or libmlx5 failed.
    #[error(transparent)]
    Verbs(#[from] verbs::Error),

    /// An adapter understood a command and refused it.
    #[error("{device} does not make {what}: {why}")]
    Refused {
        /// What was asked for.
        what: &'static str,
        /// The device.
        device: String,
        /// What the firmware said.
        why: String,
    },

    /// An adapter has no way to the peer.
    #[error("no route to the peer: {why}")]
    Route {
        /// The reason.
        why: String,
    },

    /// The NIC's thread has ended.
    #[error("the software NIC has stopped")]
    Stopped,
}
