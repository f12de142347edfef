//! Streams: made here or brought by the caller, with host functions and graphs.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use libmp::gdsync::{BlockSignals, Graph};
use libmp::{Communicator, Stream};

use crate::device::copy;
use crate::handle::{api, borrow, deadline, device, duration, getters, give, place, take};
use crate::status::Failure;
use crate::world::MpComm;

/// `mp_stream`.
pub struct MpStream {
    /// Shared with receives that are enqueued on it.
    pub(crate) stream: Arc<Stream>,
    pub(crate) comm: Communicator,
}

/// `mp_graph`.
pub struct MpGraph(Graph);

/// `mp_block_signals`.
pub struct MpBlockSignals(BlockSignals);

/// A function of C and its argument, which the caller promises may be used on another thread.
struct Call(unsafe extern "C" fn(*mut c_void), *mut c_void);

// SAFETY: the header asks for an argument that the function may use on any thread, one call at a time.
unsafe impl Send for Call {}
// SAFETY: as for Send.
unsafe impl Sync for Call {}

impl Call {
    fn run(&self) {
        // SAFETY: the header asks for a function that may be called with this argument until the stream is through.
        unsafe { self.0(self.1) }
    }
}

api! {
    /// A stream of a device, whose waits end when the world does.
    fn mp_stream_create(comm: *const MpComm, on: c_int, stream: *mut *mut MpStream) {
        place(stream, "stream")?;
        let comm = borrow(comm, "comm")?.0.clone();
        let made = comm.stream(&device(on)?)?;
        give(stream, MpStream { stream: Arc::new(made), comm }, "stream")?;
    }

    /// The caller's `CUstream`.
    fn mp_stream_adopt(
        comm: *const MpComm,
        on: c_int,
        custream: *mut c_void,
        stream: *mut *mut MpStream,
    ) {
        place(stream, "stream")?;
        let comm = borrow(comm, "comm")?.0.clone();
        let made = comm.adopt_stream(&device(on)?, custream.cast())?;
        give(stream, MpStream { stream: Arc::new(made), comm }, "stream")?;
    }

    /// Waits until everything on the stream has run, and says whether it went well.
    fn mp_stream_synchronize(stream: *const MpStream, timeout: f64) {
        let MpStream { stream, comm } = borrow(stream, "stream")?;
        comm.synchronize(stream, deadline(timeout)?)?;
    }

    /// Calls a function when the stream gets there.
    fn mp_stream_call(
        stream: *const MpStream,
        call: Option<unsafe extern "C" fn(*mut c_void)>,
        argument: *mut c_void,
    ) {
        let stream = &borrow(stream, "stream")?.stream;
        let call = Call(call.ok_or_else(|| Failure::argument("call", "is NULL"))?, argument);
        stream.call(move || call.run())?;
    }

    /// From here on operations are captured.
    fn mp_stream_begin_capture(stream: *const MpStream) {
        borrow(stream, "stream")?.stream.begin_capture()?;
    }

    /// Ends the capture.
    fn mp_stream_end_capture(stream: *const MpStream, graph: *mut *mut MpGraph) {
        place(graph, "graph")?;
        give(graph, MpGraph(borrow(stream, "stream")?.stream.end_capture()?), "graph")?;
    }

    /// Replays a graph.
    fn mp_stream_launch_graph(stream: *const MpStream, graph: *const MpGraph) {
        borrow(stream, "stream")?.stream.launch_graph(&borrow(graph, "graph")?.0)?;
    }

    /// Gives a graph back.
    fn mp_graph_free(graph: *mut MpGraph) {
        drop(take(graph, "graph")?);
    }

    /// Signals for kernels whose blocks meet.
    fn mp_block_signals_create(
        stream: *const MpStream,
        blocks: usize,
        timeout: f64,
        signals: *mut *mut MpBlockSignals,
    ) {
        place(signals, "signals")?;
        let made = borrow(stream, "stream")?.stream.block_signals(blocks, duration(timeout)?)?;
        give(signals, MpBlockSignals(made), "signals")?;
    }

    /// The `mp::BlockSignals` that a kernel takes.
    fn mp_block_signals_handle(
        signals: *const MpBlockSignals,
        handle: *mut c_void,
        bytes: usize,
    ) {
        copy(borrow(signals, "signals")?.0.handle(), handle, bytes)?;
    }

    /// Gives signals back.
    fn mp_block_signals_free(signals: *mut MpBlockSignals) {
        drop(take(signals, "signals")?);
    }

    /// Gives a stream back.
    fn mp_stream_free(stream: *mut MpStream) {
        drop(take(stream, "stream")?);
    }
}

getters! {
    /// Its `CUstream`; NULL for a host stream.
    fn mp_stream_cuda(stream: *const MpStream) -> *mut c_void, std::ptr::null_mut(), {
        let raw = borrow(stream, "stream")?.stream.as_raw_cuda();
        raw.map_or(std::ptr::null_mut(), |raw| raw.cast())
    }
}
