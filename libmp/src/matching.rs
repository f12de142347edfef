//! Matching of messages and notifications: who gets what, without a byte moved. [`Matcher`] holds what is wanted and nothing has come for
//! (posted), and what has come and nobody wanted yet (unexpected). It is a state machine without I/O; whoever moves bytes tells it
//! what is posted and what arrives, in order.
//!
//! # The rules
//! 1. What arrives goes to the posted pattern that was posted *first* among those that match it.
//! 2. What is posted gets the unexpected arrival that came *first* among those that match it.
//! 3. So two arrivals with the same label are never taken in another order than they came (non-overtaking), whatever wildcards the
//!    patterns have.
//! 4. A request for several arrivals at once takes as many as it wants, the earliest, or none.
//!
//! # Cost
//! All of it in time that does not grow with what waits: an arrival looks into one hash table for each set of wildcards that somebody
//! has posted (at most eight), a pattern into the one of its own set. The table of a set is made when it is first asked for.

use std::collections::{HashMap, VecDeque};

use rustc_hash::FxBuildHasher;
use slab::Slab;

/// What an arrival says of itself.
///
/// See [`Matcher`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Label {
    /// What it belongs to: a communicator, or a window.
    pub context: u64,
    /// The rank it comes from.
    pub source: u32,
    /// Its tag.
    pub tag: u64,
}

/// What is wanted; `None` is any.
///
/// See [`Matcher`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pattern {
    /// Of this communicator or window.
    pub context: Option<u64>,
    /// From this rank.
    pub source: Option<u32>,
    /// With this tag.
    pub tag: Option<u64>,
}

/// Sets of wildcards: a bit for each field that is any.
const SETS: usize = 8;
/// Leftovers of a table that are not worth a round through it.
const LEFTOVERS: usize = 64;

impl Pattern {
    /// Whether it takes something with this label.
    pub fn matches(&self, label: &Label) -> bool {
        self.context.is_none_or(|context| context == label.context)
            && self.source.is_none_or(|source| source == label.source)
            && self.tag.is_none_or(|tag| tag == label.tag)
    }

    fn set(&self) -> usize {
        usize::from(self.context.is_none())
            | usize::from(self.source.is_none()) << 1
            | usize::from(self.tag.is_none()) << 2
    }

    /// Its entry in the table of its set.
    fn key(&self) -> Label {
        Label {
            context: self.context.unwrap_or_default(),
            source: self.source.unwrap_or_default(),
            tag: self.tag.unwrap_or_default(),
        }
    }
}

impl Label {
    /// Its entry in the table of a set of wildcards.
    fn key(&self, set: usize) -> Label {
        Label {
            context: if set & 1 == 0 { self.context } else { 0 },
            source: if set & 2 == 0 { self.source } else { 0 },
            tag: if set & 4 == 0 { self.tag } else { 0 },
        }
    }
}

/// Names a posted pattern, to take it back.
///
/// See [`Matcher`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Posted {
    number: u64,
    slot: usize,
}

/// What became of a posted pattern.
///
/// See [`Matcher`] for an example.
#[derive(Debug, PartialEq, Eq)]
pub enum Post<R, A> {
    /// It has got this arrival. What was posted with it is given back.
    Matched(R, Label, A),
    /// It waits.
    Waits(Posted),
}

/// Something that waits, in one or more tables.
struct Entry<L, T> {
    number: u64,
    label: L,
    value: T,
}

/// A place in a queue's entries. It is stale if another, or nothing, is there.
#[derive(Clone, Copy)]
struct Place {
    number: u64,
    slot: usize,
}

/// What waits, by what is asked for, the earliest first. Stale places stay until they are met, or are too many.
#[derive(Default)]
struct Table {
    /// Where the list of what is asked for is.
    known: HashMap<Label, usize, FxBuildHasher>,
    lists: Slab<List>,
    /// What was asked for last, which often is asked for again.
    last: Option<(Label, usize)>,
    places: usize,
}

/// Places, the earliest first. Often there is one, for which nothing is allocated.
#[derive(Default)]
struct List {
    first: Option<Place>,
    /// Empty if there is no first.
    others: VecDeque<Place>,
}

