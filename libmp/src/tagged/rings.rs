//! The rings between this rank and one other, both ways: lines, what is too long for a line, and pieces of what was offered. Each ring has one
//! writer and one reader; room is credit that the reader writes back. Nothing here waits, or knows of requests.

use std::sync::atomic::Ordering;

use gdsync::Buffer;

use super::engine::Way;
use super::envelope::{Envelope, IN_TWO, INSIDE, LINE, WORDS, lines, places};
use super::layout::{COST, Counts, Layout, parts};
use super::memory::{Memory, lent, read};
use crate::error::{Error, Result};
use crate::transport::{Channel, line};

const WORD: usize = size_of::<u64>();

/// So many lines before it is written a line is asked for: in the time of so many lines it comes from the reader's core.
const AHEAD: u64 = 4;
/// So many lines behind the next are looked at while a message is waited for. (With fewer 512 bytes take a third longer between two cores that
/// share no cache of an EPYC of the fourth generation.)
const LINES_BEHIND: u64 = 4;
/// And so many lines' worth of the eager ring.
const EAGER_LINES: usize = 8;

/// Whether a message can go with its envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    Now,
    /// When the other rank has taken something.
    Wait,
    /// It is too long, or one too many.
    Offer,
}

/// See the module.
pub(super) struct Rings {
    layout: Layout,
    /// The other rank, in the world.
    rank: usize,
    /// Writes its memory.
    channel: Box<dyn Channel>,
    /// It, if it is mapped here.
    there: Option<Buffer<u64>>,
    /// The stretch that it writes here.
    share: Buffer<u8>,
    words: Buffer<u64>,
    sent: Counts,
    /// Bytes of the bulk ring there that are sent, or on their way into it.
    reserved: u64,
    /// What it has taken of this, when it was last looked at.
    seen: Counts,
    taken: Counts,
    /// Bytes of the bulk ring here that are taken, or on their way out of it.
    claimed: u64,
    /// What it has been told of this.
    told: Counts,
}

impl Rings {
    /// To a rank of the world by a channel, and from it in a stretch of memory that the CPU reaches.
    pub fn new(
        layout: Layout,
        rank: usize,
        channel: Box<dyn Channel>,
        share: Buffer<u8>,
    ) -> gdsync::Result<Rings> {
        let words = share.cast()?;
        if share.host_address().is_none() {
            return Err(gdsync::Error::NotReachable {
                what: "rings of tagged messages",
                memory: format!("{share:?}"),
                place: "the CPU".into(),
                hint: "put them into host memory",
            });
        }
        let none = Counts::default();
        let (sent, seen, taken, told) = (none, none, none, none);
        let there = channel.words();
        let (reserved, claimed) = (0, 0);
        Ok(Rings {
            layout,
            rank,
            channel,
            there,
            share,
            words,
            sent,
            reserved,
            seen,
            taken,
            claimed,
            told,
        })
    }

    /// It has written what no rank writes.
    pub fn breach(&self, way: &Way<'_>, what: &str) -> Error {
        way.plane.nonsense(self.rank, what)
    }

    // To the other rank.

    /// What it has taken of what was sent to it.
    fn look(&mut self, way: &Way<'_>) -> Result<()> {
        let words = self.words.atomics().unwrap_or_default();
        let credits = words.get(Layout::CREDITS / WORD..).and_then(line::words);
        let [lines, eager, cost, bulk] = credits.unwrap_or_default();
        let Rings { sent, seen, .. } = self;
        let is_between = |seen: u64, now: u64, sent: u64| (seen..=sent).contains(&now);
        if !is_between(seen.lines, lines, sent.lines)
            || !is_between(seen.eager, eager, sent.eager)
            || !is_between(seen.cost, cost, sent.cost)
            || !is_between(seen.bulk, bulk, sent.bulk)
        {
            return Err(self.breach(way, "it has taken tagged messages that were not sent"));
        }
        self.seen = Counts { lines, eager, cost, bulk };
        Ok(())
    }

    fn has_room_for(&self, lines: usize) -> bool {
        self.sent.lines - self.seen.lines + lines as u64 <= self.layout.lines as u64
    }

