//! What to solve and how: the names users choose from, and the configuration of one solver.
//!
//! The command line itself is `cli.rs`; here is only what the numerics depend on.

use serde::{Deserialize, Serialize};

/// Discretisation of the operator.
///
/// See [the crate](crate) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operator {
    /// Fourth-order finite volume, 25 cells (the benchmark).
    Fv4,
    /// Second-order finite volume, 7 cells.
    Fv2,
    /// Point-centred variable-coefficient 7-point stencil.
    #[value(name = "7pt")]
    #[serde(rename = "7pt")]
    P7,
    /// Point-centred constant-coefficient 27-point stencil.
    #[value(name = "27pt")]
    #[serde(rename = "27pt")]
    P27,
}

impl Operator {
    /// Reach of the stencil, which is also the depth of the ghost layers.
    pub fn radius(self) -> usize {
        if self == Operator::Fv4 { 2 } else { 1 }
    }

    /// Sweeps of one call of the Jacobi-like smoothers and half-sweeps of GSRB.
    pub fn is_point_centred(self) -> bool {
        matches!(self, Operator::P7 | Operator::P27)
    }
}

/// Smoother.
///
/// See [the crate](crate) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Smoother {
    /// Gauss-Seidel, red-black.
    Gsrb,
    /// Chebyshev polynomial.
    #[serde(alias = "cheby")]
    Chebyshev,
    /// Weighted Jacobi (2/3).
    Jacobi,
    /// Jacobi with L1 weights.
    #[serde(alias = "l1jacobi")]
    L1Jacobi,
}

/// What one solve consists of.
///
/// See [the crate](crate) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cycle {
    /// One F-cycle (the benchmark).
    #[serde(alias = "F")]
    F,
    /// V-cycles from zero until the residual has dropped by 1e-10, at most 20.
    #[serde(alias = "V")]
    V,
    /// One F-cycle, then V-cycles to the same tolerance.
    #[serde(alias = "FV")]
    Fv,
}

/// Boundary condition.
///
/// See [the crate](crate) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Boundary {
    /// `u = 0` on the faces of the domain.
    Dirichlet,
    /// The domain wraps around.
    Periodic,
}

/// Equation `a alpha u - b div(beta grad u) = f`.
///
/// See [the crate](crate) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Equation {
    /// a = 0, b = 1.
    #[serde(alias = "poisson(a=0,b=1)")]
    Poisson,
    /// a = b = 1, alpha = 1.
    #[serde(alias = "helmholtz(a=1,b=1)")]
    Helmholtz,
}

impl Equation {
    /// The coefficient `a`.
    pub fn a(self) -> f64 {
        if self == Equation::Helmholtz { 1.0 } else { 0.0 }
    }
}

/// Solver of the coarsest level.
///
/// See [the crate](crate) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bottom {
    /// Diagonally preconditioned BiCGStab.
    Bicgstab,
    /// Jacobi-preconditioned conjugate gradients.
    Cg,
    /// The smoother itself, up to 200 calls.
    #[serde(alias = "relax")]
    Smoother,
}

/// Everything the numerics depend on.
///
/// See [the crate](crate) for an example.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Discretisation.
    pub operator: Operator,
    /// Smoother.
    pub smoother: Smoother,
    /// Kind of solve.
    pub cycle: Cycle,
    /// Boundary condition.
    pub boundary: Boundary,
    /// Equation.
    pub equation: Equation,
    /// Bottom solver.
    pub bottom: Bottom,
    /// Cells per side of a box of the finest level.
    pub box_dim: usize,
    /// Boxes per rank asked for.
    pub boxes_per_rank: usize,
}

impl Default for Config {
    /// The benchmark: fv4, GSRB, F-cycle, Dirichlet, Poisson, BiCGStab, one box of 32³.
    fn default() -> Self {
        Self {
            operator: Operator::Fv4,
            smoother: Smoother::Gsrb,
            cycle: Cycle::F,
            boundary: Boundary::Dirichlet,
            equation: Equation::Poisson,
            bottom: Bottom::Bicgstab,
            box_dim: 32,
            boxes_per_rank: 1,
        }
    }
}
