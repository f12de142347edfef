//! Collectives of teams that move data: those of `libmp`, on the program's memory.

use std::ffi::c_int;

use crate::device::{self, by_cpu};
use crate::direct::{self, Direct};
use crate::failure::{OrFail, die};
use crate::rma::{bytes_of, region, slice_of, stride_of};
use crate::team::{Handle, Team};
use crate::world::state;

/// Bytes of a PE in a piece of a collect.
const PIECE: usize = 64 << 10;

pub(crate) unsafe fn sync(team: Handle) -> c_int {
    sync_of(team.valid());
    0
}

/// All PEs of a team have come here.
pub(crate) fn sync_of(team: &Team) {
    team.collective(&state().world).barrier().run().or_fail();
}

/// Gives the elements of PE number `root`; there they go to `dest` only if `also_there`.
pub(crate) unsafe fn broadcast_of<T>(
    team: &Team,
    dest: *mut T,
    source: *const T,
    n: usize,
    root: c_int,
    also_there: bool,
) {
    let size = team.members.len();
    let number = usize::try_from(root).ok().filter(|root| *root < size);
    let root = number.unwrap_or_else(|| {
        die(format!(
            "there is no PE {root} to broadcast from: the PEs of the team are 0 to {}",
            size - 1
        ))
    });
    let bytes = bytes_of::<T>(n);
    let here = if team.me == root { source } else { dest.cast_const() };
    let run = |values: *mut u8, _| {
        let state = state();
        // SAFETY: the caller's memory, which is nobody else's until this returns.
        if unsafe { direct::broadcast(state, team, root, values, bytes) } {
            return;
        }
        // SAFETY: as above.
        let values = unsafe { slice_of(values, bytes) };
        team.collective(&state.world).broadcast_slice(root, values).or_fail();
    };
    // SAFETY: the caller's memory, of which the root's is not written.
    unsafe { by_cpu((here.cast::<u8>().cast_mut(), bytes), (std::ptr::null(), 0), run) };
    if team.me == root && also_there {
        // SAFETY: the caller's memory, which may be the same.
        unsafe { device::copy(state(), dest.cast(), source.cast(), bytes) };
    }
}

pub(crate) unsafe fn broadcast<T>(
    team: Handle,
    dest: *mut T,
    source: *const T,
    n: usize,
    root: c_int,
) -> c_int {
    // SAFETY: as here.
    unsafe { broadcast_of(team.valid(), dest, source, n, root, true) };
    0
}

/// As many elements of every PE.
pub(crate) unsafe fn fcollect_of<T>(team: &Team, dest: *mut T, source: *const T, n: usize) {
    let bytes = bytes_of::<T>(n);
    let all = bytes_of::<T>(n.saturating_mul(team.members.len()));
    let run = |dest: *mut u8, source: *const u8| {
        let state = state();
        if let Some(direct) = Direct::meet(state, team, bytes, (source, bytes), (dest, all)) {
            // SAFETY: the caller's memory.
            return unsafe { direct.take(bytes, |_| 0, |pe| pe * bytes) };
        }
        if bytes != 0 {
            // SAFETY: the caller's memory.
            unsafe { std::ptr::copy(source, dest.wrapping_add(team.me * bytes), bytes) };
        }
        // SAFETY: as above; it is nobody else's until this returns.
        let values = unsafe { slice_of(dest, all) };
        team.collective(&state.world).all_gather_slice(values).or_fail();
    };
    // SAFETY: the caller's memory.
    unsafe { by_cpu((dest.cast(), all), (source.cast(), bytes), run) };
}

pub(crate) unsafe fn fcollect<T>(team: Handle, dest: *mut T, source: *const T, n: usize) -> c_int {
    // SAFETY: as here.
    unsafe { fcollect_of(team.valid(), dest, source, n) };
    0
}

