//! Second-order variable-coefficient operator, 7 cells: `fv2` and `7pt` (they differ in the problem,
//! the boundary rule and the transfers, not in the stencil).

use super::{BoxView, Cells};
use crate::lanes::Lanes;

/// The operator.
#[derive(Clone, Copy, Debug)]
pub struct SecondOrder;

impl Cells for SecondOrder {
    #[inline(always)]
    unsafe fn divergence<V: Lanes>(view: &BoxView, at: usize, centre: V, low_i: V) -> V {
        let (pitch, plane) = (view.geometry.pitch, view.geometry.plane);
        let [beta_i, beta_j, beta_k] = view.beta;
        // SAFETY: the neighbours of a cell of the box, or their padding; the rest by the caller's
        // promise.
        unsafe {
            let x = view.x.add(at);
            let high = |beta: *const f64, step: usize| {
                V::load(beta.add(at + step)) * (V::load(x.add(step)) - centre)
            };
            let low = |beta: *const f64, step: usize| {
                V::load(beta.add(at)) * (V::load(x.sub(step)) - centre)
            };
            V::splat(-view.divergence)
                * (high(beta_i, 1)
                    + V::load(beta_i.add(at)) * (low_i - centre)
                    + high(beta_j, pitch)
                    + low(beta_j, pitch)
                    + high(beta_k, plane)
                    + low(beta_k, plane))
        }
    }
}
