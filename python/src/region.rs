//! Regions: memory for communication, of another library's array or allocated here, seen as an array.

use std::ffi::{CString, c_int, c_void};
use std::ops::Range;
use std::ptr;

use libmp::Region;
use pyo3::exceptions::{PyAttributeError, PyBufferError, PyIndexError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySlice};

use crate::array::{Array, Framework, Memory};
use crate::dlpack;
use crate::dtype::DType;
use crate::error::{Result, argument};
use crate::stream;

/// Memory for communication. `numpy.asarray`, `torch.from_dlpack` and `cupy.asarray` see it as an array, without a copy.
///
/// An array of another library becomes one by `Communicator.region`, and wherever memory is asked for; the array is kept as long
/// as something may use it. Memory that the library allocates, `Communicator.zeros`, other processes of the host can map:
/// messages then go straight into it, and windows are made of it.
#[pyclass(name = "Region", module = "libmp", frozen)]
pub struct PyRegion {
    pub region: Region<u8>,
    pub runs: Option<Vec<Range<usize>>>,
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub is_readonly: bool,
    pub framework: Framework,
}

impl PyRegion {
    fn of(memory: Memory, framework: Framework) -> PyRegion {
        let Memory { region, runs, dtype, shape, is_readonly } = memory;
        PyRegion { region, runs, dtype, shape, is_readonly, framework }
    }

    /// Memory of the library.
    pub fn made(region: Region<u8>, dtype: DType, shape: Vec<usize>) -> PyRegion {
        let framework = Framework::Other;
        PyRegion { region, runs: None, dtype, shape, is_readonly: false, framework }
    }

    /// What an object is, which is a region or an array.
    pub fn from(object: &Bound<'_, PyAny>) -> Result<PyRegion> {
        if let Ok(region) = object.cast::<PyRegion>() {
            return Ok(region.get().clone());
        }
        let memory = Array::of(object)?.memory()?;
        Ok(PyRegion::of(memory, Framework::of(object)))
    }

    /// The same, of which the library writes.
    pub fn written(object: &Bound<'_, PyAny>) -> Result<PyRegion> {
        let region = PyRegion::from(object)?;
        match region.is_readonly {
            true => Err(argument("array", "is read-only, and would be written")),
            false => Ok(region),
        }
    }

    /// The memory, which is in one piece.
    pub fn whole(&self) -> Result<&Region<u8>> {
        match &self.runs {
            None => Ok(&self.region),
            Some(runs) => {
                let what = format!(
                    "is in {} pieces: make it one, as by `numpy.ascontiguousarray`; only prepared sends and receives take pieces",
                    runs.len()
                );
                Err(argument("array", what))
            }
        }
    }

    fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// The steps from one element to the next, in bytes, of each dimension.
    fn strides(&self) -> Vec<isize> {
        let mut strides = vec![self.dtype.size as isize; self.shape.len()];
        for at in (0..self.shape.len().saturating_sub(1)).rev() {
            strides[at] = strides[at + 1] * self.shape[at + 1] as isize;
        }
        strides
    }

    fn address(&self) -> usize {
        let buffer = self.region.buffer();
        let host = buffer.host_address().map(|address| address.as_ptr() as usize);
        host.or(buffer.device_address().map(|address| address as usize)).unwrap_or_default()
    }
}

impl Clone for PyRegion {
    fn clone(&self) -> PyRegion {
        PyRegion {
            region: self.region.clone(),
            runs: self.runs.clone(),
            shape: self.shape.clone(),
            ..*self
        }
    }
}

