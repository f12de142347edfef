//! Device operations: messages and puts whose epochs live in the memory of the device that works with
//! them, so that streams, replayed graphs and kernels start and complete them with no work of the host in between.
//!
//! The host prepares: each end has a [`station`] – counters, the signal it waits on, and slots for packets – in the memory
//! of its device, which the peer maps. What a kernel needs of it is one plain struct (`mp_kernels::Send` and the like), which
//! is also the argument of the stream operations. Host streams follow the same protocol on the CPU ([`host`]).
//!
//! The protocol itself is `kernels/include/mp/message.cuh`.
//!
//! # What meets what
//! An end is triggered by kernels, streams, replayed graphs ([`steps`], and kept back to be fused, [`fused`]) or the host
//! ([`trigger`]), in any mixture, and whatever triggers the other end. How the message goes depends on the memories:
//!
//! | from \ to | GPU | host |
//! |---|---|---|
//! | GPU | up to 8 KiB as packets, else into the posted buffer | into the posted buffer, which the GPU maps |
//! | host | fetched by the receiver from a stage of the sender, in shared memory: a CPU does not reach GPU memory | into the posted buffer |
//!
//! Through a NIC ([`far`], `mp/impl/nic.cuh`) what would be stored in the peer's memory is a request that the kernel posts, in a queue
//! of its device to the peer's rank; no CPU of this crate is in between. A host stream posts to the host's link.
//!
//! | from \ to | GPU | host |
//! |---|---|---|
//! | either | up to 8 KiB into slots in pinned memory, from which the receiver copies, else into the posted buffer | into the posted buffer |
//!
//! A full queue is waited for, like room at the receiver. A request that fails ends the waits of the kernels of both ends, and the
//! world with the NIC's reason. Memory of a dropped end stays registered until the peer has dropped its end as well.
//!
//! Refused with a sentence: an end made with `prepare` opposite one made with `prepare_device`; host to GPU where the sending
//! process sees no GPU driver; a stream of another device. Windows and collectives join devices of one kind.

mod far;
mod fused;
mod half;
mod host;
mod message;
mod put;
mod report;
mod station;
mod steps;
mod trigger;

pub(crate) use far::close;
pub use fused::{FusedStream, Steps};
#[cfg(test)]
pub(crate) use half::Opening;
pub(crate) use half::{DeviceHalf, DeviceNotice};
pub(crate) use host::{is_set, wait};
pub use message::{DeviceRecv, DeviceSend};
pub use put::{Put, SignalWait};
pub(crate) use report::{Report, Watch};
pub use steps::Step;
pub(crate) use steps::enqueue;
pub use trigger::ByHost;
