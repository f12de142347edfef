//! Memory that the CPU does not reach, of GPUs and of OpenCL, and the way of its bytes: in chunks through host memory. Each device has a lane in either
//! direction, made when it is first needed and never larger: a stream (of OpenCL a queue) that nobody else uses, and a few pinned chunks.
//! A message has at most two chunks of a lane: one is copied by the device while the other one is copied to or from the rings. It gets a chunk
//! when there is something to do with it, and without a free one it waits. A chunk of a receive is free again by the device's copy alone,
//! so receives never wait for sends, and sends only for who receives. Where the rings themselves can be pinned the bytes go straight into them and out
//! of them (`straight.rs`), and chunks are for what came with its envelope.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use gdsync::opencl::{self, Queues};
use gdsync::{Buffer, Device, Result};

use super::lane::{Copier, Done, Lane};
use super::memory::{Memory, write};
use super::straight::Pinned;
use super::words::{Point, Release, Words};
use crate::data::plane::Plane;
use crate::trace;

/// Bytes of a chunk of memory that no GPU copies.
pub(super) const CHUNK: usize = 256 << 10;
/// Chunks of a lane.
pub(super) const CHUNKS: usize = 8;
/// Chunks that a message has at most.
pub(super) const IN_FLIGHT: usize = 2;
/// OpenCL's contexts whose queues are kept.
const CONTEXTS: usize = 4;

/// Where bytes are that the CPU does not reach, or is not to.
#[derive(Clone)]
pub(super) enum Where {
    Buffer(Buffer<u8>),
    OpenCl(opencl::Memory),
}

impl Where {
    pub fn len(&self) -> usize {
        match self {
            Where::Buffer(buffer) => buffer.len(),
            Where::OpenCl(memory) => memory.len(),
        }
    }
}

impl fmt::Debug for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Where::Buffer(buffer) => buffer.fmt(f),
            Where::OpenCl(memory) => memory.fmt(f),
        }
    }
}

/// Bytes on their way between a device and the host.
pub(super) struct Copy {
    lane: usize,
    /// Of the lane; `None` for a piece of a ring.
    chunk: Option<usize>,
    done: Done,
    /// Its bytes, and how many of them the rings have got. Of a receive they came from there.
    pub len: usize,
    given: usize,
}

/// The memory of a request that goes through chunks.
pub(super) struct Away {
    pub memory: Where,
    /// Before it the memory is somebody else's.
    pub after: Option<Point>,
    /// Raised when this is dropped.
    pub release: Option<Release>,
    /// Of a receive: by whom it is copied, if not by the lane.
    pub copier: Option<Copier>,
    pub copies: VecDeque<Copy>,
    /// Bytes that copies have been started for.
    pub begun: usize,
    /// Of a receive: what came with its envelope.
    pub held: Option<Box<[u8]>>,
    /// Whether it came so.
    pub is_eager: bool,
    /// Of a receive that nobody waits for any more: what comes is dropped.
    pub dropped: bool,
}

impl Away {
    pub fn new(memory: Where) -> Away {
        Away {
            memory,
            after: None,
            release: None,
            copier: None,
            copies: VecDeque::new(),
            begun: 0,
            held: None,
            is_eager: false,
            dropped: false,
        }
    }

    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether all that was begun has got to its memory.
    pub fn is_idle(&self) -> bool {
        self.copies.is_empty() && self.held.is_none()
    }

    /// Whether the memory may be used, and who copies may be given something.
    pub fn is_free(&mut self) -> Result<bool> {
        if self.copier.as_ref().is_some_and(|copier| copier.stream.is_capturing()) {
            return Ok(false);
        }
        if let Some(after) = &self.after {
            if !after.is_reached()? {
                return Ok(false);
            }
            self.after = None;
        }
        Ok(true)
    }
}

