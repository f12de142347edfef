//! Second-order variable-coefficient operator, 7 cells: `fv2` and `7pt` (they differ in the problem,
//! the boundary rule and the transfers, not in the stencil).

use super::{Coefficients, Row, Stencil, Tile, add_identity};
use crate::geometry::BoxGeometry;

/// The operator.
#[derive(Clone, Copy, Debug)]
pub struct SecondOrder;

impl Stencil for SecondOrder {
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
                let row = |at: usize| &x[at..at + n];
                let x0 = &x[at - 1..][..n + 2];
                let (jm, jp) = (row(at - g.pitch), row(at + g.pitch));
                let (km, kp) = (row(at - g.plane), row(at + g.plane));
                let bi = &c.beta[0][at..][..n + 1];
                let (bjl, bjh) = (&c.beta[1][at..][..n], &c.beta[1][at + g.pitch..][..n]);
                let (bkl, bkh) = (&c.beta[2][at..][..n], &c.beta[2][at + g.plane..][..n]);
                for i in 0..n {
                    let c = x0[i + 1];
                    ax[i] = scale
                        * (bi[i + 1] * (x0[i + 2] - c)
                            + bi[i] * (x0[i] - c)
                            + bjh[i] * (jp[i] - c)
                            + bjl[i] * (jm[i] - c)
                            + bkh[i] * (kp[i] - c)
                            + bkl[i] * (km[i] - c));
                }
                add_identity(c, x, at, ax);
                finish(Row { at, j, k }, ax);
            }
        }
    }
}
