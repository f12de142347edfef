//! What waiting costs others: seven blocks of every multiprocessor of a GPU wait for a signal while the eighth computes from its cache.

use anyhow::{Context, Result, ensure};
use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};
use gdsync::{Arg, Buffer, Device, Dims};
use mp_kernels::WaitBounds;

use super::{quantile, soon};
use crate::kernels::Kernels;

/// Blocks of a multiprocessor, and their threads.
const BLOCKS: u32 = 8;
const THREADS: u32 = 128;
/// Bytes of shared memory that let no ninth block in.
const SHARED: u32 = 27 << 10;
/// Doubles that are summed up again and again: 16 KiB.
const WORDS: u64 = 2048;
/// Nanoseconds after which a wait gives up: it fails the measurement.
const PATIENCE_NS: u64 = 10_000_000_000;

/// What was measured, in microseconds.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// The computation with nobody beside it.
    pub alone: f64,
    /// With seven blocks that wait.
    pub beside: f64,
}

/// Measures on GPU number `device`: the middle of `repeats` times, each the mean over the multiprocessors, in turn.
///
/// # Errors
/// No such GPU; blocks that do not run at once; what the driver says.
pub fn measure(device: u32, rounds: u64, repeats: u32) -> Result<Cost> {
    let device = Device::cuda(device)?;
    let kernels = Kernels::load(&device)?;
    let kernel = kernels.get("mp_perf_waiting")?;
    let cuda = device.as_cuda().context("no GPU")?;
    let fit = cuda.co_resident_blocks(&kernel, THREADS, SHARED)?;
    ensure!(
        fit > 0 && fit.is_multiple_of(BLOCKS),
        "{fit} blocks run at once, not {BLOCKS} on each multiprocessor"
    );
    let places = (fit / BLOCKS) as usize;
    let stream = device.stream()?;
    let table: Buffer<f64> = device.alloc(WORDS as usize)?;
    table.write(&vec![0.25; WORDS as usize])?;
    let words: Buffer<u64> = device.alloc(places + 4)?;
    let times: Buffer<u64> = device.alloc(places)?;
    let sums: Buffer<f64> = device.alloc(places * THREADS as usize)?;
    let mut samples = [Vec::new(), Vec::new()];
    for repeat in 0..=repeats {
        for (wait, samples) in (0u32..).zip(&mut samples) {
            words.write(&vec![0; words.len()])?;
            let bounds = WaitBounds { abort: 0, timeout_ns: PATIENCE_NS };
            let address = |of: Option<u64>| of.context("memory that the GPU does not reach");
            let tickets = address(words.device_address())?;
            let state = tickets + 8 * places as u64;
            let (table, times_at) =
                (address(table.device_address())?, address(times.device_address())?);
            let sums = address(sums.device_address())?;
            let args = [
                Arg::new(&table),
                Arg::new(&WORDS),
                Arg::new(&rounds),
                Arg::new(&wait),
                Arg::new(&bounds),
                Arg::new(&tickets),
                Arg::new(&state),
                Arg::new(&times_at),
                Arg::new(&sums),
            ];
            let dims = Dims { grid: (fit, 1, 1), block: (THREADS, 1, 1), shared: SHARED };
            // SAFETY: the kernel's parameters; the memory lives until the stream has been waited for.
            unsafe { stream.launch(&kernel, dims, &args) }?;
            stream.synchronize(soon())?;
            let times = times.to_vec()?;
            // The first warms up.
            if repeat > 0 {
                let mean = times.iter().sum::<u64>() as f64 / places as f64;
                samples.push(mean * 1e-3);
            }
        }
    }
    let [alone, beside] = samples.map(|mut samples| quantile(&mut samples, 0.5));
    Ok(Cost { alone, beside })
}

/// Prints a table.
pub fn print(cost: &Cost) {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED);
    table.set_header(["one block of a multiprocessor computes", "µs", ""]);
    table.add_row(["alone".to_owned(), format!("{:.1}", cost.alone), String::new()]);
    let more = format!("{:+.1} %", (cost.beside / cost.alone - 1.0) * 100.0);
    table.add_row([
        "beside seven that wait for a signal".to_owned(),
        format!("{:.1}", cost.beside),
        more,
    ]);
    mp_program::outln!("{table}");
}
