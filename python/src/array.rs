//! Arrays of other libraries, as they describe themselves: by the buffer protocol (NumPy, bytearray, array, memoryview), DLPack
//! (PyTorch, CuPy, JAX) or the CUDA array interface (CuPy, Numba). Nothing is copied; the array is kept.

use std::ops::Range;
use std::ptr::NonNull;

use libmp::Region;
use libmp::gdsync::{Buffer, Device, Guest, Space};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMemoryView};

use crate::dlpack;
use crate::dtype::{BYTES, DType};
use crate::error::{Result, argument};
use crate::stream;

/// Whose memory it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Of the CPU.
    Host,
    /// Of the GPU with this number.
    Cuda(u32),
}

/// An array.
pub struct Array {
    pub place: Place,
    pub address: usize,
    pub dtype: DType,
    pub shape: Vec<usize>,
    /// In bytes; none for an array in one piece, in C's order.
    pub strides: Option<Vec<isize>>,
    pub is_readonly: bool,
    /// What keeps the memory.
    pub owner: Vec<Py<PyAny>>,
}

/// The framework that an array is of, by whose current stream its work is ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framework {
    Torch,
    CuPy,
    Other,
}

impl Framework {
    pub fn of(object: &Bound<'_, PyAny>) -> Framework {
        let module = object.get_type().module().map(|module| module.to_string());
        match module.as_deref().unwrap_or_default().split('.').next() {
            Some("torch") => Framework::Torch,
            Some("cupy") => Framework::CuPy,
            _ => Framework::Other,
        }
    }
}

impl Array {
    /// What an object is.
    pub fn of(object: &Bound<'_, PyAny>) -> Result<Array> {
        // Arrays of CuPy claim to have buffers, for machines on which the CPU reaches a GPU's memory.
        let is_on_a_gpu = object.hasattr("__cuda_array_interface__")?;
        // SAFETY: asks a live object whether it has the protocol.
        let has_buffers = unsafe { pyo3::ffi::PyObject_CheckBuffer(object.as_ptr()) } == 1;
        if has_buffers && !is_on_a_gpu {
            return Array::of_buffer(object);
        }
        if object.hasattr("__dlpack__")? && object.hasattr("__dlpack_device__")? {
            return dlpack::read(object);
        }
        if is_on_a_gpu {
            return Array::of_cuda(object);
        }
        let what = object.get_type().name()?;
        Err(argument(
            "array",
            format!(
                "{what} is no array: it has neither buffers nor __dlpack__ nor __cuda_array_interface__"
            ),
        ))
    }

    fn of_buffer(object: &Bound<'_, PyAny>) -> Result<Array> {
        // As long as the view lives, what it shows stays where it is.
        let view = PyMemoryView::from(object)?;
        let buffer = PyUntypedBuffer::get(&view)?;
        if buffer.suboffsets().is_some() {
            return Err(argument(
                "array",
                "it is made of pointers to rows: copy it into one piece",
            ));
        }
        let size = buffer.item_size();
        let format = buffer.format().to_string_lossy().into_owned();
        let shape = buffer.shape().to_vec();
        let strides = (!buffer.is_c_contiguous()).then(|| buffer.strides().to_vec());
        let dtype = match DType::from_format(&format, size) {
            Some(dtype) => dtype,
            None if strides.is_none() => BYTES,
            None => return Err(argument("array", format!("elements of format {format:?}"))),
        };
        let shape = if dtype == BYTES && size != 1 { vec![buffer.len_bytes()] } else { shape };
        Ok(Array {
            place: Place::Host,
            address: buffer.buf_ptr() as usize,
            dtype,
            shape,
            strides,
            is_readonly: buffer.readonly(),
            owner: vec![view.into_any().unbind()],
        })
    }

