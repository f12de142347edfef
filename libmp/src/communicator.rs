//! A group of ranks: who they are, what is opened, made and waited for with them. Collectives of the host over it are
//! [`collectives`], groups of some of its ranks [`parts`].

mod collectives;
mod parts;

pub(crate) use collectives::Gathered;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytemuck::Pod;
use gdsync::{Deadline, Device, Stream, Until, Word32, Word64};

use crate::control::message::PeerInfo;
use crate::control::{Control, WORLD};
use crate::data::plane::Plane;
use crate::data::{
    Collective, Path, Peer, PeerCounters, Region, Step, Window, enqueue, wait_for_word, wait_until,
};
use crate::error::{Error, Result};
use crate::exchange::{Exchange, Field, Neighbour};
use crate::tagged::{self, Tagged};
use crate::trace::Trace;

/// A group of ranks. Clones are the same communicator; `Send` and `Sync`, one collective at a time.
///
/// ```
/// use std::time::Duration;
///
/// use libmp::World;
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// let parity = world.rank() as u64 % 2;
/// if let Some(half) = world.split(Some(parity), 0)? {
///     // Every call of it may take ten minutes.
///     half.with_timeout(Duration::from_secs(600)).barrier()?;
/// }
/// # world.finish()
/// # }
/// ```
#[derive(Clone)]
pub struct Communicator {
    inner: Arc<Inner>,
    timeout: Duration,
}

struct Inner {
    control: Arc<Control>,
    plane: Arc<Plane>,
    peers: Arc<[PeerInfo]>,
    group: u64,
    name: String,
    /// Ranks of the world in the order of this communicator.
    members: Arc<[u32]>,
    rank: usize,
    /// How many collectives have been called; held during a call.
    turn: Mutex<u64>,
    /// Its members have made it by themselves.
    is_team: bool,
    /// How many teams have been made of it, by their ranks.
    teams: Mutex<HashMap<u64, u64>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Rank 0 hears of a team with its first collective.
        let called = *self.turn.get_mut().unwrap_or_else(PoisonError::into_inner) > 0;
        if self.group != WORLD && (called || !self.is_team) {
            self.control.release(self.group);
        }
    }
}

impl Communicator {
    pub(crate) fn world(
        control: Arc<Control>,
        plane: Arc<Plane>,
        (peers, members): (Arc<[PeerInfo]>, Arc<[u32]>),
        rank: usize,
        (timeout, turn): (Duration, u64),
    ) -> Communicator {
        let (group, name, turn) = (WORLD, "the world".into(), Mutex::new(turn));
        let (is_team, teams) = (false, Mutex::default());
        let inner =
            Inner { control, plane, peers, group, name, members, rank, turn, is_team, teams };
        Communicator { inner: Arc::new(inner), timeout }
    }

    /// This rank's number in the communicator, from 0.
    pub fn rank(&self) -> usize {
        self.inner.rank
    }

    /// How many ranks the communicator has.
    pub fn size(&self) -> usize {
        self.inner.members.len()
    }

    /// What it is called in errors.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The number in the world of rank `rank` of this communicator.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`].
    pub fn world_rank(&self, rank: usize) -> Result<usize> {
        let world = self.inner.members.get(rank);
        world.map(|&world| world as usize).ok_or_else(|| self.no_such_rank(rank))
    }

    /// The name of the host of rank `rank`.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`].
    pub fn host(&self, rank: usize) -> Result<&str> {
        self.info(rank).map(|peer| &peer.host[..])
    }

    pub(crate) fn plane(&self) -> &Arc<Plane> {
        &self.inner.plane
    }

    /// Rank `rank` of this communicator as the other end of messages.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`].
    pub fn peer(&self, rank: usize) -> Result<Peer> {
        let (plane, group) = (self.inner.plane.clone(), self.inner.group);
        Ok(Peer { plane, rank: self.world_rank(rank)?, group, timeout: self.timeout })
    }

    /// How bytes go to rank `rank`; `MP_PATH` has a say in it.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`]; [`Error::NoPath`] if they cannot.
    pub fn path(&self, rank: usize) -> Result<Path> {
        self.inner.plane.path(self.world_rank(rank)?)
    }

    /// Memory for communication: `len` zeroed elements in the device's own memory, or in host memory that the other ranks
    /// of this host can map.
    ///
    /// # Errors
    /// [`Error::Memory`]: out of memory, or what the driver says.
    pub fn alloc<T: Pod>(&self, device: &Device, len: usize) -> Result<Region<T>> {
        Region::alloc(&self.inner.plane.pieces, device, len)
    }

