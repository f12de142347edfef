//! Sends, receives, probes, and their requests.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use libmp::tagged::{self, Place, Request, Source, Tag};

use crate::abi::{ANY_SOURCE, ANY_TAG, Handle, PROC_NULL, REQUEST_NULL, Status, UNDEFINED};
use crate::datatype;
use crate::kind::element;
use crate::state::{Used, comm, deadline, expect, fail};
use crate::world::{entries, put};

/// A handle for a send that was complete at once: of such there is nothing to hold.
static GONE: u8 = 0;

fn gone() -> Handle {
    &raw const GONE as Handle
}

thread_local! {
    /// Room of requests that are over, for the next.
    #[expect(clippy::vec_box, reason = "a handle is the address of a box")]
    static ROOM: RefCell<Vec<Box<MaybeUninit<Held>>>> = const { RefCell::new(Vec::new()) };
}
/// How many there are at most.
const ROOMS: usize = 1024;

/// What a handle of a request points to.
struct Held {
    /// None to or from `MPI_PROC_NULL`, which is complete at once.
    request: Option<Request<'static>>,
    persistent: bool,
    /// Started, and not seen complete.
    active: bool,
}

impl Held {
    fn wait(&mut self, call: &str) -> Status {
        let was_active = std::mem::take(&mut self.active);
        match &mut self.request {
            _ if !was_active => Status::empty(ANY_SOURCE),
            None => Status::empty(PROC_NULL),
            Some(request) => {
                // The clock is not read for what is complete.
                let got = match request.test() {
                    Ok(None) => request.wait(deadline(call)),
                    Ok(Some(got)) => Ok(got),
                    Err(error) => Err(error),
                };
                Status::of(expect(call, got), request.is_cancelled())
            }
        }
    }

    /// What it got, if it is complete.
    fn test(&mut self, call: &str) -> Option<Status> {
        match &mut self.request {
            Some(request) if self.active => {
                let got = expect(call, request.test())?;
                self.active = false;
                Some(Status::of(got, request.is_cancelled()))
            }
            _ => Some(self.wait(call)),
        }
    }
}

/// The memory of a message.
enum Memory {
    Host((NonNull<u8>, usize)),
    /// Of a device.
    Place(Place<'static>),
}

fn memory(call: &str, at: *const c_void, count: c_int, datatype: Handle) -> Memory {
    match datatype::place(call, datatype, at, count) {
        Some(place) => Memory::Place(place),
        None => Memory::Host(bytes(call, at, count, datatype)),
    }
}

/// Bytes of the program.
fn bytes(call: &str, at: *const c_void, count: c_int, datatype: Handle) -> (NonNull<u8>, usize) {
    let size = element(datatype).size();
    let Ok(count) = usize::try_from(count) else { fail(call, format!("a count of {count}")) };
    let at = NonNull::new(at.cast_mut().cast());
    match at {
        Some(at) => (at, count * size),
        None if count == 0 => (NonNull::dangling(), 0),
        None => fail(call, "the buffer is NULL"),
    }
}

fn tag_of(call: &str, tag: c_int) -> u64 {
    u64::try_from(tag).unwrap_or_else(|_| fail(call, format!("{tag} is no tag")))
}

fn rank_of(call: &str, rank: c_int) -> usize {
    usize::try_from(rank).unwrap_or_else(|_| fail(call, format!("{rank} is no rank")))
}

fn pattern(call: &str, from: c_int, tag: c_int) -> (Source, Tag) {
    let source = match from {
        ANY_SOURCE => Source::Any,
        _ => Source::Rank(rank_of(call, from)),
    };
    let tag = match tag {
        ANY_TAG => Tag::Any,
        _ => Tag::Is(tag_of(call, tag)),
    };
    (source, tag)
}

/// The arguments of a send or a receive.
struct Message<'a> {
    comm: &'a Used,
    memory: Memory,
    other: c_int,
    tag: c_int,
}