    fn of_cuda(object: &Bound<'_, PyAny>) -> Result<Array> {
        let interface = object.getattr("__cuda_array_interface__")?;
        let interface = interface.cast_into::<PyDict>().map_err(PyErr::from)?;
        let field = |name: &str| {
            let field = interface.get_item(name)?;
            field.ok_or_else(|| {
                argument("array", format!("its __cuda_array_interface__ has no {name:?}"))
            })
        };
        let typestr: String = field("typestr")?.extract()?;
        let dtype = DType::from_typestr(&typestr)
            .ok_or_else(|| argument("array", format!("elements of type {typestr:?}")))?;
        let (address, is_readonly): (usize, bool) = field("data")?.extract()?;
        let strides = match interface.get_item("strides")? {
            Some(strides) if !strides.is_none() => Some(strides.extract()?),
            _ => None,
        };
        let shape = field("shape")?.extract()?;
        let place = Place::Cuda(stream::gpu_of(address)?);
        let owner = vec![object.clone().unbind()];
        Ok(Array { place, address, dtype, shape, strides, is_readonly, owner })
    }

    /// The memory, and the parts of it that the elements are, in C's order of the array: one for an array in one piece.
    pub fn memory(self) -> Result<Memory> {
        let Array { place, address, dtype, shape, strides, is_readonly, owner } = self;
        let bytes = shape.iter().product::<usize>() * dtype.size;
        let (low, extent, runs) = match &strides {
            None => (0, bytes, None),
            Some(strides) => runs(&shape, strides, dtype.size)?,
        };
        let address = address.wrapping_add_signed(low);
        let region = match place {
            _ if extent == 0 => {
                let device = match place {
                    Place::Host => Device::Host,
                    Place::Cuda(number) => stream::cuda(number)?,
                };
                let _guest = Guest::enter();
                Region::from_buffer(Buffer::new(&device, Space::Device, 0)?)
            }
            Place::Host => {
                let address = NonNull::new(address as *mut u8)
                    .ok_or_else(|| argument("array", "its memory is at address 0"))?;
                // SAFETY: the array's memory, which its owner keeps; read-only memory is not written (`Memory::writable`).
                let buffer = unsafe {
                    Buffer::from_host_memory(&Device::Host, address, extent, Owner(owner))?
                };
                Region::from_buffer(buffer)
            }
            Place::Cuda(number) => {
                let device = stream::cuda(number)?;
                let _guest = Guest::enter();
                // SAFETY: as above.
                let buffer = unsafe {
                    Buffer::from_cuda_memory(&device, address as u64, extent, Owner(owner))?
                };
                Region::from_buffer(buffer)
            }
        };
        Ok(Memory { region, runs, dtype, shape, is_readonly })
    }
}

/// Memory of an array.
pub struct Memory {
    pub region: Region<u8>,
    /// Where the elements are in it, if it is more than these.
    pub runs: Option<Vec<Range<usize>>>,
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub is_readonly: bool,
}

/// Keeps objects of Python; they are let go of the next time that the interpreter's lock is held.
struct Owner(#[allow(dead_code, reason = "kept, not used")] Vec<Py<PyAny>>);

/// Where the elements of an array with strides begin before its address, how far they reach, and the runs of bytes that they are.
type Runs = (isize, usize, Option<Vec<Range<usize>>>);

fn runs(shape: &[usize], strides: &[isize], size: usize) -> Result<Runs> {
    if shape.contains(&0) {
        return Ok((0, 0, None));
    }
    // Inner dimensions that are in one piece are one run.
    let (mut run, mut outer) = (size, shape.len());
    while outer > 0 && (strides[outer - 1] == run as isize || shape[outer - 1] == 1) {
        run *= shape[outer - 1];
        outer -= 1;
    }
    let ends = shape.iter().zip(strides).map(|(size, stride)| (*size as isize - 1) * stride);
    let (low, high) = ends.fold((0, 0), |(low, high), end| (low + end.min(0), high + end.max(0)));
    let extent = (high - low) as usize + size;
    if outer == 0 {
        return Ok((low, extent, None));
    }
    let count: usize = shape[..outer].iter().product();
    // As many as libmp takes.
    if count > 65_536 {
        let what = format!("an array of {count} pieces, at most 65536: copy it into one piece");
        return Err(argument("array", what));
    }
    let mut runs: Vec<Range<usize>> = Vec::with_capacity(count);
    for number in 0..count {
        let (mut rest, mut at) = (number, -low);
        for dimension in (0..outer).rev() {
            at += (rest % shape[dimension]) as isize * strides[dimension];
            rest /= shape[dimension];
        }
        runs.push(at as usize..at as usize + run);
    }
    Ok((low, extent, Some(runs)))
}
