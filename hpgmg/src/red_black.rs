//! A red and a black half-sweep of a 7-cell operator in one pass over memory, in place.
//!
//! A cell of such an operator has neighbours of the other colour only, so it can be updated in place,
//! and a plane may turn black as soon as the planes around it are red: while it is still in the cache.
//! The black cells next to another box, or to the boundary, have to wait until the halo has the red
//! values: [`shell`] updates them. The bits are those of two half-sweeps out of place.
//!
//! For one thread: tiles that run at the same time would read rows that others write. Not for the wider
//! stencils, whose cells have neighbours of their own colour.

use crate::geometry::BoxGeometry;
use crate::isa::Isa;
use crate::lanes::{self, Lanes};
use crate::operators::{
    BoxView, Coefficients, TILE_ROWS, Tile, each_row, put_cell, second_order::SecondOrder,
};
use crate::sweep::Gsrb;

/// Boxes with fewer cells per side are almost all shell.
pub const SMALLEST: usize = 32;

/// One box of a level.
pub struct RedBlack<'a> {
    /// Layout of the box.
    pub geometry: BoxGeometry,
    /// Coefficients of the box.
    pub coefficients: Coefficients<'a>,
    /// The iterate, ghosts valid.
    pub x: &'a mut [f64],
    /// Right-hand side.
    pub rhs: &'a [f64],
    /// Inverse diagonal.
    pub dinv: &'a [f64],
    /// Cells with an even `i + j + k + parity` are red.
    pub parity: usize,
}

/// Updates the red cells, and the black ones that have no ghost for a neighbour.
///
/// # Panics
/// When a vector is shorter than a box.
pub fn inner(isa: Isa, at: &mut RedBlack<'_>) {
    run(isa, at, Part::Inner);
}

/// Updates the other black cells; the ghosts have the red values.
///
/// # Panics
/// When a vector is shorter than a box.
pub fn shell(isa: Isa, at: &mut RedBlack<'_>) {
    run(isa, at, Part::Shell);
}

#[derive(Clone, Copy)]
enum Part {
    Inner,
    Shell,
}

fn run(isa: Isa, at: &mut RedBlack<'_>, part: Part) {
    let (g, c) = (at.geometry, &at.coefficients);
    let start = |vector: &[f64]| {
        assert!(vector.len() >= g.volume, "vector shorter than its box");
        vector.as_ptr()
    };
    assert!(g.ghosts >= 1 && at.x.len() >= g.volume, "vector shorter than its box");
    let out = at.x.as_mut_ptr();
    let red = BoxView {
        geometry: g,
        x: out,
        beta: c.beta.map(start),
        identity: (!c.alpha.is_empty()).then(|| (start(c.alpha), c.a)),
        divergence: c.b * c.h2inv,
        out,
        in_memory: false,
        parity: at.parity,
    };
    let black = BoxView { parity: at.parity + 1, ..red };
    let update = Gsrb { rhs: start(at.rhs), dinv: start(at.dinv) };
    // SAFETY: `Isa::detect` has seen the features; the vectors have a box each, and `x` is borrowed.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => isa.call(
                #[inline(always)]
                || part_of::<lanes::Eight>(part, &red, &black, update),
            ),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => isa.call(
                #[inline(always)]
                || part_of::<lanes::Four>(part, &red, &black, update),
            ),
            _ => part_of::<lanes::Pair>(part, &red, &black, update),
        }
    }
}

/// # Safety
/// The vectors of the views have a box each, nobody else touches `out`, and the machine has the
/// instructions of `V`.
#[inline(always)]
unsafe fn part_of<V: Lanes>(part: Part, red: &BoxView, black: &BoxView, update: Gsrb) {
    let n = red.geometry.n;
    let rows = |view: &BoxView, j: std::ops::Range<usize>, k: usize| {
        // SAFETY: rows of the box, by the caller's promise; a vector is read before it is written, and
        // of its neighbours only the cells that are not updated count.
        unsafe { each_row::<V, SecondOrder>(view, &Tile { index: 0, j, k: k..k + 1 }, update) };
    };
    match part {
        // Tile by tile along j, so that two planes of a tile stay in the second-level cache. The black
        // rows of a tile lag one behind the red ones: the last of them waits for the next tile.
        Part::Inner => {
            for start in (0..n).step_by(TILE_ROWS) {
                let end = (start + TILE_ROWS).min(n);
                let black_rows = start.max(2) - 1..end - 1;
                for k in 0..n {
                    rows(red, start..end, k);
                    if k < 2 {
                        continue;
                    }
                    for j in black_rows.clone() {
                        let row = red.geometry.row(j, k - 1);
                        // The two ends of a row belong to the shell: undo them.
                        // SAFETY: cells of the box.
                        unsafe {
                            let (first, last) = (red.out.add(row), red.out.add(row + n - 1));
                            let ends = (*first, *last);
                            rows(black, j..j + 1, k - 1);
                            (*first, *last) = ends;
                        }
                    }
                }
            }
        }
        Part::Shell => {
            for k in 0..n {
                if k == 0 || k == n - 1 {
                    rows(black, 0..n, k);
                    continue;
                }
                rows(black, 0..1, k);
                for j in 1..n - 1 {
                    let row = red.geometry.row(j, k);
                    for i in [0, n - 1] {
                        let mask = f64::mask(i + j + k + black.parity);
                        if mask {
                            // SAFETY: a cell of the box.
                            unsafe { put_cell::<SecondOrder>(black, row + i, mask, update) };
                        }
                    }
                }
                rows(black, n - 1..n, k);
            }
        }
    }
}
