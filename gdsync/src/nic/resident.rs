//! Queues in the memory of their device, to which only kernels post: entries, doorbell record, completions and counters are a
//! few 100 ns away from them, where in pinned memory each look is a way over the bus and back. The CPU does not reach them. It
//! copies the beginning of the memory, which has counters and the last completion, when it wants to know how far they are.
//!
//! The order is that of pinned memory ([`QueueMemory`](super::queue_memory::QueueMemory)), and so is the content at first.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::completion_queue::CQE_WORDS;
use super::error::Result;
use super::words::Words;
use crate::cuda::device::lock;
use crate::memory::{Buffer, Space};

/// The pages that a driver exports of a GPU's memory, and those of an adapter's tables, begin at multiples of this.
const ALIGN: u64 = 64 << 10;
/// How old what is known lately is at most.
const LATELY: Duration = Duration::from_millis(1);

/// The memory.
pub(crate) struct Resident {
    queues: Buffer<u64>,
    bytes: Buffer<u8>,
    address: u64,
    look: Mutex<Look>,
}

/// What the CPU has seen of it.
pub(crate) struct Look {
    /// The head: the last words are those of the completion.
    head: Words,
    again: Words,
    word: Words,
    last: Option<Instant>,
}

impl Look {
    /// Word `at` of the memory, which is one of the head's.
    pub fn word(&self, at: usize) -> u64 {
        self.head.word(at).load(Ordering::Acquire)
    }

    /// Whether the completion says that something failed.
    fn is_error(&self) -> bool {
        matches!(self.word(self.head.len() - 1).to_ne_bytes()[7] >> 4, 13 | 14)
    }

    /// Whether two copies have the same completion.
    fn is_whole(&self) -> bool {
        let words = self.head.len() - CQE_WORDS..self.head.len();
        words.into_iter().all(|at| self.word(at) == self.again.word(at).load(Ordering::Acquire))
    }
}

impl Resident {
    /// Memory of the device of `first`, with the same words, whose completion of the send queue is at byte `completion`.
    pub fn new(first: &Words, completion: usize) -> Result<Resident> {
        let (device, len) = (first.buffer().device(), first.len());
        let all = Buffer::<u64>::new(device, Space::Device, len + ALIGN as usize / 8)?;
        let begin = all.device_address().unwrap_or_default();
        let skip = (begin.next_multiple_of(ALIGN) - begin) as usize / 8;
        let queues = all.slice(skip..skip + len)?;
        queues.write(&first.buffer().to_vec()?)?;
        let pinned = |words: usize| Words::new(Buffer::new(device, Space::Pinned, words)?);
        let head = completion / 8 + CQE_WORDS;
        let look = Look { head: pinned(head)?, again: pinned(head)?, word: pinned(1)?, last: None };
        let (bytes, address) = (queues.bytes(), begin.next_multiple_of(ALIGN));
        Ok(Resident { queues, bytes, address, look: Mutex::new(look) })
    }

    /// For an adapter to register.
    pub fn memory(&self) -> &Buffer<u8> {
        &self.bytes
    }

