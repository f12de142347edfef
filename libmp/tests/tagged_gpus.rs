//! Tagged messages of a GPU's memory: every kind of memory that CUDA has, and the time of long messages beside copies by hand. Figures are printed; what
//! must hold on any GPU is asserted. Needs a GPU.

mod common;
#[path = "common/pairs.rs"]
mod pairs;

use std::time::Instant;

use common::{SOON, on_threads, ranks, say, soon, start_mprun};
use cudarc::driver::sys;
use libmp::gdsync::{Buffer, PeerMemory};
use libmp::tagged::{Options, Place, wait_all};
use libmp::{Device, Region, World};
use pairs::{MIB, Pair, median, with_others};

/// Memory of a kind that the program has allocated by the driver itself, for as long as the process runs.
fn allocated(kind: &str, len: usize) -> u64 {
    let mut address = 0;
    let ok = sys::CUresult::CUDA_SUCCESS;
    // SAFETY: calls of the driver with places for what they return; a context is current, which the caller's device has made.
    unsafe {
        match kind {
            "device" => assert_eq!(sys::cuMemAlloc_v2(&mut address, len), ok),
            "managed" => assert_eq!(sys::cuMemAllocManaged(&mut address, len, 1), ok),
            "of a pool" => {
                assert_eq!(sys::cuMemAllocAsync(&mut address, len, std::ptr::null_mut()), ok);
                assert_eq!(sys::cuStreamSynchronize(std::ptr::null_mut()), ok);
            }
            _ => {
                let mut props: sys::CUmemAllocationProp = std::mem::zeroed();
                props.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
                props.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
                let size = len.next_multiple_of(2 * MIB);
                let mut handle = 0;
                assert_eq!(sys::cuMemCreate(&mut handle, size, &props, 0), ok);
                assert_eq!(sys::cuMemAddressReserve(&mut address, size, 0, 0, 0), ok);
                assert_eq!(sys::cuMemMap(address, size, 0, handle, 0), ok);
                let access = sys::CUmemAccessDesc {
                    location: props.location,
                    flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                };
                assert_eq!(sys::cuMemSetAccess(address, size, &access, 1), ok);
            }
        }
    }
    address
}

