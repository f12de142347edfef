//! One GPU: its primary context, the loaded kernels, and the memory and streams that wait to be released.
//!
//! Opening a device twice gives the same object. Nothing here blocks on work that a stream still holds: what is
//! dropped while a stream may still use it goes to the [graveyard](super::graveyard) and is released when every
//! stream of the device has been idle once.

use std::ffi::c_int;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use cudarc::driver::sys;

use super::capabilities::Capabilities;
use super::capture::Left;
use super::driver::{Driver, check, cu};
use super::gate;
use super::graveyard::{Grave, Graveyard, stream_idle};
use super::kernel::{Kernel, RawModule};
use super::second_context::SecondContext;
use super::topology;
use crate::deadline::Deadline;
use crate::error::{Error, Result};

/// How long the device waits for work of its own (zeroing fresh memory, small copies).
pub(crate) const OWN_WORK: Duration = Duration::from_secs(60);

/// A GPU opened by this process. Clones share it.
///
/// ```
/// if let Ok(gpu) = gdsync::CudaDevice::open(0) {
///     println!("{} ({})", gpu.name(), gpu.ordinal());
/// }
/// ```
#[derive(Clone)]
pub struct CudaDevice {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    ordinal: u32,
    device: sys::CUdevice,
    context: sys::CUcontext,
    name: String,
    uuid: [u8; 16],
    kernels: Option<RawModule>,
    /// A stream that no user work ever enters: it zeroes fresh memory and copies at set-up.
    service: sys::CUstream,
    turn: gate::Turn,
    second_context: OnceLock<Result<SecondContext>>,
    graveyard: Mutex<Graveyard>,
    left: Left,
    capabilities: Capabilities,
}

// SAFETY: the raw handles are driver objects that any thread may use after binding the context; mutable state is
// behind mutexes.
unsafe impl Send for Inner {}
// SAFETY: as for Send.
unsafe impl Sync for Inner {}

static OPEN: Mutex<Vec<(u32, Weak<Inner>)>> = Mutex::new(Vec::new());

/// A device that this does not keep open.
pub(crate) struct WeakDevice(Weak<Inner>);

impl WeakDevice {
    /// The device, if it has not been closed.
    pub fn upgrade(&self) -> Option<CudaDevice> {
        self.0.upgrade().map(|inner| CudaDevice { inner })
    }
}

impl CudaDevice {
    /// Number of GPUs visible to this process.
    ///
    /// # Errors
    /// As [`Driver::load`].
    pub fn count() -> Result<u32> {
        Ok(Driver::load()?.device_count())
    }

    /// Whether this process has a GPU open.
    pub fn is_any_open() -> bool {
        lock(&OPEN).iter().any(|(_, device)| device.strong_count() > 0)
    }

    /// Opens the GPU with this ordinal, or shares it if it is open: retains its primary context, loads every kernel
    /// of the embedded module (a lazy load behind a blocked stream would deadlock) and probes what it can do.
    ///
    /// # Errors
    /// No driver, no such device, no GPU code in this build or none for this architecture, or a failing driver call.
    pub fn open(ordinal: u32) -> Result<CudaDevice> {
        let device = topology::raw_device(ordinal)?;
        let mut open = lock(&OPEN);
        open.retain(|(_, device)| device.strong_count() > 0);
        if let Some(inner) = open.iter().find(|(o, _)| *o == ordinal).and_then(|(_, d)| d.upgrade())
        {
            return Ok(CudaDevice { inner });
        }
        let inner = Arc::new(Inner::open(ordinal, device)?);
        open.push((ordinal, Arc::downgrade(&inner)));
        Ok(CudaDevice { inner })
    }

    /// For who is not to keep it open.
    pub(crate) fn downgrade(&self) -> WeakDevice {
        WeakDevice(Arc::downgrade(&self.inner))
    }

    /// The UUID of a GPU. Opens none.
    ///
    /// # Errors
    /// As [`CudaDevice::open`].
    pub fn uuid_of(ordinal: u32) -> Result<[u8; 16]> {
        topology::uuid(topology::raw_device(ordinal)?)
    }

