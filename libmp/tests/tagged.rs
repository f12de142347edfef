//! Tagged messages on every path: who gets what, what waits for what, and what happens when nobody comes.

mod common;

use std::ptr::NonNull;
use std::time::Duration;

use common::{PASSES, each_path, on_every_path, on_threads, ranks, soon, stay_to_the_end};
use libmp::tagged::{Options, Request, Source, Status, Tag, Tagged, wait_all, wait_any};
use libmp::{Config, Deadline, Device, Error, World};

/// Lengths in bytes around every border of the protocol: the line, the eager limit, pieces of the ring, the ring.
const LENGTHS: [usize; 14] =
    [0, 1, 8, 39, 40, 41, 300, 8191, 8192, 8193, 131_073, 524_288, 524_289, 3_000_001];

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251 + seed * 7) as u8).collect()
}

fn tagged(world: &World) -> Tagged {
    world.tagged(&Options::default()).unwrap()
}

/// So many ranks that are driven by one thread, in the order in which the test wants it.
fn in_hand(path: &str, ranks: usize, options: Options) -> (Vec<World>, Vec<Tagged>) {
    let config = Config::from_variables([("MP_PATH", path)]).unwrap();
    let worlds = World::threads_with_config(ranks, &config).unwrap();
    let all = std::thread::scope(|scope| {
        let all: Vec<_> =
            worlds.iter().map(|world| scope.spawn(move || world.tagged(&options))).collect();
        all.into_iter().map(|it| it.join().unwrap().unwrap()).collect()
    });
    (worlds, all)
}

fn pair(path: &str, options: Options) -> (Vec<World>, [Tagged; 2]) {
    let (worlds, both) = in_hand(path, 2, options);
    (worlds, both.try_into().unwrap())
}

#[test]
fn a_message_of_any_length_arrives_whole_expected_or_not_from_a_slice_a_region_or_itself() {
    ranks(2, |world| {
        let messages = tagged(world);
        let (me, other) = (world.rank(), 1 - world.rank());
        for (number, len) in LENGTHS.into_iter().enumerate() {
            for unexpected in [false, true] {
                let tag = number as u64;
                // A slice from 0 to 1.
                if me == 0 {
                    if !unexpected {
                        world.barrier().unwrap();
                    }
                    let data = bytes(len, number);
                    messages.scope(|scope| {
                        let mut send = scope.isend(&data, other, tag).unwrap();
                        if unexpected {
                            world.barrier().unwrap();
                        }
                        let sent = send.wait(soon()).unwrap();
                        assert_eq!(sent, Status { source: 0, tag, bytes: len });
                    });
                } else {
                    let mut room = vec![0xee; len + 3];
                    let status = if unexpected {
                        world.barrier().unwrap();
                        messages.recv(&mut room, other, tag, soon()).unwrap()
                    } else {
                        messages.scope(|scope| {
                            let mut recv = scope.irecv(&mut room, other, tag).unwrap();
                            world.barrier().unwrap();
                            recv.wait(soon()).unwrap()
                        })
                    };
                    assert_eq!(status, Status { source: 0, tag, bytes: len });
                    assert!(room[..len] == bytes(len, number) && room[len..] == [0xee; 3]);
                }
            }
            // Regions both ways at once, and to itself.
            let region = |seed| {
                let region = world.alloc::<u8>(&Device::Host, len).unwrap();
                region.write(&bytes(len, seed)).unwrap();
                region
            };
            for to in [other, me] {
                let (source, target) = (region(me), region(9));
                let mut both = [
                    messages.isend(&source, to, 77).unwrap(),
                    messages.irecv(&target, to, 77).unwrap(),
                ];
                wait_all(&mut both, soon()).unwrap();
                assert!(target.to_vec().unwrap() == bytes(len, to), "{len} bytes from {to}");
            }
        }
    });
}

#[test]
fn with_the_smallest_rings_and_nothing_unexpected_all_of_it_arrives_too() {
    let smallest =
        Options { eager_limit: 0, unexpected: 0, ring: Some(4096), ..Options::default() };
    let narrow =
        Options { eager_limit: 100, unexpected: 300, ring: Some(4096), ..Options::default() };
    for options in [smallest, narrow] {
        ranks(2, |world| {
            let messages = world.tagged(&options).unwrap();
            let other = 1 - world.rank();
            for round in 0..100 {
                let len = [0, 40, 41, 100, 101, 5000, 20_000][round % 7];
                let (data, mut room) = (bytes(len, round), vec![0; len]);
                messages.scope(|scope| {
                    let mut send = scope.isend(&data, other, 1).unwrap();
                    messages.recv(&mut room, other, Tag::Any, soon()).unwrap();
                    send.wait(soon()).unwrap();
                });
                assert!(room == data, "round {round}, {len} bytes");
            }
        });
    }
}

