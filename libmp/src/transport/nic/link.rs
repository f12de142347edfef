//! A link: one queue pair to a peer, and the batches of requests that go through it. A link belongs to the host, to
//! one stream, or to the kernels of one device, because entries are rung in the order in which they were prepared: what a stream
//! has yet to ring must not hold up anybody else. Kernels post by themselves (`mp/qp.cuh`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use gdsync::nic::{
    Access, Address, CompletionMode, MemoryRegion, Nic, Posters, Prepared, QueuePair,
    QueuePairOptions, Result, Trigger, WireKind,
};
use gdsync::wqe::{DataSegment, Notify, Operation, Payload, RemoteAddress, WorkRequest, blocks};
use gdsync::{Deadline, Device, Space, Stream, Word64};
use serde::{Deserialize, Serialize};

use super::Place;
use crate::data::region::Pieces;

/// Longest part of a message in one entry: a multiple of a page below the format's 2^31 - 1.
const PART: u64 = 1 << 30;
/// Entries that somebody else prepared before are rung within this time, or never.
const RING_PATIENCE: Duration = Duration::from_secs(10);

/// The link's own memory: how many flushes of this side are complete; the peer's flushes, which the peer counts; the result
/// of an atomic operation. Each on a cache line of its own.
const DONE: usize = 0;
const COUNTER: usize = 64;
const RESULT: usize = 128;
const MEMORY: usize = 192;

pub(crate) struct Link {
    queue: QueuePair,
    memory: MemoryRegion,
    done: Word64,
    result: Word64,
    /// Where the peer keeps the counter of this side's flushes.
    counter: OnceLock<Place>,
    posting: Mutex<Posting>,
    /// Held from an atomic operation to its result.
    pub atomics: Mutex<()>,
}

/// Where a link is found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LinkAddress {
    queue: Address,
    counter: Place,
}

#[derive(Default)]
struct Posting {
    flushes: u64,
    /// Memory that requests use until the flush of that number is complete.
    held: VecDeque<(u64, Arc<MemoryRegion>)>,
    /// Memory that requests use until the entry at that position is complete.
    started: VecDeque<(u64, Arc<MemoryRegion>)>,
}

/// What a link is for, which decides its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Host,
    Stream,
    Kernels,
    /// For the other side, which alone posts.
    Answer,
}

