//! One side of a message, as its own rank keeps it: what it was prepared with, the way to the other side once that is
//! known, and how far its starts have come.

mod observed;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use gdsync::{Buffer, Deadline, PeerMemory, Stream, Word64};

use super::counters::Counters;
use super::epochs::Epochs;
use super::nic::{Ends, MessageWay, refused};
use super::notice::{Key, Notice, Target, WordName};
use super::operation::{Name, Progress, What, pause};
use super::peer::Peer;
use super::pieces::{Move, Pieces};
use super::plane::Plane;
use super::wait::Backoff;
use super::waiting::Wake;
use crate::error::{Error, Result};
use crate::trace::Label;

/// Which side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Send,
    Recv,
}

pub(crate) struct Half {
    pub side: Side,
    pub neighbour: usize,
    /// This rank, in the world.
    rank: usize,
    pub key: Key,
    pub name: Arc<Name>,
    pub timeout: Duration,
    /// What is sent, or received into.
    pub memory: Pieces,
    /// Of a receive in pieces: their handles, for the sender.
    _directory: Option<Buffer<u8>>,
    /// This rank's word: credits for a send, arrivals for a receive.
    word: Word64,
    word_name: WordName,
    /// What a NIC needs, if the path leads through one.
    ends: Option<Ends>,
    other: OnceLock<Result<Other>>,
    /// Number of the peer's word.
    peer_word: OnceLock<u32>,
    /// What went wrong when a message was moved.
    broken: OnceLock<Error>,
    epochs: Mutex<Epochs>,
    dropped: AtomicBool,
    counters: Arc<Counters>,
    /// When the last start was, in nanoseconds of the coarse clock.
    since: AtomicU64,
    /// For the timeline: when the start that is under way began; 0 for none.
    flying: AtomicU64,
}

/// What the peer tells of its side.
pub(crate) struct OtherNotice {
    pub word: WordName,
    pub len: u64,
    pub memory: Option<Target>,
}

/// The way to the other side.
pub(crate) struct Other {
    /// Of a send: the word in which this side sees arrivals, and its value that stands for none. The peer's, or what
    /// mirrors it here.
    arrivals: Word64,
    arrivals_base: u64,
    word_name: WordName,
    /// Length of the message; the receiver's buffer may be longer.
    pub len: u64,
    way: Way,
}

enum Way {
    /// The peer's memory is mapped here.
    Direct {
        /// The peer's word: arrivals of a send, credits of a receive.
        word: Word64,
        /// Of a send: which bytes go where.
        moves: Vec<Move>,
        /// Of a send: moves what the CPU does not reach.
        stream: Option<Arc<Stream>>,
    },
    Nic(MessageWay),
}

impl Half {
    /// Makes a half, tells the peer, and pairs what can be paired.
    pub fn prepare(
        peer: &Peer,
        side: Side,
        memory: impl Into<Pieces>,
        key: Key,
        verb: &'static str,
    ) -> Result<Arc<Half>> {
        let plane = &peer.plane;
        let direction = if side == Side::Send { "to" } else { "from" };
        let name =
            Name { verb, tag: key.tag, direction, rank: peer.rank, host: peer.host().into() };
        plane.check_after(Duration::ZERO, || format!("preparing {name}"))?;
        let neighbour = plane.neighbour(peer.rank)?;
        let _span = plane.trace.span("host", format!("prepare {name}"));
        plane.listen(neighbour);
        let memory = memory.into();
        let len = memory.len() as u64;
        let ends = match plane.link(neighbour) {
            Some(_) => {
                let who = "through a NIC a message goes in one";
                let memory = memory.in_one(|| name.to_string(), who)?;
                Some(Ends::new(plane, side, memory, &name)?)
            }
            None => None,
        };
        let failed = |source| broken(&name, source);
        let directory = match (side, memory.whole()) {
            (Side::Recv, None) => Some(memory.directory(&plane.pieces).map_err(failed)?),
            _ => None,
        };
        let exported = || match (&directory, memory.whole()) {
            (Some(directory), _) => directory.export().map(Target::Pieces).map(Some),
            (None, Some(whole)) => whole.export().map(Target::Mapped).map(Some),
            (None, None) => Ok(None),
        };
        let target = match (side, &ends) {
            (Side::Recv, None) if len > 0 => exported().map_err(failed)?,
            (Side::Recv, Some(ends)) => ends.target().map(Target::Registered),
            _ => None,
        };
        let (word, word_name) = plane.take_word(memory.device(), || name.to_string())?;
        let half = Arc::new(Half {
            side,
            neighbour,
            rank: plane.rank(),
            key,
            name: Arc::new(name),
            timeout: peer.timeout,
            memory,
            _directory: directory,
            word,
            word_name,
            ends,
            other: OnceLock::new(),
            peer_word: OnceLock::new(),
            broken: OnceLock::new(),
            epochs: Mutex::new(Epochs::new()),
            dropped: AtomicBool::new(false),
            counters: plane.counters_of(peer.rank).clone(),
            since: AtomicU64::new(observed::coarse_now()),
            flying: AtomicU64::new(0),
        });
        let word = word_name;
        let notice = match side {
            Side::Send => Notice::Send { key, word, len },
            Side::Recv => Notice::Recv { key, word, len, memory: target },
        };
        plane.announce(&half, notice).map_err(|error| half.cause(plane, error))?;
        tracing::debug!(operation = %half.name, bytes = len, "prepared");
        Ok(half)
    }

