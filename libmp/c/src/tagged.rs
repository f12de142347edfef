//! Tagged messages.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use libmp::ProgressThread;
use libmp::gdsync::{Buffer, Device, opencl};
use libmp::tagged::{self, Options, Place, Request, Source, Status, Tag, Tagged, Taken};

use crate::handle::{
    api, array, array_mut, borrow, deadline, device, give, number, place, put, take,
};
use crate::region::MpRegion;
use crate::status::{Failure, Result};
use crate::stream::MpStream;
use crate::world::MpComm;

/// `mp_tagged`.
pub struct MpTagged(Tagged);

/// `mp_progress`.
pub struct MpProgress(ProgressThread);

/// `mp_request`.
pub struct MpRequest(Request<'static>);

/// `mp_message`.
pub struct MpMessage(Taken);

/// `mp_tagged_options` of the header.
#[repr(C)]
pub struct MpTaggedOptions {
    eager_limit: usize,
    unexpected: usize,
    ring: usize,
}

/// `mp_message_status` of the header.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct MpMessageStatus {
    source: c_int,
    cancelled: c_int,
    tag: i64,
    bytes: usize,
}

/// `mp_memory` of the header.
#[repr(C)]
pub struct MpMemory {
    kind: c_int,
    device: c_int,
    memory: *mut c_void,
    offset: usize,
    bytes: usize,
    stream: *const MpStream,
    queue: *mut c_void,
    enqueued: c_int,
}

const HOST: c_int = 0;
const REGION: c_int = 1;
const CUDA: c_int = 2;
const OPENCL: c_int = 3;

impl MpMemory {
    /// What it says, as libmp has it.
    ///
    /// # Safety
    /// That of the header for `mp_memory`: what it points to is what it says, and the stream outlives the request.
    unsafe fn place(&self) -> Result<Place<'static>> {
        let &MpMemory { kind, memory, offset, bytes, .. } = self;
        let end = offset.checked_add(bytes);
        let end = end.ok_or_else(|| Failure::argument("bytes", format!("{offset} + {bytes}")))?;
        if kind != OPENCL && !self.queue.is_null() {
            return Err(Failure::argument("queue", "is for memory of OpenCL"));
        }
        if memory.is_null() && (bytes > 0 || kind == REGION || kind == OPENCL) {
            return Err(Failure::argument("memory", "is NULL"));
        }
        // SAFETY: the caller's promise, in all of them.
        let made = unsafe {
            match kind {
                HOST => {
                    let address = NonNull::new(memory.cast::<u8>().wrapping_add(offset));
                    let address = address.unwrap_or(NonNull::dangling());
                    Place::from(&Buffer::from_host_memory(&Device::Host, address, bytes, ())?)
                }
                REGION => {
                    let region = borrow(memory.cast_const().cast::<MpRegion>(), "memory")?;
                    Place::from(&region.part(offset, bytes)?)
                }
                CUDA => {
                    let (device, address) = (device(self.device)?, memory as u64 + offset as u64);
                    Place::from(&Buffer::<u8>::from_cuda_memory(&device, address, bytes, ())?)
                }
                OPENCL => Place::from(&opencl::Memory::adopt(memory.cast())?.slice(offset..end)?),
                other => {
                    let what = format!("{other}, expected one of MP_MEMORY_HOST (0) to OPENCL (3)");
                    return Err(Failure::argument("kind", what));
                }
            }
        };
        // SAFETY: the caller's promise, in both.
        unsafe {
            match (self.stream.is_null(), self.queue.is_null()) {
                (true, _) if self.enqueued != 0 => {
                    Err(Failure::argument("enqueued", "needs a stream"))
                }
                (true, true) => Ok(made),
                (false, true) => {
                    let stream = &borrow(self.stream, "stream")?.stream;
                    Ok(if self.enqueued == 0 { made.on(stream) } else { made.enqueued_on(stream) })
                }
                (true, false) => {
                    let event = opencl::Event::of_queue(self.queue.cast())?;
                    Ok(made.after_opencl(&Arc::new(event)))
                }
                (false, false) => Err(Failure::argument("queue", "and stream are both given")),
            }
        }
    }
}

const ANY: i64 = -1;

impl From<Status> for MpMessageStatus {
    fn from(status: Status) -> MpMessageStatus {
        // As many ranks as a world has, and a tag that was given as one.
        let Status { source, tag, bytes } = status;
        MpMessageStatus { source: source as c_int, cancelled: 0, tag: tag as i64, bytes }
    }
}

/// A status for those who want one.
///
/// # Safety
/// The pointer is NULL or valid for a write.
unsafe fn tell(status: *mut MpMessageStatus, what: impl Into<MpMessageStatus>) {
    if !status.is_null() {
        // SAFETY: the caller's promise.
        unsafe { status.write(what.into()) };
    }
}

