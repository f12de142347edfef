//! What two software NICs say to each other: frames of a 48-byte header and at most [`MAX_PAYLOAD`] bytes, the same
//! over shared memory, TCP and RDMA.
//!
//! The header is little-endian. Reading one is a pure function that takes any 48 bytes and either returns a frame or
//! says what is wrong with it. Requests carry sequence numbers that count messages, not packets: the wires lose
//! nothing and reorder nothing, so the only repetition is that after "receiver not ready".

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned, transmute};

use crate::nic::soft::keys::Atomic;
use crate::wqe::{RemoteAddress, Syndrome};

/// Bytes of a header.
pub(crate) const HEADER: usize = 48;
/// Most bytes of payload in one frame.
pub(crate) const MAX_PAYLOAD: usize = 1024 * 1024;
/// Version of this format; the two sides of a connection must agree.
pub(crate) const VERSION: u32 = 4;
/// Longest message, as on hardware.
pub(crate) const MAX_MESSAGE: u64 = 1 << 31;

/// A frame without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frame {
    /// First on a new connection between hosts, from both sides: which queue pair it is for, and the secrets of both.
    Hello { version: u32, qpn: u32, to: u64, from: u64 },
    /// A datagram between RDMA devices before there is a connection: the same, the number and the first sequence number of
    /// this side's queue pair of the device, and whether that has been connected to the peer's.
    Knock { version: u32, qpn: u32, to: u64, from: u64, number: u32, first: u32, ready: bool },
    /// I am alive.
    Ping,
    /// I will send nothing more.
    Bye,
    /// A send; its payload begins here and goes on in `More`.
    Send { psn: u32, length: u32, imm: Option<u32>, solicited: bool },
    /// A write; its payload begins here and goes on in `More`.
    Write { psn: u32, length: u32, imm: Option<u32>, solicited: bool, to: RemoteAddress },
    /// A read.
    Read { psn: u32, length: u32, from: RemoteAddress },
    /// An atomic operation on a 64-bit word.
    Atomic { psn: u32, at: RemoteAddress, operation: Atomic },
    /// The next bytes of a send or write.
    More { psn: u32 },
    /// Sends and writes up to this one are done.
    Ack { psn: u32 },
    /// The next bytes of the answer to a read.
    ReadData { psn: u32 },
    /// The answer to an atomic operation: what the word held.
    AtomicResult { psn: u32, value: u64 },
    /// A request was refused; those before it are done.
    Nak { psn: u32, syndrome: Syndrome },
    /// No receive is posted for this request; those before it are done. It and all after it are to be sent again.
    NotReady { psn: u32 },
    /// Where is the memory of this key, that I may map it?
    Resolve { key: u32 },
    /// Here: the payload is its handle.
    Resolved { key: u32, address: u64, access: u8 },
    /// The key is taken back: unmap, and say so.
    Revoke { key: u32 },
    /// Done.
    Revoked { key: u32 },
}

/// 48 bytes that are no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("no frame is of kind {0}")]
    Kind(u8),
    #[error("a frame of kind {kind} with flags {flags:#04x}")]
    Flags { kind: u8, flags: u8 },
    #[error("a frame of kind {kind} with {payload} bytes of payload, at most {max}")]
    Payload { kind: u8, payload: u32, max: usize },
    #[error("a message of {0} bytes is longer than 2^31")]
    Length(u32),
    #[error("a reserved field is {0:#x}")]
    Reserved(u16),
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    kind: u8,
    flags: u8,
    reserved: U16,
    psn: U32,
    payload: U32,
    key: U32,
    address: U64,
    length: U32,
    imm: U32,
    first: U64,
    second: U64,
}

const SOLICITED: u8 = 1;
const IMM: u8 = 2;
const COMPARE: u8 = 4;
const READY: u8 = 8;

