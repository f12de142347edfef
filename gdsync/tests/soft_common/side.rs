//! One side of a conversation of random operations of all kinds, with a shadow model of the peer's memory: every
//! answer, every message and in the end every byte is checked.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use gdsync::nic::soft::SoftNic;
use gdsync::nic::{Access, Address, Nic, QueuePair, QueuePairOptions};
use gdsync::wqe::{
    CompletionKind, DataSegment, Fence, Notify, Operation, Payload, Received, RemoteAddress,
    WorkRequest,
};
use gdsync::{Buffer, Deadline, Device};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::{Outcome, Way, signaled, soon};

/// Bytes of the memory that each side offers the other, and of the largest message.
const ARENA: usize = 4 << 20;
const LARGEST: usize = 4 << 20;
/// Small requests under way at a time, and the most bytes of one.
const SLOTS: usize = 16;
const SLOT: usize = 32 * 1024;
/// Receives posted at a time: few, so that senders often find none.
pub const RECEIVES: usize = 4;
/// The immediate of the last message.
const END: u32 = u32::MAX;

/// One side: memory for the peer to work on, receives for its messages, and a model of what the peer's memory holds.
pub struct Side {
    pub queue: QueuePair,
    local: Buffer<u8>,
    lkey: u32,
    base: u64,
    /// What the peer works on.
    pub arena: Buffer<u8>,
    _arena: gdsync::nic::MemoryRegion,
    _source: gdsync::nic::MemoryRegion,
    pub remote: RemoteAddress,
    shadow: Vec<u8>,
    random: SmallRng,
    under_way: VecDeque<UnderWay>,
    free: Vec<usize>,
    reads: usize,
    sent: u32,
    received: u32,
    posted_receives: usize,
    ended: bool,
    pub bytes: u64,
}

/// A posted request and what is to be checked when it completes.
struct UnderWay {
    index: u16,
    slot: usize,
    expected: Option<(usize, Vec<u8>)>,
}

/// What the two sides tell each other.
pub type Introduction = (Address, u64, u32);

/// Where in the local memory what is: slots, one large buffer, receives.
const LARGE: usize = SLOTS * SLOT;
const INBOX: usize = LARGE + LARGEST;
const LOCAL: usize = INBOX + RECEIVES * LARGEST;

impl Side {
    pub fn start(
        nic: &SoftNic,
        way: Way,
        seed: u64,
        transport_timeout: Duration,
        exchange: impl FnOnce(&Introduction) -> Outcome<Introduction>,
    ) -> Outcome<Side> {
        let options = QueuePairOptions {
            receive_entries: RECEIVES,
            receive_segments: 2,
            send_blocks: 512,
            transport_timeout,
            ..QueuePairOptions::default()
        };
        let queue = nic.queue_pair(&Device::Host, &options)?;
        let memory = Device::Host.alloc_pinned::<u8>(ARENA)?;
        let arena = nic.register(&memory, Access::ALL)?;
        let local = Device::Host.alloc_pinned::<u8>(LOCAL)?;
        let source = nic.register(&local.bytes(), Access::LOCAL_WRITE)?;
        let own = (queue.address().clone(), arena.address(), arena.rkey());
        let (peer, address, rkey) = exchange(&own)?;
        queue.connect_over(&peer, way.wire())?;
        queue.wait_connected(soon())?;
        let (lkey, base) = (source.lkey(), source.address());
        let mut side = Side {
            queue,
            local,
            lkey,
            base,
            arena: memory,
            _arena: arena,
            _source: source,
            remote: RemoteAddress { address, rkey },
            shadow: vec![0; ARENA],
            random: SmallRng::seed_from_u64(seed),
            under_way: VecDeque::new(),
            free: (0..SLOTS).collect(),
            reads: 0,
            sent: 0,
            received: 0,
            posted_receives: 0,
            ended: false,
            bytes: 0,
        };
        for _ in 0..RECEIVES {
            side.post_receive()?;
        }
        Ok(side)
    }

    fn post_receive(&mut self) -> Outcome {
        let at = INBOX + (self.posted_receives % RECEIVES) * LARGEST;
        let (first, second) = (100, LARGEST - 100);
        let segments = [
            DataSegment::new(self.lkey, self.base + at as u64, first as u32)?,
            DataSegment::new(self.lkey, self.base + (at + first) as u64, second as u32)?,
        ];
        self.queue.receive(&segments)?;
        self.posted_receives += 1;
        Ok(())
    }

    /// Writes `count` numbers after `first` into the peer's first word one by one, each after the answer to the one before:
    /// round trips of two writes.
    pub fn volley_from(&self, nic: &SoftNic, first: u64, count: u64) -> Outcome {
        self.volley(nic, first..first + count, true)
    }

