//! The NIC's side of a completion queue: writes completions, never over one that is not read.

use std::sync::atomic::Ordering;

use zerocopy::transmute;

use crate::nic::completion_queue::CQE_WORDS;
use crate::nic::completion_queue::CompletionMemory;
use crate::nic::options::CompletionMode;
use crate::wqe::{Completion, CqDoorbellRecord, Cqe, expected_owner};

/// Writes the completions of one queue, in order.
pub(crate) struct CompletionWriter {
    memory: CompletionMemory,
    slots: u64,
    produced: u64,
}

impl CompletionWriter {
    pub fn new(memory: CompletionMemory) -> CompletionWriter {
        let slots = (memory.slots.len() / CQE_WORDS) as u64;
        CompletionWriter { memory, slots, produced: 0 }
    }

    /// How many more completions fit. A reader that says nonsense gets none.
    pub fn room(&self) -> u64 {
        if self.memory.mode == CompletionMode::Collapsed {
            return u64::MAX;
        }
        let record = self.memory.consumer().load(Ordering::Acquire).to_ne_bytes();
        let unread = (self.produced as u32).wrapping_sub(CqDoorbellRecord::index(record));
        self.slots.saturating_sub(u64::from(unread & 0x00ff_ffff))
    }

    /// Writes one. The caller knows that there is room. In a collapsed queue each overwrites the one before, a flushed
    /// request the failure that was its cause, as on an adapter.
    pub fn write(&mut self, completion: &Completion) {
        let collapsed = self.memory.mode == CompletionMode::Collapsed;
        let owner = !collapsed && expected_owner(self.produced, self.slots);
        // Queue pair number and user index are the NIC's own and have 24 bits.
        let Ok(cqe) = Cqe::encode(completion, owner) else { return };
        let words: [u64; CQE_WORDS] = transmute!(cqe);
        let slot = (self.produced & (self.slots - 1)) as usize * CQE_WORDS;
        self.produced += 1;
        for (k, word) in words[..CQE_WORDS - 1].iter().enumerate() {
            self.memory.slots.word(slot + k).store(*word, Ordering::Relaxed);
        }
        // The tail last: whoever sees it sees the rest, and all that was copied before.
        self.memory.slots.word(slot + CQE_WORDS - 1).store(words[CQE_WORDS - 1], Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::nic::completion_queue::CompletionReader;
    use crate::nic::options::QueuePairOptions;
    use crate::nic::queue_memory::QueueMemory;
    use crate::wqe::{CompletionKind, ErrorSide, Syndrome, WqeOpcode};

    fn queue(mode: CompletionMode) -> (CompletionWriter, CompletionReader) {
        let options = QueuePairOptions {
            send_blocks: 32,
            send_completions: mode,
            ..QueuePairOptions::default()
        };
        let memory = QueueMemory::new(&Device::Host, &options).unwrap().send_completions;
        (CompletionWriter::new(memory.clone()), CompletionReader::new(memory))
    }

    fn done(index: u16) -> Completion {
        let kind = CompletionKind::Request { opcode: WqeOpcode::Write, byte_count: 0 };
        Completion { qpn: 5, index, user_index: 0, kind }
    }

    fn failed(index: u16, syndrome: Syndrome) -> Completion {
        let kind =
            CompletionKind::Error { side: ErrorSide::Requester, syndrome, vendor: 0, opcode: 8 };
        Completion { qpn: 5, index, user_index: 0, kind }
    }

    #[test]
    fn a_ring_hands_over_every_completion_once_for_many_passes() {
        let (mut writer, mut reader) = queue(CompletionMode::Ring);
        assert_eq!(reader.poll(), Ok(None));
        let mut next = 0;
        for index in 0..70_000u32 {
            if writer.room() == 0 {
                for _ in 0..32 {
                    assert_eq!(reader.poll(), Ok(Some(done(next))));
                    next = next.wrapping_add(1);
                }
                assert_eq!(reader.poll(), Ok(None));
                assert_eq!(writer.room(), 32);
            }
            writer.write(&done(index as u16));
        }
    }

    #[test]
    fn a_collapsed_queue_shows_the_latest_index_across_the_wrap() {
        let (mut writer, mut reader) = queue(CompletionMode::Collapsed);
        assert_eq!((reader.poll(), reader.progress()), (Ok(None), 0));
        for index in 0..200_000u64 {
            writer.write(&done(index as u16));
            if index % 20_000 == 77 {
                assert_eq!(reader.poll().unwrap().unwrap().index, index as u16);
                assert_eq!(reader.progress(), index + 1);
                assert_eq!(reader.poll(), Ok(None));
            }
        }
    }

    #[test]
    fn a_failure_in_a_collapsed_queue_says_that_those_before_it_are_complete() {
        let (mut writer, mut reader) = queue(CompletionMode::Collapsed);
        writer.write(&done(3));
        writer.write(&failed(4, Syndrome::RemoteAccess));
        assert_eq!(reader.poll(), Ok(Some(failed(4, Syndrome::RemoteAccess))));
        assert_eq!(reader.progress(), 4);
        writer.write(&failed(5, Syndrome::Flushed));
        assert_eq!(reader.poll(), Ok(None), "one error is told");
        assert_eq!(reader.progress(), 4);
    }

    #[test]
    fn a_flush_in_a_collapsed_queue_says_nothing_of_those_before_it() {
        let (mut writer, mut reader) = queue(CompletionMode::Collapsed);
        writer.write(&done(3));
        assert_eq!((reader.poll(), reader.progress()), (Ok(Some(done(3))), 4));
        writer.write(&done(4));
        writer.write(&failed(5, Syndrome::RemoteAccess));
        writer.write(&failed(6, Syndrome::Flushed));
        assert_eq!(reader.poll(), Ok(Some(failed(6, Syndrome::Flushed))));
        assert_eq!(reader.progress(), 4);
    }
}
