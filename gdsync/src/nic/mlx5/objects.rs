//! What the provider holds of a device: its DEVX context, a UAR page, registered (umem) memory, DEVX objects. Each gives
//! itself back when dropped, and holds what it depends on.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use gdsync_sys::mlx5dv::{
    MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF, MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC, MLX5DV_CONTEXT_FLAGS_DEVX,
    MLX5DV_OBJ_AH, MLX5DV_OBJ_PD, mlx5dv_ah, mlx5dv_context_attr, mlx5dv_devx_obj, mlx5dv_devx_uar,
    mlx5dv_devx_umem, mlx5dv_obj, mlx5dv_pd,
};
use gdsync_sys::mlx5dv_dmabuf::{MLX5DV_UMEM_MASK_DMABUF, mlx5dv_devx_umem_in};
use gdsync_sys::verbs::{IBV_ACCESS_LOCAL_WRITE, ibv_ah_attr, ibv_gid};
use gdsync_sys::{LoadError, Mlx5, Mlx5Dmabuf};

use super::command::{self, ANSWER, CAPABILITIES, Command, HOPS, Timestamps, answer};
use crate::nic::error::{Error, Result};
use crate::verbs::{self, Context, Gid, Port, ProtectionDomain};

/// libmlx5, never unloaded.
pub(super) fn library() -> Result<&'static Mlx5> {
    static LIBRARY: OnceLock<std::result::Result<Mlx5, Arc<LoadError>>> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| Mlx5::load().map_err(Arc::new));
    library.as_ref().map_err(|error| Error::Library(error.clone()))
}

/// What newer versions of libmlx5 have for dma-bufs, never unloaded.
pub(super) fn dma_bufs() -> Result<&'static Mlx5Dmabuf> {
    static LIBRARY: OnceLock<std::result::Result<Mlx5Dmabuf, Arc<LoadError>>> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| Mlx5Dmabuf::load().map_err(Arc::new));
    library.as_ref().map_err(|error| Error::Library(error.clone()))
}

/// A device with DEVX.
pub(super) struct Opened {
    pub library: &'static Mlx5,
    pub context: Arc<Context>,
    pub domain: Arc<ProtectionDomain>,
}

impl Opened {
    /// Opens it for DEVX commands.
    pub fn open(device: &verbs::Device) -> Result<Opened> {
        let library = library()?;
        // SAFETY: the device is alive.
        if !unsafe { library.mlx5dv_is_supported(device.as_ptr()) } {
            return Err(Error::OtherDevice { device: device.name() });
        }
        let context = Context::open_by(device, "mlx5dv_open_device", |device| {
            let flags = MLX5DV_CONTEXT_FLAGS_DEVX;
            let mut attributes = mlx5dv_context_attr { flags, ..Default::default() };
            // SAFETY: the device is alive, the attributes are readable.
            unsafe { library.mlx5dv_open_device(device, &mut attributes) }
        })?;
        let domain = context.protection_domain()?;
        Ok(Opened { library, context, domain })
    }

    /// The number of the protection domain.
    pub fn domain_number(&self) -> Result<u32> {
        let mut out = mlx5dv_pd::default();
        let mut object = mlx5dv_obj::default();
        object.pd.in_ = self.domain.as_ptr();
        object.pd.out = &mut out;
        // SAFETY: the domain is alive, `out` writable, and only the part of the domain is asked for.
        let rc = unsafe { self.library.mlx5dv_init_obj(&mut object, u64::from(MLX5DV_OBJ_PD)) };
        self.context.check("mlx5dv_init_obj", rc, "the protection domain")?;
        Ok(out.pdn)
    }

    /// What timestamps queue pairs may ask for.
    pub fn timestamps(&self) -> Timestamps {
        let (question, mut out) = (command::query_roce(), [0u8; CAPABILITIES]);
        // SAFETY: the context is open; both buffers have the lengths that are given.
        let rc = unsafe {
            self.library.mlx5dv_devx_general_cmd(
                self.context.as_ptr(),
                question.as_ptr().cast::<c_void>(),
                question.len(),
                out.as_mut_ptr().cast::<c_void>(),
                out.len(),
            )
        };
        if rc == 0 { command::timestamps(&out) } else { Timestamps::FreeRunning }
    }