/// What staging has done so far, of one rank's tagged messages.
///
/// ```
/// use libmp::World;
/// use libmp::tagged::{Options, Staged};
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// let messages = world.tagged(&Options::default())?;
/// assert_eq!(messages.staged(), Staged::default()); // no message of a device's memory, no chunk
/// # world.finish()
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Staged {
    /// Bytes of pinned host memory.
    pub pool: usize,
    /// Chunks of it that are in use now.
    pub in_use: usize,
    /// Bytes of a chunk, the largest of its lanes: as chosen by what copies of several sizes take, or as [`Options::chunk`](super::Options::chunk) says.
    pub chunk: usize,
    /// The most chunks that one message had at once.
    pub most: usize,
    /// Copies between devices and chunks, or rings.
    pub copies: u64,
    /// Those of them between a device and a ring: no CPU of this rank touches their bytes.
    pub straight: u64,
    /// Copies from the memory of a sender's device, mapped here: those bytes are in no ring and no chunk.
    pub direct: u64,
    /// Queues of OpenCL's that were made, two for each context.
    pub contexts: u64,
}

/// The lanes of a rank.
pub(super) struct Staging {
    lanes: Vec<Lane>,
    queues: Queues,
    /// See [`Options::chunk`](super::Options::chunk).
    chosen: Option<usize>,
    words: Arc<Words>,
    plane: Arc<Plane>,
    pub rings: Pinned,
    /// Copies by streams of the program's own, of receives that are over.
    trailing: Vec<Copy>,
    most: usize,
    copies: u64,
    straight: u64,
    direct: u64,
}

impl Staging {
    pub fn new(chosen: Option<usize>, plane: &Arc<Plane>, words: &Arc<Words>) -> Staging {
        let (plane, words) = (plane.clone(), words.clone());
        let (lanes, queues, rings) = (Vec::new(), Queues::new(CONTEXTS), Pinned::default());
        let trailing = Vec::new();
        let (most, copies, straight, direct) = (0, 0, 0, 0);
        Staging {
            lanes,
            queues,
            chosen,
            words,
            plane,
            rings,
            trailing,
            most,
            copies,
            straight,
            direct,
        }
    }

    /// Copies started so far.
    pub fn copies(&self) -> u64 {
        self.copies
    }

    pub fn report(&mut self) -> Staged {
        // What has failed is found by who uses the chunk next.
        let _ = self.settle_trailing();
        Staged {
            pool: self.lanes.iter().map(Lane::size).sum(),
            in_use: self.lanes.iter().map(|lane| CHUNKS - lane.free.len()).sum(),
            chunk: self.lanes.iter().map(|lane| lane.chunk).max().unwrap_or_default(),
            most: self.most,
            copies: self.copies,
            straight: self.straight,
            direct: self.direct,
            contexts: self.queues.made(),
        }
    }

    /// The lane of a memory in a direction, which is made if there is none.
    fn lane(&mut self, memory: &Where, is_down: bool) -> Result<usize> {
        let device = match memory {
            Where::Buffer(buffer) => Some(buffer.device()),
            Where::OpenCl(_) => None,
        };
        let ordinal = device.map(Device::ordinal);
        let known =
            self.lanes.iter().position(|lane| lane.ordinal == ordinal && lane.is_down == is_down);
        if let Some(lane) = known {
            return Ok(lane);
        }
        self.lanes.push(Lane::new(device, is_down, self.chosen, &self.words)?);
        Ok(self.lanes.len() - 1)
    }

    /// Bytes of a chunk for a memory in a direction.
    pub fn chunk(&mut self, memory: &Where, is_down: bool) -> Result<usize> {
        let lane = self.lane(memory, is_down)?;
        Ok(self.lanes[lane].chunk)
    }

    /// Starts a copy between a chunk that was taken and the memory, from its byte `at` on.
    fn copy(
        &mut self,
        lane: usize,
        chunk: usize,
        away: &mut Away,
        at: usize,
        len: usize,
    ) -> Result<()> {
        let pool = self.lanes[lane].pool()?;
        let done = match &away.memory {
            Where::Buffer(memory) => {
                let start = chunk * self.lanes[lane].chunk;
                let (host, part) = (pool.slice(start..start + len)?, memory.slice(at..at + len)?);
                let Some(done) = self.copy_by_stream(lane, away, &part, &host)? else {
                    return Ok(());
                };
                done
            }
            Where::OpenCl(memory) => {
                let queue = self.queues.of(memory)?;
                let host = self.lanes[lane].chunk(chunk, 0).at(0);
                // SAFETY: the chunk is this copy's until it is given back, and the pool outlives it.
                let event = unsafe {
                    match self.lanes[lane].is_down {
                        true => queue.read(memory, at, host, len)?,
                        false => queue.write(memory, at, host, len)?,
                    }
                };
                Done::OpenCl(event)
            }
        };
        self.begun(away, Copy { lane, chunk: Some(chunk), done, len, given: 0 });
        Ok(())
    }

