//! Ranks that are threads of one process.

mod common;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::{SOON, on_threads};
use libmp::{BLOB_MAX, Config, Error, Loss, ReduceOp, World};

#[test]
fn four_and_eight_ranks_agree_in_every_collective() {
    for size in [1, 4, 8] {
        on_threads(World::threads(size).unwrap(), |world| {
            let rank = world.rank();
            assert_eq!((world.size(), world.local_rank(), world.local_size()), (size, rank, size));
            for round in 0..20 {
                world.barrier().unwrap();
                let root = round % size;
                let mut blob = vec![rank as u8; round];
                world.broadcast(root, &mut blob).unwrap();
                assert_eq!(blob, vec![root as u8; round]);
                // Blobs of different sizes, some of them empty.
                let all = world.all_gather(&vec![rank as u8; rank * round]).unwrap();
                let expected: Vec<_> =
                    (0..size).map(|rank| vec![rank as u8; rank * round]).collect();
                assert_eq!(all, expected);
                assert_eq!(world.sum(rank as u64 + 1).unwrap(), (size * (size + 1) / 2) as u64);
                assert_eq!(world.min(rank as f64 - 0.5).unwrap(), -0.5);
                assert_eq!(world.max(rank as u64).unwrap(), size as u64 - 1);
            }
            world.finish().unwrap();
        });
    }
}

#[test]
fn a_sum_is_the_same_bits_on_every_rank_and_in_every_run_and_is_taken_in_rank_order() {
    // Magnitudes from 2^-30 to 2^29, so that the order matters. (`powi` would not do: it may round differently.)
    let value = |rank: usize, place: usize| {
        (1u64 << ((rank * 13 + place * 7) % 60)) as f64 / 3.0 / (1u64 << 30) as f64
    };
    let expected: Vec<u64> = (0..8)
        .map(|place| (1..6).fold(value(0, place), |sum, rank| sum + value(rank, place)).to_bits())
        .collect();
    on_threads(World::threads(6).unwrap(), |world| {
        for _ in 0..30 {
            // Arrive in another order each time.
            std::thread::sleep(Duration::from_micros(world.rank() as u64 * 37 % 5 * 50));
            let mut values: Vec<f64> = (0..8).map(|place| value(world.rank(), place)).collect();
            world.all_reduce(ReduceOp::Sum, &mut values).unwrap();
            assert_eq!(values.iter().map(|value| value.to_bits()).collect::<Vec<_>>(), expected);
        }
        // The order is that of the communicator.
        let back = world.split(Some(0), -(world.rank() as i64)).unwrap().unwrap();
        let reversed = (0..5).rev().fold(value(5, 0), |sum, rank| sum + value(rank, 0));
        assert_eq!(back.sum(value(world.rank(), 0)).unwrap().to_bits(), reversed.to_bits());
        world.finish().unwrap();
    });
}

#[test]
fn a_split_makes_groups_that_work_side_by_side() {
    on_threads(World::threads(8).unwrap(), |world| {
        let rank = world.rank();
        let color = (rank % 3 != 2).then_some(rank as u64 % 3);
        let group = world.split(color, -(rank as i64)).unwrap();
        let Some(group) = group else {
            assert_eq!(rank % 3, 2);
            world.barrier().unwrap();
            return world.finish().unwrap();
        };
        let members: Vec<usize> = (0..8).rev().filter(|other| other % 3 == rank % 3).collect();
        assert_eq!(group.size(), members.len());
        assert_eq!(group.world_rank(group.rank()).unwrap(), rank);
        for (place, &member) in members.iter().enumerate() {
            assert_eq!(group.world_rank(place).unwrap(), member);
        }
        assert_eq!(group.sum(rank as u64).unwrap(), members.iter().sum::<usize>() as u64);
        // A group of a group, and the whole world in between.
        let half = group.split(Some((group.rank() / 2) as u64), 0).unwrap().unwrap();
        world.barrier().unwrap();
        assert_eq!(half.all_gather(&[rank as u8]).unwrap()[half.rank()], [rank as u8]);
        let node = half.node_local().unwrap();
        assert_eq!((node.size(), node.rank()), (half.size(), half.rank()));
        drop((half, node, group));
        world.finish().unwrap();
    });
}

