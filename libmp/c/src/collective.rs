//! Collectives: of the host by rank 0, and prepared ones, which the host, streams and kernels start.

use std::ffi::{c_int, c_void};

use libmp::{AllReduce, Barrier, Communicator, Number, ReduceOp, Region};

use crate::device::copy;
use crate::handle::{
    api, array, array_mut, borrow, deadline, device, give, number, place, put, take,
};
use crate::region::MpRegion;
use crate::status::{Failure, Result};
use crate::stream::MpStream;
use crate::world::MpComm;

/// `mp_collective`.
pub enum MpCollective {
    /// A barrier.
    Barrier(Barrier),
    /// An all-reduce of doubles.
    AllReduce(AllReduce<f64>),
}

impl MpCollective {
    fn barrier(&self) -> Result<&Barrier> {
        match self {
            MpCollective::Barrier(barrier) => Ok(barrier),
            MpCollective::AllReduce(_) => Err(Failure::argument("collective", "is an all-reduce")),
        }
    }

    fn all_reduce(&self) -> Result<&AllReduce<f64>> {
        match self {
            MpCollective::AllReduce(all_reduce) => Ok(all_reduce),
            MpCollective::Barrier(_) => Err(Failure::argument("collective", "is a barrier")),
        }
    }
}

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

    /// Prepares a barrier.
    fn mp_barrier_prepare(comm: *const MpComm, on: c_int, collective: *mut *mut MpCollective) {
        place(collective, "collective")?;
        let made = borrow(comm, "comm")?.0.prepare_barrier(&device(on)?)?;
        give(collective, MpCollective::Barrier(made), "collective")?;
    }

    /// Prepares an all-reduce of doubles.
    fn mp_all_reduce_prepare(
        comm: *const MpComm,
        on: c_int,
        count: usize,
        collective: *mut *mut MpCollective,
    ) {
        place(collective, "collective")?;
        let made = borrow(comm, "comm")?.0.prepare_all_reduce(&device(on)?, count)?;
        give(collective, MpCollective::AllReduce(made), "collective")?;
    }

    /// Starts a barrier, by the host or on a stream.
    fn mp_barrier_start(collective: *const MpCollective, stream: *const MpStream) {
        let barrier = borrow(collective, "collective")?.barrier()?;
        match stream.is_null() {
            true => barrier.start()?,
            false => barrier.start_on(&borrow(stream, "stream")?.stream)?,
        }
    }

    /// Starts an all-reduce, by the host or on a stream.
    fn mp_all_reduce_start(
        collective: *const MpCollective,
        op: c_int,
        region: *const MpRegion,
        offset: usize,
        count: usize,
        stream: *const MpStream,
    ) {
        let all_reduce = borrow(collective, "collective")?.all_reduce()?;
        let bytes = count.checked_mul(8).ok_or_else(|| Failure::argument("count", count))?;
        let part = borrow(region, "region")?.part(offset, bytes)?;
        let (op, values) = (operator(op)?, Region::from_buffer(part.buffer().cast()?));
        match stream.is_null() {
            true => all_reduce.start(op, &values)?,
            false => all_reduce.start_on(&borrow(stream, "stream")?.stream, op, &values)?,
        }
    }

    /// Whether what the host started is complete.
    fn mp_collective_test(collective: *const MpCollective, complete: *mut c_int) {
        put(complete, 0, "complete")?;
        let tested = match borrow(collective, "collective")? {
            MpCollective::Barrier(barrier) => barrier.test()?,
            MpCollective::AllReduce(all_reduce) => all_reduce.test()?,
        };
        put(complete, c_int::from(tested), "complete")?;
    }

    /// Waits for what the host started.
    fn mp_collective_wait(collective: *const MpCollective, timeout: f64) {
        match borrow(collective, "collective")? {
            MpCollective::Barrier(barrier) => barrier.wait(deadline(timeout)?)?,
            MpCollective::AllReduce(all_reduce) => all_reduce.wait(deadline(timeout)?)?,
        }
    }

    /// The `mp::Collective` that a kernel takes.
    fn mp_collective_handle(collective: *const MpCollective, handle: *mut c_void, bytes: usize) {
        let made = match borrow(collective, "collective")? {
            MpCollective::Barrier(barrier) => barrier.handle(),
            MpCollective::AllReduce(all_reduce) => all_reduce.handle(),
        };
        copy(made, handle, bytes)?;
    }

    /// Gives a collective back.
    fn mp_collective_free(collective: *mut MpCollective) {
        drop(take(collective, "collective")?);
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
