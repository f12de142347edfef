//! The requests of a queue that have been posted and not completed, with the memory they hold.
//!
//! A queue completes in order, so this is a queue too. A signaled completion retires the unsignaled requests before
//! it. The numbers in it go to the NIC and come back; they grow over all queue pairs of the process, so that a
//! late completion of a queue pair that is gone cannot be taken for one of a newer queue pair with its number.

use super::memory_region::MemoryRegion;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Pieces of memory that a request may name.
pub(super) const MAX_SEGMENTS: usize = 4;

/// Set in the number of a receive, and of one of a shared receive queue.
const RECEIVE: u64 = 1 << 63;
const SHARED: u64 = 1 << 62;

/// What kind of request it was; a failed completion does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Send,
    Write,
    Read,
    FetchAdd,
    CompareSwap,
    Receive,
}

/// The regions that a request names.
pub(super) type Held = [Option<Arc<MemoryRegion>>; MAX_SEGMENTS];

/// One request.
pub(super) struct Pending {
    number: u64,
    pub(super) id: u64,
    pub(super) kind: Kind,
    /// Kept until the request is retired; never read.
    _held: Held,
}

/// The requests of one queue, oldest first.
pub(super) struct InFlight {
    pending: VecDeque<Pending>,
    depth: usize,
    next: u64,
}

impl InFlight {
    fn new(depth: u32, first: u64) -> Self {
        let depth = depth as usize;
        Self { pending: VecDeque::with_capacity(depth), depth, next: first }
    }

    /// Enters a request and returns its number, or nothing if the queue is full.
    pub(super) fn push(&mut self, id: u64, kind: Kind, held: Held) -> Option<u64> {
        if self.pending.len() == self.depth {
            return None;
        }
        let number = self.next;
        self.pending.push_back(Pending { number, id, kind, _held: held });
        self.next += 1;
        Some(number)
    }

    /// Takes back the request entered last: it was not posted after all.
    pub(super) fn undo(&mut self) {
        if self.pending.pop_back().is_some() {
            self.next -= 1;
        }
    }

    /// Retires request `number` and those before it; nothing if it is not in flight.
    pub(super) fn complete(&mut self, number: u64) -> Option<Pending> {
        // The numbers in the queue are consecutive.
        let oldest = self.pending.front()?.number;
        let before = usize::try_from(number.checked_sub(oldest)?).ok()?;
        if before >= self.pending.len() {
            return None;
        }
        self.pending.drain(..before);
        self.pending.pop_front()
    }
}

/// The receives of a shared queue, which complete in any order.
pub(super) struct SharedReceives {
    slots: Mutex<Slots>,
}

struct Slots {
    pending: Vec<Option<Pending>>,
    free: Vec<u32>,
    /// Receives so far.
    count: u32,
}

impl SharedReceives {
    pub(super) fn new(depth: u32) -> Self {
        let pending = (0..depth).map(|_| None).collect();
        Self { slots: Mutex::new(Slots { pending, free: (0..depth).rev().collect(), count: 0 }) }
    }

    /// Enters a receive and returns its number, or nothing if the queue is full.
    pub(super) fn push(&self, id: u64, held: Held) -> Option<u64> {
        let slots = &mut *self.slots();
        let slot = slots.free.pop()?;
        slots.count = slots.count.wrapping_add(1) & (u32::MAX >> 2);
        let number = RECEIVE | SHARED | u64::from(slots.count) << 32 | u64::from(slot);
        slots.pending[slot as usize] =
            Some(Pending { number, id, kind: Kind::Receive, _held: held });
        Some(number)
    }

