//! Ranks that meet over TCP: who is let in, who is turned away, and what everybody is told.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{SOON, free_port, mprun, over_tcp, rendezvous};
use libmp::launcher::Job;
use libmp::{BLOB_MAX, Config, Error, PROTOCOL, Result, World};

fn as_they_are(_: usize, _: &mut Config) {}

fn error_of(_: usize, world: Result<World>) -> String {
    world.expect_err("the world started").to_string()
}

#[test]
fn blobs_of_every_size_pass_between_ranks() {
    over_tcp(4, &[("MP_TOKEN", "00112233"), ("MP_JOB", "j")], as_they_are, |rank, world| {
        let world = world.unwrap();
        for size in [0, 1, 65_536, BLOB_MAX] {
            let all = world.all_gather(&vec![rank as u8; size / (rank + 1)]).unwrap();
            for (rank, blob) in all.iter().enumerate() {
                assert_eq!(*blob, vec![rank as u8; size / (rank + 1)]);
            }
            let mut blob = vec![rank as u8; size];
            world.broadcast(2, &mut blob).unwrap();
            assert_eq!(blob, vec![2; size]);
        }
        assert_eq!(world.sum(0.5).unwrap(), 2.0);
        world.finish().unwrap();
    });
}

#[test]
fn ranks_on_hosts_of_their_own_are_not_node_local() {
    let two_hosts =
        |rank: usize, config: &mut Config| config.node = Some(format!("host {}", rank % 2));
    over_tcp(5, &[], two_hosts, |rank, world| {
        let world = world.unwrap();
        assert_eq!(
            (world.local_rank(), world.local_size()),
            (rank / 2, if rank % 2 == 0 { 3 } else { 2 })
        );
        let node = world.node_local().unwrap();
        assert_eq!((node.rank(), node.size()), (rank / 2, world.local_size()));
        assert_eq!(node.world_rank(0).unwrap(), rank % 2);
        assert_eq!(node.sum(rank as u64).unwrap(), if rank % 2 == 0 { 6 } else { 4 });
        drop(node);
        world.finish().unwrap();
    });
}

#[test]
fn a_rank_of_another_protocol_ends_the_start_with_both_versions() {
    let newer = |rank: usize, config: &mut Config| config.build.protocol += u32::from(rank == 2);
    for text in over_tcp(3, &[("MP_TOKEN", "aa")], newer, error_of) {
        assert!(text.contains(&format!("version {}", PROTOCOL + 1)), "{text}");
        assert!(
            text.contains(&format!("version {PROTOCOL}")) && text.contains("the same build"),
            "{text}"
        );
    }
}

#[test]
fn a_rank_of_another_build_ends_the_start_with_both_builds() {
    let other = |rank: usize, config: &mut Config| {
        if rank == 1 {
            config.build.revision = "9.9+feed".into();
        }
    };
    let ours = libmp::BuildInfo::current().revision;
    for text in over_tcp(3, &[], other, error_of) {
        assert!(
            text.contains("rank 1 on ") && text.contains("9.9+feed") && text.contains(&ours),
            "{text}"
        );
    }
}

#[test]
fn a_rank_with_another_size_of_the_world_ends_the_start() {
    let (fd, address) = rendezvous();
    let start = |rank: usize, size: usize| {
        let config = Config::from_variables(mprun(rank, size, &address, fd, &[])).unwrap();
        World::with_config(&config).unwrap_err().to_string()
    };
    std::thread::scope(|scope| {
        let root = scope.spawn(|| start(0, 2));
        let other = scope.spawn(|| start(1, 3));
        for text in [root.join().unwrap(), other.join().unwrap()] {
            assert!(text.contains("one of 3") && text.contains("one of 2"), "{text}");
        }
    });
}

