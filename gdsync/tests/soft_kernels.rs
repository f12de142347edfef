//! Kernels that post to a send queue of the software NIC by themselves, ring what the CPU has prepared, and wait for
//! completions: as OS threads on the host, and, where there is one, on a GPU, with payload in its own memory.

mod common;
#[path = "soft_common/kernels.rs"]
mod kernels;
mod soft_common;

use std::time::Instant;

use common::on_host_and_cuda;
use gdsync::nic::soft::{SoftNic, SoftNicOptions};
use gdsync::nic::{
    Access, CompletionMode, Cpu, Error, MemoryRegion, Nic, Prepared, QueuePair, QueuePairOptions,
    Trigger,
};
use gdsync::wqe::{Operation, Payload};
use gdsync::{Buffer, Device, Space};
use kernels::{FAILED, Flavour, Kernels, OK, Remote, RoundTripArgs, pattern};
use soft_common::process::{Order, Peer, Task};
use soft_common::{Outcome, Way, signaled, soon};

on_host_and_cuda!(
    every_word_that_threads_warps_and_blocks_write_arrives,
    many_threads_in_flight_lose_nothing,
    kernels_streams_and_the_cpu_ring_one_queue_in_the_order_of_its_entries,
    kernels_and_the_cpu_post_in_turns,
    a_kernel_gets_back_what_it_wrote_to_the_peer,
    a_kernel_whose_peer_has_left_is_told_so,
);

/// Two connected queue pairs of one NIC; kernels post to the left one.
struct Ends {
    nic: SoftNic,
    left: QueuePair,
    right: QueuePair,
}

impl Ends {
    fn new(device: &Device, way: Way, send_blocks: usize) -> Outcome<Ends> {
        let nic = way.nic()?;
        let options = QueuePairOptions {
            send_blocks,
            send_completions: CompletionMode::Collapsed,
            ..QueuePairOptions::default()
        };
        let left = nic.queue_pair(device, &options)?;
        let right = nic.queue_pair(device, &options)?;
        left.connect_over(right.address(), way.wire())?;
        right.connect_over(left.address(), way.wire())?;
        left.wait_connected(soon())?;
        right.wait_connected(soon())?;
        Ok(Ends { nic, left, right })
    }

    /// Zeroed registered memory.
    fn memory(
        &self,
        device: &Device,
        space: Space,
        words: usize,
    ) -> Outcome<(Buffer<u64>, MemoryRegion)> {
        let buffer = Buffer::new(device, space, words)?;
        let access = match space {
            Space::Device => Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE,
            _ => Access::ALL,
        };
        let region = self.nic.register(&buffer.bytes(), access)?;
        Ok((buffer, region))
    }

    fn prepare(&self, operation: Operation<'_>) -> Outcome<Prepared> {
        let prepared = soon().poll(|| match self.left.prepare(&signaled(operation)) {
            Err(Error::Full { .. }) => None,
            other => Some(other),
        });
        Ok(prepared.ok_or("never room")??)
    }

    /// Posts and waits for a NOP: then everything before it is complete.
    fn settle(&self) -> Outcome {
        let nop = self.prepare(Operation::Nop)?;
        let position = nop.position();
        self.left.ring(nop, soon())?;
        Ok(self.left.wait(position, soon())?)
    }
}

fn remote(region: &MemoryRegion) -> Remote {
    Remote { address: region.address(), rkey: region.rkey(), pad: 0 }
}

#[test]
fn the_pattern_is_the_one_of_the_kernels() {
    // The same numbers are in kernels/tests/host/platform.cpp.
    assert_eq!(pattern(0, 0), 0xe220_a839_7b1d_cdaf);
    assert_eq!(pattern(7, 3), 0x475d_c5e2_16a2_9efc);
}

fn first_wrong_word(target: &Buffer<u64>) -> Outcome<Option<usize>> {
    let words = target.to_vec()?;
    Ok(words.iter().enumerate().position(|(k, word)| *word != pattern(5, k as u64)))
}

