//! Puts, gets, signals and waits for signals that are enqueued on a stream. Those that are prepared once are
//! [`prepared`](super::prepared), atomic operations [`atomic`](super::atomic).

use std::time::Duration;

use bytemuck::Pod;
use gdsync::{Stream, Until};

use super::{Local, Part, Way, Window, failed};
use crate::error::{Error, Result};
use crate::trace::Label;
use crate::transport::{Call, Signal, SignalAction};

impl<T: Pod> Window<T> {
    /// [`put`](Self::put), enqueued on a stream: the region may be written by what comes after it on the stream.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Error::Memory`] if the stream cannot reach the memory.
    pub fn put_on<'a>(
        &self,
        stream: &Stream,
        rank: usize,
        at: u64,
        source: impl Into<Local<'a, T>>,
    ) -> Result<()> {
        let (part, at, local) = self.range_of(Way::Put, rank, at, &source.into())?;
        let bytes = local.rows.elements();
        self.counters(part).puts.add(bytes as u64);
        self.enqueue(stream, "put", part, bytes, |call| {
            part.connection.put_on(call, stream, at, &local)
        })
    }

    /// [`get`](Self::get), enqueued on a stream.
    ///
    /// # Errors
    /// As [`put_on`](Self::put_on).
    pub fn get_on<'a>(
        &self,
        stream: &Stream,
        rank: usize,
        at: u64,
        target: impl Into<Local<'a, T>>,
    ) -> Result<()> {
        let (part, at, local) = self.range_of(Way::Get, rank, at, &target.into())?;
        let bytes = local.rows.elements();
        self.counters(part).gets.add(bytes as u64);
        self.enqueue(stream, "get", part, bytes, |call| {
            part.connection.get_on(call, stream, at, &local)
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
            let by_nic =
                stream.device().as_cuda().is_some() && part.connection.has_atomics_by_nic();
            match action {
                SignalAction::Add(value) if by_nic => {
                    self.add_by_kernel(call, stream, rank, signal.number, value)
                }
                _ => part.connection.signal_on(call, stream, signal),
            }
        })
    }

    /// Makes a stream wait until this rank's signal is what is awaited, as [`wait_signal`](Self::wait_signal). Released if the world
    /// ends.
    ///
    /// # Errors
    /// As [`signal_on`](Self::signal_on).
    pub fn wait_signal_on(
        &self,
        stream: &Stream,
        signal: usize,
        until: impl Into<Until<u64>>,
    ) -> Result<()> {
        let (part, word) = self.own_signal(signal)?;
        let until = until.into();
        self.counters(part).waits.add(1);
        let wait = || stream.wait64(word, until).map_err(failed("waiting for a signal"));
        self.enqueue(stream, "wait for a signal", part, 8, |_| wait())
    }

    /// Enqueues something, and sees to it that the timeline shows when it ran.
    pub(super) fn enqueue(
        &self,
        stream: &Stream,
        what: &'static str,
        part: &Part,
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
}
