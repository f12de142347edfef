//! A message in lockstep: one of a pair in opposite directions that is started in turns, so that what has come from the peer
//! says that its memory is free again. It needs no credit, and its user keeps the count of starts: no lock either. Only
//! where the CPU of the sender writes the peer's memory.

use gdsync::Deadline;

use super::{Half, Way};
use crate::data::operation::{Progress, What, pause};
use crate::data::pieces::Move;
use crate::data::plane::Plane;
use crate::data::wait::Backoff;
use crate::error::Result;

impl Half {
    /// Of a send: start number `epoch`, of `bytes` that are at most those it was prepared for. Whoever sees the arrival sees
    /// the bytes. The peer does not read its memory between its start number `epoch` and then.
    ///
    /// # Errors
    /// What is wrong with the other side. The first time it waits for the peer to prepare that.
    pub fn push(&self, plane: &Plane, epoch: u64, bytes: &[u8]) -> Result<()> {
        let other = self.meet(plane)?;
        if let Way::Direct { word, moves, .. } = &other.way {
            let mut at = 0;
            for Move { to, .. } in moves {
                // SAFETY: mapped for this; by the caller's promise nobody reads or writes it before the arrival below.
                let to = unsafe { to.as_mut_slice() }.map_err(|e| super::broken(&self.name, e))?;
                let part = to.len().min(bytes.len() - at);
                to[..part].copy_from_slice(&bytes[at..at + part]);
                at += part;
            }
            let arrival = other.word_name.base.wrapping_add(epoch);
            word.store(arrival).map_err(|e| super::broken(&self.name, e))?;
            self.counters.sends.add(bytes.len() as u64);
        }
        Ok(())
    }

    /// Of a receive: waits for the arrival of start number `epoch`. Acquire: the bytes are there.
    ///
    /// # Errors
    /// [`Error::Late`](crate::Error::Late) at the deadline, what ended the world, and what is wrong with the other side.
    pub fn pull(&self, plane: &Plane, epoch: u64, bytes: usize, deadline: Deadline) -> Result<()> {
        if self.reached() < epoch {
            self.waits();
            let mut backoff = Backoff::new(deadline);
            while self.reached() < epoch {
                plane.listen_if(self.other.get().is_none(), self.neighbour);
                self.known(plane)?;
                plane.progress();
                let (name, seen) = (&self.name, self.reached());
                pause(plane, &mut backoff, || Progress {
                    what: What { name: name.clone(), expected: epoch, seen },
                    age: deadline.elapsed(),
                })?;
            }
        }
        self.counters.recvs.add(bytes as u64);
        Ok(())
    }
}
