//! A send queue as a ring of octowords: where an entry stands, and how it wraps.
//!
//! The ring does not know when an entry may be written or read: that is the doorbell's and the completion
//! queue's business. Memory shared with a device implements [`RingMemory`] with whatever loads it needs.

use super::decode::Head;
use super::segment::CtrlSegment;
use super::{
    BLOCK_OCTOWORDS, DecodeError, Entry, MAX_ENTRY_OCTOWORDS, MAX_QUEUE_BLOCKS, OCTOWORD_BYTES,
    blocks,
};
use zerocopy::transmute;

/// Sixteen bytes, the unit of every transfer to and from a queue.
pub type Octoword = [u8; OCTOWORD_BYTES];

/// Memory that a queue can be read from.
///
/// See [`wqe`](super) for an example.
pub trait RingMemory {
    /// How many octowords there are.
    fn octowords(&self) -> usize;
    /// Octoword `at`, which is below `octowords()`.
    fn load(&self, at: usize) -> Octoword;
}

/// Memory that a queue can be written to.
///
/// See [`wqe`](super) for an example.
pub trait RingMemoryMut: RingMemory {
    /// Sets octoword `at`, which is below `octowords()`.
    fn store(&mut self, at: usize, octoword: Octoword);
}

impl<T: AsRef<[Octoword]>> RingMemory for T {
    fn octowords(&self) -> usize {
        self.as_ref().len()
    }
    fn load(&self, at: usize) -> Octoword {
        self.as_ref()[at]
    }
}

impl<T: AsRef<[Octoword]> + AsMut<[Octoword]>> RingMemoryMut for T {
    fn store(&mut self, at: usize, octoword: Octoword) {
        self.as_mut()[at] = octoword;
    }
}

/// A ring that cannot be, or an entry that does not fit it.
///
/// ```
/// use gdsync::wqe::SendRing;
///
/// let refused = SendRing::new(vec![[0; 16]; 3 * 4]).unwrap_err(); // three basic blocks
/// println!("{refused}");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// The memory is not a whole power of two of units.
    #[error("{what}: {found}, expected a power of two from 1 to {max}")]
    Size {
        /// What has the wrong size.
        what: &'static str,
        /// Its size.
        found: usize,
        /// The largest it may be.
        max: usize,
    },
    /// The memory is not a whole number of units.
    #[error("{octowords} octowords are not a whole number of units of {unit}")]
    Ragged {
        /// Octowords given.
        octowords: usize,
        /// Octowords of a basic block or of a receive entry.
        unit: usize,
    },
    /// The entry is larger than the queue, or has not been encoded.
    #[error("an entry of {octowords} octowords in a queue of {room}")]
    Entry {
        /// Octowords of the entry.
        octowords: usize,
        /// Octowords of the queue.
        room: usize,
    },
}

/// Checks that `found` is a power of two up to `max`.
pub(super) fn power_of_two(what: &'static str, found: usize, max: usize) -> Result<(), RingError> {
    if found.is_power_of_two() && found <= max {
        return Ok(());
    }
    Err(RingError::Size { what, found, max })
}

/// A send queue over `memory`.
///
/// See [`wqe`](super) for an example.
#[derive(Debug, Clone)]
pub struct SendRing<M> {
    memory: M,
}

impl<M: RingMemory> SendRing<M> {
    /// A queue of all of `memory`.
    ///
    /// # Errors
    /// If the memory is not a power of two of basic blocks, up to [`MAX_QUEUE_BLOCKS`].
    pub fn new(memory: M) -> Result<Self, RingError> {
        let octowords = memory.octowords();
        if !octowords.is_multiple_of(BLOCK_OCTOWORDS) {
            return Err(RingError::Ragged { octowords, unit: BLOCK_OCTOWORDS });
        }
        power_of_two(
            "basic blocks of a send queue",
            octowords / BLOCK_OCTOWORDS,
            MAX_QUEUE_BLOCKS,
        )?;
        Ok(Self { memory })
    }

    /// Basic blocks.
    #[must_use]
    pub fn blocks(&self) -> usize {
        blocks(self.memory.octowords())
    }

    /// The memory.
    #[must_use]
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Copies the entry of queue pair `qpn` at `index` out of the queue.
    ///
    /// # Errors
    /// If no entry of that queue pair and index stands there, or it claims an impossible size. `entry` is
    /// then empty.
    pub fn fetch(&self, qpn: u32, index: u16, entry: &mut Entry) -> Result<(), DecodeError> {
        entry.clear();
        let first = self.memory.load(self.position(index, 0));
        let ctrl: CtrlSegment = transmute!(first);
        let head = Head::of(&ctrl);
        let max = MAX_ENTRY_OCTOWORDS.min(self.memory.octowords());
        if head.index != index {
            return Err(DecodeError::Index { index, found: head.index });
        }
        if head.qpn != qpn {
            return Err(DecodeError::QueuePairNumber { index, qpn, found: head.qpn });
        }
        if head.size == 0 || usize::from(head.size) > max {
            return Err(DecodeError::Size { index, size: head.size, max });
        }
        entry.push(&first);
        for k in 1..usize::from(head.size) {
            entry.push(&self.memory.load(self.position(index, k)));
        }
        Ok(())
    }

