//! Whether memory and descriptors of this process grow: samples over time, and the slope of a line through them.

use anyhow::{Context, Result, ensure};
use libmp::gdsync::CudaDevice;

/// KiB that a line through samples of memory in use may rise by: what code and tables take that are used for the first time
/// late in a run.
const ALLOWED_KIB: f64 = 1024.0;
/// Of a run whose samples cover less than these seconds, KiB that it may rise by: how much of the last worlds is still there
/// differs by megabytes from look to look.
const SHORT: f64 = 600.0;
const ALLOWED_SHORT_KIB: f64 = 4096.0;
/// Descriptors, likewise. One lost a world is found after some twenty worlds, slower losses in longer runs.
const ALLOWED_DESCRIPTORS: f64 = 2.0;
/// Standard errors of the rise that are borne beyond that: where ranks are threads, a sample sees memory and descriptors of
/// worlds that the other ranks are leaving or have begun, and a line through few such samples rises by chance.
const ALLOWED_ERRORS: f64 = 4.0;
/// Of a GPU's memory, which a driver hands out in pieces of 2 MiB.
const ALLOWED_GPU_MIB: f64 = 8.0;
/// Fewer samples say nothing about a slope.
const FEWEST: usize = 8;

#[derive(Debug, Clone, Copy)]
struct Sample {
    at: f64,
    memory_kib: u64,
    descriptors: u64,
    gpu_mib: Option<u64>,
}

/// The samples.
#[derive(Debug, Default)]
pub struct Growth(Vec<Sample>);

/// What they say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    pub memory_kib: [u64; 2],
    pub growth_kib: f64,
    /// Standard error of that.
    error_kib: f64,
    pub descriptors: [u64; 2],
    descriptor_growth: f64,
    /// Standard error of that.
    descriptor_error: f64,
    pub gpu_mib: Option<[u64; 2]>,
    pub gpu_growth_mib: Option<f64>,
    samples: usize,
    /// Between the first and the last of them.
    seconds: f64,
}

impl Growth {
    /// Looks at this process, and at the GPU that it uses, `at` seconds after the beginning.
    pub fn sample(&mut self, at: f64, gpu: Option<&CudaDevice>) -> Result<()> {
        let memory_kib = memory_kib()?;
        let descriptors = std::fs::read_dir("/proc/self/fd").context("/proc/self/fd")?.count();
        let gpu_mib = gpu.map(|gpu| used_mib(gpu.ordinal())).transpose()?;
        self.0.push(Sample { at, memory_kib, descriptors: descriptors as u64, gpu_mib });
        Ok(())
    }

    /// What came after the first quarter: a process fills its pools before it can be flat.
    pub fn result(&self) -> Measured {
        let settled = &self.0[self.0.len() / 4..];
        let (Some(first), Some(last)) = (settled.first(), settled.last()) else {
            return Measured {
                memory_kib: [0; 2],
                growth_kib: 0.0,
                error_kib: 0.0,
                descriptors: [0; 2],
                descriptor_growth: 0.0,
                descriptor_error: 0.0,
                gpu_mib: None,
                gpu_growth_mib: None,
                samples: 0,
                seconds: 0.0,
            };
        };
        let growth = |of: &dyn Fn(&Sample) -> f64| slope(settled, of) * (last.at - first.at);
        let gpu_mib = first.gpu_mib.zip(last.gpu_mib).map(|(first, last)| [first, last]);
        Measured {
            memory_kib: [first.memory_kib, last.memory_kib],
            growth_kib: growth(&|sample| sample.memory_kib as f64),
            error_kib: standard_error(settled, &|sample| sample.memory_kib as f64),
            descriptors: [first.descriptors, last.descriptors],
            descriptor_growth: growth(&|sample| sample.descriptors as f64),
            descriptor_error: standard_error(settled, &|sample| sample.descriptors as f64),
            gpu_mib,
            gpu_growth_mib: gpu_mib.map(|_| growth(&|s| s.gpu_mib.unwrap_or_default() as f64)),
            samples: settled.len(),
            seconds: last.at - first.at,
        }
    }
}

impl Measured {
    /// Neither memory nor descriptors have grown, as far as there were enough samples to tell.
    pub fn is_flat(&self) -> bool {
        let allowed = if self.seconds < SHORT { ALLOWED_SHORT_KIB } else { ALLOWED_KIB };
        let allowed = allowed + ALLOWED_ERRORS * self.error_kib;
        let allowed_descriptors = ALLOWED_DESCRIPTORS + ALLOWED_ERRORS * self.descriptor_error;
        self.samples < FEWEST
            || self.growth_kib <= allowed
                && self.descriptor_growth <= allowed_descriptors
                && self.gpu_growth_mib.is_none_or(|growth| growth <= ALLOWED_GPU_MIB)
    }
}

/// KiB of memory that this process uses: what it has allocated and not freed, and what it has mapped and touched. Not what the
/// allocator keeps for later or between two pieces, which comes and goes by megabytes.
#[cfg(target_env = "gnu")]
fn memory_kib() -> Result<u64> {
    // SAFETY: counts, under the allocator's own locks; mallinfo2(3).
    let heap = unsafe { libc::mallinfo2() };
    let bytes = heap.uordblks.saturating_add(heap.hblkhd) as u64;
    Ok(bytes / 1024 + status_kib("RssFile:")? + status_kib("RssShmem:")?)
}

/// KiB of memory that this process has, what the allocator keeps included.
#[cfg(not(target_env = "gnu"))]
fn memory_kib() -> Result<u64> {
    status_kib("VmRSS:")
}