/// Writes `blocks * threads * count` words by kernels and checks each of them.
fn write_words(
    device: &Device,
    send_blocks: usize,
    flavour: Flavour,
    (blocks, threads): (u32, u32),
    count: u32,
) -> Outcome {
    let ends = Ends::new(device, Way::Mapped, send_blocks)?;
    let kernels = Kernels::on(device)?;
    let all = (blocks * threads * count) as usize;
    let (target, region) = ends.memory(device, Space::Pinned, all)?;
    let results = kernels.results((blocks * threads) as usize)?;
    let (view, grid) = (ends.left.device_view()?, (blocks, threads));
    let began = Instant::now();
    kernels.write_words(view, remote(&region), count, flavour, grid, &results)?;
    kernels.finish()?;
    ends.settle()?;
    let took = began.elapsed();
    println!("{all} posts by {flavour:?}, {blocks} x {threads} threads: {took:.1?}");
    assert!(results.to_vec()?.iter().all(|status| *status == OK), "{flavour:?}");
    assert_eq!(first_wrong_word(&target)?, None, "{flavour:?}");
    Ok(())
}

fn every_word_that_threads_warps_and_blocks_write_arrives(device: &Device) -> Outcome {
    for flavour in [Flavour::Thread, Flavour::Warp, Flavour::Block] {
        write_words(device, 256, flavour, (2, 32), 20)?;
    }
    Ok(())
}

/// On a GPU 10^6 posts of 64 blocks of 256 threads; on the host what its threads can do in a moment.
fn many_threads_in_flight_lose_nothing(device: &Device) -> Outcome {
    let (grid, count) = match device {
        Device::Host => ((2, 64), 150),
        Device::Cuda(_) => ((64, 256), 62),
    };
    for flavour in [Flavour::Block, Flavour::Warp, Flavour::Thread] {
        write_words(device, 8192, flavour, grid, count)?;
    }
    Ok(())
}

fn kernels_streams_and_the_cpu_ring_one_queue_in_the_order_of_its_entries(
    device: &Device,
) -> Outcome {
    let ends = Ends::new(device, Way::Mapped, 128)?;
    let kernels = Kernels::on(device)?;
    let stream = device.stream()?;
    let (memory, region) = ends.memory(device, Space::Pinned, 2)?;
    let (word, into) = (region.remote(0), region.segment(8, 8)?);
    let view = ends.left.device_view()?;
    let rounds = 600usize;
    let results = kernels.results(rounds)?;
    let mut last = 0;
    for round in 0..rounds {
        // Each step is possible only after the one before.
        let (compare, swap) = (round as u64, round as u64 + 1);
        let step = Operation::CompareSwap { remote: word, compare, swap, into };
        let prepared = ends.prepare(step)?;
        last = prepared.position();
        match round % 5 {
            0 => Cpu(soon()).ring(&ends.left, prepared)?,
            1 | 3 => stream.ring(&ends.left, prepared)?,
            _ => kernels.ring(view, prepared.blocks(), &results.slice(round..round + 1)?)?,
        }
    }
    ends.left.wait(last, soon())?;
    assert_eq!(memory.to_vec()?, [rounds as u64, rounds as u64 - 1]);
    kernels.finish()?;
    stream.synchronize(soon())?;
    assert!(results.to_vec()?.iter().all(|status| *status == OK));
    Ok(())
}

fn kernels_and_the_cpu_post_in_turns(device: &Device) -> Outcome {
    let ends = Ends::new(device, Way::Mapped, 128)?;
    let kernels = Kernels::on(device)?;
    let (target, region) = ends.memory(device, Space::Pinned, 64)?;
    let results = kernels.results(64)?;
    let view = ends.left.device_view()?;
    // More than 2^16 entries in all, so that both sides rebuild their counts across the wrap of the index.
    let turns = if matches!(device, Device::Host) { 60 } else { 40 };
    for turn in 0..turns {
        target.write(&[0; 64])?;
        let count = 1;
        kernels.write_words(view, remote(&region), count, Flavour::Warp, (1, 64), &results)?;
        kernels.finish()?;
        ends.settle()?;
        assert_eq!(first_wrong_word(&target)?, None, "turn {turn}");
        // The CPU's turn: many more.
        let zero = Operation::Write {
            remote: region.remote(0),
            payload: Payload::Inline(&[0; 8]),
            imm: None,
        };
        for _ in 0..1200 {
            let prepared = ends.prepare(zero)?;
            ends.left.ring(prepared, soon())?;
        }
        ends.settle()?;
        assert_eq!(target.to_vec()?[0], 0);
    }
    Ok(())
}

