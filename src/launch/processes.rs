//! What the launcher asks the kernel about processes: has a rank ended and how, does anything of its
//! process group still run; and what it does to them: signal, reap. Decides nothing.

use std::fmt;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::RawFd;

use gdsync::process::Process;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
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

    /// It failed with a status of its own, as one does that has noticed what became of another. A shell's above 128 is a killed program.
    pub fn may_follow(self) -> bool {
        matches!(self, Ended::Exited(1..=128) | Ended::Unknown)
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

/// Whether somebody waits to be answered.
pub(super) fn is_called(listener: &TcpListener) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&now)) == Ok(1)
}

/// Waits a moment for the end of a process whose output has ended.
pub(super) fn wait_shortly(pid: Pid) {
    for _ in 0..100 {
        if ended(pid).is_some() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
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

/// The processes of `groups`, zombies included.
pub(super) fn of(groups: &[Pid]) -> Vec<Process> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let processes = pids.filter_map(|pid: u32| Process::of(pid).ok());
    let ours = |process: &Process| {
        groups.iter().any(|group| group.as_raw_nonzero().get() == process.group)
    };
    processes.filter(ours).collect()
}

/// The processes of `groups` that still run.
pub(super) fn running(groups: &[Pid]) -> Vec<u32> {
    of(groups).into_iter().filter(|process| process.runs).map(|process| process.pid).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_running_process_is_found_in_its_group_until_it_ends() {
        let mut child =
            Command::new("sleep").arg("1000").process_group(0).spawn().expect("sleep starts");
        let group = Pid::from_child(&child);
        assert_eq!(running(&[group]), [child.id()]);
        assert_eq!(ended(group), None);

        signal_group(group, Signal::KILL);
        let deadline = Instant::now() + Duration::from_secs(60);
        while ended(group).is_none() {
            assert!(Instant::now() < deadline, "SIGKILL did not end it");
            std::thread::yield_now();
        }
        assert_eq!(ended(group), Some(Ended::Killed(9)), "it stays there to be asked again");
        assert_eq!(running(&[group]), Vec::<u32>::new());
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
