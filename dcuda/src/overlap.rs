//! Overlap: how much of an exchange is hidden behind a computation, or the other way round, by ranks that share multiprocessors (the paper's
//! Figures 7 and 8), and beside it on a stream, where one comes after the other. The code is the same with and without each of the two.

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use dranks::{Options, Ranks};
use libmp::Region;
use mp_program::{Spread, within};

use crate::halo::{Halo, Pieces};
use crate::kernels::{Overlap, PACKET, ROOTS_AT_ONCE};
use crate::machine::{Machine, Plan, address, on_devices, same};
use crate::table::{Line, Unit};

/// What is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Work {
    /// Square roots by Newton's method, a step for 512 of them a unit.
    Newton,
    /// Copies of 1 KiB a unit.
    Copy,
}

/// Who exchanges with whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Topology {
    /// Each rank with the one before and the one behind: only the first and last of a device with another device.
    Chain,
    /// Each rank with that of the same number on the device before and the one behind.
    AllRemote,
}

/// What is measured.
#[derive(Debug, Clone, clap::Args)]
pub struct Choices {
    /// What is computed.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "newton,copy")]
    work: Vec<Work>,
    /// Who exchanges with whom. Default: chain, and with several devices all-remote too.
    #[arg(long, value_enum, value_delimiter = ',')]
    topology: Vec<Topology>,
    /// Lengths of the computation, as multiples of the exchange's.
    #[arg(long, value_delimiter = ',', default_value = "0.1,0.3,1,3,10", value_parser = within(0.01..=100.0_f64))]
    ratios: Vec<f64>,
    /// Units of the computation, instead of these ratios.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    units: Vec<u64>,
    /// KiB that each rank copies before it begins anew.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1 << 16))]
    copied: u64,
}

/// Square roots of a rank.
const ROOTS: u64 = ROOTS_AT_ONCE * PACKET;
/// Words behind those of the ranks: see overlap.cuh.
const COUNTS: u64 = 2;
/// Where in a rank's memory what it copies begins: see overlap.cuh.
const SOURCE: u64 = 6 * PACKET + ROOTS;
/// Of how many units the time of one is taken.
const PROBE: u64 = 256;

/// Who drives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Ranks,
    Stream,
}

struct Bench<'a> {
    machine: &'a Machine,
    plan: &'a Plan,
    memory: Region<u64>,
    ranks: Ranks,
    args: Overlap,
    /// What the stream sends, in even iterations and in odd ones; of a chain, and of all to other devices.
    halos: [[Halo; 2]; 2],
}

