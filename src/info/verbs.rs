//! RDMA devices as libibverbs shows them.

use gdsync::verbs;
use serde::Serialize;

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
    pub(super) fn collect() -> RdmaDevices {
        match verbs::devices() {
            Ok(devices) if devices.is_empty() => RdmaDevices {
                missing: Some("libibverbs shows no RDMA device".into()),
                devices: Vec::new(),
            },
            Ok(devices) => RdmaDevices {
                missing: None,
                devices: devices.iter().map(RdmaDevice::look_at).collect(),
            },
            Err(error) => RdmaDevices { missing: Some(error.to_string()), devices: Vec::new() },
        }
    }
}

impl RdmaDevice {
    fn look_at(device: &verbs::Device) -> RdmaDevice {
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
        RdmaDevice { name: device.name(), guid: format!("{:016x}", device.guid()), error, ports }
    }
}
