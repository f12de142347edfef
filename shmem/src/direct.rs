//! Collectives of many bytes among PEs that map each other's memory. Each tells the others where its operands are, and then copies from there,
//! or combines its part of the elements and stores it to all: nothing goes through memory in between. Who has told may be read; at the end
//! all wait for all, so that who returns may write again.

use std::ops::Range;

use libmp::{Number, ReduceOp};

use crate::failure::OrFail;
use crate::team::Team;
use crate::world::State;

/// Operands of fewer bytes go as `libmp`'s collectives, in packets.
const LEAST: usize = 1 << 10;
/// The same of a broadcast among PEs that share cores: its packets wait for nobody.
const LEAST_IN_A_CROWD: usize = 3 << 10;
/// Bytes that are combined at once: what of them is read and written again stays in the nearest cache.
const AT_ONCE: usize = 8 << 10;

/// Where an operand is in the memory of its PE: a number of a segment, 0 the heap and 1 the variables, and the byte in it.
type Place = [u64; 2];
/// It is in no memory that all PEs map.
const NOWHERE: Place = [u64::MAX; 2];

/// Where the PEs' operands are mapped here, in the team's order.
pub(crate) struct Direct<'a> {
    state: &'a State,
    team: &'a Team,
    sources: Vec<*const u8>,
    dests: Vec<*mut u8>,
}

fn place_of(state: &State, team: &Team, address: usize, bytes: usize) -> Place {
    let Some((segment, at)) = state.find_on_host(address) else { return NOWHERE };
    let number = usize::from(!std::ptr::eq(segment, &state.heap));
    match bytes <= segment.len - at && team.agreed(state).mapped[number] {
        true => [number as u64, at as u64],
        false => NOWHERE,
    }
}

/// What a PE has said, as it is mapped here.
fn mapped(state: &State, pe: usize, [number, at]: Place) -> Option<*mut u8> {
    let segment = match number {
        0 => Some(&state.heap),
        1 => state.data.as_ref(),
        _ => None,
    };
    segment.map(|segment| segment.peers[pe].wrapping_add(at as usize))
}

/// A broadcast: the root says where its values are, the others copy them, and only the root waits, for all. False, on all PEs, if they are
/// not mapped by all, or it is not worth while.
///
/// # Safety
/// There are `bytes` bytes, which nobody else writes until this returns.
pub(crate) unsafe fn broadcast(
    state: &State,
    team: &Team,
    root: usize,
    values: *mut u8,
    bytes: usize,
) -> bool {
    if team.members.len() == 1
        || bytes < LEAST
        || (team.agreed(state).crowded && bytes < LEAST_IN_A_CROWD)
    {
        return false;
    }
    let all = team.collective(&state.world);
    let mut place = NOWHERE;
    if team.me == root {
        place = place_of(state, team, values as usize, bytes);
    }
    all.broadcast_slice(root, &mut place).or_fail();
    let Some(source) = mapped(state, team.members[root], place) else { return false };
    if team.me != root {
        // SAFETY: the caller's promise; both may be the same memory.
        unsafe { std::ptr::copy(source, values, bytes) };
    }
    all.reduce_slice(ReduceOp::Max, root, &mut [0_u64]).or_fail();
    true
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
        if bytes < LEAST || team.members.len() == 1 {
            return None;
        }
        // Before one of them says something else.
        team.agreed(state);
        let place = |address, bytes| place_of(state, team, address, bytes);
        let mut told = vec![[NOWHERE; 2]; team.members.len()];
        told[team.me] = [place(source as usize, given), place(dest as usize, taken)];
        team.collective(&state.world).all_gather_slice(&mut told).or_fail();
        let theirs = |operand: usize| {
            let each = team.members.iter().zip(&told);
            each.map(|(&pe, told)| mapped(state, pe, told[operand])).collect::<Option<Vec<_>>>()
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
        from: impl Fn(usize) -> usize,
        to: impl Fn(usize) -> usize,
    ) {
        for number in self.turns() {
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
