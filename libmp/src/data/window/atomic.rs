//! Atomic operations of the host on the 64-bit words of a window.

use super::{Window, failed};
use crate::error::Result;
use crate::transport::Atomic;

mod sealed {
    /// What 64-bit words can be addressed in.
    pub trait Atomic64: bytemuck::Pod {
        /// Elements of a word.
        const WORD: usize;
    }
    impl Atomic64 for u64 {
        const WORD: usize = 1;
    }
    impl Atomic64 for u8 {
        const WORD: usize = 8;
    }
}

/// 64-bit words, by their element; in a window of bytes the eight from `at` on, which are aligned.
impl<T: sealed::Atomic64> Window<T> {
    /// Adds to element `at` of rank `rank`, as one step for everybody; gives the value before.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn fetch_add(&self, rank: usize, at: u64, value: u64) -> Result<u64> {
        self.atomic(rank, at, Atomic::FetchAdd(value))
    }

    /// Replaces element `at` of rank `rank`, as one step for everybody; gives the value before.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn swap(&self, rank: usize, at: u64, value: u64) -> Result<u64> {
        self.atomic(rank, at, Atomic::Swap(value))
    }

    /// Replaces element `at` of rank `rank` by `value` if it is `expected`, as one step for everybody; gives the value
    /// before.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn compare_swap(&self, rank: usize, at: u64, expected: u64, value: u64) -> Result<u64> {
        self.atomic(rank, at, Atomic::CompareSwap { compare: expected, swap: value })
    }

    fn atomic(&self, rank: usize, at: u64, atomic: Atomic) -> Result<u64> {
        let (part, at) = self.range("atomic", rank, at, T::WORD)?;
        if !at.is_multiple_of(size_of::<u64>()) {
            let source =
                gdsync::Error::Misaligned { what: "an atomic operation", offset: at, align: 8 };
            return Err(failed("atomic")(source));
        }
        self.counters(part).atomics.add(1);
        self.call("atomic", part, |call| part.connection.atomic(call, at, atomic))
    }
}
