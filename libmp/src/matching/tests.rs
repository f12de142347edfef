//! The matcher against the same rules written down as two lists that are searched from the front.

use std::time::Instant;

use proptest::prelude::*;

use super::*;

/// The rules and nothing else.
#[derive(Default)]
struct Lists {
    posted: Vec<(u64, Pattern)>,
    unexpected: Vec<(u64, Label)>,
}

impl Lists {
    fn post(&mut self, id: u64, pattern: Pattern) -> Option<(u64, Label)> {
        let taken = self.take(&pattern);
        if taken.is_none() {
            self.posted.push((id, pattern));
        }
        taken
    }

    fn arrive(&mut self, id: u64, label: Label) -> Option<u64> {
        match self.posted.iter().position(|(_, pattern)| pattern.matches(&label)) {
            Some(at) => Some(self.posted.remove(at).0),
            None => {
                self.unexpected.push((id, label));
                None
            }
        }
    }

    fn take(&mut self, pattern: &Pattern) -> Option<(u64, Label)> {
        let at = self.unexpected.iter().position(|(_, label)| pattern.matches(label))?;
        Some(self.unexpected.remove(at))
    }

    fn take_all(&mut self, pattern: &Pattern, count: usize) -> Option<Vec<(u64, Label)>> {
        let matching = self.unexpected.iter().filter(|(_, label)| pattern.matches(label));
        if matching.count() < count {
            return None;
        }
        (0..count).map(|_| self.take(pattern)).collect()
    }
}

#[derive(Debug, Clone)]
enum Step {
    Post(Pattern),
    Arrive(Label),
    Probe(Pattern),
    Take(Pattern),
    TakeAll(Pattern, usize),
    /// The pattern that was posted so many before.
    Cancel(usize),
}

/// Both, with what cancelling needs to know.
#[derive(Default)]
struct Pair {
    lists: Lists,
    matcher: Matcher<u64, u64>,
    posted: Vec<(u64, Posted)>,
    next: u64,
}

impl Pair {
    fn step(&mut self, step: Step) {
        let Pair { lists, matcher, posted, next } = self;
        *next += 1;
        let id = *next;
        match step {
            Step::Post(pattern) => match (lists.post(id, pattern), matcher.post(pattern, id)) {
                (Some((arrived, label)), Post::Matched(request, got, arrival)) => {
                    assert_eq!((arrived, label, id), (arrival, got, request));
                }
                (None, Post::Waits(place)) => posted.push((id, place)),
                (expected, got) => panic!("{expected:?}, not {got:?}"),
            },
            Step::Arrive(label) => {
                let got = matcher.arrive(label, id);
                assert_eq!(lists.arrive(id, label), got.map(|(request, _)| request));
                assert!(got.is_none_or(|(_, arrival)| arrival == id));
            }
            Step::Probe(pattern) => {
                let found = lists.unexpected.iter().find(|(_, label)| pattern.matches(label));
                let got = matcher.probe(&pattern).map(|(label, arrival)| (*arrival, label));
                assert_eq!(found.copied(), got);
            }
            Step::Take(pattern) => {
                let got = matcher.take(&pattern).map(|(label, arrival)| (arrival, label));
                assert_eq!(lists.take(&pattern), got);
            }
            Step::TakeAll(pattern, count) => {
                let got = matcher.take_all(&pattern, count);
                let got = got.map(|all| all.into_iter().map(|(label, id)| (id, label)).collect());
                assert_eq!(lists.take_all(&pattern, count), got);
            }
            Step::Cancel(back) => {
                if posted.is_empty() {
                    return;
                }
                let (id, place) = posted.swap_remove(back % posted.len());
                let at = lists.posted.iter().position(|(posted, _)| *posted == id);
                assert_eq!(at.map(|at| lists.posted.remove(at).0), matcher.cancel(place));
            }
        }
        assert_eq!(lists.posted.len(), matcher.posted());
        assert_eq!(lists.unexpected.len(), matcher.unexpected());
    }
}

fn pattern() -> impl Strategy<Value = Pattern> {
    let context = proptest::option::weighted(0.8, 0..2u64);
    let source = proptest::option::weighted(0.6, 0..4u32);
    let tag = proptest::option::weighted(0.6, 0..4u64);
    (context, source, tag).prop_map(|(context, source, tag)| Pattern { context, source, tag })
}

fn label() -> impl Strategy<Value = Label> {
    (0..2u64, 0..4u32, 0..4u64).prop_map(|(context, source, tag)| Label { context, source, tag })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => pattern().prop_map(Step::Post),
        6 => label().prop_map(Step::Arrive),
        1 => pattern().prop_map(Step::Probe),
        1 => pattern().prop_map(Step::Take),
        1 => (pattern(), 0..5usize).prop_map(|(pattern, count)| Step::TakeAll(pattern, count)),
        1 => (0..8usize).prop_map(Step::Cancel),
    ]
}

proptest! {
    #[test]
    fn it_does_what_two_lists_do(steps in proptest::collection::vec(step(), 0..300)) {
        let mut pair = Pair::default();
        steps.into_iter().for_each(|step| pair.step(step));
    }
}

