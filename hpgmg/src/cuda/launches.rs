//! How often a solve launches what on which level, and what its ranks send each other, counted from the cycle alone: what
//! `traffic.rs` turns into bytes of memory and the report into bytes between GPUs. A GPU test counts the launches of a solve.

use super::layout::GHOSTS;
use crate::options::Cycle;

/// The sweeps before and after the coarser levels, each.
const SWEEPS: usize = 6;

/// The launches of one solve over a level, of those that are not done with all coarser ones at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OnLevel {
    /// Cells a side.
    pub n: usize,
    /// Sweeps of a smoother, those from zero among them.
    pub sweeps: usize,
    /// First sweeps from zero.
    pub from_zero: usize,
    /// Residuals that are restricted.
    pub residuals: usize,
    /// Interpolations of a correction.
    pub corrections: usize,
    /// Interpolations of a solution.
    pub solutions: usize,
    /// Restrictions of the right-hand side.
    pub restrictions: usize,
    /// Norms of the residual.
    pub norms: usize,
}

/// Those of an F-cycle from the finest level, or of one V-cycle (`Cycle::V`), on levels of `dims` cells a side.
pub(super) fn launches(cycle: Cycle, dims: &[usize]) -> Vec<OnLevel> {
    let full = cycle != Cycle::V;
    let on_level = |(l, &n): (usize, &usize)| {
        let visits = if full { l + 1 } else { 1 };
        // The visit after a solution has come from below starts from that, and that of the finest level from what is there.
        let from_zero = if full || l == 0 { visits - 1 } else { visits };
        OnLevel {
            n,
            sweeps: 2 * SWEEPS * visits,
            from_zero,
            residuals: visits,
            corrections: visits,
            solutions: full.into(),
            restrictions: full.into(),
            norms: (l == 0).into(),
        }
    };
    dims.iter().enumerate().map(on_level).collect()
}

impl OnLevel {
    /// Launches that write planes which neighbours read, if the level is cut.
    pub fn exchanges(&self) -> usize {
        self.sweeps + self.corrections + self.solutions
    }

    /// Launches after which neighbours may go on, if the level is cut: phases of `cuda/slab.cuh`.
    pub fn phases(&self) -> usize {
        self.exchanges() + self.residuals + self.norms
    }

    /// Bytes of one exchange, to each neighbour.
    pub fn border_bytes(&self) -> usize {
        GHOSTS * self.n * self.n * size_of::<f64>()
    }
}

/// What a rank sends in one solve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    /// Exchanges with each neighbour that carry planes.
    pub exchanges: usize,
    /// Phases, those that carry nothing among them.
    pub phases: usize,
    /// Bytes to each neighbour.
    pub bytes: usize,
    /// Times that all ranks give each other their shares of the first whole level.
    pub gathers: usize,
}

impl Sent {
    /// What is sent of the launches `levels` if the first `cut` of them are over slabs.
    pub fn of(levels: &[OnLevel], cut: usize) -> Self {
        let cut = &levels[..cut];
        Self {
            exchanges: cut.iter().map(OnLevel::exchanges).sum(),
            phases: cut.iter().map(OnLevel::phases).sum(),
            bytes: cut.iter().map(|level| level.exchanges() * level.border_bytes()).sum(),
            gathers: cut.last().map_or(0, |level| level.restrictions + level.residuals),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_visited_once_for_each_finer_one_and_itself() {
        let f = launches(Cycle::F, &[64, 32, 16]);
        assert_eq!(f.iter().map(|l| l.sweeps).collect::<Vec<_>>(), [12, 24, 36]);
        assert_eq!(f.iter().map(|l| l.from_zero).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(f.iter().map(|l| l.norms).collect::<Vec<_>>(), [1, 0, 0]);
        let v = launches(Cycle::V, &[64, 32, 16]);
        assert_eq!(v.iter().map(|l| l.sweeps).collect::<Vec<_>>(), [12; 3]);
        assert_eq!(v.iter().map(|l| l.from_zero).collect::<Vec<_>>(), [0, 1, 1]);
        assert_eq!(v.iter().map(|l| l.solutions + l.restrictions).sum::<usize>(), 0);
    }

    /// The numbers of `docs/hpgmg-gpu.md`, for four ranks: 384³ to 48³ in slabs, 24³ whole on each.
    #[test]
    fn the_page_about_gpus_states_these_counts() {
        let levels = launches(Cycle::F, &[384, 192, 96, 48, 24]);
        let sent = Sent::of(&levels, 4);
        assert_eq!(sent, Sent { exchanges: 134, phases: 145, bytes: 56_807_424, gathers: 5 });
        assert_eq!(levels.iter().map(OnLevel::phases).collect::<Vec<_>>(), [16, 29, 43, 57, 71]);
        assert_eq!(levels[4].sweeps, 60);
    }
}
