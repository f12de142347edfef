//! One side of a message, or of a put or a wait of a window, as its own rank keeps it: what it was prepared with and, once the
//! peer has prepared its side, the way there. How often it was started is counted in the memory of its device (`state`), where
//! the host, streams and kernels find it.

mod host;
mod nic;
mod observed;
mod state;
mod trigger;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use gdsync::{Buffer, Deadline, Device, PeerHandle, PeerMemory, Space, Stream, Word64};
use mp_kernels::Message;
use serde::{Deserialize, Serialize};

use host::{Bounds, HostEnd, Shared, Theirs};
pub(crate) use host::{is_set, wait};
pub(crate) use nic::close;
use nic::{NicOpening, NicWay, Registered, slots_of};
pub(crate) use state::EndState;
use state::packets;
pub(crate) use trigger::Use;
use trigger::{HostStarts, Own};

use super::counters::Counters;
use super::notice::{Key, Lane, Notice};
use super::operation::{Name, Progress, What, pause};
use super::path::Path;
use super::peer::Peer;
use super::pieces::{Move, Pieces};
use super::plane::Plane;
use super::wait::Backoff;
use crate::error::{Error, Result};
use crate::transport::Route;

/// Which side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Send,
    Recv,
}

pub(crate) struct Endpoint {
    pub side: Side,
    pub neighbour: usize,
    /// This rank, in the world.
    rank: usize,
    pub key: Key,
    pub name: Arc<Name>,
    /// What is sent, or received into.
    pub memory: Pieces,
    /// The same in one piece, if the transport takes or brings it there: several pieces, or memory that the peer cannot map.
    stage: Option<Buffer<u8>>,
    /// Of a receive in pieces: their handles, for the sender.
    _directory: Option<Buffer<u8>>,
    timeout: Duration,
    /// Told to the peer, so that both name a message alike.
    number: u32,
    pub state: EndState,
    /// On host memory.
    words: Option<Words>,
    /// Of a GPU's end: a state in host memory, whose signal a CPU or a NIC raises.
    outer: Option<EndState>,
    /// Of a send from host memory: where the message waits if a GPU is to fetch it.
    fetched: Option<Buffer<u8>>,
    /// If the peer is behind the NIC.
    nic: Option<Registered>,
    /// The peer's side of that.
    nic_peer: OnceLock<NicOpening>,
    bounds: OnceLock<Bounds>,
    /// Starts by the host.
    starts: Mutex<HostStarts>,
    shared: Arc<Shared>,
    own: OnceLock<Own>,
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

/// An operation on a window, see [`Endpoint::of_window`].
pub(crate) struct OneSided {
    pub kind: OneSidedKind,
    pub verb: &'static str,
    /// The signal's number.
    pub tag: u64,
    /// Whose memory or signal it is, in the world.
    pub rank: usize,
    /// What is put, or got into.
    pub memory: Buffer<u8>,
    pub device: Device,
    pub route: Route,
    pub timeout: Duration,
}

/// What an operation on a window does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OneSidedKind {
    Put {
        signals: bool,
    },
    Get,
    /// For a signal of this rank.
    Wait,
}

/// What the peer tells of its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EndNotice {
    pub len: u64,
    pub gpu: bool,
    pub number: u32,
    pub opening: Opening,
}

/// How the peer gets to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "one for each end, and only on its way")]
pub(crate) enum Opening {
    Mapped {
        state: PeerHandle,
        /// A GPU's state in host memory.
        outer: Option<PeerHandle>,
        /// Of a receive the buffer, of a send what a GPU fetches the message from.
        memory: Option<PeerHandle>,
        /// Of a receive in pieces: memory with their handles, for a CPU.
        pieces: Option<PeerHandle>,
    },
    Nic(NicOpening),
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
    pub copies: Vec<Move>,
    /// The peer's memory, mapped as long as this end lives.
    pub held: Vec<Buffer<u8>>,
    /// The peer's number of its end.
    number: u32,
    /// Of an operation of a GPU on a window: what is registered for it.
    _registered: Option<Arc<HostEnd>>,
}

const IN_ONE: &str = "a kernel moves a message in one piece, and one side of this has several or memory that the other cannot map";

