//! The suite: every combination of fault, phase and workload in turn, until the time is over.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::Value;

use crate::fault::{Fault, Phase, Workload};
use crate::job::{Ended, Job, Programs};
use crate::record::{Record, Run};
use crate::verdict::{judge, numbers};

/// Ranks of a job.
const RANKS: usize = 3;
/// How long a workload is meant to last.
pub(crate) const LENGTH: Duration = Duration::from_millis(1200);
/// Seconds for which the supervisor does not get a processor that say nothing about libmp any more: ranks are lost after
/// `SILENCE` seconds of silence, and a machine that is stopped, or far too busy, makes them silent. A run that goes
/// wrong then is kept as void and done again, so often at most.
const STALL: f64 = 0.5;
const AGAIN: usize = 3;
/// The job after a job, which has to run.
const NEXT: Duration = Duration::from_millis(100);

/// What to do.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Go on for so long; every combination is done once in any case.
    #[arg(long, default_value_t = 0.0, value_parser = minutes)]
    minutes: f64,
    /// One workload for each fault and phase instead of all: a few minutes.
    #[arg(long)]
    short: bool,
    /// What everything random follows from [default: drawn, and printed]
    #[arg(long)]
    seed: Option<u64>,
    /// Only combinations in whose name, such as "panic / middle / storm, host", this occurs.
    #[arg(long, default_value = "")]
    only: String,
    /// Write the runs to this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// A parser of minutes.
pub(crate) fn minutes(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(minutes) if (0.0..=1e6).contains(&minutes) => Ok(minutes),
        _ => Err("expected a number of minutes from 0 to 1000000".into()),
    }
}

