//! Tagged messages of a GPU's memory and the application's own work: what its copies and kernels notice of messages, and what messages notice of its work on the
//! default stream. Figures are printed. Needs a GPU.

mod common;
#[path = "common/kernels.rs"]
mod kernels;
#[path = "common/pairs.rs"]
mod pairs;

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use common::{on_threads, soon};
use cudarc::driver::sys;
use kernels::{Kernels, Value, address};
use libmp::gdsync::{Buffer, Stream};
use libmp::tagged::Options;
use libmp::{Config, Device, World, trace};
use pairs::{By, MIB, Pair, median, with_others};

/// Bytes of messages, and of the application's copies, where nothing else is said.
const LEN: usize = 16 * MIB;

/// What the application, a thread that is no rank, does over and over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    ToTheHost,
    FromTheHost,
    /// Sixteen copies by the driver.
    WithinTheDevice,
    /// Two blocks of each multiprocessor copy what no cache has room for, eight times.
    KernelOfMemory,
    /// As many compute.
    KernelOnTheChip,
}

/// Two blocks of each multiprocessor of the largest GPUs that there are.
const BLOCKS: (u32, u32) = (2 * 160, 256);

/// An application, with its memory.
struct Application {
    kernels: Kernels,
    memory: [Buffer<u8>; 2],
    large: [Buffer<u8>; 2],
    results: Buffer<u64>,
    pinned: Buffer<u8>,
    stream: Stream,
}

impl Application {
    const LARGE: usize = 256 * MIB;

    fn new(device: &Device) -> Application {
        Application {
            kernels: Kernels::of(device),
            memory: [(); 2].map(|()| device.alloc::<u8>(4 * LEN).unwrap()),
            large: [(); 2].map(|()| device.alloc::<u8>(Application::LARGE).unwrap()),
            results: device.alloc::<u64>((BLOCKS.0 * BLOCKS.1) as usize).unwrap(),
            pinned: device.alloc_pinned::<u8>(4 * LEN).unwrap(),
            stream: device.stream().unwrap(),
        }
    }

    /// Does it once, of so many bytes if it is a copy.
    fn does(&self, task: Task, len: usize) {
        let stream = &self.stream;
        let pinned = self.pinned.slice(0..len).unwrap();
        let [from, to] = self.memory.each_ref().map(|it| it.slice(0..len).unwrap());
        let results = Value::Word(address(&self.results));
        match task {
            Task::ToTheHost => stream.copy(&pinned, &from).unwrap(),
            Task::FromTheHost => stream.copy(&to, &pinned).unwrap(),
            Task::WithinTheDevice => (0..16).for_each(|_| stream.copy(&to, &from).unwrap()),
            Task::KernelOfMemory => {
                let [to, from] = self.large.each_ref().map(address);
                let words = [to, from, Application::LARGE as u64, 8].map(Value::Word);
                let args = words.into_iter().chain([Value::Half(2), results]);
                self.kernels.launch(stream, "mp_copies", BLOCKS, args.collect());
            }
            Task::KernelOnTheChip => {
                let args = vec![Value::Word(50_000), results];
                self.kernels.launch(stream, "test_on_chip", BLOCKS, args);
            }
        }
        stream.synchronize(soon()).unwrap();
    }

    /// Microseconds of it, the median of many.
    fn time(&self, task: Task, len: usize) -> f64 {
        let times = (0..60).map(|_| {
            let since = Instant::now();
            self.does(task, len);
            since.elapsed().as_secs_f64() * 1e6
        });
        median(times.collect())
    }
}

/// What `does` says while messages of so many bytes go one way between two ranks with memory of these devices.
fn beside<R: Send>(
    devices: [&Device; 2],
    (len, by): (usize, By),
    options: &Options,
    does: impl FnOnce() -> R + Send,
) -> R {
    let (stop, under_way) = (&AtomicBool::new(false), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        let ranks = scope.spawn(move || {
            on_threads(World::threads(2).unwrap(), |world| {
                let device = devices[world.rank()];
                let pair = Pair::new(world, device, len, options);
                let mut goes_on = true;
                while goes_on {
                    pair.goes(len, by);
                    under_way.store(true, Ordering::Relaxed);
                    let stops = pair.sends() && stop.load(Ordering::Relaxed);
                    goes_on = pair.world.sum(u64::from(stops)).unwrap() == 0;
                }
                let staged = pair.messages.staged();
                let way = (staged.straight, by);
                assert!(!options.staged || way != (0, By::Library) || len < MIB, "{staged:?}");
                pair.world.finish().unwrap();
            });
        });
        let go = soon().poll(|| under_way.load(Ordering::Relaxed).then_some(()));
        assert!(go.is_some(), "no message goes");
        let said = does();
        stop.store(true, Ordering::Relaxed);
        ranks.join().unwrap();
        said
    })
}

