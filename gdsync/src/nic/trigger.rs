//! Who rings: the CPU, a stream, or a kernel. One queue takes all three; entries are rung in the order in which they
//! were prepared.
//!
//! The trigger of a kernel of one's own is `mp::ring` of `mp/qp.cuh`, with the [device view](QueuePair::device_view) of the queue.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::error::Result;
use super::queue_pair::{Prepared, QueuePair};
use crate::cuda::device::lock;
use crate::deadline::Deadline;
use crate::memop::{MemOp, Until};
use crate::stream::Stream;
use crate::wqe::DoorbellRecord;

/// Something that rings prepared entries.
///
/// ```
/// use std::time::Duration;
///
/// use gdsync::nic::soft::{SoftNic, SoftNicOptions};
/// use gdsync::nic::{Cpu, Nic, QueuePairOptions, Trigger};
/// use gdsync::wqe::{Notify, Operation, WorkRequest};
/// use gdsync::{Deadline, Device};
///
/// let nic = SoftNic::open(&SoftNicOptions::default())?;
/// let queue = nic.queue_pair(&Device::Host, &QueuePairOptions::default())?;
/// let peer = nic.queue_pair(&Device::Host, &QueuePairOptions::default())?;
/// queue.connect(peer.address())?;
/// peer.connect(queue.address())?;
///
/// let (stream, soon) = (Device::Host.stream()?, Deadline::after(Duration::from_secs(10)));
/// let nothing = WorkRequest { notify: Notify::Always, ..WorkRequest::new(Operation::Nop) };
/// // Prepared one after the other; rung by two of the three that can.
/// let (first, second) = (queue.prepare(&nothing)?, queue.prepare(&nothing)?);
/// let last = second.position();
/// Cpu(soon).ring(&queue, first)?;
/// stream.ring(&queue, second)?;
/// queue.wait(last, soon)?;
/// # Ok::<(), gdsync::nic::Error>(())
/// ```
pub trait Trigger {
    /// Gives the prepared entries of `queue` to the NIC, or arranges that it will happen.
    ///
    /// # Errors
    /// If the trigger cannot reach the queue, or the entries before are not rung in time.
    fn ring(&self, queue: &QueuePair, prepared: Prepared) -> Result<()>;
}

/// Rings now, from the calling thread; gives up at the deadline if entries before are not rung by then.
///
/// See [`Trigger`] for an example.
#[derive(Debug, Clone, Copy)]
pub struct Cpu(pub Deadline);

impl Trigger for Cpu {
    fn ring(&self, queue: &QueuePair, prepared: Prepared) -> Result<()> {
        queue.ring(prepared, self.0)
    }
}

/// Rings by a kernel of one thread when the stream gets there, as kernels ring that post by themselves: through the GPU's own path to
/// the doorbell. On a host stream, whose kernels are threads of the CPU, as the stream itself. The kernel waits until entries before
/// are rung, at most this long, which [`Stream::synchronize`] reports then.
///
/// See [`Trigger`] for an example.
#[derive(Debug, Clone, Copy)]
pub struct ByKernel<'a>(pub &'a Stream, pub Duration);

impl Trigger for ByKernel<'_> {
    fn ring(&self, queue: &QueuePair, prepared: Prepared) -> Result<()> {
        let ByKernel(stream, patience) = *self;
        let (view, blocks) = (queue.device_view()?, prepared.blocks());
        let mut send = lock(&queue.send);
        match stream.ring_by_kernel(&view, blocks, patience) {
            Some(launched) => {
                // Another stream does not know when the kernel has run.
                send.last_stream = None;
                Ok(launched?)
            }
            None => {
                drop(send);
                stream.ring(queue, prepared)
            }
        }
    }
}

impl Trigger for Stream {
    /// Rings when the stream gets there, by memory operations in one batch: doorbell record, barrier, doorbell. All
    /// that the stream did before is visible to the NIC then. If entries before may not be rung by that time, the
    /// stream waits for them first. A captured ring cannot be replayed: the entry is used up.
    fn ring(&self, queue: &QueuePair, prepared: Prepared) -> Result<()> {
        let blocks = prepared.blocks();
        let memory = queue.memory();
        let (record, doorbell, published) = memory.ring_words()?;
        // Held over the enqueuing, so that two threads cannot swap the order of their batches on one stream.
        let mut send = lock(&queue.send);
        let own = send
            .last_stream
            .as_ref()
            .is_some_and(|(name, end)| name == self.name() && *end == blocks.start);
        let next = u32::from_ne_bytes(DoorbellRecord::word(blocks.end as u16));
        let ring = [
            MemOp::Wait64(&published, Until::Geq(blocks.start)),
            MemOp::Write32(&record, next),
            MemOp::Barrier,
            MemOp::Write64(&doorbell, queue.doorbell_value(blocks.end)),
            MemOp::Write64(&published, blocks.end),
        ];
        let there = memory.published().load(Ordering::Acquire) >= blocks.start;
        self.batch(if own || there { &ring[1..] } else { &ring })?;
        send.last_stream = Some((self.name().to_owned(), blocks.end));
        Ok(())
    }
}
