//! One-sided communication: a region of every rank of a communicator, opened to the others, with signals. What reaches the
//! others' memory is `transport`'s; here are ranges, signals and errors, and the calls of the host. Those on streams are
//! [`on_stream`], what is prepared on a window is [`prepared`], what kernels take [`handle`].

mod atomic;
mod handle;
mod on_stream;
mod prepared;
mod wait;

pub use atomic::{AtomicNumber, AtomicOp};
pub use prepared::{Get, Put, SignalWait};

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytemuck::Pod;
use gdsync::wqe::RemoteAddress;
use gdsync::{Buffer, Device, Rows, Word64};
use mp_kernels::WindowPart;

use super::counters::Counters;
use super::name::Name;
use super::plane::Plane;
use super::region::Region;
use super::report::Report;
use super::sparse::Sparse;
use crate::communicator::{Communicator, Gathered};
use crate::error::{Error, Result};
use crate::trace::Span;
use crate::transport::{
    self, Call, Channel, Connection, Line, Opened, Return, Signal, SignalAction, Told,
};

/// A region of every rank, which the others write, read and signal, from the host, on streams and in kernels:
/// [`Communicator::window`].
///
/// # Order
/// Calls of the host have happened when they return, but for [`start_put`](Self::start_put) and [`start_get`](Self::start_get), which
/// [`flush`](Self::flush) and [`quiet`](Self::quiet) wait for. A rank that sees a signal's value (`wait_signal`) sees what the rank
/// that raised it did before: on the host in its thread, on a stream before it on the stream, in a kernel as `mp/window.cuh` says.
/// Two puts without a signal between them are in no order for anybody else. To a rank that is reached through a NIC, a call of the
/// host returns when the NIC has the peer's answer, at the latest after the communicator's timeout; a stream waits for the answer of
/// a put or a get, not of a signal.
///
/// # Signals
/// A signal is a counter of the rank that waits for it, in the memory of its region's device, or in pinned memory if a NIC raises
/// it. It only grows. Either one rank sets it – two that set the same one may undo each other's values –, or any number of ranks
/// add to it. Host, streams and kernels raise and wait for the same words; a GPU adds to one in host memory only over a link with
/// native atomics, or through the NIC that raises it. Of memory of a GPU, which the CPU does not reach, a call of the host takes some
/// microseconds more, as it is a stream of this rank that does it.
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
    all: Arc<Parts>,
    /// The shares that are mapped here and were asked for.
    memory: Sparse<Buffer<T>>,
    rank: usize,
    /// This rank's own memory and signals.
    own: Opened,
    timeout: Duration,
    /// Where kernels say what failed.
    report: Arc<Report>,
}

/// What a put takes, or a get fills: a region, or rows of it, as `&region` or `(&region, rows)`.
///
/// [`Rows::to`](Rows) and `from` are those of the copy: of a put, `to` is the distance of rows in the rank's memory, of a get `from`.
///
/// ```
/// use libmp::gdsync::Rows;
/// use libmp::{Device, World};
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// let matrix = world.alloc::<u64>(&Device::Host, 12)?; // four columns
/// let window = world.window(&matrix, 0)?;
/// let column = world.alloc::<u64>(&Device::Host, 3)?;
/// column.write(&[1, 2, 3])?;
/// window.put(world.rank(), 1, (&column, Rows { len: 1, count: 3, to: 4, from: 1 }))?;
/// assert_eq!(matrix.to_vec()?, [0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0]);
/// # world.barrier()?;
/// # world.finish()
/// # }
/// ```
#[derive(Debug)]
pub struct Local<'a, T> {
    region: &'a Region<T>,
    rows: Option<Rows>,
}

impl<'a, T> From<&'a Region<T>> for Local<'a, T> {
    fn from(region: &'a Region<T>) -> Local<'a, T> {
        Local { region, rows: None }
    }
}

impl<'a, T> From<(&'a Region<T>, Rows)> for Local<'a, T> {
    fn from((region, rows): (&'a Region<T>, Rows)) -> Local<'a, T> {
        Local { region, rows: Some(rows) }
    }
}

/// Which way a copy goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Put,
    Get,
}

