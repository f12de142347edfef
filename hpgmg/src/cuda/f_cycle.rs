//! What a solve of the benchmark on GPUs consists of, counted without one: the levels and a rank's part of each, passes, bytes of
//! memory, and who sends how much to whom. What tells its time on more GPUs than there are (`mp-perf model`) stands on this.

use super::division::{Cut, Division, SWEEPS};
use super::launches::{OnLevel, grouped, launches, steps};
use super::partition::{Coarse, Partition};
use super::resident::HELD_DIM;
use super::tiles;
use crate::cycle::Kind;
use crate::error::ConfigError;
use crate::options::{Config, Cycle};

/// One level of a [`FCycle`], in one solve of one rank.
///
/// See [`FCycle`] for an example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FCycleLevel {
    /// Cells a side.
    pub n: usize,
    /// Ranks along i, j and k that share it; 1, 1, 1 if every rank has all of it.
    pub along: [usize; 3],
    /// Passes over a rank's part, each of which begins when the one before has ended.
    pub passes: usize,
    /// Bytes of memory that they move.
    pub bytes: f64,
    /// Of the passes, those after which the rank exchanges borders with its neighbours, if the level is cut.
    pub exchanges: usize,
    /// Restrictions to the next level, each followed by the gathers of [`FCycle::gathers`].
    pub restrictions: usize,
}

/// An F-cycle of the benchmark (fv4, GSRB) on GPUs of the kind that the kernels are fastest on.
///
/// ```
/// use hpgmg::cuda::{Cut, FCycle};
///
/// let cycle = FCycle::new(256, 2, Cut::default())?;
/// let finest = &cycle.levels()[0];
/// assert_eq!((finest.n, finest.along), (256, [1, 1, 2]));
/// // Three planes to the other rank after each of so many passes.
/// assert_eq!(cycle.neighbours(0, 0), [(1, 3 * 256 * 256 * 8)]);
/// println!("{} passes, {} with borders, {} bytes", finest.passes, finest.exchanges, finest.bytes);
/// # Ok::<(), hpgmg::error::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct FCycle {
    levels: Vec<FCycleLevel>,
    dims: Vec<usize>,
    division: Division,
    ranks: usize,
    at_once: usize,
}

impl FCycle {
    /// Over a domain of `dim` cells a side on `ranks` ranks.
    ///
    /// # Errors
    /// [`ConfigError::Along`].
    pub fn new(dim: usize, ranks: usize, cut: Cut<'_>) -> Result<Self, ConfigError> {
        let config = Config::default();
        let halves = |n: &usize| n.is_multiple_of(2).then_some(n / 2);
        let dims: Vec<usize> = std::iter::successors(Some(dim), halves).collect();
        let coarse = Coarse::new(&dims, cut.threshold).first();
        let division = Division::new(&config, &dims[..=coarse], ranks, cut)?;
        let first = dims.iter().position(|&n| n <= HELD_DIM as usize).unwrap_or(dims.len() - 1);
        let partition = Partition::new(&dims, division.clone(), 0);
        let level = |(l, on): (usize, &OnLevel)| {
            let cut = partition.is_cut(l);
            let sweeps = if cut { partition.sweeps(l) } else { tiles::has_tiles(on.n) };
            let cells: f64 = partition.part(l).iter().map(|cells| cells.len() as f64).product();
            FCycleLevel {
                n: on.n,
                along: division.along(l),
                passes: on.phases(sweeps),
                bytes: cells * on.bytes_a_cell(&config, sweeps),
                exchanges: if cut { on.exchanges(sweeps) } else { 0 },
                restrictions: on.restrictions + on.residuals,
            }
        };
        let on = launches(Cycle::F, &dims[..first], SWEEPS);
        let levels = on.iter().enumerate().map(level).collect();
        let steps = steps(Kind::F, dims.len(), 0);
        let at_once = grouped(&steps, first, |_| false)
            .filter(|group| group.iter().all(|step| step.l >= first))
            .count();
        Ok(Self { levels, dims, division, ranks, at_once })
    }

    /// The levels that have passes of their own, finest first.
    pub fn levels(&self) -> &[FCycleLevel] {
        &self.levels
    }

