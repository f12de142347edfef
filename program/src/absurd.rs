//! For the tests of programs: every option of a command line, given values that nobody means, a standard error that
//! nothing can be written to, and a pipe that nobody reads.

use std::any::TypeId;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, PipeWriter, Write};
use std::path::PathBuf;
use std::process::{Command as Process, Stdio};
use std::time::Duration;

use clap::{Arg, ArgAction, Command};

/// Values that no number, size, pair or name on a command line can be.
pub const VALUES: [&str; 9] =
    ["nan", "inf", "-1", "-0.5", "1e999", "99999999999999999999", "x", "", "0x10"];

/// Whether the type of an option's values lets it take anything; its parser may still refuse some.
fn holds_text(arg: &Arg) -> bool {
    let kind = arg.get_value_parser().type_id();
    [TypeId::of::<String>(), TypeId::of::<OsString>(), TypeId::of::<PathBuf>()]
        .iter()
        .any(|any| kind == *any)
}

/// The options of `command` and its subcommands that take one of [`VALUES`], or a value though they have none, each with the
/// line that shows it, and how many lines were tried. Those that take every text, such as names of files, are left out.
pub fn accepted(command: &Command) -> (Vec<String>, usize) {
    let (mut accepted, mut tried) = (Vec::new(), 0);
    walk(command, command, &mut Vec::new(), &mut accepted, &mut tried);
    (accepted, tried)
}

/// The exit statuses of a program whose standard error is full, and is closed: what it has to say there is lost, and not
/// more. Without one if a signal ended it; 101 if it panicked.
///
/// # Errors
/// If it cannot be started.
pub fn unheard(program: &str, arguments: &[&str]) -> io::Result<[Option<i32>; 2]> {
    let mut full = Process::new(program);
    full.args(arguments).stderr(File::options().write(true).open("/dev/full")?);
    let mut closed = Process::new("sh");
    closed.args(["-c", "exec \"$0\" \"$@\" 2>&-", program]).args(arguments);
    let run = |mut process: Process| -> io::Result<Option<i32>> {
        process.env("RUST_BACKTRACE", "1").stdin(Stdio::null()).stdout(Stdio::null());
        Ok(process.status()?.code())
    };
    Ok([run(full)?, run(closed)?])
}

/// A pipe that nobody reads.
///
/// # Errors
/// If there is none.
pub fn unread() -> io::Result<PipeWriter> {
    let (reader, writer) = io::pipe()?;
    drop(reader);
    abandoned(writer)
}

/// Waits until nobody holds the reading end of a pipe any more: a process that another thread is just starting has all
/// descriptors of this one until it runs its program.
fn abandoned(mut writer: PipeWriter) -> io::Result<PipeWriter> {
    // Fewer bytes than a pipe holds.
    for _ in 0..10_000 {
        match writer.write(b"\n") {
            Ok(_) => std::thread::sleep(Duration::from_millis(1)),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(writer),
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("somebody holds the reading end of the pipe"))
}

fn walk(
    whole: &Command,
    part: &Command,
    path: &mut Vec<String>,
    accepted: &mut Vec<String>,
    tried: &mut usize,
) {
    for arg in part.get_arguments() {
        let takes_value = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
        let values = if takes_value { &VALUES[..] } else { &VALUES[..1] };
        let mut taken = Vec::new();
        for value in values {
            let mut line = vec![whole.get_name().to_owned()];
            line.extend(path.iter().cloned());
            match arg.get_long() {
                Some(long) => line.push(format!("--{long}={value}")),
                // Behind `--` nothing is taken for an option.
                None => line.extend(["--".to_owned(), (*value).to_owned()]),
            }
            // What is missing besides is complained of only after every value has been read.
            let result = whole.clone().try_get_matches_from(&line);
            let refused = result.is_err_and(|error| {
                use clap::error::ErrorKind::*;
                matches!(
                    error.kind(),
                    ValueValidation | InvalidValue | TooFewValues | TooManyValues | NoEquals
                )
            });
            if !refused {
                taken.push(line.join(" "));
            }
        }
        // A path may be anything but empty.
        let any_text = holds_text(arg) && taken.len() + 1 >= values.len();
        if !any_text {
            *tried += values.len();
            accepted.extend(taken);
        }
    }
    for sub in part.get_subcommands() {
        path.push(sub.get_name().to_owned());
        walk(whole, sub, path, accepted, tried);
        path.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_unread_when_the_last_process_that_holds_its_reading_end_has_ended() {
        let (reader, writer) = io::pipe().unwrap();
        let since = std::time::Instant::now();
        let mut holder = Process::new("sleep").arg("0.3").stdin(reader).spawn().unwrap();
        let mut writer = abandoned(writer).unwrap();
        assert!(since.elapsed() >= Duration::from_millis(300), "it still holds it");
        assert_eq!(writer.write(b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        holder.wait().unwrap();
    }
}
