//! Where the bytes of a message are: memory that a request keeps, or that its user lends, or that the CPU does not reach.

use std::ptr::NonNull;

use gdsync::Buffer;

use super::staging::Away;

/// The memory of a request.
pub(super) enum Memory {
    /// Kept alive by the request.
    Own(Buffer<u8>),
    /// Lent by a user: at least until the request is complete, or abandoned. If `stays`, also when it is abandoned, as long as the
    /// world goes on: other ranks may then read it by its address.
    Lent { address: NonNull<u8>, len: usize, stays: bool },
    /// What comes is dropped: nobody waits for it any more.
    Nowhere,
    /// What the CPU does not reach, or not yet.
    Away(Box<Away>),
}

// SAFETY: who lends memory promises that it may be used from any thread until the request is complete or abandoned; requests that
// borrow it are bound to its lifetime.
unsafe impl Send for Memory {}

impl Memory {
    /// Memory that is lent as [`Tagged::isend_raw`](super::Tagged::isend_raw) has it, written in place: copies of what has just been written wait
    /// until it has left the processor's buffer.
    #[inline]
    pub fn lend(&mut self, (address, len): (NonNull<u8>, usize)) {
        match self {
            Memory::Lent { address: at, len: bytes, stays } => {
                (*at, *bytes, *stays) = (address, len, true);
            }
            other => *other = Memory::Lent { address, len, stays: true },
        }
    }

    /// Nobody uses it any more. What is kept is let go; what was lent is the user's.
    #[inline]
    pub fn let_go(&mut self) {
        if let Memory::Own(_) | Memory::Away(_) = self {
            *self = Memory::Nowhere;
        }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        match self {
            Memory::Own(buffer) => buffer.len(),
            Memory::Lent { len, .. } => *len,
            Memory::Nowhere => 0,
            Memory::Away(away) => away.len(),
        }
    }

    /// Whether the CPU may use it.
    pub fn is_reached(&self) -> bool {
        !matches!(self, Memory::Away(_))
    }

    /// Where byte `at` is, of memory that the CPU reaches. Dangling for no bytes.
    pub fn at(&self, at: usize) -> *mut u8 {
        let base = match self {
            Memory::Own(buffer) => buffer.host_address(),
            Memory::Lent { address, .. } => Some(*address),
            Memory::Nowhere | Memory::Away(_) => None,
        };
        // Within the memory, or not used.
        base.unwrap_or(NonNull::dangling()).as_ptr().wrapping_add(at)
    }

    /// The address at which other ranks may read all of it until the request is complete, or 0.
    pub fn address(&self) -> u64 {
        match self {
            Memory::Own(_) | Memory::Lent { stays: true, .. } => self.at(0) as u64,
            _ => 0,
        }
    }
}

/// Copies the beginning of a request's memory.
pub(super) fn read(memory: &Memory, at: usize, to: &mut [u8]) {
    if !to.is_empty() {
        // SAFETY: the memory of a request is valid while it is under way, and has so many bytes. Who writes a region at the same time
        // gets some of the old bytes sent and some of the new: the copy is as of volatile bytes.
        unsafe { gdsync::copy_bytes(memory.at(at), to.as_mut_ptr(), to.len()) }
    }
}

/// Copies to the beginning of a request's memory.
pub(super) fn write(memory: &Memory, from: &[u8]) {
    if !from.is_empty() {
        // SAFETY: as in `read`.
        unsafe { gdsync::copy_bytes(from.as_ptr(), memory.at(0), from.len()) }
    }
}

/// Memory that is lent until its request is complete or abandoned.
pub(super) fn lent(address: *mut u8, len: usize) -> Memory {
    let address = NonNull::new(address).unwrap_or(NonNull::dangling());
    Memory::Lent { address, len, stays: false }
}

/// Memory that is lent as [`Tagged::isend_raw`](super::Tagged::isend_raw) has it.
#[inline]
pub(super) fn staying((address, len): (NonNull<u8>, usize)) -> Memory {
    Memory::Lent { address, len, stays: true }
}