    /// Opens a region of every rank to the others, for host, streams and kernels, and `signals` signals for each. A collective
    /// call; the regions may have different lengths, also 0, but live on devices of one kind, and all ranks name as many
    /// signals.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather); [`Error::Mismatch`] on every rank if one rank's memory cannot be exported to ranks that
    /// would map it, or if the numbers of signals differ; [`Error::NoPath`] for a rank that no path leads to.
    pub fn window<T: Pod>(&self, region: &Region<T>, signals: usize) -> Result<Window<T>> {
        Window::open(self, &self.inner.plane, region, signals)
    }

    /// Tagged messages between the ranks: send and receive with any source and any tag. A collective call; all ranks name the same
    /// options.
    ///
    /// # Errors
    /// As [`window`](Self::window); [`Error::Mismatch`] on every rank for options that differ or are out of their range.
    pub fn tagged(&self, options: &tagged::Options) -> Result<Tagged> {
        Tagged::new(self, &self.inner.plane, options)
    }

    /// Prepares the exchange of the borders of `fields`, which are memory of `device`, with `neighbours`, at most 26. Where
    /// there is none of a number, it is left out of what is sent and of the borders of fields. A collective call.
    ///
    /// # Errors
    /// As [`window`](Self::window); [`Error::Mismatch`] on every rank if two neighbours do not agree on a border, or a rank's
    /// cells are not in its region.
    pub fn exchange(
        &self,
        device: &Device,
        neighbours: &[Option<Neighbour>],
        fields: &[Field],
    ) -> Result<Exchange> {
        Exchange::prepare(self, &self.inner.plane, device, neighbours, fields)
    }