impl Way {
    fn verb(self) -> &'static str {
        match self {
            Way::Put => "put",
            Way::Get => "get",
        }
    }
}

/// The shares of all ranks, as seen from here, and a `mp::WindowPart` of each for kernels. From the host, ranks of one process see
/// the same.
struct Parts {
    list: Vec<Part>,
    table: Buffer<WindowPart>,
}

/// A rank's share of a window as seen from here.
struct Part {
    /// In the world.
    rank: usize,
    bytes: u64,
    connection: Arc<dyn Connection>,
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
        let of_rank = |(rank, blob): (usize, &[u8])| {
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
        let call = Call { plane, timeout, op: &op };
        let device = region.buffer().device();
        let make = |own: &Opened, gathered: &Gathered| {
            let told = gathered.blobs().into_iter().enumerate().map(of_rank);
            let told = told.collect::<Result<Vec<_>>>()?;
            let part = |(place, (told, &rank)): (usize, (&Told, &usize))| {
                let connection = own.connect(&call, place, rank, told)?;
                Ok(Part { rank, bytes: told.bytes, connection })
            };
            let list = told.iter().zip(&ranks).enumerate().map(part).collect::<Result<Vec<_>>>()?;
            let rows: Vec<WindowPart> = list.iter().map(|part| part.connection.view()).collect();
            let table = plane.table(device, &rows, &op)?;
            Ok(Parts { list, table })
        };
        let gathered = communicator.gather_blobs(&blob)?;
        let own = match own {
            Ok(own) => own,
            Err(error) => {
                let mut all = gathered.blobs().into_iter().enumerate();
                all.try_for_each(|blob| of_rank(blob).map(drop))?;
                return Err(error);
            }
        };
        // Whoever makes it has seen that all ranks name as many signals.
        let all = match device {
            Device::Host if plane.together => {
                plane.common.once(gathered.key(), || make(&own, &gathered))?
            }
            _ => Arc::new(make(&own, &gathered)?),
        };
        let host = communicator.host(rank)?.into();
        let name = Name { verb, tag: 0, direction, rank: ranks[rank], host };
        let report = plane.report(device, Arc::new(name))?;
        let memory = Sparse::new(ranks.len());
        Ok(Window { plane: plane.clone(), all, memory, rank, own, timeout, report })
    }

    /// Elements of rank `rank` of the communicator.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`].
    pub fn len(&self, rank: usize) -> Result<u64> {
        self.part(rank).map(Window::<T>::elements)
    }

