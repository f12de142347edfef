//! mlx5 adapters: every step of making a queue pair that the GPU reaches, two of them connected to each other, and
//! the steps of [`queues`]. This is what someone with the hardware runs first.

use anyhow::{Error, Result};
use gdsync::nic::mlx5::{IncomingWrites, Mlx5Nic};
use gdsync::nic::{CompletionMode, Posters, QueuePair, QueuePairOptions};
use gdsync::verbs::{self, PortChoice};
use gdsync::{CudaDevice, Device, Driver};

use super::{Provider, queues};

/// Every mlx5 adapter, or the one called `name`, from the first GPU if there is one.
pub(super) fn probe(name: Option<&str>, port: &PortChoice) -> Vec<Provider> {
    let names: Vec<String> = verbs::devices()
        .unwrap_or_default()
        .iter()
        .map(verbs::Device::name)
        .filter(|found| name.map_or(found.starts_with("mlx5"), |name| name == found))
        .collect();
    let gpus = Driver::load().map_or(0, |driver| driver.device_count());
    let gpu = (gpus > 0).then(|| CudaDevice::open(0).ok()).flatten();
    names.iter().map(|name| adapter(name, port, gpu.as_ref())).collect()
}

fn adapter(name: &str, port: &PortChoice, gpu: Option<&CudaDevice>) -> Provider {
    let device = gpu.map_or(Device::Host, |gpu| Device::Cuda(gpu.clone()));
    let mut provider = Provider::new(format!("mlx5, {name}, for {device}"));
    try_all(&mut provider, name, port, &device);
    provider
}

fn try_all(provider: &mut Provider, name: &str, port: &PortChoice, device: &Device) -> Option<()> {
    let nic = provider.expect(
        "open for DEVX, choose a port",
        "an active port with a GID",
        || Mlx5Nic::open(Some(name), port),
        |nic| {
            let port = nic.port();
            let gid = port.gid.map_or("no GID".to_owned(), |gid| gid.to_string());
            format!("port {}, {}, {gid}", port.number, port.link_layer)
        },
    )?;
    if let Device::Cuda(gpu) = device {
        let ask = || IncomingWrites::of(gpu);
        let what = "writes of the adapter to GPU memory";
        provider.expect(what, "in order, or flushed by streams", ask, ToString::to_string)?;
    }
    let left = queue_pair(provider, &nic, device, Posters::All, "first queue pair")?;
    let right = queue_pair(provider, &nic, device, Posters::All, "second queue pair")?;
    connect(provider, &left, &right)?;
    // Whose queues a GPU has in its own memory, if it can be.
    let what = "a queue pair for kernels";
    if let Some(theirs) = queue_pair(provider, &nic, device, Posters::Kernels, what)
        && let Some(other) = queue_pair(provider, &nic, device, Posters::Kernels, "its peer")
    {
        connect(provider, &theirs, &other);
    }
    queues::self_test(provider, &nic, device, &left)
}

fn connect(provider: &mut Provider, left: &QueuePair, right: &QueuePair) -> Option<()> {
    provider.expect(
        "connect them to each other (RTR, RTS)",
        "both ready to send",
        || -> Result<()> {
            left.connect(right.address())?;
            Ok(right.connect(left.address())?)
        },
        |()| "ready to send".into(),
    )
}

/// Makes one and notes every step.
fn queue_pair(
    provider: &mut Provider,
    nic: &Mlx5Nic,
    device: &Device,
    posters: Posters,
    what: &'static str,
) -> Option<QueuePair> {
    let options = QueuePairOptions {
        send_completions: CompletionMode::Collapsed,
        posters,
        ..QueuePairOptions::default()
    };
    let mut seen = Vec::new();
    let mut observer = |step: &'static str, got: String| seen.push((step, got));
    let made = nic.queue_pair_observed(device, &options, &mut observer);
    for (step, got) in seen {
        provider.expect(format!("  {step}"), "made", || Ok::<_, Error>(got), Clone::clone);
    }
    provider.expect(what, "a number", || made, |pair| format!("number {:#x}", pair.qpn()))
}
