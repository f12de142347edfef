//! Small messages as packets, as `mp/packet.cuh` has them: 12 bytes of the message and the low 32 bits of its number together in 16 bytes,
//! so that what comes needs no word of its own that says so. How one side stores them and the other one takes them; who may use a slot
//! again, and when, is its caller's.
//!
//! `models/` checks this file under every interleaving that the memory model allows.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a packet: eight bytes of data; the number and, above it, four bytes of data.
pub(crate) const WORDS: usize = 2;
/// Bytes of a message in one.
pub(crate) const BYTES: usize = 12;

/// Packets of a message of so many bytes. One without bytes is one packet.
pub(crate) const fn count(bytes: usize) -> usize {
    if bytes == 0 { 1 } else { bytes.div_ceil(BYTES) }
}

/// Stores a message with this number, in pieces. Release: who takes one of them sees what was done before.
#[inline]
pub(crate) fn store(slot: &[AtomicU64], pieces: &[[u8; BYTES]], number: u64) {
    let (packets, _) = slot.as_chunks::<WORDS>();
    for ([data, last], piece) in packets.iter().zip(pieces) {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = *piece;
        data.store(u64::from_le_bytes([a, b, c, d, e, f, g, h]), Ordering::Relaxed);
        let high = u64::from(u32::from_le_bytes([i, j, k, l])) << 32;
        last.store(high | u64::from(number as u32), Ordering::Release);
    }
}

/// Whether all pieces of the message with this number are there, and then they. Acquire.
#[inline]
pub(crate) fn take(slot: &[AtomicU64], pieces: &mut [[u8; BYTES]], number: u64) -> bool {
    let (packets, _) = slot.as_chunks::<WORDS>();
    for ([data, last], piece) in packets.iter().zip(pieces) {
        let last = last.load(Ordering::Acquire);
        if last as u32 != number as u32 {
            return false;
        }
        let (low, high) = piece.split_at_mut(size_of::<u64>());
        low.copy_from_slice(&data.load(Ordering::Relaxed).to_le_bytes());
        high.copy_from_slice(&((last >> 32) as u32).to_le_bytes());
    }
    true
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_taken_once_it_is_whole() {
        for packets in 1..=8 {
            let slot: Vec<AtomicU64> = (0..packets * WORDS).map(|_| AtomicU64::new(0)).collect();
            let piece = |at: usize| std::array::from_fn(|byte| (at * BYTES + byte + 1) as u8);
            let message: Vec<[u8; BYTES]> = (0..packets).map(piece).collect();
            let mut got = vec![[0; BYTES]; packets];
            assert!(!take(&slot, &mut got, 7), "{packets}: nothing was sent");
            store(&slot, &message, 7);
            assert!(take(&slot, &mut got, 7) && got == message, "{packets}: {got:?}");
            assert!(!take(&slot, &mut got, 8) && !take(&slot, &mut got, 3), "{packets}");
            // The last packet of the next one has not come.
            let last = slot[slot.len() - 1].load(Ordering::Relaxed);
            store(&slot, &message, 11);
            slot[slot.len() - 1].store(last, Ordering::Relaxed);
            assert!(!take(&slot, &mut got, 11), "{packets}");
        }
        assert_eq!([0, 1, 12, 13, 96].map(count), [1, 1, 1, 2, 8]);
    }
}
