//! Every kind of collective with every type and operation, by the host, streams and kernels in any mixture, on the world and on teams,
//! against what a serial program makes of the ranks' values.

mod common;
#[path = "common/kernels.rs"]
mod kernels;

use std::cell::Cell;
use std::ops::Range;
use std::time::Duration;

use bytemuck::Pod;
use common::{config, on_threads};
use kernels::{Kernels, Value, address};
use libmp::gdsync::Buffer;
use libmp::{
    Collective, CollectiveRun, Communicator, Deadline, Device, Number, ReduceOp, Region, Stream,
    World, bf16, f16,
};
use mp_kernels::Extent;

const INTEGERS: [ReduceOp; 7] = [
    ReduceOp::Sum,
    ReduceOp::Prod,
    ReduceOp::Min,
    ReduceOp::Max,
    ReduceOp::And,
    ReduceOp::Or,
    ReduceOp::Xor,
];
const FLOATS: [ReduceOp; 4] = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max];

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(300))
}

/// A number that the tests make and combine by themselves.
trait Sample: Number + Pod + Default + PartialOrd + std::fmt::Debug {
    const OPS: &'static [ReduceOp];
    fn of(number: u64) -> Self;
    fn join(op: ReduceOp, a: Self, b: Self) -> Self;
}

macro_rules! samples {
    ($($type:ident: $ops:ident, $of:expr, $sum:expr, $prod:expr, $bits:expr);+ $(;)?) => { $(
        impl Sample for $type {
            const OPS: &'static [ReduceOp] = &$ops;
            fn of(number: u64) -> $type {
                $of(number)
            }
            fn join(op: ReduceOp, a: $type, b: $type) -> $type {
                match op {
                    ReduceOp::Sum => $sum(a, b),
                    ReduceOp::Prod => $prod(a, b),
                    ReduceOp::Min => if b < a { b } else { a },
                    ReduceOp::Max => if b > a { b } else { a },
                    _ => $bits(op, a, b),
                }
            }
        }
    )+ };
}

/// A fraction: sums and products of them depend on their order.
fn fraction(number: u64) -> f64 {
    1.0 / (1 + number % 101) as f64 - 0.25
}

fn mixed(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
}

fn bits<T>(op: ReduceOp, a: T, b: T) -> T
where
    T: std::ops::BitAnd<Output = T> + std::ops::BitOr<Output = T> + std::ops::BitXor<Output = T>,
{
    match op {
        ReduceOp::And => a & b,
        ReduceOp::Or => a | b,
        _ => a ^ b,
    }
}

fn none<T>(op: ReduceOp, _: T, _: T) -> T {
    panic!("{op} of floating-point numbers")
}

samples! {
    u64: INTEGERS, mixed, u64::wrapping_add, u64::wrapping_mul, bits;
    i64: INTEGERS, |number| mixed(number) as i64, i64::wrapping_add, i64::wrapping_mul, bits;
    u32: INTEGERS, |number| mixed(number) as u32, u32::wrapping_add, u32::wrapping_mul, bits;
    i32: INTEGERS, |number| mixed(number) as i32, i32::wrapping_add, i32::wrapping_mul, bits;
    f64: FLOATS, fraction, |a, b| a + b, |a, b| a * b, none;
    f32: FLOATS, |number| fraction(number) as f32, |a, b| a + b, |a, b| a * b, none;
    f16: FLOATS, |number| f16::from_f64(fraction(number)), |a: f16, b: f16| f16::from_f64(a.to_f64() + b.to_f64()),
        |a: f16, b: f16| f16::from_f64(a.to_f64() * b.to_f64()), none;
    bf16: FLOATS, |number| bf16::from_f64(fraction(number)), |a: bf16, b: bf16| bf16::from_f64(a.to_f64() + b.to_f64()),
        |a: bf16, b: bf16| bf16::from_f64(a.to_f64() * b.to_f64()), none;
}

/// How runs are started.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Trigger {
    Host,
    Stream,
    /// Each rank in another way than its neighbours, and each time in another one.
    Mixed,
}

/// A rank of a test.
struct Rank<'a> {
    comm: &'a Communicator,
    all: Collective,
    stream: Stream,
    device: &'a Device,
    trigger: Trigger,
    runs: Cell<usize>,
}

