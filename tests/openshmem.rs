//! OpenSHMEM programs in C and C++ as users have them: built with the wrappers that `tools/install-shmem` installs, started by `oshrun`,
//! over mapped memory and over the NIC, with few PEs and odd numbers of them; and the mistakes that programs make.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Linked, so that cargo builds the libraries before the test.
use mp_shmem as _;

/// Paths, and how many PEs are run over each.
const RUNS: [(&str, &[usize]); 3] = [("auto", &[1, 2, 3, 5]), ("nic", &[2]), ("nic-tcp", &[2])];
/// Seconds that no job here takes, on a slow and busy machine either.
const PATIENCE: &str = "120";

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The command without what a launcher of these tests has set.
fn clean(mut command: Command) -> Command {
    for name in libmp::config::VARIABLES {
        command.env_remove(name);
    }
    command.env_remove("SHMEM_SYMMETRIC_SIZE").env_remove("SMA_SYMMETRIC_SIZE");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn run(command: Command) -> Output {
    let mut command = clean(command);
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    output
}

/// What cargo has built for these tests, installed once.
fn prefix() -> &'static Path {
    static PREFIX: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("openshmem");
        let (built, prefix) = (folder.join("built"), folder.join("prefix"));
        if folder.exists() {
            std::fs::remove_dir_all(&folder).unwrap();
        }
        std::fs::create_dir_all(&built).unwrap();
        std::os::unix::fs::symlink(archive(), built.join("libmp_shmem.a")).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_mprun"), built.join("mprun")).unwrap();
        let mut install = Command::new(here("tools/install-shmem"));
        install.arg("--built").arg(&built).arg(&prefix);
        run(install);
        prefix
    });
    &PREFIX
}

/// Newest `libmp_shmem….a` beside this test: older builds may have left some.
fn archive() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let files = std::fs::read_dir(test.parent().unwrap()).unwrap();
    let archives = files.map(|file| file.unwrap().path()).filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("libmp_shmem") && name.ends_with(".a")
    });
    let modified = |path: &PathBuf| std::fs::metadata(path).unwrap().modified().unwrap();
    archives.max_by_key(modified).expect("cargo builds it")
}

/// A program of the tests, compiled with all warnings.
fn program(folder: &Path, source: &str, arguments: &[&str]) -> PathBuf {
    let program = folder.join("program");
    let wrapper = if source.ends_with(".c") { "oshcc" } else { "oshc++" };
    let mut compiler = Command::new(prefix().join("bin").join(wrapper));
    compiler.args(["-Wall", "-Wextra", "-Werror", "-O1", "-pthread"]).args(arguments);
    compiler.arg(here("shmem/tests/programs").join(source)).arg("-o").arg(&program);
    run(compiler);
    program
}

fn oshrun(pes: usize, path: &str) -> Command {
    let mut command = clean(Command::new(prefix().join("bin/oshrun")));
    command.args(["-np", &pes.to_string(), "--timeout", PATIENCE]).env("MP_PATH", path);
    command
}

/// Runs a program over every path.
fn everywhere(source: &str, arguments: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path(), source, arguments);
    for (path, counts) in RUNS {
        for &pes in counts {
            let mut command = oshrun(pes, path);
            let output = command.arg(&program).output().unwrap();
            let (out, err) = (text(&output.stdout), text(&output.stderr));
            assert!(output.status.success(), "{path}, {pes} PEs: {}\n{out}{err}", output.status);
            assert_eq!(out.matches("is through").count(), pes, "{path}: {out}{err}");
        }
    }
}

#[test]
fn puts_and_gets_of_every_type_and_form_arrive() {
    everywhere("rma.c", &["-std=c99", "-pedantic"]);
}

#[test]
fn atomic_operations_of_all_pes_are_one_after_the_other() {
    everywhere("atomics.c", &["-std=c99", "-pedantic"]);
}

#[test]
fn waits_and_tests_see_what_others_write() {
    everywhere("waits.c", &["-std=c99", "-pedantic"]);
}

#[test]
fn the_heap_and_the_variables_of_a_program_are_symmetric() {
    everywhere("memory.c", &["-std=c99", "-pedantic"]);
}

#[test]
fn collectives_of_teams_and_active_sets_move_and_combine_every_type() {
    everywhere("collectives.c", &["-std=c99", "-pedantic"]);
}

