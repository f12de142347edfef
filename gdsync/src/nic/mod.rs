//! NICs whose queues the GPU reaches: entries are prepared in a send queue and rung by the CPU, a stream or a kernel;
//! completions are read by any of them.
//!
//! [`GpuQueuePair`] is the side of those who post: it writes the formats of [`wqe`](crate::wqe) and knows no NIC.
//! A provider makes it and executes it: [`soft`], a NIC in software; [`mlx5`], an adapter.
//!
//! # Order
//! An entry's bytes are visible to the NIC before the doorbell record, the record before the doorbell, whoever rings.
//! Requests execute and complete in the order of the send queue. A completion is visible after everything that the
//! request read or wrote on this side; a receive's completion, and a later request's data, after what arrived before.

mod completion_queue;
mod error;
pub mod mlx5;
mod options;
mod queue_memory;
mod queue_pair;
pub mod soft;
mod trigger;
mod words;

use std::time::Duration;

pub use error::{Error, Result};
pub use options::{CompletionMode, QueuePairOptions};
pub use queue_memory::DeviceQueuePair;
pub use queue_pair::{GpuQueuePair, Prepared};
pub use trigger::{Cpu, Trigger};

/// How long [`GpuQueuePair::post`] waits for entries before its own to be rung.
const RING_PATIENCE: Duration = Duration::from_secs(10);