/// Takes one connection and passes its bytes on, those from the server only after `held`, if it is set when they come.
fn pass_on(listener: &TcpListener, server: &str, hold: &AtomicBool, held: Duration) {
    let (client, _) = listener.accept().unwrap();
    let server = TcpStream::connect(server).unwrap();
    let pass = |mut from: &TcpStream, mut to: &TcpStream, holds: bool| {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            if holds && hold.load(Ordering::Acquire) {
                std::thread::sleep(held);
                hold.store(false, Ordering::Release);
            }
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Write);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| pass(&client, &server, false));
        pass(&server, &client, true);
    });
}

#[test]
fn rank_0_stays_until_the_others_have_heard_that_the_world_is_finished() {
    let (fd, address) = rendezvous();
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let through = proxy.local_addr().unwrap().to_string();
    let hold = AtomicBool::new(false);
    let (begin, holds) = std::sync::mpsc::channel();
    let start = |rank: usize, address: &str| {
        let config = Config::from_variables(mprun(rank, 2, address, fd, &[])).unwrap();
        World::with_config(&config).unwrap()
    };
    std::thread::scope(|scope| {
        let server = address.as_str();
        // Longer than a world that fails waits for those who have not heard.
        let (proxy, passing) = (&proxy, &hold);
        scope.spawn(move || pass_on(proxy, server, passing, Duration::from_millis(1500)));
        let (hold, root_address) = (&hold, &address);
        let root = scope.spawn(move || {
            let world = start(0, root_address);
            world.barrier().unwrap();
            holds.recv().unwrap();
            world.finish().unwrap();
            assert!(!hold.load(Ordering::Acquire), "rank 0 was gone before rank 1 had its answer");
        });
        let world = start(1, &through);
        world.barrier().unwrap();
        hold.store(true, Ordering::Release);
        begin.send(()).unwrap();
        world.finish().unwrap();
        root.join().unwrap();
    });
}

#[test]
fn two_processes_with_one_rank_end_the_start() {
    let (fd, address) = rendezvous();
    let start = |rank: usize| {
        // Different rendezvous names, or the second would wait for the first.
        let address =
            if rank == 0 { address.clone() } else { address.replace("127.0.0.1", "localhost") };
        let config = Config::from_variables(mprun(rank, 3, &address, fd, &[])).unwrap();
        World::with_config(&config).unwrap_err().to_string()
    };
    let again = || {
        let config = Config::from_variables(mprun(1, 3, &address, fd, &[])).unwrap();
        World::with_config(&config).unwrap_err().to_string()
    };
    std::thread::scope(|scope| {
        let ranks = [scope.spawn(|| start(0)), scope.spawn(|| start(1)), scope.spawn(again)];
        for rank in ranks {
            let text = rank.join().unwrap();
            assert!(text.contains("two processes are rank 1"), "{text}");
        }
    });
}

#[test]
fn a_connection_without_the_token_is_turned_away_and_does_not_stop_the_start() {
    let (fd, address) = rendezvous();
    let start = |rank: usize, token: &str| {
        let config =
            Config::from_variables(mprun(rank, 2, &address, fd, &[("MP_TOKEN", token)])).unwrap();
        World::with_config(&config)
    };
    std::thread::scope(|scope| {
        let root = scope.spawn(|| start(0, "c0ffee").unwrap().finish());
        let text = start(1, "c0ffef").unwrap_err().to_string();
        assert!(text.contains("wrong token") && !text.contains("c0ff"), "{text}");
        start(1, "c0ffee").unwrap().finish().unwrap();
        root.join().unwrap().unwrap();
    });
}

