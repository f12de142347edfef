//! Sizes of tagged messages, and which of them make sense.

use crate::error::{Error, Result};

/// Sizes, the same on every rank.
///
/// ```
/// use libmp::World;
/// use libmp::tagged::Options;
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// let messages = world.tagged(&Options { unexpected: 16 << 20, ..Options::default() })?;
/// # drop(messages);
/// # world.finish()
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The longest message, in bytes, that is sent before it is wanted. At most 64 KiB.
    pub eager_limit: usize,
    /// How much may lie unexpected at a rank of each other one: bytes, and 64 for each message. Beyond it senders wait.
    pub unexpected: usize,
    /// Bytes of the ring through which longer messages go, of each pair of ranks; `None`: by the number of ranks, 512 KiB for a few, and 8 MiB where one
    /// of them has opened a GPU before: room for four of its copies. A power of two from 4 KiB to 64 MiB.
    pub ring: Option<usize>,
    /// The most bytes that are copied at once between a device and host memory, from 4 KiB to 16 MiB; `None`: by what copies of several sizes take on
    /// this device, when it is first used ([`Staged::chunk`](super::Staged::chunk) says what came of it). Through a ring a copy has at most a quarter of it. Each rank says it
    /// for itself.
    pub chunk: Option<usize>,
    /// Whether also regions that the CPU reaches go the way of those that it does not, as on a machine where nothing is mapped: to measure
    /// that way, and to test it. Each rank says it for itself.
    pub staged: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { eager_limit: 8192, unexpected: 1 << 20, ring: None, chunk: None, staged: false }
    }
}

impl Options {
    pub(super) fn check(&self) -> Result<()> {
        let mismatch = |reason: String| Error::Mismatch { op: "tagged messages".into(), reason };
        if self.eager_limit > 64 << 10 {
            let reason = format!("an eager limit of {} bytes, at most 65536", self.eager_limit);
            return Err(mismatch(reason));
        }
        if let Some(chunk) = self.chunk.filter(|chunk| !(4096..=16 << 20).contains(chunk)) {
            return Err(mismatch(format!("a chunk of {chunk} bytes: from 4096 to 16 MiB")));
        }
        match self.ring {
            Some(ring) if !ring.is_power_of_two() || !(4096..=64 << 20).contains(&ring) => {
                Err(mismatch(format!("a ring of {ring} bytes: a power of two from 4096 to 64 MiB")))
            }
            _ => Ok(()),
        }
    }
}
