//! The protocol of `mp/collective.cuh` on the CPU, for memory that it reaches: for calls of the host and for host streams. A run
//! goes on from call to call and never waits.

mod lanes;
mod memory;
mod rings;
mod rows;

use super::blocks::{Phase, Reduction};
use crate::error::Result;
pub(super) use lanes::Lanes;
use memory::load;
pub(super) use memory::{InPlace, InRegions, Memory};
pub(super) use rings::{RingCounts, Rings, ring_share};
pub(super) use rows::Rows;

/// A collective's memory as the CPU sees it.
pub(super) struct HostSide {
    pub rank: usize,
    pub ranks: usize,
    pub reach: Reach,
}

/// How the others are reached.
pub(super) enum Reach {
    /// By their memory: what rings carry by these, and more by lanes.
    Mapped {
        rings: Rings,
        lanes: Lanes,
    },
    Nic(Box<Rows>),
}

/// How a row of words of every block goes to each of the other ranks: over mapped memory ([`Rings`]), or through a NIC ([`Rows`]).
trait Way {
    /// Whether the ranks agree first on how many rows blocks in a table have, of which each rank knows its own.
    const AGREES: bool = false;
    /// Words of a row.
    fn row(&self, task: &Task<'_>) -> usize;
    /// Begins the run of a row, once what it overwrites has been taken; a rank that has not.
    fn begin(&self, run: &mut Run, task: &Task<'_>) -> Result<Option<usize>>;
    /// Gives a rank the run's words; of a barrier it tells the rank that this one has come.
    fn give(&self, run: &Run, rank: usize, is_barrier: bool) -> Result<()>;
    /// Takes so many words of a rank, behind those that the run has of it; false if they have not come.
    fn take(&self, run: &mut Run, rank: usize, count: usize) -> Result<bool>;
    /// Whether a rank has come to the barrier.
    fn has_come(&self, run: &Run, rank: usize) -> Result<bool>;
    /// All have come to a barrier: tells them so, if that is not known by itself. Whether there is such a second round.
    fn meet(&self, _run: &Run) -> Result<bool> {
        Ok(false)
    }
    /// Whether a rank has told so.
    fn has_met(&self, _run: &Run, _rank: usize) -> Result<bool> {
        Ok(true)
    }
    /// The run is through. Of a barrier, and where all have said how long their blocks are, there is no phase: all have heard all.
    fn end(&self, run: &Run, task: &Task<'_>, phase: Option<&Phase>);
    /// Runs so far, barriers among them.
    fn runs(&self) -> u64;
}

/// What is done: the exchanges one after another, and how what comes is combined.
pub(super) struct Task<'a> {
    pub phases: &'a [Phase],
    pub reduction: Option<Reduction>,
    /// Bytes of the largest block of any rank, as all ranks know it; of blocks in a table the room there is.
    pub most: u64,
    /// Waits for all, whether they give something or not.
    pub is_barrier: bool,
}

impl Task<'_> {
    /// Bytes of the largest block of any rank in a phase: of two halves, of either.
    pub fn most_of_a_phase(&self) -> u64 {
        if self.phases.len() > 1 { self.phases[0].gives.most() } else { self.most }
    }

    /// Words of it, at least one.
    fn words(&self) -> u64 {
        self.most_of_a_phase().div_ceil(8).max(1)
    }
}

/// How far a run is. Its memory is kept from run to run.
#[derive(Default)]
pub(super) struct Run {
    stage: Stage,
    number: u64,
    /// Where its packets begin in the rings.
    position: u64,
    /// The phase, and in it the row, or of large blocks the lane.
    phase: usize,
    row: usize,
    lane: usize,
    /// The byte of the blocks that is sent or taken next, and whether all has come of what was before.
    first: u64,
    /// The rank that comes next, and how many of its words have come.
    rank: usize,
    word: usize,
    /// Through a NIC, of blocks in a table: bytes of the largest of any rank, once all have said theirs.
    agreed: Option<u64>,
    /// Changes whenever something was given or taken.
    pub moved: u64,
    /// Of a lane: pieces of each rank that have been sent.
    sent: Vec<u64>,
    /// Words on their way from or to memory, and combined ones.
    words: Vec<u64>,
    combined: Vec<u64>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Waits for what the last run has not waited for.
    #[default]
    Hear,
    /// Through a NIC, of blocks in a table: all say how long their largest is.
    Agree,
    Give,
    Take,
    /// Of a barrier: the second round, where there is one.
    Meet,
    Through,
}

impl Run {
    /// Begins anew.
    pub fn reset(&mut self) {
        (self.stage, self.phase, self.row, self.lane, self.first) = (Stage::Hear, 0, 0, 0, 0);
        (self.rank, self.word, self.agreed) = (0, 0, None);
        self.sent.clear();
    }

