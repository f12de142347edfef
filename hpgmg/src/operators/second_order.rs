//! Second-order variable-coefficient operator, 7 cells: `fv2` and `7pt` (they differ in the problem,
//! the boundary rule and the transfers, not in the stencil).

use super::{BoxView, Finish, Stencil, Tile, each_row};
use crate::lanes::Lanes;

/// The operator.
#[derive(Clone, Copy, Debug)]
pub struct SecondOrder;

impl super::Cells for SecondOrder {
    #[inline(always)]
    unsafe fn divergence<V: Lanes>(view: &BoxView, at: usize) -> V {
        let (pitch, plane) = (view.geometry.pitch, view.geometry.plane);
        let [beta_i, beta_j, beta_k] = view.beta;
        // SAFETY: the neighbours of a cell of the box, or their padding; the rest by the caller's
        // promise.
        unsafe {
            let x = view.x.add(at);
            let centre = V::load(x);
            let high = |beta: *const f64, step: usize| {
                V::load(beta.add(at + step)) * (V::load(x.add(step)) - centre)
            };
            let low = |beta: *const f64, step: usize| {
                V::load(beta.add(at)) * (V::load(x.sub(step)) - centre)
            };
            V::splat(-view.divergence)
                * (high(beta_i, 1)
                    + low(beta_i, 1)
                    + high(beta_j, pitch)
                    + low(beta_j, pitch)
                    + high(beta_k, plane)
                    + low(beta_k, plane))
        }
    }
}

impl Stencil for SecondOrder {
    const RADIUS: usize = 1;

    #[inline(always)]
    unsafe fn rows<V: Lanes>(
        self,
        view: &BoxView,
        tile: &Tile,
        _scratch: &mut [f64],
        finish: impl Finish,
    ) {
        // SAFETY: by the caller's promise.
        unsafe { each_row::<V, Self>(view, tile, finish) }
    }
}
