//! Copies of plain memory and signals in it, by a thread, a warp and a block of a kernel (`mp/copy.cuh`, `mp/signal.cuh`): on the
//! host as OS threads, and on a GPU. No ranks: windows are in `device_kernels.rs`.

#[path = "common/devices.rs"]
#[macro_use]
mod devices;
#[path = "common/kernels.rs"]
mod kernels;

use std::time::Duration;

use kernels::{Kernels, Value, address};
use libmp::gdsync::Buffer;
use libmp::{Deadline, Device};
use mp_kernels::WaitBounds;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

/// A thread, a warp, a block of more, and blocks that share: flavour, threads, blocks.
const GROUPS: [(u32, u32, u32); 4] = [(0, 1, 1), (1, 32, 1), (2, 40, 1), (2, 3, 2)];

/// What no copy may change lies around each target.
const AROUND: usize = 64;

fn a_copy_brings_every_byte_and_touches_no_more(device: &Device) {
    let (stream, kernels) = (device.stream().unwrap(), Kernels::of(device));
    let stamps: Buffer<u64> = device.alloc_pinned(4).unwrap();
    let [source, target] =
        [(); 2].map(|()| device.alloc::<u8>(AROUND + 5003 + 128 + AROUND).unwrap());
    for (flavour, threads, blocks) in GROUPS {
        for (to, from) in [(0, 0), (8, 0), (1, 1), (0, 3), (13, 8), (16, 0), (48, 32), (120, 8)] {
            for bytes in [0, 1, 8, 15, 16, 17, 4096, 5003usize] {
                let there: Vec<u8> =
                    (0..source.len()).map(|i| (31 * i + 1 + bytes) as u8).collect();
                source.write(&there).unwrap();
                target.write(&vec![0xa5; target.len()]).unwrap();
                let [to_address, from_address] = [(&target, to), (&source, from)]
                    .map(|(buffer, shift)| Value::Word(address(buffer) + (AROUND + shift) as u64));
                let mut args = vec![to_address, from_address];
                args.extend([bytes as u64, 1].map(Value::Word));
                args.extend([Value::Half(flavour), Value::Word(address(&stamps))]);
                kernels.launch(&stream, "mp_copies", (blocks, threads), args);
                stream.synchronize(soon()).unwrap();
                let mut expected = vec![0xa5; target.len()];
                let begin = |shift: usize| AROUND + shift;
                expected[begin(to)..begin(to) + bytes]
                    .copy_from_slice(&there[begin(from)..begin(from) + bytes]);
                let case =
                    format!("{bytes} bytes from {from} to {to}, {blocks} blocks of {threads}");
                assert!(target.to_vec().unwrap() == expected, "{case}");
                assert!(source.to_vec().unwrap() == there, "{case}");
            }
        }
    }
}

fn a_group_raises_a_signal_once_behind_what_it_wrote(device: &Device) {
    // As cuda/memory.cu has it: words of each signal's line, and the number of all.
    let [set, added, answer, turns, data] = [0usize, 8, 16, 24, 48];
    let (stream, kernels, count) = (device.stream().unwrap(), Kernels::of(device), 50usize);
    for (flavour, threads, _) in GROUPS {
        // Rounds of many OS threads on two cores take long.
        let few = device.as_cuda().is_none() && threads > 1;
        let rounds = if few { 20 } else { 500u64 };
        let words: Buffer<u64> = device.alloc(data + 3 * count).unwrap();
        words.write(&vec![0; words.len()]).unwrap();
        let results = kernels.results();
        let bounds = WaitBounds { abort: 0, timeout_ns: 30_000_000_000 };
        let mut args = vec![Value::Word(address(&words))];
        args.extend([count as u64, rounds].map(Value::Word));
        args.extend([Value::Bounds(bounds), Value::Half(flavour), Value::Word(address(&results))]);
        kernels.launch_together(&stream, "mp_signals", (2, threads), args);
        stream.synchronize(soon()).unwrap();
        assert_eq!(results.to_vec().unwrap(), [0, 2 * rounds, 0], "{threads} threads");
        let words = words.to_vec().unwrap();
        let found = [set, added, answer].map(|signal| words[signal]);
        assert_eq!(found, [rounds, 3 * rounds, 2 * rounds], "{threads} threads");
        for last in rounds - 2..=rounds {
            assert_eq!(words[turns + 8 * (last % 3) as usize], last, "{threads} threads");
        }
    }
}

tests_of_devices! {
    crate::devices::once;
    "needs a GPU and TEST_KERNELS":
    a_copy_brings_every_byte_and_touches_no_more;
    a_group_raises_a_signal_once_behind_what_it_wrote;
}

mod host {
    on_the_host!();
}

mod gpu {
    on_a_gpu!();
}
