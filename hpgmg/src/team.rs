//! The threads of one rank: a small team that shares the tasks of one kernel at a time.
//!
//! `run` deals tasks out dynamically and returns when all are done. It allocates nothing, so it may be
//! called inside a cycle; results must not depend on which thread takes which task. Not a general pool:
//! one caller, no nesting.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::field::Field;

type Job = *const (dyn Fn(usize, usize) + Sync);

struct Shared {
    /// The current job; written by the caller before `epoch` moves, read by helpers after.
    job: UnsafeCell<Option<Job>>,
    tasks: AtomicUsize,
    next: AtomicUsize,
    epoch: AtomicUsize,
    busy: AtomicUsize,
    panicked: AtomicBool,
    stop: AtomicBool,
    parked: Vec<AtomicBool>,
}

// SAFETY: `job` is written only by the one caller of `run` while no helper is busy, and published by
// the release store of `epoch`; the pointee is `Sync` and outlives the epoch because `run` waits.
unsafe impl Sync for Shared {}
// SAFETY: as above; the raw pointer is only dereferenced between publication and completion.
unsafe impl Send for Shared {}

/// The threads of one rank.
pub struct Team {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
    scratch: Vec<Mutex<Field>>,
}

impl Team {
    /// A team of `threads` threads, the caller included, each with `scratch` elements of its own.
    ///
    /// # Errors
    /// When the operating system refuses a thread.
    pub fn new(threads: usize, scratch: usize) -> std::io::Result<Self> {
        let helpers = threads.max(1) - 1;
        let shared = Arc::new(Shared {
            job: UnsafeCell::new(None),
            tasks: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            epoch: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            parked: (0..helpers).map(|_| AtomicBool::new(false)).collect(),
        });
        let mut team = Self {
            shared: shared.clone(),
            helpers: Vec::with_capacity(helpers),
            scratch: (0..threads.max(1)).map(|_| Mutex::new(Field::zeros(scratch, 0))).collect(),
        };
        for index in 0..helpers {
            let shared = shared.clone();
            let builder = std::thread::Builder::new().name(format!("team-{}", index + 1));
            team.helpers.push(builder.spawn(move || help(&shared, index))?);
        }
        Ok(team)
    }

    /// Number of threads, the caller included.
    pub fn threads(&self) -> usize {
        self.helpers.len() + 1
    }

