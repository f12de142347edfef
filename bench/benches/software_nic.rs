//! The software NIC from post to completion, on the memory of this process: the time of an 8-byte write and of a mebibyte.
//! Peer: the copy alone.

use std::error::Error;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gdsync::nic::soft::{SoftNic, SoftNicOptions};
use gdsync::nic::{Access, Nic, QueuePairOptions};
use gdsync::wqe::{Notify, Operation, Payload, WorkRequest};
use gdsync::{Deadline, Device};

fn writes(c: &mut Criterion) -> Result<(), Box<dyn Error>> {
    const LARGEST: usize = 1 << 20;
    let nic = SoftNic::open(&SoftNicOptions::default())?;
    let queue = || nic.queue_pair(&Device::Host, &QueuePairOptions::default());
    let (left, right) = (queue()?, queue()?);
    left.connect(right.address())?;
    right.connect(left.address())?;
    let soon = || Deadline::after(Duration::from_secs(20));
    left.wait_connected(soon())?;
    let source = Device::Host.alloc_pinned::<u8>(LARGEST)?;
    let target = Device::Host.alloc_pinned::<u8>(LARGEST)?;
    let from = nic.register(&source.bytes(), Access::LOCAL_READ)?;
    let to = nic.register(&target.bytes(), Access::REMOTE_WRITE)?;
    let mut group = c.benchmark_group("write, post to completion");
    for size in [8usize, 4096, LARGEST] {
        let pieces = [from.segment(0, size as u32)?];
        let request = WorkRequest {
            notify: Notify::Always,
            ..WorkRequest::new(Operation::Write {
                remote: to.remote(0),
                payload: Payload::Gather(&pieces),
                imm: None,
            })
        };
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(BenchmarkId::new("software NIC", size), |b| {
            b.iter(|| left.post(&request).and_then(|position| left.wait(position, soon())));
        });
        let (mut here, there) = (vec![0u8; size], vec![1u8; size]);
        group.bench_function(BenchmarkId::new("memcpy", size), |b| {
            b.iter(|| black_box(&mut here).copy_from_slice(black_box(&there)));
        });
    }
    group.finish();
    Ok(())
}

fn software_nic(c: &mut Criterion) {
    if let Err(error) = writes(c) {
        panic!("{error}");
    }
}

criterion_group!(benches, software_nic);
criterion_main!(benches);
