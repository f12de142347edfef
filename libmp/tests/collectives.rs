//! Barriers and all-reduces that the host, streams and kernels start, on every path between ranks: the device headers as OS threads
//! on the host, and the same kernels on a GPU.

mod common;
#[path = "common/devices.rs"]
#[macro_use]
mod devices;
#[path = "common/kernels.rs"]
mod kernels;

use std::mem::offset_of;
use std::time::Duration;

use common::{PASSES, config, each_path, on_threads, say, start_mprun};
use kernels::{Kernels, Value, address};
use libmp::gdsync::Buffer;
use libmp::{
    Collective, Deadline, Device, Error, Loss, Number, Path, ReduceOp, Region, Stream, Window,
    World,
};
use mp_kernels::{NicPart, WaitStatus, WindowPart};

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(300))
}

/// How a call of a kernel may end when a peer is lost.
const ENDS: [u64; 2] = [WaitStatus::Aborted as u64, WaitStatus::PathFailed as u64];

/// What `test_collectives` takes.
struct Collectives {
    stream: Stream,
    barrier: Collective,
    reduce: Collective,
    window: Window<u64>,
    scratch: Region<u64>,
    results: Buffer<u64>,
    count: usize,
}

impl Collectives {
    fn new(world: &World, kernels: &Kernels, count: usize) -> Collectives {
        let device = &kernels.device;
        let share: Region<u64> = world.alloc(device, 1).unwrap();
        let collectives = Collectives {
            stream: world.stream(device).unwrap(),
            barrier: world.prepare_collective(device, 0).unwrap(),
            reduce: world.prepare_collective(device, 8 * count).unwrap(),
            window: world.window(&share, 0).unwrap(),
            scratch: world.alloc(device, count + 1).unwrap(),
            results: kernels.results(),
            count,
        };
        world.barrier().unwrap();
        collectives
    }

    fn launch(&self, kernels: &Kernels, rounds: u64, by: (u32, u32)) {
        self.launch_with(kernels, self.barrier.handle(), rounds, by);
    }

    fn launch_with(
        &self,
        kernels: &Kernels,
        barrier: mp_kernels::Collective,
        rounds: u64,
        (flavour, threads): (u32, u32),
    ) {
        let reduce = self.reduce.handle();
        let args = vec![
            Value::Collective(barrier),
            Value::Collective(reduce),
            Value::Window(self.window.handle().unwrap()),
            Value::Word(address(self.scratch.buffer())),
            Value::Word(self.count as u64),
            Value::Word(rounds),
            Value::Half(flavour),
            Value::Word(address(&self.results)),
        ];
        kernels.launch(&self.stream, "test_collectives", (1, threads), args);
    }

    /// Words that were wrong, rounds done, the status of what failed.
    fn results(&self) -> [u64; 3] {
        self.results.to_vec().unwrap().try_into().unwrap()
    }
}

fn kernels_meet_and_combine_in_rank_order(device: &Device) {
    let kernels = Kernels::of(device);
    // Thread, warp and block; in one request, and in several.
    for (ranks, by, count, rounds) in [
        (1, (0, 1), 5, 10),
        (2, (0, 1), 1, 150),
        (2, (1, 32), 100, 2),
        (3, (0, 1), 100, 25),
        (4, (2, 4), 65, 8),
        (5, (0, 1), 3, 20),
    ] {
        on_threads(World::threads_with_config(ranks, &config()).unwrap(), |world| {
            let collectives = Collectives::new(&world, &kernels, count);
            // The counts go on from launch to launch.
            for _ in 0..2 {
                collectives.results.write(&[0; 3]).unwrap();
                collectives.launch(&kernels, rounds, by);
                world.synchronize(&collectives.stream, soon()).unwrap();
                assert_eq!(collectives.results(), [0, rounds, 0], "{ranks} ranks, {count} words");
            }
            let far = !matches!(world.path((world.rank() + 1) % ranks), Ok(Path::Direct));
            let handle = collectives.barrier.handle();
            assert_eq!(handle.nic != 0, far);
            world.barrier().unwrap();
            drop(collectives);
            world.finish().unwrap();
        });
    }
}

