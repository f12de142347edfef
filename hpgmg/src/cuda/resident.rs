//! The kernel of the coarsest levels (`cuda/resident.cu`): steps of a cycle in one launch of one block. What Rust and it share is
//! declared here; `cuda/resident.cuh` is generated from it.

use gdsync::{Arg, Dims, Kernel};
use mp_kernels::{shared_constants, shared_enum, shared_structs};

use super::device::{Counter, DeviceLevel};
use super::error::CudaError;
use super::kernels::{Held, Kernels};
use super::solver::{Gpu, Scalar};
use crate::cycle::CycleStep;
use crate::krylov;
use crate::options::{Bottom, Operator, Smoother};

/// A level with what kernels compute of it: in `cuda/level.cuh` derived from [`DeviceLevel`].
pub type Level = DeviceLevel;

shared_constants! {
    /// Cells per side of the largest level of the kernel.
    pub const RESIDENT_DIM: i32 = 12 as RESIDENT_DIM;
    /// Its levels at most: 12, 6, 3 or 8, 4, 2, 1; in shared memory 16, too.
    pub const RESIDENT_LEVELS: i32 = 5 as RESIDENT_LEVELS;
    /// Steps of one launch at most: those of an F-cycle over all its levels.
    pub const RESIDENT_STEPS: i32 = 53 as RESIDENT_STEPS;
    /// Threads of its block.
    pub const RESIDENT_THREADS: i32 = 512 as RESIDENT_THREADS;
    /// Cells per side of the largest level of the kernel whose levels are in shared memory (`cuda/held.cu`), …
    pub const HELD_DIM: i32 = 16 as HELD_DIM;
    /// … blocks of its cluster, …
    pub const HELD_BLOCKS: i32 = 8 as HELD_BLOCKS;
    /// … bytes of shared memory of each, …
    pub const HELD_BYTES: i32 = 217_152 as HELD_BYTES;
    /// … and of a block alone, which has the levels of half as many cells a side and fewer.
    pub const HELD_BYTES_ALONE: i32 = 112_896 as HELD_BYTES_ALONE;
    /// The same of the kernel for levels of 12, 6 and 3 cells a side.
    pub const HELD_DIM_3: i32 = 12 as HELD_DIM_3;
    pub const HELD_BLOCKS_3: i32 = 6 as HELD_BLOCKS_3;
    pub const HELD_BYTES_3: i32 = 123_904 as HELD_BYTES_3;
}

shared_enum! {
    /// A smoother.
    pub enum SmootherKind {
        /// Gauss-Seidel, red and black.
        Gsrb = 0 as SMOOTH_GSRB,
        /// Chebyshev's recurrence.
        Chebyshev = 1 as SMOOTH_CHEBYSHEV,
        /// Weighted Jacobi.
        Jacobi = 2 as SMOOTH_JACOBI,
        /// Jacobi with L1 weights.
        L1Jacobi = 3 as SMOOTH_L1_JACOBI,
    }
}

shared_enum! {
    /// A solver of the coarsest level.
    pub enum BottomKind {
        /// BiCGStab.
        Bicgstab = 0 as BICGSTAB,
        /// Conjugate gradients.
        Cg = 1 as CG,
        /// The smoother.
        Smoother = 2 as RELAXATION,
    }
}

shared_structs! {
    /// A step of a cycle. The right-hand side is its level's r. Few bytes, since a parameter that is not in the constant cache is
    /// waited for.
    pub struct ResidentStep {
        /// `Op`.
        pub op: u8,
        /// Number of its level among those of the kernel; of a step between two levels the finer.
        pub level: u8,
        /// 1: what u holds counts as zero.
        pub zero: u8,
    }

    /// What the kernel does.
    pub struct Resident {
        /// The coarsest levels, the finest of them first. r of the first that is worked on is the right-hand side of all.
        pub levels: [Level; RESIDENT_LEVELS as usize],
        /// Iterations of the bottom solver, added up.
        pub iterations: Counter,
        /// Factor by which the bottom solver reduces the residual, …
        pub reduction: f64,
        /// … in so many iterations at most.
        pub max_iterations: i32,
        /// Steps.
        pub count: i32,
        /// The finest level that they work on.
        pub first: i32,
        /// `SmootherKind`.
        pub smoother: u32,
        /// `BottomKind`.
        pub bottom: u32,
        /// 1: solutions are interpolated by the quartic rule.
        pub quartic: u32,
        /// What is done, one after the other.
        pub steps: [ResidentStep; RESIDENT_STEPS as usize],
        /// Makes the size a multiple of 8.
        pub reserved: u8,
    }
}

/// `cuda/resident.cuh`.
#[cfg(test)]
const HEADER: mp_kernels::shared::Header = mp_kernels::shared::Header {
    source: "hpgmg/src/cuda/resident.rs",
    package: "hpgmg",
    includes: &["level.cuh"],
    namespace: "hpgmg",
    constants: CONSTANTS,
    enums: &[SmootherKind::ENUMERATION, BottomKind::ENUMERATION, crate::cycle::Op::ENUMERATION],
    structs: LAYOUTS,
};

