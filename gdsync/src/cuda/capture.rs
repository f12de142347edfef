//! Captures that other code begins and ends, as frameworks do on streams that were adopted, and being a guest on a thread of such
//! code. What a captured operation uses must live as long as the graph can run; a graph of others keeps it as a user object of the
//! driver. Captures of one's own are in [`stream`](super::stream).

use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

use cudarc::driver::sys;

use super::device::lock;
use super::driver::{Driver, cu};
use super::stream::Capture;
use crate::error::Result;

/// What graphs of others have let go of. The driver says so on a thread that must not call it, so it lies here until somebody
/// releases what was dropped.
pub(crate) type Left = Arc<Mutex<Vec<Arc<Mutex<Capture>>>>>;

/// A capture of others.
pub(super) struct Others {
    /// The driver's number of it.
    pub id: u64,
    /// What its graph keeps, or why it keeps nothing.
    pub held: Result<Arc<Mutex<Capture>>>,
}

/// What a graph has, for the driver to give back.
struct Kept {
    held: Arc<Mutex<Capture>>,
    left: Left,
}

/// The capture of a stream that is under way, whoever began it: its number and its graph. The stream's context is current.
pub(super) fn under_way(stream: sys::CUstream) -> Result<Option<(u64, sys::CUgraph)>> {
    let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let (mut id, mut graph) = (0, std::ptr::null_mut());
    let none = std::ptr::null_mut::<c_void>();
    // SAFETY: a live stream; the call writes three values and may be given NULL for the rest. It does not disturb a capture.
    unsafe {
        cu!(cuStreamGetCaptureInfo_v3(
            stream,
            &mut status,
            &mut id,
            &mut graph,
            none.cast(),
            none.cast(),
            none.cast()
        ))?
    };
    let none = status == sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    Ok((!none).then_some((id, graph)))
}

/// Makes a graph that is being captured keep what is put into the result.
pub(super) fn keep(graph: sys::CUgraph, left: &Left) -> Result<Arc<Mutex<Capture>>> {
    let held = Arc::<Mutex<Capture>>::default();
    if graph.is_null() {
        // The capture has failed: the driver refuses what is enqueued.
        return Ok(held);
    }
    let kept = Box::into_raw(Box::new(Kept { held: held.clone(), left: left.clone() }));
    let mut object = std::ptr::null_mut();
    let flags = sys::CUuserObject_flags::CU_USER_OBJECT_NO_DESTRUCTOR_SYNC as u32;
    // SAFETY: writes one handle; the box is taken back once, by `let_go`, when the last reference to the object is gone.
    let made = unsafe { cu!(cuUserObjectCreate(&mut object, kept.cast(), Some(let_go), 1, flags)) };
    if let Err(error) = made {
        // SAFETY: the driver did not take it.
        drop(unsafe { Box::from_raw(kept) });
        return Err(error);
    }
    let flags = sys::CUuserObjectRetain_flags::CU_GRAPH_USER_OBJECT_MOVE as u32;
    // SAFETY: the graph is being captured; it gets the one reference that there is.
    let moved = unsafe { cu!(cuGraphRetainUserObject(graph, object, 1, flags)) };
    if let Err(error) = moved {
        // SAFETY: the reference is still ours.
        let _ = unsafe { cu!(cuUserObjectRelease(object, 1)) };
        return Err(error);
    }
    Ok(held)
}

/// Called by the driver when a graph and all that was made of it are gone.
unsafe extern "C" fn let_go(kept: *mut c_void) {
    // SAFETY: the box that `keep` gave away.
    let Kept { held, left } = *unsafe { Box::from_raw(kept.cast::<Kept>()) };
    lock(&left).push(held);
}

/// While it lives, calls of this crate on its thread may be made beside other code that uses CUDA there: when it is dropped, the
/// context is current again that was so before, and calls that are refused to a thread as long as some stream is being captured
/// – allocating, asking for events – are allowed. None of them touches the captured stream.
///
/// ```
/// let _guest = gdsync::Guest::enter(); // nothing without a driver
/// let devices = gdsync::CudaDevice::count();
/// # drop(devices);
/// ```
#[must_use = "it is a guest as long as this lives"]
pub struct Guest {
    context: sys::CUcontext,
    mode: sys::CUstreamCaptureMode,
    /// Of this thread.
    here: PhantomData<*const ()>,
}

impl Guest {
    /// Begins; `None` if this process has not [loaded](Driver::load) the driver by this crate.
    pub fn enter() -> Option<Guest> {
        if !Driver::is_loaded() {
            return None;
        }
        let mut context = std::ptr::null_mut();
        let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the driver is initialised; both write one value, and the second is undone in `drop`.
        unsafe {
            cu!(cuCtxGetCurrent(&mut context)).ok()?;
            cu!(cuThreadExchangeStreamCaptureMode(&mut mode)).ok()?;
        }
        Some(Guest { context, mode, here: PhantomData })
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // SAFETY: what this thread had before; a context that was destroyed meanwhile is refused.
        let restored = unsafe {
            let mode = cu!(cuThreadExchangeStreamCaptureMode(&mut self.mode));
            mode.and(cu!(cuCtxSetCurrent(self.context)))
        };
        if let Err(error) = restored {
            tracing::debug!("leaving a thread as it was: {error}");
        }
    }
}
