//! Puts into windows, gets from them and waits for their signals, prepared once: as steps of streams, in lists with messages, on
//! streams that fuse them, in graphs that are replayed, and started by the host, on every path.

mod common;
#[path = "common/devices.rs"]
#[macro_use]
mod devices;

use std::time::Duration;

use common::{PASSES, config, on_threads, stay_to_the_end};
use libmp::{
    Deadline, Device, Error, FusedStream, Operation, Put, Region, SignalWait, Step, Stream, Window,
    World,
};

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

fn ranks<T: Send>(count: usize, rank: impl Fn(&World) -> T + Sync) -> Vec<T> {
    on_threads(World::threads_with_config(count, &config()).unwrap(), |world| {
        let value = rank(&world);
        world.finish().unwrap();
        value
    })
}

/// Words of a put: in one block and in several, and with an odd end.
const LENGTHS: [usize; 4] = [1, 100, 1501, 40_000];

/// What a rank puts to its right, and what its left puts here; the second signal says that it was taken.
struct Ring {
    out: Region<u64>,
    here: Region<u64>,
    put: Put,
    arrived: SignalWait,
    taken: Put,
    free: SignalWait,
    _window: Window<u64>,
}

impl Ring {
    fn new(world: &World, device: &Device, len: usize) -> (Ring, Stream) {
        let (rank, size) = (world.rank(), world.size());
        let (right, left) = ((rank + 1) % size, (rank + size - 1) % size);
        let out: Region<u64> = world.alloc(device, len).unwrap();
        // What is put begins behind one word that nobody writes.
        let share: Region<u64> = world.alloc(device, len + 1).unwrap();
        out.write(&vec![rank as u64; len]).unwrap();
        share.write(&vec![77; len + 1]).unwrap();
        let window = world.window(&share, 2).unwrap();
        let nothing = out.slice(0..0).unwrap();
        let ring = Ring {
            put: window.prepare_put(right, 1, &out, Some(0)).unwrap(),
            arrived: window.prepare_wait(0).unwrap(),
            taken: window.prepare_put(left, 0, &nothing, Some(1)).unwrap(),
            free: window.prepare_wait(1).unwrap(),
            here: share,
            out,
            _window: window,
        };
        let stream = world.stream(device).unwrap();
        world.barrier().unwrap();
        (ring, stream)
    }

    fn pass_on(&self, stream: &Stream) {
        let arrived = self.here.slice(1..self.here.len()).unwrap();
        stream.copy(self.out.buffer(), arrived.buffer()).unwrap();
    }

    fn check(&self, world: &World, turns: usize) {
        let from = (world.rank() + turns * (world.size() - 1)) % world.size();
        let got = self.here.to_vec().unwrap();
        assert_eq!(got[0], 77, "nobody puts there");
        assert!(got[1..].iter().all(|&value| value == from as u64), "{got:?} is not {from}");
    }
}

fn puts_and_waits_are_steps_of_a_list(device: &Device) {
    for len in LENGTHS {
        ranks(3, |world| {
            let (ring, stream) = Ring::new(world, device, len);
            for turn in 0..20 {
                if turn % 2 == 0 {
                    let steps = [Step::start(&ring.put), Step::wait(&ring.arrived)];
                    world.enqueue(&stream, &steps).unwrap();
                } else {
                    ring.put.start_on(&stream).unwrap();
                    ring.arrived.wait_on(&stream).unwrap();
                }
                ring.pass_on(&stream);
                world
                    .enqueue(&stream, &[Step::start(&ring.taken), Step::wait(&ring.free)])
                    .unwrap();
            }
            world.synchronize(&stream, soon()).unwrap();
            ring.check(world, 20);
            let counted = world.counters();
            let right = &counted[(world.rank() + 1) % 3];
            assert_eq!((right.puts.operations, right.puts.bytes), (20, 20 * 8 * len as u64));
            // Its own, and to its left that it took.
            assert_eq!(right.signals, 20);
            world.barrier().unwrap();
        });
    }
}

