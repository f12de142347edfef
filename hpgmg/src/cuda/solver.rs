//! The levels on the GPU of one rank, and solves from the outside. Their memory is `upload.rs`, what is enqueued in a
//! cycle `cycle.rs`, how ranks communicate `halo.rs` and `staged.rs`.

use std::cell::{Ref, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use gdsync::{Arg, Buffer, CudaDevice, Deadline, Dims, Graph, Stream};

use super::division::{Cut, Division};
use super::error::CudaError;
use super::hybrid::Hybrid;
use super::kernels::Kernels;
use super::launches::steps;
use super::layout::{self, Boxes, Grid};
use super::machine::Machine;
use super::mean::Mean;
use super::partition::{Coarse, Partition};
use super::ranks::{Ranks, Team};
use super::resident::Coarsest;
use super::tiles::{Tiled, has_tiles};
use super::timeline::Timeline;
use super::upload::{OnGpu, upload, vectors};
use crate::backend::{Backend, Vector};
use crate::comm::{CommError, Group};
use crate::cpu::Cpu;
use crate::cycle::{self, Cycles, Kind, Norms, Solved};
use crate::error::Error;
use crate::options::{Boundary, Config, Cycle};
use crate::timers::Timers;

/// Numbers that kernels leave for the host; the ranks agree on those before [`Scalar::Iterations`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Scalar {
    /// max |F| of the solve.
    RightHandSide,
    /// max |residual| of the last cycle.
    Residual,
    /// A norm asked for from outside.
    Norm,
    /// Iterations of the bottom solver, added up.
    Iterations,
}

const SCALARS: usize = 4;

/// In this time waits in kernels end after their limit.
const RELEASED: Duration = Duration::from_secs(10);

/// The solver with every level on a GPU: all of it, or this rank's slabs and the coarse levels.
///
/// ```no_run
/// use std::time::Duration;
///
/// use hpgmg::comm::Alone;
/// use hpgmg::cuda::{self, Cut, Gpu};
/// use hpgmg::options::Config;
/// use hpgmg::run::{Effort, run};
///
/// let (config, limit) = (Config { box_dim: 128, ..Config::default() }, Duration::from_secs(60));
/// let gpu = cuda::open()?; // says why there is none
/// // The CPU sets up, all of it where there is one rank.
/// let cut = Cut::default();
/// let cpu = cuda::set_up(&config, &Alone, cut, 4)?;
/// let mut solver = Gpu::new(cpu, gpu, None, cut, limit)?;
/// let outcome = run(&mut solver, Effort::Seconds(1.0), |_, _, _| {})?;
/// println!("{}: {:?} a solve", solver.name(), outcome.runs[0].mean);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Gpu {
    cpu: Rc<RefCell<Cpu>>,
    pub(super) config: Config,
    timers: Timers,
    pub(super) machine: Machine,
    pub(super) stream: Stream,
    pub(super) kernels: Kernels,
    pub(super) levels: Vec<OnGpu>,
    /// Launches that have tiles copied, of the levels that have some.
    pub(super) tiled: Vec<Option<Tiled>>,
    /// How one kernel works on the coarsest levels.
    pub(super) coarsest: Coarsest,
    /// The first level that it, or the CPU, does with all coarser ones at once.
    pub(super) coarse: usize,
    /// The CPU's part, if it has one.
    pub(super) hybrid: Option<Hybrid>,
    pub(super) partition: Partition,
    pub(super) ranks: Ranks,
    /// For the mean of a solution that the operator does not see.
    pub(super) mean: Option<Mean>,
    /// For what the host agrees on; none of one rank.
    group: Option<Box<dyn Group>>,
    pub(super) scalars: Buffer<u64>,
    results: Buffer<u64>,
    /// What is captured once and replayed: the cycles from each level.
    graphs: Vec<(usize, Kind, Graph)>,
    /// Replay graphs; else every kernel is launched by itself.
    pub use_graphs: bool,
    /// How long the host waits for a solve.
    limit: Duration,
    /// What this solve is to be written to.
    pub(super) timeline: Option<Timeline>,
}

impl Gpu {
    /// Uploads what `shared` holds, the set-up of the whole problem or of this rank's part of it ([`super::set_up`]), as the
    /// only rank or one of `team`; `cut` is that of the set-up.
    ///
    /// # Errors
    /// [`CudaError`] if the levels do not fit, the ranks do not reach each
    /// other, or the driver refuses.
    pub fn new(
        shared: Rc<RefCell<Cpu>>,
        device: CudaDevice,
        team: Option<&Team<'_>>,
        cut: Cut<'_>,
        limit: Duration,
    ) -> Result<Self, CudaError> {
        Self::on(shared, Machine::gpu(device), team, cut, limit)
    }

