//! Several ranks with a GPU each, or sharing one: how they communicate.

use std::time::Duration;

use gdsync::{Buffer, CudaDevice, Device};
use libmp::{Path, Region};

use super::error::CudaError;
use super::messages::Messages;
use super::partition::Partition;
use super::peers::Peers;
use super::posted::Posted;
use super::staged::Staged;
use crate::comm::{Comm, CommError};

/// How the ranks exchange what they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Kernels store into the neighbours' ghosts, signal and wait by themselves; of ranks that are reached through a NIC
    /// messages that kernels post and wait for.
    Kernel,
    /// Exchanges are launches of their own, enqueued by the CPU; of ranks that are reached through a NIC messages on the
    /// stream.
    Stream,
    /// The CPU waits for the GPU, sends messages from memory of its own, and copies what it receives to the GPU.
    Staged,
}

/// The ranks of a run.
#[derive(Clone, Copy)]
pub struct Team<'a> {
    /// Who they are.
    pub comm: &'a dyn Comm,
    /// What sends the messages of [`Mode::Staged`]; the same ranks.
    pub messages: &'a dyn Comm,
    /// How they communicate.
    pub mode: Mode,
    /// Levels of at most so many cells a side are computed by every rank.
    pub whole: usize,
    /// Kernels store straight into the neighbours' ghosts, not into receive buffers that are unpacked.
    pub direct_halo: bool,
    /// Solves are captured in graphs.
    pub graph: bool,
}

/// This rank's side of the communication.
pub(super) enum Ranks {
    /// There is one rank.
    Alone,
    /// Through the memory of the others.
    Direct(Box<Peers>),
    /// By messages on the stream.
    Messages(Messages),
    /// By messages that kernels post.
    Posted(Posted),
    /// By messages of the CPU.
    Staged(Staged),
}

impl Ranks {
    /// Connects the ranks; `memory` and `dims` are the levels'.
    ///
    /// # Errors
    /// If the ranks do not reach each other; what ended the world.
    pub fn new(
        team: &Team<'_>,
        device: &CudaDevice,
        partition: &Partition,
        memory: &[Buffer<f64>],
        dims: &[usize],
        limit: Duration,
    ) -> Result<Self, CudaError> {
        let place = Device::Cuda(device.clone());
        if team.mode == Mode::Staged {
            return Ok(Self::Staged(Staged::prepare(team.messages, &place, partition, dims)?));
        }
        let communicator = team.comm.communicator().ok_or(CudaError::NoPeers)?;
        // All ranks decide the same: a NIC anywhere means messages everywhere.
        let mapped = (0..communicator.size())
            .all(|rank| matches!(communicator.path(rank), Ok(Path::Direct)));
        let far = communicator.all_gather(&[u8::from(!mapped)]).map_err(CommError::from)?;
        if far.iter().any(|far| far[..] == [1]) {
            if team.mode == Mode::Kernel {
                return Ok(Self::Posted(Posted::prepare(communicator, partition, memory, dims)?));
            }
            if team.graph {
                return Err(CudaError::NoGraph);
            }
            return Ok(Self::Messages(Messages::prepare(communicator, &place, partition, dims)?));
        }
        let regions: Vec<Region<f64>> =
            memory[..=partition.whole()].iter().cloned().map(Region::from_buffer).collect();
        let mut peers =
            Peers::open(communicator, &place, partition.clone(), &regions, dims, limit)?;
        peers.in_kernels = team.mode == Mode::Kernel;
        if team.mode == Mode::Kernel && !team.direct_halo {
            peers.use_inboxes(&place, dims)?;
        }
        if sharing(team.comm, device)? > 1 {
            peers.share_gpu();
        }
        Ok(Self::Direct(Box::new(peers)))
    }

    /// Whether nothing waits on the CPU within a solve.
    pub fn can_be_captured(&self) -> bool {
        match self {
            Self::Alone | Self::Direct(_) | Self::Posted(_) => true,
            Self::Messages(_) | Self::Staged(_) => false,
        }
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
