//! A C program that declares what it uses of MPI's standard ABI, linked with the library and run as processes.

use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Linked, so that cargo builds the library before the test.
use mpi_abi as _;

/// Where cargo has put `libmpi_abi.so`, beside this test.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().to_owned()
}

fn compiled(folder: &Path, name: &str, more: &[&str]) -> PathBuf {
    let program = folder.join(name);
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = package.join("tests/programs").join(name).with_extension("c");
    let libraries = libraries();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut command = Command::new(compiler);
    command
        .args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-O1"])
        .arg("-I")
        .arg(package.join("include"))
        .arg(source)
        .arg("-o")
        .arg(&program);
    command.arg("-L").arg(&libraries).arg(format!("-Wl,-rpath,{}", libraries.display()));
    // Before LD_LIBRARY_PATH, where cargo has an older build.
    let output =
        command.args(["-Wl,--disable-new-dtags", "-lmpi_abi"]).args(more).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Runs so many processes as a launcher does.
fn run(program: &Path, ranks: usize, path: &str, arguments: &[&str]) -> Vec<Output> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, fd) = (listener.local_addr().unwrap().to_string(), listener.as_raw_fd());
    let start = |rank: usize| {
        let mut command = Command::new(program);
        for name in libmp::config::VARIABLES {
            command.env_remove(name);
        }
        command.env("MP_RANK", rank.to_string()).env("MP_SIZE", ranks.to_string());
        command.env("MP_RENDEZVOUS", &address).env("MP_INIT_TIMEOUT", "60").env("MP_PATH", path);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        if rank == 0 {
            command.env("MP_RENDEZVOUS_FD", fd.to_string());
            // SAFETY: fcntl is async-signal-safe, and nothing else happens between fork and exec.
            unsafe {
                command.pre_exec(move || match libc::fcntl(fd, libc::F_SETFD, 0) {
                    -1 => Err(std::io::Error::last_os_error()),
                    _ => Ok(()),
                })
            };
        }
        command.spawn().unwrap()
    };
    let started: Vec<_> = (0..ranks).map(start).collect();
    started.into_iter().map(|child| child.wait_with_output().unwrap()).collect()
}

#[test]
fn a_program_that_calls_everything_of_the_subset_runs_with_any_number_of_ranks_on_every_path() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "subset", &[]);
    for (ranks, path) in [(1, "auto"), (2, "auto"), (5, "auto"), (3, "nic"), (2, "nic-tcp")] {
        run_through(&program, ranks, path);
    }
}

fn run_through(program: &Path, ranks: usize, path: &str) {
    for (rank, output) in run(program, ranks, path, &[]).into_iter().enumerate() {
        let [out, err] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
        let status = output.status;
        assert!(status.success(), "rank {rank} of {ranks}, {path}: {status}\n{err}");
        assert_eq!(out, format!("rank {rank} of {ranks} is through\n"));
    }
}

#[test]
fn grids_of_ranks_and_messages_of_rows_run_with_any_number_of_ranks_on_every_path() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "grid", &[]);
    for (ranks, path) in [(1, "auto"), (2, "auto"), (6, "auto"), (4, "nic"), (2, "nic-tcp")] {
        run_through(&program, ranks, path);
    }
}

#[test]
fn what_rows_and_grids_are_not_for_is_said_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "grid", &[]);
    let rows = "rows (MPI_Type_vector)";
    for (mistake, sentence) in [
        (
            "collective",
            format!("a datatype: {rows} are part of this subset in sends and receives only"),
        ),
        (
            "nested",
            format!("a datatype: {rows} are part of this subset in sends and receives only"),
        ),
        (
            "persistent",
            format!("MPI_Send_init: {rows} in persistent requests are not part of this subset"),
        ),
        (
            "large",
            "MPI_Cart_create: a grid of [1, 2] is larger than the communicator of 1 ranks".into(),
        ),
        ("twice", "MPI_Group_incl: a rank is named twice".into()),
        ("none", "MPI_Cart_coords: the communicator has no Cartesian topology".into()),
    ] {
        for output in run(&program, 1, "auto", &[mistake]) {
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{mistake}: {said}");
            assert!(said.contains(&sentence), "{mistake}: {said}");
        }
    }
}

#[test]
#[ignore = "needs an OpenCL platform"]
fn opencl_memory_that_a_datatype_says_is_sent_and_received_behind_its_queue() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "opencl", &["-l:libOpenCL.so.1"]);
    for (ranks, path) in [(1, "auto"), (3, "auto"), (2, "nic")] {
        run_through(&program, ranks, path);
    }
}

/// Without its driver, which the next test runs it with.
#[test]
fn the_program_of_cuda_memory_compiles() {
    let folder = tempfile::tempdir().unwrap();
    compiled(folder.path(), "cuda", &["-Wl,--unresolved-symbols=ignore-all"]);
}

#[test]
#[ignore = "needs a GPU"]
fn cuda_memory_that_a_datatype_says_is_sent_and_received_in_the_order_of_its_streams() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "cuda", &["-l:libcuda.so.1"]);
    for (ranks, path) in [(1, "auto"), (2, "auto"), (3, "nic"), (2, "nic-tcp")] {
        run_through(&program, ranks, path);
    }
}

#[test]
fn a_function_that_is_not_part_of_the_subset_says_its_name_and_ends_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "subset", &[]);
    let outputs = run(&program, 2, "auto", &["more"]);
    let named = "libmpi_abi: MPI_Win_free: is not part of this subset, which is not an MPI";
    assert!(outputs.iter().all(|output| output.status.code() == Some(1)));
    assert!(outputs.iter().any(|output| String::from_utf8_lossy(&output.stderr).contains(named)));
}

#[test]
fn every_function_of_the_abi_is_there() {
    let library = libraries().join("libmpi_abi.so");
    let symbols = Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output().unwrap();
    let symbols = String::from_utf8(symbols.stdout).unwrap();
    let exported: Vec<&str> = symbols.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    let names = include_str!("../functions.txt");
    let missing: Vec<&str> = names.lines().filter(|name| !exported.contains(name)).collect();
    assert!(missing.is_empty() && names.lines().count() > 600, "{missing:?}");
}