/// The application's time of a task alone, and how much longer it takes beside messages, in percent, by the library and by hand.
fn slower(
    application: &Application,
    devices: [&Device; 2],
    (task, bytes): (Task, usize),
    len: usize,
    options: &Options,
) -> (f64, [f64; 3]) {
    let alone = application.time(task, bytes);
    let all = [By::Library, By::Hand, By::HandAtOnce].map(|by| {
        let time = beside(devices, (len, by), options, || application.time(task, bytes));
        (time / alone - 1.0) * 100.0
    });
    (alone, all)
}

#[test]
#[ignore = "needs a GPU and TEST_KERNELS"]
fn what_the_application_does_is_timed_while_messages_go() {
    let device = Device::cuda(0).unwrap();
    let application = Application::new(&device);
    let tasks = [
        Task::ToTheHost,
        Task::FromTheHost,
        Task::WithinTheDevice,
        Task::KernelOfMemory,
        Task::KernelOnTheChip,
    ];
    for other in with_others(&device) {
        for staged in [true, false] {
            let options = Options { staged, ..Options::default() };
            println!("between {device} and {other}, staged: {staged}, 16 MiB and 16 MiB");
            println!(
                "the application's, us alone; slower beside messages; beside copies by hand; by hand, all at once: %"
            );
            for task in tasks {
                let (alone, [ours, hand, at_once]) =
                    slower(&application, [&device, &other], (task, LEN), LEN, &options);
                println!("{task:?}: {alone:.0}; {ours:+.1}; {hand:+.1}; {at_once:+.1}");
            }
        }
    }
}

/// The same with another length of either.
#[test]
#[ignore = "needs a GPU and TEST_KERNELS"]
fn copies_and_messages_of_all_lengths_are_timed_beside_each_other() {
    let device = Device::cuda(0).unwrap();
    let application = Application::new(&device);
    let options = Options { staged: true, ..Options::default() };
    let lengths = [64 << 10, 256 << 10, MIB, 4 * MIB, 16 * MIB, 64 * MIB];
    let other = with_others(&device).last().unwrap();
    println!(
        "between {device} and {other}, staged; KiB of the application's, of messages; slower, %"
    );
    for task in [Task::ToTheHost, Task::FromTheHost] {
        let of_messages = lengths.map(|len| (LEN, len));
        let of_copies = lengths.map(|len| (len, LEN));
        for (bytes, len) in of_messages.into_iter().chain(of_copies) {
            let (alone, [ours, hand, at_once]) =
                slower(&application, [&device, &other], (task, bytes), len, &options);
            let [bytes, len] = [bytes, len].map(|it| it >> 10);
            println!(
                "{task:?} {bytes}, {len}: {alone:.0} us; {ours:+.1}; {hand:+.1}; {at_once:+.1}"
            );
        }
    }
}

