//! A message as `libmp::data::endpoint` starts and completes it by the host: the receiver gives its buffer away by the credit and
//! gets it back with the arrival, and the buffer is never two's at a time.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use super::access::Access;

const MESSAGES: u64 = 2;
struct Pair {
    credit: AtomicU64,
    arrival: AtomicU64,
    buffer: UnsafeCell<u64>,
}

// SAFETY: the buffer is accessed by whoever credit and arrival give it to; loom reports it if that is two at a time.
unsafe impl Sync for Pair {}

pub fn model() {
    loom::model(|| {
        let pair = Arc::new(Pair {
            credit: AtomicU64::new(0),
            arrival: AtomicU64::new(0),
            buffer: UnsafeCell::new(0),
        });
        let sender = pair.clone();
        let sender = thread::spawn(move || {
            for epoch in 1..=MESSAGES {
                while sender.credit.see() < epoch {
                    thread::yield_now();
                }
                // SAFETY: the credit gives the buffer to the sender.
                sender.buffer.with_mut(|buffer| unsafe { *buffer = 10 * epoch });
                sender.arrival.signal(epoch);
            }
        });
        for epoch in 1..=MESSAGES {
            pair.credit.signal(epoch);
            while pair.arrival.see() < epoch {
                thread::yield_now();
            }
            // SAFETY: the arrival gives it back.
            assert_eq!(pair.buffer.with(|buffer| unsafe { *buffer }), 10 * epoch);
        }
        sender.join().unwrap();
    });
}
