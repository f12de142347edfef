//! The software NIC under arbitrary bytes: in the queues of a process that drives it, in the frames of a peer, in the ring
//! that a peer writes, on a socket. What must hold whatever they say: no panic, no write outside registered memory, no
//! memory that grows without bound.

mod connection;
mod wires;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

pub use connection::connection;
pub use wires::{shared_ring, tcp_parts, tcp_stream};

use super::keys::{Begun, KeyTable, RegionMemory};
use super::state::{
    CarriedOut, Context, DeviceRequest, DeviceUse, DirectPath, Driver, Found, LinkState, Machine,
    Outgoing, Payload, Violation,
};
use super::wire::Sink;
use super::wire::frame::{Frame, HEADER};
use crate::device::Device;
use crate::memory::copy::copy_bytes;
use crate::memory::{Buffer, Space};
use crate::nic::completion_queue::{CompletionReader, clear};
use crate::nic::memory_region::Access;
use crate::nic::options::QueuePairOptions;
use crate::nic::queue_memory::QueueMemory;
use crate::peer::PeerHandle;
use crate::wqe::{
    DataSegment, DoorbellRecord, Entry, Fence, Notify, Operation, Payload as Source, ReceiveRing,
    RemoteAddress, RingMemoryMut, SendRing, Syndrome, WorkRequest,
};

const QPN: u32 = 0x40;
/// Words of memory; the middle half is registered.
const WORDS: usize = 64;
const GUARD: u64 = 0x6775_6172_6421_2121;

/// Reads numbers off the input; zeros after its end.
struct Tape<'a>(&'a [u8]);

impl Tape<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.byte())
    }
}

/// Nothing, or all of the peer's memory is reached: mapped, or by a device that takes the addresses of this process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    Nothing,
    Mapped,
    ByDevice,
}

struct Reached<'a>(&'a KeyTable, Reach);

impl DirectPath for Reached<'_> {
    fn find(&mut self, key: u32, address: u64, len: u64, need: Access) -> Option<Found> {
        let (memory, pointer) = self.0.check(key, address, len, need).ok()?;
        match self.1 {
            Reach::Nothing => None,
            Reach::Mapped => Some(Found::Mapped(memory.clone(), pointer)),
            Reach::ByDevice => {
                Some(Found::ByDevice(RemoteAddress { address: pointer as u64, rkey: key }))
            }
        }
    }
}

/// Made once in a thread: two queue pairs' memory, and memory of which a part is registered, twice.
struct Bench {
    queues: [QueueMemory; 2],
    words: Buffer<u64>,
    keys: KeyTable,
    /// All rights; reading only.
    rkeys: [u32; 2],
    address: u64,
    /// By which peers of this machine map it, if they can.
    handle: Option<PeerHandle>,
}

fn options() -> QueuePairOptions {
    QueuePairOptions {
        send_blocks: 32,
        receive_entries: 8,
        receiver_not_ready_delay: Duration::ZERO,
        ..QueuePairOptions::default()
    }
}

impl Bench {
    fn new() -> Bench {
        Bench::of(Space::Host)
    }

    /// Pinned memory is also what peers of this machine map.
    fn of(space: Space) -> Bench {
        let queue = || QueueMemory::new(&Device::Host, &options()).expect("memory for a queue");
        let words = Buffer::<u64>::new(&Device::Host, space, WORDS).expect("some words");
        let middle = words.slice(WORDS / 4..3 * WORDS / 4).expect("half of them");
        let address = middle.device_address().expect("host memory has an address");
        let handle = words.export().ok();
        let mut bench = Bench {
            queues: [queue(), queue()],
            words,
            keys: KeyTable::default(),
            rkeys: [0; 2],
            address,
            handle,
        };
        bench.rkeys = [Access::ALL, Access::REMOTE_READ].map(|access| {
            let region = Arc::new(bench.region(access));
            bench.keys.insert(region, Instant::now()).expect("a key")
        });
        bench
    }

    /// The registered half.
    fn region(&self, access: Access) -> RegionMemory {
        let middle = self.words.slice(WORDS / 4..3 * WORDS / 4).expect("half of them");
        let region = RegionMemory::new(middle.bytes(), self.address, access, self.handle.clone());
        region.expect("host memory")
    }