impl List {
    #[inline]
    fn push(&mut self, place: Place) {
        match &mut self.first {
            none @ None => *none = Some(place),
            Some(_) => self.others.push_back(place),
        }
    }

    #[inline]
    fn pop(&mut self) {
        self.first = self.others.pop_front();
    }

    fn iter(&self) -> impl Iterator<Item = &Place> {
        self.first.iter().chain(&self.others)
    }

    fn retain(&mut self, lives: impl Fn(Place) -> bool) {
        self.others.retain(|place| lives(*place));
        if self.first.is_some_and(|place| !lives(place)) {
            self.first = self.others.pop_front();
        }
    }
}

impl Table {
    #[inline]
    fn push(&mut self, key: Label, place: Place) {
        let number = self.list(&key).unwrap_or_else(|| {
            let number = self.lists.insert(List::default());
            self.known.insert(key, number);
            self.last = Some((key, number));
            number
        });
        self.lists[number].push(place);
        self.places += 1;
    }

    /// The list of a key.
    #[inline]
    fn list(&mut self, key: &Label) -> Option<usize> {
        match self.last {
            Some((last, number)) if last == *key => Some(number),
            _ => self.seek(key),
        }
    }

    fn seek(&mut self, key: &Label) -> Option<usize> {
        let number = *self.known.get(key)?;
        self.last = Some((*key, number));
        Some(number)
    }

    /// The earliest with this key.
    #[inline]
    fn first(&mut self, key: &Label, lives: impl Fn(Place) -> bool) -> Option<Place> {
        let number = self.list(key)?;
        let list = &mut self.lists[number];
        while let Some(place) = list.first {
            if lives(place) {
                return Some(place);
            }
            list.pop();
            self.places -= 1;
        }
        None
    }

    /// The earliest with this key is taken.
    #[inline]
    fn pop(&mut self, key: &Label, place: Place) {
        if let Some(number) = self.list(key)
            && let list = &mut self.lists[number]
            && list.first.is_some_and(|first| first.number == place.number)
        {
            list.pop();
            self.places -= 1;
        }
    }

    /// Leaves what is stale, if there is much of it beside `living`.
    #[inline]
    fn tidy(&mut self, living: usize, lives: impl Fn(Place) -> bool) {
        if self.places + self.lists.len() > 4 * living + LEFTOVERS {
            self.tidied(living, lives);
        }
    }

    #[cold]
    fn tidied(&mut self, living: usize, lives: impl Fn(Place) -> bool) {
        let (known, lists) = (&mut self.known, &mut self.lists);
        known.retain(|_, number| {
            let list = &mut lists[*number];
            list.retain(&lives);
            let is_wanted = list.first.is_some();
            if !is_wanted {
                lists.remove(*number);
            }
            is_wanted
        });
        // Or the next round would still go through all the room there once was.
        known.shrink_to(2 * living);
        self.last = None;
        self.places = known.values().map(|number| 1 + lists[*number].others.len()).sum();
    }
}

/// What waits on one side.
struct Queue<L, T> {
    entries: Slab<Entry<L, T>>,
    tables: [Option<Table>; SETS],
    /// A bit for each table that there is.
    made: u8,
    /// Of the next entry.
    next: u64,
}

impl<L: Copy, T> Queue<L, T> {
    fn new() -> Queue<L, T> {
        Queue { entries: Slab::new(), tables: Default::default(), made: 0, next: 0 }
    }

    #[inline]
    fn push(&mut self, label: L, value: T) -> Place {
        let number = self.next;
        self.next += 1;
        Place { number, slot: self.entries.insert(Entry { number, label, value }) }
    }

    /// Takes an entry out; if it is still there.
    #[inline]
    fn take(&mut self, place: Place) -> Option<(L, T)> {
        let entry = self.entries.try_remove_if(place)?;
        let (living, entries) = (self.entries.len(), &self.entries);
        for table in sets(self.made) {
            if let Some(table) = &mut self.tables[table] {
                table.tidy(living, |place| entries.holds(place));
            }
        }
        Some((entry.label, entry.value))
    }
}

