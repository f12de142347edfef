//! The same between two GPUs: messages that streams and kernels start, bandwidth by blocks, barriers; this library, NCCL,
//! NVSHMEM, MPI and the bare machine, in turn within each repeat. A player that is not here, or fails on the way, is reported
//! with the reason.

mod collective;
mod exchange;
mod floor;
mod nccl;
mod nvshmem;
mod one_sided;
mod ours;
mod staged;

use anyhow::{Context, Result};
use indicatif::ProgressBar;

use one_sided::What;

use super::absent::{self, Journal, agree};
use super::{MpiHere, Plan};
use crate::perf::Rank;
use crate::result::{Absent, Axis, Figure, Plot, Point, Results, Role, Series};

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
    /// The library in this process that it calls, unless it is ours.
    fn library(&self) -> Option<&'static str> {
        None
    }
    /// Why it never plays, if it does not.
    fn absent(&self) -> Option<String> {
        None
    }
    /// Allocates and connects what `x` needs; false: not measured at `x`. Both ranks give the same answer.
    fn prepare(&mut self, rank: &Rank, x: u64) -> Result<bool>;
    /// One repeat at the `x` last prepared.
    fn sample(&mut self, rank: &Rank) -> Result<Sample>;
}

type Players<'a> = Vec<Box<dyn Player + 'a>>;

/// A player of a library that is not here.
struct Missing {
    library: &'static str,
    reason: String,
}

impl Player for Missing {
    fn name(&self) -> String {
        self.library.into()
    }

    fn role(&self) -> Role {
        Role::Peer
    }

    fn absent(&self) -> Option<String> {
        Some(self.reason.clone())
    }

    fn prepare(&mut self, _: &Rank, _: u64) -> Result<bool> {
        anyhow::bail!("{}", self.reason)
    }

    fn sample(&mut self, _: &Rank) -> Result<Sample> {
        anyhow::bail!("{}", self.reason)
    }
}

/// The players of a library that is here, or the one that says why it is not.
fn of<'a, L>(
    library: &'static str,
    here: &'a Result<L, String>,
    players: impl FnOnce(&'a L) -> Players<'a>,
) -> Players<'a> {
    match here {
        Ok(here) => players(here),
        Err(reason) => vec![Box::new(Missing { library, reason: reason.clone() })],
    }
}

/// Starts a library for both ranks, or for none: then its own reason. Collective.
fn start<L>(
    (rank, journal): (&Rank, &Journal),
    library: &'static str,
    start: impl FnOnce(&Rank) -> Result<L>,
) -> Result<Result<L, String>> {
    if let Some(reason) = journal.why_lost(library) {
        return Ok(Err(reason));
    }
    let inside = journal.enter(rank.world.rank(), library)?;
    let started = start(rank);
    drop(inside);
    agree(&rank.world, started)
}

/// Titles of the figures in which others play.
const LATENCY: &str = "Latency, streams of two GPUs";
const KERNELS: &str = "Latency, kernels of two GPUs";
const BANDWIDTH: &str = "Bandwidth between two GPUs";
const BARRIER: &str = "Barrier, two GPUs";
const EXCHANGE: &str = "Exchange of a halo, two GPUs";

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