impl Endpoint {
    /// Makes an end, tells the peer, and pairs what can be paired.
    pub fn prepare(
        peer: &Peer,
        side: Side,
        memory: impl Into<Pieces>,
        key: Key,
        verb: &'static str,
    ) -> Result<Arc<Endpoint>> {
        let plane = &peer.plane;
        let direction = if side == Side::Send { "to" } else { "from" };
        let name =
            Name { verb, tag: key.tag, direction, rank: peer.rank, host: peer.host().into() };
        plane.check_after(Duration::ZERO, || format!("preparing {name}"))?;
        let neighbour = plane.neighbour(peer.rank)?;
        let _span = plane.trace.span("host", format!("prepare {name}"));
        plane.listen(neighbour);
        let failed = |source| broken(&name, source);
        let memory: Pieces = memory.into();
        let direct = plane.path(peer.rank)? == Path::Direct;
        let (device, len) = (memory.device().clone(), memory.len() as u64);
        let gpu = device.as_cuda().is_some();
        // The peer's kind of device is not known yet; if it is no GPU the slots stay unused.
        let inbox = (direct && side == Side::Recv && packets(&device, true, len)).then_some(len);
        let slots = slots_of(gpu && !direct, side, len);
        let state = plane.pieces.cut_for(&device, EndState::size(inbox)).map_err(failed)?;
        let state = EndState::new(state);
        let size = EndState::size(None) + (slots.0 * slots.1) as usize;
        let outer = gpu.then(|| plane.pieces.cut(&device, Space::Pinned, size));
        let outer = outer.transpose().map_err(failed)?.map(EndState::new);
        let here = plane.is_this_process(peer.rank);
        let handle = |memory: &Buffer<u8>| memory.export().ok().filter(|it| here || it.travels());
        let mut stage = None;
        let mut directory = None;
        let mut opened = None;
        match (memory.whole(), side) {
            // Nothing has to be mapped: there are no bytes, or they come as packets.
            (Some(_), Side::Recv) if len == 0 || inbox.is_some() => {}
            (Some(whole), Side::Recv) if direct => {
                opened = handle(whole);
                if opened.is_none() {
                    stage = Some(plane.pieces.cut_for(&device, len as usize).map_err(failed)?);
                }
            }
            (Some(_), _) => {}
            (None, Side::Recv)
                if direct && !gpu && memory.iter().all(|it| handle(it).is_some()) =>
            {
                directory = Some(memory.directory(&plane.pieces).map_err(failed)?);
                if a_gpu_may_be_here() {
                    stage = Some(plane.pieces.cut_for(&device, len as usize).map_err(failed)?);
                }
            }
            (None, Side::Send) if direct && !gpu => {}
            (None, _) => stage = Some(plane.pieces.cut_for(&device, len as usize).map_err(failed)?),
        }
        let fetched = (direct && side == Side::Send && !gpu && len > 0 && a_gpu_may_be_here())
            .then(|| plane.pieces.cut_for(&device, len as usize));
        let fetched = fetched.transpose().map_err(failed)?;
        let op = || name.to_string();
        let signals = outer.as_ref().unwrap_or(&state);
        let nic = match (direct, stage.as_ref().or(memory.whole())) {
            (false, Some(whole)) => {
                Some(Registered::new(plane, neighbour, side, whole, signals, slots, &op)?)
            }
            _ => None,
        };
        if let (Some(nic), true) = (&nic, gpu) {
            // Making memory may wait for kernels, and those of any rank run only later.
            nic.for_kernels(plane, neighbour, &device, &op)?;
        }
        let opening = match &nic {
            Some(nic) => Opening::Nic(nic.opening().clone()),
            None => {
                let export = |buffer: Option<&Buffer<u8>>| {
                    buffer.map(Buffer::export).transpose().map_err(failed)
                };
                let memory = match (side, opened) {
                    (_, Some(opened)) => Some(opened),
                    (Side::Recv, None) => export(stage.as_ref().filter(|_| inbox.is_none()))?,
                    (Side::Send, None) => export(fetched.as_ref())?,
                };
                Opening::Mapped {
                    state: state.memory().export().map_err(failed)?,
                    outer: export(outer.as_ref().map(EndState::memory))?,
                    memory,
                    pieces: export(directory.as_ref())?,
                }
            }
        };
        let number = plane.next_end();
        let words = Words::of(&state, gpu).map_err(failed)?;
        let end = Arc::new(Endpoint {
            side,
            neighbour,
            rank: plane.rank(),
            key,
            name: Arc::new(name),
            memory,
            stage,
            _directory: directory,
            timeout: peer.timeout,
            number,
            words,
            state,
            outer,
            fetched,
            nic,
            nic_peer: OnceLock::new(),
            bounds: OnceLock::new(),
            starts: Mutex::default(),
            shared: Arc::default(),
            own: OnceLock::new(),
            one_sided: None,
            way: OnceLock::new(),
            broken: OnceLock::new(),
            counters: plane.counters_of(peer.rank).clone(),
            since: AtomicU64::new(observed::coarse_now()),
            flying: AtomicU64::new(0),
        });
        if gpu {
            end.bounds(plane)?;
            end.own(plane)?;
        }
        let notice = EndNotice { len, gpu, number, opening };
        let notice = match side {
            Side::Send => Notice::Send { key, end: notice },
            Side::Recv => Notice::Recv { key, end: notice },
        };
        plane.announce(&end, notice).map_err(|error| end.cause(plane, error))?;
        tracing::debug!(operation = %end.name, bytes = len, "prepared");
        Ok(end)
    }

