//! Messages whose epochs live in the memory of the device, between ranks that are threads: on host streams here, and the same
//! tests on a GPU.

mod common;
#[path = "common/devices.rs"]
#[macro_use]
mod devices;
#[path = "common/kernels.rs"]
mod kernels;

use std::time::{Duration, Instant};

use common::{PASSES, config, on_threads, stay_to_the_end};
use libmp::{Deadline, Device, Error, Recv, Region, Send, Step, Stream, World};

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

fn ranks<T: std::marker::Send>(count: usize, rank: impl Fn(&World) -> T + Sync) -> Vec<T> {
    on_threads(World::threads_with_config(count, &config()).unwrap(), |world| {
        let value = rank(&world);
        world.finish().unwrap();
        value
    })
}

/// A rank in a ring: what it sends to the right and receives from the left.
struct Ring {
    stream: Stream,
    out: Region<u64>,
    here: Region<u64>,
    send: Send,
    recv: Recv,
}

impl Ring {
    fn new(world: &World, device: &Device, len: usize) -> Ring {
        let (rank, size) = (world.rank(), world.size());
        let out: Region<u64> = world.alloc(device, len).unwrap();
        let here: Region<u64> = world.alloc(device, len).unwrap();
        out.write(&vec![rank as u64; len]).unwrap();
        let send = world.peer((rank + 1) % size).unwrap().send(&out, 3).prepare().unwrap();
        let recv = world.peer((rank + size - 1) % size).unwrap().recv(&here, 3);
        let recv = recv.prepare().unwrap();
        Ring { stream: world.stream(device).unwrap(), out, here, send, recv }
    }

    /// Sends what it has and takes what comes, `steps` times, one by one or as lists.
    fn turn(&self, world: &World, lists: bool) {
        let Ring { stream, out, here, send, recv } = self;
        if lists {
            world
                .enqueue(stream, &[Step::start(recv), Step::start(send), Step::wait(recv)])
                .unwrap();
        } else {
            recv.start_on(stream).unwrap();
            send.start_on(stream).unwrap();
            recv.wait_on(stream).unwrap();
        }
        stream.copy(out.buffer(), here.buffer()).unwrap();
    }

    fn check(&self, world: &World, turns: usize) {
        world.synchronize(&self.stream, soon()).unwrap();
        let size = world.size();
        let from = (world.rank() + turns * (size - 1)) % size;
        let got = self.here.to_vec().unwrap();
        assert!(got.iter().all(|&value| value == from as u64), "{got:?} is not {from}");
    }
}

/// Words of messages: as packets and in one piece, in one block and in several.
const LENGTHS: [usize; 5] = [1, 100, 1024, 1500, 40_000];

fn a_ring_turns_without_the_host(device: &Device) {
    for (size, lists) in [(1, true), (2, false), (2, true), (4, true)] {
        for len in LENGTHS {
            ranks(size, |world| {
                let ring = Ring::new(world, device, len);
                (0..50).for_each(|_| ring.turn(world, lists));
                ring.check(world, 50);
            });
        }
    }
}

/// `TEST_REPLAYS`: how often a graph is replayed on a GPU.
fn a_captured_ring_is_replayed(device: &Device) {
    let chosen = std::env::var("TEST_REPLAYS").ok().and_then(|count| count.parse().ok());
    let replays = if device.as_cuda().is_some() { chosen.unwrap_or(10_000) } else { 300 };
    for lists in [false, true] {
        for len in [1, 1500] {
            ranks(2, |world| {
                let ring = Ring::new(world, device, len);
                ring.turn(world, lists);
                // The peer is known now, and the first message has come.
                world.synchronize(&ring.stream, soon()).unwrap();
                ring.stream.begin_capture().unwrap();
                ring.turn(world, lists);
                ring.turn(world, lists);
                ring.turn(world, lists);
                let graph = ring.stream.end_capture().unwrap();
                for replay in 0..replays {
                    ring.stream.launch_graph(&graph).unwrap();
                    if replay % 500 == 499 {
                        world.synchronize(&ring.stream, soon()).unwrap();
                    }
                }
                // And outside the graph it goes on where that left off.
                ring.turn(world, !lists);
                ring.check(world, 2 + 3 * replays);
            });
        }
    }
}

