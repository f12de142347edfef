//! Messages that host streams start and wait for, between ranks that are threads, on every path.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{on_every_path, on_threads, ranks};
use libmp::{
    Config, Deadline, Device, Error, Operation, Recv, Region, Send, Step, World, wait_all,
};

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

#[test]
fn a_ring_on_streams_runs_without_the_host() {
    for size in [1, 2, 4] {
        ranks(size, |world| {
            let (rank, size) = (world.rank(), world.size());
            let stream = world.stream(&Device::Host).unwrap();
            let out: Region<u64> = world.alloc(&Device::Host, 100).unwrap();
            let here: Region<u64> = world.alloc(&Device::Host, 100).unwrap();
            out.write(&[rank as u64; 100]).unwrap();
            let right = world.peer((rank + 1) % size).unwrap();
            let left = world.peer((rank + size - 1) % size).unwrap();
            let send = right.send(&out, 0).prepare().unwrap();
            let recv = left.recv(&here, 0).prepare().unwrap();
            // Everything is enqueued before anything is waited for.
            for _ in 0..100 {
                recv.start_on(&stream).unwrap();
                send.start_on(&stream).unwrap();
                recv.wait_on(&stream).unwrap();
                // What came is sent on.
                stream.copy(out.buffer(), here.buffer()).unwrap();
            }
            world.synchronize(&stream, soon()).unwrap();
            let from = (rank + 100 * (size - 1)) % size;
            assert_eq!(here.to_vec().unwrap(), [from as u64; 100]);
        });
    }
}

#[test]
fn host_and_stream_starts_of_one_pair_mix() {
    ranks(2, |world| {
        let stream = world.stream(&Device::Host).unwrap();
        let peer = world.peer(1 - world.rank()).unwrap();
        let region: Region<u64> = world.alloc(&Device::Host, 1).unwrap();
        if world.rank() == 0 {
            let send = peer.send(&region, 0).prepare().unwrap();
            for round in 0..60u64 {
                region.write(&[round]).unwrap();
                if round % 2 == 0 {
                    send.start_on(&stream).unwrap();
                } else {
                    send.start().unwrap();
                }
                send.wait(soon()).unwrap();
            }
        } else {
            let recv = peer.recv(&region, 0).prepare().unwrap();
            for round in 0..60u64 {
                if round % 3 == 0 {
                    recv.start_on(&stream).unwrap();
                } else {
                    recv.start().unwrap();
                }
                if round % 5 == 0 {
                    recv.wait_on(&stream).unwrap();
                    world.synchronize(&stream, soon()).unwrap();
                }
                recv.wait(soon()).unwrap();
                assert_eq!(region.to_vec().unwrap(), [round]);
            }
        }
    });
}

#[test]
fn a_stream_may_look_at_a_message_after_it_was_dropped_and_others_were_prepared() {
    ranks(2, |world| {
        let stream = world.stream(&Device::Host).unwrap();
        let gate = world.alloc::<u64>(&Device::Host, 1).unwrap().buffer().word(0).unwrap();
        let peer = world.peer(1 - world.rank()).unwrap();
        let region: Region<u64> = world.alloc(&Device::Host, 20).unwrap();
        let pair = |tag| {
            let send = peer.send(&region.slice(0..10).unwrap(), tag).prepare().unwrap();
            (send, peer.recv(&region.slice(10..20).unwrap(), tag).prepare().unwrap())
        };
        let round = |(send, recv): &(_, _)| {
            let (send, recv): (&Send, &Recv) = (send, recv);
            recv.start().unwrap();
            send.start().unwrap();
            wait_all(&[send, recv], soon()).unwrap();
        };
        let first = pair(0);
        (0..20).for_each(|_| round(&first));
        stream.wait_geq64(&gate, 1).unwrap();
        first.0.wait_on(&stream).unwrap();
        first.1.wait_on(&stream).unwrap();
        drop(first);
        // Whose words are given out again now.
        world.barrier().unwrap();
        let others: Vec<_> = (1..8).map(pair).collect();
        others.iter().for_each(round);
        gate.store(1).unwrap();
        world.synchronize(&stream, soon()).unwrap();
    });
}

