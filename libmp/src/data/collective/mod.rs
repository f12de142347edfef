//! Collectives of the ranks of a communicator, prepared once, started by the host, on a stream or inside a kernel. Every rank gives
//! every other a block directly, and what comes is placed, or combined in rank order: one step, for few ranks.
//!
//! The protocol is that of `mp/collective.cuh`: packets into the inboxes of ranks that map each other's memory, lanes of pieces for
//! large blocks, puts and signals of a window where some are reached through a NIC. Which block goes to whom is in `blocks.rs`, for
//! all of them. Runs are counted in the memory of the device. On memory that the CPU reaches it goes by itself (`host.rs`); for a
//! GPU the host launches the kernel.

mod blocks;
mod host;
mod job;
mod shared;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytemuck::Pod;
use gdsync::{Deadline, Device, Space, Stream};

use super::name::{Name, Progress, What};
use super::plane::Plane;
use super::region::Region;
use super::wait::Backoff;
use crate::collective::{Number, ReduceOp};
use crate::communicator::Communicator;
use crate::error::{Error, Result};
use crate::ownership::Lock;
use blocks::{Kind, Phase, Reduction};
use host::{InPlace, InRegions, Memory, Run, Task};
use job::{Job, extents, phases_of};
use shared::Shared;

/// Bytes of the host's values that a GPU combines at once.
const STAGED: usize = 64 << 10;

/// The collectives of a communicator on memory of a device, of any kind and type: [`Communicator::prepare_collective`].
///
/// A method for each kind says what is done ([`CollectiveRun`]), which the host then runs, or starts and waits for, or starts on a
/// stream; a kernel calls the functions of `mp/collective.cuh` with the [`handle`](Self::handle). Every rank starts the same kinds
/// with the same lengths, roots and operations in the same order – in different ways, if it likes, and each time in another one.
/// Two runs of one object do not overlap. What a rank says cannot be compared with what the others say: ranks that do not agree
/// wait for each other until the timeout, or take what is there.
///
/// Runs are counted in the device's memory, so a captured graph can be replayed. Ranks are combined in rank order: every rank gets
/// the same bits, and gets them again. Memory for what is given and taken may be the same, if a rank's own block is at the same
/// place in both.
///
/// # Order
/// A run is complete for a rank when what it takes is there, and what it gives may be written again. Only a barrier orders more: what
/// every rank did before – in the thread that starts it, on the stream, in the group of threads – is visible to all behind it;
/// through a NIC also what it put to whichever rank.
///
/// # Failure
/// A wait ends with the communicator's timeout, with the world, and, through a NIC, when a request fails. Of a stream
/// [`Communicator::synchronize`] returns the error; in a kernel the call returns the status. After an error it cannot be used any
/// more, but for a host's wait whose deadline has passed.
///
/// ```
/// use std::time::Duration;
///
/// use libmp::{Deadline, Device, ReduceOp, World};
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// let all = world.prepare_collective(&Device::Host, 1024)?;
/// let (mine, everyones) = (world.alloc::<f64>(&Device::Host, 2)?, world.alloc::<f64>(&Device::Host, 2 * world.size())?);
/// mine.write(&[1.0, world.rank() as f64])?;
/// all.all_gather(&mine, &everyones).run()?;
/// assert_eq!(everyones.to_vec()?[..2], [1.0, 0.0]);
/// all.all_reduce(ReduceOp::Sum, &mine, &mine).start()?; // or start_on a stream, or in a kernel
/// // Something else meanwhile.
/// all.wait(Deadline::after(Duration::from_secs(10)))?;
/// assert_eq!(mine.to_vec()?[0], world.size() as f64);
/// let mut values = [1, world.rank()].map(|value| value as u64);
/// all.all_reduce_slice(ReduceOp::Max, &mut values)?;
/// # world.finish()
/// # }
/// ```
pub struct Collective {
    shared: Arc<Shared>,
    host: Lock<OfHost>,
    /// Values of the host that a GPU combines.
    staging: Option<Region<u64>>,
    /// Always the same.
    barrier: Job,
}