fn many_pairs_in_one_list_keep_their_messages_apart(device: &Device) {
    ranks(2, |world| {
        let stream = world.stream(device).unwrap();
        let peer = world.peer(1 - world.rank()).unwrap();
        let region = |len: usize| -> Region<u64> { world.alloc(device, len).unwrap() };
        let pairs: Vec<_> = (0..24)
            .map(|tag| {
                let len = [0, 1, 7, 1024, 3000][tag % 5];
                let (out, here) = (region(len), region(len));
                out.write(&vec![(100 * tag + world.rank()) as u64; len]).unwrap();
                let send = peer.send(&out, tag as u64).prepare().unwrap();
                let recv = peer.recv(&here, tag as u64).prepare().unwrap();
                (send, recv, here)
            })
            .collect();
        for _ in 0..20 {
            let mut list = Vec::new();
            list.extend(pairs.iter().map(|pair| Step::start(&pair.1)));
            list.extend(pairs.iter().map(|pair| Step::start(&pair.0)));
            list.extend(pairs.iter().rev().map(|pair| Step::wait(&pair.1)));
            world.enqueue(&stream, &list).unwrap();
        }
        world.synchronize(&stream, soon()).unwrap();
        for (tag, (.., here)) in pairs.iter().enumerate() {
            let expected = (100 * tag + 1 - world.rank()) as u64;
            assert!(here.to_vec().unwrap().iter().all(|&value| value == expected), "{here:?}");
        }
    });
}

fn a_message_that_does_not_come_in_time_is_an_error_that_names_it(device: &Device) {
    let mut config = config();
    config.timeout = PASSES;
    stay_to_the_end(World::threads_with_config(2, &config).unwrap(), |world| {
        let stream = world.stream(device).unwrap();
        let region: Region<u64> = world.alloc(device, 9).unwrap();
        let peer = world.peer(1 - world.rank()).unwrap();
        if world.rank() == 0 {
            let send = peer.send(&region, 8).prepare().unwrap();
            // The peer waits for nothing else, and this rank for the peer.
            send.handle().unwrap();
            Some(send)
        } else {
            let recv = peer.recv(&region, 8).prepare().unwrap();
            recv.start_on(&stream).unwrap();
            recv.wait_on(&stream).unwrap();
            let error = world.synchronize(&stream, soon()).unwrap_err();
            let Error::Late { rank: 0, tag: 8, expected: 1, seen: 0, .. } = error else {
                panic!("{error}");
            };
            assert!(stream.is_idle().unwrap());
            None
        }
    });
}

fn an_abort_releases_what_waits_for_messages(device: &Device) {
    let texts = stay_to_the_end(World::threads_with_config(3, &config()).unwrap(), |world| {
        let stream = world.stream(device).unwrap();
        let region: Region<u64> = world.alloc(device, 2000).unwrap();
        if world.rank() == 2 {
            let ends: Vec<_> = (0..2)
                .map(|rank| {
                    let peer = world.peer(rank).unwrap();
                    let send = peer.send(&region, 1).prepare().unwrap();
                    (send, peer.recv(&region, 2).prepare().unwrap())
                })
                .collect();
            for (send, recv) in &ends {
                // Kernels through a NIC need an answer of this rank.
                send.handle().unwrap();
                recv.handle().unwrap();
            }
            // The others have enqueued; now their streams wait.
            world.barrier().unwrap();
            std::thread::sleep(Duration::from_millis(100));
            world.abort("the pump is broken");
            return String::new();
        }
        let peer = world.peer(2).unwrap();
        let recv = peer.recv(&region, 1).prepare().unwrap();
        let send = peer.send(&region, 2).prepare().unwrap();
        if world.rank() == 0 {
            world.enqueue(&stream, &[Step::start(&recv), Step::wait(&recv)]).unwrap();
        } else {
            send.start_on(&stream).unwrap();
        }
        world.barrier().unwrap();
        let since = Instant::now();
        let error = world.synchronize(&stream, soon()).unwrap_err();
        assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
        let idle = soon().poll(|| stream.is_idle().unwrap().then_some(()));
        assert!(idle.is_some(), "the stream still waits");
        assert!(send.start_on(&stream).is_err());
        error.to_string()
    });
    for text in &texts[..2] {
        assert!(text.starts_with("rank 2 on ") && text.contains("the pump is broken"), "{text}");
    }
}