    /// The same on any machine.
    pub(super) fn on(
        shared: Rc<RefCell<Cpu>>,
        machine: Machine,
        team: Option<&Team<'_>>,
        cut: Cut<'_>,
        limit: Duration,
    ) -> Result<Self, CudaError> {
        let cpu = shared.borrow();
        let config = cpu.config().clone();
        let count = cpu.timers.levels();
        let dims: Vec<usize> = (0..count).map(|l| cpu.level(l).shape.dim).collect();
        let (size, rank) = team.map_or((1, 0), |team| (team.comm.size(), team.comm.rank()));
        // Levels that are done at once are never cut.
        let coarse_levels = Coarse::new(&dims, cut.threshold);
        let cpus = coarse_levels.on_cpu;
        let coarse = coarse_levels.first();
        let division = Division::new(&config, &dims[..=coarse], size, cut)?;
        let partition = Partition::new(&dims, division, rank);
        for (l, slab) in (0..count).filter_map(|l| Some((l, cpu.level(l).slab.as_ref()?))) {
            let (held, needed) = (slab.part(), partition.part(l));
            if *held != needed {
                return Err(CudaError::OtherCells { n: dims[l], held: held.clone(), needed });
            }
        }
        let grid = |l: usize| match l <= coarse {
            true => partition.grid(l),
            false => Grid::new(dims[l]),
        };
        let elements = |l: usize| grid(l).volume() * vectors(&cpu, l).len();
        let needed: usize = (0..count).map(|l| 8 * elements(l)).sum();
        let available = machine.memory;
        if needed as u64 > available {
            return Err(CudaError::Memory {
                gpu: machine.name,
                needed_mib: needed as u64 >> 20,
                available_mib: available >> 20,
            });
        }
        let place = machine.device.clone();
        let stream = place.stream()?;
        let kernels =
            Kernels::load(&machine, (config.operator, config.boundary), (&stream, limit))?;
        let uncut = coarse > 0 && !partition.is_cut(coarse - 1) && cpus.is_none();
        let first = coarse_levels.resident;
        let coarsest = Coarsest::new(&kernels, &dims, config.bottom, first, uncut);
        let coarse = if cpus.is_none() { coarsest.first } else { coarse };
        let mut memory = (0..count)
            .map(|l| machine.alloc(elements(l)))
            .collect::<Result<Vec<_>, CudaError>>()?;
        let ranks = match team {
            None => Ranks::Alone,
            Some(team) => {
                let values = Scalar::Iterations as usize;
                let around = config.boundary == Boundary::Periodic;
                Ranks::new(team, &place, &partition, &memory, (around, values), limit)?
            }
        };
        let mut group = match team {
            None => None,
            Some(team) => team.comm.group(&(0..size).collect::<Vec<_>>())?,
        };
        // A sweep that is one launch here is one on all ranks.
        let mut lacking = [if kernels.tiled.is_none() { 1.0 } else { 0.0 }];
        group.as_mut().map_or(Ok(()), |group| group.max(&mut lacking))?;
        let mut levels = Vec::with_capacity(count);
        for (l, memory) in memory.drain(..).enumerate() {
            levels.push(upload(&cpu, &stream, l, grid(l), memory)?);
        }
        let tiled = levels.iter().enumerate().map(|(l, level)| {
            let is_cut = partition.is_cut(l);
            let possible = match is_cut {
                true => partition.sweeps(l) && lacking == [0.0],
                false => l < coarse && has_tiles(level.grid.n),
            };
            let kernels = kernels.tiled.as_ref().filter(|_| possible);
            let by = |kernels| Tiled::new(kernels, level, is_cut, machine.multiprocessors);
            kernels.map(by).transpose()
        });
        let tiled = tiled.collect::<Result<Vec<_>, CudaError>>()?;
        let scalars = place.alloc::<u64>(SCALARS)?;
        let results = place.alloc_pinned::<u64>(SCALARS)?;
        let mean = match cpu.singular() {
            true => Some(Mean::new(&levels, team, &place, partition.whole() > 0)?),
            false => None,
        };
        let hybrid = cpus
            .map(|first| Hybrid::new(shared.clone(), first, dims[first], &place))
            .transpose()?;
        let timers = cpu.timers.clone();
        drop(cpu);
        let mut gpu = Self {
            timers,
            cpu: shared,
            config,
            machine,
            stream,
            kernels,
            levels,
            tiled,
            coarsest,
            coarse,
            partition,
            use_graphs: !matches!(ranks, Ranks::Staged(_))
                && hybrid.is_none()
                && team.is_none_or(|team| team.graph),
            hybrid,
            ranks,
            mean,
            group,
            scalars,
            results,
            graphs: Vec::new(),
            limit,
            timeline: None,
        };
        gpu.launch_once()?;
        // Nobody writes into a peer's memory before it is ready.
        gpu.agree_on(0.0)?;
        Ok(gpu)
    }

