//! One operation, started in different ways: kept back and fused with its neighbours, by the host, by streams and kernels in
//! turn; and with one end in the memory of a GPU and the other in a host's.

mod common;
#[path = "common/devices.rs"]
#[macro_use]
mod devices;
#[path = "common/kernels.rs"]
mod kernels;

use std::time::Duration;

use common::{PASSES, config, on_threads, stay_to_the_end};
use libmp::{
    Deadline, Device, Error, FusedStream, Operation, Recv, Region, Send, Step, Stream, World,
};

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

/// What a rank sends to the right and receives from the left.
struct Ring {
    out: Region<u64>,
    here: Region<u64>,
    send: Send,
    recv: Recv,
}

/// Words of messages: as packets and in one piece, in one block and in several.
const LENGTHS: [usize; 4] = [1, 100, 1500, 40_000];

impl Ring {
    /// And a stream. Ranks that share a GPU prepare everything before anybody starts.
    fn new(world: &World, device: &Device, len: usize) -> (Ring, Stream) {
        let (rank, size) = (world.rank(), world.size());
        let out: Region<u64> = world.alloc(device, len).unwrap();
        let here: Region<u64> = world.alloc(device, len).unwrap();
        out.write(&vec![rank as u64; len]).unwrap();
        let send = world.peer((rank + 1) % size).unwrap().send(&out, 3).prepare().unwrap();
        let recv = world.peer((rank + size - 1) % size).unwrap().recv(&here, 3);
        let recv = recv.prepare().unwrap();
        send.handle().unwrap();
        recv.handle().unwrap();
        let stream = world.stream(device).unwrap();
        world.barrier().unwrap();
        (Ring { out, here, send, recv }, stream)
    }

    fn pass_on(&self, stream: &Stream) {
        stream.copy(self.out.buffer(), self.here.buffer()).unwrap();
    }

    fn turn_on(&self, stream: &Stream) {
        self.recv.start_on(stream).unwrap();
        self.send.start_on(stream).unwrap();
        self.recv.wait_on(stream).unwrap();
        self.pass_on(stream);
    }

    fn turn_by_the_host(&self, world: &World, stream: &Stream) {
        let Ring { send, recv, .. } = self;
        recv.start().unwrap();
        send.start().unwrap();
        recv.wait(soon()).unwrap();
        send.wait(soon()).unwrap();
        assert!(recv.test().unwrap() && send.test().unwrap());
        self.pass_on(stream);
        world.synchronize(stream, soon()).unwrap();
    }

    fn check(&self, world: &World, turns: usize) {
        let from = (world.rank() + turns * (world.size() - 1)) % world.size();
        let got = self.here.to_vec().unwrap();
        assert!(got.iter().all(|&value| value == from as u64), "{got:?} is not {from}");
    }
}

fn adjacent_operations_of_a_fused_stream_are_one_launch(device: &Device) {
    for len in LENGTHS {
        ranks(2, |world| {
            let (ring, stream) = Ring::new(world, device, len);
            let mut stream = FusedStream::from(stream);
            for _ in 0..20 {
                ring.recv.start_on(&mut stream).unwrap();
                ring.send.start_on(&mut stream).unwrap();
                ring.recv.wait_on(&mut stream).unwrap();
                assert!(format!("{stream:?}").ends_with("3 operations kept back"), "{stream:?}");
                ring.pass_on(stream.stream().unwrap());
                assert!(format!("{stream:?}").ends_with("0 operations kept back"), "{stream:?}");
            }
            world.synchronize(stream.stream().unwrap(), soon()).unwrap();
            ring.check(world, 20);
        });
    }
}

fn a_captured_fused_stream_is_replayed(device: &Device) {
    ranks(2, |world| {
        let (ring, stream) = Ring::new(world, device, 1500);
        let mut stream = FusedStream::from(stream);
        stream.stream().unwrap().begin_capture().unwrap();
        for _ in 0..2 {
            ring.recv.start_on(&mut stream).unwrap();
            ring.send.start_on(&mut stream).unwrap();
            ring.recv.wait_on(&mut stream).unwrap();
            ring.pass_on(stream.stream().unwrap());
        }
        let graph = stream.stream().unwrap().end_capture().unwrap();
        for _ in 0..50 {
            stream.stream().unwrap().launch_graph(&graph).unwrap();
        }
        world.synchronize(stream.stream().unwrap(), soon()).unwrap();
        ring.check(world, 100);
    });
}