/// Measures as one of two ranks; the figures, sentences on the method and who is absent are added to `results`.
///
/// # Errors
/// A player that fails and is not another library's.
pub(super) fn measure(
    (rank, plan): (&Rank, &Plan),
    mpi: MpiHere<'_>,
    journal: &Journal,
    bar: &ProgressBar,
    results: &mut Results,
) -> Result<()> {
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
    method.push(format!("Exchange: both ranks send a halo ({GHOSTS} layers of a face of {HALOS:?} cells a side, doubles) and wait for the other's, nothing else; in kernels by 1 to {} blocks, libmp's of up to 64 KiB by messages, else as NVSHMEM's by puts and signals.", exchange::MOST_BLOCKS));
    method.push("Collectives on streams: runs enqueued one after another and then waited for, by the CPU's clock, as many as move a GiB, at least 10 and at most one batch; in kernels one block, by the GPU's clock. Bytes are those of the result.".into());
    method.push(format!("One-sided in kernels: by rank 0 on the memory of rank 1, which does nothing meanwhile; gets of one block, each waited for; additions by one thread, each waited for; words of 8 B by {} threads a block, {} of each thread, until all are there.", one_sided::THREADS, one_sided::WORDS));
    let nccl = start((rank, journal), "NCCL", nccl::Nccl::start)?;
    method.push(match &nccl {
        Ok(nccl) => format!("NCCL: {}, ncclSend and ncclRecv on the stream.", nccl.version()),
        Err(reason) => format!("NCCL: absent: {reason}."),
    });
    // Its processes are others: whoever of them fails takes nobody along.
    let nvshmem = agree(&rank.world, nvshmem::Nvshmem::start(rank))?;
    method.push(match &nvshmem {
        Ok(nvshmem) => format!(
            "NVSHMEM: {}, two processes of its own on the same GPUs, which play in turn with the others and are idle else. In kernels: nvshmem_uint64_p or nvshmemx_putmem_signal_block, then a wait; bandwidth: nvshmemx_putmem_nbi_block, then quiet.",
            nvshmem.version()
        ),
        Err(reason) => format!("NVSHMEM: absent: {reason}."),
    });
    if let Ok(mpi) = mpi {
        method.push(format!("MPI between GPUs: a kernel packs the message into pinned memory, cuStreamSynchronize, MPI_Send to a pinned buffer ({}).", mpi.version()));
    }
    let mpi = mpi.map_err(str::to_owned);
    let mut table = Figures { rank, journal, plan, bar, absent: Vec::new() };
    let sizes: Vec<u64> = plan.sizes.iter().map(|&size| size as u64).collect();

    let mut streams: Players =
        vec![ours::latency(ours::Form::Fused), ours::latency(ours::Form::Graph)];
    streams.extend(of("NCCL", &nccl, |nccl| vec![nccl.player()]));
    streams.extend(of("NVSHMEM", &nvshmem, |nvshmem| vec![nvshmem.on_stream()]));
    streams.extend(of("MPI", &mpi, |mpi| staged::player(mpi).into_iter().collect()));
    streams.extend([floor::copy_engine(), floor::words()]);
    let (latency, cpu) = table.measure(LATENCY, &sizes, &mut streams)?;
    drop(streams);

    let mut kernels: Players =
        vec![ours::latency(ours::Form::Kernel), ours::latency(ours::Form::Put)];
    kernels.extend(of("NVSHMEM", &nvshmem, |nvshmem| {
        vec![nvshmem.put(None), nvshmem.put(Some(1024)), nvshmem.p()]
    }));
    kernels.push(floor::put());
    let (in_kernels, _) = table.measure(KERNELS, &sizes, &mut kernels)?;
    drop(kernels);

    let mut copies: Players = vec![ours::bandwidth()];
    copies.extend(of("NVSHMEM", &nvshmem, |nvshmem| vec![nvshmem.bandwidth()]));
    copies.extend([floor::bandwidth(), floor::copy_engine_bandwidth()]);
    let (bandwidth, _) = table.measure(BANDWIDTH, &BLOCKS, &mut copies)?;
    drop(copies);

    let mut meetings: Players =
        ["kernel, ordering memory", "kernel, meeting only", "stream"].map(ours::barrier).into();
    meetings.extend(of("NVSHMEM", &nvshmem, |nvshmem| {
        vec![nvshmem.barrier("kernel"), nvshmem.barrier("stream")]
    }));
    let (barrier, _) = table.measure(BARRIER, &[2], &mut meetings)?;
    drop(meetings);
    let mut halos: Players = vec![exchange::kernel(), exchange::graph()];
    halos.extend(of("NVSHMEM", &nvshmem, |nvshmem| vec![nvshmem.exchange()]));
    halos.extend(of("NCCL", &nccl, |nccl| vec![nccl.exchange()]));
    halos.extend(of("MPI", &mpi, |mpi| staged::exchange(mpi).into_iter().collect()));
    let (exchange, _) = table.measure(EXCHANGE, &HALOS.map(|n| 8 * GHOSTS * n * n), &mut halos)?;
    drop(halos);
    let mut collectives = Vec::new();
    for kind in collective::Kind::ALL {
        let reduces = kind == collective::Kind::Reduce;
        let mut players: Players = vec![collective::stream(kind)];
        players.extend(reduces.then(collective::kernel));
        players.extend(of("NCCL", &nccl, |nccl| vec![nccl.collective(kind)]));
        players.extend(of("NVSHMEM", &nvshmem, |nvshmem| {
            let mut players = vec![nvshmem.collective(kind)];
            players.extend(reduces.then(|| nvshmem.all_reduce()));
            players
        }));
        let (series, _) = table.measure(kind.title(), &collective::SIZES, &mut players)?;
        collectives.push((kind, series));
    }
    let mut alone = Vec::new();
    for (what, places) in [
        (What::Get, one_sided::SIZES.as_slice()),
        (What::FetchAdd, &[8]),
        (What::Words, &one_sided::BLOCKS),
    ] {
        let mut players: Players = vec![one_sided::kernel(what)];
        players.extend((what == What::FetchAdd).then(|| one_sided::kernel(What::FetchAddOrdered)));
        players.extend(of("NVSHMEM", &nvshmem, |nvshmem| vec![nvshmem.one_sided(what)]));
        alone.push((what, table.measure(what.title(), places, &mut players)?.0));
    }
    let absent = table.absent;
    if let Ok(nvshmem) = nvshmem
        && let Err(error) = nvshmem.finish()
    {
        method.push(format!("NVSHMEM: failed after its last measurement: {error:#}."));
    }

    let figure = |title: &str, plot, x, y, less_is_better, series| Figure {
        title: title.into(),
        plot,
        x,
        y,
        less_is_better,
        series,
    };
    let lines = |title: &str, x, y, less_is_better, series| {
        figure(title, Plot::Lines, x, y, less_is_better, series)
    };
    let bars = |title: &str, x, y, less_is_better, series| {
        figure(title, Plot::Bars, x, y, less_is_better, series)
    };
    let message = || Axis::log("message", "B");
    let mut figures = vec![
        lines(LATENCY, message(), Axis::log("one way", "µs"), true, latency),
        lines(
            "CPU time of a receive and a send on a stream",
            message(),
            Axis::log("CPU time", "µs"),
            true,
            cpu,
        ),
        lines(KERNELS, message(), Axis::log("one way", "µs"), true, in_kernels),
        lines(BANDWIDTH, Axis::log("blocks", ""), Axis::log("bandwidth", "GB/s"), false, bandwidth),
    ];
    figures.push(lines(
        EXCHANGE,
        Axis::log("halo", "B"),
        Axis::log("exchange", "µs"),
        true,
        exchange,
    ));
    let (ranks, meeting) = (Axis::linear("ranks", ""), Axis::linear("barrier", "µs"));
    figures.push(bars(BARRIER, ranks, meeting, true, barrier));
    figures.extend(collectives.into_iter().map(|(kind, series)| {
        lines(kind.title(), Axis::log("result", "B"), Axis::log("one run", "µs"), true, series)
    }));
    figures.extend(alone.into_iter().map(|(what, series)| match what {
        What::Get => {
            let time = Axis::log("until it is there", "µs");
            lines(what.title(), Axis::log("get", "B"), time, true, series)
        }
        What::FetchAdd | What::FetchAddOrdered => {
            let time = Axis::linear("until it answers", "µs");
            bars(what.title(), Axis::linear("word", "B"), time, true, series)
        }
        What::Words => {
            let rate = Axis::linear("puts", "million/s");
            bars(what.title(), Axis::linear("blocks", ""), rate, false, series)
        }
    }));
    figures.retain(|figure| !figure.series.is_empty());
    results.figures.extend(figures);
    results.method.extend(method);
    results.absent.extend(absent);
    Ok(())
}

