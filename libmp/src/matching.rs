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

/// A place of something that has come. It is stale if something else, or nothing, is there.
#[derive(Clone, Copy)]
struct Place {
    number: u64,
    slot: usize,
}

/// A list for each label that is asked for.
#[derive(Default)]
struct Lists<L> {
    known: HashMap<Label, usize, FxBuildHasher>,
    all: Slab<L>,
    /// What was asked for last, which often is asked for again.
    last: Option<(Label, usize)>,
}

impl<L: Default> Lists<L> {
    /// The list of a label, if there is one.
    #[inline]
    fn find(&mut self, key: &Label) -> Option<usize> {
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

    /// A list for a label that has none.
    fn make(&mut self, key: Label) -> usize {
        let number = self.all.insert(L::default());
        self.known.insert(key, number);
        self.last = Some((key, number));
        number
    }

    /// Leaves those that are not wanted; about so many are.
    #[cold]
    fn retain(&mut self, living: usize, mut is_wanted: impl FnMut(&mut L) -> bool) {
        let (known, all) = (&mut self.known, &mut self.all);
        known.retain(|_, number| {
            let is_wanted = is_wanted(&mut all[*number]);
            if !is_wanted {
                all.remove(*number);
            }
            is_wanted
        });
        // Or the next round would still go through all the room there once was.
        known.shrink_to(2 * living);
        self.last = None;
    }
}

/// What has come and waits, by what is asked for, the earliest first. Stale places stay until they are met, or are too many.
#[derive(Default)]
struct Table {
    lists: Lists<List>,
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
    fn push(&mut self, key: Label, place: Place) {
        let number = self.lists.find(&key).unwrap_or_else(|| self.lists.make(key));
        self.lists.all[number].push(place);
        self.places += 1;
    }

    /// The earliest with this key.
    fn first(&mut self, key: &Label, lives: impl Fn(Place) -> bool) -> Option<Place> {
        let number = self.lists.find(key)?;
        let list = &mut self.lists.all[number];
        while let Some(place) = list.first {
            if lives(place) {
                return Some(place);
            }
            list.pop();
            self.places -= 1;
        }
        None
    }

    /// Leaves what is stale, if there is much of it beside `living`.
    fn tidy(&mut self, living: usize, lives: impl Fn(Place) -> bool) {
        if self.places + self.lists.all.len() <= 4 * living + LEFTOVERS {
            return;
        }
        let mut places = 0;
        self.lists.retain(living, |list| {
            list.retain(&lives);
            let is_wanted = list.first.is_some();
            places += if is_wanted { 1 + list.others.len() } else { 0 };
            is_wanted
        });
        self.places = places;
    }
}

/// What has come and nobody wanted yet, in a table for each set of wildcards that was asked for.
struct Unexpected<A> {
    entries: Slab<Entry<A>>,
    tables: [Option<Table>; SETS],
    /// A bit for each table that there is.
    made: u8,
    /// Of the next entry.
    next: u64,
}

/// Something that has come.
struct Entry<A> {
    number: u64,
    label: Label,
    value: A,
}

impl<A> Unexpected<A> {
    /// Takes an entry out; if it is still there.
    fn take(&mut self, place: Place) -> Option<(Label, A)> {
        if !self.entries.holds(place) {
            return None;
        }
        let entry = self.entries.remove(place.slot);
        let (living, entries) = (self.entries.len(), &self.entries);
        for table in sets(self.made) {
            if let Some(table) = &mut self.tables[table] {
                table.tidy(living, |place| entries.holds(place));
            }
        }
        Some((entry.label, entry.value))
    }
}

trait Holds {
    fn holds(&self, place: Place) -> bool;
}

impl<A> Holds for Slab<Entry<A>> {
    fn holds(&self, place: Place) -> bool {
        self.get(place.slot).is_some_and(|entry| entry.number == place.number)
    }
}

/// What is wanted and has not come. It is in one list, that of its pattern: who comes first is found, and any of them taken out, without a search.
struct Wanted<R> {
    entries: Slab<Wish<R>>,
    lists: [Option<Lists<Ends>>; SETS],
    /// A bit for each set of lists that there is.
    made: u8,
    /// Of the next entry.
    next: u64,
}

/// Something that is wanted: the list that it is in, and its neighbours there.
struct Wish<R> {
    number: u64,
    request: R,
    set: usize,
    list: usize,
    before: usize,
    after: usize,
}

/// No neighbour.
const NONE: usize = usize::MAX;

/// The first and the last of a list.
struct Ends {
    first: usize,
    last: usize,
}

impl Default for Ends {
    fn default() -> Ends {
        Ends { first: NONE, last: NONE }
    }
}

impl<R> Wanted<R> {
    #[inline]
    fn push(&mut self, pattern: &Pattern, request: R) -> Posted {
        let (number, set, key) = (self.next, pattern.set(), pattern.key());
        self.next += 1;
        self.made |= 1 << set;
        let lists = self.lists[set].get_or_insert_default();
        let list = lists.find(&key).unwrap_or_else(|| {
            let living = self.entries.len();
            if lists.all.len() > 4 * living + LEFTOVERS {
                lists.retain(living, |ends| ends.first != NONE);
            }
            lists.make(key)
        });
        let ends = &mut lists.all[list];
        let before = ends.last;
        let slot = self.entries.insert(Wish { number, request, set, list, before, after: NONE });
        ends.last = slot;
        match self.entries.get_mut(before) {
            Some(before) => before.after = slot,
            None => ends.first = slot,
        }
        Posted { number, slot }
    }

