//! The owner of a piece of memory: where it lives, by which addresses it is reached, and how it is given back.
//! Buffers, words and mappings share it; it is released when the last of them is gone and no stream may still use it.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::OnceLock;

use super::shared::SharedSegment;
use super::space::Space;
use crate::cuda::device::CudaDevice;
use crate::cuda::graveyard::Grave;
use crate::cuda::registration;
use crate::device::Device;
use crate::error::{Error, Result};

/// Plain host allocations start at a multiple of this, so that vector loads and whole cache lines fit.
const HOST_ALIGN: usize = 64;

pub(crate) struct Allocation {
    pub device: Device,
    pub space: Space,
    pub len: usize,
    /// Address for the CPU.
    pub host: Option<NonNull<u8>>,
    /// Address for the device; on the host device the same as `host`.
    pub remote: Option<u64>,
    pub backing: Option<Backing>,
    /// Set when first exported: what peers in this process find it by.
    pub export_id: OnceLock<u64>,
    /// Of a GPU's: what other processes are told.
    pub ipc: OnceLock<crate::peer::Kind>,
}

/// What holds the bytes.
pub(crate) enum Backing {
    Heap(NonNull<u8>, Layout),
    Segment(SharedSegment),
    /// Memory from `cuMemAlloc`.
    CudaMemory(u64),
    /// Memory of the user; given back by dropping the owner.
    User(Box<dyn Any + Send + Sync>),
    /// Another process's device memory, opened by `cuIpcOpenMemHandle` at this base.
    CudaIpc(u64),
    /// Another owner in this process that must outlive this one.
    Shared(std::sync::Arc<Allocation>),
}

// SAFETY: addresses and handles; which thread touches the bytes when is governed by the operations' contracts.
unsafe impl Send for Allocation {}
// SAFETY: as for Send.
unsafe impl Sync for Allocation {}

impl Allocation {
    /// Zeroed memory of `len` bytes.
    pub fn new(device: &Device, space: Space, len: usize) -> Result<Allocation> {
        match (device, space) {
            (_, Space::Host) => Allocation::heap(device, len),
            (Device::Host, Space::Pinned | Space::Device) | (Device::Cuda(_), Space::Pinned) => {
                Allocation::segment(device, space, SharedSegment::create(len)?, len)
            }
            (Device::Cuda(cuda), Space::Device) => {
                let address = cuda.allocate(len)?;
                Ok(Allocation::raw(
                    device,
                    space,
                    len,
                    None,
                    Some(address),
                    Backing::CudaMemory(address),
                ))
            }
        }
    }

    pub fn raw(
        device: &Device,
        space: Space,
        len: usize,
        host: Option<NonNull<u8>>,
        remote: Option<u64>,
        backing: Backing,
    ) -> Allocation {
        let device = device.clone();
        Allocation {
            device,
            space,
            len,
            host,
            remote,
            backing: Some(backing),
            export_id: OnceLock::new(),
            ipc: OnceLock::new(),
        }
    }

    fn heap(device: &Device, len: usize) -> Result<Allocation> {
        let layout = Layout::from_size_align(len.max(1), HOST_ALIGN).map_err(|_| {
            Error::OutOfRange { what: "allocation", offset: 0, len, size: isize::MAX as usize }
        })?;
        // SAFETY: the layout's size is at least 1.
        let address = NonNull::new(unsafe { alloc_zeroed(layout) })
            .ok_or_else(|| Error::os("alloc", format!("{len} bytes"), "out of memory"))?;
        let remote = matches!(device, Device::Host).then_some(address.as_ptr() as u64);
        Ok(Allocation::raw(
            device,
            Space::Host,
            len,
            Some(address),
            remote,
            Backing::Heap(address, layout),
        ))
    }

