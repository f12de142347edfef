//! Frames over a pair of sockets, however the system cuts them; payload that is lent to it; peers that are gone or say little.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};

use super::*;
use crate::memory::{Buffer, Space};
use crate::nic::memory_region::Access;
use crate::nic::soft::keys::RegionMemory;
use crate::nic::soft::state::Violation;
use crate::{Device, Result};

const ADDRESS: u64 = 1 << 40;

/// Takes what arrives, and puts payloads into memory, one behind the other, if it has any.
struct Taken {
    memory: Option<Arc<RegionMemory>>,
    frames: Vec<(Frame, usize)>,
    /// Bytes handed over, and of them those that were put into the memory by the wire.
    bytes: Vec<u8>,
    placed: usize,
}

impl Sink for Taken {
    fn take(&mut self, frame: Frame, payload: Payload<'_>) -> std::result::Result<(), Violation> {
        self.frames.push((frame, payload.len));
        let at = self.bytes.len();
        self.bytes.extend(payload.to_vec());
        if payload.place().is_none() {
            self.placed += payload.len;
            let memory = self.memory.as_ref().expect("a place was named");
            let from = memory.check(ADDRESS + at as u64, payload.len as u64, Access::ALL);
            let from = from.expect("inside").cast_const();
            // SAFETY: inside the memory, where the wire has just put it.
            let there = unsafe { std::slice::from_raw_parts(from, payload.len) };
            self.bytes.extend_from_slice(there);
        }
        Ok(())
    }

    fn places(&mut self, _: Frame, len: usize, places: &mut Vec<Piece>) {
        let Some(memory) = &self.memory else { return };
        // In two pieces.
        let at = ADDRESS + self.bytes.len() as u64;
        for (at, len) in [(at, len / 2), (at + len as u64 / 2, len - len / 2)] {
            let to = memory.check(at, len as u64, Access::ALL).expect("inside");
            places.push(Piece::new(memory, to, len));
        }
    }
}

fn wire() -> Result<(UnixStream, TcpWire)> {
    let (sender, receiver) = UnixStream::pair().expect("a pair of sockets");
    receiver.set_nonblocking(true).expect("it does not block");
    let stream = std::net::TcpStream::from(OwnedFd::from(receiver));
    let greeting = Greeting { qpn: 1, to: 2, from: 3 };
    Ok((sender, TcpWire::accept(TcpStream::from_std(stream), greeting)))
}

/// What arrives of `sent` when `cuts` bytes of it come at a time, in turn, and whether anything was heard each time.
fn receive(sent: &[u8], cuts: &[usize], placed: bool) -> Result<(Taken, Vec<bool>)> {
    let buffer = Buffer::<u8>::new(&Device::Host, Space::Host, 4 << 20)?;
    let memory = RegionMemory::new(buffer, ADDRESS, Access::ALL, None).map(Arc::new);
    let memory = memory.filter(|_| placed);
    let mut taken = Taken { memory, frames: Vec::new(), bytes: Vec::new(), placed: 0 };
    let (mut sender, mut wire) = wire()?;
    let (mut rest, mut cuts, mut heard) = (sent, cuts.iter().cycle(), Vec::new());
    while !rest.is_empty() {
        let cut = cuts.next().map_or(1, |cut| *cut).min(rest.len());
        sender.write_all(&rest[..cut]).expect("there is room");
        rest = &rest[cut..];
        wire.ready(true, true);
        heard.push(wire.receive(&mut taken).expect("frames"));
    }
    Ok((taken, heard))
}

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[test]
fn frames_come_out_as_they_went_in_however_the_bytes_come_and_wherever_they_go() -> Result<()> {
    let sizes = [0, 8, SMALL, SMALL + 1, 100_000, MAX_PAYLOAD, 5, 70_000, 300_000];
    let (mut sent, mut bytes) = (Vec::new(), Vec::new());
    for (psn, size) in (0..).zip(sizes) {
        sent.extend(Frame::More { psn }.encode(size as u32));
        sent.extend(payload(size));
        bytes.extend(payload(size));
    }
    for cuts in [&[150_000][..], &[13, 9_001, 50_000], &[HEADER, 1, 65_536], &[4099]] {
        for placed in [false, true] {
            let (taken, _) = receive(&sent, cuts, placed)?;
            assert!(taken.bytes == bytes, "other bytes, {cuts:?} at a time");
            for (psn, size) in (0..).zip(sizes) {
                let parts = taken.frames.iter().filter(|(it, _)| *it == Frame::More { psn });
                let lens: Vec<usize> = parts.map(|(_, len)| *len).collect();
                assert_eq!(lens.iter().sum::<usize>(), size, "{lens:?}");
                // What is small, or cannot be more than one, is whole.
                assert!(size > SMALL || lens.len() == 1, "{lens:?}");
            }
            assert!((taken.placed > 0) == placed, "{} bytes were placed", taken.placed);
        }
    }
    Ok(())
}

