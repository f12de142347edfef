//! Messages between ranks that are processes, on every path between processes of a host: order of payload and signal, rings, everybody to
//! everybody, and the death of a rank.

mod common;

use std::time::{Duration, Instant};

use common::{SOON, paths, say, start_mprun};
use libmp::gdsync::Buffer;
use libmp::{Deadline, Device, Operation, Recv, ReduceOp, Region, Result, Send, World, wait_all};

const START: Duration = Duration::from_secs(120);

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

/// A rank process: what it does is chosen by the test that starts it.
#[test]
#[ignore = "is a rank of the other tests"]
fn a_rank() {
    let world = World::init().unwrap();
    match std::env::var("TEST_PROGRAM").unwrap().as_str() {
        "ring" => ring(&world).unwrap(),
        "everybody" => everybody(&world).unwrap(),
        "litmus" => litmus(&world).unwrap(),
        "private" => private(&world).unwrap(),
        "endless" => {
            say("ready");
            let error = endless(&world, world.rank() % 2 == 1).unwrap_err();
            say(error);
            drop(world);
            std::process::exit(3);
        }
        other => panic!("no program {other}"),
    }
    world.finish().unwrap();
    say("done");
}

fn ring(world: &World) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    let (out, here) = (world.alloc(&Device::Host, 50)?, world.alloc(&Device::Host, 50)?);
    let send = world.peer((rank + 1) % size)?.send(&out, 1).prepare()?;
    let recv = world.peer((rank + size - 1) % size)?.recv(&here, 1).prepare()?;
    for round in 0..200 {
        out.write(&[(rank, round); 50].map(|(rank, round)| (rank * 1000 + round) as u64))?;
        recv.start()?;
        send.start()?;
        wait_all(&[&send, &recv], soon())?;
        let left = (rank + size - 1) % size;
        assert_eq!(here.to_vec()?, [(left * 1000 + round) as u64; 50]);
        here.write(&[u64::MAX; 50])?;
    }
    Ok(())
}

/// Rank 1 receives into memory of its own that no other process maps, by the host and on a stream.
fn private(world: &World) -> Result<()> {
    let peer = world.peer(1 - world.rank())?;
    let stream = world.stream(&Device::Host)?;
    let buffer =
        |len| Region::from_buffer(Buffer::from_vec(&Device::Host, vec![0u64; len]).unwrap());
    for (tag, len) in [(0, 1), (1, 5000)] {
        let region = buffer(len);
        if world.rank() == 0 {
            let send = peer.send(&region, tag).prepare()?;
            for round in 1..=10 {
                region.write(&vec![round; len])?;
                if round % 2 == 0 {
                    send.start()?
                } else {
                    send.start_on(&stream)?
                }
                send.wait(soon())?;
            }
        } else {
            let recv = peer.recv(&region, tag).prepare()?;
            for round in 1..=10 {
                if round % 3 == 0 {
                    recv.start_on(&stream)?
                } else {
                    recv.start()?
                }
                if round % 2 == 0 {
                    recv.wait_on(&stream)?;
                    world.synchronize(&stream, soon())?;
                }
                recv.wait(soon())?;
                assert_eq!(region.to_vec()?, vec![round; len]);
            }
        }
    }
    Ok(())
}

fn everybody(world: &World) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    // From nothing to more than a region shares with others.
    let len = |from: usize, to: usize| [0, 1, 1000, 200_000][(from + to) % 4];
    let prepare = |other: usize| -> Result<_> {
        let peer = world.peer(other)?;
        let out: Region<u64> = world.alloc(&Device::Host, len(rank, other))?;
        out.write(&vec![(rank * 10 + other) as u64; out.len()])?;
        let here: Region<u64> = world.alloc(&Device::Host, len(other, rank))?;
        let pair: (Send, Recv) = (peer.send(&out, 2).prepare()?, peer.recv(&here, 2).prepare()?);
        Ok((pair, here))
    };
    let all: Vec<_> = (0..size).map(prepare).collect::<Result<_>>()?;
    for _ in 0..5 {
        for ((send, recv), _) in &all {
            send.start()?;
            recv.start()?;
        }
        let operations: Vec<&dyn Operation> =
            all.iter().flat_map(|((send, recv), _)| [send as _, recv as &dyn Operation]).collect();
        wait_all(&operations, soon())?;
        for (other, (_, here)) in all.iter().enumerate() {
            assert_eq!(here.to_vec()?, vec![(other * 10 + rank) as u64; here.len()]);
            here.write(&vec![u64::MAX; here.len()])?;
        }
    }
    Ok(())
}

