//! Barrier and all-reduce of the ranks of a communicator, prepared once, started by the host, on a stream or inside a kernel. Every
//! rank sends to every other directly and combines by itself, in rank order: one step, for few ranks and short vectors.
//!
//! The protocol is that of `mp/collective.cuh`: packets into the inboxes of ranks that map each other's memory, puts and signals of
//! a window where some are reached through a NIC. Runs are counted in the memory of the device. On memory that the CPU reaches it
//! goes by itself (`host.rs`); for a GPU the host launches the kernel.

mod host;
mod shared;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
use host::Run;
use shared::{Of, Shared};

/// A barrier of the ranks: [`Communicator::prepare_barrier`].
///
/// # Order
/// What every rank did before – in the thread that starts it, on the stream, in the group of threads – is visible to all behind
/// it; through a NIC also what it put to whichever rank. Ranks may start it in different ways, and each of them in another way every
/// time; two runs of one barrier do not overlap. Runs are counted in the device's memory, so a captured graph can be replayed.
///
/// # Failure
/// A wait ends with the communicator's timeout, with the world, and, through a NIC, when a request fails. Of a stream
/// [`Communicator::synchronize`] returns the error; in a kernel the call returns the status. After an error it cannot be used any
/// more, but for a host's wait whose deadline has passed.
///
/// ```
/// use std::time::Duration;
///
/// use libmp::{Deadline, Device, World};
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// let barrier = world.prepare_barrier(&Device::Host)?;
/// barrier.start()?; // or start_on a stream, or in a kernel
/// // Something else meanwhile.
/// barrier.wait(Deadline::after(Duration::from_secs(10)))?;
/// # world.finish()
/// # }
/// ```
pub struct Barrier {
    inner: Inner<u64>,
}

/// An all-reduce of the ranks: [`Communicator::prepare_all_reduce`]. Every rank gets the same bits: ranks are combined in rank
/// order, as by [`Communicator::all_reduce`]. Started, counted and ended by failures as a [`Barrier`]; it orders nothing but its
/// values.
///
/// ```
/// use libmp::{Device, ReduceOp, World};
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// let mut sum = world.prepare_all_reduce::<f64>(&Device::Host, 2)?;
/// let mut values = [1.0, world.rank() as f64];
/// sum.run(ReduceOp::Sum, &mut values)?;
/// assert_eq!(values[0], world.size() as f64);
/// # world.finish()
/// # }
/// ```
pub struct AllReduce<T> {
    inner: Inner<T>,
}

/// What is combined, and how.
type Reduce<'a, T> = Option<(ReduceOp, &'a Region<T>)>;

/// Both of them; a barrier combines nothing.
struct Inner<T> {
    shared: Arc<Shared>,
    started: Mutex<Option<Started<T>>>,
    /// Values of the host that a GPU combines.
    staging: Option<Region<T>>,
    /// This rank's values of the run under way.
    mine: Vec<T>,
}

/// A start of the host.
struct Started<T> {
    since: Instant,
    how: How<T>,
}

enum How<T> {
    Here { run: Run, op: ReduceOp, mine: Vec<T>, combined: Vec<T>, into: Option<Region<T>> },
    OnItsStream,
}

impl<T: Number + Pod> Inner<T> {
    fn new(shared: Shared) -> Result<Inner<T>> {
        let (plane, device, len) = (&shared.plane, &shared.device, shared.len);
        let failed = |source| Error::Memory { op: shared.name(), source };
        let staging = device.as_cuda().filter(|_| len > 0).map(|_| {
            let bytes = plane.pieces.cut(device, Space::Pinned, len * size_of::<T>());
            bytes.and_then(|bytes| bytes.cast()).map(Region::from_buffer).map_err(failed)
        });
        let staging = staging.transpose()?;
        Ok(Inner { staging, shared: Arc::new(shared), started: Mutex::new(None), mine: Vec::new() })
    }

    fn start(&self, reduce: Reduce<'_, T>) -> Result<()> {
        let mut started = self.lock();
        let shared = &self.shared;
        if started.is_some() {
            return Err(Error::Started { op: shared.name(), epoch: shared.runs() });
        }
        shared.check(Duration::ZERO)?;
        let since = Instant::now();
        let how = match &shared.host {
            Some(host) => {
                shared.fits(reduce.map_or(0, |(_, values)| values.len()))?;
                let mine = reduce.map_or_else(|| Ok(Vec::new()), |(_, values)| values.to_vec())?;
                let op = reduce.map_or(ReduceOp::Sum, |(op, _)| op);
                let run = host.begin(&mine)?;
                let combined = vec![T::zeroed(); mine.len()];
                How::Here {
                    run,
                    op,
                    mine,
                    combined,
                    into: reduce.map(|(_, values)| values.clone()),
                }
            }
            None => {
                shared.launch(shared.stream.as_ref().ok_or(Error::NoOperations)?, reduce)?;
                How::OnItsStream
            }
        };
        *started = Some(Started { since, how });
        Ok(())
    }

