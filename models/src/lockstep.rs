//! Messages in lockstep as `libmp::data::half::lockstep` sends them for an all-reduce of two ranks: each writes the other's
//! slots in turn without a credit, because what has come from the other says that it has read what was there.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use super::access::Access;

/// The third is the first to use a slot again.
const RUNS: u64 = 3;
const TURNS: usize = 2;
/// The words were used before: epochs run through zero.
const BASE: u64 = u64::MAX;

/// What the other rank writes of a rank's memory.
struct Rank {
    arrivals: [AtomicU64; TURNS],
    slots: [UnsafeCell<u64>; TURNS],
}

// SAFETY: a slot is accessed by whoever the arrivals give it to; loom reports it if that is two at a time.
unsafe impl Sync for Rank {}

impl Rank {
    fn new() -> Rank {
        let arrivals = [AtomicU64::new(BASE), AtomicU64::new(BASE)];
        Rank { arrivals, slots: [UnsafeCell::new(0), UnsafeCell::new(0)] }
    }
}

/// The runs of rank `me`.
fn runs(ranks: &[Rank; 2], me: usize) {
    let (mine, theirs) = (&ranks[me], &ranks[1 - me]);
    let vector = |rank: usize, run: u64| 10 * run + rank as u64;
    for run in 1..=RUNS {
        let turn = run as usize % TURNS;
        let epoch = run.div_ceil(TURNS as u64);
        // SAFETY: the other has read what was there before it sent its vector of the last run.
        theirs.slots[turn].with_mut(|slot| unsafe { *slot = vector(me, run) });
        theirs.arrivals[turn].signal(BASE.wrapping_add(epoch));
        while mine.arrivals[turn].see().wrapping_sub(BASE) < epoch {
            thread::yield_now();
        }
        // SAFETY: it has arrived, and is not written before this rank has sent its vector of the next run.
        let found = mine.slots[turn].with(|slot| unsafe { *slot });
        assert_eq!(found, vector(1 - me, run));
    }
}

pub fn model() {
    loom::model(|| {
        let ranks = Arc::new([Rank::new(), Rank::new()]);
        let others = ranks.clone();
        let other = thread::spawn(move || runs(&others, 1));
        runs(&ranks, 0);
        other.join().unwrap();
    });
}
