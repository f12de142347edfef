//! Latency of messages: a ping-pong of two ranks, in every form.

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::ValueEnum;
use gdsync::{Arg, Dims};
use libmp::{FusedStream, Operation, Recv, Region, Send, Step};
use mp_kernels::{WaitBounds, packet_threads};

use super::kernel::Watch;
use super::{BATCH, Rank, bar, block_threads, capture, quantile, soon};
use crate::kernels::PingPong;
use crate::result::{Axis, Figure, Plot, Point, Role, Series};

/// Who starts and completes the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// The host: `start`, `wait`.
    Host,
    /// The stream, each operation enqueued by itself.
    Stream,
    /// The same calls on a stream that fuses adjacent operations by itself.
    Adjacent,
    /// The stream, "wait for a message and send one" as one list.
    Fused,
    /// The same list in a captured graph that is replayed.
    Graph,
    /// A kernel: `mp::send`, `mp::recv`.
    Kernel,
    /// A kernel: puts to the peer's memory, then a signal.
    Put,
}

impl Form {
    /// All of them.
    pub const ALL: [Form; 7] = [
        Form::Host,
        Form::Stream,
        Form::Adjacent,
        Form::Fused,
        Form::Graph,
        Form::Kernel,
        Form::Put,
    ];

    fn name(self) -> &'static str {
        match self {
            Form::Host => "host",
            Form::Stream => "stream, separate operations",
            Form::Adjacent => "stream, adjacent operations fused",
            Form::Fused => "stream, one list",
            Form::Graph => "graph",
            Form::Kernel => "kernel, send and receive",
            Form::Put => "kernel, put and signal",
        }
    }

    fn needs_gpu(self) -> bool {
        matches!(self, Form::Kernel | Form::Put)
    }
}

/// What is measured.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Forms, in this order.
    pub forms: Vec<Form>,
    /// Message sizes in bytes.
    pub sizes: Vec<u64>,
    /// Rounds of a repeat.
    pub rounds: u64,
    /// Repeats.
    pub repeats: u32,
    /// Threads of the block in the kernel forms; `None`: as many as suit the size.
    pub threads: Option<u32>,
}

/// Rounds of a kernel before its clock starts.
const UNTIMED: u64 = 100;

/// Launches in a batch whose enqueuing is timed, fewer than a stream takes before a call waits for room (`AHEAD` of gdsync), and
/// such batches in a repeat.
const SHORT: u64 = 96;
const SHORTS: u32 = 10;
/// Rounds in a captured graph, of which some are in a batch. Even: of two messages each has its turn.
const IN_GRAPH: u64 = 20;
/// A round's: a receive and a send.
const OPERATIONS: u64 = 2;

/// Measures; figures of latency, and of the CPU's time for a stream operation.
///
/// # Errors
/// A message that fails.
pub fn measure(rank: &Rank, plan: &Plan) -> Result<Vec<Figure>> {
    let gpu = rank.device.as_cuda().is_some();
    let forms: Vec<Form> =
        plan.forms.iter().copied().filter(|form| gpu || !form.needs_gpu()).collect();
    let bar = bar(rank, forms.len() * plan.sizes.len())?;
    let (mut latencies, mut costs) = (Vec::new(), Vec::new());
    for &form in &forms {
        let (mut points, mut cost) = (Vec::new(), Vec::new());
        for &size in &plan.sizes {
            bar.set_message(format!("{}, {size} B", form.name()));
            let times = match form {
                Form::Host => host(rank, plan, size)?,
                Form::Stream | Form::Fused | Form::Graph => streams(rank, plan, size, form)?,
                Form::Adjacent => adjacent(rank, plan, size)?,
                Form::Kernel => kernel(rank, plan, size)?,
                Form::Put => put(rank, plan, size)?,
            };
            let (x, p99) = (size as f64, times.p99);
            points.push(Point { x, samples: times.one_way, p99 });
            if !times.cpu.is_empty() {
                cost.push(Point { x, samples: times.cpu, p99: None });
            }
            bar.inc(1);
        }
        let series = |points| Series { name: form.name().into(), role: Role::Ours, points };
        latencies.push(series(points));
        if !cost.is_empty() {
            costs.push(series(cost));
        }
    }
    bar.finish_and_clear();
    let figure = |title: &str, y: &str, series| Figure {
        title: title.into(),
        plot: Plot::Lines,
        x: Axis::log("message", "B"),
        y: Axis::log(y, "µs"),
        less_is_better: true,
        series,
    };
    let mut figures = vec![figure("latency of a message", "one way", latencies)];
    if !costs.is_empty() {
        if gpu {
            let samples = launches(rank, plan)?;
            let points = plan.sizes.iter().map(|&size| Point {
                x: size as f64,
                samples: samples.clone(),
                p99: None,
            });
            costs.push(Series {
                name: "one launch, of a store".into(),
                role: Role::Floor,
                points: points.collect(),
            });
        }
        figures.push(figure("CPU time of an enqueued operation", "CPU time", costs));
    }
    Ok(figures)
}

