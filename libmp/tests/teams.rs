//! Teams: communicators that their members make by themselves.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{SOON, on_threads};
use libmp::{Deadline, Device, Error, Loss, Operation, World};

#[test]
fn a_team_has_its_ranks_in_the_order_named_and_all_that_a_communicator_has() {
    on_threads(World::threads(6).unwrap(), |world| {
        let me = world.rank();
        // Two teams side by side, backwards.
        let ranks: Vec<usize> = (0..6).rev().filter(|rank| rank % 2 == me % 2).collect();
        let team = world.team(&ranks).unwrap();
        assert_eq!(
            (team.size(), ranks[team.rank()], team.world_rank(team.rank()).unwrap()),
            (3, me, me)
        );
        assert_eq!(
            team.all_gather(&[me as u8]).unwrap(),
            [[ranks[0] as u8], [ranks[1] as u8], [ranks[2] as u8]]
        );
        // Of a team another one, and a split.
        let place = team.rank();
        if place < 2 {
            let pair = team.team(&[1, 0]).unwrap();
            assert_eq!(pair.rank(), 1 - place);
            assert_eq!(pair.sum(me as u64).unwrap(), (ranks[0] + ranks[1]) as u64);
        }
        let one = team.split(Some(place as u64), 0).unwrap().unwrap();
        assert_eq!(one.sum(me as u64).unwrap(), me as u64);
        // A window and a message.
        let share = world.alloc::<u64>(&Device::Host, 1).unwrap();
        let window = team.window(&share, 1).unwrap();
        let (right, left) = ((place + 1) % 3, (place + 2) % 3);
        window.signal(right, 0, 7).unwrap();
        window.wait_signal(0, 7, Deadline::after(SOON)).unwrap();
        let mine = world.alloc::<u64>(&Device::Host, 1).unwrap();
        mine.write(&[me as u64]).unwrap();
        let send = team.peer(right).unwrap().send(&mine, 1).prepare().unwrap();
        let recv = team.peer(left).unwrap().recv(&share, 1).prepare().unwrap();
        recv.start().unwrap();
        send.start().unwrap();
        recv.wait(Deadline::after(SOON)).unwrap();
        send.wait(Deadline::after(SOON)).unwrap();
        assert_eq!(share.to_vec().unwrap(), [ranks[left] as u64]);
        team.barrier().unwrap();
        drop((window, team, one));
        world.finish().unwrap();
    });
}

#[test]
fn teams_of_the_same_ranks_are_different_teams() {
    on_threads(World::threads(3).unwrap(), |world| {
        let me = world.rank();
        let all = [2, 0, 1];
        let (one, two) = (world.team(&all).unwrap(), world.team(&all).unwrap());
        // A message belongs to the team through which both sides prepared it.
        let (right, left) = ((one.rank() + 1) % 3, (one.rank() + 2) % 3);
        let regions: Vec<_> =
            (0..4).map(|_| world.alloc::<u64>(&Device::Host, 1).unwrap()).collect();
        regions[0].write(&[10 + me as u64]).unwrap();
        regions[1].write(&[20 + me as u64]).unwrap();
        let first = one.peer(right).unwrap().send(&regions[0], 5).prepare().unwrap();
        let second = two.peer(right).unwrap().send(&regions[1], 5).prepare().unwrap();
        let from_second = two.peer(left).unwrap().recv(&regions[2], 5).prepare().unwrap();
        let from_first = one.peer(left).unwrap().recv(&regions[3], 5).prepare().unwrap();
        [&from_second, &from_first].iter().for_each(|recv| recv.start().unwrap());
        [&first, &second].iter().for_each(|send| send.start().unwrap());
        [&from_second, &from_first].iter().for_each(|it| it.wait(Deadline::after(SOON)).unwrap());
        [&first, &second].iter().for_each(|it| it.wait(Deadline::after(SOON)).unwrap());
        let from = all[left] as u64;
        assert_eq!(
            (regions[2].to_vec().unwrap(), regions[3].to_vec().unwrap()),
            (vec![20 + from], vec![10 + from])
        );
        for round in 0..20 {
            assert_eq!((two.sum(round).unwrap(), one.sum(1u64).unwrap()), (3 * round, 3));
            let next = world.team(&all).unwrap();
            assert_eq!(next.max(me as u64).unwrap(), 2);
        }
        drop((one, two));
        world.finish().unwrap();
    });
}

