//! A world of as many ranks as there may be, as threads of this process: what a rank costs does not grow with what it does not
//! use of the others. A program of its own, because it counts what the process holds.

use std::fs;
use std::time::Duration;

use libmp::{Deadline, Device, Operation, ReduceOp, World};

const RANKS: usize = 4096;

/// Memory of this process that is there now, in KiB.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(200))
}

/// What each rank does: collectives, a window, puts and a message to the next rank and to the one opposite.
fn play(world: World) -> libmp::Result<()> {
    let (rank, size) = (world.rank(), world.size());
    let from = |distance: usize| ((rank + size - distance) % size) as u64;
    assert_eq!((world.local_rank(), world.local_size()), (rank, size));
    world.barrier()?;
    let mut sum = [rank as u64, 1];
    world.all_reduce(ReduceOp::Sum, &mut sum)?;
    assert_eq!(sum, [(size * (size - 1) / 2) as u64, size as u64]);
    if rank.is_multiple_of(512) {
        // Some only keep what they get: of all it would be the square of the ranks.
        let all = world.all_gather(&(rank as u64).to_le_bytes())?;
        assert!((0u64..).zip(&all).all(|(rank, blob)| *blob == rank.to_le_bytes()));
    } else {
        world.all_gather(&(rank as u64).to_le_bytes())?;
    }
    let share = world.alloc::<u64>(&Device::Host, 8)?;
    let window = world.window(&share, 1)?;
    let mine = world.alloc::<u64>(&Device::Host, 1)?;
    mine.write(&[rank as u64])?;
    for (turn, distance) in [(0, 1), (1, size / 2)] {
        window.put_signal((rank + distance) % size, turn, &mine, 0, turn + 1)?;
        window.wait_signal(0, turn + 1, soon())?;
        assert_eq!(share.to_vec()?[turn as usize], from(distance));
        let there = world.alloc::<u64>(&Device::Host, 1)?;
        let send = world.peer((rank + distance) % size)?.send(&mine, turn).prepare()?;
        let recv = world.peer(from(distance) as usize)?.recv(&there, turn).prepare()?;
        recv.start()?;
        send.start()?;
        recv.wait(soon())?;
        send.wait(soon())?;
        assert_eq!(there.to_vec()?, [from(distance)]);
        world.barrier()?;
    }
    let group = world.split(Some(rank as u64 / 8), 0)?.unwrap();
    assert_eq!((group.size(), group.sum(1u32)?), (8, 8));
    if rank == 0 {
        let (memory, files) = (resident(), descriptors());
        println!("{size} ranks: {} MiB, {files} descriptors", memory / 1024);
        // A stack, its tables, a place in the other ranks' tables.
        assert!(memory < RANKS * 320, "{memory} KiB");
        assert!(files < 100, "{files} descriptors");
    }
    drop(window);
    world.finish()
}

#[test]
fn a_world_of_as_many_ranks_as_there_may_be_does_everything_and_costs_little_of_each() {
    let threads: Vec<_> = World::threads(RANKS)
        .unwrap()
        .into_iter()
        .map(|world| {
            let rank = std::thread::Builder::new().stack_size(256 << 10);
            rank.spawn(move || play(world)).unwrap()
        })
        .collect();
    for (rank, thread) in threads.into_iter().enumerate() {
        thread.join().unwrap().unwrap_or_else(|error| panic!("rank {rank}: {error}"));
    }
}
