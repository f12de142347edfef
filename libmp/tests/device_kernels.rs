//! Kernels that send, receive, put and signal by themselves, on every path between ranks: the device headers as OS threads on the
//! host, and the same kernels on a GPU. What a kernel starts at one end meets streams and the host at the other.

mod common;
#[path = "common/devices.rs"]
#[macro_use]
mod devices;
#[path = "common/kernels.rs"]
mod kernels;

use std::time::{Duration, Instant};

use common::{PASSES, SOON, config, each_path, on_threads, stay_to_the_end};
use kernels::{Kernels, Value, address};
use libmp::{Deadline, Device, Error, Loss, Operation, Recv, Region, Send, Step, Stream, World};
use mp_kernels::WaitStatus;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

fn ranks<T: std::marker::Send>(count: usize, rank: impl Fn(&World) -> T + Sync) -> Vec<T> {
    on_threads(World::threads_with_config(count, &config()).unwrap(), |world| {
        let value = rank(&world);
        world.finish().unwrap();
        value
    })
}

/// Both directions with a peer.
struct Pair {
    stream: Stream,
    out: Region<u64>,
    here: Region<u64>,
    send: Send,
    recv: Recv,
}

impl Pair {
    /// With the rank to the right for sends and to the left for receives; two ranks are each other's both.
    fn new(world: &World, device: &Device, words: usize) -> Pair {
        let (rank, size) = (world.rank(), world.size());
        let out: Region<u64> = world.alloc(device, words).unwrap();
        let here: Region<u64> = world.alloc(device, words).unwrap();
        let send = world.peer((rank + 1) % size).unwrap().send(&out, 3).prepare().unwrap();
        let recv = world.peer((rank + size - 1) % size).unwrap().recv(&here, 3);
        let recv = recv.prepare().unwrap();
        let stream = world.stream(device).unwrap();
        send.handle().unwrap();
        recv.handle().unwrap();
        world.barrier().unwrap();
        Pair { stream, out, here, send, recv }
    }

    fn handles(&self) -> [Value; 2] {
        [Value::Send(self.send.handle().unwrap()), Value::Recv(self.recv.handle().unwrap())]
    }
}

