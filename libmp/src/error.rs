//! What can go wrong between ranks: one variant per kind of failure, each a sentence a user can act on.
//!
//! Failures of a *running* world (`PeerLost`, `Aborted`, `Exited`, `Timeout`, `Protocol`) end it: from then on every call on
//! that world returns the same cause, with its own operation and age.

use std::io;
use std::sync::Arc;
use std::time::Duration;

pub use crate::control::cause::Loss;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of this crate. Each names the operation, the value that was refused and what was expected.
///
/// ```
/// use libmp::{Error, World};
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// match world.barrier() {
///     Err(Error::PeerLost { rank, host, .. }) => println!("rank {rank} on {host} is lost: saving what there is"),
///     other => other?,
/// }
/// # world.finish()
/// # }
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An environment variable holds something that cannot be used.
    #[error("{name}={value:?}: expected {expected}")]
    Variable {
        /// The variable.
        name: String,
        /// What it holds.
        value: String,
        /// What it may hold.
        expected: String,
    },

    /// An environment variable is missing that another one makes necessary.
    #[error("{name} is not set, but {because}")]
    MissingVariable {
        /// The variable.
        name: String,
        /// Why it is needed.
        because: String,
    },

    /// The process was started as one of several, in a way that gives the ranks no means to find each other.
    #[error(
        "{launcher}, but {problem}; {remedy}, or set MP_BOOTSTRAP=alone for independent processes"
    )]
    Launcher {
        /// What was recognised.
        launcher: String,
        /// Why it cannot be used.
        problem: String,
        /// What to do.
        remedy: String,
    },

    /// What was asked for is not part of this build.
    #[error("{what} is not part of this build: build libmp with feature `{feature}`")]
    NotBuilt {
        /// What was asked for.
        what: &'static str,
        /// The cargo feature that brings it.
        feature: &'static str,
    },

    /// The network interface asked for does not exist or has no address.
    #[error("no network interface or local address {name:?}; this host has {available}")]
    Interface {
        /// The name or address asked for, or what was looked for.
        name: String,
        /// What there is.
        available: String,
    },

    /// Rank 0 cannot listen where the others will look for it.
    #[error("rank 0 cannot listen on {address}: {source}")]
    Bind {
        /// Address and port.
        address: String,
        /// The operating system's answer.
        source: Arc<io::Error>,
    },

    /// Rank 0 did not answer before the deadline.
    #[error("rank {rank} could not reach rank 0 at {address} for {waited:.1?}: {last}")]
    Unreachable {
        /// The rank that tried.
        rank: usize,
        /// Address and port of the rendezvous.
        address: String,
        /// How long it tried.
        waited: Duration,
        /// What happened at the last attempt.
        last: String,
    },

    /// Two ranks, or a rank and a stranger, do not fit together.
    #[error("{reason}")]
    Handshake {
        /// One sentence with both sides' values.
        reason: String,
    },

    /// Not every rank arrived before the deadline of the start.
    #[error("{}", incomplete(.missing, *.size, *.waited, .refused))]
    Incomplete {
        /// The ranks that did not arrive (the first ones, if there are very many).
        missing: Vec<usize>,
        /// The size of the world.
        size: usize,
        /// How long the others waited.
        waited: Duration,
        /// Connections that were turned away meanwhile, and why.
        refused: Vec<String>,
    },

    /// A rank died, hangs, disconnected, or left without finishing.
    #[error("rank {rank} on {host} is lost: {how} (during {op}, after {age:.1?})")]
    #[non_exhaustive]
    PeerLost {
        /// The lost rank, in the world.
        rank: usize,
        /// Its host.
        host: String,
        /// How it was noticed.
        how: Loss,
        /// The operation that could not complete here.
        op: String,
        /// How long that operation had been going on.
        age: Duration,
    },

    /// A rank aborted the world.
    #[error("rank {rank} on {host} aborted the world: {reason} (during {op}, after {age:.1?})")]
    #[non_exhaustive]
    Aborted {
        /// The rank that did, in the world.
        rank: usize,
        /// Its host.
        host: String,
        /// Its reason.
        reason: String,
        /// The operation that could not complete here.
        op: String,
        /// How long that operation had been going on.
        age: Duration,
    },

    /// A rank ended the program of all ranks: [`World::exit`](crate::World::exit).
    #[error(
        "rank {rank} on {host} ended the program with status {status} (during {op}, after {age:.1?})"
    )]
    #[non_exhaustive]
    Exited {
        /// The rank that did, in the world.
        rank: usize,
        /// Its host.
        host: String,
        /// With which status every process is to exit.
        status: i32,
        /// The operation that could not complete here.
        op: String,
        /// How long that operation had been going on.
        age: Duration,
    },

    /// A collective operation did not complete before its deadline. The ranks no longer agree on where they are, so
    /// the world is over.
    #[error("{what} did not complete within {waited:.1?}: {} (during {op}, after {age:.1?})", late(.missing))]
    #[non_exhaustive]
    Timeout {
        /// The operation whose deadline passed, on whichever rank.
        what: String,
        /// The ranks (of the world) that had not entered it, with their hosts; empty when not known.
        missing: Vec<(usize, String)>,
        /// How long it was waited for.
        waited: Duration,
        /// The operation that could not complete here.
        op: String,
        /// How long that operation had been going on.
        age: Duration,
    },

    /// A rank or the control plane of this rank broke the protocol.
    #[error("{what} (during {op}, after {age:.1?})")]
    #[non_exhaustive]
    Protocol {
        /// Who did what.
        what: String,
        /// The operation that could not complete here.
        op: String,
        /// How long that operation had been going on.
        age: Duration,
    },

    /// The ranks called different collectives, or the same with arguments that do not fit; or an operation, a stream or memory do
    /// not fit together. The world goes on, unless it was being [finished](crate::World::finish): then it is over.
    #[error("{op}: {reason}")]
    Mismatch {
        /// The operation here.
        op: String,
        /// One sentence with both sides' values.
        reason: String,
    },

    /// A blob is larger than the control plane carries.
    #[error("{what} is {size} bytes, more than the limit of {limit}: put large data in a window")]
    TooLarge {
        /// What is too large.
        what: String,
        /// Its size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },

    /// No such rank in this communicator.
    #[error("rank {rank} does not exist in {communicator} of {size} rank(s)")]
    NoSuchRank {
        /// The rank asked for.
        rank: usize,
        /// The communicator.
        communicator: String,
        /// Its size.
        size: usize,
    },

    /// The world has been finished.
    #[error("{op}: this world is finished")]
    Finished {
        /// The operation that was called.
        op: String,
    },

    /// A PMIx call failed.
    #[error("{call} failed: {message}")]
    Pmix {
        /// The call.
        call: String,
        /// PMIx's word for it, or ours.
        message: String,
    },

    /// An MPI call or MPI's state stands in the way.
    #[error("MPI: {message}")]
    Mpi {
        /// What is wrong and what was expected.
        message: String,
    },

    /// There is no way to a rank for what was asked.
    #[error("no path from {from} to rank {rank} on {to}: {reason}")]
    NoPath {
        /// The peer, in the world.
        rank: usize,
        /// The host of this rank.
        from: String,
        /// The host of the peer.
        to: String,
        /// What would be needed.
        reason: &'static str,
    },

    /// The NIC, a queue pair or a request on the path to a rank failed or was refused.
    #[error("{op}: {source}")]
    Nic {
        /// The operation and the rank.
        op: String,
        /// What failed and why.
        source: gdsync::nic::Error,
    },

    /// Memory, a stream or a device of an operation refused.
    #[error("{op}: {source}")]
    Memory {
        /// The operation.
        op: String,
        /// What refused and why.
        source: gdsync::Error,
    },

    /// A message is longer than the buffer that was posted for it. Nothing was sent.
    #[error("{op}: a message of {sent} bytes for a posted buffer of {posted} bytes")]
    Truncated {
        /// The operation here.
        op: String,
        /// Length of the message in bytes.
        sent: u64,
        /// Length of the receiver's buffer in bytes.
        posted: u64,
    },

    /// An operation was started again before its last start was seen complete.
    #[error("{op} is still started: epoch {epoch} has not been waited for")]
    Started {
        /// The operation.
        op: String,
        /// The start that has not been seen complete.
        epoch: u64,
    },

    /// The deadline of a wait passed. The world goes on, and the operation stays started.
    #[error("{op} not complete after {age:.1?}: waiting for epoch {expected}, seen {seen}{}", reason(.why))]
    #[non_exhaustive]
    Late {
        /// The operation.
        op: String,
        /// The peer, in the world.
        rank: usize,
        /// Its host.
        host: String,
        /// The operation's tag.
        tag: u64,
        /// The start that was waited for.
        expected: u64,
        /// The last one reached.
        seen: u64,
        /// Time since the start.
        age: Duration,
        /// Why nothing came, for all that is known here; empty if nothing is.
        why: Box<str>,
    },

    /// The deadline of a wait for a tagged message passed. The world goes on.
    #[error("{op} not complete after {age:.1?}{}", reason(.why))]
    #[non_exhaustive]
    Waits {
        /// The operation, its tag and peer, and its bytes so far.
        op: String,
        /// How long it was waited for.
        age: Duration,
        /// Why nothing came, for all that is known here; empty if nothing is.
        why: Box<str>,
    },

    /// Elements or a signal outside of what the peer has opened.
    #[error("{op}: elements {at}..{end} of {size}", end = at.saturating_add(*len))]
    OutOfRange {
        /// The operation.
        op: String,
        /// The first element asked for.
        at: u64,
        /// How many.
        len: u64,
        /// How many there are.
        size: u64,
    },

    /// A wait for any of no operations.
    #[error("wait_any was given no operations: none of them can ever be complete")]
    NoOperations,

    /// The operating system refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// The operating system's answer.
        source: Arc<io::Error>,
    },
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source: Arc::new(source) }
    }
}

