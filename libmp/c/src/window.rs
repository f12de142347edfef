//! One-sided communication: puts, gets, signals and atomics on the memory of other ranks.

use std::ffi::{c_int, c_void};

use libmp::{Region, Window};

use crate::device::copy;
use crate::handle::{api, borrow, deadline, getters, give, number, place, put, take};
use crate::message::MpOp;
use crate::region::MpRegion;
use crate::status::{Failure, Result};
use crate::stream::MpStream;
use crate::world::MpComm;

/// `mp_window`.
pub struct MpWindow(Window<u8>);

/// The number of a signal.
fn signal(signal: u32) -> usize {
    signal as usize
}

/// A window and a rank of it.
///
/// # Safety
/// As [`borrow`].
unsafe fn target<'a>(window: *const MpWindow, rank: c_int) -> Result<(&'a Window<u8>, usize)> {
    // SAFETY: the caller's promise.
    let window = unsafe { borrow(window, "window")? };
    let number = number(rank, "rank")?;
    window.0.len(number).map_err(|error| Failure::argument("rank", error))?;
    Ok((&window.0, number))
}

/// A window, a rank of it, and the part of a region that is copied there or from there.
///
/// # Safety
/// As [`borrow`].
unsafe fn target_of<'a>(
    window: *const MpWindow,
    rank: c_int,
    region: *const MpRegion,
    offset: usize,
    bytes: usize,
) -> Result<(&'a Window<u8>, usize, Region<u8>)> {
    // SAFETY: the caller's promise.
    let ((window, rank), region) = unsafe { (target(window, rank)?, borrow(region, "region")?) };
    Ok((window, rank, region.part(offset, bytes)?))
}

