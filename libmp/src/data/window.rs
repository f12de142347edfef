//! One-sided communication: a region of every rank of a communicator, opened to the others, with signals.

mod atomic;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytemuck::Pod;
use gdsync::{Buffer, Deadline, Device, PeerHandle, PeerMemory, Stream, Word64, reached64};
use serde::{Deserialize, Serialize};

use super::counters::Counters;
use super::nic::{Call, Far, FarOpening};
use super::notice::Notice;
use super::operation::{Name, Progress, What, pause};
use super::plane::Plane;
use super::region::Region;
use super::wait::Backoff;
use crate::communicator::Communicator;
use crate::error::{Error, Result};
use crate::trace::{Label, Span};

/// Why a rank's share cannot be accessed in place.
const NOT_MAPPED: &str = "its memory is not mapped here";

/// A signal has a cache line of its own.
const LINE: usize = 64 / 8;

/// A region of every rank, which the others write, read and signal: [`Communicator::window`].
///
/// # Order
/// Calls of the host have happened when they return. A rank that sees a signal's value (`wait_signal`) sees what the rank
/// that raised it did before: on the host in its thread, on a stream before it on the stream. Two puts without a signal
/// between them are in no order for anybody else. To a rank that is reached through a NIC, a call of the host returns when the
/// NIC has the peer's answer, at the latest after the communicator's timeout; a stream waits for the answer of a put or a
/// get, not of a signal.
///
/// # Signals
/// A signal is a counter of the rank that waits for it. It only grows, and one rank raises it: two that raise the same
/// one may undo each other's values.
pub struct Window<T> {
    plane: Arc<Plane>,
    parts: Vec<Part<T>>,
    rank: usize,
    /// This rank's signals.
    signals: Vec<Word64>,
    timeout: Duration,
    /// This rank's number of it, where there is a NIC.
    number: Option<u64>,
}

/// A rank's share of a window as seen from here.
struct Part<T> {
    /// In the world.
    rank: usize,
    /// Elements.
    len: u64,
    signals: u64,
    way: Way<T>,
}

enum Way<T> {
    Near(Near<T>),
    Far(Far),
}

/// What is mapped here.
struct Near<T> {
    memory: Buffer<T>,
    signals: Vec<Word64>,
}

/// A part of a rank's memory.
enum Range<'a, T> {
    Near(Buffer<T>),
    /// From this byte on.
    Far(&'a Far, usize),
}

/// What each rank tells the others; the reason if it cannot take part.
#[derive(Serialize, Deserialize)]
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
enum Opening {
    Open {
        bytes: u64,
        count: u64,
        memory: Option<PeerHandle>,
        signals: Option<PeerHandle>,
        far: Option<FarOpening>,
    },
    Failed(String),
}

