//! What becomes of signals, and of a terminal.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::*;

/// Ranks that say `$$`, then the name of the signal they get, and exit with 9.
fn listening(signal: &str) -> Job {
    let program =
        format!("trap 'echo {signal}; exit 9' {signal}; echo $$; while :; do sleep 0.05; done");
    let mut job = Job::start(&mut mprun(&["-n", "2", "sh", "-c", &program]));
    job.wait_for_lines(2);
    job
}

#[test]
fn signals_reach_every_rank() {
    let signals = [
        (Signal::INT, "INT"),
        (Signal::TERM, "TERM"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
    ];
    for (signal, name) in signals {
        let job = listening(name);
        job.signal(signal);
        let job = job.end();
        // One of the two may already be ended by SIGTERM when its turn comes to speak.
        assert!(job.stdout.lines().any(|line| line == name), "{name}: {job:?}");
        assert_eq!(job.status.code(), Some(9), "{name}: {job:?}");
    }
}

#[test]
fn a_signal_that_ranks_survive_is_only_passed_on() {
    let program = "trap 'echo got it; got=1' USR1; echo $$
                   until [ \"$got\" ]; do sleep 0.05; done; echo end";
    let mut job = Job::start(&mut mprun(&["-n", "2", "sh", "-c", program]));
    job.wait_for_lines(2);
    job.signal(Signal::USR1);
    let job = job.end();
    assert!(job.status.success(), "{job:?}");
    assert_eq!(job.sorted()[2..], ["end", "end", "got it", "got it"]);
}

#[test]
fn a_job_that_a_signal_ends_reports_it_as_a_shell_does() {
    for (signal, number) in [(Signal::INT, 2), (Signal::TERM, 15), (Signal::HUP, 1)] {
        let mut job = Job::start(&mut mprun(&["-n", "2", "sh", "-c", "echo $$; exec sleep 1000"]));
        job.wait_for_lines(2);
        job.signal(signal);
        let job = job.end();
        assert_eq!(job.status.code(), Some(128 + number), "{job:?}");
    }
}

#[test]
fn a_second_interrupt_kills_at_once() {
    let program = "trap 'echo no' INT; echo $$; while :; do sleep 0.05; done";
    let mut job = Job::start(&mut mprun(&["-n", "1", "--kill-after", "1000", "sh", "-c", program]));
    job.wait_for_lines(1);
    job.signal(Signal::INT);
    job.wait_for_lines(2);
    thread::sleep(Duration::from_millis(300));
    job.signal(Signal::INT);
    assert_eq!(job.end().status.code(), Some(137));
}

#[test]
fn a_signal_that_mprun_was_started_to_ignore_stays_ignored() {
    let mut command = Command::new("sh");
    let job =
        format!("{} -n 1 sh -c 'echo $$; sleep 0.5; echo alive'", env!("CARGO_BIN_EXE_mprun"));
    command.args(["-c", &format!("trap '' HUP; exec {job}")]).stdout(Stdio::piped());
    let mut job = Job::start(&mut command);
    job.wait_for_lines(1);
    job.signal(Signal::HUP);
    job.wait_for_lines(2);
    assert!(job.end().status.success());
}

#[test]
fn a_stopped_job_stops_its_ranks_and_continues_with_them() {
    let mut job = Job::start(&mut mprun(&["-n", "2", "sh", "-c", "echo $$; exec sleep 1000"]));
    let mut pids = job.wait_for_pids(2);
    pids.push(job.pid().as_raw_nonzero().get());
    job.signal(Signal::TSTP);
    eventually("all are stopped", || pids.iter().all(|pid| state(*pid) == Some('T')));
    job.signal(Signal::CONT);
    eventually("all go on", || pids.iter().all(|pid| state(*pid) == Some('S')));
}

/// Starts a job with a terminal of its own as standard input; returns the other end of it.
fn on_a_terminal(arguments: &[&str]) -> (Job, File) {
    let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&keyboard).unwrap();
    unlockpt(&keyboard).unwrap();
    let terminal = ptsname(&keyboard, Vec::new()).unwrap().into_string().unwrap();
    let mut options = File::options();
    // Not the terminal of the tests, should they lead a session: its end would end them.
    options.read(true).write(true).custom_flags(libc::O_NOCTTY);
    let terminal = options.open(terminal).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_mprun"));
    command.args(arguments).stdin(terminal).stdout(Stdio::piped()).stderr(Stdio::piped());
    let own_session = || {
        rustix::process::setsid()?;
        Ok(rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?)
    };
    // SAFETY: two system calls, which allocate and lock nothing.
    unsafe { command.pre_exec(own_session) };
    with_default_signals(&mut command);
    (Job::start(&mut command), File::from(keyboard))
}

#[test]
fn what_is_typed_at_a_terminal_reaches_rank_0() {
    let (mut job, mut keyboard) = on_a_terminal(&["-n", "2", "-l", "cat"]);
    keyboard.write_all(b"hello\n").unwrap();
    assert_eq!(job.wait_for_lines(1), ["[0] hello"]);
    keyboard.write_all(b"\x04").unwrap();
    assert!(job.end().status.success());
}

#[test]
fn control_c_at_a_terminal_ends_the_job() {
    let program = "echo $$; exec sleep 1000";
    let (mut job, mut keyboard) = on_a_terminal(&["-n", "2", "sh", "-c", program]);
    job.wait_for_lines(2);
    keyboard.write_all(b"\x03").unwrap();
    assert_eq!(job.end().status.code(), Some(130));
}
