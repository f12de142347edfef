//! The discrete operators: `A u = a alpha u - b div(beta grad u)` row by row.
//!
//! An operator is a [`Stencil`]: it computes `A x` of the rows of a tile, one after the other and some
//! cells at a time, from one box of a vector with valid ghosts. What is done with the values (residual,
//! smoothing step) is the business of a [`Finish`], see `sweep.rs`.

pub mod fv4;
pub mod p27;
pub mod second_order;

use std::ops::Range;

use crate::geometry::BoxGeometry;
use crate::lanes::Lanes;

/// The coefficients of one box, and the scalars of the equation.
#[derive(Clone, Copy)]
pub struct Coefficients<'a> {
    /// Face coefficients by normal, at the index of the cell whose low face it is.
    pub beta: [&'a [f64]; 3],
    /// Cell coefficient of the identity term; empty for Poisson.
    pub alpha: &'a [f64],
    /// Factor of the identity term.
    pub a: f64,
    /// Factor of the divergence term.
    pub b: f64,
    /// 1 / h².
    pub h2inv: f64,
}

/// A block of rows of one box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Position of the box among this rank's boxes.
    pub index: usize,
    /// Rows.
    pub j: Range<usize>,
    /// Planes.
    pub k: Range<usize>,
}

/// One box as the inner loops see it: where its vectors start. The vectors hold `geometry.volume`
/// elements each.
#[derive(Clone, Copy)]
pub struct BoxView {
    /// Layout.
    pub geometry: BoxGeometry,
    /// The vector the operator is applied to, ghosts valid.
    pub x: *const f64,
    /// Face coefficients.
    pub beta: [*const f64; 3],
    /// Cell coefficient of the identity term, if there is one, and its factor.
    pub identity: Option<(*const f64, f64)>,
    /// Factor of the divergence term over h².
    pub divergence: f64,
    /// Where the result goes; not the vector the operator is applied to.
    pub out: *mut f64,
    /// The vectors of the level are in memory, not in a cache.
    pub in_memory: bool,
    /// Cells with an even `i + j + k + parity` are of the colour to be updated.
    pub parity: usize,
}

/// What is done with values of `A x`.
pub trait Finish: Copy {
    /// The values of `out` for the cells from offset `at` of the box on, given those of `x` and `A x`;
    /// `mask` has the cells of the colour to be updated.
    ///
    /// # Safety
    /// The cells lie in the box, and this machine has the instructions of `V`.
    unsafe fn cells<V: Lanes>(self, at: usize, x: V, ax: V, mask: V::Mask) -> V;

    /// Asks for what it reads of its own at offset `at`.
    fn prefetch(self, at: usize);
}

/// A discrete operator.
pub trait Stencil: Copy {
    /// Cells it reads on either side.
    const RADIUS: usize;

    /// Computes `A x` for every row of `tile`, planes outermost, and writes what `finish` makes of it.
    /// `scratch` has at least [`scratch_len`] elements.
    ///
    /// # Safety
    /// The vectors of `view` have a box each, and nobody else touches the rows of the tile in `out`.
    /// `tile` lies in the box, whose ghosts are as deep as the stencil. The machine has the
    /// instructions of `V`.
    unsafe fn rows<V: Lanes>(
        self,
        view: &BoxView,
        tile: &Tile,
        scratch: &mut [f64],
        finish: impl Finish,
    );
}

impl BoxView {
    /// Adds the identity term to `divergence`, and writes what `finish` makes of the sum.
    ///
    /// # Safety
    /// As of [`Stencil::rows`]; the cells from `at` on lie in a row of the tile.
    #[inline(always)]
    unsafe fn put<V: Lanes>(&self, at: usize, divergence: V, mask: V::Mask, finish: impl Finish) {
        // SAFETY: by the caller's promise.
        unsafe {
            let x = V::load(self.x.add(at));
            let ax = match self.identity {
                Some((alpha, a)) => divergence + V::splat(a) * V::load(alpha.add(at)) * x,
                None => divergence,
            };
            finish.cells(at, x, ax, mask).store(self.out.add(at));
        }
    }
}

/// An operator that reads one cell on either side, and whose values at some cells need nothing from those before.
pub trait Cells: Copy {
    /// The divergence term of the cells from offset `at` on; `centre` are they and `low` those one
    /// before. (Loading `low` in a pass in place would wait for the store of the cells before.)
    ///
    /// # Safety
    /// As of [`Stencil::rows`]; the cells lie in a row of the tile.
    unsafe fn divergence<V: Lanes>(view: &BoxView, at: usize, centre: V, low: V) -> V;
}

impl<C: Cells> Stencil for C {
    const RADIUS: usize = 1;

    #[inline(always)]
    unsafe fn rows<V: Lanes>(
        self,
        view: &BoxView,
        tile: &Tile,
        _scratch: &mut [f64],
        finish: impl Finish,
    ) {
        // SAFETY: by the caller's promise.
        unsafe { each_row::<V, Self>(view, tile, finish) }
    }
}

/// [`Stencil::rows`] of such an operator.
///
/// # Safety
/// As there.
#[inline(always)]
pub(crate) unsafe fn each_row<V: Lanes, C: Cells>(
    view: &BoxView,
    tile: &Tile,
    finish: impl Finish,
) {
    let n = view.geometry.n;
    for k in tile.k.clone() {
        for j in tile.j.clone() {
            let at = view.geometry.row(j, k);
            let parity = view.parity + j + k;
            let (mut i, mask) = (0, V::mask(parity));
            // SAFETY: by the caller's promise; the cells of a row and the one before.
            unsafe {
                let x = view.x.add(at);
                let mut before = V::splat(*x.sub(1));
                while i + V::WIDTH <= n {
                    let centre = V::load(x.add(i));
                    let divergence = C::divergence(view, at + i, centre, centre.shifted(before));
                    view.put(at + i, divergence, mask, finish);
                    before = centre;
                    i += V::WIDTH;
                }
                while i < n {
                    put_cell::<C>(view, at + i, f64::mask(parity + i), finish);
                    i += 1;
                }
            }
        }
    }
}

/// What [`each_row`] does with a row, for the single cell at offset `at`.
///
/// # Safety
/// As there.
#[inline(always)]
pub(crate) unsafe fn put_cell<C: Cells>(
    view: &BoxView,
    at: usize,
    mask: bool,
    finish: impl Finish,
) {
    // SAFETY: by the caller's promise.
    unsafe {
        let (centre, low) = (*view.x.add(at), *view.x.add(at - 1));
        view.put(at, C::divergence(view, at, centre, low), mask, finish);
    }
}

/// Rows of a tile, so that the planes a stencil reads stay in the second-level cache.
pub const TILE_ROWS: usize = 32;

/// Scratch elements that a tile of boxes of `n` cells may need in any operator.
pub fn scratch_len(n: usize) -> usize {
    (n + 16) * (TILE_ROWS + 2)
}
