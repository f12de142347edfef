//! What repeated measurements of two things say: the ratio of their medians with its confidence interval.

use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde::Serialize;

pub use mp_program::Spread;

/// The ratio of two medians, with the interval that holds it with 95 % confidence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    /// Median over median.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Resamplings behind a confidence interval.
const RESAMPLINGS: usize = 2000;

impl Ratio {
    /// The ratio of the medians of `ours` to that of `theirs`, with a percentile-bootstrap interval (Efron, "Bootstrap
    /// methods", 1979; 2000 resamplings from a fixed seed, so the same samples always give the same interval). `None`
    /// without samples, with one that is not a number, or with a median of 0 below the line.
    pub fn of(ours: &[f64], theirs: &[f64]) -> Option<Ratio> {
        let (above, below) = (Spread::of(ours)?.median, Spread::of(theirs)?.median);
        if below == 0.0 {
            return None;
        }
        let mut random = SmallRng::seed_from_u64(1979);
        let mut drawn = Vec::with_capacity(ours.len().max(theirs.len()));
        let mut draw = |from: &[f64]| {
            drawn.clear();
            drawn.extend((0..from.len()).map(|_| from[random.random_range(0..from.len())]));
            Spread::of(&drawn).map_or(f64::NAN, |spread| spread.median)
        };
        let mut ratios: Vec<f64> = (0..RESAMPLINGS).map(|_| draw(ours) / draw(theirs)).collect();
        ratios.sort_by(f64::total_cmp);
        let tail = RESAMPLINGS / 40;
        Some(Ratio {
            value: above / below,
            low: ratios[tail],
            high: ratios[RESAMPLINGS - 1 - tail],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_ratio_holds_it_and_widens_with_the_spread() {
        let narrow: Vec<f64> = (0..21).map(|i| 2.0 + f64::from(i % 3) * 0.01).collect();
        let wide: Vec<f64> = (0..21).map(|i| 2.0 + f64::from(i % 7) * 0.2).collect();
        let theirs = [1.0; 21];
        let a = Ratio::of(&narrow, &theirs).unwrap();
        let b = Ratio::of(&wide, &theirs).unwrap();
        assert!((a.value - 2.01).abs() < 1e-12 && a.low <= a.value && a.value <= a.high, "{a:?}");
        assert!(b.high - b.low > a.high - a.low, "{a:?} {b:?}");
        assert_eq!(Ratio::of(&theirs, &theirs), Some(Ratio { value: 1.0, low: 1.0, high: 1.0 }));
        assert_eq!(Ratio::of(&theirs, &[]), None);
        assert_eq!(Ratio::of(&theirs, &[0.0]), None);
    }
}
