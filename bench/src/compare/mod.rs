//! This library beside others and beside the bare machine, in one process set: two ranks, or for collectives as many as there are
//! GPUs to measure; the players in turn within each repeat, so that what disturbs the machine disturbs all. What is in this file runs on the host;
//! `gpu` is between GPUs.
//! Other libraries' players may fail: they are absent then, and the rest goes on (`absent`).

mod absent;
mod floor;
mod gpu;
mod launch;
mod mpi;
mod ours;
mod ucx;

use std::time::Instant;

use anyhow::{Context, Result};
use libmp::World;

use crate::perf::Devices;
use crate::result::{Absent, Axis, Figure, Plot, Point, Results, Role, Series};
use absent::{Journal, agree};

pub use launch::run;
use mpi::Mpi;
use ucx::Ucx;

/// What is measured, and how long.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Sizes of messages in bytes.
    pub sizes: Vec<usize>,
    /// Repeats of each point.
    pub repeats: usize,
    /// Bytes that one repeat of a point may move, which bounds its rounds.
    pub budget: usize,
    /// The GPUs.
    pub devices: Devices,
    /// What the titles of the figures to measure contain; empty: all figures.
    pub only: Vec<String>,
}

impl Plan {
    /// Whether a figure is asked for.
    fn shows(&self, title: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|word| title.contains(word.as_str()))
    }

    /// Rounds of one repeat with messages of `size`.
    fn rounds(&self, size: usize) -> usize {
        (self.budget / (size + 4096)).clamp(4, 2000)
    }
}

/// Messages in flight when bandwidth and rate are measured.
const IN_FLIGHT: usize = 32;

/// One way to move bytes between two ranks, and for all ranks to meet, which is all that more than two are asked for. All call the
/// same methods in the same order; all that a method started is complete when it returns.
trait Player {
    /// Name in figures.
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
    /// Allocates and connects what messages of `size` need.
    fn prepare(&mut self, size: usize) -> Result<()>;
    /// A message there and a message back, `rounds` times.
    fn ping_pong(&mut self, rounds: usize) -> Result<()>;
    /// [`IN_FLIGHT`] messages from rank 0 to rank 1 and an empty answer, `rounds` times. `None`: not measured with this
    /// player.
    fn stream(&mut self, rounds: usize) -> Result<Option<()>>;
    /// Both ranks send a message to each other and wait for the other's, `rounds` times. `None`: not measured with this
    /// player.
    fn exchange(&mut self, rounds: usize) -> Result<Option<()>>;
    /// All ranks meet, `rounds` times. Not behind [`prepare`](Player::prepare) where there are more than two. `None`: not measured with this player.
    fn meet(&mut self, rounds: usize) -> Result<Option<()>>;
}

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

    fn prepare(&mut self, _: usize) -> Result<()> {
        anyhow::bail!("{}", self.reason)
    }

    fn ping_pong(&mut self, _: usize) -> Result<()> {
        anyhow::bail!("{}", self.reason)
    }

    fn stream(&mut self, _: usize) -> Result<Option<()>> {
        anyhow::bail!("{}", self.reason)
    }

    fn exchange(&mut self, _: usize) -> Result<Option<()>> {
        anyhow::bail!("{}", self.reason)
    }

    fn meet(&mut self, _: usize) -> Result<Option<()>> {
        anyhow::bail!("{}", self.reason)
    }
}

/// MPI in this process, or why it is absent.
type MpiHere<'a> = Result<&'a Mpi, &'a str>;

/// The players of the host; of more than two ranks only those who can meet.
fn players<'a>(world: &'a World, mpi: MpiHere<'a>) -> Result<Vec<Box<dyn Player + 'a>>> {
    let mpi: Box<dyn Player + 'a> = match mpi {
        Ok(mpi) => Box::new(mpi.player(world.rank())),
        Err(reason) => Box::new(Missing { library: "MPI", reason: reason.into() }),
    };
    let ours: Box<dyn Player + 'a> = Box::new(ours::Ours::new(world));
    if world.size() > 2 {
        return Ok(vec![ours, mpi]);
    }
    let tagged: Box<dyn Player + 'a> = Box::new(ours::OursTagged::new(world)?);
    Ok(vec![ours, tagged, mpi, Box::new(floor::Floor::new(world))])
}

