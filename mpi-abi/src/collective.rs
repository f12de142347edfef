//! Collectives, of messages of their own: each has a tag of its own, so that one that is slow keeps nothing of the next.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use libmp::tagged::Request;

use crate::abi::{Handle, IN_PLACE};
use crate::kind::{Element, Op, combine, element, op};
use crate::state::{Used, comm, deadline, expect, fail};
use crate::world::entries;

/// One collective of a rank.
struct Turn {
    call: &'static str,
    comm: Used,
    tag: u64,
}

impl Turn {
    fn new(call: &'static str, handle: Handle) -> Turn {
        let comm = comm(call, handle);
        let tag = comm.turn.fetch_add(1, Ordering::Relaxed) as u64;
        Turn { call, comm, tag }
    }

    fn send(&self, bytes: &[u8], to: usize) {
        expect(self.call, self.comm.collective.send(bytes, to, self.tag, deadline(self.call)));
    }

    fn recv(&self, bytes: &mut [u8], from: usize) {
        let got = self.comm.collective.recv(bytes, from, self.tag, deadline(self.call));
        let got = expect(self.call, got).bytes;
        if got != bytes.len() {
            let (room, rank) = (bytes.len(), from);
            fail(self.call, format!("rank {rank} gave {got} bytes where {room} were expected"));
        }
    }

    /// # Safety
    /// The bytes are valid until the request is complete.
    unsafe fn isend(&self, (at, len): (*const u8, usize), to: usize) -> Request<'static> {
        let at = NonNull::new(at.cast_mut()).unwrap_or(NonNull::dangling());
        // SAFETY: the caller's promise.
        expect(self.call, unsafe { self.comm.collective.isend_raw((at, len), to, self.tag, true) })
    }

    /// # Safety
    /// As [`isend`](Self::isend).
    unsafe fn irecv(&self, (at, len): (*mut u8, usize), from: usize) -> Request<'static> {
        let at = NonNull::new(at).unwrap_or(NonNull::dangling());
        // SAFETY: the caller's promise.
        expect(self.call, unsafe {
            self.comm.collective.irecv_raw((at, len), from, self.tag, true)
        })
    }

    fn wait(&self, requests: Vec<Request<'static>>) {
        for mut request in requests {
            expect(self.call, request.wait(deadline(self.call)));
        }
    }

    fn root(&self, root: c_int) -> usize {
        match usize::try_from(root) {
            Ok(root) if root < self.comm.size() => root,
            _ => fail(self.call, format!("{root} is no rank of the communicator")),
        }
    }

    /// Everybody has entered: in ceil(log2 ranks) rounds each hears of twice as many.
    fn barrier(&self) {
        let (rank, size) = (self.comm.rank(), self.comm.size());
        let mut step = 1;
        while step < size {
            self.send(&[], (rank + step) % size);
            self.recv(&mut [], (rank + size - step) % size);
            step *= 2;
        }
    }

    /// Down a binomial tree.
    fn broadcast(&self, bytes: &mut [u8], root: usize) {
        let (rank, size) = (self.comm.rank(), self.comm.size());
        let place = (rank + size - root) % size;
        let rank_at = |place: usize| (place + root) % size;
        // The lowest bit set is how far above its parent it is.
        let mut step =
            if place == 0 { size.next_power_of_two() } else { 1 << place.trailing_zeros() };
        if place > 0 {
            self.recv(bytes, rank_at(place - step));
        }
        while step > 1 {
            step /= 2;
            if place + step < size {
                self.send(bytes, rank_at(place + step));
            }
        }
    }

    /// Up a binomial tree whose root is rank 0, in the order of the ranks, so that the bits depend on the number of ranks and on nothing else.
    fn reduce_to_first(&self, op: Op, element: Element, bytes: &mut [u8]) {
        let (rank, size) = (self.comm.rank(), self.comm.size());
        let mut upper = vec![0; bytes.len()];
        let mut step = 1;
        while step < size {
            if rank & step != 0 {
                self.send(bytes, rank - step);
                return;
            }
            if rank + step < size {
                self.recv(&mut upper, rank + step);
                combine(op, element, bytes, &mut upper);
                bytes.copy_from_slice(&upper);
            }
            step *= 2;
        }
    }
}

