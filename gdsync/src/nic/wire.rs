//! What carries a connection between two queue pairs.

use serde::{Deserialize, Serialize};

/// What carries a connection.
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
