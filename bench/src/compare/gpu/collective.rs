//! Collectives of this library between GPUs: started on streams, and an all-reduce inside a kernel.

use std::time::Instant;

use anyhow::{Context, Result};
use gdsync::{Arg, Deadline, Dims, Graph};
use libmp::{Collective, ReduceOp, Region};

use super::{IN_KERNELS, ON_STREAMS, Player, Sample};
use crate::perf::{self, GRAPHS, IN_GRAPH, Rank, Watch};
use crate::result::Role;
use mp_program::peer::patience;

/// Which collective; `x` of its figure is bytes of the result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// All-reduce of `f64`, a sum.
    Reduce,
    /// All-gather, of each rank its share of the result.
    Gather,
    /// All-to-all, of each rank its share of the result.
    Exchange,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 3] = [Kind::Reduce, Kind::Gather, Kind::Exchange];

    /// As figures call it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Reduce => "All-reduce",
            Kind::Gather => "All-gather",
            Kind::Exchange => "All-to-all",
        }
    }

    /// Words of a result of at most so many bytes: of one that has shares a whole number from each rank, and one at least.
    pub fn words(self, bytes: u64, ranks: usize) -> usize {
        let words = bytes as usize / size_of::<f64>();
        match self {
            Kind::Reduce => words,
            Kind::Gather | Kind::Exchange => (words / ranks).max(1) * ranks,
        }
    }
}

/// Bytes of results: what is one word, what goes as packets, and what is bound by bandwidth.
pub const SIZES: [u64; 5] = [8, 1 << 10, 64 << 10, 1 << 20, 64 << 20];

/// The most bytes of an all-reduce by one block: larger ones are for all multiprocessors.
pub const MOST_IN_KERNEL: u64 = 8 << 10;

/// Threads of that block.
pub fn threads(bytes: u64) -> u32 {
    ((bytes / 8) as u32).next_multiple_of(32).clamp(32, 512)
}

/// Rounds of a sample with so many bytes: small ones are one batch (see `perf`).
pub fn rounds(bytes: u64) -> u64 {
    ((1 << 30) / bytes.max(1)).clamp(10, ON_STREAMS)
}

/// Enqueues `rounds` runs, waits for them, and gives the time of one.
fn on_stream(rank: &Rank, rounds: u64, start: impl Fn(usize) -> Result<()>) -> Result<Sample> {
    let since = Instant::now();
    (0..rounds as usize).try_for_each(start)?;
    let enqueued = since.elapsed().as_secs_f64();
    rank.world.synchronize(&rank.stream, Deadline::after(patience() / 2))?;
    let (elapsed, each) = (since.elapsed().as_secs_f64(), 1e6 / rounds as f64);
    Ok(Sample { value: elapsed * each, cpu: Some(enqueued * each) })
}

/// A captured graph of rounds, made at the first sample; none, for those that are not captured.
pub struct Captured(Option<Option<Graph>>);

impl Captured {
    /// None yet.
    pub fn new(captured: bool) -> Captured {
        Captured(captured.then_some(None))
    }

    /// How a figure calls it.
    pub fn name(&self) -> &'static str {
        if self.0.is_some() { "graph" } else { "stream" }
    }

    /// Forgets the graph, since what it uses ends.
    pub fn clear(&mut self) {
        *self = Captured::new(self.0.is_some());
    }

    /// The time of one of `rounds`, of which each is what `start` enqueues, told its number.
    pub fn sample(
        &mut self,
        rank: &Rank,
        rounds: u64,
        start: impl Fn(usize) -> Result<()>,
    ) -> Result<Sample> {
        let Some(graph) = &mut self.0 else {
            return on_stream(rank, rounds, start);
        };
        if graph.is_none() {
            *graph = Some(perf::in_graph(rank, start)?);
        }
        let graph = graph.as_ref().context("no graph")?;
        let replay = |_| Ok(rank.stream.launch_graph(graph)?);
        let launches = (GRAPHS * rounds).div_ceil(IN_GRAPH);
        let Sample { value, cpu } = on_stream(rank, launches, replay)?;
        let share = 1.0 / IN_GRAPH as f64;
        Ok(Sample { value: value * share, cpu: cpu.map(|cpu| cpu * share) })
    }
}