fn a_rank_that_does_not_come_ends_the_wait_of_the_others_in_time(device: &Device) {
    let kernels = Kernels::of(device);
    on_threads(World::threads_with_config(2, &config()).unwrap(), |world| {
        let collectives = Collectives::new(&world, &kernels, 1);
        if world.rank() == 0 {
            let mut barrier = collectives.barrier.handle();
            barrier.timeout_ns = 1_000_000;
            collectives.launch_with(&kernels, barrier, 1, (0, 1));
            let error = world.synchronize(&collectives.stream, soon()).unwrap_err();
            // The report comes before the kernel's end.
            let idle = || collectives.stream.is_idle().unwrap().then_some(());
            assert!(soon().poll(idle).is_some(), "the kernel still runs");
            assert!(matches!(error, Error::Late { .. }), "{error}");
            assert!(error.to_string().contains("collective"), "{error}");
            assert_eq!(collectives.results()[1..], [0, WaitStatus::TimedOut as u64]);
        }
        // The other has waited until now; it may hear of the failure.
        let _ = world.barrier();
    });
}

fn a_rank_that_leaves_ends_the_kernels_of_the_others_with_a_status(device: &Device) {
    let kernels = Kernels::of(device);
    for ranks in [2, 3] {
        on_threads(World::threads_with_config(ranks, &config()).unwrap(), |world| {
            let collectives = Collectives::new(&world, &kernels, 70);
            let leaves = world.rank() == 1;
            collectives.launch(&kernels, if leaves { 10 } else { u64::MAX }, (0, 1));
            let ended = world.synchronize(&collectives.stream, soon());
            if leaves {
                ended.unwrap();
                return;
            }
            let error = ended.unwrap_err();
            assert!(matches!(error, Error::PeerLost { rank: 1, .. }), "{error}");
            let idle = soon().poll(|| collectives.stream.is_idle().unwrap().then_some(()));
            assert!(idle.is_some(), "the kernel still waits");
            let [_, rounds, status] = collectives.results();
            // The last signals of who leaves may be under way.
            assert!((9..=10).contains(&rounds), "{rounds}");
            assert!(ENDS.contains(&status), "{status}");
        });
    }
}

/// What element `i` of rank `rank` is in a round: sums of it depend on their order.
fn fraction(rank: usize, round: u64, i: usize) -> f64 {
    1.0 / (1 + 7 * rank + 3 * round as usize + i) as f64
}

