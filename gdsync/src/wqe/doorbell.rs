//! Doorbells: the words that tell a NIC how far a queue has been filled or drained.
//!
//! A *doorbell record* is memory that the NIC reads; the *doorbell* is a 64-bit store to its register page
//! that makes it look. Values here are arrays of bytes in memory order: storing them as one word needs
//! `from_ne_bytes`, never a swap. Order on the CPU and the GPU alike: entries, fence, record, fence, doorbell.

use super::MAX_QPN;

/// The doorbell record of a queue pair: 8 bytes, two big-endian words.
///
/// ```
/// use gdsync::wqe::{Doorbell, DoorbellRecord};
///
/// // The send queue of queue pair 0x77 is filled up to block 9: first the record, then the doorbell.
/// let mut record = [0; 8];
/// record[DoorbellRecord::SEND_OFFSET..][..4].copy_from_slice(&DoorbellRecord::word(9));
/// let register = Doorbell { qpn: 0x77, index: 9 }.to_bytes();
/// assert_eq!(Doorbell::from_bytes(register), Doorbell { qpn: 0x77, index: 9 });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DoorbellRecord;

impl DoorbellRecord {
    /// Byte offset of the receive word (`MLX5_RCV_DBR`).
    pub const RECEIVE_OFFSET: usize = 0;
    /// Byte offset of the send word (`MLX5_SND_DBR`).
    pub const SEND_OFFSET: usize = 4;

    /// A word of the record that says: filled up to, excluding, `next`.
    #[must_use]
    pub const fn word(next: u16) -> [u8; 4] {
        (next as u32).to_be_bytes()
    }

    /// The index in a word of the record. The hardware looks at 16 bits.
    #[must_use]
    pub const fn index(word: [u8; 4]) -> u16 {
        u32::from_be_bytes(word) as u16
    }
}

/// The value of a send doorbell: the first eight bytes of a control segment, of which the NIC takes the
/// queue pair and the index.
///
/// A library may write those of the last entry it posted, with its opcode, size and *first* block (rdma-core
/// does), or only these two with the *next* index (NVIDIA's device code does). The doorbell says which queue
/// to look at; how far it is filled, the doorbell record says.
///
/// See [`DoorbellRecord`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Doorbell {
    /// Queue pair (24 bits).
    pub qpn: u32,
    /// An index of that queue, as described above.
    pub index: u16,
}

impl Doorbell {
    /// Offset of the first doorbell register in a UAR page (`MLX5_BF_OFFSET` in rdma-core).
    pub const UAR_OFFSET: usize = 0x800;

    /// The eight bytes. Bits of `qpn` above the 24th are dropped.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 8] {
        ((self.index as u64) << 40 | ((self.qpn & MAX_QPN) as u64) << 8).to_be_bytes()
    }

    /// What the NIC takes from eight bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 8]) -> Self {
        let value = u64::from_be_bytes(bytes);
        Self { qpn: (value >> 8) as u32 & MAX_QPN, index: (value >> 40) as u16 }
    }
}

/// The doorbell record of a completion queue: 8 bytes, two big-endian words.
///
/// ```
/// use gdsync::wqe::{ArmRequest, CqDoorbellRecord};
///
/// // Five completions have been read; the next one shall raise an event.
/// let consumed = CqDoorbellRecord::word(5);
/// let arm = ArmRequest { cqn: 0x12, consumer: 5, sequence: 0, solicited_only: false };
/// let (record, register) = (arm.record_word(), arm.register()); // written in this order
/// assert_eq!(CqDoorbellRecord::index(consumed), 5);
/// assert_eq!(register[..4], record);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CqDoorbellRecord;

impl CqDoorbellRecord {
    /// Byte offset of the consumer index (`MLX5_CQ_SET_CI`).
    pub const CONSUMER_OFFSET: usize = 0;
    /// Byte offset of the arm word (`MLX5_CQ_ARM_DB`).
    pub const ARM_OFFSET: usize = 4;

    /// The word that frees all slots before completion number `consumer`.
    #[must_use]
    pub const fn word(consumer: u64) -> [u8; 4] {
        (consumer as u32 & MAX_QPN).to_be_bytes()
    }

    /// The low 24 bits of the consumer index in a word.
    #[must_use]
    pub const fn index(word: [u8; 4]) -> u32 {
        u32::from_be_bytes(word) & MAX_QPN
    }
}

/// Asks for an event with the next completion.
///
/// See [`CqDoorbellRecord`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArmRequest {
    /// Completion queue (24 bits).
    pub cqn: u32,
    /// Number of completions consumed so far; the low 24 bits go out.
    pub consumer: u64,
    /// How often the queue was armed so far; the low 2 bits go out.
    pub sequence: u32,
    /// Whether only a solicited completion counts.
    pub solicited_only: bool,
}

impl ArmRequest {
    /// Offset of the register in the queue's UAR page (`MLX5_CQ_DOORBELL`).
    pub const UAR_OFFSET: usize = 0x20;

    /// The arm word of the doorbell record.
    #[must_use]
    pub const fn record_word(self) -> [u8; 4] {
        // MLX5_CQ_DB_REQ_NOT_SOL
        let command = if self.solicited_only { 1 << 24 } else { 0 };
        ((self.sequence & 3) << 28 | command | self.consumer as u32 & MAX_QPN).to_be_bytes()
    }

    /// The eight bytes of the register, stored after the record.
    #[must_use]
    pub const fn register(self) -> [u8; 8] {
        let word = u32::from_be_bytes(self.record_word()) as u64;
        (word << 32 | (self.cqn & MAX_QPN) as u64).to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_holds_the_next_index_and_wraps_with_it() {
        assert_eq!(DoorbellRecord::word(0x1234), [0, 0, 0x12, 0x34]);
        assert_eq!(DoorbellRecord::index([0xde, 0xad, 0x12, 0x34]), 0x1234);
        assert_eq!(CqDoorbellRecord::word(0x1_0203_0405), [0, 3, 4, 5]);
        assert_eq!(CqDoorbellRecord::index([9, 3, 4, 5]), 0x03_0405);
    }

    #[test]
    fn a_doorbell_is_the_head_of_a_control_segment() {
        let doorbell = Doorbell { qpn: 0x01_0203, index: 0x1112 };
        assert_eq!(doorbell.to_bytes(), [0, 0x11, 0x12, 0, 1, 2, 3, 0]);
        // Opcode, opcode modifier and size, as rdma-core leaves them there, change nothing.
        assert_eq!(Doorbell::from_bytes([0xff, 0x11, 0x12, 0x08, 1, 2, 3, 4]), doorbell);
    }

    #[test]
    fn arming_writes_sequence_command_and_consumer() {
        let arm = ArmRequest { cqn: 7, consumer: 0x0102_0304, sequence: 6, solicited_only: true };
        assert_eq!(arm.record_word(), [0x21, 2, 3, 4]);
        assert_eq!(arm.register(), [0x21, 2, 3, 4, 0, 0, 0, 7]);
        let arm = ArmRequest { solicited_only: false, ..arm };
        assert_eq!(arm.record_word(), [0x20, 2, 3, 4]);
    }
}
