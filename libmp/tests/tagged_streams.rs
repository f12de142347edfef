//! Tagged messages behind what is on a stream, before what follows on it, and enqueued on it. Host memory on host streams runs the same code everywhere;
//! GPUs and OpenCL where there are some.

mod common;
#[path = "common/staged.rs"]
mod shared;

use std::sync::Arc;
use std::time::Duration;

use common::{ranks, soon};
use libmp::gdsync::{Event, opencl};
use libmp::tagged::{Options, Place, Request, Status, Tag, wait_all};
use libmp::{Config, Deadline, Device, Error, World};
use shared::{CHUNK, bytes, staged};

#[test]
fn a_send_on_a_stream_returns_at_once_and_carries_what_the_stream_has_written_before() {
    ranks(2, |world| {
        let messages = world.tagged(&Options::default()).unwrap();
        for len in [8, 5000, 3 * CHUNK] {
            let memory = world.alloc::<u8>(&Device::Host, len).unwrap();
            if world.rank() == 0 {
                let stream = world.stream(&Device::Host).unwrap();
                let gate = Device::Host.alloc_pinned::<u64>(1).unwrap().word(0).unwrap();
                stream.wait_geq64(&gate, 1).unwrap();
                stream.fill(memory.buffer(), 7).unwrap();
                let mut send = messages.isend(Place::from(&memory).on(&stream), 1, 1).unwrap();
                // Others pass it, and it has not gone.
                messages.send(&[1u8], 1, 2, soon()).unwrap();
                world.barrier().unwrap();
                assert_eq!(send.test().unwrap(), None);
                gate.store(1).unwrap();
                send.wait(soon()).unwrap();
                world.synchronize(&stream, soon()).unwrap();
            } else {
                let mut recv = messages.irecv(&memory, 0, 1).unwrap();
                messages.recv(&mut [0u8], 0, 2, soon()).unwrap();
                assert_eq!(recv.test().unwrap(), None);
                world.barrier().unwrap();
                recv.wait(soon()).unwrap();
                assert!(memory.to_vec().unwrap() == vec![7; len], "{len} bytes");
            }
        }
    });
}

#[test]
fn what_follows_a_receive_on_a_stream_comes_after_the_message_and_what_is_before_it_before() {
    const ROUNDS: u8 = 100;
    ranks(2, |world| {
        let messages = world.tagged(&Options::default()).unwrap();
        for len in [8, 20_000] {
            let (memory, copy) = (
                world.alloc::<u8>(&Device::Host, len).unwrap(),
                world.alloc::<u8>(&Device::Host, len * usize::from(ROUNDS)).unwrap(),
            );
            if world.rank() == 0 {
                for round in 1..=ROUNDS {
                    messages.send(&vec![round; len], 1, 1, soon()).unwrap();
                }
                world.barrier().unwrap();
                continue;
            }
            let stream = world.stream(&Device::Host).unwrap();
            // All are on the stream before any has come, perhaps; each reuses the memory that the one before was copied out of.
            let mut recvs: Vec<Request<'_>> = Vec::new();
            for round in 0..usize::from(ROUNDS) {
                let place = Place::from(&memory).on(&stream);
                recvs.push(messages.irecv(place, 0, Tag::Any).unwrap());
                let part = copy.slice(round * len..(round + 1) * len).unwrap();
                stream.copy(part.buffer(), memory.buffer()).unwrap();
            }
            wait_all(&mut recvs, soon()).unwrap();
            world.synchronize(&stream, soon()).unwrap();
            let copies = copy.to_vec().unwrap();
            for (copy, round) in copies.chunks(len).zip(1..) {
                assert!(copy.iter().all(|byte| *byte == round), "round {round}");
            }
            world.barrier().unwrap();
        }
    });
}

