//! Who has which part of the symmetric heap. All PEs ask for the same in the same order, so each finds the same places by itself;
//! nothing of this stands in the heap, where others write.

use std::collections::BTreeMap;

/// Allocations begin at a multiple of this: no two share a cache line.
const ALIGN: usize = 64;

/// Offsets of free and of given parts, and their lengths.
#[derive(Debug)]
pub(crate) struct Parts {
    free: BTreeMap<usize, usize>,
    given: BTreeMap<usize, usize>,
}

impl Parts {
    pub fn new(len: usize) -> Parts {
        Parts { free: BTreeMap::from([(0, len)]), given: BTreeMap::new() }
    }

    /// The first place with so many bytes, at a multiple of `align`, a power of two.
    pub fn take(&mut self, bytes: usize, align: usize) -> Option<usize> {
        let (bytes, align) = (bytes.max(1).checked_next_multiple_of(ALIGN)?, align.max(ALIGN));
        let (start, at, end) = self.free.iter().find_map(|(&start, &len)| {
            let at = start.checked_next_multiple_of(align)?;
            (at.checked_add(bytes)? <= start + len).then_some((start, at, start + len))
        })?;
        self.free.remove(&start);
        let rest = [(start, at), (at + bytes, end)];
        self.free.extend(
            rest.into_iter().filter(|(from, to)| from < to).map(|(from, to)| (from, to - from)),
        );
        self.given.insert(at, bytes);
        Some(at)
    }

    /// Bytes from an offset on that was given; `None`: it was not.
    pub fn len_of(&self, at: usize) -> Option<usize> {
        self.given.get(&at).copied()
    }

    /// Takes a part back; false: it was not given.
    pub fn give_back(&mut self, at: usize) -> bool {
        let Some(mut len) = self.given.remove(&at) else { return false };
        let mut start = at;
        if let Some((&before, &its)) = self.free.range(..at).next_back()
            && before + its == at
        {
            self.free.remove(&before);
            (start, len) = (before, its + len);
        }
        if let Some(behind) = self.free.remove(&(start + len)) {
            len += behind;
        }
        self.free.insert(start, len);
        true
    }

    /// Bytes of the largest free part.
    pub fn largest(&self) -> usize {
        self.free.values().copied().max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_does_not_overlap_and_all_of_it_comes_back() {
        let mut heap = Parts::new(1 << 16);
        let mut held: Vec<(usize, usize)> = Vec::new();
        let mut seed = 1_u64;
        for round in 0..20_000 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let random = (seed >> 33) as usize;
            if round % 3 < 2 {
                let (bytes, align) = (random % 3000, 1 << (random % 13));
                let Some(at) = heap.take(bytes, align) else { continue };
                assert!(at.is_multiple_of(align.max(ALIGN)) && at + bytes <= 1 << 16);
                assert!(held.iter().all(|&(other, len)| at + bytes <= other || other + len <= at));
                held.push((at, bytes.max(1)));
            } else if !held.is_empty() {
                let (at, _) = held.swap_remove(random % held.len());
                assert!(heap.give_back(at) && !heap.give_back(at));
            }
        }
        held.into_iter().for_each(|(at, _)| assert!(heap.give_back(at)));
        assert_eq!(heap.largest(), 1 << 16);
        assert_eq!(heap.free.len(), 1);
    }

    #[test]
    fn what_is_larger_than_the_heap_is_not_given() {
        let mut heap = Parts::new(4096);
        assert_eq!(heap.take(4097, 1), None);
        assert_eq!(heap.take(usize::MAX, 1), None);
        assert_eq!(heap.take(1, 1 << 40).map(|at| at % (1 << 40)), Some(0));
    }
}
