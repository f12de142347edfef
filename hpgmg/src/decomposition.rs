//! The level hierarchy and who owns which box: box counts, box merging, rank thinning and the Z curve.
//!
//! Pure arithmetic on the command line's numbers; nothing is allocated here but the plan itself, so
//! that a problem that does not fit is refused first. Sections 2 and 3 of the HPGMG-FV description.

use crate::error::ConfigError;
use crate::options::{Boundary, Config};

/// Largest odd factor of the domain's side that a hierarchy may end in (MAX_COARSE_DIM).
pub const MAX_COARSE_DIM: usize = 11;
/// Boxes up to this many cells per side merge before they are halved further (MG_AGGLOMERATION_START).
pub const AGGLOMERATION_START: usize = 8;

/// One level of the hierarchy as every rank sees it.
///
/// ```
/// use hpgmg::decomposition::hierarchy;
/// use hpgmg::options::Config;
///
/// // Four ranks that want eight boxes of 32³ each: 3³ boxes, 96³ cells.
/// let levels = hierarchy(&Config { boxes_per_rank: 8, ..Config::default() }, 4)?;
/// let finest = &levels[0];
/// assert_eq!((finest.dim, finest.boxes(), finest.owners()), (96, 27, 4));
/// assert_eq!(levels.iter().map(|level| level.dim).collect::<Vec<_>>(), [96, 48, 24, 12, 6, 3]);
/// # Ok::<(), hpgmg::error::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LevelShape {
    /// Cells per side of the domain.
    pub dim: usize,
    /// Boxes per side of the domain.
    pub boxes_per_side: usize,
    /// Cells per side of a box.
    pub box_dim: usize,
    /// Ranks among which the boxes are dealt out (some may get none).
    pub ranks: usize,
    /// Cell size.
    pub h: f64,
    /// Owner of each box, by box id `bi + m (bj + m bk)`.
    pub rank_of_box: Vec<u32>,
}

impl LevelShape {
    fn new(dim: usize, boxes_per_side: usize, ranks: usize, h: f64) -> Self {
        let rank_of_box = owners(boxes_per_side, ranks);
        Self { dim, boxes_per_side, box_dim: dim / boxes_per_side, ranks, h, rank_of_box }
    }

    /// Number of boxes of the level.
    pub fn boxes(&self) -> usize {
        self.boxes_per_side.pow(3)
    }

    /// Position of box `id` in the grid of boxes.
    pub fn coordinates(&self, id: usize) -> [usize; 3] {
        let m = self.boxes_per_side;
        [id % m, id / m % m, id / (m * m)]
    }

    /// Box id at a position in the grid of boxes.
    pub fn id(&self, at: [usize; 3]) -> usize {
        at[0] + self.boxes_per_side * (at[1] + self.boxes_per_side * at[2])
    }

    /// Ids of the boxes of `rank`, increasing.
    pub fn boxes_of(&self, rank: usize) -> Vec<usize> {
        (0..self.boxes()).filter(|&b| self.rank_of_box[b] as usize == rank).collect()
    }

    /// Number of ranks that own at least one box.
    pub fn owners(&self) -> usize {
        let mut ranks = self.rank_of_box.clone();
        ranks.sort_unstable();
        ranks.dedup();
        ranks.len()
    }
}

/// The largest number of boxes per side, `m`, with `m³ <= target` and the odd part of `box_dim * m` at
/// most [`MAX_COARSE_DIM`].
pub fn boxes_per_side(box_dim: usize, target: usize) -> Option<usize> {
    let mut largest = 0usize;
    while (largest + 1).checked_pow(3).is_some_and(|cube| cube <= target) {
        largest += 1;
    }
    (1..=largest).rev().find(|m| odd_part(box_dim * m) <= MAX_COARSE_DIM)
}

fn odd_part(n: usize) -> usize {
    n >> n.trailing_zeros()
}

/// The hierarchy of `config` on `ranks` ranks, finest level first.
///
/// # Errors
/// [`ConfigError`] when there is no decomposition, or when the boundary does not allow the size.
pub fn hierarchy(config: &Config, ranks: usize) -> Result<Vec<LevelShape>, ConfigError> {
    let box_dim = config.box_dim;
    let target = config.boxes_per_rank.saturating_mul(ranks);
    let m = boxes_per_side(box_dim, target)
        .ok_or(ConfigError::NoDecomposition { boxes_per_rank: config.boxes_per_rank, ranks })?;
    let periodic = config.boundary == Boundary::Periodic;
    let min_dim = if periodic { 2 } else { 1 };
    if periodic && !m.is_power_of_two() {
        return Err(ConfigError::PeriodicOdd { boxes: m.pow(3), dim: m * box_dim });
    }
    let radius = config.operator.radius();
    let dim = m * box_dim;
    let mut bottom = dim;
    while bottom.is_multiple_of(2) && bottom >= 2 * min_dim {
        bottom /= 2;
    }
    let d = bottom;

    let mut levels = vec![LevelShape::new(dim, m, ranks, 1.0 / dim as f64)];
    loop {
        let fine = &levels[levels.len() - 1];
        let (dim, n, m, p) = (fine.dim, fine.box_dim, fine.boxes_per_side, fine.ranks);
        if dim % 2 != 0 || dim / 2 < min_dim {
            break;
        }
        // The first rule that applies: (boxes per side, ranks) of the coarser level.
        let (m, p) = if n % 2 == 0 && n > AGGLOMERATION_START && n / 2 >= radius {
            (m, p)
        } else if m % 2 == 0 && n >= radius {
            (m / 2, p)
        } else if d != 1 && dim == 2 * d && dim / 2 >= radius {
            (1, 1)
        } else if n % 2 != 0 || n / 2 < radius {
            break;
        } else if d != 1 && dim == 4 * d {
            (m, p.min(d))
        } else if d != 1 && dim == 8 * d {
            (m, p.min(d * d))
        } else {
            (m, p)
        };
        let h = 2.0 * fine.h;
        levels.push(LevelShape::new(dim / 2, m, p, h));
    }
    Ok(levels)
}

