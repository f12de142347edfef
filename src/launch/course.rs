//! The course of a job as a state machine without I/O: what happened goes in, what to do comes out.
//! Here stands who is blamed for a failure, who is ended when, and with which status `mprun` exits.

use std::time::{Duration, Instant};

use signal_hook::consts::*;

use super::parts::Parts;
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
    /// A rank exited with a failure, of which another may be the cause: the verdict falls after the first instant, or
    /// while a rank is about to die at the second.
    Judging(Instant, Instant),
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
    parts: Parts,
    linger: Duration,
    kill_after: Duration,
    timeout: Option<(Duration, Instant)>,
    phase: Phase,
    running: usize,
    status: i32,
    blamed: Option<usize>,
    on_request: bool,
    /// Ranks that failed and have not been judged, as rank, process and end.
    failed: Vec<(usize, i32, Ended)>,
}

/// What a look at the processes of the job found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Look {
    /// A process of a rank that runs is about to end, or was killed and its parent does not know yet.
    pub dying: bool,
    /// Ranks that are stopped, and their process.
    pub stopped: Vec<(usize, i32)>,
}

/// How long after the first rank that exits with a failure another one that a signal killed still takes the blame. The
/// kernel closes the connections of a killed process before its parent hears of its end, so that those who notice may end
/// first; and where a shell stands between, it takes its time, too.
const HEARING: Duration = Duration::from_millis(100);

/// How long the verdict waits while a rank is visibly about to die, or a killed program has not been noticed by its shell: on a
/// machine with too much to do the kernel takes seconds to end a process.
const LONGEST_HEARING: Duration = DEATH;

/// A second request that comes sooner is the first one again: `timeout(1)` and shells signal a process
/// and its group.
const INSISTENCE: Duration = Duration::from_millis(200);

/// How long the kernel may take to end a process after SIGKILL before we stop waiting: one that hangs
/// in a driver may never end.
const DEATH: Duration = Duration::from_secs(10);

