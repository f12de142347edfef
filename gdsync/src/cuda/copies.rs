//! Copies between a GPU's memory and the host for a thread that must never wait for the GPU's work: the engine of the
//! software NIC.
//!
//! They run in the [second context](super::second_context) of the device: when as many streams of the first are blocked as there are
//! hardware channels, nothing else in it gets through, and what they are blocked for may be the very message that is being
//! copied. A copy needs a copy engine only, not a free processor, so it ends while kernels spin. But from memory of a GPU to memory
//! of the same the driver copies by the GPU's processors, and a context whose kernels spin leaves them after a slice of time:
//! 2.4 ms on an H200 (driver 580, by every call for copies that there is), where a copy to the host and one back take 7 µs each.
//! So those go through the host. Host memory goes through a bounded pinned pool of two chunks: one is copied by the CPU while
//! the other is on its way. Many short copies to a device are waited for together: a wait takes longer than they do.

use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

use cudarc::driver::sys;

use super::device::{CudaDevice, OWN_WORK, lock};
use super::driver::cu;
use crate::deadline::Deadline;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::copy::copy_bytes;
use crate::memory::{Buffer, Space};

/// Bytes of a chunk: 12 µs of PCIe, a few times what starting a copy costs.
const CHUNK: usize = 512 * 1024;
/// From so many bytes on two copies over PCIe take longer than a slice of time of the GPU's processors.
const WORTH_A_SLICE: usize = 32 << 20;
/// What is copied begins in a cache line of its own.
const LINE: usize = 64;

/// The copies of one device; one at a time.
pub(crate) struct Copies {
    device: CudaDevice,
    inner: Mutex<Inner>,
}

struct Inner {
    stream: sys::CUstream,
    /// Recorded after the last copy of each chunk.
    done: [sys::CUevent; 2],
    pool: Buffer<u8>,
    /// The chunk that copies to the device fill, which is `turn % 2`, and how many of its bytes they use.
    turn: usize,
    filled: usize,
}

// SAFETY: driver handles that any thread may use after binding the context; the pool is used under the lock.
unsafe impl Send for Copies {}
// SAFETY: as for Send.
unsafe impl Sync for Copies {}

impl Copies {
    pub fn new(device: &CudaDevice) -> Result<Copies> {
        let pool = Buffer::new(&Device::Cuda(device.clone()), Space::Pinned, 2 * CHUNK)?;
        let (stream, done) = (std::ptr::null_mut(), [std::ptr::null_mut(); 2]);
        let inner = Mutex::new(Inner { stream, done, pool, turn: 0, filled: 0 });
        let copies = Copies { device: device.clone(), inner };
        let mut inner = copies.begin()?;
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is current; writes one handle, destroyed in `drop`.
        unsafe { cu!(cuStreamCreate(&mut inner.stream, flags))? };
        for done in &mut inner.done {
            let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
            // SAFETY: as above.
            unsafe { cu!(cuEventCreate(done, flags))? };
        }
        drop(inner);
        Ok(copies)
    }

    /// Copies `len` bytes of device memory at `from` to the host, and returns when they are there.
    ///
    /// # Safety
    /// Both ranges are valid for `len` bytes.
    pub unsafe fn to_host(&self, from: u64, to: *mut u8, len: usize) -> Result<()> {
        let mut inner = self.begin()?;
        let chunks = len.div_ceil(CHUNK);
        // Chunk k is on its way while chunk k - 1 is copied out of the pool.
        for k in 0..=chunks {
            if k < chunks {
                let part = CHUNK.min(len - k * CHUNK);
                let address = inner.chunk(k).as_ptr() as u64;
                // SAFETY: inside the caller's range and the chunk; what used the chunk was copied out two turns ago.
                unsafe { inner.enqueue(k, address, from + (k * CHUNK) as u64, part)? };
            }
            if let Some(k) = k.checked_sub(1) {
                self.wait(&inner, k)?;
                let part = CHUNK.min(len - k * CHUNK);
                // SAFETY: the caller's range; the chunk is filled.
                unsafe {
                    let to = to.add(k * CHUNK);
                    copy_bytes(inner.chunk(k).as_ptr(), to, part);
                }
            }
        }
        // Copies are done in order: so are those to the device before.
        inner.filled = 0;
        Ok(())
    }

    /// Begins to copy `len` bytes of the host to device memory at `to`; [`settle`](Self::settle) waits for it. Kernels that see a
    /// later copy see this one. The host's memory is not looked at any more when it returns.
    ///
    /// # Safety
    /// Both ranges are valid for `len` bytes, and what is at `to` until it is settled.
    pub unsafe fn to_device(&self, from: *const u8, to: u64, len: usize) -> Result<()> {
        let fill = |_: &Inner, at, place: NonNull<u8>, part| {
            // SAFETY: the caller's range, and a part of the pool that nothing uses.
            unsafe { copy_bytes(from.add(at), place.as_ptr(), part) };
            Ok(())
        };
        // SAFETY: the caller's promise.
        unsafe { self.through_pool(to, len, fill) }
    }

