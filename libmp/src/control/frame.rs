//! The wire format of the control plane: bytes to messages and back, with limits, and no I/O.
//!
//! Each direction of a connection starts with a preamble of 48 bytes whose layout never changes, so that ranks of
//! different protocols can tell each other so:
//! magic `"libmpctl"`, protocol (u32 LE), zero (u32), token (32 bytes, zero from rank 0). Frames follow: length of the rest
//! (u32 LE), the message (postcard), its payload (the remaining bytes).

use std::sync::Arc;

use super::message::{Message, Payload};

const MAGIC: [u8; 8] = *b"libmpctl";
pub(crate) const PREAMBLE: usize = 48;
const LENGTH: usize = 4;

/// Largest frame that a rank accepts from rank 0, and rank 0's largest to send: a gathered result.
pub(crate) const FROM_ROOT: usize = crate::collective::RESULT_MAX + MESSAGE_MAX;
/// Largest frame that rank 0 accepts from a rank that has been let in: one blob.
pub(crate) const TO_ROOT: usize = crate::collective::BLOB_MAX + MESSAGE_MAX;
/// Largest frame that rank 0 accepts from a connection that has not been let in.
pub(crate) const STRANGER: usize = 4096;
/// Room for a message beside its payload; the longest is the welcome with the host of every rank.
const MESSAGE_MAX: usize = 4 << 20;

/// A shared secret; all zero if none was agreed on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token(pub [u8; 32]);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

/// What a connection starts with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Preamble {
    pub protocol: u32,
    pub token: Token,
}

impl Preamble {
    pub(crate) fn encode(&self) -> [u8; PREAMBLE] {
        let mut bytes = [0; PREAMBLE];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.protocol.to_le_bytes());
        bytes[16..].copy_from_slice(&self.token.0);
        bytes
    }

    /// What rank 0 answers: it never shows the token.
    pub(crate) fn without_token(&self) -> Preamble {
        Preamble { token: Token([0; 32]), ..*self }
    }

    fn decode(bytes: &[u8; PREAMBLE]) -> Result<Preamble, FrameError> {
        if bytes[..8] != MAGIC {
            return Err(FrameError::Foreign);
        }
        let mut protocol = [0; 4];
        protocol.copy_from_slice(&bytes[8..12]);
        let mut token = [0; 32];
        token.copy_from_slice(&bytes[16..]);
        Ok(Preamble { protocol: u32::from_le_bytes(protocol), token: Token(token) })
    }
}

/// Bytes that are not ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("it does not speak this protocol")]
    Foreign,
    #[error("a frame of {length} bytes, where 1 to {limit} are allowed")]
    Length { length: usize, limit: usize },
    #[error("a frame that is no message ({0})")]
    Malformed(postcard::Error),
}

/// What a decoder finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    Preamble(Preamble),
    Frame(Message, Payload),
}

/// Length and message of a frame; the payload follows it on the wire. `None` if the frame would exceed `limit`.
pub(crate) fn encode(message: &Message, payload: usize, limit: usize) -> Option<Vec<u8>> {
    // Serialising into a growing vector fails only for types that postcard cannot express; ours can be.
    let mut bytes = postcard::to_extend(message, vec![0; LENGTH]).ok()?;
    let length = bytes.len() - LENGTH + payload;
    if length > limit {
        return None;
    }
    bytes[..LENGTH].copy_from_slice(&u32::try_from(length).ok()?.to_le_bytes());
    Some(bytes)
}

/// Turns a stream of bytes, in pieces of any size, into a preamble and messages. It holds at most one frame within the
/// limit and what arrived with it; memory grows with what has arrived, never with what a length announces.
#[derive(Debug)]
pub(crate) struct Decoder {
    bytes: Vec<u8>,
    start: usize,
    limit: usize,
    preamble: bool,
}

impl Decoder {
    pub(crate) fn new(limit: usize) -> Decoder {
        Decoder { bytes: Vec::new(), start: 0, limit, preamble: false }
    }

