//! Message rate: how many messages a second one rank gets across to the other when it does not wait for each, in every form.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use gdsync::{Arg, Buffer, Dims, Graph};
use libmp::{Operation, Recv, Region, Send, Step, wait_all};

use super::{BATCH, Rank, bar, block_threads, capture, soon};
use crate::result::{Axis, Figure, Plot, Point, Role, Series};

/// Who starts and completes the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// The host: `start`, `wait`.
    Host,
    /// The stream, each operation enqueued by itself.
    Stream,
    /// The stream, a list for each window of messages.
    Fused,
    /// The same lists in a captured graph that is replayed.
    Graph,
    /// A kernel of one block.
    Kernel,
    /// A kernel of so many blocks as there are pairs, one pair a block.
    Blocks,
}

impl Form {
    /// All of them.
    pub const ALL: [Form; 6] =
        [Form::Host, Form::Stream, Form::Fused, Form::Graph, Form::Kernel, Form::Blocks];

    fn name(self) -> String {
        match self {
            Form::Host => "host".into(),
            Form::Stream => "stream, separate operations".into(),
            Form::Fused => format!("stream, lists of {WINDOW}"),
            Form::Graph => "graph".into(),
            Form::Kernel => "kernel, 1 block".into(),
            Form::Blocks => format!("kernel, {WINDOW} blocks"),
        }
    }

    fn blocks(self) -> Option<u32> {
        match self {
            Form::Kernel => Some(1),
            Form::Blocks => Some(WINDOW as u32),
            _ => None,
        }
    }
}

/// What is measured.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Forms, in this order.
    pub forms: Vec<Form>,
    /// Message sizes in bytes.
    pub sizes: Vec<u64>,
    /// Messages of a repeat.
    pub messages: u64,
    /// Repeats.
    pub repeats: u32,
}

/// Pairs that are used in turn: so many messages can be on their way.
const WINDOW: usize = 16;
/// Windows in a captured graph.
const IN_GRAPH: usize = 4;
/// Messages of a block before its clock starts.
const UNTIMED: u64 = 16;

/// Measures from rank 1 to rank 0.
///
/// # Errors
/// A message that fails.
pub fn measure(rank: &Rank, plan: &Plan) -> Result<Vec<Figure>> {
    let gpu = rank.device.as_cuda().is_some();
    let forms: Vec<Form> =
        plan.forms.iter().copied().filter(|form| gpu || form.blocks().is_none()).collect();
    ensure!(!forms.is_empty(), "the forms that were asked for need a GPU, and the ranks have none");
    let bar = bar(rank, forms.len() * plan.sizes.len())?;
    let mut series = Vec::new();
    for form in forms {
        let mut points = Vec::new();
        for &size in &plan.sizes {
            bar.set_message(format!("{}, {size} B", form.name()));
            let samples = match form {
                Form::Host => host(rank, plan, size)?,
                Form::Stream | Form::Fused | Form::Graph => streams(rank, plan, size, form)?,
                Form::Kernel | Form::Blocks => kernel(rank, plan, size, form)?,
            };
            points.push(Point { x: size as f64, samples, p99: None });
            bar.inc(1);
        }
        series.push(Series { name: form.name(), role: Role::Ours, points });
    }
    bar.finish_and_clear();
    Ok(vec![Figure {
        title: "message rate".into(),
        plot: Plot::Lines,
        x: Axis::log("message", "B"),
        y: Axis::log("messages a second", "10^6/s"),
        less_is_better: false,
        series,
    }])
}

/// How it was measured.
pub fn method(rank: &Rank, plan: &Plan) -> Vec<String> {
    vec![format!(
        "One way between {}, {WINDOW} pairs in turn, about {} messages a repeat, {} repeats; by the receiver's clock until it has the last one: host and streams by the CPU's, streams in batches of at most {BATCH} messages that begin and end together; kernels by the GPU's, from the first block's start to the last block's end, with untimed messages before.",
        rank.ranks, plan.messages, plan.repeats
    )]
}