    /// Copies the region, or [`Rows`] of it, to rank `rank`, from its element `at` on: [`start_put`](Self::start_put) and a wait for it
    /// to have happened.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] with the peer's size, or the region's, [`Error::NoSuchRank`]; [`Error::Memory`]; [`Error::Late`],
    /// [`Error::Nic`] from a NIC; what ended the world.
    pub fn put<'a>(&self, rank: usize, at: u64, source: impl Into<Local<'a, T>>) -> Result<()> {
        self.put_and("put", rank, at, source.into(), None, Return::Happened)
    }

    /// Begins to copy to rank `rank` as [`put`](Self::put): the region must not be written until [`flush`](Self::flush) has returned,
    /// and [`quiet`](Self::quiet), or a signal behind it, says that it has happened. Two puts are in no order. A queue without room is
    /// waited for.
    ///
    /// # Errors
    /// As [`put`](Self::put); of a request that fails later flush and quiet say so.
    pub fn start_put<'a>(
        &self,
        rank: usize,
        at: u64,
        source: impl Into<Local<'a, T>>,
    ) -> Result<()> {
        self.put_and("start a put", rank, at, source.into(), None, Return::Started)
    }

    /// [`put`](Self::put), and then [`signal`](Self::signal): who sees the signal sees the elements.
    ///
    /// # Errors
    /// As these; if the signal does not exist, before anything is written.
    pub fn put_signal<'a>(
        &self,
        rank: usize,
        at: u64,
        source: impl Into<Local<'a, T>>,
        signal: usize,
        value: u64,
    ) -> Result<()> {
        self.check_signal("put", rank, signal)?;
        let signal = Some(Signal { number: signal, action: SignalAction::Set(value) });
        self.put_and("put and signal", rank, at, source.into(), signal, Return::Happened)
    }

    /// [`put`](Self::put), and then [`signal_add`](Self::signal_add): who sees the sum sees the bytes.
    ///
    /// # Errors
    /// As [`put_signal`](Self::put_signal).
    pub fn put_signal_add<'a>(
        &self,
        rank: usize,
        at: u64,
        source: impl Into<Local<'a, T>>,
        signal: usize,
        value: u64,
    ) -> Result<()> {
        self.check_signal("put", rank, signal)?;
        let signal = Some(Signal { number: signal, action: SignalAction::Add(value) });
        self.put_and("put and signal", rank, at, source.into(), signal, Return::Happened)
    }

    fn put_and(
        &self,
        what: &'static str,
        rank: usize,
        at: u64,
        source: Local<'_, T>,
        signal: Option<Signal>,
        when: Return,
    ) -> Result<()> {
        let (part, at, local) = self.range_of(Way::Put, rank, at, &source)?;
        let bytes = local.rows.elements();
        let _span = self.span(what, rank, bytes);
        self.counters(part).puts.add(bytes as u64);
        self.counters(part).signals.add(u64::from(signal.is_some()));
        self.call("put", part, |call| part.connection.put(call, at, &local, signal, when))
    }

    /// Copies from rank `rank`, from its element `at` on, into the region, or [`Rows`] of it.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn get<'a>(&self, rank: usize, at: u64, target: impl Into<Local<'a, T>>) -> Result<()> {
        self.get_when("get", rank, at, target.into(), Return::Happened)
    }

    /// Begins to copy from rank `rank` as [`get`](Self::get): the elements are there when [`flush`](Self::flush), or
    /// [`quiet`](Self::quiet), has returned, and until then nothing may be done with the region. What is put, or signalled, behind
    /// it may happen before it.
    ///
    /// # Errors
    /// As [`start_put`](Self::start_put).
    pub fn start_get<'a>(
        &self,
        rank: usize,
        at: u64,
        target: impl Into<Local<'a, T>>,
    ) -> Result<()> {
        self.get_when("start a get", rank, at, target.into(), Return::Started)
    }

    fn get_when(
        &self,
        what: &'static str,
        rank: usize,
        at: u64,
        target: Local<'_, T>,
        when: Return,
    ) -> Result<()> {
        let (part, at, local) = self.range_of(Way::Get, rank, at, &target)?;
        let bytes = local.rows.elements();
        let _span = self.span(what, rank, bytes);
        self.counters(part).gets.add(bytes as u64);
        self.call("get", part, |call| part.connection.get(call, at, &local, when))
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

    /// Waits until the memory of all puts and gets that this rank's host has started with rank `rank` is the caller's again: what is put
    /// may be written, what is got is there.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`], [`Error::Late`]; what ended the world.
    pub fn flush(&self, rank: usize) -> Result<()> {
        let part = self.reach("flush", rank)?;
        self.call("flush", part, |call| part.connection.flush(call))
    }

    /// [`flush`](Self::flush) for all ranks.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn flush_all(&self) -> Result<()> {
        (0..self.all.list.len()).try_for_each(|rank| self.flush(rank))
    }

    /// Waits until everything that this rank's host has started, and its streams and kernels have put, got or signalled through a NIC,
    /// to rank `rank` so far has happened there. What a stream does over mapped memory is ordered by the stream.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn quiet(&self, rank: usize) -> Result<()> {
        let part = self.reach("wait for", rank)?;
        self.call("quiet", part, |call| part.connection.quiet(call))
    }

    /// [`quiet`](Self::quiet) for all ranks.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn quiet_all(&self) -> Result<()> {
        (0..self.all.list.len()).try_for_each(|rank| self.quiet(rank))
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

    /// How the CPU of this rank alone writes a stretch of a rank's share, in bytes, see [`Connection::channel`].
    pub(crate) fn channel(&self, rank: usize, at: usize, len: usize) -> Result<Box<dyn Channel>> {
        let part = self.part(rank)?;
        self.call("opening a channel", part, |call| part.connection.channel(call, at, len))
    }

    /// Something that this thread does with a rank of the window, in the log and the timeline.
    fn span(&self, what: &'static str, rank: usize, bytes: usize) -> Span<'_> {
        let peer = self.all.list[rank].rank as u64;
        tracing::trace!(operation = what, peer, bytes, "started");
        self.plane.trace.span("host", what).arg("peer", peer).arg("bytes", bytes as u64)
    }

    /// What counts the operations with a rank of the window.
    fn counters(&self, part: &Part) -> Arc<Counters> {
        self.plane.counters_of(part.rank)
    }

    fn elements(part: &Part) -> u64 {
        part.bytes / size_of::<T>().max(1) as u64
    }

    fn part(&self, rank: usize) -> Result<&Part> {
        self.all.list.get(rank).ok_or_else(|| Error::NoSuchRank {
            rank,
            communicator: "the window's communicator".into(),
            size: self.all.list.len(),
        })
    }

    fn reach(&self, op: &str, rank: usize) -> Result<&Part> {
        self.plane.check_after(Duration::ZERO, || format!("{op} to rank {rank}"))?;
        self.part(rank)
    }

    /// Makes a call that goes to a rank.
    fn call<R>(
        &self,
        verb: &str,
        part: &Part,
        call: impl FnOnce(&Call<'_>) -> Result<R>,
    ) -> Result<R> {
        let op = || {
            let host = &self.plane.peer(part.rank).host;
            format!("{verb} to the window of rank {} on {host}", part.rank)
        };
        call(&Call { plane: &self.plane, timeout: self.timeout, op: &op })
    }

    /// `len` elements of rank `rank` from `at` on: their share, and where they begin in it, in bytes.
    fn range(&self, op: &str, rank: usize, at: u64, len: usize) -> Result<(&Part, usize)> {
        let part = self.reach(op, rank)?;
        if at.checked_add(len as u64).is_none_or(|end| end > Self::elements(part)) {
            return Err(Error::OutOfRange {
                op: format!("{op} to the window of rank {}", part.rank),
                at,
                len: len as u64,
                size: Self::elements(part),
            });
        }
        // At most the length of a buffer.
        Ok((part, at as usize * size_of::<T>()))
    }

    /// The elements of a put or a get from `at` of rank `rank` on: their share, where they begin in it, in bytes, and the memory here.
    fn range_of(
        &self,
        way: Way,
        rank: usize,
        at: u64,
        local: &Local<'_, T>,
    ) -> Result<(&Part, usize, transport::Local)> {
        let (op, region) = (way.verb(), local.region);
        let rows = local.rows.unwrap_or(Rows::one(region.len()));
        let (to, from) = rows.extents();
        let (there, here) = if way == Way::Put { (to, from) } else { (from, to) };
        let (part, at) = self.range(op, rank, at, there)?;
        if here > region.len() {
            return Err(Error::OutOfRange {
                op: format!("{op} with rows of a region"),
                at: 0,
                len: here as u64,
                size: region.len() as u64,
            });
        }
        let memory = region.buffer().bytes();
        let memory = memory.slice(0..here * size_of::<T>()).map_err(failed(op))?;
        Ok((part, at, transport::Local { memory, rows: rows.in_bytes(size_of::<T>()) }))
    }

    /// The rank's share, if it has that signal.
    fn check_signal(&self, op: &str, rank: usize, signal: usize) -> Result<&Part> {
        let part = self.reach(op, rank)?;
        let size = self.own.told().signals;
        if signal as u64 >= size {
            return Err(no_signal(part.rank, signal, size));
        }
        Ok(part)
    }

    fn own_signal(&self, signal: usize) -> Result<(&Part, &Word64)> {
        let part = &self.all.list[self.rank];
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
        write!(f, "window of {} ranks with {signals} signals", self.all.list.len())
    }
}
