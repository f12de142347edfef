//! Requests: what their handles point to, and the calls that start, await, free and cancel them. What makes them is
//! `point_to_point`.

use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::Arc;

use libmp::tagged::{self, Request, Ticket};

use crate::abi::{ANY_SOURCE, Handle, PROC_NULL, REQUEST_NULL, Status, UNDEFINED};
use crate::datatype::Strided;
use crate::state::{Comm, Used, deadline, expect, fail, predefined};
use crate::world::{entries, put};

/// What a handle of a request is.
///
/// A message of host memory in a predefined communicator, started and not persistent, is its ticket: the number of the request, moved up by
/// [`ODD`], which no address has, and by whether it is of `MPI_COMM_SELF`. Any other handle is the address of what is [`Boxed`].
enum Named<'a> {
    /// The null handle, and a send that was complete at once.
    Nothing,
    /// A message that was started, is of host memory and is not persistent.
    Started(&'a Comm, Ticket),
    Held(&'a mut Held),
}

const ODD: Handle = 1;
/// A send that was complete at once: of such there is nothing to hold, and no ticket has this number.
const GONE: Handle = ODD;
const OF_SELF: Handle = 2;
/// Bits that a ticket is moved up by: of its lower half, which is small.
const UP: u32 = 2;

/// The handle that a ticket is; `None` if it has too many bits.
#[inline]
fn handle_of(ticket: Ticket, of_self: bool) -> Option<Handle> {
    let (count, which) = (ticket.to_bits() >> 32, ticket.to_bits() as u32);
    let fits = which.leading_zeros() >= UP && size_of::<Handle>() == size_of::<u64>();
    let handle = (count << 32 | u64::from(which << UP)) as Handle | ODD;
    fits.then_some(if of_self { handle | OF_SELF } else { handle })
}

/// The ticket that such a handle is.
#[inline]
fn ticket_of(handle: Handle) -> Ticket {
    let bits = handle as u64;
    Ticket::from_bits(bits >> 32 << 32 | u64::from(bits as u32 >> UP))
}

/// What a handle is.
///
/// # Safety
/// It is the null handle, or one that was given and not taken back; nobody else uses it meanwhile.
#[inline]
unsafe fn named<'a>(call: &str, handle: Handle) -> Named<'a> {
    match handle {
        REQUEST_NULL | GONE => Named::Nothing,
        _ if handle & ODD != 0 => {
            Named::Started(predefined(call, handle & OF_SELF != 0), ticket_of(handle))
        }
        _ => {
            // SAFETY: the caller's promise.
            match unsafe { &mut *(handle as *mut Boxed) } {
                Boxed::Started(comm, ticket) => Named::Started(comm, *ticket),
                Boxed::Held(held) => Named::Held(held),
            }
        }
    }
}

/// What the address of a handle points to.
enum Boxed {
    /// A message whose ticket is no handle by itself: of a communicator that the program made.
    Started(Arc<Comm>, Ticket),
    Held(Held),
}

/// Any other request: persistent, of memory of a device, of rows, to or from nobody, cancelled.
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
            Made::Request(request) => {
                let got = expect(call, request.test())?;
                Status::of(got, request.is_cancelled())
            }
        };
        self.active = false;
        self.has_come(&got);
        Some(got)
    }

    /// As a request, if it is one.
    fn request(&mut self) -> Option<&mut Request<'static>> {
        match &mut self.made {
            Made::Request(request) => Some(request),
            Made::Nobody => None,
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
    // SAFETY: the caller's promise.
    unsafe { give_box(to, Boxed::Held(held)) }
}

/// # Safety
/// As [`give`].
unsafe fn give_box(to: *mut Handle, boxed: Boxed) {
    // SAFETY: the caller's promise.
    unsafe { put(to, Box::into_raw(Box::new(boxed)) as Handle) }
}

