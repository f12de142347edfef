//! Constant-coefficient 27-point operator (point-centred, fourth order on smooth data with a matching
//! right-hand side). Section 13 of the HPGMG-FV description.

use super::{BoxView, Cells};
use crate::lanes::Lanes;

/// The operator.
#[derive(Clone, Copy, Debug)]
pub struct P27;

const CENTRE: f64 = -128.0 / 30.0;
const FACE: f64 = 14.0 / 30.0;
const EDGE: f64 = 3.0 / 30.0;
const CORNER: f64 = 1.0 / 30.0;

impl Cells for P27 {
    #[inline(always)]
    unsafe fn divergence<V: Lanes>(view: &BoxView, at: usize, _centre: V, _low: V) -> V {
        let (pitch, plane) = (view.geometry.pitch, view.geometry.plane);
        // SAFETY: the neighbours of a cell of the box, or their padding; the rest by the caller's
        // promise.
        unsafe {
            // Rows by their position in j, then k, each with the cell before, the cell and the next.
            let row = |x: *const f64| [V::load(x.sub(1)), V::load(x), V::load(x.add(1))];
            let x = view.x.add(at);
            let (below, above) = (x.sub(plane), x.add(plane));
            let [a, b, c] = [row(below.sub(pitch)), row(below), row(below.add(pitch))];
            let [d, e, f] = [row(x.sub(pitch)), row(x), row(x.add(pitch))];
            let [p, q, r] = [row(above.sub(pitch)), row(above), row(above.add(pitch))];
            let corner = a[0] + a[2] + c[0] + c[2] + p[0] + p[2] + r[0] + r[2];
            let edge =
                a[1] + d[0] + d[2] + p[1] + b[0] + b[2] + q[0] + q[2] + c[1] + f[0] + f[2] + r[1];
            let face = b[1] + d[1] + e[0] + e[2] + f[1] + q[1];
            V::splat(-view.divergence)
                * (V::splat(CORNER) * corner
                    + V::splat(EDGE) * edge
                    + V::splat(FACE) * face
                    + V::splat(CENTRE) * e[1])
        }
    }
}
