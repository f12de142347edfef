//! `mp-perf compare` where other libraries fail, each in its way: it says who is absent with the last words, measures the
//! rest and ends well. The others are stand-ins: scripts, and an MPI of which every call does nothing.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

/// The calls of MPI, in which `FAKE_MPI` says what goes wrong, and after how many messages.
const MPI: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
char ompi_mpi_comm_world[8], ompi_mpi_byte[8];
static int messages;
static int message(void) {
    const char *how = getenv("FAKE_MPI");
    if (!how || ++messages < 8) return 0;
    if (!strcmp(how, "crash")) { fprintf(stderr, "btl_vader.c:312: no fragment left\n"); raise(SIGSEGV); }
    if (!strcmp(how, "hang")) for (;;) pause();
    if (!strcmp(how, "exit")) { fprintf(stderr, "MPI_ERRORS_ARE_FATAL\n"); _exit(16); }
    return strcmp(how, "refuse") ? 0 : 17;
}
int MPI_Send(void) { return message(); }
int MPI_Recv(void) { return message(); }
int MPI_Isend(void) { return message(); }
int MPI_Irecv(void) { return message(); }
int MPI_Waitall(void) { return 0; }
int MPI_Barrier(void) { return 0; }
int MPI_Finalize(void) { return 0; }
int MPI_Init(void) {
    const char *how = getenv("FAKE_MPI");
    if (how && !strcmp(how, "init")) { fprintf(stderr, "orte_init: no daemon\n"); raise(SIGABRT); }
    return 0;
}
int MPI_Get_library_version(char *text, int *length) { strcpy(text, "Fake MPI 1.0, nowhere"); *length = 12; return 0; }
"#;

