//! What a solve did when (`--timeline`): every launch and copy on the GPU between two events, what the CPU did meanwhile
//! by its clock. A graph replays without events, so the traced solve is launched piece by piece; what the events
//! themselves cost (some microseconds a launch) is in the picture. Ranks of one host share the clock.

use std::cell::RefCell;
use std::time::Duration;

use gdsync::{Deadline, Event, Stream};
use libmp::trace::{self, Lane, Part, Trace};

use super::error::CudaError;
use super::solver::Gpu;
use crate::comm::{Comm, CommError};
use crate::cycle::Solved;
use crate::error::Error;
use crate::run::Solver;

/// How long an idle stream may take to reach an event.
const REACH: Duration = Duration::from_secs(10);
/// Events of one solve at most.
const EVENTS: usize = 100_000;

/// What one solve's rows are written to.
pub(super) struct Timeline {
    trace: Trace,
    /// Rows of the stream and of the thread that enqueues.
    gpu: Lane,
    cpu: Lane,
    pending: RefCell<Vec<Pending>>,
}

/// Something on the stream whose times are asked for when it is over.
struct Pending {
    name: &'static str,
    args: Vec<(&'static str, u64)>,
    begin: Event,
    end: Event,
}

impl Timeline {
    pub(super) fn new(trace: &Trace, label: &str) -> Self {
        let gpu = trace.lane(format!("{label}: GPU"));
        let cpu = trace.lane(format!("{label}: CPU"));
        Self { trace: trace.clone(), gpu, cpu, pending: RefCell::default() }
    }

    fn mark(stream: &Stream) -> Result<Event, CudaError> {
        let event = Event::new(stream.device())?;
        stream.record(&event)?;
        Ok(event)
    }

    /// What was enqueued, of which level.
    #[cfg(test)]
    pub(super) fn enqueued(&self) -> Vec<(&'static str, u64)> {
        self.pending.borrow().iter().map(|pending| (pending.name, pending.args[0].1)).collect()
    }

    /// Writes the rows of the stream, which is idle.
    fn resolve(&self, stream: &Stream) -> Result<(), CudaError> {
        let reference = Self::mark(stream)?;
        reference.synchronize(Deadline::after(REACH))?;
        let at = trace::now();
        for Pending { name, args, begin, end } in self.pending.take() {
            let time = |event: &Event| -> Result<u64, CudaError> {
                Ok(at.saturating_sub(reference.since(event)?.as_nanos() as u64))
            };
            let times = (time(&begin)?, time(&end)?);
            self.trace.record(self.gpu, category(name, "gpu"), name, times, &args);
        }
        Ok(())
    }
}

/// The category of a span: communication, whoever does it, can be told from computing, and told from waiting for either.
fn category(name: &str, otherwise: &'static str) -> &'static str {
    match name {
        "pack" | "unpack" | "exchange" | "gather" | "agree" | "send" | "receive" => "communication",
        "wait" | "wait for the GPU" | "wait for the solve" | "wait for what was sent" => "wait",
        _ => otherwise,
    }
}

impl Gpu {
    /// Enqueues something of level `l` and shows when the CPU did so and when the GPU ran it.
    pub(super) fn traced<T>(
        &self,
        l: usize,
        name: &'static str,
        enqueue: impl FnOnce() -> Result<T, CudaError>,
    ) -> Result<T, CudaError> {
        let Some(timeline) = &self.timeline else { return enqueue() };
        let args = self.labels(l, name);
        let began = trace::now();
        let begin = Timeline::mark(&self.stream)?;
        let done = enqueue()?;
        let end = Timeline::mark(&self.stream)?;
        timeline.trace.record(timeline.cpu, "enqueue", name, (began, trace::now()), &args);
        timeline.pending.borrow_mut().push(Pending { name, args, begin, end });
        Ok(done)
    }

    /// Does something of level `l` on the CPU and shows when.
    pub(super) fn traced_on_cpu<T>(
        &self,
        l: usize,
        name: &'static str,
        work: impl FnOnce() -> Result<T, CudaError>,
    ) -> Result<T, CudaError> {
        let Some(timeline) = &self.timeline else { return work() };
        let began = trace::now();
        let done = work()?;
        let times = (began, trace::now());
        timeline.trace.record(
            timeline.cpu,
            category(name, "cpu"),
            name,
            times,
            &self.labels(l, name),
        );
        Ok(done)
    }

    /// What is written beside a span of level `l`: with a launch also the bytes that are counted for it.
    fn labels(&self, l: usize, name: &str) -> Vec<(&'static str, u64)> {
        let bytes = self.bytes_of_launch(l, name).map(|bytes| ("bytes", bytes));
        let level = [("level", l as u64), ("side", self.levels[l].grid.n as u64)];
        level.into_iter().chain(bytes).collect()
    }

    /// Solves once on the finest level and writes what happened into `trace`, in rows that begin with `label`. Collective.
    ///
    /// # Errors
    /// When the ranks lose each other or the device fails.
    pub fn solve_traced(&mut self, trace: &Trace, label: &str) -> Result<(), Error> {
        let graphs = std::mem::replace(&mut self.use_graphs, false);
        let result = self.solve_into(trace, label);
        self.timeline = None;
        self.use_graphs = graphs;
        result
    }

    fn solve_into(&mut self, trace: &Trace, label: &str) -> Result<(), Error> {
        let mut solved = Solved::empty();
        // Once without events, so that nothing happens for the first time.
        for traced in [false, true] {
            self.zero_solution(0)?;
            self.agree(0, 0.0)?;
            self.timeline = traced.then(|| Timeline::new(trace, label));
            self.solve(0, &mut solved)?;
        }
        self.timeline.as_ref().map_or(Ok(()), |timeline| timeline.resolve(&self.stream))?;
        Ok(())
    }
}

/// A rank's timeline, to be filled by [`Gpu::solve_traced`].
pub fn timeline(comm: &dyn Comm) -> Trace {
    let host = comm.communicator().and_then(|all| all.host(all.rank()).ok());
    Trace::detached(comm.rank() as u32, host.unwrap_or_default(), EVENTS)
}

/// The timelines of all ranks, on each. Collective.
///
/// # Errors
/// What ended the world.
pub fn gather(comm: &dyn Comm, trace: &Trace) -> Result<Vec<Part>, CommError> {
    let own = trace.part();
    let Some(communicator) = comm.communicator() else { return Ok(own.into_iter().collect()) };
    let bytes = own.map(|part| part.to_bytes()).unwrap_or_default();
    let all = communicator.all_gather(&bytes).map_err(CommError::from)?;
    Ok(all.iter().filter_map(|bytes| Part::from_bytes(bytes)).collect())
}
