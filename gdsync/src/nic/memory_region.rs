//! Registered memory: what a NIC may do with it, and the keys that requests name it by.

use std::fmt;

use super::error::{Error, Result};
use crate::deadline::Deadline;
use crate::verbs;
use crate::wqe::{DataSegment, RemoteAddress};

/// What may be done with a region, besides reading it for this process. Combine with `|`.
///
/// See [`soft`](super::soft) for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Access(u8);

impl Access {
    /// This process reads it: the source of sends and writes. Every region allows that.
    pub const LOCAL_READ: Access = Access(0);
    /// The NIC writes it for this process: receives, results of reads and atomics.
    pub const LOCAL_WRITE: Access = Access(1);
    /// Peers read it.
    pub const REMOTE_READ: Access = Access(2);
    /// Peers write it.
    pub const REMOTE_WRITE: Access = Access(4);
    /// Peers do atomics on it.
    pub const REMOTE_ATOMIC: Access = Access(8);
    /// All of it.
    pub const ALL: Access = Access(15);

    /// Whether everything in `other` is allowed.
    pub const fn includes(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    /// The same permissions for libibverbs, which lets the owner always read and write.
    pub(crate) fn for_verbs(self) -> verbs::Access {
        [
            (Access::REMOTE_READ, verbs::Access::REMOTE_READ),
            (Access::REMOTE_WRITE, verbs::Access::REMOTE_WRITE),
            (Access::REMOTE_ATOMIC, verbs::Access::REMOTE_ATOMIC),
        ]
        .into_iter()
        .filter(|(needed, _)| self.includes(*needed))
        .fold(verbs::Access::LOCAL, |all, (_, allowed)| all | allowed)
    }

    /// Without what is in `other`.
    pub(crate) const fn without(self, other: Access) -> Access {
        Access(self.0 & !other.0)
    }

    pub(crate) const fn from_bits(bits: u8) -> Option<Access> {
        if bits & !15 == 0 { Some(Access(bits)) } else { None }
    }
}

impl std::ops::BitOr for Access {
    type Output = Access;
    fn bitor(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

/// What a provider holds of registered memory. Dropping it takes the keys back: requests that come later are refused.
pub(crate) trait Registration: Send + Sync {
    /// Takes the keys back and waits until no peer can touch the memory any more.
    fn deregister(self: Box<Self>, deadline: Deadline) -> Result<()>;
}

/// The keys of registered memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keys {
    pub lkey: u32,
    pub rkey: u32,
}

/// Memory that a NIC may use under a key. It holds the memory. Dropping it takes the key back: requests that come later
/// are refused. Peers that have the memory mapped, or reach it by an RDMA device, give it up soon after;
/// [`MemoryRegion::deregister`] waits for that.
///
/// See [`soft`](super::soft) for an example.
pub struct MemoryRegion {
    keys: Keys,
    address: u64,
    len: u64,
    registration: Box<dyn Registration>,
}

impl MemoryRegion {
    pub(super) fn new(
        keys: Keys,
        address: u64,
        len: u64,
        registration: Box<dyn Registration>,
    ) -> MemoryRegion {
        MemoryRegion { keys, address, len, registration }
    }

    /// The key for requests of this side.
    pub fn lkey(&self) -> u32 {
        self.keys.lkey
    }

    /// The key for requests of peers.
    pub fn rkey(&self) -> u32 {
        self.keys.rkey
    }

    /// The address of its first byte in requests of either side.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// `length` bytes from `offset` on, for a request of this side.
    ///
    /// # Errors
    /// [`crate::Error::OutOfRange`] if they are not inside; no bytes have no segment.
    pub fn segment(&self, offset: u64, length: u32) -> Result<DataSegment> {
        let outside = crate::Error::OutOfRange {
            what: "a segment of a region",
            offset: offset as usize,
            len: length as usize,
            size: self.len as usize,
        };
        let end = offset.checked_add(u64::from(length)).filter(|end| *end <= self.len);
        let segment = end.and_then(|_| {
            DataSegment::new(self.keys.lkey, self.address.checked_add(offset)?, length).ok()
        });
        segment.ok_or(Error::Device(outside))
    }

    /// The byte at `offset`, for a request of a peer.
    pub fn remote(&self, offset: u64) -> RemoteAddress {
        RemoteAddress { address: self.address.wrapping_add(offset), rkey: self.keys.rkey }
    }

    /// Takes the keys back and waits until no peer can touch the memory any more.
    ///
    /// # Errors
    /// [`Error::Device`] with a timeout if a peer has not let go of it by the deadline; the keys are gone all the same.
    pub fn deregister(self, deadline: Deadline) -> Result<()> {
        self.registration.deregister(deadline)
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MemoryRegion { keys: Keys { lkey, rkey }, address, len, .. } = self;
        write!(
            f,
            "MemoryRegion {{ address: {address:#x}, len: {len}, lkey: {lkey:#x}, rkey: {rkey:#x} }}"
        )
    }
}
