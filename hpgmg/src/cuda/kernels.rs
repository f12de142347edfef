//! The embedded GPU code and its entry points.

use std::time::Duration;

use gdsync::{BlockSignals, Dims, Kernel, Stream};

use super::device::{
    LEG_BLOCKS_24, LEG_BLOCKS_32, LEG_BLOCKS_48, LEG_BLOCKS_64, LEG_BYTES_24, LEG_BYTES_32,
    LEG_BYTES_48, LEG_BYTES_64, LEG_THREADS_24, LEG_THREADS_32, LEG_THREADS_48, LEG_THREADS_64,
};
use super::error::CudaError;
use super::machine::{Code, Machine};
use super::resident::{
    HELD_BLOCKS, HELD_BLOCKS_3, HELD_BYTES, HELD_BYTES_3, HELD_BYTES_ALONE, HELD_DIM, HELD_DIM_3,
    RESIDENT_THREADS,
};
use super::tiles;
use crate::options::{Boundary, Operator};

/// The fatbin of `cuda/module.cu`.
///
/// # Errors
/// [`CudaError::NotBuilt`] if there was no nvcc when this crate was built.
pub fn fatbin() -> Result<&'static [u8], CudaError> {
    mp_kernels::embedded!(hpgmg_fatbin, "hpgmg.fatbin").ok_or(CudaError::NotBuilt)
}

/// The first GPUs whose blocks form clusters.
const CLUSTERS: (u32, u32) = (9, 0);

/// What kernels work on: all of a level, or a rank's slab or box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Whole,
    Slab,
    Box,
}

/// A kernel for levels of any size, and compiled for one size each, with that size.
pub struct BySize {
    any: Kernel,
    sized: Vec<(i32, Kernel)>,
}