impl<'a> Rank<'a> {
    fn new(comm: &'a Communicator, device: &'a Device, bytes: usize, trigger: Trigger) -> Self {
        let all = comm.prepare_collective(device, bytes).unwrap();
        let stream = comm.stream(device).unwrap();
        Rank { comm, all, stream, device, trigger, runs: Cell::new(0) }
    }

    fn of<T: Pod>(&self, values: &[T]) -> Region<T> {
        let region = self.comm.alloc(self.device, values.len()).unwrap();
        region.write(values).unwrap();
        region
    }

    /// Starts a run and waits for it.
    fn go(&self, run: CollectiveRun<'_>) {
        let number = self.runs.replace(self.runs.get() + 1);
        let way = match self.trigger {
            Trigger::Host => number % 2,
            Trigger::Stream => 2,
            Trigger::Mixed => (number + self.comm.rank()) % 3,
        };
        match way {
            0 => run.run().unwrap(),
            1 => {
                run.start().unwrap();
                self.all.wait(soon()).unwrap();
            }
            _ => {
                run.start_on(&self.stream).unwrap();
                self.comm.synchronize(&self.stream, soon()).unwrap();
            }
        }
    }
}

/// Element `i` of what rank `from` has for rank `to`.
fn value<T: Sample>(from: usize, to: usize, i: usize) -> T {
    T::of((from * 7 + to * 31 + i * 5 + 1) as u64)
}

fn check<T: Pod + std::fmt::Debug>(what: &str, rank: &Rank<'_>, there: &Region<T>, expected: &[T]) {
    let there = there.to_vec().unwrap();
    let (one, other) =
        (bytemuck::cast_slice::<T, u8>(&there), bytemuck::cast_slice::<T, u8>(expected));
    if one != other {
        let wrong: Vec<usize> = (0..expected.len())
            .filter(|&i| bytemuck::bytes_of(&there[i]) != bytemuck::bytes_of(&expected[i]))
            .collect();
        let (me, size, first) = (rank.comm.rank(), rank.comm.size(), wrong[0]);
        panic!(
            "{what} of {} on rank {me} of {size}, by {:?}: {} of {} are wrong, {first} is {:?}, not {:?}",
            std::any::type_name::<T>(),
            rank.trigger,
            wrong.len(),
            expected.len(),
            there[first],
            expected[first],
        );
    }
}

/// Ranges of rank `me`, of blocks of up to `count` elements, and of what it takes, in the other order with gaps.
fn ranges(me: usize, ranks: usize, count: usize) -> (Vec<Range<usize>>, Vec<Range<usize>>) {
    let length = |from: usize, to: usize| (from * 3 + to * 5) % 4 * count / 3;
    let given = (0..ranks).map(|to| to * count..to * count + length(me, to)).collect();
    let mut end = 0;
    let mut taken: Vec<_> = (0..ranks)
        .rev()
        .map(|from| {
            let first = end + 1;
            end = first + length(from, me);
            first..end
        })
        .collect();
    taken.reverse();
    (given, taken)
}

/// What only moves values.
fn moves<T: Sample>(rank: &Rank<'_>, root: usize, count: usize) {
    let (me, ranks, all) = (rank.comm.rank(), rank.comm.size(), &rank.all);
    let of = |from: usize, to: usize| (0..count).map(move |i| value::<T>(from, to, i));
    let everybody: Vec<T> = (0..ranks).flat_map(|to| of(me, to)).collect();
    let (row, one) = (rank.of(&everybody), rank.of(&of(me, 0).collect::<Vec<_>>()));
    let blank = |len: usize| rank.of(&vec![T::default(); len]);
    let (to, single) = (blank(ranks * count), blank(count));
    let (given, taken) = ranges(me, ranks, count);
    let len = taken.iter().map(|range| range.end).max().unwrap_or_default();
    let apart = blank(len);
    // Making memory may wait for kernels, which must not wait for this rank yet.
    rank.comm.barrier().unwrap();
    rank.go(all.barrier());
    rank.go(all.broadcast(root, &one));
    check("broadcast", rank, &one, &of(root, 0).collect::<Vec<_>>());
    one.write(&of(me, 0).collect::<Vec<_>>()).unwrap();
    rank.go(all.all_gather(&one, &to));
    let gathered: Vec<T> = (0..ranks).flat_map(|from| of(from, 0)).collect();
    check("all-gather", rank, &to, &gathered);
    to.write(&vec![T::default(); ranks * count]).unwrap();
    rank.go(all.gather(root, &one, &to));
    let nothing = vec![T::default(); ranks * count];
    check("gather", rank, &to, if me == root { &gathered } else { &nothing });
    rank.go(all.scatter(root, &row, &single));
    check("scatter", rank, &single, &of(root, me).collect::<Vec<_>>());
    rank.go(all.all_to_all(&row, &to));
    let turned: Vec<T> = (0..ranks).flat_map(|from| of(from, me)).collect();
    check("all-to-all", rank, &to, &turned);
    rank.go(all.all_to_all_v(&row, &given, &apart, &taken));
    let mut expected = vec![T::default(); len];
    for (from, range) in taken.iter().enumerate() {
        for (i, at) in range.clone().enumerate() {
            expected[at] = value(from, me, i);
        }
    }
    check("all-to-all-v", rank, &apart, &expected);
    // In place, where everything is overwritten that has been given.
    rank.go(all.all_to_all(&row, &row));
    check("all-to-all in place", rank, &row, &turned);
}

