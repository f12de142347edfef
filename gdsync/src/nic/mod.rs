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
pub mod soft;
mod trigger;
mod wire;
mod words;

use std::time::Duration;

pub use address::Address;
pub use error::{Error, Result};
pub use memory_region::{Access, MemoryRegion};
pub use options::{CompletionMode, QueuePairOptions};
pub use provider::{Capabilities, Nic};
pub use queue_memory::DeviceQueuePair;
pub use queue_pair::{Prepared, QueuePair};
pub use trigger::{Cpu, Trigger};
pub use wire::WireKind;

/// How long [`QueuePair::post`] waits for entries before its own to be rung.
const RING_PATIENCE: Duration = Duration::from_secs(10);