#[test]
fn the_largest_blob_passes_and_a_larger_one_is_refused_before_it_leaves() {
    on_threads(World::threads(3).unwrap(), |world| {
        let all = world.all_gather(&vec![world.rank() as u8; BLOB_MAX]).unwrap();
        assert!(all.iter().enumerate().all(|(rank, blob)| *blob == vec![rank as u8; BLOB_MAX]));
        let error = world.all_gather(&vec![0; BLOB_MAX + 1]).unwrap_err();
        assert!(
            matches!(error, Error::TooLarge { size, limit, .. } if size == BLOB_MAX + 1 && limit == BLOB_MAX)
        );
        let error = world.broadcast(3, &mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), "rank 3 does not exist in the world of 3 rank(s)");
        world.finish().unwrap();
    });
}

#[test]
fn ranks_that_call_different_collectives_are_told_and_may_go_on() {
    on_threads(World::threads(3).unwrap(), |world| {
        let error = if world.rank() == 1 { world.sum(1u64).map(drop) } else { world.barrier() }
            .unwrap_err();
        let Error::Mismatch { reason, .. } = error else { panic!("{error}") };
        assert_eq!(reason, "rank 0 called barrier, rank 1 called all-reduce (sum of u64)");
        let mut values = vec![0.0; 1 + world.rank() / 2];
        let error = world.all_reduce(ReduceOp::Max, &mut values).unwrap_err();
        assert!(error.to_string().contains("rank 0 gave 1 value(s), rank 2 gave 2"), "{error}");
        world.barrier().unwrap();
        world.finish().unwrap();
    });
}

#[test]
fn a_rank_that_does_not_enter_is_named_to_all_when_the_deadline_has_passed() {
    // One clock for all: the deadline runs from the first rank that enters, whenever this thread gets to run.
    let since = Instant::now();
    on_threads(World::threads(3).unwrap(), |world| {
        let error = if world.rank() == 1 {
            // It hears of it in whatever it does instead.
            while world.check().is_ok() {
                assert!(since.elapsed() < SOON);
                std::thread::sleep(Duration::from_millis(1));
            }
            world.barrier().unwrap_err()
        } else {
            world.with_timeout(Duration::from_millis(150)).barrier().unwrap_err()
        };
        assert!(since.elapsed() >= Duration::from_millis(150) && since.elapsed() < SOON);
        let Error::Timeout { what, missing, .. } = &error else { panic!("{error}") };
        assert_eq!(what, "barrier on the world");
        assert_eq!(missing.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), [1]);
        assert!(error.to_string().contains("rank 1 on "), "{error}");
        assert!(matches!(world.finish(), Err(Error::Timeout { .. })));
    });
}

#[test]
fn a_rank_that_panics_ends_the_world_of_the_others() {
    let worlds = World::threads(4).unwrap();
    std::thread::scope(|scope| {
        for world in worlds {
            scope.spawn(move || {
                if world.rank() == 2 {
                    let rank = std::thread::spawn(move || {
                        world.barrier().unwrap();
                        panic!("on purpose");
                    });
                    return assert!(rank.join().is_err());
                }
                world.barrier().unwrap();
                let since = Instant::now();
                let error = world.barrier().unwrap_err();
                assert!(since.elapsed() < SOON);
                let Error::PeerLost { rank, how, op, .. } = error else { panic!("{error}") };
                assert_eq!((rank, how, &op[..]), (2, Loss::Panicked, "barrier on the world"));
            });
        }
    });
}

#[test]
fn a_world_dropped_without_finish_is_a_loss_for_the_others_who_finish() {
    on_threads(World::threads(3).unwrap(), |world| {
        if world.rank() == 0 {
            return drop(world);
        }
        let error = world.finish().unwrap_err();
        assert!(matches!(error, Error::PeerLost { rank: 0, how: Loss::Unfinished, .. }), "{error}");
    });
}