/// A run of a [`Collective`] that is to be started.
///
/// ```
/// use libmp::{Device, World};
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// let (all, stream) = (world.prepare_collective(&Device::Host, 0)?, world.stream(&Device::Host)?);
/// let barrier = all.barrier(); // nothing has happened yet
/// barrier.start_on(&stream)?;
/// # world.synchronize(&stream, libmp::Deadline::after(std::time::Duration::from_secs(10)))?;
/// # world.finish()
/// # }
/// ```
#[must_use = "nothing happens before it is started"]
pub struct CollectiveRun<'a> {
    collective: &'a Collective,
    job: Result<Cow<'a, Job>>,
}

/// What the host runs, one at a time.
#[derive(Default)]
struct OfHost {
    started: Option<Started>,
    slice: SliceRun,
}

/// The last run of values of the host, whose memory the next takes.
#[derive(Default)]
struct SliceRun {
    of: Option<(Kind, usize)>,
    phases: Vec<Phase>,
    run: Run,
}

/// A start of the host.
struct Started {
    since: Instant,
    how: How,
}

#[allow(clippy::large_enum_variant, reason = "there is one of them")]
enum How {
    Here { run: Run, job: Job },
    OnStream(Stream),
}

impl Collective {
    pub(crate) fn prepare(
        communicator: &Communicator,
        plane: &Arc<Plane>,
        device: &Device,
        bytes: usize,
    ) -> Result<Collective> {
        let shared = Shared::prepare(communicator, plane, device, bytes)?;
        let failed = |source| Error::Memory { op: shared.name(), source };
        let staging = device.as_cuda().map(|_| {
            // A word of every rank at least.
            let ranks = shared.world_ranks.len();
            let bytes = shared.bytes.saturating_mul(ranks).min(STAGED.max(8 * ranks));
            let bytes = plane.pieces.cut(device, Space::Pinned, bytes);
            bytes.and_then(|bytes| bytes.cast()).map(Region::from_buffer).map_err(failed)
        });
        let (staging, shared) = (staging.transpose()?, Arc::new(shared));
        let nothing = shared.nothing()?;
        let barrier = Job::new(&shared, Kind::Barrier, (&nothing, &nothing), 0, None)?;
        Ok(Collective { shared, host: Lock::new(OfHost::default()), staging, barrier })
    }

