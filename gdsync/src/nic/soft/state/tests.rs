//! The state machine against a shadow model: every short sequence of posting, ringing, delivering, cutting and
//! polling, many long ones, and arbitrary bytes everywhere.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::device::Device;
use crate::memory::copy::copy_bytes;
use crate::memory::{Buffer, Space};
use crate::nic::completion_queue::{CompletionReader, clear};
use crate::nic::options::CompletionMode;
use crate::nic::soft::fuzz::in_parts;
use crate::nic::soft::wire::Sink;
use crate::wqe::{
    Completion, CompletionKind, DataSegment, DoorbellRecord, Entry, ErrorSide, Fence, Notify,
    Operation, Payload as Source, ReceiveRing, Received, RemoteAddress, RingMemoryMut, SendRing,
    WorkRequest,
};

const QPN: u32 = 0x40;
/// Bytes of the message that takes several frames of [`FRAGMENT`].
const LONG: usize = 20;
const FRAGMENT: usize = 8;

struct NoDirect;

impl DirectPath for NoDirect {
    fn find(&mut self, _: u32, _: u64, _: u64, _: Access) -> Option<Found> {
        None
    }
}

/// All of the peer's memory is mapped.
struct AllDirect<'a>(&'a KeyTable);

impl DirectPath for AllDirect<'_> {
    fn find(&mut self, key: u32, address: u64, len: u64, need: Access) -> Option<Found> {
        let (memory, pointer) = self.0.check(key, address, len, need).ok()?;
        Some(Found::Mapped(memory.clone(), pointer))
    }
}

/// All of the peer's memory is reached by the device, by the addresses of this process.
struct AllByDevice<'a>(&'a KeyTable);

impl DirectPath for AllByDevice<'_> {
    fn find(&mut self, key: u32, address: u64, len: u64, need: Access) -> Option<Found> {
        let (_, pointer) = self.0.check(key, address, len, need).ok()?;
        Some(Found::ByDevice(RemoteAddress { address: pointer as u64, rkey: key }))
    }
}

/// A machine and what it may use, which hears frames.
struct Heard<'a, 'b>(&'a mut Machine, &'a mut Context<'b>);

impl Sink for Heard<'_, '_> {
    fn take(&mut self, frame: Frame, payload: Payload<'_>) -> std::result::Result<(), Violation> {
        self.0.receive(self.1, frame, payload)
    }

    fn places(&mut self, frame: Frame, len: usize, places: &mut Vec<Piece>) {
        self.0.places(self.1, frame, len, places);
    }
}

/// How the peer's memory is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    Frames,
    Mapped,
    Device,
}

const REACHES: [Reach; 3] = [Reach::Frames, Reach::Mapped, Reach::Device];

/// What the device has carried out and not reported: what it brought.
struct Done {
    len: usize,
    staged: bool,
    brought: Option<Vec<u8>>,
}

/// What sequences are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Post,
    Ring,
    ToPeer,
    FromPeer,
    Receive,
    Poll,
    Cut,
}

const ACTIONS: [Action; 7] = [
    Action::Post,
    Action::Ring,
    Action::ToPeer,
    Action::FromPeer,
    Action::Receive,
    Action::Poll,
    Action::Cut,
];

/// The memory of a world, made once: a file in memory for each sequence would take longer than the sequence.
struct Bench {
    queues: [QueueMemory; 2],
    words: Buffer<u64>,
    keys: KeyTable,
    key: u32,
    address: u64,
}

impl Bench {
    fn new(mode: CompletionMode) -> Bench {
        let options = options(mode);
        let queue = || QueueMemory::new(&Device::Host, &options).unwrap();
        let words = Buffer::<u64>::new(&Device::Host, Space::Host, 16).unwrap();
        let address = words.device_address().unwrap();
        let memory = RegionMemory::new(words.bytes(), address, Access::ALL, None).unwrap();
        let mut keys = KeyTable::default();
        let key = keys.insert(Arc::new(memory), Instant::now()).unwrap();
        Bench { queues: [queue(), queue()], words, keys, key, address }
    }

