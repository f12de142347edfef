//! The diagonal of the operator, the L1 weights and Gershgorin's bound of the spectrum, per level.
//!
//! Found patch by patch (`patch.rs`); 7pt has a closed form. Section 6 and 13 of the HPGMG-FV description.

use std::sync::{Mutex, PoisonError};

use crate::backend::Vector;
use crate::comm::CommError;
use crate::cpu::Cpu;
use crate::field::Field;
use crate::level::Level;
use crate::options::{Boundary, Operator};
use crate::patch::{Coefficient, Discrete, Patch, Workspace, patches};
use crate::rows::SharedVector;
use crate::team::Team;

/// Sets `Dinv`, `L1Inv` (where it is stored) and `lambda_max` of level `l`.
///
/// # Errors
/// [`CommError`] when the ranks lose each other.
pub fn build(cpu: &mut Cpu, l: usize) -> Result<(), CommError> {
    let mut lambda = [match cpu.config.operator {
        Operator::P7 => closed_form(cpu, l),
        Operator::Fv2 | Operator::P27 | Operator::Fv4 => coloured(cpu, l),
    }];
    if let Some(group) = &mut cpu.levels[l].group {
        group.max(&mut lambda)?;
    }
    cpu.levels[l].lambda_max = lambda[0];
    Ok(())
}

/// What becomes of a row of the diagonal D and of the sums S of the magnitudes off it: D is inverted, S becomes the L1
/// weights. Returns the bound of the spectrum that these rows give.
fn finish(diagonal: &mut [f64], off: &mut [f64]) -> f64 {
    let mut lambda: f64 = 0.0;
    for (d, s) in diagonal.iter_mut().zip(off) {
        lambda = lambda.max((*d + *s) / *d);
        *s = if *d >= 1.5 * *s { 1.0 / *d } else { 1.0 / (*d + 0.5 * *s) };
        *d = 1.0 / *d;
    }
    lambda
}

/// The largest of what several threads find.
#[derive(Default)]
struct Largest(Mutex<f64>);

impl Largest {
    /// Takes `value` into account.
    fn add(&self, value: f64) {
        let mut largest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *largest = largest.max(value);
    }

    /// The largest, at least 0.
    fn get(self) -> f64 {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The operator on level `l` as patches see it.
pub fn discrete(cpu: &Cpu, l: usize) -> Discrete {
    let shape = &cpu.levels[l].shape;
    Discrete {
        isa: cpu.isa,
        operator: cpu.config.operator,
        rule: cpu.boundary_rule(l),
        dim: shape.dim,
        a: cpu.config.equation.a(),
        h2inv: 1.0 / (shape.h * shape.h),
    }
}

/// Cells of a level whose diagonal is found patch by patch.
pub struct Patched<'a, F> {
    /// The operator.
    pub discrete: &'a Discrete,
    /// Patches, with what `at` is to be told of each.
    pub list: Vec<(usize, Patch)>,
    /// Cells a side of the largest block that was cut into patches.
    pub block: usize,
    /// The coefficients, by [`Vector::index`].
    pub fields: &'a [Field],
    /// Where a cell of the level, of a patch or around it, lies in all vectors.
    pub at: F,
}

impl<F: Fn(usize, [isize; 3]) -> usize + Sync> Patched<'_, F> {
    /// Sets the cells of the patches in `dinv` and, if it is not empty, in `l1inv`. Returns the bound of the spectrum that
    /// these cells give.
    ///
    /// # Safety
    /// No cell is of two patches, and `at` gives each a place of its own, along i one behind the other.
    pub unsafe fn find(&self, team: &Team, dinv: &mut [f64], l1inv: &mut [f64]) -> f64 {
        let (discrete, fields) = (self.discrete, self.fields);
        let ghosts = discrete.operator.radius();
        let has_alpha = !fields[Vector::Alpha.index()].is_empty();
        let workspace = || Workspace::new(discrete.operator, self.block, has_alpha);
        let out = SharedVector::new(dinv);
        let weights = (!l1inv.is_empty()).then(|| SharedVector::new(l1inv));
        let cells = self.list.iter().map(|(_, patch)| patch.dims.iter().product::<usize>()).sum();
        let largest = Largest::default();
        team.share(self.list.len(), cells, &workspace, &|workspace, task| {
            let (block, patch) = &self.list[task];
            let [oi, oj, ok] = patch.origin.map(|o| o as isize);
            let row = |coefficient: Coefficient, j: isize, k: isize| {
                let at = (self.at)(*block, [oi - ghosts as isize, oj + j, ok + k]);
                &fields[coefficient.vector().index()][at..at + patch.dims[0] + 2 * ghosts]
            };
            let mut lambda: f64 = 0.0;
            workspace.run(discrete, patch, row, |j, k, d, s| {
                lambda = lambda.max(finish(d, s));
                let at = (self.at)(*block, [oi, oj + j as isize, ok + k as isize]);
                // SAFETY: every cell is one patch's, by the caller's promise.
                unsafe { out.row(at, d.len()) }.copy_from_slice(d);
                if let Some(weights) = &weights {
                    // SAFETY: as above.
                    unsafe { weights.row(at, s.len()) }.copy_from_slice(s);
                }
            });
            largest.add(lambda);
        });
        largest.get()
    }
}