/// What combines them.
fn combines<T: Sample>(rank: &mut Rank<'_>, op: ReduceOp, root: usize, count: usize) {
    let (me, ranks) = (rank.comm.rank(), rank.comm.size());
    let of = |from: usize, to: usize| (0..count).map(move |i| value::<T>(from, to, i));
    // Of the ranks up to one, for rank `to`.
    let joined = |last: usize, to: usize| -> Vec<T> {
        let join = |sum: Vec<T>, from| {
            sum.iter().zip(of(from, to)).map(|(&a, b)| T::join(op, a, b)).collect()
        };
        (1..=last).fold(of(0, to).collect(), join)
    };
    let everybody: Vec<T> = (0..ranks).flat_map(|to| of(me, to)).collect();
    let mine: Vec<T> = of(me, 0).collect();
    let (row, one, to) = (rank.of(&everybody), rank.of(&mine), rank.of(&vec![T::default(); count]));
    // Making memory may wait for kernels, which must not wait for this rank yet.
    rank.comm.barrier().unwrap();
    let all = &rank.all;
    rank.go(all.reduce(op, root, &one, &to));
    let nothing = vec![T::default(); count];
    let whole = joined(ranks - 1, 0);
    check("reduce", rank, &to, if me == root { &whole } else { &nothing });
    rank.go(all.reduce_scatter(op, &row, &to));
    check("reduce-scatter", rank, &to, &joined(ranks - 1, me));
    rank.go(all.scan(op, &one, &to));
    check("scan", rank, &to, &joined(me, 0));
    rank.go(all.all_reduce(op, &one, &to));
    check("all-reduce", rank, &to, &whole);
    rank.go(all.all_reduce(op, &one, &one));
    check("all-reduce in place", rank, &one, &whole);
    let mut values = mine;
    rank.all.all_reduce_slice(op, &mut values).unwrap();
    let (one, other) =
        (bytemuck::cast_slice::<T, u8>(&values), bytemuck::cast_slice::<T, u8>(&whole));
    assert!(one == other, "{op} of a slice of {count} on rank {me} of {ranks}");
}

fn every_kind_of<T: Sample>(rank: &mut Rank<'_>, count: usize) {
    let last = rank.comm.size() - 1;
    for root in if last == 0 { vec![0] } else { vec![0, last] } {
        moves::<T>(rank, root, count);
    }
    for (i, &op) in T::OPS.iter().enumerate() {
        combines::<T>(rank, op, i % (last + 1), count);
    }
}

/// Every type, with blocks of `count` elements of it.
fn every_type(comm: &Communicator, device: &Device, trigger: Trigger, count: usize) {
    let mut rank = Rank::new(comm, device, 8 * count, trigger);
    every_kind_of::<f64>(&mut rank, count);
    every_kind_of::<f32>(&mut rank, count);
    every_kind_of::<f16>(&mut rank, count);
    every_kind_of::<bf16>(&mut rank, count);
    every_kind_of::<u64>(&mut rank, count);
    every_kind_of::<i64>(&mut rank, count);
    every_kind_of::<u32>(&mut rank, count);
    every_kind_of::<i32>(&mut rank, count);
    comm.barrier().unwrap();
}