/// Messages a second, in millions.
fn rate(messages: u64, seconds: f64) -> f64 {
    messages as f64 * 1e-6 / seconds
}

fn regions(rank: &Rank, size: u64) -> Result<Vec<Region<u8>>> {
    (0..WINDOW).map(|_| Ok(rank.world.alloc(&rank.device, size as usize)?)).collect()
}

fn host(rank: &Rank, plan: &Plan, size: u64) -> Result<Vec<f64>> {
    let peer = rank.peer()?;
    let (mut sends, mut recvs): (Vec<Send>, Vec<Recv>) = Default::default();
    for (tag, region) in (0..).zip(&regions(rank, size)?) {
        if rank.leads() {
            recvs.push(peer.recv(region, tag).prepare()?);
        } else {
            sends.push(peer.send(region, tag).prepare()?);
        }
    }
    let all: Vec<&dyn Operation> = match rank.leads() {
        true => recvs.iter().map(|recv| recv as &dyn Operation).collect(),
        false => sends.iter().map(|send| send as &dyn Operation).collect(),
    };
    // Host operations on GPU memory go through a stream each: fewer of them.
    let messages = if rank.device.as_cuda().is_some() { plan.messages / 20 } else { plan.messages };
    let messages = messages.max(WINDOW as u64);
    let mut samples = Vec::new();
    for repeat in 0..=plan.repeats {
        rank.world.barrier()?;
        let since = Instant::now();
        for turn in (0..WINDOW).cycle().take(messages as usize) {
            if rank.leads() {
                recvs[turn].wait(soon())?;
                recvs[turn].start()?;
            } else {
                sends[turn].wait(soon())?;
                sends[turn].start()?;
            }
        }
        wait_all(&all, soon())?;
        // The first warms up.
        samples.extend((repeat > 0).then(|| rate(messages, since.elapsed().as_secs_f64())));
    }
    Ok(samples)
}

/// Rank 1's ends or rank 0's.
enum Ends {
    Sends(Vec<Send>),
    Recvs(Vec<Recv>),
}

impl Ends {
    fn new(rank: &Rank, size: u64) -> Result<Ends> {
        let peer = rank.peer()?;
        let regions = regions(rank, size)?;
        let tagged = (0..).zip(&regions);
        let ends = if rank.leads() {
            let recvs = tagged.map(|(tag, region)| peer.recv(region, tag).prepare());
            Ends::Recvs(recvs.collect::<Result<_, _>>()?)
        } else {
            let sends = tagged.map(|(tag, region)| peer.send(region, tag).prepare());
            Ends::Sends(sends.collect::<Result<_, _>>()?)
        };
        // The other side is known before anything is enqueued.
        ends.handles()?;
        Ok(ends)
    }

    fn handles(&self) -> Result<Vec<mp_kernels::Message>> {
        match self {
            Ends::Sends(ends) => ends.iter().map(|end| Ok(end.handle()?.message)).collect(),
            Ends::Recvs(ends) => ends.iter().map(|end| Ok(end.handle()?.message)).collect(),
        }
    }

    /// A window of messages; receives are posted beforehand and again when they are through.
    fn window(&self) -> Vec<Step<'_>> {
        match self {
            Ends::Sends(sends) => sends.iter().map(Step::start).collect(),
            Ends::Recvs(recvs) => {
                let taken = recvs.iter().map(Step::wait);
                taken.chain(recvs.iter().map(Step::start)).collect()
            }
        }
    }
}

