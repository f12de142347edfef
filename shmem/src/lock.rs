//! Locks: two numbers of 32 bits in a `long` of one PE. Who wants the lock draws the next number, and has it when that one is served; so
//! they get it in the order in which they have come.

use std::ffi::{c_int, c_long};

use libmp::AtomicOp;

use crate::atomic::change;
use crate::context::Context;
use crate::order;
use crate::wait::until;
use crate::world::{State, state};

/// The numbers of a lock in their order in memory.
struct Numbers {
    next: *const u32,
    served: *const u32,
    /// The PE that holds them.
    pe: c_int,
}

impl Numbers {
    /// Locks are spread over the PEs.
    fn of(state: &State, lock: *const c_long) -> Numbers {
        let (_, at) = state.place(lock as usize, size_of::<c_long>());
        let next = lock.cast::<u32>();
        let pe = (at / size_of::<c_long>() % state.n) as c_int;
        Numbers { next, served: next.wrapping_add(1), pe }
    }

    fn read(&self, number: *const u32) -> u32 {
        // SAFETY: half of a lock.
        unsafe { change(Context::DEFAULT, number, AtomicOp::Fetch, self.pe) }
    }

    fn advance(&self, number: *const u32) -> u32 {
        // SAFETY: half of a lock.
        unsafe { change(Context::DEFAULT, number, AtomicOp::Add(1), self.pe) }
    }
}

pub(crate) unsafe fn set(lock: *mut c_long) {
    let state = state();
    let numbers = Numbers::of(state, lock);
    let mine = numbers.advance(numbers.next);
    until(state, || numbers.read(numbers.served) == mine);
}

pub(crate) unsafe fn clear(lock: *mut c_long) {
    let state = state();
    let numbers = Numbers::of(state, lock);
    // What was done under the lock has happened.
    order::complete(state);
    numbers.advance(numbers.served);
}

/// 0: the lock is this PE's.
pub(crate) unsafe fn test(lock: *mut c_long) -> c_int {
    let state = state();
    let numbers = Numbers::of(state, lock);
    let served = numbers.read(numbers.served);
    let op = AtomicOp::CompareSwap { expected: served, value: served.wrapping_add(1) };
    // SAFETY: half of a lock. Nobody is served before the next number is drawn.
    let next = unsafe { change(Context::DEFAULT, numbers.next, op, numbers.pe) };
    if next != served {
        crate::wait::yield_now_and_then();
    }
    (next != served).into()
}
