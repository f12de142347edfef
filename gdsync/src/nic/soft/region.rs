//! Registered memory, as its owner sees it.

use std::fmt;
use std::sync::{Arc, PoisonError};

use super::engine::Command;
use super::keys::RegionMemory;
use super::nic::Inner;
use crate::deadline::Deadline;
use crate::nic::error::{Error, Result};
use crate::wqe::{DataSegment, RemoteAddress};

/// Memory that a NIC may use under a key. Dropping it takes the key back: requests that come later are refused.
/// Peers of this host that have the memory mapped give it up soon after; [`Region::deregister`] waits for that.
pub struct Region {
    nic: Arc<Inner>,
    key: u32,
    memory: Arc<RegionMemory>,
}

impl Region {
    pub(super) fn new(nic: Arc<Inner>, key: u32, memory: Arc<RegionMemory>) -> Region {
        Region { nic, key, memory }
    }

    /// The key for requests of this side.
    pub fn lkey(&self) -> u32 {
        self.key
    }

    /// The key for requests of peers.
    pub fn rkey(&self) -> u32 {
        self.key
    }

    /// The address of its first byte in requests of either side.
    pub fn address(&self) -> u64 {
        self.memory.address
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.memory.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
            size: self.len() as usize,
        };
        let end = offset.checked_add(u64::from(length)).filter(|end| *end <= self.len());
        let segment = end.and_then(|_| {
            DataSegment::new(self.key, self.address().checked_add(offset)?, length).ok()
        });
        segment.ok_or(Error::Device(outside))
    }

    /// The byte at `offset`, for a request of a peer.
    pub fn remote(&self, offset: u64) -> RemoteAddress {
        RemoteAddress { address: self.address().wrapping_add(offset), rkey: self.key }
    }

    /// Takes the key back and waits until no peer can touch the memory any more.
    ///
    /// # Errors
    /// [`Error::Timeout`] if a peer has not let go of it by the deadline; the key is gone all the same.
    pub fn deregister(self, deadline: Deadline) -> Result<()> {
        let token = self.revoke();
        let (key, len) = (self.key, self.len());
        drop(self);
        let released = deadline.poll(|| (Arc::strong_count(&token) == 1).then_some(()));
        released.ok_or_else(|| {
            Error::Device(crate::Error::Timeout {
                what: format!("taking back key {key:#x} of {len} bytes"),
                after: deadline.timeout(),
                detail: "; a peer has not confirmed it".into(),
            })
        })
    }

    /// Takes the key back. The token is shared with whoever may still use the memory.
    fn revoke(&self) -> Arc<()> {
        let token = Arc::new(());
        let mut keys = self.nic.shared.keys.write().unwrap_or_else(PoisonError::into_inner);
        let known = keys.remove(self.key).is_some();
        drop(keys);
        if known {
            let token = token.clone();
            self.nic.shared.command(Command::Revoke { key: self.key, token });
        }
        token
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.revoke();
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (address, len, key) = (self.address(), self.len(), self.key);
        write!(f, "Region {{ address: {address:#x}, len: {len}, key: {key:#x} }}")
    }
}
