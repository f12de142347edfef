//! A soak: a storm of messages of four ranks on two hosts, and beside it one HPGMG-FV job after another, all between hosts whose
//! cable is bad ([`crate::cable`]). Every word of the storm is compared with its model, every solve with the numbers of a run
//! without a cable; memory and descriptors of the storm's ranks must stay flat.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rand::Rng;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cable::{Counts, Hosts};
use crate::job::{Programs, clean};
use crate::leaks::Before;
use crate::mark::FOLDER;
use crate::record::Origin;
use crate::storm::Summary;
use crate::verdict::numbers;

/// Ranks, half of them on each host.
const RANKS: usize = 4;
/// The weather on the cable changes so often; in a short soak, so often that there is each of it, and a cut, twice.
const SPELL: Duration = Duration::from_secs(5);
const SPELLS: u32 = 12;
/// Where ranks meet: the storm's, and the solves'.
const STORM_PORT: &str = "29401";
const SOLVE_PORT: &str = "29402";
/// A solve that takes so long, or a storm that goes on for so long after its end, has hung.
const PATIENCE: Duration = Duration::from_secs(180);
/// How often the supervisor looks.
const LOOK: Duration = Duration::from_millis(20);
/// What starts the messages of a solve, in turn.
const COMMS: [&str; 3] = ["host", "stream", "kernel"];

/// What to do.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// How long the storm goes on.
    #[arg(long, default_value_t = 60.0, value_parser = mp_program::within(0.05..=1e6))]
    minutes: f64,
    /// What everything random follows from [default: drawn, and printed]
    #[arg(long)]
    seed: Option<u64>,
    /// Write what was done to this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Solves whose messages were started in one way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Solves {
    pub comm: String,
    pub jobs: usize,
    /// Those that ended in order with the numbers of the run without a cable.
    pub right: usize,
    /// Seconds of the longest.
    pub longest: f64,
}

/// What a soak came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Soak {
    #[serde(flatten)]
    pub origin: Origin,
    pub minutes: f64,
    pub cable: Counts,
    pub storm: Option<Summary>,
    pub solves: Vec<Solves>,
    /// Everything that should have been otherwise.
    pub problems: Vec<String>,
}

/// Runs it. The exit status: 0, or 1 if anything was not as it should be.
pub fn run(options: &Options) -> Result<i32> {
    if let Some(path) = &options.json {
        mp_program::can_be_written(path)?;
    }
    let programs = Programs::find()?;
    let seed = options.seed.unwrap_or_else(|| rand::rng().random_range(0..1_000_000));
    mp_program::outln!("seed {seed}");
    let mut soak = Soak {
        origin: Origin::here(),
        minutes: options.minutes,
        cable: Counts::default(),
        storm: None,
        solves: Vec::new(),
        problems: Vec::new(),
    };
    let folder = tempfile::tempdir().context("a folder for the soak")?;
    let folder = folder.path();
    let before = Before::look()?;
    let reference = undisturbed(&programs, folder)?;
    let length = Duration::from_secs_f64(options.minutes * 60.0);
    let hosts = Hosts::new(seed, SPELL.min(length / SPELLS))?;

    let json = folder.join("storm.json");
    let seconds = length.as_secs_f64().to_string();
    let mut storm = Job::start(&hosts, STORM_PORT, folder, "storm", |command| {
        command.arg(&programs.torture).args(["storm", "--form", "mixed", "--seconds", &seconds]);
        command.args(["--seed", &seed.to_string()]).arg("--json").arg(&json);
    })?;
    let until = Instant::now() + length;
    // At least once in each way, and as long as the storm lasts.
    for number in 0.. {
        if number >= COMMS.len() && (Instant::now() >= until || storm.is_over()?) {
            break;
        }
        let solve = solve(&hosts, &programs, folder, COMMS[number % COMMS.len()], &reference)?;
        soak.add(solve);
    }
    if let Err(why) = storm.end(until + PATIENCE)? {
        soak.problems.push(format!("the storm: {why}"));
    }
    soak.storm =
        std::fs::read_to_string(&json).ok().and_then(|text| crate::storm::read(&text).ok());
    soak.cable = hosts.end()?;
    let left = before.left(folder, None)?;
    if left != Default::default() {
        soak.problems.push(format!("left behind: {left:?}"));
    }
    soak.minutes = (Instant::now() + length - until).as_secs_f64() / 60.0;
    if let Some(path) = &options.json {
        mp_program::write(path, serde_json::to_string_pretty(&soak)? + "\n")?;
    }
    soak.say();
    Ok(i32::from(!soak.problems.is_empty()))
}

impl Soak {
    /// Counts a solve: what started its messages, how long it took, and what was wrong with it.
    fn add(&mut self, (comm, seconds, wrong): (&str, f64, Option<String>)) {
        let place = self.solves.iter().position(|solves| solves.comm == comm);
        let place = place.unwrap_or_else(|| {
            self.solves.push(Solves { comm: comm.into(), jobs: 0, right: 0, longest: 0.0 });
            self.solves.len() - 1
        });
        let solves = &mut self.solves[place];
        solves.jobs += 1;
        solves.right += usize::from(wrong.is_none());
        solves.longest = solves.longest.max(seconds);
        if let Some(wrong) = wrong {
            mp_program::outln!("    PROBLEM: {wrong}");
            self.problems.push(wrong);
        }
    }

