//! A queue pair whose queues the CPU, streams and kernels all reach: entries are *prepared* in the send queue and then
//! *rung* from any of the three.
//!
//! This is the posting and polling side and knows no NIC: whichever [provider](Provider) made the queue pair reads the
//! same bytes.

use std::fmt;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::address::Address;
use super::completion_queue::CompletionReader;
use super::error::{Error, Result};
use super::options::{CompletionMode, Posters, QueuePairOptions};
use super::provider::Provider;
use super::queue_memory::{DeviceQueuePair, QueueMemory};
use super::wire::WireKind;
use super::words::Words;
use crate::cuda::device::lock;
use crate::deadline::Deadline;
use crate::device::Device;
use crate::wqe::{
    Completion, CompletionKind, DataSegment, DoorbellRecord, Entry, ReceiveRing, SendRing,
    Syndrome, WorkRequest,
};

/// How long [`QueuePair::post`] waits for entries before its own to be rung.
const RING_PATIENCE: Duration = Duration::from_secs(10);

/// An entry that stands in the send queue and has not been rung.
///
/// Entries are rung in the order in which they were prepared, each exactly once; a range of several that were prepared
/// one after the other is rung at once ([`Prepared::and`]).
///
/// See [`Trigger`](super::Trigger) for an example.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an entry that is never rung holds up all after it"]
pub struct Prepared {
    blocks: Range<u64>,
    last: u64,
}

impl Prepared {
    /// Position of the (last) entry, for [`QueuePair::wait`]: its first block, counted from 0 and never wrapped.
    pub fn position(&self) -> u64 {
        self.last
    }

    /// Both at once, if `next` was prepared directly after.
    ///
    /// # Errors
    /// Gives both back if other entries lie between them.
    pub fn and(self, next: Prepared) -> Result<Prepared, (Prepared, Prepared)> {
        if self.blocks.end != next.blocks.start {
            return Err((self, next));
        }
        Ok(Prepared { blocks: self.blocks.start..next.blocks.end, last: next.last })
    }

    /// The basic blocks of the entries, counted from 0 and never wrapped: what `mp::ring` of `mp/qp.cuh` takes, for a
    /// kernel to ring them. They are the kernel's then: ring them nowhere else.
    pub fn blocks(&self) -> Range<u64> {
        self.blocks.clone()
    }
}

/// A queue pair of a NIC. Posting and polling may come from several threads; each call is one unit.
///
/// Dropping it answers what its peer is waiting for, as far as that is quickly done, and closes the connection; requests
/// of its own that are not complete are given up.
///
/// See [`soft`](super::soft) for an example.
pub struct QueuePair {
    // Dropped first: the NIC leaves the memory alone then.
    provider: Box<dyn Provider>,
    qpn: u32,
    device: Device,
    memory: QueueMemory,
    posters: Posters,
    pub(super) send: Mutex<SendSide>,
    receive: Mutex<ReceiveSide>,
}

pub(super) struct SendSide {
    ring: SendRing<Words>,
    entry: Entry,
    completions: CompletionReader,
    /// Who rang last, and up to where: a stream that rings after itself need not wait for itself.
    pub last_stream: Option<(String, u64)>,
    /// The error that ended the queue, and the position before which all is complete.
    failure: Option<(Completion, u64)>,
}

struct ReceiveSide {
    ring: ReceiveRing<Words>,
    posted: u64,
    completions: CompletionReader,
}

impl QueuePair {
    pub(crate) fn new(
        qpn: u32,
        device: &Device,
        options: &QueuePairOptions,
        memory: QueueMemory,
        provider: Box<dyn Provider>,
    ) -> Result<QueuePair> {
        let send = SendSide {
            ring: SendRing::new(memory.send.clone())?,
            entry: Entry::new(),
            completions: CompletionReader::new(memory.send_completions.clone()),
            last_stream: None,
            failure: None,
        };
        let receive = ReceiveSide {
            ring: ReceiveRing::new(memory.receive.clone(), options.receive_segments)?,
            posted: 0,
            completions: CompletionReader::new(memory.receive_completions.clone()),
        };
        Ok(QueuePair {
            provider,
            qpn,
            device: device.clone(),
            memory,
            posters: options.posters,
            send: Mutex::new(send),
            receive: Mutex::new(receive),
        })
    }

    /// Where peers find it.
    pub fn address(&self) -> &Address {
        self.provider.address()
    }

    /// Connects it to the queue pair at `peer`, over the wire that both sides choose by themselves. Returns at once; the
    /// peer connects, too, and requests that are posted before it has done so wait for it, at most the transport timeout.
    ///
    /// # Errors
    /// [`Error::Connect`] if the two cannot be connected; what an adapter says.
    pub fn connect(&self, peer: &Address) -> Result<()> {
        self.provider.connect(peer, None)
    }