/// The host, a stream and a kernel in turn, each rank in another way than its neighbours.
fn triggers_mix(device: &Device) {
    let kernels = Kernels::of(device);
    let rounds = if device.as_cuda().is_some() { 200 } else { 24 };
    for (ranks, len) in [(2, 1), (3, 70)] {
        on_threads(World::threads_with_config(ranks, &config()).unwrap(), |world| {
            let me = world.rank();
            let stream = world.stream(device).unwrap();
            let barrier = world.prepare_collective(device, 0).unwrap();
            let reduce = world.prepare_collective(device, 8 * len).unwrap();
            let values: Region<f64> = world.alloc(device, len).unwrap();
            let results = kernels.results();
            // Making memory may wait for kernels, which must not wait for this rank yet.
            world.barrier().unwrap();
            for round in 0..rounds {
                let of = |rank| (0..len).map(move |i| fraction(rank, round, i));
                values.write(&of(me).collect::<Vec<_>>()).unwrap();
                match (round as usize + me) % 4 {
                    0 => {
                        barrier.barrier().start().unwrap();
                        barrier.wait(soon()).unwrap();
                        reduce.all_reduce(ReduceOp::Sum, &values, &values).start().unwrap();
                        reduce.wait(soon()).unwrap();
                        assert!(reduce.test().unwrap());
                    }
                    1 => {
                        barrier.barrier().start_on(&stream).unwrap();
                        reduce
                            .all_reduce(ReduceOp::Sum, &values, &values)
                            .start_on(&stream)
                            .unwrap();
                        world.synchronize(&stream, soon()).unwrap();
                    }
                    2 => {
                        barrier.barrier().start_on(&stream).unwrap();
                        world.synchronize(&stream, soon()).unwrap();
                        let mut here: Vec<f64> = of(me).collect();
                        reduce.all_reduce_slice(ReduceOp::Sum, &mut here).unwrap();
                        values.write(&here).unwrap();
                    }
                    _ => {
                        results.write(&[0; 3]).unwrap();
                        let args = vec![
                            Value::Collective(barrier.handle()),
                            Value::Collective(reduce.handle()),
                            Value::Word(address(values.buffer())),
                            Value::Word(len as u64),
                            Value::Word(address(&results)),
                        ];
                        kernels.launch(&stream, "test_reduce", (1, 3), args);
                        world.synchronize(&stream, soon()).unwrap();
                        assert_eq!(results.to_vec().unwrap(), [0; 3]);
                    }
                }
                let sum =
                    |sum: Vec<f64>, rank| sum.iter().zip(of(rank)).map(|(a, b)| a + b).collect();
                let expected: Vec<f64> = (1..ranks).fold(of(0).collect(), sum);
                assert_eq!(values.to_vec().unwrap(), expected, "round {round} on rank {me}");
                // Values of the host, and on the next rank a region.
                let root = round as usize % ranks;
                let mut told = [fraction(me, round, 1)];
                if me % 2 == 0 {
                    reduce.broadcast_slice(root, &mut told).unwrap();
                } else {
                    let region = values.slice(0..1).unwrap();
                    region.write(&told).unwrap();
                    reduce.broadcast(root, &region).run().unwrap();
                    told = [region.to_vec().unwrap()[0]];
                }
                assert_eq!(told, [fraction(root, round, 1)], "round {round} on rank {me}");
                assert!(reduce.broadcast_slice(ranks, &mut told).is_err(), "there is no such rank");
                // As many of each rank as there is room for, and a sum for one that the others do not wait for.
                let parts = |rank: usize| (0..len).map(move |i| fraction(rank, round, i));
                let mut all = vec![0.0; ranks * len];
                all[me * len..(me + 1) * len].copy_from_slice(&parts(me).collect::<Vec<_>>());
                reduce.all_gather_slice(&mut all).unwrap();
                assert_eq!(all, (0..ranks).flat_map(parts).collect::<Vec<_>>(), "rank {me}");
                let mut sum = [me as u64 + round];
                reduce.reduce_slice(ReduceOp::Sum, root, &mut sum).unwrap();
                let of_all = (0..ranks).map(|rank| rank as u64 + round).sum();
                let expected = if me == root { of_all } else { me as u64 + round };
                assert_eq!(sum, [expected], "round {round} on rank {me}");
                let uneven = reduce.all_gather_slice(&mut [0_u8; 1]);
                assert!(uneven.is_err() || ranks == 1, "a value for {ranks} ranks");
                assert!(reduce.reduce_slice(ReduceOp::Sum, ranks, &mut sum).is_err());
                let bits = reduce.reduce_slice(ReduceOp::Xor, root, &mut [1.0]);
                assert!(bits.is_err(), "of fractions");
            }
            world.barrier().unwrap();
            drop((barrier, reduce));
            world.finish().unwrap();
        });
    }
}

/// Every type and operation, by the host and on a stream, is what the control plane makes of it.
fn every_number_is_combined_as_by_the_control_plane(device: &Device) {
    fn of<T: Number + std::fmt::Debug>(world: &World, device: &Device, mine: [T; 3]) {
        let stream = world.stream(device).unwrap();
        let reduce = world.prepare_collective(device, 24).unwrap();
        let values: Region<T> = world.alloc(device, 3).unwrap();
        for op in [ReduceOp::Sum, ReduceOp::Min, ReduceOp::Max] {
            let mut expected = mine;
            world.all_reduce(op, &mut expected).unwrap();
            let expected = bytemuck::cast_slice::<T, u8>(&expected).to_vec();
            let mut here = mine;
            reduce.all_reduce_slice(op, &mut here).unwrap();
            assert_eq!(bytemuck::cast_slice::<T, u8>(&here), expected, "{op} by the host");
            values.write(&mine).unwrap();
            reduce.all_reduce(op, &values, &values).start_on(&stream).unwrap();
            world.synchronize(&stream, soon()).unwrap();
            let there = values.to_vec().unwrap();
            assert_eq!(bytemuck::cast_slice::<T, u8>(&there), expected, "{op} on a stream");
        }
        world.barrier().unwrap();
    }
    on_threads(World::threads_with_config(2, &config()).unwrap(), |world| {
        let first = world.rank() == 0;
        let (one, other) = if first { (0.0, -0.0) } else { (-0.0, 1e300) };
        of(&world, device, [one, other, if first { 0.1 } else { 3.0 }]);
        let (one, other) = if first { (0.0f32, 7.5) } else { (-0.0, -7.5) };
        of(&world, device, [one, other, f32::MAX]);
        of(&world, device, if first { [u64::MAX, 1, 1 << 40] } else { [2, 1, 3] });
        of(&world, device, if first { [i64::MIN, -5, 7] } else { [-1, 5, -7] });
        of(&world, device, if first { [u32::MAX, 1, 9] } else { [2, 1 << 31, 9] });
        of(&world, device, if first { [i32::MIN, -5, 7] } else { [-1, 5, -7] });
        world.finish().unwrap();
    });
}