impl BySize {
    /// Those that `kernel` finds.
    ///
    /// # Errors
    /// What it says.
    pub fn load(
        any: &'static str,
        sized: &[(i32, &'static str)],
        kernel: impl Fn(&'static str) -> Result<Kernel, CudaError>,
    ) -> Result<Self, CudaError> {
        let sized = sized.iter().map(|&(n, name)| Ok((n, kernel(name)?)));
        let sized = sized.collect::<Result<Vec<_>, CudaError>>()?;
        Ok(Self { any: kernel(any)?, sized })
    }

    /// That for levels of `n` cells a side.
    pub fn of(&self, n: i32) -> &Kernel {
        self.sized.iter().find(|(size, _)| *size == n).map_or(&self.any, |(_, kernel)| kernel)
    }
}

/// The kernels of one operator over whole levels, over slabs, or over boxes.
pub struct Passes {
    /// GSRB half-sweep.
    pub gsrb: BySize,
    /// The first from zero.
    pub gsrb_zero: Kernel,
    /// Jacobi sweep, and from zero.
    pub weighted: [Kernel; 2],
    /// Step of the Chebyshev recurrence.
    pub chebyshev: Kernel,
    /// Residual, restricted.
    pub residual_restrict: Kernel,
    /// Largest residual.
    pub residual_norm: Kernel,
    /// Interpolation of a correction.
    pub correct: Kernel,
    /// Interpolation of a solution.
    pub replace: Kernel,
    /// Addition of a number to all cells.
    pub shift: Kernel,
    /// Of large levels, column by column.
    pub columns: Option<Columns>,
}

/// The kernels that march through columns of tiles (`cuda/column.cuh`).
pub struct Columns {
    /// GSRB half-sweep.
    pub gsrb: BySize,
    /// Residual, restricted.
    pub residual_restrict: Kernel,
    /// Largest residual.
    pub residual_norm: Kernel,
}

/// A kernel that does a leg of a cycle at once (`cuda/leg.cuh`).
pub struct OneLeg {
    /// Cells a side of its levels.
    n: i32,
    pub kernel: Kernel,
    pub dims: Dims,
    /// What its blocks meet by.
    pub signals: BlockSignals,
}

/// A kernel that has the coarsest levels in shared memory (`cuda/held.cu`).
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Cells a side of the largest level that it may have, …
    pub most: usize,
    /// … and of the coarsest, which it must have; each level has half as many as the one before.
    pub least: usize,
    pub kernel: Kernel,
    pub dims: Dims,
}

/// All kernels for one operator.
pub struct Kernels {
    /// Over whole levels.
    pub whole: Passes,
    /// Over a rank's slab.
    pub slab: Passes,
    /// Over a rank's box.
    pub boxes: Passes,
    /// Legs of a cycle, where the GPU has what their kernels need.
    legs: Vec<OneLeg>,
    /// Those over large levels that have tiles copied, where the GPU does.
    pub tiled: Option<tiles::Kernels>,
    /// Restriction, with or without the largest value of what is restricted.
    pub restrict: Kernel,
    /// Largest value, or difference from a finer level.
    pub norm: Kernel,
    /// The coarsest levels in one launch.
    pub resident: Kernel,
    /// Those that have them in shared memory, where the GPU has what they need.
    pub held: Vec<Held>,
    /// The scalars, to memory of the host.
    pub tell: Kernel,
    /// A box of elements, to another place.
    pub copy: Kernel,
    /// Sums of the rows of a level, of those of its boxes, and the number that makes the mean zero.
    pub means: [Kernel; 3],
    /// Keeps the code loaded.
    _code: Code,
}

/// Names of the kernels of [`Passes`], in its order, and of half-sweeps by size.
struct Names {
    passes: [&'static str; 10],
    sized: &'static [(i32, &'static str)],
    columns: Option<&'static ColumnNames>,
}

/// Names of the kernels of [`Columns`].
struct ColumnNames {
    passes: [&'static str; 3],
    sized: [(i32, &'static str); 4],
}

macro_rules! names {
    ($operator:literal, $slab:literal, $correct:literal, $replace:literal, $sized:expr, $columns:expr) => {
        Names {
            passes: [
                concat!("hpgmg_", $operator, $slab, "_gsrb"),
                concat!("hpgmg_", $operator, $slab, "_gsrb_zero"),
                concat!("hpgmg_", $operator, $slab, "_weighted"),
                concat!("hpgmg_", $operator, $slab, "_weighted_zero"),
                concat!("hpgmg_", $operator, $slab, "_chebyshev"),
                concat!("hpgmg_", $operator, $slab, "_residual_restrict"),
                concat!("hpgmg_", $operator, $slab, "_residual_norm"),
                concat!("hpgmg", $slab, "_", $correct),
                concat!("hpgmg", $slab, "_", $replace),
                concat!("hpgmg", $slab, "_shift"),
            ],
            sized: $sized,
            columns: $columns,
        }
    };
}

macro_rules! columns {
    ($slab:literal) => {
        ColumnNames {
            passes: [
                concat!("hpgmg_fv4", $slab, "_column_gsrb"),
                concat!("hpgmg_fv4", $slab, "_column_residual_restrict"),
                concat!("hpgmg_fv4", $slab, "_column_residual_norm"),
            ],
            sized: [
                (64, concat!("hpgmg_fv4", $slab, "_column_gsrb_64")),
                (128, concat!("hpgmg_fv4", $slab, "_column_gsrb_128")),
                (256, concat!("hpgmg_fv4", $slab, "_column_gsrb_256")),
                (512, concat!("hpgmg_fv4", $slab, "_column_gsrb_512")),
            ],
        }
    };
}

const COLUMNS: &ColumnNames = &columns!("");
const SLAB_COLUMNS: &ColumnNames = &columns!("_slab");

/// The half-sweep of fv4 for levels of a usual size: with constant distances between rows and planes it executes a third fewer
/// instructions.
const SIZED: &[(i32, &str)] = &[(16, "hpgmg_fv4_gsrb_16")];

/// Kernels that hold the coarsest levels: name, cells a side of the largest and of the least, blocks, and bytes of shared memory of each.
type InShared = &'static [(&'static str, [i32; 4])];

/// What [`OneLeg::load`] is told of kernels.
type Legs = &'static [(i32, &'static str, [i32; 3])];