#[test]
fn messages_do_not_overtake_each_other_whatever_their_lengths() {
    for path in common::paths() {
        let (_worlds, [one, two]) = pair(path, Options::default());
        // Eager behind offered and the other way round, with the same tag.
        let lengths = [3, 20_000, 100, 8193, 8192, 0, 600_000, 41];
        let data: Vec<Vec<u8>> = lengths.iter().map(|&len| bytes(len, len)).collect();
        for posted_first in [false, true] {
            let mut rooms: Vec<Vec<u8>> = lengths.iter().map(|_| vec![0; 600_000]).collect();
            one.scope(|sends| {
                two.scope(|recvs| {
                    let mut sent: Vec<Request<'_>> = Vec::new();
                    let mut posted: Vec<Request<'_>> = Vec::new();
                    let mut send = || {
                        sent.extend(data.iter().map(|data| sends.isend(data, 1, 5).unwrap()));
                    };
                    if !posted_first {
                        send();
                    }
                    // Specific and wildcards in turn.
                    let post = |(number, room)| match number % 3 {
                        0 => recvs.irecv(room, 0, 5).unwrap(),
                        1 => recvs.irecv(room, Source::Any, 5).unwrap(),
                        _ => recvs.irecv(room, 0, Tag::Any).unwrap(),
                    };
                    posted.extend(rooms.iter_mut().map(|room| &mut room[..]).enumerate().map(post));
                    if posted_first {
                        send();
                    }
                    let deadline = soon();
                    let all = sent.iter_mut().chain(&mut posted);
                    for mut left in [all.collect::<Vec<_>>()] {
                        while !left.is_empty() {
                            left.retain_mut(|request| request.test().unwrap().is_none());
                            assert!(!deadline.expired(), "{path}: {left:?} do not end");
                        }
                    }
                    for (request, len) in posted.iter_mut().zip(lengths) {
                        let status = request.test().unwrap().unwrap();
                        assert_eq!(status, Status { source: 0, tag: 5, bytes: len });
                    }
                });
            });
            for (room, data) in rooms.iter().zip(&data) {
                assert!(room.starts_with(data));
            }
        }
    }
}

#[test]
fn the_receive_posted_first_and_the_message_that_came_first_go_together() {
    for path in common::paths() {
        let (_worlds, [one, two]) = pair(path, Options::default());
        let deadline = soon();
        let send = |tag, value: u64| one.send(&[value], 1, tag, deadline).unwrap();
        let mut got = [[0u64; 1]; 4];
        let [a, b, c, d] = &mut got;
        two.scope(|scope| {
            // The one that takes anything was posted before the specific one, and after another.
            let mut posted = [
                scope.irecv(a, 0, 1).unwrap(),
                scope.irecv(b, Source::Any, Tag::Any).unwrap(),
                scope.irecv(c, 0, 2).unwrap(),
                scope.irecv(d, Source::Any, 2).unwrap(),
            ];
            send(2, 20);
            send(1, 10);
            send(2, 21);
            send(2, 22);
            wait_all(&mut posted, deadline).unwrap();
        });
        assert_eq!(got, [[10], [20], [21], [22]], "{path}");
        // What waits: the earliest that fits.
        for (tag, value) in [(3, 30), (4, 40), (3, 31), (5, 50)] {
            send(tag, value);
        }
        let take = |from: Source, tag: Tag| {
            let mut value = [0u64];
            let status = two.recv(&mut value, from, tag, deadline).unwrap();
            (status.tag, value[0])
        };
        assert_eq!(take(Source::Any, Tag::Is(4)), (4, 40));
        assert_eq!(take(Source::Rank(0), Tag::Any), (3, 30));
        assert_eq!(take(Source::Any, Tag::Any), (3, 31));
        assert_eq!(take(Source::Rank(0), Tag::Is(5)), (5, 50));
    }
}

#[test]
fn one_that_takes_from_any_gets_from_each_in_turn() {
    const EACH: u64 = 400;
    const SENDERS: usize = 6;
    for worlds in on_every_path(SENDERS + 1) {
        on_threads(worlds, |world| {
            let messages = tagged(&world);
            if world.rank() > 0 {
                for number in 0..EACH {
                    messages.send(&[number], 0, number % 3, soon()).unwrap();
                }
            } else {
                let mut counts = [0; SENDERS + 1];
                for _ in 0..EACH * SENDERS as u64 {
                    let mut value = [0];
                    let status = messages.recv(&mut value, Source::Any, Tag::Any, soon()).unwrap();
                    // In order from each.
                    assert_eq!((value[0], status.tag), (counts[status.source], value[0] % 3));
                    counts[status.source] += 1;
                }
                assert_eq!(counts[1..], [EACH; SENDERS]);
            }
            world.finish().unwrap();
        });
    }
}

