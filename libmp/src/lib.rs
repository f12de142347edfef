//! Messages, puts and signals that the host, a stream or a kernel starts and completes.
//!
//! A program starts with a [`World`]: the ranks that a launcher started together, threads of one process, or one rank
//! alone.
//!
//! # Messages
//! Ranks of one host exchange messages between [`Region`]s of memory. Both sides prepare an operation once and then start
//! it any number of times, from the host or on a stream; the bytes go straight from one region into the other.
//!
//! ```
//! # use std::time::Duration;
//! use libmp::{Deadline, Device, Operation, World, wait_all};
//!
//! # fn main() -> libmp::Result<()> {
//! let world = World::init()?;
//! let right = world.peer((world.rank() + 1) % world.size())?;
//! let left = world.peer((world.rank() + world.size() - 1) % world.size())?;
//! let (edge, ghost) = (world.alloc::<f64>(&Device::Host, 100)?, world.alloc::<f64>(&Device::Host, 100)?);
//! let send = right.send(&edge, 7).prepare()?;
//! let recv = left.recv(&ghost, 7).prepare()?;
//! for step in 0..3 {
//!     recv.start()?;
//!     edge.write(&[f64::from(step); 100])?;
//!     send.start()?;
//!     wait_all(&[&send, &recv], Deadline::after(Duration::from_secs(10)))?;
//!     assert_eq!(ghost.to_vec()?, [f64::from(step); 100]);
//! }
//! world.finish()
//! # }
//! ```
//!
//! One-sided operations – put, get, signals, atomics – go through a [`Window`]. A [`Collective`] is for inner loops:
//! barrier, broadcast, gathers, all-to-all, reductions. A send copies when the receiver's buffer is there: in `start`, or else in any later call of its rank that waits
//! ([`Operation::wait`], [`Operation::test`], the collectives, [`Communicator::synchronize`]); there is no hidden thread
//! that does it. A message may be gathered from and scattered into pieces ([`Peer::sendv`], [`Peer::recvv`]).
//!
//! # Streams, graphs and kernels
//! The same operations are started and completed on a stream, in a captured graph, and by a kernel of the user, which includes
//! `mp/mp.cuh` and gets a [`handle`](Send::handle), in any mixture with the host. [`guide`] says how.
//!
//! ```
//! # use std::time::Duration;
//! use libmp::{Deadline, Device, Step, World};
//!
//! # fn main() -> libmp::Result<()> {
//! let world = World::init()?;
//! let device = Device::Host; // or Device::cuda(0)
//! let stream = world.stream(&device)?;
//! let right = world.peer((world.rank() + 1) % world.size())?;
//! let left = world.peer((world.rank() + world.size() - 1) % world.size())?;
//! let (edge, ghost) = (world.alloc::<f64>(&device, 100)?, world.alloc::<f64>(&device, 100)?);
//! let send = right.send(&edge, 7).prepare()?;
//! let recv = left.recv(&ghost, 7).prepare()?;
//! for _ in 0..3 {
//!     // A launch that fills the edge, then:
//!     world.enqueue(&stream, &[Step::start(&recv), Step::start(&send), Step::wait(&recv)])?;
//! }
//! world.synchronize(&stream, Deadline::after(Duration::from_secs(10)))?;
//! world.finish()
//! # }
//! ```
//!
//! # Read on
//! * [`guide`]: paths between ranks, streams and kernels, failure, what is needed from whom, threads.
//! * [`exchange`]: halo exchanges. [`trace`]: timelines of all ranks. [`config`]: every environment variable.
//! * C and C++ have the same in crate `libmp-c`, a header and a library. [`porting`] compares both with LibMP.
//!
//! # Features
//! `mpi`, off by default: the world is `MPI_COMM_WORLD`. Needs an MPI installation (`mpicc`) and libclang to build. Ranks that
//! `mpirun` started find each other without it, through PMIx. GPU code is no feature: it is built in where an nvcc is found.

mod bootstrap;
mod build_info;
mod collective;
mod communicator;
pub mod config;
mod control;
mod data;
mod error;
pub mod exchange;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod guide;
pub mod launcher;
pub mod matching;
mod node;
mod ownership;
mod patience;
pub mod porting;
mod progress;
pub mod tagged;
pub mod trace;
mod transport;
mod world;

pub use bootstrap::MAX_RANKS;
pub use build_info::{BuildInfo, PROTOCOL};
pub use collective::{BLOB_MAX, Number, RESULT_MAX, ReduceOp};
pub use communicator::Communicator;
pub use config::{Bootstrap, Config};
pub use data::{
    AtomicNumber, AtomicOp, Collective, CollectiveRun, FusedStream, Get, Local, Message, Operation,
    Path, Peer, PeerCounters, Put, Recv, Region, Send, SignalWait, Step, Steps, Traffic, Window,
    start_all, wait_all, wait_any,
};
pub use error::{Error, Loss, Result};
pub use exchange::Exchange;
pub use gdsync;
pub use gdsync::path::PathChoice;
pub use gdsync::{Deadline, Device, Stream};
pub use half::{bf16, f16};
pub use progress::ProgressThread;
pub use trace::Trace;
pub use world::World;

/// The program of this crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
