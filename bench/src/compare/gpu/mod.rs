//! The same between GPUs: barriers and collectives of all of them, and between two (`two`) messages that streams and kernels start,
//! bandwidth by blocks, one-sided operations; this library, NCCL, NVSHMEM, MPI and the bare machine, in turn within each repeat. A player that is not here, or fails on the way, is reported
//! with the reason.

mod collective;
mod exchange;
mod floor;
mod nccl;
mod nvshmem;
mod one_sided;
mod ours;
mod staged;
mod tagged;
mod two;

use anyhow::{Context, Result};
use indicatif::ProgressBar;

use super::absent::{self, Journal, agree};
use super::{Mpi, MpiHere, Plan};
use crate::perf::{GRAPHS, Gpus, IN_GRAPH, Rank};
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

/// One way to do what a figure shows, at `x` (bytes, blocks or ranks). All ranks call the same methods in the same order,
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
    /// Allocates and connects what `x` needs; false: not measured at `x`. All ranks give the same answer.
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

/// Starts a library for all ranks, or for none: then its own reason. Collective.
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

/// Rounds of a sample with messages of `size` for each of which the CPU waits.
fn rounds_by_host(size: u64) -> u32 {
    200.min((256 << 20) / size.max(1)).max(4) as u32
}

/// The others that play, or why they do not.
struct Others<'a> {
    nccl: &'a Result<nccl::Nccl, String>,
    nvshmem: &'a Result<nvshmem::Nvshmem, String>,
    mpi: &'a Result<&'a Mpi, String>,
}

/// "two", or so many: the words by which recorded results are found.
fn number(ranks: usize) -> String {
    if ranks == 2 { "two".into() } else { ranks.to_string() }
}

/// The title of a figure of all ranks.
fn of_all(what: &str, gpus: &Gpus) -> String {
    let ranks = gpus.ranks();
    match gpus.is_shared() && ranks > 2 {
        true => format!("{what}, {ranks} ranks on one GPU"),
        false => format!("{what}, {} GPUs", number(ranks)),
    }
}

/// Measures as one of the ranks, of which each has one of the GPUs; the figures, sentences on the method and who is absent are
/// added to `results`.
///
/// # Errors
/// A player that fails and is not another library's.
pub(super) fn measure(
    (rank, plan, gpus): (&Rank, &Plan, &Gpus),
    mpi: MpiHere<'_>,
    journal: &Journal,
    bar: &ProgressBar,
    results: &mut Results,
) -> Result<()> {
    let two = gpus.ranks() == 2;
    let mut method = vec![format!(
        "GPUs: {}; {} repeats, the players in turn within each.",
        rank.ranks, plan.repeats
    )];
    method.extend(two.then(two::method).into_iter().flatten());
    method.push(format!("Collectives on streams: runs enqueued one after another and then waited for, by the CPU's clock, as many as move a GiB, at least 10 and at most one batch; in graphs of {IN_GRAPH} {GRAPHS} times as many; in kernels one block, by the GPU's clock. Bytes are those of the result; of a gathered or exchanged one each rank gives as many words as make that at most, and one at least."));
    let nccl = start((rank, journal), "NCCL", nccl::Nccl::start)?;
    method.push(match &nccl {
        Ok(nccl) => format!(
            "NCCL: {}, ncclAllReduce, ncclAllGather, ncclSend and ncclRecv on the stream, without NVLink multicast (NCCL_NVLS_ENABLE=0).",
            nccl.version()
        ),
        Err(reason) => format!("NCCL: absent: {reason}."),
    });
    // Its processes are others: whoever of them fails takes nobody along.
    let nvshmem = agree(&rank.world, nvshmem::Nvshmem::start(rank))?;
    method.push(match &nvshmem {
        Ok(nvshmem) => format!(
            "NVSHMEM: {}, {} processes of its own on the same GPUs, which play in turn with the others and are idle else, without NVLink multicast (NVSHMEM_DISABLE_NVLS=1).{}",
            nvshmem.version(),
            number(gpus.ranks()),
            if two { " In kernels: nvshmem_uint64_p or nvshmemx_putmem_signal_block, then a wait; bandwidth: nvshmemx_putmem_nbi_block, then quiet." } else { "" }
        ),
        Err(reason) => format!("NVSHMEM: absent: {reason}."),
    });
    if let (Ok(mpi), true) = (mpi, two) {
        method.push(format!("MPI between GPUs: a kernel packs the message into pinned memory, cuStreamSynchronize, MPI_Send to a pinned buffer ({}); beside tagged messages, which go from memory of a device to memory of a device: cuMemcpyDtoHAsync, cuStreamSynchronize, MPI_Send, MPI_Recv, cuMemcpyHtoDAsync, cuStreamSynchronize.", mpi.version()));
    }
    let mpi = mpi.map_err(str::to_owned);
    let others = Others { nccl: &nccl, nvshmem: &nvshmem, mpi: &mpi };
    let mut table = Figures { rank, journal, plan, bar, figures: Vec::new(), absent: Vec::new() };
    if two {
        two::streams(&mut table, &others)?;
        two::tagged(&mut table, &others)?;
        two::kernels(&mut table, &others)?;
        two::bandwidth(&mut table, &others)?;
        two::exchanges(&mut table, &others)?;
    }
    meetings(&mut table, &others, gpus)?;
    collectives(&mut table, &others, gpus)?;
    if two {
        two::alone(&mut table, &others)?;
    }
    let Figures { figures, absent, .. } = table;
    if let Ok(nvshmem) = nvshmem
        && let Err(error) = nvshmem.finish()
    {
        method.push(format!("NVSHMEM: failed after its last measurement: {error:#}."));
    }
    results.figures.extend(figures);
    results.method.extend(method);
    results.absent.extend(absent);
    Ok(())
}

