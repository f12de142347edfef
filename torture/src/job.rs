//! One job: started, struck, watched until it is over, and searched for remains.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rustix::process::{Pid, Signal, kill_process};

use crate::fault::{Fault, Phase, Workload};
use crate::leaks::{self, Before, Left};
use crate::mark::{FOLDER, STRUCK};
use crate::proxy::Proxy;
use crate::shim::{DRIVER_THREAD, Shim};

/// Seconds of silence that are borne, and how often a sign of life is given.
pub const SILENCE: f64 = 2.0;
const HEARTBEAT: f64 = 0.1;
/// Seconds that a start waits for all ranks: many times what it takes on a loaded machine of two cores, since a start that
/// is late for no fault counts as a wrong answer.
pub const INIT: f64 = 12.0;
/// Seconds that mprun leaves to survivors after the first failure: longer than each of the two.
const LINGER: f64 = 16.0;
/// A job that has not ended so long after it should have has hung.
const SLACK: Duration = Duration::from_secs(12);
/// HPGMG solves problems of each of three sizes for so long.
const HPGMG_SECONDS: &str = "0.35";
/// How long a paused rank stands still.
const PAUSE: Duration = Duration::from_millis(700);
/// The moment in a rank's start at which something is done to it is drawn from here.
const STARTING: Duration = Duration::from_millis(80);
/// A device to which nothing can be written.
pub const FULL: &str = "/dev/full";
/// How often the supervisor looks.
const LOOK: Duration = Duration::from_millis(1);

/// The programs, beside this one.
pub struct Programs {
    pub mprun: PathBuf,
    pub torture: PathBuf,
    pub hpgmg: PathBuf,
}

impl Programs {
    /// Finds them.
    pub fn find() -> Result<Programs> {
        let torture = std::env::current_exe().context("where is this program?")?;
        let beside = |name: &str| -> Result<PathBuf> {
            let path = torture.with_file_name(name);
            ensure!(path.is_file(), "{} is not there: build the workspace", path.display());
            Ok(path)
        };
        Ok(Programs {
            mprun: beside("mprun")?,
            // Looked for when it is needed.
            hpgmg: torture.with_file_name("hpgmg-fv"),
            torture: torture.clone(),
        })
    }
}

/// Takes what libmp reads out of a command's environment.
pub fn clean(command: &mut Command) -> &mut Command {
    for name in libmp::config::VARIABLES {
        command.env_remove(name);
    }
    command
}

/// A job and what is done to it; without a fault nothing is.
#[derive(Debug, Clone)]
pub struct Job {
    pub fault: Option<Fault>,
    pub phase: Phase,
    pub workload: Workload,
    pub victim: usize,
    pub ranks: usize,
    pub seed: u64,
    /// How long the workload takes, or is meant to.
    pub length: Duration,
    /// In [`Phase::Random`]: when after the start.
    pub moment: Duration,
    /// Whether survivors are given time to say what they saw.
    pub lingers: bool,
}

/// A line of the job's standard error.
#[derive(Debug, Clone)]
pub struct Line {
    pub at: Instant,
    pub text: String,
}

/// How it went.
#[derive(Debug)]
pub struct Ended {
    /// Exit status of the launcher; none if it was killed.
    pub status: Option<i32>,
    pub lines: Vec<Line>,
    pub stdout: String,
    /// When the fault was done.
    pub struck: Option<Instant>,
    pub over: Instant,
    pub hung: bool,
    /// The longest time for which this process, which looks every millisecond, did not come to look.
    pub stalled: Duration,
    pub left: Left,
    /// What it wrote as its result.
    pub json: Option<String>,
}