    /// Starts a copy between part of a memory and other memory that its device reaches, in the lane's direction: by the stream of the lane, or that of
    /// the program which the memory comes with. Nothing for a lane without one, which is no device's.
    fn copy_by_stream(
        &self,
        lane: usize,
        away: &Away,
        part: &Buffer<u8>,
        other: &Buffer<u8>,
    ) -> Result<Option<Done>> {
        let Lane { copier, is_down, .. } = &self.lanes[lane];
        let (to, from) = if *is_down { (other, part) } else { (part, other) };
        let Some(Copier { stream, words }) = away.copier.as_ref().or(copier.as_ref()) else {
            return Ok(None);
        };
        let Plane { probes, trace, .. } = &*self.plane;
        let label = || {
            let way = if *is_down { "from" } else { "to" };
            let name = format!("tagged message {way} {}", part.device());
            trace::Label::new(name, &[("bytes", part.len() as u64)])
        };
        probes.around(trace, stream, label, || stream.copy(to, from))?;
        Ok(Some(Done::Told(words.tell(stream)?)))
    }

    fn begun(&mut self, away: &mut Away, copy: Copy) {
        away.copies.push_back(copy);
        self.copies += 1;
        self.most = self.most.max(away.copies.len());
    }

    /// Starts a copy between a piece of a ring that a device reaches and memory of that device, behind the bytes that were begun before.
    pub fn copy_straight(
        &mut self,
        away: &mut Away,
        ring: &Buffer<u8>,
        is_down: bool,
    ) -> Result<()> {
        self.copy_mapped(away, ring, is_down)?;
        self.straight += 1;
        Ok(())
    }

    /// Starts a copy between memory and other memory that its device reaches, behind the bytes that were begun before.
    fn copy_mapped(&mut self, away: &mut Away, other: &Buffer<u8>, is_down: bool) -> Result<()> {
        let Where::Buffer(memory) = &away.memory else { return Ok(()) }; // No other is reached so.
        let lane = self.lane(&away.memory, is_down)?;
        let (at, len) = (away.begun, other.len());
        let part = memory.slice(at..at + len)?;
        let Some(done) = self.copy_by_stream(lane, away, &part, other)? else { return Ok(()) };
        away.begun += len;
        self.begun(away, Copy { lane, chunk: None, done, len, given: 0 });
        Ok(())
    }

    /// Starts to copy a whole message out of a sender's memory, which the device of the receive maps.
    pub fn copy_direct(&mut self, away: &mut Away, theirs: &Buffer<u8>) -> Result<()> {
        self.copy_mapped(away, theirs, false)?;
        self.direct += 1;
        Ok(())
    }

    /// Whether the first copy of a message is done; nothing if there is none.
    pub fn is_first_done(&mut self, away: &Away) -> Result<bool> {
        let Some(copy) = away.copies.front() else { return Ok(false) };
        self.lanes[copy.lane].is_done(&copy.done)
    }

    fn give_back(&mut self, copy: &Copy) {
        self.lanes[copy.lane].free.extend(copy.chunk);
    }

    /// Starts to fetch what a send's rings can soon take.
    pub fn fetch(&mut self, away: &mut Away) -> Result<()> {
        while away.begun < away.len() && away.copies.len() < IN_FLIGHT && away.is_free()? {
            let lane = self.lane(&away.memory, true)?;
            let Some(chunk) = self.lanes[lane].free.pop() else { return Ok(()) };
            let (at, len) = (away.begun, self.lanes[lane].chunk.min(away.len() - away.begun));
            if let Err(error) = self.copy(lane, chunk, away, at, len) {
                self.lanes[lane].free.push(chunk);
                return Err(error);
            }
            away.begun += len;
        }
        Ok(())
    }

