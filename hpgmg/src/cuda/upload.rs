//! The memory of a level on a GPU, and getting into it what the CPU has set up.

use std::cell::Cell;
use std::time::Duration;

use gdsync::{Buffer, Deadline, Stream};

use super::device::{DeviceLevel, GhostRule};
use super::error::CudaError;
use super::layout::{self, Boxes, Grid};
use crate::backend::{Operators, Outline, Vector};
use crate::boundary::Extrapolation;
use crate::cpu::Cpu;
use crate::options::{Bottom, Config, Operator, Smoother};
use crate::slab::Slab;
use crate::smoothers::chebyshev_weights;
use crate::transfer::Rule;

/// One level in GPU memory, or a rank's part of it.
pub(super) struct OnGpu {
    view: DeviceLevel,
    /// Whether U and the scratch vector have changed places, for the rest of a cycle.
    changed: Cell<bool>,
    pub grid: Grid,
    pub outline: Outline,
    /// Boxes per side of the domain.
    boxes: usize,
    /// All vectors, one after the other; the view's addresses point into it.
    memory: Buffer<f64>,
}

impl OnGpu {
    /// Where its vectors lie now.
    pub fn view(&self) -> DeviceLevel {
        let DeviceLevel { u, temp, .. } = self.view;
        let (u, temp) = if self.changed.get() { (temp, u) } else { (u, temp) };
        DeviceLevel { u, temp, ..self.view }
    }

    /// Whether U is in its own place, and not in that of the scratch vector.
    pub fn in_place(&self) -> bool {
        !self.changed.get()
    }

    /// From what is enqueued next on U is where the scratch vector was, and the other way round.
    pub fn change_places(&self) {
        self.changed.set(!self.changed.get());
    }

    /// The elements of one vector, by its place among [`vectors`].
    pub fn vector(&self, index: usize) -> Result<Buffer<f64>, CudaError> {
        let volume = self.grid.volume();
        Ok(self.memory.slice(index * volume..(index + 1) * volume)?)
    }

    /// Boxes per side of the domain, as the CPU has them.
    pub fn boxes(&self) -> usize {
        self.boxes
    }

    /// Rows of all boxes.
    pub fn row_pieces(&self) -> usize {
        self.boxes * self.grid.n * self.grid.n
    }

    pub fn u(&self) -> Result<Buffer<f64>, CudaError> {
        self.vector(Vector::U.index())
    }

    /// The vector in whose place `vector` is now.
    pub fn place_of(&self, vector: Vector) -> Vector {
        match vector {
            Vector::U if self.changed.get() => Vector::Temp,
            Vector::Temp if self.changed.get() => Vector::U,
            _ => vector,
        }
    }

    /// `count` planes of a vector from plane `k` on; ghost planes are `around` more at both ends.
    pub fn planes(&self, index: usize, k: isize, count: usize) -> Result<Buffer<f64>, CudaError> {
        let first = index * self.grid.volume() + self.grid.plane_at(k);
        Ok(self.memory.slice(first..first + count * self.grid.plane())?)
    }
}

/// Vectors of level `l` on a GPU, in memory order.
pub(super) fn vectors(cpu: &Cpu, l: usize) -> Vec<Vector> {
    let is_bottom = l + 1 == cpu.timers.levels();
    let config = Config { bottom: Bottom::Bicgstab, ..cpu.config().clone() };
    crate::setup::vectors_of(&config, is_bottom)
}

/// Fills `memory`, which holds the part `grid` of level `l`, with what the CPU has set up.
pub(super) fn upload(
    cpu: &Cpu,
    stream: &Stream,
    l: usize,
    grid: Grid,
    memory: Buffer<f64>,
) -> Result<OnGpu, CudaError> {
    let config = cpu.config();
    let level = cpu.level(l);
    let order = vectors(cpu, l);
    let volume = grid.volume();
    let base = memory.device_address().unwrap_or(0);
    let address = |v: Vector| {
        let at = |index: usize| base.wrapping_add(8 * (index * volume) as u64);
        let index = order.iter().position(|&o| o == v);
        index.map_or(0, |index| at(index).wrapping_sub(8 * grid.shift() as u64))
    };
    for (index, &v) in order.iter().enumerate() {
        let constant =
            matches!(v, Vector::F | Vector::Dinv | Vector::Beta(_) | Vector::Alpha | Vector::L1Inv);
        if constant {
            let target = memory.slice(index * volume..(index + 1) * volume)?;
            upload_vector(cpu, stream, l, v, &grid, &target)?;
        }
    }
    let h2inv = 1.0 / (level.shape.h * level.shape.h);
    let (correct, replace) = Rule::of_operator(config.operator);
    let ghosts = |rule: Rule| rule.ghosts(level.geometry.n).map_or(0, GhostRule::number);
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
        rows: grid.size[1] as i32,
        boundary: GhostRule::number(Extrapolation::of_operator(config.operator, level.geometry.n)),
        correct: ghosts(correct),
        replace: ghosts(replace),
    };
    let outline = Outline { fused: false, ..cpu.outline(l) };
    Ok(OnGpu {
        view,
        changed: Cell::new(false),
        grid,
        outline,
        boxes: level.shape.boxes_per_side,
        memory,
    })
}

/// Where the CPU has a vector.
#[derive(Clone, Copy)]
enum Source<'a> {
    Boxes(Boxes<'a>, &'a [f64]),
    Slab(&'a Slab, &'a [f64]),
}

impl Source<'_> {
    fn is_empty(&self) -> bool {
        let (Self::Boxes(_, field) | Self::Slab(_, field)) = self;
        field.is_empty()
    }

    /// As [`layout::gather_plane`].
    fn gather_plane(&self, grid: &Grid, k: isize, first: usize, out: &mut [f64]) {
        match self {
            Self::Boxes(boxes, field) => layout::gather_plane(*boxes, field, grid, k, first, out),
            Self::Slab(slab, field) => layout::gather_from_slab(slab, field, grid, k, first, out),
        }
    }
}

/// Uploads one vector, a few planes at a time.
fn upload_vector(
    cpu: &Cpu,
    stream: &Stream,
    l: usize,
    v: Vector,
    grid: &Grid,
    target: &Buffer<f64>,
) -> Result<(), CudaError> {
    const STAGED: usize = 1 << 23;
    let level = cpu.level(l);
    let source = match &level.slab {
        Some(slab) => Source::Slab(slab, slab.field(v)),
        None => Source::Boxes(Boxes::of(level), level.field(v)),
    };
    if source.is_empty() {
        return Ok(());
    }
    let plane = grid.plane();
    // One of the planes around is not read: that of x alone is as far away. Beyond the domain there is one.
    let (start, end) = (grid.planes().start, grid.planes().end);
    let beyond = grid.around as isize - 1;
    let (start, end) = ((start - beyond).max(-1), (end + beyond).min(grid.n as isize + 1));
    let per_turn = (STAGED / plane).clamp(1, (end - start) as usize);
    let staging = stream.device().alloc_pinned::<f64>(per_turn * plane)?;
    let threads = cpu.threads().min(per_turn);
    let mut k = start;
    while k < end {
        let count = per_turn.min((end - k) as usize);
        let first = grid.plane_at(k);
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
                            source.gather_plane(grid, k + at, first, out);
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
