//! Many ranks behind a NIC, as threads of this process: a rank has queue pairs to those that it has something to say to, and no
//! others. A program of its own, because it counts what the process holds.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use libmp::{Config, Deadline, Device, Operation, Path, ReduceOp, World};

const RANKS: usize = 512;
/// Ends of connections: to the next rank and the one before it, and to the one opposite.
const ENDS: u64 = RANKS as u64 * 3;

/// Memory of this process in KiB: what is its own, and what it shares through descriptors, touched or only reserved.
fn held() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let own = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    let own: u64 = own.split_whitespace().nth(1).unwrap().parse().unwrap();
    let files = fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| {
        let path = entry.ok()?.path();
        let target = fs::read_link(&path).ok()?;
        let is_memory = target.to_str()?.starts_with("/memfd:");
        is_memory.then(|| fs::metadata(&path).ok())?
    });
    own + files.map(|file| file.blocks() / 2).sum::<u64>()
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(200))
}

/// A message to the rank so far ahead, and one from the rank so far behind.
fn exchange(world: &World, distance: usize) -> libmp::Result<()> {
    let (rank, size) = (world.rank(), world.size());
    let from = (rank + size - distance) % size;
    let mine = world.alloc::<u64>(&Device::Host, 1)?;
    let there = world.alloc::<u64>(&Device::Host, 1)?;
    let next = world.peer((rank + distance) % size)?;
    let send = next.send(&mine, distance as u64).prepare()?;
    let recv = world.peer(from)?.recv(&there, distance as u64).prepare()?;
    for round in 0..2 {
        mine.write(&[(rank + 1000 * round) as u64])?;
        recv.start()?;
        send.start()?;
        recv.wait(soon())?;
        send.wait(soon())?;
        assert_eq!(there.to_vec()?, [(from + 1000 * round) as u64]);
    }
    Ok(())
}

/// What each rank does.
fn play(world: World) -> libmp::Result<()> {
    let (rank, size) = (world.rank(), world.size());
    assert_eq!(world.path((rank + 1) % size)?, Path::NicSharedMemory);
    let mut sum = [rank as u64];
    world.all_reduce(ReduceOp::Sum, &mut sum)?;
    assert_eq!(sum, [(size * (size - 1) / 2) as u64]);
    let before = (held(), descriptors());
    world.barrier()?;
    exchange(&world, 1)?;
    exchange(&world, size / 2)?;
    if rank == 0 {
        let (memory, files) = (held() - before.0, descriptors() - before.1);
        println!(
            "{size} ranks: {} MiB and {} descriptors before; {ENDS} ends of connections: {} KiB and {:.1} descriptors each",
            before.0 / 1024,
            before.1,
            memory / ENDS,
            files as f64 / ENDS as f64
        );
        assert!(memory < ENDS * 600, "{memory} KiB for {ENDS} ends");
    }
    world.barrier()?;
    // In the first team everybody puts into the memory of everybody.
    if let Some(team) = world.split((rank < 8).then_some(0), 0)? {
        let (share, mine) =
            (world.alloc::<u64>(&Device::Host, 8)?, world.alloc::<u64>(&Device::Host, 1)?);
        let window = team.window(&share, 1)?;
        mine.write(&[rank as u64 + 1])?;
        for other in 0..8 {
            window.put(other, rank as u64, &mine)?;
        }
        team.barrier()?;
        assert_eq!(share.to_vec()?, (1..9).collect::<Vec<u64>>());
    }
    world.finish()
}

#[test]
fn ranks_behind_a_nic_are_connected_when_they_first_have_something_to_say() {
    // A thousand threads: on two cores with other work, one of them may not have its turn for longer than a rank may be silent.
    let config =
        Config::from_variables([("MP_PATH", "nic"), ("MP_HEARTBEAT_TIMEOUT", "150")]).unwrap();
    let threads: Vec<_> = World::threads_with_config(RANKS, &config)
        .unwrap()
        .into_iter()
        .map(|world| {
            let rank = std::thread::Builder::new().stack_size(512 << 10);
            rank.spawn(move || play(world)).unwrap()
        })
        .collect();
    for (rank, thread) in threads.into_iter().enumerate() {
        thread.join().unwrap().unwrap_or_else(|error| panic!("rank {rank}: {error}"));
    }
}
