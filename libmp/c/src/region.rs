//! Regions of memory: allocated, brought, cut, read and written.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use libmp::Region;
use libmp::gdsync::{Buffer, Space};

use crate::handle::{api, array, array_mut, borrow, device, getters, give, place, take};
use crate::status::{Failure, Result};
use crate::world::MpComm;

/// `mp_region`: bytes.
pub struct MpRegion(pub(crate) Region<u8>);

impl MpRegion {
    /// A part of it.
    pub(crate) fn part(&self, offset: usize, bytes: usize) -> Result<Region<u8>> {
        let end = offset.checked_add(bytes);
        let end = end.ok_or_else(|| Failure::argument("bytes", format!("{offset} + {bytes}")))?;
        Ok(Region::from_buffer(self.0.buffer().slice(offset..end)?))
    }
}

api! {
    /// Memory of a device, or of the host to be shared with other ranks.
    fn mp_region_alloc(
        comm: *const MpComm,
        on: c_int,
        bytes: usize,
        region: *mut *mut MpRegion,
    ) {
        place(region, "region")?;
        let comm = &borrow(comm, "comm")?.0;
        give(region, MpRegion(comm.alloc(&device(on)?, bytes)?), "region")?;
    }

    /// Host memory that a device reaches.
    fn mp_region_alloc_pinned(on: c_int, bytes: usize, region: *mut *mut MpRegion) {
        place(region, "region")?;
        let buffer = Buffer::new(&device(on)?, Space::Pinned, bytes)?;
        give(region, MpRegion(Region::from_buffer(buffer)), "region")?;
    }

    /// The caller's host memory.
    fn mp_region_register_host(
        on: c_int,
        address: *mut c_void,
        bytes: usize,
        region: *mut *mut MpRegion,
    ) {
        place(region, "region")?;
        let address = NonNull::new(address.cast::<u8>());
        let address = address.ok_or_else(|| Failure::argument("address", "is NULL"))?;
        let buffer = Buffer::from_host_memory(&device(on)?, address, bytes, ())?;
        give(region, MpRegion(Region::from_buffer(buffer)), "region")?;
    }

    /// The caller's device memory.
    fn mp_region_register_cuda(
        on: c_int,
        address: *mut c_void,
        bytes: usize,
        region: *mut *mut MpRegion,
    ) {
        place(region, "region")?;
        if address.is_null() {
            return Err(Failure::argument("address", "is NULL"));
        }
        let buffer = Buffer::from_cuda_memory(&device(on)?, address as u64, bytes, ())?;
        give(region, MpRegion(Region::from_buffer(buffer)), "region")?;
    }

    /// A part of a region, as a region.
    fn mp_region_part(
        region: *const MpRegion,
        offset: usize,
        bytes: usize,
        part: *mut *mut MpRegion,
    ) {
        place(part, "part")?;
        give(part, MpRegion(borrow(region, "region")?.part(offset, bytes)?), "part")?;
    }

    /// Copies bytes into a region, also into device memory.
    fn mp_region_write(
        region: *const MpRegion,
        offset: usize,
        from: *const c_void,
        bytes: usize,
    ) {
        let part = borrow(region, "region")?.part(offset, bytes)?;
        part.write(array(from.cast::<u8>(), bytes, "from")?)?;
    }

    /// Copies bytes out of a region, also out of device memory.
    fn mp_region_read(region: *const MpRegion, offset: usize, to: *mut c_void, bytes: usize) {
        let part = borrow(region, "region")?.part(offset, bytes)?;
        array_mut(to.cast::<u8>(), bytes, "to")?.copy_from_slice(&part.to_vec()?);
    }

    /// Gives a region back.
    fn mp_region_free(region: *mut MpRegion) {
        drop(take(region, "region")?);
    }
}

getters! {
    /// Where the CPU finds it; NULL for device memory.
    fn mp_region_host_address(region: *const MpRegion) -> *mut c_void, std::ptr::null_mut(), {
        let address = borrow(region, "region")?.0.buffer().host_address();
        address.map_or(std::ptr::null_mut(), |address| address.as_ptr().cast())
    }

    /// Where kernels of its device find it.
    fn mp_region_device_address(region: *const MpRegion) -> u64, 0, {
        borrow(region, "region")?.0.buffer().device_address().unwrap_or_default()
    }

    /// Its length in bytes.
    fn mp_region_bytes(region: *const MpRegion) -> usize, 0, {
        borrow(region, "region")?.0.len()
    }
}
