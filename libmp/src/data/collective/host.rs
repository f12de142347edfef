//! The protocol of `mp/collective.cuh` on the CPU, for memory that it reaches: for calls of the host and for host streams. A run
//! goes on from call to call and never waits.

use std::sync::atomic::{AtomicU64, Ordering};

use gdsync::{Buffer, Word64};

use crate::collective::{Number, ReduceOp, combine_two};
use crate::data::region::Region;
use crate::data::window::Window;
use crate::error::Result;

/// A collective's memory as the CPU sees it.
pub(super) struct HostSide {
    /// Counts the runs.
    pub state: Word64,
    pub rank: usize,
    pub ranks: usize,
    /// Elements that there is room for; 0: a barrier.
    pub len: usize,
    pub way: Way,
}

/// How the others are reached.
pub(super) enum Way {
    /// Their inboxes, and the own one, in rank order: two turns of `len` packets (data, run) of each rank.
    Mapped(Vec<Buffer<u64>>),
    /// By a window whose shares have two turns of `len` words of each rank, and a signal for each.
    Nic { window: Box<Window<u64>>, share: Buffer<u64>, mine: Region<u64> },
}

/// How far a run is.
#[derive(Default)]
pub(super) struct Run {
    number: u64,
    /// The rank and the element that are combined next.
    rank: usize,
    element: usize,
    /// Of a barrier through a NIC: that the first round is through.
    met: bool,
}

impl HostSide {
    /// Begins the next run: sends this rank's values, which fit.
    pub fn begin<T: Number>(&self, values: &[T]) -> Result<Run> {
        let number = self.runs() + 1;
        match &self.way {
            Way::Mapped(inboxes) => {
                let others = inboxes.iter().enumerate().filter(|(rank, _)| *rank != self.rank);
                for (_, inbox) in others {
                    let turn = self.turn(inbox, self.rank, number);
                    let (packets, _) = turn.as_chunks::<2>();
                    if self.len == 0 {
                        packets[0][1].store(number, Ordering::Release);
                    }
                    for ([data, run], value) in packets.iter().zip(values) {
                        data.store(value.to_bits64(), Ordering::Relaxed);
                        run.store(number, Ordering::Release);
                    }
                }
            }
            Way::Nic { window, mine, .. } => {
                let bytes: &[u8] = bytemuck::cast_slice(values);
                let mut words = vec![0u64; bytes.len().div_ceil(8)];
                bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
                let mine = mine.slice(0..words.len())?;
                mine.write(&words)?;
                let round = if self.len == 0 { first_round(number) } else { last_round(number) };
                self.tell(window, &mine, number, round)?;
            }
        }
        Ok(Run { number, ..Run::default() })
    }

    /// Combines what has come; a rank that is missing, or `None` when the run is through. `combined` is as long as `mine`, which are
    /// this rank's values.
    pub fn advance<T: Number>(
        &self,
        run: &mut Run,
        op: ReduceOp,
        mine: &[T],
        combined: &mut [T],
    ) -> Result<Option<usize>> {
        while run.rank < self.ranks {
            let came = run.rank == self.rank
                || match &self.way {
                    Way::Mapped(inboxes) => {
                        let turn = self.turn(&inboxes[self.rank], run.rank, run.number);
                        let (packets, _) = turn.as_chunks::<2>();
                        let has_come =
                            |at: usize| packets[at][1].load(Ordering::Acquire) == run.number;
                        if self.len == 0 {
                            has_come(0)
                        } else {
                            while run.element < mine.len() && has_come(run.element) {
                                let theirs =
                                    T::from_bits64(packets[run.element][0].load(Ordering::Relaxed));
                                join(op, run.rank, &mut combined[run.element], theirs);
                                run.element += 1;
                            }
                            run.element == mine.len()
                        }
                    }
                    Way::Nic { window, share, .. } => {
                        let round = if self.len == 0 && !run.met {
                            first_round(run.number)
                        } else {
                            last_round(run.number)
                        };
                        let came = window.read_signal(run.rank)? >= round;
                        if came {
                            let words = size_of_val(mine).div_ceil(8);
                            let share = &share.atomics().unwrap_or_default()
                                [self.turn_at(run.rank, run.number)..];
                            let words: Vec<u64> = share
                                .iter()
                                .take(words)
                                .map(|word| word.load(Ordering::Relaxed))
                                .collect();
                            let theirs = bytemuck::cast_slice::<u64, T>(&words);
                            combined
                                .iter_mut()
                                .zip(theirs)
                                .for_each(|(to, &theirs)| join(op, run.rank, to, theirs));
                        }
                        came
                    }
                };
            if !came {
                return Ok(Some(run.rank));
            }
            if run.rank == self.rank {
                combined.iter_mut().zip(mine).for_each(|(to, &mine)| join(op, run.rank, to, mine));
            }
            (run.rank, run.element) = (run.rank + 1, 0);
            if let (true, false, 0, Way::Nic { window, mine, .. }) =
                (run.rank == self.ranks, run.met, self.len, &self.way)
            {
                (run.rank, run.met) = (0, true);
                self.tell(window, &mine.slice(0..0)?, run.number, last_round(run.number))?;
            }
        }
        let _ = self.state.store(run.number);
        Ok(None)
    }

    /// Runs so far.
    pub fn runs(&self) -> u64 {
        self.state.load().unwrap_or_default()
    }

    /// Where the values of a rank are, by packets or words.
    fn turn_at(&self, from: usize, number: u64) -> usize {
        ((number % 2) as usize * self.ranks + from) * self.len.max(1)
    }

    /// The packets of a rank in an inbox.
    fn turn<'a>(&self, inbox: &'a Buffer<u64>, from: usize, number: u64) -> &'a [AtomicU64] {
        let at = 2 * self.turn_at(from, number);
        &inbox.atomics().unwrap_or_default()[at..at + 2 * self.len.max(1)]
    }

    /// Puts the words to all others, and raises this rank's signals to `round`.
    fn tell(
        &self,
        window: &Window<u64>,
        words: &Region<u64>,
        number: u64,
        round: u64,
    ) -> Result<()> {
        let at = self.turn_at(self.rank, number) as u64;
        for rank in (0..self.ranks).filter(|rank| *rank != self.rank) {
            match words.is_empty() {
                true => window.signal(rank, self.rank, round)?,
                false => window.put_signal(rank, at, words, self.rank, round)?,
            }
        }
        Ok(())
    }
}

/// The number of a run's first or last round of signals.
fn first_round(number: u64) -> u64 {
    2 * number - 1
}

fn last_round(number: u64) -> u64 {
    2 * number
}

/// Combines the value of a rank with those of the ranks before.
fn join<T: Number>(op: ReduceOp, rank: usize, to: &mut T, theirs: T) {
    *to = if rank == 0 { theirs } else { combine_two(op, *to, theirs) };
}
