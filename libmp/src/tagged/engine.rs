//! The state of one rank's tagged messages: its requests, the matcher, and for each other rank the rings to it and from it. Nothing here
//! waits for a message; every call does what can be done now. The protocol is in the documentation of [`super`].

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use gdsync::Buffer;
use slab::Slab;

use super::envelope::{Envelope, INSIDE, LINE, WORDS};
use super::memory::Memory;
use super::{Options, Status};
use crate::data::path::Path;
use crate::data::plane::Plane;
use crate::data::window::Window;
use crate::error::{Error, Result};
use crate::matching::{Label, Matcher, Pattern, Post, Posted};
use crate::transport::{Call, Channel};

const WORD: usize = size_of::<u64>();
/// What a message is counted as beyond its bytes, while nobody has taken it.
const COST: u64 = LINE as u64;
/// Lines that are taken from one rank before the next has its turn.
const BURST: usize = 32;

/// Where the rings of a rank are in the stretch of memory that it writes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    lines: usize,
    eager: usize,
    bulk: usize,
    /// The longest message that goes with its envelope.
    limit: usize,
    /// What may lie unexpected of one rank: bytes, and [`COST`] for each message.
    unexpected: u64,
}

impl Layout {
    /// Words that the writer sets: how much it has taken of what was written to it.
    const CREDITS: usize = 0;
    /// How many bytes the writer has put into the bulk ring.
    const WRITTEN: usize = LINE;
    const LINES: usize = 2 * LINE;

    /// For so many ranks. A rank has a stretch for each of them.
    pub fn new(options: &Options, ranks: usize) -> Layout {
        let share = |most: usize, least: usize, all: usize| (all / ranks.max(1)).clamp(least, most);
        let limit = options.eager_limit;
        Layout {
            lines: share(256, 32, 8192).next_power_of_two(),
            eager: share(16 * limit, 2 * limit, 1 << 20).max(256).next_power_of_two(),
            bulk: options
                .ring
                .unwrap_or_else(|| share(512 << 10, 32 << 10, 8 << 20))
                .next_power_of_two(),
            limit,
            unexpected: options.unexpected as u64,
        }
    }

    /// Bytes of a stretch.
    pub fn stretch(&self) -> usize {
        self.bulk_at() + self.bulk
    }

    fn line_at(&self, number: u64) -> usize {
        Layout::LINES + (number % self.lines as u64) as usize * LINE
    }

    fn eager_at(&self) -> usize {
        Layout::LINES + self.lines * LINE
    }

    fn bulk_at(&self) -> usize {
        self.eager_at() + self.eager
    }

    /// The largest piece that is written to the bulk ring at once.
    fn piece(&self) -> usize {
        self.bulk / 4
    }
}

/// The parts of a ring, from `at` bytes ever written on: offset and length of one or two.
fn parts(ring: usize, at: u64, len: usize) -> [(usize, usize); 2] {
    let first = (at % ring as u64) as usize;
    let until_end = len.min(ring - first);
    [(first, until_end), (0, len - until_end)]
}

/// Counts of one direction: what was written, or taken, ever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    lines: u64,
    eager: u64,
    /// Bytes and [`COST`]s of messages that came with their envelopes; taken when a receive has them.
    cost: u64,
    bulk: u64,
}

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
    /// In the world.
    rank: usize,
    /// Writes its memory.
    channel: Box<dyn Channel>,
    sent: Counts,
    /// What it has taken of this, when it was last looked at.
    seen: Counts,
    out: VecDeque<Out>,
    /// Sends whose bytes are wanted.
    streams: VecDeque<usize>,
    taken: Counts,
    /// What it has been told of this.
    told: Counts,
    /// Receives whose bytes come through the bulk ring.
    incoming: VecDeque<usize>,
    pull: Pull,
}

/// A message that nobody has wanted yet.
pub(super) enum Arrival {
    Here { len: usize, bytes: [u8; INSIDE] },
    Held(Box<[u8]>),
    Offer { len: u64, send: u64, address: u64 },
}

