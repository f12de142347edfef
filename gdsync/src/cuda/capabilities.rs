//! What a GPU and its driver can do, read from the driver's attributes: the facts on which paths are chosen.

use std::ffi::c_int;

use cudarc::driver::sys;
use serde::Serialize;
use sys::CUdevice_attribute as Attribute;

use super::driver::cu;
use crate::error::Result;

/// What a GPU and its driver can do.
///
/// ```
/// use gdsync::Device;
///
/// let device = Device::best();
/// match device.as_cuda().map(|gpu| gpu.capabilities()) {
///     Some(gpu) if gpu.gpudirect_rdma => println!("{}: adapters reach its memory", gpu.pci),
///     Some(gpu) => println!("{}: bytes for adapters are staged in host memory", gpu.pci),
///     None => println!("no GPU here"),
/// }
/// ```
#[derive(Debug, Clone, Default, Serialize)]
pub struct Capabilities {
    /// Compute capability, major and minor.
    pub compute: (u32, u32),
    /// Number of streaming multiprocessors.
    pub multiprocessors: u32,
    /// Device memory in bytes.
    pub memory: u64,
    /// Bytes of shared memory that a block can be given.
    pub shared_memory: u32,
    /// PCI address, for example "0000:0a:00.0".
    pub pci: String,
    /// Stream memory operations on 64-bit words.
    pub stream_mem_ops_64: bool,
    /// Streams can wait for "not (value OR mask)".
    pub wait_value_nor: bool,
    /// Waits on a stream can flush writes that a NIC made to this GPU.
    pub flush_remote_writes: bool,
    /// A NIC can reach this GPU's memory (GPUDirect RDMA).
    pub gpudirect_rdma: bool,
    /// Memory can be exported as a dma-buf.
    pub dma_buf: bool,
    /// Memory can be shared as a POSIX file descriptor.
    pub posix_fd_handles: bool,
    /// Memory can be shared over a multi-node NVLink fabric.
    pub fabric_handles: bool,
    /// Host memory of the process can be registered.
    pub host_register: bool,
    /// Kernels can reach any host memory without registration (HMM).
    pub pageable_access: bool,
    /// Atomics between GPU and CPU are native.
    pub host_atomics: bool,
    /// Cooperative launches.
    pub cooperative_launch: bool,
    /// The process runs under MPS, so kernels of several processes run at once.
    pub mps: bool,
}

impl Capabilities {
    pub(crate) fn read(device: sys::CUdevice) -> Result<Capabilities> {
        let get = |attribute: Attribute| -> Result<u32> {
            let mut value: c_int = 0;
            // SAFETY: writes one int; unknown attributes are refused by the driver.
            unsafe { cu!(cuDeviceGetAttribute(&mut value, attribute, device))? };
            Ok(value.max(0) as u32)
        };
        // A driver older than the attribute says "invalid value": the capability is absent.
        let has = |attribute: Attribute| get(attribute).is_ok_and(|value| value != 0);
        let mut memory = 0;
        // SAFETY: writes one size.
        unsafe { cu!(cuDeviceTotalMem_v2(&mut memory, device))? };
        let mut pci = [0; 32];
        // SAFETY: `pci` is 32 bytes long, which is what the call is told.
        unsafe { cu!(cuDeviceGetPCIBusId(pci.as_mut_ptr(), 32, device))? };
        Ok(Capabilities {
            compute: (
                get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            multiprocessors: get(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            memory: memory as u64,
            shared_memory: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            pci: super::text(&pci),
            stream_mem_ops_64: has(Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS),
            wait_value_nor: has(Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR),
            flush_remote_writes: has(Attribute::CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES),
            gpudirect_rdma: has(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED),
            dma_buf: has(Attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED),
            posix_fd_handles: has(
                Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
            ),
            fabric_handles: has(Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED),
            host_register: has(Attribute::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED),
            pageable_access: has(Attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS),
            host_atomics: has(Attribute::CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED),
            cooperative_launch: has(Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH),
            mps: has(Attribute::CU_DEVICE_ATTRIBUTE_MPS_ENABLED),
        })
    }

    /// Compute capability as "9.0".
    pub fn compute_capability(&self) -> String {
        format!("{}.{}", self.compute.0, self.compute.1)
    }
}