/// The sets of a bit each.
fn sets(mut bits: u8) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let set = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
        bits &= bits - 1;
        Some(set)
    })
}

trait Holds<E> {
    fn holds(&self, place: Place) -> bool;
    fn try_remove_if(&mut self, place: Place) -> Option<E>;
}

impl<L, T> Holds<Entry<L, T>> for Slab<Entry<L, T>> {
    fn holds(&self, place: Place) -> bool {
        self.get(place.slot).is_some_and(|entry| entry.number == place.number)
    }

    fn try_remove_if(&mut self, place: Place) -> Option<Entry<L, T>> {
        if self.holds(place) { Some(self.remove(place.slot)) } else { None }
    }
}

/// Who gets what. `R` goes with what is posted, `A` with what arrives.
///
/// ```
/// use libmp::matching::{Label, Matcher, Pattern, Post};
///
/// let mut matcher = Matcher::new();
/// let label = |source, tag| Label { context: 0, source, tag };
/// let any_source = Pattern { context: Some(0), source: None, tag: Some(7) };
/// let Post::Waits(_) = matcher.post(any_source, "first") else { unreachable!("nothing has come") };
/// assert_eq!(matcher.arrive(label(3, 8), "of another tag"), None); // is kept
/// assert_eq!(matcher.arrive(label(3, 7), "wanted"), Some(("first", "wanted")));
/// let anything = Pattern { context: Some(0), ..Pattern::default() };
/// assert_eq!(matcher.post(anything, "second"), Post::Matched("second", label(3, 8), "of another tag"));
/// ```
pub struct Matcher<R, A> {
    posted: Queue<(), R>,
    unexpected: Queue<Label, A>,
}

impl<R, A> Default for Matcher<R, A> {
    fn default() -> Self {
        Matcher::new()
    }
}

impl<R, A> Matcher<R, A> {
    /// With nothing posted, and nothing unexpected.
    pub fn new() -> Matcher<R, A> {
        Matcher { posted: Queue::new(), unexpected: Queue::new() }
    }

    /// How many patterns wait.
    pub fn posted(&self) -> usize {
        self.posted.entries.len()
    }

    /// How many arrivals wait.
    pub fn unexpected(&self) -> usize {
        self.unexpected.entries.len()
    }

