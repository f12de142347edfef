//! Tells the ranks that are still starting of one that has ended and will not come: they would wait for it until
//! `MP_INIT_TIMEOUT`. Those whose world is complete notice by themselves, and then nobody listens.

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
    /// The rank that rank 0 has been told of.
    told: Option<u32>,
    /// Rank 0 has ended, and those who look for it are told.
    in_its_place: bool,
    next: Instant,
}

impl Gone {
    pub fn new(job: &Job, now: Instant) -> Gone {
        let job = libmp::launcher::Job::new(job.rendezvous, &job.token);
        Gone { job, ended: Vec::new(), told: None, in_its_place: false, next: now }
    }

    /// A rank has ended; `group` is its process group.
    pub fn add(&mut self, rank: usize, group: Pid, how: Ended, now: Instant) {
        self.ended.extend(u32::try_from(rank).map(|rank| (rank, group, how)));
        self.next = now;
    }

    /// When [`Gone::tell`] wants to be called.
    pub fn deadline(&self) -> Option<Instant> {
        let done = self.ended.is_empty() || self.in_its_place;
        (!done).then_some(self.next)
    }

    /// Tells what has not been told, if it is time: the one rank that is the cause of what else has ended. `blamed` is who
    /// takes the blame for a failure, once that is judged; a rank that ended well will not come either, unless it left its
    /// work to a process that it started.
    pub fn tell(&mut self, blamed: Option<usize>, now: Instant) {
        let Some(job) = self.job.as_ref().filter(|_| now >= self.next) else { return };
        self.next = now + AGAIN;
        let failed = self.ended.iter().any(|(_, _, how)| !how.well());
        let is_cause = |(rank, group, how): &&(u32, Pid, Ended)| match failed {
            true => blamed == usize::try_from(*rank).ok(),
            false => how.well() && processes::running(&[*group]).is_empty(),
        };
        let Some((rank, _, how)) = self.ended.iter().find(is_cause) else { return };
        let how = format!("it {how}");
        if self.ended.iter().any(|(rank, ..)| *rank == 0) {
            self.in_its_place = self.in_its_place || job.in_place_of_rank_0(*rank, &how).is_ok();
        } else if self.told != Some(*rank) && job.gone(*rank, &how).is_ok() {
            self.told = Some(*rank);
        }
    }
}