    /// The ordinal of the GPU with this UUID, if this process sees it. Opens none.
    ///
    /// # Errors
    /// What the driver says.
    pub fn ordinal_of(wanted: &[u8; 16]) -> Result<Option<u32>> {
        for ordinal in 0..CudaDevice::count()? {
            if CudaDevice::uuid_of(ordinal)? == *wanted {
                return Ok(Some(ordinal));
            }
        }
        Ok(None)
    }

    /// The ordinal of the GPU whose memory is at an address; `None`: no GPU's, or memory that the driver does not know. Opens none.
    ///
    /// # Errors
    /// As [`CudaDevice::open`].
    pub fn ordinal_at(address: u64) -> Result<Option<u32>> {
        CudaDevice::count()?;
        let mut ordinal: c_int = -1;
        let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
        // SAFETY: the driver is initialised; writes one int; an address that it does not know is refused.
        match unsafe { sys::cuPointerGetAttribute((&raw mut ordinal).cast(), attribute, address) } {
            sys::CUresult::CUDA_ERROR_INVALID_VALUE => Ok(None),
            result => check("cuPointerGetAttribute", result).map(|()| u32::try_from(ordinal).ok()),
        }
    }

    /// The ordinal of the GPU that is current in this thread, as `cudaSetDevice` of CUDA 12 makes it; `None`: none is. Opens none.
    ///
    /// # Errors
    /// As [`CudaDevice::open`].
    pub fn current() -> Result<Option<u32>> {
        let count = CudaDevice::count()?;
        let mut current = 0;
        // SAFETY: the driver is initialised; writes one handle.
        match unsafe { sys::cuCtxGetDevice(&mut current) } {
            sys::CUresult::CUDA_ERROR_INVALID_CONTEXT => return Ok(None),
            result => check("cuCtxGetDevice", result)?,
        }
        for ordinal in 0..count {
            if topology::raw_device(ordinal)? == current {
                return Ok(Some(ordinal));
            }
        }
        Ok(None)
    }

    /// The device's ordinal in this process.
    pub fn ordinal(&self) -> u32 {
        self.inner.ordinal
    }

    /// The marketing name, for example "NVIDIA H200".
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The GPU's UUID, the same in every process and container.
    pub fn uuid(&self) -> [u8; 16] {
        self.inner.uuid
    }

    /// What the GPU and its driver can do, probed when it was opened.
    pub fn capabilities(&self) -> &Capabilities {
        &self.inner.capabilities
    }

