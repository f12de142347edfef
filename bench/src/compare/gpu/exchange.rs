//! Exchanges of halos by this library: in a kernel (bench/peers/exchange.cu), and enqueued on a stream as a captured graph.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gdsync::{Arg, Buffer, Deadline, Dims, Graph};
use libmp::{Recv, Region, Send, Step};
use mp_kernels::{WaitBounds, WaitReport};

use super::floor::Pair;
use super::{ON_STREAMS, Player, Sample};
use crate::perf::Rank;
use crate::result::Role;

/// Rounds of a kernel, and those before its clock starts.
pub const ROUNDS: u64 = 500;
const UNTIMED: u64 = 50;
/// Bytes that suit a block, and the most blocks.
const PER_BLOCK: u64 = 16 << 10;
/// The most blocks.
pub const MOST_BLOCKS: u64 = 32;
/// Exchanges in a captured graph; even, since two pairs of messages are used in turn.
const IN_GRAPH: u64 = 20;

/// Blocks for a halo of `bytes`.
pub fn blocks(bytes: u64) -> u32 {
    (bytes / PER_BLOCK).clamp(1, MOST_BLOCKS) as u32
}

/// Puts and signals of a kernel.
pub fn kernel() -> Box<dyn Player> {
    Box::new(Kernel { bytes: 0, pair: None })
}

/// Sends and receives in a graph.
pub fn graph() -> Box<dyn Player> {
    Box::new(Captured { state: None })
}

struct Kernel {
    bytes: u64,
    pair: Option<Pair>,
}

impl Player for Kernel {
    fn name(&self) -> String {
        "libmp, kernel".into()
    }

    fn role(&self) -> Role {
        Role::Ours
    }

    fn prepare(&mut self, rank: &Rank, bytes: u64) -> Result<bool> {
        self.bytes = bytes;
        // Two landings.
        self.pair = Some(Pair::with_signals(rank, 2 * bytes, blocks(bytes) as usize + 1)?);
        Ok(true)
    }

    fn sample(&mut self, rank: &Rank) -> Result<Sample> {
        let pair = self.pair.as_mut().context("not prepared")?;
        let results: Buffer<u64> = rank.device.alloc_pinned(1 + size_of::<WaitReport>() / 8)?;
        let address = |buffer: Option<u64>| buffer.context("no address");
        let from = address(pair.source.buffer().device_address())?;
        let to = address(pair.other.device_address())?;
        let (mine, peer) = (pair.mine.device_address()?, pair.peer.device_address()?);
        let next = pair.window.signal_of(rank.world.rank(), 1)?.device_address()?;
        let (stride, bytes, base) = (next - mine, self.bytes, pair.base);
        let bounds = WaitBounds { abort: 0, timeout_ns: 10_000_000_000 };
        let time = address(results.device_address())?;
        let report = time + 8;
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
        let dims = Dims::linear(blocks(bytes), 1024);
        let kernel = rank.kernel("exchange")?;
        // SAFETY: the kernel's signature; pair and results outlive the synchronise below.
        unsafe { rank.stream.launch(&kernel, dims, &args)? };
        rank.world.synchronize(&rank.stream, Deadline::after(Duration::from_secs(60)))?;
        pair.base += UNTIMED + ROUNDS;
        let ns = results.to_vec()?[0];
        ensure!(ns > 0, "a wait of the kernel failed: it wrote no time");
        Ok(Sample::of(ns as f64 * 1e-3 / ROUNDS as f64))
    }
}

struct Captured {
    state: Option<State>,
}

struct State {
    sends: [Send; 2],
    recvs: [Recv; 2],
    graph: Option<Graph>,
}

impl Player for Captured {
    fn name(&self) -> String {
        "libmp, graph".into()
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
        self.state = Some(State { sends, recvs, graph: None });
        Ok(true)
    }

    fn sample(&mut self, rank: &Rank) -> Result<Sample> {
        let state = self.state.as_mut().context("not prepared")?;
        let stream = &rank.stream;
        let enqueue = |round: usize| -> Result<()> {
            let (send, recv) = (&state.sends[round % 2], &state.recvs[round % 2]);
            Ok(rank
                .world
                .enqueue(stream, &[Step::start(recv), Step::start(send), Step::wait(recv)])?)
        };
        if state.graph.is_none() {
            // Once as it is: what is made at the first use is not made in a capture.
            (0..IN_GRAPH as usize).try_for_each(enqueue)?;
            rank.world.synchronize(stream, Deadline::after(Duration::from_secs(60)))?;
            stream.begin_capture()?;
            (0..IN_GRAPH as usize).try_for_each(enqueue)?;
            state.graph = Some(stream.end_capture()?);
            rank.world.barrier()?;
        }
        let graph = state.graph.as_ref().context("no graph")?;
        let since = Instant::now();
        (0..ON_STREAMS / IN_GRAPH).try_for_each(|_| stream.launch_graph(graph))?;
        rank.world.synchronize(stream, Deadline::after(Duration::from_secs(60)))?;
        Ok(Sample::of(since.elapsed().as_secs_f64() * 1e6 / ON_STREAMS as f64))
    }
}