#[test]
fn teams_come_and_go_and_have_numbers_and_contexts_of_their_own() {
    everywhere("teams.c", &["-std=c99", "-pedantic"]);
}

#[test]
fn who_is_told_of_a_put_finds_it_and_who_returns_may_write_again() {
    everywhere("order.c", &["-std=c99", "-pedantic"]);
}

#[test]
fn signals_locks_threads_and_old_names_work() {
    everywhere("signals.c", &["-std=c99", "-pedantic"]);
}

#[test]
fn a_program_starts_again_and_has_strided_blocks_scans_and_sessions() {
    everywhere("additions.c", &["-std=c99", "-pedantic"]);
}

#[test]
fn a_tool_in_front_of_the_library_sees_the_calls() {
    everywhere("profile.c", &["-std=c99", "-pedantic"]);
}

/// Kernels as threads of the host.
const KERNELS: [&str; 4] = ["-std=c++20", "-DSHMEMG_HOST_KERNELS", "-x", "c++"];

#[test]
fn what_the_examples_of_the_draft_for_gpus_show_holds_on_the_host() {
    everywhere("examples.cu", &KERNELS);
}

#[test]
fn typed_functions_of_kernels_and_host_calls_on_the_device_s_heap_do_what_they_say() {
    everywhere("device.cu", &KERNELS);
}

/// The examples say in a line whether what they computed is right.
#[test]
fn the_examples_for_cpus_and_gpus_compute_what_is_right() {
    let folder = tempfile::tempdir().unwrap();
    for (source, arguments) in [("stencil2d.cu", "24 17 12"), ("bfs.cu", "8 6 2")] {
        let program =
            program(folder.path(), &format!("../../../examples/openshmem/{source}"), &KERNELS);
        for (path, pes) in [("auto", 1), ("auto", 4), ("auto", 7), ("nic", 2), ("nic-tcp", 3)] {
            let mut command = oshrun(pes, path);
            command.arg(&program).args(arguments.split(' '));
            let out = text(&run(command).stdout);
            assert!(out.lines().count() == 1 && out.ends_with(", right\n"), "{out}");
        }
        let wrong = oshrun(2, "auto").arg(&program).args(["7", "none"]).output().unwrap();
        let said = "argument 2 is 'none', expected a number from 1 on";
        assert!(!wrong.status.success() && text(&wrong.stderr).contains(said), "{wrong:?}");
    }
}

#[test]
fn memory_of_the_program_is_made_symmetric() {
    everywhere("map.cu", &KERNELS);
}

#[test]
#[ignore = "needs an OpenCL platform"]
fn opencl_memory_of_the_program_is_made_symmetric() {
    let linked = ["-std=gnu99", "-Wl,--no-as-needed", "-l:libOpenCL.so.1"];
    everywhere("opencl.c", &linked);
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path(), "opencl.c", &linked);
    for (what, sentence) in [
        ("read-only", "was made with CL_MEM_READ_ONLY"),
        ("length", "of PE 1 has 239992 bytes, that of PE 0 240000"),
        ("past", "shmmap of 240008 bytes of OpenCL memory: a slice"),
        (
            "atomic",
            "PE 1: OpenCL memory takes puts and gets only, expected memory of the host or a GPU",
        ),
        ("put-past", "PE 1: the 240000 bytes at"),
    ] {
        let (status, _, err) = mistake(&program, "auto", what, "");
        assert_eq!(status, Some(1), "{what}: {err}");
        assert!(err.contains(sentence), "{what}: {err}");
    }
}

#[test]
fn a_program_for_nvshmem_computes_what_one_pe_would() {
    everywhere("porting.cu", &KERNELS);
}

