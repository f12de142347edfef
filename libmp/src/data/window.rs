//! One-sided communication: a region of every rank of a communicator, opened to the others, with signals.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytemuck::Pod;
use gdsync::{Buffer, Deadline, Device, PeerHandle, PeerMemory, Stream, Word64, reached64};
use serde::{Deserialize, Serialize};

use super::counters::Counters;
use super::operation::{Name, Progress, What, pause};
use super::plane::Plane;
use super::region::Region;
use super::wait::Backoff;
use crate::communicator::Communicator;
use crate::error::{Error, Result};
use crate::trace::{Label, Span};

/// A signal has a cache line of its own.
const LINE: usize = 64 / 8;

/// A region of every rank, which the others write, read and signal: [`Communicator::window`].
///
/// # Order
/// Calls of the host have happened when they return. A rank that sees a signal's value (`wait_signal`) sees what the rank
/// that raised it did before: on the host in its thread, on a stream before it on the stream. Two puts without a signal
/// between them are in no order for anybody else.
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
}

/// A rank's share of a window as seen from here.
struct Part<T> {
    /// In the world.
    rank: usize,
    /// Elements.
    len: u64,
    /// An error on another host.
    near: Result<Near<T>>,
}

struct Near<T> {
    memory: Buffer<T>,
    signals: Vec<Word64>,
}