/// Measures, as one of the ranks. Rank 0 gets the figures, and who is absent from which; `tick` is called there after each
/// point.
///
/// # Errors
/// A player that fails and is not another library's.
fn rank(
    world: &World,
    plan: &Plan,
    players: Vec<Box<dyn Player + '_>>,
    journal: &Journal,
    tick: &dyn Fn(),
) -> Result<(Vec<Figure>, Vec<Absent>)> {
    let ranks = world.size();
    let failed = players.iter().map(|player| player.absent()).collect();
    let mut seats = Seats { world, plan, journal, failed, players };
    let figure = |title: &str, x: Axis, y: Axis, less_is_better| Figure {
        title: title.into(),
        plot: Plot::Lines,
        x,
        y,
        less_is_better,
        series: seats.series(),
    };
    let message = || Axis::log("message", "B");
    let mut latency = figure("Latency, host memory", message(), Axis::log("one way", "µs"), true);
    let mut bandwidth =
        figure("Bandwidth, host memory", message(), Axis::log("bandwidth", "GB/s"), false);
    let mut exchange =
        figure("Exchange, host memory", message(), Axis::log("exchange", "µs"), true);
    let mut meeting = Figure {
        plot: Plot::Bars,
        ..figure(&barrier(ranks), Axis::linear("ranks", ""), Axis::linear("barrier", "µs"), true)
    };
    // Messages are between two.
    let sizes = if ranks == 2 { plan.sizes.as_slice() } else { &[] };
    for &size in sizes {
        seats.each(|player| player.prepare(size).with_context(|| format!("preparing {size} B")))?;
        let rounds = plan.rounds(size);
        let one_way = 1e6 / (2 * rounds) as f64;
        let x = size as f64;
        seats.measure(
            (&mut latency, x, plan.repeats),
            |player| player.ping_pong(rounds).map(Some),
            |seconds| seconds * one_way,
        )?;
        tick();
        seats.measure(
            (&mut exchange, x, plan.repeats),
            |player| player.exchange(rounds),
            |seconds| seconds * 1e6 / rounds as f64,
        )?;
        tick();
        let rounds = (rounds / IN_FLIGHT).max(2);
        let moved = (rounds * IN_FLIGHT * size) as f64 * 1e-9;
        seats.measure(
            (&mut bandwidth, x, plan.repeats),
            |player| player.stream(rounds),
            |seconds| moved / seconds,
        )?;
        tick();
    }
    let rounds = 200;
    seats.measure(
        (&mut meeting, ranks as f64, plan.repeats),
        |player| player.meet(rounds),
        |seconds| seconds * 1e6 / rounds as f64,
    )?;
    tick();
    let mut figures = if ranks == 2 { vec![latency, bandwidth, exchange] } else { Vec::new() };
    figures.push(meeting);
    figures.retain(|figure| plan.shows(&figure.title));
    let mut absent = Vec::new();
    for figure in &mut figures {
        absent.extend(absent::missing((&figure.title, &figure.series), &seats.failed));
        figure.series.retain(|series| !series.points.is_empty());
    }
    Ok((figures, absent))
}

/// The title of the figure in which so many ranks meet.
fn barrier(ranks: usize) -> String {
    if ranks == 2 { "Barrier, host".into() } else { format!("Barrier, host, {ranks} ranks") }
}

/// Points that [`rank`] measures with a plan, for a progress bar.
fn points(plan: &Plan, ranks: usize) -> u64 {
    let sizes = if ranks == 2 { plan.sizes.len() as u64 } else { 0 };
    3 * sizes + 1
}

