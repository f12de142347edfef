//! Makes sure that no stream stays blocked for ever: the watchdog knows every wait enqueued on the streams it
//! watches, what it waits for and since when. When it is aborted it sets its abort word first, then writes the
//! awaited values, until the streams have drained. What a released stream computed means nothing, and a host stream does
//! not write it, nor one that was dropped before what it waits for; a GPU goes on with what has been enqueued. Every later call
//! on it reports the abort.

mod outstanding;
pub(crate) mod target;
mod vigil;

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Instant;

use mp_kernels::AbortRelay;

use crate::cuda::device::lock;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::word::Word64;
use crate::memory::{Buffer, Space};

pub use outstanding::MAX_PENDING_WAITS;
use outstanding::{Outstanding, Refused};
pub use target::PendingWait;
use target::Target;
use vigil::{Vigil, Watched};

/// Releases the waits of its streams on abort. Clones are the same watchdog; the last one to go ends its thread.
///
/// ```
/// use std::time::Duration;
///
/// use gdsync::{Deadline, Device, Watchdog};
///
/// let device = Device::Host; // or Device::best()
/// let watchdog = Watchdog::new(&device)?;
/// let stream = device.watched_stream(&watchdog)?;
/// stream.wait_geq64(&device.alloc_pinned::<u64>(1)?.word(0)?, 1)?; // which nobody will write
/// watchdog.abort("rank 3 is lost");
/// let ended = stream.synchronize(Deadline::after(Duration::from_secs(10)));
/// assert!(ended.unwrap_err().to_string().contains("rank 3 is lost"));
/// # Ok::<(), gdsync::Error>(())
/// ```
#[derive(Clone)]
pub struct Watchdog {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    abort: Word64,
    /// What kernels of GPUs look at in its place, each in the memory of the GPU with this number.
    relays: Mutex<Vec<(u32, Buffer<AbortRelay>)>>,
    cause: OnceLock<Arc<str>>,
    vigil: Vigil<Arc<StreamWatch>>,
}

/// What one stream waits for.
pub(crate) struct StreamWatch {
    name: String,
    /// The number of the last operation known to have run, and all before it; also after its owner dropped the stream.
    completed: Box<dyn Fn() -> u64 + Send + Sync>,
    waits: Outstanding<Target>,
}

impl Watchdog {
    /// A watchdog whose abort word kernels of `device` (and of every other GPU of the process) can read.
    ///
    /// # Errors
    /// If the abort word or the thread cannot be made.
    pub fn new(device: &Device) -> Result<Watchdog> {
        let abort = Buffer::<u64>::new(device, Space::Pinned, 1)?.word(0)?;
        let (relays, cause, vigil) = (Mutex::default(), OnceLock::new(), Vigil::new());
        let shared = Arc::new(Shared { abort, relays, cause, vigil });
        let worker = shared.clone();
        let thread = std::thread::Builder::new()
            .name("mp-watchdog".into())
            .spawn(move || worker.vigil.run())
            .map_err(|e| Error::os("clone", "the watchdog's thread", e))?;
        Ok(Watchdog { handle: Arc::new(Handle { shared, thread: Mutex::new(Some(thread)) }) })
    }

    /// Aborts: sets the abort word, then releases every wait of every watched stream until all have drained.
    /// The first cause stays; returns at once.
    pub fn abort(&self, cause: &str) {
        let Shared { abort, cause: first, vigil, .. } = &*self.handle.shared;
        vigil.abort(|| {
            if first.set(cause.into()).is_ok() {
                tracing::error!("abort: {cause}");
            }
            // The word is pinned host memory by construction, so the CPU reaches it.
            let _ = abort.store(1);
        });
    }

    /// Why it was aborted, if it was.
    pub fn cause(&self) -> Option<Arc<str>> {
        self.handle.shared.cause.get().cloned()
    }

    /// The word that becomes nonzero before any wait is released.
    pub fn abort_word(&self) -> &Word64 {
        &self.handle.shared.abort
    }

    /// What bounded waits in kernels of a device look at: [`WaitBounds::abort`](mp_kernels::WaitBounds). Made at the first call for
    /// the device.
    ///
    /// # Errors
    /// If it cannot be made, or the device does not reach the abort word.
    pub fn bound(&self, device: &Device) -> Result<u64> {
        let Shared { abort, relays, .. } = &*self.handle.shared;
        let Some(ordinal) = device.ordinal() else { return abort.device_address() };
        let mut relays = lock(relays);
        let relay = match relays.iter().find(|(known, _)| *known == ordinal) {
            Some((_, relay)) => relay.clone(),
            None => {
                let relay = Buffer::new(device, Space::Device, 1)?;
                let word = abort.device_address()?;
                relay.write(&[AbortRelay { word, ..AbortRelay::default() }])?;
                relays.push((ordinal, relay.clone()));
                relay
            }
        };
        relay.cast::<u64>()?.word(0)?.device_address()
    }

    /// The waits outstanding now, oldest first within a stream.
    pub fn pending(&self) -> Vec<PendingWait> {
        self.handle.shared.vigil.watched().iter().flat_map(|stream| stream.waits()).collect()
    }

    /// Watches a stream, which says how far it is: the number of the last operation known to have run, and all before it.
    pub(crate) fn watch(
        &self,
        name: String,
        completed: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Arc<StreamWatch> {
        let (completed, waits) = (Box::new(completed), Outstanding::new());
        let watch = Arc::new(StreamWatch { name, completed, waits });
        self.handle.shared.vigil.watch(watch.clone());
        watch
    }
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchdog").field("cause", &self.cause()).finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.vigil.stop();
        if let Some(thread) = lock(&self.thread).take()
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the watchdog's thread panicked");
        }
    }
}

impl StreamWatch {
    /// Notes a wait that is about to be enqueued as the stream's operation `ticket`.
    pub fn push(&self, watchdog: &Watchdog, ticket: u64, target: Target) -> Result<()> {
        let vigil = &watchdog.handle.shared.vigil;
        match self.waits.push(ticket, target, || vigil.is_aborted(), &self.completed) {
            Ok(()) => Ok(()),
            Err(Refused::Aborted) => Err(Error::Aborted {
                what: self.name.clone(),
                cause: watchdog.cause().unwrap_or_default().to_string(),
            }),
            Err(Refused::Full) => Err(Error::Unsupported {
                what: "one more wait",
                place: self.name.clone(),
                why: format!("{MAX_PENDING_WAITS} are outstanding; synchronise first"),
            }),
        }
    }

    /// The stream is idle: nothing is outstanding.
    pub fn drained(&self) -> bool {
        self.waits.is_drained((self.completed)())
    }

    /// The outstanding waits, oldest first.
    pub fn waits(&self) -> Vec<PendingWait> {
        self.drained();
        let (mut waits, now) = (Vec::new(), Instant::now());
        self.waits.for_each(|wait| {
            wait.target.describe(&self.name, now.saturating_duration_since(wait.since), &mut waits);
        });
        waits
    }
}

impl Watched for Arc<StreamWatch> {
    /// Dropped by its user.
    fn is_over(&self) -> bool {
        Arc::strong_count(self) == 1 && self.drained()
    }

    /// Writes every awaited value.
    fn release(&self) -> bool {
        if self.drained() {
            return false;
        }
        self.waits.for_each(|wait| {
            if let Err(error) = wait.target.release() {
                tracing::error!("releasing {}: {error}", self.name);
            }
        });
        true
    }
}