/// On streams, or captured from them.
pub fn stream(kind: Kind, captured: bool) -> Box<dyn Player> {
    Box::new(OnStream { kind, captured: Captured::new(captured), prepared: None })
}

/// The all-reduce of few values by one block.
pub fn kernel() -> Box<dyn Player> {
    Box::new(InKernel { prepared: None })
}

struct OnStream {
    kind: Kind,
    captured: Captured,
    prepared: Option<Prepared>,
}

struct Prepared {
    all: Collective,
    from: Region<f64>,
    to: Region<f64>,
    bytes: u64,
}

impl Player for OnStream {
    fn name(&self) -> String {
        format!("libmp, {}", self.captured.name())
    }

    fn role(&self) -> Role {
        Role::Ours
    }

    fn prepare(&mut self, rank: &Rank, bytes: u64) -> Result<bool> {
        let ranks = rank.world.size();
        let len = self.kind.words(bytes, ranks);
        let given = if self.kind == Kind::Gather { len / ranks } else { len };
        let all = rank.world.prepare_collective(&rank.device, 8 * len)?;
        let from = rank.world.alloc(&rank.device, given)?;
        let to = rank.world.alloc(&rank.device, len)?;
        self.captured.clear();
        self.prepared = Some(Prepared { all, from, to, bytes });
        Ok(true)
    }

    fn sample(&mut self, rank: &Rank) -> Result<Sample> {
        let Prepared { all, from, to, bytes } = self.prepared.as_ref().context("not prepared")?;
        self.captured.sample(rank, rounds(*bytes), |_| {
            let run = match self.kind {
                Kind::Reduce => all.all_reduce(ReduceOp::Sum, from, to),
                Kind::Gather => all.all_gather(from, to),
                Kind::Exchange => all.all_to_all(from, to),
            };
            Ok(run.start_on(&rank.stream)?)
        })
    }
}

struct InKernel {
    prepared: Option<(Collective, Region<f64>)>,
}

impl Player for InKernel {
    fn name(&self) -> String {
        "libmp, kernel".into()
    }

    fn role(&self) -> Role {
        Role::Ours
    }

    fn prepare(&mut self, rank: &Rank, bytes: u64) -> Result<bool> {
        if bytes > MOST_IN_KERNEL {
            return Ok(false);
        }
        let len = bytes as usize / size_of::<f64>();
        let all = rank.world.prepare_collective(&rank.device, bytes as usize)?;
        self.prepared = Some((all, rank.world.alloc(&rank.device, len)?));
        Ok(true)
    }

    fn sample(&mut self, rank: &Rank) -> Result<Sample> {
        let (all, values) = self.prepared.as_ref().context("not prepared")?;
        let watch = Watch::of_all(rank, IN_KERNELS)?;
        let (handle, untimed) = (all.handle(), 100u64);
        let address = values.buffer().device_address().context("no address")?;
        let count = values.len() as u64;
        let time = watch.time();
        let args = [
            Arg::new(&handle),
            Arg::new(&address),
            Arg::new(&count),
            Arg::new(&untimed),
            Arg::new(&watch.rounds),
            Arg::new(&time),
        ];
        let threads = threads(8 * count);
        // SAFETY: the kernel's signature; collective, values and watch outlive the launch, which `run` waits for.
        let rounds =
            unsafe { watch.run(rank, "mp_perf_all_reduce", Dims::linear(1, threads), &args)? };
        Ok(Sample::of(rounds.median))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_has_the_same_share_of_a_result_and_no_share_is_empty() {
        for ranks in 2..=8 {
            for bytes in SIZES {
                assert_eq!(Kind::Reduce.words(bytes, ranks) as u64, bytes / 8);
                for kind in [Kind::Gather, Kind::Exchange] {
                    let words = kind.words(bytes, ranks);
                    assert!(words >= ranks && words.is_multiple_of(ranks), "{words} of {ranks}");
                    let most = (bytes as usize / 8).max(ranks);
                    assert!((most + 1 - ranks..=most).contains(&words), "{words} of {bytes} B");
                }
            }
        }
    }
}
