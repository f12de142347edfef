//! What the specification deprecates and most programs use: collectives on active sets, which are teams of every 2ⁿth PE that nobody
//! has made, and old names. Their `pSync` and `pWrk` are not needed.

use std::ffi::{c_int, c_long, c_void};
use std::sync::{Arc, OnceLock};

use libmp::ReduceOp;

use crate::atomic::{self, Word};
use crate::collective;
use crate::context::Context;
use crate::failure::die;
use crate::order;
use crate::reduce::Reduced;
use crate::team::Team;
use crate::wait::{Waited, wait_until};
use crate::world::{self, State, state};

/// `SHMEM_CMP_NE`.
const NE: c_int = 2;

/// The active sets that there have been, each found by going from one to the next: without a lock, and mostly there is one.
#[derive(Default)]
pub(crate) struct Sets(OnceLock<Box<Set>>);

struct Set {
    /// The first PE, the logarithm of the stride, and the size.
    key: (c_int, c_int, c_int),
    team: Team,
    next: Sets,
}

/// The team of an active set.
fn set(start: c_int, log_stride: c_int, size: c_int) -> &'static Team {
    let state = state();
    let key = (start, log_stride, size);
    let mut sets = &state.sets;
    loop {
        let set = sets.0.get_or_init(|| {
            let next = Sets::default();
            Box::new(Set { key, team: team_of(state, start, log_stride, size), next })
        });
        if set.key == key {
            return &set.team;
        }
        sets = &set.next;
    }
}

#[cold]
fn team_of(state: &State, start: c_int, log_stride: c_int, size: c_int) -> Team {
    let stride = u32::try_from(log_stride).ok().and_then(|log| 1_usize.checked_shl(log));
    let members = usize::try_from(start).ok().zip(stride).zip(usize::try_from(size).ok());
    let members = members.and_then(|((start, stride), size)| {
        let pe = |i: usize| start.checked_add(i.checked_mul(stride)?).filter(|pe| *pe < state.n);
        (0..size).map(pe).collect::<Option<Arc<[usize]>>>()
    });
    let team = members.and_then(|members| Team::new(&state.groups, members, state.me, 0));
    team.unwrap_or_else(|| {
        let last = state.n - 1;
        die(format!(
            "an active set of {size} PEs from {start} on with a stride of 2^{log_stride} is not of PEs 0 to {last}, or does not have \
             this one"
        ))
    })
}

/// Needs no end of its own, however often it is called.
pub(crate) unsafe fn start_pes(_: c_int) {
    if world::try_state().is_none() {
        // SAFETY: as here.
        unsafe { world::init() }
    }
}

macro_rules! old_names {
    ($($old:ident $new:ident($($argument:ident: $type:ty),+) $(-> $result:ident)?;)+) => {
        $(pub(crate) unsafe fn $old<T: Word>($($argument: $type,)+ pe: c_int) $(-> $result)? {
            // SAFETY: as here.
            unsafe { atomic::$new(Context::DEFAULT, $($argument,)+ pe) }
        })+
    };
}
old_names! {
    fetch fetch(source: *const T) -> T;
    set_word set(dest: *mut T, value: T);
    swap swap(dest: *mut T, value: T) -> T;
    cswap compare_swap(dest: *mut T, expected: T, value: T) -> T;
    finc fetch_inc(dest: *mut T) -> T;
    inc inc(dest: *mut T);
    fadd fetch_add(dest: *mut T, value: T) -> T;
    add add(dest: *mut T, value: T);
}

pub(crate) unsafe fn wait<T: Waited>(word: *mut T, value: T) {
    // SAFETY: as here.
    unsafe { wait_until(word, NE, value) }
}

pub(crate) unsafe fn barrier(start: c_int, log_stride: c_int, size: c_int, _: *mut c_long) {
    order::complete(state());
    collective::sync_of(set(start, log_stride, size));
}

pub(crate) unsafe fn sync(start: c_int, log_stride: c_int, size: c_int, _: *mut c_long) {
    collective::sync_of(set(start, log_stride, size));
}

macro_rules! active_sets {
    ($($name:ident $of:ident($($argument:ident: $type:ty),*) $($given:expr),*;)+) => {
        $(#[allow(clippy::too_many_arguments, reason = "the specification's")]
        pub(crate) unsafe fn $name<T: Copy>(
            dest: *mut c_void, source: *const c_void, $($argument: $type,)*
            start: c_int, log_stride: c_int, size: c_int, _: *mut c_long,
        ) {
            let team = set(start, log_stride, size);
            // SAFETY: as here.
            unsafe { collective::$of::<T>(team, dest.cast(), source.cast(), $($given),*) }
        })+
    };
}
active_sets! {
    // The root's own memory is not written.
    broadcast broadcast_of(n: usize, root: c_int) n, root, false;
    collect collect_of(n: usize) n;
    fcollect fcollect_of(n: usize) n;
    alltoall alltoall_of(n: usize) n;
    alltoalls alltoalls_of(dst: isize, sst: isize, n: usize) dst, sst, n;
}

macro_rules! to_all {
    ($($name:ident $op:ident),+) => {
        $(#[allow(clippy::too_many_arguments, reason = "the specification's")]
        pub(crate) unsafe fn $name<T: Reduced>(
            dest: *mut T, source: *const T, n: c_int, start: c_int, log_stride: c_int, size: c_int, _: *mut T, _: *mut c_long,
        ) {
            let count = usize::try_from(n);
            let n = count.unwrap_or_else(|_| die(format!("{n} elements to reduce, expected none or more")));
            // SAFETY: as here.
            unsafe { T::all_reduce(set(start, log_stride, size), ReduceOp::$op, dest, source, n) }
        })+
    };
}
to_all!(
    and_to_all And,
    or_to_all Or,
    xor_to_all Xor,
    min_to_all Min,
    max_to_all Max,
    sum_to_all Sum,
    prod_to_all Prod
);

/// Caches are coherent.
pub(crate) unsafe fn nothing() {}

/// Caches are coherent.
pub(crate) unsafe fn nothing_at(_: *mut c_void) {}
