//! Reductions. Numbers of 32 and 64 bits are combined by `libmp`; of the others, which it does not know, every PE gathers all and combines
//! them by itself, as for a scan. In rank order, all: every PE has the same bits.

use std::ffi::c_int;

use bytemuck::Pod;
use libmp::{Number, ReduceOp};

use crate::collective::fcollect_of;
use crate::device::{self, by_cpu};
use crate::direct::Direct;
use crate::failure::OrFail;
use crate::rma::{LongDouble, bytes_of, slice_of};
use crate::team::{Handle, Team};
use crate::world::state;

/// Bytes of a PE that are gathered at once.
const GATHERED: usize = 16 << 10;

/// An element that is combined.
pub(crate) trait Reduced: Copy {
    /// Combines elements with as many others.
    fn combine(op: ReduceOp, sum: &mut [Self], other: &[Self]);

    /// # Safety
    /// There are `n` elements at both places, which may be the same.
    unsafe fn all_reduce(
        team: &Team,
        op: ReduceOp,
        dest: *mut Self,
        source: *const Self,
        n: usize,
    ) {
        // SAFETY: the caller's promise.
        unsafe { by_gathering(team, op, team.members.len(), dest, source, n) }
    }
}

/// # Safety
/// As [`Reduced::all_reduce`].
unsafe fn by_libmp<T: Number + Pod>(
    team: &Team,
    op: ReduceOp,
    dest: *mut T,
    source: *const T,
    n: usize,
) {
    let run = |dest: *mut T, source: *const T| {
        let (state, bytes) = (state(), bytes_of::<T>(n));
        let operands = ((source.cast(), bytes), (dest.cast(), bytes));
        if let Some(direct) = Direct::meet(state, team, bytes, operands.0, operands.1) {
            // SAFETY: the caller's promise.
            return unsafe { direct.combine::<T>(op, n) };
        }
        if dest.cast_const() != source {
            // SAFETY: the caller's promise: they are the same or apart.
            unsafe { std::ptr::copy(source, dest, n) };
        }
        // SAFETY: the caller's memory, which is nobody else's until this returns.
        let values = unsafe { slice_of(dest, n) };
        team.collective(&state.world).all_reduce_slice(op, values).or_fail();
    };
    // SAFETY: the caller's promise.
    unsafe { by_cpu((dest, n), (source, n), run) }
}

/// Combines what the first `pes` PEs give; of none it is zero.
///
/// # Safety
/// As [`Reduced::all_reduce`].
unsafe fn by_gathering<T: Reduced>(
    team: &Team,
    op: ReduceOp,
    pes: usize,
    dest: *mut T,
    source: *const T,
    n: usize,
) {
    let most = GATHERED / size_of::<T>();
    let mut all: Vec<T> = Vec::with_capacity(most.min(n) * team.members.len());
    for start in (0..n).step_by(most) {
        let count = most.min(n - start);
        // SAFETY: the caller's elements; there is room for those of all, which then are there.
        unsafe {
            fcollect_of(team, all.as_mut_ptr(), source.add(start), count);
            all.set_len(count * team.members.len());
        }
        let (sum, others) = all[..count * pes.max(1)].split_at_mut(count);
        others.chunks(count).for_each(|other| T::combine(op, sum, other));
        // SAFETY: elements, which zeros are, too. What the caller's held has been taken by all when a collective returns.
        unsafe {
            if pes == 0 {
                sum.as_mut_ptr().write_bytes(0, count);
            }
            device::copy(state(), dest.add(start).cast(), sum.as_ptr().cast(), size_of_val(sum));
        }
    }
}

/// Numbers that `libmp` knows.
macro_rules! known {
    ($type:ty) => {
        unsafe fn all_reduce(
            team: &Team,
            op: ReduceOp,
            dest: *mut $type,
            source: *const $type,
            n: usize,
        ) {
            // SAFETY: the caller's promise.
            unsafe { by_libmp(team, op, dest, source, n) }
        }
    };
}

