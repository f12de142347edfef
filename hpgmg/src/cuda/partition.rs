//! Which box of which level a rank computes. Fine levels are cut along k, into slabs of consecutive planes, or along all axes, one box
//! a rank, such that a rank's fine cells are the children of its coarse ones. Coarser levels have fewer boxes, each of which several
//! ranks compute, and from some level on every rank computes everything: there a launch takes no longer for all cells than for a
//! share of them, and nothing has to be communicated. Which cut it is `division.rs` chooses.

use super::division::{Division, step};
use super::hybrid::first_below;
use super::layout::Grid;
use super::resident::{RESIDENT_DIM, RESIDENT_LEVELS};
pub use crate::slab::Part;

/// Which levels are done at once, by one kernel or by the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coarse {
    /// The first level that the resident kernel takes.
    pub resident: usize,
    /// The first level that the CPU computes, if there is one.
    pub on_cpu: Option<usize>,
}

impl Coarse {
    /// Of levels of `dims` cells a side, those of fewer than `threshold` cells being the CPU's.
    pub fn new(dims: &[usize], threshold: u64) -> Self {
        let count = dims.len();
        let resident = (0..count)
            .find(|&l| dims[l] <= RESIDENT_DIM as usize && count - l <= RESIDENT_LEVELS as usize)
            .unwrap_or(count - 1);
        Self { resident, on_cpu: first_below(dims, threshold) }
    }

    /// The first level that is done with all coarser ones at once; it is never cut.
    pub fn first(&self) -> usize {
        self.on_cpu.unwrap_or(self.resident)
    }
}

/// The cut of all levels, as one rank sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Cells per side of the levels, finest first.
    dims: Vec<usize>,
    division: Division,
    /// This rank.
    rank: usize,
}