/// A request of a batch.
pub(crate) enum Post<'a> {
    /// `len` bytes of registered memory, from its byte `at` on.
    Write { from: &'a MemoryRegion, at: u64, len: u64, to: RemoteAddress },
    /// A few bytes, which are copied now.
    Inline { bytes: &'a [u8], to: RemoteAddress },
    /// The peer's memory into registered memory.
    Read { from: RemoteAddress, into: &'a MemoryRegion, at: u64, len: u64 },
    /// Adds to a word of the peer; what it held is [`Link::result`].
    FetchAdd { word: RemoteAddress, add: u64 },
    /// Replaces a word of the peer if it holds `compare`; what it held is [`Link::result`].
    CompareSwap { word: RemoteAddress, compare: u64, swap: u64 },
    /// Counts [`Link::done`] up when all before is complete.
    Flush,
}

/// When a batch is rung.
#[derive(Clone, Copy)]
pub(crate) enum Ring<'a> {
    Now,
    /// Along with what is posted next, where that saves something: nobody waits for it yet.
    Along,
    /// When the stream gets there.
    On(&'a Stream),
}

/// What became of a batch.
pub(crate) struct Posted {
    /// Of its last entry, for [`Link::is_complete`].
    pub position: u64,
    /// Value of [`Link::done`] when its last flush is complete.
    pub flushes: u64,
}

impl Post<'_> {
    fn blocks(&self) -> u64 {
        match self {
            Post::Write { len, .. } | Post::Read { len, .. } => len.div_ceil(PART),
            // Control, address, and the bytes behind their length.
            Post::Inline { bytes, .. } => blocks(2 + (4 + bytes.len()).div_ceil(16)) as u64,
            Post::FetchAdd { .. } | Post::CompareSwap { .. } | Post::Flush => 1,
        }
    }
}

impl Link {
    /// A link whose queues `device` reaches, with memory of `pieces`, that will be connected over `wire`, or the one that the NIC
    /// chooses. `patience` is how long the peer may be silent.
    pub fn new(
        (nic, pieces): (&dyn Nic, &Pieces),
        device: &Device,
        what: Use,
        wire: impl Into<Option<WireKind>>,
        patience: Duration,
    ) -> Result<Link> {
        let options = QueuePairOptions {
            send_blocks: match what {
                Use::Host | Use::Kernels => 1024,
                Use::Stream => 512,
                Use::Answer => 32,
            },
            receive_entries: 1,
            send_completions: CompletionMode::Collapsed,
            // On the host a program's streams post to the same queues as its kernels.
            posters: match what {
                Use::Kernels if device.as_cuda().is_some() => Posters::Kernels,
                _ => Posters::All,
            },
            transport_timeout: patience.clamp(Duration::from_millis(10), Duration::from_secs(3600)),
            wire: wire.into(),
            ..QueuePairOptions::default()
        };
        let memory = pieces.cut(device, Space::Pinned, MEMORY)?;
        let words = memory.cast::<u64>()?;
        // The first flush finds 1.
        words.word(COUNTER / 8)?.store(1)?;
        Ok(Link {
            queue: nic.queue_pair(device, &options)?,
            done: words.word(DONE / 8)?,
            result: words.word(RESULT / 8)?,
            memory: nic.register(&memory, Access::ALL)?,
            counter: OnceLock::new(),
            posting: Mutex::default(),
            atomics: Mutex::new(()),
        })
    }

    pub fn address(&self) -> LinkAddress {
        let counter = Place::of(&self.memory).after(COUNTER);
        LinkAddress { queue: self.queue.address().clone(), counter: Place::at(counter) }
    }

    /// Connects it with the peer's, which does the same.
    pub fn connect(&self, peer: &LinkAddress, wire: impl Into<Option<WireKind>>) -> Result<()> {
        // It is connected once.
        let _ = self.counter.set(peer.counter);
        match wire.into() {
            Some(wire) => self.queue.connect_over(&peer.queue, wire),
            None => self.queue.connect(&peer.queue),
        }
    }

    /// The word that counts flushes.
    pub fn done(&self) -> &Word64 {
        &self.done
    }

    /// What the word of the last atomic operation held.
    pub fn result(&self) -> u64 {
        self.result.load().unwrap_or_default()
    }

    /// The queue as kernels take it.
    pub fn for_kernels(&self) -> Result<mp_kernels::QueuePair> {
        self.queue.device_view()
    }

    /// Whether everything that was posted is complete.
    pub fn is_idle(&self) -> Result<bool> {
        self.queue.is_idle()
    }

    /// Whether the entry at `position` is complete.
    pub fn is_complete(&self, position: u64) -> Result<bool> {
        self.queue.is_complete(position)
    }

    /// An error if the queue has failed.
    pub fn check(&self) -> Result<()> {
        self.queue.check()
    }

    /// The right to post; batches do not mix.
    pub fn turn(&self) -> Turn<'_> {
        let mut posting = self.posting.lock().unwrap_or_else(PoisonError::into_inner);
        let done = self.done.load().unwrap_or_default();
        while posting.held.front().is_some_and(|(flush, _)| *flush <= done) {
            posting.held.pop_front();
        }
        Turn { link: self, posting }
    }

    /// Keeps the memory of what the host has posted until the entry at `position` is complete.
    pub fn keep_until(&self, position: u64, memory: Arc<MemoryRegion>) {
        self.turn().posting.started.push_back((position, memory));
    }

    /// Whether nothing that was posted uses memory kept by [`keep_until`](Self::keep_until) any more.
    ///
    /// # Errors
    /// If the queue has failed.
    pub fn uses_nothing(&self) -> Result<bool> {
        let mut turn = self.turn();
        while let Some(&(position, _)) = turn.posting.started.front() {
            if !self.queue.is_complete(position)? {
                return Ok(false);
            }
            turn.posting.started.pop_front();
        }
        Ok(true)
    }

    /// Posts a batch from the host; `None` if there is no room for all of it now.
    pub fn post(&self, posts: &[Post<'_>]) -> Result<Option<Posted>> {
        self.post_if_room(posts, Ring::Now)
    }

    /// As [`post`](Self::post), for what nobody waits for yet: it may go along with what is posted next.
    pub fn post_along(&self, posts: &[Post<'_>]) -> Result<Option<Posted>> {
        self.post_if_room(posts, Ring::Along)
    }

    fn post_if_room(&self, posts: &[Post<'_>], ring: Ring<'_>) -> Result<Option<Posted>> {
        let mut turn = self.turn();
        if turn.has_room(posts)? { turn.post(posts, ring).map(Some) } else { Ok(None) }
    }
}

/// The right to post to a link.
pub(crate) struct Turn<'a> {
    link: &'a Link,
    posting: MutexGuard<'a, Posting>,
}

impl Turn<'_> {
    /// Whether all of these can be posted now.
    ///
    /// # Errors
    /// If the queue has failed.
    pub fn has_room(&self, posts: &[Post<'_>]) -> Result<bool> {
        Ok(self.link.queue.room()? >= posts.iter().map(Post::blocks).sum())
    }

    /// Posts the requests, for which there is room.
    pub fn post(&mut self, posts: &[Post<'_>], ring: Ring<'_>) -> Result<Posted> {
        let link = self.link;
        let mut prepared: Option<Prepared> = None;
        for (number, post) in posts.iter().enumerate() {
            let notify = if number + 1 == posts.len() { Notify::Always } else { Notify::OnError };
            let mut add = |operation: Operation<'_>| {
                let request = WorkRequest { notify, ..WorkRequest::new(operation) };
                let next = link.queue.prepare(&request)?;
                prepared = Some(match prepared.take() {
                    None => next,
                    Some(before) => match before.and(next) {
                        Ok(both) => both,
                        Err((before, next)) => {
                            link.ring(before, ring)?;
                            next
                        }
                    },
                });
                Ok(())
            };
            let result = || link.memory.segment(RESULT as u64, 8);
            match *post {
                Post::Write { from, at, len, to } => parts(len, |part_at, part| {
                    let segment = [from.segment(at + part_at, part)?];
                    let payload = Payload::Gather(&segment);
                    add(Operation::Write { remote: further(to, part_at), payload, imm: None })
                })?,
                Post::Inline { bytes, to } => {
                    let payload = Payload::Inline(bytes);
                    add(Operation::Write { remote: to, payload, imm: None })?;
                }
                Post::Read { from, into, at, len } => parts(len, |part_at, part| {
                    let into: [DataSegment; 1] = [into.segment(at + part_at, part)?];
                    add(Operation::Read { remote: further(from, part_at), into: &into })
                })?,
                Post::FetchAdd { word, add: value } => {
                    add(Operation::FetchAdd { remote: word, add: value, into: result()? })?;
                }
                Post::CompareSwap { word, compare, swap } => {
                    let into = result()?;
                    add(Operation::CompareSwap { remote: word, compare, swap, into })?;
                }
                Post::Flush => {
                    let into = link.memory.segment(DONE as u64, 8)?;
                    // Without a peer it goes nowhere, and fails there.
                    let remote = link.counter.get().map_or(NOWHERE, |place| place.after(0));
                    add(Operation::FetchAdd { remote, add: 1, into })?;
                    self.posting.flushes += 1;
                }
            }
        }
        let position = prepared.as_ref().map_or(0, Prepared::position);
        if let Some(prepared) = prepared {
            link.ring(prepared, ring)?;
        }
        Ok(Posted { position, flushes: self.posting.flushes })
    }

    /// Keeps registered memory until the last flush is complete.
    pub fn hold(&mut self, memory: Arc<MemoryRegion>) {
        let flush = self.posting.flushes;
        self.posting.held.push_back((flush, memory));
    }
}

/// No address, where nothing is asked of one.
pub(crate) const NOWHERE: RemoteAddress = RemoteAddress { address: 0, rkey: 0 };

impl Link {
    fn ring(&self, prepared: Prepared, ring: Ring<'_>) -> Result<()> {
        let soon = Deadline::after(RING_PATIENCE);
        match ring {
            Ring::On(stream) => stream.ring(&self.queue, prepared),
            Ring::Now => self.queue.ring(prepared, soon),
            Ring::Along => self.queue.ring_along(prepared, soon),
        }
    }
}

/// Calls `part` for each entry of a message: offset and length.
pub(super) fn parts(len: u64, mut part: impl FnMut(u64, u32) -> Result<()>) -> Result<()> {
    let mut at = 0;
    while at < len {
        // At most 2^30.
        let length = PART.min(len - at);
        part(at, length as u32)?;
        at += length;
    }
    Ok(())
}

fn further(place: RemoteAddress, bytes: u64) -> RemoteAddress {
    RemoteAddress { address: place.address.wrapping_add(bytes), ..place }
}
