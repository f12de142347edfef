//! Streams whose waits end when the world does, and what has failed on them.

use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use gdsync::{Buffer, Deadline, Device, Space, Stream, Watchdog, Word64};

use super::{EAGER, HELP, Plane, lock};
use crate::control::Waited;
use crate::data::name::Name;
use crate::data::report::{Report, Watch};
use crate::error::{Error, Result};

/// What ends the waits of the world's streams when it fails, and what has failed on them.
#[derive(Default)]
pub(super) struct Streams {
    /// For each device (`None`: the host), because its abort word must be one that the device reaches.
    watchdogs: Mutex<Vec<(Option<u32>, Watchdog, Abort)>>,
    /// Failures of operations on streams and in kernels.
    watch: Watch,
    /// Idle streams of GPUs, for what the host starts there.
    spare: Mutex<Vec<Stream>>,
}

/// How long what a kernel has reported may be unknown to a thread that waits for the end.
const LOOK: Duration = Duration::from_millis(20);

/// How long a lent stream waits for room. It has a handful of operations at most.
const ROOM: Duration = Duration::from_secs(60);

/// The word that ends waits of a device when the world does.
#[derive(Clone)]
pub(crate) struct Abort {
    /// For the host.
    pub word: Word64,
    /// For the device's kernels.
    pub address: u64,
    /// A word in the memory of a GPU by which its kernels tell those behind them that a wait was ended: what they would send was
    /// made of what never came. None for the host.
    pub seen: Option<Buffer<u64>>,
}

impl Plane {
    /// A stream whose waits end when the world does. A call that finds it full waits for room at most `timeout`, and helps
    /// meanwhile: other ranks may need an answer before they send what the stream waits for.
    pub fn stream(&self, device: &Device, timeout: Duration) -> Result<Stream> {
        let (watchdog, _) = self.watchdog(device)?;
        let failed = |source| Error::Memory { op: format!("a stream on {device}"), source };
        let stream = device.watched_stream(&watchdog).map_err(failed)?;
        stream.when_full(timeout, self.helper());
        Ok(stream)
    }

    /// A stream of a GPU for what the host starts there, which nobody else uses until it is given back. One for each start that
    /// is under way, not one for each operation: all streams of a GPU share a few hardware channels.
    pub fn lend(&self, device: &Device) -> Result<Stream> {
        let ordinal = device.ordinal();
        let mut spare = lock(&self.streams.spare);
        match spare.iter().rposition(|stream| stream.device().ordinal() == ordinal) {
            Some(at) => Ok(spare.swap_remove(at)),
            None => {
                drop(spare);
                self.stream(device, ROOM)
            }
        }
    }

    /// What was done on it has ended, or is about to: nothing on it waits for others. A stream that may wait is dropped instead.
    pub fn give_back(&self, stream: Stream) {
        lock(&self.streams.spare).push(stream);
    }

    fn helper(&self) -> impl Fn() + Send + Sync + use<> {
        let plane = self.this.get().cloned();
        move || {
            if let Some(plane) = plane.as_ref().and_then(Weak::upgrade) {
                plane.progress();
            }
        }
    }

    /// A stream of the user's, whose waits end when the world does.
    ///
    /// # Safety
    /// As [`Stream::adopt`].
    pub unsafe fn adopt_stream(
        &self,
        device: &Device,
        stream: *mut std::ffi::c_void,
        timeout: Duration,
    ) -> Result<Stream> {
        let failed = |source| Error::Memory { op: format!("a stream on {device}"), source };
        let (watchdog, _) = self.watchdog(device)?;
        // SAFETY: the caller's promise.
        let stream = unsafe { Stream::adopt(device, stream.cast(), Some(&watchdog)) };
        let stream = stream.map_err(failed)?;
        stream.when_full(timeout, self.helper());
        Ok(stream)
    }

