//! The halo exchange of a level: which strips go where, and the Dirichlet fill that follows.
//!
//! The first two stages send this rank's strips, copy between its own boxes and fill what no other rank
//! contributes to; the others wait, unpack and fill the rest. What lies between may work on every
//! cell whose stencil stays off the late regions ([`Halo::is_late`]). Sections 4.1, 4.2 and 12 of the
//! HPGMG-FV description.

use crate::block::{Block, Phase, View, tile};
use crate::boundary::{Extrapolation, Fill, Fills};
use crate::comm::{Comm, CommError};
use crate::decomposition::LevelShape;
use crate::geometry::BoxGeometry;
use crate::options::Boundary;
use crate::route::Route;
use crate::rows::SharedVector;
use crate::team::Team;
use crate::work::Stage;

/// Which of the 26 ghost regions around a box a stencil needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The 6 faces.
    Star,
    /// The 6 faces and 12 edges.
    NoCorners,
    /// All 26 regions.
    Box,
}

impl Shape {
    /// Direction vectors of the regions, in the order of their codes `13 + di + 3 dj + 9 dk`.
    pub fn directions(self) -> impl Iterator<Item = [i32; 3]> {
        let most = match self {
            Shape::Star => 1,
            Shape::NoCorners => 2,
            Shape::Box => 3,
        };
        (0..27)
            .map(|code| [code % 3 - 1, code / 3 % 3 - 1, code / 9 - 1])
            .filter(move |d| (1..=most).contains(&d.iter().filter(|x| **x != 0).count()))
    }
}

/// What a halo exchange moves: cells, or the faces of one normal (setup of the coefficients).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entity {
    /// Cell values.
    Cells,
    /// Face values of the given normal axis, `n + 1` per row along it, in tangential directions only.
    Faces(usize),
}

/// The halo exchange of one level and shape, ready to run.
pub struct Halo {
    /// The lists and messages.
    pub route: Route,
    early: Fills,
    late: Fills,
    /// For each of this rank's boxes the regions that are late, as a bit set of direction codes.
    late_regions: Vec<u32>,
}

fn code(d: [i32; 3]) -> i32 {
    13 + d[0] + 3 * d[1] + 9 * d[2]
}

/// The box next to `at` in direction `d`, if it is in the domain.
fn step(level: &LevelShape, boundary: Boundary, at: [usize; 3], d: [i32; 3]) -> Option<[usize; 3]> {
    let m = level.boxes_per_side as i64;
    let mut to = [0; 3];
    for axis in 0..3 {
        let c = at[axis] as i64 + d[axis] as i64;
        to[axis] = match boundary {
            Boundary::Periodic => c.rem_euclid(m) as usize,
            Boundary::Dirichlet if (0..m).contains(&c) => c as usize,
            Boundary::Dirichlet => return None,
        };
    }
    Some(to)
}

/// The lists of a halo exchange. `boxes` are this rank's boxes; box `b` of the list lies at offset
/// `b * geometry.volume` of a vector.
pub fn phase(
    level: &LevelShape,
    boundary: Boundary,
    geometry: &BoxGeometry,
    rank: usize,
    boxes: &[usize],
    shape: Shape,
    entity: Entity,
) -> Phase {
    let (n, g) = (geometry.n as isize, geometry.ghosts as isize);
    let base = |index: usize, at: [isize; 3]| View {
        at: index * geometry.volume + geometry.at(at[0], at[1], at[2]),
        pitch: geometry.pitch,
        plane: geometry.plane,
    };
    let local = |id: usize| boxes.binary_search(&id).ok();
    // (rank of the other side, sender box, code, dims, source corner, target corner, sender, receiver)
    let mut out = Vec::new();
    let mut phase = Phase::default();
    let directions = shape.directions().filter(|d| match entity {
        Entity::Cells => true,
        Entity::Faces(axis) => d[axis] == 0,
    });
    for d in directions {
        let (mut dims, mut source, mut target) = ([0usize; 3], [0isize; 3], [0isize; 3]);
        for axis in 0..3 {
            (dims[axis], source[axis], target[axis]) = match d[axis] {
                0 if entity == Entity::Faces(axis) => (n as usize + 1, 0, 0),
                0 => (n as usize, 0, 0),
                1 => (g as usize, n - g, -g),
                _ => (g as usize, 0, n),
            };
        }
        for (index, &id) in boxes.iter().enumerate() {
            let at = level.coordinates(id);
            if let Some(to) = step(level, boundary, at, d) {
                let receiver = level.id(to);
                match local(receiver) {
                    Some(to) => phase.local.push(Block {
                        dims,
                        from: base(index, source),
                        to: base(to, target),
                    }),
                    None => {
                        let peer = level.rank_of_box[receiver] as usize;
                        out.push((peer, true, id, code(d), dims, base(index, source)));
                    }
                }
            }
            let back = [-d[0], -d[1], -d[2]];
            if let Some(from) = step(level, boundary, at, back) {
                let sender = level.id(from);
                let peer = level.rank_of_box[sender] as usize;
                if peer != rank {
                    out.push((peer, false, sender, code(d), dims, base(index, target)));
                }
            }
        }
    }
    // Both sides order a buffer by sending box, then direction.
    out.sort_by_key(|&(peer, sends, sender, code, ..)| (peer, sends, sender, code));
    for (peer, sends, _, _, dims, view) in out {
        let cells = dims[0] * dims[1] * dims[2];
        let neighbour = phase.neighbour(peer);
        if sends {
            let to = View::dense(neighbour.send, dims);
            neighbour.pack.push(Block { dims, from: view, to });
            neighbour.send += cells;
        } else {
            let from = View::dense(neighbour.receive, dims);
            neighbour.unpack.push(Block { dims, from, to: view });
            neighbour.receive += cells;
        }
    }
    phase
}

