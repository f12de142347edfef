//! One queue pair inside the engine: its state machine, its wire, and the frames that are about neither requests nor
//! answers: liveness and goodbye here, mapped memory in [`mapped`]. How threads share it is [`shared`].

mod mapped;
mod shared;

pub(crate) use shared::SharedSlot;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::dial::Dial;
use super::direct::{Direct, MapRequest};
use super::door::Expected;
use super::keys::{Begun, KeyTable, TakenBack};
use super::state::{
    Context, DeviceUse, Driver, LinkState, Machine, Outgoing, Payload, Piece, Violation,
};
use super::wire::frame::Frame;
use super::wire::greeting::Greeting;
use super::wire::{Cut, Sink, Wire};
use crate::cuda::device::lock;
use crate::nic::memory_region::Access;
use crate::nic::queue_memory::QueueMemory;
use crate::wqe::{Doorbell, Syndrome};

/// How long a queue pair that failed or was dropped waits for the peer to say goodbye, too.
const LINGER: Duration = Duration::from_millis(200);
/// Frames about anything but requests and their answers that wait to be sent: as many as a peer may have keys mapped.
const MAX_CONTROL: usize = 4096;
/// Acknowledgements of so many bytes at most may wait for what this side sends next: the peer has such messages in its entries,
/// and nobody waits until their memory is free.
const SHORT: usize = 256;
/// So many looks by threads that wait what can go along with something else is left for that.
const LOOKS: u32 = 3;
/// Turns of fetching and sending in one go.
const ROUNDS: usize = 8;
/// How long after it said something a peer is likely to say more.
const LIVELY: Duration = Duration::from_micros(500);
/// Turns of executing in one go, by a thread that has other things to do.
const CALLERS_ROUNDS: usize = 2;

/// What a queue pair's owner can see of it.
#[derive(Default)]
pub(crate) struct Status {
    pub up: AtomicBool,
    /// Somebody waits for the connection, though no request does.
    pub wanted: AtomicBool,
    /// What was rung last may go along with something else.
    pub along: AtomicBool,
    /// Why the peer cannot be reached any more.
    pub lost: Mutex<Option<String>>,
    /// Why its own requests are flushed, if one of them failed.
    pub cause: OnceLock<Syndrome>,
}

/// A queue pair.
pub(crate) struct Slot {
    pub qpn: u32,
    memory: QueueMemory,
    machine: Machine,
    timeout: Duration,
    link: LinkState,
    wire: Option<Box<dyn Wire>>,
    status: Arc<Status>,
    control: VecDeque<(Frame, Vec<u8>)>,
    direct: Direct,
    begun: Begun,
    map_peers: bool,
    same_machine: bool,
    /// How the device of the wire carries out requests itself, if it does.
    device: Option<DeviceUse>,
    mapper: Sender<MapRequest>,
    /// Keys of ours that the peer may have mapped, and those that it is asked to give up: the peer's word drops the
    /// token.
    exported: HashSet<u32>,
    unconfirmed: HashMap<u32, (Instant, Arc<TakenBack>)>,
    /// Keys of the peer's that it took back and waits for our word.
    revoked: Vec<u32>,
    /// A connection over TCP that the peer dials: who it must be, and what we answer.
    pub awaited: Option<(Greeting, Greeting)>,
    /// One that this side dials.
    pub dialing: Option<Dial>,
    /// Keeps the door open while a peer may come through it.
    door: Option<Expected>,
    last_sent: Instant,
    last_heard: Instant,
    /// Since when requests wait for a connection.
    waiting: Option<Instant>,
    /// The owner is gone.
    closing: bool,
    said_bye: Option<Instant>,
    /// Something was given to the wire that somebody waits for.
    hurry: bool,
    /// What was rung may go along with something else.
    along: bool,
    /// How often what the wire holds was left there.
    looks: u32,
    /// What a thread that rings sends by.
    out: Outgoing,
}

/// By whom a slot is driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// The NIC's thread.
    Engine,
    /// A thread that waits, and will look again in a moment: acknowledgements may be left to that look, or to what it posts.
    Waiting,
    /// A thread that has rung: what comes is not its business.
    Ringing,
}