#[test]
fn a_team_is_made_and_dropped_without_anybody_else() {
    let made = AtomicBool::new(false);
    let made = &made;
    on_threads(World::threads(2).unwrap(), |world| {
        if world.rank() == 0 {
            // The other member makes none of them, and calls nothing.
            for _ in 0..100_000 {
                drop(world.team(&[0, 1]).unwrap());
            }
            made.store(true, Ordering::Release);
        } else {
            let since = Instant::now();
            while !made.load(Ordering::Acquire) {
                assert!(since.elapsed() < SOON);
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        world.finish().unwrap();
    });
}

#[test]
fn a_team_that_cannot_be_is_refused_where_it_is_made() {
    on_threads(World::threads(3).unwrap(), |world| {
        let me = world.rank();
        let error = world.team(&[me, 3]).unwrap_err();
        assert!(matches!(error, Error::NoSuchRank { rank: 3, size: 3, .. }), "{error}");
        let error = world.team(&[(me + 1) % 3]).unwrap_err().to_string();
        assert!(error.contains(&format!("rank {me}, which makes it, is not among")), "{error}");
        let error = world.team(&[]).unwrap_err().to_string();
        assert!(error.contains("is not among"), "{error}");
        let error = world.team(&[me, (me + 1) % 3, me]).unwrap_err().to_string();
        assert!(error.contains(&format!("rank {me} is named twice")), "{error}");
        world.barrier().unwrap();
        let again = world.clone();
        world.finish().unwrap();
        assert!(matches!(again.team(&[me]), Err(Error::Finished { .. })));
    });
}

#[test]
fn members_that_name_different_ranks_are_told_at_the_deadline_who_is_missing() {
    on_threads(World::threads(3).unwrap(), |world| {
        let me = world.rank();
        let error = if me == 2 {
            let since = Instant::now();
            while world.check().is_ok() {
                assert!(since.elapsed() < SOON);
                std::thread::sleep(Duration::from_millis(1));
            }
            world.barrier().unwrap_err()
        } else {
            // Rank 1 has three ranks in mind, and more patience.
            let ranks: &[usize] = if me == 0 { &[0, 1] } else { &[0, 1, 2] };
            let patience = Duration::from_millis(150) * (1 + 100 * me as u32);
            world.team(ranks).unwrap().with_timeout(patience).barrier().unwrap_err()
        };
        let Error::Timeout { what, missing, .. } = &error else { panic!("{error}") };
        assert_eq!(what, "barrier on the world / ranks 0 and 1");
        assert_eq!(missing.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), [1]);
    });
}

#[test]
fn a_member_that_is_lost_is_named_to_the_team() {
    on_threads(World::threads(3).unwrap(), |world| {
        if world.rank() == 2 {
            return drop(world);
        }
        let team = world.team(&[0, 1, 2]);
        // It may have been heard of before.
        let error = team.and_then(|team| team.barrier()).unwrap_err();
        assert!(matches!(error, Error::PeerLost { rank: 2, how: Loss::Unfinished, .. }), "{error}");
    });
}

#[test]
fn ranks_that_call_different_collectives_of_a_team_are_told_and_may_go_on() {
    on_threads(World::threads(2).unwrap(), |world| {
        let team = world.team(&[1, 0]).unwrap();
        let error = match world.rank() {
            0 => team.barrier().unwrap_err(),
            _ => team.sum(1u64).unwrap_err(),
        };
        assert!(matches!(error, Error::Mismatch { .. }), "{error}");
        assert_eq!(team.sum(1u64).unwrap(), 2);
        drop(team);
        world.finish().unwrap();
    });
}
