//! The data plane: messages between the memories of ranks. A pair of ranks has one [`path`]:
//! * *direct*: memory that the ranks map from each other – threads of one process, host memory shared between processes, GPU
//!   memory by peer access or CUDA IPC;
//! * *nic*: ranks on different hosts, or ranks that `MP_PATH` tells so, write each other's registered memory through queue
//!   pairs of the software NIC ([`nic`]). Everything below holds for both; where it says that a rank writes a word or a buffer
//!   of the other, a request of a queue pair does it, which kernels post by themselves ([`device`]).
//!
//! Each rank has an [`arena`] in shared host memory that its neighbours map, or write through the NIC: mailboxes, one for
//! each neighbour, and words. A word is a counter that only grows, has one writer, and belongs to whoever waits on it.
//!
//! # A message
//! Both sides *prepare* once and then start any number of times.
//! * Preparing takes a word of the own arena and puts a [`notice`] into the peer's mailbox: tag, word, length and, from a
//!   receiver, the buffer's handle or its address and key. The n-th send that was prepared with a tag belongs to the n-th receive prepared
//!   with that tag on the other side ([`pairing`]), so nothing is matched when messages fly.
//! * Start number *e* of the receive writes *e* into the sender's word: the *credit*. The buffer is the sender's now.
//! * Start number *e* of the send waits for credit *e*, copies into the receiver's buffer, and then writes *e* into the
//!   receiver's word (release): the *arrival*.
//! * The receive is complete when its word has reached *e* (acquire); the send when the arrival was written, and from then
//!   on its source may be written again.
//!
//! A word that was used before starts from the value it has, not from zero; the notice says which (`base`).
//!
//! # Progress
//! There is no hidden thread. What a started operation cannot do at once – a send without its credit, a receive whose peer
//! has not prepared yet – is noted with the rank and done by whichever call of this rank comes next: `start`, `test`,
//! `wait` of any operation, or a collective of the host while it waits. A rank that only computes does not
//! progress. On streams nothing of this is needed: the stream waits for the credit itself. (The first start on a stream over
//! a NIC waits until a call of the peer has answered it.)
//!
//! # Device operations
//! Where a device starts and completes messages by itself, the epochs live in its memory: [`device`].
//!
//! # The end of an operation
//! A word can be given to another operation once the own side is dropped and the peer has said that it will not write it
//! any more. An operation that is dropped between `start` and its completion keeps its word for ever.

mod arena;
mod collective;
mod counters;
pub(crate) mod device;
mod epochs;
mod half;
mod mailbox;
mod message;
pub(crate) mod nic;
mod notice;
pub(crate) mod operation;
mod pairing;
pub(crate) mod path;
mod peer;
mod pieces;
pub(crate) mod plane;
mod positions;
mod post;
mod region;
mod wait;
mod waiting;
pub(crate) mod window;
mod word;

pub use collective::{AllReduce, Barrier};
pub use counters::{PeerCounters, Traffic};
pub use device::{ByHost, DeviceRecv, DeviceSend, FusedStream, Put, SignalWait, Step, Steps};
#[cfg(any(test, fuzzing))]
pub use mailbox::fuzz as fuzz_mailbox;
pub use message::{PreparedRecv, PreparedSend};
pub use operation::{Operation, wait_all, wait_any};
pub use path::Path;
pub(crate) use path::Paths;
pub use peer::{Peer, RecvBuilder, SendBuilder};
pub use region::Region;
pub use window::Window;
