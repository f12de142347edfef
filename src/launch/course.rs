//! The course of a job as a state machine without I/O: what happened goes in, what to do comes out.
//! Here stands who is blamed for a failure, who is ended when, and with which status `mprun` exits.

use std::time::{Duration, Instant};

use signal_hook::consts::*;

use super::processes::{Ended, name};
use super::signals::asks_to_end;

/// What has to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Send this signal to the process group of every rank.
    Signal(i32),
    /// Tell the user.
    Say(String),
    /// Stop this process, as the terminal asked; send SIGCONT to the ranks when it goes on.
    Stop,
    /// Something does not die. Leave it.
    GiveUp,
}

/// How the job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// A rank failed; the others have until then to notice it themselves.
    Lingering(Instant),
    /// The ranks were asked to end, then. What still runs at the second instant is killed.
    Ending(Instant, Instant),
    /// They were killed and have until then to disappear.
    Killed(Instant),
    GivenUp,
}

/// A job from its start to its end.
#[derive(Debug)]
pub(super) struct Course {
    linger: Duration,
    kill_after: Duration,
    timeout: Option<(Duration, Instant)>,
    phase: Phase,
    running: usize,
    status: i32,
    on_request: bool,
}

/// A second request that comes sooner is the first one again: `timeout(1)` and shells signal a process
/// and its group.
const INSISTENCE: Duration = Duration::from_millis(200);

/// How long the kernel may take to end a process after SIGKILL before we stop waiting: one that hangs
/// in a driver may never end.
const DEATH: Duration = Duration::from_secs(10);

impl Course {
    pub fn new(
        ranks: usize,
        timeout: Option<Duration>,
        linger: Duration,
        kill_after: Duration,
        now: Instant,
    ) -> Course {
        Course {
            linger,
            kill_after,
            timeout: timeout.map(|timeout| (timeout, now + timeout)),
            phase: Phase::Running,
            running: ranks,
            status: 0,
            on_request: false,
        }
    }

    /// The exit status so far.
    pub fn status(&self) -> i32 {
        self.status
    }

    /// Was the end asked for from outside (a signal, `--timeout`)?
    pub fn on_request(&self) -> bool {
        self.on_request
    }

    /// Have all ranks ended?
    pub fn ranks_ended(&self) -> bool {
        self.running == 0
    }

    /// When [`Course::tick`] wants to be called.
    pub fn deadline(&self) -> Option<Instant> {
        let timeout = self.timeout.map(|(_, at)| at);
        match self.phase {
            Phase::Running => timeout,
            Phase::Lingering(until) => Some(timeout.map_or(until, |at| at.min(until))),
            Phase::Ending(_, until) | Phase::Killed(until) => Some(until),
            Phase::GivenUp => None,
        }
    }

    /// A rank could not be started.
    pub fn start_failed(&mut self, status: i32, started: usize, now: Instant) -> Vec<Step> {
        self.running = started;
        self.status = status;
        self.end(SIGTERM, now)
    }

    /// A rank ended. Of several that ended together, those that a signal killed come first: a rank
    /// that exits has often only noticed that another one is gone.
    pub fn rank_ended(&mut self, rank: usize, pid: i32, how: Ended, now: Instant) -> Vec<Step> {
        self.running -= 1;
        let first = self.status == 0;
        let asked_to = !matches!(self.phase, Phase::Running | Phase::Lingering(_));
        if how.well() || (asked_to && !first) {
            return Vec::new();
        }
        if first {
            self.status = how.status();
        }
        let mut message = format!("rank {rank} (process {pid}) {how}");
        let ending = first && !asked_to && self.running > 0;
        if ending {
            message += match self.running {
                1 => "; ending the other rank",
                _ => "; ending the other ranks",
            };
        }
        let mut steps = vec![Step::Say(message)];
        if ending && self.linger.is_zero() {
            steps.extend(self.end(SIGTERM, now));
        } else if ending {
            self.phase = Phase::Lingering(now + self.linger);
        }
        steps
    }

    /// All ranks have ended, processes that they started have not.
    pub fn left_behind(&mut self, processes: usize, now: Instant) -> Vec<Step> {
        match self.phase {
            Phase::Running | Phase::Lingering(_) => {
                let what = if processes == 1 { "a process" } else { "processes" };
                let message = format!("the ranks left {what} behind; ending {processes}");
                let mut steps = vec![Step::Say(message)];
                steps.extend(self.end(SIGTERM, now));
                steps
            }
            Phase::Ending(..) | Phase::Killed(_) | Phase::GivenUp => Vec::new(),
        }
    }

