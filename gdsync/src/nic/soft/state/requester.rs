//! The requester: executes the send queue. Fetches entries up to the doorbell record, sends them, matches the peer's
//! answers, and completes in order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::outgoing::{Outgoing, Payload};
use super::{Context, LinkState, MAX_READS, RetryPolicy, Violation, WINDOW};
use crate::mlx5::{
    Completion, CompletionKind, DataSegment, DoorbellRecord, Entry, ErrorSide, Fence, Notify,
    Operation, Payload as Source, SendRing, Syndrome, WorkRequest, WqeOpcode,
};
use crate::nic::error::Result;
use crate::nic::options::QueuePairOptions;
use crate::nic::queue_memory::QueueMemory;
use crate::nic::soft::completion::CompletionWriter;
use crate::nic::soft::keys::{Access, Atomic, KeyTable, RegionMemory, copy};
use crate::nic::soft::wire::frame::{Frame, MAX_MESSAGE};
use crate::nic::words::Words;

/// Retries for ever.
const FOR_EVER: u8 = 7;
/// Bytes copied at a time on the direct path, so that one long message does not hold up the other queue pairs.
const STEP: u64 = 1 << 20;
/// Entries fetched at a time, for the same reason.
const BATCH: usize = 32;

pub(super) struct Requester {
    qpn: u32,
    memory: QueueMemory,
    ring: SendRing<Words>,
    policy: RetryPolicy,
    /// First block of the oldest entry that is not complete; first block not fetched; first block not filled.
    oldest: u16,
    next: u16,
    filled: u16,
    /// The doorbell record says what cannot be; the entry at `filled` will fail.
    bad_record: bool,
    /// Sequence number of the next message.
    psn: u32,
    flights: VecDeque<Flight>,
    /// Flights without an answer, and the reads and atomics among them.
    unanswered: usize,
    reads: usize,
    /// The entry of the last flight while it is being sent or copied.
    sending: Option<Sending>,
    entry: Entry,
    /// A flight has failed: nothing more is fetched.
    stuck: bool,
    /// After "receiver not ready".
    retry_at: Option<Instant>,
    retried: u8,
    /// An entry that asks for one error completion a queue has had it.
    error_reported: bool,
}

/// An entry that was fetched and is not complete.
struct Flight {
    index: u16,
    blocks: u16,
    opcode: u8,
    notify: Notify,
    /// Its message, if it went to the peer as frames.
    psn: Option<u32>,
    /// Where the answer of a read or an atomic goes.
    scatter: Vec<DataSegment>,
    pulls: bool,
    length: u32,
    received: u32,
    state: Answer,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Waiting,
    Done,
    Failed(Syndrome),
}

struct Sending {
    psn: u32,
    offset: u64,
    total: u64,
    started: bool,
    direct: Option<Direct>,
}

struct Direct {
    memory: Arc<RegionMemory>,
    address: u64,
}

/// What an entry needs, besides its place in the order.
struct Plan {
    total: u64,
    role: Role,
}

enum Role {
    /// Done by this side alone.
    Local,
    /// Sends or writes.
    Push,
    /// Reads or atomics.
    Pull(Vec<DataSegment>),
}

impl Requester {
    pub fn new(qpn: u32, memory: &QueueMemory, options: &QueuePairOptions) -> Result<Requester> {
        Ok(Requester {
            qpn,
            memory: memory.clone(),
            ring: SendRing::new(memory.send.clone())?,
            policy: RetryPolicy {
                retries: options.receiver_not_ready_retries,
                delay: options.receiver_not_ready_delay,
            },
            oldest: 0,
            next: 0,
            filled: 0,
            bad_record: false,
            psn: 0,
            flights: VecDeque::with_capacity(WINDOW),
            unanswered: 0,
            reads: 0,
            sending: None,
            entry: Entry::new(),
            stuck: false,
            retry_at: None,
            retried: 0,
            error_reported: false,
        })
    }

    /// As if the queue had been used before.
    #[cfg(test)]
    pub fn start_at(&mut self, index: u16) {
        (self.oldest, self.next, self.filled) = (index, index, index);
        self.psn = u32::from(index).wrapping_sub(u32::MAX / 2);
    }

