//! A whole run on one rank: solve on levels 0, 1 and 2, repeatedly, and compare them.

use std::time::Duration;

use crate::backend::{Backend, Operators, Vector};
use crate::cpu::Cpu;
use crate::cycle::{self, Solved};
use crate::error::Error;
use crate::options::Cycle;
use crate::timers::Timers;
use crate::vectors;

/// The solves that start from one level.
///
/// See [the crate](crate) for an example.
#[derive(Clone, Debug)]
pub struct LevelRun {
    /// Cells per side.
    pub dim: usize,
    /// The first solve; the others repeat it bit for bit, or `repeatable` is false.
    pub first: Solved,
    /// Largest magnitude of the solution.
    pub umax: f64,
    /// Timed solves.
    pub solves: usize,
    /// Mean time of a solve.
    pub mean: Duration,
    /// True when all solves gave the same residuals, and the first and the last the same solution.
    pub repeatable: bool,
}

/// How many solves to time on each of the three sizes.
///
/// See [the crate](crate) for an example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effort {
    /// So many, after one to warm up.
    Solves(usize),
    /// As many as fit, after up to ten to warm up; at least one, and at least ten where that was the
    /// warm-up (the reference's protocol at 60 s).
    Seconds(f64),
}

/// What a run found.
///
/// See [the crate](crate) for an example.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Solves on levels 0, 1, 2.
    pub runs: Vec<LevelRun>,
    /// max |u_2h − R u_h|.
    pub error_2h_h: f64,
    /// max |u_4h − R u_2h|.
    pub error_4h_2h: f64,
    /// Where the time of the timed solves on level 0 went, on this rank.
    pub timers: Timers,
    /// Iterations of the bottom solver in one solve of each size.
    pub bottom_iterations: usize,
}

impl Outcome {
    /// Observed order of accuracy.
    pub fn order(&self) -> f64 {
        (self.error_4h_2h / self.error_2h_h).log2()
    }
}

/// What a run needs of a solver; level 0 is the finest. Operations are collective over the ranks that are active on
/// their level.
///
/// # Errors
/// All fail when the ranks lose each other or the device fails.
///
/// See [the crate](crate) for an example.
#[allow(clippy::missing_errors_doc)]
pub trait Solver {
    /// Number of levels.
    fn levels(&self) -> usize;
    /// True when this rank takes part in level `l` or a coarser one.
    fn active(&self, l: usize) -> bool;
    /// Cells per side of level `l`.
    fn dim(&self, l: usize) -> usize;
    /// What one solve is.
    fn cycle(&self) -> Cycle;
    /// `U = 0` on level `l`.
    fn zero_solution(&mut self, l: usize) -> Result<(), Error>;
    /// Solves `A U = F` from level `l`; `U` starts as zero.
    fn solve(&mut self, l: usize, out: &mut Solved) -> Result<(), Error>;
    /// The largest of the ranks' values.
    fn agree(&mut self, l: usize, value: f64) -> Result<f64, Error>;
    /// max |U| of level `l`.
    fn largest(&mut self, l: usize) -> Result<f64, Error>;
    /// A number that tells this rank's solutions of level `l` apart, bit by bit.
    fn fingerprint(&mut self, l: usize) -> Result<u64, Error>;
    /// max |U of level l+1 − restriction of U of level l|; 0 without such a level.
    fn difference(&mut self, l: usize) -> Result<f64, Error>;
    /// Where time went since the last reset.
    fn timers(&self) -> Result<Timers, Error>;
    /// Sets them to zero.
    fn reset_timers(&mut self) -> Result<(), Error>;
    /// Iterations of the bottom solver since the last call.
    fn take_bottom_iterations(&mut self) -> Result<usize, Error>;
}

/// Runs the benchmark on this rank's part; `progress` is called with the size and the solves done and
/// expected. Ranks that are not active on level 0 do nothing.
///
/// # Errors
/// When the ranks lose each other or the device fails.
pub fn run(
    solver: &mut impl Solver,
    effort: Effort,
    mut progress: impl FnMut(usize, usize, usize),
) -> Result<Outcome, Error> {
    let mut runs = Vec::new();
    let mut bottom_iterations = 0;
    let mut timers = solver.timers()?;
    for l in 0..3.min(solver.levels()) {
        if solver.active(l) {
            solver.take_bottom_iterations()?;
            let run = run_level(solver, l, effort, &mut progress)?;
            bottom_iterations += solver.take_bottom_iterations()? / (run.solves + run.warm_up);
            runs.push(run.result);
            if l == 0 {
                timers = solver.timers()?;
            }
        }
    }
    let error_2h_h = solver.difference(0)?;
    let error_4h_2h = solver.difference(1)?;
    Ok(Outcome { runs, error_2h_h, error_4h_2h, timers, bottom_iterations })
}

