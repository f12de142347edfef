//! What a stream does with single words: memory operations, which write and wait, and signals, which on a GPU are kernels of one
//! thread.

use std::time::Duration;

use super::{Inner, Stream};
use crate::error::{Error, Result};
use crate::host::executor::HostOp;
use crate::memop::{MemOp, Until};
use crate::memory::word::{Word32, Word64};
use crate::watchdog::target::Target;

impl Stream {
    /// Enqueues memory operations in order, in one driver call for up to [`MAX_BATCH`](crate::memop::MAX_BATCH) of
    /// them. A CUDA stream that already holds many operations behind a wait may make the call block until it gets on;
    /// a host stream does so at 4096.
    ///
    /// # Errors
    /// If a word cannot be reached from the stream, the watchdog was aborted, or the driver refuses;
    /// [`Error::Unsupported`] for a wait for one of no bits.
    pub fn batch(&self, ops: &[MemOp<'_>]) -> Result<()> {
        ops.iter().try_for_each(MemOp::check)?;
        match &self.inner {
            Inner::Host(executor) => {
                for op in ops {
                    op.device_address()?;
                }
                executor.enqueue(ops.iter().map(host_op), |last| {
                    let first = last - ops.len() as u64 + 1;
                    let waits = ops
                        .iter()
                        .zip(first..)
                        .filter_map(|(op, number)| Some((target(op)?, number)));
                    for (target, number) in waits {
                        self.watch_wait(number, target)?;
                    }
                    Ok(())
                })
            }
            Inner::Cuda(stream) => {
                if stream.is_capturing() {
                    if stream.is_captured_by_others() && ops.iter().any(MemOp::is_wait) {
                        return Err(Error::Unsupported {
                            what: "a wait by a memory operation in a capture that other code has begun",
                            place: self.name.clone(),
                            why: "nobody could end it: wait for a signal instead".into(),
                        });
                    }
                    ops.iter().filter_map(target).for_each(|target| stream.capture_target(target));
                    return stream.batch(ops, |_, _| Ok(()));
                }
                stream.batch(ops, |number, op| {
                    target(op).map_or(Ok(()), |target| self.watch_wait(number, target))
                })
            }
        }
    }

    /// Enqueues one 32-bit store, visible at system scope after all earlier work of the stream.
    ///
    /// # Errors
    /// As [`Stream::batch`].
    pub fn write32(&self, word: &Word32, value: u32) -> Result<()> {
        self.batch(&[MemOp::Write32(word, value)])
    }

    /// Enqueues one 64-bit store, visible at system scope after all earlier work of the stream.
    ///
    /// # Errors
    /// As [`Stream::batch`].
    pub fn write64(&self, word: &Word64, value: u64) -> Result<()> {
        self.batch(&[MemOp::Write64(word, value)])
    }

    /// Blocks the stream until the 32-bit word has reached `value` (cyclic order).
    ///
    /// # Errors
    /// As [`Stream::batch`].
    pub fn wait_geq32(&self, word: &Word32, value: u32) -> Result<()> {
        self.batch(&[MemOp::Wait32(word, Until::Geq(value))])
    }

    /// Blocks the stream until the 64-bit word has reached `value` (cyclic order).
    ///
    /// # Errors
    /// As [`Stream::batch`].
    pub fn wait_geq64(&self, word: &Word64, value: u64) -> Result<()> {
        self.batch(&[MemOp::Wait64(word, Until::Geq(value))])
    }

    /// Blocks the stream until the 32-bit word is what is awaited. A watchdog that ends the wait makes it so.
    ///
    /// # Errors
    /// As [`Stream::batch`].
    pub fn wait32(&self, word: &Word32, until: Until<u32>) -> Result<()> {
        self.batch(&[MemOp::Wait32(word, until)])
    }

    /// Blocks the stream until the 64-bit word is what is awaited. A watchdog that ends the wait makes it so, or, where no memory
    /// operation compares like that, and in captures that other code has begun, ends the kernel that waits.
    ///
    /// # Errors
    /// As [`Stream::batch`].
    pub fn wait64(&self, word: &Word64, until: Until<u64>) -> Result<()> {
        match (&self.inner, until) {
            (Inner::Host(_), _) => self.batch(&[MemOp::Wait64(word, until)]),
            (Inner::Cuda(stream), Until::Geq(_) | Until::Eq(_) | Until::And(_))
                if !stream.is_captured_by_others() =>
            {
                self.batch(&[MemOp::Wait64(word, until)])
            }
            (Inner::Cuda(_), _) => self.wait_signal(word, until, Duration::MAX),
        }
    }

    /// Orders all memory operations before it before all after it, at system scope.
    ///
    /// # Errors
    /// As [`Stream::batch`].
    pub fn barrier(&self) -> Result<()> {
        self.batch(&[MemOp::Barrier])
    }

    /// Raises a signal to `value` (release at system scope): on a GPU by a kernel of one thread, which over peer
    /// memory is faster than a stream memory operation.
    ///
    /// # Errors
    /// As [`Stream::batch`].
    pub fn signal(&self, word: &Word64, value: u64) -> Result<()> {
        match &self.inner {
            Inner::Host(_) => self.write64(word, value),
            Inner::Cuda(stream) => stream.raise("mp_signal_store", word, value),
        }
    }

    /// Adds to a signal, as others may at the same time (release at system scope): on a GPU by a kernel of one thread, over a link
    /// with native atomics.
    ///
    /// # Errors
    /// [`Error::NotReachable`] for a word that the device does not reach; as [`Stream::batch`].
    pub fn signal_add(&self, word: &Word64, value: u64) -> Result<()> {
        match &self.inner {
            Inner::Host(_) => {
                word.read()?;
                let word = word.clone();
                self.call(move || {
                    // It can be reached.
                    let _ = word.add(value);
                })
            }
            Inner::Cuda(stream) => stream.raise("mp_signal_add", word, value),
        }
    }

    /// Blocks the stream until the signal is what is awaited (acquire at system scope) – a number by itself: until it has reached
    /// that –, the watchdog is aborted, or `timeout` has passed; on a GPU by a kernel of one thread. A wait that gave up lets the
    /// stream run on, and [`Stream::synchronize`] reports it from then on.
    ///
    /// # Errors
    /// As [`Stream::batch`].
    pub fn wait_signal(
        &self,
        word: &Word64,
        until: impl Into<Until<u64>>,
        timeout: Duration,
    ) -> Result<()> {
        let until = until.into();
        MemOp::Wait64(word, until).check()?;
        let target = Target::Bounded(word.clone(), until);
        match &self.inner {
            Inner::Host(executor) => {
                word.device_address()?;
                let op = HostOp::Bounded(word.clone(), until, timeout);
                executor.enqueue(std::iter::once(op), |number| self.watch_wait(number, target))
            }
            Inner::Cuda(stream) => {
                let abort = self.abort()?;
                if stream.is_capturing() {
                    stream.capture_target(target);
                    return stream.wait_signal(word, until, timeout, abort, |_| Ok(()));
                }
                stream.wait_signal(word, until, timeout, abort, |number| {
                    self.watch_wait(number, target)
                })
            }
        }
    }
}

fn target(op: &MemOp<'_>) -> Option<Target> {
    match *op {
        MemOp::Wait32(word, until) => Some(Target::Word32(word.clone(), until)),
        MemOp::Wait64(word, until) => Some(Target::Word64(word.clone(), until)),
        MemOp::Write32(..) | MemOp::Write64(..) | MemOp::Barrier => None,
    }
}

fn host_op(op: &MemOp<'_>) -> HostOp {
    match *op {
        MemOp::Write32(word, value) => HostOp::Write32(word.clone(), value),
        MemOp::Write64(word, value) => HostOp::Write64(word.clone(), value),
        MemOp::Wait32(word, until) => HostOp::Wait32(word.clone(), until),
        MemOp::Wait64(word, until) => HostOp::Wait64(word.clone(), until),
        MemOp::Barrier => HostOp::Barrier,
    }
}