/// All triggers; `larger` blocks, of so many values, by streams and the host in turn.
fn on_the_world(device: &Device, ranks: &[usize], larger: &[usize]) {
    for &ranks in ranks {
        on_threads(World::threads_with_config(ranks, &config()).unwrap(), |world| {
            for trigger in [Trigger::Host, Trigger::Stream, Trigger::Mixed] {
                every_type(&world, device, trigger, 7);
            }
            for &count in larger {
                every_type(&world, device, Trigger::Mixed, count);
            }
            world.finish().unwrap();
        });
    }
}

/// Teams that are not the world, whose ranks are in the reverse order of the world's.
fn on_teams_in_reverse(device: &Device, sizes: &[usize]) {
    for &ranks in sizes {
        on_threads(World::threads_with_config(ranks + 1, &config()).unwrap(), |world| {
            let is_in = world.rank() != ranks / 2;
            let team = world.split(is_in.then_some(5), -(world.rank() as i64)).unwrap();
            assert_eq!(team.is_some(), is_in);
            if let Some(team) = team {
                assert_eq!(team.size(), ranks);
                every_type(&team, device, Trigger::Mixed, 5);
                let mut rank = Rank::new(&team, device, 40_000, Trigger::Mixed);
                team.barrier().unwrap();
                every_kind_of::<f64>(&mut rank, 5000);
                team.barrier().unwrap();
            }
            world.finish().unwrap();
        });
    }
}

/// Kernels of several blocks, another number on each rank, of `threads`, or by a thread or a warp of each block, between runs of the host
/// and of streams: of blocks of `counts` values.
fn kernels_join_in(
    device: &Device,
    room: usize,
    sizes: &[usize],
    (counts, threads): (&[usize], u32),
    rounds: usize,
) {
    let kernels = Kernels::of(device);
    for &ranks in sizes {
        on_threads(World::threads_with_config(ranks, &config()).unwrap(), |world| {
            let (me, blocks) = (world.rank(), 1 + world.rank() as u32 % 3);
            let rank = Rank::new(&world, device, room, Trigger::Mixed);
            let all = &rank.all;
            for &count in counts {
                let of =
                    |from: usize, to: usize| (0..count).map(move |i| value::<f64>(from, to, i));
                let everybody: Vec<f64> = (0..ranks).flat_map(|to| of(me, to)).collect();
                let row = rank.of(&everybody);
                let one = row.slice(0..count).unwrap();
                let (given, taken) = ranges(me, ranks, count);
                let len = taken.iter().map(|range| range.end).max().unwrap_or_default();
                let to = rank.of(&vec![0.0; (ranks * count).max(len)]);
                let table = |ranges: &[Range<usize>]| -> Buffer<Extent> {
                    let extent = |range: &Range<usize>| Extent {
                        at: 8 * range.start as u64,
                        bytes: 8 * range.len() as u64,
                    };
                    let table = device.alloc_pinned(ranges.len()).unwrap();
                    table.write(&ranges.iter().map(extent).collect::<Vec<_>>()).unwrap();
                    table
                };
                let (gives, takes) = (table(&given), table(&taken));
                let results = kernels.results();
                world.barrier().unwrap();
                for round in 0..rounds {
                    for kind in 0..11u32 {
                        let root = (round + kind as usize) % ranks;
                        to.write(&vec![0.0; to.len()]).unwrap();
                        if kind == 0 {
                            to.slice(0..count).unwrap().write(&everybody[..count]).unwrap();
                        }
                        let (begin, whole) =
                            (to.slice(0..count).unwrap(), to.slice(0..ranks * count).unwrap());
                        if (round + kind as usize + me).is_multiple_of(2) {
                            results.write(&[0; 3]).unwrap();
                            let args = vec![
                                Value::Collective(all.handle()),
                                Value::Half(kind),
                                Value::Word(root as u64),
                                Value::Word(address(row.buffer())),
                                Value::Word(address(to.buffer())),
                                Value::Word(count as u64),
                                Value::Word(address(&gives)),
                                Value::Word(address(&takes)),
                                Value::Word(address(&results)),
                            ];
                            let threads = [threads, 1, 32][(round + kind as usize / 2 + me) % 3];
                            kernels.launch(&rank.stream, "test_kind", (blocks, threads), args);
                            world.synchronize(&rank.stream, soon()).unwrap();
                            assert_eq!(results.to_vec().unwrap(), [0; 3], "kind {kind}");
                        } else {
                            rank.go(match kind {
                                0 => all.broadcast(root, &begin),
                                1 => all.all_gather(&one, &whole),
                                2 => all.gather(root, &one, &whole),
                                3 => all.scatter(root, &row, &begin),
                                4 => all.all_to_all(&row, &whole),
                                5 => all.all_to_all_v(&row, &given, &to, &taken),
                                6 => all.reduce(ReduceOp::Sum, root, &one, &begin),
                                7 => all.reduce_scatter(ReduceOp::Sum, &row, &begin),
                                8 => all.all_reduce(ReduceOp::Sum, &one, &begin),
                                9 => all.scan(ReduceOp::Sum, &one, &begin),
                                _ => all.barrier(),
                            });
                        }
                        let sum = |last: usize, to: usize| -> Vec<f64> {
                            let join = |sum: Vec<f64>, from| {
                                sum.iter().zip(of(from, to)).map(|(a, b)| a + b).collect()
                            };
                            (1..=last).fold(of(0, to).collect(), join)
                        };
                        let mut expected = match kind {
                            0 => of(root, 0).collect(),
                            1 => (0..ranks).flat_map(|from| of(from, 0)).collect(),
                            2 if me == root => (0..ranks).flat_map(|from| of(from, 0)).collect(),
                            3 => of(root, me).collect(),
                            4 => (0..ranks).flat_map(|from| of(from, me)).collect(),
                            6 if me == root => sum(ranks - 1, 0),
                            7 => sum(ranks - 1, me),
                            8 => sum(ranks - 1, 0),
                            9 => sum(me, 0),
                            _ => Vec::new(),
                        };
                        expected.resize(to.len(), 0.0);
                        if kind == 5 {
                            for (from, range) in taken.iter().enumerate() {
                                let values = of(from, me).take(range.len());
                                range
                                    .clone()
                                    .zip(values)
                                    .for_each(|(at, value)| expected[at] = value);
                            }
                        }
                        check(&format!("kind {kind}"), &rank, &to, &expected);
                    }
                }
                world.barrier().unwrap();
            }
            drop(rank);
            world.finish().unwrap();
        });
    }
}

