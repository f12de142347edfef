//! The smoothers: sequences of passes that ping-pong between a vector and `Temp`. Section 8 of the
//! HPGMG-FV description.

use crate::backend::{Outline, Vector};
use crate::cpu::Step;
use crate::options::Smoother;
use crate::work::Work;

/// Passes of one call of the smoother: 3 times red and black, a Chebyshev polynomial of degree 6 on the upper 7/8 of the
/// spectrum, for the point-centred operators 2 times and of degree 4; six sweeps of weighted Jacobi.
pub fn passes(level: &Outline) -> usize {
    match level.smoother {
        Smoother::Gsrb | Smoother::Chebyshev if level.point_centred => 4,
        _ => 6,
    }
}

/// Number `pass` of the passes of one call on `A x = rhs` of level `l`. After all of them, an even number, the result is in
/// `x`.
pub fn pass(level: &Outline, l: usize, x: Vector, rhs: Vector, pass: usize) -> Work {
    if level.fused {
        return Work::RedBlack { l, x, rhs, sweep: pass / 2 * 2, shell: pass % 2 == 1 };
    }
    let step = step(level, rhs, pass);
    let (x, out) = vectors(x, pass);
    Work::Pass { l, x, out, step }
}

/// What pass number `pass` computes.
pub fn step(level: &Outline, rhs: Vector, pass: usize) -> Step {
    match level.smoother {
        Smoother::Gsrb => Step::Gsrb { rhs, sweep: pass },
        Smoother::Chebyshev => {
            let (c1, c2) = chebyshev_weights(level.lambda_max)[pass];
            Step::Chebyshev { rhs, c1, c2 }
        }
        Smoother::Jacobi => Step::Weighted { rhs, weight: Vector::Dinv, scale: 2.0 / 3.0 },
        Smoother::L1Jacobi => Step::Weighted { rhs, weight: Vector::L1Inv, scale: 1.0 },
    }
}

/// The vectors that pass number `pass` on `x` reads and writes.
pub fn vectors(x: Vector, pass: usize) -> (Vector, Vector) {
    if pass.is_multiple_of(2) { (x, Vector::Temp) } else { (Vector::Temp, x) }
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
