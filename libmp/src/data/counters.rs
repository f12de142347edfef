//! How much a rank has communicated with each other rank: counters that only grow, cheap enough to be always on. What kernels
//! and replayed graphs start by themselves is not counted, because nothing of it passes here.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::path::Path;
use crate::ownership::this_thread;

/// Operations of one kind, and their bytes.
///
/// ```
/// use libmp::{Traffic, World};
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// let sent: u64 = world.counters().iter().map(|peer| peer.sends.bytes).sum();
/// assert_eq!((sent, Traffic::default().bytes), (0, 0));
/// # world.finish()
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// How many were started.
    pub operations: u64,
    /// The bytes that they carry.
    pub bytes: u64,
}

/// What a rank has done with one other so far: [`Communicator::counters`](crate::Communicator::counters).
///
/// ```
/// use libmp::World;
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// for peer in world.counters() {
///     println!("{peer}"); // and each number is a field
/// }
/// # world.finish()
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerCounters {
    /// The other, in the world.
    pub world_rank: usize,
    /// Its host.
    pub host: String,
    /// How the bytes go there, if they can.
    pub path: Option<Path>,
    /// Messages to it, started by the host or enqueued on a stream.
    pub sends: Traffic,
    /// Receives from it; the bytes are those of the buffers, of tagged messages, which are counted when they are complete, what has come.
    pub recvs: Traffic,
    /// Puts into its window.
    pub puts: Traffic,
    /// Gets from its window.
    pub gets: Traffic,
    /// Signals raised at it.
    pub signals: u64,
    /// Atomic operations on its window.
    pub atomics: u64,
    /// Times that the host had to wait for an operation with it, or made a stream wait; of tagged messages none.
    pub waits: u64,
    /// Times that a started operation was tried in vain, because the other had not done its part.
    pub retries: u64,
}

impl PeerCounters {
    /// Whether nothing has happened.
    pub fn is_empty(&self) -> bool {
        let traffic = [self.sends, self.recvs, self.puts, self.gets];
        traffic.iter().all(|kind| kind.operations == 0)
            && [self.signals, self.atomics, self.waits, self.retries] == [0; 4]
    }
}

impl fmt::Display for PeerCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.map_or("no path".into(), |path| path.to_string());
        write!(f, "rank {} on {} ({path})", self.world_rank, self.host)?;
        for (kind, Traffic { operations, bytes }) in
            [("sends", self.sends), ("recvs", self.recvs), ("puts", self.puts), ("gets", self.gets)]
        {
            write!(f, ", {operations} {kind} of {bytes} bytes")?;
        }
        let PeerCounters { signals, atomics, waits, retries, .. } = self;
        write!(f, ", {signals} signals, {atomics} atomics, {waits} waits, {retries} retries")
    }
}

/// The same, counting.
#[derive(Default)]
pub(crate) struct Counters {
    pub sends: Count,
    pub recvs: Count,
    pub puts: Count,
    pub gets: Count,
    pub signals: Number,
    pub atomics: Number,
    pub waits: Number,
    pub retries: Number,
    /// Of those who count for themselves.
    apart: Mutex<Vec<Arc<Exchanged>>>,
}

/// Messages that somebody counts who adds under a lock of his own, or is alone otherwise.
#[derive(Default)]
pub(crate) struct Exchanged {
    pub sends: Count,
    pub recvs: Count,
}

impl Counters {
    /// Where somebody else counts messages with the same rank.
    pub fn apart(&self) -> Arc<Exchanged> {
        let mut all = self.apart.lock().unwrap_or_else(PoisonError::into_inner);
        // Of those who are gone one place is enough.
        let is_left = |counts: &Arc<Exchanged>| Arc::strong_count(counts) == 1;
        all.iter().find(|counts| is_left(counts)).cloned().unwrap_or_else(|| {
            all.push(Arc::default());
            all[all.len() - 1].clone()
        })
    }

    /// All messages: to the other, and from it.
    pub fn messages(&self) -> [Traffic; 2] {
        let all = self.apart.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sum = [self.sends.read(), self.recvs.read()];
        for counts in all.iter() {
            for (sum, count) in sum.iter_mut().zip([&counts.sends, &counts.recvs]) {
                let Traffic { operations, bytes } = count.read();
                sum.operations += operations;
                sum.bytes += bytes;
            }
        }
        sum
    }
}

#[derive(Default)]
pub(crate) struct Count {
    operations: Number,
    bytes: Number,
}

impl Count {
    pub fn add(&self, bytes: u64) {
        self.operations.add(1);
        self.bytes.add(bytes);
    }

    /// As whoever adds alone, which costs less.
    #[inline]
    pub fn add_alone(&self, bytes: u64) {
        self.operations.add_alone(1);
        self.bytes.add_alone(bytes);
    }

    pub fn read(&self) -> Traffic {
        Traffic { operations: self.operations.read(), bytes: self.bytes.read() }
    }
}

/// Orders nothing. The thread that adds first owns it, and adds by a load and a store; the others add to a word of theirs.
#[derive(Default)]
pub(crate) struct Number {
    owner: AtomicUsize,
    owners: AtomicU64,
    others: AtomicU64,
}

impl Number {
    #[inline]
    pub fn add(&self, more: u64) {
        let this = this_thread();
        if self.owner.load(Ordering::Relaxed) == this {
            // A thread that is called as one that has ended was started after that.
            self.add_alone(more);
        } else {
            self.add_as_another(this, more);
        }
    }

    #[inline]
    fn add_alone(&self, more: u64) {
        self.owners.store(self.owners.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }

    #[cold]
    fn add_as_another(&self, this: usize, more: u64) {
        let relaxed = Ordering::Relaxed;
        match self.owner.compare_exchange(0, this, relaxed, relaxed) {
            Ok(_) => self.add(more),
            Err(_) => drop(self.others.fetch_add(more, relaxed)),
        }
    }

    pub fn read(&self) -> u64 {
        self.owners.load(Ordering::Relaxed) + self.others.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::Number;

    #[test]
    fn nothing_is_lost_whoever_adds() {
        let number = Number::default();
        number.add(1);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..100_000).for_each(|_| number.add(3)));
            }
            (0..100_000).for_each(|_| number.add(2));
        });
        assert_eq!(number.read(), 1_400_001);
    }
}