    /// How often the kernel that does all coarser levels at once is launched.
    pub fn at_once(&self) -> usize {
        self.at_once
    }

    /// The ranks to which rank `rank` sends when it exchanges borders of level `l`, with the bytes for each.
    pub fn neighbours(&self, l: usize, rank: usize) -> Vec<(usize, usize)> {
        let cut = l < self.division.whole();
        let all = cut.then(|| self.division.borders(l, self.dims[l], rank));
        all.into_iter().flatten().collect()
    }

    /// What rank `rank` sends in the gather that follows a restriction from level `l`, stage by stage: to each of these ranks so many
    /// bytes. If the next level has the same ranks, only a plane to each neighbour where its sweeps are one launch.
    pub fn gathers(&self, l: usize, rank: usize) -> Vec<(Vec<usize>, usize)> {
        self.dims.get(l + 1).map_or_else(Vec::new, |&n| self.division.gathers(l + 1, n, rank))
    }

    /// Ranks of the run.
    pub fn ranks(&self) -> usize {
        self.ranks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slabs_exchange_planes_with_each_side_until_every_rank_has_everything() {
        let cycle = FCycle::new(256, 4, Cut { whole: [32; 2], ..Cut::default() }).unwrap();
        let levels = cycle.levels();
        assert_eq!(levels.iter().map(|level| level.n).collect::<Vec<_>>(), [256, 128, 64, 32]);
        assert_eq!(levels[2].along, [1, 1, 4]);
        assert_eq!((levels[3].along, levels[3].exchanges), ([1; 3], 0));
        // Three where both colours of a sweep are one launch.
        let planes = |count: usize, n: usize| count * n * n * 8;
        assert_eq!(cycle.neighbours(1, 1), [(0, planes(3, 128)), (2, planes(3, 128))]);
        assert_eq!(cycle.neighbours(2, 1), [(0, planes(2, 64)), (2, planes(2, 64))]);
        assert_eq!(cycle.neighbours(3, 1), []);
        // A quarter of 32³ from each.
        assert_eq!(cycle.gathers(2, 2), [(vec![0, 1, 3], 8 * 32 * 32 * 8)]);
        assert_eq!(cycle.gathers(1, 2), []);
        // Of the right-hand side sweeps read one of the neighbours' planes.
        assert_eq!(cycle.gathers(0, 2), [(vec![1, 3], planes(1, 128))]);
        // One visit for each level above, and the first.
        assert_eq!(cycle.at_once(), 5);
    }

    #[test]
    fn boxes_have_faces_edges_and_corners_and_what_a_rank_gathers_is_its_new_part() {
        let along = &[[2, 2, 2], [2, 2, 2], [1, 1, 2]];
        let cycle = FCycle::new(256, 8, Cut { along, ..Cut::default() }).unwrap();
        assert_eq!(cycle.neighbours(0, 0).len(), 7);
        let all: usize = cycle.neighbours(0, 0).iter().map(|to| to.1).sum();
        assert_eq!(all, 8 * (3 * 2 * 128 * 128 + 3 * 4 * 128 + 8));
        // 64³ on two ranks, each half on four: along i, then along j with what came along i.
        let share = 32 * 32 * 32 * 8;
        assert_eq!(cycle.gathers(1, 0), [(vec![1], share), (vec![2], 2 * share)]);
        assert_eq!(cycle.gathers(0, 0), []);
    }

    #[test]
    fn whole_sweeps_are_one_pass_but_in_boxes() {
        let finest = |along: &[[usize; 3]]| {
            let ranks = along[0].iter().product();
            FCycle::new(256, ranks, Cut { along, ..Cut::default() }).unwrap().levels()[0]
        };
        let [one, slabs, boxes] = [[1, 1, 1], [1, 1, 4], [1, 2, 2]].map(|along| finest(&[along]));
        assert_eq!((one.passes, one.exchanges), (slabs.passes, 0));
        assert_eq!((boxes.passes - slabs.passes, boxes.exchanges - slabs.exchanges), (6, 6));
        assert_eq!(slabs.bytes * 4.0, one.bytes);
        assert!(boxes.bytes > slabs.bytes);
    }
}
