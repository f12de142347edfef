//! Ranks that are processes: starts as launchers do them, and every way of dying.

mod common;

use std::time::{Duration, Instant};

use common::{Rank, SOON, free_port, rendezvous, say, start_mprun};
use libmp::{Config, Deadline, Device, Error, World, wait_all};

const START: Duration = Duration::from_secs(60);

/// A rank process: what it does is chosen by the test that starts it.
#[test]
#[ignore = "is a rank of the other tests"]
fn a_rank() {
    if std::env::var("TEST_PROGRAM").unwrap() == "apart" {
        keep_others_out();
    }
    let mut config = Config::from_env().unwrap();
    if std::env::var("TEST_PROGRAM").unwrap() == "hosts" {
        config.node = std::env::var("MP_RANK").ok();
    }
    let world = match World::with_config(&config) {
        Ok(world) => world,
        Err(error) => return say(format!("cannot start: {error}")),
    };
    match std::env::var("TEST_PROGRAM").unwrap().as_str() {
        "collectives" => collectives(world),
        "again" => {
            collectives(world);
            for _ in 0..5 {
                collectives(World::init().unwrap());
            }
        }
        "two at once" => {
            let other = World::init().unwrap();
            for _ in 0..20 {
                assert_eq!((world.sum(1u64).unwrap(), other.sum(2u64).unwrap()), (4, 8));
            }
            collectives(world);
            collectives(other);
        }
        "barriers" => {
            say("ready");
            let error = loop {
                if let Err(error) = world.barrier() {
                    break error;
                }
            };
            report(&world, &error);
            std::process::exit(3);
        }
        "last one sleeps" => {
            say("ready");
            if world.rank() == world.size() - 1 {
                std::thread::sleep(Duration::from_secs(60));
            }
            let error = world.barrier().unwrap_err();
            report(&world, &error);
            std::process::exit(3);
        }
        "one exits" => {
            world.barrier().unwrap();
            if world.rank() == 1 {
                std::process::exit(0);
            }
            let error = world.finish().unwrap_err();
            say(error);
        }
        "one aborts" => {
            if world.rank() == 2 {
                world.abort("the residual is not a number");
                // Without any farewell.
                std::process::abort();
            }
            let error = world.barrier().unwrap_err();
            report(&world, &error);
        }
        "apart" | "hosts" => messages_and_windows(world),
        other => panic!("no program {other}"),
    }
}

fn collectives(world: World) {
    let ranks = world.all_gather(&[world.rank() as u8]).unwrap();
    assert!(ranks.iter().enumerate().all(|(rank, blob)| *blob == [rank as u8]));
    assert_eq!(world.sum(1.0).unwrap(), world.size() as f64);
    let pair: Vec<usize> = (0..world.size()).filter(|rank| rank / 2 == world.rank() / 2).collect();
    for _ in 0..20 {
        let team = world.team(&pair).unwrap();
        assert_eq!(team.sum(world.rank() as u64).unwrap(), pair.iter().sum::<usize>() as u64);
    }
    let node = world.node_local().unwrap();
    assert_eq!((node.rank(), node.size()), (world.rank(), world.size()));
    assert_eq!((world.local_rank(), world.local_size()), (world.rank(), world.size()));
    let place = format!("rank {} of {}", world.rank(), world.size());
    world.finish().unwrap();
    say(place);
}

/// From here on no process can open memory of this one, nor this thread that of others: as between users or containers.
fn keep_others_out() {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    set_dumpable_behavior(DumpableBehavior::NotDumpable).unwrap();
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .unwrap();
}

/// What needs a path: a message to each rank and from each, a put, and says which paths there are.
fn messages_and_windows(world: World) {
    let (rank, size) = (world.rank(), world.size());
    let others = || (0..size).filter(|other| *other != rank);
    let paths: Vec<_> = others().map(|other| world.path(other).unwrap()).collect();
    let soon = || Deadline::after(SOON);
    for other in others() {
        let peer = world.peer(other).unwrap();
        let out = world.alloc::<u64>(&Device::Host, 1000).unwrap();
        let here = world.alloc::<u64>(&Device::Host, 1000).unwrap();
        out.write(&[rank as u64; 1000]).unwrap();
        let send = peer.send(&out, 7).prepare().unwrap();
        let recv = peer.recv(&here, 7).prepare().unwrap();
        recv.start().unwrap();
        send.start().unwrap();
        wait_all(&[&send, &recv], soon()).unwrap();
        assert_eq!(here.to_vec().unwrap(), vec![other as u64; 1000]);
    }
    let mine = world.alloc::<u64>(&Device::Host, size).unwrap();
    let window = world.window(&mine, 1).unwrap();
    for other in others() {
        window.fetch_add(other, rank as u64, 1 + rank as u64).unwrap();
    }
    world.barrier().unwrap();
    let expected = (0..size as u64).map(|from| if from == rank as u64 { 0 } else { 1 + from });
    assert_eq!(mine.to_vec().unwrap(), expected.collect::<Vec<_>>());
    drop(window);
    world.finish().unwrap();
    say(format!("{paths:?}"));
}