    fn watchdog(&self, device: &Device) -> Result<(Watchdog, Abort)> {
        let mut watchdogs = lock(&self.streams.watchdogs);
        let ordinal = device.ordinal();
        if let Some((_, watchdog, abort)) = watchdogs.iter().find(|it| it.0 == ordinal) {
            return Ok((watchdog.clone(), abort.clone()));
        }
        let failed = |source| Error::Memory { op: format!("a watchdog on {device}"), source };
        let watchdog = Watchdog::new(device).map_err(failed)?;
        let word = watchdog.abort_word().clone();
        let seen = ordinal.is_some().then(|| self.pieces.cut_for(device, size_of::<u64>())?.cast());
        let seen = seen.transpose().map_err(failed)?;
        let abort = Abort { address: watchdog.bound(device).map_err(failed)?, word, seen };
        let released = watchdog.clone();
        self.control.on_failure(move |cause| released.abort(cause));
        watchdogs.push((ordinal, watchdog.clone(), abort.clone()));
        Ok((watchdog, abort))
    }

    /// The word that is not 0 any more when the world has failed, for a device.
    pub fn abort_of(&self, device: &Device) -> Result<Abort> {
        self.watchdog(device).map(|(_, abort)| abort)
    }

    /// A report for an operation, which [`synchronize`](Self::synchronize) looks at.
    pub fn report(&self, device: &Device, name: Arc<Name>) -> Result<Arc<Report>> {
        let failed = |source| Error::Memory { op: name.to_string(), source };
        let slot = self.pieces.cut(device, Space::Pinned, 8 * Report::WORDS);
        let slot = slot.and_then(|slot| slot.cast()).map_err(failed)?;
        let report = Arc::new(Report::new(name.clone(), slot));
        self.streams.watch.add(&report);
        Ok(report)
    }

    /// Waits for a stream, and helps meanwhile.
    pub fn synchronize(&self, stream: &Stream, deadline: Deadline) -> Result<()> {
        let op = || format!("synchronising {}", stream.name());
        let _span = self.trace.span("wait", "synchronize");
        let (mut moved, mut seen) = (Instant::now(), self.helpers.moved());
        loop {
            let helping = self.progress();
            self.helpers.help_now();
            if self.helpers.moved() != seen {
                (moved, seen) = (Instant::now(), self.helpers.moved());
            }
            // A message that the stream waits for takes several looks: while messages go on, and at first, there is no pause between them.
            let (quiet, helpers) = (moved.elapsed(), !self.helpers.is_empty());
            if helpers
                && quiet < EAGER
                && matches!(stream.is_idle(), Ok(false))
                && !deadline.expired()
            {
                std::thread::yield_now();
                continue;
            }
            let slice = match helping {
                true if helpers => (quiet / 4).clamp(EAGER / 4, HELP).min(deadline.remaining()),
                true => HELP.min(deadline.remaining()),
                false => deadline.remaining(),
            };
            let result = stream.synchronize(Deadline::after(slice));
            self.probes.resolve(&self.trace);
            if matches!(result, Err(gdsync::Error::Timeout { .. })) && !deadline.expired() {
                continue;
            }
            self.check_after(deadline.elapsed(), op)?;
            if let Some((failure, of_path)) = self.streams.watch.failure() {
                self.await_reason(of_path, || self.check_after(deadline.elapsed(), op))?;
                return Err(failure);
            }
            return result.map_err(|source| Error::Memory { op: op(), source });
        }
    }

    /// Of a failed path the link knows the reason, and the world ends with it: waits until `check` says so.
    fn await_reason(&self, of_path: bool, check: impl Fn() -> Result<()>) -> Result<()> {
        let since = Instant::now();
        while of_path && since.elapsed() < self.verdict {
            self.progress();
            check()?;
            std::thread::sleep(HELP);
        }
        Ok(())
    }

    /// Waits until the world is over, or something has failed on a stream or in a kernel: what, if it was not finished here.
    pub fn wait_for_end(&self) -> Option<Error> {
        let since = Instant::now();
        loop {
            match self.control.wait_for_end(LOOK) {
                Waited::Ready(never) => match never {},
                Waited::Finished => return None,
                Waited::Ended(cause) => return Some(cause.during("its run", since.elapsed())),
                Waited::Expired => {}
            }
            let Some((failure, of_path)) = self.streams.watch.failure() else { continue };
            let ended = || if self.ended() { Err(failure.clone()) } else { Ok(()) };
            // A wait that the end of the world has ended is no reason.
            if self.await_reason(of_path, ended).is_ok() && !self.ended() {
                return Some(failure);
            }
        }
    }
}
