//! Heat on a square plate, computed by blocks that are ranks (`device_ranks.cu`): one launch does all steps, and no rank of the host takes part. The
//! first borders are put by the host, with the rest of the plate.
//!
//! `device_ranks [host] [LINES [STEPS [RANKS]]]`: rows of a rank (8), steps (50), ranks of a device (4, or 64 of a GPU); the plate is as wide as
//! it is high. `host` keeps it on the CPU. Without a launcher: two threads.

use std::time::Instant;

use dranks::{Options, Ranks};
use libmp::gdsync::Arg;
use libmp::{Device, World};
use mp_examples::plate::{is_right, start};
use mp_examples::{Arguments, Failure, kernel, run, soon, verdict};

fn main() -> Result<(), Failure> {
    let arguments = Arguments::of_program()?;
    let (lines, steps) = (arguments.number(0, 8), arguments.number(1, 50));
    run(2, |world| {
        let device = arguments.device(world)?;
        let each = arguments.number(2, if device.as_cuda().is_some() { 64 } else { 4 });
        rank(world, &device, lines, steps, each as u32)
    })
}

/// What one device does with so many ranks.
pub fn rank(
    world: &World,
    device: &Device,
    lines: usize,
    steps: usize,
    each: u32,
) -> Result<(), Failure> {
    let (stream, plate) = (world.stream(device)?, kernel(device, "plate_of_ranks")?);
    let (here, all) = (each as usize, each as usize * world.size());
    let side = all * lines;
    let first = world.rank() * here * lines;
    // Of each rank two plates with a row more above and below.
    let room = (lines + 2) * side;
    let memory = world.alloc::<f64>(device, here * 2 * room)?;
    let mut plates = vec![0.0; memory.len()];
    let framed = [vec![0.0; side], start(side), vec![0.0; side]].concat();
    for number in 0..here {
        let at = (first + number * lines) * side;
        plates[2 * number * room..][..room].copy_from_slice(&framed[at..at + room]);
    }
    memory.write(&plates)?;
    let address = memory.buffer().device_address().unwrap_or(0);
    let (lines_of_rank, width, count) = (lines as u64, side as u64, steps as u64);
    world.barrier()?;
    // ANCHOR: launch
    let ranks = Ranks::open(world, &memory, &Options::new(each))?;
    let args = [Arg::new(&address), Arg::new(&lines_of_rank), Arg::new(&width), Arg::new(&count)];
    let threads = if device.as_cuda().is_some() { 128 } else { 1 };
    let since = Instant::now();
    // SAFETY: the kernel's parameters; the memory lives until the stream has been waited for.
    unsafe { ranks.launch(&stream, &plate, threads, 0, &args)? };
    ranks.synchronize(&stream, soon())?;
    // ANCHOR_END: launch
    let time = since.elapsed().as_secs_f64() * 1e6 / steps as f64;
    let found = memory.to_vec()?;
    let of_rank =
        |number: usize| &found[(2 * number + steps % 2) * room..][side..(lines + 1) * side];
    let rows: Vec<f64> = (0..here).flat_map(of_rank).copied().collect();
    let right = is_right(&rows, first, side, steps);
    let line = format!(
        "device_ranks: {side} x {side} cells on {all} ranks ({device}), {steps} steps: {time:.2} µs each"
    );
    verdict(world, right, &line)
}
