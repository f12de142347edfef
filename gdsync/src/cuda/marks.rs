//! How far a stream has got, told by events recorded among its operations: a fixed number of them, each used again once it
//! has happened. Which operations get one, and when it is looked, is the stream's matter (`stream.rs`).

use std::collections::VecDeque;

/// Events of type `E`, and the operations that they were recorded behind.
pub(super) struct Marks<E> {
    /// Oldest first: operation number and the event recorded after it.
    recorded: VecDeque<(u64, E)>,
    free: Vec<E>,
    completed: u64,
}

impl<E: Copy> Marks<E> {
    pub fn new(free: Vec<E>) -> Marks<E> {
        Marks { recorded: VecDeque::with_capacity(free.len()), free, completed: 0 }
    }

    /// An event to record; `None` if all are in use.
    pub fn take(&mut self) -> Option<E> {
        self.free.pop()
    }

    /// `event` was recorded behind operation `number`. With several enqueuing threads marks may come out of order; a
    /// smaller number behind a larger one only makes progress known later.
    pub fn record(&mut self, number: u64, event: E) {
        let newest = self.recorded.back().map_or(0, |mark| mark.0);
        self.recorded.push_back((number.max(newest), event));
    }

    /// The number of the last operation that is known to have run, and all before it. `happened` asks an event.
    pub fn look(&mut self, mut happened: impl FnMut(E) -> bool) -> u64 {
        self.free_while(|_, event| happened(event));
        self.completed
    }

    /// It is known otherwise that operation `number` and all before it have run: their events are free again. If they
    /// stayed in use, the operations of the next hundred would get none, and a stream that waits for something
    /// that its enqueuer does only after these would never be seen to get on.
    pub fn have_run(&mut self, number: u64) {
        self.free_while(|recorded, _| recorded <= number);
        self.completed = self.completed.max(number);
    }

    /// Frees the oldest events, as long as what is asked of an operation and its event holds: then it has run.
    fn free_while(&mut self, mut ran: impl FnMut(u64, E) -> bool) {
        while let Some(&(number, event)) = self.recorded.front()
            && ran(number, event)
        {
            self.recorded.pop_front();
            self.free.push(event);
            self.completed = self.completed.max(number);
        }
    }

    /// All events, to be destroyed.
    pub fn into_events(self) -> impl Iterator<Item = E> {
        self.free.into_iter().chain(self.recorded.into_iter().map(|mark| mark.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_tell_how_far_a_stream_has_got_and_are_used_again() {
        let mut marks = Marks::new(vec!['a', 'b']);
        for number in [16, 32] {
            let event = marks.take().unwrap();
            marks.record(number, event);
        }
        assert_eq!(marks.take(), None);
        assert_eq!(marks.look(|event| event == 'b'), 16);
        assert_eq!(marks.take(), Some('b'));
        assert_eq!(marks.look(|_| true), 32);
        assert_eq!(marks.into_events().count(), 1, "one was taken and not recorded");
    }

    #[test]
    fn events_of_a_stream_that_was_found_idle_are_free_again() {
        let mut marks = Marks::new(vec!['a', 'b']);
        for period in 0..10 {
            for number in [32 * period + 16, 32 * period + 32] {
                let event = marks.take().expect("a mark for every sixteenth operation");
                marks.record(number, event);
            }
            marks.have_run(32 * period + 32);
            assert_eq!(marks.look(|_| panic!("nothing is left to ask")), 32 * period + 32);
        }
    }

    #[test]
    fn an_event_behind_a_later_operation_stays() {
        let mut marks = Marks::new(vec!['a', 'b']);
        for number in [16, 32] {
            let event = marks.take().unwrap();
            marks.record(number, event);
        }
        marks.have_run(31);
        assert_eq!(marks.look(|_| false), 31);
        assert_eq!(marks.look(|_| true), 32);
    }
}
