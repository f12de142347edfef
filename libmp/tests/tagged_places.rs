//! Tagged messages of memory that the CPU does not reach, through chunks. Host memory goes the same way if it is told to, and so runs the same code
//! everywhere; GPUs and OpenCL where there are some. With streams: `tagged_streams.rs`.

mod common;
#[path = "common/staged.rs"]
mod shared;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{ranks, soon, stay_to_the_end};
use libmp::gdsync::opencl;
use libmp::tagged::{Options, Place, Request, Source, Status, Tag, Tagged, wait_all};
use libmp::{Config, Device, Error, Path, Region, World};
use shared::{CHUNK, bytes, staged};

/// Around every border: nothing, a line, the eager limit, a piece of the ring, a chunk, more than all chunks of a lane.
const LENGTHS: [usize; 10] =
    [0, 1, 40, 41, 8192, 8193, 131_073, CHUNK, CHUNK + 1, 10 * CHUNK + 12_345];

/// Where the bytes of a message are, in this test.
enum Memory {
    Region(Region<u8>),
    OpenCl(opencl::Memory),
}

impl Memory {
    /// With some bytes before and behind, so that it begins at an odd place.
    fn region(world: &World, device: &Device, len: usize) -> Memory {
        let all = world.alloc::<u8>(device, len + 8).unwrap();
        all.write(&vec![0xee; len + 8]).unwrap();
        Memory::Region(all.slice(3..3 + len).unwrap())
    }

    fn opencl(context: &opencl::Context, len: usize) -> Memory {
        let all = context.alloc(len + 8).unwrap();
        all.write(&vec![0xee; len + 8]).unwrap();
        Memory::OpenCl(all.slice(3..3 + len).unwrap())
    }

    fn place(&self) -> Place<'static> {
        match self {
            Memory::Region(region) => region.into(),
            Memory::OpenCl(memory) => memory.into(),
        }
    }

    fn write(&self, bytes: &[u8]) {
        match self {
            Memory::Region(region) => region.write(bytes).unwrap(),
            Memory::OpenCl(memory) => memory.write(bytes).unwrap(),
        }
    }

    fn read(&self) -> Vec<u8> {
        match self {
            Memory::Region(region) => region.to_vec().unwrap(),
            Memory::OpenCl(memory) => memory.to_vec().unwrap(),
        }
    }
}

/// Messages of all lengths both ways between a memory that the even rank makes and one that the odd one makes, once by requests that
/// are started at once, posted before and after they come, and three times by prepared ones.
fn all_lengths(world: &World, messages: &Tagged, make: impl Fn(usize) -> Memory) {
    let other = 1 - world.rank();
    for (number, len) in LENGTHS.into_iter().enumerate() {
        let (out, into) = (make(len), make(len + 5));
        let tag = number as u64;
        for round in 0..5 {
            out.write(&bytes(len, 10 * round + world.rank()));
            into.write(&vec![0xdd; len + 5]);
            let expected = Status { source: other, tag, bytes: len };
            let got = match round {
                0 => {
                    let mut recv = messages.irecv(into.place(), other, tag).unwrap();
                    world.barrier().unwrap();
                    messages.isend(out.place(), other, tag).unwrap().wait(soon()).unwrap();
                    recv.wait(soon()).unwrap()
                }
                1 => {
                    let mut send = messages.isend(out.place(), other, tag).unwrap();
                    world.barrier().unwrap();
                    let mut recv = messages.irecv(into.place(), Source::Any, Tag::Any).unwrap();
                    wait_all([&mut recv, &mut send], soon()).unwrap()[0]
                }
                _ => {
                    let mut send = messages.send_init(out.place(), other, tag).unwrap();
                    let mut recv = messages.recv_init(into.place(), other, tag).unwrap();
                    recv.start().unwrap();
                    send.start().unwrap();
                    wait_all([&mut recv, &mut send], soon()).unwrap()[0]
                }
            };
            assert_eq!(got, expected);
            let read = into.read();
            assert!(read[..len] == bytes(len, 10 * round + other), "{len} bytes, round {round}");
            assert_eq!(read[len..], [0xdd; 5], "{len} bytes, round {round}");
        }
    }
}

