//! One pass of an operator over a tile: apply, residual, or one smoothing step, out of place.
//!
//! Each pass exists in versions for the vector instructions of the machine, picked once. The versions
//! compute the same bits: no fused multiply-add, no reordering.

use crate::geometry::BoxGeometry;
use crate::operators::{
    Coefficients, Row, Stencil, Tile, fv4::Fv4, p27::P27, second_order::SecondOrder,
};
use crate::options::Operator;
use crate::rows::SharedVector;

/// What is done with each row of `A x`. Slices are one box of a vector.
#[derive(Clone, Copy)]
pub enum Update<'a> {
    /// `out = A x`.
    Apply,
    /// `out = rhs - A x`.
    Residual {
        /// Right-hand side.
        rhs: &'a [f64],
    },
    /// One half-sweep: cells with `(i + j + k + parity) % 2 == 0` of the box get `x + Dinv (rhs - A x)`,
    /// the others `x`.
    Gsrb {
        /// Right-hand side.
        rhs: &'a [f64],
        /// Inverse diagonal.
        dinv: &'a [f64],
        /// Which colour.
        parity: usize,
    },
    /// `out = x + scale weight (rhs - A x)`.
    Weighted {
        /// Right-hand side.
        rhs: &'a [f64],
        /// Inverse diagonal or L1 weight.
        weight: &'a [f64],
        /// Damping.
        scale: f64,
    },
    /// `out = x + c1 (x - out) + c2 Dinv (rhs - A x)`: `out` holds the iterate before `x`. With `c1` zero
    /// `out` is not read.
    Chebyshev {
        /// Right-hand side.
        rhs: &'a [f64],
        /// Inverse diagonal.
        dinv: &'a [f64],
        /// Weight of the last step.
        c1: f64,
        /// Weight of the residual.
        c2: f64,
    },
}

/// The vector instructions to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// What every machine of the architecture has.
    Baseline,
    /// 256-bit vectors.
    Avx2,
    /// 512-bit vectors.
    Avx512,
}

impl Isa {
    /// The widest this machine has.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512bw")
            {
                return Self::Avx512;
            }
            if is_x86_feature_detected!("avx2") {
                return Self::Avx2;
            }
        }
        Self::Baseline
    }
}

