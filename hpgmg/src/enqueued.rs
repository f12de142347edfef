//! The solver on the CPU whose calling thread only enqueues (`--comm stream` and `--comm kernel` between CPUs): every part of a
//! cycle becomes tasks of a host stream, and nothing waits before the norm of the residual.
//!
//! Algorithms 2 and 3 of Agostini et al. on the stream: with [`Form::Stream`] messages are operations of the stream between
//! tasks – pack, send, work on what needs no message, wait, unpack, the rest –; with [`Form::Kernel`] a part of a cycle is one
//! task, which sends what a neighbour gets as soon as it is packed, and unpacks what a neighbour has sent when it comes,
//! whatever the others do.
//!
//! The solver of the coarsest level decides by what it finds, so it is one task in both forms, which exchanges halos and sums up
//! by itself. The mathematics is all [`Cpu`]'s: whoever starts the messages, the bits are the same.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gdsync::Stream;
use libmp::{Communicator, Deadline, Device};

use crate::backend::{Backend, Operators, Outline, Vector, remove_mean};
use crate::comm::libmp::Links;
use crate::comm::{Comm, CommError, Starter};
use crate::cpu::Cpu;
use crate::cycle::{self, Cycles, Kind, Norms, Solved};
use crate::error::Error;
use crate::options::{Config, Cycle};
use crate::route::Route;
use crate::run::Solver;
use crate::timers::Timers;
use crate::transfer::Interpolation;
use crate::work::{Stage, Work};

/// Who starts the messages.
///
/// See [`Enqueued`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The stream, between tasks.
    Stream,
    /// The tasks.
    Kernel,
}

/// One rank's solver, its tasks on a stream.
///
/// ```
/// use std::time::Duration;
///
/// use hpgmg::comm::libmp::run as on_ranks;
/// use hpgmg::enqueued::{Enqueued, Form};
/// use hpgmg::options::Config;
/// use hpgmg::run::{Effort, run};
/// use libmp::World;
///
/// let (limit, config) = (Duration::from_secs(60), Config { box_dim: 16, ..Config::default() });
/// let outcome = on_ranks(World::threads(2)?, limit, |comm| {
///     let mut solver = Enqueued::new(config.clone(), comm, 1, Form::Stream, limit)?;
///     run(&mut solver, Effort::Solves(1), |_, _, _| {})
/// })?;
/// println!("order {:.2}", outcome.order());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Enqueued {
    /// Dropped first: its thread ends before what tasks use goes.
    stream: Stream,
    communicator: Communicator,
    shared: Arc<Shared>,
    levels: Vec<Plan>,
    config: Config,
    limit: Duration,
}

/// What the calling thread knows of a level without asking the tasks.
struct Plan {
    active: bool,
    dim: usize,
    outline: Outline,
    /// Messages that the stream starts: of the halo, of all ghosts, to the next coarser level, and from it of corrections and
    /// of solutions.
    halo: Option<Arc<Links>>,
    surround: Option<Arc<Links>>,
    restriction: Option<Arc<Links>>,
    correction: Option<Arc<Links>>,
    prolongation: Option<Arc<Links>>,
}

/// What tasks work on. The calling thread takes it only when the stream is idle.
struct Shared {
    rank: usize,
    solver: Mutex<Moved>,
    norms: Mutex<Norms>,
    /// The first thing that went wrong in a task; later tasks do nothing.
    failure: Mutex<Option<CommError>>,
}

/// A solver whose messages are libmp's.
struct Moved(Cpu);

// SAFETY: what keeps a `Cpu` on its thread is its boxed exchanges and groups alone, whose library it does not know;
// `Enqueued::new` makes this one with a `LibmpComm`, whose exchanges and groups are `Send` (asserted in `comm::libmp`).
unsafe impl Send for Moved {}

impl Shared {
    /// A task.
    fn run(&self, task: impl Fn(&mut Cpu) -> Result<(), CommError>) {
        if lock(&self.failure).is_some() {
            return;
        }
        let result = self.solver().and_then(|mut solver| task(&mut solver.0));
        if let Err(error) = result {
            lock(&self.failure).get_or_insert(error);
        }
    }