#[test]
fn messages_of_any_length_go_through_chunks_on_every_path_and_the_pool_stays_as_it_is() {
    ranks(2, |world| {
        let messages = world.tagged(&staged()).unwrap();
        all_lengths(world, &messages, |len| Memory::region(world, &Device::Host, len));
        let first = messages.staged();
        assert!(first.most <= 2 && first.copies > 100 && first.in_use == 0, "{first:?}");
        // Out of the own rings without a chunk, into the other's where these are mapped.
        let is_mapped = world.path(1 - world.rank()).unwrap() == Path::Direct;
        assert_eq!(first.straight == first.copies, is_mapped, "{first:?}");
        assert_eq!(first.pool, chunks_of_sends(world) * CHUNK);
        assert!(first.straight > 0, "{first:?}");
        all_lengths(world, &messages, |len| Memory::region(world, &Device::Host, len));
        assert_eq!(messages.staged().pool, first.pool);
    });
}

/// How many a rank has that has sent by chunks: none where it has not.
fn chunks_of_sends(world: &World) -> usize {
    let other = (world.rank() + 1) % world.size();
    if world.path(other).unwrap() == Path::Direct { 0 } else { 8 }
}

#[test]
fn chunks_of_any_size_do() {
    for chunk in [4096, 5001, 1 << 20] {
        ranks(2, |world| {
            let options = Options { chunk: Some(chunk), ring: Some(64 << 10), ..staged() };
            let messages = world.tagged(&options).unwrap();
            all_lengths(world, &messages, |len| Memory::region(world, &Device::Host, len));
            let staged = messages.staged();
            assert_eq!((staged.chunk, staged.pool), (chunk, chunks_of_sends(world) * chunk));
            assert!(staged.most <= 2 && staged.in_use == 0, "{staged:?}");
        });
    }
}

#[test]
fn one_end_in_chunks_and_the_other_one_as_always_get_on() {
    for staged_rank in 0..2 {
        ranks(2, |world| {
            let options = Options { staged: world.rank() == staged_rank, ..Options::default() };
            let messages = world.tagged(&options).unwrap();
            all_lengths(world, &messages, |len| Memory::region(world, &Device::Host, len));
            assert_eq!(messages.staged().copies > 0, options.staged);
        });
    }
}

#[test]
fn many_messages_at_once_share_the_chunks_and_those_that_nobody_wants_yet_hold_none() {
    ranks(2, |world| share_the_chunks(world, 40, CHUNK + 77));
    // Ten thousand between sixteen: each rank has as many chunks as one of two has.
    let worlds = World::threads_with_config(16, &common::config()).unwrap();
    stay_to_the_end(worlds, |world| share_the_chunks(world, 625, 3000));
}

/// Sends so many of so many bytes to the right, all at once.
fn share_the_chunks(world: &World, all: usize, len: usize) {
    let size = world.size();
    let messages = world.tagged(&staged()).unwrap();
    let other = (world.rank() + 1) % size;
    let from = (world.rank() + size - 1) % size;
    let outs: Vec<_> = (0..all)
        .map(|tag| {
            let out = world.alloc::<u8>(&Device::Host, len).unwrap();
            out.write(&bytes(len, tag + world.rank())).unwrap();
            out
        })
        .collect();
    let intos: Vec<_> = (0..all).map(|_| world.alloc::<u8>(&Device::Host, len).unwrap()).collect();
    let mut sends: Vec<Request<'_>> =
        (outs.iter().zip(0..)).map(|(out, tag)| messages.isend(out, other, tag).unwrap()).collect();
    world.barrier().unwrap();
    assert_eq!(messages.staged().in_use, 0);
    world.barrier().unwrap();
    // The last first.
    let mut recvs: Vec<Request<'_>> = (intos.iter().enumerate().rev())
        .map(|(tag, into)| messages.irecv(into, from, tag as u64).unwrap())
        .collect();
    wait_all(&mut recvs, soon()).unwrap();
    wait_all(&mut sends, soon()).unwrap();
    for (tag, into) in intos.iter().enumerate() {
        assert!(into.to_vec().unwrap() == bytes(len, tag + from), "tag {tag}");
    }
    let staged = messages.staged();
    assert!(staged.most <= 2 && staged.in_use == 0, "{staged:?}");
    assert_eq!(staged.pool, chunks_of_sends(world) * CHUNK);
}