/// Runs it. The exit status: 0, or 1 if anything was not as it should be.
pub fn run(options: &Options) -> Result<i32> {
    if let Some(path) = &options.json {
        mp_program::can_be_written(path)?;
    }
    let programs = Programs::find()?;
    let seed = options.seed.unwrap_or_else(|| rand::rng().random_range(0..1_000_000));
    mp_program::outln!("seed {seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let mut record = Record::begin(RANKS);
    let begin = Instant::now();
    let gpu = gpus() > 0;
    mp_program::outln!("GPU: {}", if gpu { "yes" } else { "none, and so no storm on one" });
    let hpgmg = combinations(options, gpu, &mut random).iter().any(|(_, _, w)| w.is_hpgmg());
    let (hpgmg_length, reference) =
        if hpgmg || options.short { calibrate(&programs, RANKS)? } else { (LENGTH, Value::Null) };
    let mut cycle = 0;
    loop {
        for (fault, phase, workload) in combinations(options, gpu, &mut random) {
            let first = usize::from(fault.spares_rank_0());
            let victim =
                if fault == Fault::PortTaken { 0 } else { random.random_range(first..RANKS) };
            let seed = random.random_range(0..1 << 32);
            let job = Job {
                fault: Some(fault),
                phase,
                workload,
                victim,
                ranks: RANKS,
                seed,
                length: if workload.is_hpgmg() { hpgmg_length } else { LENGTH },
                moment: Duration::ZERO,
                lingers: true,
            };
            add(&mut record, &options.json, begin, || one(&programs, &job, &reference))?;
            if cycle > 0 && record.minutes >= options.minutes {
                return Ok(end(&record));
            }
        }
        ensure!(!record.runs.is_empty(), "no combination has {:?} in its name", options.only);
        cycle += 1;
        if record.minutes >= options.minutes {
            return Ok(end(&record));
        }
    }
}

/// Adds a run to the record, and writes that. A run that went wrong while the machine stood still is done again.
pub(crate) fn add(
    record: &mut Record,
    json: &Option<PathBuf>,
    begin: Instant,
    run: impl Fn() -> Result<Run>,
) -> Result<()> {
    let mut last = run()?;
    for _ in 0..AGAIN {
        if last.problems.is_empty() || last.stalled < STALL {
            break;
        }
        mp_program::outln!(
            "    VOID: the machine stood still for {:.1} s: {:?}",
            last.stalled,
            last.problems
        );
        record.void.push(last);
        last = run()?;
    }
    show(&last);
    record.runs.push(last);
    record.minutes = begin.elapsed().as_secs_f64() / 60.0;
    if let Some(path) = json {
        mp_program::write(path, serde_json::to_string_pretty(&record)? + "\n")?;
    }
    Ok(())
}

/// The exit status, and a sentence.
pub(crate) fn end(record: &Record) -> i32 {
    let bad = record.runs.iter().filter(|run| !run.problems.is_empty()).count();
    mp_program::outln!(
        "{} runs in {:.1} minutes, {bad} not as they should be",
        record.runs.len(),
        record.minutes
    );
    i32::from(bad > 0)
}

fn name(fault: Fault, phase: Phase, workload: Workload) -> String {
    format!("{} / {} / {}", fault.name(), phase.name(), workload.name())
}

/// GPUs that a driver lets this process use.
fn gpus() -> u32 {
    libmp::gdsync::CudaDevice::count().unwrap_or(0)
}

fn combinations(
    options: &Options,
    gpu: bool,
    random: &mut SmallRng,
) -> Vec<(Fault, Phase, Workload)> {
    let mut all = Vec::new();
    for fault in Fault::ALL {
        for &phase in fault.phases() {
            let apply = Workload::ALL
                .into_iter()
                .filter(|&workload| workload.runs(gpu) && fault.applies(phase, workload));
            let mut workloads: Vec<Workload> = apply
                .filter(|&workload| name(fault, phase, workload).contains(&options.only))
                .collect();
            if options.short {
                workloads = workloads.choose(random).copied().into_iter().collect();
            }
            all.extend(workloads.into_iter().map(|workload| (fault, phase, workload)));
        }
    }
    all
}

/// One job with its fault, and one after it without.
fn one(programs: &Programs, job: &Job, reference: &Value) -> Result<Run> {
    let mut run = alone(programs, job, reference)?;
    let next = Job { fault: None, workload: Workload::StormHost, length: NEXT, ..job.clone() };
    let next_ended = next.run(programs)?;
    let next_verdict = judge(&next, &next_ended, None);
    if !next_verdict.problems.is_empty() {
        run.problems.push(format!("the next run: {}", next_verdict.problems.join("; ")));
        run.next_runs = false;
    }
    run.stalled = run.stalled.max(next_ended.stalled.as_secs_f64());
    Ok(run)
}

/// One job with its fault.
pub(crate) fn alone(programs: &Programs, job: &Job, reference: &Value) -> Result<Run> {
    let ended = job.run(programs)?;
    let verdict = judge(job, &ended, Some(reference));
    let fault = job.fault.context("a job of the suite has a fault")?;
    Ok(Run {
        fault,
        phase: job.phase,
        workload: job.workload,
        victim: job.victim,
        seed: job.seed,
        survivors: verdict.survivors,
        reports: verdict.reports,
        slowest: verdict.slowest.map(|duration| duration.as_secs_f64()),
        over: ended.struck.map(|struck| ended.over.saturating_duration_since(struck).as_secs_f64()),
        right: verdict.right,
        wrong: verdict.wrong,
        hung: ended.hung,
        orphans: ended.left.processes.len(),
        leaks: ended.left.others.len(),
        stalled: ended.stalled.as_secs_f64(),
        next_runs: true,
        problems: verdict.problems,
    })
}

fn show(run: &Run) {
    let result = match (run.right, run.survivors) {
        (true, _) => "right result".to_owned(),
        (false, survivors) => format!("{} of {survivors} name the cause", run.reports),
    };
    let after = run.slowest.map_or_else(String::new, |slowest| format!(", after {slowest:.3} s"));
    mp_program::outln!("{:<58} {result}{after}", name(run.fault, run.phase, run.workload));
    for problem in &run.problems {
        mp_program::outln!("    PROBLEM (victim {}, seed {}): {problem}", run.victim, run.seed);
    }
}

/// How long HPGMG takes here with so many ranks, and the numbers that it finds: the problem grows with them.
pub(crate) fn calibrate(programs: &Programs, ranks: usize) -> Result<(Duration, Value)> {
    let job = Job {
        fault: None,
        phase: Phase::Middle,
        workload: Workload::Hpgmg,
        victim: 0,
        ranks,
        seed: 0,
        length: LENGTH,
        moment: Duration::ZERO,
        lingers: true,
    };
    let (mut shortest, mut reference) = (Duration::MAX, None);
    // The first finds nothing in the caches: what is struck later takes no longer than the shortest.
    for _ in 0..3 {
        let begin = Instant::now();
        let Ended { status, lines, stdout, json, .. } = job.run(programs)?;
        ensure!(status == Some(0), "HPGMG-FV without a fault: {status:?}: {lines:?} {stdout}");
        shortest = shortest.min(begin.elapsed());
        reference = json.as_deref().and_then(numbers);
    }
    Ok((shortest, reference.context("HPGMG-FV wrote no result")?))
}
