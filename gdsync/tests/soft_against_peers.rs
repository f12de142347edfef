//! The software NIC beside its peers on the same machine in the same run: TCP over loopback beside a single stream of
//! iperf3, shared memory beside ucx_perftest. Prints a table and fails where a limit is missed. Two processes each, as
//! the peers have.
//!
//! `cargo test --release -p gdsync --test soft_against_peers -- --ignored --nocapture --test-threads 1`, on a machine
//! that does nothing else.

mod soft_common;

use std::collections::VecDeque;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gdsync::nic::QueuePairOptions;
use gdsync::nic::soft::SoftNic;
use gdsync::wqe::{Operation, Payload};
use soft_common::process::{Order, Peer, Task};
use soft_common::side::Side;
use soft_common::{Outcome, Way, signaled, soon};

/// Rounds, each of which measures ours and the peer's one after the other.
const ROUNDS: usize = 5;

/// The peer; does nothing unless one of the tests below started it.
#[test]
#[ignore = "started by the other tests"]
fn peer() -> Outcome {
    soft_common::process::peer()
}

/// A connection to an idle process.
struct Connection {
    _peer: Peer,
    nic: SoftNic,
    side: Side,
}

impl Connection {
    fn new(way: Way) -> Outcome<Connection> {
        Connection::to(Order::new(way, Task::Idle))
    }

    /// To a process that does something.
    fn to(order: Order) -> Outcome<Connection> {
        let way = order.way;
        let mut peer = Peer::start(&order, &[])?;
        let nic = way.nic()?;
        let side =
            Side::start(&nic, way, 1, QueuePairOptions::default().transport_timeout, |own| {
                peer.exchange(own)
            })?;
        Ok(Connection { _peer: peer, nic, side })
    }

    /// Nanoseconds from posting an 8-byte write to its completion, as the mean of many one after the other.
    fn latency(&self, count: u32) -> Outcome<f64> {
        let segment = [self.side.segment(0, 8)?];
        let payload = Payload::Gather(&segment);
        let write = signaled(Operation::Write { remote: self.side.remote, payload, imm: None });
        let run = |count: u32| -> Outcome<Duration> {
            let began = Instant::now();
            for _ in 0..count {
                let position = self.side.queue.post(&write)?;
                self.side.queue.wait(position, soon())?;
            }
            Ok(began.elapsed())
        };
        run(count / 10)?;
        Ok(run(count)?.as_nanos() as f64 / f64::from(count))
    }

    /// Bytes a second of writes of 1 MiB, a few under way at a time.
    fn bandwidth(&self, time: Duration) -> Outcome<f64> {
        const SIZE: u32 = 1 << 20;
        const UNDER_WAY: usize = 8;
        let mut positions = VecDeque::new();
        let (mut bytes, began) = (0u64, Instant::now());
        // The same bytes to the same place, as the peers' programs do.
        let segment = [self.side.segment(0, SIZE)?];
        let payload = Payload::Gather(&segment);
        let write = signaled(Operation::Write { remote: self.side.remote, payload, imm: None });
        while began.elapsed() < time {
            positions.push_back(self.side.queue.post(&write)?);
            if positions.len() == UNDER_WAY {
                let oldest = positions.pop_front().ok_or("nothing under way")?;
                self.side.queue.wait(oldest, soon())?;
                bytes += u64::from(SIZE);
            }
        }
        Ok(bytes as f64 / began.elapsed().as_secs_f64())
    }
}

/// One side of a program of perftest over the guest's device: its numbers. Where it is: `TEST_PERFTEST`, a folder.
fn perftest(program: &str, size: u32, count: u32) -> Outcome<Vec<f64>> {
    let folder = std::env::var("TEST_PERFTEST").map_err(|_| "TEST_PERFTEST names no folder")?;
    let (program, size, count) =
        (format!("{folder}/{program}"), size.to_string(), count.to_string());
    let arguments = ["-d", "rxe0", "-x", "1", "-F", "-s", &size, "-n", &count];
    let _server = Server::start(&program, &arguments, &[])?;
    std::thread::sleep(Duration::from_secs(1));
    let output = Command::new(&program).args(arguments).arg("10.99.0.1").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers = |line: &str| {
        line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<Vec<f64>>>()
    };
    // As many as `ib_write_bw` has at least; `ib_write_lat` has nine.
    let found = text.lines().filter_map(numbers).find(|numbers| numbers.len() >= 4);
    found.ok_or_else(|| format!("{program} said: {text}").into())
}

