//! A stream that waits for a word, and the watchdog that is aborted. The watchdog looks around now and then by itself; here it
//! only does what it is woken for, so that what it misses is a deadlock.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use super::access::{Access, reached64};
use super::outstanding::{Outstanding, Refused};
use super::vigil::{Vigil, Watched};

struct Stream {
    waits: Outstanding<u64>,
    word: AtomicU64,
    completed: AtomicU64,
}

impl Stream {
    fn new() -> Arc<Stream> {
        let (word, completed) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Stream { waits: Outstanding::new(), word, completed })
    }

    /// The stream's one operation: waits until the word has reached a value. Returns the value seen.
    fn wait(&self, value: u64) -> u64 {
        loop {
            let seen = self.word.see();
            if reached64(seen, value) {
                self.completed.store(1, Ordering::Release);
                return seen;
            }
            thread::yield_now();
        }
    }
}

impl Watched for Arc<Stream> {
    fn is_over(&self) -> bool {
        false
    }

    /// As `StreamWatch`.
    fn release(&self) -> bool {
        if self.waits.is_drained(self.completed.load(Ordering::Acquire)) {
            return false;
        }
        self.waits.for_each(|wait| self.word.raise(wait.target));
        true
    }
}

/// Three threads with locks and a condition: every interleaving with at most so many preemptions, which is where nearly all
/// mistakes show (Musuvathi and Qadeer, PLDI 2007), takes seconds; all of them would take hours.
const PREEMPTIONS: usize = 2;

fn bounded(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(model);
}

fn start(vigil: &Arc<Vigil<Arc<Stream>>>) -> thread::JoinHandle<()> {
    let vigil = vigil.clone();
    thread::spawn(move || vigil.run())
}

/// A wait is enqueued while somebody aborts: either it is refused, or it is released; the abort is known before that; and
/// the thread ends when it is told to, whatever it does just then.
pub fn abort() {
    bounded(|| {
        let (vigil, abort_word) = (Arc::new(Vigil::new()), Arc::new(AtomicU64::new(0)));
        let stream = Stream::new();
        vigil.watch(stream.clone());
        let watchdog = start(&vigil);
        let aborter = {
            let (vigil, abort_word) = (vigil.clone(), abort_word.clone());
            thread::spawn(move || vigil.abort(|| abort_word.signal(1)))
        };
        match stream.waits.push(1, 1, || vigil.is_aborted(), || 0) {
            Ok(()) => drop(stream.wait(1)),
            Err(refused) => assert_eq!(refused, Refused::Aborted),
        }
        assert_eq!(abort_word.load(Ordering::Relaxed), 1, "the abort was not announced");
        vigil.stop();
        aborter.join().unwrap();
        watchdog.join().unwrap();
    });
}

/// The awaited signal comes while the wait is being released: it is not taken back, and who sees it sees its data.
pub fn late_signal() {
    struct Data(UnsafeCell<u64>);
    // SAFETY: read by whoever has seen the signal; loom reports it if that is too early.
    unsafe impl Sync for Data {}
    bounded(|| {
        let vigil = Arc::new(Vigil::new());
        let (stream, data) = (Stream::new(), Arc::new(Data(UnsafeCell::new(0))));
        stream.waits.push(1, 1, || vigil.is_aborted(), || 0).unwrap();
        vigil.watch(stream.clone());
        vigil.abort(|| {});
        let watchdog = start(&vigil);
        let peer = {
            let (stream, data) = (stream.clone(), data.clone());
            thread::spawn(move || {
                // SAFETY: nobody reads before the signal.
                data.0.with_mut(|data| unsafe { *data = 42 });
                // An exchange, which to everybody else is a store: of a plain store loom does not know that it comes after
                // an exchange that has not read it.
                stream.word.swap(2, Ordering::Release);
            })
        };
        if stream.wait(1) == 2 {
            // SAFETY: the signal was seen.
            assert_eq!(data.0.with(|data| unsafe { *data }), 42);
        }
        vigil.stop();
        peer.join().unwrap();
        watchdog.join().unwrap();
        assert_eq!(stream.word.see(), 2, "the peer's signal was taken back");
    });
}
