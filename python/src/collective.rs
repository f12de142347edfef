//! Prepared collectives: what is done is described once, as a run, and started any number of times.

use std::sync::Arc;

use libmp::gdsync::Device;
use libmp::{Collective, CollectiveRun, Number, ReduceOp, Region};
use pyo3::prelude::*;

use crate::array::Framework;
use crate::dtype::{BYTES, DType, with_number};
use crate::error::{Result, argument};
use crate::operation::Context;
use crate::region::PyRegion;
use crate::wait::{self, detached, seconds};
use crate::world::reduction;

/// What a run does.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Barrier,
    Broadcast(usize),
    AllGather,
    Gather(usize),
    Scatter(usize),
    AllToAll,
    Reduce(ReduceOp, usize),
    ReduceScatter(ReduceOp),
    AllReduce(ReduceOp),
    Scan(ReduceOp),
}

/// Collectives of a communicator on memory of a device. Each method describes a run, which is started by the host or on a stream; every
/// rank starts the same ones in the same order, and two do not overlap. Arrays are in one piece; `out` may be the array itself where
/// nothing else is said.
#[pyclass(name = "Collective", module = "libmp", frozen)]
pub struct PyCollective {
    collective: Arc<Collective>,
    device: Device,
    context: Context,
}

impl PyCollective {
    pub fn new(collective: Collective, device: Device, context: &Context) -> PyCollective {
        PyCollective { collective: Arc::new(collective), device, context: context.clone() }
    }

    fn run(&self, kind: Kind, from: PyRegion, to: PyRegion) -> Result<PyRun> {
        if from.dtype != to.dtype {
            let what = format!(
                "has elements of {}, the other array of {}",
                to.dtype.name, from.dtype.name
            );
            return Err(argument("out", what));
        }
        let (dtype, framework) = (from.dtype, from.framework);
        let (from, to) = (from.whole()?.clone(), to.whole()?.clone());
        let (collective, device) = (self.collective.clone(), self.device.clone());
        let context = self.context.clone();
        Ok(PyRun { collective, kind, dtype, from, to, framework, device, context })
    }

    fn one(&self, kind: Kind, array: &Bound<'_, PyAny>) -> Result<PyRun> {
        let array = PyRegion::written(array)?;
        self.run(kind, array.clone(), array)
    }

    fn two(
        &self,
        kind: Kind,
        array: &Bound<'_, PyAny>,
        out: Option<&Bound<'_, PyAny>>,
    ) -> Result<PyRun> {
        match out {
            None => self.one(kind, array),
            Some(out) => self.run(kind, PyRegion::from(array)?, PyRegion::written(out)?),
        }
    }

    /// Where both arrays are looked at: elsewhere one stands for both.
    fn is_root(&self, root: usize) -> bool {
        self.context.comm.rank() == root
    }
}

#[pymethods]
impl PyCollective {
    /// Waits for all ranks, and orders what they did.
    fn barrier(&self) -> Result<PyRun> {
        let buffer =
            libmp::gdsync::Buffer::<u8>::new(&Device::Host, libmp::gdsync::Space::Host, 0)?;
        let none = PyRegion::made(Region::from_buffer(buffer), BYTES, vec![0]);
        self.run(Kind::Barrier, none.clone(), none)
    }

    /// Gives every rank the array of rank `root`.
    #[pyo3(signature = (array, root=0))]
    fn broadcast(&self, array: &Bound<'_, PyAny>, root: usize) -> Result<PyRun> {
        self.one(Kind::Broadcast(root), array)
    }

    /// Gives every rank the arrays of all, in rank order, in `out`.
    fn all_gather(&self, array: &Bound<'_, PyAny>, out: &Bound<'_, PyAny>) -> Result<PyRun> {
        self.two(Kind::AllGather, array, Some(out))
    }

    /// Gives rank `root` the arrays of all, in rank order, in `out`, which the others need not give.
    #[pyo3(signature = (array, out=None, root=0))]
    fn gather(
        &self,
        array: &Bound<'_, PyAny>,
        out: Option<&Bound<'_, PyAny>>,
        root: usize,
    ) -> Result<PyRun> {
        match (out, self.is_root(root)) {
            (None, true) => Err(argument("out", "is None on the root")),
            (Some(out), true) => self.two(Kind::Gather(root), array, Some(out)),
            (_, false) => {
                let array = PyRegion::from(array)?;
                self.run(Kind::Gather(root), array.clone(), array)
            }
        }
    }

    /// Gives each rank its part of the array of rank `root`, in `out`; the others need not give `array`.
    #[pyo3(signature = (array, out, root=0))]
    fn scatter(
        &self,
        array: Option<&Bound<'_, PyAny>>,
        out: &Bound<'_, PyAny>,
        root: usize,
    ) -> Result<PyRun> {
        match (array, self.is_root(root)) {
            (None, true) => Err(argument("array", "is None on the root")),
            (Some(array), true) => self.two(Kind::Scatter(root), array, Some(out)),
            (_, false) => self.one(Kind::Scatter(root), out),
        }
    }

    /// Gives each rank its part of the array, and takes a part of each rank's, in rank order. `out` is another array.
    fn all_to_all(&self, array: &Bound<'_, PyAny>, out: &Bound<'_, PyAny>) -> Result<PyRun> {
        self.two(Kind::AllToAll, array, Some(out))
    }

    /// Combines the arrays element by element, for all ranks. `op`: sum, min, max, prod, and, or, xor.
    #[pyo3(signature = (array, out=None, op="sum"))]
    fn all_reduce(
        &self,
        array: &Bound<'_, PyAny>,
        out: Option<&Bound<'_, PyAny>>,
        op: &str,
    ) -> Result<PyRun> {
        self.two(Kind::AllReduce(reduction(op)?), array, out)
    }

