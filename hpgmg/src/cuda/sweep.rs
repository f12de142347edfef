//! Whole sweeps of GSRB in one launch (`cuda/sweep.cuh`): which levels have them, how a launch is cut into blocks, and what its blocks copy
//! tiles from.

use gdsync::{Dims, Kernel, TensorMap};

use super::device::{
    BASE, GHOSTS, SWEEP_BETA_PAIRS, SWEEP_BETA_ROWS, SWEEP_BYTES, SWEEP_ROWS, SWEEP_THREADS,
    SWEEP_X_PAIRS, SWEEP_X_ROWS,
};
use super::error::CudaError;
use super::kernels::BySize;
use super::layout::Grid;
use super::machine::{Code, Machine};
use super::upload::OnGpu;
use crate::backend::Vector;

/// The first GPUs that copy tiles by themselves.
const TILES: (u32, u32) = (9, 0);

/// Cells along i of a block, and the fewest of a level that has sweeps.
const CELLS: usize = 64;
const LEAST: usize = 128;

/// Planes that a block loads and works on besides its own, with the time that the first copies take.
const BESIDES: usize = 4;

/// The kernels, for fv4: for any level of a multiple of 64 cells a side, and compiled for one size each, with that size.
pub(super) const SWEEPS: (&str, [(i32, &str); 3]) = (
    "hpgmg_fv4_sweep",
    [(128, "hpgmg_fv4_sweep_128"), (256, "hpgmg_fv4_sweep_256"), (512, "hpgmg_fv4_sweep_512")],
);

/// What a launch over a level is given, in `cuda/sweep.cuh` a `SweepMaps`: x and the three coefficients.
pub(super) type Maps = [TensorMap; 4];

/// The kernels of `code`, if the machine can run them.
///
/// # Errors
/// What the driver says.
pub(super) fn load(machine: &Machine, code: &Code) -> Result<Option<BySize>, CudaError> {
    let bytes = SWEEP_BYTES as u32;
    let gpu = machine.device.as_cuda().is_some();
    if !gpu || machine.compute < TILES || machine.shared_memory < bytes {
        return Ok(None);
    }
    let kernel = |name| code.kernel_with_shared(name, bytes);
    BySize::load(SWEEPS.0, &SWEEPS.1, kernel).map(Some)
}

/// Sweeps over one level.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sweep {
    pub kernel: Kernel,
    pub dims: Dims,
    /// Planes of a block.
    pub planes: i32,
    /// With x in U, and in the scratch vector.
    maps: [Maps; 2],
}

impl Sweep {
    /// By one of `kernels`; none if the level is too small, or of no multiple of 64 cells a side.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(
        kernels: &BySize,
        level: &OnGpu,
        multiprocessors: u32,
    ) -> Result<Option<Self>, CudaError> {
        let Some((grid, planes)) = blocks(level.grid.n, multiprocessors as usize) else {
            return Ok(None);
        };
        let beta = |axis| map(level, Vector::Beta(axis), SWEEP_BETA_PAIRS, SWEEP_BETA_ROWS, false);
        let beta = [beta(0)?, beta(1)?, beta(2)?];
        let with = |x: Vector| -> Result<Maps, CudaError> {
            let x = map(level, x, SWEEP_X_PAIRS, SWEEP_X_ROWS, true)?;
            Ok([x, beta[0], beta[1], beta[2]])
        };
        let threads = (SWEEP_THREADS as u32, 1, 1);
        let dims = Dims { grid, block: threads, shared: SWEEP_BYTES as u32 };
        let maps = [with(Vector::U)?, with(Vector::Temp)?];
        let kernel = *kernels.of(level.grid.n as i32);
        Ok(Some(Self { kernel, dims, planes: planes as i32, maps }))
    }

    /// What is copied from if x is in U, or else in the scratch vector.
    pub fn maps(&self, from_u: bool) -> &Maps {
        &self.maps[usize::from(!from_u)]
    }
}

/// The tiles of a vector: `pairs` elements of `rows` rows, of both colours or of each by itself. They begin two pairs in front of a row.
fn map(
    level: &OnGpu,
    vector: Vector,
    pairs: i32,
    rows: i32,
    by_colour: bool,
) -> Result<TensorMap, CudaError> {
    let Grid { n, half, .. } = level.grid;
    let (half, lines) = (half as u64, (n + 2 * GHOSTS as usize) as u64);
    let memory = level.vector(vector.index())?;
    let memory = memory.slice(BASE as usize - 2..memory.len())?;
    let (pairs, rows) = (pairs as u32, rows as u32);
    let (row, plane) = (2 * half, 2 * half * lines);
    Ok(match by_colour {
        true => TensorMap::new(
            &memory,
            &[half, 2, lines, lines],
            &[half, row, plane],
            &[pairs, 1, rows, 1],
        )?,
        false => TensorMap::new(
            &memory,
            &[half, 2 * lines, lines],
            &[half, plane],
            &[pairs, 2 * rows, 1],
        )?,
    })
}

/// Whether whole levels of `n` cells a side have them, where the machine does.
pub(super) fn has_sweeps(n: usize) -> bool {
    n >= LEAST && n.is_multiple_of(CELLS)
}

/// The blocks of a launch over a level of `n` cells a side, one a multiprocessor at once, and the planes of each: as many along k as
/// make the last block end first.
fn blocks(n: usize, multiprocessors: usize) -> Option<((u32, u32, u32), usize)> {
    if !has_sweeps(n) {
        return None;
    }
    let (x, y) = (n / CELLS, n / SWEEP_ROWS as usize);
    let planes = |layers: usize| n.div_ceil(layers).next_multiple_of(2);
    let steps = |layers: usize| {
        let rounds = (x * y * n.div_ceil(planes(layers))).div_ceil(multiprocessors.max(1));
        rounds * (planes(layers) + BESIDES)
    };
    let layers = (1..=n / 16).min_by_key(|&layers| steps(layers))?;
    let each = planes(layers);
    Some(((x as u32, y as u32, n.div_ceil(each) as u32), each))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_as_many_as_end_first() {
        let of = |n| blocks(n, 132);
        assert_eq!(of(128), Some(((2, 16, 4), 32)));
        assert_eq!(of(256), Some(((4, 32, 1), 256)));
        assert_eq!([of(64), of(96), of(160)], [None; 3]);
    }

    #[test]
    fn every_plane_is_of_one_block_and_none_has_fewer_than_four() {
        for n in (128..=1024).step_by(64) {
            for multiprocessors in [1, 100, 132, 148] {
                let ((_, _, layers), each) = blocks(n, multiprocessors).unwrap();
                let last = n - (layers as usize - 1) * each;
                assert!(
                    each.is_multiple_of(2) && (4..=each).contains(&last),
                    "{n}: {layers} of {each}"
                );
            }
        }
    }
}
