//! Devices that are processes: their ranks reach each other through shared memory, on GPUs through CUDA IPC; and the death of one.
//! `TEST_KILLS`: how often one is killed (100 for a full run).

#[path = "common/mod.rs"]
mod play;
#[path = "../../libmp/tests/common/mod.rs"]
mod process;

use std::time::{Duration, Instant};

use dranks::{Error, Options};
use libmp::{Device, Error as WorldError, World};
use play::{Player, number_from};
use process::{Rank, say, start_mprun};

const START: Duration = Duration::from_secs(60);

/// After a kill, by the specification (K1).
const ALL_ENDED: Duration = Duration::from_secs(2);

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
    say("begins");
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

/// All ranks wait for notifications, in a barrier and for room, when the other device is killed. Afterwards a new world of this process works.
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
        // And each of them ends, and says that the world was lost.
        while !player.stream.is_idle().unwrap() && Instant::now() < until {
            std::thread::yield_now();
        }
        assert!(player.stream.is_idle().unwrap());
        assert_eq!(player.wrong(), []);
        say("ended");
    });
    let alone = World::threads(1).unwrap().remove(0);
    Player::new(&alone, device, &Options::new(3), 1, 64).unwrap().pass("ranks_puts", 5);
    say("goes on");
    std::process::exit(3);
}

/// Two of them. What plays their kernels on the host is compiled once, here.
fn start(program: &str, device: &str, path: &str, more: &[(&str, &str)]) -> Vec<Rank> {
    let shim = if device == "host" { play::shim().to_str().unwrap() } else { "" };
    let all = [("TEST_DEVICE", device), ("TEST_SHIM", shim), ("MP_PATH", path)];
    start_mprun(program, 2, &[&all, more].concat())
}

fn devices_are_processes(device: &str, path: &str) {
    all_are_done(start("kernels", device, path, &[]), |_| ());
}

/// `meanwhile`: when both play kernels.
fn all_are_done(mut ranks: Vec<Rank>, meanwhile: impl Fn(&[Rank])) {
    for (number, rank) in ranks.iter().enumerate() {
        assert_eq!(rank.next(START).as_deref(), Some("begins"), "device {number}");
    }
    meanwhile(&ranks);
    for (number, rank) in ranks.iter_mut().enumerate() {
        assert_eq!(rank.next(START).as_deref(), Some("done"), "device {number}");
        assert_eq!(rank.end(START), Some(0));
    }
}

/// By SIGKILL, or by SIGSTOP, which is found by silence. How long after it all ranks of the other device had ended.
fn a_device_is_lost(device: &str, path: &str, victim: usize, signal: i32) -> Duration {
    let silence: &[_] =
        if signal == libc::SIGSTOP { &[("MP_HEARTBEAT_TIMEOUT", "8")] } else { &[] };
    let mut ranks = start("lost", device, path, silence);
    for rank in &ranks {
        assert_eq!(rank.next(START).as_deref(), Some("waits"));
    }
    ranks[victim].signal(signal);
    let since = Instant::now();
    let survivor = &mut ranks[1 - victim];
    assert_eq!(survivor.next(START), Some(format!("lost {victim}")));
    let failure = survivor.next(START).unwrap();
    // Which of the three it was, what it was at, with whom, and how far.
    let first = 3 * (1 - victim);
    let (next, last) = (first + 1, first + 2);
    let calls = [
        format!("device rank {first} waited for 1 notifications of window 0, any source, tag 0: "),
        format!("device rank {next} came to its barrier number "),
        format!("device rank {last} sent rank {next} a notification of window 0, tag 1: "),
    ];
    assert!(calls.iter().any(|call| failure.starts_with(call)), "{failure}");
    assert!(failure.contains("the world was lost after"), "{failure}");
    assert_eq!(survivor.next(START).as_deref(), Some("ended"));
    let took = since.elapsed();
    assert_eq!(survivor.next(START).as_deref(), Some("goes on"));
    assert_eq!(survivor.end(START), Some(3));
    ranks[victim].signal(libc::SIGKILL);
    took
}

/// `TEST_KILLS` times, or so many: one device and the other in turn, on one path after the other.
fn devices_are_killed(device: &str, paths: &[&str], kills: u64) {
    let mut longest = Duration::ZERO;
    let kills = number_from("TEST_KILLS", kills) as usize;
    for turn in 0..kills {
        let path = paths[turn / 2 % paths.len()];
        longest = longest.max(a_device_is_lost(device, path, turn % 2, libc::SIGKILL));
    }
    eprintln!("{kills} kills; all ranks of the other had ended after {longest:.1?} at most");
    // On a machine that does much else it may take longer.
    assert!(longest < ALL_ENDED || std::env::var_os("TEST_KILLS").is_none(), "{longest:?}");
}

/// Three times while it plays kernels.
fn a_device_is_stopped_for_a_moment(device: &str) {
    all_are_done(start("kernels", device, "auto", &[]), |ranks| {
        for _ in 0..3 {
            ranks[1].signal(libc::SIGSTOP);
            std::thread::sleep(Duration::from_millis(100));
            ranks[1].signal(libc::SIGCONT);
        }
    });
}

#[test]
fn ranks_of_two_processes_pass_every_kernel() {
    devices_are_processes("host", "auto");
    devices_are_processes("host", "nic-tcp");
}

#[test]
fn when_a_process_is_killed_the_ranks_of_the_other_end_and_it_is_named() {
    devices_are_killed("host", &["auto", "auto", "nic"], 6);
}

#[test]
fn when_a_process_is_stopped_for_long_the_ranks_of_the_other_end_and_it_is_named() {
    a_device_is_lost("host", "auto", 1, libc::SIGSTOP);
}

#[test]
fn a_process_that_is_stopped_for_a_moment_is_waited_for() {
    a_device_is_stopped_for_a_moment("host");
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
        devices_are_killed("gpus", &["auto"], 2);
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn when_a_process_with_a_gpu_is_killed_the_ranks_of_the_other_end() {
        devices_are_killed("gpu", &["auto"], 2);
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn when_a_process_with_a_gpu_is_stopped_for_long_the_ranks_of_the_other_end() {
        a_device_is_lost("gpu", "auto", 1, libc::SIGSTOP);
    }

    #[test]
    #[ignore = "needs 2 GPUs"]
    fn when_a_process_with_another_gpu_is_stopped_for_long_the_ranks_of_this_one_end() {
        a_device_is_lost("gpus", "auto", 1, libc::SIGSTOP);
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn a_process_with_a_gpu_that_is_stopped_for_a_moment_is_waited_for() {
        a_device_is_stopped_for_a_moment("gpu");
    }
}