    /// The first launch of the kernel of the coarsest levels, while no kernel waits for anybody: a cycle whose result nobody
    /// reads. What a driver does once, at a kernel's first launch, it may do while it waits for the GPU and holds the lock
    /// that other threads need to launch; where ranks are threads, the GPU may be waiting for just that. Seen with memory
    /// for a stack of more than the 1 KB a thread that a context begins with (H100, driver 580: one thread in the launch
    /// for ever, the other before its next one), which this kernel had and no kernel here has now.
    fn launch_once(&self) -> Result<(), CudaError> {
        if self.hybrid.is_some() {
            return Ok(());
        }
        self.resident(&steps(Kind::F, self.levels.len(), self.coarsest.first))?;
        self.clear(Scalar::Iterations)?;
        self.wait()
    }

    /// The set-up, with the shapes of the levels.
    pub fn cpu(&self) -> Ref<'_, Cpu> {
        self.cpu.borrow()
    }

    /// The first level that the CPU computes; the number of levels if none.
    pub fn first_on_cpu(&self) -> usize {
        self.hybrid.as_ref().map_or(self.levels.len(), |hybrid| hybrid.first)
    }

    /// Time that the CPU computed coarse levels since the last call.
    pub fn take_time_on_cpu(&self) -> Duration {
        self.hybrid.as_ref().map_or(Duration::ZERO, Hybrid::take_spent)
    }

    /// Which levels are distributed over the ranks, how, and what that sends, in words; none of one rank.
    pub fn distribution(&self) -> Option<String> {
        let (size, whole) = (self.group.as_ref()?.size(), self.partition.whole());
        let n = |l: usize| self.levels[l].grid.n;
        if whole == 0 {
            let all = format!("nothing is distributed: each of {size} ranks solves all of it");
            return Some(all);
        }
        let division = self.partition.division();
        let mut text = String::new();
        let mut l = 0;
        while l < whole {
            let (along, last) = (division.along(l), division.last_alike(l));
            let levels = match last {
                last if last == l => format!("{}³", n(l)),
                last => format!("{}³ to {}³", n(l), n(last)),
            };
            let ranks: usize = along.iter().product();
            let [i, j, k] = along;
            let parts = match along {
                [1, 1, _] => format!("{levels} in slabs on {ranks} ranks"),
                _ => format!("{levels} in {i} × {j} × {k} boxes on {ranks} ranks"),
            };
            let each = size / ranks;
            let repeated = if each > 1 { format!(" (each on {each})") } else { String::new() };
            text += &format!("{parts}{repeated}, ");
            l = last + 1;
        }
        let sent = self.sent();
        Some(format!(
            "{text}{}³ and coarser whole on each; in a cycle {:.3} MB to {} neighbours in {} \
             exchanges, and {} gathers",
            n(whole),
            sent.bytes as f64 / 1e6,
            sent.neighbours,
            sent.exchanges,
            sent.gathers
        ))
    }

    /// Name of the GPU.
    pub fn name(&self) -> &str {
        &self.machine.name
    }

    /// A vector of level `l` in the layout of the CPU; 0 where other ranks have it.
    ///
    /// # Errors
    /// What the driver says.
    pub fn download(&self, l: usize, v: Vector) -> Result<Vec<f64>, CudaError> {
        let level = &self.levels[l];
        let cpu = self.cpu.borrow();
        let order = vectors(&cpu, l);
        let Some(index) = order.iter().position(|&other| other == v) else {
            return Ok(Vec::new());
        };
        let values = level.vector(index)?.to_vec()?;
        Ok(layout::scatter(Boxes::of(cpu.level(l)), &level.grid, &values))
    }

    /// max |x| on level `l`, or of its difference from the means of u of level `finer`.
    fn norm(&mut self, l: usize, x: Vector, finer: Option<usize>) -> Result<f64, CudaError> {
        self.clear(Scalar::Norm)?;
        self.enqueue_norm(l, x, finer, Scalar::Norm)?;
        let l = finer.unwrap_or(l);
        self.settle(l)?;
        self.fetch(l)?;
        self.scalar(Scalar::Norm)
    }

    /// Runs a cycle, captured at its first use, and waits for it.
    fn replay(&mut self, l: usize, kind: Kind) -> Result<(), CudaError> {
        if !self.use_graphs {
            self.enqueue(l, kind)?;
            return self.fetch(l);
        }
        let captured = |(level, k, _): &(usize, Kind, Graph)| (*level, *k) == (l, kind);
        if !self.graphs.iter().any(captured) {
            self.stream.begin_capture()?;
            let enqueued = self.enqueue(l, kind);
            let graph = self.stream.end_capture();
            enqueued?;
            self.graphs.push((l, kind, graph?));
            // A rank that still captures must not be kept from it by another's waiting kernels on the same GPU.
            self.agree_on(0.0)?;
        }
        if let Some((_, _, graph)) = self.graphs.iter().find(|graph| captured(graph)) {
            self.stream.launch_graph(graph)?;
        }
        self.fetch(l)
    }

    /// A cycle from level `l` and the norm of its residual; with an F-cycle also that of F.
    fn enqueue(&self, l: usize, kind: Kind) -> Result<(), CudaError> {
        self.clear(Scalar::Residual)?;
        if kind == Kind::F {
            self.clear(Scalar::RightHandSide)?;
        }
        self.cycle(kind, l)?;
        self.remove_mean(l)?;
        self.residual_norm(l)?;
        self.settle(l)
    }

    /// The scalars as the ranks that share level `l` agree on them.
    fn settle(&self, l: usize) -> Result<(), CudaError> {
        let Ranks::Halo(halo) = &self.ranks else {
            return Ok(self.stream.copy(&self.results, &self.scalars)?);
        };
        let (tell, count) = (&self.kernels.tell, SCALARS as i32);
        let [from, to] = [&self.scalars, &self.results].map(|buffer| buffer.device_address());
        let (from, to) = (from.unwrap_or(0), to.unwrap_or(0));
        let args = [Arg::new(&from), Arg::new(&to), Arg::new(&count)];
        self.traced(l, "agree", || {
            // SAFETY: the kernel's parameters: as many words each, which live as long as `self`.
            unsafe { self.machine.launch(&self.stream, tell, Dims::linear(1, 32), &args) }?;
            match self.partition.is_cut(l) {
                true => {
                    halo.agree(&self.stream, &self.results.slice(0..Scalar::Iterations as usize)?)
                }
                false => Ok(()),
            }
        })
    }

    /// Waits until what was enqueued is done and the scalars of level `l` are here.
    fn fetch(&mut self, l: usize) -> Result<(), CudaError> {
        self.traced_on_cpu(l, "wait for the solve", || self.wait())?;
        if self.partition.is_cut(l) && matches!(self.ranks, Ranks::Staged(_)) {
            // SAFETY: the copy into it has been waited for, and no other is enqueued before this returns.
            let results = unsafe { self.results.as_mut_slice()? };
            let mut values: [f64; Scalar::Iterations as usize] =
                std::array::from_fn(|value| f64::from_bits(results[value]));
            self.group.as_mut().map_or(Ok(()), |group| group.max(&mut values))?;
            for (result, value) in results.iter_mut().zip(values) {
                *result = value.to_bits();
            }
        }
        Ok(())
    }

    /// The largest of the ranks' values.
    fn agree_on(&mut self, value: f64) -> Result<f64, CommError> {
        let mut value = [value];
        self.group.as_mut().map_or(Ok(()), |group| group.max(&mut value))?;
        Ok(value[0])
    }

    fn clear(&self, scalar: Scalar) -> Result<(), CudaError> {
        let at = scalar as usize;
        Ok(self.stream.fill(&self.scalars.slice(at..at + 1)?, 0)?)
    }

    pub(super) fn address(&self, scalar: Scalar) -> u64 {
        self.scalars.device_address().unwrap_or(0) + 8 * scalar as u64
    }

    fn bits(&self, scalar: Scalar) -> Result<u64, CudaError> {
        // SAFETY: the copy into it has been waited for, and no other is enqueued before this returns.
        Ok(unsafe { self.results.as_slice()? }[scalar as usize])
    }

    fn scalar(&self, scalar: Scalar) -> Result<f64, CudaError> {
        Ok(f64::from_bits(self.bits(scalar)?))
    }

    /// Waits without sleeping: a solve may take less time than waking up does. But it lets go of the driver between two looks,
    /// each of which holds the lock that ranks which are threads of this process need to enqueue.
    pub(super) fn wait(&self) -> Result<(), CudaError> {
        const PAUSE: Duration = Duration::from_micros(2);
        let deadline = Deadline::after(self.limit);
        let spins = self.machine.device.as_cuda().is_some();
        while spins && !deadline.expired() && !self.stream.is_idle()? {
            let looked = Instant::now();
            while looked.elapsed() < PAUSE {
                std::hint::spin_loop();
            }
        }
        match &self.ranks {
            // Waits of kernels have the same limit, from when they began.
            Ranks::Halo(halo) => halo.synchronize(
                &self.stream,
                Deadline::after(deadline.remaining().saturating_add(RELEASED)),
            ),
            Ranks::Alone | Ranks::Staged(_) => Ok(self.stream.synchronize(deadline)?),
        }
    }
}