fn a_fused_stream_keeps_puts_back_and_a_graph_replays_them(device: &Device) {
    ranks(2, |world| {
        let (ring, stream) = Ring::new(world, device, 1501);
        let mut stream = FusedStream::from(stream);
        let turn = |stream: &mut FusedStream| {
            ring.put.start_on(&mut *stream).unwrap();
            ring.arrived.wait_on(&mut *stream).unwrap();
            assert!(!format!("{stream:?}").ends_with("0 operations kept back"), "{stream:?}");
            ring.pass_on(stream.stream().unwrap());
            ring.taken.start_on(&mut *stream).unwrap();
            ring.free.wait_on(&mut *stream).unwrap();
        };
        for _ in 0..10 {
            turn(&mut stream);
        }
        stream.stream().unwrap().begin_capture().unwrap();
        turn(&mut stream);
        turn(&mut stream);
        let graph = stream.stream().unwrap().end_capture().unwrap();
        for _ in 0..50 {
            stream.stream().unwrap().launch_graph(&graph).unwrap();
        }
        world.synchronize(stream.stream().unwrap(), soon()).unwrap();
        ring.check(world, 110);
        world.barrier().unwrap();
    });
}

/// The host starts it, a stream waits; and a message goes in the same list as a put.
fn puts_mix_with_messages_and_with_the_host(device: &Device) {
    ranks(2, |world| {
        let (ring, stream) = Ring::new(world, device, 100);
        let peer = world.peer(1 - world.rank()).unwrap();
        let [edge, ghost] = [5, 5].map(|len| world.alloc::<u64>(device, len).unwrap());
        edge.write(&[world.rank() as u64 + 40; 5]).unwrap();
        let send = peer.send(&edge, 3).prepare().unwrap();
        let recv = peer.recv(&ghost, 3).prepare().unwrap();
        send.handle().unwrap();
        recv.handle().unwrap();
        world.barrier().unwrap();
        for turn in 0..6 {
            if turn % 2 == 0 {
                ring.put.start().unwrap();
                ring.put.wait(soon()).unwrap();
                world.enqueue(&stream, &[Step::wait(&ring.arrived)]).unwrap();
            } else {
                let steps = [
                    Step::start(&recv),
                    Step::start(&ring.put),
                    Step::start(&send),
                    Step::wait(&recv),
                    Step::wait(&ring.arrived),
                ];
                world.enqueue(&stream, &steps).unwrap();
            }
            ring.pass_on(&stream);
            world.enqueue(&stream, &[Step::start(&ring.taken), Step::wait(&ring.free)]).unwrap();
            world.synchronize(&stream, soon()).unwrap();
        }
        ring.check(world, 6);
        assert_eq!(ghost.to_vec().unwrap(), [1 - world.rank() as u64 + 40; 5]);
        world.barrier().unwrap();
    });
}

/// The words are the same for all: what the host or a stream raises, a prepared wait waits for, and the other way round.
fn a_signal_of_any_trigger_is_waited_for_by_any(device: &Device) {
    ranks(2, |world| {
        let [share, out] = [10, 10].map(|len| world.alloc::<u64>(device, len).unwrap());
        let window = world.window(&share, 2).unwrap();
        let (other, stream) = (1 - world.rank(), world.stream(device).unwrap());
        let put = window.prepare_put(other, 0, &out, Some(1)).unwrap();
        let wait = window.prepare_wait(0).unwrap();
        world.barrier().unwrap();
        for round in 1..=12u64 {
            out.write(&[100 * round + world.rank() as u64; 10]).unwrap();
            if (round + world.rank() as u64).is_multiple_of(2) {
                window.put_signal(other, 0, &out, 0, round).unwrap();
            } else {
                window.put_on(&stream, other, 0, &out).unwrap();
                window.signal_on(&stream, other, 0, round).unwrap();
            }
            wait.wait_on(&stream).unwrap();
            put.start_on(&stream).unwrap();
            if (round / 2).is_multiple_of(2) {
                window.wait_signal(1, round, soon()).unwrap();
            } else {
                window.wait_signal_on(&stream, 1, round).unwrap();
            }
            world.synchronize(&stream, soon()).unwrap();
            assert_eq!(share.to_vec().unwrap(), [100 * round + other as u64; 10], "{round}");
            assert_eq!([0, 1].map(|signal| window.read_signal(signal).unwrap()), [round; 2]);
            world.barrier().unwrap();
        }
    });
}

