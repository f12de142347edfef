//! One queue pair of the software NIC as a state machine without I/O: bytes of queues and frames of the peer go in,
//! completions, copies and frames come out.
//!
//! The *requester* executes the send queue, the *responder* the peer's requests; an error of either ends both, as on
//! a reliable connection. There is no socket, no thread and no clock here: whoever drives the machine says what time
//! it is and whether the peer can be reached, takes frames out when there is room for them, and hands in those that
//! arrive.
//!
//! # Order
//! Requests are executed by the peer in the order of the send queue and complete in that order. As on hardware (IBTA
//! volume 1, table "Work Request Operation Ordering"), the answer to a read is put together when it is sent: a write
//! after a read may overtake it, unless the entry has the fence flag.

mod outgoing;
mod requester;
mod responder;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::completion::CompletionWriter;
use super::keys::{Begun, KeyError, KeyTable, RegionMemory};
use super::wire::frame::{Frame, FrameError};
use crate::nic::error::Result;
use crate::nic::memory_region::Access;
use crate::nic::options::QueuePairOptions;
use crate::nic::queue_memory::QueueMemory;
use crate::wqe::{RemoteAddress, Syndrome};
pub(crate) use outgoing::{DeviceRequest, Outgoing, Payload, Piece};
use requester::Requester;
use responder::Responder;

/// Requests under way to the peer at a time.
pub(crate) const WINDOW: usize = 128;
/// Reads and atomics among them.
pub(crate) const MAX_READS: usize = 16;

/// Whether the peer can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkState {
    Connecting,
    Up,
    Lost,
}

/// Who drives the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Driver {
    /// The NIC's thread, which does everything.
    Engine,
    /// A thread that has rung: it only does what is quickly done, on memory of the CPU that is mapped here.
    Caller,
}

/// What the machine may use while it runs.
pub(crate) struct Context<'a> {
    pub driver: Driver,
    pub keys: &'a KeyTable,
    pub now: Instant,
    pub link: LinkState,
    pub direct: &'a mut dyn DirectPath,
    /// What this queue pair copies to GPUs, and what must not come before it.
    pub begun: &'a mut Begun,
    /// What the RDMA device below the wire does, if there is one that carries out requests itself.
    pub device: Option<DeviceUse>,
}

/// How an RDMA device carries out requests itself, on registered memory of both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeviceUse {
    /// Whether this side's memory always goes through the pool.
    pub staged: bool,
    /// Whether peers may do atomics by this side's device.
    pub atomics: bool,
}

/// Bytes of one request of a device: a longer message becomes several.
pub(crate) const DEVICE_PART: u64 = 1 << 20;
/// Bytes of a chunk of the pool, through which memory goes that the device does not reach, and the chunks under way at a
/// time.
pub(crate) const CHUNK: usize = 256 << 10;
pub(crate) const CHUNKS: usize = 2;
/// Bytes that a request for a device takes along itself.
pub(crate) const INLINE: usize = 64;
/// Pieces of memory of such a request.
pub(crate) const PIECES: usize = 4;

/// What became of a request that a device was given.
pub(crate) struct CarriedOut<'a> {
    pub outcome: std::result::Result<(), Syndrome>,
    /// Bytes of this side's memory that had a part in it.
    pub len: usize,
    pub staged: bool,
    /// What a read or an atomic brought into the pool.
    pub brought: Option<Payload<'a>>,
}

/// Memory of the peer that is mapped here, or reached by an RDMA device, so that reads, writes and atomics need no frames.
pub(crate) trait DirectPath {
    /// Where `len` bytes at `address` under the peer's `key` are, if they are reached and `need` is allowed. A refusal
    /// is no error: the request then goes to the peer, who decides.
    fn find(&mut self, key: u32, address: u64, len: u64, need: Access) -> Option<Found>;
}

