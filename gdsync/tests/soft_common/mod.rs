//! What the tests of the software NIC share: connected pairs, requests in few words.

#![allow(dead_code)] // Each test file uses its part.

pub mod operations;
pub mod process;
pub mod side;

use std::error::Error;
use std::time::Duration;

use gdsync::nic::soft::{SoftNic, SoftNicOptions};
use gdsync::nic::{Access, MemoryRegion, Nic, QueuePair, QueuePairOptions, WireKind};
use gdsync::verbs::{RdmaOptions, ZeroCopy};
use gdsync::wqe::{Notify, Operation, WorkRequest};
use gdsync::{Buffer, Deadline, Device};
use serde::{Deserialize, Serialize};

pub type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Long enough for any machine, short enough for a test that hangs.
pub fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

/// The ways from one queue pair to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// Shared memory, the peer's memory mapped.
    Mapped,
    /// Shared memory, everything in frames.
    Ring,
    /// TCP over the loopback interface.
    Tcp,
    /// The first RDMA device, which carries out writes, reads and atomics itself.
    Rdma,
    /// The same, with this side's memory going through the pool.
    RdmaStaged,
    /// The same device, everything in frames.
    RdmaFrames,
}

impl Way {
    pub fn wire(self) -> WireKind {
        match self {
            Way::Mapped | Way::Ring => WireKind::SharedMemory,
            Way::Tcp => WireKind::Tcp,
            Way::Rdma | Way::RdmaStaged | Way::RdmaFrames => WireKind::Rdma,
        }
    }

    /// A NIC for this way.
    pub fn nic(self) -> Outcome<SoftNic> {
        let listen = match self {
            Way::Tcp => Some("127.0.0.1:0".parse()?),
            _ => None,
        };
        let zero_copy = match self {
            Way::Rdma => Some(ZeroCopy::All),
            Way::RdmaStaged => Some(ZeroCopy::Staged),
            Way::RdmaFrames => Some(ZeroCopy::Off),
            _ => None,
        };
        let rdma = zero_copy.map(|zero_copy| RdmaOptions { zero_copy, ..RdmaOptions::default() });
        let map_peers = self == Way::Mapped;
        let options = SoftNicOptions { listen, rdma, map_peers, ..SoftNicOptions::default() };
        Ok(SoftNic::open(&options)?)
    }
}

/// Two connected queue pairs on two NICs of this process.
pub struct Pair {
    pub left: QueuePair,
    pub right: QueuePair,
    pub left_nic: SoftNic,
    pub right_nic: SoftNic,
}

impl Pair {
    pub fn new(way: Way, options: &QueuePairOptions) -> Outcome<Pair> {
        let (left_nic, right_nic) = (way.nic()?, way.nic()?);
        let left = left_nic.queue_pair(&Device::Host, options)?;
        let right = right_nic.queue_pair(&Device::Host, options)?;
        left.connect_over(right.address(), way.wire())?;
        right.connect_over(left.address(), way.wire())?;
        left.wait_connected(soon())?;
        right.wait_connected(soon())?;
        Ok(Pair { left, right, left_nic, right_nic })
    }
}

/// Registered pinned memory.
pub struct Memory {
    pub buffer: Buffer<u8>,
    pub region: MemoryRegion,
}

impl Memory {
    pub fn new(nic: &SoftNic, bytes: &[u8], access: Access) -> Outcome<Memory> {
        let buffer = Device::Host.alloc_pinned::<u8>(bytes.len())?;
        buffer.write(bytes)?;
        let region = nic.register(&buffer.bytes(), access)?;
        Ok(Memory { buffer, region })
    }

    pub fn bytes(&self) -> Outcome<Vec<u8>> {
        Ok(self.buffer.to_vec()?)
    }
}

/// A signaled request.
pub fn signaled(operation: Operation<'_>) -> WorkRequest<'_> {
    WorkRequest { notify: Notify::Always, ..WorkRequest::new(operation) }
}

/// Bytes that depend on `seed` and on where they are.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|k| (seed.wrapping_mul(31) ^ k ^ (k >> 8)) as u8).collect()
}
