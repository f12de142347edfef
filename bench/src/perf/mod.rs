//! What communication between two ranks costs: messages, bandwidth, barriers, in every form there is – started by the host,
//! on a stream, in a captured graph, in a kernel – between host memories or GPUs. Ranks are threads of this process, or
//! processes that a launcher started.

pub mod bandwidth;
pub mod barrier;
mod gpus;
mod kernel;
pub mod latency;
pub mod litmus;
pub mod message_rate;
pub mod overlap;
mod ranks;
mod table;
pub mod waiting;
pub mod work;

use std::time::Duration;

use anyhow::Result;
use gdsync::Graph;
use indicatif::{ProgressBar, ProgressStyle};
use libmp::Deadline;

pub use gpus::{Gpus, RANKS};
pub(crate) use kernel::Watch;
pub use ranks::{Devices, Rank, on_ranks};
pub use table::{csv, print};

/// How long one batch may take before it is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// At most so many rounds of streams are enqueued before the ranks meet: a CUDA stream takes about a thousand operations, and
/// while one rank's call waits for room, no other thread of the process gets anything onto the same GPU.
const BATCH: u64 = 300;

/// Rounds in a captured graph. Even: those that use two things in turn end with the one that they began with. As many as make the launch of a
/// graph, 4 µs, little beside them.
pub(crate) const IN_GRAPH: u64 = 100;

/// So many times the rounds of streams are played in graphs: of a few launches what comes before the first and behind the last would be much.
pub(crate) const GRAPHS: u64 = 5;

/// So many rounds of what `enqueue` enqueues on the rank's stream, as a graph. They have been played before: what is made at the first
/// use is not made in a capture.
fn capture(rank: &Rank, rounds: u64, enqueue: impl Fn(usize) -> Result<()>) -> Result<Graph> {
    rank.stream.begin_capture()?;
    (0..rounds as usize).try_for_each(enqueue)?;
    Ok(rank.stream.end_capture()?)
}

/// `IN_GRAPH` rounds as a graph, once they have been played as they are.
pub(crate) fn in_graph(rank: &Rank, enqueue: impl Fn(usize) -> Result<()>) -> Result<Graph> {
    (0..IN_GRAPH as usize).try_for_each(&enqueue)?;
    rank.world.synchronize(&rank.stream, soon())?;
    let graph = capture(rank, IN_GRAPH, enqueue)?;
    rank.world.barrier()?;
    Ok(graph)
}

fn soon() -> Deadline {
    Deadline::after(PATIENCE)
}

/// A bar over what is still to be measured, on the terminal of rank 0.
fn bar(rank: &Rank, steps: usize) -> Result<ProgressBar> {
    let bar = if rank.leads() { ProgressBar::new(steps as u64) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg}")?;
    Ok(bar.with_style(style))
}

/// Threads of a block that passes messages of `size` bytes: one for each packet, or as many as copy fastest.
fn block_threads(size: u64) -> u32 {
    let most = match size {
        0..=0x2000 => 768,
        0x2001..=0x4_0000 => 256,
        _ => 512,
    };
    (size.div_ceil(mp_kernels::PACKET_BYTES.into()).clamp(32, most) as u32).next_multiple_of(32)
}

/// The middle of timed single operations and their 99th percentile; sorts them.
fn quantile(sorted: &mut [f64], share: f64) -> f64 {
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let mut values: Vec<f64> = (0..101).rev().map(f64::from).collect();
        assert_eq!(quantile(&mut values, 0.5), 50.0);
        assert_eq!(quantile(&mut values, 0.99), 99.0);
        assert!(quantile(&mut [], 0.5).is_nan());
    }
}
