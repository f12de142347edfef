//! The protocol of `mp/collective.cuh` on the CPU, for memory that it reaches: for calls of the host and for host streams. A run
//! goes on from call to call and never waits.

mod lanes;
mod memory;

use std::sync::atomic::{AtomicU64, Ordering};

use gdsync::{Buffer, Word64};
use mp_kernels::LANE_STRIDE;

use super::blocks::{Phase, Reduction};
use crate::data::region::Region;
use crate::data::window::Window;
use crate::error::Result;
pub(super) use lanes::Lanes;
use memory::load;
pub(super) use memory::{InPlace, InRegions, Memory};

/// A collective's memory as the CPU sees it.
pub(super) struct HostSide {
    /// As in `mp::CollectiveState`.
    pub state: Counts,
    /// The last run of the host and its streams; the last of all may have been a kernel's.
    pub by_host: AtomicU64,
    pub rank: usize,
    pub ranks: usize,
    /// Words that a rank can send to another at once.
    pub len: usize,
    /// Packets of a ring; through a NIC there are none.
    pub ring: usize,
    pub way: Way,
}

/// Its words that change.
pub(super) struct Counts {
    pub runs: Word64,
    pub position: Word64,
    pub heard: Word64,
    pub met: Word64,
}

/// How the others are reached.
pub(super) enum Way {
    /// Their inboxes, and the own one, in rank order: two words of each rank, a ring of packets (data, run) of each, and lanes.
    Mapped { inboxes: Vec<Buffer<u64>>, lanes: Lanes },
    /// By a window whose shares have two turns of `len` words of each rank, and a signal for each.
    Nic { window: Box<Window<u64>>, share: Buffer<u64>, mine: Region<u64> },
}

/// Words of a cache line.
const LINE: usize = (LANE_STRIDE / 8) as usize;

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
    /// Packets that a run has of every ring.
    fn packets(&self) -> u64 {
        self.most.div_ceil(8).max(1)
    }

    /// Bytes of the largest block of any rank in lanes: of two halves, of either.
    pub fn most_in_lanes(&self) -> u64 {
        if self.phases.len() > 1 { self.phases[0].gives.most() } else { self.most }
    }
}

/// How far a run is. Its memory is kept from run to run.
#[derive(Default)]
pub(super) struct Run {
    stage: Stage,
    number: u64,
    /// Where its packets begin in the rings.
    position: u64,
    /// The phase, and of large blocks the lane.
    phase: usize,
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
    /// Of a barrier through a NIC: the second round.
    Meet,
    Through,
}

impl Run {
    /// Begins anew.
    pub fn reset(&mut self) {
        (self.stage, self.phase, self.lane, self.first) = (Stage::Hear, 0, 0, 0);
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
        match &self.way {
            Way::Mapped { inboxes, lanes } if task.most > 8 * self.len as u64 => {
                self.advance_in_lanes(run, task, memory, inboxes, lanes)
            }
            _ => self.advance_in_turns(run, task, memory),
        }
    }

    /// Runs so far, barriers among them.
    pub fn runs(&self) -> u64 {
        let [runs, met] = [&self.state.runs, &self.state.met].map(Word64::load);
        runs.unwrap_or_default() + met.unwrap_or_default()
    }

    // ---- packets, and puts of a window -----------------------------------------------------------------------------

