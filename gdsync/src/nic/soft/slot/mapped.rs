//! The frames of a queue pair about memory that is mapped: the peer's here, and this side's there. What is known of the peer's is in
//! [`direct`](crate::nic::soft::direct).

use std::sync::Arc;
use std::time::Instant;

use super::Slot;
use crate::nic::memory_region::Access;
use crate::nic::soft::direct::{DeviceMemory, MapRequest};
use crate::nic::soft::keys::{KeyTable, RegionMemory, TakenBack};
use crate::nic::soft::state::{DeviceUse, Payload, Violation};
use crate::nic::soft::wire::frame::Frame;

impl Slot {
    /// The mapper is done with a key of the peer's.
    pub fn learn(&mut self, key: u32, answer: u64, memory: Option<RegionMemory>) {
        self.direct.learn(key, answer, memory);
    }

    /// A key of ours is taken back; the token is kept until the peer has let go of the memory.
    pub fn revoke(&mut self, key: u32, token: &Arc<TakenBack>) {
        if self.exported.remove(&key) && self.wire.is_some() {
            self.unconfirmed.insert(key, (Instant::now(), token.clone()));
            self.control.push_back((Frame::Revoke { key }, Vec::new()));
        }
    }

    /// Queues the frames about mapped memory.
    pub(super) fn talk(&mut self) {
        while let Some(key) = self.direct.wanted() {
            self.control.push_back((Frame::Resolve { key }, Vec::new()));
        }
        if !self.revoked.is_empty() && !self.machine.touches_peer() {
            for key in self.revoked.drain(..) {
                self.control.push_back((Frame::Revoked { key }, Vec::new()));
            }
        }
    }

    /// Tells the peer how it gets at memory that it has asked for.
    pub(super) fn resolve(&mut self, key: u32, keys: &KeyTable) {
        let reached = keys.find(key).and_then(|region| self.way_to(region));
        let answer = match reached {
            Some((address, access, way)) => {
                self.exported.insert(key);
                (Frame::Resolved { key, address, access: access.bits() }, way)
            }
            None => (Frame::Resolved { key, address: 0, access: 0 }, Vec::new()),
        };
        self.control.push_back(answer);
    }

    /// The peer has said what its memory is to the device.
    pub(super) fn reach_by_device(
        &mut self,
        key: u32,
        address: u64,
        access: Access,
        payload: Payload<'_>,
    ) -> Result<(), Violation> {
        let region = postcard::from_bytes(&payload.to_vec());
        let region = region.map_err(|_| Violation::Other("no memory of a device"))?;
        self.direct.told(key, DeviceMemory { address, access, region })
    }

    /// The peer has said how its memory is mapped, or, without access, that it cannot be.
    pub(super) fn map(
        &mut self,
        key: u32,
        address: u64,
        access: Option<Access>,
        payload: Payload<'_>,
    ) -> Result<(), Violation> {
        let answer = self.direct.answered(key, access.is_some())?;
        if let Some(access) = access {
            let (qpn, handle) = (self.qpn, payload.to_vec());
            // Without a mapper the key is never mapped, and requests go by frames.
            let request = MapRequest { qpn, key, answer, address, access, handle };
            let _ = self.mapper.send(request);
        }
        Ok(())
    }

    /// How the peer gets at registered memory without frames: the address that entries name it by, what it may do, and the
    /// handle to map it by, or what the device calls it.
    fn way_to(&self, region: &RegionMemory) -> Option<(u64, Access, Vec<u8>)> {
        let (access, way) = if self.same_machine {
            (region.access, postcard::to_stdvec(region.handle.as_ref()?))
        } else {
            let DeviceUse { atomics, .. } = self.device?;
            let kept = if atomics { Access::default() } else { Access::REMOTE_ATOMIC };
            (region.access.without(kept), postcard::to_stdvec(&region.device.as_ref()?.remote()))
        };
        Some((region.address, access, way.ok()?))
    }
}
