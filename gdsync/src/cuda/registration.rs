//! Host memory that the driver knows. It takes no memory twice, and one registration serves all devices of the process: who registers the same bytes
//! again shares it, and the last one takes it back.

use std::ptr::NonNull;
use std::sync::Mutex;

use super::device::{CudaDevice, lock};
use super::driver::cu;
use crate::error::Result;

struct Registration {
    address: usize,
    len: usize,
    /// Flags beyond the usual ones.
    kind: u32,
    /// The device in whose context it was made.
    ordinal: u32,
    users: usize,
}

static KNOWN: Mutex<Vec<Registration>> = Mutex::new(Vec::new());

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
    let (address, ordinal) = (host.as_ptr() as usize, device.ordinal());
    let mut known = lock(&KNOWN);
    let same = |it: &&mut Registration| (it.address, it.len, it.kind) == (address, len, kind);
    let shared = known.iter_mut().find(same);
    // One that is being closed gives back what it has registered.
    let by = shared.as_ref().and_then(|it| CudaDevice::opened(it.ordinal));
    match shared {
        Some(shared) if by.is_some() => shared.users += 1,
        _ => {
            let flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | kind;
            // SAFETY: the caller's promise.
            unsafe { cu!(cuMemHostRegister_v2(host.as_ptr().cast(), len, flags))? };
            known.push(Registration { address, len, kind, ordinal, users: 1 });
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
    Ok((remote, by.filter(|by| by.ordinal() != ordinal)))
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
    let Some(at) = known.iter().position(|it| it.address == host as usize) else { return Ok(()) };
    known[at].users -= 1;
    if known[at].users > 0 {
        return Ok(());
    }
    known.swap_remove(at);
    // SAFETY: the caller's promise, and nobody else has it registered.
    unsafe { cu!(cuMemHostUnregister(host.cast())) }
}
