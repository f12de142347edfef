//! Devices and streams: the library's own, and those of other libraries, which are adopted and kept.

use std::collections::HashMap;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use libmp::gdsync::{self, CudaDevice, Device, Driver, Guest};
use libmp::{Communicator, Stream};
use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;

use crate::array::Framework;
use crate::error::{Failure, Result, argument};
use crate::wait::{self, detached, seconds};

/// So many adopted streams are kept before idle ones go.
const KEPT: usize = 64;

/// Opens a GPU.
pub fn cuda(ordinal: u32) -> Result<Device> {
    Driver::load()?;
    let _guest = Guest::enter();
    Ok(Device::cuda(ordinal)?)
}

/// The GPU whose memory is at an address.
pub fn gpu_of(address: usize) -> Result<u32> {
    Driver::load()?;
    let _guest = Guest::enter();
    let found = CudaDevice::ordinal_at(address as u64)?;
    found.ok_or_else(|| argument("array", format!("{address:#x} is no memory of a GPU")))
}

/// A device as Python says it: none or `"cpu"`, `"cuda"` (the one that `own` says), `"cuda:1"`, 1, or a device of PyTorch's or CuPy's.
pub fn device(
    object: Option<&Bound<'_, PyAny>>,
    own: impl FnOnce() -> Result<u32>,
) -> Result<Device> {
    let Some(object) = object else { return Ok(Device::Host) };
    if let Ok(ordinal) = object.extract::<u32>() {
        return cuda(ordinal);
    }
    if Framework::of(object) == Framework::CuPy {
        return cuda(object.getattr("id")?.extract()?);
    }
    let text = object.to_string();
    match text.split_once(':') {
        None if text == "cpu" => Ok(Device::Host),
        None if text == "cuda" => cuda(own()?),
        Some(("cuda", number)) if number.parse::<u32>().is_ok() => {
            cuda(number.parse().unwrap_or_default())
        }
        _ => {
            let what = format!("{text:?}, expected \"cpu\", \"cuda\" or \"cuda:NUMBER\"");
            Err(argument("device", what))
        }
    }
}

/// `"cpu"` or `"cuda:1"`.
pub fn name(device: &Device) -> String {
    device.ordinal().map_or_else(|| "cpu".into(), |ordinal| format!("cuda:{ordinal}"))
}

/// A stream, and the object of Python's that owns it if that is another library's.
pub struct Held {
    /// Shared with receives that are enqueued on it.
    stream: ManuallyDrop<Arc<Stream>>,
    owner: ManuallyDrop<Option<Py<PyAny>>>,
}

impl Held {
    pub fn new(stream: Stream, owner: Option<Py<PyAny>>) -> Arc<Held> {
        let (stream, owner) = (ManuallyDrop::new(Arc::new(stream)), ManuallyDrop::new(owner));
        Arc::new(Held { stream, owner })
    }

    pub fn shared(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Nothing is on it, and it is not being captured.
    fn is_idle(&self) -> bool {
        let _guest = Guest::enter();
        !self.stream.is_capturing() && matches!(self.stream.is_idle(), Ok(true))
    }
}

impl Deref for Held {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        &self.stream
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // An adopted stream has to be idle when it is let go of, and its owner must outlive it. One that is not stays until the process ends.
        if self.owner.is_none() || self.is_idle() {
            let _guest = Guest::enter();
            // SAFETY: dropped here only, and not used any more.
            unsafe {
                ManuallyDrop::drop(&mut self.stream);
                ManuallyDrop::drop(&mut self.owner);
            }
        }
    }
}

/// The streams that were adopted for a world, by device and handle.
#[derive(Default)]
pub struct Adopted(Mutex<HashMap<(u32, usize), Arc<Held>>>);

impl Adopted {
    /// A stream as Python says it, for memory of a device: one of this library; `"current"`, the current one of the framework
    /// that the memory is of; `"torch"`, `"cupy"`; a stream of PyTorch's, of CuPy's, or of whatever has `__cuda_stream__`; a handle.
    pub fn resolve(
        &self,
        object: &Bound<'_, PyAny>,
        comm: &Communicator,
        device: &Device,
        framework: Framework,
    ) -> Result<Arc<Held>> {
        if let Ok(own) = object.cast::<PyStream>() {
            return Ok(own.get().held.clone());
        }
        let object = match object.extract::<String>() {
            Ok(name) => current(object.py(), &name, device, framework)?,
            Err(_) => object.clone(),
        };
        let handle = handle(&object)?;
        let Some(ordinal) = device.ordinal() else {
            let what =
                "a stream of a GPU for memory of the host, which takes one of `stream(\"cpu\")`";
            return Err(argument("stream", what));
        };
        // 0 and 1 are the default stream, 2 that of the thread.
        if handle <= 2 {
            let what = "it is the default stream, which waits for all others: make another one current, as in `with torch.cuda.stream(torch.cuda.Stream()):`";
            return Err(argument("stream", what));
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = known.get(&(ordinal, handle)) {
            return Ok(held.clone());
        }
        if known.len() >= KEPT {
            known.retain(|_, held| Arc::strong_count(held) > 1 || !held.is_idle());
        }
        let _guest = Guest::enter();
        // SAFETY: it is a stream of the device, as its owner says; the owner is kept with it, and it is let go of when it is idle.
        let stream = unsafe { comm.adopt_stream(device, handle as *mut c_void)? };
        let held = Held::new(stream, Some(object.unbind()));
        known.insert((ordinal, handle), held.clone());
        Ok(held)
    }

    /// Lets go of all.
    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// The current stream of a framework.
fn current<'py>(
    py: Python<'py>,
    name: &str,
    device: &Device,
    framework: Framework,
) -> Result<Bound<'py, PyAny>> {
    let framework = match (name, framework) {
        ("torch", _) => Framework::Torch,
        ("cupy", _) => Framework::CuPy,
        ("current", Framework::Other) => {
            let what = "\"current\" for memory that is neither PyTorch's nor CuPy's: name the stream, or \"torch\" or \"cupy\"";
            return Err(argument("stream", what));
        }
        ("current", framework) => framework,
        (other, _) => {
            let what = format!("{other:?}, expected a stream, \"current\", \"torch\" or \"cupy\"");
            return Err(argument("stream", what));
        }
    };
    let ordinal = device.ordinal().unwrap_or_default();
    Ok(match framework {
        Framework::Torch => {
            py.import("torch")?.getattr("cuda")?.call_method1("current_stream", (ordinal,))?
        }
        _ => py.import("cupy")?.getattr("cuda")?.call_method0("get_current_stream")?,
    })
}

