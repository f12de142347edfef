//! Gets, an atomic operation and single words inside a kernel of rank 0, on the memory of rank 1, which does nothing meanwhile.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use gdsync::{Arg, Buffer, Deadline, Dims};

use super::floor::Pair;
use super::{IN_KERNELS, Player, Sample, rounds_in_kernels};
use crate::perf::{Rank, Watch};
use crate::result::Role;

/// Bytes of the gets whose latency is measured.
pub const SIZES: [u64; 3] = [8, 1 << 10, 64 << 10];
/// Blocks that put words, of so many threads, and the words of each, a multiple of 4.
pub const BLOCKS: [u64; 2] = [1, 132];
pub const THREADS: u32 = 256;
pub const WORDS: u64 = 10_000;
/// Rows of words that are written in turn (`mp_perf_words`).
const ROWS: u64 = 64;
/// Bytes that gets go through, so that none comes from a cache.
pub const SPREAD: u64 = 32 << 20;
/// Rounds before the clock starts.
const UNTIMED: u64 = 100;

/// Which of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum What {
    /// A get of a block, until it is there; x: bytes.
    Get,
    /// An addition that gives what the word held and orders nothing, by one thread.
    FetchAdd,
    /// The same, which acquires and releases.
    FetchAddOrdered,
    /// Words of 8 bytes by every thread of x blocks, until they are there; millions a second.
    Words,
}

impl What {
    /// The title of its figure.
    pub fn title(self) -> &'static str {
        match self {
            What::Get => "Get in a kernel, two GPUs",
            What::FetchAdd | What::FetchAddOrdered => "Fetch and add in a kernel, two GPUs",
            What::Words => "Rate of 8 B puts in a kernel, two GPUs",
        }
    }
}

/// By this library.
pub fn kernel(what: What) -> Box<dyn Player> {
    Box::new(Kernel { what, x: 0, pair: None })
}

struct Kernel {
    what: What,
    x: u64,
    pair: Option<Pair>,
}

impl Player for Kernel {
    fn name(&self) -> String {
        if self.what == What::FetchAddOrdered { "libmp, ordering memory" } else { "libmp, kernel" }
            .into()
    }

    fn role(&self) -> Role {
        Role::Ours
    }

    fn prepare(&mut self, rank: &Rank, x: u64) -> Result<bool> {
        let bytes = match self.what {
            What::Get => SPREAD,
            What::FetchAdd | What::FetchAddOrdered => 8,
            What::Words => 8 * x * u64::from(THREADS) * ROWS,
        };
        (self.x, self.pair) = (x, Some(Pair::new(rank, bytes, 1)?));
        Ok(true)
    }

    fn sample(&mut self, rank: &Rank) -> Result<Sample> {
        let pair = self.pair.as_ref().context("not prepared")?;
        if !rank.leads() {
            rank.world.barrier()?;
            return Ok(Sample::of(0.0));
        }
        let window = pair.window.handle()?;
        let value = match self.what {
            What::Get | What::FetchAdd | What::FetchAddOrdered => {
                self.latency(rank, pair, &window)?
            }
            What::Words => self.rate(rank, &window)?,
        };
        Ok(Sample::of(value))
    }
}

/// Threads of the block that gets: a word each, which needs no loop; 256 for long ones, which loop.
pub fn get_threads(size: u64) -> u32 {
    (size.div_ceil(8).clamp(32, 256) as u32).next_multiple_of(32)
}

impl Kernel {
    /// Microseconds of one.
    fn latency(&self, rank: &Rank, pair: &Pair, window: &mp_kernels::Window) -> Result<f64> {
        let gets = self.what == What::Get;
        let watch = Watch::of_all(rank, if gets { rounds_in_kernels(self.x) } else { IN_KERNELS })?;
        let to = pair.source.buffer().device_address().context("no address")?;
        let time = watch.time();
        // No two gets of a line of the cache.
        let (step, ordered) = (self.x.max(128), u32::from(self.what == What::FetchAddOrdered));
        let mut args = vec![Arg::new(window)];
        match gets {
            true => {
                args.extend([Arg::new(&to), Arg::new(&self.x), Arg::new(&step), Arg::new(&SPREAD)])
            }
            false => args.push(Arg::new(&ordered)),
        }
        args.extend([Arg::new(&UNTIMED), Arg::new(&watch.rounds), Arg::new(&time)]);
        let (name, threads) = match gets {
            true => ("mp_perf_gets", get_threads(self.x)),
            false => ("mp_perf_fetch_adds", 1),
        };
        // SAFETY: the kernel's signature; pair and watch outlive the launch, which `run` waits for.
        let rounds = unsafe { watch.run(rank, name, Dims::linear(1, threads), &args)? };
        Ok(rounds.median)
    }

    /// Millions of words a second.
    fn rate(&self, rank: &Rank, window: &mp_kernels::Window) -> Result<f64> {
        let blocks = self.x as u32;
        let stamps: Buffer<u64> = rank.device.alloc(2 * blocks as usize)?;
        let stamped = stamps.device_address().context("no address")?;
        let kernel = rank.kernel("mp_perf_words")?;
        rank.world.barrier()?;
        let args = [Arg::new(window), Arg::new(&WORDS), Arg::new(&stamped)];
        // SAFETY: the kernel's signature; window and stamps outlive the launch, which is waited for.
        unsafe { rank.stream.launch(&kernel, Dims::linear(blocks, THREADS), &args)? };
        rank.world.synchronize(&rank.stream, Deadline::after(Duration::from_secs(60)))?;
        let stamps = stamps.to_vec()?;
        let began = stamps.iter().step_by(2).min().context("no blocks")?;
        let ended = stamps.iter().skip(1).step_by(2).max().context("no blocks")?;
        ensure!(*began > 0 && ended > began, "a put of mp_perf_words failed");
        let words = WORDS * u64::from(THREADS) * self.x;
        Ok(words as f64 * 1e3 / (ended - began) as f64)
    }
}