/// Memory of the peer.
pub(crate) enum Found {
    /// Mapped here.
    Mapped(Arc<RegionMemory>, *mut u8),
    /// As the device knows it.
    ByDevice(RemoteAddress),
}

/// A peer that does not keep to the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    #[error("the peer sent {0}")]
    Frame(#[from] FrameError),
    #[error("the peer sent {what} number {psn}, expected {expected}")]
    Sequence { what: &'static str, psn: u32, expected: u32 },
    #[error("the peer sent {0}")]
    Other(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    Error,
}

/// The queue pair.
pub(crate) struct Machine {
    phase: Phase,
    requester: Requester,
    responder: Responder,
    sends: CompletionWriter,
    receives: CompletionWriter,
    /// Whose turn it is when both have frames to send.
    requests_next: bool,
    /// First error, for reports.
    cause: Option<(&'static str, Syndrome)>,
}

impl Machine {
    /// In [`Machine::cause`]: a request of this side's.
    pub const OWN: &'static str = "a request";

    pub fn new(qpn: u32, memory: &QueueMemory, options: &QueuePairOptions) -> Result<Machine> {
        Ok(Machine {
            phase: Phase::Running,
            requester: Requester::new(qpn, memory, options)?,
            responder: Responder::new(qpn, memory)?,
            sends: CompletionWriter::new(memory.send_completions.clone()),
            receives: CompletionWriter::new(memory.receive_completions.clone()),
            requests_next: false,
            cause: None,
        })
    }

    /// The doorbell was rung: reads the doorbell record.
    pub fn doorbell(&mut self) {
        self.requester.doorbell();
    }

    /// Does what can be done without the peer: fetches entries, completes, flushes. False if there was nothing.
    pub fn advance(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.has_work() && cx.begun.is_settled() {
            return false;
        }
        let mut progress = false;
        if self.phase == Phase::Running {
            progress |= self.requester.advance(cx, &self.sends);
        }
        let settled = cx.begun.settle();
        if self.phase == Phase::Running {
            if settled.is_err() {
                self.requester.break_copies();
            }
            if let Some(syndrome) = self.requester.complete(&mut self.sends, &mut progress) {
                self.fail(Machine::OWN, syndrome);
                // Before others are flushed the cause can be told.
                return true;
            }
        }
        if self.phase == Phase::Error {
            progress |= self.requester.flush(&mut self.sends);
        }
        if self.phase == Phase::Error || self.responder.is_stopped() {
            progress |= self.responder.flush(&mut self.receives);
        }
        progress
    }

    /// Whether [`advance`](Self::advance) may find something to do that is not of copies that were begun.
    fn has_work(&self) -> bool {
        self.phase == Phase::Error || self.responder.is_stopped() || self.requester.has_work()
    }

    /// Whether [`transmit`](Self::transmit) may find a frame.
    pub fn has_frames(&self) -> bool {
        self.responder.has_answers() || self.requester.is_sending()
    }

    /// Whether there may be something to fetch, complete or send.
    pub fn has_more(&self) -> bool {
        self.has_work() || self.has_frames()
    }

    /// The next frame for the peer, with at most `max` bytes of payload. False if there is none.
    pub fn transmit(&mut self, cx: &mut Context<'_>, max: usize, out: &mut Outgoing) -> bool {
        out.clear();
        let requests = self.phase == Phase::Running;
        if self.requests_next && requests && self.requester.transmit(cx, max, out) {
            self.requests_next = false;
            return true;
        }
        let (answered, fault) = self.responder.transmit(cx, max, out);
        if let Some(syndrome) = fault {
            self.fail("a request of the peer", syndrome);
        }
        if answered {
            self.requests_next = true;
            return true;
        }
        requests && self.requester.transmit(cx, max, out)
    }

    /// A frame of the peer.
    pub fn receive(
        &mut self,
        cx: &mut Context<'_>,
        frame: Frame,
        payload: Payload<'_>,
    ) -> Result<(), Violation> {
        if self.phase == Phase::Error {
            return Ok(());
        }
        match frame {
            Frame::Send { .. }
            | Frame::Write { .. }
            | Frame::Read { .. }
            | Frame::Atomic { .. }
            | Frame::More { .. } => {
                let fault = self.responder.request(cx, frame, payload, &mut self.receives)?;
                if let Some(syndrome) = fault {
                    self.fail("a request of the peer", syndrome);
                }
                Ok(())
            }
            _ => self.requester.answer(cx, frame, payload),
        }
    }

    /// Where the next `len` bytes go that will come as the payload of `frame`, which is more of a message or of the answer to a
    /// read: adds it to `places`, if that is memory of the CPU, and the keys allow it now. Nothing otherwise; that, too, is
    /// for [`receive`](Self::receive) to judge.
    pub fn places(&self, cx: &mut Context<'_>, frame: Frame, len: usize, places: &mut Vec<Piece>) {
        let before = places.len();
        let mut place = |memory: &Arc<RegionMemory>, pointer: *mut u8, part: usize| {
            if memory.is_on_gpu() {
                return Err(KeyError::Permission);
            }
            places.push(Piece::new(memory, pointer, part));
            Ok(())
        };
        let found = self.phase == Phase::Running
            && match frame {
                Frame::More { psn } => self.responder.places(cx.keys, psn, len, &mut place),
                Frame::ReadData { psn } => self.requester.places(cx.keys, psn, len, &mut place),
                _ => false,
            };
        // It comes behind what goes to a GPU.
        if !found || cx.begun.settle().is_err() {
            places.truncate(before);
        }
    }

    /// The peer is gone: what waits for it fails, and posted receives are flushed, so that nobody waits for its
    /// messages. (Hardware does the latter when the connection manager says so.)
    pub fn lose(&mut self) {
        // After a failure everything else is flushed, as soon as there is room for its completions.
        if self.phase == Phase::Running {
            self.requester.lose();
            let mut progress = false;
            if let Some(syndrome) = self.requester.complete(&mut self.sends, &mut progress) {
                self.fail(Machine::OWN, syndrome);
            }
        }
        // Entries that are posted later get their verdict when they are fetched: the first is "retry exceeded".
        self.responder.stop();
    }

    /// Whether nothing is left to be done for the requests that were rung.
    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Running && self.requester.is_idle()
    }

    /// The device of the wire has carried out a request, or failed to.
    pub fn carried_out(&mut self, cx: &mut Context<'_>, done: &CarriedOut<'_>) {
        self.requester.carried_out(cx, done);
    }

    /// Whether something is under way that touches memory of the peer without its help.
    pub fn touches_peer(&self) -> bool {
        self.is_copying() || self.requester.is_on_device()
    }

    /// Whether a copy to or from mapped memory of the peer is under way.
    pub fn is_copying(&self) -> bool {
        self.requester.is_copying()
    }

    fn fail(&mut self, what: &'static str, syndrome: Syndrome) {
        self.phase = Phase::Error;
        self.cause.get_or_insert((what, syndrome));
    }

    /// What failed first, if something did: a request of this side's, or of the peer's.
    pub fn cause(&self) -> Option<(&'static str, Syndrome)> {
        self.cause
    }

    /// Whether it is in the error state.
    pub fn is_error(&self) -> bool {
        self.phase == Phase::Error
    }

    /// Whether answers to the peer wait to be sent.
    pub fn has_answers(&self) -> bool {
        self.responder.has_answers()
    }

    /// Whether requests wait for the peer: under way, or in the queue.
    pub fn wants_peer(&self) -> bool {
        self.phase == Phase::Running && self.requester.is_busy()
    }
}

/// When a request is repeated that met a receiver that was not ready.
#[derive(Debug, Clone, Copy)]
struct RetryPolicy {
    retries: u8,
    delay: Duration,
}