    /// Takes the earliest out whose pattern takes such a label.
    #[inline]
    fn take_for(&mut self, label: &Label) -> Option<R> {
        let mut earliest = None;
        for set in sets(self.made) {
            if let Some(lists) = &mut self.lists[set]
                && let Some(list) = lists.find(&label.key(set))
                && let slot = lists.all[list].first
                && let Some(wish) = self.entries.get(slot)
                && earliest.is_none_or(|(number, _)| wish.number < number)
            {
                earliest = Some((wish.number, slot));
            }
        }
        earliest.and_then(|(number, slot)| self.take(Posted { number, slot }))
    }

    /// Takes one out, if it is still there.
    #[inline]
    fn take(&mut self, posted: Posted) -> Option<R> {
        let wish = self.entries.get(posted.slot).filter(|wish| wish.number == posted.number)?;
        let Wish { set, list, before, after, .. } = *wish;
        let ends = &mut self.lists[set].as_mut()?.all[list];
        match before {
            NONE => ends.first = after,
            _ => self.entries[before].after = after,
        }
        match after {
            NONE => ends.last = before,
            _ => self.entries[after].before = before,
        }
        Some(self.entries.remove(posted.slot).request)
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
    posted: Wanted<R>,
    unexpected: Unexpected<A>,
}

impl<R, A> Default for Matcher<R, A> {
    fn default() -> Self {
        Matcher::new()
    }
}

impl<R, A> Matcher<R, A> {
    /// With nothing posted, and nothing unexpected.
    pub fn new() -> Matcher<R, A> {
        let (made, next) = (0, 0);
        let posted = Wanted { entries: Slab::new(), lists: Default::default(), made, next };
        let unexpected =
            Unexpected { entries: Slab::new(), tables: Default::default(), made, next };
        Matcher { posted, unexpected }
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
        Post::Waits(self.posted.push(&pattern, request))
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
        let number = self.unexpected.next;
        self.unexpected.next += 1;
        let slot = self.unexpected.entries.insert(Entry { number, label, value: arrival });
        let place = Place { number, slot };
        for set in sets(self.unexpected.made) {
            if let Some(table) = &mut self.unexpected.tables[set] {
                table.push(label.key(set), place);
            }
        }
    }

    /// Takes the earliest posted pattern that matches, for something that arrives now and is not to wait.
    #[inline]
    pub fn wanted(&mut self, label: &Label) -> Option<R> {
        if self.posted.entries.is_empty() { None } else { self.posted.take_for(label) }
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
        self.posted.take(posted)
    }

    /// The earliest arrival that waits and that the pattern matches.
    pub fn probe(&mut self, pattern: &Pattern) -> Option<(Label, &A)> {
        let place = self.first(pattern)?;
        let entry = self.unexpected.entries.get(place.slot)?;
        Some((entry.label, &entry.value))
    }

    /// Takes the earliest arrival that waits and that the pattern matches.
    #[inline]
    pub fn take(&mut self, pattern: &Pattern) -> Option<(Label, A)> {
        if self.unexpected.entries.is_empty() { None } else { self.take_first(pattern) }
    }

    fn take_first(&mut self, pattern: &Pattern) -> Option<(Label, A)> {
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
        let number = table.lists.find(&pattern.key())?;
        let list = &table.lists.all[number];
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
    fn first(&mut self, pattern: &Pattern) -> Option<Place> {
        if self.unexpected.entries.is_empty() {
            return None;
        }
        let Unexpected { entries, tables, made, .. } = &mut self.unexpected;
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