/// What a slot is made of.
pub(crate) struct SlotParts {
    pub qpn: u32,
    pub token: u64,
    pub memory: QueueMemory,
    pub machine: Machine,
    pub timeout: Duration,
    pub status: Arc<Status>,
    pub map_peers: bool,
    pub mapper: Sender<MapRequest>,
    pub door: Option<Expected>,
}

/// What takes the frames that have arrived.
struct Arrivals<'a> {
    slot: &'a mut Slot,
    keys: &'a KeyTable,
    now: Instant,
    /// The peer has said goodbye.
    bye: bool,
    /// All of them were short.
    short: bool,
}

impl Sink for Arrivals<'_> {
    fn take(&mut self, frame: Frame, payload: Payload<'_>) -> Result<(), Violation> {
        self.bye |= frame == Frame::Bye;
        self.short &= payload.len <= SHORT && !matches!(frame, Frame::More { .. });
        self.slot.incoming(frame, payload, self.keys, self.now)
    }

    fn places(&mut self, frame: Frame, len: usize, places: &mut Vec<Piece>) {
        let (machine, mut cx) = self.slot.with_context(Driver::Engine, self.keys, self.now);
        machine.places(&mut cx, frame, len, places);
    }
}

impl Slot {
    pub fn new(parts: SlotParts) -> Slot {
        let SlotParts { qpn, token: _, memory, machine, timeout, status, map_peers, mapper, door } =
            parts;
        let now = Instant::now();
        Slot {
            qpn,
            memory,
            machine,
            timeout,
            link: LinkState::Connecting,
            wire: None,
            status,
            control: VecDeque::new(),
            direct: Direct::new(false),
            begun: Begun::default(),
            map_peers,
            same_machine: false,
            device: None,
            mapper,
            exported: HashSet::new(),
            unconfirmed: HashMap::new(),
            revoked: Vec::new(),
            awaited: None,
            dialing: None,
            door,
            last_sent: now,
            last_heard: now,
            waiting: None,
            closing: false,
            said_bye: None,
            hurry: false,
            along: false,
            looks: 0,
            out: Outgoing::new(),
        }
    }

    /// Gives it the wire to its peer. Over shared memory the peer's memory may be mapped, too: a handle that came from
    /// another machine would name something of this one.
    pub fn attach(&mut self, wire: Box<dyn Wire>, same_machine: bool) {
        if self.link == LinkState::Connecting {
            self.door = None;
            self.same_machine = same_machine;
            self.device = wire.device();
            self.wire = Some(wire);
            self.direct = Direct::new(self.map_peers && same_machine || self.device.is_some());
        }
    }

    /// The owner is gone: answers that are due go out, then it ends.
    pub fn close(&mut self) {
        self.closing = true;
    }

    pub fn is_over(&self) -> bool {
        self.closing && self.wire.is_none()
    }

    /// Whether socket events may be for it.
    pub fn has_socket(&self) -> bool {
        !self.same_machine && (self.wire.is_some() || self.awaited.is_some())
    }

    /// Whether its peer may still come through the door.
    pub fn is_expected(&self) -> bool {
        self.door.is_some()
    }

    /// Whether it is time to dial once more. True once for each time.
    pub fn must_dial(&mut self, now: Instant) -> bool {
        self.dialing.as_mut().is_some_and(|dial| dial.is_due(now))
    }

    /// Whether its peer was heard over a socket so lately that it is worth asking the socket itself.
    pub fn is_lively(&self, now: Instant) -> bool {
        let up = self.link == LinkState::Up && !self.same_machine;
        up && now.saturating_duration_since(self.last_heard) < LIVELY
    }

    /// A socket event.
    pub fn ready(&mut self, readable: bool, writable: bool) {
        if let Some(wire) = &mut self.wire {
            wire.ready(readable, writable);
        }
    }

