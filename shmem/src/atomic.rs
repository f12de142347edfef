//! Atomic operations on words of symmetric memory: the processor's own where the PE's memory is mapped, the window's behind a NIC, whose
//! engine changes the words as the processor does, so that both may be mixed.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering};

use libmp::{AtomicNumber, AtomicOp};

use crate::context::Context;
use crate::device;
use crate::failure::OrFail;
use crate::rma::{There, there};
use crate::world::state;

/// A number that is changed as one step.
pub(crate) trait Word: AtomicNumber {
    /// 1, of integers.
    const ONE: Self;

    /// Changes a word; gives what it held.
    ///
    /// # Safety
    /// The word is there, and aligned.
    unsafe fn apply(word: *mut u8, op: AtomicOp<Self>) -> Self;
}

const ORDER: Ordering = Ordering::SeqCst;

macro_rules! integers {
    ($($type:ident $atomic:ident),+) => {
        $(impl Word for $type {
            const ONE: $type = 1;

            #[inline]
            unsafe fn apply(word: *mut u8, op: AtomicOp<$type>) -> $type {
                // SAFETY: the caller's promise; others use it atomically, too.
                let word = unsafe { $atomic::from_ptr(word.cast()) };
                match op {
                    AtomicOp::Fetch => word.load(ORDER),
                    AtomicOp::Swap(value) => word.swap(value, ORDER),
                    AtomicOp::CompareSwap { expected, value } => {
                        word.compare_exchange(expected, value, ORDER, ORDER).unwrap_or_else(|held| held)
                    }
                    AtomicOp::Add(value) => word.fetch_add(value, ORDER),
                    AtomicOp::And(value) => word.fetch_and(value, ORDER),
                    AtomicOp::Or(value) => word.fetch_or(value, ORDER),
                    AtomicOp::Xor(value) => word.fetch_xor(value, ORDER),
                    AtomicOp::Min(value) => word.fetch_min(value, ORDER),
                    AtomicOp::Max(value) => word.fetch_max(value, ORDER),
                }
            }
        })+
    };
}
integers!(i32 AtomicI32, u32 AtomicU32, i64 AtomicI64, u64 AtomicU64);

macro_rules! reals {
    ($($type:ident $atomic:ident),+) => {
        $(impl Word for $type {
            const ONE: $type = 1.0;

            #[inline]
            unsafe fn apply(word: *mut u8, op: AtomicOp<$type>) -> $type {
                // SAFETY: the caller's promise; others use it atomically, too.
                let word = unsafe { $atomic::from_ptr(word.cast()) };
                $type::from_bits(match op {
                    AtomicOp::Swap(value) => word.swap(value.to_bits(), ORDER),
                    // The table has nothing else for them.
                    _ => word.load(ORDER),
                })
            }
        })+
    };
}
reals!(f32 AtomicU32, f64 AtomicU64);

#[inline]
pub(crate) unsafe fn change<T: Word>(
    ctx: Context,
    dest: *const T,
    op: AtomicOp<T>,
    pe: c_int,
) -> T {
    match there(state(), ctx, dest as usize, size_of::<T>(), pe) {
        // SAFETY: a word of the peer's, as aligned as here.
        There::Mapped(word) => unsafe { T::apply(word, op) },
        There::Far(segment, pe, at) => segment.window().atomic(pe, at, op).or_fail(),
    }
}

/// The functions of C, each of which is one operation.
macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),+) $(-> $result:ident)?: $word:ident, $op:expr;)+) => {
        $(pub(crate) unsafe fn $name<T: Word>(ctx: Context, $($argument: $type,)+ pe: c_int) $(-> $result)? {
            // SAFETY: as here.
            let held = unsafe { change(ctx, $word, $op, pe) };
            functions!(@ held $($result)?)
        })+
    };
    (@ $held:ident T) => { $held };
    (@ $held:ident) => { { let _ = $held; } };
}
functions! {
    fetch(source: *const T) -> T: source, AtomicOp::Fetch;
    set(dest: *mut T, value: T): dest, AtomicOp::Swap(value);
    swap(dest: *mut T, value: T) -> T: dest, AtomicOp::Swap(value);
    compare_swap(dest: *mut T, expected: T, value: T) -> T: dest, AtomicOp::CompareSwap { expected, value };
    fetch_inc(dest: *mut T) -> T: dest, AtomicOp::Add(T::ONE);
    inc(dest: *mut T): dest, AtomicOp::Add(T::ONE);
    fetch_add(dest: *mut T, value: T) -> T: dest, AtomicOp::Add(value);
    add(dest: *mut T, value: T): dest, AtomicOp::Add(value);
    fetch_and(dest: *mut T, value: T) -> T: dest, AtomicOp::And(value);
    and(dest: *mut T, value: T): dest, AtomicOp::And(value);
    fetch_or(dest: *mut T, value: T) -> T: dest, AtomicOp::Or(value);
    or(dest: *mut T, value: T): dest, AtomicOp::Or(value);
    fetch_xor(dest: *mut T, value: T) -> T: dest, AtomicOp::Xor(value);
    xor(dest: *mut T, value: T): dest, AtomicOp::Xor(value);
}

/// What a `_nbi` brings is there when it returns.
macro_rules! later {
    ($($name:ident $now:ident($($argument:ident: $type:ty),+);)+) => {
        $(pub(crate) unsafe fn $name<T: Word>(ctx: Context, fetch: *mut T, $($argument: $type,)+ pe: c_int) {
            // SAFETY: as here.
            unsafe {
                let held = $now(ctx, $($argument,)+ pe);
                device::copy(state(), fetch.cast(), (&raw const held).cast(), size_of::<T>());
            }
        })+
    };
}
later! {
    fetch_nbi fetch(source: *const T);
    swap_nbi swap(dest: *mut T, value: T);
    compare_swap_nbi compare_swap(dest: *mut T, expected: T, value: T);
    fetch_inc_nbi fetch_inc(dest: *mut T);
    fetch_add_nbi fetch_add(dest: *mut T, value: T);
    fetch_and_nbi fetch_and(dest: *mut T, value: T);
    fetch_or_nbi fetch_or(dest: *mut T, value: T);
    fetch_xor_nbi fetch_xor(dest: *mut T, value: T);
}
