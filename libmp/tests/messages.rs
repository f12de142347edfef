//! Messages of the host between ranks that are threads: order, matching, epochs, misuse, and random programs against a
//! model. `messages_between_processes.rs` runs the same between processes. All run on every
//! path that leads to ranks of one host.

mod common;

use std::time::Duration;

use common::{on_every_path, on_threads, ranks};
use libmp::{
    Communicator, Deadline, Device, Error, Operation, Path, PathChoice, Recv, Region, Send, World,
    start_all, wait_all, wait_any,
};

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

fn region(world: &World, values: &[u64]) -> Region<u64> {
    let region = world.alloc(&Device::Host, values.len()).unwrap();
    region.write(values).unwrap();
    region
}

#[test]
fn a_message_goes_round_a_ring_of_any_size_many_times() {
    for size in [1, 2, 3, 5, 8] {
        ranks(size, |world| {
            let (rank, size) = (world.rank(), world.size());
            let (out, here) = (region(world, &[0; 9]), region(world, &[0; 9]));
            let right = world.peer((rank + 1) % size).unwrap();
            let left = world.peer((rank + size - 1) % size).unwrap();
            let send = right.send(&out, 3).prepare().unwrap();
            let recv = left.recv(&here, 3).prepare().unwrap();
            for round in 0..200u64 {
                recv.start().unwrap();
                out.write(&[round * 100 + rank as u64; 9]).unwrap();
                send.start().unwrap();
                wait_all(&[&recv, &send], soon()).unwrap();
                let from = (rank + size - 1) % size;
                assert_eq!(here.to_vec().unwrap(), [round * 100 + from as u64; 9]);
                here.write(&[u64::MAX; 9]).unwrap();
            }
        });
    }
}

#[test]
fn operations_are_started_together_in_order_up_to_the_first_that_cannot_be() {
    ranks(2, |world| {
        let other = world.peer(1 - world.rank()).unwrap();
        let regions: Vec<_> = (0..80).map(|value| region(world, &[value])).collect();
        let (outs, intos) = regions.split_at(40);
        let number = 0..40u64;
        let send = |(region, tag)| other.send(region, tag).prepare().unwrap();
        let recv = |(region, tag)| other.recv(region, tag).prepare().unwrap();
        let sends: Vec<Send> = outs.iter().zip(number.clone()).map(send).collect();
        let recvs: Vec<Recv> = intos.iter().zip(number).map(recv).collect();
        let all: Vec<&dyn Operation> = recvs.iter().map(|it| it as &dyn Operation).collect();
        for round in 0..20u64 {
            for (out, value) in outs.iter().zip(round..) {
                out.write(&[value]).unwrap();
            }
            // One that is started already: those before it are started, those behind it not.
            recvs[30].start().unwrap();
            let refused = start_all(&all).unwrap_err();
            assert!(
                matches!(&refused, Error::Started { op, .. } if op.contains("tag 30")),
                "{refused}"
            );
            start_all(&all[31..]).unwrap();
            let sends: Vec<&dyn Operation> = sends.iter().map(|it| it as &dyn Operation).collect();
            start_all(&sends).unwrap();
            wait_all(&all, soon()).unwrap();
            wait_all(&sends, soon()).unwrap();
            for (into, value) in intos.iter().zip(round..) {
                assert_eq!(into.to_vec().unwrap(), [value]);
            }
            // Nobody writes what the other is still to look at.
            world.barrier().unwrap();
        }
        start_all(&[]).unwrap();
    });
}

