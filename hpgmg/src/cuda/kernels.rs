//! The embedded GPU code and its entry points.

use gdsync::{CudaDevice, Kernel, Module};

use super::error::CudaError;
use crate::options::Operator;

/// The fatbin of `cuda/module.cu`.
///
/// # Errors
/// [`CudaError::NotBuilt`] if there was no nvcc when this crate was built.
pub fn fatbin() -> Result<&'static [u8], CudaError> {
    #[cfg(hpgmg_fatbin)]
    {
        #[repr(C, align(64))]
        struct Aligned<T: ?Sized>(T);
        static IMAGE: &Aligned<[u8]> =
            &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/hpgmg.fatbin")));
        Ok(&IMAGE.0)
    }
    #[cfg(not(hpgmg_fatbin))]
    Err(CudaError::NotBuilt)
}

/// The kernels of one operator.
pub struct Kernels {
    /// GSRB half-sweep, and from zero.
    pub gsrb: [Kernel; 2],
    /// Jacobi sweep, and from zero.
    pub weighted: [Kernel; 2],
    /// Step of the Chebyshev recurrence.
    pub chebyshev: Kernel,
    /// Residual, restricted.
    pub residual_restrict: Kernel,
    /// Largest residual.
    pub residual_norm: Kernel,
    /// Restriction, with or without the largest value of what is restricted.
    pub restrict: Kernel,
    /// Interpolation of a correction.
    pub correct: Kernel,
    /// Interpolation of a solution.
    pub replace: Kernel,
    /// Largest value, or difference from a finer level.
    pub norm: Kernel,
    /// The coarsest levels in one launch.
    pub resident: Kernel,
    /// Keeps the code loaded.
    _module: Module,
}

impl Kernels {
    /// Loads the code for `operator`.
    ///
    /// # Errors
    /// [`CudaError::NotBuilt`], or what the driver says.
    pub fn load(device: &CudaDevice, operator: Operator) -> Result<Self, CudaError> {
        const COMMON: [&str; 4] =
            ["hpgmg_restrict", "hpgmg_norm", "hpgmg_correct", "hpgmg_replace_quadratic"];
        let fv4 = operator == Operator::Fv4;
        let names: &[&'static str] = if fv4 {
            &[
                "hpgmg_fv4_gsrb",
                "hpgmg_fv4_gsrb_zero",
                "hpgmg_fv4_weighted",
                "hpgmg_fv4_weighted_zero",
                "hpgmg_fv4_chebyshev",
                "hpgmg_fv4_residual_restrict",
                "hpgmg_fv4_residual_norm",
                "hpgmg_fv4_resident",
                "hpgmg_replace_quartic",
            ]
        } else {
            &[
                "hpgmg_fv2_gsrb",
                "hpgmg_fv2_gsrb_zero",
                "hpgmg_fv2_weighted",
                "hpgmg_fv2_weighted_zero",
                "hpgmg_fv2_chebyshev",
                "hpgmg_fv2_residual_restrict",
                "hpgmg_fv2_residual_norm",
                "hpgmg_fv2_resident",
                "hpgmg_replace_quadratic",
            ]
        };
        let all: Vec<&'static str> = names.iter().chain(&COMMON).copied().collect();
        let module = device.load_module(fatbin()?, &all)?;
        let k = |index: usize| module.kernel(names[index]);
        Ok(Self {
            gsrb: [k(0)?, k(1)?],
            weighted: [k(2)?, k(3)?],
            chebyshev: k(4)?,
            residual_restrict: k(5)?,
            residual_norm: k(6)?,
            resident: k(7)?,
            replace: k(8)?,
            restrict: module.kernel("hpgmg_restrict")?,
            norm: module.kernel("hpgmg_norm")?,
            correct: module.kernel("hpgmg_correct")?,
            _module: module,
        })
    }
}
