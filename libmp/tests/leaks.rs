//! After `finish` nothing is left: no thread, no descriptor. One test, because it counts those of the whole process.

mod common;

use std::time::Duration;

use common::{on_every_path, on_threads, over_tcp};
use libmp::{Deadline, Device, World};

fn count(folder: &str) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

/// Descriptors and threads, once threads that have been joined are gone from the table, too: as expected, or the same for
/// a while.
fn settled(expected: Option<(usize, usize)>) -> (usize, usize) {
    let now = || (count("/proc/self/fd"), count("/proc/self/task"));
    let (mut last, mut same) = (now(), 0);
    for _ in 0..2000 {
        if expected == Some(last) || expected.is_none() && same == 50 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
        same = if now() == last { same + 1 } else { 0 };
        last = now();
    }
    last
}

/// What the descriptors are.
fn descriptors() -> String {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let links = links.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.map(|link| link.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Messages, a window and a stream: memory, mappings and threads that must go with the world.
fn messages(world: &World) {
    let region = world.alloc::<u8>(&Device::Host, 2 << 20).unwrap();
    let window = world.window(&region, 2).unwrap();
    let stream = world.stream(&Device::Host).unwrap();
    let right = world.peer((world.rank() + 1) % world.size()).unwrap();
    let left = world.peer((world.rank() + world.size() - 1) % world.size()).unwrap();
    let send = right.send(&region.slice(0..1000).unwrap(), 1).prepare().unwrap();
    let recv = left.recv(&region.slice(1000..2000).unwrap(), 1).prepare().unwrap();
    recv.start_on(&stream).unwrap();
    send.start().unwrap();
    let soon = Deadline::after(Duration::from_secs(20));
    libmp::wait_all(&[&send, &recv], soon).unwrap();
    window.put(0, 0, &region.slice(0..0).unwrap()).unwrap();
}

fn worlds(fail: bool) {
    let end = |world: World| {
        let half = world.split(Some(world.rank() as u64 % 2), 0).unwrap().unwrap();
        messages(&world);
        world.barrier().unwrap();
        if fail {
            if world.rank() == 1 {
                world.abort("a failure must not leak either");
            }
            assert!(world.barrier().is_err());
            drop(world);
        } else {
            world.finish().unwrap();
        }
        drop(half);
    };
    for worlds in on_every_path(4) {
        on_threads(worlds, end);
    }
    let path = if fail { "nic-tcp" } else { "auto" };
    over_tcp(4, &[("MP_PATH", path)], |_, _| (), |_, world| end(world.unwrap()));
    // A start that fails.
    over_tcp(
        2,
        &[],
        |rank, config| config.build.protocol += rank as u32,
        |_, world| assert!(world.is_err()),
    );
}

#[test]
fn nothing_is_left_after_worlds_that_finished_or_failed() {
    worlds(false);
    let before = settled(None);
    for round in 0..5 {
        worlds(round % 2 == 1);
        let after = settled(Some(before));
        assert_eq!(after, before, "descriptors and threads after round {round}: {}", descriptors());
    }
}
