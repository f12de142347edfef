//! Waits of the host for signals of its own rank, and reading them.

use std::sync::Arc;
use std::time::Instant;

use bytemuck::Pod;
use gdsync::{Deadline, Until};

use super::super::name::{Name, Progress, What};
use super::super::wait::Backoff;
use super::{Window, failed};
use crate::error::Result;
use crate::transport::Call;

impl<T: Pod> Window<T> {
    /// Waits until this rank's signal is what is awaited (acquire); a number by itself: until it has reached that.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange), [`Error::Late`](crate::Error::Late), [`Error::Memory`](crate::Error::Memory)
    /// for a value that no signal has, as one below 0; what ended the world.
    pub fn wait_signal(
        &self,
        signal: usize,
        until: impl Into<Until<u64>>,
        deadline: Deadline,
    ) -> Result<()> {
        self.wait_any_signal(&[(signal, until.into())], deadline).map(|_| ())
    }

    /// Waits until each of these signals of this rank has been what is awaited (acquire), all by the same deadline.
    ///
    /// # Errors
    /// As [`wait_signal`](Self::wait_signal), of the first that is missing.
    pub fn wait_all_signals(
        &self,
        signals: &[(usize, Until<u64>)],
        deadline: Deadline,
    ) -> Result<()> {
        signals.iter().try_for_each(|&(signal, until)| self.wait_signal(signal, until, deadline))
    }

    /// Waits until one of these signals of this rank is what is awaited (acquire), and says which of them. With none it waits for
    /// nothing, and the answer is 0.
    ///
    /// # Errors
    /// As [`wait_signal`](Self::wait_signal); [`Error::Late`](crate::Error::Late) names the first of them.
    pub fn wait_any_signal(
        &self,
        signals: &[(usize, Until<u64>)],
        deadline: Deadline,
    ) -> Result<usize> {
        let mut words = Vec::with_capacity(signals.len());
        for &(signal, until) in signals {
            until.check("the host").map_err(failed("a wait for a signal"))?;
            words.push((signal, until, self.own_signal(signal)?.1));
        }
        let Some(&(first, until, _)) = words.first() else { return Ok(0) };
        let part = &self.all.list[self.rank];
        let (mut backoff, since) = (Backoff::new(deadline), Instant::now());
        let _span = self.plane.trace.span("host", "wait for a signal").arg("signal", first as u64);
        self.counters(part).waits.add(1);
        tracing::trace!(operation = "wait for a signal", signal = first, %until, "waiting");
        loop {
            let mut seen_first = 0;
            for (i, &(signal, until, word)) in words.iter().enumerate() {
                let read = |call: &Call<'_>| self.own.read_signal(call, word, signal);
                let seen = self.call("reading a signal", part, read)?;
                if until.is_met_by(seen) {
                    return Ok(i);
                }
                if i == 0 {
                    seen_first = seen;
                }
            }
            self.plane.progress();
            self.plane.pause(&mut backoff, || {
                let host = self.plane.peer(part.rank).host.clone();
                let (tag, rank) = (first as u64, part.rank);
                let name = Arc::new(Name { verb: "signal", tag, direction: "of", rank, host });
                let what = What { name, expected: until.value(), seen: seen_first };
                Progress { what, age: since.elapsed(), why: String::new() }
            })?;
        }
    }

    /// The value of this rank's signal (acquire).
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange).
    pub fn read_signal(&self, signal: usize) -> Result<u64> {
        let (part, word) = self.own_signal(signal)?;
        self.call("reading a signal", part, |call| self.own.read_signal(call, word, signal))
    }
}
