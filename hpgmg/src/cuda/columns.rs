//! How a launch that marches through the columns of a level (`cuda/column.cuh`) is cut into blocks.

use super::device::{BLOCK_PAIRS, BLOCK_ROWS};

/// Cells along i and rows of a block, and the most planes that it marches through: with more the last blocks run alone
/// (measured on an H200).
const COLUMN: (usize, usize) = (2 * BLOCK_PAIRS as usize, BLOCK_ROWS as usize);
const MOST_PLANES: usize = 16;
/// The same for levels whose planes under way do not fit the second-level cache: every block then brings the planes around
/// its own from memory again, a sixth of the coefficients' bytes with 16. At 512³ on an H200 48.1 ms a solve, with 32 to 64
/// 47.2 to 47.6.
const MOST_PLANES_FAR: usize = 40;

/// Blocks that a multiprocessor runs at once.
const AT_ONCE: usize = 2;

/// The blocks of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    /// Blocks along i, along j and along k.
    pub grid: (u32, u32, u32),
    /// Planes that a block marches through; the last ones along k may have fewer.
    pub planes: usize,
}

/// For `planes` planes of a level of `n` cells a side, whose planes under way do not fit the second-level cache if `far`;
/// none if the level has no such kernels. Small levels are cut into as many blocks as run at once.
pub(super) fn columns(
    n: usize,
    planes: usize,
    multiprocessors: usize,
    far: bool,
) -> Option<Blocks> {
    if !n.is_multiple_of(COLUMN.0) || !planes.is_multiple_of(2) || planes < 4 {
        return None;
    }
    let (x, y) = (n / COLUMN.0, n / COLUMN.1);
    // Along k as many blocks as whole layers of them run at once: a few more would run when all others are over.
    let layers = (AT_ONCE * multiprocessors / (x * y)).max(1);
    let each = planes.div_ceil(layers);
    let most = if far { MOST_PLANES_FAR } else { MOST_PLANES };
    // As equal as even numbers of planes can be: a short last one leaves multiprocessors idle.
    let each = planes.div_ceil(planes.div_ceil(each.clamp(2, most))).next_multiple_of(2);
    Some(Blocks { grid: (x as u32, y as u32, planes.div_ceil(each) as u32), planes: each })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of an H100 or H200.
    const MULTIPROCESSORS: usize = 132;

    fn of(n: usize, planes: usize) -> (usize, u32) {
        let blocks = columns(n, planes, MULTIPROCESSORS, n >= 512).unwrap();
        (blocks.planes, blocks.grid.0 * blocks.grid.1 * blocks.grid.2)
    }

    #[test]
    fn small_levels_run_at_once_and_large_ones_are_cut_into_columns_of_16_planes() {
        assert_eq!([of(64, 64), of(128, 128), of(256, 256)], [(2, 256), (16, 256), (16, 2048)]);
        assert_eq!([of(64, 16), of(128, 32), of(256, 64)], [(2, 64), (4, 256), (16, 512)]);
        assert_eq!([of(512, 512), of(512, 128)], [(40, 6656), (32, 2048)]);
    }

    #[test]
    fn what_can_run_at_once_is_not_cut_into_more() {
        for n in (64..=256).step_by(64) {
            for planes in (4..=n).step_by(2) {
                let (each, blocks) = of(n, planes);
                let (columns, at_once) = (n / COLUMN.0 * (n / COLUMN.1), AT_ONCE * MULTIPROCESSORS);
                let possible = columns * planes.div_ceil(MOST_PLANES) <= at_once;
                assert!(
                    !possible || blocks as usize <= at_once,
                    "{n} {planes}: {blocks} of {each}"
                );
            }
        }
    }

    /// The numbers of `docs/hpgmg-gpu.md`.
    #[test]
    fn the_page_about_gpus_states_these_blocks_of_384_cells_on_four_ranks() {
        assert_eq!([of(384, 96), of(192, 48)], [(16, 1728), (16, 216)]);
        assert_eq!(columns(96, 24, MULTIPROCESSORS, false), None);
    }
}
