//! Host memory that the driver knows. It takes no memory twice, and one registration serves all devices of the process: who registers the same bytes
//! again shares it, and the last one takes it back.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Mutex;

use super::device::{CudaDevice, WeakDevice, lock};
use super::driver::cu;
use crate::error::Result;

struct Registration {
    len: usize,
    /// Flags beyond the usual ones.
    kind: u32,
    /// In its context it was made, and ends.
    by: WeakDevice,
    users: usize,
}

/// By their addresses.
static KNOWN: Mutex<BTreeMap<usize, Registration>> = Mutex::new(BTreeMap::new());

/// Makes host memory reachable for a device: the device's address of it, and whose registration it is if another device has made it, which has to stay open.
/// `kind` adds flags to the usual ones.
///
/// # Errors
/// What the driver says, as of memory that overlaps what is registered without being the same.
///
/// # Safety
/// `len` bytes at `host` stay mapped until [`unregister`] is called, once for each call of this.
pub(crate) unsafe fn register(
    device: &CudaDevice,
    host: NonNull<u8>,
    len: usize,
    kind: u32,
) -> Result<(u64, Option<CudaDevice>)> {
    use cudarc::driver::sys::{CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_PORTABLE};
    device.bind()?;
    let address = host.as_ptr() as usize;
    let mut known = lock(&KNOWN);
    let shared = known.get_mut(&address).filter(|it| (it.len, it.kind) == (len, kind));
    // What a device that is being closed has registered the driver refuses until it is given back.
    let by = shared.as_ref().and_then(|it| it.by.upgrade());
    match shared {
        Some(shared) if by.is_some() => shared.users += 1,
        _ => {
            let flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | kind;
            // SAFETY: the caller's promise.
            unsafe { cu!(cuMemHostRegister_v2(host.as_ptr().cast(), len, flags))? };
            known.insert(address, Registration { len, kind, by: device.downgrade(), users: 1 });
        }
    }
    drop(known);
    let mut remote = 0;
    // SAFETY: the range is registered; writes one address.
    let mapped = unsafe { cu!(cuMemHostGetDevicePointer_v2(&mut remote, host.as_ptr().cast(), 0)) };
    if let Err(error) = mapped {
        // SAFETY: as above, and nobody uses it by this call.
        let _ = unsafe { unregister(host.as_ptr()) };
        return Err(error);
    }
    Ok((remote, by.filter(|by| by.ordinal() != device.ordinal())))
}

/// Takes back one registration of the memory at an address. Some device's context must be current.
///
/// # Errors
/// What the driver says.
///
/// # Safety
/// [`register`] was called for it, and no device uses it by that call any more.
pub(crate) unsafe fn unregister(host: *mut u8) -> Result<()> {
    let mut known = lock(&KNOWN);
    let Some(registration) = known.get_mut(&(host as usize)) else { return Ok(()) };
    registration.users -= 1;
    if registration.users > 0 {
        return Ok(());
    }
    known.remove(&(host as usize));
    // SAFETY: the caller's promise, and nobody else has it registered.
    unsafe { cu!(cuMemHostUnregister(host.cast())) }
}
