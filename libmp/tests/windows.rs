//! One-sided operations between ranks that are threads, on every path.

mod common;

use std::time::Duration;

use common::{on_every_path, on_threads, ranks};
use libmp::gdsync::{Buffer, Space};
use libmp::{Deadline, Device, Error, Path, Region, World};

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

#[test]
fn a_put_with_a_signal_is_seen_whole_by_whoever_sees_the_signal() {
    ranks(4, |world| {
        let (rank, size) = (world.rank(), world.size());
        let here: Region<u64> = world.alloc(&Device::Host, size * 3).unwrap();
        let window = world.window(&here, size).unwrap();
        let out: Region<u64> = world.alloc(&Device::Host, 3).unwrap();
        for round in 1..=200u64 {
            out.write(&[round * 10 + rank as u64; 3]).unwrap();
            for other in 0..size {
                window.put_signal(other, rank as u64 * 3, &out, rank, round).unwrap();
            }
            for other in 0..size {
                window.wait_signal(other, round, soon()).unwrap();
                let from = here.slice(other * 3..other * 3 + 3).unwrap();
                assert_eq!(from.to_vec().unwrap(), [round * 10 + other as u64; 3]);
                from.write(&[u64::MAX; 3]).unwrap();
            }
            // Nobody writes again before everybody has read.
            world.barrier().unwrap();
        }
    });
}

#[test]
fn a_get_brings_what_is_there() {
    ranks(3, |world| {
        let mine: Region<u32> = world.alloc(&Device::Host, 2 + world.rank()).unwrap();
        mine.write(&vec![world.rank() as u32; mine.len()]).unwrap();
        let window = world.window(&mine, 0).unwrap();
        world.barrier().unwrap();
        for other in 0..3 {
            assert_eq!(window.len(other).unwrap(), 2 + other as u64);
            let two: Region<u32> = world.alloc(&Device::Host, 2).unwrap();
            window.get(other, other as u64, &two).unwrap();
            assert_eq!(two.to_vec().unwrap(), [other as u32; 2]);
        }
        world.barrier().unwrap();
    });
}

