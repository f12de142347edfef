//! Requests: what their handles point to, and the calls that start, await, free and cancel them. What makes them is
//! `point_to_point`.

use std::cell::RefCell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use libmp::tagged::{self, Request, Ticket};

use crate::abi::{ANY_SOURCE, ANY_TAG, Handle, PROC_NULL, REQUEST_NULL, Status, UNDEFINED};
use crate::datatype::Strided;
use crate::state::{Comm, Used, deadline, expect, fail};
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

fn room() -> Box<MaybeUninit<Held>> {
    let room = ROOM.try_with(|room| room.borrow_mut().pop()).ok().flatten();
    room.unwrap_or_else(Box::new_uninit)
}

/// What a handle of a request points to.
pub(crate) struct Held {
    made: Made,
    persistent: bool,
    /// Started, and not seen complete.
    active: bool,
    /// The bytes of rows.
    packed: Option<Box<Packed>>,
}

/// A message of rows, and where it goes if it is received.
pub(crate) struct Packed {
    bytes: Vec<u8>,
    to: Option<Strided>,
}

impl Packed {
    pub fn new(bytes: Vec<u8>, to: Option<Strided>) -> Packed {
        Packed { bytes, to }
    }

    pub fn place(&mut self) -> (NonNull<u8>, usize) {
        let at = NonNull::new(self.bytes.as_mut_ptr()).unwrap_or(NonNull::dangling());
        (at, self.bytes.len())
    }

    /// So many bytes have come.
    fn has_come(self, len: usize) {
        if let Some(to) = &self.to {
            // SAFETY: whoever asked for the receive keeps the memory until it is complete, which is now.
            unsafe { to.unpack(&self.bytes[..len.min(self.bytes.len())]) };
        }
    }
}

pub(crate) enum Made {
    /// To or from `MPI_PROC_NULL`: complete at once.
    Nobody,
    /// Of host memory, and not persistent.
    Started(Used, Ticket),
    Request(Request<'static>),
}

impl Held {
    /// A persistent one is still to be started, any other one was.
    pub fn new(made: Made, persistent: bool, packed: Option<Box<Packed>>) -> Held {
        Held { made, persistent, active: !persistent, packed }
    }

    pub fn wait(&mut self, call: &str) -> Status {
        let was_active = std::mem::take(&mut self.active);
        let status = match &mut self.made {
            _ if !was_active => Status::empty(ANY_SOURCE),
            Made::Nobody => Status::empty(PROC_NULL),
            Made::Started(comm, ticket) => Status::of(finish(call, comm, *ticket), false),
            Made::Request(request) => {
                // The clock is not read for what is complete.
                let got = match request.test() {
                    Ok(None) => request.wait(deadline(call)),
                    Ok(Some(got)) => Ok(got),
                    Err(error) => Err(error),
                };
                Status::of(expect(call, got), request.is_cancelled())
            }
        };
        self.has_come(&status);
        status
    }

    fn has_come(&mut self, status: &Status) {
        if let Some(packed) = self.packed.take() {
            packed.has_come(status.bytes());
        }
    }

    /// What it got, if it is complete.
    fn test(&mut self, call: &str) -> Option<Status> {
        let got = match &mut self.made {
            _ if !self.active => return Some(self.wait(call)),
            Made::Nobody => return Some(self.wait(call)),
            Made::Started(comm, ticket) => {
                Status::of(expect(call, comm.messages.finished(*ticket))?, false)
            }
            Made::Request(request) => {
                let got = expect(call, request.test())?;
                Status::of(got, request.is_cancelled())
            }
        };
        self.active = false;
        self.has_come(&got);
        Some(got)
    }

    /// As a request, if it is one that was started, or prepared.
    fn request(&mut self, call: &str) -> Option<&mut Request<'static>> {
        if let Made::Started(comm, ticket) = &self.made
            && self.active
        {
            let request = expect(call, comm.messages.request(*ticket));
            self.made = Made::Request(request);
        }
        match &mut self.made {
            Made::Request(request) => Some(request),
            Made::Nobody | Made::Started(..) => None,
        }
    }
}

/// Waits for what was started.
pub(crate) fn finish(call: &str, comm: &Comm, ticket: Ticket) -> tagged::Status {
    // The clock is not read for what is complete.
    if let Some(got) = expect(call, comm.messages.finished(ticket)) {
        return got;
    }
    let mut got = tagged::Status::default();
    let each = |status| got = status;
    expect(call, comm.messages.finish([ticket], deadline(call), each));
    got
}

/// Gives the program a handle.
///
/// # Safety
/// The pointer is valid for a write.
pub(crate) unsafe fn give(to: *mut Handle, held: Held) {
    let mut room = room();
    room.write(held);
    // SAFETY: the caller's promise.
    unsafe { put(to, Box::into_raw(room) as Handle) }
}

