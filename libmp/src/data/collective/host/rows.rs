//! Words of ranks some of which are behind a NIC: puts and signals of a window.

use std::sync::atomic::{AtomicU64, Ordering};

use gdsync::Buffer;

use super::{RingCounts, Run, Task, Way, others};
use crate::data::collective::blocks::Phase;
use crate::data::region::Region;
use crate::data::window::Window;
use crate::error::Result;

/// A window whose shares have two turns of `len` words of each rank, and a signal for each.
pub(in crate::data::collective) struct Rows {
    pub window: Window<u64>,
    pub share: Buffer<u64>,
    /// What is put from.
    pub mine: Region<u64>,
    pub rank: usize,
    pub ranks: usize,
    pub len: usize,
    /// As in `mp::CollectiveState`.
    pub state: RingCounts,
    /// The last run of the host and its streams; the last of all may have been a kernel's.
    pub by_host: AtomicU64,
}

impl Way for Rows {
    const AGREES: bool = true;

    fn row(&self, _task: &Task<'_>) -> usize {
        self.len
    }

    fn begin(&self, run: &mut Run, _task: &Task<'_>) -> Result<Option<usize>> {
        let state = &self.state;
        let before = state.runs.load().unwrap_or_default();
        let heard = state.heard.load().unwrap_or_default();
        run.number = before + 1;
        while heard != before && run.rank < self.ranks {
            if run.rank != self.rank && !self.has_told(run.rank, last_round(before))? {
                return Ok(Some(run.rank));
            }
            run.rank += 1;
        }
        Ok(None)
    }

    fn give(&self, run: &Run, rank: usize, is_barrier: bool) -> Result<()> {
        let round = if is_barrier { first_round(run.number) } else { last_round(run.number) };
        self.put(&run.words, rank, run.number, round)
    }

    fn take(&self, run: &mut Run, rank: usize, count: usize) -> Result<bool> {
        if !self.has_told(rank, last_round(run.number))? {
            return Ok(false);
        }
        let row = &self.share.atomics().unwrap_or_default()[self.turn_at(rank, run.number)..];
        run.words.clear();
        run.words.extend(row[..count].iter().map(|word| word.load(Ordering::Relaxed)));
        Ok(true)
    }

    fn has_come(&self, run: &Run, rank: usize) -> Result<bool> {
        self.has_told(rank, first_round(run.number))
    }

    /// That a rank has come says that what it put here has arrived, not what it put elsewhere.
    fn meet(&self, run: &Run) -> Result<bool> {
        let round = last_round(run.number);
        others(self.rank, self.ranks)
            .try_for_each(|rank| self.put(&[], rank, run.number, round))?;
        Ok(true)
    }

    fn has_met(&self, run: &Run, rank: usize) -> Result<bool> {
        self.has_told(rank, last_round(run.number))
    }

    fn end(&self, run: &Run, _task: &Task<'_>, phase: Option<&Phase>) {
        self.by_host.store(run.number, Ordering::Relaxed);
        let _ = self.state.runs.store(run.number);
        if phase.is_none_or(|phase| phase.takes.is_of_all(self.ranks, run.first)) {
            let _ = self.state.heard.store(run.number);
        }
    }

    fn runs(&self) -> u64 {
        self.state.runs.load().unwrap_or_default()
    }
}

impl Rows {
    /// Whether a rank's signals have reached `round`, of whichever run.
    fn has_told(&self, rank: usize, round: u64) -> Result<bool> {
        Ok(self.window.read_signal(rank)? >= round)
    }

    /// Where the values of a rank are in a share.
    fn turn_at(&self, from: usize, number: u64) -> usize {
        ((number % 2) as usize * self.ranks + from) * self.len
    }

    /// Puts the words to a rank, and raises this rank's signal there to `round`.
    fn put(&self, words: &[u64], rank: usize, number: u64, round: u64) -> Result<()> {
        // Kernels have queues of their own: what they posted in the last run is not to be overtaken by a signal that says more.
        if self.by_host.load(Ordering::Relaxed) + 1 != number {
            self.window.quiet(rank)?;
        }
        if words.is_empty() {
            return self.window.signal(rank, self.rank, round);
        }
        let mine = self.mine.slice(0..words.len())?;
        mine.write(words)?;
        self.window.put_signal(
            rank,
            self.turn_at(self.rank, number) as u64,
            &mine,
            self.rank,
            round,
        )
    }
}

/// The number of a run's first or last round of signals.
fn first_round(number: u64) -> u64 {
    2 * number - 1
}

fn last_round(number: u64) -> u64 {
    2 * number
}