    /// The same, or the answers.
    pub fn volley(&self, nic: &SoftNic, numbers: Range<u64>, begins: bool) -> Outcome {
        let (word, remote) = (self.arena.clone().cast::<u64>()?.word(0)?, self.remote);
        let arrives = |number| -> Outcome {
            let deadline = soon();
            while word.load() != Some(number) {
                nic.progress();
                if deadline.expired() {
                    return Err(format!("number {number} does not come").into());
                }
            }
            Ok(())
        };
        for number in numbers.map(|number| number + 1) {
            if !begins {
                arrives(number)?;
            }
            let bytes = number.to_ne_bytes();
            let write = Operation::Write { remote, payload: Payload::Inline(&bytes), imm: None };
            let position = self.queue.post(&signaled(write))?;
            if begins {
                arrives(number)?;
            }
            self.queue.wait(position, soon())?;
        }
        Ok(())
    }

    /// A piece of the local memory, for requests of the test's own.
    pub fn segment(&self, at: usize, len: u32) -> Outcome<DataSegment> {
        Ok(DataSegment::new(self.lkey, self.base + (LARGE + at) as u64, len)?)
    }

    /// The local bytes from `at` on.
    #[allow(clippy::mut_from_ref)]
    fn bytes_at(&self, at: usize, len: usize) -> Outcome<&mut [u8]> {
        // SAFETY: the range belongs to a request that is not under way, or to a receive that is filled.
        Ok(unsafe { &mut self.local.as_mut_slice()?[at..at + len] })
    }

    /// Checks messages of the peer, and makes room for more.
    fn take_messages(&mut self) -> Outcome {
        while let Some(completion) = self.queue.poll_receive()? {
            if self.ended {
                break; // The peer has left: what it did not fill is flushed.
            }
            let CompletionKind::Receive { by, byte_count, .. } = completion.kind else {
                return Err(format!("{completion:?}, lost: {:?}", self.queue.lost()).into());
            };
            let number = self.received;
            match by {
                Received::SendImm(END) => self.ended = true,
                Received::SendImm(imm) | Received::WriteImm(imm) => assert_eq!(imm, number),
                _ => {}
            }
            if matches!(by, Received::Send | Received::SendImm(_)) && byte_count > 0 {
                let at = INBOX + (number as usize % RECEIVES) * LARGEST;
                let bytes = self.bytes_at(at, byte_count as usize)?;
                if let Some(wrong) = first_wrong(bytes, number) {
                    return Err(format!("message {number}: byte {wrong} of {byte_count}").into());
                }
            }
            self.received += 1;
            self.post_receive()?;
        }
        Ok(())
    }

    /// Takes completions and checks what was read.
    fn take_completions(&mut self) -> Outcome {
        while let Some(completion) = self.queue.poll_send()? {
            if let CompletionKind::Error { syndrome, .. } = completion.kind {
                return Err(format!("a request failed: {syndrome}; {:?}", self.queue.lost()).into());
            }
            loop {
                let done = self.under_way.pop_front().ok_or("a completion of nothing")?;
                if let Some((at, expected)) = &done.expected {
                    self.reads -= 1;
                    if *self.bytes_at(*at, expected.len())? != expected[..] {
                        return Err(format!("read {} bytes that differ", expected.len()).into());
                    }
                }
                if done.slot < SLOTS {
                    self.free.push(done.slot);
                }
                if done.index == completion.index {
                    break;
                }
            }
        }
        Ok(())
    }

    fn settle(&mut self) -> Outcome {
        self.take_messages()?;
        self.take_completions()
    }

    /// Waits until at most `left` requests are under way.
    fn drain(&mut self, left: usize) -> Outcome {
        let deadline = Deadline::after(Duration::from_secs(60));
        let mut result = Ok(());
        deadline
            .poll(|| {
                result = self.settle();
                (result.is_err() || self.under_way.len() <= left).then_some(())
            })
            .ok_or_else(|| format!("{} requests never completed", self.under_way.len()))?;
        result
    }

    /// Mostly small, sometimes large, seldom huge.
    fn size(&mut self) -> usize {
        match self.random.random_range(0..10_000) {
            0..2 => self.random.random_range(0..=LARGEST),
            2..40 => self.random.random_range(0..200_000),
            40..800 => self.random.random_range(0..=SLOT),
            _ => self.random.random_range(0..300),
        }
    }

