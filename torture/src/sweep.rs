//! Every way to start HPGMG-FV on a CPU, every way to start its messages, every path, from one rank to sixteen: each job must end
//! in time with the bits of a run of one rank. What exists only for some of these numbers – a queue too short, a link that
//! two ranks wait for – is found here and not by a user.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::job::{Programs, clean};
use crate::record::Origin;
use crate::verdict::numbers;

/// Most ranks of a job.
const MOST: usize = 16;
/// What starts messages.
const COMMS: [&str; 3] = ["host", "stream", "kernel"];
/// `MP_PATH`.
const PATHS: [&str; 3] = ["auto", "nic", "nic-tcp"];
/// Of boxes: cubes of two and of three a side. Every rank has at least one, where there are as many.
const FEW: usize = 8;
const MANY: usize = 27;
/// A job that takes so long has hung: many times what the slowest takes on two busy cores.
const PATIENCE: Duration = Duration::from_secs(150);

/// What to do.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Every number of ranks in every way, 432 jobs; otherwise each of the 27 ways once, and every number of ranks.
    #[arg(long)]
    all: bool,
    /// Jobs at a time.
    #[arg(long, default_value_t = 2, value_parser = mp_program::within(1..=64_usize))]
    at_once: usize,
    /// Only jobs in whose name, such as "two hosts, stream, nic-tcp, 5 ranks", this occurs.
    #[arg(long, default_value = "")]
    only: String,
    /// HPGMG-FV built with the feature mpi: also its ranks as MPI processes of mpirun, every number of them.
    #[arg(long, value_name = "PROGRAM")]
    mpi: Option<PathBuf>,
    /// Write the jobs to this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// How the ranks of a job are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// Threads of one process.
    Threads,
    /// Processes of mprun.
    Processes,
    /// The same, every second one as if on another host.
    TwoHosts,
    /// Processes of mpirun, whose messages are MPI's.
    Mpi,
}

impl Start {
    /// Those whose messages are started in each of [`COMMS`] and go over each of [`PATHS`].
    const ALL: [Start; 3] = [Start::Threads, Start::Processes, Start::TwoHosts];

    pub fn name(self) -> &'static str {
        match self {
            Start::Threads => "threads",
            Start::Processes => "processes",
            Start::TwoHosts => "two hosts",
            Start::Mpi => "MPI processes",
        }
    }
}

/// A way to run a job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Case {
    pub start: Start,
    pub comm: String,
    pub path: String,
    pub ranks: usize,
}

impl Case {
    pub fn name(&self) -> String {
        let Case { start, comm, path, ranks } = self;
        format!("{}, {comm}, {path}, {ranks} ranks", start.name())
    }

    /// Boxes of the whole domain.
    fn boxes(&self) -> usize {
        if self.ranks <= 4 { FEW } else { MANY }
    }

    fn command(&self, programs: &Programs, mpi: &Path, json: &Path) -> Command {
        let ranks = self.ranks.to_string();
        let mut command = match self.start {
            Start::Threads => Command::new(&programs.hpgmg),
            Start::Processes => under_mprun(programs, self.ranks, "exec \"$0\" \"$@\""),
            Start::TwoHosts => {
                let other = "MP_NODE=host-$((MP_RANK % 2)) exec \"$0\" \"$@\"";
                under_mprun(programs, self.ranks, other)
            }
            Start::Mpi => {
                let mut command = Command::new("mpirun");
                command.args(["--oversubscribe", "-n", &ranks]).arg(mpi);
                // Open MPI asks whether root means it.
                command.env("OMPI_ALLOW_RUN_AS_ROOT", "1");
                command.env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
                command
            }
        };
        let boxes = self.boxes().div_ceil(self.ranks).to_string();
        problem(&mut command, &boxes).env("MP_PATH", &self.path);
        command.args(["--comm", &self.comm, "--json"]).arg(json);
        if self.start == Start::Threads {
            command.args(["--ranks", &ranks]);
        }
        command
    }
}

/// HPGMG-FV as ranks of mprun, each of which is a shell that becomes it by `script`.
fn under_mprun(programs: &Programs, ranks: usize, script: &str) -> Command {
    let mut command = Command::new(&programs.mprun);
    command.args(["-n", &ranks.to_string(), "--", "sh", "-c", script]).arg(&programs.hpgmg);
    command
}

/// One solve on the CPU, with so many boxes for a rank.
fn problem<'a>(command: &'a mut Command, boxes: &str) -> &'a mut Command {
    clean(command).env("RUST_BACKTRACE", "0");
    command.args(["4", boxes, "--device", "cpu", "--threads", "1", "--solves", "1"])
}

