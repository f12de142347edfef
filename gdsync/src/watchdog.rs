//! Makes sure that no stream stays blocked for ever: the watchdog knows every wait enqueued on the streams it
//! watches, what it waits for and since when. When it is aborted it sets its abort word first, then writes the
//! awaited values, until the streams have drained. What a released stream computed means nothing: every later call
//! on it reports the abort.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::cuda::device::lock;
use crate::cuda::rescue::Rescue;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::word::{Word32, Word64, reached32, reached64};
use crate::memory::{Buffer, Space};
use crate::stream::Core;

/// A stream may have this many waits outstanding; one more is refused.
pub const MAX_PENDING_WAITS: usize = 1 << 16;

/// Between two rounds of releasing waits after an abort.
const RELEASE_INTERVAL: Duration = Duration::from_millis(1);
/// Between two looks at streams that were dropped.
const TIDY_INTERVAL: Duration = Duration::from_millis(250);

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
    streams: Mutex<Vec<Arc<StreamWatch>>>,
    wake: Condvar,
    stop: AtomicBool,
}

/// What one stream waits for.
pub(crate) struct StreamWatch {
    name: String,
    core: Core,
    pending: Mutex<VecDeque<Pending>>,
}

struct Pending {
    ticket: u64,
    since: Instant,
    target: Target,
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
        let shared = Arc::new(Shared {
            abort,
            cause: OnceLock::new(),
            streams: Mutex::default(),
            wake: Condvar::new(),
            stop: AtomicBool::new(false),
        });
        let worker = shared.clone();
        let thread = std::thread::Builder::new()
            .name("mp-watchdog".into())
            .spawn(move || worker.run())
            .map_err(|e| Error::os("clone", "the watchdog's thread", e))?;
        Ok(Watchdog { handle: Arc::new(Handle { shared, thread: Mutex::new(Some(thread)) }) })
    }

    /// Aborts: sets the abort word, then releases every wait of every watched stream until all have drained.
    /// The first cause stays; returns at once.
    pub fn abort(&self, cause: &str) {
        let shared = &self.handle.shared;
        let streams = lock(&shared.streams);
        if shared.cause.set(cause.into()).is_ok() {
            tracing::error!("abort: {cause}");
        }
        // The word is pinned host memory by construction, so the CPU reaches it.
        let _ = shared.abort.store(1);
        shared.wake.notify_all();
        drop(streams);
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
        let streams = lock(&self.handle.shared.streams).clone();
        streams.iter().flat_map(|stream| stream.waits()).collect()
    }

    pub(crate) fn watch(&self, name: String, core: Core) -> Result<Arc<StreamWatch>> {
        if let Core::Cuda(stream) = &core {
            // At the time of an abort it may be too late to make it.
            stream.device().rescue()?;
        }
        let watch = Arc::new(StreamWatch { name, core, pending: Mutex::default() });
        lock(&self.handle.shared.streams).push(watch.clone());
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
        self.shared.stop.store(true, Ordering::Release);
        {
            // Under the lock, so that the thread is either before its check of `stop` or already waiting.
            let _streams = lock(&self.shared.streams);
            self.shared.wake.notify_all();
        }
        if let Some(thread) = lock(&self.thread).take()
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the watchdog's thread panicked");
        }
    }
}

impl Shared {
    fn run(&self) {
        let mut streams = lock(&self.streams);
        while !self.stop.load(Ordering::Acquire) {
            // Streams that were dropped and have nothing left to release are forgotten.
            streams.retain(|stream| Arc::strong_count(stream) > 1 || !stream.drained());
            let interval = if self.cause.get().is_some() {
                let now = streams.clone();
                drop(streams);
                let blocked = now.iter().filter(|stream| stream.release()).count();
                streams = lock(&self.streams);
                if blocked > 0 { RELEASE_INTERVAL } else { TIDY_INTERVAL }
            } else {
                TIDY_INTERVAL
            };
            streams =
                self.wake.wait_timeout(streams, interval).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl StreamWatch {
    /// Notes a wait that is about to be enqueued as the stream's operation `ticket`.
    pub fn push(&self, watchdog: &Watchdog, ticket: u64, target: Target) -> Result<()> {
        let mut pending = lock(&self.pending);
        // After the cause is set the releaser may already have passed this stream, so nothing may be added; before,
        // the releaser will come by, because it takes this lock after the cause is set.
        if let Some(cause) = watchdog.cause() {
            return Err(Error::Aborted { what: self.name.clone(), cause: cause.to_string() });
        }
        if pending.len() >= 256 {
            retire(&mut pending, self.core.completed());
        }
        if pending.len() >= MAX_PENDING_WAITS {
            return Err(Error::Unsupported {
                what: "one more wait",
                place: self.name.clone(),
                why: format!("{MAX_PENDING_WAITS} are outstanding; synchronise first"),
            });
        }
        pending.push_back(Pending { ticket, since: Instant::now(), target });
        Ok(())
    }

    /// The stream is idle: nothing is outstanding.
    pub fn drained(&self) -> bool {
        let completed = self.core.completed();
        let mut pending = lock(&self.pending);
        retire(&mut pending, completed);
        pending.is_empty()
    }

    /// Writes every awaited value; true if the stream may still be blocked.
    fn release(&self) -> bool {
        if self.drained() {
            return false;
        }
        for wait in lock(&self.pending).iter() {
            if let Err(error) = wait.target.release() {
                tracing::error!("releasing {}: {error}", self.name);
            }
        }
        true
    }

    /// The outstanding waits, oldest first.
    pub fn waits(&self) -> Vec<PendingWait> {
        let completed = self.core.completed();
        let mut pending = lock(&self.pending);
        retire(&mut pending, completed);
        let (mut waits, now) = (Vec::new(), Instant::now());
        for wait in pending.iter() {
            wait.target.describe(&self.name, now.saturating_duration_since(wait.since), &mut waits);
        }
        waits
    }
}

fn retire(pending: &mut VecDeque<Pending>, completed: u64) {
    while pending.front().is_some_and(|wait| wait.ticket <= completed) {
        pending.pop_front();
    }
}

impl Target {
    fn release(&self) -> Result<()> {
        match self {
            Target::Word32(word, expected) => match word.atomic() {
                Some(atomic) => {
                    let raise = |seen| (!reached32(seen, *expected)).then_some(*expected);
                    let _ = atomic.fetch_update(Ordering::AcqRel, Ordering::Acquire, raise);
                    Ok(())
                }
                None => rescue(word.device())?.write32(word.device_address()?, *expected),
            },
            Target::Word64(word, expected) => match word.atomic() {
                Some(atomic) => {
                    let raise = |seen| (!reached64(seen, *expected)).then_some(*expected);
                    let _ = atomic.fetch_update(Ordering::AcqRel, Ordering::Acquire, raise);
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
