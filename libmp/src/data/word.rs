//! Waits of the host for a word of any memory that it reaches. Words are the program's own affair: nothing here says who writes them.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use gdsync::{Deadline, Until};

use super::name::{Name, Progress, What};
use super::plane::Plane;
use super::wait::Backoff;
use crate::error::{Error, Result};

/// Waits until `look` says that it is there; `op` is what it is called.
pub(crate) fn wait_until(
    plane: &Plane,
    op: &str,
    deadline: Deadline,
    mut look: impl FnMut() -> bool,
) -> Result<()> {
    let (mut backoff, since) = (Backoff::new(deadline), Instant::now());
    while !look() {
        plane.progress();
        let paused = plane.pause(&mut backoff, || {
            let (rank, host) = (plane.rank(), plane.peer(plane.rank()).host.clone());
            let name = Name { verb: "wait for a condition", tag: 0, direction: "of", rank, host };
            let what = What { name: Arc::new(name), expected: 1, seen: 0 };
            Progress { what, age: since.elapsed(), why: String::new() }
        });
        paused.map_err(|error| match error {
            Error::Late { rank, host, tag, expected, seen, age, why, .. } => {
                Error::Late { op: op.to_owned(), rank, host, tag, expected, seen, age, why }
            }
            other => other,
        })?;
    }
    Ok(())
}

/// Waits until what `look` sees is what is awaited. `look` says what it sees and whether that is it.
pub(crate) fn wait_for_word(
    plane: &Plane,
    word: &dyn fmt::Debug,
    until: Until<u64>,
    deadline: Deadline,
    look: impl Fn() -> gdsync::Result<(u64, bool)>,
) -> Result<()> {
    let op = || format!("a wait for {word:?} {until}");
    until.check("the host").map_err(|source| Error::Memory { op: op(), source })?;
    let (mut backoff, since) = (Backoff::new(deadline), Instant::now());
    let _span = plane.trace.span("host", "wait for a word").arg("value", until.value());
    loop {
        let (seen, met) = look().map_err(|source| Error::Memory { op: op(), source })?;
        if met {
            return Ok(());
        }
        plane.progress();
        let paused = plane.pause(&mut backoff, || {
            let (rank, host) = (plane.rank(), plane.peer(plane.rank()).host.clone());
            let name = Name { verb: "wait for a word", tag: 0, direction: "of", rank, host };
            let what = What { name: Arc::new(name), expected: until.value(), seen };
            Progress { what, age: since.elapsed(), why: String::new() }
        });
        paused.map_err(|error| match error {
            Error::Late { rank, host, tag, expected, seen, age, why, .. } => {
                Error::Late { op: op(), rank, host, tag, expected, seen, age, why }
            }
            other => other,
        })?;
    }
}
