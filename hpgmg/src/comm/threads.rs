//! Ranks as threads of one process: messages are shared buffers, nothing is copied twice.
//!
//! A message has two buffers used in turn, so a sender may pack the next one while the receiver still
//! unpacks the last. Counters only grow: `sent` by the sender, `taken` by the receiver.

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Comm, CommError, Exchange, Group, Message};

type GroupKey = (Vec<usize>, usize);

/// What the ranks of one process share.
struct World {
    size: usize,
    limit: Duration,
    failed: AtomicBool,
    slots: Mutex<HashMap<(usize, usize, i32), Arc<Slot>>>,
    /// By members, and how often that group was formed before.
    groups: Mutex<HashMap<GroupKey, Arc<Meeting>>>,
}

/// One rank of a process whose ranks are threads.
///
/// See [`Comm`] for an example.
pub struct ThreadComm {
    world: Arc<World>,
    rank: usize,
    /// How often each group has been formed, so that equal member lists stay apart.
    formed: Mutex<HashMap<Vec<usize>, usize>>,
}

impl ThreadComm {
    /// The communicators of `size` ranks; each goes to its own thread. No wait lasts longer than `limit`.
    pub fn world(size: usize, limit: Duration) -> Vec<ThreadComm> {
        let world = Arc::new(World {
            size,
            limit,
            failed: AtomicBool::new(false),
            slots: Mutex::default(),
            groups: Mutex::default(),
        });
        let rank = |rank| ThreadComm { world: world.clone(), rank, formed: Mutex::default() };
        (0..size).map(rank).collect()
    }

    /// A handle that tells the other ranks that this one has failed, unless it is disarmed.
    pub fn alarm(&self) -> Alarm {
        Alarm { world: self.world.clone(), armed: true }
    }
}

/// Tells the other ranks of a process that one has failed when it is dropped armed, as on a panic or an
/// early return, so that they stop waiting.
///
/// ```
/// use std::time::Duration;
///
/// use hpgmg::comm::threads::ThreadComm;
///
/// let ranks = ThreadComm::world(2, Duration::from_secs(60));
/// std::thread::scope(|scope| {
///     for comm in &ranks {
///         scope.spawn(move || {
///             let alarm = comm.alarm();
///             // What the rank does; a panic or `?` here lets the other go.
///             alarm.disarm();
///         });
///     }
/// });
/// ```
pub struct Alarm {
    world: Arc<World>,
    armed: bool,
}

impl Alarm {
    /// The rank has succeeded.
    pub fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if self.armed {
            self.world.failed.store(true, SeqCst);
        }
    }
}

impl World {
    /// Waits until `ready`, politely, not beyond the deadline.
    fn wait(
        &self,
        rank: usize,
        ready: impl Fn() -> bool,
        what: impl Fn() -> String,
    ) -> Result<(), CommError> {
        for _ in 0..200 {
            if ready() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        let start = Instant::now();
        let mut rounds = 0u32;
        while !ready() {
            if self.failed.load(Relaxed) {
                return Err(CommError::PeerFailed { rank, what: what() });
            }
            let waited = start.elapsed();
            if waited > self.limit {
                return Err(CommError::Timeout { rank, what: what(), waited, limit: self.limit });
            }
            rounds += 1;
            if rounds < 2000 {
                std::thread::yield_now();
            } else {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        Ok(())
    }
}

/// One message from one rank to another.
struct Slot {
    buffers: [UnsafeCell<Vec<f64>>; 2],
    sent: AtomicU64,
    taken: AtomicU64,
    sender_len: AtomicUsize,
    receiver_len: AtomicUsize,
}

// SAFETY: the sender writes buffer `n % 2` only while `sent == n` and `taken + 2 > n`, the receiver reads
// it only while `sent > n` and `taken == n`: never at the same time.
unsafe impl Sync for Slot {}

const UNKNOWN: usize = usize::MAX;

impl Slot {
    fn new(len: usize) -> Self {
        Self {
            buffers: [UnsafeCell::new(vec![0.0; len]), UnsafeCell::new(vec![0.0; len])],
            sent: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            sender_len: AtomicUsize::new(UNKNOWN),
            receiver_len: AtomicUsize::new(UNKNOWN),
        }
    }
}

impl Comm for ThreadComm {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.world.size
    }

    fn name(&self) -> &'static str {
        "threads"
    }

    fn prepare(&self, tag: i32, messages: &[Message]) -> Result<Box<dyn Exchange>, CommError> {
        let mut slots = self.world.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let mut slot = |from: usize, to: usize, len: usize| -> Result<_, CommError> {
            if len == 0 {
                return Ok(None);
            }
            let slot = slots.entry((from, to, tag)).or_insert_with(|| Arc::new(Slot::new(len)));
            let (mine, other) = if from == self.rank {
                (&slot.sender_len, &slot.receiver_len)
            } else {
                (&slot.receiver_len, &slot.sender_len)
            };
            mine.store(len, SeqCst);
            let other = other.load(SeqCst);
            if other != UNKNOWN && other != len {
                let (sender, receiver) =
                    if from == self.rank { (len, other) } else { (other, len) };
                return Err(CommError::Length { from, to, tag, sender, receiver });
            }
            Ok(Some(slot.clone()))
        };
        let mut links = Vec::with_capacity(messages.len());
        for m in messages {
            let send = slot(self.rank, m.peer, m.send)?;
            let receive = slot(m.peer, self.rank, m.receive)?;
            links.push(Link { peer: m.peer, send, receive, started: 0, received: 0 });
        }
        Ok(Box::new(ThreadExchange { world: self.world.clone(), rank: self.rank, tag, links }))
    }

    fn group(&self, members: &[usize]) -> Result<Option<Box<dyn Group>>, CommError> {
        let mut formed = self.formed.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = formed.entry(members.to_vec()).or_insert(0);
        let key = (members.to_vec(), *generation);
        *generation += 1;
        let Some(index) = members.iter().position(|&m| m == self.rank) else { return Ok(None) };
        let mut groups = self.world.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let meeting =
            groups.entry(key).or_insert_with(|| Arc::new(Meeting::new(members.len()))).clone();
        Ok(Some(Box::new(ThreadGroup {
            world: self.world.clone(),
            rank: self.rank,
            index,
            meeting,
            round: 0,
        })))
    }
}

struct Link {
    peer: usize,
    send: Option<Arc<Slot>>,
    receive: Option<Arc<Slot>>,
    started: u64,
    received: u64,
}

struct ThreadExchange {
    world: Arc<World>,
    rank: usize,
    tag: i32,
    links: Vec<Link>,
}

impl Exchange for ThreadExchange {
    fn begin(&mut self) -> Result<(), CommError> {
        for link in &self.links {
            if let Some(slot) = &link.send {
                self.world.wait(
                    self.rank,
                    || slot.taken.load(Acquire) + 2 > link.started,
                    || format!("rank {} to take message tag {}", link.peer, self.tag),
                )?;
            }
        }
        Ok(())
    }

