//! What a queue pair of the software NIC tells its peer so that the two can be connected.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::nic::wire::WireKind;
use crate::peer::PeerHandle;
use crate::verbs::Endpoint;

/// Where a queue pair is found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QueuePairAddress {
    pub(super) version: u32,
    pub(super) host: HostId,
    pub(super) qpn: u32,
    /// Tells this queue pair from all others ever.
    pub(super) token: u64,
    pub(super) pid: u32,
    /// Where the peer writes, if it may be connected over shared memory.
    pub(super) ring: Option<PeerHandle>,
    pub(super) tcp: Option<SocketAddr>,
    /// The port of the NIC's RDMA device, if it has one. Its `qp_num` is that of the queue pair for datagrams.
    pub(super) rdma: Option<Endpoint>,
}

impl QueuePairAddress {
    /// The wire that two queue pairs choose if nobody says otherwise: shared memory where both processes see the same
    /// machine; otherwise RDMA where both NICs have a device, and TCP where not.
    pub fn wire_to(&self, other: &QueuePairAddress) -> WireKind {
        match (self.host == other.host, &self.rdma, &other.rdma) {
            (true, ..) => WireKind::SharedMemory,
            (false, Some(own), Some(others)) if own.link_layer == others.link_layer => {
                WireKind::Rdma
            }
            _ => WireKind::Tcp,
        }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

/// A machine, as far as processes can map each other's memory: one boot of one kernel, one PID namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct HostId {
    boot: String,
    pid_namespace: u64,
}

impl HostId {
    pub fn own() -> Result<HostId> {
        let path = "/proc/sys/kernel/random/boot_id";
        let boot = std::fs::read_to_string(path).map_err(|e| Error::os("read", path, e))?;
        let path = "/proc/self/ns/pid";
        let namespace = rustix::fs::stat(path).map_err(|e| Error::os("stat", path, e))?;
        Ok(HostId { boot: boot.trim().to_owned(), pid_namespace: namespace.st_ino })
    }
}
