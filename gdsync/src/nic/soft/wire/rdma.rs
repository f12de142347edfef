//! The wire between hosts with RDMA devices: a reliable connection of two queue pairs, which carries messages of whole
//! frames. A message goes into a receive that all connections of the NIC share ([`RdmaPort`]).
//!
//! Each side may have [`WINDOW`] messages under way that the other has not taken. The immediate of a message says how many
//! its sender has taken so far; a side that has taken half a window and has nothing to say sends a message of no bytes, for
//! which the last place of the window is kept. A side that may send nothing else and waits for such word sends one in the
//! place before, once: if the peer is gone, the device then says so.
//!
//! # What the device does itself
//! Between messages go requests on registered memory ([`DeviceRequest`]). The connection keeps the order of both, so what a
//! request writes is there before a message behind it arrives. Each is reported in its turn; what a read brings into memory of
//! the pool is handed over with the report.
//!
//! How a connection begins is `beginning.rs`.

mod beginning;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::frame::{Frame, HEADER};
use super::greeting::Greeting;
use super::{Cut, Each, PeerProcess, Sink, Wire};
use crate::nic::soft::keys::Atomic;
use crate::nic::soft::rdma::{MESSAGE, Message, REQUESTS, RdmaPort, WINDOW};
use crate::nic::soft::state::{
    CHUNKS, CarriedOut, DeviceRequest, DeviceUse, Outgoing, Payload, Piece, Violation,
};
use crate::verbs::{
    Completion, CompletionQueue, Done, Endpoint, Error, QueuePair, QueueSide, ReadyToSend, Result,
    SendOperation, SendRequest, Status,
};
use crate::wqe::Syndrome;
use beginning::{Knocking, Stage};

/// Messages taken in one go.
const BATCH: usize = 4;
/// Messages with bytes that may be under way.
const WITH_BYTES: usize = WINDOW - 2;
/// A connection.
pub(crate) struct RdmaWire {
    port: Arc<RdmaPort>,
    /// The peer's port.
    peer: Endpoint,
    patience: Duration,
    stage: Stage,
    /// Of the queue pair of the device, once there is one.
    completions: Option<Arc<CompletionQueue>>,
    /// How the peer is told that this side is there, until both know it.
    knocking: Option<Knocking>,
    process: Option<PeerProcess>,
    greeting: Greeting,
    expected: Greeting,
    heard: bool,
    said: bool,
    /// The message that is put together, and its bytes so far.
    gathered: Option<(Message, usize)>,
    /// Memory for the next one.
    spare: Option<Message>,
    /// Given to the device and not reported, the oldest first; and the requests among them.
    under_way: VecDeque<UnderWay>,
    requests: usize,
    /// Requests that have ended and were not asked for, the oldest first.
    ended: VecDeque<Ended>,
    /// Chunks that nothing uses.
    chunks: Vec<Message>,
    has_chunks: bool,
    /// The chunk whose bytes were handed over last.
    shown: Option<Message>,
    /// Messages sent, and how many of them the peer has taken.
    sent: u32,
    taken_by_peer: u32,
    /// Messages arrived, taken, and how many of those the peer knows of.
    arrived: u32,
    taken: u32,
    told: u32,
    /// Arrived and not taken: receives and bytes.
    inbox: VecDeque<(u64, usize)>,
    ends: Vec<Completion>,
    /// A request or a receive has failed: the connection is over once what arrived before is taken.
    failed: Option<Cut>,
}

/// What the device was given.
enum UnderWay {
    Message(Option<Message>),
    Request(Request),
}

/// A request: the bytes of this side's memory in it, its chunk of the pool, and whether that is to be brought something.
struct Request {
    len: usize,
    chunk: Option<Message>,
    brings: bool,
}

struct Ended {
    request: Request,
    outcome: std::result::Result<(), Syndrome>,
}

