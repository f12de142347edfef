//! The bare machine between two GPUs: the copy engine and the driver's stream memory operations, and kernels of plain
//! loads and stores (bench/peers/floor.cu). No library on the same path can do with less.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gdsync::{Arg, Buffer, Deadline, Dims, Word64};
use libmp::{Region, Window};

use super::{ON_STREAMS, Player, Sample, VOLUME, rounds_in_kernels};
use crate::perf::Rank;
use crate::result::Role;

/// Rounds of a kernel before its clock starts.
const UNTIMED: u64 = 100;
/// Copies of [`VOLUME`] in a sample.
const COPIES: u64 = 16;

/// Both ranks' memory, each reaching the other's.
pub struct Pair {
    pub window: Window<u8>,
    pub source: Region<u8>,
    pub other: Buffer<u8>,
    /// The signal here, and the other rank's.
    pub mine: Word64,
    pub peer: Word64,
    /// The highest signal so far.
    pub base: u64,
}

impl Pair {
    /// With `size` bytes and so many signals on each side.
    pub fn new(rank: &Rank, size: u64, signals: usize) -> Result<Pair> {
        let landing: Region<u8> = rank.world.alloc(&rank.device, size as usize)?;
        let source: Region<u8> = rank.world.alloc(&rank.device, size as usize)?;
        let window = rank.world.window(&landing, signals)?;
        let (me, other) = (rank.world.rank(), 1 - rank.world.rank());
        let (mine, peer) = (window.signal_of(me, 0)?, window.signal_of(other, 0)?);
        let memory = window.memory_of(other)?.clone();
        Ok(Pair { window, source, other: memory, mine, peer, base: 0 })
    }
}

fn synchronize(rank: &Rank) -> Result<()> {
    Ok(rank.world.synchronize(&rank.stream, Deadline::after(Duration::from_secs(60)))?)
}

/// Copy engine, then `write64`; the other side has `wait64`.
pub fn copy_engine() -> Box<dyn Player> {
    Box::new(Streams { data: true, pair: None })
}

/// `write64` and `wait64` alone.
pub fn words() -> Box<dyn Player> {
    Box::new(Streams { data: false, pair: None })
}

struct Streams {
    data: bool,
    pair: Option<Pair>,
}

impl Player for Streams {
    fn name(&self) -> String {
        let name = if self.data { "copy engine, write, wait" } else { "write and wait, no data" };
        name.into()
    }

    fn role(&self) -> Role {
        Role::Floor
    }

    fn prepare(&mut self, rank: &Rank, size: u64) -> Result<bool> {
        // Without data one size is enough.
        if !self.data && self.pair.is_some() {
            return Ok(false);
        }
        self.pair = Some(Pair::new(rank, size, 1)?);
        Ok(true)
    }

    fn sample(&mut self, rank: &Rank) -> Result<Sample> {
        let data = self.data;
        let pair = self.pair.as_mut().context("not prepared")?;
        let stream = &rank.stream;
        let since = Instant::now();
        for _ in 0..ON_STREAMS {
            pair.base += 1;
            let send = |pair: &Pair| -> Result<()> {
                if data {
                    stream.copy(&pair.other, pair.source.buffer())?;
                }
                Ok(stream.write64(&pair.peer, pair.base)?)
            };
            if rank.leads() {
                send(pair)?;
            }
            stream.wait_geq64(&pair.mine, pair.base)?;
            if !rank.leads() {
                send(pair)?;
            }
        }
        let enqueued = since.elapsed().as_secs_f64();
        synchronize(rank)?;
        let elapsed = since.elapsed().as_secs_f64();
        let rounds = ON_STREAMS as f64;
        Ok(Sample { value: elapsed * 0.5e6 / rounds, cpu: Some(enqueued * 1e6 / rounds) })
    }
}

/// The copy engine alone; the same at any number of blocks.
pub fn copy_engine_bandwidth() -> Box<dyn Player> {
    Box::new(Copies { by_kernel: false, blocks: 0, pair: None })
}

