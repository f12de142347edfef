//! Operations that streams, graphs and kernels start by themselves: steps, and the handles that kernels take.

use std::ffi::{c_int, c_void};

use libmp::{DeviceRecv, DeviceSend, Put, SignalWait, Step};

use crate::handle::{api, array, borrow, give, place, take};
use crate::message::peer;
use crate::region::MpRegion;
use crate::status::{Failure, Result};
use crate::stream::MpStream;
use crate::world::MpComm;

/// `mp_device_op`: an end of a message.
pub enum MpDeviceOp {
    /// A send.
    Send(DeviceSend),
    /// A receive.
    Recv(DeviceRecv),
    /// A put into a window.
    Put(Put),
    /// A wait for a signal of a window.
    Wait(SignalWait),
}

/// `mp_step` of the header: an operation, and what the stream does with it.
#[repr(C)]
pub struct MpStep {
    op: *const MpDeviceOp,
    what: c_int,
}

const START: c_int = 0;
const WAIT: c_int = 1;

impl MpDeviceOp {
    fn step(&self, what: c_int) -> Result<Step<'_>> {
        match (self, what) {
            (MpDeviceOp::Send(send), START) => Ok(send.start()),
            (MpDeviceOp::Recv(recv), START) => Ok(recv.start()),
            (MpDeviceOp::Recv(recv), WAIT) => Ok(recv.wait()),
            (MpDeviceOp::Put(put), START) => Ok(put.start()),
            (MpDeviceOp::Wait(wait), WAIT) => Ok(wait.wait()),
            (MpDeviceOp::Wait(_), START) => {
                Err(Failure::argument("what", "a wait for a signal is not started"))
            }
            (MpDeviceOp::Send(_) | MpDeviceOp::Put(_), WAIT) => {
                Err(Failure::argument("what", "a send is complete where it was started"))
            }
            _ => Err(Failure::argument("what", format!("{what}, expected MP_START or MP_WAIT"))),
        }
    }
}

/// Copies a handle to where the caller's kernel arguments are.
///
/// # Safety
/// `to` is NULL or valid for a write of `bytes` bytes.
pub(crate) unsafe fn copy<T>(handle: T, to: *mut c_void, bytes: usize) -> Result<()> {
    if bytes != size_of::<T>() {
        let expected = size_of::<T>();
        let what = format!("{bytes}, the struct of mp/layout.cuh has {expected} bytes");
        return Err(Failure::argument("bytes", what));
    }
    if to.is_null() {
        return Err(Failure::argument("handle", "is NULL"));
    }
    // SAFETY: the caller's promise, and the size is that of the handle; it need not be aligned.
    unsafe { to.cast::<T>().write_unaligned(handle) };
    Ok(())
}

api! {
    /// Prepares a send that streams and kernels start.
    fn mp_device_send_prepare(
        comm: *const MpComm,
        to: c_int,
        region: *const MpRegion,
        offset: usize,
        bytes: usize,
        tag: u64,
        op: *mut *mut MpDeviceOp,
    ) {
        place(op, "op")?;
        let peer = peer(&borrow(comm, "comm")?.0, to)?;
        let part = borrow(region, "region")?.part(offset, bytes)?;
        give(op, MpDeviceOp::Send(peer.send(&part, tag).prepare_device()?), "op")?;
    }

    /// Prepares a receive that streams and kernels start.
    fn mp_device_recv_prepare(
        comm: *const MpComm,
        from: c_int,
        region: *const MpRegion,
        offset: usize,
        bytes: usize,
        tag: u64,
        op: *mut *mut MpDeviceOp,
    ) {
        place(op, "op")?;
        let peer = peer(&borrow(comm, "comm")?.0, from)?;
        let part = borrow(region, "region")?.part(offset, bytes)?;
        give(op, MpDeviceOp::Recv(peer.recv(&part, tag).prepare_device()?), "op")?;
    }

    /// Enqueues steps, as one launch.
    fn mp_enqueue(stream: *const MpStream, steps: *const MpStep, count: usize) {
        let MpStream { stream, comm } = borrow(stream, "stream")?;
        let step = |(number, step): (usize, &MpStep)| {
            borrow(step.op, &format!("steps[{number}].op"))?.step(step.what)
        };
        let steps = array(steps, count, "steps")?.iter().enumerate();
        let steps = steps.map(step).collect::<Result<Vec<_>>>()?;
        comm.enqueue(stream, &steps)?;
    }

    /// The `mp::Send` or `mp::Recv` that a kernel takes.
    fn mp_device_op_handle(op: *const MpDeviceOp, handle: *mut c_void, bytes: usize) {
        match borrow(op, "op")? {
            MpDeviceOp::Send(send) => copy(send.handle()?, handle, bytes)?,
            MpDeviceOp::Recv(recv) => copy(recv.handle()?, handle, bytes)?,
            MpDeviceOp::Put(put) => copy(put.handle()?, handle, bytes)?,
            MpDeviceOp::Wait(wait) => copy(wait.handle()?, handle, bytes)?,
        }
    }

    /// Gives an operation back.
    fn mp_device_op_free(op: *mut MpDeviceOp) {
        drop(take(op, "op")?);
    }
}
