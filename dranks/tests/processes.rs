//! Devices that are processes: their ranks reach each other through shared memory, on GPUs through CUDA IPC; and the death of one.

#[path = "common/mod.rs"]
mod play;
#[path = "../../libmp/tests/common/mod.rs"]
mod process;

use std::time::{Duration, Instant};

use dranks::{Error, Options};
use libmp::{Device, Error as WorldError, World};
use play::Player;
use process::{Rank, say, start_mprun};

const START: Duration = Duration::from_secs(60);

/// A device: what it does is chosen by the test that starts it.
#[test]
#[ignore = "is a device of the other tests"]
fn a_rank() {
    let world = World::init().unwrap();
    let device = match std::env::var("TEST_DEVICE").as_deref() {
        Ok("gpu") => Device::cuda(0).unwrap(),
        Ok("gpus") => Device::cuda(world.rank() as u32).unwrap(),
        _ => Device::Host,
    };
    match std::env::var("TEST_PROGRAM").unwrap().as_str() {
        "kernels" => kernels(&world, &device),
        "lost" => lost(world, &device),
        other => panic!("no program {other}"),
    }
}

fn kernels(world: &World, device: &Device) {
    for (name, rounds) in [
        ("ranks_windows", 10),
        ("ranks_transfers", 1),
        ("ranks_rows", 1),
        ("ranks_puts", 20),
        ("ranks_chains", 20),
        ("ranks_barriers", 10),
        ("ranks_matching", 1),
        ("ranks_flood", 20),
        ("ranks_notify_all", 10),
        ("ranks_collectives", 10),
        ("ranks_fompi", 5),
    ] {
        let player = Player::new(world, device, &Options::new(3), 1, 64).unwrap();
        player.pass(name, rounds);
        world.barrier().unwrap();
    }
    say("done");
}

/// All ranks wait for notifications, in a barrier and for room, when the other device is killed.
fn lost(world: World, device: &Device) {
    let options = Options { slots: 2, spill: 4, ..Options::new(3) };
    let player = Player::new(&world, device, &options, 1, 64).unwrap();
    let memory = player.memory.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let begun = |words: &[u64]| (0..3).all(|rank| words[rank * 64 + 1] == 1);
            while !begun(&memory.to_vec().unwrap()) {
                std::thread::yield_now();
            }
            say("waits");
        });
        let (ended, wrong) = player.play("ranks_aborted", 1, 0);
        assert_eq!(wrong, []);
        let Err(Error::World(error)) = ended else { panic!("{ended:?}") };
        let WorldError::PeerLost { rank, .. } = error else { panic!("{error}") };
        say(format!("lost {rank}"));
        // The ranks look whether the world is lost from time to time.
        let until = Instant::now() + START;
        let mut failure = player.ranks.failure().unwrap();
        while failure.is_none() && Instant::now() < until {
            std::thread::yield_now();
            failure = player.ranks.failure().unwrap();
        }
        say(failure.unwrap());
    });
    std::process::exit(3);
}

/// Two of them. What plays their kernels on the host is compiled once, here.
fn start(program: &str, device: &str, path: &str, more: &[(&str, &str)]) -> Vec<Rank> {
    let shim = if device == "host" { play::shim().to_str().unwrap() } else { "" };
    let all = [("TEST_DEVICE", device), ("TEST_SHIM", shim), ("MP_PATH", path)];
    start_mprun(program, 2, &[&all, more].concat())
}

fn devices_are_processes(device: &str, path: &str) {
    let mut ranks = start("kernels", device, path, &[]);
    for (number, rank) in ranks.iter_mut().enumerate() {
        assert_eq!(rank.next(START).as_deref(), Some("done"), "device {number}");
        assert_eq!(rank.end(START), Some(0));
    }
}

/// By SIGKILL, or by SIGSTOP, which is found by silence.
fn a_device_is_lost(device: &str, path: &str, victim: usize, signal: i32) {
    let silence: &[_] =
        if signal == libc::SIGSTOP { &[("MP_HEARTBEAT_TIMEOUT", "8")] } else { &[] };
    let mut ranks = start("lost", device, path, silence);
    for rank in &ranks {
        assert_eq!(rank.next(START).as_deref(), Some("waits"));
    }
    ranks[victim].signal(signal);
    let survivor = &mut ranks[1 - victim];
    assert_eq!(survivor.next(START), Some(format!("lost {victim}")));
    let failure = survivor.next(START).unwrap();
    assert!(failure.contains("the world was lost after"), "{failure}");
    assert_eq!(survivor.end(START), Some(3));
    ranks[victim].signal(libc::SIGKILL);
}

#[test]
fn ranks_of_two_processes_pass_every_kernel() {
    devices_are_processes("host", "auto");
    devices_are_processes("host", "nic-tcp");
}

#[test]
fn when_a_process_is_killed_the_ranks_of_the_other_end_and_it_is_named() {
    for victim in [0, 1, 0, 1, 1] {
        a_device_is_lost("host", "auto", victim, libc::SIGKILL);
    }
    a_device_is_lost("host", "nic", 1, libc::SIGKILL);
}

#[test]
fn when_a_process_is_stopped_for_long_the_ranks_of_the_other_end_and_it_is_named() {
    a_device_is_lost("host", "auto", 1, libc::SIGSTOP);
}

#[test]
fn a_process_that_is_stopped_for_a_moment_is_waited_for() {
    let mut ranks = start("kernels", "host", "auto", &[]);
    for _ in 0..3 {
        ranks[1].signal(libc::SIGSTOP);
        std::thread::sleep(Duration::from_millis(100));
        ranks[1].signal(libc::SIGCONT);
    }
    for (number, rank) in ranks.iter_mut().enumerate() {
        assert_eq!(rank.next(START).as_deref(), Some("done"), "device {number}");
        assert_eq!(rank.end(START), Some(0));
    }
}

mod gpu {
    use super::*;

    #[test]
    #[ignore = "needs a GPU"]
    fn ranks_of_two_processes_on_a_gpu_pass_every_kernel() {
        devices_are_processes("gpu", "auto");
    }

    #[test]
    #[ignore = "needs 2 GPUs"]
    fn ranks_of_two_processes_on_two_gpus_pass_every_kernel() {
        devices_are_processes("gpus", "auto");
    }

    #[test]
    #[ignore = "needs 2 GPUs"]
    fn when_a_process_with_another_gpu_is_killed_the_ranks_of_this_one_end() {
        for victim in [0, 1] {
            a_device_is_lost("gpus", "auto", victim, libc::SIGKILL);
        }
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn when_a_process_with_a_gpu_is_killed_the_ranks_of_the_other_end() {
        a_device_is_lost("gpu", "auto", 1, libc::SIGKILL);
    }
}