/// Barriers of all ranks.
fn meetings(table: &mut Figures, others: &Others, gpus: &Gpus) -> Result<()> {
    let title = of_all("Barrier", gpus);
    let mut players: Players =
        ["kernel, ordering memory", "kernel, meeting only", "stream", "graph"]
            .map(ours::barrier)
            .into();
    players.extend(of("NVSHMEM", others.nvshmem, |nvshmem| {
        ["kernel", "stream", "graph"].map(|place| nvshmem.barrier(place)).into()
    }));
    let (barrier, _) = table.measure(&title, &[gpus.ranks() as u64], &mut players)?;
    let axes = (Axis::linear("ranks", ""), Axis::linear("barrier", "µs"));
    table.show(&title, Plot::Bars, axes, true, barrier);
    Ok(())
}

/// Collectives of all ranks that move bytes.
fn collectives(table: &mut Figures, others: &Others, gpus: &Gpus) -> Result<()> {
    for kind in collective::Kind::ALL {
        let (title, reduces) = (of_all(kind.name(), gpus), kind == collective::Kind::Reduce);
        let mut players: Players =
            [false, true].map(|captured| collective::stream(kind, captured)).into();
        players.extend(reduces.then(collective::kernel));
        players.extend(of("NCCL", others.nccl, |nccl| {
            [false, true].map(|captured| nccl.collective(kind, captured)).into()
        }));
        players.extend(of("NVSHMEM", others.nvshmem, |nvshmem| {
            let mut players: Players =
                [false, true].map(|captured| nvshmem.collective(kind, captured)).into();
            players.extend(reduces.then(|| nvshmem.all_reduce()));
            players
        }));
        let (series, _) = table.measure(&title, &collective::SIZES, &mut players)?;
        let axes = (Axis::log("result", "B"), Axis::log("one run", "µs"));
        table.show(&title, Plot::Lines, axes, true, series);
    }
    Ok(())
}

/// Points of a run, for a progress bar.
pub(super) fn points(plan: &Plan, gpus: &Gpus) -> u64 {
    let all = 1 + collective::Kind::ALL.len() * collective::SIZES.len();
    let two = if gpus.ranks() == 2 { two::points(plan.sizes.len()) } else { 0 };
    (all + two) as u64
}

struct Figures<'a> {
    rank: &'a Rank,
    journal: &'a Journal,
    plan: &'a Plan,
    bar: &'a ProgressBar,
    figures: Vec<Figure>,
    absent: Vec<Absent>,
}

