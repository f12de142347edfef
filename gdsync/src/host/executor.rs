//! A host stream: one thread that runs operations in the order in which they were enqueued, with the semantics of a
//! CUDA stream, so that every protocol runs and is tested without a GPU.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::cuda::device::lock;
use crate::deadline::Deadline;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::event::HostEvent;
use crate::memop::Until;
use crate::memory::Buffer;
use crate::memory::copy::{copy_bytes, fill_bytes};
use crate::memory::rows::Rows;
use crate::memory::word::{Word32, Word64};
use crate::report::Report;
use crate::room::WhenFull;

/// Operations that a stream holds; enqueuing one more blocks until the stream gets on, or fails after a while.
const CAPACITY: usize = 4096;
/// How long enqueuing waits for room if nobody has said anything else.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two calls of what helps while enqueuing waits for room.
const HELP: Duration = Duration::from_millis(1);

/// One operation. It holds what it uses.
#[derive(Clone)]
pub(crate) enum HostOp {
    Write32(Word32, u32),
    Write64(Word64, u64),
    Wait32(Word32, Until<u32>),
    Wait64(Word64, Until<u64>),
    Barrier,
    /// A wait that gives up by itself: the host's form of the waiting kernel.
    Bounded(Word64, Until<u64>, Duration),
    /// Rows of bytes, which both have.
    Copy {
        to: Buffer<u8>,
        from: Buffer<u8>,
        rows: Rows,
    },
    Fill(Buffer<u8>, u8),
    Call(Arc<dyn Fn() -> Result<()> + Send + Sync>),
    Record(Arc<HostEvent>, u64),
    WaitEvent(Arc<HostEvent>, u64),
    Graph(Arc<[HostOp]>),
}

/// The executor's handle. Dropping it lets the stream run dry of work that does not block, ends waits, and joins.
pub(crate) struct Executor {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    when_full: OnceLock<WhenFull>,
}

/// What the handle and the thread share.
pub(crate) struct Shared {
    name: String,
    queue: Mutex<Queue>,
    /// Work arrived, room was made, or everything ran.
    changed: Condvar,
    completed: AtomicU64,
    closing: AtomicBool,
    /// A wait ended before its time, since the stream was closed or the watchdog aborted. What the stream was to write after
    /// that is not written: it would be meaningless, in memory that may still be somebody else's, and told as if it were
    /// there.
    released: AtomicBool,
    /// The abort word of the watchdog, not the watchdog: that knows its streams, which would be a circle.
    abort: Option<Word64>,
    failure: Mutex<Option<Error>>,
    /// Where kernels write why they gave up a wait.
    pub report: Report,
}

#[derive(Default)]
struct Queue {
    ops: VecDeque<HostOp>,
    issued: u64,
    /// Operations go here instead of running while a graph is being captured.
    capture: Option<Vec<HostOp>>,
}

impl Executor {
    pub fn new(name: String, abort: Option<Word64>) -> Result<Executor> {
        let shared = Arc::new(Shared {
            name: name.clone(),
            queue: Mutex::default(),
            changed: Condvar::new(),
            completed: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            released: AtomicBool::new(false),
            abort,
            failure: Mutex::default(),
            report: Report::new(&Device::Host)?,
        });
        let worker = shared.clone();
        let thread = std::thread::Builder::new()
            .name(format!("mp-{name}"))
            .spawn(move || worker.run())
            .map_err(|e| Error::os("clone", &name, e))?;
        Ok(Executor { shared, thread: Mutex::new(Some(thread)), when_full: OnceLock::new() })
    }

