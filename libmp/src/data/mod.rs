//! The data plane: messages between memories that the ranks map from each other. This is the *direct* path – threads of
//! one process, host memory shared between processes, GPU memory by peer access or CUDA IPC. Ranks on different hosts need
//! a NIC path, which is not here.
//!
//! Each rank has an [`arena`] in shared host memory that its neighbours (the ranks of its host) map: mailboxes, one for
//! each neighbour, and words. A word is a counter that only grows, has one writer, and belongs to whoever waits on it.
//!
//! # A message
//! Both sides *prepare* once and then start any number of times.
//! * Preparing takes a word of the own arena and puts a [`notice`] into the peer's mailbox: tag, word, length and, from a
//!   receiver, the handle of the buffer. The n-th send that was prepared with a tag belongs to the n-th receive prepared
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
//! progress. On streams nothing of this is needed: the stream waits for the credit itself.
//!
//! # Device operations
//! Where a device starts and completes messages by itself, the epochs live in its memory: [`device`].
//!
//! # The end of an operation
//! A word can be given to another operation once the own side is dropped and the peer has said that it will not write it
//! any more. An operation that is dropped between `start` and its completion keeps its word for ever.

mod all_reduce;
mod arena;
pub(crate) mod device;
mod epochs;
mod half;
mod mailbox;
mod message;
mod notice;
mod operation;
mod pairing;
mod peer;
pub(crate) mod plane;
mod region;
mod wait;
mod window;
mod word;

pub use all_reduce::AllReduce;
pub use device::{
    ByHost, DeviceAllReduce, DeviceBarrier, DeviceNumber, DeviceRecv, DeviceSend, DeviceWindow,
    FusedStream, Step, Steps,
};
pub use message::{PreparedRecv, PreparedSend};
pub use operation::{Operation, wait_all, wait_any};
pub use peer::{Peer, RecvBuilder, SendBuilder};
pub use region::Region;
pub use window::Window;
