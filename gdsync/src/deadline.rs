//! A point in time at which a wait gives up. Every blocking call of this crate takes one.

use std::time::{Duration, Instant};

/// A point in time at which a wait gives up.
///
/// Measured on the monotonic clock: setting the machine's clock neither shortens nor lengthens it.
///
/// ```
/// use std::time::Duration;
///
/// use gdsync::Deadline;
///
/// let deadline = Deadline::after(Duration::from_millis(5));
/// let mut looks = 0;
/// let found = deadline.poll(|| {
///     looks += 1;
///     (looks == 3).then_some("there")
/// });
/// assert_eq!(found, Some("there"));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    start: Instant,
    timeout: Duration,
}

impl Deadline {
    /// Gives up `timeout` from now.
    pub fn after(timeout: Duration) -> Deadline {
        Deadline { start: Instant::now(), timeout }
    }

    /// Whether the time is over.
    pub fn expired(&self) -> bool {
        self.start.elapsed() >= self.timeout
    }

    /// Time left; zero when over.
    pub fn remaining(&self) -> Duration {
        self.timeout.saturating_sub(self.start.elapsed())
    }

    /// Time since the deadline was set.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// The whole time allowed.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Calls `ready` until it returns a value or the deadline passes: busy for the first 50 µs, yielding for the
    /// next 200 µs, then sleeping 50 µs at a time so that a long wait costs no core.
    pub fn poll<T>(&self, mut ready: impl FnMut() -> Option<T>) -> Option<T> {
        let begin = Instant::now();
        loop {
            if let Some(value) = ready() {
                return Some(value);
            }
            if self.expired() {
                return None;
            }
            let waited = begin.elapsed();
            if waited < Duration::from_micros(50) {
                std::hint::spin_loop();
            } else if waited < Duration::from_micros(250) {
                std::thread::yield_now();
            } else {
                std::thread::sleep(Duration::from_micros(50).min(self.remaining()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_gives_up_after_its_time_and_not_before() {
        let hour = Deadline::after(Duration::from_secs(3600));
        assert!(!hour.expired() && hour.remaining() > Duration::from_secs(1800));
        let deadline = Deadline::after(Duration::from_millis(20));
        assert_eq!(deadline.poll(|| None::<()>), None);
        assert!(deadline.elapsed() >= Duration::from_millis(20));
        assert_eq!(deadline.remaining(), Duration::ZERO);
    }

    #[test]
    fn polling_returns_the_value_as_soon_as_there_is_one() {
        let mut calls = 0;
        let value = Deadline::after(Duration::from_secs(5)).poll(|| {
            calls += 1;
            (calls == 3).then_some(7)
        });
        assert_eq!((value, calls), (Some(7), 3));
    }
}
