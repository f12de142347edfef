//! DLPack, the exchange of tensors between frameworks: its structures, reading a tensor that a framework offers, and offering a
//! region. The memory belongs to who offers it, until the other side calls the deleter.

use std::ffi::{CStr, c_void};

use libmp::Region;
use libmp::gdsync::Device;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods};

use crate::array::{Array, Place};
use crate::dtype::DType;
use crate::error::{Result, argument};

const CPU: i32 = 1;
const CUDA: i32 = 2;
const CUDA_HOST: i32 = 3;
const CUDA_MANAGED: i32 = 13;

const NAME: &CStr = c"dltensor";

/// `DLTensor`.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device_kind: i32,
    device: i32,
    dimensions: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// What a tensor that is offered stands in.
struct Offer {
    managed: Managed,
    shape: Vec<i64>,
    /// Keeps the memory.
    _region: Region<u8>,
}

/// What an object with `__dlpack__` is.
pub fn read(object: &Bound<'_, PyAny>) -> Result<Array> {
    let (kind, number): (i32, i32) = object.call_method0("__dlpack_device__")?.extract()?;
    let place = match kind {
        CPU => Place::Host,
        CUDA => Place::Cuda(number as u32),
        CUDA_HOST | CUDA_MANAGED => Place::Host,
        other => {
            return Err(argument(
                "array",
                format!("memory of DLPack's device type {other}, expected the CPU's or CUDA's"),
            ));
        }
    };
    let capsule = match place {
        // The caller orders its work; nothing is waited for here.
        Place::Cuda(_) => {
            let stream = pyo3::types::PyDict::new(object.py());
            stream.set_item("stream", -1)?;
            object.call_method("__dlpack__", (), Some(&stream))?
        }
        Place::Host => object.call_method0("__dlpack__")?,
    };
    let capsule = capsule.cast_into::<PyCapsule>().map_err(PyErr::from)?;
    let managed = capsule.pointer_checked(Some(NAME))?.cast::<Managed>();
    // SAFETY: by DLPack's contract a capsule of this name holds a `DLManagedTensor`, which lives as long as the capsule, that
    // nobody has taken it out of.
    let tensor = unsafe { &managed.as_ref().tensor };
    let Tensor { data, dimensions, code, bits, lanes, shape, strides, byte_offset, .. } = *tensor;
    let count = usize::try_from(dimensions).unwrap_or_default();
    let list = |from: *const i64| -> Vec<isize> {
        if from.is_null() || count == 0 {
            return Vec::new();
        }
        // SAFETY: as above, one number for each dimension; strides may be NULL for an array in one piece.
        let numbers = unsafe { std::slice::from_raw_parts(from, count) };
        numbers.iter().map(|number| *number as isize).collect()
    };
    let dtype = DType::from_dlpack(code, bits).filter(|_| lanes == 1);
    let dtype = dtype.ok_or_else(|| {
        argument("array", format!("elements of DLPack's type {code} with {bits} bits"))
    })?;
    let shape: Vec<usize> = list(shape).iter().map(|size| *size as usize).collect();
    let in_bytes = |stride: &isize| stride * dtype.size as isize;
    let strides = (!strides.is_null()).then(|| list(strides).iter().map(in_bytes).collect());
    let address = (data as usize).wrapping_add(byte_offset as usize);
    Ok(Array {
        place,
        address,
        dtype,
        shape,
        strides,
        is_readonly: false,
        // The capsule gives the tensor back to its framework when it goes.
        owner: vec![object.clone().unbind(), capsule.into_any().unbind()],
    })
}

/// `__dlpack_device__` of a region.
pub fn device(region: &Region<u8>) -> (i32, i32) {
    let buffer = region.buffer();
    match (buffer.device(), buffer.host_address()) {
        (Device::Cuda(cuda), None) => (CUDA, cuda.ordinal() as i32),
        _ => (CPU, 0),
    }
}

/// `__dlpack__` of a region.
pub fn offer<'py>(
    py: Python<'py>,
    region: &Region<u8>,
    dtype: DType,
    shape: &[usize],
) -> Result<Bound<'py, PyAny>> {
    let buffer = region.buffer();
    let host = buffer.host_address().map(|address| address.as_ptr() as u64);
    let data = host.or(buffer.device_address()).unwrap_or_default() as *mut c_void;
    let (device_kind, device) = device(region);
    let (code, bits) = dtype.dlpack();
    let shape: Vec<i64> = shape.iter().map(|size| *size as i64).collect();
    let tensor = Tensor {
        data,
        device_kind,
        device,
        dimensions: shape.len() as i32,
        code,
        bits,
        lanes: 1,
        shape: std::ptr::null(),
        strides: std::ptr::null(),
        byte_offset: 0,
    };
    let managed = Managed { tensor, context: std::ptr::null_mut(), deleter: Some(delete) };
    let offer = Box::into_raw(Box::new(Offer { managed, shape, _region: region.clone() }));
    // SAFETY: the box was just made; its vector does not move any more.
    let managed = unsafe {
        (*offer).managed.tensor.shape = (*offer).shape.as_ptr();
        (*offer).managed.context = offer.cast();
        &raw mut (*offer).managed
    };
    // SAFETY: the pointer is not NULL, the name is static, and the destructor takes back what nobody took out.
    let capsule = unsafe { ffi::PyCapsule_New(managed.cast(), NAME.as_ptr(), Some(dropped)) };
    if capsule.is_null() {
        // SAFETY: nobody else knows it.
        unsafe { delete(managed) };
        return Err(PyErr::fetch(py).into());
    }
    // SAFETY: a new reference.
    Ok(unsafe { Bound::from_owned_ptr(py, capsule) })
}

/// The deleter: whoever took the tensor is through with it.
unsafe extern "C" fn delete(managed: *mut Managed) {
    // SAFETY: called once, for a tensor that `offer` made.
    drop(unsafe { Box::from_raw((*managed).context.cast::<Offer>()) });
}

/// The capsule goes: a consumer that took the tensor has renamed it.
unsafe extern "C" fn dropped(capsule: *mut ffi::PyObject) {
    // SAFETY: a capsule of `offer`; if it still has its name, nobody has taken the tensor.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) == 1 {
            let managed = ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr());
            delete(managed.cast());
        }
    }
}
