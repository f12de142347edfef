//! Memory: none is allocated inside a solve, and the levels take what the description says.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use hpgmg::backend::{Backend, Vector};
use hpgmg::cycle::{Solved, solve};
use hpgmg::decomposition::hierarchy;
use hpgmg::options::{Config, Cycle};
use hpgmg::setup;

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, SeqCst);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

const SOLVES: usize = 20;

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a_solve_allocates_nothing_and_the_levels_take_what_the_description_says() {
    let config = Config { cycle: Cycle::Fv, boxes_per_rank: 4, ..Config::default() };
    let counts = common::on_ranks(&config, 2, 2, |cpu, _| {
        let mut out = Solved::empty();
        let mut counts = Vec::with_capacity(SOLVES);
        for _ in 0..SOLVES {
            cpu.zero(0, Vector::U);
            // A reduction before and after, so that no rank is elsewhere while the other counts.
            cpu.norm(0, Vector::U)?;
            let before = ALLOCATIONS.load(SeqCst);
            solve(cpu, 0, Cycle::Fv, &mut out)?;
            cpu.norm(0, Vector::U)?;
            counts.push(ALLOCATIONS.load(SeqCst) - before);
        }
        Ok(counts)
    });
    // The list of the starts that wait for a peer doubles until it holds all that ever wait at once: whichever solve that is in.
    assert!(counts.iter().sum::<usize>() < SOLVES / 2, "{counts:?}");

    for (log2, boxes) in [(5, 8), (6, 8), (7, 8), (8, 1)] {
        let config = Config { box_dim: 1 << log2, boxes_per_rank: boxes, ..Config::default() };
        let shapes = hierarchy(&config, 1).unwrap();
        let found = setup::memory(&config, &shapes, |s| s.boxes());
        let described: usize = shapes
            .iter()
            .map(|s| {
                let side = s.box_dim + 4;
                let vectors = if s.dim == 2 { 17 } else { 9 };
                s.boxes() * side.next_multiple_of(4) * side * side * vectors * 8
            })
            .sum();
        assert!(found as f64 <= 1.1 * described as f64, "{found} bytes, described {described}");
    }
}