/// A message and its flag by one block.
pub fn put() -> Box<dyn Player> {
    Box::new(Put { size: 0, pair: None })
}

/// Copies by so many blocks.
pub fn bandwidth() -> Box<dyn Player> {
    Box::new(Copies { by_kernel: true, blocks: 0, pair: None })
}

struct Put {
    size: u64,
    pair: Option<Pair>,
}

impl Player for Put {
    fn name(&self) -> String {
        "plain stores, release".into()
    }

    fn role(&self) -> Role {
        Role::Floor
    }

    fn prepare(&mut self, rank: &Rank, size: u64) -> Result<bool> {
        if !size.is_multiple_of(8) {
            return Ok(false);
        }
        (self.size, self.pair) = (size, Some(Pair::new(rank, size, 1)?));
        Ok(true)
    }

    fn sample(&mut self, rank: &Rank) -> Result<Sample> {
        let pair = self.pair.as_mut().context("not prepared")?;
        let time: Buffer<u64> = rank.device.alloc_pinned(1)?;
        let address = |buffer: Option<u64>| buffer.context("no address");
        let (mine, peer) = (pair.mine.device_address()?, pair.peer.device_address()?);
        let from = address(pair.source.buffer().device_address())?;
        let to = address(pair.other.device_address())?;
        let (bytes, base, rounds) = (self.size, pair.base, rounds_in_kernels(self.size));
        let (serves, at) = (u32::from(rank.leads()), address(time.device_address())?);
        let args = [
            Arg::new(&mine),
            Arg::new(&peer),
            Arg::new(&from),
            Arg::new(&to),
            Arg::new(&bytes),
            Arg::new(&base),
            Arg::new(&UNTIMED),
            Arg::new(&rounds),
            Arg::new(&serves),
            Arg::new(&at),
        ];
        let threads = crate::perf::latency::suitable_threads(self.size);
        let kernel = rank.kernel("floor_put")?;
        // SAFETY: the kernel's signature; window, source and time outlive the synchronise below.
        unsafe { rank.stream.launch(&kernel, Dims::linear(1, threads), &args)? };
        synchronize(rank)?;
        pair.base += UNTIMED + rounds;
        let ns = time.to_vec()?[0];
        ensure!(ns > 0 || !rank.leads(), "floor_put wrote no time");
        Ok(Sample::of(ns as f64 * 1e-3 / rounds as f64 / 2.0))
    }
}

struct Copies {
    /// Not by the copy engine.
    by_kernel: bool,
    blocks: u32,
    pair: Option<Pair>,
}

impl Player for Copies {
    fn name(&self) -> String {
        if self.by_kernel { "plain stores".into() } else { "copy engine".into() }
    }

    fn role(&self) -> Role {
        Role::Floor
    }

    fn prepare(&mut self, rank: &Rank, blocks: u64) -> Result<bool> {
        self.blocks = u32::try_from(blocks)?;
        if self.pair.is_none() {
            self.pair = Some(Pair::new(rank, VOLUME, 1)?);
        }
        Ok(true)
    }

    fn sample(&mut self, rank: &Rank) -> Result<Sample> {
        if !rank.leads() {
            return Ok(Sample::of(0.0));
        }
        let pair = self.pair.as_ref().context("not prepared")?;
        let from = pair.source.buffer().device_address().context("no address")?;
        let to = pair.other.device_address().context("no address")?;
        let (bytes, copies) = (VOLUME, COPIES);
        let since = Instant::now();
        if self.by_kernel {
            let args = [Arg::new(&to), Arg::new(&from), Arg::new(&bytes), Arg::new(&copies)];
            let kernel = rank.kernel("floor_copy")?;
            // SAFETY: the kernel's signature; the window outlives the synchronise below.
            unsafe { rank.stream.launch(&kernel, Dims::linear(self.blocks, 1024), &args)? };
        } else {
            for _ in 0..copies {
                rank.stream.copy(&pair.other, pair.source.buffer())?;
            }
        }
        synchronize(rank)?;
        Ok(Sample::of((bytes * copies) as f64 * 1e-9 / since.elapsed().as_secs_f64()))
    }
}
