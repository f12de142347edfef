//! Fourth-order finite volume operator, 25 cells.
//!
//! Written as the divergence of face fluxes: the two cells of a face see the same flux with opposite
//! signs, bit for bit, so each flux is computed once. Section 5 of the HPGMG-FV description.

use super::{Coefficients, Row, Stencil, Tile, add_identity};
use crate::geometry::BoxGeometry;

/// The operator.
#[derive(Clone, Copy, Debug)]
pub struct Fv4;

/// Fluxes through the faces of normal j or k of one row, towards increasing index, times 12 h.
///
/// `x` starts at the cell behind the face and `normal` is the distance to the cell before it; `side`
/// is the distance to the neighbour in the tangential direction other than i.
#[inline(always)]
fn flux(x: &[f64], beta: &[f64], at: usize, normal: usize, side: usize, out: &mut [f64]) {
    let n = out.len();
    let row = |at: usize| &x[at..at + n];
    // Cells across the face: 2 before, 1 before, behind, 1 behind that.
    let (far_low, far_high) = (row(at - 2 * normal), row(at + normal));
    // With both neighbours along i.
    let (low, high) = (&x[at - normal - 1..][..n + 2], &x[at - 1..][..n + 2]);
    let (low_m, low_p) = (row(at - normal - side), row(at - normal + side));
    let (high_m, high_p) = (row(at - side), row(at + side));
    let b = &beta[at - 1..][..n + 2];
    let (b_m, b_p) = (&beta[at - side..][..n], &beta[at + side..][..n]);
    for i in 0..n {
        let straight = b[i + 1] * (15.0 * (high[i + 1] - low[i + 1]) - (far_high[i] - far_low[i]));
        let along_i = (b[i + 2] - b[i]) * ((high[i + 2] - low[i + 2]) - (high[i] - low[i]));
        let along_side = (b_p[i] - b_m[i]) * ((high_p[i] - low_p[i]) - (high_m[i] - low_m[i]));
        out[i] = straight + 0.25 * (along_i + along_side);
    }
}

/// Fluxes through the `n + 1` faces of normal i of one row.
#[inline(always)]
fn flux_i(x: &[f64], beta: &[f64], at: usize, pitch: usize, plane: usize, out: &mut [f64]) {
    let n = out.len();
    let c = &x[at - 2..][..n + 3];
    let side = |at: usize| &x[at - 1..][..n + 1];
    let (jm, jp, km, kp) = (side(at - pitch), side(at + pitch), side(at - plane), side(at + plane));
    let face = |at: usize| &beta[at..][..n];
    let b = face(at);
    let (bjm, bjp) = (face(at - pitch), face(at + pitch));
    let (bkm, bkp) = (face(at - plane), face(at + plane));
    for i in 0..n {
        let straight = b[i] * (15.0 * (c[i + 2] - c[i + 1]) - (c[i + 3] - c[i]));
        let along_j = (bjp[i] - bjm[i]) * ((jp[i + 1] - jp[i]) - (jm[i + 1] - jm[i]));
        let along_k = (bkp[i] - bkm[i]) * ((kp[i + 1] - kp[i]) - (km[i + 1] - km[i]));
        out[i] = straight + 0.25 * (along_j + along_k);
    }
}

impl Stencil for Fv4 {
    #[inline(always)]
    fn rows(
        &self,
        g: &BoxGeometry,
        c: &Coefficients<'_>,
        x: &[f64],
        tile: &Tile,
        scratch: &mut [f64],
        mut finish: impl FnMut(Row, &[f64]),
    ) {
        let n = g.n;
        let (pitch, plane) = (g.pitch, g.plane);
        let [beta_i, beta_j, beta_k] = c.beta;
        // Flux buffers start on multiples of eight elements.
        let len = (n + 1).next_multiple_of(8);
        let rows = tile.j.len();
        let (fi, rest) = scratch.split_at_mut(len);
        let (mut fj_low, rest) = rest.split_at_mut(len);
        let (mut fj_high, rest) = rest.split_at_mut(len);
        let (ax, rest) = rest.split_at_mut(len);
        let (mut fk_low, rest) = rest.split_at_mut(rows * len);
        let mut fk_high = &mut rest[..rows * len];
        let scale = -c.b * c.h2inv * (1.0 / 12.0);

        for k in tile.k.clone() {
            let first_plane = k == tile.k.start;
            flux(x, beta_j, g.row(tile.j.start, k), pitch, plane, &mut fj_low[..n]);
            for (row, j) in tile.j.clone().enumerate() {
                let at = g.row(j, k);
                let of_row = row * len..row * len + n;
                if first_plane {
                    flux(x, beta_k, at, plane, pitch, &mut fk_low[of_row.clone()]);
                }
                flux_i(x, beta_i, at, pitch, plane, &mut fi[..n + 1]);
                flux(x, beta_j, at + pitch, pitch, plane, &mut fj_high[..n]);
                flux(x, beta_k, at + plane, plane, pitch, &mut fk_high[of_row.clone()]);
                {
                    let (fi, ax) = (&fi[..n + 1], &mut ax[..n]);
                    let (jl, jh) = (&fj_low[..n], &fj_high[..n]);
                    let (kl, kh) = (&fk_low[of_row.clone()], &fk_high[of_row]);
                    for i in 0..n {
                        ax[i] = scale * ((fi[i + 1] - fi[i]) + (jh[i] - jl[i]) + (kh[i] - kl[i]));
                    }
                    add_identity(c, x, at, ax);
                    finish(Row { at, j, k }, ax);
                }
                std::mem::swap(&mut fj_low, &mut fj_high);
            }
            std::mem::swap(&mut fk_low, &mut fk_high);
        }
    }
}
