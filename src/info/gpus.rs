//! The CUDA driver, its GPUs, what each can do – partly asked, partly tried – and the links between them.

use std::time::Duration;

use gdsync::{Capabilities, CudaDevice, Deadline, Device, Driver, MemOp, PeerLink, Stream, Until};
use serde::Serialize;

/// The driver and its GPUs.
#[derive(Debug, Serialize)]
pub struct Gpus {
    /// CUDA version of the driver.
    pub driver: Option<String>,
    /// Why no GPU can be used, if none can.
    pub missing: Option<String>,
    /// The GPUs.
    pub devices: Vec<Gpu>,
    /// The links between each ordered pair of different GPUs.
    pub links: Vec<Link>,
}

/// One GPU.
#[derive(Debug, Serialize)]
pub struct Gpu {
    /// Ordinal in this process.
    pub ordinal: u32,
    /// Name.
    pub name: String,
    /// UUID in hexadecimal.
    pub uuid: String,
    /// What the driver says it can do.
    pub capabilities: Capabilities,
    /// What was tried just now.
    pub checks: Vec<Check>,
}

/// One thing that was tried.
#[derive(Debug, Serialize)]
pub struct Check {
    /// What.
    pub name: &'static str,
    /// The error, if it failed.
    pub error: Option<String>,
}

/// What one GPU can do with the memory of another.
#[derive(Debug, Serialize)]
pub struct Link {
    /// The GPU that reads and writes.
    pub from: u32,
    /// The GPU whose memory it is.
    pub to: u32,
    /// What the driver says.
    pub link: PeerLink,
}

impl Gpus {
    /// Looks at the GPUs of this machine, and tries some of what they say they can do.
    pub fn collect() -> Gpus {
        let mut gpus = Gpus { driver: None, missing: None, devices: Vec::new(), links: Vec::new() };
        let count = match Driver::load() {
            Ok(driver) => {
                gpus.driver = Some(driver.version());
                driver.device_count()
            }
            Err(error) => {
                gpus.missing = Some(error.to_string());
                return gpus;
            }
        };
        for ordinal in 0..count {
            match CudaDevice::open(ordinal) {
                Ok(device) => gpus.devices.push(Gpu::look_at(device)),
                Err(error) => gpus.missing = Some(format!("cuda:{ordinal}: {error}")),
            }
            for other in (0..count).filter(|other| *other != ordinal) {
                if let Ok(link) = PeerLink::between(ordinal, other) {
                    gpus.links.push(Link { from: ordinal, to: other, link });
                }
            }
        }
        if count == 0 {
            gpus.missing = Some("the CUDA driver sees no GPU".into());
        }
        gpus
    }

    /// What `from` can do with memory of `to`.
    pub fn link(&self, from: u32, to: u32) -> Option<&PeerLink> {
        self.links.iter().find(|link| (link.from, link.to) == (from, to)).map(|link| &link.link)
    }
}

impl Gpu {
    fn look_at(device: CudaDevice) -> Gpu {
        Gpu {
            ordinal: device.ordinal(),
            name: device.name().into(),
            uuid: device.uuid().iter().map(|byte| format!("{byte:02x}")).collect(),
            capabilities: device.capabilities().clone(),
            checks: checks(&Device::Cuda(device)),
        }
    }
}

/// Tries what the library builds on, each in well under a second.
fn checks(device: &Device) -> Vec<Check> {
    type Try = fn(&Device, &Stream) -> gdsync::Result<()>;
    let tries: [(&'static str, Try); 5] = [
        ("register shared host memory for the GPU", |device, _| {
            device.alloc_pinned::<u64>(1).map(drop)
        }),
        ("write, barrier and wait on a stream in one batch", |device, stream| {
            let word = device.alloc::<u64>(1)?.word(0)?;
            stream.batch(&[
                MemOp::Write64(&word, 1),
                MemOp::Barrier,
                MemOp::Wait64(&word, Until::Geq(1)),
            ])
        }),
        ("replay a captured graph with stream memory operations", |device, stream| {
            let word = device.alloc_pinned::<u64>(1)?.word(0)?;
            stream.begin_capture()?;
            let enqueued = stream.write64(&word, 1);
            let graph = stream.end_capture()?;
            enqueued?;
            stream.launch_graph(&graph)
        }),
        ("signal between kernels", |device, stream| {
            let word = device.alloc::<u64>(1)?.word(0)?;
            stream.signal(&word, 1)?;
            stream.wait_signal(&word, 1, Duration::from_secs(1))
        }),
        ("export device memory to another process", |device, _| {
            device.alloc::<u64>(1)?.export().map(drop)
        }),
    ];
    let run = |attempt: Try| -> gdsync::Result<()> {
        let stream = device.stream()?;
        attempt(device, &stream)?;
        stream.synchronize(Deadline::after(Duration::from_secs(2)))
    };
    tries
        .map(|(name, attempt)| Check {
            name,
            error: run(attempt).err().map(|error| error.to_string()),
        })
        .into()
}