/// The timeline shows copies of messages beside the application's in the same direction: while one of its copies is under way some of theirs begin and
/// end, and while theirs are some of its.
#[test]
#[ignore = "needs a GPU and TEST_KERNELS"]
fn the_timeline_shows_that_copies_of_messages_and_of_the_application_take_turns() {
    let device = Device::cuda(0).unwrap();
    let application = Application::new(&device);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.json");
    let mut config = Config::from_variables(Vec::<(String, String)>::new()).unwrap();
    config.trace = Some(path.clone());
    let worlds = World::threads_with_config(2, &config).unwrap();
    let (trace, stop) = (worlds[0].trace().clone(), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let lane = trace.lane("application");
            while !stop.load(Ordering::Relaxed) {
                let since = trace::now();
                application.does(Task::ToTheHost, LEN);
                let times = (since, trace::now());
                trace.record(lane, "application", "copy to the host", times, &[]);
            }
        });
        on_threads(worlds, |world| {
            let options = Options { staged: true, ..Options::default() };
            let pair = Pair::new(world, &device, 4 * LEN, &options);
            (0..20).for_each(|_| pair.message(4 * LEN));
            pair.world.barrier().unwrap();
            stop.store(true, Ordering::Relaxed);
            pair.world.finish().unwrap();
        });
    });
    let document: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let spans = |start: &str| {
        let all = document["traceEvents"].as_array().unwrap();
        let named = all.iter().filter(move |event| {
            event["ph"] == "X" && event["name"].as_str().is_some_and(|it| it.starts_with(start))
        });
        let times = named.map(|event| {
            let begin = event["ts"].as_f64().unwrap();
            (begin, begin + event["dur"].as_f64().unwrap())
        });
        times.collect::<Vec<(f64, f64)>>()
    };
    let (own, theirs) = (spans("copy to the host"), spans("tagged message from"));
    let within = |outer: &(f64, f64), all: &[(f64, f64)]| {
        all.iter().filter(|it| outer.0 <= it.0 && it.1 <= outer.1).count()
    };
    let during = own.iter().filter(|copy| within(copy, &theirs) > 0).count();
    let most = own.iter().map(|copy| within(copy, &theirs)).max().unwrap();
    println!(
        "{} copies of messages, {} of the application: in {during} of these whole ones of messages, up to {most}",
        theirs.len(),
        own.len()
    );
    assert!(theirs.len() >= 20 * 32 && during > 0, "they have not taken turns");
}

/// What an application does over and over, on a stream of its own or on the default one, for which it knows the driver alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Copies of 1 MiB within the device.
    Copies,
    /// A kernel that copies 16 MiB so often, ten microseconds each.
    KernelOfMemory(u64),
    /// One that computes, twenty microseconds for each of these.
    KernelOnTheChip(u64),
}

/// Its threads.
const GRID: (u32, u32) = (264, 256);

/// A kernel of libmp.fatbin for an application that knows the driver alone.
fn function(name: &CStr) -> sys::CUfunction {
    let folder = std::env::var("TEST_KERNELS").expect("TEST_KERNELS names no folder");
    let image = std::fs::read(format!("{folder}/libmp.fatbin")).unwrap().leak();
    let (mut module, ok) = (std::ptr::null_mut(), sys::CUresult::CUDA_SUCCESS);
    let mut function = std::ptr::null_mut();
    // SAFETY: calls of the driver with places for what they return; a context is current, which the caller's device has made.
    unsafe {
        assert_eq!(sys::cuModuleLoadData(&mut module, image.as_ptr().cast()), ok);
        assert_eq!(sys::cuModuleGetFunction(&mut function, module, name.as_ptr()), ok);
    }
    function
}

/// Launches it on the default stream, with these words.
fn launch_on_default(function: sys::CUfunction, words: &mut [u64]) {
    // Little-endian: the lower half of a word is where the word is.
    let mut args: Vec<_> = words.iter_mut().map(|word| (&raw mut *word).cast()).collect();
    // SAFETY: the arguments are the kernel's; a context is current.
    let launched = unsafe {
        let (none, extra) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (blocks, threads) = GRID;
        let args = args.as_mut_ptr();
        sys::cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, none, args, extra)
    };
    assert_eq!(launched, sys::CUresult::CUDA_SUCCESS);
}