/// Gives the program a handle of what was started; of what has gone at once there is nothing to hold.
///
/// # Safety
/// As [`give`].
#[inline(always)]
pub(crate) unsafe fn give_started(to: *mut Handle, comm: Used, ticket: Option<Ticket>) {
    let handle = match (ticket, &comm) {
        (None, _) => Some(GONE),
        (Some(ticket), Used::Predefined { of_self, .. }) => handle_of(ticket, *of_self),
        (Some(_), Used::Made(_)) => None,
    };
    // SAFETY: the caller's promise.
    unsafe {
        match (handle, ticket) {
            (Some(handle), _) => put(to, handle),
            (None, Some(ticket)) => give_other(to, comm, ticket),
            (None, None) => {}
        }
    }
}

/// # Safety
/// As [`give`].
#[cold]
unsafe fn give_other(to: *mut Handle, comm: Used, ticket: Ticket) {
    let boxed = match comm {
        Used::Made(comm) => Boxed::Started(comm, ticket),
        Used::Predefined { comm, .. } => {
            let request = expect("a request", comm.messages.request(ticket));
            Boxed::Held(Held::new(Made::Request(request), false, None))
        }
    };
    // SAFETY: the caller's promise.
    unsafe { give_box(to, boxed) }
}

/// Takes back a request that is complete, unless it is persistent.
///
/// # Safety
/// As [`named`], of the handle that is pointed to.
#[inline]
unsafe fn done(at: *mut Handle) {
    // SAFETY: the caller's promise; the address is of a box of `give`.
    unsafe {
        let handle = *at;
        if handle & ODD == 0 && handle != REQUEST_NULL {
            if let Boxed::Held(Held { persistent: true, .. }) = &*(handle as *const Boxed) {
                return;
            }
            drop(Box::from_raw(handle as *mut Boxed));
        }
        at.write(REQUEST_NULL);
    }
}

/// Waits for a request, and takes it back.
///
/// # Safety
/// As [`done`].
unsafe fn wait(call: &str, at: *mut Handle) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        let status = match named(call, *at) {
            Named::Nothing => Status::empty(ANY_SOURCE),
            Named::Started(comm, ticket) => Status::of(finish(call, comm, ticket), false),
            Named::Held(held) => held.wait(call),
        };
        done(at);
        status
    }
}

