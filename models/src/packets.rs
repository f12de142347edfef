//! Small messages between CPUs, as `libmp::transport::mapped::slots` sends and takes them: a message is the packets of a slot, which say
//! themselves that they have come, and the sender hears of what was taken by a word, whose number gives the slot back.

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use super::access::Access;
use super::packet::{BYTES, WORDS, store, take};

const SLOTS: usize = 1;
const PACKETS: usize = 2;
const MESSAGES: u64 = 2;

struct Pair {
    slots: [[AtomicU64; PACKETS * WORDS]; SLOTS],
    taken: AtomicU64,
}

fn slot(epoch: u64) -> usize {
    (epoch - 1) as usize % SLOTS
}

/// The packets of a message: no two messages have a byte in common.
fn message(epoch: u64) -> [[u8; BYTES]; PACKETS] {
    std::array::from_fn(|at| [16 * epoch as u8 + at as u8; BYTES])
}

pub fn model() {
    loom::model(|| {
        let slot_of_words = |_| std::array::from_fn(|_| AtomicU64::new(0));
        let slots = std::array::from_fn(slot_of_words);
        let pair = Arc::new(Pair { slots, taken: AtomicU64::new(0) });
        let sender = pair.clone();
        let sender = thread::spawn(move || {
            for epoch in 1..=MESSAGES {
                while epoch - sender.taken.see() > SLOTS as u64 {
                    thread::yield_now();
                }
                store(&sender.slots[slot(epoch)], &message(epoch), epoch);
            }
        });
        for epoch in 1..=MESSAGES {
            let mut got = [[0; BYTES]; PACKETS];
            while !take(&pair.slots[slot(epoch)], &mut got, epoch) {
                thread::yield_now();
            }
            assert_eq!(got, message(epoch));
            pair.taken.signal(epoch);
        }
        sender.join().unwrap();
    });
}
