//! Sends, receives and probes. What becomes of those that return before they are complete is `request`'s.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use libmp::tagged::{self, Place, Source, Tag, Ticket};

use crate::abi::{ANY_SOURCE, ANY_TAG, Handle, PROC_NULL, Status};
use crate::datatype::{self, Strided};
use crate::kind::element;
use crate::request::{Held, Made, Packed, finish, give, give_started};
use crate::state::{Comm, Used, comm, deadline, expect, fail};
use crate::world::{entries, put};

/// The memory of a message.
enum Memory {
    Host(Bytes),
    /// Of a device.
    Place(Place<'static>),
    Rows(Strided),
}

fn memory(call: &str, at: *const c_void, count: c_int, datatype: Handle) -> Memory {
    if let Some(place) = datatype::place(call, datatype, at, count) {
        return Memory::Place(place);
    }
    match datatype::strided(call, datatype, at, count) {
        Some(strided) => Memory::Rows(strided),
        None => Memory::Host(bytes(call, at, count, datatype)),
    }
}

fn no_rows(call: &str) -> ! {
    fail(call, "rows (MPI_Type_vector) in persistent requests are not part of this subset")
}

/// Bytes of the program.
type Bytes = (NonNull<u8>, usize);

#[inline]
fn bytes(call: &str, at: *const c_void, count: c_int, datatype: Handle) -> Bytes {
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
struct Message {
    memory: Memory,
    other: c_int,
    tag: c_int,
}

impl Message {
    /// A send that is persistent, of memory of a device, or of rows.
    ///
    /// # Safety
    /// The bytes are valid as MPI has it until the request is complete.
    unsafe fn send(self, call: &str, comm: &Used, persistent: bool) -> Held {
        let mut packed = None;
        let made = if self.other == PROC_NULL {
            Made::Nobody
        } else {
            let (to, tag) = (rank_of(call, self.other), tag_of(call, self.tag));
            let messages = &comm.messages;
            let made = match (self.memory, persistent) {
                // SAFETY: the caller's promise.
                (Memory::Host(bytes), _) => unsafe {
                    messages.isend_raw(bytes, to, tag, !persistent)
                },
                (Memory::Place(place), false) => messages.isend(place, to, tag),
                (Memory::Place(place), true) => messages.send_init(place, to, tag),
                (Memory::Rows(_), true) => no_rows(call),
                (Memory::Rows(rows), false) => {
                    // SAFETY: the caller's promise.
                    let bytes = unsafe { rows.packed() };
                    let held = packed.insert(Box::new(Packed::new(bytes, None)));
                    // SAFETY: the bytes stay where they are until the request is complete.
                    unsafe { messages.isend_raw(held.place(), to, tag, true) }
                }
            };
            Made::Request(expect(call, made))
        };
        Held::new(made, persistent, packed)
    }

    /// A receive that is persistent, into memory of a device, or into rows.
    ///
    /// # Safety
    /// As [`send`](Self::send).
    unsafe fn receive(self, call: &str, comm: &Used, persistent: bool) -> Held {
        let mut packed = None;
        let made = if self.other == PROC_NULL {
            Made::Nobody
        } else {
            let (from, tag) = pattern(call, self.other, self.tag);
            let messages = &comm.messages;
            let made = match (self.memory, persistent) {
                // SAFETY: the caller's promise.
                (Memory::Host(bytes), _) => unsafe {
                    messages.irecv_raw(bytes, from, tag, !persistent)
                },
                (Memory::Place(place), false) => messages.irecv(place, from, tag),
                (Memory::Place(place), true) => messages.recv_init(place, from, tag),
                (Memory::Rows(_), true) => no_rows(call),
                (Memory::Rows(rows), false) => {
                    let held =
                        packed.insert(Box::new(Packed::new(vec![0; rows.len()], Some(rows))));
                    // SAFETY: the bytes stay where they are until the request is complete.
                    unsafe { messages.irecv_raw(held.place(), from, tag, true) }
                }
            };
            Made::Request(expect(call, made))
        };
        Held::new(made, persistent, packed)
    }
}

/// Starts to send; a ticket of what has not gone at once.
///
/// # Safety
/// As [`Message::send`].
#[inline(always)]
unsafe fn start_send(
    call: &str,
    comm: &Comm,
    bytes: Bytes,
    to: c_int,
    tag: c_int,
) -> Option<Ticket> {
    let (to, tag) = (rank_of(call, to), tag_of(call, tag));
    // SAFETY: the caller's promise.
    expect(call, unsafe { comm.messages.start_send(bytes, to, tag) })
}

/// Starts to receive.
///
/// # Safety
/// As [`Message::send`].
#[inline(always)]
unsafe fn start_recv(call: &str, comm: &Comm, bytes: Bytes, from: c_int, tag: c_int) -> Ticket {
    let (from, tag) = pattern(call, from, tag);
    // SAFETY: the caller's promise.
    expect(call, unsafe { comm.messages.start_recv(bytes, from, tag) })
}

/// Receives.
///
/// # Safety
/// As [`Message::send`].
#[inline(always)]
unsafe fn recv(call: &str, comm: &Comm, bytes: Bytes, from: c_int, tag: c_int) -> tagged::Status {
    let (source, label) = pattern(call, from, tag);
    // SAFETY: the caller's promise.
    if let Some(got) = expect(call, unsafe { comm.messages.recv_soon(bytes, source, label) }) {
        return got;
    }
    // SAFETY: as above.
    finish(call, comm, unsafe { start_recv(call, comm, bytes, from, tag) })
}

/// Whether a message is between ranks and of the host's memory, as most are.
#[inline]
fn is_plain(datatype: Handle, other: c_int) -> bool {
    other != PROC_NULL && !datatype::is_made(datatype)
}

entries! {
    fn MPI_Send(buf: *const c_void, count: c_int, datatype: Handle, other: c_int, tag: c_int, handle: Handle) {
        let comm = comm(CALL, handle);
        if is_plain(datatype, other) {
            if let Some(ticket) = start_send(CALL, &comm, bytes(CALL, buf, count, datatype), other, tag) {
                finish(CALL, &comm, ticket);
            }
            return crate::abi::SUCCESS;
        }
        let memory = memory(CALL, buf, count, datatype);
        Message { memory, other, tag }.send(CALL, &comm, false).wait(CALL);
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
        let comm = comm(CALL, handle);
        if is_plain(datatype, other) {
            let got = recv(CALL, &comm, bytes(CALL, buf, count, datatype), other, tag);
            Status::put(status, got.source as c_int, got.tag as c_int, got.bytes);
            return crate::abi::SUCCESS;
        }
        let memory = memory(CALL, buf, count, datatype);
        put(status, Message { memory, other, tag }.receive(CALL, &comm, false).wait(CALL));
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
        let comm = comm(CALL, handle);
        if is_plain(datatype, other) {
            let ticket = start_send(CALL, &comm, bytes(CALL, buf, count, datatype), other, tag);
            give_started(request, comm, ticket);
            return crate::abi::SUCCESS;
        }
        let memory = memory(CALL, buf, count, datatype);
        give(request, Message { memory, other, tag }.send(CALL, &comm, false));
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
        let comm = comm(CALL, handle);
        if is_plain(datatype, other) {
            let ticket = start_recv(CALL, &comm, bytes(CALL, buf, count, datatype), other, tag);
            give_started(request, comm, Some(ticket));
            return crate::abi::SUCCESS;
        }
        let memory = memory(CALL, buf, count, datatype);
        give(request, Message { memory, other, tag }.receive(CALL, &comm, false));
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
        give(request, Message { memory, other, tag }.send(CALL, &comm(CALL, handle), true));
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
        give(request, Message { memory, other, tag }.receive(CALL, &comm(CALL, handle), true));
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
        let incoming = Message { memory: memory_in, other: from, tag: recvtag };
        let outgoing = Message { memory: memory_out, other: to, tag: sendtag };
        let mut recv = incoming.receive(CALL, &comm, false);
        let mut send = outgoing.send(CALL, &comm, false);
        put(status, recv.wait(CALL));
        send.wait(CALL);
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