impl Bench<'_> {
    fn new<'a>(machine: &'a Machine, plan: &'a Plan, choices: &Choices) -> Result<Bench<'a>> {
        let copied = choices.copied * PACKET;
        let words = SOURCE + 2 * copied;
        // Behind the ranks' memory their times, and counts.
        let memory = machine.memory(u64::from(machine.ranks) * (words + 2) + COUNTS)?;
        let ranks = machine.open(&memory, &Options::new(machine.ranks))?;
        let share = |rank: u64| 8 * rank * words..8 * (rank * words + 5 * PACKET);
        ranks.window(&(0..u64::from(machine.ranks)).map(share).collect::<Vec<_>>())?;
        let begin = address(&memory)?;
        let time = begin + 8 * u64::from(machine.ranks) * words;
        let args =
            Overlap { memory: begin, words, copied, time, exchanges: 1, ..Overlap::default() };
        let chain = [0, 1].map(|parity| halo(machine, &memory, words, false, parity));
        let [even, odd] = chain;
        let chain = [even?, odd?];
        let remote = match machine.world.size() {
            1 => [Halo::default(), Halo::default()],
            _ => {
                let remote = [0, 1].map(|parity| halo(machine, &memory, words, true, parity));
                let [even, odd] = remote;
                [even?, odd?]
            }
        };
        Ok(Bench { machine, plan, memory, ranks, args, halos: [chain, remote] })
    }

    /// What is copied, and nothing else.
    fn begin(&self) -> Result<()> {
        let rank = |rank: u64| {
            let source = SOURCE..SOURCE + self.args.copied;
            (0..self.args.words).map(move |word| {
                if source.contains(&word) { copied(rank, word).to_bits() } else { 0 }
            })
        };
        let words = (0..u64::from(self.machine.ranks)).flat_map(rank);
        let ranks = self.memory.slice(0..self.own())?;
        ranks.write(&words.collect::<Vec<_>>())?;
        self.begin_counting()?;
        Ok(self.machine.world.barrier()?)
    }

    /// Words of the ranks' own memory.
    fn own(&self) -> usize {
        self.machine.ranks as usize * self.args.words as usize
    }

    /// Nobody has written a time, or counted.
    fn begin_counting(&self) -> Result<()> {
        let counts = self.memory.slice(self.own()..self.memory.len())?;
        Ok(counts.write(&vec![0; counts.len()])?)
    }

    fn run(&self, form: Form, args: Overlap) -> Result<()> {
        if form == Form::Ranks {
            return self.machine.run(&self.ranks, "dcuda_overlap", args);
        }
        let stage = |turn, stage| {
            let args = Overlap { turns: turn, stage, ..args };
            self.machine.launch_knowing(&self.ranks, "dcuda_overlap_stage", args)
        };
        self.machine.on_stream(args.turns, |turn| {
            stage(turn, 0)?;
            if args.exchanges == 0 {
                return Ok(());
            }
            let halo = &self.halos[args.across as usize][(turn % 2) as usize];
            self.machine.world.enqueue(&self.machine.stream, &halo.steps())?;
            stage(turn, 1)
        })
    }

    /// All that is exchanged and computed.
    fn check(&self, driver: Form, form: &str, args: Overlap) -> Result<()> {
        self.begin()?;
        self.run(driver, args)?;
        // Until nobody sends any more.
        self.machine.world.barrier()?;
        let all = self.memory.to_vec()?;
        let size = self.ranks.size();
        for (words, rank) in all.chunks_exact(args.words as usize).zip(self.ranks.numbers()) {
            let each = self.machine.ranks;
            let neighbours = match args.across {
                0 => [rank.checked_sub(1), Some(rank + 1).filter(|next| *next < size)],
                _ => [Some((rank + size - each) % size), Some((rank + each) % size)],
            };
            let sum = |i: u64| {
                let from = |neighbour: u32| {
                    (0..args.turns)
                        .map(move |turn| (7 * u64::from(neighbour) + 3 * turn + i) as f64)
                };
                neighbours.into_iter().flatten().flat_map(from).sum()
            };
            let got = &words[5 * PACKET as usize..6 * PACKET as usize];
            same(&format!("{form}: sums of rank {rank}"), got, (0..PACKET).map(sum))?;
            self.computed(form, args, &all, (rank % each) as usize)?;
        }
        Ok(())
    }

    /// What a rank of this device has computed, in the memory of all.
    fn computed(&self, form: &str, args: Overlap, all: &[u64], local: usize) -> Result<()> {
        let words = &all[local * args.words as usize..][..args.words as usize];
        let rank = self.ranks.numbers().start + local as u32;
        if args.roots != 0 {
            let root = |i: u64| {
                let square = 2.0 + f64::from(rank) + i as f64;
                let half = 0.5 * square;
                let step = |inverse: f64, _| inverse * (-half * inverse).mul_add(inverse, 1.5);
                2.0 * half * (0..args.units).fold(1.0 / square, step)
            };
            let what = format!("{form}: square roots of rank {rank}");
            let got = &words[6 * PACKET as usize..SOURCE as usize];
            return same(&what, got, (0..ROOTS).map(root));
        }
        let done = (args.turns * args.units * PACKET).min(args.copied);
        let source = |i: u64| if i < done { copied(local as u64, SOURCE + i) } else { 0.0 };
        let got = &words[(SOURCE + args.copied) as usize..];
        same(&format!("{form}: copies of rank {rank}"), got, (0..args.copied).map(source))
    }

    /// Units of a computation that takes so many times as long as the ranks' exchange.
    fn units(&self, ratios: &[f64], args: Overlap) -> Result<Vec<u64>> {
        // The same on all devices, and never 0.
        let exchange = self.some(Form::Ranks, Overlap { units: 0, ..args })?;
        let unit = self.some(Form::Ranks, Overlap { units: PROBE, exchanges: 0, ..args })?;
        let (exchange, unit) = (exchange.max(1e-9), (unit / PROBE as f64).max(1e-9));
        let of_ratio = |ratio: &f64| ((ratio * exchange / unit).round().clamp(1.0, 1e9)) as u64;
        let mut units: Vec<u64> = ratios.iter().map(of_ratio).collect();
        units.sort_unstable();
        units.dedup();
        Ok(units)
    }

    /// Nanoseconds that the ranks have written; 0 of one that has not.
    fn times(&self) -> Result<Vec<u64>> {
        let first = self.own();
        Ok(self.memory.slice(first..first + self.machine.ranks as usize)?.to_vec()?)
    }

    /// Milliseconds of an iteration, once, by the clock of the first device; of the stream by the CPU's.
    fn once(&self, form: Form, args: Overlap) -> Result<f64> {
        let (turns, world) = (self.plan.iterations, &self.machine.world);
        let run = || self.run(form, Overlap { turns, ..args });
        if form == Form::Stream {
            return Ok(self.machine.seconds(run)? * 1e3 / turns as f64);
        }
        world.barrier()?;
        run()?;
        // Of other devices there is none.
        Ok(world.max(self.times()?[0] as f64)? / 1e6 / turns as f64)
    }

    /// The middle of a few.
    fn some(&self, form: Form, args: Overlap) -> Result<f64> {
        let samples = (0..3).map(|_| self.once(form, args)).collect::<Result<Vec<_>>>()?;
        Ok(Spread::of(&samples).context("no measurement")?.median)
    }
}

