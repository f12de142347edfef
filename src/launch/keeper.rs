//! The process that ends the ranks when `mprun` cannot: killed with SIGKILL, or crashed. The parent
//! death signal does that for the ranks themselves (`spawn.rs`), but not for what they started, and a
//! rank is often a shell script around the program. The keeper knows the process group of every rank
//! and kills them all when `mprun` is gone. It does nothing as long as `mprun` lives.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;

use rustix::process::{Pid, Signal, WaitOptions};

use super::error::{Doing, LaunchError};

/// The running keeper, seen from `mprun`.
pub(super) struct Keeper {
    pid: Pid,
    /// The end of this pipe tells the keeper that `mprun` is gone.
    line: PipeWriter,
}

/// Written instead of a process id: the job is over, nothing is left to end.
const ALL_IS_OVER: i32 = 0;

impl Keeper {
    /// Starts the keeper.
    ///
    /// Called before this process starts a thread: the keeper is a copy of it that goes on running
    /// Rust code, and a copy of one thread of several may do almost nothing.
    pub fn start() -> Result<Keeper, LaunchError> {
        let (reader, line) = io::pipe().doing("make a pipe")?;
        // SAFETY: this process has one thread (see above), so the child finds every lock free.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()).doing("start the process that guards the job"),
            0 => {
                drop(line);
                keep(reader);
                // SAFETY: ends the child at once; the exit handlers belong to the parent.
                unsafe { libc::_exit(0) }
            }
            child => match Pid::from_raw(child) {
                Some(pid) => Ok(Keeper { pid, line }),
                None => unreachable!("fork returns -1, 0 or the id of a process"),
            },
        }
    }

    /// The pipe on which a rank announces its process group, see [`announce`].
    pub fn line(&self) -> io::Result<PipeWriter> {
        self.line.try_clone()
    }

    /// Sends the keeper home: every process group is gone.
    pub fn dismiss(mut self) {
        // A keeper that somebody killed leaves nothing to tell and nothing to clean up.
        let _ = self.line.write_all(&ALL_IS_OVER.to_ne_bytes());
        drop(self.line);
        let _ = rustix::process::waitpid(Some(self.pid), WaitOptions::empty());
    }
}

/// Tells the keeper the process group that the calling process leads. Only async-signal-safe calls:
/// it runs between fork and exec, so that no program of a rank runs that the keeper does not know.
pub(super) fn announce(line: impl AsFd) -> io::Result<()> {
    let group = rustix::process::getpid().as_raw_nonzero().get().to_ne_bytes();
    // Four bytes go into a pipe whole or not at all.
    rustix::io::write(line, &group)?;
    Ok(())
}

/// The life of the keeper.
fn keep(mut reader: PipeReader) {
    detach();
    let mut groups = Vec::new();
    let mut record = [0; 4];
    while reader.read_exact(&mut record).is_ok() {
        match Pid::from_raw(i32::from_ne_bytes(record)) {
            Some(group) => groups.push(group),
            None => return,
        }
    }
    for group in groups {
        // The group may have ended with its rank.
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
}

/// Leaves the terminal, the name and the standard streams of `mprun`: what is meant for `mprun` must
/// not end the keeper first, and nobody who reads our output may wait for it.
fn detach() {
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"mp-keeper");
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGPIPE] {
        // SAFETY: ignoring a signal installs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    if let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}
