//! All-reduce over the data plane: every rank sends its vector to every other and combines all of them itself, in rank
//! order. One step, n − 1 small messages a rank: for the ranks of a host and short vectors.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytemuck::Pod;
use gdsync::{Deadline, Device};

use super::half::{Half, Side};
use super::message::{PreparedRecv, PreparedSend};
use super::notice::Lane;
use super::operation::Operation;
use super::operation::sealed::Sealed;
use super::path::Path;
use super::plane::Plane;
use super::region::Region;
use crate::collective::{Number, ReduceOp, combine_two};
use crate::communicator::Communicator;
use crate::error::{Error, Result};

/// A prepared all-reduce ([`Communicator::prepare_all_reduce`]). Every rank gets the same bits: the vectors are combined in
/// rank order, as by [`Communicator::all_reduce`].
pub struct AllReduce<T> {
    /// Used in turn. A rank that runs for the (n + 1)-th time has the vectors of run n of all others, who had read their
    /// slots of run n - 1 before they sent them: the slots of run n + 1 are free, and no send ever waits.
    turns: [Turn<T>; 2],
    next: usize,
    rank: usize,
    timeout: Duration,
    len: usize,
}

struct Turn<T> {
    /// This rank's vector.
    mine: Region<T>,
    /// To and from the others, in rank order.
    links: Vec<Link<T>>,
    /// How often it was its turn.
    runs: u64,
}

/// Messages to and from one of the others.
struct Link<T> {
    plane: Arc<Plane>,
    send: PreparedSend,
    recv: PreparedRecv,
    /// Where its vector arrives: on cache lines of its own, as other ranks write theirs meanwhile.
    slot: Region<T>,
    /// They are started in lockstep: no credits. Otherwise, through a NIC, as any message.
    lockstep: bool,
}

impl<T> Link<T> {
    /// Waits until this rank's vector may be written, and the first time for the other to prepare.
    fn ready(&self, deadline: Deadline) -> Result<()> {
        self.send.inside().half.meet(&self.plane)?;
        if self.lockstep { Ok(()) } else { self.send.wait(deadline) }
    }

    /// Sends it for the `run`-th time.
    fn send(&self, run: u64, vector: &[u8]) -> Result<()> {
        match self.lockstep {
            true => self.send.inside().half.push(&self.plane, run, vector),
            false => self.send.start(),
        }
    }

    /// Waits for the other's.
    fn wait(&self, run: u64, bytes: usize, deadline: Deadline) -> Result<()> {
        match self.lockstep {
            true => self.recv.inside().half.pull(&self.plane, run, bytes, deadline),
            false => self.recv.wait(deadline),
        }
    }

    /// The slot is not being read any more.
    fn post(&self) -> Result<()> {
        if self.lockstep { Ok(()) } else { self.recv.start() }
    }
}

impl<T: Number + Pod> AllReduce<T> {
    pub(crate) fn prepare(communicator: &Communicator, len: usize) -> Result<AllReduce<T>> {
        let turns = [Turn::prepare(communicator, len)?, Turn::prepare(communicator, len)?];
        let (rank, timeout) = (communicator.rank(), communicator.timeout());
        Ok(AllReduce { turns, next: 0, rank, timeout, len })
    }

    /// Combines the ranks' values element by element, in place. Every rank calls it with the same operation and as many
    /// values, at most those it was prepared for. After an error it cannot be used any more.
    ///
    /// # Errors
    /// [`Error::Mismatch`] for more values; what ended the world; [`Error::Late`] if a rank does not come within the
    /// communicator's timeout; [`Error::Truncated`] if it was prepared with another length elsewhere.
    pub fn run(&mut self, op: ReduceOp, values: &mut [T]) -> Result<()> {
        if values.len() > self.len {
            return Err(Error::Mismatch {
                op: format!("all-reduce ({op})"),
                reason: format!("{} values for one prepared for {}", values.len(), self.len),
            });
        }
        let deadline = Deadline::after(self.timeout);
        let turn = &mut self.turns[self.next];
        self.next = 1 - self.next;
        turn.runs += 1;
        let Turn { mine, links, runs } = turn;
        let _span = match links.first() {
            Some(Link { plane, .. }) => {
                plane.check_after(Duration::ZERO, || format!("all-reduce ({op})"))?;
                plane.progress();
                Some(plane.trace.span("host", "all-reduce"))
            }
            None => None,
        };
        links.iter().try_for_each(|link| link.ready(deadline))?;
        // SAFETY: only this run uses it: the messages of the run before last are complete, and those in lockstep are
        // written from here.
        let mine = &mut unsafe { mine.as_mut_slice() }?[..values.len()];
        mine.copy_from_slice(values);
        let vector: &[u8] = bytemuck::cast_slice(mine);
        links.iter().try_for_each(|link| link.send(*runs, vector))?;
        for rank in 0..=links.len() {
            let theirs = if rank == self.rank {
                &*mine
            } else {
                // There is no message from this rank itself.
                let link = &links[rank - usize::from(rank > self.rank)];
                link.wait(*runs, vector.len(), deadline)?;
                // SAFETY: a slot that has arrived is not written before it is posted again, below, or, in lockstep, this
                // rank has sent its vector of the next run.
                &unsafe { link.slot.as_slice() }?[..values.len()]
            };
            if rank == 0 {
                values.copy_from_slice(theirs);
                continue;
            }
            for (value, &theirs) in values.iter_mut().zip(theirs) {
                *value = combine_two(op, *value, theirs);
            }
        }
        links.iter().try_for_each(Link::post)
    }
}