fn status_kib(name: &str) -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
    let value = status.lines().find_map(|line| line.strip_prefix(name));
    let number = value.and_then(|text| text.split_whitespace().next()?.parse().ok());
    number.with_context(|| format!("/proc/self/status has no {name}"))
}

/// MiB of a GPU's memory that are in use, by all processes: what its driver says.
fn used_mib(ordinal: u32) -> Result<u64> {
    let output = std::process::Command::new("nvidia-smi")
        .args(["--query-gpu=memory.used", "--format=csv,noheader,nounits"])
        .arg(format!("--id={ordinal}"))
        .output()
        .context("nvidia-smi, for the memory of the GPU")?;
    ensure!(output.status.success(), "nvidia-smi: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim()
        .parse()
        .with_context(|| format!("nvidia-smi says {text:?}, expected a number of MiB"))
}

/// Least squares: of something, a second.
fn slope(samples: &[Sample], of: &dyn Fn(&Sample) -> f64) -> f64 {
    let count = samples.len() as f64;
    let sum = |f: &dyn Fn(&Sample) -> f64| samples.iter().map(f).sum::<f64>();
    let (at, mean) = (sum(&|s| s.at) / count, sum(of) / count);
    let square = sum(&|s| (s.at - at).powi(2));
    if square > 0.0 { sum(&|s| (s.at - at) * (of(s) - mean)) / square } else { 0.0 }
}

/// Standard error of how far a line through samples rises, from how they scatter about it: of something, over their time,
/// which they divide about evenly.
fn standard_error(samples: &[Sample], of: &dyn Fn(&Sample) -> f64) -> f64 {
    let count = samples.len() as f64;
    let sum = |f: &dyn Fn(&Sample) -> f64| samples.iter().map(f).sum::<f64>();
    let (at, mean, slope) = (sum(&|s| s.at) / count, sum(of) / count, slope(samples, of));
    let scatter = sum(&|s| (of(s) - mean - slope * (s.at - at)).powi(2)) / (count - 2.0).max(1.0);
    (12.0 * scatter / count).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growth(memory: impl Fn(u64) -> u64, descriptors: impl Fn(u64) -> u64) -> Measured {
        let sample = |at: u64| Sample {
            at: at as f64,
            memory_kib: memory(at),
            descriptors: descriptors(at),
            gpu_mib: Some(1000 + at / 50),
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
    fn descriptors_of_worlds_that_come_and_go_are_flat_and_one_lost_a_world_is_not() {
        let of_run = |descriptors: &dyn Fn(u64) -> u64, worlds| {
            let sample = |at: u64| Sample {
                at: at as f64,
                memory_kib: 1000,
                descriptors: descriptors(at),
                gpu_mib: None,
            };
            Growth((0..worlds).map(sample).collect()).result()
        };
        // The worst of chances: none but this rank's at first, then those of both.
        let chance = of_run(&|at| if at < 7 { 6 } else { 13 }, 12);
        assert!(chance.is_flat(), "{chance:?}");
        let lost = of_run(&|at| [6, 9, 13][at as usize % 3] + at, 40);
        assert!(!lost.is_flat(), "{lost:?}");
    }

    #[test]
    fn a_steady_leak_of_memory_or_descriptors_is_not() {
        let leak = growth(|at| 50_000 + 200 * at, |_| 20);
        assert!(!leak.is_flat() && (leak.growth_kib - 200.0 * 74.0).abs() < 1.0, "{leak:?}");
        assert!(!growth(|_| 50_000, |at| 20 + at / 10).is_flat());
    }

    #[test]
    fn a_leak_of_a_kibibyte_a_second_is_found_in_an_hour_under_noise_of_megabytes() {
        // A world takes half a minute.
        let hour = |leak: f64| {
            let sample = |world: u64| Sample {
                at: 30.0 * world as f64,
                memory_kib: 10_000
                    + 1500 * (world * 7 % 3 / 2)
                    + (leak * 30.0 * world as f64) as u64,
                descriptors: 6,
                gpu_mib: None,
            };
            Growth((0..120).map(sample).collect()).result()
        };
        assert!(hour(0.0).is_flat(), "{:?}", hour(0.0));
        assert!(!hour(1.0).is_flat(), "{:?}", hour(1.0));
    }

    #[test]
    fn memory_that_was_freed_is_not_counted() {
        let in_use = || {
            let mut growth = Growth::default();
            growth.sample(0.0, None).unwrap();
            growth.result().memory_kib[0]
        };
        // In pieces that come from the heap and stay there when they are freed: the last one holds on to it.
        let mut pieces = vec![vec![1u8; 64 << 10]; 1024];
        let full = in_use();
        let last = pieces.pop();
        drop(pieces);
        let freed = in_use();
        assert!(freed + (48 << 10) < full, "{full} KiB, and {freed} KiB when 64 MiB were freed");
        drop(last);
    }

    #[test]
    fn a_leak_of_a_gpus_memory_is_not_flat() {
        let sample = |at: u64| Sample {
            at: at as f64,
            memory_kib: 1000,
            descriptors: 3,
            gpu_mib: Some(500 + at),
        };
        let measured = Growth((0..100).map(sample).collect()).result();
        assert!(!measured.is_flat() && measured.gpu_mib == Some([525, 599]), "{measured:?}");
    }

    #[test]
    fn this_process_can_be_looked_at() {
        let mut growth = Growth::default();
        growth.sample(0.0, None).unwrap();
        let measured = growth.result();
        assert!(measured.memory_kib[0] > 100 && measured.descriptors[0] > 2, "{measured:?}");
    }
}