    /// A well-formed entry with operands of the input: where it points may be anywhere.
    fn post(&self, tape: &mut Tape<'_>, next: &mut u16) {
        let [what, key, flags] = tape.bytes();
        let lkey = self.rkeys.get(usize::from(key % 4)).copied().unwrap_or(u32::from(key));
        let rkey = self.rkeys.get(usize::from(key / 4 % 4)).copied().unwrap_or(1);
        let offset = |tape: &mut Tape<'_>| i64::from(i16::from_le_bytes(tape.bytes()));
        let address = self.address;
        let remote = RemoteAddress { address: address.wrapping_add_signed(offset(tape)), rkey };
        let mut segment = || {
            let length = u32::from(tape.byte()).max(1);
            DataSegment::new(lkey, address.wrapping_add_signed(offset(tape)), length)
        };
        let (Ok(one), Ok(two)) = (segment(), segment()) else { return };
        let pieces = [one, two];
        let imm = (flags & 1 != 0).then_some(7);
        let Ok(word) = DataSegment::new(lkey, one.address(), 8) else { return };
        let operation = match what % 7 {
            0 => Operation::Nop,
            1 => Operation::Send { payload: Source::Gather(&pieces), imm },
            2 => {
                Operation::Send { payload: Source::Inline(&[9; 40][..usize::from(key % 40)]), imm }
            }
            3 => Operation::Write { remote, payload: Source::Gather(&pieces), imm },
            4 => Operation::Read { remote, into: &pieces },
            5 => Operation::FetchAdd { remote, add: 3, into: word },
            _ => Operation::CompareSwap { remote, compare: 3, swap: 5, into: word },
        };
        let notify = if flags & 2 != 0 { Notify::Always } else { Notify::OnError };
        let fence = [Fence::None, Fence::ReadsAndAtomics, Fence::Full, Fence::Strong]
            [usize::from(flags >> 2 & 3)];
        let mut request = WorkRequest { notify, fence, ..WorkRequest::new(operation) };
        (request.qpn, request.index) = (QPN, *next);
        let mut entry = Entry::new();
        if entry.encode(&request).is_ok()
            && let Ok(mut ring) = SendRing::new(self.queues[0].send.clone())
            && ring.store(&entry).is_ok()
        {
            *next = next.wrapping_add(entry.blocks() as u16);
        }
    }

    /// Nothing outside the registered half was written, and whatever stands in the completion queues can be read.
    fn check(&self) {
        let words = self.words.to_vec().expect("host memory is readable");
        let guards = words[..WORDS / 4].iter().chain(&words[3 * WORDS / 4..]);
        assert!(guards.into_iter().all(|&word| word == GUARD), "written outside the region");
        for completions in [&self.queues[0].send_completions, &self.queues[0].receive_completions] {
            let mut reader = CompletionReader::new(completions.clone());
            while let Some(_completion) = reader.poll().expect("the NIC writes completions") {}
        }
    }

    fn clear(&self) {
        for queue in &self.queues {
            for words in [&queue.send, &queue.receive] {
                (0..words.len()).for_each(|at| words.word(at).store(0, Ordering::Relaxed));
            }
            clear(&queue.send_completions.slots);
            clear(&queue.receive_completions.slots);
            queue.send_completions.consumer().store(0, Ordering::Relaxed);
            queue.receive_completions.consumer().store(0, Ordering::Relaxed);
            queue.send_record().store(record(0), Ordering::Relaxed);
            queue.receive_record().store(record(0), Ordering::Relaxed);
        }
        let mut words = [GUARD; WORDS];
        words[WORDS / 4..3 * WORDS / 4].fill(0);
        self.words.write(&words).expect("host memory is writable");
    }
}

/// Hands a frame over as a socket may: `first` bytes of its payload with it, the others where they go, if that is known.
pub(crate) fn in_parts(
    sink: &mut dyn Sink,
    frame: Frame,
    payload: &[u8],
    first: usize,
) -> Result<(), Violation> {
    let Some(more) = frame.more().filter(|_| first < payload.len()) else {
        return sink.take(frame, Payload::of(payload));
    };
    let (first, rest) = payload.split_at(first);
    sink.take(frame, Payload::of(first))?;
    let mut places = Vec::new();
    sink.places(more, rest.len(), &mut places);
    if places.is_empty() {
        return sink.take(more, Payload::of(rest));
    }
    assert_eq!(places.iter().map(|place| place.len).sum::<usize>(), rest.len());
    let mut from = rest.as_ptr();
    for place in &places {
        // SAFETY: the sink says that so many bytes are to be written there; together they are as many as there are.
        unsafe { copy_bytes(from, place.pointer.cast_mut(), place.len) };
        from = from.wrapping_add(place.len);
    }
    sink.take(more, Payload::there(rest.len()))
}