impl<T: Number + Pod> Turn<T> {
    fn prepare(communicator: &Communicator, len: usize) -> Result<Turn<T>> {
        let (rank, size) = (communicator.rank(), communicator.size());
        let mine: Region<T> = communicator.alloc(&Device::Host, len)?;
        let mut links = Vec::new();
        for other in (0..size).filter(|&other| other != rank) {
            let peer = communicator.peer(other)?;
            let key = peer.key(0, Lane::AllReduce);
            let slot: Region<T> = communicator.alloc(&Device::Host, len)?;
            let half = |side, region: &Region<T>| {
                Half::prepare(&peer, side, region.buffer().bytes(), key, "all-reduce")
            };
            let send = PreparedSend::new(peer.plane.clone(), half(Side::Send, &mine)?);
            let recv = PreparedRecv::new(peer.plane.clone(), half(Side::Recv, &slot)?);
            // Both sides come to the same answer: the memory is the CPU's.
            let lockstep = peer.plane.path(peer.world_rank())? == Path::Direct;
            let link = Link { plane: peer.plane.clone(), send, recv, slot, lockstep };
            // From here on a slot is posted whenever it is not being read.
            link.post()?;
            links.push(link);
        }
        Ok(Turn { mine, links, runs: 0 })
    }
}

impl<T> fmt::Debug for AllReduce<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "all-reduce of {} elements on rank {} of {}",
            self.len,
            self.rank,
            self.turns[0].links.len() + 1
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, World};

    fn on_threads<R: Send>(path: &str, ranks: usize, rank: impl Fn(&World) -> R + Sync) -> Vec<R> {
        let config = Config::from_variables([("MP_PATH", path)]).unwrap();
        let worlds = World::threads_with_config(ranks, &config).unwrap();
        let run = |world: World| {
            let result = rank(&world);
            world.barrier().unwrap();
            result
        };
        std::thread::scope(|scope| {
            let run = &run;
            let threads: Vec<_> =
                worlds.into_iter().map(|world| scope.spawn(move || run(world))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn ranks_that_are_late_in_turn_never_see_a_vector_of_another_run() {
        for (path, runs) in [("auto", 20_000u64), ("nic", 500)] {
            on_threads(path, 3, |world| {
                let me = world.rank() as u64;
                let mut reduce = world.prepare_all_reduce::<u64>(9).unwrap();
                for run in 0..runs {
                    // One in turn sleeps, so that the others come to the next run as early as they can.
                    if run % 512 == 11 * me {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    let len = 1 + (run % 9) as usize;
                    let mut values: Vec<u64> = (0..9).map(|at| run << 8 | at << 4 | me).collect();
                    reduce.run(ReduceOp::Sum, &mut values[..len]).unwrap();
                    for (at, &value) in (0..).zip(&values[..len]) {
                        assert_eq!(value, 3 * (run << 8 | at << 4) + 3, "{path}, run {run}");
                    }
                }
            });
        }
    }

    #[test]
    fn a_rank_that_does_not_come_is_named_at_the_deadline() {
        for path in ["auto", "nic"] {
            on_threads(path, 2, |world| {
                let hasty = world.with_timeout(Duration::from_millis(300));
                let mut reduce = hasty.prepare_all_reduce::<u64>(1).unwrap();
                reduce.run(ReduceOp::Sum, &mut [1]).unwrap();
                if world.rank() == 0 {
                    let error = reduce.run(ReduceOp::Sum, &mut [1]).unwrap_err();
                    assert!(matches!(error, Error::Late { rank: 1, .. }), "{path}: {error}");
                }
            });
        }
    }

    #[test]
    fn ranks_that_prepared_different_lengths_are_both_told() {
        for path in ["auto", "nic"] {
            let errors = on_threads(path, 2, |world| {
                // Whoever prepares last may know it by then.
                let prepared = world.prepare_all_reduce::<u64>(1 + world.rank());
                let run = prepared.and_then(|mut reduce| reduce.run(ReduceOp::Sum, &mut [1]));
                run.unwrap_err()
            });
            for error in errors {
                assert!(
                    matches!(error, Error::Truncated { sent: 16, posted: 8, .. }),
                    "{path}: {error}"
                );
            }
        }
    }
}
