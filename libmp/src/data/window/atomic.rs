//! Atomic operations of the host on the 64-bit words of a window.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Range, Window, failed};
use crate::data::nic::{Atomic, Call, Far};
use crate::error::Result;

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
        let far = |far: &Far, call: &Call<'_>, at| far.atomic(call, at, Atomic::FetchAdd(value));
        self.atomic(rank, at, |word| word.fetch_add(value, Ordering::AcqRel), far)
    }

    /// Replaces element `at` of rank `rank`, as one step for everybody; gives the value before.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn swap(&self, rank: usize, at: u64, value: u64) -> Result<u64> {
        self.atomic(
            rank,
            at,
            |word| word.swap(value, Ordering::AcqRel),
            |far, call, at| {
                // A NIC has no swap: what it holds is guessed until the guess was right.
                let mut guess = far.atomic(call, at, Atomic::FetchAdd(0))?;
                loop {
                    let swap = Atomic::CompareSwap { compare: guess, swap: value };
                    let seen = far.atomic(call, at, swap)?;
                    if seen == guess {
                        return Ok(seen);
                    }
                    guess = seen;
                }
            },
        )
    }

    /// Replaces element `at` of rank `rank` by `value` if it is `expected`, as one step for everybody; gives the value
    /// before.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn compare_swap(&self, rank: usize, at: u64, expected: u64, value: u64) -> Result<u64> {
        let near = |word: &AtomicU64| {
            let swapped =
                word.compare_exchange(expected, value, Ordering::AcqRel, Ordering::Acquire);
            swapped.unwrap_or_else(|seen| seen)
        };
        let swap = Atomic::CompareSwap { compare: expected, swap: value };
        self.atomic(rank, at, near, |far, call, at| far.atomic(call, at, swap))
    }

    fn atomic(
        &self,
        rank: usize,
        at: u64,
        step: impl FnOnce(&AtomicU64) -> u64,
        far_step: impl FnOnce(&Far, &Call<'_>, usize) -> Result<u64>,
    ) -> Result<u64> {
        let word = match self.range("atomic", rank, at, T::WORD)? {
            Range::Near(memory) => {
                let words = memory.cast::<u64>().and_then(|words| words.word(0));
                words.map_err(failed("atomic"))?
            }
            Range::Far(far, at) => {
                return self.call("atomic", rank, |call| far_step(far, call, at));
            }
        };
        let unreachable = || {
            failed("atomic")(gdsync::Error::NotReachable {
                what: "an atomic operation of the host",
                memory: format!("{word:?}"),
                place: "the CPU".into(),
                hint: "put the window into host memory",
            })
        };
        self.counters(rank).atomics.add(1);
        word.atomic().map(step).ok_or_else(unreachable)
    }
}
