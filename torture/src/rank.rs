//! What a rank does between the launcher and its program: says who it is, applies what the fault needs from within, and
//! becomes the program.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, Rlimit, setrlimit};

/// What to do to this rank, if it is the victim.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Where to leave marks.
    #[arg(long)]
    folder: PathBuf,
    /// The rank that the rest is about.
    #[arg(long)]
    victim: usize,
    /// It says that the moment has come as soon as it is there.
    #[arg(long)]
    announce: bool,
    /// Most bytes of its address space.
    #[arg(long)]
    address_space: Option<u64>,
    /// It meets the others through this address.
    #[arg(long)]
    through: Option<String>,
    /// It exits at once.
    #[arg(long)]
    missing: bool,
    /// It does not get the socket that the launcher made.
    #[arg(long)]
    without_socket: bool,
    /// A library that is put before all others.
    #[arg(long)]
    preload: Option<PathBuf>,
    /// A folder in which libraries are looked for.
    #[arg(long)]
    libraries: Option<PathBuf>,
    /// The program.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Becomes the program.
///
/// # Errors
/// If it cannot.
pub fn become_program(options: &Options) -> Result<i32> {
    let rank: usize = std::env::var("MP_RANK")
        .ok()
        .and_then(|text| text.parse().ok())
        .context("MP_RANK is not there: this is for ranks of mprun")?;
    let mark = |name: &str, text: String| {
        // Renamed, so that nobody reads half of it.
        let (path, part) =
            (options.folder.join(name), options.folder.join(format!("{name}.{rank}")));
        std::fs::write(&part, text)
            .and_then(|()| std::fs::rename(&part, &path))
            .with_context(|| format!("writing {}", path.display()))
    };
    mark(&format!("pid-{rank}"), std::process::id().to_string())?;
    if rank == 0 {
        mark("rendezvous", std::env::var("MP_RENDEZVOUS").unwrap_or_default())?;
    }
    let (program, arguments) = options.command.split_first().context("no program")?;
    let mut command = Command::new(program);
    command.args(arguments);
    if rank == options.victim {
        if options.missing {
            mark(crate::mark::STRUCK, String::new())?;
            return Ok(0);
        }
        if options.announce {
            mark(crate::mark::STRUCK, String::new())?;
        }
        if let Some(bytes) = options.address_space {
            let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
            setrlimit(Resource::As, limit).context("limiting the address space")?;
        }
        if let Some(address) = &options.through {
            command.env("MP_RENDEZVOUS", address);
        }
        if let Some(library) = &options.preload {
            command.env("LD_PRELOAD", library);
        }
        if let Some(folder) = &options.libraries {
            command.env("LD_LIBRARY_PATH", folder);
        }
        if options.without_socket {
            command.env_remove("MP_RENDEZVOUS_FD");
        }
    }
    bail!("cannot become {}: {}", program.to_string_lossy(), command.exec());
}
