//! One pass of an operator over a tile: apply, residual, or one smoothing step, out of place.
//!
//! Each pass exists in versions for the vector instructions of the machine, picked once. The versions
//! compute the same bits: no fused multiply-add, no reordering.

use crate::geometry::BoxGeometry;
use crate::isa::Isa;
use crate::lanes::{self, Lanes, prefetch};
use crate::operators::{
    BoxView, Coefficients, Finish, Stencil, Tile, fv4::Fv4, p27::P27, second_order::SecondOrder,
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
    /// The vectors of the level are in memory, not in a cache.
    pub in_memory: bool,
    /// What to do.
    pub update: Update<'a>,
}

/// Runs a pass of `operator` over `tile`.
///
/// # Safety
/// Nobody else touches the rows of `tile` in the output vector.
///
/// # Panics
/// When a vector is shorter than a box, the tile reaches beyond it, or its ghosts are too shallow.
pub unsafe fn run(isa: Isa, operator: Operator, pass: &Pass<'_>, tile: &Tile, scratch: &mut [f64]) {
    // SAFETY: by the caller's promise.
    unsafe {
        match operator {
            Operator::Fv4 => with_update(isa, Fv4, pass, tile, scratch),
            Operator::Fv2 | Operator::P7 => with_update(isa, SecondOrder, pass, tile, scratch),
            Operator::P27 => with_update(isa, P27, pass, tile, scratch),
        }
    }
}

/// Checks what the loops rely on: from here on there are only pointers.
fn view<S: Stencil>(pass: &Pass<'_>, tile: &Tile) -> BoxView {
    let g = pass.geometry;
    let c = &pass.coefficients;
    // Not all boxes are cubes: a patch has its own numbers of rows and planes.
    let (rows, planes) = (g.plane / g.pitch - 2 * g.ghosts, g.volume / g.plane - 2 * g.ghosts);
    assert!(tile.j.end <= rows && tile.k.end <= planes, "tile outside of its box");
    assert!(g.ghosts >= S::RADIUS, "ghosts shallower than the stencil");
    let start = |vector: &[f64]| {
        assert!(vector.len() >= g.volume, "vector shorter than its box");
        vector.as_ptr()
    };
    let parity = match pass.update {
        Update::Gsrb { parity, .. } => parity,
        _ => 0,
    };
    BoxView {
        geometry: g,
        x: start(pass.x),
        beta: c.beta.map(start),
        identity: (!c.alpha.is_empty()).then(|| (start(c.alpha), c.a)),
        divergence: c.b * c.h2inv,
        out: pass.out.start(pass.base, g.volume),
        in_memory: pass.in_memory,
        parity,
    }
}

unsafe fn with_update<S: Stencil>(
    isa: Isa,
    stencil: S,
    pass: &Pass<'_>,
    tile: &Tile,
    scratch: &mut [f64],
) {
    let view = view::<S>(pass, tile);
    let start = |vector: &[f64]| {
        assert!(vector.len() >= view.geometry.volume, "vector shorter than its box");
        vector.as_ptr()
    };
    // SAFETY: `view` has checked the vectors, `start` those of the update.
    unsafe {
        match pass.update {
            Update::Apply => with_lanes(isa, stencil, &view, tile, scratch, Apply),
            Update::Residual { rhs } => {
                with_lanes(isa, stencil, &view, tile, scratch, Residual { rhs: start(rhs) });
            }
            Update::Gsrb { rhs, dinv, .. } => {
                let finish = Gsrb { rhs: start(rhs), dinv: start(dinv) };
                with_lanes(isa, stencil, &view, tile, scratch, finish);
            }
            Update::Weighted { rhs, weight, scale } => {
                let finish = Weighted { rhs: start(rhs), weight: start(weight), scale };
                with_lanes(isa, stencil, &view, tile, scratch, finish);
            }
            Update::Chebyshev { rhs, dinv, c1, c2 } => {
                let (rhs, dinv) = (start(rhs), start(dinv));
                if c1 == 0.0 {
                    let finish = Weighted { rhs, weight: dinv, scale: c2 };
                    with_lanes(isa, stencil, &view, tile, scratch, finish);
                } else {
                    let finish = Chebyshev { rhs, dinv, c1, c2, before: view.out };
                    with_lanes(isa, stencil, &view, tile, scratch, finish);
                }
            }
        }
    }
}

