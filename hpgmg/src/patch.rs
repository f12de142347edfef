//! The diagonal of the operator and the sums of the magnitudes off it, for a block of cells that fits into a cache.
//!
//! The operator, boundary conditions included, is applied to coloured unit vectors whose stencils do not meet. Such
//! vectors are known everywhere, so a patch needs nothing but the coefficients of its cells and of those around them: no
//! messages and no vector of the level. Section 6 of the HPGMG-FV description; what becomes of the numbers is
//! `diagonal.rs`.

use std::ops::Range;

use crate::backend::Vector;
use crate::boundary::{Extrapolation, Fill, fill};
use crate::field::Field;
use crate::geometry::BoxGeometry;
use crate::isa::Isa;
use crate::operators::{self, Coefficients, Tile};
use crate::options::Operator;
use crate::rows::SharedVector;
use crate::sweep::{self, Pass, Update};

/// Cells of a patch along i, j and k, at least, where there are so many: its vectors take half a megabyte.
const CELLS: [usize; 3] = [64, 8, 8];

/// The operator on one level.
#[derive(Clone, Copy, Debug)]
pub struct Discrete {
    /// The vector instructions to use.
    pub isa: Isa,
    /// Its stencil, not the 7-point one's, whose diagonal has a closed form.
    pub operator: Operator,
    /// The rule beyond the domain; none if it wraps.
    pub rule: Option<Extrapolation>,
    /// Cells per side of the domain.
    pub dim: usize,
    /// Factor of the identity term.
    pub a: f64,
    /// 1 / h².
    pub h2inv: f64,
}

/// Some cells, by their indices in the domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The first cell.
    pub origin: [usize; 3],
    /// Cells in each direction.
    pub dims: [usize; 3],
}

/// Cuts a block of cells into patches. Those at its ends have as many cells as the rules beyond the domain read, if the
/// block has.
pub fn patches(block: &Patch) -> Vec<Patch> {
    let cuts: [Vec<Range<usize>>; 3] = std::array::from_fn(|axis| {
        let n = block.dims[axis];
        let pieces = (n / CELLS[axis]).max(1);
        (0..pieces).map(|p| p * n / pieces..(p + 1) * n / pieces).collect()
    });
    let mut patches = Vec::with_capacity(cuts.iter().map(Vec::len).product());
    for k in &cuts[2] {
        for j in &cuts[1] {
            for i in &cuts[0] {
                let ranges = [i, j, k];
                patches.push(Patch {
                    origin: std::array::from_fn(|a| block.origin[a] + ranges[a].start),
                    dims: ranges.map(|r| r.len()),
                });
            }
        }
    }
    patches
}

/// A coefficient of the operator: the faces' of a normal, or the cells'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coefficient {
    /// Of the low faces of cells.
    Face(usize),
    /// Of the identity term.
    Cell,
}

impl Coefficient {
    /// The vector that holds it.
    pub fn vector(self) -> Vector {
        match self {
            Self::Face(axis) => Vector::Beta(axis as u8),
            Self::Cell => Vector::Alpha,
        }
    }
}

/// The vectors of a patch, used for one after the other.
pub struct Workspace {
    x: Field,
    ax: Field,
    diagonal: Field,
    off: Field,
    beta: [Field; 3],
    alpha: Field,
    scratch: Vec<f64>,
}

impl Workspace {
    /// Room for any patch of a block of `n` cells a side or less, with a cell coefficient if `alpha`.
    pub fn new(operator: Operator, n: usize, alpha: bool) -> Self {
        let most = CELLS.map(|cells| n.min(2 * cells - 1));
        let g = geometry(operator, most);
        let field = || Field::zeros(g.volume, g.ghosts);
        Self {
            x: field(),
            ax: field(),
            diagonal: field(),
            off: field(),
            beta: std::array::from_fn(|_| field()),
            alpha: if alpha { field() } else { Field::default() },
            scratch: vec![0.0; operators::scratch_len(most[0])],
        }
    }

