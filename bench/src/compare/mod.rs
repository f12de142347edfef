//! This library beside others and beside the bare machine, in one process set: two ranks, the players in turn within each
//! repeat, so that what disturbs the machine disturbs all. What is in this file runs on the host; `gpu` is between two GPUs.

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
use crate::result::{Axis, Figure, Plot, Point, Results, Role, Series};

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
}

impl Plan {
    /// Rounds of one repeat with messages of `size`.
    fn rounds(&self, size: usize) -> usize {
        (self.budget / (size + 4096)).clamp(4, 2000)
    }
}

/// Messages in flight when bandwidth and rate are measured.
const IN_FLIGHT: usize = 32;

/// One way to move bytes between two ranks. Both ranks call the same methods in the same order; all that a method started
/// is complete when it returns.
trait Player {
    /// Name in figures.
    fn name(&self) -> String;
    /// What it is.
    fn role(&self) -> Role;
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
    /// Both ranks meet, `rounds` times. `None`: not measured with this player.
    fn meet(&mut self, rounds: usize) -> Result<Option<()>>;
}

/// Measures, as one of two ranks. Rank 0 gets the figures; `tick` is called there after each point.
///
/// # Errors
/// A player that fails.
fn rank(world: &World, plan: &Plan, mpi: Option<&Mpi>, tick: &dyn Fn()) -> Result<Vec<Figure>> {
    anyhow::ensure!(world.size() == 2, "compare needs 2 ranks, this world has {}", world.size());
    let mut players: Vec<Box<dyn Player + '_>> = vec![Box::new(ours::Ours::new(world))];
    if let Some(mpi) = mpi {
        players.push(Box::new(mpi.player(world.rank())));
    }
    players.push(Box::new(floor::Floor::new(world)));
    let (mut latency, mut bandwidth) = (Table::new(&players), Table::new(&players));
    let mut exchange = Table::new(&players);
    for &size in &plan.sizes {
        for player in &mut players {
            player.prepare(size).with_context(|| format!("{}, {size} B", player.name()))?;
        }
        let rounds = plan.rounds(size);
        let one_way = 1e6 / (2 * rounds) as f64;
        latency.measure(
            world,
            plan,
            size as f64,
            &mut players,
            |player| {
                player.ping_pong(rounds)?;
                Ok(Some(rounds))
            },
            |seconds| seconds * one_way,
        )?;
        tick();
        exchange.measure(
            world,
            plan,
            size as f64,
            &mut players,
            |player| Ok(player.exchange(rounds)?.map(|()| rounds)),
            |seconds| seconds * 1e6 / rounds as f64,
        )?;
        tick();
        let rounds = (rounds / IN_FLIGHT).max(2);
        let moved = (rounds * IN_FLIGHT * size) as f64 * 1e-9;
        bandwidth.measure(
            world,
            plan,
            size as f64,
            &mut players,
            |player| Ok(player.stream(rounds)?.map(|()| rounds)),
            |seconds| moved / seconds,
        )?;
        tick();
    }
    let mut meeting = Table::new(&players);
    let rounds = 200;
    meeting.measure(
        world,
        plan,
        2.0,
        &mut players,
        |player| Ok(player.meet(rounds)?.map(|()| rounds)),
        |seconds| seconds * 1e6 / rounds as f64,
    )?;
    tick();
    Ok(vec![
        Figure {
            title: "Latency, host memory".into(),
            plot: Plot::Lines,
            x: Axis::log("message", "B"),
            y: Axis::log("one way", "µs"),
            less_is_better: true,
            series: latency.series,
        },
        Figure {
            title: "Bandwidth, host memory".into(),
            plot: Plot::Lines,
            x: Axis::log("message", "B"),
            y: Axis::log("bandwidth", "GB/s"),
            less_is_better: false,
            series: bandwidth.without_empty(),
        },
        Figure {
            title: "Exchange, host memory".into(),
            plot: Plot::Lines,
            x: Axis::log("message", "B"),
            y: Axis::log("exchange", "µs"),
            less_is_better: true,
            series: exchange.without_empty(),
        },
        Figure {
            title: "Barrier, host".into(),
            plot: Plot::Bars,
            x: Axis::linear("ranks", ""),
            y: Axis::linear("barrier", "µs"),
            less_is_better: true,
            series: meeting.without_empty(),
        },
    ])
}

/// Points that [`rank`] measures with a plan, for a progress bar.
fn points(plan: &Plan) -> u64 {
    3 * plan.sizes.len() as u64 + 1
}