#[test]
fn everybody_sends_to_everybody() {
    ranks(6, |world| {
        let (rank, size) = (world.rank() as u64, world.size());
        let regions: Vec<_> = (0..size)
            .map(|other| (region(world, &[rank * 10 + other as u64; 4]), region(world, &[0; 4])))
            .collect();
        let pairs: Vec<(Send, Recv)> = (0..size)
            .map(|other| {
                let peer = world.peer(other).unwrap();
                let (out, here) = &regions[other];
                (peer.send(out, 0).prepare().unwrap(), peer.recv(here, 0).prepare().unwrap())
            })
            .collect();
        for _ in 0..100 {
            for (send, recv) in &pairs {
                send.start().unwrap();
                recv.start().unwrap();
            }
            let all: Vec<&dyn Operation> =
                pairs.iter().flat_map(|(send, recv)| [send as _, recv as &dyn Operation]).collect();
            wait_all(&all, soon()).unwrap();
            for (other, (_, here)) in regions.iter().enumerate() {
                assert_eq!(here.to_vec().unwrap(), [other as u64 * 10 + rank; 4]);
                here.write(&[u64::MAX; 4]).unwrap();
            }
        }
    });
}

#[test]
fn messages_match_by_tag_whatever_the_order_and_within_a_tag_in_order() {
    ranks(2, |world| {
        let peer = world.peer(1 - world.rank()).unwrap();
        if world.rank() == 0 {
            let sends: Vec<_> = [(7, 1), (8, 2), (7, 3), (u64::MAX, 4)]
                .map(|(tag, value)| peer.send(&region(world, &[value]), tag).prepare().unwrap())
                .into();
            // In another order than they were prepared in.
            sends.iter().rev().for_each(|send| send.start().unwrap());
            sends.iter().for_each(|send| send.wait(soon()).unwrap());
        } else {
            let recvs: Vec<_> = [(u64::MAX, 4), (7, 1), (7, 3), (8, 2)]
                .map(|(tag, value)| {
                    let here = region(world, &[0]);
                    (peer.recv(&here, tag).prepare().unwrap(), here, value)
                })
                .into();
            recvs.iter().for_each(|(recv, ..)| recv.start().unwrap());
            for (recv, here, value) in &recvs {
                recv.wait(soon()).unwrap();
                assert_eq!(here.to_vec().unwrap(), [*value]);
            }
        }
    });
}

#[test]
fn communicators_keep_their_messages_apart() {
    ranks(2, |world| {
        let other: Communicator = world.split(Some(0), 0).unwrap().unwrap();
        let peers = [world.peer(1 - world.rank()).unwrap(), other.peer(1 - world.rank()).unwrap()];
        let (a, b) = (region(world, &[1]), region(world, &[2]));
        if world.rank() == 0 {
            let sends =
                [peers[1].send(&b, 5).prepare().unwrap(), peers[0].send(&a, 5).prepare().unwrap()];
            sends.iter().for_each(|send| send.start().unwrap());
            sends.iter().for_each(|send| send.wait(soon()).unwrap());
        } else {
            let recvs =
                [peers[0].recv(&b, 5).prepare().unwrap(), peers[1].recv(&a, 5).prepare().unwrap()];
            recvs.iter().for_each(|recv| recv.start().unwrap());
            recvs.iter().for_each(|recv| recv.wait(soon()).unwrap());
            assert_eq!((b.to_vec().unwrap(), a.to_vec().unwrap()), (vec![1], vec![2]));
        }
    });
}

#[test]
fn a_message_may_be_shorter_than_the_buffer_and_may_have_no_bytes() {
    ranks(2, |world| {
        let peer = world.peer(1 - world.rank()).unwrap();
        if world.rank() == 0 {
            for (tag, values) in [(0, &[][..]), (1, &[7]), (2, &[])] {
                let send = peer.send(&region(world, values), tag).prepare().unwrap();
                assert_eq!(send.len(), values.len() as u64 * 8);
                send.start().unwrap();
                send.wait(soon()).unwrap();
            }
        } else {
            for (tag, values, expected) in
                [(0, &[9, 9][..], &[9, 9][..]), (1, &[9, 9], &[7, 9]), (2, &[], &[])]
            {
                let here = region(world, values);
                let recv = peer.recv(&here, tag).prepare().unwrap();
                recv.start().unwrap();
                recv.wait(soon()).unwrap();
                assert_eq!(here.to_vec().unwrap(), expected);
                assert_eq!(recv.message_len().unwrap(), Some(u64::from(tag == 1) * 8));
            }
        }
    });
}