/// What must be refused, and by which sentence: the script of a rank of three, arguments, sentence.
const REFUSED: [(&str, &[&str], &str); 4] = [
    (
        "exec \"$0\" \"$@\"",
        &["--ranks", "4"],
        "--ranks 4 under mprun, which has started 3 processes",
    ),
    (
        "if [ $MP_RANK = 1 ]; then export MP_PATH=nic; fi; exec \"$0\" \"$@\"",
        &[],
        "rank 1 with MP_PATH=nic; they must be equal",
    ),
    (
        "MP_PATH=wire exec \"$0\" \"$@\"",
        &["--comm", "stream"],
        "MP_PATH=\"wire\": expected auto, nic, nic-tcp or nic-verbs",
    ),
    (
        "exec \"$0\" \"$@\"",
        &["--graph"],
        "--graph, --whole, --along and --direct-halo are for ranks on GPUs",
    ),
];

/// The jobs: every way with every number of ranks, or each way once. A NIC has a thread that polls in every rank, so that
/// many ranks on few cores take long: there fewer, and of streams always more than four.
fn cases(all: bool) -> Vec<Case> {
    // By what starts the messages and, in this order: each start over `nic` and `nic-tcp`.
    const OVER_A_NIC: [[usize; 6]; 3] =
        [[1, 2, 3, 4, 2, 3], [5, 6, 7, 5, 5, 6], [2, 5, 3, 6, 4, 1]];
    // By start and what starts the messages, as the path `auto` is; between hosts that is a NIC, too.
    const AUTO: [usize; 9] = [11, 12, 13, 14, 15, 16, 8, 9, 10];
    let mut cases = Vec::new();
    let (mut auto, mut nic) = (AUTO.into_iter(), OVER_A_NIC.map(|counts| counts.into_iter()));
    for start in Start::ALL {
        for (comm, nic) in COMMS.into_iter().zip(&mut nic) {
            for path in PATHS {
                let one = if path == "auto" { auto.next() } else { nic.next() };
                let ranks = if all { (1..=MOST).collect() } else { Vec::from_iter(one) };
                let case = |ranks| Case { start, comm: comm.into(), path: path.into(), ranks };
                cases.extend(ranks.into_iter().map(case));
            }
        }
    }
    cases
}

/// What became of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    #[serde(flatten)]
    pub case: Case,
    pub seconds: f64,
    /// What should have been otherwise.
    pub problem: Option<String>,
}

/// All of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    #[serde(flatten)]
    pub origin: Origin,
    pub jobs: Vec<Job>,
    /// Jobs that had to be refused, and what was wrong with refusals.
    pub refused: usize,
    pub not_refused: Vec<String>,
}

impl Sweep {
    /// Jobs in which nothing was otherwise than it should be, refusals included, and all.
    pub fn right(&self) -> [usize; 2] {
        let right = self.jobs.iter().filter(|job| job.problem.is_none()).count();
        [right + self.refused - self.not_refused.len(), self.jobs.len() + self.refused]
    }
}

/// Runs it. The exit status: 0, or 1 if anything was not as it should be.
pub fn run(options: &Options) -> Result<i32> {
    if let Some(path) = &options.json {
        mp_program::can_be_written(path)?;
    }
    let programs = Programs::find()?;
    let origin = Origin::here();
    let begin = Instant::now();
    let folder = tempfile::tempdir().context("a folder for the results")?;
    let folder = folder.path();
    let references = [FEW, MANY]
        .map(|boxes| Ok::<_, anyhow::Error>((boxes, alone(&programs, folder, boxes)?)))
        .into_iter()
        .collect::<Result<BTreeMap<usize, Value>>>()?;
    let mut todo = cases(options.all);
    let mpi = options.mpi.as_deref();
    if mpi.is_some() {
        let (start, comm, path) = (Start::Mpi, "mpi".to_owned(), "auto".to_owned());
        let case = |ranks| Case { start, comm: comm.clone(), path: path.clone(), ranks };
        todo.extend((1..=MOST).map(case));
    }
    let mpi = mpi.unwrap_or(Path::new("hpgmg-fv"));
    todo.retain(|case| case.name().contains(&options.only));
    anyhow::ensure!(!todo.is_empty(), "no job has {:?} in its name", options.only);
    let (next, jobs) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        let work = || -> Result<()> {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(case) = todo.get(number) else { return Ok(()) };
                let json = folder.join(format!("{number}.json"));
                let command = case.command(&programs, mpi, &json);
                let job = one(command, case, &json, &references[&case.boxes()])?;
                let problem = job
                    .problem
                    .as_ref()
                    .map_or_else(String::new, |problem| format!("\n    PROBLEM: {problem}"));
                mp_program::outln!("{:<40} {:6.2} s{problem}", case.name(), job.seconds);
                jobs.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(job);
            }
        };
        let workers: Vec<_> = (0..options.at_once).map(|_| scope.spawn(work)).collect();
        let mut joined = workers.into_iter().map(|worker| worker.join());
        joined.try_for_each(|ended| {
            ended.unwrap_or_else(|_| Err(anyhow::anyhow!("a worker panicked")))
        })
    })
    .and_then(|()| end(options, &programs, origin, begin, jobs.into_inner().unwrap_or_default()))
}

