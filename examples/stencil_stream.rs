//! Heat on a square plate, as `stencil_host.rs`; here the messages are on the stream, between the launches that compute, and the host only
//! enqueues. Then the same once more as a graph: two steps, captured once and replayed with one call.
//!
//! `stencil_stream [host] [SIDE [STEPS]]`: cells a side (256), steps (50, rounded up to an even number); `host` keeps it on the CPU. Without a launcher:
//! two threads.

use std::time::Instant;

use libmp::gdsync::{Arg, Dims};
use libmp::{Device, Step, World};
use mp_examples::plate::Strip;
use mp_examples::{Arguments, Failure, kernel, run, soon, verdict};

fn main() -> Result<(), Failure> {
    let arguments = Arguments::of_program()?;
    let (side, steps) = (arguments.number(0, 256), arguments.number(1, 50));
    run(2, |world| rank(world, &arguments.device(world)?, side, steps))
}

/// What one rank does.
pub fn rank(world: &World, device: &Device, side: usize, steps: usize) -> Result<(), Failure> {
    let (strip, steps) = (Strip::new(world, device, side)?, steps.next_multiple_of(2));
    let (stream, sweep) = (world.stream(device)?, kernel(device, "sweep")?);
    let messages = strip.messages(world)?;
    let dims = if device.as_cuda().is_some() { Dims::linear(64, 256) } else { Dims::linear(2, 1) };
    let (rows, cells) = (strip.rows as u64, side as u64);
    // ANCHOR: step
    let enqueue = |turn: usize| -> Result<(), Failure> {
        let mut list = Vec::new();
        list.extend(messages[turn].iter().map(|(_, recv)| Step::start(recv)));
        list.extend(messages[turn].iter().map(|(send, _)| Step::start(send)));
        list.extend(messages[turn].iter().map(|(_, recv)| Step::wait(recv)));
        world.enqueue(&stream, &list)?; // one launch
        let (from, to) = (strip.address(turn), strip.address(1 - turn));
        let args = [Arg::new(&from), Arg::new(&to), Arg::new(&rows), Arg::new(&cells)];
        // SAFETY: the kernel's parameters; the plates live until the stream has been waited for.
        unsafe { stream.launch(&sweep, dims, &args)? };
        Ok(())
    };
    // ANCHOR_END: step
    world.barrier()?;
    let since = Instant::now();
    // ANCHOR: steps
    for step in 0..steps {
        enqueue(step % 2)?;
    }
    world.synchronize(&stream, soon())?;
    // ANCHOR_END: steps
    let each = since.elapsed().as_secs_f64() * 1e6 / steps as f64;
    // ANCHOR: graph
    stream.begin_capture()?;
    enqueue(0)?;
    enqueue(1)?;
    let two_steps = stream.end_capture()?;
    // ANCHOR_END: graph
    world.barrier()?;
    let since = Instant::now();
    for _ in 0..steps / 2 {
        stream.launch_graph(&two_steps)?;
    }
    world.synchronize(&stream, soon())?;
    let replayed = since.elapsed().as_secs_f64() * 1e6 / steps as f64;
    let (size, on) = (world.size(), device.to_string());
    let line = format!(
        "stencil_stream: {side} x {side} cells on {size} ranks ({on}), {steps} steps: {each:.2} µs each, {replayed:.2} µs from a graph"
    );
    verdict(world, strip.is_right(2 * steps)?, &line)
}