impl<T: Pod> Window<T> {
    pub(crate) fn open(
        communicator: &Communicator,
        plane: &Arc<Plane>,
        region: &Region<T>,
        signals: usize,
    ) -> Result<Window<T>> {
        let device = region.buffer().device().clone();
        let words: Region<u64> = communicator.alloc(&Device::Host, signals * LINE)?;
        let export = |empty: bool, handle: gdsync::Result<PeerHandle>| {
            if empty { Ok(None) } else { handle.map(Some) }
        };
        let (own, own_signals) = (region.buffer().bytes(), words.buffer().bytes());
        let far = FarOpening::new(plane, &own, &own_signals, communicator.size());
        let number = far.as_ref().ok().and_then(|far| far.as_ref().map(FarOpening::number));
        let opening = export(region.is_empty(), region.buffer().export()).and_then(|memory| {
            let handle = export(signals == 0, words.buffer().export())?;
            Ok((memory, handle))
        });
        let opening = match (opening, far) {
            (Ok((memory, handle)), Ok(far)) => {
                let (bytes, count) = (own.size() as u64, signals as u64);
                Opening::Open { bytes, count, memory, signals: handle, far }
            }
            (Err(error), _) => Opening::Failed(error.to_string()),
            (_, Err(error)) => Opening::Failed(error.to_string()),
        };
        let mismatch = |reason: String| Error::Mismatch { op: "opening a window".into(), reason };
        let blob = postcard::to_stdvec(&opening).map_err(|error| mismatch(error.to_string()))?;
        let mut parts = Vec::new();
        let mut failure = None;
        for (rank, blob) in communicator.all_gather(&blob)?.iter().enumerate() {
            let opened = postcard::from_bytes(blob)
                .map_err(|error| mismatch(format!("rank {rank}: {error}")))
                .and_then(|opening| match opening {
                    Opening::Failed(reason) => Err(mismatch(format!("rank {rank}: {reason}"))),
                    Opening::Open { bytes, count, memory, signals, far } => {
                        let rank = communicator.world_rank(rank)?;
                        let neighbour = plane.neighbour(rank)?;
                        let way = match (plane.link(neighbour), far) {
                            (Some(_), Some(far)) => Way::Far(Far::new(neighbour, &far)),
                            (Some(_), None) => {
                                return Err(mismatch(format!("rank {rank}: it has no NIC")));
                            }
                            (None, _) => Way::Near(Near::map(memory, signals, &device)?),
                        };
                        let len = bytes / size_of::<T>().max(1) as u64;
                        Ok(Part { rank, len, signals: count, way })
                    }
                });
            match opened {
                Ok(part) => parts.push(part),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        // As the streams of this device wait for them.
        let signals = match &device {
            Device::Cuda(_) if signals > 0 => words
                .buffer()
                .export()
                .and_then(|handle| words_of(&PeerMemory::map(&handle, &device)?.buffer.cast()?)),
            _ => words_of(words.buffer()),
        };
        let signals = signals.map_err(failed("opening a window"))?;
        let (plane, rank) = (plane.clone(), communicator.rank());
        let timeout = communicator.timeout();
        Ok(Window { plane, parts, rank, signals, timeout, number })
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
        match &part.way {
            Way::Near(near) => Ok(&near.memory),
            Way::Far(_) => Err(self.plane.no_path(part.rank, NOT_MAPPED)),
        }
    }

    /// Copies the region to rank `rank`, from its element `at` on.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] with the peer's size, [`Error::NoSuchRank`]; [`Error::Memory`] for memory that the CPU does
    /// not reach, unless it goes through a NIC (use [`put_on`](Self::put_on)); [`Error::Late`], [`Error::Nic`] from a NIC;
    /// what ended the world.
    pub fn put(&self, rank: usize, at: u64, source: &Region<T>) -> Result<()> {
        let target = self.range("put", rank, at, source.len())?;
        let _span = self.span("put", rank, source.buffer().size());
        self.counters(rank).puts.add(source.buffer().size() as u64);
        match target {
            Range::Near(target) => {
                // SAFETY: a region that is put is not written meanwhile: the contract of `Region`.
                let source = unsafe { source.as_slice() }?;
                target.write(source).map_err(failed("put"))
            }
            Range::Far(far, at) => {
                let put = |call: &Call<'_>| far.put(call, at, &source.buffer().bytes(), None);
                self.call("put", rank, put)
            }
        }
    }

    /// Copies from rank `rank`, from its element `at` on, into the region.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn get(&self, rank: usize, at: u64, target: &Region<T>) -> Result<()> {
        let source = self.range("get", rank, at, target.len())?;
        let _span = self.span("get", rank, target.buffer().size());
        self.counters(rank).gets.add(target.buffer().size() as u64);
        match source {
            Range::Near(source) => {
                // SAFETY: what is got is not written meanwhile: the user's protocol, by signals.
                let source = unsafe { source.as_slice() }.map_err(failed("get"))?;
                target.write(source)
            }
            Range::Far(far, at) => {
                self.call("get", rank, |call| far.get(call, at, &target.buffer().bytes()))
            }
        }
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
        if let Range::Far(far, at) = self.range("put", rank, at, source.len())? {
            let bytes = source.buffer().size();
            let _span = self.span("put and signal", rank, bytes);
            self.counters(rank).puts.add(bytes as u64);
            self.counters(rank).signals.add(1);
            let signal = Some((signal * LINE * 8, value));
            let put = |call: &Call<'_>| far.put(call, at, &source.buffer().bytes(), signal);
            return self.call("put", rank, put);
        }
        self.put(rank, at, source)?;
        self.signal(rank, signal, value)
    }

    /// Raises signal number `signal` of rank `rank` to `value` (release).
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a signal that does not exist; as [`put`](Self::put).
    pub fn signal(&self, rank: usize, signal: usize, value: u64) -> Result<()> {
        let part = self.check_signal("signal", rank, signal)?;
        let _span = self.span("signal", rank, 8);
        self.counters(rank).signals.add(1);
        match &part.way {
            Way::Near(near) => near.signals[signal].store(value).map_err(failed("signal")),
            Way::Far(far) => {
                let at = signal * LINE * 8;
                self.call("signal", rank, |call| far.signal(call, at, value))
            }
        }
    }

    /// Waits until this rank's signal has reached `value` (acquire).
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Late`], what ended the world.
    pub fn wait_signal(&self, signal: usize, value: u64, deadline: Deadline) -> Result<()> {
        let word = self.own_signal(signal)?;
        let (mut backoff, since) = (Backoff::new(deadline), Instant::now());
        let _span = self.plane.trace.span("host", "wait for a signal").arg("signal", signal as u64);
        self.counters(self.rank).waits.add(1);
        tracing::trace!(operation = "wait for a signal", signal, value, "waiting");
        loop {
            let seen = word.load().unwrap_or(value);
            if reached64(seen, value) {
                return Ok(());
            }
            self.plane.progress();
            pause(&self.plane, &mut backoff, || {
                let rank = self.parts[self.rank].rank;
                let host = self.plane.peer(rank).host.clone();
                let tag = signal as u64;
                let name = Arc::new(Name { verb: "signal", tag, direction: "of", rank, host });
                Progress { what: What { name, expected: value, seen }, age: since.elapsed() }
            })?;
        }
    }

    /// The value of this rank's signal (acquire).
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn read_signal(&self, signal: usize) -> Result<u64> {
        Ok(self.own_signal(signal)?.load().unwrap_or_default())
    }

    /// [`put`](Self::put), enqueued on a stream: the region may be written by what comes after it on the stream.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Error::Memory`] if the stream cannot reach the memory.
    pub fn put_on(&self, stream: &Stream, rank: usize, at: u64, source: &Region<T>) -> Result<()> {
        let target = self.range("put", rank, at, source.len())?;
        let bytes = source.buffer().size();
        self.counters(rank).puts.add(bytes as u64);
        self.enqueue(stream, "put", rank, bytes, || match target {
            Range::Near(target) => stream.copy(&target, source.buffer()).map_err(failed("put")),
            Range::Far(far, at) => {
                let source = source.buffer().bytes();
                self.call("put", rank, |call| far.put_on(call, stream, at, &source))
            }
        })
    }