/// What a device's ranks give the devices before and behind: in a chain the first and the last rank, else all.
fn halo(
    machine: &Machine,
    memory: &Region<u64>,
    words: u64,
    across: bool,
    parity: u64,
) -> Result<Halo> {
    let all = u64::from(machine.ranks);
    let pieces = |ranks: std::ops::Range<u64>, at: u64| -> Pieces {
        ranks.map(|rank| (rank * words + at, PACKET)).collect()
    };
    let (first, last) = if across { (0..all, 0..all) } else { (0..1, all - 1..all) };
    // Where what comes from the rank before belongs, and behind that what comes from the one behind.
    let came = (1 + 2 * parity) * PACKET;
    let down = (pieces(first.clone(), 0), pieces(last.clone(), came + PACKET));
    let up = (pieces(last, 0), pieces(first, came));
    let number = 2 * u64::from(across) + parity;
    Halo::new(machine, memory, (number, across), Some(down), Some(up))
}

fn copied(rank: u64, word: u64) -> f64 {
    (rank * 1009 + word) as f64
}

/// Checks and measures.
///
/// # Errors
/// A result that is not that of the serial run; what fails.
pub fn run(plan: &Plan, choices: &Choices) -> Result<Vec<Line>> {
    on_devices(plan, |machine| {
        let bench = Bench::new(machine, plan, choices)?;
        let mut topologies = choices.topology.clone();
        let several = machine.world.size() > 1;
        if topologies.is_empty() {
            topologies.push(Topology::Chain);
            topologies.extend(several.then_some(Topology::AllRemote));
        }
        let mut lines = Vec::new();
        for &topology in &topologies {
            let across = topology == Topology::AllRemote;
            ensure!(several || !across, "all-remote needs several devices, and there is 1");
            for &work in &choices.work {
                let roots = u64::from(work == Work::Newton);
                let args = Overlap { across: across.into(), roots, ..bench.args };
                let mut units = choices.units.clone();
                for driver in [Form::Ranks, Form::Stream] {
                    let form = format!(
                        "{}, {}{}",
                        if across { "all-remote" } else { "chain" },
                        if work == Work::Newton { "Newton" } else { "copy" },
                        if driver == Form::Stream { ", stream" } else { "" },
                    );
                    bench.check(driver, &form, Overlap { turns: plan.check, units: 3, ..args })?;
                    if plan.iterations == 0 {
                        lines.push(Line::checked("overlap", &form, machine));
                        continue;
                    }
                    if units.is_empty() {
                        units = bench.units(&choices.ratios, args)?;
                    }
                    lines.extend(measure(&bench, driver, &units, &form, args)?);
                }
            }
        }
        Ok(lines)
    })
}

