//! What ties the life of the ranks, and of what they started, to that of `mprun`, when it is killed with SIGKILL or crashes.
//! The kernel does it, so that no other process has to be there: the parent death signal ends a rank itself; and when the
//! last writer of a pipe is gone, the kernel signals the owner of its reading end, which is the process group of the rank.
//! A process that moved to another group or session is not ended.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::io::FdFlags;
use rustix::process::{Pid, Signal};

use super::error::{Doing, LaunchError};

/// `mprun`'s end of the tie to one rank. Nothing is ever written.
pub(super) struct Tie {
    _end: PipeWriter,
}

impl Tie {
    /// A tie, and the end of it that the rank inherits.
    pub fn new() -> Result<(Tie, PipeReader), LaunchError> {
        let (reader, writer) = io::pipe().doing("make a pipe")?;
        Ok((Tie { _end: writer }, reader))
    }
}

/// Ties the calling process, which leads a process group, and everything that will be in its group to `launcher`. Only
/// system calls: it runs between fork and exec.
///
/// # Errors
/// What the system said; `ESRCH` if `launcher` is gone already.
pub(super) fn tie(launcher: Pid, end: BorrowedFd) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // Had `mprun` died before that call, no signal would come: the parent is another one by now.
    if rustix::process::getppid() != Some(launcher) {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    let group = rustix::process::getpid().as_raw_nonzero().get();
    control(end, libc::F_SETOWN, -group)?;
    control(end, F_SETSIG, libc::SIGKILL)?;
    control(end, libc::F_SETFL, libc::O_ASYNC)?;
    // Kept open by the program, and by what it starts: as long as anybody has it, the kernel knows whom to signal.
    Ok(rustix::io::fcntl_setfd(end, FdFlags::empty())?)
}

/// fcntl(2): the signal that takes the place of SIGIO. Not in `libc` for every platform.
const F_SETSIG: i32 = 10;

fn control(fd: BorrowedFd, command: i32, argument: i32) -> io::Result<()> {
    // SAFETY: the commands above take a number and no pointer, and the descriptor is open.
    match unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), command, argument) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
