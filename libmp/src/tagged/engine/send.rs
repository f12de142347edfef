//! Sends: what waits for a line to another rank, and the bytes that receivers want.

use super::{Engine, Entry, Out, Outcome, Peer, State, Status, Way, What};
use crate::error::Result;
use crate::matching::Label;
use crate::tagged::envelope::{Envelope, LATER, lines};
use crate::tagged::memory::Memory;
use crate::tagged::pool::Ticket;
use crate::tagged::rings::Fit;

impl Engine {
    /// Sends. `None` if it has gone, and the memory is the caller's again.
    #[inline]
    pub fn send(
        &mut self,
        way: &Way<'_>,
        to: usize,
        tag: u64,
        memory: Memory,
    ) -> Result<Option<Ticket>> {
        match self.is_shown {
            true => self.send_shown(way, (to, tag), memory),
            false => self.send_now(way, (to, tag), memory),
        }
    }

    #[inline]
    pub(super) fn send_now(
        &mut self,
        way: &Way<'_>,
        (to, tag): (usize, u64),
        memory: Memory,
    ) -> Result<Option<Ticket>> {
        let Peer { out, rings, counts, .. } = &mut self.peers[to];
        counts.sends.add_alone(memory.len() as u64);
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
        entry.since = self.began;
        self.peers[to].out.push_back(Out::Send(ticket.key()));
        self.flush(way, to)?;
        Ok(ticket)
    }

    /// Sends what has waited for room, in order.
    pub(super) fn flush(&mut self, way: &Way<'_>, to: usize) -> Result<()> {
        while let Some(&out) = self.peers[to].out.front() {
            let peer = &mut self.peers[to];
            if !peer.rings.fits(way, 1)? {
                return Ok(());
            }
            match out {
                Out::Answer { send, wanted } => {
                    peer.rings.line(way, &Envelope::Answer { send, wanted })?;
                }
                Out::Send(key) => {
                    let entry = &mut self.requests[key];
                    let (len, tag) = (entry.memory.len(), entry.label.tag);
                    let (line, at) = (peer.rings.next_sent(), self.trace.now());
                    let place = self.direct.place_of(entry, peer);
                    let rings = &mut peer.rings;
                    // What the CPU does not reach is fetched when it is wanted.
                    let fit = match (&place, &entry.memory) {
                        (Some(place), _) if !rings.fits(way, lines(place.len()))? => Fit::Wait,
                        (_, Memory::Away(_)) => Fit::Offer,
                        _ => rings.fit(way, len)?,
                    };
                    match (fit, place) {
                        (Fit::Wait, _) => return Ok(()),
                        (Fit::Now, _) => {
                            rings.send(way, tag, &entry.memory)?;
                            self.gone(key);
                        }
                        (Fit::Offer, Some(place)) => {
                            rings.lend(tag, &place);
                            entry.state = State::Lent;
                        }
                        (Fit::Offer, None) => {
                            entry.state = State::Offered;
                            let send = entry.ticket.to_bits();
                            let address = entry.memory.address();
                            let len = len as u64;
                            rings.line(way, &Envelope::Offer { tag, len, send, address })?;
                        }
                    }
                    if self.is_shown {
                        self.left(to, line, at);
                    }
                }
            }
            self.peers[to].out.pop_front();
            self.moved += 1;
        }
        Ok(())
    }

    /// A send is over.
    fn gone(&mut self, key: usize) {
        let Entry { label: Label { source, tag, .. }, since, ref memory, .. } = self.requests[key];
        let bytes = memory.len();
        if self.is_shown {
            self.shows(since, What::Send { to: source as usize, tag }, bytes);
        }
        self.complete(key, Outcome::Done(Status { source: self.rank, tag, bytes }));
    }

    /// Writes what is wanted into the bulk ring, as far as there is room.
    pub(super) fn stream(&mut self, way: &Way<'_>, to: usize) -> Result<()> {
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
                self.gone(key);
            }
        }
        Ok(())
    }

    /// A receiver wants the bytes of a send, or has them.
    pub(super) fn answered(
        &mut self,
        way: &Way<'_>,
        from: usize,
        send: u64,
        wanted: u64,
    ) -> Result<()> {
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
        let (key, len) = (entry.ticket.key(), entry.memory.len());
        if wanted == LATER {
            self.direct.asked.push((entry.ticket, from));
            return self.tell_ready(way);
        }
        if wanted == 0 {
            self.gone(key);
            return Ok(());
        }
        entry.state = State::Streaming { at: 0, until: len };
        self.peers[from].streams.push_back(key);
        self.stream(way, from)
    }
}