    /// [`get`](Self::get), enqueued on a stream.
    ///
    /// # Errors
    /// As [`put_on`](Self::put_on).
    pub fn get_on(&self, stream: &Stream, rank: usize, at: u64, target: &Region<T>) -> Result<()> {
        let source = self.range("get", rank, at, target.len())?;
        let bytes = target.buffer().size();
        self.counters(rank).gets.add(bytes as u64);
        self.enqueue(stream, "get", rank, bytes, || match source {
            Range::Near(source) => stream.copy(target.buffer(), &source).map_err(failed("get")),
            Range::Far(far, at) => {
                let target = target.buffer().bytes();
                self.call("get", rank, |call| far.get_on(call, stream, at, &target))
            }
        })
    }

    /// [`signal`](Self::signal), enqueued on a stream: who sees it sees everything the stream did before.
    ///
    /// # Errors
    /// As [`signal`](Self::signal); [`Error::Memory`] if the stream cannot reach the signal.
    pub fn signal_on(&self, stream: &Stream, rank: usize, signal: usize, value: u64) -> Result<()> {
        let part = self.check_signal("signal", rank, signal)?;
        self.counters(rank).signals.add(1);
        self.enqueue(stream, "signal", rank, 8, || match &part.way {
            Way::Near(near) => {
                stream.signal(&near.signals[signal], value).map_err(failed("signal"))
            }
            Way::Far(far) => {
                let at = signal * LINE * 8;
                self.call("signal", rank, |call| far.signal_on(call, stream, at, value))
            }
        })
    }

    /// Makes a stream wait until this rank's signal has reached `value`. Released if the world ends.
    ///
    /// # Errors
    /// As [`signal_on`](Self::signal_on).
    pub fn wait_signal_on(&self, stream: &Stream, signal: usize, value: u64) -> Result<()> {
        let word = self.own_signal(signal)?;
        self.counters(self.rank).waits.add(1);
        let wait = || stream.wait_geq64(word, value).map_err(failed("waiting for a signal"));
        self.enqueue(stream, "wait for a signal", self.rank, 8, wait)
    }

