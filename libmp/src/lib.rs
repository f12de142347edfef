//! Messages, puts and signals that the host, a stream or a kernel starts and completes.
//!
//! A program starts with a [`World`]: the ranks that a launcher started together, threads of one process, or one rank
//! alone.
//!
//! ```
//! # fn main() -> libmp::Result<()> {
//! use libmp::World;
//!
//! let world = World::init()?; // mprun, mpirun, srun, torchrun, or alone
//! let largest = world.max(world.rank() as f64)?;
//! assert_eq!(largest, (world.size() - 1) as f64);
//! world.finish()?;
//! # Ok(())
//! # }
//! ```
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
//! One-sided operations – put, get, signals, atomics – go through a [`Window`]. [`AllReduce`] is the reduction for inner
//! loops. A send copies when the receiver's buffer is there: in `start`, or else in any later call of its rank that waits
//! ([`Operation::wait`], [`Operation::test`], the collectives, [`Communicator::synchronize`]); there is no hidden thread
//! that does it. A message may be gathered from and scattered into pieces ([`Peer::sendv`], [`Peer::recvv`]).
//!
//! # Paths
//! Ranks that share a host map each other's memory. Ranks on different hosts, or all if `MP_PATH` says so ([`config`]), reach
//! each other through the software NIC of `gdsync`: queue pairs whose entries have the format of mlx5 adapters, over TCP
//! between hosts and shared memory within one. Messages and windows are the same there, of host and GPU memory, from the host,
//! on streams and in kernels, which post to the queue pairs by themselves, the collectives of devices included;
//! [`Window`] says what differs. [`Communicator::path`] tells which path leads to a rank. A world with a NIC has at most 256 ranks; in a larger one ranks of different hosts have the
//! collectives only.
//!
//! # C and C++
//! They have the same in crate `libmp-c`: a header and a library. [`porting`] compares both with LibMP.
//!
//! # Streams, graphs and kernels
//! A prepared operation ([`Send`], [`Recv`]) counts its starts in the memory of the device that its region belongs to, and
//! the signal that a side waits on lies in that side's device. So a stream starts and completes it with one small kernel
//! ([`Communicator::enqueue`] takes whole lists), a captured graph replays it, and a kernel of the user does it with
//! `mp::send` and `mp::recv` of `mp/mp.cuh` on a [`handle`](Send::handle) – in any mixture with each other and with the host, and
//! whatever starts the other end, which may be in a GPU's memory or in a host's. On a [`FusedStream`] adjacent operations become one
//! launch by themselves.
//! Messages of up to 8 KiB between GPUs travel as packets, which carry their epoch with their data and need no fence; larger
//! ones go straight into the posted buffer. A [`Window`] is the freely addressed form, and its puts
//! and signals are steps, too, when they are prepared ([`Put`], [`Get`], [`SignalWait`]); [`Barrier`] and
//! [`AllReduce`] are started in the same three ways. Host streams follow the same protocol.
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
//! Ranks that are threads and share a GPU share its allocator, too: what allocates or frees may wait for the kernels that
//! run. Prepare everything first, then let the ranks meet, then start.
//!
//! # Looking on
//! [`trace`] writes what all ranks and streams did when into one file for Perfetto. [`Communicator::counters`] says how much
//! went to whom, and `tracing` has events of worlds (info), operations prepared and counters (debug), starts, waits and
//! completions (trace).
//!
//! # Failure
//! Nothing waits for ever. A rank that dies, stops, panics or leaves without [`World::finish`] ends the world: every
//! waiting and every later call of every other rank returns [`Error::PeerLost`] with its rank and host. [`World::abort`]
//! does the same on purpose. [`World::abort_word`] is the same news for code that cannot call.
//!
//! What a stream has enqueued behind a wait that ended so was made of nothing. A host stream neither copies nor sends it. A
//! GPU's stream goes on: what is enqueued on it after the failed launch may still reach a peer that has posted a buffer and
//! has not heard of the end yet. A collective call that succeeds after the work says that no rank's had been cut short.
//!
//! # What it needs from whom
//! Ranks find each other by environment variables ([`config`] lists them all), PMIx, or MPI (feature `mpi`). They must be
//! built from the same sources; ranks of different builds refuse each other with a sentence. Where the launcher gives no
//! `MP_TOKEN` (torchrun), whoever reaches rank 0's port while the world starts can join it; nothing on the control plane is
//! encrypted.
//!
//! # Threads
//! Everything is `Send` and `Sync`. A communicator runs one collective at a time. Each process has one thread,
//! `mp-control`, for each world it is part of, each host stream has one, and a world with streams one more, which releases
//! their waits when the world fails. Where a path leads through the software NIC, that is a thread of each rank, `mp-nic`, with
//! a helper.

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
pub mod launcher;
mod node;
mod patience;
pub mod porting;
pub mod trace;
mod transport;
mod world;

pub use bootstrap::MAX_RANKS;
pub use build_info::{BuildInfo, PROTOCOL};
pub use collective::{BLOB_MAX, Number, RESULT_MAX, ReduceOp};
pub use communicator::Communicator;
pub use config::{Bootstrap, Config};
pub use data::{
    AllReduce, Barrier, FusedStream, Get, Message, Operation, Path, Peer, PeerCounters, Put, Recv,
    Region, Send, SignalWait, Step, Steps, Traffic, Window, wait_all, wait_any,
};
pub use error::{Error, Loss, Result};
pub use exchange::Exchange;
pub use gdsync;
pub use gdsync::path::PathChoice;
pub use gdsync::{Deadline, Device, Stream};
pub use trace::Trace;
pub use world::World;
