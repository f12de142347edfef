//! Solvers of the coarsest level. Section 9 of the HPGMG-FV description.

pub mod bicgstab;
pub mod cg;
pub mod relaxation;

/// Iterations at most.
pub const MAX_ITERATIONS: usize = 200;
/// Factor by which the residual must drop (MG_DEFAULT_BOTTOM_NORM).
pub const REDUCTION: f64 = 1e-3;
