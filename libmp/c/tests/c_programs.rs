//! The header and the libraries as users of C and C++ have them: compiled with all warnings, linked, and run as threads and as
//! processes.

use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Linked, so that cargo builds the libraries before the test.
use mp_c as _;

const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Where cargo has put `libmp_c.so`, beside this test.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap().to_owned();
    assert!(folder.join("libmp_c.so").is_file(), "no libmp_c.so in {}", folder.display());
    folder
}

fn compiler(variable: &str, default: &str, standard: &str) -> Command {
    let name = std::env::var(variable).unwrap_or_else(|_| default.into());
    let mut command = Command::new(name);
    command.args(STRICT).arg(standard).arg("-I").arg(here("include"));
    command
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    output
}

/// Compiles and links a program.
fn program(folder: &Path, source: &str, mut compiler: Command) -> PathBuf {
    let (program, libraries) = (folder.join("program"), libraries());
    compiler.arg(here("tests/programs").join(source)).arg("-o").arg(&program);
    compiler.arg("-L").arg(&libraries).arg(format!("-Wl,-rpath,{}", libraries.display()));
    // Before LD_LIBRARY_PATH, where cargo has an older build.
    compiler.arg("-Wl,--disable-new-dtags");
    run(compiler.args(["-lmp_c", "-pthread"]));
    program
}

#[test]
#[ignore = "needs an OpenCL platform"]
fn opencl_memory_is_sent_and_received_behind_its_queue_by_a_c_program() {
    let folder = tempfile::tempdir().unwrap();
    let mut compiler = compiler("CC", "cc", "-std=c99");
    compiler.args(["-Wl,--no-as-needed", "-l:libOpenCL.so.1"]);
    let opencl = program(folder.path(), "opencl.c", compiler);
    for path in ["auto", "nic"] {
        let output = run(without_launcher(&opencl).env("MP_PATH", path));
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.matches("is through").count(), 2, "{text}");
    }
}

fn without_launcher(program: &Path) -> Command {
    let mut command = Command::new(program);
    for name in libmp::config::VARIABLES {
        command.env_remove(name);
    }
    command
}

#[test]
fn the_header_compiles_by_itself_as_c99_and_as_cpp11() {
    let folder = tempfile::tempdir().unwrap();
    for (source, mut compiler) in
        [("a.c", compiler("CC", "cc", "-std=c99")), ("a.cpp", compiler("CXX", "c++", "-std=c++11"))]
    {
        let source = folder.path().join(source);
        // Twice: it guards itself.
        std::fs::write(&source, "#include <mp.h>\n#include <mp.h>\n").unwrap();
        run(compiler.arg("-fsyntax-only").arg(source));
    }
}

#[test]
fn the_header_declares_exactly_what_the_library_exports() {
    let header = std::fs::read_to_string(here("include/mp.h")).unwrap();
    let mut declared: Vec<&str> = header
        .split('(')
        .filter_map(|before| before.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next())
        .filter(|name| name.starts_with("mp_"))
        .collect();
    declared.sort_unstable();
    // Words of comments that are followed by a parenthesis are calls of the same functions.
    declared.dedup();
    let library = libraries().join("libmp_c.so");
    let symbols = run(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    let symbols = String::from_utf8(symbols.stdout).unwrap();
    let mut exported: Vec<&str> = symbols
        .lines()
        .filter_map(|line| line.rsplit(' ').next())
        .filter(|name| name.starts_with("mp_"))
        .collect();
    exported.sort_unstable();
    assert_eq!(declared, exported);
    assert!(exported.len() > 80, "{}", exported.len());
}

#[test]
fn a_c_program_runs_with_threads_as_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let ring = program(folder.path(), "ring.c", compiler("CC", "cc", "-std=c99"));
    for ranks in ["2", "4"] {
        let output = run(without_launcher(&ring).arg(ranks));
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.matches("is through").count().to_string(), ranks, "{text}");
    }
}

#[test]
fn a_c_program_sends_tagged_messages_and_hears_what_is_wrong_with_its_arguments() {
    let folder = tempfile::tempdir().unwrap();
    let tagged = program(folder.path(), "tagged.c", compiler("CC", "cc", "-std=c99"));
    for path in ["auto", "nic"] {
        let output = run(without_launcher(&tagged).env("MP_PATH", path));
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.matches("is through").count(), 3, "{text}");
    }
}