    /// Posts one random request.
    fn step(&mut self) -> Outcome {
        if self.free.is_empty() {
            self.drain(SLOTS / 2)?;
        }
        let kind = self.random.random_range(0..10);
        let mut len = match kind {
            0 | 1 => 8,
            2 => self.random.random_range(0..900),
            9 => 0,
            _ => self.size(),
        };
        let large = len > SLOT;
        if large {
            self.finish()?;
        }
        let slot = if large { SLOTS } else { self.free.pop().ok_or("no slot")? };
        let at = if large { LARGE } else { slot * SLOT };
        let address = self.base + at as u64;
        let offset = match kind {
            0 | 1 => 8 * self.random.random_range(0..ARENA / 8),
            _ => self.random.random_range(0..=ARENA - len),
        };
        let remote = RemoteAddress { address: self.remote.address + offset as u64, ..self.remote };
        let mut segments = Vec::new();
        let cut = self.random.random_range(0..=len);
        for (from, to) in [(0, cut), (cut, len)] {
            if from < to {
                let piece = (to - from) as u32;
                segments.push(DataSegment::new(self.lkey, address + from as u64, piece)?);
            }
        }
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
        let mut inline = Vec::new();
        let mut expected = None;
        let value = self.random.random();
        let operation = match kind {
            0 | 1 => {
                let held = word(&self.shadow[offset..offset + 8]);
                expected = Some((at, held.to_ne_bytes().to_vec()));
                let into = DataSegment::new(self.lkey, address, 8)?;
                let (operation, now) = if kind == 0 {
                    let add = Operation::FetchAdd { remote, add: value, into };
                    (add, held.wrapping_add(value))
                } else if value % 2 == 0 {
                    let operation =
                        Operation::CompareSwap { remote, compare: held, swap: value, into };
                    (operation, value)
                } else {
                    let compare = !held;
                    (Operation::CompareSwap { remote, compare, swap: value, into }, held)
                };
                self.shadow[offset..offset + 8].copy_from_slice(&now.to_ne_bytes());
                operation
            }
            2 => {
                inline.resize(len, 0);
                fill(&mut inline, value as u32);
                self.shadow[offset..offset + len].copy_from_slice(&inline);
                Operation::Write { remote, payload: Payload::Inline(&inline), imm: None }
            }
            3 | 4 => {
                fill(self.bytes_at(at, len)?, value as u32);
                let (bytes, to) = (self.bytes_at(at, len)?.to_vec(), offset..offset + len);
                self.shadow[to].copy_from_slice(&bytes);
                let payload = Payload::Gather(&segments);
                let imm = (kind == 4).then_some(self.sent);
                self.sent += u32::from(kind == 4);
                Operation::Write { remote, payload, imm }
            }
            5 | 6 => {
                expected = Some((at, self.shadow[offset..offset + len].to_vec()));
                Operation::Read { remote, into: &segments }
            }
            7 | 8 => {
                let number = self.sent;
                fill(self.bytes_at(at, len)?, number);
                self.sent += 1;
                let payload = Payload::Gather(&segments);
                Operation::Send { payload, imm: (kind == 7).then_some(number) }
            }
            _ => {
                len = 0;
                Operation::Nop
            }
        };
        self.bytes += len as u64;
        // What changes the peer's memory must not overtake the answer to a read.
        let fence = if self.reads > 0 { Fence::Full } else { Fence::None };
        let last = self.free.is_empty() || large;
        let notify = if last || self.random.random() { Notify::Always } else { Notify::OnError };
        let request = WorkRequest { fence, notify, ..WorkRequest::new(operation) };
        self.reads += usize::from(expected.is_some());
        let position = self.queue.post(&request)?;
        self.under_way.push_back(UnderWay { index: position as u16, slot, expected });
        if large {
            self.drain(0)?;
        }
        self.settle()
    }

    /// Waits until nothing is under way. The last requests may have asked for no completion: one more request does.
    fn finish(&mut self) -> Outcome {
        if self.under_way.is_empty() {
            return Ok(());
        }
        let position = self.queue.post(&signaled(Operation::Nop))?;
        self.under_way.push_back(UnderWay { index: position as u16, slot: SLOTS, expected: None });
        self.drain(0)
    }

    /// `operations` random requests, and then everything that is left.
    pub fn run(&mut self, operations: u64) -> Outcome {
        for _ in 0..operations {
            self.step()?;
        }
        self.finish()?;
        // The whole of the peer's memory, in the end.
        let whole = [DataSegment::new(self.lkey, self.base + LARGE as u64, ARENA as u32)?];
        let read = Operation::Read { remote: self.remote, into: &whole };
        let position = self.queue.post(&signaled(read))?;
        let expected = Some((LARGE, self.shadow.clone()));
        self.reads += 1;
        self.under_way.push_back(UnderWay { index: position as u16, slot: SLOTS, expected });
        self.drain(0)?;
        // After this message the peer may leave.
        let end = Operation::Send { payload: Payload::Inline(&[]), imm: Some(END) };
        let position = self.queue.post(&signaled(end))?;
        self.under_way.push_back(UnderWay { index: position as u16, slot: SLOTS, expected: None });
        self.drain(0)?;
        let deadline = Deadline::after(Duration::from_secs(600));
        while !self.ended {
            if deadline.expired() {
                return Err("the peer never came to its end".into());
            }
            self.take_messages()?;
            std::thread::yield_now();
        }
        Ok(())
    }
}

/// A pattern that tells messages and places apart.
fn fill(bytes: &mut [u8], seed: u32) {
    let mut words = bytes.chunks_exact_mut(8);
    let mut value = u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for word in &mut words {
        word.copy_from_slice(&value.to_ne_bytes());
        value = value.wrapping_add(0x0101_0101_0101_0101);
    }
    words.into_remainder().fill(seed as u8);
}

fn first_wrong(bytes: &[u8], seed: u32) -> Option<usize> {
    let mut expected = vec![0; bytes.len()];
    fill(&mut expected, seed);
    bytes.iter().zip(&expected).position(|(a, b)| a != b)
}
