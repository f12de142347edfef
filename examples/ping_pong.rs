//! A message back and forth between ranks 0 and 1: the time one way, started and completed by the host, and on a stream.
//!
//! `ping_pong [host] [BYTES]`: bytes of the message (1024); `host` keeps it in the CPU's memory. Without a launcher: two threads.

use std::time::Instant;

use libmp::{Deadline, Device, Operation, Step, World};
use mp_examples::{Arguments, Failure, run, soon, verdict};

/// Round trips of a sample, and samples, of which the median is printed.
const ROUNDS: usize = 50;
const SAMPLES: usize = 11;

fn main() -> Result<(), Failure> {
    let arguments = Arguments::of_program()?;
    let bytes = arguments.number(0, 1024);
    run(2, |world| rank(world, &arguments.device(world)?, bytes))
}

/// What one rank does.
pub fn rank(world: &World, device: &Device, bytes: usize) -> Result<(), Failure> {
    let me = world.rank();
    if me > 1 {
        return verdict(world, true, "");
    }
    let (first, peer, stream) = (me == 0, world.peer(1 - me)?, world.stream(device)?);
    let (out, here) = (world.alloc::<u8>(device, bytes)?, world.alloc::<u8>(device, bytes)?);
    out.write(&pattern(bytes, me))?;
    let (send, recv) = (peer.send(&out, 0).prepare()?, peer.recv(&here, 0).prepare()?);
    // ANCHOR: host
    let by_the_host = |deadline: Deadline| -> libmp::Result<()> {
        recv.start()?;
        if first {
            send.start()?;
            recv.wait(deadline)?;
        } else {
            recv.wait(deadline)?;
            send.start()?;
        }
        send.wait(deadline)
    };
    // ANCHOR_END: host
    // ANCHOR: stream
    let on_the_stream = || -> libmp::Result<()> {
        let (post, send, wait) = (Step::start(&recv), Step::start(&send), Step::wait(&recv));
        let steps = if first { [post, send, wait] } else { [post, wait, send] };
        world.enqueue(&stream, &steps)
    };
    // ANCHOR_END: stream
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..SAMPLES {
        for (form, times) in times.iter_mut().enumerate() {
            let since = Instant::now();
            for _ in 0..ROUNDS {
                if form == 0 { by_the_host(soon())? } else { on_the_stream()? }
            }
            world.synchronize(&stream, soon())?;
            times.push(since.elapsed().as_secs_f64() * 1e6 / (2 * ROUNDS) as f64);
        }
    }
    let [by_host, on_stream] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[SAMPLES / 2]
    });
    let line = format!(
        "ping_pong: {bytes} bytes ({device}) one way: {by_host:.2} µs by the host, {on_stream:.2} µs on a stream (medians of {SAMPLES})"
    );
    verdict(world, here.to_vec()? == pattern(bytes, 1 - me), &line)
}

/// What a rank sends.
fn pattern(bytes: usize, rank: usize) -> Vec<u8> {
    (0..bytes).map(|at| (7 * at + rank) as u8).collect()
}
