//! A way to write and copy device memory while every stream of the device is blocked.
//!
//! Streams share a few hardware channels (`CUDA_DEVICE_MAX_CONNECTIONS`, 8 by default). Once as many streams are blocked
//! in waits as there are channels, nothing else in their context gets through: neither a stream of highest priority, nor
//! a copy, nor a synchronous one. Measured on an H100 with driver 580: with 12 blocked streams all of these hang for
//! ever; a memory operation on a stream of a second context of the same device gets through in 0.2 ms with 12 and in
//! 0.7 ms with 100. So the watchdog, and the copies of software NICs, use a context of their own: one for each device, since making one
//! takes a tenth of a second and some hundred megabytes of the device.

use cudarc::driver::sys;

use super::driver::cu;
use crate::error::Result;

/// The second context of a device, with a stream for the watchdog. Others make their own in it.
pub(crate) struct SecondContext {
    context: sys::CUcontext,
    stream: sys::CUstream,
}

// SAFETY: driver handles that any thread may use after binding the context.
unsafe impl Send for SecondContext {}
// SAFETY: as for Send.
unsafe impl Sync for SecondContext {}

impl SecondContext {
    /// Leaves the context current on the calling thread that was so before. Everything else here leaves its own; every other call binds
    /// what it needs.
    pub fn new(device: sys::CUdevice) -> Result<SecondContext> {
        let (mut before, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: writes one handle.
        unsafe { cu!(cuCtxGetCurrent(&mut before))? };
        // SAFETY: the device handle is the driver's; no parameters; writes one handle, destroyed in `drop`.
        unsafe { cu!(cuCtxCreate_v4(&mut context, std::ptr::null_mut(), 0, device))? };
        let mut second = SecondContext { context, stream: std::ptr::null_mut() };
        // SAFETY: the new context is current; writes one handle.
        unsafe {
            cu!(cuStreamCreate(
                &mut second.stream,
                sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32
            ))?
        };
        // SAFETY: the context was current, or there was none.
        unsafe { cu!(cuCtxSetCurrent(before))? };
        Ok(second)
    }

    /// Enqueues a write of a 32-bit word of the device; visible at system scope.
    pub fn write32(&self, address: u64, value: u32) -> Result<()> {
        self.bind()?;
        // SAFETY: crate-internal; the address is that of a live word of the device.
        unsafe { cu!(cuStreamWriteValue32_v2(self.stream, address, value, 0)) }
    }

    /// Enqueues a write of a 64-bit word of the device; visible at system scope.
    pub fn write64(&self, address: u64, value: u64) -> Result<()> {
        self.bind()?;
        // SAFETY: crate-internal; the address is that of a live word of the device.
        unsafe { cu!(cuStreamWriteValue64_v2(self.stream, address, value, 0)) }
    }

    /// Makes it the current one of the calling thread.
    pub fn bind(&self) -> Result<()> {
        // SAFETY: the context lives as long as `self`.
        unsafe { cu!(cuCtxSetCurrent(self.context)) }
    }
}

impl Drop for SecondContext {
    fn drop(&mut self) {
        // SAFETY: destroyed once; its stream goes with it.
        if let Err(error) = unsafe { cu!(cuCtxDestroy_v2(self.context)) } {
            tracing::debug!("closing the second context: {error}");
        }
    }
}
