//! What counters, the log and the timeline get to know of one side of a message.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::{Endpoint, OneSidedKind, Side};
use crate::data::counters::Count;
use crate::data::plane::Plane;
use crate::trace::{self, Span};

/// The monotonic clock as of its last tick: some milliseconds early, and as cheap to read as memory.
pub(crate) fn coarse_now() -> u64 {
    nanoseconds(ClockId::MonotonicCoarse)
}

fn nanoseconds(clock: ClockId) -> u64 {
    // It begins at 0 with the machine, and 2^64 ns are 584 years.
    Duration::try_from(clock_gettime(clock)).unwrap_or_default().as_nanos() as u64
}

impl Endpoint {
    /// Time since the last start, or some milliseconds more.
    pub(super) fn age(&self) -> Duration {
        let since = self.since.load(Ordering::Relaxed);
        Duration::from_nanos(nanoseconds(ClockId::Monotonic).saturating_sub(since))
    }

    /// A start at this time of the coarse clock, for the counters, the log and the timeline.
    pub(super) fn count(&self, plane: &Plane, now: u64) {
        let bytes = self.memory.len() as u64;
        let count: Option<&Count> = match (self.side, self.one_sided) {
            (Side::Send, None) => Some(&self.counters.sends),
            (Side::Recv, None) => Some(&self.counters.recvs),
            (_, Some(OneSidedKind::Put { .. })) => Some(&self.counters.puts),
            (_, Some(OneSidedKind::Get)) => Some(&self.counters.gets),
            (_, Some(OneSidedKind::Wait)) => None,
        };
        if let Some(count) = count {
            count.add(bytes);
        }
        if let Some(OneSidedKind::Put { signals }) = self.one_sided {
            self.counters.signals.add(u64::from(signals));
        }
        tracing::trace!(operation = %self.name, bytes, "started");
        self.since.store(now, Ordering::Relaxed);
        self.flying.store(plane.trace.now(), Ordering::Relaxed);
    }

    /// The last start was seen complete.
    pub(super) fn landed(&self, plane: &Plane, epoch: u64) {
        tracing::trace!(operation = %self.name, epoch, "complete");
        if !plane.trace.is_on() {
            return;
        }
        let began = self.flying.swap(0, Ordering::Relaxed);
        if began > 0 {
            let now = trace::now();
            plane.trace.flight(
                "operation",
                self.name.to_string(),
                (began, now),
                &self.values(epoch),
            );
            if self.side == Side::Recv {
                plane.trace.arrives(plane.trace.thread_lane(), self.message(epoch), now);
            }
        }
    }

    /// Somebody has to wait for it.
    pub fn waits(&self) {
        self.counters.waits.add(1);
        tracing::trace!(operation = %self.name, "waiting");
    }

    /// Something that this thread does for it, in the timeline.
    pub fn span<'a>(&self, plane: &'a Plane, what: &str) -> Option<Span<'a>> {
        plane.trace.has_spans().then(|| {
            let span = plane.trace.span("host", format!("{what} {}", self.name));
            span.arg("peer", self.name.rank as u64).arg("bytes", self.memory.len() as u64)
        })
    }

    pub fn values(&self, epoch: u64) -> [(&'static str, u64); 4] {
        let bytes = self.memory.len() as u64;
        [("peer", self.name.rank as u64), ("bytes", bytes), ("tag", self.key.tag), ("epoch", epoch)]
    }

    /// A number for a message that both sides know: its receiver's rank and end, and which start it is.
    pub fn message(&self, start: u64) -> u64 {
        let (rank, end) = match (self.side, self.way()) {
            (Side::Recv, _) => (self.rank, self.number),
            (Side::Send, Ok(Some(way))) => (self.name.rank, way.number),
            (Side::Send, _) => return 0,
        };
        // 2^16 is more ranks than there will be.
        (rank as u64) << 48 ^ u64::from(end) << 24 ^ start
    }
}