fn coloured(cpu: &mut Cpu, l: usize) -> f64 {
    let discrete = discrete(cpu, l);
    let level = &mut cpu.levels[l];
    let g = level.geometry;
    let (mut dinv, mut l1inv) = (level.take(Vector::Dinv), level.take(Vector::L1Inv));
    let origins = origins(level);
    let boxes = origins.iter().map(|&origin| Patch { origin, dims: [g.n; 3] });
    let cut = |(index, whole)| patches(&whole).into_iter().map(move |patch| (index, patch));
    let patched = Patched {
        discrete: &discrete,
        list: boxes.enumerate().flat_map(cut).collect(),
        block: g.n,
        fields: &level.fields,
        at: |index: usize, cell: [isize; 3]| {
            let [i, j, k] = std::array::from_fn(|a| cell[a] - origins[index][a] as isize);
            index * g.volume + g.at(i, j, k)
        },
    };
    // SAFETY: boxes are cut into patches once, and cells of boxes have places of their own.
    let lambda = unsafe { patched.find(&cpu.team, &mut dinv, &mut l1inv) };
    level.put(Vector::Dinv, dinv);
    level.put(Vector::L1Inv, l1inv);
    lambda
}

fn origins(level: &Level) -> Vec<[usize; 3]> {
    (0..level.boxes.len()).map(|index| level.origin(index)).collect()
}

