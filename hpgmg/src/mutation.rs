//! Faults that tests put into solves, to see whether the verdict catches them: wrong ghosts, lost and stale messages, wrong
//! boundaries, transfers, coefficients and smoothers, numbers that are none. Only compiled for the tests of this crate.
//!
//! A fault is data: a site in the cycle, the cells, what is done to them, and when. Rank 1 of two has it, or all ranks.

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
            let range = || -ghosts..n + ghosts;
            for (k, j, i) in
                range().flat_map(|k| range().flat_map(move |j| range().map(move |i| (k, j, i))))
            {
                let cell = [i, j, k];
                let outside = |c: isize| c < 0 || c >= n;
                let count = cell.into_iter().filter(|&c| outside(c)).count();
                let on_side = |axis: usize, high: bool| {
                    count == 1 && if high { cell[axis] >= n } else { cell[axis] < 0 }
                };
                let beyond = |axis: usize, high: bool| {
                    on_side(axis, high) && at[axis] == if high { m - 1 } else { 0 }
                };
                let chosen = match fault.cells {
                    Cells::Inner => count == 0,
                    Cells::One => cell == [n / 2; 3],
                    Cells::Ghosts => count > 0,
                    Cells::Side(axis, high) => on_side(axis, high),
                    Cells::OneOf(axis, high) => {
                        let near = if high { n } else { -1 };
                        (0..3).all(|a| cell[a] == if a == axis { near } else { n / 2 })
                    }
                    Cells::Edges => count > 1,
                    Cells::Outer => cell.into_iter().any(|c| c < -1 || c > n),
                    Cells::Domain(axis, high) => beyond(axis, high),
                    Cells::Around => (0..3).any(|axis| beyond(axis, false) || beyond(axis, true)),
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use libmp::World;

    use super::*;
    use crate::comm::{self, Comm};
    use crate::enqueued::{Enqueued, Form};
    use crate::error::Error;
    use crate::known::{Verdict, judge, judge_by, name};
    use crate::launch::on_threads;
    use crate::options::{Config, Cycle, Equation, Operator, Smoother};
    use crate::run::{Effort, Outcome, Solver, run};

    const LIMIT: Duration = Duration::from_secs(120);
    const RANKS: usize = 2;

    /// How the ranks communicate.
    #[derive(Clone, Copy, Debug)]
    enum Way {
        Threads,
        Host,
        Enqueued(Form),
    }

    impl Way {
        fn name(self) -> &'static str {
            match self {
                Way::Threads => "threads",
                Way::Host => "host",
                Way::Enqueued(Form::Stream) => "stream",
                Way::Enqueued(Form::Kernel) => "kernel",
            }
        }
    }

    /// A solver on CPUs, whoever runs it.
    trait OnCpu: Solver {
        fn cpu(&mut self, f: impl FnMut(&mut Cpu)) -> Result<(), Error>;
    }

    impl OnCpu for Cpu {
        fn cpu(&mut self, mut f: impl FnMut(&mut Cpu)) -> Result<(), Error> {
            f(self);
            Ok(())
        }
    }

    impl OnCpu for Enqueued {
        fn cpu(&mut self, f: impl FnMut(&mut Cpu)) -> Result<(), Error> {
            Ok(self.with(f)?)
        }
    }

    /// The outcome without a fault, then with each, and whether it differs in any bit.
    fn outcomes<S: OnCpu>(solver: &mut S, rank: usize) -> Result<Vec<(Outcome, bool)>, Error> {
        let mut fields: Vec<(f64, Vec<Vec<f64>>)> = Vec::new();
        solver.cpu(|cpu| {
            let copy = |level: &crate::level::Level| {
                (level.lambda_max, level.fields.iter().map(|field| field.to_vec()).collect())
            };
            fields = cpu.levels.iter().map(copy).collect();
        })?;
        let mut all: Vec<(Outcome, bool)> = Vec::new();
        let mut clean = Vec::new();
        for fault in std::iter::once(None).chain(FAULTS.iter().copied().map(Some)) {
            solver.cpu(|cpu| {
                for (level, (lambda_max, fields)) in cpu.levels.iter_mut().zip(&fields) {
                    level.lambda_max = *lambda_max;
                    for (field, before) in level.fields.iter_mut().zip(fields) {
                        field.copy_from_slice(before);
                    }
                }
                cpu.inject(fault, rank, RANKS);
            })?;
            let outcome = run(solver, Effort::Solves(1), |_, _, _| {})?;
            let cycles = outcome.runs.iter().flat_map(|run| &run.first.cycles);
            let errors = [outcome.error_2h_h, outcome.error_4h_2h];
            let mut bits: Vec<u64> =
                cycles.map(|cycle| cycle.residual).chain(errors).map(f64::to_bits).collect();
            bits.push(solver.fingerprint(0)?);
            if clean.is_empty() {
                clean = bits.clone();
            }
            let differs = solver.agree(0, f64::from(u8::from(bits != clean)))? != 0.0;
            all.push((outcome, differs));
        }
        Ok(all)
    }

    fn solve(config: &Config, way: Way) -> Vec<(Outcome, bool)> {
        let cpu = |comm: &dyn Comm| outcomes(&mut Cpu::new(config.clone(), comm, 1)?, comm.rank());
        let worlds = || World::threads(RANKS).unwrap();
        let found = match way {
            Way::Threads => on_threads(RANKS, LIMIT, |comm| cpu(comm)),
            Way::Host => comm::libmp::run(worlds(), LIMIT, |comm| cpu(comm)),
            Way::Enqueued(form) => comm::libmp::run(worlds(), LIMIT, |comm| {
                let mut solver = Enqueued::new(config.clone(), comm, 1, form, LIMIT)?;
                outcomes(&mut solver, comm.rank())
            }),
        };
        found.unwrap()
    }

    /// Every fault that changes a bit of what is found fails the verdict; `least` do, and that without reference values
    /// `by_bounds` would.
    fn all_are_caught(config: Config, way: Way, least: usize, by_bounds: usize) {
        let config = Config { box_dim: 16, boxes_per_rank: 4, ..config };
        let all = solve(&config, way);
        let (clean, faulty) = all.split_first().unwrap();
        for verdict in [judge(&config, &clean.0), judge_by(&config, &clean.0, None)] {
            assert!(matches!(verdict, Verdict::Pass(_)), "{config:?}: {verdict:?}");
        }
        let (mut struck, mut bounds) = (0, 0);
        let mut missed = Vec::new();
        for ((outcome, differs), fault) in faulty.iter().zip(FAULTS) {
            // On a level of one cell the right-hand side is a mean that cancels to rounding: any solution will do.
            let one_cell = config.operator != Operator::Fv4 && fault.site == Site::Bottom;
            let a_number = !matches!(fault.change, Change::To(value) if value.is_nan());
            if !differs || one_cell && a_number {
                continue;
            }
            struck += 1;
            if let Verdict::Pass(text) = judge(&config, outcome) {
                missed.push(format!("{}: {text}", fault.name));
            }
            bounds += usize::from(matches!(judge_by(&config, outcome, None), Verdict::Fail(_)));
        }
        let Config { operator, smoother, cycle, boundary, equation, .. } = config.clone();
        let settings =
            [name(operator), name(smoother), name(cycle), name(boundary), name(equation)].join(" ");
        let caught = struck - missed.len();
        // A row of docs/reliability.md, see `mp-torture table`.
        println!("mutations: {settings}; {}; {struck}; {caught}; {bounds}", way.name());
        assert!(missed.is_empty(), "{config:?}, {way:?}: not caught:\n{}", missed.join("\n"));
        assert!(struck >= least, "{config:?}, {way:?}: only {struck} faults change anything");
        assert!(bounds >= by_bounds, "{config:?}, {way:?}: bounds catch only {bounds}");
    }

    fn config(operator: Operator, smoother: Smoother, cycle: Cycle) -> Config {
        Config { operator, smoother, cycle, ..Config::default() }
    }

    #[test]
    fn faults_are_caught_with_every_operator() {
        for operator in [Operator::Fv4, Operator::Fv2, Operator::P7, Operator::P27] {
            all_are_caught(config(operator, Smoother::Gsrb, Cycle::F), Way::Threads, 40, 25);
        }
    }

    #[test]
    fn faults_are_caught_in_every_way_to_communicate() {
        for way in [Way::Host, Way::Enqueued(Form::Stream), Way::Enqueued(Form::Kernel)] {
            all_are_caught(Config::default(), way, 40, 25);
        }
    }

    #[test]
    fn faults_are_caught_with_every_smoother() {
        for smoother in [Smoother::Chebyshev, Smoother::Jacobi, Smoother::L1Jacobi] {
            all_are_caught(config(Operator::Fv4, smoother, Cycle::F), Way::Threads, 40, 25);
        }
    }

    #[test]
    fn faults_are_caught_where_cycles_are_iterated() {
        all_are_caught(config(Operator::Fv4, Smoother::Gsrb, Cycle::Fv), Way::Threads, 40, 25);
        all_are_caught(config(Operator::Fv2, Smoother::Gsrb, Cycle::V), Way::Threads, 40, 25);
    }

    #[test]
    fn faults_are_caught_with_an_identity_term() {
        let poisson = config(Operator::Fv4, Smoother::Gsrb, Cycle::Fv);
        let helmholtz = Config { equation: Equation::Helmholtz, ..poisson };
        all_are_caught(helmholtz, Way::Threads, 40, 25);
    }
}
