//! What carries a connection between two queue pairs.

use serde::{Deserialize, Serialize};

/// What carries a connection.
///
/// ```
/// use gdsync::nic::soft::{SoftNic, SoftNicOptions};
/// use gdsync::nic::{Nic, WireKind};
///
/// let nic = SoftNic::open(&SoftNicOptions::default())?;
/// assert!(nic.capabilities().wires.contains(&WireKind::SharedMemory)); // TCP, too, if the options listen
/// # Ok::<(), gdsync::nic::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum WireKind {
    /// Memory that both processes map.
    SharedMemory,
    /// A TCP connection.
    Tcp,
    /// The network of RDMA adapters: InfiniBand or RoCE.
    Rdma,
}

impl std::fmt::Display for WireKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            WireKind::SharedMemory => "shared memory",
            WireKind::Tcp => "TCP",
            WireKind::Rdma => "RDMA",
        })
    }
}
