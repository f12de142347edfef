//! Coarse levels on the CPU (`--gpu-threshold`), as in the paper: their right-hand side comes down, the solution goes back
//! up. Every rank does so for itself; the CPU finds the same bits whoever computes. The CPU takes part in a solve then,
//! which is why no graph can hold it.

use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;
use std::time::{Duration, Instant};

use gdsync::{Buffer, Device};

use super::error::CudaError;
use super::layout::{self, Boxes, Grid};
use super::solver::Gpu;
use crate::backend::{Operators, Vector};
use crate::cpu::Cpu;
use crate::cycle::{self, CycleStep, Solved};
use crate::options::Cycle;

/// What the CPU has of the coarse levels.
pub(super) struct Hybrid {
    cpu: Rc<RefCell<Cpu>>,
    /// The first level that is the CPU's.
    pub first: usize,
    /// Memory that both reach, for one vector of the first such level that a solve needs.
    staging: Buffer<f64>,
    /// Time that the CPU computed since it was last asked for.
    spent: Cell<Duration>,
}

/// Cells per side of the smallest level that kernels do by itself.
const SMALLEST: usize = 4;

/// The first level of fewer than `threshold` cells, if there is one; levels of fewer than four cells a side go with it.
pub(super) fn first_below(dims: &[usize], threshold: u64) -> Option<usize> {
    let cells = |n: usize| (n as u64).saturating_pow(3);
    let below = dims.iter().position(|&n| cells(n) < threshold)?;
    Some(dims.iter().position(|&n| n < SMALLEST).map_or(below, |small| small.min(below)))
}

impl Hybrid {
    /// For the levels from `first` on, with memory that `device` reaches.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(
        cpu: Rc<RefCell<Cpu>>,
        first: usize,
        dim: usize,
        device: &Device,
    ) -> Result<Self, CudaError> {
        let staging = device.alloc_pinned::<f64>(Grid::new(dim).volume())?;
        Ok(Self { cpu, first, staging, spent: Cell::default() })
    }

    /// The CPU's solver; it is free whenever the host runs.
    fn cpu(&self) -> RefMut<'_, Cpu> {
        self.cpu.borrow_mut()
    }

    /// Iterations of the bottom solver since the last call.
    pub fn take_iterations(&self) -> usize {
        std::mem::take(&mut self.cpu().bottom_iterations)
    }

    /// Time that the CPU computed since the last call.
    pub fn take_spent(&self) -> Duration {
        self.spent.take()
    }
}

impl Gpu {
    /// Steps of the levels from the CPU's first on, on R of that level.
    pub(super) fn coarse_on_cpu(
        &self,
        hybrid: &Hybrid,
        steps: &[CycleStep],
    ) -> Result<(), CudaError> {
        let first = hybrid.first;
        let level = &self.levels[first];
        let rhs = level.vector(Vector::R.index())?;
        self.traced(first, "pack", || Ok(self.stream.copy(&hybrid.staging, &rhs)?))?;
        self.traced_on_cpu(first, "wait for the GPU", || self.wait())?;
        let began = Instant::now();
        let mut cpu = hybrid.cpu();
        self.traced_on_cpu(first, "coarse levels", || {
            let to = cpu.level_mut(first);
            let mut rhs = to.take(Vector::R);
            // SAFETY: the copy into it has been waited for.
            let values = unsafe { hybrid.staging.as_slice()? };
            layout::scatter_into(Boxes::of(to), &level.grid, values, &mut rhs);
            to.put(Vector::R, rhs);
            Ok(steps.iter().try_for_each(|step| cpu.step(*step))?)
        })?;
        self.give(hybrid, &cpu, first)?;
        hybrid.spent.set(hybrid.spent.get() + began.elapsed());
        Ok(())
    }

    /// A whole solve from level `l`, which is the CPU's.
    pub(super) fn solve_on_cpu(
        &self,
        hybrid: &Hybrid,
        l: usize,
        cycle: Cycle,
        out: &mut Solved,
    ) -> Result<(), CudaError> {
        let began = Instant::now();
        let mut cpu = hybrid.cpu();
        cpu.zero(l, Vector::U);
        cycle::solve(&mut *cpu, l, cycle, out)?;
        self.give(hybrid, &cpu, l)?;
        self.wait()?;
        out.time = began.elapsed();
        hybrid.spent.set(hybrid.spent.get() + out.time);
        Ok(())
    }

    /// Enqueues the copy of the CPU's u of level `l` to the GPU, without ghosts: nothing there reads them.
    fn give(&self, hybrid: &Hybrid, cpu: &Cpu, l: usize) -> Result<(), CudaError> {
        let (from, grid) = (cpu.level(l), self.levels[l].grid);
        let staging = hybrid.staging.slice(0..grid.volume())?;
        {
            // SAFETY: copies from and to it have been waited for: one before the CPU computed, the others at the end of
            // a solve or before the next copy into it.
            let values = unsafe { staging.as_mut_slice()? };
            for k in 0..grid.n as isize {
                layout::gather_plane(Boxes::of(from), from.field(Vector::U), &grid, k, 0, values);
            }
        }
        let to = self.levels[l].u()?;
        self.traced(l, "unpack", || Ok(self.stream.copy(&to, &staging)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_threshold_leaves_16_cells_a_side_to_the_cpu_and_none_leaves_nothing() {
        let dims = [128, 64, 32, 16, 8, 4, 2];
        assert_eq!([first_below(&dims, 10_000), first_below(&dims, 0)], [Some(3), None]);
        assert_eq!([first_below(&dims, 4096), first_below(&dims, u64::MAX)], [Some(4), Some(0)]);
        assert_eq!(first_below(&[4, 2, 1], 2), Some(1));
    }
}