impl RdmaWire {
    /// A connection to a queue pair at the port `peer`: `greeting` is said, `expected` must be heard. A peer that is silent
    /// for `patience` is lost; `process` is it, if it is one of this machine.
    pub fn new(
        port: &Arc<RdmaPort>,
        peer: Endpoint,
        (greeting, expected): (Greeting, Greeting),
        patience: Duration,
        process: Option<PeerProcess>,
    ) -> Result<RdmaWire> {
        let (ours, theirs) = (port.endpoint().link_layer, peer.link_layer);
        if ours != theirs {
            return Err(Error::LinkLayer { device: port.name().to_owned(), ours, theirs });
        }
        Ok(RdmaWire {
            port: port.clone(),
            peer,
            patience,
            stage: Stage::Idle,
            completions: None,
            knocking: None,
            process,
            greeting,
            expected,
            heard: false,
            said: false,
            gathered: None,
            spare: None,
            under_way: VecDeque::new(),
            requests: 0,
            ended: VecDeque::new(),
            chunks: Vec::new(),
            has_chunks: false,
            shown: None,
            sent: 0,
            taken_by_peer: 0,
            arrived: 0,
            taken: 0,
            told: 0,
            inbox: VecDeque::new(),
            ends: Vec::new(),
            failed: None,
        })
    }

    fn pair(&self) -> Option<&QueuePair<ReadyToSend>> {
        match &self.stage {
            Stage::Connected(pair) => Some(pair),
            _ => None,
        }
    }

    fn post_message(&mut self, held: Option<Message>, operation: SendOperation<'_>) -> Result<()> {
        let Some(pair) = self.pair() else { return Ok(()) };
        pair.post(&SendRequest::new(0, operation))?;
        self.under_way.push_back(UnderWay::Message(held));
        self.sent = self.sent.wrapping_add(1);
        Ok(())
    }

    /// Gives the device a request, whose memory here is the payload of `out`.
    fn post_request(&mut self, request: DeviceRequest, out: &Outgoing) -> Result<()> {
        let mut chunk = None;
        let mut pieces = Vec::new();
        if out.staged {
            if !self.has_chunks {
                self.chunks = self.port.chunks()?;
                self.has_chunks = true;
            }
            // As many are under way as there are, at most.
            let free = self.chunks.pop().ok_or(Error::Full { depth: CHUNKS as u32 })?;
            // SAFETY: a chunk is as large as a staged part, and this one nobody's.
            unsafe { out.copy_payload(free.pointer) };
            pieces.push(free.slice(out.len)?);
            chunk = Some(free);
        } else {
            pieces.extend(out.pieces.iter().filter_map(Piece::slice));
        }
        let Some(pair) = self.pair() else { return Ok(()) };
        let one = || pieces.first().ok_or(Error::AtomicResult { length: 0 });
        let operation = match request {
            DeviceRequest::Write { to } if pieces.is_empty() => {
                SendOperation::WriteInline { data: &out.inline, to, imm: None }
            }
            DeviceRequest::Write { to } => SendOperation::Write { from: &pieces, to, imm: None },
            DeviceRequest::Read { from } => SendOperation::Read { into: &pieces, from },
            DeviceRequest::Atomic { word, operation } => match operation {
                Atomic::FetchAdd(add) => SendOperation::FetchAdd { word, add, into: one()? },
                Atomic::CompareSwap { compare, swap } => {
                    SendOperation::CompareSwap { word, compare, swap, into: one()? }
                }
            },
        };
        pair.post(&SendRequest::new(0, operation))?;
        let brings = !matches!(request, DeviceRequest::Write { .. });
        self.under_way.push_back(UnderWay::Request(Request { len: out.len, chunk, brings }));
        self.requests += 1;
        Ok(())
    }

    /// Messages that the peer has not taken, or its device not acknowledged.
    fn in_window(&self) -> usize {
        let not_taken = self.sent.wrapping_sub(self.taken_by_peer) as usize;
        not_taken.max(self.under_way.len() - self.requests)
    }

    /// Messages with bytes that may be sent.
    fn window(&self) -> usize {
        WITH_BYTES.saturating_sub(self.in_window())
    }

