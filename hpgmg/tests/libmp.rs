//! Ranks of libmp worlds: the bits of ranks that are threads, whoever starts the processes, and the end of a run whose
//! rank is killed.

mod common;

use std::io::Read;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hpgmg::comm;
use hpgmg::cpu::Cpu;
use hpgmg::options::{Boundary, Config, Operator};
use hpgmg::run::{Effort, Outcome, run};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt,
};

/// Residuals and errors of a run, to the bit.
fn bits(outcome: &Outcome) -> Vec<u64> {
    let residuals = outcome.runs.iter().flat_map(|run| &run.first.cycles).map(|c| c.residual);
    let sizes = outcome.runs.iter().map(|run| run.umax);
    let errors = [outcome.error_2h_h, outcome.error_4h_2h];
    residuals.chain(sizes).chain(errors).map(f64::to_bits).collect()
}

#[test]
fn ranks_give_the_bits_of_a_rank_that_has_all_boxes() {
    for (ranks, boxes_per_rank, operator, boundary) in [
        (1, 8, Operator::Fv4, Boundary::Dirichlet),
        (2, 4, Operator::Fv2, Boundary::Dirichlet),
        (3, 3, Operator::Fv4, Boundary::Periodic),
        (4, 2, Operator::Fv4, Boundary::Dirichlet),
        (8, 1, Operator::P27, Boundary::Dirichlet),
        // More ranks than boxes.
        (5, 1, Operator::Fv4, Boundary::Dirichlet),
    ] {
        let config =
            Config { box_dim: 16, boxes_per_rank, operator, boundary, ..Config::default() };
        let solve = |cpu: &mut Cpu| run(cpu, Effort::Solves(1), |_, _, _| {});
        let all = Config { boxes_per_rank: ranks * boxes_per_rank, ..config.clone() };
        let expected = solve(&mut Cpu::new(all, &comm::Alone, 1).unwrap()).unwrap();
        let found = common::on_ranks(&config, ranks, 1, |cpu, _| solve(cpu));
        assert_eq!(bits(&found), bits(&expected), "{config:?} on {ranks} ranks");
    }
}

/// The processes of a run, started as a launcher does that sets torchrun's variables, and what keeps their port from others.
struct Job(Vec<Child>, #[expect(dead_code, reason = "it is held")] OwnedFd);

/// A socket that keeps a port from everybody who lets the system choose one, and the port: rank 0 can listen there.
fn reserved_port() -> (OwnedFd, u16) {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let socket = socket.unwrap();
    sockopt::set_socket_reuseaddr(&socket, true).unwrap();
    bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = SocketAddr::try_from(getsockname(&socket).unwrap()).unwrap();
    (socket, address.port())
}

impl Drop for Job {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Job {
    fn start(size: usize, arguments: &[&str]) -> Job {
        let (reserved, port) = reserved_port();
        let start = |rank: usize| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_hpgmg-fv"));
            for name in libmp::config::VARIABLES {
                command.env_remove(name);
            }
            command.envs([("MASTER_ADDR", "127.0.0.1"), ("MP_INIT_TIMEOUT", "60")]);
            for (name, value) in [
                ("RANK", rank),
                ("LOCAL_RANK", rank),
                ("WORLD_SIZE", size),
                ("LOCAL_WORLD_SIZE", size),
                ("MASTER_PORT", usize::from(port)),
            ] {
                command.env(name, value.to_string());
            }
            command.args(arguments).stdin(Stdio::null());
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        Job((0..size).map(start).collect(), reserved)
    }

    /// Waits until every rank has memory for messages: the ranks have found each other by then.
    fn await_messages(&mut self) {
        let begin = Instant::now();
        let has_messages = |process: u32| {
            let open = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten();
            let mut targets = open.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
            targets.any(|target| target.to_string_lossy().starts_with("/memfd:mp"))
        };
        for (rank, process) in self.0.iter_mut().enumerate() {
            while !has_messages(process.id()) {
                assert_eq!(process.try_wait().unwrap(), None, "rank {rank} has ended");
                assert!(begin.elapsed() < Duration::from_secs(120), "rank {rank} has no messages");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// Waits for a rank: its exit code and what it said on standard error.
    fn end(&mut self, rank: usize, within: Duration) -> (Option<i32>, String) {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.0[rank].try_wait().unwrap() {
                let mut text = String::new();
                self.0[rank].stderr.take().unwrap().read_to_string(&mut text).unwrap();
                return (status.code(), text);
            }
            assert!(begin.elapsed() < within, "rank {rank} has not ended within {within:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn residuals(path: &std::path::Path) -> serde_json::Value {
    let report: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let solves = report["solves"].as_array().unwrap();
    let cycles: Vec<_> = solves.iter().map(|s| (s["cycles"].clone(), s["umax"].clone())).collect();
    serde_json::json!([cycles, report["error_2h_h"], report["error_4h_2h"], report["ranks"]])
}

#[test]
fn processes_of_a_launcher_print_the_numbers_of_threads_to_the_last_digit() {
    let folder = tempfile::tempdir().unwrap();
    let json = |name: &str| folder.path().join(name);
    let arguments = |path: &str| {
        let path = json(path).to_str().unwrap().to_owned();
        ["4", "2", "--solves", "1", "--threads", "1", "--json", &path].map(str::to_owned)
    };
    let threads = Command::new(env!("CARGO_BIN_EXE_hpgmg-fv"))
        .args(arguments("threads.json"))
        .args(["--ranks", "4"])
        .output()
        .unwrap();
    assert!(threads.status.success());
    let given = arguments("processes.json");
    let mut job = Job::start(4, &given.each_ref().map(|word| word.as_str()));
    for rank in 0..4 {
        let (code, text) = job.end(rank, Duration::from_secs(120));
        assert_eq!(code, Some(0), "rank {rank}: {text}");
    }
    assert_eq!(residuals(&json("processes.json")), residuals(&json("threads.json")));
}

#[test]
fn processes_compare_ways_to_communicate_and_find_the_same_bits() {
    let ways = "host,stream,kernel";
    let mut job = Job::start(2, &["4", "4", "--compare", ways, "--solves", "2", "--threads", "1"]);
    for rank in 0..2 {
        let (code, text) = job.end(rank, Duration::from_secs(120));
        assert_eq!(code, Some(0), "rank {rank}: {text}");
    }
    let mut table = String::new();
    job.0[0].stdout.take().unwrap().read_to_string(&mut table).unwrap();
    for way in ways.split(',') {
        let row = table.lines().find(|line| line.trim_start().starts_with(way));
        assert!(row.is_some_and(|row| row.trim_end().ends_with("same")), "{way}:\n{table}");
    }
}

#[test]
fn ranks_whose_peer_is_killed_name_it_and_fail_within_seconds() {
    for (victim, way) in [(0, "host"), (2, "host"), (1, "stream"), (3, "kernel")] {
        let arguments = ["4", "2", "--seconds", "60", "--threads", "1", "--comm", way];
        let mut job = Job::start(4, &arguments);
        job.await_messages();
        // Time to begin to solve, which lasts minutes.
        std::thread::sleep(Duration::from_millis(500));
        job.0[victim].kill().unwrap();
        for rank in (0..4).filter(|&rank| rank != victim) {
            let (code, text) = job.end(rank, Duration::from_secs(30));
            assert_eq!(code, Some(1), "rank {rank}: {text}");
            assert!(text.contains(&format!("rank {victim} on ")), "rank {rank}: {text}");
            assert!(text.contains("is lost"), "rank {rank}: {text}");
        }
    }
}
