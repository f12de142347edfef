//! One-sided communication: puts, gets, signals and atomics on the memory of other ranks.

use std::ffi::{c_int, c_void};

use libmp::gdsync::Rows;
use libmp::{AtomicNumber, AtomicOp, Region, Stream, Window};

use crate::collective::no_type;
use crate::device::copy;
use crate::handle::{api, array, borrow, deadline, getters, give, number, place, put, take};
use crate::message::MpOp;
use crate::region::MpRegion;
use crate::status::{Failure, Result};
use crate::stream::MpStream;
use crate::word::until;
use crate::world::MpComm;

/// `mp_window`.
pub struct MpWindow(Window<u8>);

/// The same for a number of any `mp_type`, which is `$type` in it.
macro_rules! by_type {
    ($of:expr, $type:ident => $result:expr) => {
        by_type!($of, $type, $result, 0 f64, 1 f32, 2 u64, 3 i64, 4 u32, 5 i32)
    };
    ($of:expr, $type:ident, $result:expr, $($code:literal $number:ident),+) => {
        match $of {
            $($code => {
                type $type = $number;
                $result
            })+
            of => return Err(no_type(of, " or MP_I32")),
        }
    };
}

/// `MP_ALL`.
const ALL: c_int = -1;

/// `mp_rows`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MpRows {
    bytes: usize,
    count: usize,
    to: usize,
    from: usize,
}

impl MpRows {
    fn rows(self) -> Rows {
        let MpRows { bytes, count, to, from } = self;
        Rows { len: bytes, count, to, from }
    }
}

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

    /// Waits until the memory of what the host has started with a rank, or with all, is used no more.
    fn mp_flush(window: *const MpWindow, rank: c_int) {
        match rank {
            ALL => borrow(window, "window")?.0.flush_all()?,
            _ => {
                let (window, rank) = target(window, rank)?;
                window.flush(rank)?;
            }
        }
    }

    /// Waits until what was started, and posted by streams and kernels, for a rank, or for all, has happened there.
    fn mp_quiet(window: *const MpWindow, rank: c_int) {
        match rank {
            ALL => borrow(window, "window")?.0.quiet_all()?,
            _ => {
                let (window, rank) = target(window, rank)?;
                window.quiet(rank)?;
            }
        }
    }

    /// Starts to copy to a rank.
    fn mp_put_start(
        window: *const MpWindow,
        rank: c_int,
        at: u64,
        region: *const MpRegion,
        offset: usize,
        bytes: usize,
    ) {
        let (window, rank, part) = target_of(window, rank, region, offset, bytes)?;
        window.start_put(rank, at, &part)?;
    }

    /// Starts to copy from a rank.
    fn mp_get_start(
        window: *const MpWindow,
        rank: c_int,
        at: u64,
        region: *const MpRegion,
        offset: usize,
        bytes: usize,
    ) {
        let (window, rank, part) = target_of(window, rank, region, offset, bytes)?;
        window.start_get(rank, at, &part)?;
    }

    /// Copies rows to a rank, at once or when a stream gets there.
    fn mp_put_rows(
        window: *const MpWindow,
        rank: c_int,
        at: u64,
        region: *const MpRegion,
        offset: usize,
        rows: *const MpRows,
        stream: *const MpStream,
    ) {
        let rows = borrow(rows, "rows")?.rows();
        let (window, rank, part) = target_of(window, rank, region, offset, rows.extents().1)?;
        match stream.as_ref() {
            None => window.put(rank, at, (&part, rows))?,
            Some(stream) => window.put_on(&stream.stream, rank, at, (&part, rows))?,
        }
    }

    /// Copies rows from a rank, at once or when a stream gets there.
    fn mp_get_rows(
        window: *const MpWindow,
        rank: c_int,
        at: u64,
        region: *const MpRegion,
        offset: usize,
        rows: *const MpRows,
        stream: *const MpStream,
    ) {
        let rows = borrow(rows, "rows")?.rows();
        let (window, rank, part) = target_of(window, rank, region, offset, rows.extents().0)?;
        match stream.as_ref() {
            None => window.get(rank, at, (&part, rows))?,
            Some(stream) => window.get_on(&stream.stream, rank, at, (&part, rows))?,
        }
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
    fn mp_wait_signal(
        window: *const MpWindow,
        number: u32,
        compare: c_int,
        value: u64,
        timeout: f64,
    ) {
        let window = &borrow(window, "window")?.0;
        window.wait_signal(signal(number), until(compare, value)?, deadline(timeout)?)?;
    }

    /// Waits for one of several signals of this rank.
    fn mp_wait_any_signal(
        window: *const MpWindow,
        numbers: *const u32,
        values: *const u64,
        count: usize,
        compare: c_int,
        timeout: f64,
        which: *mut usize,
    ) {
        put(which, 0, "which")?;
        let window = &borrow(window, "window")?.0;
        let (numbers, values) = (array(numbers, count, "signals")?, array(values, count, "values")?);
        let signals = numbers.iter().zip(values);
        let signals = signals.map(|(&number, &value)| Ok((signal(number), until(compare, value)?)));
        let signals = signals.collect::<Result<Vec<_>>>()?;
        put(which, window.wait_any_signal(&signals, deadline(timeout)?)?, "which")?;
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
        compare: c_int,
        value: u64,
        stream: *const MpStream,
    ) {
        let stream = &borrow(stream, "stream")?.stream;
        let until = until(compare, value)?;
        borrow(window, "window")?.0.wait_signal_on(stream, signal(number), until)?;
    }

    /// Changes a word of a rank.
    fn mp_atomic(
        window: *const MpWindow,
        rank: c_int,
        at: u64,
        of: c_int,
        kind: c_int,
        value: *const c_void,
        expected: *const c_void,
        before: *mut c_void,
    ) {
        let (window, rank) = target(window, rank)?;
        let run = Atomic { window, rank, at, kind, value, expected };
        by_type!(of, V => {
            let held = run.now::<V>()?;
            if !before.is_null() {
                put(before.cast::<V>(), held, "before")?;
            }
        });
    }

    /// Changes a word of a rank when a stream gets there.
    fn mp_atomic_on_stream(
        window: *const MpWindow,
        rank: c_int,
        at: u64,
        of: c_int,
        kind: c_int,
        value: *const c_void,
        expected: *const c_void,
        before: *const MpRegion,
        offset: usize,
        stream: *const MpStream,
    ) {
        let (window, rank) = target(window, rank)?;
        let before = if before.is_null() { None } else { Some(borrow(before, "before")?) };
        let run = Atomic { window, rank, at, kind, value, expected };
        let stream = &borrow(stream, "stream")?.stream;
        by_type!(of, V => run.on::<V>(stream, before, offset)?);
    }
}