/// What each rank tells the others; the reason if it cannot take part.
#[derive(Serialize, Deserialize)]
enum Opening {
    Open { bytes: u64, memory: Option<PeerHandle>, signals: Option<PeerHandle> },
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
        let opening = export(region.is_empty(), region.buffer().export()).and_then(|memory| {
            let signals = export(signals == 0, words.buffer().export())?;
            Ok(Opening::Open { bytes: region.buffer().size() as u64, memory, signals })
        });
        let opening = opening.unwrap_or_else(|error| Opening::Failed(error.to_string()));
        let mismatch = |reason: String| Error::Mismatch { op: "opening a window".into(), reason };
        let blob = postcard::to_stdvec(&opening).map_err(|error| mismatch(error.to_string()))?;
        let mut parts = Vec::new();
        let mut failure = None;
        for (rank, blob) in communicator.all_gather(&blob)?.iter().enumerate() {
            let opened = postcard::from_bytes(blob)
                .map_err(|error| mismatch(format!("rank {rank}: {error}")))
                .and_then(|opening| match opening {
                    Opening::Failed(reason) => Err(mismatch(format!("rank {rank}: {reason}"))),
                    Opening::Open { bytes, memory, signals } => {
                        let rank = communicator.world_rank(rank)?;
                        let near = match plane.neighbour(rank) {
                            Ok(_) => Ok(Near::map(memory, signals, &device)?),
                            Err(far) => Err(far),
                        };
                        Ok(Part { rank, len: bytes / size_of::<T>().max(1) as u64, near })
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
        let signals = words_of(words.buffer()).map_err(failed("opening a window"))?;
        let (plane, rank) = (plane.clone(), communicator.rank());
        Ok(Window { plane, parts, rank, signals })
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
    /// [`Error::NoPath`] for a rank on another host, [`Error::NoSuchRank`]; what ended the world.
    pub fn memory_of(&self, rank: usize) -> Result<&Buffer<T>> {
        self.near("access", rank).map(|(_, near)| &near.memory)
    }

    /// Copies the region to rank `rank`, from its element `at` on.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] with the peer's size, [`Error::NoPath`], [`Error::NoSuchRank`]; [`Error::Memory`] for memory
    /// that the CPU does not reach (use [`put_on`](Self::put_on)); what ended the world.
    pub fn put(&self, rank: usize, at: u64, source: &Region<T>) -> Result<()> {
        let target = self.range("put", rank, at, source.len())?;
        let _span = self.span("put", rank, target.size());
        self.counters(rank).puts.add(target.size() as u64);
        // SAFETY: a region that is put is not written meanwhile: the contract of `Region`.
        let source = unsafe { source.as_slice() }?;
        target.write(source).map_err(failed("put"))
    }

    /// Copies from rank `rank`, from its element `at` on, into the region.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn get(&self, rank: usize, at: u64, target: &Region<T>) -> Result<()> {
        let source = self.range("get", rank, at, target.len())?;
        let _span = self.span("get", rank, source.size());
        self.counters(rank).gets.add(source.size() as u64);
        // SAFETY: what is got is not written meanwhile: the user's protocol, by signals.
        let source = unsafe { source.as_slice() }.map_err(failed("get"))?;
        target.write(source)
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
        self.signal_of("put", rank, signal)?;
        self.put(rank, at, source)?;
        self.signal(rank, signal, value)
    }

    /// Raises signal number `signal` of rank `rank` to `value` (release).
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a signal that does not exist; as [`put`](Self::put).
    pub fn signal(&self, rank: usize, signal: usize, value: u64) -> Result<()> {
        let word = self.signal_of("signal", rank, signal)?;
        let _span = self.span("signal", rank, 8);
        self.counters(rank).signals.add(1);
        word.store(value).map_err(failed("signal"))
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
        self.counters(rank).puts.add(target.size() as u64);
        let copy = || stream.copy(&target, source.buffer());
        self.enqueue(stream, "put", rank, target.size(), copy).map_err(failed("put"))
    }

    /// [`get`](Self::get), enqueued on a stream.
    ///
    /// # Errors
    /// As [`put_on`](Self::put_on).
    pub fn get_on(&self, stream: &Stream, rank: usize, at: u64, target: &Region<T>) -> Result<()> {
        let source = self.range("get", rank, at, target.len())?;
        self.counters(rank).gets.add(source.size() as u64);
        let copy = || stream.copy(target.buffer(), &source);
        self.enqueue(stream, "get", rank, source.size(), copy).map_err(failed("get"))
    }

    /// [`signal`](Self::signal), enqueued on a stream: who sees it sees everything the stream did before.
    ///
    /// # Errors
    /// As [`signal`](Self::signal); [`Error::Memory`] if the stream cannot reach the signal.
    pub fn signal_on(&self, stream: &Stream, rank: usize, signal: usize, value: u64) -> Result<()> {
        let word = self.signal_of("signal", rank, signal)?;
        self.counters(rank).signals.add(1);
        let raise = || stream.signal(word, value);
        self.enqueue(stream, "signal", rank, 8, raise).map_err(failed("signal"))
    }

    /// Makes a stream wait until this rank's signal has reached `value`. Released if the world ends.
    ///
    /// # Errors
    /// As [`signal_on`](Self::signal_on).
    pub fn wait_signal_on(&self, stream: &Stream, signal: usize, value: u64) -> Result<()> {
        let word = self.own_signal(signal)?;
        self.counters(self.rank).waits.add(1);
        let wait = || stream.wait_geq64(word, value);
        let waiting = self.enqueue(stream, "wait for a signal", self.rank, 8, wait);
        waiting.map_err(failed("waiting for a signal"))
    }

    /// Enqueues something, and sees to it that the timeline shows when it ran.
    fn enqueue(
        &self,
        stream: &Stream,
        what: &'static str,
        rank: usize,
        bytes: usize,
        enqueue: impl FnOnce() -> gdsync::Result<()>,
    ) -> gdsync::Result<()> {
        let peer = self.parts[rank].rank as u64;
        let label = || Label::new(what, &[("peer", peer), ("bytes", bytes as u64)]);
        self.plane.probes.around(&self.plane.trace, stream, label, enqueue)
    }

    /// Something that this thread does with a rank of the window, in the timeline.
    fn span(&self, what: &'static str, rank: usize, bytes: usize) -> Span<'_> {
        let peer = self.parts[rank].rank as u64;
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

    fn near(&self, op: &str, rank: usize) -> Result<(&Part<T>, &Near<T>)> {
        self.plane.check_after(std::time::Duration::ZERO, || format!("{op} to rank {rank}"))?;
        let part = self.part(rank)?;
        part.near.as_ref().map(|near| (part, near)).map_err(Clone::clone)
    }

    /// `len` elements of rank `rank` from `at` on.
    fn range(&self, op: &'static str, rank: usize, at: u64, len: usize) -> Result<Buffer<T>> {
        let (part, near) = self.near(op, rank)?;
        let outside = || Error::OutOfRange {
            op: format!("{op} to the window of rank {}", part.rank),
            at,
            len: len as u64,
            size: part.len,
        };
        let end = at.checked_add(len as u64).filter(|&end| end <= part.len).ok_or_else(outside)?;
        // Both are at most the length of a buffer.
        near.memory.slice(at as usize..end as usize).map_err(|_| outside())
    }

    fn signal_of(&self, op: &'static str, rank: usize, signal: usize) -> Result<&Word64> {
        let (part, near) = self.near(op, rank)?;
        signal_in(&near.signals, part.rank, signal)
    }

    fn own_signal(&self, signal: usize) -> Result<&Word64> {
        signal_in(&self.signals, self.parts[self.rank].rank, signal)
    }
}

impl Window<u64> {
    /// Adds to element `at` of rank `rank`, as one step for everybody; gives the value before.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn fetch_add(&self, rank: usize, at: u64, value: u64) -> Result<u64> {
        self.atomic(rank, at, |word| word.fetch_add(value, Ordering::AcqRel))
    }

    /// Replaces element `at` of rank `rank`, as one step for everybody; gives the value before.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn swap(&self, rank: usize, at: u64, value: u64) -> Result<u64> {
        self.atomic(rank, at, |word| word.swap(value, Ordering::AcqRel))
    }

    /// Replaces element `at` of rank `rank` by `value` if it is `expected`, as one step for everybody; gives the value
    /// before.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn compare_swap(&self, rank: usize, at: u64, expected: u64, value: u64) -> Result<u64> {
        self.atomic(rank, at, |word| {
            let swapped =
                word.compare_exchange(expected, value, Ordering::AcqRel, Ordering::Acquire);
            swapped.unwrap_or_else(|seen| seen)
        })
    }

    fn atomic(&self, rank: usize, at: u64, step: impl FnOnce(&AtomicU64) -> u64) -> Result<u64> {
        let word = self.range("atomic", rank, at, 1)?.word(0).map_err(failed("atomic"))?;
        let unreachable = || {
            failed("atomic")(gdsync::Error::NotReachable {
                what: "an atomic operation of the host",
                memory: format!("{word:?}"),
                place: "the CPU".into(),
                hint: "put the window into host memory",
            })
        };
        self.counters(rank).atomics.add(1);
        word.atomic().map(step).ok_or_else(unreachable)
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
    signals.get(signal).ok_or_else(|| Error::OutOfRange {
        op: format!("a signal of rank {rank}"),
        at: signal as u64,
        len: 1,
        size: signals.len() as u64,
    })
}

fn failed(op: &'static str) -> impl FnOnce(gdsync::Error) -> Error + Copy {
    move |source| Error::Memory { op: op.into(), source }
}

impl<T> fmt::Debug for Window<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "window of {} ranks with {} signals", self.parts.len(), self.signals.len())
    }
}
