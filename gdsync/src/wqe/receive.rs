//! Entries of a receive queue: a list of data segments, ended early by a terminator.
//!
//! A receive queue is a ring of entries of one size, its stride: a power of two of octowords, chosen for the
//! most segments a receive may have. Its index counts entries, modulo 2^16.

use super::ring::power_of_two;
use super::{DataSegment, Octoword, RingError, RingMemory, RingMemoryMut};
use zerocopy::transmute;

/// Most segments a receive may have here; ConnectX devices report at most 32 (`max_sge`).
const MAX_SEGMENTS: usize = 32;

/// Most entries of a receive queue.
const MAX_ENTRIES: usize = 32768;

/// A receive that does not fit the format, or bytes that are none.
///
/// See [`ReceiveRing`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// More segments than the stride of the queue holds.
    #[error("a receive of {segments} segments in a queue with room for {room}")]
    TooManySegments {
        /// What was given.
        segments: usize,
        /// What fits.
        room: usize,
    },
    /// A segment has the bit of inline data, which a receive cannot have.
    #[error("receive {index}: segment {at} has length field {byte_count:#010x}, bit 31 must be 0")]
    Inline {
        /// Index of the entry.
        index: u16,
        /// Which segment.
        at: usize,
        /// Its length field.
        byte_count: u32,
    },
}

/// The segments of one receive, copied out of the queue.
///
/// See [`ReceiveRing`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiveEntry {
    segments: [DataSegment; MAX_SEGMENTS],
    len: usize,
}

impl ReceiveEntry {
    /// A receive without segments, to be fetched into.
    #[must_use]
    pub const fn new() -> Self {
        Self { segments: [DataSegment::TERMINATOR; MAX_SEGMENTS], len: 0 }
    }

    /// Where the message goes, piece by piece.
    #[must_use]
    pub fn segments(&self) -> &[DataSegment] {
        &self.segments[..self.len]
    }

    /// Bytes that it has room for.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.segments().iter().map(|s| u64::from(s.length())).sum()
    }
}

impl Default for ReceiveEntry {
    fn default() -> Self {
        Self::new()
    }
}

/// A receive queue over `memory`.
///
/// ```
/// use gdsync::wqe::{DataSegment, ReceiveEntry, ReceiveRing};
///
/// // Sixteen receives of at most two pieces each.
/// let mut ring = ReceiveRing::new(vec![[0; 16]; 2 * 16], 2)?;
/// let pieces = [DataSegment::new(0x11, 0x1000, 64)?, DataSegment::new(0x11, 0x2000, 4096)?];
/// ring.store(3, &pieces)?;
/// let mut posted = ReceiveEntry::new();
/// ring.fetch(3, &mut posted)?;
/// assert_eq!((posted.segments(), posted.capacity()), (&pieces[..], 4160));
/// assert!(ring.store(4, &[pieces[0]; 3]).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct ReceiveRing<M> {
    memory: M,
    stride: usize,
}

impl<M: RingMemory> ReceiveRing<M> {
    /// A queue of all of `memory`, with entries of `stride` octowords.
    ///
    /// # Errors
    /// If the stride or the number of entries is not a power of two, or out of range.
    pub fn new(memory: M, stride: usize) -> Result<Self, RingError> {
        power_of_two("octowords of a receive entry", stride, MAX_SEGMENTS)?;
        let octowords = memory.octowords();
        if !octowords.is_multiple_of(stride) {
            return Err(RingError::Ragged { octowords, unit: stride });
        }
        power_of_two("entries of a receive queue", octowords / stride, MAX_ENTRIES)?;
        Ok(Self { memory, stride })
    }