    /// The longest message that goes in lines alone. Through a NIC the bytes of more than one line are one request.
    #[inline]
    fn in_lines(&self) -> usize {
        if self.there.is_some() { IN_TWO } else { INSIDE }
    }

    /// Whether there is room for so many lines now.
    pub fn fits(&mut self, way: &Way<'_>, lines: usize) -> Result<bool> {
        if !self.has_room_for(lines) {
            self.look(way)?;
        }
        Ok(self.has_room_for(lines))
    }

    /// Whether the other rank's memory is mapped here.
    pub fn is_mapped(&self) -> bool {
        self.there.is_some()
    }

    /// Whether a message can go with its envelope.
    #[inline]
    pub fn fit(&mut self, way: &Way<'_>, len: usize) -> Result<Fit> {
        let fit = self.fit_as_seen(len);
        if fit == Fit::Now || len > self.layout.limit {
            return Ok(fit);
        }
        self.look(way)?;
        Ok(self.fit_as_seen(len))
    }

    #[inline]
    fn fit_as_seen(&self, len: usize) -> Fit {
        let Rings { layout, sent, seen, .. } = self;
        if len > layout.limit || sent.cost - seen.cost + COST + len as u64 > layout.unexpected {
            return Fit::Offer;
        }
        let fits = match len <= self.in_lines() {
            true => self.has_room_for(lines(len)),
            false => {
                let room = sent.eager - seen.eager + len as u64 <= layout.eager as u64;
                room && self.has_room_for(1)
            }
        };
        if fits { Fit::Now } else { Fit::Wait }
    }

    /// Sends a message that fits now.
    #[inline]
    pub fn send(&mut self, way: &Way<'_>, tag: u64, memory: &Memory) -> Result<()> {
        let len = memory.len();
        self.sent.cost += COST + len as u64;
        if len <= INSIDE {
            let mut words = [0; WORDS];
            let (used, bytes) = Envelope::in_line(&mut words, tag, len);
            read(memory, 0, bytes);
            return self.write(way, &mut words[..used]);
        }
        if len <= self.in_lines() {
            self.write_lines(&Envelope::Lines { tag, len }, memory);
            return Ok(());
        }
        let mut done = 0;
        for (at, part) in parts(self.layout.eager, self.sent.eager, len) {
            let at = self.layout.eager_at() + at;
            // SAFETY: the memory of a request is valid while it is under way.
            let written = unsafe { self.channel.write(at, memory.at(done), part) };
            written.map_err(|source| way.call.failed(source))?;
            done += part;
        }
        self.sent.eager += len as u64;
        self.line(way, &Envelope::Eager { tag, len })
    }

    /// Says where a message is whose memory is lent, in lines for which there is room, to a rank that is mapped here.
    pub fn lend(&mut self, tag: u64, place: &[u8]) {
        let len = place.len();
        self.write_lines(&Envelope::Lent { tag, len }, &lent(place.as_ptr().cast_mut(), len));
    }

    /// Writes an envelope of a few lines, and its bytes, to memory that is mapped here.
    #[inline]
    fn write_lines(&mut self, envelope: &Envelope, memory: &Memory) {
        let Some(there) = &self.there else { return };
        let words = there.atomics().unwrap_or_default();
        let (layout, first, len) = (self.layout, self.sent.lines, memory.len());
        let (place, count) = (|at: u64| layout.line_at(at) / WORD, lines(len) as u64);
        (first + AHEAD..first + AHEAD + count).for_each(|at| there.prefetch_for_write(place(at)));
        // The bytes go from where they are to where they are read: what is put together first and then read again as other words has to leave
        // the processor's buffer of stores before, behind all stores to the lines.
        let head = envelope.encode();
        for (line, word, bytes) in places(len) {
            let at = first + line as u64;
            let words = &words[place(at)..][..WORDS];
            // SAFETY: the memory of a request is valid while it is under way; the words have room for so many bytes, and are shared as atomics.
            unsafe {
                gdsync::copy_bytes(memory.at(bytes.start), words[word].as_ptr().cast(), bytes.len())
            };
            let own = [at + 1, head[1], head[2]];
            line::store(&words[..word], &own[..word]);
        }
        self.sent.lines += count;
    }