fn report(world: &World, error: &Error) {
    let word = world.abort_word().load(std::sync::atomic::Ordering::Acquire);
    say(format!("{error} [{}, kind {}]", word as u32, (word >> 32) & 0xff));
}

/// Waits until the ranks have started, then calls `strike` and gives what the survivors say of it, after checking that
/// each ended by itself, in time.
fn survivors(
    ranks: &mut [Rank],
    victim: usize,
    within: Duration,
    strike: impl FnOnce(&mut Rank),
) -> Vec<String> {
    for rank in ranks.iter() {
        assert_eq!(rank.next(START).as_deref(), Some("ready"));
    }
    let since = Instant::now();
    strike(&mut ranks[victim]);
    let mut said = Vec::new();
    for (number, rank) in ranks.iter_mut().enumerate().filter(|(number, _)| *number != victim) {
        let text = rank.next(within).unwrap_or_else(|| panic!("rank {number} said nothing"));
        assert_eq!(rank.end(within), Some(3), "{text}");
        said.push(text);
    }
    assert!(since.elapsed() < within, "took {:?}", since.elapsed());
    said
}

fn expect_lost(said: &[String], victim: usize) {
    for text in said {
        assert!(text.starts_with(&format!("rank {victim} on ")), "{text}");
        assert!(text.contains("is lost") && text.contains("during barrier on the world"), "{text}");
        assert!(text.ends_with(&format!("[{victim}, kind 1]")), "{text}");
    }
}

#[test]
fn four_processes_start_as_mprun_starts_them() {
    let more = [("MP_TOKEN", "0123456789abcdef"), ("MP_JOB", "test")];
    for program in ["collectives", "again", "two at once"] {
        let mut ranks = start_mprun(program, 4, &more);
        let worlds = if program == "again" { 6 } else { 1 + usize::from(program == "two at once") };
        for (number, rank) in ranks.iter_mut().enumerate() {
            for _ in 0..worlds {
                assert_eq!(rank.next(START), Some(format!("rank {number} of 4")));
            }
            assert_eq!(rank.end(START), Some(0));
        }
    }
}

#[test]
fn ranks_of_one_host_that_cannot_map_each_other_take_the_nic_though_nobody_asked_for_it() {
    for rank in &mut start_mprun("apart", 3, &[]) {
        assert_eq!(rank.next(START).as_deref(), Some("[NicTcp, NicTcp]"));
        assert_eq!(rank.end(START), Some(0));
    }
}

/// Three hosts as far as they know, with the same RDMA device.
#[test]
#[ignore = "needs a verbs device (run by tools/rxe-vm)"]
fn ranks_of_hosts_with_rdma_devices_use_them_though_nobody_asked_for_it() {
    for rank in &mut start_mprun("hosts", 3, &[]) {
        assert_eq!(rank.next(START).as_deref(), Some("[NicVerbs, NicVerbs]"));
        assert_eq!(rank.end(START), Some(0));
    }
}

