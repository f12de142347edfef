//! Messages in pieces: gathered here, scattered there, by the host and on streams.

mod common;

use std::time::Duration;

use common::{Rank, ranks, say, start_mprun};
use libmp::{Deadline, Device, Error, Operation, Region, Result, World, wait_all};

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

fn region(world: &World, len: usize) -> Region<u32> {
    world.alloc(&Device::Host, len).unwrap()
}

/// Rank 0 sends 0, 1, 2, … out of pieces of these lengths, rank 1 receives into pieces of those; by the host and on a
/// stream. Between the pieces on both sides are elements that belong to nobody.
fn exchange(world: &World, device: &Device, sent: &[usize], posted: &[usize]) {
    const GAP: usize = 3;
    const NOBODY: u32 = u32::MAX;
    let mine = if world.rank() == 0 { sent } else { posted };
    let len = mine.iter().sum::<usize>() + GAP * (mine.len() + 1);
    let memory: Region<u32> = world.alloc(device, len).unwrap();
    let mut at = GAP;
    let pieces: Vec<(&Region<u32>, std::ops::Range<usize>)> = mine
        .iter()
        .map(|len| {
            let range = at..at + len;
            at = range.end + GAP;
            (&memory, range)
        })
        .collect();
    let total: usize = sent.iter().sum();
    let numbers = |from: u32| {
        let mut values = vec![NOBODY; memory.len()];
        let places = pieces.iter().flat_map(|(_, range)| range.clone());
        for (place, number) in places.take(total).zip(from..) {
            values[place] = number;
        }
        values
    };
    let stream = world.stream(device).unwrap();
    let peer = world.peer(1 - world.rank()).unwrap();
    if world.rank() == 0 {
        let send = peer.sendv(&pieces, 5).unwrap().prepare().unwrap();
        assert_eq!(send.len(), 4 * total as u64);
        for step in 0..4 {
            memory.write(&numbers(100 * step)).unwrap();
            if step % 2 == 0 {
                send.start().unwrap();
            } else {
                send.start_on(&stream).unwrap();
                world.synchronize(&stream, soon()).unwrap();
            }
            send.wait(soon()).unwrap();
        }
    } else {
        let recv = peer.recvv(&pieces, 5).unwrap().prepare().unwrap();
        for step in 0..4 {
            memory.write(&vec![NOBODY; memory.len()]).unwrap();
            if step % 2 == 0 {
                recv.start().unwrap();
                recv.wait(soon()).unwrap();
            } else {
                recv.start_on(&stream).unwrap();
                recv.wait_on(&stream).unwrap();
                world.synchronize(&stream, soon()).unwrap();
                assert!(recv.test().unwrap());
            }
            assert_eq!(memory.to_vec().unwrap(), numbers(100 * step), "{sent:?} to {posted:?}");
            assert_eq!(recv.message_len().unwrap(), Some(4 * total as u64));
        }
    }
    world.barrier().unwrap();
}

const SPLITS: &[(&[usize], &[usize])] = &[
    (&[4, 4], &[4, 4]),
    (&[3, 5, 1], &[1, 8]),
    (&[7], &[1, 2, 4]),
    (&[1, 2, 4], &[7]),
    (&[0, 3, 0, 0, 2], &[2, 0, 3, 0]),
    (&[2, 2], &[3, 0, 9]),
    (&[], &[1, 2]),
    (&[0, 0], &[]),
];

#[test]
fn pieces_of_unequal_lengths_arrive_in_order_and_touch_nothing_else() {
    let host = &Device::Host;
    ranks(2, |world| SPLITS.iter().for_each(|(sent, posted)| exchange(world, host, sent, posted)));
}

mod gpu {
    use super::*;

    #[test]
    #[ignore = "needs a CUDA GPU"]
    fn pieces_of_a_gpus_memory_arrive_in_order_and_touch_nothing_else() {
        ranks(2, |world| {
            let device = &Device::cuda(0).unwrap();
            // A list without pieces is the host's.
            let on_gpu =
                SPLITS.iter().filter(|(sent, posted)| !sent.is_empty() && !posted.is_empty());
            on_gpu.for_each(|(sent, posted)| exchange(world, device, sent, posted));
            // Many, of which one is more than a warp copies at once; to many others, and to one.
            let mut sent = vec![2; 1000];
            sent[17] = 50_001;
            exchange(world, device, &sent, &[3; 18_000]);
            exchange(world, device, &sent, &[60_000]);
        });
    }
}