/// Works until it is to stop, and says when it has begun.
fn work(device: &Device, (work, on_default): (Work, bool), [begun, stop]: [&AtomicBool; 2]) {
    const LEN: usize = 16 * MIB;
    let memory = [(); 2].map(|()| device.alloc::<u8>(LEN).unwrap());
    let [to, from] = memory.each_ref().map(address);
    let [into, out] = memory.each_ref().map(|it| it.slice(0..MIB).unwrap());
    let stream = device.stream().unwrap();
    let results = device.alloc::<u64>((GRID.0 * GRID.1) as usize).unwrap();
    let results = address(&results);
    let kernels = Kernels::of(device);
    let (copies, computes) = (function(c"mp_copies"), function(c"test_on_chip"));
    /// Of a computation, in twenty microseconds.
    const ROUNDS: u64 = 400;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..8 {
            match (work, on_default) {
                (Work::Copies, false) => stream.copy(&into, &out).unwrap(),
                (Work::Copies, true) => {
                    // SAFETY: both have so many bytes, and live until the stream is synchronised.
                    let copied =
                        unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, MIB, std::ptr::null_mut()) };
                    assert_eq!(copied, sys::CUresult::CUDA_SUCCESS);
                }
                (Work::KernelOfMemory(often), false) => {
                    let mut args = Vec::from([to, from, LEN as u64, often].map(Value::Word));
                    args.extend([Value::Half(2), Value::Word(results)]);
                    kernels.launch(&stream, "mp_copies", GRID, args);
                }
                (Work::KernelOfMemory(often), true) => {
                    launch_on_default(copies, &mut [to, from, LEN as u64, often, 2, results]);
                }
                (Work::KernelOnTheChip(often), false) => {
                    let args = [often * ROUNDS, results].map(Value::Word);
                    kernels.launch(&stream, "test_on_chip", GRID, args.into());
                }
                (Work::KernelOnTheChip(often), true) => {
                    launch_on_default(computes, &mut [often * ROUNDS, results]);
                }
            }
        }
        // SAFETY: a call of the driver; a context is current, which the device has made.
        let done = unsafe { sys::cuStreamSynchronize(std::ptr::null_mut()) };
        assert_eq!(done, sys::CUresult::CUDA_SUCCESS);
        stream.synchronize(soon()).unwrap();
        begun.store(true, Ordering::Relaxed);
    }
}

/// What work of the application on the driver's default stream, which others' blocking streams would wait for, costs messages: beside the same
/// work on a stream of its own.
#[test]
#[ignore = "needs a GPU and TEST_KERNELS"]
fn messages_are_timed_while_the_application_works_on_the_default_stream() {
    let device = Device::cuda(0).unwrap();
    let rate = |len: usize, by: Option<(Work, bool)>| {
        let (begun, stop) = (AtomicBool::new(by.is_none()), AtomicBool::new(false));
        std::thread::scope(|scope| {
            if let Some(by) = by {
                let (device, words) = (&device, [&begun, &stop]);
                scope.spawn(move || work(device, by, words));
            }
            let works = soon().poll(|| begun.load(Ordering::Relaxed).then_some(()));
            assert!(works.is_some(), "it does not work");
            let rates = on_threads(World::threads(2).unwrap(), |world| {
                let options = Options { staged: true, ..Options::default() };
                let pair = Pair::new(world, &device, len, &options);
                let rates = [(); 5].map(|()| pair.rate(len, || pair.message(len)));
                pair.world.finish().unwrap();
                median(rates.to_vec())
            });
            stop.store(true, Ordering::Relaxed);
            rates[0]
        })
    };
    // Of ten or twenty microseconds, and of a millisecond.
    let kinds = [
        Work::Copies,
        Work::KernelOfMemory(1),
        Work::KernelOfMemory(100),
        Work::KernelOnTheChip(1),
        Work::KernelOnTheChip(50),
    ];
    println!(
        "by way of the host, GB/s: alone; slower beside work on its own stream; on the default one: %"
    );
    for len in [MIB / 4, 4 * MIB, 64 * MIB] {
        // In turn, so that what changes meanwhile changes for all.
        let mut rates = kinds.map(|_| Vec::new());
        for _ in 0..5 {
            for (kind, rates) in kinds.into_iter().zip(&mut rates) {
                rates.push([None, Some((kind, false)), Some((kind, true))].map(|by| rate(len, by)));
            }
        }
        for (kind, rates) in kinds.iter().zip(rates) {
            let of = |at: usize| median(rates.iter().map(|rates| rates[at]).collect());
            let [alone, own, default] = [0, 1, 2].map(of);
            let slower = |rate: f64| (1.0 - rate / alone) * 100.0;
            let kib = len >> 10;
            println!("{kib} KiB, {kind:?}: {alone:.2}; {:.1}; {:.1}", slower(own), slower(default));
        }
    }
}
