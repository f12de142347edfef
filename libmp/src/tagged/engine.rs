//! The state of one rank's tagged messages: its requests, the matcher, and for each other rank the rings to it and from it. Nothing here
//! waits for a message; every call does what can be done now. What it does for a send is in `send.rs`, for a receive in `recv.rs`, and with memory that a
//! sender lends in `direct.rs`. The protocol is in the documentation of [`super`].

mod direct;
mod recv;
mod send;
mod shown;

use std::collections::VecDeque;
use std::sync::Arc;

use gdsync::Buffer;

use super::envelope::Inside;
use super::layout::Layout;
use super::memory::Memory;
use super::pool::{Pool, Ticket};
use super::rings::Rings;
use super::staging::{Staged, Staging};
use super::words::Words;
use super::{Options, Source, Status, Tag};
use crate::data::counters::Exchanged;
use crate::data::path::Path;
use crate::data::plane::Plane;
use crate::data::window::Window;
use crate::error::{Error, Result};
use crate::matching::{Label, Matcher, Posted};
use crate::trace::Trace;
use crate::transport::Call;
use direct::{Direct, Lent};

/// Looks at the next line of the one rank that is waited for, between two looks at all.
const GLANCES: usize = 8;

/// What waits for a line to another rank.
#[derive(Clone, Copy)]
enum Out {
    Send(usize),
    Answer { send: u64, wanted: u64 },
}

/// How the bytes of an offered message can be read by their address.
#[derive(Debug, Clone, Copy)]
enum Pull {
    No,
    SameProcess,
    Process(u32),
}

/// Another rank, or this one.
struct Peer {
    rings: Rings,
    out: VecDeque<Out>,
    /// Sends whose bytes are wanted.
    streams: VecDeque<usize>,
    /// Receives whose bytes come through the bulk ring.
    incoming: VecDeque<usize>,
    pull: Pull,
    counts: Arc<Exchanged>,
}

/// A message that nobody has wanted yet.
pub(super) enum Arrival {
    Here { len: usize, bytes: Inside },
    Held(Box<[u8]>),
    Offer { len: u64, send: u64, address: u64 },
    Lent(Box<Lent>),
}

impl Arrival {
    pub fn len(&self) -> u64 {
        match self {
            Arrival::Here { len, .. } => *len as u64,
            Arrival::Held(bytes) => bytes.len() as u64,
            Arrival::Offer { len, .. } => *len,
            Arrival::Lent(lent) => lent.handle.len(),
        }
    }
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Done(Status),
    /// The message was longer than the memory.
    Truncated(Status, usize),
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// A send that waits for room.
    Queued,
    /// A send whose receiver knows of it.
    Offered,
    /// The same, and may read its memory.
    Lent,
    /// A receive.
    Posted(Posted),
    /// So many bytes of so many went through the bulk ring.
    Streaming {
        at: usize,
        until: usize,
    },
    Complete(Outcome),
}

/// A request. Of a send `label` is the receiver and the tag; of a receive what it waits for, then what it has got.
pub(super) struct Entry {
    pub ticket: Ticket,
    pub memory: Memory,
    label: Label,
    state: State,
    /// When it was started, for the timeline.
    since: u64,
    /// Nobody waits for it any more.
    pub abandoned: bool,
}

impl Default for Entry {
    fn default() -> Entry {
        let (memory, label, state) = (Memory::Nowhere, Label::default(), State::Queued);
        Entry { ticket: Ticket::NOBODYS, memory, label, state, since: 0, abandoned: false }
    }
}

/// What a request was made for.
#[derive(Debug, Clone, Copy)]
pub(super) enum What {
    Send { to: usize, tag: u64 },
    Receive { from: Source, tag: Tag },
}

/// Of a label of a receive that waits: from anybody.
const ANYBODY: u32 = u32::MAX;

/// See the module.
pub(super) struct Engine {
    rank: usize,
    peers: Vec<Peer>,
    requests: Pool,
    matcher: Matcher<usize, Arrival>,
    staging: Staging,
    /// Lines and pieces sent and taken.
    moved: u64,
    /// Receives all of whose bytes have come, and are on the way to memory that the CPU does not reach.
    landing: Vec<usize>,
    direct: Direct,
    /// Whose lines are looked at first.
    turn: usize,
    trace: Trace,
    /// Whether calls and messages are shown in a timeline, to a tool or in the log.
    is_shown: bool,
    /// When the last call that started a request began, for the timeline.
    began: u64,
    /// A number that all ranks have, of no other tagged messages.
    id: u64,
    /// Held: the others write into it.
    _window: Window<u8>,
}

/// What calls of the engine go through.
pub(super) struct Way<'a> {
    pub plane: &'a Plane,
    pub call: &'a Call<'a>,
}

