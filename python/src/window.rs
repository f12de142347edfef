//! Windows: memory of every rank that the others reach by puts, gets, atomic operations and signals.

use std::sync::Arc;

use libmp::gdsync::Until;
use libmp::{AtomicOp, Region, Window};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::array::Framework;
use crate::error::{Result, argument};
use crate::operation::{Context, Op, PyOperation};
use crate::region::PyRegion;
use crate::stream::Held;
use crate::wait::{self, detached, seconds};

/// Memory of every rank, open to the others, and signals: counters of 64 bits that a rank waits for and others raise. Places in a
/// rank's memory are counted in elements of the type that this rank's memory has.
#[pyclass(name = "Window", module = "libmp", frozen)]
pub struct PyWindow {
    window: Arc<Window<u8>>,
    own: PyRegion,
    context: Context,
}

/// What is awaited of a signal.
fn until(compare: &str, value: u64) -> Result<Until<u64>> {
    Ok(match compare {
        ">=" => Until::Geq(value),
        "==" => Until::Eq(value),
        "!=" => Until::Ne(value),
        ">" => Until::Gt(value),
        "<" => Until::Lt(value),
        "<=" => Until::Le(value),
        _ => {
            return Err(argument(
                "compare",
                format!("{compare:?}, expected >=, ==, !=, >, < or <="),
            ));
        }
    })
}

impl PyWindow {
    pub fn new(window: Window<u8>, own: PyRegion, context: &Context) -> PyWindow {
        PyWindow { window: Arc::new(window), own, context: context.clone() }
    }

    /// A place in bytes.
    fn bytes(&self, at: u64) -> Result<u64> {
        let at = at.checked_mul(self.own.dtype.size as u64);
        at.ok_or_else(|| argument("at", "is more than any memory has"))
    }

    fn stream(&self, stream: &Bound<'_, PyAny>, framework: Framework) -> Result<Arc<Held>> {
        let Context { comm, shared } = &self.context;
        shared.streams.resolve(stream, comm, self.own.region.buffer().device(), framework)
    }

    fn operation(&self, op: Op, of: Option<&PyRegion>) -> PyOperation {
        let device = self.own.region.buffer().device();
        let of = of.unwrap_or(&self.own);
        PyOperation::new(op, &self.context, device, of.framework, of.region.len())
    }

    /// An atomic operation on an element, of the type that the window has.
    fn atomic(
        &self,
        py: Python<'_>,
        rank: usize,
        at: u64,
        name: &str,
        values: &[&Bound<'_, PyAny>],
    ) -> Result<Py<PyAny>> {
        macro_rules! of {
            ($T:ident) => {{
                let value = |number: usize| -> Result<$T> { Ok(values[number].extract::<$T>()?) };
                let op = match name {
                    "fetch" => AtomicOp::Fetch,
                    "add" => AtomicOp::Add(value(0)?),
                    "swap" => AtomicOp::Swap(value(0)?),
                    _ => AtomicOp::CompareSwap { expected: value(0)?, value: value(1)? },
                };
                let at = self.bytes(at)?;
                let before: $T = detached(py, || self.window.atomic(rank, at, op))?;
                Ok(before.into_pyobject(py)?.into_any().unbind())
            }};
        }
        match self.own.dtype.name {
            "float64" => of!(f64),
            "float32" => of!(f32),
            "int64" => of!(i64),
            "int32" => of!(i32),
            "uint64" => of!(u64),
            "uint32" => of!(u32),
            other => {
                let what = format!(
                    "an atomic operation on elements of {other}, expected numbers of 32 or 64 bits"
                );
                Err(libmp::Error::Mismatch { op: name.into(), reason: what }.into())
            }
        }
    }

    fn with_region<T: Send>(
        &self,
        py: Python<'_>,
        array: &PyRegion,
        call: impl FnOnce(&Region<u8>) -> libmp::Result<T> + Send,
    ) -> Result<T> {
        let region = array.whole()?;
        Ok(detached(py, || call(region))?)
    }
}

#[pymethods]
impl PyWindow {
    /// This rank's own memory.
    #[getter]
    fn memory(&self) -> PyRegion {
        self.own.clone()
    }

    /// How many elements rank `rank` has.
    fn len(&self, rank: usize) -> Result<u64> {
        Ok(self.window.len(rank)? / self.own.dtype.size as u64)
    }