/// Rank 0 sends, rank 1 looks at every word of a buffer that it has poisoned: messages and puts, short and long.
fn litmus(world: &World) -> Result<()> {
    let peer = world.peer(1 - world.rank())?;
    for (tag, len, most) in [(1, 1, 10_000), (2, 33, 5000), (3, 5000, 300)] {
        let memory: Region<u64> = world.alloc(&Device::Host, len)?;
        let window = world.window(&memory, 1)?;
        // SAFETY: only between the operations, which are complete then.
        let words = unsafe { memory.as_mut_slice() }?;
        if world.rank() == 0 {
            let send = peer.send(&memory, tag).prepare()?;
            rounds(world, most, |round| {
                words.fill(round);
                send.start()?;
                send.wait(soon())
            })?;
            // The puts may not come before the last message was looked at.
            world.barrier()?;
            rounds(world, most, |round| {
                words.fill(round);
                window.put_signal(1, 0, &memory, 0, round)?;
                window.wait_signal(0, round, soon())
            })?;
        } else {
            let recv = peer.recv(&memory, tag).prepare()?;
            let check = |words: &mut [u64], round: u64| {
                assert!(words.iter().all(|&word| word == round), "round {round}: {words:?}");
                words.fill(u64::MAX);
            };
            words.fill(u64::MAX);
            rounds(world, most, |round| {
                recv.start()?;
                recv.wait(soon())?;
                check(words, round);
                Ok(())
            })?;
            world.barrier()?;
            rounds(world, most, |round| {
                window.wait_signal(0, round, soon())?;
                check(words, round);
                window.signal(0, 0, round)
            })?;
        }
    }
    Ok(())
}

/// At most so many rounds, numbered from 1, the same on all ranks: fewer where a busy machine takes long for them.
fn rounds(world: &World, most: u64, mut round: impl FnMut(u64) -> Result<()>) -> Result<()> {
    const AT_ONCE: u64 = 100;
    let begin = Instant::now();
    for first in (1..=most).step_by(AT_ONCE as usize) {
        (first..=most.min(first + AT_ONCE - 1)).try_for_each(&mut round)?;
        let mut longest = [begin.elapsed().as_secs()];
        world.all_reduce(ReduceOp::Max, &mut longest)?;
        if longest[0] >= 5 {
            break;
        }
    }
    Ok(())
}

/// A ring without end, started by the host or on a stream.
fn endless(world: &World, on_stream: bool) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    let stream = world.stream(&Device::Host)?;
    let (out, here): (Region<u64>, Region<u64>) =
        (world.alloc(&Device::Host, 100)?, world.alloc(&Device::Host, 100)?);
    let send = world.peer((rank + 1) % size)?.send(&out, 1).prepare()?;
    let recv = world.peer((rank + size - 1) % size)?.recv(&here, 1).prepare()?;
    loop {
        if on_stream {
            recv.start_on(&stream)?;
            send.start_on(&stream)?;
            recv.wait_on(&stream)?;
            world.synchronize(&stream, soon())?;
        } else {
            recv.start()?;
            send.start()?;
        }
        wait_all(&[&send, &recv], soon())?;
    }
}

fn all_done(program: &str, size: usize) {
    for path in paths() {
        let mut ranks = start_mprun(program, size, &[("MP_PATH", path)]);
        for (number, rank) in ranks.iter_mut().enumerate() {
            let said = rank.next(START);
            assert_eq!(said.as_deref(), Some("done"), "rank {number} of {size}, {path}");
            assert_eq!(rank.end(START), Some(0));
        }
    }
}

#[test]
fn messages_go_round_rings_of_processes() {
    for size in [1, 2, 3, 8] {
        all_done("ring", size);
    }
}

#[test]
fn processes_send_messages_of_all_lengths_to_each_other() {
    for size in [2, 5] {
        all_done("everybody", size);
    }
}

#[test]
fn messages_arrive_in_private_memory_of_a_process() {
    all_done("private", 2);
}

#[test]
fn a_payload_is_there_when_its_signal_is() {
    all_done("litmus", 2);
}

#[test]
fn survivors_of_a_killed_rank_name_it_and_end_whether_hosts_or_streams_wait() {
    for (victim, path) in
        [0, 1, 3].into_iter().flat_map(|v| paths().into_iter().map(move |path| (v, path)))
    {
        let mut ranks = start_mprun("endless", 4, &[("MP_PATH", path)]);
        for rank in &ranks {
            assert_eq!(rank.next(START).as_deref(), Some("ready"));
        }
        std::thread::sleep(Duration::from_millis(30));
        ranks[victim].signal(libc::SIGKILL);
        for (number, rank) in ranks.iter_mut().enumerate().filter(|(number, _)| *number != victim) {
            let text = rank.next(SOON).unwrap();
            let expected = format!("rank {victim} on ");
            assert!(text.starts_with(&expected), "rank {number}, {path}: {text}");
            assert!(text.contains("is lost") && text.contains("tag 1") || text.contains("stream"));
            assert_eq!(rank.end(SOON), Some(3));
        }
    }
}
