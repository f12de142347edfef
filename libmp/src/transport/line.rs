//! Lines of words in memory that one side writes and another one reads, while both go on: how they are stored and seen. What they say is
//! other modules'.
//!
//! `models/` checks this file under every interleaving that the memory model allows.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

/// Stores words, the first of them last: who sees it (acquire) sees the others. Whoever sees any of them sees what was done before: each word of
/// a line of credits is room of its own.
#[inline]
pub(crate) fn store(line: &[AtomicU64], words: &[u64]) {
    for (word, value) in line.iter().zip(words).skip(1) {
        word.store(*value, Ordering::Release);
    }
    if let (Some(first), Some(value)) = (line.first(), words.first()) {
        first.store(*value, Ordering::Release);
    }
}

/// The words of a line whose first word is its number, if that is here.
#[inline]
pub(crate) fn numbered<const WORDS: usize>(
    line: &[AtomicU64],
    number: u64,
) -> Option<[u64; WORDS]> {
    let line = line.first_chunk::<WORDS>()?;
    if line.first()?.load(Ordering::Acquire) != number {
        return None;
    }
    Some(std::array::from_fn(|at| line[at].load(Ordering::Relaxed)))
}

/// Words that stand for themselves: each is old or new.
pub(crate) fn words<const WORDS: usize>(line: &[AtomicU64]) -> Option<[u64; WORDS]> {
    let line = line.first_chunk::<WORDS>()?;
    Some(std::array::from_fn(|at| line[at].load(Ordering::Acquire)))
}