    fn remote(&self, word: u64) -> RemoteAddress {
        RemoteAddress { address: self.address + 8 * word, rkey: self.key }
    }

    fn segment(&self, word: u64, length: u32) -> DataSegment {
        DataSegment::new(self.key, self.address + 8 * word, length).unwrap()
    }
}

fn options(mode: CompletionMode) -> QueuePairOptions {
    QueuePairOptions {
        send_blocks: 32,
        receive_entries: 8,
        send_completions: mode,
        receiver_not_ready_delay: Duration::ZERO,
        ..QueuePairOptions::default()
    }
}

/// A posted entry, as the model knows it.
#[derive(Debug, Clone, Copy)]
struct Posted {
    index: u16,
    signaled: bool,
}

/// Two machines, the frames between them, and what should have come out.
struct World<'a> {
    bench: &'a Bench,
    machines: [Machine; 2],
    link: LinkState,
    reach: Reach,
    /// Frames that the device has delivered and the peer has not looked at, and requests that it has carried out.
    arrived: VecDeque<(Frame, Vec<u8>)>,
    done: VecDeque<Done>,
    /// Who rings executes what it can by itself.
    callers: bool,
    driver: Driver,
    clock: Instant,
    reader: CompletionReader,
    receives: CompletionReader,
    next: u16,
    posted: Vec<Posted>,
    /// How many of them are rung.
    rung: usize,
    received: u16,
    first_receive: u16,
    /// Sends posted; each is to fill one receive.
    sends: u32,
    seen_receives: u32,
    /// Entries accounted for by completions.
    accounted: usize,
    /// Whether the last frame came in parts.
    in_parts: bool,
    failed: bool,
    adds: u64,
}

