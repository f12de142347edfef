//! The smoother as a bottom solver.

use super::{MAX_ITERATIONS, REDUCTION};
use crate::backend::{Backend, Vector, remove_mean};
use crate::comm::CommError;

/// Smooths `A x = rhs` on level `l` until the residual has dropped; returns the calls of the smoother.
///
/// # Errors
/// [`CommError`] when the ranks lose each other.
pub fn solve<B: Backend>(b: &mut B, l: usize, x: Vector, rhs: Vector) -> Result<usize, CommError> {
    b.residual(l, Vector::Temp, x, rhs)?;
    remove_mean(b, l, Vector::Temp)?;
    let start = b.norm(l, Vector::Temp)?;
    if start == 0.0 {
        return Ok(0);
    }
    for iteration in 1..=MAX_ITERATIONS {
        b.smooth(l, x, rhs)?;
        remove_mean(b, l, x)?;
        b.residual(l, Vector::Temp, x, rhs)?;
        let norm = b.norm(l, Vector::Temp)?;
        if norm == 0.0 || norm < REDUCTION * start {
            return Ok(iteration);
        }
    }
    Ok(MAX_ITERATIONS)
}
