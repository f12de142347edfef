//! Streams: ordered queues of work on a GPU or on the host, with the same operations on both.
//!
//! Every operation is enqueued and returns; what it does happens in order on the stream. Calls may come from several
//! threads; each call is one unit, the order between threads is theirs to arrange. What streams do with single words is [`words`],
//! what is captured and replayed [`graph`].

mod graph;
mod words;

pub use graph::Graph;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytemuck::Pod;
use mp_kernels::{QueuePair as DeviceQueuePair, WaitBounds};

use crate::cuda::kernel::Kernel;
use crate::cuda::stream::CudaStream;
use crate::deadline::Deadline;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::event::{Event, Inner as EventInner};
use crate::host::executor::{Executor, HostOp};
use crate::host::kernel::run_on;
use crate::launch::{Arg, Dims};
use crate::memory::Buffer;
use crate::memory::rows::Rows;
use crate::report::bounds;
use crate::room::WhenFull;
use crate::watchdog::target::Target;
use crate::watchdog::{StreamWatch, Watchdog};

/// An ordered queue of work. Dropping it does not wait: a CUDA stream finishes what it holds; a host stream finishes
/// what does not block and gives up its waits.
///
/// ```
/// use std::time::Duration;
///
/// use gdsync::{Deadline, Device};
///
/// let device = Device::Host; // or Device::best()
/// let stream = device.stream()?;
/// let (from, to) = (device.alloc::<u32>(100)?, device.alloc::<u32>(100)?);
/// from.write(&[7; 100])?;
/// stream.copy(&to, &from)?;
/// stream.synchronize(Deadline::after(Duration::from_secs(10)))?;
/// assert_eq!(to.to_vec()?, [7; 100]);
/// # Ok::<(), gdsync::Error>(())
/// ```
pub struct Stream {
    device: Device,
    number: u64,
    name: String,
    inner: Inner,
    watch: Option<(Watchdog, Arc<StreamWatch>)>,
}

enum Inner {
    Host(Executor),
    Cuda(Arc<CudaStream>),
}

impl Device {
    /// A stream whose waits nobody watches; [`Stream::synchronize`] still has a deadline.
    ///
    /// # Errors
    /// What the driver or the system says.
    pub fn stream(&self) -> Result<Stream> {
        Stream::new(self, None)
    }