#[pymethods]
impl PyRegion {
    /// How many elements it has in each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyTuple>> {
        pyo3::types::PyTuple::new(py, &self.shape)
    }

    /// The name of the type of its elements.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name
    }

    /// Its elements' size in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.count() * self.dtype.size
    }

    /// Where it is: "cpu" or "cuda:NUMBER".
    #[getter]
    fn device(&self) -> String {
        let (kind, number) = dlpack::device(&self.region);
        if kind == 1 { "cpu".into() } else { format!("cuda:{number}") }
    }

    /// As an array of NumPy, without a copy.
    fn numpy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("numpy")?.call_method1("asarray", (slf,))
    }

    /// As a tensor of PyTorch, without a copy.
    fn torch<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("torch")?.call_method1("from_dlpack", (slf,))
    }

    /// As an array of CuPy, without a copy.
    fn cupy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("cupy")?.call_method1("from_dlpack", (slf,))
    }

    fn __len__(&self) -> PyResult<usize> {
        let first = self.shape.first().copied();
        first.ok_or_else(|| pyo3::exceptions::PyTypeError::new_err("a region of no dimension"))
    }

    /// A part of it along the first dimension, sharing the memory: `region[2:5]`.
    fn __getitem__(&self, index: &Bound<'_, PySlice>) -> Result<PyRegion> {
        self.whole()?;
        let Some(&first) = self.shape.first() else {
            return Err(PyIndexError::new_err("a region of no dimension has no parts").into());
        };
        let range = index.indices(first as isize)?;
        if range.step != 1 {
            return Err(argument("index", format!("a step of {}, expected 1", range.step)));
        }
        let start = range.start as usize;
        let stop = (range.stop as usize).max(start);
        let row = self.shape[1..].iter().product::<usize>() * self.dtype.size;
        let region = self.region.slice(start * row..stop * row)?;
        let mut shape = self.shape.clone();
        shape[0] = stop - start;
        Ok(PyRegion { region, shape, ..self.clone() })
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        dlpack::device(&self.region)
    }

    /// A capsule for `from_dlpack` of other libraries. The memory is used in the order of whatever streams its user names: nothing is
    /// waited for here.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<&Bound<'py, PyAny>>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        let _ = (stream, max_version);
        let here = dlpack::device(&self.region);
        if self.is_readonly || copy == Some(true) || dl_device.is_some_and(|there| there != here) {
            let what =
                "a region is offered as it is: not read-only memory, no copy, no other device";
            return Err(PyBufferError::new_err(what).into());
        }
        dlpack::offer(py, self.whole()?, self.dtype, &self.shape)
    }

    /// What CuPy and Numba look at.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        if self.region.buffer().host_address().is_some() || self.dtype.format().is_none() {
            let what = "memory of the host, or of a type that NumPy does not have";
            return Err(PyAttributeError::new_err(what).into());
        }
        self.whole()?;
        let interface = PyDict::new(py);
        interface.set_item("shape", pyo3::types::PyTuple::new(py, &self.shape)?)?;
        interface.set_item("typestr", self.dtype.typestr)?;
        interface.set_item("data", (self.address(), self.is_readonly))?;
        interface.set_item("strides", py.None())?;
        interface.set_item("version", 3)?;
        Ok(interface)
    }

    /// The buffer protocol.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let region = slf.get();
        let refused = |what: &'static str| Err(PyBufferError::new_err(what));
        if view.is_null() {
            return refused("no view to fill");
        }
        if region.region.buffer().host_address().is_none() && !region.region.is_empty() {
            return refused("memory of a GPU: use torch.from_dlpack or cupy.asarray");
        }
        if region.is_readonly && flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
            return refused("a read-only region");
        }
        if region.runs.is_some() {
            return refused("a region in pieces");
        }
        let any = flags & ffi::PyBUF_ANY_CONTIGUOUS == ffi::PyBUF_ANY_CONTIGUOUS;
        let fortran = flags & ffi::PyBUF_F_CONTIGUOUS == ffi::PyBUF_F_CONTIGUOUS;
        if fortran && !any && region.shape.len() > 1 {
            return refused("a region is in C's order, not in Fortran's");
        }
        // Bytes of what the protocol has no name for.
        let (format, size) = match region.dtype.format() {
            Some(format) => (format, region.dtype.size),
            None => ("B", 1),
        };
        let mut shape: Vec<isize> = region.shape.iter().map(|size| *size as isize).collect();
        if size != region.dtype.size
            && let Some(last) = shape.last_mut()
        {
            *last *= region.dtype.size as isize;
        }
        let mut strides = region.strides();
        if size != region.dtype.size
            && let Some(last) = strides.last_mut()
        {
            *last = 1;
        }
        let format = CString::new(format).unwrap_or_default();
        let mut lists = Box::new(Lists { shape, strides, format });
        let wants = |flag: c_int| flags & flag == flag;
        // SAFETY: the interpreter's view, which is valid for writes; what it points to lives until `__releasebuffer__`, and the
        // region as long as the view holds it.
        unsafe {
            (*view).buf = region.address() as *mut c_void;
            (*view).len = region.nbytes() as isize;
            (*view).readonly = region.is_readonly.into();
            (*view).itemsize = size as isize;
            (*view).format = match wants(ffi::PyBUF_FORMAT) {
                true => lists.format.as_ptr().cast_mut(),
                false => ptr::null_mut(),
            };
            (*view).ndim = region.shape.len() as c_int;
            (*view).shape = match wants(ffi::PyBUF_ND) {
                true => lists.shape.as_mut_ptr(),
                false => ptr::null_mut(),
            };
            (*view).strides = match wants(ffi::PyBUF_STRIDES) {
                true => lists.strides.as_mut_ptr(),
                false => ptr::null_mut(),
            };
            (*view).suboffsets = ptr::null_mut();
            (*view).internal = Box::into_raw(lists).cast();
            (*view).obj = slf.into_any().into_ptr();
        }
        Ok(())
    }

    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: a view that `__getbuffer__` filled, released once.
        drop(unsafe { Box::from_raw((*view).internal.cast::<Lists>()) });
    }

    fn __repr__(&self) -> String {
        let PyRegion { dtype, shape, .. } = self;
        format!(
            "<libmp.Region {} {shape:?} on {}>",
            dtype.name,
            stream::name(self.region.buffer().device())
        )
    }
}

/// What a view of the buffer protocol points to.
struct Lists {
    shape: Vec<isize>,
    strides: Vec<isize>,
    format: CString,
}