    /// Makes a stream do the steps in order, in one launch. They mean what they would mean enqueued one by one.
    ///
    /// A CUDA stream holds about a thousand launches; one more waits until there is room. Ranks that are threads of one process
    /// and share a GPU must not run so far ahead of each other: while one waits for room, the driver lets no other
    /// enqueue.
    ///
    /// # Errors
    /// As [`Send::start_on`](crate::Send::start_on), of the first step that fails; nothing is enqueued then.
    /// [`Error::Mismatch`] for an operation of another world, or of another rank of this process.
    pub fn enqueue(&self, stream: &Stream, steps: &[Step<'_>]) -> Result<()> {
        enqueue(&self.inner.plane, stream, steps)
    }

    /// Prepares collectives of the ranks, in the memory of `device`: the host, streams and kernels start them, and they take
    /// microseconds instead of a round through rank 0. There is room for blocks of `bytes` bytes: of what one rank gives another,
    /// which is all of an all-reduce and one part of an all-to-all. Up to 8 KiB take 32 times as much memory for each rank,
    /// more some MiB whatever the number. A collective call.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather); [`Error::Mismatch`] on every rank if some name a GPU and some the host, or another
    /// number; [`Error::Memory`].
    pub fn prepare_collective(&self, device: &Device, bytes: usize) -> Result<Collective> {
        Collective::prepare(self, &self.inner.plane, device, bytes)
    }

    /// A stream whose waits end when the world does: what it computes then means nothing, and
    /// [`synchronize`](Self::synchronize) says so. A call that finds it full waits for room at most this communicator's timeout,
    /// and helps messages of this rank meanwhile.
    ///
    /// # Errors
    /// [`Error::Memory`]: what the driver or the system says.
    pub fn stream(&self, device: &Device) -> Result<Stream> {
        self.inner.plane.stream(device, self.timeout)
    }

    /// The same for a `CUstream` that the program has made.
    ///
    /// # Errors
    /// [`Error::Memory`]: the device is the host, the stream is NULL; what the driver says.
    ///
    /// # Safety
    /// As [`Stream::adopt`]: it is a stream of the device, which outlives what is returned and is idle when that is dropped.
    pub unsafe fn adopt_stream(
        &self,
        device: &Device,
        stream: *mut std::ffi::c_void,
    ) -> Result<Stream> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.plane.adopt_stream(device, stream, self.timeout) }
    }

    /// Waits until everything enqueued on the stream so far has run and all of it went well. Helps messages of this rank
    /// meanwhile that the host has started.
    ///
    /// # Errors
    /// What ended the world; [`Error::Memory`] as [`Stream::synchronize`].
    pub fn synchronize(&self, stream: &Stream, deadline: Deadline) -> Result<()> {
        self.inner.plane.synchronize(stream, deadline)
    }

    /// Waits, by the host, until a 32-bit word is what is awaited (acquire). Helps messages of this rank meanwhile.
    ///
    /// # Errors
    /// [`Error::Late`] at the deadline; [`Error::Memory`] for a word that the CPU does not reach, and for one of no bits; what
    /// ended the world.
    pub fn wait32(&self, word: &Word32, until: Until<u32>, deadline: Deadline) -> Result<()> {
        let look = || word.read().map(|seen| (seen.into(), until.is_met_by(seen)));
        wait_for_word(&self.inner.plane, word, until.widened(), deadline, look)
    }

    /// Waits, by the host, until a 64-bit word is what is awaited (acquire). Helps messages of this rank meanwhile.
    ///
    /// ```
    /// use std::time::Duration;
    /// use libmp::gdsync::Until;
    /// use libmp::{Deadline, Device, World};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let world = World::init()?;
    /// let words = world.alloc::<u64>(&Device::Host, 8)?;
    /// let (ready, stream) = (words.buffer().word(3)?, world.stream(&Device::Host)?);
    /// stream.write64(&ready, 7)?; // or another rank, through a window of the region
    /// world.wait64(&ready, Until::Eq(7), Deadline::after(Duration::from_secs(10)))?;
    /// # Ok(world.finish()?)
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`wait32`](Self::wait32).
    pub fn wait64(&self, word: &Word64, until: Until<u64>, deadline: Deadline) -> Result<()> {
        let look = || word.read().map(|seen| (seen, until.is_met_by(seen)));
        wait_for_word(&self.inner.plane, word, until, deadline, look)
    }

    /// Waits until `look` says that what it looks for is there: for words that are no signals, any comparison, several at once. `op`
    /// is what errors call it. Between two looks it makes progress and pauses, longer the longer it waits.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use std::time::Duration;
    ///
    /// use libmp::{Deadline, World};
    ///
    /// # fn main() -> libmp::Result<()> {
    /// # let world = World::init()?;
    /// let words = [AtomicU64::new(0), AtomicU64::new(5)]; // which other ranks write
    /// let odd = || words.iter().any(|word| word.load(Ordering::Acquire) % 2 == 1);
    /// world.wait_until("a wait for an odd word", Deadline::after(Duration::from_secs(10)), odd)?;
    /// # world.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Late`]; what ended the world, seen before the last look.
    pub fn wait_until(
        &self,
        op: &str,
        deadline: Deadline,
        look: impl FnMut() -> bool,
    ) -> Result<()> {
        wait_until(&self.inner.plane, op, deadline, look)
    }

    /// Waits until the world is over: what has ended it, or nothing if this rank has finished it, or dropped it; or until an operation
    /// on a stream, or a call of a kernel, has failed or was refused, which the next synchronisation would say, too. For a thread
    /// that sees to it that a program ends which makes no calls of this library, or waits for a kernel that waits for what was refused.
    pub fn wait_for_end(&self) -> Option<Error> {
        self.inner.plane.wait_for_end()
    }

    /// The same communicator whose calls give up after `timeout`.
    #[must_use = "the communicator itself keeps its timeout"]
    pub fn with_timeout(&self, timeout: Duration) -> Communicator {
        Communicator { timeout, ..self.clone() }
    }

    pub(crate) fn info(&self, rank: usize) -> Result<&PeerInfo> {
        let world = self.world_rank(rank)?;
        self.inner.peers.get(world).ok_or_else(|| self.no_such_rank(rank))
    }

    /// What this rank has done with each rank of the communicator so far, in rank order.
    pub fn counters(&self) -> Vec<PeerCounters> {
        let plane = &self.inner.plane;
        self.inner.members.iter().map(|&rank| plane.counted(rank as usize)).collect()
    }

    /// The same of those ranks with which there was anything to count.
    pub(crate) fn counters_in_use(&self) -> impl Iterator<Item = PeerCounters> {
        let plane = &self.inner.plane;
        let used = self.inner.members.iter().filter(|rank| plane.has_counted(**rank as usize));
        used.map(|&rank| plane.counted(rank as usize)).filter(|counters| !counters.is_empty())
    }

    pub(crate) fn trace(&self) -> &Trace {
        &self.inner.plane.trace
    }

    /// Takes in what streams have done by now.
    pub(crate) fn resolve_trace(&self) {
        self.inner.plane.probes.resolve(self.trace());
    }

    /// The time after which its calls give up.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    fn no_such_rank(&self, rank: usize) -> Error {
        Error::NoSuchRank { rank, communicator: self.inner.name.clone(), size: self.size() }
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Communicator")
            .field("name", &self.inner.name)
            .field("rank", &self.inner.rank)
            .field("members", &self.inner.members)
            .finish_non_exhaustive()
    }
}
