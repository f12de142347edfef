//! Verbs devices: two queue pairs of one device connected to each other, every operation, through libibverbs.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Error, Result};
use gdsync::verbs::{
    self, Access, CompletionQueue, Context, Done, MemoryRegion, Port, PortChoice, ProtectionDomain,
    QueuePair, QueuePairOptions, ReadyToSend, RetryPolicy, SendOperation, SendRequest,
};
use gdsync::wqe::RemoteAddress;
use gdsync::{Buffer, Deadline, Device, Space};

use super::Provider;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(5))
}

/// Every verbs device, or the one called `name`, or why there is none.
pub(super) fn probe(name: Option<&str>, port: &PortChoice) -> (Vec<Provider>, Option<String>) {
    match verbs::devices() {
        Err(error) => (Vec::new(), Some(error.to_string())),
        Ok(devices) if devices.is_empty() => {
            (Vec::new(), Some("libibverbs shows no RDMA device".into()))
        }
        Ok(devices) => {
            let wanted =
                devices.iter().filter(|found| name.is_none_or(|name| name == found.name()));
            let found: Vec<Provider> = wanted.map(|found| device(found, port)).collect();
            let nothing =
                found.is_empty().then(|| format!("no device {}", name.unwrap_or_default()));
            (found, nothing)
        }
    }
}

fn device(device: &verbs::Device, port: &PortChoice) -> Provider {
    let mut provider = Provider::new(format!("verbs, {}", device.name()));
    if let Some(ends) = Ends::make(&mut provider, device, port) {
        ends.every_operation(&mut provider);
    }
    provider
}

/// Two connected queue pairs with a completion queue and 64 words of memory each.
struct Ends {
    left: QueuePair<ReadyToSend>,
    right: QueuePair<ReadyToSend>,
    left_done: Arc<CompletionQueue>,
    right_done: Arc<CompletionQueue>,
    local: Arc<MemoryRegion>,
    remote: Arc<MemoryRegion>,
}

const BYTES: usize = 512;

impl Ends {
    fn make(provider: &mut Provider, device: &verbs::Device, choice: &PortChoice) -> Option<Ends> {
        let context: Arc<Context> = provider.step(
            "open the device",
            || device.open(),
            |context| format!("{} ports", context.limits().ports),
        )?;
        let port: Port = provider.step(
            "choose a port and a GID",
            || context.port(choice),
            |port| {
                let gid = port.gid.map_or("no GID".to_owned(), |gid| gid.to_string());
                format!(
                    "port {}, {}, MTU {}, {gid}",
                    port.number,
                    port.link_layer,
                    port.mtu.bytes()
                )
            },
        )?;
        let domain: Arc<ProtectionDomain> = provider.step(
            "make a protection domain",
            || context.protection_domain(),
            |_| String::new(),
        )?;
        let register = || {
            let buffer = Buffer::<u8>::new(&Device::Host, Space::Host, BYTES)?;
            Ok::<_, Error>(domain.register(&buffer, Access::ALL)?)
        };
        let (local, remote) = provider.step(
            "register memory",
            || Ok::<_, Error>((register()?, register()?)),
            |(local, remote)| format!("keys {:#x} and {:#x}", local.lkey(), remote.rkey()),
        )?;
        let (left_done, right_done) = provider.step(
            "make completion queues",
            || Ok::<_, Error>((context.completion_queue(16)?, context.completion_queue(16)?)),
            |(left, _)| format!("of {} entries", left.capacity()),
        )?;
        let make = |done: &Arc<CompletionQueue>| {
            let made = domain.queue_pair(done, done, &QueuePairOptions::default())?;
            made.init(&port, Access::ALL)
        };
        let (left, right) = provider.step(
            "make two queue pairs",
            || Ok::<_, Error>((make(&left_done)?, make(&right_done)?)),
            |(left, right)| format!("numbers {:#x} and {:#x}", left.number(), right.number()),
        )?;
        let (to_left, to_right) = (right.endpoint(), left.endpoint());
        let policy = RetryPolicy::default();
        let (left, right) = provider.step(
            "connect them",
            || {
                let left = left.connect(&to_left)?.ready_to_send(&policy)?;
                Ok::<_, Error>((left, right.connect(&to_right)?.ready_to_send(&policy)?))
            },
            |_| "ready to send".into(),
        )?;
        Some(Ends { left, right, left_done, right_done, local, remote })
    }

