//! Where a queue pair is found: plain data, sent to the peer by whatever means, which connects to it.

use serde::{Deserialize, Serialize};

use super::{mlx5::address as mlx5, soft::address as soft};

/// Where a queue pair is found. Only a queue pair of a NIC of the same kind can be connected to it.
///
/// See [`soft`](super::soft) for an example.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address(Of);

/// Of which NIC. One variant for each provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Of {
    Soft(soft::QueuePairAddress),
    Mlx5(mlx5::QueuePairAddress),
}

impl Address {
    pub(super) fn of_soft(address: soft::QueuePairAddress) -> Address {
        Address(Of::Soft(address))
    }

    pub(super) fn of_mlx5(address: mlx5::QueuePairAddress) -> Address {
        Address(Of::Mlx5(address))
    }

    /// The address of a queue pair of the software NIC; of another, why it cannot be reached from there.
    pub(super) fn soft(&self) -> Result<&soft::QueuePairAddress, String> {
        match &self.0 {
            Of::Soft(address) => Ok(address),
            Of::Mlx5(_) => {
                Err("the peer's is one of an mlx5 adapter, this of the software NIC".into())
            }
        }
    }

    /// The address of a queue pair of an mlx5 adapter; of another, why it cannot be reached from there.
    pub(super) fn mlx5(&self) -> Result<&mlx5::QueuePairAddress, String> {
        match &self.0 {
            Of::Mlx5(address) => Ok(address),
            Of::Soft(_) => {
                Err("the peer's is one of the software NIC, this of an mlx5 adapter".into())
            }
        }
    }
}