fn bytes_of(call: &str, count: c_int, datatype: Handle) -> usize {
    let count =
        usize::try_from(count).unwrap_or_else(|_| fail(call, format!("a count of {count}")));
    count * element(datatype).size()
}

/// Bytes that the program reads.
///
/// # Safety
/// There are so many.
unsafe fn read<'a>(at: *const c_void, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(at.cast(), len) }
}

/// Bytes that the program gets.
///
/// # Safety
/// There are so many, and nobody else uses them meanwhile.
unsafe fn write<'a>(at: *mut c_void, len: usize) -> &'a mut [u8] {
    if len == 0 {
        return &mut [];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(at.cast(), len) }
}

fn in_place(at: *const c_void) -> bool {
    at as usize == IN_PLACE
}

/// Every rank gives every rank some bytes: `(offset, length)` of what each gets from here, and of what comes from each.
///
/// # Safety
/// Both memories have these bytes.
unsafe fn exchange(
    turn: &Turn,
    from: *const c_void,
    sent: impl Fn(usize) -> (usize, usize),
    to: *mut c_void,
    received: impl Fn(usize) -> (usize, usize),
) {
    let (rank, size) = (turn.comm.rank(), turn.comm.size());
    let mut requests = Vec::with_capacity(2 * size);
    // Each begins with another one.
    for distance in 0..size {
        let peer = (rank + size - distance) % size;
        let (at, len) = received(peer);
        // SAFETY: the caller's promise; all of them are waited for.
        requests.push(unsafe { turn.irecv((to.cast::<u8>().wrapping_add(at), len), peer) });
    }
    for distance in 0..size {
        let peer = (rank + distance) % size;
        let (at, len) = sent(peer);
        // SAFETY: as above.
        requests.push(unsafe { turn.isend((from.cast::<u8>().wrapping_add(at), len), peer) });
    }
    turn.wait(requests);
}

/// Counts and places of a vector collective, in bytes.
///
/// # Safety
/// Both arrays have an element for the rank.
unsafe fn place(
    call: &str,
    (counts, places): (*const c_int, *const c_int),
    datatype: Handle,
    rank: usize,
) -> (usize, usize) {
    // SAFETY: the caller's promise.
    let (count, place) = unsafe { (*counts.add(rank), *places.add(rank)) };
    let at = isize::try_from(place).unwrap_or_default() * element(datatype).size() as isize;
    // A displacement may be negative: the address wraps back.
    (at as usize, bytes_of(call, count, datatype))
}