    /// The connection ends, or never comes to be.
    pub fn lose(&mut self, cut: Cut) {
        if self.link == LinkState::Lost {
            return;
        }
        tracing::debug!("queue pair {:#x} lost its peer: {cut}", self.qpn);
        self.link = LinkState::Lost;
        self.wire = None;
        self.awaited = None;
        self.dialing = None;
        self.door = None;
        self.control.clear();
        self.unconfirmed.clear();
        self.direct = Direct::new(false);
        lock(&self.status.lost).get_or_insert(cut.0);
        self.status.up.store(false, Ordering::Release);
        self.machine.lose();
        self.tell_cause();
    }

    /// Lets the owner know what failed, before others are flushed.
    fn tell_cause(&self) {
        if let Some((Machine::OWN, syndrome)) = self.machine.cause() {
            let _ = self.status.cause.set(syndrome);
        }
    }

    /// Does what there is to do. False if there was nothing.
    pub fn drive(&mut self, by: By, keys: &KeyTable, now: Instant, out: &mut Outgoing) -> bool {
        let mut busy = self.hear_doorbell();
        match self.wire.take() {
            None => busy |= self.advance(Driver::Engine, keys, now),
            Some(mut wire) => match self.pump(by, &mut *wire, keys, now, out) {
                Ok(moved) => {
                    busy |= moved;
                    self.wire = Some(wire);
                }
                Err(cut) => {
                    if !(wire.was_turned_away() && self.will_dial_again(now)) {
                        self.lose(cut);
                    }
                    self.advance(Driver::Engine, keys, now);
                    busy = true;
                }
            },
        }
        busy
    }

    /// Takes over what was rung, if something was.
    fn hear_doorbell(&mut self) -> bool {
        let doorbell = self.memory.doorbell();
        if doorbell.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let value = doorbell.swap(0, Ordering::AcqRel);
        let rung = Doorbell::from_bytes(value.to_ne_bytes());
        // On hardware it would be another queue's doorbell.
        if rung.qpn == self.qpn {
            self.machine.doorbell();
        }
        true
    }

    /// By a thread that has rung: requests on mapped memory need nobody else, those over a socket are sent. False if
    /// something is left.
    fn execute(&mut self, keys: &KeyTable, of_the_cpu: bool) -> bool {
        if self.link != LinkState::Up || self.machine.is_error() {
            return false;
        }
        if !self.same_machine {
            // It is on its way then. What comes back is for who waits, or for the engine.
            if of_the_cpu {
                let mut out = std::mem::replace(&mut self.out, Outgoing::new());
                self.drive(By::Ringing, keys, Instant::now(), &mut out);
                self.out = out;
            }
            return false;
        }
        self.hear_doorbell();
        // Nothing that a caller does depends on the time, and asking for it is not free.
        let now = self.last_sent;
        for _ in 0..CALLERS_ROUNDS {
            if !self.advance(Driver::Caller, keys, now) {
                break;
            }
        }
        self.machine.is_idle()
    }

    /// Whether a connection that was turned away is dialed again, and makes it so.
    fn will_dial_again(&mut self, now: Instant) -> bool {
        let Some(dial) = self.dialing.as_mut().filter(|_| !self.closing) else { return false };
        dial.turn_away(now);
        true
    }

    fn advance(&mut self, driver: Driver, keys: &KeyTable, now: Instant) -> bool {
        let (machine, mut cx) = self.with_context(driver, keys, now);
        let moved = machine.advance(&mut cx);
        if moved && self.machine.is_error() {
            self.tell_cause();
        }
        moved
    }

