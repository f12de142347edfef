//! Keeps enqueuing and releasing apart. The driver releases device memory, pinned memory and registrations only when every
//! kernel of the context has ended (measured on an H100 with driver 580: `cuMemFree`, `cuMemFreeHost` and
//! `cuMemHostUnregister` take as long as a kernel that spins; allocating, creating streams, graphs and copies do not). A kernel
//! that waits for another rank of this process, launched between the look whether all is idle and the release, would be
//! waited for by the very thread that it waits for. So whoever enqueues holds the gate open, and nothing is released then.
//!
//! And the threads that enqueue on one GPU take turns. A GPU has 8 hardware channels (`CUDA_DEVICE_MAX_CONNECTIONS`), and a
//! stream takes one when it is given work. Threads that give work at the same moment to streams without a channel can get the
//! same one while others are free; of two kernels in one channel the second does not begin before the first has ended, and
//! if that waits for the second, both wait for ever. Measured on an H200 with driver 580: kernels of three threads that wait
//! for each other hung in up to 9 of 10 runs as soon as more than 8 streams had been used, or none of theirs, and in none of 10,
//! with up to 200 streams, once the launches took turns. An application that launches from several threads past this crate has
//! to see to that itself.

use std::sync::{
    Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};

static GATE: RwLock<()> = RwLock::new(());

/// Whose turn it is to enqueue on a device.
#[derive(Default)]
pub(super) struct Turn(Mutex<()>);

/// The gate is open, and it is this thread's turn.
pub(super) struct Entered<'a> {
    _turn: MutexGuard<'a, ()>,
    _open: RwLockReadGuard<'static, ()>,
}

/// Held while a driver call enqueues. Waits for other such calls and for a release under way, which no kernel can hold up.
pub(super) fn enter(turn: &Turn) -> Entered<'_> {
    let _turn = turn.0.lock().unwrap_or_else(PoisonError::into_inner);
    Entered { _turn, _open: GATE.read().unwrap_or_else(PoisonError::into_inner) }
}

/// Runs a driver call that enqueues.
pub(super) fn entered<T>(turn: &Turn, call: impl FnOnce() -> T) -> T {
    let _entered = enter(turn);
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
        let (turns, other) = (Turn::default(), Turn::default());
        let first = enter(&turns);
        // On another device nobody waits.
        std::thread::scope(|scope| scope.spawn(|| drop(enter(&other))).join()).unwrap();
        assert!(turns.0.try_lock().is_err());
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