    /// Octoword `k` of the entry at `index`.
    fn position(&self, index: u16, k: usize) -> usize {
        (usize::from(index) * BLOCK_OCTOWORDS + k) & (self.memory.octowords() - 1)
    }
}

impl<M: RingMemoryMut> SendRing<M> {
    /// Writes `entry` where the index in its control segment says, its control segment last.
    ///
    /// The caller knows that the blocks are free.
    ///
    /// # Errors
    /// If the entry is empty or larger than the queue.
    pub fn store(&mut self, entry: &Entry) -> Result<(), RingError> {
        let octowords = entry.octowords();
        let room = self.memory.octowords();
        let Some((first, rest)) = octowords.split_first().filter(|_| octowords.len() <= room)
        else {
            return Err(RingError::Entry { octowords: octowords.len(), room });
        };
        let ctrl: CtrlSegment = transmute!(*first);
        let index = Head::of(&ctrl).index;
        for (k, octoword) in rest.iter().enumerate() {
            let at = self.position(index, k + 1);
            self.memory.store(at, *octoword);
        }
        let at = self.position(index, 0);
        self.memory.store(at, *first);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wqe::{Operation, Payload, WorkRequest};

    fn ring(blocks: usize) -> SendRing<Vec<Octoword>> {
        SendRing::new(vec![[0xee; 16]; blocks * BLOCK_OCTOWORDS]).unwrap()
    }

    #[test]
    fn inline_data_continue_at_the_beginning_of_the_ring() {
        let mut ring = ring(4);
        let data: Vec<u8> = (0..100).collect();
        let operation = Operation::Send { payload: Payload::Inline(&data), imm: None };
        // Block 65535 is the last of four; 8 octowords are two blocks.
        let request = WorkRequest { qpn: 9, index: u16::MAX, ..WorkRequest::new(operation) };
        let mut entry = Entry::new();
        entry.encode(&request).unwrap();
        assert_eq!(entry.blocks(), 2);
        ring.store(&entry).unwrap();
        let bytes = ring.memory().as_flattened();
        assert_eq!(bytes[3 * 64 + 20..], data[..44], "up to the end of the ring");
        assert_eq!(bytes[..56], data[44..], "and from its beginning");
        assert_eq!(bytes[64..128], [0xee; 64], "the next entry's block is untouched");
        let mut fetched = Entry::new();
        ring.fetch(9, u16::MAX, &mut fetched).unwrap();
        assert_eq!(fetched.decode().unwrap(), request);
    }

    #[test]
    fn a_fetch_refuses_what_was_not_written_for_it() {
        let mut ring = ring(2);
        let mut entry = Entry::new();
        let nop = WorkRequest { qpn: 9, index: 3, ..WorkRequest::new(Operation::Nop) };
        entry.encode(&nop).unwrap();
        ring.store(&entry).unwrap();
        let mut out = Entry::new();
        assert_eq!(ring.fetch(9, 5, &mut out), Err(DecodeError::Index { index: 5, found: 3 }));
        assert_eq!(
            ring.fetch(8, 3, &mut out),
            Err(DecodeError::QueuePairNumber { index: 3, qpn: 8, found: 9 })
        );
        assert_eq!(ring.fetch(9, 3, &mut out), Ok(()));
        let mut memory = ring.memory().clone();
        for size in [0, 9, 63, 64, 255] {
            memory[4][7] = size;
            let ring = SendRing::new(&memory).unwrap();
            assert_eq!(
                ring.fetch(9, 3, &mut out),
                Err(DecodeError::Size { index: 3, size, max: 8 })
            );
        }
    }

    #[test]
    fn a_ring_is_a_power_of_two_of_blocks() {
        for (octowords, error) in [
            (0, RingError::Size { what: "basic blocks of a send queue", found: 0, max: 32768 }),
            (5, RingError::Ragged { octowords: 5, unit: 4 }),
            (12, RingError::Size { what: "basic blocks of a send queue", found: 3, max: 32768 }),
        ] {
            assert_eq!(SendRing::new(vec![[0; 16]; octowords]).map(|_| ()), Err(error));
        }
        assert!(SendRing::new(vec![[0; 16]; 4 * 32768]).is_ok());
        assert!(SendRing::new(vec![[0; 16]; 4 * 65536]).is_err());
    }

    #[test]
    fn an_entry_larger_than_the_ring_is_refused() {
        let mut entry = Entry::new();
        let operation = Operation::Send { payload: Payload::Inline(&[0; 200]), imm: None };
        entry.encode(&WorkRequest::new(operation)).unwrap();
        let error = RingError::Entry { octowords: 14, room: 8 };
        assert_eq!(ring(2).store(&entry), Err(error));
        let error = RingError::Entry { octowords: 0, room: 8 };
        assert_eq!(ring(2).store(&Entry::new()), Err(error));
    }
}
