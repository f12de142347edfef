//! Makes sure that no stream stays blocked for ever: the watchdog knows every wait enqueued on the streams it
//! watches, what it waits for and since when. When it is aborted it sets its abort word first, then writes the
//! awaited values, until the streams have drained. What a released stream computed means nothing, and a host stream does
//! not write it, nor one that was dropped before what it waits for; a GPU goes on with what has been enqueued. Every later call
//! on it reports the abort.

mod outstanding;
mod vigil;

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::cuda::device::lock;
use crate::cuda::rescue::Rescue;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::access::Access;
use crate::memory::word::{Word32, Word64};
use crate::memory::{Buffer, Space};
use crate::stream::Core;

pub use outstanding::MAX_PENDING_WAITS;
use outstanding::{Outstanding, Refused};
use vigil::{Vigil, Watched};

/// Releases the waits of its streams on abort. Clones are the same watchdog; the last one to go ends its thread.
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
    cause: OnceLock<Arc<str>>,
    vigil: Vigil<Arc<StreamWatch>>,
}

/// What one stream waits for.
pub(crate) struct StreamWatch {
    name: String,
    core: Core,
    waits: Outstanding<Target>,
}

/// Words and the values that are awaited.
#[derive(Clone)]
pub(crate) enum Target {
    Word32(Word32, u32),
    Word64(Word64, u64),
    /// A wait that polls the abort word itself: known for reports, and needs no release.
    Bounded(Word64, u64),
    /// The waits inside a graph that was launched.
    Graph(Arc<[Target]>),
}

/// An outstanding wait, for reports.
#[derive(Debug, Clone)]
pub struct PendingWait {
    /// The stream that waits.
    pub stream: String,
    /// The word.
    pub word: String,
    /// The value waited for.
    pub expected: u64,
    /// The value the CPU sees now; `None` if it cannot reach the word.
    pub seen: Option<u64>,
    /// Time since the wait was enqueued.
    pub age: Duration,
}

impl fmt::Display for PendingWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PendingWait { stream, word, expected, seen, age } = self;
        match seen {
            Some(seen) => {
                write!(f, "{stream} waits for {word} >= {expected}, sees {seen}, for {age:?}")
            }
            None => write!(f, "{stream} waits for {word} >= {expected}, for {age:?}"),
        }
    }
}

impl Watchdog {
    /// A watchdog whose abort word kernels of `device` (and of every other GPU of the process) can read.
    ///
    /// # Errors
    /// If the abort word or the thread cannot be made.
    pub fn new(device: &Device) -> Result<Watchdog> {
        let abort = Buffer::<u64>::new(device, Space::Pinned, 1)?.word(0)?;
        let shared = Arc::new(Shared { abort, cause: OnceLock::new(), vigil: Vigil::new() });
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
        let Shared { abort, cause: first, vigil } = &*self.handle.shared;
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

    /// The word that becomes nonzero before any wait is released. Bounded waits in kernels poll it.
    pub fn abort_word(&self) -> &Word64 {
        &self.handle.shared.abort
    }

    /// The waits outstanding now, oldest first within a stream.
    pub fn pending(&self) -> Vec<PendingWait> {
        self.handle.shared.vigil.watched().iter().flat_map(|stream| stream.waits()).collect()
    }

    pub(crate) fn watch(&self, name: String, core: Core) -> Result<Arc<StreamWatch>> {
        if let Core::Cuda(stream) = &core {
            // At the time of an abort it may be too late to make it.
            stream.device().rescue()?;
        }
        let watch = Arc::new(StreamWatch { name, core, waits: Outstanding::new() });
        self.handle.shared.vigil.watch(watch.clone());
        Ok(watch)
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
        let completed = || self.core.completed();
        match self.waits.push(ticket, target, || vigil.is_aborted(), completed) {
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
        self.waits.is_drained(self.core.completed())
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

impl Target {
    fn release(&self) -> Result<()> {
        match self {
            Target::Word32(word, expected) => match word.atomic() {
                Some(atomic) => {
                    atomic.raise(*expected);
                    Ok(())
                }
                None => rescue(word.device())?.write32(word.device_address()?, *expected),
            },
            Target::Word64(word, expected) => match word.atomic() {
                Some(atomic) => {
                    atomic.raise(*expected);
                    Ok(())
                }
                None => rescue(word.device())?.write64(word.device_address()?, *expected),
            },
            Target::Bounded(..) => Ok(()),
            Target::Graph(targets) => targets.iter().try_for_each(Target::release),
        }
    }

    fn describe(&self, stream: &str, age: Duration, to: &mut Vec<PendingWait>) {
        let (word, expected, seen) = match self {
            Target::Word32(word, expected) => {
                (format!("{word:?}"), u64::from(*expected), word.load().map(u64::from))
            }
            Target::Word64(word, expected) | Target::Bounded(word, expected) => {
                (format!("{word:?}"), *expected, word.load())
            }
            Target::Graph(targets) => {
                return targets.iter().for_each(|target| target.describe(stream, age, to));
            }
        };
        to.push(PendingWait { stream: stream.into(), word, expected, seen, age });
    }
}

fn rescue(device: &Device) -> Result<&Rescue> {
    let unreachable = || Error::Unsupported {
        what: "releasing a wait",
        place: device.to_string(),
        why: "the CPU does not reach the word, and it is no CUDA device".into(),
    };
    device.as_cuda().ok_or_else(unreachable)?.rescue()
}
