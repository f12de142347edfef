//! One completion: 64 bytes that a NIC writes and a waiter reads.
//!
//! The NIC stores the last eight bytes last, in one store: they hold the owner bit, the opcode, the index and
//! the queue pair, so whoever sees them set sees the rest after an acquiring load.

use super::{CqeOpcode, MAX_QPN, Syndrome, UnknownOpcode, WqeOpcode};
use std::fmt;
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute, transmute_ref};

/// The 64 bytes of a completion (`mlx5_cqe64`). The first 32 hold packet headers, which RC queues have not.
///
/// ```
/// use gdsync::wqe::{Completion, CompletionKind, Cqe, ErrorSide, Syndrome, owned_by_software};
/// use zerocopy::IntoBytes;
///
/// // What a NIC writes when a request fails whose peer does not answer, on the first pass over a ring of 16.
/// let kind = CompletionKind::Error {
///     side: ErrorSide::Requester,
///     syndrome: Syndrome::TransportRetryExceeded,
///     vendor: 0,
///     opcode: 0x08,
/// };
/// let written = Cqe::encode(&Completion { qpn: 0x77, index: 5, user_index: 0, kind }, false)?;
/// // What a reader makes of it: the last byte says that it is there.
/// assert!(owned_by_software(written.as_bytes()[63], 0, 16));
/// let read = written.decode()?;
/// assert_eq!((read.qpn, read.index, read.kind), (0x77, 5, kind));
/// # Ok::<(), gdsync::wqe::CompletionError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Cqe {
    unused: [u8; 32],
    srqn_uidx: U32,
    imm_inval_pkey: U32,
    application: [u8; 4],
    byte_cnt: U32,
    timestamp: U64,
    sop_drop_qpn: U32,
    wqe_counter: U16,
    signature: u8,
    op_own: u8,
}

/// The same bytes when the opcode says that something failed (`mlx5_err_cqe`).
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ErrorCqe {
    unused: [u8; 32],
    srqn: U32,
    reserved: [u8; 18],
    vendor_err_synd: u8,
    syndrome: u8,
    s_wqe_opcode_qpn: U32,
    wqe_counter: U16,
    signature: u8,
    op_own: u8,
}

/// A completion, read.
///
/// See [`Cqe`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Queue pair (24 bits).
    pub qpn: u32,
    /// Index of the entry that completed: its first basic block in a send queue, its number in a receive
    /// queue. Entries before it that were not to be signaled are complete, too.
    pub index: u16,
    /// What the queue pair was created with to find it again (24 bits).
    pub user_index: u32,
    /// What happened.
    pub kind: CompletionKind,
}

/// What a completion reports.
///
/// See [`Cqe`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompletionKind {
    /// A request of the send queue is done.
    Request {
        /// Opcode of the entry.
        opcode: WqeOpcode,
        /// Bytes that a read brought; 8 for an atomic.
        byte_count: u32,
    },
    /// A receive is filled.
    Receive {
        /// By what.
        by: Received,
        /// Bytes that came.
        byte_count: u32,
        /// Whether the sender asked for an event.
        solicited: bool,
    },
    /// A request or a receive failed, and the queue pair with it.
    Error {
        /// Which of the two.
        side: ErrorSide,
        /// Why.
        syndrome: Syndrome,
        /// The vendor's own number for it; 0x93 is a page fault of on-demand paging.
        vendor: u8,
        /// Opcode field of the failed entry.
        opcode: u8,
    },
}

/// What filled a receive.
///
/// See [`Cqe`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// A send.
    Send,
    /// A send with this immediate.
    SendImm(u32),
    /// A send that invalidated this key.
    SendInvalidate(u32),
    /// An RDMA write with this immediate; the data are where the writer put them.
    WriteImm(u32),
}

/// Which queue an error belongs to.
///
/// See [`Cqe`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorSide {
    /// The send queue (REQ_ERR).
    Requester,
    /// The receive queue (RESP_ERR).
    Responder,
}