/// How it was measured.
pub fn method(rank: &Rank, plan: &Plan) -> Vec<String> {
    vec![
        format!("Ping-pong of {}; half a round; {} rounds a repeat, {} repeats.", rank.ranks, plan.rounds, plan.repeats),
        "Host and kernel forms: every round is timed, a repeat gives its median, the 99th percentile is the median of those of the repeats; kernels by the GPU's clock, one block.".into(),
        "Stream and graph forms: batches of at most 300 rounds are enqueued and waited for, their time divided by their rounds.".into(),
        format!("CPU time of an operation: half of a round's, which is a receive (with the posting of its buffer) and a send, however many launches these are; by the clock of the thread that enqueues, rank 0's, while rank 1 is idle and the stream waits for its first message. {SHORTS} batches a repeat of at most {SHORT} launches, so that no call waits for room on the stream."),
    ]
}

#[derive(Default)]
struct Times {
    one_way: Vec<f64>,
    p99: Option<f64>,
    cpu: Vec<f64>,
}

impl Times {
    fn with_tail(one_way: Vec<f64>, mut tails: Vec<f64>) -> Times {
        Times { one_way, p99: Some(quantile(&mut tails, 0.5)), cpu: Vec::new() }
    }
}

fn host(rank: &Rank, plan: &Plan, size: u64) -> Result<Times> {
    let peer = rank.peer()?;
    let region = || rank.world.alloc::<u8>(&rank.device, size as usize);
    let send = peer.send(&region()?, size).prepare()?;
    let recv = peer.recv(&region()?, size).prepare()?;
    let (mut medians, mut tails) = (Vec::new(), Vec::new());
    // A buffer is posted behind what is sent, so that it is off the way of a message.
    if !rank.leads() {
        recv.start()?;
    }
    // Host operations on GPU memory go through a stream each: fewer of them.
    let rounds = if rank.device.as_cuda().is_some() { plan.rounds / 10 } else { plan.rounds };
    for repeat in 0..=plan.repeats {
        let mut times = Vec::with_capacity(rounds as usize);
        rank.world.barrier()?;
        for _ in 0..rounds.max(1) {
            let since = Instant::now();
            if !rank.leads() {
                recv.wait(soon())?;
            }
            send.start()?;
            recv.start()?;
            if rank.leads() {
                recv.wait(soon())?;
            }
            send.wait(soon())?;
            times.push(since.elapsed().as_secs_f64() * 0.5e6);
        }
        // The first warms up.
        if repeat > 0 {
            medians.push(quantile(&mut times, 0.5));
            tails.push(quantile(&mut times, 0.99));
        }
    }
    // The last receive that was started ends with the world.
    match rank.leads() {
        true => {
            send.start()?;
            send.wait(soon())?;
        }
        false => recv.wait(soon())?,
    }
    Ok(Times::with_tail(medians, tails))
}

