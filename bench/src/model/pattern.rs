//! What HPGMG-FV does in one F-cycle, as far as a model of its time needs: which levels there are, how many ranks have a part
//! of each, how often each is visited, and who sends how much to whom between two passes. Fourth order, two ghost layers,
//! 18 neighbours (faces and edges: the stencil reaches no corners), twelve half-sweeps a visit as in the benchmark.

/// Passes over a level in one visit: twelve half-sweeps, residual and restriction, correction.
pub const PASSES: usize = 14;
/// Of these, passes after which the ghosts are exchanged.
pub const EXCHANGES: usize = 13;
/// Ghost layers.
const GHOSTS: usize = 2;
/// Cells a side of the smallest box that a rank keeps for itself.
const SMALLEST: usize = 4;

/// How levels are divided among ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Division {
    /// Slabs of planes; levels of at most `whole` cells a side are computed by all ranks, as `hpgmg-fv --device cuda` does.
    Slabs {
        /// Cells a side of the largest level that all ranks compute.
        whole: usize,
    },
    /// A cube of boxes, one a rank; where boxes would get smaller than 4³, eight ranks give theirs to one.
    Boxes,
}

/// One level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Level {
    /// Cells of a rank's part: along x, y, z.
    pub part: [usize; 3],
    /// Ranks that have a part, along x, y, z.
    pub ranks: [usize; 3],
    /// Visits in one F-cycle.
    pub visits: usize,
    /// Every rank has all of it: nothing is exchanged.
    pub whole: bool,
}

/// Planes that a rank has at least of a level in slabs, as `hpgmg-fv` cuts them.
const MIN_PLANES: usize = 4;

impl Division {
    /// Slabs of a domain of `dim` cells a side on `ranks`, with levels of at most `whole` cells a side computed by all and those that are too
    /// small to be cut; none if the domain itself is.
    pub fn slabs(dim: usize, ranks: usize, whole: usize) -> Option<Self> {
        let halves = std::iter::successors(Some(dim), |n| n.is_multiple_of(2).then_some(n / 2));
        let mut enough = halves.take_while(|n| 2 * (n / ranks) >= MIN_PLANES);
        let mut whole_from = enough.next()?;
        for n in enough {
            if whole_from <= whole {
                break;
            }
            whole_from = n;
        }
        let whole = whole_from;
        (whole < dim).then_some(Self::Slabs { whole })
    }
}

impl Level {
    /// Cells of a rank's part.
    pub fn cells(&self) -> f64 {
        self.part.iter().map(|&n| n as f64).product()
    }

    /// Offsets to the neighbours that exist anywhere, with the bytes sent to each.
    pub fn neighbours(&self) -> Vec<([i64; 3], f64)> {
        let mut found = Vec::new();
        if self.whole {
            return found;
        }
        for code in 0..27i64 {
            let offset = [code % 3 - 1, code / 3 % 3 - 1, code / 9 - 1];
            let steps = offset.iter().filter(|step| **step != 0).count();
            let along = offset.iter().zip(self.ranks).all(|(step, ranks)| *step == 0 || ranks > 1);
            if steps == 0 || steps == 3 || !along {
                continue;
            }
            let cells: usize = offset
                .iter()
                .zip(self.part)
                .map(|(step, n)| if *step == 0 { n } else { n.min(GHOSTS) })
                .product();
            found.push((offset, 8.0 * cells as f64));
        }
        found
    }
}

/// The levels of a domain of `dim` cells a side, finest first, down to two cells. `ranks` along x, y, z; their product
/// shares the finest level.
pub fn levels(dim: usize, ranks: [usize; 3], division: Division) -> Vec<Level> {
    let mut levels = Vec::new();
    let mut n = dim;
    let mut sharing = ranks;
    loop {
        let whole = match division {
            Division::Slabs { whole } => n <= whole || ranks == [1; 3],
            Division::Boxes => false,
        };
        if division == Division::Boxes {
            while sharing.iter().any(|&r| r > 1) && (0..3).any(|i| n < SMALLEST * sharing[i]) {
                sharing = sharing.map(|r| r.div_ceil(2));
            }
        }
        let sharing = if whole { [1; 3] } else { sharing };
        let part = sharing.map(|r| (n / r).max(1));
        levels.push(Level { part, ranks: sharing, visits: levels.len() + 1, whole });
        if n <= 2 || !n.is_multiple_of(2) {
            return levels;
        }
        n /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slabs_exchange_two_planes_with_each_side_until_all_ranks_compute_everything() {
        let levels = levels(128, [1, 1, 4], Division::Slabs { whole: 32 });
        assert_eq!(levels.len(), 7);
        assert_eq!((levels[0].part, levels[0].visits), ([128, 128, 32], 1));
        let bytes: Vec<f64> = levels[0].neighbours().iter().map(|n| n.1).collect();
        assert_eq!(bytes, [2.0 * 128.0 * 128.0 * 8.0; 2]);
        assert!(levels[2].whole && levels[2].neighbours().is_empty());
        assert_eq!(levels[2].part, [32, 32, 32]);
    }

    #[test]
    fn slabs_end_where_ranks_would_have_less_than_four_planes() {
        let whole = |ranks| Division::slabs(1024, ranks, 32);
        assert_eq!(whole(8), Some(Division::Slabs { whole: 32 }));
        assert_eq!(whole(64), Some(Division::Slabs { whole: 128 }));
        assert_eq!([whole(512), Division::slabs(64, 64, 32)], [None, None]);
    }

    #[test]
    fn boxes_have_faces_and_edges_and_end_on_one_rank() {
        let levels = levels(16 * 8, [8, 8, 8], Division::Boxes);
        assert_eq!(levels[0].part, [16; 3]);
        assert_eq!(levels[0].neighbours().len(), 18);
        // 128, 64, 32 cells a side in boxes of 16, 8, 4; then fewer ranks with boxes of 4.
        let sharing: Vec<usize> = levels.iter().map(|level| level.ranks[0]).collect();
        assert_eq!(sharing, [8, 8, 8, 4, 2, 1, 1]);
    }
}