    /// Says what a call does that finds the stream full. The first word stays.
    pub fn when_full(&self, full: WhenFull) {
        let _ = self.when_full.set(full);
    }

    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Enqueues operations in one piece. `before` runs first, with the number that the last of them will have, unless
    /// they are only captured.
    pub fn enqueue(
        &self,
        ops: impl ExactSizeIterator<Item = HostOp>,
        before: impl FnOnce(u64) -> Result<()>,
    ) -> Result<()> {
        let full = self.when_full.get();
        let patience = full.map_or(PATIENCE, |full| full.patience);
        let deadline = Deadline::after(patience);
        let mut queue = lock(&self.shared.queue);
        if let Some(capture) = &mut queue.capture {
            capture.extend(ops);
            return Ok(());
        }
        while !queue.ops.is_empty() && queue.ops.len() + ops.len() > CAPACITY {
            if deadline.expired() {
                let detail = format!("; {CAPACITY} operations are in the queue");
                return Err(Error::Timeout {
                    what: format!("room on {}", self.shared.name),
                    after: patience,
                    detail,
                });
            }
            let slice = full.map_or(deadline.remaining(), |_| HELP.min(deadline.remaining()));
            let wait = self.shared.changed.wait_timeout(queue, slice);
            queue = wait.unwrap_or_else(PoisonError::into_inner).0;
            if let Some(full) = full
                && queue.ops.len() + ops.len() > CAPACITY
            {
                drop(queue);
                (full.help)();
                queue = lock(&self.shared.queue);
            }
        }
        before(queue.issued + ops.len() as u64)?;
        queue.issued += ops.len() as u64;
        queue.ops.extend(ops);
        self.shared.changed.notify_all();
        Ok(())
    }

    pub fn is_capturing(&self) -> bool {
        lock(&self.shared.queue).capture.is_some()
    }

    pub fn begin_capture(&self) -> bool {
        let mut queue = lock(&self.shared.queue);
        let free = queue.capture.is_none();
        if free {
            queue.capture = Some(Vec::new());
        }
        free
    }

    pub fn end_capture(&self) -> Option<Vec<HostOp>> {
        lock(&self.shared.queue).capture.take()
    }

    /// Waits until everything enqueued so far has run; false at the deadline.
    pub fn wait_idle(&self, deadline: Deadline) -> bool {
        let mut queue = lock(&self.shared.queue);
        let until = queue.issued;
        while self.shared.completed.load(Ordering::Acquire) < until {
            let left = deadline.remaining();
            if left.is_zero() {
                return false;
            }
            queue = self
                .shared
                .changed
                .wait_timeout(queue, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        true
    }

    pub fn is_idle(&self) -> bool {
        let queue = lock(&self.shared.queue);
        self.shared.completed.load(Ordering::Acquire) == queue.issued
    }

    /// The first thing that went wrong on the stream.
    pub fn failure(&self) -> Option<Error> {
        let failure = lock(&self.shared.failure).clone();
        failure.or_else(|| self.shared.report.failure(&self.shared.name))
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Release);
        {
            let _queue = lock(&self.shared.queue);
            self.shared.changed.notify_all();
        }
        // A callback may hold the last handle of its own stream: then the thread ends by itself.
        if let Some(thread) = lock(&self.thread).take()
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the thread of {} panicked", self.shared.name);
        }
    }
}

impl Shared {
    /// How many operations have run.
    pub fn completed(&self) -> u64 {
        self.completed.load(Ordering::Acquire)
    }

    fn run(&self) {
        while let Some(op) = self.next() {
            self.execute(&op);
            drop(op);
            self.completed.fetch_add(1, Ordering::Release);
            let queue = lock(&self.queue);
            if queue.ops.is_empty() || queue.ops.len() == CAPACITY / 2 {
                self.changed.notify_all();
            }
        }
    }