/// What a launch costs the CPU: of a kernel that stores a word, behind a kernel that waits.
fn launches(rank: &Rank, plan: &Plan) -> Result<Vec<f64>> {
    let words = rank.device.alloc_pinned::<u64>(2)?;
    let (gate, word) = (words.word(0)?, words.word(1)?);
    let (mut samples, mut opened) = (Vec::new(), 0);
    for repeat in 0..=plan.repeats {
        let mut enqueued = 0.0;
        for _ in 0..SHORTS {
            rank.world.synchronize(&rank.stream, soon())?;
            opened += 1;
            enqueued += alone(rank, || {
                rank.stream.wait_signal(&gate, opened, Duration::from_secs(10))?;
                (1..SHORT).try_for_each(|_| rank.stream.signal(&word, opened))?;
                Ok(())
            })?;
            gate.store(opened)?;
        }
        if repeat > 0 {
            samples.push(enqueued * 1e6 / (u64::from(SHORTS) * SHORT) as f64);
        }
    }
    rank.world.synchronize(&rank.stream, soon())?;
    Ok(samples)
}

/// Seconds that rank 0 needs to enqueue something. Then rank 1 enqueues it: ranks that share a process would share the
/// driver's locks.
fn alone(rank: &Rank, mut enqueue: impl FnMut() -> Result<()>) -> Result<f64> {
    rank.world.barrier()?;
    let since = Instant::now();
    if rank.leads() {
        enqueue()?;
    }
    let seconds = since.elapsed().as_secs_f64();
    rank.world.barrier()?;
    if !rank.leads() {
        enqueue()?;
    }
    Ok(seconds)
}

/// Two pairs each way, used in turn.
struct Pairs {
    sends: [Send; 2],
    recvs: [Recv; 2],
}

impl Pairs {
    fn new(rank: &Rank, size: u64) -> Result<Pairs> {
        let peer = rank.peer()?;
        let region =
            || -> Result<Region<u8>> { Ok(rank.world.alloc(&rank.device, size as usize)?) };
        let send =
            |turn: u64| -> Result<_> { Ok(peer.send(&region()?, 2 * size + turn).prepare()?) };
        let recv =
            |turn: u64| -> Result<_> { Ok(peer.recv(&region()?, 2 * size + turn).prepare()?) };
        let pairs = Pairs { sends: [send(0)?, send(1)?], recvs: [recv(0)?, recv(1)?] };
        // Both sides are known before anything is enqueued.
        pairs.recvs[1].handle()?;
        pairs.sends[1].handle()?;
        Ok(pairs)
    }
}

/// Both ranks wait for a message and then send one; rank 0 has sent one before. So there is always one message on its way,
/// and what waits for it has been launched.
fn streams(rank: &Rank, plan: &Plan, size: u64, form: Form) -> Result<Times> {
    let pairs = Pairs::new(rank, size)?;
    let stream = &rank.stream;
    let world = &rank.world;
    let enqueue = |round: usize| -> Result<()> {
        let (recv, next) = (&pairs.recvs[round % 2], &pairs.recvs[(round + 1) % 2]);
        let send = &pairs.sends[(round + usize::from(rank.leads())) % 2];
        if form == Form::Stream {
            recv.wait_on(stream)?;
            send.start_on(stream)?;
            return Ok(recv.start_on(stream)?);
        }
        Ok(world.enqueue(stream, &[Step::start(next), Step::wait(recv), Step::start(send)])?)
    };
    // Receiving packets, nothing is enqueued for the start of a receive.
    let packets = rank.device.as_cuda().is_some() && pairs.recvs[0].handle()?.message.inbox != 0;
    let launches = match form {
        Form::Stream if packets => 2,
        Form::Stream => 3,
        _ => 1,
    };
    pairs.recvs[0].start_on(stream)?;
    if form == Form::Stream {
        pairs.recvs[1].start_on(stream)?;
    }
    if rank.leads() {
        pairs.sends[0].start_on(stream)?;
    }
    let mut times = Times::default();
    let batch = plan.rounds.min(BATCH) / IN_GRAPH * IN_GRAPH;
    let batches = plan.rounds.div_ceil(batch);
    let rounds = batches * batch;
    let mut graph = None;
    for repeat in 0..=plan.repeats {
        let mut elapsed = 0.0;
        let launch = |rounds: u64| -> Result<()> {
            match &graph {
                None => (0..rounds as usize).try_for_each(enqueue),
                Some(graph) => {
                    Ok((0..rounds / IN_GRAPH).try_for_each(|_| stream.launch_graph(graph))?)
                }
            }
        };
        for _ in 0..batches {
            world.synchronize(stream, soon())?;
            world.barrier()?;
            let since = Instant::now();
            launch(batch)?;
            world.synchronize(stream, soon())?;
            elapsed += since.elapsed().as_secs_f64();
        }
        let in_short = match graph {
            Some(_) => SHORT / IN_GRAPH * IN_GRAPH,
            None => SHORT / launches / 2 * 2,
        };
        let mut enqueued = 0.0;
        for _ in 0..SHORTS {
            world.synchronize(stream, soon())?;
            enqueued += alone(rank, || launch(in_short))?;
        }
        world.synchronize(stream, soon())?;
        // The first warms up.
        if repeat > 0 {
            times.one_way.push(elapsed * 0.5e6 / rounds as f64);
            times.cpu.push(enqueued * 1e6 / (u64::from(SHORTS) * in_short * OPERATIONS) as f64);
        } else if form == Form::Graph {
            world.barrier()?;
            graph = Some(capture(rank, IN_GRAPH, enqueue)?);
        }
    }
    Ok(times)
}

