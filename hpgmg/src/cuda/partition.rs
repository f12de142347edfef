//! Which planes of which level a rank computes. Fine levels are cut into slabs of consecutive planes, one a rank, such
//! that a rank's fine planes are the children of its coarse ones. From some level on every rank computes everything:
//! there a launch takes no longer for all cells than for a share of them, and nothing has to be communicated.

use std::ops::Range;

use super::hybrid::first_below;
use super::resident::{RESIDENT_DIM, RESIDENT_LEVELS};

/// Cells per side of the largest level that every rank computes, unless the user says otherwise.
pub const WHOLE: usize = 32;

/// Planes a rank has at least of a level that is cut: ghosts beyond the domain are sums of four cells.
const MIN_PLANES: usize = 4;

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

    /// The first level that is done with all coarser ones at once.
    pub fn first(&self) -> usize {
        self.on_cpu.unwrap_or(self.resident)
    }

    /// The cut of levels of `dims` cells a side among `ranks`, as [`Partition::new`]: what is done at once is never cut.
    pub fn partition(&self, dims: &[usize], ranks: usize, rank: usize, whole: usize) -> Partition {
        Partition::new(&dims[..=self.first()], ranks, rank, whole)
    }
}

/// The cut of all levels, as one rank sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Cells per side of the levels, finest first.
    dims: Vec<usize>,
    /// This rank.
    rank: usize,
    /// The first level that every rank has.
    whole: usize,
    /// First planes of the ranks' shares of that level, and its end.
    cuts: Vec<usize>,
}

impl Partition {
    /// Cuts levels of `dims` cells a side, each half of the one before, among `ranks`; levels of at most `whole` cells a
    /// side every rank has, and those that are too small to be cut.
    pub fn new(dims: &[usize], ranks: usize, rank: usize, whole: usize) -> Self {
        let bottom = dims.len() - 1;
        let small = dims.iter().position(|&n| n <= whole).unwrap_or(bottom);
        // The coarsest level that is cut has twice the planes of the first that is not.
        let enough = |l: &usize| 2 * (dims[*l] / ranks) >= MIN_PLANES;
        let whole = if ranks == 1 { 0 } else { (0..=small).rev().find(enough).unwrap_or(0) };
        let cuts = (0..=ranks).map(|r| r * dims[whole] / ranks).collect();
        Self { dims: dims.to_vec(), rank, whole, cuts }
    }

    /// The first level that every rank has; levels before it are cut.
    pub fn whole(&self) -> usize {
        self.whole
    }

    /// Whether ranks have slabs of level `l`.
    pub fn is_cut(&self, l: usize) -> bool {
        l < self.whole
    }

    /// The planes of level `l` that rank `rank` has.
    pub fn planes_of(&self, l: usize, rank: usize) -> Range<usize> {
        if self.is_cut(l) { self.share_of(l, rank) } else { 0..self.dims[l] }
    }

    /// The planes of level `l` that this rank has.
    pub fn planes(&self, l: usize) -> Range<usize> {
        self.planes_of(l, self.rank)
    }

    /// The planes of level `l`, at most the first whole one, under or above which rank `rank` works: its share.
    pub fn share_of(&self, l: usize, rank: usize) -> Range<usize> {
        if l > self.whole {
            return 0..self.dims[l];
        }
        let finer = self.whole - l;
        self.cuts[rank] << finer..self.cuts[rank + 1] << finer
    }

    /// This rank's share of level `l`.
    pub fn share(&self, l: usize) -> Range<usize> {
        self.share_of(l, self.rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dims(finest: usize) -> Vec<usize> {
        let mut dims = vec![finest];
        while dims[dims.len() - 1] % 2 == 0 {
            dims.push(dims[dims.len() - 1] / 2);
        }
        dims
    }

    #[test]
    fn shares_cover_each_level_once_and_children_stay_with_their_parents() {
        for (finest, ranks, whole) in
            [(256, 2, 32), (64, 2, 16), (192, 3, 24), (128, 8, 32), (80, 3, 20)]
        {
            let dims = dims(finest);
            let of = |rank| Partition::new(&dims, ranks, rank, whole);
            for (l, &dim) in dims.iter().enumerate().take(of(0).whole() + 1) {
                let mut next = 0;
                for rank in 0..ranks {
                    let share = of(rank).share(l);
                    assert_eq!(share.start, next, "{finest} {ranks} level {l}");
                    next = share.end;
                    if of(rank).is_cut(l) {
                        assert!(share.len() >= MIN_PLANES, "{share:?}");
                        let coarse = of(rank).share(l + 1);
                        assert_eq!(share, 2 * coarse.start..2 * coarse.end);
                    }
                }
                assert_eq!(next, dim);
            }
        }
    }

    #[test]
    fn levels_up_to_the_limit_and_all_of_one_rank_are_whole() {
        let cut = |ranks, whole| Partition::new(&dims(256), ranks, 0, whole).whole();
        assert_eq!([cut(2, 32), cut(2, 64), cut(2, 256), cut(1, 32)], [3, 2, 0, 0]);
        let two = Partition::new(&dims(256), 2, 1, 32);
        assert_eq!((two.planes(0), two.planes(3), two.share(3)), (128..256, 0..32, 16..32));
    }

    #[test]
    fn a_level_with_too_few_planes_for_the_ranks_is_not_cut() {
        // Of 16 planes 8 ranks would cut the level above into 4 each; of 8 not.
        let whole = |limit| Partition::new(&dims(64), 8, 0, limit).whole();
        assert_eq!([whole(16), whole(8), whole(1)], [2, 2, 2]);
        assert_eq!(Partition::new(&dims(16), 16, 3, 1).whole(), 0);
    }
}
