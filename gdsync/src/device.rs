//! The place where streams run and memory lives: a GPU, or the host playing one.

use std::fmt;

use bytemuck::Pod;

use crate::cuda::device::CudaDevice;
use crate::error::{Error, Result};
use crate::memory::{Buffer, Space};
use crate::stream::Stream;
use crate::watchdog::Watchdog;

/// A GPU, or the host with the same operations.
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

    /// The GPU, if it is one.
    pub fn as_cuda(&self) -> Option<&CudaDevice> {
        match self {
            Device::Host => None,
            Device::Cuda(cuda) => Some(cuda),
        }
    }

    /// Allocates `len` zeroed elements in the device's own memory.
    ///
    /// # Errors
    /// As [`Buffer::new`].
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        Buffer::new(self, Space::Device, len)
    }

    /// Allocates `len` zeroed elements of host memory that the device and other processes can reach.
    ///
    /// # Errors
    /// As [`Buffer::new`].
    pub fn alloc_pinned<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        Buffer::new(self, Space::Pinned, len)
    }

    /// A stream whose waits nobody watches; [`Stream::synchronize`] still has a deadline.
    ///
    /// # Errors
    /// What the driver or the system says.
    pub fn stream(&self) -> Result<Stream> {
        Stream::new(self, None)
    }

    /// A stream whose waits are released when `watchdog` is aborted.
    ///
    /// # Errors
    /// What the driver or the system says.
    pub fn watched_stream(&self, watchdog: &Watchdog) -> Result<Stream> {
        Stream::new(self, Some(watchdog))
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
