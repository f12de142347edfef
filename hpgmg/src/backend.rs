//! What a cycle needs of the machine it runs on: the operations on the vectors of a level.
//!
//! The steps of the cycles are made of [`Operators`], none of which has an answer, so that a backend may only enqueue them;
//! the Krylov solvers of [`Backend`], whose norms and products have. Every operation is collective over the ranks that are
//! active on its level.

use crate::comm::CommError;
use crate::cpu::Step;
use crate::cycle::{CycleStep, Levels, Op};
use crate::options::Smoother;
use crate::smoothers;
use crate::transfer::Rule;
use crate::work::Work;

/// The vectors of a level.
///
/// See [`Operators`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vector {
    /// Scratch: the other half of the smoothers' ping-pong, residuals on their way down.
    Temp,
    /// Solution, or correction on coarser levels.
    U,
    /// Right-hand side.
    F,
    /// Right-hand side of the current cycle.
    R,
    /// Inverse diagonal of the operator.
    Dinv,
    /// Face coefficient of normal 0, 1 or 2.
    Beta(u8),
    /// Cell coefficient of the identity term (Helmholtz).
    Alpha,
    /// L1 weights (L1-Jacobi).
    L1Inv,
    /// Work vector 0..8 of the Krylov solvers, on the bottom level.
    Krylov(u8),
}

impl Vector {
    /// Number of vectors.
    pub const COUNT: usize = 18;

    /// Position in a level's storage.
    pub fn index(self) -> usize {
        match self {
            Vector::Temp => 0,
            Vector::U => 1,
            Vector::F => 2,
            Vector::R => 3,
            Vector::Dinv => 4,
            Vector::Beta(axis) => 5 + axis as usize,
            Vector::Alpha => 8,
            Vector::L1Inv => 9,
            Vector::Krylov(i) => 10 + i as usize,
        }
    }
}

/// Which interpolation.
///
/// See [`Operators`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prolongation {
    /// Of a correction, added to the finer level (V-cycle).
    Correct,
    /// Of a solution, replacing the finer level's (F-cycle).
    Replace,
}

/// What a level is smoothed and interpolated by.
///
/// See [`Operators`] for an example.
#[derive(Clone, Copy, Debug)]
pub struct Outline {
    /// The smoother.
    pub smoother: Smoother,
    /// The operator has point values.
    pub point_centred: bool,
    /// GSRB half-sweeps are done in pairs, in place.
    pub fused: bool,
    /// Upper bound of the spectrum of the preconditioned operator.
    pub lambda_max: f64,
    /// How corrections come from the next coarser level.
    pub correction: Option<Rule>,
    /// How solutions do, where that is another rule.
    pub prolongation: Option<Rule>,
}

