//! A CUDA stream: enqueuing on it, captures, and knowing what it has done. Enqueuing never allocates and holds no lock across a
//! driver call but those that keep memory from being released meanwhile and other threads from enqueuing on the same GPU
//! ([`gate`](super::gate)). What is enqueued is [`operations`].

mod operations;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use cudarc::driver::sys;

use super::callback::Callback;
use super::capture::{self, Others};
use super::device::{CudaDevice, lock};
use super::driver::cu;
use super::graveyard::stream_idle;
use super::marks::Marks;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::memory::allocation::Allocation;
use crate::report::Report;
use crate::room::WhenFull;
use crate::watchdog::target::Target;

/// Every so many operations that can block, an event marks how far the stream has got.
const MARK_EVERY: u64 = 16;
/// Marks kept: enough for the operations of [`AHEAD`].
const MARKS: usize = 16;
/// Operations that the CPU may be ahead of the stream. The driver takes about a thousand small launches; then it blocks, with a lock that
/// every other thread needs for its own streams, and the stream may be waiting for one of these. So the wait for room is
/// here, without any lock.
const AHEAD: u64 = 128;
/// How long it is waited for room if nobody has said anything else; what a stream waits for has ended long before.
const PATIENCE: Duration = Duration::from_secs(600);
/// Between two calls of what helps meanwhile.
const HELP: Duration = Duration::from_millis(1);

/// A CUDA stream with its book-keeping.
pub(crate) struct CudaStream {
    device: CudaDevice,
    stream: sys::CUstream,
    /// It is destroyed by whoever made it.
    adopted: bool,
    /// An adopted one that its user has back, who may have destroyed it: held while the driver is asked of it.
    given_back: Mutex<bool>,
    name: String,
    /// Operations whose driver call has begun, and has returned.
    begun: AtomicU64,
    ended: AtomicU64,
    /// The last number that `completed` gave to an enqueuer.
    seen: AtomicU64,
    capturing: AtomicBool,
    capture: Mutex<Capture>,
    /// Of an adopted stream: the capture that its owner began, when it was last seen.
    others: Mutex<Option<Others>>,
    marks: Mutex<Marks<sys::CUevent>>,
    /// Where a waiting kernel that gives up writes why.
    pub(crate) report: Report,
    failure: Arc<Mutex<Option<Error>>>,
    when_full: OnceLock<WhenFull>,
}

/// What a capture must hold for its replays.
#[derive(Default)]
pub(crate) struct Capture {
    pub owners: Vec<Arc<Allocation>>,
    pub calls: Vec<Arc<Callback>>,
    pub targets: Vec<Target>,
}

// SAFETY: CUstream and CUevent handles may be used from any thread with the context bound; the rest is Send + Sync.
unsafe impl Send for CudaStream {}
// SAFETY: as for Send.
unsafe impl Sync for CudaStream {}

impl CudaStream {
    pub fn new(device: &CudaDevice, name: String) -> Result<CudaStream> {
        CudaStream::with(device, name, None)
    }

    /// A stream that somebody else made and destroys.
    ///
    /// # Safety
    /// It is a stream of the device and lives, idle at the end, until [`give_back`](Self::give_back) has returned, or this has been
    /// dropped.
    pub unsafe fn adopt(
        device: &CudaDevice,
        name: String,
        stream: sys::CUstream,
    ) -> Result<CudaStream> {
        CudaStream::with(device, name, Some(stream))
    }

    fn with(
        device: &CudaDevice,
        name: String,
        adopted: Option<sys::CUstream>,
    ) -> Result<CudaStream> {
        let report = Report::new(&crate::Device::Cuda(device.clone()))?;
        device.bind()?;
        let mut events = Vec::with_capacity(MARKS);
        for _ in 0..MARKS {
            let mut event = std::ptr::null_mut();
            let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
            // SAFETY: writes one handle. If a later one fails, the few made so far go with the context.
            unsafe { cu!(cuEventCreate(&mut event, flags))? };
            events.push(event);
        }
        let mut stream = adopted.unwrap_or(std::ptr::null_mut());
        if adopted.is_none() {
            let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
            // SAFETY: writes one handle; destroyed through the graveyard.
            unsafe { cu!(cuStreamCreate(&mut stream, flags))? };
        }
        {
            let mut graveyard = device.graveyard();
            graveyard.add_stream(stream, adopted.is_some());
            device.turn().there_are(graveyard.streams());
        }
        Ok(CudaStream {
            device: device.clone(),
            stream,
            adopted: adopted.is_some(),
            given_back: Mutex::new(false),
            name,
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            capturing: AtomicBool::new(false),
            capture: Mutex::default(),
            others: Mutex::default(),
            marks: Mutex::new(Marks::new(events)),
            report,
            failure: Arc::default(),
            when_full: OnceLock::new(),
        })
    }