/// # Safety
/// As of [`Stencil::rows`], but for the instructions.
unsafe fn with_lanes<S: Stencil, F: Finish>(
    isa: Isa,
    stencil: S,
    view: &BoxView,
    tile: &Tile,
    scratch: &mut [f64],
    finish: F,
) {
    // SAFETY: `Isa::detect` has seen the features; the rest by the caller's promise.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => isa.call(
                #[inline(always)]
                || stencil.rows::<lanes::Eight>(view, tile, scratch, finish),
            ),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => isa.call(
                #[inline(always)]
                || stencil.rows::<lanes::Four>(view, tile, scratch, finish),
            ),
            _ => stencil.rows::<lanes::Pair>(view, tile, scratch, finish),
        }
    }
}

#[derive(Clone, Copy)]
struct Apply;

impl Finish for Apply {
    #[inline(always)]
    unsafe fn cells<V: Lanes>(self, _at: usize, _x: V, ax: V, _mask: V::Mask) -> V {
        ax
    }

    #[inline(always)]
    fn prefetch(self, _at: usize) {}
}

/// `rhs - A x` of the cells from `at` on.
///
/// # Safety
/// As of [`Finish::cells`]; `rhs` has a box of elements.
#[inline(always)]
unsafe fn residual<V: Lanes>(rhs: *const f64, at: usize, ax: V) -> V {
    // SAFETY: by the caller's promise.
    unsafe { V::load(rhs.add(at)) - ax }
}

#[derive(Clone, Copy)]
struct Residual {
    rhs: *const f64,
}

impl Finish for Residual {
    #[inline(always)]
    unsafe fn cells<V: Lanes>(self, at: usize, _x: V, ax: V, _mask: V::Mask) -> V {
        // SAFETY: by the caller's promise.
        unsafe { residual(self.rhs, at, ax) }
    }

    #[inline(always)]
    fn prefetch(self, at: usize) {
        prefetch(self.rhs, at);
    }
}

/// `x + Dinv (rhs - A x)` in the cells of one colour.
#[derive(Clone, Copy)]
pub(crate) struct Gsrb {
    /// Right-hand side.
    pub rhs: *const f64,
    /// Inverse diagonal.
    pub dinv: *const f64,
}

impl Finish for Gsrb {
    #[inline(always)]
    unsafe fn cells<V: Lanes>(self, at: usize, x: V, ax: V, mask: V::Mask) -> V {
        // SAFETY: by the caller's promise.
        let new = unsafe { x + V::load(self.dinv.add(at)) * residual(self.rhs, at, ax) };
        V::select(mask, new, x)
    }

    #[inline(always)]
    fn prefetch(self, at: usize) {
        prefetch(self.rhs, at);
        prefetch(self.dinv, at);
    }
}

#[derive(Clone, Copy)]
struct Weighted {
    rhs: *const f64,
    weight: *const f64,
    scale: f64,
}

impl Finish for Weighted {
    #[inline(always)]
    unsafe fn cells<V: Lanes>(self, at: usize, x: V, ax: V, _mask: V::Mask) -> V {
        // SAFETY: by the caller's promise.
        unsafe {
            let weight = V::splat(self.scale) * V::load(self.weight.add(at));
            x + weight * residual(self.rhs, at, ax)
        }
    }

    #[inline(always)]
    fn prefetch(self, at: usize) {
        prefetch(self.rhs, at);
        prefetch(self.weight, at);
    }
}

#[derive(Clone, Copy)]
struct Chebyshev {
    rhs: *const f64,
    dinv: *const f64,
    c1: f64,
    c2: f64,
    before: *const f64,
}

impl Finish for Chebyshev {
    #[inline(always)]
    unsafe fn cells<V: Lanes>(self, at: usize, x: V, ax: V, _mask: V::Mask) -> V {
        // SAFETY: by the caller's promise; `before` is the output, read before it is written.
        unsafe {
            let step = V::splat(self.c1) * (x - V::load(self.before.add(at)));
            let weight = V::splat(self.c2) * V::load(self.dinv.add(at));
            x + step + weight * residual(self.rhs, at, ax)
        }
    }

    #[inline(always)]
    fn prefetch(self, at: usize) {
        prefetch(self.rhs, at);
        prefetch(self.dinv, at);
    }
}
