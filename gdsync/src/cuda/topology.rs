//! How two GPUs of this machine reach each other.

use std::ffi::c_int;

use cudarc::driver::sys;
use serde::Serialize;
use sys::CUdevice_P2PAttribute as Attribute;

use super::driver::{Driver, cu};
use crate::error::{Error, Result};

/// What one GPU can do with the memory of another.
///
/// ```no_run
/// use gdsync::PeerLink;
///
/// let link = PeerLink::between(0, 1)?; // opens neither GPU
/// println!("peer access: {}, native atomics, as over NVLink: {}", link.access, link.atomics);
/// # Ok::<(), gdsync::Error>(())
/// ```
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct PeerLink {
    /// Kernels, streams and copies of the one reach memory of the other.
    pub access: bool,
    /// Atomics between the two are native.
    pub atomics: bool,
    /// The driver's rank of the link, 0 the best.
    pub rank: u32,
}

impl PeerLink {
    /// What the GPU `from` can do with memory of the GPU `to`, by ordinal. Opens neither.
    ///
    /// # Errors
    /// No driver, no such device, or what the driver says.
    pub fn between(from: u32, to: u32) -> Result<PeerLink> {
        let (from_device, to_device) = (raw_device(from)?, raw_device(to)?);
        if from == to {
            return Ok(PeerLink { access: true, atomics: true, rank: 0 });
        }
        let get = |attribute: Attribute| -> Result<u32> {
            let mut value: c_int = 0;
            // SAFETY: both handles are the driver's; writes one int.
            unsafe { cu!(cuDeviceGetP2PAttribute(&mut value, attribute, from_device, to_device))? };
            Ok(value.max(0) as u32)
        };
        Ok(PeerLink {
            access: get(Attribute::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED)? != 0,
            atomics: get(Attribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED)? != 0,
            rank: get(Attribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK)?,
        })
    }
}

/// The driver's handle of a device; makes no context.
pub(super) fn raw_device(ordinal: u32) -> Result<sys::CUdevice> {
    let count = Driver::load()?.device_count();
    if ordinal >= count {
        return Err(Error::NoSuchDevice { ordinal, count });
    }
    let mut device = 0;
    // SAFETY: the driver is initialised and the ordinal in range; writes one handle.
    unsafe { cu!(cuDeviceGet(&mut device, ordinal as c_int))? };
    Ok(device)
}

/// A device's UUID; makes no context.
pub(super) fn uuid(device: sys::CUdevice) -> Result<[u8; 16]> {
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    // SAFETY: the handle is the driver's; writes 16 bytes.
    unsafe { cu!(cuDeviceGetUuid_v2(&mut uuid, device))? };
    Ok(uuid.bytes.map(|byte| byte as u8))
}
