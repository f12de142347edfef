//! Words of ranks that map each other's memory: rings of packets in the inbox of whoever takes them.

use std::sync::atomic::{AtomicU64, Ordering};

use gdsync::{Buffer, Word64};
use mp_kernels::{LANE_STRIDE, LEAST_SHARE};

use super::{Run, Task, Way, others};
use crate::data::collective::blocks::Phase;
use crate::error::Result;

/// Words of a cache line.
pub(super) const LINE: usize = (LANE_STRIDE / 8) as usize;

/// How far a collective is in the rings of one number: `mp::RingState`.
pub(in crate::data::collective) struct RingCounts {
    pub runs: Word64,
    pub position: Word64,
    pub heard: Word64,
}

/// The inboxes: for each number of a ring two words of each rank and a ring of packets (data, run) of each; behind them lanes.
pub(in crate::data::collective) struct Rings {
    /// In rank order, the own one among them.
    pub inboxes: Vec<Buffer<u64>>,
    pub rank: usize,
    /// Words of a block that a ring carries, and its packets.
    pub len: usize,
    pub ring: usize,
    /// Of each number.
    pub states: Vec<RingCounts>,
    /// Barriers so far.
    pub met: Word64,
}

impl Way for Rings {
    fn row(&self, task: &Task<'_>) -> usize {
        ring_share(task.words(), self.len as u64, self.states.len() as u64) as usize
    }

    fn begin(&self, run: &mut Run, task: &Task<'_>) -> Result<Option<usize>> {
        if task.is_barrier {
            run.number = self.met.load().unwrap_or_default() + 1;
            return Ok(None);
        }
        let state = &self.states[run.row];
        run.number = state.runs.load().unwrap_or_default() + 1;
        let heard = state.heard.load().unwrap_or_default();
        run.position = state.position.load().unwrap_or_default();
        let needed = (run.position + self.packets(run, task)).saturating_sub(self.ring as u64);
        if needed <= heard {
            return Ok(None);
        }
        // What has been taken since: more than is needed, or it would be looked at again in every run.
        let mut by_all = u64::MAX;
        for rank in others(self.rank, self.inboxes.len()) {
            let theirs = self.taken(run.row, self.rank, rank).load(Ordering::Acquire);
            if theirs < needed {
                return Ok(Some(rank));
            }
            by_all = by_all.min(theirs);
        }
        let _ = state.heard.store(by_all);
        Ok(None)
    }

    fn give(&self, run: &Run, rank: usize, is_barrier: bool) -> Result<()> {
        if is_barrier {
            self.met_in(rank, self.rank).store(run.number, Ordering::Release);
            return Ok(());
        }
        let ring = self.ring(run.row, rank, self.rank);
        for (position, word) in (run.position..).zip(&run.words) {
            let [data, number] = &ring[at_in(ring, position)];
            data.store(*word, Ordering::Relaxed);
            number.store(run.number, Ordering::Release);
        }
        Ok(())
    }

    fn take(&self, run: &mut Run, rank: usize, count: usize) -> Result<bool> {
        let ring = self.ring(run.row, self.rank, rank);
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
        Ok(true)
    }

    fn has_come(&self, run: &Run, rank: usize) -> Result<bool> {
        Ok(self.met_in(self.rank, rank).load(Ordering::Acquire) >= run.number)
    }

    /// If not all have heard all, the others are told that what they gave is taken.
    fn end(&self, run: &Run, task: &Task<'_>, phase: Option<&Phase>) {
        let Some(phase) = phase else {
            let _ = self.met.store(run.number);
            return;
        };
        let (end, ranks) = (run.position + self.packets(run, task), self.inboxes.len());
        let state = &self.states[run.row];
        let _ = state.runs.store(run.number);
        let _ = state.position.store(end);
        if phase.is_of_all(ranks, run.first) {
            let _ = state.heard.store(run.position);
            return;
        }
        for rank in others(self.rank, ranks) {
            self.taken(run.row, rank, self.rank).store(end, Ordering::Release);
        }
    }

    fn runs(&self) -> u64 {
        let [runs, met] = [&self.states[0].runs, &self.met].map(Word64::load);
        runs.unwrap_or_default() + met.unwrap_or_default()
    }
}

impl Rings {
    /// Bytes of a block that they carry.
    pub fn bytes(&self) -> u64 {
        (8 * self.len * self.states.len()) as u64
    }

    /// Words of an inbox that they have.
    pub fn words(&self) -> usize {
        self.states.len() * self.words_of_one()
    }

    /// Words of an inbox that all ranks' rings with one number have.
    fn words_of_one(&self) -> usize {
        self.inboxes.len() * (2 * self.ring + LINE)
    }

    /// Packets that the run has of every ring of its number.
    fn packets(&self, run: &Run, task: &Task<'_>) -> u64 {
        let row = self.row(task) as u64;
        (task.words() - run.row as u64 * row).min(row)
    }

    /// The ring of a number and a rank in the inbox of another.
    fn ring(&self, number: usize, to: usize, from: usize) -> &[[AtomicU64; 2]] {
        let packets = &self.of(number, to)[self.inboxes.len() * LINE..];
        &packets.as_chunks::<2>().0[from * self.ring..(from + 1) * self.ring]
    }

    /// The words of rank `from` at the beginning of a number's rings: up to where it has taken what is in its own,
    fn taken(&self, number: usize, to: usize, from: usize) -> &AtomicU64 {
        &self.of(number, to)[from * LINE]
    }

    /// and, of the first rings, the barriers that it has come to.
    fn met_in(&self, to: usize, from: usize) -> &AtomicU64 {
        &self.of(0, to)[from * LINE + 1]
    }

    /// The words of all rings with a number in an inbox.
    fn of(&self, number: usize, inbox: usize) -> &[AtomicU64] {
        let words = self.inboxes[inbox].atomics().unwrap_or_default();
        &words[number * self.words_of_one()..][..self.words_of_one()]
    }
}

/// Words of a block that each ring carries, of as few rings as carry `words`, or of more: `share_of` of the device code.
pub(in crate::data::collective) fn ring_share(words: u64, len: u64, rings: u64) -> u64 {
    if words <= len { words } else { words.div_ceil(rings).max(LEAST_SHARE) }
}

/// Where a position is in a ring.
fn at_in(ring: &[[AtomicU64; 2]], position: u64) -> usize {
    position as usize & (ring.len() - 1)
}
