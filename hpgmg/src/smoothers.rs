//! The smoothers: sequences of passes that ping-pong between a vector and `Temp`. Section 8 of the
//! HPGMG-FV description.

use crate::backend::Vector;
use crate::comm::CommError;
use crate::cpu::{Cpu, Step};

/// Runs an even number of passes so that the result ends up in `x`.
fn passes(
    cpu: &mut Cpu,
    l: usize,
    x: Vector,
    count: usize,
    step: impl Fn(usize) -> Step,
) -> Result<(), CommError> {
    debug_assert!(count.is_multiple_of(2));
    for pass in 0..count {
        let (from, to) = if pass % 2 == 0 { (x, Vector::Temp) } else { (Vector::Temp, x) };
        cpu.pass(l, from, to, step(pass))?;
    }
    Ok(())
}

/// Gauss-Seidel, red-black: 3 times red and black, 2 times for the point-centred operators.
///
/// # Errors
/// [`CommError`] when the ranks lose each other.
pub fn gsrb(cpu: &mut Cpu, l: usize, x: Vector, rhs: Vector) -> Result<(), CommError> {
    let half_sweeps = if cpu.config().operator.is_point_centred() { 4 } else { 6 };
    if cpu.fuses_half_sweeps(l) {
        for pair in 0..half_sweeps / 2 {
            cpu.red_black(l, x, rhs, 2 * pair)?;
        }
        return Ok(());
    }
    passes(cpu, l, x, half_sweeps, |sweep| Step::Gsrb { rhs, sweep })
}

/// Weights of the last step and of the residual in the steps of the Chebyshev recurrence on the upper 7/8 of a
/// spectrum up to `lambda_max`.
pub fn chebyshev_weights(lambda_max: f64) -> [(f64, f64); 6] {
    let beta = lambda_max;
    let alpha = 0.125 * beta;
    let theta = 0.5 * (beta + alpha);
    let delta = 0.5 * (beta - alpha);
    let sigma = theta / delta;
    let mut rho = 1.0 / sigma;
    let mut c = [(0.0, 1.0 / theta); 6];
    for c in &mut c[1..] {
        let last = rho;
        rho = 1.0 / (2.0 * sigma - last);
        *c = (rho * last, rho * 2.0 / delta);
    }
    c
}

/// A Chebyshev polynomial of degree 6, 4 for the point-centred operators, on the upper 7/8 of the
/// spectrum.
///
/// # Errors
/// [`CommError`] when the ranks lose each other.
pub fn chebyshev(cpu: &mut Cpu, l: usize, x: Vector, rhs: Vector) -> Result<(), CommError> {
    let degree = if cpu.config().operator.is_point_centred() { 4 } else { 6 };
    let c = chebyshev_weights(cpu.level(l).lambda_max);
    passes(cpu, l, x, degree, |pass| Step::Chebyshev { rhs, c1: c[pass].0, c2: c[pass].1 })
}

/// Six sweeps of weighted Jacobi: `x + scale weight (rhs - A x)`.
///
/// # Errors
/// [`CommError`] when the ranks lose each other.
pub fn jacobi(
    cpu: &mut Cpu,
    l: usize,
    x: Vector,
    rhs: Vector,
    weight: Vector,
    scale: f64,
) -> Result<(), CommError> {
    passes(cpu, l, x, 6, |_| Step::Weighted { rhs, weight, scale })
}