    /// The next operation; polls for a moment before it sleeps, since most streams get their work in bursts.
    fn next(&self) -> Option<HostOp> {
        let begin = Instant::now();
        loop {
            let mut queue = lock(&self.queue);
            if let Some(op) = queue.ops.pop_front() {
                return Some(op);
            }
            if self.closing.load(Ordering::Acquire) {
                return None;
            }
            if begin.elapsed() < Duration::from_micros(20) {
                drop(queue);
                std::thread::yield_now();
            } else {
                drop(self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner));
            }
        }
    }

    fn execute(&self, op: &HostOp) {
        match op {
            HostOp::Write32(..) | HostOp::Write64(..) | HostOp::Copy { .. } | HostOp::Fill(..)
                if self.released.load(Ordering::Relaxed) => {}
            HostOp::Write32(word, value) => self.note(word.store(*value)),
            HostOp::Write64(word, value) => self.note(word.store(*value)),
            HostOp::Wait32(word, until) => {
                self.wait(|| word.load().is_none_or(|seen| until.is_met_by(seen)));
            }
            HostOp::Wait64(word, until) => {
                self.wait(|| word.load().is_none_or(|seen| until.is_met_by(seen)));
            }
            HostOp::Barrier => fence(Ordering::SeqCst),
            HostOp::Bounded(word, until, timeout) => self.bounded(word, *until, *timeout),
            HostOp::Copy { to, from, rows } => {
                if let (Some(to_address), Some(from_address)) =
                    (to.host_address(), from.host_address())
                {
                    for (to_at, from_at) in rows.starts() {
                        // SAFETY: all rows are inside the allocations, which the operation holds (checked when it was
                        // enqueued); who else touches them is the enqueuer's contract, as on a GPU.
                        unsafe {
                            let from = from_address.as_ptr().add(from_at);
                            copy_bytes(from, to_address.as_ptr().add(to_at), rows.len);
                        }
                    }
                }
            }
            HostOp::Fill(buffer, byte) => {
                if let Some(address) = buffer.host_address() {
                    // SAFETY: as for the copy.
                    unsafe { fill_bytes(address.as_ptr(), *byte, buffer.len()) };
                }
            }
            HostOp::Call(call) => {
                self.note(catch_unwind(AssertUnwindSafe(|| call())).unwrap_or_else(|panic| {
                    let stream = self.name.clone();
                    Err(Error::CallbackPanicked { stream, message: panic_message(&*panic) })
                }));
            }
            HostOp::Record(event, number) => event.reach(*number),
            HostOp::WaitEvent(event, number) => self.wait(|| event.passed(*number)),
            HostOp::Graph(ops) => ops.iter().for_each(|op| self.execute(op)),
        }
    }

    fn note(&self, result: Result<()>) {
        if let Err(error) = result {
            tracing::error!("{}: {error}", self.name);
            lock(&self.failure).get_or_insert(error);
        }
    }

    fn aborted(&self) -> bool {
        self.abort.as_ref().is_some_and(|word| word.load() != Some(0))
    }

    /// Polls until `ready`, the stream is closed, or the watchdog is aborted: spins for a moment, then yields, then
    /// sleeps, so that many blocked streams share few cores.
    fn wait(&self, ready: impl Fn() -> bool) {
        let begin = Instant::now();
        let mut polls = 0u32;
        while !ready() {
            if self.closing.load(Ordering::Acquire) {
                self.released.store(true, Ordering::Relaxed);
                return;
            }
            if self.aborted() {
                break;
            }
            polls += 1;
            if polls < 100 {
                std::hint::spin_loop();
            } else if !polls.is_multiple_of(64) || begin.elapsed() < Duration::from_millis(2) {
                std::thread::yield_now();
            } else {
                std::thread::sleep(Duration::from_micros(20));
            }
        }
        // The watchdog writes what is waited for, too: then it only looks as if it had come.
        if self.aborted() {
            self.released.store(true, Ordering::Relaxed);
        }
    }

    fn bounded(&self, word: &Word64, until: Until<u64>, timeout: Duration) {
        let begin = Instant::now();
        let seen = || word.load().unwrap_or(until.met());
        self.wait(|| until.is_met_by(seen()) || begin.elapsed() >= timeout);
        let (seen, waited) = (seen(), begin.elapsed());
        if !until.is_met_by(seen) {
            let expected = until.value();
            let status = if waited >= timeout { "timed out" } else { "aborted" };
            let what = self.name.clone();
            self.note(Err(Error::WaitFailed { what, status, expected, seen, waited }));
        }
    }
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shared.name)
    }
}