#[test]
fn a_c_program_runs_as_processes_that_a_launcher_starts() {
    let folder = tempfile::tempdir().unwrap();
    let ring = program(folder.path(), "ring.c", compiler("CC", "cc", "-std=c99"));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, fd) = (listener.local_addr().unwrap().to_string(), listener.as_raw_fd());
    let start = |rank: usize| -> Child {
        let mut command = without_launcher(&ring);
        command.env("MP_RANK", rank.to_string()).env("MP_SIZE", "2");
        command.env("MP_RENDEZVOUS", &address).env("MP_INIT_TIMEOUT", "60");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
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
    let ranks = [start(0), start(1)];
    for (rank, child) in ranks.into_iter().enumerate() {
        let output = child.wait_with_output().unwrap();
        let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        assert!(output.status.success(), "rank {rank}: {}\n{err}", output.status);
        assert_eq!(out, format!("rank {rank} of 2 is through\n"));
    }
}

#[test]
fn a_cpp_program_hears_why_another_rank_aborted() {
    let folder = tempfile::tempdir().unwrap();
    let abort = program(folder.path(), "abort.cpp", compiler("CXX", "c++", "-std=c++11"));
    let output = run(&mut without_launcher(&abort));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("MP_ERR_ABORTED: mp_barrier: rank 1 on "), "{text}");
}

#[test]
fn blocks_of_a_cpp_kernel_meet_by_signals_of_the_c_interface() {
    let folder = tempfile::tempdir().unwrap();
    let mut compiler = compiler("CXX", "c++", "-std=c++20");
    compiler.arg("-isystem").arg(here("../../kernels/include"));
    let meeting = program(folder.path(), "meeting.cpp", compiler);
    let text = String::from_utf8(run(&mut without_launcher(&meeting)).stdout).unwrap();
    assert!(text.contains("wait timed out after"), "{text}");
}

#[test]
fn a_c_program_links_the_static_library() {
    let folder = tempfile::tempdir().unwrap();
    let archive = std::fs::read_dir(libraries())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name.starts_with("libmp_c") && name.ends_with(".a")
        })
        // Older builds may have left some.
        .max_by_key(|path| std::fs::metadata(path).unwrap().modified().unwrap())
        .expect("cargo builds it");
    let program = folder.path().join("program");
    let mut compiler = compiler("CC", "cc", "-std=c99");
    compiler.arg(here("tests/programs/ring.c")).arg("-o").arg(&program).arg(archive);
    run(compiler.args(["-pthread", "-lm", "-ldl"]));
    run(without_launcher(&program).arg("2"));
}

#[test]
fn the_comparison_with_libmp_of_old_names_functions_that_exist() {
    let header = std::fs::read_to_string(here("include/mp.h")).unwrap();
    let page = std::fs::read_to_string(here("../src/porting.rs")).unwrap();
    let mut named = 0;
    for row in page.lines().filter(|line| line.starts_with("//! | ")) {
        let c = row.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
        for name in c.split('`').skip(1).step_by(2) {
            named += 1;
            let there = [format!("{name}("), format!("}} {name};")];
            assert!(there.iter().any(|text| header.contains(text)), "{name} is not in mp.h");
        }
    }
    assert!(named > 50, "{named}");
}

mod gpu {
    use super::*;

    #[test]
    #[ignore = "needs a GPU and a C compiler"]
    fn a_c_program_brings_its_custream() {
        let folder = tempfile::tempdir().unwrap();
        let custream = program(
            folder.path(),
            "../../../../examples/custream.c",
            compiler("CC", "cc", "-std=c11"),
        );
        let output = run(&mut without_launcher(&custream));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.ends_with(", right\n"), "{text}");
    }
}

#[test]
fn a_c_program_that_brings_its_custream_compiles_and_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let custream =
        program(folder.path(), "../../../../examples/custream.c", compiler("CC", "cc", "-std=c11"));
    let output = without_launcher(&custream).output().unwrap();
    // 77: no driver or no GPU here.
    assert!(matches!(output.status.code(), Some(0 | 77)), "{output:?}");
}
