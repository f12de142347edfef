//! Constant-coefficient 27-point operator (point-centred, fourth order on smooth data with a matching
//! right-hand side). Section 13 of the HPGMG-FV description.

use super::{Coefficients, Row, Stencil, Tile, add_identity};
use crate::geometry::BoxGeometry;

/// The operator.
#[derive(Clone, Copy, Debug)]
pub struct P27;

const CENTRE: f64 = -128.0 / 30.0;
const FACE: f64 = 14.0 / 30.0;
const EDGE: f64 = 3.0 / 30.0;
const CORNER: f64 = 1.0 / 30.0;

impl Stencil for P27 {
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
        let scale = -c.b * c.h2inv;
        let ax = &mut scratch[..n];
        for k in tile.k.clone() {
            for j in tile.j.clone() {
                let at = g.row(j, k);
                let row = |dj: isize, dk: isize| {
                    let at = at as isize + dj * g.pitch as isize + dk * g.plane as isize - 1;
                    &x[at as usize..][..n + 2]
                };
                let (a, b, c2) = (row(-1, -1), row(0, -1), row(1, -1));
                let (d, e, f) = (row(-1, 0), row(0, 0), row(1, 0));
                let (p, q, r) = (row(-1, 1), row(0, 1), row(1, 1));
                for i in 0..n {
                    let corner =
                        a[i] + a[i + 2] + c2[i] + c2[i + 2] + p[i] + p[i + 2] + r[i] + r[i + 2];
                    let edge = a[i + 1]
                        + d[i]
                        + d[i + 2]
                        + p[i + 1]
                        + b[i]
                        + b[i + 2]
                        + q[i]
                        + q[i + 2]
                        + c2[i + 1]
                        + f[i]
                        + f[i + 2]
                        + r[i + 1];
                    let face = b[i + 1] + d[i + 1] + e[i] + e[i + 2] + f[i + 1] + q[i + 1];
                    ax[i] =
                        scale * (CORNER * corner + EDGE * edge + FACE * face + CENTRE * e[i + 1]);
                }
                add_identity(c, x, at, ax);
                finish(Row { at, j, k }, ax);
            }
        }
    }
}
