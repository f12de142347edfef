//! Where the values of a level lie on the GPU, and getting them there and back. `cuda/level.cuh` computes the same places.
//!
//! All boxes of the rank form one grid. Every row is two halves, one for each colour `(i + j + k) % 2`.

use std::ops::Range;

use libmp::exchange::Cells;

use super::device;
use super::partition::Part;
use crate::decomposition::LevelShape;
use crate::geometry::BoxGeometry;
use crate::level::Level;
use crate::slab::Slab as Planned;

/// Ghost rows and planes around the grid.
pub const GHOSTS: usize = device::GHOSTS as usize;
/// Elements before the first row: room for the ghosts in front of it, and alignment.
pub const BASE: usize = device::BASE as usize;

/// The part of a level's grid that is in this GPU's memory: a box of cells, and ghosts around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Cells per side of the level.
    pub n: usize,
    /// Elements of half a row.
    pub half: usize,
    /// The first cell here, by its indices in the level; the first is even.
    pub first: [usize; 3],
    /// Cells here along each axis.
    pub size: [usize; 3],
    /// Planes around them, at either end.
    pub around: usize,
}

impl Grid {
    /// The grid of all `n`³ cells.
    pub fn new(n: usize) -> Self {
        Self::part(n, &[0..n, 0..n, 0..n])
    }

    /// The cells `part` of `n`³.
    pub fn part(n: usize, part: &Part) -> Self {
        // Large rows start on multiples of 128 bytes; small levels stay small enough for the caches.
        let align =
            if n < device::LARGE as usize { device::HALF_ROW } else { device::LARGE_HALF_ROW };
        let [first, size] = [0, 1].map(|what| {
            [0, 1, 2].map(|axis| if what == 0 { part[axis].start } else { part[axis].len() })
        });
        let half = (size[0] / 2 + 3).next_multiple_of(align as usize);
        Self { n, half, first, size, around: GHOSTS }
    }

    /// The same with so many planes around them, [`GHOSTS`] or more.
    pub fn with_around(self, around: usize) -> Self {
        Self { around, ..self }
    }

    /// Planes around the cells here besides the ghosts that every grid has.
    fn more(&self) -> usize {
        self.around - GHOSTS
    }

    /// The plane of the level that lies behind the usual ghosts in memory: with more planes around, one in front of those here.
    pub fn before(&self) -> isize {
        self.first[2] as isize - self.more() as isize
    }

    /// Elements before the first cell of the level, if all of it were here: what kernels, which count cells from the
    /// beginning of the level, are to be told as the beginning of a vector lies as far before it.
    pub fn shift(&self) -> isize {
        let [i, j, _] = self.first;
        self.before() * self.plane() as isize + (j * 2 * self.half + i / 2) as isize
    }

    /// Elements of a plane.
    pub fn plane(&self) -> usize {
        2 * self.half * (self.size[1] + 2 * GHOSTS)
    }

    /// Elements of a vector.
    pub fn volume(&self) -> usize {
        // The first row's ghosts lie before it, the last row's behind.
        (BASE + self.plane() * (self.size[2] + 2 * self.around)).next_multiple_of(BASE)
    }

    /// The planes here.
    pub fn planes(&self) -> Range<isize> {
        self.first[2] as isize..(self.first[2] + self.size[2]) as isize
    }

    /// Offset of a plane, from its first ghost row on; ghost planes are `around` more at both ends.
    pub fn plane_at(&self, k: isize) -> usize {
        BASE + (k + GHOSTS as isize - self.before()) as usize * self.plane()
    }

    /// Offset of a cell, by its indices in the level; ghosts are two more at all ends, and planes `around`.
    pub fn at(&self, i: isize, j: isize, k: isize) -> usize {
        let g = GHOSTS as isize;
        let [first_i, first_j, _] = self.first.map(|first| first as isize);
        let row = (j + g - first_j) * 2 * self.half as isize
            + (k + g - self.before()) * self.plane() as isize
            - first_i / 2;
        let colour = (i + j + k).rem_euclid(2) * self.half as isize;
        (BASE as isize + row + colour + i.div_euclid(2)) as usize
    }
}

/// Cells of a level, ghosts among them.
pub type Region = [Range<isize>; 3];

/// How elements are numbered where some of them are sent: where element (0, 0, 0) is in a vector, which may be before it, and how many
/// elements there are from row to row and from plane to plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbering {
    pub origin: isize,
    pub strides: [usize; 2],
}

impl Grid {
    /// Of cells of which there are all in a plane: a plane, ghosts and all, is a row.
    pub fn in_planes(&self) -> Numbering {
        let origin = (BASE + GHOSTS * self.plane()) as isize - self.shift();
        Numbering { origin, strides: [self.plane(); 2] }
    }

    /// Planes `k` in that numbering.
    pub fn planes_at(&self, k: &Range<isize>) -> Cells {
        // Those of a box begin where its first cell would be, not where that of the level would.
        let before = (self.first[1] * 2 * self.half + self.first[0] / 2) as i32;
        [before..before + self.plane() as i32, 0..1, k.start as i32..k.end as i32]
    }

