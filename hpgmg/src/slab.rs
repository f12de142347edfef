//! Some planes of a level that one rank of several computes on a GPU: coefficients, right-hand side and diagonal, and of
//! the planes around them what the kernels read. Not in boxes, and without the vectors that only a solve needs: the CPU
//! does not solve on such a level, it sets it up. Where coefficients and right-hand side come from is `pencils.rs`.

use std::ops::Range;

use crate::backend::Vector;
use crate::boundary::{Faces, extrapolate_beta};
use crate::diagonal::Patched;
use crate::field::Field;
use crate::geometry::BoxGeometry;
use crate::options::Config;
use crate::patch::{Discrete, Patch, patches};
use crate::setup::vectors_of;
use crate::team::Team;

/// Planes of a level.
pub struct Slab {
    /// The planes that this rank computes.
    planes: Range<usize>,
    /// As of one box that is the whole level.
    geometry: BoxGeometry,
    /// By [`Vector::index`]; those not in use are empty.
    fields: Vec<Field>,
}

impl Slab {
    /// The planes `planes` of a level of `n` cells a side; all vectors are zero.
    pub fn new(config: &Config, n: usize, planes: Range<usize>) -> Self {
        let geometry = BoxGeometry::new(n, config.operator.radius());
        let mut slab = Self { planes, geometry, fields: Vec::new() };
        let len = geometry.plane * slab.reach().len();
        slab.fields.resize_with(Vector::COUNT, Field::default);
        for v in vectors_of(config, false) {
            if Self::holds(v) {
                slab.fields[v.index()] = Field::zeros(len, geometry.ghosts);
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

    /// Bytes of `planes` planes of a level of `n` cells a side.
    pub fn memory(config: &Config, n: usize, planes: usize) -> u64 {
        let geometry = BoxGeometry::new(n, config.operator.radius());
        let vectors = vectors_of(config, false).into_iter().filter(|&v| Self::holds(v)).count();
        let stored = planes + 2 * (geometry.ghosts + 1);
        (stored * geometry.plane * vectors * size_of::<f64>()) as u64
    }

    /// The planes that this rank computes.
    pub fn planes(&self) -> Range<usize> {
        self.planes.clone()
    }

    /// Cells per side of the level.
    pub fn n(&self) -> usize {
        self.geometry.n
    }

    /// Planes that are stored: the kernels read one around the computed ones, whose diagonal depends on those around it.
    fn reach(&self) -> Range<isize> {
        let around = self.geometry.ghosts as isize + 1;
        self.planes.start as isize - around..self.planes.end as isize + around
    }

    /// Those of the first `end` planes of the domain that are stored.
    pub fn stored(&self, end: usize) -> Range<usize> {
        let reach = self.reach();
        reach.start.max(0) as usize..(reach.end as usize).min(end)
    }

    /// Offset of cell `(i, j, k)`, by its indices in the level; ghosts are around the domain.
    pub fn at(&self, i: isize, j: isize, k: isize) -> usize {
        let g = &self.geometry;
        let plane = (k - self.reach().start) as usize * g.plane;
        plane + g.at(i, j, -(g.ghosts as isize))
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
        let g = self.geometry;
        let n = g.n as isize;
        let cells = self.stored(g.n);
        for axis in 0..3 {
            let along_k = self.stored(if axis == 2 { g.n + 1 } else { g.n });
            let mut ranges = [0..n, 0..n, along_k.start as isize..along_k.end as isize];
            if axis < 2 {
                ranges[axis].end += 1;
            }
            let before = self.reach().start * g.plane as isize;
            let faces = Faces {
                axis,
                origin: g.at(0, 0, -(g.ghosts as isize)) as isize - before,
                strides: [1, g.pitch as isize, g.plane as isize],
                ranges,
                low: [true, true, cells.start == 0],
                high: [true, true, cells.end == g.n],
            };
            extrapolate_beta(&mut self.fields[Vector::Beta(axis as u8).index()], &faces, box_dim);
        }
    }

    /// Sets the diagonal and the weights, also of the plane before and the one behind; returns the bound of the spectrum
    /// that they give.
    pub fn build_diagonal(&mut self, team: &Team, discrete: &Discrete) -> f64 {
        let n = self.geometry.n;
        let first = self.planes.start.saturating_sub(1);
        let count = (self.planes.end + 1).min(n) - first;
        let all = Patch { origin: [0, 0, first], dims: [n, n, count] };
        let (mut dinv, mut l1inv) = (self.take(Vector::Dinv), self.take(Vector::L1Inv));
        let patched = Patched {
            discrete,
            list: patches(&all).into_iter().map(|patch| (0, patch)).collect(),
            block: n,
            fields: &self.fields,
            at: |_, [i, j, k]: [isize; 3]| self.at(i, j, k),
        };
        // SAFETY: the planes are cut into patches once, and cells of a slab have places of their own.
        let lambda = unsafe { patched.find(team, &mut dinv, &mut l1inv) };
        self.put(Vector::Dinv, dinv);
        self.put(Vector::L1Inv, l1inv);
        lambda
    }
}
