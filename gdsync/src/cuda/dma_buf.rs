//! Memory of a GPU as a dma-buf, by which an RDMA device reaches it without a kernel module of its own.

use std::os::fd::{FromRawFd, OwnedFd};

use cudarc::driver::sys;

use super::device::CudaDevice;
use super::driver::{cu, has_symbol};

/// What the driver exports begins and ends with pages of the host.
const PAGE: u64 = 64 << 10;

/// Exports `len` bytes of a GPU's own memory at `address`: the dma-buf, and where in it they begin.
///
/// # Errors
/// Why not, in a sentence: the driver, the GPU or its kernel module does not do it.
pub(crate) fn export(gpu: &CudaDevice, address: u64, len: usize) -> Result<(OwnedFd, u64), String> {
    if !has_symbol("cuMemGetHandleForAddressRange") {
        return Err("the CUDA driver has no cuMemGetHandleForAddressRange (CUDA 11.7)".to_owned());
    }
    if !gpu.capabilities().dma_buf {
        return Err(format!("the driver exports no memory of {gpu:?} as a dma-buf"));
    }
    let (mut base, mut size) = (0, 0);
    // SAFETY: writes two numbers; an address that is no device memory is refused.
    unsafe { cu!(cuMemGetAddressRange_v2(&mut base, &mut size, address)) }
        .map_err(|error| error.to_string())?;
    let begin = (address / PAGE * PAGE).max(base);
    let end = (address + len as u64).next_multiple_of(PAGE).min(base + size as u64);
    let kind = sys::CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
    let mut fd = -1i32;
    // SAFETY: writes one file descriptor; the range lies in one allocation.
    unsafe {
        let fd = (&raw mut fd).cast();
        cu!(cuMemGetHandleForAddressRange(fd, begin, (end - begin) as usize, kind, 0))
    }
    .map_err(|error| error.to_string())?;
    // SAFETY: the driver has just opened it for this caller.
    Ok((unsafe { OwnedFd::from_raw_fd(fd) }, address - begin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::memory::{Buffer, Space};

    #[test]
    #[ignore = "needs a GPU"]
    fn memory_of_a_gpu_is_exported_from_the_page_on_where_it_begins_or_it_is_said_why_not() {
        let device = Device::cuda(0).unwrap();
        let gpu = device.as_cuda().unwrap();
        let buffer = Buffer::<u8>::new(&device, Space::Device, 1 << 20).unwrap();
        let base = buffer.device_address().unwrap();
        for (at, len) in [(0, 1 << 20), (PAGE + 256, 100)] {
            match export(gpu, base + at, len) {
                Ok((fd, offset)) => {
                    println!("dma-buf {fd:?}, at {offset} of it");
                    assert!(gpu.capabilities().dma_buf && offset < PAGE && offset % 256 == 0);
                }
                Err(why) => {
                    println!("{why}");
                    assert!(!why.is_empty() && !why.contains('\n'), "{why}");
                }
            }
        }
    }
}
