//! The ping-pong: how long a notified put takes one way, between ranks of one device and of two, for one pair and for many at once.

use anyhow::{Context, Result, ensure};
use dranks::Options;
use libmp::Step;
use mp_program::Spread;

use crate::kernels::{PAIRS_AHEAD, Pairs};
use crate::machine::{Machine, Plan, address, on_devices};
use crate::table::{Line, Unit};

/// Notifications that may lie in a rank's queue: half of what it has room for.
const MOST_PENDING: u64 = 512;

/// Which messages.
#[derive(Debug, Clone, clap::Args)]
pub struct Messages {
    /// Bytes of a message.
    #[arg(long, value_delimiter = ',', default_value = "0,8,64,512,4096,32768,262144,4194304",
        value_parser = clap::value_parser!(u64).range(0..=1 << 28))]
    sizes: Vec<u64>,
    /// Pairs of ranks of a device at once. Default: 1, and as many as there are ranks for.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pairs: Vec<u32>,
    /// Bytes that all messages on their way may have together: larger messages of many pairs are left out.
    #[arg(long, default_value_t = 1 << 30, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    most: u64,
    /// Notifications of another tag that lie in each rank's queue all the time, so that every wait passes over them. By ranks, not on streams.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=MOST_PENDING))]
    pending: u64,
    /// Answers have no bytes, so that data cross a link in one direction: GB/s in the place of rates. Between devices only, by ranks.
    #[arg(long, conflicts_with = "pending")]
    one_way: bool,
}

/// Checks and measures: one way times, and how many messages all pairs send in a second.
///
/// # Errors
/// A word that is not the one sent; what fails.
pub fn run(plan: &Plan, messages: &Messages) -> Result<Vec<Line>> {
    on_devices(plan, |machine| {
        let mut lines = Vec::new();
        let is_even = machine.world.size() % 2 == 0;
        ensure!(is_even || !messages.one_way, "one way: expected an even number of devices");
        for across in [false, true] {
            let is_there = if across { is_even } else { !messages.one_way };
            if !is_there {
                continue;
            }
            let most = if across { machine.ranks } else { machine.ranks / 2 };
            ensure!(most > 0, "ping-pong on one device needs two ranks, and there is 1");
            let mut pairs = messages.pairs.clone();
            if pairs.is_empty() {
                pairs = vec![1, most];
                pairs.dedup();
            }
            for pairs in pairs {
                ensure!(pairs <= most, "{pairs} pairs: expected at most {most}, for so many ranks");
                lines.extend(of_pairs(machine, plan, messages, across, pairs)?);
            }
        }
        if machine.world.size() == 2 && messages.pending == 0 && !messages.one_way {
            lines.extend(on_stream(machine, plan, messages)?);
        }
        Ok(lines)
    })
}