const HELLO: u8 = 1;
const PING: u8 = 2;
const BYE: u8 = 3;
const KNOCK: u8 = 4;
const SEND: u8 = 16;
const WRITE: u8 = 17;
const READ: u8 = 18;
const ATOMIC: u8 = 19;
const MORE: u8 = 20;
const ACK: u8 = 32;
const READ_DATA: u8 = 33;
const ATOMIC_RESULT: u8 = 34;
const NAK: u8 = 35;
const NOT_READY: u8 = 36;
const RESOLVE: u8 = 48;
const RESOLVED: u8 = 49;
const REVOKE: u8 = 50;
const REVOKED: u8 = 51;

impl Frame {
    /// Whether whose memory the payload is leaves it as it is until the peer has answered: it is of a send or a write, which are
    /// complete only then.
    pub const fn is_answered(&self) -> bool {
        matches!(self, Frame::Send { .. } | Frame::Write { .. } | Frame::More { .. })
    }

    /// The header of this frame with `payload` bytes after it.
    pub fn encode(&self, payload: u32) -> [u8; HEADER] {
        let mut raw = Raw::new_zeroed();
        raw.payload = payload.into();
        let mut message = |kind, psn: u32, length: u32, imm: Option<u32>, solicited| {
            raw.kind = kind;
            raw.psn = psn.into();
            raw.length = length.into();
            raw.imm = imm.unwrap_or(0).into();
            raw.flags = (if imm.is_some() { IMM } else { 0 }) | (u8::from(solicited) * SOLICITED);
        };
        let mut at = None;
        match *self {
            Frame::Hello { version, qpn, to, from } => {
                message(HELLO, version, 0, None, false);
                (raw.key, raw.first, raw.second) = (qpn.into(), to.into(), from.into());
            }
            Frame::Knock { version, qpn, to, from, number, first, ready } => {
                message(KNOCK, version, 0, None, false);
                (raw.key, raw.first, raw.second) = (qpn.into(), to.into(), from.into());
                (raw.address, raw.imm) = (u64::from(number).into(), first.into());
                raw.flags = u8::from(ready) * READY;
            }
            Frame::Ping => message(PING, 0, 0, None, false),
            Frame::Bye => message(BYE, 0, 0, None, false),
            Frame::Send { psn, length, imm, solicited } => {
                message(SEND, psn, length, imm, solicited);
            }
            Frame::Write { psn, length, imm, solicited, to } => {
                message(WRITE, psn, length, imm, solicited);
                at = Some(to);
            }
            Frame::Read { psn, length, from } => {
                message(READ, psn, length, None, false);
                at = Some(from);
            }
            Frame::Atomic { psn, at: word, operation } => {
                message(ATOMIC, psn, 8, None, false);
                at = Some(word);
                match operation {
                    Atomic::FetchAdd(add) => raw.first = add.into(),
                    Atomic::CompareSwap { compare, swap } => {
                        raw.flags = COMPARE;
                        (raw.first, raw.second) = (swap.into(), compare.into());
                    }
                }
            }
            Frame::More { psn } => message(MORE, psn, 0, None, false),
            Frame::Ack { psn } => message(ACK, psn, 0, None, false),
            Frame::ReadData { psn } => message(READ_DATA, psn, 0, None, false),
            Frame::AtomicResult { psn, value } => {
                message(ATOMIC_RESULT, psn, 0, None, false);
                raw.first = value.into();
            }
            Frame::Nak { psn, syndrome } => {
                message(NAK, psn, 0, None, false);
                raw.key = u32::from(u8::from(syndrome)).into();
            }
            Frame::NotReady { psn } => message(NOT_READY, psn, 0, None, false),
            Frame::Resolve { key } => {
                message(RESOLVE, 0, 0, None, false);
                raw.key = key.into();
            }
            Frame::Resolved { key, address, access } => {
                message(RESOLVED, 0, 0, None, false);
                (raw.key, raw.address) = (key.into(), address.into());
                raw.first = u64::from(access).into();
            }
            Frame::Revoke { key } => {
                message(REVOKE, 0, 0, None, false);
                raw.key = key.into();
            }
            Frame::Revoked { key } => {
                message(REVOKED, 0, 0, None, false);
                raw.key = key.into();
            }
        }
        if let Some(RemoteAddress { address, rkey }) = at {
            (raw.key, raw.address) = (rkey.into(), address.into());
        }
        transmute!(raw)
    }

