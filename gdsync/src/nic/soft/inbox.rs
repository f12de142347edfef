//! What an engine was told and has not heard yet. It looks at every pass, so looking costs one load while there is nothing.
//!
//! `models/` checks this file under every interleaving that the memory model allows.

#[cfg(loom)]
use loom::sync::Mutex;
#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering};
#[cfg(not(loom))]
use std::sync::Mutex;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering};

use std::collections::VecDeque;
use std::sync::PoisonError;

/// Things of the kind `T`, in order.
pub(super) struct Inbox<T> {
    things: Mutex<VecDeque<T>>,
    any: AtomicBool,
}

impl<T> Inbox<T> {
    pub fn new() -> Inbox<T> {
        Inbox { things: Mutex::new(VecDeque::new()), any: AtomicBool::new(false) }
    }

    /// By anybody, who then wakes the engine.
    pub fn put(&self, thing: T) {
        self.things.lock().unwrap_or_else(PoisonError::into_inner).push_back(thing);
        self.any.store(true, Ordering::Release);
    }

    /// By the engine: all there is.
    pub fn take(&self) -> VecDeque<T> {
        if !self.any.load(Ordering::Relaxed) {
            return VecDeque::new();
        }
        // Before the things are taken: one that comes meanwhile raises it again.
        self.any.swap(false, Ordering::AcqRel);
        std::mem::take(&mut *self.things.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
