//! What of a rank moves on only in its calls, beside the operations that wait: tagged messages.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, Weak};

use super::lock;

/// Calls between two rounds of help.
const EACH: u32 = 4;

/// Goes on with what can go on. Does not wait, not even for a lock.
pub(crate) trait Help: Send + Sync {
    fn help(&self);
}

/// Those of a rank, as long as somebody else holds them.
#[derive(Default)]
pub(crate) struct Helpers {
    list: Mutex<Vec<Weak<dyn Help>>>,
    /// How many there are, for those who only pass by.
    count: AtomicUsize,
    ticks: AtomicU32,
}

impl Helpers {
    pub fn add(&self, helper: Weak<dyn Help>) {
        let mut list = lock(&self.list);
        list.push(helper);
        self.count.store(list.len(), Ordering::Relaxed);
    }

    /// Lets all help, unless another thread is at it; not every time, since a look at all their memory is more than one at a word.
    pub fn help(&self) {
        if self.is_empty() || !self.ticks.fetch_add(1, Ordering::Relaxed).is_multiple_of(EACH) {
            return;
        }
        // Whoever is the last to hold one drops it here, and may come back: then the list is taken.
        let Ok(mut list) = self.list.try_lock() else { return };
        list.retain(|helper| helper.upgrade().inspect(|helper| helper.help()).is_some());
        self.count.store(list.len(), Ordering::Relaxed);
    }

    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }
}
