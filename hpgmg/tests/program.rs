//! The program `hpgmg-fv` where its surroundings do not play along: readers that go away, full devices, paths that cannot be
//! written, and less memory than the problem needs. It says what is wrong in a sentence and neither panics nor is killed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_hpgmg-fv");

/// A solve that takes no time.
const SMALL: [&str; 8] = [
    "4",
    "1",
    "--device=cpu",
    "--ranks=1",
    "--threads=1",
    "--solves=1",
    "--smoother=gsrb",
    "--cycle=f",
];

fn small() -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(SMALL).env("RUST_BACKTRACE", "1").stdin(Stdio::null());
    command
}

/// What it said on standard error, which is one line.
fn sentence(output: &Output, status: i32) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{:?}: {text}", output.status);
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    text
}

#[test]
fn a_reader_that_goes_away_ends_it_without_a_word() {
    let writer = mp_program::absurd::unread().unwrap();
    let output = small().stdout(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(141), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn its_status_says_what_happened_where_its_words_are_lost() {
    let unheard = |arguments: &[&str]| mp_program::absurd::unheard(PROGRAM, arguments).unwrap();
    assert_eq!(unheard(&SMALL), [Some(0); 2]);
    assert_eq!(unheard(&[&SMALL[..], &["--json=/dev/full"]].concat()), [Some(1); 2]);
    assert_eq!(unheard(&["4", "0"]), [Some(2); 2]);
}

#[test]
fn a_full_device_is_said_once() {
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let text = sentence(&small().stdout(full()).output().unwrap(), 1);
    assert_eq!(text.matches("No space left").count(), 1, "{text}");
    let text = sentence(&small().arg("--json=/dev/full").output().unwrap(), 1);
    assert_eq!(text.matches("No space left").count(), 1, "{text}");
}

#[test]
fn a_file_that_cannot_be_written_is_named_before_anything_is_solved() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none/run.json");
    let output = small().arg("--json").arg(&path).output().unwrap();
    assert!(sentence(&output, 1).contains(&path.display().to_string()));
    assert!(output.stdout.is_empty(), "{output:?}");
}

#[test]
fn a_file_is_written_though_nobody_reads_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let writer = mp_program::absurd::unread().unwrap();
    small().arg("--json").arg(&path).stdout(writer).status().unwrap();
    assert!(fs::read_to_string(&path).unwrap().contains("\"pass\": true"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// A shell that does `before` and becomes the program.
fn under(before: &str, arguments: &[&str]) -> Output {
    let script = format!("{before}; exec \"$0\" \"$@\"");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, PROGRAM]).args(arguments).env("RUST_BACKTRACE", "0");
    shell.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn a_problem_beyond_the_limits_of_the_process_is_refused_with_both_numbers() {
    for limit in ["ulimit -v 500000", "ulimit -d 400000"] {
        let large = ["7", "8", "--device=cpu", "--ranks=2", "--threads=1", "--solves=1"];
        let text = sentence(&under(limit, &large), 1);
        assert!(text.contains("256³ cells need") && text.contains("are available"), "{text}");
        // What fits runs.
        let output = under(limit, &SMALL);
        assert!(output.status.success(), "{limit}: {output:?}");
    }
}

#[test]
fn more_threads_than_any_machine_has_are_refused() {
    let output = under(":", &["4", "1", "--device=cpu", "--threads", "99999999999"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// A control group of this test with a limit, of whichever version this machine has; gone when dropped.
struct Group(PathBuf);

impl Group {
    fn new(limit: &str) -> Result<Group, String> {
        let name = format!("hpgmg-test-{}", std::process::id());
        let tried =
            [("memory", "memory.limit_in_bytes"), ("", "memory.max")].map(|(mount, file)| {
                let parent = Path::new("/sys/fs/cgroup").join(mount);
                let group = parent.join(&name);
                let made = || {
                    if !parent.join("cgroup.procs").exists() {
                        return Err(std::io::ErrorKind::NotFound.into());
                    }
                    fs::create_dir(&group)?;
                    let group = Group(group.clone());
                    fs::write(group.0.join(file), limit).map(|()| group)
                };
                made().map_err(|error: std::io::Error| format!("{}: {error}", parent.display()))
            });
        let [first, second] = tried;
        first.or_else(|one| second.map_err(|two| format!("{one}; {two}")))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // It is empty; if not, the next run of the machine will tell.
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_problem_beyond_the_limit_of_the_control_group_is_refused_and_not_killed() {
    let group = match Group::new("134217728") {
        Ok(group) => group,
        Err(reason) => return eprintln!("skipped: no control group can be made here ({reason})"),
    };
    let join = format!("echo $$ > {}/cgroup.procs", group.0.display());
    let large = ["6", "8", "--device=cpu", "--ranks=2", "--threads=1", "--solves=1"];
    let text = sentence(&under(&join, &large), 1);
    assert!(text.contains("128³ cells need") && text.contains("are available"), "{text}");
    let output = under(&join, &SMALL);
    assert!(output.status.success(), "{output:?}");
}
