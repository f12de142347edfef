//! Tagged messages: sends and receives that are matched when they meet.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libmp::Stream;
use libmp::tagged::{Place, Request, Source, Status, Tag, Tagged, Taken};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::{Result, argument};
use crate::operation::Context;
use crate::region::PyRegion;
use crate::stream::Held;
use crate::wait::{self, detached, seconds};

/// Tagged messages between the ranks of a communicator: `Communicator.tagged`. A receive names a source and a tag, or None for any.
#[pyclass(name = "Tagged", module = "libmp", frozen)]
pub struct PyTagged {
    pub tagged: Tagged,
    pub context: Context,
}

/// What a receive got.
#[pyclass(name = "Status", module = "libmp", frozen, eq)]
#[derive(PartialEq)]
pub struct PyStatus {
    /// The sender's rank in the communicator.
    #[pyo3(get)]
    source: usize,
    /// The message's tag.
    #[pyo3(get)]
    tag: u64,
    /// The message's length in bytes.
    #[pyo3(get)]
    nbytes: usize,
}

#[pymethods]
impl PyStatus {
    fn __repr__(&self) -> String {
        let PyStatus { source, tag, nbytes } = self;
        format!("Status(source={source}, tag={tag}, nbytes={nbytes})")
    }
}

impl From<Status> for PyStatus {
    fn from(Status { source, tag, bytes }: Status) -> PyStatus {
        PyStatus { source, tag, nbytes: bytes }
    }
}

fn pattern(source: Option<usize>, tag: Option<u64>) -> (Source, Tag) {
    (source.map_or(Source::Any, Source::Rank), tag.map_or(Tag::Any, Tag::Is))
}

/// A send or a receive under way. One that is dropped is left to itself: a receive that has got nothing is taken back, a send goes on.
#[pyclass(name = "Request", module = "libmp", frozen)]
pub struct PyRequest {
    /// Before the stream that it is behind.
    request: Mutex<Request<'static>>,
    _stream: Option<Arc<Held>>,
    context: Context,
}

impl PyRequest {
    fn lock(&self) -> MutexGuard<'_, Request<'static>> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self, py: Python<'_>, timeout: Option<f64>) -> Result<PyStatus> {
        let timeout = seconds(timeout, self.context.comm.timeout())?;
        Ok(wait::wait(py, timeout, |deadline| self.lock().wait(deadline))?.into())
    }
}

#[pymethods]
impl PyRequest {
    /// Waits until it is complete; what it got.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> Result<PyStatus> {
        self.finish(py, timeout)
    }

    /// What it got if it is complete, or None. Makes progress, does not block.
    fn test(&self, py: Python<'_>) -> Result<Option<PyStatus>> {
        Ok(detached(py, || self.lock().test())?.map(PyStatus::from))
    }

    /// Takes back a receive that has got nothing; whether it was one.
    fn cancel(&self, py: Python<'_>) -> bool {
        detached(py, || self.lock().cancel())
    }

    fn __repr__(&self) -> String {
        format!("<libmp.Request {:?}>", self.lock())
    }
}

