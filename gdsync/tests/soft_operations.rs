//! Every operation of the software NIC between two queue pairs of one process, over every way, from the CPU.

mod soft_common;

use std::time::Duration;

use gdsync::nic::{Access, CompletionMode, Error, Nic, QueuePairOptions};
use gdsync::wqe::{
    CompletionKind, Fence, Operation, Payload, Received, RemoteAddress, Syndrome, WorkRequest,
    WqeOpcode,
};
use gdsync::{Device, Space};
use soft_common::operations::{next_send, on_every_way, syndrome, write};
use soft_common::{Memory, Outcome, Pair, Way, pattern, signaled, soon};

on_every_way!(
    a_write_puts_the_bytes_of_several_pieces_where_they_belong,
    a_write_of_every_size_arrives,
    a_read_brings_the_bytes_and_says_how_many,
    atomics_change_the_word_once_and_bring_what_it_held,
    a_send_fills_the_receive_and_its_completion_says_with_what,
    a_write_with_immediate_uses_up_a_receive,
    inline_data_are_free_when_the_request_is_posted,
    unsignaled_requests_complete_with_the_next_signaled_one,
    requests_arrive_in_order_whatever_they_are,
    a_sender_waits_for_a_receiver_that_is_not_ready,
    messages_without_bytes_arrive,
    a_full_queue_pushes_back_and_goes_on,
    a_collapsed_queue_completes_and_never_reports_a_failed_request_as_done,
    eighty_thousand_blocks_pass_the_wrap_of_the_index,
    a_queue_is_idle_when_its_last_entry_is_complete_however_long_it_is,
);

