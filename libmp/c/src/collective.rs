//! Collectives: of the host by rank 0, and prepared ones, which the host, streams and kernels start.

use std::ffi::{c_int, c_void};

use bytemuck::Pod;
use libmp::{Collective, CollectiveRun, Communicator, Number, ReduceOp, Region, bf16, f16};

use crate::device::copy;
use crate::handle::{
    api, array, array_mut, borrow, deadline, device, give, number, place, put, take,
};
use crate::region::MpRegion;
use crate::status::{Failure, Result};
use crate::stream::MpStream;
use crate::world::MpComm;

/// `mp_collective`.
pub struct MpCollective(Collective);

/// What a run is for: memory, and where it is started.
struct Call<'a> {
    kind: c_int,
    root: c_int,
    op: c_int,
    from: Option<&'a MpRegion>,
    to: Option<&'a MpRegion>,
    count: usize,
}

/// Declares what depends on the type of the values: the numbers are those of `mp_type`.
macro_rules! types {
    ($($code:literal $type:ident),+ $(,)?) => {
        impl MpCollective {
            /// A run of values of a type.
            fn run(&self, of: c_int, call: &Call<'_>) -> Result<CollectiveRun<'_>> {
                match of {
                    $($code => self.run_of::<$type>(call),)+
                    BYTE => self.moves::<u8>(call)?.ok_or_else(|| {
                        Failure::argument("type", "is MP_BYTE, which is moved and not combined")
                    }),
                    _ => Err(no_type(of, ", MP_I32, MP_F16, MP_BF16 or MP_BYTE")),
                }
            }

            /// An all-to-all of blocks of any size.
            fn run_v(&self, of: c_int, call: &Call<'_>, table: Table<'_>) -> Result<CollectiveRun<'_>> {
                match of {
                    $($code => self.all_to_all_v::<$type>(call, table),)+
                    BYTE => self.all_to_all_v::<u8>(call, table),
                    _ => Err(no_type(of, ", MP_I32, MP_F16, MP_BF16 or MP_BYTE")),
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
                _ => return Err(no_type(of, ", MP_I32, MP_F16 or MP_BF16")),
            }
            Ok(())
        }
    };
}
types! { 0 f64, 1 f32, 2 u64, 3 i64, 4 u32, 5 i32, 6 f16, 7 bf16 }

/// `MP_BYTE`.
const BYTE: c_int = 8;

/// A type that is none of those that are taken beside the first ones.
pub(crate) fn no_type(of: c_int, last: &str) -> Failure {
    let what = "MP_F64, MP_F32, MP_U64, MP_I64, MP_U32";
    Failure::argument("type", format!("{of}, expected {what}{last}"))
}

/// Offsets and numbers of elements, for each rank: of what it gets, and of what it gives.
struct Table<'a> {
    given: [&'a [usize]; 2],
    taken: [&'a [usize]; 2],
}

/// The whole elements of a region.
fn elements<T: Pod>(region: Option<&MpRegion>) -> Result<Option<Region<T>>> {
    let Some(region) = region else { return Ok(None) };
    let whole = region.0.len() / size_of::<T>() * size_of::<T>();
    Ok(Some(Region::from_buffer(region.part(0, whole)?.buffer().cast()?)))
}

/// A region that the kind needs.
fn needed<T>(region: Option<&Region<T>>, name: &str) -> Result<Region<T>> {
    region.cloned().ok_or_else(|| Failure::argument(name, "is NULL"))
}

/// Its first elements.
fn first<T: Pod>(
    region: Option<&Region<T>>,
    name: &str,
    count: Option<usize>,
) -> Result<Region<T>> {
    let count = count.ok_or_else(|| Failure::argument("count", "is more than any memory has"))?;
    Ok(Region::from_buffer(needed(region, name)?.buffer().slice(0..count)?))
}

impl MpCollective {
    /// A run that moves values; `None` if the kind combines them.
    fn moves<T: Pod>(&self, call: &Call<'_>) -> Result<Option<CollectiveRun<'_>>> {
        let (from, to) = (elements::<T>(call.from)?, elements::<T>(call.to)?);
        // Where one is not looked at the other stands for it.
        let either = from.as_ref().or(to.as_ref());
        let (count, all) = (call.count, &self.0);
        let every = count.checked_mul(all.handle().ranks as usize);
        let (root, one) = (|| number(call.root, "root"), Some(count));
        let is_root = || Ok::<_, Failure>(root()? as u64 == all.handle().rank);
        Ok(Some(match call.kind {
            0 => all.barrier(),
            1 => all.broadcast(root()?, &first(to.as_ref(), "to", one)?),
            2 => all.all_gather(&first(from.as_ref(), "from", one)?, &needed(to.as_ref(), "to")?),
            3 => {
                let from = first(from.as_ref(), "from", one)?;
                let to = if is_root()? { needed(to.as_ref(), "to")? } else { from.clone() };
                all.gather(root()?, &from, &to)
            }
            4 => {
                let to = first(to.as_ref(), "to", one)?;
                let from = if is_root()? { needed(either, "from")? } else { to.clone() };
                all.scatter(root()?, &from, &to)
            }
            5 => {
                let from = first(from.as_ref(), "from", every)?;
                all.all_to_all(&from, &first(to.as_ref(), "to", every)?)
            }
            6..=9 => return Ok(None),
            kind => {
                let what = format!("{kind}, expected MP_BARRIER to MP_SCAN");
                return Err(Failure::argument("kind", what));
            }
        }))
    }

    /// A run of values that can be combined.
    fn run_of<T: Number>(&self, call: &Call<'_>) -> Result<CollectiveRun<'_>> {
        if let Some(run) = self.moves::<T>(call)? {
            return Ok(run);
        }
        let (op, all, one) = (operator(call.op)?, &self.0, Some(call.count));
        let (from, to) = (elements::<T>(call.from)?, elements::<T>(call.to)?);
        let from = match call.kind {
            7 => needed(from.as_ref(), "from")?,
            _ => first(from.as_ref(), "from", one)?,
        };
        if call.kind == 6 {
            let root = number(call.root, "root")?;
            let is_root = root as u64 == all.handle().rank;
            let to = if is_root { first(to.as_ref(), "to", one)? } else { from.clone() };
            return Ok(all.reduce(op, root, &from, &to));
        }
        let to = first(to.as_ref(), "to", one)?;
        Ok(match call.kind {
            7 => all.reduce_scatter(op, &from, &to),
            8 => all.all_reduce(op, &from, &to),
            _ => all.scan(op, &from, &to),
        })
    }

    fn all_to_all_v<T: Pod>(&self, call: &Call<'_>, table: Table<'_>) -> Result<CollectiveRun<'_>> {
        let (from, to) = (elements::<T>(call.from)?, elements::<T>(call.to)?);
        let ranges = |[offsets, counts]: [&[usize]; 2]| {
            let range = |(&at, &count): (&usize, &usize)| {
                let end = at.checked_add(count);
                end.map(|end| at..end).ok_or_else(|| Failure::argument("offsets", at))
            };
            offsets.iter().zip(counts).map(range).collect::<Result<Vec<_>>>()
        };
        let (given, taken) = (ranges(table.given)?, ranges(table.taken)?);
        let (from, to) = (needed(from.as_ref(), "from")?, needed(to.as_ref(), "to")?);
        Ok(self.0.all_to_all_v(&from, &given, &to, &taken))
    }
}

/// Starts a run, by the host or on a stream.
///
/// # Safety
/// As [`borrow`] of the stream.
unsafe fn start(run: CollectiveRun<'_>, stream: *const MpStream) -> Result<()> {
    match stream.is_null() {
        true => run.start()?,
        // SAFETY: the caller's promise.
        false => run.start_on(&unsafe { borrow(stream, "stream") }?.stream)?,
    }
    Ok(())
}

/// A region, or none.
///
/// # Safety
/// As [`borrow`].
unsafe fn optional<'a>(region: *const MpRegion, name: &str) -> Result<Option<&'a MpRegion>> {
    match region.is_null() {
        true => Ok(None),
        // SAFETY: the caller's promise.
        false => Ok(Some(unsafe { borrow(region, name) }?)),
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

    /// Prepares collectives.
    fn mp_collective_prepare(
        comm: *const MpComm,
        on: c_int,
        bytes: usize,
        collective: *mut *mut MpCollective,
    ) {
        place(collective, "collective")?;
        let made = borrow(comm, "comm")?.0.prepare_collective(&device(on)?, bytes)?;
        give(collective, MpCollective(made), "collective")?;
    }

    /// Starts a run of any kind but `mp_all_to_all_v_start`'s, by the host or on a stream.
    fn mp_collective_start(
        collective: *const MpCollective,
        kind: c_int,
        root: c_int,
        of: c_int,
        op: c_int,
        from: *const MpRegion,
        to: *const MpRegion,
        count: usize,
        stream: *const MpStream,
    ) {
        let (from, to) = (optional(from, "from")?, optional(to, "to")?);
        let call = Call { kind, root, op, from, to, count };
        start(borrow(collective, "collective")?.run(of, &call)?, stream)?;
    }

    /// Starts an all-to-all of blocks of any size, by the host or on a stream.
    fn mp_all_to_all_v_start(
        collective: *const MpCollective,
        of: c_int,
        from: *const MpRegion,
        given_at: *const usize,
        given: *const usize,
        to: *const MpRegion,
        taken_at: *const usize,
        taken: *const usize,
        stream: *const MpStream,
    ) {
        let collective = borrow(collective, "collective")?;
        let ranks = collective.0.handle().ranks as usize;
        let table = Table {
            given: [array(given_at, ranks, "given_at")?, array(given, ranks, "given")?],
            taken: [array(taken_at, ranks, "taken_at")?, array(taken, ranks, "taken")?],
        };
        let (from, to) = (Some(borrow(from, "from")?), Some(borrow(to, "to")?));
        let call = Call { kind: 5, root: 0, op: 0, from, to, count: 0 };
        start(collective.run_v(of, &call, table)?, stream)?;
    }

    /// Whether what the host started is complete.
    fn mp_collective_test(collective: *const MpCollective, complete: *mut c_int) {
        put(complete, 0, "complete")?;
        let tested = borrow(collective, "collective")?.0.test()?;
        put(complete, c_int::from(tested), "complete")?;
    }

    /// Waits for what the host started.
    fn mp_collective_wait(collective: *const MpCollective, timeout: f64) {
        let deadline = deadline(timeout)?;
        borrow(collective, "collective")?.0.wait(deadline)?;
    }

    /// The `mp::Collective` that a kernel takes.
    fn mp_collective_handle(collective: *const MpCollective, handle: *mut c_void, bytes: usize) {
        copy(borrow(collective, "collective")?.0.handle(), handle, bytes)?;
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
        3 => ReduceOp::Prod,
        4 => ReduceOp::And,
        5 => ReduceOp::Or,
        6 => ReduceOp::Xor,
        _ => {
            let what = format!("{op}, expected MP_SUM to MP_BIT_XOR");
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