/// Over every wire; on a GPU the payload is in its own memory.
fn a_kernel_gets_back_what_it_wrote_to_the_peer(device: &Device) -> Outcome {
    for way in [Way::Mapped, Way::Ring, Way::Tcp] {
        for (words, rounds) in [(1usize, 30), (1000, 10), (1 << 18, 3)] {
            let ends = Ends::new(device, way, 64)?;
            let kernels = Kernels::on(device)?;
            let (from, from_region) = ends.memory(device, Space::Device, words)?;
            let (_to, to_region) = ends.memory(device, Space::Device, words)?;
            let (into, into_region) = ends.memory(device, Space::Device, words)?;
            let results = kernels.results(3)?;
            let args = RoundTripArgs {
                from: (&from, from_region.lkey()),
                to: remote(&to_region),
                into: (&into, into_region.lkey()),
                rounds,
                threads: if matches!(device, Device::Host) { 32 } else { 256 },
            };
            let began = Instant::now();
            kernels.round_trip(ends.left.device_view()?, &args, &results)?;
            kernels.finish()?;
            let each = began.elapsed() / rounds;
            println!("{way:?}: {} bytes there and back in {each:.1?}", 8 * words);
            assert_eq!(results.to_vec()?, [OK, rounds, 0], "{way:?}, {words} words");
        }
    }
    Ok(())
}

/// What a kernel gets out of a queue over mapped memory: the time of a write and a read one after the other, which are two doorbells and
/// the completion of both, and how many writes of a word so many blocks of a thread post in a second.
fn measure(device: &Device) -> Outcome {
    const ROUNDS: u32 = 3_000;
    let kernels = Kernels::on(device)?;
    for _ in 0..5 {
        let ends = Ends::new(device, Way::Mapped, 1024)?;
        let (from, from_region) = ends.memory(device, Space::Pinned, 1)?;
        let (_to, to_region) = ends.memory(device, Space::Pinned, 1)?;
        let (into, into_region) = ends.memory(device, Space::Pinned, 1)?;
        let results = kernels.results(3)?;
        let args = RoundTripArgs {
            from: (&from, from_region.lkey()),
            to: remote(&to_region),
            into: (&into, into_region.lkey()),
            rounds: ROUNDS,
            threads: 1,
        };
        let began = Instant::now();
        kernels.round_trip(ends.left.device_view()?, &args, &results)?;
        kernels.finish()?;
        let each = began.elapsed() / ROUNDS;
        assert_eq!(results.to_vec()?, [OK, ROUNDS, 0]);
        let mut rates = Vec::new();
        for blocks in [1u32, 4, 16] {
            let count = 16_000 / blocks;
            let (_target, region) =
                ends.memory(device, Space::Pinned, (blocks * count) as usize)?;
            let results = kernels.results(blocks as usize)?;
            let (view, grid) = (ends.left.device_view()?, (blocks, 1));
            let began = Instant::now();
            kernels.write_words(view, remote(&region), count, Flavour::Thread, grid, &results)?;
            kernels.finish()?;
            ends.settle()?;
            rates.push(f64::from(blocks * count) / began.elapsed().as_secs_f64() / 1e6);
        }
        println!("write and read {each:.2?}; {rates:.3?} million posts/s of 1, 4, 16 blocks");
    }
    Ok(())
}

#[test]
#[ignore = "measures, on an idle machine"]
fn what_kernels_of_the_cpu_get_out_of_a_queue() -> Outcome {
    measure(&Device::Host)
}

