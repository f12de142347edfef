//! The data plane: messages between the memories of ranks. A pair of ranks has one [`path`]:
//! * *direct*: memory that the ranks map from each other – threads of one process, host memory shared between processes, GPU
//!   memory by peer access or CUDA IPC;
//! * *nic*: ranks on different hosts, or ranks that `MP_PATH` tells so, write each other's registered memory through queue
//!   pairs of the software NIC ([`nic`]). Everything below holds for both; where it says that a rank writes a word or a buffer
//!   of the other, a request of a queue pair does it, which kernels post by themselves.
//!
//! Each rank has an [`arena`] in shared host memory that its neighbours map, or write through the NIC: mailboxes, one for
//! each neighbour. Ranks that are threads of one process have mailboxes and more in [`common`]. Each side of an operation is an [`endpoint`]: counters and a signal, a counter that only grows, has one writer,
//! and belongs to whoever waits on it. They are in the memory of the device whose region it is, so that the host, streams, replayed
//! graphs and kernels find the same state, and start and complete the operation in any mixture.
//!
//! # A message
//! Both sides *prepare* once and then start any number of times.
//! * Preparing makes the endpoint and puts a [`notice`] into the peer's mailbox: tag, length, how the peer gets to the endpoint and,
//!   from a receiver, to the buffer. The n-th send that was prepared with a tag belongs to the n-th receive prepared
//!   with that tag on the other side ([`pairing`]), so nothing is matched when messages fly.
//! * Start number *e* of the receive raises the sender's signal to *e*: the *credit*. The buffer is the sender's now.
//! * Start number *e* of the send waits for credit *e*, copies into the receiver's buffer, and then raises the receiver's
//!   signal to *e* (release): the *arrival*.
//! * The receive is complete when its signal has reached *e* (acquire).
//!
//! The protocol on a GPU is `kernels/include/mp/message.cuh`; on the CPU it is `endpoint/host.rs`, for the host and host streams.
//! How the message goes depends on the memories:
//!
//! | from \ to | GPU | host |
//! |---|---|---|
//! | GPU | up to 8 KiB as packets, else into the posted buffer | into the posted buffer, which the GPU maps |
//! | host | fetched by the receiver from memory of the sender that both share: a CPU does not reach GPU memory | into the posted buffer |
//!
//! Through a NIC what would be stored in the peer's memory is a request, which kernels post by themselves (`mp/impl/nic.cuh`), and the
//! host and host streams to the host's link.
//!
//! | from \ to | GPU | host |
//! |---|---|---|
//! | either | up to 8 KiB into slots in pinned memory, from which the receiver copies, else into the posted buffer | into the posted buffer |
//!
//! A message in several pieces, or into memory that the peer cannot map, goes by way of memory in one piece (its *stage*), unless a
//! CPU can move it from pieces into pieces.
//!
//! # Progress
//! There is no hidden thread. What the host cannot do at once of an operation that it has started – a send without its credit, a
//! receive whose peer has not prepared yet – is noted with the rank and done by whichever call of this rank comes next: `start`,
//! `test`, `wait` of any operation, a call that waits for room on a stream, or a collective of the host while it waits. A rank that
//! only computes does not progress. On streams and in kernels nothing of this is needed: they wait for the credit themselves.
//!
//! # The end of an operation
//! A side that is dropped with nothing under way tells a peer behind the NIC, which keeps what it has registered until then. One
//! that is dropped between `start` and its completion does so when the host's part is done.

pub(crate) mod arena;
mod collective;
pub(crate) mod common;
pub(crate) mod counters;
pub(crate) mod endpoint;
mod fused;
pub(crate) mod mailbox;
mod message;
pub(crate) mod name;
pub(crate) mod notice;
pub(crate) mod operation;
mod pairing;
pub(crate) mod path;
mod peer;
pub(crate) mod pieces;
pub(crate) mod plane;
mod positions;
pub(crate) mod region;
pub(crate) mod report;
mod sparse;
pub(crate) mod wait;
pub(crate) mod window;
mod word;

pub use collective::{Collective, CollectiveRun};
pub use counters::{PeerCounters, Traffic};
pub use endpoint::stream::Step;
pub(crate) use endpoint::stream::enqueue;
pub use fused::{FusedStream, Steps};
#[cfg(any(test, fuzzing))]
pub use mailbox::fuzz as fuzz_mailbox;
pub use message::{Recv, Send};
pub use operation::{Operation, start_all, wait_all, wait_any};
pub use path::Path;
pub(crate) use path::Paths;
pub use peer::{Message, Peer};
pub use region::Region;
pub use window::{AtomicNumber, AtomicOp, Get, Local, Put, SignalWait, Window};
pub(crate) use word::{wait_for_word, wait_until};
