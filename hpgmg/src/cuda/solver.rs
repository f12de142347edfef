//! The levels on the GPU: their memory, what is uploaded, and solves from the outside. What is enqueued in a cycle is
//! `cycle.rs`.

use std::time::{Duration, Instant};

use gdsync::{Arg, Buffer, CudaDevice, Deadline, Device, Dims, Graph, Stream};

use super::error::CudaError;
use super::kernels::Kernels;
use super::layout::{self, Boxes, DeviceLevel, Grid};
use crate::backend::Vector;
use crate::boundary::Extrapolation;
use crate::cpu::Cpu;
use crate::cycle::{CycleResult, MAX_V_CYCLES, Solved, TOLERANCE};
use crate::error::Error;
use crate::options::{Bottom, Config, Cycle, Operator, Smoother};
use crate::smoothers::chebyshev_weights;

/// Numbers that kernels leave for the host.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scalar {
    /// max |F| of the solve.
    RightHandSide,
    /// max |residual| of the last cycle.
    Residual,
    /// Iterations of the bottom solver, added up.
    Iterations,
    /// A norm asked for from outside.
    Norm,
}

const SCALARS: usize = 4;

/// One level in GPU memory.
pub(super) struct OnGpu {
    pub view: DeviceLevel,
    pub grid: Grid,
    /// All vectors, one after the other; the view's addresses point into it.
    memory: Buffer<f64>,
}

impl OnGpu {
    /// The elements of one vector.
    fn vector(&self, index: usize) -> Result<Buffer<f64>, CudaError> {
        let volume = self.grid.volume();
        Ok(self.memory.slice(index * volume..(index + 1) * volume)?)
    }

    pub fn u(&self) -> Result<Buffer<f64>, CudaError> {
        self.vector(Vector::U.index())
    }
}

/// What is captured once and replayed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    /// Everything from the norm of F to that of the residual.
    FCycle,
    /// A V-cycle on F and the norm of the residual.
    VCycle,
}

/// The solver with every level on a GPU.
pub struct Gpu {
    pub(super) cpu: Cpu,
    pub(super) device: CudaDevice,
    pub(super) stream: Stream,
    pub(super) kernels: Kernels,
    pub(super) levels: Vec<OnGpu>,
    /// The first level that the resident kernel takes.
    pub(super) resident: usize,
    pub(super) scalars: Buffer<u64>,
    results: Buffer<u64>,
    graphs: Vec<(usize, Piece, Graph)>,
    /// Replay graphs; else every kernel is launched by itself.
    pub use_graphs: bool,
    /// How long the host waits for a solve.
    limit: Duration,
}

/// Vectors of a level on the GPU, in memory order.
fn vectors(config: &Config, is_bottom: bool) -> Vec<Vector> {
    crate::setup::vectors_of(&Config { bottom: Bottom::Bicgstab, ..config.clone() }, is_bottom)
}

impl Gpu {
    /// Uploads what `cpu` has set up. Its rank must be the only one.
    ///
    /// # Errors
    /// [`CudaError`] if there are no kernels for the configuration, the levels do not fit, or the driver refuses.
    pub fn new(cpu: Cpu, device: CudaDevice, limit: Duration) -> Result<Self, CudaError> {
        super::check(cpu.config())?;
        let config = cpu.config().clone();
        let count = cpu.timers.levels();
        let needed: usize = (0..count)
            .map(|l| {
                let grid = Grid::new(cpu.level(l).shape.dim);
                8 * grid.volume() * vectors(&config, l + 1 == count).len()
            })
            .sum();
        let available = device.capabilities().memory;
        if needed as u64 > available {
            return Err(CudaError::Memory {
                gpu: device.name().to_owned(),
                needed_mib: needed as u64 >> 20,
                available_mib: available >> 20,
            });
        }
        let kernels = Kernels::load(&device, config.operator)?;
        let place = Device::Cuda(device.clone());
        let stream = place.stream()?;
        let mut levels = Vec::with_capacity(count);
        for l in 0..count {
            levels.push(upload(&cpu, &place, &stream, l, l + 1 == count)?);
        }
        let resident = (0..count)
            .find(|&l| {
                levels[l].grid.n <= layout::RESIDENT_DIM && count - l <= layout::RESIDENT_LEVELS
            })
            .unwrap_or(count - 1);
        let scalars = place.alloc::<u64>(SCALARS)?;
        let results = place.alloc_pinned::<u64>(SCALARS)?;
        Ok(Self {
            cpu,
            device,
            stream,
            kernels,
            levels,
            resident,
            scalars,
            results,
            graphs: Vec::new(),
            use_graphs: true,
            limit,
        })
    }

    /// The set-up, with the shapes of the levels.
    pub fn cpu(&self) -> &Cpu {
        &self.cpu
    }

    /// Name of the GPU.
    pub fn name(&self) -> &str {
        self.device.name()
    }

