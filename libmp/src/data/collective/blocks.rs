//! What a collective is: who gives what to whom. Every kind is a list of blocks that a rank gives and one of those that it takes,
//! which host, streams and kernels carry out alike. No memory is touched here.

use std::ops::Range;

use mp_kernels::{Blocks, Extent};

use crate::collective::{Element, Number, ReduceOp};

/// Which collective, with what it depends on. Sizes are bytes of one block.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    Barrier,
    Broadcast {
        root: usize,
    },
    /// In place: what a rank gives lies where it takes it.
    AllGather {
        in_place: bool,
    },
    Gather {
        root: usize,
    },
    Scatter {
        root: usize,
    },
    AllToAll,
    AllToAllV {
        given: Vec<Extent>,
        taken: Vec<Extent>,
    },
    Reduce {
        root: usize,
    },
    ReduceScatter,
    AllReduce,
    Scan,
}

impl Kind {
    /// What it is called in errors and timelines.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Barrier => "barrier",
            Kind::Broadcast { .. } => "broadcast",
            Kind::AllGather { .. } => "all-gather",
            Kind::Gather { .. } => "gather",
            Kind::Scatter { .. } => "scatter",
            Kind::AllToAll => "all-to-all",
            Kind::AllToAllV { .. } => "all-to-all-v",
            Kind::Reduce { .. } => "reduce",
            Kind::ReduceScatter => "reduce-scatter",
            Kind::AllReduce => "all-reduce",
            Kind::Scan => "scan",
        }
    }

    /// What a rank gives and takes, with `bytes` bytes a block.
    pub fn phase(&self, rank: usize, ranks: usize, bytes: usize) -> Phase {
        let of_root = |root: usize| if rank == root { 0..ranks } else { 0..0 };
        let (one, row) = (List::one, List::row);
        let (gives, takes) = match self {
            Kind::Barrier => (one(0, 0..ranks), one(0, 0..ranks)),
            Kind::Broadcast { root } => (one(bytes, of_root(*root)), one(bytes, *root..root + 1)),
            Kind::AllGather { in_place } => {
                let first = if *in_place { rank * bytes } else { 0 };
                (List::at(first, bytes, 0..ranks), row(bytes, 0..ranks))
            }
            Kind::Gather { root } => (one(bytes, *root..root + 1), row(bytes, of_root(*root))),
            Kind::Scatter { root } => (row(bytes, of_root(*root)), one(bytes, *root..root + 1)),
            Kind::AllToAll => (row(bytes, 0..ranks), row(bytes, 0..ranks)),
            Kind::AllToAllV { given, taken } => {
                (List::table(given.clone()), List::table(taken.clone()))
            }
            Kind::Reduce { root } => (one(bytes, *root..root + 1), one(bytes, of_root(*root))),
            Kind::ReduceScatter => (row(bytes, 0..ranks), one(bytes, 0..ranks)),
            Kind::AllReduce => (one(bytes, 0..ranks), one(bytes, 0..ranks)),
            Kind::Scan => (one(bytes, rank..ranks), one(bytes, 0..rank + 1)),
        };
        Phase { gives, takes, combined: false, again: false }
    }
}

/// One exchange of blocks. Most collectives have one.
#[derive(Debug, Clone)]
pub(super) struct Phase {
    pub gives: List,
    pub takes: List,
    /// What comes is combined in rank order.
    pub combined: bool,
    /// What is given lies where the last phase has taken it.
    pub again: bool,
}

impl Phase {
    /// Whether all ranks hear all in it: what one of them sees of its own blocks, all do.
    pub fn is_of_all(&self, ranks: usize, first: u64) -> bool {
        self.takes.is_of_all(ranks, first) && self.gives.is_of_all(ranks, first)
    }

    /// Bytes of the largest block that this rank gives or takes.
    pub fn most(&self) -> u64 {
        self.gives.most().max(self.takes.most())
    }
}

/// The two halves of a large all-reduce of three and more ranks, as `mp::AllReduceHalves` has them: each combines a part and gives it
/// to the others.
pub(super) fn all_reduce_in_halves(rank: usize, ranks: usize, bytes: usize) -> [Phase; 2] {
    let each = bytes.div_ceil(ranks).next_multiple_of(16);
    let first = rank * each;
    let parts = || List::within(each, bytes, 0..ranks);
    let mine = || List::at(first, bytes.saturating_sub(first).min(each), 0..ranks);
    [
        Phase { gives: parts(), takes: mine(), combined: true, again: false },
        Phase { gives: mine(), takes: parts(), combined: false, again: true },
    ]
}

/// Blocks, with their table if they have one. `memory` is an offset.
#[derive(Debug, Clone)]
pub(super) struct List {
    pub blocks: Blocks,
    pub table: Vec<Extent>,
}

impl List {
    fn new(blocks: Blocks, ranks: Range<usize>) -> List {
        // Ranks of a world are numbers of 32 bits.
        let (first, end) = (ranks.start as u32, ranks.end as u32);
        List { blocks: Blocks { first, end, ..blocks }, table: Vec::new() }
    }

    /// The same block for all.
    fn one(bytes: usize, ranks: Range<usize>) -> List {
        List::at(0, bytes, ranks)
    }