impl Isa {
    /// Calls `f` compiled for these instructions; `f` and what it calls must be inlined for that to
    /// have an effect.
    #[inline(always)]
    pub fn call<R>(self, f: impl FnOnce() -> R) -> R {
        match self {
            // SAFETY: `detect` has seen the features.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => unsafe { call_avx512(f) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => unsafe { call_avx2(f) },
            _ => f(),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw")]
fn call_avx512<R>(f: impl FnOnce() -> R) -> R {
    f()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn call_avx2<R>(f: impl FnOnce() -> R) -> R {
    f()
}

/// One box of everything a pass reads, and where it writes.
pub struct Pass<'a> {
    /// Layout of the box.
    pub geometry: BoxGeometry,
    /// Coefficients of the box.
    pub coefficients: Coefficients<'a>,
    /// The vector, ghosts valid.
    pub x: &'a [f64],
    /// The whole output vector (all boxes).
    pub out: SharedVector<'a>,
    /// Offset of the box in the output vector.
    pub base: usize,
    /// What to do.
    pub update: Update<'a>,
}

/// Runs a pass of `operator` over `tile`.
///
/// # Safety
/// Nobody else touches the rows of `tile` in the output vector.
pub unsafe fn run(isa: Isa, operator: Operator, pass: &Pass<'_>, tile: &Tile, scratch: &mut [f64]) {
    // SAFETY: by the caller's promise.
    unsafe {
        match operator {
            Operator::Fv4 => dispatch(isa, Fv4, pass, tile, scratch),
            Operator::Fv2 | Operator::P7 => dispatch(isa, SecondOrder, pass, tile, scratch),
            Operator::P27 => dispatch(isa, P27, pass, tile, scratch),
        }
    }
}

unsafe fn dispatch<S: Stencil>(isa: Isa, s: S, pass: &Pass<'_>, tile: &Tile, scratch: &mut [f64]) {
    // SAFETY: `Isa::detect` has seen the features; the rest by the caller's promise.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => body_avx512(s, pass, tile, scratch),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => body_avx2(s, pass, tile, scratch),
            _ => body(s, pass, tile, scratch),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw")]
unsafe fn body_avx512<S: Stencil>(s: S, pass: &Pass<'_>, tile: &Tile, scratch: &mut [f64]) {
    // SAFETY: by the caller's promise.
    unsafe { body(s, pass, tile, scratch) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn body_avx2<S: Stencil>(s: S, pass: &Pass<'_>, tile: &Tile, scratch: &mut [f64]) {
    // SAFETY: by the caller's promise.
    unsafe { body(s, pass, tile, scratch) }
}

#[inline(always)]
unsafe fn body<S: Stencil>(stencil: S, pass: &Pass<'_>, tile: &Tile, scratch: &mut [f64]) {
    let g = &pass.geometry;
    let n = g.n;
    let (c, x) = (&pass.coefficients, pass.x);
    // SAFETY: a row of the tile, by the caller's promise nobody else's.
    let out = |row: Row| unsafe { pass.out.row(pass.base + row.at, n) };
    #[inline(always)]
    fn of(vector: &[f64], row: Row, n: usize) -> &[f64] {
        &vector[row.at..row.at + n]
    }
    match pass.update {
        Update::Apply => {
            stencil.rows(
                g,
                c,
                x,
                tile,
                scratch,
                #[inline(always)]
                |row: Row, ax: &[f64]| out(row).copy_from_slice(ax),
            );
        }
        Update::Residual { rhs } => stencil.rows(
            g,
            c,
            x,
            tile,
            scratch,
            #[inline(always)]
            |row: Row, ax: &[f64]| {
                let (out, rhs) = (out(row), of(rhs, row, n));
                for i in 0..n {
                    out[i] = rhs[i] - ax[i];
                }
            },
        ),
        Update::Gsrb { rhs, dinv, parity } => stencil.rows(
            g,
            c,
            x,
            tile,
            scratch,
            #[inline(always)]
            |row: Row, ax: &[f64]| {
                let (out, rhs, dinv, x) =
                    (out(row), of(rhs, row, n), of(dinv, row, n), of(x, row, n));
                let p = row.j + row.k + parity;
                for i in 0..n {
                    let new = x[i] + dinv[i] * (rhs[i] - ax[i]);
                    out[i] = if (i + p).is_multiple_of(2) { new } else { x[i] };
                }
            },
        ),
        Update::Weighted { rhs, weight, scale } => {
            stencil.rows(
                g,
                c,
                x,
                tile,
                scratch,
                #[inline(always)]
                |row: Row, ax: &[f64]| {
                    let (out, rhs, w, x) =
                        (out(row), of(rhs, row, n), of(weight, row, n), of(x, row, n));
                    for i in 0..n {
                        out[i] = x[i] + scale * w[i] * (rhs[i] - ax[i]);
                    }
                },
            );
        }
        Update::Chebyshev { rhs, dinv, c1, c2 } => {
            stencil.rows(
                g,
                c,
                x,
                tile,
                scratch,
                #[inline(always)]
                |row: Row, ax: &[f64]| {
                    let (out, rhs, dinv, x) =
                        (out(row), of(rhs, row, n), of(dinv, row, n), of(x, row, n));
                    if c1 == 0.0 {
                        for i in 0..n {
                            out[i] = x[i] + c2 * dinv[i] * (rhs[i] - ax[i]);
                        }
                    } else {
                        for i in 0..n {
                            out[i] = x[i] + c1 * (x[i] - out[i]) + c2 * dinv[i] * (rhs[i] - ax[i]);
                        }
                    }
                },
            );
        }
    }
}