    /// Begins to copy `len` bytes from memory of one GPU to that of another; [`settle`](Self::settle) waits for it.
    ///
    /// # Safety
    /// Both ranges are valid for `len` bytes until it is settled.
    pub unsafe fn between_devices(&self, from: u64, to: u64, len: usize) -> Result<()> {
        let inner = self.begin()?;
        // SAFETY: the caller's promise.
        unsafe { inner.enqueue(inner.turn, to, from, len) }
    }

    /// The same between places of one GPU: through the host.
    ///
    /// # Safety
    /// As [`between_devices`](Self::between_devices).
    pub unsafe fn within_device(&self, from: u64, to: u64, len: usize) -> Result<()> {
        if len >= WORTH_A_SLICE {
            // SAFETY: the caller's promise.
            return unsafe { self.between_devices(from, to, len) };
        }
        // SAFETY: the caller's promise; a part of the pool that nothing uses, which the copy from there waits for.
        unsafe {
            self.through_pool(to, len, |inner, at, place, part| {
                let from = from + at as u64;
                cu!(cuMemcpyAsync(place.as_ptr() as u64, from, part, inner.stream))
            })
        }
    }

    /// Has `fill` fill parts of the pool, or enqueue that, with so many bytes from that one on, and begins to copy them from there.
    ///
    /// # Safety
    /// What is at `to` is valid for `len` bytes until it is settled.
    unsafe fn through_pool(
        &self,
        to: u64,
        len: usize,
        fill: impl Fn(&Inner, usize, NonNull<u8>, usize) -> Result<()>,
    ) -> Result<()> {
        let mut inner = self.begin()?;
        let mut copied = 0;
        while copied < len {
            if inner.filled == CHUNK {
                (inner.turn, inner.filled) = (inner.turn.wrapping_add(1), 0);
                self.wait(&inner, inner.turn)?;
            }
            let part = (CHUNK - inner.filled).min(len - copied);
            // SAFETY: inside the caller's range and the chunk, of which nothing uses this part.
            unsafe {
                let place = inner.chunk(inner.turn).add(inner.filled);
                fill(&inner, copied, place, part)?;
                inner.enqueue(inner.turn, to + copied as u64, place.as_ptr() as u64, part)?;
            }
            copied += part;
            inner.filled = (inner.filled + part).next_multiple_of(LINE);
        }
        Ok(())
    }

    /// Waits until all copies to the device that have begun are there.
    pub fn settle(&self) -> Result<()> {
        let mut inner = self.begin()?;
        self.wait(&inner, inner.turn)?;
        inner.filled = 0;
        Ok(())
    }

    fn begin(&self) -> Result<MutexGuard<'_, Inner>> {
        self.device.second_context()?.bind()?;
        Ok(lock(&self.inner))
    }

    /// Waits for the last copy of a chunk. It needs nothing but a copy engine.
    fn wait(&self, inner: &Inner, chunk: usize) -> Result<()> {
        let deadline = Deadline::after(OWN_WORK);
        let done = inner.done[chunk % 2];
        for spin in 0u32.. {
            // SAFETY: the event lives as long as `self`, and its context is current.
            match unsafe { sys::cuEventQuery(done) } {
                sys::CUresult::CUDA_ERROR_NOT_READY => std::hint::spin_loop(),
                result => return super::driver::check("cuEventQuery", result),
            }
            if spin.is_multiple_of(1024) && deadline.expired() {
                break;
            }
        }
        Err(Error::Timeout {
            what: format!("a copy of the software NIC on {:?}", self.device),
            after: OWN_WORK,
            detail: String::new(),
        })
    }
}

impl Inner {
    fn chunk(&self, k: usize) -> NonNull<u8> {
        let base = self.pool.host_address().unwrap_or(NonNull::dangling());
        // SAFETY: the pool is pinned host memory of two chunks.
        unsafe { base.add(k % 2 * CHUNK) }
    }

    /// # Safety
    /// Both ranges are valid for `len` bytes until the copy is done.
    unsafe fn enqueue(&self, k: usize, to: u64, from: u64, len: usize) -> Result<()> {
        // SAFETY: the caller's promise; addresses are unique in the process, whatever context they were made in.
        unsafe { cu!(cuMemcpyAsync(to, from, len, self.stream))? };
        // SAFETY: event and stream belong to the current context.
        unsafe { cu!(cuEventRecord(self.done[k % 2], self.stream)) }
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        let closed = self.begin().and_then(|inner| {
            for done in inner.done.into_iter().filter(|done| !done.is_null()) {
                // SAFETY: destroyed once; its context is current.
                unsafe { cu!(cuEventDestroy_v2(done))? };
            }
            if inner.stream.is_null() {
                return Ok(());
            }
            // What is under way uses the pool, and waits for nobody.
            // SAFETY: the stream is there, and its context current.
            unsafe { cu!(cuStreamSynchronize(inner.stream))? };
            // SAFETY: destroyed once.
            unsafe { cu!(cuStreamDestroy_v2(inner.stream)) }
        });
        if let Err(error) = closed {
            tracing::debug!("closing the stream of copies: {error}");
        }
    }
}
