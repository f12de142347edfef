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
    untold: Vec<(u32, Pid, Ended)>,
    next: Instant,
}

impl Gone {
    pub fn new(job: &Job, now: Instant) -> Gone {
        let job = libmp::launcher::Job::new(job.rendezvous, &job.token);
        Gone { job, untold: Vec::new(), next: now }
    }

    /// A rank has ended; `group` is its process group.
    pub fn add(&mut self, rank: usize, group: Pid, how: Ended, now: Instant) {
        self.untold.extend(u32::try_from(rank).map(|rank| (rank, group, how)));
        self.next = now;
    }

    /// When [`Gone::tell`] wants to be called.
    pub fn deadline(&self) -> Option<Instant> {
        (!self.untold.is_empty()).then_some(self.next)
    }

    /// Tells what has not been told, if it is time. A rank that ended well may have left its work to a process that it
    /// started.
    pub fn tell(&mut self, now: Instant) {
        let Some(job) = self.job.as_ref().filter(|_| now >= self.next) else { return };
        self.next = now + AGAIN;
        self.untold.retain(|(rank, group, how)| {
            how.well() && !processes::running(&[*group]).is_empty()
                || job.gone(*rank, &format!("it {how}")).is_err()
        });
    }
}