fn the_host_starts_and_waits(device: &Device) {
    for len in LENGTHS {
        ranks(2, |world| {
            let (ring, stream) = Ring::new(world, device, len);
            for turn in 0..8 {
                assert!(ring.arrived.test().unwrap(), "it was not started");
                ring.arrived.start().unwrap();
                if turn == 0 {
                    let error = ring.arrived.wait(Deadline::after(Duration::from_millis(20)));
                    let error = error.unwrap_err();
                    let late = matches!(error, Error::Late { tag: 0, expected: 1, seen: 0, .. });
                    assert!(late, "{error:?}");
                    assert!(matches!(ring.arrived.start(), Err(Error::Started { .. })));
                    world.barrier().unwrap();
                }
                ring.put.start().unwrap();
                ring.put.wait(soon()).unwrap();
                ring.arrived.wait(soon()).unwrap();
                assert!(ring.arrived.test().unwrap() && ring.put.test().unwrap());
                ring.pass_on(&stream);
                world.synchronize(&stream, soon()).unwrap();
                ring.free.start().unwrap();
                ring.taken.start().unwrap();
                if turn % 2 == 0 {
                    ring.free.wait(soon()).unwrap();
                } else {
                    // Begun by the host, waited for by a stream.
                    ring.free.wait_on(&stream).unwrap();
                    world.synchronize(&stream, soon()).unwrap();
                }
                ring.taken.wait(soon()).unwrap();
            }
            ring.check(world, 8);
            world.barrier().unwrap();
        });
    }
}

/// By the host, by a stream, in a list, and kept back to be fused.
fn gets_bring_what_is_there(device: &Device) {
    for len in LENGTHS {
        ranks(2, |world| {
            let other = 1 - world.rank();
            let [share, here, back] =
                [len + 3, len, len].map(|len| world.alloc(device, len).unwrap());
            let window = world.window(&share, 0).unwrap();
            let get = window.prepare_get(other, 2, &here).unwrap();
            // What was got goes to another place of its origin.
            let own: Region<u64> = world.alloc(device, len).unwrap();
            let echoes = world.window(&own, 1).unwrap();
            let (put, wait) = (
                echoes.prepare_put(other, 0, &here, Some(0)).unwrap(),
                echoes.prepare_wait(0).unwrap(),
            );
            let again = echoes.prepare_get(world.rank(), 0, &back).unwrap();
            let mut stream = FusedStream::from(world.stream(device).unwrap());
            for round in 0..8u64 {
                let word =
                    |rank: usize, at: usize| 1000 * round + 100 * rank as u64 + at as u64 % 97;
                let of = |rank| (0..len + 3).map(|at| word(rank, at)).collect::<Vec<u64>>();
                share.write(&of(world.rank())).unwrap();
                world.barrier().unwrap();
                match round % 4 {
                    0 => {
                        get.start().unwrap();
                        get.wait(soon()).unwrap();
                        put.start_on(&mut stream).unwrap();
                    }
                    1 => {
                        get.start_on(&mut stream).unwrap();
                        put.start_on(&mut stream).unwrap();
                    }
                    2 => {
                        let list = [Step::start(&get), Step::start(&put)];
                        world.enqueue(stream.stream().unwrap(), &list).unwrap();
                    }
                    _ => {
                        get.start_on(stream.stream().unwrap()).unwrap();
                        put.start_on(stream.stream().unwrap()).unwrap();
                    }
                }
                wait.wait_on(&mut stream).unwrap();
                again.start_on(&mut stream).unwrap();
                world.synchronize(stream.stream().unwrap(), soon()).unwrap();
                assert!(here.to_vec().unwrap() == of(other)[2..len + 2], "round {round} of {len}");
                assert!(back.to_vec().unwrap() == of(world.rank())[2..len + 2], "{round} of {len}");
                world.barrier().unwrap();
            }
            let counted = world.counters()[other].gets;
            assert_eq!((counted.operations, counted.bytes), (8, 8 * 8 * len as u64));
            world.barrier().unwrap();
        });
    }
}

