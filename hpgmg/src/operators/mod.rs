//! The discrete operators: `A u = a alpha u - b div(beta grad u)` row by row.
//!
//! An operator is a [`Stencil`]: it computes `A x` of the rows of a tile, one after the other, from one
//! box of a vector with valid ghosts. What is done with a row (residual, smoothing step) is the
//! business of `sweep.rs`. Loops run along i over slices of equal length so that the compiler
//! vectorises them; there is no fused multiply-add, so results do not depend on the CPU.

pub mod fv4;
pub mod p27;
pub mod second_order;

use std::ops::Range;

use crate::geometry::BoxGeometry;

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

/// One row of a tile: where it is.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Offset of its first cell in the box.
    pub at: usize,
    /// Row of the box.
    pub j: usize,
    /// Plane of the box.
    pub k: usize,
}

/// A discrete operator.
pub trait Stencil: Copy + Send + Sync {
    /// Computes `A x` for every row of `tile`, planes outermost, and hands each row to `finish`.
    /// `scratch` has at least [`scratch_len`] elements.
    fn rows(
        &self,
        g: &BoxGeometry,
        c: &Coefficients<'_>,
        x: &[f64],
        tile: &Tile,
        scratch: &mut [f64],
        finish: impl FnMut(Row, &[f64]),
    );
}

/// Rows of a tile, so that the planes a stencil reads stay in the second-level cache.
pub const TILE_ROWS: usize = 32;

/// Scratch elements that a tile of boxes of `n` cells may need in any operator.
pub fn scratch_len(n: usize) -> usize {
    (n + 16) * (2 * TILE_ROWS + 8)
}

/// Adds the identity term to a row of `A x`.
#[inline(always)]
pub(crate) fn add_identity(c: &Coefficients<'_>, x: &[f64], at: usize, ax: &mut [f64]) {
    if c.alpha.is_empty() {
        return;
    }
    let n = ax.len();
    let (alpha, x) = (&c.alpha[at..at + n], &x[at..at + n]);
    for i in 0..n {
        ax[i] += c.a * alpha[i] * x[i];
    }
}
