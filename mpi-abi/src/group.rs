//! Groups of ranks (MPI 5.0, chapter 7): those of a communicator, some of them, and communicators made of them.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use crate::abi::{Handle, UNDEFINED};
use crate::state::{self, comm, expect, fail};
use crate::world::{entries, list, put};

/// `MPI_GROUP_NULL`, `MPI_GROUP_EMPTY`.
const NULL: Handle = 0x108;
const EMPTY: Handle = 0x109;

/// The ranks of the world that are in a group, in its order.
type Members = Arc<[usize]>;

static GROUPS: LazyLock<RwLock<HashMap<Handle, Members>>> = LazyLock::new(RwLock::default);
static NEXT: AtomicUsize = AtomicUsize::new(0x1000);

fn add(members: Members) -> Handle {
    if members.is_empty() {
        return EMPTY;
    }
    let handle = NEXT.fetch_add(1, Ordering::Relaxed);
    GROUPS.write().unwrap_or_else(PoisonError::into_inner).insert(handle, members);
    handle
}

fn members(call: &str, group: Handle) -> Members {
    if group == EMPTY {
        return Members::default();
    }
    let known = GROUPS.read().unwrap_or_else(PoisonError::into_inner).get(&group).cloned();
    known.unwrap_or_else(|| fail(call, format!("handle {group:#x} is no group")))
}

/// Where a rank of the world is in a group.
fn place(members: &[usize], rank: usize) -> Option<usize> {
    members.iter().position(|member| *member == rank)
}

/// The rank of the world at a place of a group.
fn at(call: &str, members: &[usize], rank: c_int) -> usize {
    let member = usize::try_from(rank).ok().and_then(|rank| members.get(rank).copied());
    member
        .unwrap_or_else(|| fail(call, format!("{rank} is no rank of a group of {}", members.len())))
}

entries! {
    fn MPI_Comm_group(handle: Handle, group: *mut Handle) {
        let comm = comm(CALL, handle);
        let member = |rank| expect(CALL, comm.communicator.world_rank(rank));
        put(group, add((0..comm.size()).map(member).collect()));
    }

    fn MPI_Group_incl(group: Handle, count: c_int, ranks: *const c_int, new: *mut Handle) {
        let all = members(CALL, group);
        let chosen: Members = list(CALL, count, ranks).iter().map(|rank| at(CALL, &all, *rank)).collect();
        if (1..chosen.len()).any(|number| chosen[..number].contains(&chosen[number])) {
            fail(CALL, "a rank is named twice");
        }
        put(new, add(chosen));
    }

    fn MPI_Group_size(group: Handle, size: *mut c_int) {
        put(size, members(CALL, group).len() as c_int);
    }

    fn MPI_Group_rank(group: Handle, rank: *mut c_int) {
        let world = comm(CALL, crate::abi::COMM_WORLD).rank();
        put(rank, place(&members(CALL, group), world).map_or(UNDEFINED, |rank| rank as c_int));
    }

    fn MPI_Group_translate_ranks(from: Handle, count: c_int, ranks: *const c_int, to: Handle, found: *mut c_int) {
        let (from, to) = (members(CALL, from), members(CALL, to));
        for (number, rank) in list(CALL, count, ranks).iter().enumerate() {
            let there = match *rank {
                crate::abi::PROC_NULL => crate::abi::PROC_NULL,
                rank => place(&to, at(CALL, &from, rank)).map_or(UNDEFINED, |rank| rank as c_int),
            };
            put(found.wrapping_add(number), there);
        }
    }

    fn MPI_Group_free(group: *mut Handle) {
        let known = GROUPS.write().unwrap_or_else(PoisonError::into_inner).remove(&*group);
        if known.is_none() && *group != EMPTY {
            fail(CALL, format!("handle {:#x} is no group", *group));
        }
        put(group, NULL);
    }

    fn MPI_Comm_create(handle: Handle, group: Handle, new: *mut Handle) {
        let (comm, members) = (comm(CALL, handle), members(CALL, group));
        let own = place(&members, expect(CALL, comm.communicator.world_rank(comm.rank())));
        let key = own.unwrap_or_default() as i64;
        let split = expect(CALL, comm.communicator.split(own.map(|_| 0), key));
        put(new, state::add(CALL, split, None));
    }
}
