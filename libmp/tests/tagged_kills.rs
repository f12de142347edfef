//! The death of a rank while others are in every kind of call that tagged messages have with it, and its messages in every state: one of 7 processes is
//! killed, and each survivor has to say what it was at, with whom, and how far. `TEST_KILLS`: how often (100 for a full run).

mod common;

use std::time::Duration;

use common::{SOON, say, start_mprun};
use libmp::tagged::{Options, Tagged};
use libmp::{Deadline, Device, World};

const RANKS: usize = 7;
const VICTIM: usize = 1;
const START: Duration = Duration::from_secs(60);
const LONG: usize = 16 << 20;

fn soon() -> Deadline {
    Deadline::after(SOON)
}

/// A rank process.
#[test]
#[ignore = "is a rank of the other test"]
fn a_rank() {
    let world = World::init().unwrap();
    let messages = world.tagged(&Options { staged: true, ..Options::default() }).unwrap();
    if world.rank() == VICTIM {
        victim(&world, &messages);
    }
    let error = survivor(&world, &messages).unwrap_err();
    say(&error);
    drop((messages, world));
    std::process::exit(3);
}

/// Is in the middle of a message from rank 3 and of one to rank 4, has sent to rank 6, and does nothing more.
fn victim(world: &World, messages: &Tagged) {
    let (out, into) = (
        world.alloc::<u8>(&Device::Host, LONG).unwrap(),
        world.alloc::<u8>(&Device::Host, LONG).unwrap(),
    );
    messages.send(&[7u8; 10], 6, 16, soon()).unwrap();
    let mut send = messages.isend(&out, 4, 14).unwrap();
    let mut recv = messages.irecv(&into, 3, 13).unwrap();
    // Each has got some chunks.
    for from in [3, 4] {
        while messages.iprobe(from, 1).unwrap().is_none() {
            assert_eq!((send.test().unwrap(), recv.test().unwrap()), (None, None));
        }
    }
    say("ready");
    std::thread::sleep(Duration::from_secs(600));
}

/// What a rank does with the victim when that is killed.
fn survivor(world: &World, messages: &Tagged) -> libmp::Result<()> {
    let region = world.alloc::<u8>(&Device::Host, LONG)?;
    let ready = || say("ready");
    match world.rank() {
        0 => {
            ready();
            messages.recv(&mut [0u8; 100], VICTIM, 10, soon())?;
        }
        2 => {
            ready();
            messages.send(&vec![0u8; 1 << 20], VICTIM, 12, soon())?;
        }
        3 | 4 => {
            let mut request = match world.rank() {
                3 => messages.isend(&region, VICTIM, 13)?,
                _ => messages.irecv(&region, VICTIM, 14)?,
            };
            while messages.staged().copies < 6 {
                assert_eq!(request.test()?, None);
            }
            messages.send(&[1u8], VICTIM, 1, soon())?;
            ready();
            request.wait(soon())?;
        }
        5 => {
            ready();
            messages.mprobe(VICTIM, 15, soon())?;
        }
        _ => {
            let mut got = messages.irecv(&region, VICTIM, 16)?;
            while messages.iprobe(VICTIM, 99)?.is_none() && got.is_active() {
                if got.test()?.is_some() {
                    break;
                }
            }
            ready();
            // Complete, and seen so after the end, too.
            let lost = messages.probe(VICTIM, 17, soon()).unwrap_err();
            assert_eq!((got.wait(soon())?.bytes, region.to_vec()?[9]), (10, 7));
            return Err(lost);
        }
    }
    Ok(())
}

#[test]
fn every_survivor_says_what_it_was_at_with_the_killed_rank_and_how_far() {
    let kills = std::env::var("TEST_KILLS").ok().and_then(|it| it.parse().ok()).unwrap_or(3);
    for kill in 0..kills {
        let mut ranks = start_mprun("tagged", RANKS, &[]);
        for (number, rank) in ranks.iter().enumerate() {
            assert_eq!(rank.next(START).as_deref(), Some("ready"), "rank {number}, kill {kill}");
        }
        ranks[VICTIM].signal(libc::SIGKILL);
        let expected = [
            (0, "receive of tag 10 from rank 1", "0 of 100 bytes"),
            (2, "send of tag 12 to rank 1", "0 of 1048576 bytes"),
            (3, "send of tag 13 to rank 1", "of 16777216 bytes"),
            (4, "receive of tag 14 from rank 1", "of 16777216 bytes"),
            (5, "probe for tag 15 from rank 1", ""),
            (6, "probe for tag 17 from rank 1", ""),
        ];
        for (number, what, far) in expected {
            let said = ranks[number].next(SOON).unwrap_or_default();
            let in_the_middle = [3, 4].contains(&number);
            let is_right = said.starts_with("rank 1 on ")
                && said.contains("is lost")
                && said.contains(what)
                && said.contains(far)
                && !(in_the_middle && said.contains(", 0 of"));
            assert!(is_right, "rank {number}, kill {kill}: {said}");
            assert_eq!(ranks[number].end(SOON), Some(3), "rank {number}, kill {kill}");
        }
    }
}
