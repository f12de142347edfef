//! The backend that runs every level on one GPU: one rank, all its boxes merged into one grid a level.
//!
//! Set-up (coefficients, right-hand side, diagonal, spectrum) is the CPU's, uploaded once. A solve is one CUDA graph:
//! nothing synchronises inside but the final norm that the host reads. The kernels (`cuda/*.cu`) compute what the CPU
//! computes, in the same order and without fused multiply-add. Bytes per cell and pass: `traffic.rs`.

mod cycle;
mod error;
mod kernels;
pub mod layout;
mod solver;
#[cfg(test)]
mod tests;
mod traffic;

pub use error::CudaError;
pub use solver::Gpu;

use gdsync::CudaDevice;

use crate::options::{Boundary, Config};

/// The first GPU, if this build and this machine can use it.
///
/// # Errors
/// [`CudaError::NotBuilt`]; no driver, no GPU, or what the driver says.
pub fn open() -> Result<CudaDevice, CudaError> {
    kernels::fatbin()?;
    Ok(CudaDevice::open(0)?)
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