fn of_request(request: &Request<'_>, status: Status) -> MpMessageStatus {
    MpMessageStatus { cancelled: request.is_cancelled().into(), ..status.into() }
}

fn tag_of(tag: i64) -> Result<u64> {
    let what = || format!("{tag}, expected a tag from 0 to {}", i64::MAX);
    u64::try_from(tag).map_err(|_| Failure::argument("tag", what()))
}

fn pattern(from: c_int, tag: i64) -> Result<(Source, Tag)> {
    let source = match i64::from(from) {
        ANY => Source::Any,
        _ => Source::Rank(number(from, "from")?),
    };
    let tag = match tag {
        ANY => Tag::Any,
        _ => Tag::Is(tag_of(tag)?),
    };
    Ok((source, tag))
}

fn memory(address: *mut c_void, bytes: usize) -> Result<(NonNull<u8>, usize)> {
    match NonNull::new(address.cast()) {
        Some(address) => Ok((address, bytes)),
        None if bytes == 0 => Ok((NonNull::dangling(), 0)),
        None => Err(Failure::argument("memory", "is NULL")),
    }
}

/// The requests in an array of C.
///
/// # Safety
/// As [`array()`], for the array and what its elements point to, which nobody else uses meanwhile and which are not twice in it.
unsafe fn requests<'a>(
    requests: *const *mut MpRequest,
    count: usize,
) -> Result<Vec<&'a mut Request<'static>>> {
    // SAFETY: the caller's promise.
    let list = unsafe { array(requests, count, "requests")? };
    let mut seen = std::collections::HashSet::new();
    let request = |(number, &request): (usize, &*mut MpRequest)| {
        let name = format!("requests[{number}]");
        if !seen.insert(request) {
            return Err(Failure::argument(&name, "is in the list before"));
        }
        // SAFETY: the caller's promise.
        let request = unsafe { request.as_mut() };
        request.map(|request| &mut request.0).ok_or_else(|| Failure::argument(&name, "is NULL"))
    };
    list.iter().enumerate().map(request).collect()
}

/// A request that is changed.
///
/// # Safety
/// The pointer is NULL, or valid and used by nobody else meanwhile.
unsafe fn change<'a>(request: *mut MpRequest) -> Result<&'a mut Request<'static>> {
    // SAFETY: the caller's promise.
    let request = unsafe { request.as_mut() };
    request.map(|it| &mut it.0).ok_or_else(|| Failure::argument("request", "is NULL"))
}

/// Makes a send.
///
/// # Safety
/// That of the header for `mp_tagged_isend`.
unsafe fn send(
    tagged: *const MpTagged,
    data: (*const c_void, usize),
    to: c_int,
    tag: i64,
    starts: bool,
    request: *mut *mut MpRequest,
) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe {
        place(request, "request")?;
        let memory = memory(data.0.cast_mut(), data.1)?;
        let (to, tag) = (number(to, "to")?, tag_of(tag)?);
        let made = borrow(tagged, "tagged")?.0.isend_raw(memory, to, tag, starts)?;
        give(request, MpRequest(made), "request")
    }
}

/// Makes a send of any memory.
///
/// # Safety
/// That of the header for `mp_tagged_isend_memory`.
unsafe fn send_memory(
    tagged: *const MpTagged,
    from: *const MpMemory,
    to: c_int,
    tag: i64,
    starts: bool,
    request: *mut *mut MpRequest,
) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe {
        place(request, "request")?;
        let tagged = &borrow(tagged, "tagged")?.0;
        let (from, to, tag) = (borrow(from, "from")?, number(to, "to")?, tag_of(tag)?);
        let made = match starts {
            true => tagged.isend(from.place()?, to, tag)?,
            false => tagged.send_init(from.place()?, to, tag)?,
        };
        give(request, MpRequest(made), "request")
    }
}

/// Makes a receive into any memory.
///
/// # Safety
/// That of the header for `mp_tagged_irecv_memory`.
unsafe fn receive_memory(
    tagged: *const MpTagged,
    into: *const MpMemory,
    from: c_int,
    tag: i64,
    starts: bool,
    request: *mut *mut MpRequest,
) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe {
        place(request, "request")?;
        let tagged = &borrow(tagged, "tagged")?.0;
        let (into, (from, tag)) = (borrow(into, "into")?, pattern(from, tag)?);
        let made = match starts {
            true => tagged.irecv(into.place()?, from, tag)?,
            false => tagged.recv_init(into.place()?, from, tag)?,
        };
        give(request, MpRequest(made), "request")
    }
}