/// Points of a run, for a progress bar.
pub(super) fn points(plan: &Plan) -> u64 {
    let collectives = collective::Kind::ALL.len() * collective::SIZES.len();
    let alone = one_sided::SIZES.len() + 1 + one_sided::BLOCKS.len();
    (2 * plan.sizes.len() + BLOCKS.len() + HALOS.len() + collectives + alone) as u64 + 1
}

struct Figures<'a> {
    rank: &'a Rank,
    journal: &'a Journal,
    plan: &'a Plan,
    bar: &'a ProgressBar,
    absent: Vec<Absent>,
}

impl Figures<'_> {
    /// What a player does, on both ranks; the reason if it fails on one and is another library's.
    fn turn<T>(
        &self,
        player: &mut Box<dyn Player + '_>,
        play: impl FnOnce(&mut dyn Player) -> Result<T>,
    ) -> Result<Result<T, String>> {
        let world = &self.rank.world;
        let library = player.library();
        let inside = library.map(|name| self.journal.enter(world.rank(), name)).transpose()?;
        world.barrier()?;
        let played = play(player.as_mut());
        drop(inside);
        if player.role() == Role::Peer {
            return agree(world, played);
        }
        Ok(Ok(played.with_context(|| player.name())?))
    }

    /// All players of the figure `title` at every x, in turn, after one repeat to warm up; the values and the CPU times as
    /// series. A player that fails plays no more in this figure.
    fn measure(
        &mut self,
        title: &str,
        places: &[u64],
        players: &mut Players,
    ) -> Result<(Vec<Series>, Vec<Series>)> {
        if !self.plan.shows(title) {
            return Ok((Vec::new(), Vec::new()));
        }
        let rank = self.rank;
        let mut values: Vec<Series> = players
            .iter()
            .map(|player| Series { name: player.name(), role: player.role(), points: Vec::new() })
            .collect();
        let mut costs = values.clone();
        let mut failed: Vec<_> = players.iter().map(|player| player.absent()).collect();
        for &x in places {
            let mut samples = vec![Vec::new(); players.len()];
            let mut plays = vec![false; players.len()];
            for (number, player) in players.iter_mut().enumerate() {
                if failed[number].is_some() {
                    continue;
                }
                let ready = self.turn(player, |player| {
                    player.prepare(rank, x).with_context(|| format!("preparing for {x}"))
                });
                match ready? {
                    Ok(ready) => plays[number] = ready,
                    Err(reason) => failed[number] = Some(reason),
                }
            }
            for repeat in 0..=self.plan.repeats {
                for (number, player) in players.iter_mut().enumerate() {
                    if !plays[number] || failed[number].is_some() {
                        continue;
                    }
                    let sample = self.turn(player, |player| {
                        player.sample(rank).with_context(|| format!("at {x}"))
                    });
                    match sample? {
                        Ok(sample) if repeat > 0 => samples[number].push(sample),
                        Ok(_) => {}
                        Err(reason) => failed[number] = Some(reason),
                    }
                }
            }
            for (number, samples) in
                samples.into_iter().enumerate().filter(|(_, samples)| !samples.is_empty())
            {
                let point = |samples| Point { x: x as f64, samples, p99: None };
                let value = point(samples.iter().map(|sample| sample.value).collect());
                if let (Some(library), true) = (players[number].library(), rank.leads()) {
                    self.journal.keep(library, title, &values[number].name, &value)?;
                }
                values[number].points.push(value);
                let cpu: Vec<f64> = samples.iter().filter_map(|sample| sample.cpu).collect();
                if !cpu.is_empty() {
                    costs[number].points.push(point(cpu));
                }
            }
            self.bar.inc(1);
        }
        self.absent.extend(absent::missing((title, &values), &failed));
        values.retain(|series| !series.points.is_empty());
        costs.retain(|series| !series.points.is_empty());
        Ok((values, costs))
    }
}
