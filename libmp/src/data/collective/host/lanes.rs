//! Large blocks: lanes, rings of pieces in the inbox of whoever takes them, each with a word in which either side counts.

use std::sync::atomic::{AtomicU64, Ordering};

use gdsync::Buffer;
use mp_kernels::{LANE_SLOTS, LEAST_PIECE};

use super::memory::load;
use super::rings::LINE;
use super::{HostSide, Memory, Run, Stage, Task};
use crate::data::collective::blocks::Phase;
use crate::error::Result;

/// Lanes of large blocks.
pub(in crate::data::collective) struct Lanes {
    /// As those of [`Rings`](super::Rings), behind whose rings lanes are.
    pub inboxes: Vec<Buffer<u64>>,
    /// Words of an inbox before its lanes.
    pub first: usize,
    pub count: usize,
    /// Bytes of the largest piece.
    pub piece: usize,
    /// Of each lane and rank: pieces sent to it, and in the upper half pieces taken from it.
    pub counters: Buffer<u64>,
}

impl HostSide {
    pub(super) fn advance_in_lanes<M: Memory>(
        &self,
        run: &mut Run,
        task: &Task<'_>,
        memory: &mut M,
        lanes: &Lanes,
    ) -> Result<Option<usize>> {
        let piece = lanes.piece_for(task.most_of_a_phase());
        while let Some(phase) = task.phases.get(run.phase) {
            while run.lane < lanes.count {
                run.sent.resize(self.ranks, 0);
                let sent = self.send_pieces(run, phase, memory, (lanes, piece))?;
                let missing = self.take_pieces(run, phase, task, memory, (lanes, piece))?;
                let missing = missing.or(sent);
                if missing.is_some() {
                    return Ok(missing);
                }
                (run.lane, run.first) = (run.lane + 1, 0);
                run.goes_on(Stage::Hear);
                run.sent.clear();
            }
            (run.phase, run.lane) = (run.phase + 1, 0);
        }
        Ok(None)
    }

    /// Sends what there is room for; a rank that has yet to take something.
    fn send_pieces<M: Memory>(
        &self,
        run: &mut Run,
        phase: &Phase,
        memory: &M,
        (lanes, piece): (&Lanes, u64),
    ) -> Result<Option<usize>> {
        let mut missing = None;
        for rank in self.others() {
            let block = phase.gives.block(rank);
            loop {
                let first = lanes.first_of(run.lane, run.sent[rank], piece);
                if first >= block.bytes {
                    break;
                }
                let counter = lanes.counter(run.lane, self.ranks, rank);
                let (sent, taken) = halves(counter.load(Ordering::Relaxed));
                let word = lanes.word(run.lane, rank, self.rank);
                let (_, freed) = halves(word.load(Ordering::Acquire));
                if sent.wrapping_sub(freed) >= LANE_SLOTS {
                    missing = Some(rank);
                    break;
                }
                let bytes = (block.bytes - first).min(piece) as usize;
                load(memory, phase.again, block.at + first, bytes, &mut run.words)?;
                let slot = lanes.slot(run.lane, self.rank, rank, sent);
                for (to, word) in slot.iter().zip(&run.words) {
                    to.store(*word, Ordering::Relaxed);
                }
                let now = joined(sent.wrapping_add(1), taken);
                counter.store(now, Ordering::Relaxed);
                let word = lanes.word(run.lane, self.rank, rank);
                word.store(now, Ordering::Release);
                run.sent[rank] += 1;
                run.moved += 1;
            }
        }
        Ok(missing)
    }

    /// Takes what has come, piece by piece of all ranks in order; a rank whose piece is missing.
    fn take_pieces<M: Memory>(
        &self,
        run: &mut Run,
        phase: &Phase,
        task: &Task<'_>,
        memory: &mut M,
        (lanes, piece): (&Lanes, u64),
    ) -> Result<Option<usize>> {
        let most = phase.takes.most();
        loop {
            // `word` counts the pieces here.
            run.first = lanes.first_of(run.lane, run.word as u64, piece);
            if run.first >= most {
                return Ok(None);
            }
            while run.rank < self.ranks {
                let rank = run.rank;
                let left = phase.takes.block(rank).bytes.saturating_sub(run.first);
                let bytes = left.min(piece) as usize;
                if bytes > 0 && rank == self.rank {
                    let own = phase.gives.block(rank).at + run.first;
                    load(memory, phase.again, own, bytes, &mut run.words)?;
                    self.place(run, phase, task.reduction, (rank, bytes), memory)?;
                } else if bytes > 0 {
                    let counter = lanes.counter(run.lane, self.ranks, rank);
                    let (sent, taken) = halves(counter.load(Ordering::Relaxed));
                    let word = lanes.word(run.lane, rank, self.rank);
                    let (there, _) = halves(word.load(Ordering::Acquire));
                    if there == taken {
                        return Ok(Some(rank));
                    }
                    let slot = lanes.slot(run.lane, rank, self.rank, taken);
                    let slot = &slot[..bytes.div_ceil(8)];
                    run.words.clear();
                    run.words.extend(slot.iter().map(|word| word.load(Ordering::Relaxed)));
                    self.place(run, phase, task.reduction, (rank, bytes), memory)?;
                    let now = joined(sent, taken.wrapping_add(1));
                    counter.store(now, Ordering::Relaxed);
                    let word = lanes.word(run.lane, self.rank, rank);
                    word.store(now, Ordering::Release);
                }
                run.rank += 1;
                run.moved += 1;
            }
            (run.rank, run.word) = (0, run.word + 1);
        }
    }
}

impl Lanes {
    /// Bytes of the pieces of a run whose largest block has `most` bytes: `piece_for` of the device code.
    fn piece_for(&self, most: u64) -> u64 {
        let (lanes, largest) = (self.count as u64, self.piece as u64);
        let rounds = most.div_ceil(lanes * largest).max(1);
        let piece = most.div_ceil(rounds * lanes).next_multiple_of(LEAST_PIECE);
        if piece == 0 { largest } else { piece.min(largest) }
    }

    /// The first byte of piece `number` of a lane.
    fn first_of(&self, lane: usize, number: u64, piece: u64) -> u64 {
        (lane as u64 + number * self.count as u64) * piece
    }

    fn counter(&self, lane: usize, ranks: usize, rank: usize) -> &AtomicU64 {
        &self.counters.atomics().unwrap_or_default()[lane * ranks + rank]
    }

    /// The word that rank `from` writes in the inbox of `to`.
    fn word(&self, lane: usize, from: usize, to: usize) -> &AtomicU64 {
        let at = self.first + (lane * self.inboxes.len() + from) * LINE;
        &self.inboxes[to].atomics().unwrap_or_default()[at]
    }

    /// The slot of a piece from one rank in the inbox of another.
    fn slot(&self, lane: usize, from: usize, to: usize, number: u32) -> &[AtomicU64] {
        let ranks = self.inboxes.len();
        let pair = lane * (ranks - 1) + from - usize::from(from > to);
        let slot = pair * LANE_SLOTS as usize + (number % LANE_SLOTS) as usize;
        let at = self.first + self.count * ranks * LINE + slot * self.piece / 8;
        &self.inboxes[to].atomics().unwrap_or_default()[at..at + self.piece / 8]
    }
}

/// The counters in a word: pieces sent, and pieces taken.
fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

fn joined(sent: u32, taken: u32) -> u64 {
    u64::from(sent) | u64::from(taken) << 32
}
