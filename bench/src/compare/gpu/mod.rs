//! The same between two GPUs: messages that streams and kernels start, bandwidth by blocks, barriers; this library, NCCL,
//! NVSHMEM, MPI and the bare machine, in turn within each repeat. A player that is not here is reported with the reason.

mod exchange;
mod floor;
mod nccl;
mod nvshmem;
mod ours;
mod staged;

use anyhow::{Context, Result};
use indicatif::ProgressBar;

use super::{Mpi, Plan};
use crate::perf::Rank;
use crate::result::{Axis, Figure, Plot, Point, Role, Series};

/// One repeat of one point.
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// In the unit of the figure.
    value: f64,
    /// Microseconds of the CPU for a receive and a send, where these are enqueued.
    cpu: Option<f64>,
}

impl Sample {
    fn of(value: f64) -> Sample {
        Sample { value, cpu: None }
    }
}

/// One way to do what a figure shows, at `x` (bytes, blocks or ranks). Both ranks call the same methods in the same order,
/// and nothing of a sample runs when it returns. What rank 0 returns counts.
trait Player {
    /// Name in the figure.
    fn name(&self) -> String;
    /// What it is.
    fn role(&self) -> Role;
    /// Allocates and connects what `x` needs; false: not measured at `x`. Both ranks give the same answer.
    fn prepare(&mut self, rank: &Rank, x: u64) -> Result<bool>;
    /// One repeat at the `x` last prepared.
    fn sample(&mut self, rank: &Rank) -> Result<Sample>;
}

type Players<'a> = Vec<Box<dyn Player + 'a>>;

/// Blocks of the copying kernels.
const BLOCKS: [u64; 5] = [1, 4, 16, 64, 132];
/// Cells a side of the faces that are exchanged, and how many layers.
const HALOS: [u64; 5] = [16, 32, 64, 128, 256];
const GHOSTS: u64 = 2;
/// Bytes of a copy whose bandwidth is measured.
const VOLUME: u64 = 64 << 20;
/// Rounds of a sample on streams: one batch (see `perf`).
const ON_STREAMS: u64 = 300;
/// Rounds of a sample in kernels with small messages.
const IN_KERNELS: u64 = 2000;

/// Rounds of a sample in kernels with messages of `size`.
fn rounds_in_kernels(size: u64) -> u64 {
    IN_KERNELS.min((256 << 20) / size.max(1)).max(50)
}