#[test]
fn a_message_in_pieces_meets_one_in_a_single_piece() {
    ranks(2, |world| {
        let (whole, parts) = (region(world, 6), region(world, 10));
        let peer = world.peer(1 - world.rank()).unwrap();
        let pieces = [(&parts, 8..10), (&parts, 0..4)];
        let (send, recv) = if world.rank() == 0 {
            parts.write(&[3, 4, 5, 6, 0, 0, 0, 0, 1, 2]).unwrap();
            (peer.sendv(&pieces, 0).unwrap(), peer.recv(&whole, 1))
        } else {
            whole.write(&[11, 12, 13, 14, 15, 16]).unwrap();
            (peer.send(&whole, 1), peer.recv(&region(world, 6), 0))
        };
        let (send, recv) = (send.prepare().unwrap(), recv.prepare().unwrap());
        recv.start().unwrap();
        send.start().unwrap();
        wait_all(&[&send, &recv], soon()).unwrap();
        world.barrier().unwrap();
        if world.rank() == 0 {
            assert_eq!(whole.to_vec().unwrap(), [11, 12, 13, 14, 15, 16]);
        }
    });
}

#[test]
fn more_bytes_than_were_posted_are_refused_on_both_sides_with_both_lengths() {
    ranks(2, |world| {
        let memory = region(world, 10);
        let peer = world.peer(1 - world.rank()).unwrap();
        let outcome: Result<()> = if world.rank() == 0 {
            let send = peer.sendv(&[(&memory, 0..3), (&memory, 5..8)], 0).unwrap();
            let send = send.prepare().unwrap();
            send.start().and_then(|()| send.wait(soon()))
        } else {
            let recv = peer.recvv(&[(&memory, 0..3), (&memory, 5..7)], 0).unwrap();
            let recv = recv.prepare().unwrap();
            recv.start().and_then(|()| recv.wait(soon()))
        };
        match outcome {
            Err(Error::Truncated { sent: 24, posted: 20, .. }) => {}
            other => panic!("{other:?}"),
        }
        world.barrier().unwrap();
        assert_eq!(memory.to_vec().unwrap(), [0; 10]);
    });
}

#[test]
fn pieces_that_are_outside_and_pieces_in_kernels_are_refused() {
    let world = World::threads(1).unwrap().pop().unwrap();
    let memory = region(&world, 10);
    let me = world.peer(0).unwrap();
    let text = me.sendv(&[(&memory, 0..3), (&memory, 8..11)], 0).unwrap_err().to_string();
    assert!(text.contains("piece 1 of a send") && text.contains("8..11 of 10"), "{text}");
    let two = [(&memory, 0..3), (&memory, 5..6)];
    let send = me.sendv(&two, 0).unwrap().prepare().unwrap();
    // One is as good as a region, however it came about.
    let recv = me.recvv(&[(&memory, 0..0), (&memory, 5..9)], 0).unwrap().prepare().unwrap();
    let text = send.handle().unwrap_err().to_string();
    assert!(text.contains("a kernel moves a message in one piece"), "{text}");
    recv.handle().unwrap();
    world.finish().unwrap();
}

/// What the processes of the next test run.
#[test]
#[ignore = "is a rank of the other tests"]
fn a_rank() {
    let world = World::init().unwrap();
    SPLITS.iter().for_each(|(sent, posted)| exchange(&world, &Device::Host, sent, posted));
    world.finish().unwrap();
    say("through");
}

#[test]
fn pieces_travel_between_processes() {
    let mut started: Vec<Rank> = start_mprun("", 2, &[]);
    for rank in &mut started {
        assert_eq!(rank.next(Duration::from_secs(60)).as_deref(), Some("through"));
        assert_eq!(rank.end(Duration::from_secs(20)), Some(0));
    }
}
