//! What the timeline and the log show of tagged messages: calls that start them, each message as a bar from its start to when it was seen complete, and an arrow from
//! where its envelope left to where it was taken. Copies of devices are shown by `staging.rs`.

use std::fmt;

use super::{Engine, Source, Tag, Way, What};
use crate::error::Result;
use crate::tagged::memory::Memory;
use crate::tagged::pool::Ticket;
use crate::trace::Span;

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Send { to, tag } => write!(f, "send tag {tag} to rank {to}"),
            What::Receive { from, tag } => {
                match tag {
                    Tag::Is(tag) => write!(f, "recv tag {tag} from ")?,
                    Tag::Any => f.write_str("recv any tag from ")?,
                }
                match from {
                    Source::Rank(rank) => write!(f, "rank {rank}"),
                    Source::Any => f.write_str("any rank"),
                }
            }
        }
    }
}

impl Engine {
    #[cold]
    pub(super) fn send_shown(
        &mut self,
        way: &Way<'_>,
        (to, tag): (usize, u64),
        memory: Memory,
    ) -> Result<Option<Ticket>> {
        let (bytes, line) = (memory.len(), self.peers[to].rings.next_sent());
        let what = What::Send { to, tag };
        let _span = self.starts(way, what);
        let sent = self.send_now(way, (to, tag), memory)?;
        if sent.is_none() {
            self.left(to, line, self.began);
            self.shows(self.began, what, bytes);
        }
        Ok(sent)
    }

    /// A call starts a request.
    #[cold]
    pub(super) fn starts<'a>(&mut self, way: &Way<'a>, what: What) -> Span<'a> {
        self.began = self.trace.now();
        tracing::trace!(operation = %what, "started");
        way.plane.trace.span("host", format!("start {what}"))
    }

    /// The envelope of a message to a rank was written as this line, not before this time: its receiver may have noted it first.
    #[cold]
    pub(super) fn left(&self, to: usize, line: u64, at: u64) {
        let id = self.message((self.rank, to), line);
        self.trace.leaves(self.trace.thread_lane(), id, at);
    }

    /// The last line that was taken from a rank is the envelope of a message.
    #[cold]
    pub(super) fn came(&self, from: usize) {
        let id = self.message((from, self.rank), self.peers[from].rings.last_taken());
        self.trace.arrives(self.trace.thread_lane(), id, self.trace.now());
    }

    /// A message that was under way since then is complete.
    #[cold]
    pub(super) fn shows(&self, since: u64, what: What, bytes: usize) {
        let peer = match what {
            What::Send { to: rank, .. } | What::Receive { from: Source::Rank(rank), .. } => rank,
            What::Receive { .. } => return, // What has come has come from somebody.
        };
        tracing::trace!(operation = %what, bytes, "complete");
        let values = [("peer", peer as u64), ("bytes", bytes as u64)];
        self.trace.flight("operation", what.to_string(), (since, self.trace.now()), &values);
    }

    /// A number for a message that both ranks know.
    fn message(&self, (from, to): (usize, usize), line: u64) -> u64 {
        [from as u64, to as u64, line].into_iter().fold(self.id, |mixed, word| {
            (mixed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        })
    }
}