/// The refusals, the file, the last line, and the exit status.
fn end(
    options: &Options,
    programs: &Programs,
    origin: Origin,
    begin: Instant,
    mut jobs: Vec<Job>,
) -> Result<i32> {
    jobs.sort_by(|a, b| a.case.cmp(&b.case));
    let refused = if options.only.is_empty() { &REFUSED[..] } else { &[] };
    let mut not_refused = Vec::new();
    for (script, arguments, sentence) in refused {
        let mut command = under_mprun(programs, 3, script);
        problem(&mut command, "8").args(*arguments);
        let (output, seconds) = in_time(command)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let right = output.status.code() == Some(1) && said.contains(sentence);
        mp_program::outln!("{:<40} {seconds:6.2} s", format!("refused: {}", arguments.join(" ")));
        if !right {
            mp_program::outln!("    PROBLEM: {}, expected {sentence:?}: {said}", output.status);
            not_refused.push(format!("expected {sentence:?}, not {}: {said}", output.status));
        }
    }
    let counts: BTreeSet<usize> = jobs.iter().map(|job| job.case.ranks).collect();
    let sweep = Sweep { origin, jobs, refused: refused.len(), not_refused };
    let [right, all] = sweep.right();
    mp_program::outln!(
        "{all} jobs with {counts:?} ranks in {:.0} s, {} not as they should be",
        begin.elapsed().as_secs_f64(),
        all - right
    );
    if let Some(path) = &options.json {
        mp_program::write(path, serde_json::to_string(&sweep)? + "\n")?;
    }
    Ok(i32::from(right < all))
}

/// What one rank finds.
fn alone(programs: &Programs, folder: &Path, boxes: usize) -> Result<Value> {
    let json = folder.join(format!("alone-{boxes}.json"));
    let mut command = Command::new(&programs.hpgmg);
    problem(&mut command, &boxes.to_string()).arg("--json").arg(&json);
    let (output, _) = in_time(command)?;
    let found = std::fs::read_to_string(&json).ok().and_then(|text| numbers(&text));
    let said = String::from_utf8_lossy(&output.stderr);
    found.with_context(|| format!("HPGMG-FV on one rank: {}: {said}", output.status))
}

/// Runs a job and compares.
fn one(command: Command, case: &Case, json: &Path, reference: &Value) -> Result<Job> {
    let (output, seconds) = in_time(command)?;
    let problem = match output.status.code() {
        Some(0) => {
            let found = std::fs::read_to_string(json).ok().and_then(|text| numbers(&text));
            let same = found.as_ref() == Some(reference);
            (!same).then(|| format!("found {found:?}, one rank {reference}"))
        }
        _ => {
            let said = String::from_utf8_lossy(&output.stderr);
            Some(format!("after {seconds:.0} s: {}: {}", output.status, said.trim_end()))
        }
    };
    Ok(Job { case: case.clone(), seconds, problem })
}

/// Runs a command to its end, or until [`PATIENCE`] is over; what it said, and the seconds that it took.
fn in_time(mut command: Command) -> Result<(Output, f64)> {
    let begin = Instant::now();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().with_context(|| format!("starting {command:?}"))?;
    let id = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    let (over, is_over) = std::sync::mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        // Sent to, or left alone: the job is over.
        let hung =
            is_over.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout);
        if let (true, Some(id)) = (hung, id) {
            // With mprun its ranks end as well, and with mpirun.
            let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
        }
    });
    let output = child.wait_with_output().context("waiting for a job")?;
    drop(over);
    watch.join().map_err(|_| anyhow::anyhow!("the thread that watches a job panicked"))?;
    Ok((output, begin.elapsed().as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_occurs_and_every_number_of_ranks_and_streams_over_a_nic_with_more_than_four() {
        let once = cases(false);
        let ways: BTreeSet<_> =
            once.iter().map(|case| (case.start, &case.comm, &case.path)).collect();
        assert_eq!((once.len(), ways.len()), (27, 27));
        let counts: BTreeSet<usize> = once.iter().map(|case| case.ranks).collect();
        assert_eq!(counts, (1..=MOST).collect());
        let streams = once.iter().filter(|case| case.comm == "stream" && case.path != "auto");
        assert!(streams.into_iter().all(|case| case.ranks > 4));
        assert_eq!(cases(true).len(), 27 * MOST);
    }
}
