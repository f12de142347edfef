//! The segments of a work-queue entry as the hardware reads them: byte for byte, big-endian, unaligned.
//!
//! They mirror the structs of `<infiniband/mlx5dv.h>` and carry no policy; which segments make an entry is
//! in `encode` and `decode`.

use std::fmt;
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bit 31 of a segment's length: the data follow in the entry itself (`MLX5_INLINE_SEG`).
pub const INLINE_FLAG: u32 = 0x8000_0000;

/// The length field of an inline segment has ten bits (`MLX5_WQE_INLINE_SEG_BYTE_COUNT_MASK` of the Linux kernel).
pub(super) const INLINE_LENGTH_MASK: u32 = 0x3ff;

/// A data segment of length 0 means this many bytes (Linux `drivers/infiniband/hw/mlx5/odp.c`).
const LENGTH_OF_ZERO: u32 = 1 << 31;

/// Control segment (`mlx5_wqe_ctrl_seg`), first of every send-queue entry.
///
/// ```
/// use gdsync::wqe::{CtrlSegment, Entry, Operation, Payload, RemoteAddress, RemoteSegment, WorkRequest};
/// use zerocopy::FromBytes;
///
/// // The first two octowords of a write, as a decoder of another tool sees them.
/// let remote = RemoteAddress { address: 0x1000, rkey: 5 };
/// let operation = Operation::Write { remote, payload: Payload::Inline(b"hello"), imm: None };
/// let mut entry = Entry::new();
/// entry.encode(&WorkRequest { qpn: 0x77, ..WorkRequest::new(operation) })?;
/// let control = CtrlSegment::ref_from_bytes(&entry.bytes()[..16]).unwrap();
/// let to = RemoteSegment::ref_from_bytes(&entry.bytes()[16..32]).unwrap();
/// assert_eq!((control.qpn_ds.get() >> 8, to.rkey.get()), (0x77, 5));
/// # Ok::<(), gdsync::wqe::EncodeError>(())
/// ```
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct CtrlSegment {
    /// `opmod << 24 | index << 8 | opcode`.
    pub opmod_idx_opcode: U32,
    /// `qpn << 8 | ds`, `ds` being the size of the entry in octowords.
    pub qpn_ds: U32,
    /// Checksum of the entry on queues created with signatures; 0 on ours.
    pub signature: u8,
    /// Stream of a dynamically connected queue pair; 0 on ours.
    pub dci_stream_channel_id: U16,
    /// Fence, completion and event flags.
    pub fm_ce_se: u8,
    /// Immediate, or the key to invalidate.
    pub imm: U32,
}

/// Remote address segment (`mlx5_wqe_raddr_seg`).
///
/// See [`CtrlSegment`] for an example.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RemoteSegment {
    /// Address in the peer's memory.
    pub address: U64,
    /// The peer's key for it.
    pub rkey: U32,
    /// Zero.
    pub reserved: U32,
}

/// Atomic segment (`mlx5_wqe_atomic_seg`).
///
/// See [`CtrlSegment`] for an example.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct AtomicSegment {
    /// What to add, or what to store if the comparison holds.
    pub swap_or_add: U64,
    /// What the memory must hold; 0 for fetch and add.
    pub compare: U64,
}

/// Head of an inline segment (`mlx5_wqe_inl_data_seg`); the data follow it at once.
///
/// See [`CtrlSegment`] for an example.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct InlineHeader {
    /// `length | INLINE_FLAG`.
    pub byte_count: U32,
}

/// Data segment (`mlx5_wqe_data_seg`): one piece of local memory.
///
/// See [`wqe`](super) for an example.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DataSegment {
    byte_count: U32,
    lkey: U32,
    address: U64,
}

/// A data segment that the hardware cannot express.
///
/// ```
/// use gdsync::wqe::{DataSegment, SegmentError};
///
/// assert_eq!(DataSegment::new(1, 0x1000, 0), Err(SegmentError::Empty));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// The length is 0, which the hardware would take for 2^31.
    #[error("a data segment of length 0 means 2^31 bytes to the hardware: leave the segment out")]
    Empty,
    /// The length is more than 2^31.
    #[error("a data segment of {length} bytes is longer than 2^31")]
    TooLong {
        /// What was asked for.
        length: u32,
    },
}

impl DataSegment {
    /// `length` bytes at `address` under the local key `lkey`.
    ///
    /// # Errors
    /// If `length` is 0 or more than 2^31.
    pub const fn new(lkey: u32, address: u64, length: u32) -> Result<Self, SegmentError> {
        match length {
            0 => Err(SegmentError::Empty),
            LENGTH_OF_ZERO => Ok(Self::raw(lkey, address, 0)),
            length if length > LENGTH_OF_ZERO => Err(SegmentError::TooLong { length }),
            length => Ok(Self::raw(lkey, address, length)),
        }
    }

    pub(super) const fn raw(lkey: u32, address: u64, byte_count: u32) -> Self {
        Self { byte_count: U32::new(byte_count), lkey: U32::new(lkey), address: U64::new(address) }
    }

    /// What ends the list of a receive entry that has room for more segments (`MLX5_INVALID_LKEY`).
    pub const TERMINATOR: Self = Self::raw(0x100, 0, 0);

    /// The local key.
    #[must_use]
    pub const fn lkey(&self) -> u32 {
        self.lkey.get()
    }

    /// First byte.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address.get()
    }

    /// Length in bytes, 1 to 2^31.
    #[must_use]
    pub const fn length(&self) -> u32 {
        match self.byte_count.get() {
            0 => LENGTH_OF_ZERO,
            length => length,
        }
    }

    /// Whether these 16 bytes are the head of inline data instead.
    pub(super) const fn is_inline(&self) -> bool {
        self.byte_count.get() & INLINE_FLAG != 0
    }

    /// The length field as it stands.
    pub(super) const fn byte_count(&self) -> u32 {
        self.byte_count.get()
    }
}

impl fmt::Debug for DataSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lkey, address, length) = (self.lkey(), self.address(), self.length());
        write!(f, "DataSegment {{ lkey: {lkey:#x}, address: {address:#x}, length: {length} }}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_has_the_size_of_the_struct_it_mirrors() {
        assert_eq!(size_of::<CtrlSegment>(), 16);
        assert_eq!(size_of::<RemoteSegment>(), 16);
        assert_eq!(size_of::<AtomicSegment>(), 16);
        assert_eq!(size_of::<DataSegment>(), 16);
        assert_eq!(size_of::<InlineHeader>(), 4);
    }

    #[test]
    fn two_gibibytes_are_written_as_zero_and_nothing_cannot_be_written() {
        let all = DataSegment::new(1, 2, 1 << 31).unwrap();
        assert_eq!(all.as_bytes()[..4], [0; 4]);
        assert_eq!(all.length(), 1 << 31);
        assert_eq!(DataSegment::new(1, 2, 0), Err(SegmentError::Empty));
        assert_eq!(
            DataSegment::new(1, 2, u32::MAX),
            Err(SegmentError::TooLong { length: u32::MAX })
        );
    }

    #[test]
    fn the_bytes_of_a_data_segment_are_length_key_address() {
        let bytes = DataSegment::new(0x0102_0304, 0x1112_1314_1516_1718, 0x2122_2324).unwrap();
        assert_eq!(
            bytes.as_bytes(),
            [0x21, 0x22, 0x23, 0x24, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]
        );
    }
}
