//! The memory of a queue pair: one pinned allocation that the CPU, the GPU and the NIC share. What only kernels post to may lie in
//! a GPU's own memory, in the same order ([`Resident`](super::resident::Resident)).
//!
//! | from byte | what |
//! |---|---|
//! | 0 | the UAR page; its doorbell register is at 0x800 |
//! | 4096 | doorbell record, then each on a cache line of its own: the two completion queues' records, the counters |
//! | 8192 | send completions and receive completions, on pages of their own; receive queue and then send queue |
//!
//! What the threads of a GPU share about the queue (`mp::QueuePairState`) is in the GPU's own memory.
//!
//! The counters belong to those who post, not to the NIC: how many blocks of the send queue are reserved, rung, and
//! known to be free again. They count from 0 and never wrap.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub use mp_kernels::QueuePair as DeviceQueuePair;
use mp_kernels::QueuePairState;

use super::completion_queue::CompletionMemory;
use super::error::Result;
use super::options::{CompletionMode, QueuePairOptions};
use super::resident::Resident;
use super::words::Words;
use crate::device::Device;
use crate::memory::word::{Word32, Word64};
use crate::memory::{Buffer, Space};
use crate::wqe::{BLOCK_BYTES, Cqe, Doorbell, DoorbellRecord, OCTOWORD_BYTES};

const PAGE: usize = 4096;
const LINE: usize = 64;
const CQE_BYTES: usize = size_of::<Cqe>();

const RECORD: usize = PAGE;
const SEND_CONSUMER: usize = PAGE + LINE;
const RECEIVE_CONSUMER: usize = PAGE + 2 * LINE;
const RESERVED: usize = PAGE + 3 * LINE;
const PUBLISHED: usize = PAGE + 4 * LINE;
const COMPLETED: usize = PAGE + 5 * LINE;
const QUEUES: usize = 2 * PAGE;

/// The parts of that allocation.
#[derive(Clone)]
pub(crate) struct QueueMemory {
    all: Words,
    /// One word: in `all`, or an adapter's register.
    doorbell: Words,
    pub send: Words,
    pub receive: Words,
    pub send_completions: CompletionMemory,
    pub receive_completions: CompletionMemory,
    pub receive_stride: usize,
    pub layout: Layout,
    /// Where the queues are, if not in `all`.
    resident: Option<Arc<Resident>>,
    /// What the threads of the device share about the send queue; only for collapsed completions, which kernels read.
    state: Option<Buffer<u64>>,
}

/// Where in the allocation what is: bytes from its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub record: usize,
    pub send_consumer: usize,
    pub receive_consumer: usize,
    pub send_completions: usize,
    pub receive_completions: usize,
    /// The receive queue, with the send queue behind it.
    pub queues: usize,
    pub sends: usize,
    /// Of the whole.
    pub len: usize,
}

impl Layout {
    /// The order for these options, which are valid. The first three parts begin on pages, sends follow receives.
    pub fn of(options: &QueuePairOptions) -> Layout {
        let send_slots = slot_bytes(options.send_completions, options.send_blocks);
        let receive_slots = slot_bytes(options.receive_completions, options.receive_entries);
        let receive_completions = QUEUES + send_slots.next_multiple_of(PAGE);
        let queues = receive_completions + receive_slots.next_multiple_of(PAGE);
        let receives = options.receive_entries * options.receive_segments * OCTOWORD_BYTES;
        let sends = queues + receives.next_multiple_of(LINE);
        Layout {
            record: RECORD,
            send_consumer: SEND_CONSUMER,
            receive_consumer: RECEIVE_CONSUMER,
            send_completions: QUEUES,
            receive_completions,
            queues,
            sends,
            len: sends + options.send_blocks * BLOCK_BYTES,
        }
    }
}

/// Of the completions of a queue with so many entries.
fn slot_bytes(mode: CompletionMode, entries: usize) -> usize {
    match mode {
        CompletionMode::Ring => entries * CQE_BYTES,
        CompletionMode::Collapsed => CQE_BYTES,
    }
}

impl QueueMemory {
    /// Memory for these options, zero but for the completion queues, which are empty.
    pub fn new(device: &Device, options: &QueuePairOptions) -> Result<QueueMemory> {
        QueueMemory::with_doorbell(device, options, None)
    }