    /// A signal came for the job.
    pub fn signal(&mut self, signal: i32, now: Instant) -> Vec<Step> {
        if signal == SIGTSTP {
            return vec![Step::Signal(SIGTSTP), Step::Stop, Step::Signal(SIGCONT)];
        }
        if !asks_to_end(signal) {
            return vec![Step::Signal(signal)];
        }
        self.on_request = true;
        match self.phase {
            Phase::Running | Phase::Lingering(_) => self.end(signal, now),
            Phase::Ending(since, _) if now >= since + INSISTENCE && signal != SIGHUP => {
                self.kill(now)
            }
            Phase::Ending(..) | Phase::Killed(_) | Phase::GivenUp => Vec::new(),
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Instant) -> Vec<Step> {
        match self.phase {
            Phase::Running | Phase::Lingering(_) => {
                if let Some((timeout, _)) = self.timeout.filter(|(_, at)| now >= *at) {
                    self.on_request = true;
                    if self.status == 0 {
                        self.status = 124;
                    }
                    let said = format!("{} s are over (--timeout); ending", timeout.as_secs_f64());
                    let mut steps = vec![Step::Say(said)];
                    steps.extend(self.end(SIGTERM, now));
                    return steps;
                }
                match self.phase {
                    Phase::Lingering(until) if now >= until => self.end(SIGTERM, now),
                    _ => Vec::new(),
                }
            }
            Phase::Ending(_, until) if now >= until => self.kill(now),
            Phase::Killed(until) if now >= until => {
                self.phase = Phase::GivenUp;
                vec![Step::GiveUp]
            }
            Phase::Ending(..) | Phase::Killed(_) | Phase::GivenUp => Vec::new(),
        }
    }

    fn end(&mut self, signal: i32, now: Instant) -> Vec<Step> {
        self.phase = Phase::Ending(now, now + self.kill_after);
        // A stopped process acts on the signal only when it is continued.
        vec![Step::Signal(signal), Step::Signal(SIGCONT)]
    }

    fn kill(&mut self, now: Instant) -> Vec<Step> {
        self.phase = Phase::Killed(now + DEATH);
        let said = match self.running {
            0 => "killing what the ranks left behind".to_owned(),
            1 => "killing 1 rank that still runs".to_owned(),
            running => format!("killing {running} ranks that still run"),
        };
        vec![Step::Say(said), Step::Signal(SIGKILL)]
    }
}

/// Orders the ends that one look at the ranks found: see [`Course::rank_ended`].
pub(super) fn blame_order(ended: &mut [(usize, Ended)]) {
    ended.sort_by_key(|(_, how)| !matches!(how, Ended::Killed(_)));
}

/// The message of [`Step::GiveUp`].
pub(super) fn survivors(processes: &[(i32, i32)]) -> String {
    let listed: Vec<_> = processes.iter().map(|(pid, _)| pid.to_string()).collect();
    format!(
        "after {} and {} s these processes still run and are left: {}",
        name(SIGKILL),
        DEATH.as_secs(),
        listed.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_TIME: Duration = Duration::ZERO;
    const GRACE: Duration = Duration::from_secs(5);

    fn job(ranks: usize, linger: Duration) -> (Course, Instant) {
        let now = Instant::now();
        (Course::new(ranks, None, linger, GRACE, now), now)
    }

    fn signals(steps: &[Step]) -> Vec<i32> {
        let signal = |step: &Step| match step {
            Step::Signal(signal) => Some(*signal),
            _ => None,
        };
        steps.iter().filter_map(signal).collect()
    }

    #[test]
    fn ranks_that_exit_with_0_end_nobody() {
        let (mut course, now) = job(2, NO_TIME);
        assert_eq!(course.rank_ended(1, 11, Ended::Exited(0), now), []);
        assert!(!course.ranks_ended());
        assert_eq!(course.rank_ended(0, 10, Ended::Exited(0), now), []);
        assert!(course.ranks_ended());
        assert_eq!(course.status(), 0);
    }

    #[test]
    fn the_first_failure_decides_the_status_and_ends_the_others() {
        let (mut course, now) = job(3, NO_TIME);
        let steps = course.rank_ended(1, 11, Ended::Exited(7), now);
        assert_eq!(
            steps[0],
            Step::Say("rank 1 (process 11) exited with status 7; ending the other ranks".into())
        );
        assert_eq!(signals(&steps), [SIGTERM, SIGCONT]);
        assert_eq!(course.rank_ended(0, 10, Ended::Killed(SIGTERM), now), []);
        assert_eq!(course.status(), 7);
    }

    #[test]
    fn what_ignores_the_request_is_killed_and_then_given_up() {
        let (mut course, now) = job(2, NO_TIME);
        course.rank_ended(1, 11, Ended::Killed(SIGSEGV), now);
        assert_eq!(course.deadline(), Some(now + GRACE));
        assert_eq!(course.tick(now + GRACE / 2), []);
        assert_eq!(signals(&course.tick(now + GRACE)), [SIGKILL]);
        let until = course.deadline().unwrap();
        assert_eq!(course.tick(until), [Step::GiveUp]);
        assert_eq!(course.deadline(), None);
        assert_eq!(course.status(), 139);
    }

    #[test]
    fn survivors_get_the_linger_time_to_tell_what_they_saw() {
        let (mut course, now) = job(3, GRACE);
        assert_eq!(
            signals(&course.rank_ended(1, 11, Ended::Killed(SIGKILL), now)),
            Vec::<i32>::new()
        );
        let steps = course.rank_ended(2, 12, Ended::Exited(3), now);
        assert_eq!(steps, [Step::Say("rank 2 (process 12) exited with status 3".into())]);
        assert_eq!(signals(&course.tick(now + GRACE)), [SIGTERM, SIGCONT]);
        assert_eq!(course.status(), 137);
    }

    #[test]
    fn a_signal_is_passed_on_and_a_second_one_kills() {
        let (mut course, now) = job(1, NO_TIME);
        assert_eq!(course.signal(SIGUSR1, now), [Step::Signal(SIGUSR1)]);
        assert_eq!(signals(&course.signal(SIGINT, now)), [SIGINT, SIGCONT]);
        assert_eq!(course.signal(SIGINT, now + INSISTENCE / 2), [], "the same one, sent twice");
        assert_eq!(course.signal(SIGHUP, now + INSISTENCE), [], "the shell hangs up as well");
        assert_eq!(signals(&course.signal(SIGINT, now + INSISTENCE)), [SIGKILL]);
        assert!(course.on_request());
    }

    #[test]
    fn a_rank_that_dies_of_a_signal_passed_on_gives_the_status() {
        let (mut course, now) = job(2, NO_TIME);
        course.signal(SIGINT, now);
        let steps = course.rank_ended(0, 10, Ended::Killed(SIGINT), now);
        assert_eq!(steps, [Step::Say("rank 0 (process 10) was killed by SIGINT".into())]);
        assert_eq!(course.rank_ended(1, 11, Ended::Killed(SIGINT), now), []);
        assert_eq!(course.status(), 130);
    }

    #[test]
    fn a_job_that_ends_well_after_a_signal_succeeded() {
        let (mut course, now) = job(1, NO_TIME);
        course.signal(SIGTERM, now);
        assert_eq!(course.rank_ended(0, 10, Ended::Exited(0), now), []);
        assert_eq!(course.status(), 0);
    }

    #[test]
    fn the_timeout_ends_the_job_with_124() {
        let now = Instant::now();
        let mut course = Course::new(1, Some(GRACE), NO_TIME, GRACE, now);
        assert_eq!(course.deadline(), Some(now + GRACE));
        assert_eq!(signals(&course.tick(now + GRACE)), [SIGTERM, SIGCONT]);
        course.rank_ended(0, 10, Ended::Killed(SIGTERM), now + GRACE);
        assert_eq!(course.status(), 124);
    }

    #[test]
    fn what_the_ranks_leave_behind_is_ended_without_making_the_job_fail() {
        let (mut course, now) = job(1, NO_TIME);
        course.rank_ended(0, 10, Ended::Exited(0), now);
        assert_eq!(signals(&course.left_behind(2, now)), [SIGTERM, SIGCONT]);
        assert_eq!(course.left_behind(2, now), [], "asked once");
        assert_eq!(signals(&course.tick(now + GRACE)), [SIGKILL]);
        assert_eq!(course.status(), 0);
    }

    #[test]
    fn of_two_ranks_that_ended_together_the_killed_one_is_blamed() {
        let mut ended = [(0, Ended::Exited(1)), (2, Ended::Killed(SIGSEGV)), (3, Ended::Exited(0))];
        blame_order(&mut ended);
        assert_eq!(ended[0], (2, Ended::Killed(SIGSEGV)));
    }
}