/// The owner of every box: position on the recursive Z curve, dealt out evenly.
fn owners(m: usize, ranks: usize) -> Vec<u32> {
    let mut owner = vec![0u32; m.pow(3)];
    let mut position = 0usize;
    visit([0; 3], [m; 3], &mut |at| {
        let id = at[0] + m * (at[1] + m * at[2]);
        owner[id] = ((ranks as u128 * position as u128) / m.pow(3) as u128) as u32;
        position += 1;
    });
    owner
}

fn visit(lo: [usize; 3], dims: [usize; 3], visitor: &mut impl FnMut([usize; 3])) {
    if dims.contains(&0) {
        return;
    }
    if dims == [1, 1, 1] {
        return visitor(lo);
    }
    for child in 0..8usize {
        let (mut at, mut size) = (lo, dims);
        for axis in 0..3 {
            let low = dims[axis] / 2;
            if child >> axis & 1 == 0 {
                size[axis] = low;
            } else {
                at[axis] += low;
                size[axis] = dims[axis] - low;
            }
        }
        visit(at, size, visitor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Operator;

    fn config(operator: Operator, log2: u32, boxes: usize) -> Config {
        Config { operator, box_dim: 1 << log2, boxes_per_rank: boxes, ..Config::default() }
    }

    fn dims(config: &Config, ranks: usize) -> Vec<(usize, usize, usize, usize)> {
        let levels = hierarchy(config, ranks).unwrap();
        levels.iter().map(|l| (l.dim, l.box_dim, l.boxes_per_side, l.ranks)).collect()
    }

    #[test]
    fn box_counts_are_the_largest_cubes_with_a_small_odd_part() {
        let m = |target| boxes_per_side(64, target);
        assert_eq!(m(0), None);
        assert_eq!(
            [m(1), m(8), m(27), m(32), m(64)],
            [Some(1), Some(2), Some(3), Some(3), Some(4)]
        );
        assert_eq!(m(125), Some(5));
        assert_eq!(m(13 * 13 * 13), Some(12), "13 is beyond the largest coarse grid");
    }

    #[test]
    fn power_of_two_boxes_merge_at_eight_cells_and_end_at_the_stencil_radius() {
        assert_eq!(
            dims(&config(Operator::Fv2, 5, 8), 1),
            [
                (64, 32, 2, 1),
                (32, 16, 2, 1),
                (16, 8, 2, 1),
                (8, 8, 1, 1),
                (4, 4, 1, 1),
                (2, 2, 1, 1),
                (1, 1, 1, 1)
            ]
        );
        let fv4 = dims(&config(Operator::Fv4, 5, 8), 1);
        assert_eq!(fv4.last(), Some(&(2, 2, 1, 1)));
    }

    #[test]
    fn odd_box_counts_thin_out_their_ranks_before_the_single_box() {
        assert_eq!(
            dims(&config(Operator::Fv4, 6, 7), 4)[..4],
            [(192, 64, 3, 4), (96, 32, 3, 4), (48, 16, 3, 4), (24, 8, 3, 4)]
        );
        assert_eq!(
            dims(&config(Operator::Fv4, 6, 7), 4)[4..],
            [(12, 4, 3, 4), (6, 2, 3, 3), (3, 3, 1, 1)]
        );
    }

    #[test]
    fn the_curve_is_morton_order_for_powers_of_two() {
        assert_eq!(owners(2, 8), [0, 1, 2, 3, 4, 5, 6, 7]);
        let four = owners(4, 8);
        assert_eq!(four[0], four[1]);
        assert_eq!(four[2], 1, "the next octant along i");
        assert_eq!(four[4 * 2], 2, "then along j");
        assert_eq!(four[16 * 2], 4, "then along k");
    }

    #[test]
    fn every_box_has_an_owner_also_with_more_ranks_than_boxes() {
        let owner = owners(2, 16);
        assert_eq!(owner, [0, 2, 4, 6, 8, 10, 12, 14]);
    }
}
