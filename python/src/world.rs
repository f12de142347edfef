//! Worlds, communicators and peers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libmp::gdsync::{Buffer, Device, Space};
use libmp::tagged::Options;
use libmp::{Communicator, Peer, ReduceOp, Region, World};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyFloat, PyInt};

use crate::collective::PyCollective;
use crate::dtype::DType;
use crate::error::{Result, argument};
use crate::operation::{Context, Op, PyOperation};
use crate::region::PyRegion;
use crate::stream::{Adopted, Held, PyStream, device_of};
use crate::tagged::PyTagged;
use crate::wait::{collective, detached, seconds};
use crate::window::PyWindow;

/// What all communicators of a world share.
pub struct Shared {
    /// None once it is finished.
    world: Mutex<Option<World>>,
    pub streams: Adopted,
    /// The GPU that the launcher chose, and this rank's number on its host.
    assigned: Option<String>,
    local: (usize, usize),
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Option<World>> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A group of ranks. All ranks of it make its collective calls in the same order.
#[pyclass(name = "Communicator", module = "libmp", frozen, subclass)]
pub struct PyCommunicator {
    pub context: Context,
}

impl PyCommunicator {
    fn comm(&self) -> &Communicator {
        &self.context.comm
    }

    fn of(&self, comm: Communicator) -> PyCommunicator {
        PyCommunicator { context: Context { comm, shared: self.context.shared.clone() } }
    }

    fn device(&self, object: Option<&Bound<'_, PyAny>>) -> Result<Device> {
        let Shared { assigned, local, .. } = &*self.context.shared;
        device_of(object, assigned.as_deref(), local.0)
    }

    fn reduce(&self, py: Python<'_>, op: ReduceOp, value: &Bound<'_, PyAny>) -> Result<Py<PyAny>> {
        let comm = self.comm().clone();
        let mut all = [0.0];
        if value.is_instance_of::<PyFloat>() {
            all[0] = value.extract::<f64>()?;
            let all = collective(py, move || comm.all_reduce(op, &mut all).map(|()| all))??;
            return Ok(all[0].into_pyobject(py)?.into_any().unbind());
        }
        if !value.is_instance_of::<PyInt>() {
            let what = format!("a {} is neither an int nor a float", value.get_type().name()?);
            return Err(PyTypeError::new_err(what).into());
        }
        let mut all = [value.extract::<i64>()?];
        let all = collective(py, move || comm.all_reduce(op, &mut all).map(|()| all))??;
        Ok(all[0].into_pyobject(py)?.into_any().unbind())
    }
}

/// A reduction by its name.
pub fn reduction(name: &str) -> Result<ReduceOp> {
    Ok(match name {
        "sum" => ReduceOp::Sum,
        "min" => ReduceOp::Min,
        "max" => ReduceOp::Max,
        "prod" => ReduceOp::Prod,
        "and" => ReduceOp::And,
        "or" => ReduceOp::Or,
        "xor" => ReduceOp::Xor,
        _ => {
            let what = format!("{name:?}, expected sum, min, max, prod, and, or, or xor");
            return Err(argument("op", what));
        }
    })
}

#[pymethods]
impl PyCommunicator {
    /// This rank's number, from 0.
    #[getter]
    fn rank(&self) -> usize {
        self.comm().rank()
    }

    /// How many ranks there are.
    #[getter]
    fn size(&self) -> usize {
        self.comm().size()
    }

    /// What it is called in errors.
    #[getter]
    fn name(&self) -> String {
        self.comm().name().to_owned()
    }

    /// Seconds after which its calls give up that are told nothing else (`MP_TIMEOUT`).
    #[getter]
    fn timeout(&self) -> f64 {
        self.comm().timeout().as_secs_f64()
    }

    /// The same communicator with another timeout, in seconds.
    fn with_timeout(&self, timeout: f64) -> Result<PyCommunicator> {
        let timeout = seconds(Some(timeout), self.comm().timeout())?;
        Ok(self.of(self.comm().with_timeout(timeout)))
    }

    /// Another rank, or this one, as the other end of messages.
    fn peer(&self, rank: usize) -> Result<PyPeer> {
        Ok(PyPeer { peer: self.comm().peer(rank)?, rank, context: self.context.clone() })
    }

    /// The number in the world of a rank of this communicator.
    fn world_rank(&self, rank: usize) -> Result<usize> {
        Ok(self.comm().world_rank(rank)?)
    }