    fn say(&self) {
        if let Some(storm) = &self.storm {
            mp_program::outln!(
                "storm: {} operations, {} words compared, {} worlds",
                storm.operations,
                storm.words,
                storm.worlds
            );
        }
        for Solves { comm, jobs, right, longest } in &self.solves {
            mp_program::outln!("HPGMG-FV, {comm}: {right} of {jobs} right, longest {longest:.1} s");
        }
        mp_program::outln!("cable: {:?}", self.cable);
        mp_program::outln!(
            "{:.1} minutes, {} not as it should be",
            self.minutes,
            self.problems.len()
        );
        for problem in &self.problems {
            mp_program::outln!("    {problem}");
        }
    }
}

/// What HPGMG-FV finds where no cable disturbs it.
fn undisturbed(programs: &Programs, folder: &Path) -> Result<Value> {
    let json = folder.join("undisturbed.json");
    let mut command = Command::new(&programs.hpgmg);
    let ranks = RANKS.to_string();
    clean(&mut command).args(PROBLEM).args(["--ranks", &ranks, "--json"]).arg(&json);
    let output = command.output().context("starting HPGMG-FV")?;
    let said = String::from_utf8_lossy(&output.stderr);
    let found = std::fs::read_to_string(&json).ok().and_then(|text| numbers(&text));
    found.with_context(|| format!("HPGMG-FV without a cable: {}: {said}", output.status))
}

/// The smallest problem in which every rank has boxes and neighbours on both hosts.
const PROBLEM: [&str; 8] = ["4", "8", "--threads", "1", "--device", "cpu", "--solves", "1"];

/// One job of HPGMG-FV between the hosts: its way, its seconds, and what was wrong.
fn solve<'a>(
    hosts: &Hosts,
    programs: &Programs,
    folder: &Path,
    comm: &'a str,
    reference: &Value,
) -> Result<(&'a str, f64, Option<String>)> {
    let json = folder.join("solve.json");
    let _ = std::fs::remove_file(&json);
    let begin = Instant::now();
    let mut job = Job::start(hosts, SOLVE_PORT, folder, "solve", |command| {
        command.arg(&programs.hpgmg).args(PROBLEM).args(["--comm", comm, "--json"]).arg(&json);
    })?;
    let wrong = match job.end(begin + PATIENCE)? {
        Err(why) => Some(why),
        Ok(()) => {
            let found = std::fs::read_to_string(&json).ok().and_then(|text| numbers(&text));
            let same = found.as_ref() == Some(reference);
            (!same).then(|| format!("found {found:?}, without a cable {reference}"))
        }
    };
    let wrong = wrong.map(|wrong| format!("HPGMG-FV, {comm}: {wrong}"));
    Ok((comm, begin.elapsed().as_secs_f64(), wrong))
}

/// The ranks of a job between the hosts, started as torchrun does.
struct Job<'a> {
    ranks: Vec<Child>,
    folder: &'a Path,
    name: &'a str,
}

impl<'a> Job<'a> {
    /// Starts all ranks of what `program` adds to a command.
    fn start(
        hosts: &Hosts,
        port: &str,
        folder: &'a Path,
        name: &'a str,
        program: impl Fn(&mut Command),
    ) -> Result<Job<'a>> {
        let mut job = Job { ranks: Vec::new(), folder, name };
        for rank in 0..RANKS {
            let (host, local) = (rank / (RANKS / 2), rank % (RANKS / 2));
            let mut command = hosts.command(host);
            program(clean(&mut command));
            command
                .env(FOLDER, folder)
                .env("RANK", rank.to_string())
                .env("WORLD_SIZE", RANKS.to_string())
                .env("LOCAL_RANK", local.to_string())
                .env("LOCAL_WORLD_SIZE", (RANKS / 2).to_string())
                .env("MASTER_ADDR", Hosts::ADDRESS)
                .env("MASTER_PORT", port)
                // The namespaces share a kernel, which is what makes a host.
                .env("MP_NODE", format!("host {host}"))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(File::create(job.said_at(rank)).context("a file for standard error")?);
            job.ranks.push(command.spawn().with_context(|| format!("starting {command:?}"))?);
        }
        Ok(job)
    }

    fn said_at(&self, rank: usize) -> PathBuf {
        self.folder.join(format!("{}-{rank}.err", self.name))
    }

    /// Whether no rank runs any more.
    fn is_over(&mut self) -> Result<bool> {
        for rank in &mut self.ranks {
            if rank.try_wait().context("waiting for a rank")?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits for all ranks, and kills what runs after `until`; what they said, if not all ended in order.
    fn end(&mut self, until: Instant) -> Result<Result<(), String>> {
        let mut hung = false;
        while !self.is_over()? {
            if Instant::now() >= until && !hung {
                hung = true;
                self.kill();
            }
            std::thread::sleep(LOOK);
        }
        let mut wrong = Vec::new();
        for rank in 0..self.ranks.len() {
            let status = self.ranks[rank].wait().context("waiting for a rank")?;
            if !status.success() {
                let said = std::fs::read_to_string(self.said_at(rank)).unwrap_or_default();
                wrong.push(format!("rank {rank}, {status}: {}", said.trim_end()));
            }
        }
        let hung = if hung { "hung, and was killed: " } else { "" };
        Ok(if wrong.is_empty() { Ok(()) } else { Err(format!("{hung}{}", wrong.join("; "))) })
    }

    fn kill(&mut self) {
        for rank in &mut self.ranks {
            // It has ended: that is what it was to do.
            let _ = rank.kill();
        }
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        if !self.is_over().unwrap_or(false) {
            self.kill();
        }
    }
}
