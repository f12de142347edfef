//! Exchanges of halos by this library: in a kernel (bench/cuda/exchange.cu), and enqueued on a stream as a captured graph.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use gdsync::{Arg, Buffer, Deadline, Dims};
use libmp::{Recv, Region, Send, Step};
use mp_kernels::{WaitBounds, WaitReport};

use super::collective::Captured;
use super::floor::Pair;
use super::{ON_STREAMS, Player, Sample};
use crate::perf::Rank;
use crate::perf::latency::suitable_threads;
use crate::result::Role;

/// Rounds of a kernel, and those before its clock starts.
pub const ROUNDS: u64 = 500;
const UNTIMED: u64 = 50;
/// Halos of up to so many bytes go by messages, one of each block, which go as packets. (More packets than that both ways at once
/// hold each other up: 256 KiB take from 2 to 130 µs.)
const BY_MESSAGES: u64 = 64 << 10;
/// Bytes that suit a block that sends and receives.
const PER_MESSAGE: u64 = 1 << 10;
/// Bytes that suit a block that puts and signals, and the most blocks.
const PER_PUT: u64 = 16 << 10;
pub const MOST_BLOCKS: u64 = 32;

/// Blocks for a halo of `bytes` by puts.
pub fn blocks_of_puts(bytes: u64) -> u32 {
    (bytes / PER_PUT).clamp(1, MOST_BLOCKS) as u32
}

/// In a kernel: small halos by messages, large ones by puts and signals.
pub fn kernel() -> Box<dyn Player> {
    Box::new(Kernel { by: None })
}

/// Sends and receives in a graph.
pub fn graph() -> Box<dyn Player> {
    Box::new(OnStream { captured: Captured::new(true), state: None })
}

struct Kernel {
    by: Option<By>,
}

enum By {
    Messages(Ends),
    Puts(Box<Pair>, u64),
}

/// The messages of the blocks, and their handles.
struct Ends {
    _sends: Vec<Send>,
    _recvs: Vec<Recv>,
    table: Buffer<mp_kernels::Message>,
    dims: Dims,
}

impl Player for Kernel {
    fn name(&self) -> String {
        "libmp, kernel".into()
    }

    fn role(&self) -> Role {
        Role::Ours
    }

    fn prepare(&mut self, rank: &Rank, bytes: u64) -> Result<bool> {
        self.by = Some(match bytes <= BY_MESSAGES {
            true => By::Messages(Ends::new(rank, bytes)?),
            // Two landings.
            false => {
                let pair = Pair::new(rank, 2 * bytes, blocks_of_puts(bytes) as usize + 1)?;
                By::Puts(Box::new(pair), bytes)
            }
        });
        Ok(true)
    }

    fn sample(&mut self, rank: &Rank) -> Result<Sample> {
        let results: Buffer<u64> = rank.device.alloc_pinned(1 + size_of::<WaitReport>() / 8)?;
        let time = address(results.device_address())?;
        match self.by.as_mut().context("not prepared")? {
            By::Messages(ends) => ends.run(rank, time)?,
            By::Puts(pair, bytes) => puts(rank, pair, *bytes, time)?,
        }
        let ns = results.to_vec()?[0];
        ensure!(ns > 0, "a wait of the kernel failed: it wrote no time");
        Ok(Sample::of(ns as f64 * 1e-3 / ROUNDS as f64))
    }
}

fn address(buffer: Option<u64>) -> Result<u64> {
    buffer.context("no address")
}

impl Ends {
    fn new(rank: &Rank, bytes: u64) -> Result<Ends> {
        let peer = rank.peer()?;
        let blocks = bytes.div_ceil(PER_MESSAGE).clamp(1, MOST_BLOCKS);
        let each = bytes.div_ceil(blocks).next_multiple_of(16);
        let region =
            || -> Result<Region<u8>> { Ok(rank.world.alloc(&rank.device, bytes as usize)?) };
        let (from, to) = (region()?, region()?);
        let share = |of: &Region<u8>, block: u64| {
            let end = bytes.min((block + 1) * each);
            of.slice((block * each).min(end) as usize..end as usize)
        };
        let (mut sends, mut recvs) = (Vec::new(), Vec::new());
        for block in 0..blocks {
            // No tag of the graph's messages.
            let tag = (bytes << 16) + block;
            recvs.push(peer.recv(&share(&to, block)?, tag).prepare()?);
            sends.push(peer.send(&share(&from, block)?, tag).prepare()?);
        }
        let mut handles = Vec::new();
        for (send, recv) in sends.iter().zip(&recvs) {
            handles.extend([send.handle()?.message, recv.handle()?.message]);
        }
        let table = rank.device.alloc(handles.len())?;
        table.write(&handles)?;
        let dims = Dims::linear(blocks as u32, suitable_threads(each));
        Ok(Ends { _sends: sends, _recvs: recvs, table, dims })
    }