    /// A kernel of the embedded module.
    ///
    /// # Errors
    /// [`Error::NoSuchKernel`]; [`Error::NoGpuCode`] if this build has none.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        match &self.inner.kernels {
            Some(module) => module.kernel(name),
            None => Err(mp_kernels::fatbin()
                .err()
                .map_or(Error::NoSuchKernel { name: name.into() }, Error::from)),
        }
    }

    /// GPU code of the application's own, and the kernels of it that are named.
    pub(super) fn load_image(
        &self,
        image: &'static [u8],
        kernels: &[&'static str],
    ) -> Result<RawModule> {
        self.bind()?;
        self.inner.load_image(image, kernels, "see the program's build", false)
    }

    /// Blocks of `kernel` with `threads` threads and `shared` bytes of dynamic shared memory that run at once on the
    /// whole GPU: the largest grid whose blocks may wait for one another.
    ///
    /// # Errors
    /// A failing driver call.
    pub fn co_resident_blocks(&self, kernel: &Kernel, threads: u32, shared: u32) -> Result<u32> {
        self.bind()?;
        let function = kernel.function()?;
        let mut blocks: c_int = 0;
        // SAFETY: the function belongs to this device's module, which lives as long as `self`.
        unsafe {
            cu!(cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut blocks,
                function,
                threads as c_int,
                shared as usize
            ))?
        };
        Ok(blocks.max(0) as u32 * self.inner.capabilities.multiprocessors)
    }

    /// Makes the device's context current on the calling thread, whose calls of the driver and of the CUDA runtime are then for it.
    ///
    /// # Errors
    /// What the driver says.
    pub fn bind(&self) -> Result<()> {
        // SAFETY: the primary context is retained as long as `self` lives.
        unsafe { cu!(cuCtxSetCurrent(self.inner.context)) }
    }

    /// The driver's handle of the device.
    pub(crate) fn raw(&self) -> sys::CUdevice {
        self.inner.device
    }

    /// The way around blocked streams; made at the first call, which is at set-up.
    pub(crate) fn second_context(&self) -> Result<&SecondContext> {
        let made = self.inner.second_context.get_or_init(|| SecondContext::new(self.inner.device));
        made.as_ref().map_err(Clone::clone)
    }

    /// Lets this device's kernels, streams and copies reach memory of `other`.
    ///
    /// # Errors
    /// [`Error::NotReachable`] if the two have no peer access.
    pub fn enable_peer(&self, other: &CudaDevice) -> Result<()> {
        if self.ordinal() == other.ordinal() {
            return Ok(());
        }
        let mut can: c_int = 0;
        // SAFETY: both devices are open; the call writes one int.
        unsafe { cu!(cuDeviceCanAccessPeer(&mut can, self.inner.device, other.inner.device))? };
        if can == 0 {
            return Err(Error::NotReachable {
                what: "peer access",
                memory: format!("memory of {other:?}"),
                place: format!("{self:?}"),
                hint: "the two GPUs have neither NVLink nor a common PCIe root that allows peer access",
            });
        }
        self.bind()?;
        // SAFETY: the current context is this device's; `other`'s context is retained by `other`.
        match unsafe { sys::cuCtxEnablePeerAccess(other.inner.context, 0) } {
            sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            result => super::driver::check("cuCtxEnablePeerAccess", result),
        }
    }

    /// Allocates `len` bytes of zeroed device memory.
    pub(crate) fn allocate(&self, len: usize) -> Result<u64> {
        self.reap();
        self.bind()?;
        let mut address = 0;
        // SAFETY: writes one device pointer; the driver refuses sizes that it cannot serve.
        unsafe { cu!(cuMemAlloc_v2(&mut address, len.max(1)))? };
        // SAFETY: the range was just allocated and nobody else knows it yet.
        let enqueued = self.entered(|| unsafe {
            cu!(cuMemsetD8Async(address, 0, len.max(1), self.inner.service))
        });
        let zeroed = enqueued.and_then(|()| self.settle("zeroing of fresh device memory"));
        if let Err(error) = zeroed {
            self.bury(Grave::Device(address));
            return Err(error);
        }
        Ok(address)
    }

    /// Waits for the service stream.
    pub(crate) fn settle(&self, what: &'static str) -> Result<()> {
        let stream = self.inner.service;
        let deadline = Deadline::after(OWN_WORK);
        match deadline.poll(|| stream_idle(stream).transpose()) {
            Some(result) => result,
            None => Err(Error::Timeout {
                what: format!("{what} on {self:?}"),
                after: OWN_WORK,
                detail: String::new(),
            }),
        }
    }

    /// Copies between device memory and pinned host memory on the service stream and waits for it.
    pub(crate) fn copy_now(&self, to: u64, from: u64, len: usize) -> Result<()> {
        self.bind()?;
        // SAFETY: the caller (crate-internal) passes ranges of live allocations of at least `len` bytes.
        self.entered(|| unsafe { cu!(cuMemcpyAsync(to, from, len, self.inner.service)) })?;
        self.settle("copy")
    }

    /// Runs a driver call that enqueues on the service stream.
    fn entered<T>(&self, call: impl FnOnce() -> T) -> T {
        let _entered = self.turn().enter(false);
        call()
    }

    /// Taken by who enqueues.
    pub(super) fn turn(&self) -> &gate::Turn {
        &self.inner.turn
    }

    /// Where graphs of others leave what they kept.
    pub(super) fn left(&self) -> &Left {
        &self.inner.left
    }

    pub(crate) fn graveyard(&self) -> MutexGuard<'_, Graveyard> {
        lock(&self.inner.graveyard)
    }

    /// Takes what must outlive the work now on the streams, and releases what no stream can use any more.
    pub(crate) fn bury(&self, grave: Grave) {
        self.graveyard().bury(grave);
        self.reap();
    }

    /// Releases what was dropped, if no stream of any open device has work and nobody enqueues. Never blocks: the
    /// driver's release of memory waits for every kernel, and one could wait for a rank that this thread holds up.
    pub fn reap(&self) {
        // Each buries what it holds, which comes back here.
        let left = std::mem::take(&mut *lock(self.left()));
        drop(left);
        if self.graveyard().is_empty() {
            return;
        }
        let Some(_shut) = gate::shut() else { return };
        let Ok(open) = OPEN.try_lock() else { return };
        // Memory of one device may be mapped for another, so they count together.
        let others: Vec<_> = open.iter().filter_map(|(_, device)| device.upgrade()).collect();
        drop(open);
        let others = others.into_iter().map(|inner| CudaDevice { inner });
        if others.into_iter().all(|device| device.is_idle()) && self.bind().is_ok() {
            let mut graveyard = self.graveyard();
            let graves = graveyard.exhume();
            self.turn().there_are(graveyard.streams());
            drop(graveyard);
            graves.into_iter().flatten().for_each(Grave::release);
        }
    }

    fn is_idle(&self) -> bool {
        self.bind().is_ok() && self.graveyard().is_idle()
    }
}