fn a_captured_collective_is_replayed(device: &Device) {
    on_threads(World::threads_with_config(3, &config()).unwrap(), |world| {
        let stream = world.stream(device).unwrap();
        let barrier = world.prepare_collective(device, 0).unwrap();
        let reduce = world.prepare_collective(device, 8 * 500).unwrap();
        let values: Region<f64> = world.alloc(device, 500).unwrap();
        let of = |rank: usize, i: usize| 0.1 * i as f64 + rank as f64;
        let mine: Vec<f64> = (0..500).map(|i| of(world.rank(), i)).collect();
        values.write(&mine).unwrap();
        stream.begin_capture().unwrap();
        barrier.barrier().start_on(&stream).unwrap();
        reduce.all_reduce(ReduceOp::Sum, &values, &values).start_on(&stream).unwrap();
        reduce.all_reduce(ReduceOp::Max, &values, &values).start_on(&stream).unwrap();
        let graph = stream.end_capture().unwrap();
        for _ in 0..5 {
            stream.launch_graph(&graph).unwrap();
        }
        world.synchronize(&stream, soon()).unwrap();
        let three_times = |sum: f64| (1..5).fold(sum, |sum, _| sum + sum + sum);
        let sum = |i| three_times(of(0, i) + of(1, i) + of(2, i));
        assert_eq!(values.to_vec().unwrap(), (0..500).map(sum).collect::<Vec<_>>());
        world.barrier().unwrap();
        drop((barrier, reduce, graph));
        world.finish().unwrap();
    });
}

fn a_start_is_complete_when_all_ranks_have_come_and_not_before(device: &Device) {
    on_threads(World::threads_with_config(2, &config()).unwrap(), |world| {
        let barrier = world.prepare_collective(device, 0).unwrap();
        assert!(barrier.test().unwrap(), "nothing was started");
        world.barrier().unwrap();
        if world.rank() == 0 {
            barrier.barrier().start().unwrap();
            assert!(!barrier.test().unwrap());
            let late = barrier.wait(Deadline::after(Duration::from_millis(20))).unwrap_err();
            assert!(matches!(late, Error::Late { .. }), "{late}");
            assert!(matches!(barrier.barrier().start(), Err(Error::Started { .. })));
            world.barrier().unwrap();
        } else {
            world.barrier().unwrap();
            barrier.barrier().start().unwrap();
        }
        barrier.wait(soon()).unwrap();
        assert!(barrier.test().unwrap());
        world.barrier().unwrap();
        drop(barrier);
        world.finish().unwrap();
    });
}

/// A rank process: runs rounds without end until it is killed or another is.
#[test]
#[ignore = "is a rank of the other tests"]
fn a_rank() {
    let world = World::init().unwrap();
    let kernels = Kernels::of(&Device::Host);
    let collectives = Collectives::new(&world, &kernels, 70);
    collectives.launch(&kernels, 3, (0, 1));
    world.synchronize(&collectives.stream, soon()).unwrap();
    collectives.launch(&kernels, u64::MAX, (0, 1));
    say("running");
    let error = world.synchronize(&collectives.stream, soon()).unwrap_err();
    let Error::PeerLost { rank, .. } = &error else { panic!("{error}") };
    let idle = soon().poll(|| collectives.stream.is_idle().unwrap().then_some(()));
    assert!(idle.is_some(), "the kernel still waits");
    assert!(ENDS.contains(&collectives.results()[2]), "{:?}", collectives.results());
    say(format!("lost {rank}"));
}

tests_of_devices! {
    crate::common::each_path;
    "needs a GPU and TEST_KERNELS":
    kernels_meet_and_combine_in_rank_order;
    a_rank_that_does_not_come_ends_the_wait_of_the_others_in_time;
    a_rank_that_leaves_ends_the_kernels_of_the_others_with_a_status;
    triggers_mix;
    "needs a GPU":
    every_number_is_combined_as_by_the_control_plane;
    a_captured_collective_is_replayed;
    a_start_is_complete_when_all_ranks_have_come_and_not_before;
}

