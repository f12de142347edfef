//! K5: worlds of device ranks that come and go, also those that fail, leave nothing. A program of its own, because it counts what the whole
//! process has.

mod common;

use std::time::Duration;

use common::Player;
use dranks::{Error, Options};
use libmp::{Device, World};

/// Descriptors and mappings.
fn counts() -> [usize; 2] {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    [descriptors, std::fs::read_to_string("/proc/self/maps").unwrap().lines().count()]
}

fn nothing_is_left(device: &Device) {
    let world = World::threads(1).unwrap().remove(0);
    let player = || Player::new(&world, device, &Options::new(3), 1, 64).unwrap();
    let round = || {
        player().pass("ranks_puts", 1);
        let (ended, _) = player().play("ranks_refusals", 1, 0);
        assert!(matches!(ended, Err(Error::Failed(_))), "{ended:?}");
    };
    // What is kept for the next one is kept once.
    (0..5).for_each(|_| round());
    let before = counts();
    (0..30).for_each(|_| round());
    // Streams end in threads of their own.
    let mut after = counts();
    for _ in 0..2000 {
        if after[0] <= before[0] && after[1] <= before[1] + 8 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
        after = counts();
    }
    panic!("descriptors and mappings: {before:?} before 60 worlds, {after:?} after them");
}

#[test]
fn worlds_that_end_leave_nothing() {
    nothing_is_left(&Device::Host);
}

#[test]
#[ignore = "needs a GPU"]
fn worlds_on_a_gpu_leave_nothing() {
    nothing_is_left(&Device::cuda(0).unwrap());
}
