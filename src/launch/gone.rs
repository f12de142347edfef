//! Tells the ranks that are still starting of one that will not come, because it has ended or is stopped: they would wait for
//! it until `MP_INIT_TIMEOUT`. Those whose world is complete notice by themselves, and then nobody listens.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::job::Job;
use super::processes::{self, Ended};

/// Between two attempts: rank 0 does not listen, or not yet.
const AGAIN: Duration = Duration::from_millis(200);

/// Ranks that have ended, of which the others may have to hear.
pub(super) struct Gone {
    job: Option<libmp::launcher::Job>,
    ended: Vec<(u32, Pid, Ended)>,
    /// A rank that is given up because it is stopped, and how long it has been.
    stopped: Option<(u32, Duration)>,
    /// To be told of that, if it is still so when rank 0 answers.
    call: Option<libmp::launcher::Call>,
    /// Where rank 0 listens, and with which descriptor.
    rendezvous: (SocketAddr, Option<RawFd>),
    /// The rank that rank 0 has been told of.
    told: Option<u32>,
    /// Rank 0 has ended or is stopped, and those who look for it are told.
    in_its_place: bool,
    next: Instant,
}

impl Gone {
    pub fn new(job: &Job, now: Instant) -> Gone {
        Gone {
            rendezvous: (job.meeting.rendezvous, job.descriptor),
            job: libmp::launcher::Job::new(job.meeting.rendezvous, &job.identity.token),
            ended: Vec::new(),
            stopped: None,
            call: None,
            told: None,
            in_its_place: false,
            next: now,
        }
    }

    /// A rank has ended; `group` is its process group.
    pub fn add(&mut self, rank: usize, group: Pid, how: Ended, now: Instant) {
        self.ended.extend(u32::try_from(rank).map(|rank| (rank, group, how)));
        self.next = now;
    }

    /// Which rank is given up because it has been stopped for so long, if any.
    pub fn stopped(&mut self, rank: Option<(usize, Duration)>) {
        self.stopped = rank.and_then(|(rank, long)| Some((u32::try_from(rank).ok()?, long)));
        if self.stopped.is_none() {
            self.call = None;
        }
    }

    /// When [`Gone::tell`] wants to be called.
    pub fn deadline(&self) -> Option<Instant> {
        let nobody = self.ended.is_empty() && self.stopped.is_none();
        let done = nobody || self.in_its_place;
        (!done).then_some(self.next)
    }

    /// Tells what has not been told, if it is time: the one rank that is the cause of what else has ended. `blamed` is who
    /// takes the blame for a failure, once that is judged; a rank that ended well will not come either, unless it left its
    /// work to a process that it started. `rank_0` is the process of rank 0, if it runs.
    pub fn tell(&mut self, blamed: Option<usize>, rank_0: Option<Pid>, now: Instant) {
        let Some(job) = self.job.as_ref().filter(|_| now >= self.next) else { return };
        self.next = now + AGAIN;
        let failed = self.ended.iter().any(|(_, _, how)| !how.well());
        let is_cause = |(rank, group, how): &&(u32, Pid, Ended)| match failed {
            true => blamed == usize::try_from(*rank).ok(),
            false => how.well() && processes::running(&[*group]).is_empty(),
        };
        let ended = self.ended.iter().find(is_cause);
        // It may have waited for the stopped one itself.
        let may_follow = ended.is_some_and(|(_, _, how)| how.may_follow());
        let ended = ended.map(|(rank, _, how)| (*rank, format!("it {how}")));
        let stopped = self
            .stopped
            .map(|(rank, long)| (rank, format!("it is stopped, for {:.0} s,", long.as_secs_f64())));
        // Who has been told of a stopped rank ends on its account.
        let known = stopped.clone().filter(|(rank, _)| may_follow || self.told == Some(*rank));
        let has_ended = known.is_none() && ended.is_some();
        let Some((rank, how)) = known.or(ended).or(stopped) else { return };
        if self.ended.iter().any(|(rank, ..)| *rank == 0) {
            self.in_its_place =
                self.in_its_place || job.in_place_of_rank_0(None, rank, &how).is_ok();
        } else if let (Some((0, _)), Some(process)) = (self.stopped, rank_0) {
            if !self.in_its_place
                && let (address, Some(number)) = self.rendezvous
                && let Ok(listener) = processes::listener_of(process, number, address)
                // Until then rank 0 may go on.
                && processes::is_called(&listener)
            {
                self.in_its_place = job.in_place_of_rank_0(Some(listener), rank, &how).is_ok();
            }
        } else if self.told != Some(rank) && has_ended {
            self.told = job.gone(rank, &how).is_ok().then_some(rank);
        } else if self.told != Some(rank) {
            self.call = self.call.take().or_else(|| job.call().ok());
            match self.call.as_ref().map(libmp::launcher::Call::is_answered) {
                Some(Ok(true)) => {
                    let told = self.call.take().is_some_and(|call| call.gone(rank, &how).is_ok());
                    self.told = told.then_some(rank);
                }
                Some(Err(_)) => self.call = None,
                Some(Ok(false)) | None => {}
            }
        }
    }
}
