//! A run of a collective, which is started by the host or on a stream, and what the host has started. On a GPU it launches the
//! kernel; on memory that the CPU reaches it goes on by itself, as far as the steps of `host.rs` take it, and waits for the others.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytemuck::Pod;
use gdsync::{Deadline, Stream};

use super::Collective;
use super::blocks::{Kind, Phase, Reduction};
use super::host::{InPlace, InRegions, Memory, Run, Task};
use super::job::{Job, phases_of};
use super::shared::Shared;
use crate::data::name::{Name, Progress, What};
use crate::data::region::Region;
use crate::data::wait::Backoff;
use crate::error::{Error, Result};

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
    pub(super) collective: &'a Collective,
    pub(super) job: Result<Cow<'a, Job>>,
}

/// What the host runs, one at a time.
#[derive(Default)]
pub(super) struct OfHost {
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
    /// Values of the host, of so many blocks: in place, or where a GPU works on them through memory of its own, by `staged`.
    pub(super) fn in_place<'a, T: Pod>(
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

impl fmt::Debug for CollectiveRun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.job.as_ref().map_or("refused run", |job| job.name);
        write!(f, "{name} of {:?}", self.collective)
    }
}
