//! The program `mp-perf` where what it is given or where it writes is not as it should be: one sentence, no panic.

use std::fs::File;
use std::process::{Command, Output, Stdio};

fn perf(before: &str, arguments: &[&str]) -> Command {
    let mut shell = Command::new("sh");
    let script = format!("{before}; exec \"$0\" \"$@\"");
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_mp-perf")]).args(arguments);
    shell.env("RUST_BACKTRACE", "1").stdin(Stdio::null());
    shell
}

/// What it said on standard error, which is one line.
fn sentence(output: &Output, status: i32) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{:?}: {text}", output.status);
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    text
}

const MODEL: [&str; 6] = [
    "model",
    concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/results/two-gpus-compare.json"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/results/two-gpus-multigrid.json"),
    "--boxes=32",
    "--domains=64",
    "--ranks=1,2,8",
];

#[test]
fn a_file_that_is_no_result_is_named_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.json");
    std::fs::write(&path, "{\"format\": 1}").unwrap();
    let path = path.display().to_string();
    let text = sentence(&perf(":", &["model", &path]).output().unwrap(), 1);
    assert!(text.contains(&path) && text.contains("is no result of mp-perf"), "{text}");
}

#[test]
fn its_status_says_what_happened_where_its_words_are_lost() {
    let perf = env!("CARGO_BIN_EXE_mp-perf");
    let unheard = |arguments: &[&str]| mp_program::absurd::unheard(perf, arguments).unwrap();
    assert_eq!(unheard(&MODEL), [Some(0); 2]);
    assert_eq!(unheard(&["model", "/nowhere.json"]), [Some(1); 2]);
    assert_eq!(unheard(&["model", "--boxes=x"]), [Some(2); 2]);
}

#[test]
fn a_run_that_fails_is_named_as_it_was_asked_for() {
    let arguments = ["multigrid", "--mode=a=", "--sizes=4:1", "--program=/none", "--repeats=1"];
    let text = sentence(&perf(":", &arguments).output().unwrap(), 1);
    assert!(text.contains("a 4:1: starting /none"), "{text}");
}

#[test]
fn readers_that_go_away_and_full_devices_end_it_without_a_panic() {
    let writer = mp_program::absurd::unread().unwrap();
    let output = perf(":", &MODEL).stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(141), 0), "{output:?}");
    let full = File::options().write(true).open("/dev/full").unwrap();
    let text = sentence(&perf(":", &MODEL).stdout(full).output().unwrap(), 1);
    assert!(text.contains("No space left"), "{text}");
    let json = perf(":", &[&MODEL[..], &["--json=/none/model.json"]].concat()).output().unwrap();
    assert!(sentence(&json, 1).contains("/none/model.json") && json.stdout.is_empty());
}

#[test]
fn memory_that_is_not_there_is_refused_with_both_numbers() {
    let arguments =
        ["latency", "--host", "--form=host", "--size=16G", "--repeats=1", "--rounds=20"];
    let output = perf("ulimit -v 4000000", &arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text.contains("16384.0 MiB of memory are wanted and"), "{text}");
    assert!(text.contains("are available (limit of the address space"), "{text}");
}
