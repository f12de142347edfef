//! Starts one rank: its environment, its process group, its standard streams, and what ties its life
//! to that of `mprun`. It watches nothing.

use std::ffi::OsString;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::FdFlags;
use rustix::process::{Pid, Signal};

use super::contract::RankEnvironment;
use super::error::{Doing, LaunchError};
use super::keeper;

/// A rank that runs. Its process id is its process group as well, and stays taken until
/// [`super::processes::reap`].
pub(super) struct Rank {
    pub pid: Pid,
    pub stdout: PipeReader,
    pub stderr: PipeReader,
}

/// What all ranks of a job have in common.
pub(super) struct Program<'a> {
    pub command: &'a [OsString],
    pub env: &'a [(String, String)],
    pub keeper: PipeWriter,
}

impl Program<'_> {
    /// Starts the program as the rank that `environment` describes. `listener` is inherited under the
    /// number it has here.
    ///
    /// Called from the main thread only: the parent death signal is sent when the *thread* that
    /// started a process ends.
    pub fn start(
        &self,
        environment: &RankEnvironment,
        stdin: Stdio,
        listener: Option<BorrowedFd>,
    ) -> Result<Rank, LaunchError> {
        let (stdout, stdout_of_rank) = io::pipe().doing("make a pipe")?;
        let (stderr, stderr_of_rank) = io::pipe().doing("make a pipe")?;
        let [program, arguments @ ..] = self.command else {
            unreachable!("the command line requires a command")
        };

        let mut command = Command::new(program);
        command.args(arguments).envs(self.env.iter().map(|(name, value)| (name, value)));
        for (name, value) in environment.values() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.stdin(stdin).stdout(stdout_of_rank).stderr(stderr_of_rank).process_group(0);

        let (keeper, listener) = (self.keeper.as_raw_fd(), listener.map(|fd| fd.as_raw_fd()));
        let launcher = rustix::process::getpid();
        let prepare = move || {
            // SAFETY: `self.keeper` and the caller's `listener` are open while `spawn` below runs.
            let (keeper, listener) = unsafe {
                (BorrowedFd::borrow_raw(keeper), listener.map(|fd| BorrowedFd::borrow_raw(fd)))
            };
            tie_to(launcher, keeper, listener)
        };
        // SAFETY: `tie_to` makes system calls only, and neither allocates nor locks.
        unsafe { command.pre_exec(prepare) };

        // `command` holds our copies of the rank's ends of the pipes and lets go of them here.
        let child = command.spawn().map_err(|error| refused(program, environment.rank, error))?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else { unreachable!("the id of a process is a positive pid_t") };
        Ok(Rank { pid, stdout, stderr })
    }
}

/// Runs in the new process before the program does.
fn tie_to(launcher: Pid, keeper: BorrowedFd, listener: Option<BorrowedFd>) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // Had `mprun` died before that call, no signal would come: the parent is another one by now.
    if rustix::process::getppid() != Some(launcher) {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    keeper::announce(keeper)?;
    if let Some(listener) = listener {
        rustix::io::fcntl_setfd(listener.as_fd(), FdFlags::empty())?;
    }
    Ok(())
}

fn refused(program: &OsString, rank: usize, source: io::Error) -> LaunchError {
    let command = Path::new(program).to_owned();
    match source.kind() {
        io::ErrorKind::NotFound if command.is_file() => {
            LaunchError::InterpreterNotFound { command }
        }
        io::ErrorKind::NotFound => LaunchError::CommandNotFound { command },
        _ => LaunchError::CannotStart { command, rank, source },
    }
}