    pub fn device(&self) -> &CudaDevice {
        &self.device
    }

    pub fn raw(&self) -> sys::CUstream {
        self.stream
    }

    pub fn is_capturing(&self) -> bool {
        self.capturing.load(Ordering::Acquire) || self.is_captured_by_others()
    }

    /// Whether the owner of an adopted stream has begun a capture, of which nobody but the driver knows. From the first look on its graph
    /// keeps what operations use.
    pub fn is_captured_by_others(&self) -> bool {
        if !self.adopted || self.capturing.load(Ordering::Acquire) {
            return false;
        }
        let given_back = lock(&self.given_back);
        if *given_back {
            return false;
        }
        // What cannot be asked is refused when something is enqueued.
        let found = self.device.bind().and_then(|()| capture::under_way(self.stream));
        drop(given_back);
        let mut others = lock(&self.others);
        match found {
            Ok(Some((id, graph))) => {
                if others.as_ref().is_none_or(|others| others.id != id) {
                    *others = Some(Others { id, held: capture::keep(graph, self.device.left()) });
                }
                true
            }
            Ok(None) | Err(_) => {
                *others = None;
                false
            }
        }
    }

    /// Gives what the capture under way, if there is one, is to keep.
    fn captures(&self, put: impl FnOnce(&mut Capture)) {
        if self.capturing.load(Ordering::Acquire) {
            put(&mut lock(&self.capture));
        } else if self.is_captured_by_others()
            && let Some(Others { held: Ok(held), .. }) = &*lock(&self.others)
        {
            put(&mut lock(held));
        }
    }

