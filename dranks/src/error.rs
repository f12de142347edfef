//! What can go wrong with device ranks.

use std::fmt;
use std::time::Duration;

use mp_kernels::{RankCall, RankPhase, RankReport, WaitStatus};

/// The result of every call that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong.
///
/// See [`Ranks`](crate::Ranks) for an example.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option is out of its range.
    #[error("device ranks: {option} is {value}: expected {expected}")]
    Option {
        /// Its name.
        option: &'static str,
        /// Its value.
        value: u64,
        /// What it may be.
        expected: String,
    },

    /// The members of the communicator named different options.
    #[error(
        "device ranks: rank {rank} of {communicator} opens them with {theirs}, this one with {here}"
    )]
    Mismatch {
        /// Which one differs.
        rank: usize,
        /// The communicator.
        communicator: String,
        /// What it said.
        theirs: String,
        /// What was said here.
        here: String,
    },

    /// The memory cannot be reached by kernels.
    #[error("device ranks: {memory} has no address for kernels of {device}")]
    NoAddress {
        /// Which memory.
        memory: &'static str,
        /// The device.
        device: String,
    },

    /// A rank cannot be a thread of the CPU, which does not reach its memory.
    #[error(
        "device ranks: memory of {device} is not reached by the CPU: a host rank needs host memory, or pinned memory of the GPU"
    )]
    NotOnHost {
        /// The device.
        device: String,
    },

    /// What libmp says: of the world, memory, or a rank behind a NIC.
    #[error(transparent)]
    World(#[from] libmp::Error),

    /// A launch was refused, or failed.
    #[error(transparent)]
    Launch(#[from] gdsync::Error),

    /// A call of a device rank failed.
    #[error(transparent)]
    Failed(Failure),
}

/// What a device rank was doing when a call of it failed.
///
/// See [`Failure`] for an example.
pub type Call = RankCall;

/// How far a device rank has got.
///
/// See [`Failure`] for an example.
pub type Phase = RankPhase;

/// The first call of a device's ranks that failed.
///
/// ```
/// use std::time::Duration;
///
/// use dranks::{Call, Failure, Phase};
///
/// let failure = Failure {
///     status: mp_kernels::WaitStatus::TimedOut,
///     call: Call::Wait,
///     rank: 3,
///     peer: Some(2),
///     window: Some(0),
///     tag: None,
///     missing: Some((2, Phase::Finished)),
///     full: false,
///     wanted: 4,
///     have: 1,
///     waited: Duration::from_secs(2),
/// };
/// assert_eq!(
///     failure.to_string(),
///     "device rank 3 waited for 4 notifications of window 0, source 2, any tag: timed out after 2s, 1 had come; rank 2 has finished"
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// How the call ended.
    pub status: WaitStatus,
    /// Which one it was.
    pub call: Call,
    /// Whose call, in the world of device ranks.
    pub rank: u32,
    /// The other rank: the target, or the source that was waited for.
    pub peer: Option<u32>,
    /// The window.
    pub window: Option<u32>,
    /// The tag.
    pub tag: Option<u32>,
    /// A rank that did not come, and how far it has got.
    pub missing: Option<(u32, Phase)>,
    /// The rank's own queue was full.
    pub full: bool,
    /// Notifications wanted, or the first byte of a call that was refused.
    pub wanted: u64,
    /// Notifications there were, or the bytes of the window.
    pub have: u64,
    /// How long it waited; of a call that was refused, nanoseconds for bytes.
    pub waited: Duration,
}

impl Failure {
    /// `None` if nothing failed.
    pub(crate) fn of(report: &RankReport) -> Option<Failure> {
        let some = |value: u32| (value != u32::MAX).then_some(value);
        let status =
            WaitStatus::from_code(report.status).filter(|status| *status != WaitStatus::Ok)?;
        let phase = RankPhase::from_code(report.phase).unwrap_or(RankPhase::Absent);
        Some(Failure {
            status,
            call: RankCall::from_code(report.call)?,
            rank: report.rank,
            peer: some(report.peer),
            window: some(report.window),
            tag: some(report.tag),
            missing: some(report.missing).map(|rank| (rank, phase)),
            full: report.full != 0,
            wanted: report.wanted,
            have: report.have,
            waited: Duration::from_nanos(report.waited_ns),
        })
    }

    /// Of a call that was refused.
    fn refusal(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { call, peer, window, wanted, have, waited, .. } = self;
        let (window, peer) = (shown(*window), shown(*peer));
        let bytes = waited.as_nanos();
        match call {
            Call::Put | Call::Get => write!(
                f,
                "refused: {bytes} bytes from byte {wanted} on of window {window} of rank {peer}, which has {have} there, \
                 or memory that overlaps it, or a tag of more than {} bits",
                mp_kernels::TAG_BITS
            ),
            Call::Wait => write!(
                f,
                "refused: {wanted} notifications of window {window}, source {peer}, tag {}: the queue holds {have}, \
                 and windows, ranks and tags have their limits",
                shown(self.tag)
            ),
            Call::Create => {
                write!(f, "refused: {bytes} bytes from byte {wanted} on of a memory of {have}")
            }
            _ => write!(f, "refused: window {window} is not open"),
        }
    }
}

fn shown(value: Option<u32>) -> String {
    value.map_or_else(|| "any".into(), |value| value.to_string())
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device rank {} ", self.rank)?;
        let peer = shown(self.peer);
        match self.call {
            Call::Put => write!(f, "put to rank {peer}: ")?,
            Call::Get => write!(f, "got from rank {peer}: ")?,
            Call::Notify => {
                let (window, tag) = (shown(self.window), shown(self.tag));
                write!(f, "sent rank {peer} a notification of window {window}, tag {tag}: ")?;
            }
            Call::Wait => {
                write!(f, "waited for {} notifications of ", self.wanted)?;
                let field = |name: &str, value: Option<u32>| match value {
                    Some(value) => format!("{name} {value}"),
                    None => format!("any {name}"),
                };
                let (window, source) = (field("window", self.window), field("source", self.peer));
                write!(f, "{window}, {source}, {}: ", field("tag", self.tag))?;
            }
            Call::Barrier => write!(f, "came to its barrier number {}: ", self.wanted)?,
            Call::Create => write!(f, "created a window: ")?,
            Call::Free => write!(f, "freed window {}: ", shown(self.window))?,
        }
        match self.status {
            WaitStatus::BadArgument => self.refusal(f)?,
            WaitStatus::NoRoom if self.call == Call::Create => {
                write!(f, "all {} are open", self.have)?;
            }
            WaitStatus::NoRoom => {
                write!(f, "its own queue is full of others after {:?}", self.waited)?
            }
            WaitStatus::TimedOut => write!(f, "timed out after {:?}", self.waited)?,
            WaitStatus::Aborted => write!(f, "the world was lost after {:?}", self.waited)?,
            status => write!(f, "{status:?} after {:?}", self.waited)?,
        }
        if self.call == Call::Wait && self.status != WaitStatus::BadArgument {
            write!(f, ", {} had come", self.have)?;
        }
        match self.missing {
            Some((rank, Phase::Absent)) => write!(f, "; rank {rank} has not joined"),
            Some((rank, Phase::Joined)) => write!(f, "; rank {rank} has joined, and did not come"),
            Some((rank, Phase::Finished)) => write!(f, "; rank {rank} has finished"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}