impl Message<'_> {
    /// # Safety
    /// The bytes are valid as MPI has it until the request is complete.
    unsafe fn send(&self, call: &str, starts: bool) -> Held {
        let request = (self.other != PROC_NULL).then(|| {
            let (to, tag) = (rank_of(call, self.other), tag_of(call, self.tag));
            let messages = &self.comm.messages;
            let made = match (&self.memory, starts) {
                // SAFETY: the caller's promise.
                (Memory::Host(bytes), _) => unsafe { messages.isend_raw(*bytes, to, tag, starts) },
                (Memory::Place(place), true) => messages.isend(place.clone(), to, tag),
                (Memory::Place(place), false) => messages.send_init(place.clone(), to, tag),
            };
            expect(call, made)
        });
        Held { request, persistent: !starts, active: starts }
    }

    /// # Safety
    /// As [`send`](Self::send).
    unsafe fn receive(&self, call: &str, starts: bool) -> Held {
        let request = (self.other != PROC_NULL).then(|| {
            let (from, tag) = pattern(call, self.other, self.tag);
            let messages = &self.comm.messages;
            let made = match (&self.memory, starts) {
                // SAFETY: the caller's promise.
                (Memory::Host(bytes), _) => unsafe {
                    messages.irecv_raw(*bytes, from, tag, starts)
                },
                (Memory::Place(place), true) => messages.irecv(place.clone(), from, tag),
                (Memory::Place(place), false) => messages.recv_init(place.clone(), from, tag),
            };
            expect(call, made)
        });
        Held { request, persistent: !starts, active: starts }
    }
}

/// Gives the program a handle.
///
/// # Safety
/// The pointer is valid for a write.
unsafe fn give(to: *mut Handle, held: Held) {
    let room = ROOM.try_with(|room| room.borrow_mut().pop()).ok().flatten();
    let held = Box::write(room.unwrap_or_else(Box::new_uninit), held);
    // SAFETY: the caller's promise.
    unsafe { put(to, Box::into_raw(held) as Handle) }
}

/// Gives the program a handle of a send that was started.
///
/// # Safety
/// As [`give`].
unsafe fn give_send(to: *mut Handle, held: Held) {
    let is_gone = held.request.as_ref().is_some_and(|request| !request.is_active());
    // SAFETY: the caller's promise.
    unsafe { if is_gone { put(to, gone()) } else { give(to, held) } }
}

/// The request of a handle; none for the null handle, and for a send that is complete.
///
/// # Safety
/// It is the null handle, or one that was given and not taken back; nobody else uses it meanwhile.
unsafe fn held<'a>(handle: Handle) -> Option<&'a mut Held> {
    // SAFETY: the caller's promise.
    (handle != REQUEST_NULL && handle != gone()).then(|| unsafe { &mut *(handle as *mut Held) })
}

/// Takes back a request.
///
/// # Safety
/// It was given, not taken back, and nobody uses it.
unsafe fn drop_held(held: *mut Held) {
    // SAFETY: `give` made it of a box; the caller's promise.
    let room = unsafe {
        held.drop_in_place();
        Box::from_raw(held.cast::<MaybeUninit<Held>>())
    };
    // At the end of a thread there is no list any more.
    let _ = ROOM.try_with(|rooms| {
        let mut rooms = rooms.borrow_mut();
        if rooms.len() < ROOMS {
            rooms.push(room);
        }
    });
}

/// Takes back a request that is complete and not persistent.
///
/// # Safety
/// As [`held`], of the handle that is pointed to.
unsafe fn done(at: *mut Handle) {
    // SAFETY: the caller's promise.
    unsafe {
        match held(*at) {
            Some(held) if held.persistent => {}
            Some(held) => {
                drop_held(held);
                at.write(REQUEST_NULL);
            }
            None => at.write(REQUEST_NULL),
        }
    }
}

/// Waits for a request, and takes it back.
///
/// # Safety
/// As [`done`].
unsafe fn wait(call: &str, at: *mut Handle) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        let status = held(*at).map_or(Status::empty(ANY_SOURCE), |held| held.wait(call));
        done(at);
        status
    }
}

/// The handles of an array.
///
/// # Safety
/// It has so many.
unsafe fn list(
    call: &str,
    count: c_int,
    handles: *mut Handle,
) -> impl Iterator<Item = (usize, *mut Handle)> {
    let count =
        usize::try_from(count).unwrap_or_else(|_| fail(call, format!("a count of {count}")));
    // SAFETY: the caller's promise.
    (0..count).map(move |number| (number, unsafe { handles.add(number) }))
}

