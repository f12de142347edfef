//! A receiver's slots for packets, as the CPUs of both sides use them: where the two are of one host, a small message and that it has come are
//! one cache line, and what has been taken is told once for several. Between GPUs kernels do it, `mp/message.cuh`.

use std::sync::atomic::AtomicU64;

use gdsync::{Buffer, Word64};
use mp_kernels::PACKET_SLOTS;

use crate::data::pieces::Pieces;
use crate::transport::packet::{self, BYTES, WORDS};
use crate::transport::state::HOST_PACKETS_MAX;

const SLOTS: usize = PACKET_SLOTS as usize;
/// Packets of the longest message.
const MOST: usize = packet::count(HOST_PACKETS_MAX as usize);

/// The slots, and the memory of this side.
pub(crate) struct Slots {
    words: Buffer<u64>,
    /// The first and the last word of each, which may lie in two cache lines.
    ends: Vec<[Word64; 2]>,
    memory: Pieces,
    /// Bytes of a message, and its packets.
    len: usize,
    packets: usize,
    /// Whether this is the receiver.
    pub receives: bool,
}

impl Slots {
    /// For messages of `len` bytes, at most [`HOST_PACKETS_MAX`].
    pub fn new(
        words: Buffer<u64>,
        memory: &Pieces,
        len: usize,
        receives: bool,
    ) -> gdsync::Result<Slots> {
        let packets = packet::count(len.min(HOST_PACKETS_MAX as usize));
        let words = words.slice(0..SLOTS * packets * WORDS)?;
        let ends = |slot: usize| -> gdsync::Result<[Word64; 2]> {
            let at = slot * packets * WORDS;
            Ok([words.word(at)?, words.word(at + packets * WORDS - 1)?])
        };
        let ends = (0..SLOTS).map(ends).collect::<gdsync::Result<_>>()?;
        Ok(Slots { words, ends, memory: memory.clone(), len, packets, receives })
    }

    fn number(epoch: u64) -> usize {
        (epoch.wrapping_sub(1) % PACKET_SLOTS) as usize
    }

    /// The slot of a message. Host memory, which the CPU reaches.
    fn slot(&self, epoch: u64) -> &[AtomicU64] {
        let words = self.packets * WORDS;
        let at = Slots::number(epoch) * words;
        self.words.atomics().and_then(|all| all.get(at..at + words)).unwrap_or_default()
    }

    /// A hint that this message is stored, or looked for, soon.
    pub fn prefetch(&self, epoch: u64) {
        for word in self.ends.get(Slots::number(epoch)).into_iter().flatten() {
            match self.receives {
                true => word.prefetch(),
                false => word.prefetch_for_write(),
            }
        }
    }

    /// Stores the memory as this message, whose slot is free. Release.
    #[inline]
    pub fn send(&self, epoch: u64) -> gdsync::Result<()> {
        let mut pieces = [[0; BYTES]; MOST];
        let mut at = 0;
        for part in self.memory.iter() {
            let part_len = part.len().min(self.len - at);
            let bytes = &mut pieces.as_flattened_mut()[at..at + part_len];
            // SAFETY: these bytes have that length, and nobody else has them.
            unsafe { part.copy_out(0, bytes.as_mut_ptr(), bytes.len())? };
            at += part_len;
        }
        packet::store(self.slot(epoch), &pieces[..self.packets], epoch);
        Ok(())
    }

    /// Takes this message into the memory; false if it is not there. Acquire.
    #[inline]
    pub fn take(&self, epoch: u64) -> gdsync::Result<bool> {
        let mut pieces = [[0; BYTES]; MOST];
        if !packet::take(self.slot(epoch), &mut pieces[..self.packets], epoch) {
            return Ok(false);
        }
        let mut at = 0;
        for part in self.memory.iter() {
            let part_len = part.len().min(self.len - at);
            let bytes = &pieces.as_flattened()[at..at + part_len];
            // SAFETY: these bytes have that length, and nobody changes them.
            unsafe { part.copy_in(0, bytes.as_ptr(), bytes.len())? };
            at += part_len;
        }
        Ok(true)
    }

    /// Whether this message is there.
    pub fn has(&self, epoch: u64) -> bool {
        packet::take(self.slot(epoch), &mut [[0; BYTES]; MOST][..self.packets], epoch)
    }

    /// Whether the sender is to hear that so many were taken: in time for it not to wait, and not of each.
    pub fn is_told(epoch: u64) -> bool {
        epoch.is_multiple_of(PACKET_SLOTS / 2)
    }
}