impl Job {
    fn command(
        &self,
        programs: &Programs,
        folder: &Path,
        proxy: Option<&Proxy>,
    ) -> Result<Command> {
        let workload = self.workload_arguments(programs, folder);
        let mut command;
        if self.workload.is_threads() {
            command = Command::new(&workload[0]);
            command.args(&workload[1..]);
            if self.fault == Some(Fault::DriverError) {
                let (variable, library) = Shim::Driver.write(folder)?;
                command.env(variable, library);
                command.env(DRIVER_THREAD, format!("rank-{}", self.victim));
            }
        } else {
            command = Command::new(&programs.mprun);
            command.args(["-l", "-n", &self.ranks.to_string()]);
            let linger = if self.lingers { LINGER } else { 0.0 };
            command.args(["--linger", &linger.to_string(), "--kill-after", "1"]);
            command.arg(&programs.torture).arg("rank").arg("--folder").arg(folder);
            command.args(["--victim", &self.victim.to_string()]);
            if self.announces_at_once() {
                command.arg("--announce");
            }
            match self.fault {
                Some(Fault::NoMemory) => {
                    // From too little to be loaded to nearly enough.
                    let mib = SmallRng::seed_from_u64(self.seed).random_range(2..=48u64);
                    command.args(["--address-space", &(mib << 20).to_string()]);
                }
                Some(Fault::Missing) => drop(command.arg("--missing")),
                Some(Fault::PortTaken) => drop(command.arg("--without-socket")),
                Some(Fault::ClockJumps) => {
                    command.arg("--preload").arg(Shim::Clock.write(folder)?.1);
                }
                Some(Fault::DriverError) => {
                    command.arg("--libraries").arg(Shim::NoDriver.write(folder)?.1);
                }
                _ => {}
            }
            if let Some(proxy) = proxy {
                command.args(["--through", proxy.address()]);
            }
            command.arg("--").args(workload);
        }
        clean(&mut command).env(FOLDER, folder);
        if let Some(path) = self.workload.path() {
            command.env("MP_PATH", path);
        }
        if self.fault == Some(Fault::TraceFull) {
            // Few events: a storm has more than anybody wants to collect.
            command.env("MP_TRACE", FULL).env("MP_TRACE_EVENTS", "2000");
        }
        for (name, seconds) in [
            ("MP_HEARTBEAT", HEARTBEAT),
            ("MP_HEARTBEAT_TIMEOUT", SILENCE),
            ("MP_INIT_TIMEOUT", INIT),
            ("MP_TIMEOUT", 20.0),
        ] {
            command.env(name, seconds.to_string());
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    }

    fn workload_arguments(&self, programs: &Programs, folder: &Path) -> Vec<String> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let result = match self.fault {
            Some(Fault::DiskFull) => FULL.into(),
            _ => text(&folder.join("result.json")),
        };
        let mut words: Vec<String> = Vec::new();
        let mut add = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_owned()));
        if let Some(comm) = self.workload.comm() {
            // Boxes for every rank: one without has nothing to wait for but the end.
            add(&[&text(&programs.hpgmg), "4", "8", "--threads", "1", "--timeout", "20"]);
            add(&["--device", "cpu", "--seconds", HPGMG_SECONDS, "--json", &result]);
            add(&["--comm", comm]);
            return words;
        }
        let form = match self.workload {
            Workload::StormHost => "host",
            Workload::StormStream => "stream",
            Workload::StormKernels | Workload::StormGpu => "kernel",
            _ => "mixed",
        };
        let seconds = self.length.as_secs_f64().to_string();
        add(&[&text(&programs.torture), "storm", "--seed", &self.seed.to_string()]);
        add(&["--seconds", &seconds, "--form", form, "--json", &result]);
        if self.workload.is_threads() {
            add(&["--threads", &self.ranks.to_string()]);
        }
        if let Some(fault) = self.storms_own() {
            let victim = self.victim.to_string();
            add(&["--victim", &victim, "--fault", fault, "--moment", self.phase.name()]);
        }
        words
    }

    /// The victim says that the moment has come before it becomes the program.
    fn announces_at_once(&self) -> bool {
        let Some(fault) = self.fault else { return false };
        match fault {
            Fault::NoMemory | Fault::PortTaken => true,
            Fault::DriverError => !self.workload.is_threads(),
            Fault::Killed | Fault::Stopped | Fault::Paused | Fault::Cut | Fault::HalfOpen => {
                self.phase == Phase::Start
            }
            _ => false,
        }
    }

    /// What the storm does to itself.
    fn storms_own(&self) -> Option<&'static str> {
        match self.fault? {
            Fault::Left => Some("leave"),
            Fault::Panicked => Some("panic"),
            Fault::DriverError if self.workload.is_threads() => Some("announce"),
            _ if matches!(self.phase, Phase::Start | Phase::Random) => None,
            _ if self.workload.is_hpgmg() => None,
            Fault::Killed => Some("kill"),
            Fault::Stopped | Fault::Paused => Some("stop"),
            Fault::Cut | Fault::HalfOpen => Some("announce"),
            _ => None,
        }
    }

    /// When this process does it: so long after the mark, or after the job began.
    fn delay(&self) -> Duration {
        let mut random = SmallRng::seed_from_u64(self.seed ^ 0x5eed);
        let mut within = |from: f64, to: f64| self.length.mul_f64(random.random_range(from..to));
        match self.phase {
            Phase::Start => STARTING.mul_f64(random.random_range(0.0..1.0)),
            Phase::Middle => within(0.3, 0.7),
            Phase::Finish => within(0.85, 1.05),
            Phase::Random => self.moment,
        }
    }

    /// Runs it to its end.
    pub fn run(&self, programs: &Programs) -> Result<Ended> {
        let folder = tempfile::tempdir().context("a folder for the run")?;
        let folder = folder.path();
        let before = Before::look()?;
        let through = matches!(self.fault, Some(Fault::Cut | Fault::HalfOpen | Fault::Slow));
        let proxy =
            through.then(|| Proxy::start(folder, self.fault == Some(Fault::Slow))).transpose()?;
        let mut command = self.command(programs, folder, proxy.as_ref())?;
        let begin = Instant::now();
        let mut launcher = command.spawn().with_context(|| format!("starting {command:?}"))?;
        let lines = Arc::new(Mutex::new(Vec::new()));
        let stderr = launcher.stderr.take().map(|pipe| collect(pipe, lines.clone()));
        let stdout = launcher.stdout.take().map(|mut pipe| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                // What was read until an error is what there is.
                let _ = pipe.read_to_end(&mut bytes);
                String::from_utf8_lossy(&bytes).into_owned()
            })
        });
        let mut strike =
            Strike { job: self, folder, begin, marked: None, struck: None, resumed: false };
        let bound = self.length + Duration::from_secs_f64(SILENCE.max(INIT) + LINGER) + SLACK;
        let mut hung = false;
        let (mut stalled, mut looked) = (Duration::ZERO, Instant::now());
        let status = loop {
            stalled = stalled.max(looked.elapsed());
            looked = Instant::now();
            if let Some(status) = launcher.try_wait().context("waiting for the launcher")? {
                break status;
            }
            strike.look(&launcher, proxy.as_ref());
            if begin.elapsed() > bound && !hung {
                hung = true;
                kill_all(folder, &mut launcher)?;
            }
            std::thread::sleep(LOOK);
        };
        // Who survived the launcher has until the bound.
        while !leaks::processes(folder)?.is_empty() {
            strike.look(&launcher, proxy.as_ref());
            if begin.elapsed() > bound {
                hung = true;
                kill_all(folder, &mut launcher)?;
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let over = Instant::now();
        if self.storms_own().is_some_and(|own| own != "announce") {
            // Fast deaths may be over before they were looked at.
            strike.struck = strike.struck.or_else(|| strike.mark());
        }
        drop(proxy);
        let address = std::fs::read_to_string(folder.join("rendezvous")).ok();
        let left = before.left(folder, address.as_deref())?;
        // The pipes end with the last process that holds them.
        let stdout = stdout.and_then(|thread| thread.join().ok()).unwrap_or_default();
        let _ = stderr.map(std::thread::JoinHandle::join);
        let lines = std::mem::take(&mut *lines.lock().unwrap_or_else(PoisonError::into_inner));
        let json = std::fs::read_to_string(folder.join("result.json")).ok();
        Ok(Ended {
            status: status.code(),
            lines,
            stdout,
            struck: strike.struck,
            over,
            hung,
            stalled,
            left,
            json,
        })
    }
}

