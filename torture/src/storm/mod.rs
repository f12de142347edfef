//! The message storm: ranks that do random things to each other, each of which a model predicts. Whatever a rank receives is
//! compared with the model word by word; a difference is `Wrong`, the one thing that must never happen.
//!
//! A storm is a sequence of worlds; a world of generations (operations are prepared, used and dropped); a generation of
//! rounds. What a generation does is a function of seed, world and generation, so that every rank knows it and a seed repeats
//! it. Some generations have something of everything (`plan`, `play`), most are fast: floods of short messages (`flood`), or
//! messages in kernels (`device`, `launch`). `growth` looks at memory and descriptors meanwhile.

mod device;
mod flood;
mod growth;
mod launch;
mod plan;
mod play;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use libmp::{Config, World};
use serde::{Deserialize, Serialize};

use crate::mark::Mark;
use growth::{Growth, Measured};
pub use plan::Form;
use play::Play;
pub use play::Stop;

/// What a storm does.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// What everything random follows from; the same seed and ranks do the same again.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Ranks as threads of this process; without it this process is a rank of its launcher.
    #[arg(long, value_parser = clap::value_parser!(u16).range(2..=64))]
    pub threads: Option<u16>,
    /// How long.
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    pub seconds: f64,
    /// Who starts operations.
    #[arg(long, value_enum, default_value_t = Form::Mixed)]
    pub form: Form,
    /// Write what was done to this file, as JSON.
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// The rank that fails.
    #[arg(long, requires = "fault")]
    pub victim: Option<usize>,
    /// How it fails.
    #[arg(long, value_enum, requires = "victim")]
    pub fault: Option<Fault>,
    /// When it fails.
    #[arg(long, value_enum, default_value_t = Moment::Middle)]
    pub moment: Moment,
}

/// What a rank does to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Fault {
    /// Says when the moment has come, and goes on: somebody else does it.
    Announce,
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Stop,
    /// Exits with 0; a thread returns.
    Leave,
    /// Panics.
    Panic,
}

/// When.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Moment {
    /// Right after the first world has come about.
    Start,
    /// At some operation in the midst of it.
    Middle,
    /// Between the last operation and `finish`.
    Finish,
}

/// What a storm did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Seed.
    pub seed: u64,
    /// Ranks, and whether they were threads of one process.
    pub ranks: usize,
    /// Threads of one process rather than processes.
    pub threads: bool,
    /// Who started operations.
    pub form: String,
    /// Seconds.
    pub seconds: f64,
    /// Worlds that came and went.
    pub worlds: u64,
    /// Operations of all ranks: messages sent, messages received, puts, atomics, collectives.
    pub operations: u64,
    /// Messages that were received and compared with the model, among these operations.
    pub messages: u64,
    /// Words that were compared with the model on all ranks.
    pub words: u64,
    /// Seconds in launches of kernels, at rank 0.
    pub kernel_seconds: f64,
    /// Where kernels ran, if any did.
    pub kernels_on: Option<String>,
    /// How bytes went between ranks: `MP_PATH`.
    pub path: String,
    /// Memory in use after the first quarter of the worlds and at the end, largest rank, in KiB; in old records resident memory.
    #[serde(alias = "resident_kib")]
    pub memory_kib: [u64; 2],
    /// Growth of it by a line fitted through the samples after the first quarter, in KiB over that time.
    pub growth_kib: f64,
    /// Descriptors, likewise.
    pub descriptors: [u64; 2],
    /// Memory in use on the GPU, likewise, in MiB, and its growth; none without one.
    pub gpu_mib: Option<[u64; 2]>,
    pub gpu_growth_mib: Option<f64>,
    /// When it began, and what was run.
    pub date: String,
    pub build: String,
}

/// Shortest and longest storm in seconds.
fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=1e7).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number of seconds from 0.01 to 10000000".into()),
    }
}

/// Runs a storm: all ranks of it, if they are threads, or the one that this process is. The exit status: 0 if everything
/// was as the model says and nothing grew, 1 after a failure that libmp reported, 9 if something was wrong.
pub fn run(options: &Options) -> Result<i32> {
    if let Some(path) = &options.json {
        mp_program::can_be_written(path)?;
    }
    if let (Some(victim), Some(ranks)) = (options.victim, options.threads) {
        ensure!(victim < ranks.into(), "--victim {victim}: there are only {ranks} ranks, from 0");
    }
    let stops = match options.threads {
        Some(ranks) => on_threads(options, usize::from(ranks))?,
        None => vec![rank(options, &mut || Ok(World::init()?), true)],
    };
    let mut status = 0;
    for stop in stops {
        status = status.max(match stop {
            Ok(()) => 0,
            Err(Stop::Failed(_)) => 1,
            Err(Stop::Wrong(_)) => 9,
        });
    }
    Ok(status)
}