    /// The same with the doorbell register of an adapter.
    pub fn with_doorbell(
        device: &Device,
        options: &QueuePairOptions,
        doorbell: Option<Buffer<u64>>,
    ) -> Result<QueueMemory> {
        options.validate()?;
        let layout = Layout::of(options);
        let all = Words::new(Buffer::new(device, Space::Pinned, layout.len / 8)?)?;
        let part = |from: usize, bytes: usize| all.slice(from / 8, bytes / 8);
        let (sends, receives) = (options.send_completions, options.receive_completions);
        let send_slots = part(layout.send_completions, slot_bytes(sends, options.send_blocks))?;
        let receive_slots =
            part(layout.receive_completions, slot_bytes(receives, options.receive_entries))?;
        let receive_bytes = options.receive_entries * options.receive_segments * OCTOWORD_BYTES;
        let receive = part(layout.queues, receive_bytes)?;
        let send = part(layout.sends, options.send_blocks * BLOCK_BYTES)?;
        let doorbell = match doorbell {
            Some(register) => Words::new(register)?,
            None => all.slice(Doorbell::UAR_OFFSET / 8, 1)?,
        };
        let completions = |slots: Words, consumer, mode| {
            CompletionMemory::new(slots, all.clone(), consumer, mode)
        };
        let state = match options.send_completions {
            CompletionMode::Ring => None,
            CompletionMode::Collapsed => {
                // No other process maps it: without a GPU it is memory like any other.
                let own = if matches!(device, Device::Host) { Space::Host } else { Space::Device };
                Some(Buffer::new(device, own, STATE_WORDS + options.send_blocks)?)
            }
        };
        Ok(QueueMemory {
            doorbell,
            state,
            send_completions: completions(send_slots, SEND_CONSUMER, options.send_completions),
            receive_completions: completions(
                receive_slots,
                RECEIVE_CONSUMER,
                options.receive_completions,
            ),
            send,
            receive,
            receive_stride: options.receive_segments,
            layout,
            resident: None,
            all,
        })
    }

    /// The same for queues in the device's own memory: what the CPU then has is a copy, as far as it [looks](Self::look).
    pub fn resident(
        device: &Device,
        options: &QueuePairOptions,
        doorbell: Buffer<u64>,
    ) -> Result<QueueMemory> {
        let mut memory = QueueMemory::with_doorbell(device, options, Some(doorbell))?;
        memory.resident =
            Some(Arc::new(Resident::new(&memory.all, memory.layout.send_completions)?));
        Ok(memory)
    }

    /// Brings counters and the last completion of queues in the device's own memory; nothing is to be done for others. `lately`
    /// is soon enough: within a millisecond.
    pub fn look(&self, lately: bool) -> Result<()> {
        let Some(resident) = &self.resident else { return Ok(()) };
        let Some(seen) = resident.look(lately)? else { return Ok(()) };
        self.reserved().fetch_max(seen.word(RESERVED / 8), Ordering::AcqRel);
        self.published().fetch_max(seen.word(PUBLISHED / 8), Ordering::AcqRel);
        self.completed().fetch_max(seen.word(COMPLETED / 8), Ordering::AcqRel);
        let (slots, first) = (&self.send_completions.slots, self.layout.send_completions / 8);
        (0..slots.len())
            .for_each(|at| slots.word(at).store(seen.word(first + at), Ordering::Release));
        Ok(())
    }

    /// The queues in the device's own memory, if they are there, for an adapter to register.
    pub fn in_device_memory(&self) -> Option<&Buffer<u8>> {
        self.resident.as_ref().map(|resident| resident.memory())
    }

    /// The allocation, for an adapter to register.
    pub fn whole(&self) -> (*mut u8, usize) {
        (self.all.pointer(0), 8 * self.all.len())
    }

    /// The doorbell register.
    pub fn doorbell(&self) -> &AtomicU64 {
        self.doorbell.word(0)
    }

    /// The send word of the doorbell record, as it stands in memory (big-endian).
    pub fn send_record(&self) -> &AtomicU32 {
        self.all.half((RECORD + DoorbellRecord::SEND_OFFSET) / 4)
    }

    /// The receive word of the doorbell record, as it stands in memory (big-endian).
    pub fn receive_record(&self) -> &AtomicU32 {
        self.all.half((RECORD + DoorbellRecord::RECEIVE_OFFSET) / 4)
    }

    /// Blocks of the send queue given to somebody who posts.
    pub fn reserved(&self) -> &AtomicU64 {
        self.all.word(RESERVED / 8)
    }

    /// Blocks of the send queue that the doorbell record covers.
    pub fn published(&self) -> &AtomicU64 {
        self.all.word(PUBLISHED / 8)
    }

    /// Blocks of the send queue known to be free again.
    pub fn completed(&self) -> &AtomicU64 {
        self.all.word(COMPLETED / 8)
    }

