//! Runs a job: starts everything, then waits for signals, ends of ranks and deadlines, and does what
//! `course.rs` says until nothing of the job is left.

use std::os::fd::{AsFd, BorrowedFd};
use std::process::Stdio;
use std::time::{Duration, Instant};

use libmp::Config;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal};
use signal_hook::consts::SIGTERM;

use super::contract::RankEnvironment;
use super::course::{self, Course, Look, Step};
use super::error::{Doing, LaunchError};
use super::gone::Gone;
use super::gpus::{self, Placement};
use super::hosts::{self, Control, Host, Line, Order, Told};
use super::job::Job;
use super::options::Options;
use super::parts::Parts;
use super::processes::{self, Ended};
use super::relay::{self, Outcome, Relay, Streams};
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
    if options.agent {
        let mut control = Control::default();
        let order = control.order()?;
        let host = order.host.clone().unwrap_or_default();
        // The first `mprun` hears the status.
        return on_this_host(order, Some(control)).or_else(|error| {
            mp_program::errln!("mprun on {host}: {error}");
            Ok(error.exit_status())
        });
    }
    if let Some(list) = &options.hosts {
        let hosts = hosts::parse(list).map_err(LaunchError::Hosts)?;
        return on_hosts(options, &hosts::divide(&hosts, options.ranks)?);
    }
    let list = options.gpus.as_ref().map_or(&[][..], |list| &list.0);
    let size = Placement::choose(options.ranks, options.per_gpu, list, gpus::count)?.size;
    on_this_host(Order::for_this_host(options, size)?, None)
}

/// Runs the ranks of this host.
fn on_this_host(order: Order, control: Option<Control>) -> Result<i32, LaunchError> {
    let placement = Placement::choose(Some(order.count), order.per_gpu, &order.gpus, gpus::count)?;
    order.enter_folder()?;
    let mut signals = Signals::catch()?;
    let mut job = match order.meeting {
        Some(meeting) => Job::elsewhere(order.identity.clone(), meeting),
        None if order.host.is_some() => {
            let interface = order.variable("MP_INTERFACE").filter(|name| !name.is_empty());
            let here = libmp::launcher::address(interface.as_deref());
            let job = Job::here(order.identity.clone(), here.map_err(LaunchError::Address)?)?;
            hosts::say_meeting(job.meeting)?;
            job
        }
        None => {
            let here = libmp::launcher::loopback().doing("let the ranks meet on this host")?;
            Job::here(order.identity.clone(), here)?
        }
    };

    let mut ranks = Vec::new();
    let started = start(&order, &placement, &mut job, &mut ranks);
    let parts = Parts::Ranks { first: order.first, count: order.count };
    let speaker = order.host.as_ref().map_or("mprun".into(), |host| format!("mprun on {host}"));
    let prefix = |rank: usize| match order.prefix {
        true => relay::label(order.first + rank, order.size),
        false => Vec::new(),
    };
    let course =
        Course::new(parts.clone(), order.timeout, order.linger, order.kill_after, Instant::now());
    let silence = longest_silence(&order);
    let mut running =
        Running::new(ranks, prefix, speaker, course, Stopped::new(parts, silence, Instant::now()))?;
    running.gone = Some((order.first, Gone::new(&job, Instant::now())));
    running.control = control;
    let started = started.and_then(|feed| feed.map_or(Ok(()), Feed::start));
    running.run(started, &mut signals, order.kill_after)
}

/// Runs the launchers of hosts.
fn on_hosts(options: &Options, hosts: &[Host]) -> Result<i32, LaunchError> {
    let mut signals = Signals::catch()?;
    let mut all = Vec::new();
    let started = hosts::start(options, hosts, &mut signals, &mut all);
    let (launchers, lines): (Vec<Rank>, Vec<Line>) =
        all.into_iter().map(|host| (host.launcher, host.line)).unzip();
    let parts = Parts::Hosts(hosts.iter().map(|host| host.name.clone()).collect());
    let (linger, grace) = (options.linger, options.kill_after);
    let course = Course::new(parts.clone(), options.timeout, linger, grace, Instant::now());
    let silence = longest_silence(&Order::for_this_host(options, 0)?);
    let stopped = Stopped::new(parts, silence, Instant::now());
    let mut running = Running::new(launchers, |_| Vec::new(), "mprun".into(), course, stopped)?;
    running.lines = Some(lines);
    running.run(started, &mut signals, grace)
}