#[test]
fn a_mistake_of_a_kernel_is_a_sentence_and_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path(), "device_errors.cu", &KERNELS);
    for path in ["auto", "nic"] {
        for (what, sentence) in [
            (
                "not-asked",
                "there is no symmetric heap on the device: shmem_init_thread was not asked",
            ),
            ("pe", "rank 7"),
            // While the host waits for a kernel that waits for what was refused.
            ("unheard", "rank 7"),
            ("outside", "a kernel's call for bytes of the window"),
            ("odd", "an atomic operation of a kernel"),
            ("comparison", "a kernel's call with the argument 17"),
            ("team", "a kernel's call for a team"),
            ("context", "a kernel's call for a team"),
            ("host", "a context that was made with SHMEM_DEVICE_CTX is for kernels"),
            ("lost", "rank 1"),
        ] {
            let (status, _, err) = mistake(&program, path, what, "");
            assert!(!matches!(status, Some(0)) && err.contains(sentence), "{path}, {what}: {err}");
        }
    }
    let (status, _, err) = mistake(&program, "auto", "heap", "");
    let sentence = "1099511627776 bytes are more than is left in one piece of the symmetric heap on the device";
    assert_eq!(status, Some(0), "{err}");
    assert!(err.contains(sentence) && err.contains("SHMEM_DEVICE_SYMMETRIC_SIZE"), "{err}");
    for (name, value) in [("SHMEM_DEVICE_SYMMETRIC_SIZE", "much"), ("SHMEM_DEVICE_MAX_CTX", "-1")] {
        let mut command = oshrun(2, "auto");
        let output = command.env(name, value).arg(&program).arg("nothing").output().unwrap();
        let (err, sentence) =
            (text(&output.stderr), format!("{name} is {value:?}, expected a number of"));
        assert!(!output.status.success() && err.contains(&sentence), "{err}");
    }
}

#[test]
fn variables_are_symmetric_however_a_program_is_linked() {
    let folder = tempfile::tempdir().unwrap();
    let archive = prefix().join("lib/libmp_shmem.a");
    let archive = archive.to_str().unwrap();
    for arguments in
        [&["-no-pie"][..], &["-Wl,-z,norelro"], &["-Wl,-z,relro,-z,now"], &[archive, "-ldl", "-lm"]]
    {
        let arguments = [&["-std=c99"], arguments].concat();
        let program = program(folder.path(), "memory.c", &arguments);
        let mut command = oshrun(2, "auto");
        let output = command.arg(&program).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
}

#[test]
fn c11_and_cpp_choose_functions_by_their_arguments() {
    everywhere("generic.c", &["-std=c11", "-pedantic"]);
    everywhere("overloads.cpp", &["-std=c++14"]);
}

#[test]
fn the_header_compiles_by_itself_in_every_language() {
    let folder = tempfile::tempdir().unwrap();
    for (wrapper, name, standards) in [
        ("oshcc", "a.c", &["-std=c99", "-std=c11", "-std=gnu17"][..]),
        ("oshc++", "a.cpp", &["-std=c++11", "-std=c++20"]),
    ] {
        let source = folder.path().join(name);
        // Twice: it guards itself.
        std::fs::write(
            &source,
            "#include <shmem.h>\n#include <mpp/shmem.h>\n#include <shmemx.h>\n#include <mpp/shmemx.h>\n#include <pshmem.h>\n#include <shmemg.h>\n",
        )
        .unwrap();
        for standard in standards {
            let mut compiler = Command::new(prefix().join("bin").join(wrapper));
            compiler.args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", standard]);
            compiler.arg(&source);
            run(compiler);
        }
    }
}

#[test]
fn the_library_exports_what_the_header_declares_and_nothing_else() {
    let headers = ["shmem.h", "pshmem.h", "shmemg.h", "shmemx.h"]
        .map(|name| std::fs::read_to_string(here("shmem/include").join(name)).unwrap());
    // Behind the prototypes is what the header does with them.
    let prototypes = headers
        .iter()
        .flat_map(|header| header.split("#ifdef __cplusplus\n}").next().unwrap().lines());
    // Those of a struct are indented.
    let declared = prototypes.filter(|line| line.ends_with(");") && !line.starts_with(['#', ' ']));
    let name = |line: &str| -> Option<String> {
        let head = line.split_once('(')?.0;
        Some(head.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next()?.to_owned())
    };
    let mut declared: Vec<String> = declared.filter_map(name).collect();
    declared.sort_unstable();
    let mut nm = Command::new("nm");
    nm.args(["-D", "--defined-only"]).arg(prefix().join("lib/libmp_shmem.so"));
    let symbols = text(&run(nm).stdout);
    let symbols = symbols.lines().filter_map(|line| line.split_once(" T ")).map(|(_, name)| name);
    let mut exported: Vec<&str> = symbols.map(|name| name.split('@').next().unwrap()).collect();
    exported.sort_unstable();
    assert_eq!(declared, exported);
    assert!(exported.len() > 3000, "{}", exported.len());
}

/// How a program ends that makes a mistake: its status, and what it says.
fn mistake(program: &Path, path: &str, what: &str, others: &str) -> (Option<i32>, String, String) {
    let mut command = oshrun(3, path);
    let output = command.arg(program).args([what, others]).output().unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_mistake_ends_all_pes_with_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path(), "errors.c", &["-std=c99"]);
    for (path, others) in [("auto", "compute"), ("auto", "barrier"), ("nic", "wait")] {
        for (what, sentence) in [
            ("pe", "PE 1: there is no PE 7: the PEs are 0 to 2"),
            ("negative-pe", "PE 1: there is no PE -1: the PEs are 0 to 2"),
            (
                "private",
                "are not symmetric memory: expected memory from shmem_malloc, or a variable",
            ),
            ("null", "the 10 bytes at 0x0 are not symmetric memory"),
            ("past", "go past the end of symmetric memory"),
            ("comparison", "17 is no comparison"),
            ("free", "was not given by shmem_malloc"),
            ("stride", "a stride of 0 elements, expected at least 1"),
            ("block", "a stride of 2 elements, expected at least 3"),
            ("quiet", "PE 1: there is no PE 3: the PEs are 0 to 2"),
            ("context", "SHMEM_CTX_INVALID is no context"),
            ("map-cuda", "shmmap of CUDA memory needs a GPU"),
            ("map-type", "17 is no type of memory"),
            ("map-again", "which is symmetric already"),
            ("map-null", "shmmap of 10 bytes at 0x0, expected memory"),
            ("unmap", "was not given by shmmap"),
        ] {
            // All wait for all where memory is given back.
            let others = if ["free", "unmap"].contains(&what) { "barrier" } else { others };
            let (status, _, err) = mistake(&program, path, what, others);
            assert_eq!(status, Some(1), "{path}, {what}, {others}: {err}");
            assert!(err.contains(sentence), "{path}, {what}, {others}: {err}");
        }
    }
}