api! {
    /// Opens a region of every rank to the others.
    fn mp_window_create(
        comm: *const MpComm,
        region: *const MpRegion,
        signals: u32,
        window: *mut *mut MpWindow,
    ) {
        place(window, "window")?;
        let opened = borrow(comm, "comm")?.0.window(&borrow(region, "region")?.0, signal(signals))?;
        give(window, MpWindow(opened), "window")?;
    }

    /// Gives this rank's side of a window back.
    fn mp_window_free(window: *mut MpWindow) {
        drop(take(window, "window")?);
    }

    /// The `mp::Window` that a kernel takes.
    fn mp_window_handle(window: *const MpWindow, handle: *mut c_void, bytes: usize) {
        copy(borrow(window, "window")?.0.handle()?, handle, bytes)?;
    }

    /// Waits until what streams and kernels have posted for a rank has happened there.
    fn mp_flush(window: *const MpWindow, rank: c_int) {
        let (window, rank) = target(window, rank)?;
        window.flush(rank)?;
    }

    /// Prepares a put, with a signal unless that is -1.
    fn mp_put_prepare(
        window: *const MpWindow,
        rank: c_int,
        at: u64,
        region: *const MpRegion,
        offset: usize,
        bytes: usize,
        number: c_int,
        op: *mut *mut MpOp,
    ) {
        place(op, "op")?;
        let (window, rank) = target(window, rank)?;
        let signal = match number {
            -1 => None,
            _ => Some(usize::try_from(number).map_err(|_| {
                Failure::argument("signal", format!("{number}, expected -1 or a signal's number"))
            })?),
        };
        let part = borrow(region, "region")?.part(offset, bytes)?;
        give(op, MpOp::Put(window.prepare_put(rank, at, &part, signal)?), "op")?;
    }

    /// Prepares a get.
    fn mp_get_prepare(
        window: *const MpWindow,
        rank: c_int,
        at: u64,
        region: *const MpRegion,
        offset: usize,
        bytes: usize,
        op: *mut *mut MpOp,
    ) {
        place(op, "op")?;
        let (window, rank, part) = target_of(window, rank, region, offset, bytes)?;
        give(op, MpOp::Get(window.prepare_get(rank, at, &part)?), "op")?;
    }

    /// Prepares a wait for a signal of this rank.
    fn mp_signal_wait_prepare(window: *const MpWindow, number: u32, op: *mut *mut MpOp) {
        place(op, "op")?;
        let wait = borrow(window, "window")?.0.prepare_wait(signal(number))?;
        give(op, MpOp::Wait(wait), "op")?;
    }

    /// Copies to a rank.
    fn mp_put(
        window: *const MpWindow,
        rank: c_int,
        at: u64,
        region: *const MpRegion,
        offset: usize,
        bytes: usize,
    ) {
        let (window, rank, part) = target_of(window, rank, region, offset, bytes)?;
        window.put(rank, at, &part)?;
    }

    /// Copies from a rank.
    fn mp_get(
        window: *const MpWindow,
        rank: c_int,
        at: u64,
        region: *const MpRegion,
        offset: usize,
        bytes: usize,
    ) {
        let (window, rank, part) = target_of(window, rank, region, offset, bytes)?;
        window.get(rank, at, &part)?;
    }

    /// Begins to copy to a rank.
    fn mp_iput(
        window: *const MpWindow,
        rank: c_int,
        at: u64,
        region: *const MpRegion,
        offset: usize,
        bytes: usize,
        request: *mut *mut MpOp,
    ) {
        place(request, "request")?;
        let (window, rank, part) = target_of(window, rank, region, offset, bytes)?;
        let put = window.prepare_put(rank, at, &part, None)?;
        put.start()?;
        give(request, MpOp::Put(put), "request")?;
    }

    /// Begins to copy from a rank.
    fn mp_iget(
        window: *const MpWindow,
        rank: c_int,
        at: u64,
        region: *const MpRegion,
        offset: usize,
        bytes: usize,
        request: *mut *mut MpOp,
    ) {
        place(request, "request")?;
        let (window, rank, part) = target_of(window, rank, region, offset, bytes)?;
        let get = window.prepare_get(rank, at, &part)?;
        get.start()?;
        give(request, MpOp::Get(get), "request")?;
    }

    /// Copies to a rank and raises its signal.
    fn mp_put_signal(
        window: *const MpWindow,
        rank: c_int,
        at: u64,
        region: *const MpRegion,
        offset: usize,
        bytes: usize,
        number: u32,
        value: u64,
    ) {
        let (window, rank, part) = target_of(window, rank, region, offset, bytes)?;
        window.put_signal(rank, at, &part, signal(number), value)?;
    }

    /// Raises a signal of a rank.
    fn mp_signal(window: *const MpWindow, rank: c_int, number: u32, value: u64) {
        let (window, rank) = target(window, rank)?;
        window.signal(rank, signal(number), value)?;
    }

    /// Adds to a signal of a rank.
    fn mp_signal_add(window: *const MpWindow, rank: c_int, number: u32, value: u64) {
        let (window, rank) = target(window, rank)?;
        window.signal_add(rank, signal(number), value)?;
    }

    /// Copies to a rank and then adds to a signal of it.
    fn mp_put_signal_add(
        window: *const MpWindow,
        rank: c_int,
        at: u64,
        region: *const MpRegion,
        offset: usize,
        bytes: usize,
        number: u32,
        value: u64,
    ) {
        let (window, rank, part) = target_of(window, rank, region, offset, bytes)?;
        window.put_signal_add(rank, at, &part, signal(number), value)?;
    }

    /// Waits for a signal of this rank.
    fn mp_wait_signal(window: *const MpWindow, number: u32, value: u64, timeout: f64) {
        let window = &borrow(window, "window")?.0;
        window.wait_signal(signal(number), value, deadline(timeout)?)?;
    }

    /// Reads a signal of this rank.
    fn mp_read_signal(window: *const MpWindow, number: u32, value: *mut u64) {
        put(value, borrow(window, "window")?.0.read_signal(signal(number))?, "value")?;
    }

    /// Copies to a rank when a stream gets there.
    fn mp_put_on_stream(
        window: *const MpWindow,
        rank: c_int,
        at: u64,
        region: *const MpRegion,
        offset: usize,
        bytes: usize,
        stream: *const MpStream,
    ) {
        let (window, rank, part) = target_of(window, rank, region, offset, bytes)?;
        window.put_on(&borrow(stream, "stream")?.stream, rank, at, &part)?;
    }

    /// Copies from a rank when a stream gets there.
    fn mp_get_on_stream(
        window: *const MpWindow,
        rank: c_int,
        at: u64,
        region: *const MpRegion,
        offset: usize,
        bytes: usize,
        stream: *const MpStream,
    ) {
        let (window, rank, part) = target_of(window, rank, region, offset, bytes)?;
        window.get_on(&borrow(stream, "stream")?.stream, rank, at, &part)?;
    }

    /// Copies to a rank and raises its signal when a stream gets there.
    fn mp_put_signal_on_stream(
        window: *const MpWindow,
        rank: c_int,
        at: u64,
        region: *const MpRegion,
        offset: usize,
        bytes: usize,
        number: u32,
        value: u64,
        stream: *const MpStream,
    ) {
        let (window, rank, part) = target_of(window, rank, region, offset, bytes)?;
        let stream = &borrow(stream, "stream")?.stream;
        window.put_on(stream, rank, at, &part)?;
        window.signal_on(stream, rank, signal(number), value)?;
    }

    /// Raises a signal of a rank when a stream gets there.
    fn mp_signal_on_stream(
        window: *const MpWindow,
        rank: c_int,
        number: u32,
        value: u64,
        stream: *const MpStream,
    ) {
        let (window, rank) = target(window, rank)?;
        window.signal_on(&borrow(stream, "stream")?.stream, rank, signal(number), value)?;
    }

    /// Adds to a signal of a rank when a stream gets there.
    fn mp_signal_add_on_stream(
        window: *const MpWindow,
        rank: c_int,
        number: u32,
        value: u64,
        stream: *const MpStream,
    ) {
        let (window, rank) = target(window, rank)?;
        window.signal_add_on(&borrow(stream, "stream")?.stream, rank, signal(number), value)?;
    }

    /// Makes a stream wait for a signal of this rank.
    fn mp_wait_signal_on_stream(
        window: *const MpWindow,
        number: u32,
        value: u64,
        stream: *const MpStream,
    ) {
        let stream = &borrow(stream, "stream")?.stream;
        borrow(window, "window")?.0.wait_signal_on(stream, signal(number), value)?;
    }

    /// Adds to a word of a rank.
    fn mp_fetch_add(
        window: *const MpWindow,
        rank: c_int,
        at: u64,
        value: u64,
        before: *mut u64,
    ) {
        let (window, rank) = target(window, rank)?;
        put(before, 0, "before")?;
        put(before, window.fetch_add(rank, at, value)?, "before")?;
    }

    /// Replaces a word of a rank.
    fn mp_swap(window: *const MpWindow, rank: c_int, at: u64, value: u64, before: *mut u64) {
        let (window, rank) = target(window, rank)?;
        put(before, 0, "before")?;
        put(before, window.swap(rank, at, value)?, "before")?;
    }

    /// Replaces a word of a rank if it is what is expected.
    fn mp_compare_swap(
        window: *const MpWindow,
        rank: c_int,
        at: u64,
        expected: u64,
        value: u64,
        before: *mut u64,
    ) {
        let (window, rank) = target(window, rank)?;
        put(before, 0, "before")?;
        put(before, window.compare_swap(rank, at, expected, value)?, "before")?;
    }
}

getters! {
    /// The length of a rank's part in bytes.
    fn mp_window_bytes(window: *const MpWindow, rank: c_int) -> u64, 0, {
        let (window, rank) = target(window, rank)?;
        window.len(rank)?
    }
}
