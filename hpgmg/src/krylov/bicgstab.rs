//! BiCGStab with right diagonal preconditioning.

use super::{MAX_ITERATIONS, REDUCTION};
use crate::backend::{Backend, Vector, remove_mean};
use crate::comm::CommError;

const R0: Vector = Vector::Krylov(0);
const R: Vector = Vector::Krylov(1);
const P: Vector = Vector::Krylov(2);
const Q: Vector = Vector::Krylov(3);
const S: Vector = Vector::Krylov(4);
const T: Vector = Vector::Krylov(5);
const AP: Vector = Vector::Krylov(6);
const AS: Vector = Vector::Krylov(7);

/// Solves `A x = rhs` on level `l`, starting from `x`; returns the iterations.
///
/// # Errors
/// [`CommError`] when the ranks lose each other.
pub fn solve<B: Backend>(b: &mut B, l: usize, x: Vector, rhs: Vector) -> Result<usize, CommError> {
    b.residual(l, R0, x, rhs)?;
    remove_mean(b, l, R0)?;
    b.copy(l, R, R0);
    b.copy(l, P, R0);
    let mut r_r0 = b.dot(l, R, R0)?;
    let start = b.norm(l, R)?;
    if r_r0 == 0.0 || start == 0.0 {
        return Ok(0);
    }
    let converged = |norm: f64| norm == 0.0 || norm < REDUCTION * start;
    for iteration in 1..=MAX_ITERATIONS {
        b.multiply(l, Q, Vector::Dinv, P);
        b.apply(l, AP, Q)?;
        let ap_r0 = b.dot(l, AP, R0)?;
        let alpha = r_r0 / ap_r0;
        if ap_r0 == 0.0 || alpha.is_infinite() {
            return Ok(iteration);
        }
        b.axpby(l, x, 1.0, Q, alpha);
        b.copy(l, S, R);
        b.axpby(l, S, 1.0, AP, -alpha);
        remove_mean(b, l, S)?;
        if converged(b.norm(l, S)?) {
            return Ok(iteration);
        }
        b.multiply(l, T, Vector::Dinv, S);
        b.apply(l, AS, T)?;
        let as_as = b.dot(l, AS, AS)?;
        let omega = b.dot(l, AS, S)? / as_as;
        if as_as == 0.0 || omega == 0.0 || omega.is_infinite() {
            return Ok(iteration);
        }
        b.axpby(l, x, 1.0, T, omega);
        b.copy(l, R, S);
        b.axpby(l, R, 1.0, AS, -omega);
        remove_mean(b, l, R)?;
        if converged(b.norm(l, R)?) {
            return Ok(iteration);
        }
        let next = b.dot(l, R, R0)?;
        let beta = (next / r_r0) * (alpha / omega);
        if next == 0.0 || beta.is_infinite() {
            return Ok(iteration);
        }
        b.axpby(l, P, 1.0, AP, -omega);
        b.axpby(l, P, beta, R, 1.0);
        r_r0 = next;
    }
    Ok(MAX_ITERATIONS)
}
