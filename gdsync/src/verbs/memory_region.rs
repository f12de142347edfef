//! Registered memory: what a NIC may read and write, under which keys.

use super::error::{Error, Result, last_errno};
use super::library;
use super::protection_domain::ProtectionDomain;
use crate::wqe::RemoteAddress;
use crate::{Buffer, Space};
use gdsync_sys::verbs::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE, ibv_mr, ibv_sge,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

/// What may be done with a region, or through a queue pair. Combine with `|`.
///
/// Relaxed ordering is not on offer: whoever polls a flag relies on writes arriving in order.
///
/// See [`verbs`](super) for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access(u32);

impl Access {
    /// The NIC reads and writes it for this process: sends, receives, results of reads and atomics.
    pub const LOCAL: Self = Self(IBV_ACCESS_LOCAL_WRITE);
    /// Peers read it.
    pub const REMOTE_READ: Self = Self(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_LOCAL_WRITE);
    /// Peers write it. (The hardware asks that local writing is allowed, too.)
    pub const REMOTE_WRITE: Self = Self(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE);
    /// Peers do atomics on it.
    pub const REMOTE_ATOMIC: Self = Self(IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_LOCAL_WRITE);
    /// All of it.
    pub const ALL: Self = Self(Self::REMOTE_READ.0 | Self::REMOTE_WRITE.0 | Self::REMOTE_ATOMIC.0);

    pub(super) const fn bits(self) -> u32 {
        self.0
    }
}

impl std::ops::BitOr for Access {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A dma-buf that exports GPU memory.
///
/// ```
/// use std::os::fd::{AsFd, OwnedFd};
///
/// use gdsync::verbs::DmaBuf;
///
/// /// From what `cuMemGetHandleForAddressRange` gives.
/// fn whole(exported: &OwnedFd) -> DmaBuf<'_> {
///     DmaBuf { fd: exported.as_fd(), offset: 0 }
/// }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct DmaBuf<'a> {
    /// Its file descriptor; used during the registration only.
    pub fd: BorrowedFd<'a>,
    /// Where in it the buffer begins.
    pub offset: u64,
}

/// Registered memory. Holds the memory; deregistered when it and every slice and request that names it are dropped.
///
/// See [`verbs`](super) for an example.
pub struct MemoryRegion {
    region: NonNull<ibv_mr>,
    address: u64,
    memory: Buffer<u8>,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: the region is only read after creation.
unsafe impl Send for MemoryRegion {}
// SAFETY: as above.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    pub(super) fn host(
        domain: &Arc<ProtectionDomain>,
        memory: Buffer<u8>,
        access: Access,
    ) -> Result<Arc<Self>> {
        let address =
            memory.host_address().ok_or(Error::NotHostMemory { space: memory.space() })?;
        let context = domain.context();
        let address = address.as_ptr();
        // SAFETY: the memory stays as long as the region, which holds the buffer.
        let region = unsafe {
            let access = access.bits() as i32;
            context.verbs().ibv_reg_mr(domain.as_ptr(), address.cast(), memory.size(), access)
        };
        let region = NonNull::new(region).ok_or_else(|| {
            context.failed("ibv_reg_mr", &format!("{} bytes", memory.size()), last_errno())
        })?;
        let address = address as u64;
        Ok(Arc::new(Self { region, address, memory, domain: domain.clone() }))
    }

    /// # Safety
    /// The dma-buf exports this memory and nothing else.
    pub(super) unsafe fn gpu(
        domain: &Arc<ProtectionDomain>,
        memory: Buffer<u8>,
        dmabuf: std::result::Result<DmaBuf<'_>, String>,
        access: Access,
    ) -> Result<Arc<Self>> {
        let Some(address) = memory.device_address() else {
            return Err(Error::NotHostMemory { space: Space::Host });
        };
        let length = memory.size();
        // SAFETY: the caller's promise.
        let attempt = dmabuf
            .and_then(|from| unsafe { register_dmabuf(domain, from, address, length, access) });
        let region = match attempt {
            Ok(region) => region,
            Err(dmabuf) => {
                let access = access.bits() as i32;
                // SAFETY: the buffer outlives the region. The kernel pins the pages behind a GPU address only if
                // nvidia-peermem claims them, and fails otherwise.
                let region = unsafe {
                    let verbs = domain.context().verbs();
                    verbs.ibv_reg_mr(domain.as_ptr(), address as *mut _, length, access)
                };
                NonNull::new(region).ok_or_else(|| Error::GpuMemory {
                    device: domain.context().name().to_owned(),
                    address,
                    size: length as u64,
                    dmabuf,
                    peermem: last_errno(),
                })?
            }
        };
        Ok(Arc::new(Self { region, address, memory, domain: domain.clone() }))
    }

    /// A range of bytes, to be named in requests.
    ///
    /// # Errors
    /// If it is not inside the region, or longer than a request can be (2^32 - 1).
    pub fn slice(self: &Arc<Self>, range: Range<usize>) -> Result<RegionSlice> {
        let (start, end) = (range.start as u64, range.end as u64);
        match u32::try_from(end.wrapping_sub(start)) {
            Ok(length) if start <= end && end <= self.len() as u64 => {
                Ok(RegionSlice { region: self.clone(), address: self.address + start, length })
            }
            _ => Err(Error::OutOfRange { start, end, size: self.len() as u64 }),
        }
    }

    /// All of it as a peer names it.
    #[must_use]
    pub fn remote(&self) -> RemoteRegion {
        RemoteRegion { address: self.address, size: self.len() as u64, rkey: self.rkey() }
    }

    /// The memory.
    #[must_use]
    pub fn memory(&self) -> &Buffer<u8> {
        &self.memory
    }

    /// Size in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.memory.size()
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Key for requests of this side.
    #[must_use]
    pub fn lkey(&self) -> u32 {
        // SAFETY: the region is alive and read only.
        unsafe { self.region.as_ref().lkey }
    }

    /// Key for requests of peers.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        // SAFETY: the region is alive and read only.
        unsafe { self.region.as_ref().rkey }
    }
}