    /// A stream whose waits are released when `watchdog` is aborted.
    ///
    /// # Errors
    /// What the driver or the system says.
    pub fn watched_stream(&self, watchdog: &Watchdog) -> Result<Stream> {
        Stream::new(self, Some(watchdog))
    }
}

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Stream {
    pub(crate) fn new(device: &Device, watchdog: Option<&Watchdog>) -> Result<Stream> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (name, inner) = match device {
            Device::Host => {
                let name = format!("stream {number} (host)");
                let executor = Executor::new(
                    name.clone(),
                    watchdog.map(|watchdog| watchdog.abort_word().clone()),
                )?;
                (name, Inner::Host(executor))
            }
            Device::Cuda(cuda) => {
                let name = format!("stream {number} (cuda:{})", cuda.ordinal());
                let stream = Arc::new(CudaStream::new(cuda, name.clone())?);
                (name, Inner::Cuda(stream))
            }
        };
        Stream::watched(device, (number, name), inner, watchdog)
    }

    /// A CUDA stream that somebody else made and destroys, with the operations of one made here. Captures of it are begun with
    /// [`begin_capture`](Stream::begin_capture), or by its owner: then the owner's graph keeps the memory that operations use, as long as it
    /// can be replayed, and a wait in it that the watchdog must end is a kernel. No other thread uses the stream or drops memory of its
    /// device at the moment at which its owner begins one.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for the host and for the default stream, which is no stream of its own; what the driver says.
    ///
    /// # Safety
    /// It is a stream of the device, it outlives this one, and it is idle when this one is dropped.
    pub unsafe fn adopt(
        device: &Device,
        stream: cudarc::driver::sys::CUstream,
        watchdog: Option<&Watchdog>,
    ) -> Result<Stream> {
        let refused = |why: &str| Error::Unsupported {
            what: "adopting a stream",
            place: device.to_string(),
            why: why.into(),
        };
        let Device::Cuda(cuda) = device else { return Err(refused("it has no CUDA streams")) };
        if stream.is_null() {
            return Err(refused("the default stream waits for all others"));
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("stream {number} (cuda:{}, adopted)", cuda.ordinal());
        // SAFETY: the caller's promise.
        let stream = Arc::new(unsafe { CudaStream::adopt(cuda, name.clone(), stream)? });
        Stream::watched(device, (number, name), Inner::Cuda(stream), watchdog)
    }

    fn watched(
        device: &Device,
        (number, name): (u64, String),
        inner: Inner,
        watchdog: Option<&Watchdog>,
    ) -> Result<Stream> {
        let watch = match (watchdog, &inner) {
            (None, _) => None,
            (Some(watchdog), Inner::Host(executor)) => {
                let shared = executor.shared().clone();
                let watch = watchdog.watch(name.clone(), move || shared.completed());
                Some((watchdog.clone(), watch))
            }
            (Some(watchdog), Inner::Cuda(stream)) => {
                // At the time of an abort it may be too late to make it; and while the stream captures, what its kernels look at.
                stream.device().second_context()?;
                watchdog.bound(device)?;
                let stream = stream.clone();
                let watch = watchdog.watch(name.clone(), move || stream.completed());
                Some((watchdog.clone(), watch))
            }
        };
        Ok(Stream { device: device.clone(), number, name, inner, watch })
    }

    /// Says what a call does that finds the stream full: it waits for room at most `patience`, and calls `help` again and again
    /// meanwhile. Without it, it only waits. The first word stays.
    pub fn when_full(&self, patience: Duration, help: impl Fn() + Send + Sync + 'static) {
        let full = WhenFull { patience, help: Box::new(help) };
        match &self.inner {
            Inner::Host(executor) => executor.when_full(full),
            Inner::Cuda(stream) => stream.when_full(full),
        }
    }

    /// Where it runs.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The number in its name: no other stream of the process has it, or had it.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// A name for reports, unique in the process.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The raw `CUstream`, for libraries that take one; `None` for a host stream.
    ///
    /// Work enqueued through it is ordered with the rest, but the watchdog does not know its waits.
    pub fn as_raw_cuda(&self) -> Option<cudarc::driver::sys::CUstream> {
        match &self.inner {
            Inner::Host(_) => None,
            Inner::Cuda(stream) => Some(stream.raw()),
        }
    }

    fn watch_wait(&self, number: u64, target: Target) -> Result<()> {
        match &self.watch {
            Some((watchdog, watch)) => watch.push(watchdog, number, target),
            None => Ok(()),
        }
    }

    /// Rings blocks of a queue by a kernel of one thread; on a host stream `None`: nothing was done.
    pub(crate) fn ring_by_kernel(
        &self,
        queue: &DeviceQueuePair,
        blocks: Range<u64>,
        timeout: Duration,
    ) -> Option<Result<()>> {
        match &self.inner {
            Inner::Host(_) => None,
            Inner::Cuda(stream) => Some(stream.ring(queue, blocks, timeout)),
        }
    }

    /// What aborts waits of kernels on the stream; 0: nothing does.
    fn abort(&self) -> Result<u64> {
        self.watch.as_ref().map_or(Ok(0), |(watchdog, _)| watchdog.bound(&self.device))
    }

    /// What kernels that wait on the stream are bounded by, and where they report that a wait of theirs failed.
    pub(crate) fn bounds_and_report(&self, timeout: Duration) -> Result<(WaitBounds, u64)> {
        let report = match &self.inner {
            Inner::Host(executor) => executor.shared().report.address(),
            Inner::Cuda(stream) => stream.report.address(),
        };
        Ok((bounds(self.abort()?, timeout), report))
    }

    /// Launches a kernel: on a CUDA stream one of a [`Module`](crate::Module), on a host stream one that [`Kernel::host`] made,
    /// all of whose threads run at once.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a kernel of the other kind, for more than one dimension on a host stream and of the library's own
    /// kernels, and on a host stream for dynamic shared memory; what the driver says. That a machine has not so many threads [`Stream::synchronize`] reports.
    ///
    /// # Safety
    /// `args` match the kernel's parameters in number and type; every address among them is valid for what the
    /// kernel does with it until the kernel has run, in a graph until the last replay has; and what it writes is not
    /// accessed by others meanwhile, unless the kernel's documentation orders it.
    pub unsafe fn launch(&self, kernel: &Kernel, dims: Dims, args: &[Arg<'_>]) -> Result<()> {
        match &self.inner {
            // SAFETY: the caller's promise.
            Inner::Host(executor) => unsafe { run_on(executor, kernel, dims, args) },
            // SAFETY: the caller's promise.
            Inner::Cuda(stream) => unsafe { stream.launch(kernel, dims, args) },
        }
    }

    /// Launches a kernel whose blocks wait for one another: all of them run at once, or none (a cooperative launch). What else occupies
    /// the GPU is waited for.
    ///
    /// # Errors
    /// [`Error::TooManyBlocks`] with both numbers if so many never run at once; for the rest as [`launch`](Self::launch).
    ///
    /// # Safety
    /// As [`launch`](Self::launch).
    pub unsafe fn launch_together(
        &self,
        kernel: &Kernel,
        dims: Dims,
        args: &[Arg<'_>],
    ) -> Result<()> {
        match &self.inner {
            // SAFETY: the caller's promise.
            Inner::Host(executor) => unsafe { run_on(executor, kernel, dims, args) },
            // SAFETY: the caller's promise.
            Inner::Cuda(stream) => unsafe { stream.launch_together(kernel, dims, args) },
        }
    }

    /// Makes the graph that is being captured keep this memory, as it keeps that of the operations here: for memory whose
    /// address a launched kernel is given. Without a capture nothing.
    pub fn hold<T: Pod>(&self, memory: &Buffer<T>) {
        if let Inner::Cuda(stream) = &self.inner {
            stream.hold_memory(memory.allocation());
        }
    }

    /// Calls `call` on a CPU thread when the stream gets there, on every replay if it is captured. On a CUDA stream it
    /// runs on a driver thread and must not call CUDA. A panic is caught and reported by [`Stream::synchronize`].
    ///
    /// # Errors
    /// What the driver says; on a host stream as [`Stream::batch`].
    pub fn call(&self, call: impl Fn() + Send + Sync + 'static) -> Result<()> {
        match &self.inner {
            Inner::Host(executor) => {
                let call = move || {
                    call();
                    Ok(())
                };
                executor.enqueue(std::iter::once(HostOp::Call(Arc::new(call))), |_| Ok(()))
            }
            Inner::Cuda(stream) => stream.call(Arc::new(call)),
        }
    }

    /// Copies `from` to `to`. The ranges may be anywhere the stream's device reaches, peer memory included; plain host
    /// memory only on host streams. The source may be written again when the stream has passed the copy.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`], [`Error::NotReachable`], what the driver says.
    pub fn copy<T: Pod>(&self, to: &Buffer<T>, from: &Buffer<T>) -> Result<()> {
        if to.size() != from.size() {
            return Err(Error::LengthMismatch {
                what: "copy",
                left: to.size(),
                right: from.size(),
            });
        }
        self.copy_rows(to, from, Rows::one(to.len()))
    }

    /// Copies rows of `from` to rows of `to`; otherwise as [`Stream::copy`], in one operation of the stream if rows do not overlap.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] with the bytes from the beginning to the end of the last row, if one side has fewer; as
    /// [`Stream::copy`].
    pub fn copy_rows<T: Pod>(&self, to: &Buffer<T>, from: &Buffer<T>, rows: Rows) -> Result<()> {
        let rows = rows.in_bytes(size_of::<T>());
        rows.check(to.size(), from.size())?;
        if rows.elements() == 0 {
            return Ok(());
        }
        let (to, from) = (to.bytes(), from.bytes());
        match &self.inner {
            Inner::Host(executor) => {
                self.host_reaches("copy", &to)?;
                self.host_reaches("copy", &from)?;
                executor.enqueue(std::iter::once(HostOp::Copy { to, from, rows }), |_| Ok(()))
            }
            Inner::Cuda(stream) => stream.copy(&to, &from, rows),
        }
    }

    /// Sets every byte of `buffer` to `byte`.
    ///
    /// # Errors
    /// As [`Stream::copy`].
    pub fn fill<T: Pod>(&self, buffer: &Buffer<T>, byte: u8) -> Result<()> {
        if buffer.size() == 0 {
            return Ok(());
        }
        let buffer = buffer.bytes();
        match &self.inner {
            Inner::Host(executor) => {
                self.host_reaches("fill", &buffer)?;
                executor.enqueue(std::iter::once(HostOp::Fill(buffer, byte)), |_| Ok(()))
            }
            Inner::Cuda(stream) => stream.fill(&buffer, byte),
        }
    }

    fn host_reaches(&self, what: &'static str, buffer: &Buffer<u8>) -> Result<()> {
        match buffer.host_address() {
            Some(_) => Ok(()),
            None => Err(Error::NotReachable {
                what,
                memory: buffer.allocation().describe(),
                place: self.name.clone(),
                hint: "use a stream of its device",
            }),
        }
    }

    /// Marks this point of the stream. A GPU stream that is being captured records inside the graph.
    ///
    /// # Errors
    /// If the event belongs to the other kind of device; what the driver says.
    pub fn record(&self, event: &Event) -> Result<()> {
        match (&self.inner, &event.inner) {
            (Inner::Host(executor), EventInner::Host(event)) => {
                let op = HostOp::Record(event.clone(), event.enqueue());
                executor.enqueue(std::iter::once(op), |_| Ok(()))
            }
            (Inner::Cuda(stream), EventInner::Cuda(event)) => stream.record(event),
            _ => Err(self.foreign("an event")),
        }
    }

    /// Blocks the stream until the last [`record`](Stream::record) of the event so far was passed.
    ///
    /// # Errors
    /// As [`Stream::record`].
    pub fn wait_event(&self, event: &Event) -> Result<()> {
        match (&self.inner, &event.inner) {
            (Inner::Host(executor), EventInner::Host(event)) => {
                let op = HostOp::WaitEvent(event.clone(), event.last());
                executor.enqueue(std::iter::once(op), |_| Ok(()))
            }
            (Inner::Cuda(stream), EventInner::Cuda(event)) => stream.wait_event(event),
            _ => Err(self.foreign("an event")),
        }
    }

    fn foreign(&self, what: &'static str) -> Error {
        Error::Unsupported {
            what,
            place: self.name.clone(),
            why: "it was made for another kind of device".into(),
        }
    }

    /// Whether everything enqueued so far has run.
    ///
    /// # Errors
    /// What the driver says, for example that a kernel failed; during a capture.
    pub fn is_idle(&self) -> Result<bool> {
        match &self.inner {
            Inner::Host(executor) => Ok(executor.is_idle()),
            Inner::Cuda(stream) => stream.is_idle(),
        }
    }

    /// Waits on the CPU until everything enqueued so far has run and all of it went well.
    ///
    /// # Errors
    /// [`Error::Timeout`] naming the oldest wait that the stream is known to be blocked in; [`Error::Aborted`] if the
    /// watchdog was aborted; [`Error::WaitFailed`] and [`Error::CallbackPanicked`] if that happened to an operation
    /// of the stream at any time before; what the driver says.
    pub fn synchronize(&self, deadline: Deadline) -> Result<()> {
        let idle = match &self.inner {
            Inner::Host(executor) => executor.wait_idle(deadline),
            Inner::Cuda(stream) => {
                let idle = deadline.poll(|| match stream.is_idle() {
                    Ok(false) => None,
                    Ok(true) => Some(Ok(())),
                    Err(error) => Some(Err(error)),
                });
                idle.transpose()?.is_some()
            }
        };
        if let Some(cause) = self.watch.as_ref().and_then(|(watchdog, _)| watchdog.cause()) {
            return Err(Error::Aborted { what: self.name.clone(), cause: cause.to_string() });
        }
        if !idle {
            let oldest =
                self.watch.as_ref().and_then(|(_, watch)| watch.waits().into_iter().next());
            let detail = oldest.map_or(String::new(), |wait| format!(": {wait}"));
            return Err(Error::Timeout {
                what: self.name.clone(),
                after: deadline.timeout(),
                detail,
            });
        }
        let failure = match &self.inner {
            Inner::Host(executor) => executor.failure(),
            Inner::Cuda(stream) => {
                stream.device().reap();
                stream.failure()
            }
        };
        failure.map_or(Ok(()), Err)
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Inner::Cuda(stream) = &self.inner {
            // Whoever brought it may destroy it after this.
            stream.give_back();
        }
    }
}
