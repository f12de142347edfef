//! The multigrid cycles: V, F, and iteration to a tolerance. Section 10 of the HPGMG-FV description.

use std::time::{Duration, Instant};

use crate::backend::{Backend, Prolongation, Vector, remove_mean};
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
pub fn v_cycle<B: Backend>(b: &mut B, l: usize, x: Vector, rhs: Vector) -> Result<(), CommError> {
    if !b.active(l) {
        return Ok(());
    }
    if l + 1 == b.levels() {
        b.solve_bottom(x, rhs)?;
        return Ok(());
    }
    b.smooth(l, x, rhs)?;
    b.residual(l, Vector::Temp, x, rhs)?;
    b.restrict(l, Vector::Temp, Vector::R)?;
    if b.active(l + 1) {
        b.zero(l + 1, x);
        v_cycle(b, l + 1, x, Vector::R)?;
    }
    b.prolong(l, x, Prolongation::Correct)?;
    b.smooth(l, x, rhs)
}

/// One F-cycle (full multigrid) from level `l`: solves `A U = F` from nothing.
///
/// # Errors
/// [`CommError`] when the ranks lose each other.
pub fn f_cycle<B: Backend>(b: &mut B, l: usize) -> Result<(), CommError> {
    f_cycle_on(b, l, Vector::F)
}

/// One F-cycle from level `l` for the right-hand side `top` of that level.
///
/// # Errors
/// [`CommError`] when the ranks lose each other.
pub fn f_cycle_on<B: Backend>(b: &mut B, l: usize, top: Vector) -> Result<(), CommError> {
    let bottom = b.levels() - 1;
    let rhs = |level| if level == l { top } else { Vector::R };
    for level in l..bottom {
        if b.active(level) {
            b.restrict(level, rhs(level), Vector::R)?;
        }
    }
    if b.active(bottom) {
        b.zero(bottom, Vector::U);
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

/// Solves `A U = F` with level `l` as the finest; `U` starts as zero. Only active ranks call it.
///
/// # Errors
/// [`CommError`] when the ranks lose each other.
pub fn solve<B: Backend>(
    b: &mut B,
    l: usize,
    cycle: Cycle,
    out: &mut Solved,
) -> Result<(), CommError> {
    let start = Instant::now();
    out.cycles.clear();
    out.fmax = b.norm(l, Vector::F)?;
    let mut finish = |b: &mut B, kind| -> Result<bool, CommError> {
        remove_mean(b, l, Vector::U)?;
        b.residual(l, Vector::Temp, Vector::U, Vector::F)?;
        let residual = b.norm(l, Vector::Temp)?;
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
