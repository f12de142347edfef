//! The death of a rank: one of 4 processes is killed at a random moment while they pass messages in a ring, started by the
//! host, by replayed graphs on host streams, or by kernels on GPUs. Every survivor has to name it, with GPUs within 2 seconds, and
//! to end by itself. `TEST_KILLS`: how often (100 for a full run), `TEST_WORLDS`: so many worlds at once.

mod common;

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{SOON, ring_without_end, say, start_mprun};
use libmp::gdsync::{Buffer, CudaDevice, Space};
use libmp::{Deadline, Device, Error, Region, Result, Step, World};

const RANKS: usize = 4;
const START: Duration = Duration::from_secs(60);
/// The kill comes up to so long after all ranks have said that they run.
const MOMENTS: u64 = 60_000_000;

/// How long a rank waits for a message.
const PATIENCE: Duration = Duration::from_secs(30);

fn soon() -> Deadline {
    Deadline::after(PATIENCE)
}

/// A rank process: what it does is chosen by the test that starts it.
#[test]
#[ignore = "is a rank of the other tests"]
fn a_rank() {
    let world = World::init().unwrap();
    let error = match std::env::var("TEST_PROGRAM").unwrap().as_str() {
        "host" => ring_without_end(&world, 2000, PATIENCE),
        "streams" => by_graphs(&world, &Device::Host),
        "kernels" => {
            let count = CudaDevice::count().unwrap();
            by_graphs(&world, &Device::cuda(world.rank() as u32 % count).unwrap())
        }
        other => panic!("no program {other}"),
    };
    say(error.unwrap_err());
    drop(world);
    std::process::exit(3);
}

/// A ring without end, replayed as a graph; rank 0 takes its time, so most of the time the others' streams wait in it.
fn by_graphs(world: &World, device: &Device) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    let stream = world.stream(device)?;
    let (out, here): (Region<u64>, _) = (world.alloc(device, 2000)?, world.alloc(device, 2000)?);
    let send = world.peer((rank + 1) % size)?.send(&out, 1).prepare()?;
    let recv = world.peer((rank + size - 1) % size)?.recv(&here, 1).prepare()?;
    send.handle()?;
    recv.handle()?;
    let failed = |source| Error::Memory { op: "a ring".into(), source };
    stream.begin_capture().map_err(failed)?;
    for _ in 0..4 {
        world.enqueue(&stream, &[Step::start(&recv), Step::start(&send), Step::wait(&recv)])?;
        stream.copy(out.buffer(), here.buffer()).map_err(failed)?;
    }
    let graph = stream.end_capture().map_err(failed)?;
    world.barrier()?;
    say("ready");
    loop {
        stream.launch_graph(&graph).map_err(failed)?;
        world.synchronize(&stream, soon())?;
        if rank == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A number like any other, the same in every run.
fn chance(kill: u64, of: u64) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one((kill, of))
}

/// Kills one rank; when the last survivor had named it, within this, and when the last had ended.
fn kill_one(
    program: &str,
    kill: u64,
    within: Duration,
) -> std::result::Result<[Duration; 2], String> {
    let victim = (chance(kill, 1) % RANKS as u64) as usize;
    let mut ranks = start_mprun(program, RANKS, &[]);
    for (number, rank) in ranks.iter().enumerate() {
        let said = rank.next(START);
        if said.as_deref() != Some("ready") {
            return Err(format!("rank {number} does not run: {said:?}"));
        }
    }
    // Not in step with the ring: so many nanoseconds.
    std::thread::sleep(Duration::from_nanos(chance(kill, 0) % MOMENTS));
    let since = Instant::now();
    ranks[victim].signal(libc::SIGKILL);
    let survivors = || (0..RANKS).filter(|&number| number != victim);
    for number in survivors() {
        let text = ranks[number].next(SOON).ok_or_else(|| format!("rank {number} said nothing"))?;
        if !text.starts_with(&format!("rank {victim} on ")) || !text.contains("is lost") {
            return Err(format!("rank {number} of which {victim} was killed says: {text}"));
        }
    }
    let named = since.elapsed();
    if named > within {
        return Err(format!("rank {victim} was named after {named:?}"));
    }
    for number in survivors() {
        let code = ranks[number].end(SOON);
        if code != Some(3) {
            return Err(format!("rank {number} ends with {code:?}"));
        }
    }
    Ok([named, since.elapsed()])
}

fn number_from(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|count| count.parse().ok()).unwrap_or(default)
}

/// Kills again and again, in several worlds at once, and prints how many kills went as they should.
fn survivors_name_the_killed_rank_and_end(program: &str, default: u64, within: Duration) {
    let kills = number_from("TEST_KILLS", default);
    let next = AtomicU64::new(0);
    let mut times: Vec<[Duration; 2]> = Vec::new();
    let mut failures = Vec::new();
    std::thread::scope(|scope| {
        let worlds: Vec<_> = (0..number_from("TEST_WORLDS", 1))
            .map(|_| {
                scope.spawn(|| {
                    let mut results = Vec::new();
                    loop {
                        let kill = next.fetch_add(1, Ordering::Relaxed);
                        if kill >= kills {
                            return results;
                        }
                        let since = Instant::now();
                        let result = kill_one(program, kill, within);
                        println!("kill {kill}: {result:?}, the world in all {:?}", since.elapsed());
                        results.push(result.map_err(|why| format!("kill {kill}: {why}")));
                    }
                })
            })
            .collect();
        for result in worlds.into_iter().flat_map(|world| world.join().expect("a world panicked")) {
            match result {
                Ok(time) => times.push(time),
                Err(why) => failures.push(why),
            }
        }
    });
    let slowest = |which: usize| times.iter().map(|time| time[which]).max().unwrap_or_default();
    println!(
        "{program}: {} of {kills} kills: every survivor named the rank (the last after {:?}) and ended by itself (after {:?})",
        times.len(),
        slowest(0),
        slowest(1)
    );
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn survivors_name_the_killed_rank_while_the_host_waits() {
    survivors_name_the_killed_rank_and_end("host", 6, SOON);
}

#[test]
fn survivors_name_the_killed_rank_while_host_streams_wait() {
    survivors_name_the_killed_rank_and_end("streams", 6, SOON);
}

mod gpu {
    use super::*;

    #[test]
    #[ignore = "needs a GPU"]
    fn survivors_name_the_killed_rank_while_kernels_spin_and_gpus_are_idle_after() {
        survivors_name_the_killed_rank_and_end("kernels", 4, Duration::from_secs(2));
        // Nobody has left anything running: kernels of this process have each GPU for themselves.
        for ordinal in 0..CudaDevice::count().unwrap() {
            let device = Device::cuda(ordinal).unwrap();
            let stream = device.stream().unwrap();
            let buffer = Buffer::<u64>::new(&device, Space::Device, 1 << 20).unwrap();
            let since = Instant::now();
            for byte in 0..100 {
                stream.fill(&buffer, byte).unwrap();
            }
            stream.synchronize(soon()).unwrap();
            let took = since.elapsed();
            println!("GPU {ordinal}: 100 fills of 8 MiB in {took:?}");
            assert!(took < Duration::from_millis(100), "{took:?}");
        }
    }
}
