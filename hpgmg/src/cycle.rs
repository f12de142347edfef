//! The multigrid cycles, V and F, as the steps that they consist of – their one description, whoever computes –, and iteration to
//! a tolerance. Section 10 of the HPGMG-FV description.

use std::time::{Duration, Instant};

use mp_kernels::shared_enum;

use crate::backend::{Backend, Vector, remove_mean};
use crate::comm::CommError;
use crate::options::Cycle;

/// Relative residual at which iterated cycles stop.
pub const TOLERANCE: f64 = 1e-10;
/// Most V-cycles of one solve.
pub const MAX_V_CYCLES: usize = 20;

shared_enum! {
    /// What a step of a cycle does with u of its level; r is the right-hand side of the cycle there.
    ///
    /// See [`Levels`] for an example.
    pub enum Op {
        /// One call of the smoother.
        Smooth = 0 as OP_SMOOTH,
        /// r of the next level becomes means of the residual.
        RestrictResidual = 1 as OP_RESTRICT_RESIDUAL,
        /// r of the next level becomes means of the right-hand side.
        Restrict = 2 as OP_RESTRICT,
        /// u of the next level is interpolated and added.
        Correct = 3 as OP_CORRECT,
        /// u of the next level is interpolated and replaces it.
        Replace = 4 as OP_REPLACE,
        /// The coarsest level is solved.
        Solve = 5 as OP_SOLVE,
    }
}

/// A step of a cycle on `A U = rhs`, as data.
///
/// See [`Levels`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CycleStep {
    /// What it does.
    pub op: Op,
    /// Its level; of a step between two levels the finer.
    pub l: usize,
    /// The right-hand side, `F` or `R`.
    pub rhs: Vector,
    /// What `U` held before counts as zero.
    pub zero: bool,
}

/// The levels that cycles go over, as a rank sees them.
///
/// ```
/// use hpgmg::backend::Vector;
/// use hpgmg::cycle::{Kind, Levels, Op};
///
/// let (levels, mut ops) = (Levels { count: 2, active: 2 }, Vec::new());
/// levels.cycle(Kind::V, 0, &mut |step| {
///     ops.push((step.op, step.l));
///     Ok::<(), std::convert::Infallible>(())
/// })?;
/// let expected = [
///     (Op::Smooth, 0),
///     (Op::RestrictResidual, 0),
///     (Op::Solve, 1),
///     (Op::Correct, 0),
///     (Op::Smooth, 0),
/// ];
/// assert_eq!(ops, expected);
/// # Ok::<(), std::convert::Infallible>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// All; the last is the coarsest.
    pub count: usize,
    /// Those that this rank takes part in, from the finest on.
    pub active: usize,
}

impl Levels {
    /// Gives `run` the steps of one V-cycle on `A U = rhs` from level `l` down.
    ///
    /// # Errors
    /// The first of `run`.
    pub fn v_cycle<E>(
        self,
        l: usize,
        rhs: Vector,
        zero: bool,
        run: &mut impl FnMut(CycleStep) -> Result<(), E>,
    ) -> Result<(), E> {
        if l >= self.active {
            return Ok(());
        }
        let step = |op, zero| CycleStep { op, l, rhs, zero };
        if l + 1 == self.count {
            return run(step(Op::Solve, zero));
        }
        run(step(Op::Smooth, zero))?;
        run(step(Op::RestrictResidual, false))?;
        self.v_cycle(l + 1, Vector::R, true, run)?;
        run(step(Op::Correct, false))?;
        run(step(Op::Smooth, false))
    }

    /// Gives `run` the steps of one F-cycle (full multigrid) from level `l`, which solves `A U = F` from nothing.
    ///
    /// # Errors
    /// The first of `run`.
    pub fn f_cycle<E>(
        self,
        l: usize,
        run: &mut impl FnMut(CycleStep) -> Result<(), E>,
    ) -> Result<(), E> {
        let bottom = self.count - 1;
        let rhs = |level| if level == l { Vector::F } else { Vector::R };
        let step = |op, l| CycleStep { op, l, rhs: rhs(l), zero: op == Op::Solve };
        let above = l..bottom.min(self.active);
        above.clone().try_for_each(|l| run(step(Op::Restrict, l)))?;
        if bottom < self.active {
            run(step(Op::Solve, bottom))?;
        }
        above.rev().try_for_each(|l| {
            run(step(Op::Replace, l))?;
            self.v_cycle(l, rhs(l), false, run)
        })
    }

    /// Gives `run` the steps of a cycle on `A U = F` from level `l`; a V-cycle goes on from `U`.
    ///
    /// # Errors
    /// The first of `run`.
    pub fn cycle<E>(
        self,
        kind: Kind,
        l: usize,
        run: &mut impl FnMut(CycleStep) -> Result<(), E>,
    ) -> Result<(), E> {
        match kind {
            Kind::F => self.f_cycle(l, run),
            Kind::V => self.v_cycle(l, Vector::F, false, run),
        }
    }
}

/// Which cycle.
///
/// See [`Levels`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Full multigrid, from nothing.
    F,
    /// Of the residual equation, which on the finest level is the equation itself.
    V,
}

impl Kind {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::F => "f-cycle",
            Kind::V => "v-cycle",
        }
    }
}

/// What one solve did.
///
/// See [the crate](crate) for an example.
#[derive(Clone, Debug, PartialEq)]
pub struct Solved {
    /// Maximum of the right-hand side.
    pub fmax: f64,
    /// The cycles, in order, each with the residual after it.
    pub cycles: Vec<CycleResult>,
    /// Wall-clock time on this rank.
    pub time: Duration,
}

