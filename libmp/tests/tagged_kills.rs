//! The end of a rank while others are in every kind of call that tagged messages have with it, and its messages in every state: one of 8 processes is
//! killed, is stopped, or aborts the world, and each survivor has to say what it was at, with whom, and how far. `TEST_KILLS`: how often it is
//! killed, and how often it aborts (100 for a full run); it is stopped half as often.

mod common;

use std::time::Duration;

use common::{SOON, say, soon, start_mprun};
use libmp::tagged::{Options, Tagged};
use libmp::{Device, World};

const RANKS: usize = 8;
const VICTIM: usize = 1;
const START: Duration = Duration::from_secs(60);
const LONG: usize = 16 << 20;

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
    // Offered, and never asked again whether somebody wants it.
    let _offered = messages.isend(&out, 7, 18).unwrap();
    messages.send(&[1u8], 7, 1, soon()).unwrap();
    say("ready");
    let go = std::env::var("TEST_GO").unwrap();
    while !std::path::Path::new(&go).exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    world.abort("enough of it");
    // Until the others have said what they say.
    std::thread::sleep(SOON);
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
        7 => {
            messages.recv(&mut [0u8], VICTIM, 1, soon())?;
            let mut wanted = messages.irecv(&region, VICTIM, 18)?;
            assert_eq!((wanted.test()?, messages.staged().copies), (None, 0));
            ready();
            wanted.wait(soon())?;
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

/// How the victim ends, and what is said of it then.
#[derive(Clone, Copy)]
enum End {
    Killed,
    Stopped,
    Aborts,
}

fn every_survivor_says_how_far_it_was(end: End, turn: usize) {
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let (silence, word) = match end {
        End::Killed => ("60", "is lost"),
        End::Stopped => ("10", "is lost"),
        End::Aborts => ("60", "aborted the world: enough of it"),
    };
    let variables = [("TEST_GO", go.to_str().unwrap()), ("MP_HEARTBEAT_TIMEOUT", silence)];
    let mut ranks = start_mprun("tagged", RANKS, &variables);
    for (number, rank) in ranks.iter().enumerate() {
        assert_eq!(rank.next(START).as_deref(), Some("ready"), "rank {number}, turn {turn}");
    }
    match end {
        End::Killed => ranks[VICTIM].signal(libc::SIGKILL),
        End::Stopped => ranks[VICTIM].signal(libc::SIGSTOP),
        End::Aborts => std::fs::write(&go, "").unwrap(),
    }
    let expected = [
        (0, "receive of tag 10 from rank 1", "0 of 100 bytes"),
        (2, "send of tag 12 to rank 1", "0 of 1048576 bytes"),
        (3, "send of tag 13 to rank 1", "of 16777216 bytes"),
        (4, "receive of tag 14 from rank 1", "of 16777216 bytes"),
        (5, "probe for tag 15 from rank 1", ""),
        (6, "probe for tag 17 from rank 1", ""),
        (7, "receive of tag 18 from rank 1", ", 0 of 16777216 bytes"),
    ];
    for (number, what, far) in expected {
        let said = ranks[number].next(SOON).unwrap_or_default();
        let in_the_middle = [3, 4].contains(&number);
        let is_right = said.starts_with("rank 1 on ")
            && said.contains(word)
            && said.contains(what)
            && said.contains(far)
            && !(in_the_middle && said.contains(", 0 of"));
        assert!(is_right, "rank {number}, turn {turn}: {said}");
        assert_eq!(ranks[number].end(SOON), Some(3), "rank {number}, turn {turn}");
    }
    ranks[VICTIM].signal(libc::SIGKILL);
}

fn turns() -> usize {
    std::env::var("TEST_KILLS").ok().and_then(|it| it.parse().ok()).unwrap_or(2)
}

#[test]
fn every_survivor_says_what_it_was_at_with_the_killed_rank_and_how_far() {
    (0..turns()).for_each(|turn| every_survivor_says_how_far_it_was(End::Killed, turn));
}

#[test]
fn every_survivor_says_so_when_the_rank_aborts_the_world() {
    (0..turns()).for_each(|turn| every_survivor_says_how_far_it_was(End::Aborts, turn));
}

#[test]
fn every_survivor_says_so_when_the_rank_is_stopped_and_silent() {
    // Each takes as long as a silence has to last.
    (0..turns().div_ceil(2))
        .for_each(|turn| every_survivor_says_how_far_it_was(End::Stopped, turn));
}