/// As kernels.cu has it.
fn pattern(rank: usize, round: u64, i: u64) -> u64 {
    (rank as u64 + 1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(round.wrapping_mul(1_000_003))
        .wrapping_add(i)
}

/// Words of messages: inside entries of the NIC's queue, as packets between GPUs, and in one piece.
const LENGTHS: [usize; 5] = [0, 1, 64, 100, 5000];

fn kernels_exchange_messages(device: &Device) {
    let kernels = Kernels::of(device);
    for (flavour, threads) in [(0u32, 1u32), (1, 32), (2, 48)] {
        for words in LENGTHS {
            ranks(2, |world| {
                let pair = Pair::new(world, device, words);
                let results = kernels.results();
                // Rounds of many OS threads on two cores take long; those of one thread come round every queue.
                let few = device.as_cuda().is_none() && threads > 1;
                let (me, rounds) = (world.rank() as u64, if few { 12 } else { 40 });
                let mut args = Vec::from(pair.handles());
                let numbers = [me, 1 - me, words as u64, rounds, 0];
                args.extend(numbers.map(Value::Word));
                args.extend([Value::Half(flavour), Value::Word(address(&results))]);
                kernels.launch(&pair.stream, "test_exchange", (1, threads), args);
                world.synchronize(&pair.stream, soon()).unwrap();
                assert_eq!(results.to_vec().unwrap(), [0, rounds, 0], "{words} words");
                world.barrier().unwrap();
            });
        }
    }
}

fn several_blocks_share_a_message(device: &Device) {
    let kernels = Kernels::of(device);
    for words in [1usize, 1000, 20_000] {
        ranks(2, |world| {
            let pair = Pair::new(world, device, words);
            let results = kernels.results();
            for round in 0..5 {
                let of = |rank| (0..words as u64).map(|i| pattern(rank, round, i)).collect();
                let (mine, theirs): (Vec<u64>, Vec<u64>) = (of(world.rank()), of(1 - world.rank()));
                pair.out.write(&mine).unwrap();
                let mut args = Vec::from(pair.handles());
                args.push(Value::Word(address(&results)));
                kernels.launch(&pair.stream, "test_parts", (3, 32), args);
                world.synchronize(&pair.stream, soon()).unwrap();
                assert_eq!(results.to_vec().unwrap(), [0; 3]);
                assert!(pair.here.to_vec().unwrap() == theirs, "round {round} of {words} words");
                world.barrier().unwrap();
            }
        });
    }
}

/// Each round another trigger at each end: a kernel, a stream, the host.
fn a_kernel_meets_a_stream_and_the_host(device: &Device) {
    let kernels = Kernels::of(device);
    for words in [1usize, 100, 5000] {
        ranks(2, |world| {
            let pair = Pair::new(world, device, words);
            let results = kernels.results();
            let Pair { send, recv, .. } = &pair;
            world.barrier().unwrap();
            for round in 0..9u64 {
                let me = world.rank();
                let of = |rank| (0..words as u64).map(|i| pattern(rank, round, i)).collect();
                let (mine, theirs): (Vec<u64>, Vec<u64>) = (of(me), of(1 - me));
                let way = if me == 0 { round % 3 } else { round / 3 };
                if way == 0 {
                    let mut args = Vec::from(pair.handles());
                    let numbers = [me as u64, 1 - me as u64, words as u64, 1, round];
                    args.extend(numbers.map(Value::Word));
                    args.extend([Value::Half(2), Value::Word(address(&results))]);
                    kernels.launch(&pair.stream, "test_exchange", (1, 32), args);
                    world.synchronize(&pair.stream, soon()).unwrap();
                    assert_eq!(results.to_vec().unwrap(), [0, 1, 0]);
                    continue;
                }
                pair.out.write(&mine).unwrap();
                if way == 1 {
                    let list =
                        [Step::start(&pair.recv), Step::start(&pair.send), Step::wait(&pair.recv)];
                    world.enqueue(&pair.stream, &list).unwrap();
                    world.synchronize(&pair.stream, soon()).unwrap();
                } else {
                    recv.start().unwrap();
                    send.start().unwrap();
                    recv.wait(soon()).unwrap();
                    send.wait(soon()).unwrap();
                }
                assert!(pair.here.to_vec().unwrap() == theirs, "round {round} of {words} words");
            }
            world.barrier().unwrap();
        });
    }
}

fn kernels_put_get_signal_and_add(device: &Device, pinned: bool) {
    let kernels = Kernels::of(device);
    // A GPU's own memory has no atomics through the NIC.
    let atomics = device.as_cuda().is_none() || pinned;
    // By a thread, a warp and a block: words inside entries of the NIC's queue, and more.
    let few = [(0, 1, 2, 1), (0, 1, 2, 66), (1, 32, 3, 1), (1, 32, 2, 66)];
    let sizes = [1, 2, 3].into_iter();
    let many = sizes.flat_map(|size| [1usize, 63, 64, 700].map(|words| (2, 33, size, words)));
    for (flavour, threads, size, words) in few.into_iter().chain(many) {
        ranks(size, |world| {
            let stream = world.stream(device).unwrap();
            let cells = 3 * words;
            let all = cells + 3 + size + 9 + 1;
            let share: Region<u64> = match pinned {
                true => Region::from_buffer(device.alloc_pinned(all).unwrap()),
                false => world.alloc(device, all).unwrap(),
            };
            let stay = (0..words as u64).map(|i| pattern(world.rank(), 77, i));
            let rest = [0, 7, 7].into_iter().chain(vec![0; size + 10]);
            let first = vec![0; 2 * words];
            share.write(&first.into_iter().chain(stay).chain(rest).collect::<Vec<_>>()).unwrap();
            let elsewhere: Region<u64> = world.alloc(device, words).unwrap();
            let window = world.window(&share, 3).unwrap();
            let results = kernels.results();
            // Rounds differ by two and by three. Where threads share two cores each costs as much as all of a GPU's.
            let rounds = if device.as_cuda().is_some() { 12 } else { 6 };
            world.barrier().unwrap();
            let args = vec![
                Value::Window(window.handle().unwrap()),
                Value::Word(address(elsewhere.buffer())),
                Value::Word(words as u64),
                Value::Word(rounds),
                Value::Half(if atomics { 1 + u32::from(words == 1) } else { 0 }),
                Value::Half(flavour),
                Value::Word(address(&results)),
            ];
            kernels.launch(&stream, "test_windows", (1, threads), args);
            world.synchronize(&stream, soon()).unwrap();
            assert_eq!(
                results.to_vec().unwrap(),
                [0, rounds, 0],
                "{size} ranks, {words} words, {threads} threads"
            );
            world.barrier().unwrap();
            if atomics {
                let last = share.slice(cells..all).unwrap().to_vec().unwrap();
                assert_eq!(last[..3], [u64::from(threads), 42, 43]);
                assert_eq!(last.last(), Some(&(u64::from(8 * threads) * size as u64)));
                if words == 1 {
                    let [sum, low, real, half, set, ..] = last[3 + size..] else { panic!() };
                    let bits = u64::from(u32::MAX >> (32 - threads.min(32)));
                    assert_eq!(sum, u64::from(threads) | bits << 32);
                    assert_eq!(low as i64, 1 - i64::from(threads));
                    assert_eq!(f64::from_bits(real), 0.5 * f64::from(threads));
                    let quarter = (0.25 * threads as f32).to_bits();
                    assert_eq!(half, u64::from(quarter) | u64::from(threads - 1) << 32);
                    assert_eq!(set as i32, -5);
                }
            }
            world.barrier().unwrap();
        });
    }
}

/// Blocks use queues of their own, and what their puts and barriers promise does not depend on how many there are.
fn blocks_put_by_queues_of_their_own(device: &Device) {
    let kernels = Kernels::of(device);
    let (blocks, threads) = (4usize, 5usize);
    for (contexts, size, words) in [(3, 3, 10usize), (3, 2, 300), (1, 2, 100)] {
        let mut config = config();
        config.contexts = Some(contexts);
        on_threads(World::threads_with_config(size, &config).unwrap(), |world| {
            let cell = size * blocks * words;
            let all = cell + 1 + blocks * words;
            let share: Region<u64> = Region::from_buffer(device.alloc_pinned(all).unwrap());
            let window = world.window(&share, 0).unwrap();
            let barrier = world.prepare_collective(device, 0).unwrap();
            let mine: Region<u64> = world.alloc(device, (blocks * words).max(64)).unwrap();
            let (stream, results, rounds) = (world.stream(device).unwrap(), kernels.results(), 10);
            let signals = stream.block_signals(blocks, SOON).unwrap();
            world.barrier().unwrap();
            let args = vec![
                Value::Collective(barrier.handle()),
                Value::Window(window.handle().unwrap()),
                Value::Word(address(mine.buffer())),
                Value::Signals(signals.handle()),
                Value::Word(words as u64),
                Value::Word(rounds),
                Value::Word(address(&results)),
            ];
            kernels.launch(&stream, "test_contexts", (blocks as u32, threads as u32), args);
            world.synchronize(&stream, soon()).unwrap();
            assert_eq!(results.to_vec().unwrap(), [0, rounds, 0], "{contexts} contexts");
            // Each number was drawn once.
            let drawn = mine.to_vec().unwrap()[..blocks * threads].to_vec();
            let blob: Vec<u8> = drawn.iter().flat_map(|number| number.to_le_bytes()).collect();
            let every = world.all_gather(&blob).unwrap().concat();
            let every = every.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
            let mut every: Vec<u64> = every.collect();
            every.sort_unstable();
            let numbers = (0..(size * blocks * threads) as u64).collect::<Vec<_>>();
            assert_eq!(every, numbers, "{contexts} contexts");
            world.finish().unwrap();
        });
    }
}

/// Prints how many puts a second that is, with `--nocapture`.
fn puts_of_many_blocks_arrive(device: &Device, count: u64) {
    let kernels = Kernels::of(device);
    for contexts in [1, 4] {
        let mut config = config();
        config.contexts = Some(contexts);
        on_threads(World::threads_with_config(2, &config).unwrap(), |world| {
            let stream = world.stream(device).unwrap();
            for bytes in [8usize, 4096] {
                for blocks in [1usize, 4, 16] {
                    let half = blocks * bytes / 8;
                    let share: Region<u64> = world.alloc(device, 2 * half).unwrap();
                    let window = world.window(&share, 0).unwrap();
                    let words = (0..half as u64).map(|i| pattern(7, count, i)).collect::<Vec<_>>();
                    share.slice(0..half).unwrap().write(&words).unwrap();
                    let stamps = device.alloc_pinned::<u64>(2 * blocks).unwrap();
                    let results = kernels.results();
                    // The first opens what is opened at the first use.
                    for each in [1, count / blocks as u64] {
                        world.barrier().unwrap();
                        if world.rank() == 1 {
                            continue;
                        }
                        let args = vec![
                            Value::Window(window.handle().unwrap()),
                            Value::Word(1),
                            Value::Word(bytes as u64),
                            Value::Word(each),
                            Value::Word(address(&stamps)),
                            Value::Word(address(&results)),
                        ];
                        let threads = if device.as_cuda().is_some() { 32 } else { 1 };
                        let grid = (blocks as u32, threads);
                        kernels.launch(&stream, "test_put_rate", grid, args);
                        world.synchronize(&stream, soon()).unwrap();
                        assert_eq!(results.to_vec().unwrap(), [0; 3]);
                    }
                    world.barrier().unwrap();
                    if world.rank() == 1 {
                        assert!(share.slice(half..2 * half).unwrap().to_vec().unwrap() == words);
                    } else {
                        let stamps = stamps.to_vec().unwrap();
                        let began = stamps.iter().step_by(2).min().unwrap();
                        let ended = stamps.iter().skip(1).step_by(2).max().unwrap();
                        let rate = count as f64 * 1e6 / (ended - began).max(1) as f64;
                        println!(
                            "{:?}, {contexts} contexts, {bytes} B, {blocks} blocks: {rate:.1} thousand puts a second",
                            world.path(1).unwrap()
                        );
                    }
                    world.barrier().unwrap();
                }
            }
            world.finish().unwrap();
        });
    }
}

/// The last thing that a kernel posts may be an entry of several blocks of the queue.
fn the_host_waits_for_what_a_kernel_has_put(device: &Device) {
    let kernels = Kernels::of(device);
    ranks(2, |world| {
        let words = 60usize;
        let share: Region<u64> = world.alloc(device, 200).unwrap();
        let window = world.window(&share, 3).unwrap();
        let mine: Region<u64> = world.alloc(device, words).unwrap();
        let (stream, results) = (world.stream(device).unwrap(), kernels.results());
        let other = 1 - world.rank();
        for round in 1..=3 {
            mine.write(&vec![round; words]).unwrap();
            world.barrier().unwrap();
            let args = vec![
                Value::Window(window.handle().unwrap()),
                Value::Word(other as u64),
                Value::Word(address(mine.buffer())),
                Value::Word(8 * words as u64),
                Value::Word(address(&results)),
            ];
            kernels.launch(&stream, "test_put", (1, 32), args);
            world.synchronize(&stream, soon()).unwrap();
            let since = Instant::now();
            window.quiet(other).unwrap();
            assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
            world.barrier().unwrap();
            assert_eq!(share.to_vec().unwrap()[..words], vec![round; words]);
            assert_eq!(results.to_vec().unwrap(), [0; 3]);
        }
    });
}

fn kernels_start_prepared_puts_gets_and_waits(device: &Device) {
    let kernels = Kernels::of(device);
    // By a thread, a warp and a block: words inside entries of the NIC's queue, and more.
    let few = [(0, 1, 1usize), (0, 1, 70), (1, 32, 1), (1, 32, 70)];
    for (flavour, threads, words) in few.into_iter().chain([1, 63, 700].map(|words| (2, 33, words)))
    {
        ranks(2, |world| {
            let (me, other) = (world.rank() as u64, 1 - world.rank());
            let region = || world.alloc::<u64>(device, words).unwrap();
            let (share, out, back) = (region(), region(), region());
            let window = world.window(&share, 2).unwrap();
            let put = window.prepare_put(other, 0, &out, Some(0)).unwrap();
            let take = out.slice(0..0).unwrap();
            let take = window.prepare_put(other, 0, &take, Some(1)).unwrap();
            let (arrived, taken) =
                (window.prepare_wait(0).unwrap(), window.prepare_wait(1).unwrap());
            let get = window.prepare_get(other, 0, &back).unwrap();
            let (stream, results, rounds) = (world.stream(device).unwrap(), kernels.results(), 8);
            world.barrier().unwrap();
            for launch in 1..=2 {
                let mut args = vec![
                    Value::Put(put.handle().unwrap()),
                    Value::SignalWait(arrived.handle().unwrap()),
                    Value::Put(take.handle().unwrap()),
                    Value::SignalWait(taken.handle().unwrap()),
                    Value::Get(get.handle().unwrap()),
                ];
                args.extend([&out, &share, &back].map(|it| Value::Word(address(it.buffer()))));
                args.extend([me, words as u64, rounds].map(Value::Word));
                args.extend([Value::Half(flavour), Value::Word(address(&results))]);
                kernels.launch(&stream, "test_prepared", (1, threads), args);
                world.synchronize(&stream, soon()).unwrap();
                assert_eq!(
                    results.to_vec().unwrap(),
                    [0, rounds, 0],
                    "launch {launch}, {words} words, {threads} threads"
                );
                // The host and streams go on where the kernel was.
                put.start().unwrap();
                put.wait(soon()).unwrap();
                arrived.wait_on(&stream).unwrap();
                get.start_on(&stream).unwrap();
                take.start_on(&stream).unwrap();
                taken.wait_on(&stream).unwrap();
                world.synchronize(&stream, soon()).unwrap();
                assert_eq!(window.read_signal(1).unwrap(), launch * (rounds + 1));
                world.barrier().unwrap();
            }
        });
    }
}

fn what_a_kernel_is_refused_is_an_error_of_the_host_that_names_it(device: &Device) {
    let kernels = Kernels::of(device);
    ranks(2, |world| {
        let stream = world.stream(device).unwrap();
        let share: Region<u64> = world.alloc(device, 10).unwrap();
        let texts = [
            "bytes of the window of rank",
            "rank 2 does not exist",
            "a signal of the window of rank",
            "a signal of the window of rank",
            "byte 4 of a rank's share of the window",
            "a signal of the window of rank",
        ];
        for (which, text) in (0u32..).zip(texts) {
            let (window, results) = (world.window(&share, 2).unwrap(), kernels.results());
            world.barrier().unwrap();
            let args = vec![
                Value::Window(window.handle().unwrap()),
                Value::Word(80),
                Value::Half(which),
                Value::Word(address(&results)),
            ];
            kernels.launch(&stream, "test_refusals", (1, 33), args);
            let error = world.synchronize(&stream, soon()).unwrap_err();
            assert!(error.to_string().contains(text), "{which}: {error}");
            let expected = match which {
                0 => matches!(error, Error::OutOfRange { at: 72, len: 16, size: 80, .. }),
                1 => matches!(error, Error::NoSuchRank { rank: 2, size: 2, .. }),
                2 | 5 => matches!(error, Error::OutOfRange { at: 2, len: 1, size: 2, .. }),
                3 => matches!(error, Error::OutOfRange { at: 6, len: 1, size: 2, .. }),
                _ => matches!(error, Error::Mismatch { .. }),
            };
            assert!(expected, "{which}: {error:?}");
            let status = if which == 5 { WaitStatus::NoSuchSignal as u64 } else { 0 };
            assert_eq!(results.to_vec().unwrap(), [status, 0, 0], "{which}");
            world.barrier().unwrap();
        }
    });
}

fn a_message_that_never_comes_ends_a_kernel_with_an_error_that_names_it(device: &Device) {
    let kernels = Kernels::of(device);
    let mut config = config();
    config.timeout = PASSES;
    stay_to_the_end(World::threads_with_config(2, &config).unwrap(), |world| {
        let pair = Pair::new(world, device, 3);
        if world.rank() == 0 {
            return Some(pair);
        }
        let results = kernels.results();
        let mut args = Vec::from(pair.handles());
        args.extend([1, 0, 3, 1, 0].map(Value::Word));
        args.extend([Value::Half(0), Value::Word(address(&results))]);
        kernels.launch(&pair.stream, "test_exchange", (1, 1), args);
        let error = world.synchronize(&pair.stream, soon()).unwrap_err();
        assert!(pair.stream.is_idle().unwrap());
        assert!(matches!(error, Error::Late { rank: 0, tag: 3, .. }), "{error}");
        assert_eq!(results.to_vec().unwrap()[2], WaitStatus::TimedOut as u64);
        None
    });
}

tests_of_devices! {
    crate::common::each_path;
    "needs a GPU and TEST_KERNELS":
    kernels_exchange_messages;
    several_blocks_share_a_message;
    a_kernel_meets_a_stream_and_the_host;
    blocks_put_by_queues_of_their_own;
    the_host_waits_for_what_a_kernel_has_put;
    kernels_start_prepared_puts_gets_and_waits;
    what_a_kernel_is_refused_is_an_error_of_the_host_that_names_it;
    a_message_that_never_comes_ends_a_kernel_with_an_error_that_names_it;
}

mod host {
    use super::*;

    on_the_host!();

    #[test]
    fn kernels_put_get_signal_and_add() {
        each_path(|| super::kernels_put_get_signal_and_add(&Device::Host, false));
    }

    #[test]
    fn puts_of_many_blocks_arrive() {
        each_path(|| super::puts_of_many_blocks_arrive(&Device::Host, 160));
    }

    /// As many as are worth a number.
    #[test]
    #[ignore = "takes half a minute"]
    fn puts_of_many_blocks_are_counted() {
        each_path(|| super::puts_of_many_blocks_arrive(&Device::Host, 20_000));
    }

    /// A request of a kernel that the peer's NIC refuses.
    #[test]
    fn a_request_that_fails_ends_the_kernels_and_the_world_with_the_reason() {
        let kernels = Kernels::of(&Device::Host);
        for path in common::nic_paths() {
            let mut config = config();
            config.path = path.parse().unwrap();
            on_threads(World::threads_with_config(2, &config).unwrap(), |world| {
                let pair = Pair::new(&world, &Device::Host, 3);
                let [send, recv] = pair.handles();
                if let (Value::Recv(recv), 0) = (&recv, world.rank()) {
                    let at = recv.message.nic as usize
                        + std::mem::offset_of!(mp_kernels::NicEnd, theirs_key);
                    // SAFETY: the table of this end, which nothing uses yet: its credits go nowhere now.
                    unsafe { (at as *mut u32).write(0xdead_0001) };
                }
                let results = kernels.results();
                let mut args = vec![send, recv];
                args.extend(
                    [world.rank() as u64, 1 - world.rank() as u64, 3, 5, 0].map(Value::Word),
                );
                args.extend([Value::Half(0), Value::Word(address(&results))]);
                let since = Instant::now();
                kernels.launch(&pair.stream, "test_exchange", (1, 1), args);
                let error = world.synchronize(&pair.stream, soon()).unwrap_err();
                assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
                let idle = soon().poll(|| pair.stream.is_idle().unwrap().then_some(()));
                assert!(idle.is_some(), "the kernel still waits");
                let Error::PeerLost { how: Loss::Path { detail }, .. } = &error else {
                    panic!("{path}: {error}")
                };
                assert!(detail.contains("remote access"), "{detail}");
                if world.rank() == 0 {
                    // Its own look at the queue, or the end of the world that the host has made of it, whichever came first.
                    let ends = [WaitStatus::PathFailed, WaitStatus::Aborted];
                    let status = results.to_vec().unwrap()[2];
                    assert!(ends.map(|end| end as u64).contains(&status), "{status}");
                }
            });
        }
    }
}

/// With `MP_PATH`, through the NIC.
mod gpu {
    use super::*;

    fn gpu() -> Device {
        Device::cuda(0).unwrap()
    }

    on_a_gpu!();

    #[test]
    #[ignore = "needs a GPU and TEST_KERNELS"]
    fn kernels_put_get_signal_and_add_in_memory_of_the_gpu() {
        super::kernels_put_get_signal_and_add(&gpu(), false);
    }

    #[test]
    #[ignore = "needs a GPU and TEST_KERNELS"]
    fn kernels_put_get_signal_and_add_in_pinned_memory() {
        super::kernels_put_get_signal_and_add(&gpu(), true);
    }

    #[test]
    #[ignore = "needs a GPU and TEST_KERNELS"]
    fn puts_of_many_blocks_arrive() {
        super::puts_of_many_blocks_arrive(&gpu(), 100_000);
    }
}
