//! The backend that runs every level on GPUs. The boxes are merged into one grid a level. Of several ranks each has a slab
//! of the fine levels and all of the coarse ones (`partition.rs`); they find the bits that one rank finds.
//!
//! Set-up (coefficients, right-hand side, diagonal, spectrum) is the CPU's, uploaded once. A solve is one CUDA graph:
//! nothing synchronises inside but the final norm that the host reads. The kernels (`cuda/*.cu`) compute what the CPU
//! computes, in the same order and without fused multiply-add. Bytes per cell and pass: `traffic.rs`; what they reach, and what was
//! tried: `docs/hpgmg-gpu.md`. Coarse levels can be the CPU's (`hybrid.rs`), and a solve can be shown (`timeline.rs`).

mod cycle;
mod error;
mod hybrid;
mod inboxes;
mod kernels;
pub mod layout;
mod links;
mod messages;
mod partition;
mod peers;
mod posted;
mod ranks;
mod solver;
mod staged;
#[cfg(test)]
mod tests;
mod timeline;
mod traffic;
mod upload;

pub use error::CudaError;
pub use partition::WHOLE;
pub use ranks::{Mode, Team, sharing};
pub use solver::Gpu;
pub use timeline::{gather, timeline};

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use gdsync::CudaDevice;

use crate::comm::Comm;
use crate::comm::threads::ThreadComm;
use crate::cpu::Cpu;
use crate::error::Error;
use crate::options::{Boundary, Config};

/// The first GPU, if this build and this machine can use it.
///
/// # Errors
/// [`CudaError::NotBuilt`]; no driver, no GPU, or what the driver says.
pub fn open() -> Result<CudaDevice, CudaError> {
    open_number(0)
}

/// The GPU of this rank: the one that the launcher chose, or else the host's ranks take them in turn.
///
/// # Errors
/// As [`open`]; [`CudaError::AssignedGpu`].
pub fn open_for(comm: &dyn Comm) -> Result<CudaDevice, CudaError> {
    if let Some(assigned) = comm.assigned_gpu() {
        let number = assigned.parse().map_err(|_| CudaError::AssignedGpu(assigned.to_owned()))?;
        return open_number(number);
    }
    kernels::fatbin()?;
    let count = CudaDevice::count()?.max(1);
    open_number(comm.local_rank().unwrap_or(comm.rank()) as u32 % count)
}

fn open_number(number: u32) -> Result<CudaDevice, CudaError> {
    kernels::fatbin()?;
    Ok(CudaDevice::open(number)?)
}

/// The configuration of one rank that has the boxes of `ranks`.
pub fn all_boxes(config: &Config, ranks: usize) -> Config {
    Config { boxes_per_rank: config.boxes_per_rank.saturating_mul(ranks), ..config.clone() }
}

/// Sets up, with `threads` threads, the whole problem of a run with `ranks` ranks, for [`Gpu::new`] to take this rank's
/// part of.
///
/// # Errors
/// As [`Cpu::new`].
pub fn set_up(config: &Config, ranks: usize, threads: usize) -> Result<Rc<RefCell<Cpu>>, Error> {
    // A world of one waits for nobody.
    let alone = ThreadComm::world(1, Duration::MAX);
    let none = || Error::Threads(std::io::Error::other("a world of one rank has none"));
    let mut cpu = Cpu::new(all_boxes(config, ranks), alone.first().ok_or_else(none)?, threads)?;
    cpu.config.boxes_per_rank = config.boxes_per_rank;
    Ok(Rc::new(RefCell::new(cpu)))
}

/// Whether there are kernels for `config`.
///
/// # Errors
/// [`CudaError::NoKernels`] naming the option.
pub fn check(config: &Config) -> Result<(), CudaError> {
    let refuse = |what: String| Err(CudaError::NoKernels { what });
    if config.operator.is_point_centred() {
        return refuse(format!("--operator {}", crate::known::name(config.operator)));
    }
    if config.boundary == Boundary::Periodic {
        return refuse("--boundary periodic".into());
    }
    Ok(())
}
