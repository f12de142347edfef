//! The wire between hosts with RDMA devices: a reliable connection of two queue pairs, which carries messages of whole
//! frames. A message goes into a receive that all connections of the NIC share ([`RdmaPort`]).
//!
//! Each side may have [`WINDOW`] messages under way that the other has not taken. The immediate of a message says how many
//! its sender has taken so far; a side that has taken half a window and has nothing to say sends a message of no bytes, for
//! which the last place of the window is kept. A side that may send nothing else and waits for such word sends one in the
//! place before, once: if the peer is gone, the device then says so.
//!
//! # How a connection begins
//! A message to a queue pair that is not ready yet is lost, and the device waits for long before it sends it again, as it
//! should when the connection is up. So a side that is ready knocks: it sends its hello as a datagram, again and again until
//! it hears something. Who hears the other knock, or its hello, sends its own hello over the connection, as over TCP; nothing
//! else is sent before, or looked at.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::frame::{Frame, HEADER};
use super::greeting::Greeting;
use super::{Cut, PeerProcess, Sink, Wire};
use crate::nic::soft::rdma::{MESSAGE, Message, RdmaPort, WINDOW};
use crate::nic::soft::state::{Outgoing, Payload, Violation};
use crate::verbs::{
    Access, Completion, CompletionQueue, DatagramRoute, Done, Endpoint, Error, Init, QueuePair,
    ReadyToSend, Result, RetryPolicy, SendOperation, SendRequest, Status,
};

/// Messages taken in one go.
const BATCH: usize = 4;
/// After how long a side knocks again; twice as long each time, up to a limit.
const KNOCK_AGAIN: Duration = Duration::from_millis(10);
const MOST_DOUBLINGS: u32 = 5;
/// How often the device sends again. One more would be the most, but to rdma_rxe that means for ever.
const RETRIES: u8 = 6;
/// Messages with bytes that may be under way.
const WITH_BYTES: usize = WINDOW - 2;
/// Waits of the device for a receive of the peer: for ever, the peer's silence has its own limit.
const NOT_READY_RETRIES: u8 = 7;

/// This side of a connection, before the peer is known.
pub(crate) struct RdmaEnd {
    port: Arc<RdmaPort>,
    pair: QueuePair<Init>,
    completions: Arc<CompletionQueue>,
}

impl RdmaEnd {
    pub fn new(port: &Arc<RdmaPort>) -> Result<RdmaEnd> {
        let (pair, completions) = port.queue_pair()?;
        let pair = pair.init(port.port(), Access::LOCAL)?;
        Ok(RdmaEnd { port: port.clone(), pair, completions })
    }

    /// Where it is found.
    pub fn address(&self) -> RdmaAddress {
        let datagrams = self.port.datagrams().endpoint().qp_num;
        RdmaAddress { endpoint: self.pair.endpoint(), datagrams }
    }
}

/// Where an end is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RdmaAddress {
    pub endpoint: Endpoint,
    /// The queue pair for datagrams at the same port.
    datagrams: u32,
}

