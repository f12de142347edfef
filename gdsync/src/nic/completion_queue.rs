//! The reader's side of a completion queue, on the CPU: by owner bit in a ring, by index in a collapsed queue.

use std::sync::atomic::{AtomicU32, Ordering, fence};

use zerocopy::{FromBytes, transmute};

use super::options::CompletionMode;
use super::words::Words;
use crate::wqe::{
    CollapsedProgress, Completion, CompletionError, CompletionKind, CqDoorbellRecord, Cqe,
    Syndrome, owned_by_software,
};

/// Words of a completion; the last one holds owner, opcode, index and queue pair, and is written last.
pub(crate) const CQE_WORDS: usize = size_of::<Cqe>() / 8;

/// Makes every slot one that has never held a completion.
pub(crate) fn clear(slots: &Words) {
    let empty: [u64; CQE_WORDS] = transmute!(Cqe::EMPTY);
    for at in 0..slots.len() {
        slots.word(at).store(empty[at % CQE_WORDS], Ordering::Relaxed);
    }
}

/// The memory of a completion queue: slots, and where the reader says how far it is.
#[derive(Clone)]
pub(crate) struct CompletionMemory {
    pub slots: Words,
    all: Words,
    consumer: usize,
    pub mode: CompletionMode,
}

impl CompletionMemory {
    /// An empty queue with these slots; the reader's record is at byte `consumer` of `all`.
    pub fn new(
        slots: Words,
        all: Words,
        consumer: usize,
        mode: CompletionMode,
    ) -> CompletionMemory {
        clear(&slots);
        CompletionMemory { slots, all, consumer, mode }
    }

    pub fn consumer(&self) -> &AtomicU32 {
        self.all.half(self.consumer / 4)
    }
}

/// Reads completions, each once.
pub(crate) struct CompletionReader {
    memory: CompletionMemory,
    slots: u64,
    /// Completions read from a ring.
    consumer: u64,
    /// Indices seen.
    progress: CollapsedProgress,
    /// A collapsed queue has shown an error: one is enough.
    failed: bool,
}

impl CompletionReader {
    pub fn new(memory: CompletionMemory) -> CompletionReader {
        let slots = (memory.slots.len() / CQE_WORDS) as u64;
        let progress = CollapsedProgress::default();
        CompletionReader { memory, slots, consumer: 0, progress, failed: false }
    }

    /// As if that many indices had been seen before.
    #[cfg(test)]
    pub fn start_at(&mut self, index: u64) {
        self.progress = CollapsedProgress::at(index);
    }

    /// Somebody else has seen the collapsed queue come so far; the next poll looks at it.
    pub fn catch_up(&mut self, blocks: u64) {
        if self.memory.mode == CompletionMode::Collapsed {
            self.progress = self.progress.max(CollapsedProgress::at(blocks));
        }
    }

    /// How far the queue has come, never wrapped: in a ring one more than the index of the last completion; in a collapsed
    /// queue what is known to be complete.
    pub fn progress(&self) -> u64 {
        self.progress.blocks()
    }

    /// The next completion; of a collapsed queue the latest, if it is new.
    pub fn poll(&mut self) -> Result<Option<Completion>, CompletionError> {
        match self.memory.mode {
            CompletionMode::Ring => self.poll_ring(),
            CompletionMode::Collapsed => self.poll_collapsed(),
        }
    }

    fn poll_ring(&mut self) -> Result<Option<Completion>, CompletionError> {
        let slot = (self.consumer & (self.slots - 1)) as usize * CQE_WORDS;
        let tail = self.memory.slots.word(slot + CQE_WORDS - 1).load(Ordering::Acquire);
        if !owned_by_software(tail.to_ne_bytes()[7], self.consumer, self.slots) {
            return Ok(None);
        }
        let completion = self.read(slot, tail).decode()?;
        self.consumer += 1;
        let record = u32::from_ne_bytes(CqDoorbellRecord::word(self.consumer));
        self.memory.consumer().store(record, Ordering::Release);
        self.progress = self.progress.after(completion.index);
        Ok(Some(completion))
    }

    fn poll_collapsed(&mut self) -> Result<Option<Completion>, CompletionError> {
        let tail = self.memory.slots.word(CQE_WORDS - 1).load(Ordering::Acquire);
        // Only the tail is one access: the rest may belong to the next completion already. So of a success nothing else
        // is used, and what is read of an error is of it only if the tail is still the same.
        let mut cqe = Cqe::EMPTY;
        let error = matches!(tail.to_ne_bytes()[7] >> 4, 13 | 14);
        if error {
            cqe = self.read(0, tail);
            fence(Ordering::Acquire);
            if self.memory.slots.word(CQE_WORDS - 1).load(Ordering::Relaxed) != tail {
                return Ok(None);
            }
        } else if let Ok(alone) = Cqe::read_from_bytes(tail_only(tail).as_slice()) {
            cqe = alone;
        }
        match cqe.decode() {
            Err(CompletionError::Invalid) => Ok(None),
            Err(error) => Err(error),
            Ok(completion) if error => {
                if std::mem::replace(&mut self.failed, true) {
                    return Ok(None);
                }
                // Those before the one that failed are complete. A flushed one may have overwritten that, and any number
                // of flushed ones before it: of those before it nothing is known.
                let flushed = matches!(
                    completion.kind,
                    CompletionKind::Error { syndrome: Syndrome::Flushed, .. }
                );
                let past = self.progress.after(completion.index);
                if !flushed && past > self.progress {
                    self.progress = CollapsedProgress::at(past.blocks() - 1);
                }
                Ok(Some(completion))
            }
            Ok(completion) => {
                let after = self.progress.after(completion.index);
                let new = after > self.progress;
                self.progress = after;
                Ok(new.then_some(completion))
            }
        }
    }

    fn read(&self, slot: usize, tail: u64) -> Cqe {
        let mut words = [0u64; CQE_WORDS];
        for (k, word) in words.iter_mut().enumerate() {
            *word = self.memory.slots.word(slot + k).load(Ordering::Relaxed);
        }
        words[CQE_WORDS - 1] = tail;
        transmute!(words)
    }
}

fn tail_only(tail: u64) -> [u8; 64] {
    let mut words = [0u64; CQE_WORDS];
    words[CQE_WORDS - 1] = tail;
    transmute!(words)
}
