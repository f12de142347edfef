//! The host as the trigger of an operation. On host memory a call works on the counters directly, as a stream's thread does,
//! but does not wait: what cannot be done at once is left to later calls (`waiting`). On memory of a GPU, whose counters the CPU
//! does not reach, it runs on a stream that the world lends it until it is complete.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gdsync::{Deadline, Device, Event, Space, Stream, Word64};

use super::host::Step as HostStep;
use super::observed::coarse_now;
use super::stream::{self, Action, Tell};
use super::{EndState, Endpoint, HostEnd, OneSidedKind, Side, Way, Words, broken};
use crate::data::name::{Progress, What};
use crate::data::plane::Plane;
use crate::data::plane::Wake;
use crate::error::{Error, Result};
use crate::ownership::Guard;
use crate::transport::Handed;
use crate::transport::nic::refused;

/// Starts of one end, as far as the host knows: by itself and on streams, not by kernels and replayed graphs.
#[derive(Default)]
pub(crate) struct HostStarts {
    /// How many there were.
    count: u64,
    /// Number of the last one by the host.
    host: u64,
    /// The last one by the host has not been seen complete.
    by_host: bool,
    /// What the host has yet to do for it.
    todo: Option<Todo>,
    /// The last one has not been seen complete.
    unseen: bool,
    /// Number of the stream that was given a step last, and whether that was a wait.
    last: Option<(u64, bool)>,
    /// Of a receive: nobody has been told to wait for the last one.
    posted: bool,
    /// On a GPU: its stream has been told to take the message.
    taking: bool,
    /// On a GPU: how often a stream was given something that it tells the end of.
    told: u64,
    /// On a GPU: when the driver was asked last, or the first look for that.
    asked: Option<Instant>,
    /// On a GPU, through a NIC: what the signal of the message to be taken will be, once it was looked up.
    expected: Option<u64>,
    /// On a GPU: the stream on which what the host started is under way.
    stream: Option<Stream>,
    pub dropped: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Todo {
    /// To send, or to post.
    Begin,
    /// The entry at this position has to be complete.
    Complete(u64),
}

/// Between questions to the driver, whether a stream has ended without telling. They are in the way of the process's other calls.
const ASKING: Duration = Duration::from_millis(1);
/// How long a kernel takes to end that has said why it does.
const ENDING: Duration = Duration::from_secs(1);

/// The counter by which what the host starts on a GPU tells the host that it is done.
pub(crate) struct Told {
    tell: Tell,
    /// In host memory.
    word: Word64,
}

impl Told {
    fn new(plane: &Plane, device: &Device) -> gdsync::Result<Told> {
        let state = EndState::new(plane.pieces.cut_for(device, EndState::size(None))?);
        let word = plane.pieces.cut(device, Space::Pinned, size_of::<u64>())?;
        let word = word.cast::<u64>()?.word(0)?;
        let tell = Tell::new(&state, &word)?;
        Ok(Told { tell, word })
    }

    /// Whether that was told so often. Acquire: what it did is visible to whatever is started now.
    fn has(&self, times: u64) -> bool {
        self.word.load().is_none_or(|told| told >= times)
    }
}

impl HostStarts {
    pub fn is_under_way(&self) -> bool {
        self.todo.is_some()
    }

    /// After a look that found nothing told: whether it is time to ask the driver.
    fn is_to_ask(&mut self) -> bool {
        let now = Instant::now();
        let is_time = now.duration_since(*self.asked.get_or_insert(now)) >= ASKING;
        if is_time {
            self.asked = Some(now);
        }
        is_time
    }
}

/// How a step is going to be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Once, by a stream.
    Once,
    /// As often as a graph is replayed.
    Captured,
}

impl Endpoint {
    /// A start by the host.
    pub fn start(self: &Arc<Self>, plane: &Plane) -> Result<()> {
        self.start_at(plane, coarse_now())
    }

    /// The same at this time of the coarse clock.
    pub fn start_at(self: &Arc<Self>, plane: &Plane, now: u64) -> Result<()> {
        plane.check_after(Duration::ZERO, || self.name.to_string())?;
        let _span = self.span(plane, "start");
        plane.listen_if(!self.is_paired(), self.neighbour);
        self.known(plane)?;
        let mut starts = self.lock();
        let posted = starts.posted && self.is_posted();
        if starts.by_host || self.is_queued() || posted {
            return Err(self.started_before(&starts));
        }
        self.begin(plane, &mut starts, now);
        starts.by_host = true;
        starts.todo = Some(Todo::Begin);
        if self.side == Side::Send {
            self.shared.starting.store(true, Ordering::Relaxed);
        } else if let Some(Words { epoch, room }) = &self.words
            && self.one_sided.is_none()
        {
            // Handed when the peer is known.
            HostEnd::post((epoch, room));
        }
        starts.host = starts.count;
        let (number, waits) = (starts.host, self.go_on(plane, &mut starts));
        drop(starts);
        if let Some(wake) = waits {
            plane.waiting.add(self, number, wake);
        }
        self.known(plane).map(drop)
    }