    fn goes_on(&mut self, stage: Stage) {
        (self.stage, self.rank, self.word) = (stage, 0, 0);
        self.moved += 1;
    }
}

impl HostSide {
    /// Goes on; a rank that is missing, or `None` when the run is through.
    pub fn advance<M: Memory>(
        &self,
        run: &mut Run,
        task: &Task<'_>,
        memory: &mut M,
    ) -> Result<Option<usize>> {
        match &self.reach {
            Reach::Mapped { rings, lanes } if task.most_of_a_phase() > rings.bytes() => {
                self.advance_in_lanes(run, task, memory, lanes)
            }
            Reach::Mapped { rings, .. } => self.advance_in_turns(rings, run, task, memory),
            Reach::Nic(rows) => self.advance_in_turns(&**rows, run, task, memory),
        }
    }

    /// Runs so far, barriers among them.
    pub fn runs(&self) -> u64 {
        match &self.reach {
            Reach::Mapped { rings, .. } => rings.runs(),
            Reach::Nic(rows) => rows.runs(),
        }
    }

    fn advance_in_turns<W: Way, M: Memory>(
        &self,
        way: &W,
        run: &mut Run,
        task: &Task<'_>,
        memory: &mut M,
    ) -> Result<Option<usize>> {
        let (is_barrier, row) = (task.is_barrier, way.row(task));
        while let Some(phase) = task.phases.get(run.phase) {
            match run.stage {
                Stage::Hear => {
                    if let Some(missing) = way.begin(run, task)? {
                        return Ok(Some(missing));
                    }
                    let in_rows = task.most > 8 * row as u64 && phase.gives.is_table();
                    if W::AGREES && in_rows && run.agreed.is_none() && self.ranks > 1 {
                        run.words.clear();
                        run.words.push(phase.most());
                        self.others().try_for_each(|rank| way.give(run, rank, false))?;
                        run.goes_on(Stage::Agree);
                    } else {
                        run.goes_on(Stage::Give);
                    }
                }
                Stage::Agree => {
                    while run.rank < self.ranks {
                        let (rank, mut largest) = (run.rank, phase.most());
                        if rank != self.rank {
                            if !way.take(run, rank, 1)? {
                                return Ok(Some(rank));
                            }
                            largest = run.words[0];
                        }
                        run.agreed = run.agreed.max(Some(largest));
                        (run.rank, run.word) = (rank + 1, 0);
                    }
                    way.end(run, task, None);
                    if run.agreed == Some(0) {
                        return Ok(None);
                    }
                    run.goes_on(Stage::Hear);
                }
                Stage::Give => {
                    self.give(way, run, phase, (is_barrier, row), memory)?;
                    run.combined.clear();
                    run.goes_on(Stage::Take);
                }
                Stage::Take => {
                    while run.rank < self.ranks {
                        let has_come = match is_barrier {
                            true => run.rank == self.rank || way.has_come(run, run.rank)?,
                            false => self.take(way, run, phase, (task, row), memory)?,
                        };
                        if !has_come {
                            return Ok(Some(run.rank));
                        }
                        (run.rank, run.word) = (run.rank + 1, 0);
                    }
                    let is_over = !is_barrier || !way.meet(run)?;
                    run.goes_on(if is_over { Stage::Through } else { Stage::Meet });
                }
                Stage::Meet => {
                    while run.rank < self.ranks {
                        if run.rank != self.rank && !way.has_met(run, run.rank)? {
                            return Ok(Some(run.rank));
                        }
                        run.rank += 1;
                    }
                    run.goes_on(Stage::Through);
                }
                Stage::Through => {
                    way.end(run, task, (!is_barrier).then_some(phase));
                    (run.row, run.first) = (run.row + 1, run.first + 8 * row as u64);
                    if run.first >= run.agreed.unwrap_or(task.most_of_a_phase()) {
                        (run.phase, run.row, run.first) = (run.phase + 1, 0, 0);
                    }
                    run.goes_on(Stage::Hear);
                }
            }
        }
        Ok(None)
    }

