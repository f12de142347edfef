//! Device operations between ranks that are processes: over shared memory on host streams, over CUDA IPC on a GPU; and the
//! death of a rank while the others' streams and kernels wait for it.

mod common;

use std::time::{Duration, Instant};

use common::{say, start_mprun};
use libmp::gdsync::Space;
use libmp::{Deadline, Device, DeviceRecv, DeviceSend, Region, Result, Stream, World};

const START: Duration = Duration::from_secs(60);

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

/// A rank process: what it does is chosen by the test that starts it.
#[test]
#[ignore = "is a rank of the other tests"]
fn a_rank() {
    let world = World::init().unwrap();
    let device = match std::env::var("TEST_DEVICE").as_deref() {
        Ok("gpu") => Device::cuda(0).unwrap(),
        _ => Device::Host,
    };
    match std::env::var("TEST_PROGRAM").unwrap().as_str() {
        "ring" => ring(&world, &device).unwrap(),
        "endless" => {
            let error = endless(&world, &device).unwrap_err();
            say(error);
            drop(world);
            std::process::exit(3);
        }
        other => panic!("no program {other}"),
    }
    world.finish().unwrap();
    say("done");
}

struct Ring {
    stream: Stream,
    out: Region<u64>,
    here: Region<u64>,
    send: DeviceSend,
    recv: DeviceRecv,
}

impl Ring {
    fn new(world: &World, device: &Device, len: usize) -> Result<Ring> {
        let (rank, size) = (world.rank(), world.size());
        let (out, here) = (world.alloc(device, len)?, world.alloc(device, len)?);
        out.write(&vec![rank as u64; len])?;
        let send = world.peer((rank + 1) % size)?.send(&out, 1).prepare_device()?;
        let recv = world.peer((rank + size - 1) % size)?.recv(&here, 1).prepare_device()?;
        send.handle()?;
        recv.handle()?;
        Ok(Ring { stream: world.stream(device)?, out, here, send, recv })
    }

    fn turn(&self, world: &World) -> Result<()> {
        let Ring { stream, out, here, send, recv } = self;
        world.enqueue(stream, &[recv.start(), send.start(), recv.wait()])?;
        stream.copy(out.buffer(), here.buffer()).expect("both are regions of the stream's device");
        Ok(())
    }
}

/// What every rank had goes round, as packets and in one piece; at the end it is where it was.
fn ring(world: &World, device: &Device) -> Result<()> {
    for len in [3, 5000] {
        let ring = Ring::new(world, device, len)?;
        for turn in 0..5 * world.size() {
            ring.turn(world)?;
            world.synchronize(&ring.stream, soon())?;
            let from = (world.rank() + (turn + 1) * (world.size() - 1)) % world.size();
            assert_eq!(ring.here.to_vec()?, vec![from as u64; len]);
        }
        // The peers' memory is mapped here until all are done.
        world.barrier()?;
    }
    Ok(())
}

/// A ring without end, replayed as a graph; rank 0 takes its time, so most of the time the others wait in it.
fn endless(world: &World, device: &Device) -> Result<()> {
    let ring = Ring::new(world, device, 2000)?;
    ring.stream.begin_capture().unwrap();
    for _ in 0..4 {
        ring.turn(world)?;
    }
    let graph = ring.stream.end_capture().unwrap();
    world.barrier()?;
    say("ready");
    loop {
        ring.stream
            .launch_graph(&graph)
            .map_err(|source| libmp::Error::Memory { op: "replaying a graph".into(), source })?;
        world.synchronize(&ring.stream, soon())?;
        if world.rank() == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn rings_of_processes_turn(device: &str, sizes: &[usize]) {
    for &size in sizes {
        let mut ranks = start_mprun("ring", size, &[("TEST_DEVICE", device)]);
        for (number, rank) in ranks.iter_mut().enumerate() {
            assert_eq!(rank.next(START).as_deref(), Some("done"), "rank {number} of {size}");
            assert_eq!(rank.end(START), Some(0));
        }
    }
}

/// Kills a rank of 4 at some moment, again and again: every survivor names it, ends by itself, and leaves the device idle.
fn survivors_of_a_killed_rank_name_it_and_end(device: &str, kills: u64, within: Duration) {
    for kill in 0..kills {
        let victim = (kill % 4) as usize;
        let mut ranks = start_mprun("endless", 4, &[("TEST_DEVICE", device)]);
        for rank in &ranks {
            assert_eq!(rank.next(START).as_deref(), Some("ready"));
        }
        // A moment of its own for each, without a clock that could be in step with the ring.
        std::thread::sleep(Duration::from_micros(1000 + mp_kernels::pattern(kill, 0) % 40_000));
        let since = Instant::now();
        ranks[victim].signal(libc::SIGKILL);
        for (number, rank) in ranks.iter_mut().enumerate().filter(|(number, _)| *number != victim) {
            let text = rank.next(within).unwrap();
            assert!(text.starts_with(&format!("rank {victim} on ")), "rank {number}: {text}");
            assert!(text.contains("is lost"), "rank {number}: {text}");
            assert_eq!(rank.end(within), Some(3));
        }
        assert!(since.elapsed() < within, "{:?}", since.elapsed());
        println!("rank {victim} killed: named and all ended after {:?}", since.elapsed());
    }
}

#[test]
fn rings_of_processes_turn_on_host_streams() {
    rings_of_processes_turn("host", &[1, 2, 5]);
}

#[test]
fn survivors_of_a_killed_rank_name_it_and_end_while_host_streams_wait() {
    survivors_of_a_killed_rank_name_it_and_end("host", 8, Duration::from_secs(3));
}

mod gpu {
    use super::*;

    #[test]
    #[ignore = "needs a GPU"]
    fn rings_of_processes_turn_on_a_gpu() {
        rings_of_processes_turn("gpu", &[1, 2, 4]);
    }

    /// `TEST_KILLS`: how many times; 4 by default.
    #[test]
    #[ignore = "needs a GPU"]
    fn survivors_of_a_killed_rank_name_it_and_end_while_kernels_spin() {
        let kills = std::env::var("TEST_KILLS").ok().and_then(|kills| kills.parse().ok());
        survivors_of_a_killed_rank_name_it_and_end(
            "gpu",
            kills.unwrap_or(4),
            Duration::from_secs(8),
        );
        // Nobody has left anything running: a kernel of this process has the GPU for itself.
        let device = Device::cuda(0).unwrap();
        let stream = device.stream().unwrap();
        let buffer = libmp::gdsync::Buffer::<u64>::new(&device, Space::Device, 1 << 20).unwrap();
        let since = Instant::now();
        for byte in 0..100 {
            stream.fill(&buffer, byte).unwrap();
        }
        stream.synchronize(soon()).unwrap();
        assert!(since.elapsed() < Duration::from_millis(100), "{:?}", since.elapsed());
    }
}
