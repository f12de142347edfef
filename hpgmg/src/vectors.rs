//! Operations on the interior cells of vectors: maps, norms and sums.
//!
//! Sums are formed per box, row by row, and added in box order over all ranks, so that they depend
//! neither on the number of ranks nor on that of threads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::backend::Vector;
use crate::comm::CommError;
use crate::isa::Isa;
use crate::level::Level;
use crate::rows::SharedVector;
use crate::team::Team;

/// Calls `f` for one plane after the other of every box: box, plane.
fn planes(team: &Team, level: &Level, f: &(dyn Fn(usize, usize) + Sync)) {
    let n = level.geometry.n;
    team.run(level.boxes.len() * n, level.cells(), &|task, _| f(task / n, task % n));
}

/// `f(out, x)` for every interior cell. The two vectors are different.
pub fn map(
    team: &Team,
    level: &mut Level,
    out: Vector,
    x: Vector,
    f: impl Fn(&mut f64, f64) + Sync,
) {
    let mut target = level.take(out);
    let (g, x) = (level.geometry, level.field(x));
    let shared = SharedVector::new(&mut target);
    planes(team, level, &|index, k| {
        for j in 0..g.n {
            let at = index * g.volume + g.row(j, k);
            // SAFETY: every plane is one task's.
            let out = unsafe { shared.row(at, g.n) };
            for (o, x) in out.iter_mut().zip(&x[at..at + g.n]) {
                f(o, *x);
            }
        }
    });
    level.put(out, target);
}

/// `f(out)` for every interior cell.
pub fn for_each(team: &Team, level: &mut Level, out: Vector, f: impl Fn(&mut f64) + Sync) {
    let mut target = level.take(out);
    let g = level.geometry;
    let shared = SharedVector::new(&mut target);
    planes(team, level, &|index, k| {
        for j in 0..g.n {
            // SAFETY: every plane is one task's.
            unsafe { shared.row(index * g.volume + g.row(j, k), g.n) }.iter_mut().for_each(&f);
        }
    });
    level.put(out, target);
}

/// Largest magnitude among this rank's cells; NaN if there is one.
pub fn max_abs(team: &Team, isa: Isa, level: &Level, x: Vector) -> f64 {
    let (g, x) = (level.geometry, level.field(x));
    // The bits of non-negative numbers are ordered as the numbers are, and those of NaN above all.
    let max = AtomicU64::new(0);
    planes(team, level, &|index, k| {
        let bits = isa.call(
            #[inline(always)]
            || {
                let mut bits = 0;
                for j in 0..g.n {
                    let at = index * g.volume + g.row(j, k);
                    for v in &x[at..at + g.n] {
                        bits = bits.max(v.abs().to_bits());
                    }
                }
                bits
            },
        );
        max.fetch_max(bits, Relaxed);
    });
    f64::from_bits(max.into_inner())
}

/// Sum of `x y`, or of `x` alone, over the whole level.
///
/// # Errors
/// [`CommError`] when the ranks lose each other.
pub fn dot(level: &mut Level, x: Vector, y: Option<Vector>) -> Result<f64, CommError> {
    let g = level.geometry;
    level.partials.fill(0.0);
    for (index, &id) in level.boxes.iter().enumerate() {
        let mut sum = 0.0;
        for k in 0..g.n {
            for j in 0..g.n {
                let at = index * g.volume + g.row(j, k);
                let x = &level.fields[x.index()][at..at + g.n];
                sum += match y {
                    Some(y) => {
                        let y = &level.fields[y.index()][at..at + g.n];
                        x.iter().zip(y).fold(0.0, |s, (x, y)| s + x * y)
                    }
                    None => x.iter().sum::<f64>(),
                };
            }
        }
        level.partials[id] = sum;
    }
    if let Some(group) = &mut level.group {
        group.sum(&mut level.partials)?;
    }
    Ok(level.partials.iter().sum())
}

/// A number that tells vectors apart, bit by bit: FNV-1a, a word at a time.
pub fn fingerprint(values: &[f64]) -> u64 {
    const PRIME: u64 = 0x100_0000_01b3;
    values.iter().fold(0xcbf2_9ce4_8422_2325, |hash, value| {
        (hash ^ value.to_bits()).wrapping_mul(PRIME).rotate_left(29)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_tell_one_bit_and_the_order() {
        let of = |values: &[f64]| fingerprint(values);
        assert_ne!(of(&[1.0, 2.0]), of(&[2.0, 1.0]));
        assert_ne!(of(&[0.0]), of(&[-0.0]));
        assert_eq!(of(&[1.0, 2.0]), of(&[1.0, 2.0]));
    }
}
