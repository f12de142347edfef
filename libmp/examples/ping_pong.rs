//! Ping-pong between ranks 0 and 1: the time of a message one way, started by the host or on a stream.
//!
//! `mprun -n 2 target/release/examples/ping_pong` for processes; without a launcher the ranks are two threads.
//! Arguments: `host` (default) or `stream`, then sizes in bytes.

use std::time::{Duration, Instant};

use libmp::{Deadline, Device, Operation, Region, Result, World};

/// Round trips of a sample, and samples, of which the median is printed.
const ROUNDS: u32 = 1000;
const SAMPLES: usize = 21;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).peekable();
    let stream = arguments.next_if(|word| word == "host" || word == "stream");
    let stream = stream.as_deref() == Some("stream");
    let mut sizes =
        arguments.map(|word| word.parse()).collect::<std::result::Result<Vec<_>, _>>()?;
    if sizes.is_empty() {
        sizes = vec![8, 1024, 65536, 1 << 20];
    }
    let world = World::init()?;
    if world.size() > 1 {
        return Ok(rank(world, stream, &sizes)?);
    }
    world.finish()?;
    std::thread::scope(|scope| {
        let sizes = &sizes;
        let ranks: Vec<_> = World::threads(2)?
            .into_iter()
            .map(|world| scope.spawn(move || rank(world, stream, sizes)))
            .collect();
        ranks.into_iter().try_for_each(|rank| rank.join().expect("a rank panicked"))?;
        Ok(())
    })
}

fn rank(world: World, on_stream: bool, sizes: &[usize]) -> Result<()> {
    if world.rank() < 2 {
        let stream = world.stream(&Device::Host)?;
        let peer = world.peer(1 - world.rank())?;
        for (tag, &size) in (0..).zip(sizes) {
            let out: Region<u8> = world.alloc(&Device::Host, size)?;
            let here: Region<u8> = world.alloc(&Device::Host, size)?;
            let send = peer.send(&out, tag).prepare()?;
            let recv = peer.recv(&here, tag).prepare()?;
            let deadline = || Deadline::after(Duration::from_secs(20));
            let first = world.rank() == 0;
            let mut times = Vec::new();
            for _ in 0..SAMPLES {
                let begin = Instant::now();
                for _ in 0..ROUNDS {
                    if on_stream {
                        recv.start_on(&stream)?;
                        if first {
                            send.start_on(&stream)?;
                            recv.wait_on(&stream)?;
                        } else {
                            recv.wait_on(&stream)?;
                            send.start_on(&stream)?;
                        }
                    } else {
                        recv.start()?;
                        if first {
                            send.start()?;
                            recv.wait(deadline())?;
                        } else {
                            recv.wait(deadline())?;
                            send.start()?;
                        }
                        send.wait(deadline())?;
                    }
                }
                world.synchronize(&stream, deadline())?;
                times.push(begin.elapsed().as_secs_f64() * 1e6 / f64::from(2 * ROUNDS));
            }
            times.sort_by(f64::total_cmp);
            if first {
                let how = if on_stream { "host stream" } else { "host" };
                let (median, slow) = (times[SAMPLES / 2], times[SAMPLES - 1]);
                println!(
                    "{size:>9} B  {how}: {median:8.2} us one way (median of {SAMPLES}, worst {slow:.2})"
                );
            }
        }
    }
    world.finish()
}
