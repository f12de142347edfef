//! `mprun` with real processes: what ranks find, how jobs end, what becomes of their output. The
//! programs of the ranks are shell scripts of coreutils, so that these tests run wherever Rust does.

mod endings;
mod environment;
mod hosts;
mod networks;
mod output;
mod signals;

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal};

/// No job here takes longer, on a slow and busy machine either.
const PATIENCE: Duration = Duration::from_secs(60);
const PATIENCE_TO_READ: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// `mprun` with these arguments, its streams piped, nothing on its standard input. It does not know
/// that it may itself be a rank.
fn mprun(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mprun"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.process_group(0);
    with_default_signals(&mut command);
    command
}

/// What these tests were started to ignore (a shell's background job ignores SIGINT) would stay ignored by `mprun`.
fn with_default_signals(command: &mut Command) {
    let restore = || {
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
            // SAFETY: the default disposition needs no handler.
            if unsafe { libc::signal(signal, libc::SIG_DFL) } == libc::SIG_ERR {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: system calls, which allocate and lock nothing.
    unsafe { command.pre_exec(restore) };
}

/// How a job ended and what it wrote.
#[derive(Debug)]
struct Ended {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

impl Ended {
    /// The lines of standard output, sorted.
    fn sorted(&self) -> Vec<&str> {
        let mut lines: Vec<_> = self.stdout.lines().collect();
        lines.sort_unstable();
        lines
    }
}

/// Runs a job to its end.
fn run(arguments: &[&str]) -> Ended {
    Job::start(&mut mprun(arguments)).end()
}

/// Runs `script` as `ranks` ranks.
fn script(ranks: usize, script: &str) -> Ended {
    run(&["-n", &ranks.to_string(), "sh", "-c", script])
}

/// A job that runs. Dropped, it is killed with all its ranks.
struct Job {
    mprun: Child,
    stdout: Option<ChildStdout>,
    stderr: Option<JoinHandle<Vec<u8>>>,
    seen: Vec<u8>,
}

impl Job {
    fn start(command: &mut Command) -> Job {
        let mut mprun = command.spawn().expect("mprun starts");
        let stderr = mprun.stderr.take().map(|mut pipe| {
            thread::spawn(move || {
                let mut all = Vec::new();
                pipe.read_to_end(&mut all).expect("a pipe can be read");
                all
            })
        });
        Job { stdout: mprun.stdout.take(), stderr, mprun, seen: Vec::new() }
    }

    /// Reads standard output until `lines` lines have come.
    fn wait_for_lines(&mut self, lines: usize) -> Vec<String> {
        let stdout = self.stdout.as_mut().expect("standard output is piped");
        let mut byte = [0];
        while self.seen.iter().filter(|byte| **byte == b'\n').count() < lines {
            let readable = poll(&mut [PollFd::new(stdout, PollFlags::IN)], Some(&PATIENCE_TO_READ));
            assert_eq!(readable, Ok(1), "nothing more after {:?}", self.seen);
            assert_eq!(stdout.read(&mut byte).unwrap(), 1, "ended after {:?}", self.seen);
            self.seen.push(byte[0]);
        }
        String::from_utf8_lossy(&self.seen).lines().map(str::to_owned).collect()
    }

    /// Reads standard output until every one of `ranks` ranks has written a line of process ids.
    fn wait_for_pids(&mut self, ranks: usize) -> Vec<i32> {
        let lines = self.wait_for_lines(ranks);
        let pids = lines.iter().flat_map(|line| line.split_whitespace());
        pids.map(|pid| pid.parse().expect("a process id")).collect()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.mprun)
    }

    fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    /// Waits for the end of `mprun`.
    fn end(mut self) -> Ended {
        let stdout = self.stdout.take().map(|mut pipe| {
            thread::spawn(move || {
                let mut all = Vec::new();
                pipe.read_to_end(&mut all).expect("a pipe can be read");
                all
            })
        });
        let status = self.wait();
        if let Some(stdout) = stdout {
            self.seen.extend(stdout.join().unwrap());
        }
        let stderr = self.stderr.take().map(|stderr| stderr.join().unwrap()).unwrap_or_default();
        Ended {
            status,
            stdout: String::from_utf8_lossy(&self.seen).into_owned(),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
        }
    }

    /// Waits for the end of `mprun` and not for whoever holds its pipes.
    fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("mprun ends", || {
            status = self.mprun.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.mprun.kill();
        let _ = self.mprun.wait();
    }
}

/// Waits until `condition` holds.
fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A folder, and the path of a file in it that is not there yet.
fn meeting() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ready").display().to_string();
    (folder, file)
}

/// Shell commands that wait until a file is there.
fn until_there(file: &str) -> String {
    format!("until [ -e {file} ]; do sleep 0.02; done")
}

/// The state letter of a process, `None` if there is no such process.
fn state(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat[stat.rfind(')')? + 1..].trim_start().chars().next()
}

/// Does the process run (a zombie does not)?
fn runs(pid: i32) -> bool {
    state(pid).is_some_and(|state| state != 'Z' && state != 'X')
}
