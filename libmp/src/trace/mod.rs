//! Timelines: what ranks, streams and devices did when, of all ranks on one clock, as a file that Perfetto
//! (<https://ui.perfetto.dev>) and `chrome://tracing` show.
//!
//! `MP_TRACE=FILE` ([`Config::trace`](crate::Config::trace)) of rank 0 turns it on for the whole world. The calls of this
//! crate then record themselves; a program adds its own spans, and what its kernels stamped:
//!
//! ```
//! use libmp::World;
//! use libmp::trace::{self, Calibration, Stamp};
//!
//! # fn main() -> libmp::Result<()> {
//! let world = World::init()?;
//! let trace = world.trace();
//! {
//!     let _span = trace.span("solver", "smooth level 3").arg("cells", 4096);
//!     // … the work …
//! }
//! if trace.is_on() {
//!     // Readings of the device's clock, each between two looks at the host's.
//!     let reading = (trace::now(), 1_000_000, trace::now());
//!     if let Some(clock) = Calibration::measured(&[reading]) {
//!         let stamps = [Stamp::new("smooth", 1_000_100, 1_000_900)];
//!         trace.import(trace.lane("GPU 0"), "kernel", &clock, &stamps);
//!     }
//! }
//! world.finish()
//! # }
//! ```
//!
//! # What is in it
//! Rows of a rank are its threads, its streams, and whatever lanes the program makes. Spans: preparing, starting and
//! waiting for operations with peer, tag and bytes; collectives; what streams are given (`enqueue`) and when they did it;
//! the CPU time of the process as a counter. An operation that is under way is a bar of its own from its start to when it was
//! seen complete, and an arrow leads from the send to the receive. Tagged messages are shown in the same way, and what streams copy of those to and from
//! memory of devices is on the rows of these streams; what queues of OpenCL copy is not shown.
//!
//! # Clock
//! `CLOCK_MONOTONIC`. Ranks of one host share it; the others ask rank 0 for its time when the world starts and are off by
//! at most half of the shortest round trip, which the file says (`clock_within_ns`). Drift of the clocks of two hosts during
//! the run is not corrected.
//!
//! # Cost
//! Off: a test of a pointer in each call. On: some 100 ns an event and a lock of the rank's own; a rank keeps at most
//! `MP_TRACE_EVENTS` events, and the file says how many it lost. On a CUDA stream each operation is put between two events,
//! which costs microseconds. What a graph replays is recorded on host streams only.
//!
//! # NVTX
//! Every span is also a range of NVTX, in the domain `libmp`, if a tool is there that wants them, whether the timeline is on or
//! off: `nsys profile -t cuda,nvtx …` shows what is prepared, started, enqueued and waited for beside the kernels. The tool
//! names itself in `NVTX_INJECTION64_PATH`; without it nothing is loaded.
//!
//! # The file
//! [`World::finish`](crate::World::finish) collects the parts of all ranks at rank 0, which writes them; a file that cannot be
//! written is a warning on standard error and in the log, and the run is not lost. A world that fails cannot collect: each
//! rank then writes its own part to `FILE.rank-N`.

mod clock;
mod gather;
mod json;
mod nvtx;
mod record;
mod sampler;
mod stream;

use std::borrow::Cow;
use std::cell::RefCell;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

pub(crate) use clock::Answer;
pub use clock::{Calibration, Offset, now};
pub(crate) use gather::{File as TraceFile, decode, gather};
pub use json::Summary;
use record::{Kind, Recorder};
pub use record::{Lane, Part};
pub(crate) use sampler::Sampler;
pub(crate) use stream::{Label, Probes};

use crate::error::{Error, Result};

/// Events that a rank keeps unless `MP_TRACE_EVENTS` says otherwise.
pub const EVENTS: usize = 1_000_000;

/// A rank's timeline, on or off ([`World::trace`](crate::World::trace)). Clones are the same.
///
/// ```
/// use libmp::Trace;
///
/// let trace = Trace::detached(0, "node1", 1000);
/// {
///     let _span = trace.span("host", "smooth").arg("level", 3);
///     // What takes its time.
/// }
/// assert!(trace.part().is_some());
/// ```
#[derive(Clone, Default)]
pub struct Trace {
    recorder: Option<Arc<Recorder>>,
    /// Spans are ranges for it, too.
    tool: Option<&'static nvtx::Tool>,
}

