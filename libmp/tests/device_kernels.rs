//! Kernels that send, receive, put and signal by themselves, on every path between ranks: the device headers as OS threads on the
//! host, and the same kernels on a GPU. What a kernel starts at one end meets streams and the host at the other.

mod common;

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use common::{PASSES, SOON, config, each_path, on_threads, stay_to_the_end};
use libloading::Library;
use libmp::gdsync::{Arg, Buffer, Dims};
use libmp::{Deadline, Device, DeviceRecv, DeviceSend, Error, Loss, Region, Stream, World};

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

fn ranks<T: Send>(count: usize, rank: impl Fn(&World) -> T + Sync) -> Vec<T> {
    on_threads(World::threads_with_config(count, &config()).unwrap(), |world| {
        let value = rank(&world);
        world.finish().unwrap();
        value
    })
}

/// An argument of a kernel: a handle by its address and size, or a word.
enum Value {
    Send(mp_kernels::Send),
    Recv(mp_kernels::Recv),
    Window(mp_kernels::Window),
    Word(u64),
    Half(u32),
}

impl Value {
    fn arg(&self) -> Arg<'_> {
        match self {
            Value::Send(handle) => Arg::new(handle),
            Value::Recv(handle) => Arg::new(handle),
            Value::Window(handle) => Arg::new(handle),
            Value::Word(word) => Arg::new(word),
            Value::Half(half) => Arg::new(half),
        }
    }
}

/// The test kernels of a device.
struct Kernels {
    device: Device,
    module: Option<libmp::gdsync::Module>,
}

const NAMES: [&str; 3] = ["test_exchange", "test_parts", "test_windows"];

impl Kernels {
    fn of(device: &Device) -> Kernels {
        let module = device.as_cuda().map(|gpu| {
            let path =
                std::env::var("TEST_KERNELS").expect("TEST_KERNELS: the compiled kernels.cu");
            let image: &'static [u8] = std::fs::read(&path).unwrap().leak();
            gpu.load_module(image, &NAMES).unwrap()
        });
        if module.is_none() {
            // Compiled now, not while a peer waits.
            symbol::<Ring>("shim_ring");
        }
        Kernels { device: device.clone(), module }
    }

    /// Starts a kernel on a stream.
    fn launch(&self, stream: &Stream, name: &str, (blocks, threads): (u32, u32), args: Vec<Value>) {
        if let Some(module) = &self.module {
            let args: Vec<Arg<'_>> = args.iter().map(Value::arg).collect();
            let kernel = module.kernel(name).unwrap();
            // SAFETY: the callers give what the kernel takes, and keep it until the stream has been waited for.
            return unsafe { stream.launch(&kernel, Dims::linear(blocks, threads), &args) }
                .unwrap();
        }
        let name = name.to_owned();
        stream.call(move || on_the_host(&name, blocks, threads, &args)).unwrap();
    }

    fn results(&self) -> Buffer<u64> {
        self.device.alloc_pinned(3).unwrap()
    }
}

fn address(buffer: &Buffer<u64>) -> u64 {
    buffer.device_address().unwrap_or(0)
}

type Ring =
    unsafe extern "C" fn(*const mp_kernels::Send, *const mp_kernels::Recv, u64, u64, u64, u32);
type Exchange = unsafe extern "C" fn(
    *const mp_kernels::Send,
    *const mp_kernels::Recv,
    u64,
    u64,
    u64,
    u64,
    u64,
    u32,
    u64,
    u32,
);
type Parts = unsafe extern "C" fn(*const mp_kernels::Send, *const mp_kernels::Recv, u64, u32, u32);
type Windows = unsafe extern "C" fn(*const mp_kernels::Window, u64, u64, u64, u32, u64, u32);