    /// Writes a line for which there is room.
    pub fn line(&mut self, way: &Way<'_>, envelope: &Envelope) -> Result<()> {
        self.write(way, &mut envelope.encode())
    }

    /// Writes the first words of the next line, and its number.
    #[inline]
    fn write(&mut self, way: &Way<'_>, words: &mut [u64]) -> Result<()> {
        let (at, soon) = (self.sent.lines, self.sent.lines + AHEAD);
        self.sent.lines += 1;
        words[0] = self.sent.lines;
        let at = self.layout.line_at(at);
        match &self.there {
            Some(there) => {
                there.prefetch_for_write(self.layout.line_at(soon) / WORD);
                line::store(
                    &there.atomics().unwrap_or_default()[at / WORD..][..words.len()],
                    words,
                );
                Ok(())
            }
            None => self.channel.line(way.call, at, words),
        }
    }

    /// Writes the next piece of what is wanted, from byte `at` on and at most `len` bytes, into the bulk ring: how many there was room for.
    pub fn write_bulk(
        &mut self,
        way: &Way<'_>,
        memory: &Memory,
        at: usize,
        len: usize,
    ) -> Result<usize> {
        let layout = self.layout;
        let piece = len.min(layout.piece());
        if !self.has_bulk(way, piece)? {
            return Ok(0);
        }
        let mut at = at;
        for (ring_at, part) in parts(layout.bulk, self.sent.bulk, piece) {
            // SAFETY: as in `send`.
            let written =
                unsafe { self.channel.write(layout.bulk_at() + ring_at, memory.at(at), part) };
            written.map_err(|source| way.call.failed(source))?;
            at += part;
        }
        self.reserved += piece as u64;
        self.publish(way, piece)?;
        Ok(piece)
    }

    /// Whether there is room for so many bytes more in the bulk ring.
    fn has_bulk(&mut self, way: &Way<'_>, len: usize) -> Result<bool> {
        let bulk = self.layout.bulk;
        let has = |rings: &Rings| bulk - (rings.reserved - rings.seen.bulk) as usize >= len;
        if !has(self) {
            self.look(way)?;
        }
        Ok(has(self))
    }

    /// The bulk ring there, if it is mapped here.
    pub fn bulk_there(&self) -> Option<Buffer<u8>> {
        let layout = self.layout;
        let stretch = self.there.as_ref()?.bytes();
        stretch.slice(layout.bulk_at()..layout.bulk_at() + layout.bulk).ok()
    }

    /// Room in the bulk ring there for the next bytes, behind all that was reserved: where it is, in one piece, and how many, at most `len`.
    pub fn reserve(&mut self, way: &Way<'_>, len: usize) -> Result<Option<(usize, usize)>> {
        let at = self.reserved as usize & (self.layout.bulk - 1);
        let piece = len.min(self.layout.piece()).min(self.layout.bulk - at);
        let has_room = self.has_bulk(way, piece)?;
        if has_room {
            self.reserved += piece as u64;
        }
        Ok(has_room.then_some((at, piece)))
    }

    /// The last bytes that were reserved are not needed.
    pub fn unreserve(&mut self, len: usize) {
        self.reserved -= len as u64;
    }

    /// The first of the bytes that were reserved are there.
    pub fn publish(&mut self, way: &Way<'_>, len: usize) -> Result<()> {
        self.sent.bulk += len as u64;
        self.channel.line(way.call, Layout::WRITTEN, &[self.sent.bulk])
    }

    // From the other rank.

    /// Whether there is a next line.
    #[inline]
    pub fn has_line(&self) -> bool {
        let at = self.layout.line_at(self.taken.lines) / WORD;
        let words = self.words.atomics().unwrap_or_default();
        words[at].load(Ordering::Relaxed) == self.taken.lines + 1
    }

