//! What the host pays for communication: a signal there and back between two threads (peer: a bare atomic), a message there
//! and back between two ranks by the length of the line of tags in which it is matched, and enqueuing memory operations.

use std::error::Error;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use gdsync::{Deadline, Device, MemOp};
use libmp::{Operation, Region, World, wait_all};

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

/// Times `iterations` round trips: `there` raises to a value, `back` says what came back.
fn round_trips(
    there: impl Fn(u64),
    back: impl Fn() -> u64,
    next: &mut u64,
    count: u64,
) -> Duration {
    let begin = Instant::now();
    for _ in 0..count {
        *next += 1;
        there(*next);
        while back() < *next {
            spin_loop();
        }
    }
    begin.elapsed()
}

fn signals(c: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let mut group = c.benchmark_group("signal, there and back between threads");
    let words = Device::Host.alloc_pinned::<u64>(16)?;
    let (ping, pong) = (words.word(0)?, words.word(8)?);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let seen = ping.load().unwrap_or_default();
                if pong.load() != Some(seen) && pong.store(seen).is_err() {
                    return;
                }
            }
        });
        let mut next = 0;
        let raise = |value| drop(ping.store(value));
        group.bench_function("word", |b| {
            b.iter_custom(|count| {
                round_trips(raise, || pong.load().unwrap_or(u64::MAX), &mut next, count)
            });
        });
        stop.store(true, Ordering::Relaxed);
    });
    #[repr(align(64))]
    struct Line(AtomicU64);
    let (ping, pong) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    stop.store(false, Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                pong.0.store(ping.0.load(Ordering::Acquire), Ordering::Release);
            }
        });
        let mut next = 0;
        let raise = |value| ping.0.store(value, Ordering::Release);
        group.bench_function("bare atomic", |b| {
            b.iter_custom(|count| {
                round_trips(raise, || pong.0.load(Ordering::Acquire), &mut next, count)
            });
        });
        stop.store(true, Ordering::Relaxed);
    });
    group.finish();
    Ok(())
}

/// One rank's round trips with the last of `tags` prepared pairs.
fn rank(world: &World, tags: u64, count: u64) -> libmp::Result<Duration> {
    let peer = world.peer(1 - world.rank())?;
    let mut pairs = Vec::new();
    for tag in 0..tags {
        let out: Region<u64> = world.alloc(&Device::Host, 1)?;
        let here: Region<u64> = world.alloc(&Device::Host, 1)?;
        let send = peer.send(&out, tag).prepare()?;
        pairs.push((send, peer.recv(&here, tag).prepare()?));
    }
    world.barrier()?;
    let Some((send, recv)) = pairs.last() else { return Ok(Duration::ZERO) };
    let begin = Instant::now();
    for _ in 0..count {
        recv.start()?;
        if world.rank() == 0 {
            send.start()?;
            wait_all(&[recv, send], soon())?;
        } else {
            recv.wait(soon())?;
            send.start()?;
            send.wait(soon())?;
        }
    }
    let time = begin.elapsed();
    world.barrier()?;
    Ok(time)
}

fn messages(c: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let mut group = c.benchmark_group("message of 8 bytes, there and back between threads");
    for tags in [1, 64] {
        group.bench_function(BenchmarkId::new("prepared pairs", tags), |b| {
            b.iter_custom(|count| {
                let worlds = World::threads(2).unwrap_or_else(|error| panic!("{error}"));
                let times: Vec<_> = std::thread::scope(|scope| {
                    let ranks: Vec<_> = worlds
                        .into_iter()
                        .map(|world| {
                            scope.spawn(move || {
                                let time = rank(&world, tags, count)?;
                                world.finish().map(|()| time)
                            })
                        })
                        .collect();
                    ranks.into_iter().map(|rank| rank.join()).collect()
                });
                match times.into_iter().next() {
                    Some(Ok(Ok(time))) => time,
                    other => panic!("a rank failed: {other:?}"),
                }
            });
        });
    }
    group.finish();
    Ok(())
}

fn batches(c: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let mut group = c.benchmark_group("enqueue memory operations on a host stream");
    let stream = Device::Host.stream()?;
    let words = Device::Host.alloc_pinned::<u64>(64)?;
    let words = (0..8).map(|at| words.word(8 * at)).collect::<Result<Vec<_>, _>>()?;
    for len in [1usize, 8, 64] {
        let ops: Vec<MemOp<'_>> =
            (0..len).map(|at| MemOp::Write64(&words[at % words.len()], at as u64)).collect();
        group.bench_function(BenchmarkId::new("one batch of", len), |b| {
            b.iter(|| stream.batch(&ops));
        });
    }
    stream.synchronize(soon())?;
    group.finish();
    Ok(())
}

fn all(c: &mut Criterion) {
    for bench in [signals, messages, batches] {
        if let Err(error) = bench(c) {
            panic!("{error}");
        }
    }
}

criterion_group!(benches, all);
criterion_main!(benches);
