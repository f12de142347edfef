//! The lock of tagged messages and of prepared operations: one thread owns it and enters by a store, others come meanwhile and take it away.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::ownership::Lock;

type Counter = Lock<UnsafeCell<u64>>;

fn add(lock: &Counter) {
    let inside = lock.lock();
    // SAFETY: who is inside is alone there; loom reports it if not.
    inside.with_mut(|it| unsafe { *it += 1 });
}

pub fn model() {
    check(1, 2);
    check(2, 1);
}

/// So often by the first thread, while another one comes so often.
fn check(mine: u64, others: u64) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(4);
    builder.check(move || {
        let lock = Arc::new(Counter::new(UnsafeCell::new(0)));
        // The first to come is the owner.
        add(&lock);
        let other = lock.clone();
        let other = thread::spawn(move || (0..others).for_each(|_| add(&other)));
        for _ in 0..mine {
            add(&lock);
        }
        if let Some(inside) = lock.try_lock() {
            // SAFETY: as in `add`.
            inside.with_mut(|it| unsafe { *it += 1 });
            drop(inside);
        } else {
            add(&lock);
        }
        other.join().unwrap();
        // SAFETY: as in `add`.
        lock.lock().with(|it| unsafe { assert_eq!(*it, 2 + mine + others) });
    });
}