    /// Finds the diagonal and the sums off it of `patch`. `row` gives a coefficient's row at `(j, k)` of the patch, of as
    /// many ghosts at both ends as the stencil is deep, for the cells and as many ghosts around; `found` gets the
    /// results row by row, `(j, k, diagonal, sums)`.
    pub fn run<'a>(
        &mut self,
        discrete: &Discrete,
        patch: &Patch,
        row: impl Fn(Coefficient, isize, isize) -> &'a [f64],
        mut found: impl FnMut(usize, usize, &mut [f64], &mut [f64]),
    ) {
        let Discrete { isa, operator, dim, .. } = *discrete;
        let g = geometry(operator, patch.dims);
        let ghosts = g.ghosts as isize;
        let [ni, nj, nk] = patch.dims;
        let width = ni + 2 * g.ghosts;
        let around = |n: usize| -ghosts..n as isize + ghosts;
        for k in around(nk) {
            for j in around(nj) {
                let at = g.at(-ghosts, j, k);
                for (axis, beta) in self.beta.iter_mut().enumerate() {
                    beta[at..at + width].copy_from_slice(row(Coefficient::Face(axis), j, k));
                }
                if !self.alpha.is_empty() {
                    self.alpha[at..at + width].copy_from_slice(row(Coefficient::Cell, j, k));
                }
            }
        }
        for vector in [&mut self.x, &mut self.diagonal, &mut self.off] {
            vector[..g.volume].fill(0.0);
        }

        // Where a cell of the patch or around it is in the domain.
        let place = |axis: usize, at: isize| -> Option<usize> {
            let at = patch.origin[axis] as isize + at;
            let inside = (0..dim as isize).contains(&at);
            match discrete.rule {
                None => Some(at.rem_euclid(dim as isize) as usize),
                Some(_) => inside.then_some(at as usize),
            }
        };
        let colours = if operator == Operator::Fv4 { 4 } else { 2 };
        let c: usize = colours.min(dim);
        let on = |axis: usize, at: isize, colour: usize| {
            place(axis, at).is_some_and(|at| (at + colour).is_multiple_of(c))
        };
        let lines: Vec<Vec<f64>> = (0..c)
            .map(|colour| around(ni).map(|i| f64::from(u8::from(on(0, i, colour)))).collect())
            .collect();
        let fills = fills(discrete, patch, &g);
        let tile = Tile { index: 0, j: 0..nj, k: 0..nk };
        let mut rows = Vec::new();
        for colour in 0..c * c {
            let (jc, kc) = (colour % c, colour / c);
            rows.clear();
            for k in around(nk).filter(|&k| on(2, k, kc)) {
                rows.extend(around(nj).filter(|&j| on(1, j, jc)).map(|j| g.at(-ghosts, j, k)));
            }
            for line in &lines {
                for &row in &rows {
                    self.x[row..row + width].copy_from_slice(line);
                }
                if let Some(rule) = discrete.rule {
                    let x = SharedVector::new(&mut self.x);
                    for f in &fills {
                        // SAFETY: the vector is this function's alone.
                        unsafe { fill(&x, f, rule) };
                    }
                }
                let pass = Pass {
                    geometry: g,
                    coefficients: Coefficients {
                        beta: self.beta.each_ref().map(|beta| &**beta),
                        alpha: &self.alpha,
                        a: discrete.a,
                        b: 1.0,
                        h2inv: discrete.h2inv,
                    },
                    x: &self.x,
                    out: SharedVector::new(&mut self.ax),
                    base: 0,
                    in_memory: false,
                    update: Update::Apply,
                };
                // SAFETY: the vectors are this function's alone.
                unsafe { sweep::run(isa, operator, &pass, &tile, &mut self.scratch) };
                let (x, ax) = (&*self.x, &*self.ax);
                let (diagonal, off) = (&mut *self.diagonal, &mut *self.off);
                isa.call(
                    #[inline(always)]
                    || {
                        for (j, k) in (0..nk).flat_map(|k| (0..nj).map(move |j| (j, k))) {
                            let at = g.row(j, k);
                            let (x, ax) = (&x[at..][..ni], &ax[at..][..ni]);
                            let (d, s) = (&mut diagonal[at..][..ni], &mut off[at..][..ni]);
                            for i in 0..ni {
                                d[i] += x[i] * ax[i];
                                s[i] += ((1.0 - x[i]) * ax[i]).abs();
                            }
                        }
                    },
                );
            }
            for &row in &rows {
                self.x[row..row + width].fill(0.0);
            }
        }
        for k in 0..nk {
            for j in 0..nj {
                let at = g.row(j, k);
                found(j, k, &mut self.diagonal[at..][..ni], &mut self.off[at..][..ni]);
            }
        }
    }
}