    /// Takes over the doorbell record. The doorbell only says "look": its own index is the last entry or the next
    /// one, depending on who rang.
    pub fn doorbell(&mut self) {
        let word = self.memory.send_record().load(Ordering::Acquire).to_ne_bytes();
        let record = DoorbellRecord::index(word);
        let ahead = record.wrapping_sub(self.oldest);
        let known = self.filled.wrapping_sub(self.oldest);
        if u64::from(ahead) > self.memory.send_blocks() || ahead < known {
            self.bad_record = true;
        } else {
            self.filled = record;
        }
    }

    pub fn is_busy(&self) -> bool {
        self.next != self.filled || self.unanswered > 0
    }

    pub fn is_copying(&self) -> bool {
        self.sending.as_ref().is_some_and(|sending| sending.direct.is_some())
    }

    /// Fetches what can be fetched, and copies what is copied directly.
    pub fn advance(&mut self, cx: &mut Context<'_>, completions: &CompletionWriter) -> bool {
        if self.retry_at.is_some_and(|at| cx.now >= at) {
            self.retry_at = None;
        }
        let mut progress = self.copy_directly(cx);
        let room = completions.room();
        for _ in 0..BATCH {
            let flights = self.flights.len();
            if self.sending.is_some()
                || self.stuck
                || self.retry_at.is_some()
                || flights >= WINDOW
                // Every entry may have a completion: its place is reserved now.
                || room <= flights as u64
                || !self.fetch(cx)
            {
                break;
            }
            progress = true;
        }
        progress
    }

    /// Fetches one entry; false if there is none, or it has to wait.
    fn fetch(&mut self, cx: &mut Context<'_>) -> bool {
        let index = self.next;
        if index == self.filled {
            let bad = std::mem::take(&mut self.bad_record);
            if bad {
                self.refuse(1, 0, Notify::OnError, Syndrome::LocalQpOperation);
            }
            return bad;
        }
        let ahead = self.filled.wrapping_sub(index);
        let fetched = self.ring.fetch(self.qpn, index, &mut self.entry).is_ok();
        let opcode = self.entry.bytes().get(3).copied().unwrap_or(0);
        // At most 63 octowords, so 16 blocks.
        let blocks = (self.entry.blocks() as u16).max(1);
        if !fetched || blocks > ahead {
            self.refuse(blocks.min(ahead), opcode, Notify::OnError, Syndrome::LocalQpOperation);
            return true;
        }
        let Ok(request) = self.entry.decode() else {
            self.refuse(blocks, opcode, Notify::OnError, Syndrome::LocalQpOperation);
            return true;
        };
        let notify = request.notify;
        let plan = match plan(&request, cx.keys) {
            Ok(plan) => plan,
            Err(syndrome) => {
                self.refuse(blocks, opcode, notify, syndrome);
                return true;
            }
        };
        let pulls = matches!(plan.role, Role::Pull(_));
        let fenced = match request.fence {
            Fence::None | Fence::InitiatorSmall => false,
            Fence::ReadsAndAtomics | Fence::Full => self.reads > 0,
            Fence::Strong => self.unanswered > 0,
        };
        if fenced || pulls && self.reads >= MAX_READS {
            return false;
        }
        let mut flight = Flight {
            index,
            blocks,
            opcode,
            notify,
            psn: None,
            scatter: Vec::new(),
            pulls,
            // At most 2^31.
            length: plan.total as u32,
            received: 0,
            state: Answer::Done,
        };
        if !matches!(plan.role, Role::Local) {
            match cx.link {
                LinkState::Connecting => return false,
                LinkState::Lost => {
                    self.refuse(blocks, opcode, notify, Syndrome::TransportRetryExceeded);
                    return true;
                }
                LinkState::Up => {}
            }
            flight.state = Answer::Waiting;
            // Mapped memory may be touched only when everything before is done, or the order would be lost.
            let direct = if self.unanswered == 0 { find_direct(&request, &plan, cx) } else { None };
            self.unanswered += 1;
            self.reads += usize::from(pulls);
            if direct.is_none() {
                flight.psn = Some(self.psn);
                self.psn = self.psn.wrapping_add(1);
            }
            self.sending = Some(Sending {
                psn: flight.psn.unwrap_or(0),
                offset: 0,
                total: plan.total,
                started: false,
                direct,
            });
        }
        if let Role::Pull(scatter) = plan.role {
            flight.scatter = scatter;
        }
        self.next = index.wrapping_add(blocks);
        self.flights.push_back(flight);
        self.copy_directly(cx);
        true
    }