    /// A capture of others whose graph keeps nothing takes no operation.
    fn check_capture(&self) -> Result<()> {
        match &*lock(&self.others) {
            Some(Others { held: Err(error), .. }) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Runs a driver call that enqueues; `number` is the operation's. What is captured is not counted: it does not run.
    fn enqueue(&self, call: impl FnOnce(u64) -> Result<()>) -> Result<()> {
        if self.is_capturing() {
            self.check_capture()?;
            self.device.bind()?;
            return call(self.begun.load(Ordering::Acquire));
        }
        self.wait_for_room()?;
        self.device.bind()?;
        let number = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        let _entered = self.device.turn().enter(number == 1);
        let result = call(number);
        self.ended.fetch_add(1, Ordering::AcqRel);
        result
    }

    /// Says what a call does that finds the stream full. The first word stays.
    pub fn when_full(&self, full: WhenFull) {
        let _ = self.when_full.set(full);
    }

    /// Back-pressure: see [`AHEAD`].
    fn wait_for_room(&self) -> Result<()> {
        let room = |done| self.begun.load(Ordering::Acquire).saturating_sub(done) < AHEAD;
        if room(self.seen.load(Ordering::Relaxed)) {
            return Ok(());
        }
        let full = self.when_full.get();
        let patience = full.map_or(PATIENCE, |full| full.patience);
        let mut helped = Instant::now();
        let found = Deadline::after(patience).poll(|| {
            if let Some(full) = full
                && helped.elapsed() >= HELP
            {
                (full.help)();
                helped = Instant::now();
            }
            let done = self.completed();
            self.seen.store(done, Ordering::Relaxed);
            room(done).then_some(())
        });
        found.ok_or_else(|| Error::Timeout {
            what: format!("room for another operation on {}", self.name),
            after: patience,
            detail: format!(": {AHEAD} operations have not run yet"),
        })
    }

    /// The number of the last operation known to have run, and all before it.
    pub fn completed(&self) -> u64 {
        // Operations whose driver call has not returned may not be in the stream yet: then idleness proves nothing.
        let ended = self.ended.load(Ordering::Acquire);
        let idle = ended == self.begun.load(Ordering::Acquire) && !matches!(self.query(), Ok(None));
        let mut marks = lock(&self.marks);
        if idle {
            marks.have_run(ended);
        }
        // SAFETY: the event lives as long as the stream.
        marks.look(
            |event| unsafe { sys::cuEventQuery(event) } != sys::CUresult::CUDA_ERROR_NOT_READY,
        )
    }

    fn mark(&self, number: u64) {
        if !number.is_multiple_of(MARK_EVERY) || self.is_capturing() {
            return;
        }
        let Some(event) = lock(&self.marks).take() else { return };
        // SAFETY: event and stream live; a mark of operation `number` is recorded after it, by this thread.
        if unsafe { cu!(cuEventRecord(event, self.stream)) }.is_ok() {
            lock(&self.marks).record(number, event);
        }
    }

    /// `Ok(true)` when everything enqueued has run.
    pub fn is_idle(&self) -> Result<bool> {
        if self.is_capturing() {
            return Err(self.unsupported("asking for progress", "it is being captured"));
        }
        Ok(self.query()?.is_some())
    }

    /// `Some(())` when everything enqueued has run; `None` if not, or during a capture.
    fn query(&self) -> Result<Option<()>> {
        // A query would invalidate a capture: the lock keeps one from beginning meanwhile.
        let _capture = lock(&self.capture);
        if self.is_capturing() {
            return Ok(None);
        }
        let given_back = lock(&self.given_back);
        if *given_back {
            // Its user said that it is idle.
            return Ok(Some(()));
        }
        self.device.bind()?;
        stream_idle(self.stream)
    }

    /// What went wrong on the stream, as far as the host can see.
    pub fn failure(&self) -> Option<Error> {
        if let Some(error) = lock(&self.failure).clone() {
            return Some(error);
        }
        self.report.failure(&self.name)
    }

    pub fn begin_capture(&self) -> Result<()> {
        let capturing = self.is_captured_by_others() || {
            let _capture = lock(&self.capture);
            self.capturing.swap(true, Ordering::AcqRel)
        };
        if capturing {
            return Err(self.unsupported("beginning a capture", "one is under way"));
        }
        self.device.graveyard().set_capturing(self.stream, true);
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is alive and not being captured.
        let begun = self
            .device
            .bind()
            .and_then(|()| unsafe { cu!(cuStreamBeginCapture_v2(self.stream, mode)) });
        if begun.is_err() {
            self.stop_capture();
        }
        begun
    }

    /// Ends the capture; the graph and what it must hold.
    pub fn end_capture(&self) -> Result<(sys::CUgraph, Capture)> {
        if !self.capturing.load(Ordering::Acquire) {
            return Err(self.unsupported("ending a capture", "none of this crate is under way"));
        }
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream is being captured; writes one handle.
        let ended = self
            .device
            .bind()
            .and_then(|()| unsafe { cu!(cuStreamEndCapture(self.stream, &mut graph)) });
        let capture = self.stop_capture();
        ended.map(|()| (graph, capture))
    }

    fn stop_capture(&self) -> Capture {
        self.device.graveyard().set_capturing(self.stream, false);
        self.capturing.store(false, Ordering::Release);
        std::mem::take(&mut lock(&self.capture))
    }

    /// Remembers a wait of the capture under way.
    pub fn capture_target(&self, target: Target) {
        self.captures(|capture| capture.targets.push(target));
    }

    fn unsupported(&self, what: &'static str, why: &str) -> Error {
        Error::Unsupported { what, place: self.name.clone(), why: why.into() }
    }
}

impl CudaStream {
    fn end_unwanted_capture(&self) {
        if self.capturing.load(Ordering::Acquire)
            && let Ok((graph, capture)) = self.end_capture()
        {
            // SAFETY: the graph was just made and never instantiated.
            let _ = unsafe { cu!(cuGraphDestroy(graph)) };
            drop(capture);
        }
    }

    /// The user of an adopted stream has it back, idle, and may destroy it: from now on nobody here asks the driver for it, though the
    /// watchdog keeps this a while longer. Of one made here nothing.
    pub fn give_back(&self) {
        if !self.adopted {
            return;
        }
        self.end_unwanted_capture();
        if std::mem::replace(&mut *lock(&self.given_back), true) {
            return;
        }
        let mut graveyard = self.device.graveyard();
        graveyard.forget_stream(self.stream);
        self.device.turn().there_are(graveyard.streams());
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        self.end_unwanted_capture();
        self.give_back();
        let marks = std::mem::replace(&mut *lock(&self.marks), Marks::new(Vec::new()));
        {
            let mut graveyard = self.device.graveyard();
            let bury = |event| graveyard.bury(super::graveyard::Grave::Event(event));
            marks.into_events().for_each(bury);
            if !self.adopted {
                graveyard.orphan_stream(self.stream);
            }
        }
        self.device.reap();
    }
}
