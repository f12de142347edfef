//! What of a rank moves on only in its calls, beside the operations that wait: tagged messages.

use std::sync::Weak;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::ownership::Lock;

/// Calls between two rounds of help.
const EACH: u32 = 4;

/// Goes on with what can go on, and says whether something did. Does not wait, not even for a lock.
pub(crate) trait Help: Send + Sync {
    fn help(&self) -> bool;
}

/// Those of a rank, as long as somebody else holds them.
pub(crate) struct Helpers {
    list: Lock<Vec<Weak<dyn Help>>>,
    /// How many there are, for those who only pass by.
    count: AtomicUsize,
    ticks: AtomicU32,
    /// Changes when something went on.
    moved: AtomicU32,
}

impl Default for Helpers {
    fn default() -> Helpers {
        let (list, count) = (Lock::new(Vec::new()), AtomicUsize::new(0));
        Helpers { list, count, ticks: AtomicU32::new(0), moved: AtomicU32::new(0) }
    }
}

impl Helpers {
    pub fn add(&self, helper: Weak<dyn Help>) {
        let mut list = self.list.lock();
        list.push(helper);
        self.count.store(list.len(), Ordering::Relaxed);
    }

    /// Lets all help, unless another thread is at it; not every time, since a look at all their memory is more than one at a word.
    pub fn help(&self) {
        if self.is_empty() {
            return;
        }
        // Of threads that come at once one's call may not count.
        let tick = self.ticks.load(Ordering::Relaxed);
        self.ticks.store(tick.wrapping_add(1), Ordering::Relaxed);
        if tick.is_multiple_of(EACH) {
            self.help_now();
        }
    }

    /// The same in any case, for who pauses between two calls.
    pub fn help_now(&self) {
        // Whoever is the last to hold one drops it here, and may come back: then the list is taken.
        let Some(mut list) = self.list.try_lock() else { return };
        let mut moved = false;
        list.retain(|helper| helper.upgrade().inspect(|it| moved |= it.help()).is_some());
        if moved {
            // Behind the lock.
            self.moved.store(self.moved.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
        self.count.store(list.len(), Ordering::Relaxed);
    }

    /// Changes when something went on.
    pub fn moved(&self) -> u32 {
        self.moved.load(Ordering::Relaxed)
    }

    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }
}
