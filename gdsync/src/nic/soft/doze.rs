//! How the engine goes to sleep without missing what others leave for it: it says that it will, looks once more, and sleeps;
//! they leave their work, look whether it sleeps, and wake it. Either the one look or the other sees it.
//!
//! `models/` checks this file under every interleaving that the memory model allows.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Whether it sleeps, or is about to.
pub(crate) struct Doze {
    sleeping: AtomicBool,
}

impl Doze {
    pub fn new() -> Doze {
        Doze { sleeping: AtomicBool::new(false) }
    }

    /// By the sleeper: says that it will sleep, unless the pass over all work that now follows finds some.
    pub fn announce(&self) {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// By the sleeper: whether it has said so.
    pub fn is_announced(&self) -> bool {
        self.sleeping.load(Ordering::Relaxed)
    }

    /// By the sleeper: it found work.
    pub fn cancel(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// By anybody who has just left work: whether the sleeper is to be woken.
    pub fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        self.sleeping.load(Ordering::Relaxed)
    }
}