fn what_is_kept_back_is_enqueued_by_the_17th_and_by_dropping(device: &Device) {
    ranks(2, |world| {
        let peer = world.peer(1 - world.rank()).unwrap();
        let pairs: Vec<_> = (0..20)
            .map(|tag| {
                let (out, here): (Region<u64>, Region<u64>) =
                    (world.alloc(device, 5).unwrap(), world.alloc(device, 5).unwrap());
                out.write(&[10 * tag + world.rank() as u64; 5]).unwrap();
                let send = peer.send(&out, tag).prepare().unwrap();
                let recv = peer.recv(&here, tag).prepare().unwrap();
                recv.handle().unwrap();
                (send, recv, here)
            })
            .collect();
        let stream = world.stream(device).unwrap();
        let mut sending = FusedStream::from(world.stream(device).unwrap());
        world.barrier().unwrap();
        for (_, recv, _) in &pairs {
            recv.start_on(&stream).unwrap();
        }
        for (number, (send, ..)) in pairs.iter().enumerate() {
            send.start_on(&mut sending).unwrap();
            let kept = if number < 16 { number + 1 } else { number - 15 };
            let text = format!("{sending:?}");
            assert!(text.ends_with(&format!("{kept} operations kept back")), "{text}");
        }
        drop(sending);
        for (_, recv, _) in &pairs {
            recv.wait_on(&stream).unwrap();
        }
        world.synchronize(&stream, soon()).unwrap();
        for (tag, (_, _, here)) in (0..).zip(&pairs) {
            assert_eq!(here.to_vec().unwrap(), [10 * tag + 1 - world.rank() as u64; 5]);
        }
        world.barrier().unwrap();
    });
}

fn starts_by_the_host_and_by_streams_mix(device: &Device) {
    for len in LENGTHS {
        ranks(3, |world| {
            let (ring, stream) = Ring::new(world, device, len);
            for turn in 0..12 {
                // Rank 0 always by the host, rank 1 always by its stream, rank 2 in turn.
                if world.rank() == 0 || (world.rank() == 2 && turn % 3 == 0) {
                    ring.turn_by_the_host(world, &stream);
                } else {
                    ring.turn_on(&stream);
                    world.synchronize(&stream, soon()).unwrap();
                }
            }
            ring.check(world, 12);
            world.barrier().unwrap();
        });
    }
}

fn what_the_host_started_is_complete_when_the_peer_has_sent_and_not_before(device: &Device) {
    ranks(2, |world| {
        let peer = world.peer(1 - world.rank()).unwrap();
        let region: Region<u64> = world.alloc(device, 3).unwrap();
        if world.rank() == 0 {
            region.write(&[4, 5, 6]).unwrap();
            let send = peer.send(&region, 1).prepare().unwrap();
            send.handle().unwrap();
            world.barrier().unwrap();
            send.start().unwrap();
            send.wait(soon()).unwrap();
        } else {
            let recv = peer.recv(&region, 1).prepare().unwrap();
            recv.handle().unwrap();
            assert!(recv.test().unwrap(), "it was not started");
            recv.start().unwrap();
            assert!(!recv.test().unwrap());
            let error = recv.start().unwrap_err();
            assert!(matches!(error, Error::Started { epoch: 1, .. }), "{error}");
            let error = recv.wait(Deadline::after(Duration::from_millis(20))).unwrap_err();
            assert!(matches!(error, Error::Late { tag: 1, expected: 1, seen: 0, .. }), "{error}");
            world.barrier().unwrap();
            recv.wait(soon()).unwrap();
            assert_eq!(region.to_vec().unwrap(), [4, 5, 6]);
        }
        world.barrier().unwrap();
    });
}

fn a_peer_that_has_not_prepared_is_named_with_the_tags_that_it_has(device: &Device) {
    let mut config = config();
    config.timeout = PASSES;
    stay_to_the_end(World::threads_with_config(2, &config).unwrap(), |world| {
        let peer = world.peer(1 - world.rank()).unwrap();
        let region: Region<u64> = world.alloc(device, 3).unwrap();
        if world.rank() == 1 {
            // They are there as long as the peer asks for another.
            let recvs = [5, 2].map(|tag| peer.recv(&region, tag).prepare().unwrap());
            world.barrier().unwrap();
            return recvs.into();
        }
        world.barrier().unwrap();
        let stream = world.stream(device).unwrap();
        let send = peer.send(&region, 1).prepare().unwrap();
        send.start().unwrap();
        let by_host = send.wait(Deadline::after(Duration::from_millis(30))).unwrap_err();
        let on_stream = peer.send(&region, 1).prepare().unwrap().start_on(&stream).unwrap_err();
        for error in [by_host, on_stream] {
            let text = error.to_string();
            let expected = "; rank 1 has not prepared a receive with tag 1; it has tags 2 and 5";
            assert!(text.ends_with(expected), "{text}");
        }
        Vec::new()
    });
}

