//! The bytes of frames on their way: outgoing ones as pieces of registered memory that are copied or written to a
//! socket once, incoming ones where the wire holds them.

use std::marker::PhantomData;
use std::sync::Arc;

use super::super::keys::{Atomic, KeyError, Place, RegionMemory, copy_to_host};
use super::super::wire::frame::Frame;
use crate::memory::copy::copy_bytes;
use crate::verbs::RegionSlice;
use crate::wqe::RemoteAddress;

/// What an RDMA device does itself, with memory of the peer as the device knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceRequest {
    Write { to: RemoteAddress },
    Read { from: RemoteAddress },
    Atomic { word: RemoteAddress, operation: Atomic },
}

/// A frame to send: its payload is either inline or pieces.
pub(crate) struct Outgoing {
    pub frame: Frame,
    /// Instead of the frame: a request for the device of the wire, with its memory here as the payload.
    pub request: Option<DeviceRequest>,
    /// Whether that memory is one that the device does not reach.
    pub staged: bool,
    pub inline: Vec<u8>,
    pub pieces: Vec<Piece>,
    /// Bytes of payload.
    pub len: usize,
}

/// A part of a payload, in memory that it keeps.
pub(crate) struct Piece {
    pub pointer: *const u8,
    pub len: usize,
    memory: Arc<RegionMemory>,
}

// SAFETY: the memory is held, and may be read by any thread.
unsafe impl Send for Piece {}

impl Piece {
    /// `len` bytes at `pointer` in memory of the CPU, both of which the key table checked.
    pub fn new(memory: &Arc<RegionMemory>, pointer: *mut u8, len: usize) -> Piece {
        Piece { pointer, len, memory: memory.clone() }
    }

    /// The piece as the RDMA device knows it, if that reaches it.
    pub fn slice(&self) -> Option<RegionSlice> {
        self.memory.slice(self.pointer, self.len)
    }
}

impl Outgoing {
    pub fn new() -> Outgoing {
        Outgoing {
            frame: Frame::Ping,
            request: None,
            staged: false,
            inline: Vec::new(),
            pieces: Vec::new(),
            len: 0,
        }
    }

    pub fn clear(&mut self) {
        self.request = None;
        self.inline.clear();
        self.pieces.clear();
        self.len = 0;
    }

    /// Appends `len` bytes of registered memory: a GPU's are copied here now, those of the CPU when they are sent.
    ///
    /// # Errors
    /// If the GPU does not copy.
    pub fn push(
        &mut self,
        memory: &Arc<RegionMemory>,
        pointer: *mut u8,
        len: usize,
    ) -> Result<(), KeyError> {
        if !memory.is_on_gpu() {
            self.name(memory, pointer, len);
            return Ok(());
        }
        // Copies come before pieces: what is there already joins them.
        for piece in std::mem::take(&mut self.pieces) {
            self.append(piece.memory.place(piece.pointer.cast_mut()), piece.len)?;
        }
        self.append(memory.place(pointer), len)?;
        self.len += len;
        Ok(())
    }

    fn append(&mut self, from: Place<'_>, len: usize) -> Result<(), KeyError> {
        let at = self.inline.len();
        self.inline.resize(at + len, 0);
        // SAFETY: registered memory that was checked for these bytes; room for as many was just made.
        unsafe { copy_to_host(from, self.inline[at..].as_mut_ptr(), len) }
    }

    /// Appends `len` bytes of registered memory that a device reads or writes where they are.
    pub fn name(&mut self, memory: &Arc<RegionMemory>, pointer: *mut u8, len: usize) {
        self.pieces.push(Piece::new(memory, pointer, len));
        self.len += len;
    }

    /// Appends a copy of `bytes`.
    pub fn push_inline(&mut self, bytes: &[u8]) {
        self.inline.extend_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Copies the payload to `to`.
    ///
    /// # Safety
    /// `to` is valid for writes of `self.len` bytes.
    pub unsafe fn copy_payload(&self, mut to: *mut u8) {
        for (from, len) in self.parts() {
            // SAFETY: the pieces are valid while they are held; together they have `self.len` bytes.
            unsafe {
                copy_bytes(from, to, len);
                to = to.add(len);
            }
        }
    }

    /// Where the payload lies, in order.
    pub fn parts(&self) -> impl Iterator<Item = (*const u8, usize)> {
        let inline = (!self.inline.is_empty()).then_some((self.inline.as_ptr(), self.inline.len()));
        inline.into_iter().chain(self.pieces.iter().map(|piece| (piece.pointer, piece.len)))
    }

    /// Where the payload behind its first `skip` bytes lies, in order.
    pub fn parts_from(&self, mut skip: usize) -> impl Iterator<Item = (*const u8, usize)> {
        self.parts().filter_map(move |(pointer, len)| {
            let skipped = skip.min(len);
            skip -= skipped;
            // SAFETY: within the part.
            (skipped < len).then(|| (unsafe { pointer.add(skipped) }, len - skipped))
        })
    }
}

/// The payload of a frame that arrived. Not a slice: it may lie in memory that the peer can still write.
#[derive(Clone, Copy)]
pub(crate) struct Payload<'a> {
    /// None: it is where it goes already.
    pointer: Option<*const u8>,
    pub len: usize,
    wire: PhantomData<&'a [u8]>,
}

impl<'a> Payload<'a> {
    pub const fn of(bytes: &'a [u8]) -> Payload<'a> {
        Payload { pointer: Some(bytes.as_ptr()), len: bytes.len(), wire: PhantomData }
    }

    /// # Safety
    /// `pointer` is valid for reads of `len` bytes for the lifetime.
    pub unsafe fn new(pointer: *const u8, len: usize) -> Payload<'a> {
        Payload { pointer: Some(pointer), len, wire: PhantomData }
    }

    /// `len` bytes that the wire has put where a sink said that they go
    /// ([`Sink::places`](super::super::wire::Sink::places)).
    pub const fn there(len: usize) -> Payload<'static> {
        Payload { pointer: None, len, wire: PhantomData }
    }

    /// From where it is to be copied, if it is not where it goes.
    pub fn place(self) -> Option<Place<'static>> {
        self.pointer.map(Place::host)
    }

    /// A private copy; nothing of what is elsewhere already.
    pub fn to_vec(self) -> Vec<u8> {
        let Some(pointer) = self.pointer else { return Vec::new() };
        let mut bytes = vec![0; self.len];
        // SAFETY: both are valid for this many bytes.
        unsafe { copy_bytes(pointer, bytes.as_mut_ptr(), self.len) };
        bytes
    }
}
