//! `mlx5`: queue pairs of an mlx5 adapter whose queues, completions and doorbell the GPU reaches.
//!
//! **Not yet run on hardware.** It is written against rdma-core's headers; the commands are tested byte by byte, the rest
//! is not. `mp-info --probe-nic` tries every step on the adapters of a machine and says what each got.
//!
//! Queues, doorbell record and counters are one pinned allocation as for the software NIC (see
//! [`GpuQueuePair`](super::GpuQueuePair)), registered with the adapter as DEVX memory; the doorbell register is a page
//! of the adapter's own, mapped for the GPU as I/O memory. Completion queues and queue pair are made by DEVX commands,
//! which are the only way to a collapsed completion queue. Data in completions (scatter-to-CQE) and compressed
//! completions are off, receives lie before sends.
//!
//! # Limits
//! On Ethernet (RoCE) the peer must be in the same segment: packets go to the address of its interface, not to a router.
//! Memory is registered through [`Mlx5Nic::domain`].

mod address;
mod command;
mod objects;
mod ordering;
mod queue_pair;

use std::sync::Arc;

use gdsync_sys::LoadError;

pub use address::QueuePairAddress;
pub use ordering::IncomingWrites;
pub use queue_pair::Mlx5QueuePair;

use crate::device::Device;
use crate::nic::options::QueuePairOptions;
use crate::verbs::{self, Port, PortChoice, ProtectionDomain};
use objects::Opened;

/// The result of every fallible call of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong with an mlx5 adapter.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// libmlx5 is not there, or too old.
    #[error(transparent)]
    Library(Arc<LoadError>),
    /// The device is of another kind.
    #[error("{device} is no mlx5 adapter: only their queues can be mapped for a GPU")]
    OtherDevice {
        /// The device.
        device: String,
    },
    /// A call of libibverbs or libmlx5 failed.
    #[error(transparent)]
    Verbs(#[from] verbs::Error),
    /// Memory, options, queues.
    #[error(transparent)]
    Nic(#[from] super::Error),
    /// A command was understood and refused.
    #[error("{device} does not make {what}: {why}")]
    Refused {
        /// What was asked for.
        what: &'static str,
        /// The device.
        device: String,
        /// What the firmware said.
        why: String,
    },
    /// There is no way to the peer.
    #[error("no route to the peer: {why}")]
    Route {
        /// The reason.
        why: String,
    },
}

impl From<crate::Error> for Error {
    fn from(error: crate::Error) -> Error {
        Error::Nic(error.into())
    }
}

/// What a step of making a queue pair got, for those who watch: name of the step, result in words.
pub type Observer<'a> = &'a mut dyn FnMut(&'static str, String);

/// An mlx5 adapter, opened for DEVX. Clones share it.
#[derive(Clone)]
pub struct Mlx5Nic {
    device: Arc<Opened>,
    port: Port,
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
        Ok(Mlx5Nic { device, port })
    }

    /// The protection domain, where memory for its queue pairs is registered: host memory, and memory of GPUs
    /// by dma-buf or nvidia-peermem.
    pub fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.device.domain
    }

    /// The port that queue pairs use.
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// Makes a queue pair whose queues `device` reaches, too.
    ///
    /// # Errors
    /// An option out of range; what the driver, the kernel or the firmware says.
    pub fn queue_pair(&self, device: &Device, options: &QueuePairOptions) -> Result<Mlx5QueuePair> {
        self.queue_pair_observed(device, options, &mut |_, _| {})
    }

    /// The same, telling `observer` of each step that succeeded.
    ///
    /// # Errors
    /// As [`Mlx5Nic::queue_pair`].
    pub fn queue_pair_observed(
        &self,
        device: &Device,
        options: &QueuePairOptions,
        observer: Observer<'_>,
    ) -> Result<Mlx5QueuePair> {
        Mlx5QueuePair::new(&self.device, &self.port, device, options, observer)
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
