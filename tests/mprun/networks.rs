//! Hosts whose network is not as usual, as network namespaces.

use std::net::SocketAddr;

use super::*;

/// Runs `mprun` in a network of its own, after `prepare` has set that up.
fn in_a_network(prepare: &str, arguments: &[&str]) -> Ended {
    let mut command = Command::new("unshare");
    let program = env!("CARGO_BIN_EXE_mprun");
    command.args(["--user", "--map-root-user", "--net", "sh", "-c"]);
    command.arg(format!("{prepare} && exec \"$@\"")).arg("sh").arg(program).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Job::start(&mut command).end()
}

#[test]
#[ignore = "needs network namespaces"]
fn a_loopback_interface_that_is_down_is_said_at_once() {
    let started = Instant::now();
    let job = in_a_network("true", &["-n", "2", "sleep", "1000"]);
    assert_eq!(job.status.code(), Some(1), "{job:?}");
    let said =
        "mprun: cannot let the ranks meet on this host: is the loopback interface up? (127.0.0.1: ";
    assert!(job.stderr.starts_with(said), "{job:?}");
    assert_eq!(job.stderr.lines().count(), 1, "{job:?}");
    assert!(started.elapsed() < PATIENCE);
}

#[test]
#[ignore = "needs network namespaces and ip"]
fn the_ranks_of_a_host_without_ipv4_meet() {
    let only_ipv6 = "ip link set lo up && ip addr del 127.0.0.1/8 dev lo";
    let show = "echo $MP_RENDEZVOUS; echo [$MASTER_ADDR]:$MASTER_PORT";
    let job = in_a_network(only_ipv6, &["-n", "2", "sh", "-c", show]);
    assert_eq!(job.status.code(), Some(0), "{job:?}");
    let addresses: Vec<SocketAddr> = job.stdout.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(addresses.len(), 4, "{job:?}");
    assert!(addresses.iter().all(|address| address.is_ipv6() && address.ip().is_loopback()));
}
