//! Whether memory and descriptors of this process grow: samples over time, and the slope of a line through them.

use anyhow::{Context, Result};

/// Growth that is borne over a run: what allocators and lazily made tables take before they settle, and a share of what is
/// there.
const ALLOWED_KIB: f64 = 4096.0;
const ALLOWED_SHARE: f64 = 0.05;
/// Fewer samples say nothing about a slope.
const FEWEST: usize = 8;

#[derive(Debug, Clone, Copy)]
struct Sample {
    at: f64,
    resident_kib: u64,
    descriptors: u64,
}

/// The samples.
#[derive(Debug, Default)]
pub struct Growth(Vec<Sample>);

/// What they say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    pub resident_kib: [u64; 2],
    pub growth_kib: f64,
    pub descriptors: [u64; 2],
    samples: usize,
}

impl Growth {
    /// Looks at this process, `at` seconds after the beginning.
    pub fn sample(&mut self, at: f64) -> Result<()> {
        let status = std::fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident_kib = resident
            .and_then(|text| text.split_whitespace().next())
            .and_then(|number| number.parse().ok())
            .context("/proc/self/status has no VmRSS")?;
        let descriptors = std::fs::read_dir("/proc/self/fd").context("/proc/self/fd")?.count();
        self.0.push(Sample { at, resident_kib, descriptors: descriptors as u64 });
        Ok(())
    }

    /// What came after the first quarter: a process fills its pools before it can be flat.
    pub fn result(&self) -> Measured {
        let settled = &self.0[self.0.len() / 4..];
        let (Some(first), Some(last)) = (settled.first(), settled.last()) else {
            return Measured {
                resident_kib: [0; 2],
                growth_kib: 0.0,
                descriptors: [0; 2],
                samples: 0,
            };
        };
        Measured {
            resident_kib: [first.resident_kib, last.resident_kib],
            growth_kib: slope(settled) * (last.at - first.at),
            descriptors: [first.descriptors, last.descriptors],
            samples: settled.len(),
        }
    }
}

impl Measured {
    /// Neither memory nor descriptors have grown, as far as there were enough samples to tell.
    pub fn is_flat(&self) -> bool {
        let allowed = ALLOWED_KIB + ALLOWED_SHARE * self.resident_kib[0] as f64;
        // Threads of worlds that just ended may hold a descriptor or two for a moment.
        self.samples < FEWEST
            || self.growth_kib <= allowed && self.descriptors[1] <= self.descriptors[0] + 2
    }
}

/// Least squares: KiB a second.
fn slope(samples: &[Sample]) -> f64 {
    let count = samples.len() as f64;
    let mean = |f: fn(&Sample) -> f64| samples.iter().map(f).sum::<f64>() / count;
    let (at, resident) = (mean(|s| s.at), mean(|s| s.resident_kib as f64));
    let over = |f: &dyn Fn(&Sample) -> f64| samples.iter().map(f).sum::<f64>();
    let square = over(&|s| (s.at - at).powi(2));
    if square > 0.0 {
        over(&|s| (s.at - at) * (s.resident_kib as f64 - resident)) / square
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growth(resident: impl Fn(u64) -> u64, descriptors: impl Fn(u64) -> u64) -> Measured {
        let sample = |at: u64| Sample {
            at: at as f64,
            resident_kib: resident(at),
            descriptors: descriptors(at),
        };
        Growth((0..100).map(sample).collect()).result()
    }

    #[test]
    fn noise_and_a_start_that_grows_are_flat() {
        assert!(
            growth(|at| 50_000 + 800 * (at % 3) - 20 * 25u64.saturating_sub(at), |_| 20).is_flat()
        );
    }

    #[test]
    fn a_steady_leak_of_memory_or_descriptors_is_not() {
        let leak = growth(|at| 50_000 + 200 * at, |_| 20);
        assert!(!leak.is_flat() && (leak.growth_kib - 200.0 * 74.0).abs() < 1.0, "{leak:?}");
        assert!(!growth(|_| 50_000, |at| 20 + at / 10).is_flat());
    }

    #[test]
    fn this_process_can_be_looked_at() {
        let mut growth = Growth::default();
        growth.sample(0.0).unwrap();
        let measured = growth.result();
        assert!(measured.resident_kib[0] > 100 && measured.descriptors[0] > 2, "{measured:?}");
    }
}
