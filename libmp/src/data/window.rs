//! One-sided communication: a region of every rank of a communicator, opened to the others, with signals. What reaches the
//! others' memory is `transport`'s; here are ranges, signals and errors, and what kernels take. What is prepared on a window is
//! [`prepared`].

mod atomic;
mod prepared;

pub use prepared::{Get, Put, SignalWait};

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytemuck::Pod;
use gdsync::wqe::RemoteAddress;
use gdsync::{Buffer, Deadline, Stream, Word64, reached64};
use mp_kernels::WindowPart;

use super::counters::Counters;

use super::name::{Name, Progress, What};
use super::plane::Plane;
use super::region::Region;
use super::report::Report;
use super::wait::Backoff;
use crate::communicator::Communicator;
use crate::error::{Error, Result};
use crate::trace::{Label, Span};
use crate::transport::{Call, Connection, Line, Opened, Reach, Signal, SignalAction, Told};

/// Why a rank's share cannot be accessed in place.
const NOT_MAPPED: &str =
    "its memory is behind the NIC, not mapped here: `put`, `get` and `handle` reach it";

/// A region of every rank, which the others write, read and signal, from the host, on streams and in kernels:
/// [`Communicator::window`].
///
/// # Order
/// Calls of the host have happened when they return. A rank that sees a signal's value (`wait_signal`) sees what the rank
/// that raised it did before: on the host in its thread, on a stream before it on the stream, in a kernel as `mp/window.cuh` says.
/// Two puts without a signal between them are in no order for anybody else. To a rank that is reached through a NIC, a call of the
/// host returns when the NIC has the peer's answer, at the latest after the communicator's timeout; a stream waits for the answer of
/// a put or a get, not of a signal.
///
/// # Signals
/// A signal is a counter of the rank that waits for it, in the memory of its region's device, or in pinned memory if a NIC raises
/// it. It only grows. Either one rank sets it – two that set the same one may undo each other's values –, or any number of ranks
/// add to it. Host, streams and kernels raise and wait for the same words; a GPU adds to one in host memory only over a link with
/// native atomics. Of memory of a GPU, which the CPU does not reach, a call of the host takes some microseconds
/// more, as it is a stream of this rank that does it.
///
/// ```
/// use std::time::Duration;
///
/// use libmp::{Deadline, Device, World};
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// let share = world.alloc::<u64>(&Device::Host, 4)?;
/// let window = world.window(&share, 1)?; // a collective call; one signal for each rank
/// let right = (world.rank() + 1) % world.size();
/// let mine = world.alloc::<u64>(&Device::Host, 2)?;
/// mine.write(&[1, 2])?;
/// window.put_signal(right, 2, &mine, 0, 1)?; // who sees the signal sees the elements
/// window.wait_signal(0, 1, Deadline::after(Duration::from_secs(10)))?;
/// assert_eq!(share.to_vec()?, [0, 0, 1, 2]);
/// # world.barrier()?;
/// # world.finish()
/// # }
/// ```
pub struct Window<T> {
    plane: Arc<Plane>,
    parts: Vec<Part<T>>,
    rank: usize,
    /// This rank's own memory and signals.
    own: Opened,
    timeout: Duration,
    /// For kernels: a `mp::WindowPart` for each rank, the abort word and the timeout, where they say what failed.
    table: Buffer<WindowPart>,
    bounds: (u64, u64),
    report: Arc<Report>,
}

/// A rank's share of a window as seen from here.
struct Part<T> {
    /// In the world.
    rank: usize,
    /// Elements.
    len: u64,
    connection: Arc<dyn Connection>,
    /// Where it is mapped here.
    memory: Option<Buffer<T>>,
}

impl<T: Pod> Window<T> {
    pub(crate) fn open(
        communicator: &Communicator,
        plane: &Arc<Plane>,
        region: &Region<T>,
        signals: usize,
    ) -> Result<Window<T>> {
        Window::open_as(communicator, plane, region, signals, ("window", "of"))
    }