/// How long the ranks of a complete world may be silent, by what they find in their environment. What they will refuse there
/// is as if it were not set.
fn longest_silence(order: &Order) -> Duration {
    let variables = ["MP_HEARTBEAT", "MP_HEARTBEAT_TIMEOUT"]
        .into_iter()
        .filter_map(|name| Some((name, order.variable(name)?)));
    let config =
        Config::from_variables(variables).or_else(|_| Config::from_variables([("", ""); 0]));
    config.map_or(Duration::from_secs(10), |config| config.heartbeat_timeout)
}

/// Starts every rank; `ranks` holds those that run, also after an error.
fn start(
    order: &Order,
    placement: &Placement,
    job: &mut Job,
    ranks: &mut Vec<Rank>,
) -> Result<Option<Feed>, LaunchError> {
    let program = Program { command: &order.command, env: &order.env };
    // Of several hosts the input is the way of the first `mprun`.
    let (stdin_of_rank_0, feed) = match order.host {
        Some(_) => (Stdio::null(), None),
        None => stdin::for_rank_0()?,
    };
    let mut stdin_of_rank_0 = Some(stdin_of_rank_0);
    // Taken: once rank 0 has its own, a connection must not be accepted by a socket nobody serves.
    let mut listener = job.listener.take();
    for local_rank in 0..order.count {
        let listener = listener.take();
        let rank = order.first + local_rank;
        let environment = RankEnvironment {
            rank,
            size: order.size,
            local_rank,
            local_size: order.count,
            rendezvous: job.meeting.rendezvous,
            rendezvous_fd: listener.as_ref().map(std::os::fd::AsRawFd::as_raw_fd),
            master: job.meeting.master,
            job: &job.identity.id,
            token: &job.identity.token,
            gpu: placement.gpu(local_rank),
        };
        let stdin = stdin_of_rank_0.take().unwrap_or_else(Stdio::null);
        let (part, values) = (format!("rank {rank}"), environment.values());
        ranks.push(program.start(&part, &values, stdin, listener.as_ref().map(AsFd::as_fd))?);
    }
    Ok(feed)
}

/// A job whose parts were started: ranks, or launchers of hosts.
struct Running {
    /// By rank, or by host; `None`: it has ended.
    pids: Vec<Option<Pid>>,
    /// By rank, or by host: its process group, the number of its first process.
    groups: Vec<Pid>,
    _ties: Vec<Tie>,
    /// Of ranks: the number of the first, and who hears of those that have ended.
    gone: Option<(usize, Gone)>,
    /// Of hosts: the ways to them.
    lines: Option<Vec<Line>>,
    /// On one of several hosts: the way of the first `mprun`, as long as it is there.
    control: Option<Control>,
    stopped: Stopped,
    course: Course,
    relay: Relay,
    given_up: bool,
}

impl Running {
    fn new(
        parts: Vec<Rank>,
        prefix: impl Fn(usize) -> Vec<u8>,
        speaker: String,
        course: Course,
        stopped: Stopped,
    ) -> Result<Running, LaunchError> {
        let pids = parts.iter().map(|part| Some(part.pid)).collect();
        let groups = parts.iter().map(|part| part.pid).collect();
        let streams = |(part, Rank { stdout, stderr, tie, .. })| {
            ((Streams { stdout, stderr }, prefix(part)), tie)
        };
        let (streams, ties) = parts.into_iter().enumerate().map(streams).unzip();
        let relay = Relay::start(streams, speaker)?;
        let (gone, lines, control) = (None, None, None);
        Ok(Running {
            pids,
            groups,
            _ties: ties,
            gone,
            lines,
            control,
            stopped,
            course,
            relay,
            given_up: false,
        })
    }