#[test]
fn most_of_a_large_payload_is_read_to_where_it_goes() -> Result<()> {
    let mut sent = Vec::new();
    for psn in 0..4 {
        sent.extend(Frame::More { psn }.encode(MAX_PAYLOAD as u32));
        sent.extend(payload(MAX_PAYLOAD));
    }
    let (taken, _) = receive(&sent, &[180_000], true)?;
    let copied = taken.bytes.len() - taken.placed;
    // The first of it came before anything was known; then what came with each header.
    assert!(copied <= INBOUND + 4 * BEHIND, "{copied} bytes were copied");
    Ok(())
}

/// A wire that sends over TCP, some 100 KiB at a time, and the other end of its connection.
fn sender() -> (TcpWire, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("an address");
    // Whoever reads much would be given room for all of it.
    set_socket_recv_buffer_size(&listener, LENT).expect("a size");
    let address = listener.local_addr().expect("its address");
    let stream = std::net::TcpStream::connect(address).expect("somebody listens");
    let (peer, _) = listener.accept().expect("a connection");
    stream.set_nonblocking(true).expect("it does not block");
    set_socket_send_buffer_size(&stream, LENT).expect("a size");
    let greeting = Greeting { qpn: 1, to: 2, from: 3 };
    (TcpWire::accept(TcpStream::from_std(stream), greeting), peer)
}

/// A frame whose payload is `memory`, in two pieces.
fn outgoing(frame: Frame, memory: &Arc<RegionMemory>, len: usize) -> Outgoing {
    let mut out = Outgoing::new();
    out.frame = frame;
    for (at, len) in [(0, len / 3), (len / 3, len - len / 3)] {
        let from = memory.check(ADDRESS + at as u64, len as u64, Access::ALL);
        out.push(memory, from.expect("inside"), len).expect("memory of the CPU");
    }
    out
}

fn memory_of(bytes: &[u8]) -> Result<Arc<RegionMemory>> {
    let buffer = Buffer::<u8>::new(&Device::Host, Space::Host, bytes.len())?;
    buffer.write(bytes)?;
    let memory = RegionMemory::new(buffer, ADDRESS, Access::ALL, None);
    Ok(Arc::new(memory.expect("memory for a region")))
}

/// Sends what there is until the socket is full or all is out.
fn push(wire: &mut TcpWire) {
    wire.ready(false, true);
    wire.flush().expect("the peer is there");
}

#[test]
fn payload_arrives_the_same_whether_it_is_lent_or_copied_or_both() -> Result<()> {
    let bytes = payload(MAX_PAYLOAD);
    let memory = memory_of(&bytes)?;
    let answered = |psn| Frame::Send { psn, length: 0, imm: None, solicited: false };
    // The frame, its payload, whether it is lent, and whether that is refused when some of it is out.
    let sent = [
        (answered(0), 8, false, false),
        (answered(1), LENT - 1, false, false),
        (answered(2), LENT, true, false),
        (Frame::ReadData { psn: 3 }, MAX_PAYLOAD, false, false),
        (Frame::More { psn: 4 }, MAX_PAYLOAD, true, false),
        (answered(5), MAX_PAYLOAD, true, true),
        (answered(6), MAX_PAYLOAD, false, false),
    ];
    let (mut wire, mut peer) = sender();
    for (frame, len, lent, refused) in sent {
        let (is_full, begins) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            let mut arrived = vec![0; HEADER + len];
            begins.recv().expect("a word");
            peer.read_exact(&mut arrived).expect("a frame");
            (peer, arrived)
        });
        wire.ready(false, true);
        wire.behind_lent = None;
        wire.send(&mut outgoing(frame, &memory, len)).expect("there is room");
        // As much as the socket takes that nobody reads.
        push(&mut wire);
        if refused {
            assert!(!wire.is_flushed() && wire.large_sent > 0, "some of it is out");
            wire.loan.refuse();
        }
        is_full.send(()).expect("somebody listens");
        while !wire.is_flushed() {
            push(&mut wire);
        }
        let (back, arrived) = reader.join().expect("it read");
        peer = back;
        assert!(arrived[..HEADER] == frame.encode(len as u32), "another header: {frame:?}");
        assert!(arrived[HEADER..] == bytes[..len], "other bytes: {frame:?}");
        assert_eq!(wire.behind_lent.is_some(), lent, "{frame:?} of {len} bytes");
    }
    Ok(())
}

