//! Runs a job: starts everything, then waits for signals, ends of ranks and deadlines, and does what
//! `course.rs` says until nothing of the job is left.

use std::os::fd::{AsFd, BorrowedFd};
use std::process::Stdio;
use std::time::{Duration, Instant};

use libmp::Config;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal};

use super::contract::RankEnvironment;
use super::course::{self, Course, Look, Step};
use super::error::{Doing, LaunchError};
use super::gone::Gone;
use super::gpus::{self, Placement};
use super::job::Job;
use super::options::Options;
use super::processes::{self, Ended};
use super::relay::{Outcome, Relay, Streams};
use super::signals::{self, Signals};
use super::spawn::{Program, Rank};
use super::stdin::{self, Feed};
use super::stopped::Stopped;
use super::tie::Tie;

/// How often to look for what the ranks left behind: nobody tells us when it ends.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Runs the job that `options` describe, from beginning to end, and returns the exit status.
///
/// To be called once, from the main thread.
///
/// # Errors
/// What kept the job from being started or watched: [`LaunchError`]. No rank outlives this process.
pub fn run(options: &Options) -> Result<i32, LaunchError> {
    let placement = Placement::choose(options, gpus::count)?;
    let mut signals = Signals::catch()?;
    let mut job = Job::new()?;

    let mut ranks = Vec::new();
    let started = start(options, &placement, &mut job, &mut ranks);

    let pids = ranks.iter().map(|rank| Some(rank.pid)).collect();
    let groups = ranks.iter().map(|rank| rank.pid).collect();
    let (streams, ties) = ranks
        .into_iter()
        .map(|rank| (Streams { stdout: rank.stdout, stderr: rank.stderr }, rank.tie))
        .unzip();
    let relay = Relay::start(streams, options.prefix)?;
    let course = Course::new(
        placement.size,
        options.timeout,
        options.linger,
        options.kill_after,
        Instant::now(),
    );
    let gone = Gone::new(&job, Instant::now());
    let stopped = Stopped::new(longest_silence(&options.env), Instant::now());
    let mut running =
        Running { pids, groups, _ties: ties, gone, stopped, course, relay, given_up: false };
    let failure = match started.and_then(|feed| feed.map_or(Ok(()), Feed::start)) {
        Ok(()) => None,
        Err(failure) => {
            running.cannot_start(&failure)?;
            Some(failure)
        }
    };
    running.until_the_end(&mut signals)?;
    let (status, output) = running.finish(&mut signals, options.kill_after)?;
    match (failure, output) {
        (Some(failure), _) => Err(failure),
        (None, Err(failure)) if status == 0 => Err(failure),
        (None, _) => Ok(status),
    }
}

/// How long the ranks of a complete world may be silent, by what they find in their environment. What they will refuse there
/// is as if it were not set.
fn longest_silence(env: &[(String, String)]) -> Duration {
    let inherited = |name: &str| std::env::var(name).ok();
    let given = |name: &str| env.iter().rfind(|(given, _)| given == name).map(|(_, v)| v.clone());
    let variables = ["MP_HEARTBEAT", "MP_HEARTBEAT_TIMEOUT"]
        .into_iter()
        .filter_map(|name| Some((name, given(name).or_else(|| inherited(name))?)));
    let config =
        Config::from_variables(variables).or_else(|_| Config::from_variables([("", ""); 0]));
    config.map_or(Duration::from_secs(10), |config| config.heartbeat_timeout)
}

/// Starts every rank; `ranks` holds those that run, also after an error.
fn start(
    options: &Options,
    placement: &Placement,
    job: &mut Job,
    ranks: &mut Vec<Rank>,
) -> Result<Option<Feed>, LaunchError> {
    let program = Program { command: &options.command, env: &options.env };
    let (stdin_of_rank_0, feed) = stdin::for_rank_0()?;
    let mut stdin_of_rank_0 = Some(stdin_of_rank_0);
    // Taken: once rank 0 has its own, a connection must not be accepted by a socket nobody serves.
    let mut listener = job.listener.take();
    for rank in 0..placement.size {
        let listener = listener.take();
        let environment = RankEnvironment {
            rank,
            size: placement.size,
            rendezvous: job.rendezvous,
            rendezvous_fd: listener.as_ref().map(std::os::fd::AsRawFd::as_raw_fd),
            master: job.master,
            job: &job.id,
            token: &job.token,
            gpu: placement.gpu(rank),
        };
        let stdin = stdin_of_rank_0.take().unwrap_or_else(Stdio::null);
        ranks.push(program.start(&environment, stdin, listener.as_ref().map(AsFd::as_fd))?);
    }
    Ok(feed)
}

/// A job whose ranks were started.
struct Running {
    /// By rank; `None`: it has ended.
    pids: Vec<Option<Pid>>,
    /// By rank: its process group, the number of its first process.
    groups: Vec<Pid>,
    _ties: Vec<Tie>,
    gone: Gone,
    stopped: Stopped,
    course: Course,
    relay: Relay,
    given_up: bool,
}

impl Running {
    fn cannot_start(&mut self, failure: &LaunchError) -> Result<(), LaunchError> {
        let steps =
            self.course.start_failed(failure.exit_status(), self.groups.len(), Instant::now());
        self.take(steps)
    }