/// Runs a kernel of the shim.
fn on_the_host(name: &str, blocks: u32, threads: u32, args: &[Value]) {
    use Value::{Half, Recv, Send, Window, Word};
    // SAFETY: the shim's signatures; addresses are those of memory that the callers keep.
    unsafe {
        match (name, args) {
            ("ring", [Send(send), Recv(recv), Word(cells), Word(turns), Word(done)]) => {
                symbol::<Ring>("shim_ring")(send, recv, *cells, *turns, *done, threads);
            }
            (
                "test_exchange",
                [
                    Send(send),
                    Recv(recv),
                    Word(me),
                    Word(peer),
                    Word(words),
                    Word(rounds),
                    Word(first),
                    Half(flavour),
                    Word(to),
                ],
            ) => symbol::<Exchange>("shim_exchange")(
                send, recv, *me, *peer, *words, *rounds, *first, *flavour, *to, threads,
            ),
            ("test_parts", [Send(send), Recv(recv), Word(to)]) => {
                symbol::<Parts>("shim_parts")(send, recv, *to, blocks, threads);
            }
            (
                "test_windows",
                [
                    Window(window),
                    Word(elsewhere),
                    Word(words),
                    Word(rounds),
                    Half(atomics),
                    Word(to),
                ],
            ) => symbol::<Windows>("shim_windows")(
                window, *elsewhere, *words, *rounds, *atomics, *to, threads,
            ),
            _ => panic!("no kernel {name} with these arguments"),
        }
    }
}

/// A function of the shim, which is compiled once.
fn symbol<T: Copy>(name: &str) -> T {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = tempfile::tempdir().expect("a folder for the kernels");
        let out = folder.path().join("kernels.so");
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
        let status = Command::new(&compiler)
            .args(["-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"])
            .args(["-pthread", "-I"])
            .arg(here.join("../kernels/include"))
            .arg("-o")
            .arg(&out)
            .arg(here.join("tests/kernels/shim.cpp"))
            .status()
            .unwrap_or_else(|error| panic!("{compiler} does not start: {error}"));
        assert!(status.success(), "{compiler} cannot compile the kernels: {status}");
        // SAFETY: built from this repository's source; no initialisers but those of the C++ library.
        unsafe { Library::new(&out) }.expect("the kernels load")
    });
    // SAFETY: the callers name the type that the shim declares.
    *unsafe { library.get::<T>(name.as_bytes()) }.expect("the shim has the function")
}

/// Both directions with a peer.
struct Pair {
    stream: Stream,
    out: Region<u64>,
    here: Region<u64>,
    send: DeviceSend,
    recv: DeviceRecv,
}

impl Pair {
    /// With the rank to the right for sends and to the left for receives; two ranks are each other's both.
    fn new(world: &World, device: &Device, words: usize) -> Pair {
        let (rank, size) = (world.rank(), world.size());
        let out: Region<u64> = world.alloc(device, words).unwrap();
        let here: Region<u64> = world.alloc(device, words).unwrap();
        let send = world.peer((rank + 1) % size).unwrap().send(&out, 3).prepare_device().unwrap();
        let recv = world.peer((rank + size - 1) % size).unwrap().recv(&here, 3);
        let recv = recv.prepare_device().unwrap();
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
            let (send, recv) = (pair.send.by_host().unwrap(), pair.recv.by_host().unwrap());
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
                    let list = [pair.recv.start(), pair.send.start(), pair.recv.wait()];
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
    for size in [1, 2, 3] {
        for words in [1usize, 63, 64, 700] {
            ranks(size, |world| {
                let stream = world.stream(device).unwrap();
                let cells = 3 * words;
                let share: Region<u64> = match pinned {
                    true => Region::from_buffer(device.alloc_pinned(cells + 3).unwrap()),
                    false => world.alloc(device, cells + 3).unwrap(),
                };
                let stay = (0..words as u64).map(|i| pattern(world.rank(), 77, i));
                let rest = [0, 7, 7];
                let first = vec![0; 2 * words];
                share
                    .write(&first.into_iter().chain(stay).chain(rest).collect::<Vec<_>>())
                    .unwrap();
                let elsewhere: Region<u64> = world.alloc(device, words).unwrap();
                let window = world.device_window(&share, 2).unwrap();
                let (results, threads) = (kernels.results(), 33);
                // Rounds differ by two and by three. Where threads share two cores each costs as much as all of a GPU's.
                let rounds = if device.as_cuda().is_some() { 12 } else { 6 };
                world.barrier().unwrap();
                let args = vec![
                    Value::Window(window.handle().unwrap()),
                    Value::Word(address(elsewhere.buffer())),
                    Value::Word(words as u64),
                    Value::Word(rounds),
                    Value::Half(u32::from(atomics)),
                    Value::Word(address(&results)),
                ];
                kernels.launch(&stream, "test_windows", (1, threads), args);
                world.synchronize(&stream, soon()).unwrap();
                assert_eq!(
                    results.to_vec().unwrap(),
                    [0, rounds, 0],
                    "{size} ranks, {words} words"
                );
                world.barrier().unwrap();
                if atomics {
                    let cells = share.slice(cells..cells + 3).unwrap().to_vec().unwrap();
                    assert_eq!(cells, [u64::from(threads), 42, 43]);
                }
                world.barrier().unwrap();
            });
        }
    }
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
        assert_eq!(results.to_vec().unwrap()[2], mp_kernels::WaitStatus::TimedOut as u64);
        None
    });
}

