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

/// What is known of a row before its high faces of normals j and k.
struct LowFaces<'a> {
    i: &'a [f64],
    j: &'a [f64],
    k: &'a [f64],
}

/// [`flux`] through the high faces of normals j and k of the row at `at`, and `scale` times the
/// divergence: in one loop, as the two share many of the cells they read.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn high_faces(
    x: &[f64],
    [beta_j, beta_k]: [&[f64]; 2],
    at: usize,
    [pitch, plane]: [usize; 2],
    low: &LowFaces<'_>,
    scale: f64,
    [out_j, out_k]: [&mut [f64]; 2],
    ax: &mut [f64],
) {
    let n = ax.len();
    let row = |at: usize| &x[at..][..n];
    let wide = |at: usize| &x[at - 1..][..n + 2];
    // Named by the position in j, then k: m one before, p one behind, q two behind, 0 the row.
    let (x00, xp0, x0p) = (wide(at), wide(at + pitch), wide(at + plane));
    let (xm0, xq0, x0m, x0q) =
        (row(at - pitch), row(at + 2 * pitch), row(at - plane), row(at + 2 * plane));
    let (xpp, xpm, xmp) =
        (row(at + pitch + plane), row(at + pitch - plane), row(at + plane - pitch));
    let (j, k) = (at + pitch, at + plane);
    let (bj, bj_m, bj_p) =
        (&beta_j[j - 1..][..n + 2], &beta_j[j - plane..][..n], &beta_j[j + plane..][..n]);
    let (bk, bk_m, bk_p) =
        (&beta_k[k - 1..][..n + 2], &beta_k[k - pitch..][..n], &beta_k[k + pitch..][..n]);
    let (fi, fj, fk) = (&low.i[..n + 1], &low.j[..n], &low.k[..n]);
    let (out_j, out_k) = (&mut out_j[..n], &mut out_k[..n]);
    for i in 0..n {
        let straight = bj[i + 1] * (15.0 * (xp0[i + 1] - x00[i + 1]) - (xq0[i] - xm0[i]));
        let along_i = (bj[i + 2] - bj[i]) * ((xp0[i + 2] - x00[i + 2]) - (xp0[i] - x00[i]));
        let along_k = (bj_p[i] - bj_m[i]) * ((xpp[i] - x0p[i + 1]) - (xpm[i] - x0m[i]));
        let j = straight + 0.25 * (along_i + along_k);
        let straight = bk[i + 1] * (15.0 * (x0p[i + 1] - x00[i + 1]) - (x0q[i] - x0m[i]));
        let along_i = (bk[i + 2] - bk[i]) * ((x0p[i + 2] - x00[i + 2]) - (x0p[i] - x00[i]));
        let along_j = (bk_p[i] - bk_m[i]) * ((xpp[i] - xp0[i + 1]) - (xmp[i] - xm0[i]));
        let k = straight + 0.25 * (along_i + along_j);
        (out_j[i], out_k[i]) = (j, k);
        ax[i] = scale * ((fi[i + 1] - fi[i]) + (j - fj[i]) + (k - fk[i]));
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
                let low = LowFaces { i: &fi[..n + 1], j: &fj_low[..n], k: &fk_low[of_row.clone()] };
                let high = [&mut fj_high[..n], &mut fk_high[of_row]];
                let ax = &mut ax[..n];
                high_faces(x, [beta_j, beta_k], at, [pitch, plane], &low, scale, high, ax);
                add_identity(c, x, at, ax);
                finish(Row { at, j, k }, ax);
                std::mem::swap(&mut fj_low, &mut fj_high);
            }
            std::mem::swap(&mut fk_low, &mut fk_high);
        }
    }
}
