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
use libmp::tagged::Options;
use libmp::{Device, World};
use pairs::{MIB, Pair, median, with_others};

/// What a thread that is no rank does over and over, in microseconds each, alone and while messages go from and to the same GPU.
#[test]
#[ignore = "needs a GPU and TEST_KERNELS"]
fn what_the_application_copies_is_timed_while_messages_go() {
    const LEN: usize = 16 * MIB;
    /// What no cache has room for.
    const LARGE: usize = 256 * MIB;
    /// Two blocks of each multiprocessor of the largest GPUs that there are.
    const BLOCKS: (u32, u32) = (2 * 160, 256);
    let device = Device::cuda(0).unwrap();
    let kernels = Kernels::of(&device);
    let victim = |kind: &str| {
        let memory = [(); 2].map(|()| device.alloc::<u8>(LEN).unwrap());
        let large = [(); 2].map(|()| device.alloc::<u8>(LARGE).unwrap());
        let [to, from] = large.each_ref().map(address);
        let results = device.alloc::<u64>((BLOCKS.0 * BLOCKS.1) as usize).unwrap();
        let words = address(&results);
        let pinned = device.alloc_pinned::<u8>(LEN).unwrap();
        let stream = device.stream().unwrap();
        let times = (0..60).map(|_| {
            let since = Instant::now();
            match kind {
                "to the host" => stream.copy(&pinned, &memory[0]).unwrap(),
                "from the host" => stream.copy(&memory[0], &pinned).unwrap(),
                "a kernel of memory" => {
                    let mut args = Vec::from([to, from, LARGE as u64, 8].map(Value::Word));
                    args.extend([Value::Half(2), Value::Word(words)]);
                    kernels.launch(&stream, "mp_copies", BLOCKS, args);
                }
                "a kernel on the chip" => {
                    let args = vec![Value::Word(50_000), Value::Word(words)];
                    kernels.launch(&stream, "test_on_chip", BLOCKS, args);
                }
                _ => (0..16).for_each(|_| stream.copy(&memory[0], &memory[1]).unwrap()),
            }
            stream.synchronize(soon()).unwrap();
            since.elapsed().as_secs_f64() * 1e6
        });
        median(times.collect())
    };
    for other in with_others(&device) {
        for staged in [true, false] {
            let options = Options { staged, ..Options::default() };
            beside([&device, &other], &victim, &options);
        }
    }
}

/// The same for one way of messages, between two ranks with memory of these.
fn beside(devices: [&Device; 2], victim: &(dyn Fn(&str) -> f64 + Sync), options: &Options) {
    const LEN: usize = 16 * MIB;
    println!("between {} and {}, staged: {}", devices[0], devices[1], options.staged);
    println!(
        "16 MiB, the application's: alone; beside messages; beside copies by hand: us, and how much slower"
    );
    let kinds = [
        "to the host",
        "from the host",
        "on the device",
        "a kernel of memory",
        "a kernel on the chip",
    ];
    for kind in kinds {
        let alone = victim(kind);
        let beside = [true, false].map(|library| {
            let (stop, under_way) = (AtomicBool::new(false), AtomicBool::new(false));
            let (stop, under_way) = (&stop, &under_way);
            std::thread::scope(|scope| {
                let ranks = scope.spawn(move || {
                    on_threads(World::threads(2).unwrap(), |world| {
                        let device = devices[world.rank()];
                        let pair = Pair::new(world, device, LEN, options);
                        let mut goes_on = true;
                        while goes_on {
                            match library {
                                true => pair.message(LEN),
                                false => pair.by_hand(LEN, LEN),
                            }
                            under_way.store(true, Ordering::Relaxed);
                            let stops = pair.sends() && stop.load(Ordering::Relaxed);
                            goes_on = pair.world.sum(u64::from(stops)).unwrap() == 0;
                        }
                        let staged = pair.messages.staged();
                        assert!(!options.staged || staged.straight == staged.copies, "{staged:?}");
                        pair.world.finish().unwrap();
                    });
                });
                while !under_way.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                let time = victim(kind);
                stop.store(true, Ordering::Relaxed);
                ranks.join().unwrap();
                time
            })
        });
        let slower = beside.map(|time| (time / alone - 1.0) * 100.0);
        println!(
            "{kind}: {alone:.0}; {:.0} ({:+.1} %); {:.0} ({:+.1} %)",
            beside[0], slower[0], beside[1], slower[1]
        );
    }
}

/// What an application that knows the driver alone does over and over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Copies of 1 MiB within the device, on a stream of its own or the default one.
    Copies { default: bool },
    /// A kernel that copies memory, on the default stream, and one that computes.
    Kernel { memory: bool },
}