    /// Looks at what may come with the next line – the lines of a message of a few, the first of the eager ring – for who waits for that line: it
    /// comes from the writer's core when the line does then, not after it.
    #[inline]
    pub fn expect_more(&self) {
        let Rings { layout, taken, .. } = self;
        let words = self.words.atomics().unwrap_or_default();
        for behind in 1..=LINES_BEHIND {
            words[layout.line_at(taken.lines + behind) / WORD].load(Ordering::Relaxed);
        }
        for line in 0..EAGER_LINES {
            let at = (taken.eager as usize + line * LINE) & (layout.eager - 1);
            words[(layout.eager_at() + at) / WORD].load(Ordering::Relaxed);
        }
    }

    /// The next line, if there is one.
    #[inline]
    pub fn next_line(&self) -> Option<[u64; WORDS]> {
        let number = self.taken.lines;
        let at = self.layout.line_at(number) / WORD;
        let words = self.words.atomics().unwrap_or_default();
        line::numbered(&words[at..], number + 1)
    }

    /// Number of the last line that was taken.
    pub fn last_taken(&self) -> u64 {
        self.taken.lines - 1
    }

    /// Number of the next line that is written.
    pub fn next_sent(&self) -> u64 {
        self.sent.lines
    }

    /// The next line is taken.
    #[inline]
    pub fn pass_line(&mut self) {
        self.taken.lines += 1;
    }

    /// Takes the next line, if there is one.
    #[inline]
    pub fn take_line(&mut self) -> Option<[u64; WORDS]> {
        let line = self.next_line()?;
        self.pass_line();
        Some(line)
    }

    /// Takes what lies behind the line of an envelope, which has been taken: the bytes of a message, of which as many are copied as there is
    /// room for, or where it is lent. Of the other envelopes nothing does.
    #[inline]
    pub fn take_behind(&mut self, way: &Way<'_>, envelope: &Envelope, to: &Memory) -> Result<()> {
        match *envelope {
            Envelope::Lines { len, .. } | Envelope::Lent { len, .. } => {
                self.take_lines(way, len, to)
            }
            Envelope::Eager { len, .. } => self.take_eager(way, len, to),
            Envelope::Offer { .. } | Envelope::Answer { .. } | Envelope::Ready { .. } => Ok(()),
        }
    }

    /// Takes the lines behind the first, of `len` bytes in all, and copies as many bytes as there is room for.
    #[inline]
    fn take_lines(&mut self, way: &Way<'_>, len: usize, to: &Memory) -> Result<()> {
        let (layout, room) = (self.layout, to.len());
        // It has been taken.
        let first = self.taken.lines - 1;
        self.taken.lines += lines(len) as u64 - 1;
        let words = self.words.atomics().unwrap_or_default();
        for (line, word, bytes) in places(len) {
            let at = first + line as u64;
            let words = &words[layout.line_at(at) / WORD..][..WORDS];
            if words[0].load(Ordering::Acquire) != at + 1 {
                let what = "of a tagged message it has written the first line alone";
                return Err(self.breach(way, what));
            }
            let len = bytes.end.min(room).saturating_sub(bytes.start);
            if len > 0 {
                // SAFETY: the words have so many bytes, and are shared as atomics; the memory of a request is valid while it is under way.
                unsafe { gdsync::copy_bytes(words[word].as_ptr().cast(), to.at(bytes.start), len) };
            }
        }
        Ok(())
    }

    /// What a line says.
    pub fn decode(&self, way: &Way<'_>, words: &[u64; WORDS]) -> Result<Envelope> {
        let nonsense = || format!("{words:x?} is no envelope of a tagged message");
        let envelope = Envelope::decode(words, self.layout.limit);
        envelope.ok_or_else(|| self.breach(way, &nonsense()))
    }

    /// Takes the next message of the eager ring, which has `len` bytes, and copies as many of them as there is room for.
    fn take_eager(&mut self, way: &Way<'_>, len: usize, to: &Memory) -> Result<()> {
        let start = self.taken.eager;
        self.taken.eager += len as u64;
        let mut done = 0;
        for (at, part) in parts(self.layout.eager, start, len.min(to.len())) {
            // SAFETY: the memory of a request is valid while it is under way, and as long as is said.
            let copied =
                unsafe { self.share.copy_out(self.layout.eager_at() + at, to.at(done), part) };
            copied.map_err(|source| way.call.failed(source))?;
            done += part;
        }
        Ok(())
    }

