//! GPU code of an application.

use std::ffi::c_int;

use cudarc::driver::sys::CUfunction_attribute as Attribute;

use super::device::CudaDevice;
use super::driver::cu;
use super::graveyard::Grave;
use super::kernel::{Kernel, RawModule};
use crate::error::{Error, Result};

/// GPU code that an application loaded. It is unloaded when it was dropped and the device's streams have been idle once.
///
/// See [`Arg`](crate::Arg) for an example.
#[derive(Debug)]
pub struct Module {
    device: CudaDevice,
    raw: RawModule,
}

impl Module {
    /// One of the kernels that were named when it was loaded.
    ///
    /// # Errors
    /// [`Error::NoSuchKernel`](crate::Error::NoSuchKernel).
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        self.raw.kernel(name)
    }

    /// One of the kernels that were named when it was loaded, for launches with up to `bytes` bytes of dynamic shared memory a block
    /// ([`Dims::shared`](crate::Dims)): more than the 48 KiB that every kernel may have.
    ///
    /// # Errors
    /// [`Error::NoSuchKernel`](crate::Error::NoSuchKernel); [`Error::SharedMemory`](crate::Error::SharedMemory) if this GPU has less; what
    /// the driver says.
    pub fn kernel_with_shared(&self, name: &str, bytes: u32) -> Result<Kernel> {
        let kernel = self.raw.kernel(name)?;
        let most = self.device.capabilities().shared_memory;
        if bytes > most {
            let gpu = self.device.name().to_owned();
            return Err(Error::SharedMemory { kernel: kernel.name(), gpu, bytes, most });
        }
        self.device.bind()?;
        let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        // SAFETY: the module is loaded; the call takes plain numbers.
        unsafe { cu!(cuFuncSetAttribute(kernel.function()?, attribute, bytes))? };
        Ok(kernel)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        self.device.bury(Grave::Module(self.raw.handle()));
    }
}

impl CudaDevice {
    /// Loads GPU code of the application's own and the kernels of it that are named, now rather than at their first
    /// launch.
    ///
    /// # Errors
    /// [`Error::WrongArchitecture`](crate::Error::WrongArchitecture) if the image has no code for this GPU; what the driver says.
    pub fn load_module(&self, image: &'static [u8], kernels: &[&'static str]) -> Result<Module> {
        Ok(Module { device: self.clone(), raw: self.load_image(image, kernels)? })
    }
}