/// Runs of a graph, which the host does not count.
fn captured_runs_are_replayed(device: &Device) {
    for (ranks, count) in [(2, 20), (3, 3000)] {
        on_threads(World::threads_with_config(ranks, &config()).unwrap(), |world| {
            let rank = Rank::new(&world, device, 8 * count, Trigger::Stream);
            let me = world.rank();
            let of = |from: usize, to: usize| (0..count).map(move |i| value::<f64>(from, to, i));
            let row = rank.of(&(0..ranks).flat_map(|to| of(me, to)).collect::<Vec<_>>());
            let (to, apart) = (rank.of(&vec![0.0; ranks * count]), ranges(me, ranks, count));
            let len = apart.1.iter().map(|range| range.end).max().unwrap_or_default();
            let parts = rank.of(&vec![0.0; len]);
            let one = row.slice(0..count).unwrap();
            let sum = rank.of(&vec![0.0; count]);
            world.barrier().unwrap();
            rank.stream.begin_capture().unwrap();
            rank.all.all_to_all(&row, &to).start_on(&rank.stream).unwrap();
            rank.all.all_to_all_v(&row, &apart.0, &parts, &apart.1).start_on(&rank.stream).unwrap();
            rank.all.scan(ReduceOp::Sum, &one, &sum).start_on(&rank.stream).unwrap();
            rank.all.all_reduce(ReduceOp::Sum, &sum, &sum).start_on(&rank.stream).unwrap();
            let graph = rank.stream.end_capture().unwrap();
            for round in 0..4 {
                to.write(&vec![0.0; ranks * count]).unwrap();
                parts.write(&vec![0.0; len]).unwrap();
                rank.stream.launch_graph(&graph).unwrap();
                world.synchronize(&rank.stream, soon()).unwrap();
                let turned: Vec<f64> = (0..ranks).flat_map(|from| of(from, me)).collect();
                check(&format!("all-to-all, replay {round}"), &rank, &to, &turned);
                let mut expected = vec![0.0; len];
                for (from, range) in apart.1.iter().enumerate() {
                    range.clone().zip(of(from, me)).for_each(|(at, value)| expected[at] = value);
                }
                check(&format!("all-to-all-v, replay {round}"), &rank, &parts, &expected);
                let upto = |last: usize, i: usize| {
                    (1..=last)
                        .fold(value::<f64>(0, 0, i), |sum, from| sum + value::<f64>(from, 0, i))
                };
                let all = |i| (1..ranks).fold(upto(0, i), |sum, last| sum + upto(last, i));
                check("all-reduce of scans", &rank, &sum, &(0..count).map(all).collect::<Vec<_>>());
            }
            world.barrier().unwrap();
            drop((rank, graph));
            world.finish().unwrap();
        });
    }
}

