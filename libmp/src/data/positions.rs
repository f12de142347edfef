//! Positions in a bounded queue between one writer and one reader: how many items were ever put in, and how many ever
//! taken out. They never go down, so each side writes one and reads the other, and no state is ambiguous.
//!
//! `models/` checks this file under every interleaving that the memory model allows.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

/// The two counters, wherever they are.
pub(super) struct Positions<'a> {
    pub put: &'a AtomicU64,
    pub taken: &'a AtomicU64,
}

impl Positions<'_> {
    /// By the writer: the number of the item that it may write now, if there is room in a queue of `slots`.
    pub fn vacant(&self, slots: u64) -> Option<u64> {
        let number = self.put.load(Ordering::Relaxed);
        // Acquire: the reader has read what was in the slot before.
        let taken = self.taken.load(Ordering::Acquire);
        (number.wrapping_sub(taken) < slots).then_some(number)
    }

    /// By the writer: item `number` is written. Release: who sees the count sees the item.
    pub fn publish(&self, number: u64) {
        self.put.store(number.wrapping_add(1), Ordering::Release);
    }

    /// By the reader: the number of the item that it may read now, if there is one.
    pub fn ready(&self) -> Option<u64> {
        let number = self.taken.load(Ordering::Relaxed);
        let put = self.put.load(Ordering::Acquire);
        (put != number).then_some(number)
    }

    /// By the reader: item `number` is read. Release: the writer may fill the slot again only after that.
    pub fn release(&self, number: u64) {
        self.taken.store(number.wrapping_add(1), Ordering::Release);
    }
}
