//! The state of one rank's tagged messages: its requests, the matcher, and for each other rank the rings to it and from it. Nothing here
//! waits for a message; every call does what can be done now. The protocol is in the documentation of [`super`].

use std::collections::VecDeque;

use gdsync::Buffer;

use super::direct::{Borrowed, Lent, Mapped};
use super::envelope::{Envelope, Inside, LATER, NO_WORDS, WORDS, lines};
use super::memory::{Memory, write};
use super::pool::{Pool, Ticket};
use super::rings::{Fit, Layout, Rings};
use super::staging::{Staged, Staging};
use super::{Options, Source, Status, Tag};
use crate::data::path::Path;
use crate::data::plane::Plane;
use crate::data::window::Window;
use crate::error::{Error, Result};
use crate::matching::{Label, Matcher, Pattern, Post, Posted};
use crate::transport::Call;

/// Lines that are taken from one rank before the next has its turn.
const BURST: usize = 32;
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
    /// Nobody waits for it any more.
    pub abandoned: bool,
}

impl Default for Entry {
    fn default() -> Entry {
        let (memory, label, state) = (Memory::Nowhere, Label::default(), State::Queued);
        Entry { ticket: Ticket::NOBODYS, memory, label, state, abandoned: false }
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
    /// Whether memory of devices is lent to receivers that may map it, and what is lent is read.
    lends: bool,
    /// Sends whose receivers want to hear when their memory may be read.
    asked: Vec<(Ticket, usize)>,
    /// Receives of what is lent, and what is mapped for them.
    borrowed: Vec<Borrowed>,
    mapped: Mapped,
    /// Whose lines are looked at first.
    turn: usize,
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
        (rank, ranks): (usize, &[usize]),
        plane: &Plane,
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
            })
        };
        let peers = ranks.iter().enumerate().map(peer).collect::<Result<Vec<_>>>()?;
        Ok(Engine {
            rank,
            peers,
            requests: Pool::default(),
            matcher: Matcher::new(),
            staging: Staging::new(options.chunk),
            moved: 0,
            landing: Vec::new(),
            lends: !options.staged,
            asked: Vec::new(),
            borrowed: Vec::new(),
            mapped: Mapped::default(),
            turn: 0,
            _window: window,
        })
    }

    /// Sends. `None` if it has gone, and the memory is the caller's again.
    #[inline]
    pub fn send(
        &mut self,
        way: &Way<'_>,
        to: usize,
        tag: u64,
        memory: Memory,
    ) -> Result<Option<Ticket>> {
        let Peer { out, rings, .. } = &mut self.peers[to];
        let is_away = matches!(memory, Memory::Away(_));
        if out.is_empty() && !is_away && rings.fit(way, memory.len())? == Fit::Now {
            rings.send(way, tag, &memory)?;
            return Ok(None);
        }
        self.queue(way, to, tag, memory).map(Some)
    }

    #[cold]
    fn queue(&mut self, way: &Way<'_>, to: usize, tag: u64, memory: Memory) -> Result<Ticket> {
        let label = Label { context: 0, source: to as u32, tag };
        let (ticket, entry) = self.requests.take();
        (entry.memory, entry.label, entry.state) = (memory, label, State::Queued);
        self.peers[to].out.push_back(Out::Send(ticket.key()));
        self.flush(way, to)?;
        Ok(ticket)
    }

    /// Posts a receive into the memory that is put where it is told.
    #[inline]
    pub fn receive(
        &mut self,
        way: &Way<'_>,
        pattern: Pattern,
        memory: impl FnOnce(&mut Memory),
    ) -> Result<Ticket> {
        let (ticket, entry) = self.requests.take();
        memory(&mut entry.memory);
        entry.label.context = pattern.tag.is_none().into();
        entry.label.source = pattern.source.unwrap_or(ANYBODY);
        entry.label.tag = pattern.tag.unwrap_or_default();
        entry.state = State::Queued;
        match self.matcher.post(pattern, ticket.key()) {
            Post::Waits(posted) => entry.state = State::Posted(posted),
            Post::Matched(key, label, arrival) => self.take(way, key, label, arrival)?,
        }
        Ok(ticket)
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

    /// Receives what a matched probe has taken out.
    pub fn receive_taken(
        &mut self,
        way: &Way<'_>,
        (label, arrival): (Label, Arrival),
        memory: Memory,
    ) -> Result<Ticket> {
        let (ticket, entry) = self.requests.take();
        (entry.memory, entry.label, entry.state) = (memory, label, State::Queued);
        self.take(way, ticket.key(), label, arrival)?;
        Ok(ticket)
    }

    /// The earliest message that waits and matches.
    pub fn probe(&mut self, pattern: &Pattern) -> Option<Status> {
        self.matcher.probe(pattern).map(|(label, arrival)| status(&label, arrival.len() as usize))
    }

    /// The same, taken out.
    pub fn take_out(&mut self, pattern: &Pattern) -> Option<(Label, Arrival)> {
        self.matcher.take(pattern)
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
    pub fn staged(&self) -> Staged {
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
        if !self.asked.is_empty() {
            self.tell_ready(way)?;
        }
        if !self.borrowed.is_empty() {
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

    #[inline]
    fn serve(&mut self, way: &Way<'_>, from: usize) -> Result<()> {
        for _ in 0..BURST {
            let rings = &mut self.peers[from].rings;
            let Some(words) = rings.take_line() else { break };
            self.moved += 1;
            let Some((tag, bytes)) = Envelope::inside(&words) else {
                let envelope = rings.decode(way, &words)?;
                self.opened(way, from, (envelope, &words))?;
                continue;
            };
            let label = Label { context: 0, source: from as u32, tag };
            match self.matcher.wanted(&label) {
                Some(key) => self.put(way, key, label, bytes)?,
                None => self.keep(label, bytes),
            }
        }
        let peer = &self.peers[from];
        let (out, streams, incoming) =
            (!peer.out.is_empty(), !peer.streams.is_empty(), !peer.incoming.is_empty());
        if out {
            self.flush(way, from)?;
        }
        if streams {
            self.stream(way, from)?;
        }
        if incoming {
            self.take_bulk(way, from)?;
        }
        self.peers[from].rings.tell(way)
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

    // To another rank.

    /// Sends what has waited for room, in order.
    fn flush(&mut self, way: &Way<'_>, to: usize) -> Result<()> {
        while let Some(&out) = self.peers[to].out.front() {
            let Peer { rings, pull, .. } = &mut self.peers[to];
            if !rings.fits(way, 1)? {
                return Ok(());
            }
            match out {
                Out::Answer { send, wanted } => {
                    rings.line(way, &Envelope::Answer { send, wanted })?;
                }
                Out::Send(key) => {
                    let entry = &mut self.requests[key];
                    let (len, tag) = (entry.memory.len(), entry.label.tag);
                    if let Memory::Away(away) = &mut entry.memory
                        && self.lends
                        && len > 0
                        && rings.is_mapped()
                        && let here = matches!(pull, Pull::SameProcess)
                        && let Some(lent) = Lent::new(away, entry.ticket.word(), here)
                        && let Some(place) = lent.encode()
                    {
                        if !rings.fits(way, lines(place.len()))? {
                            return Ok(());
                        }
                        rings.lend(tag, &place);
                        entry.state = State::Lent;
                        self.peers[to].out.pop_front();
                        self.moved += 1;
                        continue;
                    }
                    // What the CPU does not reach is fetched when it is wanted.
                    let fit = match entry.memory {
                        Memory::Away(_) => Fit::Offer,
                        _ => rings.fit(way, len)?,
                    };
                    match fit {
                        Fit::Wait => return Ok(()),
                        Fit::Now => {
                            rings.send(way, tag, &entry.memory)?;
                            self.complete(key, self.sent(tag, len));
                        }
                        Fit::Offer => {
                            entry.state = State::Offered;
                            let send = entry.ticket.word();
                            let address = entry.memory.address();
                            let len = len as u64;
                            rings.line(way, &Envelope::Offer { tag, len, send, address })?;
                        }
                    }
                }
            }
            self.peers[to].out.pop_front();
            self.moved += 1;
        }
        Ok(())
    }

    fn sent(&self, tag: u64, bytes: usize) -> Outcome {
        Outcome::Done(Status { source: self.rank, tag, bytes })
    }

    /// Writes what is wanted into the bulk ring, as far as there is room.
    fn stream(&mut self, way: &Way<'_>, to: usize) -> Result<()> {
        while let Some(&key) = self.peers[to].streams.front() {
            let (peer, entry) = (&mut self.peers[to], &mut self.requests[key]);
            let State::Streaming { at, until } = entry.state else {
                return Ok(()); // Whatever is in this queue streams.
            };
            let failed = |source| way.call.failed(source);
            let ring = match &entry.memory {
                Memory::Away(away) => {
                    self.staging.rings.of(&away.memory, || peer.rings.bulk_there())
                }
                _ => None,
            };
            let written = match (&mut entry.memory, ring) {
                (Memory::Away(away), Some(ring)) => {
                    self.staging.send_straight(way, away, (&ring, &mut peer.rings))?
                }
                (Memory::Away(away), None) => {
                    self.staging.fetch(away).map_err(failed)?;
                    let Some((memory, len)) = self.staging.fetched(away).map_err(failed)? else {
                        return Ok(());
                    };
                    let written = peer.rings.write_bulk(way, &memory, 0, len)?;
                    self.staging.given(away, written);
                    written
                }
                (memory, _) => peer.rings.write_bulk(way, memory, at, until - at)?,
            };
            if written == 0 {
                return Ok(());
            }
            self.moved += 1;
            entry.state = State::Streaming { at: at + written, until };
            if at + written == until {
                peer.streams.pop_front();
                let tag = entry.label.tag;
                self.complete(key, self.sent(tag, until));
            }
        }
        Ok(())
    }

    // From another rank.

    /// What is in its line waits until it is wanted.
    fn keep(&mut self, label: Label, message: &[u8]) {
        let mut bytes = Inside::default();
        bytemuck::cast_slice_mut(&mut bytes)[..message.len()].copy_from_slice(message);
        self.matcher.keep(label, Arrival::Here { len: message.len(), bytes });
    }

    /// A line has come that has no whole message in it.
    #[inline]
    fn opened(
        &mut self,
        way: &Way<'_>,
        from: usize,
        (envelope, words): (Envelope, &[u64; WORDS]),
    ) -> Result<()> {
        let label = |tag| Label { context: 0, source: from as u32, tag };
        match envelope {
            Envelope::Lines { tag, len } => {
                let mut room = NO_WORDS;
                let bytes = self.peers[from].rings.take_behind(way, words, len, &mut room)?;
                let label = label(tag);
                match self.matcher.wanted(&label) {
                    Some(key) => self.put(way, key, label, bytes),
                    None => {
                        self.matcher.keep(label, Arrival::Held(bytes.into()));
                        Ok(())
                    }
                }
            }
            Envelope::Eager { tag, len } => {
                let (label, rings) = (label(tag), &mut self.peers[from].rings);
                let wanted = self.matcher.wanted(&label);
                let into = wanted.filter(|&key| self.requests[key].memory.is_reached());
                match into {
                    Some(key) => {
                        let memory = &self.requests[key].memory;
                        let room = memory.len();
                        rings.take_eager(way, len, memory)?;
                        self.landed(key, label, len, room);
                    }
                    None => {
                        let mut bytes = vec![0u8; len].into_boxed_slice();
                        let address = std::ptr::NonNull::from(&mut *bytes).cast();
                        rings.take_eager(way, len, &Memory::Lent { address, len, stays: false })?;
                        match wanted {
                            Some(key) => self.take(way, key, label, Arrival::Held(bytes))?,
                            None => self.matcher.keep(label, Arrival::Held(bytes)),
                        }
                    }
                }
                Ok(())
            }
            Envelope::Offer { tag, len, send, address } => {
                let (label, arrival) = (label(tag), Arrival::Offer { len, send, address });
                match self.matcher.wanted(&label) {
                    Some(key) => self.take(way, key, label, arrival),
                    None => {
                        self.matcher.keep(label, arrival);
                        Ok(())
                    }
                }
            }
            Envelope::Answer { send, wanted } => self.answered(way, from, send, wanted),
            Envelope::Lent { tag, len } => {
                let (mut room, rings) = (NO_WORDS, &mut self.peers[from].rings);
                let Some(lent) = Lent::decode(rings.take_behind(way, words, len, &mut room)?)
                else {
                    return Err(rings.breach(way, "it lends memory for a tagged message nowhere"));
                };
                let (label, arrival) = (label(tag), Arrival::Lent(Box::new(lent)));
                match self.matcher.wanted(&label) {
                    Some(key) => self.take(way, key, label, arrival)?,
                    None => self.matcher.keep(label, arrival),
                }
                Ok(())
            }
            Envelope::Ready { send } => {
                let mut all = self.borrowed.iter_mut();
                // Of one that nobody waits for any more there is none.
                if let Some(borrowed) = all.find(|it| (it.from, it.send) == (from, send)) {
                    borrowed.is_ready = true;
                }
                self.read_borrowed(way)
            }
        }
    }

    /// A receive gets what came with its envelope.
    #[inline]
    fn put(&mut self, way: &Way<'_>, key: usize, label: Label, bytes: &[u8]) -> Result<()> {
        let entry = &mut self.requests[key];
        entry.label = label;
        if !entry.memory.is_reached() {
            self.hold(key, bytes.into());
            return self.land(way);
        }
        let room = entry.memory.len();
        write(&entry.memory, &bytes[..bytes.len().min(room)]);
        self.landed(key, label, bytes.len(), room);
        Ok(())
    }

    /// A message that came with its envelope is where it was wanted.
    #[inline]
    fn landed(&mut self, key: usize, label: Label, len: usize, room: usize) {
        self.peers[label.source as usize].rings.settled(len);
        self.received(key, label, len, room);
    }

    #[inline(always)]
    fn received(&mut self, key: usize, label: Label, len: usize, room: usize) {
        let got = status(&label, len);
        match len <= room {
            true => self.complete(key, Outcome::Done(got)),
            false => self.complete(key, Outcome::Truncated(got, room)),
        }
    }

    /// A receive gets what has arrived.
    fn take(&mut self, way: &Way<'_>, key: usize, label: Label, arrival: Arrival) -> Result<()> {
        let from = label.source as usize;
        match arrival {
            Arrival::Here { len, bytes } => {
                self.put(way, key, label, &bytemuck::cast_slice(&bytes)[..len])?;
            }
            Arrival::Held(bytes) => self.put(way, key, label, &bytes)?,
            Arrival::Offer { len, send, address } => {
                // A length that fits a `usize` has been looked for.
                let len = len as usize;
                let entry = &mut self.requests[key];
                entry.label = label;
                let room = entry.memory.len();
                let pulled = len == 0 || len > room || {
                    let memory = &entry.memory;
                    let can = address != 0 && memory.is_reached();
                    can && pull(self.peers[from].pull, address, memory.at(0), len)
                };
                let wanted = if pulled { 0 } else { len as u64 };
                self.peers[from].out.push_back(Out::Answer { send, wanted });
                if pulled {
                    self.received(key, label, len, room);
                } else {
                    self.requests[key].state = State::Streaming { at: 0, until: len };
                    self.peers[from].incoming.push_back(key);
                }
                self.flush(way, from)?;
            }
            Arrival::Lent(lent) => {
                // A length that fits a `usize` has been looked for.
                let (send, is_ready, len) = (lent.send, lent.is_ready, lent.handle.len() as usize);
                let entry = &mut self.requests[key];
                entry.label = label;
                let room = entry.memory.len();
                let theirs = match &entry.memory {
                    Memory::Away(away) if len <= room && self.lends => self.mapped.of(&lent, away),
                    _ => None,
                };
                let wanted = match (len > room, &theirs) {
                    (true, _) => Some(0),
                    (false, None) => Some(len as u64),
                    (false, Some(_)) => (!is_ready).then_some(LATER),
                };
                let answers = wanted.map(|wanted| Out::Answer { send, wanted });
                self.peers[from].out.extend(answers);
                if len > room {
                    self.received(key, label, len, room);
                } else {
                    self.requests[key].state = State::Streaming { at: 0, until: len };
                    match theirs {
                        None => self.peers[from].incoming.push_back(key),
                        Some(theirs) => {
                            let borrowed = Borrowed { key, from, send, is_ready, theirs };
                            self.borrowed.push(borrowed);
                        }
                    }
                }
                self.flush(way, from)?;
                self.read_borrowed(way)?;
            }
        }
        Ok(())
    }

    /// Goes on with receives of what is lent.
    fn read_borrowed(&mut self, way: &Way<'_>) -> Result<()> {
        let failed = |source| way.call.failed(source);
        let mut at = 0;
        while let Some(Borrowed { key, is_ready, theirs, .. }) = self.borrowed.get(at) {
            let entry = &mut self.requests[*key];
            let Memory::Away(away) = &mut entry.memory else {
                self.borrowed.swap_remove(at); // Whatever is here is away.
                continue;
            };
            // Of one that nobody waits for nothing is begun.
            if away.begun == 0 && !away.dropped {
                if !*is_ready || !away.is_free().map_err(failed)? {
                    at += 1;
                    continue;
                }
                self.staging.copy_direct(away, theirs).map_err(failed)?;
            }
            self.staging.settle(away).map_err(failed)?;
            if !away.is_idle() {
                at += 1;
                continue;
            }
            let (label, len, room) = (entry.label, theirs.len(), away.len());
            let Borrowed { key, from, send, .. } = self.borrowed.swap_remove(at);
            self.received(key, label, len, room);
            self.moved += 1;
            self.peers[from].out.push_back(Out::Answer { send, wanted: 0 });
            self.flush(way, from)?;
        }
        Ok(())
    }

    /// Tells receivers that the memory which is lent to them may be read.
    fn tell_ready(&mut self, way: &Way<'_>) -> Result<()> {
        let mut at = 0;
        while let Some(&(ticket, to)) = self.asked.get(at) {
            let is_ready = match self.requests.told(ticket.word()) {
                Some(Entry { memory: Memory::Away(away), state: State::Lent, .. }) => {
                    away.is_free().map_err(|source| way.call.failed(source))?
                }
                // It is through without.
                _ => {
                    self.asked.swap_remove(at);
                    continue;
                }
            };
            let rings = &mut self.peers[to].rings;
            if is_ready && rings.fits(way, 1)? {
                rings.line(way, &Envelope::Ready { send: ticket.word() })?;
                self.asked.swap_remove(at);
                self.moved += 1;
            } else {
                at += 1;
            }
        }
        Ok(())
    }

    /// What came with its envelope waits for its way to memory that the CPU does not reach.
    fn hold(&mut self, key: usize, bytes: Box<[u8]>) {
        let entry = &mut self.requests[key];
        entry.state = State::Streaming { at: bytes.len(), until: bytes.len() };
        if let Memory::Away(away) = &mut entry.memory {
            away.held = Some(bytes);
            away.is_eager = true;
            self.landing.push(key);
        }
    }

    /// Goes on with receives all of whose bytes have come.
    fn land(&mut self, way: &Way<'_>) -> Result<()> {
        let mut at = 0;
        while let Some(&key) = self.landing.get(at) {
            let entry = &mut self.requests[key];
            let (Memory::Away(away), State::Streaming { until, .. }) =
                (&mut entry.memory, entry.state)
            else {
                self.landing.swap_remove(at); // Whatever is here is both.
                continue;
            };
            self.staging.land(away).map_err(|source| way.call.failed(source))?;
            if !away.is_idle() {
                at += 1;
                continue;
            }
            let (label, room, is_eager) = (entry.label, away.len(), away.is_eager);
            self.landing.swap_remove(at);
            match is_eager {
                true => self.landed(key, label, until, room),
                false => self.received(key, label, until, room),
            }
        }
        Ok(())
    }

    /// Drops a message that a matched probe has taken out.
    pub fn discard(&mut self, way: &Way<'_>, (label, arrival): (Label, Arrival)) -> Result<()> {
        let ticket = self.receive_taken(way, (label, arrival), Memory::Nowhere)?;
        self.finished(ticket);
        Ok(())
    }

    /// A receiver wants the bytes of a send, or has them.
    fn answered(&mut self, way: &Way<'_>, from: usize, send: u64, wanted: u64) -> Result<()> {
        let entry = self.requests.told(send).filter(|entry| {
            let is_lent = matches!(entry.state, State::Lent);
            (is_lent || matches!(entry.state, State::Offered))
                && entry.label.source as usize == from
                && (wanted == 0
                    || wanted == entry.memory.len() as u64
                    || (wanted == LATER && is_lent))
        });
        let Some(entry) = entry else {
            let what = "it answers a tagged message that was not offered";
            return Err(self.peers[from].rings.breach(way, what));
        };
        let (key, len, tag) = (entry.ticket.key(), entry.memory.len(), entry.label.tag);
        if wanted == LATER {
            self.asked.push((entry.ticket, from));
            return self.tell_ready(way);
        }
        if wanted == 0 {
            self.complete(key, self.sent(tag, len));
            return Ok(());
        }
        entry.state = State::Streaming { at: 0, until: len };
        self.peers[from].streams.push_back(key);
        self.stream(way, from)
    }

    /// Takes what is in the bulk ring.
    fn take_bulk(&mut self, way: &Way<'_>, from: usize) -> Result<()> {
        while let Some(&key) = self.peers[from].incoming.front() {
            let (peer, entry) = (&mut self.peers[from], &mut self.requests[key]);
            let State::Streaming { at, until } = entry.state else { return Ok(()) };
            if let Memory::Away(away) = &mut entry.memory
                && let Some(ring) = self.staging.rings.of(&away.memory, || peer.rings.bulk_here())
                && (!away.dropped || !away.is_idle() || at == until)
            {
                let rings = (&*ring, &mut peer.rings);
                let goes_on = self.staging.receive_straight(way, (away, until), rings)?;
                let (at, is_over) = (away.begun, away.begun == until && away.is_idle());
                entry.state = State::Streaming { at, until };
                if is_over {
                    let label = entry.label;
                    peer.incoming.pop_front();
                    self.received(key, label, until, until);
                } else if !goes_on {
                    break;
                }
                continue;
            }
            let len = (until - at).min(peer.rings.bulk(way)?);
            if len == 0 {
                break;
            }
            let failed = |source| way.call.failed(source);
            let taken = match &mut entry.memory {
                Memory::Away(away) if !away.dropped => {
                    let Some((memory, place)) = self.staging.room(away).map_err(failed)? else {
                        break;
                    };
                    let taken = peer.rings.take_bulk(way, &memory, 0, len.min(memory.len()))?;
                    self.staging.store(away, place, taken).map_err(failed)?;
                    taken
                }
                Memory::Away(_) => peer.rings.take_bulk(way, &Memory::Nowhere, at, len)?,
                memory => peer.rings.take_bulk(way, memory, at, len)?,
            };
            self.moved += 1;
            entry.state = State::Streaming { at: at + taken, until };
            if at + taken == until {
                peer.incoming.pop_front();
                if entry.memory.is_reached() {
                    let label = entry.label;
                    self.received(key, label, until, until);
                } else {
                    self.landing.push(key);
                }
            }
        }
        Ok(())
    }
}

impl Drop for Engine {
    /// Another thread of this process may be reading what was offered to it by its address, and whoever it was lent to.
    fn drop(&mut self) {
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

fn status(label: &Label, bytes: usize) -> Status {
    Status { source: label.source as usize, tag: label.tag, bytes }
}

/// Reads a message by its address, if that can be done.
fn pull(how: Pull, address: u64, to: *mut u8, len: usize) -> bool {
    match how {
        Pull::No => false,
        Pull::SameProcess => {
            // SAFETY: the sender keeps it until it is answered, see `Memory::address`, and the end of an engine lets it be.
            unsafe { gdsync::copy_bytes(address as *const u8, to, len) };
            true
        }
        Pull::Process(pid) => {
            // SAFETY: a receive has room for all of it.
            let read = unsafe { gdsync::process::read_memory(pid, address, to, len) };
            read.is_ok()
        }
    }
}
