//! The model problems: coefficient and right-hand side as formulas of position.
//!
//! Evaluated on the finest level only; coarser levels restrict. Section 1 (finite volume) and 13 (7pt,
//! 27pt) of the HPGMG-FV description. The order of the additions is the reference's.

use std::f64::consts::PI;

use crate::options::{Boundary, Operator};

const W: f64 = 2.0 * PI;

/// What the formulas need of one coordinate, computed once per plane of the grid.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    x: f64,
    sin: f64,
    cos: f64,
    sin5: f64,
    sin7: f64,
}

/// Coefficient and right-hand side of one operator's model problem on cells of size `h`.
#[derive(Clone, Copy, Debug)]
pub struct Problem {
    operator: Operator,
    boundary: Boundary,
    /// The coefficient `a` of the identity term.
    a: f64,
    h: f64,
}

impl Problem {
    /// The model problem of `operator` on a grid of cell size `h`; `a` is 1 for Helmholtz, 0 for Poisson.
    pub fn new(operator: Operator, boundary: Boundary, a: f64, h: f64) -> Self {
        Self { operator, boundary, a, h }
    }

    /// What the formulas need of one coordinate.
    pub fn axis(&self, x: f64) -> Axis {
        if self.operator.is_point_centred() {
            return Axis { x, sin: 0.0, cos: 0.0, sin5: 0.0, sin7: 0.0 };
        }
        let sin = (W * x).sin();
        Axis { x, sin, cos: (W * x).cos(), sin5: sin.powf(5.0), sin7: sin.powf(7.0) }
    }

    /// The coefficient on the face of normal `axis` whose centre is `at`.
    pub fn beta(&self, axis: usize, at: [&Axis; 3]) -> f64 {
        match self.operator {
            Operator::P27 => 1.0,
            Operator::P7 => tanh_shell(at.map(|a| a.x)).0,
            Operator::Fv4 | Operator::Fv2 => {
                let s = 0.25 * at[0].sin * at[1].sin * at[2].sin;
                let correction = (self.h * self.h / 24.0) * (-W * W * s);
                let mut beta = 1.0 + s;
                for tangent in 0..3 {
                    if tangent != axis {
                        beta += correction;
                    }
                }
                beta
            }
        }
    }

    /// The right-hand side of the cell whose centre is `at`.
    pub fn rhs(&self, at: [&Axis; 3]) -> f64 {
        if self.operator.is_point_centred() {
            self.point_rhs(at.map(|a| a.x))
        } else {
            self.volume_rhs(at)
        }
    }

    /// A row of the level's coefficients (`Some` normal) or of its right-hand side, at the cells of `x`.
    pub fn row(&self, normal: Option<usize>, x: &[Axis], y: &Axis, z: &Axis, out: &mut [f64]) {
        match normal {
            Some(axis) => {
                for (value, x) in out.iter_mut().zip(x) {
                    *value = self.beta(axis, [x, y, z]);
                }
            }
            None => {
                for (value, x) in out.iter_mut().zip(x) {
                    *value = self.rhs([x, y, z]);
                }
            }
        }
    }

    /// What the formulas need of the coordinates of `count` cells, the first of which is number `first` of the axis; of
    /// their low faces if `faces`.
    pub fn along(&self, first: usize, count: usize, faces: bool) -> Vec<Axis> {
        let shift = if faces { self.h * 0.5 } else { 0.0 };
        let centre = |i: usize| self.h * ((first + i) as f64 + 0.5);
        (0..count).map(|i| self.axis(centre(i) - shift)).collect()
    }

    fn volume_rhs(&self, at: [&Axis; 3]) -> f64 {
        let (c, p5, p7) = (at.map(|a| a.cos), at.map(|a| a.sin5), at.map(|a| a.sin7));
        let f = p7[0] * p7[1] * p7[2];
        let first = -W * W * 7.0 * p7[0] * p7[1] * p7[2];
        let fxx = first + W * W * 42.0 * p5[0] * p7[1] * p7[2] * c[0] * c[0];
        let fyy = first + W * W * 42.0 * p7[0] * p5[1] * p7[2] * c[1] * c[1];
        let fzz = first + W * W * 42.0 * p7[0] * p7[1] * p5[2] * c[2] * c[2];
        let scale = self.h * self.h / 24.0;
        f + scale * fxx + scale * fyy + scale * fzz
    }

    fn point_rhs(&self, at: [f64; 3]) -> f64 {
        let shift = if self.boundary == Boundary::Periodic { 1.0 / 21.0 } else { 0.0 };
        let x = at
            .map(|x| 2.0 * x.powi(6) - 6.0 * x.powi(5) + 5.0 * x.powi(4) - 1.0 * x.powi(2) + shift);
        let d1 = at.map(|x| 12.0 * x.powi(5) - 30.0 * x.powi(4) + 20.0 * x.powi(3) - 2.0 * x);
        let d2 = at.map(|x| 60.0 * x.powi(4) - 120.0 * x.powi(3) + 60.0 * x.powi(2) - 2.0);
        let (beta, gradient) =
            if self.operator == Operator::P7 { tanh_shell(at) } else { (1.0, [0.0; 3]) };
        let u = x[0] * x[1] * x[2];
        let ux = [d1[0] * x[1] * x[2], x[0] * d1[1] * x[2], x[0] * x[1] * d1[2]];
        let uxx = [d2[0] * x[1] * x[2], x[0] * d2[1] * x[2], x[0] * x[1] * d2[2]];
        let grad = gradient[0] * ux[0] + gradient[1] * ux[1] + gradient[2] * ux[2];
        let laplacian = uxx[0] + uxx[1] + uxx[2];
        self.a * u - (grad + beta * laplacian)
    }
}

/// The 7-point problem's coefficient, a smooth step over a sphere, and its gradient.
fn tanh_shell(at: [f64; 3]) -> (f64, [f64; 3]) {
    let (low, high, centre) = (1.0, 10.0, 0.25);
    let half_sum = 0.5 * (high + low);
    let half_difference = 0.5 * (high - low);
    let steepness = 10.0;
    let d = at.map(|x| x - 0.5);
    let r2 = d[0] * d[0] + d[1] * d[1] + d[2] * d[2];
    let r = r2.sqrt();
    let t = (steepness * (r - centre)).tanh();
    let beta = half_sum + half_difference * t;
    let slope = half_difference * steepness * (1.0 - t * t) / r;
    (beta, d.map(|d| slope * d))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_coefficient_is_one_on_the_domain_faces() {
        let p = Problem::new(Operator::Fv4, Boundary::Dirichlet, 0.0, 1.0 / 16.0);
        let beta = |axis, at: [f64; 3]| {
            let at = at.map(|x| p.axis(x));
            p.beta(axis, [&at[0], &at[1], &at[2]])
        };
        assert!((beta(0, [1.0, 0.3, 0.7]) - 1.0).abs() < 1e-15);
        assert!((beta(1, [0.4, 0.0, 0.7]) - 1.0).abs() < 1e-15);
    }

    #[test]
    fn the_gradient_of_the_shell_is_the_slope_of_the_shell() {
        let (at, e) = ([0.61, 0.33, 0.48], 1e-6);
        for axis in 0..3 {
            let shifted = |s: f64| {
                let mut q = at;
                q[axis] += s;
                tanh_shell(q).0
            };
            let numeric = (shifted(e) - shifted(-e)) / (2.0 * e);
            assert!((numeric - tanh_shell(at).1[axis]).abs() < 1e-6);
        }
    }
}