entries! {
    fn MPI_Send(buf: *const c_void, count: c_int, datatype: Handle, other: c_int, tag: c_int, handle: Handle) {
        let memory = memory(CALL, buf, count, datatype);
        Message { comm: &comm(CALL, handle), memory, other, tag }.send(CALL, true).wait(CALL);
    }

    fn MPI_Recv(
        buf: *mut c_void,
        count: c_int,
        datatype: Handle,
        other: c_int,
        tag: c_int,
        handle: Handle,
        status: *mut Status,
    ) {
        let memory = memory(CALL, buf, count, datatype);
        let message = Message { comm: &comm(CALL, handle), memory, other, tag };
        put(status, message.receive(CALL, true).wait(CALL));
    }

    fn MPI_Isend(
        buf: *const c_void,
        count: c_int,
        datatype: Handle,
        other: c_int,
        tag: c_int,
        handle: Handle,
        request: *mut Handle,
    ) {
        let memory = memory(CALL, buf, count, datatype);
        let message = Message { comm: &comm(CALL, handle), memory, other, tag };
        give_send(request, message.send(CALL, true));
    }

    fn MPI_Irecv(
        buf: *mut c_void,
        count: c_int,
        datatype: Handle,
        other: c_int,
        tag: c_int,
        handle: Handle,
        request: *mut Handle,
    ) {
        let memory = memory(CALL, buf, count, datatype);
        let message = Message { comm: &comm(CALL, handle), memory, other, tag };
        give(request, message.receive(CALL, true));
    }

    fn MPI_Send_init(
        buf: *const c_void,
        count: c_int,
        datatype: Handle,
        other: c_int,
        tag: c_int,
        handle: Handle,
        request: *mut Handle,
    ) {
        let memory = memory(CALL, buf, count, datatype);
        let message = Message { comm: &comm(CALL, handle), memory, other, tag };
        give(request, message.send(CALL, false));
    }

    fn MPI_Recv_init(
        buf: *mut c_void,
        count: c_int,
        datatype: Handle,
        other: c_int,
        tag: c_int,
        handle: Handle,
        request: *mut Handle,
    ) {
        let memory = memory(CALL, buf, count, datatype);
        let message = Message { comm: &comm(CALL, handle), memory, other, tag };
        give(request, message.receive(CALL, false));
    }

    fn MPI_Sendrecv(
        sendbuf: *const c_void,
        sendcount: c_int,
        sendtype: Handle,
        to: c_int,
        sendtag: c_int,
        recvbuf: *mut c_void,
        recvcount: c_int,
        recvtype: Handle,
        from: c_int,
        recvtag: c_int,
        handle: Handle,
        status: *mut Status,
    ) {
        let comm = comm(CALL, handle);
        let memory_in = memory(CALL, recvbuf, recvcount, recvtype);
        let memory_out = memory(CALL, sendbuf, sendcount, sendtype);
        let incoming = Message { comm: &comm, memory: memory_in, other: from, tag: recvtag };
        let outgoing = Message { comm: &comm, memory: memory_out, other: to, tag: sendtag };
        let (mut recv, mut send) = (incoming.receive(CALL, true), outgoing.send(CALL, true));
        put(status, recv.wait(CALL));
        send.wait(CALL);
    }

    fn MPI_Start(request: *mut Handle) {
        let Some(held) = held(*request) else { fail(CALL, "the request is not persistent") };
        held.active = true;
        if let Some(request) = &mut held.request {
            expect(CALL, request.start());
        }
    }

    fn MPI_Startall(count: c_int, requests: *mut Handle) {
        for (_, request) in list(CALL, count, requests) {
            MPI_Start(request);
        }
    }

    fn MPI_Wait(request: *mut Handle, status: *mut Status) {
        put(status, wait(CALL, request));
    }

    fn MPI_Waitall(count: c_int, requests: *mut Handle, statuses: *mut Status) {
        // All at once first, or each of them would look at all that comes; each says afterwards what it got.
        let started = list(CALL, count, requests).filter_map(|(_, request)| {
            held(*request).filter(|held| held.active)?.request.as_mut()
        });
        let started: Vec<_> = started.collect();
        if started.iter().any(|request| request.is_active()) {
            expect(CALL, tagged::wait_all(started, deadline(CALL)));
        }
        for (number, request) in list(CALL, count, requests) {
            let got = wait(CALL, request);
            if !statuses.is_null() {
                statuses.add(number).write(got);
            }
        }
    }

    fn MPI_Waitany(count: c_int, requests: *mut Handle, index: *mut c_int, status: *mut Status) {
        let mut active = Vec::new();
        for (number, request) in list(CALL, count, requests) {
            if *request == gone() {
                put(index, number as c_int);
                put(status, wait(CALL, request));
                return crate::abi::SUCCESS;
            }
            let Some(held) = held(*request).filter(|held| held.active) else { continue };
            if held.request.as_ref().is_none_or(|request| !request.is_active()) {
                put(index, number as c_int);
                put(status, wait(CALL, request));
                return crate::abi::SUCCESS;
            }
            active.push((number, held));
        }
        let waiting = active.iter_mut().filter_map(|(_, held)| held.request.as_mut());
        let found = expect(CALL, tagged::wait_any(waiting, deadline(CALL)));
        match found.and_then(|(which, _)| active.get(which).map(|(number, _)| *number)) {
            Some(number) => {
                put(index, number as c_int);
                put(status, wait(CALL, requests.add(number)));
            }
            None => {
                put(index, UNDEFINED);
                put(status, Status::empty(ANY_SOURCE));
            }
        }
    }

    fn MPI_Test(request: *mut Handle, flag: *mut c_int, status: *mut Status) {
        let got = held(*request).map_or(Some(Status::empty(ANY_SOURCE)), |held| held.test(CALL));
        put(flag, got.is_some().into());
        if let Some(got) = got {
            put(status, got);
            done(request);
        }
    }

    fn MPI_Testall(count: c_int, requests: *mut Handle, flag: *mut c_int, statuses: *mut Status) {
        // A request that is complete stays so until all are.
        let mut all = true;
        for (_, request) in list(CALL, count, requests) {
            let under_way = |held: &mut Held| match &mut held.request {
                Some(request) if held.active => expect(CALL, request.test()).is_none(),
                _ => false,
            };
            all &= !held(*request).is_some_and(under_way);
        }
        put(flag, all.into());
        if all {
            MPI_Waitall(count, requests, statuses);
        }
    }

    fn MPI_Request_free(request: *mut Handle) {
        if *request == REQUEST_NULL {
            fail(CALL, "the request is MPI_REQUEST_NULL");
        }
        if let Some(held) = held(*request) {
            drop_held(held);
        }
        request.write(REQUEST_NULL);
    }

    fn MPI_Cancel(request: *mut Handle) {
        if *request == REQUEST_NULL {
            fail(CALL, "the request is MPI_REQUEST_NULL");
        }
        if let Some(request) = held(*request).and_then(|held| held.request.as_mut()) {
            request.cancel();
        }
    }

    fn MPI_Test_cancelled(status: *const Status, flag: *mut c_int) {
        put(flag, (*status).internal[2]);
    }

    fn MPI_Probe(from: c_int, tag: c_int, handle: Handle, status: *mut Status) {
        if from == PROC_NULL {
            put(status, Status::empty(PROC_NULL));
            return crate::abi::SUCCESS;
        }
        let (from, tag) = pattern(CALL, from, tag);
        let got = comm(CALL, handle).messages.probe(from, tag, deadline(CALL));
        put(status, Status::of(expect(CALL, got), false));
    }

    fn MPI_Iprobe(from: c_int, tag: c_int, handle: Handle, flag: *mut c_int, status: *mut Status) {
        if from == PROC_NULL {
            put(flag, 1);
            put(status, Status::empty(PROC_NULL));
            return crate::abi::SUCCESS;
        }
        let (from, tag) = pattern(CALL, from, tag);
        let got = expect(CALL, comm(CALL, handle).messages.iprobe(from, tag));
        put(flag, got.is_some().into());
        if let Some(got) = got {
            put(status, Status::of(got, false));
        }
    }
}