#[test]
fn what_was_lent_does_not_go_out_once_the_wire_is_gone() -> Result<()> {
    let memory = memory_of(&payload(MAX_PAYLOAD))?;
    let frame = Frame::More { psn: 1 };
    let (mut wire, mut peer) = sender();
    for _ in 0..64 {
        if wire.has_room() {
            wire.send(&mut outgoing(frame, &memory, MAX_PAYLOAD)).expect("there is room");
        }
        push(&mut wire);
    }
    assert!(!wire.is_flushed() && wire.has_lent());
    drop(wire);
    let error = std::io::copy(&mut peer, &mut std::io::sink()).expect_err("it is reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);

    // Where the peer has all, it ends as ever.
    let (mut wire, mut peer) = sender();
    let reader = std::thread::spawn(move || {
        let mut arrived = vec![0; HEADER + MAX_PAYLOAD];
        peer.read_exact(&mut arrived).expect("a frame");
        peer
    });
    wire.send(&mut outgoing(frame, &memory, MAX_PAYLOAD)).expect("there is room");
    while wire.has_lent() || !wire.is_flushed() {
        push(&mut wire);
    }
    drop(wire);
    let mut peer = reader.join().expect("it read");
    assert_eq!(peer.read(&mut [0]).expect("an end"), 0);
    Ok(())
}

/// The system holds back for 200 ms what is said to have more behind it.
#[test]
fn what_goes_behind_lent_payload_goes_at_once() -> Result<()> {
    let memory = memory_of(&payload(MAX_PAYLOAD))?;
    let (mut wire, mut peer) = sender();
    let mut arrived = vec![0; MAX_PAYLOAD];
    peer.set_nonblocking(true).expect("it does not block");
    // Until the other end has so many bytes.
    let mut pass = |wire: &mut TcpWire, len: usize| {
        let mut there = 0;
        while there < len {
            push(wire);
            there += peer.read(&mut arrived[..len - there]).unwrap_or(0);
        }
    };
    // The quickest of some: others may take this thread its core.
    let quickest = (0..8).map(|_| {
        wire.send(&mut outgoing(Frame::More { psn: 1 }, &memory, LENT)).expect("there is room");
        pass(&mut wire, HEADER + LENT);
        assert!(wire.behind_lent.is_some() && wire.is_flushed());
        let begin = std::time::Instant::now();
        wire.send(&mut outgoing(Frame::More { psn: 2 }, &memory, 8)).expect("there is room");
        pass(&mut wire, HEADER + 8);
        begin.elapsed()
    });
    let quickest = quickest.min().expect("some");
    assert!(quickest < Duration::from_millis(100), "{quickest:?}");
    Ok(())
}

thread_local! {
    static SIGNALS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// A program that does not ignore it would end.
#[test]
fn a_peer_that_is_gone_raises_no_signal() -> Result<()> {
    extern "C" fn count(_: libc::c_int) {
        SIGNALS.set(SIGNALS.get() + 1);
    }
    let memory = memory_of(&payload(MAX_PAYLOAD))?;
    let count = count as extern "C" fn(libc::c_int);
    // SAFETY: the handler only counts, in the thread that the signal is for.
    let before = unsafe { libc::signal(libc::SIGPIPE, count as libc::sighandler_t) };
    for (frame, lent) in [(Frame::ReadData { psn: 1 }, false), (Frame::More { psn: 1 }, true)] {
        let (mut wire, _peer) = sender();
        while wire.has_room() {
            wire.send(&mut outgoing(frame, &memory, MAX_PAYLOAD)).expect("there is room");
            push(&mut wire);
        }
        assert_eq!(wire.behind_lent, lent.then_some(0));
        wire.stream.shutdown(Shutdown::Write).expect("it was open");
        wire.ready(false, true);
        assert!(wire.flush().is_err(), "{frame:?} went out");
    }
    // SAFETY: as it was.
    unsafe { libc::signal(libc::SIGPIPE, before) };
    assert_eq!(SIGNALS.get(), 0);
    Ok(())
}

#[test]
fn a_few_bytes_of_a_large_frame_are_no_sign_of_life() -> Result<()> {
    let mut sent = Frame::More { psn: 1 }.encode(60_000).to_vec();
    sent.extend(payload(60_000));
    for placed in [false, true] {
        let cuts: Vec<usize> = [HEADER + 20_000].into_iter().chain([1; 2_000]).collect();
        let (_, heard) = receive(&sent[..HEADER + 21_000], &cuts, placed)?;
        assert!(heard[0] && !heard[1..].contains(&true), "placed: {placed}");
    }
    Ok(())
}