#[test]
fn the_heap_s_end_is_a_sentence_and_null() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path(), "errors.c", &["-std=c99"]);
    let (status, _, err) = mistake(&program, "auto", "heap", "");
    assert_eq!(status, Some(1), "{err}");
    assert!(
        err.contains(
            "1099511627776 bytes are more than is left in one piece of the symmetric heap"
        ),
        "{err}"
    );
    assert!(
        err.contains("SHMEM_SYMMETRIC_SIZE") && err.contains("are not symmetric memory"),
        "{err}"
    );

    for (value, sentence) in [
        ("much", "SHMEM_SYMMETRIC_SIZE is \"much\", expected a number of bytes"),
        ("1000t", "MiB are available"),
    ] {
        let mut command = oshrun(2, "auto");
        let output = command
            .env("SHMEM_SYMMETRIC_SIZE", value)
            .arg(&program)
            .args(["return", ""])
            .output()
            .unwrap();
        let err = text(&output.stderr);
        assert!(!output.status.success() && err.contains(sentence), "{value}: {err}");
    }
}

#[test]
fn pe_0_says_what_it_is_and_which_variables_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path(), "errors.c", &["-std=c99"]);
    let mut command = oshrun(2, "auto");
    command.env("SHMEM_INFO", "1").env("SHMEM_SYMMETRIC_SIZE", "3.5m");
    let output = command.arg(&program).args(["return", ""]).output().unwrap();
    let out = text(&output.stdout);
    assert_eq!(out.matches("OpenSHMEM 1.6 of libmp").count(), 1, "{out}");
    assert!(out.contains("SHMEM_SYMMETRIC_SIZE") && out.contains("here 3670016"), "{out}");
}

#[test]
fn a_call_before_the_start_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path(), "errors.c", &["-std=c99"]);
    let (status, _, err) = mistake(&program, "auto", "no-start", "");
    assert_eq!(status, Some(1), "{err}");
    assert!(
        err.contains("a function was called before shmem_init or behind shmem_finalize"),
        "{err}"
    );
}