/// Copies blocks from one slice to another, on the whole team.
pub fn copy_blocks(team: &Team, blocks: &[Block], from: &[f64], to: &mut [f64]) {
    let to = SharedVector::new(to);
    team.run(blocks.len(), blocks.iter().map(Block::cells).sum(), &|index, _| {
        let b = &blocks[index];
        for k in 0..b.dims[2] {
            for j in 0..b.dims[1] {
                let source = &from[b.from.row(j, k)..][..b.dims[0]];
                // SAFETY: the destinations of a list do not overlap.
                copy_row(source, unsafe { to.row(b.to.row(j, k), b.dims[0]) });
            }
        }
    });
}

#[inline(always)]
fn copy_row(from: &[f64], to: &mut [f64]) {
    // Rows of a halo strip along i are one or two cells: cheaper than a call of memcpy.
    match (from, to) {
        ([a], [x]) => *x = *a,
        ([a, b], [x, y]) => (*x, *y) = (*a, *b),
        (from, to) => to.copy_from_slice(from),
    }
}

impl Halo {
    /// Prepares the exchange of `shape` on a level.
    ///
    /// # Errors
    /// [`CommError`] when the messages cannot be prepared.
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        comm: &dyn Comm,
        level: &LevelShape,
        boundary: Boundary,
        geometry: &BoxGeometry,
        boxes: &[usize],
        shape: Shape,
        entity: Entity,
        tag: i32,
    ) -> Result<Self, CommError> {
        /// Rows and planes of a tile of a copy, as in the reference.
        const TILE: usize = 16;
        let rank = comm.rank();
        let phase = phase(level, boundary, geometry, rank, boxes, shape, entity);
        let route = Route::new(comm, tag, phase, |phase| {
            phase.local = tile(&phase.local, TILE, 1);
            for neighbour in &mut phase.neighbours {
                neighbour.pack = tile(&neighbour.pack, TILE, 1);
                neighbour.unpack = tile(&neighbour.unpack, TILE, 1);
            }
        })?;
        let (mut early, mut late) = (Fills::default(), Fills::default());
        let mut late_regions = vec![0u32; boxes.len()];
        for (index, &id) in boxes.iter().enumerate() {
            let at = level.coordinates(id);
            for d in shape.directions() {
                let (base, outside) = project(level, boundary, at, d);
                let owner = step(level, boundary, at, base).map(|c| level.rank_of_box[level.id(c)]);
                let is_late = owner.is_some_and(|owner| owner as usize != rank);
                if is_late {
                    late_regions[index] |= 1 << code(d);
                }
                if let Some(&axis) = outside.last() {
                    let fills = if is_late { &mut late } else { &mut early };
                    fills.stage[outside.len() - 1].push(fill(geometry, index, d, axis));
                }
            }
        }
        Ok(Self { route, early, late, late_regions })
    }

    /// True when some ghost of box `index` (position among this rank's boxes) within `reach` of the
    /// rows `j` × planes `k` is valid only after the last stage.
    pub fn is_late(
        &self,
        index: usize,
        n: usize,
        reach: usize,
        j: &std::ops::Range<usize>,
        k: &std::ops::Range<usize>,
    ) -> bool {
        let touches = |d: i32, range: &std::ops::Range<usize>| match d {
            -1 => range.start < reach,
            1 => range.end + reach > n,
            _ => true,
        };
        let late = self.late_regions[index];
        late != 0
            && Shape::Box
                .directions()
                .any(|d| late & 1 << code(d) != 0 && touches(d[1], j) && touches(d[2], k))
    }

    /// True when some region of box `index` in a direction with `d[axis] == side` is late.
    pub fn late_side(&self, index: usize, axis: usize, side: i32) -> bool {
        let late = self.late_regions[index];
        Shape::Box.directions().any(|d| d[axis] == side && late & 1 << code(d) != 0)
    }

    /// The exchange of `vector`, all stages; see [`stage`](Self::stage).
    ///
    /// # Errors
    /// [`CommError`] on deadline or peer failure.
    pub fn run(
        &mut self,
        team: &Team,
        vector: &mut [f64],
        rule: Option<Extrapolation>,
    ) -> Result<(), CommError> {
        Stage::ALL.into_iter().try_for_each(|stage| self.stage(stage, team, vector, rule))
    }

    /// A stage of the exchange of `vector`: sends this rank's strips; copies its own and fills what depends on no other
    /// rank; unpacks the neighbours' strips when they have come; fills what depends on them. With `rule` absent nothing is
    /// extrapolated (periodic domains, coefficients).
    ///
    /// # Errors
    /// [`CommError`] on deadline or peer failure.
    pub fn stage(
        &mut self,
        stage: Stage,
        team: &Team,
        vector: &mut [f64],
        rule: Option<Extrapolation>,
    ) -> Result<(), CommError> {
        let fills = match stage {
            Stage::Pack => {
                return self.route.send(|blocks, buffer| copy_blocks(team, blocks, vector, buffer));
            }
            Stage::Unpack => {
                return self
                    .route
                    .receive(|blocks, buffer| copy_blocks(team, blocks, buffer, vector));
            }
            Stage::Here => {
                copy_within(team, self.route.local(), vector);
                &self.early
            }
            Stage::Rest => &self.late,
        };
        if let Some(rule) = rule {
            fills.apply(team, vector, rule);
        }
        Ok(())
    }
}