    /// The name of a rank's host.
    fn host(&self, rank: usize) -> Result<String> {
        Ok(self.comm().host(rank)?.to_owned())
    }

    /// How bytes go to a rank.
    fn path(&self, rank: usize) -> Result<String> {
        Ok(self.comm().path(rank)?.to_string())
    }

    /// An array of NumPy, PyTorch, CuPy or anybody else as memory for communication, without a copy.
    #[staticmethod]
    fn region(array: &Bound<'_, PyAny>) -> Result<PyRegion> {
        PyRegion::from(array)
    }

    /// Zeroed memory for communication: of the host, which other processes of it can map, or of a GPU; with `pinned`, of the host and
    /// reached by that GPU.
    #[pyo3(signature = (shape, dtype=None, device=None, pinned=false))]
    fn zeros(
        &self,
        py: Python<'_>,
        shape: &Bound<'_, PyAny>,
        dtype: Option<&Bound<'_, PyAny>>,
        device: Option<&Bound<'_, PyAny>>,
        pinned: bool,
    ) -> Result<PyRegion> {
        let shape: Vec<usize> = match shape.extract::<usize>() {
            Ok(size) => vec![size],
            Err(_) => shape.extract()?,
        };
        let dtype = match dtype {
            Some(dtype) => DType::of(dtype)?,
            None => DType::of(pyo3::types::PyString::new(py, "float64").as_any())?,
        };
        let bytes = shape.iter().try_fold(dtype.size, |all, size| all.checked_mul(*size));
        let bytes = bytes.ok_or_else(|| argument("shape", format!("{shape:?} is too large")))?;
        let device = self.device(device)?;
        let region = detached(py, || match pinned {
            true => Buffer::new(&device, Space::Pinned, bytes)
                .map(Region::from_buffer)
                .map_err(|source| libmp::Error::Memory { op: "zeros".into(), source }),
            false => self.comm().alloc::<u8>(&device, bytes),
        })?;
        Ok(PyRegion::made(region, dtype, shape))
    }

    /// A stream of the library: of the host, or of a GPU. Its waits end when the world does.
    #[pyo3(signature = (device=None))]
    fn stream(&self, py: Python<'_>, device: Option<&Bound<'_, PyAny>>) -> Result<PyStream> {
        let device = self.device(device)?;
        let stream = detached(py, || self.comm().stream(&device))?;
        Ok(PyStream { held: Held::new(stream, None), comm: self.comm().clone() })
    }

    /// Another library's stream, with what this library's have: waits, captures and synchronisation with a deadline.
    #[pyo3(signature = (stream, device="cuda"))]
    fn adopt(&self, py: Python<'_>, stream: &Bound<'_, PyAny>, device: &str) -> Result<PyStream> {
        let device = self.device(Some(pyo3::types::PyString::new(py, device).as_any()))?;
        let Context { comm, shared } = &self.context;
        let framework = crate::array::Framework::Other;
        let held = shared.streams.resolve(stream, comm, &device, framework)?;
        Ok(PyStream { held, comm: comm.clone() })
    }

    /// Waits until every rank has entered. A collective call.
    fn barrier(&self, py: Python<'_>) -> Result<()> {
        let comm = self.comm().clone();
        Ok(collective(py, move || comm.barrier())??)
    }

