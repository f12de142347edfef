//! When a stream did what it was given. On a host stream two closures around the operation look at the clock, in every replay
//! of a graph too; on a CUDA stream two events are recorded around it, and their times are asked for once they are reached.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gdsync::{Deadline, Device, Event, Stream};

use super::{Lane, Trace, now};

/// Operations between two events that may wait for their times.
const PENDING: usize = 1 << 16;
/// How long an idle stream may take to reach an event.
const REACH: Duration = Duration::from_secs(1);

/// What is recorded of an operation of a stream.
#[derive(Clone)]
pub(crate) struct Label {
    pub name: String,
    pub args: Vec<(&'static str, u64)>,
    /// The message that leaves with it, or arrives.
    pub leaves: Option<u64>,
    pub arrives: Option<u64>,
}

impl Label {
    /// An operation without a message.
    pub fn new(name: impl Into<String>, args: &[(&'static str, u64)]) -> Label {
        Label { name: name.into(), args: args.to_vec(), leaves: None, arrives: None }
    }
}

/// Operations of a rank's CUDA streams whose times are not known yet.
#[derive(Default)]
pub(crate) struct Probes {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pending: Vec<Pending>,
    /// For each device a stream with nothing else on it, to compare the device's clock with the host's.
    clocks: Vec<(Option<u32>, Arc<Stream>)>,
}

/// An event that was reached, and the host's time of that.
type Reference = (Event, u64);

struct Pending {
    device: Device,
    lane: Lane,
    label: Label,
    begin: Event,
    end: Event,
}

impl Probes {
    /// Enqueues something on a stream, and sees to it that the timeline shows when it ran.
    pub fn around<T, E>(
        &self,
        trace: &Trace,
        stream: &Stream,
        label: impl FnOnce() -> Label,
        enqueue: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        if !trace.is_on() {
            return enqueue();
        }
        match stream.device() {
            Device::Host => by_closures(trace, stream, label(), enqueue),
            Device::Cuda(_) if stream.is_capturing() => enqueue(),
            Device::Cuda(_) => self.by_events(trace, stream, label(), enqueue),
        }
    }

    fn by_events<T, E>(
        &self,
        trace: &Trace,
        stream: &Stream,
        label: Label,
        enqueue: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let record = || -> gdsync::Result<Event> {
            let event = Event::new(stream.device())?;
            stream.record(&event).map(|()| event)
        };
        // What cannot be recorded runs anyway.
        let Ok(begin) = record() else { return enqueue() };
        let enqueued = enqueue()?;
        let Ok(end) = record() else { return Ok(enqueued) };
        let (device, lane) = (stream.device().clone(), trace.lane(stream.name().to_owned()));
        if self.lock().pending.len() >= PENDING {
            self.resolve(trace);
        }
        let mut state = self.lock();
        if state.pending.len() < PENDING {
            state.pending.push(Pending { device, lane, label, begin, end });
        }
        Ok(enqueued)
    }

    /// Asks for the times of what has run by now. What cannot be known stays out of the timeline.
    pub fn resolve(&self, trace: &Trace) {
        if !trace.is_on() {
            return;
        }
        let mut state = self.lock();
        let pending = std::mem::take(&mut state.pending);
        let (reached, rest): (Vec<_>, Vec<_>) =
            pending.into_iter().partition(|pending| pending.end.is_reached().unwrap_or(true));
        state.pending = rest;
        let mut references: Vec<(Option<u32>, Option<Reference>)> = Vec::new();
        for Pending { device, lane, label, begin, end } in reached {
            let ordinal = device.ordinal();
            let known = references.iter().position(|(of, _)| *of == ordinal).unwrap_or_else(|| {
                references.push((ordinal, state.reference(&device).ok()));
                references.len() - 1
            });
            let Some((reference, at)) = &references[known].1 else { continue };
            let time = |event: &Event| {
                reference.since(event).map(|ago| at.saturating_sub(ago.as_nanos() as u64))
            };
            if let (Ok(begin), Ok(end)) = (time(&begin), time(&end)) {
                show(trace, lane, &label, begin, end);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// An event that was reached just now, and the host's time of it.
    fn reference(&mut self, device: &Device) -> gdsync::Result<Reference> {
        let ordinal = device.ordinal();
        let stream = match self.clocks.iter().find(|(of, _)| *of == ordinal) {
            Some((_, stream)) => stream.clone(),
            None => {
                let stream = Arc::new(device.stream()?);
                self.clocks.push((ordinal, stream.clone()));
                stream
            }
        };
        let event = Event::new(device)?;
        stream.record(&event)?;
        event.synchronize(Deadline::after(REACH))?;
        Ok((event, now()))
    }
}

fn by_closures<T, E>(
    trace: &Trace,
    stream: &Stream,
    label: Label,
    enqueue: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let began = Arc::new(AtomicU64::new(0));
    let begin = began.clone();
    // What cannot be recorded runs anyway.
    if stream.call(move || begin.store(now(), Ordering::Relaxed)).is_err() {
        return enqueue();
    }
    let enqueued = enqueue()?;
    let (trace, lane) = (trace.clone(), trace.lane(stream.name().to_owned()));
    let _ = stream.call(move || show(&trace, lane, &label, began.load(Ordering::Relaxed), now()));
    Ok(enqueued)
}

fn show(trace: &Trace, lane: Lane, label: &Label, begin: u64, end: u64) {
    trace.record(lane, "stream", label.name.clone(), (begin, end), &label.args);
    // Whoever gets it may see it before the end of the operation is noted.
    if let Some(id) = label.leaves {
        trace.leaves(lane, id, begin);
    }
    if let Some(id) = label.arrives {
        trace.arrives(lane, id, end);
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Kind;
    use super::*;

    const NAP: Duration = Duration::from_millis(5);

    fn label() -> Label {
        Label::new("nap", &[("bytes", 3)])
    }

    /// Start and length of the only event.
    fn only(trace: &Trace) -> (u64, u64) {
        let part = trace.part().unwrap();
        let [event] = &part.events[..] else { panic!("{:?}", part.events) };
        let Kind::Span(ns) = event.kind else { panic!("{event:?}") };
        assert_eq!(part.string(event.name), "nap");
        (event.start, ns)
    }

    #[test]
    fn closures_and_events_say_the_same_of_an_operation() {
        let (stream, probes) = (Device::Host.stream().unwrap(), Probes::default());
        let nap = || stream.call(|| std::thread::sleep(NAP));
        let (closures, events) = (Trace::detached(0, "n", 10), Trace::detached(0, "n", 10));
        let before = now();
        probes.around(&closures, &stream, label, nap).unwrap();
        probes.by_events(&events, &stream, label(), nap).unwrap();
        stream.synchronize(Deadline::after(Duration::from_secs(60))).unwrap();
        probes.resolve(&events);
        let after = now();
        let (first, second) = (only(&closures), only(&events));
        for (start, ns) in [first, second] {
            assert!(ns >= NAP.as_nanos() as u64, "{ns}");
            assert!(before <= start && start + ns <= after + 1_000_000);
        }
        assert!(second.0 + 1_000_000 >= first.0 + first.1, "one after the other");
    }

    #[test]
    fn a_replayed_graph_shows_every_replay() {
        let (stream, probes) = (Device::Host.stream().unwrap(), Probes::default());
        let trace = Trace::detached(0, "n", 10);
        stream.begin_capture().unwrap();
        probes.around(&trace, &stream, label, || stream.call(|| ())).unwrap();
        let graph = stream.end_capture().unwrap();
        for _ in 0..3 {
            stream.launch_graph(&graph).unwrap();
        }
        stream.synchronize(Deadline::after(Duration::from_secs(60))).unwrap();
        assert_eq!(trace.part().unwrap().events.len(), 3);
    }
}
