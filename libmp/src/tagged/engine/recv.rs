//! Receives: what comes from other ranks, until it is in its memory, and probes.

use super::direct::Lent;
use super::{
    ANYBODY, Arrival, Engine, Out, Outcome, Peer, Pull, Source, State, Status, Tag, Way, What,
};
use crate::error::Result;
use crate::matching::{Label, Pattern, Post};
use crate::tagged::envelope::{Envelope, IN_LINES, Inside};
use crate::tagged::memory::{Memory, lent, write};
use crate::tagged::pool::Ticket;

/// Looks at the next line of a rank whose message is waited for without a request: a fraction of a microsecond; and of these so many before one at what
/// may come with it.
const NEXT: usize = 16;
const FEW: usize = 8;
/// Bytes of an offered message that the receiver itself copies into a chunk.
const SHORT: usize = 128 << 10;
/// Lines that are taken from one rank before the next has its turn.
const BURST: usize = 32;

impl Engine {
    /// Posts a receive into the memory that is put where it is told.
    #[inline]
    pub fn receive(
        &mut self,
        way: &Way<'_>,
        pattern: Pattern,
        memory: impl FnOnce(&mut Memory),
    ) -> Result<Ticket> {
        match self.is_shown {
            true => self.receive_shown(way, pattern, memory),
            false => self.receive_now(way, pattern, memory),
        }
    }

    #[cold]
    fn receive_shown(
        &mut self,
        way: &Way<'_>,
        pattern: Pattern,
        memory: impl FnOnce(&mut Memory),
    ) -> Result<Ticket> {
        let _span = self.starts(way, wanted(&pattern));
        self.receive_now(way, pattern, memory)
    }