    fn pump(
        &mut self,
        by: By,
        wire: &mut dyn Wire,
        keys: &KeyTable,
        now: Instant,
        out: &mut Outgoing,
    ) -> Result<bool, Cut> {
        let mut busy = false;
        if self.link == LinkState::Connecting {
            let wanted = self.machine.wants_peer() || self.status.wanted.load(Ordering::Relaxed);
            if !wire.poll_up(wanted)? {
                return Ok(self.advance(Driver::Engine, keys, now));
            }
            self.link = LinkState::Up;
            self.dialing = None;
            self.last_heard = now;
            self.status.up.store(true, Ordering::Release);
            busy = true;
        }
        let short = by == By::Waiting && wire.gathers();
        let mut arrivals = Arrivals { slot: self, keys, now, bye: false, short };
        let heard = match by {
            By::Ringing => Ok(false),
            By::Engine | By::Waiting => wire.receive(&mut arrivals),
        };
        let Arrivals { bye, short, .. } = arrivals;
        // Also where the connection is over: what the device did before is done, and why it stopped is known.
        while let Some(done) = wire.carried_out() {
            let (machine, mut cx) = self.with_context(Driver::Engine, keys, now);
            machine.carried_out(&mut cx, &done);
            busy = true;
        }
        let heard = heard?;
        if heard {
            self.last_heard = now;
        }
        busy |= heard;
        busy |= self.send_on(wire, keys, now, out, short)?;
        if bye {
            return Err(Cut("the peer closed the connection".into()));
        }
        self.end(wire, now)?;
        Ok(busy)
    }

    /// Sends what there is to send. Where it `may_wait`, what nobody waits for stays where the wire gathers it for some looks.
    fn send_on(
        &mut self,
        wire: &mut dyn Wire,
        keys: &KeyTable,
        now: Instant,
        out: &mut Outgoing,
        may_wait: bool,
    ) -> Result<bool, Cut> {
        let mut busy = false;
        self.along = self.status.along.swap(false, Ordering::Relaxed);
        self.hurry = !may_wait;
        for _ in 0..ROUNDS {
            let mut copying = false;
            // Entries are fetched one by one: what the wire can gather of them goes out at once.
            while self.gather(wire, keys, now, out)? {
                busy = true;
                copying = self.machine.is_copying();
                if copying || self.control.is_empty() && !self.machine.has_more() {
                    break;
                }
            }
            if !self.hurry && self.looks < LOOKS {
                self.looks = if wire.is_flushed() { 0 } else { self.looks + 1 };
                break;
            }
            self.looks = 0;
            let flushed = wire.flush()?;
            busy |= flushed;
            if !flushed && !copying {
                break;
            }
        }
        Ok(busy)
    }

    /// Fetches what can be fetched, and gives the wire what it has room for. False if there was nothing.
    fn gather(
        &mut self,
        wire: &mut dyn Wire,
        keys: &KeyTable,
        now: Instant,
        out: &mut Outgoing,
    ) -> Result<bool, Cut> {
        let mut moved = self.advance(Driver::Engine, keys, now);
        self.talk();
        while (!self.control.is_empty() || self.machine.has_frames()) && wire.has_room() {
            if let Some((frame, bytes)) = self.control.pop_front() {
                out.frame = frame;
                out.push_inline(&bytes);
            } else if !self.transmit(keys, now, wire.max_payload(), out) {
                break;
            }
            self.hurry |= match out.frame {
                Frame::Ack { .. } => false,
                Frame::Write { .. } => !self.along,
                _ => true,
            };
            let sent = wire.send(out);
            // It holds registered memory, and the next frame begins with nothing.
            out.clear();
            sent?;
            self.last_sent = now;
            moved = true;
        }
        Ok(moved)
    }

    /// Says goodbye when nothing is left to be said, and hangs up when the peer has had time to do so.
    fn end(&mut self, wire: &mut dyn Wire, now: Instant) -> Result<(), Cut> {
        let over = self.closing || self.machine.is_error();
        if !over || self.machine.has_answers() || !self.control.is_empty() || !wire.is_flushed() {
            return Ok(());
        }
        match self.said_bye {
            None => {
                self.control.push_back((Frame::Bye, Vec::new()));
                self.said_bye = Some(now);
                Ok(())
            }
            Some(at) if now - at < LINGER => Ok(()),
            Some(_) => Err(Cut(match self.machine.cause() {
                Some((what, syndrome)) => format!("{what} failed here: {syndrome}"),
                None => "closed here".into(),
            })),
        }
    }

