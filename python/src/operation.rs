//! Prepared operations: sends, receives, puts, gets and waits for signals, started and completed by the host and on streams.

use std::sync::Arc;

use libmp::gdsync::Device;
use libmp::{
    Communicator, Get, Operation, Put, Recv, Result as LibmpResult, Send, SignalWait, Step,
};
use pyo3::prelude::*;

use crate::array::Framework;
use crate::error::{Result, argument};
use crate::wait::{self, detached, seconds};
use crate::world::Shared;

/// Up to so many bytes a start keeps the interpreter's lock: giving it away takes longer than they do.
const SHORT: usize = 16 << 10;

/// One of libmp's.
pub enum Op {
    Send(Send),
    Recv(Recv),
    Put(Put),
    Get(Get),
    Wait(SignalWait),
}

impl Op {
    fn operation(&self) -> &dyn Operation {
        match self {
            Op::Send(send) => send,
            Op::Recv(recv) => recv,
            Op::Put(put) => put,
            Op::Get(get) => get,
            Op::Wait(wait) => wait,
        }
    }

    fn start(&self) -> LibmpResult<()> {
        match self {
            Op::Send(send) => send.start(),
            Op::Recv(recv) => recv.start(),
            Op::Put(put) => put.start(),
            Op::Get(get) => get.start(),
            Op::Wait(wait) => wait.start(),
        }
    }
}

/// What operations of a communicator have in common.
#[derive(Clone)]
pub struct Context {
    pub comm: Communicator,
    pub shared: Arc<Shared>,
}

/// A prepared operation, which is started any number of times: by the host (`start`, `wait`, `test`) or on a stream (`start_on`,
/// `wait_on`), captured in a graph or not. Drop it when nothing that starts it runs or will run.
///
/// While it is started, its memory is the operation's: what a send or a put reads is not written, what a receive or a get
/// writes is neither read nor written.
#[pyclass(name = "Operation", module = "libmp", frozen)]
pub struct PyOperation {
    op: Op,
    context: Context,
    device: Device,
    framework: Framework,
    nbytes: usize,
}

impl PyOperation {
    pub fn new(
        op: Op,
        context: &Context,
        device: &Device,
        framework: Framework,
        nbytes: usize,
    ) -> PyOperation {
        PyOperation { op, context: context.clone(), device: device.clone(), framework, nbytes }
    }

    fn enqueue(&self, py: Python<'_>, step: Step<'_>, stream: &Bound<'_, PyAny>) -> Result<()> {
        let Context { comm, shared } = &self.context;
        let held = shared.streams.resolve(stream, comm, &self.device, self.framework)?;
        Ok(detached(py, || comm.enqueue(&held, &[step]))?)
    }
}

#[pymethods]
impl PyOperation {
    /// The length of its memory in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.nbytes
    }

    /// Starts it by the host, and returns.
    fn start(&self, py: Python<'_>) -> Result<()> {
        if self.nbytes <= SHORT && matches!(self.device, Device::Host) {
            return Ok(self.op.start()?);
        }
        Ok(detached(py, || self.op.start())?)
    }

    /// Whether the last start by the host is complete. Makes progress, does not block.
    fn test(&self, py: Python<'_>) -> Result<bool> {
        Ok(detached(py, || self.op.operation().test())?)
    }

    /// Waits until the last start by the host is complete.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> Result<()> {
        // What has come meanwhile is found without the trouble of a wait.
        if matches!(self.device, Device::Host) && self.op.operation().test()? {
            return Ok(());
        }
        wait_for(py, &[self], timeout)
    }

    /// Starts it when the stream gets there: what the stream did before is in the message. `stream` is one of this library, of PyTorch or
    /// CuPy, whatever has `__cuda_stream__`, or a handle; "current" is the current stream of the framework that the memory is of.
    #[pyo3(signature = (stream))]
    fn start_on(&self, py: Python<'_>, stream: &Bound<'_, PyAny>) -> Result<()> {
        self.enqueue(py, Step::start(self.op.operation()), stream)
    }

    /// Makes a stream wait for it.
    #[pyo3(signature = (stream))]
    fn wait_on(&self, py: Python<'_>, stream: &Bound<'_, PyAny>) -> Result<()> {
        self.enqueue(py, Step::wait(self.op.operation()), stream)
    }

    fn __repr__(&self) -> String {
        let (kind, peer) = match &self.op {
            Op::Send(send) => ("send", format!("{send:?}")),
            Op::Recv(recv) => ("recv", format!("{recv:?}")),
            Op::Put(put) => ("put", format!("{put:?}")),
            Op::Get(get) => ("get", format!("{get:?}")),
            Op::Wait(wait) => ("wait", format!("{wait:?}")),
        };
        format!("<libmp.Operation {kind} {}: {peer}>", self.nbytes)
    }
}

/// Waits for all of some operations.
fn wait_for(py: Python<'_>, operations: &[&PyOperation], timeout: Option<f64>) -> Result<()> {
    let Some(first) = operations.first() else { return Ok(()) };
    let timeout = seconds(timeout, first.context.comm.timeout())?;
    let list: Vec<&PyOperation> = operations.to_vec();
    wait::wait(py, timeout, |deadline| {
        let list: Vec<&dyn Operation> = list.iter().map(|one| one.op.operation()).collect();
        libmp::wait_all(&list, deadline)
    })
}

/// Waits until the last starts of all operations by the host are complete.
#[pyfunction]
#[pyo3(signature = (operations, timeout=None))]
pub fn wait_all(
    py: Python<'_>,
    operations: Vec<Bound<'_, PyOperation>>,
    timeout: Option<f64>,
) -> Result<()> {
    let list: Vec<&PyOperation> = operations.iter().map(|one| one.get()).collect();
    wait_for(py, &list, timeout)
}

/// Waits until the last start of one of the operations by the host is complete, and says which.
#[pyfunction]
#[pyo3(signature = (operations, timeout=None))]
pub fn wait_any(
    py: Python<'_>,
    operations: Vec<Bound<'_, PyOperation>>,
    timeout: Option<f64>,
) -> Result<usize> {
    let list: Vec<&PyOperation> = operations.iter().map(|one| one.get()).collect();
    let Some(first) = list.first() else { return Err(libmp::Error::NoOperations.into()) };
    let timeout = seconds(timeout, first.context.comm.timeout())?;
    wait::wait(py, timeout, |deadline| {
        let list: Vec<&dyn Operation> = list.iter().map(|one| one.op.operation()).collect();
        libmp::wait_any(&list, deadline)
    })
}

/// Puts steps on a stream, in order, in one launch: each is `(operation, "start")` or `(operation, "wait")`.
#[pyfunction]
#[pyo3(signature = (steps, stream))]
pub fn enqueue(
    py: Python<'_>,
    steps: Vec<(Bound<'_, PyOperation>, String)>,
    stream: &Bound<'_, PyAny>,
) -> Result<()> {
    let Some((first, _)) = steps.first() else { return Ok(()) };
    let first = first.get();
    let list = steps.iter().map(|(operation, what)| {
        let operation = operation.get().op.operation();
        match what.as_str() {
            "start" => Ok(Step::start(operation)),
            "wait" => Ok(Step::wait(operation)),
            other => Err(argument("steps", format!("{other:?}, expected \"start\" or \"wait\""))),
        }
    });
    let list = list.collect::<Result<Vec<Step<'_>>>>()?;
    let Context { comm, shared } = &first.context;
    let held = shared.streams.resolve(stream, comm, &first.device, first.framework)?;
    Ok(detached(py, || comm.enqueue(&held, &list))?)
}
