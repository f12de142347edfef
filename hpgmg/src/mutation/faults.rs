//! The faults: which there are, as data.

use super::{Cells, Change, Fault, Site, When};
use crate::backend::Vector;

const X: usize = 0;
const Y: usize = 1;
const Z: usize = 2;

/// A fault of rank 1, in all its boxes, on all levels, always.
const fn fault(name: &'static str, site: Site, cells: Cells, change: Change) -> Fault {
    Fault {
        name,
        site,
        cells,
        change,
        level: None,
        one_box: false,
        when: When::Always,
        everywhere: false,
    }
}

impl Fault {
    const fn on(self, level: usize) -> Self {
        Self { level: Some(level), ..self }
    }

    const fn in_one_box(self) -> Self {
        Self { one_box: true, ..self }
    }

    const fn when(self, when: When) -> Self {
        Self { when, ..self }
    }

    const fn everywhere(self) -> Self {
        Self { everywhere: true, ..self }
    }
}

/// The faults.
#[rustfmt::skip]
pub(crate) const FAULTS: &[Fault] = &[
    // Ghosts.
    fault("ghosts zero, x low", Site::Halo, Cells::Side(X, false), Change::To(0.0)),
    fault("ghosts zero, x high", Site::Halo, Cells::Side(X, true), Change::To(0.0)),
    fault("ghosts zero, y low", Site::Halo, Cells::Side(Y, false), Change::To(0.0)),
    fault("ghosts zero, y high", Site::Halo, Cells::Side(Y, true), Change::To(0.0)),
    fault("ghosts zero, z low", Site::Halo, Cells::Side(Z, false), Change::To(0.0)),
    fault("ghosts zero, z high", Site::Halo, Cells::Side(Z, true), Change::To(0.0)),
    fault("ghosts shifted by a cell", Site::Halo, Cells::Side(X, false), Change::Shifted(Y)),
    fault("ghosts a thousandth too large", Site::Halo, Cells::Side(Z, true), Change::Times(1.001)),
    fault("ghosts of the wrong sign on one level", Site::Halo, Cells::Ghosts, Change::Times(-1.0)).on(1),
    fault("ghosts zero on a coarse level", Site::Halo, Cells::Ghosts, Change::To(0.0)).on(2).everywhere(),
    fault("ghosts zero beside edges", Site::Halo, Cells::Edges, Change::To(0.0)),
    fault("outer ghosts zero", Site::Halo, Cells::Outer, Change::To(0.0)),
    fault("ghosts zero once", Site::Halo, Cells::Ghosts, Change::To(0.0)).when(When::Once(101)),
    fault("ghosts zero of one box", Site::Halo, Cells::Ghosts, Change::To(0.0)).in_one_box(),
    fault("one ghost zero", Site::Halo, Cells::OneOf(X, false), Change::To(0.0)).in_one_box(),
    fault("one ghost not a number, once", Site::Halo, Cells::OneOf(Z, false), Change::To(f64::NAN)).in_one_box().when(When::Once(51)),
    fault("ghosts infinite, once", Site::Halo, Cells::Side(Z, false), Change::To(f64::INFINITY)).when(When::Once(51)),
    // Messages.
    fault("messages lost", Site::Message, Cells::Ghosts, Change::Kept),
    fault("messages of the finest level lost", Site::Message, Cells::Ghosts, Change::Kept).on(0),
    fault("one message lost", Site::Message, Cells::Ghosts, Change::Kept).when(When::Once(40)),
    fault("a message for one box lost", Site::Message, Cells::Ghosts, Change::Kept).on(0).in_one_box(),
    fault("messages stale by one exchange", Site::Message, Cells::Ghosts, Change::Stale),
    fault("messages stale on a coarse level", Site::Message, Cells::Ghosts, Change::Stale).on(1),
    fault("restriction's messages lost", Site::Restricted, Cells::Inner, Change::Kept),
    fault("interpolation's messages lost", Site::Prolonged, Cells::Inner, Change::Kept),
    // The boundary of the domain.
    fault("wrong sign at the boundary, x low", Site::Halo, Cells::Domain(X, false), Change::Times(-1.0)).everywhere(),
    fault("boundary zero, y high", Site::Halo, Cells::Domain(Y, true), Change::To(0.0)).everywhere(),
    fault("boundary of lower order, z low", Site::Halo, Cells::Domain(Z, false), Change::Mirrored(-1.0)).everywhere(),
    fault("boundary of lower order", Site::Halo, Cells::Around, Change::Mirrored(-1.0)).everywhere(),
    fault("no flux through the boundary", Site::Halo, Cells::Around, Change::Mirrored(1.0)).everywhere(),
    // Restriction.
    fault("restriction by 1/7", Site::Restricted, Cells::Inner, Change::Times(8.0 / 7.0)).everywhere(),
    fault("restriction a thousandth too large", Site::Restricted, Cells::Inner, Change::Times(1.001)).everywhere(),
    fault("restriction a tenth too small on one level", Site::Restricted, Cells::Inner, Change::Times(0.9)).everywhere().on(1),
    fault("restriction of the wrong sign", Site::Restricted, Cells::Inner, Change::Times(-1.0)).everywhere(),
    fault("one box not restricted", Site::Restricted, Cells::Inner, Change::To(0.0)).in_one_box(),
    fault("restriction shifted by a cell", Site::Restricted, Cells::Inner, Change::Shifted(X)).everywhere(),
    fault("a restricted cell not a number", Site::Restricted, Cells::One, Change::To(f64::NAN)).when(When::Once(3)),
    // Interpolation.
    fault("interpolation a tenth too small", Site::Coarse, Cells::Inner, Change::Times(0.9)).everywhere(),
    fault("interpolation of the wrong sign", Site::Coarse, Cells::Inner, Change::Times(-1.0)).everywhere(),
    fault("interpolation shifted by a cell", Site::Coarse, Cells::Inner, Change::Shifted(Z)).everywhere(),
    fault("one box not corrected", Site::Coarse, Cells::Inner, Change::To(0.0)).in_one_box().on(1),
    fault("the F-cycle's interpolation too small", Site::CoarseSolution, Cells::Inner, Change::Times(0.99)).everywhere(),
    fault("one box wrong after interpolation", Site::Prolonged, Cells::Inner, Change::To(0.0)).in_one_box().on(0),
    // Smoother and residual.
    fault("every second sweep left out", Site::Smoothed, Cells::Inner, Change::Kept).when(When::Alternately),
    fault("every second sweep of one box left out", Site::Smoothed, Cells::Inner, Change::Kept).in_one_box().when(When::Alternately),
    fault("one box wrong after one sweep", Site::Smoothed, Cells::Inner, Change::To(1.0)).in_one_box().on(0).when(When::Once(7)),
    fault("a cell not a number after one sweep", Site::Smoothed, Cells::One, Change::To(f64::NAN)).in_one_box().when(When::Once(30)),
    fault("a cell infinite after one sweep", Site::Smoothed, Cells::One, Change::To(f64::INFINITY)).in_one_box().when(When::Once(30)),
    fault("inverse diagonal half too large in one box", Site::Before(Vector::Dinv), Cells::Inner, Change::Times(1.5)).in_one_box(),
    fault("inverse diagonal zero in one box", Site::Before(Vector::Dinv), Cells::Inner, Change::To(0.0)).in_one_box(),
    fault("inverse diagonal not a number in a cell", Site::Before(Vector::Dinv), Cells::One, Change::To(f64::NAN)).in_one_box(),
    fault("inverse diagonal halved", Site::Before(Vector::Dinv), Cells::Inner, Change::Times(0.5)).everywhere(),
    fault("L1 weights halved", Site::Before(Vector::L1Inv), Cells::Inner, Change::Times(0.5)).everywhere(),
    fault("L1 weight zero in one box", Site::Before(Vector::L1Inv), Cells::Inner, Change::To(0.0)).in_one_box(),
    fault("spectrum twice as wide", Site::Spectrum, Cells::Inner, Change::Times(2.0)).everywhere(),
    fault("spectrum half as wide", Site::Spectrum, Cells::Inner, Change::Times(0.5)).everywhere(),
    fault("residual zero in one box", Site::Residual, Cells::Inner, Change::To(0.0)).in_one_box().on(0),
    fault("residual too small on a coarse level", Site::Residual, Cells::Inner, Change::Times(0.9)).on(1),
    // Coefficients and right-hand side.
    fault("coefficients along x a hundredth too large in one box", Site::Before(Vector::Beta(0)), Cells::Inner, Change::Times(1.01)).in_one_box().on(0),
    fault("coefficients along y a hundredth too large in one box", Site::Before(Vector::Beta(1)), Cells::Inner, Change::Times(1.01)).in_one_box().on(0),
    fault("coefficients along z a hundredth too large in one box", Site::Before(Vector::Beta(2)), Cells::Inner, Change::Times(1.01)).in_one_box().on(0),
    fault("coefficients shifted by a cell", Site::Before(Vector::Beta(0)), Cells::Inner, Change::Shifted(Y)).on(0),
    fault("coefficients twice as large on one level", Site::Before(Vector::Beta(1)), Cells::Inner, Change::Times(2.0)).everywhere().on(1),
    fault("one coefficient zero", Site::Before(Vector::Beta(2)), Cells::One, Change::To(0.0)).in_one_box().on(0),
    fault("right-hand side a thousandth too large in one box", Site::Before(Vector::F), Cells::Inner, Change::Times(1.001)).in_one_box().on(0),
    fault("right-hand side zero in a cell", Site::Before(Vector::F), Cells::One, Change::To(0.0)).in_one_box().on(0),
    fault("right-hand side twice as large on one level", Site::Before(Vector::F), Cells::Inner, Change::Times(2.0)).everywhere().on(1),
    fault("right-hand side not a number in a cell of one rank", Site::Before(Vector::F), Cells::One, Change::To(f64::NAN)).in_one_box().on(0),
    fault("no identity term in one box", Site::Before(Vector::Alpha), Cells::Inner, Change::To(0.0)).in_one_box().on(0),
    // The coarsest level.
    fault("the coarsest level not solved", Site::Bottom, Cells::Inner, Change::To(0.0)).everywhere(),
    fault("the coarsest level's solution twice as large", Site::Bottom, Cells::Inner, Change::Times(2.0)).everywhere(),
    fault("the coarsest level's solution not a number", Site::Bottom, Cells::Inner, Change::To(f64::NAN)).everywhere().when(When::Once(2)),
];