    /// Entries.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.memory.octowords() / self.stride
    }

    /// The memory.
    #[must_use]
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Copies the receive at `index` out of the queue.
    ///
    /// # Errors
    /// If a segment is not one; `entry` then holds those before it.
    pub fn fetch(&self, index: u16, entry: &mut ReceiveEntry) -> Result<(), ReceiveError> {
        entry.len = 0;
        for at in 0..self.stride {
            let segment: DataSegment = transmute!(self.memory.load(self.position(index, at)));
            if segment == DataSegment::TERMINATOR {
                break;
            }
            if segment.is_inline() {
                let byte_count = segment.byte_count();
                return Err(ReceiveError::Inline { index, at, byte_count });
            }
            entry.segments[at] = segment;
            entry.len = at + 1;
        }
        Ok(())
    }

    fn position(&self, index: u16, at: usize) -> usize {
        (usize::from(index) & (self.entries() - 1)) * self.stride + at
    }
}

impl<M: RingMemoryMut> ReceiveRing<M> {
    /// Writes the receive at `index`, and a terminator if the entry has room for more segments.
    ///
    /// The caller knows that the entry is free.
    ///
    /// # Errors
    /// If there are more segments than the stride holds.
    pub fn store(&mut self, index: u16, segments: &[DataSegment]) -> Result<(), ReceiveError> {
        if segments.len() > self.stride {
            let (segments, room) = (segments.len(), self.stride);
            return Err(ReceiveError::TooManySegments { segments, room });
        }
        let list = segments.iter().chain([&DataSegment::TERMINATOR]);
        for (at, segment) in list.take(self.stride).enumerate() {
            let octoword: Octoword = transmute!(*segment);
            let at = self.position(index, at);
            self.memory.store(at, octoword);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_list_ends_with_a_terminator_and_a_full_one_with_the_entry() {
        let mut ring = ReceiveRing::new(vec![[0xee; 16]; 8], 2).unwrap();
        let one = DataSegment::new(0x0102_0304, 0x1112_1314_1516_1718, 0x2122).unwrap();
        ring.store(5, &[one]).unwrap();
        #[rustfmt::skip]
        let expected = [
            0, 0, 0x21, 0x22,  1, 2, 3, 4,  0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
            0, 0, 0, 0,  0, 0, 1, 0,  0, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(ring.memory()[2..4].as_flattened(), expected);
        let mut entry = ReceiveEntry::new();
        ring.fetch(5, &mut entry).unwrap();
        assert_eq!(entry.segments(), [one]);
        ring.store(5, &[one, one]).unwrap();
        ring.fetch(5, &mut entry).unwrap();
        assert_eq!((entry.segments(), entry.capacity()), (&[one, one][..], 2 * 0x2122));
        ring.store(5, &[]).unwrap();
        ring.fetch(5, &mut entry).unwrap();
        assert_eq!(entry.segments(), []);
        assert_eq!(ring.memory()[4..], [[0xee; 16]; 4], "the other entries are untouched");
    }

    #[test]
    fn too_long_a_list_and_inline_data_are_refused() {
        let mut ring = ReceiveRing::new(vec![[0x80; 16]; 8], 2).unwrap();
        let one = DataSegment::new(1, 2, 3).unwrap();
        let error = ReceiveError::TooManySegments { segments: 3, room: 2 };
        assert_eq!(ring.store(0, &[one; 3]), Err(error));
        let error = ReceiveError::Inline { index: 7, at: 0, byte_count: 0x8080_8080 };
        assert_eq!(ring.fetch(7, &mut ReceiveEntry::new()), Err(error));
    }

    #[test]
    fn a_ring_of_an_odd_shape_is_refused() {
        assert!(ReceiveRing::new(vec![[0; 16]; 8], 3).is_err());
        assert!(ReceiveRing::new(vec![[0; 16]; 6], 4).is_err());
        assert!(ReceiveRing::new(vec![[0; 16]; 6], 2).is_err());
        assert!(ReceiveRing::new(vec![[0; 16]; 64], 64).is_err());
        assert!(ReceiveRing::new(vec![[0; 16]; 0], 1).is_err());
    }
}