    fn solver(&self) -> Result<MutexGuard<'_, Moved>, CommError> {
        self.solver.lock().map_err(|_| CommError::Panicked { rank: self.rank })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Enqueued {
    /// Builds this rank's part of the hierarchy, with `threads` threads, and a stream; no wait lasts longer than `limit`.
    /// Collective over `comm`.
    ///
    /// # Errors
    /// As [`Cpu::new`]; [`CommError::NotLibmp`] for other ranks than libmp's.
    pub fn new(
        config: Config,
        comm: &dyn Comm,
        threads: usize,
        form: Form,
        limit: Duration,
    ) -> Result<Self, Error> {
        let comm = comm.as_libmp().ok_or(CommError::NotLibmp(comm.name()))?;
        let communicator = comm.communicator().clone();
        let mut cpu = Cpu::new(config.clone(), comm, threads)?;
        let bottom = cpu.levels.len() - 1;
        let mut levels = Vec::with_capacity(bottom + 1);
        for l in 0..=bottom {
            let (active, outline) = (Operators::active(&cpu, l), cpu.outline(l));
            let level = &mut cpu.levels[l];
            let starter = if form == Form::Stream { Starter::Stream } else { Starter::Task };
            let halos = if l == bottom { Starter::Task } else { starter };
            let route = |interpolation: &mut Option<Interpolation>| {
                hand_over(interpolation.as_mut().map(|i| &mut i.route), starter)
            };
            levels.push(Plan {
                active,
                dim: level.shape.dim,
                outline,
                halo: hand_over(Some(&mut level.halo.route), halos)?,
                surround: hand_over(level.surround.as_mut().map(|s| &mut s.route), halos)?,
                restriction: hand_over(level.restriction.as_mut().map(|r| &mut r.route), starter)?,
                correction: route(&mut level.correction)?,
                prolongation: route(&mut level.prolongation)?,
            });
            if level.surround.is_none() {
                // There is one exchange for both.
                let plan = &mut levels[l];
                plan.surround = plan.halo.clone();
            }
        }
        let stream = communicator.stream(&Device::Host).map_err(CommError::from)?;
        let shared = Arc::new(Shared {
            rank: comm.rank(),
            solver: Mutex::new(Moved(cpu)),
            norms: Mutex::new(Norms { residual: 0.0, rhs: 0.0 }),
            failure: Mutex::default(),
        });
        Ok(Self { stream, communicator, shared, levels, config, limit })
    }

    /// The solver, after everything enqueued so far.
    ///
    /// # Errors
    /// What went wrong on the stream.
    pub fn with<T>(&self, f: impl FnOnce(&mut Cpu) -> T) -> Result<T, CommError> {
        self.wait()?;
        Ok(f(&mut self.shared.solver()?.0))
    }

    fn task(
        &self,
        task: impl Fn(&mut Cpu) -> Result<(), CommError> + Send + Sync + 'static,
    ) -> Result<(), CommError> {
        let shared = self.shared.clone();
        self.stream.call(move || shared.run(&task)).map_err(CommError::Stream)
    }

    /// Waits for everything enqueued so far.
    fn wait(&self) -> Result<(), CommError> {
        let waited = self.communicator.synchronize(&self.stream, Deadline::after(self.limit));
        match lock(&self.shared.failure).clone() {
            Some(failure) => Err(failure),
            None => Ok(waited?),
        }
    }

    /// The messages of a part of a cycle, where the stream starts them.
    fn links(&self, work: Work) -> Option<&Links> {
        use crate::backend::Prolongation::Replace;
        let links = match work {
            Work::Pass { l, .. } | Work::RedBlack { l, .. } => &self.levels[l].halo,
            Work::Surround { l, .. } => &self.levels[l].surround,
            Work::Restrict { l, .. } => &self.levels[l].restriction,
            Work::Prolong { l, how: Replace, .. }
                if self.levels[l].outline.prolongation.is_some() =>
            {
                &self.levels[l].prolongation
            }
            Work::Prolong { l, .. } => &self.levels[l].correction,
        };
        links.as_deref()
    }
}

fn hand_over(route: Option<&mut Route>, to: Starter) -> Result<Option<Arc<Links>>, CommError> {
    route.map_or(Ok(None), |route| route.hand_over(to))
}

impl Operators for Enqueued {
    fn levels(&self) -> usize {
        self.levels.len()
    }

