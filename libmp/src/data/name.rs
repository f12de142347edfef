//! What an operation is called, and how far it is, for errors, the log and the timeline.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How far an operation is, for errors.
pub(crate) struct Progress {
    pub what: What,
    pub age: Duration,
    /// Why it is not further, for all that is known here.
    pub why: String,
}

/// An operation in words, with its epochs.
#[derive(Clone)]
pub(crate) struct What {
    pub name: Arc<Name>,
    /// The start that is waited for, and the last one that is known to be reached.
    pub expected: u64,
    pub seen: u64,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, epoch {}, seen {}", self.name, self.expected, self.seen)
    }
}

/// What an operation is called.
pub(crate) struct Name {
    /// "send" or "recv", or what uses it.
    pub verb: &'static str,
    pub tag: u64,
    /// "to" or "from".
    pub direction: &'static str,
    pub rank: usize,
    pub host: String,
}

impl Name {
    /// What is missing for a message whose two sides know each other.
    pub fn why_late(&self) -> String {
        match self.direction {
            "to" => format!("rank {} has not posted its buffer", self.rank),
            "from" => format!("rank {} has not sent it", self.rank),
            _ => String::new(),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Name { verb, tag, direction, rank, host } = self;
        write!(f, "{verb} tag {tag} {direction} rank {rank} on {host}")
    }
}