    fn send_buffer(&mut self, index: usize) -> &mut [f64] {
        let link = &mut self.links[index];
        match &link.send {
            // SAFETY: `begin` has seen the receiver take the last message of this buffer, and the next
            // is not announced before `start`; `&mut self` keeps this the only slice.
            Some(slot) => unsafe { &mut *slot.buffers[(link.started % 2) as usize].get() },
            None => &mut [],
        }
    }

    fn start(&mut self, index: usize) -> Result<(), CommError> {
        let link = &mut self.links[index];
        if let Some(slot) = &link.send {
            link.started += 1;
            slot.sent.store(link.started, Release);
        }
        Ok(())
    }

    fn receive(&mut self, index: usize) -> Result<&[f64], CommError> {
        let link = &self.links[index];
        let Some(slot) = &link.receive else { return Ok(&[]) };
        self.world.wait(
            self.rank,
            || slot.sent.load(Acquire) > link.received,
            || format!("message tag {} from rank {}", self.tag, link.peer),
        )?;
        // SAFETY: the sender has announced this buffer and does not write it again before `taken` moves,
        // which `end` does, and `end` needs `&mut self`.
        Ok(unsafe { &*slot.buffers[(link.received % 2) as usize].get() })
    }

    fn end(&mut self) -> Result<(), CommError> {
        for link in &mut self.links {
            if let Some(slot) = &link.receive {
                link.received += 1;
                slot.taken.store(link.received, Release);
            }
        }
        Ok(())
    }
}

/// Elements a reduction handles at a time.
const CHUNK: usize = 128;

/// Where the members of a group meet: two sets of values used in turn, one counter of arrivals.
struct Meeting {
    values: [Vec<UnsafeCell<[f64; CHUNK]>>; 2],
    arrivals: AtomicU64,
}

// SAFETY: a member writes only its own values, before it announces its arrival; others read them only
// after all have arrived, and the set is not written again before all have arrived once more.
unsafe impl Sync for Meeting {}

impl Meeting {
    fn new(size: usize) -> Self {
        let set = || (0..size).map(|_| UnsafeCell::new([0.0; CHUNK])).collect();
        Self { values: [set(), set()], arrivals: AtomicU64::new(0) }
    }
}

struct ThreadGroup {
    world: Arc<World>,
    rank: usize,
    index: usize,
    meeting: Arc<Meeting>,
    round: u64,
}

impl ThreadGroup {
    fn reduce(&mut self, values: &mut [f64], op: fn(f64, f64) -> f64) -> Result<(), CommError> {
        let size = self.size();
        if size == 1 {
            return Ok(());
        }
        for chunk in values.chunks_mut(CHUNK) {
            let set = &self.meeting.values[(self.round % 2) as usize];
            // SAFETY: this member's own cell of a set that nobody reads before its arrival.
            unsafe { (&mut *set[self.index].get())[..chunk.len()].copy_from_slice(chunk) };
            self.round += 1;
            let all = self.round * size as u64;
            self.meeting.arrivals.fetch_add(1, AcqRel);
            self.world.wait(
                self.rank,
                || self.meeting.arrivals.load(Acquire) >= all,
                || format!("a reduction of {size} ranks, round {}", self.round),
            )?;
            // SAFETY: all members have arrived, and none writes this set before all arrive again.
            let read = |member: usize| unsafe { &*set[member].get() };
            chunk.copy_from_slice(&read(0)[..chunk.len()]);
            for member in 1..size {
                for (value, &other) in chunk.iter_mut().zip(read(member)) {
                    *value = op(*value, other);
                }
            }
        }
        Ok(())
    }
}

impl Group for ThreadGroup {
    fn size(&self) -> usize {
        self.meeting.values[0].len()
    }