/// The kernels of legs, for fv4: cells a side, name, blocks, threads of each, and bytes of its shared memory.
const LEGS: Legs = &[
    (24, "hpgmg_fv4_leg_24", [LEG_BLOCKS_24, LEG_THREADS_24, LEG_BYTES_24]),
    (32, "hpgmg_fv4_leg_32", [LEG_BLOCKS_32, LEG_THREADS_32, LEG_BYTES_32]),
    (48, "hpgmg_fv4_leg_48", [LEG_BLOCKS_48, LEG_THREADS_48, LEG_BYTES_48]),
    (64, "hpgmg_fv4_leg_64", [LEG_BLOCKS_64, LEG_THREADS_64, LEG_BYTES_64]),
];

impl Names {
    /// Of a domain that ends, or that wraps around. 7pt has the stencil of fv2.
    fn of(operator: Operator, boundary: Boundary, over: Over) -> Self {
        use Boundary::{Dirichlet, Periodic};
        use Operator::{Fv2, Fv4, P7, P27};
        macro_rules! plain {
            ($operator:literal, $correct:literal, $replace:literal) => {
                match over {
                    Over::Whole => names!($operator, "", $correct, $replace, &[], None),
                    Over::Slab => names!($operator, "_slab", $correct, $replace, &[], None),
                    Over::Box => names!($operator, "_box", $correct, $replace, &[], None),
                }
            };
        }
        match (operator, boundary) {
            (Fv4, Dirichlet) => match over {
                Over::Whole => {
                    names!("fv4", "", "correct", "replace_quartic", SIZED, Some(COLUMNS))
                }
                Over::Slab => {
                    names!("fv4", "_slab", "correct", "replace_quartic", &[], Some(SLAB_COLUMNS))
                }
                Over::Box => names!("fv4", "_box", "correct", "replace_quartic", &[], None),
            },
            (Fv2, Dirichlet) => plain!("fv2", "correct", "replace_quadratic"),
            (P7, Dirichlet) => plain!("fv2", "correct_constant", "replace_linear"),
            (P27, Dirichlet) => plain!("p27", "correct_points", "replace_points"),
            (Fv4, Periodic) => {
                plain!("fv4_wrapped", "wrapped_correct", "wrapped_replace_quartic")
            }
            (Fv2, Periodic) => {
                plain!("fv2_wrapped", "wrapped_correct", "wrapped_replace_quadratic")
            }
            (P7, Periodic) => {
                plain!("fv2_wrapped", "wrapped_correct_constant", "wrapped_replace_linear")
            }
            (P27, Periodic) => {
                plain!("p27_wrapped", "wrapped_correct_points", "wrapped_replace_points")
            }
        }
    }

    /// The kernel of the coarsest levels, and those that have them in shared memory, which the finite-volume operators have.
    fn coarsest(operator: Operator, boundary: Boundary) -> (&'static str, InShared) {
        // Where 2ⁿ cells end in levels of `$least`.
        macro_rules! held {
            ($operator:literal, $least:literal) => {
                &[
                    (
                        concat!("hpgmg_", $operator, "_held"),
                        [HELD_DIM, $least, HELD_BLOCKS, HELD_BYTES],
                    ),
                    (
                        concat!("hpgmg_", $operator, "_held_alone"),
                        [HELD_DIM / 2, $least, 1, HELD_BYTES_ALONE],
                    ),
                    (
                        concat!("hpgmg_", $operator, "_held_3"),
                        [HELD_DIM_3, 3, HELD_BLOCKS_3, HELD_BYTES_3],
                    ),
                ]
            };
        }
        match (operator, boundary) {
            (Operator::Fv4, Boundary::Dirichlet) => ("hpgmg_fv4_resident", held!("fv4", 2)),
            (Operator::Fv2, Boundary::Dirichlet) => ("hpgmg_fv2_resident", held!("fv2", 1)),
            (Operator::P7, Boundary::Dirichlet) => ("hpgmg_p7_resident", &[]),
            (Operator::P27, Boundary::Dirichlet) => ("hpgmg_p27_resident", &[]),
            (Operator::Fv4, Boundary::Periodic) => ("hpgmg_fv4_wrapped_resident", &[]),
            (Operator::Fv2, Boundary::Periodic) => ("hpgmg_fv2_wrapped_resident", &[]),
            (Operator::P7, Boundary::Periodic) => ("hpgmg_p7_wrapped_resident", &[]),
            (Operator::P27, Boundary::Periodic) => ("hpgmg_p27_wrapped_resident", &[]),
        }
    }

