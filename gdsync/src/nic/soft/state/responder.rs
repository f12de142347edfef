//! The responder: executes the peer's requests in order, with its receives and its keys, and keeps the answers until
//! the wire takes them.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use super::outgoing::{Outgoing, Payload};
use super::{Context, LinkState, Violation, WINDOW};
use crate::nic::error::Result;
use crate::nic::memory_region::Access;
use crate::nic::queue_memory::QueueMemory;
use crate::nic::soft::completion::CompletionWriter;
use crate::nic::soft::keys::{EachPiece, KeyError, KeyTable};
use crate::nic::soft::wire::frame::Frame;
use crate::nic::words::Words;
use crate::wqe::{
    Completion, CompletionKind, DoorbellRecord, ErrorSide, ReceiveEntry, ReceiveRing, Received,
    RemoteAddress, Syndrome,
};

/// A peer has at most [`WINDOW`] requests under way, so no more answers than that.
const MAX_ANSWERS: usize = WINDOW + 1;

pub(super) struct Responder {
    qpn: u32,
    memory: QueueMemory,
    ring: ReceiveRing<Words>,
    entry: ReceiveEntry,
    /// The next receive to be filled.
    head: u16,
    /// Sequence number of the message that is expected, or being received.
    expected: u32,
    inbound: Option<Inbound>,
    /// After "not ready": what arrives is dropped, until the message that was refused begins anew.
    discarding: bool,
    answers: VecDeque<Response>,
    stopped: bool,
}

/// A message whose payload is arriving.
#[derive(Clone, Copy)]
struct Inbound {
    length: u32,
    offset: u32,
    target: Target,
    imm: Option<u32>,
    solicited: bool,
}

#[derive(Clone, Copy)]
enum Target {
    Receive,
    Memory(RemoteAddress),
}

enum Response {
    Ack { psn: u32 },
    Read { psn: u32, from: RemoteAddress, length: u32, offset: u32 },
    Atomic { psn: u32, value: u64 },
    Nak { psn: u32, syndrome: Syndrome },
    NotReady { psn: u32 },
}

/// How a request ended that does not go on.
enum Stop {
    /// The peer is to try again.
    NotReady,
    /// Both sides fail: what the peer is told, and what the receive's completion says, if one is used up.
    Fault { peer: Syndrome, receive: Option<Syndrome> },
}

impl Responder {
    pub fn new(qpn: u32, memory: &QueueMemory) -> Result<Responder> {
        Ok(Responder {
            qpn,
            memory: memory.clone(),
            ring: ReceiveRing::new(memory.receive.clone(), memory.receive_stride)?,
            entry: ReceiveEntry::new(),
            head: 0,
            expected: 0,
            inbound: None,
            discarding: false,
            answers: VecDeque::with_capacity(MAX_ANSWERS),
            stopped: false,
        })
    }

