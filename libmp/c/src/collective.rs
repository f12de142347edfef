//! Collectives: of the host by rank 0, and prepared ones, which the host, streams and kernels start.

use std::ffi::{c_int, c_void};

use libmp::gdsync::Stream;
use libmp::{AllReduce, Barrier, Communicator, Number, ReduceOp, Region};

use crate::device::copy;
use crate::handle::{
    api, array, array_mut, borrow, deadline, device, give, number, place, put, take,
};
use crate::region::MpRegion;
use crate::status::{Failure, Result};
use crate::stream::MpStream;
use crate::world::MpComm;

/// Declares what depends on the type of the values: the numbers are those of `mp_type`.
macro_rules! types {
    ($($code:literal $name:ident $type:ident),+ $(,)?) => {
        /// `mp_collective`.
        pub enum MpCollective {
            /// A barrier.
            Barrier(Barrier),
            $(
                #[doc = concat!("An all-reduce of `", stringify!($type), "`.")]
                $name(AllReduce<$type>)
            ),+
        }

        /// The same expression for a collective of any kind.
        macro_rules! of_any {
            ($collective:expr, $made:ident => $result:expr) => {
                match $collective {
                    MpCollective::Barrier($made) => $result,
                    $(MpCollective::$name($made) => $result),+
                }
            };
        }

        impl MpCollective {
            fn prepare_all_reduce(
                comm: &Communicator,
                on: c_int,
                of: c_int,
                count: usize,
            ) -> Result<MpCollective> {
                Ok(match of {
                    $($code => MpCollective::$name(comm.prepare_all_reduce(&device(on)?, count)?),)+
                    _ => return Err(no_type(of)),
                })
            }

            fn start_all_reduce(
                &self,
                op: ReduceOp,
                values: Values<'_>,
                stream: Option<&Stream>,
            ) -> Result<()> {
                match self {
                    MpCollective::Barrier(_) => Err(Failure::argument("collective", "is a barrier")),
                    $(MpCollective::$name(made) => start(made, op, values, stream)),+
                }
            }
        }

        /// All-reduce by rank 0.
        ///
        /// # Safety
        /// As [`array_mut`] of values of that type.
        unsafe fn all_reduce(
            comm: &Communicator,
            of: c_int,
            op: ReduceOp,
            values: *mut c_void,
            count: usize,
        ) -> Result<()> {
            match of {
                $($code => {
                    // SAFETY: the caller's promise.
                    let values = unsafe { array_mut(values.cast::<$type>(), count, "values")? };
                    comm.all_reduce(op, values)?;
                })+
                _ => return Err(no_type(of)),
            }
            Ok(())
        }
    };
}
types! { 0 F64 f64, 1 F32 f32, 2 U64 u64, 3 I64 i64, 4 U32 u32, 5 I32 i32 }

fn no_type(of: c_int) -> Failure {
    let what = format!("{of}, expected MP_F64, MP_F32, MP_U64, MP_I64, MP_U32 or MP_I32");
    Failure::argument("type", what)
}

/// `count` values from byte `offset` of a region.
struct Values<'a> {
    region: &'a MpRegion,
    offset: usize,
    count: usize,
}

fn start<T: Number>(
    all_reduce: &AllReduce<T>,
    op: ReduceOp,
    Values { region, offset, count }: Values<'_>,
    stream: Option<&Stream>,
) -> Result<()> {
    let bytes = count.checked_mul(size_of::<T>());
    let part = region.part(offset, bytes.ok_or_else(|| Failure::argument("count", count))?)?;
    let values = Region::from_buffer(part.buffer().cast()?);
    match stream {
        None => all_reduce.start(op, &values)?,
        Some(stream) => all_reduce.start_on(stream, op, &values)?,
    }
    Ok(())
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

    /// Combines the ranks' values.
    fn mp_all_reduce(
        comm: *const MpComm,
        of: c_int,
        op: c_int,
        values: *mut c_void,
        count: usize,
    ) {
        all_reduce(&borrow(comm, "comm")?.0, of, operator(op)?, values, count)?;
    }

    /// Prepares a barrier.
    fn mp_barrier_prepare(comm: *const MpComm, on: c_int, collective: *mut *mut MpCollective) {
        place(collective, "collective")?;
        let made = borrow(comm, "comm")?.0.prepare_barrier(&device(on)?)?;
        give(collective, MpCollective::Barrier(made), "collective")?;
    }

    /// Prepares an all-reduce of values of a type.
    fn mp_all_reduce_prepare(
        comm: *const MpComm,
        on: c_int,
        of: c_int,
        count: usize,
        collective: *mut *mut MpCollective,
    ) {
        place(collective, "collective")?;
        let comm = &borrow(comm, "comm")?.0;
        give(collective, MpCollective::prepare_all_reduce(comm, on, of, count)?, "collective")?;
    }

    /// Starts a barrier, by the host or on a stream.
    fn mp_barrier_start(collective: *const MpCollective, stream: *const MpStream) {
        let MpCollective::Barrier(barrier) = borrow(collective, "collective")? else {
            return Err(Failure::argument("collective", "is an all-reduce"));
        };
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
        let (collective, op) = (borrow(collective, "collective")?, operator(op)?);
        let values = Values { region: borrow(region, "region")?, offset, count };
        let stream = match stream.is_null() {
            true => None,
            false => Some(&borrow(stream, "stream")?.stream),
        };
        collective.start_all_reduce(op, values, stream)?;
    }

    /// Whether what the host started is complete.
    fn mp_collective_test(collective: *const MpCollective, complete: *mut c_int) {
        put(complete, 0, "complete")?;
        let tested = of_any!(borrow(collective, "collective")?, made => made.test()?);
        put(complete, c_int::from(tested), "complete")?;
    }

    /// Waits for what the host started.
    fn mp_collective_wait(collective: *const MpCollective, timeout: f64) {
        let deadline = deadline(timeout)?;
        of_any!(borrow(collective, "collective")?, made => made.wait(deadline)?);
    }

    /// The `mp::Collective` that a kernel takes.
    fn mp_collective_handle(collective: *const MpCollective, handle: *mut c_void, bytes: usize) {
        copy(of_any!(borrow(collective, "collective")?, made => made.handle()), handle, bytes)?;
    }

    /// Gives a collective back.
    fn mp_collective_free(collective: *mut MpCollective) {
        drop(take(collective, "collective")?);
    }
}

/// `mp_reduce` of the header.
fn operator(op: c_int) -> Result<ReduceOp> {
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
