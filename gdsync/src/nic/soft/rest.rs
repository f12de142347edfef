//! What the engine does between two passes over its work: nothing while there is some; then a moment of spinning; then
//! it says that it will sleep, makes one more pass, and sleeps.
//!
//! `models/` checks this file, and what wakes the engine, under every interleaving that the memory model allows.

use std::time::{Duration, Instant};

use super::doze::Doze;
use super::pace::{Pace, STEP};

/// After so long without work sleeps are as long as their share of a core demands.
const LONG_IDLE: Duration = Duration::from_millis(20);
/// Passes without work between two offers of the core to others.
const YIELD_EVERY: u32 = 16;

/// Before the next pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pause {
    None,
    Spin,
    Yield,
    Sleep(Duration),
}

/// How long the engine has been without work.
pub(super) struct Rest {
    spin: Duration,
    since: Option<Instant>,
    passes: u32,
    pace: Pace,
}

impl Rest {
    /// Of an engine that spins so long.
    pub fn new(spin: Duration) -> Rest {
        Rest { spin, since: None, passes: 0, pace: Pace::new() }
    }

    /// After a pass that began `now`, and was `busy` if it found work.
    pub fn after(&mut self, busy: bool, now: Instant, doze: &Doze) -> Pause {
        if busy {
            self.since = None;
            self.passes = 0;
            self.pace.interrupt();
            doze.cancel();
            return Pause::None;
        }
        self.passes = self.passes.wrapping_add(1);
        let idle = now - *self.since.get_or_insert(now);
        if idle < self.spin {
            return match self.passes.is_multiple_of(YIELD_EVERY) {
                true => Pause::Yield,
                false => Pause::Spin,
            };
        }
        if doze.is_announced() {
            // A whole pass after it said so found nothing.
            return Pause::Sleep(if idle < LONG_IDLE { STEP } else { self.pace.next() });
        }
        doze.announce();
        Pause::None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn it_spins_then_announces_then_sleeps_and_starts_over_with_work() {
        let (doze, begin) = (Doze::new(), Instant::now());
        let mut rest = Rest::new(Duration::from_micros(50));
        let at = |micros| begin + Duration::from_micros(micros);
        for round in 0..3 {
            let begin = 1000 * round;
            assert_eq!(rest.after(true, at(begin), &doze), Pause::None);
            for pass in 1..=2 * YIELD_EVERY {
                let pause = rest.after(false, at(begin + u64::from(pass)), &doze);
                let offers = pass.is_multiple_of(YIELD_EVERY);
                assert_eq!(pause, if offers { Pause::Yield } else { Pause::Spin });
            }
            assert!(!doze.is_announced());
            assert_eq!(rest.after(false, at(begin + 51), &doze), Pause::None);
            assert!(doze.is_announced());
            assert_eq!(rest.after(false, at(begin + 52), &doze), Pause::Sleep(STEP));
        }
        assert!(matches!(rest.after(false, at(100_000), &doze), Pause::Sleep(long) if long > STEP));
    }
}