/// Bytes that are no completion of ours.
///
/// See [`Cqe`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompletionError {
    /// Nothing has been written to the slot yet.
    #[error("the slot holds no completion")]
    Invalid,
    /// An opcode that does not exist, of the completion or of the entry in it.
    #[error(transparent)]
    Opcode(#[from] UnknownOpcode),
    /// A completion that RC queues without signatures and resizing do not write.
    #[error("a completion {opcode}, which these queues do not write")]
    Unexpected {
        /// Its opcode.
        opcode: CqeOpcode,
    },
    /// The format bits say that the data are in the completion, or that it stands for several.
    #[error(
        "a completion of format {format}: scatter-to-CQE and compression must be off (1, 2: data inside; 3: compressed)"
    )]
    Format {
        /// The format bits.
        format: u8,
    },
    /// A queue pair number or user index of more than 24 bits.
    #[error("{what} {value:#x} has more than 24 bits")]
    TooLarge {
        /// Which field.
        what: &'static str,
        /// What it holds.
        value: u32,
    },
}

impl Cqe {
    /// A slot that has never held a completion: opcode 15, which no owner bit makes valid.
    pub const EMPTY: Self = {
        let mut bytes = [0u8; 64];
        // An empty collapsed queue must read as "nothing completed": the block before block 0.
        (bytes[60], bytes[61], bytes[63]) = (0xff, 0xff, 0xf0);
        transmute!(bytes)
    };

    /// The owner bit.
    #[must_use]
    pub const fn owner(&self) -> bool {
        self.op_own & 1 != 0
    }

    /// Index of the entry, whatever else the completion says.
    #[must_use]
    pub const fn index(&self) -> u16 {
        self.wqe_counter.get()
    }

    /// The opcode, if it is one.
    ///
    /// # Errors
    /// If the number is no opcode of a completion.
    pub fn opcode(&self) -> Result<CqeOpcode, UnknownOpcode> {
        CqeOpcode::try_from(self.op_own >> 4)
    }

    /// The bytes of `completion`, with this owner bit.
    ///
    /// # Errors
    /// If the queue pair number or the user index has more than 24 bits.
    pub fn encode(completion: &Completion, owner: bool) -> Result<Self, CompletionError> {
        let Completion { qpn, index, user_index, kind } = *completion;
        for (what, value) in [("queue pair number", qpn), ("user index", user_index)] {
            if value > MAX_QPN {
                return Err(CompletionError::TooLarge { what, value });
            }
        }
        let op_own = |opcode: CqeOpcode, solicited| {
            (opcode as u8) << 4 | u8::from(solicited) << 1 | u8::from(owner)
        };
        let (op_own, imm, byte_cnt, entry_opcode) = match kind {
            CompletionKind::Request { opcode, byte_count } => {
                (op_own(CqeOpcode::Request, false), 0, byte_count, opcode as u8)
            }
            CompletionKind::Receive { by, byte_count, solicited } => {
                let (opcode, imm) = match by {
                    Received::Send => (CqeOpcode::ReceivedSend, 0),
                    Received::SendImm(imm) => (CqeOpcode::ReceivedSendImm, imm),
                    Received::SendInvalidate(key) => (CqeOpcode::ReceivedSendInvalidate, key),
                    Received::WriteImm(imm) => (CqeOpcode::ReceivedWriteImm, imm),
                };
                (op_own(opcode, solicited), imm, byte_count, 0)
            }
            CompletionKind::Error { side, syndrome, vendor, opcode } => {
                let cqe = ErrorCqe {
                    unused: [0; 32],
                    srqn: user_index.into(),
                    reserved: [0; 18],
                    vendor_err_synd: vendor,
                    syndrome: syndrome.into(),
                    s_wqe_opcode_qpn: (u32::from(opcode) << 24 | qpn).into(),
                    wqe_counter: index.into(),
                    signature: 0,
                    op_own: match side {
                        ErrorSide::Requester => op_own(CqeOpcode::RequestError, false),
                        ErrorSide::Responder => op_own(CqeOpcode::ReceiveError, false),
                    },
                };
                return Ok(transmute!(cqe));
            }
        };
        Ok(Self {
            unused: [0; 32],
            srqn_uidx: user_index.into(),
            imm_inval_pkey: imm.into(),
            application: [0; 4],
            byte_cnt: byte_cnt.into(),
            timestamp: 0.into(),
            sop_drop_qpn: (u32::from(entry_opcode) << 24 | qpn).into(),
            wqe_counter: index.into(),
            signature: 0,
            op_own,
        })
    }

