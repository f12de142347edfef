//! A group of ranks and the collectives of the host over it.
//!
//! Collectives carry set-up, convergence tests and diagnostics: small things, through rank 0. Every member calls the same
//! collectives of a communicator in the same order. Each call has a deadline ([`Communicator::with_timeout`], by default
//! `MP_TIMEOUT`); one that passes it ends the world, because the ranks no longer agree on where they are.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytemuck::Pod;
use gdsync::{Deadline, Device, Stream, Until, Word32, Word64};

use crate::collective::{self, BLOB_MAX, Call, Number, ReduceOp, nothing};
use crate::control::cause::Cause;
use crate::control::message::{Outcome, Payload, PeerInfo};
use crate::control::{Control, Turn, WORLD, team_number};
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

    /// Waits until every rank has entered the barrier.
    ///
    /// # Errors
    /// [`Error::PeerLost`], [`Error::Aborted`], [`Error::Timeout`] and [`Error::Protocol`] when the world is over,
    /// [`Error::Finished`] after it, [`Error::Mismatch`] when another rank calls something else. The same holds for all
    /// collectives.
    pub fn barrier(&self) -> Result<()> {
        self.call(Call::Barrier, nothing()).map(drop)
    }

    /// Gives every rank the blob of rank `root`; what the others hold in `blob` is replaced.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier); [`Error::NoSuchRank`], and [`Error::TooLarge`] for a blob over [`BLOB_MAX`], both
    /// before anybody is told: the other ranks go on waiting for this one.
    pub fn broadcast(&self, root: usize, blob: &mut Vec<u8>) -> Result<()> {
        self.info(root)?;
        let mine = self.rank() == root;
        let payload = if mine { self.blob(blob)? } else { nothing() };
        // The peer exists, so its number fits.
        let result = self.call(Call::Broadcast { root: root as u32 }, payload)?.1;
        if !mine {
            blob.clear();
            blob.extend_from_slice(&result);
        }
        Ok(())
    }

    /// Gives every rank the blobs of all, in rank order. They may have different sizes, also 0.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier); [`Error::TooLarge`] as [`broadcast`](Self::broadcast); [`Error::Mismatch`] if the
    /// blobs are more than [`RESULT_MAX`](crate::RESULT_MAX) together.
    pub fn all_gather(&self, blob: &[u8]) -> Result<Vec<Vec<u8>>> {
        let gathered = self.gather_blobs(blob)?;
        Ok(gathered.blobs().into_iter().map(<[u8]>::to_vec).collect())
    }

    /// The same without a copy of each: ranks of one process have one between them.
    pub(crate) fn gather_blobs(&self, blob: &[u8]) -> Result<Gathered> {
        let (turn, (_, bytes)) = self.call_numbered(Call::AllGather, self.blob(blob)?)?;
        let (group, size) = (self.inner.group, self.size());
        match collective::are_gathered(&bytes, size) {
            true => Ok(Gathered { bytes, size, key: (group, turn) }),
            false => Err(self.nonsense(Call::AllGather)),
        }
    }

    /// Gives rank `root` the blobs of all, in rank order; `None` elsewhere.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather); [`Error::NoSuchRank`], before anybody is told.
    pub fn gather(&self, root: usize, blob: &[u8]) -> Result<Option<Vec<Vec<u8>>>> {
        self.info(root)?;
        // The peer exists, so its number fits.
        let call = Call::Gather { root: root as u32 };
        let result = self.call(call, self.blob(blob)?)?.1;
        if self.rank() != root {
            return Ok(None);
        }
        let blobs = collective::decode_gathered(&result, self.size());
        blobs.map(Some).ok_or_else(|| self.nonsense(call))
    }

    /// Combines the ranks' vectors element by element; every rank gets the same bits. A sum is taken in rank order.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather); [`Error::Mismatch`] if the vectors differ in length or type.
    pub fn all_reduce<T: Number>(&self, op: ReduceOp, values: &mut [T]) -> Result<()> {
        let call = Call::AllReduce { op, element: T::ELEMENT };
        let result = self.call(call, self.blob(&collective::to_bytes(values))?)?.1;
        if collective::from_bytes(&result, values) { Ok(()) } else { Err(self.nonsense(call)) }
    }

    /// The sum over all ranks, in rank order; integers wrap around.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub fn sum<T: Number>(&self, value: T) -> Result<T> {
        self.reduce_one(ReduceOp::Sum, value)
    }

    /// The smallest value of all ranks; NaN if any is NaN.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub fn min<T: Number>(&self, value: T) -> Result<T> {
        self.reduce_one(ReduceOp::Min, value)
    }

    /// The largest value of all ranks; NaN if any is NaN.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub fn max<T: Number>(&self, value: T) -> Result<T> {
        self.reduce_one(ReduceOp::Max, value)
    }

    fn reduce_one<T: Number>(&self, op: ReduceOp, value: T) -> Result<T> {
        let mut values = [value];
        self.all_reduce(op, &mut values)?;
        Ok(values[0])
    }

    /// Makes a communicator of the ranks that give the same `color`, ordered by `key`, equal keys by rank. A rank that
    /// gives no colour takes part in the call and gets none.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    pub fn split(&self, color: Option<u64>, key: i64) -> Result<Option<Communicator>> {
        let name = color.map(|color| format!("{} / colour {color}", self.inner.name));
        self.split_as(color, key, name.unwrap_or_default())
    }

    /// A communicator of `ranks` of this one, in this order. Each of them makes it, by itself and without a message: a split that
    /// everybody knows the outcome of, for teams that come and go. The others do not call it. Members that make several teams
    /// of the same ranks make these in the same order. Members that name different ranks find out with their first
    /// collective, which waits for those that have another team in mind until its deadline, and names them.
    ///
    /// ```
    /// # fn main() -> libmp::Result<()> {
    /// # let world = libmp::World::init()?;
    /// let pair: Vec<usize> = (0..world.size()).filter(|rank| rank / 2 == world.rank() / 2).collect();
    /// let pair = world.team(&pair)?;
    /// let sum = pair.sum(world.rank() as u64)?; // of two ranks, and of no others
    /// # assert!(sum <= 2 * world.size() as u64);
    /// # world.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchRank`]; [`Error::Mismatch`] if this rank is not among them, or one of them is twice; what ended the world.
    pub fn team(&self, ranks: &[usize]) -> Result<Communicator> {
        let op = || format!("team of {}", self.inner.name);
        self.inner.control.check("team")?;
        let members = ranks.iter().map(|&rank| self.world_rank(rank).map(|world| world as u32));
        let members = members.collect::<Result<Arc<[u32]>>>()?;
        let mut sorted = ranks.to_vec();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            let reason = format!("rank {} is named twice", twice[0]);
            return Err(Error::Mismatch { op: op(), reason });
        }
        let Some(rank) = ranks.iter().position(|&rank| rank == self.rank()) else {
            let reason = format!("rank {}, which makes it, is not among its ranks", self.rank());
            return Err(Error::Mismatch { op: op(), reason });
        };
        let first = team_number(self.inner.group, 0, &members);
        let number = {
            let mut teams = self.inner.teams.lock().unwrap_or_else(PoisonError::into_inner);
            let founded = teams.entry(first).or_default();
            *founded += 1;
            team_number(self.inner.group, *founded, &members)
        };
        let name = format!("{} / {}", self.inner.name, crate::error::ranks(ranks));
        Ok(self.part((number, true), name, members, rank))
    }

    /// The communicator of the ranks on this rank's host, in rank order: those that share memory with it. A collective
    /// call like [`split`](Self::split). What is a host: the running kernel and its PID namespace, or `MP_NODE`.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    pub fn node_local(&self) -> Result<Communicator> {
        let nodes: Vec<&str> = (0..self.size())
            .map(|rank| self.info(rank).map(|peer| &peer.node[..]))
            .collect::<Result<_>>()?;
        // The colour is the first rank on the same host.
        let first =
            nodes.iter().position(|&node| node == nodes[self.rank()]).unwrap_or(self.rank());
        let name = format!("{} / node {}", self.inner.name, self.host(self.rank())?);
        let local = self.split_as(Some(first as u64), self.rank() as i64, name)?;
        local.ok_or_else(|| self.nonsense(Call::Split { color: Some(first as u64), key: 0 }))
    }

    fn split_as(&self, color: Option<u64>, key: i64, name: String) -> Result<Option<Communicator>> {
        let call = Call::Split { color, key };
        let (group, members) = match self.call(call, nothing())?.0 {
            Outcome::Group { id, members } => (id, members),
            Outcome::NoGroup => return Ok(None),
            _ => return Err(self.nonsense(call)),
        };
        let me = self.world_rank(self.rank())?;
        let known = members.iter().all(|&rank| (rank as usize) < self.inner.peers.len());
        let rank = members.iter().position(|&rank| rank as usize == me);
        let (true, Some(rank)) = (known, rank) else { return Err(self.nonsense(call)) };
        Ok(Some(self.part((group, false), name, members, rank)))
    }

    fn part(
        &self,
        (group, is_team): (u64, bool),
        name: String,
        members: Arc<[u32]>,
        rank: usize,
    ) -> Communicator {
        let Inner { control, plane, peers, .. } = &*self.inner;
        let (control, plane, peers) = (control.clone(), plane.clone(), peers.clone());
        let (turn, teams) = (Mutex::new(0), Mutex::default());
        let inner =
            Inner { control, plane, peers, group, name, members, rank, turn, is_team, teams };
        Communicator { inner: Arc::new(inner), timeout: self.timeout }
    }

    /// The barrier that ends the world in good order.
    pub(crate) fn finish_all(&self) -> Result<()> {
        self.inner.plane.finishing();
        self.call(Call::Finish, nothing()).map(drop)
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

    fn call(&self, call: Call, payload: Payload) -> Result<(Outcome, Payload)> {
        self.call_numbered(call, payload).map(|(_, result)| result)
    }

    /// A collective, and which one of this communicator it was.
    fn call_numbered(&self, call: Call, payload: Payload) -> Result<(u64, (Outcome, Payload))> {
        let what = format!("{call} on {}", self.inner.name);
        let _span = self.inner.plane.trace.span("collective", call.name());
        let mut turn = self.inner.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let group = self.inner.group;
        let plane = &self.inner.plane;
        let progress = || plane.progress().then(|| plane.helpers.moved());
        let control = &self.inner.control;
        let number = *turn;
        let team = (self.inner.is_team && number == 0).then(|| self.inner.members.clone());
        let which = Turn { group, turn: number, team };
        let result = control.call(which, call, payload, &what, self.timeout, progress);
        if matches!(result, Ok(_) | Err(Error::Mismatch { .. })) {
            *turn += 1;
        }
        result.map(|result| (number, result))
    }

    fn blob(&self, blob: &[u8]) -> Result<Payload> {
        if blob.len() > BLOB_MAX {
            return Err(Error::TooLarge {
                what: format!("a blob for a collective on {}", self.inner.name),
                size: blob.len(),
                limit: BLOB_MAX,
            });
        }
        Ok(blob.into())
    }

    /// A reply that does not fit the call: rank 0 does not speak as it should.
    fn nonsense(&self, call: Call) -> Error {
        let name = &self.inner.name;
        let what = format!("rank 0 gave a result for the {call} on {name} that it cannot have");
        self.inner.control.fail(Cause::Protocol { what }).during(&call.to_string(), Duration::ZERO)
    }

    fn no_such_rank(&self, rank: usize) -> Error {
        Error::NoSuchRank { rank, communicator: self.inner.name.clone(), size: self.size() }
    }
}

/// The blobs of all ranks, as they came.
pub(crate) struct Gathered {
    bytes: Payload,
    size: usize,
    key: (u64, u64),
}

impl Gathered {
    /// The blobs, in rank order.
    pub(crate) fn blobs(&self) -> Vec<&[u8]> {
        // Looked at when they came.
        collective::gathered_parts(&self.bytes, self.size).unwrap_or_default()
    }

    /// Of which collective this is the result: the same for all ranks, and for no other one.
    pub(crate) fn key(&self) -> (u64, u64) {
        self.key
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