mod host {
    use super::*;

    /// Values of blocks for a ring, for several, and for lanes.
    const COUNTS: [usize; 3] = [4, 1500, 3000];

    #[test]
    fn every_kind_type_and_operation_on_the_world() {
        // Of several rings, and of lanes.
        on_the_world(&Device::Host, &[1, 2, 3, 4, 7], &[1500, 2500]);
    }

    #[test]
    fn every_kind_type_and_operation_on_teams_in_reverse() {
        on_teams_in_reverse(&Device::Host, &[1, 2, 3, 4, 7]);
    }

    #[test]
    fn every_kind_through_a_nic() {
        for path in common::nic_paths() {
            let mut config = config();
            config.path = path.parse().unwrap();
            for ranks in [2, 3] {
                on_threads(World::threads_with_config(ranks, &config).unwrap(), |world| {
                    let mut rank = Rank::new(&world, &Device::Host, 24_000, Trigger::Mixed);
                    moves::<f64>(&rank, ranks - 1, 5);
                    moves::<i32>(&rank, 0, 150);
                    // Two rows.
                    moves::<f64>(&rank, ranks - 1, 3000);
                    combines::<f64>(&mut rank, ReduceOp::Sum, 0, 3);
                    combines::<f32>(&mut rank, ReduceOp::Prod, 1, 6000);
                    combines::<f16>(&mut rank, ReduceOp::Max, 1, 9);
                    combines::<u32>(&mut rank, ReduceOp::Xor, 0, 200);
                    rank.go(rank.all.barrier());
                    world.barrier().unwrap();
                    drop(rank);
                    world.finish().unwrap();
                });
            }
        }
    }

    #[test]
    fn kernels_join_in() {
        super::kernels_join_in(&Device::Host, 8 * 3000, &[1, 2, 3], (&COUNTS, 3), 4);
    }

    #[test]
    fn kernels_join_in_through_a_nic() {
        common::each_path(|| {
            super::kernels_join_in(&Device::Host, 8 * 3000, &[2], (&COUNTS, 3), 2)
        });
    }

    /// Kernels and the host post to different queues of a NIC.
    #[test]
    fn what_the_host_says_does_not_overtake_what_kernels_have_posted() {
        const COUNT: usize = 4;
        common::each_path(|| {
            let kernels = Kernels::of(&Device::Host);
            on_threads(World::threads_with_config(2, &config()).unwrap(), |world| {
                let rank = Rank::new(&world, &Device::Host, 8 * COUNT, Trigger::Host);
                let to = rank.of(&[0.0f64; COUNT]);
                let results = kernels.results();
                world.barrier().unwrap();
                for round in 1..=1000 {
                    let given = [round as f64; COUNT];
                    to.write(if world.rank() == 0 { &given } else { &[0.0; COUNT] }).unwrap();
                    if world.rank() == 0 && round % 2 == 1 {
                        results.write(&[0; 3]).unwrap();
                        let args = vec![
                            Value::Collective(rank.all.handle()),
                            Value::Half(0),
                            Value::Word(0),
                            Value::Word(address(to.buffer())),
                            Value::Word(address(to.buffer())),
                            Value::Word(COUNT as u64),
                            Value::Word(0),
                            Value::Word(0),
                            Value::Word(address(&results)),
                        ];
                        kernels.launch(&rank.stream, "test_kind", (1, 1), args);
                        world.synchronize(&rank.stream, soon()).unwrap();
                        assert_eq!(results.to_vec().unwrap(), [0; 3]);
                    } else {
                        rank.all.broadcast(0, &to).run().unwrap();
                    }
                    assert_eq!(to.to_vec().unwrap(), given, "round {round}");
                }
                world.barrier().unwrap();
                drop(rank);
                world.finish().unwrap();
            });
        });
    }