    /// Of any pairs of cells along i: half a row, of one colour, is a row.
    pub fn in_pairs(&self) -> Numbering {
        let ghosts = GHOSTS * (self.plane() + 2 * self.half);
        let origin = (BASE + ghosts) as isize - self.shift();
        Numbering { origin, strides: [self.half, self.plane()] }
    }

    /// The cells `region`, pairs along i, in that numbering.
    pub fn pairs_at(region: &Region) -> Cells {
        let [i, j, k] = [0, 1, 2].map(|axis| (region[axis].start as i32, region[axis].end as i32));
        [i.0.div_euclid(2)..i.1.div_euclid(2), 2 * j.0..2 * j.1, k.0..k.1]
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

/// Writes what is here of plane `k` of a vector, with one ghost layer around it, into `out`, a plane in the GPU's layout whose
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
    let [columns, rows] = surrounded(grid);
    for j in rows {
        let mut i = columns.start;
        while i < columns.end {
            // Cells of one box are consecutive there.
            let box_dim = level.geometry.n as isize;
            let end = if i < 0 { box_dim } else { (i / box_dim + 1) * box_dim };
            let end = if end >= n { n + 1 } else { end }.min(columns.end);
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
    let [columns, rows] = surrounded(grid);
    for j in rows {
        let from = slab.at(columns.start, j, k);
        put_row(grid, [columns.start, j, k], first, &field[from..from + columns.len()], out);
    }
}

/// The cells along i and j that are here, and one ghost at each end.
fn surrounded(grid: &Grid) -> [Range<isize>; 2] {
    [0, 1].map(|axis| {
        grid.first[axis] as isize - 1..(grid.first[axis] + grid.size[axis]) as isize + 1
    })
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
    let [columns, rows] = surrounded(grid);
    for k in grid.planes() {
        for j in rows.start + 1..rows.end - 1 {
            for i in columns.start + 1..columns.end - 1 {
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
        let (whole, slab) = (Grid::new(20), Grid::part(20, &[0..20, 0..20, 6..11]));
        assert_eq!(slab.volume(), whole.volume() - 15 * whole.plane());
        for (i, j, k) in [(0, 0, 6), (-1, 3, 4), (19, 21, 12)] {
            assert_eq!(slab.at(i, j, k), whole.at(i, j, k).strict_sub_signed(slab.shift()));
        }
        assert_eq!(slab.plane_at(4), whole.plane_at(4).strict_sub_signed(slab.shift()));
        // With more planes around it all of it lies further behind.
        let more = slab.with_around(5);
        assert_eq!(more.volume(), slab.volume() + 6 * slab.plane());
        assert_eq!(more.plane_at(1), BASE);
        for (i, j, k) in [(0, 0, 6), (-1, 3, 4), (19, 21, 12)] {
            assert_eq!(more.at(i, j, k), slab.at(i, j, k) + 3 * slab.plane());
        }
    }

    #[test]
    fn cells_and_ghosts_of_a_box_have_places_of_their_own() {
        let grid = Grid::part(20, &[8..14, 5..10, 3..8]);
        let mut seen = vec![false; grid.volume()];
        for k in 1..10 {
            for j in 3..12 {
                for i in 6..16 {
                    let at = grid.at(i, j, k);
                    assert!(!std::mem::replace(&mut seen[at], true), "{i} {j} {k}");
                }
            }
        }
    }

    #[test]
    fn pairs_of_cells_lie_where_their_numbers_say() {
        let grid = Grid::part(64, &[8..24, 16..32, 4..12]).with_around(3);
        let Numbering { origin, strides } = grid.in_pairs();
        for region in [[6..8, 16..32, 4..12], [8..24, 30..34, 10..12]] {
            let mut cells: Vec<usize> = Vec::new();
            for k in region[2].clone() {
                for j in region[1].clone() {
                    cells.extend(region[0].clone().map(|i| grid.at(i, j, k)));
                }
            }
            let [x, y, z] = Grid::pairs_at(&region);
            let mut elements: Vec<usize> = Vec::new();
            for z in z {
                for y in y.clone() {
                    let row = origin
                        + y as isize * strides[0] as isize
                        + z as isize * strides[1] as isize;
                    elements.extend(x.clone().map(|x| (row + x as isize) as usize));
                }
            }
            cells.sort_unstable();
            elements.sort_unstable();
            assert_eq!(cells, elements);
        }
        let (Numbering { origin, strides }, [x, _, z]) =
            (grid.in_planes(), grid.planes_at(&(5..7)));
        let first = origin + x.start as isize + (z.start as usize * strides[1]) as isize;
        assert_eq!((first as usize, x.len()), (grid.plane_at(5), grid.plane()));
    }

    #[test]
    fn cells_of_one_colour_are_consecutive_and_large_rows_aligned() {
        let grid = Grid::new(64);
        assert_eq!(grid.at(2, 0, 0), grid.at(0, 0, 0) + 1);
        assert_eq!(grid.at(1, 0, 0), grid.at(0, 0, 0) + grid.half);
        assert_eq!((grid.at(0, 5, 7) % 16, grid.at(0, 4, 7) % 16), (0, 0));
    }
}
