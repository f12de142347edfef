//! What a barrier of all ranks costs: of the host, of streams, of graphs, of kernels.

use std::time::Instant;

use anyhow::Result;
use gdsync::{Arg, Dims};

use super::kernel::Watch;
use super::{BATCH, GRAPHS, IN_GRAPH, Rank, bar, in_graph, soon};
use crate::result::{Axis, Figure, Plot, Point, Role, Series};

/// What is measured.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Barriers of a repeat.
    pub rounds: u64,
    /// Repeats.
    pub repeats: u32,
    /// Of these barriers alone, by their name in the figure; `None`: of all.
    pub only: Option<&'static str>,
}

/// Measures.
///
/// # Errors
/// A barrier that fails.
pub fn measure(rank: &Rank, plan: &Plan) -> Result<Vec<Figure>> {
    let gpu = rank.device.as_cuda().is_some();
    let bar = bar(rank, if gpu && plan.only.is_none() { 5 } else { 1 })?;
    let mut series = Vec::new();
    let mut add = |name: &str, samples: Vec<f64>| {
        let points = vec![Point { x: rank.world.size() as f64, samples, p99: None }];
        series.push(Series { name: name.into(), role: Role::Ours, points });
        bar.inc(1);
    };
    // A call of `barriers` is `each` of them.
    let timed = |barriers: &dyn Fn() -> Result<()>,
                 each: u64,
                 rounds: u64,
                 end: &dyn Fn() -> Result<()>| {
        let (mut samples, rounds) = (Vec::new(), rounds.div_ceil(each) * each);
        for repeat in 0..=plan.repeats {
            let (mut elapsed, mut left) = (0.0, rounds);
            while left > 0 {
                let batch = left.min(if each == 1 { BATCH } else { GRAPHS * BATCH / each * each });
                rank.world.barrier()?;
                let since = Instant::now();
                (0..batch / each).try_for_each(|_| barriers())?;
                end()?;
                elapsed += since.elapsed().as_secs_f64();
                left -= batch;
            }
            // The first warms up.
            samples.extend((repeat > 0).then_some(elapsed * 1e6 / rounds as f64));
        }
        Ok::<_, anyhow::Error>(samples)
    };
    let wanted = |name: &str| plan.only.is_none_or(|only| only == name);
    if wanted("host") {
        let host = timed(&|| Ok(rank.world.barrier()?), 1, plan.rounds.div_ceil(20), &|| Ok(()))?;
        add("host", host);
    }
    if gpu {
        let barrier = rank.world.prepare_collective(&rank.device, 0)?;
        let stream = &rank.stream;
        let enqueue = |_| Ok(barrier.barrier().start_on(stream)?);
        let end = || Ok(rank.world.synchronize(stream, soon())?);
        if wanted("stream") {
            add("stream", timed(&|| enqueue(0), 1, plan.rounds, &end)?);
        }
        if wanted("graph") {
            let graph = in_graph(rank, enqueue)?;
            let replay = || Ok(stream.launch_graph(&graph)?);
            add("graph", timed(&replay, IN_GRAPH, GRAPHS * plan.rounds, &end)?);
        }
        let (collective, untimed) = (barrier.handle(), 100u64);
        let kernels = [("kernel, ordering memory", 1u32), ("kernel, meeting only", 0)];
        for (name, ordered) in kernels.into_iter().filter(|(name, _)| wanted(name)) {
            let watch = Watch::of_all(rank, plan.rounds)?;
            let time = watch.time();
            let mut samples = Vec::new();
            for repeat in 0..=plan.repeats {
                let args = [
                    Arg::new(&collective),
                    Arg::new(&untimed),
                    Arg::new(&watch.rounds),
                    Arg::new(&ordered),
                    Arg::new(&time),
                ];
                // SAFETY: the kernel's signature; barrier and watch outlive the launch, which `run` waits for.
                let rounds =
                    unsafe { watch.run(rank, "mp_perf_barrier", Dims::linear(1, 32), &args)? };
                samples.extend((repeat > 0).then_some(rounds.median));
            }
            add(name, samples);
        }
        rank.world.barrier()?;
    }
    bar.finish_and_clear();
    Ok(vec![Figure {
        title: "barrier".into(),
        plot: Plot::Bars,
        x: Axis::linear("ranks", ""),
        y: Axis::linear("one barrier", "µs"),
        less_is_better: true,
        series,
    }])
}

/// How it was measured.
pub fn method(rank: &Rank, plan: &Plan) -> Vec<String> {
    vec![format!(
        "Barriers of {}, one after another: {} a repeat (host: a twentieth), {} repeats; kernels: one warp, by the GPU's clock; streams, graphs of {IN_GRAPH} ({GRAPHS} times as many) and host: by the CPU's clock, batches of at most {BATCH}, of graphs {GRAPHS} times that; the time of all divided by their number.",
        rank.ranks, plan.rounds, plan.repeats
    )]
}
