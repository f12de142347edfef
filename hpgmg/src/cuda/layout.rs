//! Where the values of a level lie on the GPU, and getting them there and back. The counterpart of `cuda/level.cuh`.
//!
//! All boxes of the rank form one grid. Every row is two halves, one for each colour `(i + j + k) % 2`.

use std::ops::Range;

use crate::backend::{Prolongation, Vector};
use crate::boundary::Extrapolation;
use crate::cycle::CycleStep;
use crate::decomposition::LevelShape;
use crate::geometry::BoxGeometry;
use crate::level::Level;
use crate::slab::Slab as Planned;

/// Ghost rows and planes around the grid.
pub const GHOSTS: usize = 2;
/// Elements before the first row: room for the ghosts in front of it, and alignment.
pub const BASE: usize = 16;
/// Levels and cells per side that the resident kernel takes (`cuda/bottom.cuh`).
pub const RESIDENT_LEVELS: usize = 5;
/// Most steps of one launch of it: those of an F-cycle over all its levels.
pub const RESIDENT_STEPS: usize = 53;
/// Cells per side of the largest level of the resident kernel.
pub const RESIDENT_DIM: usize = 12;

/// A level as kernels see it; addresses are the GPU's. Field by field `hpgmg::Level` of `cuda/level.cuh`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct DeviceLevel {
    /// Solution.
    pub u: u64,
    /// Scratch.
    pub temp: u64,
    /// Right-hand side.
    pub f: u64,
    /// Right-hand side of the current cycle.
    pub r: u64,
    /// Eight work vectors, `volume` apart, on the bottom level.
    pub krylov: u64,
    /// Inverse diagonal.
    pub dinv: u64,
    /// L1 weights, or 0.
    pub l1inv: u64,
    /// Face coefficients.
    pub beta: [u64; 3],
    /// Coefficient of the identity term, or 0.
    pub alpha: u64,
    /// Factor of the sum of fluxes.
    pub scale: f64,
    /// Factor of the identity term.
    pub a: f64,
    /// Weights of the last step, Chebyshev.
    pub c1: [f64; 6],
    /// Weights of the residual, Chebyshev.
    pub c2: [f64; 6],
    /// Elements of a vector.
    pub volume: i64,
    /// Cells per side.
    pub n: i32,
    /// Elements of half a row.
    pub half: i32,
    /// Boundary rule of the operator: see [`rule`].
    pub boundary: i32,
    /// Boundary rule for interpolating corrections from this level.
    pub correct: i32,
    /// Boundary rule for interpolating solutions from this level.
    pub replace: i32,
    /// Padding.
    pub unused: i32,
}

impl DeviceLevel {
    /// The address of a vector; 0 if the level has none.
    pub fn vector(&self, v: Vector) -> u64 {
        match v {
            Vector::Temp => self.temp,
            Vector::U => self.u,
            Vector::F => self.f,
            Vector::R => self.r,
            Vector::Dinv => self.dinv,
            Vector::Beta(axis) => self.beta[usize::from(axis)],
            Vector::Alpha => self.alpha,
            Vector::L1Inv => self.l1inv,
            Vector::Krylov(number) => self.krylov + 8 * u64::from(number) * self.volume as u64,
        }
    }
}

/// A pass of the operator; `hpgmg::Pass` of `cuda/pass.cuh`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Pass {
    /// Vector read.
    pub x: u64,
    /// Vector written.
    pub out: u64,
    /// Right-hand side.
    pub rhs: u64,
    /// Weights of a Jacobi step.
    pub weight: u64,
    /// Damping of a Jacobi step; Chebyshev: weight of the residual.
    pub scale: f64,
    /// Chebyshev: weight of the last step.
    pub last: f64,
    /// Half-sweep or step of the recurrence.
    pub sweep: i32,
    /// Planes that a block marches through.
    pub planes: i32,
    /// Blocks along k in each band of rows.
    pub tiles: i32,
    /// Padding.
    pub unused: i32,
}

/// What the resident kernel does; `hpgmg::Resident` of `cuda/bottom.cuh`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Resident {
    /// The coarsest levels, the finest of them first.
    pub levels: [DeviceLevel; RESIDENT_LEVELS],
    /// What is done, one after the other.
    pub steps: [ResidentStep; RESIDENT_STEPS],
    /// Counter of the bottom solver's iterations.
    pub iterations: u64,
    /// Steps.
    pub count: i32,
    /// The finest level that they work on.
    pub first: i32,
    /// `hpgmg::Smoother`.
    pub smoother: i32,
    /// `hpgmg::BottomSolver`.
    pub bottom: i32,
    /// 1: solutions are interpolated by the quartic rule.
    pub quartic: i32,
    /// Padding.
    pub unused: i32,
}

impl Default for Resident {
    fn default() -> Self {
        Self {
            levels: Default::default(),
            steps: [ResidentStep::default(); RESIDENT_STEPS],
            iterations: 0,
            count: 0,
            first: 0,
            smoother: 0,
            bottom: 0,
            quartic: 0,
            unused: 0,
        }
    }
}