#[test]
fn a_receive_enqueued_on_a_stream_is_complete_when_the_stream_has_been_given_it() {
    const LEN: usize = 300;
    // More than may be on their way at once, so that those of other streams find chunks.
    const ALL: usize = 7;
    ranks(2, |world| {
        let messages = world.tagged(&staged()).unwrap();
        let stream = Arc::new(world.stream(&Device::Host).unwrap());
        if world.rank() == 0 {
            for round in 0..=ALL {
                messages.send(&bytes(LEN, round), 1, 1, soon()).unwrap();
            }
            return;
        }
        let [memory, plain] = [(); 2].map(|()| world.alloc::<u8>(&Device::Host, LEN).unwrap());
        let all = world.alloc::<u8>(&Device::Host, ALL * LEN).unwrap();
        let gate = Device::Host.alloc_pinned::<u64>(1).unwrap().word(0).unwrap();
        stream.wait_geq64(&gate, 1).unwrap();
        let place = Place::from(&memory).enqueued_on(&stream);
        let mut recv = messages.recv_init(place, 0, 1).unwrap();
        let take = |round: usize| {
            let to = all.slice(round * LEN..(round + 1) * LEN).unwrap();
            stream.copy(to.buffer(), memory.buffer()).unwrap();
        };
        for round in 0..4 {
            recv.start().unwrap();
            assert_eq!(recv.wait(soon()).unwrap(), Status { source: 0, tag: 1, bytes: LEN });
            take(round);
        }
        assert_eq!(all.to_vec().unwrap(), vec![0; ALL * LEN], "the stream stands still");
        recv.start().unwrap();
        let mut other = messages.irecv(&plain, 0, 1).unwrap();
        other.wait(soon()).unwrap();
        assert_eq!(plain.to_vec().unwrap(), bytes(LEN, 5));
        assert_eq!(recv.test().unwrap(), None, "half of the chunks are for others");
        gate.store(1).unwrap();
        recv.wait(soon()).unwrap();
        take(4);
        for round in 5..ALL {
            recv.start().unwrap();
            recv.wait(soon()).unwrap();
            take(round);
        }
        world.synchronize(&stream, soon()).unwrap();
        let sent = (0..=ALL).filter(|round| *round != 5).flat_map(|round| bytes(LEN, round));
        assert!(all.to_vec().unwrap() == sent.collect::<Vec<_>>());
        assert_eq!(messages.staged().in_use, 0);
    });
}

#[test]
fn a_receive_of_any_length_enqueued_on_a_stream_is_before_what_the_stream_is_given_next() {
    enqueued(&Device::Host);
}

fn enqueued(device: &Device) {
    ranks(2, |world| {
        let messages = world.tagged(&Options { chunk: Some(4096), ..staged() }).unwrap();
        let stream = Arc::new(world.stream(device).unwrap());
        for len in [0, 1, 41, 4096, 4097, 8192, 8193, 100_000] {
            let [from, to] = [(); 2].map(|()| world.alloc::<u8>(device, len).unwrap());
            if world.rank() == 0 {
                stream.fill(from.buffer(), len as u8 | 1).unwrap();
                let mut send =
                    messages.isend(Place::from(&from).enqueued_on(&stream), 1, 1).unwrap();
                send.wait(soon()).unwrap();
            } else {
                let place = Place::from(&from).enqueued_on(&stream);
                messages.irecv(place, 0, 1).unwrap().wait(soon()).unwrap();
                stream.copy(to.buffer(), from.buffer()).unwrap();
                world.synchronize(&stream, soon()).unwrap();
                assert!(to.to_vec().unwrap() == vec![len as u8 | 1; len], "{len} bytes");
            }
        }
    });
}

#[test]
fn an_event_is_waited_for_as_a_stream_is() {
    ranks(2, |world| {
        let messages = world.tagged(&Options::default()).unwrap();
        let memory = world.alloc::<u8>(&Device::Host, 50_000).unwrap();
        if world.rank() == 0 {
            let (one, two) =
                (world.stream(&Device::Host).unwrap(), world.stream(&Device::Host).unwrap());
            let (gate, event) = (
                Device::Host.alloc_pinned::<u64>(1).unwrap().word(0).unwrap(),
                Event::new(&Device::Host).unwrap(),
            );
            one.wait_geq64(&gate, 1).unwrap();
            one.fill(memory.buffer(), 3).unwrap();
            one.record(&event).unwrap();
            let mut send = messages.isend(Place::from(&memory).after(&event), 1, 1).unwrap();
            // Another stream keeps nothing of it.
            two.synchronize(soon()).unwrap();
            assert_eq!(send.test().unwrap(), None);
            gate.store(1).unwrap();
            send.wait(soon()).unwrap();
        } else {
            messages.irecv(&memory, 0, 1).unwrap().wait(soon()).unwrap();
            assert_eq!(memory.to_vec().unwrap(), vec![3; 50_000]);
        }
    });
}

