//! The backend that runs every level on the CPU: one rank, a team of threads.

use std::time::Instant;

use crate::backend::{Backend, Operators, Outline, Vector};
use crate::boundary::Extrapolation;
use crate::comm::CommError;
use crate::decomposition::LevelShape;
use crate::field::Field;
use crate::geometry::BoxGeometry;
use crate::isa::Isa;
use crate::krylov;
use crate::level::Level;
use crate::operators::{Coefficients, Tile};
use crate::options::{Bottom, Boundary, Config, Equation, Operator, Smoother};
use crate::red_black::{self, RedBlack};
use crate::rows::SharedVector;
use crate::sweep::{self, Pass, Update};
use crate::team::Team;
use crate::timers::{Phase, Timers};
use crate::transfer::{Interpolation, Rule};
use crate::vectors;
use crate::work::Work;

/// One pass of the operator over a level; vectors by name.
///
/// See [`Operators`] for an example.
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
///
/// See [`Operators`] for an example.
pub struct Cpu {
    pub(crate) config: Config,
    pub(crate) levels: Vec<Level>,
    pub(crate) team: Team,
    pub(crate) isa: Isa,
    /// Time spent, by level and phase.
    pub timers: Timers,
    /// Iterations of the bottom solver since the start.
    pub bottom_iterations: usize,
    /// A fault for the verdict to find.
    #[cfg(test)]
    pub(crate) injected: crate::mutation::Injected,
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

    /// Whether half-sweeps of level `l` are done in pairs, box by box.
    pub fn fuses_half_sweeps(&self, l: usize) -> bool {
        self.team.threads() == 1
            && self.config.smoother == Smoother::Gsrb
            && matches!(self.config.operator, Operator::Fv2 | Operator::P7)
            && self.levels[l].geometry.n >= red_black::SMALLEST
    }

    /// Half-sweeps number `sweep` and `sweep + 1` of GSRB over level `l`, in place, of one `part` of the boxes
    /// ([`red_black::inner`], [`red_black::shell`]) whose halo is filled.
    pub(crate) fn red_black(
        &mut self,
        l: usize,
        x: Vector,
        rhs: Vector,
        sweep: usize,
        part: fn(Isa, &mut RedBlack<'_>),
    ) {
        let clock = Instant::now();
        let Self { config, levels, isa, timers, .. } = self;
        let level = &mut levels[l];
        let g = level.geometry;
        let mut field = level.take(x);
        for (index, &id) in level.boxes.iter().enumerate() {
            let base = index * g.volume;
            let of = |v: Vector| &level.fields[v.index()][base..base + g.volume];
            let mut one = RedBlack {
                geometry: g,
                coefficients: coefficients(config, &level.fields, &g, level.shape.h, base),
                x: &mut field[base..base + g.volume],
                rhs: of(rhs),
                dinv: of(Vector::Dinv),
                parity: parity(&level.shape, &g, id, sweep),
            };
            part(*isa, &mut one);
        }
        timers.add(l, Phase::Smooth, clock);
        level.put(x, field);
    }

    /// Fills the ghosts of `x` on level `l` as a pass does.
    ///
    /// # Errors
    /// [`CommError`] when the ranks lose each other.
    pub fn fill_halo(&mut self, l: usize, x: Vector) -> Result<(), CommError> {
        let rule = self.boundary_rule(l);
        let level = &mut self.levels[l];
        level.halo.run(&self.team, &mut level.fields[x.index()], rule)
    }

    /// Fills all ghosts of `x` on level `l` as interpolation by `rule` needs them.
    ///
    /// # Errors
    /// [`CommError`] when the ranks lose each other.
    pub fn fill_surround(&mut self, l: usize, x: Vector, rule: Rule) -> Result<(), CommError> {
        self.run(Work::Surround { l, x, rule })
    }

    /// Computes the tiles of a pass that need no message, or the others; the halo of `x` is as far as they need it.
    pub(crate) fn tiles(&mut self, l: usize, x: Vector, out: Vector, step: Step, early: bool) {
        let Self { config, levels, team, isa, .. } = self;
        let level = &mut levels[l];
        let (source, mut target) = (level.take(x), level.take(out));
        let tiles = if early { &level.early } else { &level.late };
        run_tiles(config, team, *isa, level, tiles, &source, &mut target, step);
        level.put(x, source);
        level.put(out, target);
    }

    /// `x = 0`.
    pub fn zero(&mut self, l: usize, x: Vector) {
        self.timed(l, |s| s.levels[l].fields[x.index()].fill(0.0));
    }

    fn timed<R>(&mut self, l: usize, f: impl FnOnce(&mut Self) -> R) -> R {
        let clock = Instant::now();
        let result = f(self);
        self.timers.add(l, Phase::Vectors, clock);
        result
    }
}

/// Elements of one vector of a rank up to which all those of a pass may be in a cache: 4 MiB, of eight vectors 32.
const CACHED: usize = 1 << 19;

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
                parity: parity(shape, &g, boxes[tile.index], sweep),
            },
            Step::Weighted { rhs, weight, scale } => {
                Update::Weighted { rhs: of(rhs), weight: of(weight), scale }
            }
            Step::Chebyshev { rhs, c1, c2 } => {
                Update::Chebyshev { rhs: of(rhs), dinv: of(Vector::Dinv), c1, c2 }
            }
        };
        let pass = Pass {
            geometry: g,
            coefficients: coefficients(config, fields, &g, shape.h, base),
            x: &x[base..base + g.volume],
            out,
            base,
            in_memory: fields[Vector::Dinv.index()].len() > CACHED,
            update,
        };
        // SAFETY: the tiles of a level do not overlap, and `out` is borrowed for this run alone.
        unsafe { sweep::run(isa, config.operator, &pass, tile, scratch) };
    });
}

