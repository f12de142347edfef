//! Order: fence, quiet, barrier. Over mapped memory an operation has happened when its call returns, and the processor keeps stores in
//! order; what has gone through a NIC is waited for.

use std::ffi::c_int;
use std::sync::atomic::{self, Ordering};

use crate::context::Context;
use crate::failure::OrFail;
use crate::world::{State, state};

/// All that this PE has done is to be seen by all others.
pub(crate) fn complete(state: &State) {
    atomic::fence(Ordering::SeqCst);
    for (pe, used) in &state.far {
        if used.load(Ordering::Acquire) {
            quiet_of(state, *pe);
        }
    }
    if let Some(device) = &state.device {
        device.check(state);
    }
}

/// What has been posted for a PE has happened. One queue a PE, for the heap and the variables; the device may have another.
fn quiet_of(state: &State, pe: usize) {
    state.heap.window().quiet(pe).or_fail();
    if let Some(device) = &state.device {
        device.heap.window().quiet(pe).or_fail();
    }
}

/// All PEs have come here, and what they did before has happened.
pub(crate) fn barrier(state: &State) {
    complete(state);
    state.all.collective(&state.world).barrier().run().or_fail();
}

pub(crate) unsafe fn barrier_all() {
    barrier(state());
}

pub(crate) unsafe fn quiet(_: Context) {
    complete(state());
}

/// The same of what has gone to these PEs of the context.
pub(crate) unsafe fn pe_quiet(context: Context, pes: *const c_int, n: usize) {
    let state = state();
    atomic::fence(Ordering::SeqCst);
    for i in 0..n {
        // SAFETY: the caller's list.
        let pe = context.pe(unsafe { *pes.add(i) });
        let far = state.far.binary_search_by_key(&pe, |(far, _)| *far);
        if far.is_ok_and(|at| state.far[at].1.load(Ordering::Acquire)) {
            quiet_of(state, pe);
        }
    }
}

pub(crate) unsafe fn fence(_: Context) {
    let state = state();
    atomic::fence(Ordering::Release);
    if !state.far.is_empty() {
        complete(state);
    }
}

pub(crate) unsafe fn sync_all() {
    let state = state();
    state.all.collective(&state.world).barrier().run().or_fail();
}