fn a_write_puts_the_bytes_of_several_pieces_where_they_belong(way: Way) -> Outcome {
    let pair = Pair::new(way, &QueuePairOptions::default())?;
    let from = Memory::new(&pair.left_nic, &pattern(1, 100), Access::LOCAL_READ)?;
    let to = Memory::new(&pair.right_nic, &[0xee; 100], Access::REMOTE_WRITE)?;
    for _ in 0..3 {
        let pieces =
            [from.region.segment(50, 30)?, from.region.segment(0, 7)?, from.region.segment(99, 1)?];
        let position = pair.left.post(&write(to.region.remote(10), &pieces))?;
        pair.left.wait(position, soon())?;
        let (source, target) = (from.bytes()?, to.bytes()?);
        assert_eq!(target[..10], [0xee; 10]);
        assert_eq!(target[10..48], [&source[50..80], &source[..7], &source[99..]].concat());
        assert_eq!(target[48..], [0xee; 52]);
        to.buffer.write(&[0xee; 100])?;
        // Long enough for the key to be mapped, so that the last rounds go the other way.
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn a_write_of_every_size_arrives(way: Way) -> Outcome {
    let pair = Pair::new(way, &QueuePairOptions::default())?;
    let most = 3 << 20;
    let from = Memory::new(&pair.left_nic, &pattern(7, most), Access::LOCAL_READ)?;
    let to = Memory::new(&pair.right_nic, &vec![0; most], Access::REMOTE_WRITE)?;
    for size in [1, 4, 8, 63, 4096, 32768, 32769, 131_072, 131_073, 1 << 20, most] {
        to.buffer.write(&vec![0; most])?;
        let segment = [from.region.segment(0, size as u32)?];
        let position = pair.left.post(&write(to.region.remote(0), &segment))?;
        pair.left.wait(position, soon())?;
        let (source, target) = (from.bytes()?, to.bytes()?);
        assert!(source[..size] == target[..size], "{size} bytes");
        assert!(target[size..].iter().all(|byte| *byte == 0), "{size} bytes");
    }
    Ok(())
}

fn a_read_brings_the_bytes_and_says_how_many(way: Way) -> Outcome {
    let pair = Pair::new(way, &QueuePairOptions::default())?;
    let there = Memory::new(&pair.right_nic, &pattern(3, 500_000), Access::REMOTE_READ)?;
    let here = Memory::new(&pair.left_nic, &vec![0; 500_000], Access::LOCAL_WRITE)?;
    for round in 0..3 {
        here.buffer.write(&vec![0; 500_000])?;
        let into = [here.region.segment(400_000, 100_000)?, here.region.segment(0, 300_001)?];
        let position = pair
            .left
            .post(&signaled(Operation::Read { remote: there.region.remote(17), into: &into }))?;
        let completion = next_send(&pair.left)?;
        let kind = CompletionKind::Request { opcode: WqeOpcode::Read, byte_count: 400_001 };
        assert_eq!((completion.kind, completion.index), (kind, position as u16), "{round}");
        let (source, target) = (there.bytes()?, here.bytes()?);
        assert!(target[400_000..] == source[17..100_017]);
        assert!(target[..300_001] == source[100_017..400_018]);
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn atomics_change_the_word_once_and_bring_what_it_held(way: Way) -> Outcome {
    let pair = Pair::new(way, &QueuePairOptions::default())?;
    let word = Memory::new(&pair.right_nic, &[0; 16], Access::REMOTE_ATOMIC)?;
    let result = Memory::new(&pair.left_nic, &[0; 8], Access::LOCAL_WRITE)?;
    let words = word.buffer.cast::<u64>()?;
    words.write(&[5, 6])?;
    let (remote, into) = (word.region.remote(8), result.region.segment(0, 8)?);
    let held = |operation| -> Outcome<u64> {
        let position = pair.left.post(&signaled(operation))?;
        pair.left.wait(position, soon())?;
        Ok(result.buffer.cast::<u64>()?.to_vec()?[0])
    };
    for _ in 0..2 {
        assert_eq!(held(Operation::FetchAdd { remote, add: 10, into })?, 6);
        assert_eq!(held(Operation::FetchAdd { remote, add: u64::MAX, into })?, 16);
        assert_eq!(held(Operation::CompareSwap { remote, compare: 99, swap: 1, into })?, 15);
        assert_eq!(words.to_vec()?, [5, 15]);
        assert_eq!(held(Operation::CompareSwap { remote, compare: 15, swap: 6, into })?, 15);
        assert_eq!(words.to_vec()?, [5, 6]);
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn a_send_fills_the_receive_and_its_completion_says_with_what(way: Way) -> Outcome {
    let options = QueuePairOptions { receive_segments: 4, ..QueuePairOptions::default() };
    let pair = Pair::new(way, &options)?;
    let from = Memory::new(&pair.left_nic, &pattern(9, 100_000), Access::LOCAL_READ)?;
    let to = Memory::new(&pair.right_nic, &vec![0; 200_000], Access::LOCAL_WRITE)?;
    for round in 0..300u32 {
        let into = [to.region.segment(150_000, 1000)?, to.region.segment(0, 100_000)?];
        let number = pair.right.receive(&into)?;
        let imm = (round % 2 == 1).then_some(round);
        let length = 1 + round * 333;
        let segment = [from.region.segment(0, length)?];
        let operation = Operation::Send { payload: Payload::Gather(&segment), imm };
        let request = WorkRequest { solicited: round % 3 == 0, ..signaled(operation) };
        let position = pair.left.post(&request)?;
        let completion = pair.right.wait_receive(soon())?;
        let by = imm.map_or(Received::Send, Received::SendImm);
        let solicited = round % 3 == 0;
        let kind = CompletionKind::Receive { by, byte_count: length, solicited };
        assert_eq!((completion.kind, completion.index), (kind, number as u16));
        assert_eq!(completion.qpn, pair.right.qpn());
        pair.left.wait(position, soon())?;
    }
    let (source, target) = (from.bytes()?, to.bytes()?);
    let last = 1 + 299 * 333;
    assert!(target[150_000..151_000] == source[..1000]);
    assert!(target[..last - 1000] == source[1000..last]);
    Ok(())
}

fn a_write_with_immediate_uses_up_a_receive(way: Way) -> Outcome {
    let pair = Pair::new(way, &QueuePairOptions::default())?;
    let to = Memory::new(&pair.right_nic, &[0; 64], Access::REMOTE_WRITE)?;
    pair.right.receive(&[])?;
    let operation = Operation::Write {
        remote: to.region.remote(8),
        payload: Payload::Inline(b"immediate"),
        imm: Some(0xfeed),
    };
    let position = pair.left.post(&signaled(operation))?;
    let completion = pair.right.wait_receive(soon())?;
    let by = Received::WriteImm(0xfeed);
    assert_eq!(completion.kind, CompletionKind::Receive { by, byte_count: 9, solicited: false });
    assert_eq!(to.bytes()?[8..17], *b"immediate");
    pair.left.wait(position, soon())?;
    Ok(())
}

fn inline_data_are_free_when_the_request_is_posted(way: Way) -> Outcome {
    let pair = Pair::new(way, &QueuePairOptions::default())?;
    let to = Memory::new(&pair.right_nic, &[0; 4096], Access::REMOTE_WRITE)?;
    let mut last = 0;
    for k in 0..16u64 {
        let data = pattern(k, 200);
        let remote = to.region.remote(256 * k);
        let payload = Payload::Inline(&data);
        last = pair.left.post(&signaled(Operation::Write { remote, payload, imm: None }))?;
    }
    pair.left.wait(last, soon())?;
    let bytes = to.bytes()?;
    for k in 0..16 {
        assert_eq!(bytes[256 * k..][..200], pattern(k as u64, 200));
    }
    Ok(())
}

fn unsignaled_requests_complete_with_the_next_signaled_one(way: Way) -> Outcome {
    let pair = Pair::new(way, &QueuePairOptions::default())?;
    for _ in 0..20 {
        pair.left.post(&WorkRequest::new(Operation::Nop))?;
    }
    let position = pair.left.post(&signaled(Operation::Nop))?;
    let completion = next_send(&pair.left)?;
    assert_eq!(completion.index, position as u16);
    assert!(matches!(completion.kind, CompletionKind::Request { opcode: WqeOpcode::Nop, .. }));
    pair.left.wait(position, soon())?;
    assert_eq!(pair.left.poll_send()?, None);
    Ok(())
}

/// A chain in which each step uses what the one before did; reads are followed by a fence.
fn requests_arrive_in_order_whatever_they_are(way: Way) -> Outcome {
    let pair = Pair::new(way, &QueuePairOptions::default())?;
    let there = Memory::new(&pair.right_nic, &[0; 64], Access::ALL)?;
    let here = Memory::new(&pair.left_nic, &[0; 64], Access::ALL)?;
    let local = here.buffer.cast::<u64>()?;
    let (remote, other) = (there.region.remote(0), there.region.remote(8));
    for round in 1..=200u64 {
        local.slice(0..1)?.write(&[round])?;
        let segment = |at: u64| here.region.segment(8 * at, 8);
        let (zero, one, two) = ([segment(0)?], [segment(1)?], [segment(2)?]);
        pair.left.post(&WorkRequest::new(write(remote, &zero).operation))?;
        let add = Operation::FetchAdd { remote, add: 1000, into: one[0] };
        pair.left.post(&WorkRequest::new(add))?;
        let operation = write(other, &one).operation;
        let fenced = WorkRequest { fence: Fence::Full, ..WorkRequest::new(operation) };
        pair.left.post(&fenced)?;
        pair.right.receive(&[])?;
        let send = Operation::Send { payload: Payload::Inline(&[]), imm: Some(round as u32) };
        pair.left.post(&WorkRequest::new(send))?;
        let read = Operation::Read { remote, into: &two };
        let position = pair.left.post(&signaled(read))?;
        pair.left.wait(position, soon())?;
        assert_eq!(local.to_vec()?[..3], [round, round, round + 1000]);
        let words = there.buffer.cast::<u64>()?.to_vec()?;
        assert_eq!(words[..2], [round + 1000, round]);
        let by = Received::SendImm(round as u32);
        let kind = CompletionKind::Receive { by, byte_count: 0, solicited: false };
        assert_eq!(pair.right.wait_receive(soon())?.kind, kind);
    }
    Ok(())
}

fn a_sender_waits_for_a_receiver_that_is_not_ready(way: Way) -> Outcome {
    let pair = Pair::new(way, &QueuePairOptions::default())?;
    let from = Memory::new(&pair.left_nic, &pattern(2, 300_000), Access::LOCAL_READ)?;
    let to = Memory::new(&pair.right_nic, &vec![0; 300_000], Access::ALL)?;
    let word = Memory::new(&pair.right_nic, &[0; 8], Access::ALL)?;
    let segment = [from.region.segment(0, 300_000)?];
    let send = Operation::Send { payload: Payload::Gather(&segment), imm: None };
    pair.left.post(&WorkRequest::new(send))?;
    let remote = word.region.remote(0);
    let later = Operation::Write { remote, payload: Payload::Inline(&[7; 8]), imm: None };
    let position = pair.left.post(&signaled(later))?;
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(pair.left.poll_send()?, None);
    assert_eq!(word.bytes()?, [0; 8], "a later write must not overtake the send");
    pair.right.receive(&[to.region.segment(0, 300_000)?])?;
    pair.right.wait_receive(soon())?;
    assert!(to.bytes()? == from.bytes()?);
    pair.left.wait(position, soon())?;
    assert_eq!(word.bytes()?, [7; 8]);
    Ok(())
}

fn messages_without_bytes_arrive(way: Way) -> Outcome {
    let pair = Pair::new(way, &QueuePairOptions::default())?;
    let nowhere = RemoteAddress { address: 0, rkey: 0 };
    pair.right.receive(&[])?;
    let nothing = Payload::Gather(&[]);
    pair.left.post(&WorkRequest::new(Operation::Send { payload: nothing, imm: None }))?;
    let write = Operation::Write { remote: nowhere, payload: nothing, imm: None };
    pair.left.post(&WorkRequest::new(write))?;
    let position = pair.left.post(&signaled(Operation::Read { remote: nowhere, into: &[] }))?;
    pair.left.wait(position, soon())?;
    let kind = CompletionKind::Receive { by: Received::Send, byte_count: 0, solicited: false };
    assert_eq!(pair.right.wait_receive(soon())?.kind, kind);
    Ok(())
}

fn a_full_queue_pushes_back_and_goes_on(way: Way) -> Outcome {
    let options =
        QueuePairOptions { send_blocks: 32, receive_entries: 1, ..QueuePairOptions::default() };
    let pair = Pair::new(way, &options)?;
    let send = Operation::Send { payload: Payload::Inline(b"!"), imm: None };
    let mut posted = 0;
    let full = loop {
        match pair.left.post(&signaled(send)) {
            Ok(_) => posted += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(posted, 32);
    assert!(matches!(full, Error::Full { queue: "send", used: 32, size: 32, .. }), "{full}");
    let to = Memory::new(&pair.right_nic, &[0; 8], Access::LOCAL_WRITE)?;
    let into = [to.region.segment(0, 8)?];
    for received in 0..100 {
        pair.right.receive(&into)?;
        assert!(matches!(pair.right.receive(&into), Err(Error::Full { queue: "receive", .. })));
        pair.right.wait_receive(soon())?;
        assert_eq!(next_send(&pair.left)?.index, received);
        pair.left.post(&signaled(send))?;
    }
    Ok(())
}

fn a_collapsed_queue_completes_and_never_reports_a_failed_request_as_done(way: Way) -> Outcome {
    let options = QueuePairOptions {
        send_blocks: 64,
        send_completions: CompletionMode::Collapsed,
        ..QueuePairOptions::default()
    };
    let pair = Pair::new(way, &options)?;
    let from = Memory::new(&pair.left_nic, &[1; 8], Access::LOCAL_READ)?;
    let to = Memory::new(&pair.right_nic, &[0; 8], Access::ALL)?;
    let segment = [from.region.segment(0, 8)?];
    let mut last = 0;
    for _ in 0..500 {
        let posted = soon().poll(|| match pair.left.post(&write(to.region.remote(0), &segment)) {
            Err(Error::Full { .. }) => None,
            other => Some(other),
        });
        last = posted.ok_or("never room")??;
    }
    pair.left.wait(last, soon())?;
    let wrong = RemoteAddress { address: 0, ..to.region.remote(0) };
    let bad = pair.left.post(&write(wrong, &segment))?;
    let mut later = 0;
    for _ in 0..8 {
        later = pair.left.post(&signaled(Operation::Nop))?;
    }
    // The last that is flushed has overwritten the failure.
    let flushed = soon().poll(|| match pair.left.poll_send() {
        Ok(Some(completion)) => Some(Ok(completion)),
        Ok(None) => None,
        Err(error) => Some(Err(error)),
    });
    let index = flushed.ok_or("no completion")??.index;
    assert!((bad as u16..=later as u16).contains(&index), "{index} of {bad} to {later}");
    for position in [bad, bad + 2, later] {
        assert_eq!(syndrome(pair.left.wait(position, soon()))?, Syndrome::RemoteAccess);
        assert!(pair.left.is_complete(position).is_err());
    }
    pair.left.wait(last, soon())?;
    Ok(())
}

fn eighty_thousand_blocks_pass_the_wrap_of_the_index(way: Way) -> Outcome {
    let options = QueuePairOptions { send_blocks: 256, ..QueuePairOptions::default() };
    let pair = Pair::new(way, &options)?;
    let word = Memory::new(&pair.right_nic, &[0; 8], Access::ALL)?;
    let result = Memory::new(&pair.left_nic, &[0; 8], Access::LOCAL_WRITE)?;
    let (remote, into) = (word.region.remote(0), result.region.segment(0, 8)?);
    let rounds = 10_000;
    for round in 0..rounds {
        for _ in 0..7 {
            pair.left.post(&WorkRequest::new(Operation::Nop))?;
        }
        let position = pair.left.post(&signaled(Operation::FetchAdd { remote, add: 1, into }))?;
        if round % 25 == 0 || round + 1 == rounds {
            pair.left.wait(position, soon())?;
            assert_eq!(result.buffer.cast::<u64>()?.to_vec()?[0], round);
        }
    }
    assert_eq!(word.buffer.cast::<u64>()?.to_vec()?[0], rounds);
    Ok(())
}

fn a_queue_is_idle_when_its_last_entry_is_complete_however_long_it_is(way: Way) -> Outcome {
    let options = QueuePairOptions {
        send_blocks: 64,
        send_completions: CompletionMode::Collapsed,
        ..QueuePairOptions::default()
    };
    let pair = Pair::new(way, &options)?;
    let to = Memory::new(&pair.right_nic, &[0; 512], Access::REMOTE_WRITE)?;
    assert!(pair.left.is_idle()?, "nothing was posted");
    for bytes in [8, 28, 29, 100, 512, 300, 1].into_iter().cycle().take(50) {
        let payload = Payload::Inline(&[7; 512][..bytes]);
        let write = Operation::Write { remote: to.region.remote(0), payload, imm: None };
        // One that is not rung yet is not complete.
        let prepared = pair.left.prepare(&signaled(write))?;
        assert!(!pair.left.is_idle()?, "{bytes} bytes");
        let position = prepared.position();
        pair.left.ring(prepared, soon())?;
        pair.left.wait(position, soon())?;
        assert!(pair.left.is_idle()?, "{bytes} bytes");
    }
    Ok(())
}

#[test]
fn one_nic_serves_many_queue_pairs() -> Outcome {
    let nic = Way::Mapped.nic()?;
    let options = QueuePairOptions { send_blocks: 32, ..QueuePairOptions::default() };
    let make = || nic.queue_pair(&Device::Host, &options);
    let queues = (0..40).map(|_| make()).collect::<Result<Vec<_>, _>>()?;
    let memory = Memory::new(&nic, &[0; 8 * 20], Access::ALL)?;
    let result = Memory::new(&nic, &[0; 8], Access::ALL)?;
    for two in queues.chunks(2) {
        two[0].connect(two[1].address())?;
        two[1].connect(two[0].address())?;
    }
    for round in 0..5 {
        for (k, two) in queues.chunks(2).enumerate() {
            let (remote, into) = (memory.region.remote(8 * k as u64), result.region.segment(0, 8)?);
            let add = signaled(Operation::FetchAdd { remote, add: k as u64, into });
            let position = two[round % 2].post(&add)?;
            two[round % 2].wait(position, soon())?;
        }
    }
    let words = memory.buffer.cast::<u64>()?.to_vec()?;
    assert_eq!(words, (0..20).map(|k| 5 * k).collect::<Vec<u64>>());
    Ok(())
}

#[test]
fn a_queue_pair_may_be_its_own_peer() -> Outcome {
    let nic = Way::Ring.nic()?;
    let queue = nic.queue_pair(&Device::Host, &QueuePairOptions::default())?;
    queue.connect(queue.address())?;
    let memory = Memory::new(&nic, &pattern(1, 200_000), Access::ALL)?;
    let segment = [memory.region.segment(0, 100_000)?];
    let position = queue.post(&write(memory.region.remote(100_000), &segment))?;
    queue.wait(position, soon())?;
    let bytes = memory.bytes()?;
    assert!(bytes[..100_000] == bytes[100_000..]);
    Ok(())
}

#[test]
fn plain_host_memory_goes_by_frames() -> Outcome {
    let pair = Pair::new(Way::Mapped, &QueuePairOptions::default())?;
    let host = gdsync::Buffer::<u8>::new(&Device::Host, Space::Host, 100)?;
    let region = pair.right_nic.register(&host.bytes(), Access::ALL)?;
    for round in 0..10 {
        let data = pattern(round, 100);
        let payload = Payload::Inline(&data);
        let remote = region.remote(0);
        let write = Operation::Write { remote, payload, imm: None };
        let position = pair.left.post(&signaled(write))?;
        pair.left.wait(position, soon())?;
        assert_eq!(host.to_vec()?, data);
    }
    Ok(())
}
