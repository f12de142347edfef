//! Properties that hold whatever the numbers: symmetry, null space, exactness on polynomials.

mod common;

use hpgmg::backend::{Backend, Operators, Prolongation, Vector};
use hpgmg::cpu::Cpu;
use hpgmg::options::{Boundary, Config, Operator};
use hpgmg::transfer::Rule;
use proptest::prelude::*;

const OPERATORS: [Operator; 4] = [Operator::Fv4, Operator::Fv2, Operator::P7, Operator::P27];

/// Sets every cell of `v`, ghosts included when `ghosts`, to `f` of its global index.
fn set(cpu: &mut Cpu, l: usize, v: Vector, f: impl Fn([isize; 3]) -> f64) {
    let level = cpu.level_mut(l);
    let g = level.geometry;
    let mut field = level.take(v);
    for index in 0..level.boxes.len() {
        let o = level.origin(index).map(|o| o as isize);
        for at in cells(0, g.n as isize) {
            let global = [o[0] + at[0], o[1] + at[1], o[2] + at[2]];
            field[index * g.volume + g.at(at[0], at[1], at[2])] = f(global);
        }
    }
    level.put(v, field);
}

fn cells(low: isize, high: isize) -> impl Iterator<Item = [isize; 3]> {
    let n = high - low;
    (0..n.pow(3)).map(move |c| [low + c % n, low + c / n % n, low + c / (n * n)])
}

/// Calls `f` with the global index and value of every cell of `v` that lies within `layers` ghost layers.
fn visit(cpu: &Cpu, l: usize, v: Vector, layers: isize, mut f: impl FnMut([isize; 3], f64)) {
    let level = cpu.level(l);
    let g = level.geometry;
    for index in 0..level.boxes.len() {
        let o = level.origin(index).map(|o| o as isize);
        for at in cells(-layers, g.n as isize + layers) {
            let global = [o[0] + at[0], o[1] + at[1], o[2] + at[2]];
            f(global, level.field(v)[index * g.volume + g.at(at[0], at[1], at[2])]);
        }
    }
}