macro_rules! integers {
    ($($type:ident $($known:ident)?),+) => {
        $(impl Reduced for $type {
            fn combine(op: ReduceOp, sum: &mut [$type], other: &[$type]) {
                let one = |a: $type, b: $type| match op {
                    ReduceOp::Sum => a.wrapping_add(b),
                    ReduceOp::Prod => a.wrapping_mul(b),
                    ReduceOp::Min => a.min(b),
                    ReduceOp::Max => a.max(b),
                    ReduceOp::And => a & b,
                    ReduceOp::Or => a | b,
                    ReduceOp::Xor => a ^ b,
                };
                sum.iter_mut().zip(other).for_each(|(a, b)| *a = one(*a, *b));
            }
            $($known!($type);)?
        })+
    };
}
integers!(i8, u8, i16, u16, i32 known, u32 known, i64 known, u64 known);

macro_rules! reals {
    ($($type:ident),+) => {
        $(impl Reduced for $type {
            /// Only sums: everything else is combined by `libmp`.
            fn combine(_: ReduceOp, sum: &mut [$type], other: &[$type]) {
                sum.iter_mut().zip(other).for_each(|(a, b)| *a += b);
            }
            known!($type);
        })+
    };
}
reals!(f32, f64);

macro_rules! complex {
    ($($real:ty),+) => {
        $(impl Reduced for [$real; 2] {
            fn combine(op: ReduceOp, sum: &mut [[$real; 2]], other: &[[$real; 2]]) {
                for (a, b) in sum.iter_mut().zip(other) {
                    *a = match op {
                        ReduceOp::Sum => [a[0] + b[0], a[1] + b[1]],
                        // The table has nothing else for them.
                        _ => [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]],
                    };
                }
            }

            unsafe fn all_reduce(team: &Team, op: ReduceOp, dest: *mut [$real; 2], source: *const [$real; 2], n: usize) {
                match op {
                    // SAFETY: the caller's promise; the sum of the parts.
                    ReduceOp::Sum => unsafe { by_libmp::<$real>(team, op, dest.cast(), source.cast(), 2 * n) },
                    // SAFETY: the caller's promise.
                    _ => unsafe { by_gathering(team, op, team.members.len(), dest, source, n) },
                }
            }
        })+
    };
}
complex!(f32, f64);

unsafe extern "C" {
    /// `long_double.c`. `op`: 0 sum, 1 product, 2 smallest, 3 largest.
    fn mp_shmem_combine_long_doubles(
        op: c_int,
        to: *mut LongDouble,
        from: *const LongDouble,
        n: usize,
    );
}

impl Reduced for LongDouble {
    fn combine(op: ReduceOp, sum: &mut [LongDouble], other: &[LongDouble]) {
        let number = match op {
            ReduceOp::Sum => 0,
            ReduceOp::Prod => 1,
            ReduceOp::Min => 2,
            // The table has nothing else for them.
            _ => 3,
        };
        let n = sum.len().min(other.len());
        // SAFETY: so many elements of both lists.
        unsafe { mp_shmem_combine_long_doubles(number, sum.as_mut_ptr(), other.as_ptr(), n) }
    }
}

/// The functions of C.
macro_rules! functions {
    ($($name:ident $op:ident),+) => {
        $(pub(crate) unsafe fn $name<T: Reduced>(
            team: Handle, dest: *mut T, source: *const T, n: usize,
        ) -> c_int {
            // SAFETY: as here.
            unsafe { T::all_reduce(team.valid(), ReduceOp::$op, dest, source, n) };
            0
        })+
    };
}
functions!(and And, or Or, xor Xor, min Min, max Max, sum Sum, prod Prod);

/// Sums of the PEs up to this one, itself included.
pub(crate) unsafe fn inscan<T: Reduced>(
    team: Handle,
    dest: *mut T,
    source: *const T,
    n: usize,
) -> c_int {
    let team = team.valid();
    // SAFETY: as here.
    unsafe { by_gathering(team, ReduceOp::Sum, team.me + 1, dest, source, n) };
    0
}

/// Sums of the PEs before this one.
pub(crate) unsafe fn exscan<T: Reduced>(
    team: Handle,
    dest: *mut T,
    source: *const T,
    n: usize,
) -> c_int {
    let team = team.valid();
    // SAFETY: as here.
    unsafe { by_gathering(team, ReduceOp::Sum, team.me, dest, source, n) };
    0
}