    /// Waits for all ranks, and orders what they did.
    pub fn barrier(&self) -> CollectiveRun<'_> {
        CollectiveRun { collective: self, job: Ok(Cow::Borrowed(&self.barrier)) }
    }

    /// Gives every rank the values of rank `root`.
    pub fn broadcast<T: Pod>(&self, root: usize, values: &Region<T>) -> CollectiveRun<'_> {
        self.moves(Kind::Broadcast { root }, values, values, values.len())
    }

    /// Gives every rank the values of all, in rank order. They are equally many on all ranks.
    pub fn all_gather<T: Pod>(&self, from: &Region<T>, to: &Region<T>) -> CollectiveRun<'_> {
        self.moves(Kind::AllGather { in_place: false }, from, to, from.len())
    }

    /// Gives rank `root` the values of all, in rank order. The others' `to` is not looked at.
    pub fn gather<T: Pod>(
        &self,
        root: usize,
        from: &Region<T>,
        to: &Region<T>,
    ) -> CollectiveRun<'_> {
        self.moves(Kind::Gather { root }, from, to, from.len())
    }

    /// Gives each rank its part, as much as there is room for in `to`, of the values of rank `root`, which are in rank order. The
    /// others' `from` is not looked at.
    pub fn scatter<T: Pod>(
        &self,
        root: usize,
        from: &Region<T>,
        to: &Region<T>,
    ) -> CollectiveRun<'_> {
        self.moves(Kind::Scatter { root }, from, to, to.len())
    }

    /// Gives each rank its part of this rank's values, and takes a part of each rank's, both in rank order: equal parts.
    pub fn all_to_all<T: Pod>(&self, from: &Region<T>, to: &Region<T>) -> CollectiveRun<'_> {
        self.moves(Kind::AllToAll, from, to, from.len() / self.shared.world_ranks.len())
    }

    /// Gives each rank the elements `given` of it of `from`, and takes what each gives to the elements `taken` of it of `to`, which are
    /// as many as that rank says. The regions do not overlap.
    pub fn all_to_all_v<T: Pod>(
        &self,
        from: &Region<T>,
        given: &[Range<usize>],
        to: &Region<T>,
        taken: &[Range<usize>],
    ) -> CollectiveRun<'_> {
        let ranks = self.shared.world_ranks.len();
        for (list, what) in [(given, "given"), (taken, "taken")] {
            if list.len() != ranks {
                let (many, name) = (list.len(), "all-to-all-v");
                return self.refused(format!("{name}: {many} ranges {what} for {ranks} ranks"));
            }
            if let Some(range) = list.iter().find(|range| range.start > range.end) {
                return self.refused(format!("the range {range:?} ends before it begins"));
            }
        }
        let me = self.shared.rank;
        let (one, other) = (given[me].len(), taken[me].len());
        if one != other {
            let reason = format!("gives itself {one} elements and takes {other} from itself");
            return self.refused(reason);
        }
        let kind = Kind::AllToAllV { given: extents::<T>(given), taken: extents::<T>(taken) };
        self.moves(kind, from, to, 0)
    }

    /// Combines the values of all ranks element by element, for rank `root`. The others' `to` is not looked at.
    pub fn reduce<T: Number>(
        &self,
        op: ReduceOp,
        root: usize,
        from: &Region<T>,
        to: &Region<T>,
    ) -> CollectiveRun<'_> {
        self.combines(Kind::Reduce { root }, op, from, to, from.len())
    }

    /// Combines the values that all ranks have for this one, as many as there is room for in `to`: part by part of theirs, in rank
    /// order.
    pub fn reduce_scatter<T: Number>(
        &self,
        op: ReduceOp,
        from: &Region<T>,
        to: &Region<T>,
    ) -> CollectiveRun<'_> {
        self.combines(Kind::ReduceScatter, op, from, to, to.len())
    }

    /// Combines the values of all ranks element by element, for all.
    pub fn all_reduce<T: Number>(
        &self,
        op: ReduceOp,
        from: &Region<T>,
        to: &Region<T>,
    ) -> CollectiveRun<'_> {
        self.combines(Kind::AllReduce, op, from, to, from.len())
    }

    /// Combines the values of the ranks up to this one, itself included.
    pub fn scan<T: Number>(
        &self,
        op: ReduceOp,
        from: &Region<T>,
        to: &Region<T>,
    ) -> CollectiveRun<'_> {
        self.combines(Kind::Scan, op, from, to, from.len())
    }

    /// An all-reduce of values of the host in place, whichever device it was prepared for: without a region, and at once.
    ///
    /// # Errors
    /// As [`CollectiveRun::run`].
    pub fn all_reduce_slice<T: Number>(&self, op: ReduceOp, values: &mut [T]) -> Result<()> {
        let reduction = self.reduction::<T>(op)?;
        self.in_place(Kind::AllReduce, reduction, 1, values, |part| self.all_reduce(op, part, part))
    }

    /// A reduction of values of the host in place for rank `root`, as [`all_reduce_slice`](Self::all_reduce_slice). The others keep
    /// theirs; on the host they wait for room alone.
    ///
    /// # Errors
    /// As [`CollectiveRun::run`].
    pub fn reduce_slice<T: Number>(
        &self,
        op: ReduceOp,
        root: usize,
        values: &mut [T],
    ) -> Result<()> {
        self.shared.has_rank(root)?;
        let (kind, reduction) = (Kind::Reduce { root }, self.reduction::<T>(op)?);
        self.in_place(kind, reduction, 1, values, |part| self.reduce(op, root, part, part))
    }

    /// A broadcast of values of the host in place, as [`all_reduce_slice`](Self::all_reduce_slice).
    ///
    /// # Errors
    /// As [`CollectiveRun::run`].
    pub fn broadcast_slice<T: Pod>(&self, root: usize, values: &mut [T]) -> Result<()> {
        self.shared.has_rank(root)?;
        self.in_place(Kind::Broadcast { root }, None, 1, values, |part| self.broadcast(root, part))
    }

    /// An all-gather of values of the host in place, as [`all_reduce_slice`](Self::all_reduce_slice): all ranks' parts, which are equally
    /// long, in rank order; a rank gives the one at its place.
    ///
    /// # Errors
    /// As [`CollectiveRun::run`]; [`Error::Mismatch`] for values that are no such parts.
    pub fn all_gather_slice<T: Pod>(&self, values: &mut [T]) -> Result<()> {
        let (kind, ranks) = (Kind::AllGather { in_place: true }, self.shared.world_ranks.len());
        let each = values.len() / ranks;
        if each * ranks != values.len() {
            let reason = format!("all-gather: {} values for {ranks} ranks", values.len());
            return Err(Error::Mismatch { op: self.shared.name(), reason });
        }
        let staged = |part: &Region<T>| self.moves(kind.clone(), part, part, part.len() / ranks);
        self.in_place(kind.clone(), None, ranks, values, staged)
    }

    fn reduction<T: Number>(&self, op: ReduceOp) -> Result<Option<Reduction>> {
        match op.refuses(T::ELEMENT) {
            Some(reason) => Err(Error::Mismatch { op: self.shared.name(), reason }),
            None => Ok(Some(Reduction::of::<T>(op))),
        }
    }

    /// Values of the host, of so many blocks: in place, or where a GPU works on them through memory of its own, by `staged`.
    fn in_place<'a, T: Pod>(
        &'a self,
        kind: Kind,
        reduction: Option<Reduction>,
        blocks: usize,
        values: &mut [T],
        staged: impl Fn(&Region<T>) -> CollectiveRun<'a>,
    ) -> Result<()> {
        let (shared, name) = (&*self.shared, kind.name());
        let (each, bytes) = (values.len() / blocks, size_of_val(values) / blocks);
        shared.fits(name, bytes as u64)?;
        if let Some(staging) = &self.staging {
            let staging = staging.buffer().cast::<T>();
            let staging = staging.map_err(|source| Error::Memory { op: shared.name(), source })?;
            let staging = Region::from_buffer(staging);
            let most = staging.len() / blocks;
            if most == 0 {
                return Err(Error::Mismatch {
                    op: shared.name(),
                    reason: format!("{name}: a value of {} bytes", size_of::<T>()),
                });
            }
            for first in (0..each).step_by(most) {
                let len = most.min(each - first);
                let parts = staging.slice(0..blocks * len)?;
                let of = |block: usize| parts.slice(block * len..(block + 1) * len);
                for (block, values) in values.chunks(each).enumerate() {
                    of(block)?.write(&values[first..first + len])?;
                }
                staged(&parts).run()?;
                for (block, values) in values.chunks_mut(each).enumerate() {
                    values[first..first + len].copy_from_slice(&of(block)?.to_vec()?);
                }
            }
            return Ok(());
        }
        let mut host = self.host.lock();
        if host.started.is_some() {
            return Err(Error::Started { op: shared.name(), epoch: shared.runs() });
        }
        shared.check(Duration::ZERO)?;
        let _span = shared.plane.trace.span("host", name);
        let SliceRun { of, phases, run } = &mut host.slice;
        let this = Some((kind, bytes));
        if *of != this {
            let kind = this.as_ref().map_or(&Kind::Barrier, |(kind, _)| kind);
            *phases = phases_of(shared, kind, bytes, reduction.is_some());
            *of = this;
        }
        run.reset();
        let task = Task { phases, reduction, most: bytes as u64, is_barrier: false };
        let mut memory = InPlace(bytemuck::cast_slice_mut(values));
        if shared.is_soon_through(run, &task, &mut memory)? {
            return Ok(());
        }
        let deadline = Deadline::after(shared.timeout);
        shared.finish(run, &task, &mut memory, name, deadline, Instant::now())
    }

    /// Whether the last start of the host is complete. Makes progress, does not block; complete before the first start.
    ///
    /// # Errors
    /// What ended the world; what the driver says.
    pub fn test(&self) -> Result<bool> {
        match self.wait(Deadline::after(Duration::ZERO)) {
            Err(Error::Late { .. }) => Ok(false),
            result => result.map(|()| true),
        }
    }

    /// Waits until the last start of the host is complete.
    ///
    /// # Errors
    /// [`Error::Late`] at the deadline, naming a rank that has not come, and it stays started; as [`test`](Self::test).
    pub fn wait(&self, deadline: Deadline) -> Result<()> {
        let mut host = self.host.lock();
        let Some(started) = host.started.as_mut() else { return Ok(()) };
        let (shared, since) = (&self.shared, started.since);
        let result = match &mut started.how {
            How::Here { run, job } => {
                let mut memory = InRegions { from: &job.from, to: &job.to };
                shared.finish(run, &job.task(), &mut memory, job.name, deadline, since)
            }
            How::OnStream(stream) => match shared.plane.synchronize(stream, deadline) {
                Err(Error::Memory { source: gdsync::Error::Timeout { .. }, .. }) => {
                    Err(shared.late(shared.world_rank, since))
                }
                result => result,
            },
        };
        if !matches!(result, Err(Error::Late { .. }))
            && let Some(Started { how: How::OnStream(stream), .. }) = host.started.take()
            && result.is_ok()
        {
            shared.plane.give_back(stream);
        }
        result
    }

    /// The `mp::Collective` that kernels take (`mp/collective.cuh`). Valid while this object lives.
    pub fn handle(&self) -> mp_kernels::Collective {
        self.shared.handle
    }

    fn moves<T: Pod>(
        &self,
        kind: Kind,
        from: &Region<T>,
        to: &Region<T>,
        count: usize,
    ) -> CollectiveRun<'_> {
        let job = self.job(kind, from, to, count, None);
        CollectiveRun { collective: self, job }
    }

    fn combines<T: Number>(
        &self,
        kind: Kind,
        op: ReduceOp,
        from: &Region<T>,
        to: &Region<T>,
        count: usize,
    ) -> CollectiveRun<'_> {
        let job = self.job(kind, from, to, count, Some(Reduction::of::<T>(op)));
        CollectiveRun { collective: self, job }
    }

    fn job<T: Pod>(
        &self,
        kind: Kind,
        from: &Region<T>,
        to: &Region<T>,
        count: usize,
        reduction: Option<Reduction>,
    ) -> Result<Cow<'_, Job>> {
        Job::new(&self.shared, kind, (from, to), count, reduction).map(Cow::Owned)
    }

    fn refused(&self, reason: String) -> CollectiveRun<'_> {
        let job = Err(Error::Mismatch { op: self.shared.name(), reason });
        CollectiveRun { collective: self, job }
    }
}

