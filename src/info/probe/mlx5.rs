//! mlx5 adapters: every step of making a queue pair that the GPU reaches, two of them connected to each other, and a
//! write rung by the CPU and, where there is a GPU, by its stream. This is what someone with the hardware runs first.

use std::time::{Duration, Instant};

use anyhow::{Error, Result, bail};
use gdsync::nic::mlx5::{IncomingWrites, Mlx5Nic};
use gdsync::nic::{Access, CompletionMode, Nic, QueuePair, QueuePairOptions, Trigger};
use gdsync::verbs::{self, PortChoice};
use gdsync::wqe::{Notify, Operation, Payload, WorkRequest};
use gdsync::{Buffer, CudaDevice, Deadline, Device, Driver, Space};

use super::Provider;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(5))
}

/// Every mlx5 adapter, from the first GPU if there is one.
pub(super) fn probe() -> Vec<Provider> {
    let names: Vec<String> = verbs::devices()
        .unwrap_or_default()
        .iter()
        .map(verbs::Device::name)
        .filter(|name| name.starts_with("mlx5"))
        .collect();
    let gpus = Driver::load().map_or(0, |driver| driver.device_count());
    let gpu = (gpus > 0).then(|| CudaDevice::open(0).ok()).flatten();
    names.iter().map(|name| adapter(name, gpu.as_ref())).collect()
}

fn adapter(name: &str, gpu: Option<&CudaDevice>) -> Provider {
    let device = gpu.map_or(Device::Host, |gpu| Device::Cuda(gpu.clone()));
    let mut provider = Provider::new(format!("mlx5, {name}, for {device}"));
    try_all(&mut provider, name, &device);
    provider
}

fn try_all(provider: &mut Provider, name: &str, device: &Device) -> Option<()> {
    let nic = provider.step(
        "open for DEVX, choose a port",
        || Mlx5Nic::open(Some(name), &PortChoice::default()),
        |nic| format!("port {}, {}", nic.port().number, nic.port().link_layer),
    )?;
    if let Device::Cuda(gpu) = device {
        let ask = || IncomingWrites::of(gpu);
        provider.step("writes of the adapter to GPU memory", ask, ToString::to_string)?;
    }
    let left = queue_pair(provider, &nic, device, "first queue pair")?;
    let right = queue_pair(provider, &nic, device, "second queue pair")?;
    provider.step(
        "connect them",
        || -> Result<()> {
            left.connect(right.address())?;
            Ok(right.connect(left.address())?)
        },
        |()| "ready to send".into(),
    )?;
    let memory = Buffer::<u64>::new(device, Space::Pinned, 64);
    let (memory, region) = provider.step(
        "register memory",
        || -> Result<_> {
            let memory = memory?;
            let region = nic.register(&memory.bytes(), Access::ALL)?;
            Ok((memory, region))
        },
        |(_, region)| format!("key {:#x}", region.lkey()),
    )?;
    let mut write = |what: &str, value: u64, by_stream: bool| {
        let began = Instant::now();
        let attempt = || -> Result<()> {
            let remote = region.remote(8);
            let bytes = value.to_ne_bytes();
            let payload = Payload::Inline(&bytes);
            let request = WorkRequest {
                notify: Notify::Always,
                ..WorkRequest::new(Operation::Write { remote, payload, imm: None })
            };
            let prepared = left.prepare(&request)?;
            let position = prepared.position();
            if by_stream {
                let stream = device.stream()?;
                stream.ring(&left, prepared)?;
                left.wait(position, soon())?;
                stream.synchronize(soon())?;
            } else {
                left.ring(prepared, soon())?;
                left.wait(position, soon())?;
            }
            match memory.to_vec()?[1] {
                found if found == value => Ok(()),
                found => bail!("completed, but memory holds {found}, expected {value}"),
            }
        };
        let took = |(): &()| format!("complete in {:.1} µs", began.elapsed().as_secs_f64() * 1e6);
        provider.step(what, attempt, took)
    };
    write("RDMA_WRITE rung by the CPU", 41, false)?;
    if matches!(device, Device::Cuda(_)) {
        write("RDMA_WRITE rung by a stream", 42, true)?;
    }
    Some(())
}

/// Makes one and notes every step.
fn queue_pair(
    provider: &mut Provider,
    nic: &Mlx5Nic,
    device: &Device,
    what: &'static str,
) -> Option<QueuePair> {
    let options = QueuePairOptions {
        send_completions: CompletionMode::Collapsed,
        ..QueuePairOptions::default()
    };
    let mut seen = Vec::new();
    let mut observer = |step: &'static str, got: String| seen.push((step, got));
    let made = nic.queue_pair_observed(device, &options, &mut observer);
    for (step, got) in seen {
        provider.step(format!("  {step}"), || Ok::<_, Error>(got), Clone::clone);
    }
    provider.step(what, || made, |pair| format!("number {:#x}", pair.qpn()))
}