    /// As [`QueuePair::connect`] over a given wire, which the peer must choose, too.
    ///
    /// # Errors
    /// As [`QueuePair::connect`]; [`Error::Connect`] if the NIC has no such wire.
    pub fn connect_over(&self, peer: &Address, wire: WireKind) -> Result<()> {
        self.provider.connect(peer, Some(wire))
    }

    /// Waits until the peer has connected, too, as far as the NIC can tell.
    ///
    /// # Errors
    /// [`Error::Lost`] if it never will; [`Error::Timeout`].
    pub fn wait_connected(&self, deadline: Deadline) -> Result<()> {
        let connected = deadline.poll(|| {
            if self.provider.is_connected() {
                return Some(Ok(()));
            }
            self.lost().map(|why| Err(Error::Lost { qpn: self.qpn, why }))
        });
        connected.unwrap_or_else(|| {
            Err(Error::Timeout {
                qpn: self.qpn,
                what: "connecting".into(),
                after: deadline.timeout(),
                detail: String::new(),
            })
        })
    }

    /// Why the peer cannot be reached any more, if so.
    pub fn lost(&self) -> Option<String> {
        self.provider.lost()
    }

    /// Its number (24 bits).
    pub fn qpn(&self) -> u32 {
        self.qpn
    }

    /// The device whose kernels and streams reach its queues.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// What a kernel of its device needs to post to the send queue and to wait for completions (`mp/qp.cuh`).
    ///
    /// The memory stays while the queue pair lives. Ringing what is prepared may come from everywhere at once; but a
    /// GPU and the CPU prepare in turns: while a kernel may post entries of its own, nothing is prepared here, unless
    /// the link between them has native atomics.
    ///
    /// # Errors
    /// If the send completions are not collapsed: kernels read no ring.
    pub fn device_view(&self) -> Result<DeviceQueuePair> {
        self.memory.view(self.qpn)?.ok_or_else(|| Error::Option {
            option: "send_completions",
            value: "Ring".into(),
            expected: "kernels need CompletionMode::Collapsed",
        })
    }

    /// Writes the entry of `request` into the send queue, without telling anybody: its queue pair number and index are
    /// set here. Where the request's buffers are may be read until it completes; inline data are copied now.
    ///
    /// # Errors
    /// [`Error::Full`] while the queue has no room; a request that does not fit the format; [`Error::KernelsOnly`].
    pub fn prepare(&self, request: &WorkRequest<'_>) -> Result<Prepared> {
        self.is_for_the_cpu()?;
        let mut send = lock(&self.send);
        let (reserved, size) = (self.memory.reserved(), self.memory.send_blocks());
        loop {
            let begin = reserved.load(Ordering::Acquire);
            let request = WorkRequest { qpn: self.qpn, index: begin as u16, ..*request };
            send.entry.encode(&request)?;
            let end = begin + send.entry.blocks() as u64;
            if end - self.memory.completed().load(Ordering::Acquire) > size {
                self.learn_progress(&mut send)?;
                let used = begin - self.memory.completed().load(Ordering::Acquire);
                if used + (end - begin) > size {
                    return Err(Error::Full { queue: "send", qpn: self.qpn, used, size });
                }
            }
            if reserved.compare_exchange(begin, end, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                continue; // A kernel reserved meanwhile.
            }
            let SendSide { ring, entry, .. } = &mut *send;
            ring.store(entry)?;
            return Ok(Prepared { blocks: begin..end, last: begin });
        }
    }

    fn is_for_the_cpu(&self) -> Result<()> {
        match self.posters {
            Posters::All => Ok(()),
            Posters::Kernels => {
                Err(Error::KernelsOnly { qpn: self.qpn, device: self.device.to_string() })
            }
        }
    }