    fn active(&self, l: usize) -> bool {
        self.levels[l].active
    }

    fn outline(&self, l: usize) -> Outline {
        self.levels[l].outline
    }

    fn run(&mut self, work: Work) -> Result<(), CommError> {
        let Some(links) = self.links(work) else { return self.task(move |cpu| cpu.run(work)) };
        let stage = |stage| self.task(move |cpu| cpu.stage(work, stage));
        stage(Stage::Pack)?;
        links.send_on(&self.stream)?;
        stage(Stage::Here)?;
        links.wait_on(&self.stream)?;
        stage(Stage::Unpack)?;
        links.post_on(&self.stream)?;
        stage(Stage::Rest)
    }

    fn clear(&mut self, l: usize, x: Vector) -> Result<(), CommError> {
        self.task(move |cpu| cpu.clear(l, x))
    }

    fn solve_bottom(&mut self, x: Vector, rhs: Vector) -> Result<(), CommError> {
        self.task(move |cpu| cpu.solve_bottom(x, rhs))
    }
}

impl Cycles for Enqueued {
    type Error = CommError;

    fn run_cycle(&mut self, kind: Kind, l: usize, first: bool) -> Result<Norms, CommError> {
        self.cycle_levels().cycle(kind, l, &mut |step| self.step(step))?;
        self.task(move |cpu| remove_mean(cpu, l, Vector::U))?;
        self.residual(l, Vector::Temp, Vector::U, Vector::F)?;
        let shared = self.shared.clone();
        self.task(move |cpu| {
            let residual = cpu.norm(l, Vector::Temp)?;
            let rhs = if first { cpu.norm(l, Vector::F)? } else { 0.0 };
            *lock(&shared.norms) = Norms { residual, rhs };
            Ok(())
        })?;
        self.wait()?;
        Ok(*lock(&self.shared.norms))
    }
}

impl Solver for Enqueued {
    fn levels(&self) -> usize {
        self.levels.len()
    }

    fn active(&self, l: usize) -> bool {
        self.levels[l].active
    }

    fn dim(&self, l: usize) -> usize {
        self.levels[l].dim
    }

    fn cycle(&self) -> Cycle {
        self.config.cycle
    }

    fn zero_solution(&mut self, l: usize) -> Result<(), Error> {
        Ok(self.with(|cpu| cpu.zero(l, Vector::U))?)
    }

    fn solve(&mut self, l: usize, out: &mut Solved) -> Result<(), Error> {
        let cycle = self.config.cycle;
        Ok(cycle::solve(self, l, cycle, out)?)
    }

    fn agree(&mut self, l: usize, value: f64) -> Result<f64, Error> {
        self.with(|cpu| cpu.agree(l, value))?
    }

    fn largest(&mut self, l: usize) -> Result<f64, Error> {
        self.with(|cpu| cpu.largest(l))?
    }

    fn fingerprint(&mut self, l: usize) -> Result<u64, Error> {
        self.with(|cpu| cpu.fingerprint(l))?
    }

    fn difference(&mut self, l: usize) -> Result<f64, Error> {
        if !self.levels[l].active || l + 1 >= self.levels.len() {
            return Ok(0.0);
        }
        self.restrict(l, Vector::U, Vector::Temp)?;
        self.with(|cpu| cpu.difference_from_restricted(l))?
    }

    fn timers(&self) -> Result<Timers, Error> {
        Ok(self.with(|cpu| cpu.timers.clone())?)
    }

    fn reset_timers(&mut self) -> Result<(), Error> {
        Ok(self.with(|cpu| cpu.timers.reset())?)
    }

    fn take_bottom_iterations(&mut self) -> Result<usize, Error> {
        self.with(Solver::take_bottom_iterations)?
    }
}
