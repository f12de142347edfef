//! Barriers and all-reduces that kernels call by themselves, on every path between ranks: the device headers as OS threads on the
//! host, and the same kernels on a GPU.

mod common;
#[path = "common/kernels.rs"]
mod kernels;

use std::mem::offset_of;
use std::time::Duration;

use common::{config, each_path, on_threads, say, start_mprun};
use kernels::{Kernels, Value, address};
use libmp::gdsync::Buffer;
use libmp::{
    CollectiveHandle, Deadline, Device, DeviceAllReduce, DeviceBarrier, Error, Loss, Path, Region,
    Stream, Window, World,
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
    barrier: DeviceBarrier,
    reduce: DeviceAllReduce<f64>,
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
            barrier: world.prepare_device_barrier(device).unwrap(),
            reduce: world.prepare_device_all_reduce(device, count).unwrap(),
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
        barrier: CollectiveHandle,
        rounds: u64,
        (flavour, threads): (u32, u32),
    ) {
        let reduce = self.reduce.handle();
        let name = match barrier {
            CollectiveHandle::Mapped(_) => "test_collectives",
            CollectiveHandle::Nic(_) => "test_nic_collectives",
        };
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
        kernels.launch(&self.stream, name, (1, threads), args);
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
            assert_eq!(matches!(handle, CollectiveHandle::Nic(_)), far);
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
            match &mut barrier {
                CollectiveHandle::Mapped(handle) => handle.timeout_ns = 1_000_000,
                CollectiveHandle::Nic(handle) => handle.window.timeout_ns = 1_000_000,
            }
            collectives.launch_with(&kernels, barrier, 1, (0, 1));
            let error = world.synchronize(&collectives.stream, soon()).unwrap_err();
            assert!(collectives.stream.is_idle().unwrap());
            assert!(matches!(error, Error::Late { .. }), "{error}");
            assert!(error.to_string().contains("device barrier"), "{error}");
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

mod host {
    use super::*;

    fn each(test: fn(&Device)) {
        each_path(|| test(&Device::Host));
    }

    #[test]
    fn kernels_meet_and_combine_in_rank_order() {
        each(super::kernels_meet_and_combine_in_rank_order);
    }

    #[test]
    fn a_rank_that_does_not_come_ends_the_wait_of_the_others_in_time() {
        each(super::a_rank_that_does_not_come_ends_the_wait_of_the_others_in_time);
    }

    #[test]
    fn a_rank_that_leaves_ends_the_kernels_of_the_others_with_a_status() {
        each(super::a_rank_that_leaves_ends_the_kernels_of_the_others_with_a_status);
    }

    #[test]
    fn a_rank_that_is_killed_ends_the_kernels_of_the_others_with_its_number() {
        let shim = kernels::shim().to_str().unwrap();
        let long = Duration::from_secs(60);
        for path in common::PATHS {
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
        for path in ["nic", "nic-tcp"] {
            let mut config = config();
            config.path = path.parse().unwrap();
            on_threads(World::threads_with_config(2, &config).unwrap(), |world| {
                let collectives = Collectives::new(&world, &kernels, 1);
                if let (CollectiveHandle::Nic(handle), 0) =
                    (collectives.barrier.handle(), world.rank())
                {
                    let part = handle.window.parts as usize + size_of::<WindowPart>();
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
    fn lengths_that_differ_are_refused_on_every_rank() {
        each_path(|| {
            on_threads(World::threads_with_config(3, &config()).unwrap(), |world| {
                let len = 5 + world.rank() / 2;
                let made = world.prepare_device_all_reduce::<f64>(&Device::Host, len);
                let error = made.unwrap_err().to_string();
                assert!(error.contains("elements here") && error.contains("on rank"), "{error}");
                // A rank that left would end the world of who has not heard yet.
                world.finish().unwrap();
            });
        });
    }
}

/// With `MP_PATH`, through the NIC.
mod gpu {
    use super::*;

    fn gpu() -> Device {
        Device::cuda(0).unwrap()
    }

    #[test]
    #[ignore = "needs a GPU and TEST_KERNELS"]
    fn kernels_meet_and_combine_in_rank_order() {
        super::kernels_meet_and_combine_in_rank_order(&gpu());
    }

    #[test]
    #[ignore = "needs a GPU and TEST_KERNELS"]
    fn a_rank_that_does_not_come_ends_the_wait_of_the_others_in_time() {
        super::a_rank_that_does_not_come_ends_the_wait_of_the_others_in_time(&gpu());
    }

    #[test]
    #[ignore = "needs a GPU and TEST_KERNELS"]
    fn a_rank_that_leaves_ends_the_kernels_of_the_others_with_a_status() {
        super::a_rank_that_leaves_ends_the_kernels_of_the_others_with_a_status(&gpu());
    }
}
