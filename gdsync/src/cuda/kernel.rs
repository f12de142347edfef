//! Entry points of loaded GPU code.

use std::collections::HashMap;
use std::ffi::CString;

use cudarc::driver::sys;

use super::driver::cu;
use crate::error::{Error, Result};

/// A loaded entry point. Valid while its module is: the embedded one as long as the device, an application's as long
/// as its module is loaded.
///
/// See [`Arg`](crate::Arg) for an example.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    function: sys::CUfunction,
    name: &'static str,
}

// SAFETY: a CUfunction is an immutable driver handle.
unsafe impl Send for Kernel {}
// SAFETY: as for Send.
unsafe impl Sync for Kernel {}

impl Kernel {
    pub(crate) fn function(&self) -> sys::CUfunction {
        self.function
    }

    /// The entry point's name.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

/// A loaded module that its holder must unload.
#[derive(Debug)]
pub(crate) struct RawModule {
    handle: sys::CUmodule,
    kernels: HashMap<&'static str, Kernel>,
}

// SAFETY: a CUmodule may be used from any thread with its context bound.
unsafe impl Send for RawModule {}
// SAFETY: as for Send.
unsafe impl Sync for RawModule {}

impl RawModule {
    /// Loads the image and the named kernels into the current context.
    pub fn load(image: &'static [u8], kernels: &[&'static str]) -> Result<RawModule> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: `image` is a whole image that lives for ever; the driver refuses what it cannot read.
        unsafe { cu!(cuModuleLoadFatBinary(&mut handle, image.as_ptr().cast()))? };
        let mut module = RawModule { handle, kernels: HashMap::new() };
        let loaded = kernels.iter().try_for_each(|name| module.load_kernel(name));
        if loaded.is_err() {
            // SAFETY: loaded just above; nothing of it runs.
            let _ = unsafe { cu!(cuModuleUnload(handle)) };
        }
        loaded.map(|()| module)
    }

    fn load_kernel(&mut self, name: &'static str) -> Result<()> {
        let symbol = CString::new(name).map_err(|_| Error::NoSuchKernel { name: name.into() })?;
        let mut function = std::ptr::null_mut();
        // SAFETY: the module is loaded; the name is zero-terminated.
        unsafe { cu!(cuModuleGetFunction(&mut function, self.handle, symbol.as_ptr()))? };
        // SAFETY: the function was just looked up.
        unsafe { cu!(cuFuncLoad(function))? };
        self.kernels.insert(name, Kernel { function, name });
        Ok(())
    }

    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        self.kernels.get(name).copied().ok_or_else(|| Error::NoSuchKernel { name: name.into() })
    }

    pub fn handle(&self) -> sys::CUmodule {
        self.handle
    }
}
