//! What makes a NIC: the trait that those who communicate use, and the one below a queue pair, for those who add a NIC
//! (`docs/nic-provider.md`).

use std::fmt;

use super::address::Address;
use super::error::{Error, Result};
use super::memory_region::{Access, MemoryRegion};
use super::options::QueuePairOptions;
use super::queue_pair::QueuePair;
use super::wire::WireKind;
use crate::device::Device;
use crate::memory::Buffer;

/// A NIC: registers memory and makes queue pairs, any number of them for each peer.
///
/// It lives as long as itself, a queue pair or a region of it.
pub trait Nic: fmt::Debug + Send + Sync {
    /// What it is and can.
    fn capabilities(&self) -> &Capabilities;

    /// Registers memory: what `access` allows may be done with it until the region is dropped.
    ///
    /// The address of the first byte in requests is [`MemoryRegion::address`], which is the one that the buffer's device
    /// uses.
    ///
    /// # Errors
    /// [`Error::Register`] for memory that the NIC cannot reach, or not in that way; what the driver says.
    fn register(&self, memory: &Buffer<u8>, access: Access) -> Result<MemoryRegion>;

    /// Makes a queue pair whose queues `device` reaches, too.
    ///
    /// # Errors
    /// An option out of range; out of memory; what the driver says.
    fn queue_pair(&self, device: &Device, options: &QueuePairOptions) -> Result<QueuePair>;
}

/// What a NIC is and can.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// What it is called, for messages.
    pub name: String,
    /// What carries its connections.
    pub wires: Vec<WireKind>,
    /// Whether a GPU's own memory can be registered for atomics of peers.
    pub gpu_atomics: bool,
}

/// What a NIC does for one queue pair: it finds the peer, and executes what stands in the queues. It is dropped before
/// the memory of the queues, and then leaves them alone.
pub(crate) trait Provider: Send + Sync {
    /// Where peers find the queue pair.
    fn address(&self) -> &Address;

    /// Connects to the queue pair at `peer`, which connects, too; over the wire that both sides choose by themselves, or
    /// a given one. Returns at once.
    fn connect(&self, peer: &Address, wire: Option<WireKind>) -> Result<()>;

    /// Whether the peer has connected, too, as far as can be told.
    fn is_connected(&self) -> bool;

    /// Why the peer cannot be reached any more, if so.
    fn lost(&self) -> Option<String>;

    /// The CPU has rung: a NIC of threads may want to be woken.
    fn rung(&self);

    /// An error where requests can never complete any more, though no completion says so.
    fn stopped(&self) -> Option<Error>;
}