impl Partition {
    /// What rank `rank` has of levels of `dims` cells a side.
    pub fn new(dims: &[usize], division: Division, rank: usize) -> Self {
        Self { dims: dims.to_vec(), division, rank }
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Cells per side of level `l`.
    pub fn dim(&self, l: usize) -> usize {
        self.dims[l]
    }

    /// How it is divided.
    pub fn division(&self) -> &Division {
        &self.division
    }

    /// The first level that every rank has; levels before it are cut.
    pub fn whole(&self) -> usize {
        self.division.whole()
    }

    /// Whether ranks have boxes of level `l`.
    pub fn is_cut(&self, l: usize) -> bool {
        l < self.whole()
    }

    /// Whether the boxes of level `l` are whole planes.
    pub fn in_slabs(&self, l: usize) -> bool {
        self.division.along(l)[..2] == [1, 1]
    }

    /// The cells of level `l` that rank `rank` has.
    pub fn part_of(&self, l: usize, rank: usize) -> Part {
        if !self.is_cut(l) {
            return [0, 1, 2].map(|_| 0..self.dims[l]);
        }
        let (along, at) = (self.division.along(l), self.division.place(l, rank));
        // What goes on unchanged to coarser levels is cut where the last of them has pairs of cells.
        let last = self.division.last_alike(l);
        let (unit, finer) = (self.dims[last] / 2, last + 1 - l);
        [0, 1, 2].map(|axis| {
            let (ranks, step) = (along[axis], step(axis, along[axis]));
            let cut = |at: usize| (at * (unit / step) / ranks * step) << finer;
            cut(at[axis])..cut(at[axis] + 1)
        })
    }

    /// Planes at each border of level `l` that are a neighbour's ghosts.
    pub fn depth(&self, l: usize) -> usize {
        self.division.depth(l, self.dims[l])
    }

    /// What this rank has of level `l` in memory.
    pub fn grid(&self, l: usize) -> Grid {
        Grid::part(self.dims[l], &self.part(l)).with_around(self.depth(l))
    }

    /// The cells of level `l` that this rank has.
    pub fn part(&self, l: usize) -> Part {
        self.part_of(l, self.rank)
    }

    /// The cells of level `l` under which rank `rank` has those of the next finer level: what it restricts to.
    pub fn share_of(&self, l: usize, rank: usize) -> Part {
        match l.checked_sub(1) {
            Some(finer) if self.is_cut(finer) => {
                self.part_of(finer, rank).map(|fine| fine.start / 2..fine.end / 2)
            }
            _ => self.part_of(l, rank),
        }
    }

    /// This rank's share of level `l`.
    pub fn share(&self, l: usize) -> Part {
        self.share_of(l, self.rank)
    }

    /// Whether this rank is the first of those that have the same cells of level `l`.
    pub fn speaks(&self, l: usize) -> bool {
        !self.is_cut(l) || self.division.is_first(l, self.rank)
    }

    /// Whether restriction to level `l` leaves a rank with less than it has of that level: it gets the rest from others.
    pub fn gathers(&self, l: usize) -> bool {
        l > 0 && self.division.along(l - 1) != self.division.along(l)
    }

    /// Whether ranks have whole sweeps over their planes of level `l`, which want a plane of the right-hand side besides their own.
    pub fn sweeps(&self, l: usize) -> bool {
        self.division.sweeps(l, self.dims[l])
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    fn dims(finest: usize) -> Vec<usize> {
        let mut dims = vec![finest];
        while dims[dims.len() - 1] % 2 == 0 {
            dims.push(dims[dims.len() - 1] / 2);
        }
        dims
    }

    fn cells(part: &Part) -> usize {
        part.iter().map(Range::len).product()
    }

    #[test]
    fn parts_cover_each_level_and_children_stay_with_their_parents() {
        for (finest, along, whole) in [
            (256, [1, 1, 2], 32),
            (64, [1, 1, 2], 16),
            (192, [1, 1, 3], 24),
            (80, [1, 1, 3], 20),
            (128, [2, 2, 2], 32),
            (96, [1, 2, 3], 24),
            (128, [3, 2, 3], 32),
            (256, [1, 3, 4], 32),
            (96, [3, 3, 3], 24),
            (256, [4, 4, 4], 16),
        ] {
            let (dims, ranks) = (dims(finest), along.iter().product());
            let division = Division::of(&dims, &[along], whole).unwrap();
            let of = |rank| Partition::new(&dims, division.clone(), rank);
            assert!(of(0).whole() > 0, "{finest} {along:?}");
            for (l, &dim) in dims.iter().enumerate().take(of(0).whole() + 1) {
                let mut seen = vec![0; dim.pow(3)];
                for rank in 0..ranks {
                    let share = of(rank).share(l);
                    for k in share[2].clone() {
                        for j in share[1].clone() {
                            for i in share[0].clone() {
                                seen[i + dim * (j + dim * k)] += 1;
                            }
                        }
                    }
                    if of(rank).is_cut(l) {
                        assert!(share.iter().all(|cells| cells.len() >= 4), "{share:?}");
                        let coarse = of(rank).share(l + 1);
                        assert_eq!(share, coarse.map(|cells| 2 * cells.start..2 * cells.end));
                    }
                }
                assert!(seen.iter().all(|&times| times == 1), "{finest} {along:?} level {l}");
            }
        }
    }

    #[test]
    fn levels_up_to_the_limit_are_whole() {
        let dims = dims(256);
        let cut = |whole| Division::of(&dims, &[[1, 1, 2]], whole).map_or(0, |d| d.whole());
        assert_eq!([cut(32), cut(64), cut(256)], [3, 2, 0]);
        let two = Partition::new(&dims, Division::of(&dims, &[[1, 1, 2]], 32).unwrap(), 1);
        assert_eq!(two.part(0), [0..256, 0..256, 128..256]);
        assert_eq!(two.part(3), [0..32, 0..32, 0..32]);
        assert_eq!(two.share(3), [0..32, 0..32, 16..32]);
        assert!(two.gathers(3) && !two.gathers(2) && !two.gathers(4));
    }

    #[test]
    fn levels_go_to_fewer_ranks_step_by_step_and_each_box_to_several() {
        let dims = dims(256);
        let steps = vec![[4, 4, 4], [4, 4, 4], [2, 2, 2], [1, 1, 1]];
        let division = Division::by_level(&dims, steps).unwrap();
        for rank in 0..64 {
            let of = Partition::new(&dims, division.clone(), rank);
            assert_eq!((cells(&of.part(1)), cells(&of.part(2))), (32 * 32 * 32, 32 * 32 * 32));
            assert_eq!(cells(&of.share(2)), 16 * 16 * 16);
            let (share, part) = (of.share(2), of.part(2));
            assert!(
                (0..3).all(|axis| part[axis].start <= share[axis].start
                    && share[axis].end <= part[axis].end)
            );
            assert!(of.gathers(2) && of.gathers(3) && !of.gathers(1));
        }
    }
}