    /// Gives every rank the bytes of rank `root`. A collective call, for set-up: up to a MiB, through rank 0.
    #[pyo3(signature = (data=None, root=0))]
    fn broadcast<'py>(
        &self,
        py: Python<'py>,
        data: Option<Vec<u8>>,
        root: usize,
    ) -> Result<Bound<'py, PyBytes>> {
        if data.is_none() && root == self.comm().rank() {
            return Err(argument("data", "is None on the root"));
        }
        let (comm, mut blob) = (self.comm().clone(), data.unwrap_or_default());
        let blob = collective(py, move || comm.broadcast(root, &mut blob).map(|()| blob))??;
        Ok(PyBytes::new(py, &blob))
    }

    /// Gives every rank the bytes of all, in rank order. A collective call, for set-up: up to a MiB, through rank 0.
    fn all_gather<'py>(&self, py: Python<'py>, data: Vec<u8>) -> Result<Vec<Bound<'py, PyBytes>>> {
        let comm = self.comm().clone();
        let all = collective(py, move || comm.all_gather(&data))??;
        Ok(all.iter().map(|blob| PyBytes::new(py, blob)).collect())
    }

    /// The sum of a number over all ranks, in rank order. A collective call, through rank 0: `collective` makes fast ones.
    fn sum(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> Result<Py<PyAny>> {
        self.reduce(py, ReduceOp::Sum, value)
    }

    /// The smallest of the ranks' numbers. As `sum`.
    fn min(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> Result<Py<PyAny>> {
        self.reduce(py, ReduceOp::Min, value)
    }

    /// The largest of the ranks' numbers. As `sum`.
    fn max(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> Result<Py<PyAny>> {
        self.reduce(py, ReduceOp::Max, value)
    }

    /// A communicator of the ranks that give the same colour, ordered by `key`; None for a rank without one. A collective call.
    #[pyo3(signature = (color, key=0))]
    fn split(
        &self,
        py: Python<'_>,
        color: Option<u64>,
        key: i64,
    ) -> Result<Option<PyCommunicator>> {
        let comm = self.comm().clone();
        let part = collective(py, move || comm.split(color, key))??;
        Ok(part.map(|part| self.of(part)))
    }

    /// A communicator of these ranks, in this order, which each of them makes by itself and no other.
    fn team(&self, ranks: Vec<usize>) -> Result<PyCommunicator> {
        Ok(self.of(self.comm().team(&ranks)?))
    }

    /// The communicator of the ranks on this rank's host. A collective call.
    fn node_local(&self, py: Python<'_>) -> Result<PyCommunicator> {
        let comm = self.comm().clone();
        Ok(self.of(collective(py, move || comm.node_local())??))
    }

    /// Opens memory of every rank to the others, and `signals` signals of each. A collective call. The memory is `zeros` of this
    /// library, or of a GPU: other processes cannot map other memory of the host.
    #[pyo3(signature = (memory, signals=0))]
    fn window(
        &self,
        py: Python<'_>,
        memory: &Bound<'_, PyAny>,
        signals: usize,
    ) -> Result<PyWindow> {
        let memory = PyRegion::written(memory)?;
        let (comm, region) = (self.comm().clone(), memory.whole()?.clone());
        let window = collective(py, move || comm.window(&region, signals))??;
        Ok(PyWindow::new(window, memory, &self.context))
    }

    /// Tagged messages between the ranks. A collective call; all ranks name the same options: the longest message in bytes that is sent
    /// before it is wanted, and how many bytes may lie unexpected at a rank of each other one.
    #[pyo3(signature = (eager_limit=8192, unexpected=1 << 20))]
    fn tagged(&self, py: Python<'_>, eager_limit: usize, unexpected: usize) -> Result<PyTagged> {
        let comm = self.comm().clone();
        let options = Options { eager_limit, unexpected, ..Options::default() };
        let made = collective(py, move || comm.tagged(&options))??;
        Ok(PyTagged { tagged: made, context: self.context.clone() })
    }

    /// Prepares collectives of the ranks on memory of a device, with room for blocks of `nbytes`: of what one rank gives another. A
    /// collective call.
    #[pyo3(signature = (nbytes, device=None))]
    fn collective(
        &self,
        py: Python<'_>,
        nbytes: usize,
        device: Option<&Bound<'_, PyAny>>,
    ) -> Result<PyCollective> {
        let (comm, device) = (self.comm().clone(), self.device(device)?);
        let on = device.clone();
        let made = collective(py, move || comm.prepare_collective(&on, nbytes))??;
        Ok(PyCollective::new(made, device, &self.context))
    }

    fn __repr__(&self) -> String {
        let comm = self.comm();
        format!("<libmp.Communicator {}: rank {} of {}>", comm.name(), comm.rank(), comm.size())
    }
}

/// The ranks that a launcher started together: the communicator of all, and more. As a context manager it is finished at the end of the
/// block, or aborted, for all ranks, if an exception leaves it.
#[pyclass(name = "World", module = "libmp", frozen, extends = PyCommunicator)]
pub struct PyWorld {
    shared: Arc<Shared>,
}

impl PyWorld {
    fn end(&self, py: Python<'_>) -> Result<()> {
        let world = self.shared.lock().take();
        self.shared.streams.clear();
        match world {
            None => Ok(()),
            Some(world) => Ok(collective(py, move || world.finish())??),
        }
    }

    fn fail(&self, py: Python<'_>, reason: &str) {
        py.detach(|| {
            // Dropped without having been finished.
            if let Some(world) = self.shared.lock().take() {
                world.abort(reason);
            }
        });
    }
}

#[pymethods]
impl PyWorld {
    /// This rank's number on its host.
    #[getter]
    fn local_rank(&self) -> usize {
        self.shared.local.0
    }

    /// How many ranks are on this rank's host.
    #[getter]
    fn local_size(&self) -> usize {
        self.shared.local.1
    }

    /// Ends the world in good order, when every rank has called it. A program that ends without it does it then.
    fn finish(&self, py: Python<'_>) -> Result<()> {
        self.end(py)
    }

    /// Ends the world for all ranks, with a reason that they all get to see.
    fn abort(&self, py: Python<'_>, reason: &str) {
        self.fail(py, reason);
    }

    /// Raises what has ended the world, if something has.
    fn check(&self) -> Result<()> {
        match &*self.shared.lock() {
            Some(world) => Ok(world.check()?),
            None => Err(libmp::Error::Finished { op: "check".into() }.into()),
        }
    }

    /// Whether it was finished or aborted here.
    #[getter]
    fn is_over(&self) -> bool {
        self.shared.lock().is_none()
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        class: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> Result<bool> {
        if class.is_none() {
            self.end(py)?;
        } else {
            self.fail(py, &format!("{}: {value}", class.getattr("__name__")?));
        }
        Ok(false)
    }
}

/// Starts a world with the ranks that the launcher started: mprun, mpirun, srun, torchrun; or one rank alone.
#[pyfunction]
pub fn start(py: Python<'_>) -> Result<Py<PyWorld>> {
    let world = collective(py, World::init)??;
    let comm: Communicator = (*world).clone();
    let assigned = world.assigned_gpu().map(str::to_owned);
    let local = (world.local_rank(), world.local_size());
    let world = Mutex::new(Some(world));
    let shared = Arc::new(Shared { world, streams: Adopted::default(), assigned, local });
    let context = Context { comm, shared: shared.clone() };
    let made = PyClassInitializer::from(PyCommunicator { context });
    Ok(Py::new(py, made.add_subclass(PyWorld { shared }))?)
}

/// A rank as the other end of messages.
#[pyclass(name = "Peer", module = "libmp", frozen)]
pub struct PyPeer {
    peer: Peer,
    rank: usize,
    context: Context,
}

#[pymethods]
impl PyPeer {
    /// Its number in the communicator that it is of.
    #[getter]
    fn rank(&self) -> usize {
        self.rank
    }

    /// The name of its host.
    #[getter]
    fn host(&self) -> String {
        self.peer.host().to_owned()
    }

    /// Prepares a message of an array, or a region, to it. An array with strides goes piece by piece; the receiver's may have others.
    #[pyo3(signature = (array, tag=0))]
    fn send(&self, py: Python<'_>, array: &Bound<'_, PyAny>, tag: u64) -> Result<PyOperation> {
        let from = PyRegion::from(array)?;
        let send = detached(py, || match &from.runs {
            None => self.peer.send(&from.region, tag).prepare(),
            Some(runs) => {
                let pieces: Vec<_> = runs.iter().map(|run| (&from.region, run.clone())).collect();
                self.peer.sendv(&pieces, tag)?.prepare()
            }
        })?;
        Ok(self.operation(Op::Send(send), &from))
    }

    /// Prepares a message from it into an array, or a region, which may be longer than the message.
    #[pyo3(signature = (array, tag=0))]
    fn recv(&self, py: Python<'_>, array: &Bound<'_, PyAny>, tag: u64) -> Result<PyOperation> {
        let into = PyRegion::written(array)?;
        let recv = detached(py, || match &into.runs {
            None => self.peer.recv(&into.region, tag).prepare(),
            Some(runs) => {
                let pieces: Vec<_> = runs.iter().map(|run| (&into.region, run.clone())).collect();
                self.peer.recvv(&pieces, tag)?.prepare()
            }
        })?;
        Ok(self.operation(Op::Recv(recv), &into))
    }

    fn __repr__(&self) -> String {
        format!("<libmp.Peer {:?}>", self.peer)
    }
}

impl PyPeer {
    fn operation(&self, op: Op, of: &PyRegion) -> PyOperation {
        let nbytes = of.shape.iter().product::<usize>() * of.dtype.size;
        PyOperation::new(op, &self.context, of.region.buffer().device(), of.framework, nbytes)
    }
}