    /// Takes the entry at `next` and lets it fail when its turn comes.
    fn refuse(&mut self, blocks: u16, opcode: u8, notify: Notify, syndrome: Syndrome) {
        let index = self.next;
        self.flights.push_back(Flight {
            index,
            blocks,
            opcode,
            notify,
            psn: None,
            scatter: Vec::new(),
            pulls: false,
            length: 0,
            received: 0,
            state: Answer::Failed(syndrome),
        });
        self.next = index.wrapping_add(blocks);
        self.stuck = true;
    }

    /// The next step of a copy to or from mapped memory of the peer.
    fn copy_directly(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(sending) = &mut self.sending else { return false };
        let Some(direct) = &sending.direct else { return false };
        let Some(flight) = self.flights.back_mut() else { return false };
        let Ok(request) = self.entry.decode() else { return false };
        let step = STEP.min(sending.total - sending.offset);
        let done = transfer(&request, direct, sending.offset, step, cx.keys);
        sending.offset += step;
        match done {
            Err(syndrome) => {
                flight.state = Answer::Failed(syndrome);
                self.stuck = true;
            }
            Ok(()) if sending.offset < sending.total => return true,
            Ok(()) => flight.state = Answer::Done,
        }
        flight.received = flight.length;
        self.unanswered -= 1;
        self.reads -= usize::from(flight.pulls);
        self.sending = None;
        true
    }

    /// The next frame of the entry being sent.
    pub fn transmit(&mut self, cx: &mut Context<'_>, max: usize, out: &mut Outgoing) -> bool {
        if cx.link != LinkState::Up {
            return false;
        }
        let Some(sending) = &mut self.sending else { return false };
        if sending.direct.is_some() {
            return false;
        }
        let Ok(request) = self.entry.decode() else { return false };
        let (psn, length) = (sending.psn, sending.total as u32);
        let solicited = request.solicited;
        let (first, source) = match request.operation {
            Operation::Send { payload, imm } => {
                (Frame::Send { psn, length, imm, solicited }, Some(payload))
            }
            Operation::Write { remote, payload, imm } => {
                (Frame::Write { psn, length, imm, solicited, to: remote }, Some(payload))
            }
            Operation::Read { remote, .. } => (Frame::Read { psn, length, from: remote }, None),
            Operation::FetchAdd { remote, add, .. } => {
                (Frame::Atomic { psn, at: remote, operation: Atomic::FetchAdd(add) }, None)
            }
            Operation::CompareSwap { remote, compare, swap, .. } => {
                let operation = Atomic::CompareSwap { compare, swap };
                (Frame::Atomic { psn, at: remote, operation }, None)
            }
            Operation::Nop | Operation::Dump { .. } => return false,
        };
        out.frame = if sending.started { Frame::More { psn } } else { first };
        sending.started = true;
        let Some(source) = source else {
            self.sending = None;
            return true;
        };
        let part = (max as u64).min(sending.total - sending.offset);
        match source {
            Source::Inline(data) => {
                let from = sending.offset as usize;
                out.push_inline(&data[from..from + part as usize]);
            }
            Source::Gather(segments) => {
                let gathered = cx.keys.for_pieces(
                    segments,
                    sending.offset,
                    part,
                    Access::LOCAL_READ,
                    |region, pointer, len| out.push(region, pointer, len),
                );
                if gathered.is_err() {
                    // The key was taken back under the message, which the peer will never see the end of.
                    out.clear();
                    self.sending = None;
                    if let Some(flight) = self.flights.back_mut() {
                        flight.state = Answer::Failed(Syndrome::LocalProtection);
                        self.unanswered -= 1;
                    }
                    self.stuck = true;
                    return false;
                }
            }
        }
        sending.offset += part;
        if sending.offset == sending.total {
            self.sending = None;
        }
        true
    }

