//! What a cycle needs of the machine it runs on: the operations on the vectors of a level.
//!
//! The cycles and the Krylov solvers are written against this trait, so that levels may live on another
//! device. Every operation is collective over the ranks that are active on its level.

use crate::comm::CommError;

/// The vectors of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vector {
    /// Scratch: the other half of the smoothers' ping-pong, residuals on their way down.
    Temp,
    /// Solution, or correction on coarser levels.
    U,
    /// Right-hand side.
    F,
    /// Right-hand side of the current cycle.
    R,
    /// Inverse diagonal of the operator.
    Dinv,
    /// Face coefficient of normal 0, 1 or 2.
    Beta(u8),
    /// Cell coefficient of the identity term (Helmholtz).
    Alpha,
    /// L1 weights (L1-Jacobi).
    L1Inv,
    /// Work vector 0..8 of the Krylov solvers, on the bottom level.
    Krylov(u8),
}

impl Vector {
    /// Number of vectors.
    pub const COUNT: usize = 18;

    /// Position in a level's storage.
    pub fn index(self) -> usize {
        match self {
            Vector::Temp => 0,
            Vector::U => 1,
            Vector::F => 2,
            Vector::R => 3,
            Vector::Dinv => 4,
            Vector::Beta(axis) => 5 + axis as usize,
            Vector::Alpha => 8,
            Vector::L1Inv => 9,
            Vector::Krylov(i) => 10 + i as usize,
        }
    }
}

/// Which interpolation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prolongation {
    /// Of a correction, added to the finer level (V-cycle).
    Correct,
    /// Of a solution, replacing the finer level's (F-cycle).
    Replace,
}

/// Operations on the levels of a hierarchy; level 0 is the finest.
///
/// # Errors
/// All fail with [`CommError`] when the ranks lose each other.
#[allow(clippy::missing_errors_doc)]
pub trait Backend {
    /// Number of levels.
    fn levels(&self) -> usize;
    /// True when this rank takes part in level `l` or a coarser one.
    fn active(&self, l: usize) -> bool;
    /// True when the operator has the constants in its null space (periodic Poisson).
    fn singular(&self) -> bool;
    /// One call of the smoother on `A x = rhs`.
    fn smooth(&mut self, l: usize, x: Vector, rhs: Vector) -> Result<(), CommError>;
    /// `out = rhs - A x`.
    fn residual(&mut self, l: usize, out: Vector, x: Vector, rhs: Vector) -> Result<(), CommError>;
    /// `out = A x`.
    fn apply(&mut self, l: usize, out: Vector, x: Vector) -> Result<(), CommError>;
    /// `coarse` of level `l + 1` = means of `fine` of level `l`.
    fn restrict(&mut self, l: usize, fine: Vector, coarse: Vector) -> Result<(), CommError>;
    /// `x` of level `l` from `x` of level `l + 1`.
    fn prolong(&mut self, l: usize, x: Vector, how: Prolongation) -> Result<(), CommError>;
    /// `x = 0`.
    fn zero(&mut self, l: usize, x: Vector);
    /// `to = from`.
    fn copy(&mut self, l: usize, to: Vector, from: Vector);
    /// `y = b y + a x`.
    fn axpby(&mut self, l: usize, y: Vector, b: f64, x: Vector, a: f64);
    /// `out = x y`, cell by cell.
    fn multiply(&mut self, l: usize, out: Vector, x: Vector, y: Vector);
    /// `x = x + c`.
    fn shift(&mut self, l: usize, x: Vector, c: f64);
    /// Maximum of |x|.
    fn norm(&mut self, l: usize, x: Vector) -> Result<f64, CommError>;
    /// Sum of x y.
    fn dot(&mut self, l: usize, x: Vector, y: Vector) -> Result<f64, CommError>;
    /// Mean of x.
    fn mean(&mut self, l: usize, x: Vector) -> Result<f64, CommError>;
    /// Solves `A x = rhs` on the coarsest level; returns the iterations.
    fn solve_bottom(&mut self, x: Vector, rhs: Vector) -> Result<usize, CommError>;
}

/// Makes the mean of `x` zero where the operator does not see it.
///
/// # Errors
/// [`CommError`] when the ranks lose each other.
pub fn remove_mean<B: Backend>(b: &mut B, l: usize, x: Vector) -> Result<(), CommError> {
    if b.singular() {
        let mean = b.mean(l, x)?;
        b.shift(l, x, -mean);
    }
    Ok(())
}