    fn test(&self) -> Result<bool> {
        match self.wait(Deadline::after(Duration::ZERO)) {
            Err(Error::Late { .. }) => Ok(false),
            result => result.map(|()| true),
        }
    }

    fn wait(&self, deadline: Deadline) -> Result<()> {
        let mut guard = self.lock();
        let Some(started) = guard.as_mut() else { return Ok(()) };
        let (shared, since) = (&self.shared, started.since);
        let result = match &mut started.how {
            How::Here { run, op, mine, combined, into } => {
                let ended = shared.finish(run, *op, mine, combined, deadline, since);
                ended.and_then(|()| into.as_ref().map_or(Ok(()), |into| into.write(combined)))
            }
            How::OnItsStream => {
                let stream = shared.stream.as_ref().ok_or(Error::NoOperations)?;
                match shared.plane.synchronize(stream, deadline) {
                    Err(Error::Memory { source: gdsync::Error::Timeout { .. }, .. }) => {
                        Err(shared.late(shared.world_rank, since))
                    }
                    result => result,
                }
            }
        };
        if !matches!(result, Err(Error::Late { .. })) {
            *guard = None;
        }
        result
    }

    fn start_on(&self, stream: &Stream, reduce: Reduce<'_, T>) -> Result<()> {
        self.shared.check(Duration::ZERO)?;
        self.shared.fits(reduce.map_or(0, |(_, values)| values.len()))?;
        self.shared.is_for(stream)?;
        if self.shared.host.is_none() {
            return self.shared.launch(stream, reduce);
        }
        let (shared, reduce) =
            (self.shared.clone(), reduce.map(|(op, values)| (op, values.clone())));
        let failed = |source| Error::Memory { op: self.shared.name(), source };
        stream.call(move || shared.run_on_a_host_stream(reduce.as_ref())).map_err(failed)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Started<T>>> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Barrier {
    pub(crate) fn prepare(
        communicator: &Communicator,
        plane: &Arc<Plane>,
        device: &Device,
    ) -> Result<Barrier> {
        let shared = Shared::prepare(communicator, plane, device, Of::Barrier)?;
        Ok(Barrier { inner: Inner::new(shared)? })
    }

    /// Says that this rank has come, and returns.
    ///
    /// # Errors
    /// [`Error::Started`] if the last start has not been seen complete; what ended the world.
    pub fn start(&self) -> Result<()> {
        self.inner.start(None)
    }

    /// Whether all ranks have come. Makes progress, does not block; complete before the first start.
    ///
    /// # Errors
    /// What ended the world; what the driver says.
    pub fn test(&self) -> Result<bool> {
        self.inner.test()
    }

    /// Waits until all ranks have come.
    ///
    /// # Errors
    /// [`Error::Late`] at the deadline, naming a rank that has not come, and it stays started; as [`test`](Self::test).
    pub fn wait(&self, deadline: Deadline) -> Result<()> {
        self.inner.wait(deadline)
    }

    /// [`start`](Self::start) and [`wait`](Self::wait), for at most the communicator's timeout.
    ///
    /// # Errors
    /// As both.
    pub fn run(&mut self) -> Result<()> {
        self.start()?;
        self.wait(Deadline::after(self.inner.shared.timeout))
    }

    /// Makes the stream wait for all ranks.
    ///
    /// # Errors
    /// [`Error::Mismatch`] for a stream of another device, [`Error::Memory`], what ended the world.
    pub fn start_on(&self, stream: &Stream) -> Result<()> {
        self.inner.start_on(stream, None)
    }

    /// What `mp::barrier` of `mp/collective.cuh` takes. Valid while this object lives.
    pub fn handle(&self) -> mp_kernels::Collective {
        self.inner.shared.handle
    }
}

impl<T: Number + Pod> AllReduce<T> {
    pub(crate) fn prepare(
        communicator: &Communicator,
        plane: &Arc<Plane>,
        device: &Device,
        len: usize,
    ) -> Result<AllReduce<T>> {
        let of = Of::AllReduce { len, element: T::ELEMENT };
        let shared = Shared::prepare(communicator, plane, device, of)?;
        Ok(AllReduce { inner: Inner::new(shared)? })
    }

    /// Combines the ranks' values element by element, in place. Every rank calls it with the same operation and as many
    /// values, at most those it was prepared for.
    ///
    /// # Errors
    /// [`Error::Mismatch`] for more values; [`Error::Late`] if a rank does not come within the communicator's timeout; what ended
    /// the world. After the last two it cannot be used any more.
    pub fn run(&mut self, op: ReduceOp, values: &mut [T]) -> Result<()> {
        let inner = &mut self.inner;
        inner.shared.fits(values.len())?;
        let (since, deadline) = (Instant::now(), Deadline::after(inner.shared.timeout));
        if let Some(staging) = &inner.staging {
            let part = staging.slice(0..values.len())?;
            part.write(values)?;
            inner.start(Some((op, &part)))?;
            inner.wait(deadline)?;
            values.copy_from_slice(&part.to_vec()?);
            return Ok(());
        }
        let Some(host) = &inner.shared.host else { return Err(Error::NoOperations) };
        if inner.lock().is_some() {
            return Err(Error::Started { op: inner.shared.name(), epoch: inner.shared.runs() });
        }
        inner.shared.check(Duration::ZERO)?;
        let _span = inner.shared.plane.trace.span("host", "all-reduce");
        inner.mine.clear();
        inner.mine.extend_from_slice(values);
        let mut run = host.begin(&inner.mine)?;
        inner.shared.finish(&mut run, op, &inner.mine, values, deadline, since)
    }

    /// Sends this rank's values and returns; they must not be touched until the start is complete, when they are the result.
    ///
    /// # Errors
    /// As [`Barrier::start`]; [`Error::Mismatch`] for more values than it was prepared for.
    pub fn start(&self, op: ReduceOp, values: &Region<T>) -> Result<()> {
        self.inner.start(Some((op, values)))
    }

    /// Whether the last start is complete, as [`Barrier::test`].
    ///
    /// # Errors
    /// As [`Barrier::test`].
    pub fn test(&self) -> Result<bool> {
        self.inner.test()
    }

    /// Waits until the last start is complete, as [`Barrier::wait`].
    ///
    /// # Errors
    /// As [`Barrier::wait`].
    pub fn wait(&self, deadline: Deadline) -> Result<()> {
        self.inner.wait(deadline)
    }

    /// Combines the values of all ranks element by element, in place, when the stream gets there.
    ///
    /// # Errors
    /// As [`Barrier::start_on`]; [`Error::Mismatch`] for more values than it was prepared for.
    pub fn start_on(&self, stream: &Stream, op: ReduceOp, values: &Region<T>) -> Result<()> {
        self.inner.start_on(stream, Some((op, values)))
    }

    /// What `mp::all_reduce` of `mp/collective.cuh` takes. Valid while this object lives.
    pub fn handle(&self) -> mp_kernels::Collective {
        self.inner.shared.handle
    }
}

impl Shared {
    /// Goes on with a run of the host until all ranks have come.
    fn finish<T: Number>(
        &self,
        run: &mut Run,
        op: ReduceOp,
        mine: &[T],
        combined: &mut [T],
        deadline: Deadline,
        since: Instant,
    ) -> Result<()> {
        let Some(host) = &self.host else { return Err(Error::NoOperations) };
        let mut backoff = Backoff::new(deadline);
        while let Some(missing) = host.advance(run, op, mine, combined)? {
            self.plane.progress();
            self.plane.pause(&mut backoff, || Progress {
                what: self.what(missing),
                age: since.elapsed(),
                why: format!("rank {} has not come", self.world_ranks[missing]),
            })?;
        }
        Ok(())
    }

    /// What is waited for, and from whom.
    fn what(&self, missing: usize) -> What {
        let rank = self.world_ranks[missing];
        let host = self.plane.peer(rank).host.clone();
        let name = Name { verb: self.verb, tag: 0, direction: "with", rank, host };
        let seen = self.runs();
        What { name: Arc::new(name), expected: seen + 1, seen }
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { rank, world_ranks, .. } = &*self.inner.shared;
        write!(f, "barrier on rank {rank} of {}", world_ranks.len())
    }
}

impl<T> fmt::Debug for AllReduce<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { rank, world_ranks, len, .. } = &*self.inner.shared;
        write!(f, "all-reduce of {len} elements on rank {rank} of {}", world_ranks.len())
    }
}