    /// Looks what has become of requests, and what has arrived. True if there was something.
    fn poll(&mut self) -> std::result::Result<bool, Cut> {
        let Some(completions) = &self.completions else { return Ok(false) };
        let mut ends = std::mem::take(&mut self.ends);
        let polled = completions.poll(&mut ends).map_err(|error| Cut(error.to_string()));
        let mut outcome = polled.map(|count| count > 0);
        for end in ends.drain(..) {
            // Receives among them are this side's to give back, also after one that failed.
            let noted = self.note(&end);
            if outcome.is_ok() && noted.is_err() {
                outcome = noted.map(|()| true);
            }
        }
        self.ends = ends;
        outcome
    }

    fn note(&mut self, end: &Completion) -> std::result::Result<(), Cut> {
        match end.outcome {
            Ok(Done::Received { length, imm: Some(taken) }) => {
                self.inbox.push_back((end.id, length as usize));
                self.arrived = self.arrived.wrapping_add(1);
                if taken.wrapping_sub(self.taken_by_peer)
                    > self.sent.wrapping_sub(self.taken_by_peer)
                {
                    return Err(Violation::Other("word of messages that were not sent").into());
                }
                self.taken_by_peer = taken;
                if self.arrived.wrapping_sub(self.told) as usize > WINDOW {
                    return Err(Violation::Other("more messages than it may").into());
                }
                Ok(())
            }
            Ok(
                Done::Sent
                | Done::Written
                | Done::Read
                | Done::FetchedAndAdded
                | Done::ComparedAndSwapped,
            ) => {
                self.ended(Ok(()));
                Ok(())
            }
            Ok(_) => {
                self.give_back(end);
                Err(Violation::Other("something that is no message").into())
            }
            Err(failure) => {
                self.give_back(end);
                if failure.side == QueueSide::Send {
                    self.ended(Err(failure.status));
                }
                if self.failed.is_none() {
                    let why = match failure.status {
                        Status::RetryExceeded => "the peer's device does not answer".to_owned(),
                        _ => failure.to_string(),
                    };
                    let trouble = self.port.trouble().map(|trouble| format!("; {trouble}"));
                    self.failed = Some(Cut(format!("{why}{}", trouble.unwrap_or_default())));
                }
                Ok(())
            }
        }
    }

    /// The oldest that the device was given has ended.
    fn ended(&mut self, outcome: std::result::Result<(), Status>) {
        match self.under_way.pop_front() {
            None | Some(UnderWay::Message(None)) => {}
            Some(UnderWay::Message(Some(message))) => self.port.give_back(message),
            Some(UnderWay::Request(request)) => {
                self.requests -= 1;
                // What is not the request's fault is the connection's end.
                match outcome.map_err(fault) {
                    Ok(()) => self.ended.push_back(Ended { request, outcome: Ok(()) }),
                    Err(Some(syndrome)) => {
                        self.ended.push_back(Ended { request, outcome: Err(syndrome) });
                    }
                    Err(None) => {}
                }
            }
        }
    }

    /// The receive of a completion that brought no message.
    fn give_back(&self, end: &Completion) {
        if end.is_receive()
            && let Err(error) = self.port.post_again(end.id)
        {
            tracing::warn!("a receive of the software NIC is lost: {error}");
        }
    }

    /// Hands over the frames of the oldest message that has arrived. False if there is none.
    fn take_message(&mut self, sink: &mut dyn Sink) -> std::result::Result<bool, Cut> {
        let Some((receive, len)) = self.inbox.pop_front() else { return Ok(false) };
        let taken = match self.port.arrived(receive) {
            // SAFETY: the device has written so many bytes there, and writes no more until it is posted again.
            Some(message) => unsafe {
                std::slice::from_raw_parts(message.pointer, len.min(MESSAGE))
            },
            None => &[],
        };
        let outcome = each_frame(taken, sink);
        self.taken = self.taken.wrapping_add(1);
        self.port.post_again(receive).map_err(|error| Cut(error.to_string()))?;
        outcome.map(|()| true).map_err(Cut::from)
    }

