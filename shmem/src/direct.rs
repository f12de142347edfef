//! Collectives of many bytes among PEs that map each other's memory. Each tells the others where its operands are, and then copies from there,
//! or combines its part of the elements and stores it to all: nothing goes through memory in between. Who has told may be read; at the end
//! all wait for all, so that who returns may write again.

use std::ops::Range;

use libmp::{Number, ReduceOp};

use crate::failure::OrFail;
use crate::rma::region;
use crate::team::Team;
use crate::world::State;

/// Operands of fewer bytes go as `libmp`'s collectives, in packets.
const LEAST: usize = 1 << 10;
/// Bytes that are combined at once: what of them is read and written again stays in the nearest cache.
const AT_ONCE: usize = 8 << 10;
/// An operand that is in no memory of the others.
const NOWHERE: u64 = u64::MAX;

/// Where the PEs' operands are mapped here, in the team's order.
pub(crate) struct Direct<'a> {
    state: &'a State,
    team: &'a Team,
    sources: Vec<*const u8>,
    dests: Vec<*mut u8>,
}

impl<'a> Direct<'a> {
    /// Asks all PEs of the team, which give as many `bytes` as each other: `None`, on all of them, if some operand is not mapped by all, or it is not
    /// worth while.
    pub fn meet(
        state: &'a State,
        team: &'a Team,
        bytes: usize,
        (source, given): (*const u8, usize),
        (dest, taken): (*mut u8, usize),
    ) -> Option<Direct<'a>> {
        let all_mapped = || team.members.iter().all(|&pe| !state.heap.peers[pe].is_null());
        if bytes < LEAST || team.members.len() == 1 {
            return None;
        }
        let place = |address: usize, bytes: usize| {
            let found = state.find_on_host(address).filter(|_| all_mapped());
            let inside = found.filter(|(segment, at)| bytes <= segment.len - at);
            inside.map_or([NOWHERE; 2], |(segment, at)| {
                [u64::from(!std::ptr::eq(segment, &state.heap)), at as u64]
            })
        };
        let mine = [place(source as usize, given), place(dest as usize, taken)];
        let mut told = vec![[[NOWHERE; 2]; 2]; team.members.len()];
        // SAFETY: memory of this function.
        let (from, to) = unsafe {
            (
                region(mine.as_ptr().cast::<u64>(), 4),
                region(told.as_mut_ptr().cast::<u64>().cast_const(), 4 * told.len()),
            )
        };
        team.collective(&state.world).all_gather(&from, &to).run().or_fail();
        let there = |pe: usize, [segment, at]: [u64; 2]| {
            let segment = match (segment, &state.data) {
                (0, _) => &state.heap,
                (1, Some(data)) => data,
                _ => return None,
            };
            Some(segment.peers[pe].wrapping_add(at as usize))
        };
        let theirs = |operand: usize| {
            let each = team.members.iter().zip(&told);
            each.map(|(&pe, told)| there(pe, told[operand])).collect::<Option<Vec<_>>>()
        };
        // What they told, all of them have been told.
        let (sources, dests) = (theirs(0)?, theirs(1)?);
        let sources = sources.into_iter().map(<*mut u8>::cast_const).collect();
        Some(Direct { state, team, sources, dests })
    }

    /// The other PEs and this one, beginning behind it, so that not all read from the same.
    fn turns(&self) -> impl Iterator<Item = usize> + use<> {
        let (me, n) = (self.team.me, self.sources.len());
        (1..=n).map(move |step| (me + step) % n)
    }

    /// Copies `bytes` bytes from each PE, from the byte of its source that `from` says, to the byte `to` of the dest here.
    ///
    /// # Safety
    /// They are there, on all PEs, and nobody writes the sources.
    pub unsafe fn take(
        self,
        bytes: usize,
        of: impl Fn(usize) -> bool,
        from: impl Fn(usize) -> usize,
        to: impl Fn(usize) -> usize,
    ) {
        for number in self.turns().filter(|number| of(*number)) {
            let source = self.sources[number].wrapping_add(from(number));
            let dest = self.dests[self.team.me].wrapping_add(to(number));
            // SAFETY: the caller's promise; both may be the same memory.
            unsafe { std::ptr::copy(source, dest, bytes) };
        }
        self.part();
    }

    /// Combines `n` elements of all PEs, in the team's order, for all.
    ///
    /// # Safety
    /// They are there, on all PEs, and nobody else writes them; a dest is its PE's source, or apart from all sources.
    pub unsafe fn combine<T: Number>(self, op: ReduceOp, n: usize) {
        let Range { start, end } = share(n, self.team.me, self.sources.len());
        let mut combined: Vec<T> = Vec::new();
        for first in (start..end).step_by(AT_ONCE / size_of::<T>()) {
            let count = (AT_ONCE / size_of::<T>()).min(end - first);
            combined.clear();
            for source in &self.sources {
                // SAFETY: the caller's promise: this part of the elements is this PE's alone.
                let values =
                    unsafe { std::slice::from_raw_parts(source.cast::<T>().add(first), count) };
                match combined.is_empty() {
                    true => combined.extend_from_slice(values),
                    false => op.combine(&mut combined, values),
                }
            }
            for dest in &self.dests {
                // SAFETY: as above; what was read of this part is combined.
                unsafe {
                    dest.cast::<T>().add(first).copy_from_nonoverlapping(combined.as_ptr(), count)
                };
            }
        }
        self.part();
    }

    /// All have what they take.
    fn part(self) {
        self.team.collective(&self.state.world).barrier().run().or_fail();
    }
}

/// The elements of `n` that one of several combines: whole cache lines, so that no two write one.
fn share(n: usize, one: usize, of: usize) -> Range<usize> {
    let each = n.div_ceil(of).next_multiple_of(64);
    (one * each).min(n)..((one + 1) * each).min(n)
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn every_element_is_combined_by_one() {
        for n in [0, 1, 63, 64, 65, 1000, 4096, 100_003] {
            for of in 1..9 {
                let mut end = 0;
                for one in 0..of {
                    let part = share(n, one, of);
                    assert!(part.is_empty() || part.start == end);
                    end = end.max(part.end);
                }
                assert_eq!(end, n);
            }
        }
    }
}