    /// The other side is known now.
    pub fn pair(&self, plane: &Plane, other: OtherNotice) {
        // A half is paired once.
        let _ = self.peer_word.set(other.word.index);
        let way = self.way_to(plane, other);
        if let Err(Error::Memory { source, .. }) = &way {
            plane.suspect(self.neighbour, source);
        }
        let _ = self.other.set(way);
    }

    fn way_to(&self, plane: &Plane, other: OtherNotice) -> Result<Other> {
        let here = self.memory.len() as u64;
        let (sent, posted) = match self.side {
            Side::Send => (here, other.len),
            Side::Recv => (other.len, here),
        };
        if sent > posted {
            return Err(Error::Truncated { op: self.name.to_string(), sent, posted });
        }
        let (word_name, len) = (other.word, sent);
        let device = self.memory.device();
        if let (Some(ends), Some(link)) = (&self.ends, plane.link(self.neighbour)) {
            let target = match other.memory {
                Some(Target::Registered(place)) if sent > 0 => Some(place),
                _ => None,
            };
            let word = plane.remote_word(self.neighbour, word_name.index)?;
            let (arrivals, arrivals_base) = match &ends.mirror {
                Some(mirror) => (mirror.word.clone(), mirror.name.base),
                None => (self.word.clone(), self.word_name.base),
            };
            let way = MessageWay::new(link.clone(), word, word_name.base, target, len);
            return Ok(Other { arrivals, arrivals_base, word_name, len, way: Way::Nic(way) });
        }
        let word = plane.peer_word(self.neighbour, word_name.index, device)?;
        let moves = match self.side {
            Side::Send if sent > 0 => self.moves_to(other.memory, sent)?,
            _ => Vec::new(),
        };
        let by_cpu = moves.iter().all(Move::by_cpu);
        let stream = if by_cpu { None } else { Some(plane.copy_stream(device)?) };
        let (arrivals, arrivals_base) = (word.clone(), word_name.base);
        let way = Way::Direct { word, moves, stream };
        Ok(Other { arrivals, arrivals_base, word_name, len, way })
    }

    /// What a send moves into the receiver's memory.
    fn moves_to(&self, target: Option<Target>, sent: u64) -> Result<Vec<Move>> {
        let failed = |source| broken(&self.name, source);
        let device = self.memory.device();
        let target: Option<Pieces> = match target {
            Some(Target::Mapped(handle)) => {
                Some(PeerMemory::map(&handle, device).map_err(failed)?.buffer.into())
            }
            Some(Target::Pieces(directory)) => Pieces::map(&directory, device).map_err(failed)?,
            _ => None,
        };
        let target = target.filter(|target| target.len() as u64 >= sent);
        let target = target.ok_or_else(|| Error::Mismatch {
            op: self.name.to_string(),
            reason: format!("the receiver has not opened the {sent} bytes that it has posted"),
        })?;
        self.memory.moves_to(&target).map_err(failed)
    }