impl CollectiveRun<'_> {
    /// Starts it by the host: gives what this rank has to give, as far as there is room, and returns. Its memory must not be touched
    /// until [`Collective::test`] or [`Collective::wait`] say that it is complete.
    ///
    /// # Errors
    /// [`Error::Started`] if the last start has not been seen complete. [`Error::Mismatch`] for more bytes than it was
    /// prepared for, regions that are too short, and operations that the type does not have; [`Error::NoSuchRank`] for a root;
    /// what ended the world.
    pub fn start(self) -> Result<()> {
        let (job, shared) = (self.job?, &self.collective.shared);
        let started = &mut self.collective.host.lock().started;
        if started.is_some() {
            return Err(Error::Started { op: shared.name(), epoch: shared.runs() });
        }
        shared.check(Duration::ZERO)?;
        let since = Instant::now();
        let how = match &shared.host {
            Some(_) => {
                let mut run = Run::default();
                let mut memory = InRegions { from: &job.from, to: &job.to };
                let _ = shared.advance(&mut run, &job.task(), &mut memory)?;
                How::Here { run, job: job.into_owned() }
            }
            None => {
                let stream = shared.plane.lend(&shared.device)?;
                shared.launch(&stream, &job)?;
                How::OnStream(stream)
            }
        };
        *started = Some(Started { since, how });
        Ok(())
    }

    /// Starts it by the host and waits for it, at most the communicator's timeout.
    ///
    /// # Errors
    /// As [`start`](Self::start) and [`Collective::wait`].
    pub fn run(self) -> Result<()> {
        let (collective, shared) = (self.collective, &self.collective.shared);
        if shared.host.is_none() {
            self.start()?;
            return collective.wait(Deadline::after(shared.timeout));
        }
        let job = self.job?;
        let started = &mut collective.host.lock().started;
        if started.is_some() {
            return Err(Error::Started { op: shared.name(), epoch: shared.runs() });
        }
        shared.check(Duration::ZERO)?;
        let (task, mut run) = (job.task(), Run::default());
        let mut memory = InRegions { from: &job.from, to: &job.to };
        if shared.is_soon_through(&mut run, &task, &mut memory)? {
            return Ok(());
        }
        let since = Instant::now();
        let deadline = Deadline::after(shared.timeout);
        let result = shared.finish(&mut run, &task, &mut memory, job.name, deadline, since);
        if matches!(result, Err(Error::Late { .. })) {
            *started = Some(Started { since, how: How::Here { run, job: job.into_owned() } });
        }
        result
    }

    /// Starts it when the stream gets there, and makes the stream wait for it.
    ///
    /// # Errors
    /// As [`start`](Self::start), but for what the host has started; [`Error::Mismatch`] for a stream of another device,
    /// [`Error::Memory`].
    pub fn start_on(self, stream: &Stream) -> Result<()> {
        let (job, shared) = (self.job?, &self.collective.shared);
        shared.check(Duration::ZERO)?;
        shared.is_for(stream)?;
        if shared.host.is_none() {
            return shared.launch(stream, &job);
        }
        let failed = |source| Error::Memory { op: shared.name(), source };
        let (shared, job) = (shared.clone(), job.into_owned());
        stream.call(move || shared.run_on_a_host_stream(&job)).map_err(failed)
    }
}