    /// An answer of the peer.
    pub fn answer(
        &mut self,
        cx: &mut Context<'_>,
        frame: Frame,
        payload: Payload<'_>,
    ) -> Result<(), Violation> {
        match frame {
            Frame::Ack { psn } => {
                let at = self.flight_of("an acknowledgement of message", psn)?;
                self.acknowledge(at + 1);
                self.retried = 0;
            }
            Frame::ReadData { psn } => {
                let at = self.flight_of("data of read", psn)?;
                self.acknowledge(at);
                self.take_data(at, cx.keys, payload);
            }
            Frame::AtomicResult { psn, value } => {
                let at = self.flight_of("the result of atomic", psn)?;
                self.acknowledge(at);
                self.take_data(at, cx.keys, Payload::of(&value.to_ne_bytes()));
            }
            Frame::Nak { psn, syndrome } => {
                let at = self.flight_of("a refusal of message", psn)?;
                self.acknowledge(at);
                self.settle(at, Answer::Failed(syndrome));
                self.sending = None;
            }
            Frame::NotReady { psn } => {
                let at = self.flight_of("not ready for message", psn)?;
                self.acknowledge(at);
                self.go_back(at, cx.now);
            }
            _ => return Err(Violation::Other("a frame that no queue pair expects")),
        }
        Ok(())
    }

    /// Which flight has this sequence number and waits for an answer.
    fn flight_of(&self, what: &'static str, psn: u32) -> Result<usize, Violation> {
        let found = self.flights.iter().position(|flight| flight.psn == Some(psn));
        match found {
            Some(at) if self.flights[at].state == Answer::Waiting => Ok(at),
            _ => Err(Violation::Sequence { what, psn, expected: self.psn }),
        }
    }

    /// The flights before `end` are done, says an answer to a later one. Reads and atomics cannot be: they have
    /// answers of their own.
    fn acknowledge(&mut self, end: usize) {
        for at in 0..end {
            if self.flights[at].state != Answer::Waiting {
                continue;
            }
            if self.flights[at].pulls {
                self.settle(at, Answer::Failed(Syndrome::BadResponse));
            } else {
                self.settle(at, Answer::Done);
                self.retried = 0;
            }
        }
    }

    fn settle(&mut self, at: usize, answer: Answer) {
        let flight = &mut self.flights[at];
        if flight.state == Answer::Waiting {
            self.unanswered -= 1;
            self.reads -= usize::from(flight.pulls);
            flight.state = answer;
        }
        self.stuck |= matches!(answer, Answer::Failed(_));
    }

    fn take_data(&mut self, at: usize, keys: &KeyTable, payload: Payload<'_>) {
        let flight = &mut self.flights[at];
        let left = flight.length - flight.received;
        if !flight.pulls || payload.len > left as usize {
            self.settle(at, Answer::Failed(Syndrome::BadResponse));
            return;
        }
        let mut from = payload.pointer;
        let scattered = keys.for_pieces(
            &flight.scatter,
            u64::from(flight.received),
            payload.len as u64,
            Access::LOCAL_WRITE,
            |_, to, len| {
                // SAFETY: the pieces have as many bytes as the payload, and the key table checked them.
                unsafe {
                    copy(from, to, len);
                    from = from.add(len);
                }
            },
        );
        flight.received += payload.len as u32;
        if scattered.is_err() {
            self.settle(at, Answer::Failed(Syndrome::LocalProtection));
        } else if flight.received == flight.length {
            self.settle(at, Answer::Done);
        }
    }

    /// The peer had no receive for the message of flight `at`: it and all after it go back into the queue.
    fn go_back(&mut self, at: usize, now: Instant) {
        if self.policy.retries != FOR_EVER && self.retried >= self.policy.retries {
            self.settle(at, Answer::Failed(Syndrome::ReceiverNotReadyRetryExceeded));
            self.sending = None;
            return;
        }
        self.retried = self.retried.saturating_add(1);
        self.next = self.flights[at].index;
        self.psn = self.flights[at].psn.unwrap_or(self.psn);
        for flight in self.flights.drain(at..) {
            if flight.state == Answer::Waiting {
                self.unanswered -= 1;
                self.reads -= usize::from(flight.pulls);
            }
        }
        self.sending = None;
        self.stuck = false;
        self.retry_at = Some(now + self.policy.delay);
    }