#[test]
fn a_flood_that_waits_is_served_from_all_senders_alike() {
    for (senders, each) in [(8, 200), (64, 100)] {
        // Mapped, so that all of it is there before the receiver looks.
        let (_worlds, all) = in_hand("auto", senders + 1, Options::default());
        for sender in &all[1..] {
            (0..each).for_each(|_| sender.send(&[0u8; 30], 0, 0, soon()).unwrap());
        }
        let mut counts = vec![0usize; senders];
        let mut receive = |count: usize| {
            for _ in 0..count {
                let status = all[0].recv(&mut [0u8; 30], Source::Any, Tag::Any, soon()).unwrap();
                counts[status.source - 1] += 1;
            }
            counts.clone()
        };
        // A quarter of all: twice a fair share is half of what one has sent.
        let quarter = receive(senders * each / 4);
        assert!(quarter.iter().all(|count| *count <= each / 2), "{quarter:?}");
        let half = receive(senders * each / 4);
        assert!(half.iter().all(|count| *count >= each / 4), "{half:?}");
    }
}

#[test]
fn a_hundred_thousand_posted_and_a_hundred_thousand_unexpected_find_each_other() {
    const COUNT: u64 = 100_000;
    let options = Options { unexpected: 64 << 20, ..Options::default() };
    let (worlds, [one, two]) = pair("auto", options);
    let region = |len| worlds[1].alloc::<u64>(&Device::Host, len).unwrap();
    let into = region(COUNT as usize);
    let places: Vec<_> = (0..COUNT as usize).map(|at| into.slice(at..at + 1).unwrap()).collect();
    for posted_first in [true, false] {
        let post = |tag: u64| two.irecv(&places[tag as usize], Source::Any, tag).unwrap();
        let mut recvs: Vec<Request<'_>> = Vec::new();
        if posted_first {
            recvs.extend((0..COUNT).map(post));
        }
        // The last first; who takes them is the same thread.
        for tag in (0..COUNT).rev() {
            one.send(&[tag + u64::from(posted_first)], 1, tag, soon()).unwrap();
            if tag % 16 == 0 {
                let _ = two.iprobe(0, COUNT).unwrap();
            }
        }
        if !posted_first {
            recvs.extend((0..COUNT).map(post));
        }
        for (status, tag) in wait_all(&mut recvs, soon()).unwrap().into_iter().zip(0..) {
            assert_eq!(status, Status { source: 0, tag, bytes: 8 });
        }
        let got = into.to_vec().unwrap();
        assert!(got.iter().zip(0..).all(|(got, tag)| *got == tag + u64::from(posted_first)));
    }
}

#[test]
fn a_prepared_receive_is_started_a_million_times() {
    let (worlds, [one, two]) = pair("auto", Options::default());
    let [source, target] =
        [0, 1].map(|at: usize| worlds[at].alloc::<u64>(&Device::Host, 1).unwrap());
    let mut send = one.send_init(&source, 1, 1).unwrap();
    let mut recv = two.recv_init(&target, 0, Tag::Any).unwrap();
    let (from, to) = (source.buffer().word(0).unwrap(), target.buffer().word(0).unwrap());
    for round in 1..=1_000_000 {
        from.store(round).unwrap();
        recv.start().unwrap();
        send.start().unwrap();
        recv.wait(soon()).unwrap();
        send.wait(soon()).unwrap();
        assert_eq!(to.load(), Some(round));
    }
}

#[test]
fn tickets_are_told_once_in_their_order_and_what_is_over_is_refused() {
    for path in common::paths() {
        let (_worlds, [one, two]) = pair(path, Options::default());
        let (mut out, mut into) = ([[1u8; 8], [2; 8], [3; 8]], [[0u8; 8]; 3]);
        let memory = |array: &mut [u8; 8]| (std::ptr::NonNull::from(array).cast::<u8>(), 8);
        // SAFETY: the arrays outlive all that is started here.
        let recv =
            |array: &mut [u8; 8], tag| unsafe { two.start_recv(memory(array), 0, tag).unwrap() };
        let tickets: Vec<_> =
            into.iter_mut().zip(0..).map(|(it, tag)| recv(it, Tag::Is(tag))).collect();
        assert_eq!(two.finished(tickets[2]).unwrap(), None);
        for (tag, array) in out.iter_mut().enumerate().rev() {
            // SAFETY: as above.
            let ticket = unsafe { one.start_send(memory(array), 1, tag as u64).unwrap() };
            assert!(ticket.is_none(), "there is room for it");
        }
        let mut told = Vec::new();
        two.finish(tickets.iter().copied(), soon(), |status| told.push(status.tag)).unwrap();
        assert_eq!((told, into), (vec![0, 1, 2], out));
        for over in tickets {
            let refused = two.finish([over], soon(), |_| {});
            assert!(matches!(refused, Err(Error::Mismatch { .. })), "{refused:?}");
            assert!(matches!(two.finished(over), Err(Error::Mismatch { .. })));
            assert!(matches!(two.request(over), Err(Error::Mismatch { .. })));
        }
        // Too long; too late, which says what is missing; and taken back as a request.
        let short = recv(&mut into[0], Tag::Any);
        one.send(&[0u8; 9], 1, 7, soon()).unwrap();
        let error = two.finish([short], soon(), |_| panic!("it is too long")).unwrap_err();
        assert!(matches!(error, Error::Truncated { sent: 9, posted: 8, .. }), "{error}");
        let late = recv(&mut into[0], Tag::Any);
        let error = two.finish([late], Deadline::after(Duration::ZERO), |_| {}).unwrap_err();
        assert!(error.to_string().contains("receive of any tag from rank 0"), "{error}");
        assert!(two.request(late).unwrap().cancel());
    }
}

