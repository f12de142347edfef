//! Entry points of loaded GPU code, and of kernels that the host compiler made.

use std::collections::HashMap;
use std::ffi::CString;

use cudarc::driver::sys;

use super::driver::cu;
use crate::error::{Error, Result};
use crate::host::kernel::HostEntry;
use crate::launch::Dims;

/// An entry point: of GPU code, valid while its module is – the embedded one as long as the device, an application's as long
/// as its module is loaded –, or of the host's ([`Kernel::host`]).
///
/// See [`Arg`](crate::Arg) for an example.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    code: Code,
    name: &'static str,
    /// It begins with `mp::begin_in_turn`, and knows that its blocks and threads have one dimension.
    in_turn: bool,
    /// It waits there, so that it may be launched while what is in front of it in its stream runs.
    early: bool,
}

#[derive(Debug, Clone, Copy)]
enum Code {
    Gpu(sys::CUfunction),
    Host(HostEntry),
}

// SAFETY: a CUfunction is an immutable driver handle, and a function is code.
unsafe impl Send for Kernel {}
// SAFETY: as for Send.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// The same source compiled for the CPU, for host streams: `entry` is what `MP_HOST_KERNEL(name)` of `mp/host/launch.hpp`
    /// exports as `name_on_host`. Each GPU thread is a thread of the host, so a grid has tens to a few hundred of them.
    ///
    /// # Safety
    /// `entry` was made by that macro, and its code stays loaded as long as the program runs.
    pub unsafe fn host(name: &'static str, entry: HostEntry) -> Kernel {
        Kernel { code: Code::Host(entry), name, in_turn: false, early: false }
    }

    pub(crate) fn function(&self) -> Result<sys::CUfunction> {
        match self.code {
            Code::Gpu(function) => Ok(function),
            Code::Host(_) => Err(self.elsewhere("a GPU", "its code is for the host")),
        }
    }

    pub(crate) fn entry(&self) -> Result<HostEntry> {
        match self.code {
            Code::Host(entry) => Ok(entry),
            Code::Gpu(_) => Err(self.elsewhere(
                "the host",
                "its code is for a GPU; Kernel::host makes one of code for the host, and Stream::call runs closures",
            )),
        }
    }

    pub(crate) fn elsewhere(&self, place: &str, why: &str) -> Error {
        Error::Unsupported {
            what: "launching a kernel",
            place: place.into(),
            why: format!("{}: {why}", self.name),
        }
    }

    /// Whether it may be launched before what is in front of it has ended.
    pub(crate) fn is_early(&self) -> bool {
        self.early
    }

    /// Refuses dimensions of which the kernel's code knows that they are not there.
    pub(crate) fn check(&self, dims: Dims) -> Result<()> {
        match self.in_turn && !dims.is_linear() {
            true => Err(self.elsewhere("a GPU", "its blocks and threads have one dimension")),
            false => Ok(()),
        }
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
    /// Loads the image and the named kernels into the current context. `in_turn`: they begin with `mp::begin_in_turn`.
    pub fn load(
        image: &'static [u8],
        kernels: &[&'static str],
        in_turn: bool,
    ) -> Result<RawModule> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: `image` is a whole image that lives for ever; the driver refuses what it cannot read.
        unsafe { cu!(cuModuleLoadFatBinary(&mut handle, image.as_ptr().cast()))? };
        let mut module = RawModule { handle, kernels: HashMap::new() };
        let loaded = kernels.iter().try_for_each(|name| module.load_kernel(name, in_turn));
        if loaded.is_err() {
            // SAFETY: loaded just above; nothing of it runs.
            let _ = unsafe { cu!(cuModuleUnload(handle)) };
        }
        loaded.map(|()| module)
    }

    fn load_kernel(&mut self, name: &'static str, in_turn: bool) -> Result<()> {
        let symbol = CString::new(name).map_err(|_| Error::NoSuchKernel { name: name.into() })?;
        let mut function = std::ptr::null_mut();
        // SAFETY: the module is loaded; the name is zero-terminated.
        unsafe { cu!(cuModuleGetFunction(&mut function, self.handle, symbol.as_ptr()))? };
        // SAFETY: the function was just looked up.
        unsafe { cu!(cuFuncLoad(function))? };
        // What was compiled for an older GPU does not wait there (PTX ISA, "griddepcontrol": sm_90).
        let mut compiled_for = 0;
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_PTX_VERSION;
        // SAFETY: writes one number.
        unsafe { cu!(cuFuncGetAttribute(&mut compiled_for, attribute, function))? };
        let early = in_turn && compiled_for >= 90;
        self.kernels.insert(name, Kernel { code: Code::Gpu(function), name, in_turn, early });
        Ok(())
    }

    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        self.kernels.get(name).copied().ok_or_else(|| Error::NoSuchKernel { name: name.into() })
    }

    pub fn handle(&self) -> sys::CUmodule {
        self.handle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_begin_in_turn_are_launched_in_one_dimension() {
        let of = |in_turn| {
            let code = Code::Gpu(std::ptr::null_mut());
            Kernel { code, name: "mp_pieces", in_turn, early: false }
        };
        let line = Dims::linear(3, 32);
        of(true).check(line).unwrap();
        let wide = [
            Dims { grid: (3, 2, 1), ..line },
            Dims { grid: (3, 1, 2), ..line },
            Dims { block: (32, 2, 1), ..line },
            Dims { block: (32, 1, 2), ..line },
        ];
        for dims in wide {
            of(false).check(dims).unwrap();
            let said = of(true).check(dims).unwrap_err().to_string();
            assert!(
                said.contains("mp_pieces: its blocks and threads have one dimension"),
                "{said}"
            );
        }
    }
}
