//! From the bytes of an entry to a typed request.
//!
//! The bytes may be anything: a GPU kernel with a defect writes what it likes. Whatever is not exactly an
//! entry that this module's encoder could have written is refused, with the field that is wrong; nothing panics.

use super::segment::{CtrlSegment, INLINE_FLAG, INLINE_LENGTH_MASK, RemoteSegment};
use super::{
    AtomicSegment, DataSegment, Entry, InlineHeader, OCTOWORD_BYTES, Octoword, Operation, Payload,
    RemoteAddress, UnknownOpcode, WorkRequest, WqeOpcode, flags,
};
use zerocopy::{FromBytes, transmute};

/// Bytes that are not an entry, and why.
///
/// ```
/// use gdsync::wqe::{DecodeError, Entry, SendRing};
///
/// // Nothing stands in the queue yet.
/// let ring = SendRing::new(vec![[0; 16]; 64])?;
/// let found = ring.fetch(0x77, 5, &mut Entry::new());
/// assert!(matches!(found, Err(DecodeError::Index { index: 5, found: 0 } | DecodeError::Size { .. })), "{found:?}");
/// # Ok::<(), gdsync::wqe::RingError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The size field is not 1 to 63 octowords, or more than the queue holds.
    #[error("entry {index}: size of {size} octowords, expected 1 to {max}")]
    Size {
        /// Index the entry was fetched at.
        index: u16,
        /// The size field.
        size: u8,
        /// The largest it may be.
        max: usize,
    },
    /// The entry says that it stands somewhere else: it is stale, or the doorbell was rung too early.
    #[error(
        "entry {index}: its control segment says index {found}: not written yet, or overwritten"
    )]
    Index {
        /// Index the entry was fetched at.
        index: u16,
        /// Index in the control segment.
        found: u16,
    },
    /// The entry belongs to another queue pair.
    #[error("entry {index}: its control segment says queue pair {found:#x}, this is {qpn:#x}")]
    QueuePairNumber {
        /// Index the entry was fetched at.
        index: u16,
        /// The queue's number.
        qpn: u32,
        /// Number in the control segment.
        found: u32,
    },
    /// There is no control segment.
    #[error("an entry of no octowords")]
    Empty,
    /// The size field and the number of octowords differ.
    #[error("entry {index}: size field says {size} octowords, there are {there}")]
    Truncated {
        /// Index in the control segment.
        index: u16,
        /// The size field.
        size: u8,
        /// Octowords given.
        there: usize,
    },
    /// The opcode is none.
    #[error("entry {index}: {source}")]
    Opcode {
        /// Index in the control segment.
        index: u16,
        /// The opcode.
        source: UnknownOpcode,
    },
    /// The opcode exists and is not one of ours.
    #[error("entry {index}: {opcode} is not supported")]
    Unsupported {
        /// Index in the control segment.
        index: u16,
        /// The opcode.
        opcode: WqeOpcode,
    },
    /// A field that must be zero is not.
    #[error("entry {index}: {field} is {value:#x}, expected 0")]
    NotZero {
        /// Index in the control segment.
        index: u16,
        /// The field.
        field: &'static str,
        /// What it holds.
        value: u32,
    },
    /// Reserved bits or a fence mode that does not exist.
    #[error("entry {index}: flags {value:#04x} have reserved bits set")]
    Flags {
        /// Index in the control segment.
        index: u16,
        /// The byte `fm_ce_se`.
        value: u8,
    },
    /// The opcode does not come with this many octowords.
    #[error("entry {index}: {opcode} of {size} octowords, expected {expected}")]
    Shape {
        /// Index in the control segment.
        index: u16,
        /// The opcode.
        opcode: WqeOpcode,
        /// The size field.
        size: u8,
        /// What the opcode needs.
        expected: &'static str,
    },
    /// Inline data where they may not be, or of the wrong length.
    #[error(
        "entry {index}: inline segment with length field {byte_count:#010x} in octoword {at} of {size}: {why}"
    )]
    Inline {
        /// Index in the control segment.
        index: u16,
        /// Octoword of the segment.
        at: usize,
        /// Octowords of the entry.
        size: usize,
        /// Its length field.
        byte_count: u32,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The result of an atomic operation is a 64-bit word.
    #[error("entry {index}: the result buffer of an atomic has {length} bytes, expected 8")]
    AtomicResult {
        /// Index in the control segment.
        index: u16,
        /// Its length.
        length: u32,
    },
}