struct Counted {
    result: LevelRun,
    solves: usize,
    warm_up: usize,
}

fn run_level<S: Solver>(
    solver: &mut S,
    l: usize,
    effort: Effort,
    progress: &mut impl FnMut(usize, usize, usize),
) -> Result<Counted, Error> {
    let dim = solver.dim(l);
    let mut first = Solved::empty();
    let mut again = Solved::empty();
    let mut repeatable = true;
    let mut total = Duration::ZERO;
    // Agreed between the ranks: the time of the slowest.
    let one = |solver: &mut S, out: &mut Solved| -> Result<f64, Error> {
        solver.zero_solution(l)?;
        solver.solve(l, out)?;
        solver.agree(l, out.time.as_secs_f64())
    };
    let mut spent = one(solver, &mut first)?;
    let fingerprint = solver.fingerprint(l)?;
    let mut warm_up = 1;
    let solves = match effort {
        Effort::Solves(n) => n,
        Effort::Seconds(limit) => {
            while warm_up < 10 && spent < 0.1 * limit {
                spent += one(solver, &mut again)?;
                warm_up += 1;
            }
            let fit = (limit / (spent / warm_up as f64)) as usize;
            fit.max(if warm_up == 10 { 10 } else { 1 })
        }
    };
    solver.reset_timers()?;
    for done in 0..solves {
        progress(dim, done, solves);
        one(solver, &mut again)?;
        repeatable &= again.cycles == first.cycles;
        total += again.time;
    }
    if solves == 0 {
        total = first.time;
    }
    let differs = solver.fingerprint(l)? != fingerprint;
    repeatable &= solver.agree(l, f64::from(u8::from(differs)))? == 0.0;
    let umax = solver.largest(l)?;
    let mean = total / solves.max(1) as u32;
    let result = LevelRun { dim, first, umax, solves, mean, repeatable };
    Ok(Counted { result, solves, warm_up })
}

impl Cpu {
    /// max |U − Temp| of level `l + 1`, where `Temp` is the restriction of U of level `l`.
    pub(crate) fn difference_from_restricted(&mut self, l: usize) -> Result<f64, Error> {
        if Operators::active(self, l + 1) {
            let (team, level) = (&self.team, &mut self.levels[l + 1]);
            vectors::map(team, level, Vector::Temp, Vector::U, |r, u| *r = u - *r);
        }
        let error = vectors::max_abs(&self.team, self.isa, &self.levels[l + 1], Vector::Temp);
        self.agree(l, error)
    }
}

impl Solver for Cpu {
    fn levels(&self) -> usize {
        Operators::levels(self)
    }

    fn active(&self, l: usize) -> bool {
        Operators::active(self, l)
    }

    fn dim(&self, l: usize) -> usize {
        self.level(l).shape.dim
    }

    fn cycle(&self) -> Cycle {
        self.config().cycle
    }

    fn zero_solution(&mut self, l: usize) -> Result<(), Error> {
        self.zero(l, Vector::U);
        Ok(())
    }

    fn solve(&mut self, l: usize, out: &mut Solved) -> Result<(), Error> {
        let cycle = self.config().cycle;
        Ok(cycle::solve(self, l, cycle, out)?)
    }

    fn agree(&mut self, l: usize, value: f64) -> Result<f64, Error> {
        let mut value = [value];
        if let Some(group) = &mut self.level_mut(l).group {
            group.max(&mut value)?;
        }
        Ok(value[0])
    }

    fn largest(&mut self, l: usize) -> Result<f64, Error> {
        Ok(self.norm(l, Vector::U)?)
    }

    fn fingerprint(&mut self, l: usize) -> Result<u64, Error> {
        Ok(vectors::fingerprint(self.level(l).field(Vector::U)))
    }

    fn difference(&mut self, l: usize) -> Result<f64, Error> {
        if !Operators::active(self, l) || l + 1 >= Operators::levels(self) {
            return Ok(0.0);
        }
        self.restrict(l, Vector::U, Vector::Temp)?;
        self.difference_from_restricted(l)
    }

    fn timers(&self) -> Result<Timers, Error> {
        Ok(self.timers.clone())
    }

    fn reset_timers(&mut self) -> Result<(), Error> {
        self.timers.reset();
        Ok(())
    }

    fn take_bottom_iterations(&mut self) -> Result<usize, Error> {
        Ok(std::mem::take(&mut self.bottom_iterations))
    }
}
