//! Requests of the send queue, and how they are handed to libibverbs.

use super::error::{Error, Result};
use super::in_flight::{Held, Kind, MAX_SEGMENTS};
use super::memory_region::RegionSlice;
use crate::wqe::RemoteAddress;
use gdsync_sys::verbs::{
    IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED,
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, ibv_send_wr, ibv_sge,
};

/// One request.
///
/// See [`RemoteRegion`](super::RemoteRegion) for an example.
#[derive(Debug, Clone, Copy)]
pub struct SendRequest<'a> {
    /// What its completion will be called.
    pub id: u64,
    /// Whether it has a completion when it succeeds. When it fails it has one anyway. A send queue is emptied by
    /// completions only, so post a signaled request before it is full.
    pub signaled: bool,
    /// Whether it waits for the reads and atomics before it.
    pub fence: bool,
    /// Whether the peer's completion raises an event there.
    pub solicited: bool,
    /// What to do.
    pub operation: SendOperation<'a>,
}

impl<'a> SendRequest<'a> {
    /// A signaled request without a fence.
    #[must_use]
    pub const fn new(id: u64, operation: SendOperation<'a>) -> Self {
        Self { id, signaled: true, fence: false, solicited: false, operation }
    }
}

/// What a request does. Slices are lists of at most 4 pieces.
///
/// See [`RemoteRegion`](super::RemoteRegion) for an example.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum SendOperation<'a> {
    /// Sends to whatever receive the peer has posted.
    Send {
        /// The message, piece by piece.
        from: &'a [RegionSlice],
        /// Handed to the peer's completion.
        imm: Option<u32>,
    },
    /// The same from memory that is copied now and need not be registered.
    SendInline {
        /// The message.
        data: &'a [u8],
        /// Handed to the peer's completion.
        imm: Option<u32>,
    },
    /// Writes into the peer's memory.
    Write {
        /// What, piece by piece.
        from: &'a [RegionSlice],
        /// Where to.
        to: RemoteAddress,
        /// Uses up a receive of the peer and is handed to its completion.
        imm: Option<u32>,
    },
    /// The same from memory that is copied now and need not be registered.
    WriteInline {
        /// What.
        data: &'a [u8],
        /// Where to.
        to: RemoteAddress,
        /// Uses up a receive of the peer and is handed to its completion.
        imm: Option<u32>,
    },
    /// Reads from the peer's memory.
    Read {
        /// Where to, piece by piece.
        into: &'a [RegionSlice],
        /// Where from.
        from: RemoteAddress,
    },
    /// Adds to a 64-bit word of the peer.
    FetchAdd {
        /// The word, aligned to 8 bytes.
        word: RemoteAddress,
        /// What to add.
        add: u64,
        /// Where the old value goes: 8 bytes.
        into: &'a RegionSlice,
    },
    /// Replaces a 64-bit word of the peer if it holds `compare`.
    CompareSwap {
        /// The word, aligned to 8 bytes.
        word: RemoteAddress,
        /// What it must hold.
        compare: u64,
        /// What it then gets.
        swap: u64,
        /// Where the old value goes: 8 bytes.
        into: &'a RegionSlice,
    },
}

/// What a queue pair was made for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    pub(super) segments: usize,
    pub(super) inline: usize,
}

/// The pieces of memory of a request, as libibverbs takes them, and what holds them.
pub(super) struct Pieces {
    sges: [ibv_sge; MAX_SEGMENTS],
    count: usize,
    held: Held,
}

impl Pieces {
    pub(super) fn new(slices: &[RegionSlice], room: Room) -> Result<Self> {
        let (found, most) = (slices.len(), room.segments.min(MAX_SEGMENTS));
        if found > most {
            let (found, most) = (found as u64, most as u64);
            return Err(Error::TooMuch { what: "pieces of a request", found, most });
        }
        let mut pieces = Self::none();
        for (at, slice) in slices.iter().enumerate() {
            pieces.sges[at] = slice.sge();
            pieces.held[at] = Some(slice.region().clone());
        }
        pieces.count = found;
        Ok(pieces)
    }