/// How the cells of a patch lie in its vectors.
fn geometry(operator: Operator, dims: [usize; 3]) -> BoxGeometry {
    let ghosts = operator.radius();
    let [ni, nj, nk] = dims.map(|n| n + 2 * ghosts);
    let pitch = ni.next_multiple_of(8);
    let plane = pitch * nj;
    BoxGeometry { n: dims[0], ghosts, pitch, plane, volume: plane * nk }
}

/// The ghosts of a patch beyond the domain: along i first, so that those in several directions are extrapolated along
/// the last of them.
fn fills(discrete: &Discrete, patch: &Patch, g: &BoxGeometry) -> Vec<Fill> {
    let mut fills = Vec::new();
    let ghosts = g.ghosts as isize;
    let strides = [1, g.pitch as isize, g.plane as isize];
    for axis in 0..3 {
        let (mut first, mut dims) = ([0isize; 3], [0usize; 3]);
        for other in 0..3 {
            // Beyond the domain in directions that have been filled, within it in the others.
            let (origin, n) = (patch.origin[other], patch.dims[other]);
            let (low, high) = match other < axis {
                true => (g.ghosts, g.ghosts),
                false => (g.ghosts.min(origin), g.ghosts.min(discrete.dim - origin - n)),
            };
            (first[other], dims[other]) = (-(low as isize), low + n + high);
        }
        dims[axis] = 1;
        let end = patch.origin[axis] + patch.dims[axis];
        assert!(
            patch.origin[axis] == 0 || patch.origin[axis] >= g.ghosts,
            "a patch too near to the domain's end"
        );
        for (outside, corner, inward) in [
            (patch.origin[axis] == 0, -1, strides[axis]),
            (end == discrete.dim, patch.dims[axis] as isize, -strides[axis]),
        ] {
            if !outside {
                continue;
            }
            first[axis] = corner;
            fills.push(Fill {
                at: g.at(first[0], first[1], first[2]),
                dims,
                inward,
                pitch: g.pitch,
                plane: g.plane,
                layers: ghosts as usize,
            });
        }
    }
    fills
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_cover_a_block_once_and_have_room_in_the_workspace() {
        for dims in [[1, 1, 1], [7, 9, 16], [22, 22, 22], [128, 128, 5], [200, 15, 31]] {
            let block = Patch { origin: [10, 0, 3], dims };
            let mut count = vec![0; dims.iter().product()];
            for patch in patches(&block) {
                for cell in 0..patch.dims.iter().product() {
                    let [ni, nj, _] = patch.dims;
                    let at = [cell % ni, cell / ni % nj, cell / (ni * nj)];
                    let at: [usize; 3] =
                        std::array::from_fn(|a| patch.origin[a] + at[a] - block.origin[a]);
                    count[at[0] + dims[0] * (at[1] + dims[1] * at[2])] += 1;
                }
                for axis in 0..3 {
                    assert!(patch.dims[axis] >= dims[axis].min(CELLS[axis]), "{patch:?}");
                    assert!(patch.dims[axis] < 2 * CELLS[axis], "{patch:?}");
                }
            }
            assert!(count.iter().all(|&c| c == 1), "{dims:?}");
        }
    }
}