    /// Bytes in the bulk ring that nobody has claimed.
    pub fn bulk(&self, way: &Way<'_>) -> Result<usize> {
        let words = self.words.atomics().unwrap_or_default();
        let written = words[Layout::WRITTEN / WORD].load(Ordering::Acquire);
        match written.wrapping_sub(self.claimed) {
            there if there > self.layout.bulk as u64 => {
                Err(self.breach(way, "it has written past the end of a ring"))
            }
            there => Ok(there as usize),
        }
    }

    /// Takes the next of the bytes that are in the bulk ring, at most `len`, to byte `at` of a receive's memory: how many.
    pub fn take_bulk(
        &mut self,
        way: &Way<'_>,
        to: &Memory,
        at: usize,
        len: usize,
    ) -> Result<usize> {
        let piece = len.min(self.layout.piece());
        let mut at = at;
        if !matches!(to, Memory::Nowhere) {
            for (ring_at, part) in parts(self.layout.bulk, self.taken.bulk, piece) {
                let ring_at = self.layout.bulk_at() + ring_at;
                // SAFETY: as in `take_eager`; a receive has room for all of what it wants.
                let copied = unsafe { self.share.copy_out(ring_at, to.at(at), part) };
                copied.map_err(|source| way.call.failed(source))?;
                at += part;
            }
        }
        self.claimed += piece as u64;
        self.release(way, piece)?;
        Ok(piece)
    }

    /// The bulk ring here.
    pub fn bulk_here(&self) -> Option<Buffer<u8>> {
        let layout = self.layout;
        self.share.slice(layout.bulk_at()..layout.bulk_at() + layout.bulk).ok()
    }

    /// The next bytes in the bulk ring here, behind all that was claimed: where they are, in one piece, and how many, at most `len`.
    pub fn claim(&mut self, way: &Way<'_>, len: usize) -> Result<Option<(usize, usize)>> {
        let at = self.claimed as usize & (self.layout.bulk - 1);
        let there = self.bulk(way)?.min(self.layout.bulk - at);
        let piece = len.min(self.layout.piece()).min(there);
        self.claimed += piece as u64;
        Ok((piece > 0).then_some((at, piece)))
    }

    /// The last bytes that were claimed are still there.
    pub fn unclaim(&mut self, len: usize) {
        self.claimed -= len as u64;
    }

    /// The first of the bytes that were claimed are not needed any more.
    pub fn release(&mut self, way: &Way<'_>, len: usize) -> Result<()> {
        self.taken.bulk += len as u64;
        self.tell(way)
    }

    /// A message of so many bytes that came with its envelope is where it was wanted.
    #[inline]
    pub fn settled(&mut self, len: usize) {
        self.taken.cost += COST + len as u64;
    }

    /// Tells the rank what has been taken of what it has sent, if that is worth a line.
    #[inline]
    pub fn tell(&mut self, way: &Way<'_>) -> Result<()> {
        let Rings { layout: Layout { quarters, .. }, taken, told, .. } = self;
        if taken.lines - told.lines >= quarters.lines
            || taken.eager - told.eager >= quarters.eager
            || taken.cost - told.cost >= quarters.cost
            || taken.bulk - told.bulk >= quarters.bulk
        {
            *told = *taken;
            let Counts { lines, eager, cost, bulk } = *taken;
            self.channel.line(way.call, Layout::CREDITS, &[lines, eager, cost, bulk])?;
        }
        Ok(())
    }

    /// The number and the words of the line that the other rank writes next, or so many behind, and the words of its credits.
    #[cfg(any(test, fuzzing))]
    pub fn next_words(&self, ahead: usize) -> (u64, Buffer<u64>, Buffer<u64>) {
        let words = |at: usize, count: usize| self.words.slice(at / WORD..at / WORD + count);
        let at = self.taken.lines + ahead as u64;
        let line = words(self.layout.line_at(at), WORDS);
        let credits = words(Layout::CREDITS, 2 * WORDS);
        (at + 1, line.expect("a line"), credits.expect("credits"))
    }
}
