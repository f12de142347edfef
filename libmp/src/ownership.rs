//! A lock that costs next to nothing as long as one thread alone uses it, as in most programs: entering is a store and a load, without an
//! instruction that waits for the stores before it, which are on their way to another core's cache when messages are sent.
//!
//! The first thread that comes owns the lock. The first *other* thread takes it away from the owner for good: it says so, has all
//! processors that run this process pass a barrier (membarrier(2): the owner then sees what was said, or is seen inside), and waits until the
//! owner is outside. From then on the lock is a mutex. Where the system has no such barrier it is one from the start.
//!
//! `models/` checks this file under every interleaving that the memory model allows, with fences in the place of the barrier.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence as half_fence};
#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence as half_fence};
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};

/// Nobody owns the lock yet.
const NOBODY: usize = 0;
/// Whoever comes takes the mutex. No thread is called so: what threads are called by is the address of something of theirs.
const EVERYBODY: usize = 1;

/// See the module.
pub(crate) struct Lock<T> {
    owner: AtomicUsize,
    /// The owner is.
    inside: AtomicBool,
    mutex: Mutex<()>,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time gets to the value: the owner while `inside` is set, whom the others wait for before they take the mutex
// for the first time, and those who have the mutex.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The value, until it is dropped.
pub(crate) struct Guard<'a, T> {
    lock: &'a Lock<T>,
    /// None of the owner.
    mutex: Option<MutexGuard<'a, ()>>,
}

impl<T> Lock<T> {
    pub fn new(value: T) -> Lock<T> {
        let owner = if barrier::is_there() { NOBODY } else { EVERYBODY };
        let (owner, inside) = (AtomicUsize::new(owner), AtomicBool::new(false));
        Lock { owner, inside, mutex: Mutex::new(()), value: UnsafeCell::new(value) }
    }

    /// Waits for whoever is inside. A thread that is there itself waits forever, as for a mutex.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        self.enter().unwrap_or_else(|| self.wait())
    }

    /// Nothing if somebody is inside, this thread included.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.enter().or_else(|| self.try_wait())
    }

    /// As the owner.
    #[inline]
    fn enter(&self) -> Option<Guard<'_, T>> {
        let this = this_thread();
        // Acquire: who was inside before, be it a thread that has ended and was called the same, is outside.
        if self.owner.load(Ordering::Relaxed) != this || self.inside.load(Ordering::Acquire) {
            return None;
        }
        self.inside.store(true, Ordering::Relaxed);
        // The other half of it is `barrier::pass`: this thread sees that it is the owner no more, or whoever says so sees it inside.
        half_fence(Ordering::SeqCst);
        if self.owner.load(Ordering::Relaxed) == this {
            return Some(Guard { lock: self, mutex: None });
        }
        self.inside.store(false, Ordering::Release);
        None
    }

    #[cold]
    fn wait(&self) -> Guard<'_, T> {
        if self.own() {
            return self.lock();
        }
        let mutex = self.mutex.lock().unwrap_or_else(PoisonError::into_inner);
        self.take_away();
        Guard { lock: self, mutex: Some(mutex) }
    }

    #[cold]
    fn try_wait(&self) -> Option<Guard<'_, T>> {
        let owner = self.owner.load(Ordering::Relaxed);
        if owner == this_thread() {
            return None;
        }
        if self.own() {
            return self.enter();
        }
        let mutex = match self.mutex.try_lock() {
            Ok(mutex) => mutex,
            Err(TryLockError::Poisoned(mutex)) => mutex.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        self.take_away();
        Some(Guard { lock: self, mutex: Some(mutex) })
    }

    /// Makes this thread the owner if there has been none.
    fn own(&self) -> bool {
        let (set, seen) = (Ordering::AcqRel, Ordering::Relaxed);
        self.owner.compare_exchange(NOBODY, this_thread(), set, seen).is_ok()
    }

    /// By who has the mutex.
    #[inline]
    fn take_away(&self) {
        if self.owner.load(Ordering::Acquire) != EVERYBODY {
            self.owner.store(EVERYBODY, Ordering::SeqCst);
            barrier::pass();
            while self.inside.load(Ordering::Acquire) {
                // It is there for a copy or two, unless something keeps it from running.
                pause();
            }
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: see `Lock`.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: see `Lock`.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.mutex.is_none() {
            self.lock.inside.store(false, Ordering::Release);
        }
    }
}

/// What this thread is called: no other that lives is.
#[inline]
#[cfg(not(loom))]
pub(crate) fn this_thread() -> usize {
    thread_local! {
        static THIS: u16 = const { 0 };
    }
    THIS.with(|this| std::ptr::from_ref(this).addr())
}

#[cfg(loom)]
fn this_thread() -> usize {
    loom::thread_local! {
        static THIS: Box<u16> = Box::new(0);
    }
    THIS.with(|this| std::ptr::from_ref(&**this).addr())
}

fn pause() {
    #[cfg(not(loom))]
    std::thread::sleep(std::time::Duration::from_micros(10));
    #[cfg(loom)]
    loom::thread::yield_now();
}

#[cfg(loom)]
mod barrier {
    pub fn is_there() -> bool {
        true
    }

    pub fn pass() {
        loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
    }
}

/// The barrier of all processors that run this process.
#[cfg(not(loom))]
mod barrier {
    use std::sync::OnceLock;

    use rustix::thread::{MembarrierCommand, membarrier};

    fn register() -> bool {
        // Miri does not know it.
        !cfg!(miri) && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
    }

    /// Whether the system has it.
    pub fn is_there() -> bool {
        static IS_THERE: OnceLock<bool> = OnceLock::new();
        *IS_THERE.get_or_init(register)
    }

    /// When this returns, each thread has passed it.
    pub fn pass() {
        let pass = || membarrier(MembarrierCommand::PrivateExpedited).is_ok();
        // A process that was forked may have to say again that it wants it.
        let passed = pass() || (register() && pass());
        if !passed {
            // Without it two threads would be inside, and it was there.
            tracing::error!("the system has no membarrier any more");
            std::process::abort();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_comes_while_another_owns_the_lock_waits_until_it_is_outside() {
        for _ in 0..200 {
            let lock = Lock::new((0u64, 0u64));
            let adds = |times: usize| {
                for _ in 0..times {
                    let mut both = lock.lock();
                    both.0 += 1;
                    assert_eq!(both.0, both.1 + 1);
                    both.1 += 1;
                }
            };
            std::thread::scope(|scope| {
                scope.spawn(|| adds(2000));
                scope.spawn(|| adds(20));
                scope.spawn(|| adds(200));
            });
            assert_eq!(*lock.lock(), (2220, 2220));
            assert_eq!(lock.owner.load(Ordering::Relaxed), EVERYBODY);
        }
    }

    #[test]
    fn nobody_is_let_in_twice_be_it_the_owner_or_another_thread() {
        let lock = Lock::new(());
        let inside = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(inside);
        assert!(lock.try_lock().is_some());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let inside = lock.lock();
                assert!(lock.try_lock().is_none());
                drop(inside);
            });
        });
        let inside = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(inside);
        assert!(lock.try_lock().is_some());
    }
}
