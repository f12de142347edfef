//! What was dropped while a stream may still use it. CUDA frees memory with an implicit wait for the whole device,
//! which would hang behind a stream that waits for a peer; so memory, mappings and streams are put here and
//! released at a moment when no stream has work and nobody enqueues ([`gate`](super::gate)): work enqueued later cannot
//! refer to them.

use std::any::Any;

use cudarc::driver::sys;

use super::capture::under_way;
use super::driver::{check, cu};
use super::registration::unregister;
use crate::error::Result;

/// One thing to release.
pub(crate) enum Grave {
    /// Memory from `cuMemAlloc`.
    Device(u64),
    /// Host memory registered with the driver; the owner is dropped after it is unregistered.
    Registered(*mut u8, Box<dyn Any + Send>),
    /// A mapping from `cuIpcOpenMemHandle`.
    Ipc(u64),
    /// An executable graph, with what it uses.
    Graph(sys::CUgraphExec, Box<dyn Any + Send>),
    /// A stream whose owner dropped it.
    Stream(sys::CUstream),
    /// GPU code.
    Module(sys::CUmodule),
    /// An event.
    Event(sys::CUevent),
    /// Something of Rust's own that work on a stream may still use.
    Owner(Box<dyn Any + Send>),
}

// SAFETY: raw handles of the driver that any thread may release; the boxed owners are Send.
unsafe impl Send for Grave {}

/// The device's streams and what waits for them.
#[derive(Default)]
pub(crate) struct Graveyard {
    graves: Vec<Grave>,
    streams: Vec<StreamEntry>,
}

struct StreamEntry {
    stream: sys::CUstream,
    /// Dropped by its owner: destroyed once idle.
    orphan: bool,
    /// Being captured: must not be queried, and nothing is released meanwhile.
    capturing: bool,
    /// Its owner may begin captures, of which the driver is asked.
    adopted: bool,
}

// SAFETY: CUstream handles may be used from any thread with the context bound.
unsafe impl Send for StreamEntry {}

impl Graveyard {
    pub(crate) fn bury(&mut self, grave: Grave) {
        self.graves.push(grave);
    }

    pub(crate) fn add_stream(&mut self, stream: sys::CUstream, adopted: bool) {
        self.streams.push(StreamEntry { stream, orphan: false, capturing: false, adopted });
    }

    /// How many streams there are.
    pub(crate) fn streams(&self) -> usize {
        self.streams.len()
    }

    pub(crate) fn orphan_stream(&mut self, stream: sys::CUstream) {
        for entry in self.streams.iter_mut().filter(|entry| entry.stream == stream) {
            entry.orphan = true;
            entry.capturing = false;
        }
    }

    /// A stream of the caller's, which is idle and which it destroys itself.
    pub(crate) fn forget_stream(&mut self, stream: sys::CUstream) {
        self.streams.retain(|entry| entry.stream != stream);
    }

    pub(crate) fn set_capturing(&mut self, stream: sys::CUstream, capturing: bool) {
        for entry in self.streams.iter_mut().filter(|entry| entry.stream == stream) {
            entry.capturing = capturing;
        }
    }

    /// Nothing to release.
    pub(crate) fn is_empty(&self) -> bool {
        self.graves.is_empty() && !self.streams.iter().any(|entry| entry.orphan)
    }

    /// No stream has work. The device's context must be current.
    pub(crate) fn is_idle(&self) -> bool {
        let busy = |entry: &StreamEntry| {
            // A stream in error counts as idle: it will not run anything again.
            entry.capturing
                || (entry.adopted && !matches!(under_way(entry.stream), Ok(None)))
                || matches!(stream_idle(entry.stream), Ok(None))
        };
        !self.streams.iter().any(busy)
    }

    /// Hands out what can be released, if all streams are idle now; `None` if one may still be at work.
    /// The device's context must be current. What is handed out is released without this graveyard's lock, since
    /// releasing a graph drops buffers, which come here again.
    #[must_use]
    pub(crate) fn exhume(&mut self) -> Option<Vec<Grave>> {
        if self.is_empty() {
            return Some(Vec::new());
        }
        if !self.is_idle() {
            return None;
        }
        let mut graves = std::mem::take(&mut self.graves);
        self.streams.retain(|entry| {
            if entry.orphan {
                graves.push(Grave::Stream(entry.stream));
            }
            !entry.orphan
        });
        Some(graves)
    }
}

/// `Some(())` when everything enqueued on the stream has run.
pub(crate) fn stream_idle(stream: sys::CUstream) -> Result<Option<()>> {
    // SAFETY: crate-internal; callers pass a live stream that is not being captured, with its context current.
    match unsafe { sys::cuStreamQuery(stream) } {
        sys::CUresult::CUDA_ERROR_NOT_READY => Ok(None),
        result => check("cuStreamQuery", result).map(Some),
    }
}

impl Grave {
    /// Releases it. The device's context must be current.
    pub(crate) fn release(self) {
        if let Err(error) = self.try_release() {
            tracing::debug!("release: {error}");
        }
    }

    fn try_release(self) -> Result<()> {
        match self {
            // SAFETY: allocated by `cuMemAlloc`, buried once by its only owner, and no stream can use it any more.
            Grave::Device(address) => unsafe { cu!(cuMemFree_v2(address)) },
            Grave::Registered(address, owner) => {
                // SAFETY: registered by us, buried once; the memory still lives in `owner`.
                let result = unsafe { unregister(address) };
                drop(owner);
                result
            }
            // SAFETY: opened by `cuIpcOpenMemHandle`, buried once by its only owner.
            Grave::Ipc(address) => unsafe { cu!(cuIpcCloseMemHandle(address)) },
            Grave::Graph(exec, owner) => {
                // SAFETY: instantiated by us, buried once, and not running.
                let result = unsafe { cu!(cuGraphExecDestroy(exec)) };
                drop(owner);
                result
            }
            // SAFETY: the owner is gone and the stream idle; taken from the list once.
            Grave::Stream(stream) => unsafe { cu!(cuStreamDestroy_v2(stream)) },
            // SAFETY: loaded by us, buried once, and nothing of it runs.
            Grave::Module(module) => unsafe { cu!(cuModuleUnload(module)) },
            // SAFETY: created by us, buried once.
            Grave::Event(event) => unsafe { cu!(cuEventDestroy_v2(event)) },
            Grave::Owner(owner) => {
                drop(owner);
                Ok(())
            }
        }
    }
}