#[test]
#[ignore = "needs a GPU"]
fn memory_of_every_kind_is_sent_and_received() {
    let device = Device::cuda(0).unwrap();
    // Its context becomes current.
    let stream = device.stream().unwrap();
    stream.synchronize(soon()).unwrap();
    for kind in ["device", "managed", "of a pool", "mapped by the program"] {
        let len = MIB + 77;
        let address = allocated(kind, len);
        // SAFETY: it stays.
        let memory = unsafe { Buffer::<u8>::from_cuda_memory(&device, address, len, ()) };
        let memory = match memory {
            Ok(memory) => Region::from_buffer(memory),
            Err(error) => panic!("{kind}: {error}"),
        };
        let bytes: Vec<u8> = (0..len).map(|at| (at * 31 + at / 257) as u8).collect();
        ranks(1, |world| {
            let messages = world.tagged(&Options::default()).unwrap();
            let mut send = messages
                .isend(
                    &Region::from_buffer(Buffer::from_vec(&Device::Host, bytes.clone()).unwrap()),
                    0,
                    1,
                )
                .unwrap();
            messages.irecv(&memory, 0, 1).unwrap().wait(soon()).unwrap();
            send.wait(soon()).unwrap();
            let mut got = vec![0u8; len];
            let mut send = messages.isend(&memory, 0, 2).unwrap();
            messages.recv(&mut got, 0, 2, soon()).unwrap();
            send.wait(soon()).unwrap();
            assert!(got == bytes, "{kind}");
        });
        println!("{kind}: right");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn a_stream_of_another_device_than_the_memory_orders_its_messages_as_well() {
    let device = Device::cuda(0).unwrap();
    ranks(1, |world| {
        let messages = world.tagged(&Options::default()).unwrap();
        let (out, into) = (world.alloc::<u8>(&device, MIB), world.alloc::<u8>(&device, MIB));
        let (out, into) = (out.unwrap(), into.unwrap());
        let host = world.stream(&Device::Host).unwrap();
        let word = Device::Host.alloc_pinned::<u64>(1).unwrap().word(0).unwrap();
        host.wait_geq64(&word, 1).unwrap();
        let mut send = messages.isend(Place::from(&out).on(&host), 0, 1).unwrap();
        let mut recv = messages.irecv(&into, 0, 1).unwrap();
        for _ in 0..1000 {
            assert_eq!((send.test().unwrap(), recv.test().unwrap()), (None, None));
        }
        out.write(&vec![7; MIB]).unwrap();
        word.store(1).unwrap();
        recv.wait(soon()).unwrap();
        send.wait(soon()).unwrap();
        assert!(into.to_vec().unwrap() == vec![7; MIB]);
    });
}

/// A rank process: memory of rank 0's on the GPU is mapped by rank 1, which sends and receives it.
#[test]
#[ignore = "is a rank of the other test"]
fn a_rank() {
    const LEN: usize = MIB + 77;
    let bytes = |seed: usize| (0..LEN).map(|at| (at * 31 + at / 257 + seed) as u8).collect();
    let world = World::init().unwrap();
    let device = Device::cuda(0).unwrap();
    let messages = world.tagged(&Options::default()).unwrap();
    let mut got = vec![0u8; LEN];
    if world.rank() == 0 {
        let memory = device.alloc::<u8>(LEN).unwrap();
        let written: Vec<u8> = bytes(0);
        memory.write(&written).unwrap();
        let handle = postcard::to_stdvec(&memory.export().unwrap()).unwrap();
        messages.send(&handle, 1, 1, soon()).unwrap();
        messages.recv(&mut got, 1, 2, soon()).unwrap();
        assert!(got == written);
        messages.send::<u8>(&bytes(5), 1, 3, soon()).unwrap();
        world.barrier().unwrap();
        assert!(memory.to_vec().unwrap() == bytes(5));
    } else {
        let len = messages.recv(&mut got, 0, 1, soon()).unwrap().bytes;
        let handle = postcard::from_bytes(&got[..len]).unwrap();
        let memory = Region::from_buffer(PeerMemory::map(&handle, &device).unwrap().buffer);
        messages.isend(&memory, 0, 2).unwrap().wait(soon()).unwrap();
        messages.irecv(&memory, 0, 3).unwrap().wait(soon()).unwrap();
        world.barrier().unwrap();
    }
    // Memory of its own is read by the other process, on another GPU if there is one, behind what its stream does.
    let gpus = libmp::gdsync::CudaDevice::count().unwrap();
    let device = Device::cuda(world.rank() as u32 % gpus).unwrap();
    let before = messages.staged();
    let (out, into) = (world.alloc::<u8>(&device, LEN), world.alloc::<u8>(&device, LEN));
    let (out, into) = (out.unwrap(), into.unwrap());
    let (stream, other) = (world.stream(&device).unwrap(), 1 - world.rank());
    for round in 0..50u8 {
        stream.fill(out.buffer(), 2 * round + world.rank() as u8).unwrap();
        let mut recv = messages.irecv(&into, other, 4).unwrap();
        let mut send = messages.isend(Place::from(&out).on(&stream), other, 4).unwrap();
        wait_all([&mut recv, &mut send], soon()).unwrap();
        let expected = 2 * round + other as u8;
        assert!(into.to_vec().unwrap().iter().all(|byte| *byte == expected), "round {round}");
    }
    let after = messages.staged();
    assert_eq!((after.direct - before.direct, after.copies - before.copies), (50, 50));
    world.barrier().unwrap();
    world.finish().unwrap();
    say("done");
}

#[test]
#[ignore = "needs a GPU"]
fn memory_that_another_process_has_exported_is_sent_and_received() {
    for (number, rank) in start_mprun("imported", 2, &[]).iter_mut().enumerate() {
        assert_eq!(rank.next(2 * SOON).as_deref(), Some("done"), "rank {number}");
        assert_eq!(rank.end(SOON), Some(0));
    }
}

/// Nanoseconds of a message of 8 bytes to itself: of plain bytes, of a region, which says what it is, and of plain bytes after the driver was asked.
#[test]
#[ignore = "needs a GPU"]
fn a_message_of_host_memory_is_timed_with_and_without_what_says_so() {
    const MANY: usize = 20_000;
    let device = Device::cuda(0).unwrap();
    device.stream().unwrap().synchronize(soon()).unwrap();
    let times = on_threads(World::threads(1).unwrap(), |world| {
        let messages = world.tagged(&Options::default()).unwrap();
        let regions = [0, 1].map(|_| world.alloc::<u8>(&Device::Host, 8).unwrap());
        let bytes = regions.each_ref().map(|it| (it.buffer().host_address().unwrap(), 8));
        let ask = |at: u64| {
            let mut kind = 0u32;
            let what = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
            // SAFETY: the driver writes one word; that it does not know host memory is no matter.
            let _ = unsafe { sys::cuPointerGetAttribute((&raw mut kind).cast(), what, at) };
        };
        let plain = || {
            // SAFETY: the regions outlive what is waited for here.
            let (recv, send) = unsafe {
                let recv = messages.start_recv(bytes[1], 0, 1).unwrap();
                (recv, messages.start_send(bytes[0], 0, 1).unwrap())
            };
            messages.finish(send.into_iter().chain([recv]), soon(), drop).unwrap();
        };
        let says = || {
            let mut recv = messages.irecv(&regions[1], 0, 1).unwrap();
            messages.isend(&regions[0], 0, 1).unwrap().wait(soon()).unwrap();
            recv.wait(soon()).unwrap();
        };
        let asks = || {
            bytes.iter().for_each(|(at, _)| ask(at.as_ptr() as u64));
            plain();
        };
        let each = |does: &dyn Fn()| {
            let since = Instant::now();
            (0..MANY).for_each(|_| does());
            since.elapsed().as_secs_f64() * 1e9 / MANY as f64
        };
        let turns: Vec<_> = (0..9).map(|_| [each(&plain), each(&says), each(&asks)]).collect();
        world.finish().unwrap();
        [0, 1, 2].map(|way| median(turns.iter().map(|turn| turn[way]).collect()))
    });
    println!("ns: plain {:.0}, region {:.0}, asked {:.0}", times[0][0], times[0][1], times[0][2]);
}

/// GB/s of copies of the whole: to the host or from it.
fn link(device: &Device, len: usize, is_down: bool) -> f64 {
    let (memory, pinned) = (device.alloc::<u8>(len).unwrap(), device.alloc_pinned(len).unwrap());
    let stream = device.stream().unwrap();
    let times = (0..9).map(|_| {
        let since = Instant::now();
        match is_down {
            true => stream.copy(&pinned, &memory).unwrap(),
            false => stream.copy(&memory, &pinned).unwrap(),
        }
        stream.synchronize(soon()).unwrap();
        since.elapsed().as_secs_f64()
    });
    len as f64 / median(times.collect()) / 1e9
}

/// The slower one of both at once, as both ranks of a pair have them that share a GPU.
fn link_both_ways(device: &Device, len: usize) -> f64 {
    std::thread::scope(|scope| {
        let down = scope.spawn(|| link(device, len, true));
        link(device, len, false).min(down.join().unwrap())
    })
}

#[test]
#[ignore = "needs a GPU"]
fn long_messages_are_timed_beside_copies_by_hand() {
    let device = Device::cuda(0).unwrap();
    let most = 64 * MIB;
    println!(
        "link: to the host {:.1}, from it {:.1}, both at once {:.1} GB/s",
        link(&device, most, true),
        link(&device, most, false),
        link_both_ways(&device, most),
    );
    for other in with_others(&device) {
        long_messages_between([&device, &other], most);
    }
}

fn long_messages_between(devices: [&Device; 2], most: usize) {
    println!(
        "between {} and {}, bytes: a message as it is, with rings of 4 MiB, 16 MiB in chunks of 4 MiB; by hand as a whole, by hand in parts of 1 MiB; GB/s",
        devices[0], devices[1],
    );
    for len in [64 << 10, 256 << 10, MIB, 4 * MIB, 16 * MIB, most] {
        let mut row = Vec::new();
        for (ring, chunk) in [(None, None), (Some(4 * MIB), None), (Some(16 * MIB), Some(4 * MIB))]
        {
            // Otherwise one reads the other's memory.
            let options = Options { ring, chunk, staged: true, ..Options::default() };
            let rates = on_threads(World::threads(2).unwrap(), |world| {
                let device = devices[world.rank()];
                let pair = Pair::new(world, device, len, &options);
                let message = pair.rate(len, || pair.message(len));
                let staged = pair.messages.staged();
                assert_eq!(staged.straight, staged.copies, "{staged:?}");
                let whole = pair.rate(len, || pair.by_hand(len, len));
                let parts = pair.rate(len, || pair.by_hand(len, MIB));
                let chunk = staged.chunk;
                pair.world.finish().unwrap();
                (message, whole, parts, chunk)
            });
            row.push(rates[0]);
        }
        let messages = row.iter().map(|it| format!("{:.2}", it.0)).collect::<Vec<_>>().join(" ");
        println!("{len}: {messages}; {:.2}, {:.2}; chunk {}", row[0].1, row[0].2, row[0].3);
    }
}

/// Whether the size of chunks that is chosen is about the best.
#[test]
#[ignore = "needs a GPU"]
fn chunks_of_all_sizes_are_timed() {
    let device = Device::cuda(0).unwrap();
    let chunks = [128 << 10, 256 << 10, 512 << 10, MIB, 2 * MIB].map(Some);
    for other in with_others(&device) {
        println!(
            "between {device} and {other}, bytes: GB/s in chunks of 128 KiB to 2 MiB; as it is"
        );
        for len in [256 << 10, MIB, 4 * MIB, 16 * MIB, 64 * MIB] {
            let rate = |chunk: Option<usize>| {
                let options = Options { chunk, staged: true, ..Options::default() };
                let rates = on_threads(World::threads(2).unwrap(), |world| {
                    let device = [&device, &other][world.rank()];
                    let pair = Pair::new(world, device, len, &options);
                    let rate = pair.rate(len, || pair.message(len));
                    pair.world.finish().unwrap();
                    rate
                });
                rates[0]
            };
            let turns: Vec<_> = (0..5)
                .map(|_| chunks.into_iter().chain([None]).map(rate).collect::<Vec<_>>())
                .collect();
            let of = |at: usize| median(turns.iter().map(|turn| turn[at]).collect());
            let row: Vec<String> = (0..=chunks.len()).map(|at| format!("{:.2}", of(at))).collect();
            println!("{len}: {}", row.join(" "));
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn messages_between_gpus_are_read_out_of_the_senders_memory_and_timed() {
    let gpus = libmp::gdsync::CudaDevice::count().unwrap();
    let most = 64 * MIB;
    println!(
        "bytes: a message, a put of a window, a copy by one stream, by way of the host by hand; GB/s; us of a message"
    );
    for len in [8, 64 << 10, 256 << 10, MIB, 4 * MIB, 16 * MIB, most] {
        let rates = on_threads(World::threads(2).unwrap(), |world| {
            let device = Device::cuda(world.rank() as u32 % gpus).unwrap();
            let pair = Pair::new(world, &device, most, &Options::default());
            let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + at / 255) as u8).collect();
            if pair.sends() {
                pair.memory.slice(0..len).unwrap().write(&bytes).unwrap();
            }
            pair.world.barrier().unwrap();
            pair.message(len);
            assert!(pair.memory.slice(0..len).unwrap().to_vec().unwrap() == bytes);
            let staged = pair.messages.staged();
            let copies = u64::from(!pair.sends());
            assert_eq!((staged.direct, staged.copies), (copies, copies), "{staged:?}");
            let window = pair.world.window(&pair.memory, 0).unwrap();
            let message = pair.rate(len, || pair.message(len));
            let put = pair.rate(len, || {
                if pair.sends() {
                    window.put(1, 0, &pair.memory.slice(0..len).unwrap()).unwrap();
                }
            });
            let handle = pair.memory.buffer().export().unwrap();
            let handles = pair.world.all_gather(&postcard::to_stdvec(&handle).unwrap()).unwrap();
            let there = postcard::from_bytes(&handles[1 - pair.world.rank()]).unwrap();
            let there = PeerMemory::map(&there, &device).unwrap().buffer.slice(0..len).unwrap();
            let copy = pair.rate(len, || {
                if !pair.sends() {
                    let here = pair.memory.buffer().slice(0..len).unwrap();
                    pair.stream.copy(&here, &there).unwrap();
                    pair.stream.synchronize(soon()).unwrap();
                }
            });
            let staged = pair.rate(len, || pair.by_hand(len, len));
            pair.world.barrier().unwrap();
            drop((window, there));
            pair.world.finish().unwrap();
            [message, put, copy, staged]
        });
        let [message, put, copy, staged] = rates[0];
        let us = len as f64 / message / 1e3;
        println!("{len}: {message:.2}, {put:.2}, {copy:.2}, {staged:.2}; {us:.1}");
    }
}