#[test]
fn a_message_longer_than_the_buffer_is_an_error_with_both_lengths_on_both_sides() {
    ranks(2, |world| {
        let peer = world.peer(1 - world.rank()).unwrap();
        let here = region(world, &[5; 3]);
        let error = if world.rank() == 0 {
            let send = peer.send(&here, 1).prepare().unwrap();
            send.start().and_then(|()| send.wait(soon())).unwrap_err()
        } else {
            let here = here.slice(0..2).unwrap();
            let recv = peer.recv(&here, 1).prepare().unwrap();
            recv.start().and_then(|()| recv.wait(soon())).unwrap_err()
        };
        assert!(matches!(error, Error::Truncated { sent: 24, posted: 16, .. }), "{error}");
        assert_eq!(here.to_vec().unwrap(), [5; 3]);
        // The world goes on.
        world.barrier().unwrap();
    });
}

#[test]
fn a_second_start_before_the_first_was_seen_complete_is_refused() {
    ranks(2, |world| {
        let peer = world.peer(1 - world.rank()).unwrap();
        let (out, here) = (region(world, &[1]), region(world, &[0]));
        let send = peer.send(&out, 1).prepare().unwrap();
        let recv = peer.recv(&here, 1).prepare().unwrap();
        assert!(send.test().unwrap() && recv.test().unwrap(), "nothing was started");
        recv.start().unwrap();
        send.start().unwrap();
        world.barrier().unwrap();
        for (error, verb) in
            [(send.start().unwrap_err(), "send"), (recv.start().unwrap_err(), "recv")]
        {
            assert!(matches!(error, Error::Started { epoch: 1, .. }));
            let expected = format!("{verb} tag 1 ");
            assert!(error.to_string().contains(&expected), "{error}");
        }
        wait_all(&[&send, &recv], soon()).unwrap();
        recv.start().unwrap();
        send.start().unwrap();
        wait_all(&[&send, &recv], soon()).unwrap();
    });
}

#[test]
fn a_deadline_that_passes_names_the_operation_and_the_world_goes_on() {
    ranks(2, |world| {
        let peer = world.peer(1 - world.rank()).unwrap();
        let here = region(world, &[3]);
        if world.rank() == 0 {
            let recv = peer.recv(&here, 9).prepare().unwrap();
            recv.start().unwrap();
            let error = recv.wait(Deadline::after(Duration::from_millis(30))).unwrap_err();
            match &error {
                Error::Late { op, rank: 1, tag: 9, expected: 1, seen: 0, age, .. } => {
                    assert!(op.starts_with("recv tag 9 from rank 1 on "), "{op}");
                    assert!(*age >= Duration::from_millis(30));
                }
                _ => panic!("{error:?}"),
            }
            world.barrier().unwrap();
            recv.wait(soon()).unwrap();
            assert_eq!(here.to_vec().unwrap(), [4]);
        } else {
            world.barrier().unwrap();
            here.write(&[4]).unwrap();
            let send = peer.send(&here, 9).prepare().unwrap();
            send.start().unwrap();
            send.wait(soon()).unwrap();
        }
    });
}

#[test]
fn a_send_without_credit_goes_on_in_other_calls_of_its_rank() {
    ranks(2, |world| {
        let peer = world.peer(1 - world.rank()).unwrap();
        let (one, two) = (region(world, &[1]), region(world, &[2]));
        if world.rank() == 0 {
            let send = peer.send(&one, 1).prepare().unwrap();
            let other = peer.recv(&two, 2).prepare().unwrap();
            send.start().unwrap();
            other.start().unwrap();
            // Rank 1 sends this only after it has got the other.
            other.wait(soon()).unwrap();
            send.wait(soon()).unwrap();
            // A collective helps too.
            send.start().unwrap();
            world.barrier().unwrap();
            send.wait(soon()).unwrap();
        } else {
            let recv = peer.recv(&one, 1).prepare().unwrap();
            std::thread::sleep(Duration::from_millis(20));
            recv.start().unwrap();
            recv.wait(soon()).unwrap();
            let send = peer.send(&two, 2).prepare().unwrap();
            send.start().unwrap();
            send.wait(soon()).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            recv.start().unwrap();
            recv.wait(soon()).unwrap();
            world.barrier().unwrap();
        }
    });
}