#[test]
fn an_abort_reaches_everybody_with_its_reason_and_every_later_call() {
    on_threads(World::threads(4).unwrap(), |world| {
        let other = world.split(Some(world.rank() as u64 / 2), 0).unwrap().unwrap();
        if world.rank() == 3 {
            assert_eq!(world.abort_word().load(Ordering::Acquire), 0);
            world.abort("out of cheese");
        }
        let error = world.barrier().unwrap_err();
        assert!(
            matches!(&error, Error::Aborted { rank: 3, reason, .. } if reason == "out of cheese"),
            "{error}"
        );
        assert_eq!(world.abort_word().load(Ordering::Acquire), 1 << 63 | 2 << 32 | 3);
        for error in [other.barrier(), world.check(), world.sum(1.0).map(drop), world.finish()] {
            assert!(matches!(error, Err(Error::Aborted { rank: 3, .. })), "{error:?}");
        }
    });
}

#[test]
fn after_finish_a_communicator_says_so_and_another_world_can_start() {
    for _ in 0..5 {
        on_threads(World::threads(2).unwrap(), |world| {
            let all = world.with_timeout(SOON);
            let half = world.split(Some(0), 0).unwrap().unwrap();
            world.finish().unwrap();
            assert_eq!(
                all.barrier().unwrap_err().to_string(),
                "barrier on the world: this world is finished"
            );
            assert!(matches!(half.sum(1.0), Err(Error::Finished { .. })));
        });
    }
}

#[test]
fn two_worlds_at_once_do_not_disturb_each_other() {
    let (one, two) = (World::threads(3).unwrap(), World::threads(3).unwrap());
    let both: Vec<_> = one.into_iter().zip(two).collect();
    std::thread::scope(|scope| {
        for (one, two) in both {
            scope.spawn(move || {
                for _ in 0..50 {
                    assert_eq!((one.sum(1u64).unwrap(), two.sum(2u64).unwrap()), (3, 6));
                }
                if one.rank() == 1 {
                    one.abort("only this one");
                }
                assert!(matches!(one.barrier(), Err(Error::Aborted { .. })));
                two.barrier().unwrap();
                two.finish().unwrap();
            });
        }
    });
}

#[test]
fn a_call_that_waits_while_its_world_is_dropped_elsewhere_returns() {
    let mut worlds = World::threads(2).unwrap();
    let world = worlds.remove(0);
    let all = world.with_timeout(Duration::from_secs(60));
    let waiter = std::thread::spawn(move || {
        let since = Instant::now();
        (all.barrier().unwrap_err(), since.elapsed())
    });
    std::thread::sleep(Duration::from_millis(50));
    drop(world);
    let (error, waited) = waiter.join().unwrap();
    assert!(waited < SOON, "{waited:?}: {error}");
}

#[test]
fn a_number_of_ranks_that_cannot_be_is_refused() {
    for ranks in [0, libmp::MAX_RANKS + 1] {
        let text = World::threads(ranks).unwrap_err().to_string();
        assert!(text.contains(&format!("\"{ranks}\"")) && text.contains("1 to 4096"), "{text}");
    }
}

#[test]
fn a_world_alone_has_the_same_operations() {
    let config = Config::from_variables([("MP_BOOTSTRAP", "alone"), ("MP_GPU", "3")]).unwrap();
    let world = World::with_config(&config).unwrap();
    assert_eq!((world.rank(), world.size(), world.assigned_gpu()), (0, 1, Some("3")));
    // A GPU that was chosen and is not there is no reason to go on without one.
    let said = world.local_device().unwrap_err().to_string();
    assert!(said.contains("opening this rank's device"), "{said}");
    world.barrier().unwrap();
    assert_eq!(world.all_gather(b"x").unwrap(), [b"x"]);
    assert_eq!(world.node_local().unwrap().size(), 1);
    world.finish().unwrap();
}

#[test]
fn a_neighbour_that_has_just_left_is_named_by_those_who_reach_for_it() {
    for _ in 0..40 {
        let said = on_threads(World::threads(3).unwrap(), |world| {
            if world.rank() == 2 {
                return None;
            }
            let reach = || {
                let region = world.alloc::<u64>(&libmp::Device::Host, 8)?;
                let _send = world.peer(2)?.send(&region, 1).prepare()?;
                world.barrier()
            };
            Some(reach().unwrap_err().to_string())
        });
        for text in said.into_iter().flatten() {
            assert!(text.starts_with("rank 2 on ") && text.contains("is lost"), "{text}");
        }
    }
}
