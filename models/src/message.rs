//! A message as `libmp::data::half` starts and completes it by the host: the receiver gives its buffer away by the credit and
//! gets it back with the arrival, and the buffer is never two's at a time.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use super::access::Access;
use super::epochs::Epochs;

const MESSAGES: u64 = 2;
/// The words were used before: epochs run through zero.
const BASE: u64 = u64::MAX;

struct Pair {
    credit: AtomicU64,
    arrival: AtomicU64,
    buffer: UnsafeCell<u64>,
}

// SAFETY: the buffer is accessed by whoever credit and arrival give it to; loom reports it if that is two at a time.
unsafe impl Sync for Pair {}

/// The epoch that a word has reached.
fn reached(word: &AtomicU64) -> u64 {
    word.see().wrapping_sub(BASE)
}

pub fn model() {
    loom::model(|| {
        let pair = Arc::new(Pair {
            credit: AtomicU64::new(BASE),
            arrival: AtomicU64::new(BASE),
            buffer: UnsafeCell::new(0),
        });
        let sender = pair.clone();
        let sender = thread::spawn(move || {
            let mut epochs = Epochs::new();
            for _ in 0..MESSAGES {
                let epoch = epochs.start().unwrap();
                while reached(&sender.credit) < epoch {
                    thread::yield_now();
                }
                // SAFETY: the credit gives the buffer to the sender.
                sender.buffer.with_mut(|buffer| unsafe { *buffer = 10 * epoch });
                sender.arrival.signal(BASE.wrapping_add(epoch));
                epochs.hand();
                assert!(reached(&sender.arrival) >= epochs.started());
                epochs.observe();
            }
        });
        let mut epochs = Epochs::new();
        for _ in 0..MESSAGES {
            let epoch = epochs.start().unwrap();
            pair.credit.signal(BASE.wrapping_add(epoch));
            epochs.hand();
            while reached(&pair.arrival) < epochs.started() {
                thread::yield_now();
            }
            epochs.observe();
            // SAFETY: the arrival gives it back.
            assert_eq!(pair.buffer.with(|buffer| unsafe { *buffer }), 10 * epoch);
        }
        sender.join().unwrap();
    });
}