#[test]
fn a_message_that_is_too_long_fails_its_receive_and_nothing_else() {
    for path in common::paths() {
        let (_worlds, [one, two]) = pair(path, Options::default());
        for (sent, room) in [(9, 8), (500, 100), (8192, 0), (100_000, 99_999)] {
            for posted_first in [false, true] {
                let data = bytes(sent, 1);
                one.scope(|sends| {
                    two.scope(|recvs| {
                        let mut space = vec![0u8; room];
                        // Boxed, for it has to live as long as the scope.
                        let space: &mut [u8] =
                            Box::leak(std::mem::take(&mut space).into_boxed_slice());
                        let mut send = None;
                        if !posted_first {
                            send = Some(sends.isend(&data, 1, 3).unwrap());
                        }
                        let mut recv = recvs.irecv(space, 0, Tag::Any).unwrap();
                        let mut send = send.unwrap_or_else(|| sends.isend(&data, 1, 3).unwrap());
                        let deadline = soon();
                        let error = loop {
                            send.test().unwrap();
                            match recv.test() {
                                Ok(None) => assert!(!deadline.expired()),
                                Ok(Some(status)) => panic!("{status:?} of {sent} into {room}"),
                                Err(error) => break error,
                            }
                        };
                        let text = error.to_string();
                        assert!(matches!(error, Error::Truncated { .. }), "{text}");
                        let told = format!(
                            "a message of {sent} bytes for a posted buffer of {room} bytes"
                        );
                        assert!(
                            text.contains(&told) && text.contains("tag 3 from rank 0"),
                            "{text}"
                        );
                        // The sender's is complete, and the next one comes whole.
                        while send.test().unwrap().is_none() {
                            assert!(!deadline.expired());
                        }
                    });
                });
                one.send(&[7u64], 1, 4, soon()).unwrap();
                let mut next = [0u64];
                two.recv(&mut next, 0, Tag::Any, soon()).unwrap();
                assert_eq!(next, [7]);
            }
        }
    }
}

#[test]
fn what_may_lie_unexpected_is_bounded_and_senders_wait_whatever_the_order_of_the_receives() {
    const COUNT: usize = 300;
    const LEN: usize = 1000;
    each_path(|| {
        let worlds = World::threads_with_config(2, &common::config()).unwrap();
        stay_to_the_end(worlds, |world| {
            let options = Options { unexpected: 20_000, ..Options::default() };
            let messages = world.tagged(&options).unwrap();
            if world.rank() == 0 {
                let data: Vec<Vec<u8>> = (0..COUNT).map(|number| bytes(LEN, number)).collect();
                messages.scope(|scope| {
                    let send = |(tag, data)| scope.isend(data, 1, tag).unwrap();
                    let mut sends: Vec<_> =
                        (0..).zip(data.iter().map(|data| &data[..])).map(send).collect();
                    let complete = sends.iter().filter(|send| !send.is_active()).count();
                    // As many as may lie there, and no more.
                    assert!((15..=20).contains(&complete), "{complete} went");
                    world.barrier().unwrap();
                    wait_all(&mut sends, soon()).unwrap();
                });
            } else {
                world.barrier().unwrap();
                for tag in (0..COUNT).rev() {
                    let mut room = vec![0; LEN];
                    messages.recv(&mut room, 0, tag as u64, soon()).unwrap();
                    assert!(room == bytes(LEN, tag), "message {tag}");
                }
            }
        });
    });
}

