//! Where the rings between two ranks lie, and how far each has come.
//!
//! In the stretch of memory that a rank writes at another one: two lines of words, of what it has taken and of how far it has written
//! the bulk ring, each on a cache line of its own; then the lines; then the eager ring; then the bulk ring.

use super::Options;
use super::envelope::LINE;

/// The bulk ring begins at a multiple of this in a stretch, so that drivers can pin it by itself.
const PAGE: usize = 4096;
/// What a message is counted as beyond its bytes, while nobody has taken it.
pub(super) const COST: u64 = LINE as u64;

/// Where the rings of a rank are in the stretch of memory that it writes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    /// These three are powers of two.
    pub lines: usize,
    pub eager: usize,
    pub bulk: usize,
    /// The longest message that goes with its envelope.
    pub limit: usize,
    /// What may lie unexpected of one rank: bytes, and [`COST`] for each message.
    pub unexpected: u64,
    /// What it is worth to tell a writer of.
    pub quarters: Counts,
}

impl Layout {
    /// Words that the writer sets: how much it has taken of what was written to it.
    pub const CREDITS: usize = 0;
    /// How many bytes the writer has put into the bulk ring.
    pub const WRITTEN: usize = LINE;
    pub const LINES: usize = 2 * LINE;

    /// For so many ranks, some of which may have GPUs. A rank has a stretch for each of them.
    pub fn new(options: &Options, ranks: usize, gpus: bool) -> Layout {
        let share = |most: usize, least: usize, all: usize| (all / ranks.max(1)).clamp(least, most);
        let limit = options.eager_limit;
        let lines = share(256, 32, 8192).next_power_of_two();
        let eager = share(16 * limit, 2 * limit, 1 << 20).max(256).next_power_of_two();
        let bulk = options.ring.unwrap_or_else(|| match gpus {
            // Two copies of a sender and two of a receiver, each as large as a GPU's copies are to be; what is not used is no memory.
            true => share(8 << 20, 64 << 10, 64 << 20),
            false => share(512 << 10, 32 << 10, 8 << 20),
        });
        let (bulk, unexpected) = (bulk.next_power_of_two(), options.unexpected as u64);
        let quarter = |all: u64| all.div_ceil(4).max(1);
        let quarters = Counts {
            lines: quarter(lines as u64),
            eager: quarter(eager as u64),
            cost: quarter(unexpected),
            bulk: quarter(bulk as u64),
        };
        Layout { lines, eager, bulk, limit, unexpected, quarters }
    }

    /// Bytes of a stretch.
    pub fn stretch(&self) -> usize {
        (self.bulk_at() + self.bulk).next_multiple_of(PAGE)
    }

    pub fn line_at(&self, number: u64) -> usize {
        Layout::LINES + (number as usize & (self.lines - 1)) * LINE
    }

    pub fn eager_at(&self) -> usize {
        Layout::LINES + self.lines * LINE
    }

    pub fn bulk_at(&self) -> usize {
        (self.eager_at() + self.eager).next_multiple_of(PAGE)
    }

    /// The largest piece that is written to the bulk ring at once.
    pub fn piece(&self) -> usize {
        self.bulk / 4
    }
}

/// The parts of a ring, from `at` bytes ever written on: offset and length of one or two.
pub(super) fn parts(ring: usize, at: u64, len: usize) -> impl Iterator<Item = (usize, usize)> {
    let first = at as usize & (ring - 1);
    let until_end = len.min(ring - first);
    [(first, until_end), (0, len - until_end)].into_iter().filter(|(_, len)| *len > 0)
}

/// Counts of one direction: what was written, or taken, ever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub lines: u64,
    pub eager: u64,
    /// Bytes and [`COST`]s of messages that came with their envelopes; taken when a receive has them.
    pub cost: u64,
    pub bulk: u64,
}