    /// What the completion says. Whether it is a new one is for the owner bit or the index to tell.
    ///
    /// # Errors
    /// If it is none that an RC queue pair of ours can get.
    pub fn decode(&self) -> Result<Completion, CompletionError> {
        let opcode = self.opcode()?;
        let qpn = self.sop_drop_qpn.get() & MAX_QPN;
        let entry_opcode = (self.sop_drop_qpn.get() >> 24) as u8;
        let received = |by| CompletionKind::Receive {
            by,
            byte_count: self.byte_cnt.get(),
            solicited: self.op_own & 2 != 0,
        };
        let error = |side| {
            let cqe: &ErrorCqe = transmute_ref!(self);
            let (syndrome, vendor) = (cqe.syndrome.into(), cqe.vendor_err_synd);
            CompletionKind::Error { side, syndrome, vendor, opcode: entry_opcode }
        };
        let imm = self.imm_inval_pkey.get();
        let kind = match opcode {
            CqeOpcode::Invalid => return Err(CompletionError::Invalid),
            CqeOpcode::RequestError => error(ErrorSide::Requester),
            CqeOpcode::ReceiveError => error(ErrorSide::Responder),
            _ if self.op_own >> 2 & 3 != 0 => {
                return Err(CompletionError::Format { format: self.op_own >> 2 & 3 });
            }
            CqeOpcode::Request => CompletionKind::Request {
                opcode: WqeOpcode::try_from(entry_opcode)?,
                byte_count: self.byte_cnt.get(),
            },
            CqeOpcode::ReceivedSend => received(Received::Send),
            CqeOpcode::ReceivedSendImm => received(Received::SendImm(imm)),
            CqeOpcode::ReceivedSendInvalidate => received(Received::SendInvalidate(imm)),
            CqeOpcode::ReceivedWriteImm => received(Received::WriteImm(imm)),
            CqeOpcode::Resize | CqeOpcode::NoPacket | CqeOpcode::SignatureError => {
                return Err(CompletionError::Unexpected { opcode });
            }
        };
        let user_index = self.srqn_uidx.get() & MAX_QPN;
        Ok(Completion { qpn, index: self.index(), user_index, kind })
    }
}

impl fmt::Debug for Cqe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cqe({:02x?})", self.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receive_has_its_fields_where_the_header_puts_them() {
        let cqe = Cqe::encode(
            &Completion {
                qpn: 0x01_0203,
                index: 0x1112,
                user_index: 0x21_2223,
                kind: CompletionKind::Receive {
                    by: Received::SendImm(0x3132_3334),
                    byte_count: 0x4142_4344,
                    solicited: true,
                },
            },
            true,
        )
        .unwrap();
        let mut expected = [0; 64];
        expected[32..40].copy_from_slice(&[0, 0x21, 0x22, 0x23, 0x31, 0x32, 0x33, 0x34]);
        expected[44..48].copy_from_slice(&[0x41, 0x42, 0x43, 0x44]);
        expected[56..].copy_from_slice(&[0, 1, 2, 3, 0x11, 0x12, 0, 0x33]);
        assert_eq!(cqe.as_bytes(), expected);
    }

    #[test]
    fn an_error_has_its_syndromes_at_54_and_55() {
        let mut bytes = [0; 64];
        (bytes[54], bytes[55], bytes[63]) = (0x93, 0x13, 0xd1);
        bytes[56..62].copy_from_slice(&[0x08, 0, 0, 7, 1, 2]);
        let cqe = Cqe::read_from_bytes(&bytes[..]).unwrap();
        let completion = cqe.decode().unwrap();
        let kind = CompletionKind::Error {
            side: ErrorSide::Requester,
            syndrome: Syndrome::RemoteAccess,
            vendor: 0x93,
            opcode: 8,
        };
        assert_eq!(completion, Completion { qpn: 7, index: 0x0102, user_index: 0, kind });
        assert_eq!(Cqe::encode(&completion, true), Ok(cqe));
    }

    #[test]
    fn what_is_no_completion_of_ours_is_refused() {
        let with = |op_own| Cqe { op_own, ..Cqe::EMPTY }.decode();
        assert_eq!(Cqe::EMPTY.decode(), Err(CompletionError::Invalid));
        assert_eq!(with(0xff), Err(CompletionError::Invalid));
        assert_eq!(with(0x24), Err(CompletionError::Format { format: 1 }));
        assert_eq!(with(0x0c), Err(CompletionError::Format { format: 3 }));
        assert_eq!(with(0x50), Err(CompletionError::Unexpected { opcode: CqeOpcode::Resize }));
        assert!(matches!(with(0x70), Err(CompletionError::Opcode(_))));
    }
}