impl Engine {
    /// With a window whose shares have a stretch for each rank.
    pub fn new(
        window: Window<u8>,
        share: &Buffer<u8>,
        layout: Layout,
        (rank, ranks, id): (usize, &[usize], u64),
        (plane, words): (&Arc<Plane>, &Arc<Words>),
        options: &Options,
    ) -> Result<Engine> {
        let failed = |source| Error::Memory { op: "making tagged messages".into(), source };
        let stretch = layout.stretch();
        let peer = |(place, &world): (usize, &usize)| {
            let pull = match plane.path(world)? {
                Path::Direct if plane.is_this_process(world) => Pull::SameProcess,
                Path::Direct => Pull::Process(plane.peer(world).pid),
                _ => Pull::No,
            };
            let channel = window.channel(place, rank * stretch, stretch)?;
            let share = share.slice(place * stretch..(place + 1) * stretch);
            let rings = share.and_then(|share| Rings::new(layout, world, channel, share));
            Ok(Peer {
                rings: rings.map_err(failed)?,
                out: VecDeque::new(),
                streams: VecDeque::new(),
                incoming: VecDeque::new(),
                pull,
                counts: plane.counters_of(world).apart(),
            })
        };
        let peers = ranks.iter().enumerate().map(peer).collect::<Result<Vec<_>>>()?;
        Ok(Engine {
            rank,
            peers,
            requests: Pool::default(),
            matcher: Matcher::new(),
            staging: Staging::new(options.chunk, plane, words),
            moved: 0,
            landing: Vec::new(),
            direct: Direct::new(!options.staged),
            turn: 0,
            trace: plane.trace.clone(),
            is_shown: plane.trace.has_spans() || tracing::enabled!(tracing::Level::TRACE),
            began: 0,
            id,
            _window: window,
        })
    }

    /// Whether calls and messages are shown to anybody.
    pub fn is_shown(&self) -> bool {
        self.is_shown
    }

    /// What a request was made for, or has got by now; nothing of one that is over.
    pub fn what(&self, ticket: Ticket) -> Option<What> {
        let entry = self.requests.get(ticket)?;
        let Label { context, source, tag } = entry.label;
        let sends = match entry.state {
            State::Queued | State::Offered | State::Lent => true,
            State::Streaming { .. } => self.streams(ticket),
            State::Posted(_) | State::Complete(_) => false,
        };
        if sends {
            return Some(What::Send { to: source as usize, tag });
        }
        let from = if source == ANYBODY { Source::Any } else { Source::Rank(source as usize) };
        let tag = if context == 0 { Tag::Is(tag) } else { Tag::Any };
        Some(What::Receive { from, tag })
    }

    /// Whether it is a send whose bytes are wanted.
    fn streams(&self, ticket: Ticket) -> bool {
        let of = |entry: &Entry| entry.label.source as usize;
        let peer = self.requests.get(ticket).and_then(|entry| self.peers.get(of(entry)));
        peer.is_some_and(|peer| peer.streams.contains(&ticket.key()))
    }

    /// What became of a request, which is forgotten then; nothing while it is under way.
    #[inline]
    pub fn finished(&mut self, ticket: Ticket) -> Option<Outcome> {
        let State::Complete(outcome) = &self.requests.get(ticket)?.state else { return None };
        let outcome = *outcome;
        self.requests.give_back(ticket.key());
        Some(outcome)
    }

    /// Whether there is nothing to wait for.
    #[inline]
    pub fn is_complete(&self, ticket: Ticket) -> bool {
        matches!(self.requests.get(ticket), Some(Entry { state: State::Complete(_), .. }))
    }

    /// Whether a request has not been seen finished.
    pub fn is_under_way(&self, ticket: Ticket) -> bool {
        self.requests.get(ticket).is_some()
    }

    /// Takes back a receive that has got nothing; whether it was one.
    pub fn cancel(&mut self, ticket: Ticket) -> bool {
        let Some(entry) = self.requests.get(ticket) else { return false };
        let State::Posted(posted) = entry.state else { return false };
        self.matcher.cancel(posted);
        self.requests.give_back(ticket.key());
        true
    }

    /// Nobody waits for a request any more, and memory that was lent is used no more when this returns, unless it
    /// [stays](Memory::Lent). A receive that has got nothing is taken back, what a receive gets is dropped, and a send goes on from a copy.
    pub fn abandon(&mut self, ticket: Ticket) -> gdsync::Result<()> {
        if self.cancel(ticket) {
            return Ok(());
        }
        let Some(entry) = self.requests.get(ticket) else { return Ok(()) };
        let receives = match entry.state {
            State::Complete(_) => {
                self.requests.give_back(ticket.key());
                return Ok(());
            }
            State::Streaming { .. } => !self.streams(ticket),
            _ => false,
        };
        let entry = &mut self.requests[ticket.key()];
        entry.abandoned = true;
        if receives {
            match &mut entry.memory {
                // Copies may be under way to it.
                Memory::Away(away) => away.dropped = true,
                memory => *memory = Memory::Nowhere,
            }
        } else if let Memory::Lent { len, stays: false, .. } = entry.memory {
            let copy = Buffer::<u8>::new(&gdsync::Device::Host, gdsync::Space::Host, len)?;
            // SAFETY: the memory is lent until this returns.
            unsafe { copy.copy_in(0, entry.memory.at(0), len)? };
            entry.memory = Memory::Own(copy);
        }
        Ok(())
    }

