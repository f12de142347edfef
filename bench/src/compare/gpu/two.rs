//! The figures that are between two GPUs: messages, bandwidth, exchanges of halos, and what one rank does on the other's memory.

use anyhow::Result;

use super::one_sided::What;
use super::{
    Figures, Others, Players, VOLUME, exchange, floor, of, one_sided, ours, staged, tagged,
};
use super::{IN_KERNELS, ON_STREAMS};
use crate::result::{Axis, Plot};

/// Titles of the figures.
const LATENCY: &str = "Latency, streams of two GPUs";
const CPU_TIME: &str = "CPU time of a receive and a send on a stream";
const TAGGED: &str = "Latency, tagged messages of two GPUs";
const KERNELS: &str = "Latency, kernels of two GPUs";
const BANDWIDTH: &str = "Bandwidth between two GPUs";
const EXCHANGE: &str = "Exchange of a halo, two GPUs";

/// Blocks of the copying kernels.
const BLOCKS: [u64; 5] = [1, 4, 16, 64, 132];
/// Cells a side of the faces that are exchanged, and how many layers.
const HALOS: [u64; 5] = [16, 32, 64, 128, 256];
const GHOSTS: u64 = 2;
/// What one rank does alone, and at which x.
const ALONE: [(What, &[u64]); 3] =
    [(What::Get, &one_sided::SIZES), (What::FetchAdd, &[8]), (What::Words, &one_sided::BLOCKS)];

/// How it is measured, in sentences.
pub fn method() -> Vec<String> {
    vec![
        format!(
            "Latency on streams: ping-pong of two streams, {ON_STREAMS} rounds enqueued and then waited for, by the CPU's clock; half a round."
        ),
        "Latency of tagged messages: from memory of a GPU to memory of the other, matched when they meet, each waited for by the CPU before the next; half a round. By way of the host: as between machines (Options::staged).".into(),
        format!(
            "Latency in kernels: ping-pong of one block a side, at most {IN_KERNELS} rounds by the GPU's clock; half a round. libmp and NVSHMEM: 32 to 1024 threads, as suit the size for libmp (NVSHMEM with 1024, too); the floor: as many threads, plain stores, then one st.release.sys."
        ),
        format!(
            "Bandwidth: {} MiB from rank 0 to rank 1, again and again, by kernels of 1024 threads a block; the copy engine for comparison.",
            VOLUME >> 20
        ),
        format!(
            "Exchange: both ranks send a halo ({GHOSTS} layers of a face of {HALOS:?} cells a side, doubles) and wait for the other's, nothing else; in kernels by 1 to {} blocks, libmp's of up to 64 KiB by messages, else as NVSHMEM's by puts and signals.",
            exchange::MOST_BLOCKS
        ),
        format!(
            "One-sided in kernels: by rank 0 on the memory of rank 1, which does nothing meanwhile; gets of one block, each waited for; additions by one thread, each waited for; words of 8 B by {} threads a block, {} of each thread, until all are there.",
            one_sided::THREADS,
            one_sided::WORDS
        ),
    ]
}

/// Points of these figures where there are so many sizes of messages.
pub fn points(sizes: usize) -> usize {
    let alone = ALONE.iter().map(|(_, places)| places.len()).sum::<usize>();
    3 * sizes + BLOCKS.len() + HALOS.len() + alone
}

/// Latencies on streams, and what a message there costs the CPU.
pub fn streams(table: &mut Figures, others: &Others) -> Result<()> {
    let mut players: Players =
        vec![ours::latency(ours::Form::Fused), ours::latency(ours::Form::Graph)];
    players.extend(of("NCCL", others.nccl, |nccl| vec![nccl.player()]));
    players.extend(of("NVSHMEM", others.nvshmem, |nvshmem| vec![nvshmem.on_stream()]));
    players.extend(of("MPI", others.mpi, |mpi| staged::player(mpi).into_iter().collect()));
    players.extend([floor::copy_engine(), floor::words()]);
    let (latency, cpu) = table.measure(LATENCY, &table.sizes(), &mut players)?;
    let message = || Axis::log("message", "B");
    table.show(LATENCY, Plot::Lines, (message(), Axis::log("one way", "µs")), true, latency);
    table.show(CPU_TIME, Plot::Lines, (message(), Axis::log("CPU time", "µs")), true, cpu);
    Ok(())
}