    /// Combines the arrays element by element, for rank `root`, in `out`, which the others need not give.
    #[pyo3(signature = (array, out=None, op="sum", root=0))]
    fn reduce(
        &self,
        array: &Bound<'_, PyAny>,
        out: Option<&Bound<'_, PyAny>>,
        op: &str,
        root: usize,
    ) -> Result<PyRun> {
        let kind = Kind::Reduce(reduction(op)?, root);
        match self.is_root(root) {
            true => self.two(kind, array, out),
            false => {
                let array = PyRegion::from(array)?;
                self.run(kind, array.clone(), array)
            }
        }
    }

    /// Combines the arrays, and gives each rank its part of the result, in `out`.
    #[pyo3(signature = (array, out, op="sum"))]
    fn reduce_scatter(
        &self,
        array: &Bound<'_, PyAny>,
        out: &Bound<'_, PyAny>,
        op: &str,
    ) -> Result<PyRun> {
        self.two(Kind::ReduceScatter(reduction(op)?), array, Some(out))
    }

    /// Combines the arrays of the ranks up to this one, itself included.
    #[pyo3(signature = (array, out=None, op="sum"))]
    fn scan(
        &self,
        array: &Bound<'_, PyAny>,
        out: Option<&Bound<'_, PyAny>>,
        op: &str,
    ) -> Result<PyRun> {
        self.two(Kind::Scan(reduction(op)?), array, out)
    }

    fn __repr__(&self) -> String {
        format!("<libmp.Collective {:?}>", self.collective)
    }
}

/// A collective with its arrays, which is started any number of times.
#[pyclass(name = "Run", module = "libmp", frozen)]
pub struct PyRun {
    collective: Arc<Collective>,
    kind: Kind,
    dtype: DType,
    from: Region<u8>,
    to: Region<u8>,
    framework: Framework,
    device: Device,
    context: Context,
}

impl PyRun {
    /// Makes the run of libmp, for one start.
    fn with(
        &self,
        start: impl FnOnce(CollectiveRun<'_>) -> libmp::Result<()>,
    ) -> libmp::Result<()> {
        with_number!(
            self.dtype,
            T => start(self.numbers::<T>()?),
            match self.moved(&self.from, &self.to) {
                Some(run) => start(run),
                None => Err(libmp::Error::Mismatch {
                    op: format!("{:?}", self.kind),
                    reason: format!("elements of {} are moved and not combined", self.dtype.name),
                }),
            }
        )
    }

    fn moved<'a, T: bytemuck::Pod>(
        &'a self,
        from: &Region<T>,
        to: &Region<T>,
    ) -> Option<CollectiveRun<'a>> {
        let all = &self.collective;
        Some(match self.kind {
            Kind::Barrier => all.barrier(),
            Kind::Broadcast(root) => all.broadcast(root, to),
            Kind::AllGather => all.all_gather(from, to),
            Kind::Gather(root) => all.gather(root, from, to),
            Kind::Scatter(root) => all.scatter(root, from, to),
            Kind::AllToAll => all.all_to_all(from, to),
            Kind::Reduce(..) | Kind::ReduceScatter(_) | Kind::AllReduce(_) | Kind::Scan(_) => {
                return None;
            }
        })
    }

    fn numbers<T: Number>(&self) -> libmp::Result<CollectiveRun<'_>> {
        let typed = |region: &Region<u8>| {
            let buffer = region.buffer().cast::<T>();
            let failed = |source| libmp::Error::Memory { op: format!("{:?}", self.kind), source };
            buffer.map(Region::from_buffer).map_err(failed)
        };
        let (from, to) = (typed(&self.from)?, typed(&self.to)?);
        let all = &self.collective;
        Ok(match self.kind {
            Kind::Reduce(op, root) => all.reduce(op, root, &from, &to),
            Kind::ReduceScatter(op) => all.reduce_scatter(op, &from, &to),
            Kind::AllReduce(op) => all.all_reduce(op, &from, &to),
            Kind::Scan(op) => all.scan(op, &from, &to),
            _ => match self.moved(&from, &to) {
                Some(run) => run,
                None => all.barrier(),
            },
        })
    }
}

#[pymethods]
impl PyRun {
    /// Starts it by the host, and returns: `wait` or `test` of it, or of its collective, say when it is complete.
    fn start(&self, py: Python<'_>) -> Result<()> {
        Ok(detached(py, || self.with(|run| run.start()))?)
    }

    /// Starts it by the host, and waits for it.
    #[pyo3(signature = (timeout=None))]
    fn run(&self, py: Python<'_>, timeout: Option<f64>) -> Result<()> {
        self.start(py)?;
        self.wait(py, timeout)
    }

    /// Starts it when the stream gets there, and makes the stream wait for it. Streams as `Operation.start_on`.
    #[pyo3(signature = (stream))]
    fn start_on(&self, py: Python<'_>, stream: &Bound<'_, PyAny>) -> Result<()> {
        let Context { comm, shared } = &self.context;
        let held = shared.streams.resolve(stream, comm, &self.device, self.framework)?;
        Ok(detached(py, || self.with(|run| run.start_on(&held)))?)
    }

    /// Whether the last start by the host of the collective is complete.
    fn test(&self, py: Python<'_>) -> Result<bool> {
        Ok(detached(py, || self.collective.test())?)
    }

    /// Waits until the last start by the host of the collective is complete.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> Result<()> {
        let timeout = seconds(timeout, self.context.comm.timeout())?;
        wait::wait(py, timeout, |deadline| self.collective.wait(deadline))
    }

    fn __repr__(&self) -> String {
        format!(
            "<libmp.Run {:?} of {} {}>",
            self.kind,
            self.from.len() / self.dtype.size,
            self.dtype.name
        )
    }
}
