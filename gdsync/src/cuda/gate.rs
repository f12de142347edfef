//! Keeps enqueuing and releasing apart. The driver releases device memory, pinned memory and registrations only when every
//! kernel of the context has ended (measured on an H100 with driver 580: `cuMemFree`, `cuMemFreeHost` and
//! `cuMemHostUnregister` take as long as a kernel that spins; allocating, creating streams, graphs and copies do not). A kernel
//! that waits for another rank of this process, launched between the look whether all is idle and the release, would be
//! waited for by the very thread that it waits for. So whoever enqueues holds the gate open, and nothing is released then.
//!
//! And the threads that enqueue on one GPU take turns where they have to. A GPU has 8 hardware channels, unless
//! `CUDA_DEVICE_MAX_CONNECTIONS` says something else; a stream takes one when it is given work, and keeps it as long as there are enough. Threads
//! that give work at the same moment to streams without a channel can get the same one while others are free. Of two kernels
//! in one channel the second does not begin before the first has ended, and if that waits for the second, both wait for
//! ever. Measured on an H200 with driver 580: kernels of three threads that wait for each other hung in up to 9 of 10 runs as
//! soon as more than 8 streams had been used, or none of theirs, and in none of 10, with up to 200 streams, once the launches
//! took turns, which costs threads that launch all the time half of their rate. An application that launches from several
//! threads past this crate has to see to that itself.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

static GATE: RwLock<()> = RwLock::new(());

/// Streams that have a channel of their own, beside the service stream and the default stream, which applications use.
const MOST: usize = 6;

/// Whose turn it is to enqueue on a device.
#[derive(Default)]
pub(super) struct Turn {
    lock: RwLock<()>,
    /// Streams that there are beside these two.
    streams: AtomicUsize,
}

/// The gate is open, and nobody else enqueues who must not.
pub(super) struct Entered<'a> {
    _turn: Result<RwLockReadGuard<'a, ()>, RwLockWriteGuard<'a, ()>>,
    _open: RwLockReadGuard<'static, ()>,
}

impl Turn {
    /// Says how many streams there are now.
    pub fn there_are(&self, streams: usize) {
        self.streams.store(streams, Ordering::SeqCst);
    }

    /// Held while a driver call enqueues, `alone` if the stream is given work for the first time. Waits for other such calls and for a
    /// release under way, which no kernel can hold up.
    pub fn enter(&self, alone: bool) -> Entered<'_> {
        let with_others =
            (!alone).then(|| self.lock.read().unwrap_or_else(PoisonError::into_inner));
        let with_others = with_others.filter(|_| self.streams.load(Ordering::SeqCst) <= MOST);
        let _turn =
            with_others.ok_or_else(|| self.lock.write().unwrap_or_else(PoisonError::into_inner));
        Entered { _turn, _open: GATE.read().unwrap_or_else(PoisonError::into_inner) }
    }
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
        let turn = Turn::default();
        let first = turn.enter(false);
        std::thread::scope(|scope| scope.spawn(|| drop(turn.enter(false))).join()).unwrap();
        assert!(shut().is_none());
        drop(first);
        // Another test may enqueue at this moment, but does not hold the gate for long.
        let shut = (0..1000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            shut()
        });
        assert!(shut.is_some());
    }

    #[test]
    fn a_stream_is_alone_at_first_and_when_there_are_more_than_channels() {
        let turn = Turn::default();
        for streams in 1..=20 {
            turn.there_are(streams);
            let entered = turn.enter(false);
            assert_eq!(turn.lock.try_read().is_ok(), streams <= MOST, "{streams}");
            drop(entered);
            let entered = turn.enter(true);
            assert!(turn.lock.try_read().is_err());
            drop(entered);
        }
    }
}
