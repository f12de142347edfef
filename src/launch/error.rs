//! Why a job could not be started or watched, and the exit status that says so. How a started job
//! ended is no error: see `course.rs`.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why `mprun` could not run the job.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// There is no such program.
    #[error("command not found: {}{}", .command.display(), searched(.command))]
    CommandNotFound {
        /// The command as given.
        command: PathBuf,
    },
    /// The program is there, what would run it is not.
    #[error(
        "cannot start {}: the file exists, but the interpreter of its #! line or its dynamic loader does not",
        .command.display()
    )]
    InterpreterNotFound {
        /// The command as given.
        command: PathBuf,
    },
    /// The program cannot be executed.
    #[error("cannot start {} as {part}: {source}", .command.display())]
    CannotStart {
        /// The command as given.
        command: PathBuf,
        /// What it would have been, such as "rank 3".
        part: String,
        /// What the system said.
        source: io::Error,
    },
    /// Neither the number of ranks nor anything it follows from was given.
    #[error("the number of ranks is missing: give -n N, --per-gpu or --gpus LIST")]
    NoSize,
    /// Hosts and the number of ranks do not go together, or the job cannot be told to them.
    #[error("--hosts: {0}")]
    Hosts(String),
    /// A host did not begin.
    #[error("host {host}: {why}")]
    Host {
        /// Its name, as given.
        host: String,
        /// What became of it.
        why: String,
    },
    /// This host has no address at which others reach it.
    #[error("cannot let the ranks of several hosts meet here: {0}")]
    Address(#[source] libmp::Error),
    /// What this process was told on its standard input, as the part of a job on this host, cannot be carried out.
    #[error("as the part of a job on this host: {0}")]
    Order(String),
    /// The machine's GPUs cannot be counted.
    #[error("--per-gpu: {0}")]
    Gpus(String),
    /// A system call that the launcher needs failed.
    #[error("cannot {doing}: {source}")]
    System {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// As the shell: a name without a slash is looked up, a path is taken as it is.
fn searched(command: &std::path::Path) -> &'static str {
    if command.as_os_str().as_encoded_bytes().contains(&b'/') { "" } else { " (looked in PATH)" }
}

impl LaunchError {
    /// The exit status: 127 and 126 as a shell gives them, 2 for a wrong command line, otherwise 1.
    pub fn exit_status(&self) -> i32 {
        match self {
            LaunchError::CommandNotFound { .. } => 127,
            LaunchError::InterpreterNotFound { .. } => 127,
            LaunchError::CannotStart { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied => 126,
                _ if source.raw_os_error() == Some(libc::ENOEXEC) => 126,
                _ => 1,
            },
            LaunchError::NoSize | LaunchError::Hosts(_) => 2,
            LaunchError::Host { .. } | LaunchError::Order(_) | LaunchError::Address(_) => 1,
            LaunchError::Gpus(_) | LaunchError::System { .. } => 1,
        }
    }
}

/// Names what was being done when a system call failed.
pub(super) trait Doing<T> {
    /// `doing` completes the sentence "cannot …".
    fn doing(self, doing: &'static str) -> Result<T, LaunchError>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, doing: &'static str) -> Result<T, LaunchError> {
        self.map_err(|error| LaunchError::System { doing, source: error.into() })
    }
}
