//! What works on the levels: a GPU, or in tests the host, for whose compiler the kernels are the same C++ (`tests/host`).

use gdsync::{Arg, Buffer, CudaDevice, Device, Dims, Kernel, Module, Stream};

use super::error::CudaError;
use super::kernels::fatbin;

/// What works on the levels.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub device: Device,
    pub name: String,
    pub multiprocessors: u32,
    /// Bytes.
    pub memory: u64,
    /// Bytes that a block may have.
    pub shared_memory: u32,
    /// The same, for blocks that have tiles copied; 0 where nothing copies tiles by itself.
    pub tile_memory: u32,
    /// The same, for blocks that run together and meet; 0 where none do.
    pub together_memory: u32,
    /// The version of its instructions.
    pub compute: (u32, u32),
}

/// The first GPUs that copy tiles by themselves.
const TILES: (u32, u32) = (9, 0);

/// The code of a machine.
pub(super) enum Code {
    Gpu(Module),
    #[cfg(test)]
    Host,
}

impl Machine {
    /// The GPU.
    pub fn gpu(device: CudaDevice) -> Self {
        let name = device.name().to_owned();
        let able = device.capabilities().clone();
        Self {
            device: Device::Cuda(device),
            name,
            multiprocessors: able.multiprocessors,
            memory: able.memory,
            shared_memory: able.shared_memory,
            tile_memory: if able.compute >= TILES { able.shared_memory } else { 0 },
            together_memory: if able.cooperative_launch { able.shared_memory } else { 0 },
            compute: able.compute,
        }
    }

    /// Memory for `len` values, which are any.
    ///
    /// # Errors
    /// What the driver says.
    pub fn alloc(&self, len: usize) -> Result<Buffer<f64>, CudaError> {
        let memory = self.device.alloc::<f64>(len)?;
        #[cfg(test)]
        super::host::spoil(&memory);
        Ok(memory)
    }

    /// The code of the kernels `names`.
    ///
    /// # Errors
    /// [`CudaError::NotBuilt`], or what the driver says.
    pub fn load(&self, names: &[&'static str]) -> Result<Code, CudaError> {
        match self.device.as_cuda() {
            Some(gpu) => Ok(Code::Gpu(gpu.load_module(fatbin()?, names)?)),
            #[cfg(test)]
            None => Ok(Code::Host),
            #[cfg(not(test))]
            None => Err(CudaError::NotBuilt),
        }
    }

    /// Enqueues a kernel.
    ///
    /// # Safety
    /// As for [`Stream::launch`].
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        kernel: &Kernel,
        dims: Dims,
        args: &[Arg<'_>],
    ) -> Result<(), CudaError> {
        #[cfg(test)]
        if self.device.as_cuda().is_none() {
            // SAFETY: the caller's promise.
            return unsafe { super::host::launch(stream, kernel, dims, args) };
        }
        // SAFETY: the caller's promise.
        Ok(unsafe { stream.launch(kernel, dims, args) }?)
    }

    /// Enqueues a kernel whose blocks run together and meet.
    ///
    /// # Safety
    /// As for [`Stream::launch_together`].
    pub unsafe fn launch_together(
        &self,
        stream: &Stream,
        kernel: &Kernel,
        dims: Dims,
        args: &[Arg<'_>],
    ) -> Result<(), CudaError> {
        if self.device.as_cuda().is_none() {
            // SAFETY: the caller's promise.
            return unsafe { self.launch(stream, kernel, dims, args) };
        }
        // SAFETY: the caller's promise.
        Ok(unsafe { stream.launch_together(kernel, dims, args) }?)
    }

    /// Whether the machine can run `blocks` of `threads` threads and `shared` bytes of `kernel` at once, which a block may have: the
    /// host can.
    ///
    /// # Errors
    /// What the driver says.
    pub fn runs_together(
        &self,
        kernel: &Kernel,
        (blocks, threads, shared): (u32, u32, u32),
    ) -> Result<bool, CudaError> {
        match self.device.as_cuda() {
            Some(gpu) => Ok(gpu.co_resident_blocks(kernel, threads, shared)? >= blocks),
            None => Ok(true),
        }
    }
}

impl Code {
    /// A kernel of it.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn kernel(&self, name: &'static str) -> Result<Kernel, CudaError> {
        match self {
            Self::Gpu(module) => Ok(module.kernel(name)?),
            #[cfg(test)]
            Self::Host => Ok(super::host::kernel(name)),
        }
    }

    /// A kernel whose blocks have `bytes` of shared memory.
    ///
    /// # Errors
    /// If there is none of that name; what the driver says.
    pub fn kernel_with_shared(&self, name: &'static str, bytes: u32) -> Result<Kernel, CudaError> {
        match self {
            Self::Gpu(module) => Ok(module.kernel_with_shared(name, bytes)?),
            #[cfg(test)]
            Self::Host => Ok(super::host::kernel(name)),
        }
    }

    /// Whether there are kernels that march through columns: the host has none of their copies.
    pub fn has_columns(&self) -> bool {
        matches!(self, Self::Gpu(_))
    }
}
