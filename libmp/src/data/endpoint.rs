//! One side of a message, or of a put or a wait of a window, as its own rank keeps it: what it was prepared with and, once the
//! peer has prepared its side, the way there. How often it was started is counted in the memory of its device (`state`), where
//! the host, streams and kernels find it.

mod host;
pub(crate) mod observed;
pub(crate) mod stream;
mod trigger;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use gdsync::{Buffer, Deadline, Device, Stream, Word64};
use mp_kernels::Message;

use host::{Bounds, HostEnd, Shared};
pub(crate) use host::{is_set, wait};
pub(crate) use trigger::Use;
use trigger::{HostStarts, Told};

use super::counters::Counters;
use super::name::{Name, Progress, What};
use super::notice::{Key, Lane, Notice};
use super::pieces::{Moves, Pieces};
use super::plane::{Place, Plane};
use super::wait::Backoff;
use crate::error::{Error, Result};
use crate::ownership::Lock;
use crate::transport::{
    Call, Connection, End, EndNotice, EndState, Here, IN_ONE, Line, Met, NewEnd, OneSided,
    OneSidedKind, Side, open,
};

pub(crate) struct Endpoint {
    pub side: Side,
    pub neighbour: usize,
    /// This rank, in the world.
    rank: usize,
    pub key: Key,
    pub name: Arc<Name>,
    /// What is sent, or received into.
    pub memory: Pieces,
    timeout: Duration,
    /// Told to the peer, so that both name a message alike.
    number: u32,
    pub state: EndState,
    /// On host memory.
    words: Option<Words>,
    /// What the transport has of it. None for an operation on a window, whose way is known.
    end: Option<Box<dyn End>>,
    bounds: OnceLock<Bounds>,
    /// Starts by the host.
    starts: Lock<HostStarts>,
    shared: Arc<Shared>,
    /// In the list of those that wait.
    pub place: Place,
    told: OnceLock<Told>,
    /// Of an operation on a window, which nobody has prepared the other end of.
    pub one_sided: Option<OneSidedKind>,
    way: OnceLock<Result<Way>>,
    /// What went wrong when a message was moved.
    broken: OnceLock<Error>,
    counters: Arc<Counters>,
    /// When the last start was, in nanoseconds of the coarse clock.
    since: AtomicU64,
    /// For the timeline: when the start that is under way began; 0 for none.
    flying: AtomicU64,
}

/// The counters of an end in host memory.
struct Words {
    epoch: Word64,
    room: Word64,
}

impl Words {
    fn of(state: &EndState, gpu: bool) -> gdsync::Result<Option<Words>> {
        if gpu { Ok(None) } else { Ok(Some(Words { epoch: state.epoch()?, room: state.room()? })) }
    }
}

/// The way to the other end.
pub(crate) struct Way {
    /// Length of the message; the receiver's buffer may be longer.
    pub len: u64,
    /// For kernels, or why they cannot use it. Of an end in host memory without what [`Endpoint::handle`] adds.
    pub message: std::result::Result<Message, &'static str>,
    /// For the CPU.
    pub host: Option<Arc<HostEnd>>,
    /// On a GPU's stream: to the stage before a send, from the stage behind a receive.
    pub copies: Moves,
    /// The peer's memory, mapped as long as this end lives.
    pub held: Vec<Buffer<u8>>,
    /// The peer's number of its end.
    number: u32,
    /// Holds what is registered for it, and completes what kernels take.
    line: Arc<dyn Line>,
    /// Whether something has to be moved that a user's kernel cannot move.
    staged: bool,
}

impl Endpoint {
    /// Makes an end, tells the peer, and pairs what can be paired.
    pub fn prepare(
        plane: &Plane,
        (rank, timeout): (usize, Duration),
        side: Side,
        memory: Pieces,
        key: Key,
        verb: &'static str,
    ) -> Result<Arc<Endpoint>> {
        let direction = if side == Side::Send { "to" } else { "from" };
        let host = plane.peer(rank).host.clone();
        let name = Name { verb, tag: key.tag, direction, rank, host };
        let name = Arc::new(name);
        plane.check_after(Duration::ZERO, || format!("preparing {name}"))?;
        let neighbour = plane.neighbour(rank)?;
        let _span = plane.trace.span("host", format!("prepare {name}"));
        plane.listen(neighbour);
        let call = Call { plane, timeout, op: &|| name.to_string() };
        let NewEnd { state, end: open_end } = open(&call, side, neighbour, rank, &memory)?;
        let opening = open_end.opening();
        let (len, gpu) = (memory.len() as u64, memory.device().as_cuda().is_some());
        let end = Endpoint::new(&call, side, neighbour, key, name.clone(), memory, state)?;
        let end = Arc::new(Endpoint { end: Some(open_end), ..end });
        if gpu {
            end.bounds(plane)?;
            end.told(plane)?;
        }
        let notice = EndNotice { len, gpu, number: end.number, opening };
        let notice = match side {
            Side::Send => Notice::Send { key, end: notice },
            Side::Recv => Notice::Recv { key, end: notice },
        };
        plane
            .announce(end.clone(), (side, key), notice)
            .map_err(|error| end.cause(plane, error))?;
        tracing::debug!(operation = %end.name, bytes = len, "prepared");
        Ok(end)
    }

