//! A stretch of another rank's opened memory that the CPU of this rank alone writes, again and again: rings of envelopes and of bytes.
//! Nothing waits for what is written to have happened; what is seen of it is in order.

use gdsync::Buffer;

use super::Call;
use crate::error::Result;

/// Writes a stretch of another rank's memory in order. Offsets are bytes of the stretch, and whoever calls has checked them.
pub(crate) trait Channel: Send {
    /// Writes `len` bytes, which are copied now. They are there for whoever sees a later [`line`](Self::line).
    ///
    /// # Safety
    /// `len` bytes are valid for reads at `from`; others write them meanwhile at most as [`gdsync::Buffer::copy_from`] does.
    unsafe fn write(&mut self, at: usize, from: *const u8, len: usize) -> gdsync::Result<()>;

    /// Writes words at a multiple of 8 bytes, at most 8 of them. Who sees the first (acquire) sees the others, and all that was written before.
    /// Each of them is old or new. Waits for room if the way there is full.
    fn line(&mut self, call: &Call<'_>, at: usize, words: &[u64]) -> Result<()>;

    /// The stretch, if stores of this CPU are all that it takes to write it: [`line::store`](super::line::store) does then what [`line`](Self::line) does.
    fn words(&self) -> Option<Buffer<u64>> {
        None
    }
}