    fn run(&self, rank: &Rank, time: u64) -> Result<()> {
        let table = address(self.table.device_address())?;
        let args = [Arg::new(&table), Arg::new(&UNTIMED), Arg::new(&ROUNDS), Arg::new(&time)];
        let kernel = rank.kernel("exchange")?;
        // SAFETY: the kernel's signature; what it uses outlives the synchronise below.
        unsafe { rank.stream.launch(&kernel, self.dims, &args)? };
        Ok(rank.world.synchronize(&rank.stream, Deadline::after(Duration::from_secs(60)))?)
    }
}

fn puts(rank: &Rank, pair: &mut Pair, bytes: u64, time: u64) -> Result<()> {
    let from = address(pair.source.buffer().device_address())?;
    let to = address(pair.other.device_address())?;
    let (mine, peer) = (pair.mine.device_address()?, pair.peer.device_address()?);
    let next = pair.window.signal_of(rank.world.rank(), 1)?.device_address()?;
    let (stride, base, report) = (next - mine, pair.base, time + 8);
    let bounds = WaitBounds { abort: 0, timeout_ns: 10_000_000_000 };
    let args = [
        Arg::new(&from),
        Arg::new(&to),
        Arg::new(&bytes),
        Arg::new(&mine),
        Arg::new(&peer),
        Arg::new(&stride),
        Arg::new(&base),
        Arg::new(&UNTIMED),
        Arg::new(&ROUNDS),
        Arg::new(&bounds),
        Arg::new(&report),
        Arg::new(&time),
    ];
    let kernel = rank.kernel("exchange_puts")?;
    let dims = Dims::linear(blocks_of_puts(bytes), 1024);
    // SAFETY: the kernel's signature; what it uses outlives the synchronise below.
    unsafe { rank.stream.launch(&kernel, dims, &args)? };
    rank.world.synchronize(&rank.stream, Deadline::after(Duration::from_secs(60)))?;
    pair.base += UNTIMED + ROUNDS;
    Ok(())
}

struct OnStream {
    captured: Captured,
    state: Option<State>,
}

struct State {
    sends: [Send; 2],
    recvs: [Recv; 2],
}

impl Player for OnStream {
    fn name(&self) -> String {
        format!("libmp, {}", self.captured.name())
    }

    fn role(&self) -> Role {
        Role::Ours
    }

    fn prepare(&mut self, rank: &Rank, bytes: u64) -> Result<bool> {
        let peer = rank.peer()?;
        let region =
            || -> Result<Region<u8>> { Ok(rank.world.alloc(&rank.device, bytes as usize)?) };
        let send = |turn| -> Result<_> { Ok(peer.send(&region()?, 2 * bytes + turn).prepare()?) };
        let recv = |turn| -> Result<_> { Ok(peer.recv(&region()?, 2 * bytes + turn).prepare()?) };
        let (sends, recvs) = ([send(0)?, send(1)?], [recv(0)?, recv(1)?]);
        // Both sides are known before anything is enqueued.
        recvs[1].handle()?;
        sends[1].handle()?;
        self.captured.clear();
        self.state = Some(State { sends, recvs });
        Ok(true)
    }

    fn sample(&mut self, rank: &Rank) -> Result<Sample> {
        let state = self.state.as_ref().context("not prepared")?;
        let stream = &rank.stream;
        let enqueue = |round: usize| -> Result<()> {
            let (send, recv) = (&state.sends[round % 2], &state.recvs[round % 2]);
            Ok(rank
                .world
                .enqueue(stream, &[Step::start(recv), Step::start(send), Step::wait(recv)])?)
        };
        self.captured.sample(rank, ON_STREAMS, enqueue)
    }
}