    /// All-to-all-v takes as many rows as its blocks have, not as there is room for.
    #[test]
    fn room_for_any_blocks_costs_nothing() {
        common::each_path(|| {
            super::kernels_join_in(&Device::Host, usize::MAX, &[3], (&COUNTS, 3), 2)
        });
    }

    #[test]
    fn blocks_without_bytes_take_no_row() {
        common::ranks(3, |world| {
            let rank = Rank::new(world, &Device::Host, usize::MAX, Trigger::Mixed);
            let (none, nothing) = (rank.of::<u64>(&[]), [0..0, 0..0, 0..0]);
            for _ in 0..6 {
                rank.go(rank.all.all_to_all_v(&none, &nothing, &none, &nothing));
                rank.go(rank.all.barrier());
            }
            world.barrier().unwrap();
        });
    }

    #[test]
    fn captured_runs_are_replayed() {
        super::captured_runs_are_replayed(&Device::Host);
    }

    /// Who gives without taking runs ahead of those who take, until its turn is over.
    #[test]
    fn a_root_that_never_waits_overwrites_nothing() {
        for count in [3, 1500, 3000] {
            on_threads(World::threads_with_config(3, &config()).unwrap(), |world| {
                let rank = Rank::new(&world, &Device::Host, 8 * count, Trigger::Host);
                for round in 0..200u64 {
                    // One in turn is late.
                    if round % 64 == 20 * world.rank() as u64 {
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    let root = (round / 50) as usize % 3;
                    let of = |round: u64| (0..count as u64).map(move |i| round << 16 | i);
                    let mine =
                        if root == world.rank() { of(round).collect() } else { vec![0; count] };
                    let values = rank.of(&mine);
                    rank.go(rank.all.broadcast(root, &values));
                    check("broadcast", &rank, &values, &of(round).collect::<Vec<_>>());
                }
                world.barrier().unwrap();
                drop(rank);
                world.finish().unwrap();
            });
        }
    }
}

/// With `MP_PATH`, through the NIC.
mod gpu {
    use super::*;

    /// Values of a block that no rings carry.
    const LARGE: usize = 150_000;

    fn gpu() -> Device {
        Device::cuda(0).unwrap()
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn every_kind_type_and_operation_on_the_world() {
        on_the_world(&gpu(), &[1, 2, 3], &[2500]);
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn every_kind_type_and_operation_on_teams_in_reverse() {
        on_teams_in_reverse(&gpu(), &[2, 3]);
    }

    /// A rank on each, or two on one: small blocks, those of several rings, and those in pieces.
    #[test]
    #[ignore = "needs a GPU"]
    fn every_kind_type_and_operation_between_all_gpus() {
        let gpus = libmp::gdsync::CudaDevice::count().unwrap();
        for ranks in 2..=gpus.clamp(2, 8) as usize {
            on_threads(World::threads_with_config(ranks, &config()).unwrap(), |world| {
                let device = Device::cuda(world.rank() as u32 % gpus).unwrap();
                every_type(&world, &device, Trigger::Stream, 7);
                every_type(&world, &device, Trigger::Mixed, 2500);
                let mut rank = Rank::new(&world, &device, 8 * LARGE, Trigger::Mixed);
                every_kind_of::<f64>(&mut rank, LARGE);
                every_kind_of::<f32>(&mut rank, LARGE - 1);
                world.barrier().unwrap();
                drop(rank);
                world.finish().unwrap();
            });
        }
    }

    #[test]
    #[ignore = "needs a GPU and TEST_KERNELS"]
    fn kernels_join_in() {
        super::kernels_join_in(&gpu(), 8 * 3000, &[1, 2, 3], (&[4, 3000], 3), 6);
    }

    /// More than rings carry, also by more ranks than have all their blocks on the GPU at once.
    #[test]
    #[ignore = "needs a GPU and TEST_KERNELS"]
    fn large_blocks_of_streams_and_kernels() {
        super::kernels_join_in(&gpu(), 8 * LARGE, &[2, 3], (&[LARGE], 256), 2);
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn captured_runs_are_replayed() {
        super::captured_runs_are_replayed(&gpu());
    }
}