impl Shared {
    /// Goes on with a run of the host without a look at the clock, which takes longer than the rest where nobody is late. False if
    /// somebody is.
    fn is_soon_through<M: Memory>(
        &self,
        run: &mut Run,
        task: &Task<'_>,
        memory: &mut M,
    ) -> Result<bool> {
        for _ in 0..Backoff::looks() {
            if self.advance(run, task, memory)?.is_none() {
                return Ok(true);
            }
            std::hint::spin_loop();
        }
        Ok(false)
    }

    /// Goes on with a run of the host until all ranks have come.
    fn finish<M: Memory>(
        &self,
        run: &mut Run,
        task: &Task<'_>,
        memory: &mut M,
        name: &'static str,
        deadline: Deadline,
        since: Instant,
    ) -> Result<()> {
        let mut backoff = Backoff::new(deadline);
        while let Some(missing) = self.advance(run, task, memory)? {
            backoff.moves(run.moved);
            self.plane.progress();
            self.plane.pause(&mut backoff, || Progress {
                what: self.what(name, missing),
                age: since.elapsed(),
                why: format!("rank {} has not come", self.world_ranks[missing]),
            })?;
        }
        Ok(())
    }

    /// What is waited for, and from whom.
    fn what(&self, verb: &'static str, missing: usize) -> What {
        let rank = self.world_ranks[missing];
        let host = self.plane.peer(rank).host.clone();
        let name = Name { verb, tag: 0, direction: "with", rank, host };
        let seen = self.runs();
        What { name: Arc::new(name), expected: seen + 1, seen }
    }
}

impl fmt::Debug for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { rank, world_ranks, bytes, .. } = &*self.shared;
        write!(f, "collective of {bytes} bytes on rank {rank} of {}", world_ranks.len())
    }
}

impl fmt::Debug for CollectiveRun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.job.as_ref().map_or("refused run", |job| job.name);
        write!(f, "{name} of {:?}", self.collective)
    }
}