    #[inline]
    fn receive_now(
        &mut self,
        way: &Way<'_>,
        pattern: Pattern,
        memory: impl FnOnce(&mut Memory),
    ) -> Result<Ticket> {
        let (ticket, entry) = self.requests.take();
        memory(&mut entry.memory);
        entry.since = self.began;
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

    /// Receives the next message of one rank, without a request, if that comes now, is what is wanted, and is of those that come with their
    /// envelopes; only where no other receive and no other message waits.
    #[inline]
    pub fn receive_next(
        &mut self,
        way: &Way<'_>,
        pattern: &Pattern,
        memory: &Memory,
    ) -> Result<Option<Outcome>> {
        // What is shown is shown as a request.
        let may = self.matcher.is_empty() && !self.is_shown;
        let Some(source) = pattern.source.filter(|_| may) else { return Ok(None) };
        let Peer { rings, out, streams, incoming, counts, .. } = &mut self.peers[source as usize];
        let is_idle = out.is_empty() && streams.is_empty() && incoming.is_empty();
        let comes = |_| {
            let comes = (0..FEW).any(|_| rings.has_line());
            if !comes {
                rings.expect_more();
            }
            comes
        };
        if !is_idle || !(0..NEXT).any(comes) {
            return Ok(None);
        }
        let Some(words) = rings.next_line() else { return Ok(None) };
        let is_wanted = |tag| pattern.tag.is_none_or(|wanted| wanted == tag);
        let (tag, len) = match Envelope::inside(&words) {
            Some((tag, bytes)) if is_wanted(tag) => {
                rings.pass_line();
                write(memory, &bytes[..bytes.len().min(memory.len())]);
                (tag, bytes.len())
            }
            Some(_) => return Ok(None),
            None => match rings.decode(way, &words)? {
                envelope @ (Envelope::Lines { tag, len } | Envelope::Eager { tag, len })
                    if is_wanted(tag) =>
                {
                    rings.pass_line();
                    rings.take_behind(way, &envelope, memory)?;
                    (tag, len)
                }
                _ => return Ok(None),
            },
        };
        rings.settled(len);
        rings.tell(way)?;
        self.moved += 1;
        counts.recvs.add_alone(len as u64);
        let got = status(&Label { context: 0, source, tag }, len);
        Ok(Some(outcome(got, memory.len())))
    }

    /// Receives what a matched probe has taken out.
    pub fn receive_taken(
        &mut self,
        way: &Way<'_>,
        (label, arrival): (Label, Arrival),
        memory: Memory,
    ) -> Result<Ticket> {
        let _span = self.is_shown.then(|| self.starts(way, received(&label)));
        let (ticket, entry) = self.requests.take();
        (entry.memory, entry.label, entry.state) = (memory, label, State::Queued);
        entry.since = self.began;
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

    /// Drops a message that a matched probe has taken out.
    pub fn discard(&mut self, way: &Way<'_>, (label, arrival): (Label, Arrival)) -> Result<()> {
        let ticket = self.receive_taken(way, (label, arrival), Memory::Nowhere)?;
        self.finished(ticket);
        Ok(())
    }

    /// Takes what has come from a rank, and goes on with what can go on between it and this one.
    #[inline]
    pub(super) fn serve(&mut self, way: &Way<'_>, from: usize) -> Result<()> {
        for _ in 0..BURST {
            let rings = &mut self.peers[from].rings;
            let Some(words) = rings.take_line() else { break };
            self.moved += 1;
            let Some((tag, bytes)) = Envelope::inside(&words) else {
                let envelope = rings.decode(way, &words)?;
                self.opened(way, from, envelope)?;
                continue;
            };
            if self.is_shown {
                self.came(from);
            }
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

    /// What is in its line waits until it is wanted.
    fn keep(&mut self, label: Label, message: &[u8]) {
        let mut bytes = Inside::default();
        bytemuck::cast_slice_mut(&mut bytes)[..message.len()].copy_from_slice(message);
        self.matcher.keep(label, Arrival::Here { len: message.len(), bytes });
    }

    /// A line has come that has no whole message in it.
    #[inline]
    fn opened(&mut self, way: &Way<'_>, from: usize, envelope: Envelope) -> Result<()> {
        let label = |tag| Label { context: 0, source: from as u32, tag };
        if self.is_shown && !matches!(envelope, Envelope::Answer { .. } | Envelope::Ready { .. }) {
            self.came(from);
        }
        match envelope {
            Envelope::Lines { tag, len } | Envelope::Eager { tag, len } => {
                let (label, rings) = (label(tag), &mut self.peers[from].rings);
                let wanted = self.matcher.wanted(&label);
                let into = wanted.filter(|&key| self.requests[key].memory.is_reached());
                match into {
                    Some(key) => {
                        let memory = &self.requests[key].memory;
                        let room = memory.len();
                        rings.take_behind(way, &envelope, memory)?;
                        self.landed(key, label, len, room);
                    }
                    None => {
                        let mut bytes = vec![0u8; len].into_boxed_slice();
                        rings.take_behind(way, &envelope, &lent(bytes.as_mut_ptr(), len))?;
                        match wanted {
                            Some(key) => self.take(way, key, label, Arrival::Held(bytes))?,
                            None => self.matcher.keep(label, Arrival::Held(bytes)),
                        }
                    }
                }
            }
            Envelope::Offer { tag, len, send, address } => {
                self.arrived(way, label(tag), Arrival::Offer { len, send, address })?;
            }
            Envelope::Answer { send, wanted } => self.answered(way, from, send, wanted)?,
            Envelope::Lent { tag, len } => {
                let (mut room, rings) = ([0; IN_LINES], &mut self.peers[from].rings);
                rings.take_behind(way, &envelope, &lent(room.as_mut_ptr(), len))?;
                let Some(lent) = Lent::decode(&room[..len]) else {
                    return Err(rings.breach(way, "it lends memory for a tagged message nowhere"));
                };
                self.arrived(way, label(tag), Arrival::Lent(Box::new(lent)))?;
            }
            Envelope::Ready { send } => self.ready(way, from, send)?,
        }
        Ok(())
    }

    /// What the sender still has goes to the receive that wants it, or waits for one.
    fn arrived(&mut self, way: &Way<'_>, label: Label, arrival: Arrival) -> Result<()> {
        match self.matcher.wanted(&label) {
            Some(key) => self.take(way, key, label, arrival)?,
            None => self.matcher.keep(label, arrival),
        }
        Ok(())
    }

    /// A receive gets what came with its envelope.
    #[inline(always)]
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
    #[inline(always)]
    fn landed(&mut self, key: usize, label: Label, len: usize, room: usize) {
        self.peers[label.source as usize].rings.settled(len);
        self.received(key, label, len, room);
    }

    #[inline(always)]
    pub(super) fn received(&mut self, key: usize, label: Label, len: usize, room: usize) {
        self.peers[label.source as usize].counts.recvs.add_alone(len as u64);
        if self.is_shown {
            self.shows(self.requests[key].since, received(&label), len);
        }
        let got = status(&label, len);
        self.complete(key, outcome(got, room));
    }

    /// A receive gets what has arrived.
    fn take(&mut self, way: &Way<'_>, key: usize, label: Label, arrival: Arrival) -> Result<()> {
        let entry = &mut self.requests[key];
        entry.label = label;
        match arrival {
            Arrival::Here { len, bytes } => {
                self.put(way, key, label, &bytemuck::cast_slice(&bytes)[..len])
            }
            Arrival::Held(bytes) => self.put(way, key, label, &bytes),
            Arrival::Offer { len, send, address } => {
                // A length that fits a `usize` has been looked for.
                let (len, from) = (len as usize, label.source as usize);
                let (how, is_reached) = (self.peers[from].pull, entry.memory.is_reached());
                let fits = len > 0 && len <= entry.memory.len();
                let is_read = fits
                    && address != 0
                    && match is_reached {
                        true => pull(how, address, entry.memory.at(0), len),
                        false => self.pull_by_chunk(way, key, how, address, len)?,
                    };
                if is_read && !is_reached {
                    self.reply(way, from, send, 0)?;
                    return self.land(way);
                }
                self.want(way, key, (send, len), fits && !is_read)
            }
            Arrival::Lent(lent) => self.borrow(way, key, &lent),
        }
    }

    /// Tells the sender of what is offered or lent that a receive wants it through the bulk ring, or else that it has all that it gets.
    pub(super) fn want(
        &mut self,
        way: &Way<'_>,
        key: usize,
        (send, len): (u64, usize),
        wants: bool,
    ) -> Result<()> {
        let entry = &mut self.requests[key];
        let (label, room, from) = (entry.label, entry.memory.len(), entry.label.source as usize);
        if wants {
            entry.state = State::Streaming { at: 0, until: len };
            self.peers[from].incoming.push_back(key);
        } else {
            self.received(key, label, len, room);
        }
        self.reply(way, from, send, if wants { len as u64 } else { 0 })
    }

    /// Tells a sender how much of what it offered or lent is wanted.
    pub(super) fn reply(&mut self, way: &Way<'_>, to: usize, send: u64, wanted: u64) -> Result<()> {
        self.peers[to].out.push_back(Out::Answer { send, wanted });
        self.flush(way, to)
    }

    /// Reads what is offered by its address into a chunk, and starts to copy that to where the CPU does not reach: what is short is there before the sender
    /// would have heard that it is wanted. Whether it was done.
    fn pull_by_chunk(
        &mut self,
        way: &Way<'_>,
        key: usize,
        how: Pull,
        address: u64,
        len: usize,
    ) -> Result<bool> {
        let failed = |source| way.call.failed(source);
        let entry = &mut self.requests[key];
        let Memory::Away(away) = &mut entry.memory else { return Ok(false) };
        if len > SHORT || matches!(how, Pull::No) {
            return Ok(false);
        }
        let Some((chunk, place)) = self.staging.room(away).map_err(failed)? else {
            return Ok(false);
        };
        if len > chunk.len() || !pull(how, address, chunk.at(0), len) {
            return Ok(false);
        }
        self.staging.store(away, place, len).map_err(failed)?;
        entry.state = State::Streaming { at: len, until: len };
        self.landing.push(key);
        Ok(true)
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
    pub(super) fn land(&mut self, way: &Way<'_>) -> Result<()> {
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
            if !self.staging.is_given(away) {
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

    /// Takes what is in the bulk ring.
    fn take_bulk(&mut self, way: &Way<'_>, from: usize) -> Result<()> {
        while let Some(&key) = self.peers[from].incoming.front() {
            let (peer, entry) = (&mut self.peers[from], &mut self.requests[key]);
            let State::Streaming { at, until } = entry.state else { return Ok(()) };
            if let Memory::Away(away) = &mut entry.memory
                && let Some(ring) = self.staging.rings.of(&away.memory, || peer.rings.bulk_here())
                && (!away.dropped || !away.is_idle() || at == until)
            {
                let rings = (&ring, &mut peer.rings);
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

/// What a receive of these is for.
fn wanted(pattern: &Pattern) -> What {
    let from = pattern.source.map_or(Source::Any, |rank| Source::Rank(rank as usize));
    What::Receive { from, tag: pattern.tag.map_or(Tag::Any, Tag::Is) }
}

/// What a receive that has got this is for.
fn received(label: &Label) -> What {
    What::Receive { from: Source::Rank(label.source as usize), tag: Tag::Is(label.tag) }
}

fn status(label: &Label, bytes: usize) -> Status {
    Status { source: label.source as usize, tag: label.tag, bytes }
}

/// What becomes of a receive that has got this, with room for so many bytes.
fn outcome(got: Status, room: usize) -> Outcome {
    if got.bytes <= room { Outcome::Done(got) } else { Outcome::Truncated(got, room) }
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