entries! {
    fn MPI_Barrier(handle: Handle) {
        Turn::new(CALL, handle).barrier();
    }

    fn MPI_Bcast(buf: *mut c_void, count: c_int, datatype: Handle, root: c_int, handle: Handle) {
        let turn = Turn::new(CALL, handle);
        turn.broadcast(write(buf, bytes_of(CALL, count, datatype)), turn.root(root));
    }

    fn MPI_Reduce(
        from: *const c_void,
        to: *mut c_void,
        count: c_int,
        datatype: Handle,
        operation: Handle,
        root: c_int,
        handle: Handle,
    ) {
        let turn = Turn::new(CALL, handle);
        let (len, root) = (bytes_of(CALL, count, datatype), turn.root(root));
        let rank = turn.comm.rank();
        let mut bytes = read(if in_place(from) { to } else { from }, len).to_vec();
        turn.reduce_to_first(op(operation), element(datatype), &mut bytes);
        if root != 0 && rank == 0 {
            turn.send(&bytes, root);
        }
        if rank == root {
            let to = write(to, len);
            if root == 0 { to.copy_from_slice(&bytes) } else { turn.recv(to, 0) }
        }
    }

    fn MPI_Allreduce(
        from: *const c_void,
        to: *mut c_void,
        count: c_int,
        datatype: Handle,
        operation: Handle,
        handle: Handle,
    ) {
        let turn = Turn::new(CALL, handle);
        let len = bytes_of(CALL, count, datatype);
        let to = write(to, len);
        if !in_place(from) {
            to.copy_from_slice(read(from, len));
        }
        turn.reduce_to_first(op(operation), element(datatype), to);
        turn.broadcast(to, 0);
    }

    fn MPI_Gather(
        from: *const c_void,
        sendcount: c_int,
        sendtype: Handle,
        to: *mut c_void,
        recvcount: c_int,
        recvtype: Handle,
        root: c_int,
        handle: Handle,
    ) {
        let turn = Turn::new(CALL, handle);
        let root = turn.root(root);
        if turn.comm.rank() != root {
            turn.send(read(from, bytes_of(CALL, sendcount, sendtype)), root);
            return crate::abi::SUCCESS;
        }
        let len = bytes_of(CALL, recvcount, recvtype);
        let part = |rank: usize| (to.cast::<u8>().wrapping_add(rank * len), len);
        let others = (0..turn.comm.size()).filter(|rank| *rank != root);
        let requests = others.map(|rank| turn.irecv(part(rank), rank)).collect();
        if !in_place(from) {
            write(part(root).0.cast(), len).copy_from_slice(read(from, len));
        }
        turn.wait(requests);
    }

    fn MPI_Scatter(
        from: *const c_void,
        sendcount: c_int,
        sendtype: Handle,
        to: *mut c_void,
        recvcount: c_int,
        recvtype: Handle,
        root: c_int,
        handle: Handle,
    ) {
        let turn = Turn::new(CALL, handle);
        let root = turn.root(root);
        if turn.comm.rank() != root {
            turn.recv(write(to, bytes_of(CALL, recvcount, recvtype)), root);
            return crate::abi::SUCCESS;
        }
        let len = bytes_of(CALL, sendcount, sendtype);
        let part = |rank: usize| (from.cast::<u8>().wrapping_add(rank * len), len);
        let others = (0..turn.comm.size()).filter(|rank| *rank != root);
        let requests = others.map(|rank| turn.isend(part(rank), rank)).collect();
        if !in_place(to) {
            write(to, len).copy_from_slice(read(part(root).0.cast(), len));
        }
        turn.wait(requests);
    }

    fn MPI_Allgather(
        from: *const c_void,
        sendcount: c_int,
        sendtype: Handle,
        to: *mut c_void,
        recvcount: c_int,
        recvtype: Handle,
        handle: Handle,
    ) {
        let turn = Turn::new(CALL, handle);
        let (rank, len) = (turn.comm.rank(), bytes_of(CALL, recvcount, recvtype));
        if !in_place(from) {
            let mine = read(from, bytes_of(CALL, sendcount, sendtype));
            write(to.cast::<u8>().wrapping_add(rank * len).cast(), len).copy_from_slice(mine);
        }
        // Its own place is read by the sends to others and not written: it gives nothing to itself.
        let length = |peer: usize| if peer == rank { 0 } else { len };
        exchange(&turn, to, |peer| (rank * len, length(peer)), to, |peer| (peer * len, length(peer)));
    }

    fn MPI_Alltoall(
        from: *const c_void,
        sendcount: c_int,
        sendtype: Handle,
        to: *mut c_void,
        recvcount: c_int,
        recvtype: Handle,
        handle: Handle,
    ) {
        if in_place(from) {
            fail(CALL, "MPI_IN_PLACE is not part of this subset");
        }
        let (out, here) = (bytes_of(CALL, sendcount, sendtype), bytes_of(CALL, recvcount, recvtype));
        let turn = Turn::new(CALL, handle);
        exchange(&turn, from, |peer| (peer * out, out), to, |peer| (peer * here, here));
    }

    fn MPI_Alltoallv(
        from: *const c_void,
        sendcounts: *const c_int,
        sendplaces: *const c_int,
        sendtype: Handle,
        to: *mut c_void,
        recvcounts: *const c_int,
        recvplaces: *const c_int,
        recvtype: Handle,
        handle: Handle,
    ) {
        if in_place(from) {
            fail(CALL, "MPI_IN_PLACE is not part of this subset");
        }
        let turn = Turn::new(CALL, handle);
        let out = |peer| place(CALL, (sendcounts, sendplaces), sendtype, peer);
        let here = |peer| place(CALL, (recvcounts, recvplaces), recvtype, peer);
        exchange(&turn, from, out, to, here);
    }
}
