//! Why a run on a GPU was refused or failed.

/// A GPU run that was refused or failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// This program was built without nvcc.
    #[error(
        "--device cuda: built without GPU code, because no nvcc was found; run tools/get-nvcc (or set NVCC or \
         CUDA_HOME), then cargo build"
    )]
    NotBuilt,
    /// What was asked for has no kernels.
    #[error("--device cuda: no GPU code for {what}; it runs with --device cpu")]
    NoKernels {
        /// The options, as on the command line.
        what: String,
    },
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
    /// The driver, the GPU or a stream said no.
    #[error(transparent)]
    Gdsync(#[from] gdsync::Error),
}
