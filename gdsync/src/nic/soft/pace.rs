//! How long an engine without work, or beside a thread that makes its passes, sleeps at a time: as short as its share of a core
//! allows, which depends on what waking up costs on this machine (2 to 5 µs of processor time; twenty times that in an emulated one).

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How long one sleep is at first: what a doorbell rung from a stream or a kernel may wait for. (Posts of the CPU wake
/// the thread.)
pub(super) const STEP: Duration = Duration::from_micros(60);
/// The longest sleep.
const LONG_STEP: Duration = Duration::from_micros(180);
/// Share of a core that an idle engine may use; a little is left for housekeeping.
const SHARE: f64 = 0.028;
/// And one that is not needed, for waking up alone.
const SHARE_BESIDE: f64 = 0.01;
/// Sleeps between two looks at the processor time.
const LOOK_EVERY: u32 = 128;

/// The longest sleep beside a thread that makes the passes.
const LONGEST_BESIDE: Duration = Duration::from_millis(3);

/// The sleeps of an engine that has been idle for long.
pub(super) struct Pace {
    step: Duration,
    sleeps: u32,
    processor: Duration,
}

impl Pace {
    pub fn new() -> Pace {
        Pace { step: LONG_STEP, sleeps: 0, processor: Duration::ZERO }
    }

    /// Something happened: what is measured begins anew, and what is known stays.
    pub fn interrupt(&mut self) {
        self.sleeps = 0;
    }

    /// Length of the next sleep of an idle engine.
    pub fn next(&mut self) -> Duration {
        if self.sleeps == 0 {
            self.processor = processor_time();
        } else if self.sleeps.is_multiple_of(LOOK_EVERY) {
            let used = processor_time();
            self.step =
                step_for(used.saturating_sub(self.processor) / LOOK_EVERY, SHARE, LONG_STEP);
            self.processor = used;
        }
        self.sleeps = self.sleeps.wrapping_add(1);
        self.step
    }
}

/// The sleeps of an engine whose passes somebody makes who waits: no shorter than those of one that has been idle for long, since
/// nobody waits for it, and longer where waking up costs more.
pub(super) struct Beside {
    cost: Duration,
}

impl Beside {
    pub fn new() -> Beside {
        Beside { cost: Duration::ZERO }
    }

    /// The longest sleep.
    pub fn longest(&self) -> Duration {
        step_for(self.cost, SHARE_BESIDE, LONGEST_BESIDE).max(LONG_STEP)
    }

    /// Sleeps, and measures what that takes of a core.
    pub fn sleep(&mut self, longest: Duration) {
        let before = processor_time();
        std::thread::park_timeout(longest);
        self.learn(processor_time().saturating_sub(before));
    }

    fn learn(&mut self, cost: Duration) {
        self.cost = (self.cost * 7 + cost) / 8;
    }
}

/// The sleep after which waking up, which takes `cost`, is no more than a share of a core, if that is not `longest`.
fn step_for(cost: Duration, share: f64, longest: Duration) -> Duration {
    cost.div_f64(share).saturating_sub(cost).clamp(STEP, longest)
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn sleeps_are_as_short_as_the_share_allows() {
        assert_eq!(step_for(Duration::from_nanos(500), SHARE, LONG_STEP), STEP);
        assert_eq!(step_for(Duration::from_micros(20), SHARE, LONG_STEP), LONG_STEP);
        let cost = Duration::from_micros(3);
        let step = step_for(cost, SHARE, LONG_STEP);
        assert!(step > Duration::from_micros(100) && step < Duration::from_micros(110), "{step:?}");
        let share = cost.as_secs_f64() / (cost + step).as_secs_f64();
        assert!((share - SHARE).abs() < 1e-3, "{share}");
    }

    #[test]
    fn an_engine_that_is_not_needed_sleeps_longer_where_waking_up_costs_more() {
        let mut beside = Beside::new();
        for (cost, longest) in [(1, LONG_STEP..=LONG_STEP), (20, 10 * LONG_STEP..=LONGEST_BESIDE)] {
            (0..64).for_each(|_| beside.learn(Duration::from_micros(cost)));
            assert!(longest.contains(&beside.longest()), "{:?}", beside.longest());
        }
    }

    #[test]
    fn what_a_sleep_beside_a_thread_costs_is_measured() {
        let mut beside = Beside::new();
        beside.sleep(Duration::from_micros(1));
        assert!(beside.cost > Duration::ZERO);
    }

    #[test]
    fn what_a_wake_up_costs_is_measured() {
        let mut pace = Pace::new();
        assert_eq!(pace.next(), LONG_STEP);
        // No processor time to speak of between these calls.
        let last = (0..LOOK_EVERY).map(|_| pace.next()).last();
        assert_eq!(last, Some(STEP));
        pace.interrupt();
        assert_eq!(pace.next(), STEP);
    }
}
