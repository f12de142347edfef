//! Why a run on a GPU was refused or failed.

use std::ops::Range;

use crate::comm::CommError;
use crate::error::ConfigError;

/// A GPU run that was refused or failed.
///
/// See [`Gpu`](super::Gpu) for an example.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// This program was built without nvcc.
    #[error(
        "--device cuda: built without GPU code, because no nvcc was found; run tools/get-nvcc (or set NVCC or \
         CUDA_HOME), then cargo build"
    )]
    NotBuilt,
    /// The levels do not fit into the memory of the GPU.
    #[error("--device cuda: the levels need {needed_mib} MiB and {gpu} has {available_mib} MiB")]
    Memory {
        /// Name of the GPU.
        gpu: String,
        /// What the levels take.
        needed_mib: u64,
        /// What the GPU has.
        available_mib: u64,
    },
    /// Other cells were set up than this solver computes.
    #[error("of {n}³ cells {held:?} were set up; this rank computes {needed:?}")]
    OtherCells {
        /// Cells per side of the level.
        n: usize,
        /// What was set up.
        held: [Range<usize>; 3],
        /// What is needed.
        needed: [Range<usize>; 3],
    },
    /// The launcher's choice is no number.
    #[error("MP_GPU is {0:?}; expected the number of a GPU of this machine")]
    AssignedGpu(String),
    /// The messaging library gives no access to other ranks' memory.
    #[error(
        "--comm kernel and --comm stream need ranks of libmp, which reach each other's GPU memory"
    )]
    NoPeers,
    /// The messages of the library are in memory that the GPU does not reach.
    #[error("messages of {0} are in memory that the GPU cannot copy from")]
    NoBuffers(&'static str),
    /// The ranks share the levels in no such way.
    #[error(transparent)]
    Division(#[from] ConfigError),
    /// The ranks lost each other.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// The driver, the GPU or a stream said no.
    #[error(transparent)]
    Gdsync(#[from] gdsync::Error),
}
