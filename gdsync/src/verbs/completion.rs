//! What became of a request.

use super::in_flight::{Kind, Pending};
use gdsync_sys::verbs::{
    IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_SUCCESS, IBV_WC_WITH_IMM, ibv_wc, ibv_wc_status,
};
use std::fmt;

/// The end of one request.
///
/// See [`verbs`](super) for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// The queue pair it was posted to.
    pub qp_num: u32,
    /// What the poster called it.
    pub id: u64,
    /// How it ended.
    pub outcome: Result<Done, Failure>,
}

/// A request that succeeded.
///
/// ```
/// use gdsync::verbs::{Completion, Done, Failure, QueueSide, Status};
///
/// fn report(completion: &Completion) {
///     match completion.outcome {
///         Ok(Done::Received { length, .. }) => println!("{length} bytes came"),
///         Ok(_) => println!("request {} is done", completion.id),
///         Err(Failure { side: QueueSide::Send, status: Status::RetryExceeded, .. }) => println!("the peer is silent"),
///         Err(failure) => println!("{failure}"),
///     }
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Done {
    /// The message is in a receive of the peer.
    Sent,
    /// The data are in the peer's memory.
    Written,
    /// The peer's data are here.
    Read,
    /// The addition is done and the old value here.
    FetchedAndAdded,
    /// The comparison is done and the old value here.
    ComparedAndSwapped,
    /// A message arrived.
    Received {
        /// Its bytes.
        length: u32,
        /// Its immediate, if it had one.
        imm: Option<u32>,
    },
    /// A write with immediate arrived; it used up the receive but not its memory.
    ReceivedWrite {
        /// Bytes written.
        length: u32,
        /// Its immediate.
        imm: u32,
    },
}

/// A request that failed. The queue pair is in the error state and executes nothing any more.
///
/// See [`Done`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// Which queue it was in.
    pub side: QueueSide,
    /// Why.
    pub status: Status,
    /// The device's own number for it.
    pub vendor: u32,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            QueueSide::Send => "send",
            QueueSide::Receive => "receive",
        };
        write!(f, "a {side} request failed: {} (vendor {:#x})", self.status, self.vendor)
    }
}

impl std::error::Error for Failure {}

/// One of the two queues of a queue pair.
///
/// See [`Done`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QueueSide {
    /// Requests.
    Send,
    /// Receives.
    Receive,
}

macro_rules! statuses {
    ($($(#[$doc:meta])* $variant:ident = $constant:ident as $words:literal,)*) => {
        /// Why a request failed (`enum ibv_wc_status`). `Display` says it in words.
        ///
        /// See [`Done`] for an example.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Status {
            $($(#[$doc])* $variant,)*
            /// A number that the header does not list.
            Other(u32),
        }

        impl From<ibv_wc_status> for Status {
            fn from(status: ibv_wc_status) -> Self {
                match status {
                    $(gdsync_sys::verbs::$constant => Self::$variant,)*
                    other => Self::Other(other),
                }
            }
        }

        impl fmt::Display for Status {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant => f.write_str($words),)*
                    Self::Other(number) => write!(f, "unlisted status {number}"),
                }
            }
        }
    };
}