    /// Counts a start that the host knows of.
    fn begin(&self, plane: &Plane, starts: &mut HostStarts, now: u64) {
        starts.count += 1;
        starts.posted = self.side == Side::Recv;
        starts.unseen = true;
        starts.last = None;
        self.count(plane, now);
    }

    /// A stream is given a step. What it is, is counted; refused is a start that nothing orders behind the last one.
    pub fn enqueued(&self, plane: &Plane, action: Action, by: (&Stream, Use)) -> Result<u64> {
        let (stream, by) = by;
        if by == Use::Captured {
            if action == Action::Start {
                self.count(plane, coarse_now());
            }
            return Ok(0);
        }
        let mut starts = self.lock();
        match action {
            Action::Start => {
                let behind = |(last, waited): (u64, bool)| {
                    last == stream.number() && (waited || self.side == Side::Send)
                };
                let queued = self.is_queued() && !starts.last.is_some_and(behind);
                let posted = !self.is_queued() && starts.posted && self.is_posted();
                let by_host = starts.by_host && starts.last.is_none();
                if self.one_sided.is_none() && (by_host || queued || posted) {
                    return Err(self.started_before(&starts));
                }
                self.begin(plane, &mut starts, coarse_now());
                starts.by_host = false;
                starts.last = Some((stream.number(), false));
            }
            Action::Wait => {
                self.waits();
                starts.posted = false;
                starts.by_host &= self.side == Side::Send;
                starts.last = Some((stream.number(), true));
            }
        }
        // Only streams of the host say when they have run it.
        if self.words.is_some() {
            self.shared.queued.fetch_add(1, Ordering::Relaxed);
        }
        Ok(starts.count)
    }

    /// What was enqueued has run, or will not.
    pub fn dequeued(&self) {
        if self.words.is_some() {
            self.shared.queued.fetch_sub(1, Ordering::Release);
        }
    }

    /// Makes a stream of a GPU wait for what the host has started.
    pub fn settle_on(self: &Arc<Self>, plane: &Plane, stream: &Stream) -> Result<()> {
        let mut starts = self.lock();
        self.go_on(plane, &mut starts);
        if !starts.by_host {
            return Ok(());
        }
        let wait = || -> gdsync::Result<()> {
            let Some(own) = &starts.stream else { return Ok(()) };
            let event = Event::new(stream.device())?;
            own.record(&event)?;
            stream.wait_event(&event)
        };
        wait().map_err(|source| broken(&self.name, source))
    }

    /// A step on the thread of a host stream; false if it had to give up.
    pub fn run_step(&self, action: Action) -> bool {
        let (Some(Ok(Way { host: Some(host), .. })), Some(bounds)) =
            (self.way.get(), self.bounds.get())
        else {
            return false;
        };
        let step = match (action, self.side) {
            (Action::Start, Side::Send) => HostStep::Send,
            // Nobody is told that a signal is waited for.
            (Action::Start, Side::Recv) if self.one_sided.is_some() => return true,
            (Action::Start, Side::Recv) => HostStep::Post,
            (Action::Wait, Side::Recv) => HostStep::Take,
            (Action::Wait, Side::Send) => HostStep::Settle,
        };
        host.run(step, bounds)
    }

    /// Whether streams of the host have steps that have not run.
    fn is_queued(&self) -> bool {
        self.shared.queued.load(Ordering::Acquire) > 0
    }

    /// Of a receive into host memory: whether it was posted and its message not taken.
    fn is_posted(&self) -> bool {
        self.side == Side::Recv
            && self.one_sided.is_none()
            && self.words.as_ref().is_some_and(|Words { epoch, room }| room.load() > epoch.load())
    }

    /// Does the part of this rank in start number `number`, if it can be done now. What it waits for, or nothing if nothing
    /// is left to do.
    pub fn help_start(self: &Arc<Self>, plane: &Plane, number: u64) -> Option<Wake> {
        let mut starts = self.lock();
        if starts.host != number {
            return None;
        }
        let wake = self.go_on(plane, &mut starts);
        if wake.is_none() && starts.dropped {
            self.release(plane);
        }
        wake
    }