/// As many elements of each PE as it has. All tell how many, and then give pieces of the length that the PE with the most has left.
pub(crate) unsafe fn collect_of<T>(team: &Team, dest: *mut T, source: *const T, n: usize) {
    let (bytes, size) = (bytes_of::<T>(n), team.members.len());
    let mut counts = vec![0_usize; size];
    // SAFETY: memory of this function.
    unsafe { fcollect_of(team, counts.as_mut_ptr(), &raw const bytes, 1) };
    let most = counts.iter().copied().max().unwrap_or_default();
    let mut piece = vec![0_u8; most.min(PIECE)];
    let mut pieces = vec![0_u8; piece.len() * size];
    for start in (0..most).step_by(PIECE) {
        let len = PIECE.min(most - start);
        let part = |bytes: usize| bytes.saturating_sub(start).min(len);
        // SAFETY: the part of the caller's bytes that there is, and memory of this function.
        unsafe {
            device::copy(
                state(),
                piece.as_mut_ptr(),
                source.cast::<u8>().add(start.min(bytes)),
                part(bytes),
            );
            fcollect_of(team, pieces.as_mut_ptr(), piece.as_ptr(), len);
        }
        let mut first = 0;
        for (count, theirs) in counts.iter().zip(pieces.chunks(len)) {
            // SAFETY: the caller's memory, which has room for all.
            unsafe {
                let to = dest.cast::<u8>().add(first + start.min(*count));
                device::copy(state(), to, theirs.as_ptr(), part(*count));
            }
            first += count;
        }
    }
}

pub(crate) unsafe fn collect<T>(team: Handle, dest: *mut T, source: *const T, n: usize) -> c_int {
    // SAFETY: as here.
    unsafe { collect_of(team.valid(), dest, source, n) };
    0
}

/// `n` elements of every PE for each.
pub(crate) unsafe fn alltoall_of<T>(team: &Team, dest: *mut T, source: *const T, n: usize) {
    let bytes = bytes_of::<T>(n.saturating_mul(team.members.len()));
    let run = |dest: *mut u8, source: *const u8| {
        let (state, each) = (state(), bytes / team.members.len());
        if let Some(direct) = Direct::meet(state, team, each, (source, bytes), (dest, bytes)) {
            // SAFETY: the caller's memory.
            return unsafe { direct.take(each, |_| team.me * each, |pe| pe * each) };
        }
        // SAFETY: the caller's memory.
        let (from, to) = unsafe { (region(source, bytes), region(dest, bytes)) };
        team.collective(&state.world).all_to_all(&from, &to).run().or_fail();
    };
    // SAFETY: the caller's memory.
    unsafe { by_cpu((dest.cast(), bytes), (source.cast(), bytes), run) };
}

pub(crate) unsafe fn alltoall<T>(team: Handle, dest: *mut T, source: *const T, n: usize) -> c_int {
    // SAFETY: as here.
    unsafe { alltoall_of(team.valid(), dest, source, n) };
    0
}

/// The same of elements that are apart from each other.
pub(crate) unsafe fn alltoalls_of<T: Copy>(
    team: &Team,
    dest: *mut T,
    source: *const T,
    dst: isize,
    sst: isize,
    n: usize,
) {
    let (to, from) = (stride_of(dst, 1), stride_of(sst, 1));
    let all = n.saturating_mul(team.members.len());
    bytes_of::<T>(all);
    let extent = |stride| if all == 0 { 0 } else { (all - 1) * stride + 1 };
    let run = |dest: *mut T, source: *const T| {
        // SAFETY: the caller's memory, of any alignment where C does not know the type.
        let given: Vec<T> =
            (0..all).map(|i| unsafe { source.add(i * from).read_unaligned() }).collect();
        let mut taken = given.clone();
        // SAFETY: memory of this function.
        unsafe { alltoall_of(team, taken.as_mut_ptr(), given.as_ptr(), n) };
        for (i, element) in taken.into_iter().enumerate() {
            // SAFETY: as above.
            unsafe { dest.add(i * to).write_unaligned(element) };
        }
    };
    // SAFETY: the caller's memory.
    unsafe { by_cpu((dest, extent(to)), (source, extent(from)), run) };
}

pub(crate) unsafe fn alltoalls<T: Copy>(
    team: Handle,
    dest: *mut T,
    source: *const T,
    dst: isize,
    sst: isize,
    n: usize,
) -> c_int {
    // SAFETY: as here.
    unsafe { alltoalls_of(team.valid(), dest, source, dst, sst, n) };
    0
}