    /// Where it begins, for kernels.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Looks at the head. None if that was done `lately`, and that is enough; or if an error was overwritten meanwhile: the next look
    /// sees by what.
    pub fn look(&self, lately: bool) -> Result<Option<MutexGuard<'_, Look>>> {
        let mut look = lock(&self.look);
        let now = Instant::now();
        if lately && look.last.is_some_and(|last| now.saturating_duration_since(last) < LATELY) {
            return Ok(None);
        }
        look.last = Some(now);
        let head = self.queues.slice(0..look.head.len())?;
        head.bring_to(look.head.buffer())?;
        if look.is_error() {
            head.bring_to(look.again.buffer())?;
            if !look.is_whole() {
                return Ok(None);
            }
        }
        Ok(Some(look))
    }

    /// Word `at`.
    pub fn word(&self, at: usize) -> Result<u64> {
        let look = lock(&self.look);
        self.queues.slice(at..at + 1)?.bring_to(look.word.buffer())?;
        Ok(look.word.word(0).load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::time::Duration;

    use zerocopy::IntoBytes;

    use crate::Deadline;
    use crate::device::Device;
    use crate::memory::Buffer;
    use crate::nic::address::Address;
    use crate::nic::options::{CompletionMode, Posters, QueuePairOptions};
    use crate::nic::provider::Provider;
    use crate::nic::queue_memory::QueueMemory;
    use crate::nic::soft::{SoftNic, SoftNicOptions};
    use crate::nic::{DeviceQueuePair, Error, Nic, QueuePair, WireKind};
    use crate::wqe::{
        BLOCK_BYTES, Completion, CompletionKind, Cqe, Doorbell, DoorbellRecord, Entry, ErrorSide,
        Notify, Operation, Syndrome, WorkRequest, WqeOpcode,
    };

    const QPN: u32 = 0x1234;

    /// A NIC that does nothing: the test does it.
    struct Still(Address);

    impl Provider for Still {
        fn address(&self) -> &Address {
            &self.0
        }
        fn connect(&self, _: &Address, _: Option<WireKind>) -> Result<(), Error> {
            Ok(())
        }
        fn is_connected(&self) -> bool {
            true
        }
        fn lost(&self) -> Option<String> {
            None
        }
        fn rung(&self, _: bool) {}
        fn stopped(&self) -> Option<Error> {
            None
        }
    }

    /// What a kernel and an adapter see of a queue pair.
    struct Far {
        queues: Buffer<u8>,
        doorbell: Buffer<u64>,
        memory: QueueMemory,
        view: DeviceQueuePair,
    }

    impl Far {
        fn read(&self, address: u64, len: usize) -> Vec<u8> {
            self.part(address, len).to_vec().unwrap()
        }

        fn write(&self, address: u64, bytes: &[u8]) {
            self.part(address, bytes.len()).write(bytes).unwrap();
        }

        fn part(&self, address: u64, len: usize) -> Buffer<u8> {
            let at = (address - self.queues.device_address().unwrap()) as usize;
            self.queues.slice(at..at + len).unwrap()
        }

        /// As a kernel that posts does; `ring` does what comes after the entry is written.
        fn post(&self, block: u16, ring: &dyn Fn(&Far, Range<u64>)) {
            let mut entry = Entry::new();
            let request =
                WorkRequest { notify: Notify::Always, ..WorkRequest::new(Operation::Nop) };
            entry.encode(&WorkRequest { qpn: QPN, index: block, ..request }).unwrap();
            let (block, next) = (u64::from(block), u64::from(block) + 1);
            self.write(self.view.reserved, &next.to_ne_bytes());
            self.write(self.view.send_queue + block * BLOCK_BYTES as u64, entry.bytes());
            ring(self, block..next);
        }

        /// As an adapter reports the block.
        fn complete(&self, index: u16, syndrome: Option<Syndrome>) {
            let kind = match syndrome {
                None => CompletionKind::Request { opcode: WqeOpcode::Nop, byte_count: 0 },
                Some(syndrome) => CompletionKind::Error {
                    side: ErrorSide::Requester,
                    syndrome,
                    vendor: 0,
                    opcode: 0,
                },
            };
            let cqe = Cqe::encode(&Completion { qpn: QPN, index, user_index: 0, kind }, false);
            self.write(self.view.completion, cqe.unwrap().as_bytes());
        }
    }

    fn ring_by_cpu(far: &Far, blocks: Range<u64>) {
        far.write(far.view.send_record, &DoorbellRecord::word(blocks.end as u16));
        let doorbell = Doorbell { qpn: QPN, index: blocks.end as u16 };
        far.doorbell.write(&[u64::from_ne_bytes(doorbell.to_bytes())]).unwrap();
        far.write(far.view.published, &blocks.end.to_ne_bytes());
    }

    fn kernels_post_and_the_cpu_sees_how_far_they_are(
        device: &Device,
        ring: &dyn Fn(&Far, Range<u64>),
    ) {
        let options = QueuePairOptions {
            send_blocks: 64,
            send_completions: CompletionMode::Collapsed,
            posters: Posters::Kernels,
            ..QueuePairOptions::default()
        };
        let doorbell = device.alloc_pinned::<u64>(1).unwrap();
        let memory = QueueMemory::resident(device, &options, doorbell.clone()).unwrap();
        // Any will do: nobody connects to it.
        let nic = SoftNic::open(&SoftNicOptions::default()).unwrap();
        let another = nic.queue_pair(&Device::Host, &QueuePairOptions::default()).unwrap();
        let still = Box::new(Still(another.address().clone()));
        let queue = QueuePair::new(QPN, device, &options, memory.clone(), still).unwrap();
        let queues = memory.in_device_memory().unwrap().clone();
        let view = queue.device_view().unwrap();
        let far = Far { queues, doorbell, memory, view };

        // Where an adapter is told that they are, on pages of a GPU, and nothing of them elsewhere.
        let base = far.queues.device_address().unwrap();
        let layout = far.memory.layout;
        assert_eq!((base % super::ALIGN, far.queues.size()), (0, layout.len));
        assert_eq!(view.send_queue - base, layout.sends as u64);
        assert_eq!(view.completion - base, layout.send_completions as u64);
        assert_eq!(view.send_record - base, layout.record as u64 + 4);
        assert_eq!(view.doorbell, far.doorbell.device_address().unwrap());
        assert_eq!((view.blocks, view.qpn), (64, QPN));
        let refused = queue.post(&WorkRequest::new(Operation::Nop)).unwrap_err();
        assert!(refused.to_string().starts_with("queue pair 0x1234: only kernels of"), "{refused}");

        let soon = || Deadline::after(Duration::from_secs(10));
        assert!(queue.is_idle().unwrap());
        far.post(0, ring);
        assert!(!queue.is_idle().unwrap() && !queue.is_complete(0).unwrap());
        let record = far.read(view.send_record, 4);
        assert_eq!(record, DoorbellRecord::word(1));
        let rung = far.doorbell.to_vec().unwrap()[0].to_ne_bytes();
        assert_eq!(Doorbell::from_bytes(rung), Doorbell { qpn: QPN, index: 1 });
        assert_eq!(far.read(view.published, 8), 1u64.to_ne_bytes());
        far.complete(0, None);
        queue.wait(0, soon()).unwrap();
        assert!(queue.is_idle().unwrap() && queue.check().is_ok());
        // More than the 16 bits of an index later, which a kernel has counted.
        far.write(view.completed, &70_001u64.to_ne_bytes());
        far.write(view.reserved, &70_001u64.to_ne_bytes());
        far.complete(70_000u64 as u16, None);
        queue.wait(70_000, soon()).unwrap();
        assert!(queue.is_idle().unwrap());
        // What fails is known within a millisecond, and what was before it is complete.
        far.write(view.reserved, &70_003u64.to_ne_bytes());
        far.complete(70_002u64 as u16, Some(Syndrome::RemoteAccess));
        let failed = queue.wait(70_002, soon()).unwrap_err();
        assert!(
            matches!(failed, Error::Failed { syndrome: Syndrome::RemoteAccess, .. }),
            "{failed}"
        );
        assert!(queue.is_complete(70_001).unwrap() && queue.check().is_err());
    }

    #[test]
    fn queues_in_the_memory_of_the_device() {
        kernels_post_and_the_cpu_sees_how_far_they_are(&Device::Host, &ring_by_cpu);
    }

    /// The doorbell is rung by a kernel, through the view.
    #[test]
    #[ignore = "needs a GPU"]
    fn queues_in_the_memory_of_a_gpu() {
        let device = Device::cuda(0).unwrap();
        let stream = device.stream().unwrap();
        kernels_post_and_the_cpu_sees_how_far_they_are(&device, &|far, blocks| {
            let rung = stream.ring_by_kernel(&far.view, blocks, Duration::from_secs(5));
            rung.expect("a stream of a GPU").unwrap();
            stream.synchronize(Deadline::after(Duration::from_secs(10))).unwrap();
        });
    }
}
