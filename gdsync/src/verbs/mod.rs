//! Safe verbs: RDMA through libibverbs, on InfiniBand and RoCE, with reliable connected queue pairs.
//!
//! What a NIC can do with memory, keys and queue pairs, as types that keep their parents alive, free themselves and
//! cannot be used in the wrong state. It is no messaging layer: there are no ranks, no matching and no flow control
//! here. libibverbs is loaded at run time; where it is missing, [`devices`] says so.
//!
//! # The steps
//! 1. [`devices`] lists the NICs, [`Device::open`] opens one: a [`Context`].
//! 2. [`Context::port`] picks a port and the GID by which peers reach it: a [`Port`].
//! 3. [`Context::protection_domain`] makes a [`ProtectionDomain`]; memory is registered in it
//!    ([`ProtectionDomain::register`]), queue pairs are made in it.
//! 4. [`Context::completion_queue`] makes a [`CompletionQueue`]; several queue pairs may share it.
//! 5. [`ProtectionDomain::queue_pair`] makes a [`QueuePair`] in the state [`Reset`]. [`QueuePair::init`] gives it a
//!    port; then it has an [`Endpoint`] to be sent to the peer by any means and receives may be posted;
//!    [`QueuePair::connect`] and [`QueuePair::ready_to_send`] take it to [`ReadyToSend`], where requests may be posted.
//!
//! ```no_run
//! use gdsync::verbs::{self, Access, PortChoice, QueuePairOptions, RetryPolicy, SendOperation, SendRequest};
//! use gdsync::{Buffer, Deadline, Device, Space};
//! use std::time::Duration;
//!
//! # fn exchange(mine: verbs::Endpoint) -> verbs::Endpoint { mine }
//! let context = verbs::device(None)?.open()?;
//! let port = context.port(&PortChoice::default())?;
//! let domain = context.protection_domain()?;
//! let completions = context.completion_queue(64)?;
//! let queue_pair = domain
//!     .queue_pair(&completions, &completions, &QueuePairOptions::default())?
//!     .init(&port, Access::LOCAL)?;
//! let peer = exchange(queue_pair.endpoint());
//! let queue_pair = queue_pair.connect(&peer)?.ready_to_send(&RetryPolicy::default())?;
//!
//! let buffer = Buffer::<u8>::from_slice(&Device::Host, Space::Host, b"good morning")?;
//! let region = domain.register(&buffer, Access::LOCAL)?;
//! let message = [region.slice(0..12)?];
//! queue_pair.post(&SendRequest::new(1, SendOperation::Send { from: &message, imm: None }))?;
//! let completion = completions.wait(Deadline::after(Duration::from_secs(1)))?;
//! assert_eq!(completion.id, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is in flight
//! A posted request names memory by [`RegionSlice`]s, which own their region, which owns its memory. The queue pair
//! keeps them until the request has completed or the queue pair is gone, so nothing is freed under a NIC. Nobody stops
//! the program from writing to a buffer that is being sent, or reading one that is being received into; it then sends
//! or sees a mixture of old and new bytes.
//!
//! # What is dropped when
//! Everything may be dropped in any order: children hold their parents. A queue pair is destroyed before the memory of
//! its pending requests is let go; their completions are not reported.
//!
//! # Threads
//! Everything is `Send` and `Sync`, as libibverbs' objects are.
//!
//! # States are types
//! Nothing can be sent before the queue pair is connected:
//! ```compile_fail,E0599
//! # use gdsync::verbs::*;
//! fn too_early(queue_pair: &QueuePair<Init>, request: &SendRequest<'_>) {
//!     queue_pair.post(request).unwrap();
//! }
//! ```
//! nor received before it has a port:
//! ```compile_fail,E0277
//! # use gdsync::verbs::*;
//! fn too_early(queue_pair: &QueuePair<Reset>, into: &[RegionSlice]) {
//!     queue_pair.post_receive(7, into).unwrap();
//! }
//! ```
//! and a step cannot be left out:
//! ```compile_fail,E0599
//! # use gdsync::verbs::*;
//! fn unconnected(queue_pair: QueuePair<Init>) {
//!     queue_pair.ready_to_send(&RetryPolicy::default()).unwrap();
//! }
//! ```
//! In the right states the same calls compile:
//! ```no_run
//! # use gdsync::verbs::*;
//! fn in_time(queue_pair: &QueuePair<ReadyToSend>, request: &SendRequest<'_>) {
//!     queue_pair.post(request).unwrap();
//! }
//! fn with_a_port(queue_pair: &QueuePair<Init>, into: &[RegionSlice]) {
//!     queue_pair.post_receive(7, into).unwrap();
//! }
//! fn connected(queue_pair: QueuePair<ReadyToReceive>) {
//!     queue_pair.ready_to_send(&RetryPolicy::default()).unwrap();
//! }
//! ```

mod completion;
mod completion_queue;
mod context;
mod datagrams;
mod device;
mod endpoint;
mod error;
mod in_flight;
mod library;
mod memory_region;
mod port;
mod post;
mod protection_domain;
mod queue_pair;
mod shared_receives;

pub use completion::{Completion, Done, Failure, QueueSide, Status};
pub use completion_queue::CompletionQueue;
pub use context::{Context, Limits};
pub use datagrams::{DATAGRAM, DatagramRoute, Datagrams};
pub use device::{Device, device, devices};
pub use endpoint::Endpoint;
pub(crate) use error::last_errno;
pub use error::{Error, Result};
pub use memory_region::{Access, DmaBuf, MemoryRegion, RegionSlice, RemoteRegion};
pub use port::{Gid, GidEntry, GidType, LinkLayer, Mtu, Port, PortChoice, RdmaOptions, ZeroCopy};
pub use post::{SendOperation, SendRequest};
pub use protection_domain::ProtectionDomain;
pub use queue_pair::{
    CanReceive, Init, QueuePair, QueuePairOptions, ReadyToReceive, ReadyToSend, Reset, RetryPolicy,
};
pub use shared_receives::SharedReceiveQueue;
