//! The formats of the mlx5 hardware queues: work-queue entries, completions, doorbells.
//!
//! This module turns typed requests into the bytes a ConnectX queue pair reads and back, and does nothing
//! else: no memory mapping, no system call, no barrier. The CPU's posting path, the hardware provider and
//! the software NIC share it; `mp/wqe.cuh` and `mp/cqe.cuh` are the same encoders for a kernel, and the
//! tests `mlx5_oracle` and `mlx5_cuda_header` hold all three against `<infiniband/mlx5dv.h>` and against
//! each other, byte for byte.
//!
//! # The shape of a send queue
//! A send queue is a ring of 64-byte *basic blocks*. An entry is a sequence of 16-byte *octowords* that
//! starts on a block: a control segment, then what its opcode asks for. All integers are big-endian.
//! The producer index counts blocks, modulo 2^16 whatever the size of the ring; an entry that reaches the
//! end of the ring continues at its beginning, and since every segment is a whole number of octowords, only
//! inline data can straddle the two.
//!
//! | request | segments |
//! |---|---|
//! | SEND, SEND_IMM | control, then data segments or one inline segment |
//! | WRITE, WRITE_IMM | control, remote address, then data segments or one inline segment |
//! | READ | control, remote address, data segments |
//! | ATOMIC_CS, ATOMIC_FA | control, remote address, atomic, one data segment of 8 bytes |
//! | NOP | control |
//! | DUMP | control, one data segment |
//!
//! # Examples
//! ```
//! use gdsync::wqe::{DataSegment, Entry, Notify, Operation, Payload, SendRing, WorkRequest};
//!
//! let mut ring = SendRing::new(vec![[0; 16]; 4 * 128])?;
//! let data = [DataSegment::new(0x11, 0x7f00_0000_0000, 4096)?];
//! let request = WorkRequest {
//!     qpn: 0x77,
//!     index: 5,
//!     notify: Notify::Always,
//!     ..WorkRequest::new(Operation::Send { payload: Payload::Gather(&data), imm: None })
//! };
//! let mut entry = Entry::new();
//! entry.encode(&request)?;
//! ring.store(&entry)?;
//!
//! let mut fetched = Entry::new();
//! ring.fetch(0x77, 5, &mut fetched)?;
//! assert_eq!(fetched.decode()?, request);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Source: `<infiniband/mlx5dv.h>` of rdma-core 44; what that header does not say is cited where it is used.

mod completion;
mod completion_queue;
mod decode;
mod doorbell;
mod encode;
mod entry;
mod flags;
mod opcode;
mod receive;
mod request;
mod ring;
mod segment;
mod syndrome;

pub use completion::{Completion, CompletionError, CompletionKind, Cqe, ErrorSide, Received};
pub use completion_queue::{CollapsedProgress, MAX_IN_FLIGHT, expected_owner, owned_by_software};
pub use decode::DecodeError;
pub use doorbell::{ArmRequest, CqDoorbellRecord, Doorbell, DoorbellRecord};
pub use encode::EncodeError;
pub use entry::Entry;
pub use flags::{Fence, Notify};
pub use opcode::{CqeOpcode, UnknownOpcode, WqeOpcode};
pub use receive::{ReceiveEntry, ReceiveError, ReceiveRing};
pub use request::{Operation, Payload, RemoteAddress, WorkRequest};
pub use ring::{Octoword, RingError, RingMemory, RingMemoryMut, SendRing};
pub use segment::{
    AtomicSegment, CtrlSegment, DataSegment, INLINE_FLAG, InlineHeader, RemoteSegment, SegmentError,
};
pub use syndrome::Syndrome;

/// Bytes of a basic block, the unit in which a send queue is indexed (`MLX5_SEND_WQE_BB`).
pub const BLOCK_BYTES: usize = 64;

/// Bytes of an octoword, the unit in which the size of an entry is counted.
pub const OCTOWORD_BYTES: usize = 16;

/// Octowords in a basic block.
pub const BLOCK_OCTOWORDS: usize = BLOCK_BYTES / OCTOWORD_BYTES;

/// Octowords in the largest entry: the size field has six bits (`MLX5_WQE_CTRL_DS_MASK` in rdma-core).
pub const MAX_ENTRY_OCTOWORDS: usize = 63;

/// Basic blocks of the largest send queue. More would make the 16-bit index of a completion ambiguous.
pub const MAX_QUEUE_BLOCKS: usize = 32768;

/// Queue pair numbers, key indices of completion queues and consumer indices have 24 bits.
pub const MAX_QPN: u32 = 0x00ff_ffff;

/// Basic blocks that an entry of `octowords` octowords takes, and so what its producer index advances by.
#[must_use]
pub const fn blocks(octowords: usize) -> usize {
    octowords.div_ceil(BLOCK_OCTOWORDS)
}