#[test]
fn two_that_send_first_and_then_receive_meet_if_they_do_not_wait_for_the_sends() {
    ranks(2, |world| {
        let messages = tagged(world);
        let other = 1 - world.rank();
        for len in [100, 8192, 2_000_000] {
            let (data, mut room) = (bytes(len, world.rank()), vec![0; len]);
            if len <= 8192 {
                messages.send(&data, other, 1, soon()).unwrap();
                messages.recv(&mut room, other, 1, soon()).unwrap();
            } else {
                messages.scope(|scope| {
                    let mut sends = [
                        scope.isend(&data, other, 1).unwrap(),
                        scope.isend(&data[..len / 2], other, 2).unwrap(),
                    ];
                    messages.recv(&mut room, other, 1, soon()).unwrap();
                    let mut half = vec![0; len / 2];
                    messages.recv(&mut half, other, 2, soon()).unwrap();
                    assert!(half == room[..len / 2]);
                    wait_all(&mut sends, soon()).unwrap();
                });
            }
            assert!(room == bytes(len, other));
        }
    });
}

#[test]
fn two_long_sends_that_wait_for_each_other_end_at_their_deadlines_and_say_why() {
    each_path(|| {
        let worlds = World::threads_with_config(2, &common::config()).unwrap();
        stay_to_the_end(worlds, |world| {
            let messages = tagged(world);
            let other = 1 - world.rank();
            let data = bytes(100_000, world.rank());
            let error = messages.send(&data, other, 4, Deadline::after(PASSES)).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, Error::Waits { .. }), "{text}");
            assert!(text.contains(&format!("send of tag 4 to rank {other}")), "{text}");
            assert!(text.contains("0 of 100000 bytes"), "{text}");
            assert!(text.contains(&format!("rank {other} has posted no receive for it")), "{text}");
            drop(data);
            world.barrier().unwrap();
            // It has gone on from a copy.
            let mut room = vec![0; 100_000];
            messages.recv(&mut room, other, 4, soon()).unwrap();
            assert!(room == bytes(100_000, other));
            world.barrier().unwrap();
        });
    });
}

#[test]
fn a_receive_that_nobody_serves_ends_at_its_deadline_and_says_what_has_come() {
    for path in common::paths() {
        let (_worlds, [one, two]) = pair(path, Options::default());
        one.send(&[1u8], 1, 8, soon()).unwrap();
        let mut room = [0u8; 16];
        let passes = Deadline::after(PASSES);
        let error = two.recv(&mut room, 0, 9, passes).unwrap_err().to_string();
        assert!(error.contains("receive of tag 9 from rank 0"), "{error}");
        assert!(error.contains("0 of 16 bytes"), "{error}");
        assert!(error.contains("what has come is tag 8 from rank 0"), "{error}");
        let error = two.probe(1, Tag::Any, Deadline::after(Duration::ZERO)).unwrap_err();
        assert!(error.to_string().contains("probe for any tag from rank 1"), "{error}");
        // It is taken back: the next one gets what comes.
        one.send(&[9u8], 1, 9, soon()).unwrap();
        two.recv(&mut room[..1], 0, 9, soon()).unwrap();
        assert_eq!(room[0], 9);
    }
}

#[test]
fn a_probe_says_what_a_receive_would_get_and_a_matched_one_keeps_it_from_others() {
    for path in common::paths() {
        let (_worlds, [one, two]) = pair(path, Options::default());
        assert_eq!(two.iprobe(Source::Any, Tag::Any).unwrap(), None);
        let long = bytes(50_000, 3);
        one.scope(|scope| {
            let mut first = scope.isend(&long, 1, 6).unwrap();
            one.send(&[5u8; 3], 1, 6, soon()).unwrap();
            one.send(&[5u8; 100], 1, 7, soon()).unwrap();
            let status = two.probe(Source::Any, 6, soon()).unwrap();
            assert_eq!(status, Status { source: 0, tag: 6, bytes: 50_000 });
            let long_one = two.mprobe(0, Tag::Any, soon()).unwrap();
            assert_eq!(long_one.status(), status);
            // Another receive gets the next one; another thread what was taken.
            let got = two.recv(&mut [0u8; 100], 0, 6, soon()).unwrap();
            assert_eq!(got.bytes, 3);
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    let mut room = vec![0; 50_000];
                    long_one.recv(&mut room, soon()).unwrap();
                    assert!(room == long);
                });
                first.wait(soon()).unwrap();
            });
            // What is dropped is lost, and its sender does not wait for it.
            let mut second = scope.isend(&long, 1, 8).unwrap();
            drop(two.mprobe(0, 7, soon()).unwrap());
            drop(two.mprobe(0, 8, soon()).unwrap());
            second.wait(soon()).unwrap();
        });
        assert!(two.improbe(Source::Any, Tag::Any).unwrap().is_none());
    }
}

