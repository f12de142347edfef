//! The backend that runs every level on GPUs. The boxes are merged into one grid a level. Of several ranks each has a slab
//! or a box of the fine levels and all of the coarse ones (`division.rs`, `partition.rs`); they find the bits that one rank finds.
//!
//! Set-up (coefficients, right-hand side, diagonal, spectrum) is the CPU's, uploaded once. A solve is one CUDA graph:
//! nothing synchronises inside but the final norm that the host reads. The kernels (`cuda/*.cu`) compute what the CPU
//! computes, in the same order and without fused multiply-add. Bytes per cell and pass: `traffic.rs`; what they reach, and what was
//! tried: `docs/hpgmg-gpu.md`. Coarse levels can be the CPU's (`hybrid.rs`), and a solve can be shown (`timeline.rs`).

mod borders;
mod columns;
mod cycle;
mod device;
mod division;
mod error;
mod f_cycle;
mod halo;
#[cfg(test)]
mod host;
mod hybrid;
mod kernels;
mod launches;
mod layout;
mod machine;
mod mean;
mod partition;
mod ranks;
mod resident;
#[cfg(test)]
mod setup_tests;
mod solver;
#[cfg(test)]
mod solves;
mod staged;
#[cfg(test)]
mod table;
#[cfg(test)]
mod tests;
mod tiles;
mod timeline;
mod traffic;
mod upload;

pub use division::{Cut, WHOLE};
pub use error::CudaError;
pub use f_cycle::{FCycle, FCycleLevel};
pub use ranks::{Mode, Team, sharing};
pub use solver::Gpu;
pub use timeline::{gather, timeline};

use std::cell::RefCell;
use std::rc::Rc;

use gdsync::CudaDevice;

use crate::comm::{Alone, Comm, CommError};
use crate::cpu::Cpu;
use crate::decomposition::{LevelShape, boxes_per_side, hierarchy};
use crate::error::{ConfigError, Error};
use crate::options::{Boundary, Config, Operator};
use crate::setup;
use crate::slab::Slab;
use division::Division;
use partition::{Coarse, Part, Partition};

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

/// How many consecutive ranks are on the first rank's host, where the library knows; else all.
///
/// # Errors
/// [`CommError`], if a rank is gone.
pub fn on_a_host(comm: &dyn Comm) -> Result<usize, CommError> {
    let Some(communicator) = comm.communicator() else { return Ok(comm.size()) };
    let first = communicator.host(0)?;
    let mut here = 1;
    while here < comm.size() && communicator.host(here)? == first {
        here += 1;
    }
    Ok(here)
}

/// The configuration of one rank that has the boxes of `ranks`.
pub fn all_boxes(config: &Config, ranks: usize) -> Config {
    Config { boxes_per_rank: config.boxes_per_rank.saturating_mul(ranks), ..config.clone() }
}

/// Cells per side of the finest level of a run with `ranks` ranks.
///
/// # Errors
/// [`ConfigError::NoDecomposition`].
pub fn finest(config: &Config, ranks: usize) -> Result<usize, ConfigError> {
    let target = config.boxes_per_rank.saturating_mul(ranks);
    boxes_per_side(config.box_dim, target)
        .map(|m| m * config.box_dim)
        .ok_or(ConfigError::NoDecomposition { boxes_per_rank: config.boxes_per_rank, ranks })
}

/// How the levels of the hierarchy `shapes` are divided.
fn division(
    config: &Config,
    shapes: &[LevelShape],
    ranks: usize,
    cut: Cut<'_>,
) -> Result<(Vec<usize>, Division), ConfigError> {
    let dims: Vec<usize> = shapes.iter().map(|shape| shape.dim).collect();
    let coarse = Coarse::new(&dims, cut.threshold).first();
    let division = Division::new(config, &dims[..=coarse], ranks, cut)?;
    Ok((dims, division))
}

/// The parts that rank `rank` sets up of the levels that are cut; none if it sets up all of every level. What the
/// formulas alone do not give – the mean of a right-hand side, ghosts of the other end of the domain – and the closed form of a diagonal
/// are there for whole levels only.
fn cut_parts(config: &Config, (dims, division): &(Vec<usize>, Division), rank: usize) -> Vec<Part> {
    if config.boundary == Boundary::Periodic || config.operator == Operator::P7 {
        return Vec::new();
    }
    let partition = Partition::new(dims, division.clone(), rank);
    (0..partition.whole()).map(|l| partition.part(l)).collect()
}

/// Sets up, with `threads` threads, what this rank of `comm` computes, for [`Gpu::new`]: its parts of the levels that are
/// cut and the whole of the others. Collective over `comm`.
///
/// # Errors
/// As [`Cpu::new`].
pub fn set_up(
    config: &Config,
    comm: &dyn Comm,
    cut: Cut<'_>,
    threads: usize,
) -> Result<Rc<RefCell<Cpu>>, Error> {
    let cpu = set_up_all(all_boxes(config, comm.size()), comm, cut, threads)?;
    cpu.borrow_mut().config.boxes_per_rank = config.boxes_per_rank;
    Ok(cpu)
}

/// The same of all boxes of `all`.
fn set_up_all(
    all: Config,
    comm: &dyn Comm,
    cut: Cut<'_>,
    threads: usize,
) -> Result<Rc<RefCell<Cpu>>, Error> {
    let size = comm.size();
    let division = division(&all, &hierarchy(&all, 1)?, size, cut)?;
    let parts = cut_parts(&all, &division, comm.rank());
    let mut group = comm.group(&(0..size).collect::<Vec<_>>())?;
    let mut agree = |values: &mut [f64]| group.as_mut().map_or(Ok(()), |group| group.max(values));
    // The solver of the levels that every rank has waits for nobody.
    let cpu = Cpu::with_slabs(all, &Alone, threads, &parts, &mut agree)?;
    Ok(Rc::new(RefCell::new(cpu)))
}

/// Refuses a problem whose set-up does not fit into `available` bytes a rank.
///
/// # Errors
/// [`ConfigError`] for a problem that is too large or has no decomposition.
pub fn check_memory(
    config: &Config,
    ranks: usize,
    cut: Cut<'_>,
    available: u64,
) -> Result<(), ConfigError> {
    let all = all_boxes(config, ranks);
    // What is far more than all ranks together could hold first: the lists of such a hierarchy would not fit either.
    crate::cli::check_memory(&all, 1, 1, available.saturating_mul(8 * ranks as u64))?;
    let shapes = hierarchy(&all, 1)?;
    let division = division(config, &shapes, ranks, cut)?;
    let needed = |rank: usize| {
        let parts = cut_parts(config, &division, rank);
        let cut: u64 = parts.iter().map(|part| Slab::memory(config, part)).sum();
        cut + setup::memory(&all, &shapes[parts.len()..], LevelShape::boxes)
    };
    let needed = (0..ranks).map(needed).max().unwrap_or(0);
    if needed > available {
        let (needed_mib, available_mib) = (needed >> 20, available >> 20);
        return Err(ConfigError::Memory { dim: shapes[0].dim, needed_mib, available_mib });
    }
    Ok(())
}