/// The `CUstream` that an object is.
fn handle(object: &Bound<'_, PyAny>) -> Result<usize> {
    if let Ok(handle) = object.extract::<usize>() {
        return Ok(handle);
    }
    for name in ["cuda_stream", "ptr"] {
        if let Ok(handle) = object.getattr(name).and_then(|handle| handle.extract::<usize>()) {
            return Ok(handle);
        }
    }
    if object.hasattr("__cuda_stream__")? {
        let (_, handle): (usize, usize) = object.call_method0("__cuda_stream__")?.extract()?;
        return Ok(handle);
    }
    let what = format!("{} is no stream", object.get_type().name()?);
    Err(argument("stream", what))
}

/// A stream: an ordered queue of work, of the host or of a GPU.
#[pyclass(name = "Stream", module = "libmp", frozen)]
pub struct PyStream {
    pub held: Arc<Held>,
    pub comm: Communicator,
}

#[pymethods]
impl PyStream {
    /// "cpu" or "cuda:NUMBER".
    #[getter]
    fn device(&self) -> String {
        name(self.held.device())
    }

    /// The CUstream; 0 for a stream of the host.
    #[getter]
    fn ptr(&self) -> usize {
        self.held.as_raw_cuda().map_or(0, |stream| stream as usize)
    }

    /// As other libraries take it: `torch.cuda.ExternalStream(stream.ptr)`, `cupy.cuda.Stream.from_external(stream)`.
    fn __cuda_stream__(&self) -> PyResult<(u32, usize)> {
        match self.held.as_raw_cuda() {
            Some(stream) => Ok((0, stream as usize)),
            None => Err(PyAttributeError::new_err("a stream of the host has no CUstream")),
        }
    }

    /// Waits until everything on the stream has run, and raises what went wrong on it.
    #[pyo3(signature = (timeout=None))]
    fn synchronize(&self, py: Python<'_>, timeout: Option<f64>) -> Result<()> {
        let timeout = seconds(timeout, self.comm.timeout())?;
        wait::wait(py, timeout, |deadline| self.comm.synchronize(&self.held, deadline))
    }

    /// From here on what is put on the stream is captured instead of run, until `end_capture`.
    fn begin_capture(&self, py: Python<'_>) -> Result<()> {
        Ok(detached(py, || self.held.begin_capture())?)
    }

    /// Ends the capture: a graph, for `launch`.
    fn end_capture(&self, py: Python<'_>) -> Result<PyGraph> {
        Ok(PyGraph(detached(py, || self.held.end_capture())?))
    }

    /// Replays a graph. Two replays of one graph do not overlap.
    fn launch(&self, py: Python<'_>, graph: &Bound<'_, PyGraph>) -> Result<()> {
        let graph = graph.get();
        Ok(detached(py, || self.held.launch_graph(&graph.0))?)
    }

    fn __repr__(&self) -> String {
        format!("<libmp.Stream {}>", self.held.name())
    }
}

/// Captured operations, which `Stream.launch` replays.
#[pyclass(name = "Graph", module = "libmp", frozen)]
pub struct PyGraph(gdsync::Graph);

#[pymethods]
impl PyGraph {
    fn __repr__(&self) -> String {
        format!("<libmp.Graph {:?}>", self.0)
    }
}

/// A device of a world: `"cuda"` is the GPU that the launcher chose, or that of this rank's number on its host.
pub fn device_of(
    object: Option<&Bound<'_, PyAny>>,
    assigned: Option<&str>,
    local_rank: usize,
) -> Result<Device> {
    device(object, || match assigned {
        Some(gpu) => gpu.parse().map_err(|_| argument("device", format!("MP_GPU={gpu:?}"))),
        None => match CudaDevice::count().map_err(Failure::from)? {
            0 => Err(argument("device", "\"cuda\", and this process sees no GPU")),
            count => Ok((local_rank % count as usize) as u32),
        },
    })
}
