//! A mailbox of two slots, as `libmp::data::mailbox` lays it out.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use super::positions::Positions;

const SLOTS: usize = 2;
const ITEMS: u64 = 3;

struct Mailbox {
    put: AtomicU64,
    taken: AtomicU64,
    slots: [UnsafeCell<u64>; SLOTS],
}

// SAFETY: a slot is accessed by whoever the counters give it to; loom reports it if that is two at a time.
unsafe impl Sync for Mailbox {}

pub fn model() {
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
                writer.slots[number as usize % SLOTS]
                    .with_mut(|slot| unsafe { *slot = 100 + item });
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