/// What would be sent was made of a message that never came. Long enough to go straight into the posted buffer.
fn a_send_behind_a_wait_that_an_abort_ended_sends_nothing(device: &Device) {
    let regions = stay_to_the_end(World::threads_with_config(2, &config()).unwrap(), |world| {
        let stream = world.stream(device).unwrap();
        let peer = world.peer(1 - world.rank()).unwrap();
        let (out, here): (Region<u64>, Region<u64>) =
            (world.alloc(device, 2000).unwrap(), world.alloc(device, 2000).unwrap());
        out.write(&[7; 2000]).unwrap();
        let send = peer.send(&out, 1).prepare().unwrap();
        let recv = peer.recv(&here, 1).prepare().unwrap();
        // Both ends know each other, and both buffers are posted.
        send.handle().unwrap();
        recv.start_on(&stream).unwrap();
        world.synchronize(&stream, soon()).unwrap();
        world.barrier().unwrap();
        if world.rank() == 0 {
            recv.wait_on(&stream).unwrap();
            send.start_on(&stream).unwrap();
        }
        world.barrier().unwrap();
        if world.rank() == 1 {
            world.abort("the pump is broken");
        }
        let idle = soon().poll(|| stream.is_idle().unwrap().then_some(()));
        assert!(idle.is_some(), "the stream still waits");
        here
    });
    assert_eq!(regions[1].to_vec().unwrap(), [0; 2000]);
}

fn a_message_longer_than_the_buffer_is_refused_on_both_sides(device: &Device) {
    ranks(2, |world| {
        let stream = world.stream(device).unwrap();
        let peer = world.peer(1 - world.rank()).unwrap();
        let region: Region<u8> = world.alloc(device, 100).unwrap();
        let error = if world.rank() == 0 {
            peer.send(&region, 0).prepare().unwrap().start_on(&stream).unwrap_err()
        } else {
            let short = region.slice(0..99).unwrap();
            peer.recv(&short, 0).prepare().unwrap().wait_on(&stream).unwrap_err()
        };
        assert!(matches!(error, Error::Truncated { sent: 100, posted: 99, .. }), "{error}");
    });
}

fn windows_reach_every_rank_and_signals_lie_with_the_waiter(device: &Device) {
    ranks(3, |world| {
        let (rank, size) = (world.rank(), world.size());
        let stream = world.stream(device).unwrap();
        // The last rank brings nothing but its signals.
        let region: Region<u64> = world.alloc(device, 10 * (size - 1 - rank)).unwrap();
        let window = world.window(&region, 2).unwrap();
        let handle = window.handle().unwrap();
        assert_eq!((handle.ranks, handle.rank, handle.signals), (3, rank as u64, 2));
        assert!(window.memory_of(2).unwrap().is_empty() && window.memory_of(3).is_err());
        assert!(window.signal_of(0, 2).is_err());
        let source: Region<u64> = world.alloc(device, 5).unwrap();
        source.write(&[7 + rank as u64; 5]).unwrap();
        // Making memory may wait for kernels of the same GPU, which must not wait for this rank yet.
        world.barrier().unwrap();
        if rank == 1 {
            let there = window.memory_of(0).unwrap();
            assert_eq!(there.len(), 20);
            stream.copy(&there.slice(10..15).unwrap(), source.buffer()).unwrap();
            stream.signal(&window.signal_of(0, 1).unwrap(), 9).unwrap();
            stream.signal(&window.signal_of(2, 1).unwrap(), 9).unwrap();
        } else {
            let signal = window.signal_of(rank, 1).unwrap();
            stream.wait_signal(&signal, 9, Duration::from_secs(20)).unwrap();
        }
        world.synchronize(&stream, soon()).unwrap();
        if rank == 0 {
            assert_eq!(region.to_vec().unwrap()[9..16], [0, 8, 8, 8, 8, 8, 0]);
        }
        world.barrier().unwrap();
    });
}

