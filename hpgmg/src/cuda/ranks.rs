//! Several ranks with a GPU each, or sharing one: how they communicate.

use std::time::Duration;

use gdsync::{Buffer, CudaDevice, Device};

use super::error::CudaError;
use super::halo::{Form, Halo};
use super::partition::Partition;
use super::staged::Staged;
use crate::comm::{Comm, CommError};

/// How the ranks exchange what they share.
///
/// See [`Team`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Kernels store into the neighbours' ghosts, signal and wait by themselves; to ranks that are reached through a NIC they
    /// post puts.
    Kernel,
    /// Exchanges are launches of their own, enqueued by the CPU.
    Stream,
    /// The CPU waits for the GPU, sends messages from memory of its own, and copies what it receives to the GPU.
    Staged,
}

/// The ranks of a run.
///
/// ```
/// use hpgmg::comm::Comm;
/// use hpgmg::cuda::{Mode, Team};
///
/// // The ranks of a world of libmp, whose kernels communicate.
/// fn in_kernels(comm: &dyn Comm) -> Team<'_> {
///     let mode = Mode::Kernel;
///     Team { comm, messages: comm, mode, direct_halo: true, graph: false }
/// }
/// ```
#[derive(Clone, Copy)]
pub struct Team<'a> {
    /// Who they are.
    pub comm: &'a dyn Comm,
    /// What sends the messages of [`Mode::Staged`]; the same ranks.
    pub messages: &'a dyn Comm,
    /// How they communicate.
    pub mode: Mode,
    /// Kernels store straight into the neighbours' ghosts, not into receive buffers that are unpacked.
    pub direct_halo: bool,
    /// Solves are captured in graphs.
    pub graph: bool,
}

/// This rank's side of the communication.
pub(super) enum Ranks {
    /// There is one rank.
    Alone,
    /// By kernels and streams.
    Halo(Box<Halo>),
    /// By messages of the CPU.
    Staged(Staged),
}

impl Ranks {
    /// Connects the ranks; `memory` is the levels'. The domain wraps around if `around`, and they agree on `values`
    /// values at a time.
    ///
    /// # Errors
    /// If the ranks do not reach each other; what ended the world.
    pub fn new(
        team: &Team<'_>,
        place: &Device,
        partition: &Partition,
        memory: &[Buffer<f64>],
        (around, values): (bool, usize),
        limit: Duration,
    ) -> Result<Self, CudaError> {
        if team.mode == Mode::Staged {
            let staged = Staged::prepare(team.messages, place, partition, around)?;
            return Ok(Self::Staged(staged));
        }
        let communicator = team.comm.communicator().ok_or(CudaError::NoPeers)?;
        let form = Form {
            in_kernels: team.mode == Mode::Kernel,
            apart: place.as_cuda().map_or(Ok(1), |gpu| sharing(team.comm, gpu))? == 1,
            direct: team.direct_halo || team.mode == Mode::Stream,
            around,
            values,
        };
        let communicator = communicator.with_timeout(limit);
        let halo = Halo::prepare(communicator, place, partition, memory, form)?;
        Ok(Self::Halo(Box::new(halo)))
    }
}

/// The most ranks that are on one GPU. Collective.
///
/// # Errors
/// What ended the world.
pub fn sharing(comm: &dyn Comm, device: &CudaDevice) -> Result<usize, CudaError> {
    let Some(communicator) = comm.communicator() else { return Ok(1) };
    let all = communicator.all_gather(&device.uuid()).map_err(CommError::from)?;
    let on = |uuid: &Vec<u8>| all.iter().filter(|other| *other == uuid).count();
    Ok(all.iter().map(on).max().unwrap_or(1))
}