impl Arrival {
    pub fn len(&self) -> u64 {
        match self {
            Arrival::Here { len, .. } => *len as u64,
            Arrival::Held(bytes) => bytes.len() as u64,
            Arrival::Offer { len, .. } => *len,
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
    /// A receive.
    Posted(Posted),
    /// So many bytes of so many went through the bulk ring.
    Streaming {
        at: usize,
        until: usize,
    },
    Complete(Outcome),
}

/// A request. Of a send `label` is the receiver and the tag, of a receive what it has got.
struct Entry {
    number: u64,
    memory: Memory,
    label: Label,
    state: State,
    /// Nobody waits for it any more.
    abandoned: bool,
}

/// Names a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket {
    key: usize,
    number: u64,
}

/// Whether a message can go with its envelope.
#[derive(PartialEq, Eq)]
enum Fit {
    Now,
    Wait,
    Offer,
}

/// See the module.
pub(super) struct Engine {
    share: Buffer<u8>,
    words: Buffer<u64>,
    layout: Layout,
    rank: usize,
    peers: Vec<Peer>,
    requests: Slab<Entry>,
    matcher: Matcher<usize, Arrival>,
    /// Of the next request.
    next: u64,
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
        share: Buffer<u8>,
        layout: Layout,
        (rank, ranks): (usize, &[usize]),
        plane: &Plane,
    ) -> Result<Engine> {
        let failed = |source| Error::Memory { op: "making tagged messages".into(), source };
        let stretch = layout.stretch();
        let peer = |(place, &world): (usize, &usize)| {
            let pull = match plane.path(world)? {
                Path::Direct if plane.is_this_process(world) => Pull::SameProcess,
                Path::Direct => Pull::Process(plane.peer(world).pid),
                _ => Pull::No,
            };
            Ok(Peer {
                rank: world,
                channel: window.channel(place, rank * stretch, stretch)?,
                sent: Counts::default(),
                seen: Counts::default(),
                out: VecDeque::new(),
                streams: VecDeque::new(),
                taken: Counts::default(),
                told: Counts::default(),
                incoming: VecDeque::new(),
                pull,
            })
        };
        let peers = ranks.iter().enumerate().map(peer).collect::<Result<Vec<_>>>()?;
        Ok(Engine {
            words: share.cast().map_err(failed)?,
            share,
            layout,
            rank,
            peers,
            requests: Slab::new(),
            matcher: Matcher::new(),
            next: 0,
            turn: 0,
            _window: window,
        })
    }

    /// Sends. `None` if it has gone, and the memory is the caller's again.
    pub fn send(
        &mut self,
        way: &Way<'_>,
        to: usize,
        tag: u64,
        memory: Memory,
    ) -> Result<Option<Ticket>> {
        if self.peers[to].out.is_empty() && self.fit(way, to, memory.len())? == Fit::Now {
            self.send_now(way, to, tag, &memory)?;
            return Ok(None);
        }
        let label = Label { context: 0, source: to as u32, tag };
        let ticket = self.insert(memory, label, State::Queued);
        self.peers[to].out.push_back(Out::Send(ticket.key));
        self.flush(way, to)?;
        Ok(Some(ticket))
    }

    /// Posts a receive.
    pub fn receive(&mut self, way: &Way<'_>, pattern: Pattern, memory: Memory) -> Result<Ticket> {
        let ticket = self.insert(memory, Label::default(), State::Queued);
        match self.matcher.post(pattern, ticket.key) {
            Post::Waits(posted) => self.requests[ticket.key].state = State::Posted(posted),
            Post::Matched(key, label, arrival) => self.take(way, key, label, arrival)?,
        }
        Ok(ticket)
    }

