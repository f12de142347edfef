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
mod run;
mod shared;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;
use gdsync::{Device, Space};

use super::plane::Plane;
use super::region::Region;
use crate::collective::{Number, ReduceOp};
use crate::communicator::Communicator;
use crate::error::{Error, Result};
use crate::ownership::Lock;
use blocks::{Kind, Reduction};
use job::{Job, extents};
pub use run::CollectiveRun;
use run::OfHost;
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

impl fmt::Debug for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { rank, world_ranks, bytes, .. } = &*self.shared;
        write!(f, "collective of {bytes} bytes on rank {rank} of {}", world_ranks.len())
    }
}
