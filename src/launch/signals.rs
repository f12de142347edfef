//! The signals that `mprun` passes on to its ranks, delivered as readable bytes so that one wait can
//! look at signals and everything else. What a signal means for the job is decided in `course.rs`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::consts::*;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

use super::error::{Doing, LaunchError};

/// Passed on to every rank.
const FORWARDED: [i32; 7] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP];

/// The signals that have arrived.
pub(super) struct Signals(SignalDelivery<UnixStream, SignalOnly>);

impl Signals {
    /// Catches the signals to pass on, and SIGCHLD. One that `mprun` was started to ignore (`nohup`,
    /// a job in the background of a script) stays ignored, by it and by the ranks.
    pub fn catch() -> Result<Signals, LaunchError> {
        let (read, write) = UnixStream::pair().doing("make a socket")?;
        let caught = FORWARDED.into_iter().filter(|signal| !ignored(*signal)).chain([SIGCHLD]);
        let signals = SignalDelivery::with_pipe(read, write, SignalOnly, caught);
        signals.map(Signals).doing("catch signals")
    }

    /// Readable when a signal has arrived.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.get_read().as_fd()
    }

    /// What arrived since the last call, SIGCHLD left out.
    pub fn arrived(&mut self) -> Vec<i32> {
        self.0.pending().filter(|signal| *signal != SIGCHLD).collect()
    }
}

/// Does this signal ask for the end of the job?
pub(super) fn asks_to_end(signal: i32) -> bool {
    matches!(signal, SIGINT | SIGTERM | SIGHUP | SIGQUIT)
}

fn ignored(signal: i32) -> bool {
    // SAFETY: an all-zero sigaction is a valid value for the kernel to overwrite; no new action is
    // given, so none is changed.
    let action = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal, std::ptr::null(), &mut action) != 0 {
            return false;
        }
        action
    };
    action.sa_sigaction == libc::SIG_IGN
}

/// Stops this process as SIGTSTP would have, had it not been caught; returns when it is continued.
pub(super) fn stop_self() -> io::Result<()> {
    Ok(rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)?)
}