    /// The other side, if it is known; what is wrong with it or with this side.
    pub fn other(&self) -> Result<Option<&Other>> {
        if let Some(error) = self.broken.get() {
            return Err(error.clone());
        }
        self.other.get().map(|other| other.as_ref().map_err(Clone::clone)).transpose()
    }

    /// The same, and if the peer's memory could not be had because the peer is gone, that.
    pub fn known(&self, plane: &Plane) -> Result<Option<&Other>> {
        self.other().map_err(|error| self.cause(plane, error))
    }

    /// What an operation failed with; if it failed because the world is over, why that is.
    fn cause(&self, plane: &Plane, error: Error) -> Error {
        let (Error::Memory { .. } | Error::Nic { .. }) = error else { return error };
        let Progress { what, age } = self.progress();
        plane.check_after(age, || what.to_string()).err().unwrap_or(error)
    }

    /// A start by the host.
    pub fn start(self: &Arc<Self>, plane: &Plane) -> Result<()> {
        plane.check_after(Duration::ZERO, || self.name.to_string())?;
        let _span = self.span(plane, "start");
        plane.listen_if(self.other.get().is_none(), self.neighbour);
        self.known(plane)?;
        let mut epochs = self.lock();
        epochs.start().map_err(|epoch| self.started_before(epoch))?;
        self.count(plane);
        let (epoch, waits) = (epochs.started(), self.go_on(plane, &mut epochs));
        drop(epochs);
        if let Some(wake) = waits {
            plane.waiting.add(self.clone(), epoch, wake);
        }
        self.known(plane).map(drop)
    }

    /// Does the part of this rank in start number `epoch`, if it can be done now. What it waits for, or nothing if nothing
    /// is left to do.
    pub fn help(&self, plane: &Plane, epoch: u64) -> Option<Wake> {
        let mut epochs = self.lock();
        if epochs.started() != epoch {
            return None;
        }
        self.go_on(plane, &mut epochs)
    }

    /// This rank's word.
    pub fn word(&self) -> &Word64 {
        &self.word
    }

    /// Whether the other side is known.
    pub fn is_paired(&self) -> bool {
        self.other.get().is_some()
    }

    /// A send copies and signals once it has its credit, a receive gives its credit. Nothing is left to do if that was done,
    /// or cannot be done.
    fn go_on(&self, plane: &Plane, epochs: &mut Epochs) -> Option<Wake> {
        if epochs.handed() {
            return None;
        }
        let other = match self.other() {
            Ok(Some(other)) => other,
            Ok(None) => {
                self.counters.retries.add(1);
                return Some(Wake::Peer);
            }
            Err(_) => return None,
        };
        let epoch = epochs.started();
        if self.side == Side::Send && self.reached() < epoch {
            self.counters.retries.add(1);
            let credit = self.word_name.base.wrapping_add(epoch);
            return Some(Wake::Credit(credit));
        }
        let _moving = self.span(plane, if self.side == Side::Send { "move" } else { "post" });
        // The peer may see it before this thread looks at the clock again.
        let leaves = plane.trace.now();
        let handed = self.hand(plane, other, epoch).unwrap_or_else(|source| {
            let _ = self.broken.set(broken(&self.name, source));
            true
        });
        if handed {
            epochs.hand();
        }
        if handed && self.side == Side::Send && plane.trace.is_on() {
            plane.trace.leaves(plane.trace.thread_lane(), self.message(epoch), leaves);
        }
        (!handed).then_some(Wake::Room)
    }

    /// Moves the message and signals it, or gives the credit. False if the NIC has no room now.
    fn hand(&self, plane: &Plane, other: &Other, epoch: u64) -> gdsync::Result<bool> {
        let value = other.word_name.base.wrapping_add(epoch);
        let (word, moves, stream) = match (&other.way, &self.ends) {
            (Way::Direct { word, moves, stream }, _) => (word, moves, stream),
            (Way::Nic(way), Some(ends)) => {
                return Ok(way.hand(plane, ends, epoch).unwrap_or_else(|error| {
                    plane.path_failed(self.neighbour, &error);
                    false
                }));
            }
            // A way through the NIC has its ends.
            (Way::Nic(_), None) => return Ok(false),
        };
        if let Some(stream) = stream {
            moves.iter().try_for_each(|Move { from, to }| stream.copy(to, from))?;
            stream.signal(word, value)?;
            return Ok(true);
        }
        for Move { from, to } in moves {
            // SAFETY: while a send is started its region is not written: the contract of `Region`.
            to.write(unsafe { from.as_slice() }?)?;
        }
        // Release: whoever sees the word sees the bytes; and of a credit, that what was read before has been read.
        word.store(value).map(|()| true)
    }