#[test]
fn with_a_thread_for_progress_messages_go_on_while_their_rank_makes_no_calls() {
    for path in common::paths() {
        for options in [Options::default(), staged()] {
            let config = Config::from_variables([("MP_PATH", path)]).unwrap();
            let worlds = World::threads_with_config(2, &config).unwrap();
            let (got, sent) = (AtomicBool::new(false), AtomicBool::new(false));
            stay_to_the_end(worlds, |world| {
                let messages = world.tagged(&options).unwrap();
                let memory = world.alloc::<u8>(&Device::Host, 8 * CHUNK).unwrap();
                if world.rank() == 1 {
                    while !sent.load(Ordering::Acquire) {
                        std::thread::yield_now();
                    }
                    messages.irecv(&memory, 0, 1).unwrap().wait(soon()).unwrap();
                    assert_eq!(memory.to_vec().unwrap(), bytes(8 * CHUNK, 3));
                    got.store(true, Ordering::Release);
                    return;
                }
                let progress = world.progress().unwrap();
                memory.write(&bytes(8 * CHUNK, 3)).unwrap();
                let mut send = messages.isend(&memory, 1, 1).unwrap();
                sent.store(true, Ordering::Release);
                let deadline = soon();
                while !got.load(Ordering::Acquire) {
                    assert!(!deadline.expired(), "{path}: nobody has moved the message on");
                    std::thread::sleep(Duration::from_millis(1));
                }
                drop(progress);
                send.wait(soon()).unwrap();
            });
        }
    }
}

#[test]
fn a_receiver_reads_the_memory_of_a_sender_that_it_maps_when_that_may_be_read() {
    ranks(2, |world| {
        let messages = world.tagged(&Options::default()).unwrap();
        let other = 1 - world.rank();
        let stream = world.stream(&Device::Host).unwrap();
        let there = world.stream(&Device::Host).unwrap();
        let gate = Device::Host.alloc_pinned::<u64>(1).unwrap().word(0).unwrap();
        let (mut got, mut round) = (0, 0);
        for len in LENGTHS {
            let (out, into) = (
                world.alloc::<u8>(&Device::Host, len).unwrap(),
                world.alloc::<u8>(&Device::Host, len + 5).unwrap(),
            );
            // Ready when it is lent, when it is wanted, and when it has been asked for.
            for way in 0..3 {
                round += 1;
                out.write(&bytes(len, 1)).unwrap();
                into.write(&vec![0xdd; len + 5]).unwrap();
                if way > 0 {
                    stream.wait_geq64(&gate, round).unwrap();
                }
                let source = bytes(len, way + world.rank());
                let copied = world.alloc::<u8>(&Device::Host, len).unwrap();
                copied.write(&source).unwrap();
                stream.copy(out.buffer(), copied.buffer()).unwrap();
                if way == 0 {
                    stream.synchronize(soon()).unwrap();
                }
                let mut send = messages.isend(Place::from(&out).on(&stream), other, 1).unwrap();
                world.barrier().unwrap();
                if way == 1 {
                    gate.store(round).unwrap();
                    stream.synchronize(soon()).unwrap();
                    send.test().unwrap();
                }
                let mut recv = messages.irecv(Place::from(&into).on(&there), other, 1).unwrap();
                if way == 2 {
                    // Of nothing there is nothing to wait for.
                    for _ in 0..100 {
                        let status = recv.test().unwrap();
                        assert!(status.is_none() || len == 0, "{len} bytes: {status:?}");
                    }
                    world.barrier().unwrap();
                    gate.store(round).unwrap();
                }
                let status = wait_all([&mut recv, &mut send], soon()).unwrap()[0];
                assert_eq!(status, Status { source: other, tag: 1, bytes: len });
                let read = into.to_vec().unwrap();
                assert!(read[..len] == bytes(len, way + other), "{len} bytes, way {way}");
                assert_eq!(read[len..], [0xdd; 5], "{len} bytes, way {way}");
                got += u64::from(len > 0);
            }
        }
        // Too long, given up before it is ready, given up by its sender.
        let (long, short) = (
            world.alloc::<u8>(&Device::Host, 3000).unwrap(),
            world.alloc::<u8>(&Device::Host, 10).unwrap(),
        );
        let mut send = messages.isend(Place::from(&long).on(&stream), other, 2).unwrap();
        let mut recv = messages.irecv(Place::from(&short).on(&stream), other, 2).unwrap();
        assert!(matches!(recv.wait(soon()), Err(Error::Truncated { sent: 3000, posted: 10, .. })));
        send.wait(soon()).unwrap();
        stream.wait_geq64(&gate, round + 1).unwrap();
        let mut send = messages.isend(Place::from(&long).on(&stream), other, 3).unwrap();
        messages.probe(other, 3, soon()).unwrap();
        let mut recv = messages.irecv(Place::from(&long).on(&there), other, 3).unwrap();
        assert_eq!(recv.test().unwrap(), None);
        drop(recv);
        gate.store(round + 1).unwrap();
        send.wait(soon()).unwrap();
        drop(messages.isend(Place::from(&long).on(&stream), other, 4).unwrap());
        messages.probe(other, 4, soon()).unwrap();
        let mut recv = messages.irecv(Place::from(&long).on(&there), other, 4).unwrap();
        recv.wait(soon()).unwrap();
        world.barrier().unwrap();
        let staged = messages.staged();
        match world.path(other).unwrap() {
            Path::Direct => assert_eq!((staged.direct, staged.straight), (got + 1, 0)),
            _ => assert_eq!(staged.direct, 0),
        }
        assert_eq!(staged.in_use, 0, "{staged:?}");
        for stream in [&stream, &there] {
            world.synchronize(stream, soon()).unwrap();
        }
    });
}

