//! Keeps enqueuing and releasing apart. The driver releases device memory, pinned memory and registrations only when every
//! kernel of the context has ended (measured on an H100 with driver 580: `cuMemFree`, `cuMemFreeHost` and
//! `cuMemHostUnregister` take as long as a kernel that spins; allocating, creating streams, graphs and copies do not). A kernel
//! that waits for another rank of this process, launched between the look whether all is idle and the release, would be
//! waited for by the very thread that it waits for. So whoever enqueues holds the gate open, and nothing is released then.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

static GATE: RwLock<()> = RwLock::new(());

/// Held while a driver call enqueues. Waits only for a release under way, which no kernel can hold up.
pub(super) fn enter() -> RwLockReadGuard<'static, ()> {
    GATE.read().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a driver call that enqueues.
pub(super) fn entered<T>(call: impl FnOnce() -> T) -> T {
    let _open = enter();
    call()
}

/// Held while something is released; `None` if somebody enqueues, or releases, now.
pub(super) fn shut() -> Option<RwLockWriteGuard<'static, ()>> {
    match GATE.try_write() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_released_while_somebody_enqueues() {
        let first = enter();
        let second = std::thread::spawn(|| drop(enter()));
        second.join().unwrap();
        assert!(shut().is_none());
        drop(first);
        // Another test may enqueue at this moment, but does not hold the gate for long.
        let shut = (0..1000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            shut()
        });
        assert!(shut.is_some());
    }
}
