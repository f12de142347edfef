//! A protection domain: queue pairs reach the memory that is registered in the same one.

use super::completion_queue::CompletionQueue;
use super::context::Context;
use super::datagrams::Datagrams;
use super::error::{Result, last_errno};
use super::memory_region::{Access, DmaBuf, MemoryRegion};
use super::port::Port;
use super::queue_pair::{QueuePair, QueuePairOptions, Reset};
use super::shared_receives::SharedReceiveQueue;
use crate::cuda::dma_buf;
use crate::{Buffer, Device};
use bytemuck::Pod;
use gdsync_sys::verbs::ibv_pd;
use std::fmt;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::Arc;

/// A protection domain of a device.
///
/// See [`verbs`](super) for an example.
pub struct ProtectionDomain {
    domain: NonNull<ibv_pd>,
    context: Arc<Context>,
}

// SAFETY: libibverbs serialises the calls on a protection domain.
unsafe impl Send for ProtectionDomain {}
// SAFETY: as above.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    pub(super) fn new(context: &Arc<Context>) -> Result<Arc<Self>> {
        // SAFETY: the context is open.
        let domain = unsafe { context.verbs().ibv_alloc_pd(context.as_ptr()) };
        let domain = NonNull::new(domain)
            .ok_or_else(|| context.failed("ibv_alloc_pd", "a protection domain", last_errno()))?;
        Ok(Arc::new(Self { domain, context: context.clone() }))
    }

    /// Registers host memory. The region keeps the buffer.
    ///
    /// # Errors
    /// If the buffer is memory of a GPU, or what the kernel says: `ENOMEM` usually means that the limit of
    /// locked memory (`ulimit -l`) is reached.
    pub fn register<T: Pod>(
        self: &Arc<Self>,
        buffer: &Buffer<T>,
        access: Access,
    ) -> Result<Arc<MemoryRegion>> {
        MemoryRegion::host(self, buffer.bytes(), access)
    }

    /// Registers memory of a GPU: as a dma-buf if `dmabuf` names one, by its address through the kernel module
    /// nvidia-peermem otherwise and as a fallback. The region keeps the buffer, not the file descriptor.
    ///
    /// # Errors
    /// [`Error::GpuMemory`](super::Error::GpuMemory) with the reason of both ways.
    ///
    /// # Safety
    /// `dmabuf` exports the memory of `buffer` and of nothing else.
    pub unsafe fn register_gpu<T: Pod>(
        self: &Arc<Self>,
        buffer: &Buffer<T>,
        dmabuf: std::result::Result<DmaBuf<'_>, String>,
        access: Access,
    ) -> Result<Arc<MemoryRegion>> {
        // SAFETY: the caller's promise.
        unsafe { MemoryRegion::gpu(self, buffer.bytes(), dmabuf, access) }
    }

    /// Registers memory of the host, or of a GPU, which is exported as a dma-buf where that is possible.
    ///
    /// # Errors
    /// As [`register`](Self::register) and [`register_gpu`](Self::register_gpu).
    pub(crate) fn register_any(
        self: &Arc<Self>,
        buffer: &Buffer<u8>,
        access: Access,
    ) -> Result<Arc<MemoryRegion>> {
        let Device::Cuda(gpu) = buffer.device() else { return self.register(buffer, access) };
        if buffer.host_address().is_some() {
            return self.register(buffer, access);
        }
        let exported = match buffer.device_address() {
            Some(address) => dma_buf::export(gpu, address, buffer.size()),
            None => Err("it has no address on its GPU".to_owned()),
        };
        let exported = exported.as_ref().map_err(Clone::clone);
        let from = exported.map(|(fd, offset)| DmaBuf { fd: fd.as_fd(), offset: *offset });
        // SAFETY: it exports the pages of this memory, which begins at that offset.
        unsafe { self.register_gpu(buffer, from, access) }
    }

    /// Makes a reliable connected queue pair that reports to these completion queues, which may be one.
    ///
    /// # Errors
    /// What the kernel says, for example that the device cannot hold as many requests.
    pub fn queue_pair(
        self: &Arc<Self>,
        send_completions: &Arc<CompletionQueue>,
        receive_completions: &Arc<CompletionQueue>,
        options: &QueuePairOptions,
    ) -> Result<QueuePair<Reset>> {
        QueuePair::create(self, None, send_completions, receive_completions, options)
    }

    /// As [`queue_pair`](Self::queue_pair), with receives that it shares with others: none are posted to itself.
    ///
    /// # Errors
    /// As there.
    pub fn queue_pair_sharing(
        self: &Arc<Self>,
        receives: &Arc<SharedReceiveQueue>,
        send_completions: &Arc<CompletionQueue>,
        receive_completions: &Arc<CompletionQueue>,
        options: &QueuePairOptions,
    ) -> Result<QueuePair<Reset>> {
        let options = QueuePairOptions { receive_depth: 0, ..*options };
        QueuePair::create(self, Some(receives), send_completions, receive_completions, &options)
    }

    /// Makes a queue pair for datagrams of a port.
    ///
    /// # Errors
    /// If the port has no GID, or what the kernel says.
    pub fn datagrams(self: &Arc<Self>, port: &Port) -> Result<Datagrams> {
        Datagrams::new(self, port)
    }

    /// Makes a receive queue of so many receives for several queue pairs.
    ///
    /// # Errors
    /// What the kernel says, for example that the device cannot hold as many.
    pub fn shared_receive_queue(self: &Arc<Self>, depth: u32) -> Result<Arc<SharedReceiveQueue>> {
        SharedReceiveQueue::new(self, depth)
    }

    /// The device.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_pd {
        self.domain.as_ptr()
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: regions and queue pairs hold the domain, so none is left.
        let rc = unsafe { self.context.verbs().ibv_dealloc_pd(self.domain.as_ptr()) };
        if rc != 0 {
            tracing::warn!(device = self.context.name(), rc, "ibv_dealloc_pd failed");
        }
    }
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProtectionDomain({})", self.context.name())
    }
}
