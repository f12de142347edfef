//! A rank's share of a window that is reached through the NIC.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use gdsync::nic::{Access, MemoryRegion};
use gdsync::wqe::RemoteAddress;
use gdsync::{Buffer, Stream};
use serde::{Deserialize, Serialize};

use super::link::Post;
use super::{Place, refused};
use crate::data::plane::Plane;
use crate::error::{Error, Result};

/// Puts of host memory up to so many bytes travel inside the queue's entry, so that nothing has to be registered.
const INLINE: usize = 512;

/// What a rank tells the others of its share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FarOpening {
    /// The owner's number of the window.
    number: u64,
    memory: Option<Place>,
    signals: Option<Place>,
}

impl FarOpening {
    /// Registers a share, which `users` ranks will use; none if this rank has no NIC.
    pub fn new(
        plane: &Plane,
        memory: &Buffer<u8>,
        signals: &Buffer<u8>,
        users: usize,
    ) -> Result<Option<FarOpening>> {
        if plane.nic.is_none() {
            return Ok(None);
        }
        let op = || "opening a window".to_owned();
        let memory = plane.register(memory, plane.access_of_peers(memory), op)?;
        let signals = plane.register(signals, Access::ALL, op)?;
        let [memory_place, signals_place] =
            [&memory, &signals].map(|region| region.as_ref().map(Place::of));
        let number = plane.keep(memory.into_iter().chain(signals).collect(), users);
        Ok(Some(FarOpening { number, memory: memory_place, signals: signals_place }))
    }

    pub fn number(&self) -> u64 {
        self.number
    }
}

/// Such a share, from the side that accesses it.
pub(crate) struct Far {
    pub neighbour: usize,
    /// The owner's number of the window.
    pub number: u64,
    memory: Option<Place>,
    signals: Option<Place>,
}

/// A call that accesses it.
pub(crate) struct Call<'a> {
    pub plane: &'a Plane,
    pub timeout: Duration,
    /// What it is called in errors.
    pub op: &'a dyn Fn() -> String,
}

/// An atomic operation.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Atomic {
    FetchAdd(u64),
    CompareSwap { compare: u64, swap: u64 },
}

impl Far {
    pub fn new(neighbour: usize, opening: &FarOpening) -> Far {
        let &FarOpening { number, memory, signals } = opening;
        Far { neighbour, number, memory, signals }
    }

    /// Byte `at` of the memory. (No address where there are no bytes; nothing is asked of it then.)
    fn byte(&self, at: usize) -> RemoteAddress {
        self.memory.map_or(RemoteAddress { address: 0, rkey: 0 }, |place| place.after(at))
    }

    /// The signal at byte `at` of the signals.
    fn signal_at(&self, at: usize) -> RemoteAddress {
        self.signals.map_or(RemoteAddress { address: 0, rkey: 0 }, |place| place.after(at))
    }