tests_of_devices! {
    crate::common::each_path;
    "needs a GPU":
    adjacent_operations_of_a_fused_stream_are_one_launch;
    a_captured_fused_stream_is_replayed;
    what_is_kept_back_is_enqueued_by_the_17th_and_by_dropping;
    starts_by_the_host_and_by_streams_mix;
    what_the_host_started_is_complete_when_the_peer_has_sent_and_not_before;
    a_peer_that_has_not_prepared_is_named_with_the_tags_that_it_has;
}

mod host {
    on_the_host!();
}

mod gpu {
    on_a_gpu!();
}

mod cuda {
    use super::kernels::{Kernels, Value};
    use super::*;

    /// Rank 0 and rank 2 have GPU memory, rank 1 has none.
    fn device_of(world: &World) -> Device {
        if world.rank() == 1 { Device::Host } else { Device::cuda(0).unwrap() }
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn a_ring_of_gpus_and_a_host_turns() {
        for len in LENGTHS {
            ranks(3, |world| {
                let device = device_of(world);
                let (ring, stream) = Ring::new(world, &device, len);
                for turn in 0..30 {
                    let list =
                        [Step::start(&ring.recv), Step::start(&ring.send), Step::wait(&ring.recv)];
                    match turn % 2 {
                        0 => world.enqueue(&stream, &list).unwrap(),
                        _ => list.iter().for_each(|step| world.enqueue(&stream, &[*step]).unwrap()),
                    }
                    ring.pass_on(&stream);
                }
                world.synchronize(&stream, soon()).unwrap();
                ring.check(world, 30);
                world.barrier().unwrap();
            });
        }
    }

    /// Prepared by the host, started in a kernel, waited for on a stream or by the host, and back again.
    #[test]
    #[ignore = "needs a GPU"]
    fn a_kernel_a_stream_and_the_host_trigger_the_same_pair() {
        let device = Device::cuda(0).unwrap();
        for len in [8, 1500] {
            ranks(2, |world| {
                let stream = world.stream(&device).unwrap();
                let peer = world.peer(1 - world.rank()).unwrap();
                let region: Region<u64> = world.alloc(&device, len).unwrap();
                let rounds = 3;
                let each = 5u64;
                let kernels = Kernels::of(&device);
                let (send, recv) = if world.rank() == 0 {
                    region.write(&vec![9; len]).unwrap();
                    (Some(peer.send(&region, 1).prepare().unwrap()), None)
                } else {
                    (None, Some(peer.recv(&region, 1).prepare().unwrap()))
                };
                let message = send.as_ref().map(|end| end.handle().unwrap().message);
                let message =
                    message.unwrap_or_else(|| recv.as_ref().unwrap().handle().unwrap().message);
                world.barrier().unwrap();
                for round in 0..rounds {
                    // The sender's way of round r meets another way of the receiver in each.
                    let way = (round + world.rank()) % 3;
                    match (way, &send, &recv) {
                        (0, ..) => {
                            let sends = Value::Half(u32::from(send.is_some()));
                            let args = vec![Value::Message(message), sends, Value::Word(each)];
                            kernels.launch(&stream, "test_messages", (1, 64), args);
                        }
                        (1, Some(send), _) => {
                            (0..each).for_each(|_| send.start_on(&stream).unwrap());
                        }
                        (1, _, Some(recv)) => (0..each).for_each(|_| {
                            recv.start_on(&stream).unwrap();
                            recv.wait_on(&stream).unwrap();
                        }),
                        (_, Some(send), _) => (0..each).for_each(|_| {
                            send.start().unwrap();
                            send.wait(soon()).unwrap();
                        }),
                        (.., recv) => (0..each).for_each(|_| {
                            let recv = recv.as_ref().unwrap();
                            recv.start().unwrap();
                            recv.wait(soon()).unwrap();
                        }),
                    }
                    world.synchronize(&stream, soon()).unwrap();
                }
                if world.rank() == 1 {
                    assert_eq!(region.to_vec().unwrap(), vec![9; len]);
                }
                world.barrier().unwrap();
            });
        }
    }
}
