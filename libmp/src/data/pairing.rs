//! Which send belongs to which receive: of one key, the n-th prepared here to the n-th announced by the peer. A state
//! machine without I/O; one for the sends to a peer and one for the receives from it.

use std::collections::{HashMap, VecDeque};

use super::notice::Key;

/// Halves that wait for their other half. Of one key there are only ever halves of one side.
pub(crate) struct Pairing<L, R> {
    waiting: HashMap<Key, Waiting<L, R>>,
}

enum Waiting<L, R> {
    Here(VecDeque<L>),
    There(VecDeque<R>),
}

impl<L, R> Default for Pairing<L, R> {
    fn default() -> Self {
        Pairing { waiting: HashMap::new() }
    }
}

impl<L, R> Pairing<L, R> {
    /// A half was prepared here; gives it back with the peer's, if that is known.
    pub fn here(&mut self, key: Key, half: L) -> Option<(L, R)> {
        match self.waiting.entry(key).or_insert_with(|| Waiting::Here(VecDeque::new())) {
            Waiting::Here(halves) => {
                halves.push_back(half);
                None
            }
            Waiting::There(halves) => {
                let other = halves.pop_front();
                if halves.is_empty() {
                    self.waiting.remove(&key);
                }
                other.map(|other| (half, other))
            }
        }
    }

    /// The tags of halves that the peer announced and that wait for one here, for users like that of `key`.
    pub fn told(&self, key: Key) -> Vec<u64> {
        let alike = |other: &Key| (other.group, other.lane) == (key.group, key.lane);
        let told = self.waiting.iter().filter(|(_, halves)| matches!(halves, Waiting::There(_)));
        let mut tags: Vec<u64> =
            told.filter(|(other, _)| alike(other)).map(|(other, _)| other.tag).collect();
        tags.sort_unstable();
        tags
    }

    /// The peer announced a half; gives it back with the one here, if there is one.
    pub fn there(&mut self, key: Key, half: R) -> Option<(L, R)> {
        match self.waiting.entry(key).or_insert_with(|| Waiting::There(VecDeque::new())) {
            Waiting::There(halves) => {
                halves.push_back(half);
                None
            }
            Waiting::Here(halves) => {
                let other = halves.pop_front();
                if halves.is_empty() {
                    self.waiting.remove(&key);
                }
                other.map(|other| (other, half))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::notice::Lane;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_nth_here_meets_the_nth_there_in_any_interleaving(
            steps in prop::collection::vec((any::<bool>(), 0..3u64), 0..200)
        ) {
            let mut pairing = Pairing::default();
            let mut counts = [[0; 2]; 3];
            let mut pairs = [0; 3];
            for (here, tag) in steps {
                let key = Key { group: 0, tag, lane: Lane::Message };
                let number = &mut counts[tag as usize][usize::from(here)];
                *number += 1;
                let pair = if here {
                    pairing.here(key, (tag, *number))
                } else {
                    pairing.there(key, (tag, *number))
                };
                let of_tag = counts[tag as usize];
                let expected = of_tag[0].min(of_tag[1]);
                if expected > pairs[tag as usize] {
                    pairs[tag as usize] = expected;
                    prop_assert_eq!(pair, Some(((tag, expected), (tag, expected))));
                } else {
                    prop_assert_eq!(pair, None);
                }
            }
            let open = counts.iter().filter(|of_tag| of_tag[0] != of_tag[1]).count();
            prop_assert_eq!(pairing.waiting.len(), open, "keys that are done are forgotten");
        }
    }
}
