//! How a failure reaches C: a code that the function returns, and a text that the thread keeps.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use libmp::Error;

/// What a function returns: `mp_status` of the header, with the same numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// It went well.
    Ok = 0,
    /// An argument is NULL or makes no sense.
    Argument = 1,
    /// An environment variable, or the launcher.
    Environment = 2,
    /// The ranks did not find each other or do not fit together.
    Start = 3,
    /// A rank is lost; the world is over.
    PeerLost = 4,
    /// A rank aborted the world.
    Aborted = 5,
    /// A collective did not complete in time; the world is over.
    Timeout = 6,
    /// A wait did not complete in time; the world goes on.
    Late = 7,
    /// The ranks' calls do not fit together.
    Mismatch = 8,
    /// No path leads to that rank.
    NoPath = 9,
    /// Memory, a stream or a device refused.
    Memory = 10,
    /// The message is longer than the buffer posted for it.
    Truncated = 11,
    /// The operation is started already.
    Started = 12,
    /// Outside of a region, a window or its signals.
    Range = 13,
    /// Too many operations, or a blob that is too large.
    Limit = 14,
    /// The world is finished.
    Finished = 15,
    /// The control plane broke its protocol; the world is over.
    Protocol = 16,
    /// This build cannot do it.
    Unsupported = 17,
    /// The operating system refused something.
    Io = 18,
    /// A defect of the library.
    Internal = 19,
}

/// All codes, with their names in the header.
pub(crate) const NAMES: &[(Status, &CStr)] = &[
    (Status::Ok, c"MP_OK"),
    (Status::Argument, c"MP_ERR_ARGUMENT"),
    (Status::Environment, c"MP_ERR_ENVIRONMENT"),
    (Status::Start, c"MP_ERR_START"),
    (Status::PeerLost, c"MP_ERR_PEER_LOST"),
    (Status::Aborted, c"MP_ERR_ABORTED"),
    (Status::Timeout, c"MP_ERR_TIMEOUT"),
    (Status::Late, c"MP_ERR_LATE"),
    (Status::Mismatch, c"MP_ERR_MISMATCH"),
    (Status::NoPath, c"MP_ERR_NO_PATH"),
    (Status::Memory, c"MP_ERR_MEMORY"),
    (Status::Truncated, c"MP_ERR_TRUNCATED"),
    (Status::Started, c"MP_ERR_STARTED"),
    (Status::Range, c"MP_ERR_RANGE"),
    (Status::Limit, c"MP_ERR_LIMIT"),
    (Status::Finished, c"MP_ERR_FINISHED"),
    (Status::Protocol, c"MP_ERR_PROTOCOL"),
    (Status::Unsupported, c"MP_ERR_UNSUPPORTED"),
    (Status::Io, c"MP_ERR_IO"),
    (Status::Internal, c"MP_ERR_INTERNAL"),
];

/// Why a function fails.
#[derive(Debug)]
pub(crate) struct Failure {
    status: Status,
    text: String,
}

/// What the bodies of the functions return.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// An argument that cannot be used.
    pub fn argument(name: &str, what: impl std::fmt::Display) -> Failure {
        Failure { status: Status::Argument, text: format!("argument `{name}`: {what}") }
    }

    /// Something that the library does not do.
    pub fn unsupported(text: impl Into<String>) -> Failure {
        Failure { status: Status::Unsupported, text: text.into() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let status = match &error {
            Error::Variable { .. } | Error::MissingVariable { .. } | Error::Launcher { .. } => {
                Status::Environment
            }
            Error::Interface { .. }
            | Error::Bind { .. }
            | Error::Unreachable { .. }
            | Error::Handshake { .. }
            | Error::Incomplete { .. }
            | Error::Pmix { .. }
            | Error::Mpi { .. } => Status::Start,
            Error::NotBuilt { .. } => Status::Unsupported,
            Error::PeerLost { .. } => Status::PeerLost,
            Error::Aborted { .. } | Error::Exited { .. } => Status::Aborted,
            Error::Timeout { .. } => Status::Timeout,
            Error::Late { .. } | Error::Waits { .. } => Status::Late,
            Error::Protocol { .. } => Status::Protocol,
            Error::Mismatch { .. } => Status::Mismatch,
            Error::TooLarge { .. } => Status::Limit,
            Error::NoSuchRank { .. } | Error::NoOperations => Status::Argument,
            Error::Finished { .. } => Status::Finished,
            Error::NoPath { .. } | Error::Nic { .. } => Status::NoPath,
            Error::Memory { .. } => Status::Memory,
            Error::Truncated { .. } => Status::Truncated,
            Error::Started { .. } => Status::Started,
            Error::OutOfRange { .. } => Status::Range,
            Error::Io { .. } => Status::Io,
            _ => Status::Internal,
        };
        Failure { status, text: error.to_string() }
    }
}

