//! The parts of a cycle that communicate, as data, and the stages of each: what is sent is packed, what needs no message is
//! done, what has come is unpacked, and then what needed it is done. The CPU runs them one after the other
//! ([`Cpu::run`]), or as tasks of a stream with its messages between them ([`crate::enqueued`]).

use std::time::Instant;

use crate::backend::{Prolongation, Vector};
use crate::comm::CommError;
use crate::cpu::{Cpu, Step};
#[cfg(test)]
use crate::mutation::Site;
use crate::options::Boundary;
use crate::red_black;
use crate::timers::Phase;
use crate::transfer::Rule;

/// A part of a cycle.
///
/// See [`Operators`](crate::backend::Operators) for an example.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// One pass of the operator over level `l`; `x` and `out` are different vectors.
    Pass {
        /// The level.
        l: usize,
        /// What the operator is applied to; its halo is exchanged.
        x: Vector,
        /// What is written.
        out: Vector,
        /// What the pass computes.
        step: Step,
    },
    /// Half-sweeps number `sweep` and `sweep + 1` of GSRB over level `l`, in place, of the inner cells of the boxes or their
    /// shells: first inner, then shell.
    RedBlack {
        /// The level.
        l: usize,
        /// What is smoothed; its halo is exchanged.
        x: Vector,
        /// Right-hand side.
        rhs: Vector,
        /// Number of the first half-sweep.
        sweep: usize,
        /// The shells.
        shell: bool,
    },
    /// Fills all ghosts of `x` on level `l` as interpolation by `rule` needs them.
    Surround {
        /// The level.
        l: usize,
        /// The vector.
        x: Vector,
        /// The rule.
        rule: Rule,
    },
    /// `coarse` of level `l + 1` = means of `fine` of level `l`.
    Restrict {
        /// The finer level.
        l: usize,
        /// What is restricted.
        fine: Vector,
        /// What is written.
        coarse: Vector,
    },
    /// `x` of level `l` from `x` of level `l + 1`, whose ghosts are filled.
    Prolong {
        /// The finer level.
        l: usize,
        /// The vector.
        x: Vector,
        /// Corrected or replaced.
        how: Prolongation,
    },
}

/// A stage of a [`Work`].
///
/// See [`Operators`](crate::backend::Operators) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Packs and sends.
    Pack,
    /// Does what needs no message.
    Here,
    /// Waits and unpacks.
    Unpack,
    /// Does what needed the messages.
    Rest,
}

impl Stage {
    /// All, in order.
    pub const ALL: [Stage; 4] = [Stage::Pack, Stage::Here, Stage::Unpack, Stage::Rest];
}

impl Cpu {
    /// Does a part of a cycle.
    ///
    /// # Errors
    /// [`CommError`] when the ranks lose each other.
    pub fn run(&mut self, work: Work) -> Result<(), CommError> {
        Stage::ALL.into_iter().try_for_each(|stage| self.stage(work, stage))
    }

    /// Does one stage of it; they come in order.
    ///
    /// # Errors
    /// [`CommError`] when the ranks lose each other.
    pub fn stage(&mut self, work: Work, stage: Stage) -> Result<(), CommError> {
        #[cfg(test)]
        self.before(work, stage);
        self.do_stage(work, stage)?;
        #[cfg(test)]
        self.after(work, stage);
        Ok(())
    }

    fn do_stage(&mut self, work: Work, stage: Stage) -> Result<(), CommError> {
        match work {
            Work::Pass { l, x, out, step } => self.pass(l, x, out, step, stage),
            Work::RedBlack { l, x, rhs, sweep, shell } => {
                self.exchange(l, x, stage)?;
                if stage == Stage::Rest {
                    let part = if shell { red_black::shell } else { red_black::inner };
                    self.red_black(l, x, rhs, sweep, part);
                }
                Ok(())
            }
            Work::Surround { l, x, rule } => self.surround(l, x, rule, stage),
            Work::Restrict { l, fine, coarse } => self.restriction(l, fine, coarse, stage),
            Work::Prolong { l, x, how } => self.interpolation(l, x, how, stage),
        }
    }

    /// A stage of the halo exchange of `x` on level `l`.
    fn exchange(&mut self, l: usize, x: Vector, stage: Stage) -> Result<(), CommError> {
        let clock = Instant::now();
        #[cfg(test)]
        self.about_to(Site::Message, l, x, stage);
        let rule = self.boundary_rule(l);
        let Self { levels, team, .. } = self;
        let level = &mut levels[l];
        level.halo.stage(stage, team, &mut level.fields[x.index()], rule)?;
        #[cfg(test)]
        self.has_exchanged(l, x, stage);
        self.timers.add(l, Phase::Exchange, clock);
        Ok(())
    }

    fn surround(&mut self, l: usize, x: Vector, rule: Rule, stage: Stage) -> Result<(), CommError> {
        let clock = Instant::now();
        let n = self.levels[l].geometry.n;
        let Some(boundary) = rule.ghosts(n) else { return Ok(()) };
        let boundary = (self.config.boundary == Boundary::Dirichlet).then_some(boundary);
        #[cfg(test)]
        self.about_to(Site::Message, l, x, stage);
        let level = &mut self.levels[l];
        let field = &mut level.fields[x.index()];
        let halo = level.surround.as_mut().unwrap_or(&mut level.halo);
        halo.stage(stage, &self.team, field, boundary)?;
        #[cfg(test)]
        self.has_exchanged(l, x, stage);
        self.timers.add(l, Phase::Exchange, clock);
        Ok(())
    }

    fn pass(
        &mut self,
        l: usize,
        x: Vector,
        out: Vector,
        step: Step,
        stage: Stage,
    ) -> Result<(), CommError> {
        self.exchange(l, x, stage)?;
        let early = match stage {
            Stage::Here => true,
            Stage::Rest => false,
            Stage::Pack | Stage::Unpack => return Ok(()),
        };
        let clock = Instant::now();
        self.tiles(l, x, out, step, early);
        let phase = match step {
            Step::Apply | Step::Residual(_) => Phase::Residual,
            _ => Phase::Smooth,
        };
        self.timers.add(l, phase, clock);
        Ok(())
    }

    fn restriction(
        &mut self,
        l: usize,
        fine: Vector,
        coarse: Vector,
        stage: Stage,
    ) -> Result<(), CommError> {
        let clock = Instant::now();
        let (upper, lower) = self.levels.split_at_mut(l + 1);
        let (level, below) = (&mut upper[l], &mut lower[0]);
        if let Some(restriction) = &mut level.restriction {
            let source = &level.fields[fine.index()];
            let target = &mut below.fields[coarse.index()];
            restriction.stage(stage, &self.team, self.isa, source, target)?;
        }
        self.timers.add(l, Phase::Restriction, clock);
        Ok(())
    }

    fn interpolation(
        &mut self,
        l: usize,
        x: Vector,
        how: Prolongation,
        stage: Stage,
    ) -> Result<(), CommError> {
        let clock = Instant::now();
        let (upper, lower) = self.levels.split_at_mut(l + 1);
        let (level, below) = (&mut upper[l], &lower[0]);
        let replaces = how == Prolongation::Replace && level.prolongation.is_some();
        let rule = if replaces { &mut level.prolongation } else { &mut level.correction };
        if let Some(interpolation) = rule {
            let target = &mut level.fields[x.index()];
            let add = how == Prolongation::Correct;
            interpolation.stage(stage, &self.team, self.isa, below.field(x), target, add)?;
        }
        self.timers.add(l, Phase::Interpolation, clock);
        Ok(())
    }
}