#[test]
fn any_of_several_receives_is_found() {
    ranks(3, |world| {
        if world.rank() > 0 {
            let peer = world.peer(0).unwrap();
            let send = peer.send(&region(world, &[world.rank() as u64]), 0).prepare().unwrap();
            for _ in 0..50 {
                send.start().unwrap();
                send.wait(soon()).unwrap();
            }
            return;
        }
        assert!(matches!(wait_any(&[], soon()), Err(Error::NoOperations)));
        let recvs = [1, 2].map(|rank| {
            let here = region(world, &[0]);
            let recv = world.peer(rank).unwrap().recv(&here, 0).prepare().unwrap();
            recv.start().unwrap();
            (recv, here)
        });
        let mut counts = [0; 2];
        while counts != [50; 2] {
            let open: Vec<usize> = (0..2).filter(|&n| counts[n] < 50).collect();
            let operations: Vec<&dyn Operation> = open.iter().map(|&n| &recvs[n].0 as _).collect();
            let found = open[wait_any(&operations, soon()).unwrap()];
            let (recv, here) = &recvs[found];
            assert_eq!(here.to_vec().unwrap(), [found as u64 + 1]);
            counts[found] += 1;
            if counts[found] < 50 {
                recv.start().unwrap();
            }
        }
    });
}

#[test]
fn operations_come_and_go_and_many_are_prepared_at_once() {
    ranks(2, |world| {
        let peer = world.peer(1 - world.rank()).unwrap();
        let (out, here) = (region(world, &[0]), region(world, &[0]));
        let direct = world.path(1 - world.rank()).unwrap() == Path::Direct;
        for round in 0..if direct { 10_000 } else { 3000 } {
            out.write(&[round]).unwrap();
            let send = peer.send(&out, 1).prepare().unwrap();
            let recv = peer.recv(&here, 1).prepare().unwrap();
            recv.start().unwrap();
            send.start().unwrap();
            wait_all(&[&send, &recv], soon()).unwrap();
            assert_eq!(here.to_vec().unwrap(), [round]);
        }
        let pair = |tag| {
            let send = peer.send(&out, tag).prepare().unwrap();
            (send, peer.recv(&here, tag).prepare().unwrap())
        };
        let all: Vec<_> = (2..5000).map(pair).collect();
        let (send, recv) = all.last().unwrap();
        recv.start().unwrap();
        send.start().unwrap();
        wait_all(&[send, recv], soon()).unwrap();
        assert_eq!(here.to_vec().unwrap(), out.to_vec().unwrap());
        world.barrier().unwrap();
    });
}

#[test]
fn more_operations_than_a_mailbox_holds_are_prepared_before_the_peer_looks() {
    ranks(2, |world| {
        let peer = world.peer(1 - world.rank()).unwrap();
        let regions: Vec<_> = (0..300).map(|value| region(world, &[value])).collect();
        if world.rank() == 0 {
            let sends: Vec<_> =
                regions.iter().map(|r| peer.send(r, 0).prepare().unwrap()).collect();
            world.barrier().unwrap();
            sends.iter().for_each(|send| send.start().unwrap());
            sends.iter().for_each(|send| send.wait(soon()).unwrap());
        } else {
            world.barrier().unwrap();
            let recvs: Vec<_> =
                regions.iter().map(|r| peer.recv(r, 0).prepare().unwrap()).collect();
            regions.iter().for_each(|region| region.write(&[999]).unwrap());
            // The last first.
            for (value, recv) in recvs.iter().enumerate().rev() {
                recv.start().unwrap();
                recv.wait(soon()).unwrap();
                assert_eq!(regions[value].to_vec().unwrap(), [value as u64]);
            }
        }
    });
}