fn a_put_may_outlive_its_window(device: &Device) {
    ranks(2, |world| {
        let (ring, stream) = Ring::new(world, device, 1501);
        let Ring { out, here, put, arrived, _window: window, .. } = ring;
        drop(window);
        world.barrier().unwrap();
        out.write(&[5; 1501]).unwrap();
        world.enqueue(&stream, &[Step::start(&put), Step::wait(&arrived)]).unwrap();
        world.synchronize(&stream, soon()).unwrap();
        assert_eq!(here.to_vec().unwrap()[1..], [5; 1501]);
        world.barrier().unwrap();
    });
}

fn what_lies_outside_is_refused_with_its_size(device: &Device) {
    ranks(2, |world| {
        let region: Region<u64> = world.alloc(device, 10).unwrap();
        let window = world.window(&region, 1).unwrap();
        let part = region.slice(0..4).unwrap();
        let refused = |result: libmp::Result<Put>, words: &str| {
            let error = result.unwrap_err();
            let expected = matches!(error, Error::OutOfRange { .. } | Error::NoSuchRank { .. });
            assert!(expected && error.to_string().contains(words), "{error}");
        };
        refused(window.prepare_put(1, 7, &part, None), "10");
        refused(window.prepare_put(1, u64::MAX, &part, None), "10");
        refused(window.prepare_put(0, 0, &part, Some(1)), "signal");
        refused(window.prepare_put(2, 0, &part, None), "2");
        assert!(window.prepare_wait(1).is_err());
        let put = window.prepare_put(1, 6, &part, None).unwrap();
        assert!(format!("{put:?}").contains("put"), "{put:?}");
        world.barrier().unwrap();
    });
}

fn a_signal_that_never_comes_is_an_error_that_names_it(device: &Device) {
    let mut config = config();
    config.timeout = PASSES;
    stay_to_the_end(World::threads_with_config(2, &config).unwrap(), |world| {
        let region: Region<u64> = world.alloc(device, 10).unwrap();
        let window = world.window(&region, 4).unwrap();
        let stream = world.stream(device).unwrap();
        if world.rank() == 0 {
            let wait = window.prepare_wait(3).unwrap();
            wait.wait_on(&stream).unwrap();
            let error = world.synchronize(&stream, soon()).unwrap_err();
            assert!(matches!(error, Error::Late { tag: 3, expected: 1, seen: 0, .. }), "{error}");
        }
    });
}

tests_of_devices! {
    crate::common::each_path;
    "needs a GPU":
    puts_and_waits_are_steps_of_a_list;
    a_fused_stream_keeps_puts_back_and_a_graph_replays_them;
    puts_mix_with_messages_and_with_the_host;
    the_host_starts_and_waits;
    gets_bring_what_is_there;
    a_put_may_outlive_its_window;
    a_signal_of_any_trigger_is_waited_for_by_any;
    what_lies_outside_is_refused_with_its_size;
    a_signal_that_never_comes_is_an_error_that_names_it;
}

mod host {
    on_the_host!();
}

mod gpu {
    on_a_gpu!();
}