/// What the steps of a cycle consist of; level 0 is the finest. A backend may do it later, in the order of the calls.
///
/// # Errors
/// All fail with [`CommError`] when the ranks lose each other.
///
/// ```
/// use std::time::Duration;
///
/// use hpgmg::backend::{Backend, Operators, Vector};
/// use hpgmg::comm::Alone;
/// use hpgmg::cpu::{Cpu, Step};
/// use hpgmg::options::Config;
/// use hpgmg::work::Work;
///
/// let mut cpu = Cpu::new(Config { box_dim: 16, ..Config::default() }, &Alone, 1)?;
/// let smoother = cpu.outline(0).smoother; // of the finest level
/// cpu.clear(0, Vector::U)?;
/// cpu.smooth(0, Vector::U, Vector::F)?;
/// // Temp = F - A U; the same pass as residual().
/// cpu.run(Work::Pass { l: 0, x: Vector::U, out: Vector::Temp, step: Step::Residual(Vector::F) })?;
/// let (left, all) = (cpu.norm(0, Vector::Temp)?, cpu.norm(0, Vector::F)?);
/// println!("{smoother:?} leaves {:.3} of the residual", left / all);
/// # Ok::<(), hpgmg::error::Error>(())
/// ```
#[allow(clippy::missing_errors_doc)]
pub trait Operators {
    /// Number of levels.
    fn levels(&self) -> usize;
    /// True when this rank takes part in level `l` or a coarser one.
    fn active(&self, l: usize) -> bool;
    /// What level `l` is smoothed and interpolated by.
    fn outline(&self, l: usize) -> Outline;
    /// Does a part of a cycle.
    fn run(&mut self, work: Work) -> Result<(), CommError>;
    /// `x = 0`.
    fn clear(&mut self, l: usize, x: Vector) -> Result<(), CommError>;
    /// Solves `A x = rhs` on the coarsest level.
    fn solve_bottom(&mut self, x: Vector, rhs: Vector) -> Result<(), CommError>;
    /// One call of the smoother on `A x = rhs`.
    fn smooth(&mut self, l: usize, x: Vector, rhs: Vector) -> Result<(), CommError> {
        let outline = self.outline(l);
        (0..smoothers::passes(&outline))
            .try_for_each(|pass| self.run(smoothers::pass(&outline, l, x, rhs, pass)))
    }
    /// `out = rhs - A x`.
    fn residual(&mut self, l: usize, out: Vector, x: Vector, rhs: Vector) -> Result<(), CommError> {
        self.run(Work::Pass { l, x, out, step: Step::Residual(rhs) })
    }
    /// `coarse` of level `l + 1` = means of `fine` of level `l`.
    fn restrict(&mut self, l: usize, fine: Vector, coarse: Vector) -> Result<(), CommError> {
        self.run(Work::Restrict { l, fine, coarse })
    }
    /// `x` of level `l` from `x` of level `l + 1`.
    fn prolong(&mut self, l: usize, x: Vector, how: Prolongation) -> Result<(), CommError> {
        let Outline { correction, prolongation, .. } = self.outline(l);
        let rule =
            if how == Prolongation::Replace { prolongation.or(correction) } else { correction };
        if let (Some(rule), true) = (rule, self.active(l + 1)) {
            self.run(Work::Surround { l: l + 1, x, rule })?;
        }
        self.run(Work::Prolong { l, x, how })
    }
    /// The levels as a cycle goes over them.
    fn cycle_levels(&self) -> Levels {
        let active = (0..self.levels()).take_while(|&l| self.active(l)).count();
        Levels { count: self.levels(), active }
    }
    /// Does a step of a cycle.
    fn step(&mut self, CycleStep { op, l, rhs, zero }: CycleStep) -> Result<(), CommError> {
        if zero {
            self.clear(l, Vector::U)?;
        }
        match op {
            Op::Smooth => self.smooth(l, Vector::U, rhs),
            Op::RestrictResidual => {
                self.residual(l, Vector::Temp, Vector::U, rhs)?;
                self.restrict(l, Vector::Temp, Vector::R)
            }
            Op::Restrict => self.restrict(l, rhs, Vector::R),
            Op::Correct => self.prolong(l, Vector::U, Prolongation::Correct),
            Op::Replace => self.prolong(l, Vector::U, Prolongation::Replace),
            Op::Solve => self.solve_bottom(Vector::U, rhs),
        }
    }
}

/// What else there is on the levels of a hierarchy, with answers.
///
/// # Errors
/// All fail with [`CommError`] when the ranks lose each other.
///
/// See [`Operators`] for an example.
#[allow(clippy::missing_errors_doc)]
pub trait Backend: Operators {
    /// True when the operator has the constants in its null space (periodic Poisson).
    fn singular(&self) -> bool;
    /// `out = A x`.
    fn apply(&mut self, l: usize, out: Vector, x: Vector) -> Result<(), CommError>;
    /// `to = from`.
    fn copy(&mut self, l: usize, to: Vector, from: Vector);
    /// `y = b y + a x`.
    fn axpby(&mut self, l: usize, y: Vector, b: f64, x: Vector, a: f64);
    /// `out = x y`, cell by cell.
    fn multiply(&mut self, l: usize, out: Vector, x: Vector, y: Vector);
    /// `x = x + c`.
    fn shift(&mut self, l: usize, x: Vector, c: f64);
    /// Maximum of |x|.
    fn norm(&mut self, l: usize, x: Vector) -> Result<f64, CommError>;
    /// Sum of x y.
    fn dot(&mut self, l: usize, x: Vector, y: Vector) -> Result<f64, CommError>;
    /// Mean of x.
    fn mean(&mut self, l: usize, x: Vector) -> Result<f64, CommError>;
}

/// Makes the mean of `x` zero where the operator does not see it.
///
/// # Errors
/// [`CommError`] when the ranks lose each other.
pub fn remove_mean<B: Backend>(b: &mut B, l: usize, x: Vector) -> Result<(), CommError> {
    if b.singular() {
        let mean = b.mean(l, x)?;
        b.shift(l, x, -mean);
    }
    Ok(())
}