#[test]
fn requests_that_are_dropped_on_the_way_give_their_chunks_back_and_the_next_messages_come() {
    ranks(2, |world| {
        let messages = world.tagged(&staged()).unwrap();
        let other = 1 - world.rank();
        let memory = world.alloc::<u8>(&Device::Host, 6 * CHUNK).unwrap();
        for round in 0..6 {
            if world.rank() == 0 {
                let send = messages.isend(&memory, other, 1).unwrap();
                drop(send);
                messages.send(&[round; 3], other, 2, soon()).unwrap();
                // Goes on with what was dropped.
                messages.recv(&mut [0u8], other, 3, soon()).unwrap();
            } else {
                let mut recv = messages.irecv(&memory, other, 1).unwrap();
                // Some rounds further than others.
                for _ in 0..round {
                    let _ = recv.test().unwrap();
                }
                drop(recv);
                let mut got = [0; 3];
                messages.recv(&mut got, other, 2, soon()).unwrap();
                assert_eq!(got, [round; 3]);
                // If it was taken back, the message waits.
                if messages.iprobe(other, 1).unwrap().is_some() {
                    messages.recv(&mut vec![0u8; 6 * CHUNK], other, 1, soon()).unwrap();
                }
                messages.send(&[0u8], other, 3, soon()).unwrap();
            }
        }
        world.barrier().unwrap();
        // What is left of a dropped message moves while both of its ranks make calls.
        while world.sum(messages.staged().in_use as u64).unwrap() > 0 {
            messages.iprobe(other, 99).unwrap();
        }
    });
}

#[test]
fn a_sender_lost_in_the_middle_of_a_long_message_is_named_and_the_next_world_runs() {
    for _ in 0..3 {
        let mut worlds = World::threads(2).unwrap();
        let stopped = Arc::new(AtomicBool::new(false));
        let two = worlds.pop().unwrap();
        let one = worlds.pop().unwrap();
        std::thread::scope(|scope| {
            let flag = stopped.clone();
            scope.spawn(move || {
                let messages = one.tagged(&staged()).unwrap();
                let memory = one.alloc::<u8>(&Device::Host, 64 * CHUNK).unwrap();
                let mut send = messages.isend(&memory, 1, 5).unwrap();
                while messages.staged().copies < 10 {
                    assert_eq!(send.test().unwrap(), None);
                }
                flag.store(true, Ordering::Release);
                // And is gone, without a word.
            });
            let messages = two.tagged(&staged()).unwrap();
            let memory = two.alloc::<u8>(&Device::Host, 64 * CHUNK).unwrap();
            let lost = messages.irecv(&memory, 0, 5).unwrap().wait(soon()).unwrap_err();
            assert!(stopped.load(Ordering::Acquire));
            let Error::PeerLost { rank: 0, op, .. } = &lost else { panic!("{lost}") };
            let all = format!("of {} bytes", 64 * CHUNK);
            assert!(op.contains("tag 5") && op.contains(&all) && !op.contains(" 0 of"), "{op}");
        });
    }
}