    fn none() -> Self {
        let sges = [ibv_sge { addr: 0, length: 0, lkey: 0 }; MAX_SEGMENTS];
        Self { sges, count: 0, held: [const { None }; MAX_SEGMENTS] }
    }

    fn inline(data: &[u8], room: Room) -> Result<Self> {
        let (found, most) = (data.len(), room.inline);
        let length = u32::try_from(found).ok().filter(|_| found <= most);
        let Some(length) = length else {
            let (found, most) = (found as u64, most as u64);
            return Err(Error::TooMuch { what: "bytes of inline data", found, most });
        };
        let mut pieces = Self::none();
        if length > 0 {
            // The library reads the bytes before it returns.
            pieces.sges[0] = ibv_sge { addr: data.as_ptr() as u64, length, lkey: 0 };
            pieces.count = 1;
        }
        Ok(pieces)
    }

    pub(super) fn sges(&mut self) -> (*mut ibv_sge, i32) {
        // At most four.
        (self.sges.as_mut_ptr(), self.count as i32)
    }

    pub(super) fn take_held(&mut self) -> Held {
        std::mem::replace(&mut self.held, [const { None }; MAX_SEGMENTS])
    }
}

/// The request in the form of libibverbs, but for its number and its pieces; those, and its kind.
pub(super) fn translate(
    request: &SendRequest<'_>,
    room: Room,
) -> Result<(ibv_send_wr, Pieces, Kind)> {
    let mut wr = ibv_send_wr::default();
    for (set, flag) in [
        (request.signaled, IBV_SEND_SIGNALED),
        (request.fence, IBV_SEND_FENCE),
        (request.solicited, IBV_SEND_SOLICITED),
    ] {
        wr.send_flags |= if set { flag } else { 0 };
    }
    let with_imm = |wr: &mut ibv_send_wr, imm: Option<u32>, plain, immediate| {
        wr.opcode = if imm.is_some() { immediate } else { plain };
        wr.__bindgen_anon_1.imm_data = imm.unwrap_or(0).to_be();
    };
    let result = |into: &RegionSlice| match into.len() {
        8 => Pieces::new(std::slice::from_ref(into), room),
        length => Err(Error::AtomicResult { length }),
    };
    let (pieces, kind) = match request.operation {
        SendOperation::Send { from, imm } => {
            with_imm(&mut wr, imm, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM);
            (Pieces::new(from, room)?, Kind::Send)
        }
        SendOperation::SendInline { data, imm } => {
            with_imm(&mut wr, imm, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM);
            wr.send_flags |= IBV_SEND_INLINE;
            (Pieces::inline(data, room)?, Kind::Send)
        }
        SendOperation::Write { from, to, imm } => {
            with_imm(&mut wr, imm, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM);
            remote(&mut wr, to);
            (Pieces::new(from, room)?, Kind::Write)
        }
        SendOperation::WriteInline { data, to, imm } => {
            with_imm(&mut wr, imm, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM);
            wr.send_flags |= IBV_SEND_INLINE;
            remote(&mut wr, to);
            (Pieces::inline(data, room)?, Kind::Write)
        }
        SendOperation::Read { into, from } => {
            wr.opcode = IBV_WR_RDMA_READ;
            remote(&mut wr, from);
            (Pieces::new(into, room)?, Kind::Read)
        }
        SendOperation::FetchAdd { word, add, into } => {
            wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
            atomic(&mut wr, word, add, 0);
            (result(into)?, Kind::FetchAdd)
        }
        SendOperation::CompareSwap { word, compare, swap, into } => {
            wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
            atomic(&mut wr, word, compare, swap);
            (result(into)?, Kind::CompareSwap)
        }
    };
    Ok((wr, pieces, kind))
}

fn remote(wr: &mut ibv_send_wr, remote: RemoteAddress) {
    wr.wr.rdma.remote_addr = remote.address;
    wr.wr.rdma.rkey = remote.rkey;
}

fn atomic(wr: &mut ibv_send_wr, word: RemoteAddress, compare_add: u64, swap: u64) {
    wr.wr.atomic.remote_addr = word.address;
    wr.wr.atomic.rkey = word.rkey;
    wr.wr.atomic.compare_add = compare_add;
    wr.wr.atomic.swap = swap;
}
