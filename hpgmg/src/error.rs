//! What can go wrong, as values: a configuration that is refused, and a run that fails.

use crate::comm::CommError;
use crate::cuda::CudaError;

/// A configuration that is refused before anything is allocated.
///
/// See [`LevelShape`](crate::decomposition::LevelShape) for an example.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The first positional argument is out of range.
    #[error("LOG2_BOX_DIM is {0}; it must be between 4 and 9 (boxes of 16 to 512 cells per side)")]
    BoxDim(u32),
    /// No number of boxes satisfies the request.
    #[error(
        "no decomposition for {boxes_per_rank} boxes per rank on {ranks} ranks: BOXES_PER_RANK and \
         the number of ranks must both be at least 1"
    )]
    NoDecomposition {
        /// The second positional argument.
        boxes_per_rank: usize,
        /// Ranks of the run.
        ranks: usize,
    },
    /// Red-black and four-colour orderings do not wrap around an odd grid.
    #[error(
        "periodic boundaries need a power of two of boxes per side so that every level wraps evenly; \
         this request gives {boxes} boxes and {dim} cells per side (1, 8, 64, 512, … boxes are allowed)"
    )]
    PeriodicOdd {
        /// Boxes in all.
        boxes: usize,
        /// Cells per side.
        dim: usize,
    },
    /// The user's division of levels among ranks does not fit.
    #[error("--along {}: {reason}, {ranks}", .along.iter().map(|[i, j, k]| format!("{i}x{j}x{k}")).collect::<Vec<_>>().join(","))]
    Along {
        /// Ranks along i, j and k of the finest level, of the next, and so on.
        along: Vec<[usize; 3]>,
        /// Ranks of the run.
        ranks: usize,
        /// Why not.
        reason: &'static str,
    },
    /// The levels would not fit into memory.
    #[error(
        "{dim}³ cells need {needed_mib} MiB on this machine and {available_mib} MiB are available; \
         take a smaller LOG2_BOX_DIM or BOXES_PER_RANK, or more machines"
    )]
    Memory {
        /// Cells per side.
        dim: usize,
        /// What the levels of the ranks of this machine take.
        needed_mib: u64,
        /// What the machine has.
        available_mib: u64,
    },
}

/// A run that failed.
///
/// See [the crate](crate) for an example.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request itself.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The ranks could not reach each other.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// The GPU.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The operating system refused a thread.
    #[error("cannot start the threads of a rank")]
    Threads(#[source] std::io::Error),
}
