//! How fast this machine's memory is, and how many bytes a solve moves.
//!
//! `hpgmg-fv --bandwidth` prints both. The count assumes that every vector a pass touches goes through
//! memory once and that a written line is read first: caches that keep a whole level do better, caches
//! too small for a few planes worse.
//!
//! For scale: 256³ cells on two cores of a Xeon (Sapphire Rapids, 3 GHz, 43.6 GB/s by [`triad`]) with
//! two ranks are solved at 2.1e7 DOF/s by fv4 (1214 bytes per cell, 58 % of the bandwidth) and at
//! 3.2e7 by fv2; with one rank of one thread at 1.1e7 and 1.6e7.

use std::time::Instant;

use crate::backend::Operators;
use crate::cpu::Cpu;
use crate::options::{Cycle, Operator, Smoother};
use crate::rows::SharedVector;
use crate::team::Team;

/// Bytes per second of `a = b + s c` on `threads` threads, reads of written lines counted; the best of
/// several passes over vectors far larger than caches. `None` if the threads cannot be started.
pub fn triad(threads: usize) -> Option<f64> {
    const LEN: usize = 1 << 24;
    const PART: usize = 1 << 14;
    let team = Team::new(threads, 0).ok()?;
    let (mut a, b, c) = (vec![0.0; LEN], vec![1.0; LEN], vec![2.0; LEN]);
    let mut best = f64::INFINITY;
    for _ in 0..6 {
        let start = Instant::now();
        let out = SharedVector::new(&mut a);
        team.run(LEN / PART, LEN, &|part, _| {
            let at = part * PART;
            // SAFETY: every part is one task's.
            let out = unsafe { out.row(at, PART) };
            for ((a, b), c) in out.iter_mut().zip(&b[at..][..PART]).zip(&c[at..][..PART]) {
                *a = b + 3.0 * c;
            }
        });
        best = best.min(start.elapsed().as_secs_f64());
    }
    std::hint::black_box(&a);
    Some((4 * LEN * size_of::<f64>()) as f64 / best)
}

impl Cpu {
    /// Bytes that the cells of all ranks move through memory in one F-cycle from level 0, as counted
    /// per pass; for iterated cycles this is a lower bound.
    pub fn bytes_per_solve(&self) -> f64 {
        let config = self.config();
        let beta = if config.operator == Operator::P27 { 0.0 } else { 3.0 };
        let extra =
            if self.level(0).field(crate::backend::Vector::Alpha).is_empty() { 0.0 } else { 1.0 };
        let passes = if config.operator.is_point_centred()
            && matches!(config.smoother, Smoother::Gsrb | Smoother::Chebyshev)
        {
            4.0
        } else {
            6.0
        };
        // x, rhs, weight and coefficients read; out written and, but for Chebyshev's, read for that.
        let apart = passes * (3.0 + beta + extra + 2.0);
        // Two half-sweeps in one pass in place: x read and written.
        let fused = passes / 2.0 * (3.0 + beta + extra + 1.0);
        let residual = 2.0 + beta + extra + 2.0;
        // Fine values read once, coarse ones written; an eighth of the fine ones interpolated from.
        let restrict = 1.0 + 2.0 / 8.0;
        let correct = 2.0 + 1.0 / 8.0;
        let replace = 2.0 + 1.0 / 8.0;
        let bottom = self.levels() - 1;
        let mut elements = 0.0;
        for l in 0..bottom {
            let visits = if config.cycle == Cycle::V { 1.0 } else { (l + 1) as f64 };
            let cells = (self.level(l).shape.dim as f64).powi(3);
            let ends = if l == 0 { residual + 2.0 } else { 0.0 };
            let smooth = if self.fuses_half_sweeps(l) { fused } else { apart };
            let visit = 2.0 * smooth + residual + restrict + correct;
            elements += cells * (visits * visit + restrict + replace + ends);
        }
        8.0 * elements
    }
}
