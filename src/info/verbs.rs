//! RDMA devices as libibverbs shows them.

use gdsync::nic::Posters;
use gdsync::nic::mlx5::Placement;
use gdsync::{CudaDevice, Device, verbs};
use serde::Serialize;

use super::gpus::{Gpu, Gpus};

/// The RDMA devices of this machine.
#[derive(Debug, Serialize)]
pub struct RdmaDevices {
    /// Why there are none, or why some could not be asked.
    pub missing: Option<String>,
    /// The devices.
    pub devices: Vec<RdmaDevice>,
}

/// One RDMA device.
#[derive(Debug, Serialize)]
pub struct RdmaDevice {
    /// Name, such as `mlx5_0`.
    pub name: String,
    /// The device's own number, hexadecimal.
    pub guid: String,
    /// Why it could not be opened.
    pub error: Option<String>,
    /// Its ports.
    pub ports: Vec<RdmaPort>,
    /// Where the queues lie that kernels alone post to, a line for each device that may: an mlx5 adapter only.
    pub kernel_queues: Vec<String>,
}

/// One port.
#[derive(Debug, Serialize)]
pub struct RdmaPort {
    /// Number, from 1.
    pub number: u8,
    /// Whether it is up.
    pub active: bool,
    /// "InfiniBand" or "Ethernet".
    pub link_layer: String,
    /// Largest packet in bytes.
    pub mtu: u32,
    /// The GID that queue pairs would use.
    pub gid: Option<String>,
}

impl RdmaDevices {
    pub(super) fn collect(gpus: &Gpus) -> RdmaDevices {
        match verbs::devices() {
            Ok(devices) if devices.is_empty() => RdmaDevices {
                missing: Some("libibverbs shows no RDMA device".into()),
                devices: Vec::new(),
            },
            Ok(devices) => RdmaDevices {
                missing: None,
                devices: devices.iter().map(|device| RdmaDevice::look_at(device, gpus)).collect(),
            },
            Err(error) => RdmaDevices { missing: Some(error.to_string()), devices: Vec::new() },
        }
    }
}

impl RdmaDevice {
    fn look_at(device: &verbs::Device, gpus: &Gpus) -> RdmaDevice {
        let ports = device.open().and_then(|context| {
            let describe = |port: verbs::Port| {
                let choice = verbs::PortChoice { port: Some(port.number), ..Default::default() };
                let chosen = context.port(&choice).ok().and_then(|port| port.gid);
                RdmaPort {
                    number: port.number,
                    active: port.active,
                    link_layer: port.link_layer.to_string(),
                    mtu: port.mtu.bytes(),
                    gid: chosen.map(|gid| gid.to_string()),
                }
            };
            Ok(context.ports()?.into_iter().map(describe).collect())
        });
        let (ports, error) = match ports {
            Ok(ports) => (ports, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let (name, guid) = (device.name(), format!("{:016x}", device.guid()));
        let kernel_queues = if name.starts_with("mlx5") { kernel_queues(gpus) } else { Vec::new() };
        RdmaDevice { name, guid, error, ports, kernel_queues }
    }
}

/// Where an mlx5 adapter has the queues of kernels, and why.
fn kernel_queues(gpus: &Gpus) -> Vec<String> {
    let open = |gpu: &Gpu| CudaDevice::open(gpu.ordinal).ok().map(Device::Cuda);
    let mut devices: Vec<Device> = gpus.devices.iter().filter_map(open).collect();
    if devices.is_empty() {
        devices.push(Device::Host);
    }
    let line = |device: &Device| {
        format!("queues of kernels of {device}: {}", Placement::choose(device, Posters::Kernels))
    };
    devices.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_queues_of_kernels_lie_is_said_with_the_reason() {
        let none = Gpus { driver: None, missing: None, devices: Vec::new(), links: Vec::new() };
        let expected =
            "queues of kernels of host: in pinned memory: the host has no memory of its own";
        assert_eq!(kernel_queues(&none), [expected]);
    }
}