    /// Shared memory of `len` bytes, registered with the GPU if the device is one.
    pub fn segment(
        device: &Device,
        space: Space,
        segment: SharedSegment,
        len: usize,
    ) -> Result<Allocation> {
        let host = segment.address();
        // SAFETY: the segment is unmapped after it was unregistered. Nobody else has registered what is new.
        let (remote, _) = unsafe { register(device, host, segment.len(), 0)? };
        Ok(Allocation::raw(device, space, len, Some(host), Some(remote), Backing::Segment(segment)))
    }

    /// Memory of the user, registered with the GPU if the device is one.
    ///
    /// # Safety
    /// `host` is valid for reads and writes of `len` bytes for as long as `owner` lives, wherever `owner` moves.
    pub unsafe fn user(
        device: &Device,
        host: NonNull<u8>,
        len: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Allocation> {
        // SAFETY: the caller's promise.
        unsafe { Allocation::registered(device, host, len, owner, 0) }
    }

    /// Registers of another device, mapped into this process.
    ///
    /// # Safety
    /// As for [`Allocation::user`].
    pub unsafe fn registers(
        device: &Device,
        host: NonNull<u8>,
        len: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Allocation> {
        use cudarc::driver::sys::CU_MEMHOSTREGISTER_IOMEMORY;
        // SAFETY: the caller's promise.
        unsafe { Allocation::registered(device, host, len, owner, CU_MEMHOSTREGISTER_IOMEMORY) }
    }

    /// Memory of somebody else, registered with the GPU if the device is one.
    ///
    /// # Safety
    /// As for [`Allocation::user`].
    unsafe fn registered(
        device: &Device,
        host: NonNull<u8>,
        len: usize,
        owner: Box<dyn Any + Send + Sync>,
        kind: u32,
    ) -> Result<Allocation> {
        // SAFETY: the owner, which keeps it, is dropped after it was unregistered.
        let (remote, by) = unsafe { register(device, host, len, kind)? };
        let owner = Backing::User(Box::new((owner, by)));
        Ok(Allocation::raw(device, Space::Pinned, len, Some(host), Some(remote), owner))
    }

    /// In words, for errors.
    pub fn describe(&self) -> String {
        format!("{} memory of {:?}", self.space, self.device)
    }
}

/// Makes host memory reachable for a device, if that is a GPU: the device's address of it, and a device that has to stay open meanwhile.
///
/// # Safety
/// It stays mapped until it is unregistered.
unsafe fn register(
    device: &Device,
    host: NonNull<u8>,
    len: usize,
    kind: u32,
) -> Result<(u64, Option<CudaDevice>)> {
    match device {
        Device::Host => Ok((host.as_ptr() as u64, None)),
        // SAFETY: the caller's promise.
        Device::Cuda(cuda) => unsafe { registration::register(cuda, host, len, kind) },
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let Some(backing) = self.backing.take() else { return };
        match (&self.device, backing) {
            // SAFETY: allocated with this layout by `heap`, freed once. Host streams hold the allocation while they
            // use it, and a GPU cannot reach it.
            (_, Backing::Heap(address, layout)) => unsafe { dealloc(address.as_ptr(), layout) },
            (Device::Host, backing) => drop(backing),
            (Device::Cuda(cuda), Backing::CudaMemory(address)) => cuda.bury(Grave::Device(address)),
            (Device::Cuda(cuda), Backing::CudaIpc(address)) => cuda.bury(Grave::Ipc(address)),
            (Device::Cuda(cuda), Backing::Segment(segment)) => {
                cuda.bury(Grave::Registered(segment.address().as_ptr(), Box::new(segment)));
            }
            (Device::Cuda(cuda), Backing::User(owner)) => match self.host {
                Some(host) => cuda.bury(Grave::Registered(host.as_ptr(), Box::new(owner))),
                None => cuda.bury(Grave::Owner(Box::new(owner))),
            },
            (Device::Cuda(cuda), Backing::Shared(other)) => {
                cuda.bury(Grave::Owner(Box::new(other)))
            }
        }
    }
}