impl PyTagged {
    /// Starts a message of a region, behind what is on a stream, if one is named, or enqueued on it.
    fn begin(
        &self,
        py: Python<'_>,
        array: &PyRegion,
        (stream, enqueued): (Option<&Bound<'_, PyAny>>, bool),
        start: impl FnOnce(&Tagged, Place<'static>) -> libmp::Result<Request<'static>> + Send,
    ) -> Result<PyRequest> {
        if enqueued && stream.is_none() {
            return Err(argument("enqueued", "needs a stream"));
        }
        let region = array.whole()?;
        let Context { comm, shared } = &self.context;
        let resolve = |stream| {
            shared.streams.resolve(stream, comm, region.buffer().device(), array.framework)
        };
        let held = stream.map(resolve).transpose()?;
        let request = detached(py, || {
            let place = Place::from(region);
            let place = match &held {
                None => place,
                Some(held) if enqueued => place.enqueued_on(held.shared()),
                Some(held) => {
                    let stream: *const Stream = &***held;
                    // SAFETY: the request keeps the stream in an `Arc`, which does not move it, and goes before it.
                    place.on(unsafe { &*stream })
                }
            };
            start(&self.tagged, place)
        })?;
        let (request, context) = (Mutex::new(request), self.context.clone());
        Ok(PyRequest { request, _stream: held, context })
    }
}

#[pymethods]
impl PyTagged {
    /// Sends an array to a rank, and waits until it may be written again.
    #[pyo3(signature = (array, to, tag=0, timeout=None))]
    fn send(
        &self,
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        to: usize,
        tag: u64,
        timeout: Option<f64>,
    ) -> Result<()> {
        self.isend(py, array, to, tag, None)?.finish(py, timeout).map(drop)
    }

    /// Receives a message into an array, and says which. A shorter one leaves the rest as it is.
    #[pyo3(signature = (array, source=None, tag=None, timeout=None))]
    fn recv(
        &self,
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        source: Option<usize>,
        tag: Option<u64>,
        timeout: Option<f64>,
    ) -> Result<PyStatus> {
        self.irecv(py, array, source, tag, None, false)?.finish(py, timeout)
    }

    /// Receives a message of any length, as bytes.
    #[pyo3(signature = (source=None, tag=None, timeout=None))]
    fn recv_bytes<'py>(
        &self,
        py: Python<'py>,
        source: Option<usize>,
        tag: Option<u64>,
        timeout: Option<f64>,
    ) -> Result<(Bound<'py, PyBytes>, PyStatus)> {
        let timeout = seconds(timeout, self.context.comm.timeout())?;
        let (source, tag) = pattern(source, tag);
        let message =
            wait::wait(py, timeout, |deadline| self.tagged.mprobe(source, tag, deadline))?;
        let status = message.status();
        let deadline = libmp::Deadline::after(timeout);
        let bytes = detached(py, || {
            let mut bytes = vec![0u8; status.bytes];
            Taken::recv(message, &mut bytes, deadline).map(|_| bytes)
        })?;
        Ok((PyBytes::new(py, &bytes), status.into()))
    }

    /// Starts to send an array, or a region, of the host or of a GPU. While it is under way it is not written. With a stream, the message
    /// leaves when that has come so far.
    #[pyo3(signature = (array, to, tag=0, stream=None))]
    fn isend(
        &self,
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        to: usize,
        tag: u64,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> Result<PyRequest> {
        let from = PyRegion::from(array)?;
        self.begin(py, &from, (stream, false), |tagged, place| tagged.isend(place, to, tag))
    }

    /// Starts to receive into an array, or a region, which is not used while it is under way. With a stream, what that is given afterwards
    /// comes after the message, a send too: one that the other rank waits for is started before. If it is enqueued, the stream does not wait: it
    /// is given the message when that has come, a short one is complete then, and what the stream is given afterwards comes after it.
    #[pyo3(signature = (array, source=None, tag=None, stream=None, enqueued=false))]
    fn irecv(
        &self,
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        source: Option<usize>,
        tag: Option<u64>,
        stream: Option<&Bound<'_, PyAny>>,
        enqueued: bool,
    ) -> Result<PyRequest> {
        let (into, (source, tag)) = (PyRegion::written(array)?, pattern(source, tag));
        self.begin(py, &into, (stream, enqueued), |tagged, place| tagged.irecv(place, source, tag))
    }

    /// Waits for a message that such a receive would get, and says which. It stays where it is.
    #[pyo3(signature = (source=None, tag=None, timeout=None))]
    fn probe(
        &self,
        py: Python<'_>,
        source: Option<usize>,
        tag: Option<u64>,
        timeout: Option<f64>,
    ) -> Result<PyStatus> {
        let timeout = seconds(timeout, self.context.comm.timeout())?;
        let (source, tag) = pattern(source, tag);
        Ok(wait::wait(py, timeout, |deadline| self.tagged.probe(source, tag, deadline))?.into())
    }

    /// The message that such a receive would get, if it has come.
    #[pyo3(signature = (source=None, tag=None))]
    fn iprobe(
        &self,
        py: Python<'_>,
        source: Option<usize>,
        tag: Option<u64>,
    ) -> Result<Option<PyStatus>> {
        let (source, tag) = pattern(source, tag);
        Ok(detached(py, || self.tagged.iprobe(source, tag))?.map(PyStatus::from))
    }

    fn __repr__(&self) -> String {
        format!("<libmp.Tagged: rank {} of {}>", self.tagged.rank(), self.tagged.size())
    }
}
