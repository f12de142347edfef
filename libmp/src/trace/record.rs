//! What a rank remembers for the timeline: events in memory, bounded, with their strings stored once; and the same as bytes
//! for rank 0. Not the file: `json`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::clock::Offset;

/// A row of a rank in the timeline: a thread, a stream, a device ([`Trace::lane`](super::Trace::lane)).
///
/// See [`trace`](super) for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lane(pub(super) u32);

/// An event. Strings are numbers into the table of its part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Event {
    pub lane: Lane,
    pub category: u32,
    pub name: u32,
    pub kind: Kind,
    /// Nanoseconds of this rank's clock.
    pub start: u64,
    pub args: Vec<(u32, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) enum Kind {
    /// Something on a lane, which lasted so many nanoseconds.
    Span(u64),
    /// Something that overlaps with others of its kind: under way for so many nanoseconds.
    Flight(u64),
    /// A point in time.
    Instant,
    /// A value from here on.
    Counter(f64),
    /// A message leaves the span around this moment …
    Leaves(u64),
    /// … and has arrived in the span around this one, in whatever rank.
    Arrives(u64),
}

/// Everything that one rank contributes to a timeline.
///
/// See [`Summary`](super::Summary) for an example.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    pub(super) rank: u32,
    pub(super) host: String,
    pub(super) pid: u32,
    pub(super) offset: Offset,
    /// Events for which there was no room.
    pub(super) lost: u64,
    pub(super) strings: Vec<String>,
    /// Their names.
    pub(super) lanes: Vec<u32>,
    pub(super) events: Vec<Event>,
}

impl Part {
    /// As bytes, to be carried to the rank that writes the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Numbers and strings: nothing that postcard cannot encode.
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// From [`to_bytes`](Self::to_bytes); `None` for bytes that are no part.
    pub fn from_bytes(bytes: &[u8]) -> Option<Part> {
        let (part, rest) = postcard::take_from_bytes::<Part>(bytes).ok()?;
        let known = |string: &u32| (*string as usize) < part.strings.len();
        // A value is the rank's, not a lane's, of which there may be none.
        let on_a_lane = |event: &Event| {
            matches!(event.kind, Kind::Counter(_)) || (event.lane.0 as usize) < part.lanes.len()
        };
        let good = rest.is_empty()
            && part.lanes.iter().all(known)
            && part.events.iter().all(|event| {
                on_a_lane(event)
                    && [event.category, event.name].iter().all(known)
                    && event.args.iter().all(|(key, _)| known(key))
            });
        good.then_some(part)
    }

    pub(super) fn string(&self, number: u32) -> &str {
        self.strings.get(number as usize).map_or("", |string| string)
    }
}

/// A rank's memory for events.
pub(super) struct Recorder {
    /// Unique in the process, for what threads remember of it.
    pub id: u64,
    rank: u32,
    host: String,
    limit: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    offset: Offset,
    lost: u64,
    strings: Vec<String>,
    numbers: HashMap<Cow<'static, str>, u32>,
    lanes: Vec<u32>,
    events: Vec<Event>,
}

static RECORDERS: AtomicU64 = AtomicU64::new(0);

impl Recorder {
    pub fn new(rank: u32, host: String, limit: usize) -> Recorder {
        let id = RECORDERS.fetch_add(1, Ordering::Relaxed);
        Recorder { id, rank, host, limit, state: Mutex::default() }
    }

    pub fn rank(&self) -> u32 {
        self.rank
    }

    pub fn set_offset(&self, offset: Offset) {
        self.lock().offset = offset;
    }

    pub fn lane(&self, name: Cow<'static, str>) -> Lane {
        let mut state = self.lock();
        let name = state.number(name);
        let known = state.lanes.iter().position(|&lane| lane == name);
        let lane = known.unwrap_or_else(|| {
            state.lanes.push(name);
            state.lanes.len() - 1
        });
        Lane(lane as u32)
    }

    pub fn push(
        &self,
        lane: Lane,
        category: &'static str,
        name: Cow<'static, str>,
        start: u64,
        kind: Kind,
        args: &[(&'static str, u64)],
    ) {
        let mut state = self.lock();
        if state.events.len() >= self.limit {
            state.lost += 1;
            return;
        }
        let category = state.number(category.into());
        let name = state.number(name);
        let args = args.iter().map(|&(key, value)| (state.number(key.into()), value)).collect();
        state.events.push(Event { lane, category, name, kind, start, args });
    }

    /// Everything so far.
    pub fn part(&self) -> Part {
        let state = self.lock();
        Part {
            rank: self.rank,
            host: self.host.clone(),
            pid: std::process::id(),
            offset: state.offset,
            lost: state.lost,
            strings: state.strings.clone(),
            lanes: state.lanes.clone(),
            events: state.events.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn number(&mut self, string: Cow<'static, str>) -> u32 {
        if let Some(&number) = self.numbers.get(&string) {
            return number;
        }
        let number = self.strings.len() as u32;
        self.strings.push(string.clone().into_owned());
        self.numbers.insert(string, number);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn recorder(limit: usize) -> Recorder {
        Recorder::new(3, "n".into(), limit)
    }

    #[test]
    fn a_part_comes_back_from_its_bytes_as_it_was() {
        let recorder = recorder(10);
        let lane = recorder.lane("main".into());
        assert_eq!(recorder.lane("main".into()), lane);
        for start in 0..3 {
            recorder.push(lane, "host", "send".into(), start, Kind::Span(5), &[("bytes", 8)]);
        }
        let part = recorder.part();
        assert_eq!(part.strings, ["main", "host", "send", "bytes"], "each string once");
        assert_eq!(Part::from_bytes(&part.to_bytes()), Some(part.clone()));
    }

    #[test]
    fn a_part_of_values_alone_comes_back_too() {
        let recorder = recorder(10);
        recorder.push(Lane(0), "counter", "bytes".into(), 1, Kind::Counter(8.0), &[]);
        let part = recorder.part();
        assert!(part.lanes.is_empty());
        assert_eq!(Part::from_bytes(&part.to_bytes()), Some(part));
        // But nothing else is without a lane.
        recorder.push(Lane(0), "host", "send".into(), 1, Kind::Instant, &[]);
        assert_eq!(Part::from_bytes(&recorder.part().to_bytes()), None);
    }

    #[test]
    fn a_full_memory_counts_what_it_loses() {
        let recorder = recorder(2);
        let lane = recorder.lane("main".into());
        for start in 0..5 {
            recorder.push(lane, "host", "x".into(), start, Kind::Instant, &[]);
        }
        let part = recorder.part();
        assert_eq!((part.events.len(), part.lost), (2, 3));
    }

    #[test]
    fn a_part_that_names_strings_it_does_not_have_is_none() {
        let recorder = recorder(2);
        recorder.push(Lane(0), "host", "x".into(), 0, Kind::Instant, &[]);
        assert_eq!(Part::from_bytes(&recorder.part().to_bytes()), None, "lane 0 is not there");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = Part::from_bytes(&bytes);
        }
    }
}
