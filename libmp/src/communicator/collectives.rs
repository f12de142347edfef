//! Collectives of the host. They carry set-up, convergence tests and diagnostics: small things, through rank 0. Every member calls the
//! same collectives of a communicator in the same order. Each call has a deadline ([`Communicator::with_timeout`], by default
//! `MP_TIMEOUT`); one that passes it ends the world, because the ranks no longer agree on where they are.

use std::sync::PoisonError;
use std::time::Duration;

use super::Communicator;
use crate::collective::{self, BLOB_MAX, Call, Number, ReduceOp, nothing};
use crate::control::Turn;
use crate::control::cause::Cause;
use crate::control::message::{Outcome, Payload};
use crate::error::{Error, Result};

impl Communicator {
    /// Waits until every rank has entered the barrier.
    ///
    /// # Errors
    /// [`Error::PeerLost`], [`Error::Aborted`], [`Error::Timeout`] and [`Error::Protocol`] when the world is over,
    /// [`Error::Finished`] after it, [`Error::Mismatch`] when another rank calls something else. The same holds for all
    /// collectives.
    pub fn barrier(&self) -> Result<()> {
        self.call(Call::Barrier, nothing()).map(drop)
    }

    /// Gives every rank the blob of rank `root`; what the others hold in `blob` is replaced.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier); [`Error::NoSuchRank`], and [`Error::TooLarge`] for a blob over [`BLOB_MAX`], both
    /// before anybody is told: the other ranks go on waiting for this one.
    pub fn broadcast(&self, root: usize, blob: &mut Vec<u8>) -> Result<()> {
        self.info(root)?;
        let mine = self.rank() == root;
        let payload = if mine { self.blob(blob)? } else { nothing() };
        // The peer exists, so its number fits.
        let result = self.call(Call::Broadcast { root: root as u32 }, payload)?.1;
        if !mine {
            blob.clear();
            blob.extend_from_slice(&result);
        }
        Ok(())
    }

    /// Gives every rank the blobs of all, in rank order. They may have different sizes, also 0.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier); [`Error::TooLarge`] as [`broadcast`](Self::broadcast); [`Error::Mismatch`] if the
    /// blobs are more than [`RESULT_MAX`](crate::RESULT_MAX) together.
    pub fn all_gather(&self, blob: &[u8]) -> Result<Vec<Vec<u8>>> {
        let gathered = self.gather_blobs(blob)?;
        Ok(gathered.blobs().into_iter().map(<[u8]>::to_vec).collect())
    }

    /// The same without a copy of each: ranks of one process have one between them.
    pub(crate) fn gather_blobs(&self, blob: &[u8]) -> Result<Gathered> {
        let (turn, (_, bytes)) = self.call_numbered(Call::AllGather, self.blob(blob)?)?;
        let (group, size) = (self.inner.group, self.size());
        match collective::are_gathered(&bytes, size) {
            true => Ok(Gathered { bytes, size, key: (group, turn) }),
            false => Err(self.nonsense(Call::AllGather)),
        }
    }

    /// Gives rank `root` the blobs of all, in rank order; `None` elsewhere.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather); [`Error::NoSuchRank`], before anybody is told.
    pub fn gather(&self, root: usize, blob: &[u8]) -> Result<Option<Vec<Vec<u8>>>> {
        self.info(root)?;
        // The peer exists, so its number fits.
        let call = Call::Gather { root: root as u32 };
        let result = self.call(call, self.blob(blob)?)?.1;
        if self.rank() != root {
            return Ok(None);
        }
        let blobs = collective::decode_gathered(&result, self.size());
        blobs.map(Some).ok_or_else(|| self.nonsense(call))
    }

    /// Combines the ranks' vectors element by element; every rank gets the same bits. A sum is taken in rank order.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather); [`Error::Mismatch`] if the vectors differ in length or type.
    pub fn all_reduce<T: Number>(&self, op: ReduceOp, values: &mut [T]) -> Result<()> {
        let call = Call::AllReduce { op, element: T::ELEMENT };
        let result = self.call(call, self.blob(&collective::to_bytes(values))?)?.1;
        if collective::from_bytes(&result, values) { Ok(()) } else { Err(self.nonsense(call)) }
    }

    /// The sum over all ranks, in rank order; integers wrap around.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub fn sum<T: Number>(&self, value: T) -> Result<T> {
        self.reduce_one(ReduceOp::Sum, value)
    }

    /// The smallest value of all ranks; NaN if any is NaN.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub fn min<T: Number>(&self, value: T) -> Result<T> {
        self.reduce_one(ReduceOp::Min, value)
    }

    /// The largest value of all ranks; NaN if any is NaN.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub fn max<T: Number>(&self, value: T) -> Result<T> {
        self.reduce_one(ReduceOp::Max, value)
    }

    fn reduce_one<T: Number>(&self, op: ReduceOp, value: T) -> Result<T> {
        let mut values = [value];
        self.all_reduce(op, &mut values)?;
        Ok(values[0])
    }

    /// The barrier that ends the world in good order.
    pub(crate) fn finish_all(&self) -> Result<()> {
        self.inner.plane.finishing();
        self.call(Call::Finish, nothing()).map(drop)
    }

    pub(super) fn call(&self, call: Call, payload: Payload) -> Result<(Outcome, Payload)> {
        self.call_numbered(call, payload).map(|(_, result)| result)
    }

    /// A collective, and which one of this communicator it was.
    fn call_numbered(&self, call: Call, payload: Payload) -> Result<(u64, (Outcome, Payload))> {
        let what = format!("{call} on {}", self.inner.name);
        let _span = self.inner.plane.trace.span("collective", call.name());
        let mut turn = self.inner.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let group = self.inner.group;
        let plane = &self.inner.plane;
        let progress = || plane.progress().then(|| plane.helpers.moved());
        let control = &self.inner.control;
        let number = *turn;
        let team = (self.inner.is_team && number == 0).then(|| self.inner.members.clone());
        let which = Turn { group, turn: number, team };
        let result = control.call(which, call, payload, &what, self.timeout, progress);
        if matches!(result, Ok(_) | Err(Error::Mismatch { .. })) {
            *turn += 1;
        }
        result.map(|result| (number, result))
    }

    fn blob(&self, blob: &[u8]) -> Result<Payload> {
        if blob.len() > BLOB_MAX {
            return Err(Error::TooLarge {
                what: format!("a blob for a collective on {}", self.inner.name),
                size: blob.len(),
                limit: BLOB_MAX,
            });
        }
        Ok(blob.into())
    }

    /// A reply that does not fit the call: rank 0 does not speak as it should.
    pub(super) fn nonsense(&self, call: Call) -> Error {
        let name = &self.inner.name;
        let what = format!("rank 0 gave a result for the {call} on {name} that it cannot have");
        self.inner.control.fail(Cause::Protocol { what }).during(&call.to_string(), Duration::ZERO)
    }
}

/// The blobs of all ranks, as they came.
pub(crate) struct Gathered {
    bytes: Payload,
    size: usize,
    key: (u64, u64),
}

impl Gathered {
    /// The blobs, in rank order.
    pub(crate) fn blobs(&self) -> Vec<&[u8]> {
        // Looked at when they came.
        collective::gathered_parts(&self.bytes, self.size).unwrap_or_default()
    }

    /// Of which collective this is the result: the same for all ranks, and for no other one.
    pub(crate) fn key(&self) -> (u64, u64) {
        self.key
    }
}
