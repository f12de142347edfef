//! The place where streams run and memory lives: a GPU, or the host playing one.

use std::fmt;

use crate::cuda::device::CudaDevice;
use crate::error::{Error, Result};

/// A GPU, or the host with the same operations.
///
/// ```
/// use gdsync::Device;
///
/// let device = Device::best();
/// let place = device.as_cuda().map_or("the host".to_owned(), |gpu| gpu.name().to_owned());
/// println!("running on {place}");
/// # Ok::<(), gdsync::Error>(())
/// ```
#[derive(Debug, Clone)]
pub enum Device {
    /// The CPU: host streams, host memory.
    Host,
    /// A GPU through the CUDA driver.
    Cuda(CudaDevice),
}

impl Device {
    /// The GPU with this ordinal.
    ///
    /// # Errors
    /// As [`CudaDevice::open`], and [`Error::NoGpuCode`] if this build has no GPU code.
    pub fn cuda(ordinal: u32) -> Result<Device> {
        mp_kernels::fatbin()?;
        CudaDevice::open(ordinal).map(Device::Cuda)
    }

    /// The first GPU if there is one that this build can use, otherwise the host. Why no GPU is used is logged.
    pub fn best() -> Device {
        Device::cuda(0).unwrap_or_else(|error| {
            match error {
                Error::NoDriver => tracing::info!("running on the host: {error}"),
                _ => tracing::warn!("running on the host: {error}"),
            }
            Device::Host
        })
    }

    /// Number of the GPU; `None`: the host. Two devices with the same are one.
    pub fn ordinal(&self) -> Option<u32> {
        self.as_cuda().map(CudaDevice::ordinal)
    }

    /// The GPU, if it is one.
    pub fn as_cuda(&self) -> Option<&CudaDevice> {
        match self {
            Device::Host => None,
            Device::Cuda(cuda) => Some(cuda),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Host => f.write_str("host"),
            Device::Cuda(cuda) => write!(f, "{cuda:?}"),
        }
    }
}
