//! How a PE ends that cannot go on: one sentence on standard error, the news for the others, and a status that is not zero.

use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use libmp::{Error, World};

use crate::world;

/// Status of a process that could not go on.
const FAILED: i32 = 1;

/// Somebody is ending the process.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Ends the process, and all PEs with it, because of what the program has done or the machine has not.
#[cold]
pub(crate) fn die(sentence: impl Display) -> ! {
    first_only();
    say(&sentence);
    if let Some(state) = world::try_state() {
        state.world.abort(sentence.to_string());
    }
    quit(FAILED)
}

/// Ends the process because the world is over, or a call of it has failed.
#[cold]
pub(crate) fn fail(error: &Error) -> ! {
    first_only();
    let status = match error {
        Error::Exited { status, .. } => *status,
        error => {
            say(error);
            FAILED
        }
    };
    if let Some(state) = world::try_state().filter(|state| state.world.check().is_ok()) {
        state.world.abort(error.to_string());
    }
    quit(status)
}

/// Ends the process with what the program wants to say of it.
pub(crate) fn exit(status: i32) -> ! {
    first_only();
    quit(status)
}

/// Tells the others of the failure with which the program exits by itself.
pub(crate) fn leave(world: &World, status: i32) {
    first_only();
    say(&format_args!("exits with status {status} before shmem_finalize"));
    world.exit(status);
}

/// What a call of the world gives, which ends the process if it has failed.
pub(crate) trait OrFail<T> {
    fn or_fail(self) -> T;
}

impl<T> OrFail<T> for libmp::Result<T> {
    #[inline]
    fn or_fail(self) -> T {
        match self {
            Ok(value) => value,
            Err(error) => fail(&error),
        }
    }
}

/// Several threads may find out at once; one of them says it.
fn first_only() {
    while ENDING.swap(true, Ordering::AcqRel) {
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn say(sentence: &dyn Display) {
    let pe = world::try_state().map_or(String::new(), |state| format!("PE {}: ", state.me));
    // One write, so that PEs that speak at once do not mix their words. Nobody need listen.
    let _ = std::io::stderr().write_all(format!("shmem: {pe}{sentence}\n").as_bytes());
}

fn quit(status: i32) -> ! {
    // SAFETY: writes what the program has printed so far; no handler of the program's runs in a process that is in the middle
    // of something.
    unsafe {
        libc::fflush(std::ptr::null_mut());
        libc::_exit(status)
    }
}
