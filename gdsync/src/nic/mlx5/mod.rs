//! `mlx5`: queue pairs of an mlx5 adapter whose queues, completions and doorbell the GPU reaches.
//!
//! **Not yet run on hardware.** It is written against rdma-core's headers; the commands are tested byte by byte, the rest
//! is not. `mp-info --probe-nic` tries every step on the adapters of a machine and says what each got.
//!
//! Queues, completions, doorbell record and counters are one allocation, registered with the adapter as DEVX memory: pinned, as for the
//! software NIC (see [`QueuePair`]); or, where only kernels post and the adapter reaches it, the GPU's own ([`Placement`]). The doorbell
//! register is a page of the adapter's own, mapped for the GPU as I/O memory. Completion queues and queue pair are made by DEVX commands,
//! which are the only way to a collapsed completion queue. Data in completions (scatter-to-CQE) and compressed
//! completions are off, receives lie before sends.
//!
//! On Ethernet (RoCE) packets go to the address that the kernel resolves for the peer's GID, a router's where there is one between.
//!
//! # Limits
//! Atomics on a GPU's own memory are atomic among requests of this adapter only.

pub(super) mod address;
mod command;
mod objects;
mod ordering;
mod placement;
mod queue_pair;

use std::sync::Arc;

pub use ordering::IncomingWrites;
pub use placement::Placement;
pub use queue_pair::Observer;

use super::error::Result;
use super::memory_region::{Access, Keys, MemoryRegion, Registration};
use super::options::QueuePairOptions;
use super::queue_pair::QueuePair;
use super::wire::WireKind;
use super::{Capabilities, Nic};
use crate::deadline::Deadline;
use crate::device::Device;
use crate::memory::Buffer;
use crate::verbs::{self, Port, PortChoice};
use objects::Opened;
use queue_pair::queue_pair;

/// An mlx5 adapter, opened for DEVX. Clones share it.
///
/// ```no_run
/// use gdsync::Device;
/// use gdsync::nic::mlx5::{IncomingWrites, Mlx5Nic};
/// use gdsync::nic::{Nic, QueuePairOptions};
/// use gdsync::verbs::PortChoice;
///
/// let nic = Mlx5Nic::open(None, &PortChoice::default())?; // the first adapter with an active port
/// let device = Device::cuda(0)?;
/// let queue = nic.queue_pair(&device, &QueuePairOptions::default())?;
/// if let Some(gpu) = device.as_cuda() {
///     println!("queue pair {:#x}; what it receives comes {}", queue.qpn(), IncomingWrites::of(gpu)?);
/// }
/// # Ok::<(), gdsync::nic::Error>(())
/// ```
#[derive(Clone)]
pub struct Mlx5Nic {
    device: Arc<Opened>,
    port: Port,
    capabilities: Arc<Capabilities>,
}

impl Mlx5Nic {
    /// Opens the adapter called `name`, or the first RDMA device.
    ///
    /// # Errors
    /// Where there is no RDMA device, it is no mlx5 adapter, DEVX is not allowed to this process, or no port is
    /// active: each in a sentence.
    pub fn open(name: Option<&str>, port: &PortChoice) -> Result<Mlx5Nic> {
        let device = Arc::new(Opened::open(&verbs::device(name)?)?);
        let port = device.context.port(port)?;
        let capabilities = Arc::new(Capabilities {
            name: device.context.name().to_owned(),
            wires: vec![WireKind::Rdma],
            gpu_atomics: true,
        });
        Ok(Mlx5Nic { device, port, capabilities })
    }

    /// The port that queue pairs use.
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// As [`Nic::queue_pair`], telling `observer` of each step that succeeded.
    ///
    /// # Errors
    /// As [`Nic::queue_pair`].
    pub fn queue_pair_observed(
        &self,
        device: &Device,
        options: &QueuePairOptions,
        observer: Observer<'_>,
    ) -> Result<QueuePair> {
        queue_pair(&self.device, &self.port, device, options, observer)
    }
}

impl Nic for Mlx5Nic {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn register(&self, memory: &Buffer<u8>, access: Access) -> Result<MemoryRegion> {
        let (domain, allowed) = (&self.device.domain, access.for_verbs());
        let region = domain.register_any(memory, allowed)?;
        let keys = Keys { lkey: region.lkey(), rkey: region.rkey() };
        let (address, len) = (region.remote().address, region.len() as u64);
        Ok(MemoryRegion::new(keys, address, len, Box::new(Registered { _region: region })))
    }

    fn queue_pair(&self, device: &Device, options: &QueuePairOptions) -> Result<QueuePair> {
        self.queue_pair_observed(device, options, &mut |_, _| {})
    }
}

/// Memory registered with an adapter.
struct Registered {
    _region: Arc<verbs::MemoryRegion>,
}

impl Registration for Registered {
    /// Once the kernel has taken the keys back, the adapter touches the memory no more.
    fn deregister(self: Box<Self>, _deadline: Deadline) -> Result<()> {
        Ok(())
    }
}

impl std::fmt::Debug for Mlx5Nic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mlx5Nic({})", self.device.context.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_an_adapter_says_so_in_one_sentence() {
        let Err(error) = Mlx5Nic::open(Some("no_such_adapter"), &PortChoice::default()) else {
            panic!("an adapter of that name");
        };
        let text = error.to_string();
        assert!(!text.is_empty() && !text.contains('\n'), "{text}");
    }
}