    fn all(&self) -> impl Iterator<Item = &'static str> {
        let columns = self.columns.into_iter().flat_map(|names| {
            names.passes.into_iter().chain(names.sized.iter().map(|sized| sized.1))
        });
        self.passes.into_iter().chain(self.sized.iter().map(|sized| sized.1)).chain(columns)
    }

    fn load(&self, module: &Code) -> Result<Passes, CudaError> {
        let k = |index: usize| module.kernel(self.passes[index]);
        let columns = |names: &ColumnNames| -> Result<Columns, CudaError> {
            let [gsrb, residual_restrict, residual_norm] = names.passes;
            Ok(Columns {
                gsrb: BySize::load(gsrb, &names.sized, |name| module.kernel(name))?,
                residual_restrict: module.kernel(residual_restrict)?,
                residual_norm: module.kernel(residual_norm)?,
            })
        };
        Ok(Passes {
            gsrb: BySize::load(self.passes[0], self.sized, |name| module.kernel(name))?,
            gsrb_zero: k(1)?,
            weighted: [k(2)?, k(3)?],
            chebyshev: k(4)?,
            residual_restrict: k(5)?,
            residual_norm: k(6)?,
            correct: k(7)?,
            replace: k(8)?,
            shift: k(9)?,
            columns: self.columns.filter(|_| module.has_columns()).map(columns).transpose()?,
        })
    }
}

impl OneLeg {
    /// Those whose kernels fit the machine.
    fn load(
        machine: &Machine,
        code: &Code,
        legs: Legs,
        (stream, limit): (&Stream, Duration),
    ) -> Result<Vec<Self>, CudaError> {
        let mut fit = Vec::new();
        for &(n, name, launch) in legs {
            let [blocks, threads, shared] = launch.map(|it| it as u32);
            if shared > machine.together_memory {
                continue;
            }
            let kernel = code.kernel_with_shared(name, shared)?;
            if machine.runs_together(&kernel, (blocks, threads, shared))? {
                fit.push(Self {
                    n,
                    kernel,
                    dims: Dims { shared, ..Dims::linear(blocks, threads) },
                    signals: stream.block_signals(blocks as usize, limit)?,
                });
            }
        }
        Ok(fit)
    }
}

impl Kernels {
    /// The kernel for legs on whole levels of `n` cells a side with GSRB.
    pub fn leg(&self, n: usize) -> Option<&OneLeg> {
        self.legs.iter().find(|leg| leg.n as usize == n)
    }