    /// The memory of a rank, mapped here: for loads and stores of one's own, which signals order. Not where a NIC is between.
    fn memory_of(&self, rank: usize) -> Result<PyRegion> {
        let region = Region::from_buffer(self.window.memory_of(rank)?.clone());
        let count = region.len() / self.own.dtype.size;
        Ok(PyRegion::made(region, self.own.dtype, vec![count]))
    }

    /// Copies an array to rank `rank`, from its element `at` on, and waits until it is there.
    #[pyo3(signature = (rank, array, at=0))]
    fn put(&self, py: Python<'_>, rank: usize, array: &Bound<'_, PyAny>, at: u64) -> Result<()> {
        let (array, at) = (PyRegion::from(array)?, self.bytes(at)?);
        self.with_region(py, &array, |region| self.window.put(rank, at, region))
    }

    /// The same, and then raises a signal of that rank to `value`: who sees it sees the elements.
    #[pyo3(signature = (rank, array, signal, value, at=0))]
    fn put_signal(
        &self,
        py: Python<'_>,
        rank: usize,
        array: &Bound<'_, PyAny>,
        signal: usize,
        value: u64,
        at: u64,
    ) -> Result<()> {
        let (array, at) = (PyRegion::from(array)?, self.bytes(at)?);
        let window = &self.window;
        self.with_region(py, &array, |region| window.put_signal(rank, at, region, signal, value))
    }

    /// Copies from rank `rank`, from its element `at` on, into an array.
    #[pyo3(signature = (rank, array, at=0))]
    fn get(&self, py: Python<'_>, rank: usize, array: &Bound<'_, PyAny>, at: u64) -> Result<()> {
        let (array, at) = (PyRegion::written(array)?, self.bytes(at)?);
        self.with_region(py, &array, |region| self.window.get(rank, at, region))
    }

    /// Raises a signal of rank `rank` to `value`.
    fn signal(&self, py: Python<'_>, rank: usize, signal: usize, value: u64) -> Result<()> {
        Ok(detached(py, || self.window.signal(rank, signal, value))?)
    }

    /// Adds to a signal of rank `rank`, as any number of ranks may.
    fn signal_add(&self, py: Python<'_>, rank: usize, signal: usize, value: u64) -> Result<()> {
        Ok(detached(py, || self.window.signal_add(rank, signal, value))?)
    }

    /// The value of this rank's signal.
    fn read_signal(&self, signal: usize) -> Result<u64> {
        Ok(self.window.read_signal(signal)?)
    }

    /// Waits until this rank's signal is what is awaited: `compare` it with `value`.
    #[pyo3(signature = (signal, value, timeout=None, compare=">="))]
    fn wait_signal(
        &self,
        py: Python<'_>,
        signal: usize,
        value: u64,
        timeout: Option<f64>,
        compare: &str,
    ) -> Result<()> {
        let timeout = seconds(timeout, self.context.comm.timeout())?;
        let until = until(compare, value)?;
        wait::wait(py, timeout, |deadline| self.window.wait_signal(signal, until, deadline))
    }

    /// Waits until everything that this rank has put to, or got from, rank `rank` has happened; without a rank, all.
    #[pyo3(signature = (rank=None))]
    fn quiet(&self, py: Python<'_>, rank: Option<usize>) -> Result<()> {
        Ok(detached(py, || match rank {
            Some(rank) => self.window.quiet(rank),
            None => self.window.quiet_all(),
        })?)
    }

    /// The element `at` of rank `rank`, read as one step.
    fn fetch(&self, py: Python<'_>, rank: usize, at: u64) -> Result<Py<PyAny>> {
        self.atomic(py, rank, at, "fetch", &[])
    }

    /// Adds to element `at` of rank `rank`, as one step for everybody; gives what it was before.
    fn fetch_add(
        &self,
        py: Python<'_>,
        rank: usize,
        at: u64,
        value: &Bound<'_, PyAny>,
    ) -> Result<Py<PyAny>> {
        self.atomic(py, rank, at, "add", &[value])
    }

    /// Replaces element `at` of rank `rank`, as one step for everybody; gives what it was before.
    fn swap(
        &self,
        py: Python<'_>,
        rank: usize,
        at: u64,
        value: &Bound<'_, PyAny>,
    ) -> Result<Py<PyAny>> {
        self.atomic(py, rank, at, "swap", &[value])
    }