#[test]
fn global_exit_ends_all_pes_with_its_status_whatever_they_do() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path(), "errors.c", &["-std=c99"]);
    for (path, others) in [("auto", "compute"), ("auto", "barrier"), ("nic", "wait")] {
        for (what, expected) in [("global-exit", 23), ("global-exit-0", 0)] {
            let (status, out, err) = mistake(&program, path, what, others);
            assert_eq!(status, Some(expected), "{path}, {what}, {others}: {err}");
            assert!(out.contains("PE 1 has said this"), "{out}");
            assert!(!err.contains("shmem:"), "{err}");
        }
    }
}

#[test]
fn a_pe_that_ends_early_ends_the_others_and_one_that_just_returns_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path(), "errors.c", &["-std=c99"]);
    for others in ["compute", "barrier", "wait"] {
        let (status, _, err) = mistake(&program, "auto", "exit", others);
        assert_eq!(status, Some(5), "{others}: {err}");
        assert!(err.contains("PE 1: exits with status 5 before shmem_finalize"), "{others}: {err}");
        let (status, _, err) = mistake(&program, "auto", "kill", others);
        assert!(!matches!(status, Some(0)), "{others}: {err}");
    }
    // Without shmem_finalize: it is done at the end.
    let (status, _, err) = mistake(&program, "auto", "return", "return");
    assert_eq!(status, Some(0), "{err}");
}

/// A job whose PEs stay, and the processes that these are.
fn lasting(program: &Path, pes: usize) -> (Child, Vec<u32>) {
    let mut command = oshrun(pes, "auto");
    command.env("SHMEM_SYMMETRIC_SIZE", "1m").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut job = command.arg(program).spawn().unwrap();
    let mut lines = BufReader::new(job.stdout.take().unwrap()).lines();
    let mut processes = vec![0; pes];
    for _ in 0..pes {
        let line = lines.next().expect("a PE ended").unwrap();
        let numbers: Vec<u32> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        processes[numbers[0] as usize] = numbers[1];
    }
    // Whoever writes on is not killed for it.
    std::thread::spawn(move || lines.count());
    (job, processes)
}

fn kill(process: u32) {
    let status = Command::new("kill").args(["-9", &process.to_string()]).status().unwrap();
    assert!(status.success());
}

/// Waits until they are gone, but for those that nobody has asked for their status.
fn wait_for_the_end_of(processes: &[u32]) {
    let since = Instant::now();
    for process in processes {
        let lives = || {
            let status = std::fs::read_to_string(format!("/proc/{process}/stat"));
            status.is_ok_and(|status| !status.contains(") Z"))
        };
        while lives() {
            assert!(since.elapsed() < Duration::from_secs(120), "process {process} stays");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_killed_job_of_64_pes_leaves_neither_processes_nor_memory() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path(), "lasting.c", &["-std=gnu99"]);
    let (mut job, processes) = lasting(&program, 64);
    // Shared memory without a name goes with the last that maps it.
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", processes[63])).unwrap();
    let shared: Vec<&str> = maps
        .lines()
        .filter(|line| line.contains(" rw-s ") && !line.contains("/dev/zero"))
        .collect();
    assert!(shared.len() >= 2 * 64, "{maps}");
    for line in shared {
        assert!(line.ends_with(" (deleted)") || line.contains("/memfd:"), "{line}");
    }
    kill(job.id());
    job.wait().unwrap();
    wait_for_the_end_of(&processes);
}

#[test]
fn a_killed_pe_is_named_and_ends_the_job() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path(), "lasting.c", &["-std=gnu99"]);
    let (job, processes) = lasting(&program, 3);
    kill(processes[1]);
    let output = job.wait_with_output().unwrap();
    let err = text(&output.stderr);
    assert!(!output.status.success() && err.contains("rank 1"), "{}: {err}", output.status);
    wait_for_the_end_of(&processes);
}

#[test]
fn oshrun_takes_what_mprun_takes_and_oshcc_shows_its_command() {
    let mut command = oshrun(2, "auto");
    let output =
        command.args(["--", "sh", "-c", "echo $MP_RANK \"$1\"", "sh", "a  b"]).output().unwrap();
    let out = text(&output.stdout);
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0 a  b", "1 a  b"]);
    let mut show = Command::new(prefix().join("bin/oshcc"));
    show.arg("--showme");
    assert!(text(&run(show).stdout).contains("-lmp_shmem"));
}