/// The parity of half-sweep number `sweep` in the box `id`: colours go on from box to box.
fn parity(shape: &LevelShape, g: &BoxGeometry, id: usize, sweep: usize) -> usize {
    sweep + g.n * shape.coordinates(id).iter().sum::<usize>()
}

/// The coefficients of the box at offset `base` of the vectors of a level.
fn coefficients<'a>(
    config: &Config,
    fields: &'a [Field],
    g: &BoxGeometry,
    h: f64,
    base: usize,
) -> Coefficients<'a> {
    let of = |v: Vector| &fields[v.index()][base..base + g.volume];
    let alpha = if fields[Vector::Alpha.index()].is_empty() { &[] } else { of(Vector::Alpha) };
    let beta = [of(Vector::Beta(0)), of(Vector::Beta(1)), of(Vector::Beta(2))];
    Coefficients { beta, alpha, a: config.equation.a(), b: 1.0, h2inv: 1.0 / (h * h) }
}

impl Operators for Cpu {
    fn levels(&self) -> usize {
        self.levels.len()
    }

    fn active(&self, l: usize) -> bool {
        self.levels[l].group.is_some()
    }

    fn outline(&self, l: usize) -> Outline {
        let level = &self.levels[l];
        let rule =
            |interpolation: &Option<Interpolation>| interpolation.as_ref().map(Interpolation::rule);
        Outline {
            smoother: self.config.smoother,
            point_centred: self.config.operator.is_point_centred(),
            fused: self.fuses_half_sweeps(l),
            lambda_max: level.lambda_max,
            correction: rule(&level.correction),
            prolongation: rule(&level.prolongation),
        }
    }

    fn run(&mut self, work: Work) -> Result<(), CommError> {
        Cpu::run(self, work)
    }

    fn clear(&mut self, l: usize, x: Vector) -> Result<(), CommError> {
        self.zero(l, x);
        Ok(())
    }

    fn solve_bottom(&mut self, x: Vector, rhs: Vector) -> Result<(), CommError> {
        let l = self.levels.len() - 1;
        self.timers.set_inside(Some(Phase::Bottom));
        let iterations = match self.config.bottom {
            Bottom::Bicgstab => krylov::bicgstab::solve(self, l, x, rhs),
            Bottom::Cg => krylov::cg::solve(self, l, x, rhs),
            Bottom::Smoother => krylov::relaxation::solve(self, l, x, rhs),
        };
        self.timers.set_inside(None);
        self.bottom_iterations += iterations?;
        #[cfg(test)]
        self.has_solved(l, x);
        Ok(())
    }
}

impl Backend for Cpu {
    fn singular(&self) -> bool {
        self.config.boundary == Boundary::Periodic && self.config.equation == Equation::Poisson
    }

    fn apply(&mut self, l: usize, out: Vector, x: Vector) -> Result<(), CommError> {
        self.run(Work::Pass { l, x, out, step: Step::Apply })
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
}
