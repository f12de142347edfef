//! The standard input of `mprun` becomes that of rank 0; the others read nothing. A file or a pipe is
//! simply inherited. A terminal is not: rank 0 is in a process group of its own, in the background as
//! the terminal sees it, and would be stopped at its first read. A thread reads for it.

use std::io::{self, PipeWriter, Read, Write};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use super::error::{Doing, LaunchError};

/// Carries what is typed to rank 0.
pub(super) struct Feed(PipeWriter);

/// The standard input for rank 0, and what has to run for it.
pub(super) fn for_rank_0() -> Result<(Stdio, Option<Feed>), LaunchError> {
    if !rustix::termios::isatty(rustix::stdio::stdin()) {
        return Ok((Stdio::inherit(), None));
    }
    let (reader, writer) = io::pipe().doing("make a pipe")?;
    Ok((Stdio::from(reader), Some(Feed(writer))))
}

impl Feed {
    /// Starts carrying. The thread ends with its input, with rank 0, or with this process.
    pub fn start(self) -> Result<(), LaunchError> {
        let thread = thread::Builder::new().name("stdin".to_owned());
        thread.spawn(move || carry(self.0)).doing("start a thread")?;
        Ok(())
    }
}

fn carry(mut to: PipeWriter) {
    block_sigttin();
    let mut from = io::stdin().lock();
    let mut buffer = [0; 4096];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return,
            // An error: rank 0 has closed its input.
            Ok(count) => match to.write_all(&buffer[..count]) {
                Ok(()) => {}
                Err(_) => return,
            },
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // In the background (`&`, `bg`) with SIGTTIN blocked: what is typed is not for us now.
            Err(error) if error.raw_os_error() == Some(libc::EIO) && in_background() => {
                thread::sleep(Duration::from_millis(250));
            }
            Err(_) => return,
        }
    }
}

/// Without SIGTTIN a read in the background fails instead of stopping all of `mprun`.
fn block_sigttin() {
    // SAFETY: `set` is initialised by sigemptyset before it is used; only this thread's mask changes.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGTTIN);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}

fn in_background() -> bool {
    // Not through rustix, whose process groups are never 0: so the kernel calls one that was made outside this
    // process namespace, as that of a program started in a container may be.
    // SAFETY: two queries that take no pointer.
    let (foreground, ours) = unsafe { (libc::tcgetpgrp(libc::STDIN_FILENO), libc::getpgrp()) };
    foreground != -1 && foreground != ours
}