    fn advance_in_turns<M: Memory>(
        &self,
        run: &mut Run,
        task: &Task<'_>,
        memory: &mut M,
    ) -> Result<Option<usize>> {
        let Some(phase) = task.phases.first() else { return Ok(None) };
        loop {
            match run.stage {
                Stage::Hear => {
                    if let Some(missing) = self.hear(run, task)? {
                        return Ok(Some(missing));
                    }
                    match self.is_to_agree(run, phase, task) {
                        true => {
                            self.tell_largest(run, phase)?;
                            run.goes_on(Stage::Agree);
                        }
                        false => run.goes_on(Stage::Give),
                    }
                }
                Stage::Agree => {
                    while run.rank < self.ranks {
                        let Some(largest) = self.largest_of(run, phase)? else {
                            return Ok(Some(run.rank));
                        };
                        run.agreed = run.agreed.max(Some(largest));
                        run.rank += 1;
                    }
                    self.end(run, true);
                    if run.agreed == Some(0) {
                        return Ok(None);
                    }
                    run.goes_on(Stage::Hear);
                }
                Stage::Give => {
                    self.give(run, phase, task.is_barrier, memory)?;
                    run.combined.clear();
                    run.goes_on(Stage::Take);
                }
                Stage::Take => {
                    while run.rank < self.ranks {
                        if !self.take(run, phase, task, memory)? {
                            return Ok(Some(run.rank));
                        }
                        (run.rank, run.word) = (run.rank + 1, 0);
                    }
                    if let (Way::Nic { window, mine, .. }, true) = (&self.way, task.is_barrier) {
                        let second = last_round(run.number);
                        for rank in self.others() {
                            self.put(window, &mine.slice(0..0)?, rank, run.number, second)?;
                        }
                        run.goes_on(Stage::Meet);
                        continue;
                    }
                    run.goes_on(Stage::Through);
                }
                Stage::Meet => {
                    while run.rank < self.ranks {
                        if !self.has_told(run.rank, run, last_round(run.number))? {
                            return Ok(Some(run.rank));
                        }
                        run.rank += 1;
                    }
                    run.goes_on(Stage::Through);
                }
                Stage::Through => {
                    match &self.way {
                        Way::Mapped { inboxes, .. } => self.end_in_rings(run, task, phase, inboxes),
                        Way::Nic { .. } => {
                            self.end(run, task.is_barrier || self.has_heard_all(phase, run.first));
                        }
                    }
                    run.first += 8 * self.len as u64;
                    if run.first >= run.agreed.unwrap_or(task.most) {
                        return Ok(None);
                    }
                    // The next row.
                    run.goes_on(Stage::Hear);
                }
            }
        }
    }

    /// Begins the next run: waits for what it overwrites to be taken; a rank that has not.
    fn hear(&self, run: &mut Run, task: &Task<'_>) -> Result<Option<usize>> {
        let is_counted_apart = task.is_barrier && matches!(self.way, Way::Mapped { .. });
        let count = if is_counted_apart { &self.state.met } else { &self.state.runs };
        let before = count.load().unwrap_or_default();
        run.number = before + 1;
        if is_counted_apart {
            return Ok(None);
        }
        let heard = self.state.heard.load().unwrap_or_default();
        let Way::Mapped { inboxes, .. } = &self.way else {
            while heard != before && run.rank < self.ranks {
                if !self.has_told(run.rank, run, last_round(before))? {
                    return Ok(Some(run.rank));
                }
                run.rank += 1;
            }
            return Ok(None);
        };
        run.position = self.state.position.load().unwrap_or_default();
        let needed = (run.position + task.packets()).saturating_sub(self.ring as u64);
        if needed <= heard {
            return Ok(None);
        }
        // What has been taken since: more than is needed, or it would be looked at again in every run.
        let mut by_all = u64::MAX;
        for rank in self.others() {
            let theirs = taken(&inboxes[self.rank], rank).load(Ordering::Acquire);
            if theirs < needed {
                return Ok(Some(rank));
            }
            by_all = by_all.min(theirs);
        }
        let _ = self.state.heard.store(by_all);
        Ok(None)
    }

    /// A run through a NIC has come to its end; `heard`: of all others.
    fn end(&self, run: &Run, heard: bool) {
        self.by_host.store(run.number, Ordering::Relaxed);
        let _ = self.state.runs.store(run.number);
        if heard {
            let _ = self.state.heard.store(run.number);
        }
    }

