//! What a start that waits says on standard error, and when: the first time after two seconds, then ever more rarely.

use std::io::Write;
use std::time::{Duration, Instant};

/// How long a start may take before it says what it waits for.
const QUIET: Duration = Duration::from_secs(2);

/// When it is time to say something again.
#[derive(Debug)]
pub(crate) struct Reminder {
    since: Instant,
    after: Duration,
}

impl Reminder {
    pub(crate) fn new(now: Instant) -> Reminder {
        Reminder { since: now, after: QUIET }
    }

    /// When it is next time.
    pub(crate) fn at(&self) -> Instant {
        self.since + self.after
    }

    /// Whether it is time; the next time comes after twice as long.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let due = now >= self.at();
        if due {
            self.after *= 2;
        }
        due
    }
}

/// Tells the user something. Nobody need listen.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "libmp: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reminder_comes_after_two_seconds_and_then_ever_more_rarely() {
        let now = Instant::now();
        let mut reminder = Reminder::new(now);
        let due: Vec<u64> =
            (0..=20).filter(|&s| reminder.is_due(now + Duration::from_secs(s))).collect();
        assert_eq!(due, [2, 4, 8, 16]);
    }
}
