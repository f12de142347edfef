//! Device operations between ranks that are processes: over shared memory on host streams, over CUDA IPC on a GPU. The death of
//! a rank meanwhile is in `kills.rs`.

mod common;

use std::time::Duration;

use common::{say, start_mprun};
use libmp::{Deadline, Device, Recv, Region, Result, Send, Step, Stream, World};

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
        other => panic!("no program {other}"),
    }
    world.finish().unwrap();
    say("done");
}

struct Ring {
    stream: Stream,
    out: Region<u64>,
    here: Region<u64>,
    send: Send,
    recv: Recv,
}

impl Ring {
    fn new(world: &World, device: &Device, len: usize) -> Result<Ring> {
        let (rank, size) = (world.rank(), world.size());
        let (out, here) = (world.alloc(device, len)?, world.alloc(device, len)?);
        out.write(&vec![rank as u64; len])?;
        let send = world.peer((rank + 1) % size)?.send(&out, 1).prepare()?;
        let recv = world.peer((rank + size - 1) % size)?.recv(&here, 1).prepare()?;
        send.handle()?;
        recv.handle()?;
        Ok(Ring { stream: world.stream(device)?, out, here, send, recv })
    }

    fn turn(&self, world: &World) -> Result<()> {
        let Ring { stream, out, here, send, recv } = self;
        world.enqueue(stream, &[Step::start(recv), Step::start(send), Step::wait(recv)])?;
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

fn rings_of_processes_turn(device: &str, sizes: &[usize]) {
    for &size in sizes {
        let mut ranks = start_mprun("ring", size, &[("TEST_DEVICE", device)]);
        for (number, rank) in ranks.iter_mut().enumerate() {
            assert_eq!(rank.next(START).as_deref(), Some("done"), "rank {number} of {size}");
            assert_eq!(rank.end(START), Some(0));
        }
    }
}

#[test]
fn rings_of_processes_turn_on_host_streams() {
    rings_of_processes_turn("host", &[1, 2, 5]);
}

mod gpu {
    use super::*;

    #[test]
    #[ignore = "needs a GPU"]
    fn rings_of_processes_turn_on_a_gpu() {
        rings_of_processes_turn("gpu", &[1, 2, 4]);
    }
}