/// How the coarsest levels are worked on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coarsest {
    /// The first of them.
    pub first: usize,
    pub kernel: Kernel,
    dims: Dims,
}

impl Coarsest {
    /// The way for levels of `dims` cells a side of which those from `first` on are done at once by one kernel, and the one before
    /// may be if `one_more`. Levels of 16, 8, 4 and 2 cells, of fv2 also 1, and of 12, 6 and 3, are held in shared memory, those of 16 and of 12,
    /// 6 and 3 where the GPU has clusters.
    pub fn new(
        kernels: &Kernels,
        dims: &[usize],
        bottom: Bottom,
        first: usize,
        one_more: bool,
    ) -> Self {
        let with_more = first.saturating_sub(one_more.into());
        let has = |held: &Held, first: usize| {
            let mut halved = dims[first..].iter().rev().enumerate();
            dims[first] <= held.most && halved.all(|(up, &n)| n == held.least << up)
        };
        // The one that has most of them.
        let held = [with_more, first].into_iter().find_map(|first| {
            let held = kernels.held.iter().find(|held| has(held, first))?;
            Some(Self { first, kernel: held.kernel, dims: held.dims })
        });
        held.filter(|_| bottom == Bottom::Bicgstab).unwrap_or(Self {
            first,
            kernel: kernels.resident,
            dims: Dims::linear(1, RESIDENT_THREADS as u32),
        })
    }
}

impl Gpu {
    /// Enqueues steps of the kernel's levels, at most [`RESIDENT_STEPS`], as one launch.
    pub(super) fn resident(&self, steps: &[CycleStep]) -> Result<(), CudaError> {
        let config = &self.config;
        let first = steps.iter().map(|step| step.l).min().unwrap_or(self.coarsest.first);
        let smoother = match config.smoother {
            Smoother::Gsrb => SmootherKind::Gsrb,
            Smoother::Chebyshev => SmootherKind::Chebyshev,
            Smoother::Jacobi => SmootherKind::Jacobi,
            Smoother::L1Jacobi => SmootherKind::L1Jacobi,
        };
        let bottom = match config.bottom {
            Bottom::Bicgstab => BottomKind::Bicgstab,
            Bottom::Cg => BottomKind::Cg,
            Bottom::Smoother => BottomKind::Smoother,
        };
        let mut resident = Resident {
            iterations: self.address(Scalar::Iterations),
            reduction: krylov::REDUCTION,
            max_iterations: krylov::MAX_ITERATIONS as i32,
            count: steps.len() as i32,
            first: (first - self.coarsest.first) as i32,
            smoother: smoother as u32,
            bottom: bottom as u32,
            quartic: (config.operator == Operator::Fv4).into(),
            ..Resident::default()
        };
        let coarsest = &self.levels[self.coarsest.first..];
        for (to, from) in resident.levels.iter_mut().zip(coarsest) {
            *to = from.view();
        }
        for (to, step) in resident.steps.iter_mut().zip(steps) {
            let level = step.l - self.coarsest.first;
            // Its r, or f of the finest; one and the same in all steps.
            resident.levels[level].r = self.levels[step.l].view().vector(step.rhs);
            *to = ResidentStep { op: step.op as u8, level: level as u8, zero: step.zero.into() };
        }
        let Coarsest { kernel, dims, .. } = &self.coarsest;
        self.traced(first, kernel.name(), || {
            // SAFETY: the kernel's parameter; its vectors live as long as `self`.
            unsafe { self.machine.launch(&self.stream, kernel, *dims, &[Arg::new(&resident)]) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::launches::steps;
    use super::*;
    use crate::cycle::Kind;

    #[test]
    fn the_header_of_the_kernel_is_what_is_declared_here() {
        HEADER.check(concat!(env!("CARGO_MANIFEST_DIR"), "/cuda/resident.cuh")).unwrap();
    }

    #[test]
    fn a_level_has_one_right_hand_side_in_all_steps_of_a_cycle() {
        for (kind, from) in [(Kind::F, 0), (Kind::F, 2), (Kind::V, 0), (Kind::V, 1)] {
            let mut of_levels = [None; RESIDENT_LEVELS as usize];
            for step in steps(kind, RESIDENT_LEVELS as usize, from) {
                let first = *of_levels[step.l].get_or_insert(step.rhs);
                assert_eq!(step.rhs, first, "{kind:?} from {from}: {step:?}");
            }
        }
    }

    #[test]
    fn the_longest_list_of_steps_is_what_the_kernel_has_room_for() {
        assert_eq!(steps(Kind::F, RESIDENT_LEVELS as usize, 0).len(), RESIDENT_STEPS as usize);
    }
}