    /// Loads the code for `operator` with `boundary`, whose launches follow one another on `stream` and whose blocks wait for each other at
    /// most `limit`.
    ///
    /// # Errors
    /// [`CudaError::NotBuilt`], or what the driver says.
    pub fn load(
        machine: &Machine,
        (operator, boundary): (Operator, Boundary),
        (stream, limit): (&Stream, Duration),
    ) -> Result<Self, CudaError> {
        const COMMON: [&str; 7] = [
            "hpgmg_restrict",
            "hpgmg_norm",
            "hpgmg_tell",
            "hpgmg_copy",
            "hpgmg_sum_rows",
            "hpgmg_sum_boxes",
            "hpgmg_mean",
        ];
        let (resident, in_shared) = Names::coarsest(operator, boundary);
        let fast = (operator, boundary) == (Operator::Fv4, Boundary::Dirichlet);
        let legs: Legs = if fast { LEGS } else { &[] };
        let [whole, slab, boxes] =
            [Over::Whole, Over::Slab, Over::Box].map(|over| Names::of(operator, boundary, over));
        let all: Vec<&'static str> = whole
            .all()
            .chain(slab.all())
            .chain(boxes.all())
            .chain(COMMON)
            .chain([resident])
            .chain(in_shared.iter().map(|held| held.0))
            .chain(legs.iter().map(|leg| leg.1))
            .chain(fast.then(tiles::names).into_iter().flatten())
            .collect();
        let code = machine.load(&all)?;
        let [restrict, norm, tell, copy, of_rows, of_boxes, mean] = COMMON;
        let held = in_shared.iter().filter(|&&(_, [.., blocks, bytes])| {
            bytes as u32 <= machine.shared_memory && (blocks == 1 || machine.compute >= CLUSTERS)
        });
        let held = held.map(|&(name, [most, least, blocks, bytes])| {
            let kernel = code.kernel_with_shared(name, bytes as u32)?;
            let dims = Dims::linear(blocks as u32, RESIDENT_THREADS as u32);
            let dims = Dims { shared: bytes as u32, ..dims };
            Ok(Held { most: most as usize, least: least as usize, kernel, dims })
        });
        Ok(Self {
            whole: whole.load(&code)?,
            slab: slab.load(&code)?,
            boxes: boxes.load(&code)?,
            legs: OneLeg::load(machine, &code, legs, (stream, limit))?,
            tiled: if fast { tiles::Kernels::load(machine, &code)? } else { None },
            restrict: code.kernel(restrict)?,
            norm: code.kernel(norm)?,
            resident: code.kernel(resident)?,
            held: held.collect::<Result<_, CudaError>>()?,
            tell: code.kernel(tell)?,
            copy: code.kernel(copy)?,
            means: [code.kernel(of_rows)?, code.kernel(of_boxes)?, code.kernel(mean)?],
            _code: code,
        })
    }
}

#[cfg(all(test, hpgmg_fatbin))]
mod tests {
    /// What ptxas said of every kernel, for every architecture.
    const SAID: &str = include_str!(concat!(env!("OUT_DIR"), "/ptxas.txt"));

    /// Stack of a thread that a context begins with. For more the driver waits for the GPU at a kernel's first launch.
    const STACK: u32 = 1024;

    /// Every number in front of `what`, with the kernel that was compiled and the function of which it was said.
    fn said(what: &str) -> Vec<(&'static str, &'static str, u32)> {
        let (mut kernel, mut function, mut found) = ("", "", Vec::new());
        for line in SAID.lines() {
            if let Some((_, name)) = line.split_once("Compiling entry function ") {
                (kernel, function) = (name, name);
            }
            if let Some((_, name)) = line.split_once("Function properties for ") {
                function = name;
            }
            let number = line.split_once(what).and_then(|(before, _)| before.rsplit(' ').next());
            found.extend(number.map(|number| (kernel, function, number.parse().unwrap())));
        }
        found
    }

    #[test]
    fn no_kernel_needs_more_stack_than_a_context_begins_with() {
        let frames = said(" bytes stack frame");
        assert!(!frames.is_empty(), "ptxas said nothing of any kernel");
        for (kernel, _, bytes) in frames.into_iter().chain(said(" bytes cumulative stack size")) {
            assert!(bytes <= STACK, "{bytes} bytes of stack in or around {kernel}");
        }
    }

    /// What a kernel spills it reads again in its loops, however rarely what it was spilt for is called: so a test looks for it.
    #[test]
    fn sweeps_keep_what_they_work_with_in_registers() {
        let mut sweeps = 0;
        for (kernel, function, bytes) in said(" bytes spill stores") {
            let is_sweep = function.contains("sweep") || function.contains("column_gsrb");
            if is_sweep && kernel.contains(function) && kernel.contains("sm_90'") {
                assert!(bytes <= 8, "{kernel} spills {bytes} bytes");
                sweeps += 1;
            }
        }
        assert!(sweeps > 10 || !SAID.contains("sm_90'"), "{sweeps} sweeps");
    }
}