    /// The peer is gone: the first flight that waits for it fails.
    pub fn lose(&mut self) {
        self.sending = None;
        self.retry_at = None;
        if let Some(at) = self.flights.iter().position(|flight| flight.state == Answer::Waiting) {
            self.settle(at, Answer::Failed(Syndrome::TransportRetryExceeded));
        }
    }

    /// Completes flights in order, up to the first that waits. Returns the syndrome if one failed.
    pub fn complete(
        &mut self,
        completions: &mut CompletionWriter,
        progress: &mut bool,
    ) -> Option<Syndrome> {
        while let Some(flight) = self.flights.front() {
            if flight.state == Answer::Waiting {
                break;
            }
            let flight = self.flights.pop_front()?;
            *progress = true;
            self.oldest = flight.index.wrapping_add(flight.blocks);
            if let Answer::Failed(syndrome) = flight.state {
                self.sending = None;
                self.report(&flight, syndrome, completions);
                return Some(syndrome);
            }
            if matches!(flight.notify, Notify::Always | Notify::AlwaysWithEvent)
                && let Ok(opcode) = WqeOpcode::try_from(flight.opcode)
            {
                let byte_count = if flight.pulls { flight.length } else { 0 };
                let kind = CompletionKind::Request { opcode, byte_count };
                let completion =
                    Completion { qpn: self.qpn, index: flight.index, user_index: 0, kind };
                completions.write(&completion);
            }
        }
        None
    }

    fn report(&mut self, flight: &Flight, syndrome: Syndrome, completions: &mut CompletionWriter) {
        if flight.notify == Notify::OnFirstError && self.error_reported {
            return;
        }
        self.error_reported = true;
        let kind = CompletionKind::Error {
            side: ErrorSide::Requester,
            syndrome,
            vendor: 0,
            opcode: flight.opcode,
        };
        completions.write(&Completion { qpn: self.qpn, index: flight.index, user_index: 0, kind });
    }

    /// In the error state: completes everything in the queue as flushed.
    pub fn flush(&mut self, completions: &mut CompletionWriter) -> bool {
        self.sending = None;
        self.bad_record = false;
        let mut progress = false;
        while completions.room() > 0 {
            let flight = match self.flights.pop_front() {
                Some(flight) => flight,
                None if self.next == self.filled => break,
                None => {
                    let ahead = self.filled.wrapping_sub(self.next);
                    let fetched = self.ring.fetch(self.qpn, self.next, &mut self.entry).is_ok();
                    let opcode = self.entry.bytes().get(3).copied().unwrap_or(0);
                    let notify = self.entry.decode().map_or(Notify::OnError, |r| r.notify);
                    // Where an unreadable entry ends nobody knows: it takes the rest with it.
                    let blocks = if fetched { self.entry.blocks() as u16 } else { ahead };
                    self.refuse(blocks.clamp(1, ahead), opcode, notify, Syndrome::Flushed);
                    continue;
                }
            };
            progress = true;
            self.oldest = flight.index.wrapping_add(flight.blocks);
            self.report(&flight, Syndrome::Flushed, completions);
        }
        (self.unanswered, self.reads) = (0, 0);
        progress
    }
}