/// Starts as many ranks as it is told, and ends when all have ended or the first has failed.
const MPIRUN: &str = r#"#!/bin/sh
[ "$1" = -n ] || exit 2
size=$2
while case "$1" in /*) false;; esac; do shift; done
export WORLD_SIZE=$size MASTER_ADDR=127.0.0.1 OMPI_COMM_WORLD_SIZE=$size
RANK=0 "$@" & first=$!
others=
for rank in $(seq 1 $((size - 1))); do RANK=$rank "$@" & others="$others $!"; done
wait $first; status=$?
if [ $status != 0 ]; then kill -9 $others 2>/dev/null; exit $status; fi
for other in $others; do wait $other || exit; done
"#;

/// One measurement at a time: two ranks of each of two poll on as many cores in turns of the kernel, for a hundred times as long.
static ALONE: Mutex<()> = Mutex::new(());

/// A run on the host with these programs in front of `PATH` and these variables, which ends well.
fn compare(programs: &[(&str, &str)], variables: &[(&str, &str)]) -> (Output, Value) {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), programs, variables, &["--host"]);
    assert!(output.status.success(), "{output:?}");
    let results = read(&folder.path().join("run.json"));
    (output, results)
}

/// A run on these devices, which writes run.json into the folder of the programs.
fn run(
    folder: &Path,
    programs: &[(&str, &str)],
    variables: &[(&str, &str)],
    devices: &[&str],
) -> Output {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let at = |name: &str| folder.join(name);
    let mpi = programs.iter().any(|(name, _)| *name == "mpirun");
    for (name, text) in programs {
        // A process of its own writes it, so that no other test can have it open when it is started.
        let mut shell = Command::new("sh")
            .args(["-c", "cat >\"$0\" && chmod 755 \"$0\""])
            .arg(at(name))
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(shell.wait().unwrap().success());
    }
    let library = at("libmpi.so.40");
    if mpi {
        fs::write(at("mpi.c"), MPI).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-w", "-o"]).arg(library).arg(at("mpi.c"));
        assert!(cc.status().unwrap().success());
    } else {
        // An MPI of the machine would play along, and be as patient as this test lets it.
        fs::write(library, "no library").unwrap();
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut perf = Command::new(env!("CARGO_BIN_EXE_mp-perf"));
    perf.args(["compare", "--sizes=8,4096", "--repeats=2", "--json"]).arg(at("run.json"));
    perf.args(devices).env("PATH", format!("{}:{path}", folder.display()));
    perf.env("MASTER_PORT", port.to_string()).envs(variables.iter().copied());
    perf.env("LD_LIBRARY_PATH", folder);
    perf.stdin(Stdio::null()).output().unwrap()
}

fn read(json: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap()
}

/// Points that a series has in a figure.
fn points(results: &Value, figure: &str, series: &str) -> usize {
    let named = |all: &Value, key: &str, name: &str| {
        all.as_array().unwrap().iter().find(|one| one[key] == name).cloned()
    };
    let figure = named(&results["figures"], "title", figure).unwrap();
    let series = named(&figure["series"], "name", series);
    series.map_or(0, |series| series["points"].as_array().unwrap().len())
}

/// Why a player is absent from a figure.
fn reason(results: &Value, figure: &str, player: &str) -> Option<String> {
    let absent = results["absent"].as_array()?;
    let one = absent.iter().find(|one| one["figure"] == figure && one["player"] == player)?;
    Some(one["reason"].as_str().unwrap().to_owned())
}

fn everybody_else_played(results: &Value) {
    for figure in ["Latency, host memory", "Bandwidth, host memory", "Exchange, host memory"] {
        assert_eq!(points(results, figure, "libmp"), 2, "{figure}: {results}");
    }
    assert_eq!(points(results, "Barrier, host", "libmp"), 1, "{results}");
}

const LATENCY: &str = "Latency, host memory";
const BANDWIDTH: &str = "Bandwidth, host memory";
const UCX_LINE: &str = "echo 'Final: 1000 0.250 0.291 0.310 26.20 24.61 3434000 3225000'";

#[test]
fn a_program_that_fails_is_absent_with_its_last_words_and_the_rest_goes_on() {
    let ways = [
        (
            "echo 'no transport' >&2; exit 3",
            "ucx_perftest exited with status 3; its last words: no transport",
        ),
        ("kill -SEGV $$", "ucx_perftest was killed by SIGSEGV without a word"),
        ("echo 'Final: garbage'", "ucx_perftest printed \"Final: garbage\""),
        ("exec sleep 1000", "ucx_perftest did not end in time and was ended without a word"),
    ];
    for (body, expected) in ways {
        let script = format!("#!/bin/sh\n{body}\n");
        let programs = [("ucx_perftest", script.as_str()), ("ucx_info", "#!/bin/sh\n")];
        let (output, results) = compare(&programs, &[("MP_PERF_PATIENCE", "1")]);
        everybody_else_played(&results);
        assert_eq!(reason(&results, LATENCY, "UCX").as_deref(), Some(expected), "{results}");
        assert_eq!(points(&results, LATENCY, "UCX"), 0);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains(&format!("UCX: absent: {expected}")), "{text}");
    }
}

#[test]
fn what_a_program_measured_before_it_failed_stays() {
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *tag_lat*'-s 8 '*) {UCX_LINE};; *) echo 'out of rings' >&2; exit 1;; esac\n"
    );
    let programs =
        [("ucx_perftest", script.as_str()), ("ucx_info", "#!/bin/sh\necho '# Version 1.2.3'\n")];
    let (_, results) = compare(&programs, &[("MP_PERF_PATIENCE", "1")]);
    everybody_else_played(&results);
    let expected = "ucx_perftest exited with status 1; its last words: out of rings";
    assert_eq!((points(&results, LATENCY, "UCX"), points(&results, BANDWIDTH, "UCX")), (1, 0));
    assert_eq!(reason(&results, LATENCY, "UCX").as_deref(), Some(expected));
    assert_eq!(reason(&results, BANDWIDTH, "UCX").as_deref(), Some(expected));
}

#[test]
fn mpi_takes_part_and_is_not_absent() {
    let (_, results) = compare(&[("mpirun", MPIRUN)], &[]);
    everybody_else_played(&results);
    assert_eq!(points(&results, LATENCY, "Fake MPI 1.0"), 2);
    assert_eq!(reason(&results, LATENCY, "MPI"), None);
}

#[test]
fn a_library_that_takes_its_process_along_is_absent_and_what_it_had_stays() {
    let patience = ("MP_PERF_PATIENCE", "2");
    let ways = [
        ("crash", "no fragment left"),
        ("hang", "MPI did not return within 2s"),
        ("exit", "MPI_ERRORS_ARE_FATAL"),
        ("init", "orte_init: no daemon"),
    ];
    for (how, words) in ways {
        let (output, results) = compare(&[("mpirun", MPIRUN)], &[("FAKE_MPI", how), patience]);
        everybody_else_played(&results);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            said.contains("mp-perf: MPI is absent: mpirun exited with status"),
            "{how}: {said}"
        );
        let reason = reason(&results, BANDWIDTH, "MPI").unwrap();
        assert!(reason.contains(words), "{how}: {reason}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains(&format!("MPI: absent: {reason}")), "{how}: {text}");
    }
}

#[test]
fn a_library_that_refuses_a_call_plays_no_more() {
    let (_, results) = compare(&[("mpirun", MPIRUN)], &[("FAKE_MPI", "refuse")]);
    everybody_else_played(&results);
    let reason = reason(&results, BANDWIDTH, "Fake MPI 1.0").unwrap();
    assert!(reason.contains("returned 17"), "{reason}");
}

#[test]
fn an_mpirun_that_cannot_start_ranks_is_the_absence_of_mpi() {
    let script = "#!/bin/sh\necho 'There are not enough slots' >&2\nexit 1\n";
    let (_, results) = compare(&[("mpirun", script)], &[]);
    everybody_else_played(&results);
    let expected = "mpirun exited with status 1; its last words: There are not enough slots";
    assert_eq!(reason(&results, LATENCY, "MPI").as_deref(), Some(expected));
}

/// What a run said on standard error that did not end well.
fn failure(programs: &[(&str, &str)], variables: &[(&str, &str)], devices: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), programs, variables, devices);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn as_many_ranks_are_started_as_gpus_are_named_and_those_that_share_one_are_threads() {
    let told = "#!/bin/sh\necho \"told $*\" >&2\nexit 0\n";
    let folder = tempfile::tempdir().unwrap();
    for (gpus, ranks) in [("0,1", 2), ("2,0,1", 3), ("0,1,2,3", 4)] {
        let output = run(folder.path(), &[("mpirun", told)], &[], &["--gpus", gpus]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success() && said.starts_with(&format!("told -n {ranks} ")),
            "{said}"
        );
        assert!(said.trim_end().ends_with(&format!("--gpus {gpus}")), "{said}");
    }
    // Without a GPU they do not get far, but not by mpirun.
    let nowhere = ("CUDA_VISIBLE_DEVICES", "");
    let said = failure(&[("mpirun", told)], &[nowhere], &["--gpus=0,0,0"]);
    assert!(!said.contains("told"), "{said}");
}

#[test]
fn three_ranks_meet_on_the_host_before_they_look_for_their_gpus() {
    let nowhere = ("CUDA_VISIBLE_DEVICES", "");
    // MPI meets, too, and loses nobody; what fails is the driver that knows of no GPU.
    let said = failure(&[("mpirun", MPIRUN)], &[nowhere], &["--gpus=0,1,2"]);
    assert!(said.contains("CUDA") && !said.contains("is absent"), "{said}");
}

#[test]
fn a_world_of_another_size_than_there_are_gpus_is_refused_with_both() {
    let alone = [("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1")];
    for (devices, expected) in [
        ("--gpus=0,1,2", "expected 3, ranks on cuda:0, cuda:1 and cuda:2 (--gpus)"),
        ("--gpus=0,0", "expected 2, ranks on cuda:0 and cuda:0 (--gpus)"),
        ("--host", "expected 2"),
    ] {
        let said = failure(&[], &alone, &[devices]);
        assert_eq!(said.trim_end(), format!("mp-perf: the world's size is 1: {expected}"));
    }
}