    /// A run over mapped memory has come to its end. If not all have heard all, the others are told that what they gave is taken.
    fn end_in_rings(&self, run: &Run, task: &Task<'_>, phase: &Phase, inboxes: &[Buffer<u64>]) {
        if task.is_barrier {
            let _ = self.state.met.store(run.number);
            return;
        }
        let end = run.position + task.packets();
        let _ = self.state.runs.store(run.number);
        let _ = self.state.position.store(end);
        if phase.is_of_all(self.ranks) {
            let _ = self.state.heard.store(run.position);
            return;
        }
        for rank in self.others() {
            taken(&inboxes[rank], self.rank).store(end, Ordering::Release);
        }
    }

    /// Whether the ranks have yet to agree on how many rows there are: a rank knows only its own blocks of a table.
    fn is_to_agree(&self, run: &Run, phase: &Phase, task: &Task<'_>) -> bool {
        let in_rows = matches!(self.way, Way::Nic { .. }) && task.most > 8 * self.len as u64;
        in_rows && phase.gives.is_table() && run.agreed.is_none() && self.ranks > 1
    }

    /// Tells the others the bytes of the largest block here, as a run of its own.
    fn tell_largest(&self, run: &Run, phase: &Phase) -> Result<()> {
        let Way::Nic { window, mine, .. } = &self.way else { return Ok(()) };
        let mine = mine.slice(0..1)?;
        mine.write(&[phase.most()])?;
        for rank in self.others() {
            self.put(window, &mine, rank, run.number, last_round(run.number))?;
        }
        Ok(())
    }

    /// What `run.rank` has told; `None`: nothing yet.
    fn largest_of(&self, run: &Run, phase: &Phase) -> Result<Option<u64>> {
        let Way::Nic { share, .. } = &self.way else { return Ok(Some(0)) };
        if run.rank == self.rank {
            return Ok(Some(phase.most()));
        }
        if !self.has_told(run.rank, run, last_round(run.number))? {
            return Ok(None);
        }
        let word = &share.atomics().unwrap_or_default()[self.turn_at(run.rank, run.number)];
        Ok(Some(word.load(Ordering::Relaxed)))
    }

    /// Whether something has come from every rank, of what lies behind byte `first` of the blocks.
    fn has_heard_all(&self, phase: &Phase, first: u64) -> bool {
        phase.takes.is_of_all(self.ranks)
            && (0..self.ranks).all(|rank| phase.takes.block(rank).bytes > first)
    }

    /// Sends every other rank its block, as far as it fits.
    fn give<M: Memory>(
        &self,
        run: &mut Run,
        phase: &Phase,
        is_barrier: bool,
        memory: &M,
    ) -> Result<()> {
        let mut loaded = None;
        for rank in self.others() {
            let block = phase.gives.block(rank);
            let bytes = block.bytes.saturating_sub(run.first).min(8 * self.len as u64);
            let at = block.at + run.first;
            if loaded != Some((at, bytes)) {
                load(memory, phase.again, at, bytes as usize, &mut run.words)?;
                loaded = Some((at, bytes));
            }
            match &self.way {
                Way::Mapped { inboxes, .. } => {
                    if is_barrier {
                        met(&inboxes[rank], self.rank).store(run.number, Ordering::Release);
                        continue;
                    }
                    let ring = self.ring(&inboxes[rank], self.rank);
                    for (position, word) in (run.position..).zip(&run.words) {
                        let [data, number] = &ring[at_in(ring, position)];
                        data.store(*word, Ordering::Relaxed);
                        number.store(run.number, Ordering::Release);
                    }
                }
                Way::Nic { window, mine, .. } => {
                    let round =
                        if is_barrier { first_round(run.number) } else { last_round(run.number) };
                    let mine = mine.slice(0..run.words.len())?;
                    mine.write(&run.words)?;
                    self.put(window, &mine, rank, run.number, round)?;
                }
            }
        }
        Ok(())
    }