#[test]
fn a_stream_goes_on_when_its_receive_is_truncated_taken_back_or_dropped() {
    ranks(1, |world| {
        let messages = world.tagged(&Options::default()).unwrap();
        let memory = world.alloc::<u8>(&Device::Host, 4).unwrap();
        let stream = world.stream(&Device::Host).unwrap();
        let receive = |tag| messages.irecv(Place::from(&memory).on(&stream), 0, tag).unwrap();
        messages.send(&[1u8; 5], 0, 1, soon()).unwrap();
        let truncated = receive(1).wait(soon()).unwrap_err();
        assert!(matches!(truncated, Error::Truncated { sent: 5, posted: 4, .. }), "{truncated}");
        stream.synchronize(soon()).unwrap();
        assert!(receive(2).cancel());
        stream.synchronize(soon()).unwrap();
        drop(receive(3));
        stream.synchronize(soon()).unwrap();
        assert_eq!(messages.staged().in_use, 0);
    });
}

#[test]
fn a_receive_on_a_stream_that_gets_nothing_ends_at_the_deadline_and_says_its_source_and_tag() {
    let config = Config::from_variables([("MP_TIMEOUT", "1")]).unwrap();
    let worlds = World::threads_with_config(1, &config).unwrap();
    let messages = worlds[0].tagged(&Options::default()).unwrap();
    let memory = worlds[0].alloc::<u8>(&Device::Host, 4).unwrap();
    let stream = worlds[0].stream(&Device::Host).unwrap();
    let mut recv = messages.irecv(Place::from(&memory).on(&stream), 0, 77).unwrap();
    let late = recv.wait(Deadline::after(Duration::from_millis(10))).unwrap_err().to_string();
    assert!(late.contains("tag 77") && late.contains("rank 0"), "{late}");
    // The stream's own wait ends by itself.
    let gave_up = stream.synchronize(soon()).unwrap_err();
    assert!(!matches!(gave_up, libmp::gdsync::Error::Timeout { .. }), "{gave_up}");
}

#[test]
fn a_stream_that_is_being_captured_is_refused_with_what_to_do_instead() {
    ranks(1, |world| {
        let messages = world.tagged(&Options::default()).unwrap();
        let memory = world.alloc::<u8>(&Device::Host, 4).unwrap();
        let stream = Arc::new(world.stream(&Device::Host).unwrap());
        // One that was started before waits for the capture's end, and is not in the graph.
        let enqueued = || Place::from(&memory).enqueued_on(&stream);
        let mut before = messages.irecv(enqueued(), 0, 2).unwrap();
        stream.begin_capture().unwrap();
        let place = || Place::from(&memory).on(&stream);
        let refused = [
            messages.isend(place(), 0, 1).unwrap_err().to_string(),
            messages.irecv(place(), 0, 1).unwrap_err().to_string(),
            messages.isend(enqueued(), 0, 1).unwrap_err().to_string(),
            messages.irecv(enqueued(), 0, 1).unwrap_err().to_string(),
        ];
        for refused in refused {
            assert!(refused.contains("captured") && refused.contains("prepare"), "{refused}");
        }
        messages.send(&[7u8; 4], 0, 2, soon()).unwrap();
        for _ in 0..100 {
            assert_eq!(before.test().unwrap(), None);
        }
        let graph = stream.end_capture().unwrap();
        before.wait(soon()).unwrap();
        world.synchronize(&stream, soon()).unwrap();
        assert_eq!(memory.to_vec().unwrap(), [7; 4]);
        memory.write(&[1; 4]).unwrap();
        stream.launch_graph(&graph).unwrap();
        world.synchronize(&stream, soon()).unwrap();
        assert_eq!(memory.to_vec().unwrap(), [1; 4]);
    });
}

mod on_opencl {
    use super::*;

    #[test]
    #[ignore = "needs an OpenCL platform"]
    fn a_stream_does_not_copy_to_opencl_memory() {
        ranks(1, |world| {
            let messages = world.tagged(&Options::default()).unwrap();
            let stream = Arc::new(world.stream(&Device::Host).unwrap());
            let memory = opencl::Context::open().unwrap().alloc(4).unwrap();
            let place = Place::from(&memory).enqueued_on(&stream);
            let refused = messages.irecv(place, 0, 1).unwrap_err().to_string();
            assert!(refused.contains("does not copy to"), "{refused}");
        });
    }

