//! Device ranks: each block of a cooperative launch is a rank of a world that spans the devices of a [`libmp`] communicator (dCUDA,
//! SC16). The device functions are in `mp/ranks.cuh` and `mp/dcuda.cuh`; here is what the host does: [`Ranks::open`] makes the world,
//! [`Ranks::launch`] starts this device's ranks, [`Ranks::synchronize`] waits for them and says what failed, [`Ranks::lines`] reads what they
//! print. Threads of the CPU can be ranks beside those of kernels: [`Ranks::host_rank`].
//!
//! There is no transport here. The ranks' control memory and the memory that their windows are in are windows of libmp, which kernels
//! reach by loads and stores, or, behind a NIC, by requests.
//!
//! On [`Device::Host`](libmp::Device::Host) the same kernels run as OS threads, by the host build of the device headers
//! (`mp/host/launch.hpp`): a program compiles them with a C++ compiler and calls them from [`Stream::call`](libmp::Stream::call) with
//! [`Ranks::handle`].

mod control;
mod error;
mod host;
mod log;
mod ranks;

pub use error::{Call, Error, Failure, Phase, Result};
pub use host::{HostRank, Team};
pub use log::Line;
pub use ranks::{Options, Ranks};
