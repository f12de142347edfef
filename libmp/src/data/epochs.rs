//! How often an operation was started, and how far that got: a state machine without I/O. It decides whether an operation
//! may be started again.

use std::sync::Arc;

/// The starts of an operation, counted from 1.
#[derive(Debug)]
pub(crate) struct Epochs {
    started: u64,
    /// Of these, how many are out of the hands of this rank's calls: a send's bytes are on their way, a receive's
    /// credit is given.
    handed: u64,
    /// The last that `test` or `wait` has seen complete.
    observed: u64,
    /// The stream on which everything after the last start's completion is ordered.
    ordered: Option<Arc<str>>,
}

impl Epochs {
    pub fn new() -> Epochs {
        Epochs { started: 0, handed: 0, observed: 0, ordered: None }
    }

    /// A start by the host: its number, or the number of the start that has not been seen to complete.
    pub fn start(&mut self) -> Result<u64, u64> {
        if self.observed < self.started {
            return Err(self.started);
        }
        self.ordered = None;
        Ok(self.next())
    }

    /// A start on a stream, which is also possible where the stream itself orders it behind the last.
    pub fn start_on(&mut self, stream: &str) -> Result<u64, u64> {
        if self.observed < self.started && self.ordered.as_deref() != Some(stream) {
            return Err(self.started);
        }
        self.ordered = None;
        Ok(self.next())
    }

    fn next(&mut self) -> u64 {
        self.started += 1;
        self.started
    }

    /// What comes on this stream from here on comes after the last start's completion.
    pub fn order(&mut self, stream: &str) {
        self.ordered = Some(stream.into());
    }

    /// The last start is out of this rank's hands.
    pub fn hand(&mut self) {
        self.handed = self.started;
    }

    pub fn handed(&self) -> bool {
        self.handed == self.started
    }

    /// The last start was seen to be complete. True if that is news.
    pub fn observe(&mut self) -> bool {
        std::mem::replace(&mut self.observed, self.started) != self.started
    }

    pub fn started(&self) -> u64 {
        self.started
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_start_needs_the_first_one_seen_complete() {
        let mut epochs = Epochs::new();
        assert_eq!(epochs.start(), Ok(1));
        epochs.hand();
        assert_eq!(epochs.start(), Err(1));
        epochs.observe();
        assert_eq!(epochs.start(), Ok(2));
        assert!(!epochs.handed());
    }

    #[test]
    fn a_stream_may_start_again_what_it_has_ordered_itself_and_no_other_may() {
        let mut epochs = Epochs::new();
        assert_eq!(epochs.start_on("a"), Ok(1));
        assert_eq!(epochs.start_on("a"), Err(1), "nothing on the stream waits for the first");
        epochs.order("a");
        assert_eq!(epochs.start_on("b"), Err(1));
        assert_eq!(epochs.start(), Err(1));
        assert_eq!(epochs.start_on("a"), Ok(2));
        epochs.observe();
        assert_eq!(epochs.start_on("b"), Ok(3));
    }
}
