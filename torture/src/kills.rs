//! Kills at random moments: a rank of a job, whichever and whenever, on every workload and path that runs without a GPU. Every
//! survivor and `mprun` must name the right rank, soon, in the start too, and nothing may be left.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::fault::{Fault, Phase, Workload};
use crate::job::{Job, Programs};
use crate::record::Record;
use crate::suite::{LENGTH, add, alone, calibrate, end};

/// Fewest and most ranks of a job.
const FEWEST: usize = 2;
const MOST: usize = 5;
/// One kill in so many comes while the ranks start, in this time.
const STARTING: (u32, Duration) = (3, Duration::from_millis(250));

/// What to do.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// How many.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    runs: u32,
    /// What everything random follows from [default: drawn, and printed]
    #[arg(long)]
    seed: Option<u64>,
    /// Only workloads in whose name, such as "storm, host", this occurs.
    #[arg(long, default_value = "")]
    only: String,
    /// Write the runs to this file.
    #[arg(long)]
    json: Option<PathBuf>,
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
    let mut record = Record::begin(MOST);
    let begin = Instant::now();
    let workloads: Vec<Workload> = Workload::ALL
        .into_iter()
        .filter(|workload| workload.runs(false) && !workload.is_threads())
        .filter(|workload| workload.name().contains(&options.only))
        .collect();
    ensure!(!workloads.is_empty(), "no workload has {:?} in its name", options.only);
    // Of each number of ranks.
    let with_hpgmg = workloads.iter().any(|workload| workload.is_hpgmg());
    let hpgmg = (FEWEST..=MOST).filter(|_| with_hpgmg);
    let hpgmg = hpgmg.map(|ranks| calibrate(&programs, ranks)).collect::<Result<Vec<_>>>()?;
    for _ in 0..options.runs {
        let Some(&workload) = workloads.choose(&mut random) else { continue };
        let ranks = random.random_range(FEWEST..=MOST);
        let undisturbed = hpgmg.get(ranks - FEWEST).filter(|_| workload.is_hpgmg());
        let (length, reference) = undisturbed
            .map_or((LENGTH, &serde_json::Value::Null), |(length, json)| (*length, json));
        let longest = match random.random_range(0..STARTING.0) {
            0 => STARTING.1,
            _ => length + STARTING.1,
        };
        let job = Job {
            fault: Some(Fault::Killed),
            phase: Phase::Random,
            workload,
            victim: random.random_range(0..ranks),
            ranks,
            seed: random.random_range(0..1 << 32),
            length,
            moment: longest.mul_f64(random.random_range(0.0..1.0)),
            // Without, mprun's word is all there is.
            lingers: random.random_range(0..3) > 0,
        };
        add(&mut record, &options.json, begin, || alone(&programs, &job, reference))?;
    }
    Ok(end(&record))
}
