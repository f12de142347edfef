//! Fourth-order finite volume operator, 25 cells.
//!
//! Written as the divergence of face fluxes: the two cells of a face see the same flux with opposite
//! signs, bit for bit, so each flux is computed once: that of the low face along i comes from the
//! vector before, along j from the row before, along k from the plane before. Section 5 of the HPGMG-FV
//! description.

use super::{BoxView, Finish, Stencil, Tile};
use crate::lanes::{Lanes, prefetch};

/// The operator.
#[derive(Clone, Copy, Debug)]
pub struct Fv4;

/// Fluxes through faces of one normal, towards increasing index, times 12 h. `x` and `beta` start at
/// the cells behind the faces; `normal` is the distance to the cells before them, `sides` are those to
/// the neighbours in the two tangential directions.
///
/// # Safety
/// All these cells exist, and this machine has the instructions of `V`.
#[inline(always)]
unsafe fn flux<V: Lanes>(x: *const f64, beta: *const f64, normal: usize, sides: [usize; 2]) -> V {
    // SAFETY: by the caller's promise.
    unsafe {
        let difference = |x: *const f64| V::load(x) - V::load(x.sub(normal));
        let far = V::load(x.add(normal)) - V::load(x.sub(2 * normal));
        let straight = V::load(beta) * (V::splat(15.0) * difference(x) - far);
        let along = |side: usize| {
            let beta = V::load(beta.add(side)) - V::load(beta.sub(side));
            beta * (difference(x.add(side)) - difference(x.sub(side)))
        };
        straight + V::splat(0.25) * (along(sides[0]) + along(sides[1]))
    }
}

/// The fluxes through the faces of normal j or k of one row.
///
/// # Safety
/// As of [`flux`], for `out.len()` cells.
#[inline(always)]
unsafe fn flux_row<V: Lanes>(
    x: *const f64,
    beta: *const f64,
    normal: usize,
    side: usize,
    out: &mut [f64],
) {
    let mut i = 0;
    while i + V::WIDTH <= out.len() {
        // SAFETY: by the caller's promise.
        unsafe { flux::<V>(x.add(i), beta.add(i), normal, [1, side]).store(&mut out[i]) };
        i += V::WIDTH;
    }
    while i < out.len() {
        // SAFETY: by the caller's promise.
        out[i] = unsafe { flux(x.add(i), beta.add(i), normal, [1, side]) };
        i += 1;
    }
}

/// What is known of the low faces of some cells.
#[derive(Clone, Copy)]
struct LowFaces<V> {
    /// Flux through the faces of normal i of the cells before.
    i: V,
    /// Fluxes through the low faces of normal j; those through the high ones take their place.
    j: *mut f64,
    /// The same for normal k.
    k: *mut f64,
}

/// `A x` of the cells from offset `at` on; returns the fluxes through their high faces of normal i.
///
/// # Safety
/// As of [`Stencil::rows`]; the cells from `at` on lie in a row of the tile, and `low` has room for as
/// many.
#[inline(always)]
unsafe fn cells<V: Lanes>(
    view: &BoxView,
    at: usize,
    scale: f64,
    low: LowFaces<V>,
    mask: V::Mask,
    finish: impl Finish,
) -> V {
    let (pitch, plane) = (view.geometry.pitch, view.geometry.plane);
    // SAFETY: two cells around the row exist in every direction, or their padding; the rest by the
    // caller's promise.
    unsafe {
        let high = |axis: usize, normal: usize, sides: [usize; 2]| {
            flux::<V>(view.x.add(at + normal), view.beta[axis].add(at + normal), normal, sides)
        };
        let i = high(0, 1, [pitch, plane]);
        let j = high(1, pitch, [1, plane]);
        let k = high(2, plane, [1, pitch]);
        let sum = (i - i.shifted(low.i)) + (j - V::load(low.j)) + (k - V::load(low.k));
        j.store(low.j);
        k.store(low.k);
        view.put(at, V::splat(scale) * sum, mask, finish);
        i
    }
}

/// Asks for what the plane after that of offset `at` reads for the first time. The hardware does so late: there are
/// seven vectors, and five planes of `x`. One line of each at a time: more at once wait for each other.
#[inline(always)]
fn prefetch_next(view: &BoxView, at: usize, finish: impl Finish) {
    let plane = view.geometry.plane;
    prefetch(view.x, at + 3 * plane);
    view.beta.iter().for_each(|beta| prefetch(*beta, at + 2 * plane));
    finish.prefetch(at + plane);
    prefetch(view.out, at + plane);
}

impl Stencil for Fv4 {
    const RADIUS: usize = 2;

    #[inline(always)]
    unsafe fn rows<V: Lanes>(
        self,
        view: &BoxView,
        tile: &Tile,
        scratch: &mut [f64],
        finish: impl Finish,
    ) {
        let g = &view.geometry;
        let (n, pitch, plane) = (g.n, g.pitch, g.plane);
        let [beta_i, beta_j, beta_k] = view.beta;
        let scale = -view.divergence * (1.0 / 12.0);
        // Rows of fluxes start on multiples of eight elements.
        let len = n.next_multiple_of(8);
        let (of_j, of_k) = scratch.split_at_mut(len);
        let of_j = &mut of_j[..n];
        // SAFETY: by the caller's promise; faces of the rows of the tile.
        unsafe {
            for (j, of_k) in tile.j.clone().zip(of_k.chunks_mut(len)) {
                let at = g.row(j, tile.k.start);
                flux_row::<V>(view.x.add(at), beta_k.add(at), plane, pitch, &mut of_k[..n]);
            }
        }
        for k in tile.k.clone() {
            let ahead = view.in_memory && k + 1 < tile.k.end;
            let at = g.row(tile.j.start, k);
            // SAFETY: as above.
            unsafe { flux_row::<V>(view.x.add(at), beta_j.add(at), pitch, plane, of_j) };
            for (j, of_k) in tile.j.clone().zip(of_k.chunks_mut(len)) {
                let at = g.row(j, k);
                let parity = view.parity + j + k;
                let (of_j, of_k) = (of_j.as_mut_ptr(), of_k[..n].as_mut_ptr());
                // SAFETY: the cells of a row of the tile; `of_j` and `of_k` are rows of fluxes.
                unsafe {
                    let first = flux(view.x.add(at), beta_i.add(at), 1, [pitch, plane]);
                    let (mut i, mut low) = (0, V::splat(first));
                    let mask = V::mask(parity);
                    while i + V::WIDTH <= n {
                        if ahead {
                            prefetch_next(view, at + i, finish);
                        }
                        let faces = LowFaces { i: low, j: of_j.add(i), k: of_k.add(i) };
                        low = cells(view, at + i, scale, faces, mask, finish);
                        i += V::WIDTH;
                    }
                    let mut low = low.last();
                    while i < n {
                        let faces = LowFaces { i: low, j: of_j.add(i), k: of_k.add(i) };
                        let mask = f64::mask(parity + i);
                        low = cells(view, at + i, scale, faces, mask, finish);
                        i += 1;
                    }
                }
            }
        }
    }
}