mod host {
    use super::*;

    on_the_host!();

    #[test]
    fn ranks_that_are_late_in_turn_never_see_a_vector_of_another_run() {
        for (path, runs) in [("auto", 20_000u64), ("nic", 300)] {
            let mut config = config();
            config.path = path.parse().unwrap();
            on_threads(World::threads_with_config(3, &config).unwrap(), |world| {
                let me = world.rank() as u64;
                let reduce = world.prepare_collective(&Device::Host, 8 * 9).unwrap();
                for run in 0..runs {
                    // One in turn sleeps, so that the others come to the next run as early as they can.
                    if run % 512 == 11 * me {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    let len = 1 + (run % 9) as usize;
                    let mut values: Vec<u64> = (0..9).map(|at| run << 8 | at << 4 | me).collect();
                    reduce.all_reduce_slice(ReduceOp::Sum, &mut values[..len]).unwrap();
                    for (at, &value) in (0..).zip(&values[..len]) {
                        assert_eq!(value, 3 * (run << 8 | at << 4) + 3, "{path}, run {run}");
                    }
                }
                world.barrier().unwrap();
                drop(reduce);
                world.finish().unwrap();
            });
        }
    }

    #[test]
    fn a_rank_that_does_not_come_is_named_at_the_deadline() {
        each_path(|| {
            on_threads(World::threads_with_config(2, &config()).unwrap(), |world| {
                let hasty = world.with_timeout(PASSES);
                let reduce = hasty.prepare_collective(&Device::Host, 8).unwrap();
                let barrier = hasty.prepare_collective(&Device::Host, 0).unwrap();
                world.barrier().unwrap();
                if world.rank() == 0 {
                    let error = reduce.all_reduce_slice(ReduceOp::Sum, &mut [1]).unwrap_err();
                    assert!(matches!(error, Error::Late { rank: 1, .. }), "{error}");
                    // On a stream: when it is synchronised.
                    let stream = world.stream(&Device::Host).unwrap();
                    barrier.barrier().start_on(&stream).unwrap();
                    let error = world.synchronize(&stream, soon()).unwrap_err();
                    assert!(matches!(error, Error::Late { .. }), "{error}");
                    assert!(error.to_string().contains("collective"), "{error}");
                }
                let _ = world.barrier();
            });
        });
    }

    #[test]
    fn more_values_than_there_is_room_for_are_refused_by_every_trigger() {
        on_threads(World::threads_with_config(1, &config()).unwrap(), |world| {
            let reduce = world.prepare_collective(&Device::Host, 8 * 5).unwrap();
            let stream = world.stream(&Device::Host).unwrap();
            let six: Region<f64> = world.alloc(&Device::Host, 6).unwrap();
            for refused in [
                reduce.all_reduce_slice(ReduceOp::Sum, &mut [0.0; 6]),
                reduce.all_reduce(ReduceOp::Sum, &six, &six).start(),
                reduce.all_reduce(ReduceOp::Sum, &six, &six).start_on(&stream),
            ] {
                let error = refused.unwrap_err().to_string();
                assert!(
                    error.contains("all-reduce: blocks of 48 bytes for one prepared for 40"),
                    "{error}"
                );
            }
        });
    }

    #[test]
    fn a_rank_that_is_killed_ends_the_kernels_of_the_others_with_its_number() {
        let shim = kernels::shim().to_str().unwrap();
        let long = Duration::from_secs(60);
        for path in common::paths() {
            let more = [("TEST_SHIM", shim), ("MP_PATH", path)];
            let mut ranks = start_mprun("barriers", 3, &more);
            for rank in &ranks {
                assert_eq!(rank.next(long).as_deref(), Some("running"), "MP_PATH={path}");
            }
            ranks[2].signal(libc::SIGKILL);
            for rank in &mut ranks[..2] {
                assert_eq!(rank.next(long).as_deref(), Some("lost 2"), "MP_PATH={path}");
                assert_eq!(rank.end(long), Some(0));
            }
        }
    }

    /// A request of a kernel that the peer's NIC refuses.
    #[test]
    fn a_request_that_fails_ends_the_barrier_with_the_reason() {
        let kernels = Kernels::of(&Device::Host);
        for path in common::nic_paths() {
            let mut config = config();
            config.path = path.parse().unwrap();
            on_threads(World::threads_with_config(2, &config).unwrap(), |world| {
                let collectives = Collectives::new(&world, &kernels, 1);
                let handle = collectives.barrier.handle();
                if handle.nic != 0 && world.rank() == 0 {
                    let window = handle.nic as *const mp_kernels::Window;
                    // SAFETY: the window of the barrier, in host memory.
                    let part = unsafe { (*window).parts } as usize + size_of::<WindowPart>();
                    // SAFETY: the row of rank 1 in the table of the barrier's window, and its `NicPart`, which nothing uses yet:
                    // its signals go nowhere now.
                    unsafe {
                        let nic = (part + offset_of!(WindowPart, nic)) as *const u64;
                        let key = nic.read() as usize + offset_of!(NicPart, signals_key);
                        (key as *mut u32).write(0xdead_0001);
                    }
                }
                collectives.launch(&kernels, 5, (0, 1));
                let error = world.synchronize(&collectives.stream, soon()).unwrap_err();
                let idle = soon().poll(|| collectives.stream.is_idle().unwrap().then_some(()));
                assert!(idle.is_some(), "the kernel still waits");
                let Error::PeerLost { how: Loss::Path { detail }, .. } = &error else {
                    panic!("{path}: {error}")
                };
                assert!(detail.contains("remote access"), "{detail}");
                if world.rank() == 0 {
                    // Its own look at the queue, or the end of the world that the host has made of it, whichever came first.
                    let [_, rounds, status] = collectives.results();
                    assert_eq!(rounds, 0);
                    assert!(ENDS.contains(&status), "{status}");
                }
            });
        }
    }

    #[test]
    fn rooms_that_differ_are_refused_on_every_rank() {
        each_path(|| {
            on_threads(World::threads_with_config(3, &config()).unwrap(), |world| {
                let bytes = 40 + 8 * (world.rank() / 2);
                let made = world.prepare_collective(&Device::Host, bytes);
                let error = made.unwrap_err().to_string();
                let mine = format!("room for {bytes} bytes here, for ");
                assert!(error.contains(&mine) && error.contains("on rank"), "{error}");
                // A rank that left would end the world of who has not heard yet.
                world.finish().unwrap();
            });
        });
    }

    #[test]
    fn what_cannot_be_done_is_refused_by_the_rank_that_asks() {
        on_threads(World::threads_with_config(2, &config()).unwrap(), |world| {
            let all = world.prepare_collective(&Device::Host, 40).unwrap();
            let of = |len| world.alloc::<f64>(&Device::Host, len).unwrap();
            let (two, three, one) = (of(2), of(3), 1 - world.rank());
            let refused = |error: Error, words: &str| {
                let error = error.to_string();
                assert!(error.contains(words), "{error}");
            };
            let short = all.all_gather(&two, &three).start().unwrap_err();
            refused(short, "all-gather: takes 32 bytes of a region of 24");
            let root = all.reduce(ReduceOp::Sum, 2, &two, &two).start().unwrap_err();
            assert!(matches!(root, Error::NoSuchRank { rank: 2, size: 2, .. }), "{root}");
            let bits = all.all_reduce(ReduceOp::And, &two, &two).start().unwrap_err();
            refused(bits, "`and` is of integers, not of f64");
            let bits = all.all_reduce_slice(ReduceOp::Xor, &mut [1.0]).unwrap_err();
            refused(bits, "`xor` is of integers, not of f64");
            let ranges = all.all_to_all_v(&two, &[], &three, &[0..1, 1..2]).start().unwrap_err();
            refused(ranges, "0 ranges given for 2 ranks");
            let (mut given, mut taken) = ([0..1, 0..1], [0..1, 0..1]);
            given[world.rank()] = 0..2;
            let own = all.all_to_all_v(&two, &given, &three, &taken).start().unwrap_err();
            refused(own, "gives itself 2 elements and takes 1 from itself");
            given[world.rank()] = 0..1;
            taken[one] = 2..4;
            let outside = all.all_to_all_v(&two, &given, &three, &taken).start().unwrap_err();
            refused(outside, "all-to-all-v: takes 32 bytes of a region of 24");
            // None of it has happened.
            all.barrier().run().unwrap();
            world.finish().unwrap();
        });
    }
}

/// With `MP_PATH`, through the NIC.
mod gpu {
    on_a_gpu!();
}