impl fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cuda:{} ({})", self.inner.ordinal, self.inner.name)
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    fn open(ordinal: u32, device: sys::CUdevice) -> Result<Inner> {
        let mut name = [0; 256];
        let mut context = std::ptr::null_mut();
        // SAFETY: `name` is 256 bytes long, which is what the call is told.
        unsafe { cu!(cuDeviceGetName(name.as_mut_ptr(), 256, device))? };
        // SAFETY: writes one handle; released in `drop`.
        unsafe { cu!(cuDevicePrimaryCtxRetain(&mut context, device))? };
        let mut inner = Inner {
            ordinal,
            device,
            context,
            name: super::text(&name),
            uuid: topology::uuid(device)?,
            kernels: None,
            service: std::ptr::null_mut(),
            turn: gate::Turn::default(),
            second_context: OnceLock::new(),
            graveyard: Mutex::default(),
            left: Left::default(),
            capabilities: Capabilities::default(),
        };
        // From here on a failure drops `inner`, which gives back what it holds.
        // SAFETY: the context was just retained.
        unsafe { cu!(cuCtxSetCurrent(context))? };
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: writes one handle; destroyed in `drop`.
        unsafe { cu!(cuStreamCreate(&mut inner.service, flags))? };
        inner.capabilities = Capabilities::read(device)?;
        match mp_kernels::fatbin() {
            Ok(fatbin) => inner.kernels = Some(inner.load(fatbin)?),
            Err(not_built) => tracing::warn!("{not_built}: device {ordinal} has no kernels"),
        }
        Ok(inner)
    }

    fn load(&self, fatbin: &'static [u8]) -> Result<RawModule> {
        let built = mp_kernels::BUILD.architectures.join(", ");
        self.load_image(fatbin, mp_kernels::KERNELS, &built, true)
    }

    fn load_image(
        &self,
        image: &'static [u8],
        kernels: &[&'static str],
        built: &str,
        in_turn: bool,
    ) -> Result<RawModule> {
        RawModule::load(image, kernels, in_turn).map_err(|error| match error {
            Error::Cuda { code, .. }
                if code == sys::CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU as u32 =>
            {
                Error::WrongArchitecture {
                    gpu: self.name.clone(),
                    capability: self.capabilities.compute_capability(),
                    built: built.into(),
                }
            }
            other => other,
        })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Every buffer and stream holds the device, so all that is left is in the graveyard. Work that hangs must
        // not hang the process: after a second its memory is left to the driver's own clean-up at exit.
        // SAFETY: the context is still retained.
        if unsafe { cu!(cuCtxSetCurrent(self.context)) }.is_err() {
            return;
        }
        let graveyard = self.graveyard.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(graves) = Deadline::after(Duration::from_secs(1)).poll(|| graveyard.exhume())
        else {
            tracing::warn!(
                "cuda:{}: work still running; its memory is left to the driver",
                self.ordinal
            );
            return;
        };
        graves.into_iter().for_each(Grave::release);
        // SAFETY: no stream of the device has work left, so neither module nor service stream is in use, and the
        // context is released once, for the one retain in `open`.
        let released = unsafe {
            let mut result = Ok(());
            if let Some(module) = &self.kernels {
                result = cu!(cuModuleUnload(module.handle()));
            }
            if !self.service.is_null() {
                result = result.and(cu!(cuStreamDestroy_v2(self.service)));
            }
            result.and(cu!(cuDevicePrimaryCtxRelease_v2(self.device)))
        };
        if let Err(error) = released {
            tracing::debug!("closing cuda:{}: {error}", self.ordinal);
        }
    }
}