tests_of_devices! {
    crate::common::each_path;
    "needs a GPU":
    a_ring_turns_without_the_host;
    a_captured_ring_is_replayed;
    many_pairs_in_one_list_keep_their_messages_apart;
    a_message_that_does_not_come_in_time_is_an_error_that_names_it;
    an_abort_releases_what_waits_for_messages;
    a_send_behind_a_wait_that_an_abort_ended_sends_nothing;
    a_message_longer_than_the_buffer_is_refused_on_both_sides;
}

mod host {
    on_the_host!();

    #[test]
    fn windows_reach_every_rank_and_signals_lie_with_the_waiter() {
        super::windows_reach_every_rank_and_signals_lie_with_the_waiter(&libmp::Device::Host);
    }
}

mod gpu {
    use super::kernels::{Kernels, Value, address};
    use libmp::{Device, Region, Step};

    use super::{ranks, soon};

    on_a_gpu!();

    #[test]
    #[ignore = "needs a GPU"]
    fn windows_reach_every_rank_and_signals_lie_with_the_waiter() {
        super::windows_reach_every_rank_and_signals_lie_with_the_waiter(&Device::cuda(0).unwrap());
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn pinned_memory_of_a_gpu_can_be_sent_and_received_into() {
        let device = Device::cuda(0).unwrap();
        ranks(2, |world| {
            let stream = world.stream(&device).unwrap();
            let peer = world.peer(1 - world.rank()).unwrap();
            for len in [10, 5000] {
                let make = || Region::from_buffer(device.alloc_pinned::<u64>(len).unwrap());
                let (out, here) = (make(), make());
                out.write(&vec![5 + world.rank() as u64; len]).unwrap();
                let send = peer.send(&out, len as u64).prepare().unwrap();
                let recv = peer.recv(&here, len as u64).prepare().unwrap();
                world
                    .enqueue(&stream, &[Step::start(&recv), Step::start(&send), Step::wait(&recv)])
                    .unwrap();
                world.synchronize(&stream, soon()).unwrap();
                assert_eq!(here.to_vec().unwrap(), vec![6 - world.rank() as u64; len]);
            }
            world.barrier().unwrap();
        });
    }

    /// A stream start by the host meets a receive inside a kernel: the handle and the stream use the same counters.
    #[test]
    #[ignore = "needs a GPU"]
    fn a_kernel_receives_what_a_stream_sends() {
        let device = Device::cuda(0).unwrap();
        ranks(2, |world| {
            let stream = world.stream(&device).unwrap();
            let peer = world.peer(1 - world.rank()).unwrap();
            let (region, here): (Region<u64>, Region<u64>) =
                (world.alloc(&device, 64).unwrap(), world.alloc(&device, 64).unwrap());
            let send = peer.send(&region, 1).prepare().unwrap();
            let recv = peer.recv(&here, 1).prepare().unwrap();
            let rounds = 20u64;
            let (kernels, results) = (Kernels::of(&device), device.alloc_pinned::<u64>(3).unwrap());
            // Loading and making memory may wait for kernels, which must not wait for this rank yet.
            world.barrier().unwrap();
            if world.rank() == 0 {
                for _ in 0..rounds {
                    let steps = [Step::start(&recv), Step::start(&send), Step::wait(&recv)];
                    world.enqueue(&stream, &steps).unwrap();
                }
            } else {
                let (words, first) = (64u64, 0u64);
                let mut args =
                    vec![Value::Send(send.handle().unwrap()), Value::Recv(recv.handle().unwrap())];
                args.extend([1, 0, words, rounds, first].map(Value::Word));
                args.extend([Value::Half(2), Value::Word(address(&results))]);
                kernels.launch(&stream, "test_exchange", (1, 64), args);
                world.synchronize(&stream, soon()).unwrap();
                assert_eq!(results.to_vec().unwrap()[1..], [rounds, 0], "rounds, status");
            }
            world.synchronize(&stream, soon()).unwrap();
            world.barrier().unwrap();
        });
    }
}
