//! What the steps of a cycle enqueue: nothing here waits, so that all of it can be captured in a graph. Residual and restriction
//! are one launch, first sweeps from zero do not read it, and the coarsest levels are in one kernel.

use gdsync::{Arg, Dims, Kernel};

use super::columns::columns;
use super::device::{BLOCK_PAIRS, BLOCK_ROWS, Extent, Leg, Pass, TILE};
use super::error::CudaError;
use super::halo::turn;
use super::kernels::{Columns, OneLeg, Passes};
use super::launches::{grouped, steps};
use super::partition::Part;
use super::ranks::Ranks;
use super::solver::{Gpu, Scalar};
use super::tiles::{March, Tiled};
use super::upload::OnGpu;
use crate::backend::Vector;
use crate::cpu::Step;
use crate::cycle::{CycleStep, Kind, Op};
use crate::options::Smoother;
use crate::smoothers;

/// Threads of a block, along the row and across rows.
const BLOCK: (u32, u32) = (BLOCK_PAIRS as u32, BLOCK_ROWS as u32);

/// Levels of so many cells a side and more are worked on in bands of so many rows: the three planes of all vectors that the
/// next blocks along k read again are more than the second-level cache holds, those of a band are not. At 512³ on an
/// H100 that saves a tenth of a solve; at 256³ all of a plane stays in the cache.
const BANDS_FROM: usize = 512;
const BAND: u32 = 128;

/// What a launch has to do with ghosts.
#[derive(Clone, Copy)]
pub(super) struct Ghosts {
    /// The vector whose ghosts are read, and its level.
    pub read: Option<(usize, Vector)>,
    /// The vector that is written and has some.
    pub written: Option<Vector>,
}

/// Makes a launch over a level of `n` cells a side go band by band, and gives the blocks along k of one band.
fn banded(dims: &mut Dims, n: usize) -> i32 {
    let (x, y, tiles) = dims.grid;
    let rows = BAND / dims.block.1;
    if n >= BANDS_FROM && y.is_multiple_of(rows) {
        dims.grid = (x, rows, tiles * (y / rows));
    }
    tiles as i32
}

impl Gpu {
    /// Dimensions of a launch with a thread for each of `width` things in each of `n` rows of `planes` planes, and the planes that a
    /// block marches through: a few where there are blocks enough, so that neighbouring planes are read from the
    /// first-level cache. More than three measured slower (on an H100): the last blocks then run alone.
    pub(super) fn shape(&self, [width, n, planes]: [usize; 3]) -> (Dims, i32) {
        let (x, y) = (width.div_ceil(BLOCK.0 as usize), n.div_ceil(BLOCK.1 as usize));
        let enough = 8 * self.machine.multiprocessors as usize;
        let each = (x * y * planes).div_ceil(enough.max(1)).clamp(1, 3);
        let grid = (x as u32, y as u32, planes.div_ceil(each) as u32);
        (Dims { grid, block: (BLOCK.0, BLOCK.1, 1), shared: 0 }, each as i32)
    }

    /// For a thread for each pair of cells of this rank's part of level `l`, band by band; with the planes of a block and
    /// the blocks along k.
    pub(super) fn pairs(&self, l: usize) -> (Dims, i32, i32) {
        let [cells, rows, planes] = self.levels[l].grid.size;
        let (mut dims, each) = self.shape([cells.div_ceil(2), rows, planes]);
        let tiles = banded(&mut dims, rows);
        (dims, each, tiles)
    }

    /// Dimensions of a launch over `part`, along i in what a thread has of a row, and what it is told.
    pub(super) fn extent(&self, part: Part) -> (Dims, Extent) {
        let (dims, each) = self.shape([0, 1, 2].map(|axis| part[axis].len()));
        let [first, end] = [0, 1]
            .map(|what| [0, 1, 2].map(|axis| [part[axis].start, part[axis].end][what] as i32));
        (dims, Extent { first, end, each, reserved: 0 })
    }

    /// Dimensions of a launch that marches through the columns of this rank's part of level `l`, and the planes of a
    /// block; none if the level has no such kernels.
    fn columns(&self, l: usize) -> Option<(&Columns, Dims, i32)> {
        let (grid, kernels) = (self.levels[l].grid, self.passes(l).columns.as_ref()?);
        let multiprocessors = self.machine.multiprocessors as usize;
        let blocks = columns(grid.n, grid.size[2], multiprocessors, grid.n >= BANDS_FROM)?;
        let dims = Dims { grid: blocks.grid, block: (BLOCK.0, BLOCK.1, 1), shared: 0 };
        Some((kernels, dims, blocks.planes as i32))
    }