    /// Sends every other rank its block, as far as it fits.
    fn give<M: Memory>(
        &self,
        way: &impl Way,
        run: &mut Run,
        phase: &Phase,
        (is_barrier, row): (bool, usize),
        memory: &M,
    ) -> Result<()> {
        let mut loaded = None;
        for rank in self.others() {
            let block = phase.gives.block(rank);
            let bytes = block.bytes.saturating_sub(run.first).min(8 * row as u64);
            let at = block.at + run.first;
            if loaded != Some((at, bytes)) {
                load(memory, phase.again, at, bytes as usize, &mut run.words)?;
                loaded = Some((at, bytes));
            }
            way.give(run, rank, is_barrier)?;
        }
        Ok(())
    }

    /// Takes what `run.rank` has given; false if it has not come.
    fn take<M: Memory>(
        &self,
        way: &impl Way,
        run: &mut Run,
        phase: &Phase,
        (task, row): (&Task<'_>, usize),
        memory: &mut M,
    ) -> Result<bool> {
        let (rank, first) = (run.rank, run.first);
        let block = phase.takes.block(rank);
        let bytes = block.bytes.saturating_sub(first).min(8 * row as u64) as usize;
        if bytes == 0 {
            return Ok(true);
        }
        if rank == self.rank {
            let own = phase.gives.block(rank).at + first;
            load(memory, phase.again, own, bytes, &mut run.words)?;
        } else if !way.take(run, rank, bytes.div_ceil(8))? {
            return Ok(false);
        }
        self.place(run, phase, task.reduction, (rank, bytes), memory)
    }

    /// Places or combines the words of a rank, which are of the blocks from byte `run.first` on.
    fn place<M: Memory>(
        &self,
        run: &mut Run,
        phase: &Phase,
        reduction: Option<Reduction>,
        (rank, bytes): (usize, usize),
        memory: &mut M,
    ) -> Result<bool> {
        let at = phase.takes.block(rank).at + run.first;
        let Some(reduction) = reduction.filter(|_| phase.combined) else {
            let from: &[u8] = bytemuck::cast_slice(&run.words);
            memory.store(at, &from[..bytes])?;
            return Ok(true);
        };
        let ranks = phase.takes.ranks();
        if rank == ranks.start {
            std::mem::swap(&mut run.combined, &mut run.words);
        } else {
            reduction.combine(&mut run.combined, &run.words);
        }
        if rank + 1 == ranks.end {
            let from: &[u8] = bytemuck::cast_slice(&run.combined);
            memory.store(at, &from[..bytes])?;
        }
        Ok(true)
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        others(self.rank, self.ranks)
    }
}

/// All ranks but this one.
fn others(me: usize, ranks: usize) -> impl Iterator<Item = usize> {
    (0..ranks).filter(move |rank| *rank != me)
}
