//! What a generation of a storm does: a function of seed, world, generation and size, the same on every rank. No I/O.

use std::fmt;

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

/// Who starts and completes an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// The CPU.
    Host,
    /// A stream of the host.
    Stream,
    /// Each end one or the other, at random.
    Mixed,
    /// A kernel: on a GPU, or, without one, the same source compiled for the CPU.
    Kernel,
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Form::Host => "host",
            Form::Stream => "stream",
            Form::Mixed => "mixed",
            Form::Kernel => "kernel",
        })
    }
}

/// A message that is sent once a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub from: usize,
    pub to: usize,
    pub tag: u64,
    /// Words.
    pub len: usize,
    /// Words that the receiver's buffer has beyond them.
    pub room: usize,
    /// Whether a stream starts it at the sender, at the receiver.
    pub on_stream: [bool; 2],
}

/// A generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The n-th of its two ranks and tag is the n-th on both sides.
    pub messages: Vec<Message>,
    pub rounds: u64,
    /// Words that each rank puts into the window of another every round; none: there is no window.
    pub put: usize,
    /// The rank that a rank puts to is so many further.
    pub shift: usize,
    /// Whether the ranks are split, and what is left used.
    pub split: bool,
}

/// Mixes the numbers that something random follows from (splitmix64).
pub fn mix(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0x9e37_79b9_7f4a_7c15, |state, number| {
        let mut z = (state ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

impl Plan {
    /// Generation `generation` of world `world`.
    pub fn new(seed: u64, world: u64, generation: u64, ranks: usize, form: Form) -> Plan {
        let mut random = SmallRng::seed_from_u64(mix(&[seed, world, generation]));
        let message = |random: &mut SmallRng| {
            let len = match random.random_range(0..100) {
                0..70 => random.random_range(0..=64),
                70..97 => random.random_range(65..=4096),
                _ => random.random_range(4097..=100_000),
            };
            let mut on_stream = || match form {
                Form::Host => false,
                Form::Stream => true,
                Form::Mixed | Form::Kernel => random.random(),
            };
            Message {
                on_stream: [on_stream(), on_stream()],
                from: random.random_range(0..ranks),
                to: random.random_range(0..ranks),
                tag: random.random_range(0..3),
                len,
                room: random.random_range(0..3),
            }
        };
        let count = random.random_range(1..=8 * ranks);
        Plan {
            messages: (0..count).map(|_| message(&mut random)).collect(),
            rounds: random.random_range(1..=40),
            put: if random.random() { random.random_range(1..=256) } else { 0 },
            shift: random.random_range(0..ranks),
            split: random.random_range(0..4) == 0,
        }
    }

    /// A generation that is a flood: many short messages of all pairs of ranks and nothing else, again and again; fewer if
    /// it is to be brief.
    pub fn flood(
        [seed, world, generation]: [u64; 3],
        ranks: usize,
        form: Form,
        brief: bool,
    ) -> Plan {
        let mut random = SmallRng::seed_from_u64(mix(&[seed, world, generation, 1]));
        let message = |random: &mut SmallRng| {
            let len = match random.random_range(0..100) {
                0..80 => random.random_range(0..=8),
                80..99 => random.random_range(9..=64),
                _ => random.random_range(65..=512),
            };
            // Streams take turns with the host even where all is started by streams: it looks at what came.
            let on_stream = match form {
                Form::Host => [false; 2],
                Form::Stream => [true; 2],
                Form::Mixed | Form::Kernel => [random.random(), random.random()],
            };
            Message {
                on_stream,
                from: random.random_range(0..ranks),
                to: random.random_range(0..ranks),
                tag: random.random_range(0..8),
                len,
                room: random.random_range(0..2),
            }
        };
        // A host looks at all that it has started whenever it waits: many at once cost it more than they bring.
        let most = match (brief, form) {
            (true, _) => 12,
            (false, Form::Host) => 32,
            (false, _) => 128,
        };
        let count = random.random_range(ranks..=most * ranks);
        Plan {
            messages: (0..count).map(|_| message(&mut random)).collect(),
            rounds: random.random_range(if brief { 5..=30 } else { 20..=300 }),
            put: 0,
            shift: 0,
            split: false,
        }
    }

    /// The messages of which `rank` is an end, as (number, is the sender), in the order in which it prepares or starts them
    /// in `round`. Both ends prepare in orders of their own; what belongs together follows from [`Plan::nth`].
    pub fn order(&self, rank: usize, round: u64) -> Vec<(usize, bool)> {
        let mut halves: Vec<(usize, bool)> = (0..)
            .zip(&self.messages)
            .flat_map(|(number, m)| [(number, true, m.from), (number, false, m.to)])
            .filter(|&(_, _, end)| end == rank)
            .map(|(number, sends, _)| (number, sends))
            .collect();
        halves.shuffle(&mut SmallRng::seed_from_u64(mix(&[rank as u64, round])));
        halves
    }

    /// The number of the `nth` message with these ends and this tag.
    pub fn nth(&self, from: usize, to: usize, tag: u64, nth: usize) -> Option<usize> {
        let same = |m: &Message| (m.from, m.to, m.tag) == (from, to, tag);
        (0..self.messages.len()).filter(|&number| same(&self.messages[number])).nth(nth)
    }
}

/// Word `at` of what is sent under a name (world, generation, round, message or rank).
pub fn word(name: u64, at: usize) -> u64 {
    (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_plan_and_another_one_another() {
        let plan = |seed| Plan::new(seed, 3, 5, 4, Form::Mixed);
        assert_eq!(plan(1), plan(1));
        assert_ne!(plan(1), plan(2));
    }

    #[test]
    fn every_message_is_on_both_of_its_ends_lists_once_whatever_the_order() {
        for seed in 0..50 {
            let plan = Plan::new(seed, 0, 0, 3, Form::Mixed);
            for round in 0..3 {
                let mut seen = vec![[0; 2]; plan.messages.len()];
                for rank in 0..3 {
                    for (number, sends) in plan.order(rank, round) {
                        seen[number][usize::from(sends)] += 1;
                        let message = &plan.messages[number];
                        assert_eq!(if sends { message.from } else { message.to }, rank);
                    }
                }
                assert!(seen.iter().all(|ends| *ends == [1, 1]));
            }
        }
    }

    #[test]
    fn a_flood_is_short_messages_between_all_ranks() {
        let plans: Vec<Plan> =
            (0..40).map(|seed| Plan::flood([seed, 0, 1], 3, Form::Mixed, false)).collect();
        let messages = || plans.iter().flat_map(|plan| &plan.messages);
        assert!(messages().all(|m| m.len <= 512 && m.from < 3 && m.to < 3));
        for pair in 0..9 {
            assert!(messages().any(|m| (m.from, m.to) == (pair / 3, pair % 3)));
        }
        assert!(plans.iter().map(|plan| plan.messages.len()).max() > Some(200));
    }

    #[test]
    fn words_under_different_names_differ() {
        let names: Vec<u64> = (0..100).map(|n| mix(&[1, 2, n])).collect();
        for (a, b) in names.iter().zip(&names[1..]) {
            assert!((0..64).all(|at| word(*a, at) != word(*b, at)));
        }
    }
}
