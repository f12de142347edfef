//! One-sided operations between ranks that are threads, on every path.

mod common;
#[path = "common/devices.rs"]
#[macro_use]
mod devices;

use std::time::Duration;

use common::{on_every_path, on_threads, paths, ranks};
use libmp::gdsync::{Buffer, Rows, Space, Until};
use libmp::{AtomicNumber, AtomicOp, Deadline, Device, Error, Path, Region, World};

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

fn put_and_get(world: &World, device: &Device) {
    let me = world.rank();
    // Two elements and one more a rank, and one for each rank to put.
    let mine: Region<u32> = world.alloc(device, 2 + me + 3).unwrap();
    mine.write(&vec![me as u32; mine.len()]).unwrap();
    let window = world.window(&mine, 0).unwrap();
    let [one, two] = [1, 2].map(|len| world.alloc::<u32>(device, len).unwrap());
    one.write(&[50 + me as u32]).unwrap();
    world.barrier().unwrap();
    for other in 0..3 {
        assert_eq!(window.len(other).unwrap(), 2 + other as u64 + 3);
        two.write(&[7; 2]).unwrap();
        window.get(other, other as u64, &two).unwrap();
        assert_eq!(two.to_vec().unwrap(), [other as u32; 2]);
        window.put(other, (2 + other + me) as u64, &one).unwrap();
    }
    world.barrier().unwrap();
    let kept = vec![me as u32; 2 + me];
    assert_eq!(mine.to_vec().unwrap(), [kept, vec![50, 51, 52]].concat());
    world.barrier().unwrap();
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
fn memory_and_signals_of_a_rank_are_reached_where_no_nic_is_between() {
    ranks(2, |world| {
        let (me, other) = (world.rank(), 1 - world.rank());
        let mine: Region<u64> = world.alloc(&Device::Host, 4).unwrap();
        let window = world.window(&mine, 2).unwrap();
        let nine: Region<u64> = world.alloc(&Device::Host, 4).unwrap();
        nine.write(&[9; 4]).unwrap();
        world.barrier().unwrap();
        if world.path(other).unwrap() == Path::Direct {
            window.memory_of(other).unwrap().write(&[9; 4]).unwrap();
            window.signal_of(other, 1).unwrap().store(5).unwrap();
        } else {
            assert!(matches!(window.memory_of(other), Err(Error::NoPath { .. })));
            assert!(matches!(window.signal_of(other, 1), Err(Error::NoPath { .. })));
            window.put_signal(other, 0, &nine, 1, 5).unwrap();
        }
        window.wait_signal(1, 5, soon()).unwrap();
        assert_eq!(window.signal_of(me, 1).unwrap().load().unwrap(), 5);
        assert_eq!(window.memory_of(me).unwrap().to_vec().unwrap(), [9; 4]);
        assert!(matches!(window.signal_of(me, 2), Err(Error::OutOfRange { .. })));
        assert!(matches!(window.memory_of(2), Err(Error::NoSuchRank { rank: 2, .. })));
        world.barrier().unwrap();
    });
}

/// Every operation of the host and of a stream on one word, against the plain one.
fn change_each<V: AtomicNumber + PartialEq + std::fmt::Debug>(
    world: &World,
    device: &Device,
    steps: &[(AtomicOp<V>, V)],
) {
    let share: Region<u8> = world.alloc(device, 24).unwrap();
    let window = world.window(&share, 0).unwrap();
    let stream = world.stream(device).unwrap();
    let other = (world.rank() + 1) % world.size();
    let held: Region<V> = world.alloc(device, 1).unwrap();
    world.barrier().unwrap();
    // A word of 32 bits is the second half of eight bytes, whose first half stays.
    let at = 16 - size_of::<V>() as u64;
    for by_stream in [false, true] {
        let mut before = window.atomic(other, at, AtomicOp::Swap(V::zeroed())).unwrap();
        before = if by_stream { V::zeroed() } else { before };
        assert_eq!(before, V::zeroed());
        for (op, after) in steps {
            let seen = if by_stream {
                window.atomic_on(&stream, other, at, *op, Some(&held)).unwrap();
                world.synchronize(&stream, soon()).unwrap();
                held.to_vec().unwrap()[0]
            } else {
                window.atomic(other, at, *op).unwrap()
            };
            assert_eq!(seen, before, "{op:?}, by a stream: {by_stream}");
            before = window.atomic(other, at, AtomicOp::Fetch).unwrap();
            assert_eq!(before, *after, "{op:?}, by a stream: {by_stream}");
        }
    }
    let bits = |world: &World| world.barrier().map(|()| share.to_vec().unwrap()).unwrap();
    let (all, word) = (bits(world), at as usize..16);
    assert!(all[..word.start].iter().chain(&all[16..]).all(|&byte| byte == 0), "{all:?}");
    window.atomic_on(&stream, other, 0, AtomicOp::<V>::Fetch, None).unwrap();
    world.synchronize(&stream, soon()).unwrap();
    let error = window.atomic(other, at + 1, AtomicOp::<V>::Fetch).unwrap_err();
    assert!(error.to_string().contains("multiple"), "{error}");
    let error = window.atomic(other, 24, AtomicOp::<V>::Fetch).unwrap_err();
    assert!(matches!(error, Error::OutOfRange { size: 24, .. }), "{error}");
    world.barrier().unwrap();
}

fn words_are_changed_in_every_way(world: &World, device: &Device) {
    macro_rules! integers {
        ($($type:ident),+) => { $(
            let most = $type::MAX;
            change_each::<$type>(world, device, &[
                (AtomicOp::Add(12), 12),
                (AtomicOp::And(13), 12),
                (AtomicOp::Or(3), 15),
                (AtomicOp::Xor(9), 6),
                (AtomicOp::Max(7), 7),
                (AtomicOp::Max(6), 7),
                (AtomicOp::Min(5), 5),
                (AtomicOp::Swap(most), most),
                (AtomicOp::Add(2), most.wrapping_add(2)),
                (AtomicOp::Max(0), most.wrapping_add(2).max(0)),
                (AtomicOp::CompareSwap { expected: 99, value: 4 }, most.wrapping_add(2).max(0)),
                (AtomicOp::Swap(99), 99),
                (AtomicOp::CompareSwap { expected: 99, value: 4 }, 4),
            ]);
        )+ };
    }
    integers!(u32, u64, i32, i64);
    macro_rules! floats {
        ($($type:ident),+) => { $(
            change_each::<$type>(world, device, &[
                (AtomicOp::Add(1.5), 1.5),
                (AtomicOp::Add(-2.0), -0.5),
                (AtomicOp::Swap(8.25), 8.25),
                (AtomicOp::Fetch, 8.25),
            ]);
        )+ };
    }
    floats!(f32, f64);
    let share: Region<f32> = world.alloc(device, 1).unwrap();
    let window = world.window(&share, 0).unwrap();
    let error = window.atomic(0, 0, AtomicOp::Min(1.0f32)).unwrap_err();
    assert!(error.to_string().contains("Min of an f32"), "{error}");
}

#[test]
fn words_of_every_width_are_changed_in_every_way_by_the_host_and_by_streams() {
    ranks(2, |world| words_are_changed_in_every_way(world, &Device::Host));
}

fn signals_are_compared(world: &World, device: &Device) {
    let share: Region<u8> = world.alloc(device, 8).unwrap();
    let window = world.window(&share, 3).unwrap();
    let stream = world.stream(device).unwrap();
    let (me, other) = (world.rank(), (world.rank() + 1) % world.size());
    window.signal(other, 1, 6).unwrap();
    window.wait_signal(1, 6, soon()).unwrap();
    for until in
        [Until::Eq(6), Until::Ne(5), Until::Gt(5), Until::Lt(7), Until::Le(6), Until::And(2)]
    {
        window.wait_signal(1, until, soon()).unwrap();
        window.wait_signal_on(&stream, 1, until).unwrap();
    }
    world.synchronize(&stream, soon()).unwrap();
    let short = || Deadline::after(Duration::from_millis(5));
    for until in
        [Until::Eq(5), Until::Ne(6), Until::Gt(6), Until::Lt(6), Until::Le(5), Until::And(9)]
    {
        let error = window.wait_signal(1, until, short()).unwrap_err();
        assert!(matches!(error, Error::Late { seen: 6, .. }), "{until}: {error}");
    }
    assert!(window.wait_signal(1, Until::Lt(0), soon()).unwrap_err().to_string().contains("< 0"));
    // Whichever comes.
    world.barrier().unwrap();
    let any = [(0, Until::Geq(1)), (2, Until::Eq(me as u64 + 1)), (1, Until::Gt(6))];
    assert!(matches!(window.wait_any_signal(&any, short()), Err(Error::Late { .. })));
    world.barrier().unwrap();
    window.signal(other, 2, other as u64 + 1).unwrap();
    assert_eq!(window.wait_any_signal(&any, soon()).unwrap(), 1);
    assert_eq!(window.wait_any_signal(&any[..0], soon()).unwrap(), 0);
    let all = [(1, Until::Eq(6)), (2, Until::Gt(me as u64)), (0, Until::Eq(0))];
    window.wait_all_signals(&all, soon()).unwrap();
    let missing = window.wait_all_signals(&[all[0], (0, Until::Ne(0)), all[1]], short());
    assert!(matches!(missing, Err(Error::Late { tag: 0, seen: 0, .. })), "{missing:?}");
    assert!(matches!(
        window.wait_any_signal(&[(3, 1.into())], soon()),
        Err(Error::OutOfRange { .. })
    ));
    world.barrier().unwrap();
}

#[test]
fn atomics_of_all_ranks_on_one_word_lose_nothing() {
    let make = |world: &World| world.alloc(&Device::Host, 2).unwrap();
    on_every_path(4).for_each(|worlds| draw_tickets(worlds, make, 2000));
}

fn draw_tickets(
    worlds: Vec<World>,
    make: impl Fn(&World) -> Region<u64> + std::marker::Sync,
    turns: u64,
) {
    let sums = on_threads(worlds, |world| {
        let mine = make(&world);
        let window = world.window(&mine, 0).unwrap();
        world.barrier().unwrap();
        let mut taken = 0u64;
        for _ in 0..turns {
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
            assert_eq!(mine.to_vec().unwrap(), [3 * 4 * turns, 4 * turns]);
            assert_eq!(window.swap(0, 1, 7).unwrap(), 4 * turns);
            assert_eq!(mine.to_vec().unwrap()[1], 7);
        }
        world.finish().unwrap();
        taken
    });
    let all = 4 * turns;
    assert_eq!(sums.iter().sum::<u64>(), (all - 1) * all / 2, "every ticket was drawn once");
}

#[test]
fn all_ranks_add_to_one_signal_by_host_and_stream_and_its_sum_says_that_all_their_puts_are_there() {
    ranks(3, |world| all_add_to_one_signal(world, &Device::Host, 50));
}

/// The own one, too.
fn all_add_to_one_signal(world: &World, device: &Device, rounds: u64) {
    let (rank, size) = (world.rank(), world.size());
    let here: Region<u64> = world.alloc(device, 2 * size).unwrap();
    let mine: Region<u64> = world.alloc(device, 1).unwrap();
    let window = world.window(&here, 2).unwrap();
    let stream = world.stream(device).unwrap();
    for round in 1..=rounds {
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
}

fn put_and_signal_on_streams(world: &World, device: &Device) {
    let here: Region<u64> = world.alloc(device, 100).unwrap();
    let window = world.window(&here, 2).unwrap();
    let out: Region<u64> = world.alloc(device, 100).unwrap();
    let copy: Region<u64> = world.alloc(device, 100).unwrap();
    let stream = world.stream(device).unwrap();
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

fn start_puts_and_gets(world: &World, device: &Device) {
    // More than a queue has room for; small ones travel inside it.
    const PUTS: u64 = 1500;
    let (me, other) = (world.rank() as u64, 1 - world.rank());
    let words = |len: usize| world.alloc::<u64>(device, len).unwrap();
    let here = words(PUTS as usize + 8000);
    let window = world.window(&here, 1).unwrap();
    let (out, big, back) = (words(PUTS as usize), words(4000), words(PUTS as usize + 4000));
    out.write(&(0..PUTS).map(|i| 10 * i + me).collect::<Vec<_>>()).unwrap();
    for round in 1..=3u64 {
        for i in 0..PUTS {
            let one = out.slice(i as usize..i as usize + 1).unwrap();
            window.start_put(other, i, &one).unwrap();
        }
        for half in 0..2 {
            big.write(&vec![100 * round + half; 4000]).unwrap();
            window.start_put(other, PUTS + 4000 * half, &big).unwrap();
            // It is written again.
            window.flush(other).unwrap();
        }
        if round % 2 == 0 {
            window.quiet(other).unwrap();
            window.signal(other, 0, round).unwrap();
        } else {
            // Behind all that was started.
            window.put_signal(other, 0, &out.slice(0..1).unwrap(), 0, round).unwrap();
        }
        window.wait_signal(0, round, soon()).unwrap();
        let theirs = (0..PUTS).map(|i| 10 * i + other as u64);
        let halves = [0, 1].map(|half| vec![100 * round + half; 4000]);
        assert_eq!(here.to_vec().unwrap(), theirs.chain(halves.concat()).collect::<Vec<_>>());
        world.barrier().unwrap();
        for i in (0..PUTS).rev() {
            let one = back.slice(i as usize..i as usize + 1).unwrap();
            window.start_get(other, i, &one).unwrap();
        }
        let rest = back.slice(PUTS as usize..back.len()).unwrap();
        window.start_get(other, PUTS + 4000, &rest).unwrap();
        if round % 2 == 0 { window.flush_all() } else { window.quiet_all() }.unwrap();
        let mine = (0..PUTS).map(|i| 10 * i + me).chain(vec![100 * round + 1; 4000]);
        assert_eq!(back.to_vec().unwrap(), mine.collect::<Vec<_>>());
        back.write(&vec![0; back.len()]).unwrap();
        world.barrier().unwrap();
    }
    assert!(matches!(window.flush(2), Err(Error::NoSuchRank { rank: 2, .. })));
    assert!(matches!(window.quiet(2), Err(Error::NoSuchRank { rank: 2, .. })));
    assert!(matches!(window.start_put(other, 9500, &big), Err(Error::OutOfRange { .. })));
}

fn put_and_get_rows(world: &World, device: &Device) {
    let other = 1 - world.rank();
    let stream = world.stream(device).unwrap();
    // In entries, and from and to memory that is registered; more rows than a queue has room for.
    for (len, count, there, near) in
        [(1, 9, 3, 2), (3, 5, 7, 3), (2, 700, 5, 3), (300, 4, 301, 500)]
    {
        let (there_len, near_len) = ((count - 1) * there + len, (count - 1) * near + len);
        let share = world.alloc::<u64>(device, there_len + 2).unwrap();
        let window = world.window(&share, 0).unwrap();
        let [out, back] = [(); 2].map(|()| world.alloc::<u64>(device, near_len).unwrap());
        out.write(&(0..near_len as u64).map(|i| 1000 + i).collect::<Vec<_>>()).unwrap();
        let put = Rows { len, count, to: there, from: near };
        let get = Rows { to: near, from: there, ..put };
        for by_stream in [false, true] {
            share.write(&vec![0; there_len + 2]).unwrap();
            back.write(&vec![7; near_len]).unwrap();
            world.barrier().unwrap();
            if by_stream {
                window.put_on(&stream, other, 1, (&out, put)).unwrap();
                window.get_on(&stream, other, 1, (&back, get)).unwrap();
                world.synchronize(&stream, soon()).unwrap();
            } else {
                window.start_put(other, 1, (&out, put)).unwrap();
                window.quiet(other).unwrap();
                window.get(other, 1, (&back, get)).unwrap();
            }
            world.barrier().unwrap();
            let (mut mine, mut again) = (vec![0; there_len + 2], vec![7; near_len]);
            for (row, i) in (0..count).flat_map(|row| (0..len).map(move |i| (row, i))) {
                let value = 1000 + (row * near + i) as u64;
                (mine[1 + row * there + i], again[row * near + i]) = (value, value);
            }
            assert!(share.to_vec().unwrap() == mine, "{put:?}, by a stream: {by_stream}");
            assert!(back.to_vec().unwrap() == again, "{get:?}, by a stream: {by_stream}");
        }
        let refused = |rows: Rows, at: u64| {
            let errors = [
                window.put(other, at, (&out, rows)),
                window.get(other, at, (&out, Rows { to: rows.from, from: rows.to, ..rows })),
                window.put_on(&stream, other, at, (&out, rows)),
            ];
            for error in errors {
                assert!(matches!(error, Err(Error::OutOfRange { .. })), "{rows:?}: {error:?}");
            }
        };
        refused(put, 3);
        refused(Rows { count: count + 1, ..put }, 0);
        refused(Rows { to: usize::MAX / 2, count: 4, ..put }, 0);
        refused(Rows { from: near + near_len, ..put }, 0);
        window.put(other, 0, (&out, Rows { count: 0, ..put })).unwrap();
        window.get(other, 0, (&out, Rows { len: 0, ..put })).unwrap();
        let counted = &world.counters()[other];
        assert!(counted.puts.bytes >= 8 * 2 * (len * count) as u64, "{counted:?}");
        world.barrier().unwrap();
    }
}

#[test]
fn quiet_waits_for_what_a_stream_has_signalled() {
    ranks(2, |world| {
        let here: Region<u64> = world.alloc(&Device::Host, 1).unwrap();
        let window = world.window(&here, 1).unwrap();
        let stream = world.stream(&Device::Host).unwrap();
        let other = 1 - world.rank();
        for round in 1..=20 {
            window.signal_on(&stream, other, 0, round).unwrap();
            world.synchronize(&stream, soon()).unwrap();
            window.quiet(other).unwrap();
            world.barrier().unwrap();
            assert_eq!(window.read_signal(0).unwrap(), round, "the other's is here");
            world.barrier().unwrap();
        }
        assert!(window.quiet(2).is_err());
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

tests_of_devices! {
    crate::devices::once;
    "needs a GPU":
    a_put_is_there_when_it_returns_and_a_get_brings_what_is_there =
        |device| ranks(3, |world| put_and_get(world, device));
    signals_are_compared_in_every_way_and_one_of_several_is_enough =
        |device| ranks(2, |world| signals_are_compared(world, device));
    a_window_on_streams_orders_puts_before_signals =
        |device| ranks(2, |world| put_and_signal_on_streams(world, device));
    started_puts_and_gets_are_through_when_flush_and_quiet_say_so =
        |device| ranks(2, |world| start_puts_and_gets(world, device));
    rows_are_put_and_got_by_host_and_stream_and_nothing_between_them =
        |device| ranks(2, |world| put_and_get_rows(world, device));
}

on_the_host!();

mod gpu {
    use super::*;

    on_a_gpu!();

    #[test]
    #[ignore = "needs a GPU"]
    fn words_of_every_width_are_changed_in_every_way() {
        let gpu = Device::cuda(0).unwrap();
        for (path, worlds) in paths().into_iter().zip(on_every_path(2)) {
            on_threads(worlds, |world| {
                match path {
                    "auto" => words_are_changed_in_every_way(&world, &gpu),
                    _ => no_word_is_changed_by_a_nic(&world, &gpu),
                }
                world.finish().unwrap();
            });
        }
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn all_ranks_add_to_one_signal_by_host_and_stream() {
        let gpu = Device::cuda(0).unwrap();
        ranks(3, |world| all_add_to_one_signal(world, &gpu, 20));
    }

    /// The memory of a GPU is nothing that a NIC changes. The world goes on.
    fn no_word_is_changed_by_a_nic(world: &World, gpu: &Device) {
        let share: Region<u64> = world.alloc(gpu, 2).unwrap();
        let window = world.window(&share, 0).unwrap();
        let stream = world.stream(gpu).unwrap();
        let other = (world.rank() + 1) % world.size();
        let error = window.atomic(other, 1, AtomicOp::Add(1u64)).unwrap_err().to_string();
        assert!(error.contains("put the window into pinned memory"), "{error}");
        window.atomic_on(&stream, other, 1, AtomicOp::Add(1u64), None).unwrap();
        let error = world.synchronize(&stream, soon()).unwrap_err();
        assert!(!matches!(error, Error::PeerLost { .. }), "{error}");
        world.barrier().unwrap();
        assert_eq!(share.to_vec().unwrap(), [0, 0]);
    }

    /// A NIC changes words of pinned memory.
    #[test]
    #[ignore = "needs a GPU"]
    fn atomics_of_all_ranks_on_one_word_lose_nothing() {
        let gpu = Device::cuda(0).unwrap();
        for (path, worlds) in paths().into_iter().zip(on_every_path(4)) {
            let make = |world: &World| match path {
                "auto" => world.alloc(&gpu, 2).unwrap(),
                _ => Region::from_buffer(gpu.alloc_pinned(2).unwrap()),
            };
            draw_tickets(worlds, make, 100);
        }
    }
}
