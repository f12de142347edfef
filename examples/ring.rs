//! A ring that turns inside a kernel (`ring.cu`): the host prepares one send and one receive a rank, launches once, and waits for the end.
//!
//! `ring [host] [CELLS [TURNS]]`: 64-bit cells of an edge (100), turns (1000); `host` keeps it on the CPU. Without a launcher: two threads.

use std::time::Instant;

use libmp::gdsync::{Arg, Dims};
use libmp::{Device, Region, World};
use mp_examples::{Arguments, Failure, kernel, run, soon, verdict};

fn main() -> Result<(), Failure> {
    let arguments = Arguments::of_program()?;
    let (cells, turns) = (arguments.number(0, 100), arguments.number(1, 1000));
    run(2, |world| rank(world, &arguments.device(world)?, cells, turns as u64))
}

/// What one rank does.
pub fn rank(world: &World, device: &Device, cells: usize, turns: u64) -> Result<(), Failure> {
    let (rank, size) = (world.rank(), world.size());
    let (stream, ring) = (world.stream(device)?, kernel(device, "ring")?);
    // ANCHOR: prepare
    let edge: Region<u64> = world.alloc(device, cells)?;
    let ghost: Region<u64> = world.alloc(device, cells)?;
    edge.write(&vec![1000 * rank as u64; cells])?;
    let send = world.peer((rank + 1) % size)?.send(&edge, 0).prepare()?;
    let recv = world.peer((rank + size - 1) % size)?.recv(&ghost, 0).prepare()?;
    let (to, from) = (send.handle()?, recv.handle()?);
    // ANCHOR_END: prepare
    let done = device.alloc_pinned::<u64>(1)?;
    let (count, address) = (cells as u64, done.device_address().ok_or("no address")?);
    let dims = Dims::linear(1, if device.as_cuda().is_some() { 128 } else { 2 });
    world.barrier()?;
    let since = Instant::now();
    // ANCHOR: launch
    let args =
        [Arg::new(&to), Arg::new(&from), Arg::new(&count), Arg::new(&turns), Arg::new(&address)];
    // SAFETY: the kernel's parameters; everything lives until the stream has been waited for.
    unsafe { stream.launch(&ring, dims, &args)? };
    world.synchronize(&stream, soon())?;
    // ANCHOR_END: launch
    let each = since.elapsed().as_secs_f64() * 1e6 / turns as f64;
    // What this rank has now was the edge of the rank `turns` to the left, one more each turn.
    let origin = (rank + size - (turns % size as u64) as usize) % size;
    let expected = vec![1000 * origin as u64 + turns; cells];
    let right = done.to_vec()?[0] == turns && edge.to_vec()? == expected;
    let on = device.to_string();
    let line =
        format!("ring: {turns} turns of {cells} cells on {size} ranks ({on}): {each:.2} µs each");
    verdict(world, right, &line)
}