impl Course {
    pub fn new(
        parts: Parts,
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
            running: parts.len(),
            parts,
            status: 0,
            blamed: None,
            on_request: false,
            failed: Vec::new(),
        }
    }

    /// The exit status so far.
    pub fn status(&self) -> i32 {
        self.status
    }

    /// The rank that the verdict blames.
    pub fn blamed(&self) -> Option<usize> {
        self.blamed
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
            Phase::Judging(until, _) | Phase::Lingering(until) => {
                Some(timeout.map_or(until, |at| at.min(until)))
            }
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

    /// How soon [`Course::tick`] wants to know more about processes that do not tell: `None` if it does not.
    pub fn looks_again(&self) -> Option<Duration> {
        match self.phase {
            Phase::Judging(..) => Some(Duration::from_millis(20)),
            Phase::Lingering(_) => Some(Duration::from_millis(100)),
            Phase::Running | Phase::Ending(..) | Phase::Killed(_) | Phase::GivenUp => None,
        }
    }

    /// A rank ended. The first failure is not judged at once if it is an exit: see [`HEARING`].
    pub fn rank_ended(&mut self, rank: usize, pid: i32, how: Ended, now: Instant) -> Vec<Step> {
        self.running -= 1;
        match self.phase {
            Phase::Running if !how.well() => {
                self.phase = Phase::Judging(now + HEARING, now + LONGEST_HEARING);
            }
            Phase::Lingering(_) if !how.well() => {
                return vec![Step::Say(self.says(rank, pid, how))];
            }
            Phase::Running | Phase::Lingering(_) | Phase::Judging(..) => {}
            Phase::Ending(..) | Phase::Killed(_) | Phase::GivenUp => {
                if how.well() || self.status != 0 {
                    return Vec::new();
                }
                self.status = how.status();
                return vec![Step::Say(self.says(rank, pid, how))];
            }
        }
        if !how.well() {
            self.failed.push((rank, pid, how));
        }
        // Nobody else can be the cause any more, or it is found.
        if !self.failed.is_empty() && (self.running == 0 || matches!(how, Ended::Killed(_))) {
            return self.conclude(&Look::default(), now);
        }
        Vec::new()
    }

    /// Says who is to blame: a rank that a signal killed before one that exited, which has often only noticed that the
    /// other is gone. Then ends the others.
    fn judge(&mut self, look: &Look) -> Vec<Step> {
        // Stable: of equals the first.
        self.failed.sort_by_key(|(_, _, how)| (how.may_follow(), !matches!(how, Ended::Killed(_))));
        let mut failed = std::mem::take(&mut self.failed).into_iter();
        let Some((rank, pid, how)) = failed.next() else { return Vec::new() };
        self.status = how.status();
        self.blamed = Some(rank);
        let mut message = self.says(rank, pid, how);
        for (rank, pid) in look.stopped.iter().filter(|_| !matches!(how, Ended::Killed(_))) {
            message += &format!(", and {} (process {pid}) is stopped", self.parts.name(*rank));
        }
        if self.running > 0 {
            message += &format!("; ending the other {}", self.parts.noun(self.running));
        }
        let mut steps = vec![Step::Say(message)];
        steps.extend(failed.map(|(rank, pid, how)| Step::Say(self.says(rank, pid, how))));
        steps
    }

    /// The verdict, and what follows from it.
    fn conclude(&mut self, look: &Look, now: Instant) -> Vec<Step> {
        let mut steps = self.judge(look);
        if self.running > 0 && self.linger.is_zero() {
            steps.extend(self.end(SIGTERM, now));
        } else if self.status != 0 {
            self.phase = Phase::Lingering(now + self.linger);
        }
        steps
    }

    /// All ranks have ended, processes that they started have not.
    pub fn left_behind(&mut self, processes: usize, now: Instant) -> Vec<Step> {
        match self.phase {
            Phase::Running | Phase::Judging(..) | Phase::Lingering(_) => {
                let what = if processes == 1 { "a process" } else { "processes" };
                let who = self.parts.noun(2);
                let message = format!("the {who} left {what} behind; ending {processes}");
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
            Phase::Running | Phase::Judging(..) | Phase::Lingering(_) => {
                let mut steps = self.judge(&Look::default());
                steps.extend(self.end(signal, now));
                steps
            }
            Phase::Ending(since, _) if now >= since + INSISTENCE && signal != SIGHUP => {
                self.kill(now)
            }
            Phase::Ending(..) | Phase::Killed(_) | Phase::GivenUp => Vec::new(),
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, look: &Look, now: Instant) -> Vec<Step> {
        let late = self.timeout.filter(|(_, at)| now >= *at);
        match self.phase {
            Phase::Running | Phase::Judging(..) | Phase::Lingering(_) if late.is_some() => {
                let mut steps = self.judge(look);
                self.on_request = true;
                if self.status == 0 {
                    self.status = 124;
                }
                let timeout = late.map_or(0.0, |(timeout, _)| timeout.as_secs_f64());
                steps.push(Step::Say(format!("{timeout} s are over (--timeout); ending")));
                steps.extend(self.end(SIGTERM, now));
                steps
            }
            Phase::Judging(until, last) if now >= last || now >= until && !look.dying => {
                self.conclude(look, now)
            }
            // Who is stopped notices nothing.
            Phase::Lingering(until) if now >= until || look.stopped.len() >= self.running => {
                self.end(SIGTERM, now)
            }
            Phase::Running | Phase::Judging(..) | Phase::Lingering(_) => Vec::new(),
            Phase::Ending(_, until) if now >= until => self.kill(now),
            Phase::Killed(until) if now >= until => {
                self.phase = Phase::GivenUp;
                vec![Step::GiveUp]
            }
            Phase::Ending(..) | Phase::Killed(_) | Phase::GivenUp => Vec::new(),
        }
    }

    /// How a part ended.
    fn says(&self, part: usize, pid: i32, how: Ended) -> String {
        format!("{} (process {pid}) {how}", self.parts.name(part))
    }

    fn end(&mut self, signal: i32, now: Instant) -> Vec<Step> {
        self.phase = Phase::Ending(now, now + self.kill_after);
        // A stopped process acts on the signal only when it is continued.
        vec![Step::Signal(signal), Step::Signal(SIGCONT)]
    }

    fn kill(&mut self, now: Instant) -> Vec<Step> {
        self.phase = Phase::Killed(now + DEATH);
        let said = match self.running {
            0 => format!("killing what the {} left behind", self.parts.noun(2)),
            1 => format!("killing 1 {} that still runs", self.parts.noun(1)),
            running => format!("killing {running} {} that still run", self.parts.noun(running)),
        };
        vec![Step::Say(said), Step::Signal(SIGKILL)]
    }
}

/// The message of [`Step::GiveUp`].
pub(super) fn survivors(processes: &[u32]) -> String {
    let listed: Vec<_> = processes.iter().map(u32::to_string).collect();
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

    #[test]
    fn of_several_hosts_the_one_whose_launcher_ended_is_named() {
        let now = Instant::now();
        let parts = Parts::Hosts(vec!["a".into(), "b".into(), "c".into()]);
        let mut course = Course::new(parts, None, NO_TIME, GRACE, now);
        course.rank_ended(1, 11, Ended::Exited(255), now);
        let said =
            "the launcher of host b (process 11) exited with status 255; ending the other hosts";
        assert_eq!(course.tick(&Look::default(), now + HEARING)[0], Step::Say(said.into()));
        assert_eq!(course.status(), 255);
    }

    const NO_TIME: Duration = Duration::ZERO;
    const GRACE: Duration = Duration::from_secs(5);

    fn job(ranks: usize, linger: Duration) -> (Course, Instant) {
        let now = Instant::now();
        let parts = Parts::Ranks { first: 0, count: ranks };
        (Course::new(parts, None, linger, GRACE, now), now)
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
        assert_eq!(course.rank_ended(1, 11, Ended::Exited(7), now), [], "not judged at once");
        assert_eq!(course.tick(&Look::default(), now + HEARING / 2), []);
        assert_eq!(course.deadline(), Some(now + HEARING));
        let steps = course.tick(&Look::default(), now + HEARING);
        assert_eq!(
            steps[0],
            Step::Say("rank 1 (process 11) exited with status 7; ending the other ranks".into())
        );
        assert_eq!(signals(&steps), [SIGTERM, SIGCONT]);
        assert_eq!(course.rank_ended(0, 10, Ended::Killed(SIGTERM), now), []);
        assert_eq!(course.status(), 7);
    }

    #[test]
    fn a_rank_that_a_signal_killed_is_blamed_and_not_one_that_noticed_and_was_seen_first() {
        let (mut course, now) = job(3, GRACE);
        course.rank_ended(0, 10, Ended::Exited(1), now);
        let dying = Look { dying: true, stopped: Vec::new() };
        // The killed one takes its time, as is seen.
        assert_eq!(course.tick(&dying, now + 30 * HEARING), []);
        assert_eq!(course.blamed(), None);
        let steps = course.rank_ended(2, 12, Ended::Killed(SIGKILL), now + 31 * HEARING);
        assert_eq!(
            steps,
            [
                Step::Say(
                    "rank 2 (process 12) was killed by SIGKILL; ending the other rank".into()
                ),
                Step::Say("rank 0 (process 10) exited with status 1".into()),
            ]
        );
        assert_eq!((course.status(), course.blamed()), (137, Some(2)));
    }

    #[test]
    fn a_shell_whose_program_was_killed_is_blamed_before_one_that_noticed() {
        let (mut course, now) = job(2, NO_TIME);
        course.rank_ended(0, 10, Ended::Exited(1), now);
        let steps = course.rank_ended(1, 11, Ended::Exited(137), now);
        assert_eq!(steps[0], Step::Say("rank 1 (process 11) exited with status 137".into()));
        assert_eq!(course.status(), 137);
    }

    #[test]
    fn a_rank_that_is_about_to_die_is_waited_for_but_not_for_ever() {
        let (mut course, now) = job(2, NO_TIME);
        course.rank_ended(0, 10, Ended::Exited(1), now);
        let dying = Look { dying: true, stopped: Vec::new() };
        assert_eq!(course.tick(&dying, now + LONGEST_HEARING / 2), []);
        assert_eq!(signals(&course.tick(&dying, now + LONGEST_HEARING)), [SIGTERM, SIGCONT]);
        assert_eq!(course.status(), 1);
    }

    #[test]
    fn a_request_to_end_cuts_the_hearing_short_and_signals_once() {
        let (mut course, now) = job(2, NO_TIME);
        course.rank_ended(0, 10, Ended::Exited(4), now);
        let steps = course.signal(SIGINT, now);
        assert!(matches!(&steps[0], Step::Say(said) if said.contains("status 4")), "{steps:?}");
        assert_eq!(signals(&steps), [SIGINT, SIGCONT]);
        assert_eq!(course.status(), 4);
    }

    #[test]
    fn a_stopped_rank_is_named_and_not_waited_for() {
        let (mut course, now) = job(3, GRACE);
        let look = Look { dying: false, stopped: vec![(1, 11)] };
        course.rank_ended(0, 10, Ended::Exited(1), now);
        let said = "rank 0 (process 10) exited with status 1, and rank 1 (process 11) is stopped; \
                    ending the other ranks";
        assert_eq!(course.tick(&look, now + HEARING), [Step::Say(said.into())]);
        // Rank 2 still has something to say; then only the stopped one is left.
        assert_eq!(course.tick(&look, now + 2 * HEARING), []);
        course.rank_ended(2, 12, Ended::Exited(1), now + 2 * HEARING);
        assert_eq!(signals(&course.tick(&look, now + 2 * HEARING)), [SIGTERM, SIGCONT]);
    }

    #[test]
    fn what_ignores_the_request_is_killed_and_then_given_up() {
        let (mut course, now) = job(2, NO_TIME);
        course.rank_ended(1, 11, Ended::Killed(SIGSEGV), now);
        assert_eq!(course.deadline(), Some(now + GRACE));
        assert_eq!(course.tick(&Look::default(), now + GRACE / 2), []);
        assert_eq!(signals(&course.tick(&Look::default(), now + GRACE)), [SIGKILL]);
        let until = course.deadline().unwrap();
        assert_eq!(course.tick(&Look::default(), until), [Step::GiveUp]);
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
        assert_eq!(signals(&course.tick(&Look::default(), now + GRACE)), [SIGTERM, SIGCONT]);
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
        let mut course =
            Course::new(Parts::Ranks { first: 0, count: 1 }, Some(GRACE), NO_TIME, GRACE, now);
        assert_eq!(course.deadline(), Some(now + GRACE));
        assert_eq!(signals(&course.tick(&Look::default(), now + GRACE)), [SIGTERM, SIGCONT]);
        course.rank_ended(0, 10, Ended::Killed(SIGTERM), now + GRACE);
        assert_eq!(course.status(), 124);
    }

    #[test]
    fn what_the_ranks_leave_behind_is_ended_without_making_the_job_fail() {
        let (mut course, now) = job(1, NO_TIME);
        course.rank_ended(0, 10, Ended::Exited(0), now);
        assert_eq!(signals(&course.left_behind(2, now)), [SIGTERM, SIGCONT]);
        assert_eq!(course.left_behind(2, now), [], "asked once");
        assert_eq!(signals(&course.tick(&Look::default(), now + GRACE)), [SIGKILL]);
        assert_eq!(course.status(), 0);
    }
}