/// Measures as one of two ranks; the figures, and sentences on the method and on who is absent.
///
/// # Errors
/// A player that is there and fails.
pub(super) fn measure(
    rank: &Rank,
    plan: &Plan,
    mpi: Option<&Mpi>,
    bar: &ProgressBar,
) -> Result<(Vec<Figure>, Vec<String>)> {
    let mut method = vec![
        format!("GPUs: {}; {} repeats, the players in turn within each.", rank.pair, plan.repeats),
        format!(
            "Latency on streams: ping-pong of two streams, {ON_STREAMS} rounds enqueued and then waited for, by the CPU's clock; half a round."
        ),
        format!(
            "Latency in kernels: ping-pong of one block a side, at most {IN_KERNELS} rounds by the GPU's clock; half a round. libmp and NVSHMEM: 32 to 1024 threads, as suit the size for libmp (NVSHMEM with 1024, too); the floor: as many threads, plain stores, then one st.release.sys."
        ),
        format!(
            "Bandwidth: {} MiB from rank 0 to rank 1, again and again, by kernels of 1024 threads a block; the copy engine for comparison.",
            VOLUME >> 20
        ),
    ];
    method.push(format!("Exchange: both ranks send a halo ({GHOSTS} layers of a face of {HALOS:?} cells a side, doubles) and wait for the other's, nothing else; kernels of 1 to {} blocks.", exchange::MOST_BLOCKS));
    let nccl = nccl::Nccl::start(rank);
    method.push(match &nccl {
        Ok(nccl) => format!("NCCL: {}, ncclSend and ncclRecv on the stream.", nccl.version()),
        Err(reason) => format!("NCCL: absent ({reason:#})."),
    });
    let nvshmem = nvshmem::Nvshmem::start(rank);
    method.push(match &nvshmem {
        Ok(nvshmem) => format!(
            "NVSHMEM: {}, two processes of its own on the same GPUs, which play in turn with the others and are idle else. In kernels: nvshmem_uint64_p or nvshmemx_putmem_signal_block, then a wait; bandwidth: nvshmemx_putmem_nbi_block, then quiet.",
            nvshmem.version()
        ),
        Err(reason) => format!("NVSHMEM: absent ({reason:#})."),
    });
    let (nccl, nvshmem) = (nccl.ok(), nvshmem.ok());
    if let Some(mpi) = mpi {
        method.push(format!("MPI between GPUs: a kernel packs the message into pinned memory, cuStreamSynchronize, MPI_Send to a pinned buffer ({}).", mpi.version()));
    }
    let mut table = Figures { rank, repeats: plan.repeats, bar };
    let sizes: Vec<u64> = plan.sizes.iter().map(|&size| size as u64).collect();

    let mut streams: Players =
        vec![ours::latency(ours::Form::Fused), ours::latency(ours::Form::Graph)];
    streams.extend(nccl.as_ref().map(|nccl| nccl.player()));
    streams.extend(nvshmem.as_ref().map(|nvshmem| nvshmem.on_stream()));
    streams.extend(mpi.and_then(staged::player));
    streams.extend([floor::copy_engine(), floor::words()]);
    let (latency, cpu) = table.measure(&sizes, &mut streams)?;
    drop(streams);

    let mut kernels: Players =
        vec![ours::latency(ours::Form::Kernel), ours::latency(ours::Form::Put)];
    if let Some(nvshmem) = &nvshmem {
        kernels.extend([nvshmem.put(None), nvshmem.put(Some(1024)), nvshmem.p()]);
    }
    kernels.push(floor::put());
    let (in_kernels, _) = table.measure(&sizes, &mut kernels)?;
    drop(kernels);

    let mut copies: Players = vec![ours::bandwidth()];
    copies.extend(nvshmem.as_ref().map(|nvshmem| nvshmem.bandwidth()));
    copies.extend([floor::bandwidth(), floor::copy_engine_bandwidth()]);
    let (bandwidth, _) = table.measure(&BLOCKS, &mut copies)?;
    drop(copies);

    let mut meetings: Players =
        vec![ours::barrier("kernel, ordering memory"), ours::barrier("stream")];
    if let Some(nvshmem) = &nvshmem {
        meetings.extend([nvshmem.barrier("kernel"), nvshmem.barrier("stream")]);
    }
    let (barrier, _) = table.measure(&[2], &mut meetings)?;
    drop(meetings);
    let mut halos: Players = vec![exchange::kernel(), exchange::graph()];
    halos.extend(nvshmem.as_ref().map(|nvshmem| nvshmem.exchange()));
    halos.extend(nccl.as_ref().map(|nccl| nccl.exchange()));
    halos.extend(mpi.and_then(staged::exchange));
    let (exchange, _) = table.measure(&HALOS.map(|n| 8 * GHOSTS * n * n), &mut halos)?;
    drop(halos);
    if let Some(nvshmem) = nvshmem {
        nvshmem.finish()?;
    }

    let lines = |title: &str, x: Axis, y: Axis, less_is_better, series| Figure {
        title: title.into(),
        plot: Plot::Lines,
        x,
        y,
        less_is_better,
        series,
    };
    let message = || Axis::log("message", "B");
    let mut figures = vec![
        lines("Latency, streams of two GPUs", message(), Axis::log("one way", "µs"), true, latency),
        lines(
            "CPU time of a receive and a send on a stream",
            message(),
            Axis::log("CPU time", "µs"),
            true,
            cpu,
        ),
        lines(
            "Latency, kernels of two GPUs",
            message(),
            Axis::log("one way", "µs"),
            true,
            in_kernels,
        ),
        lines(
            "Bandwidth between two GPUs",
            Axis::log("blocks", ""),
            Axis::log("bandwidth", "GB/s"),
            false,
            bandwidth,
        ),
    ];
    figures.push(lines(
        "Exchange of a halo, two GPUs",
        Axis::log("halo", "B"),
        Axis::log("exchange", "µs"),
        true,
        exchange,
    ));
    figures.push(Figure {
        title: "Barrier, two GPUs".into(),
        plot: Plot::Bars,
        x: Axis::linear("ranks", ""),
        y: Axis::linear("barrier", "µs"),
        less_is_better: true,
        series: barrier,
    });
    figures.retain(|figure| !figure.series.is_empty());
    Ok((figures, method))
}

/// Points of a run, for a progress bar.
pub(super) fn points(plan: &Plan) -> u64 {
    (2 * plan.sizes.len() + BLOCKS.len() + HALOS.len()) as u64 + 1
}

struct Figures<'a> {
    rank: &'a Rank,
    repeats: usize,
    bar: &'a ProgressBar,
}

impl Figures<'_> {
    /// All players at every x, in turn, after one repeat to warm up; the values and the CPU times as series.
    fn measure(
        &mut self,
        places: &[u64],
        players: &mut Players,
    ) -> Result<(Vec<Series>, Vec<Series>)> {
        let mut values: Vec<Series> = players
            .iter()
            .map(|player| Series { name: player.name(), role: player.role(), points: Vec::new() })
            .collect();
        let mut costs = values.clone();
        for &x in places {
            let mut samples = vec![Vec::new(); players.len()];
            let mut plays = Vec::with_capacity(players.len());
            for player in players.iter_mut() {
                let ready = player.prepare(self.rank, x);
                plays.push(ready.with_context(|| format!("preparing {} for {x}", player.name()))?);
            }
            for repeat in 0..=self.repeats {
                for (number, player) in
                    players.iter_mut().enumerate().filter(|(number, _)| plays[*number])
                {
                    self.rank.world.barrier()?;
                    let sample = player.sample(self.rank);
                    let sample = sample.with_context(|| format!("{} at {x}", player.name()))?;
                    if repeat > 0 {
                        samples[number].push(sample);
                    }
                }
            }
            for (number, samples) in
                samples.into_iter().enumerate().filter(|(_, samples)| !samples.is_empty())
            {
                let point = |samples| Point { x: x as f64, samples, p99: None };
                values[number]
                    .points
                    .push(point(samples.iter().map(|sample| sample.value).collect()));
                let cpu: Vec<f64> = samples.iter().filter_map(|sample| sample.cpu).collect();
                if !cpu.is_empty() {
                    costs[number].points.push(point(cpu));
                }
            }
            self.bar.inc(1);
        }
        values.retain(|series| !series.points.is_empty());
        costs.retain(|series| !series.points.is_empty());
        Ok((values, costs))
    }
}
