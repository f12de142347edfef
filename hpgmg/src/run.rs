//! A whole run on one rank: solve on levels 0, 1 and 2, repeatedly, and compare them.

use std::time::Duration;

use crate::backend::{Backend, Vector};
use crate::comm::CommError;
use crate::cpu::Cpu;
use crate::cycle::{Solved, solve};
use crate::timers::Timers;
use crate::vectors;

/// The solves that start from one level.
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
    /// True when all solves gave the same residuals.
    pub repeatable: bool,
}

/// How many solves to time on each of the three sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effort {
    /// So many, after one to warm up.
    Solves(usize),
    /// As many as fit, after up to ten to warm up; at least one, and at least ten where that was the
    /// warm-up (the reference's protocol at 60 s).
    Seconds(f64),
}

/// What a run found.
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

/// Runs the benchmark on this rank's part; `progress` is called with the size and the solves done and
/// expected. Ranks that are not active on level 0 do nothing.
///
/// # Errors
/// [`CommError`] when the ranks lose each other.
pub fn run(
    cpu: &mut Cpu,
    effort: Effort,
    mut progress: impl FnMut(usize, usize, usize),
) -> Result<Outcome, CommError> {
    let mut runs = Vec::new();
    let mut bottom_iterations = 0;
    let mut timers = cpu.timers.clone();
    for l in 0..3.min(cpu.levels()) {
        if cpu.active(l) {
            cpu.bottom_iterations = 0;
            let run = run_level(cpu, l, effort, &mut progress)?;
            bottom_iterations += cpu.bottom_iterations / (run.solves + run.warm_up);
            runs.push(run.result);
            if l == 0 {
                timers = cpu.timers.clone();
            }
        }
    }
    let error_2h_h = difference(cpu, 0)?;
    let error_4h_2h = difference(cpu, 1)?;
    Ok(Outcome { runs, error_2h_h, error_4h_2h, timers, bottom_iterations })
}

struct Counted {
    result: LevelRun,
    solves: usize,
    warm_up: usize,
}

fn run_level(
    cpu: &mut Cpu,
    l: usize,
    effort: Effort,
    progress: &mut impl FnMut(usize, usize, usize),
) -> Result<Counted, CommError> {
    let dim = cpu.level(l).shape.dim;
    let cycle = cpu.config().cycle;
    let mut first = Solved::empty();
    let mut again = Solved::empty();
    let mut repeatable = true;
    let mut total = Duration::ZERO;
    // Agreed between the ranks: the time of the slowest.
    let one = |cpu: &mut Cpu, out: &mut Solved| -> Result<f64, CommError> {
        cpu.zero(l, Vector::U);
        solve(cpu, l, cycle, out)?;
        let mut seconds = [out.time.as_secs_f64()];
        if let Some(group) = &mut cpu.level_mut(l).group {
            group.max(&mut seconds)?;
        }
        Ok(seconds[0])
    };
    let mut spent = one(cpu, &mut first)?;
    let mut warm_up = 1;
    let solves = match effort {
        Effort::Solves(n) => n,
        Effort::Seconds(limit) => {
            while warm_up < 10 && spent < 0.1 * limit {
                spent += one(cpu, &mut again)?;
                warm_up += 1;
            }
            let fit = (limit / (spent / warm_up as f64)) as usize;
            fit.max(if warm_up == 10 { 10 } else { 1 })
        }
    };
    cpu.timers.reset();
    for done in 0..solves {
        progress(dim, done, solves);
        one(cpu, &mut again)?;
        repeatable &= again.cycles == first.cycles;
        total += again.time;
    }
    if solves == 0 {
        total = first.time;
    }
    let umax = cpu.norm(l, Vector::U)?;
    let mean = total / solves.max(1) as u32;
    let result = LevelRun { dim, first, umax, solves, mean, repeatable };
    Ok(Counted { result, solves, warm_up })
}

/// max |u of level l+1 − restriction of u of level l|.
fn difference(cpu: &mut Cpu, l: usize) -> Result<f64, CommError> {
    if !cpu.active(l) || l + 1 >= cpu.levels() {
        return Ok(0.0);
    }
    cpu.restrict(l, Vector::U, Vector::Temp)?;
    if cpu.active(l + 1) {
        let (team, level) = (&cpu.team, &mut cpu.levels[l + 1]);
        vectors::map(team, level, Vector::Temp, Vector::U, |r, u| *r = u - *r);
    }
    let mut error = [vectors::max_abs(&cpu.team, cpu.isa, &cpu.levels[l + 1], Vector::Temp)];
    if let Some(group) = &mut cpu.levels[l].group {
        group.max(&mut error)?;
    }
    Ok(error[0])
}