    /// A vector of level `l` in the layout of the CPU.
    ///
    /// # Errors
    /// What the driver says.
    pub fn download(&self, l: usize, v: Vector) -> Result<Vec<f64>, CudaError> {
        let config = self.cpu.config();
        let level = &self.levels[l];
        let order = vectors(config, l + 1 == self.levels.len());
        let Some(index) = order.iter().position(|&other| other == v) else {
            return Ok(Vec::new());
        };
        let values = level.vector(index)?.to_vec()?;
        Ok(layout::scatter(Boxes::of(self.cpu.level(l)), &level.grid, &values))
    }

    /// As [`crate::cycle::solve`].
    fn solve_cycle(&mut self, l: usize, cycle: Cycle, out: &mut Solved) -> Result<(), CudaError> {
        let start = Instant::now();
        out.cycles.clear();
        out.fmax = 0.0;
        let mut done = false;
        match cycle {
            Cycle::F | Cycle::Fv => {
                self.replay(l, Piece::FCycle)?;
                out.fmax = self.scalar(Scalar::RightHandSide)?;
                done = self.record("f-cycle", out)? || cycle == Cycle::F;
            }
            Cycle::V => out.fmax = self.norm(l, self.levels[l].view.f)?,
        }
        for _ in 0..MAX_V_CYCLES {
            if done {
                break;
            }
            self.replay(l, Piece::VCycle)?;
            done = self.record("v-cycle", out)?;
        }
        out.time = start.elapsed();
        Ok(())
    }

    fn record(&self, kind: &'static str, out: &mut Solved) -> Result<bool, CudaError> {
        let residual = self.scalar(Scalar::Residual)?;
        let relative = residual / out.fmax;
        out.cycles.push(CycleResult { kind, residual, relative });
        Ok(relative < TOLERANCE)
    }

    /// max |x| on level `l`; `x` is the vector's address.
    fn norm(&self, l: usize, x: u64) -> Result<f64, CudaError> {
        self.clear(Scalar::Norm)?;
        self.enqueue_norm(l, x, None)?;
        self.fetch()?;
        self.scalar(Scalar::Norm)
    }

    /// Runs a piece, captured at its first use, and waits for it.
    fn replay(&mut self, l: usize, piece: Piece) -> Result<(), CudaError> {
        if !self.use_graphs {
            self.enqueue(l, piece)?;
            return self.wait();
        }
        if !self.graphs.iter().any(|(level, p, _)| (*level, *p) == (l, piece)) {
            self.stream.begin_capture()?;
            let enqueued = self.enqueue(l, piece);
            let graph = self.stream.end_capture();
            enqueued?;
            self.graphs.push((l, piece, graph?));
        }
        if let Some((_, _, graph)) =
            self.graphs.iter().find(|(level, p, _)| (*level, *p) == (l, piece))
        {
            self.stream.launch_graph(graph)?;
        }
        self.wait()
    }

    fn enqueue(&self, l: usize, piece: Piece) -> Result<(), CudaError> {
        self.clear(Scalar::Residual)?;
        match piece {
            Piece::FCycle => {
                self.clear(Scalar::RightHandSide)?;
                self.f_cycle(l)?;
            }
            Piece::VCycle => self.v_cycle(l, self.levels[l].view.f, false)?,
        }
        self.residual_norm(l)?;
        Ok(self.stream.copy(&self.results, &self.scalars)?)
    }