    /// The end of an operation on a window of rank `rank` of the world: its way is known. There is always room for a put, and a
    /// wait posts nothing, so what the peer of a message would have done has been done for all time.
    pub fn of_window(
        plane: &Plane,
        timeout: Duration,
        (verb, rank): (&'static str, usize),
        connection: &dyn Connection,
        device: &Device,
        mut what: OneSided,
    ) -> Result<Arc<Endpoint>> {
        let direction = match what.kind {
            OneSidedKind::Put { .. } => "to",
            OneSidedKind::Get => "from",
            OneSidedKind::Wait => "of",
        };
        let (host, tag) = (plane.peer(rank).host.clone(), what.signal.unwrap_or_default() as u64);
        let name = Arc::new(Name { verb, tag, direction, rank, host });
        plane.check_after(Duration::ZERO, || format!("preparing {name}"))?;
        let failed = |source| broken(&name, source);
        let state = plane.pieces.cut_for(device, EndState::size(None)).map_err(failed)?;
        let state = EndState::new(state);
        state.make_room().map_err(failed)?;
        if what.memory.is_empty() {
            // Memory of the device in any case.
            what.memory = state.memory().slice(0..0).map_err(failed)?;
        }
        let call = Call { plane, timeout, op: &|| name.to_string() };
        let met = connection.one_sided(&call, &what, &state)?;
        let key = Key { group: 0, tag, lane: Lane::Message };
        let (side, kind, len) = (what.kind.side(), what.kind, what.memory.len() as u64);
        let neighbour = plane.neighbour(rank)?;
        let memory = what.memory.into();
        let end = Endpoint::new(&call, side, neighbour, key, name.clone(), memory, state)?;
        let end = Endpoint { one_sided: Some(kind), ..end };
        if end.memory.device().as_cuda().is_some() {
            end.told(plane)?;
        }
        // Nobody else knows it yet.
        let _ = end.way.set(end.way_of(plane, met, len, 0));
        end.met(plane)?;
        Ok(Arc::new(end))
    }

    fn new(
        call: &Call<'_>,
        side: Side,
        neighbour: usize,
        key: Key,
        name: Arc<Name>,
        memory: Pieces,
        state: EndState,
    ) -> Result<Endpoint> {
        let plane = call.plane;
        let words = Words::of(&state, memory.device().as_cuda().is_some());
        Ok(Endpoint {
            side,
            neighbour,
            rank: plane.rank(),
            key,
            counters: plane.counters_of(name.rank),
            words: words.map_err(|source| call.failed(source))?,
            name,
            memory,
            timeout: call.timeout,
            number: plane.next_end(),
            state,
            end: None,
            bounds: OnceLock::new(),
            starts: Lock::new(HostStarts::default()),
            shared: Arc::default(),
            place: Place::default(),
            told: OnceLock::new(),
            one_sided: None,
            way: OnceLock::new(),
            broken: OnceLock::new(),
            since: AtomicU64::new(observed::coarse_now()),
            flying: AtomicU64::new(0),
        })
    }

    /// A call of the transport for this end.
    fn call<R>(&self, plane: &Plane, call: impl FnOnce(&Call<'_>, &Here<'_>) -> R) -> R {
        let Endpoint { side, neighbour, memory, state, .. } = self;
        let (side, neighbour, rank) = (*side, *neighbour, self.name.rank);
        let here = Here { side, neighbour, rank, memory, state };
        call(&Call { plane, timeout: self.timeout, op: &|| self.name.to_string() }, &here)
    }

    /// Length of the message and of the posted buffer.
    fn lengths(&self, other: u64) -> Result<(u64, u64)> {
        let here = self.memory.len() as u64;
        let (sent, posted) = match self.side {
            Side::Send => (here, other),
            Side::Recv => (other, here),
        };
        if sent > posted {
            return Err(Error::Truncated { op: self.name.to_string(), sent, posted });
        }
        Ok((sent, posted))
    }

    /// The way, for messages of `len` bytes, to an end that the peer calls `number`.
    fn way_of(&self, plane: &Plane, met: Met, len: u64, number: u32) -> Result<Way> {
        let Met { mut message, staged, mine, line, moves, slots, ahead, mut held } = met;
        let gpu = self.memory.device().as_cuda().is_some();
        let (host, copies) = match gpu {
            true => {
                if let Ok(message) = &mut message {
                    held.extend(self.bound(plane, &*line, message)?);
                }
                let moves = Moves::new(moves, self.memory.device());
                (None, moves.map_err(|source| broken(&self.name, source))?)
            }
            false => {
                let host = HostEnd::new(
                    &self.state,
                    mine,
                    line.clone(),
                    (moves, slots, ahead),
                    self.shared.clone(),
                );
                (
                    Some(Arc::new(host.map_err(|source| broken(&self.name, source))?)),
                    Moves::default(),
                )
            }
        };
        Ok(Way { len, message, host, copies, held, number, line, staged })
    }

    /// What ends waits on the device, and where they say so.
    pub fn bounds(&self, plane: &Plane) -> Result<&Bounds> {
        if let Some(made) = self.bounds.get() {
            return Ok(made);
        }
        let device = self.memory.device();
        let abort = plane.abort_of(device)?;
        let report = plane.report(device, self.name.clone())?;
        // Two threads may come at once: one's stays.
        Ok(self.bounds.get_or_init(|| Bounds { abort, timeout: self.timeout, report }))
    }

    /// The same, for kernels, and what the way adds; what they use for it.
    fn bound(
        &self,
        plane: &Plane,
        line: &dyn Line,
        message: &mut Message,
    ) -> Result<Option<Buffer<u8>>> {
        let Bounds { abort, timeout, report } = self.bounds(plane)?;
        message.abort = abort.address;
        message.timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        message.report = report.address().map_err(|source| broken(&self.name, source))?;
        self.call(plane, |call, here| line.for_kernels(call, here.device(), message))
    }

    /// What kernels take. Waits until the peer has prepared and, through a NIC, connected its side of the kernels' link.
    ///
    /// # Errors
    /// What is wrong with the other side; [`Error::Mismatch`] for what kernels cannot move.
    pub fn handle(&self, plane: &Plane) -> Result<Message> {
        let way = self.meet_by(plane, true)?;
        let refused = |reason: &str| Error::Mismatch {
            op: format!("{} in a kernel", self.name),
            reason: reason.to_owned(),
        };
        let mut message = way.message.map_err(refused)?;
        if way.staged {
            return Err(refused(IN_ONE));
        }
        if message.report == 0 {
            self.bound(plane, &*way.line, &mut message)?;
        }
        Ok(message)
    }

    /// The user has dropped the operation: nothing starts it any more.
    pub fn retire(&self, plane: &Plane) {
        let mut starts = self.lock();
        starts.dropped = true;
        if !starts.is_under_way() {
            self.release(plane);
            drop(starts);
            plane.waiting.forget(self);
        }
    }

    /// Nothing starts it any more.
    pub fn is_dropped(&self) -> bool {
        self.lock().dropped
    }

    /// It was dropped, and nothing is under way.
    fn release(&self, plane: &Plane) {
        use std::sync::atomic::Ordering;
        // What streams still have of it is used until the world ends.
        if let Some(end) = &self.end
            && !plane.ended()
            && self.shared.queued.load(Ordering::Acquire) == 0
        {
            self.call(plane, |call, here| end.retire(call, here));
        }
    }

    /// Makes sure that a stream is one of the memory's device.
    pub fn check(&self, stream: &Stream) -> Result<()> {
        let device = self.memory.device();
        if device.ordinal() == stream.device().ordinal() {
            return Ok(());
        }
        Err(Error::Mismatch {
            op: self.name.to_string(),
            reason: format!(
                "its memory belongs to {device}, and {} is a stream of {}",
                stream.name(),
                stream.device()
            ),
        })
    }

    /// The way to the other end, if it is known; what is wrong with it or with this side.
    pub fn way(&self) -> Result<Option<&Way>> {
        if let Some(error) = self.broken.get() {
            return Err(error.clone());
        }
        self.way.get().map(|way| way.as_ref().map_err(Clone::clone)).transpose()
    }

    /// The same, and if the peer's memory could not be had because the peer is gone, that.
    pub fn known(&self, plane: &Plane) -> Result<Option<&Way>> {
        self.way().map_err(|error| self.cause(plane, error))
    }

    /// Whether the other side is known.
    pub fn is_paired(&self) -> bool {
        self.way.get().is_some()
    }

    /// What an operation failed with; if it failed because the world is over, why that is.
    pub fn cause(&self, plane: &Plane, error: Error) -> Error {
        let (Error::Memory { .. } | Error::Nic { .. }) = error else { return error };
        let Progress { what, age, .. } = self.progress(plane);
        plane.check_after(age, || what.to_string()).err().unwrap_or(error)
    }

    /// Whether the peer has prepared its end and, for kernels that reach it through the NIC, connected its side of their link.
    fn is_met(&self, plane: &Plane, by_kernels: bool) -> Result<bool> {
        let connected = match &self.end {
            Some(end) if by_kernels => {
                self.call(plane, |call, here| end.is_connected(call, here))?
            }
            _ => true,
        };
        Ok(connected && self.way.get().is_some())
    }

    /// The way to the peer for streams; waits until it has prepared its end.
    pub fn meet(&self, plane: &Plane) -> Result<&Way> {
        // On a GPU they are kernels.
        self.meet_by(plane, self.memory.device().as_cuda().is_some())
    }

    fn meet_by(&self, plane: &Plane, by_kernels: bool) -> Result<&Way> {
        plane.check_after(Duration::ZERO, || self.name.to_string())?;
        if !self.is_met(plane, by_kernels)? {
            let since = Instant::now();
            let mut backoff = Backoff::new(Deadline::after(self.timeout));
            loop {
                plane.listen(self.neighbour);
                if self.is_met(plane, by_kernels)? {
                    break;
                }
                plane.progress();
                plane.pause(&mut backoff, || {
                    let what = What { name: self.name.clone(), expected: 0, seen: 0 };
                    Progress { what, age: since.elapsed(), why: self.why_late(plane) }
                })?;
            }
        }
        self.met(plane)
    }

    /// The way to the peer, which was waited for.
    pub fn met(&self, plane: &Plane) -> Result<&Way> {
        self.known(plane)?.ok_or(Error::NoOperations)
    }

    /// Why nothing came, for all that is known here.
    fn why_late(&self, plane: &Plane) -> String {
        if self.is_paired() {
            return self.name.why_late();
        }
        let tags = plane.tags_told(self.neighbour, self.side, self.key);
        let (rank, tag) = (self.name.rank, self.key.tag);
        let other = if self.side == Side::Send { "receive" } else { "send" };
        format!("rank {rank} has not prepared a {other} with tag {tag}; it has {tags}")
    }

    /// The peer's end is known now.
    pub fn pair(&self, plane: &Plane, other: EndNotice) {
        let Some(end) = &self.end else { return };
        let way = self.lengths(other.len).and_then(|(sent, posted)| {
            let met =
                |call: &Call<'_>, here: &Here<'_>| end.connect(call, here, &other, sent, posted);
            self.way_of(plane, self.call(plane, met)?, sent, other.number)
        });
        if let Err(Error::Memory { source, .. }) = &way {
            plane.suspect(self.neighbour, source);
        }
        // An end is paired once.
        let _ = self.way.set(way);
    }

    /// A hint that it is started or, with `starts` false, waited for soon: on host memory asks for the cache lines that other ranks have.
    pub fn prefetch(&self, starts: bool) {
        if let Some(Ok(Way { host: Some(host), .. })) = self.way.get() {
            match (starts, self.side) {
                (true, _) => host.prefetch_start(),
                (false, Side::Recv) => host.prefetch_message(),
                (false, Side::Send) => {}
            }
        }
    }

    /// What a start of the host looks at, on host memory and once the peer is known.
    pub fn signal(&self) -> Option<Word64> {
        let Some(Ok(Way { host: Some(host), .. })) = self.way.get() else { return None };
        Some(host.signal().clone())
    }
}

pub(crate) fn broken(name: &Name, source: gdsync::Error) -> Error {
    Error::Memory { op: name.to_string(), source }
}
