//! Bytes that the kernels move through GPU memory, counted: every vector that a pass touches once, neighbours from the
//! caches. Per cell and pass with three face coefficients (24 bytes; 27pt has none):
//!
//! | pass | bytes |
//! |---|---|
//! | GSRB half-sweep: x, coefficients, right-hand side and diagonal of one colour, result | 48 |
//! | both half-sweeps at once: x, coefficients, right-hand side, diagonal, result | 56 |
//! | first half-sweep from zero | 16 |
//! | Jacobi sweep; step of Chebyshev's recurrence, which reads the iterate before too | 56; 64 |
//! | residual and restriction | 41 |
//! | restriction; correction; interpolated solution; norm of the residual | 9; 17; 9; 40 |

use std::time::{Duration, Instant};

use gdsync::Deadline;

use super::error::CudaError;
use super::launches::{OnLevel, Sent, launches};
use super::solver::Gpu;
use crate::options::{Config, Operator, Smoother};
use crate::smoothers;

/// Bytes of a cell that one launch moves, by what it does.
struct Passes {
    /// A half-sweep of GSRB, or a sweep of another smoother, and the first from zero.
    smooth: f64,
    from_zero: f64,
    whole_sweep: f64,
    residual: f64,
    residual_restrict: f64,
    correction: f64,
    /// An interpolated solution, or a restriction.
    transfer: f64,
}

impl Passes {
    fn of(config: &Config) -> Self {
        let alpha = if config.equation.a() == 0.0 { 0.0 } else { 8.0 };
        let faces = if config.operator == Operator::P27 { 0.0 } else { 24.0 };
        let coefficients = faces + alpha;
        let (smooth, from_zero) = match config.smoother {
            Smoother::Gsrb => (24.0 + coefficients - 0.5 * alpha, 16.0),
            Smoother::Chebyshev => (40.0 + coefficients, 48.0 + coefficients),
            Smoother::Jacobi | Smoother::L1Jacobi => (32.0 + coefficients, 24.0),
        };
        Self {
            smooth,
            from_zero,
            whole_sweep: 32.0 + coefficients,
            residual: 16.0 + coefficients,
            residual_restrict: 17.0 + coefficients,
            correction: 17.0,
            transfer: 9.0,
        }
    }

    /// Of a launch of the kernel `name`; none of one that does several things, or is not counted.
    fn of_kernel(&self, name: &str) -> Option<f64> {
        let does = |what: &str| name.contains(what);
        Some(match name {
            _ if does("_leg") || does("_resident") || does("_held") => return None,
            _ if does("_residual_restrict") => self.residual_restrict,
            _ if does("_residual_norm") => self.residual,
            _ if does("_sweep") => self.whole_sweep,
            _ if does("_zero") => self.from_zero,
            _ if does("_gsrb") || does("_weighted") || does("_chebyshev") => self.smooth,
            _ if does("_correct") => self.correction,
            _ if does("_replace") || does("_restrict") => self.transfer,
            _ => return None,
        })
    }
}

impl OnLevel {
    /// Bytes of a cell of the level that its launches move, with both colours of a sweep at once or not.
    pub(super) fn bytes_a_cell(&self, config: &Config, sweeps: bool) -> f64 {
        let bytes = Passes::of(config);
        let whole = if sweeps { self.whole_sweeps() } else { 0 };
        let other = self.sweeps - self.from_zero - 2 * whole;
        other as f64 * bytes.smooth
            + whole as f64 * bytes.whole_sweep
            + self.from_zero as f64 * bytes.from_zero
            + self.residuals as f64 * bytes.residual_restrict
            + self.corrections as f64 * bytes.correction
            + (self.solutions + self.restrictions) as f64 * bytes.transfer
            + self.norms as f64 * bytes.residual
    }
}

impl Gpu {
    /// Bytes that the GPU moves in one F-cycle from level 0; for iterated cycles one V-cycle's.
    pub fn bytes_per_solve(&self) -> f64 {
        let count = self.first_on_cpu().min(self.levels.len() - 1);
        let of_level = |(l, level): (usize, &OnLevel)| {
            (level.n as f64).powi(3) * level.bytes_a_cell(&self.config, self.sweep(l).is_some())
        };
        self.launches(count).iter().enumerate().map(of_level).sum()
    }

    /// Bytes that a launch of the kernel `name` over this rank's part of level `l` moves; none of one that does several things.
    pub(super) fn bytes_of_launch(&self, l: usize, name: &str) -> Option<u64> {
        let cells: usize = self.levels[l].grid.size.iter().product();
        Passes::of(&self.config).of_kernel(name).map(|bytes| (cells as f64 * bytes) as u64)
    }

    /// The launches of such a solve on the first `count` levels, if each has its own.
    pub(super) fn launches(&self, count: usize) -> Vec<OnLevel> {
        let dims: Vec<usize> = self.levels[..count].iter().map(|level| level.grid.n).collect();
        let sweeps = self.levels.first().map_or(0, |level| smoothers::passes(&level.outline));
        launches(self.config.cycle, &dims, sweeps)
    }

    /// What a rank sends in such a solve.
    pub(super) fn sent(&self) -> Sent {
        Sent::of(&self.launches(self.partition.whole()), self.partition.division())
    }

    /// Bytes per second, read and written, of a copy within the GPU's memory; the best of several.
    ///
    /// # Errors
    /// What the driver says.
    pub fn copy_bandwidth(&self) -> Result<f64, CudaError> {
        const LEN: usize = 1 << 26;
        let place = &self.machine.device;
        let (to, from) = (place.alloc::<f64>(LEN)?, place.alloc::<f64>(LEN)?);
        let mut best = f64::INFINITY;
        for _ in 0..6 {
            let start = Instant::now();
            for _ in 0..8 {
                self.stream.copy(&to, &from)?;
            }
            self.stream.synchronize(Deadline::after(Duration::from_secs(60)))?;
            best = best.min(start.elapsed().as_secs_f64());
        }
        Ok((8 * 2 * LEN * size_of::<f64>()) as f64 / best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_moves_the_bytes_of_what_it_does() {
        let bytes = Passes::of(&Config::default());
        let of = |name: &str| bytes.of_kernel(name);
        assert_eq!(of("hpgmg_fv4_column_gsrb_64"), Some(48.0));
        assert_eq!(of("hpgmg_fv4_gsrb_zero"), Some(16.0));
        assert_eq!(of("hpgmg_fv4_sweep_256"), Some(56.0));
        assert_eq!(of("hpgmg_fv4_tiled_residual_restrict"), Some(41.0));
        assert_eq!(of("hpgmg_fv4_slab_column_residual_norm"), Some(40.0));
        assert_eq!(of("hpgmg_correct"), Some(17.0));
        assert_eq!([of("hpgmg_replace_quartic"), of("hpgmg_restrict")], [Some(9.0); 2]);
        assert_eq!([of("hpgmg_fv4_leg_32"), of("hpgmg_fv4_held"), of("agree")], [None; 3]);
    }
}