    /// The same as part of something else, which failures of kernels name.
    pub(crate) fn open_as(
        communicator: &Communicator,
        plane: &Arc<Plane>,
        region: &Region<T>,
        signals: usize,
        (verb, direction): (&'static str, &'static str),
    ) -> Result<Window<T>> {
        let op = || "opening a window".to_owned();
        let mismatch = |reason: String| Error::Mismatch { op: op(), reason };
        let (rank, timeout) = (communicator.rank(), communicator.timeout());
        let ranks = (0..communicator.size()).map(|rank| communicator.world_rank(rank));
        let ranks = ranks.collect::<Result<Vec<_>>>()?;
        let own = Opened::new(plane, &ranks, region.buffer().bytes(), signals, &op);
        // Everybody hears of a failure of anybody.
        let told = own.as_ref().map(Opened::told).map_err(|error| error.to_string());
        let blob = postcard::to_stdvec(&told).map_err(|error| mismatch(error.to_string()))?;
        let of_rank = |(rank, blob): (usize, &Vec<u8>)| {
            let told: Result<Told, String> = postcard::from_bytes(blob)
                .map_err(|error| mismatch(format!("rank {rank}: {error}")))?;
            let told = told.map_err(|reason| mismatch(format!("rank {rank}: {reason}")))?;
            match told.signals == signals as u64 {
                true => Ok(told),
                false => {
                    let theirs = told.signals;
                    Err(mismatch(format!("{signals} signals here, {theirs} of rank {rank}")))
                }
            }
        };
        let blobs = communicator.all_gather(&blob)?;
        let told = blobs.iter().enumerate().map(of_rank).collect::<Result<Vec<_>>>()?;
        let own = own?;
        let call = Call { plane, timeout, op: &op };
        let failed = |source| Error::Memory { op: op(), source };
        let part = |(place, (told, &rank)): (usize, (&Told, &usize))| {
            let connection = own.connect(&call, place, rank, told)?;
            let memory = connection.memory().map(Buffer::cast).transpose().map_err(failed)?;
            let len = told.bytes / size_of::<T>().max(1) as u64;
            Ok(Part { rank, len, connection, memory })
        };
        let parts = told.iter().zip(&ranks).enumerate().map(part).collect::<Result<Vec<_>>>()?;
        let device = region.buffer().device();
        let rows: Vec<WindowPart> = parts.iter().map(|part| part.connection.view()).collect();
        let table = plane.table(device, &rows, &op)?;
        let host = communicator.host(rank)?.into();
        let name = Name { verb, tag: 0, direction, rank: ranks[rank], host };
        let report = plane.report(device, Arc::new(name))?;
        let bounds = (plane.abort_of(device)?.address, nanoseconds(timeout));
        let plane = plane.clone();
        Ok(Window { plane, parts, rank, own, timeout, table, bounds, report })
    }

    /// Elements of rank `rank` of the communicator.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`].
    pub fn len(&self, rank: usize) -> Result<u64> {
        self.part(rank).map(|part| part.len)
    }

    /// The memory of rank `rank` (this rank's own too) as this rank's device reaches it, for kernels: loads, stores and
    /// signals of `mp/signal.cuh` at its [`device_address`](Buffer::device_address) are the kernel's own affair, bounds
    /// and order included.
    ///
    /// # Errors
    /// [`Error::NoPath`] for a rank that is reached through a NIC, [`Error::NoSuchRank`]; what ended the world.
    pub fn memory_of(&self, rank: usize) -> Result<&Buffer<T>> {
        let part = self.reach("access", rank)?;
        part.memory.as_ref().ok_or_else(|| self.plane.no_path(part.rank, NOT_MAPPED))
    }

    /// A signal of rank `rank`, as [`memory_of`](Self::memory_of): for [`Stream::signal`] and, of this rank's own,
    /// [`Stream::wait_signal`].
    ///
    /// # Errors
    /// As [`memory_of`](Self::memory_of); [`Error::OutOfRange`].
    pub fn signal_of(&self, rank: usize, signal: usize) -> Result<Word64> {
        let part = self.check_signal("access", rank, signal)?;
        let word = part.connection.word(signal);
        let word = word.ok_or_else(|| self.plane.no_path(part.rank, NOT_MAPPED))?;
        word.word(0).map_err(failed("a signal"))
    }

    /// Copies the region to rank `rank`, from its element `at` on.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] with the peer's size, [`Error::NoSuchRank`]; [`Error::Memory`]; [`Error::Late`], [`Error::Nic`]
    /// from a NIC; what ended the world.
    pub fn put(&self, rank: usize, at: u64, source: &Region<T>) -> Result<()> {
        self.put_and("put", rank, at, source, None)
    }

    /// [`put`](Self::put), and then [`signal`](Self::signal): who sees the signal sees the elements.
    ///
    /// # Errors
    /// As these; if the signal does not exist, before anything is written.
    pub fn put_signal(
        &self,
        rank: usize,
        at: u64,
        source: &Region<T>,
        signal: usize,
        value: u64,
    ) -> Result<()> {
        self.check_signal("put", rank, signal)?;
        let signal = Some(Signal { number: signal, action: SignalAction::Set(value) });
        self.put_and("put and signal", rank, at, source, signal)
    }