/// The fields of a control segment that say how to read the rest.
pub(super) struct Head {
    pub(super) index: u16,
    pub(super) qpn: u32,
    pub(super) size: u8,
    pub(super) opcode: u8,
    pub(super) opmod: u8,
}

impl Head {
    pub(super) fn of(ctrl: &CtrlSegment) -> Self {
        let (word, qpn_ds) = (ctrl.opmod_idx_opcode.get(), ctrl.qpn_ds.get());
        Self {
            index: (word >> 8) as u16,
            qpn: qpn_ds >> 8,
            size: qpn_ds as u8,
            opcode: word as u8,
            opmod: (word >> 24) as u8,
        }
    }
}

impl Entry {
    /// What this entry asks for. Inline data and data segments are borrowed from the entry.
    ///
    /// # Errors
    /// If the bytes are not an entry of an operation of [`Operation`].
    pub fn decode(&self) -> Result<WorkRequest<'_>, DecodeError> {
        let (first, rest) = self.octowords().split_first().ok_or(DecodeError::Empty)?;
        let ctrl: CtrlSegment = transmute!(*first);
        let head = Head::of(&ctrl);
        let index = head.index;
        if usize::from(head.size) != self.octowords().len() {
            let there = self.octowords().len();
            return Err(DecodeError::Truncated { index, size: head.size, there });
        }
        let opcode = WqeOpcode::try_from(head.opcode)
            .map_err(|source| DecodeError::Opcode { index, source })?;
        let zero = |field, value| match value {
            0 => Ok(()),
            value => Err(DecodeError::NotZero { index, field, value }),
        };
        zero("the opcode modifier", u32::from(head.opmod))?;
        zero("the signature", u32::from(ctrl.signature))?;
        zero("the stream channel", u32::from(ctrl.dci_stream_channel_id.get()))?;
        let (fence, notify, solicited) = flags::unpack(ctrl.fm_ce_se)
            .ok_or(DecodeError::Flags { index, value: ctrl.fm_ce_se })?;
        let imm = ctrl.imm.get();
        if !matches!(opcode, WqeOpcode::SendImm | WqeOpcode::WriteImm) {
            zero("the immediate", imm)?;
        }
        let body = Body { index, opcode, size: head.size, rest };
        let operation = match opcode {
            WqeOpcode::Nop => match rest {
                [] => Operation::Nop,
                _ => return Err(body.shape("1")),
            },
            WqeOpcode::Send => Operation::Send { payload: body.payload(rest)?, imm: None },
            WqeOpcode::SendImm => Operation::Send { payload: body.payload(rest)?, imm: Some(imm) },
            WqeOpcode::Write | WqeOpcode::WriteImm => {
                let (remote, rest) = body.remote()?;
                let imm = (opcode == WqeOpcode::WriteImm).then_some(imm);
                Operation::Write { remote, payload: body.payload(rest)?, imm }
            }
            WqeOpcode::Read => {
                let (remote, rest) = body.remote()?;
                Operation::Read { remote, into: body.gather(rest)? }
            }
            WqeOpcode::FetchAdd => {
                let (remote, add, compare, into) = body.atomic()?;
                zero("the comparand of a fetch and add", (compare >> 32 | compare) as u32)?;
                Operation::FetchAdd { remote, add, into }
            }
            WqeOpcode::CompareSwap => {
                let (remote, swap, compare, into) = body.atomic()?;
                Operation::CompareSwap { remote, compare, swap, into }
            }
            WqeOpcode::Dump => match body.gather(rest)? {
                [from] => Operation::Dump { from: *from },
                _ => return Err(body.shape("2")),
            },
            opcode => return Err(DecodeError::Unsupported { index, opcode }),
        };
        Ok(WorkRequest { qpn: head.qpn, index, fence, notify, solicited, operation })
    }
}

