//! K5: worlds of device ranks that come and go, also those that fail, leave nothing. A program of its own, because it counts what the whole
//! process has.

mod common;

use std::time::Duration;

use common::Player;
use dranks::{Error, Options};
use libloading::Library;
use libmp::{Device, World};

/// Descriptors and mappings.
fn counts() -> [usize; 2] {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    [descriptors, std::fs::read_to_string("/proc/self/maps").unwrap().lines().count()]
}

/// Bytes of a GPU that nobody has; of the host that is not asked.
fn free_bytes(device: &Device) -> usize {
    type MemGetInfo = unsafe extern "C" fn(*mut usize, *mut usize) -> i32;
    let Some(gpu) = device.as_cuda() else { return 0 };
    gpu.bind().unwrap();
    let (mut free, mut all) = (0, 0);
    // SAFETY: the driver is loaded already; the function's type; the device's context is current.
    let error = unsafe {
        let driver = Library::new("libcuda.so.1").unwrap();
        driver.get::<MemGetInfo>(b"cuMemGetInfo_v2").unwrap()(&mut free, &mut all)
    };
    assert_eq!(error, 0, "cuMemGetInfo");
    free
}

/// Of 60 worlds, each of some MiB, half of which fail.
fn nothing_is_left(device: &Device) {
    // Less than a tenth of what those worlds have.
    const NOISE: usize = 32 << 20;
    let world = World::threads(1).unwrap().remove(0);
    let options = Options { spill: 1 << 16, ..Options::new(3) };
    let player = || Player::new(&world, device, &options, 1, 1 << 17).unwrap();
    let round = || {
        player().pass("ranks_barriers", 1);
        let (ended, _) = player().play_with("ranks_refusals", 64, 1, 0);
        assert!(matches!(ended, Err(Error::Failed(_))), "{ended:?}");
    };
    // What is kept for the next one is kept once.
    (0..5).for_each(|_| round());
    let before = (counts(), free_bytes(device));
    (0..30).for_each(|_| round());
    // Streams end in threads of their own.
    let mut after = (counts(), free_bytes(device));
    for _ in 0..2000 {
        let [descriptors, mappings] = before.0;
        if after.0[0] <= descriptors && after.0[1] <= mappings + 8 && after.1 + NOISE >= before.1 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
        after = (counts(), free_bytes(device));
    }
    panic!(
        "descriptors and mappings, free bytes of the GPU: {before:?} before 60 worlds, {after:?} after them"
    );
}

#[test]
fn worlds_that_end_leave_nothing() {
    nothing_is_left(&Device::Host);
}

mod gpu {
    use super::*;

    #[test]
    #[ignore = "needs a GPU"]
    fn worlds_on_a_gpu_leave_nothing() {
        nothing_is_left(&common::gpu(0));
    }
}
