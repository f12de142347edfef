//! Conjugate gradients with diagonal preconditioning.

use super::{MAX_ITERATIONS, REDUCTION};
use crate::backend::{Backend, Vector, remove_mean};
use crate::comm::CommError;

const R: Vector = Vector::Krylov(0);
const P: Vector = Vector::Krylov(1);
const AP: Vector = Vector::Krylov(2);
const Z: Vector = Vector::Krylov(3);

/// Solves `A x = rhs` on level `l`, starting from `x`; returns the iterations.
///
/// # Errors
/// [`CommError`] when the ranks lose each other.
pub fn solve<B: Backend>(b: &mut B, l: usize, x: Vector, rhs: Vector) -> Result<usize, CommError> {
    b.residual(l, R, x, rhs)?;
    remove_mean(b, l, R)?;
    let start = b.norm(l, R)?;
    if start == 0.0 {
        return Ok(0);
    }
    b.multiply(l, Z, Vector::Dinv, R);
    b.copy(l, P, Z);
    let mut r_z = b.dot(l, R, Z)?;
    if r_z == 0.0 {
        return Ok(0);
    }
    for iteration in 1..=MAX_ITERATIONS {
        b.apply(l, AP, P)?;
        let ap_p = b.dot(l, AP, P)?;
        let alpha = r_z / ap_p;
        if ap_p == 0.0 || alpha.is_infinite() {
            return Ok(iteration);
        }
        b.axpby(l, x, 1.0, P, alpha);
        b.axpby(l, R, 1.0, AP, -alpha);
        remove_mean(b, l, R)?;
        let norm = b.norm(l, R)?;
        if norm == 0.0 || norm < REDUCTION * start {
            return Ok(iteration);
        }
        b.multiply(l, Z, Vector::Dinv, R);
        let next = b.dot(l, R, Z)?;
        let beta = next / r_z;
        if next == 0.0 || beta.is_infinite() {
            return Ok(iteration);
        }
        b.axpby(l, P, beta, Z, 1.0);
        r_z = next;
    }
    Ok(MAX_ITERATIONS)
}
