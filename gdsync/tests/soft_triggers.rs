//! One send queue rung by the CPU and by streams: on the host, and, where there is one, on a GPU.

mod common;
mod soft_common;

use std::time::Duration;

use common::on_host_and_cuda;
use gdsync::nic::soft::{SoftNic, SoftNicOptions};
use gdsync::nic::{
    Access, ByKernel, CompletionMode, Cpu, Error, Nic, QueuePair, QueuePairOptions, Trigger,
};
use gdsync::wqe::{Operation, Payload, WorkRequest};
use gdsync::{Buffer, Deadline, Device};
use soft_common::{Outcome, signaled, soon};

on_host_and_cuda!(
    a_stream_rings_what_the_cpu_has_prepared,
    a_kernel_that_only_rings_rings_what_the_cpu_has_prepared,
    cpu_and_streams_ring_one_queue_in_the_order_of_its_entries,
    what_a_stream_wrote_before_it_rang_is_what_the_nic_sends,
    an_entry_cannot_be_rung_before_those_prepared_earlier,
);

fn pair(device: &Device, nic: &SoftNic) -> Outcome<(QueuePair, QueuePair)> {
    let options = QueuePairOptions {
        send_blocks: 128,
        send_completions: CompletionMode::Collapsed,
        ..QueuePairOptions::default()
    };
    let (left, right) = (nic.queue_pair(device, &options)?, nic.queue_pair(device, &options)?);
    left.connect(right.address())?;
    right.connect(left.address())?;
    Ok((left, right))
}

fn a_stream_rings_what_the_cpu_has_prepared(device: &Device) -> Outcome {
    let nic = SoftNic::open(&SoftNicOptions::default())?;
    let (left, _right) = pair(device, &nic)?;
    let memory = device.alloc_pinned::<u64>(2)?;
    let region = nic.register(&memory.bytes(), Access::ALL)?;
    let stream = device.stream()?;
    let gate = device.alloc_pinned::<u64>(1)?.word(0)?;
    memory.write(&[42, 0])?;
    let segment = [region.segment(0, 8)?];
    let payload = Payload::Gather(&segment);
    let write = Operation::Write { remote: region.remote(8), payload, imm: None };
    let prepared = left.prepare(&signaled(write))?;
    let position = prepared.position();
    stream.wait_geq64(&gate, 1)?;
    stream.ring(&left, prepared)?;
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(memory.to_vec()?, [42, 0], "the stream has not rung yet");
    gate.store(1)?;
    left.wait(position, soon())?;
    assert_eq!(memory.to_vec()?, [42, 42]);
    stream.synchronize(soon())?;
    Ok(())
}

fn a_kernel_that_only_rings_rings_what_the_cpu_has_prepared(device: &Device) -> Outcome {
    let nic = SoftNic::open(&SoftNicOptions::default())?;
    let (left, _right) = pair(device, &nic)?;
    let memory = device.alloc_pinned::<u64>(1)?;
    let region = nic.register(&memory.bytes(), Access::ALL)?;
    let stream = device.stream()?;
    for round in 1..=50_u64 {
        let bytes = round.to_ne_bytes();
        let payload = Payload::Inline(&bytes);
        let write = Operation::Write { remote: region.remote(0), payload, imm: None };
        let prepared = left.prepare(&signaled(write))?;
        let position = prepared.position();
        // Behind the stream's own, and before them.
        match round % 3 {
            0 => stream.ring(&left, prepared)?,
            _ => ByKernel(&stream, Duration::from_secs(20)).ring(&left, prepared)?,
        }
        if round % 5 == 0 {
            stream.synchronize(soon())?;
            left.wait(position, soon())?;
            assert_eq!(memory.to_vec()?, [round]);
        }
    }
    Ok(())
}

fn cpu_and_streams_ring_one_queue_in_the_order_of_its_entries(device: &Device) -> Outcome {
    let nic = SoftNic::open(&SoftNicOptions::default())?;
    let (left, _right) = pair(device, &nic)?;
    let memory = device.alloc_pinned::<u64>(2)?;
    let region = nic.register(&memory.bytes(), Access::ALL)?;
    let (remote, into) = (region.remote(0), region.segment(8, 8)?);
    let streams = [device.stream()?, device.stream()?];
    let rounds = 2000u64;
    let mut last = 0;
    for round in 0..rounds {
        // Each step is possible only after the one before.
        let step = Operation::CompareSwap { remote, compare: round, swap: round + 1, into };
        let prepared = soon().poll(|| match left.prepare(&signaled(step)) {
            Err(Error::Full { .. }) => None,
            other => Some(other),
        });
        let prepared = prepared.ok_or("never room")??;
        last = prepared.position();
        match round % 7 {
            0 | 3 => Cpu(soon()).ring(&left, prepared)?,
            1 | 4 | 5 => streams[0].ring(&left, prepared)?,
            _ => streams[1].ring(&left, prepared)?,
        }
    }
    left.wait(last, soon())?;
    assert_eq!(memory.to_vec()?, [rounds, rounds - 1]);
    for stream in &streams {
        stream.synchronize(soon())?;
    }
    Ok(())
}

fn what_a_stream_wrote_before_it_rang_is_what_the_nic_sends(device: &Device) -> Outcome {
    let nic = SoftNic::open(&SoftNicOptions::default())?;
    let (left, _right) = pair(device, &nic)?;
    let (from, to): (Buffer<u64>, Buffer<u64>) = (device.alloc_pinned(1)?, device.alloc_pinned(1)?);
    let source = nic.register(&from.bytes(), Access::LOCAL_READ)?;
    let target = nic.register(&to.bytes(), Access::REMOTE_WRITE)?;
    let stream = device.stream()?;
    let (source_word, target_word) = (from.word(0)?, to.word(0)?);
    let segment = [source.segment(0, 8)?];
    for round in 1..=300 {
        let payload = Payload::Gather(&segment);
        let write = Operation::Write { remote: target.remote(0), payload, imm: None };
        let prepared = soon().poll(|| match left.prepare(&signaled(write)) {
            Err(Error::Full { .. }) => None,
            other => Some(other),
        });
        // The stream writes the data, rings, and waits until they have come back through the NIC.
        stream.write64(&source_word, round)?;
        stream.ring(&left, prepared.ok_or("never room")??)?;
        stream.wait_geq64(&target_word, round)?;
    }
    stream.synchronize(soon())?;
    assert_eq!(to.to_vec()?, [300]);
    Ok(())
}

fn an_entry_cannot_be_rung_before_those_prepared_earlier(device: &Device) -> Outcome {
    let nic = SoftNic::open(&SoftNicOptions::default())?;
    let (left, _right) = pair(device, &nic)?;
    let first = left.prepare(&WorkRequest::new(Operation::Nop))?;
    let second = left.prepare(&signaled(Operation::Nop))?;
    let third = left.prepare(&signaled(Operation::Nop))?;
    let (positions, soonest) =
        ([second.position(), third.position()], Deadline::after(Duration::from_millis(10)));
    assert!(matches!(left.ring(second, soonest), Err(Error::OutOfOrder { .. })));
    let (first, third) = first.and(third).unwrap_err();
    // A stream may be told to ring the third: it waits for the others. The second was given up above, so its place is
    // rung by whoever comes before: here nobody, so only the first is.
    left.ring(first, soon())?;
    assert_eq!(positions, [1, 2]);
    assert!(matches!(left.ring(third, soonest), Err(Error::OutOfOrder { published: 1, .. })));
    Ok(())
}
