//! A receive queue that several queue pairs share: memory for what may arrive once, not once for each peer.

use super::error::{Error, Result, last_errno, returned_errno};
use super::in_flight::SharedReceives;
use super::memory_region::RegionSlice;
use super::post::{Pieces, Room};
use super::protection_domain::ProtectionDomain;
use gdsync_sys::ibv_post_srq_recv;
use gdsync_sys::verbs::{ibv_recv_wr, ibv_srq, ibv_srq_attr, ibv_srq_init_attr};
use std::fmt;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

/// A shared receive queue. A message takes the receive that was posted first, whichever queue pair it arrives at; the
/// completion comes to that one's completion queue, with the receive's identification.
///
/// ```no_run
/// use gdsync::verbs::{self, Access, QueuePairOptions};
/// use gdsync::{Buffer, Device, Space};
///
/// let context = verbs::device(None)?.open()?;
/// let domain = context.protection_domain()?;
/// let receives = domain.shared_receive_queue(64)?;
/// let buffer = Buffer::<u8>::new(&Device::Host, Space::Host, 64 * 4096)?;
/// let region = domain.register(&buffer, Access::LOCAL)?;
/// for number in 0..64 {
///     receives.post(number as u64, &[region.slice(number * 4096..(number + 1) * 4096)?])?;
/// }
/// let completions = context.completion_queue(64)?;
/// let options = QueuePairOptions::default();
/// let one = domain.queue_pair_sharing(&receives, &completions, &completions, &options)?;
/// let two = domain.queue_pair_sharing(&receives, &completions, &completions, &options)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SharedReceiveQueue {
    queue: NonNull<ibv_srq>,
    depth: u32,
    domain: Arc<ProtectionDomain>,
    /// Last: the memory of receives is let go after the queue is destroyed.
    pub(super) receives: Arc<SharedReceives>,
}

// SAFETY: libibverbs serialises the calls on a shared receive queue.
unsafe impl Send for SharedReceiveQueue {}
// SAFETY: as above.
unsafe impl Sync for SharedReceiveQueue {}

impl SharedReceiveQueue {
    pub(super) fn new(domain: &Arc<ProtectionDomain>, depth: u32) -> Result<Arc<Self>> {
        let context = domain.context();
        let attr = ibv_srq_attr { max_wr: depth, max_sge: 1, srq_limit: 0 };
        let mut attr = ibv_srq_init_attr { srq_context: null_mut(), attr };
        // SAFETY: the domain is alive, and the new queue keeps it so.
        let queue = unsafe { context.verbs().ibv_create_srq(domain.as_ptr(), &mut attr) };
        let queue = NonNull::new(queue).ok_or_else(|| {
            context.failed("ibv_create_srq", &format!("{depth} receives"), last_errno())
        })?;
        let receives = Arc::new(SharedReceives::new(depth));
        Ok(Arc::new(Self { queue, depth, domain: domain.clone(), receives }))
    }

    /// Posts a receive for one message, into at most one piece of memory. The memory is in use until the completion.
    ///
    /// # Errors
    /// [`Error::Full`] if as many are posted as it was made for; what the library says.
    pub fn post(&self, id: u64, into: &[RegionSlice]) -> Result<()> {
        let mut pieces = Pieces::new(into, Room { segments: 1, inline: 0 })?;
        let number = self.receives.push(id, pieces.take_held());
        let number = number.ok_or(Error::Full { depth: self.depth })?;
        let (sg_list, num_sge) = pieces.sges();
        let mut wr = ibv_recv_wr { wr_id: number, next: null_mut(), sg_list, num_sge };
        let mut bad = null_mut();
        // SAFETY: the request and its pieces live across the call; the memory behind the pieces is held.
        let rc = unsafe { ibv_post_srq_recv(self.queue.as_ptr(), &mut wr, &mut bad) };
        if rc != 0 {
            self.receives.complete(number);
            let context = self.domain.context();
            return Err(context.failed("ibv_post_srq_recv", "a receive", returned_errno(rc)));
        }
        Ok(())
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_srq {
        self.queue.as_ptr()
    }
}

impl Drop for SharedReceiveQueue {
    fn drop(&mut self) {
        let context = self.domain.context();
        // SAFETY: queue pairs hold the queue, so none is left.
        let rc = unsafe { context.verbs().ibv_destroy_srq(self.queue.as_ptr()) };
        if rc != 0 {
            tracing::warn!(device = context.name(), rc, "ibv_destroy_srq failed");
        }
    }
}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedReceiveQueue({}, {})", self.domain.context().name(), self.depth)
    }
}