mod on_opencl {
    use libmp::gdsync::Rows;

    use super::*;

    /// Memory of 8 bytes that was made with `CL_MEM_READ_ONLY`.
    fn sealed(context: &opencl::Context) -> opencl::Memory {
        use cl3::memory::{CL_MEM_READ_ONLY, create_buffer, release_mem_object};
        // SAFETY: no host memory is named; it is released once.
        unsafe {
            let raw = create_buffer(context.as_raw(), CL_MEM_READ_ONLY, 8, std::ptr::null_mut());
            let raw = raw.unwrap();
            let memory = opencl::Memory::adopt(raw).unwrap();
            release_mem_object(raw).unwrap();
            memory
        }
    }

    #[test]
    #[ignore = "needs an OpenCL platform"]
    fn messages_of_any_length_go_between_opencl_memory_host_memory_and_chunks() {
        // Of rank 0 and of rank 1.
        for kinds in
            [["opencl", "opencl"], ["opencl", "host"], ["host", "opencl"], ["opencl", "staged"]]
        {
            ranks(2, |world| {
                let kind = kinds[world.rank()];
                let options = Options { staged: kind == "staged", ..Options::default() };
                let messages = world.tagged(&options).unwrap();
                match kind {
                    "opencl" => {
                        let context = opencl::Context::open().unwrap();
                        all_lengths(world, &messages, |len| Memory::opencl(&context, len));
                        let staged = messages.staged();
                        assert!(
                            staged.contexts == 1 && staged.most <= 2 && staged.in_use == 0,
                            "{staged:?}"
                        );
                    }
                    _ => all_lengths(world, &messages, |len| {
                        Memory::region(world, &Device::Host, len)
                    }),
                }
            });
        }
    }

    #[test]
    #[ignore = "needs an OpenCL platform"]
    fn a_thousand_messages_of_one_context_make_its_queues_once_and_those_of_five_in_turn_each_time()
    {
        ranks(1, |world| {
            let messages = world.tagged(&Options::default()).unwrap();
            let contexts: Vec<_> = (0..5).map(|_| opencl::Context::open().unwrap()).collect();
            let memories: Vec<_> =
                contexts.iter().map(|context| context.alloc(100).unwrap()).collect();
            // Somebody else's context may go before the messages do.
            drop(contexts);
            let one = |memory: &opencl::Memory| {
                let mut got = [0u8; 100];
                memory.write(&bytes(100, 1)).unwrap();
                let mut send = messages.isend(memory, 0, 1).unwrap();
                messages.recv(&mut got, 0, 1, soon()).unwrap();
                send.wait(soon()).unwrap();
                assert_eq!(got[..], bytes(100, 1));
            };
            (0..1000).for_each(|_| one(&memories[0]));
            assert_eq!(messages.staged().contexts, 1);
            (0..20).for_each(|round| one(&memories[round % 5]));
            assert_eq!(messages.staged().contexts, 20);
        });
    }

