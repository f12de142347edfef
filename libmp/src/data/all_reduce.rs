//! All-reduce over the data plane: every rank sends its vector to every other and combines all of them itself, in rank
//! order. One step, n − 1 small messages a rank: for the ranks of a host and short vectors.

use std::fmt;
use std::time::Duration;

use bytemuck::Pod;
use gdsync::{Deadline, Device};

use super::half::{Half, Side};
use super::message::{PreparedRecv, PreparedSend};
use super::notice::Lane;
use super::operation::Operation;
use super::region::Region;
use crate::collective::{Number, ReduceOp, combine_two};
use crate::communicator::Communicator;
use crate::error::{Error, Result};

/// A prepared all-reduce ([`Communicator::prepare_all_reduce`]). Every rank gets the same bits: the vectors are combined in
/// rank order, as by [`Communicator::all_reduce`].
pub struct AllReduce<T> {
    /// Used in turn. A rank that runs for the (n + 1)-th time has the vectors of run n of all others, who had posted
    /// their slots for run n + 1 before they sent them: no send ever waits.
    turns: [Turn<T>; 2],
    next: usize,
    rank: usize,
    timeout: Duration,
    len: usize,
}

struct Turn<T> {
    /// One vector of this rank, and one for every rank.
    mine: Region<T>,
    all: Region<T>,
    /// To and from the others, in rank order.
    sends: Vec<PreparedSend>,
    recvs: Vec<PreparedRecv>,
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
        let turn = &self.turns[self.next];
        self.next = 1 - self.next;
        for send in &turn.sends {
            send.wait(deadline)?;
        }
        turn.mine.slice(0..values.len())?.write(values)?;
        for send in &turn.sends {
            send.start()?;
        }
        for rank in 0..=turn.recvs.len() {
            let (theirs, at) = if rank == self.rank {
                (&turn.mine, 0)
            } else {
                // There is no receive from this rank itself.
                turn.recvs[rank - usize::from(rank > self.rank)].wait(deadline)?;
                (&turn.all, rank * self.len)
            };
            // SAFETY: this rank's vector is written by the run after the next; a slot that has arrived is not written
            // before it is posted again, below.
            let theirs = &unsafe { theirs.as_slice() }?[at..at + values.len()];
            if rank == 0 {
                values.copy_from_slice(theirs);
                continue;
            }
            for (value, &theirs) in values.iter_mut().zip(theirs) {
                *value = combine_two(op, *value, theirs);
            }
        }
        turn.recvs.iter().try_for_each(PreparedRecv::start)
    }
}

impl<T: Number + Pod> Turn<T> {
    fn prepare(communicator: &Communicator, len: usize) -> Result<Turn<T>> {
        let (rank, size) = (communicator.rank(), communicator.size());
        let mine: Region<T> = communicator.alloc(&Device::Host, len)?;
        let whole = len.saturating_mul(size);
        let all: Region<T> = communicator.alloc(&Device::Host, whole)?;
        let (mut sends, mut recvs) = (Vec::new(), Vec::new());
        for other in (0..size).filter(|&other| other != rank) {
            let peer = communicator.peer(other)?;
            let key = peer.key(0, Lane::AllReduce);
            let slot = all.slice(other * len..(other + 1) * len)?;
            let half = |side, region: &Region<T>| {
                Half::prepare(&peer, side, region.buffer().bytes(), key, "all-reduce")
            };
            sends.push(PreparedSend::new(peer.plane.clone(), half(Side::Send, &mine)?));
            let recv = PreparedRecv::new(peer.plane.clone(), half(Side::Recv, &slot)?);
            // From here on a slot is posted whenever it is not being read.
            recv.start()?;
            recvs.push(recv);
        }
        Ok(Turn { mine, all, sends, recvs })
    }
}

impl<T> fmt::Debug for AllReduce<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "all-reduce of {} elements on rank {} of {}",
            self.len,
            self.rank,
            self.turns[0].recvs.len() + 1
        )
    }
}