/// What is done to which word.
struct Atomic<'a> {
    window: &'a Window<u8>,
    rank: usize,
    at: u64,
    kind: c_int,
    value: *const c_void,
    expected: *const c_void,
}

impl Atomic<'_> {
    /// # Safety
    /// The pointers are null or to a `V`.
    unsafe fn op<V: AtomicNumber>(&self) -> Result<AtomicOp<V>> {
        // SAFETY: the caller's promise.
        let number = |from: *const c_void, name| unsafe { borrow(from.cast::<V>(), name).copied() };
        let value = || number(self.value, "value");
        Ok(match self.kind {
            0 => AtomicOp::Fetch,
            1 => AtomicOp::Swap(value()?),
            2 => {
                let expected = number(self.expected, "expected")?;
                AtomicOp::CompareSwap { expected, value: value()? }
            }
            3 => AtomicOp::Add(value()?),
            4 => AtomicOp::And(value()?),
            5 => AtomicOp::Or(value()?),
            6 => AtomicOp::Xor(value()?),
            7 => AtomicOp::Min(value()?),
            8 => AtomicOp::Max(value()?),
            kind => {
                let what = format!("{kind}, expected an mp_atomic_kind");
                return Err(Failure::argument("kind", what));
            }
        })
    }

    /// # Safety
    /// As [`op`](Self::op).
    unsafe fn now<V: AtomicNumber>(&self) -> Result<V> {
        // SAFETY: the caller's promise.
        let op = unsafe { self.op::<V>()? };
        Ok(self.window.atomic(self.rank, self.at, op)?)
    }

    /// # Safety
    /// As [`op`](Self::op).
    unsafe fn on<V: AtomicNumber>(
        &self,
        stream: &Stream,
        before: Option<&MpRegion>,
        offset: usize,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        let op = unsafe { self.op::<V>()? };
        let before = before.map(|region| -> Result<Region<V>> {
            Ok(Region::from_buffer(region.part(offset, size_of::<V>())?.buffer().cast()?))
        });
        let before = before.transpose()?;
        self.window.atomic_on(stream, self.rank, self.at, op, before.as_ref())?;
        Ok(())
    }
}

getters! {
    /// The length of a rank's part in bytes.
    fn mp_window_bytes(window: *const MpWindow, rank: c_int) -> u64, 0, {
        let (window, rank) = target(window, rank)?;
        window.len(rank)?
    }
}
