//! Streams and their memory operations, memory, and peer memory – on GPUs, and on the host with the same semantics.
//!
//! This is the layer between raw drivers and a messaging library. It knows devices, streams, memory and the words
//! that streams, kernels and CPUs signal each other with. It knows no ranks and no messages.
//!
//! ```
//! use gdsync::{Deadline, Device, MemOp, Until};
//! use std::time::Duration;
//!
//! let device = Device::best(); // a GPU, or the host
//! let stream = device.stream()?;
//! let words = device.alloc_pinned::<u64>(2)?;
//! let (request, reply) = (words.word(0)?, words.word(1)?);
//!
//! // The stream waits for the request and then answers; nothing of it blocks the CPU.
//! stream.batch(&[MemOp::Wait64(&request, Until::Geq(1)), MemOp::Write64(&reply, 7)])?;
//! request.store(1)?;
//! stream.synchronize(Deadline::after(Duration::from_secs(10)))?;
//! assert_eq!(reply.load(), Some(7));
//! # Ok::<(), gdsync::Error>(())
//! ```
//!
//! # What is dropped when
//! Buffers, words, events, graphs and streams may be dropped at any time. What a GPU may still use is kept until every
//! stream of that GPU has been idle once; dropping never blocks and never frees memory under running work.
//!
//! # Threads
//! Everything is `Send` and `Sync`. A [`Device`] is shared by all who open it in the process.

// What processes, kernels and devices write to each other is ordered by atomics, and its layout is that of these two; others
// have not been tried.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("gdsync runs on x86-64 and aarch64; this architecture has not been tried");

mod blocks;
mod cuda;
mod deadline;
mod device;
mod error;
mod event;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod host;
mod launch;
pub mod memop;
mod memory;
pub mod nic;
pub mod opencl;
pub mod path;
pub mod peer;
pub mod process;
mod report;
mod room;
mod stream;
pub mod verbs;
mod watchdog;
pub mod wqe;

pub use blocks::BlockSignals;
pub use cuda::capabilities::Capabilities;
pub use cuda::capture::Guest;
pub use cuda::device::CudaDevice;
pub use cuda::driver::Driver;
pub use cuda::kernel::Kernel;
pub use cuda::module::Module;
pub use cuda::tensor_map::TensorMap;
pub use cuda::topology::PeerLink;
pub use deadline::Deadline;
pub use device::Device;
pub use error::{Error, Result};
pub use event::Event;
pub use host::kernel::HostEntry;
pub use launch::{Arg, Dims};
pub use memop::{MemOp, Until};
pub use memory::copy::copy_bytes;
pub use memory::limits;
pub use memory::rows::Rows;
pub use memory::word::{Word32, Word64, reached32, reached64};
pub use memory::{Buffer, Space};
pub use peer::{PeerHandle, PeerMemory, PeerPath};
pub use stream::{Graph, Stream};
pub use watchdog::{MAX_PENDING_WAITS, PendingWait, Watchdog};

/// The program of this crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