    /// From the start of the parts, of which `started` says how it went, to the end.
    fn run(
        mut self,
        started: Result<(), LaunchError>,
        signals: &mut Signals,
        grace: Duration,
    ) -> Result<i32, LaunchError> {
        let failure = started.err();
        if let Some(failure) = &failure {
            self.cannot_start(failure)?;
        }
        self.until_the_end(signals)?;
        let (status, output) = self.finish(signals, grace)?;
        match (failure, output) {
            (Some(failure), _) => Err(failure),
            (None, Err(failure)) if status == 0 => Err(failure),
            (None, _) => Ok(status),
        }
    }

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
                let next = self.gone.as_mut().and_then(|(first, gone)| {
                    let blamed = self.course.blamed().map(|part| *first + part);
                    gone.tell(blamed, rank_0.filter(|_| *first == 0), Instant::now());
                    gone.deadline()
                });
                let stopped = Some(self.stopped.deadline());
                patience = [patience, next, stopped].into_iter().flatten().min();
            }
            let wake = [self.course.deadline(), patience].into_iter().flatten().min();
            let control = self.control.as_ref().map(Control::fd);
            let watched: Vec<BorrowedFd> =
                [Some(signals.fd()), control].into_iter().flatten().collect();
            if wait(&watched, wake)?.get(1) == Some(&true) {
                self.follow()?;
            }
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

    /// Does what the first `mprun` says.
    fn follow(&mut self) -> Result<(), LaunchError> {
        let told = self.control.as_mut().map(Control::told).unwrap_or_default();
        for told in told {
            let steps = match told {
                Told::Signal(signal) if signals::asks_to_end(signal) => {
                    self.course.signal(signal, Instant::now())
                }
                Told::Signal(signal) => vec![Step::Signal(signal)],
                Told::Gone => {
                    self.control = None;
                    let said = "the mprun that started the job is gone; ending its ranks here";
                    let mut steps = vec![Step::Say(said.into())];
                    steps.extend(self.course.signal(SIGTERM, Instant::now()));
                    steps
                }
            };
            self.take(steps)?;
        }
        Ok(())
    }

    fn look_for_ended_ranks(&mut self) -> Result<(), LaunchError> {
        let running = self.pids.iter().enumerate().filter_map(|(rank, pid)| Some((rank, (*pid)?)));
        let ended: Vec<(usize, Ended)> =
            running.filter_map(|(rank, pid)| Some((rank, processes::ended(pid)?))).collect();
        for (rank, how) in ended {
            self.pids[rank] = None;
            if let Some((first, gone)) = &mut self.gone {
                gone.add(*first + rank, self.groups[rank], how, Instant::now());
            }
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
        if let Some((first, gone)) = &mut self.gone {
            let given_up = self.stopped.given_up();
            gone.stopped(given_up.map(|(rank, long)| (*first + rank, long)));
        }
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
                    self.signal(signal);
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

    /// Signals every rank; those of hosts through the `mprun` there, which outlives them and passes their last words on.
    fn signal(&mut self, signal: Signal) {
        match &self.lines {
            Some(lines) if signal != Signal::KILL => {
                lines.iter().for_each(|line| line.signal(signal.as_raw()));
                return;
            }
            // A host that does not answer: its input ends with this, and so do its ranks, when it hears of it.
            Some(_) => self.lines = Some(Vec::new()),
            None => {}
        }
        self.groups.iter().for_each(|group| processes::signal_group(*group, signal));
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
pub(super) fn wait(fds: &[BorrowedFd], until: Option<Instant>) -> Result<Vec<bool>, LaunchError> {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    let timeout = left.and_then(|left| Timespec::try_from(left).ok());
    let mut polled: Vec<_> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error).doing("wait for the ranks"),
    }
    Ok(polled.iter().map(|fd| !fd.revents().is_empty()).collect())
}