/// The method, in sentences.
fn method(plan: &Plan, mpi: Option<&Mpi>) -> Vec<String> {
    let mut method = vec![
        format!(
            "Two ranks; {} repeats of each point, the players in turn within each; clock of rank 0; median of the repeats.",
            plan.repeats
        ),
        "Latency: half of a round trip. libmp: prepared send and receive, host form; floor: memcpy into the peer's memory and one atomic word.".into(),
        "Exchange: both ranks send and wait for the other's message, nothing else.".into(),
        format!("Bandwidth: {IN_FLIGHT} messages in one direction, then an empty answer."),
        "Barrier: libmp's goes through an all-reduce of one prepared word on the data plane, MPI's is MPI_Barrier.".into(),
    ];
    method.push(match mpi {
        Some(mpi) => format!("MPI: {}.", mpi.version()),
        None => {
            "MPI: absent (no libmpi.so.40 or no mpirun here, or both ranks are on one GPU).".into()
        }
    });
    method
}

/// A figure as it grows.
struct Table {
    series: Vec<Series>,
}

impl Table {
    fn new(players: &[Box<dyn Player + '_>]) -> Table {
        let mut table = Table { series: Vec::new() };
        for player in players {
            let (name, role) = (player.name(), player.role());
            table.series.push(Series { name, role, points: Vec::new() });
        }
        table
    }

    /// One x: every player warms up once, then all in turn, `plan.repeats` times.
    fn measure(
        &mut self,
        world: &World,
        plan: &Plan,
        x: f64,
        players: &mut [Box<dyn Player + '_>],
        play: impl Fn(&mut dyn Player) -> Result<Option<usize>>,
        value: impl Fn(f64) -> f64,
    ) -> Result<()> {
        let mut samples = vec![Vec::new(); players.len()];
        for repeat in 0..=plan.repeats {
            for (player, samples) in players.iter_mut().zip(&mut samples) {
                world.barrier()?;
                let begin = Instant::now();
                let played =
                    play(player.as_mut()).with_context(|| format!("{}, at {x}", player.name()))?;
                if played.is_some() && repeat > 0 {
                    samples.push(value(begin.elapsed().as_secs_f64()));
                }
            }
        }
        for (series, samples) in self.series.iter_mut().zip(samples) {
            if !samples.is_empty() {
                series.points.push(Point { x, samples, p99: None });
            }
        }
        Ok(())
    }

    fn without_empty(self) -> Vec<Series> {
        self.series.into_iter().filter(|series| !series.points.is_empty()).collect()
    }
}

/// Adds UCX's own measurements to the figures of `results`, where its program is installed.
///
/// # Errors
/// `ucx_perftest` is there and fails.
fn add_ucx(results: &mut Results, plan: &Plan, ucx: Option<&Ucx>) -> Result<()> {
    let Some(ucx) = ucx else {
        results.method.push("UCX: absent (no ucx_perftest here).".into());
        return Ok(());
    };
    results.method.push(format!(
        "UCX: {}, two processes of ucx_perftest over shared memory, after the others; latency tag_lat, bandwidth tag_bw.",
        ucx.version()
    ));
    for (title, test) in [("Latency, host memory", "tag_lat"), ("Bandwidth, host memory", "tag_bw")]
    {
        let mut points = Vec::new();
        for &size in &plan.sizes {
            let rounds = plan.rounds(size);
            let samples = (0..plan.repeats.min(5))
                .map(|_| ucx.measure(test, size, rounds))
                .collect::<Result<_>>()?;
            points.push(Point { x: size as f64, samples, p99: None });
        }
        if let Some(figure) = results.figures.iter_mut().find(|figure| figure.title == title) {
            figure.series.push(Series { name: "UCX".into(), role: Role::Peer, points });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_threads_measure_every_figure_with_every_player_there_is() {
        let plan =
            Plan { sizes: vec![8, 4096], repeats: 2, budget: 1 << 16, devices: Devices::Host };
        let figures = std::thread::scope(|scope| {
            let ranks: Vec<_> = World::threads(2)
                .unwrap()
                .into_iter()
                .map(|world| {
                    let plan = &plan;
                    scope.spawn(move || {
                        let figures = rank(&world, plan, None, &|| ()).unwrap();
                        world.finish().unwrap();
                        figures
                    })
                })
                .collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(figures[0].len(), 4);
        for figure in &figures[0] {
            let names: Vec<_> = figure.series.iter().map(|series| series.name.as_str()).collect();
            assert!(names.contains(&"libmp"), "{}: {names:?}", figure.title);
            for series in &figure.series {
                assert!(series.points.iter().all(|point| point.samples.len() == 2));
                assert!(series.points.iter().flat_map(|p| &p.samples).all(|value| *value > 0.0));
            }
        }
        let sizes: Vec<_> = figures[0][0].series[0].points.iter().map(|point| point.x).collect();
        assert_eq!(sizes, [8.0, 4096.0]);
    }
}
