//! Whether a GPU sees what an adapter wrote to its memory before it sees what the adapter wrote after: asked of the
//! driver, which knows the way over PCIe.

use std::ffi::c_int;
use std::fmt;

use cudarc::driver::sys::{CUdevice_attribute_enum as Attribute, cuDeviceGetAttribute};

use crate::cuda::device::CudaDevice;
use crate::cuda::driver::check;
use crate::error::Result;

/// What a kernel or a stream that has seen a completion must do before it reads data that an adapter wrote into its GPU's
/// memory. (What lies in host memory, queues and completions among it, needs nothing.)
///
/// See [`Mlx5Nic`](super::Mlx5Nic) for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IncomingWrites {
    /// Nothing: writes arrive in the order in which they were made.
    Ordered,
    /// Wait on a stream with the flush flag (`CU_STREAM_WAIT_VALUE_FLUSH`).
    FlushOnStream,
    /// `cuFlushGPUDirectRDMAWrites` from the CPU: kernels cannot wait for data by themselves.
    FlushByHost,
    /// There is no way: receive into host memory.
    NoFlush,
}

impl fmt::Display for IncomingWrites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IncomingWrites::Ordered => "in order, no flush needed",
            IncomingWrites::FlushOnStream => "unordered, streams can flush",
            IncomingWrites::FlushByHost => "unordered, only the CPU can flush",
            IncomingWrites::NoFlush => "unordered, and nothing flushes them",
        })
    }
}

impl IncomingWrites {
    /// Of this GPU.
    ///
    /// # Errors
    /// What the driver says.
    pub fn of(gpu: &CudaDevice) -> Result<IncomingWrites> {
        let attribute = |attribute: Attribute| {
            let mut value: c_int = 0;
            // SAFETY: writes one int; the device is open.
            let result = unsafe { cuDeviceGetAttribute(&mut value, attribute, gpu.raw()) };
            check("cuDeviceGetAttribute", result).map(|()| value)
        };
        Ok(IncomingWrites::decide(
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS)?,
            gpu.capabilities().flush_remote_writes,
        ))
    }

    /// `ordering`: CUGPUDirectRDMAWritesOrdering, 0 none, 100 for the GPU that owns the memory, 200 for all.
    /// `options`: CUflushGPUDirectRDMAWritesOptions, 1 by the host, 2 by memory operations.
    fn decide(ordering: c_int, options: c_int, streams_flush: bool) -> IncomingWrites {
        match (ordering, options) {
            (100.., _) => IncomingWrites::Ordered,
            (_, options) if options & 2 != 0 && streams_flush => IncomingWrites::FlushOnStream,
            (_, options) if options & 1 != 0 => IncomingWrites::FlushByHost,
            _ => IncomingWrites::NoFlush,
        }
    }
}

/// Sends out what the processor has combined of the calling thread's writes to memory of a device.
pub(super) fn flush_combined_writes() {
    // SAFETY: SSE is there on every x86-64; the instruction orders stores and does nothing else.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    // SAFETY: a barrier, which touches neither registers nor the stack.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("dsb st", options(nostack, preserves_flags));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_is_asked_for_only_where_writes_are_unordered_and_it_exists() {
        for options in 0..4 {
            assert_eq!(IncomingWrites::decide(100, options, false), IncomingWrites::Ordered);
            assert_eq!(IncomingWrites::decide(200, options, true), IncomingWrites::Ordered);
        }
        assert_eq!(IncomingWrites::decide(0, 3, true), IncomingWrites::FlushOnStream);
        assert_eq!(IncomingWrites::decide(0, 3, false), IncomingWrites::FlushByHost);
        assert_eq!(IncomingWrites::decide(0, 2, false), IncomingWrites::NoFlush);
        assert_eq!(IncomingWrites::decide(0, 0, true), IncomingWrites::NoFlush);
    }
}
