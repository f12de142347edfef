//! The diagonal of the operator, the L1 weights and Gershgorin's bound of the spectrum, per level.
//!
//! Found by applying the operator, boundary conditions included, to coloured unit vectors whose
//! stencils do not meet; 7pt has a closed form. Section 6 and 13 of the HPGMG-FV description.

use crate::backend::{Backend, Vector};
use crate::comm::CommError;
use crate::cpu::Cpu;
use crate::options::{Boundary, Operator};

/// Sets `Dinv`, `L1Inv` (where it is stored) and `lambda_max` of level `l`. Overwrites `U`, `Temp`
/// and `R`.
///
/// # Errors
/// [`CommError`] when the ranks lose each other.
pub fn build(cpu: &mut Cpu, l: usize) -> Result<(), CommError> {
    // `Dinv` collects the diagonal D and `R` the sums S of the magnitudes off it.
    cpu.zero(l, Vector::Dinv);
    cpu.zero(l, Vector::R);
    match cpu.config.operator {
        Operator::P7 => closed_form(cpu, l),
        Operator::Fv2 | Operator::P27 => colour(cpu, l, 2)?,
        Operator::Fv4 => colour(cpu, l, 4)?,
    }
    let mut lambda: f64 = 0.0;
    each_row(cpu, l, [Vector::Dinv, Vector::R, Vector::L1Inv], |_, [d, s, l1]| {
        for (d, s) in d.iter().zip(s.iter()) {
            lambda = lambda.max((d + s) / d);
        }
        for ((l1, d), s) in l1.iter_mut().zip(d.iter()).zip(s.iter()) {
            *l1 = if *d >= 1.5 * s { 1.0 / d } else { 1.0 / (d + 0.5 * s) };
        }
        d.iter_mut().for_each(|d| *d = 1.0 / *d);
    });
    let mut lambda = [lambda];
    if let Some(group) = &mut cpu.levels[l].group {
        group.max(&mut lambda)?;
    }
    cpu.levels[l].lambda_max = lambda[0];
    for v in [Vector::U, Vector::Temp, Vector::R] {
        cpu.zero(l, v);
    }
    Ok(())
}

/// Global position of a row: its first cell.
struct At {
    i: usize,
    j: usize,
    k: usize,
}

/// Calls `f` with the rows of several vectors of a level, one position after the other. A vector that
/// is not stored gives empty rows.
fn each_row<const N: usize>(
    cpu: &mut Cpu,
    l: usize,
    vectors: [Vector; N],
    mut f: impl FnMut(At, [&mut [f64]; N]),
) {
    let level = &mut cpu.levels[l];
    let mut fields = vectors.map(|v| level.take(v));
    let g = level.geometry;
    for index in 0..level.boxes.len() {
        let [oi, oj, ok] = level.origin(index);
        for k in 0..g.n {
            for j in 0..g.n {
                let at = index * g.volume + g.row(j, k);
                let rows = fields
                    .each_mut()
                    .map(|f| if f.is_empty() { &mut [][..] } else { &mut f[at..at + g.n] });
                f(At { i: oi, j: oj + j, k: ok + k }, rows);
            }
        }
    }
    for (v, field) in vectors.into_iter().zip(fields) {
        level.put(v, field);
    }
}

fn colour(cpu: &mut Cpu, l: usize, colours: usize) -> Result<(), CommError> {
    let c = colours.min(cpu.levels[l].shape.dim);
    for colour in 0..c.pow(3) {
        let (ic, jc, kc) = (colour % c, colour / c % c, colour / (c * c));
        each_row(cpu, l, [Vector::U], |at, [x]| {
            let on = (at.j + jc).is_multiple_of(c) && (at.k + kc).is_multiple_of(c);
            for (i, x) in x.iter_mut().enumerate() {
                *x = if on && (at.i + i + ic).is_multiple_of(c) { 1.0 } else { 0.0 };
            }
        });
        cpu.apply(l, Vector::Temp, Vector::U)?;
        let vectors = [Vector::U, Vector::Temp, Vector::Dinv, Vector::R];
        each_row(cpu, l, vectors, |_, [x, ax, d, s]| {
            for (((x, ax), d), s) in x.iter().zip(&*ax).zip(d).zip(s) {
                *d += x * ax;
                *s += ((1.0 - x) * ax).abs();
            }
        });
    }
    Ok(())
}

/// D and S of the 7-point operator from the coefficients alone.
fn closed_form(cpu: &mut Cpu, l: usize) {
    let a = cpu.config.equation.a();
    let dirichlet = cpu.config.boundary == Boundary::Dirichlet;
    let level = &mut cpu.levels[l];
    let (g, dim) = (level.geometry, level.shape.dim);
    let h2inv = 1.0 / (level.shape.h * level.shape.h);
    let (mut diagonal, mut off) = (level.take(Vector::Dinv), level.take(Vector::R));
    let strides = [1, g.pitch, g.plane];
    for index in 0..level.boxes.len() {
        let origin = level.origin(index);
        for cell in 0..g.n.pow(3) {
            let at = [cell % g.n, cell / g.n % g.n, cell / (g.n * g.n)];
            let here = index * g.volume + g.row(at[1], at[2]) + at[0];
            let (mut d, mut s) = (0.0, 0.0);
            for axis in 0..3 {
                let beta = level.field(Vector::Beta(axis as u8));
                let global = origin[axis] + at[axis];
                for (face, last) in [(here, 0), (here + strides[axis], dim - 1)] {
                    let valid = if dirichlet && global == last { 0.0 } else { 1.0 };
                    d += beta[face] * (valid - 2.0);
                    s += beta[face] * valid;
                }
            }
            let alpha = level.field(Vector::Alpha).get(here).copied().unwrap_or(0.0);
            diagonal[here] = a * alpha - h2inv * d;
            off[here] = (h2inv * s).abs();
        }
    }
    level.put(Vector::Dinv, diagonal);
    level.put(Vector::R, off);
}