statuses! {
    /// The message does not fit the receive, or the transport.
    LocalLength = IBV_WC_LOC_LEN_ERR as "local length error",
    /// The request is malformed or not one for this queue pair.
    LocalQpOperation = IBV_WC_LOC_QP_OP_ERR as "local queue pair operation error",
    /// Of an end-to-end context (not for RC).
    LocalEecOperation = IBV_WC_LOC_EEC_OP_ERR as "local end-to-end context operation error",
    /// A local key does not cover the memory.
    LocalProtection = IBV_WC_LOC_PROT_ERR as "local protection error",
    /// The queue pair failed before this request was executed.
    Flushed = IBV_WC_WR_FLUSH_ERR as "work request flushed",
    /// A memory window could not be bound.
    MemoryWindowBind = IBV_WC_MW_BIND_ERR as "memory window bind error",
    /// The peer answered something unexpected.
    BadResponse = IBV_WC_BAD_RESP_ERR as "bad response",
    /// A protection error while a peer's write was received.
    LocalAccess = IBV_WC_LOC_ACCESS_ERR as "local access error",
    /// The peer rejects the request, for example because its receive is too short.
    RemoteInvalidRequest = IBV_WC_REM_INV_REQ_ERR as "remote invalid request",
    /// The remote key does not cover the memory.
    RemoteAccess = IBV_WC_REM_ACCESS_ERR as "remote access error",
    /// The peer could not complete the request.
    RemoteOperation = IBV_WC_REM_OP_ERR as "remote operation error",
    /// The peer did not answer.
    RetryExceeded = IBV_WC_RETRY_EXC_ERR as "transport retry exceeded",
    /// The peer had no receive posted.
    ReceiverNotReadyRetryExceeded = IBV_WC_RNR_RETRY_EXC_ERR as "receiver not ready, retry exceeded",
    /// Of reliable datagrams (not for RC).
    LocalRdDomain = IBV_WC_LOC_RDD_VIOL_ERR as "local reliable-datagram domain violation",
    /// Of reliable datagrams (not for RC).
    RemoteInvalidRdRequest = IBV_WC_REM_INV_RD_REQ_ERR as "remote invalid reliable-datagram request",
    /// The peer aborted.
    RemoteAborted = IBV_WC_REM_ABORT_ERR as "remote aborted",
    /// Of an end-to-end context (not for RC).
    InvalidEecNumber = IBV_WC_INV_EECN_ERR as "invalid end-to-end context number",
    /// Of an end-to-end context (not for RC).
    InvalidEecState = IBV_WC_INV_EEC_STATE_ERR as "invalid end-to-end context state",
    /// The device failed.
    Fatal = IBV_WC_FATAL_ERR as "fatal error",
    /// The peer did not answer in time.
    ResponseTimeout = IBV_WC_RESP_TIMEOUT_ERR as "response timeout",
    /// Something else.
    General = IBV_WC_GENERAL_ERR as "general error",
    /// Of tag matching.
    TagMatching = IBV_WC_TM_ERR as "tag matching error",
    /// Of tag matching.
    TagMatchingRendezvous = IBV_WC_TM_RNDV_INCOMPLETE as "tag matching rendezvous incomplete",
}

impl Completion {
    /// Whether it is of a receive, and not of a request.
    #[must_use]
    pub fn is_receive(&self) -> bool {
        match &self.outcome {
            Ok(done) => matches!(done, Done::Received { .. } | Done::ReceivedWrite { .. }),
            Err(failure) => failure.side == QueueSide::Receive,
        }
    }

    /// What `wc` says about the request it belongs to.
    pub(super) fn new(wc: &ibv_wc, request: &Pending) -> Self {
        let outcome = if wc.status == IBV_WC_SUCCESS {
            Ok(done(wc, request.kind))
        } else {
            let side = match request.kind {
                Kind::Receive => QueueSide::Receive,
                _ => QueueSide::Send,
            };
            Err(Failure { side, status: Status::from(wc.status), vendor: wc.vendor_err })
        };
        Self { qp_num: wc.qp_num, id: request.id, outcome }
    }
}

fn done(wc: &ibv_wc, kind: Kind) -> Done {
    match kind {
        Kind::Send => Done::Sent,
        Kind::Write => Done::Written,
        Kind::Read => Done::Read,
        Kind::FetchAdd => Done::FetchedAndAdded,
        Kind::CompareSwap => Done::ComparedAndSwapped,
        Kind::Receive => {
            // SAFETY: both parts of the union are 32-bit integers.
            let imm = u32::from_be(unsafe { wc.__bindgen_anon_1.imm_data });
            let length = wc.byte_len;
            if wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM {
                return Done::ReceivedWrite { length, imm };
            }
            Done::Received { length, imm: (wc.wc_flags & IBV_WC_WITH_IMM != 0).then_some(imm) }
        }
    }
}