mod host {
    use super::*;

    fn each(test: fn(&Device)) {
        each_path(|| test(&Device::Host));
    }

    #[test]
    fn kernels_exchange_messages() {
        each(super::kernels_exchange_messages);
    }

    #[test]
    fn several_blocks_share_a_message() {
        each(super::several_blocks_share_a_message);
    }

    #[test]
    fn a_kernel_meets_a_stream_and_the_host() {
        each(super::a_kernel_meets_a_stream_and_the_host);
    }

    #[test]
    fn kernels_put_get_signal_and_add() {
        each(|device| super::kernels_put_get_signal_and_add(device, false));
    }

    #[test]
    fn a_message_that_never_comes_ends_a_kernel_with_an_error_that_names_it() {
        each(super::a_message_that_never_comes_ends_a_kernel_with_an_error_that_names_it);
    }

    /// The example kernel_ring, whose counters stay in registers.
    #[test]
    fn the_ring_of_the_example_turns() {
        let kernels = Kernels::of(&Device::Host);
        each_path(|| {
            ranks(3, |world| {
                let cells = 100;
                let (ring, done) = (Pair::new(world, &Device::Host, cells), kernels.results());
                ring.out.write(&vec![1000 * world.rank() as u64; cells]).unwrap();
                let turns = 50;
                let mut args = Vec::from(ring.handles());
                args.extend([cells as u64, turns, address(&done)].map(Value::Word));
                kernels.launch(&ring.stream, "ring", (1, 16), args);
                world.synchronize(&ring.stream, soon()).unwrap();
                let origin = (world.rank() + 3 - turns as usize % 3) % 3;
                assert_eq!(done.to_vec().unwrap()[0], turns);
                assert_eq!(ring.out.to_vec().unwrap(), vec![1000 * origin as u64 + turns; cells]);
                world.barrier().unwrap();
            });
        });
    }

    /// A request of a kernel that the peer's NIC refuses.
    #[test]
    fn a_request_that_fails_ends_the_kernels_and_the_world_with_the_reason() {
        let kernels = Kernels::of(&Device::Host);
        for path in ["nic", "nic-tcp"] {
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
                    let status = results.to_vec().unwrap()[2];
                    assert_eq!(status, mp_kernels::WaitStatus::PathFailed as u64);
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

    #[test]
    #[ignore = "needs a GPU and TEST_KERNELS"]
    fn kernels_exchange_messages() {
        super::kernels_exchange_messages(&gpu());
    }

    #[test]
    #[ignore = "needs a GPU and TEST_KERNELS"]
    fn several_blocks_share_a_message() {
        super::several_blocks_share_a_message(&gpu());
    }

    #[test]
    #[ignore = "needs a GPU and TEST_KERNELS"]
    fn a_kernel_meets_a_stream_and_the_host() {
        super::a_kernel_meets_a_stream_and_the_host(&gpu());
    }

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
    fn a_message_that_never_comes_ends_a_kernel_with_an_error_that_names_it() {
        super::a_message_that_never_comes_ends_a_kernel_with_an_error_that_names_it(&gpu());
    }
}