/// A step of a cycle as the resident kernel sees it; `hpgmg::ResidentStep` of `cuda/bottom.cuh`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ResidentStep {
    /// The right-hand side, where it has one.
    pub rhs: u64,
    /// `hpgmg::StepKind`.
    pub kind: i32,
    /// Number of its level among those of the kernel.
    pub level: i32,
}

impl ResidentStep {
    /// `step` on `view`, which is number `level` of the kernel's.
    pub fn of(step: CycleStep, level: usize, view: &DeviceLevel) -> Self {
        let (kind, rhs) = match step {
            CycleStep::Smooth { rhs, zero, .. } => (i32::from(zero), Some(rhs)),
            CycleStep::RestrictResidual { rhs, .. } => (2, Some(rhs)),
            CycleStep::Restrict { rhs, .. } => (3, Some(rhs)),
            CycleStep::Prolong { how: Prolongation::Correct, .. } => (4, None),
            CycleStep::Prolong { how: Prolongation::Replace, .. } => (5, None),
            CycleStep::Solve { rhs, zero, .. } => (6 + i32::from(zero), Some(rhs)),
        };
        let rhs = rhs.map_or(0, |rhs| view.vector(rhs));
        Self { rhs, kind, level: level as i32 }
    }
}

/// Number of a boundary rule in `cuda/level.cuh`; no kernels know the point-centred one.
pub fn rule(rule: Extrapolation) -> i32 {
    match rule {
        Extrapolation::Linear | Extrapolation::PointQuadratic => 0,
        Extrapolation::Quadratic => 1,
        Extrapolation::Quartic => 2,
    }
}

/// Planes that a launch works on; `hpgmg::Planes` of `cuda/grid.cu`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Planes {
    /// The first.
    pub first: i32,
    /// Behind the last.
    pub end: i32,
    /// That a block marches through.
    pub each: i32,
    /// Padding.
    pub unused: i32,
}

/// A rank's planes of a level and its turns with the ranks next to it; `hpgmg::Slab` of `cuda/slab.cuh`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Slab {
    /// With the ranks below and above.
    pub halo: mp_kernels::Exchange<2>,
    /// First plane.
    pub first: i32,
    /// Behind the last plane.
    pub end: i32,
    /// Planes beyond these in memory.
    pub held: i32,
    /// Padding.
    pub unused: i32,
}

/// The part of a level's grid that is in this GPU's memory: some planes, and ghosts around them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Cells per side of the level.
    pub n: usize,
    /// Elements of half a row.
    pub half: usize,
    /// The first plane here.
    pub first: usize,
    /// Planes here.
    pub planes: usize,
}

impl Grid {
    /// The grid of all `n`³ cells.
    pub fn new(n: usize) -> Self {
        Self::slab(n, 0..n)
    }

    /// The planes `planes` of `n`³ cells.
    pub fn slab(n: usize, planes: Range<usize>) -> Self {
        // Large rows start on multiples of 128 bytes; small levels stay small enough for the caches.
        let align = if n < 64 { 2 } else { 16 };
        let half = (n / 2 + 3).next_multiple_of(align);
        Self { n, half, first: planes.start, planes: planes.len() }
    }

    /// Elements before the first plane of the level, if all of it were here: what kernels, which count planes from the
    /// beginning of the level, are to be told as the beginning of a vector lies as far before it.
    pub fn shift(&self) -> usize {
        self.first * self.plane()
    }

    /// Elements of a plane.
    pub fn plane(&self) -> usize {
        2 * self.half * (self.n + 2 * GHOSTS)
    }

    /// Elements of a vector.
    pub fn volume(&self) -> usize {
        // The first row's ghosts lie before it, the last row's behind.
        (BASE + self.plane() * (self.planes + 2 * GHOSTS)).next_multiple_of(BASE)
    }

    /// Offset of a plane, from its first ghost row on; ghost planes are two more at both ends.
    pub fn plane_at(&self, k: isize) -> usize {
        BASE + (k + GHOSTS as isize - self.first as isize) as usize * self.plane()
    }

    /// Offset of a cell, by its indices in the level; ghosts are two more at all ends.
    pub fn at(&self, i: isize, j: isize, k: isize) -> usize {
        let g = GHOSTS as isize;
        let row = (j + g) * 2 * self.half as isize
            + (k + g - self.first as isize) * self.plane() as isize;
        let colour = (i + j + k).rem_euclid(2) * self.half as isize;
        (BASE as isize + row + colour + i.div_euclid(2)) as usize
    }
}

/// The boxes of a level in memory of the CPU, all of one rank.
#[derive(Clone, Copy)]
pub struct Boxes<'a> {
    geometry: BoxGeometry,
    shape: &'a LevelShape,
}

impl<'a> Boxes<'a> {
    /// Those of `level`.
    pub fn of(level: &'a Level) -> Self {
        Self { geometry: level.geometry, shape: &level.shape }
    }
}