    /// Basic blocks of 64 bytes that can be prepared now.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn room(&self) -> Result<u64> {
        self.check()?;
        let reserved = self.memory.reserved().load(Ordering::Acquire);
        let used = reserved.saturating_sub(self.memory.completed().load(Ordering::Acquire));
        Ok(self.memory.send_blocks().saturating_sub(used))
    }

    /// Whether everything that was prepared is complete.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn is_idle(&self) -> Result<bool> {
        self.check_as_of(false)?;
        let reserved = self.memory.reserved().load(Ordering::Acquire);
        let completed = self.memory.completed().load(Ordering::Acquire);
        let Some(last) = completed.checked_sub(1).filter(|_| completed < reserved) else {
            return Ok(completed >= reserved);
        };
        // A completion tells an entry's first block: the last entry may have more.
        Ok(last + self.memory.entry_blocks(last)? == reserved)
    }

    /// Whether requests can still complete. Takes no completion of a collapsed queue from anybody; of a ring it sees
    /// only what others have polled, of a queue in a GPU's memory what was so within the last millisecond.
    ///
    /// # Errors
    /// [`Error::Failed`] with the first failure of the queue; [`Error::Stopped`].
    pub fn check(&self) -> Result<()> {
        self.check_as_of(true)
    }

    /// As [`check`](Self::check), as of now or of lately.
    fn check_as_of(&self, lately: bool) -> Result<()> {
        let mut send = lock(&self.send);
        self.memory.look(lately)?;
        self.learn_progress(&mut send)?;
        match send.failure {
            Some((failure, _)) => Err(self.failed("request", failure)),
            None => self.provider.stopped().map_or(Ok(()), Err),
        }
    }

    /// Whether the entry at `position` is complete; as [`wait`](Self::wait) without waiting.
    ///
    /// # Errors
    /// As [`wait`](Self::wait), but never a timeout.
    pub fn is_complete(&self, position: u64) -> Result<bool> {
        self.look(position).map_or(Ok(false), |outcome| outcome.map(|()| true))
    }

    /// In a collapsed queue the index can be looked at without taking a completion from anybody.
    fn learn_progress(&self, send: &mut SendSide) -> Result<()> {
        if self.memory.send_completions.mode == CompletionMode::Collapsed {
            self.take_completion(send)?;
        }
        Ok(())
    }

    /// Rings from the CPU: everything prepared up to here becomes the NIC's.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`] if entries prepared before are not rung within `deadline`.
    pub fn ring(&self, prepared: Prepared, deadline: Deadline) -> Result<()> {
        self.ring_with(prepared, deadline, true)
    }

    /// As [`ring`](Self::ring), for what nobody waits for yet: a NIC that a thread of the CPU drives may send it together with
    /// what is rung next, and otherwise within some 100 µs.
    ///
    /// # Errors
    /// As [`ring`](Self::ring).
    pub fn ring_along(&self, prepared: Prepared, deadline: Deadline) -> Result<()> {
        self.ring_with(prepared, deadline, false)
    }

    fn ring_with(&self, prepared: Prepared, deadline: Deadline, hurry: bool) -> Result<()> {
        let Range { start, end } = prepared.blocks;
        let published = self.memory.published();
        if deadline.poll(|| (published.load(Ordering::Acquire) == start).then_some(())).is_none() {
            return Err(Error::OutOfOrder {
                qpn: self.qpn,
                begin: start,
                published: published.load(Ordering::Acquire),
                after: deadline.timeout(),
            });
        }
        let record = u32::from_ne_bytes(DoorbellRecord::word(end as u16));
        // Entries before record, record before doorbell: each store releases what came before it.
        self.memory.send_record().store(record, Ordering::Release);
        self.memory.doorbell().store(self.doorbell_value(end), Ordering::Release);
        published.store(end, Ordering::Release);
        self.provider.rung(hurry);
        Ok(())
    }

    /// The value of the doorbell that says: filled up to, excluding, `next`.
    pub(super) fn doorbell_value(&self, next: u64) -> u64 {
        let doorbell = crate::wqe::Doorbell { qpn: self.qpn, index: next as u16 };
        u64::from_ne_bytes(doorbell.to_bytes())
    }

    pub(super) fn memory(&self) -> &QueueMemory {
        &self.memory
    }

    /// Prepares and rings from the CPU. Returns the position for [`QueuePair::wait`].
    ///
    /// # Errors
    /// As [`QueuePair::prepare`] and [`QueuePair::ring`].
    pub fn post(&self, request: &WorkRequest<'_>) -> Result<u64> {
        let prepared = self.prepare(request)?;
        let position = prepared.position();
        self.ring(prepared, Deadline::after(RING_PATIENCE))?;
        Ok(position)
    }

    /// Posts a receive: the next message fills these segments in order. Returns its number, whose low 16 bits its
    /// completion carries as index.
    ///
    /// # Errors
    /// [`Error::Full`]; more segments than the queue was made for; [`Error::KernelsOnly`].
    pub fn receive(&self, segments: &[DataSegment]) -> Result<u64> {
        self.is_for_the_cpu()?;
        let mut receive = lock(&self.receive);
        let used = receive.posted - receive.completions.progress();
        let size = self.memory.receive_entries();
        if used >= size {
            return Err(Error::Full { queue: "receive", qpn: self.qpn, used, size });
        }
        let number = receive.posted;
        receive.ring.store(number as u16, segments)?;
        receive.posted += 1;
        let record = u32::from_ne_bytes(DoorbellRecord::word(receive.posted as u16));
        self.memory.receive_record().store(record, Ordering::Release);
        Ok(number)
    }

    /// The next completion of the send queue; of a collapsed queue the latest, if it is new. An error is a completion
    /// here, too.
    ///
    /// # Errors
    /// If the completion queue holds what is no completion.
    pub fn poll_send(&self) -> Result<Option<Completion>> {
        self.poll_into(&mut lock(&self.send))
    }

    fn poll_into(&self, send: &mut SendSide) -> Result<Option<Completion>> {
        self.memory.look(false)?;
        self.take_completion(send)
    }

    fn take_completion(&self, send: &mut SendSide) -> Result<Option<Completion>> {
        // A kernel may have seen completions that this reader has not: their indices have 16 bits.
        send.completions.catch_up(self.memory.completed().load(Ordering::Acquire));
        let polled = send.completions.poll();
        let completion = polled.map_err(|source| Error::Completion { qpn: self.qpn, source })?;
        if let Some(completion) = completion {
            self.memory.completed().fetch_max(send.completions.progress(), Ordering::AcqRel);
            if matches!(completion.kind, CompletionKind::Error { .. }) {
                // In a ring the error itself is the last that has come.
                let itself = u64::from(self.memory.send_completions.mode == CompletionMode::Ring);
                let complete = send.completions.progress() - itself;
                send.failure.get_or_insert((completion, complete));
            }
        }
        Ok(completion)
    }

    /// The next completion of the receive queue.
    ///
    /// # Errors
    /// If the completion queue holds what is no completion.
    pub fn poll_receive(&self) -> Result<Option<Completion>> {
        let polled = lock(&self.receive).completions.poll();
        polled.map_err(|source| Error::Completion { qpn: self.qpn, source })
    }

    /// Waits until the entry at `position` is complete, taking completions off the queue. What it read is then there,
    /// and its buffers are free.
    ///
    /// # Errors
    /// [`Error::Failed`] if a request failed first, with the first failure of the queue that was seen (in a collapsed queue
    /// perhaps a flush, which was its consequence); [`Error::Timeout`];
    /// [`Error::Lost`] or [`Error::Stopped`] if it can never complete.
    pub fn wait(&self, position: u64, deadline: Deadline) -> Result<()> {
        let waited = deadline.poll(|| self.look(position));
        waited.unwrap_or_else(|| {
            Err(Error::Timeout {
                qpn: self.qpn,
                what: format!("the request at {position}"),
                after: deadline.timeout(),
                detail: self.detail(),
            })
        })
    }

    /// How the entry at `position` came out, if that is known.
    fn look(&self, position: u64) -> Option<Result<()>> {
        let mut send = lock(&self.send);
        loop {
            if send.failure.is_none() && send.completions.progress() > position {
                return Some(Ok(()));
            }
            match self.poll_into(&mut send) {
                Err(error) => return Some(Err(error)),
                Ok(_) if send.failure.is_some() => {}
                Ok(Some(_)) => continue,
                Ok(None) => {
                    drop(send);
                    self.provider.progress();
                    return self.provider.stopped().map(Err);
                }
            }
            let (failure, complete) = send.failure?;
            return Some(if position < complete {
                Ok(())
            } else {
                Err(self.failed("request", failure))
            });
        }
    }

    /// Waits for the next receive to be filled.
    ///
    /// # Errors
    /// [`Error::Failed`] if it failed; [`Error::Timeout`]; [`Error::Stopped`].
    pub fn wait_receive(&self, deadline: Deadline) -> Result<Completion> {
        let waited = deadline.poll(|| match self.poll_receive() {
            Ok(Some(completion)) => Some(match completion.kind {
                CompletionKind::Error { .. } => Err(self.failed("receive", completion)),
                _ => Ok(completion),
            }),
            Ok(None) => {
                self.provider.progress();
                self.provider.stopped().map(Err)
            }
            Err(error) => Some(Err(error)),
        });
        waited.unwrap_or_else(|| {
            Err(Error::Timeout {
                qpn: self.qpn,
                what: "a receive".into(),
                after: deadline.timeout(),
                detail: self.detail(),
            })
        })
    }

    /// What is known about why requests fail, for errors: begins with a separator, or is empty.
    fn detail(&self) -> String {
        self.lost().map_or_else(String::new, |why| format!(" (the peer was lost: {why})"))
    }

    fn failed(&self, what: &'static str, completion: Completion) -> Error {
        let CompletionKind::Error { syndrome, .. } = completion.kind else {
            return Error::Stopped;
        };
        let syndrome = match syndrome {
            Syndrome::Flushed => self.provider.cause().unwrap_or(syndrome),
            itself => itself,
        };
        Error::Failed { what, syndrome, completion, detail: self.detail() }
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        f.debug_struct("QueuePair")
            .field("qpn", &format_args!("{:#x}", self.qpn))
            .field("device", &self.device)
            .field("reserved", &load(self.memory.reserved()))
            .field("published", &load(self.memory.published()))
            .field("completed", &load(self.memory.completed()))
            .finish()
    }
}
