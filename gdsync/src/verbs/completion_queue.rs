//! A completion queue: where queue pairs report what became of their requests.

use super::completion::Completion;
use super::context::Context;
use super::error::{Error, Result, last_errno, returned_errno};
use super::in_flight::Queues;
use crate::Deadline;
use gdsync_sys::ibv_poll_cq;
use gdsync_sys::verbs::{ibv_cq, ibv_wc};
use std::collections::BTreeMap;
use std::fmt;
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// How many completions are taken from the library at once.
const BATCH: usize = 16;

/// A completion queue.
///
/// See [`verbs`](super) for an example.
pub struct CompletionQueue {
    queue: NonNull<ibv_cq>,
    context: Arc<Context>,
    capacity: u32,
    /// Locked while polling: two threads that poll at once would otherwise retire the requests of a queue pair out of order.
    reports: Mutex<Reports>,
}

#[derive(Default)]
struct Reports {
    /// The queue pairs that report here.
    by: BTreeMap<u32, Weak<Queues>>,
    /// What the library writes to.
    entries: [ibv_wc; BATCH],
}

// SAFETY: libibverbs serialises the calls on a completion queue.
unsafe impl Send for CompletionQueue {}
// SAFETY: as above.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    pub(super) fn new(context: &Arc<Context>, capacity: u32) -> Result<Arc<Self>> {
        let entries = i32::try_from(capacity).map_err(|_| Error::TooMuch {
            what: "capacity of a completion queue",
            found: capacity.into(),
            most: context.limits().completions.into(),
        })?;
        // SAFETY: the context is open; there is no event channel and no user pointer.
        let queue = unsafe {
            context.verbs().ibv_create_cq(context.as_ptr(), entries, null_mut(), null_mut(), 0)
        };
        let queue = NonNull::new(queue).ok_or_else(|| {
            context.failed("ibv_create_cq", &format!("{capacity} completions"), last_errno())
        })?;
        // SAFETY: the library has set it, possibly to more than asked for.
        let capacity = unsafe { queue.as_ref().cqe }.max(0) as u32;
        let reports = Mutex::default();
        Ok(Arc::new(Self { queue, context: context.clone(), capacity, reports }))
    }

    /// Completions that it has room for.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Appends the completions that are there to `into`, 16 at most, and returns how many. Never waits.
    ///
    /// # Errors
    /// What the library says, for example that the queue has overflowed.
    pub fn poll(&self, into: &mut Vec<Completion>) -> Result<usize> {
        let before = into.len();
        self.take(BATCH, |completion| into.push(completion))?;
        Ok(into.len() - before)
    }

    /// Waits for one completion: polls, then yields, then sleeps in between.
    ///
    /// # Errors
    /// [`Error::Timeout`] if none comes before the deadline, or what the library says.
    pub fn wait(&self, deadline: Deadline) -> Result<Completion> {
        let mut found = None;
        let outcome = deadline.poll(|| match self.take(1, |completion| found = Some(completion)) {
            Ok(()) => found.take().map(Ok),
            Err(error) => Some(Err(error)),
        });
        outcome.unwrap_or_else(|| {
            let device = self.context.name().to_owned();
            Err(Error::Timeout { device, waited: deadline.elapsed() })
        })
    }

    /// Hands up to `most` completions to `give`.
    fn take(&self, most: usize, mut give: impl FnMut(Completion)) -> Result<()> {
        let most = most.min(BATCH);
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        let Reports { by, entries } = &mut *reports;
        // SAFETY: the queue is alive and `entries` has room for `most`, which is at most 16.
        let count = unsafe { ibv_poll_cq(self.queue.as_ptr(), most as i32, entries.as_mut_ptr()) };
        let count = usize::try_from(count).map_err(|_| {
            self.context.failed("ibv_poll_cq", "completions", returned_errno(count))
        })?;
        for wc in entries.iter().take(count) {
            let queues = by.get(&wc.qp_num).and_then(Weak::upgrade);
            // Otherwise the queue pair is gone, and nobody waits for its requests.
            if let Some(request) = queues.and_then(|queues| queues.complete(wc.wr_id)) {
                give(Completion::new(wc, &request));
            }
        }
        Ok(())
    }

    pub(super) fn add(&self, qp_num: u32, queues: &Arc<Queues>) {
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        reports.by.insert(qp_num, Arc::downgrade(queues));
    }

    pub(super) fn remove(&self, qp_num: u32) {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner).by.remove(&qp_num);
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_cq {
        self.queue.as_ptr()
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: queue pairs hold their completion queues, so none is left.
        let rc = unsafe { self.context.verbs().ibv_destroy_cq(self.queue.as_ptr()) };
        if rc != 0 {
            tracing::warn!(device = self.context.name(), rc, "ibv_destroy_cq failed");
        }
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompletionQueue({}, {} completions)", self.context.name(), self.capacity)
    }
}
