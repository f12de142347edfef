//! Heat on a square plate that is cut into strips of rows, one a rank: a kernel computes, and the host, between two launches, sends the edge
//! rows to the ranks above and below and waits for theirs. `stencil_stream.rs` is the same with a stream that does it.
//!
//! `stencil_host [host] [SIDE [STEPS]]`: cells a side (256), steps (50); `host` keeps it on the CPU. Without a launcher: two threads.

use std::time::Instant;

use libmp::gdsync::{Arg, Dims};
use libmp::{Device, Operation, World, wait_all};
use mp_examples::plate::Strip;
use mp_examples::{Arguments, Failure, kernel, run, soon, verdict};

fn main() -> Result<(), Failure> {
    let arguments = Arguments::of_program()?;
    let (side, steps) = (arguments.number(0, 256), arguments.number(1, 50));
    run(2, |world| rank(world, &arguments.device(world)?, side, steps))
}

/// What one rank does.
pub fn rank(world: &World, device: &Device, side: usize, steps: usize) -> Result<(), Failure> {
    let strip = Strip::new(world, device, side)?;
    let (stream, sweep) = (world.stream(device)?, kernel(device, "sweep")?);
    let messages = strip.messages(world)?;
    let dims = if device.as_cuda().is_some() { Dims::linear(64, 256) } else { Dims::linear(2, 1) };
    let (rows, cells) = (strip.rows as u64, side as u64);
    world.barrier()?;
    let since = Instant::now();
    // ANCHOR: steps
    for step in 0..steps {
        let turn = step % 2;
        let mut operations: Vec<&dyn Operation> = Vec::new();
        for (send, recv) in &messages[turn] {
            recv.start()?; // the row beyond the edge may be written
            send.start()?;
            operations.extend([send as &dyn Operation, recv]);
        }
        wait_all(&operations, soon())?;
        let (from, to) = (strip.address(turn), strip.address(1 - turn));
        let args = [Arg::new(&from), Arg::new(&to), Arg::new(&rows), Arg::new(&cells)];
        // SAFETY: the kernel's parameters; the plates live until the stream has been waited for.
        unsafe { stream.launch(&sweep, dims, &args)? };
        world.synchronize(&stream, soon())?; // the next messages carry what it wrote
    }
    // ANCHOR_END: steps
    let each = since.elapsed().as_secs_f64() * 1e6 / steps as f64;
    let (size, on) = (world.size(), device.to_string());
    let line = format!(
        "stencil_host: {side} x {side} cells on {size} ranks ({on}), {steps} steps: {each:.2} µs each"
    );
    verdict(world, strip.is_right(steps)?, &line)
}
