//! The multigrid cycles: V, F, and iteration to a tolerance. Section 10 of the HPGMG-FV description.

use std::time::{Duration, Instant};

use crate::backend::{Backend, Operators, Prolongation, Vector, remove_mean};
use crate::comm::CommError;
use crate::options::Cycle;

/// Relative residual at which iterated cycles stop.
pub const TOLERANCE: f64 = 1e-10;
/// Most V-cycles of one solve.
pub const MAX_V_CYCLES: usize = 20;

/// One V-cycle on `A x = rhs` from level `l` down.
///
/// # Errors
/// [`CommError`] when the ranks lose each other.
pub fn v_cycle<B: Operators>(b: &mut B, l: usize, x: Vector, rhs: Vector) -> Result<(), CommError> {
    if !b.active(l) {
        return Ok(());
    }
    if l + 1 == b.levels() {
        return b.solve_bottom(x, rhs);
    }
    b.smooth(l, x, rhs)?;
    b.residual(l, Vector::Temp, x, rhs)?;
    b.restrict(l, Vector::Temp, Vector::R)?;
    if b.active(l + 1) {
        b.clear(l + 1, x)?;
        v_cycle(b, l + 1, x, Vector::R)?;
    }
    b.prolong(l, x, Prolongation::Correct)?;
    b.smooth(l, x, rhs)
}

/// One F-cycle (full multigrid) from level `l`: solves `A U = F` from nothing.
///
/// # Errors
/// [`CommError`] when the ranks lose each other.
pub fn f_cycle<B: Operators>(b: &mut B, l: usize) -> Result<(), CommError> {
    f_cycle_on(b, l, Vector::F)
}

/// One F-cycle from level `l` for the right-hand side `top` of that level.
///
/// # Errors
/// [`CommError`] when the ranks lose each other.
pub fn f_cycle_on<B: Operators>(b: &mut B, l: usize, top: Vector) -> Result<(), CommError> {
    let bottom = b.levels() - 1;
    let rhs = |level| if level == l { top } else { Vector::R };
    for level in l..bottom {
        if b.active(level) {
            b.restrict(level, rhs(level), Vector::R)?;
        }
    }
    if b.active(bottom) {
        b.clear(bottom, Vector::U)?;
        b.solve_bottom(Vector::U, rhs(bottom))?;
    }
    for level in (l..bottom).rev() {
        if b.active(level) {
            b.prolong(level, Vector::U, Prolongation::Replace)?;
            v_cycle(b, level, Vector::U, rhs(level))?;
        }
    }
    Ok(())
}

/// What one solve did.
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
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norms {
    /// Maximum of the residual.
    pub residual: f64,
    /// Maximum of the right-hand side, if it was asked for; else 0.
    pub rhs: f64,
}

/// A backend on which one can solve: it answers after each cycle, and nothing waits before.
pub trait Measured: Operators {
    /// Removes the mean of `U` where the operator does not see it, and gives the norms of the residual of `A U = F` on level
    /// `l` and, with `first`, of `F`. `Temp` holds the residual then.
    ///
    /// # Errors
    /// [`CommError`] when the ranks lose each other.
    fn measure(&mut self, l: usize, first: bool) -> Result<Norms, CommError>;
}

impl<B: Backend> Measured for B {
    fn measure(&mut self, l: usize, first: bool) -> Result<Norms, CommError> {
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
/// [`CommError`] when the ranks lose each other.
pub fn solve<B: Measured>(
    b: &mut B,
    l: usize,
    cycle: Cycle,
    out: &mut Solved,
) -> Result<(), CommError> {
    let start = Instant::now();
    out.cycles.clear();
    let mut finish = |b: &mut B, kind| -> Result<bool, CommError> {
        let first = out.cycles.is_empty();
        let Norms { residual, rhs } = b.measure(l, first)?;
        if first {
            out.fmax = rhs;
        }
        let relative = residual / out.fmax;
        out.cycles.push(CycleResult { kind, residual, relative });
        Ok(relative < TOLERANCE)
    };
    let mut done = false;
    match cycle {
        Cycle::F | Cycle::Fv => {
            f_cycle(b, l)?;
            done = finish(b, "f-cycle")? || cycle == Cycle::F;
        }
        Cycle::V => {}
    }
    // The residual equation of a V-cycle on the finest level is the equation itself.
    for _ in 0..MAX_V_CYCLES {
        if done {
            break;
        }
        v_cycle(b, l, Vector::U, Vector::F)?;
        done = finish(b, "v-cycle")?;
    }
    out.time = start.elapsed();
    Ok(())
}