impl Cycles for Gpu {
    type Error = CudaError;

    fn run_cycle(&mut self, kind: Kind, l: usize, first: bool) -> Result<Norms, CudaError> {
        let with_norm = kind == Kind::F;
        let before = if first && !with_norm { self.norm(l, Vector::F, None)? } else { 0.0 };
        self.replay(l, kind)?;
        let rhs = if with_norm { self.scalar(Scalar::RightHandSide)? } else { before };
        Ok(Norms { residual: self.scalar(Scalar::Residual)?, rhs })
    }
}

impl crate::run::Solver for Gpu {
    fn levels(&self) -> usize {
        self.levels.len()
    }

    fn active(&self, _: usize) -> bool {
        true
    }

    fn dim(&self, l: usize) -> usize {
        self.levels[l].grid.n
    }

    fn cycle(&self) -> Cycle {
        self.config.cycle
    }

    fn zero_solution(&mut self, l: usize) -> Result<(), Error> {
        self.zero_u(l)?;
        self.wait().map_err(plain)
    }

    fn solve(&mut self, l: usize, out: &mut Solved) -> Result<(), Error> {
        let cycle = self.config.cycle;
        let solved = match self.hybrid.as_ref().filter(|hybrid| l >= hybrid.first) {
            Some(hybrid) => self.solve_on_cpu(hybrid, l, cycle, out),
            None => cycle::solve(self, l, cycle, out),
        };
        solved.map_err(plain)
    }

