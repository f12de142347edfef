//! Every fault in every setting: the verdict is FAIL wherever a bit of what is found changes. What the lines that these tests
//! print come to stands in docs/reliability.md.

use std::time::Duration;

use super::faults::FAULTS;
use super::*;
use crate::comm::Comm;
use crate::cycle::TOLERANCE;
use crate::enqueued::{Enqueued, Form};
use crate::error::Error;
use crate::known::{Verdict, judge, judge_by, name};
use crate::launch::on_threads;
use crate::options::{Boundary, Config, Cycle, Equation, Operator, Smoother};
use crate::run::{Effort, Outcome, Solver, run};

const LIMIT: Duration = Duration::from_secs(120);
const RANKS: usize = 2;

/// How the ranks communicate.
#[derive(Clone, Copy, Debug)]
enum Way {
    Host,
    Enqueued(Form),
}

impl Way {
    fn name(self) -> &'static str {
        match self {
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
    let found = match way {
        Way::Host => on_threads(RANKS, LIMIT, |comm| cpu(comm)),
        Way::Enqueued(form) => on_threads(RANKS, LIMIT, |comm| {
            let mut solver = Enqueued::new(config.clone(), comm, 1, form, LIMIT)?;
            outcomes(&mut solver, comm.rank())
        }),
    };
    found.unwrap()
}

/// Whether iterated cycles have come to the same solution in spite of a fault, as far as their tolerance goes, and as soon. In a
/// domain without boundary that is so of what only transfers or the coarsest level have to do with: what is left there is smooth and
/// its mean is 0.
fn is_made_good(config: &Config, clean: &Outcome, outcome: &Outcome) -> bool {
    let result = |outcome: &Outcome| {
        let umax = outcome.runs.first().map_or(f64::NAN, |run| run.umax);
        [outcome.error_2h_h, outcome.error_4h_2h, umax]
    };
    let cycles = |outcome: &Outcome| -> Vec<usize> {
        outcome.runs.iter().map(|run| run.first.cycles.len()).collect()
    };
    let same = |(found, right): (f64, f64)| (found - right).abs() <= TOLERANCE * right;
    config.cycle != Cycle::F
        && cycles(clean) == cycles(outcome)
        && result(outcome).into_iter().zip(result(clean)).all(same)
}

/// Every fault that changes a bit of what is found, and is not made good, fails the verdict; `least` do, and that without reference values
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
        let verdict = judge(&config, outcome);
        if matches!(verdict, Verdict::Pass(_)) && is_made_good(&config, &clean.0, outcome) {
            continue;
        }
        struck += 1;
        if let Verdict::Pass(text) = verdict {
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
        all_are_caught(config(operator, Smoother::Gsrb, Cycle::F), Way::Host, 40, 25);
    }
}

#[test]
fn faults_are_caught_in_every_way_to_communicate() {
    for way in [Way::Enqueued(Form::Stream), Way::Enqueued(Form::Kernel)] {
        all_are_caught(Config::default(), way, 40, 25);
    }
}

#[test]
fn faults_are_caught_with_every_smoother() {
    for smoother in [Smoother::Chebyshev, Smoother::Jacobi, Smoother::L1Jacobi] {
        all_are_caught(config(Operator::Fv4, smoother, Cycle::F), Way::Host, 40, 25);
    }
}

#[test]
fn faults_are_caught_where_cycles_are_iterated() {
    all_are_caught(config(Operator::Fv4, Smoother::Gsrb, Cycle::Fv), Way::Host, 40, 25);
    all_are_caught(config(Operator::Fv2, Smoother::Gsrb, Cycle::V), Way::Host, 40, 25);
}

#[test]
fn faults_are_caught_with_an_identity_term() {
    let poisson = config(Operator::Fv4, Smoother::Gsrb, Cycle::Fv);
    let helmholtz = Config { equation: Equation::Helmholtz, ..poisson };
    all_are_caught(helmholtz, Way::Host, 40, 25);
}

#[test]
fn faults_are_caught_in_a_domain_without_boundary() {
    for cycle in [Cycle::F, Cycle::Fv] {
        let poisson = config(Operator::Fv4, Smoother::Gsrb, cycle);
        let periodic = Config { boundary: Boundary::Periodic, ..poisson };
        all_are_caught(periodic, Way::Host, 40, 25);
    }
}