fn noise(seed: u64, at: [isize; 3]) -> f64 {
    let mut x = seed ^ (at[0] + 131 * at[1] + 17161 * at[2]) as u64;
    for _ in 0..3 {
        x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    (x >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

/// Coefficients of a polynomial in one variable, lowest first.
type Poly = Vec<f64>;

/// Mean of `p` over the cell of index `i` and size `h`.
fn average(p: &Poly, h: f64, i: isize) -> f64 {
    let (a, b) = (h * i as f64, h * (i + 1) as f64);
    let terms = p.iter().zip(1..);
    terms.map(|(c, m)| c * (b.powi(m) - a.powi(m)) / (m as f64 * h)).sum()
}

/// Value of `p` at the centre of the cell.
fn point(p: &Poly, h: f64, i: isize) -> f64 {
    let x = h * (i as f64 + 0.5);
    p.iter().rev().fold(0.0, |sum, c| sum * x + c)
}

fn product(p: &[Poly; 3], at: [isize; 3], f: impl Fn(&Poly, isize) -> f64) -> f64 {
    f(&p[0], at[0]) * f(&p[1], at[1]) * f(&p[2], at[2])
}

/// `x (1 − x)` times a polynomial: zero on both faces of the domain.
fn vanishing(q: &[f64]) -> Poly {
    let mut p = vec![0.0; q.len() + 2];
    for (m, c) in q.iter().enumerate() {
        p[m + 1] += c;
        p[m + 2] -= c;
    }
    p
}

fn dirichlet(operator: Operator, boxes: usize) -> Config {
    Config { operator, box_dim: 16, boxes_per_rank: boxes, ..Config::default() }
}

fn periodic(operator: Operator) -> Config {
    Config { boundary: Boundary::Periodic, ..dirichlet(operator, 8) }
}

#[test]
fn a_constant_is_in_the_null_space_of_every_periodic_poisson_operator() {
    for operator in OPERATORS {
        common::on_ranks(&periodic(operator), 1, 1, |cpu, _| {
            for l in 0..3 {
                set(cpu, l, Vector::U, |_| 0.75);
                cpu.apply(l, Vector::Temp, Vector::U)?;
                let norm = cpu.norm(l, Vector::Temp)?;
                let scale = (cpu.level(l).shape.dim as f64).powi(2);
                assert!(norm <= 1e-14 * scale, "{operator:?} level {l}: {norm:e}");
            }
            Ok(())
        });
    }
}

#[test]
fn a_constant_is_not_in_the_null_space_with_dirichlet_faces() {
    common::on_ranks(&dirichlet(Operator::Fv4, 1), 1, 1, |cpu, _| {
        set(cpu, 0, Vector::U, |_| 1.0);
        cpu.apply(0, Vector::Temp, Vector::U)?;
        assert!(cpu.norm(0, Vector::Temp)? > 1.0);
        Ok(())
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// fv4 is symmetric for constant coefficients only: its cross terms are not.
    #[test]
    fn periodic_operators_are_symmetric(seed in any::<u64>(), ranks in 1usize..4) {
        for operator in OPERATORS {
            let config = Config { boxes_per_rank: 8usize.div_ceil(ranks), ..periodic(operator) };
            let (left, right) = common::on_ranks(&config, ranks, 1, |cpu, _| {
                if operator == Operator::Fv4 {
                    for axis in 0..3 {
                        cpu.level_mut(0).fields[Vector::Beta(axis).index()].fill(1.5);
                    }
                }
                let (x, y) = (Vector::U, Vector::R);
                set(cpu, 0, x, |at| noise(seed, at));
                set(cpu, 0, y, |at| noise(!seed, at));
                cpu.apply(0, Vector::Temp, x)?;
                let left = cpu.dot(0, Vector::Temp, y)?;
                cpu.apply(0, Vector::Temp, y)?;
                Ok((left, cpu.dot(0, Vector::Temp, x)?))
            });
            prop_assert!((left - right).abs() <= 1e-9 * left.abs().max(1e4), "{operator:?}: {left} {right}");
        }
    }

    #[test]
    fn restriction_is_exact_on_cell_averages(c in prop::array::uniform12(-1.0..1.0f64), ranks in 1usize..5) {
        let p = [c[..4].to_vec(), c[4..8].to_vec(), c[8..].to_vec()];
        common::on_ranks(&Config { boxes_per_rank: 8usize.div_ceil(ranks), ..dirichlet(Operator::Fv2, 8) }, ranks, 1, |cpu, _| {
            // Down to the merged box, so that the message pattern is in it.
            for l in 0..3 {
                let h = cpu.level(l).shape.h;
                set(cpu, l, Vector::U, |at| product(&p, at, |p, i| average(p, h, i)));
                cpu.restrict(l, Vector::U, Vector::Temp)?;
                visit(cpu, l + 1, Vector::Temp, 0, |at, found| {
                    let expected = product(&p, at, |p, i| average(p, 2.0 * h, i));
                    assert!((found - expected).abs() < 1e-13, "level {l} {at:?}: {found} {expected}");
                });
            }
            Ok(())
        });
    }

    /// Away from the domain's faces, whose ghosts assume u = 0.
    #[test]
    fn interpolation_is_exact_on_polynomials_of_its_order(c in prop::array::uniform15(-1.0..1.0f64), ranks in 1usize..5) {
        let poly = |degree: usize| [0, 1, 2].map(|axis| c[5 * axis..5 * axis + degree + 1].to_vec());
        for (operator, how, degree, is_point) in [
            (Operator::Fv4, Prolongation::Correct, 2, false),
            (Operator::Fv4, Prolongation::Replace, 4, false),
            (Operator::Fv2, Prolongation::Replace, 2, false),
            (Operator::P7, Prolongation::Correct, 0, true),
            (Operator::P7, Prolongation::Replace, 1, true),
            (Operator::P27, Prolongation::Replace, 2, true),
        ] {
            let p = poly(degree);
            let value = |h: f64, at| product(&p, at, |p, i| if is_point { point(p, h, i) } else { average(p, h, i) });
            let config = Config { boxes_per_rank: 8usize.div_ceil(ranks), ..dirichlet(operator, 8) };
            common::on_ranks(&config, ranks, 1, |cpu, _| {
                let h = cpu.level(0).shape.h;
                let dim = cpu.level(0).shape.dim as isize;
                set(cpu, 0, Vector::U, |_| 0.0);
                set(cpu, 1, Vector::U, |at| value(2.0 * h, at));
                cpu.prolong(0, Vector::U, how)?;
                visit(cpu, 0, Vector::U, 0, |at, found| {
                    if at.iter().all(|i| (4..dim - 4).contains(i)) {
                        let expected = value(h, at);
                        assert!((found - expected).abs() < 1e-12, "{operator:?} {how:?} {at:?}: {found} {expected}");
                    }
                });
                Ok(())
            });
        }
    }

    /// Interior ghosts come from the neighbours, outer ones from the rule; both continue a polynomial
    /// that vanishes on the faces.
    #[test]
    fn ghosts_continue_polynomials_that_vanish_on_the_faces(c in prop::array::uniform9(-1.0..1.0f64), ranks in 1usize..9) {
        for (operator, rule, degree, is_point, layers) in [
            (Operator::Fv4, Rule::Quartic, 4, false, 2),
            (Operator::Fv2, Rule::Quadratic, 2, false, 1),
            (Operator::P27, Rule::PointQuadratic, 2, true, 1),
        ] {
            let p = [0, 1, 2].map(|axis| vanishing(&c[3 * axis..3 * axis + degree - 1]));
            let config = Config { boxes_per_rank: 8usize.div_ceil(ranks), ..dirichlet(operator, 8) };
            common::on_ranks(&config, ranks, 1, |cpu, _| {
                let h = cpu.level(0).shape.h;
                let value = |at| product(&p, at, |p, i| if is_point { point(p, h, i) } else { average(p, h, i) });
                set(cpu, 0, Vector::U, value);
                cpu.fill_surround(0, Vector::U, rule)?;
                visit(cpu, 0, Vector::U, layers, |at, found| {
                    let expected = value(at);
                    assert!((found - expected).abs() < 1e-13, "{operator:?} {at:?}: {found:e} {expected:e}");
                });
                Ok(())
            });
        }
    }
}