    pub fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// As if the peer's queue had been used before.
    #[cfg(test)]
    pub fn start_at(&mut self, index: u16, receives: u16) {
        self.expected = u32::from(index).wrapping_sub(u32::MAX / 2);
        self.head = receives;
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// The peer is gone: nobody wants the answers.
    pub fn stop(&mut self) {
        self.answers.clear();
        self.inbound = None;
        self.stopped = true;
    }

    /// A request, or more of one. Returns the syndrome of the peer's completion if both sides fail.
    pub fn request(
        &mut self,
        cx: &mut Context<'_>,
        frame: Frame,
        payload: Payload<'_>,
        completions: &mut CompletionWriter,
    ) -> Result<Option<Syndrome>, Violation> {
        let (psn, first) = match frame {
            Frame::More { psn } => (psn, false),
            Frame::Send { psn, .. }
            | Frame::Write { psn, .. }
            | Frame::Read { psn, .. }
            | Frame::Atomic { psn, .. } => (psn, true),
            _ => return Err(Violation::Other("an answer instead of a request")),
        };
        let fits = psn == self.expected && first == self.inbound.is_none();
        if self.discarding && !(fits && first) {
            return Ok(None);
        }
        if !fits {
            let what = "a message";
            return Err(Violation::Sequence { what, psn, expected: self.expected });
        }
        if self.answers.len() >= MAX_ANSWERS {
            return Err(Violation::Other("more requests than it may have under way"));
        }
        self.discarding = false;
        let begun = match frame {
            Frame::Send { length, imm, solicited, .. } => {
                self.begin_send(cx, completions, length).map(|()| {
                    Some(Inbound { length, offset: 0, target: Target::Receive, imm, solicited })
                })
            }
            Frame::Write { length, imm, solicited, to, .. } => {
                self.begin_write(cx, completions, to, length, imm.is_some()).map(|()| {
                    Some(Inbound { length, offset: 0, target: Target::Memory(to), imm, solicited })
                })
            }
            Frame::Read { length, from, .. } => self.read(cx, psn, from, length).map(|()| None),
            Frame::Atomic { at, operation, .. } => {
                let word = aligned_word(cx, at);
                word.and_then(|word| {
                    cx.begun.settle().map_err(|_| NO_COPY)?;
                    // SAFETY: the key table checked 8 bytes, which are aligned.
                    let value = unsafe { operation.apply(word) };
                    self.answer(Response::Atomic { psn, value });
                    Ok(None)
                })
            }
            _ => Ok(self.inbound),
        };
        let taken = match begun {
            Ok(None) => {
                self.expected = psn.wrapping_add(1);
                return Ok(None);
            }
            Ok(Some(inbound)) => {
                if u64::from(inbound.offset) + payload.len as u64 > u64::from(inbound.length) {
                    return Err(Violation::Other("more bytes than the message has"));
                }
                self.take(cx, inbound, payload).map(|()| inbound)
            }
            Err(stop) => Err(stop),
        };
        match taken {
            Ok(mut inbound) => {
                // At most a frame's.
                inbound.offset += payload.len as u32;
                self.inbound = Some(inbound);
                if inbound.offset < inbound.length {
                    return Ok(None);
                }
                // Whoever gets a completion looks at the bytes.
                let completes = inbound.imm.is_some() || matches!(inbound.target, Target::Receive);
                if completes && cx.begun.settle().is_err() {
                    self.inbound = None;
                    self.answer(Response::Nak { psn, syndrome: Syndrome::RemoteOperation });
                    return Ok(Some(Syndrome::RemoteOperation));
                }
                self.finish(psn, inbound, completions);
                Ok(None)
            }
            Err(Stop::NotReady) => {
                self.discarding = true;
                self.inbound = None;
                self.answer(Response::NotReady { psn });
                Ok(None)
            }
            Err(Stop::Fault { peer, receive }) => {
                self.inbound = None;
                self.answer(Response::Nak { psn, syndrome: peer });
                if let Some(syndrome) = receive {
                    self.fail_receive(syndrome, completions);
                }
                Ok(Some(receive.unwrap_or(peer)))
            }
        }
    }

    /// Fetches the receive that a message will fill, if one is posted and its completion has a place.
    fn next_receive(&mut self, completions: &CompletionWriter) -> Result<(), Stop> {
        let posted = self.posted();
        if posted == 0 || completions.room() == 0 {
            return Err(Stop::NotReady);
        }
        let fault = Stop::Fault {
            peer: Syndrome::RemoteOperation,
            receive: Some(Syndrome::LocalQpOperation),
        };
        if posted > self.memory.receive_entries() {
            return Err(fault);
        }
        self.ring.fetch(self.head, &mut self.entry).map_err(|_| fault)
    }

    /// Receives posted and not used.
    fn posted(&self) -> u64 {
        let word = self.memory.receive_record().load(Ordering::Acquire).to_ne_bytes();
        u64::from(DoorbellRecord::index(word).wrapping_sub(self.head))
    }

    fn begin_send(
        &mut self,
        cx: &mut Context<'_>,
        completions: &CompletionWriter,
        length: u32,
    ) -> Result<(), Stop> {
        self.next_receive(completions)?;
        if self.entry.capacity() < u64::from(length) {
            return Err(Stop::Fault {
                peer: Syndrome::RemoteInvalidRequest,
                receive: Some(Syndrome::LocalLength),
            });
        }
        let checked = cx.keys.check_segments(self.entry.segments(), Access::LOCAL_WRITE);
        checked.map_err(|_| BAD_RECEIVE)
    }

    fn begin_write(
        &mut self,
        cx: &mut Context<'_>,
        completions: &CompletionWriter,
        to: RemoteAddress,
        length: u32,
        receives: bool,
    ) -> Result<(), Stop> {
        // The key of a message without bytes is not looked at (IBTA C9-88).
        if length > 0 {
            let len = u64::from(length);
            cx.keys.check(to.rkey, to.address, len, Access::REMOTE_WRITE).map_err(|_| REFUSED)?;
        }
        if receives { self.next_receive(completions) } else { Ok(()) }
    }

    fn read(
        &mut self,
        cx: &mut Context<'_>,
        psn: u32,
        from: RemoteAddress,
        length: u32,
    ) -> Result<(), Stop> {
        if length > 0 {
            let len = u64::from(length);
            cx.keys
                .check(from.rkey, from.address, len, Access::REMOTE_READ)
                .map_err(|_| REFUSED)?;
        }
        self.answer(Response::Read { psn, from, length, offset: 0 });
        Ok(())
    }

    /// Copies payload to where the message goes.
    fn take(
        &mut self,
        cx: &mut Context<'_>,
        inbound: Inbound,
        payload: Payload<'_>,
    ) -> Result<(), Stop> {
        let Some(mut from) = payload.place() else { return Ok(()) };
        self.targets(cx.keys, inbound, payload.len, &mut |region, to, part| {
            // SAFETY: the parts add up to the payload; the key table checked where they go.
            unsafe { cx.begun.copy(from, region.place(to), part)? };
            from = from.after(part);
            Ok(())
        })
        .map_err(|error| match (inbound.target, error) {
            (Target::Receive, _) => BAD_RECEIVE,
            (Target::Memory(_), KeyError::Broken) => NO_COPY,
            (Target::Memory(_), _) => REFUSED,
        })
    }

    /// Calls `piece` for the memory of the next `len` bytes of a message.
    fn targets(
        &self,
        keys: &KeyTable,
        inbound: Inbound,
        len: usize,
        piece: &mut EachPiece<'_>,
    ) -> Result<(), KeyError> {
        let (offset, all) = (u64::from(inbound.offset), len as u64);
        match inbound.target {
            Target::Receive => {
                let segments = self.entry.segments();
                keys.for_pieces(segments, offset, all, Access::LOCAL_WRITE, piece)
            }
            Target::Memory(_) if len == 0 => Ok(()),
            Target::Memory(to) => {
                let address = to.address + offset;
                let (region, pointer) = keys.check(to.rkey, address, all, Access::REMOTE_WRITE)?;
                piece(region, pointer, len)
            }
        }
    }

    /// Calls `piece` for where the next `len` bytes of message number `psn` go. False if they are not expected, or may not.
    pub fn places(&self, keys: &KeyTable, psn: u32, len: usize, piece: &mut EachPiece<'_>) -> bool {
        let Some(inbound) = self.inbound.filter(|_| psn == self.expected) else { return false };
        len <= (inbound.length - inbound.offset) as usize
            && self.targets(keys, inbound, len, piece).is_ok()
    }

    fn finish(&mut self, psn: u32, inbound: Inbound, completions: &mut CompletionWriter) {
        self.inbound = None;
        self.expected = psn.wrapping_add(1);
        let by = match (inbound.target, inbound.imm) {
            (Target::Receive, None) => Some(Received::Send),
            (Target::Receive, Some(imm)) => Some(Received::SendImm(imm)),
            (Target::Memory(_), Some(imm)) => Some(Received::WriteImm(imm)),
            (Target::Memory(_), None) => None,
        };
        if let Some(by) = by {
            let (byte_count, solicited) = (inbound.length, inbound.solicited);
            let kind = CompletionKind::Receive { by, byte_count, solicited };
            self.complete_receive(kind, completions);
        }
        self.answer(Response::Ack { psn });
    }

    fn fail_receive(&mut self, syndrome: Syndrome, completions: &mut CompletionWriter) {
        let side = ErrorSide::Responder;
        let kind = CompletionKind::Error { side, syndrome, vendor: 0, opcode: 0 };
        self.complete_receive(kind, completions);
    }

    fn complete_receive(&mut self, kind: CompletionKind, completions: &mut CompletionWriter) {
        completions.write(&Completion { qpn: self.qpn, index: self.head, user_index: 0, kind });
        self.head = self.head.wrapping_add(1);
    }

    fn answer(&mut self, response: Response) {
        // One acknowledgement stands for all before it.
        if let (Response::Ack { psn }, Some(Response::Ack { psn: last })) =
            (&response, self.answers.back_mut())
        {
            *last = *psn;
            return;
        }
        self.answers.push_back(response);
    }

    /// The next answer, and the syndrome if a read failed under way.
    pub fn transmit(
        &mut self,
        cx: &mut Context<'_>,
        max: usize,
        out: &mut Outgoing,
    ) -> (bool, Option<Syndrome>) {
        if cx.link != LinkState::Up {
            return (false, None);
        }
        let mut fault = None;
        out.frame = match self.answers.front_mut() {
            None => return (false, None),
            Some(Response::Ack { psn }) => match cx.begun.settle() {
                Ok(()) => Frame::Ack { psn: *psn },
                Err(error) => {
                    let syndrome = answer_to(error);
                    fault = Some(syndrome);
                    Frame::Nak { psn: *psn, syndrome }
                }
            },
            Some(Response::Atomic { psn, value }) => {
                Frame::AtomicResult { psn: *psn, value: *value }
            }
            Some(Response::Nak { psn, syndrome }) => Frame::Nak { psn: *psn, syndrome: *syndrome },
            Some(Response::NotReady { psn }) => Frame::NotReady { psn: *psn },
            Some(Response::Read { psn, from, length, offset }) => {
                let part = (max as u64).min(u64::from(*length - *offset));
                let address = from.address + u64::from(*offset);
                let need = Access::REMOTE_READ;
                match cx.keys.check(from.rkey, address, part, need) {
                    Ok((region, pointer)) if part > 0 => {
                        if let Err(error) = out.push(region, pointer, part as usize) {
                            out.clear();
                            fault = Some(answer_to(error));
                        }
                    }
                    Err(error) if part > 0 => fault = Some(answer_to(error)),
                    _ => {}
                }
                *offset += part as u32;
                match fault {
                    Some(syndrome) => Frame::Nak { psn: *psn, syndrome },
                    None if *offset < *length => {
                        out.frame = Frame::ReadData { psn: *psn };
                        return (true, None);
                    }
                    None => Frame::ReadData { psn: *psn },
                }
            }
        };
        self.answers.pop_front();
        (true, fault)
    }

    /// In the error state: completes the posted receives as flushed.
    pub fn flush(&mut self, completions: &mut CompletionWriter) -> bool {
        self.inbound = None;
        let mut progress = false;
        while completions.room() > 0 && (1..=self.memory.receive_entries()).contains(&self.posted())
        {
            progress = true;
            self.fail_receive(Syndrome::Flushed, completions);
        }
        progress
    }
}

/// The receive's own memory is not what its segments say.
const BAD_RECEIVE: Stop =
    Stop::Fault { peer: Syndrome::RemoteOperation, receive: Some(Syndrome::LocalProtection) };
/// What a peer is told whose read cannot be answered.
fn answer_to(error: KeyError) -> Syndrome {
    match error {
        KeyError::Broken => Syndrome::RemoteOperation,
        // The key was taken back under the read.
        _ => Syndrome::RemoteAccess,
    }
}

/// The memory is a GPU's, which does not copy.
const NO_COPY: Stop = Stop::Fault { peer: Syndrome::RemoteOperation, receive: None };
/// The key does not allow it.
const REFUSED: Stop = Stop::Fault { peer: Syndrome::RemoteAccess, receive: None };

fn aligned_word(cx: &Context<'_>, at: RemoteAddress) -> Result<*mut u8, Stop> {
    let need = Access::REMOTE_ATOMIC;
    let (_, word) = cx.keys.check(at.rkey, at.address, 8, need).map_err(|_| REFUSED)?;
    if (word as usize).is_multiple_of(8) {
        return Ok(word);
    }
    Err(Stop::Fault { peer: Syndrome::RemoteInvalidRequest, receive: None })
}
