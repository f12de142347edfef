//! Waiting without the interpreter's lock, and so that Ctrl-C ends it: in slices, between which Python looks at its signals; what
//! cannot be cut into slices waits on a thread of its own.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use libmp::gdsync::{self, Guest};
use libmp::{Deadline, Error};
use pyo3::prelude::*;

use crate::error::{Result, argument};

/// Between two looks at signals.
const SLICE: Duration = Duration::from_millis(100);

/// A time in seconds, as Python says it; `otherwise` for none.
pub fn seconds(timeout: Option<f64>, otherwise: Duration) -> Result<Duration> {
    let Some(seconds) = timeout else { return Ok(otherwise) };
    let fits = || argument("timeout", format!("{seconds}, expected a number of seconds from 0 on"));
    if seconds == f64::INFINITY {
        return Ok(Duration::MAX);
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| fits())
}

/// A call that goes on where it was when it is made again after its deadline.
pub fn wait<T: Send>(
    py: Python<'_>,
    timeout: Duration,
    mut call: impl FnMut(Deadline) -> libmp::Result<T> + Send,
) -> Result<T> {
    let total = Deadline::after(timeout);
    loop {
        let slice = Deadline::after(SLICE.min(total.remaining()));
        match detached(py, || call(slice)) {
            // What is late by itself, a wait of a stream that gave up, is said before the slice is over, now or in the next one.
            Err(error) if is_late(&error) && slice.expired() && !total.expired() => {
                py.check_signals()?;
            }
            Err(Error::Memory { op, source: gdsync::Error::Timeout { what, detail, .. } }) => {
                let source = gdsync::Error::Timeout { what, after: timeout, detail };
                return Err(Error::Memory { op, source }.into());
            }
            result => return Ok(result?),
        }
    }
}

fn is_late(error: &Error) -> bool {
    matches!(
        error,
        Error::Late { .. }
            | Error::Waits { .. }
            | Error::Memory { source: gdsync::Error::Timeout { .. }, .. }
    )
}

/// A call without the interpreter's lock, which leaves the thread's CUDA as it was.
pub fn detached<T: Send>(py: Python<'_>, call: impl FnOnce() -> T + Send) -> T {
    py.detach(|| {
        let _guest = Guest::enter();
        call()
    })
}

/// A call that takes as long as the other ranks do, and ends by its own deadline. Ctrl-C leaves it to itself.
pub fn collective<T: Send + 'static>(
    py: Python<'_>,
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let (tell, mut told) = sync_channel(1);
    let thread = std::thread::Builder::new().name("libmp-collective".into());
    // Nobody hears of the result of a call that was left to itself.
    let started = thread.spawn(move || drop(tell.send(call())));
    let failed = |source| Error::Io {
        what: "starting a thread".into(),
        source: std::sync::Arc::new(source),
    };
    let thread = started.map_err(failed)?;
    loop {
        let told = &mut told;
        match py.detach(move || told.recv_timeout(SLICE)) {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => match thread.join() {
                Err(panic) => std::panic::resume_unwind(panic),
                Ok(()) => return Err(argument("call", "ended without a result")),
            },
        }
    }
}
