//! NICs whose queues the GPU reaches: entries are prepared in a send queue and rung by the CPU, a stream or a kernel;
//! completions are read by any of them.
//!
//! A [`Nic`] registers memory and makes queue pairs. Those who communicate know no more of it; they choose one when it is
//! opened: [`soft`], a NIC in software, or [`mlx5`], an adapter. [`QueuePair`] is the side of those who post, the same for
//! every NIC: it writes the formats of [`wqe`](crate::wqe), which the NIC executes.
//!
//! # Order
//! An entry's bytes are visible to the NIC before the doorbell record, the record before the doorbell, whoever rings.
//! Requests execute and complete in the order of the send queue. A completion is visible after everything that the
//! request read or wrote on this side; a receive's completion, and a later request's data, after what arrived before.

mod address;
mod completion_queue;
mod error;
mod memory_region;
pub mod mlx5;
mod options;
mod provider;
mod queue_memory;
mod queue_pair;
mod resident;
pub mod soft;
mod trigger;
mod wire;
mod words;

use std::fmt;

use crate::device::Device;
use crate::memory::Buffer;

pub use address::Address;
pub use error::{Error, Result};
pub use memory_region::{Access, MemoryRegion};
pub use options::{CompletionMode, Posters, QueuePairOptions};
pub use queue_memory::DeviceQueuePair;
pub use queue_pair::{Prepared, QueuePair};
pub use trigger::{ByKernel, Cpu, Trigger};
pub use wire::WireKind;

/// A NIC: registers memory and makes queue pairs, any number of them for each peer.
///
/// It lives as long as itself, a queue pair or a region of it.
///
/// See [`soft`] for an example.
pub trait Nic: fmt::Debug + Send + Sync {
    /// What it is and can.
    fn capabilities(&self) -> &Capabilities;

    /// Registers memory: what `access` allows may be done with it until the region is dropped.
    ///
    /// The address of the first byte in requests is [`MemoryRegion::address`], which is the one that the buffer's device
    /// uses.
    ///
    /// # Errors
    /// [`Error::Register`] for memory that the NIC cannot reach, or not in that way; what the driver says.
    fn register(&self, memory: &Buffer<u8>, access: Access) -> Result<MemoryRegion>;

    /// Makes a queue pair whose queues `device` reaches, too.
    ///
    /// # Errors
    /// An option out of range; out of memory; what the driver says.
    fn queue_pair(&self, device: &Device, options: &QueuePairOptions) -> Result<QueuePair>;

    /// Does what a thread of the NIC would do next, where it has threads and may be helped. For those who wait for what it
    /// brings, between two looks: nothing depends on it but how soon it comes.
    fn progress(&self) {}
}

/// What a NIC is and can.
///
/// See [`soft`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// What it is called, for messages.
    pub name: String,
    /// What carries its connections.
    pub wires: Vec<WireKind>,
    /// Whether a GPU's own memory can be registered for atomics of peers.
    pub gpu_atomics: bool,
}
