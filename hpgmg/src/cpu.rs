//! The backend that runs every level on the CPU: one rank, a team of threads.

use std::time::Instant;

use crate::backend::{Backend, Prolongation, Vector};
use crate::boundary::Extrapolation;
use crate::comm::CommError;
use crate::isa::Isa;
use crate::krylov;
use crate::level::Level;
use crate::operators::{Coefficients, Tile};
use crate::options::{Bottom, Boundary, Config, Equation, Smoother};
use crate::rows::SharedVector;
use crate::smoothers;
use crate::sweep::{self, Pass, Update};
use crate::team::Team;
use crate::timers::{Phase, Timers};
use crate::transfer::Rule;
use crate::vectors;

/// One pass of the operator over a level; vectors by name.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// `out = A x`.
    Apply,
    /// `out = rhs - A x`.
    Residual(Vector),
    /// GSRB half-sweep number `sweep`.
    Gsrb {
        /// Right-hand side.
        rhs: Vector,
        /// Even half-sweeps update the cells with an even sum of indices.
        sweep: usize,
    },
    /// `x + scale weight (rhs - A x)`.
    Weighted {
        /// Right-hand side.
        rhs: Vector,
        /// Weights.
        weight: Vector,
        /// Damping.
        scale: f64,
    },
    /// A step of the Chebyshev recurrence; `out` holds the iterate before.
    Chebyshev {
        /// Right-hand side.
        rhs: Vector,
        /// Weight of the last step.
        c1: f64,
        /// Weight of the residual.
        c2: f64,
    },
}

/// The levels of one rank and the threads that work on them.
pub struct Cpu {
    pub(crate) config: Config,
    pub(crate) levels: Vec<Level>,
    pub(crate) team: Team,
    pub(crate) isa: Isa,
    /// Time spent, by level and phase.
    pub timers: Timers,
    /// Iterations of the bottom solver since the start.
    pub bottom_iterations: usize,
}

impl Cpu {
    /// A level; 0 is the finest.
    pub fn level(&self, l: usize) -> &Level {
        &self.levels[l]
    }

    /// A level whose vectors are to be set.
    pub fn level_mut(&mut self, l: usize) -> &mut Level {
        &mut self.levels[l]
    }

    /// Threads of this rank.
    pub fn threads(&self) -> usize {
        self.team.threads()
    }