impl Figures<'_> {
    /// The sizes of messages.
    fn sizes(&self) -> Vec<u64> {
        self.plan.sizes.iter().map(|&size| size as u64).collect()
    }

    /// Adds a figure, unless nothing of it was measured.
    fn show(
        &mut self,
        title: &str,
        plot: Plot,
        (x, y): (Axis, Axis),
        less_is_better: bool,
        series: Vec<Series>,
    ) {
        if !series.is_empty() {
            self.figures.push(Figure { title: title.into(), plot, x, y, less_is_better, series });
        }
    }

    /// What a player does, on all ranks; the reason if it fails on one and is another library's.
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

#[cfg(test)]
mod tests {
    use libmp::{Device, World};

    use super::*;
    use crate::perf::Devices;

    fn gpus(text: &str) -> Gpus {
        text.parse().unwrap()
    }

    #[test]
    fn titles_of_two_are_those_of_recorded_results_and_others_say_their_number() {
        for (text, title) in [
            ("0,1", "All-reduce, two GPUs"),
            ("0,0", "All-reduce, two GPUs"),
            ("0,1,2", "All-reduce, 3 GPUs"),
            ("3,2,1,0", "All-reduce, 4 GPUs"),
            ("0,0,0,0", "All-reduce, 4 ranks on one GPU"),
        ] {
            assert_eq!(of_all("All-reduce", &gpus(text)), title);
        }
    }

    /// What a rank on the host finds of every collective at these sizes, beside a library that is not here.
    fn found(world: World, places: &[u64]) -> Result<(Vec<Figure>, Vec<Absent>)> {
        let plan = Plan {
            sizes: vec![8],
            repeats: 2,
            budget: 1 << 16,
            devices: Devices::Host,
            only: Vec::new(),
        };
        let ranks = world.size();
        let rank = Rank::new(world, Device::Host, format!("{ranks} threads"))?;
        let (journal, bar) = (Journal::none(), ProgressBar::hidden());
        let (figures, absent) = (Vec::new(), Vec::new());
        let mut table =
            Figures { rank: &rank, journal: &journal, plan: &plan, bar: &bar, figures, absent };
        let nccl: Result<nccl::Nccl, String> =
            start((&rank, &journal), "NCCL", |rank| match rank.world.rank() {
                2 => anyhow::bail!("rank 2 has none"),
                _ => anyhow::bail!("so has nobody else"),
            })?;
        for kind in collective::Kind::ALL {
            let mut players: Players =
                [false, true].map(|captured| collective::stream(kind, captured)).into();
            players.extend(of("NCCL", &nccl, |nccl| vec![nccl.collective(kind, false)]));
            let (series, _) = table.measure(kind.name(), places, &mut players)?;
            let axes = (Axis::log("result", "B"), Axis::log("one run", "µs"));
            table.show(kind.name(), Plot::Lines, axes, true, series);
        }
        let Figures { figures, absent, .. } = table;
        rank.world.barrier()?;
        let Rank { world, .. } = rank;
        world.finish()?;
        Ok((figures, absent))
    }

    #[test]
    fn three_and_four_ranks_without_a_gpu_measure_every_collective_on_streams() {
        for ranks in [3, 4] {
            let all: Vec<_> = std::thread::scope(|scope| {
                let worlds = World::threads(ranks).unwrap();
                let threads: Vec<_> = worlds
                    .into_iter()
                    .map(|world| scope.spawn(|| found(world, &[8, 1 << 10]).unwrap()))
                    .collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            for (figures, absent) in &all {
                assert_eq!((figures.len(), absent.len()), (3, 3));
                assert!(absent.iter().all(|one| one.reason == "so has nobody else"), "{absent:?}");
                for figure in figures {
                    let names: Vec<_> = figure.series.iter().map(|one| one.name.as_str()).collect();
                    assert_eq!(names, ["libmp, stream", "libmp, graph"]);
                    for ours in &figure.series {
                        let points = ours.points.iter().map(|point| (point.x, point.samples.len()));
                        assert_eq!(points.collect::<Vec<_>>(), [(8.0, 2), (1024.0, 2)]);
                        let mut values = ours.points.iter().flat_map(|point| &point.samples);
                        assert!(values.all(|value| *value > 0.0), "{ours:?}");
                    }
                }
            }
        }
    }
}
