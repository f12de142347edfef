//! The waits of one stream that are enqueued and not known to be over, oldest first. After an abort none is added: one
//! that is added before is seen by whoever releases them.
//!
//! `models/` checks this file under every interleaving that the memory model allows.

#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::time::Instant;

/// A stream may have this many waits outstanding; one more is refused.
pub const MAX_PENDING_WAITS: usize = 1 << 16;

/// From so many on, those that are over are looked for before another is added.
const TIDY: usize = 256;

/// The waits of a stream for words of the kind `T`.
pub(crate) struct Outstanding<T> {
    waits: Mutex<VecDeque<Wait<T>>>,
}

/// One.
pub(crate) struct Wait<T> {
    /// Number of the stream's operation that waits.
    ticket: u64,
    pub since: Instant,
    pub target: T,
}

/// Why a wait was not added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Aborted,
    Full,
}

impl<T> Outstanding<T> {
    pub fn new() -> Outstanding<T> {
        Outstanding { waits: Mutex::new(VecDeque::new()) }
    }

    /// Notes a wait that is about to be enqueued as the stream's operation `ticket`.
    pub fn push(
        &self,
        ticket: u64,
        target: T,
        is_aborted: impl FnOnce() -> bool,
        completed: impl FnOnce() -> u64,
    ) -> Result<(), Refused> {
        let mut waits = self.lock();
        // After the abort the releaser may already have passed this stream, so nothing may be added; before it, the
        // releaser will come by, because it takes this lock after the abort.
        if is_aborted() {
            return Err(Refused::Aborted);
        }
        if waits.len() >= TIDY {
            retire(&mut waits, completed());
        }
        if waits.len() >= MAX_PENDING_WAITS {
            return Err(Refused::Full);
        }
        waits.push_back(Wait { ticket, since: Instant::now(), target });
        Ok(())
    }

    /// Forgets those up to the operation `completed`, and says whether none is left.
    pub fn is_drained(&self, completed: u64) -> bool {
        let mut waits = self.lock();
        retire(&mut waits, completed);
        waits.is_empty()
    }

    pub fn for_each(&self, each: impl FnMut(&Wait<T>)) {
        self.lock().iter().for_each(each);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Wait<T>>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn retire<T>(waits: &mut VecDeque<Wait<T>>, completed: u64) {
    while waits.front().is_some_and(|wait| wait.ticket <= completed) {
        waits.pop_front();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn no_more_waits_are_kept_than_the_limit_and_those_that_are_over_make_room() {
        let waits = Outstanding::new();
        for ticket in 1..=MAX_PENDING_WAITS as u64 {
            waits.push(ticket, (), || false, || 0).unwrap();
        }
        assert_eq!(waits.push(0, (), || false, || 0), Err(Refused::Full));
        assert_eq!(waits.push(1 << 20, (), || false, || 1), Ok(()));
        assert!(!waits.is_drained(1 << 16) && waits.is_drained(1 << 20));
        assert_eq!(waits.push(1, (), || true, || 0), Err(Refused::Aborted));
    }
}