#[test]
fn tags_are_all_64_bits_and_ranks_those_of_the_communicator() {
    ranks(3, |world| {
        let messages = tagged(world);
        for tag in [0, 1, u64::from(u32::MAX), 1 << 48, u64::MAX] {
            messages.send(&[tag], world.rank(), tag, soon()).unwrap();
            let mut got = [0];
            assert_eq!(messages.recv(&mut got, Source::Any, tag, soon()).unwrap().tag, tag);
            assert_eq!(got, [tag]);
        }
        let refused = messages.send(&[1u8], 3, 0, soon()).unwrap_err().to_string();
        assert!(refused.contains("rank 3 does not exist"), "{refused}");
        assert!(messages.recv(&mut [0u8], 3, 0, soon()).is_err());
        // Another communicator, in the other order: its rank 0 is the world's last, and its messages are its own.
        let turned = world.split(Some(0), -(world.rank() as i64)).unwrap().unwrap();
        let others = turned.tagged(&Options::default()).unwrap();
        messages.send(&[1u8], (world.rank() + 1) % 3, 5, soon()).unwrap();
        others.send(&[2u8], (others.rank() + 1) % 3, 5, soon()).unwrap();
        let (mut first, mut second) = ([0u8], [0u8]);
        let status = others.recv(&mut second, Source::Any, 5, soon()).unwrap();
        assert_eq!((second, status.source), ([2], (others.rank() + 2) % 3));
        let status = messages.recv(&mut first, Source::Any, 5, soon()).unwrap();
        assert_eq!((first, status.source), ([1], (world.rank() + 2) % 3));
    });
}

#[test]
fn prepared_ones_are_started_again_and_again() {
    ranks(2, |world| {
        let messages = tagged(world);
        let other = 1 - world.rank();
        for len in [8, 1000, 20_000] {
            let [source, target] = [(); 2].map(|()| world.alloc::<u8>(&Device::Host, len).unwrap());
            let mut send = messages.send_init(&source, other, 2).unwrap();
            let mut recv = messages.recv_init(&target, Source::Any, 2).unwrap();
            assert_eq!(recv.test().unwrap(), Some(Status::default()), "nothing is under way");
            for round in 0..200 {
                source.write(&bytes(len, round)).unwrap();
                recv.start().unwrap();
                assert!(matches!(recv.start(), Err(Error::Started { .. })));
                send.start().unwrap();
                let statuses = wait_all([&mut recv, &mut send], soon()).unwrap();
                assert_eq!(statuses[0], Status { source: other, tag: 2, bytes: len });
                assert!(target.to_vec().unwrap() == bytes(len, round), "round {round}");
            }
            let mut once = messages.isend(&source, world.rank(), 3).unwrap();
            assert!(matches!(once.start(), Err(Error::Started { .. } | Error::Mismatch { .. })));
            messages.recv(&mut vec![0u8; len], world.rank(), 3, soon()).unwrap();
            once.wait(soon()).unwrap();
        }
    });
}

#[test]
fn a_receive_is_taken_back_until_it_has_got_something_and_requests_may_be_dropped_or_forgotten() {
    for path in common::paths() {
        let (worlds, [one, two]) = pair(path, Options::default());
        let region = worlds[1].alloc::<u64>(&Device::Host, 1).unwrap();
        let mut recv = two.irecv(&region, 0, 1).unwrap();
        assert!(recv.cancel() && recv.is_cancelled() && !recv.cancel());
        assert_eq!(recv.wait(soon()).unwrap(), Status::default());
        drop(two.irecv(&region, 0, 1).unwrap());
        let mut slice = [0u64];
        two.scope(|scope| std::mem::forget(scope.irecv(&mut slice, 0, 1).unwrap()));
        // None of the three takes it.
        one.send(&[5u64], 1, 1, soon()).unwrap();
        let mut recv = two.irecv(&region, 0, 1).unwrap();
        recv.wait(soon()).unwrap();
        assert!(!recv.cancel() && !recv.is_cancelled());
        assert_eq!((region.to_vec().unwrap(), slice), (vec![5], [0]));
        // A send whose slice is gone, forgotten; and one of a region that nobody else holds.
        let long = bytes(300_000, 4);
        one.scope(|scope| {
            let data: &[u8] = &long;
            std::mem::forget(scope.isend(data, 1, 2).unwrap());
        });
        drop(long);
        let own = worlds[0].alloc::<u8>(&Device::Host, 300_000).unwrap();
        own.write(&bytes(300_000, 5)).unwrap();
        drop(one.isend(&own, 1, 3).unwrap());
        drop(own);
        for (tag, seed) in [(3, 5), (2, 4)] {
            let room = worlds[1].alloc::<u8>(&Device::Host, 300_000).unwrap();
            let mut recv = two.irecv(&room, 0, tag).unwrap();
            let deadline = soon();
            while recv.test().unwrap().is_none() {
                assert_eq!(one.iprobe(1, Tag::Any).unwrap(), None);
                assert!(!deadline.expired(), "{path}: message {tag}");
            }
            assert!(room.to_vec().unwrap() == bytes(300_000, seed));
        }
    }
}