/// Something a device did, by its own clock.
///
/// See [`trace`](self) for an example.
#[derive(Debug, Clone)]
pub struct Stamp<'a> {
    /// What it was.
    pub name: Cow<'a, str>,
    /// When it began, in ticks of the device's clock.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// Values to show with it.
    pub args: Vec<(&'static str, u64)>,
}

impl<'a> Stamp<'a> {
    /// A stamp without values.
    pub fn new(name: impl Into<Cow<'a, str>>, start: u64, end: u64) -> Stamp<'a> {
        Stamp { name: name.into(), start, end, args: Vec::new() }
    }
}

thread_local! {
    /// The lane of this thread in the timelines it has written to, by their numbers.
    static LANES: RefCell<Vec<(u64, Lane)>> = const { RefCell::new(Vec::new()) };
}

impl Trace {
    /// A timeline that records nothing.
    pub fn off() -> Trace {
        Trace::default()
    }

    /// A timeline that belongs to no world, for programs whose ranks have found each other in another way: rank `rank` on
    /// `host`, which keeps at most `limit` events ([`EVENTS`]). Its [`part`](Self::part) is to be carried to whoever
    /// [writes](write()) the file.
    pub fn detached(rank: u32, host: &str, limit: usize) -> Trace {
        Trace { recorder: Some(Arc::new(Recorder::new(rank, host.into(), limit))), tool: None }
    }

    /// The same, with spans as ranges of NVTX if a tool is there that wants them (see the [module](self)).
    #[must_use]
    pub fn with_nvtx(self) -> Trace {
        Trace { tool: nvtx::Tool::get(), ..self }
    }

    /// Whether it records. For work that is only done for the timeline; everything else may be called anyway.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.recorder.is_some()
    }

    /// Whether a span goes anywhere: into the timeline, or as a range to a tool. For names that are made for it.
    #[inline]
    pub fn has_spans(&self) -> bool {
        self.is_on() || self.tool.is_some()
    }

    /// Nanoseconds of the clock ([`now`]); 0, without a look at it, when off.
    #[inline]
    pub fn now(&self) -> u64 {
        if self.is_on() { now() } else { 0 }
    }

    /// What is to be added to this rank's clock to get that of the rank which writes the file. A world finds it out itself.
    pub fn set_offset(&self, offset: Offset) {
        if let Some(recorder) = &self.recorder {
            recorder.set_offset(offset);
        }
    }

    /// The row of this name. Rows are shown in the order in which they were first asked for.
    pub fn lane(&self, name: impl Into<Cow<'static, str>>) -> Lane {
        self.recorder.as_ref().map_or(Lane(0), |recorder| recorder.lane(name.into()))
    }

    /// The row of the calling thread.
    pub fn thread_lane(&self) -> Lane {
        self.recorder.as_ref().map_or(Lane(0), |recorder| thread_lane(recorder))
    }

