//! Arguments of `mp-perf` that are more than a number.

use std::str::FromStr;

/// A size: a number, or one with k, M or G for 2^10, 2^20, 2^30.
///
/// # Errors
/// What was expected.
pub fn bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 10),
        Some((at, 'm' | 'M')) => (&text[..at], 20),
        Some((at, 'g' | 'G')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let size = digits.parse::<u64>().ok().filter(|size| (1..=1 << 34 >> shift).contains(size));
    size.map(|size| size << shift)
        .ok_or_else(|| format!("{text:?} is no size: a number from 1, with k, M or G, up to 16G"))
}

/// A multiple, 0.001 to 1000.
///
/// # Errors
/// What was expected.
pub fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok().filter(|ratio| (0.001..=1000.0).contains(ratio));
    ratio.ok_or_else(|| format!("{text:?} is no multiple: a number from 0.001 to 1000"))
}

/// FROM:TO, two numbers of which the second is larger.
///
/// # Errors
/// What was expected.
pub fn window(text: &str) -> Result<(f64, f64), String> {
    two(text)
        .filter(|(from, to): &(f64, f64)| from.is_finite() && to.is_finite() && from < to)
        .ok_or_else(|| format!("{text:?} is not of the form FROM:TO, for example 0:500"))
}

/// FIRST:SECOND, the GPUs of two ranks.
///
/// # Errors
/// What was expected.
pub fn pair(text: &str) -> Result<(u32, u32), String> {
    two(text).ok_or_else(|| format!("{text:?} is not of the form FIRST:SECOND, for example 0:1"))
}

/// Two values with a colon between them.
fn two<T: FromStr>(text: &str) -> Option<(T, T)> {
    let (first, second) = text.split_once(':')?;
    Some((first.parse().ok()?, second.parse().ok()?))
}
