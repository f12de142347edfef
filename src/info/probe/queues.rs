//! What every NIC whose queues a GPU reaches must do, on two queue pairs that are connected to each other: the same steps for the
//! software NIC as for an adapter, so that what is expected of hardware is tried without it.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use gdsync::nic::{Access, ByKernel, Error, MemoryRegion, Nic, QueuePair, Trigger};
use gdsync::wqe::{Notify, Operation, Payload, RemoteAddress, Syndrome, WorkRequest};
use gdsync::{Buffer, Deadline, Device, Space};

use super::Provider;

const WORDS: usize = 64;
/// The word that requests write and read.
const AT: usize = 1;

const PATIENCE: Duration = Duration::from_secs(5);

fn soon() -> Deadline {
    Deadline::after(PATIENCE)
}

/// Who rings.
#[derive(Clone, Copy)]
enum By {
    Cpu,
    Stream,
    Kernel,
}

/// Two connected queue pairs, and memory.
struct Pair<'a> {
    device: &'a Device,
    left: &'a QueuePair,
    memory: Buffer<u64>,
    region: MemoryRegion,
}

/// Tries everything on `left`, whose peer is a queue pair of the same NIC. At the end it is in the error state.
pub(super) fn self_test(
    provider: &mut Provider,
    nic: &dyn Nic,
    device: &Device,
    left: &QueuePair,
) -> Option<()> {
    let register = |space| -> Result<(Buffer<u64>, MemoryRegion)> {
        let memory = Buffer::<u64>::new(device, space, WORDS)?;
        // A GPU's own memory only as far as every NIC can: without atomics of peers.
        let access = match space {
            Space::Device => Access::REMOTE_READ | Access::REMOTE_WRITE,
            _ => Access::ALL,
        };
        let region = nic.register(&memory.bytes(), access)?;
        Ok((memory, region))
    };
    let keys = |(_, region): &(Buffer<u64>, MemoryRegion)| format!("key {:#x}", region.lkey());
    let (memory, region) =
        provider.expect("register pinned memory", "a key", || register(Space::Pinned), keys)?;
    let pair = Pair { device, left, memory, region };
    pair.nothing(provider);
    pair.write(provider, "RDMA_WRITE, inline data, rung by the CPU", 41, By::Cpu, None);
    pair.write(provider, "RDMA_WRITE, inline data, rung by a stream", 42, By::Stream, None);
    if matches!(device, Device::Cuda(_)) {
        pair.write(provider, "RDMA_WRITE, inline data, doorbell by a kernel", 44, By::Kernel, None);
        let far = provider.expect("register GPU memory", "a key", || register(Space::Device), keys);
        if let Some(far) = &far {
            pair.write(
                provider,
                "RDMA_WRITE to GPU memory, rung by a stream",
                43,
                By::Stream,
                Some(far),
            );
            let what = "RDMA_WRITE to GPU memory, doorbell by a kernel";
            pair.write(provider, what, 45, By::Kernel, Some(far));
        }
    }
    pair.error(provider)?;
    pair.flushed(provider)
}

impl Pair<'_> {
    /// Posts a request and waits for its completion.
    fn complete(&self, operation: Operation<'_>, by: By) -> Result<()> {
        let request = WorkRequest { notify: Notify::Always, ..WorkRequest::new(operation) };
        let prepared = self.left.prepare(&request)?;
        let position = prepared.position();
        match by {
            By::Cpu => {
                self.left.ring(prepared, soon())?;
                self.left.wait(position, soon())?;
            }
            By::Stream => {
                let stream = self.device.stream()?;
                stream.ring(self.left, prepared)?;
                self.left.wait(position, soon())?;
                stream.synchronize(soon())?;
            }
            By::Kernel => {
                let stream = self.device.stream()?;
                ByKernel(&stream, PATIENCE).ring(self.left, prepared)?;
                // What the kernel says comes first: without a doorbell there is no completion.
                stream.synchronize(soon())?;
                self.left.wait(position, soon())?;
            }
        }
        Ok(())
    }

    fn nothing(&self, provider: &mut Provider) {
        let began = Instant::now();
        let attempt = || self.complete(Operation::Nop, By::Cpu);
        provider.expect("NOP rung by the CPU", "a completion", attempt, |()| after(began));
    }

    /// Writes one word to pinned memory, or to `far`.
    fn write(
        &self,
        provider: &mut Provider,
        what: &str,
        value: u64,
        by: By,
        far: Option<&(Buffer<u64>, MemoryRegion)>,
    ) {
        let began = Instant::now();
        let attempt = || -> Result<()> {
            let remote = far.map_or(&self.region, |(_, region)| region).remote(8 * AT as u64);
            let bytes = value.to_ne_bytes();
            let payload = Payload::Inline(&bytes);
            self.complete(Operation::Write { remote, payload, imm: None }, by)?;
            let memory = far.map_or(&self.memory, |(memory, _)| memory);
            match memory.to_vec()?[AT] {
                found if found == value => Ok(()),
                found => bail!("a completion, but memory holds {found}"),
            }
        };
        let expected = format!("a completion, and {value} in memory");
        provider.expect(what, &expected, attempt, |()| after(began));
    }

    /// A key that nobody gave out.
    fn error(&self, provider: &mut Provider) -> Option<()> {
        let own = self.region.remote(0);
        let remote = RemoteAddress { rkey: !own.rkey, ..own };
        let write = Operation::Write { remote, payload: Payload::Inline(&[0; 8]), imm: None };
        self.refused(provider, "RDMA_WRITE with a wrong key", write, Syndrome::RemoteAccess)
    }

    /// After an error nothing is executed.
    fn flushed(&self, provider: &mut Provider) -> Option<()> {
        self.refused(provider, "NOP after that error", Operation::Nop, Syndrome::Flushed)
    }

    fn refused(
        &self,
        provider: &mut Provider,
        what: &str,
        operation: Operation<'_>,
        expected: Syndrome,
    ) -> Option<()> {
        let attempt = || match self.complete(operation, By::Cpu) {
            Ok(()) => Err(anyhow!("a completion without an error")),
            Err(error) => match error.downcast::<Error>() {
                // A reader that has seen the first error tells it of all that came after.
                Ok(Error::Failed { syndrome, .. })
                    if syndrome == expected || expected == Syndrome::Flushed =>
                {
                    Ok(syndrome)
                }
                Ok(other) => Err(other.into()),
                Err(other) => Err(other),
            },
        };
        let wanted = match expected {
            Syndrome::Flushed => "an error, not executed".to_owned(),
            other => format!("the error \"{other}\""),
        };
        provider.expect(what, &wanted, attempt, |syndrome| format!("\"{syndrome}\"")).map(drop)
    }
}

fn after(began: Instant) -> String {
    format!("after {:.1} µs", began.elapsed().as_secs_f64() * 1e6)
}