/// What follows the control segment.
struct Body<'a> {
    index: u16,
    opcode: WqeOpcode,
    size: u8,
    rest: &'a [Octoword],
}

impl<'a> Body<'a> {
    fn shape(&self, expected: &'static str) -> DecodeError {
        let Self { index, opcode, size, .. } = *self;
        DecodeError::Shape { index, opcode, size, expected }
    }

    fn remote(&self) -> Result<(RemoteAddress, &'a [Octoword]), DecodeError> {
        let (first, rest) = self.rest.split_first().ok_or_else(|| self.shape("2 or more"))?;
        let RemoteSegment { address, rkey, reserved } = transmute!(*first);
        if reserved != 0 {
            let (index, value) = (self.index, reserved.get());
            return Err(DecodeError::NotZero {
                index,
                field: "the last word of the remote address",
                value,
            });
        }
        Ok((RemoteAddress { address: address.get(), rkey: rkey.get() }, rest))
    }

    fn atomic(&self) -> Result<(RemoteAddress, u64, u64, DataSegment), DecodeError> {
        let (remote, rest) = self.remote()?;
        let [atomic, into] = rest else { return Err(self.shape("4")) };
        let AtomicSegment { swap_or_add, compare } = transmute!(*atomic);
        let [into] = self.gather(std::slice::from_ref(into))? else { return Err(self.shape("4")) };
        if into.length() != 8 {
            return Err(DecodeError::AtomicResult { index: self.index, length: into.length() });
        }
        Ok((remote, swap_or_add.get(), compare.get(), *into))
    }

    fn payload(&self, rest: &'a [Octoword]) -> Result<Payload<'a>, DecodeError> {
        match rest.first() {
            Some(first) if first[0] & (INLINE_FLAG >> 24) as u8 != 0 => {
                Ok(Payload::Inline(self.inline(rest)?))
            }
            _ => Ok(Payload::Gather(self.gather(rest)?)),
        }
    }

    fn gather(&self, rest: &'a [Octoword]) -> Result<&'a [DataSegment], DecodeError> {
        // 16-byte unaligned segments in a whole number of octowords: this cannot fail.
        let segments = <[DataSegment]>::ref_from_bytes(rest.as_flattened())
            .map_err(|_| self.shape("whole data segments"))?;
        match segments.iter().position(DataSegment::is_inline) {
            None => Ok(segments),
            Some(at) => Err(self.inline_error(rest, at, "expected a data segment")),
        }
    }

    fn inline(&self, rest: &'a [Octoword]) -> Result<&'a [u8], DecodeError> {
        // The caller has seen the first octoword, so there is a header.
        let (header, data) = InlineHeader::ref_from_prefix(rest.as_flattened())
            .map_err(|_| self.shape("an inline segment"))?;
        let length = header.byte_count.get() & !INLINE_FLAG;
        if length > INLINE_LENGTH_MASK {
            return Err(self.inline_error(rest, 0, "the length has more than 10 bits"));
        }
        let octowords = (size_of::<InlineHeader>() + length as usize).div_ceil(OCTOWORD_BYTES);
        if octowords != rest.len() {
            return Err(self.inline_error(
                rest,
                0,
                "the length does not reach the end of the entry",
            ));
        }
        Ok(&data[..length as usize])
    }

    fn inline_error(&self, rest: &[Octoword], at: usize, why: &'static str) -> DecodeError {
        let segment: DataSegment = transmute!(rest[at]);
        let size = usize::from(self.size);
        let at = size - rest.len() + at;
        DecodeError::Inline { index: self.index, at, size, byte_count: segment.byte_count(), why }
    }
}