    /// What of a send has been fetched and the rings have not got: memory of that many bytes.
    pub fn fetched(&mut self, away: &Away) -> Result<Option<(Memory, usize)>> {
        if !self.is_first_done(away)? {
            return Ok(None);
        }
        let Some(copy) = away.copies.front() else { return Ok(None) };
        let Some(chunk) = copy.chunk else { return Ok(None) };
        let memory = self.lanes[copy.lane].chunk(chunk, copy.given);
        Ok(Some((memory, copy.len - copy.given)))
    }

    /// The rings have got so many of the bytes that were fetched.
    pub fn given(&mut self, away: &mut Away, len: usize) {
        let Some(copy) = away.copies.front_mut() else { return };
        copy.given += len;
        if copy.given >= copy.len
            && let Some(copy) = away.copies.pop_front()
        {
            self.give_back(&copy);
        }
    }

    /// Gives back the chunks of a receive whose bytes are there.
    pub fn settle(&mut self, away: &mut Away) -> Result<()> {
        while self.is_first_done(away)? {
            let Some(copy) = away.copies.pop_front() else { break };
            self.give_back(&copy);
        }
        Ok(())
    }

    /// A chunk for the next bytes of a receive, if it may have one now: its memory, and what [`store`](Self::store) is told.
    pub fn room(&mut self, away: &mut Away) -> Result<Option<(Memory, (usize, usize))>> {
        self.settle(away)?;
        if away.copies.len() >= IN_FLIGHT || !away.is_free()? {
            return Ok(None);
        }
        let lane = self.lane(&away.memory, false)?;
        // Streams of the program's own may stand still until others' messages have come.
        let least = if away.copier.is_some() { CHUNKS / 2 } else { 0 };
        if self.lanes[lane].free.len() <= least {
            self.settle_trailing()?;
        }
        let free = &self.lanes[lane].free;
        let Some(&chunk) = free.last().filter(|_| free.len() > least) else { return Ok(None) };
        self.lanes[lane].pool()?;
        Ok(Some((self.lanes[lane].chunk(chunk, 0), (lane, chunk))))
    }

    /// Starts to store the first bytes of the chunk behind those stored before.
    pub fn store(
        &mut self,
        away: &mut Away,
        (lane, chunk): (usize, usize),
        len: usize,
    ) -> Result<()> {
        self.copy(lane, chunk, away, away.begun, len)?;
        self.lanes[lane].free.retain(|free| *free != chunk);
        away.begun += len;
        Ok(())
    }

    /// Goes on with a receive all of whose bytes have come.
    pub fn land(&mut self, away: &mut Away) -> Result<()> {
        if let Some(held) = away.held.take() {
            let fits = held.len().min(away.len());
            if fits > 0 && !away.dropped {
                let Some((memory, place)) = self.room(away)? else {
                    away.held = Some(held);
                    return Ok(());
                };
                write(&memory, &held[..fits]);
                self.store(away, place, fits)?;
            }
        }
        self.settle(away)
    }

    /// A receive by a stream of the program's own is over when that has been given all copies: whether this one is.
    pub fn is_given(&mut self, away: &mut Away) -> bool {
        if away.copier.is_some() && away.held.is_none() {
            self.trailing.extend(away.copies.drain(..));
        }
        away.is_idle()
    }

    /// Gives back the chunks of receives that are over.
    fn settle_trailing(&mut self) -> Result<()> {
        for at in (0..self.trailing.len()).rev() {
            let Copy { lane, done, .. } = &self.trailing[at];
            if self.lanes[*lane].is_done(done)? {
                let copy = self.trailing.swap_remove(at);
                self.give_back(&copy);
            }
        }
        Ok(())
    }

    /// Waits for the copies of receives that are over.
    pub fn finish_trailing(&mut self) {
        let all = std::mem::take(&mut self.trailing);
        self.wait_for(all);
    }

    /// Nobody uses the chunks of a request any more: waits for its copies.
    pub fn finish(&mut self, away: &mut Away) {
        self.wait_for(away.copies.drain(..));
    }

    fn wait_for(&mut self, copies: impl IntoIterator<Item = Copy>) {
        for copy in copies {
            // What fails has ended, too.
            if let Err(error) = copy.done.finish() {
                tracing::debug!(%error, "a copy of a tagged message");
            }
            self.give_back(&copy);
        }
    }
}
