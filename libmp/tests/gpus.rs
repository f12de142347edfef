//! What only a GPU can show: its memory through the software NIC, by the host and on streams; and the timeline of CUDA streams and
//! of what kernels stamp.

mod common;
#[path = "common/kernels.rs"]
mod kernels;

use std::path::Path;
use std::time::Duration;

use common::on_threads;
use libmp::{Config, Deadline, Device, Operation, Region, Step, World, trace};
use serde_json::Value;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

/// Two ranks on the first GPU with these variables; all finish.
fn ranks(variables: &[(&str, &str)], rank: impl Fn(&World, &Device) + Sync) {
    let config = Config::from_variables(variables.iter().copied()).unwrap();
    on_threads(World::threads_with_config(2, &config).unwrap(), |world| {
        rank(&world, &Device::cuda(0).unwrap());
        world.finish().unwrap();
    });
}

/// Words: within a page of the GPU's memory, over many, and with an odd end.
const LENGTHS: [usize; 3] = [1, 1001, 100_000];
const THROUGH_THE_NIC: [(&str, &str); 2] = [("MP_PATH", "nic"), ("MP_TIMEOUT", "10")];

mod gpu {
    use super::kernels::{Kernels, Value as Argument, address};
    use super::*;

    #[test]
    #[ignore = "needs a GPU"]
    fn messages_of_gpu_memory_go_through_the_nic_by_the_host_and_on_streams() {
        for len in LENGTHS {
            ranks(&THROUGH_THE_NIC, |world, device| {
                let (rank, peer) = (world.rank(), world.peer(1 - world.rank()).unwrap());
                let out: Region<u64> = world.alloc(device, len).unwrap();
                let here: Region<u64> = world.alloc(device, len).unwrap();
                let send = peer.send(&out, 7).prepare().unwrap();
                let recv = peer.recv(&here, 7).prepare().unwrap();
                let stream = world.stream(device).unwrap();
                world.barrier().unwrap();
                for round in 0..6u64 {
                    out.write(&vec![100 * rank as u64 + round; len]).unwrap();
                    if round % 2 == 0 {
                        recv.start().unwrap();
                        send.start().unwrap();
                        recv.wait(soon()).unwrap();
                        send.wait(soon()).unwrap();
                    } else {
                        recv.start_on(&stream).unwrap();
                        send.start_on(&stream).unwrap();
                        recv.wait_on(&stream).unwrap();
                        send.wait_on(&stream).unwrap();
                        world.synchronize(&stream, soon()).unwrap();
                        // For the next start, the host has to know it, too.
                        recv.wait(soon()).unwrap();
                        send.wait(soon()).unwrap();
                    }
                    let got = here.to_vec().unwrap();
                    let expected = 100 * (1 - rank as u64) + round;
                    assert!(got.iter().all(|&word| word == expected), "{round}: {}", got[0]);
                    world.barrier().unwrap();
                }
            });
        }
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn windows_of_gpu_memory_go_through_the_nic_by_the_host_and_on_streams() {
        for len in LENGTHS {
            ranks(&THROUGH_THE_NIC, |world, device| {
                let (rank, other) = (world.rank(), 1 - world.rank());
                let here: Region<u64> = world.alloc(device, len).unwrap();
                let out: Region<u64> = world.alloc(device, len).unwrap();
                let window = world.window(&here, 1).unwrap();
                let stream = world.stream(device).unwrap();
                world.barrier().unwrap();
                for round in 1..=6u64 {
                    out.write(&vec![100 * rank as u64 + round; len]).unwrap();
                    if round % 2 == 0 {
                        window.put_signal(other, 0, &out, 0, round).unwrap();
                        window.wait_signal(0, round, soon()).unwrap();
                    } else {
                        window.put_on(&stream, other, 0, &out).unwrap();
                        window.signal_on(&stream, other, 0, round).unwrap();
                        window.wait_signal_on(&stream, 0, round).unwrap();
                        world.synchronize(&stream, soon()).unwrap();
                    }
                    let got = here.to_vec().unwrap();
                    let expected = 100 * other as u64 + round;
                    assert!(got.iter().all(|&word| word == expected), "{round}: {}", got[0]);
                    world.barrier().unwrap();
                }
            });
        }
    }

    /// A GPU has a few hardware channels for its streams.
    #[test]
    #[ignore = "needs a GPU"]
    fn many_operations_on_a_gpu_share_a_few_streams() {
        const OPERATIONS: u64 = 300;
        ranks(&[], |world, device| {
            let peer = world.peer(1 - world.rank()).unwrap();
            let region: Region<u64> = world.alloc(device, 2 * OPERATIONS as usize).unwrap();
            let at = |number: u64| region.slice(number as usize..number as usize + 1).unwrap();
            let before = world.stream(device).unwrap().number();
            let ends: Vec<_> = (0..OPERATIONS)
                .map(|number| {
                    let send = peer.send(&at(2 * number), number).prepare().unwrap();
                    (send, peer.recv(&at(2 * number + 1), number).prepare().unwrap())
                })
                .collect();
            for round in 1..=3 {
                for (number, (send, recv)) in (0..).zip(&ends) {
                    at(2 * number).write(&[round * OPERATIONS + number]).unwrap();
                    recv.start().unwrap();
                    send.start().unwrap();
                    recv.wait(soon()).unwrap();
                    send.wait(soon()).unwrap();
                    assert_eq!(at(2 * number + 1).to_vec().unwrap(), [round * OPERATIONS + number]);
                }
            }
            // Of both ranks, and of tests beside this one.
            let made = world.stream(device).unwrap().number() - before;
            assert!(made < 60, "{made} streams for {} operations", 2 * OPERATIONS);
        });
    }

    /// Two readings of the clock of the GPU by a kernel, between two of the host's.
    fn stamped(world: &World, device: &Device, bytes: u64, rounds: u64) -> (u64, u64, u64, u64) {
        let (from, to): (Region<u8>, Region<u8>) = (
            world.alloc(device, bytes.max(8) as usize).unwrap(),
            world.alloc(device, bytes.max(8) as usize).unwrap(),
        );
        let stamps = device.alloc_pinned::<u64>(2).unwrap();
        let stream = world.stream(device).unwrap();
        let kernels = Kernels::of(device);
        let [target, source] = [&to, &from].map(|region| Argument::Word(address(region.buffer())));
        let [bytes, rounds, at] = [bytes, rounds, address(&stamps)].map(Argument::Word);
        let args = vec![target, source, bytes, rounds, Argument::Half(2), at];
        let before = trace::now();
        kernels.launch(&stream, "mp_copies", (1, 256), args);
        world.synchronize(&stream, soon()).unwrap();
        let after = trace::now();
        let stamps = stamps.to_vec().unwrap();
        (before, stamps[0], stamps[1], after)
    }

    fn named<'a>(document: &'a Value, rank: usize, start: &str) -> Vec<(f64, f64, &'a Value)> {
        let all = document["traceEvents"].as_array().unwrap();
        let wanted = |event: &&Value| {
            event["pid"] == rank
                && event["ph"] == "X"
                && event["name"].as_str().unwrap_or_default().starts_with(start)
        };
        let times = |event: &'a Value| {
            let ts = event["ts"].as_f64().unwrap();
            (ts, ts + event["dur"].as_f64().unwrap(), event)
        };
        all.iter().filter(wanted).map(times).collect()
    }

    fn check(path: &Path) {
        let document: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        for rank in 0..2 {
            let enqueued = named(&document, rank, "enqueue recv");
            let ran = named(&document, rank, "recv");
            assert_eq!((enqueued.len(), ran.len()), (20, 20));
            let mut last = 0.0;
            for ((enqueued, _, _), (began, ended, event)) in enqueued.iter().zip(&ran) {
                // After it was enqueued, in order, and for a plausible time. Clocks are compared to some microseconds.
                assert!(began + 20.0 >= *enqueued, "{event} was enqueued at {enqueued}");
                assert!(*began + 1.0 >= last && ended - began < 5e5, "{event}");
                last = *ended;
            }
            let [(began, ended, event)] = named(&document, rank, "copy kernel")[..] else {
                panic!()
            };
            let [(before, after, _)] = named(&document, rank, "around the kernel")[..] else {
                panic!()
            };
            assert!(began + 50.0 >= before && ended <= after + 50.0, "{event}: {before} {after}");
            assert!(ended - began > 1.0, "{event}");
        }
        // A message is received after it was sent, whatever stream of whichever rank did it.
        for rank in 0..2 {
            let (here, there) =
                (named(&document, rank, "recv"), named(&document, 1 - rank, "recv"));
            for ((began, _, _), (_, ended, event)) in here.iter().zip(&there) {
                assert!(began <= &(ended + 20.0), "{event} ended before the peer began");
            }
        }
    }

    /// With `TEST_TRACE` the timeline stays there.
    #[test]
    #[ignore = "needs a GPU"]
    fn cuda_streams_and_stamps_of_kernels_are_on_the_clock_of_the_host() {
        let folder = tempfile::tempdir().unwrap();
        let path = match std::env::var_os("TEST_TRACE") {
            Some(path) => path.into(),
            None => folder.path().join("trace.json"),
        };
        let file = path.to_str().unwrap().to_owned();
        ranks(&[("MP_TRACE", &file), ("MP_TIMEOUT", "10")], |world, device| {
            let peer = world.peer(1 - world.rank()).unwrap();
            let [edge, ghost] = [5000, 5000].map(|len| world.alloc::<u64>(device, len).unwrap());
            let send = peer.send(&edge, 3).prepare().unwrap();
            let recv = peer.recv(&ghost, 3).prepare().unwrap();
            send.handle().unwrap();
            recv.handle().unwrap();
            let stream = world.stream(device).unwrap();
            world.barrier().unwrap();
            for _ in 0..20 {
                let steps = [Step::start(&recv), Step::start(&send), Step::wait(&recv)];
                world.enqueue(&stream, &steps).unwrap();
                world.synchronize(&stream, soon()).unwrap();
            }
            world.barrier().unwrap();
            // One rank at a time: nobody else's kernel is in the way.
            for turn in 0..2 {
                if turn == world.rank() {
                    let readings: Vec<_> = (0..10)
                        .map(|_| {
                            let (before, began, _, after) = stamped(world, device, 0, 0);
                            (before, began, after)
                        })
                        .collect();
                    let clock = trace::Calibration::measured(&readings).unwrap();
                    println!("rank {turn}: clock within {} ns", clock.within_ns());
                    let span = world.trace().span("test", "around the kernel");
                    let (_, began, ended, _) = stamped(world, device, 1 << 20, 10);
                    drop(span);
                    let stamps = [trace::Stamp::new("copy kernel", began, ended)];
                    world.trace().import(world.trace().lane("GPU 0"), "kernel", &clock, &stamps);
                }
                world.barrier().unwrap();
            }
        });
        check(&path);
    }
}
