//! Launches over large levels whose blocks have tiles of planes copied (`cuda/tiles.cuh`): whole sweeps of GSRB (`cuda/sweep.cuh`) and
//! residuals (`cuda/residual.cuh`). Which levels have them, how a launch is cut into blocks, and what its blocks copy tiles from.

use gdsync::{Dims, Kernel, TensorMap};

use super::device::{
    BASE, GHOSTS, RESIDUAL_BYTES, RESIDUAL_PAIRS, RESIDUAL_ROWS, RESIDUAL_WARPS, SWEEP_BETA_PAIRS,
    SWEEP_BETA_ROWS, SWEEP_BYTES, SWEEP_ROWS, SWEEP_THREADS, SWEEP_X_PAIRS, SWEEP_X_ROWS,
};
use super::error::CudaError;
use super::kernels::BySize;
use super::layout::Grid;
use super::machine::{Code, Machine};
use super::upload::OnGpu;
use crate::backend::Vector;

/// Cells along i of a block, and the fewest of a level that has sweeps.
const CELLS: usize = 64;
const LEAST: usize = 128;

/// The fewest planes of a rank that has a part of one.
const LEAST_PLANES: usize = 8;

/// Planes that a block loads and works on besides its own, with the time that the first copies take.
const BESIDES: usize = 4;

/// The names of kernels, for fv4: of sweeps over any level of a multiple of 64 cells a side, and compiled for one size each, with that size;
/// and for residuals: restricted, and the largest.
struct Names {
    sweep: &'static str,
    sized: [(i32, &'static str); 3],
    residuals: [&'static str; 2],
}

macro_rules! names {
    ($part:literal) => {
        Names {
            sweep: concat!("hpgmg_fv4", $part, "_sweep"),
            sized: [
                (128, concat!("hpgmg_fv4", $part, "_sweep_128")),
                (256, concat!("hpgmg_fv4", $part, "_sweep_256")),
                (512, concat!("hpgmg_fv4", $part, "_sweep_512")),
            ],
            residuals: [
                concat!("hpgmg_fv4", $part, "_tiled_residual_restrict"),
                concat!("hpgmg_fv4", $part, "_tiled_residual_norm"),
            ],
        }
    };
}

/// Over whole levels, and over a rank's planes.
const NAMES: [Names; 2] = [names!(""), names!("_slab")];

/// All of them.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let of = |names: &'static Names| {
        names.sized.iter().map(|sized| sized.1).chain([names.sweep]).chain(names.residuals)
    };
    NAMES.iter().flat_map(of)
}

/// What a launch over a level is given, in `cuda/tiles.cuh` `TileMaps`: x and the three coefficients.
pub(super) type Maps = [TensorMap; 4];

/// The kernels for levels of any size that have them.
struct Over {
    sweep: BySize,
    residual_restrict: Kernel,
    residual_norm: Kernel,
}

/// Those over whole levels, and over a rank's planes.
pub(super) struct Kernels([Over; 2]);

impl Kernels {
    /// Those of `code`, if the machine can run them.
    ///
    /// # Errors
    /// What the driver says.
    pub fn load(machine: &Machine, code: &Code) -> Result<Option<Self>, CudaError> {
        let (sweep, residual) = (SWEEP_BYTES as u32, RESIDUAL_BYTES as u32);
        if machine.tile_memory < sweep.max(residual) {
            return Ok(None);
        }
        let over = |names: &Names| -> Result<Over, CudaError> {
            let load = |name| code.kernel_with_shared(name, sweep);
            Ok(Over {
                sweep: BySize::load(names.sweep, &names.sized, load)?,
                residual_restrict: code.kernel_with_shared(names.residuals[0], residual)?,
                residual_norm: code.kernel_with_shared(names.residuals[1], residual)?,
            })
        };
        Ok(Some(Self([over(&NAMES[0])?, over(&NAMES[1])?])))
    }
}

/// How a launch goes through a level.
#[derive(Clone, Copy, Debug)]
pub(super) struct March {
    pub dims: Dims,
    /// Planes of a block.
    pub planes: i32,
    /// As in [`super::device::Pass`].
    pub before: i32,
    /// With x in U, and in the scratch vector.
    maps: [Maps; 2],
}

impl March {
    /// What is copied from if x is in U, or else in the scratch vector.
    pub fn maps(&self, from_u: bool) -> &Maps {
        &self.maps[usize::from(!from_u)]
    }
}

/// The kernels over one level.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiled {
    pub sweep: Kernel,
    pub residual_restrict: Kernel,
    pub residual_norm: Kernel,
    pub of_sweep: March,
    /// Of either kernel of residuals.
    pub of_residual: March,
}