    /// Sets the largest frame accepted from now on.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Takes in bytes as they arrived.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.bytes.shrink_to(1 << 16);
            self.start = 0;
        } else if self.start > 1 << 16 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next item, if it is complete. After an error the stream has no meaning any more.
    pub(crate) fn next(&mut self) -> Result<Option<Item>, FrameError> {
        let rest = &self.bytes[self.start..];
        if !self.preamble {
            let Some(preamble) = rest.first_chunk::<PREAMBLE>() else {
                // A stranger is recognised by its first bytes: it may never send 48.
                let known = rest.len().min(MAGIC.len());
                return if rest[..known] == MAGIC[..known] {
                    Ok(None)
                } else {
                    Err(FrameError::Foreign)
                };
            };
            let preamble = Preamble::decode(preamble)?;
            self.start += PREAMBLE;
            self.preamble = true;
            return Ok(Some(Item::Preamble(preamble)));
        }
        let Some(length) = rest.first_chunk::<LENGTH>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length == 0 || length > self.limit {
            return Err(FrameError::Length { length, limit: self.limit });
        }
        let Some(frame) = rest.get(LENGTH..LENGTH + length) else { return Ok(None) };
        let (message, payload) =
            postcard::take_from_bytes::<Message>(frame).map_err(FrameError::Malformed)?;
        let payload = Arc::from(payload);
        self.start += LENGTH + length;
        Ok(Some(Item::Frame(message, payload)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Call;
    use crate::control::cause::{Cause, Loss};
    use crate::control::message::{Hello, Outcome, PeerInfo};
    use proptest::prelude::*;

    fn messages() -> Vec<(Message, Payload)> {
        let peer = PeerInfo { host: "n17".into(), node: "n17/x/y".into(), pid: 4 };
        let hello =
            Hello { rank: 3, size: 4, job: "j".into(), build: "b".into(), peer: peer.clone() };
        let enter = Message::Enter {
            group: 9,
            turn: u64::MAX,
            call: Call::Split { color: Some(1), key: -5 },
            timeout_ms: 7,
            what: "split".into(),
            team: Some(Arc::from([2, 0])),
        };
        let cause =
            Cause::Lost { rank: 1, host: "n1".into(), how: Loss::Silent { milliseconds: 3 } };
        let none: Payload = Arc::from([]);
        vec![
            (Message::Hello(hello), none.clone()),
            (
                Message::Welcome {
                    peers: vec![peer; 3].into(),
                    heartbeat_ms: 1,
                    silence_ms: 2,
                    trace: None,
                },
                none.clone(),
            ),
            (enter, Arc::from([1, 2, 3])),
            (
                Message::Reply {
                    group: 9,
                    turn: 1,
                    outcome: Outcome::Group { id: 4, members: Arc::from([2, 0]) },
                },
                Arc::from(vec![7; if cfg!(miri) { 700 } else { 70_000 }]),
            ),
            (Message::Ended { cause }, none.clone()),
            (Message::Alive, none),
        ]
    }

    fn stream() -> Vec<u8> {
        let mut bytes = Preamble { protocol: 7, token: Token([5; 32]) }.encode().to_vec();
        for (message, payload) in messages() {
            bytes.extend(encode(&message, payload.len(), FROM_ROOT).unwrap());
            bytes.extend_from_slice(&payload);
        }
        bytes
    }

    fn decode_all(decoder: &mut Decoder) -> Result<Vec<Item>, FrameError> {
        std::iter::from_fn(|| decoder.next().transpose()).collect()
    }

    #[test]
    fn what_is_encoded_decodes_to_the_same_in_pieces_of_any_size() {
        for piece in [1, 3, 47, 49, 4096, usize::MAX] {
            let mut decoder = Decoder::new(FROM_ROOT);
            let mut items = Vec::new();
            for bytes in stream().chunks(piece.min(stream().len())) {
                decoder.push(bytes);
                items.extend(decode_all(&mut decoder).unwrap());
            }
            let mut expected =
                vec![Item::Preamble(Preamble { protocol: 7, token: Token([5; 32]) })];
            expected.extend(
                messages().into_iter().map(|(message, payload)| Item::Frame(message, payload)),
            );
            assert_eq!(items, expected, "pieces of {piece}");
        }
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_anything_of_it_is_kept() {
        let mut decoder = Decoder::new(STRANGER);
        decoder.push(&Preamble { protocol: 1, token: Token([0; 32]) }.encode());
        decoder.push(&(STRANGER as u32 + 1).to_le_bytes());
        assert!(matches!(decoder.next(), Ok(Some(Item::Preamble(_)))));
        assert_eq!(
            decoder.next(),
            Err(FrameError::Length { length: STRANGER + 1, limit: STRANGER })
        );
    }

    #[test]
    fn a_stranger_is_recognised_by_its_first_byte() {
        let mut decoder = Decoder::new(STRANGER);
        decoder.push(b"G");
        assert_eq!(decoder.next(), Err(FrameError::Foreign));
    }

    #[test]
    fn a_frame_larger_than_the_other_side_accepts_is_not_encoded() {
        assert!(encode(&Message::Alive, 100, 100).is_none());
        assert!(encode(&Message::Alive, 99, 100).is_some());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_and_never_make_the_decoder_hold_more_than_arrived(
            bytes in proptest::collection::vec(any::<u8>(), 0..if cfg!(miri) { 100 } else { 2000 }),
            greeted: bool,
            piece in 1..200usize,
        ) {
            let mut decoder = Decoder::new(STRANGER);
            if greeted {
                decoder.push(&Preamble { protocol: 1, token: Token([0; 32]) }.encode());
            }
            for bytes in bytes.chunks(piece) {
                decoder.push(bytes);
                if decode_all(&mut decoder).is_err() {
                    break;
                }
            }
            prop_assert!(decoder.bytes.capacity() <= 2 * (bytes.len() + PREAMBLE) + 64);
        }

        #[test]
        fn a_damaged_stream_decodes_to_an_error_or_to_other_messages_but_never_panics(
            position in 0..500usize,
            value: u8,
        ) {
            let mut bytes = stream();
            bytes[position] = value;
            let mut decoder = Decoder::new(FROM_ROOT);
            decoder.push(&bytes);
            let _ = decode_all(&mut decoder);
        }
    }
}
