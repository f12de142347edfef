//! Storms between two network namespaces on one cable, as two hosts with two ranks each, the cable as it should be and with
//! loss, delay, disorder and duplicates (tc netem). Needs root, `ip` and `tc` of iproute2; the bad cable needs the kernel's
//! sch_netem. In a guest that has them all: `tools/rxe-vm --cpus 2 test -p mp-torture --test cable`.

use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// No storm of this file takes so long, in a slow guest either.
const PATIENCE: Duration = Duration::from_secs(200);

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
        let names = ["a", "b"].map(|end| format!("mp-storm-{name}-{}-{end}", std::process::id()));
        let hosts = Hosts { names };
        let [a, b] = &hosts.names;
        run(&format!("ip netns add {a}"));
        run(&format!("ip netns add {b}"));
        run(&format!("ip link add cable netns {a} type veth peer name cable netns {b}"));
        for (host, name) in hosts.names.iter().enumerate() {
            run(&format!("ip -n {name} addr add 10.213.9.{}/24 dev cable", host + 1));
            run(&format!("ip -n {name} link set lo up"));
            run(&format!("ip -n {name} link set cable up"));
        }
        hosts
    }

    /// What netem does to every packet, each way.
    fn trouble(&self, how: &str) {
        for name in &self.names {
            run(&format!("tc -n {name} qdisc add dev cable root netem {how}"));
        }
    }

    /// A rank of four, two on each host, started as torchrun does.
    fn rank(&self, rank: usize, form: &str) -> Child {
        Command::new("ip")
            .args(["netns", "exec", &self.names[rank / 2], env!("CARGO_BIN_EXE_mp-torture")])
            .args(["storm", "--seconds", "2", "--seed", "5", "--form", form])
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", "4")
            .env("LOCAL_RANK", (rank % 2).to_string())
            .env("LOCAL_WORLD_SIZE", "2")
            .env("MASTER_ADDR", "10.213.9.1")
            .env("MASTER_PORT", "29401")
            // The namespaces share a kernel, which is what makes a host.
            .env("MP_NODE", format!("host {}", rank / 2))
            .env("MP_INIT_TIMEOUT", "100")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// A storm: every rank must end in order, and rank 0 says what was done.
    fn storm(&self, form: &str) {
        let mut ranks: Vec<Child> = (0..4).map(|rank| self.rank(rank, form)).collect();
        let until = Instant::now() + PATIENCE;
        while ranks.iter_mut().any(|rank| rank.try_wait().unwrap().is_none()) {
            if Instant::now() > until {
                ranks.iter_mut().for_each(|rank| rank.kill().unwrap());
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let ended: Vec<Output> =
            ranks.into_iter().map(|rank| rank.wait_with_output().unwrap()).collect();
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        for (rank, Output { status, stderr, .. }) in ended.iter().enumerate() {
            assert!(status.success(), "{form}: rank {rank}: {status}: {}", said(stderr));
        }
        let summary = said(&ended[0].stdout);
        assert!(summary.contains("\"operations\":"), "{form}: {summary}");
        println!("{form}: {summary}");
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
fn storms_between_two_hosts_find_nothing_wrong() {
    let hosts = Hosts::new("good");
    hosts.storm("host");
    hosts.storm("mixed");
}

#[test]
#[ignore = "needs root, iproute2 and the kernel's sch_netem: tools/rxe-vm --cpus 2 test -p mp-torture --test cable"]
fn loss_delay_disorder_and_duplicates_on_the_cable_change_no_word() {
    let hosts = Hosts::new("bad");
    hosts.trouble("delay 2ms 1ms loss 1% reorder 5% duplicate 2%");
    hosts.storm("host");
    hosts.storm("mixed");
}