    fn max(&mut self, values: &mut [f64]) -> Result<(), CommError> {
        self.reduce(values, super::larger)
    }

    fn sum(&mut self, values: &mut [f64]) -> Result<(), CommError> {
        self.reduce(values, |a, b| a + b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    fn on_ranks<T: Send>(
        size: usize,
        limit: Duration,
        f: impl Fn(ThreadComm) -> T + Sync,
    ) -> Vec<T> {
        std::thread::scope(|scope| {
            let handles: Vec<_> = ThreadComm::world(size, limit)
                .into_iter()
                .map(|comm| scope.spawn(|| f(comm)))
                .collect();
            handles.into_iter().map(|h| h.join().unwrap()).collect()
        })
    }

    #[test]
    fn a_ring_of_messages_arrives_in_order_many_times() {
        on_ranks(3, LIMIT, |comm| {
            let (left, right) = ((comm.rank() + 2) % 3, (comm.rank() + 1) % 3);
            let messages = [
                Message { peer: left, send: 0, receive: 2 },
                Message { peer: right, send: 2, receive: 0 },
            ];
            let mut ring = comm.prepare(7, &messages).unwrap();
            for round in 0..500 {
                ring.begin().unwrap();
                ring.send_buffer(1).copy_from_slice(&[comm.rank() as f64, round as f64]);
                ring.start(1).unwrap();
                assert_eq!(ring.receive(0).unwrap(), [left as f64, round as f64]);
                ring.end().unwrap();
            }
        });
    }

    #[test]
    fn reductions_agree_on_all_members_and_leave_others_out() {
        let results = on_ranks(4, LIMIT, |comm| {
            let group = comm.group(&[0, 2, 3]).unwrap();
            group.map(|mut group| {
                let mut sums: Vec<f64> = (0..300).map(|i| (comm.rank() * i) as f64).collect();
                group.sum(&mut sums).unwrap();
                let mut max = [comm.rank() as f64];
                group.max(&mut max).unwrap();
                (sums[299], max[0])
            })
        });
        assert_eq!(results, [Some((1495.0, 3.0)), None, Some((1495.0, 3.0)), Some((1495.0, 3.0))]);
    }

    #[test]
    fn the_maximum_is_not_a_number_if_a_members_value_is_none_whichever_member_that_is() {
        for bad in 0..3 {
            let found = on_ranks(3, LIMIT, |comm| {
                let mut group = comm.group(&[0, 1, 2]).unwrap().unwrap();
                let mut values = [if comm.rank() == bad { f64::NAN } else { 1.0 }, 2.0];
                group.max(&mut values).unwrap();
                values
            });
            assert!(found.iter().all(|v| v[0].is_nan() && v[1] == 2.0), "{bad}: {found:?}");
        }
    }

    #[test]
    fn a_message_that_never_comes_is_an_error_that_names_the_peer() {
        let errors = on_ranks(2, Duration::from_millis(50), |comm| {
            let peer = 1 - comm.rank();
            let mut exchange = comm.prepare(3, &[Message { peer, send: 1, receive: 1 }]).unwrap();
            exchange.begin().unwrap();
            if comm.rank() == 1 {
                return None;
            }
            exchange.receive(0).err()
        });
        let text = errors[0].as_ref().unwrap().to_string();
        assert!(text.contains("message tag 3 from rank 1"), "{text}");
    }

    #[test]
    fn a_rank_that_fails_releases_the_ones_that_wait_for_it() {
        let errors = on_ranks(2, LIMIT, |comm| {
            let mut group = comm.group(&[0, 1]).unwrap().unwrap();
            if comm.rank() == 1 {
                drop(comm.alarm());
                return None;
            }
            group.max(&mut [0.0]).err()
        });
        assert!(matches!(errors[0], Some(CommError::PeerFailed { rank: 0, .. })));
    }

    #[test]
    fn ranks_that_disagree_on_a_length_are_told() {
        let errors = on_ranks(2, LIMIT, |comm| {
            let peer = 1 - comm.rank();
            comm.prepare(1, &[Message { peer, send: 1 + comm.rank(), receive: 1 }]).err()
        });
        assert!(errors.iter().flatten().any(|e| e.to_string().contains("has 2 elements")));
    }
}