    /// Sends what is gathered.
    fn send_gathered(&mut self) -> Result<bool> {
        let Some((message, len)) = self.gathered.take() else { return Ok(false) };
        let imm = Some(self.taken);
        let from = [message.slice(len)?];
        self.told = self.taken;
        self.post_message(Some(message), SendOperation::Send { from: &from, imm })?;
        Ok(true)
    }
}

/// What the failure of a request is to whoever posted it; `None` where the connection has failed. (No request here is
/// malformed: "queue pair operation error" is what rdma_rxe says when its port is down.)
fn fault(status: Status) -> Option<Syndrome> {
    match status {
        Status::LocalLength => Some(Syndrome::LocalLength),
        Status::LocalProtection => Some(Syndrome::LocalProtection),
        Status::BadResponse => Some(Syndrome::BadResponse),
        Status::RemoteInvalidRequest => Some(Syndrome::RemoteInvalidRequest),
        Status::RemoteAccess => Some(Syndrome::RemoteAccess),
        Status::RemoteOperation => Some(Syndrome::RemoteOperation),
        _ => None,
    }
}

/// Hands over every frame of a message.
pub(crate) fn each_frame(
    mut bytes: &[u8],
    sink: &mut dyn Sink,
) -> std::result::Result<(), Violation> {
    while !bytes.is_empty() {
        let (frame, end) =
            Frame::first(bytes)?.ok_or(Violation::Other("a message that ends within a frame"))?;
        sink.take(frame, Payload::of(&bytes[HEADER..end]))?;
        bytes = &bytes[end..];
    }
    Ok(())
}

fn failed(error: Error) -> Cut {
    Cut(error.to_string())
}

