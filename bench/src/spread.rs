//! What repeated measurements of one thing say: median, spread, and the ratio of two with its confidence interval.

use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde::Serialize;

/// Median and extremes of repeated measurements, in one unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The middle measurement (of an even number the mean of the two in the middle).
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// How many there were.
    pub count: usize,
}

impl Spread {
    /// The spread of `values`; `None` without any, or if one is not a number.
    pub fn of(values: &[f64]) -> Option<Spread> {
        if values.is_empty() || values.iter().any(|value| value.is_nan()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Spread {
            median: middle(&sorted),
            min: sorted[0],
            max: sorted[sorted.len() - 1],
            count: sorted.len(),
        })
    }
}

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
            drawn.sort_by(f64::total_cmp);
            middle(&drawn)
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

/// The median of a sorted, non-empty slice.
fn middle(sorted: &[f64]) -> f64 {
    let count = sorted.len();
    (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_lies_in_the_middle() {
        let spread = Spread::of(&[3.0, 1.0, 2.0]);
        assert_eq!(spread, Some(Spread { median: 2.0, min: 1.0, max: 3.0, count: 3 }));
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 3.0]).map(|spread| spread.median), Some(2.5));
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[1.0, f64::NAN]), None);
    }

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