fn streams(rank: &Rank, plan: &Plan, size: u64, form: Form) -> Result<Vec<f64>> {
    let ends = Ends::new(rank, size)?;
    let (stream, world) = (&rank.stream, &rank.world);
    if let Ends::Recvs(recvs) = &ends {
        world.enqueue(stream, &recvs.iter().map(Step::start).collect::<Vec<_>>())?;
    }
    let window = || -> Result<()> {
        match (form, &ends) {
            (Form::Stream, Ends::Sends(sends)) => {
                sends.iter().try_for_each(|send| send.start_on(stream))?;
            }
            (Form::Stream, Ends::Recvs(recvs)) => recvs.iter().try_for_each(|recv| {
                recv.wait_on(stream)?;
                recv.start_on(stream)
            })?,
            _ => world.enqueue(stream, &ends.window())?,
        }
        Ok(())
    };
    let windows = BATCH as usize / WINDOW / IN_GRAPH * IN_GRAPH;
    let batches = (plan.messages as usize).div_ceil(windows * WINDOW);
    let messages = (batches * windows * WINDOW) as u64;
    let mut graph: Option<Graph> = None;
    let mut samples = Vec::new();
    for repeat in 0..=plan.repeats {
        let mut elapsed = 0.0;
        for _ in 0..batches {
            world.synchronize(stream, soon())?;
            world.barrier()?;
            let since = Instant::now();
            match &graph {
                None => (0..windows).try_for_each(|_| window())?,
                Some(graph) => {
                    (0..windows / IN_GRAPH).try_for_each(|_| stream.launch_graph(graph))?;
                }
            }
            world.synchronize(stream, soon())?;
            elapsed += since.elapsed().as_secs_f64();
        }
        // The first warms up.
        if repeat > 0 {
            samples.push(rate(messages, elapsed));
        } else if form == Form::Graph {
            graph = Some(capture(rank, IN_GRAPH as u64, |_| window())?);
        }
    }
    world.barrier()?;
    Ok(samples)
}

fn kernel(rank: &Rank, plan: &Plan, size: u64, form: Form) -> Result<Vec<f64>> {
    let blocks = form.blocks().unwrap_or(1);
    let ends = Ends::new(rank, size)?;
    let handles = ends.handles()?;
    // Plain words, so that they can be written like any memory.
    let fields = |m: &mp_kernels::Message| {
        [
            m.memory,
            m.len,
            m.target,
            m.inbox,
            m.mine,
            m.theirs,
            m.state,
            m.abort,
            m.timeout_ns,
            m.report,
            m.nic,
        ]
    };
    let words: Vec<u64> = handles.iter().flat_map(fields).collect();
    let table: Buffer<u64> = rank.device.alloc(words.len())?;
    table.write(&words)?;
    let stamps: Buffer<u64> = rank.device.alloc_pinned(2 * blocks as usize)?;
    let address = |buffer: &Buffer<u64>| buffer.device_address().context("no address");
    let (at, stamped, sends) = (address(&table)?, address(&stamps)?, u32::from(!rank.leads()));
    // Large messages take long enough to be seen in fewer rounds.
    let timed = plan.messages.min((1 << 30) / size.max(1)).div_ceil(u64::from(blocks)).max(1);
    let kernel = rank.kernel("mp_perf_rate")?;
    let threads = block_threads(size);
    let mut samples = Vec::new();
    for repeat in 0..=plan.repeats {
        stamps.write(&vec![0; 2 * blocks as usize])?;
        rank.world.barrier()?;
        let args = [
            Arg::new(&at),
            Arg::new(&sends),
            Arg::new(&UNTIMED),
            Arg::new(&timed),
            Arg::new(&stamped),
        ];
        // SAFETY: the kernel's signature; ends, table and stamps outlive the launch, which is waited for.
        unsafe { rank.stream.launch(&kernel, Dims::linear(blocks, threads), &args)? };
        rank.world.synchronize(&rank.stream, soon())?;
        if rank.leads() {
            let stamps = stamps.to_vec()?;
            let began = stamps.iter().step_by(2).min().context("no blocks")?;
            let ended = stamps.iter().skip(1).step_by(2).max().context("no blocks")?;
            ensure!(*began > 0 && ended > began, "mp_perf_rate wrote no time");
            // The first warms up.
            let seconds = (ended - began) as f64 * 1e-9;
            samples.extend((repeat > 0).then(|| rate(timed * u64::from(blocks), seconds)));
        }
    }
    rank.world.barrier()?;
    Ok(samples)
}
