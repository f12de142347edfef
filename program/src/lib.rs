//! What the programs of this workspace have in common: standard output that somebody may have closed, files that are
//! written whole or not at all, numbers on the command line within a range, errors as one sentence, what repeated measurements say, small
//! drawings, other libraries' programs that are measured beside ours.

pub mod absurd;
pub mod drawing;
mod file;
pub mod nvshmem;
pub mod peer;
mod spread;
pub mod stand_in;

use std::error::Error;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::str::FromStr;

pub use file::{can_be_written, write};
pub use spread::Spread;

/// Exit status of a program whose reader went away: what a shell shows of one that SIGPIPE ended.
pub const READER_GONE: i32 = 141;

/// Prints a line, as `println!` does, and ends the program where that is not possible: with [`READER_GONE`] and without a
/// word if nobody reads, else with a sentence.
#[macro_export]
macro_rules! outln {
    ($($text:tt)*) => { $crate::print(&format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints a line on standard error, as `eprintln!` does; where nobody can hear it, that is not this program's affair.
#[macro_export]
macro_rules! errln {
    ($($text:tt)*) => {{
        // In one write: the lines of several ranks come out whole.
        let line = format!("{}\n", format_args!($($text)*));
        let _ = ::std::io::Write::write_all(&mut ::std::io::stderr(), line.as_bytes());
    }};
}

/// Prints `text` on standard output, all of it, or ends the program as [`outln!`] does.
pub fn print(text: &dyn Display) {
    if let Err(error) = print_to(&mut io::stdout().lock(), text) {
        if error.kind() == ErrorKind::BrokenPipe {
            std::process::exit(READER_GONE);
        }
        errln!("cannot write to standard output: {error}");
        std::process::exit(1);
    }
}

fn print_to(out: &mut impl Write, text: &dyn Display) -> io::Result<()> {
    write!(out, "{text}")?;
    out.flush()
}

/// An error and its causes as one sentence, in which nothing is said twice.
pub fn sentence(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

/// Says on standard error, in one sentence, why `program` ends, and gives the status of a failure.
pub fn fail(program: &str, error: &(dyn Error + 'static)) -> ExitCode {
    errln!("{program}: {}", sentence(error));
    ExitCode::FAILURE
}

/// A parser of numbers within `range`, for options; it refuses NaN, too.
pub fn within<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Clone,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("expected a number from {} to {}", range.start(), range.end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_outside_its_range_or_none_at_all_is_refused_with_the_range() {
        let seconds = within(0.01..=1e6);
        assert_eq!(seconds("2.5"), Ok(2.5));
        for text in ["nan", "inf", "-inf", "-1", "0", "1e7", "1e999", "x", ""] {
            assert!(seconds(text).unwrap_err().contains("from 0.01 to 1000000"), "{text}");
        }
        assert!(within(1..=4096_usize)("99999999999").is_err());
    }

    #[test]
    fn a_cause_that_is_in_the_sentence_already_is_not_said_again() {
        #[derive(Debug)]
        struct Outer(&'static str, io::Error);
        impl Display for Outer {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.0)
            }
        }
        impl Error for Outer {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&self.1)
            }
        }
        let full = || io::Error::other("no space left");
        assert_eq!(sentence(&Outer("writing f", full())), "writing f: no space left");
        assert_eq!(sentence(&Outer("f: no space left", full())), "f: no space left");
    }

    #[test]
    fn output_that_fails_is_an_error_and_not_a_panic() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        assert_eq!(print_to(&mut Full, &"text").unwrap_err().kind(), ErrorKind::StorageFull);
    }
}
