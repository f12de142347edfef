//! Faults that tests put into solves, to see whether the verdict catches them: wrong ghosts, lost and stale messages, wrong
//! boundaries, transfers, coefficients and smoothers, numbers that are none. Only compiled for the tests of this crate.
//!
//! A fault is data: a site in the cycle, the cells, what is done to them, and when. Rank 1 of two has it, or all ranks.

mod faults;
#[cfg(test)]
mod tests;

use crate::backend::{Prolongation, Vector};
use crate::cpu::{Cpu, Step};
use crate::work::{Stage, Work};

/// Where in a cycle a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Site {
    /// The ghosts of what the operator or an interpolation reads, once they are filled.
    Halo,
    /// The message of a halo exchange.
    Message,
    /// What has been restricted, on the coarser level.
    Restricted,
    /// What is about to be interpolated, on the coarser level.
    Coarse,
    /// What is about to be interpolated by the F-cycle.
    CoarseSolution,
    /// What has been interpolated, on the finer level.
    Prolonged,
    /// What a sweep of the smoother has computed.
    Smoothed,
    /// A residual.
    Residual,
    /// The solution of the coarsest level.
    Bottom,
    /// A vector, before the first solve.
    Before(Vector),
    /// The bound of the spectrum, before the first solve.
    Spectrum,
}

/// Which cells of a box.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cells {
    /// All that are not ghosts.
    Inner,
    /// One in the middle.
    One,
    /// All ghosts.
    Ghosts,
    /// The ghosts on one side.
    Side(usize, bool),
    /// One of them.
    OneOf(usize, bool),
    /// The ghosts beside edges and corners.
    Edges,
    /// The outer layer of ghosts.
    Outer,
    /// The ghosts on one side of the domain.
    Domain(usize, bool),
    /// The ghosts around the domain.
    Around,
}

/// What is done to them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Change {
    /// Multiplied.
    Times(f64),
    /// Set.
    To(f64),
    /// Replaced by the neighbour's value along an axis.
    Shifted(usize),
    /// A domain's ghost is the cell inside times this.
    Mirrored(f64),
    /// As it was before what the site does.
    Kept,
    /// As it was after what the site did last time.
    Stale,
}

/// When.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum When {
    /// Every time.
    Always,
    /// Once, the n-th time.
    Once(usize),
    /// Every second time.
    Alternately,
}

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fault {
    pub name: &'static str,
    pub site: Site,
    pub cells: Cells,
    pub change: Change,
    /// The level, or all.
    pub level: Option<usize>,
    /// The first box of the rank only.
    pub one_box: bool,
    pub when: When,
    /// All ranks, not only the last.
    pub everywhere: bool,
}

/// A fault in a solver, and what it remembers.
#[derive(Default)]
pub(crate) struct Injected {
    fault: Option<Fault>,
    count: usize,
    before: Vec<f64>,
    last: Vec<Vec<f64>>,
}

impl Cpu {
    /// Puts `fault` into this rank, or takes the last one out. What it does to coefficients stays.
    pub(crate) fn inject(&mut self, fault: Option<Fault>, rank: usize, ranks: usize) {
        let fault = fault.filter(|fault| fault.everywhere || rank + 1 == ranks);
        self.injected = Injected { fault, ..Injected::default() };
        let Some(fault) = fault else { return };
        for l in (0..self.levels.len()).filter(|l| fault.level.is_none_or(|level| level == *l)) {
            match fault.site {
                Site::Before(v) => self.strike(l, v, &fault),
                Site::Spectrum => {
                    if let Change::Times(factor) = fault.change {
                        self.levels[l].lambda_max *= factor;
                    }
                }
                _ => {}
            }
        }
    }

    /// Before a stage of a part of a cycle.
    pub(crate) fn before(&mut self, work: Work, stage: Stage) {
        match work {
            Work::Restrict { l, coarse, .. } => {
                self.about_to(Site::Restricted, l + 1, coarse, stage)
            }
            Work::Prolong { l, x, how } => {
                self.about_to(Site::Coarse, l + 1, x, stage);
                if how == Prolongation::Replace {
                    self.about_to(Site::CoarseSolution, l + 1, x, stage);
                }
                self.about_to(Site::Prolonged, l, x, stage);
            }
            // Exchanges say it themselves.
            Work::Pass { .. } | Work::RedBlack { .. } | Work::Surround { .. } => {}
        }
    }

    /// After it.
    pub(crate) fn after(&mut self, work: Work, stage: Stage) {
        match work {
            Work::Restrict { l, coarse, .. } => {
                self.has_done(Site::Restricted, l + 1, coarse, stage)
            }
            Work::Prolong { l, x, .. } => self.has_done(Site::Prolonged, l, x, stage),
            Work::Pass { l, x, out, step } if stage == Stage::Rest => {
                self.has_passed(l, x, out, step);
            }
            Work::Pass { .. } | Work::RedBlack { .. } | Work::Surround { .. } => {}
        }
    }

    /// The site that a stage of a transfer or an exchange of `x` on level `l` is, before the stage is done.
    pub(crate) fn about_to(&mut self, site: Site, l: usize, x: Vector, stage: Stage) {
        let Some(fault) = self.injected.fault.filter(|fault| self.is_at(fault, site, l)) else {
            return;
        };
        match site {
            Site::Coarse | Site::CoarseSolution if stage == Stage::Pack && self.is_due(&fault) => {
                self.strike(l, x, &fault);
            }
            // A message is lost between the pack of one rank and the unpack of another.
            Site::Message | Site::Restricted | Site::Prolonged if stage == Stage::Unpack => {
                self.injected.before = self.levels[l].field(x).to_vec();
            }
            _ => {}
        }
    }

