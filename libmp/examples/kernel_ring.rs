//! A ring of GPUs that turns inside a kernel: the host prepares one send and one receive a rank, launches once, and waits for
//! the end. The kernel is `kernel_ring.cu`, compiled beforehand as its first lines say.
//!
//! `mprun --per-gpu target/release/examples/kernel_ring kernel_ring.fatbin`; without a launcher the ranks are two threads
//! on the first GPU. Arguments: the compiled kernel, 64-bit cells of an edge (100), turns (10000).

use std::time::{Duration, Instant};

use libmp::gdsync::{Arg, Dims};
use libmp::{Deadline, Device, Region, World};

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("the compiled kernel is missing, see kernel_ring.cu")?;
    // Code is loaded for as long as the program runs.
    let image: &'static [u8] = std::fs::read(&path).map_err(|e| format!("{path}: {e}"))?.leak();
    let cells: usize = arguments.next().map_or(Ok(100), |word| word.parse())?;
    let turns: u64 = arguments.next().map_or(Ok(10_000), |word| word.parse())?;
    let world = World::init()?;
    if world.size() > 1 {
        return rank(world, image, cells, turns);
    }
    world.finish()?;
    std::thread::scope(|scope| {
        let ranks: Vec<_> = World::threads(2)?
            .into_iter()
            .map(|world| scope.spawn(move || rank(world, image, cells, turns)))
            .collect();
        ranks.into_iter().try_for_each(|rank| rank.join().expect("a rank panicked"))
    })
}

fn rank(world: World, image: &'static [u8], cells: usize, turns: u64) -> Result<(), Failure> {
    let (rank, size) = (world.rank(), world.size());
    let device = Device::cuda(world.assigned_gpu().map_or(Ok(0), str::parse)?)?;
    let gpu = device.as_cuda().ok_or("no GPU")?;
    let module = gpu.load_module(image, &["ring"])?;
    let stream = world.stream(&device)?;
    let edge: Region<u64> = world.alloc(&device, cells)?;
    let ghost: Region<u64> = world.alloc(&device, cells)?;
    edge.write(&vec![1000 * rank as u64; cells])?;
    let send = world.peer((rank + 1) % size)?.send(&edge, 0).prepare()?;
    let recv = world.peer((rank + size - 1) % size)?.recv(&ghost, 0).prepare()?;
    let (to, from) = (send.handle()?, recv.handle()?);
    let done = device.alloc_pinned::<u64>(1)?;
    let (count, address) = (cells as u64, done.device_address().ok_or("no address")?);
    world.barrier()?;
    let since = Instant::now();
    let args =
        [Arg::new(&to), Arg::new(&from), Arg::new(&count), Arg::new(&turns), Arg::new(&address)];
    // SAFETY: the kernel's parameters; everything lives until the stream has been waited for.
    unsafe { stream.launch(&module.kernel("ring")?, Dims::linear(1, 128), &args)? };
    world.synchronize(&stream, Deadline::after(Duration::from_secs(60)))?;
    let each = since.elapsed().as_secs_f64() * 1e6 / turns as f64;
    let turned = done.to_vec()?[0];
    // What this rank has now was the edge of the rank `turns` to the left, one more each turn.
    let origin = (rank + size - (turns % size as u64) as usize) % size;
    let expected = vec![1000 * origin as u64 + turns; cells];
    let right = turned == turns && edge.to_vec()? == expected;
    let agreeing = world.sum(u64::from(right))?;
    if rank == 0 {
        println!(
            "{turns} turns of {cells} cells on {size} ranks, {each:.2} µs each: {agreeing} ranks are right"
        );
    }
    world.barrier()?;
    if agreeing < size as u64 {
        return Err(format!("rank {rank}: {turned} turns of {turns}, right: {right}").into());
    }
    Ok(world.finish()?)
}