    /// Until every rank and everything in its process group has ended.
    fn until_the_end(&mut self, signals: &mut Signals) -> Result<(), LaunchError> {
        loop {
            self.look_for_ended_ranks()?;
            let mut patience = None;
            if self.course.ranks_ended() {
                let left = processes::running(&self.groups);
                if left.is_empty() {
                    break;
                }
                let steps = self.course.left_behind(left.len(), Instant::now());
                self.take(steps)?;
                patience = Some(Instant::now() + LOOK_AGAIN);
            }
            if let Some(pause) = self.course.looks_again() {
                patience = Some(Instant::now() + pause);
            }
            if !self.course.ranks_ended() {
                self.look_for_stopped_ranks();
                let rank_0 = self.pids.first().copied().flatten();
                self.gone.tell(self.course.blamed(), rank_0, Instant::now());
                let stopped = Some(self.stopped.deadline());
                patience = [patience, self.gone.deadline(), stopped].into_iter().flatten().min();
            }
            let wake = [self.course.deadline(), patience].into_iter().flatten().min();
            wait(&[signals.fd()], wake)?;
            for signal in signals.arrived() {
                let steps = self.course.signal(signal, Instant::now());
                self.take(steps)?;
            }
            let look = self.course.looks_again().map(|_| self.look()).unwrap_or_default();
            let steps = self.course.tick(&look, Instant::now());
            self.take(steps)?;
            if self.given_up {
                break;
            }
        }
        for group in &self.groups {
            // What appeared since we looked: a group that forks while it is being ended.
            processes::signal_group(*group, Signal::KILL);
            processes::reap(*group);
        }
        Ok(())
    }

    fn look_for_ended_ranks(&mut self) -> Result<(), LaunchError> {
        let running = self.pids.iter().enumerate().filter_map(|(rank, pid)| Some((rank, (*pid)?)));
        let ended: Vec<(usize, Ended)> =
            running.filter_map(|(rank, pid)| Some((rank, processes::ended(pid)?))).collect();
        for (rank, how) in ended {
            self.pids[rank] = None;
            self.gone.add(rank, self.groups[rank], how, Instant::now());
            let pid = self.groups[rank].as_raw_nonzero().get();
            let steps = self.course.rank_ended(rank, pid, how, Instant::now());
            self.take(steps)?;
        }
        Ok(())
    }

    /// Says which ranks are stopped, and gives up those that have been for too long.
    fn look_for_stopped_ranks(&mut self) {
        if Instant::now() < self.stopped.deadline() {
            return;
        }
        let look = self.look();
        for message in self.stopped.look(&look.stopped, Instant::now()) {
            self.relay.say(&message);
        }
        self.gone.stopped(self.stopped.given_up());
    }

    /// What becomes of the ranks that run, as far as the kernel shows it. A rank is stopped with any process of its group:
    /// the others, a shell, wait for that.
    fn look(&self) -> Look {
        let ranks = self.pids.iter().enumerate().filter_map(|(rank, pid)| Some((rank, (*pid)?)));
        let ranks: Vec<(usize, Pid)> = ranks.collect();
        let groups: Vec<Pid> = ranks.iter().map(|(_, pid)| *pid).collect();
        let processes = processes::of(&groups);
        let number = |pid: Pid| pid.as_raw_nonzero().get();
        let is_stopped = |pid: i32| processes.iter().any(|of| of.group == pid && of.stopped);
        let stopped = ranks.into_iter().map(|(rank, pid)| (rank, number(pid)));
        Look {
            dying: processes.iter().any(|process| process.dying),
            stopped: stopped.filter(|(_, pid)| is_stopped(*pid)).collect(),
        }
    }

    fn take(&mut self, steps: Vec<Step>) -> Result<(), LaunchError> {
        for step in steps {
            match step {
                Step::Say(message) => self.relay.say(&message),
                Step::Signal(signal) => {
                    let Some(signal) = Signal::from_named_raw(signal) else { continue };
                    self.groups.iter().for_each(|group| processes::signal_group(*group, signal));
                }
                Step::Stop => signals::stop_self().doing("stop on SIGTSTP")?,
                Step::GiveUp => {
                    self.given_up = true;
                    let left = processes::running(&self.groups);
                    self.relay.say(&course::survivors(&left));
                }
            }
        }
        Ok(())
    }

    /// Passes the rest of the output on. Whoever reads it may take their time, unless the end was asked
    /// for: then it is cut off after `grace`, or by the next signal.
    fn finish(
        mut self,
        signals: &mut Signals,
        grace: Duration,
    ) -> Result<(i32, Outcome), LaunchError> {
        self.relay.finish();
        let deadline = self.course.on_request().then(|| Instant::now() + grace);
        let status = self.course.status();
        loop {
            let ready = wait(&[self.relay.done(), signals.fd()], deadline)?;
            if ready[0] {
                return Ok((status, self.relay.outcome()));
            }
            let told_to = signals.arrived().into_iter().any(signals::asks_to_end);
            if told_to || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok((status, Ok(())));
            }
        }
    }
}

/// Waits until one of `fds` is readable or it is `until`; says which are readable.
fn wait(fds: &[BorrowedFd], until: Option<Instant>) -> Result<Vec<bool>, LaunchError> {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    let timeout = left.and_then(|left| Timespec::try_from(left).ok());
    let mut polled: Vec<_> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error).doing("wait for the ranks"),
    }
    Ok(polled.iter().map(|fd| !fd.revents().is_empty()).collect())
}
