//! The lock-free parts of the workspace under loom. The files are those that the libraries are built from, not copies; what
//! stands here is only who calls them in which order.
#![cfg(all(loom, test))]

#[path = "../../gdsync/src/nic/soft/doze.rs"]
mod doze;
#[path = "../../libmp/src/data/positions.rs"]
mod positions;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::thread;

use doze::Doze;
use positions::Positions;

/// A mailbox of so many slots, as `libmp::data::mailbox` lays it out.
const SLOTS: usize = 2;

struct Mailbox {
    put: AtomicU64,
    taken: AtomicU64,
    slots: [UnsafeCell<u64>; SLOTS],
}

// SAFETY: a slot is accessed by whoever the counters give it to; loom reports it if that is two at a time.
unsafe impl Sync for Mailbox {}

#[test]
fn a_mailbox_gives_every_blob_once_in_order_and_no_slot_to_two() {
    const ITEMS: u64 = 3;
    loom::model(|| {
        let mailbox = Arc::new(Mailbox {
            put: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            slots: [UnsafeCell::new(0), UnsafeCell::new(0)],
        });
        let writer = mailbox.clone();
        let writer = thread::spawn(move || {
            let counters = Positions { put: &writer.put, taken: &writer.taken };
            for item in 0..ITEMS {
                let number = loop {
                    match counters.vacant(SLOTS as u64) {
                        Some(number) => break number,
                        None => thread::yield_now(),
                    }
                };
                assert_eq!(number, item);
                // SAFETY: the counters say that the slot is the writer's.
                writer.slots[number as usize % SLOTS].with_mut(|slot| unsafe { *slot = 100 + item });
                counters.publish(number);
            }
        });
        let counters = Positions { put: &mailbox.put, taken: &mailbox.taken };
        for item in 0..ITEMS {
            let number = loop {
                match counters.ready() {
                    Some(number) => break number,
                    None => thread::yield_now(),
                }
            };
            // SAFETY: the counters say that the slot is the reader's.
            let found = mailbox.slots[number as usize % SLOTS].with(|slot| unsafe { *slot });
            assert_eq!((number, found), (item, 100 + item));
            counters.release(number);
        }
        writer.join().unwrap();
        assert_eq!(counters.ready(), None);
    });
}

#[test]
fn an_engine_that_dozes_off_never_misses_a_doorbell() {
    loom::model(|| {
        let (doze, doorbell) = (Arc::new(Doze::new()), Arc::new(AtomicBool::new(false)));
        let engine = {
            let (doze, doorbell) = (doze.clone(), doorbell.clone());
            thread::spawn(move || {
                // As `Engine::rest`, between passes: a pass that finds nothing, the announcement, a pass, sleep. The
                // engine's own sleep has an end; here it has none, so that a doorbell it missed is a deadlock.
                loop {
                    if doorbell.load(Ordering::Relaxed) {
                        doze.cancel();
                        return;
                    }
                    if doze.is_announced() {
                        thread::park();
                    } else {
                        doze.announce();
                    }
                }
            })
        };
        doorbell.store(true, Ordering::Relaxed);
        if doze.must_wake() {
            engine.thread().unpark();
        }
        engine.join().unwrap();
    });
}

/// A message as `libmp::data` describes it: the receiver gives its buffer away by the credit and gets it back with the
/// arrival. Restated here in its words: the library keeps them in memory that loom cannot see.
#[test]
fn credit_and_arrival_hand_the_buffer_to_and_fro() {
    const EPOCHS: u64 = 2;
    struct Pair {
        credit: AtomicU64,
        arrival: AtomicU64,
        buffer: UnsafeCell<u64>,
    }
    // SAFETY: as for `Mailbox`.
    unsafe impl Sync for Pair {}
    let reach = |word: &AtomicU64, epoch| {
        while word.load(Ordering::Acquire) < epoch {
            thread::yield_now();
        }
    };
    loom::model(move || {
        let pair = Arc::new(Pair {
            credit: AtomicU64::new(0),
            arrival: AtomicU64::new(0),
            buffer: UnsafeCell::new(0),
        });
        let sender = pair.clone();
        let sender = thread::spawn(move || {
            for epoch in 1..=EPOCHS {
                reach(&sender.credit, epoch);
                // SAFETY: the credit gives the buffer to the sender.
                sender.buffer.with_mut(|buffer| unsafe { *buffer = 10 * epoch });
                sender.arrival.store(epoch, Ordering::Release);
            }
        });
        for epoch in 1..=EPOCHS {
            pair.credit.store(epoch, Ordering::Release);
            reach(&pair.arrival, epoch);
            // SAFETY: the arrival gives it back.
            assert_eq!(pair.buffer.with(|buffer| unsafe { *buffer }), 10 * epoch);
        }
        sender.join().unwrap();
    });
}
