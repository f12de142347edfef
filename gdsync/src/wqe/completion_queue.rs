//! Which completion is new: by the owner bit in a ring, by the index in a collapsed queue.
//!
//! A *ring* has one slot for each completion; the NIC flips the owner bit on every pass, so the reader knows
//! from the pass it is on whether a slot is new. A *collapsed* queue (`cqc.cc = 1`, overrun ignored) is one
//! slot, overwritten by every completion: the reader looks at the index in it alone, needs no consumer index,
//! and any number of readers may wait at once.

use super::MAX_QUEUE_BLOCKS;

/// The owner bit of completion number `consumer` (counted from 0, never wrapped) in a ring of `slots`
/// slots, a power of two: 0 on the first pass, 1 on the second, and so on.
#[must_use]
pub const fn expected_owner(consumer: u64, slots: u64) -> bool {
    consumer & slots != 0
}

/// Whether the last byte of slot `consumer` says that the completion is there: its opcode is one, and the
/// owner bit is that of this pass.
#[must_use]
pub const fn owned_by_software(op_own: u8, consumer: u64, slots: u64) -> bool {
    op_own >> 4 != 0xf && (op_own & 1 != 0) == expected_owner(consumer, slots)
}

/// Most basic blocks between two readings of a collapsed queue that can be told apart from a stale reading.
pub const MAX_IN_FLIGHT: u64 = MAX_QUEUE_BLOCKS as u64;

/// How far a send queue has come, rebuilt from the 16 bits that a collapsed completion carries.
///
/// Counts basic blocks from 0 and never wraps. The value is one more than the index of the last completed
/// entry's *first* block; it says nothing about that entry's other blocks, so a queue's free space counted
/// from it may come out up to 15 blocks short, never too large.
///
/// ```
/// use gdsync::wqe::CollapsedProgress;
///
/// let progress = CollapsedProgress::at(65_530);
/// let progress = progress.after(3); // 16 bits, which have wrapped
/// assert_eq!(progress.blocks(), 65_536 + 4);
/// assert!(progress.has_completed(65_539) && !progress.has_completed(65_540));
/// assert_eq!(progress.after(1), progress); // a reading of before
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct CollapsedProgress(u64);

impl CollapsedProgress {
    /// Progress up to and excluding block `blocks`.
    #[must_use]
    pub const fn at(blocks: u64) -> Self {
        Self(blocks)
    }

    /// Blocks known to be passed.
    #[must_use]
    pub const fn blocks(self) -> u64 {
        self.0
    }

    /// Whether the entry whose first block has the (unwrapped) index `index` is complete.
    #[must_use]
    pub const fn has_completed(self, index: u64) -> bool {
        self.0 > index
    }

    /// The progress after reading `wqe_counter`.
    ///
    /// A counter behind the known progress, as a reader sees it that was overtaken by another one, changes
    /// nothing. Right as long as no more than [`MAX_IN_FLIGHT`] blocks are in flight, which a queue of that
    /// size guarantees. An untouched slot holds 0xffff: nothing completed.
    #[must_use]
    pub const fn after(self, wqe_counter: u16) -> Self {
        let ahead = wqe_counter.wrapping_add(1).wrapping_sub(self.0 as u16) as u64;
        if ahead > MAX_IN_FLIGHT { self } else { Self(self.0 + ahead) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_bit_flips_with_every_pass() {
        let owners: Vec<bool> = (0..10).map(|n| expected_owner(n, 4)).collect();
        let (f, t) = (false, true);
        assert_eq!(owners, [f, f, f, f, t, t, t, t, f, f]);
        assert!(owned_by_software(0x20, 0, 4));
        assert!(!owned_by_software(0x21, 0, 4), "left from the pass before");
        assert!(!owned_by_software(0xf0, 0, 4), "never written");
        assert!(owned_by_software(0xd1, 4, 4), "an error is a completion");
    }

    #[test]
    fn nothing_is_complete_before_the_first_completion() {
        let start = CollapsedProgress::default();
        assert_eq!(start.after(0xffff), start);
        assert!(!start.has_completed(0));
        assert!(start.after(0).has_completed(0));
        assert!(!start.after(0).has_completed(1));
    }

    #[test]
    fn progress_is_rebuilt_across_the_wrap_of_16_bits_from_any_start() {
        // Every phase of the wrap with the steps at the edges of what is allowed, and small ones.
        let starts = if cfg!(miri) { 1009 } else { 7 };
        for start in (0..3 * 65536).step_by(starts) {
            let known = CollapsedProgress::at(start);
            for step in [0, 1, 2, 255, 256, 32767, 32768] {
                let now = start + step;
                assert_eq!(known.after((now as u16).wrapping_sub(1)), CollapsedProgress::at(now));
            }
            for behind in [1, 2, 255, 32767].into_iter().filter(|b| *b <= start) {
                let stale = ((start - behind) as u16).wrapping_sub(1);
                assert_eq!(known.after(stale), known, "a stale reading {behind} behind {start}");
            }
        }
    }
}
