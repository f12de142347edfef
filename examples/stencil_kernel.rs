//! Heat on a square plate, as `stencil_host.rs` and `stencil_stream.rs`; here one kernel a step (`stencil.cu`) sends the edge rows, computes the
//! inside meanwhile, waits for the neighbours' rows and computes the rest. The host only launches.
//!
//! `stencil_kernel [host] [SIDE [STEPS]]`: cells a side (256), steps (50); `host` keeps it on the CPU. Without a launcher: two threads.

use std::time::Instant;

use libmp::gdsync::{Arg, Dims};
use libmp::{Device, World};
use mp_examples::plate::Strip;
use mp_examples::{Arguments, Failure, kernel, run, soon, verdict};
use mp_kernels::{Recv, Send};

fn main() -> Result<(), Failure> {
    let arguments = Arguments::of_program()?;
    let (side, steps) = (arguments.number(0, 256), arguments.number(1, 50));
    run(2, |world| rank(world, &arguments.device(world)?, side, steps))
}

// ANCHOR: halo
/// `Halo` of stencil.cu.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Halo {
    send: Send,
    recv: Recv,
    there: u64,
}
// ANCHOR_END: halo

/// What one rank does.
pub fn rank(world: &World, device: &Device, side: usize, steps: usize) -> Result<(), Failure> {
    let strip = Strip::new(world, device, side)?;
    let (stream, stencil) = (world.stream(device)?, kernel(device, "stencil")?);
    // ANCHOR: handles
    let messages = strip.messages(world)?; // the handles are valid as long as these
    let mut halos = [[Halo::default(); 2]; 2];
    for (halos, messages) in halos.iter_mut().zip(&messages) {
        for (edge, (send, recv)) in strip.edges.iter().zip(messages) {
            let below = usize::from(edge.neighbour > world.rank());
            halos[below] = Halo { send: send.handle()?, recv: recv.handle()?, there: 1 };
        }
    }
    // ANCHOR_END: handles
    // Four blocks exchange.
    let dims = if device.as_cuda().is_some() { Dims::linear(64, 256) } else { Dims::linear(6, 1) };
    let (rows, cells) = (strip.rows as u64, side as u64);
    world.barrier()?;
    let since = Instant::now();
    // ANCHOR: steps
    for step in 0..steps {
        let turn = step % 2;
        let [above, below] = &halos[turn];
        let (from, to) = (strip.address(turn), strip.address(1 - turn));
        let [above, below] = [Arg::new(above), Arg::new(below)];
        let args =
            [above, below, Arg::new(&from), Arg::new(&to), Arg::new(&rows), Arg::new(&cells)];
        // SAFETY: the kernel's parameters; everything lives until the stream has been waited for.
        unsafe { stream.launch(&stencil, dims, &args)? };
    }
    world.synchronize(&stream, soon())?;
    // ANCHOR_END: steps
    let each = since.elapsed().as_secs_f64() * 1e6 / steps as f64;
    let (size, on) = (world.size(), device.to_string());
    let line = format!(
        "stencil_kernel: {side} x {side} cells on {size} ranks ({on}), {steps} steps: {each:.2} µs each"
    );
    verdict(world, strip.is_right(steps)?, &line)
}