/// As `streams` with separate operations, on a stream of its own that fuses them: one launch a round.
fn adjacent(rank: &Rank, plan: &Plan, size: u64) -> Result<Times> {
    let pairs = Pairs::new(rank, size)?;
    let world = &rank.world;
    let mut stream = FusedStream::from(world.stream(&rank.device)?);
    pairs.recvs[0].start_on(&mut stream)?;
    pairs.recvs[1].start_on(&mut stream)?;
    if rank.leads() {
        pairs.sends[0].start_on(&mut stream)?;
    }
    let mut times = Times::default();
    let batch = plan.rounds.min(BATCH) / 2 * 2;
    let batches = plan.rounds.div_ceil(batch);
    let rounds = batches * batch;
    for repeat in 0..=plan.repeats {
        let (mut enqueued, mut elapsed) = (0.0, 0.0);
        let launch = |stream: &mut FusedStream, rounds: u64| -> Result<()> {
            for round in 0..rounds as usize {
                let recv = &pairs.recvs[round % 2];
                recv.wait_on(&mut *stream)?;
                pairs.sends[(round + usize::from(rank.leads())) % 2].start_on(&mut *stream)?;
                recv.start_on(&mut *stream)?;
                // What a program would do between two messages begins here.
                stream.flush()?;
            }
            Ok(())
        };
        for _ in 0..batches {
            world.synchronize(stream.stream()?, soon())?;
            world.barrier()?;
            let since = Instant::now();
            launch(&mut stream, batch)?;
            world.synchronize(stream.stream()?, soon())?;
            elapsed += since.elapsed().as_secs_f64();
        }
        for _ in 0..SHORTS {
            world.synchronize(stream.stream()?, soon())?;
            enqueued += alone(rank, || launch(&mut stream, SHORT))?;
        }
        world.synchronize(stream.stream()?, soon())?;
        // The first warms up.
        if repeat > 0 {
            times.one_way.push(elapsed * 0.5e6 / rounds as f64);
            times.cpu.push(enqueued * 1e6 / (u64::from(SHORTS) * SHORT * OPERATIONS) as f64);
        }
    }
    world.barrier()?;
    Ok(times)
}

/// Threads of the block that plays with messages of `size` bytes: one for each packet, or as many as copy fastest.
pub fn suitable_threads(size: u64) -> u32 {
    block_threads(size)
}

fn threads(plan: &Plan, size: u64) -> u32 {
    plan.threads.unwrap_or_else(|| suitable_threads(size))
}

fn game(rank: &Rank, plan: &Plan, size: u64) -> PingPong {
    // Large messages take long enough to be seen in fewer rounds.
    let timed_rounds = plan.rounds.min((4 << 30) / size.max(1)).max(2) / 2 * 2;
    let serves = u32::from(rank.leads());
    PingPong { untimed_rounds: UNTIMED, timed_rounds, serves, ..PingPong::default() }
}

