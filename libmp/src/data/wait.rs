//! Pausing between two looks at a word: there are more ranks than cores on many machines, so a rank that waits must not
//! take the core from the one it waits for.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gdsync::Deadline;

/// Looks without giving the core away: some microseconds, the time of a message between two cores. There are fewer where they were in
/// vain, as where ranks share cores: then who is waited for runs the sooner, the sooner who waits gives its core away.
const SPINS: u32 = 64;
const FEWEST_SPINS: u32 = 2;
/// Every rank of the host has a core, as far as this process knows: then waits look so often, whatever came of the last ones. Who gives
/// its core away there gives it to somebody else's process, and may get it back a millisecond later.
const SPINS_WITH_ROOM: u32 = 256;
static ROOM: AtomicBool = AtomicBool::new(false);
/// A wait that was over this soon after it began to yield would have been over while it looked: nobody else had the core, as there
/// and back takes longer.
const SOON: Duration = Duration::from_micros(1);
/// How long it yields after each look then.
const YIELDS: Duration = Duration::from_millis(1);
/// Nap between two looks after that, and how long it grows: to a part of what has been waited for, so that thousands of ranks that
/// wait leave the cores to those that do not.
const NAP: Duration = Duration::from_micros(50);
const LONGEST_NAP: Duration = Duration::from_millis(20);
const PART: u32 = 32;
/// The clock is read once in so many spins.
const CLOCK: u32 = 32;

thread_local! {
    /// How often a wait of this thread looks without giving the core away, after what came of the last ones.
    static LOOKS: Cell<u32> = const { Cell::new(SPINS) };
}

/// So many ranks are on this host: of the world that began last.
pub(crate) fn ranks_here(ranks: usize) {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    ROOM.store(ranks <= cores, Ordering::Relaxed);
}

/// One wait.
pub(crate) struct Backoff {
    deadline: Deadline,
    /// Pauses.
    looks: u32,
    /// Those since the wait began, or something was done.
    rounds: u32,
    spins: u32,
    /// As [`ROOM`].
    room: bool,
    /// What `moves` was told last.
    moved: u64,
    /// When it began to yield.
    since: Option<Instant>,
    /// The waiting one has seen the world over, and looks once more.
    ended: bool,
}

impl Backoff {
    pub fn new(deadline: Deadline) -> Backoff {
        let room = ROOM.load(Ordering::Relaxed);
        Backoff {
            deadline,
            looks: 0,
            rounds: 0,
            spins: if room { SPINS_WITH_ROOM } else { LOOKS.get() },
            room,
            moved: 0,
            since: None,
            ended: false,
        }
    }

    /// How many looks of this thread are worth while before a wait begins.
    pub fn looks() -> u32 {
        LOOKS.get()
    }

    /// Whether the world was over before the last look.
    pub fn world_ended(&self) -> bool {
        self.ended
    }

    /// The world is over: one more look.
    pub fn end_world(&mut self) {
        self.ended = true;
    }

    /// How often the waiting one itself has moved something. After a look that found something to do, if not yet what is waited
    /// for, pauses are short again: little of a long message would be moved between long ones.
    pub fn moves(&mut self, moved: u64) {
        if std::mem::replace(&mut self.moved, moved) != moved {
            (self.rounds, self.since) = (0, None);
        }
    }

    /// Pauses, the longer the longer it has been; false if the deadline has passed.
    pub fn pause(&mut self) -> bool {
        self.looks = self.looks.wrapping_add(1);
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds <= self.spins {
            std::hint::spin_loop();
            return !self.looks.is_multiple_of(CLOCK) || !self.deadline.expired();
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

impl Drop for Backoff {
    fn drop(&mut self) {
        match self.since {
            _ if self.room => {}
            None if self.spins == SPINS => {}
            Some(since) if since.elapsed() > SOON => {
                LOOKS.set((self.spins / 2).max(FEWEST_SPINS));
            }
            _ => LOOKS.set((self.spins * 2).min(SPINS)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn waits_that_are_long_look_less_before_they_yield_and_waits_that_are_short_look_more_again() {
        let wait = |long: bool| {
            let mut backoff = Backoff::new(Deadline::after(Duration::from_secs(60)));
            // Whatever worlds other tests have.
            (backoff.room, backoff.spins) = (false, LOOKS.get());
            let spins = backoff.spins;
            (0..spins).for_each(|_| assert!(backoff.pause()));
            assert!(backoff.since.is_none());
            if long {
                backoff.pause();
                while backoff.since.is_none_or(|since| since.elapsed() <= SOON) {}
            }
            spins
        };
        let long: Vec<u32> = (0..7).map(|_| wait(true)).collect();
        assert_eq!(long, [64, 32, 16, 8, 4, 2, 2]);
        let short: Vec<u32> = (0..7).map(|_| wait(false)).collect();
        assert_eq!(short, [2, 4, 8, 16, 32, 64, 64]);
    }

    #[test]
    fn a_wait_ends_at_its_deadline_and_not_before() {
        for moves in [false, true] {
            let deadline = Deadline::after(Duration::from_millis(30));
            let mut backoff = Backoff::new(deadline);
            let mut moved = 0;
            while backoff.pause() {
                if moves {
                    moved += 1;
                    backoff.moves(moved);
                    assert!(backoff.since.is_none());
                }
            }
            assert!(deadline.elapsed() >= Duration::from_millis(30));
        }
    }
}