    /// Posts one request, waits for it, and compares the peer's first word and the local second one.
    fn one(
        &self,
        provider: &mut Provider,
        what: &str,
        expected: [u64; 2],
        request: SendOperation<'_>,
    ) {
        provider.request(what, expected, |began| -> Result<_> {
            self.left.post(&SendRequest::new(1, request))?;
            let completion = self.left_done.wait(soon())?;
            let done = (began.elapsed(), self.words()?);
            completion.outcome?;
            Ok(done)
        });
    }

    fn words(&self) -> gdsync::Result<[u64; 2]> {
        let word = |region: &MemoryRegion, at: usize| -> gdsync::Result<u64> {
            let bytes = region.memory().to_vec()?;
            Ok(u64::from_ne_bytes(std::array::from_fn(|k| bytes[8 * at + k])))
        };
        Ok([word(&self.remote, 0)?, word(&self.local, 1)?])
    }

    fn received(&self, provider: &mut Provider, expected: Done) {
        provider.step(
            "  its receive",
            || {
                let completion = self.right_done.wait(soon()).map_err(|error| error.to_string())?;
                match completion.outcome.map_err(|failure| failure.to_string())? {
                    done if done == expected => Ok(()),
                    other => Err(format!("the receive completed as {other:?}, not {expected:?}")),
                }
            },
            |()| "complete".into(),
        );
    }

    fn every_operation(&self, provider: &mut Provider) {
        let prepare = || -> Result<_> {
            self.local.memory().write(&1u64.to_ne_bytes().repeat(BYTES / 8))?;
            for id in 0..3 {
                self.right.post_receive(id, &[self.remote.slice(256..320)?])?;
            }
            let to: RemoteAddress = self.remote.remote().at(0, 8)?;
            Ok((self.local.slice(0..8)?, self.local.slice(8..16)?, to))
        };
        let prepared = provider.step("post three receives", prepare, |_| "of 64 bytes".into());
        let Some((first, second, to)) = prepared else { return };
        let (from, into) = ([first], [second.clone()]);
        self.one(
            provider,
            "RDMA_WRITE",
            [1, 1],
            SendOperation::Write { from: &from, to, imm: None },
        );
        let two = 2u64.to_ne_bytes();
        let inline = SendOperation::WriteInline { data: &two, to, imm: None };
        self.one(provider, "RDMA_WRITE, inline data", [2, 1], inline);
        let with_imm = SendOperation::Write { from: &from, to, imm: Some(5) };
        self.one(provider, "RDMA_WRITE_WITH_IMM", [1, 1], with_imm);
        self.received(provider, Done::ReceivedWrite { length: 8, imm: 5 });
        self.one(provider, "SEND", [1, 1], SendOperation::Send { from: &from, imm: None });
        self.received(provider, Done::Received { length: 8, imm: None });
        self.one(
            provider,
            "SEND_WITH_IMM",
            [1, 1],
            SendOperation::Send { from: &from, imm: Some(6) },
        );
        self.received(provider, Done::Received { length: 8, imm: Some(6) });
        let add = SendOperation::FetchAdd { word: to, add: 41, into: &second };
        self.one(provider, "FETCH_AND_ADD", [42, 1], add);
        let swap = SendOperation::CompareSwap { word: to, compare: 42, swap: 7, into: &second };
        self.one(provider, "CMP_AND_SWP", [7, 42], swap);
        self.one(provider, "RDMA_READ", [7, 7], SendOperation::Read { into: &into, from: to });
    }
}
