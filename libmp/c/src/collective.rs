//! Collectives of the host.

use std::ffi::{c_int, c_void};

use libmp::{Communicator, Number, ReduceOp};

use crate::handle::{api, array, array_mut, borrow, number};
use crate::status::{Failure, Result};
use crate::world::MpComm;

api! {
    /// Waits until every rank has entered.
    fn mp_barrier(comm: *const MpComm) {
        borrow(comm, "comm")?.0.barrier()?;
    }

    /// Gives every rank the bytes of `root`.
    fn mp_broadcast(comm: *const MpComm, root: c_int, bytes: *mut c_void, count: usize) {
        let comm = &borrow(comm, "comm")?.0;
        let bytes = array_mut(bytes.cast::<u8>(), count, "bytes")?;
        let mut blob = bytes.to_vec();
        comm.broadcast(number(root, "root")?, &mut blob)?;
        same("count", count, blob.len())?;
        bytes.copy_from_slice(&blob);
    }

    /// Gives every rank the bytes of all.
    fn mp_all_gather(
        comm: *const MpComm,
        mine: *const c_void,
        count: usize,
        all: *mut c_void,
    ) {
        let comm = &borrow(comm, "comm")?.0;
        let mine = array(mine.cast::<u8>(), count, "mine")?;
        let total = count.checked_mul(comm.size());
        let total = total.ok_or_else(|| Failure::argument("count", count))?;
        let all = array_mut(all.cast::<u8>(), total, "all")?;
        for (rank, blob) in comm.all_gather(mine)?.iter().enumerate() {
            same("count", count, blob.len())?;
            all[rank * count..(rank + 1) * count].copy_from_slice(blob);
        }
    }

    /// Combines the ranks' doubles.
    fn mp_all_reduce_f64(comm: *const MpComm, op: c_int, values: *mut f64, count: usize) {
        reduce(&borrow(comm, "comm")?.0, op, array_mut(values, count, "values")?)?;
    }

    /// Combines the ranks' integers.
    fn mp_all_reduce_u64(comm: *const MpComm, op: c_int, values: *mut u64, count: usize) {
        reduce(&borrow(comm, "comm")?.0, op, array_mut(values, count, "values")?)?;
    }
}

fn reduce<T: Number>(comm: &Communicator, op: c_int, values: &mut [T]) -> Result<()> {
    Ok(comm.all_reduce(operator(op)?, values)?)
}

/// `mp_op` of the header.
pub(crate) fn operator(op: c_int) -> Result<ReduceOp> {
    Ok(match op {
        0 => ReduceOp::Sum,
        1 => ReduceOp::Min,
        2 => ReduceOp::Max,
        _ => {
            let what = format!("{op}, expected MP_SUM, MP_MIN or MP_MAX");
            return Err(Failure::argument("op", what));
        }
    })
}

fn same(name: &str, here: usize, there: usize) -> Result<()> {
    if here == there {
        return Ok(());
    }
    Err(Failure::argument(name, format!("{here} here, {there} on another rank")))
}
