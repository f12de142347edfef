//! One level on one rank: its boxes, its vectors, and the prepared communication around it.

use crate::backend::Vector;
use crate::comm::Group;
use crate::decomposition::LevelShape;
use crate::field::Field;
use crate::geometry::BoxGeometry;
use crate::halo::Halo;
use crate::operators::{TILE_ROWS, Tile};
use crate::slab::Slab;
use crate::transfer::{Interpolation, Restriction};

/// One level on one rank. A rank without boxes of the level has empty lists and vectors.
pub struct Level {
    /// The level as all ranks see it.
    pub shape: LevelShape,
    /// Layout of a box.
    pub geometry: BoxGeometry,
    /// Ids of this rank's boxes, increasing.
    pub boxes: Vec<usize>,
    /// The vectors, by [`Vector::index`]; each holds all boxes. Those not in use are empty.
    pub fields: Vec<Field>,
    /// Halo exchange in the stencil's shape.
    pub halo: Halo,
    /// Halo exchange of all 26 regions, where that is not the stencil's shape.
    pub surround: Option<Halo>,
    /// Tiles that may run before the halo exchange has finished.
    pub early: Vec<Tile>,
    /// The other tiles.
    pub late: Vec<Tile>,
    /// To the next coarser level.
    pub restriction: Option<Restriction>,
    /// From the next coarser level, for corrections.
    pub correction: Option<Interpolation>,
    /// From the next coarser level, for solutions, where that is another rule.
    pub prolongation: Option<Interpolation>,
    /// Upper bound of the spectrum of the preconditioned operator.
    pub lambda_max: f64,
    /// The ranks active on this level; `None` if this one is not.
    pub group: Option<Box<dyn Group>>,
    /// One partial sum per box of the whole level.
    pub partials: Vec<f64>,
    /// This rank's planes, of a level that GPUs share; the vectors are empty then.
    pub slab: Option<Slab>,
}

impl Level {
    /// A vector of the level.
    pub fn field(&self, v: Vector) -> &[f64] {
        &self.fields[v.index()]
    }

    /// Takes a vector out of the level so that others can be read meanwhile; [`Self::put`] it back.
    pub fn take(&mut self, v: Vector) -> Field {
        std::mem::take(&mut self.fields[v.index()])
    }

    /// Puts a taken vector back.
    pub fn put(&mut self, v: Vector, field: Field) {
        self.fields[v.index()] = field;
    }

    /// Takes coefficients and right-hand side from a slab that is the whole level.
    pub fn copy_from(&mut self, slab: &Slab) {
        let g = self.geometry;
        for index in 0..self.boxes.len() {
            let origin = self.origin(index);
            for normal in [Some(0), Some(1), Some(2), None] {
                let v = normal.map_or(Vector::F, |axis| Vector::Beta(axis as u8));
                // There is one face more than cells.
                let [ni, nj, nk] =
                    std::array::from_fn(|axis| g.n + usize::from(normal == Some(axis)));
                for (j, k) in (0..nk).flat_map(|k| (0..nj).map(move |j| (j, k))) {
                    let [x, y, z] = [origin[0], origin[1] + j, origin[2] + k].map(|c| c as isize);
                    let (to, from) = (index * g.volume + g.row(j, k), slab.at(x, y, z));
                    let row = &slab.field(v)[from..from + ni];
                    self.fields[v.index()][to..to + ni].copy_from_slice(row);
                }
            }
        }
        self.fields[Vector::Alpha.index()].fill(1.0);
    }

    /// Cells of this rank.
    pub fn cells(&self) -> usize {
        self.boxes.len() * self.geometry.n.pow(3)
    }

    /// Global index of the first cell of box `index` of this rank.
    pub fn origin(&self, index: usize) -> [usize; 3] {
        self.shape.coordinates(self.boxes[index]).map(|c| c * self.geometry.n)
    }
}

/// Cuts the boxes of a level into tiles, apart those that may run before and after the halo exchange
/// has finished, with enough of them to keep `threads` busy.
pub fn tiles(
    geometry: &BoxGeometry,
    boxes: usize,
    halo: &Halo,
    reach: usize,
    threads: usize,
) -> (Vec<Tile>, Vec<Tile>) {
    let n = geometry.n;
    let (mut early, mut late) = (Vec::new(), Vec::new());
    for index in 0..boxes {
        let cuts = |axis: usize, step: usize| {
            let mut cuts: Vec<usize> = (0..n).step_by(step).chain([n]).collect();
            // A thin tile next to a late side leaves the rest of the box early.
            let thin = 4.max(reach);
            if n > 4 * thin {
                if halo.late_side(index, axis, -1) {
                    cuts.push(thin);
                }
                if halo.late_side(index, axis, 1) {
                    cuts.push(n - thin);
                }
            }
            cuts.sort_unstable();
            cuts.dedup();
            cuts
        };
        let j_cuts = cuts(1, TILE_ROWS);
        let columns = boxes * j_cuts.len().max(2) - boxes;
        // Planes are cut as rarely as the threads allow: each cut computes one plane of fluxes twice.
        let slabs = (4 * threads).div_ceil(columns).min(n.div_ceil(8)).max(1);
        let k_cuts = cuts(2, if threads == 1 { n } else { n.div_ceil(slabs) });
        for k in k_cuts.windows(2) {
            for j in j_cuts.windows(2) {
                let tile = Tile { index, j: j[0]..j[1], k: k[0]..k[1] };
                let list = if halo.is_late(index, n, reach, &tile.j, &tile.k) {
                    &mut late
                } else {
                    &mut early
                };
                list.push(tile);
            }
        }
    }
    (early, late)
}
