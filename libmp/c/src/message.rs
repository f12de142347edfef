//! Operations: messages, puts and waits for signals, started by the host, on streams and in kernels.

use std::ffi::{c_int, c_void};

use libmp::{
    Communicator, Get, Operation, Peer, Put, Recv, Region, Result as LibmpResult, Send, SignalWait,
    Step,
};

use crate::device::copy;
use crate::handle::{api, array, borrow, deadline, give, number, place, put, take};
use crate::region::MpRegion;
use crate::status::{Failure, Result};
use crate::stream::MpStream;
use crate::world::MpComm;

/// `mp_op`: a prepared operation.
pub enum MpOp {
    /// A send.
    Send(Send),
    /// A receive.
    Recv(Recv),
    /// A put into a window.
    Put(Put),
    /// A get from a window.
    Get(Get),
    /// A wait for a signal of a window.
    Wait(SignalWait),
}

/// `mp_step` of the header: an operation, and what the stream does with it.
#[repr(C)]
pub struct MpStep {
    op: *const MpOp,
    what: c_int,
}

const START: c_int = 0;
const WAIT: c_int = 1;

impl MpOp {
    fn operation(&self) -> &dyn Operation {
        match self {
            MpOp::Send(send) => send,
            MpOp::Recv(recv) => recv,
            MpOp::Put(put) => put,
            MpOp::Get(get) => get,
            MpOp::Wait(wait) => wait,
        }
    }

    fn start(&self) -> LibmpResult<()> {
        match self {
            MpOp::Send(send) => send.start(),
            MpOp::Recv(recv) => recv.start(),
            MpOp::Put(put) => put.start(),
            MpOp::Get(get) => get.start(),
            MpOp::Wait(wait) => wait.start(),
        }
    }

    fn step(&self, what: c_int) -> Result<Step<'_>> {
        match what {
            START => Ok(Step::start(self.operation())),
            WAIT => Ok(Step::wait(self.operation())),
            _ => Err(Failure::argument("what", format!("{what}, expected MP_START or MP_WAIT"))),
        }
    }

    /// One step for each of several.
    fn steps<'a>(ops: &[&'a MpOp], what: c_int) -> Result<Vec<Step<'a>>> {
        ops.iter().map(|op| op.step(what)).collect()
    }
}

/// `mp_piece` of the header.
#[repr(C)]
pub struct MpPiece {
    region: *const MpRegion,
    offset: usize,
    bytes: usize,
}

/// A part of a region.
type Piece<'a> = (&'a Region<u8>, std::ops::Range<usize>);

/// The pieces in an array of C.
///
/// # Safety
/// As [`array`], for the array and what its elements point to.
unsafe fn list<'a>(pieces: *const MpPiece, count: usize) -> Result<Vec<Piece<'a>>> {
    // SAFETY: the caller's promise.
    let list = unsafe { array(pieces, count, "pieces")? };
    let piece = |(number, piece): (usize, &MpPiece)| {
        // SAFETY: the caller's promise.
        let region = unsafe { borrow(piece.region, &format!("pieces[{number}].region"))? };
        let end = piece.offset.checked_add(piece.bytes);
        let what = || format!("{} + {}", piece.offset, piece.bytes);
        let end =
            end.ok_or_else(|| Failure::argument(&format!("pieces[{number}].bytes"), what()))?;
        Ok((&region.0, piece.offset..end))
    };
    list.iter().enumerate().map(piece).collect()
}

/// A rank as the other end of messages.
pub(crate) fn peer(comm: &Communicator, peer: c_int) -> Result<Peer> {
    let rank = number(peer, "peer")?;
    comm.peer(rank).map_err(|error| Failure::argument("peer", error))
}

/// The operations in an array of C.
///
/// # Safety
/// As [`array()`], for the array and what its elements point to.
unsafe fn operations<'a>(ops: *const *const MpOp, count: usize) -> Result<Vec<&'a MpOp>> {
    // SAFETY: the caller's promise.
    let list = unsafe { array(ops, count, "ops")? };
    let borrow = |(number, &op): (usize, &*const MpOp)| {
        // SAFETY: the caller's promise.
        unsafe { borrow(op, &format!("ops[{number}]")) }
    };
    list.iter().enumerate().map(borrow).collect()
}

fn dynamic<'a>(ops: &[&'a MpOp]) -> Vec<&'a dyn Operation> {
    ops.iter().map(|op| op.operation()).collect()
}