#[test]
fn strangers_do_not_stop_the_start() {
    let (fd, address) = rendezvous();
    let start = |rank: usize| {
        let config =
            Config::from_variables(mprun(rank, 2, &address, fd, &[("MP_TOKEN", "77")])).unwrap();
        World::with_config(&config).unwrap()
    };
    std::thread::scope(|scope| {
        let silent: Vec<_> = (0..20).map(|_| TcpStream::connect(&address).unwrap()).collect();
        let root = scope.spawn(|| start(0).finish());
        let mut browser = TcpStream::connect(&address).unwrap();
        browser.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        browser.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        assert!(matches!(browser.read(&mut [0; 64]), Ok(0) | Err(_)), "a browser was answered");
        // The beginning of a greeting with the token, and then far too much.
        let mut flood = TcpStream::connect(&address).unwrap();
        let mut bytes = b"libmpctl".to_vec();
        bytes.extend_from_slice(&PROTOCOL.to_le_bytes());
        bytes.extend([0, 0, 0, 0, 0x77]);
        bytes.extend([0; 31]);
        bytes.extend(u32::MAX.to_le_bytes());
        flood.write_all(&bytes).unwrap();
        flood.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut answer = Vec::new();
        let _ = flood.read_to_end(&mut answer);
        assert!(answer.len() <= 48, "a flood was let in");
        start(1).finish().unwrap();
        root.join().unwrap().unwrap();
        drop(silent);
    });
}

/// Starts a rank that knows the secret `77`, and finishes when all are there.
fn start_and_finish(rank: usize, size: usize, address: &str, fd: i32) {
    let variables = mprun(rank, size, address, fd, &[("MP_TOKEN", "77")]);
    let world = World::with_config(&Config::from_variables(variables).unwrap()).unwrap();
    world.finish().unwrap();
}

#[test]
fn silent_connections_do_not_take_the_places_of_ranks() {
    let (fd, address) = rendezvous();
    std::thread::scope(|scope| {
        // More than rank 0 has places for, before anybody else comes; some wait in the system's queue.
        let connect = || TcpStream::connect(&address).unwrap();
        let mut silent: Vec<_> = (0..70).map(|_| connect()).collect();
        let root = scope.spawn(|| start_and_finish(0, 4, &address, fd));
        silent.extend((0..70).map(|_| connect()));
        for rank in 1..4 {
            std::thread::sleep(Duration::from_millis(100));
            let address = &address;
            scope.spawn(move || start_and_finish(rank, 4, address, fd));
        }
        root.join().unwrap();
        drop(silent);
    });
}

#[test]
fn a_flood_of_connections_that_never_ends_does_not_stop_the_start() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let (fd, address) = rendezvous();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut held = std::collections::VecDeque::new();
                let until = Instant::now() + SOON;
                let to = address.parse().unwrap();
                while !over.load(Ordering::Relaxed) && Instant::now() < until {
                    held.extend(TcpStream::connect_timeout(&to, Duration::from_millis(50)));
                    // This process has descriptors for so many.
                    if held.len() > 200 {
                        held.pop_front();
                    }
                }
            });
        }
        let ranks: Vec<_> = (0..4)
            .map(|rank| {
                let address = &address;
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(100) * rank as u32);
                    start_and_finish(rank, 4, address, fd);
                })
            })
            .collect();
        let ended: Vec<_> = ranks.into_iter().map(|rank| rank.join()).collect();
        over.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|ended| ended.unwrap());
    });
}

#[test]
fn nobody_listens_once_the_world_is_complete_whoever_else_holds_the_socket() {
    let (fd, address) = rendezvous();
    // As a shell does that rank 0 was started from.
    // SAFETY: a call that takes no pointer.
    let other = unsafe { libc::dup(fd) };
    assert!(other >= 0);
    let start = |rank: usize| {
        let config = Config::from_variables(mprun(rank, 2, &address, fd, &[])).unwrap();
        World::with_config(&config).unwrap()
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let other = scope.spawn(|| start(1));
            let (root, other) = (start(0), other.join().unwrap());
            let refused = TcpStream::connect(&address).unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
            let other = scope.spawn(|| other.finish().unwrap());
            root.finish().unwrap();
            other.join().unwrap();
        }
    });
}

#[test]
fn a_rank_that_waits_for_a_late_rank_0_is_as_patient_as_the_start() {
    let (fd, address) = rendezvous();
    let start = |rank: usize| {
        let more = [("MP_HEARTBEAT", "0.1"), ("MP_HEARTBEAT_TIMEOUT", "0.5")];
        let variables = mprun(rank, 2, &address, fd, &more);
        World::with_config(&Config::from_variables(variables).unwrap()).unwrap().finish().unwrap();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| start(1));
        std::thread::sleep(Duration::from_millis(1500));
        start(0);
    });
}