    fn agree(&mut self, _: usize, value: f64) -> Result<f64, Error> {
        Ok(self.agree_on(value)?)
    }

    fn fingerprint(&mut self, l: usize) -> Result<u64, Error> {
        let (level, u) = (&self.levels[l], Vector::U.index());
        let values = level.planes(u, level.grid.planes().start, level.grid.size[2]);
        let values = values.and_then(|planes| Ok(planes.to_vec()?)).map_err(plain)?;
        Ok(crate::vectors::fingerprint(&values))
    }

    fn largest(&mut self, l: usize) -> Result<f64, Error> {
        self.norm(l, Vector::U, None).map_err(plain)
    }

    fn difference(&mut self, l: usize) -> Result<f64, Error> {
        if l + 1 >= self.levels.len() {
            return Ok(0.0);
        }
        self.norm(l + 1, Vector::U, Some(l)).map_err(plain)
    }

    fn timers(&self) -> Result<Timers, Error> {
        Ok(self.timers.clone())
    }

    fn reset_timers(&mut self) -> Result<(), Error> {
        self.timers.reset();
        Ok(())
    }

    fn take_bottom_iterations(&mut self) -> Result<usize, Error> {
        let take = |gpu: &mut Self| {
            gpu.stream.copy(&gpu.results, &gpu.scalars)?;
            gpu.wait()?;
            let on_cpu = gpu.hybrid.as_ref().map_or(0, Hybrid::take_iterations);
            let iterations = gpu.bits(Scalar::Iterations)?;
            gpu.clear(Scalar::Iterations)?;
            gpu.wait()?;
            Ok(iterations as usize + on_cpu)
        };
        take(self).map_err(plain)
    }
}

/// A failure of communication is one, whoever noticed it.
fn plain(error: CudaError) -> Error {
    match error {
        CudaError::Comm(error) => Error::Comm(error),
        error => Error::Cuda(error),
    }
}