    /// The first frame of these bytes and where it ends, if all of it is there; its payload begins after the header.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn first(bytes: &[u8]) -> Result<Option<(Frame, usize)>, FrameError> {
        let Some(header) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
        let (frame, payload) = Frame::decode(*header)?;
        let end = HEADER + payload as usize;
        Ok((end <= bytes.len()).then_some((frame, end)))
    }

    /// As what more of its payload is taken, where that may come in parts.
    pub fn more(&self) -> Option<Frame> {
        match *self {
            Frame::Send { psn, .. } | Frame::Write { psn, .. } | Frame::More { psn } => {
                Some(Frame::More { psn })
            }
            Frame::ReadData { .. } => Some(*self),
            _ => None,
        }
    }

    /// The frame that begins with these bytes, and how many bytes of payload follow.
    ///
    /// # Errors
    /// If they are no header that `encode` writes. Fields that a kind does not use are ignored.
    pub fn decode(bytes: [u8; HEADER]) -> Result<(Frame, u32), FrameError> {
        let raw: Raw = transmute!(bytes);
        let (kind, flags, psn, payload) = (raw.kind, raw.flags, raw.psn.get(), raw.payload.get());
        let at = RemoteAddress { address: raw.address.get(), rkey: raw.key.get() };
        let key = raw.key.get();
        let imm = (flags & IMM != 0).then_some(raw.imm.get());
        let solicited = flags & SOLICITED != 0;
        let length = raw.length.get();
        let (first, second) = (raw.first.get(), raw.second.get());
        let (frame, known_flags, max) = match kind {
            HELLO => (Frame::Hello { version: psn, qpn: key, to: first, from: second }, 0, 0),
            KNOCK => {
                let (number, ready) = (at.address as u32, flags & READY != 0);
                let (version, qpn, to, from) = (psn, key, first, second);
                let first = raw.imm.get();
                (Frame::Knock { version, qpn, to, from, number, first, ready }, READY, 0)
            }
            PING => (Frame::Ping, 0, 0),
            BYE => (Frame::Bye, 0, 0),
            SEND => (Frame::Send { psn, length, imm, solicited }, IMM | SOLICITED, length as usize),
            WRITE => (
                Frame::Write { psn, length, imm, solicited, to: at },
                IMM | SOLICITED,
                length as usize,
            ),
            READ => (Frame::Read { psn, length, from: at }, 0, 0),
            ATOMIC => {
                let operation = if flags & COMPARE != 0 {
                    Atomic::CompareSwap { compare: second, swap: first }
                } else {
                    Atomic::FetchAdd(first)
                };
                (Frame::Atomic { psn, at, operation }, COMPARE, 0)
            }
            MORE => (Frame::More { psn }, 0, MAX_PAYLOAD),
            ACK => (Frame::Ack { psn }, 0, 0),
            READ_DATA => (Frame::ReadData { psn }, 0, MAX_PAYLOAD),
            ATOMIC_RESULT => (Frame::AtomicResult { psn, value: first }, 0, 0),
            NAK => (Frame::Nak { psn, syndrome: Syndrome::from(key as u8) }, 0, 0),
            NOT_READY => (Frame::NotReady { psn }, 0, 0),
            RESOLVE => (Frame::Resolve { key }, 0, 0),
            RESOLVED => {
                (Frame::Resolved { key, address: at.address, access: first as u8 }, 0, 4096)
            }
            REVOKE => (Frame::Revoke { key }, 0, 0),
            REVOKED => (Frame::Revoked { key }, 0, 0),
            kind => return Err(FrameError::Kind(kind)),
        };
        if flags & !known_flags != 0 {
            return Err(FrameError::Flags { kind, flags });
        }
        if u64::from(length) > MAX_MESSAGE {
            return Err(FrameError::Length(length));
        }
        let max = max.min(MAX_PAYLOAD);
        if payload as usize > max {
            return Err(FrameError::Payload { kind, payload, max });
        }
        match raw.reserved.get() {
            0 => Ok((frame, payload)),
            value => Err(FrameError::Reserved(value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn remote() -> impl Strategy<Value = RemoteAddress> {
        (any::<u64>(), any::<u32>()).prop_map(|(address, rkey)| RemoteAddress { address, rkey })
    }

    fn frame() -> impl Strategy<Value = Frame> {
        let length = 0..=MAX_MESSAGE as u32;
        let head = (any::<u32>(), length, any::<Option<u32>>(), any::<bool>());
        prop_oneof![
            any::<(u32, u32, u64, u64)>().prop_map(|(version, qpn, to, from)| Frame::Hello {
                version,
                qpn,
                to,
                from
            }),
            (any::<(u32, u32, u64, u64)>(), any::<(u32, u32, bool)>()).prop_map(
                |((version, qpn, to, from), (number, first, ready))| Frame::Knock {
                    version,
                    qpn,
                    to,
                    from,
                    number,
                    first,
                    ready
                }
            ),
            Just(Frame::Ping),
            Just(Frame::Bye),
            head.clone().prop_map(|(psn, length, imm, solicited)| Frame::Send {
                psn,
                length,
                imm,
                solicited
            }),
            (head.clone(), remote()).prop_map(|((psn, length, imm, solicited), to)| {
                Frame::Write { psn, length, imm, solicited, to }
            }),
            (head, remote()).prop_map(|((psn, length, ..), from)| Frame::Read {
                psn,
                length,
                from
            }),
            (any::<(u32, u64)>(), remote()).prop_map(|((psn, add), at)| Frame::Atomic {
                psn,
                at,
                operation: Atomic::FetchAdd(add)
            }),
            (any::<(u32, u64, u64)>(), remote()).prop_map(|((psn, compare, swap), at)| {
                Frame::Atomic { psn, at, operation: Atomic::CompareSwap { compare, swap } }
            }),
            any::<u32>().prop_map(|psn| Frame::More { psn }),
            any::<u32>().prop_map(|psn| Frame::Ack { psn }),
            any::<u32>().prop_map(|psn| Frame::ReadData { psn }),
            any::<(u32, u64)>().prop_map(|(psn, value)| Frame::AtomicResult { psn, value }),
            any::<(u32, u8)>().prop_map(|(psn, n)| Frame::Nak { psn, syndrome: n.into() }),
            any::<u32>().prop_map(|psn| Frame::NotReady { psn }),
            any::<u32>().prop_map(|key| Frame::Resolve { key }),
            any::<(u32, u64, u8)>().prop_map(|(key, address, access)| Frame::Resolved {
                key,
                address,
                access
            }),
            any::<u32>().prop_map(|key| Frame::Revoke { key }),
            any::<u32>().prop_map(|key| Frame::Revoked { key }),
        ]
    }

    proptest! {
        #[test]
        fn a_frame_comes_back_as_it_was_sent(frame in frame()) {
            prop_assert_eq!(Frame::decode(frame.encode(0)), Ok((frame, 0)));
        }

        #[test]
        fn any_bytes_are_a_frame_or_an_error(bytes: [u8; HEADER], kind in 0u8..64) {
            let mut bytes = bytes;
            bytes[0] = kind;
            if let Ok((frame, payload)) = Frame::decode(bytes) {
                prop_assert!(payload as usize <= MAX_PAYLOAD);
                // What was accepted means the same when it is written again.
                prop_assert_eq!(Frame::decode(frame.encode(payload)), Ok((frame, payload)));
            }
        }
    }

    #[test]
    fn a_payload_longer_than_its_message_is_refused() {
        let send = Frame::Send { psn: 1, length: 5, imm: None, solicited: false };
        assert_eq!(Frame::decode(send.encode(5)), Ok((send, 5)));
        let error = FrameError::Payload { kind: SEND, payload: 6, max: 5 };
        assert_eq!(Frame::decode(send.encode(6)), Err(error));
        let error = FrameError::Payload { kind: ACK, payload: 1, max: 0 };
        assert_eq!(Frame::decode(Frame::Ack { psn: 1 }.encode(1)), Err(error));
        let more = Frame::More { psn: 1 }.encode(MAX_PAYLOAD as u32 + 1);
        assert!(Frame::decode(more).is_err());
    }
}