/// A connection.
pub(crate) struct RdmaWire {
    port: Arc<RdmaPort>,
    /// There until the end.
    pair: Option<QueuePair<ReadyToSend>>,
    completions: Arc<CompletionQueue>,
    /// Where to knock; nothing once this side has said hello.
    knocking: Option<Knocking>,
    process: Option<PeerProcess>,
    greeting: Greeting,
    expected: Greeting,
    heard: bool,
    /// The message that is put together, and its bytes so far.
    gathered: Option<(Message, usize)>,
    /// Memory for the next one.
    spare: Option<Message>,
    /// Sent and not acknowledged by the peer's device, the oldest first.
    under_way: VecDeque<Option<Message>>,
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

/// How often a side has knocked, and when it does so again.
struct Knocking {
    route: DatagramRoute,
    times: u32,
    again: Instant,
}

impl RdmaWire {
    /// Connects `end` to the queue pair at `peer`: `greeting` is said, `expected` must be heard. A peer that is silent for
    /// `patience` is lost; `process` is it, if it is one of this machine.
    pub fn new(
        end: RdmaEnd,
        peer: RdmaAddress,
        (greeting, expected): (Greeting, Greeting),
        patience: Duration,
        process: Option<PeerProcess>,
    ) -> Result<RdmaWire> {
        let RdmaEnd { port, pair, completions } = end;
        // All repetitions together: the device rounds up to a power of two.
        let timeout = patience / (2 * (u32::from(RETRIES) + 1));
        let retries =
            RetryPolicy { timeout, retries: RETRIES, not_ready_retries: NOT_READY_RETRIES };
        let RdmaAddress { endpoint, datagrams } = peer;
        let route = port.datagrams().route(&Endpoint { qp_num: datagrams, ..endpoint })?;
        let pair = pair.connect(&endpoint)?.ready_to_send(&retries)?;
        Ok(RdmaWire {
            port,
            pair: Some(pair),
            completions,
            knocking: Some(Knocking { route, times: 0, again: Instant::now() }),
            process,
            greeting,
            expected,
            heard: false,
            gathered: None,
            spare: None,
            under_way: VecDeque::with_capacity(WINDOW),
            sent: 0,
            taken_by_peer: 0,
            arrived: 0,
            taken: 0,
            told: 0,
            inbox: VecDeque::with_capacity(WINDOW),
            ends: Vec::with_capacity(2 * WINDOW),
            failed: None,
        })
    }

    /// Knocks if it is time, and says hello once the peer is there.
    fn approach(&mut self) -> Result<()> {
        let Some(Knocking { route, times, again }) = &mut self.knocking else { return Ok(()) };
        if self.heard || self.port.has_knocked(&self.expected)? {
            self.knocking = None;
            let hello = self.greeting.hello();
            return self.post(None, SendOperation::SendInline { data: &hello, imm: Some(0) });
        }
        let now = Instant::now();
        if now >= *again {
            // Of too many under way some are lost, as any may be.
            if let Err(error) = self.port.datagrams().send(route, &self.greeting.hello()) {
                tracing::debug!("knocking: {error}");
            }
            *again = now + KNOCK_AGAIN * (1 << (*times).min(MOST_DOUBLINGS));
            *times += 1;
        }
        Ok(())
    }

    fn post(&mut self, held: Option<Message>, operation: SendOperation<'_>) -> Result<()> {
        let Some(pair) = &self.pair else { return Ok(()) };
        pair.post(&SendRequest::new(0, operation))?;
        self.under_way.push_back(held);
        self.sent = self.sent.wrapping_add(1);
        Ok(())
    }

    /// Messages that the peer has not taken, or its device not acknowledged.
    fn in_window(&self) -> usize {
        let not_taken = self.sent.wrapping_sub(self.taken_by_peer) as usize;
        not_taken.max(self.under_way.len())
    }

    /// Messages with bytes that may be sent.
    fn window(&self) -> usize {
        WITH_BYTES.saturating_sub(self.in_window())
    }