/// A generator of numbers: xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }

    fn one_in(&mut self, limit: u64) -> bool {
        self.below(limit) == 0
    }

    fn pattern(&mut self, sources: u64, tags: u64) -> Pattern {
        Pattern {
            context: (!self.one_in(8)).then(|| self.below(2)),
            source: (!self.one_in(3)).then(|| self.below(sources) as u32),
            tag: (!self.one_in(3)).then(|| self.below(tags)),
        }
    }

    fn label(&mut self, sources: u64, tags: u64) -> Label {
        let context = self.below(2);
        Label { context, source: self.below(sources) as u32, tag: self.below(tags) }
    }

    fn step(&mut self, sources: u64, tags: u64) -> Step {
        match self.below(16) {
            0..=5 => Step::Post(self.pattern(sources, tags)),
            6..=11 => Step::Arrive(self.label(sources, tags)),
            12 => Step::Probe(self.pattern(sources, tags)),
            13 => Step::Take(self.pattern(sources, tags)),
            14 => Step::TakeAll(self.pattern(sources, tags), self.below(5) as usize),
            _ => Step::Cancel(self.below(64) as usize),
        }
    }
}

/// Random steps, each run with other numbers of sources and tags; prints how many a second. `TEST_STEPS`: how many (ten million), `TEST_SEED`:
/// the first run's number (1), which is another one's for other runs.
#[test]
#[ignore = "takes ten seconds"]
fn a_long_random_run_agrees_with_the_two_lists() {
    let number = |name: &str, otherwise| {
        std::env::var(name).ok().and_then(|it| it.parse().ok()).unwrap_or(otherwise)
    };
    let (all, mut seed) = (number("TEST_STEPS", 10_000_000), number("TEST_SEED", 1u64));
    let (since, mut steps) = (Instant::now(), 0u64);
    while steps < all {
        let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ seed);
        let (sources, tags) = (1 + seed % 64, 1 + seed % 7);
        let mut pair = Pair::default();
        for _ in 0..100_000 {
            let step = random.step(sources, tags);
            pair.step(step);
        }
        steps += 100_000;
        seed += 1;
    }
    let rate = steps as f64 / since.elapsed().as_secs_f64();
    println!("{steps} steps agree, {rate:.0} a second, with the lists' own time");
}

#[test]
fn many_posted_and_many_unexpected_cost_no_more_each_than_few() {
    // Of this thread, whatever else the machine does.
    let now = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    };
    // Nanoseconds for each of so many: posted in one order, matched in the other; and the same the other way.
    let cost = |count: u64| {
        let mut matcher = Matcher::new();
        let label = |tag| Label { context: 0, source: 0, tag };
        let exact = |tag| Pattern { context: Some(0), source: Some(0), tag: Some(tag) };
        let since = now();
        for tag in 0..count {
            assert!(matches!(matcher.post(exact(tag), tag), Post::Waits(_)));
        }
        for tag in (0..count).rev() {
            assert_eq!(matcher.arrive(label(tag), ()), Some((tag, ())));
        }
        for tag in 0..count {
            assert_eq!(matcher.arrive(label(tag), ()), None);
        }
        for tag in (1..count).rev() {
            assert_eq!(matcher.post(exact(tag), tag), Post::Matched(tag, label(tag), ()));
        }
        let any = Pattern { context: Some(0), source: None, tag: None };
        assert_eq!(matcher.post(any, 0), Post::Matched(0, label(0), ()));
        assert_eq!((matcher.posted(), matcher.unexpected()), (0, 0));
        (now() - since) / count as f64
    };
    let few = (0..5).map(|_| cost(1000)).fold(f64::INFINITY, f64::min);
    let many = (0..3).map(|_| cost(100_000)).fold(f64::INFINITY, f64::min);
    println!("{few:.0} ns each of 1000, {many:.0} ns of 100000");
    // A list would be a hundred times slower; caches and a busy machine are not.
    assert!(many < 30.0 * few, "{few:.0} ns each of 1000, {many:.0} ns of 100000");
}

#[test]
fn what_was_asked_for_once_with_a_wildcard_leaves_no_places_behind() {
    let mut matcher = Matcher::<(), u64>::new();
    let label = |tag| Label { context: 0, source: 1, tag };
    let exact = |tag| Pattern { context: Some(0), source: Some(1), tag: Some(tag) };
    matcher.arrive(label(0), 0);
    assert!(matcher.probe(&Pattern::default()).is_some());
    for tag in 1..10_000 {
        matcher.arrive(label(tag), tag);
        assert_eq!(matcher.take(&exact(tag - 1)), Some((label(tag - 1), tag - 1)));
        let Post::Waits(posted) = matcher.post(exact(1 << 40 | tag), ()) else {
            panic!("nothing with tag {tag} has come");
        };
        assert_eq!(matcher.cancel(posted), Some(()));
    }
    let tables = matcher.unexpected.tables.iter().flatten();
    let stale: usize = tables.map(|table| table.places + table.lists.all.len()).sum();
    let empty: usize = matcher.posted.lists.iter().flatten().map(|lists| lists.all.len()).sum();
    assert!(stale < 500 && empty < 500, "{stale} places, {empty} lists");
}