api! {
    /// Prepares a send of a part of a region.
    fn mp_send_prepare(
        comm: *const MpComm,
        to: c_int,
        region: *const MpRegion,
        offset: usize,
        bytes: usize,
        tag: u64,
        op: *mut *mut MpOp,
    ) {
        place(op, "op")?;
        let peer = peer(&borrow(comm, "comm")?.0, to)?;
        let part = borrow(region, "region")?.part(offset, bytes)?;
        give(op, MpOp::Send(peer.send(&part, tag).prepare()?), "op")?;
    }

    /// Prepares a receive into a part of a region.
    fn mp_recv_prepare(
        comm: *const MpComm,
        from: c_int,
        region: *const MpRegion,
        offset: usize,
        bytes: usize,
        tag: u64,
        op: *mut *mut MpOp,
    ) {
        place(op, "op")?;
        let peer = peer(&borrow(comm, "comm")?.0, from)?;
        let part = borrow(region, "region")?.part(offset, bytes)?;
        give(op, MpOp::Recv(peer.recv(&part, tag).prepare()?), "op")?;
    }

    /// Prepares a send of several pieces.
    fn mp_sendv_prepare(
        comm: *const MpComm,
        to: c_int,
        pieces: *const MpPiece,
        count: usize,
        tag: u64,
        op: *mut *mut MpOp,
    ) {
        place(op, "op")?;
        let peer = peer(&borrow(comm, "comm")?.0, to)?;
        let send = peer.sendv(&list(pieces, count)?, tag)?;
        give(op, MpOp::Send(send.prepare()?), "op")?;
    }

    /// Prepares a receive into several pieces.
    fn mp_recvv_prepare(
        comm: *const MpComm,
        from: c_int,
        pieces: *const MpPiece,
        count: usize,
        tag: u64,
        op: *mut *mut MpOp,
    ) {
        place(op, "op")?;
        let peer = peer(&borrow(comm, "comm")?.0, from)?;
        let recv = peer.recvv(&list(pieces, count)?, tag)?;
        give(op, MpOp::Recv(recv.prepare()?), "op")?;
    }

    /// Starts an operation.
    fn mp_start(op: *const MpOp) {
        borrow(op, "op")?.start()?;
    }

    /// Starts several.
    fn mp_start_all(ops: *const *const MpOp, count: usize) {
        libmp::start_all(&dynamic(&operations(ops, count)?))?;
    }

    /// Whether the last start is complete.
    fn mp_test(op: *const MpOp, complete: *mut c_int) {
        put(complete, 0, "complete")?;
        put(complete, c_int::from(borrow(op, "op")?.operation().test()?), "complete")?;
    }

    /// Waits for an operation.
    fn mp_wait(op: *const MpOp, timeout: f64) {
        libmp::wait_all(&[borrow(op, "op")?.operation()], deadline(timeout)?)?;
    }

    /// Waits for all of several.
    fn mp_wait_all(ops: *const *const MpOp, count: usize, timeout: f64) {
        libmp::wait_all(&dynamic(&operations(ops, count)?), deadline(timeout)?)?;
    }

    /// Waits for any of several.
    fn mp_wait_any(ops: *const *const MpOp, count: usize, timeout: f64, which: *mut usize) {
        put(which, 0, "which")?;
        let first = libmp::wait_any(&dynamic(&operations(ops, count)?), deadline(timeout)?)?;
        put(which, first, "which")?;
    }

    /// Starts an operation when a stream gets there.
    fn mp_start_on_stream(op: *const MpOp, stream: *const MpStream) {
        let MpStream { stream, comm } = borrow(stream, "stream")?;
        comm.enqueue(stream, &[borrow(op, "op")?.step(START)?])?;
    }

    /// Starts several, in order.
    fn mp_start_all_on_stream(ops: *const *const MpOp, count: usize, stream: *const MpStream) {
        let MpStream { stream, comm } = borrow(stream, "stream")?;
        comm.enqueue(stream, &MpOp::steps(&operations(ops, count)?, START)?)?;
    }

    /// Makes a stream wait for an operation.
    fn mp_wait_on_stream(op: *const MpOp, stream: *const MpStream) {
        let MpStream { stream, comm } = borrow(stream, "stream")?;
        comm.enqueue(stream, &[borrow(op, "op")?.step(WAIT)?])?;
    }

    /// Makes a stream wait for several.
    fn mp_wait_all_on_stream(ops: *const *const MpOp, count: usize, stream: *const MpStream) {
        let MpStream { stream, comm } = borrow(stream, "stream")?;
        comm.enqueue(stream, &MpOp::steps(&operations(ops, count)?, WAIT)?)?;
    }

    /// Enqueues steps, as one launch.
    fn mp_enqueue(stream: *const MpStream, steps: *const MpStep, count: usize) {
        let MpStream { stream, comm } = borrow(stream, "stream")?;
        let step = |(number, step): (usize, &MpStep)| {
            borrow(step.op, &format!("steps[{number}].op"))?.step(step.what)
        };
        let steps = array(steps, count, "steps")?.iter().enumerate();
        comm.enqueue(stream, &steps.map(step).collect::<Result<Vec<_>>>()?)?;
    }

    /// The `mp::Send` or `mp::Recv` that a kernel takes.
    fn mp_op_handle(op: *const MpOp, handle: *mut c_void, bytes: usize) {
        match borrow(op, "op")? {
            MpOp::Send(send) => copy(send.handle()?, handle, bytes)?,
            MpOp::Recv(recv) => copy(recv.handle()?, handle, bytes)?,
            MpOp::Put(put) => copy(put.handle()?, handle, bytes)?,
            MpOp::Get(get) => copy(get.handle()?, handle, bytes)?,
            MpOp::Wait(wait) => copy(wait.handle()?, handle, bytes)?,
        }
    }

    /// Gives an operation back.
    fn mp_op_free(op: *mut MpOp) {
        drop(take(op, "op")?);
    }
}