#[test]
fn one_of_several_is_waited_for_and_each_is_seen_once() {
    ranks(2, |world| {
        let messages = tagged(world);
        let regions: Vec<_> =
            (0..20).map(|_| world.alloc::<u64>(&Device::Host, 1).unwrap()).collect();
        if world.rank() == 0 {
            for tag in (0..20u64).rev() {
                messages.send(&[tag * 3], 1, tag, soon()).unwrap();
            }
        } else {
            let post = |(tag, region)| messages.irecv(region, 0, tag).unwrap();
            let mut recvs: Vec<_> = (0..).zip(&regions).map(post).collect();
            let mut seen = vec![false; 20];
            while let Some((number, status)) = wait_any(&mut recvs, soon()).unwrap() {
                assert!(!std::mem::replace(&mut seen[number], true));
                assert_eq!(status.tag, number as u64);
                assert_eq!(regions[number].to_vec().unwrap(), [status.tag * 3]);
            }
            assert_eq!(seen, [true; 20]);
        }
    });
}

#[test]
fn threads_of_a_rank_send_and_receive_with_tags_of_their_own() {
    const THREADS: u64 = 8;
    ranks(2, |world| {
        let messages = tagged(world);
        let other = 1 - world.rank();
        std::thread::scope(|scope| {
            for tag in 0..THREADS {
                let messages = &messages;
                scope.spawn(move || {
                    for round in 0..60 {
                        let len = [8, 500, 30_000][round % 3] + tag as usize;
                        let (data, mut room) = (bytes(len, round + tag as usize), vec![0; len]);
                        messages.scope(|scope| {
                            let mut both = [
                                scope.irecv(&mut room, other, tag).unwrap(),
                                scope.isend(&data, other, tag).unwrap(),
                            ];
                            wait_all(&mut both, soon()).unwrap();
                        });
                        assert!(room == data, "thread {tag}, round {round}");
                    }
                });
            }
        });
    });
}

#[test]
fn messages_move_on_in_whatever_call_of_their_rank_waits() {
    ranks(2, |world| {
        let messages = tagged(world);
        let region = world.alloc::<u8>(&Device::Host, 700_000).unwrap();
        if world.rank() == 0 {
            region.write(&bytes(700_000, 1)).unwrap();
            let mut send = messages.isend(&region, 1, 1).unwrap();
            // The other rank receives it while this one waits here.
            world.barrier().unwrap();
            send.wait(soon()).unwrap();
        } else {
            messages.irecv(&region, 0, 1).unwrap().wait(soon()).unwrap();
            assert!(region.to_vec().unwrap() == bytes(700_000, 1));
            world.barrier().unwrap();
        }
    });
}

#[test]
fn options_that_differ_or_make_no_sense_are_refused_everywhere() {
    let worlds = World::threads(2).unwrap();
    on_threads(worlds, |world| {
        let options = Options { eager_limit: 100 + world.rank(), ..Options::default() };
        let error = world.tagged(&options).unwrap_err().to_string();
        assert!(error.contains("100") && error.contains("101"), "{error}");
        let ring = (world.rank() == 1).then_some(5000);
        let error = world.tagged(&Options { ring, ..Options::default() }).unwrap_err().to_string();
        assert!(error.contains("a ring of 5000 bytes: a power of two"), "{error}");
        let chunk = (world.rank() == 0).then_some(100);
        let error = world.tagged(&Options { chunk, ..Options::default() }).unwrap_err().to_string();
        assert!(error.contains("a chunk of 100 bytes: from 4096"), "{error}");
        world.finish().unwrap();
    });
}

/// What a receive that is no request gets, as soon as there is something.
fn get_soon(
    messages: &Tagged,
    room: &mut [u8],
    from: Source,
    tag: Tag,
) -> Result<Option<Status>, Error> {
    let bytes = (NonNull::from(&mut *room).cast::<u8>(), room.len());
    // SAFETY: the bytes are this call's.
    unsafe { messages.recv_soon(bytes, from, tag) }
}