impl Tiled {
    /// By `kernels`, over what is here of a level of a multiple of 64 cells a side: all of it, or whole planes if it is cut.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(
        kernels: &Kernels,
        level: &OnGpu,
        is_cut: bool,
        multiprocessors: u32,
    ) -> Result<Self, CudaError> {
        let Grid { n, size: [_, _, count], .. } = level.grid;
        let march = |rows: i32, block, shared: i32, tiles: [Tile; 4]| -> Result<_, CudaError> {
            let (grid, planes) = blocks(n, count, rows as usize, multiprocessors as usize);
            let map = |vector, tile| map(level, vector, tile);
            let [x, beta @ ..] = tiles;
            let beta: [_; 3] =
                [0, 1, 2].map(|axis: u8| map(Vector::Beta(axis), beta[usize::from(axis)]));
            let [i, j, k] = beta;
            let (i, j, k) = (i?, j?, k?);
            let maps = |vector| -> Result<Maps, CudaError> { Ok([map(vector, x)?, i, j, k]) };
            Ok(March {
                dims: Dims { grid, block, shared: shared as u32 },
                planes: planes as i32,
                before: level.grid.before() as i32,
                maps: [maps(Vector::U)?, maps(Vector::Temp)?],
            })
        };
        let across = Tile::of_both(SWEEP_BETA_PAIRS, SWEEP_BETA_ROWS);
        let x = Tile { by_colour: true, ..Tile::of_both(SWEEP_X_PAIRS, SWEEP_X_ROWS) };
        let threads = (SWEEP_THREADS as u32, 1, 1);
        let of_sweep = march(SWEEP_ROWS, threads, SWEEP_BYTES, [x, across, across, across])?;
        // Rows besides those of the block.
        let tile = |more: i32| Tile::of_both(RESIDUAL_PAIRS, RESIDUAL_ROWS + more);
        let tiles = [4, 2, 1, 2].map(tile);
        let warps = (32, RESIDUAL_WARPS as u32, 1);
        let of_residual = march(RESIDUAL_ROWS, warps, RESIDUAL_BYTES, tiles)?;
        let Over { sweep, residual_restrict, residual_norm } = &kernels.0[usize::from(is_cut)];
        Ok(Self {
            sweep: *sweep.of(n as i32),
            residual_restrict: *residual_restrict,
            residual_norm: *residual_norm,
            of_sweep,
            of_residual,
        })
    }
}

/// A tile: elements of one colour of a row, and rows of both colours, or of one of them.
#[derive(Clone, Copy, Debug)]
struct Tile {
    pairs: u32,
    rows: u32,
    by_colour: bool,
}

impl Tile {
    fn of_both(pairs: i32, rows: i32) -> Self {
        Self { pairs: pairs as u32, rows: rows as u32, by_colour: false }
    }
}

/// The tiles of a vector. They begin two pairs in front of a row.
fn map(
    level: &OnGpu,
    vector: Vector,
    Tile { pairs, rows, by_colour }: Tile,
) -> Result<TensorMap, CudaError> {
    let Grid { n, half, size, around, .. } = level.grid;
    let (half, lines) = (half as u64, (n + 2 * GHOSTS as usize) as u64);
    let planes = (size[2] + 2 * around) as u64;
    let memory = level.vector(vector.index())?;
    let memory = memory.slice(BASE as usize - 2..memory.len())?;
    let (row, plane) = (2 * half, 2 * half * lines);
    let of = |dims: &[u64], strides: &[u64], tile: &[u32]| -> Result<TensorMap, CudaError> {
        #[cfg(test)]
        if memory.device().as_cuda().is_none() {
            return Ok(super::host::tensor_map(&memory, dims, strides, tile));
        }
        Ok(TensorMap::new(&memory, dims, strides, tile)?)
    };
    match by_colour {
        true => of(&[half, 2, lines, planes], &[half, row, plane], &[pairs, 1, rows, 1]),
        false => of(&[half, 2 * lines, planes], &[half, plane], &[pairs, 2 * rows, 1]),
    }
}

