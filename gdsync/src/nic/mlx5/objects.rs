//! What the provider holds of a device: its DEVX context, a UAR page, registered (umem) memory, DEVX objects. Each gives
//! itself back when dropped, and holds what it depends on.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use gdsync_sys::mlx5dv::{
    MLX5DV_CONTEXT_FLAGS_DEVX, MLX5DV_OBJ_PD, mlx5dv_context_attr, mlx5dv_devx_obj,
    mlx5dv_devx_uar, mlx5dv_devx_umem, mlx5dv_obj, mlx5dv_pd,
};
use gdsync_sys::verbs::IBV_ACCESS_LOCAL_WRITE;
use gdsync_sys::{LoadError, Mlx5};

use super::command::{ANSWER, Command, answer};
use crate::nic::error::{Error, Result};
use crate::verbs::{self, Context, ProtectionDomain};

/// libmlx5, never unloaded.
pub(super) fn library() -> Result<&'static Mlx5> {
    static LIBRARY: OnceLock<std::result::Result<Mlx5, Arc<LoadError>>> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| Mlx5::load().map_err(Arc::new));
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

    /// The event queue of the first completion vector; queues must name one though nobody waits for events.
    pub fn event_queue(&self) -> Result<u32> {
        let mut eqn = 0;
        // SAFETY: the context is open, `eqn` writable.
        let rc = unsafe { self.library.mlx5dv_devx_query_eqn(self.context.as_ptr(), 0, &mut eqn) };
        self.context.check("mlx5dv_devx_query_eqn", rc, "completion vector 0")?;
        Ok(eqn)
    }
}

/// A page of doorbell registers.
pub(super) struct Uar {
    device: Arc<Opened>,
    uar: NonNull<mlx5dv_devx_uar>,
}

// SAFETY: a handle; the register is written atomically.
unsafe impl Send for Uar {}
// SAFETY: as above.
unsafe impl Sync for Uar {}

impl Uar {
    /// Uncached: a doorbell is one 64-bit store that goes out at once. (Write-combining pages are for copying whole
    /// entries, which a GPU does not do.)
    pub fn new(device: &Arc<Opened>) -> Result<Uar> {
        const UNCACHED: u32 = 1; // MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC
        let context = device.context.as_ptr();
        // SAFETY: the context is open.
        let uar = unsafe { device.library.mlx5dv_devx_alloc_uar(context, UNCACHED) };
        let uar = NonNull::new(uar).ok_or_else(|| {
            let what = "a page of doorbell registers";
            device.context.failed("mlx5dv_devx_alloc_uar", what, verbs::last_errno())
        })?;
        Ok(Uar { device: device.clone(), uar })
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

    pub fn id(&self) -> u32 {
        // SAFETY: alive as long as `self`.
        unsafe { self.umem.as_ref() }.umem_id
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
