//! How the cells of one box lie in memory: `[k][j][i]` with ghost layers and a padded row.
//!
//! Only arithmetic on offsets lives here; who owns a box and what its cells mean does not.

/// Storage layout of the cubic boxes of a level. All lengths are in elements (`f64`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoxGeometry {
    /// Interior cells per side.
    pub n: usize,
    /// Ghost layers on every side.
    pub ghosts: usize,
    /// Distance between `(i, j, k)` and `(i, j+1, k)`.
    pub pitch: usize,
    /// Distance between `(i, j, k)` and `(i, j, k+1)`.
    pub plane: usize,
    /// Elements of one box of one vector.
    pub volume: usize,
}

impl BoxGeometry {
    /// The layout of boxes of `n`³ cells with `ghosts` layers around them. Rows are padded to a multiple
    /// of eight elements, a cache line.
    pub fn new(n: usize, ghosts: usize) -> Self {
        let pitch = (n + 2 * ghosts).next_multiple_of(8);
        let plane = pitch * (n + 2 * ghosts);
        Self { n, ghosts, pitch, plane, volume: plane * (n + 2 * ghosts) }
    }

    /// Offset of cell `(i, j, k)` from the start of its box; ghosts have negative indices or indices
    /// from `n` on.
    #[inline(always)]
    pub fn at(&self, i: isize, j: isize, k: isize) -> usize {
        let g = self.ghosts as isize;
        assert!(i >= -g && j >= -g && k >= -g, "cell ({i}, {j}, {k}) is beyond {g} ghosts");
        ((i + g) + (j + g) * self.pitch as isize + (k + g) * self.plane as isize) as usize
    }

    /// Offset of the first cell of interior row `(j, k)`.
    #[inline(always)]
    pub fn row(&self, j: usize, k: usize) -> usize {
        self.ghosts + (j + self.ghosts) * self.pitch + (k + self.ghosts) * self.plane
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_padded_to_eight_and_the_origin_skips_the_ghosts() {
        let g = BoxGeometry::new(16, 1);
        assert_eq!((g.pitch, g.plane, g.volume), (24, 432, 7776));
        assert_eq!(g.at(0, 0, 0), g.row(0, 0));
        assert_eq!(g.at(-1, -1, -1), 0);
        assert_eq!(g.at(2, 3, 4), g.row(3, 4) + 2);
    }
}