    /// The Ethernet address to which packets from `port` to `peer` go first, a router's or the peer's own: the kernel resolves it for
    /// an address handle.
    pub fn next_hop(&self, port: &Port, own_index: u8, peer: Gid) -> Result<[u8; 6]> {
        let verbs = self.context.verbs();
        let mut attributes = ibv_ah_attr {
            is_global: 1,
            port_num: port.number,
            sl: port.service_level,
            ..Default::default()
        };
        attributes.grh.dgid = ibv_gid { raw: peer.0 };
        attributes.grh.sgid_index = own_index;
        attributes.grh.hop_limit = HOPS;
        attributes.grh.traffic_class = port.traffic_class;
        // SAFETY: the domain is alive, the attributes are readable.
        let handle = unsafe { verbs.ibv_create_ah(self.domain.as_ptr(), &mut attributes) };
        let handle = NonNull::new(handle).ok_or_else(|| {
            let why = self.context.failed(
                "ibv_create_ah",
                &format!("the way to {peer}"),
                verbs::last_errno(),
            );
            Error::Route { why: why.to_string() }
        })?;
        let mut out = mlx5dv_ah::default();
        let mut object = mlx5dv_obj::default();
        object.ah.in_ = handle.as_ptr();
        object.ah.out = &mut out;
        // SAFETY: the handle is alive, `out` writable, and only the part of the handle is asked for.
        let rc = unsafe { self.library.mlx5dv_init_obj(&mut object, u64::from(MLX5DV_OBJ_AH)) };
        // SAFETY: where that went well it points into the handle.
        let address = (rc == 0).then(|| unsafe { out.av.as_ref() }.map(|av| av.rmac)).flatten();
        // SAFETY: made above, destroyed once.
        let _ = unsafe { verbs.ibv_destroy_ah(handle.as_ptr()) };
        self.context.check("mlx5dv_init_obj", rc, "an address handle")?;
        address.ok_or_else(|| Error::Route { why: format!("no Ethernet address leads to {peer}") })
    }

    /// The event queue of the first completion vector; queues must name one though nobody waits for events.
    pub fn event_queue(&self) -> Result<u32> {
        let mut eqn = 0;
        // SAFETY: the context is open, `eqn` writable.
        let rc = unsafe { self.library.mlx5dv_devx_query_eqn(self.context.as_ptr(), 0, &mut eqn) };
        self.context.check("mlx5dv_devx_query_eqn", rc, "completion vector 0")?;
        Ok(eqn)
    }
}

/// An uncached page of registers, or else one that combines writes, and whether it is such.
fn uncached_or_combining<T>(mut allocate: impl FnMut(u32) -> Option<T>) -> Option<(T, bool)> {
    allocate(MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC)
        .map(|page| (page, false))
        .or_else(|| allocate(MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF).map(|page| (page, true)))
}

/// A page of doorbell registers.
pub(super) struct Uar {
    device: Arc<Opened>,
    uar: NonNull<mlx5dv_devx_uar>,
    combining: bool,
}

// SAFETY: a handle; the register is written atomically.
unsafe impl Send for Uar {}
// SAFETY: as above.
unsafe impl Sync for Uar {}

impl Uar {
    /// Uncached: a doorbell is one 64-bit store that goes out at once. Older kernels have only pages that combine writes, for
    /// copying whole entries (BlueFlame); there the CPU flushes after each doorbell. A GPU's own mapping of the page combines nothing.
    pub fn new(device: &Arc<Opened>) -> Result<Uar> {
        let allocate = |kind| {
            // SAFETY: the context is open.
            NonNull::new(unsafe {
                device.library.mlx5dv_devx_alloc_uar(device.context.as_ptr(), kind)
            })
        };
        let (uar, combining) = uncached_or_combining(allocate).ok_or_else(|| {
            let what = "a page of doorbell registers";
            device.context.failed("mlx5dv_devx_alloc_uar", what, verbs::last_errno())
        })?;
        Ok(Uar { device: device.clone(), uar, combining })
    }

    /// Whether writes of the CPU to it wait for others until they are flushed.
    pub fn is_combining(&self) -> bool {
        self.combining
    }

    pub fn page(&self) -> u32 {
        // SAFETY: alive as long as `self`.
        unsafe { self.uar.as_ref() }.page_id
    }

    /// The page, and the register in it.
    pub fn addresses(&self) -> Option<(NonNull<u8>, NonNull<u8>)> {
        // SAFETY: as above.
        let uar = unsafe { self.uar.as_ref() };
        Some((NonNull::new(uar.base_addr.cast())?, NonNull::new(uar.reg_addr.cast())?))
    }
}

impl Drop for Uar {
    fn drop(&mut self) {
        // SAFETY: allocated by the library; queues that use it hold it.
        unsafe { self.device.library.mlx5dv_devx_free_uar(self.uar.as_ptr()) };
    }
}

/// Memory that the device may use for queues.
pub(super) struct Umem {
    device: Arc<Opened>,
    umem: NonNull<mlx5dv_devx_umem>,
}

// SAFETY: a handle.
unsafe impl Send for Umem {}
// SAFETY: as above.
unsafe impl Sync for Umem {}

impl Umem {
    /// # Safety
    /// The memory stays until the value is dropped.
    pub unsafe fn new(device: &Arc<Opened>, base: *mut u8, len: usize) -> Result<Umem> {
        let (context, access) = (device.context.as_ptr(), IBV_ACCESS_LOCAL_WRITE);
        // SAFETY: the context is open; the range is the caller's.
        let umem =
            unsafe { device.library.mlx5dv_devx_umem_reg(context, base.cast(), len, access) };
        let umem = NonNull::new(umem).ok_or_else(|| {
            let what = format!("{len} bytes of queues");
            device.context.failed("mlx5dv_devx_umem_reg", &what, verbs::last_errno())
        })?;
        Ok(Umem { device: device.clone(), umem })
    }