fn reason(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!("; {why}") }
}

fn incomplete(missing: &[usize], size: usize, waited: Duration, refused: &[String]) -> String {
    let mut text = format!("{} of {size} did not arrive within {waited:.1?}", ranks(missing));
    if !refused.is_empty() {
        text += &format!("; turned away meanwhile: {}", refused.join("; "));
    }
    text
}

fn late(missing: &[(usize, String)]) -> String {
    if missing.is_empty() {
        return "rank 0 gave no answer".into();
    }
    let list: Vec<String> =
        missing.iter().take(8).map(|(rank, host)| format!("rank {rank} on {host}")).collect();
    let more = missing.len().saturating_sub(8);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more} did not enter it", list.join(", "))
}

/// "rank 3", "ranks 1, 2 and 5", "ranks 0, 1, … (14 ranks)".
pub(crate) fn ranks(list: &[usize]) -> String {
    let text: Vec<String> = list.iter().take(16).map(usize::to_string).collect();
    match (list.len(), text.split_last()) {
        (0, _) | (_, None) => "no rank".into(),
        (1, Some((one, _))) => format!("rank {one}"),
        (2..=16, Some((last, first))) => format!("ranks {} and {last}", first.join(", ")),
        (many, _) => format!("ranks {}, … ({many} ranks)", text.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_ranks_read_as_a_sentence() {
        let error = Error::Incomplete {
            missing: vec![1, 2, 5],
            size: 8,
            waited: Duration::from_secs(60),
            refused: vec!["127.0.0.1:4: wrong token".into()],
        };
        assert_eq!(
            error.to_string(),
            "ranks 1, 2 and 5 of 8 did not arrive within 60.0s; turned away meanwhile: 127.0.0.1:4: wrong token"
        );
        assert_eq!(ranks(&[3]), "rank 3");
        assert_eq!(ranks(&(0..20).collect::<Vec<_>>()).matches(',').count(), 16);
    }
}