    /// The end of an operation on a window: its way is known. There is always room for a put, and a wait posts nothing, so
    /// what the peer of a message would have done has been done for all time.
    pub fn of_window(plane: &Plane, part: OneSided) -> Result<Arc<Endpoint>> {
        let OneSided { kind, verb, tag, rank, memory, device, route, timeout } = part;
        let (side, direction) = match kind {
            OneSidedKind::Put { .. } => (Side::Send, "to"),
            OneSidedKind::Get => (Side::Send, "from"),
            OneSidedKind::Wait => (Side::Recv, "of"),
        };
        let host = plane.peer(rank).host.clone();
        let name = Arc::new(Name { verb, tag, direction, rank, host });
        plane.check_after(Duration::ZERO, || format!("preparing {name}"))?;
        let failed = |source| broken(&name, source);
        let cut = plane.pieces.cut_for(&device, EndState::size(None)).map_err(failed)?;
        let state = EndState::new(cut);
        state.make_room().map_err(failed)?;
        let memory = match memory.is_empty() {
            // Memory of the device in any case.
            true => state.memory().slice(0..0).map_err(failed)?,
            false => memory,
        };
        let (full, nobody) = (state.signal().map_err(failed)?, state.nobodys().map_err(failed)?);
        let (gpu, len) = (device.as_cuda().is_some(), memory.len() as u64);
        let neighbour = match &route {
            Route::Nic(route) => route.neighbour,
            Route::Mapped { .. } => usize::MAX,
        };
        let end = Endpoint {
            side,
            neighbour,
            rank: plane.rank(),
            key: Key { group: 0, tag, lane: Lane::Message },
            name: name.clone(),
            memory: memory.clone().into(),
            stage: None,
            _directory: None,
            timeout,
            number: 0,
            words: Words::of(&state, gpu).map_err(failed)?,
            state,
            outer: None,
            fetched: None,
            nic: None,
            nic_peer: OnceLock::new(),
            bounds: OnceLock::new(),
            starts: Mutex::default(),
            shared: Arc::default(),
            own: OnceLock::new(),
            one_sided: Some(kind),
            way: OnceLock::new(),
            broken: OnceLock::new(),
            counters: plane.counters_of(rank).clone(),
            since: AtomicU64::new(observed::coarse_now()),
            flying: AtomicU64::new(0),
        };
        let message = |mine: &Word64, theirs: &Word64| -> gdsync::Result<Message> {
            Ok(Message {
                memory: memory.device_address().unwrap_or_default(),
                len,
                mine: mine.device_address()?,
                theirs: theirs.device_address()?,
                state: end.state.state()?,
                ..Message::default()
            })
        };
        let (mut message, mut held, mine, theirs, moves) = match route {
            Route::Mapped { there, word } => {
                let mut held: Vec<Buffer<u8>> = there.iter().cloned().collect();
                held.extend(word.as_ref().map(Buffer::bytes));
                let word = word.map(|word| word.word(0)).transpose().map_err(failed)?;
                let word = word.unwrap_or_else(|| nobody.clone());
                let (mine, theirs) = match side {
                    Side::Send => (full, word),
                    Side::Recv => (word, nobody),
                };
                let mut message = message(&mine, &theirs).map_err(failed)?;
                let address = there.as_ref().and_then(Buffer::device_address).unwrap_or_default();
                let moves = match (there, kind) {
                    (None, _) => Ok(Vec::new()),
                    (Some(there), OneSidedKind::Get) => {
                        // As a put the other way.
                        message.target = std::mem::replace(&mut message.memory, address);
                        Pieces::from(there).moves_to(&end.memory)
                    }
                    (Some(there), _) => {
                        message.target = address;
                        end.memory.moves_to(&there.into())
                    }
                };
                (message, held, mine, Theirs::Mapped(theirs), moves.map_err(failed)?)
            }
            Route::Nic(route) => {
                let mut message = message(&full, &nobody).map_err(failed)?;
                end.bound(plane, &mut message)?;
                let link = plane.link(neighbour).cloned();
                let link = link.ok_or_else(|| plane.no_nic(neighbour))?;
                let gets = kind == OneSidedKind::Get;
                let nic_end = nic::end_of_window(&route, &message);
                let nic_end = nic_end.ok_or_else(|| plane.no_nic(neighbour))?;
                let table = plane.table(&device, &[nic_end], &|| name.to_string())?;
                message.nic = table.device_address().unwrap_or_default();
                let way = NicWay::of_window(link, route, memory.clone(), gets);
                (message, vec![table.bytes()], full, Theirs::Nic(way), Vec::new())
            }
        };
        held.push(memory.clone());
        if gpu {
            end.own(plane)?;
            end.bound(plane, &mut message)?;
        }
        // Also on a GPU: it holds what is registered.
        let ahead = match &theirs {
            Theirs::Nic(way) => way.slots(),
            Theirs::Mapped(_) => 0,
        };
        let host = HostEnd::new(&end.state, mine, theirs, moves, ahead, end.shared.clone());
        let host = Some(Arc::new(host.map_err(failed)?));
        let (host, registered) = if gpu { (None, host) } else { (host, None) };
        let (message, copies) = (Ok(message), Vec::new());
        let way = Way { len, message, host, copies, held, number: 0, _registered: registered };
        // Nobody else knows it yet.
        let _ = end.way.set(Ok(way));
        Ok(Arc::new(end))
    }