    /// A send moves the message and tells the peer once there is room, a receive tells that it is posted. Nothing is left to
    /// do if that was done, or cannot be done.
    fn go_on(self: &Arc<Self>, plane: &Plane, starts: &mut HostStarts) -> Option<Wake> {
        let todo = starts.todo?;
        let way = match self.way() {
            Ok(Some(way)) => way,
            Ok(None) => {
                self.counters.retries.add(1);
                return Some(Wake::Peer);
            }
            Err(_) => return self.is_over(starts),
        };
        let Some(host) = &way.host else { return self.launch(plane, starts) };
        let next = match todo {
            Todo::Begin => self.hand(plane, host, starts.count),
            Todo::Complete(position) => host.is_complete(position).map(|complete| match complete {
                true => Ok(None),
                false => Ok(Some(position)),
            }),
        };
        match next {
            Ok(Ok(None)) => self.is_over(starts),
            Ok(Ok(Some(position))) => {
                starts.todo = Some(Todo::Complete(position));
                Some(Wake::Room)
            }
            Ok(Err(wake)) => {
                self.counters.retries.add(1);
                Some(wake)
            }
            Err(gdsync::nic::Error::Device(source)) => {
                let _ = self.broken.set(broken(&self.name, source));
                self.is_over(starts)
            }
            Err(error) => {
                plane.path_failed(self.neighbour, &error);
                Some(Wake::Room)
            }
        }
    }

    /// Nothing is left to do.
    fn is_over(&self, starts: &mut HostStarts) -> Option<Wake> {
        starts.todo = None;
        self.shared.starting.store(false, Ordering::Release);
        None
    }

    /// Sends or tells the peer; then what has to be complete, or what has to be waited for.
    #[allow(clippy::type_complexity, reason = "done, under way, not yet, or failed")]
    fn hand(
        &self,
        plane: &Plane,
        host: &HostEnd,
        number: u64,
    ) -> Result<std::result::Result<Option<u64>, Wake>, gdsync::nic::Error> {
        if self.side == Side::Recv {
            let _posting = self.span(plane, "post");
            if self.one_sided.is_some() {
                return Ok(Ok(None));
            }
            let posted =
                self.words.as_ref().and_then(|words| words.room.load()).unwrap_or_default();
            return Ok(match host.tell_posted(posted)? {
                Handed::NoRoom => Err(Wake::Room),
                Handed::Done | Handed::Posted { .. } => Ok(None),
            });
        }
        if !host.has_room() {
            return Ok(Err(Wake::Credit(host.needed())));
        }
        let _moving = self.span(plane, "move");
        // The peer may see it before this thread looks at the clock again.
        let leaves = plane.trace.now();
        let told = host.send()?;
        if told != Handed::NoRoom && plane.trace.is_on() {
            plane.trace.leaves(plane.trace.thread_lane(), self.message(number), leaves);
        }
        Ok(match told {
            Handed::NoRoom => Err(Wake::Room),
            Handed::Done => Ok(None),
            Handed::Posted { position, .. } => Ok(Some(position)),
        })
    }

    /// On a GPU.
    fn launch(self: &Arc<Self>, plane: &Plane, starts: &mut HostStarts) -> Option<Wake> {
        match self.is_met(plane, true) {
            Ok(true) => {
                if let Err(error) = self.run_alone(plane, starts, Action::Start) {
                    let _ = self.broken.set(error);
                }
                self.is_over(starts)
            }
            Ok(false) => Some(Wake::Peer),
            Err(error) => {
                let _ = self.broken.set(error);
                self.is_over(starts)
            }
        }
    }

    fn run_alone(
        self: &Arc<Self>,
        plane: &Plane,
        starts: &mut HostStarts,
        action: Action,
    ) -> Result<()> {
        // Whoever calls holds it.
        let Some(plane) = plane.this() else { return Ok(()) };
        let told = self.told(&plane)?;
        let stream = match starts.stream.take() {
            Some(stream) => stream,
            None => plane.lend(self.memory.device())?,
        };
        let step = stream::Step { plane: &plane, end: self, action };
        if stream::run(&plane, starts.stream.insert(stream), &[step], Some(&told.tell))? {
            starts.told += 1;
            starts.asked = None;
        }
        Ok(())
    }

    /// What the host needs for its starts on a GPU.
    pub fn told(&self, plane: &Plane) -> Result<&Told> {
        if let Some(made) = self.told.get() {
            return Ok(made);
        }
        let device = self.memory.device();
        let made = Told::new(plane, device).map_err(|source| broken(&self.name, source))?;
        // Two threads may come at once: one's stays.
        Ok(self.told.get_or_init(|| made))
    }

    /// Whether the last start is complete. The other operations of this rank get no help by it.
    pub fn poll(self: &Arc<Self>, plane: &Plane) -> Result<bool> {
        plane.listen_if(!self.is_paired(), self.neighbour);
        let mut starts = self.lock();
        let handed = self.go_on(plane, &mut starts).is_none();
        let way = match self.way() {
            Ok(way) => way,
            Err(error) => {
                drop(starts);
                return Err(self.cause(plane, error));
            }
        };
        let complete = handed
            && match way {
                Some(Way { host: Some(host), .. }) => self.is_taken(host, starts.by_host)?,
                Some(Way { host: None, .. }) => self.has_run(plane, &mut starts)?,
                None => true,
            };
        if complete && std::mem::take(&mut starts.unseen) {
            (starts.by_host, starts.posted) = (false, false);
            self.landed(plane, starts.count);
        }
        Ok(complete)
    }