impl Wire for RdmaWire {
    fn poll_up(&mut self, wanted: bool) -> std::result::Result<bool, Cut> {
        self.poll()?;
        if !self.heard && !self.inbox.is_empty() {
            let (expected, mut heard) = (self.expected, false);
            self.take_message(&mut Each(|frame, _| {
                heard = true;
                expected.hear(frame)
            }))?;
            if !heard {
                return Err(Violation::Other("nothing before its hello").into());
            }
            self.heard = true;
        }
        self.approach(wanted).map_err(failed)?;
        match &self.failed {
            Some(cut) if self.inbox.is_empty() => Err(cut.clone()),
            _ if self.heard && self.said => {
                self.knocking = None;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn device(&self) -> Option<DeviceUse> {
        self.port.device_use()
    }

    fn carried_out(&mut self) -> Option<CarriedOut<'_>> {
        self.chunks.extend(self.shown.take());
        let Ended { request: Request { len, chunk, brings }, outcome } = self.ended.pop_front()?;
        let staged = chunk.is_some();
        self.shown = chunk;
        let brought = self.shown.as_ref().filter(|_| brings && outcome.is_ok()).map(|chunk| {
            // SAFETY: the device has written so many bytes there; the chunk is used again at the next call.
            unsafe { Payload::new(chunk.pointer, len) }
        });
        Some(CarriedOut { outcome, len, staged, brought })
    }

    fn max_payload(&self) -> usize {
        MESSAGE - HEADER
    }

    fn has_room(&mut self) -> bool {
        // What is gathered may have to go first.
        let is_full =
            self.requests >= REQUESTS || self.window() <= usize::from(self.gathered.is_some());
        if self.failed.is_some() || is_full {
            return false;
        }
        if self.spare.is_none() {
            self.spare = self.port.take();
        }
        self.spare.is_some()
    }

    fn send(&mut self, out: &mut Outgoing) -> std::result::Result<(), Cut> {
        if let Some(request) = out.request {
            return self.post_request(request, out).map_err(failed);
        }
        let len = HEADER + out.len;
        if self.gathered.as_ref().is_some_and(|(_, gathered)| gathered + len > MESSAGE) {
            self.send_gathered().map_err(failed)?;
        }
        let gathered = self.gathered.take().or_else(|| Some((self.spare.take()?, 0)));
        let Some((message, at)) = gathered.filter(|_| len <= MESSAGE) else {
            return Err(Cut(format!("a frame of {len} bytes has no room")));
        };
        let header = out.frame.encode(out.len as u32);
        // SAFETY: the message has room for so much more, and is nobody else's.
        unsafe {
            let to = message.pointer.add(at);
            std::ptr::copy_nonoverlapping(header.as_ptr(), to, HEADER);
            out.copy_payload(to.add(HEADER));
        }
        self.gathered = Some((message, at + len));
        Ok(())
    }

    fn flush(&mut self) -> std::result::Result<bool, Cut> {
        if self.failed.is_some() {
            return Ok(false);
        }
        if self.send_gathered().map_err(failed)? {
            return Ok(true);
        }
        let untold = self.taken.wrapping_sub(self.told) as usize;
        let must_tell = untold >= WINDOW / 2 && self.in_window() < WINDOW;
        let asks = self.in_window() == WITH_BYTES && self.under_way.is_empty();
        if !must_tell && !asks {
            return Ok(false);
        }
        self.told = self.taken;
        let nothing = SendOperation::SendInline { data: &[], imm: Some(self.taken) };
        self.post_message(None, nothing).map_err(failed)?;
        Ok(true)
    }

    fn is_flushed(&self) -> bool {
        self.gathered.is_none() && self.under_way.is_empty()
    }

    fn receive(&mut self, sink: &mut dyn Sink) -> std::result::Result<bool, Cut> {
        let mut moved = self.poll()?;
        for _ in 0..BATCH {
            if !self.take_message(sink)? {
                break;
            }
            moved = true;
        }
        match &self.failed {
            Some(cut) if !moved => Err(cut.clone()),
            _ => Ok(moved),
        }
    }

    fn check_peer(&mut self) -> std::result::Result<(), Cut> {
        self.port.keep_house(Instant::now());
        self.process.as_ref().map_or(Ok(()), PeerProcess::check)
    }

    fn is_lost_by_silence(&self) -> bool {
        // All that may be sent was, also what asks for word, and it has arrived: a peer that has the connection would say so.
        let is_deaf = self.in_window() > WITH_BYTES && self.under_way.is_empty();
        is_deaf || self.process.as_ref().is_none_or(|process| !process.runs())
    }
}

impl Drop for RdmaWire {
    fn drop(&mut self) {
        for (receive, _) in self.inbox.drain(..) {
            if let Err(error) = self.port.post_again(receive) {
                tracing::warn!("a receive of the software NIC is lost: {error}");
            }
        }
        let messages = self.under_way.drain(..).filter_map(|it| match it {
            UnderWay::Message(message) => message,
            UnderWay::Request(_) => None,
        });
        let held = self.gathered.take().map(|(message, _)| message).into_iter();
        let sent = held.chain(self.spare.take()).chain(messages).collect();
        let stage = std::mem::replace(&mut self.stage, Stage::Broken);
        if let (Stage::Connected(pair), Some(completions)) = (stage, self.completions.take()) {
            self.port.bury(pair, completions, sent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_whole_frames_or_refused() {
        let more = |psn: u32, bytes: &[u8]| {
            let mut all = Frame::More { psn }.encode(bytes.len() as u32).to_vec();
            all.extend_from_slice(bytes);
            all
        };
        let message = [more(1, b"one"), more(2, b""), more(3, b"three")].concat();
        let mut seen = Vec::new();
        let mut take = Each(|frame, payload: Payload<'_>| {
            seen.push((frame, payload.to_vec()));
            Ok(())
        });
        assert_eq!(each_frame(&message, &mut take), Ok(()));
        let expected = [(1, &b"one"[..]), (2, b""), (3, b"three")];
        assert_eq!(seen, expected.map(|(psn, bytes)| (Frame::More { psn }, bytes.to_vec())));
        let cut = Violation::Other("a message that ends within a frame");
        for len in (0..message.len()).filter(|len| ![0, 51, 99].contains(len)) {
            assert_eq!(each_frame(&message[..len], &mut Each(|_, _| Ok(()))), Err(cut), "{len}");
        }
    }
}