#[test]
fn a_rank_that_the_launcher_reports_as_gone_ends_the_start_at_once() {
    let told = |gone: usize, ranks: [usize; 2], is_stopped: bool| {
        let (fd, address) = rendezvous();
        // SAFETY: the descriptor is ours, and nobody else uses it: rank 0 would have.
        let of_rank_0 = (gone == 0).then(|| unsafe { TcpListener::from_raw_fd(fd) });
        // Of a rank 0 that has ended it is closed.
        let of_rank_0 = of_rank_0.filter(|_| is_stopped);
        let job = Job::new(address.parse().unwrap(), "77").unwrap();
        let since = Instant::now();
        std::thread::scope(|scope| {
            let address = &address;
            let start = |rank: usize| {
                scope.spawn(move || {
                    let variables = mprun(rank, 3, address, fd, &[("MP_TOKEN", "77")]);
                    World::with_config(&Config::from_variables(variables).unwrap()).unwrap_err()
                })
            };
            let early = start(ranks[0]);
            let how = "it was killed by SIGKILL";
            if ranks.contains(&0) {
                job.gone(gone as u32, how).unwrap();
            } else {
                job.in_place_of_rank_0(of_rank_0, gone as u32, how).unwrap();
            }
            for rank in [early, start(ranks[1])] {
                let error = rank.join().unwrap();
                let Error::PeerLost { rank, .. } = &error else { panic!("{error}") };
                assert_eq!(*rank, gone, "{error}");
                let how = "is lost: it was killed by SIGKILL before all ranks had met";
                assert!(error.to_string().contains(how), "{error}");
            }
        });
        assert!(since.elapsed() < SOON, "found out by waiting");
    };
    told(2, [0, 1], false);
    told(1, [2, 0], false);
    told(0, [1, 2], false);
    told(0, [1, 2], true);
}

#[test]
fn rank_0_answers_the_launcher_once_it_is_starting() {
    let (fd, address) = rendezvous();
    let job = Job::new(address.parse().unwrap(), "77").unwrap();
    let call = job.call().unwrap();
    // Who hangs up has told nothing.
    drop(job.call().unwrap());
    assert!(!call.is_answered().unwrap());
    let variables = mprun(0, 2, &address, fd, &[("MP_TOKEN", "77")]);
    let start = || World::with_config(&Config::from_variables(variables).unwrap()).unwrap_err();
    std::thread::scope(|scope| {
        let rank_0 = scope.spawn(start);
        let since = Instant::now();
        while !call.is_answered().unwrap() {
            assert!(since.elapsed() < SOON, "no answer");
            std::thread::sleep(Duration::from_millis(5));
        }
        call.gone(1, "it is stopped").unwrap();
        let error = rank_0.join().unwrap().to_string();
        assert!(error.contains("is lost: it is stopped before all ranks had met"), "{error}");
    });
}

#[test]
fn only_who_knows_the_secret_is_believed_that_a_rank_is_gone() {
    let (fd, address) = rendezvous();
    Job::new(address.parse().unwrap(), "78").unwrap().gone(1, "it was killed").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| start_and_finish(1, 2, &address, fd));
        start_and_finish(0, 2, &address, fd);
    });
    assert!(Job::new(address.parse().unwrap(), "x").is_none(), "no secret");
}

