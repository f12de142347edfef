//! What a work-queue entry asks for, as types: the input of the encoder and the output of the decoder.

use super::{DataSegment, Fence, Notify, WqeOpcode};

/// One entry of a send queue.
///
/// See [`wqe`](super) for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkRequest<'a> {
    /// Queue pair the entry belongs to (24 bits).
    pub qpn: u32,
    /// Index of the entry's first basic block, modulo 2^16.
    pub index: u16,
    /// What must be finished before it starts.
    pub fence: Fence,
    /// When it writes a completion.
    pub notify: Notify,
    /// Whether the receiver's completion raises an event there.
    pub solicited: bool,
    /// What to do.
    pub operation: Operation<'a>,
}

impl<'a> WorkRequest<'a> {
    /// An unfenced, unsignaled request at index 0 of queue pair 0; set what differs.
    #[must_use]
    pub const fn new(operation: Operation<'a>) -> Self {
        Self {
            qpn: 0,
            index: 0,
            fence: Fence::None,
            notify: Notify::OnError,
            solicited: false,
            operation,
        }
    }
}

/// What an entry does, with the segments that its opcode takes.
///
/// See [`wqe`](super) for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation<'a> {
    /// Nothing.
    Nop,
    /// Sends to whatever receive the peer has posted.
    Send {
        /// The message.
        payload: Payload<'a>,
        /// Handed to the receiver's completion (SEND_IMM).
        imm: Option<u32>,
    },
    /// Writes into the peer's memory.
    Write {
        /// Where to.
        remote: RemoteAddress,
        /// What.
        payload: Payload<'a>,
        /// Consumes a receive of the peer and is handed to its completion (RDMA_WRITE_IMM).
        imm: Option<u32>,
    },
    /// Reads from the peer's memory.
    Read {
        /// Where from.
        remote: RemoteAddress,
        /// Where to, piece by piece.
        into: &'a [DataSegment],
    },
    /// Adds to a 64-bit word of the peer's memory.
    FetchAdd {
        /// The word.
        remote: RemoteAddress,
        /// What to add.
        add: u64,
        /// Where the old value goes (8 bytes).
        into: DataSegment,
    },
    /// Replaces a 64-bit word of the peer's memory if it holds `compare`.
    CompareSwap {
        /// The word.
        remote: RemoteAddress,
        /// What it must hold.
        compare: u64,
        /// What it then gets.
        swap: u64,
        /// Where the old value goes (8 bytes).
        into: DataSegment,
    },
    /// Reads local memory and drops it, which flushes the writes before it.
    Dump {
        /// What to read.
        from: DataSegment,
    },
}

impl Operation<'_> {
    /// The opcode it is encoded with.
    #[must_use]
    pub const fn opcode(&self) -> WqeOpcode {
        match self {
            Self::Nop => WqeOpcode::Nop,
            Self::Send { imm: None, .. } => WqeOpcode::Send,
            Self::Send { imm: Some(_), .. } => WqeOpcode::SendImm,
            Self::Write { imm: None, .. } => WqeOpcode::Write,
            Self::Write { imm: Some(_), .. } => WqeOpcode::WriteImm,
            Self::Read { .. } => WqeOpcode::Read,
            Self::FetchAdd { .. } => WqeOpcode::FetchAdd,
            Self::CompareSwap { .. } => WqeOpcode::CompareSwap,
            Self::Dump { .. } => WqeOpcode::Dump,
        }
    }
}

/// The bytes of a send or a write.
///
/// See [`wqe`](super) for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload<'a> {
    /// In registered memory, piece by piece; an empty list is an empty message.
    Gather(&'a [DataSegment]),
    /// In the entry itself: the buffer is free again once the entry is written.
    Inline(&'a [u8]),
}

/// A place in the peer's memory.
///
/// See [`wqe`](super) for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteAddress {
    /// Virtual address, or an offset where the key is zero-based.
    pub address: u64,
    /// The peer's key for it.
    pub rkey: u32,
}