    /// Bytes so far, bytes in all, and why it is not further.
    pub fn story(&mut self, ticket: Ticket) -> (usize, usize, String) {
        let Some(entry) = self.requests.get(ticket) else { return (0, 0, String::new()) };
        let (len, rank) = (entry.memory.len(), entry.label.source);
        match entry.state {
            State::Queued => (
                0,
                len,
                format!(
                    "there is no room on the way to rank {rank}, which makes no calls that take what comes"
                ),
            ),
            State::Offered | State::Lent => {
                (0, len, format!("rank {rank} has posted no receive for it"))
            }
            State::Posted(_) => (0, len, self.unexpected()),
            State::Streaming { at, until } => (at, until, String::new()),
            State::Complete(_) => (len, len, String::new()),
        }
    }

    /// What has come and nobody wanted.
    pub fn unexpected(&self) -> String {
        const SHOWN: usize = 4;
        let labels = self.matcher.labels();
        let shown: Vec<String> = labels
            .iter()
            .take(SHOWN)
            .map(|label| format!("tag {} from rank {}", label.tag, label.source))
            .collect();
        match labels.len().saturating_sub(SHOWN) {
            _ if shown.is_empty() => "no other message has come".into(),
            0 => format!("what has come is {}", shown.join(", ")),
            more => format!("what has come is {} and {more} more", shown.join(", ")),
        }
    }

    /// See [`Rings::next_words`].
    #[cfg(any(test, fuzzing))]
    pub fn next_words(&self, from: usize, ahead: usize) -> (u64, Buffer<u64>, Buffer<u64>) {
        self.peers[from].rings.next_words(ahead)
    }

    /// What was done for memory that the CPU does not reach.
    pub fn staged(&mut self) -> Staged {
        self.staging.report()
    }

    /// Takes what has come, and goes on with what can go on.
    #[inline]
    pub fn progress(&mut self, way: &Way<'_>) -> Result<()> {
        let ranks = self.peers.len();
        self.turn = if self.turn + 1 >= ranks { 0 } else { self.turn + 1 };
        for from in (self.turn..ranks).chain(0..self.turn) {
            self.serve(way, from)?;
        }
        if !self.direct.is_idle() {
            self.tell_ready(way)?;
            self.read_borrowed(way)?;
        }
        if self.landing.is_empty() { Ok(()) } else { self.land(way) }
    }

    /// The rank that a receive waits for, if it is one.
    pub fn awaited(&self, ticket: Ticket) -> Option<usize> {
        let Entry { state: State::Posted(_), label, .. } = self.requests.get(ticket)? else {
            return None;
        };
        (label.source != ANYBODY).then_some(label.source as usize)
    }

    /// As [`progress`](Self::progress), for one rank alone if a line comes from it now: that is seen sooner than by looks at all. Who waits also
    /// looks at the others.
    #[inline]
    pub fn progress_of(&mut self, way: &Way<'_>, from: usize) -> Result<()> {
        let rings = &self.peers[from].rings;
        match (0..GLANCES).any(|_| rings.has_line()) {
            true => self.serve(way, from),
            false => self.progress(way),
        }
    }

    /// Changes whenever something went on, if only by a piece.
    pub fn moved(&self) -> u64 {
        self.moved.wrapping_add(self.staging.copies())
    }

    #[inline(always)]
    fn complete(&mut self, key: usize, outcome: Outcome) {
        let entry = &mut self.requests[key];
        if entry.abandoned {
            self.requests.give_back(key);
        } else {
            entry.state = State::Complete(outcome);
            entry.memory.let_go();
        }
    }
}

impl Drop for Engine {
    /// Another thread of this process may be reading what was offered to it by its address, and whoever it was lent to.
    fn drop(&mut self) {
        self.staging.finish_trailing();
        for mut entry in self.requests.drain() {
            if let Memory::Away(away) = &mut entry.memory {
                self.staging.finish(away);
            }
            let reads = |to: u32| matches!(self.peers[to as usize].pull, Pull::SameProcess);
            let is_read = match entry.state {
                State::Offered => reads(entry.label.source),
                State::Lent => true,
                _ => false,
            };
            if is_read {
                std::mem::forget(entry.memory);
            }
        }
    }
}
