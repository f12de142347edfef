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
//! # Failure
//! Nothing waits for ever. A rank that dies, stops, panics or leaves without [`World::finish`] ends the world: every
//! waiting and every later call of every other rank returns [`Error::PeerLost`] with its rank and host. [`World::abort`]
//! does the same on purpose. [`World::abort_word`] is the same news for code that cannot call.
//!
//! # What it needs from whom
//! Ranks find each other by environment variables ([`config`] lists them all), PMIx, or MPI (feature `mpi`). They must be
//! built from the same sources; ranks of different builds refuse each other with a sentence. Where the launcher gives no
//! `MP_TOKEN` (torchrun), whoever reaches rank 0's port while the world starts can join it; nothing on the control plane is
//! encrypted.
//!
//! # Threads
//! [`World`] and [`Communicator`] are `Send` and `Sync`. A communicator runs one collective at a time. Each process has
//! one thread, `mp-control`, for each world it is part of.

mod bootstrap;
mod build_info;
mod collective;
mod communicator;
pub mod config;
mod control;
mod data;
mod error;
mod node;
mod world;

pub use bootstrap::MAX_RANKS;
pub use build_info::{BuildInfo, PROTOCOL};
pub use collective::{BLOB_MAX, Number, RESULT_MAX, ReduceOp};
pub use communicator::Communicator;
pub use config::{Bootstrap, Config};
pub use data::{
    AllReduce, Operation, Peer, PreparedRecv, PreparedSend, RecvBuilder, Region, SendBuilder,
    Window, wait_all, wait_any,
};
pub use error::{Error, Loss, Result};
pub use gdsync;
pub use gdsync::{Deadline, Device, Stream};
pub use world::World;
