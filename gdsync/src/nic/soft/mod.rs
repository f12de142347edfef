//! `soft`: a NIC in software that consumes the bytes of mlx5 queues, so that everything written for the hardware runs
//! on any machine.
//!
//! * `state`: one queue pair as a state machine without I/O;
//! * `keys`: registered memory; `completion`: completion queues; `direct`: memory of peers mapped here;
//! * `wire`: shared memory within a host, TCP or RDMA between hosts; `rdma`: the port for the latter;
//! * `door`: who connects from other hosts, until it is known who; `dial`: who is connected to;
//! * `slot`, `engine`: the thread that drives it all, and the threads that ring, which do what is quickly done.
//!
//! # Examples
//! ```
//! use gdsync::wqe::{Notify, Operation, Payload, WorkRequest};
//! use gdsync::nic::soft::{SoftNic, SoftNicOptions};
//! use gdsync::nic::{Access, Nic, QueuePairOptions};
//! use gdsync::{Deadline, Device};
//! use std::time::Duration;
//!
//! let nic = SoftNic::open(&SoftNicOptions::default())?;
//! let (left, right) = (
//!     nic.queue_pair(&Device::Host, &QueuePairOptions::default())?,
//!     nic.queue_pair(&Device::Host, &QueuePairOptions::default())?,
//! );
//! left.connect(right.address())?; // Usually the addresses travel between processes.
//! right.connect(left.address())?;
//!
//! let (source, target) = (Device::Host.alloc_pinned::<u64>(1)?, Device::Host.alloc_pinned::<u64>(1)?);
//! source.write(&[42])?;
//! let from = nic.register(&source.bytes(), Access::LOCAL_READ)?;
//! let to = nic.register(&target.bytes(), Access::REMOTE_WRITE)?;
//! let pieces = [from.segment(0, 8)?];
//! let write = WorkRequest {
//!     notify: Notify::Always,
//!     ..WorkRequest::new(Operation::Write {
//!         remote: to.remote(0),
//!         payload: Payload::Gather(&pieces),
//!         imm: None,
//!     })
//! };
//! let position = left.post(&write)?;
//! left.wait(position, Deadline::after(Duration::from_secs(10)))?;
//! assert_eq!(target.to_vec()?, [42]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub(crate) mod address;
mod completion;
mod dial;
mod direct;
mod door;
mod doze;
mod engine;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod inbox;
mod instance;
mod keys;
mod nic;
mod pace;
mod queue_pair;
mod rdma;
mod region;
mod rest;
mod slot;
mod state;
mod wire;

pub use nic::{SoftNic, SoftNicOptions};
