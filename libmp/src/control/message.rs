//! What the ranks tell each other on the control plane. Every message goes between rank 0 and one other rank; those of
//! rank 0 to itself, and between threads of one process, take the same way without a socket.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::cause::{Cause, Loss};
use crate::collective::Call;
use crate::trace::TraceFile;

/// Bytes that accompany a message. Shared, so that a result for all ranks exists once.
pub(crate) type Payload = Arc<[u8]>;

/// Who a rank is, known to every rank of the world.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PeerInfo {
    /// Name of its host, for people.
    pub host: String,
    /// Identity of its host: equal if and only if node-local.
    pub node: String,
    /// Its process.
    pub pid: u32,
}

/// The first message of a rank to rank 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub rank: u32,
    pub size: u32,
    pub job: String,
    pub build: String,
    pub peer: PeerInfo,
}

/// A message of the control plane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// To rank 0, first.
    Hello(Hello),
    /// From rank 0 when all are there: who they are, and how often to give signs of life.
    Welcome {
        peers: Arc<[PeerInfo]>,
        heartbeat_ms: u64,
        silence_ms: u64,
        /// The timeline that all ranks keep.
        trace: Option<TraceFile>,
    },
    /// From rank 0 until then, in the place of `Alive`: (some of) the ranks that are missing.
    Waiting { missing: Vec<u32> },
    /// To rank 0: this rank enters a collective of a group; the payload is its contribution. With the first one of a team comes who
    /// is in it: its members have made it by themselves.
    Enter {
        group: u64,
        turn: u64,
        call: Call,
        timeout_ms: u64,
        what: String,
        team: Option<Arc<[u32]>>,
    },
    /// From rank 0: the collective is complete; the payload is this rank's result.
    Reply { group: u64, turn: u64, outcome: Outcome },
    /// To rank 0: this rank has dropped its communicator of a group.
    Release { group: u64 },
    /// To rank 0: this rank goes away without `finish`.
    Leave { how: Loss },
    /// To rank 0: this rank aborts the world, or saw a failure that ends it.
    Fail { cause: Cause },
    /// From rank 0: the world is over.
    Ended { cause: Cause },
    /// To rank 0: what time is it there? Asked at `asked` by the clock here.
    AskTime { asked: u64 },
    /// From rank 0: the answer.
    Time { asked: u64, root: u64 },
    /// To rank 0: the payload is for this rank. From rank 0: it is from this one.
    Letter { rank: u32 },
    /// A sign of life.
    Alive,
    /// To rank 0, from the launcher and instead of a `Hello`: this rank has ended and will not come.
    Gone { rank: u32, host: String, how: String },
}

/// How a collective came out for one rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// The result is the payload.
    Done,
    /// A split put this rank into a new group: ranks of the world in the order of the group.
    Group { id: u64, members: Arc<[u32]> },
    /// A split put this rank into no group.
    NoGroup,
    /// The ranks' calls do not fit together: one sentence.
    Mismatch(String),
}
