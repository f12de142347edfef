//! Cartesian topologies (MPI 5.0, chapter 8): ranks are numbered row by row.

use std::ffi::c_int;

use crate::abi::{Handle, PROC_NULL};
use crate::state::{self, Comm, comm, expect, fail};
use crate::world::{entries, list, put};

/// The grid of a communicator: its lengths, and along which directions it is closed.
#[derive(Debug, Clone)]
pub struct Grid {
    lengths: Vec<usize>,
    closed: Vec<bool>,
}

impl Grid {
    fn size(&self) -> Option<usize> {
        self.lengths.iter().try_fold(1_usize, |size, length| size.checked_mul(*length))
    }

    fn coordinates(&self, mut rank: usize) -> Vec<usize> {
        let mut place: Vec<usize> = self
            .lengths
            .iter()
            .rev()
            .map(|length| {
                let at = rank % length;
                rank /= length;
                at
            })
            .collect();
        place.reverse();
        place
    }

    /// The rank at a place; none outside of a direction that is not closed.
    fn rank(&self, place: impl IntoIterator<Item = i64>) -> Option<usize> {
        let directions = self.lengths.iter().zip(&self.closed);
        directions.zip(place).try_fold(0, |rank, ((length, closed), at)| {
            let at = if *closed { at.rem_euclid(*length as i64) } else { at };
            let at = usize::try_from(at).ok().filter(|at| at < length)?;
            Some(rank * length + at)
        })
    }
}

fn grid<'a>(call: &str, comm: &'a Comm) -> &'a Grid {
    comm.grid.as_ref().unwrap_or_else(|| fail(call, "the communicator has no Cartesian topology"))
}

/// Writes as many of the values as the program has room for.
///
/// # Safety
/// As [`put`] for each.
unsafe fn put_all(most: c_int, to: *mut c_int, values: impl IntoIterator<Item = usize>) {
    for (at, value) in (0..most).zip(values) {
        // SAFETY: the caller's promise.
        unsafe { put(to.wrapping_add(at as usize), value as c_int) };
    }
}

entries! {
    fn MPI_Cart_create(
        old: Handle,
        directions: c_int,
        lengths: *const c_int,
        closed: *const c_int,
        _reorder: c_int,
        new: *mut Handle,
    ) {
        let comm = comm(CALL, old);
        let length = |length: &c_int| match usize::try_from(*length) {
            Ok(length @ 1..) => length,
            _ => fail(CALL, format!("a length of {length}")),
        };
        let lengths = list(CALL, directions, lengths).iter().map(length).collect();
        let closed = list(CALL, directions, closed).iter().map(|closed| *closed != 0).collect();
        let grid = Grid { lengths, closed };
        let (size, ranks) = (grid.size(), comm.size());
        let Some(size) = size.filter(|size| *size <= ranks) else {
            fail(CALL, format!("a grid of {:?} is larger than the communicator of {ranks} ranks", grid.lengths))
        };
        let color = (comm.rank() < size).then_some(0);
        let split = expect(CALL, comm.communicator.split(color, comm.rank() as i64));
        put(new, state::add(CALL, split, Some(grid)));
    }

    fn MPI_Cartdim_get(handle: Handle, directions: *mut c_int) {
        put(directions, grid(CALL, &comm(CALL, handle)).lengths.len() as c_int);
    }

    fn MPI_Cart_get(handle: Handle, most: c_int, lengths: *mut c_int, closed: *mut c_int, place: *mut c_int) {
        let comm = comm(CALL, handle);
        let grid = grid(CALL, &comm);
        put_all(most, lengths, grid.lengths.iter().copied());
        put_all(most, closed, grid.closed.iter().map(|closed| usize::from(*closed)));
        put_all(most, place, grid.coordinates(comm.rank()));
    }

    fn MPI_Cart_coords(handle: Handle, rank: c_int, most: c_int, place: *mut c_int) {
        let comm = comm(CALL, handle);
        let at = usize::try_from(rank).ok().filter(|rank| *rank < comm.size());
        let at = at.unwrap_or_else(|| fail(CALL, format!("{rank} is no rank of {}", comm.size())));
        put_all(most, place, grid(CALL, &comm).coordinates(at));
    }

    fn MPI_Cart_rank(handle: Handle, place: *const c_int, rank: *mut c_int) {
        let comm = comm(CALL, handle);
        let grid = grid(CALL, &comm);
        let place = list(CALL, grid.lengths.len() as c_int, place);
        match grid.rank(place.iter().map(|at| i64::from(*at))) {
            Some(found) => put(rank, found as c_int),
            None => fail(CALL, format!("{place:?} is outside of a grid of {:?}", grid.lengths)),
        }
    }

    fn MPI_Cart_shift(handle: Handle, direction: c_int, steps: c_int, from: *mut c_int, to: *mut c_int) {
        let comm = comm(CALL, handle);
        let grid = grid(CALL, &comm);
        let along = usize::try_from(direction).ok().filter(|along| *along < grid.lengths.len());
        let along = along.unwrap_or_else(|| fail(CALL, format!("{direction} is no direction")));
        let neighbour = |steps: i64| {
            let place = grid.coordinates(comm.rank()).into_iter().enumerate();
            let moved = place.map(|(at, it)| it as i64 + if at == along { steps } else { 0 });
            grid.rank(moved).map_or(PROC_NULL, |rank| rank as c_int)
        };
        put(from, neighbour(-i64::from(steps)));
        put(to, neighbour(steps.into()));
    }

    fn MPI_Dims_create(ranks: c_int, directions: c_int, lengths: *mut c_int) {
        let given = list(CALL, directions, lengths).to_vec();
        let known: i64 = given.iter().filter(|length| **length != 0).map(|it| i64::from(*it)).product();
        if ranks < 1 || given.iter().any(|length| *length < 0) || i64::from(ranks) % known != 0 {
            fail(CALL, format!("{ranks} ranks do not fill a grid of {given:?}, where 0 is any length"));
        }
        let free: Vec<usize> = (0..given.len()).filter(|at| given[*at] == 0).collect();
        let mut left = i64::from(ranks) / known;
        if free.is_empty() && left > 1 {
            fail(CALL, format!("{ranks} ranks do not fill a grid of {given:?}"));
        }
        // The largest factors first, each to the shortest length.
        let mut factors = Vec::new();
        let mut factor = 2;
        while left > 1 {
            if factor * factor > left {
                factor = left;
            }
            if left % factor == 0 {
                factors.push(factor);
                left /= factor;
            } else {
                factor += 1;
            }
        }
        let mut found = vec![1; free.len()];
        for factor in factors.into_iter().rev() {
            if let Some(shortest) = found.iter_mut().min() {
                *shortest *= factor;
            }
        }
        found.sort_unstable_by(|a, b| b.cmp(a));
        for (at, length) in free.into_iter().zip(found) {
            put(lengths.wrapping_add(at), length as c_int);
        }
    }
}
