//! What repeated measurements of one thing say: median and extremes.

use serde::Serialize;

/// Median and extremes of repeated measurements, in one unit.
///
/// ```
/// use mp_program::Spread;
///
/// let spread = Spread::of(&[1.5, 9.0, 1.0, 2.0]).expect("four numbers");
/// assert_eq!((spread.median, spread.min, spread.max), (1.75, 1.0, 9.0));
/// ```
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
}