    /// Basic blocks of the entry that begins at this block of the send queue, as its control segment says.
    pub fn entry_blocks(&self, block: u64) -> Result<u64> {
        let word = (block % self.send_blocks()) as usize * (BLOCK_BYTES / 8);
        let control = match &self.resident {
            Some(resident) => resident.word(self.layout.sends / 8 + word)?,
            None => self.send.word(word).load(Ordering::Acquire),
        };
        // Number of the queue pair in 24 bits, then octowords in 6.
        let octowords = control.to_ne_bytes()[7] & 0x3f;
        Ok(u64::from(octowords).div_ceil((BLOCK_BYTES / OCTOWORD_BYTES) as u64))
    }

    /// Basic blocks of the send queue.
    pub fn send_blocks(&self) -> u64 {
        (self.send.len() * 8 / BLOCK_BYTES) as u64
    }

    /// Entries of the receive queue.
    pub fn receive_entries(&self) -> u64 {
        (self.receive.len() * 8 / OCTOWORD_BYTES / self.receive_stride) as u64
    }

    /// The words that a stream writes to ring: send record, doorbell, published counter.
    pub fn ring_words(&self) -> Result<(Word32, Word64, Word64)> {
        let halves = self.all.buffer().cast::<u32>()?;
        Ok((
            halves.word((RECORD + DoorbellRecord::SEND_OFFSET) / 4)?,
            self.doorbell.buffer().word(0)?,
            self.all.buffer().word(PUBLISHED / 8)?,
        ))
    }

    /// Address for the device of the first of the words.
    fn device_address(&self, words: &Words) -> Result<u64> {
        let address = words.buffer().device_address();
        Ok(address.ok_or_else(|| crate::Error::NotReachable {
            what: "a queue",
            memory: words.buffer().space().to_string(),
            place: words.buffer().device().to_string(),
            hint: "use pinned memory",
        })?)
    }

    /// What a kernel needs to post; `None` if the send completions are not collapsed.
    pub fn view(&self, qpn: u32) -> Result<Option<DeviceQueuePair>> {
        let Some(state) = self.state.as_ref().and_then(Buffer::device_address) else {
            return Ok(None);
        };
        let base = match &self.resident {
            Some(resident) => resident.address(),
            None => self.device_address(&self.all)?,
        };
        let at = |offset: usize| base + offset as u64;
        Ok(Some(DeviceQueuePair {
            state,
            send_queue: at(self.layout.sends),
            completion: at(self.layout.send_completions),
            send_record: at(RECORD + DoorbellRecord::SEND_OFFSET),
            doorbell: self.device_address(&self.doorbell)?,
            reserved: at(RESERVED),
            published: at(PUBLISHED),
            completed: at(COMPLETED),
            blocks: self.send_blocks() as u32,
            qpn,
        }))
    }
}

/// Words in front of the marks, one for each block.
const STATE_WORDS: usize = size_of::<QueuePairState>() / 8;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn the_parts_do_not_overlap_and_end_with_the_allocation() -> Result<()> {
        let options = QueuePairOptions {
            send_blocks: 64,
            receive_entries: 2,
            receive_segments: 1,
            send_completions: CompletionMode::Collapsed,
            ..QueuePairOptions::default()
        };
        let memory = QueueMemory::new(&Device::Host, &options)?;
        let place = |words: &Words| {
            let begin = words.pointer(0) as usize;
            begin..begin + 8 * words.len()
        };
        let parts = [
            place(&memory.send_completions.slots),
            place(&memory.receive_completions.slots),
            place(&memory.receive),
            place(&memory.send),
        ];
        assert_eq!(parts[0].len(), 64);
        assert_eq!(parts[1].len(), 128);
        assert_eq!(parts[2].len(), 32);
        assert_eq!(parts[3].len(), 64 * 64);
        assert!(parts.windows(2).all(|two| two[0].end <= two[1].start));
        assert!(parts.iter().all(|part| part.start % 64 == 0));
        assert!(parts[3].end <= place(&memory.all).end);
        // As an adapter wants them: on pages, sends directly after receives.
        let layout = memory.layout;
        for page in [layout.send_completions, layout.receive_completions, layout.queues] {
            assert_eq!(page % PAGE, 0);
        }
        assert_eq!(parts[3].start - parts[2].start, 64, "a line, though receives take half of it");
        assert_eq!(memory.whole().1, place(&memory.all).len());
        assert_eq!((memory.send_blocks(), memory.receive_entries()), (64, 2));
        memory.send_record().store(7, Ordering::Relaxed);
        assert_eq!(memory.receive_record().load(Ordering::Relaxed), 0);
        let Some(view) = memory.view(9)? else { panic!("a collapsed queue has a view") };
        assert_eq!(view.doorbell % 4096, 0x800);
        assert_eq!(view.send_record % 4096, 4);
        Ok(())
    }
}