#[test]
fn a_receive_that_is_no_request_gets_what_a_request_would_or_leaves_it() {
    for path in common::paths() {
        println!("MP_PATH={path}");
        let (_worlds, [one, two]) = pair(path, Options::default());
        let get = |room: &mut [u8], tag: Tag| {
            let deadline = soon();
            loop {
                match get_soon(&two, room, Source::Rank(0), tag) {
                    Ok(None) => assert!(!deadline.expired(), "it does not come"),
                    other => return other,
                }
            }
        };
        for (tag, len) in (0..).zip([0, 1, 8, 39, 40, 41, 264, 265, 300, 8191, 8192]) {
            one.send(&bytes(len, 2), 1, tag, soon()).unwrap();
            let mut room = vec![0xee; len + 3];
            let status = get(&mut room, if len % 2 == 0 { Tag::Any } else { Tag::Is(tag) });
            assert_eq!(status.unwrap(), Some(Status { source: 0, tag, bytes: len }));
            assert!(room[..len] == bytes(len, 2) && room[len..] == [0xee; 3], "{len} bytes");
            // The next one is whole.
            one.send(&bytes(len, 3), 1, tag, soon()).unwrap();
            if len > 0 {
                let error = get(&mut room[..len - 1], Tag::Any).unwrap_err();
                assert!(matches!(error, Error::Truncated { .. }), "{error}");
            } else {
                get(&mut room, Tag::Any).unwrap();
            }
        }
        let mut room = [0; 8];
        let nothing = |room: &mut [u8], from, tag| {
            assert_eq!(get_soon(&two, room, from, tag).unwrap(), None);
        };
        let send = |tag: u64| one.send(&tag.to_ne_bytes(), 1, tag, soon()).unwrap();
        let take = |room: &mut [u8; 8], tag: u64| {
            let got = two.recv(room, 0, tag, soon()).unwrap();
            assert_eq!((got.tag, u64::from_ne_bytes(*room)), (tag, tag));
        };
        // Not from whoever it may be, and not past one with another tag: neither before nor after that is known to wait.
        send(1);
        send(2);
        nothing(&mut room, Source::Any, Tag::Any);
        nothing(&mut room, Source::Rank(0), Tag::Is(2));
        take(&mut room, 2);
        nothing(&mut room, Source::Rank(0), Tag::Is(1));
        take(&mut room, 1);
        // Nor before a receive that was posted.
        let mut first = [0u64];
        two.scope(|scope| {
            let mut posted = scope.irecv(&mut first, 0, Tag::Any).unwrap();
            send(3);
            nothing(&mut room, Source::Rank(0), Tag::Is(3));
            assert_eq!(posted.wait(soon()).unwrap().tag, 3);
        });
        // What is offered becomes a request.
        let long = bytes(100_000, 4);
        let got = std::thread::scope(|scope| {
            scope.spawn(|| one.send(&long, 1, 5, soon()).unwrap());
            let mut room = vec![0; long.len()];
            two.recv(&mut room, 0, 5, soon()).unwrap();
            room
        });
        assert!(got == long);
    }
}

#[test]
fn receives_that_are_no_requests_do_not_keep_the_others_of_their_rank_waiting() {
    for path in common::paths() {
        println!("MP_PATH={path}");
        let (worlds, all) = in_hand(path, 3, Options::default());
        let len = 600_000;
        let (from, into) = (bytes(len, 1), worlds[0].alloc::<u8>(&Device::Host, len).unwrap());
        all[2].scope(|sends| {
            let mut recv = all[0].irecv(&into, 2, 7).unwrap();
            let mut send = sends.isend(&from, 0, 7).unwrap();
            let deadline = soon();
            let mut room = [0; 8];
            let mut get = || get_soon(&all[0], &mut room, Source::Rank(1), Tag::Is(1)).unwrap();
            let send_one = || all[1].send(&[1u64], 0, 1, deadline).unwrap();
            // Until the other is matched these are requests, too.
            loop {
                send_one();
                if get().is_some() {
                    break;
                }
                all[0].recv(&mut [0u64], 1, 1, deadline).unwrap();
            }
            // From now on nothing else is called for rank 0.
            while send.test().unwrap().is_none() {
                send_one();
                while get().is_none() {
                    assert!(!deadline.expired());
                }
                assert!(!deadline.expired());
            }
            recv.wait(deadline).unwrap();
        });
        assert!(into.to_vec().unwrap() == from);
    }
}

#[test]
fn who_waits_for_a_rank_that_is_lost_hears_of_it_with_the_message_and_its_bytes() {
    each_path(|| {
        let worlds = World::threads_with_config(2, &common::config()).unwrap();
        let results = on_threads(worlds, |world| {
            let messages = tagged(&world);
            if world.rank() == 1 {
                world.barrier().unwrap();
                return String::new();
            }
            world.barrier().unwrap();
            messages.recv(&mut [0u8; 100], 1, 5, soon()).unwrap_err().to_string()
        });
        let error = &results[0];
        assert!(error.contains("rank 1") && error.contains("is lost"), "{error}");
        assert!(error.contains("receive of tag 5 from rank 1"), "{error}");
        assert!(error.contains("0 of 100 bytes"), "{error}");
    });
}