fn kernel(rank: &Rank, plan: &Plan, size: u64) -> Result<Times> {
    let pairs = Pairs::new(rank, size)?;
    let sends = [pairs.sends[0].handle()?.message, pairs.sends[1].handle()?.message];
    let recvs = [pairs.recvs[0].handle()?.message, pairs.recvs[1].handle()?.message];
    // What goes as packets needs one pair, since there is no buffer to post.
    let packets = recvs[0].inbox != 0;
    let suitable = if packets { packet_threads(size) } else { suitable_threads(size).min(512) };
    // The serving side is one message ahead, see mp_perf_messages.
    let first = usize::from(rank.leads());
    let two = [sends[first], sends[1 - first], recvs[0], recvs[1]];
    let mut game = game(rank, plan, size);
    let watch = Watch::new(rank, game.timed_rounds)?;
    let (samples, time) = (watch.samples(), watch.time());
    let (mut medians, mut tails) = (Vec::new(), Vec::new());
    for repeat in 0..=plan.repeats {
        let rest = [Arg::new(&game), Arg::new(&samples), Arg::new(&time)];
        let (name, handles) = if packets {
            ("mp_perf_packets", vec![Arg::new(&sends[0]), Arg::new(&recvs[0])])
        } else {
            ("mp_perf_messages", vec![Arg::new(&two)])
        };
        let args = [handles, rest.to_vec()].concat();
        let dims = Dims::linear(1, plan.threads.unwrap_or(suitable));
        // SAFETY: the kernel's signature; pairs and watch outlive the launch, which `run` waits for.
        let rounds = unsafe { watch.run(rank, name, dims, &args)? };
        game.base += game.untimed_rounds + game.timed_rounds;
        if repeat > 0 {
            medians.push(rounds.median / 2.0);
            tails.push(rounds.p99 / 2.0);
        }
    }
    Ok(Times::with_tail(medians, tails))
}

fn put(rank: &Rank, plan: &Plan, size: u64) -> Result<Times> {
    let landing: Region<u8> = rank.world.alloc(&rank.device, size as usize)?;
    let source: Region<u8> = rank.world.alloc(&rank.device, size as usize)?;
    let window = rank.world.window(&landing, 1)?;
    let (me, other) = (rank.world.rank(), 1 - rank.world.rank());
    let target = window.memory_of(other)?.device_address();
    let (target, here) = (target.unwrap_or_default(), landing.buffer().device_address());
    let (from, here) =
        (source.buffer().device_address().unwrap_or_default(), here.unwrap_or_default());
    let mut game = game(rank, plan, size);
    game.mine = window.signal_of(me, 0)?.device_address()?;
    game.peer = window.signal_of(other, 0)?.device_address()?;
    let watch = Watch::new(rank, game.timed_rounds)?;
    let bounds = WaitBounds { abort: 0, timeout_ns: 10_000_000_000 };
    let (samples, time, mismatches, report) =
        (watch.samples(), watch.time(), watch.mismatches(), watch.report());
    let checks = 0u32;
    let (mut medians, mut tails) = (Vec::new(), Vec::new());
    for repeat in 0..=plan.repeats {
        let args = [
            Arg::new(&game),
            Arg::new(&from),
            Arg::new(&target),
            Arg::new(&here),
            Arg::new(&size),
            Arg::new(&checks),
            Arg::new(&bounds),
            Arg::new(&report),
            Arg::new(&samples),
            Arg::new(&time),
            Arg::new(&mismatches),
        ];
        let dims = Dims::linear(1, threads(plan, size));
        // SAFETY: the kernel's signature; regions, window and watch outlive the launch, which `run` waits for.
        let rounds = unsafe { watch.run(rank, "mp_perf_puts", dims, &args)? };
        game.base += game.untimed_rounds + game.timed_rounds;
        if repeat > 0 {
            medians.push(rounds.median / 2.0);
            tails.push(rounds.p99 / 2.0);
        }
    }
    rank.world.barrier()?;
    Ok(Times::with_tail(medians, tails))
}