    fn incoming(
        &mut self,
        frame: Frame,
        payload: Payload<'_>,
        keys: &KeyTable,
        now: Instant,
    ) -> Result<(), Violation> {
        match frame {
            Frame::Ping | Frame::Bye => {}
            Frame::Hello { .. } | Frame::Knock { .. } => {
                return Err(Violation::Other("a second hello"));
            }
            Frame::Resolve { key } => self.resolve(key, keys),
            Frame::Resolved { key, address, access } => {
                let access = Access::from_bits(access).filter(|_| payload.len > 0);
                if let (Some(access), Some(_)) = (access, self.device) {
                    return self.reach_by_device(key, address, access, payload);
                }
                self.map(key, address, access, payload)?;
            }
            Frame::Revoke { key } => {
                self.direct.forget(key);
                self.revoked.push(key);
            }
            Frame::Revoked { key } => drop(self.unconfirmed.remove(&key)),
            _ => {
                let (machine, mut cx) = self.with_context(Driver::Engine, keys, now);
                return machine.receive(&mut cx, frame, payload);
            }
        }
        // A peer that asks faster than it listens would fill the memory.
        if self.control.len() + self.revoked.len() > MAX_CONTROL {
            return Err(Violation::Other("more questions than answers fit"));
        }
        Ok(())
    }

    fn transmit(&mut self, keys: &KeyTable, now: Instant, max: usize, out: &mut Outgoing) -> bool {
        let (machine, mut cx) = self.with_context(Driver::Engine, keys, now);
        machine.transmit(&mut cx, max, out)
    }

    fn with_context<'a>(
        &'a mut self,
        driver: Driver,
        keys: &'a KeyTable,
        now: Instant,
    ) -> (&'a mut Machine, Context<'a>) {
        let (link, device) = (self.link, self.device);
        let (direct, begun) = (&mut self.direct, &mut self.begun);
        (&mut self.machine, Context { driver, keys, now, link, direct, begun, device })
    }

    /// The engine did not run for so long: what the peer did meanwhile is not known, and held against nobody.
    pub fn excuse(&mut self, absence: Duration) {
        self.last_heard += absence;
        if let Some(since) = &mut self.waiting {
            *since += absence;
        }
    }

    /// What has to be looked at now and then: is the peer alive, has it been silent too long, do requests wait for a
    /// connection that does not come?
    pub fn keep_house(&mut self, now: Instant) {
        if let Err(cut) = self.try_keep_house(now) {
            self.lose(cut);
        }
    }

    fn try_keep_house(&mut self, now: Instant) -> Result<(), Cut> {
        match (self.link, &mut self.wire) {
            (LinkState::Up, Some(wire)) => {
                wire.check_peer()?;
                if self.device.is_some() {
                    // A peer that does not let go has had its time: its device gets no further than the registration.
                    let timeout = self.timeout;
                    self.unconfirmed
                        .retain(|_, (since, _)| now.saturating_duration_since(*since) <= timeout);
                }
                let silence = now.saturating_duration_since(self.last_heard);
                if silence > self.timeout && wire.is_lost_by_silence() {
                    return Err(Cut(format!("silent for {silence:?}")));
                } else if silence > self.timeout {
                    // It runs, which is a sign of life: asked again when it has been silent as long once more.
                    self.last_heard = now;
                }
                if now - self.last_sent > self.timeout / 4 && self.control.is_empty() {
                    self.control.push_back((Frame::Ping, Vec::new()));
                }
            }
            (LinkState::Connecting, wire)
                if wire.is_some() || self.awaited.is_some() || self.dialing.is_some() =>
            {
                if let Some(wire) = wire {
                    wire.check_peer()?;
                }
                if self.closing {
                    return Err(Cut("closed here".into()));
                }
                if !self.machine.wants_peer() {
                    self.waiting = None;
                } else if now - *self.waiting.get_or_insert(now) > self.timeout {
                    return Err(Cut(format!("no connection within {:?}", self.timeout)));
                }
            }
            (LinkState::Connecting, _) if self.closing => {
                return Err(Cut("closed here".into()));
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