/// A program of a peer's that serves, killed when dropped.
struct Server(Child);

impl Server {
    fn start(program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Outcome<Server> {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .envs(variables.to_vec())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().map_err(|error| format!("{program}: {error}"))?;
        std::thread::sleep(Duration::from_millis(500));
        Ok(Server(child))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What UCX sends through.
const UCX_SHARED: &str = "posix,self";
const UCX_TCP: &str = "tcp,self";

/// The numbers of the last line of `ucx_perftest`.
fn ucx(through: &str, test: &str, size: u32, count: u32) -> Outcome<Vec<f64>> {
    let port = "13399";
    let variables = [("UCX_TLS", through), ("UCX_LOG_LEVEL", "error")];
    let _server = Server::start("ucx_perftest", &["-p", port], &variables)?;
    let (size, count) = (size.to_string(), count.to_string());
    let arguments = ["127.0.0.1", "-p", port, "-t", test, "-s", &size, "-n", &count, "-f"];
    let output = Command::new("ucx_perftest").args(arguments).envs(variables).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().rev().find(|line| !line.trim().is_empty() && !line.contains('+'));
    let numbers: Vec<f64> =
        last.unwrap_or("").split_whitespace().filter_map(|word| word.parse().ok()).collect();
    if numbers.len() < 6 { Err(format!("ucx_perftest said: {text}").into()) } else { Ok(numbers) }
}

/// Microseconds of `ucx_perftest`, one way: the median of each tenth of them, and of those the last.
fn ucx_latency(through: &str, test: &str) -> Outcome<f64> {
    Ok(ucx(through, test, 8, 200_000)?[1])
}

/// Bytes a second.
fn ucx_bandwidth(through: &str, test: &str) -> Outcome<f64> {
    Ok(ucx(through, test, 1 << 20, 4000)?[5] * f64::from(1 << 20))
}

fn iperf3() -> Outcome<f64> {
    let port = "13398";
    let _server = Server::start("iperf3", &["-s", "-1", "-p", port], &[])?;
    let arguments = ["-c", "127.0.0.1", "-p", port, "-t", "2", "-J"];
    let output = Command::new("iperf3").args(arguments).output()?;
    let json: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let bits = json["end"]["sum_received"]["bits_per_second"].as_f64();
    Ok(bits.ok_or("iperf3 reported nothing")? / 8.0)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn table(what: &str, unit: &str, ours: &[f64], peer: &str, peers: &[f64]) -> (f64, f64) {
    let (mine, other) = (median(ours.to_vec()), median(peers.to_vec()));
    println!("{what}: {mine:.3} {unit} {ours:.3?}; {peer}: {other:.3} {unit} {peers:.3?}");
    (mine, other)
}

/// Writes of the device itself beside perftest's, in the same guest: 8 bytes there (half of a round trip of two writes, as
/// `ib_write_lat` counts), and 1 MiB. Printed beside them: the same by messages of the software NIC.
///
/// `TEST_PERFTEST=... tools/rxe-vm --cpus 2 test --release -p gdsync --test soft_against_peers -- --nocapture rdma_writes`
#[test]
#[ignore = "needs the verbs device of tools/rxe-vm, perftest and an idle machine"]
fn rdma_writes_keep_up_with_perftest() -> Outcome {
    // The guest translates code when it runs it first: after some hundred round trips a program is not yet as fast as it gets.
    const COUNT: u64 = 20_000;
    // Half of a round trip: the median, and the mean.
    let volley = |way| -> Outcome<[f64; 2]> {
        let connection = Connection::to(Order::new(way, Task::Volley(2 * COUNT)))?;
        let run = |first: u64, count| connection.side.volley_from(&connection.nic, first, count);
        run(0, COUNT)?;
        let began = Instant::now();
        let mut halves = Vec::with_capacity(COUNT as usize);
        for number in COUNT..2 * COUNT {
            let began = Instant::now();
            run(number, 1)?;
            halves.push(began.elapsed().as_secs_f64() * 1e6 / 2.0);
        }
        let mean = began.elapsed().as_secs_f64() * 1e6 / (2 * COUNT) as f64;
        Ok([median(halves), mean])
    };
    let bandwidth = |way| -> Outcome<f64> {
        Ok(Connection::new(way)?.bandwidth(Duration::from_secs(2))? / 1e6)
    };
    let (mut times, mut means) = ([const { Vec::new() }; 3], [const { Vec::new() }; 3]);
    let mut rates = [const { Vec::new() }; 3];
    for _ in 0..3 {
        // Its median, and its mean.
        let theirs = perftest("ib_write_lat", 8, COUNT as u32)?;
        let halves = [volley(Way::Rdma)?, [theirs[4], theirs[5]], volley(Way::RdmaFrames)?];
        for (way, [median, mean]) in halves.into_iter().enumerate() {
            times[way].push(median);
            means[way].push(mean);
        }
        rates[0].push(bandwidth(Way::Rdma)?);
        // MiB a second.
        rates[1].push(perftest("ib_write_bw", 1 << 20, 40)?[3] * 1.048576);
        rates[2].push(bandwidth(Way::RdmaFrames)?);
        println!(
            "{times:.0?}, means {means:.0?} µs, {rates:.0?} MB/s: ours, perftest's, by messages"
        );
    }
    table("8 B write, one way", "µs", &times[0], "by messages", &times[2]);
    table("8 B write, one way, means", "µs", &means[0], "ib_write_lat", &means[1]);
    table("1 MiB writes", "MB/s", &rates[0], "by messages", &rates[2]);
    let (mine, theirs) = table("8 B write, one way", "µs", &times[0], "ib_write_lat", &times[1]);
    let (fast, others) = table("1 MiB writes", "MB/s", &rates[0], "ib_write_bw", &rates[1]);
    assert!(mine <= 1.3 * theirs, "{:.2} times as long as ib_write_lat", mine / theirs);
    assert!(fast >= 0.9 * others, "{:.2} of ib_write_bw", fast / others);
    Ok(())
}

/// How often the threads of this process gave up their core by themselves, and had it taken.
fn switches() -> Outcome<[u64; 2]> {
    let mut sums = [0; 2];
    for task in std::fs::read_dir("/proc/self/task")? {
        let status = std::fs::read_to_string(task?.path().join("status"))?;
        for (sum, name) in sums.iter_mut().zip(["voluntary_ctxt", "nonvoluntary_ctxt"]) {
            let line = status.lines().find(|line| line.starts_with(name));
            let count = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
            *sum += count.unwrap_or(0);
        }
    }
    Ok(sums)
}

/// Says what a write of 8 bytes over TCP costs, half of a round trip: time, and switches of threads on this side. With
/// `strace -f -c` before it the system calls, too, of 2,000 round trips.
#[test]
#[ignore = "measures, on an idle machine"]
fn what_an_8_byte_write_over_tcp_costs() -> Outcome {
    const COUNT: u64 = 2_000;
    for _ in 0..ROUNDS {
        let connection = Connection::to(Order::new(Way::Tcp, Task::Volley(COUNT)))?;
        let (began, before) = (Instant::now(), switches()?);
        connection.side.volley_from(&connection.nic, 0, COUNT)?;
        let time = began.elapsed().as_secs_f64() * 1e6 / (2 * COUNT) as f64;
        let [own, taken] = switches()?;
        let each = |now: u64, then: u64| now.saturating_sub(then) as f64 / (2 * COUNT) as f64;
        println!(
            "{time:.2} µs; {:.2} switches by itself, {:.2} taken, each",
            each(own, before[0]),
            each(taken, before[1])
        );
    }
    Ok(())
}

/// Microseconds of a write of 8 bytes one way: half of a round trip of two, as `tag_lat` counts.
fn volley_over_tcp(count: u64) -> Outcome<f64> {
    let connection = Connection::to(Order::new(Way::Tcp, Task::Volley(2 * count)))?;
    let run = |first: u64| connection.side.volley_from(&connection.nic, first, count);
    run(0)?;
    let began = Instant::now();
    run(count)?;
    Ok(began.elapsed().as_secs_f64() * 1e6 / (2 * count) as f64)
}

#[test]
#[ignore = "needs ucx_perftest and an idle machine"]
fn an_8_byte_write_over_tcp_takes_within_one_and_a_half_of_a_ucx_message() -> Outcome {
    let (mut ours, mut peers) = (Vec::new(), Vec::new());
    for _ in 0..2 * ROUNDS + 1 {
        ours.push(volley_over_tcp(20_000)?);
        peers.push(ucx_latency(UCX_TCP, "tag_lat")?);
    }
    let (mine, other) = table("TCP, 8 B write, one way", "µs", &ours, "tag_lat", &peers);
    assert!(mine <= 1.5 * other, "{:.2} times as long as ucx", mine / other);
    Ok(())
}

#[test]
#[ignore = "needs iperf3, ucx_perftest and an idle machine"]
fn tcp_bandwidth_is_that_of_the_better_of_iperf3_and_ucx() -> Outcome {
    let connection = Connection::new(Way::Tcp)?;
    let (mut ours, mut streams, mut tags) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(connection.bandwidth(Duration::from_secs(2))? / 1e9);
        streams.push(iperf3()? / 1e9);
        tags.push(ucx_bandwidth(UCX_TCP, "tag_bw")? / 1e9);
    }
    let (mine, iperf3) = table("TCP, 1 MiB writes", "GB/s", &ours, "iperf3", &streams);
    let (_, ucx) = table("TCP, 1 MiB writes", "GB/s", &ours, "tag_bw", &tags);
    let best = iperf3.max(ucx);
    assert!(mine >= best, "{:.2} of the better one", mine / best);
    Ok(())
}

#[test]
#[ignore = "measures, on an idle machine"]
fn an_8_byte_write_to_mapped_memory_takes_half_a_microsecond_or_less() -> Outcome {
    let connection = Connection::new(Way::Mapped)?;
    let mut times = Vec::new();
    for _ in 0..2 * ROUNDS + 1 {
        times.push(connection.latency(200_000)? / 1e3);
    }
    let time = median(times.clone());
    println!("mapped, 8 B write and completion: {time:.3} µs {times:.3?}");
    assert!(time <= 0.5, "{time:.3} µs");
    Ok(())
}

#[test]
#[ignore = "needs ucx_perftest and an idle machine"]
fn shared_memory_bandwidth_is_within_one_and_a_half_of_ucx() -> Outcome {
    let connection = Connection::new(Way::Mapped)?;
    let (mut ours, mut peers) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(connection.bandwidth(Duration::from_secs(1))? / 1e9);
        peers.push(ucx_bandwidth(UCX_SHARED, "ucp_put_bw")? / 1e9);
    }
    let (mine, other) = table("mapped, 1 MiB writes", "GB/s", &ours, "ucp_put_bw", &peers);
    assert!(other <= 1.5 * mine, "ucx is {:.2} times as fast", other / mine);
    Ok(())
}

/// Beside a message of UCX and back (two times `tag_lat`, which is one way): both involve another thread, once there
/// and once back. Printed beside it: `ucp_put_lat`, one way, where the caller itself stores into the peer's memory.
#[test]
#[ignore = "needs ucx_perftest and an idle machine"]
fn an_8_byte_write_and_its_completion_take_within_one_and_a_half_of_a_ucx_round_trip() -> Outcome {
    let connection = Connection::new(Way::Mapped)?;
    let (mut ours, mut peers, mut puts) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(connection.latency(200_000)? / 1e3);
        peers.push(2.0 * ucx_latency(UCX_SHARED, "tag_lat")?);
        puts.push(ucx_latency(UCX_SHARED, "ucp_put_lat")?);
    }
    table("mapped, 8 B write and completion", "µs", &ours, "ucp_put_lat, one way", &puts);
    let (mine, other) =
        table("mapped, 8 B write and completion", "µs", &ours, "2 x tag_lat", &peers);
    assert!(mine <= 1.5 * other, "{:.2} times as long as ucx", mine / other);
    Ok(())
}
