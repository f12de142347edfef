//! Descriptions of tiles that a GPU copies into shared memory by itself (compute capability 9.0): what `cp.async.bulk.tensor` is given
//! (CUDA driver API, "Tensor Map Object Management"; PTX ISA, section "Tensors").

use std::ffi::c_void;

use cudarc::driver::sys;

use super::driver::{cu, has_symbol};
use crate::error::{Error, Result};
use crate::memory::Buffer;

/// Most dimensions of an array.
const MOST: usize = 5;

/// An array of `f64` in GPU memory and the tile of it that one instruction copies; a parameter of a kernel, declared there as
/// `const __grid_constant__ CUtensorMap`. The array must live as long as kernels that are given it run.
///
/// ```no_run
/// use gdsync::{Device, TensorMap};
///
/// let gpu = Device::cuda(0)?;
/// // 64 rows of 100 numbers, each row 128 numbers behind the one before, in tiles of 8 rows of 32.
/// let memory = gpu.alloc::<f64>(64 * 128)?;
/// let map = TensorMap::new(&memory, &[100, 64], &[128], &[32, 8])?;
/// println!("{map:?}");
/// # Ok::<(), gdsync::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct TensorMap(sys::CUtensorMap);

impl TensorMap {
    /// Of the array of `dims` numbers that begins where `memory` does: along its first dimension they lie side by side, along each
    /// further one `strides` numbers apart. A tile has `tile` numbers; what of it lies outside the array arrives as zero.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the driver or the memory has no such copies, and for an array that does not fit `memory`;
    /// [`Error::Cuda`] for what the driver refuses: rows or tiles of no multiple of 16 bytes, a tile of more than 256 numbers along
    /// one dimension.
    pub fn new(memory: &Buffer<f64>, dims: &[u64], strides: &[u64], tile: &[u32]) -> Result<Self> {
        let unsupported = |why: &str| Error::Unsupported {
            what: "copying tiles of an array",
            place: format!("{:?}", memory.device()),
            why: why.to_owned(),
        };
        let address = memory.device_address().filter(|_| memory.device().as_cuda().is_some());
        let address = address.ok_or_else(|| unsupported("its memory is not a GPU's"))?;
        if !has_symbol("cuTensorMapEncodeTiled") {
            return Err(unsupported("the CUDA driver has no cuTensorMapEncodeTiled (CUDA 12.0)"));
        }
        let rank = dims.len();
        if !(1..=MOST).contains(&rank) || strides.len() + 1 != rank || tile.len() != rank {
            return Err(unsupported(
                "an array has one to five dimensions, a stride for each but the first, a tile of as many",
            ));
        }
        let steps = [1].into_iter().chain(strides.iter().copied());
        let last: u64 = dims
            .iter()
            .zip(steps)
            .map(|(&count, step)| count.saturating_sub(1).saturating_mul(step))
            .sum();
        if last >= memory.len() as u64 {
            return Err(unsupported("the array is larger than its memory"));
        }
        let bytes: Vec<u64> = strides.iter().map(|stride| stride.saturating_mul(8)).collect();
        let each = [1u32; MOST];
        let mut map = sys::CUtensorMap { opaque: [0; 16] };
        // SAFETY: every list has as many items as the rank asks for; the driver writes one description.
        unsafe {
            cu!(cuTensorMapEncodeTiled(
                &mut map,
                sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
                rank as u32,
                address as *mut c_void,
                dims.as_ptr(),
                bytes.as_ptr(),
                tile.as_ptr(),
                each.as_ptr(),
                sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
                sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            ))
        }?;
        Ok(Self(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;

    #[test]
    fn a_map_of_host_memory_is_refused() {
        let memory = Device::Host.alloc::<f64>(64).unwrap();
        let error = TensorMap::new(&memory, &[8, 8], &[8], &[2, 2]).unwrap_err();
        assert!(error.to_string().contains("not a GPU's"), "{error}");
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn a_map_says_what_does_not_fit() {
        let memory = Device::cuda(0).unwrap().alloc::<f64>(64).unwrap();
        let map = |dims: &[u64], strides: &[u64], tile: &[u32]| {
            TensorMap::new(&memory, dims, strides, tile)
        };
        map(&[8, 8], &[8], &[4, 2]).unwrap();
        for (dims, strides, tile, word) in [
            (&[8, 9][..], &[8][..], &[4, 2][..], "larger"),
            (&[8, 8], &[8, 8], &[4, 2], "stride"),
            (&[], &[], &[], "dimensions"),
        ] {
            let error = map(dims, strides, tile).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        }
        assert!(matches!(map(&[8, 7], &[9], &[4, 2]).unwrap_err(), Error::Cuda { .. }));
    }
}