    /// By several threads of each rank at once, and while the owner's others do nothing.
    #[test]
    #[ignore = "needs an OpenCL platform"]
    fn memory_that_is_served_is_put_into_and_got_from() {
        const LEN: usize = 300_000;
        ranks(3, |world| {
            let context = opencl::Context::open().unwrap();
            let (memory, me) = (context.alloc(LEN + world.rank()).unwrap(), world.rank());
            memory.write(&vec![0xee; LEN + me]).unwrap();
            let all = world.serve(&memory).unwrap();
            assert_eq!((all.len(2), all.len(3)), (Some(LEN as u64 + 2), None));
            let right = (me + 1) % 3;
            std::thread::scope(|scope| {
                for part in 0..3 {
                    let all = &all;
                    scope.spawn(move || {
                        let (at, mine) = (part * LEN / 3, bytes(LEN / 3, 10 * me + part));
                        all.put(right, at as u64, &mine, Rows::one(LEN / 3)).unwrap();
                        let mut got = vec![0; LEN / 3];
                        all.get(right, at as u64, &mut got, Rows::one(LEN / 3)).unwrap();
                        assert!(got == mine, "part {part}");
                    });
                }
            });
            world.barrier().unwrap();
            let left = (me + 2) % 3;
            let expected: Vec<u8> =
                (0..3).flat_map(|part| bytes(LEN / 3, 10 * left + part)).collect();
            let held = memory.to_vec().unwrap();
            assert!(held[..LEN] == expected && held[LEN..].iter().all(|&byte| byte == 0xee));
            world.barrier().unwrap();
            let rows = Rows { len: 2, count: 3, to: 5, from: 4 };
            all.put(right, 1, &[1, 2, 9, 9, 3, 4, 9, 9, 5, 6], rows).unwrap();
            let mut got = [7; 12];
            all.get(right, 1, &mut got, Rows { from: 5, ..rows }).unwrap();
            assert_eq!(got, [1, 2, 7, 7, 7, 3, 4, 7, 7, 7, 5, 6]);
            for (rank, at, here) in [(3, 0, 8), (right, LEN as u64, 8), (right, 0, 7)] {
                let refused = all.put(rank, at, &vec![0; here], Rows::one(8)).unwrap_err();
                let refused = refused.to_string();
                let why = if rank == 3 { "rank 3 does not exist" } else { "elements" };
                assert!(refused.contains(why), "{refused}");
            }
            world.barrier().unwrap();
            drop(all);
            let sealed = sealed(&context);
            let refused = world.serve(&sealed).unwrap_err().to_string();
            assert!(refused.contains("CL_MEM_READ_ONLY"), "{refused}");
        });
    }

    #[test]
    #[ignore = "needs an OpenCL platform"]
    fn opencl_memory_that_may_only_be_read_is_sent_and_not_received_into() {
        use libmp::gdsync::opencl::Context;
        ranks(1, |world| {
            let messages = world.tagged(&Options::default()).unwrap();
            let context = Context::open().unwrap();
            let memory = sealed(&context);
            let refused = messages.irecv(&memory, 0, 1).unwrap_err().to_string();
            assert!(refused.contains("CL_MEM_READ_ONLY"), "{refused}");
            memory.write(&[5; 8]).unwrap();
            let mut got = [0u8; 8];
            let mut send = messages.isend(&memory, 0, 1).unwrap();
            messages.recv(&mut got, 0, 1, soon()).unwrap();
            send.wait(soon()).unwrap();
            assert_eq!(got, [5; 8]);
        });
    }
}

mod gpu {
    use super::*;

    #[test]
    #[ignore = "needs a GPU"]
    fn messages_of_any_length_go_between_gpu_memory_and_host_memory() {
        let device = Device::cuda(0).unwrap();
        for gpus in [[true, true], [true, false], [false, true]] {
            ranks(2, |world| {
                let messages = world.tagged(&Options::default()).unwrap();
                let device = if gpus[world.rank()] { &device } else { &Device::Host };
                all_lengths(world, &messages, |len| Memory::region(world, device, len));
                let staged = messages.staged();
                assert!(staged.most <= 2 && staged.in_use == 0, "{staged:?}");
                assert_eq!(staged.copies > 0, gpus[world.rank()]);
            });
        }
    }

    #[test]
    #[ignore = "needs a GPU and an OpenCL platform"]
    fn messages_of_any_length_go_between_gpu_memory_and_opencl_memory() {
        let device = Device::cuda(0).unwrap();
        for gpus in [[true, false], [false, true]] {
            ranks(2, |world| {
                let messages = world.tagged(&Options::default()).unwrap();
                if gpus[world.rank()] {
                    all_lengths(world, &messages, |len| Memory::region(world, &device, len));
                } else {
                    let context = opencl::Context::open().unwrap();
                    all_lengths(world, &messages, |len| Memory::opencl(&context, len));
                }
                let staged = messages.staged();
                assert!(staged.copies > 0 && staged.direct == 0, "{staged:?}");
                assert!(staged.most <= 2 && staged.in_use == 0, "{staged:?}");
            });
        }
    }
}
