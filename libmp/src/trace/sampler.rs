//! The curve of the process's CPU time in a timeline: a thread that looks at it every few milliseconds.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Trace, clock};

/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(10);

/// Samples until it is dropped.
pub(crate) struct Sampler {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// A sampler for the timeline; `None` where no thread can be had, which is no reason to fail.
    pub fn start(trace: &Trace) -> Option<Sampler> {
        let stop: Arc<(Mutex<bool>, Condvar)> = Arc::default();
        let (trace, stopped) = (trace.clone(), stop.clone());
        let thread = std::thread::Builder::new().name("mp-trace".into());
        let thread = thread.spawn(move || sample(&trace, &stopped)).ok()?;
        Some(Sampler { stop, thread: Some(thread) })
    }
}

fn sample(trace: &Trace, (stop, stopped): &(Mutex<bool>, Condvar)) {
    let (mut at, mut used) = (clock::now(), clock::process_cpu());
    let mut stop = stop.lock().unwrap_or_else(PoisonError::into_inner);
    // Once at least, also if this thread begins to run when all is over.
    loop {
        if !*stop {
            stop = stopped.wait_timeout(stop, INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
        }
        let (now, cpu) = (clock::now(), clock::process_cpu());
        let passed = now.saturating_sub(at).max(1);
        trace.counter("CPU (cores in use)", at, cpu.saturating_sub(used) as f64 / passed as f64);
        (at, used) = (now, cpu);
        if *stop {
            return;
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // It does nothing that could panic.
            let _ = thread.join();
        }
    }
}
