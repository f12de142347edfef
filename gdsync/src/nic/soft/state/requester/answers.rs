//! What comes back: the peer's answers, going back into the queue, and completing in order.

use std::time::Instant;

use super::super::outgoing::Payload;
use super::super::{CarriedOut, Context, Violation};
use super::{Answer, FOR_EVER, Flight, Requester};
use crate::nic::memory_region::Access;
use crate::nic::soft::completion::CompletionWriter;
use crate::nic::soft::keys::{EachPiece, KeyError, KeyTable};
use crate::nic::soft::wire::frame::Frame;
use crate::wqe::{Completion, CompletionKind, ErrorSide, Notify, Syndrome, WqeOpcode};

impl Flight {
    /// Calls `piece` for the memory of the next `len` bytes of the answer to a read.
    fn targets(
        &self,
        keys: &KeyTable,
        len: usize,
        piece: &mut EachPiece<'_>,
    ) -> Result<(), KeyError> {
        let (offset, len) = (u64::from(self.received), len as u64);
        keys.for_pieces(&self.scatter, offset, len, Access::LOCAL_WRITE, piece)
    }
}

impl Requester {
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
                if self.sending.as_ref().is_some_and(|sending| sending.psn == psn) {
                    return Err(Violation::Other("an acknowledgement of half a message"));
                }
                self.acknowledge(at + 1);
                self.retried = 0;
            }
            Frame::ReadData { psn } => {
                // After a part that could not be put where it belongs more may be on its way, which is not the peer's fault.
                let failed = |flight: &Flight| {
                    flight.psn == Some(psn) && matches!(flight.state, Answer::Failed(_))
                };
                if self.flights.iter().any(failed) {
                    return Ok(());
                }
                let at = self.flight_of("data of read", psn)?;
                self.acknowledge(at);
                self.take_data(at, cx, payload);
            }
            Frame::AtomicResult { psn, value } => {
                let at = self.flight_of("the result of atomic", psn)?;
                self.acknowledge(at);
                self.take_data(at, cx, Payload::of(&value.to_ne_bytes()));
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
            // The device answers for what it does; its word may come later than that of a frame behind it.
            if self.flights[at].state != Answer::Waiting || self.flights[at].on_device {
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

    pub(super) fn settle(&mut self, at: usize, answer: Answer) {
        let Some(flight) = self.flights.get_mut(at) else { return };
        if flight.state == Answer::Waiting {
            flight.state = answer;
            let (pulls, on_device) = (flight.pulls, flight.on_device);
            self.no_longer_waits(pulls, on_device);
        }
        self.stuck |= matches!(answer, Answer::Failed(_));
    }

    fn no_longer_waits(&mut self, pulls: bool, on_device: bool) {
        self.unanswered -= 1;
        self.reads -= usize::from(pulls);
        self.on_device -= usize::from(on_device);
    }

    /// The device has carried out a part of the oldest request that it has, or failed to.
    pub fn carried_out(&mut self, cx: &mut Context<'_>, done: &CarriedOut<'_>) {
        self.staged -= usize::from(done.staged);
        let waits = |flight: &Flight| flight.on_device && flight.state == Answer::Waiting;
        // None after a failure.
        let Some(at) = self.flights.iter().position(waits) else { return };
        match (done.outcome, done.brought) {
            (Err(syndrome), _) => {
                self.settle(at, Answer::Failed(syndrome));
                self.sending = None;
            }
            (Ok(()), Some(brought)) => self.take_data(at, cx, brought),
            (Ok(()), None) => {
                let flight = &mut self.flights[at];
                // At most as many as it has.
                flight.received += done.len as u32;
                if flight.received == flight.length {
                    self.settle(at, Answer::Done);
                }
            }
        }
    }

    fn take_data(&mut self, at: usize, cx: &mut Context<'_>, payload: Payload<'_>) {
        let flight = &mut self.flights[at];
        let left = flight.length - flight.received;
        if !flight.pulls || payload.len > left as usize {
            self.settle(at, Answer::Failed(Syndrome::BadResponse));
            return;
        }
        let scattered = payload.place().map_or(Ok(()), |mut from| {
            flight.targets(cx.keys, payload.len, &mut |region, to, len| {
                // SAFETY: the pieces have as many bytes as the payload, and the key table checked them.
                unsafe { cx.begun.copy(from, region.place(to), len)? };
                from = from.after(len);
                Ok(())
            })
        });
        flight.received += payload.len as u32;
        if scattered.is_err() {
            self.settle(at, Answer::Failed(Syndrome::LocalProtection));
        } else if flight.received == flight.length {
            self.settle(at, Answer::Done);
        }
    }

    /// Calls `piece` for where the next `len` bytes of the answer to read number `psn` go. False if they are not expected, or may not.
    pub fn places(&self, keys: &KeyTable, psn: u32, len: usize, piece: &mut EachPiece<'_>) -> bool {
        let waits = |flight: &&Flight| {
            flight.psn == Some(psn) && flight.pulls && flight.state == Answer::Waiting
        };
        let Some(flight) = self.flights.iter().find(waits) else { return false };
        len <= (flight.length - flight.received) as usize
            && flight.targets(keys, len, piece).is_ok()
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
        for flight in self.flights.split_off(at) {
            if flight.state == Answer::Waiting {
                self.no_longer_waits(flight.pulls, flight.on_device);
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
            if flight.state == Answer::Waiting {
                self.no_longer_waits(flight.pulls, flight.on_device);
            }
            self.oldest = flight.index.wrapping_add(flight.blocks);
            self.report(&flight, Syndrome::Flushed, completions);
        }
        progress
    }
}
