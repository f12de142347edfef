//! Words of ranks that map each other's memory: rings of packets in the inbox of whoever takes them.

use std::sync::atomic::{AtomicU64, Ordering};

use gdsync::Buffer;
use mp_kernels::LANE_STRIDE;

use super::{Counts, Run, Task, Way, others};
use crate::data::collective::blocks::Phase;
use crate::error::Result;

/// Words of a cache line.
pub(super) const LINE: usize = (LANE_STRIDE / 8) as usize;

/// The inboxes: two words of each rank, a ring of packets (data, run) of each, and lanes.
pub(in crate::data::collective) struct Rings {
    /// In rank order, the own one among them.
    pub inboxes: Vec<Buffer<u64>>,
    pub rank: usize,
    /// Packets of a ring.
    pub ring: usize,
}

impl Way for Rings {
    fn begin(&self, state: &Counts, run: &mut Run, task: &Task<'_>) -> Result<Option<usize>> {
        let count = if task.is_barrier { &state.met } else { &state.runs };
        run.number = count.load().unwrap_or_default() + 1;
        if task.is_barrier {
            return Ok(None);
        }
        let heard = state.heard.load().unwrap_or_default();
        run.position = state.position.load().unwrap_or_default();
        let needed = (run.position + task.packets()).saturating_sub(self.ring as u64);
        if needed <= heard {
            return Ok(None);
        }
        // What has been taken since: more than is needed, or it would be looked at again in every run.
        let mut by_all = u64::MAX;
        for rank in others(self.rank, self.inboxes.len()) {
            let theirs = taken(&self.inboxes[self.rank], rank).load(Ordering::Acquire);
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
            met(&self.inboxes[rank], self.rank).store(run.number, Ordering::Release);
            return Ok(());
        }
        let ring = self.ring(&self.inboxes[rank], self.rank);
        for (position, word) in (run.position..).zip(&run.words) {
            let [data, number] = &ring[at_in(ring, position)];
            data.store(*word, Ordering::Relaxed);
            number.store(run.number, Ordering::Release);
        }
        Ok(())
    }

    fn take(&self, run: &mut Run, rank: usize, count: usize) -> Result<bool> {
        let ring = self.ring(&self.inboxes[self.rank], rank);
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
        Ok(met(&self.inboxes[self.rank], rank).load(Ordering::Acquire) >= run.number)
    }

    /// If not all have heard all, the others are told that what they gave is taken.
    fn end(&self, state: &Counts, run: &Run, packets: u64, phase: Option<&Phase>) {
        let Some(phase) = phase else {
            let _ = state.met.store(run.number);
            return;
        };
        let (end, ranks) = (run.position + packets, self.inboxes.len());
        let _ = state.runs.store(run.number);
        let _ = state.position.store(end);
        if phase.is_of_all(ranks) {
            let _ = state.heard.store(run.position);
            return;
        }
        for rank in others(self.rank, ranks) {
            taken(&self.inboxes[rank], self.rank).store(end, Ordering::Release);
        }
    }
}

impl Rings {
    /// The ring of a rank in an inbox.
    fn ring<'a>(&self, inbox: &'a Buffer<u64>, from: usize) -> &'a [[AtomicU64; 2]] {
        let packets = &inbox.atomics().unwrap_or_default()[self.inboxes.len() * LINE..];
        &packets.as_chunks::<2>().0[from * self.ring..(from + 1) * self.ring]
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