#[test]
fn four_processes_start_as_torchrun_starts_them() {
    for (program, worlds) in [("collectives", 1), ("again", 6)] {
        // Rank 0 binds it itself.
        let port = free_port();
        let start = |rank: usize| {
            let rank = rank.to_string();
            let variables = [
                ("RANK", &rank[..]),
                ("WORLD_SIZE", "4"),
                ("LOCAL_RANK", &rank),
                ("LOCAL_WORLD_SIZE", "4"),
                ("MASTER_ADDR", "localhost"),
                ("MASTER_PORT", &port.to_string()),
                ("MP_INIT_TIMEOUT", "60"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
            Rank::start(program, &variables, None)
        };
        // Rank 0 comes last: the others try again until it is there.
        let mut ranks: Vec<Rank> = (1..4).map(start).collect();
        std::thread::sleep(Duration::from_millis(100));
        ranks.insert(0, start(0));
        for (number, rank) in ranks.iter_mut().enumerate() {
            for _ in 0..worlds {
                assert_eq!(rank.next(START), Some(format!("rank {number} of 4")));
            }
            assert_eq!(rank.end(START), Some(0));
        }
    }
}

/// Kills each rank in turn, each time at another moment of a barrier; the longest time until the last survivor ended.
fn kill(rounds: u64) -> Duration {
    let mut longest = Duration::ZERO;
    for round in 0..rounds {
        let victim = (round % 4) as usize;
        let mut ranks = start_mprun("barriers", 4, &[]);
        let mut struck = Instant::now();
        let said = survivors(&mut ranks, victim, SOON, |rank| {
            std::thread::sleep(Duration::from_micros(round * 1713 % 9000));
            struck = Instant::now();
            rank.signal(libc::SIGKILL);
        });
        longest = longest.max(struck.elapsed());
        expect_lost(&said, victim);
        assert!(said.iter().all(|text| text.contains("its connection was closed")), "{said:?}");
    }
    longest
}

#[test]
fn a_killed_rank_is_named_by_every_survivor() {
    kill(12);
}

#[test]
#[ignore = "repeats the test above for some seconds"]
fn a_killed_rank_is_named_by_every_survivor_a_hundred_times() {
    println!("the last survivor ended at most {:?} after the kill", kill(100));
}

#[test]
fn a_rank_killed_while_the_others_wait_for_it_is_named_at_once() {
    let mut ranks = start_mprun("last one sleeps", 4, &[]);
    let said = survivors(&mut ranks, 3, SOON, |rank| {
        std::thread::sleep(Duration::from_millis(100));
        rank.signal(libc::SIGKILL);
    });
    expect_lost(&said, 3);
}

#[test]
fn a_stopped_rank_is_named_after_its_silence() {
    for victim in [2, 0] {
        // More than ranks that run may have to wait for a processor.
        let more = [("MP_HEARTBEAT", "0.1"), ("MP_HEARTBEAT_TIMEOUT", "1.5")];
        let mut ranks = start_mprun("barriers", 4, &more);
        let mut stopped = Instant::now();
        let said = survivors(&mut ranks, victim, SOON, |rank| {
            stopped = Instant::now();
            rank.signal(libc::SIGSTOP);
        });
        // It may have said nothing for an interval before.
        assert!(stopped.elapsed() >= Duration::from_millis(1200), "{:?}", stopped.elapsed());
        expect_lost(&said, victim);
        assert!(said.iter().all(|text| text.contains("no sign of life for ")), "{said:?}");
        // When it goes on it learns that it has been given up, or that nobody is there any more.
        ranks[victim].signal(libc::SIGCONT);
        let text = ranks[victim].next(SOON).unwrap();
        assert!(text.contains("is lost"), "{text}");
        assert_eq!(ranks[victim].end(SOON), Some(3));
    }
}

#[test]
fn a_rank_stopped_for_less_than_the_limit_is_not_lost() {
    let more = [("MP_HEARTBEAT", "0.1"), ("MP_HEARTBEAT_TIMEOUT", "3")];
    let worlds = [1, 0].map(|victim| (victim, start_mprun("barriers", 3, &more)));
    for rank in worlds.iter().flat_map(|(_, ranks)| ranks) {
        assert_eq!(rank.next(START).as_deref(), Some("ready"));
    }
    let signal = |number| worlds.iter().for_each(|(victim, ranks)| ranks[*victim].signal(number));
    signal(libc::SIGSTOP);
    std::thread::sleep(Duration::from_millis(500));
    signal(libc::SIGCONT);
    // Nor later.
    std::thread::sleep(Duration::from_millis(3500));
    assert!(worlds.iter().flat_map(|(_, ranks)| ranks).all(Rank::is_silent));
}

#[test]
fn a_rank_that_exits_without_finish_is_lost_whatever_its_exit_code() {
    let ranks = start_mprun("one exits", 3, &[]);
    for number in [0, 2] {
        let text = ranks[number].next(START).unwrap();
        assert!(text.starts_with("rank 1 on ") && text.contains("is lost"), "{text}");
    }
}

#[test]
fn an_abort_reaches_the_others_even_if_its_rank_is_gone_the_moment_after() {
    for _ in 0..5 {
        let ranks = start_mprun("one aborts", 4, &[]);
        for number in [0, 1, 3] {
            let text = ranks[number].next(START).unwrap();
            assert!(text.contains("aborted the world: the residual is not a number"), "{text}");
            assert!(text.ends_with("[2, kind 2]"), "{text}");
        }
    }
}

#[test]
fn a_rank_that_dies_while_the_world_starts_ends_the_start() {
    // A rank that was killed before it had come is one that did not come: on a slow machine that takes longer.
    let kill_after = |pause: Duration| {
        let (fd, address) = rendezvous();
        let more = [("MP_INIT_TIMEOUT", "15")];
        let start = |rank: usize| {
            let variables = common::mprun(rank, 3, &address, fd, &more);
            Rank::start("collectives", &variables, (rank == 0).then_some(fd))
        };
        let ranks = [start(0), start(1)];
        std::thread::sleep(pause);
        ranks[1].signal(libc::SIGKILL);
        ranks[0].next(START).unwrap()
    };
    let mut said = [0.5, 2.0, 6.0].map(Duration::from_secs_f64).into_iter().map(kill_after);
    let text = said.find(|text| !text.contains("did not arrive")).unwrap();
    assert!(text.starts_with("cannot start: rank 1 on ") && text.contains("is lost"), "{text}");
}
