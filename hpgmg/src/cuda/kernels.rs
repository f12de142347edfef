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
    /// GSRB half-sweeps compiled for one size of level each, with that size.
    sized: Vec<(i32, Kernel)>,
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

/// The half-sweep of fv4 for the levels of the benchmark's usual sizes: with constant distances between rows and planes
/// it executes a third fewer instructions.
const SIZED: [(i32, &str); 6] = [
    (16, "hpgmg_fv4_gsrb_16"),
    (32, "hpgmg_fv4_gsrb_32"),
    (64, "hpgmg_fv4_gsrb_64"),
    (128, "hpgmg_fv4_gsrb_128"),
    (256, "hpgmg_fv4_gsrb_256"),
    (512, "hpgmg_fv4_gsrb_512"),
];

impl Kernels {
    /// The GSRB half-sweep for levels of `n` cells a side.
    pub fn gsrb_of(&self, n: i32) -> &Kernel {
        self.sized.iter().find(|(size, _)| *size == n).map_or(&self.gsrb[0], |(_, kernel)| kernel)
    }

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
        let sized: &[(i32, &'static str)] = if fv4 { &SIZED } else { &[] };
        let all: Vec<&'static str> =
            names.iter().chain(&COMMON).copied().chain(sized.iter().map(|s| s.1)).collect();
        let module = device.load_module(fatbin()?, &all)?;
        let k = |index: usize| module.kernel(names[index]);
        Ok(Self {
            gsrb: [k(0)?, k(1)?],
            sized: sized
                .iter()
                .map(|&(n, name)| Ok((n, module.kernel(name)?)))
                .collect::<Result<_, CudaError>>()?,
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