    /// From here until it is dropped, on the row of the calling thread.
    #[inline]
    pub fn span(&self, category: &'static str, name: impl Into<Cow<'static, str>>) -> Span<'_> {
        if !self.has_spans() {
            return Span { open: None, range: None };
        }
        let name = name.into();
        let range = self.tool.map(|tool| tool.range(&name));
        let open = self.recorder.as_ref().map(|recorder| Open {
            recorder,
            lane: thread_lane(recorder),
            category,
            name,
            start: now(),
            args: Vec::new(),
        });
        Span { open, range }
    }

    /// Something on a row from `start_ns` to `end_ns` of the clock. Spans of a row must lie within each other or apart.
    pub fn record(
        &self,
        lane: Lane,
        category: &'static str,
        name: impl Into<Cow<'static, str>>,
        (start_ns, end_ns): (u64, u64),
        args: &[(&'static str, u64)],
    ) {
        let kind = Kind::Span(end_ns.saturating_sub(start_ns));
        self.push(lane, category, name, start_ns, kind, args);
    }

    /// Something that may overlap with others: a bar of its own.
    pub fn flight(
        &self,
        category: &'static str,
        name: impl Into<Cow<'static, str>>,
        (start_ns, end_ns): (u64, u64),
        args: &[(&'static str, u64)],
    ) {
        let kind = Kind::Flight(end_ns.saturating_sub(start_ns));
        self.push(self.thread_lane(), category, name, start_ns, kind, args);
    }

    /// A moment on the row of the calling thread: now.
    pub fn instant(
        &self,
        category: &'static str,
        name: impl Into<Cow<'static, str>>,
        args: &[(&'static str, u64)],
    ) {
        self.push(self.thread_lane(), category, name, self.now(), Kind::Instant, args);
    }

    /// A value of the rank from `at_ns` on, shown as a curve.
    pub fn counter(&self, name: impl Into<Cow<'static, str>>, at_ns: u64, value: f64) {
        self.push(Lane(0), "counter", name, at_ns, Kind::Counter(value), &[]);
    }

    /// What a device stamped, on a row of its own.
    pub fn import<'a>(
        &self,
        lane: Lane,
        category: &'static str,
        clock: &Calibration,
        stamps: impl IntoIterator<Item = &'a Stamp<'a>>,
    ) {
        if !self.is_on() {
            return;
        }
        for Stamp { name, start, end, args } in stamps {
            let times = (clock.to_host(*start), clock.to_host(*end));
            self.record(lane, category, name.clone().into_owned(), times, args);
        }
    }

    /// A message `id` leaves the span around this moment.
    pub(crate) fn leaves(&self, lane: Lane, id: u64, at_ns: u64) {
        self.push(lane, "message", "message", at_ns, Kind::Leaves(id), &[]);
    }

    /// It has arrived in the span around this moment.
    pub(crate) fn arrives(&self, lane: Lane, id: u64, at_ns: u64) {
        self.push(lane, "message", "message", at_ns, Kind::Arrives(id), &[]);
    }

    /// Everything recorded so far; `None` when off.
    pub fn part(&self) -> Option<Part> {
        self.recorder.as_ref().map(|recorder| recorder.part())
    }

    fn push(
        &self,
        lane: Lane,
        category: &'static str,
        name: impl Into<Cow<'static, str>>,
        start: u64,
        kind: Kind,
        args: &[(&'static str, u64)],
    ) {
        if let Some(recorder) = &self.recorder {
            recorder.push(lane, category, name.into(), start, kind, args);
        }
    }
}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.recorder {
            None => f.write_str("timeline (off)"),
            Some(recorder) => write!(f, "timeline of rank {}", recorder.rank()),
        }
    }
}

fn thread_lane(recorder: &Recorder) -> Lane {
    LANES.with_borrow_mut(|lanes| {
        if let Some((_, lane)) = lanes.iter().find(|(id, _)| *id == recorder.id) {
            return *lane;
        }
        let thread = std::thread::current();
        let name = thread.name().map_or_else(|| format!("{:?}", thread.id()), str::to_owned);
        let lane = recorder.lane(name.into());
        // A thread that writes to many worlds, one after the other: the oldest are over.
        if lanes.len() >= 16 {
            lanes.remove(0);
        }
        lanes.push((recorder.id, lane));
        lane
    })
}

/// Something that is going on: [`Trace::span`]. Recorded when it is dropped.
///
/// See [`trace`](self) for an example.
#[must_use = "a span ends when it is dropped"]
pub struct Span<'a> {
    open: Option<Open<'a>>,
    range: Option<nvtx::Range>,
}

struct Open<'a> {
    recorder: &'a Recorder,
    lane: Lane,
    category: &'static str,
    name: Cow<'static, str>,
    start: u64,
    args: Vec<(&'static str, u64)>,
}

impl Span<'_> {
    /// With a value to show.
    pub fn arg(mut self, key: &'static str, value: u64) -> Self {
        if let Some(open) = &mut self.open {
            open.args.push((key, value));
        }
        self
    }
}

impl Drop for Span<'_> {
    fn drop(&mut self) {
        drop(self.range.take());
        if let Some(Open { recorder, lane, category, name, start, args }) = self.open.take() {
            let kind = Kind::Span(now().saturating_sub(start));
            recorder.push(lane, category, name, start, kind, &args);
        }
    }
}

/// Writes the timeline of all `parts`: into a file beside `path`, which is then renamed; devices and pipes as they are.
///
/// # Errors
/// [`Error::Io`] with the path: it cannot be opened, the disk is full. What was there before stays.
pub fn write(path: &Path, parts: &[Part]) -> Result<Summary> {
    let failed = || Error::io(format!("writing the timeline {}", path.display()));
    // A link stays a link.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let is_file = fs::metadata(&target).map_or(true, |there| there.is_file());
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let beside = target.with_file_name(format!(".{name}.{}", std::process::id()));
    let part = if is_file { &beside } else { &target };
    let written = File::create(part).and_then(|file| {
        let summary = json::write(&mut BufWriter::new(file), parts)?;
        if is_file { fs::rename(part, &target).map(|()| summary) } else { Ok(summary) }
    });
    if written.is_err() && is_file {
        // It may not be there at all; the cause is what counts.
        let _ = fs::remove_file(part);
    }
    written.map_err(failed())
}
