//! Starts under real launchers.

use std::process::Command;
use std::time::Duration;

use libmp::World;

/// A rank under a launcher: several worlds, one after the other and at once.
#[test]
#[ignore = "is a rank of the other tests"]
fn a_rank() {
    let world = World::init().unwrap();
    let (rank, size) = (world.rank(), world.size());
    assert_eq!(size.to_string(), std::env::var("TEST_SIZE").unwrap());
    assert_eq!((world.local_rank(), world.local_size()), (rank, size));
    assert_eq!(world.sum(rank as u64).unwrap(), (size * (size - 1) / 2) as u64);
    assert_eq!(world.node_local().unwrap().size(), size);
    if std::env::var_os("TEST_ONCE").is_none() {
        let other = World::init().unwrap();
        assert_eq!(other.max(rank as f64).unwrap(), (size - 1) as f64);
        world.finish().unwrap();
        other.finish().unwrap();
        let again = World::init().unwrap();
        assert_eq!((again.local_rank(), again.sum(1u64).unwrap()), (rank, size as u64));
        again.finish().unwrap();
    } else {
        world.finish().unwrap();
    }
    println!("\nRANK {rank} IS DONE");
}

#[cfg(feature = "mpi")]
#[test]
#[ignore = "is a rank of the other tests"]
fn a_rank_that_has_initialised_mpi() {
    let universe = mpi::initialize().unwrap();
    for _ in 0..3 {
        let world = World::init().unwrap();
        assert_eq!(world.sum(1u64).unwrap().to_string(), std::env::var("TEST_SIZE").unwrap());
        world.finish().unwrap();
    }
    drop(universe);
    println!("\nRANK x IS DONE");
}

fn mpirun(size: usize, rank: &str, variables: &[(&str, &str)]) -> std::process::Output {
    let size = size.to_string();
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "-n", &size]);
    command.arg(std::env::current_exe().unwrap());
    command.args([rank, "--exact", "--ignored", "--nocapture"]);
    command.env("TEST_SIZE", &size).env("RUST_BACKTRACE", "0").envs(variables.iter().copied());
    let child =
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn();
    let child = child.expect("mpirun cannot be started");
    let pid = i32::try_from(child.id()).unwrap();
    let (sender, ended) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        if ended
            .recv_timeout(Duration::from_secs(60))
            .is_err_and(|error| error == std::sync::mpsc::RecvTimeoutError::Timeout)
        {
            // SAFETY: a signal to a child that has not been waited for: the sender is dropped after that.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    });
    let output = child.wait_with_output().unwrap();
    drop(sender);
    output
}

fn expect_done(output: &std::process::Output, size: usize) {
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert_eq!(text.matches("IS DONE").count(), size, "{text}\n{errors}");
}

#[test]
#[ignore = "needs mpirun"]
fn ranks_start_through_pmix_under_mpirun() {
    for size in [1, 2, 4, 8] {
        expect_done(&mpirun(size, "a_rank", &[]), size);
    }
}

#[test]
#[ignore = "needs mpirun"]
fn a_launcher_without_a_usable_pmix_is_named() {
    let output = mpirun(2, "a_rank", &[("MP_PMIX_LIBRARY", "/nonexistent/libpmix.so.2")]);
    let success = output.status.success();
    let text = String::from_utf8_lossy(&[output.stderr, output.stdout].concat()).into_owned();
    assert!(!success && text.contains("/nonexistent/libpmix.so.2"), "{text}");
}

#[cfg(feature = "mpi")]
#[test]
#[ignore = "needs mpirun"]
fn ranks_start_through_mpi() {
    // MPI starts once a process.
    let variables = [("MP_BOOTSTRAP", "mpi"), ("TEST_ONCE", "1")];
    expect_done(&mpirun(4, "a_rank", &variables), 4);
    expect_done(&mpirun(4, "a_rank_that_has_initialised_mpi", &[]), 4);
}
