//! Pausing between two looks at a word: there are more ranks than cores on many machines, so a rank that waits must not
//! take the core from the one it waits for.

use gdsync::Deadline;

/// Looks without a pause: some microseconds, the time of a message between two cores.
const SPINS: u32 = 64;
/// Looks with a yield after each: about a millisecond.
const YIELDS: u32 = 2000;
/// Nap between two looks after that.
const NAP: std::time::Duration = std::time::Duration::from_micros(50);
/// The clock is read once in so many spins.
const CLOCK: u32 = 32;

/// One wait.
pub(crate) struct Backoff {
    deadline: Deadline,
    rounds: u32,
    /// The waiting one has seen the world over, and looks once more.
    ended: bool,
}

impl Backoff {
    pub fn new(deadline: Deadline) -> Backoff {
        Backoff { deadline, rounds: 0, ended: false }
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
        if self.rounds <= SPINS + YIELDS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(NAP.min(self.deadline.remaining()));
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