/// All ranks as threads: each world's handles are handed out anew.
fn on_threads(options: &Options, ranks: usize) -> Result<Vec<Result<(), Stop>>> {
    let config = Config::from_env()?;
    // Whoever comes first makes the world for all.
    let shelf: std::sync::Mutex<Vec<std::collections::VecDeque<World>>> =
        std::sync::Mutex::new((0..ranks).map(|_| Default::default()).collect());
    let next = |rank: usize| -> Result<World> {
        let mut shelf = shelf.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if shelf[rank].is_empty() {
            let worlds = World::threads_with_config(ranks, &config)?;
            shelf.iter_mut().zip(worlds).for_each(|(place, world)| place.push_back(world));
        }
        shelf[rank].pop_front().context("a world of fewer ranks than asked for")
    };
    std::thread::scope(|scope| {
        let next = &next;
        let spawn = |rank_number: usize| {
            let name = format!("rank-{rank_number}");
            std::thread::Builder::new().name(name).spawn_scoped(scope, move || {
                rank(options, &mut || next(rank_number), rank_number == 0)
            })
        };
        let started: std::io::Result<Vec<_>> = (0..ranks).map(spawn).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<(), Stop>>| {
            thread.join().unwrap_or_else(|_| Err(Stop::Failed("it panicked".into())))
        };
        Ok(started.context("starting threads")?.into_iter().map(join).collect())
    })
}

/// One rank, from its first world to its last. It says on standard error how it ended.
fn rank(
    options: &Options,
    world: &mut dyn FnMut() -> Result<World>,
    measures: bool,
) -> Result<(), Stop> {
    let mut mark = Mark::default();
    let result = worlds(options, world, measures, &mut mark);
    match &result {
        Ok(()) => mark.say("finished"),
        Err(stop) => mark.say_stop(stop),
    }
    result
}

fn worlds(
    options: &Options,
    world: &mut dyn FnMut() -> Result<World>,
    measures: bool,
    mark: &mut Mark,
) -> Result<(), Stop> {
    let begin = Instant::now();
    let until = begin + Duration::from_secs_f64(options.seconds);
    let date = crate::record::now();
    let mut growth = Growth::default();
    let mut play = Play::new(options);
    let mut number = 0;
    loop {
        let world = world().map_err(|error| Stop::Failed(format!("{error:#}")))?;
        mark.rank = Some(world.rank());
        if let Some(victim) = options.victim.filter(|victim| *victim >= world.size()) {
            let ranks = world.size();
            return Err(Stop::Failed(format!(
                "--victim {victim}: there are only {ranks} ranks, from 0"
            )));
        }
        let played = play.one(&world, number, until, mark);
        if let Err(stop) = &played {
            // Before the world is dropped, which takes its time to get the last word out.
            mark.say_stop(stop);
        }
        let totals = played?;
        let ranks = world.size();
        world.finish()?;
        number += 1;
        // Threads share one process: one of them looks at it.
        if measures || options.threads.is_none() {
            let gpu = play.machine.as_ref().and_then(|machine| machine.device().as_cuda());
            growth
                .sample(begin.elapsed().as_secs_f64(), gpu)
                .map_err(|e| Stop::Failed(format!("{e:#}")))?;
        }
        if let Some(totals) = totals {
            let kernels_on = play.machine.as_ref().map(|machine| machine.name());
            let measured = growth.result();
            let summary = Summary {
                seed: options.seed,
                ranks,
                threads: options.threads.is_some(),
                form: options.form.to_string(),
                seconds: begin.elapsed().as_secs_f64(),
                worlds: number,
                operations: totals.operations,
                messages: totals.messages,
                words: totals.words,
                kernel_seconds: play.kernel_seconds,
                kernels_on,
                path: path(),
                memory_kib: measured.memory_kib,
                growth_kib: measured.growth_kib,
                descriptors: measured.descriptors,
                gpu_mib: measured.gpu_mib,
                gpu_growth_mib: measured.gpu_growth_mib,
                date,
                build: crate::record::build(),
            };
            return end(options, mark, &measured, &summary)
                .map_err(|error| Stop::Failed(format!("{error:#}")));
        }
    }
}

/// Rank 0 reports; every rank that measures checks that nothing grew.
fn end(options: &Options, mark: &Mark, measured: &Measured, summary: &Summary) -> Result<()> {
    if mark.rank == Some(0) {
        let json = serde_json::to_string(summary)?;
        mp_program::outln!("storm: {json}");
        if let Some(path) = &options.json {
            mp_program::write(path, json + "\n")?;
        }
    }
    ensure!(measured.is_flat(), "it grew: {measured:?}");
    Ok(())
}

/// How bytes go between ranks, as the environment of all of them says.
fn path() -> String {
    std::env::var("MP_PATH").unwrap_or_else(|_| "auto".into())
}

/// Reads a summary back.
///
/// # Errors
/// If the text is none.
pub fn read(text: &str) -> Result<Summary> {
    let Ok(summary) = serde_json::from_str(text) else { bail!("this is no summary of a storm") };
    Ok(summary)
}