    /// The same for memory of a GPU: `len` bytes from byte `offset` of the dma-buf `fd` on, which need not stay open.
    ///
    /// # Safety
    /// The memory stays until the value is dropped.
    pub unsafe fn of_dma_buf(
        device: &Arc<Opened>,
        fd: BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> Result<Umem> {
        let (library, context) = (dma_bufs()?, device.context.as_ptr());
        let mut what = dma_buf_umem(fd, offset, len);
        // SAFETY: the context is open, the description complete; the memory is the caller's.
        let umem = unsafe { library.mlx5dv_devx_umem_reg_ex(context, &mut what) };
        let umem = NonNull::new(umem).ok_or_else(|| {
            let what = format!("{len} bytes of queues at {offset:#x} of a dma-buf");
            device.context.failed("mlx5dv_devx_umem_reg_ex", &what, verbs::last_errno())
        })?;
        Ok(Umem { device: device.clone(), umem })
    }

    pub fn id(&self) -> u32 {
        // SAFETY: alive as long as `self`.
        unsafe { self.umem.as_ref() }.umem_id
    }
}

/// Pages of an adapter.
const PAGE: u64 = 4096;

/// What names a part of a dma-buf: its offset in the place of an address, and pages of any size.
fn dma_buf_umem(fd: BorrowedFd<'_>, offset: u64, len: usize) -> mlx5dv_devx_umem_in {
    mlx5dv_devx_umem_in {
        addr: std::ptr::without_provenance_mut(offset as usize),
        size: len,
        access: IBV_ACCESS_LOCAL_WRITE,
        pgsz_bitmap: !(PAGE - 1),
        comp_mask: u64::from(MLX5DV_UMEM_MASK_DMABUF),
        dmabuf_fd: fd.as_raw_fd(),
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: registered by the library; queues that use it were destroyed before.
        let rc = unsafe { self.device.library.mlx5dv_devx_umem_dereg(self.umem.as_ptr()) };
        if rc != 0 {
            tracing::warn!(device = self.device.context.name(), rc, "umem_dereg failed");
        }
    }
}

/// A queue that the firmware made.
pub(super) struct Object {
    device: Arc<Opened>,
    object: NonNull<mlx5dv_devx_obj>,
    pub number: u32,
}

// SAFETY: a handle; libmlx5 serialises commands.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

impl Object {
    pub fn create(device: &Arc<Opened>, what: &'static str, command: &Command) -> Result<Object> {
        let mut out = [0u8; ANSWER];
        // SAFETY: the context is open; both buffers have the lengths that are given.
        let object = unsafe {
            device.library.mlx5dv_devx_obj_create(
                device.context.as_ptr(),
                command.as_ptr().cast::<c_void>(),
                command.len(),
                out.as_mut_ptr().cast::<c_void>(),
                out.len(),
            )
        };
        let errno = verbs::last_errno();
        let said = answer(&out);
        match (NonNull::new(object), said) {
            (Some(object), Ok(number)) => Ok(Object { device: device.clone(), object, number }),
            (_, Err(refusal)) => Err(Error::Refused {
                what,
                device: device.context.name().to_owned(),
                why: refusal.to_string(),
            }),
            (None, Ok(_)) => {
                Err(device.context.failed("mlx5dv_devx_obj_create", what, errno).into())
            }
        }
    }

    pub fn modify(&self, what: &'static str, command: &Command) -> Result<()> {
        let mut out = [0u8; ANSWER];
        // SAFETY: the object is alive; both buffers have the lengths that are given.
        let rc = unsafe {
            self.device.library.mlx5dv_devx_obj_modify(
                self.object.as_ptr(),
                command.as_ptr().cast::<c_void>(),
                command.len(),
                out.as_mut_ptr().cast::<c_void>(),
                out.len(),
            )
        };
        if let Err(refusal) = answer(&out) {
            let device = self.device.context.name().to_owned();
            return Err(Error::Refused { what, device, why: refusal.to_string() });
        }
        Ok(self.device.context.check("mlx5dv_devx_obj_modify", rc, what)?)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: created by the library, destroyed once.
        let rc = unsafe { self.device.library.mlx5dv_devx_obj_destroy(self.object.as_ptr()) };
        if rc != 0 {
            tracing::warn!(device = self.device.context.name(), rc, "devx_obj_destroy failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_part_of_a_dma_buf_is_named_by_its_offset() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let what = dma_buf_umem(file.as_fd(), 0x3_0000, 0x1_5000);
        assert_eq!((what.addr as usize, what.size), (0x3_0000, 0x1_5000));
        assert_eq!((what.comp_mask, what.dmabuf_fd), (1, file.as_raw_fd()));
        // As for host memory: the adapter writes completions. From 4 KiB on every power of two.
        assert_eq!((what.access, what.pgsz_bitmap), (1, 0xffff_ffff_ffff_f000));
    }
}
