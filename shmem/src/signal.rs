//! Puts with a signal: who sees the signal sees the data. Signals are words of 64 bits that are set, or added to.

use std::ffi::c_int;
use std::sync::atomic::{self, Ordering};

use libmp::AtomicOp;

use crate::atomic::change;
use crate::context::Context;
use crate::failure::die;
use crate::wait::{see, wait_and_see};
use crate::world::state;
use crate::{order, rma};

#[allow(clippy::too_many_arguments, reason = "the specification's")]
pub(crate) unsafe fn put_signal<T>(
    ctx: Context,
    dest: *mut T,
    source: *const T,
    n: usize,
    word: *mut u64,
    value: u64,
    op: c_int,
    pe: c_int,
) {
    let op = match op {
        0 => AtomicOp::Swap(value),
        1 => AtomicOp::Add(value),
        _ => die(format!(
            "{op} is nothing to do to a signal: expected SHMEM_SIGNAL_SET or ADD, 0 or 1"
        )),
    };
    // SAFETY: as here.
    unsafe { rma::put(ctx, dest, source, n, pe) };
    atomic::fence(Ordering::Release);
    if !state().far.is_empty() {
        order::complete(state());
    }
    // SAFETY: as here.
    unsafe { change(ctx, word.cast_const(), op, pe) };
}

pub(crate) unsafe fn set(ctx: Context, word: *mut u64, value: u64, pe: c_int) {
    // SAFETY: as here.
    unsafe { change(ctx, word.cast_const(), AtomicOp::Swap(value), pe) };
}

pub(crate) unsafe fn add(ctx: Context, word: *mut u64, value: u64, pe: c_int) {
    // SAFETY: as here.
    unsafe { change(ctx, word.cast_const(), AtomicOp::Add(value), pe) };
}

pub(crate) unsafe fn fetch(word: *const u64) -> u64 {
    // SAFETY: C's promise.
    unsafe { see(state(), word) }
}

pub(crate) unsafe fn wait_until(word: *mut u64, cmp: c_int, value: u64) -> u64 {
    // SAFETY: C's promise.
    unsafe { wait_and_see(word, cmp, value) }
}