    /// A start on a stream, which then waits, moves and signals by itself.
    pub fn start_on(&self, plane: &Plane, stream: &Stream) -> Result<()> {
        // The streams of a world that ends meanwhile take no more waits.
        self.start_of(plane, stream).map_err(|error| self.cause(plane, error))
    }

    fn start_of(&self, plane: &Plane, stream: &Stream) -> Result<()> {
        let other = self.meet(plane)?;
        match (&other.way, &self.ends) {
            (Way::Direct { word, moves, .. }, _) => self.enqueue(plane, stream, |epoch| {
                let value = other.word_name.base.wrapping_add(epoch);
                let copied = moves.iter().try_for_each(|Move { from, to }| stream.copy(to, from));
                copied.and_then(|()| stream.signal(word, value)).map_err(|e| broken(&self.name, e))
            }),
            (Way::Nic(way), Some(ends)) => {
                let op = || self.name.to_string();
                let (neighbour, timeout) = (self.neighbour, self.timeout);
                let link = plane.stream_link(neighbour, stream, timeout, &op)?;
                let mut turn = way.with_posts(plane, ends, 0, |posts| {
                    plane.turn_with_room(neighbour, &link, posts, timeout, &op)
                })?;
                self.enqueue(plane, stream, |epoch| {
                    way.with_posts(plane, ends, epoch, |posts| turn.post(posts, Some(stream)))
                        .map_err(refused(op))?;
                    if self.side == Side::Recv {
                        return Ok(());
                    }
                    // What comes after it may write the memory.
                    let arrived = other.arrivals_base.wrapping_add(epoch);
                    let waiting = stream.wait_geq64(&other.arrivals, arrived);
                    waiting.map_err(|e| broken(&self.name, e))
                })
            }
            // A way through the NIC has its ends.
            (Way::Nic(_), None) => Err(Error::NoOperations),
        }
    }

    /// Enqueues a start: of a send, the stream waits for the credit; then what `go` enqueues for that epoch.
    fn enqueue(
        &self,
        plane: &Plane,
        stream: &Stream,
        go: impl FnOnce(u64) -> Result<()>,
    ) -> Result<()> {
        let mut epochs = self.lock();
        let epoch = epochs.start_on(stream.name()).map_err(|e| self.started_before(e))?;
        epochs.hand();
        self.count(plane);
        let _span = self.span(plane, "enqueue");
        let enqueue = || {
            if self.side == Side::Send {
                let credit = self.word_name.base.wrapping_add(epoch);
                let waiting = stream.wait_geq64(&self.word, credit);
                waiting.map_err(|source| broken(&self.name, source))?;
            }
            go(epoch)
        };
        let label = || {
            let leaves = (self.side == Side::Send).then(|| self.message(epoch));
            Label { leaves, ..Label::new(self.name.to_string(), &self.values(epoch)) }
        };
        let enqueued = plane.probes.around(&plane.trace, stream, label, enqueue);
        match &enqueued {
            // The send is complete where the stream is.
            Ok(()) if self.side == Side::Send => epochs.order(stream.name()),
            Ok(()) => {}
            // What has been enqueued of it, nobody knows.
            Err(error) => drop(self.broken.set(error.clone())),
        }
        enqueued
    }