/// The method, in sentences.
fn method(plan: &Plan, ranks: usize, mpi: MpiHere<'_>) -> Vec<String> {
    let number = if ranks == 2 { "Two".into() } else { ranks.to_string() };
    let mut method = vec![format!(
        "{number} ranks; {} repeats of each point, the players in turn within each; clock of rank 0; median of the repeats.",
        plan.repeats
    )];
    let messages = [
        "Latency: half of a round trip. libmp: prepared send and receive, host form; tagged messages: from and into regions, matched when they meet, blocking; floor: memcpy into the peer's memory and one atomic word.".into(),
        "Exchange: both ranks send and wait for the other's message, nothing else.".into(),
        format!("Bandwidth: {IN_FLIGHT} messages in one direction, then an empty answer."),
    ];
    match ranks {
        2 => method.extend(messages),
        _ => method.push("Of more than two ranks only collectives are measured; latency, bandwidth and exchanges, of host memory and of GPUs, one-sided operations and all of UCX are between two.".into()),
    }
    method.push("Barrier: libmp's goes through an all-reduce of one prepared word on the data plane, MPI's is MPI_Barrier.".into());
    method.push(match mpi {
        Ok(mpi) => format!("MPI: {}.", mpi.version()),
        Err(reason) => format!("MPI: absent: {reason}."),
    });
    method
}

/// The players of a run on the host. One that fails plays no more.
struct Seats<'a> {
    world: &'a World,
    plan: &'a Plan,
    journal: &'a Journal,
    players: Vec<Box<dyn Player + 'a>>,
    /// Why those who failed did.
    failed: Vec<Option<String>>,
}

impl Seats<'_> {
    fn series(&self) -> Vec<Series> {
        let all = self.players.iter();
        all.map(|player| Series { name: player.name(), role: player.role(), points: Vec::new() })
            .collect()
    }

    /// What a player does, on all ranks; `None` if it is absent, from now on or since long. With the seconds it took.
    fn turn<T>(
        &mut self,
        number: usize,
        play: impl FnOnce(&mut dyn Player) -> Result<T>,
    ) -> Result<Option<(T, f64)>> {
        if self.failed[number].is_some() {
            return Ok(None);
        }
        let player = &mut self.players[number];
        let library = player.library();
        let inside = library.map(|name| self.journal.enter(self.world.rank(), name)).transpose()?;
        self.world.barrier()?;
        let begin = Instant::now();
        let played = play(player.as_mut());
        let seconds = begin.elapsed().as_secs_f64();
        drop(inside);
        if player.role() != Role::Peer {
            return Ok(Some((played.with_context(|| player.name())?, seconds)));
        }
        match agree(self.world, played)? {
            Ok(value) => Ok(Some((value, seconds))),
            Err(reason) => {
                self.failed[number] = Some(reason);
                Ok(None)
            }
        }
    }

    /// All players in turn.
    fn each(&mut self, play: impl Fn(&mut dyn Player) -> Result<()>) -> Result<()> {
        (0..self.players.len()).try_for_each(|number| self.turn(number, &play).map(drop))
    }

    /// One x of a figure: every player warms up once, then all in turn, so often.
    fn measure(
        &mut self,
        (figure, x, repeats): (&mut Figure, f64, usize),
        play: impl Fn(&mut dyn Player) -> Result<Option<()>>,
        value: impl Fn(f64) -> f64,
    ) -> Result<()> {
        if !self.plan.shows(&figure.title) {
            return Ok(());
        }
        let mut samples = vec![Vec::new(); self.players.len()];
        for repeat in 0..=repeats {
            for (number, samples) in samples.iter_mut().enumerate() {
                let turn = self.turn(number, |player| {
                    play(player).with_context(|| format!("{}, at {x}", figure.title))
                });
                if let Some((Some(()), seconds)) = turn?
                    && repeat > 0
                {
                    samples.push(value(seconds));
                }
            }
        }
        for ((series, samples), player) in figure.series.iter_mut().zip(samples).zip(&self.players)
        {
            if samples.is_empty() {
                continue;
            }
            let point = Point { x, samples, p99: None };
            if let (Some(library), 0) = (player.library(), self.world.rank()) {
                self.journal.keep(library, &figure.title, &series.name, &point)?;
            }
            series.points.push(point);
        }
        Ok(())
    }
}