fn measure(
    bench: &Bench<'_>,
    driver: Form,
    all_units: &[u64],
    form: &str,
    args: Overlap,
) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for &units in all_units {
        let mut samples = [const { Vec::new() }; 4];
        for _ in 0..bench.plan.repeats {
            let computing = bench.once(driver, Overlap { units, exchanges: 0, ..args })?;
            let exchange = bench.once(driver, Overlap { units: 0, ..args })?;
            let both = bench.once(driver, Overlap { units, ..args })?;
            let hidden = (computing + exchange - both) / computing.min(exchange);
            for (samples, sample) in samples.iter_mut().zip([computing, exchange, both, hidden]) {
                samples.push(sample);
            }
        }
        let spreads = samples
            .iter()
            .map(|samples| Spread::of(samples).context("a time of 0"))
            .collect::<Result<Vec<_>>>()?;
        let size = format!("{units} units, ratio {:.2}", spreads[0].median / spreads[1].median);
        let names = [Unit::Computing, Unit::Exchanging, Unit::Together, Unit::Hidden];
        for (unit, spread) in names.into_iter().zip(spreads) {
            let line = Line::new("overlap", form, size.clone(), bench.machine, unit, spread);
            lines.push(line.over(units as f64));
        }
    }
    Ok(lines)
}

/// Measures what ranks that wait cost those that compute: one of eight computes, with and without seven that wait for it.
///
/// # Errors
/// A number of ranks that is no multiple of eight; a result that is not that of the serial run; what fails.
pub fn waiting(plan: &Plan, choices: &Choices) -> Result<Vec<Line>> {
    on_devices(plan, |machine| {
        ensure!(
            machine.ranks % 8 == 0,
            "{} ranks: expected a multiple of 8, of which one computes",
            machine.ranks
        );
        let bench = Bench::new(machine, plan, choices)?;
        let computing = machine.ranks as usize / 8;
        // Who computed, and how long.
        let run = |args: Overlap| -> Result<Vec<(usize, u64)>> {
            bench.begin_counting()?;
            machine.world.barrier()?;
            machine.run(&bench.ranks, "dcuda_waiting", args)?;
            let times = bench.times()?.into_iter().enumerate();
            let times: Vec<_> = times.filter(|(_, time)| *time > 0).collect();
            ensure!(
                times.len() == computing,
                "{} ranks computed instead of {computing}",
                times.len()
            );
            Ok(times)
        };
        // Milliseconds of an iteration, the mean of those that compute.
        let once = |args: Overlap| -> Result<f64> {
            let sum: u64 = run(args)?.iter().map(|(_, time)| time).sum();
            Ok(sum as f64 / computing as f64 / args.turns as f64 / 1e6)
        };
        let mut lines = Vec::new();
        for &work in &choices.work {
            for &units in if choices.units.is_empty() { &[PROBE] } else { &choices.units[..] } {
                let form = format!("{work:?}, seven of eight ranks wait");
                let roots = u64::from(work == Work::Newton);
                let args = Overlap { roots, units, ..bench.args };
                bench.begin()?;
                let check = Overlap { turns: plan.check, ..args };
                let computed = run(check)?;
                let words = bench.memory.to_vec()?;
                for (rank, _) in computed {
                    bench.computed(&form, check, &words, rank)?;
                }
                if plan.iterations == 0 {
                    lines.push(Line::checked("waiting", &form, machine));
                    continue;
                }
                let args = Overlap { turns: plan.iterations, ..args };
                let mut slower = Vec::new();
                for _ in 0..plan.repeats {
                    let alone = once(Overlap { exchanges: 0, ..args })?;
                    slower.push((once(args)? / alone - 1.0) * 100.0);
                }
                let spread = Spread::of(&slower).context("a time of 0")?;
                let size = format!("{units} units");
                lines.push(Line::new("waiting", &form, size, machine, Unit::Slower, spread));
            }
        }
        Ok(lines)
    })
}