#[test]
fn a_start_that_nothing_orders_behind_the_last_is_refused() {
    ranks(2, |world| {
        let (one, two) =
            (world.stream(&Device::Host).unwrap(), world.stream(&Device::Host).unwrap());
        let gate = world.alloc::<u64>(&Device::Host, 1).unwrap().buffer().word(0).unwrap();
        // So far neither stream gets anywhere.
        one.wait_geq64(&gate, 1).unwrap();
        two.wait_geq64(&gate, 1).unwrap();
        let peer = world.peer(1 - world.rank()).unwrap();
        let region: Region<u64> = world.alloc(&Device::Host, 1).unwrap();
        let started = |result| matches!(result, Err(Error::Started { epoch: 1, .. }));
        if world.rank() == 0 {
            let send = peer.send(&region, 0).prepare().unwrap();
            send.start_on(&one).unwrap();
            assert!(started(send.start_on(&two)) && started(send.start()));
            send.start_on(&one).unwrap();
            gate.store(1).unwrap();
            send.wait(soon()).unwrap();
        } else {
            let recv = peer.recv(&region, 0).prepare().unwrap();
            recv.start_on(&one).unwrap();
            assert!(started(recv.start_on(&one)), "its message may not have been read");
            gate.store(1).unwrap();
            recv.wait_on(&two).unwrap();
            recv.start_on(&two).unwrap();
            recv.wait(soon()).unwrap();
        }
    });
}

#[test]
fn a_list_with_an_operation_of_another_rank_is_refused_and_nothing_of_it_runs() {
    on_every_path(2).for_each(|worlds| {
        let [one, two] = [&worlds[0], &worlds[1]];
        let region: Region<u64> = one.alloc(&Device::Host, 1).unwrap();
        let of = |world: &World| {
            let me = world.peer(world.rank()).unwrap();
            (me.send(&region, 0).prepare().unwrap(), me.recv(&region, 0).prepare().unwrap())
        };
        let ((send, recv), (_, others)) = (of(one), of(two));
        let stream = one.stream(&Device::Host).unwrap();
        let steps = [Step::start(&recv), Step::start(&send), Step::wait(&others)];
        let error = one.enqueue(&stream, &steps).unwrap_err();
        assert!(matches!(error, Error::Mismatch { .. }), "{error}");
        assert!(error.to_string().contains("rank 1") && error.to_string().contains("rank 0"));
        assert!(stream.is_idle().unwrap() && recv.test().unwrap());
        assert!(one.counters().iter().chain(&two.counters()).all(|peer| peer.is_empty()));
    });
}

/// A host stream holds so many operations.
const CAPACITY: usize = 4096;

/// Every rank but the first has filled its stream before the message comes that the stream waits for, and so blocks in a call
/// that enqueues; whoever sends that message needs nothing of it but what it has prepared.
#[test]
fn a_rank_that_blocks_since_its_stream_is_full_holds_up_nobody() {
    const RANKS: usize = 6;
    // More than a mailbox holds: the rest is told while the rank blocks.
    const PAIRS: usize = 40;
    for path in common::paths() {
        let mut config = Config::from_variables([("MP_PATH", path)]).unwrap();
        config.timeout = Duration::from_secs(20);
        let full = AtomicUsize::new(0);
        on_threads(World::threads_with_config(RANKS, &config).unwrap(), |world| {
            let rank = world.rank();
            let stream = world.stream(&Device::Host).unwrap();
            let region: Region<u64> = world.alloc(&Device::Host, 1).unwrap();
            let (left, right) =
                (world.peer((rank + RANKS - 1) % RANKS), world.peer((rank + 1) % RANKS));
            let (left, right) = (left.unwrap(), right.unwrap());
            let pairs: Vec<_> = (0..PAIRS)
                .map(|tag| {
                    let send = right.send(&region, tag as u64).prepare().unwrap();
                    (send, left.recv(&region, tag as u64).prepare().unwrap())
                })
                .collect();
            let (send, recv) = pairs.last().unwrap();
            if rank == 0 {
                // Tells the right what is prepared here, and does not listen to it.
                while full.load(Ordering::Relaxed) < RANKS - 1 {
                    assert!(recv.test().unwrap());
                }
                region.write(&[7]).unwrap();
                send.start_on(&stream).unwrap();
                recv.start_on(&stream).unwrap();
                recv.wait_on(&stream).unwrap();
            } else {
                recv.start_on(&stream).unwrap();
                recv.wait_on(&stream).unwrap();
                let calls = Arc::new(AtomicUsize::new(0));
                for number in 0..2 * CAPACITY {
                    if number == CAPACITY - 10 {
                        full.fetch_add(1, Ordering::Relaxed);
                    }
                    let calls = calls.clone();
                    stream.call(move || _ = calls.fetch_add(1, Ordering::Relaxed)).unwrap();
                }
                send.start_on(&stream).unwrap();
            }
            world.synchronize(&stream, soon()).unwrap();
            assert_eq!(region.to_vec().unwrap(), [7], "{path}");
            world.finish().unwrap();
        });
    }
}