    #[test]
    #[ignore = "needs an OpenCL platform"]
    fn a_send_behind_a_point_in_a_queue_of_opencl_waits_for_it() {
        use cl3::event::{create_user_event, release_event, set_user_event_status};
        ranks(1, |world| {
            let messages = world.tagged(&Options::default()).unwrap();
            let context = opencl::Context::open().unwrap();
            let memory = context.alloc(100).unwrap();
            // SAFETY: an event of this context, released once.
            let (gate, event) = unsafe {
                let gate = create_user_event(context.as_raw()).unwrap();
                (gate, Arc::new(opencl::Event::adopt(gate).unwrap()))
            };
            let mut send = messages.isend(Place::from(&memory).after_opencl(&event), 0, 1).unwrap();
            let mut got = [0u8; 100];
            messages.scope(|scope| {
                let mut recv = scope.irecv(&mut got, 0, 1).unwrap();
                for _ in 0..100 {
                    assert_eq!((send.test().unwrap(), recv.test().unwrap()), (None, None));
                }
                memory.write(&[9; 100]).unwrap();
                // SAFETY: as above.
                unsafe {
                    set_user_event_status(gate, 0).unwrap();
                    release_event(gate).unwrap();
                }
                recv.wait(soon()).unwrap();
                send.wait(soon()).unwrap();
            });
            assert_eq!(got, [9; 100]);
        });
    }
}

mod gpu {
    use super::*;

    #[test]
    #[ignore = "needs a GPU"]
    fn a_receive_of_any_length_enqueued_on_a_gpu_stream_is_before_what_that_is_given_next() {
        enqueued(&Device::cuda(0).unwrap());
    }

    /// `TEST_RECEIVES`: how many, if not 1000.
    #[test]
    #[ignore = "needs a GPU"]
    fn a_send_behind_and_a_receive_before_what_a_gpu_does_are_in_order() {
        let rounds = std::env::var("TEST_RECEIVES").map_or(1000, |it| it.parse().unwrap());
        let device = Device::cuda(0).unwrap();
        ranks(2, |world| {
            let messages = world.tagged(&Options::default()).unwrap();
            let len = 300_000;
            let memory = world.alloc::<u8>(&device, len).unwrap();
            let last = world.alloc::<u8>(&device, rounds).unwrap();
            let stream = world.stream(&device).unwrap();
            for round in 0..rounds {
                let place = Place::from(&memory).on(&stream);
                if world.rank() == 0 {
                    stream.fill(memory.buffer(), round as u8).unwrap();
                    messages.isend(place, 1, 1).unwrap().wait(soon()).unwrap();
                } else {
                    let mut recv = messages.irecv(place, 0, 1).unwrap();
                    // Enqueued before the message has come.
                    let (to, from) = (
                        last.slice(round..round + 1).unwrap(),
                        memory.slice(len - 1..len).unwrap(),
                    );
                    stream.copy(to.buffer(), from.buffer()).unwrap();
                    recv.wait(soon()).unwrap();
                }
            }
            world.synchronize(&stream, soon()).unwrap();
            if world.rank() == 1 {
                let expected: Vec<u8> = (0..rounds).map(|round| round as u8).collect();
                assert!(last.to_vec().unwrap() == expected);
            }
        });
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn a_send_behind_a_long_wait_of_a_gpu_stream_returns_at_once() {
        let device = Device::cuda(0).unwrap();
        ranks(1, |world| {
            let messages = world.tagged(&Options::default()).unwrap();
            let memory = world.alloc::<u8>(&device, 1 << 20).unwrap();
            let stream = world.stream(&device).unwrap();
            let gate = device.alloc_pinned::<u64>(1).unwrap().word(0).unwrap();
            // Once before, so that lanes and modules are there.
            let mut got = vec![0u8; 1 << 20];
            let mut first = messages.isend(Place::from(&memory).on(&stream), 0, 0).unwrap();
            messages.recv(&mut got, 0, 0, soon()).unwrap();
            first.wait(soon()).unwrap();
            stream.wait_geq64(&gate, 1).unwrap();
            stream.fill(memory.buffer(), 9).unwrap();
            let since = std::time::Instant::now();
            let mut send = messages.isend(Place::from(&memory).on(&stream), 0, 1).unwrap();
            let took = since.elapsed();
            println!("the call took {took:?}");
            assert!(took < Duration::from_millis(50), "{took:?}");
            messages.scope(|scope| {
                let mut recv = scope.irecv(&mut got, 0, 1).unwrap();
                for _ in 0..1000 {
                    assert_eq!((send.test().unwrap(), recv.test().unwrap()), (None, None));
                }
                gate.store(1).unwrap();
                recv.wait(soon()).unwrap();
                send.wait(soon()).unwrap();
            });
            assert!(got == vec![9; 1 << 20]);
            world.synchronize(&stream, soon()).unwrap();
        });
    }
}
