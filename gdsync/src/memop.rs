//! Memory operations of a stream: writes, waits and barriers on single words, enqueued in one driver call.

use crate::error::Result;
use crate::memory::word::{Word32, Word64};

/// At most this many operations go to the driver at once; `cuStreamBatchMemOp` documents "less than 256".
pub const MAX_BATCH: usize = 255;

/// One memory operation on a stream.
///
/// Operations of a batch run in order. A write becomes visible at system scope after everything the stream did
/// before it; everything the stream does after a wait sees what was written before the awaited value.
#[derive(Debug, Clone, Copy)]
pub enum MemOp<'a> {
    /// Stores a 32-bit value.
    Write32(&'a Word32, u32),
    /// Stores a 64-bit value.
    Write64(&'a Word64, u64),
    /// Blocks the stream until the word has reached the value in cyclic order:
    /// `(word - value) as i32 >= 0`.
    WaitGeq32(&'a Word32, u32),
    /// Blocks the stream until the word has reached the value in cyclic order:
    /// `(word - value) as i64 >= 0`.
    WaitGeq64(&'a Word64, u64),
    /// Orders all memory operations of the stream before it before all after it, at system scope.
    Barrier,
}

impl MemOp<'_> {
    /// Whether it can block the stream.
    pub fn is_wait(&self) -> bool {
        matches!(self, MemOp::WaitGeq32(..) | MemOp::WaitGeq64(..))
    }

    /// The word's address for the device; 0 for a barrier.
    pub(crate) fn device_address(&self) -> Result<u64> {
        match self {
            MemOp::Write32(word, _) | MemOp::WaitGeq32(word, _) => word.device_address(),
            MemOp::Write64(word, _) | MemOp::WaitGeq64(word, _) => word.device_address(),
            MemOp::Barrier => Ok(0),
        }
    }
}