#[test]
fn a_full_stream_is_waited_for_as_long_as_the_communicator_says() {
    let world = World::threads(1).unwrap().pop().unwrap();
    let world = world.with_timeout(Duration::from_millis(50));
    let stream = world.stream(&Device::Host).unwrap();
    let gate = world.alloc::<u64>(&Device::Host, 1).unwrap().buffer().word(0).unwrap();
    stream.wait_geq64(&gate, 1).unwrap();
    let since = Instant::now();
    let error = (0..2 * CAPACITY).find_map(|_| stream.call(|| {}).err()).unwrap();
    assert!(since.elapsed() < Duration::from_secs(30), "{:?}", since.elapsed());
    assert!(error.to_string().contains("room on stream"), "{error}");
    gate.store(1).unwrap();
}

#[test]
fn an_abort_releases_streams_that_wait_for_messages() {
    on_every_path(3).for_each(an_abort_releases_streams);
}

fn an_abort_releases_streams(worlds: Vec<World>) {
    let texts = on_threads(worlds, |world| {
        // Too long to be sent before it is posted.
        let region: Region<u64> = world.alloc(&Device::Host, 16).unwrap();
        let stream = world.stream(&Device::Host).unwrap();
        if world.rank() == 2 {
            let ends: Vec<_> = (0..2)
                .map(|rank| {
                    let peer = world.peer(rank).unwrap();
                    let send = peer.send(&region, 1).prepare().unwrap();
                    (send, peer.recv(&region, 2).prepare().unwrap())
                })
                .collect();
            // Here the others have enqueued.
            world.barrier().unwrap();
            ends.iter().for_each(|(send, _)| assert!(send.test().unwrap()));
            world.abort("the pump is broken");
            return String::new();
        }
        let peer = world.peer(2).unwrap();
        let recv = peer.recv(&region, 1).prepare().unwrap();
        let send = peer.send(&region, 2).prepare().unwrap();
        if world.rank() == 0 {
            recv.start_on(&stream).unwrap();
            recv.wait_on(&stream).unwrap();
        } else {
            send.start_on(&stream).unwrap();
        }
        world.barrier().unwrap();
        let since = Instant::now();
        let error = world.synchronize(&stream, soon()).unwrap_err();
        assert!(since.elapsed() < Duration::from_secs(15), "{:?}", since.elapsed());
        assert!(stream.is_idle().unwrap() || stream.synchronize(soon()).is_err());
        assert!(recv.start_on(&stream).is_err());
        error.to_string()
    });
    for text in &texts[..2] {
        assert!(text.starts_with("rank 2 on ") && text.contains("the pump is broken"), "{text}");
    }
}

#[test]
fn a_message_that_the_host_has_started_goes_on_while_it_waits_for_a_stream() {
    ranks(2, |world| {
        let stream = world.stream(&Device::Host).unwrap();
        let peer = world.peer(1 - world.rank()).unwrap();
        let (a, b): (Region<u8>, Region<u8>) =
            (world.alloc(&Device::Host, 8).unwrap(), world.alloc(&Device::Host, 8).unwrap());
        if world.rank() == 0 {
            let send = peer.send(&a, 0).prepare().unwrap();
            let recv = peer.recv(&b, 1).prepare().unwrap();
            send.start().unwrap();
            recv.start_on(&stream).unwrap();
            recv.wait_on(&stream).unwrap();
            world.synchronize(&stream, soon()).unwrap();
            send.wait(soon()).unwrap();
        } else {
            let recv = peer.recv(&a, 0).prepare().unwrap();
            let send = peer.send(&b, 1).prepare().unwrap();
            std::thread::sleep(Duration::from_millis(20));
            recv.start().unwrap();
            recv.wait(soon()).unwrap();
            send.start().unwrap();
            wait_all(&[&send], soon()).unwrap();
        }
    });
}