/// Kernels of libmp.fatbin for such an application.
fn functions<const N: usize>(names: [&CStr; N]) -> [sys::CUfunction; N] {
    let folder = std::env::var("TEST_KERNELS").expect("TEST_KERNELS names no folder");
    let image = std::fs::read(format!("{folder}/libmp.fatbin")).unwrap().leak();
    let (mut module, ok) = (std::ptr::null_mut(), sys::CUresult::CUDA_SUCCESS);
    // SAFETY: calls of the driver with places for what they return; a context is current, which the caller's device has made.
    unsafe {
        assert_eq!(sys::cuModuleLoadData(&mut module, image.as_ptr().cast()), ok);
        names.map(|name| {
            let mut function = std::ptr::null_mut();
            assert_eq!(sys::cuModuleGetFunction(&mut function, module, name.as_ptr()), ok);
            function
        })
    }
}

/// Launches it on the default stream.
fn launch_on_default(function: sys::CUfunction, args: &mut [*mut std::ffi::c_void]) {
    // SAFETY: the arguments are the kernel's; a context is current.
    let launched = unsafe {
        let (none, extra) = (std::ptr::null_mut(), std::ptr::null_mut());
        sys::cuLaunchKernel(function, 264, 1, 1, 256, 1, 1, 0, none, args.as_mut_ptr(), extra)
    };
    assert_eq!(launched, sys::CUresult::CUDA_SUCCESS);
}

/// What work of the application on the driver's default stream, which others' blocking streams would wait for, costs messages: beside the same
/// work on a stream of its own.
#[test]
#[ignore = "needs a GPU and TEST_KERNELS"]
fn messages_are_timed_while_the_application_works_on_the_default_stream() {
    const LEN: usize = 4 * MIB;
    let device = Device::cuda(0).unwrap();
    let rate = |by: Option<Work>| {
        let stop = AtomicBool::new(false);
        let work = |kind: Work| {
            let memory = [(); 2].map(|()| device.alloc::<u8>(MIB).unwrap());
            let [mut to, mut from] = memory.each_ref().map(address);
            let stream = device.stream().unwrap();
            let results = device.alloc::<u64>(264 * 256).unwrap();
            let mut words = address(&results);
            let [copies, computes] = functions([c"mp_copies", c"test_on_chip"]);
            let (mut bytes, mut rounds, mut flavour) = (MIB as u64, 1u64, 2u32);
            // As long as those copies.
            let mut long = 50u64;
            let mut count = 0u64;
            while !stop.load(Ordering::Relaxed) {
                for _ in 0..8 {
                    match kind {
                        Work::Copies { default: false } => {
                            stream.copy(&memory[0], &memory[1]).unwrap();
                        }
                        Work::Copies { default: true } => {
                            // SAFETY: both have so many bytes, and live until the stream is synchronised.
                            let copied = unsafe {
                                sys::cuMemcpyDtoDAsync_v2(to, from, MIB, std::ptr::null_mut())
                            };
                            assert_eq!(copied, sys::CUresult::CUDA_SUCCESS);
                        }
                        Work::Kernel { memory: true } => launch_on_default(
                            copies,
                            &mut [
                                (&raw mut to).cast(),
                                (&raw mut from).cast(),
                                (&raw mut bytes).cast(),
                                (&raw mut rounds).cast(),
                                (&raw mut flavour).cast(),
                                (&raw mut words).cast(),
                            ],
                        ),
                        Work::Kernel { memory: false } => launch_on_default(
                            computes,
                            &mut [(&raw mut long).cast(), (&raw mut words).cast()],
                        ),
                    }
                }
                // SAFETY: a call of the driver; a context is current, which the device has made.
                let done = unsafe { sys::cuStreamSynchronize(std::ptr::null_mut()) };
                assert_eq!(done, sys::CUresult::CUDA_SUCCESS);
                stream.synchronize(soon()).unwrap();
                count += 8;
            }
            count
        };
        std::thread::scope(|scope| {
            let worker = by.map(|kind| scope.spawn(move || work(kind)));
            let rates = on_threads(World::threads(2).unwrap(), |world| {
                let options = Options { staged: true, ..Options::default() };
                let pair = Pair::new(world, &device, LEN, &options);
                let rates = [(); 5].map(|()| pair.rate(LEN, || pair.message(LEN)));
                pair.world.finish().unwrap();
                median(rates.to_vec())
            });
            stop.store(true, Ordering::Relaxed);
            (rates[0], worker.map_or(0, |worker| worker.join().unwrap()))
        })
    };
    let kinds = [
        None,
        Some(Work::Copies { default: false }),
        Some(Work::Copies { default: true }),
        Some(Work::Kernel { memory: true }),
        Some(Work::Kernel { memory: false }),
    ];
    let mut rates = [const { Vec::new() }; 5];
    for _ in 0..5 {
        for (rates, by) in rates.iter_mut().zip(kinds) {
            let (beside, count) = rate(by);
            assert!(count > 0 || by.is_none(), "it has not worked");
            rates.push(beside);
        }
    }
    println!("4 MiB by way of the host, GB/s, and slower than alone");
    let alone = median(rates[0].clone());
    for (kind, rates) in kinds.iter().zip(rates) {
        let rate = median(rates);
        println!("beside {kind:?}: {rate:.2}, {:.1} %", (1.0 - rate / alone) * 100.0);
    }
}