impl From<libmp::gdsync::Error> for Failure {
    fn from(error: libmp::gdsync::Error) -> Failure {
        let status = match &error {
            libmp::gdsync::Error::OutOfRange { .. } => Status::Range,
            libmp::gdsync::Error::Misaligned { .. } => Status::Argument,
            libmp::gdsync::Error::Timeout { .. } => Status::Late,
            _ => Status::Memory,
        };
        Failure { status, text: error.to_string() }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs the body of a function: failures and panics become codes.
pub(crate) fn guard(function: &str, body: impl FnOnce() -> Result<()>) -> c_int {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return Status::Ok as c_int,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure {
            status: Status::Internal,
            text: format!("a defect of the library: {}", panic_text(&*panic)),
        },
    };
    keep(function, &failure.text);
    failure.status as c_int
}

/// The same for a function that returns a value; `otherwise` if it fails.
pub(crate) fn value<T>(function: &str, otherwise: T, body: impl FnOnce() -> Result<T>) -> T {
    let mut result = otherwise;
    guard(function, || {
        result = body()?;
        Ok(())
    });
    result
}

/// Text of the last failure, for [`mp_last_error`].
fn keep(function: &str, text: &str) {
    let text = format!("{function}: {text}").replace('\0', " ");
    // A thread that is ending has nobody left to ask.
    let _ = LAST.try_with(|last| {
        if let (Ok(mut last), Ok(text)) = (last.try_borrow_mut(), CString::new(text)) {
            *last = text;
        }
    });
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(|text| &text[..])).unwrap_or("a panic")
}

/// The text of the last failure of this thread; empty before the first. Valid until the next failure of the thread.
#[unsafe(no_mangle)]
pub extern "C" fn mp_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// The name of a code, `MP_ERR_LATE`; `MP_ERR_UNKNOWN` for a number that is none.
#[unsafe(no_mangle)]
pub extern "C" fn mp_status_name(status: c_int) -> *const c_char {
    let known = NAMES.iter().find(|(known, _)| *known as c_int == status);
    known.map_or(c"MP_ERR_UNKNOWN", |(_, name)| name).as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        // SAFETY: a terminated string, which nothing overwrites meanwhile.
        unsafe { CStr::from_ptr(mp_last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_is_a_code_and_a_text() {
        let status = guard("mp_test", || panic!("who would have\0thought"));
        assert_eq!(status, Status::Internal as c_int);
        assert_eq!(last(), "mp_test: a defect of the library: who would have thought");
    }

    #[test]
    fn a_failure_names_its_function_and_what_went_well_leaves_it_alone() {
        let failed = || Err(Failure::argument("peer", "7 of 2"));
        assert_eq!(value("mp_test", -1, failed), -1);
        assert_eq!(guard("mp_other", || Ok(())), 0);
        assert_eq!(last(), "mp_test: argument `peer`: 7 of 2");
        std::thread::spawn(|| assert_eq!(last(), "")).join().unwrap();
    }

    #[test]
    fn the_header_has_the_same_codes() {
        let header = include_str!("../include/mp.h");
        for (status, name) in NAMES {
            let line = format!("{} = {}", name.to_str().unwrap(), *status as c_int);
            assert!(
                header.lines().any(|text| text.trim().trim_end_matches(',').starts_with(&line)),
                "{line}"
            );
        }
    }
}