    /// [`put`](Self::put), and then [`signal_add`](Self::signal_add): who sees the sum sees the bytes.
    ///
    /// # Errors
    /// As [`put_signal`](Self::put_signal).
    pub fn put_signal_add(
        &self,
        rank: usize,
        at: u64,
        source: &Region<T>,
        signal: usize,
        value: u64,
    ) -> Result<()> {
        self.check_signal("put", rank, signal)?;
        let signal = Some(Signal { number: signal, action: SignalAction::Add(value) });
        self.put_and("put and signal", rank, at, source, signal)
    }

    fn put_and(
        &self,
        what: &'static str,
        rank: usize,
        at: u64,
        source: &Region<T>,
        signal: Option<Signal>,
    ) -> Result<()> {
        let (part, at) = self.range("put", rank, at, source.len())?;
        let bytes = source.buffer().bytes();
        let _span = self.span(what, rank, bytes.len());
        self.counters(part).puts.add(bytes.len() as u64);
        self.counters(part).signals.add(u64::from(signal.is_some()));
        self.call("put", part, |call| part.connection.put(call, at, &bytes, signal))
    }

    /// Copies from rank `rank`, from its element `at` on, into the region.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn get(&self, rank: usize, at: u64, target: &Region<T>) -> Result<()> {
        let (part, at) = self.range("get", rank, at, target.len())?;
        let bytes = target.buffer().bytes();
        let _span = self.span("get", rank, bytes.len());
        self.counters(part).gets.add(bytes.len() as u64);
        self.call("get", part, |call| part.connection.get(call, at, &bytes))
    }

    /// Raises signal number `signal` of rank `rank` to `value` (release).
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a signal that does not exist; as [`put`](Self::put).
    pub fn signal(&self, rank: usize, signal: usize, value: u64) -> Result<()> {
        self.raise(rank, signal, SignalAction::Set(value))
    }

    /// Adds `value` to signal number `signal` of rank `rank` (release), as any number of ranks may, by whatever trigger; nobody
    /// [sets](Self::signal) such a signal. Who has waited for the sum sees what each did before it added.
    ///
    /// # Errors
    /// As [`signal`](Self::signal).
    pub fn signal_add(&self, rank: usize, signal: usize, value: u64) -> Result<()> {
        self.raise(rank, signal, SignalAction::Add(value))
    }

    fn raise(&self, rank: usize, signal: usize, action: SignalAction) -> Result<()> {
        let part = self.check_signal("signal", rank, signal)?;
        let _span = self.span("signal", rank, 8);
        self.counters(part).signals.add(1);
        let signal = Signal { number: signal, action };
        self.call("signal", part, |call| part.connection.signal(call, signal))
    }

    /// Waits until everything that this rank's streams and kernels have put, got or signalled through a NIC to rank `rank` so far
    /// has happened there. What the host did has; what a stream does over mapped memory is ordered by the stream.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`], [`Error::Late`]; what ended the world.
    pub fn flush(&self, rank: usize) -> Result<()> {
        let part = self.reach("flush", rank)?;
        self.call("flush", part, |call| part.connection.flush(call))
    }

    /// Waits until this rank's signal has reached `value` (acquire).
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Late`], what ended the world.
    pub fn wait_signal(&self, signal: usize, value: u64, deadline: Deadline) -> Result<()> {
        let (part, word) = self.own_signal(signal)?;
        let (mut backoff, since) = (Backoff::new(deadline), Instant::now());
        let _span = self.plane.trace.span("host", "wait for a signal").arg("signal", signal as u64);
        self.counters(part).waits.add(1);
        tracing::trace!(operation = "wait for a signal", signal, value, "waiting");
        loop {
            let read = |call: &Call<'_>| self.own.read_signal(call, word, signal);
            let seen = self.call("reading a signal", part, read)?;
            if reached64(seen, value) {
                return Ok(());
            }
            self.plane.progress();
            self.plane.pause(&mut backoff, || {
                let host = self.plane.peer(part.rank).host.clone();
                let (tag, rank) = (signal as u64, part.rank);
                let name = Arc::new(Name { verb: "signal", tag, direction: "of", rank, host });
                let what = What { name, expected: value, seen };
                Progress { what, age: since.elapsed(), why: String::new() }
            })?;
        }
    }

    /// The value of this rank's signal (acquire).
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn read_signal(&self, signal: usize) -> Result<u64> {
        let (part, word) = self.own_signal(signal)?;
        self.call("reading a signal", part, |call| self.own.read_signal(call, word, signal))
    }

    /// [`put`](Self::put), enqueued on a stream: the region may be written by what comes after it on the stream.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Error::Memory`] if the stream cannot reach the memory.
    pub fn put_on(&self, stream: &Stream, rank: usize, at: u64, source: &Region<T>) -> Result<()> {
        let (part, at) = self.range("put", rank, at, source.len())?;
        let bytes = source.buffer().bytes();
        self.counters(part).puts.add(bytes.len() as u64);
        self.enqueue(stream, "put", part, bytes.len(), |call| {
            part.connection.put_on(call, stream, at, &bytes)
        })
    }

    /// [`get`](Self::get), enqueued on a stream.
    ///
    /// # Errors
    /// As [`put_on`](Self::put_on).
    pub fn get_on(&self, stream: &Stream, rank: usize, at: u64, target: &Region<T>) -> Result<()> {
        let (part, at) = self.range("get", rank, at, target.len())?;
        let bytes = target.buffer().bytes();
        self.counters(part).gets.add(bytes.len() as u64);
        self.enqueue(stream, "get", part, bytes.len(), |call| {
            part.connection.get_on(call, stream, at, &bytes)
        })
    }

    /// [`signal`](Self::signal), enqueued on a stream: who sees it sees everything the stream did before.
    ///
    /// # Errors
    /// As [`signal`](Self::signal); [`Error::Memory`] if the stream cannot reach the signal.
    pub fn signal_on(&self, stream: &Stream, rank: usize, signal: usize, value: u64) -> Result<()> {
        self.raise_on(stream, rank, signal, SignalAction::Set(value))
    }

    /// [`signal_add`](Self::signal_add), enqueued on a stream: who has waited for the sum sees everything the stream did before.
    ///
    /// # Errors
    /// As [`signal_on`](Self::signal_on).
    pub fn signal_add_on(
        &self,
        stream: &Stream,
        rank: usize,
        signal: usize,
        value: u64,
    ) -> Result<()> {
        self.raise_on(stream, rank, signal, SignalAction::Add(value))
    }

    fn raise_on(
        &self,
        stream: &Stream,
        rank: usize,
        signal: usize,
        action: SignalAction,
    ) -> Result<()> {
        let part = self.check_signal("signal", rank, signal)?;
        self.counters(part).signals.add(1);
        let signal = Signal { number: signal, action };
        self.enqueue(stream, "signal", part, 8, |call| {
            part.connection.signal_on(call, stream, signal)
        })
    }

    /// Makes a stream wait until this rank's signal has reached `value`. Released if the world ends.
    ///
    /// # Errors
    /// As [`signal_on`](Self::signal_on).
    pub fn wait_signal_on(&self, stream: &Stream, signal: usize, value: u64) -> Result<()> {
        let (part, word) = self.own_signal(signal)?;
        self.counters(part).waits.add(1);
        let wait = || stream.wait_geq64(word, value).map_err(failed("waiting for a signal"));
        self.enqueue(stream, "wait for a signal", part, 8, |_| wait())
    }

    /// What the functions of `mp/window.cuh` take. Valid while this object lives; a rank drops it when no kernel of any
    /// rank uses the window any more.
    ///
    /// # Errors
    /// [`Error::Memory`] if the device cannot reach its own tables.
    pub fn handle(&self) -> Result<mp_kernels::Window> {
        let failed = failed("the handle of a window");
        Ok(mp_kernels::Window {
            parts: self.table.device_address().unwrap_or_default(),
            ranks: self.parts.len() as u64,
            rank: self.rank as u64,
            signals: self.own.told().signals,
            abort: self.bounds.0,
            timeout_ns: self.bounds.1,
            report: self.report.address().map_err(failed)?,
        })
    }

    /// How kernels and host streams get to a rank's share by themselves, for what is built on windows.
    pub(crate) fn reach_of(&self, rank: usize) -> Result<Reach<'_>> {
        Ok(self.part(rank)?.connection.reach())
    }

    /// How the CPU tells a rank by one of its signals, see [`Connection::line`].
    pub(crate) fn line_to(
        &self,
        rank: usize,
        put: Option<(Buffer<u8>, RemoteAddress)>,
        signal: usize,
    ) -> Result<Arc<dyn Line>> {
        let part = self.check_signal("access", rank, signal)?;
        self.call("preparing puts", part, |call| part.connection.line(call, put, signal))
    }

    /// What kernels use of it, for streams and graphs to hold.
    pub(crate) fn memory(&self) -> Vec<Buffer<u8>> {
        let parts = self.parts.iter().flat_map(|part| part.connection.held());
        [self.table.bytes()].into_iter().chain(parts).collect()
    }

    /// Enqueues something, and sees to it that the timeline shows when it ran.
    fn enqueue(
        &self,
        stream: &Stream,
        what: &'static str,
        part: &Part<T>,
        bytes: usize,
        enqueue: impl FnOnce(&Call<'_>) -> Result<()>,
    ) -> Result<()> {
        let peer = part.rank as u64;
        tracing::trace!(operation = what, peer, bytes, stream = stream.name(), "enqueued");
        let label = || Label::new(what, &[("peer", peer), ("bytes", bytes as u64)]);
        let enqueue = || self.call(what, part, enqueue);
        let enqueued = self.plane.probes.around(&self.plane.trace, stream, label, enqueue);
        if let Err(Error::Memory { .. } | Error::Nic { .. }) = enqueued {
            // The streams of a world that ends meanwhile take no more waits.
            self.plane.check_after(Duration::ZERO, || what.to_owned())?;
        }
        enqueued
    }

    /// Something that this thread does with a rank of the window, in the log and the timeline.
    fn span(&self, what: &'static str, rank: usize, bytes: usize) -> Span<'_> {
        let peer = self.parts[rank].rank as u64;
        tracing::trace!(operation = what, peer, bytes, "started");
        self.plane.trace.span("host", what).arg("peer", peer).arg("bytes", bytes as u64)
    }

    /// What counts the operations with a rank of the window.
    fn counters(&self, part: &Part<T>) -> &Counters {
        self.plane.counters_of(part.rank)
    }

    fn part(&self, rank: usize) -> Result<&Part<T>> {
        self.parts.get(rank).ok_or_else(|| Error::NoSuchRank {
            rank,
            communicator: "the window's communicator".into(),
            size: self.parts.len(),
        })
    }

    fn reach(&self, op: &str, rank: usize) -> Result<&Part<T>> {
        self.plane.check_after(Duration::ZERO, || format!("{op} to rank {rank}"))?;
        self.part(rank)
    }

    /// Makes a call that goes to a rank.
    fn call<R>(
        &self,
        verb: &str,
        part: &Part<T>,
        call: impl FnOnce(&Call<'_>) -> Result<R>,
    ) -> Result<R> {
        let op = || {
            let host = &self.plane.peer(part.rank).host;
            format!("{verb} to the window of rank {} on {host}", part.rank)
        };
        call(&Call { plane: &self.plane, timeout: self.timeout, op: &op })
    }

    /// `len` elements of rank `rank` from `at` on: their share, and where they begin in it, in bytes.
    fn range(&self, op: &str, rank: usize, at: u64, len: usize) -> Result<(&Part<T>, usize)> {
        let part = self.reach(op, rank)?;
        if at.checked_add(len as u64).is_none_or(|end| end > part.len) {
            return Err(Error::OutOfRange {
                op: format!("{op} to the window of rank {}", part.rank),
                at,
                len: len as u64,
                size: part.len,
            });
        }
        // At most the length of a buffer.
        Ok((part, at as usize * size_of::<T>()))
    }

    /// The rank's share, if it has that signal.
    fn check_signal(&self, op: &str, rank: usize, signal: usize) -> Result<&Part<T>> {
        let part = self.reach(op, rank)?;
        let size = self.own.told().signals;
        if signal as u64 >= size {
            return Err(no_signal(part.rank, signal, size));
        }
        Ok(part)
    }

    fn own_signal(&self, signal: usize) -> Result<(&Part<T>, &Word64)> {
        let part = &self.parts[self.rank];
        let word = self.own.word(signal);
        let none = || no_signal(part.rank, signal, self.own.told().signals);
        Ok((part, word.ok_or_else(none)?))
    }
}

fn no_signal(rank: usize, signal: usize, size: u64) -> Error {
    Error::OutOfRange { op: format!("a signal of rank {rank}"), at: signal as u64, len: 1, size }
}

fn failed(op: &'static str) -> impl FnOnce(gdsync::Error) -> Error + Copy {
    move |source| Error::Memory { op: op.into(), source }
}

pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl<T> fmt::Debug for Window<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signals = self.own.told().signals;
        write!(f, "window of {} ranks with {signals} signals", self.parts.len())
    }
}