/// Gives the program a handle of what was started; of what has gone at once there is nothing to hold.
///
/// # Safety
/// As [`give`].
#[inline(always)]
pub(crate) unsafe fn give_started(to: *mut Handle, comm: Used, ticket: Option<Ticket>) {
    // SAFETY: the caller's promise.
    unsafe {
        match ticket {
            None => put(to, gone()),
            Some(ticket) => {
                let mut room = room();
                // Where it stays: a copy of what has just been written waits for it.
                let made = Made::Started(comm, ticket);
                room.write(Held { made, persistent: false, active: true, packed: None });
                put(to, Box::into_raw(room) as Handle);
            }
        }
    }
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

/// The communicator of a request that was started, and is active.
///
/// # Safety
/// As [`held`].
unsafe fn started_of<'a>(handle: Handle) -> Option<&'a Used> {
    // SAFETY: the caller's promise.
    match unsafe { held(handle) } {
        Some(Held { made: Made::Started(comm, _), active: true, .. }) => Some(comm),
        _ => None,
    }
}

/// The ticket of such a request, of this communicator.
///
/// # Safety
/// As [`held`].
#[inline]
unsafe fn ticket_of(handle: Handle, comm: &Comm) -> Option<Ticket> {
    // SAFETY: the caller's promise.
    match unsafe { held(handle) } {
        Some(Held { made: Made::Started(of, ticket), active: true, .. }) => {
            std::ptr::eq(&**of, comm).then_some(*ticket)
        }
        _ => None,
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
    fn MPI_Start(request: *mut Handle) {
        let Some(held) = held(*request) else { fail(CALL, "the request is not persistent") };
        held.active = true;
        if let Made::Request(request) = &mut held.made {
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
        if count < 0 {
            fail(CALL, format!("a count of {count}"));
        }
        // All at once first, or each of them would look at all that comes; each says afterwards what it got.
        let started = list(CALL, count, requests).filter_map(|(_, request)| {
            match held(*request) {
                Some(Held { made: Made::Request(request), active: true, .. }) => Some(request),
                _ => None,
            }
        });
        let started: Vec<_> = started.collect();
        if started.iter().any(|request| request.is_active()) {
            expect(CALL, tagged::wait_all(started, deadline(CALL)));
        }
        let mut next = 0;
        while next < count {
            let (first, status) = (*requests.add(next as usize), |at: c_int| match statuses.is_null() {
                true => statuses,
                false => statuses.add(at as usize),
            });
            if first == gone() || first == REQUEST_NULL {
                Status::put(status(next), ANY_SOURCE, ANY_TAG, 0);
                requests.add(next as usize).write(REQUEST_NULL);
                next += 1;
                continue;
            }
            let Some(comm) = started_of(first) else {
                put(status(next), wait(CALL, requests.add(next as usize)));
                next += 1;
                continue;
            };
            // As many as there are of one communicator: with one look at its messages.
            let comm = comm.clone();
            let tickets = (next..count).map_while(|at| ticket_of(*requests.add(at as usize), &comm));
            let finished = comm.messages.finish(tickets, deadline(CALL), |got| {
                Status::put(status(next), got.source as c_int, got.tag as c_int, got.bytes);
                done(requests.add(next as usize));
                next += 1;
            });
            expect(CALL, finished);
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
            match held.request(CALL) {
                Some(made) if made.is_active() => active.push((number, made)),
                _ => {
                    put(index, number as c_int);
                    put(status, wait(CALL, request));
                    return crate::abi::SUCCESS;
                }
            }
        }
        let waiting = active.iter_mut().map(|(_, made)| &mut **made);
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
            let under_way = |held: &mut Held| match held.active {
                true => held.request(CALL).is_some_and(|it| expect(CALL, it.test()).is_none()),
                false => false,
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
            if held.active && held.packed.as_ref().is_some_and(|packed| packed.to.is_some()) {
                fail(CALL, "a receive of rows that is under way is not left to itself in this subset");
            }
            // What is under way is left to itself as a request is that is dropped, with what it sends.
            held.request(CALL);
            if held.active {
                std::mem::forget(held.packed.take());
            }
            drop_held(held);
        }
        request.write(REQUEST_NULL);
    }

    fn MPI_Cancel(request: *mut Handle) {
        if *request == REQUEST_NULL {
            fail(CALL, "the request is MPI_REQUEST_NULL");
        }
        if let Some(request) = held(*request).and_then(|held| held.request(CALL)) {
            request.cancel();
        }
    }

    fn MPI_Test_cancelled(status: *const Status, flag: *mut c_int) {
        put(flag, (*status).internal[2]);
    }
}
