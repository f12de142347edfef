//! What a post and a poll cost in bytes alone: encoding work-queue entries, decoding completions. Peer of the encoder: the
//! time of copying as many bytes.

use std::error::Error;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use gdsync::wqe::{
    Completion, CompletionKind, Cqe, DataSegment, Entry, Notify, Operation, Payload, RemoteAddress,
    SendRing, WorkRequest, WqeOpcode,
};

fn encoding(c: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let mut group = c.benchmark_group("encode");
    let remote = RemoteAddress { address: 0x7f00_0000_0000, rkey: 0x1234 };
    let pieces = [DataSegment::new(0x11, 0x7f00_0000_1000, 4096)?; 4];
    let into = DataSegment::new(0x11, 0x7f00_0000_1000, 8)?;
    let word = 42u64.to_le_bytes();
    let write = |payload| Operation::Write { remote, payload, imm: None };
    let requests = [
        ("write of 1 piece", write(Payload::Gather(&pieces[..1]))),
        ("write of 4 pieces", write(Payload::Gather(&pieces))),
        ("write of 8 bytes inline", write(Payload::Inline(&word))),
        ("fetch-add", Operation::FetchAdd { remote, add: 1, into }),
    ];
    let mut ring = SendRing::new(vec![[0; 16]; 4 * 1024])?;
    for (name, operation) in requests {
        let request =
            WorkRequest { qpn: 0x77, notify: Notify::Always, ..WorkRequest::new(operation) };
        let mut entry = Entry::new();
        entry.encode(&request)?;
        let bytes = entry.bytes().to_vec();
        let mut index = 0u16;
        group.bench_function(BenchmarkId::new("into the ring", name), |b| {
            b.iter(|| {
                let request = WorkRequest { index, ..black_box(request) };
                index = index.wrapping_add(1);
                entry.encode(&request).map(|()| ring.store(&entry))
            });
        });
        let mut copy = bytes.clone();
        group.bench_function(BenchmarkId::new("memcpy of as much", name), |b| {
            b.iter(|| black_box(&mut copy).copy_from_slice(black_box(&bytes)));
        });
    }
    group.finish();
    Ok(())
}

fn decoding(c: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let completion = Completion {
        qpn: 0x77,
        index: 9,
        user_index: 3,
        kind: CompletionKind::Request { opcode: WqeOpcode::Write, byte_count: 4096 },
    };
    let cqe = Cqe::encode(&completion, true)?;
    c.bench_function("decode a completion", |b| b.iter(|| black_box(&cqe).decode()));
    Ok(())
}

fn formats(c: &mut Criterion) {
    for bench in [encoding, decoding] {
        if let Err(error) = bench(c) {
            panic!("{error}");
        }
    }
}

criterion_group!(benches, formats);
criterion_main!(benches);