    /// Retires receive `number`; nothing if it is not in flight. Also of one that was not posted after all.
    pub(super) fn complete(&self, number: u64) -> Option<Pending> {
        let slots = &mut *self.slots();
        let slot = number as u32;
        let pending = slots.pending.get_mut(slot as usize)?;
        let found = pending.take_if(|pending| pending.number == number)?;
        slots.free.push(slot);
        Some(found)
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Both queues of a queue pair, shared with the completion queues it reports to.
pub(super) struct Queues {
    send: Mutex<InFlight>,
    receive: Mutex<InFlight>,
    /// Where its receives are, if it shares them with others.
    shared: Option<Arc<SharedReceives>>,
}

impl Queues {
    pub(super) fn new(
        send_depth: u32,
        receive_depth: u32,
        shared: Option<Arc<SharedReceives>>,
    ) -> Self {
        // 2^22 queue pairs of 2^40 requests each before a number comes again.
        static GENERATION: AtomicU64 = AtomicU64::new(0);
        let first = GENERATION.fetch_add(1, Ordering::Relaxed) << 40 & !(RECEIVE | SHARED);
        Self {
            send: Mutex::new(InFlight::new(send_depth, first)),
            receive: Mutex::new(InFlight::new(receive_depth, first | RECEIVE)),
            shared,
        }
    }

    pub(super) fn send(&self) -> MutexGuard<'_, InFlight> {
        // A panic while it was held left a queue that is whole: each of its operations is one step.
        self.send.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn receive(&self) -> MutexGuard<'_, InFlight> {
        self.receive.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Retires the request of either queue that has this number.
    pub(super) fn complete(&self, number: u64) -> Option<Pending> {
        match (number & RECEIVE != 0, number & SHARED != 0) {
            (false, _) => self.send().complete(number),
            (true, false) => self.receive().complete(number),
            (true, true) => self.shared.as_ref()?.complete(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Held = [const { None }; MAX_SEGMENTS];

    #[test]
    fn a_completion_retires_the_unsignaled_requests_before_it() {
        let queues = Queues::new(3, 1, None);
        let mut send = queues.send();
        let numbers: Vec<_> =
            (0..3).map(|id| send.push(id, Kind::Write, NOTHING).unwrap()).collect();
        assert_eq!(send.push(3, Kind::Write, NOTHING), None, "the queue is full");
        drop(send);
        assert_eq!(queues.complete(numbers[1]).unwrap().id, 1);
        assert!(queues.complete(numbers[0]).is_none(), "retired already");
        assert_eq!(queues.complete(numbers[2]).unwrap().id, 2);
    }

    #[test]
    fn a_number_of_an_older_queue_pair_belongs_to_no_younger_one() {
        let (older, younger) = (Queues::new(1, 1, None), Queues::new(1, 1, None));
        let old = older.send().push(7, Kind::Send, NOTHING).unwrap();
        let new = younger.send().push(8, Kind::Send, NOTHING).unwrap();
        assert!(younger.complete(old).is_none());
        assert_eq!(younger.complete(new).unwrap().id, 8);
    }

    #[test]
    fn receives_of_a_shared_queue_complete_in_any_order_and_once() {
        let shared = Arc::new(SharedReceives::new(2));
        let (one, two) = (Queues::new(1, 0, Some(shared.clone())), Queues::new(1, 0, None));
        let numbers = [5, 6].map(|id| shared.push(id, NOTHING).unwrap());
        assert_eq!(shared.push(7, NOTHING), None, "the queue is full");
        assert!(two.complete(numbers[0]).is_none(), "it is of another queue pair");
        assert_eq!(one.complete(numbers[1]).unwrap().id, 6);
        let again = shared.push(8, NOTHING).unwrap();
        assert!(one.complete(numbers[1]).is_none(), "retired already");
        assert_eq!(one.complete(again).unwrap().id, 8);
        assert_eq!(one.complete(numbers[0]).unwrap().id, 5);
    }

    #[test]
    fn a_request_that_was_not_posted_leaves_no_trace() {
        let queues = Queues::new(1, 1, None);
        let first = queues.receive().push(1, Kind::Receive, NOTHING).unwrap();
        queues.receive().undo();
        let second = queues.receive().push(2, Kind::Receive, NOTHING).unwrap();
        assert_eq!(first, second);
        assert_eq!(queues.complete(second).unwrap().id, 2);
    }
}