fn collect(
    pipe: impl Read + Send + 'static,
    to: Arc<Mutex<Vec<Line>>>,
) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        for text in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
            let line =
                Line { at: Instant::now(), text: String::from_utf8_lossy(&text).into_owned() };
            to.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    })
}

/// Ends a job that hangs: the one thing left to do.
fn kill_all(folder: &Path, launcher: &mut Child) -> Result<()> {
    let _ = launcher.kill();
    for pid in leaks::processes(folder)? {
        signal(i32::try_from(pid).ok(), Signal::KILL);
    }
    Ok(())
}

fn signal(pid: Option<i32>, signal: Signal) {
    // Gone already: that is what it was to become.
    let _ = pid.and_then(Pid::from_raw).map(|pid| kill_process(pid, signal));
}

/// Does the fault when its moment comes.
struct Strike<'a> {
    job: &'a Job,
    folder: &'a Path,
    begin: Instant,
    /// When the victim's mark was seen.
    marked: Option<Instant>,
    struck: Option<Instant>,
    resumed: bool,
}

impl Strike<'_> {
    fn look(&mut self, launcher: &Child, proxy: Option<&Proxy>) {
        let Some(fault) = self.job.fault else { return };
        if self.marked.is_none() {
            self.marked = self.mark();
        }
        if let (Fault::Paused, Some(struck), false) = (fault, self.struck, self.resumed)
            && struck.elapsed() > PAUSE
        {
            signal(self.victim(), Signal::CONT);
            self.resumed = true;
        }
        // Stopped when its part was done, which was noticed by nobody and harms nobody: only the launcher waits for it.
        if let (Fault::Stopped, Some(struck), false) = (fault, self.struck, self.resumed)
            && struck.elapsed().as_secs_f64() > SILENCE + INIT + 1.0
            && self.folder.join("result.json").exists()
        {
            signal(self.victim(), Signal::CONT);
            self.resumed = true;
        }
        if self.struck.is_some() || !self.is_time(fault) {
            return;
        }
        match fault {
            _ if self.job.storms_own().is_some_and(|own| own != "announce") => {}
            Fault::Killed => signal(self.victim(), Signal::KILL),
            Fault::Stopped | Fault::Paused => signal(self.victim(), Signal::STOP),
            Fault::LauncherKilled => signal(i32::try_from(launcher.id()).ok(), Signal::KILL),
            Fault::Cut => drop(proxy.map(Proxy::cut)),
            Fault::HalfOpen => drop(proxy.map(Proxy::hold)),
            Fault::Strangers => self.strangers(),
            _ => {}
        }
        self.struck = Some(self.marked.unwrap_or_else(Instant::now).max(self.begin));
        if self.job.announces_at_once() {
            self.struck = Some(Instant::now());
        }
    }

    /// When the victim made its mark.
    fn mark(&self) -> Option<Instant> {
        let made = self.folder.join(STRUCK).metadata().ok()?.modified().ok()?;
        Instant::now().checked_sub(made.elapsed().unwrap_or_default())
    }

    fn is_time(&self, fault: Fault) -> bool {
        let at_once = match fault {
            Fault::Slow | Fault::DiskFull | Fault::TraceFull | Fault::ClockJumps => return true,
            Fault::Strangers => return self.folder.join("rendezvous").exists(),
            Fault::LauncherKilled => None,
            _ => self.marked,
        };
        match at_once {
            Some(marked) if self.job.announces_at_once() => marked.elapsed() >= self.job.delay(),
            Some(_) => true,
            // A storm says when; of the others only the clock is known.
            None if self.job.storms_own().is_some() || self.job.announces_at_once() => false,
            None => {
                let there = self.folder.join(format!("pid-{}", self.job.victim)).exists();
                there && self.begin.elapsed() >= self.job.delay()
            }
        }
    }

    fn victim(&self) -> Option<i32> {
        let file = self.folder.join(format!("pid-{}", self.job.victim));
        std::fs::read_to_string(file).ok()?.parse().ok()
    }

    /// Connects as those do who have no business here, for as long as the job lasts.
    fn strangers(&self) {
        let Ok(address) = std::fs::read_to_string(self.folder.join("rendezvous")) else { return };
        let (seed, until) = (self.job.seed, Instant::now() + self.job.length);
        std::thread::spawn(move || {
            use std::io::Write;
            let mut random = SmallRng::seed_from_u64(seed);
            let mut kept = Vec::new();
            while Instant::now() < until {
                let Ok(mut stream) = std::net::TcpStream::connect(address.trim()) else { return };
                let mut bytes = match random.random_range(0..4) {
                    0 => Vec::new(),
                    1 => b"GET / HTTP/1.1\r\n\r\n".to_vec(),
                    // The right magic with another secret.
                    _ => b"libmpctl".to_vec(),
                };
                bytes.extend((0..random.random_range(0..200)).map(|_| random.random::<u8>()));
                let _ = stream.write_all(&bytes);
                // Some stay, without a word.
                if kept.len() < 20 && random.random() {
                    kept.push(stream);
                }
                std::thread::sleep(Duration::from_millis(3));
            }
        });
    }
}
