//! An all-reduce in a graph: a reduction of all ranks is captured once, between the work that makes its input and the work that takes its result,
//! and then replayed with one call a step. Host streams are captured, too, so it runs without a GPU.
//!
//! `all_reduce_graph [host] [VALUES [REPLAYS]]`: values of a rank (1000), replays (100); `host` keeps it on the CPU. Without a launcher: two
//! threads.

use std::time::Instant;

use libmp::{Device, ReduceOp, World};
use mp_examples::{Arguments, Failure, run, soon, verdict};

fn main() -> Result<(), Failure> {
    let arguments = Arguments::of_program()?;
    let (values, replays) = (arguments.number(0, 1000), arguments.number(1, 100));
    run(2, |world| rank(world, &arguments.device(world)?, values, replays))
}

/// What one rank does.
pub fn rank(world: &World, device: &Device, values: usize, replays: usize) -> Result<(), Failure> {
    let (rank, size, stream) = (world.rank(), world.size(), world.stream(device)?);
    // ANCHOR: capture
    let all = world.prepare_collective(device, values * size_of::<u64>())?;
    let (mine, sum) = (world.alloc::<u64>(device, values)?, world.alloc::<u64>(device, values)?);
    let total = world.alloc::<u64>(device, values)?;
    stream.begin_capture()?;
    all.all_reduce(ReduceOp::Sum, &mine, &sum).start_on(&stream)?;
    stream.copy(total.buffer(), sum.buffer())?; // in the place of a kernel that takes the result
    let graph = stream.end_capture()?;
    // ANCHOR_END: capture
    let mut right = true;
    for turn in 0..3 {
        let given: Vec<u64> = (0..values).map(|at| (at * (rank + 1) + turn) as u64).collect();
        mine.write(&given)?;
        stream.launch_graph(&graph)?;
        world.synchronize(&stream, soon())?;
        let ranks = size * (size + 1) / 2;
        let expected = (0..values).map(|at| (at * ranks + turn * size) as u64);
        right &= total.to_vec()?.into_iter().eq(expected);
    }
    world.barrier()?;
    let since = Instant::now();
    for _ in 0..replays {
        stream.launch_graph(&graph)?;
    }
    world.synchronize(&stream, soon())?;
    let each = since.elapsed().as_secs_f64() * 1e6 / replays as f64;
    let line = format!(
        "all_reduce_graph: {values} values on {size} ranks ({device}), {replays} replays: {each:.2} µs each"
    );
    verdict(world, right, &line)
}
