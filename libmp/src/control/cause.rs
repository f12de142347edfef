//! Why a world ended, as it travels between ranks. An operation that it interrupts turns it into an
//! [`Error`](crate::Error) by adding its own name and age.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// How the loss of a rank was noticed.
///
/// ```
/// use libmp::{Error, Loss};
///
/// /// Whether starting the job again may help.
/// fn may_be_the_network(error: &Error) -> bool {
///     matches!(error, Error::PeerLost { how: Loss::Silent { .. } | Loss::Path { .. }, .. })
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Loss {
    /// Its connection was closed: the process ended or was killed, or its host is gone.
    Closed {
        /// What the operating system said.
        detail: String,
    },
    /// Nothing was heard from it, not even a heartbeat: stopped, or unreachable.
    Silent {
        /// For how long, in milliseconds.
        milliseconds: u64,
    },
    /// It dropped its world without `finish`.
    Unfinished,
    /// It panicked.
    Panicked,
    /// A data path to it failed.
    Path {
        /// Which, and what happened.
        detail: String,
    },
    /// It ended before all ranks had met, as the launcher says.
    Ended {
        /// How: "it was killed by SIGKILL".
        how: String,
    },
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Closed { detail } => write!(f, "its connection was closed ({detail})"),
            Loss::Silent { milliseconds } => {
                write!(f, "no sign of life for {:.1} s", *milliseconds as f64 / 1e3)
            }
            Loss::Unfinished => write!(f, "it left without finishing"),
            Loss::Panicked => write!(f, "it panicked"),
            Loss::Path { detail } => write!(f, "{detail}"),
            Loss::Ended { how } => write!(f, "{how} before all ranks had met"),
        }
    }
}

/// Why a world ended, or did not come about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Cause {
    /// A rank is lost.
    Lost { rank: u32, host: String, how: Loss },
    /// A rank called `abort`.
    Aborted { rank: u32, host: String, reason: String },
    /// A rank ended the program of all ranks, with this status.
    Exited { rank: u32, host: String, status: i32 },
    /// A collective passed its deadline.
    Late { what: String, missing: Vec<(u32, String)>, waited_ms: u64 },
    /// The start passed its deadline.
    Incomplete { missing: Vec<u32>, size: u32, waited_ms: u64, refused: Vec<String> },
    /// Two ranks do not fit together.
    Refused { reason: String },
    /// Somebody broke the protocol, or a control thread ended by itself.
    Protocol { what: String },
}

impl Cause {
    /// The error of an operation that this cause interrupts after `age`.
    pub(crate) fn during(&self, op: &str, age: Duration) -> Error {
        let op = op.to_owned();
        match self.clone() {
            Cause::Lost { rank, host, how } => {
                Error::PeerLost { rank: rank as usize, host, how, op, age }
            }
            Cause::Aborted { rank, host, reason } => {
                Error::Aborted { rank: rank as usize, host, reason, op, age }
            }
            Cause::Exited { rank, host, status } => {
                Error::Exited { rank: rank as usize, host, status, op, age }
            }
            Cause::Late { what, missing, waited_ms } => Error::Timeout {
                what,
                missing: missing.into_iter().map(|(rank, host)| (rank as usize, host)).collect(),
                waited: Duration::from_millis(waited_ms),
                op,
                age,
            },
            Cause::Incomplete { missing, size, waited_ms, refused } => Error::Incomplete {
                missing: missing.into_iter().map(|rank| rank as usize).collect(),
                size: size as usize,
                waited: Duration::from_millis(waited_ms),
                refused,
            },
            Cause::Refused { reason } => Error::Handshake { reason },
            Cause::Protocol { what } => Error::Protocol { what, op, age },
        }
    }

    /// What the abort word shows: bit 63, the kind from bit 32 up, the rank concerned (`u32::MAX`: none) below.
    pub(crate) fn word(&self) -> u64 {
        let (kind, rank) = match self {
            Cause::Lost { rank, .. } => (1, *rank),
            Cause::Aborted { rank, .. } => (2, *rank),
            Cause::Late { missing, .. } => (3, missing.first().map_or(u32::MAX, |(rank, _)| *rank)),
            Cause::Incomplete { missing, .. } => (4, missing.first().copied().unwrap_or(u32::MAX)),
            Cause::Refused { .. } => (5, u32::MAX),
            Cause::Protocol { .. } => (6, u32::MAX),
            Cause::Exited { rank, .. } => (7, *rank),
        };
        1 << 63 | kind << 32 | u64::from(rank)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Lost { rank, host, how } => write!(f, "rank {rank} on {host} is lost: {how}"),
            Cause::Aborted { rank, host, reason } => {
                write!(f, "rank {rank} on {host} aborted the world: {reason}")
            }
            Cause::Exited { rank, host, status } => {
                write!(f, "rank {rank} on {host} ended the program with status {status}")
            }
            Cause::Late { what, .. } => write!(f, "{what} passed its deadline"),
            Cause::Incomplete { missing, size, .. } => {
                let missing: Vec<usize> = missing.iter().map(|&rank| rank as usize).collect();
                write!(f, "{} of {size} did not arrive", crate::error::ranks(&missing))
            }
            Cause::Refused { reason } => write!(f, "{reason}"),
            Cause::Protocol { what } => write!(f, "{what}"),
        }
    }
}
