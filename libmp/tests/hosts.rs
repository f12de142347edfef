//! Two network namespaces on one cable, as two hosts with two ranks each: messages and windows within and between them, and
//! the cable cut.

mod common;

use std::process::Command;
use std::time::{Duration, Instant};

use common::{Rank, SOON, say};
use libmp::{Deadline, Device, Path, Region, Result, World, wait_all};

const START: Duration = Duration::from_secs(90);

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

/// A rank process: what it does is chosen by the test that starts it.
#[test]
#[ignore = "is a rank of the other tests"]
fn a_rank() {
    let world = World::init().unwrap();
    match std::env::var("TEST_PROGRAM").unwrap().as_str() {
        "everything" => everything(&world).unwrap(),
        "endless" => {
            say("ready");
            let error = loop {
                if let Err(error) = everything(&world) {
                    break error;
                }
            };
            say(error);
            drop(world);
            std::process::exit(3);
        }
        other => panic!("no program {other}"),
    }
    world.finish().unwrap();
    say("done");
}

/// Rings of messages from the host and on streams, puts, gets, signals and atomics to everybody.
fn everything(world: &World) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    for other in 0..size {
        let near = other / 2 == rank / 2;
        assert_eq!(world.path(other)?, if near { Path::Direct } else { Path::NicTcp });
    }
    let stream = world.stream(&Device::Host)?;
    let left = (rank + size - 1) % size;
    for len in [1, 300, 200_000] {
        let (out, here): (Region<u64>, Region<u64>) =
            (world.alloc(&Device::Host, len)?, world.alloc(&Device::Host, len)?);
        let send = world.peer((rank + 1) % size)?.send(&out, 1).prepare()?;
        let recv = world.peer(left)?.recv(&here, 1).prepare()?;
        for round in 0..20u64 {
            out.write(&vec![rank as u64 * 100 + round; len])?;
            if round % 2 == 0 {
                recv.start()?;
                send.start()?;
            } else {
                recv.start_on(&stream)?;
                send.start_on(&stream)?;
            }
            wait_all(&[&send, &recv], soon())?;
            assert_eq!(here.to_vec()?, vec![left as u64 * 100 + round; len]);
        }
    }
    let mine: Region<u64> = world.alloc(&Device::Host, size + 1)?;
    let window = world.window(&mine, size)?;
    let (one, back): (Region<u64>, Region<u64>) =
        (world.alloc(&Device::Host, 1)?, world.alloc(&Device::Host, 1)?);
    one.write(&[rank as u64 + 7])?;
    for other in 0..size {
        window.put_signal(other, rank as u64, &one, rank, 1)?;
        window.get(other, rank as u64, &back)?;
        assert_eq!(back.to_vec()?, [rank as u64 + 7]);
        window.fetch_add(other, size as u64, 1)?;
    }
    for other in 0..size {
        window.wait_signal(other, 1, soon())?;
    }
    world.barrier()?;
    let expected: Vec<u64> = (0..size as u64).map(|other| other + 7).chain([size as u64]).collect();
    assert_eq!(mine.to_vec()?, expected);
    world.barrier()
}

/// Two namespaces and the cable between them; gone when dropped.
struct Hosts {
    names: [String; 2],
}

fn run(command: &str) {
    let mut words = command.split(' ');
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Hosts {
    fn new(name: &str) -> Hosts {
        let hosts = Hosts {
            names: ["a", "b"].map(|end| format!("mp-{name}-{}-{end}", std::process::id())),
        };
        let [a, b] = &hosts.names;
        run(&format!("ip netns add {a}"));
        run(&format!("ip netns add {b}"));
        run(&format!("ip link add cable netns {a} type veth peer name cable netns {b}"));
        for (host, name) in hosts.names.iter().enumerate() {
            run(&format!("ip -n {name} addr add 10.213.8.{}/24 dev cable", host + 1));
            run(&format!("ip -n {name} link set lo up"));
            run(&format!("ip -n {name} link set cable up"));
        }
        hosts
    }

    /// Two ranks on each, started as torchrun does.
    fn start(&self, program: &str) -> Vec<Rank> {
        let rank = |rank: usize| {
            let node = format!("host {}", rank / 2);
            let variables = [
                ("RANK", rank.to_string()),
                ("WORLD_SIZE", "4".into()),
                ("LOCAL_RANK", (rank % 2).to_string()),
                ("LOCAL_WORLD_SIZE", "2".into()),
                ("MASTER_ADDR", "10.213.8.1".into()),
                ("MASTER_PORT", "29400".into()),
                // The namespaces share a kernel, which is what makes a host.
                ("MP_NODE", node),
                ("MP_INIT_TIMEOUT", "60".into()),
                ("MP_HEARTBEAT", "0.2".into()),
                ("MP_HEARTBEAT_TIMEOUT", "3".into()),
            ];
            let variables = variables.map(|(name, value)| (name.to_owned(), value));
            let prefix = ["ip", "netns", "exec", &self.names[rank / 2]];
            Rank::start_under(&prefix, program, &variables, None)
        };
        (0..4).map(rank).collect()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

#[test]
#[ignore = "needs root and iproute2"]
fn ranks_of_two_hosts_reach_each_other_over_the_cable() {
    let hosts = Hosts::new("all");
    let mut ranks = hosts.start("everything");
    for (number, rank) in ranks.iter_mut().enumerate() {
        assert_eq!(rank.next(START).as_deref(), Some("done"), "rank {number}");
        assert_eq!(rank.end(START), Some(0));
    }
}

#[test]
#[ignore = "needs root and iproute2"]
fn a_cut_cable_ends_the_world_on_both_hosts_with_a_rank_of_the_other() {
    let hosts = Hosts::new("cut");
    let mut ranks = hosts.start("endless");
    for rank in &ranks {
        assert_eq!(rank.next(START).as_deref(), Some("ready"));
    }
    std::thread::sleep(Duration::from_millis(300));
    run(&format!("ip -n {} link set cable down", hosts.names[0]));
    let since = Instant::now();
    for (number, rank) in ranks.iter_mut().enumerate() {
        let text = rank.next(SOON).unwrap();
        println!("rank {number} after {:.1?}: {text}", since.elapsed());
        assert!(text.contains("is lost"), "rank {number}: {text}");
        assert_eq!(rank.end(SOON), Some(3));
    }
}