    /// On host memory, of what is out of the hands of this rank's calls: whether it is complete. Takes a message that is there.
    fn is_taken(&self, host: &HostEnd, by_host: bool) -> Result<bool> {
        if self.is_queued() {
            return Ok(false);
        }
        let take = || {
            host.take().map_err(|error| match error {
                gdsync::nic::Error::Device(source) => broken(&self.name, source),
                error => refused(|| self.name.to_string())(error),
            })
        };
        if self.one_sided == Some(OneSidedKind::Wait) {
            return if by_host { take() } else { Ok(true) };
        }
        while self.is_posted() {
            if !take()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// On a GPU: whether what the host started, or a stream posted, is complete.
    fn has_run(self: &Arc<Self>, plane: &Plane, starts: &mut HostStarts) -> Result<bool> {
        if !starts.by_host && !starts.posted && !starts.taking {
            return Ok(true);
        }
        if self.side == Side::Recv && !starts.taking {
            if !self.has_come(starts)? {
                return Ok(false);
            }
            self.run_alone(plane, starts, Action::Wait)?;
            (starts.taking, starts.expected) = (true, None);
            starts.posted = false;
        }
        let told = self.told(plane)?;
        let report = &self.bounds(plane)?.report;
        let failed = |source| broken(&self.name, source);
        let asks = !told.has(starts.told) && starts.is_to_ask();
        if let Some(stream) = &starts.stream
            && !told.has(starts.told)
        {
            if report.late().is_none() && !(asks && stream.is_idle().map_err(failed)?) {
                return Ok(false);
            }
            // It ends without telling if it failed. The world may know better why.
            let ended = stream.synchronize(Deadline::after(ENDING)).map_err(failed);
            if !told.has(starts.told) {
                ended?;
                plane.check_after(self.age(), || self.name.to_string())?;
                return report.late().map_or(Ok(false), Err);
            }
        }
        starts.stream.take().into_iter().for_each(|stream| plane.give_back(stream));
        starts.taking = false;
        report.late().map_or(Ok(true), Err)
    }

    /// On a GPU, through a NIC: whether the message to be taken is there. Its signal is in host memory; a kernel that waited for
    /// it could keep the copies of the NIC, which bring the message, from the GPU. Over mapped memory the kernel may wait.
    fn has_come(&self, starts: &mut HostStarts) -> Result<bool> {
        let signal = self.end.as_ref().and_then(|end| end.looked_at());
        let Some(signal) = signal.transpose().map_err(|source| broken(&self.name, source))? else {
            return Ok(true);
        };
        let taken = || self.state.memory().slice(0..8)?.cast::<u64>()?.to_vec();
        let look = |expected: Option<u64>| -> gdsync::Result<(u64, bool)> {
            let expected = match expected {
                Some(expected) => expected,
                None => taken()?.first().copied().unwrap_or_default() + 1,
            };
            Ok((expected, signal.load().is_none_or(|seen| seen >= expected)))
        };
        let (expected, come) =
            look(starts.expected).map_err(|source| broken(&self.name, source))?;
        starts.expected = Some(expected);
        Ok(come)
    }

    pub fn progress(&self, plane: &Plane) -> Progress {
        let starts = self.lock();
        let expected = self.latest(&starts);
        let seen = match self.way() {
            Ok(Some(Way { host: Some(host), .. })) => host.seen(),
            _ => expected.saturating_sub(1),
        };
        drop(starts);
        let what = What { name: self.name.clone(), expected, seen };
        Progress { what, age: self.age(), why: self.why_late(plane) }
    }

    /// Number of the last start.
    fn latest(&self, starts: &HostStarts) -> u64 {
        let counted = self.words.as_ref().and_then(|Words { epoch, room }| match self.side {
            Side::Recv if self.one_sided.is_some() => Some(epoch.load()? + 1),
            Side::Recv => room.load(),
            Side::Send => Some(epoch.load()? + u64::from(starts.todo == Some(Todo::Begin))),
        });
        counted.unwrap_or(starts.count)
    }

    fn started_before(&self, starts: &HostStarts) -> Error {
        let queued = u64::from(self.is_queued());
        Error::Started { op: self.name.to_string(), epoch: self.latest(starts).max(queued) }
    }

    #[inline]
    pub(super) fn lock(&self) -> Guard<'_, HostStarts> {
        self.starts.lock()
    }
}