    /// Replaces element `at` of rank `rank` if it is `expected`, as one step for everybody; gives what it was before.
    fn compare_swap(
        &self,
        py: Python<'_>,
        rank: usize,
        at: u64,
        expected: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> Result<Py<PyAny>> {
        self.atomic(py, rank, at, "compare_swap", &[expected, value])
    }

    /// Prepares a put of an array to rank `rank`, from its element `at` on; start number n raises the signal, if one is named, to n.
    #[pyo3(signature = (rank, array, at=0, signal=None))]
    fn prepare_put(
        &self,
        py: Python<'_>,
        rank: usize,
        array: &Bound<'_, PyAny>,
        at: u64,
        signal: Option<usize>,
    ) -> Result<PyOperation> {
        let (array, at) = (PyRegion::from(array)?, self.bytes(at)?);
        let window = &self.window;
        let put =
            self.with_region(py, &array, |region| window.prepare_put(rank, at, region, signal))?;
        Ok(self.operation(Op::Put(put), Some(&array)))
    }

    /// Prepares a get of memory of rank `rank`, from its element `at` on, that fills an array.
    #[pyo3(signature = (rank, array, at=0))]
    fn prepare_get(
        &self,
        py: Python<'_>,
        rank: usize,
        array: &Bound<'_, PyAny>,
        at: u64,
    ) -> Result<PyOperation> {
        let (array, at) = (PyRegion::written(array)?, self.bytes(at)?);
        let get =
            self.with_region(py, &array, |region| self.window.prepare_get(rank, at, region))?;
        Ok(self.operation(Op::Get(get), Some(&array)))
    }

    /// Prepares a wait for a signal of this rank: wait number n is through when it is at least n.
    fn prepare_wait(&self, py: Python<'_>, signal: usize) -> Result<PyOperation> {
        let wait = detached(py, || self.window.prepare_wait(signal))?;
        Ok(self.operation(Op::Wait(wait), None))
    }

    /// `put`, on a stream. Streams as `Operation.start_on`.
    #[pyo3(signature = (stream, rank, array, at=0))]
    fn put_on(
        &self,
        py: Python<'_>,
        stream: &Bound<'_, PyAny>,
        rank: usize,
        array: &Bound<'_, PyAny>,
        at: u64,
    ) -> Result<()> {
        let (array, at) = (PyRegion::from(array)?, self.bytes(at)?);
        let held = self.stream(stream, array.framework)?;
        self.with_region(py, &array, |region| self.window.put_on(&held, rank, at, region))
    }

    /// `get`, on a stream.
    #[pyo3(signature = (stream, rank, array, at=0))]
    fn get_on(
        &self,
        py: Python<'_>,
        stream: &Bound<'_, PyAny>,
        rank: usize,
        array: &Bound<'_, PyAny>,
        at: u64,
    ) -> Result<()> {
        let (array, at) = (PyRegion::written(array)?, self.bytes(at)?);
        let held = self.stream(stream, array.framework)?;
        self.with_region(py, &array, |region| self.window.get_on(&held, rank, at, region))
    }

    /// `signal`, on a stream: who sees it sees everything that the stream did before.
    fn signal_on(
        &self,
        py: Python<'_>,
        stream: &Bound<'_, PyAny>,
        rank: usize,
        signal: usize,
        value: u64,
    ) -> Result<()> {
        let held = self.stream(stream, self.own.framework)?;
        Ok(detached(py, || self.window.signal_on(&held, rank, signal, value))?)
    }

    /// Makes a stream wait until this rank's signal is what is awaited.
    #[pyo3(signature = (stream, signal, value, compare=">="))]
    fn wait_signal_on(
        &self,
        py: Python<'_>,
        stream: &Bound<'_, PyAny>,
        signal: usize,
        value: u64,
        compare: &str,
    ) -> Result<()> {
        let held = self.stream(stream, self.own.framework)?;
        let until = until(compare, value)?;
        Ok(detached(py, || self.window.wait_signal_on(&held, signal, until))?)
    }

    fn __repr__<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        PyString::new(py, &format!("<libmp.Window {:?}>", self.window))
    }
}