impl<'a> World<'a> {
    fn new(bench: &'a Bench, mode: CompletionMode, start: u16, reach: Reach) -> World<'a> {
        for queue in &bench.queues {
            for words in [&queue.send, &queue.receive] {
                (0..words.len()).for_each(|at| words.word(at).store(0, Ordering::Relaxed));
            }
            clear(&queue.send_completions.slots);
            clear(&queue.receive_completions.slots);
            queue.send_completions.consumer().store(0, Ordering::Relaxed);
            queue.receive_completions.consumer().store(0, Ordering::Relaxed);
            queue.send_record().store(record(start), Ordering::Relaxed);
            queue.receive_record().store(record(start), Ordering::Relaxed);
        }
        bench.words.write(&[0; 16]).unwrap();
        let make = |queue: &QueueMemory| {
            let mut machine = Machine::new(QPN, queue, &options(mode)).unwrap();
            machine.requester.start_at(start);
            machine.responder.start_at(start, start);
            machine
        };
        let mut reader = CompletionReader::new(bench.queues[0].send_completions.clone());
        reader.start_at(u64::from(start));
        World {
            machines: [make(&bench.queues[0]), make(&bench.queues[1])],
            link: LinkState::Up,
            reach,
            arrived: VecDeque::new(),
            done: VecDeque::new(),
            callers: false,
            driver: Driver::Engine,
            clock: Instant::now(),
            reader,
            receives: CompletionReader::new(bench.queues[1].receive_completions.clone()),
            next: start,
            posted: Vec::new(),
            rung: 0,
            received: start,
            first_receive: start,
            sends: 0,
            seen_receives: 0,
            accounted: 0,
            in_parts: false,
            failed: false,
            adds: 0,
            bench,
        }
    }

    fn with<T>(&mut self, side: usize, f: impl FnOnce(&mut Machine, &mut Context<'_>) -> T) -> T {
        let mut mapped = AllDirect(&self.bench.keys);
        let mut far = AllByDevice(&self.bench.keys);
        let direct: &mut dyn DirectPath = match self.reach {
            Reach::Frames => &mut NoDirect,
            Reach::Mapped => &mut mapped,
            Reach::Device => &mut far,
        };
        let (keys, now, link) = (&self.bench.keys, self.clock, self.link);
        // There is no GPU.
        let begun = &mut Begun::default();
        let device =
            (self.reach == Reach::Device).then_some(DeviceUse { staged: false, atomics: true });
        let mut cx = Context { driver: self.driver, keys, now, link, direct, begun, device };
        f(&mut self.machines[side], &mut cx)
    }

    /// As the thread that has rung. If it says that nothing is left, there is nothing for the engine.
    fn execute(&mut self) {
        if !self.callers || self.link != LinkState::Up || self.machines[0].is_error() {
            return;
        }
        self.driver = Driver::Caller;
        while self.with(0, |machine, cx| machine.advance(cx)) {}
        self.driver = Driver::Engine;
        if self.machines[0].is_idle() {
            assert!(!self.with(0, |machine, cx| machine.advance(cx)), "something was left");
        }
    }

    fn advance(&mut self) {
        for side in 0..2 {
            self.with(side, |machine, cx| machine.advance(cx));
        }
    }

    /// Takes one frame from one machine to the other. False if there was none.
    fn deliver(&mut self, from: usize) -> bool {
        let mut out = Outgoing::new();
        if !self.with(from, |machine, cx| machine.transmit(cx, FRAGMENT, &mut out)) {
            return false;
        }
        let mut payload = vec![0; out.len];
        // SAFETY: the vector has this many bytes.
        unsafe { out.copy_payload(payload.as_mut_ptr()) };
        if let Some(request) = out.request {
            assert!(self.arrived.is_empty(), "it overtakes {:?}", self.arrived);
            self.carry_out(request, payload, out.staged);
            return true;
        }
        let (frame, len) = Frame::decode(out.frame.encode(out.len as u32)).unwrap();
        assert_eq!((frame, len as usize), (out.frame, payload.len()));
        match (self.reach, from) {
            (Reach::Device, 0) => self.arrived.push_back((frame, payload)),
            _ => self.hear(1 - from, frame, &payload),
        }
        true
    }

    /// Every other frame in parts, as it may come from a socket.
    fn hear(&mut self, side: usize, frame: Frame, payload: &[u8]) {
        self.in_parts = !self.in_parts;
        let first = if self.in_parts { payload.len() / 2 } else { payload.len() };
        self.with(side, |machine, cx| in_parts(&mut Heard(machine, cx), frame, payload, first))
            .unwrap();
    }

    /// The device carries out a request at once, and reports it later.
    fn carry_out(&mut self, request: DeviceRequest, payload: Vec<u8>, staged: bool) {
        let at = |remote: RemoteAddress| remote.address as *mut u8;
        let len = payload.len();
        // SAFETY: addresses that the key table has checked for so many bytes of memory that the bench holds.
        let brought = unsafe {
            match request {
                DeviceRequest::Write { to } => {
                    copy_bytes(payload.as_ptr(), at(to), len);
                    None
                }
                DeviceRequest::Read { from } => {
                    let mut bytes = payload;
                    copy_bytes(at(from), bytes.as_mut_ptr(), len);
                    Some(bytes)
                }
                DeviceRequest::Atomic { word, operation } => {
                    Some(operation.apply(at(word)).to_ne_bytes().to_vec())
                }
            }
        };
        self.done.push_back(Done { len, staged, brought });
    }

    /// The device reports, or the peer looks at what has arrived. False if there is nothing.
    fn device(&mut self) -> bool {
        // Frames first: the report of what was before them may come after the answer to them.
        if let Some((frame, payload)) = self.arrived.pop_front() {
            self.hear(1, frame, &payload);
            return true;
        }
        let Some(Done { len, staged, brought }) = self.done.pop_front() else { return false };
        let brought = brought.as_deref().map(Payload::of);
        let done = CarriedOut { outcome: Ok(()), len, staged, brought };
        self.with(0, |machine, cx| machine.carried_out(cx, &done));
        true
    }

    fn post(&mut self) {
        let bench = self.bench;
        let long = [7; LONG];
        let into = [bench.segment(8, 8)];
        let gathered = [bench.segment(4, 12), bench.segment(6, 8)];
        let number = self.posted.len();
        let (operation, signaled, fence) = match number % 6 {
            0 => {
                let (remote, into) = (bench.remote(0), bench.segment(2, 8));
                (Operation::FetchAdd { remote, add: 1, into }, true, Fence::None)
            }
            1 => {
                let payload = Source::Gather(&gathered);
                (Operation::Send { payload, imm: Some(number as u32) }, false, Fence::None)
            }
            2 => {
                let (remote, payload) = (bench.remote(10), Source::Inline(&long));
                (Operation::Write { remote, payload, imm: None }, true, Fence::Full)
            }
            3 => (Operation::Nop, true, Fence::None),
            4 => (Operation::Read { remote: bench.remote(0), into: &into }, false, Fence::None),
            _ => (
                Operation::Send { payload: Source::Inline(&[]), imm: Some(number as u32) },
                true,
                Fence::Strong,
            ),
        };
        let in_use = self.posted.get(self.accounted).map_or(self.next, |oldest| oldest.index);
        if self.next.wrapping_sub(in_use) > 32 - 2 {
            return;
        }
        self.sends += u32::from(matches!(operation, Operation::Send { .. }));
        self.adds += u64::from(matches!(operation, Operation::FetchAdd { .. }));
        let notify = if signaled { Notify::Always } else { Notify::OnError };
        let mut request = WorkRequest { notify, fence, ..WorkRequest::new(operation) };
        (request.qpn, request.index) = (QPN, self.next);
        let mut entry = Entry::new();
        entry.encode(&request).unwrap();
        SendRing::new(bench.queues[0].send.clone()).unwrap().store(&entry).unwrap();
        self.posted.push(Posted { index: self.next, signaled });
        self.next = self.next.wrapping_add(entry.blocks() as u16);
    }

    fn ring(&mut self) {
        self.bench.queues[0].send_record().store(record(self.next), Ordering::Release);
        self.rung = self.posted.len();
        self.machines[0].doorbell();
    }

    fn receive(&mut self) {
        let used = self.first_receive.wrapping_add(self.seen_receives as u16);
        if self.received.wrapping_sub(used) >= 8 {
            return;
        }
        let queue = &self.bench.queues[1];
        let mut ring = ReceiveRing::new(queue.receive.clone(), 1).unwrap();
        ring.store(self.received, &[self.bench.segment(12, 20)]).unwrap();
        self.received = self.received.wrapping_add(1);
        queue.receive_record().store(record(self.received), Ordering::Release);
    }

    /// Takes completions and checks each against the model. False if there was none.
    fn poll(&mut self) -> bool {
        let mut some = false;
        while let Some(completion) = self.reader.poll().unwrap() {
            some = true;
            self.check(completion);
        }
        while let Some(completion) = self.receives.poll().unwrap() {
            some = true;
            let expected = self.first_receive.wrapping_add(self.seen_receives as u16);
            assert_eq!(completion.index, expected, "receives complete in order");
            match completion.kind {
                CompletionKind::Receive { by: Received::SendImm(imm), byte_count, .. } => {
                    // Sends number 1 and 5 of each six, in this order.
                    let (six, odd) = (self.seen_receives / 2, self.seen_receives % 2);
                    assert_eq!(imm, 6 * six + if odd == 0 { 1 } else { 5 });
                    assert_eq!(byte_count, if odd == 0 { 20 } else { 0 });
                }
                CompletionKind::Error { side, syndrome, .. } => {
                    assert_eq!((side, syndrome), (ErrorSide::Responder, Syndrome::Flushed));
                    assert_eq!(self.link, LinkState::Lost);
                }
                other => panic!("{other:?}"),
            }
            self.seen_receives += 1;
        }
        some
    }

    fn check(&mut self, completion: Completion) {
        let collapsed = self.bench.queues[0].send_completions.mode == CompletionMode::Collapsed;
        match completion.kind {
            CompletionKind::Request { .. } => {
                assert!(!self.failed, "nothing succeeds after a failure");
                // Unsignaled entries before it are complete with it, and in a collapsed queue signaled ones, too.
                while let Some(posted) = self.posted.get(self.accounted) {
                    self.accounted += 1;
                    if posted.index == completion.index {
                        assert!(posted.signaled);
                        return;
                    }
                    assert!(!posted.signaled || collapsed, "{posted:?} was lost");
                }
                panic!("a completion of nothing that was posted: {completion:?}");
            }
            CompletionKind::Error { side, syndrome, .. } => {
                assert_eq!(side, ErrorSide::Requester);
                if self.failed {
                    assert_eq!(syndrome, Syndrome::Flushed);
                } else {
                    // In a collapsed queue those that are flushed overwrite the failure.
                    let overwritten = collapsed && syndrome == Syndrome::Flushed;
                    assert!(overwritten || syndrome == Syndrome::TransportRetryExceeded);
                    while self.posted[self.accounted].index != completion.index {
                        let before = self.posted[self.accounted];
                        assert!(!before.signaled || collapsed, "{before:?} was lost");
                        self.accounted += 1;
                    }
                }
                self.failed = true;
                assert_eq!(self.posted[self.accounted].index, completion.index, "in order");
                self.accounted += 1;
            }
            other => panic!("{other:?}"),
        }
        assert!(self.accounted <= self.rung, "complete before it was rung");
    }

    fn cut(&mut self) {
        if self.link == LinkState::Up {
            self.link = LinkState::Lost;
            self.arrived.clear();
            self.done.clear();
            self.machines.iter_mut().for_each(Machine::lose);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Post => self.post(),
            Action::Ring => {
                self.ring();
                self.execute();
            }
            Action::ToPeer => drop(self.deliver(0)),
            Action::FromPeer => {
                if !self.deliver(1) {
                    self.device();
                }
            }
            Action::Receive => self.receive(),
            Action::Poll => drop(self.poll()),
            Action::Cut => self.cut(),
        }
        self.advance();
    }

    /// Lets everything happen that can, and checks that nothing is missing.
    fn finish(mut self) {
        self.ring();
        for round in 0..10_000 {
            assert!(round < 9_999, "it never comes to rest");
            if self.link == LinkState::Up
                && u32::from(self.received.wrapping_sub(self.first_receive)) < self.sends
            {
                self.receive();
            }
            self.advance();
            let moved = [self.deliver(0), self.deliver(1), self.device(), self.poll()];
            let waits = self.link == LinkState::Up && self.machines[0].wants_peer();
            if moved == [false; 4] && !waits {
                break;
            }
        }
        let collapsed = self.bench.queues[0].send_completions.mode == CompletionMode::Collapsed;
        let words = self.bench.words.to_vec().unwrap();
        if !self.failed {
            // What is not accounted for is unsignaled, at the end.
            let rest = &self.posted[self.accounted..];
            assert!(rest.iter().all(|posted| !posted.signaled), "{rest:?} are lost");
        } else if !collapsed {
            assert_eq!(self.accounted, self.posted.len(), "all after a failure are flushed");
        }
        if self.link == LinkState::Up {
            assert!(!self.failed);
            assert_eq!(words[0], self.adds, "atomics happen once");
            assert_eq!(self.seen_receives, self.sends);
        } else {
            assert!(words[0] <= self.adds);
            let posted = u32::from(self.received.wrapping_sub(self.first_receive));
            assert_eq!(self.seen_receives, posted, "all receives are filled or flushed");
        }
    }
}

fn record(next: u16) -> u32 {
    u32::from_ne_bytes(DoorbellRecord::word(next))
}

/// Runs every sequence of `length` actions.
fn every_sequence(length: u32, mode: CompletionMode, start: u16, reach: Reach, callers: bool) {
    let bench = Bench::new(mode);
    let count = ACTIONS.len();
    for mut number in 0..count.pow(length) {
        let mut world = World::new(&bench, mode, start, reach);
        world.callers = callers;
        for _ in 0..length {
            world.act(ACTIONS[number % count]);
            number /= count;
        }
        world.finish();
    }
}

#[test]
fn no_short_interleaving_loses_doubles_or_reorders_a_completion() {
    // The second and third entry lie on both sides of the wrap.
    every_sequence(6, CompletionMode::Ring, u16::MAX, Reach::Frames, false);
}

#[test]
fn nor_does_one_with_mapped_memory_or_a_collapsed_queue() {
    every_sequence(5, CompletionMode::Ring, 0, Reach::Mapped, false);
    every_sequence(5, CompletionMode::Collapsed, u16::MAX - 2, Reach::Frames, false);
}

#[test]
fn nor_does_one_where_a_device_carries_out_what_it_can() {
    every_sequence(6, CompletionMode::Ring, u16::MAX, Reach::Device, false);
    every_sequence(5, CompletionMode::Collapsed, 0, Reach::Device, false);
}

#[test]
fn nor_does_one_where_who_rings_executes_what_it_can() {
    every_sequence(5, CompletionMode::Ring, u16::MAX, Reach::Mapped, true);
    every_sequence(5, CompletionMode::Collapsed, 0, Reach::Mapped, true);
    every_sequence(4, CompletionMode::Ring, 0, Reach::Frames, true);
}

#[test]
#[ignore = "long"]
fn no_interleaving_of_eight_actions_does() {
    every_sequence(8, CompletionMode::Ring, u16::MAX - 1, Reach::Frames, false);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_long_interleaving_does_either(
        actions in prop::collection::vec(0usize..100, 0..200),
        start: u16,
        reach in 0usize..3,
        callers: bool,
        collapsed: bool,
    ) {
        let mode = if collapsed { CompletionMode::Collapsed } else { CompletionMode::Ring };
        let bench = Bench::new(mode);
        let mut world = World::new(&bench, mode, start, REACHES[reach]);
        world.callers = callers;
        for action in actions {
            // A cut is rare, or nothing else would be seen.
            let action = if action == 0 { Action::Cut } else { ACTIONS[action % 6] };
            world.act(action);
        }
        world.finish();
    }

    #[test]
    fn arbitrary_bytes_in_queues_and_frames_never_panic(
        send in prop::collection::vec(any::<[u8; 16]>(), 128),
        receive in prop::collection::vec(any::<[u8; 16]>(), 8),
        mut heads in prop::collection::vec((0u8..0x30, any::<u8>(), 0u8..12), 32),
        records: [u16; 2],
        frames in prop::collection::vec((any::<[u8; 48]>(), 0u8..64, 0usize..64), 0..20),
        consumer: u32,
    ) {
        let bench = Bench::new(CompletionMode::Ring);
        let mut world = World::new(&bench, CompletionMode::Ring, 0, Reach::Frames);
        let queue = &bench.queues[0];
        let mut words = queue.send.clone();
        for (at, octoword) in send.iter().enumerate() {
            let mut octoword = *octoword;
            // Half of the blocks begin with a head that may pass: right index, right queue pair.
            if at % 4 == 0 && let Some((opcode, flags, size)) = heads.pop() && flags % 2 == 0 {
                let index = (at / 4) as u8;
                octoword = [0, 0, index, opcode, 0, 0, QPN as u8, size, 0, 0, 0, flags & 0xee, 0, 0, 0, 0];
            }
            words.store(at, octoword);
        }
        let mut words = queue.receive.clone();
        receive.iter().enumerate().for_each(|(at, octoword)| words.store(at, *octoword));
        queue.receive_record().store(record(records[1]), Ordering::Relaxed);
        let payload = [0; 64];
        for step in 0..4 {
            let filled = if step < 3 { 8 * (step + 1) } else { records[0] };
            queue.send_record().store(record(filled), Ordering::Relaxed);
            world.machines[0].doorbell();
            world.advance();
            let mut out = Outgoing::new();
            for _ in 0..64 {
                world.with(0, |machine, cx| machine.transmit(cx, FRAGMENT, &mut out));
            }
            queue.send_completions.consumer().store(consumer, Ordering::Relaxed);
        }
        for (mut bytes, kind, len) in frames {
            bytes[0] = kind;
            // Sequence numbers that may pass.
            bytes[4..8].copy_from_slice(&(u32::from(kind % 4).wrapping_sub(u32::MAX / 2)).to_le_bytes());
            if let Ok((frame, _)) = Frame::decode(bytes) {
                let payload = Payload::of(&payload[..len]);
                let _ = world.with(0, |machine, cx| machine.receive(cx, frame, payload));
                world.advance();
            }
        }
    }
}

#[test]
fn a_doorbell_record_that_cannot_be_ends_the_queue() {
    for nonsense in [33, 40_000, u16::MAX] {
        let bench = Bench::new(CompletionMode::Ring);
        let mut world = World::new(&bench, CompletionMode::Ring, 0, Reach::Frames);
        world.post();
        bench.queues[0].send_record().store(record(nonsense), Ordering::Release);
        world.machines[0].doorbell();
        world.advance();
        let completion = world.reader.poll().unwrap().unwrap();
        let CompletionKind::Error { syndrome, .. } = completion.kind else {
            panic!("{completion:?}")
        };
        assert_eq!((completion.index, syndrome), (0, Syndrome::LocalQpOperation));
    }
}

#[test]
fn mapped_memory_needs_no_frames() {
    let bench = Bench::new(CompletionMode::Ring);
    let mut world = World::new(&bench, CompletionMode::Ring, 0, Reach::Mapped);
    world.post(); // A fetch and add.
    world.ring();
    world.advance();
    assert!(world.poll());
    assert_eq!(world.accounted, 1);
    assert_eq!(bench.words.to_vec().unwrap()[0], 1);
    assert!(!world.deliver(0), "no frame");
}

#[test]
fn answers_that_nobody_asked_for_are_violations() {
    let bench = Bench::new(CompletionMode::Ring);
    let psn = 0u32.wrapping_sub(u32::MAX / 2);
    let frames = [
        Frame::Ack { psn },
        Frame::ReadData { psn },
        Frame::AtomicResult { psn, value: 1 },
        Frame::Nak { psn, syndrome: Syndrome::RemoteAccess },
        Frame::NotReady { psn },
        Frame::More { psn },
        Frame::Read { psn: psn + 1, length: 8, from: bench.remote(0) },
    ];
    for frame in frames {
        let mut world = World::new(&bench, CompletionMode::Ring, 0, Reach::Frames);
        let result = world.with(0, |machine, cx| machine.receive(cx, frame, Payload::of(&[])));
        assert!(result.is_err(), "{frame:?}");
    }
}

#[test]
fn an_answer_out_of_turn_fails_the_request_it_skips() {
    let bench = Bench::new(CompletionMode::Ring);
    let mut world = World::new(&bench, CompletionMode::Ring, 0, Reach::Frames);
    (0..2).for_each(|_| world.post()); // A fetch and add, and a send.
    world.ring();
    world.advance();
    let mut out = Outgoing::new();
    let mut sent = VecDeque::new();
    while world.with(0, |machine, cx| machine.transmit(cx, FRAGMENT, &mut out)) {
        sent.push_back(out.frame);
        world.advance();
    }
    assert_eq!(sent.len(), 1 + LONG.div_ceil(FRAGMENT));
    let psn = 1u32.wrapping_sub(u32::MAX / 2);
    world.with(0, |machine, cx| machine.receive(cx, Frame::Ack { psn }, Payload::of(&[]))).unwrap();
    world.advance();
    let completion = world.reader.poll().unwrap().unwrap();
    let CompletionKind::Error { syndrome, .. } = completion.kind else { panic!("{completion:?}") };
    assert_eq!((completion.index, syndrome), (0, Syndrome::BadResponse));
}
