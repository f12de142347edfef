//! Reductions. Numbers of 32 and 64 bits are combined by `libmp`; of the others, which it does not know, every PE gathers all and combines
//! them by itself. In rank order, both: every PE has the same bits.

use std::ffi::c_int;

use bytemuck::Pod;
use libmp::{Number, ReduceOp};

use crate::collective::fcollect_of;
use crate::failure::OrFail;
use crate::rma::{LongDouble, region};
use crate::team::{Handle, Team};
use crate::world::state;

/// Bytes of a PE that are gathered at once.
const GATHERED: usize = 16 << 10;

/// An element that is combined.
pub(crate) trait Reduced: Copy {
    /// # Safety
    /// There are `n` elements at both places, which may be the same.
    unsafe fn all_reduce(team: &Team, op: ReduceOp, dest: *mut Self, source: *const Self, n: usize);
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
    // SAFETY: the caller's promise.
    let (from, to) = unsafe { (region(source, n), region(dest, n)) };
    team.collective(&state().world).all_reduce(op, &from, &to).run().or_fail();
}

/// Combines with what every PE gives; `combine` takes the elements so far and those of the next PE.
///
/// # Safety
/// As [`Reduced::all_reduce`].
unsafe fn by_gathering<T: Copy>(
    team: &Team,
    dest: *mut T,
    source: *const T,
    n: usize,
    combine: impl Fn(&mut [T], &[T]),
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
        let (sum, others) = all.split_at_mut(count);
        others.chunks(count).for_each(|other| combine(sum, other));
        // SAFETY: the caller's elements. What they held has been taken by all when a collective returns.
        unsafe { std::ptr::copy_nonoverlapping(sum.as_ptr(), dest.add(start), count) };
    }
}

macro_rules! known {
    ($($type:ty),+) => {
        $(impl Reduced for $type {
            unsafe fn all_reduce(team: &Team, op: ReduceOp, dest: *mut $type, source: *const $type, n: usize) {
                // SAFETY: the caller's promise.
                unsafe { by_libmp(team, op, dest, source, n) }
            }
        })+
    };
}
known!(i32, u32, i64, u64, f32, f64);

macro_rules! small {
    ($($type:ty),+) => {
        $(impl Reduced for $type {
            unsafe fn all_reduce(team: &Team, op: ReduceOp, dest: *mut $type, source: *const $type, n: usize) {
                let one = |a: $type, b: $type| match op {
                    ReduceOp::Sum => a.wrapping_add(b),
                    ReduceOp::Prod => a.wrapping_mul(b),
                    ReduceOp::Min => a.min(b),
                    ReduceOp::Max => a.max(b),
                    ReduceOp::And => a & b,
                    ReduceOp::Or => a | b,
                    ReduceOp::Xor => a ^ b,
                };
                let combine = |sum: &mut [$type], other: &[$type]| {
                    sum.iter_mut().zip(other).for_each(|(a, b)| *a = one(*a, *b));
                };
                // SAFETY: the caller's promise.
                unsafe { by_gathering(team, dest, source, n, combine) }
            }
        })+
    };
}
small!(i8, u8, i16, u16);

macro_rules! complex {
    ($($real:ty),+) => {
        $(impl Reduced for [$real; 2] {
            unsafe fn all_reduce(team: &Team, op: ReduceOp, dest: *mut [$real; 2], source: *const [$real; 2], n: usize) {
                if op == ReduceOp::Sum {
                    // SAFETY: the caller's promise; the sum of the parts.
                    return unsafe { by_libmp::<$real>(team, op, dest.cast(), source.cast(), 2 * n) };
                }
                let combine = |product: &mut [[$real; 2]], other: &[[$real; 2]]| {
                    for (a, b) in product.iter_mut().zip(other) {
                        *a = [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]];
                    }
                };
                // SAFETY: the caller's promise.
                unsafe { by_gathering(team, dest, source, n, combine) }
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
    unsafe fn all_reduce(
        team: &Team,
        op: ReduceOp,
        dest: *mut LongDouble,
        source: *const LongDouble,
        n: usize,
    ) {
        let number = match op {
            ReduceOp::Sum => 0,
            ReduceOp::Prod => 1,
            ReduceOp::Min => 2,
            // The table has nothing else for them.
            _ => 3,
        };
        let combine = |sum: &mut [LongDouble], other: &[LongDouble]| {
            // SAFETY: two lists of the same length.
            unsafe {
                mp_shmem_combine_long_doubles(number, sum.as_mut_ptr(), other.as_ptr(), sum.len())
            }
        };
        // SAFETY: the caller's promise.
        unsafe { by_gathering(team, dest, source, n, combine) }
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