    /// After a stage of the exchange of `x` on level `l`.
    pub(crate) fn has_exchanged(&mut self, l: usize, x: Vector, stage: Stage) {
        self.has_done(Site::Message, l, x, stage);
        self.has_done(Site::Halo, l, x, stage);
    }

    /// After a stage of a transfer or an exchange.
    fn has_done(&mut self, site: Site, l: usize, x: Vector, stage: Stage) {
        let Some(fault) = self.injected.fault.filter(|fault| self.is_at(fault, site, l)) else {
            return;
        };
        let strikes = match (site, fault.change) {
            // What the exchange needs no message for is read before it is over.
            (Site::Halo, _) => matches!(stage, Stage::Here | Stage::Rest),
            (Site::Message, _) | (_, Change::Kept) => stage == Stage::Unpack,
            _ => stage == Stage::Rest,
        };
        if strikes && self.is_due(&fault) {
            self.strike(l, x, &fault);
        }
    }

    /// After a pass over level `l` that wrote `out`, from `x`.
    fn has_passed(&mut self, l: usize, x: Vector, out: Vector, step: Step) {
        let site = match step {
            Step::Apply => return,
            Step::Residual(_) => Site::Residual,
            _ => Site::Smoothed,
        };
        let Some(fault) = self.injected.fault.filter(|fault| self.is_at(fault, site, l)) else {
            return;
        };
        if fault.change == Change::Kept {
            self.injected.before = self.levels[l].field(x).to_vec();
        }
        if self.is_due(&fault) {
            self.strike(l, out, &fault);
        }
    }

    /// After the bottom solver.
    pub(crate) fn has_solved(&mut self, l: usize, x: Vector) {
        self.has_done(Site::Bottom, l, x, Stage::Rest);
    }

    fn is_at(&self, fault: &Fault, site: Site, l: usize) -> bool {
        fault.site == site && fault.level.is_none_or(|level| level == l)
    }

    fn is_due(&mut self, fault: &Fault) -> bool {
        self.injected.count += 1;
        match fault.when {
            When::Always => true,
            When::Once(n) => self.injected.count == n,
            When::Alternately => self.injected.count.is_multiple_of(2),
        }
    }

    fn strike(&mut self, l: usize, v: Vector, fault: &Fault) {
        let Self { levels, injected, .. } = self;
        let Injected { before, last, .. } = injected;
        last.resize_with(levels.len(), Vec::new);
        let level = &mut levels[l];
        let g = level.geometry;
        let (n, ghosts, m) = (g.n as isize, g.ghosts as isize, level.shape.boxes_per_side);
        let mut field = level.take(v);
        if field.is_empty() {
            return;
        }
        let now = field.to_vec();
        let boxes = if fault.one_box { 1 } else { level.boxes.len() };
        for (index, &id) in level.boxes.iter().enumerate().take(boxes) {
            let at = level.shape.coordinates(id);
            // Ghosts at one end of an axis, the cells between, and one of those.
            let end = |high: bool| if high { n..n + ghosts } else { -ghosts..0 };
            let (inner, middle) = (0..n, n / 2..n / 2 + 1);
            let along = &|axis: usize| match fault.cells {
                Cells::Inner => inner.clone(),
                Cells::One => middle.clone(),
                Cells::Side(side, high) | Cells::Domain(side, high) if side == axis => end(high),
                Cells::Side(..) | Cells::Domain(..) => inner.clone(),
                Cells::OneOf(side, true) if side == axis => n..n + 1,
                Cells::OneOf(side, false) if side == axis => -1..0,
                Cells::OneOf(..) => middle.clone(),
                Cells::Ghosts | Cells::Edges | Cells::Outer | Cells::Around => -ghosts..n + ghosts,
            };
            for cell in along(2)
                .flat_map(move |k| along(1).flat_map(move |j| along(0).map(move |i| [i, j, k])))
            {
                let outside = |c: isize| c < 0 || c >= n;
                let count = cell.into_iter().filter(|&c| outside(c)).count();
                let beyond = |axis: usize, high: bool| at[axis] == if high { m - 1 } else { 0 };
                let chosen = match fault.cells {
                    Cells::Inner | Cells::One | Cells::Side(..) | Cells::OneOf(..) => true,
                    Cells::Ghosts => count > 0,
                    Cells::Edges => count > 1,
                    Cells::Outer => cell.into_iter().any(|c| c < -1 || c > n),
                    Cells::Domain(axis, high) => beyond(axis, high),
                    Cells::Around => {
                        count == 1
                            && (0..3)
                                .any(|axis| outside(cell[axis]) && beyond(axis, cell[axis] > 0))
                    }
                };
                if !chosen {
                    continue;
                }
                let offset = |[i, j, k]: [isize; 3]| index * g.volume + g.at(i, j, k);
                let here = offset(cell);
                field[here] = match fault.change {
                    Change::Times(factor) => now[here] * factor,
                    Change::To(value) => value,
                    Change::Shifted(axis) => {
                        let mut next = cell;
                        next[axis] = if next[axis] + 1 < n + ghosts { next[axis] + 1 } else { 0 };
                        now[offset(next)]
                    }
                    Change::Mirrored(factor) => {
                        let inside = |c: isize| if c < 0 { -1 - c } else { 2 * n - 1 - c };
                        factor * now[offset(cell.map(|c| if outside(c) { inside(c) } else { c }))]
                    }
                    Change::Kept => before.get(here).copied().unwrap_or_default(),
                    Change::Stale => last[l].get(here).copied().unwrap_or_default(),
                };
            }
        }
        last[l] = now;
        level.put(v, field);
    }
}