    fn fetch(&self) -> Result<(), CudaError> {
        self.stream.copy(&self.results, &self.scalars)?;
        self.wait()
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

    /// Waits without sleeping: a solve may take less time than waking up does.
    fn wait(&self) -> Result<(), CudaError> {
        let deadline = Deadline::after(self.limit);
        while !deadline.expired() && !self.stream.is_idle()? {
            std::hint::spin_loop();
        }
        Ok(self.stream.synchronize(deadline)?)
    }

    /// Enqueues a kernel.
    ///
    /// # Safety
    /// As for [`Stream::launch`].
    pub(super) unsafe fn launch(
        &self,
        kernel: &gdsync::Kernel,
        shape: (Dims, i32),
        args: &[Arg<'_>],
    ) -> Result<(), CudaError> {
        // SAFETY: by the caller's promise.
        unsafe { self.stream.launch(kernel, shape.0, args) }?;
        Ok(())
    }
}

/// Allocates level `l` on the GPU and fills it.
fn upload(
    cpu: &Cpu,
    place: &Device,
    stream: &Stream,
    l: usize,
    is_bottom: bool,
) -> Result<OnGpu, CudaError> {
    let config = cpu.config();
    let level = cpu.level(l);
    let grid = Grid::new(level.shape.dim);
    let order = vectors(config, is_bottom);
    let volume = grid.volume();
    let memory = place.alloc::<f64>(order.len() * volume)?;
    let base = memory.device_address().unwrap_or(0);
    let address = |v: Vector| {
        order.iter().position(|&o| o == v).map_or(0, |index| base + (8 * index * volume) as u64)
    };
    for (index, &v) in order.iter().enumerate() {
        let constant =
            matches!(v, Vector::F | Vector::Dinv | Vector::Beta(_) | Vector::Alpha | Vector::L1Inv);
        if constant {
            let target = memory.slice(index * volume..(index + 1) * volume)?;
            upload_vector(cpu, place, stream, l, v, &grid, &target)?;
        }
    }
    let h2inv = 1.0 / (level.shape.h * level.shape.h);
    let lowered = |rule: Extrapolation| layout::rule(rule.lowered(level.geometry.n));
    let weights = chebyshev_weights(level.lambda_max);
    let fv4 = config.operator == Operator::Fv4;
    let view = DeviceLevel {
        u: address(Vector::U),
        temp: address(Vector::Temp),
        f: address(Vector::F),
        r: address(Vector::R),
        krylov: address(Vector::Krylov(0)),
        dinv: address(Vector::Dinv),
        l1inv: if config.smoother == Smoother::L1Jacobi { address(Vector::L1Inv) } else { 0 },
        beta: std::array::from_fn(|axis| address(Vector::Beta(axis as u8))),
        alpha: address(Vector::Alpha),
        scale: if fv4 { -h2inv * (1.0 / 12.0) } else { -h2inv },
        a: config.equation.a(),
        c1: weights.map(|w| w.0),
        c2: weights.map(|w| w.1),
        volume: volume as i64,
        n: grid.n as i32,
        half: grid.half as i32,
        boundary: layout::rule(Extrapolation::of_operator(config.operator, level.geometry.n)),
        correct: lowered(Extrapolation::Quadratic),
        replace: lowered(if fv4 { Extrapolation::Quartic } else { Extrapolation::Quadratic }),
        unused: 0,
    };
    Ok(OnGpu { view, grid, memory })
}

/// Uploads one vector, a few planes at a time.
fn upload_vector(
    cpu: &Cpu,
    place: &Device,
    stream: &Stream,
    l: usize,
    v: Vector,
    grid: &Grid,
    target: &Buffer<f64>,
) -> Result<(), CudaError> {
    const STAGED: usize = 1 << 23;
    let level = cpu.level(l);
    let field = level.field(v);
    if field.is_empty() {
        return Ok(());
    }
    let boxes = Boxes::of(level);
    let plane = grid.plane();
    let n = grid.n as isize;
    let per_turn = (STAGED / plane).clamp(1, grid.n + 2);
    let staging = place.alloc_pinned::<f64>(per_turn * plane)?;
    let threads = cpu.threads().min(per_turn);
    let mut k = -1;
    while k <= n {
        let count = per_turn.min((n + 1 - k) as usize);
        let first = (k + layout::GHOSTS as isize) as usize * plane + layout::BASE;
        // A plane's rows and the ghosts behind its last one; those in front of the first row are the end of the plane
        // before, so the range starts as many elements earlier.
        {
            // SAFETY: the last copy from it has been waited for.
            let planes = unsafe { staging.as_mut_slice()? };
            let share = count.div_ceil(threads);
            std::thread::scope(|scope| {
                for (part, planes) in planes[..count * plane].chunks_mut(share * plane).enumerate()
                {
                    scope.spawn(move || {
                        for (index, out) in planes.chunks_mut(plane).enumerate() {
                            let at = (part * share + index) as isize;
                            let first = first + (part * share + index) * plane - 1;
                            layout::gather_plane(boxes, field, grid, k + at, first, out);
                        }
                    });
                }
            });
        }
        let to = target.slice(first - 1..first - 1 + count * plane)?;
        stream.copy(&to, &staging.slice(0..count * plane)?)?;
        stream.synchronize(Deadline::after(Duration::from_secs(60)))?;
        k += count as isize;
    }
    Ok(())
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
        self.cpu.config().cycle
    }

    fn zero_solution(&mut self, l: usize) -> Result<(), Error> {
        self.zero_u(l)?;
        Ok(self.wait()?)
    }

    fn solve(&mut self, l: usize, out: &mut Solved) -> Result<(), Error> {
        Ok(self.solve_cycle(l, self.cpu.config().cycle, out)?)
    }

    fn agree(&mut self, _: usize, value: f64) -> Result<f64, Error> {
        Ok(value)
    }

    fn largest(&mut self, l: usize) -> Result<f64, Error> {
        Ok(self.norm(l, self.levels[l].view.u)?)
    }

    fn difference(&mut self, l: usize) -> Result<f64, Error> {
        if l + 1 >= self.levels.len() {
            return Ok(0.0);
        }
        self.clear(Scalar::Norm)?;
        self.enqueue_norm(l + 1, self.levels[l + 1].view.u, Some(l))?;
        self.fetch()?;
        Ok(self.scalar(Scalar::Norm)?)
    }

    fn timers(&mut self) -> &mut crate::timers::Timers {
        &mut self.cpu.timers
    }

    fn take_bottom_iterations(&mut self) -> Result<usize, Error> {
        self.fetch()?;
        let iterations = self.bits(Scalar::Iterations)?;
        self.clear(Scalar::Iterations)?;
        self.wait()?;
        Ok(iterations as usize)
    }
}