#[test]
fn what_lies_past_the_peers_end_is_refused_with_its_size_and_nothing_is_written() {
    ranks(2, |world| {
        // Rank 0 has more than rank 1: the peer's size counts.
        let mine: Region<u8> = world.alloc(&Device::Host, 100 - 90 * world.rank()).unwrap();
        let window = world.window(&mine, 1).unwrap();
        world.barrier().unwrap();
        if world.rank() == 0 {
            let two: Region<u8> = world.alloc(&Device::Host, 2).unwrap();
            two.write(&[1, 1]).unwrap();
            for at in [9, 10, 11, u64::MAX] {
                let error = window.put(1, at, &two).unwrap_err();
                assert!(matches!(error, Error::OutOfRange { size: 10, len: 2, .. }), "{error}");
                assert!(window.get(1, at, &two).is_err());
            }
            assert!(window.put_signal(1, 0, &two, 1, 5).is_err());
            assert!(matches!(window.signal(1, 1, 5), Err(Error::OutOfRange { size: 1, .. })));
            assert!(matches!(window.put(2, 0, &two), Err(Error::NoSuchRank { rank: 2, .. })));
            window.put(1, 8, &two).unwrap();
        }
        world.barrier().unwrap();
        if world.rank() == 1 {
            assert_eq!(mine.to_vec().unwrap(), [0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        }
    });
}

#[test]
fn atomics_of_all_ranks_on_one_word_lose_nothing() {
    let sums = ranks(4, |world| {
        let mine: Region<u64> = world.alloc(&Device::Host, 2).unwrap();
        let window = world.window(&mine, 0).unwrap();
        world.barrier().unwrap();
        let mut taken = 0u64;
        for _ in 0..2000 {
            taken += window.fetch_add(0, 1, 1).unwrap();
            loop {
                let seen = window.fetch_add(0, 0, 0).unwrap();
                if window.compare_swap(0, 0, seen, seen + 3).unwrap() == seen {
                    break;
                }
            }
        }
        world.barrier().unwrap();
        if world.rank() == 0 {
            assert_eq!(mine.to_vec().unwrap(), [3 * 8000, 8000]);
            assert_eq!(window.swap(0, 1, 7).unwrap(), 8000);
            assert_eq!(mine.to_vec().unwrap()[1], 7);
        }
        taken
    });
    assert_eq!(sums.iter().sum::<u64>(), 7999 * 8000 / 2, "every ticket was drawn once");
}

#[test]
fn all_ranks_add_to_one_signal_by_host_and_stream_and_its_sum_says_that_all_their_puts_are_there() {
    const ROUNDS: u64 = 50;
    ranks(3, |world| {
        let (rank, size) = (world.rank(), world.size());
        let here: Region<u64> = world.alloc(&Device::Host, 2 * size).unwrap();
        let mine: Region<u64> = world.alloc(&Device::Host, 1).unwrap();
        let window = world.window(&here, 2).unwrap();
        let stream = world.stream(&Device::Host).unwrap();
        for round in 1..=ROUNDS {
            mine.write(&[round]).unwrap();
            for other in 0..size {
                window.put_signal_add(other, rank as u64, &mine, 0, 2).unwrap();
                window.put_on(&stream, other, (size + rank) as u64, &mine).unwrap();
                window.signal_add_on(&stream, other, 0, 3).unwrap();
                window.signal_add(other, 1, 1).unwrap();
            }
            let all = size as u64;
            window.wait_signal(0, 5 * all * round, soon()).unwrap();
            window.wait_signal(1, all * round, soon()).unwrap();
            assert_eq!(here.to_vec().unwrap(), vec![round; 2 * size]);
            world.synchronize(&stream, soon()).unwrap();
            world.barrier().unwrap();
            assert_eq!(window.read_signal(0).unwrap(), 5 * all * round, "nothing is added twice");
            world.barrier().unwrap();
        }
        assert!(matches!(window.signal_add(0, 2, 1), Err(Error::OutOfRange { at: 2, .. })));
    });
}

#[test]
fn a_window_on_streams_orders_puts_before_signals() {
    ranks(2, |world| {
        let here: Region<u64> = world.alloc(&Device::Host, 100).unwrap();
        let window = world.window(&here, 2).unwrap();
        let out: Region<u64> = world.alloc(&Device::Host, 100).unwrap();
        let copy: Region<u64> = world.alloc(&Device::Host, 100).unwrap();
        let stream = world.stream(&Device::Host).unwrap();
        for round in 1..=100u64 {
            if world.rank() == 0 {
                out.write(&[round; 100]).unwrap();
                window.put_on(&stream, 1, 0, &out).unwrap();
                window.signal_on(&stream, 1, 0, round).unwrap();
                window.wait_signal_on(&stream, 1, round).unwrap();
            } else {
                window.wait_signal_on(&stream, 0, round).unwrap();
                window.get_on(&stream, 1, 0, &copy).unwrap();
                window.signal_on(&stream, 0, 1, round).unwrap();
            }
            world.synchronize(&stream, soon()).unwrap();
            if world.rank() == 1 {
                assert_eq!(copy.to_vec().unwrap(), [round; 100]);
            }
        }
        assert_eq!(window.read_signal(1 - world.rank()).unwrap(), 100);
    });
}

#[test]
fn more_puts_and_gets_than_a_queue_holds_are_enqueued_on_a_stream() {
    ranks(2, |world| {
        let mine: Region<u64> = world.alloc(&Device::Host, 1001).unwrap();
        let window = world.window(&mine, 1).unwrap();
        let stream = world.stream(&Device::Host).unwrap();
        let other = 1 - world.rank();
        let (out, back): (Region<u64>, Region<u64>) =
            (world.alloc(&Device::Host, 1).unwrap(), world.alloc(&Device::Host, 1).unwrap());
        for round in 0..1000u64 {
            stream.write64(&out.buffer().word(0).unwrap(), round + 1).unwrap();
            window.put_on(&stream, other, round, &out).unwrap();
            if round % 3 == 0 {
                // The put is there when the stream goes on.
                window.get_on(&stream, other, round, &back).unwrap();
                window.put_on(&stream, other, 1000, &back).unwrap();
            }
        }
        window.signal_on(&stream, other, 0, 1).unwrap();
        window.wait_signal(0, 1, soon()).unwrap();
        let expected: Vec<u64> = (1..=1000).chain([1000]).collect();
        assert_eq!(mine.to_vec().unwrap(), expected);
        world.synchronize(&stream, soon()).unwrap();
    });
}

#[test]
fn a_window_that_a_rank_has_dropped_can_be_written_until_the_others_have_dropped_it() {
    ranks(2, |world| {
        let mine: Region<u64> = world.alloc(&Device::Host, 1000).unwrap();
        let window = world.window(&mine, 1).unwrap();
        if world.rank() == 0 {
            drop((window, mine));
            world.barrier().unwrap();
        } else {
            world.barrier().unwrap();
            for value in 1..100 {
                window.put_signal(0, 0, &mine, 0, value).unwrap();
            }
        }
        world.barrier().unwrap();
    });
}

#[test]
fn memory_that_nobody_can_map_fails_on_every_rank_with_the_rank_and_goes_through_a_nic() {
    ranks(2, |world| {
        let space = if world.rank() == 1 { Space::Host } else { Space::Pinned };
        let region = Region::from_buffer(Buffer::<u8>::new(&Device::Host, space, 8).unwrap());
        let opened = world.window(&region, 0);
        if world.path(1 - world.rank()).unwrap() == Path::Direct {
            let error = opened.unwrap_err();
            assert!(matches!(error, Error::Mismatch { .. }));
            assert!(error.to_string().contains("rank 1: "), "{error}");
        } else {
            let (window, source) = (opened.unwrap(), world.alloc(&Device::Host, 8).unwrap());
            source.write(&[7; 8]).unwrap();
            window.put(1 - world.rank(), 0, &source).unwrap();
            world.barrier().unwrap();
            assert_eq!(region.to_vec().unwrap(), [7; 8]);
        }
        world.barrier().unwrap();
    });
}

#[test]
fn ranks_that_name_different_numbers_of_signals_hear_both() {
    ranks(2, |world| {
        let region: Region<u8> = world.alloc(&Device::Host, 8).unwrap();
        let error = world.window(&region, 3 + world.rank()).unwrap_err();
        let (mine, theirs) = (3 + world.rank(), 4 - world.rank());
        let text = format!("{mine} signals here, {theirs} of rank {}", 1 - world.rank());
        assert!(error.to_string().contains(&text), "{error}");
        world.barrier().unwrap();
    });
}

#[test]
fn a_flush_waits_for_what_a_stream_has_signalled() {
    ranks(2, |world| {
        let here: Region<u64> = world.alloc(&Device::Host, 1).unwrap();
        let window = world.window(&here, 1).unwrap();
        let stream = world.stream(&Device::Host).unwrap();
        let other = 1 - world.rank();
        for round in 1..=20 {
            window.signal_on(&stream, other, 0, round).unwrap();
            world.synchronize(&stream, soon()).unwrap();
            window.flush(other).unwrap();
            world.barrier().unwrap();
            assert_eq!(window.read_signal(0).unwrap(), round, "the other's is here");
            world.barrier().unwrap();
        }
        assert!(window.flush(2).is_err());
    });
}

#[test]
fn a_signal_that_never_comes_ends_with_the_deadline_or_the_world() {
    on_every_path(2).for_each(a_signal_that_never_comes);
}

fn a_signal_that_never_comes(worlds: Vec<World>) {
    let texts = on_threads(worlds, |world| {
        let region: Region<u8> = world.alloc(&Device::Host, 0).unwrap();
        let window = world.window(&region, 3).unwrap();
        let error =
            window.wait_signal(2, 5, Deadline::after(Duration::from_millis(10))).unwrap_err();
        assert!(matches!(error, Error::Late { tag: 2, expected: 5, seen: 0, .. }), "{error}");
        world.barrier().unwrap();
        if world.rank() == 0 {
            std::thread::sleep(Duration::from_millis(20));
            world.abort("no");
        }
        window.wait_signal(2, 5, soon()).unwrap_err().to_string()
    });
    assert!(texts.iter().all(|text| text.contains("rank 0 on ") && text.contains("signal tag 2")));
}