/// Where the cells `at` of the whole level lie in a vector of the CPU; one ghost layer around the domain counts with the
/// box it touches.
fn in_boxes(level: Boxes<'_>, at: [isize; 3]) -> usize {
    let (n, m) = (level.geometry.n as isize, level.shape.boxes_per_side as isize);
    let coordinates = at.map(|c| c.div_euclid(n).clamp(0, m - 1));
    let id = level.shape.id(coordinates.map(|c| c as usize));
    // The rank owns all boxes, in the order of their ids.
    let local: [isize; 3] = std::array::from_fn(|axis| at[axis] - coordinates[axis] * n);
    id * level.geometry.volume + level.geometry.at(local[0], local[1], local[2])
}

/// Writes plane `k` of a vector, with one ghost layer around the domain, into `out`, a plane in the GPU's layout whose
/// first element is that of offset `first` of a vector.
pub fn gather_plane(
    level: Boxes<'_>,
    field: &[f64],
    grid: &Grid,
    k: isize,
    first: usize,
    out: &mut [f64],
) {
    let n = grid.n as isize;
    for j in -1..=n {
        let mut i = -1;
        while i <= n {
            // Cells of one box are consecutive there.
            let box_dim = level.geometry.n as isize;
            let end = if i < 0 { box_dim } else { (i / box_dim + 1) * box_dim };
            let end = if end >= n { n + 1 } else { end };
            let from = in_boxes(level, [i, j, k]);
            let values = &field[from..from + (end - i) as usize];
            put_row(grid, [i, j, k], first, values, out);
            i = end;
        }
    }
}

/// As [`gather_plane`], from a vector of a slab.
pub fn gather_from_slab(
    slab: &Planned,
    field: &[f64],
    grid: &Grid,
    k: isize,
    first: usize,
    out: &mut [f64],
) {
    let n = grid.n as isize;
    for j in -1..=n {
        let from = slab.at(-1, j, k);
        put_row(grid, [-1, j, k], first, &field[from..from + grid.n + 2], out);
    }
}

/// Writes the cells from `at` on along i into `out`, whose first element is that of offset `first` of a vector: the two
/// colours are consecutive each.
fn put_row(grid: &Grid, at: [isize; 3], first: usize, values: &[f64], out: &mut [f64]) {
    let [i, j, k] = at;
    for colour in 0..values.len().min(2) {
        let values = values[colour..].iter().step_by(2);
        let to = grid.at(i + colour as isize, j, k) - first;
        for (to, value) in out[to..to + values.len()].iter_mut().zip(values) {
            *to = *value;
        }
    }
}

/// The interior cells of `values`, a vector in the GPU's layout, in that of the CPU; 0 where they are not in it.
pub fn scatter(level: Boxes<'_>, grid: &Grid, values: &[f64]) -> Vec<f64> {
    let mut field = vec![0.0; level.shape.boxes() * level.geometry.volume];
    scatter_into(level, grid, values, &mut field);
    field
}

/// As [`scatter`], into a vector of the CPU; what is not in `values` stays.
pub fn scatter_into(level: Boxes<'_>, grid: &Grid, values: &[f64], field: &mut [f64]) {
    let n = grid.n as isize;
    for k in grid.first as isize..(grid.first + grid.planes) as isize {
        for j in 0..n {
            for i in 0..n {
                field[in_boxes(level, [i, j, k])] = values[grid.at(i, j, k)];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_and_ghosts_of_a_grid_have_places_of_their_own() {
        for n in [1, 2, 3, 8, 11, 64] {
            let grid = Grid::new(n);
            let mut seen = vec![false; grid.volume()];
            for k in -2..n as isize + 2 {
                for j in -2..n as isize + 2 {
                    for i in -2..n as isize + 2 {
                        let at = grid.at(i, j, k);
                        assert!(!std::mem::replace(&mut seen[at], true), "{n}: {i} {j} {k}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_slab_is_the_same_planes_further_to_the_front() {
        let (whole, slab) = (Grid::new(20), Grid::slab(20, 6..11));
        assert_eq!(slab.volume(), whole.volume() - 15 * whole.plane());
        for (i, j, k) in [(0, 0, 6), (-1, 3, 4), (19, 21, 12)] {
            assert_eq!(slab.at(i, j, k), whole.at(i, j, k) - slab.shift());
        }
        assert_eq!(slab.plane_at(4), whole.plane_at(4) - slab.shift());
    }

    #[test]
    fn cells_of_one_colour_are_consecutive_and_large_rows_aligned() {
        let grid = Grid::new(64);
        assert_eq!(grid.at(2, 0, 0), grid.at(0, 0, 0) + 1);
        assert_eq!(grid.at(1, 0, 0), grid.at(0, 0, 0) + grid.half);
        assert_eq!((grid.at(0, 5, 7) % 16, grid.at(0, 4, 7) % 16), (0, 0));
    }

    #[test]
    fn structures_have_the_sizes_that_the_kernels_assert() {
        assert_eq!((size_of::<DeviceLevel>(), size_of::<Pass>()), (232, 64));
        assert_eq!(size_of::<Resident>(), RESIDENT_LEVELS * 232 + RESIDENT_STEPS * 16 + 32);
        assert_eq!(size_of::<Slab>(), 152);
    }
}