    /// Writes the source from byte `at` on, then the signal; returns when both are there.
    pub fn put(
        &self,
        call: &Call<'_>,
        at: usize,
        source: &Buffer<u8>,
        signal: Option<(usize, u64)>,
    ) -> Result<()> {
        let len = source.len() as u64;
        let small = source.len() <= INLINE && source.host_address().is_some();
        let registered = match small {
            true => None,
            false => call.plane.register(source, Access::LOCAL_READ, call.op)?,
        };
        let to = self.byte(at);
        let write = match &registered {
            Some(from) => Some(Post::Write { from, len, to }),
            None if source.is_empty() => None,
            // SAFETY: a region that is put is not written meanwhile: the contract of `Region`.
            None => match unsafe { source.as_slice() } {
                Ok(bytes) => Some(Post::Inline { bytes, to }),
                Err(source) => return Err(Error::Memory { op: (call.op)(), source }),
            },
        };
        let value = signal.unwrap_or_default().1.to_le_bytes();
        let raise = signal.map(|(at, _)| Post::Inline { bytes: &value, to: self.signal_at(at) });
        let carry_out =
            |posts: &[Post<'_>]| call.plane.carry_out(self.neighbour, posts, call.timeout, call.op);
        match (write, raise) {
            (Some(write), Some(raise)) => carry_out(&[write, raise]),
            (Some(one), None) | (None, Some(one)) => carry_out(&[one]),
            (None, None) => Ok(()),
        }
    }

    /// Raises the signal at byte `at`.
    pub fn signal(&self, call: &Call<'_>, at: usize, value: u64) -> Result<()> {
        let raise = Post::Inline { bytes: &value.to_le_bytes(), to: self.signal_at(at) };
        call.plane.carry_out(self.neighbour, &[raise], call.timeout, call.op)
    }

    /// Reads from byte `at` on.
    pub fn get(&self, call: &Call<'_>, at: usize, target: &Buffer<u8>) -> Result<()> {
        let into = call.plane.register(target, Access::LOCAL_WRITE, call.op)?;
        let Some(into) = &into else { return Ok(()) };
        let read = Post::Read { from: self.byte(at), into, at: 0, len: target.len() as u64 };
        call.plane.carry_out(self.neighbour, &[read], call.timeout, call.op)
    }

    /// Does an atomic operation on the word at byte `at`; gives its value before.
    pub fn atomic(&self, call: &Call<'_>, at: usize, atomic: Atomic) -> Result<u64> {
        let Some(link) = call.plane.link(self.neighbour) else { return Ok(0) };
        let word = self.byte(at);
        let post = match atomic {
            Atomic::FetchAdd(add) => Post::FetchAdd { word, add },
            Atomic::CompareSwap { compare, swap } => Post::CompareSwap { word, compare, swap },
        };
        let _result = link.atomics.lock().unwrap_or_else(PoisonError::into_inner);
        call.plane.carry_out(self.neighbour, &[post], call.timeout, call.op)?;
        Ok(link.result())
    }

    /// As [`put`](Self::put), when the stream gets there; the stream goes on when the bytes are there.
    pub fn put_on(
        &self,
        call: &Call<'_>,
        stream: &Stream,
        at: usize,
        source: &Buffer<u8>,
    ) -> Result<()> {
        let from = call.plane.register(source, Access::LOCAL_READ, call.op)?.map(Arc::new);
        let Some(from) = from else { return Ok(()) };
        let len = source.len() as u64;
        let write = Post::Write { from: &from, len, to: self.byte(at) };
        self.enqueue(call, stream, &[write, Post::Flush], Some(from.clone()))
    }

    /// As [`get`](Self::get), when the stream gets there; the stream goes on when the bytes are here.
    pub fn get_on(
        &self,
        call: &Call<'_>,
        stream: &Stream,
        at: usize,
        target: &Buffer<u8>,
    ) -> Result<()> {
        let into = call.plane.register(target, Access::LOCAL_WRITE, call.op)?.map(Arc::new);
        let Some(into) = into else { return Ok(()) };
        let len = target.len() as u64;
        let read = Post::Read { from: self.byte(at), into: &into, at: 0, len };
        self.enqueue(call, stream, &[read, Post::Flush], Some(into.clone()))
    }

    /// Raises the signal at byte `at` when the stream gets there.
    pub fn signal_on(&self, call: &Call<'_>, stream: &Stream, at: usize, value: u64) -> Result<()> {
        let bytes = value.to_le_bytes();
        let raise = Post::Inline { bytes: &bytes, to: self.signal_at(at) };
        self.enqueue(call, stream, &[raise], None)
    }

    /// Posts to the stream's link. If memory is used, the last post is a flush, and the stream waits for it.
    fn enqueue(
        &self,
        call: &Call<'_>,
        stream: &Stream,
        posts: &[Post<'_>],
        memory: Option<Arc<MemoryRegion>>,
    ) -> Result<()> {
        let Call { plane, timeout, op } = *call;
        let link = plane.stream_link(self.neighbour, stream, timeout, op)?;
        let mut turn = plane.turn_with_room(self.neighbour, &link, posts, timeout, op)?;
        let posted = turn.post(posts, Some(stream)).map_err(refused(op))?;
        let Some(memory) = memory else { return Ok(()) };
        turn.hold(memory);
        let waiting = stream.wait_geq64(link.done(), posted.flushes);
        waiting.map_err(|source| Error::Memory { op: op(), source })
    }
}