fn record(next: u16) -> u32 {
    u32::from_ne_bytes(DoorbellRecord::word(next))
}

thread_local! {
    static BENCH: RefCell<Option<Bench>> = const { RefCell::new(None) };
}

/// A process that writes anything into its queues, doorbells, keys, and a peer that sends any frames. The input is a
/// program: a byte that says what to do, and its operands.
pub fn queues(data: &[u8]) {
    BENCH.with_borrow_mut(|bench| {
        let bench = bench.get_or_insert_with(Bench::new);
        bench.clear();
        Run::new(bench).execute(data);
    });
}

struct Run<'a> {
    bench: &'a Bench,
    machines: [Machine; 2],
    link: LinkState,
    reach: Reach,
    /// What a device has carried out and not reported: bytes, whether staged, and what it brought.
    done: VecDeque<(usize, bool, Option<Vec<u8>>)>,
    quick: bool,
    clock: Instant,
    next: u16,
}

impl<'a> Run<'a> {
    fn new(bench: &'a Bench) -> Run<'a> {
        let machine = |queue| Machine::new(QPN, queue, &options()).expect("a machine");
        Run {
            bench,
            machines: [machine(&bench.queues[0]), machine(&bench.queues[1])],
            link: LinkState::Up,
            reach: Reach::Nothing,
            done: VecDeque::new(),
            quick: false,
            clock: Instant::now(),
            next: 0,
        }
    }

    fn with<T>(&mut self, side: usize, f: impl FnOnce(&mut Machine, &mut Context<'_>) -> T) -> T {
        let keys = &self.bench.keys;
        let mut direct = Reached(keys, self.reach);
        let driver = if self.quick { Driver::Caller } else { Driver::Engine };
        // There is no GPU.
        let (direct, begun) = (&mut direct, &mut Begun::default());
        let (now, link, device) =
            (self.clock, self.link, Some(DeviceUse { staged: false, atomics: true }));
        let mut cx = Context { driver, keys, now, link, direct, begun, device };
        f(&mut self.machines[side], &mut cx)
    }

    fn execute(&mut self, data: &[u8]) {
        let bench = self.bench;
        let queue = &bench.queues[0];
        let mut tape = Tape(data);
        while !tape.0.is_empty() {
            match tape.byte() % 12 {
                0 => {
                    let (at, octoword) = (usize::from(tape.byte()) % 128, tape.bytes());
                    queue.send.clone().store(at, octoword);
                }
                1 => {
                    let (at, octoword) = (usize::from(tape.byte()), tape.bytes());
                    let mut receive = queue.receive.clone();
                    receive.store(at % (receive.len() / 2), octoword);
                }
                2 => {
                    let filled = u16::from_le_bytes(tape.bytes());
                    queue.send_record().store(record(filled), Ordering::Relaxed);
                    self.machines[0].doorbell();
                }
                3 => {
                    let posted = u16::from_le_bytes(tape.bytes());
                    queue.receive_record().store(record(posted), Ordering::Relaxed);
                }
                4 => self.frame(&mut tape),
                5 => self.transmit(usize::from(tape.byte()), None),
                6 => {
                    let consumer = u32::from_le_bytes(tape.bytes());
                    queue.send_completions.consumer().store(consumer, Ordering::Relaxed);
                }
                7 => bench.post(&mut tape, &mut self.next),
                8 => {
                    queue.send_record().store(record(self.next), Ordering::Relaxed);
                    self.machines[0].doorbell();
                }
                9 => self.circumstances(tape.byte()),
                10 => self.receive(&mut tape),
                // The peer's turn: frames of the one become the other's.
                _ => {
                    let max = 1 + usize::from(tape.byte());
                    self.transmit(max, Some(1));
                    self.exchange(max);
                }
            }
            for side in 0..2 {
                self.with(side, |machine, cx| machine.advance(cx));
            }
        }
        bench.check();
    }

    /// A frame of the peer, of any bytes.
    fn frame(&mut self, tape: &mut Tape<'_>) {
        let mut bytes: [u8; HEADER] = tape.bytes();
        // A sequence number that may pass: one byte of it is enough.
        bytes[5..8].fill(0);
        let Ok((frame, payload)) = Frame::decode(bytes) else { return };
        assert_eq!(Frame::decode(frame.encode(payload)), Ok((frame, payload)));
        // The wire gives exactly as many bytes as the header says; long ones would only slow this down.
        if payload > 4096 {
            return;
        }
        let bytes = vec![tape.byte(); payload as usize];
        let _ = self.with(0, |machine, cx| machine.receive(cx, frame, Payload::of(&bytes)));
    }

    /// Takes frames out, to the other machine or to nowhere.
    fn transmit(&mut self, max: usize, to: Option<usize>) {
        let mut out = Outgoing::new();
        for _ in 0..64 {
            if !self.with(0, |machine, cx| machine.transmit(cx, max.max(1), &mut out)) {
                return;
            }
            self.pass(&out, to);
        }
    }

    fn exchange(&mut self, max: usize) {
        let mut out = Outgoing::new();
        for _ in 0..64 {
            if !self.with(1, |machine, cx| machine.transmit(cx, max, &mut out)) {
                return;
            }
            self.pass(&out, Some(0));
        }
    }

    fn pass(&mut self, out: &Outgoing, to: Option<usize>) {
        let mut payload = vec![0; out.len];
        // SAFETY: the vector has this many bytes.
        unsafe { out.copy_payload(payload.as_mut_ptr()) };
        if let Some(request) = out.request {
            return self.carry_out(request, payload, out.staged);
        }
        if let Some(side) = to {
            let frame = out.frame;
            let _ =
                self.with(side, |machine, cx| machine.receive(cx, frame, Payload::of(&payload)));
        }
    }

    /// As the device does, which refuses nothing: what it is given was checked.
    fn carry_out(&mut self, request: DeviceRequest, mut payload: Vec<u8>, staged: bool) {
        let (len, begin) = (payload.len(), self.bench.address);
        let place = |remote: RemoteAddress, len: usize| {
            let at = remote.address.checked_sub(begin).expect("not before the region");
            assert!(at + len as u64 <= (WORDS * 4) as u64, "past the region");
            remote.address as *mut u8
        };
        // SAFETY: inside the registered half of the words, which the bench holds.
        let brought = unsafe {
            match request {
                DeviceRequest::Write { to } => {
                    copy_bytes(payload.as_ptr(), place(to, len), len);
                    None
                }
                DeviceRequest::Read { from } => {
                    copy_bytes(place(from, len), payload.as_mut_ptr(), len);
                    Some(payload)
                }
                DeviceRequest::Atomic { word, operation } => {
                    Some(operation.apply(place(word, 8)).to_ne_bytes().to_vec())
                }
            }
        };
        self.done.push_back((len, staged, brought));
    }

    /// The device reports the oldest that it was given: as done, or as failed.
    fn report(&mut self, failed: bool) {
        let Some((len, staged, brought)) = self.done.pop_front() else { return };
        let outcome = if failed { Err(Syndrome::RemoteAccess) } else { Ok(()) };
        let brought = brought.as_deref().filter(|_| staged && !failed).map(Payload::of);
        let done = CarriedOut { outcome, len, staged, brought };
        self.with(0, |machine, cx| machine.carried_out(cx, &done));
    }

    /// Posts a receive at the peer.
    fn receive(&mut self, tape: &mut Tape<'_>) {
        let [index, length, key] = tape.bytes();
        let queue = &self.bench.queues[1];
        let lkey = self.bench.rkeys[usize::from(key % 2)];
        let stride = queue.receive_stride;
        if let Ok(segment) = DataSegment::new(lkey, self.bench.address, u32::from(length).max(1))
            && let Ok(mut ring) = ReceiveRing::new(queue.receive.clone(), stride)
            && ring.store(u16::from(index % 8), &[segment]).is_ok()
        {
            queue.receive_record().store(record(u16::from(index % 8) + 1), Ordering::Relaxed);
        }
    }

    fn circumstances(&mut self, what: u8) {
        self.clock += Duration::from_micros(u64::from(what));
        self.quick = what & 2 != 0;
        self.reach = match what & 9 {
            0 => Reach::Nothing,
            1 => Reach::Mapped,
            _ => Reach::ByDevice,
        };
        if what & 4 != 0 {
            self.report(what & 0x80 != 0);
        }
        if what & 0x70 == 0x70 {
            self.link = LinkState::Lost;
            self.done.clear();
            self.machines.iter_mut().for_each(Machine::lose);
        }
    }
}