    /// Takes what `run.rank` has given; false if it has not come.
    fn take<M: Memory>(
        &self,
        run: &mut Run,
        phase: &Phase,
        task: &Task<'_>,
        memory: &mut M,
    ) -> Result<bool> {
        let (rank, first) = (run.rank, run.first);
        if task.is_barrier {
            return self.has_told(rank, run, first_round(run.number));
        }
        let block = phase.takes.block(rank);
        let bytes = block.bytes.saturating_sub(first).min(8 * self.len as u64) as usize;
        if bytes == 0 {
            return Ok(true);
        }
        let count = bytes.div_ceil(8);
        if rank == self.rank {
            let own = phase.gives.block(rank).at + first;
            load(memory, phase.again, own, bytes, &mut run.words)?;
        } else {
            match &self.way {
                Way::Mapped { inboxes, .. } => {
                    let ring = self.ring(&inboxes[self.rank], rank);
                    if run.word == 0 {
                        run.words.clear();
                    }
                    while run.word < count {
                        let [data, number] = &ring[at_in(ring, run.position + run.word as u64)];
                        if number.load(Ordering::Acquire) != run.number {
                            return Ok(false);
                        }
                        run.words.push(data.load(Ordering::Relaxed));
                        run.word += 1;
                    }
                }
                Way::Nic { share, .. } => {
                    if !self.has_told(rank, run, last_round(run.number))? {
                        return Ok(false);
                    }
                    let row =
                        &share.atomics().unwrap_or_default()[self.turn_at(rank, run.number)..];
                    run.words.clear();
                    run.words.extend(row[..count].iter().map(|word| word.load(Ordering::Relaxed)));
                }
            }
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

    /// Whether a rank has come to this barrier, and through a NIC whether its signals have reached `round` of any run.
    fn has_told(&self, rank: usize, run: &Run, round: u64) -> Result<bool> {
        if rank == self.rank {
            return Ok(true);
        }
        match &self.way {
            Way::Mapped { inboxes, .. } => {
                Ok(met(&inboxes[self.rank], rank).load(Ordering::Acquire) >= run.number)
            }
            Way::Nic { window, .. } => Ok(window.read_signal(rank)? >= round),
        }
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let me = self.rank;
        (0..self.ranks).filter(move |rank| *rank != me)
    }

    /// Where the values of a rank are in a share.
    fn turn_at(&self, from: usize, number: u64) -> usize {
        ((number % 2) as usize * self.ranks + from) * self.len
    }

    /// The ring of a rank in an inbox.
    fn ring<'a>(&self, inbox: &'a Buffer<u64>, from: usize) -> &'a [[AtomicU64; 2]] {
        let (packets, _) =
            inbox.atomics().unwrap_or_default()[self.ranks * LINE..].as_chunks::<2>();
        &packets[from * self.ring..(from + 1) * self.ring]
    }

    /// Puts the words to a rank, and raises this rank's signal there to `round`.
    fn put(
        &self,
        window: &Window<u64>,
        words: &Region<u64>,
        rank: usize,
        number: u64,
        round: u64,
    ) -> Result<()> {
        // Kernels have queues of their own: what they posted in the last run is not to be overtaken by a signal that says more.
        if self.by_host.load(Ordering::Relaxed) + 1 != number {
            window.quiet(rank)?;
        }
        match words.is_empty() {
            true => window.signal(rank, self.rank, round),
            false => {
                let at = self.turn_at(self.rank, number) as u64;
                window.put_signal(rank, at, words, self.rank, round)
            }
        }
    }
}

/// The words of rank `from` at the beginning of an inbox: up to where it has taken what is in its own,
fn taken(inbox: &Buffer<u64>, from: usize) -> &AtomicU64 {
    &inbox.atomics().unwrap_or_default()[from * LINE]
}

/// and the barriers that it has come to.
fn met(inbox: &Buffer<u64>, from: usize) -> &AtomicU64 {
    &inbox.atomics().unwrap_or_default()[from * LINE + 1]
}

/// Where a position is in a ring.
fn at_in(ring: &[[AtomicU64; 2]], position: u64) -> usize {
    position as usize & (ring.len() - 1)
}

/// The number of a run's first or last round of signals.
fn first_round(number: u64) -> u64 {
    2 * number - 1
}

fn last_round(number: u64) -> u64 {
    2 * number
}