/// Checks what this side can check of a request.
fn plan(request: &WorkRequest<'_>, keys: &KeyTable) -> Result<Plan, Syndrome> {
    let local = |segments: &[DataSegment], need| {
        let total = segments.iter().map(|segment| u64::from(segment.length())).sum();
        if total > MAX_MESSAGE {
            return Err(Syndrome::LocalLength);
        }
        keys.check_segments(segments, need).map_err(|_| Syndrome::LocalProtection)?;
        Ok(total)
    };
    match request.operation {
        Operation::Nop => Ok(Plan { total: 0, role: Role::Local }),
        Operation::Dump { from } => {
            local(&[from], Access::LOCAL_READ)?;
            Ok(Plan { total: 0, role: Role::Local })
        }
        Operation::Send { payload, .. } | Operation::Write { payload, .. } => {
            let total = match payload {
                Source::Inline(data) => data.len() as u64,
                Source::Gather(segments) => local(segments, Access::LOCAL_READ)?,
            };
            Ok(Plan { total, role: Role::Push })
        }
        Operation::Read { into, .. } => {
            let total = local(into, Access::LOCAL_WRITE)?;
            Ok(Plan { total, role: Role::Pull(into.to_vec()) })
        }
        Operation::FetchAdd { into, .. } | Operation::CompareSwap { into, .. } => {
            let total = local(&[into], Access::LOCAL_WRITE)?;
            Ok(Plan { total, role: Role::Pull(vec![into]) })
        }
    }
}

/// The peer's memory of a write, read or atomic, if it is mapped. Anything that the peer would refuse is left to it.
fn find_direct(request: &WorkRequest<'_>, plan: &Plan, cx: &mut Context<'_>) -> Option<Direct> {
    let (remote, need) = match request.operation {
        Operation::Write { remote, imm: None, .. } => (remote, Access::REMOTE_WRITE),
        Operation::Read { remote, .. } => (remote, Access::REMOTE_READ),
        Operation::FetchAdd { remote, .. } | Operation::CompareSwap { remote, .. } => {
            (remote, Access::REMOTE_ATOMIC)
        }
        _ => return None,
    };
    let (memory, pointer) = cx.direct.find(remote.rkey, remote.address, plan.total, need)?;
    if need == Access::REMOTE_ATOMIC && !(pointer as usize).is_multiple_of(8) {
        return None;
    }
    Some(Direct { memory, address: remote.address })
}

/// Carries out bytes `offset` to `offset + len` of a request on mapped memory.
fn transfer(
    request: &WorkRequest<'_>,
    direct: &Direct,
    offset: u64,
    len: u64,
    keys: &KeyTable,
) -> Result<(), Syndrome> {
    let (need, write) = match request.operation {
        Operation::Write { .. } => (Access::REMOTE_WRITE, true),
        Operation::Read { .. } => (Access::REMOTE_READ, false),
        _ => (Access::REMOTE_ATOMIC, false),
    };
    let checked = direct.memory.check(direct.address + offset, len, need);
    let mut remote = checked.map_err(|_| Syndrome::RemoteAccess)?;
    let mut pieces = |segments: &[DataSegment], need| {
        let copied = keys.for_pieces(segments, offset, len, need, |_, local, part| {
            let (from, to) = if write { (local, remote) } else { (remote, local) };
            // SAFETY: both ranges were checked for these bytes; the parts add up to `len`.
            unsafe {
                copy(from, to, part);
                remote = remote.add(part);
            }
        });
        copied.map_err(|_| Syndrome::LocalProtection)
    };
    let (operation, into) = match request.operation {
        Operation::Write { payload: Source::Inline(data), .. } => {
            // SAFETY: `len` bytes at `offset` of the data, and at `remote`, as checked.
            unsafe { copy(data.as_ptr().add(offset as usize), remote, len as usize) };
            return Ok(());
        }
        Operation::Write { payload: Source::Gather(segments), .. } => {
            return pieces(segments, Access::LOCAL_READ);
        }
        Operation::Read { into, .. } => return pieces(into, Access::LOCAL_WRITE),
        Operation::FetchAdd { add, into, .. } => (Atomic::FetchAdd(add), into),
        Operation::CompareSwap { compare, swap, into, .. } => {
            (Atomic::CompareSwap { compare, swap }, into)
        }
        _ => return Err(Syndrome::LocalQpOperation),
    };
    let result = keys.check(into.lkey(), into.address(), 8, Access::LOCAL_WRITE);
    let (_, result) = result.map_err(|_| Syndrome::LocalProtection)?;
    // SAFETY: `remote` was checked for 8 bytes and is aligned (find_direct); `result` was checked for 8 bytes.
    unsafe {
        let value = operation.apply(remote);
        copy((&raw const value).cast(), result, 8);
    }
    Ok(())
}