/// One cycle of a solve.
///
/// See [the crate](crate) for an example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CycleResult {
    /// `"f-cycle"` or `"v-cycle"`.
    pub kind: &'static str,
    /// Maximum of the residual.
    pub residual: f64,
    /// The same over the maximum of the right-hand side.
    pub relative: f64,
}

impl Solved {
    /// A record with room for the cycles of any solve, so that solving allocates nothing.
    pub fn empty() -> Self {
        Self { fmax: 0.0, cycles: Vec::with_capacity(MAX_V_CYCLES + 1), time: Duration::ZERO }
    }
}

/// What is asked for after a cycle.
///
/// See [`Cycles`] for an example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norms {
    /// Maximum of the residual.
    pub residual: f64,
    /// Maximum of the right-hand side, if it was asked for; else 0.
    pub rhs: f64,
}

/// A backend on which one can solve: it answers after each cycle, and nothing waits before.
///
/// ```
/// use std::time::Duration;
///
/// use hpgmg::comm::Alone;
/// use hpgmg::cpu::Cpu;
/// use hpgmg::cycle::{Cycles, Kind};
/// use hpgmg::options::Config;
///
/// let mut cpu = Cpu::new(Config { box_dim: 16, ..Config::default() }, &Alone, 1)?;
/// let first = cpu.run_cycle(Kind::F, 0, true)?;
/// let second = cpu.run_cycle(Kind::V, 0, false)?;
/// assert!(second.residual < first.residual && first.residual < first.rhs);
/// # Ok::<(), hpgmg::error::Error>(())
/// ```
pub trait Cycles {
    /// What may go wrong.
    type Error;
    /// Does a cycle on `A U = F` from level `l`, removes the mean of `U` where the operator does not see it, and gives the norms
    /// of the residual and, with `first`, of `F`.
    ///
    /// # Errors
    /// When the ranks lose each other or the device fails.
    fn run_cycle(&mut self, kind: Kind, l: usize, first: bool) -> Result<Norms, Self::Error>;
}

impl<B: Backend> Cycles for B {
    type Error = CommError;

    fn run_cycle(&mut self, kind: Kind, l: usize, first: bool) -> Result<Norms, CommError> {
        self.cycle_levels().cycle(kind, l, &mut |step| self.step(step))?;
        remove_mean(self, l, Vector::U)?;
        self.residual(l, Vector::Temp, Vector::U, Vector::F)?;
        let residual = self.norm(l, Vector::Temp)?;
        let rhs = if first { self.norm(l, Vector::F)? } else { 0.0 };
        Ok(Norms { residual, rhs })
    }
}

/// Solves `A U = F` with level `l` as the finest; `U` starts as zero. Only active ranks call it.
///
/// # Errors
/// When the ranks lose each other or the device fails.
pub fn solve<B: Cycles>(
    b: &mut B,
    l: usize,
    cycle: Cycle,
    out: &mut Solved,
) -> Result<(), B::Error> {
    let start = Instant::now();
    out.cycles.clear();
    let (full, most) = match cycle {
        Cycle::F => (1, 1),
        Cycle::Fv => (1, 1 + MAX_V_CYCLES),
        Cycle::V => (0, MAX_V_CYCLES),
    };
    for turn in 0..most {
        let kind = if turn < full { Kind::F } else { Kind::V };
        let Norms { residual, rhs } = b.run_cycle(kind, l, turn == 0)?;
        if turn == 0 {
            out.fmax = rhs;
        }
        let relative = residual / out.fmax;
        out.cycles.push(CycleResult { kind: kind.name(), residual, relative });
        if relative < TOLERANCE {
            break;
        }
    }
    out.time = start.elapsed();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The steps, a word each: what is done, on which level, on which right-hand side, `0` from zero.
    fn words(levels: Levels, kind: Kind, l: usize) -> String {
        let mut words = Vec::new();
        let mut write = |CycleStep { op, l, rhs, zero }| -> Result<(), std::convert::Infallible> {
            words.push(format!("{op:?}{l}{rhs:?}{}", if zero { "0" } else { "" }));
            Ok(())
        };
        let Ok(()) = levels.cycle(kind, l, &mut write);
        words.join(" ")
    }

    #[test]
    fn an_f_cycle_restricts_to_the_bottom_and_comes_back_by_a_v_cycle_on_each_level() {
        let all = Levels { count: 3, active: 3 };
        assert_eq!(
            words(all, Kind::F, 0),
            "Restrict0F Restrict1R Solve2R0 \
             Replace1R Smooth1R RestrictResidual1R Solve2R0 Correct1R Smooth1R \
             Replace0F Smooth0F RestrictResidual0F Smooth1R0 RestrictResidual1R Solve2R0 Correct1R Smooth1R Correct0F Smooth0F"
        );
        assert_eq!(words(all, Kind::F, 2), "Solve2F0");
    }

    #[test]
    fn a_v_cycle_goes_on_from_what_is_there_and_below_from_zero() {
        let all = Levels { count: 3, active: 3 };
        assert_eq!(
            words(all, Kind::V, 0),
            "Smooth0F RestrictResidual0F Smooth1R0 RestrictResidual1R Solve2R0 Correct1R Smooth1R Correct0F Smooth0F"
        );
        assert_eq!(words(all, Kind::V, 2), "Solve2F");
    }

    #[test]
    fn a_rank_without_boxes_on_coarse_levels_still_gives_and_takes_between_levels() {
        let two = Levels { count: 4, active: 1 };
        assert_eq!(
            words(two, Kind::F, 0),
            "Restrict0F Replace0F Smooth0F RestrictResidual0F Correct0F Smooth0F"
        );
        assert_eq!(words(two, Kind::V, 1), "");
    }
}