    /// Runs `task(index, scratch)` for every index below `tasks`, on the whole team where `work` (cells
    /// touched in all) is worth waking it, and returns when all are done.
    pub fn run(&self, tasks: usize, work: usize, task: &(dyn Fn(usize, &mut [f64]) + Sync)) {
        /// Below this many cells the caller is done before a helper has looked up.
        const WORTH_SHARING: usize = 6000;
        if self.helpers.is_empty() || tasks <= 1 || work < WORTH_SHARING {
            let mut scratch = self.scratch[0].lock().unwrap_or_else(PoisonError::into_inner);
            for index in 0..tasks {
                task(index, &mut scratch);
            }
            return;
        }
        let body = |index: usize, thread: usize| {
            let mut scratch = self.scratch[thread].lock().unwrap_or_else(PoisonError::into_inner);
            task(index, &mut scratch);
        };
        let body: &(dyn Fn(usize, usize) + Sync) = &body;
        let shared = &*self.shared;
        // SAFETY: no helper is busy (the previous `run` waited for all), so nobody reads `job` now.
        // The lifetime is erased, but this function returns only when no helper uses it any more.
        unsafe {
            *shared.job.get() =
                Some(std::mem::transmute::<*const (dyn Fn(usize, usize) + Sync + '_), Job>(body));
        }
        shared.tasks.store(tasks, Relaxed);
        shared.next.store(0, Relaxed);
        shared.busy.store(self.helpers.len(), Relaxed);
        shared.epoch.fetch_add(1, SeqCst);
        for (helper, parked) in self.helpers.iter().zip(&shared.parked) {
            if parked.load(SeqCst) {
                helper.thread().unpark();
            }
        }
        let guard = WaitForHelpers(shared);
        take_tasks(shared, body, 0);
        drop(guard);
        if shared.panicked.swap(false, Relaxed) {
            panic!("a team thread panicked");
        }
    }
}

impl Team {
    /// As [`run`](Self::run), but each thread makes a state of its own first, for all tasks that it takes.
    pub fn share<S>(
        &self,
        tasks: usize,
        work: usize,
        state: &(dyn Fn() -> S + Sync),
        task: &(dyn Fn(&mut S, usize) + Sync),
    ) {
        let next = AtomicUsize::new(0);
        self.run(self.threads().min(tasks), work, &|_, _| {
            let mut state = state();
            loop {
                let index = next.fetch_add(1, Relaxed);
                if index >= tasks {
                    return;
                }
                task(&mut state, index);
            }
        });
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
        self.shared.epoch.fetch_add(1, SeqCst);
        for helper in self.helpers.drain(..) {
            helper.thread().unpark();
            let _ = helper.join();
        }
    }
}

/// Waits for the helpers even when the caller's own task panics: they borrow from its stack.
struct WaitForHelpers<'a>(&'a Shared);

impl Drop for WaitForHelpers<'_> {
    fn drop(&mut self) {
        let mut spins = 0u32;
        while self.0.busy.load(Acquire) != 0 {
            spins += 1;
            if spins < 2000 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }
}

fn take_tasks(shared: &Shared, body: &(dyn Fn(usize, usize) + Sync), thread: usize) {
    let tasks = shared.tasks.load(Relaxed);
    loop {
        let index = shared.next.fetch_add(1, Relaxed);
        if index >= tasks {
            return;
        }
        body(index, thread);
    }
}

fn help(shared: &Shared, index: usize) {
    struct Done<'a>(&'a Shared);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.0.panicked.store(true, Relaxed);
            }
            self.0.busy.fetch_sub(1, Release);
        }
    }
    let mut seen = 0;
    loop {
        let mut spins = 0u32;
        while shared.epoch.load(Acquire) == seen {
            spins += 1;
            if spins < 4000 {
                std::hint::spin_loop();
            } else if spins < 4200 {
                std::thread::yield_now();
            } else {
                shared.parked[index].store(true, SeqCst);
                if shared.epoch.load(SeqCst) == seen {
                    std::thread::park_timeout(Duration::from_millis(10));
                }
                shared.parked[index].store(false, SeqCst);
            }
        }
        seen += 1;
        if shared.stop.load(SeqCst) {
            return;
        }
        let _done = Done(shared);
        // SAFETY: `epoch` moved after `job` was written, and the caller waits for `busy` to reach zero,
        // which happens when `_done` is dropped, before it touches `job` or what the job borrows.
        let body = unsafe { (*shared.job.get()).map(|job| &*job) };
        if let Some(body) = body {
            take_tasks(shared, body, index + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_exactly_once_on_any_number_of_threads() {
        for threads in [1, 2, 5] {
            let team = Team::new(threads, 1).unwrap();
            for tasks in [0, 1, 7, 100] {
                let counts: Vec<_> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                team.run(tasks, usize::MAX, &|index, _| {
                    counts[index].fetch_add(1, Relaxed);
                });
                assert!(counts.iter().all(|c| c.load(Relaxed) == 1));
            }
        }
    }

    #[test]
    fn a_panicking_task_reaches_the_caller_and_the_team_survives() {
        let team = Team::new(3, 1).unwrap();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            team.run(50, usize::MAX, &|index, _| assert!(index != 20, "task 20"));
        }));
        assert!(caught.is_err());
        let count = AtomicUsize::new(0);
        team.run(50, usize::MAX, &|_, _| {
            count.fetch_add(1, Relaxed);
        });
        assert_eq!(count.load(Relaxed), 50);
    }
}