    /// Looks what has become of requests, and what has arrived. True if there was something.
    fn poll(&mut self) -> std::result::Result<bool, Cut> {
        let mut ends = std::mem::take(&mut self.ends);
        let polled = self.completions.poll(&mut ends).map_err(|error| Cut(error.to_string()));
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
            Ok(Done::Sent) => {
                if let Some(Some(message)) = self.under_way.pop_front() {
                    self.port.give_back(message);
                }
                Ok(())
            }
            Ok(_) => {
                self.give_back(end);
                Err(Violation::Other("something that is no message").into())
            }
            Err(failure) => {
                self.give_back(end);
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

    /// The receive of a completion that brought no message.
    fn give_back(&self, end: &Completion) {
        if end.is_receive()
            && let Err(error) = self.port.post_again(end.id)
        {
            tracing::warn!("a receive of the software NIC is lost: {error}");
        }
    }

    /// Hands over the frames of the oldest message that has arrived. False if there is none.
    fn take_message(
        &mut self,
        take: &mut dyn FnMut(Frame, Payload<'_>) -> std::result::Result<(), Violation>,
    ) -> std::result::Result<bool, Cut> {
        let Some((receive, len)) = self.inbox.pop_front() else { return Ok(false) };
        let taken = match self.port.arrived(receive) {
            // SAFETY: the device has written so many bytes there, and writes no more until it is posted again.
            Some(message) => unsafe {
                std::slice::from_raw_parts(message.pointer, len.min(MESSAGE))
            },
            None => &[],
        };
        let outcome = each_frame(taken, take);
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
        self.post(Some(message), SendOperation::Send { from: &from, imm })?;
        Ok(true)
    }
}

/// Calls `take` for every frame of a message.
pub(crate) fn each_frame(
    mut bytes: &[u8],
    take: &mut dyn FnMut(Frame, Payload<'_>) -> std::result::Result<(), Violation>,
) -> std::result::Result<(), Violation> {
    while !bytes.is_empty() {
        let (frame, end) =
            Frame::first(bytes)?.ok_or(Violation::Other("a message that ends within a frame"))?;
        take(frame, Payload::of(&bytes[HEADER..end]))?;
        bytes = &bytes[end..];
    }
    Ok(())
}

fn failed(error: Error) -> Cut {
    Cut(error.to_string())
}

impl Wire for RdmaWire {
    fn poll_up(&mut self) -> std::result::Result<bool, Cut> {
        self.poll()?;
        if !self.heard && !self.inbox.is_empty() {
            let (expected, mut heard) = (self.expected, false);
            self.take_message(&mut |frame, _| {
                heard = true;
                expected.hear(frame)
            })?;
            if !heard {
                return Err(Violation::Other("nothing before its hello").into());
            }
            self.heard = true;
        }
        self.approach().map_err(failed)?;
        match &self.failed {
            Some(cut) if self.inbox.is_empty() => Err(cut.clone()),
            _ => Ok(self.heard && self.knocking.is_none()),
        }
    }

    fn max_payload(&self) -> usize {
        MESSAGE - HEADER
    }

    fn has_room(&mut self) -> bool {
        // What is gathered may have to go first.
        if self.failed.is_some() || self.window() <= usize::from(self.gathered.is_some()) {
            return false;
        }
        if self.spare.is_none() {
            self.spare = self.port.take();
        }
        self.spare.is_some()
    }

    fn send(&mut self, out: &mut Outgoing) -> std::result::Result<(), Cut> {
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
        self.post(None, nothing).map_err(failed)?;
        Ok(true)
    }

    fn is_flushed(&self) -> bool {
        self.gathered.is_none() && self.under_way.is_empty()
    }

    fn receive(&mut self, sink: &mut Sink<'_>) -> std::result::Result<bool, Cut> {
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
        self.process.as_ref().is_none_or(|process| !process.runs())
    }
}

impl Drop for RdmaWire {
    fn drop(&mut self) {
        for (receive, _) in self.inbox.drain(..) {
            if let Err(error) = self.port.post_again(receive) {
                tracing::warn!("a receive of the software NIC is lost: {error}");
            }
        }
        let held = self.gathered.take().map(|(message, _)| message).into_iter();
        let sent = held.chain(self.spare.take()).chain(self.under_way.drain(..).flatten());
        let sent = sent.collect();
        if let Some(pair) = self.pair.take() {
            self.port.bury(pair, self.completions.clone(), sent);
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
        let mut take = |frame, payload: Payload<'_>| {
            seen.push((frame, payload.to_vec()));
            Ok(())
        };
        assert_eq!(each_frame(&message, &mut take), Ok(()));
        let expected = [(1, &b"one"[..]), (2, b""), (3, b"three")];
        assert_eq!(seen, expected.map(|(psn, bytes)| (Frame::More { psn }, bytes.to_vec())));
        let cut = Violation::Other("a message that ends within a frame");
        for len in (0..message.len()).filter(|len| ![0, 51, 99].contains(len)) {
            assert_eq!(each_frame(&message[..len], &mut |_, _| Ok(())), Err(cut), "{len}");
        }
    }
}
