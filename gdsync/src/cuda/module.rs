//! GPU code of an application.

use super::device::CudaDevice;
use super::graveyard::Grave;
use super::kernel::{Kernel, RawModule};
use crate::error::Result;

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
