//! What the launcher asks the kernel about processes: has a rank ended and how, does anything of its
//! process group still run; and what it does to them: signal, reap. Decides nothing.

use std::fmt;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::RawFd;

use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Signal, WaitId, WaitIdOptions, pidfd_getfd, pidfd_open,
};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Exited(i32),
    Killed(i32),
    /// Somebody else took its exit status.
    Unknown,
}

impl Ended {
    /// Did the process do what it was started for?
    pub fn well(self) -> bool {
        self == Ended::Exited(0)
    }

    /// The exit status a shell would report.
    pub fn status(self) -> i32 {
        match self {
            Ended::Exited(status) => status,
            Ended::Killed(signal) => 128 + signal,
            Ended::Unknown => 1,
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Exited(status) => write!(f, "exited with status {status}"),
            Ended::Killed(signal) => write!(f, "was killed by {}", name(*signal)),
            Ended::Unknown => write!(f, "is gone, and its exit status with it"),
        }
    }
}

/// `SIGTERM`, or `signal 44` where there is no name.
pub(super) fn name(signal: i32) -> String {
    match signal_hook::low_level::signal_name(signal) {
        Some(name) => name.to_owned(),
        None => format!("signal {signal}"),
    }
}

/// How the rank ended, if it has. It stays a zombie: as long as nobody reaps it, its number cannot
/// become that of another process or group, and signalling the group stays safe.
pub(super) fn ended(pid: Pid) -> Option<Ended> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match rustix::process::waitid(WaitId::Pid(pid), options) {
        Ok(None) => None,
        Ok(Some(status)) => Some(match (status.terminating_signal(), status.exit_status()) {
            (Some(signal), _) => Ended::Killed(signal),
            (None, Some(status)) => Ended::Exited(status),
            (None, None) => Ended::Unknown,
        }),
        Err(_) => Some(Ended::Unknown),
    }
}

/// What a process that is stopped listens with at `address`, as descriptor `number`: shared with it, for as long as it
/// cannot serve there itself.
pub(super) fn listener_of(pid: Pid, number: RawFd, address: SocketAddr) -> io::Result<TcpListener> {
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let socket = pidfd_getfd(process, number, PidfdGetfdFlags::empty())?;
    // The number may be another file's by now, or the world may be complete.
    let listens = rustix::net::sockopt::socket_acceptconn(&socket)?;
    let listener = TcpListener::from(socket);
    if listens && listener.local_addr()? == address {
        return Ok(listener);
    }
    Err(io::Error::other(format!("process {} does not listen there", pid.as_raw_nonzero())))
}

/// Gives the number of an ended rank back. Its group must not be signalled after this.
pub(super) fn reap(pid: Pid) {
    let _ =
        rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
}

/// Signals every process of a rank's group.
pub(super) fn signal_group(group: Pid, signal: Signal) {
    // A group of zombies only, or of processes that changed their user, is nobody we can help.
    let _ = rustix::process::kill_process_group(group, signal);
}

/// A process of a rank's group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub pid: i32,
    pub group: i32,
    /// Not a zombie.
    pub runs: bool,
    pub stopped: bool,
    /// It is about to end, or a signal has killed it and its parent has not taken notice.
    pub dying: bool,
}

/// The processes of `groups`, zombies included.
pub(super) fn of(groups: &[Pid]) -> Vec<Process> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: i32| {
        let process = read_stat(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?)?;
        let ours = groups.iter().any(|ours| ours.as_raw_nonzero().get() == process.group);
        ours.then_some(process)
    })
    .collect()
}

/// The processes of `groups` that still run.
pub(super) fn running(groups: &[Pid]) -> Vec<i32> {
    of(groups).into_iter().filter(|process| process.runs).map(|process| process.pid).collect()
}

/// A line of `/proc/PID/stat` (proc(5)): `PID (NAME) STATE PPID PGRP SESSION TTY TPGID FLAGS …`. The name may hold
/// anything, brackets and spaces too.
fn read_stat(pid: i32, stat: &[u8]) -> Option<Process> {
    // include/linux/sched.h.
    const PF_EXITING: u32 = 0x4;
    const PF_SIGNALED: u32 = 0x400;
    let behind_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let rest = std::str::from_utf8(&stat[behind_name..]).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    let group = fields.nth(1)?.parse().ok()?;
    let flags: u32 = fields.nth(3).and_then(|flags| flags.parse().ok()).unwrap_or(0);
    let runs = !matches!(state, "Z" | "X" | "x");
    let dying = flags & PF_SIGNALED != 0 || runs && flags & PF_EXITING != 0;
    Some(Process { pid, group, runs, stopped: matches!(state, "T" | "t"), dying })
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_group_is_found_behind_any_process_name() {
        let group = |stat: &[u8]| read_stat(7, stat).unwrap().group;
        assert_eq!(group(b"7 (sh) S 1 5 5 0"), 5);
        assert_eq!(group(b"7 (a) Z 1 9 (b)) R 1 6 5 0"), 6);
        assert_eq!(group(b"7 (\xff) S 1 5 5 0"), 5);
        assert_eq!(read_stat(7, b""), None);
    }

    #[test]
    fn a_process_that_ends_is_told_from_one_that_runs_and_one_that_has_ended() {
        let found = |state: &str, flags: u32| {
            let stat = format!("7 (sh) {state} 1 5 5 0 -1 {flags} 0 0");
            let process = read_stat(7, stat.as_bytes()).unwrap();
            (process.runs, process.stopped, process.dying)
        };
        assert_eq!(found("S", 0x40_0000), (true, false, false));
        assert_eq!(found("T", 0x40_0000), (true, true, false));
        assert_eq!(found("R", 0x40_0004), (true, false, true), "on its way out");
        assert_eq!(found("D", 0x40_0400), (true, false, true), "killed");
        assert_eq!(found("Z", 0x40_0404), (false, false, true), "killed, and not reaped");
        assert_eq!(found("Z", 0x40_0004), (false, false, false), "exited, and not reaped");
    }

    #[test]
    fn a_running_process_is_found_in_its_group_until_it_ends() {
        let mut child =
            Command::new("sleep").arg("1000").process_group(0).spawn().expect("sleep starts");
        let group = Pid::from_child(&child);
        let id = group.as_raw_nonzero().get();
        assert_eq!(running(&[group]), [id]);
        assert_eq!(ended(group), None);

        signal_group(group, Signal::KILL);
        let deadline = Instant::now() + Duration::from_secs(60);
        while ended(group).is_none() {
            assert!(Instant::now() < deadline, "SIGKILL did not end it");
            std::thread::yield_now();
        }
        assert_eq!(ended(group), Some(Ended::Killed(9)), "it stays there to be asked again");
        assert_eq!(running(&[group]), Vec::<i32>::new());
        child.wait().expect("nobody else reaped it");
    }

    #[test]
    fn ends_are_told_in_words_and_as_a_shell_counts_them() {
        assert_eq!(Ended::Exited(7).to_string(), "exited with status 7");
        assert_eq!(Ended::Killed(11).to_string(), "was killed by SIGSEGV");
        assert_eq!(Ended::Killed(11).status(), 139);
        assert!(name(44).contains("44"));
    }
}