/// The same of the 7-point operator, from the coefficients alone.
fn closed_form(cpu: &mut Cpu, l: usize) -> f64 {
    let a = cpu.config.equation.a();
    let dirichlet = cpu.config.boundary == Boundary::Dirichlet;
    let level = &mut cpu.levels[l];
    let (g, dim) = (level.geometry, level.shape.dim);
    let h2inv = 1.0 / (level.shape.h * level.shape.h);
    let (mut dinv, mut l1inv) = (level.take(Vector::Dinv), level.take(Vector::L1Inv));
    let largest = Largest::default();
    {
        let (origins, fields) = (origins(level), &level.fields);
        let out = SharedVector::new(&mut dinv);
        let weights = (!l1inv.is_empty()).then(|| SharedVector::new(&mut l1inv));
        let strides = [1, g.pitch, g.plane];
        let alpha = &fields[Vector::Alpha.index()];
        cpu.team.run(origins.len() * g.n, level.boxes.len() * g.n.pow(3), &|task, _| {
            let (index, k) = (task / g.n, task % g.n);
            let mut lambda: f64 = 0.0;
            let mut off = vec![0.0; g.n];
            for j in 0..g.n {
                let row = index * g.volume + g.row(j, k);
                // SAFETY: every plane is one task's.
                let diagonal = unsafe { out.row(row, g.n) };
                for i in 0..g.n {
                    let here = row + i;
                    let (mut d, mut s) = (0.0, 0.0);
                    for axis in 0..3 {
                        let beta = &fields[Vector::Beta(axis as u8).index()];
                        let global = origins[index][axis] + [i, j, k][axis];
                        for (face, last) in [(here, 0), (here + strides[axis], dim - 1)] {
                            let valid = if dirichlet && global == last { 0.0 } else { 1.0 };
                            d += beta[face] * (valid - 2.0);
                            s += beta[face] * valid;
                        }
                    }
                    let alpha = alpha.get(here).copied().unwrap_or(0.0);
                    diagonal[i] = a * alpha - h2inv * d;
                    off[i] = (h2inv * s).abs();
                }
                lambda = lambda.max(finish(diagonal, &mut off));
                if let Some(weights) = &weights {
                    // SAFETY: as above.
                    unsafe { weights.row(row, g.n) }.copy_from_slice(&off);
                }
            }
            largest.add(lambda);
        });
    }
    level.put(Vector::Dinv, dinv);
    level.put(Vector::L1Inv, l1inv);
    largest.get()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Backend;
    use crate::comm::Alone;
    use crate::options::{Config, Equation, Smoother};

    /// D and S of the whole level, by applying the operator to whole coloured vectors.
    fn of_whole_vectors(cpu: &mut Cpu, colours: usize) -> [Vec<f64>; 2] {
        let (g, dim) = (cpu.level(0).geometry, cpu.level(0).shape.dim);
        let cells: Vec<(usize, [usize; 3])> = (0..cpu.level(0).boxes.len() * g.n.pow(3))
            .map(|cell| {
                let (index, cell) = (cell / g.n.pow(3), cell % g.n.pow(3));
                let at = [cell % g.n, cell / g.n % g.n, cell / (g.n * g.n)];
                let origin = cpu.level(0).origin(index);
                let here = index * g.volume + g.row(at[1], at[2]) + at[0];
                (here, std::array::from_fn(|a| origin[a] + at[a]))
            })
            .collect();
        let mut sums = [vec![0.0; cells.len()], vec![0.0; cells.len()]];
        let c = colours.min(dim);
        for colour in 0..c.pow(3) {
            let shift = [colour % c, colour / c % c, colour / (c * c)];
            let mut x = cpu.level_mut(0).take(Vector::U);
            for (here, at) in &cells {
                let on = (0..3).all(|a| (at[a] + shift[a]).is_multiple_of(c));
                x[*here] = f64::from(u8::from(on));
            }
            cpu.level_mut(0).put(Vector::U, x);
            cpu.apply(0, Vector::Temp, Vector::U).unwrap();
            let level = cpu.level(0);
            let (x, ax) = (level.field(Vector::U), level.field(Vector::Temp));
            for (cell, &(here, _)) in cells.iter().enumerate() {
                sums[0][cell] += x[here] * ax[here];
                sums[1][cell] += ((1.0 - x[here]) * ax[here]).abs();
            }
        }
        sums
    }

    #[test]
    fn patches_find_what_whole_coloured_vectors_find_bit_by_bit() {
        for (operator, boundary, box_dim, boxes_per_rank) in [
            (Operator::Fv4, Boundary::Dirichlet, 16, 8),
            (Operator::Fv4, Boundary::Dirichlet, 32, 1),
            (Operator::Fv4, Boundary::Dirichlet, 2, 27),
            (Operator::Fv4, Boundary::Periodic, 16, 8),
            (Operator::Fv4, Boundary::Periodic, 2, 1),
            (Operator::Fv2, Boundary::Dirichlet, 4, 27),
            (Operator::Fv2, Boundary::Periodic, 32, 1),
            (Operator::P27, Boundary::Dirichlet, 16, 8),
        ] {
            for threads in [1, 3] {
                let config = Config {
                    operator,
                    boundary,
                    box_dim,
                    boxes_per_rank,
                    equation: Equation::Helmholtz,
                    smoother: Smoother::L1Jacobi,
                    ..Config::default()
                };
                let mut cpu = Cpu::new(config.clone(), &Alone, threads).unwrap();
                let colours = if operator == Operator::Fv4 { 4 } else { 2 };
                let [mut d, mut s] = of_whole_vectors(&mut cpu, colours);
                let lambda = finish(&mut d, &mut s);
                let level = cpu.level(0);
                let g = level.geometry;
                for row in 0..level.boxes.len() * g.n * g.n {
                    let (index, j, k) = (row / (g.n * g.n), row % g.n, row / g.n % g.n);
                    let at = index * g.volume + g.row(j, k);
                    let cells = row * g.n..(row + 1) * g.n;
                    assert_eq!(
                        level.field(Vector::Dinv)[at..at + g.n],
                        d[cells.clone()],
                        "{config:?}"
                    );
                    assert_eq!(level.field(Vector::L1Inv)[at..at + g.n], s[cells], "{config:?}");
                }
                assert_eq!(level.lambda_max, lambda, "{config:?}");
            }
        }
    }
}
