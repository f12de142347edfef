//! A computation of chosen length, bound by arithmetic or by memory, on the device of a rank: what communication is hidden
//! behind. On a GPU the kernel `mp_perf_work`, on the host a loop.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::ValueEnum;
use gdsync::{Arg, Buffer, Dims, Kernel, Stream};

use super::{Rank, soon};

/// What bounds the computation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Bound {
    /// Multiply-adds in registers.
    Compute,
    /// Reading and writing more memory than the caches hold.
    Memory,
}

impl Bound {
    /// Both.
    pub const ALL: [Bound; 2] = [Bound::Compute, Bound::Memory];

    /// "bound by …".
    pub fn name(self) -> &'static str {
        match self {
            Bound::Compute => "arithmetic",
            Bound::Memory => "memory",
        }
    }
}

/// Threads of a block, as `mp_perf_work` has them.
pub const THREADS: u32 = 512;
/// 64-bit numbers that the computation goes over: 256 MiB on a GPU, 64 MiB on the host.
const WORDS: (usize, usize) = (32 << 20, 8 << 20);
/// How long the run takes that says how fast it is.
const CALIBRATION: f64 = 500e-6;

/// A computation on a rank's device.
pub struct Work {
    bound: Bound,
    place: Place,
    /// Steps of its loop in a second.
    speed: f64,
}

enum Place {
    Host(Arc<Mutex<Vec<f64>>>),
    Gpu { kernel: Kernel, words: Buffer<f64>, blocks: u32 },
}

impl Work {
    /// Makes one and finds out how fast it is.
    ///
    /// # Errors
    /// No memory; what the driver says.
    pub fn new(rank: &Rank, bound: Bound) -> Result<Work> {
        let place = match rank.device.as_cuda() {
            None => Place::Host(Arc::new(Mutex::new(vec![1.0; WORDS.1]))),
            // One block on each multiprocessor: there is room left for what communicates.
            Some(cuda) => Place::Gpu {
                kernel: rank.kernel("mp_perf_work")?,
                words: rank.device.alloc(WORDS.0)?,
                blocks: cuda.capabilities().multiprocessors,
            },
        };
        let mut work = Work { bound, place, speed: 0.0 };
        let mut amount = 1000;
        loop {
            rank.world.barrier()?;
            let since = Instant::now();
            work.enqueue(&rank.stream, amount)?;
            rank.world.synchronize(&rank.stream, soon())?;
            let seconds = since.elapsed().as_secs_f64();
            work.speed = amount as f64 / seconds;
            // The slower rank decides, so that both ask equally often.
            if rank.world.min(seconds)? >= CALIBRATION {
                return Ok(work);
            }
            amount *= 2;
        }
    }

    /// The steps of its loop that take about so long.
    pub fn amount(&self, seconds: f64) -> u64 {
        ((seconds * self.speed) as u64).max(1)
    }

    /// Blocks it runs in.
    pub fn blocks(&self) -> u32 {
        match &self.place {
            Place::Host(_) => 1,
            Place::Gpu { blocks, .. } => *blocks,
        }
    }

    /// What a kernel takes of it: the bound, the words' address and number.
    ///
    /// # Errors
    /// On the host.
    pub fn arguments(&self) -> Result<(u32, u64, u64)> {
        let Place::Gpu { words, .. } = &self.place else { anyhow::bail!("no GPU") };
        let address = words.device_address().context("no address")?;
        Ok((u32::from(self.bound == Bound::Memory), address, words.len() as u64))
    }

    /// Enqueues `amount` steps.
    ///
    /// # Errors
    /// What the driver says.
    pub fn enqueue(&self, stream: &Stream, amount: u64) -> Result<()> {
        match &self.place {
            Place::Host(words) => {
                let (words, bound) = (words.clone(), self.bound);
                stream.call(move || compute(bound, amount, &words))?;
            }
            Place::Gpu { kernel, blocks, .. } => {
                let (bound, address, count) = self.arguments()?;
                let args =
                    [Arg::new(&bound), Arg::new(&amount), Arg::new(&address), Arg::new(&count)];
                // SAFETY: the kernel's signature; the words live as long as this, which its users keep until the stream
                // has been waited for.
                unsafe { stream.launch(kernel, Dims::linear(*blocks, THREADS), &args)? };
            }
        }
        Ok(())
    }

    /// Does `amount` steps now if it is the host's, else enqueues them.
    ///
    /// # Errors
    /// What the driver says.
    pub fn run(&self, stream: &Stream, amount: u64) -> Result<()> {
        match &self.place {
            Place::Host(words) => {
                compute(self.bound, amount, words);
                Ok(())
            }
            Place::Gpu { .. } => self.enqueue(stream, amount),
        }
    }
}

fn compute(bound: Bound, amount: u64, words: &Mutex<Vec<f64>>) {
    let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
    match bound {
        Bound::Compute => {
            let value = (0..amount).fold(words[0], |value, _| 0.5 * value + 1.0);
            words[0] = std::hint::black_box(value);
        }
        Bound::Memory => {
            let mut left = amount as usize;
            while left > 0 {
                let now = left.min(words.len());
                words[..now].iter_mut().for_each(|word| *word = 0.5 * *word + 1.0);
                left -= now;
            }
            std::hint::black_box(&words[0]);
        }
    }
}