    /// The vector instructions in use.
    pub fn instructions(&self) -> String {
        format!("{:?}", self.isa).to_lowercase()
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The rule that fills ghosts for the operator on level `l`; none if the domain wraps.
    pub fn boundary_rule(&self, l: usize) -> Option<Extrapolation> {
        let n = self.levels[l].geometry.n;
        (self.config.boundary == Boundary::Dirichlet)
            .then(|| Extrapolation::of_operator(self.config.operator, n))
    }

    /// Runs one pass over level `l`: exchanges the halo of `x`, works on the tiles that do not need it
    /// meanwhile, then on the others. `x` and `out` are different vectors.
    ///
    /// # Errors
    /// [`CommError`] when the ranks lose each other.
    pub fn pass(&mut self, l: usize, x: Vector, out: Vector, step: Step) -> Result<(), CommError> {
        let phase = match step {
            Step::Apply | Step::Residual(_) => Phase::Residual,
            _ => Phase::Smooth,
        };
        let rule = self.boundary_rule(l);
        let Self { config, levels, team, isa, timers, .. } = self;
        let level = &mut levels[l];
        let mut source = level.take(x);
        let mut target = level.take(out);
        let clock = Instant::now();
        level.halo.start(team, &mut source, rule)?;
        let clock = timers.add(l, Phase::Exchange, clock);
        run_tiles(config, team, *isa, level, &level.early, &source, &mut target, step);
        let clock = timers.add(l, phase, clock);
        level.halo.finish(team, &mut source, rule)?;
        let clock = timers.add(l, Phase::Exchange, clock);
        run_tiles(config, team, *isa, level, &level.late, &source, &mut target, step);
        timers.add(l, phase, clock);
        level.put(x, source);
        level.put(out, target);
        Ok(())
    }

    /// Fills the ghosts of `x` on level `l` as a pass does.
    ///
    /// # Errors
    /// [`CommError`] when the ranks lose each other.
    pub fn fill_halo(&mut self, l: usize, x: Vector) -> Result<(), CommError> {
        let rule = self.boundary_rule(l);
        let level = &mut self.levels[l];
        let field = &mut level.fields[x.index()];
        level.halo.start(&self.team, field, rule)?;
        level.halo.finish(&self.team, field, rule)
    }

    /// Fills all ghosts of `x` on level `l` as interpolation by `rule` needs them.
    ///
    /// # Errors
    /// [`CommError`] when the ranks lose each other.
    pub fn fill_surround(&mut self, l: usize, x: Vector, rule: Rule) -> Result<(), CommError> {
        let n = self.levels[l].geometry.n;
        let boundary = match rule {
            Rule::Constant => return Ok(()),
            Rule::Linear => Extrapolation::Linear,
            Rule::PointQuadratic => Extrapolation::PointQuadratic.lowered(n),
            Rule::Quadratic => Extrapolation::Quadratic.lowered(n),
            Rule::Quartic => Extrapolation::Quartic.lowered(n),
        };
        let boundary = (self.config.boundary == Boundary::Dirichlet).then_some(boundary);
        let level = &mut self.levels[l];
        let field = &mut level.fields[x.index()];
        let halo = level.surround.as_mut().unwrap_or(&mut level.halo);
        let clock = Instant::now();
        halo.start(&self.team, field, boundary)?;
        halo.finish(&self.team, field, boundary)?;
        self.timers.add(l, Phase::Exchange, clock);
        Ok(())
    }

    fn timed<R>(&mut self, l: usize, f: impl FnOnce(&mut Self) -> R) -> R {
        let clock = Instant::now();
        let result = f(self);
        self.timers.add(l, Phase::Vectors, clock);
        result
    }
}

#[allow(clippy::too_many_arguments)]
fn run_tiles(
    config: &Config,
    team: &Team,
    isa: Isa,
    level: &Level,
    tiles: &[Tile],
    x: &[f64],
    out: &mut [f64],
    step: Step,
) {
    let g = level.geometry;
    // The prepared messages of the level stay with this thread; the others see numbers only.
    let (fields, boxes, shape) = (&level.fields, &level.boxes, &level.shape);
    let out = SharedVector::new(out);
    let work = tiles.iter().map(|t| t.j.len() * t.k.len() * g.n).sum();
    team.run(tiles.len(), work, &|index, scratch| {
        let tile = &tiles[index];
        let base = tile.index * g.volume;
        let of = |v: Vector| &fields[v.index()][base..base + g.volume];
        let update = match step {
            Step::Apply => Update::Apply,
            Step::Residual(rhs) => Update::Residual { rhs: of(rhs) },
            Step::Gsrb { rhs, sweep } => Update::Gsrb {
                rhs: of(rhs),
                dinv: of(Vector::Dinv),
                parity: sweep + g.n * shape.coordinates(boxes[tile.index]).iter().sum::<usize>(),
            },
            Step::Weighted { rhs, weight, scale } => {
                Update::Weighted { rhs: of(rhs), weight: of(weight), scale }
            }
            Step::Chebyshev { rhs, c1, c2 } => {
                Update::Chebyshev { rhs: of(rhs), dinv: of(Vector::Dinv), c1, c2 }
            }
        };
        let alpha = &fields[Vector::Alpha.index()];
        let pass = Pass {
            geometry: g,
            coefficients: Coefficients {
                beta: [of(Vector::Beta(0)), of(Vector::Beta(1)), of(Vector::Beta(2))],
                alpha: if alpha.is_empty() { &[] } else { &alpha[base..base + g.volume] },
                a: config.equation.a(),
                b: 1.0,
                h2inv: 1.0 / (shape.h * shape.h),
            },
            x: &x[base..base + g.volume],
            out,
            base,
            update,
        };
        // SAFETY: the tiles of a level do not overlap, and `out` is borrowed for this run alone.
        unsafe { sweep::run(isa, config.operator, &pass, tile, scratch) };
    });
}

impl Backend for Cpu {
    fn levels(&self) -> usize {
        self.levels.len()
    }

    fn active(&self, l: usize) -> bool {
        self.levels[l].group.is_some()
    }

    fn singular(&self) -> bool {
        self.config.boundary == Boundary::Periodic && self.config.equation == Equation::Poisson
    }

    fn smooth(&mut self, l: usize, x: Vector, rhs: Vector) -> Result<(), CommError> {
        match self.config.smoother {
            Smoother::Gsrb => smoothers::gsrb(self, l, x, rhs),
            Smoother::Chebyshev => smoothers::chebyshev(self, l, x, rhs),
            Smoother::Jacobi => smoothers::jacobi(self, l, x, rhs, Vector::Dinv, 2.0 / 3.0),
            Smoother::L1Jacobi => smoothers::jacobi(self, l, x, rhs, Vector::L1Inv, 1.0),
        }
    }

