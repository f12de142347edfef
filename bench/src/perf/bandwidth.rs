//! Bandwidth from one rank's memory into the other's: a kernel with more and more blocks, the copy engine, or the CPU.

use std::time::Instant;

use anyhow::{Context, Result};
use gdsync::{Arg, Buffer, Dims};
use libmp::Region;

use super::{Rank, bar, soon};
use crate::result::{Axis, Figure, Plot, Point, Role, Series};

/// What is measured.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Sizes in bytes.
    pub sizes: Vec<u64>,
    /// Blocks of the copying kernel; 0: one on each multiprocessor.
    pub blocks: Vec<u32>,
    /// Bytes behind the beginning of a cache line where puts begin.
    pub offset: u64,
    /// Repeats.
    pub repeats: u32,
}

/// Bytes that a repeat moves, if its size is smaller.
const VOLUME: u64 = 1 << 30;
/// Threads of a copying block.
const THREADS: u32 = 1024;

/// Measures from rank 0 to rank 1.
///
/// # Errors
/// A copy that fails.
pub fn measure(rank: &Rank, plan: &Plan) -> Result<Vec<Figure>> {
    let largest = plan.sizes.iter().copied().max().context("no sizes")?;
    let room = largest as usize + plan.offset as usize;
    let region: Region<u8> = rank.world.alloc(&rank.device, room)?;
    let window = rank.world.window(&region, 0)?;
    let other = window.memory_of(1)?.clone();
    let source: Region<u8> = rank.world.alloc(&rank.device, largest as usize)?;
    let cuda = rank.device.as_cuda();
    let mut players = Vec::new();
    if let Some(cuda) = cuda {
        players.extend(plan.blocks.iter().map(|&blocks| match blocks {
            0 => Player::Kernel(cuda.capabilities().multiprocessors),
            blocks => Player::Kernel(blocks),
        }));
    }
    players.push(Player::Stream);
    let bar = bar(rank, players.len() * plan.sizes.len())?;
    let mut series = Vec::new();
    for player in players {
        let mut points = Vec::new();
        for &size in &plan.sizes {
            bar.set_message(format!("{}, {size} B", player.name(cuda.is_some())));
            let at = plan.offset as usize;
            let to = other.slice(at..at + size as usize)?;
            let from = source.buffer().slice(0..size as usize)?;
            let mut samples = Vec::new();
            for repeat in 0..=plan.repeats {
                rank.world.barrier()?;
                if rank.leads() {
                    let rate =
                        player.rate(rank, &to, &from, (VOLUME / size.max(1)).clamp(1, 2000))?;
                    // The first warms up.
                    samples.extend((repeat > 0).then_some(rate));
                }
            }
            points.push(Point { x: size as f64, samples, p99: None });
            bar.inc(1);
        }
        series.push(Series { name: player.name(cuda.is_some()), role: Role::Ours, points });
    }
    bar.finish_and_clear();
    rank.world.barrier()?;
    Ok(vec![Figure {
        title: "bandwidth of puts".into(),
        plot: Plot::Lines,
        x: Axis::log("size of a put", "B"),
        y: Axis::log("bandwidth", "GB/s"),
        less_is_better: false,
        series,
    }])
}

/// How it was measured.
pub fn method(rank: &Rank, plan: &Plan) -> Vec<String> {
    vec![format!(
        "One way between {}; 1 GiB a repeat in puts of the given size, at least one and at most 2000 of them, one after another into the same memory, {} bytes behind the beginning of a cache line; {} repeats; kernels of {THREADS} threads a block by the GPU's clock, from the first block's start until the last block's stores have arrived; streams by the CPU's clock; 1 GB = 10^9 bytes.",
        rank.ranks, plan.offset, plan.repeats
    )]
}

#[derive(Clone, Copy)]
enum Player {
    Kernel(u32),
    Stream,
}

impl Player {
    fn name(self, gpu: bool) -> String {
        match self {
            Player::Kernel(1) => "kernel, 1 block".into(),
            Player::Kernel(blocks) => format!("kernel, {blocks} blocks"),
            Player::Stream if gpu => "stream, copy engine".into(),
            Player::Stream => "stream, CPU".into(),
        }
    }

    /// GB/s of `rounds` copies.
    fn rate(self, rank: &Rank, to: &Buffer<u8>, from: &Buffer<u8>, rounds: u64) -> Result<f64> {
        let bytes = from.size() as u64;
        let ns = match self {
            Player::Kernel(blocks) => {
                let stamps: Buffer<u64> = rank.device.alloc(2 * blocks as usize)?;
                let address = |buffer: Option<u64>| buffer.context("no address");
                let (to, from) = (address(to.device_address())?, address(from.device_address())?);
                let at = address(stamps.device_address())?;
                let args = [
                    Arg::new(&to),
                    Arg::new(&from),
                    Arg::new(&bytes),
                    Arg::new(&rounds),
                    Arg::new(&at),
                ];
                let kernel = rank.kernel("mp_perf_bandwidth")?;
                // SAFETY: the kernel's signature; the memory outlives the synchronise below.
                unsafe { rank.stream.launch(&kernel, Dims::linear(blocks, THREADS), &args)? };
                rank.world.synchronize(&rank.stream, soon())?;
                let stamps = stamps.to_vec()?;
                let began = stamps.iter().step_by(2).min().context("no blocks")?;
                let ended = stamps.iter().skip(1).step_by(2).max().context("no blocks")?;
                ended.saturating_sub(*began) as f64
            }
            Player::Stream => {
                let since = Instant::now();
                for _ in 0..rounds {
                    rank.stream.copy(to, from)?;
                }
                rank.world.synchronize(&rank.stream, soon())?;
                since.elapsed().as_secs_f64() * 1e9
            }
        };
        Ok((bytes * rounds) as f64 / ns)
    }
}