    /// Enqueues something, and sees to it that the timeline shows when it ran.
    fn enqueue(
        &self,
        stream: &Stream,
        what: &'static str,
        rank: usize,
        bytes: usize,
        enqueue: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let peer = self.parts[rank].rank as u64;
        tracing::trace!(operation = what, peer, bytes, stream = stream.name(), "enqueued");
        let label = || Label::new(what, &[("peer", peer), ("bytes", bytes as u64)]);
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
    fn counters(&self, rank: usize) -> &Counters {
        self.plane.counters_of(self.parts[rank].rank)
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

    /// Makes a call that goes through the NIC.
    fn call<R>(
        &self,
        verb: &str,
        rank: usize,
        call: impl FnOnce(&Call<'_>) -> Result<R>,
    ) -> Result<R> {
        let rank = self.part(rank)?.rank;
        let op = || {
            let host = &self.plane.peer(rank).host;
            format!("{verb} to the window of rank {rank} on {host}")
        };
        call(&Call { plane: &self.plane, timeout: self.timeout, op: &op })
    }

    /// `len` elements of rank `rank` from `at` on.
    fn range(&self, op: &'static str, rank: usize, at: u64, len: usize) -> Result<Range<'_, T>> {
        let part = self.reach(op, rank)?;
        let outside = || Error::OutOfRange {
            op: format!("{op} to the window of rank {}", part.rank),
            at,
            len: len as u64,
            size: part.len,
        };
        let end = at.checked_add(len as u64).filter(|&end| end <= part.len).ok_or_else(outside)?;
        // Both are at most the length of a buffer.
        let (at, end) = (at as usize, end as usize);
        match &part.way {
            Way::Near(near) => near.memory.slice(at..end).map(Range::Near).map_err(|_| outside()),
            Way::Far(far) => Ok(Range::Far(far, at * size_of::<T>())),
        }
    }

    /// The rank's share, if it has that signal.
    fn check_signal(&self, op: &'static str, rank: usize, signal: usize) -> Result<&Part<T>> {
        let part = self.reach(op, rank)?;
        if signal as u64 >= part.signals {
            return Err(no_signal(part.rank, signal, part.signals));
        }
        Ok(part)
    }

    fn own_signal(&self, signal: usize) -> Result<&Word64> {
        signal_in(&self.signals, self.parts[self.rank].rank, signal)
    }
}

impl<T: Pod> Near<T> {
    fn map(
        memory: Option<PeerHandle>,
        signals: Option<PeerHandle>,
        device: &Device,
    ) -> Result<Near<T>> {
        let map = |handle: &PeerHandle| PeerMemory::map(handle, device).map(|peer| peer.buffer);
        let memory = match &memory {
            Some(handle) => map(handle).and_then(|bytes| bytes.cast()),
            None => Buffer::new(&Device::Host, gdsync::Space::Host, 0),
        };
        let signals = match &signals {
            Some(handle) => map(handle).and_then(|bytes| words_of(&bytes.cast()?)),
            None => Ok(Vec::new()),
        };
        let failed = failed("mapping a window");
        memory.and_then(|memory| Ok(Near { memory, signals: signals? })).map_err(failed)
    }
}

fn words_of(buffer: &Buffer<u64>) -> gdsync::Result<Vec<Word64>> {
    (0..buffer.len() / LINE).map(|number| buffer.word(number * LINE)).collect()
}

fn signal_in(signals: &[Word64], rank: usize, signal: usize) -> Result<&Word64> {
    signals.get(signal).ok_or_else(|| no_signal(rank, signal, signals.len() as u64))
}

fn no_signal(rank: usize, signal: usize, size: u64) -> Error {
    Error::OutOfRange { op: format!("a signal of rank {rank}"), at: signal as u64, len: 1, size }
}

fn failed(op: &'static str) -> impl FnOnce(gdsync::Error) -> Error + Copy {
    move |source| Error::Memory { op: op.into(), source }
}

impl<T> Drop for Window<T> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        self.plane.close_window(number);
        for part in &self.parts {
            match &part.way {
                Way::Far(Far { neighbour, number, .. }) if !self.plane.ended() => {
                    // At the end of the world nobody needs to know.
                    let _ = self.plane.tell(*neighbour, &Notice::CloseWindow { number: *number });
                }
                _ => {}
            }
        }
    }
}

impl<T> fmt::Debug for Window<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "window of {} ranks with {} signals", self.parts.len(), self.signals.len())
    }
}
