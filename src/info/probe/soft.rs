//! The software NIC: a queue pair connected to another one of the same process, over each of its wires, every opcode;
//! then, for each GPU, queues that the GPU's streams reach.

use std::time::{Duration, Instant};

use gdsync::nic::soft::{SoftNic, SoftNicOptions};
use gdsync::nic::{
    Access, CompletionMode, Error, MemoryRegion, Nic, QueuePair, QueuePairOptions, Result, WireKind,
};
use gdsync::wqe::{
    CompletionKind, Notify, Operation, Payload, Received, RemoteAddress, Syndrome, WorkRequest,
};
use gdsync::{Buffer, Deadline, Device};

use super::{Provider, queues};

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(5))
}

/// Every wire from the CPU, and one from each GPU.
pub(super) fn probe() -> Vec<Provider> {
    let mut providers = Vec::new();
    for (name, wire, map_peers) in [
        ("soft, shared memory", WireKind::SharedMemory, true),
        ("soft, shared memory without mapping the peer", WireKind::SharedMemory, false),
        ("soft, TCP", WireKind::Tcp, false),
    ] {
        let mut provider = Provider::new(name.into());
        if let Some(ends) = Ends::make(&mut provider, &Device::Host, wire, map_peers) {
            ends.every_opcode(&mut provider);
            ends.a_refusal(&mut provider);
        }
        providers.push(provider);
    }
    // What an adapter is asked to do, in the same words.
    let mut provider = Provider::new("soft, the steps of an adapter".into());
    if let Some(ends) = Ends::make(&mut provider, &Device::Host, WireKind::SharedMemory, true) {
        ends.self_test(&mut provider);
    }
    providers.push(provider);
    let gpus = gdsync::Driver::load().map_or(0, |driver| driver.device_count());
    for ordinal in 0..gpus {
        let mut provider = Provider::new(format!("soft, rung by cuda:{ordinal}"));
        let open = || gdsync::CudaDevice::open(ordinal);
        if let Some(gpu) = provider.step("open the GPU", open, |gpu| gpu.name().to_owned())
            && let Some(ends) =
                Ends::make(&mut provider, &Device::Cuda(gpu), WireKind::SharedMemory, true)
        {
            ends.self_test(&mut provider);
        }
        providers.push(provider);
    }
    providers
}

/// Two connected queue pairs and the memory that requests work on.
struct Ends {
    nic: SoftNic,
    device: Device,
    left: QueuePair,
    right: QueuePair,
    memory: Buffer<u64>,
    region: MemoryRegion,
    target: Buffer<u64>,
    remote: MemoryRegion,
}

const WORDS: usize = 64;

impl Ends {
    fn make(
        provider: &mut Provider,
        device: &Device,
        wire: WireKind,
        map_peers: bool,
    ) -> Option<Ends> {
        let listen = match wire {
            WireKind::Tcp => Some(([127, 0, 0, 1], 0).into()),
            _ => None,
        };
        let options = SoftNicOptions { listen, map_peers, ..SoftNicOptions::default() };
        let nic = provider.step(
            "start a NIC",
            || SoftNic::open(&options),
            |nic| match nic.listens() {
                Some(address) => format!("listens at {address}"),
                None => "one thread".into(),
            },
        )?;
        let options = QueuePairOptions {
            send_completions: CompletionMode::Collapsed,
            ..QueuePairOptions::default()
        };
        let (left, right) = provider.step(
            "make two queue pairs",
            || {
                Ok::<_, Error>((
                    nic.queue_pair(device, &options)?,
                    nic.queue_pair(device, &options)?,
                ))
            },
            |(left, right)| format!("numbers {:#x} and {:#x}", left.qpn(), right.qpn()),
        )?;
        let began = Instant::now();
        provider.step(
            "connect them",
            || {
                left.connect_over(right.address(), wire)?;
                right.connect_over(left.address(), wire)?;
                left.wait_connected(soon())?;
                right.wait_connected(soon())
            },
            |()| format!("in {:.1} ms", began.elapsed().as_secs_f64() * 1e3),
        )?;
        let register = |access| -> Result<(Buffer<u64>, MemoryRegion)> {
            let buffer = device.alloc_pinned::<u64>(WORDS)?;
            let region = nic.register(&buffer.bytes(), access)?;
            Ok((buffer, region))
        };
        let both = || Ok::<_, Error>((register(Access::LOCAL_WRITE)?, register(Access::ALL)?));
        let ((memory, region), (target, remote)) =
            provider.step("register memory", both, |((_, local), (_, remote))| {
                format!("keys {:#x} and {:#x}", local.lkey(), remote.rkey())
            })?;
        Some(Ends { nic, device: device.clone(), left, right, memory, region, target, remote })
    }

