//! Registered memory, as the software NIC holds it for its owner.

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use super::engine::Command;
use super::instance::Inner;
use super::keys::{RegionMemory, TakenBack};
use crate::deadline::Deadline;
use crate::nic::error::{Error, Result};
use crate::nic::memory_region::{Keys, MemoryRegion, Registration};

/// A key of the software NIC. Dropping it takes the key back; peers of this host that have the memory mapped give it up
/// soon after.
struct SoftRegistration {
    nic: Arc<Inner>,
    key: u32,
    len: u64,
}

/// The region of memory that has this key.
pub(super) fn region(nic: Arc<Inner>, key: u32, memory: &RegionMemory) -> MemoryRegion {
    let (address, len) = (memory.address, memory.len());
    let registration = Box::new(SoftRegistration { nic, key, len });
    MemoryRegion::new(Keys { lkey: key, rkey: key }, address, len, registration)
}

impl Registration for SoftRegistration {
    fn deregister(self: Box<Self>, deadline: Deadline) -> Result<()> {
        let token = self.revoke();
        let (key, len) = (self.key, self.len);
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
}

impl SoftRegistration {
    /// Takes the key back. The token is shared with whoever may still use the memory.
    fn revoke(&self) -> Arc<TakenBack> {
        let mut keys = self.nic.shared.keys.write().unwrap_or_else(PoisonError::into_inner);
        let known = keys.remove(self.key, Instant::now());
        drop(keys);
        let Some(memory) = known else { return Arc::default() };
        let token = Arc::new(TakenBack::of(&memory));
        self.nic.shared.command(Command::Revoke { key: self.key, token: token.clone() });
        token
    }
}

impl Drop for SoftRegistration {
    fn drop(&mut self) {
        self.revoke();
    }
}