    /// Whether neither requests nor messages wait.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.posted.entries.is_empty() && self.unexpected.entries.is_empty()
    }

    /// Posts a pattern: it gets the earliest arrival that it matches, or waits for one.
    #[inline]
    pub fn post(&mut self, pattern: Pattern, request: R) -> Post<R, A> {
        if let Some((label, arrival)) = self.take(&pattern) {
            return Post::Matched(request, label, arrival);
        }
        let place = self.posted.push((), request);
        self.posted.made |= 1 << pattern.set();
        let table = self.posted.tables[pattern.set()].get_or_insert_default();
        table.push(pattern.key(), place);
        Post::Waits(Posted { number: place.number, slot: place.slot })
    }

    /// Something arrives: the earliest posted pattern that matches gets it, else it waits. Gives both back if it is taken.
    pub fn arrive(&mut self, label: Label, arrival: A) -> Option<(R, A)> {
        match self.wanted(&label) {
            Some(request) => Some((request, arrival)),
            None => {
                self.keep(label, arrival);
                None
            }
        }
    }

    /// Something that has arrived, and that nobody [wants](Self::wanted), waits.
    pub fn keep(&mut self, label: Label, arrival: A) {
        let place = self.unexpected.push(label, arrival);
        for set in sets(self.unexpected.made) {
            if let Some(table) = &mut self.unexpected.tables[set] {
                table.push(label.key(set), place);
            }
        }
    }

    /// Takes the earliest posted pattern that matches, for something that arrives now and is not to wait.
    #[inline]
    pub fn wanted(&mut self, label: &Label) -> Option<R> {
        if self.posted.entries.is_empty() {
            return None;
        }
        let Queue { entries, tables, made, .. } = &mut self.posted;
        let (mut earliest, mut of) = (Place { number: u64::MAX, slot: 0 }, 0);
        for set in sets(*made) {
            if let Some(table) = &mut tables[set]
                && let Some(place) = table.first(&label.key(set), |place| entries.holds(place))
                && place.number < earliest.number
            {
                (earliest, of) = (place, set);
            }
        }
        // It is in no other table.
        if let Some(table) = &mut tables[of] {
            table.pop(&label.key(of), earliest);
        }
        self.posted.take(earliest).map(|(_, request)| request)
    }

    /// Takes back a pattern that was posted; `None` if it has got something, or was taken back before.
    ///
    /// ```
    /// use libmp::matching::{Label, Matcher, Pattern, Post};
    ///
    /// let mut matcher = Matcher::<&str, ()>::new();
    /// let Post::Waits(posted) = matcher.post(Pattern::default(), "a receive") else { unreachable!() };
    /// assert_eq!(matcher.cancel(posted), Some("a receive"));
    /// assert_eq!(matcher.arrive(Label::default(), ()), None);
    /// ```
    pub fn cancel(&mut self, posted: Posted) -> Option<R> {
        let place = Place { number: posted.number, slot: posted.slot };
        self.posted.take(place).map(|(_, request)| request)
    }

    /// The earliest arrival that waits and that the pattern matches.
    pub fn probe(&mut self, pattern: &Pattern) -> Option<(Label, &A)> {
        let place = self.first(pattern)?;
        let entry = self.unexpected.entries.get(place.slot)?;
        Some((entry.label, &entry.value))
    }

    /// Takes the earliest arrival that waits and that the pattern matches.
    pub fn take(&mut self, pattern: &Pattern) -> Option<(Label, A)> {
        let place = self.first(pattern)?;
        self.unexpected.take(place)
    }

    /// Takes the `count` earliest arrivals that the pattern matches, or none if there are fewer.
    ///
    /// ```
    /// use libmp::matching::{Label, Matcher, Pattern};
    ///
    /// let mut matcher = Matcher::<(), u32>::new();
    /// let any = Pattern::default();
    /// matcher.arrive(Label { tag: 1, ..Label::default() }, 10);
    /// assert_eq!(matcher.take_all(&any, 2), None);
    /// matcher.arrive(Label { tag: 2, ..Label::default() }, 20);
    /// assert_eq!(matcher.take_all(&any, 2).unwrap()[1].1, 20);
    /// ```
    pub fn take_all(&mut self, pattern: &Pattern, count: usize) -> Option<Vec<(Label, A)>> {
        if count == 0 {
            return Some(Vec::new());
        }
        self.first(pattern)?;
        let table = self.unexpected.tables[pattern.set()].as_mut()?;
        let number = table.list(&pattern.key())?;
        let list = &table.lists[number];
        let living = list.iter().filter(|place| self.unexpected.entries.holds(**place));
        let places: Vec<Place> = living.take(count).copied().collect();
        if places.len() < count {
            return None;
        }
        Some(places.into_iter().filter_map(|place| self.unexpected.take(place)).collect())
    }

    /// The labels of what waits, the earliest first.
    pub fn labels(&self) -> Vec<Label> {
        let mut all: Vec<_> = self.unexpected.entries.iter().map(|(_, entry)| entry).collect();
        all.sort_unstable_by_key(|entry| entry.number);
        all.into_iter().map(|entry| entry.label).collect()
    }

    /// Where the earliest arrival is that a pattern matches.
    #[inline]
    fn first(&mut self, pattern: &Pattern) -> Option<Place> {
        if self.unexpected.entries.is_empty() { None } else { self.find(pattern) }
    }

    fn find(&mut self, pattern: &Pattern) -> Option<Place> {
        let Queue { entries, tables, made, .. } = &mut self.unexpected;
        let set = pattern.set();
        *made |= 1 << set;
        let table = tables[set].get_or_insert_with(|| {
            let mut all: Vec<_> = entries.iter().collect();
            all.sort_unstable_by_key(|(_, entry)| entry.number);
            let mut table = Table::default();
            for (slot, entry) in all {
                table.push(entry.label.key(set), Place { number: entry.number, slot });
            }
            table
        });
        table.first(&pattern.key(), |place| entries.holds(place))
    }
}

#[cfg(test)]
mod tests;