    /// The kernels for level `l`.
    pub(super) fn passes(&self, l: usize) -> &Passes {
        match self.partition.is_cut(l) {
            false => &self.kernels.whole,
            true if self.partition.in_slabs(l) => &self.kernels.slab,
            true => &self.kernels.boxes,
        }
    }

    /// Enqueues a kernel over level `l` (or, to interpolate from it, over the coarser one that `share` names) that
    /// touches `ghosts`: over a cut level one phase of the exchange.
    ///
    /// # Safety
    /// As for [`gdsync::Stream::launch`], without the last parameter of kernels over slabs and boxes.
    pub(super) unsafe fn phase<const N: usize>(
        &self,
        l: usize,
        share: usize,
        kernel: &Kernel,
        dims: Dims,
        args: [Arg<'_>; N],
        Ghosts { read, written }: Ghosts,
    ) -> Result<(), CudaError> {
        if !self.partition.is_cut(l) {
            return self.traced(l, kernel.name(), || {
                // SAFETY: the caller's promise.
                unsafe { self.machine.launch(&self.stream, kernel, dims, &args) }
            });
        }
        // U may be where the scratch vector was.
        let read = read.filter(|(level, _)| self.partition.is_cut(*level));
        let read = read.map(|(level, vector)| (level, self.levels[level].place_of(vector)));
        let written = written.map(|vector| self.levels[l].place_of(vector));
        let part = match &self.ranks {
            Ranks::Halo(halo) => {
                halo.enter(self, read, written.map(|vector| (l, vector)), l, share)?
            }
            Ranks::Alone | Ranks::Staged(_) => turn(&self.partition, l, share),
        };
        let mut all = [part.arg(); 5];
        all[..N].copy_from_slice(&args);
        self.traced(l, kernel.name(), || {
            // SAFETY: the caller's promise; kernels over slabs and boxes take them last, and phases order what is written in
            // other ranks' memory.
            unsafe { self.machine.launch(&self.stream, kernel, dims, &all[..=N]) }
        })?;
        match (&self.ranks, written) {
            (Ranks::Halo(halo), written) => halo.leave(self, l, written),
            (Ranks::Staged(staged), Some(v)) => staged.exchange(self, l, v),
            _ => Ok(()),
        }
    }

    /// After a restriction from level `l`: a rank gets what others have of its part of the next level's right-hand side, and around it.
    fn gather_below(&self, l: usize) -> Result<(), CudaError> {
        match &self.ranks {
            _ if !self.partition.gathers(l + 1) && !self.partition.sweeps(l + 1) => Ok(()),
            Ranks::Alone => Ok(()),
            Ranks::Halo(halo) => halo.gather(self, l + 1),
            Ranks::Staged(staged) => staged.gather(self, l + 1),
        }
    }

    pub(super) fn zero_u(&self, l: usize) -> Result<(), CudaError> {
        self.stream.fill(&self.levels[l].u()?, 0)?;
        match &self.ranks {
            Ranks::Halo(halo) if self.partition.is_cut(l) => halo.zero(&self.stream, l, Vector::U),
            _ => Ok(()),
        }
    }

    /// The steps of a cycle from level `l`, and with an F-cycle the norm of F.
    pub(super) fn cycle(&self, kind: Kind, l: usize) -> Result<(), CudaError> {
        if kind == Kind::F && l >= self.coarse {
            self.enqueue_norm(l, Vector::F, None, Scalar::RightHandSide)?;
        }
        let steps = steps(kind, self.levels.len(), l);
        let legs = |l: usize| self.leg(l).is_some();
        let launched = grouped(&steps, self.coarse, legs).try_for_each(|together| {
            let smooth = together.iter().find(|step| step.op == Op::Smooth);
            match smooth.and_then(|smooth| Some((smooth, self.leg(smooth.l)?))) {
                _ if together.iter().all(|step| step.l >= self.coarse) => self.at_once(together),
                Some((smooth, kernel)) => self.run_leg(together, smooth, kernel),
                None => together.iter().try_for_each(|step| self.step(*step)),
            }
        });
        debug_assert!(launched.is_err() || self.levels.iter().all(OnGpu::in_place));
        launched
    }

    /// A step of a level that has launches of its own.
    fn step(&self, step: CycleStep) -> Result<(), CudaError> {
        let CycleStep { op, l, rhs, zero } = step;
        let k = self.passes(l);
        match op {
            Op::Smooth => self.smooth(l, rhs, zero),
            Op::RestrictResidual => self.residual_restrict(l, rhs),
            // The right-hand side of the problem itself is restricted once in an F-cycle, first.
            Op::Restrict => self.restrict(l, rhs, rhs == Vector::F),
            Op::Correct => self.prolong(l, &k.correct),
            Op::Replace => self.prolong(l, &k.replace),
            Op::Solve => self.at_once(&[step]),
        }
    }

    /// The kernel for legs on level `l`.
    fn leg(&self, l: usize) -> Option<&OneLeg> {
        let possible = self.config.smoother == Smoother::Gsrb && !self.partition.is_cut(l);
        self.kernels.leg(self.levels[l].grid.n).filter(|_| possible)
    }

    /// What level `l` has whole sweeps by, if it has some.
    pub(super) fn sweep(&self, l: usize) -> Option<&Tiled> {
        self.tiled[l].as_ref().filter(|_| self.config.smoother == Smoother::Gsrb)
    }

    /// Steps that follow each other on one level, one of them `smooth`, in one launch.
    fn run_leg(
        &self,
        steps: &[CycleStep],
        smooth: &CycleStep,
        one: &OneLeg,
    ) -> Result<(), CudaError> {
        let l = smooth.l;
        let has = |op: Op| steps.iter().any(|step| step.op == op);
        let (level, coarse) = (&self.levels[l].view(), &self.levels[l + 1].view());
        let leg = Leg {
            rhs: level.vector(smooth.rhs),
            correct: has(Op::Correct).into(),
            zero: smooth.zero.into(),
            restrict: has(Op::RestrictResidual).into(),
            reserved: 0,
            signals: one.signals.handle(),
        };
        let args = [Arg::new(level), Arg::new(coarse), Arg::new(&leg)];
        self.traced(l, one.kernel.name(), || {
            // SAFETY: the kernel's parameters; its vectors and signals live as long as `self`, whose launches follow each other.
            unsafe { self.machine.launch_together(&self.stream, &one.kernel, one.dims, &args) }
        })
    }

    /// A call of the smoother.
    fn smooth(&self, l: usize, rhs: Vector, zero: bool) -> Result<(), CudaError> {
        let outline = &self.levels[l].outline;
        let passes = smoothers::passes(outline);
        if zero && outline.smoother == Smoother::Chebyshev {
            // The second step reads the start again.
            self.zero_u(l)?;
        }
        let Some(tiled) = self.sweep(l) else {
            return (0..passes).try_for_each(|number| {
                let vectors = smoothers::vectors(Vector::U, number);
                self.pass(l, rhs, number, zero && number == 0, vectors)
            });
        };
        for number in 0..passes / 2 {
            if zero && number == 0 {
                // What reads nothing writes where the next reads.
                self.pass(l, rhs, 0, true, (Vector::Temp, Vector::U))?;
                self.pass(l, rhs, 1, false, (Vector::U, Vector::Temp))?;
            } else {
                self.whole_sweep(l, rhs, tiled)?;
            }
            // The next one reads what this one has written, and so does who reads U after the call: a cycle smooths twice on a
            // level, and an even number of changes is none.
            self.levels[l].change_places();
        }
        Ok(())
    }

    /// Two half-sweeps of GSRB in one launch, from U to the scratch vector.
    fn whole_sweep(&self, l: usize, rhs: Vector, tiled: &Tiled) -> Result<(), CudaError> {
        let (level, march) = (&self.levels[l].view(), &tiled.of_sweep);
        let (x, out, rhs) = (level.u, level.temp, level.vector(rhs));
        let March { planes, before, .. } = *march;
        let pass = Pass { x, out, rhs, planes, before, ..Pass::default() };
        let maps = march.maps(self.levels[l].in_place());
        let args = [Arg::new(level), Arg::new(maps), Arg::new(&pass)];
        let ghosts = Ghosts { read: Some((l, Vector::U)), written: Some(Vector::Temp) };
        // SAFETY: the kernel's parameters; its vectors, from which the maps copy, live as long as `self`.
        unsafe { self.phase(l, l, &tiled.sweep, march.dims, args, ghosts) }
    }

    /// Pass `number` of a call of the smoother; `from_zero`: what it would read counts as zero.
    fn pass(
        &self,
        l: usize,
        rhs: Vector,
        number: usize,
        from_zero: bool,
        (read, written): (Vector, Vector),
    ) -> Result<(), CudaError> {
        let outline = &self.levels[l].outline;
        let level = &self.levels[l].view();
        let k = self.passes(l);
        let pairs = self.pairs(l);
        let step = smoothers::step(outline, rhs, number);
        let (kernel, (dims, planes, tiles)) = match (step, self.columns(l)) {
            (Step::Gsrb { .. }, Some((columns, dims, planes))) if !from_zero => {
                (columns.gsrb.of(level.n), (dims, planes, 0))
            }
            (Step::Gsrb { .. }, _) if from_zero => (&k.gsrb_zero, pairs),
            (Step::Gsrb { .. }, _) => (k.gsrb.of(level.n), pairs),
            (Step::Chebyshev { .. }, _) => (&k.chebyshev, pairs),
            _ => (&k.weighted[usize::from(from_zero)], pairs),
        };
        let (weight, scale, last) = match step {
            Step::Weighted { weight, scale, .. } => (level.vector(weight), scale, 0.0),
            Step::Chebyshev { c1, c2, .. } => (0, c2, c1),
            _ => (0, 0.0, 0.0),
        };
        let [x, out, rhs] = [read, written, rhs].map(|v| level.vector(v));
        let sweep = number as i32;
        let pass = Pass { x, out, rhs, weight, scale, last, sweep, planes, tiles, before: 0 };
        let args = [Arg::new(level), Arg::new(&pass)];
        // Nothing has been sent of a start that is zero.
        let read = (!from_zero).then_some((l, read));
        let ghosts = Ghosts { read, written: Some(written) };
        // SAFETY: level and pass are what the kernel takes; its vectors live as long as `self`.
        unsafe { self.phase(l, l, kernel, dims, args, ghosts) }
    }

    /// R of level l+1 = means of the residual of level `l`.
    fn residual_restrict(&self, l: usize, rhs: Vector) -> Result<(), CudaError> {
        let ghosts = Ghosts { read: Some((l, Vector::U)), written: None };
        let (level, coarse) = (&self.levels[l].view(), &self.levels[l + 1].view());
        let rhs = level.vector(rhs);
        if let Some(tiled) = &self.tiled[l] {
            let march = &tiled.of_residual;
            let (out, March { planes, before, .. }) = (coarse.r, *march);
            let pass = Pass { out, rhs, planes, before, ..Pass::default() };
            let maps = march.maps(self.levels[l].in_place());
            let args = [Arg::new(level), Arg::new(coarse), Arg::new(maps), Arg::new(&pass)];
            // SAFETY: the kernel's parameters; its vectors, from which the maps copy, live as long as `self`.
            unsafe { self.phase(l, l, &tiled.residual_restrict, march.dims, args, ghosts) }?;
            return self.gather_below(l);
        }
        if let Some((columns, dims, planes)) = self.columns(l) {
            let pass = Pass { x: level.u, out: coarse.r, rhs, planes, ..Pass::default() };
            let args = [Arg::new(level), Arg::new(coarse), Arg::new(&pass)];
            // SAFETY: the kernel's parameters; its vectors live as long as `self`.
            unsafe { self.phase(l, l, &columns.residual_restrict, dims, args, ghosts) }?;
            return self.gather_below(l);
        }
        // A block and turn does four rows of two planes.
        let [cells, rows, planes] = self.levels[l].grid.size.map(|size| size as u32);
        let (pairs, rows, planes) =
            ((cells / 2).div_ceil(BLOCK.0), rows.div_ceil(4), planes.div_ceil(2));
        let enough = 8 * self.machine.multiprocessors;
        let turns = (pairs * rows * planes).div_ceil(enough).clamp(1, 2);
        let grid = (pairs, rows, planes.div_ceil(turns));
        let mut dims = Dims { grid, block: (BLOCK.0, 4, 2), shared: 0 };
        let tiles = banded(&mut dims, self.levels[l].grid.size[1]);
        let (x, out, planes) = (level.u, coarse.r, turns as i32);
        let pass = Pass { x, out, rhs, planes, tiles, ..Pass::default() };
        let args = [Arg::new(level), Arg::new(coarse), Arg::new(&pass)];
        // SAFETY: the kernel's parameters; its vectors live as long as `self`.
        unsafe { self.phase(l, l, &self.passes(l).residual_restrict, dims, args, ghosts) }?;
        self.gather_below(l)
    }

    /// The norm of the residual on F.
    pub(super) fn residual_norm(&self, l: usize) -> Result<(), CudaError> {
        let level = &self.levels[l].view();
        let largest = self.address(Scalar::Residual);
        let ghosts = Ghosts { read: Some((l, Vector::U)), written: None };
        if let Some(tiled) = &self.tiled[l] {
            let march = &tiled.of_residual;
            let (rhs, March { planes, before, .. }) = (level.f, *march);
            let pass = Pass { rhs, planes, before, ..Pass::default() };
            let maps = march.maps(self.levels[l].in_place());
            let args = [Arg::new(level), Arg::new(maps), Arg::new(&pass), Arg::new(&largest)];
            // SAFETY: the kernel's parameters; its vectors, from which the maps copy, live as long as `self`, and `largest` is
            // the address of a scalar.
            return unsafe { self.phase(l, l, &tiled.residual_norm, march.dims, args, ghosts) };
        }
        let (kernel, (dims, planes, tiles)) = match self.columns(l) {
            Some((columns, dims, planes)) => (&columns.residual_norm, (dims, planes, 0)),
            None => (&self.passes(l).residual_norm, self.pairs(l)),
        };
        let pass = Pass { x: level.u, rhs: level.f, planes, tiles, ..Pass::default() };
        let args = [Arg::new(level), Arg::new(&pass), Arg::new(&largest)];
        // SAFETY: as above; `largest` is the address of a scalar.
        unsafe { self.phase(l, l, kernel, dims, args, ghosts) }
    }

    /// R of level l+1 = means of `from` of level `l`; with `norm` also the norm of `from`.
    fn restrict(&self, l: usize, from: Vector, norm: bool) -> Result<(), CudaError> {
        let (level, coarse) = (&self.levels[l].view(), &self.levels[l + 1].view());
        let from = level.vector(from);
        let (dims, extent) = self.extent(self.partition.share(l + 1));
        let largest = if norm { self.address(Scalar::RightHandSide) } else { 0 };
        let args = [
            Arg::new(level),
            Arg::new(coarse),
            Arg::new(&from),
            Arg::new(&coarse.r),
            Arg::new(&extent),
            Arg::new(&largest),
        ];
        self.traced(l, self.kernels.restrict.name(), || {
            // SAFETY: the kernel's parameters; its vectors live as long as `self`.
            unsafe { self.machine.launch(&self.stream, &self.kernels.restrict, dims, &args) }
        })?;
        self.gather_below(l)
    }

    /// u of level `l` from u of level l+1, replaced or corrected by `kernel`.
    fn prolong(&self, l: usize, kernel: &Kernel) -> Result<(), CudaError> {
        let (coarse, fine) = (&self.levels[l + 1].view(), &self.levels[l].view());
        let [cells, rows, planes] = self.partition.share(l + 1).map(|along| along.len() as u32);
        let tile = TILE as u32;
        let grid = (cells.div_ceil(BLOCK.0), rows.div_ceil(tile), planes.div_ceil(tile));
        let dims = Dims { grid, block: (BLOCK.0, tile, tile), shared: 0 };
        let args = [Arg::new(coarse), Arg::new(fine), Arg::new(&coarse.u), Arg::new(&fine.u)];
        let ghosts = Ghosts { read: Some((l + 1, Vector::U)), written: Some(Vector::U) };
        // SAFETY: the kernel's parameters; its vectors live as long as `self`.
        unsafe { self.phase(l, l + 1, kernel, dims, args, ghosts) }
    }

    /// The norm of `x` on level `l`, or of its difference from the means of u of level `finer`.
    pub(super) fn enqueue_norm(
        &self,
        l: usize,
        x: Vector,
        finer: Option<usize>,
        into: Scalar,
    ) -> Result<(), CudaError> {
        let level = &self.levels[l].view();
        let fine = &self.levels[finer.unwrap_or(l)].view();
        // Where the level below is shared by more ranks this one has the finer values of its share only.
        let [cells, rows, planes] = match finer {
            Some(_) => self.partition.share(l),
            None => self.partition.part(l),
        };
        // A thread has a pair of cells.
        let pairs = cells.start / 2..cells.end.div_ceil(2);
        let (dims, extent) = self.extent([pairs, rows, planes]);
        let (x, from) = (level.vector(x), if finer.is_some() { fine.u } else { 0 });
        let largest = self.address(into);
        let args = [
            Arg::new(level),
            Arg::new(fine),
            Arg::new(&x),
            Arg::new(&from),
            Arg::new(&extent),
            Arg::new(&largest),
        ];
        self.traced(l, self.kernels.norm.name(), || {
            // SAFETY: as above.
            unsafe { self.machine.launch(&self.stream, &self.kernels.norm, dims, &args) }
        })
    }

    /// Steps of the levels that are done at once, in one kernel or on the CPU.
    fn at_once(&self, steps: &[CycleStep]) -> Result<(), CudaError> {
        match &self.hybrid {
            // Solves that start there are the CPU's as a whole, so this begins with the first of its levels, on R.
            Some(hybrid) => self.coarse_on_cpu(hybrid, steps),
            None => self.resident(steps),
        }
    }
}

#[cfg(test)]
mod tests;