#[test]
fn ranks_that_do_not_come_are_named_to_all_who_did() {
    let (fd, address) = rendezvous();
    let since = Instant::now();
    let start = |rank: usize| {
        // Long enough for those who come, on a busy machine too.
        let more = [("MP_INIT_TIMEOUT", "2"), ("MP_TOKEN", "11")];
        let config = Config::from_variables(mprun(rank, 5, &address, fd, &more)).unwrap();
        World::with_config(&config).unwrap_err()
    };
    std::thread::scope(|scope| {
        let ranks: Vec<_> = [0, 1, 3].map(|rank| scope.spawn(move || start(rank))).into();
        // A rank with the wrong token is among the reasons.
        let stranger = mprun(2, 5, &address, fd, &[("MP_TOKEN", "12")]);
        World::with_config(&Config::from_variables(stranger).unwrap()).unwrap_err();
        for rank in ranks {
            let error = rank.join().unwrap();
            let Error::Incomplete { missing, size, refused, .. } = &error else {
                panic!("{error}")
            };
            assert_eq!((&missing[..], *size), (&[2, 4][..], 5));
            assert!(refused.len() == 1 && refused[0].contains("wrong token"), "{error}");
        }
    });
    assert!(since.elapsed() >= Duration::from_secs(2) && since.elapsed() < SOON);
}

#[test]
fn a_rank_that_finds_no_rank_0_says_where_it_looked() {
    let address = format!("127.0.0.1:{}", free_port());
    let variables = mprun(1, 2, &address, -1, &[("MP_INIT_TIMEOUT", "0.2")]);
    let error = World::with_config(&Config::from_variables(variables).unwrap()).unwrap_err();
    assert!(
        matches!(&error, Error::Unreachable { rank: 1, address: at, .. } if *at == address),
        "{error}"
    );
}

#[test]
fn a_listener_that_never_answers_does_not_hold_a_rank_for_ever() {
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = mute.local_addr().unwrap().to_string();
    let variables = mprun(1, 2, &address, -1, &[("MP_INIT_TIMEOUT", "0.2")]);
    let since = Instant::now();
    let error = World::with_config(&Config::from_variables(variables).unwrap()).unwrap_err();
    assert!(error.to_string().contains("did not answer"), "{error}");
    assert!(since.elapsed() < SOON);
}

#[test]
fn a_rendezvous_port_that_is_taken_is_named_by_rank_0() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port().to_string();
    let variables = [
        ("RANK", "0"),
        ("WORLD_SIZE", "2"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", &port[..]),
    ];
    let error = World::with_config(&Config::from_variables(variables).unwrap()).unwrap_err();
    assert!(matches!(&error, Error::Bind { address, .. } if address.ends_with(&port)), "{error}");
}

#[test]
fn rank_0_listens_on_the_rendezvous_address_only() {
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let variables: Vec<_> = mprun(0, 2, &address, -1, &[])
        .into_iter()
        .filter(|(name, _)| name != "MP_RENDEZVOUS_FD")
        .collect();
    std::thread::scope(|scope| {
        let root = scope.spawn(|| {
            let world = World::with_config(&Config::from_variables(variables).unwrap())?;
            world.finish()
        });
        // It listens; a stranger that hangs up harms nobody.
        let until = Instant::now() + SOON;
        while TcpStream::connect(&address).is_err() {
            assert!(Instant::now() < until, "nobody listens on {address}");
            std::thread::sleep(Duration::from_millis(5));
        }
        // Every 127.x.y.z is this host, so a wildcard listener would answer here.
        assert!(TcpStream::connect(("127.0.0.2", port)).is_err());
        let config = Config::from_variables(mprun(1, 2, &address, -1, &[])).unwrap();
        World::with_config(&config).unwrap().finish().unwrap();
        root.join().unwrap().unwrap();
    });
}

#[test]
fn a_world_can_start_again_at_the_same_rendezvous_at_once() {
    let (fd, address) = rendezvous();
    std::thread::scope(|scope| {
        for rank in 0..3 {
            let address = &address;
            scope.spawn(move || {
                let config = Config::from_variables(mprun(rank, 3, address, fd, &[])).unwrap();
                for round in 0..10 {
                    let world = World::with_config(&config).unwrap();
                    assert_eq!(world.sum(round).unwrap(), 3 * round);
                    world.finish().unwrap();
                }
                // Two that overlap.
                let one = World::with_config(&config).unwrap();
                let two = World::with_config(&config).unwrap();
                two.barrier().unwrap();
                one.finish().unwrap();
                assert_eq!(two.sum(1u64).unwrap(), 3);
                two.finish().unwrap();
            });
        }
    });
}
