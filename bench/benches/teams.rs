//! Communicators that come and go: how long it takes to make one and drop it, by a split and as a team, with and without a
//! barrier of it; 2 to 8 ranks as threads. `cargo bench -p mp-bench --bench teams` says elements, that is teams, a second.

use std::error::Error;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use libmp::{Communicator, Result, World};

type Make = fn(&World, &[usize]) -> Result<Communicator>;

fn split(world: &World, _: &[usize]) -> Result<Communicator> {
    world.split(Some(0), 0).map(|all| all.unwrap_or_else(|| Communicator::clone(world)))
}

fn team(world: &World, ranks: &[usize]) -> Result<Communicator> {
    world.team(ranks)
}

/// All ranks make so many and drop them; the time of the slowest.
fn all(worlds: &[World], make: Make, barrier: bool, count: u64) -> Result<Duration> {
    let ranks: Vec<usize> = (0..worlds.len()).collect();
    let one = |world: &World| -> Result<Duration> {
        world.barrier()?;
        let begin = Instant::now();
        for _ in 0..count {
            let made = make(world, &ranks)?;
            if barrier {
                made.barrier()?;
            }
        }
        Ok(begin.elapsed())
    };
    std::thread::scope(|scope| {
        let ranks: Vec<_> = worlds.iter().map(|world| scope.spawn(|| one(world))).collect();
        let times = ranks.into_iter().map(|rank| match rank.join() {
            Ok(time) => time,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        times.collect::<Result<Vec<_>>>().map(|times| times.into_iter().max().unwrap_or_default())
    })
}

fn teams(c: &mut Criterion) -> std::result::Result<(), Box<dyn Error>> {
    let ways: [(&str, Make, bool); 4] = [
        ("split", split, false),
        ("team", team, false),
        ("split and barrier", split, true),
        ("team and barrier", team, true),
    ];
    for (name, make, barrier) in ways {
        let mut group = c.benchmark_group(name);
        group.throughput(Throughput::Elements(1));
        for ranks in [2, 4, 8] {
            let worlds = World::threads(ranks)?;
            group.bench_function(BenchmarkId::from_parameter(ranks), |b| {
                b.iter_custom(|count| match all(&worlds, make, barrier, count) {
                    Ok(time) => time,
                    Err(error) => panic!("{error}"),
                });
            });
            std::thread::scope(|scope| {
                worlds.into_iter().for_each(|world| drop(scope.spawn(|| world.finish())));
            });
        }
    }
    Ok(())
}

fn run(c: &mut Criterion) {
    if let Err(error) = teams(c) {
        panic!("{error}");
    }
}

criterion_group!(benches, run);
criterion_main!(benches);