fn of_pairs(
    machine: &Machine,
    plan: &Plan,
    messages: &Messages,
    across: bool,
    pairs: u32,
) -> Result<Vec<Line>> {
    let ranks = if across { pairs } else { 2 * pairs };
    let fits = |bytes: &u64| bytes.saturating_mul(u64::from(ranks)) <= messages.most || pairs == 1;
    let sizes: Vec<u64> = messages.sizes.iter().copied().filter(fits).collect();
    let room = sizes.iter().copied().max().unwrap_or(0).next_multiple_of(PAIRS_AHEAD);
    let memory = machine.memory(PAIRS_AHEAD / 8 + u64::from(ranks) * room / 4)?;
    let world = machine.open(&memory, &Options::new(ranks))?;
    let begin = |rank: u64| PAIRS_AHEAD + rank * 2 * room;
    let share = |rank: u64| begin(rank)..begin(rank + 1);
    world.window(&(0..u64::from(ranks)).map(share).collect::<Vec<_>>())?;
    let all_pairs = f64::from(world.size()) / 2.0;
    let form = format!(
        "{pairs} pair{} {}{}",
        if pairs == 1 { "" } else { "s" },
        if across { "on two devices" } else { "on one device" },
        match messages.pending {
            0 if messages.one_way => ", answered without bytes".into(),
            0 => String::new(),
            pending => format!(", {pending} others in each queue"),
        }
    );
    // Those that begin are the first half of the world.
    let answers = messages.one_way && machine.number() >= machine.world.size() / 2;
    let mut lines = Vec::new();
    for bytes in sizes {
        // What of all messages together is counted, and a message for it: of those with bytes there are half as many.
        let (of_rate, counts) = match messages.one_way {
            true => (Unit::Bandwidth, bytes as f64 / 2.0),
            false => (Unit::Rate, 1e3),
        };
        let args = Pairs {
            memory: address(&memory)?,
            room,
            bytes,
            turns: plan.check,
            across: across.into(),
            check: 1,
            pending: messages.pending,
        };
        memory.slice(0..2)?.write(&[0; 2])?;
        machine.run(&world, "dcuda_pingpong", args)?;
        let wrong = memory.slice(1..2)?.to_vec()?[0];
        ensure!(wrong == 0, "{form}, {bytes} bytes: {wrong} words are not those that were sent");
        if plan.iterations == 0 {
            lines.push(Line::checked("ping-pong", &form, machine));
            continue;
        }
        let (mut one_way, mut rate) = (Vec::new(), Vec::new());
        for repeat in 0..=plan.repeats {
            machine.world.barrier()?;
            machine.run(
                &world,
                "dcuda_pingpong",
                Pairs {
                    turns: plan.iterations,
                    check: 0,
                    bytes: if answers { 0 } else { bytes },
                    ..args
                },
            )?;
            let ns = memory.slice(0..1)?.to_vec()?[0] as f64;
            // The first warms up. Of other devices there is no time.
            if repeat > 0 && machine.number() == 0 {
                let messages = 2.0 * plan.iterations as f64;
                one_way.push(ns / 1e3 / messages);
                rate.push(all_pairs * messages * counts / ns);
            }
        }
        if machine.number() == 0 {
            for (unit, samples) in [(Unit::OneWay, one_way), (of_rate, rate)] {
                let spread = Spread::of(&samples).context("no measurement")?;
                let size = format!("{bytes} B");
                let line = Line::new("ping-pong", &form, size, machine, unit, spread);
                lines.push(line.over(bytes as f64));
            }
        }
    }
    machine.world.barrier()?;
    Ok(lines)
}

/// The same by two devices' streams: messages that are prepared once.
fn on_stream(machine: &Machine, plan: &Plan, messages: &Messages) -> Result<Vec<Line>> {
    let form = "one message on streams, on two devices";
    let (first, peer) = (machine.number() == 0, machine.world.peer(1 - machine.number())?);
    let mut lines = Vec::new();
    for &bytes in &messages.sizes {
        let words = bytes.div_ceil(8) as usize;
        let memory = machine.memory(2 * words.max(1) as u64)?;
        let (given, taken) = (memory.slice(0..words)?, memory.slice(words..2 * words)?);
        // The second device sends back what has come.
        let send = peer.send(if first { &given } else { &taken }, 0).prepare()?;
        let recv = peer.recv(&taken, 0).prepare()?;
        let one: &[Step<'_>] = match first {
            true => &[Step::start(&recv), Step::start(&send), Step::wait(&recv)],
            false => &[Step::start(&recv), Step::wait(&recv), Step::start(&send)],
        };
        let run = |turns| {
            machine.on_stream(turns, |_| Ok(machine.world.enqueue(&machine.stream, one)?))
        };
        let sent: Vec<u64> = (0..words as u64).map(|word| 7 * word + bytes).collect();
        given.write(&sent)?;
        machine.world.barrier()?;
        run(plan.check)?;
        let wrong = taken.to_vec()?.iter().zip(&sent).filter(|(one, other)| one != other).count();
        ensure!(wrong == 0, "{form}, {bytes} bytes: {wrong} words are not those that were sent");
        if plan.iterations == 0 {
            lines.push(Line::checked("ping-pong", form, machine));
            continue;
        }
        let spread = machine.time(plan, run)?;
        let half = |ms: f64| ms * 1e3 / 2.0;
        let Spread { median, min, max, count } = spread;
        let one_way = Spread { median: half(median), min: half(min), max: half(max), count };
        let size = format!("{bytes} B");
        let line = Line::new("ping-pong", form, size, machine, Unit::OneWay, one_way);
        lines.push(line.over(bytes as f64));
    }
    machine.world.barrier()?;
    Ok(lines)
}