/// Makes a receive.
///
/// # Safety
/// That of the header for `mp_tagged_irecv`.
unsafe fn receive(
    tagged: *const MpTagged,
    data: (*mut c_void, usize),
    from: c_int,
    tag: i64,
    starts: bool,
    request: *mut *mut MpRequest,
) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe {
        place(request, "request")?;
        let memory = memory(data.0, data.1)?;
        let (from, tag) = pattern(from, tag)?;
        let made = borrow(tagged, "tagged")?.0.irecv_raw(memory, from, tag, starts)?;
        give(request, MpRequest(made), "request")
    }
}

api! {
    /// The tagged messages of a communicator.
    fn mp_tagged_open(
        comm: *const MpComm,
        options: *const MpTaggedOptions,
        tagged: *mut *mut MpTagged,
    ) {
        place(tagged, "tagged")?;
        let mut chosen = Options::default();
        if let Some(options) = options.as_ref() {
            if options.eager_limit > 0 {
                chosen.eager_limit = options.eager_limit;
            }
            if options.unexpected > 0 {
                chosen.unexpected = options.unexpected;
            }
            chosen.ring = (options.ring > 0).then_some(options.ring);
        }
        let made = borrow(comm, "comm")?.0.tagged(&chosen)?;
        give(tagged, MpTagged(made), "tagged")?;
    }

    /// Gives them back.
    fn mp_tagged_free(tagged: *mut MpTagged) {
        drop(take(tagged, "tagged")?);
    }

    /// Starts a thread that makes calls in this rank's place.
    fn mp_progress_start(comm: *const MpComm, progress: *mut *mut MpProgress) {
        place(progress, "progress")?;
        let made = borrow(comm, "comm")?.0.progress()?;
        give(progress, MpProgress(made), "progress")?;
    }

    /// Stops it, and waits for its end.
    fn mp_progress_stop(progress: *mut MpProgress) {
        drop(take(progress, "progress")?.0);
    }

    /// Sends, and waits.
    fn mp_tagged_send(
        tagged: *const MpTagged,
        data: *const c_void,
        bytes: usize,
        to: c_int,
        tag: i64,
        timeout: f64,
    ) {
        let data = array(data.cast::<u8>(), bytes, "data")?;
        let (to, tag) = (number(to, "to")?, tag_of(tag)?);
        borrow(tagged, "tagged")?.0.send(data, to, tag, deadline(timeout)?)?;
    }

    /// Receives.
    fn mp_tagged_recv(
        tagged: *const MpTagged,
        data: *mut c_void,
        bytes: usize,
        from: c_int,
        tag: i64,
        timeout: f64,
        status: *mut MpMessageStatus,
    ) {
        let data = array_mut(data.cast::<u8>(), bytes, "data")?;
        let (from, tag) = pattern(from, tag)?;
        tell(status, borrow(tagged, "tagged")?.0.recv(data, from, tag, deadline(timeout)?)?);
    }

    /// Starts to send.
    fn mp_tagged_isend(
        tagged: *const MpTagged,
        data: *const c_void,
        bytes: usize,
        to: c_int,
        tag: i64,
        request: *mut *mut MpRequest,
    ) {
        send(tagged, (data, bytes), to, tag, true, request)?;
    }

    /// Starts to receive.
    fn mp_tagged_irecv(
        tagged: *const MpTagged,
        data: *mut c_void,
        bytes: usize,
        from: c_int,
        tag: i64,
        request: *mut *mut MpRequest,
    ) {
        receive(tagged, (data, bytes), from, tag, true, request)?;
    }

    /// Prepares a send.
    fn mp_tagged_send_init(
        tagged: *const MpTagged,
        data: *const c_void,
        bytes: usize,
        to: c_int,
        tag: i64,
        request: *mut *mut MpRequest,
    ) {
        send(tagged, (data, bytes), to, tag, false, request)?;
    }

    /// Prepares a receive.
    fn mp_tagged_recv_init(
        tagged: *const MpTagged,
        data: *mut c_void,
        bytes: usize,
        from: c_int,
        tag: i64,
        request: *mut *mut MpRequest,
    ) {
        receive(tagged, (data, bytes), from, tag, false, request)?;
    }

    /// Starts to send any memory.
    fn mp_tagged_isend_memory(
        tagged: *const MpTagged,
        from: *const MpMemory,
        to: c_int,
        tag: i64,
        request: *mut *mut MpRequest,
    ) {
        send_memory(tagged, from, to, tag, true, request)?;
    }

    /// Starts to receive into any memory.
    fn mp_tagged_irecv_memory(
        tagged: *const MpTagged,
        into: *const MpMemory,
        from: c_int,
        tag: i64,
        request: *mut *mut MpRequest,
    ) {
        receive_memory(tagged, into, from, tag, true, request)?;
    }

    /// Prepares a send of any memory.
    fn mp_tagged_send_init_memory(
        tagged: *const MpTagged,
        from: *const MpMemory,
        to: c_int,
        tag: i64,
        request: *mut *mut MpRequest,
    ) {
        send_memory(tagged, from, to, tag, false, request)?;
    }

    /// Prepares a receive into any memory.
    fn mp_tagged_recv_init_memory(
        tagged: *const MpTagged,
        into: *const MpMemory,
        from: c_int,
        tag: i64,
        request: *mut *mut MpRequest,
    ) {
        receive_memory(tagged, into, from, tag, false, request)?;
    }

    /// Starts what was prepared.
    fn mp_request_start(request: *mut MpRequest) {
        change(request)?.start()?;
    }

    /// Whether it is complete.
    fn mp_request_test(
        request: *mut MpRequest,
        complete: *mut c_int,
        status: *mut MpMessageStatus,
    ) {
        put(complete, 0, "complete")?;
        let request = change(request)?;
        if let Some(got) = request.test()? {
            tell(status, of_request(request, got));
            put(complete, 1, "complete")?;
        }
    }

    /// Waits.
    fn mp_request_wait(request: *mut MpRequest, timeout: f64, status: *mut MpMessageStatus) {
        let request = change(request)?;
        let got = request.wait(deadline(timeout)?)?;
        tell(status, of_request(request, got));
    }

    /// Waits for all.
    fn mp_request_wait_all(
        list: *const *mut MpRequest,
        count: usize,
        timeout: f64,
        statuses: *mut MpMessageStatus,
    ) {
        let until = deadline(timeout)?;
        for (number, request) in requests(list, count)?.into_iter().enumerate() {
            let got = request.wait(until)?;
            if !statuses.is_null() {
                tell(statuses.add(number), of_request(request, got));
            }
        }
    }

    /// Waits for one.
    fn mp_request_wait_any(
        list: *const *mut MpRequest,
        count: usize,
        timeout: f64,
        which: *mut c_int,
        status: *mut MpMessageStatus,
    ) {
        put(which, -1, "which")?;
        let requests = requests(list, count)?;
        if let Some((number, got)) = tagged::wait_any(requests, deadline(timeout)?)? {
            tell(status, got);
            // As many as an array of pointers has.
            put(which, number as c_int, "which")?;
        }
    }

    /// Takes a receive back.
    fn mp_request_cancel(request: *mut MpRequest, cancelled: *mut c_int) {
        put(cancelled, 0, "cancelled")?;
        put(cancelled, change(request)?.cancel().into(), "cancelled")?;
    }

    /// Gives a request back.
    fn mp_request_free(request: *mut MpRequest) {
        drop(take(request, "request")?);
    }

    /// Waits for a message.
    fn mp_tagged_probe(
        tagged: *const MpTagged,
        from: c_int,
        tag: i64,
        timeout: f64,
        status: *mut MpMessageStatus,
    ) {
        let (from, tag) = pattern(from, tag)?;
        tell(status, borrow(tagged, "tagged")?.0.probe(from, tag, deadline(timeout)?)?);
    }

    /// Whether there is a message.
    fn mp_tagged_iprobe(
        tagged: *const MpTagged,
        from: c_int,
        tag: i64,
        found: *mut c_int,
        status: *mut MpMessageStatus,
    ) {
        put(found, 0, "found")?;
        let (from, tag) = pattern(from, tag)?;
        if let Some(got) = borrow(tagged, "tagged")?.0.iprobe(from, tag)? {
            tell(status, got);
            put(found, 1, "found")?;
        }
    }

    /// Waits for a message, and takes it out.
    fn mp_tagged_mprobe(
        tagged: *const MpTagged,
        from: c_int,
        tag: i64,
        timeout: f64,
        message: *mut *mut MpMessage,
        status: *mut MpMessageStatus,
    ) {
        place(message, "message")?;
        let (from, tag) = pattern(from, tag)?;
        let taken = borrow(tagged, "tagged")?.0.mprobe(from, tag, deadline(timeout)?)?;
        tell(status, taken.status());
        give(message, MpMessage(taken), "message")?;
    }

    /// Receives what was taken out.
    fn mp_message_recv(
        message: *mut MpMessage,
        data: *mut c_void,
        bytes: usize,
        timeout: f64,
        status: *mut MpMessageStatus,
    ) {
        let (data, until) = (array_mut(data.cast::<u8>(), bytes, "data")?, deadline(timeout)?);
        tell(status, take(message, "message")?.0.recv(data, until)?);
    }

    /// Drops what was taken out.
    fn mp_message_free(message: *mut MpMessage) {
        drop(take(message, "message")?);
    }
}
