//! The requester: executes the send queue. Fetches entries up to the doorbell record, sends them, matches the peer's
//! answers, and completes in order. Here: fetching and sending; `answers` is what comes back, `plan` one request.

mod answers;
mod plan;

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::outgoing::Outgoing;
use super::{
    CHUNK, CHUNKS, Context, DEVICE_PART, DeviceRequest, Driver, LinkState, MAX_READS, RetryPolicy,
    WINDOW,
};
use crate::nic::error::Result;
use crate::nic::memory_region::Access;
use crate::nic::options::QueuePairOptions;
use crate::nic::queue_memory::QueueMemory;
use crate::nic::soft::completion::CompletionWriter;
use crate::nic::soft::keys::Atomic;
use crate::nic::soft::wire::frame::Frame;
use crate::nic::words::Words;
use crate::wqe::{
    DataSegment, DoorbellRecord, Entry, Fence, Notify, Operation, Payload as Source, RemoteAddress,
    SendRing, Syndrome,
};
use plan::{Direct, Role, find_direct, plan, transfer};

/// Retries for ever.
const FOR_EVER: u8 = 7;
/// Bytes copied at a time on the direct path, so that one long message does not hold up the other queue pairs.
const STEP: u64 = 1 << 20;
/// Entries fetched at a time, for the same reason.
const BATCH: usize = 32;
/// The longest copy that a thread that has rung makes itself: about as long as telling another one takes.
const QUICK: u64 = 8 << 10;

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
    /// Flights without an answer, the reads and atomics among them, and those that the device carries out.
    unanswered: usize,
    reads: usize,
    on_device: usize,
    /// Requests of theirs under way that use the pool.
    staged: usize,
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
    on_device: bool,
    length: u32,
    /// Bytes that have arrived, or that the device has carried out.
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
            on_device: 0,
            staged: 0,
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

    /// Whether all that was rung is complete.
    pub fn is_idle(&self) -> bool {
        self.next == self.filled && !self.bad_record && self.flights.is_empty()
    }

    pub fn is_copying(&self) -> bool {
        let direct = self.sending.as_ref().and_then(|sending| sending.direct.as_ref());
        matches!(direct, Some(Direct::Mapped(_)))
    }

    /// Whether there may be something to fetch, to copy or to complete.
    pub fn has_work(&self) -> bool {
        self.next != self.filled
            || self.bad_record
            || self.retry_at.is_some()
            || self.is_copying()
            || self.flights.front().is_some_and(|flight| flight.state != Answer::Waiting)
    }

    /// Whether an entry is being sent to the peer, or given to the device.
    pub fn is_sending(&self) -> bool {
        self.sending.is_some() && !self.is_copying()
    }

    pub fn is_on_device(&self) -> bool {
        self.on_device > 0
    }

    /// Fetches what can be fetched, and copies what is copied directly.
    pub fn advance(&mut self, cx: &mut Context<'_>, completions: &CompletionWriter) -> bool {
        // What the engine has begun it ends.
        if cx.driver == Driver::Caller && (!self.flights.is_empty() || self.retry_at.is_some()) {
            return false;
        }
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
                // There is no entry to take: the completion has the index that one would have.
                self.refuse(0, 0, Notify::OnError, Syndrome::LocalQpOperation);
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
            on_device: false,
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
            let direct = find_direct(&request, &plan, cx).filter(|direct| match direct {
                // Mapped memory may be touched only when everything before is done, or the order would be lost.
                Direct::Mapped(_) => self.unanswered == 0,
                Direct::ByDevice { .. } => true,
            });
            // A device keeps the order of what it is given. Frames that it has delivered the peer executes later: they are
            // waited for. (Those that come after what the device does may follow at once.)
            let by_device = matches!(direct, Some(Direct::ByDevice { .. }));
            if by_device && self.unanswered > self.on_device {
                return false;
            }
            if cx.driver == Driver::Caller
                && !direct.as_ref().is_some_and(|direct| match direct {
                    Direct::Mapped(mapped) => {
                        plan.total <= QUICK && mapped.is_for_the_cpu(&request, cx.keys)
                    }
                    Direct::ByDevice { .. } => false,
                })
            {
                return false;
            }
            self.unanswered += 1;
            self.reads += usize::from(pulls);
            self.on_device += usize::from(by_device);
            flight.on_device = by_device;
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
            on_device: false,
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
        let Some(Direct::Mapped(direct)) = &sending.direct else { return false };
        let Some(flight) = self.flights.back_mut() else { return false };
        let Ok(request) = self.entry.decode() else { return false };
        let step = STEP.min(sending.total - sending.offset);
        let done = transfer(&request, direct, sending.offset, step, cx);
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

    /// Copies to a GPU have failed, which of them nobody knows: the oldest entry fails, and nothing behind it completes.
    pub fn break_copies(&mut self) {
        self.sending = None;
        if let Some(flight) = self.flights.front_mut() {
            if flight.state == Answer::Waiting {
                self.unanswered -= 1;
                self.reads -= usize::from(flight.pulls);
            }
            flight.state = Answer::Failed(Syndrome::RemoteOperation);
            self.stuck = true;
        }
    }

    /// The next frame of the entry being sent.
    pub fn transmit(&mut self, cx: &mut Context<'_>, max: usize, out: &mut Outgoing) -> bool {
        if cx.link != LinkState::Up {
            return false;
        }
        let Some(sending) = &mut self.sending else { return false };
        match sending.direct {
            None => {}
            Some(Direct::Mapped(_)) => return false,
            Some(Direct::ByDevice { remote, staged }) => {
                return self.hand_over(cx, (remote, staged), out);
            }
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
                    // The peer will never see the end of the message.
                    return self.break_off(out);
                }
            }
        }
        sending.offset += part;
        if sending.offset == sending.total {
            self.sending = None;
        }
        true
    }

    /// The key of this side's memory was taken back under the request. Returns that there is nothing to send.
    fn break_off(&mut self, out: &mut Outgoing) -> bool {
        out.clear();
        self.sending = None;
        let last = self.flights.len().saturating_sub(1);
        self.settle(last, Answer::Failed(Syndrome::LocalProtection));
        false
    }

    /// The next part of the entry being sent, for the device.
    fn hand_over(
        &mut self,
        cx: &mut Context<'_>,
        (remote, staged): (RemoteAddress, bool),
        out: &mut Outgoing,
    ) -> bool {
        let Some(sending) = &mut self.sending else { return false };
        let Ok(request) = self.entry.decode() else { return false };
        if staged && self.staged >= CHUNKS {
            return false;
        }
        let largest = if staged { CHUNK as u64 } else { DEVICE_PART };
        let (offset, part) = (sending.offset, largest.min(sending.total - sending.offset));
        let at = RemoteAddress { address: remote.address.wrapping_add(offset), ..remote };
        out.staged = staged;
        let pieces = |segments: &[DataSegment], need, out: &mut Outgoing| {
            cx.keys.for_pieces(segments, offset, part, need, |region, pointer, len| match staged {
                // What is brought into the pool is copied when it is there.
                true if need == Access::LOCAL_WRITE => Ok(()),
                true => out.push(region, pointer, len),
                false => {
                    out.name(region, pointer, len);
                    Ok(())
                }
            })
        };
        let named = match request.operation {
            Operation::Write { payload: Source::Inline(data), .. } => {
                let from = offset as usize;
                out.push_inline(&data[from..from + part as usize]);
                Ok(())
            }
            Operation::Write { payload: Source::Gather(segments), .. } => {
                pieces(segments, Access::LOCAL_READ, out)
            }
            Operation::Read { into, .. } => pieces(into, Access::LOCAL_WRITE, out),
            Operation::FetchAdd { into, .. } | Operation::CompareSwap { into, .. } => {
                pieces(&[into], Access::LOCAL_WRITE, out)
            }
            _ => return false,
        };
        out.request = Some(match request.operation {
            Operation::Read { .. } => DeviceRequest::Read { from: at },
            Operation::FetchAdd { add, .. } => {
                DeviceRequest::Atomic { word: at, operation: Atomic::FetchAdd(add) }
            }
            Operation::CompareSwap { compare, swap, .. } => {
                let operation = Atomic::CompareSwap { compare, swap };
                DeviceRequest::Atomic { word: at, operation }
            }
            _ => DeviceRequest::Write { to: at },
        });
        if named.is_err() {
            return self.break_off(out);
        }
        // Also where the bytes come later, and no piece has been named.
        out.len = part as usize;
        sending.offset += part;
        if sending.offset == sending.total {
            self.sending = None;
        }
        self.staged += usize::from(staged);
        true
    }
}
