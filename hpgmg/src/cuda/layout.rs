//! Where the values of a level lie on the GPU, and getting them there and back. `cuda/level.cuh` computes the same places.
//!
//! All boxes of the rank form one grid. Every row is two halves, one for each colour `(i + j + k) % 2`.

use std::ops::Range;

use super::device;
use crate::decomposition::LevelShape;
use crate::geometry::BoxGeometry;
use crate::level::Level;
use crate::slab::Slab as Planned;

/// Ghost rows and planes around the grid.
pub const GHOSTS: usize = device::GHOSTS as usize;
/// Elements before the first row: room for the ghosts in front of it, and alignment.
pub const BASE: usize = device::BASE as usize;

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
        let align =
            if n < device::LARGE as usize { device::HALF_ROW } else { device::LARGE_HALF_ROW };
        let half = (n / 2 + 3).next_multiple_of(align as usize);
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
}