/// Adds UCX's own measurements to the figures of `results`, or why it is absent from them.
fn add_ucx(results: &mut Results, plan: &Plan, ucx: Option<&Ucx>) {
    let Some(ucx) = ucx else {
        results.method.push("UCX: absent: no ucx_perftest here.".into());
        return;
    };
    results.method.push(format!(
        "UCX: {}, two processes of ucx_perftest over shared memory, after the others; latency tag_lat, bandwidth tag_bw.",
        ucx.version()
    ));
    let mut failed = None;
    for (title, test) in [("Latency, host memory", "tag_lat"), ("Bandwidth, host memory", "tag_bw")]
    {
        if !plan.shows(title) {
            continue;
        }
        let mut points = Vec::new();
        for &size in &plan.sizes {
            let mut samples = Vec::new();
            while failed.is_none() && samples.len() < plan.repeats.min(5) {
                match ucx.measure(test, size, plan.rounds(size)) {
                    Ok(sample) => samples.push(sample),
                    Err(error) => failed = Some(format!("{error:#}")),
                }
            }
            if !samples.is_empty() {
                points.push(Point { x: size as f64, samples, p99: None });
            }
        }
        if let Some(reason) = &failed {
            let (figure, player) = (title.into(), "UCX".into());
            results.absent.push(Absent { figure, player, reason: reason.clone() });
        }
        if let Some(figure) = results.figures.iter_mut().find(|figure| figure.title == title)
            && !points.is_empty()
        {
            figure.series.push(Series { name: "UCX".into(), role: Role::Peer, points });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of rank 0 and who is absent, by so many threads with the players that `more` adds to a rank.
    fn measured<'a>(
        (plan, ranks): (&Plan, usize),
        more: impl Fn(usize) -> Vec<Box<dyn Player + 'a>> + Sync,
    ) -> (Vec<Figure>, Vec<Absent>) {
        std::thread::scope(|scope| {
            let ranks: Vec<_> = World::threads(ranks)
                .unwrap()
                .into_iter()
                .map(|world| {
                    let more = &more;
                    scope.spawn(move || {
                        let mut all = players(&world, Err("not here")).unwrap();
                        all.extend(more(world.rank()));
                        let journal = Journal::none();
                        let found = rank(&world, plan, all, &journal, &|| ()).unwrap();
                        world.finish().unwrap();
                        found
                    })
                })
                .collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).next().unwrap()
        })
    }

    fn plan(sizes: &[usize]) -> Plan {
        Plan {
            sizes: sizes.into(),
            repeats: 2,
            budget: 1 << 16,
            devices: Devices::Host,
            only: Vec::new(),
        }
    }

    fn names(figure: &Figure) -> Vec<&str> {
        figure.series.iter().map(|series| series.name.as_str()).collect()
    }

    #[test]
    fn two_threads_measure_every_figure_with_every_player_there_is() {
        let (figures, absent) = measured((&plan(&[8, 4096]), 2), |_| Vec::new());
        assert_eq!(figures.len(), 4);
        for figure in &figures {
            assert!(names(figure).contains(&"libmp"), "{}: {:?}", figure.title, names(figure));
            for series in &figure.series {
                assert!(series.points.iter().all(|point| point.samples.len() == 2));
                assert!(series.points.iter().flat_map(|p| &p.samples).all(|value| *value > 0.0));
            }
            let of_mpi = |one: &&Absent| one.figure == figure.title && one.player == "MPI";
            assert_eq!(absent.iter().find(of_mpi).unwrap().reason, "not here");
        }
        let sizes: Vec<_> = figures[0].series[0].points.iter().map(|point| point.x).collect();
        assert_eq!(sizes, [8.0, 4096.0]);
    }

    #[test]
    fn more_than_two_ranks_meet_and_send_no_messages() {
        for (ranks, title) in [(3, "Barrier, host, 3 ranks"), (4, "Barrier, host, 4 ranks")] {
            let frail = |rank| -> Vec<Box<dyn Player>> {
                vec![Box::new(Frail { fails: rank == 2, size: 0, left: 0 })]
            };
            let (figures, absent) = measured((&plan(&[8, 4096]), ranks), frail);
            let titles: Vec<_> = figures.iter().map(|figure| figure.title.as_str()).collect();
            assert_eq!(titles, [title]);
            assert_eq!(names(&figures[0]), ["libmp", "frail"]);
            for series in &figures[0].series {
                let [point] = series.points.as_slice() else { panic!("{series:?}") };
                assert_eq!((point.x, point.samples.len()), (ranks as f64, 2));
            }
            assert_eq!((absent.len(), absent[0].player.as_str()), (1, "MPI"));
            let method = method(&plan(&[8, 4096]), ranks, Err("not here"));
            assert!(method[0].starts_with(&format!("{ranks} ranks;")), "{method:?}");
            assert!(method[1].contains("only collectives"), "{method:?}");
        }
    }

    /// Another library's player that fails on one rank, the second time it exchanges at 4096 bytes.
    struct Frail {
        fails: bool,
        size: usize,
        left: usize,
    }

    impl Player for Frail {
        fn name(&self) -> String {
            "frail".into()
        }

        fn role(&self) -> Role {
            Role::Peer
        }

        fn prepare(&mut self, size: usize) -> Result<()> {
            self.size = size;
            Ok(())
        }

        fn ping_pong(&mut self, _: usize) -> Result<()> {
            Ok(())
        }

        fn stream(&mut self, _: usize) -> Result<Option<()>> {
            Ok(None)
        }

        fn exchange(&mut self, _: usize) -> Result<Option<()>> {
            if self.fails && self.size == 4096 {
                self.left = self.left.checked_sub(1).context("its route is gone")?;
            }
            Ok(Some(()))
        }

        fn meet(&mut self, _: usize) -> Result<Option<()>> {
            Ok(Some(()))
        }
    }

    #[test]
    fn a_player_that_fails_on_one_rank_is_absent_on_both_and_what_it_gave_stays() {
        for failing in 0..2 {
            let frail = |rank| -> Vec<Box<dyn Player>> {
                vec![Box::new(Frail { fails: rank == failing, size: 0, left: 2 })]
            };
            let (figures, absent) = measured((&plan(&[8, 4096]), 2), frail);
            let absent: Vec<_> = absent.iter().filter(|one| one.player == "frail").collect();
            let titles: Vec<_> = absent.iter().map(|one| one.figure.as_str()).collect();
            // All of its latencies were there, and it never streams; of the exchanges one more sample was.
            let lacking = ["Bandwidth, host memory", "Exchange, host memory", "Barrier, host"];
            assert_eq!(titles, lacking);
            let reason = "Exchange, host memory, at 4096: its route is gone";
            assert!(absent.iter().all(|one| one.reason == reason), "{absent:?}");
            let samples = |figure: usize| -> Vec<usize> {
                let series = figures[figure].series.iter().find(|series| series.name == "frail");
                series.map_or(Vec::new(), |s| s.points.iter().map(|p| p.samples.len()).collect())
            };
            assert_eq!((samples(0), samples(2)), (vec![2, 2], vec![2, 1]));
            assert!(figures.iter().all(|figure| names(figure).contains(&"libmp")));
        }
    }
}