#[test]
fn more_sends_than_a_queue_holds_are_started_at_once() {
    ranks(2, |world| {
        let peer = world.peer(1 - world.rank()).unwrap();
        let all: Vec<_> = (0..600)
            .map(|value| {
                let (out, here) = (region(world, &[value]), region(world, &[u64::MAX]));
                let send = peer.send(&out, 0).prepare().unwrap();
                (send, peer.recv(&here, 0).prepare().unwrap(), here)
            })
            .collect();
        for (_, recv, _) in &all {
            recv.start().unwrap();
        }
        world.barrier().unwrap();
        for (send, ..) in &all {
            send.start().unwrap();
        }
        for (value, (send, recv, here)) in all.iter().enumerate() {
            wait_all(&[send, recv], soon()).unwrap();
            assert_eq!(here.to_vec().unwrap(), [value as u64]);
        }
    });
}

#[test]
fn what_is_dropped_while_it_is_under_way_does_no_harm() {
    ranks(2, |world| {
        let peer = world.peer(1 - world.rank()).unwrap();
        for tag in 0..20 {
            let (out, here) = (region(world, &[tag; 1000]), region(world, &[0; 1000]));
            let send = peer.send(&out, tag).prepare().unwrap();
            let recv = peer.recv(&here, tag).prepare().unwrap();
            recv.start().unwrap();
            send.start().unwrap();
            if world.rank() == 0 {
                // It may still be written.
                drop((recv, here));
                send.wait(soon()).unwrap();
            } else {
                drop((send, out));
                recv.wait(soon()).unwrap();
                assert_eq!(here.to_vec().unwrap(), [tag; 1000]);
            }
        }
        world.barrier().unwrap();
    });
}

#[test]
fn ranks_on_different_hosts_send_over_tcp_and_what_needs_mapped_memory_is_refused() {
    let results = common::over_tcp(
        3,
        &[],
        // Ranks 0 and 1 on one host, rank 2 on another.
        |rank, config| config.node = Some(format!("host {}", rank / 2)),
        |_, world| {
            let world = world.unwrap();
            let (rank, size) = (world.rank(), world.size());
            let paths: Vec<Path> = (0..size).map(|other| world.path(other).unwrap()).collect();
            let (out, here) = (region(&world, &[rank as u64; 100]), region(&world, &[9; 100]));
            let send = world.peer((rank + 1) % size).unwrap().send(&out, 1).prepare().unwrap();
            let left = (rank + size - 1) % size;
            let recv = world.peer(left).unwrap().recv(&here, 1).prepare().unwrap();
            for _ in 0..10 {
                recv.start().unwrap();
                send.start().unwrap();
                wait_all(&[&recv, &send], soon()).unwrap();
                assert_eq!(here.to_vec().unwrap(), [left as u64; 100]);
                here.write(&[9; 100]).unwrap();
            }
            let far = if rank == 2 { 0 } else { 2 };
            let window = world.window(&here, 1).unwrap();
            let refused = window.memory_of(far).unwrap_err();
            assert!(matches!(refused, Error::NoPath { rank, .. } if rank == far));
            world.finish().unwrap();
            (paths, refused.to_string())
        },
    );
    let (near, far) = (Path::Direct, Path::NicTcp);
    let paths: Vec<_> = results.iter().map(|(paths, _)| paths.clone()).collect();
    assert_eq!(paths, [[near, near, far], [near, near, far], [far, far, near]]);
    for (_, text) in results {
        assert!(text.starts_with("no path from ") && text.contains("behind the NIC"), "{text}");
    }
}

#[test]
fn ranks_with_different_choices_of_the_path_refuse_each_other_with_both() {
    let results = common::over_tcp(
        2,
        &[],
        |rank, config| config.path = [PathChoice::Auto, PathChoice::NicTcp][rank],
        |_, world| world.map(drop).unwrap_err().to_string(),
    );
    assert!(
        results
            .iter()
            .any(|text| text.contains("MP_PATH=auto and") || text.contains("MP_PATH=auto;")),
        "{results:?}"
    );
    assert!(results.iter().any(|text| text.contains("MP_PATH=nic-tcp")), "{results:?}");
}