/// Copies blocks from one part of a vector to another.
fn copy_within(team: &Team, blocks: &[Block], vector: &mut [f64]) {
    let shared = SharedVector::new(vector);
    team.run(blocks.len(), blocks.iter().map(Block::cells).sum(), &|index, _| {
        let b = &blocks[index];
        for k in 0..b.dims[2] {
            for j in 0..b.dims[1] {
                // SAFETY: sources are interior cells, destinations are ghosts of one block each.
                let (from, to) = unsafe {
                    (
                        shared.read(b.from.row(j, k), b.dims[0]),
                        shared.row(b.to.row(j, k), b.dims[0]),
                    )
                };
                copy_row(from, to);
            }
        }
    });
}

/// Direction `d` with the components that leave the domain set to zero, and the axes that do.
fn project(
    level: &LevelShape,
    boundary: Boundary,
    at: [usize; 3],
    d: [i32; 3],
) -> ([i32; 3], Vec<usize>) {
    let (mut base, mut outside) = (d, Vec::new());
    for axis in 0..3 {
        let mut along = [0; 3];
        along[axis] = d[axis];
        if d[axis] != 0 && step(level, boundary, at, along).is_none() {
            base[axis] = 0;
            outside.push(axis);
        }
    }
    (base, outside)
}

/// The fill of region `d` of a box along `axis`.
fn fill(geometry: &BoxGeometry, index: usize, d: [i32; 3], axis: usize) -> Fill {
    let (n, g) = (geometry.n as isize, geometry.ghosts as isize);
    let (mut corner, mut dims) = ([0isize; 3], [0usize; 3]);
    for a in 0..3 {
        (corner[a], dims[a]) = match d[a] {
            0 => (0, n as usize),
            -1 => (-g, g as usize),
            _ => (n, g as usize),
        };
    }
    corner[axis] = if d[axis] < 0 { -1 } else { n };
    dims[axis] = 1;
    let stride = [1, geometry.pitch as isize, geometry.plane as isize][axis];
    Fill {
        at: index * geometry.volume + geometry.at(corner[0], corner[1], corner[2]),
        dims,
        inward: -(d[axis] as isize) * stride,
        pitch: geometry.pitch,
        plane: geometry.plane,
        layers: geometry.ghosts,
    }
}
