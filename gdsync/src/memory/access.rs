//! How the CPU accesses a word on which others wait: which memory order each access has, and how counters compare. The
//! word itself is wherever its buffer is.
//!
//! `models/` checks this file under every interleaving that the memory model allows.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The accesses to a word of one width.
pub(crate) trait Access {
    type Value;

    /// Acquire: who sees the value sees what was written before it was stored.
    fn see(&self) -> Self::Value;

    /// Release: the other side of [`see`](Access::see).
    fn signal(&self, value: Self::Value);

    /// Makes the word reach a value, unless it has; never takes back what another has counted meanwhile.
    fn raise(&self, value: Self::Value);
}

macro_rules! access {
    ($atomic:ty, $int:ty, $reached:path) => {
        impl Access for $atomic {
            type Value = $int;

            fn see(&self) -> $int {
                self.load(Ordering::Acquire)
            }

            fn signal(&self, value: $int) {
                self.store(value, Ordering::Release);
            }

            fn raise(&self, value: $int) {
                let higher = |seen| (!$reached(seen, value)).then_some(value);
                // If it has reached the value there is nothing to do.
                let _ = self.fetch_update(Ordering::AcqRel, Ordering::Acquire, higher);
            }
        }
    };
}

access!(AtomicU32, u32, reached32);
access!(AtomicU64, u64, reached64);

/// Whether the 32-bit counter `value` has reached `expected`, counters running through zero: the order of
/// `cuStreamWaitValue32` with `GEQ`, `(int32_t)(value - expected) >= 0`.
pub fn reached32(value: u32, expected: u32) -> bool {
    value.wrapping_sub(expected) as i32 >= 0
}

/// Whether the 64-bit counter `value` has reached `expected`, in the cyclic order of `cuStreamWaitValue64`.
pub fn reached64(value: u64, expected: u64) -> bool {
    value.wrapping_sub(expected) as i64 >= 0
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn counters_are_compared_in_cyclic_order() {
        assert!(reached32(5, 5) && reached32(6, 5) && !reached32(4, 5));
        assert!(reached32(2, u32::MAX) && !reached32(u32::MAX, 2));
        assert!(reached64(1, u64::MAX) && !reached64(0, 1));
    }

    #[test]
    fn raising_a_word_never_lowers_it() {
        let word = AtomicU64::new(3);
        word.raise(5);
        assert_eq!(word.see(), 5);
        word.raise(4);
        assert_eq!(word.see(), 5);
        let word = AtomicU32::new(u32::MAX);
        word.raise(2);
        assert_eq!(word.see(), 2);
    }
}
