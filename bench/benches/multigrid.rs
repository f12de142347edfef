//! The two things that HPGMG-FV does most, on 64³ in 8 boxes, one thread: a half-sweep of the smoother with each operator, and
//! filling the halo from the boxes of the same rank. Peer: what a copy of as many bytes takes.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use hpgmg::backend::Vector;
use hpgmg::comm::Alone;
use hpgmg::cpu::Cpu;
use hpgmg::cpu::Step;
use hpgmg::options::{Config, Operator};
use hpgmg::work::Work;

fn multigrid(c: &mut Criterion) {
    let mut group = c.benchmark_group("64³ cells");
    group.throughput(Throughput::Elements(1 << 18));
    let operators = [
        ("fv4", Operator::Fv4),
        ("fv2", Operator::Fv2),
        ("7pt", Operator::P7),
        ("27pt", Operator::P27),
    ];
    for (name, operator) in operators {
        let config = Config { operator, box_dim: 32, boxes_per_rank: 8, ..Config::default() };
        let mut cpu = Cpu::new(config, &Alone, 1).unwrap_or_else(|error| panic!("{error}"));
        let step = Step::Gsrb { rhs: Vector::F, sweep: 0 };
        group.bench_function(BenchmarkId::new("half-sweep", name), |b| {
            b.iter(|| cpu.run(Work::Pass { l: 0, x: Vector::U, out: Vector::Temp, step }));
        });
        group.bench_function(BenchmarkId::new("halo", name), |b| {
            b.iter(|| cpu.fill_halo(0, Vector::U));
        });
    }
    // A half-sweep reads or writes about seven vectors.
    let (mut to, from) = (vec![0.0f64; 7 << 17], vec![1.0f64; 7 << 17]);
    group.bench_function("copy of 56 bytes a cell", |b| {
        b.iter(|| black_box(&mut to).copy_from_slice(black_box(&from)));
    });
    group.finish();
}

criterion_group!(benches, multigrid);
criterion_main!(benches);
