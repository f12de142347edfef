//! Tagged messages between memory of OpenCL devices and of the host, by any source and any tag: every rank sends what it has in OpenCL memory to
//! rank 0, which takes it as it comes, without having been told from whom.
//!
//! `tagged_opencl [BYTES]`: bytes of a message (1000000). Needs an OpenCL platform, such as PoCL. Without a launcher: three threads.

use std::time::Instant;

use libmp::World;
use libmp::gdsync::opencl::Context;
use libmp::tagged::{Options, Source, Tag};
use mp_examples::{Arguments, Failure, run, soon, verdict};

fn main() -> Result<(), Failure> {
    let bytes = Arguments::of_program()?.number(0, 1_000_000);
    let context = Context::open().unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(77) // nothing to run it on
    });
    run(3, |world| rank(world, &context, bytes))
}

/// What one rank does.
pub fn rank(world: &World, context: &Context, bytes: usize) -> Result<(), Failure> {
    let (rank, size) = (world.rank(), world.size());
    // ANCHOR: messages
    let messages = world.tagged(&Options::default())?;
    let memory = context.alloc(bytes)?; // a buffer of OpenCL; Memory::adopt takes one that there is
    let mut right = true;
    let since = Instant::now();
    if rank == 0 {
        for _ in 1..size {
            let mut recv = messages.irecv(&memory, Source::Any, Tag::Any)?;
            let status = recv.wait(soon())?;
            right &= status.bytes == bytes && status.tag == 10 * status.source as u64;
            right &= memory.to_vec()? == pattern(bytes, status.source);
        }
    } else {
        memory.write(&pattern(bytes, rank))?;
        messages.isend(&memory, 0, 10 * rank as u64)?.wait(soon())?;
    }
    // ANCHOR_END: messages
    let rate = (bytes * (size - 1)) as f64 / since.elapsed().as_secs_f64() / 1e9;
    let others = size - 1;
    let line = format!(
        "tagged_opencl: {bytes} bytes from each of {others} ranks to another one, OpenCL memory: {rate:.2} GB/s, comparing included"
    );
    verdict(world, right, &line)
}

/// What a rank sends.
fn pattern(bytes: usize, rank: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + at / 251 + rank) as u8).collect()
}