#[test]
fn an_abort_ends_waits_with_the_operation_the_peer_and_the_epochs() {
    on_every_path(3).for_each(an_abort_ends_waits);
}

fn an_abort_ends_waits(worlds: Vec<World>) {
    let errors = on_threads(worlds, |world| {
        let here = region(&world, &[0]);
        if world.rank() == 2 {
            // The others have started.
            world.barrier().unwrap();
            std::thread::sleep(Duration::from_millis(30));
            world.abort("enough");
            return None;
        }
        let peer = world.peer(2).unwrap();
        let error = if world.rank() == 0 {
            let recv = peer.recv(&here, 4).prepare().unwrap();
            recv.start().unwrap();
            world.barrier().unwrap();
            recv.wait(soon()).unwrap_err()
        } else {
            let send = peer.send(&here, 4).prepare().unwrap();
            send.start().unwrap();
            world.barrier().unwrap();
            send.wait(soon()).unwrap_err()
        };
        assert!(peer.send(&here, 5).prepare().is_err());
        Some(error)
    });
    for (error, op) in errors.iter().flatten().zip(["recv tag 4 from", "send tag 4 to"]) {
        let Error::Aborted { rank: 2, op: during, age, .. } = error else { panic!("{error}") };
        assert!(during.starts_with(&format!("{op} rank 2 on ")), "{during}");
        assert!(during.ends_with("epoch 1, seen 0"), "{during}");
        assert!(*age >= Duration::from_millis(10));
    }
}

#[test]
fn what_arrived_before_the_end_of_the_world_counts() {
    on_every_path(2).for_each(what_arrived_counts);
}

fn what_arrived_counts(worlds: Vec<World>) {
    on_threads(worlds, |world| {
        let peer = world.peer(1 - world.rank()).unwrap();
        let here = region(&world, &[world.rank() as u64]);
        if world.rank() == 0 {
            let recv = peer.recv(&here, 0).prepare().unwrap();
            recv.start().unwrap();
            world.barrier().unwrap();
            while recv.message_len().unwrap().is_none() {
                assert!(recv.test().is_ok());
            }
            // The other side is known: this gives the credit.
            assert!(recv.test().is_ok());
            while world.check().is_ok() {
                std::thread::yield_now();
            }
            recv.wait(soon()).unwrap();
            assert_eq!(here.to_vec().unwrap(), [1]);
            assert!(matches!(recv.start(), Err(Error::Aborted { .. })));
        } else {
            let send = peer.send(&here, 0).prepare().unwrap();
            world.barrier().unwrap();
            send.start().unwrap();
            send.wait(soon()).unwrap();
            world.abort("after the message");
        }
    });
}

#[test]
fn an_all_reduce_gives_all_ranks_the_bits_of_the_sum_in_rank_order() {
    use libmp::ReduceOp;
    for size in [1, 2, 3, 8] {
        ranks(size, |world| {
            let reduce = world.prepare_collective(&Device::Host, 40).unwrap();
            for round in 0..100 {
                let mine = |rank: usize| {
                    [1e16, 1.0, -1e16, 0.1, 3.0, f64::from(round), 2.0, 7.5]
                        .map(|x| x * (rank as f64 + 0.3))
                };
                let mut values = mine(world.rank())[..5].to_vec();
                let mut expected = values.clone();
                world.all_reduce(ReduceOp::Sum, &mut expected).unwrap();
                reduce.all_reduce_slice(ReduceOp::Sum, &mut values).unwrap();
                let bits = |values: &[f64]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&values), bits(&expected));
                let mut one = [world.rank() as f64];
                reduce.all_reduce_slice(ReduceOp::Max, &mut one).unwrap();
                assert_eq!(one, [(size - 1) as f64]);
            }
            assert!(reduce.all_reduce_slice(ReduceOp::Sum, &mut [0.0; 6]).is_err());
        });
    }
}