    /// Makes a stream wait for the last start.
    pub fn wait_on(&self, plane: &Plane, stream: &Stream) -> Result<()> {
        let other = self.meet(plane)?;
        let mut epochs = self.lock();
        let (word, base) = match self.side {
            Side::Send => (&other.arrivals, other.arrivals_base),
            Side::Recv => (&self.word, self.word_name.base),
        };
        let epoch = epochs.started();
        let _span = self.span(plane, "enqueue wait for");
        let label = || {
            let arrives = (self.side == Side::Recv).then(|| self.message(epoch));
            let name = format!("wait for {}", self.name);
            Label { arrives, ..Label::new(name, &self.values(epoch)) }
        };
        let wait = || stream.wait_geq64(word, base.wrapping_add(epoch));
        let waiting = plane.probes.around(&plane.trace, stream, label, wait);
        self.counters.waits.add(1);
        if let Err(source) = waiting {
            drop(epochs);
            return Err(self.cause(plane, broken(&self.name, source)));
        }
        epochs.order(stream.name());
        Ok(())
    }

    /// Waits until the peer has prepared its side.
    pub fn meet(&self, plane: &Plane) -> Result<&Other> {
        plane.check_after(Duration::ZERO, || self.name.to_string())?;
        if self.known(plane)?.is_none() {
            let mut backoff = Backoff::new(Deadline::after(self.timeout));
            while self.known(plane)?.is_none() {
                plane.listen(self.neighbour);
                plane.progress();
                pause(plane, &mut backoff, || self.progress())?;
            }
        }
        // It is known: that was waited for.
        self.known(plane)?.ok_or_else(|| self.started_before(0))
    }

    /// Whether the last start is complete. The other operations of this rank get no help by it.
    pub fn poll(&self, plane: &Plane) -> Result<bool> {
        plane.listen_if(self.other.get().is_none(), self.neighbour);
        let mut epochs = self.lock();
        let handed = self.go_on(plane, &mut epochs).is_none();
        if let Err(error) = self.other() {
            drop(epochs);
            return Err(self.cause(plane, error));
        }
        let complete = handed && self.completed() >= epochs.started();
        if complete && epochs.observe() {
            self.landed(plane, epochs.started());
        }
        Ok(complete)
    }

    /// How many starts are complete, as far as is known here. Acquire: what came before is visible.
    fn completed(&self) -> u64 {
        match (self.side, self.other.get()) {
            (Side::Recv, _) => self.reached(),
            (Side::Send, Some(Ok(other))) => since(&other.arrivals, other.arrivals_base),
            (Side::Send, _) => 0,
        }
    }

    /// The epoch that this rank's word has reached. Acquire.
    fn reached(&self) -> u64 {
        since(&self.word, self.word_name.base)
    }

    pub fn progress(&self) -> Progress {
        let epochs = self.lock();
        let (expected, seen) = (epochs.started(), self.reached());
        Progress { what: What { name: self.name.clone(), expected, seen }, age: self.age() }
    }

    /// Its user has dropped it.
    pub fn retire(self: &Arc<Self>, plane: &Plane) {
        if plane.ended() {
            return;
        }
        if self.completed() >= self.lock().started() {
            plane.retire(self);
        } else {
            // Something is under way that this rank's stream or the peer has yet to write: the words stay taken, and
            // memory that a NIC uses stays registered.
            plane.abandon(self);
        }
    }

    /// The word that mirrors the peer's.
    pub fn mirror(&self) -> Option<u32> {
        self.ends.as_ref()?.mirror.as_ref().map(|mirror| mirror.name.index)
    }

    /// Notes that it was dropped with nothing under way.
    pub fn mark_dropped(&self) {
        self.dropped.store(true, Ordering::Relaxed);
    }

    /// If it was dropped with nothing under way, and its other side is known: this rank's word and the peer's, which
    /// neither needs any more.
    pub fn done_words(&self) -> Option<(u32, u32)> {
        let peer = *self.peer_word.get()?;
        self.dropped.load(Ordering::Relaxed).then_some((self.word_name.index, peer))
    }

    fn lock(&self) -> MutexGuard<'_, Epochs> {
        self.epochs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn started_before(&self, epoch: u64) -> Error {
        Error::Started { op: self.name.to_string(), epoch }
    }
}

fn since(word: &Word64, base: u64) -> u64 {
    word.load().unwrap_or(base).wrapping_sub(base)
}

pub(crate) fn broken(name: &Name, source: gdsync::Error) -> Error {
    Error::Memory { op: name.to_string(), source }
}