    /// The other end is known now.
    pub fn pair(&self, plane: &Plane, other: EndNotice) {
        let way = match (&other.opening, &self.nic) {
            (Opening::Nic(opening), Some(nic)) => {
                let _ = self.nic_peer.set(opening.clone());
                self.way_by_nic(plane, nic, &other, opening)
            }
            (Opening::Mapped { .. }, None) => self.way_to(plane, &other),
            // Both sides know the path between them.
            _ => Err(plane.breach(self.neighbour, "an end of a message for another path")),
        };
        if let Err(Error::Memory { source, .. }) = &way {
            plane.suspect(self.neighbour, source);
        }
        // An end is paired once.
        let _ = self.way.set(way);
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

    /// What is moved between the memory and its stage for a message of so many bytes.
    fn stage_moves(&self, stage: &Buffer<u8>, sent: u64) -> Result<Vec<Move>> {
        let moves = match self.side {
            Side::Send => self.memory.moves_to(&stage.clone().into()),
            Side::Recv => stage
                .slice(0..sent as usize)
                .and_then(|stage| Pieces::from(stage).moves_to(&self.memory)),
        };
        moves.map_err(|source| broken(&self.name, source))
    }

    /// The way through the NIC.
    fn way_by_nic(
        &self,
        plane: &Plane,
        nic: &Registered,
        notice: &EndNotice,
        other: &NicOpening,
    ) -> Result<Way> {
        let failed = |source| broken(&self.name, source);
        let (sent, _) = self.lengths(notice.len)?;
        let device = self.memory.device();
        let gpu = device.as_cuda().is_some();
        let signals = self.outer.as_ref().unwrap_or(&self.state);
        let mine = signals.signal().map_err(failed)?;
        let whole = self.stage.as_ref().or(self.memory.whole());
        let whole = whole.ok_or_else(|| plane.no_nic(self.neighbour))?;
        let message = || -> gdsync::Result<Message> {
            Ok(Message {
                memory: whole.device_address().unwrap_or_default(),
                len: sent,
                target: if nic.has_slots() { signals.inbox()? } else { 0 },
                mine: mine.device_address()?,
                state: self.state.state()?,
                ..Message::default()
            })
        };
        let mut message = message().map_err(failed)?;
        let moves = match &self.stage {
            Some(stage) => self.stage_moves(stage, sent)?,
            None => Vec::new(),
        };
        let mut held = vec![signals.memory().clone(), whole.clone()];
        let (host, copies) = match gpu {
            true => {
                self.bound(plane, &mut message)?;
                held.push(self.fill_table(plane, nic, &mut message, other)?);
                (None, moves)
            }
            false => {
                let link = plane.link(self.neighbour).cloned();
                let link = link.ok_or_else(|| plane.no_nic(self.neighbour))?;
                let way = nic.way(link, whole.slice(0..sent as usize).map_err(failed)?, other);
                let (ahead, shared) = (way.slots(), self.shared.clone());
                let theirs = Theirs::Nic(way);
                let host = HostEnd::new(&self.state, mine, theirs, moves, ahead, shared);
                (Some(Arc::new(host.map_err(failed)?)), Vec::new())
            }
        };
        Ok(Way {
            len: sent,
            message: Ok(message),
            host,
            copies,
            held,
            number: notice.number,
            _registered: None,
        })
    }

    /// Writes what kernels need to post by themselves; their handle then leads there.
    fn fill_table(
        &self,
        plane: &Plane,
        nic: &Registered,
        message: &mut Message,
        other: &NicOpening,
    ) -> Result<Buffer<u8>> {
        let (op, device) = (|| self.name.to_string(), self.memory.device());
        let made = nic.for_kernels(plane, self.neighbour, device, &op)?;
        let end = nic.end(self.side, message, other);
        let end = end.ok_or_else(|| plane.no_nic(self.neighbour))?;
        made.table.write(&[end]).map_err(|source| broken(&self.name, source))?;
        message.nic = made.table.device_address().unwrap_or_default();
        Ok(made.table.bytes())
    }

    fn way_to(&self, plane: &Plane, notice: &EndNotice) -> Result<Way> {
        let Opening::Mapped { state, outer, memory: other_memory, pieces } = &notice.opening else {
            return Err(plane.breach(self.neighbour, "an end of a message for another path"));
        };
        let failed = |source| broken(&self.name, source);
        let (sent, posted) = self.lengths(notice.len)?;
        let device = self.memory.device();
        let gpu = device.as_cuda().is_some();
        let map = |handle: &PeerHandle| Ok(PeerMemory::map(handle, device).map_err(failed)?.buffer);
        // What a CPU is to write must be host memory: a GPU's end then waits on its outer state.
        let theirs = match (outer, gpu) {
            (Some(outer), false) => map(outer)?,
            _ => map(state)?,
        };
        let waits = match &self.outer {
            Some(outer) if !notice.gpu => outer,
            _ => &self.state,
        };
        let mut held = vec![theirs.clone()];
        let theirs = EndState::new(theirs);
        let as_packets = packets(device, notice.gpu, posted);
        // From a CPU to a GPU; the receiver fetches from the sender. Otherwise the sender writes the receiver's buffer.
        let fetched = gpu != notice.gpu && gpu == (self.side == Side::Recv);
        let offered = match self.side {
            Side::Send => self.fetched.is_some(),
            Side::Recv => other_memory.is_some(),
        };
        if fetched && !offered && sent > 0 {
            return Err(Error::Mismatch {
                op: self.name.to_string(),
                reason: "it goes from the memory of a host to that of a GPU, and the sending process sees no GPU driver, so it made no place from which a GPU could fetch".into(),
            });
        }
        let opens = (self.side == Side::Send) != fetched && !as_packets && sent > 0;
        // A CPU moves straight into the pieces of a receiver.
        let target: Option<Pieces> = match (pieces, other_memory) {
            (Some(directory), _) if opens && !gpu => {
                Pieces::map(directory, device).map_err(failed)?
            }
            (_, Some(memory)) if opens => Some(map(memory)?.into()),
            _ => None,
        };
        if opens && target.as_ref().is_none_or(|target| (target.len() as u64) < sent) {
            return Err(Error::Mismatch {
                op: self.name.to_string(),
                reason: format!("the receiver has not opened the {sent} bytes that it has posted"),
            });
        }
        // A receiver with a stage and a directory is sent to the one by GPUs, to the other by CPUs.
        let stage = self.stage.as_ref().filter(|_| notice.gpu || self._directory.is_none());
        let whole = stage.or(self.memory.whole());
        let in_one = target.as_ref().is_none_or(|target| target.whole().is_some());
        let target_in_one = target.as_ref().and_then(Pieces::whole);
        held.extend(target_in_one.cloned().into_iter().chain(stage.cloned()));
        let message = || -> gdsync::Result<Message> {
            let inbox = match self.side {
                _ if !as_packets => 0,
                Side::Send => theirs.inbox()?,
                Side::Recv => self.state.inbox()?,
            };
            Ok(Message {
                memory: whole.and_then(Buffer::device_address).unwrap_or_default(),
                len: sent,
                target: target_in_one.and_then(Buffer::device_address).unwrap_or_default(),
                inbox,
                mine: waits.signal()?.device_address()?,
                theirs: theirs.signal()?.device_address()?,
                state: self.state.state()?,
                ..Message::default()
            })
        };
        let mut message = message().map_err(failed)?;
        let stage_moves = match stage {
            Some(stage) => self.stage_moves(stage, sent)?,
            None => Vec::new(),
        };
        let (host, copies) = match gpu {
            true => {
                self.bound(plane, &mut message)?;
                (None, stage_moves)
            }
            false => {
                let (moves, ahead) = match (&self.fetched, &target, self.side) {
                    (Some(place), _, _) if fetched => {
                        (self.memory.moves_to(&place.clone().into()).map_err(failed)?, 1)
                    }
                    (_, Some(target), Side::Send) => {
                        (self.memory.moves_to(target).map_err(failed)?, 0)
                    }
                    _ => (stage_moves, 0),
                };
                let mine = waits.signal().map_err(failed)?;
                let theirs = Theirs::Mapped(theirs.signal().map_err(failed)?);
                let shared = self.shared.clone();
                let host = HostEnd::new(&self.state, mine, theirs, moves, ahead, shared);
                (Some(Arc::new(host.map_err(failed)?)), Vec::new())
            }
        };
        let message = if in_one && whole.is_some() { Ok(message) } else { Err(IN_ONE) };
        Ok(Way { len: sent, message, host, copies, held, number: notice.number, _registered: None })
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

    /// The same, for kernels.
    fn bound(&self, plane: &Plane, message: &mut Message) -> Result<()> {
        let Bounds { abort, timeout, report } = self.bounds(plane)?;
        message.abort = abort.address;
        message.timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        message.report = report.address().map_err(|source| broken(&self.name, source))?;
        Ok(())
    }

    /// What kernels take. Waits until the peer has prepared and, through a NIC, connected its side of the kernels' link.
    ///
    /// # Errors
    /// What is wrong with the other side; [`Error::Mismatch`] for what kernels cannot move.
    pub fn handle(&self, plane: &Plane) -> Result<Message> {
        if let Some(nic) = &self.nic {
            let (op, device) = (|| self.name.to_string(), self.memory.device());
            nic.for_kernels(plane, self.neighbour, device, &op)?;
        }
        let way = self.meet_by(plane, true)?;
        let refused = |reason: &str| Error::Mismatch {
            op: format!("{} in a kernel", self.name),
            reason: reason.to_owned(),
        };
        let mut message = way.message.map_err(refused)?;
        if self.stage.is_some() {
            return Err(refused(IN_ONE));
        }
        if message.report == 0 {
            self.bound(plane, &mut message)?;
            if let (Some(nic), Some(other)) = (&self.nic, self.nic_peer.get()) {
                self.fill_table(plane, nic, &mut message, other)?;
            }
        }
        Ok(message)
    }

    /// The user has dropped the operation: nothing starts it any more.
    pub fn retire(&self, plane: &Plane) {
        let mut starts = self.lock();
        starts.dropped = true;
        if !starts.is_under_way() {
            self.release(plane);
        }
    }

    /// It was dropped, and nothing is under way.
    fn release(&self, plane: &Plane) {
        use std::sync::atomic::Ordering;
        // What streams still have of it is used until the world ends.
        if let Some(nic) = &self.nic
            && !plane.ended()
            && self.shared.queued.load(Ordering::Acquire) == 0
        {
            nic.retire(plane, self.neighbour, self.nic_peer.get());
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

    /// What a start of the host looks at, on host memory and once the peer is known.
    pub fn signal(&self) -> Option<Word64> {
        let Some(Ok(Way { host: Some(host), .. })) = self.way.get() else { return None };
        Some(host.signal().clone())
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
        let connected = match &self.nic {
            Some(nic) if by_kernels => {
                let (op, device) = (|| self.name.to_string(), self.memory.device());
                let link = &nic.for_kernels(plane, self.neighbour, device, &op)?.link;
                plane.is_connected(link, &op)?
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
                pause(plane, &mut backoff, || {
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
}

/// Whether a peer's memory may be a GPU's: whether the machine has a GPU driver, without starting it.
fn a_gpu_may_be_here() -> bool {
    static DRIVER: OnceLock<bool> = OnceLock::new();
    *DRIVER.get_or_init(|| {
        ["/dev/nvidiactl", "/dev/dxg"].iter().any(|file| std::path::Path::new(file).exists())
    })
}

pub(crate) fn broken(name: &Name, source: gdsync::Error) -> Error {
    Error::Memory { op: name.to_string(), source }
}