    fn at(first: usize, bytes: usize, ranks: Range<usize>) -> List {
        let (memory, bytes) = (first as u64, bytes as u64);
        List::new(Blocks { memory, bytes, total: bytes, ..Blocks::default() }, ranks)
    }

    /// A block for each rank, one after another.
    fn row(bytes: usize, ranks: Range<usize>) -> List {
        let total = bytes.saturating_mul(ranks.end);
        List::within(bytes, total, ranks)
    }

    /// The same as far as there are bytes.
    fn within(bytes: usize, total: usize, ranks: Range<usize>) -> List {
        let (bytes, total) = (bytes as u64, total as u64);
        List::new(Blocks { stride: bytes, bytes, total, ..Blocks::default() }, ranks)
    }

    fn table(table: Vec<Extent>) -> List {
        List { table, ..List::new(Blocks::default(), 0..0) }
    }

    /// Ranks that have a block.
    pub fn ranks(&self) -> Range<usize> {
        match self.table.len() {
            0 => self.blocks.first as usize..self.blocks.end as usize,
            ranks => 0..ranks,
        }
    }

    /// The block of a rank; without bytes there is none.
    pub fn block(&self, rank: usize) -> Extent {
        let Blocks { memory, stride, bytes, total, .. } = self.blocks;
        if let Some(extent) = self.table.get(rank) {
            return *extent;
        }
        if !self.ranks().contains(&rank) {
            return Extent::default();
        }
        let first = rank as u64 * stride;
        Extent { at: memory + first, bytes: bytes.min(total.saturating_sub(first)) }
    }

    /// Bytes of the largest block.
    pub fn most(&self) -> u64 {
        self.ranks().map(|rank| self.block(rank).bytes).max().unwrap_or_default()
    }

    /// Bytes of memory up to the end of the last block.
    pub fn extent(&self) -> u64 {
        let end = |rank| {
            let Extent { at, bytes } = self.block(rank);
            if bytes == 0 { 0 } else { at.saturating_add(bytes) }
        };
        self.ranks().map(end).max().unwrap_or_default()
    }

    /// Whether only this rank knows how long its blocks are.
    pub fn is_table(&self) -> bool {
        !self.table.is_empty()
    }

    /// Whether there is something of, or for, each of `ranks` ranks from byte `first` of the blocks on. What has a table may be empty for
    /// one, which it does not look at, as kernels do not.
    pub fn is_of_all(&self, ranks: usize, first: u64) -> bool {
        !self.is_table() && (0..ranks).all(|rank| self.block(rank).bytes > first)
    }

    /// As kernels take it, in memory at an address.
    pub fn launched(&self, memory: u64, table: u64) -> Blocks {
        let Range { start, end } = self.ranks();
        let memory = self.blocks.memory + memory;
        Blocks { memory, table, first: start as u32, end: end as u32, ..self.blocks }
    }
}

/// How values are combined.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reduction {
    pub op: ReduceOp,
    pub element: Element,
    words: fn(ReduceOp, &mut [u64], &[u64]),
}

impl Reduction {
    pub fn of<T: Number>(op: ReduceOp) -> Reduction {
        Reduction { op, element: T::ELEMENT, words: T::combine_words }
    }

    /// Combines the values in words with those in as many others.
    pub fn combine(&self, words: &mut [u64], others: &[u64]) {
        (self.words)(self.op, words, others);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every block that is given is taken, with as many bytes.
    #[test]
    fn what_a_rank_gives_another_is_what_the_other_takes() {
        for ranks in 1..6 {
            for root in 0..ranks {
                let kinds = [
                    Kind::Barrier,
                    Kind::Broadcast { root },
                    Kind::AllGather { in_place: false },
                    Kind::AllGather { in_place: true },
                    Kind::Gather { root },
                    Kind::Scatter { root },
                    Kind::AllToAll,
                    Kind::Reduce { root },
                    Kind::ReduceScatter,
                    Kind::AllReduce,
                    Kind::Scan,
                ];
                for kind in kinds {
                    let phases: Vec<_> =
                        (0..ranks).map(|rank| kind.phase(rank, ranks, 24)).collect();
                    assert_fits(&phases, kind.name());
                }
                for bytes in [1, 16, 100, 1000] {
                    let halves: Vec<_> =
                        (0..ranks).map(|rank| all_reduce_in_halves(rank, ranks, bytes)).collect();
                    for half in 0..2 {
                        let phases: Vec<_> =
                            halves.iter().map(|halves| halves[half].clone()).collect();
                        assert_fits(&phases, "halves");
                    }
                    let all: u64 =
                        (0..ranks).map(|rank| halves[0][0].gives.block(rank).bytes).sum();
                    assert_eq!(all, bytes as u64);
                }
            }
        }
    }

    fn assert_fits(phases: &[Phase], name: &str) {
        for (giver, phase) in phases.iter().enumerate() {
            for (taker, other) in phases.iter().enumerate() {
                let given = phase.gives.block(taker).bytes;
                assert_eq!(given, other.takes.block(giver).bytes, "{name}: {giver} to {taker}");
            }
        }
    }
}