/// Registers through the dma-buf, or says why not.
///
/// # Safety
/// The dma-buf exports `length` bytes at `from.offset` that stay as long as the region.
unsafe fn register_dmabuf(
    domain: &Arc<ProtectionDomain>,
    from: DmaBuf<'_>,
    address: u64,
    length: usize,
    access: Access,
) -> std::result::Result<NonNull<ibv_mr>, String> {
    let dmabuf = library::dmabuf().map_err(|e| e.to_string())?;
    let fd = from.fd.as_raw_fd();
    // SAFETY: the domain is alive, the descriptor open, and the caller vouches for what it exports.
    let region = unsafe {
        let access = access.bits() as i32;
        dmabuf.ibv_reg_dmabuf_mr(domain.as_ptr(), from.offset, length, address, fd, access)
    };
    NonNull::new(region).ok_or_else(|| format!("ibv_reg_dmabuf_mr: {}", last_errno()))
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        let context = self.domain.context();
        // SAFETY: requests that name the region hold it, so none is in flight.
        let rc = unsafe { context.verbs().ibv_dereg_mr(self.region.as_ptr()) };
        if rc != 0 {
            tracing::warn!(device = context.name(), rc, "ibv_dereg_mr failed");
        }
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (address, size, rkey) = (self.address, self.len(), self.rkey());
        write!(f, "MemoryRegion {{ address: {address:#x}, size: {size}, rkey: {rkey:#x} }}")
    }
}

/// A range of registered memory. Owns its region.
///
/// See [`verbs`](super) for an example.
#[derive(Debug, Clone)]
pub struct RegionSlice {
    region: Arc<MemoryRegion>,
    address: u64,
    length: u32,
}

impl RegionSlice {
    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.length
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> &Arc<MemoryRegion> {
        &self.region
    }

    pub(super) fn sge(&self) -> ibv_sge {
        ibv_sge { addr: self.address, length: self.length, lkey: self.region.lkey() }
    }
}

/// A region of a peer, as it said itself.
///
/// ```
/// use gdsync::verbs::{RemoteRegion, SendOperation, SendRequest};
///
/// // What a peer has sent of itself, from its `MemoryRegion::remote`.
/// let theirs = RemoteRegion { address: 0x7000_0000, size: 4096, rkey: 0x1234 };
/// let to = theirs.at(4088, 8)?; // the last eight bytes
/// let write = SendRequest::new(7, SendOperation::WriteInline { data: &[1; 8], to, imm: None });
/// assert!(theirs.at(4089, 8).is_err());
/// # Ok::<(), gdsync::verbs::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteRegion {
    /// First byte in the peer's address space.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// The peer's key.
    pub rkey: u32,
}

impl RemoteRegion {
    /// The place `offset` bytes in, with room for `length` bytes.
    ///
    /// # Errors
    /// If that is not inside the region.
    pub fn at(&self, offset: u64, length: u64) -> Result<RemoteAddress> {
        let end = offset.checked_add(length).filter(|end| *end <= self.size);
        let address = end.and_then(|_| self.address.checked_add(offset));
        match address {
            Some(address) => Ok(RemoteAddress { address, rkey: self.rkey }),
            None => Err(Error::OutOfRange {
                start: offset,
                end: offset.saturating_add(length),
                size: self.size,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_past_a_remote_region_is_refused() {
        let region = RemoteRegion { address: 0x1000, size: 64, rkey: 5 };
        assert_eq!(region.at(56, 8).unwrap(), RemoteAddress { address: 0x1038, rkey: 5 });
        assert_eq!(region.at(64, 0).unwrap().address, 0x1040);
        for (offset, length) in [(57, 8), (65, 0), (u64::MAX, 8), (8, u64::MAX)] {
            let error = region.at(offset, length).unwrap_err();
            assert!(matches!(error, Error::OutOfRange { size: 64, .. }), "{error}");
        }
    }
}