/// Whether whole levels of `n` cells a side have such launches, where the machine does.
pub(super) fn has_tiles(n: usize) -> bool {
    n >= least() && n.is_multiple_of(CELLS)
}

/// Whether `planes` planes or more of such levels have them, an even number.
pub(super) fn has_slabs(n: usize, planes: usize) -> bool {
    has_tiles(n) && planes >= LEAST_PLANES
}

#[cfg(not(test))]
fn least() -> usize {
    LEAST
}

#[cfg(test)]
thread_local! {
    /// What is [`LEAST`] on this thread: a level of fewer cells is tried sooner.
    pub(super) static LEAST_HERE: std::cell::Cell<usize> = const { std::cell::Cell::new(LEAST) };
}

#[cfg(test)]
fn least() -> usize {
    LEAST_HERE.get()
}

/// The blocks, of `rows` rows, of a launch over `count` planes of a level of `n` cells a side, one a multiprocessor at once, and the planes
/// of each: as many along k as make the last block end first, and none of fewer than four.
fn blocks(n: usize, count: usize, rows: usize, multiprocessors: usize) -> ((u32, u32, u32), usize) {
    let (x, y) = (n / CELLS, n / rows);
    let planes = |layers: usize| count.div_ceil(layers).next_multiple_of(2);
    let steps = |layers: usize| {
        let rounds = (x * y * count.div_ceil(planes(layers))).div_ceil(multiprocessors.max(1));
        rounds * (planes(layers) + BESIDES)
    };
    let enough = |layers: &usize| (count - 1) % planes(*layers) + 1 >= 4;
    let layers = (1..=count.div_ceil(8)).filter(enough).min_by_key(|&layers| steps(layers));
    let each = planes(layers.unwrap_or(1));
    ((x as u32, y as u32, count.div_ceil(each) as u32), each)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_as_many_as_end_first() {
        let of = |n, rows| blocks(n, n, rows as usize, 132);
        assert_eq!(of(128, SWEEP_ROWS), ((2, 16, 4), 32));
        assert_eq!(of(256, SWEEP_ROWS), ((4, 32, 1), 256));
        assert_eq!(of(128, RESIDUAL_ROWS), ((2, 8, 8), 16));
        assert_eq!(of(256, RESIDUAL_ROWS), ((4, 16, 2), 128));
        assert_eq!([64, 96, 160].map(has_tiles), [false; 3]);
        // Half of it, and a quarter.
        assert_eq!(blocks(256, 128, SWEEP_ROWS as usize, 132), ((4, 32, 1), 128));
        assert_eq!(blocks(128, 64, SWEEP_ROWS as usize, 132), ((2, 16, 4), 16));
        assert_eq!(blocks(128, 32, SWEEP_ROWS as usize, 132), ((2, 16, 4), 8));
    }

    #[test]
    fn every_plane_is_of_one_block_and_none_has_fewer_than_four() {
        let all = (128..=1024usize).step_by(64).flat_map(|n| {
            let parts = [n, n / 2, n / 4, n / 16, n / 3].map(|planes| planes / 2 * 2);
            parts
                .into_iter()
                .filter(move |&planes| has_slabs(n, planes))
                .map(move |planes| (n, planes))
        });
        for (n, planes) in all {
            for (multiprocessors, rows) in
                [1, 100, 132, 148].into_iter().flat_map(|m| [(m, SWEEP_ROWS), (m, RESIDUAL_ROWS)])
            {
                let ((_, y, layers), each) = blocks(n, planes, rows as usize, multiprocessors);
                assert_eq!(y as usize * rows as usize, n);
                let last = planes - (layers as usize - 1) * each;
                assert!(
                    each.is_multiple_of(2) && (4..=each).contains(&last),
                    "{planes} of {n}: {layers} of {each}"
                );
            }
        }
    }
}
