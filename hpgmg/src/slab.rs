//! The part of a level that one rank of several computes on a GPU, some planes or a box: coefficients, right-hand side and diagonal,
//! and of the cells around them what the kernels read. Not in boxes, and without the vectors that only a solve needs: the CPU
//! does not solve on such a level, it sets it up. Where coefficients and right-hand side come from is `pencils.rs`.

use std::ops::Range;

use crate::backend::Vector;
use crate::boundary::{Faces, extrapolate_beta};
use crate::diagonal::Patched;
use crate::field::Field;
use crate::options::Config;
use crate::patch::{Discrete, Patch, patches};
use crate::setup::vectors_of;
use crate::team::Team;

/// Cells of a level along i, j and k.
pub type Part = [Range<usize>; 3];

/// Part of a level.
pub struct Slab {
    /// The cells that this rank computes.
    part: Part,
    /// Cells per side of the level.
    n: usize,
    /// Layers of cells around them that are stored.
    around: usize,
    /// By [`Vector::index`]; those not in use are empty.
    fields: Vec<Field>,
}

impl Slab {
    /// The cells `part` of a level of `n` cells a side; all vectors are zero.
    pub fn new(config: &Config, n: usize, part: Part) -> Self {
        let around = Self::around(config);
        let mut slab = Self { part, n, around, fields: Vec::new() };
        let len = slab.plane() * slab.reach(2).len();
        slab.fields.resize_with(Vector::COUNT, Field::default);
        for v in vectors_of(config, false) {
            if Self::holds(v) {
                slab.fields[v.index()] = Field::zeros(len, around);
            }
        }
        slab.fields[Vector::Alpha.index()].fill(1.0);
        slab
    }

    /// Whether a level in slabs has `v`: what a solve does not change.
    fn holds(v: Vector) -> bool {
        use Vector::*;
        matches!(v, F | Dinv | Beta(_) | Alpha | L1Inv)
    }

    /// Bytes of `part`.
    pub fn memory(config: &Config, part: &Part) -> u64 {
        let vectors = vectors_of(config, false).into_iter().filter(|&v| Self::holds(v)).count();
        let stored = part.iter().map(|along| along.len() + 2 * Self::around(config));
        (stored.product::<usize>() * vectors * size_of::<f64>()) as u64
    }

    /// The kernels read one layer around the computed cells, whose diagonal depends on the ghosts around it.
    fn around(config: &Config) -> usize {
        config.operator.radius() + 1
    }

    /// The cells that this rank computes.
    pub fn part(&self) -> &Part {
        &self.part
    }

    /// Cells per side of the level.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Cells along an axis that are stored.
    fn reach(&self, axis: usize) -> Range<isize> {
        let (part, around) = (&self.part[axis], self.around as isize);
        part.start as isize - around..part.end as isize + around
    }

    /// Distances to the next row and to the next plane.
    fn pitch(&self) -> usize {
        self.reach(0).len()
    }

    fn plane(&self) -> usize {
        self.pitch() * self.reach(1).len()
    }

    /// Those of the first `end` cells of the domain along an axis that are stored.
    pub fn stored(&self, axis: usize, end: usize) -> Range<usize> {
        let reach = self.reach(axis);
        reach.start.max(0) as usize..(reach.end as usize).min(end)
    }

    /// Offset of cell `(i, j, k)`, by its indices in the level; ghosts are around the domain.
    pub fn at(&self, i: isize, j: isize, k: isize) -> usize {
        let [x, y, z] = [(0, i), (1, j), (2, k)].map(|(axis, at)| {
            let reach = self.reach(axis);
            assert!(reach.contains(&at), "cell ({i}, {j}, {k}) is beyond {:?}", self.part);
            (at - reach.start) as usize
        });
        x + y * self.pitch() + z * self.plane()
    }

    /// A vector; empty if the level has none.
    pub fn field(&self, v: Vector) -> &[f64] {
        &self.fields[v.index()]
    }

    /// Takes a vector out of the slab so that others can be read meanwhile; [`Self::put`] it back.
    pub fn take(&mut self, v: Vector) -> Field {
        std::mem::take(&mut self.fields[v.index()])
    }

    /// Puts a taken vector back.
    pub fn put(&mut self, v: Vector, field: Field) {
        self.fields[v.index()] = field;
    }

    /// Extends the coefficients beyond the domain by the rule for boxes of `box_dim` cells.
    pub fn extend_coefficients(&mut self, box_dim: usize) {
        let strides = [1, self.pitch() as isize, self.plane() as isize];
        let cells = [0, 1, 2].map(|along| self.stored(along, self.n));
        for axis in 0..3 {
            let ranges = [0, 1, 2].map(|along| {
                let stored = self.stored(along, self.n + usize::from(along == axis));
                stored.start as isize..stored.end as isize
            });
            let faces = Faces {
                axis,
                origin: -(0..3)
                    .map(|along| self.reach(along).start * strides[along])
                    .sum::<isize>(),
                strides,
                ranges,
                low: [0, 1, 2].map(|along| cells[along].start == 0),
                high: [0, 1, 2].map(|along| cells[along].end == self.n),
            };
            extrapolate_beta(&mut self.fields[Vector::Beta(axis as u8).index()], &faces, box_dim);
        }
    }

    /// Sets the diagonal and the weights, also of a layer around; returns the bound of the spectrum that they give.
    pub fn build_diagonal(&mut self, team: &Team, discrete: &Discrete) -> f64 {
        let n = self.n;
        let origin = [0, 1, 2].map(|axis| self.part[axis].start.saturating_sub(1));
        let dims = [0, 1, 2].map(|axis| (self.part[axis].end + 1).min(n) - origin[axis]);
        let all = Patch { origin, dims };
        let (mut dinv, mut l1inv) = (self.take(Vector::Dinv), self.take(Vector::L1Inv));
        let patched = Patched {
            discrete,
            list: patches(&all).into_iter().map(|patch| (0, patch)).collect(),
            block: n,
            fields: &self.fields,
            at: |_, [i, j, k]: [isize; 3]| self.at(i, j, k),
        };
        // SAFETY: the cells are cut into patches once, and cells of a slab have places of their own.
        let lambda = unsafe { patched.find(team, &mut dinv, &mut l1inv) };
        self.put(Vector::Dinv, dinv);
        self.put(Vector::L1Inv, l1inv);
        lambda
    }
}