    /// Receives what a matched probe has taken out.
    pub fn receive_taken(
        &mut self,
        way: &Way<'_>,
        (label, arrival): (Label, Arrival),
        memory: Memory,
    ) -> Result<Ticket> {
        let ticket = self.insert(memory, label, State::Queued);
        self.take(way, ticket.key, label, arrival)?;
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
    pub fn finished(&mut self, ticket: Ticket) -> Option<Outcome> {
        let entry = self.requests.get(ticket.key)?;
        match entry.state {
            State::Complete(outcome) if entry.number == ticket.number => {
                self.requests.remove(ticket.key);
                Some(outcome)
            }
            _ => None,
        }
    }

    /// Whether a request has not been seen finished.
    pub fn is_under_way(&self, ticket: Ticket) -> bool {
        self.entry(ticket).is_some()
    }

    /// Takes back a receive that has got nothing; whether it was one.
    pub fn cancel(&mut self, ticket: Ticket) -> bool {
        let Some(entry) = self.entry(ticket) else { return false };
        let State::Posted(posted) = entry.state else { return false };
        self.matcher.cancel(posted);
        self.requests.remove(ticket.key);
        true
    }

    /// Nobody waits for a request any more, and memory that was lent is used no more when this returns, unless it
    /// [stays](Memory::Lent). A receive that has got nothing is taken back, what a receive gets is dropped, and a send goes on from a copy.
    pub fn abandon(&mut self, ticket: Ticket) -> gdsync::Result<()> {
        if self.cancel(ticket) {
            return Ok(());
        }
        let Some(entry) = self.entry(ticket) else { return Ok(()) };
        let receives = match entry.state {
            State::Complete(_) => {
                self.requests.remove(ticket.key);
                return Ok(());
            }
            State::Streaming { .. } => {
                let to = &self.peers[entry.label.source as usize];
                !to.streams.contains(&ticket.key)
            }
            _ => false,
        };
        let entry = &mut self.requests[ticket.key];
        entry.abandoned = true;
        if receives {
            entry.memory = Memory::Nowhere;
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
        let Some(entry) = self.entry(ticket) else { return (0, 0, String::new()) };
        let (len, rank) = (entry.memory.len(), entry.label.source);
        match entry.state {
            State::Queued => (
                0,
                len,
                format!(
                    "there is no room on the way to rank {rank}, which makes no calls that take what comes"
                ),
            ),
            State::Offered => (0, len, format!("rank {rank} has posted no receive for it")),
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

    /// The words of the next line that a rank writes, and of its credits.
    #[cfg(test)]
    pub fn next_words(&self, from: usize) -> (Buffer<u64>, Buffer<u64>) {
        let stretch = from * self.layout.stretch();
        let words = |at: usize, count: usize| {
            let at = (stretch + at) / WORD;
            self.words.slice(at..at + count).unwrap()
        };
        let line = self.layout.line_at(self.peers[from].taken.lines);
        (words(line, WORDS), words(Layout::CREDITS, 2 * WORDS))
    }

    /// Takes what has come, and goes on with what can go on.
    pub fn progress(&mut self, way: &Way<'_>) -> Result<()> {
        let ranks = self.peers.len();
        self.turn = if self.turn + 1 >= ranks { 0 } else { self.turn + 1 };
        for from in (self.turn..ranks).chain(0..self.turn) {
            self.serve(way, from)?;
        }
        Ok(())
    }

    fn serve(&mut self, way: &Way<'_>, from: usize) -> Result<()> {
        for _ in 0..BURST {
            if !self.take_line(way, from)? {
                break;
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
        self.tell(way, from)
    }

    fn entry(&self, ticket: Ticket) -> Option<&Entry> {
        self.requests.get(ticket.key).filter(|entry| entry.number == ticket.number)
    }

    fn insert(&mut self, memory: Memory, label: Label, state: State) -> Ticket {
        self.next += 1;
        let number = self.next;
        let entry = Entry { number, memory, label, state, abandoned: false };
        Ticket { key: self.requests.insert(entry), number }
    }

    fn complete(&mut self, key: usize, outcome: Outcome) {
        let entry = &mut self.requests[key];
        if entry.abandoned {
            self.requests.remove(key);
        } else {
            entry.state = State::Complete(outcome);
            entry.memory = Memory::Nowhere;
        }
    }

    fn breach(&self, way: &Way<'_>, from: usize, what: &str) -> Error {
        way.plane.nonsense(self.peers[from].rank, what)
    }

    // To another rank.

    /// What the rank has taken of what was sent to it.
    fn look(&mut self, way: &Way<'_>, to: usize) -> Result<()> {
        let at = (to * self.layout.stretch() + Layout::CREDITS) / WORD;
        let words = self.words.atomics().unwrap_or_default();
        let Some(words) = words.get(at..at + 4) else { return Ok(()) };
        let [lines, eager, cost, bulk] = [0, 1, 2, 3].map(|at| words[at].load(Ordering::Acquire));
        let sent = self.peers[to].sent;
        if lines > sent.lines || eager > sent.eager || cost > sent.cost || bulk > sent.bulk {
            return Err(self.breach(way, to, "it has taken tagged messages that were not sent"));
        }
        self.peers[to].seen = Counts { lines, eager, cost, bulk };
        Ok(())
    }

    fn line_room(&self, to: usize) -> bool {
        let Peer { sent, seen, .. } = &self.peers[to];
        sent.lines - seen.lines < self.layout.lines as u64
    }

    fn fit(&mut self, way: &Way<'_>, to: usize, len: usize) -> Result<Fit> {
        let fit = self.fit_as_seen(to, len);
        if fit == Fit::Now || len > self.layout.limit {
            return Ok(fit);
        }
        self.look(way, to)?;
        Ok(self.fit_as_seen(to, len))
    }

    fn fit_as_seen(&self, to: usize, len: usize) -> Fit {
        let (layout, Peer { sent, seen, .. }) = (&self.layout, &self.peers[to]);
        let in_line = len <= INSIDE;
        if len > layout.limit || sent.cost - seen.cost + COST + len as u64 > layout.unexpected {
            Fit::Offer
        } else if self.line_room(to)
            && (in_line || sent.eager - seen.eager + len as u64 <= layout.eager as u64)
        {
            Fit::Now
        } else {
            Fit::Wait
        }
    }

    /// A message that fits.
    fn send_now(&mut self, way: &Way<'_>, to: usize, tag: u64, memory: &Memory) -> Result<()> {
        let len = memory.len();
        let eager_at = self.layout.eager_at();
        let peer = &mut self.peers[to];
        let envelope = if len <= INSIDE {
            let mut bytes = [0; INSIDE];
            read(memory, 0, &mut bytes[..len]);
            Envelope::InLine { tag, len, bytes }
        } else {
            let mut done = 0;
            for (at, part) in parts(self.layout.eager, peer.sent.eager, len) {
                if part > 0 {
                    // SAFETY: the memory of a request is valid while it is under way.
                    let written =
                        unsafe { peer.channel.write(eager_at + at, memory.at(done), part) };
                    written.map_err(|source| way.call.failed(source))?;
                    done += part;
                }
            }
            peer.sent.eager += len as u64;
            Envelope::Eager { tag, len }
        };
        peer.sent.cost += COST + len as u64;
        self.line(way, to, &envelope)
    }

    /// Writes a line for which there is room.
    fn line(&mut self, way: &Way<'_>, to: usize, envelope: &Envelope) -> Result<()> {
        let peer = &mut self.peers[to];
        let at = self.layout.line_at(peer.sent.lines);
        peer.sent.lines += 1;
        peer.channel.line(way.call, at, &envelope.encode(peer.sent.lines))
    }

    /// Sends what has waited for room, in order.
    fn flush(&mut self, way: &Way<'_>, to: usize) -> Result<()> {
        while let Some(&out) = self.peers[to].out.front() {
            if !self.line_room(to) {
                self.look(way, to)?;
                if !self.line_room(to) {
                    return Ok(());
                }
            }
            match out {
                Out::Answer { send, wanted } => {
                    self.line(way, to, &Envelope::Answer { send, wanted })?;
                }
                Out::Send(key) => {
                    let (len, tag) =
                        (self.requests[key].memory.len(), self.requests[key].label.tag);
                    match self.fit(way, to, len)? {
                        Fit::Wait => return Ok(()),
                        Fit::Now => {
                            let memory =
                                std::mem::replace(&mut self.requests[key].memory, Memory::Nowhere);
                            self.send_now(way, to, tag, &memory)?;
                            self.complete(key, self.sent(tag, len));
                        }
                        Fit::Offer => {
                            let entry = &mut self.requests[key];
                            entry.state = State::Offered;
                            let send = (entry.number & 0xffff_ffff) << 32 | key as u64;
                            let address = entry.memory.address();
                            let len = len as u64;
                            self.line(way, to, &Envelope::Offer { tag, len, send, address })?;
                        }
                    }
                }
            }
            self.peers[to].out.pop_front();
        }
        Ok(())
    }

    fn sent(&self, tag: u64, bytes: usize) -> Outcome {
        Outcome::Done(Status { source: self.rank, tag, bytes })
    }

    /// Writes what is wanted into the bulk ring, as far as there is room.
    fn stream(&mut self, way: &Way<'_>, to: usize) -> Result<()> {
        let layout = self.layout;
        while let Some(&key) = self.peers[to].streams.front() {
            let State::Streaming { mut at, until } = self.requests[key].state else {
                return Ok(()); // Whatever is in this queue streams.
            };
            let piece = (until - at).min(layout.piece());
            let free = |peer: &Peer| layout.bulk - (peer.sent.bulk - peer.seen.bulk) as usize;
            if free(&self.peers[to]) < piece {
                self.look(way, to)?;
                if free(&self.peers[to]) < piece {
                    return Ok(());
                }
            }
            let (peer, entry) = (&mut self.peers[to], &mut self.requests[key]);
            for (ring_at, part) in parts(layout.bulk, peer.sent.bulk, piece) {
                if part > 0 {
                    let from = entry.memory.at(at);
                    // SAFETY: as in `send_now`.
                    let written =
                        unsafe { peer.channel.write(layout.bulk_at() + ring_at, from, part) };
                    written.map_err(|source| way.call.failed(source))?;
                    at += part;
                }
            }
            peer.sent.bulk += piece as u64;
            entry.state = State::Streaming { at, until };
            peer.channel.line(way.call, Layout::WRITTEN, &[peer.sent.bulk])?;
            if at == until {
                peer.streams.pop_front();
                let tag = entry.label.tag;
                self.complete(key, self.sent(tag, until));
            }
        }
        Ok(())
    }

    // From another rank.

    /// Takes the next line, if there is one.
    fn take_line(&mut self, way: &Way<'_>, from: usize) -> Result<bool> {
        let number = self.peers[from].taken.lines;
        let at = (from * self.layout.stretch() + self.layout.line_at(number)) / WORD;
        let line = self.words.atomics().and_then(|words| words.get(at..at + WORDS));
        let Some(line) = line else { return Ok(false) };
        if line[0].load(Ordering::Acquire) != number + 1 {
            return Ok(false);
        }
        let mut words = [0; WORDS];
        for (word, from) in words.iter_mut().zip(line) {
            *word = from.load(Ordering::Relaxed);
        }
        self.peers[from].taken.lines += 1;
        let Some(envelope) = Envelope::decode(&words, self.layout.limit) else {
            let what = format!("{words:x?} is no envelope of a tagged message");
            return Err(self.breach(way, from, &what));
        };
        let label = |tag| Label { context: 0, source: from as u32, tag };
        match envelope {
            Envelope::InLine { tag, len, bytes } => {
                let (label, arrival) = (label(tag), Arrival::Here { len, bytes });
                self.arrive(way, label, arrival)?;
            }
            Envelope::Eager { tag, len } => {
                let label = label(tag);
                let start = self.peers[from].taken.eager;
                self.peers[from].taken.eager += len as u64;
                match self.matcher.wanted(&label) {
                    Some(key) => {
                        let room = self.requests[key].memory.len();
                        let memory = &self.requests[key].memory;
                        self.copy_eager(way, from, start, memory, len.min(room))?;
                        self.landed(key, label, len, room);
                    }
                    None => {
                        let mut bytes = vec![0u8; len].into_boxed_slice();
                        let address = std::ptr::NonNull::from(&mut *bytes).cast();
                        let memory = Memory::Lent { address, len, stays: false };
                        self.copy_eager(way, from, start, &memory, len)?;
                        self.matcher.keep(label, Arrival::Held(bytes));
                    }
                }
            }
            Envelope::Offer { tag, len, send, address } => {
                self.arrive(way, label(tag), Arrival::Offer { len, send, address })?;
            }
            Envelope::Answer { send, wanted } => self.answered(way, from, send, wanted)?,
        }
        Ok(true)
    }

    fn arrive(&mut self, way: &Way<'_>, label: Label, arrival: Arrival) -> Result<()> {
        match self.matcher.wanted(&label) {
            Some(key) => self.take(way, key, label, arrival),
            None => {
                self.matcher.keep(label, arrival);
                Ok(())
            }
        }
    }

    /// Copies the beginning of a message out of the eager ring.
    fn copy_eager(
        &self,
        way: &Way<'_>,
        from: usize,
        start: u64,
        to: &Memory,
        len: usize,
    ) -> Result<()> {
        let base = from * self.layout.stretch() + self.layout.eager_at();
        let mut done = 0;
        for (at, part) in parts(self.layout.eager, start, len) {
            if part > 0 {
                // SAFETY: the memory of a request is valid while it is under way, and as long as is said.
                let copied = unsafe { self.share.copy_out(base + at, to.at(done), part) };
                copied.map_err(|source| way.call.failed(source))?;
                done += part;
            }
        }
        Ok(())
    }

    /// A message that came with its envelope is where it was wanted.
    fn landed(&mut self, key: usize, label: Label, len: usize, room: usize) {
        self.peers[label.source as usize].taken.cost += COST + len as u64;
        self.received(key, label, len, room);
    }

    fn received(&mut self, key: usize, label: Label, len: usize, room: usize) {
        let got = status(&label, len);
        let fits = len <= room;
        self.complete(key, if fits { Outcome::Done(got) } else { Outcome::Truncated(got, room) });
    }

    /// A receive gets what has arrived.
    fn take(&mut self, way: &Way<'_>, key: usize, label: Label, arrival: Arrival) -> Result<()> {
        let from = label.source as usize;
        let entry = &mut self.requests[key];
        entry.label = label;
        let room = entry.memory.len();
        match arrival {
            Arrival::Here { len, bytes } => {
                write(&entry.memory, &bytes[..len.min(room)]);
                self.landed(key, label, len, room);
            }
            Arrival::Held(bytes) => {
                write(&entry.memory, &bytes[..bytes.len().min(room)]);
                self.landed(key, label, bytes.len(), room);
            }
            Arrival::Offer { len, send, address } => {
                // A length that fits a `usize` has been looked for.
                let len = len as usize;
                let pulled = len == 0 || len > room || {
                    let to = entry.memory.at(0);
                    address != 0 && pull(self.peers[from].pull, address, to, len)
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
        let key = (send & 0xffff_ffff) as usize;
        let entry = self.requests.get_mut(key).filter(|entry| {
            matches!(entry.state, State::Offered)
                && entry.number & 0xffff_ffff == send >> 32
                && entry.label.source as usize == from
                && (wanted == 0 || wanted == entry.memory.len() as u64)
        });
        let Some(entry) = entry else {
            return Err(self.breach(way, from, "it answers a tagged message that was not offered"));
        };
        let (len, tag) = (entry.memory.len(), entry.label.tag);
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
        let stretch = from * self.layout.stretch();
        let words = self.words.atomics().unwrap_or_default();
        let Some(word) = words.get((stretch + Layout::WRITTEN) / WORD) else { return Ok(()) };
        let mut there = word.load(Ordering::Acquire).wrapping_sub(self.peers[from].taken.bulk);
        if there > self.layout.bulk as u64 {
            return Err(self.breach(way, from, "it has written past the end of a ring"));
        }
        while let Some(&key) = self.peers[from].incoming.front() {
            let (peer, entry) = (&mut self.peers[from], &mut self.requests[key]);
            let State::Streaming { mut at, until } = entry.state else { return Ok(()) };
            let len = (until - at).min(there as usize).min(self.layout.piece());
            if len == 0 {
                break;
            }
            for (ring_at, part) in parts(self.layout.bulk, peer.taken.bulk, len) {
                if part > 0 && !matches!(entry.memory, Memory::Nowhere) {
                    let ring_at = stretch + self.layout.bulk_at() + ring_at;
                    // SAFETY: as in `copy_eager`; a receive has room for all of what it wants.
                    let copied = unsafe { self.share.copy_out(ring_at, entry.memory.at(at), part) };
                    copied.map_err(|source| way.call.failed(source))?;
                }
                at += part;
            }
            peer.taken.bulk += len as u64;
            there -= len as u64;
            entry.state = State::Streaming { at, until };
            if at == until {
                peer.incoming.pop_front();
                let label = entry.label;
                self.received(key, label, until, until);
            }
            self.tell(way, from)?;
        }
        Ok(())
    }

    /// Tells a rank what has been taken of what it has sent, if that is worth a line.
    fn tell(&mut self, way: &Way<'_>, from: usize) -> Result<()> {
        let layout = &self.layout;
        let Peer { taken, told, channel, .. } = &mut self.peers[from];
        let is_worth =
            |taken: u64, told: u64, all: usize| taken - told >= (all as u64).div_ceil(4).max(1);
        if is_worth(taken.lines, told.lines, layout.lines)
            || is_worth(taken.eager, told.eager, layout.eager)
            || is_worth(taken.cost, told.cost, layout.unexpected as usize)
            || is_worth(taken.bulk, told.bulk, layout.bulk)
        {
            *told = *taken;
            let Counts { lines, eager, cost, bulk } = *taken;
            channel.line(way.call, Layout::CREDITS, &[lines, eager, cost, bulk])?;
        }
        Ok(())
    }
}

impl Drop for Engine {
    /// Another thread of this process may be reading what was offered to it by its address.
    fn drop(&mut self) {
        for entry in self.requests.drain() {
            let reads = |to: u32| matches!(self.peers[to as usize].pull, Pull::SameProcess);
            if matches!(entry.state, State::Offered) && reads(entry.label.source) {
                std::mem::forget(entry.memory);
            }
        }
    }
}

fn status(label: &Label, bytes: usize) -> Status {
    Status { source: label.source as usize, tag: label.tag, bytes }
}

/// Copies the beginning of a request's memory.
fn read(memory: &Memory, at: usize, to: &mut [u8]) {
    if !to.is_empty() {
        // SAFETY: the memory of a request is valid while it is under way, and has so many bytes. Who writes a region at the same time
        // gets some of the old bytes sent and some of the new: the copy is as of volatile bytes.
        unsafe { gdsync::copy_bytes(memory.at(at), to.as_mut_ptr(), to.len()) }
    }
}

/// Copies to the beginning of a request's memory.
fn write(memory: &Memory, from: &[u8]) {
    if !from.is_empty() {
        // SAFETY: as in `read`.
        unsafe { gdsync::copy_bytes(from.as_ptr(), memory.at(0), from.len()) }
    }
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