    /// Posts one request, waits for it, and compares the peer's first word and the local second one.
    fn one(
        &self,
        provider: &mut Provider,
        what: &str,
        expected: [u64; 2],
        operation: Operation<'_>,
    ) {
        provider.request(what, expected, |began| {
            let position = self.left.post(&signaled(operation))?;
            self.left.wait(position, soon())?;
            Ok::<_, Error>((began.elapsed(), self.words()?))
        });
    }

    fn words(&self) -> gdsync::Result<[u64; 2]> {
        Ok([self.target.to_vec()?[0], self.memory.to_vec()?[1]])
    }

    /// Takes the completion of a receive.
    fn received(&self, provider: &mut Provider, what: &str, expected: Received) {
        provider.step(
            what,
            || match self.right.wait_receive(soon()).map_err(|e| e.to_string())?.kind {
                CompletionKind::Receive { by, byte_count, .. } if by == expected => Ok(byte_count),
                other => Err(format!("the receive completed as {other:?}")),
            },
            |bytes| format!("{bytes} bytes"),
        );
    }

    fn every_opcode(&self, provider: &mut Provider) {
        let prepared = || -> Result<_> {
            self.memory.write(&[1; WORDS])?;
            let (first, second) = (self.region.segment(0, 8)?, self.region.segment(8, 8)?);
            for _ in 0..3 {
                self.right.receive(&[self.remote.segment(256, 64)?])?;
            }
            Ok((first, second))
        };
        let Some((first, second)) =
            provider.step("post three receives", prepared, |_| "of 64 bytes".into())
        else {
            return;
        };
        let remote: RemoteAddress = self.remote.remote(0);
        let pieces = [first];
        let payload = Payload::Gather(&pieces);
        let inline = 2u64.to_ne_bytes();
        let into = [second];
        self.one(provider, "NOP", [0, 1], Operation::Nop);
        self.one(provider, "RDMA_WRITE", [1, 1], Operation::Write { remote, payload, imm: None });
        let write = Operation::Write { remote, payload: Payload::Inline(&inline), imm: None };
        self.one(provider, "RDMA_WRITE, inline data", [2, 1], write);
        let write = Operation::Write { remote, payload, imm: Some(5) };
        self.one(provider, "RDMA_WRITE_IMM", [1, 1], write);
        self.received(provider, "  its receive", Received::WriteImm(5));
        self.one(provider, "SEND", [1, 1], Operation::Send { payload, imm: None });
        self.received(provider, "  its receive", Received::Send);
        self.one(provider, "SEND_IMM", [1, 1], Operation::Send { payload, imm: Some(6) });
        self.received(provider, "  its receive", Received::SendImm(6));
        let add = Operation::FetchAdd { remote, add: 41, into: second };
        self.one(provider, "ATOMIC_FA", [42, 1], add);
        let swap = Operation::CompareSwap { remote, compare: 42, swap: 7, into: second };
        self.one(provider, "ATOMIC_CS", [7, 42], swap);
        self.one(provider, "RDMA_READ", [7, 7], Operation::Read { remote, into: &into });
        self.one(provider, "DUMP", [7, 7], Operation::Dump { from: first });
    }

    fn self_test(&self, provider: &mut Provider) {
        // What failed is among the steps.
        let _ = queues::self_test(provider, &self.nic, &self.device, &self.left);
    }

    /// The last test: it ends the connection.
    fn a_refusal(&self, provider: &mut Provider) {
        let remote = RemoteAddress { rkey: !self.remote.rkey(), ..self.remote.remote(0) };
        let write = Operation::Write { remote, payload: Payload::Inline(&[0; 8]), imm: None };
        provider.expect(
            "a wrong key is refused",
            &Syndrome::RemoteAccess.to_string(),
            || {
                let position = self.left.post(&signaled(write)).map_err(|e| e.to_string())?;
                match self.left.wait(position, soon()) {
                    Err(Error::Failed { syndrome: Syndrome::RemoteAccess, .. }) => Ok(()),
                    Err(other) => Err(other.to_string()),
                    Ok(()) => Err("the write completed".to_owned()),
                }
            },
            |()| format!("{}", Syndrome::RemoteAccess),
        );
    }
}

fn signaled(operation: Operation<'_>) -> WorkRequest<'_> {
    WorkRequest { notify: Notify::Always, ..WorkRequest::new(operation) }
}
