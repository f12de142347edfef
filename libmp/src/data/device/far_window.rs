//! A rank's share of a device window that is reached through the NIC: what is registered for it, and what the kernels of the
//! others are told (`mp/impl/nic_window.cuh`).

use std::mem::offset_of;
use std::sync::Arc;

use gdsync::nic::{Access, MemoryRegion};
use gdsync::{Buffer, Device, Space};
use mp_kernels::NicPart;
use serde::{Deserialize, Serialize};

use super::far::close;
use crate::data::nic::{OpenedLink, Place};
use crate::data::plane::Plane;
use crate::error::{Error, Result};

/// `bounce_bytes` of `mp/impl/nic_window.cuh`.
const BOUNCE: usize = 4096;

/// What a rank tells the others of its share.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct FarShare {
    /// Of what is kept registered.
    number: u64,
    memory: Option<Place>,
    bytes: u64,
    signals: Option<Place>,
    /// Whether peers may do atomics on the memory.
    atomics: bool,
}

/// The own share: the keys that this rank's kernels use.
#[derive(Clone)]
pub(crate) struct OwnShare {
    pub told: FarShare,
    address: u64,
    key: u32,
}

/// Another rank's share, as kernels here reach it.
pub(crate) struct FarPart {
    neighbour: usize,
    link: Arc<OpenedLink>,
    share: FarShare,
    table: Buffer<u64>,
    /// Held, not used.
    _bounce: MemoryRegion,
}

impl FarShare {
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl OwnShare {
    /// Registers the share for `users` ranks.
    pub fn new(
        plane: &Plane,
        memory: &Buffer<u8>,
        signals: &Buffer<u8>,
        users: usize,
        op: &dyn Fn() -> String,
    ) -> Result<OwnShare> {
        let access = plane.access_of_peers(memory);
        let memory = plane.register(memory, access, op)?;
        let signals = plane.register(signals, Access::REMOTE_WRITE, op)?;
        let [memory_place, signals_place] =
            [&memory, &signals].map(|region| region.as_ref().map(Place::of));
        let (address, bytes, key) = memory
            .as_ref()
            .map_or((0, 0, 0), |region| (region.address(), region.len(), region.lkey()));
        let number = plane.keep(memory.into_iter().chain(signals).collect(), users);
        let (memory, signals) = (memory_place, signals_place);
        let told = FarShare { number, memory, bytes, signals, atomics: access == Access::ALL };
        Ok(OwnShare { told, address, key })
    }
}

impl FarPart {
    /// `link` is the kernels' to that rank.
    pub fn new(
        plane: &Plane,
        neighbour: usize,
        device: &Device,
        link: Arc<OpenedLink>,
        own: &OwnShare,
        share: FarShare,
        op: &dyn Fn() -> String,
    ) -> Result<FarPart> {
        let failed = |source| Error::Memory { op: op(), source };
        let bounce = plane.pieces.cut(device, Space::Pinned, BOUNCE).map_err(failed)?;
        let bounce = plane.register(&bounce, Access::LOCAL_WRITE, op)?;
        let bounce = bounce.ok_or_else(|| plane.no_nic(neighbour))?;
        let queue = link.view.as_ref().and_then(Buffer::device_address).unwrap_or_default();
        let key = |place: Option<Place>| place.map_or(0, |place| u64::from(place.after(0).rkey));
        let words = [
            queue,
            own.address,
            own.told.bytes,
            bounce.address(),
            // Two keys a word; the first is the lock.
            key(share.memory) << 32,
            key(share.signals) | u64::from(own.key) << 32,
            u64::from(bounce.lkey()) | u64::from(share.atomics) << 32,
        ];
        let table = plane.table(device, &words, op)?;
        Ok(FarPart { neighbour, link, share, table, _bounce: bounce })
    }

    /// Its row in the window's table.
    pub fn row(&self) -> mp_kernels::WindowPart {
        let address = |place: Option<Place>| place.map_or(0, |place| place.after(0).address);
        mp_kernels::WindowPart {
            memory: address(self.share.memory),
            bytes: self.share.bytes,
            signals: address(self.share.signals),
            nic: self.table.device_address().unwrap_or_default(),
        }
    }

    /// What kernels read of it.
    pub fn memory(&self) -> Buffer<u8> {
        self.table.bytes()
    }

    /// Whose it is, in the world.
    pub fn rank(&self, plane: &Plane) -> usize {
        plane.neighbours[self.neighbour].rank
    }

    /// This rank's kernels use it no more.
    pub fn retire(&self, plane: &Plane) {
        close(plane, self.neighbour, &self.link.link, self.share.number);
    }
}

// The order of the words in `FarPart::new`.
const _: () = assert!(
    size_of::<NicPart>() == 7 * 8
        && offset_of!(NicPart, bounce) == 3 * 8
        && offset_of!(NicPart, signals_key) == 5 * 8
        && offset_of!(NicPart, atomics) == 6 * 8 + 4
);
