//! Pausing between two looks at a word: there are more ranks than cores on many machines, so a rank that waits must not
//! take the core from the one it waits for.

use std::time::{Duration, Instant};

use gdsync::Deadline;

/// Looks without a pause: some microseconds, the time of a message between two cores.
const SPINS: u32 = 64;
/// How long it yields after each look then.
const YIELDS: Duration = Duration::from_millis(1);
/// Nap between two looks after that, and how long it grows: to a part of what has been waited for, so that thousands of ranks that
/// wait leave the cores to those that do not.
const NAP: Duration = Duration::from_micros(50);
const LONGEST_NAP: Duration = Duration::from_millis(20);
const PART: u32 = 32;
/// The clock is read once in so many spins.
const CLOCK: u32 = 32;

/// One wait.
pub(crate) struct Backoff {
    deadline: Deadline,
    rounds: u32,
    /// When it began to yield.
    since: Option<Instant>,
    /// The waiting one has seen the world over, and looks once more.
    ended: bool,
}

impl Backoff {
    pub fn new(deadline: Deadline) -> Backoff {
        Backoff { deadline, rounds: 0, since: None, ended: false }
    }

    /// Whether the world was over before the last look.
    pub fn world_ended(&self) -> bool {
        self.ended
    }

    /// The world is over: one more look.
    pub fn end_world(&mut self) {
        self.ended = true;
    }

    /// Pauses, the longer the longer it has been; false if the deadline has passed.
    pub fn pause(&mut self) -> bool {
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds <= SPINS {
            std::hint::spin_loop();
            return !self.rounds.is_multiple_of(CLOCK) || !self.deadline.expired();
        }
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        if waited < YIELDS {
            std::thread::yield_now();
        } else {
            let nap = (waited / PART).clamp(NAP, LONGEST_NAP);
            std::thread::sleep(nap.min(self.deadline.remaining()));
        }
        !self.deadline.expired()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_wait_ends_at_its_deadline_and_not_before() {
        let deadline = Deadline::after(Duration::from_millis(30));
        let mut backoff = Backoff::new(deadline);
        while backoff.pause() {}
        assert!(deadline.elapsed() >= Duration::from_millis(30));
    }
}
