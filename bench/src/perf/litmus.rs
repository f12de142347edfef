//! Whether messages, puts and signals keep their order between GPUs: every message is filled anew, checked word by word, and
//! its buffer poisoned, many times. No figures; the first wrong word is an error.

use anyhow::{Result, ensure};
use gdsync::{Arg, Dims};
use libmp::{DeviceRecv, DeviceSend, Region};
use mp_kernels::{PingPong, WaitBounds};

use super::Rank;
use super::kernel::Watch;

/// Messages and puts of `size` bytes, a multiple of 8, `rounds` times back and forth each.
///
/// # Errors
/// A word that is not what was sent; no GPU.
pub fn check(rank: &Rank, size: u64, rounds: u64) -> Result<()> {
    ensure!(rank.device.as_cuda().is_some(), "the litmus tests run on GPUs, and there is none");
    ensure!(size > 0 && size.is_multiple_of(8), "{size} bytes: a multiple of 8 is needed");
    let rounds = rounds.div_ceil(2) * 2;
    messages(rank, size, rounds)?;
    puts(rank, size, rounds)
}

fn game(rank: &Rank, rounds: u64) -> PingPong {
    let serves = u32::from(rank.leads());
    PingPong { timed_rounds: rounds, serves, ..PingPong::default() }
}

fn dims(size: u64) -> Dims {
    Dims::linear(1, (size.div_ceil(8).clamp(32, 512) as u32).next_multiple_of(32))
}

fn messages(rank: &Rank, size: u64, rounds: u64) -> Result<()> {
    let peer = rank.peer()?;
    let region = || -> Result<Region<u8>> { Ok(rank.world.alloc(&rank.device, size as usize)?) };
    let send = |turn| -> Result<DeviceSend> { Ok(peer.send(&region()?, turn).prepare_device()?) };
    let recv = |turn| -> Result<DeviceRecv> { Ok(peer.recv(&region()?, turn).prepare_device()?) };
    let (sends, recvs) = ([send(0)?, send(1)?], [recv(0)?, recv(1)?]);
    // The serving side is one message ahead, see mp_perf_messages.
    let first = usize::from(rank.leads());
    let handles = [
        sends[first].handle()?.message,
        sends[1 - first].handle()?.message,
        recvs[0].handle()?.message,
        recvs[1].handle()?.message,
    ];
    let watch = Watch::new(rank, 1)?;
    let (checks, none) = (1u32, 0u64);
    let (time, mismatches, game) = (watch.time(), watch.mismatches(), game(rank, rounds));
    let args = [
        Arg::new(&handles),
        Arg::new(&game),
        Arg::new(&checks),
        Arg::new(&none),
        Arg::new(&time),
        Arg::new(&mismatches),
    ];
    // SAFETY: the kernel's signature; pairs and watch outlive the launch, which `run` waits for.
    unsafe { watch.run(rank, "mp_perf_messages", dims(size), &args)? };
    rank.world.barrier()?;
    Ok(())
}

fn puts(rank: &Rank, size: u64, rounds: u64) -> Result<()> {
    let landing: Region<u8> = rank.world.alloc(&rank.device, size as usize)?;
    let source: Region<u8> = rank.world.alloc(&rank.device, size as usize)?;
    let window = rank.world.device_window(&landing, 1)?;
    let (me, other) = (rank.world.rank(), 1 - rank.world.rank());
    let address = |buffer: &gdsync::Buffer<u8>| buffer.device_address().unwrap_or_default();
    let target = window.memory_of(other)?.map(address).unwrap_or_default();
    let (from, here) = (address(source.buffer()), address(landing.buffer()));
    let mut game = game(rank, rounds);
    game.mine = window.signal_of(me, 0)?.device_address()?;
    game.peer = window.signal_of(other, 0)?.device_address()?;
    let watch = Watch::new(rank, 1)?;
    let bounds = WaitBounds { abort: 0, timeout_ns: 10_000_000_000 };
    let (checks, none) = (1u32, 0u64);
    let (time, mismatches, report) = (watch.time(), watch.mismatches(), watch.report());
    let args = [
        Arg::new(&game),
        Arg::new(&from),
        Arg::new(&target),
        Arg::new(&here),
        Arg::new(&size),
        Arg::new(&checks),
        Arg::new(&bounds),
        Arg::new(&report),
        Arg::new(&none),
        Arg::new(&time),
        Arg::new(&mismatches),
    ];
    // SAFETY: the kernel's signature; regions, window and watch outlive the launch, which `run` waits for.
    unsafe { watch.run(rank, "mp_perf_puts", dims(size), &args)? };
    rank.world.barrier()?;
    Ok(())
}
