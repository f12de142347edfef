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
use super::sweep::Sweep;
use crate::options::{Config, Operator, Smoother};
use crate::smoothers;

impl OnLevel {
    /// Bytes of a cell of the level that its launches move, with both colours of a sweep at once or not.
    pub(super) fn bytes_a_cell(&self, config: &Config, sweeps: bool) -> f64 {
        let alpha = if config.equation.a() == 0.0 { 0.0 } else { 8.0 };
        let faces = if config.operator == Operator::P27 { 0.0 } else { 24.0 };
        let coefficients = faces + alpha;
        let (pass, first) = match config.smoother {
            Smoother::Gsrb => (24.0 + coefficients - 0.5 * alpha, 16.0),
            Smoother::Chebyshev => (40.0 + coefficients, 48.0 + coefficients),
            Smoother::Jacobi | Smoother::L1Jacobi => (32.0 + coefficients, 24.0),
        };
        let residual = 16.0 + coefficients;
        let whole = if sweeps { self.whole_sweeps() } else { 0 };
        let other = self.sweeps - self.from_zero - 2 * whole;
        other as f64 * pass
            + whole as f64 * (32.0 + coefficients)
            + self.from_zero as f64 * first
            + self.residuals as f64 * (residual + 1.0)
            + self.corrections as f64 * 17.0
            + (self.solutions + self.restrictions) as f64 * 9.0
            + self.norms as f64 * residual
    }
}

impl Gpu {
    /// Bytes that the GPU moves in one F-cycle from level 0; for iterated cycles one V-cycle's.
    pub fn bytes_per_solve(&self) -> f64 {
        let of_level = |(level, sweep): (&OnLevel, &Option<Sweep>)| {
            (level.n as f64).powi(3) * level.bytes_a_cell(&self.config, sweep.is_some())
        };
        let count = self.first_on_cpu().min(self.levels.len() - 1);
        self.launches(count).iter().zip(&self.sweeps).map(of_level).sum()
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