/// What was started goes on, and its handles stay what they are.
fn keep(started: Vec<(usize, Request<'static>)>) {
    for (_, request) in started {
        request.into_ticket();
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
        let Named::Held(held) = named(CALL, *request) else { fail(CALL, "the request is not persistent") };
        held.active = true;
        if let Some(request) = held.request() {
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
            match named(CALL, *request) {
                Named::Held(held) if held.active => held.request(),
                _ => None,
            }
        });
        let started: Vec<_> = started.collect();
        if started.iter().any(|request| request.is_active()) {
            expect(CALL, tagged::wait_all(started, deadline(CALL)));
        }
        let status = |at: c_int| match statuses.is_null() {
            true => statuses,
            false => statuses.add(at as usize),
        };
        let mut next = 0;
        while next < count {
            let first = next;
            let Named::Started(comm, _) = named(CALL, *requests.add(first as usize)) else {
                put(status(next), wait(CALL, requests.add(first as usize)));
                next += 1;
                continue;
            };
            // As many as there are of one communicator: with one look at its messages.
            let tickets = (first..count).map_while(|at| match named(CALL, *requests.add(at as usize)) {
                Named::Started(of, ticket) if std::ptr::eq(of, comm) => Some(ticket),
                _ => None,
            });
            let finished = comm.messages.finish(tickets, deadline(CALL), |got| {
                Status::put(status(next), got.source as c_int, got.tag as c_int, got.bytes);
                next += 1;
            });
            expect(CALL, finished);
            (first..next).for_each(|at| done(requests.add(at as usize)));
        }
    }

    fn MPI_Waitany(count: c_int, requests: *mut Handle, index: *mut c_int, status: *mut Status) {
        let (mut active, mut started) = (Vec::new(), Vec::new());
        for (number, request) in list(CALL, count, requests) {
            let is_over = match named(CALL, *request) {
                Named::Nothing => *request == GONE,
                Named::Started(comm, ticket) => {
                    started.push((number, expect(CALL, comm.messages.request(ticket))));
                    false
                }
                Named::Held(held) if held.active => match held.request() {
                    Some(made) if made.is_active() => {
                        active.push((number, made));
                        false
                    }
                    _ => true,
                },
                Named::Held(_) => false,
            };
            if is_over {
                keep(started);
                put(index, number as c_int);
                put(status, wait(CALL, request));
                return crate::abi::SUCCESS;
            }
        }
        let numbers = active.iter().map(|(number, _)| *number);
        let numbers: Vec<_> = numbers.chain(started.iter().map(|(number, _)| *number)).collect();
        let held = active.iter_mut().map(|(_, made)| &mut **made);
        let waiting = held.chain(started.iter_mut().map(|(_, request)| request));
        let found = expect(CALL, tagged::wait_any(waiting, deadline(CALL)));
        let Some((number, got)) = found.and_then(|(which, got)| Some((*numbers.get(which)?, got))) else {
            put(index, UNDEFINED);
            put(status, Status::empty(ANY_SOURCE));
            return crate::abi::SUCCESS;
        };
        put(index, number as c_int);
        let request = requests.add(number);
        if let Named::Held(_) = named(CALL, *request) {
            put(status, wait(CALL, request));
        } else {
            put(status, Status::of(got, false));
            done(request);
        }
        keep(started);
    }

    fn MPI_Test(request: *mut Handle, flag: *mut c_int, status: *mut Status) {
        let got = match named(CALL, *request) {
            Named::Nothing => Some(Status::empty(ANY_SOURCE)),
            Named::Started(comm, ticket) => {
                let got = expect(CALL, comm.messages.finished(ticket));
                got.map(|got| Status::of(got, false))
            }
            Named::Held(held) => held.test(CALL),
        };
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
            all &= match named(CALL, *request) {
                Named::Nothing => true,
                Named::Started(comm, ticket) => expect(CALL, comm.messages.is_complete(ticket)),
                Named::Held(held) if held.active => {
                    held.request().is_none_or(|it| expect(CALL, it.test()).is_some())
                }
                Named::Held(_) => true,
            };
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
        match named(CALL, *request) {
            Named::Nothing => {}
            // What is under way is left to itself as a request is that is dropped, with what it sends.
            Named::Started(comm, ticket) => drop(expect(CALL, comm.messages.request(ticket))),
            Named::Held(held) => {
                if held.active && held.packed.as_ref().is_some_and(|packed| packed.to.is_some()) {
                    fail(CALL, "a receive of rows that is under way is not left to itself in this subset");
                }
                if held.active {
                    std::mem::forget(held.packed.take());
                }
                held.persistent = false;
            }
        }
        done(request);
    }

    fn MPI_Cancel(request: *mut Handle) {
        if *request == REQUEST_NULL {
            fail(CALL, "the request is MPI_REQUEST_NULL");
        }
        match named(CALL, *request) {
            Named::Nothing => {}
            Named::Started(comm, ticket) => {
                let mut cancelled = expect(CALL, comm.messages.request(ticket));
                if cancelled.cancel() {
                    // That it was is still to be told.
                    done(request);
                    give(request, Held::new(Made::Request(cancelled), false, None));
                } else {
                    cancelled.into_ticket();
                }
            }
            Named::Held(held) => {
                held.request().map(Request::cancel);
            }
        }
    }

    fn MPI_Test_cancelled(status: *const Status, flag: *mut c_int) {
        put(flag, (*status).internal[2]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_comes_out_of_the_handle_that_it_is_unless_it_is_too_large_for_one() {
        for (count, which) in [(1u64, 0u64), (1, 1), (u64::from(u32::MAX), (1 << 30) - 1)] {
            for of_self in [false, true] {
                let ticket = Ticket::from_bits(count << 32 | which);
                let handle = handle_of(ticket, of_self).unwrap();
                assert_eq!((ticket_of(handle), handle & OF_SELF != 0), (ticket, of_self));
                assert!(handle & ODD != 0 && handle != GONE && handle != REQUEST_NULL);
            }
        }
        assert_eq!(handle_of(Ticket::from_bits(1 << 32 | 1 << 30), false), None);
    }
}
