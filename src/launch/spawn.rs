//! Starts one rank, or the launcher of a host: its environment, its process group, its standard streams. It watches nothing.

use std::ffi::OsString;
use std::io::{self, PipeReader};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::FdFlags;
use rustix::process::Pid;

use super::error::{Doing, LaunchError};
use super::tie::{self, Tie};

/// A rank that runs. Its process id is its process group as well, and stays taken until
/// [`super::processes::reap`].
pub(super) struct Rank {
    pub pid: Pid,
    pub stdout: PipeReader,
    pub stderr: PipeReader,
    pub tie: Tie,
}

/// What all ranks of a job have in common.
pub(super) struct Program<'a> {
    pub command: &'a [OsString],
    pub env: &'a [(OsString, OsString)],
}

impl Program<'_> {
    /// Starts the program as `part`, such as "rank 3", with `variables` set, and those without a value removed. `listener` is
    /// inherited under the number it has here.
    ///
    /// Called from the main thread only: the parent death signal is sent when the *thread* that
    /// started a process ends.
    pub fn start(
        &self,
        part: &str,
        variables: &[(&'static str, Option<String>)],
        stdin: Stdio,
        listener: Option<BorrowedFd>,
    ) -> Result<Rank, LaunchError> {
        let (stdout, stdout_of_rank) = io::pipe().doing("make a pipe")?;
        let (stderr, stderr_of_rank) = io::pipe().doing("make a pipe")?;
        let (tie, end) = Tie::new()?;
        let [program, arguments @ ..] = self.command else {
            unreachable!("the command line requires a command")
        };

        let mut command = Command::new(program);
        command.args(arguments).envs(self.env.iter().map(|(name, value)| (name, value)));
        for (name, value) in variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.stdin(stdin).stdout(stdout_of_rank).stderr(stderr_of_rank).process_group(0);

        let launcher = rustix::process::getpid();
        let listener = listener.map(|fd| fd.as_raw_fd());
        let prepare = move || {
            tie::tie(launcher, end.as_fd())?;
            let Some(listener) = listener else { return Ok(()) };
            // SAFETY: the caller's `listener` is open while `spawn` below runs.
            let listener = unsafe { BorrowedFd::borrow_raw(listener) };
            Ok(rustix::io::fcntl_setfd(listener, FdFlags::empty())?)
        };
        // SAFETY: `prepare` makes system calls only, and neither allocates nor locks.
        unsafe { command.pre_exec(prepare) };

        // `command` holds our copies of the rank's ends of the pipes and lets go of them here.
        let child = command.spawn().map_err(|error| refused(program, part, error))?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else { unreachable!("the id of a process is a positive pid_t") };
        Ok(Rank { pid, stdout, stderr, tie })
    }
}

fn refused(program: &OsString, part: &str, source: io::Error) -> LaunchError {
    let command = Path::new(program).to_owned();
    match source.kind() {
        io::ErrorKind::NotFound if command.is_file() => {
            LaunchError::InterpreterNotFound { command }
        }
        io::ErrorKind::NotFound => LaunchError::CommandNotFound { command },
        _ => LaunchError::CannotStart { command, part: part.to_owned(), source },
    }
}