/// Latencies of messages that are matched when they meet, and waited for by the CPU.
pub fn tagged(table: &mut Figures, others: &Others) -> Result<()> {
    let mut players: Players = [false, true].map(tagged::player).into();
    players.extend(of("MPI", others.mpi, |mpi| vec![staged::copied(mpi)]));
    let (latency, _) = table.measure(TAGGED, &table.sizes(), &mut players)?;
    let axes = (Axis::log("message", "B"), Axis::log("one way", "µs"));
    table.show(TAGGED, Plot::Lines, axes, true, latency);
    Ok(())
}

/// Latencies in kernels.
pub fn kernels(table: &mut Figures, others: &Others) -> Result<()> {
    let mut players: Players =
        vec![ours::latency(ours::Form::Kernel), ours::latency(ours::Form::Put)];
    players.extend(of("NVSHMEM", others.nvshmem, |nvshmem| {
        vec![nvshmem.put(None), nvshmem.put(Some(1024)), nvshmem.p()]
    }));
    players.push(floor::put());
    let (latency, _) = table.measure(KERNELS, &table.sizes(), &mut players)?;
    let axes = (Axis::log("message", "B"), Axis::log("one way", "µs"));
    table.show(KERNELS, Plot::Lines, axes, true, latency);
    Ok(())
}

/// Copies by kernels and by the copy engine.
pub fn bandwidth(table: &mut Figures, others: &Others) -> Result<()> {
    let mut players: Players = vec![ours::bandwidth()];
    players.extend(of("NVSHMEM", others.nvshmem, |nvshmem| vec![nvshmem.bandwidth()]));
    players.extend([floor::bandwidth(), floor::copy_engine_bandwidth()]);
    let (bandwidth, _) = table.measure(BANDWIDTH, &BLOCKS, &mut players)?;
    let axes = (Axis::log("blocks", ""), Axis::log("bandwidth", "GB/s"));
    table.show(BANDWIDTH, Plot::Lines, axes, false, bandwidth);
    Ok(())
}

/// Halos both ways at once.
pub fn exchanges(table: &mut Figures, others: &Others) -> Result<()> {
    let mut players: Players = vec![exchange::kernel(), exchange::graph()];
    players.extend(of("NVSHMEM", others.nvshmem, |nvshmem| vec![nvshmem.exchange()]));
    players.extend(of("NCCL", others.nccl, |nccl| vec![nccl.exchange()]));
    players.extend(of("MPI", others.mpi, |mpi| staged::exchange(mpi).into_iter().collect()));
    let bytes = HALOS.map(|cells| 8 * GHOSTS * cells * cells);
    let (exchange, _) = table.measure(EXCHANGE, &bytes, &mut players)?;
    let axes = (Axis::log("halo", "B"), Axis::log("exchange", "µs"));
    table.show(EXCHANGE, Plot::Lines, axes, true, exchange);
    Ok(())
}

/// What one rank does on the memory of the other.
pub fn alone(table: &mut Figures, others: &Others) -> Result<()> {
    for (what, places) in ALONE {
        let mut players: Players = vec![one_sided::kernel(what)];
        players.extend((what == What::FetchAdd).then(|| one_sided::kernel(What::FetchAddOrdered)));
        players.extend(of("NVSHMEM", others.nvshmem, |nvshmem| vec![nvshmem.one_sided(what)]));
        let (series, _) = table.measure(what.title(), places, &mut players)?;
        let (plot, axes, less_is_better) = match what {
            What::Get => {
                let time = Axis::log("until it is there", "µs");
                (Plot::Lines, (Axis::log("get", "B"), time), true)
            }
            What::FetchAdd | What::FetchAddOrdered => {
                let time = Axis::linear("until it answers", "µs");
                (Plot::Bars, (Axis::linear("word", "B"), time), true)
            }
            What::Words => {
                let rate = Axis::linear("puts", "million/s");
                (Plot::Bars, (Axis::linear("blocks", ""), rate), false)
            }
        };
        table.show(what.title(), plot, axes, less_is_better, series);
    }
    Ok(())
}