fn a_kernel_whose_peer_has_left_is_told_so(device: &Device) -> Outcome {
    let Ends { nic, left, right } = Ends::new(device, Way::Ring, 64)?;
    drop(right);
    let lost = soon().poll(|| left.lost());
    assert!(lost.is_some());
    let kernels = Kernels::on(device)?;
    let buffer = Buffer::<u64>::new(device, Space::Pinned, 8)?;
    let region = nic.register(&buffer.bytes(), Access::ALL)?;
    let results = kernels.results(3)?;
    let key = region.lkey();
    let args = RoundTripArgs {
        from: (&buffer, key),
        to: remote(&region),
        into: (&buffer, key),
        rounds: 1,
        threads: 32,
    };
    kernels.round_trip(left.device_view()?, &args, &results)?;
    kernels.finish()?;
    assert_eq!(results.to_vec()?, [FAILED, 0, 0]);
    Ok(())
}

/// The peer; does nothing unless the test below started it.
#[test]
#[ignore = "started by another test"]
fn peer() -> Outcome {
    soft_common::process::peer()
}

mod gpu {
    use super::*;

    /// Another process's GPU memory: mapped by CUDA IPC, and by frames.
    #[test]
    #[ignore = "needs a CUDA GPU"]
    fn a_kernel_gets_back_what_it_wrote_to_gpu_memory_of_another_process() -> Outcome {
        let device = common::gpu();
        let words = 1usize << 18;
        for way in [Way::Mapped, Way::Ring] {
            let order = Order::new(way, Task::OfferGpuMemory(8 * words));
            let mut peer = Peer::start(&order, &[])?;
            let nic = way.nic()?;
            let options = QueuePairOptions {
                send_completions: CompletionMode::Collapsed,
                ..QueuePairOptions::default()
            };
            let queue = nic.queue_pair(&device, &options)?;
            let own = (queue.address().clone(), 0, 0);
            let (address, at, rkey) = peer.exchange(&own)?;
            queue.connect_over(&address, way.wire())?;
            queue.wait_connected(soon())?;
            let kernels = Kernels::on(&device)?;
            let register = || -> Outcome<(Buffer<u64>, MemoryRegion)> {
                let buffer = Buffer::new(&device, Space::Device, words)?;
                let region = nic.register(&buffer.bytes(), Access::LOCAL_WRITE)?;
                Ok((buffer, region))
            };
            let ((from, from_region), (into, into_region)) = (register()?, register()?);
            let results = kernels.results(3)?;
            let args = RoundTripArgs {
                from: (&from, from_region.lkey()),
                to: Remote { address: at, rkey, pad: 0 },
                into: (&into, into_region.lkey()),
                rounds: 20,
                threads: 256,
            };
            let began = Instant::now();
            kernels.round_trip(queue.device_view()?, &args, &results)?;
            kernels.finish()?;
            let each = began.elapsed() / 20;
            println!("{way:?}, another process: {} bytes there and back in {each:.1?}", 8 * words);
            assert_eq!(results.to_vec()?, [OK, 20, 0], "{way:?}");
        }
        Ok(())
    }

    #[test]
    #[ignore = "measures, on a CUDA GPU"]
    fn what_kernels_of_a_gpu_get_out_of_a_queue() -> Outcome {
        measure(&common::gpu())
    }

    /// A GPU's words cannot be changed atomically from outside.
    #[test]
    #[ignore = "needs a CUDA GPU"]
    fn gpu_memory_allows_no_atomics_of_peers() -> Outcome {
        let device = common::gpu();
        let nic = SoftNic::open(&SoftNicOptions::default())?;
        let buffer = Buffer::<u64>::new(&device, Space::Device, 8)?;
        let refused = nic.register(&buffer.bytes(), Access::ALL).unwrap_err().to_string();
        assert!(refused.contains("REMOTE_ATOMIC"), "{refused}");
        assert!(nic.register(&buffer.bytes(), Access::REMOTE_WRITE).is_ok());
        Ok(())
    }
}
