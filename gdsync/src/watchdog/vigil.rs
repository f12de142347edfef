//! When the watchdog's thread sleeps and when it works: it sleeps until there is an abort, then it releases what it
//! watches, round after round, and it ends when it is told to. It misses neither, and an abort is known before anything
//! is released. What is watched, and how it is released, is not here.
//!
//! `models/` checks this file under every interleaving that the memory model allows.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering};
#[cfg(loom)]
use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(not(loom))]
use std::sync::{Condvar, Mutex, MutexGuard};

use std::sync::PoisonError;
use std::time::Duration;

/// Between two rounds of releasing after an abort.
const RELEASE_INTERVAL: Duration = Duration::from_millis(1);
/// Between two looks at what may be forgotten.
const TIDY_INTERVAL: Duration = Duration::from_millis(250);

/// Something whose waits the thread releases.
pub(crate) trait Watched: Clone {
    /// Nobody uses it any more, and there is nothing left to release.
    fn is_over(&self) -> bool;

    /// Releases its waits; true if it may still be blocked.
    fn release(&self) -> bool;
}

/// What the users of a watchdog and its thread share.
pub(crate) struct Vigil<S> {
    watched: Mutex<Vec<S>>,
    wake: Condvar,
    aborted: AtomicBool,
    stop: AtomicBool,
}

impl<S: Watched> Vigil<S> {
    pub fn new() -> Vigil<S> {
        Vigil {
            watched: Mutex::new(Vec::new()),
            wake: Condvar::new(),
            aborted: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        }
    }

    pub fn watch(&self, one: S) {
        self.lock().push(one);
    }

    pub fn watched(&self) -> Vec<S> {
        self.lock().clone()
    }

    /// Has everything released, after `announce` has told why.
    pub fn abort(&self, announce: impl FnOnce()) {
        // Under the lock the thread is either before its look at the flags or asleep already.
        let watched = self.lock();
        announce();
        self.aborted.store(true, Ordering::Release);
        self.wake.notify_all();
        drop(watched);
    }

    /// Acquire: what the abort announced is visible.
    pub fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    /// Ends the thread, after the round that it is in.
    pub fn stop(&self) {
        // As for an abort.
        let watched = self.lock();
        self.stop.store(true, Ordering::Release);
        self.wake.notify_all();
        drop(watched);
    }

    /// The thread.
    pub fn run(&self) {
        let mut watched = self.lock();
        while !self.stop.load(Ordering::Acquire) {
            watched.retain(|one| !one.is_over());
            let mut blocked = false;
            if self.is_aborted() {
                let now = watched.clone();
                drop(watched);
                blocked = now.iter().filter(|one| one.release()).count() > 0;
                drop(now);
                watched = self.lock();
                // It may have been told while it did not hold the lock.
                if self.stop.load(Ordering::Acquire) {
                    return;
                }
            }
            watched = self.sleep(watched, if blocked { RELEASE_INTERVAL } else { TIDY_INTERVAL });
        }
    }

    #[cfg(not(loom))]
    fn sleep<'a>(
        &self,
        watched: MutexGuard<'a, Vec<S>>,
        interval: Duration,
    ) -> MutexGuard<'a, Vec<S>> {
        self.wake.wait_timeout(watched, interval).unwrap_or_else(PoisonError::into_inner).0
    }

    /// In the model a round's short sleep just ends, and the long one has no end: a call that it missed is a deadlock.
    #[cfg(loom)]
    fn sleep<'a>(
        &'a self,
        watched: MutexGuard<'a, Vec<S>>,
        interval: Duration,
    ) -> MutexGuard<'a, Vec<S>> {
        if interval == TIDY_INTERVAL {
            return self.wake.wait(watched).unwrap_or_else(PoisonError::into_inner);
        }
        drop(watched);
        loom::thread::yield_now();
        self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<S>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