    fn residual(&mut self, l: usize, out: Vector, x: Vector, rhs: Vector) -> Result<(), CommError> {
        self.pass(l, x, out, Step::Residual(rhs))
    }

    fn apply(&mut self, l: usize, out: Vector, x: Vector) -> Result<(), CommError> {
        self.pass(l, x, out, Step::Apply)
    }

    fn restrict(&mut self, l: usize, fine: Vector, coarse: Vector) -> Result<(), CommError> {
        let clock = Instant::now();
        let (upper, lower) = self.levels.split_at_mut(l + 1);
        let (level, below) = (&mut upper[l], &mut lower[0]);
        if let Some(restriction) = &mut level.restriction {
            let source = &level.fields[fine.index()];
            let target = &mut below.fields[coarse.index()];
            restriction.run(&self.team, self.isa, source, target)?;
        }
        self.timers.add(l, Phase::Restriction, clock);
        Ok(())
    }

    fn prolong(&mut self, l: usize, x: Vector, how: Prolongation) -> Result<(), CommError> {
        let level = &self.levels[l];
        let replaces = how == Prolongation::Replace && level.prolongation.is_some();
        let rule = if replaces { &level.prolongation } else { &level.correction };
        if let (Some(interpolation), true) = (rule, self.active(l + 1)) {
            self.fill_surround(l + 1, x, interpolation.rule())?;
        }
        let clock = Instant::now();
        let (upper, lower) = self.levels.split_at_mut(l + 1);
        let (level, below) = (&mut upper[l], &lower[0]);
        let rule = if replaces { &mut level.prolongation } else { &mut level.correction };
        if let Some(interpolation) = rule {
            let target = &mut level.fields[x.index()];
            let add = how == Prolongation::Correct;
            interpolation.run(&self.team, self.isa, below.field(x), target, add)?;
        }
        self.timers.add(l, Phase::Interpolation, clock);
        Ok(())
    }

    fn zero(&mut self, l: usize, x: Vector) {
        self.timed(l, |s| s.levels[l].fields[x.index()].fill(0.0));
    }

    fn copy(&mut self, l: usize, to: Vector, from: Vector) {
        self.timed(l, |s| {
            vectors::map(&s.team, &mut s.levels[l], to, from, |o, x| *o = x);
        });
    }

    fn axpby(&mut self, l: usize, y: Vector, b: f64, x: Vector, a: f64) {
        self.timed(l, |s| {
            vectors::map(&s.team, &mut s.levels[l], y, x, |o, x| *o = b * *o + a * x);
        });
    }

    fn multiply(&mut self, l: usize, out: Vector, x: Vector, y: Vector) {
        self.copy(l, out, x);
        self.timed(l, |s| vectors::map(&s.team, &mut s.levels[l], out, y, |o, y| *o *= y));
    }

    fn shift(&mut self, l: usize, x: Vector, c: f64) {
        self.timed(l, |s| vectors::for_each(&s.team, &mut s.levels[l], x, |o| *o += c));
    }

    fn norm(&mut self, l: usize, x: Vector) -> Result<f64, CommError> {
        self.timed(l, |s| {
            let mut norm = [vectors::max_abs(&s.team, s.isa, &s.levels[l], x)];
            if let Some(group) = &mut s.levels[l].group {
                group.max(&mut norm)?;
            }
            Ok(norm[0])
        })
    }

    fn dot(&mut self, l: usize, x: Vector, y: Vector) -> Result<f64, CommError> {
        self.timed(l, |s| vectors::dot(&mut s.levels[l], x, Some(y)))
    }

    fn mean(&mut self, l: usize, x: Vector) -> Result<f64, CommError> {
        self.timed(l, |s| {
            let cells = s.levels[l].shape.dim.pow(3) as f64;
            Ok(vectors::dot(&mut s.levels[l], x, None)? / cells)
        })
    }

    fn solve_bottom(&mut self, x: Vector, rhs: Vector) -> Result<usize, CommError> {
        let l = self.levels.len() - 1;
        self.timers.set_inside(Some(Phase::Bottom));
        let iterations = match self.config.bottom {
            Bottom::Bicgstab => krylov::bicgstab::solve(self, l, x, rhs),
            Bottom::Cg => krylov::cg::solve(self, l, x, rhs),
            Bottom::Smoother => krylov::relaxation::solve(self, l, x, rhs),
        };
        self.timers.set_inside(None);
        let iterations = iterations?;
        self.bottom_iterations += iterations;
        Ok(iterations)
    }
}
