//! What a line of a ring of envelopes says: 64 bytes that one rank writes into another's memory. Encoding and decoding, and nothing else.
//!
//! | word | |
//! |---|---|
//! | 0 | number of the line, from 1: written last, so that whoever sees it sees the rest |
//! | 1 | kind in the lowest byte, above it the length of what is in the line or in the eager ring |
//! | 2 | tag; of an answer the number of the send that it is for |
//! | 3–7 | up to 40 bytes of the message; of an offer: length, number of the send, address in the sender's process; of an answer: bytes wanted |

/// Words of a line.
pub(super) const WORDS: usize = 8;
/// Bytes of a line.
pub(super) const LINE: usize = WORDS * size_of::<u64>();
/// Bytes of a message that fit into a line.
pub(super) const INSIDE: usize = size_of::<Inside>();
/// These bytes, as the words of the line that they are.
pub(super) type Inside = [u64; WORDS - 3];

const IN_LINE: u64 = 1;
const EAGER: u64 = 2;
const OFFER: u64 = 3;
const ANSWER: u64 = 4;

/// A line, but for its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Envelope {
    /// A message that is in the line.
    InLine { tag: u64, len: usize, bytes: Inside },
    /// A message that is in the eager ring, behind the last one.
    Eager { tag: u64, len: usize },
    /// A message that waits at its sender. `address` is where, in its process, if it stays there until the answer, else 0.
    Offer { tag: u64, len: u64, send: u64, address: u64 },
    /// To a sender: so many bytes of its message are wanted, through the bulk ring, behind those that were wanted before; with 0 it is through.
    Answer { send: u64, wanted: u64 },
}

impl Envelope {
    /// The words of line number `number`.
    #[inline]
    pub fn encode(&self, number: u64) -> [u64; WORDS] {
        let mut words = [number, 0, 0, 0, 0, 0, 0, 0];
        match *self {
            Envelope::InLine { tag, len, bytes } => {
                (words[1], words[2]) = (IN_LINE | (len as u64) << 8, tag);
                words[3..].copy_from_slice(&bytes);
            }
            Envelope::Eager { tag, len } => {
                (words[1], words[2]) = (EAGER | (len as u64) << 8, tag);
            }
            Envelope::Offer { tag, len, send, address } => {
                (words[1], words[2]) = (OFFER, tag);
                (words[3], words[4], words[5]) = (len, send, address);
            }
            Envelope::Answer { send, wanted } => {
                (words[1], words[2], words[3]) = (ANSWER, send, wanted);
            }
        }
        words
    }

    /// What the words say, whatever their number; an eager message has at most `eager` bytes. `None` for what no rank writes.
    #[inline]
    pub fn decode(words: &[u64; WORDS], eager: usize) -> Option<Envelope> {
        let (tag, len) = (words[2], usize::try_from(words[1] >> 8).ok()?);
        match words[1] & 0xff {
            IN_LINE if len <= INSIDE => {
                let [_, _, _, bytes @ ..] = *words;
                Some(Envelope::InLine { tag, len, bytes })
            }
            EAGER if len <= eager => Some(Envelope::Eager { tag, len }),
            OFFER if len == 0 && usize::try_from(words[3]).is_ok() => {
                Some(Envelope::Offer { tag, len: words[3], send: words[4], address: words[5] })
            }
            ANSWER if len == 0 => Some(Envelope::Answer { send: tag, wanted: words[3] }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn envelope() -> impl Strategy<Value = Envelope> {
        let in_line = (any::<u64>(), 0..=INSIDE, any::<Inside>());
        prop_oneof![
            in_line.prop_map(|(tag, len, bytes)| Envelope::InLine { tag, len, bytes }),
            (any::<u64>(), 0..=8192usize).prop_map(|(tag, len)| Envelope::Eager { tag, len }),
            any::<[u64; 4]>().prop_map(|[tag, len, send, address]| Envelope::Offer {
                tag,
                len,
                send,
                address
            }),
            any::<[u64; 2]>().prop_map(|[send, wanted]| Envelope::Answer { send, wanted }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(envelope in envelope(), number in 1..u64::MAX) {
            let words = envelope.encode(number);
            prop_assert_eq!(words[0], number);
            prop_assert_eq!(Envelope::decode(&words, 8192), Some(envelope));
        }

        #[test]
        fn any_words_are_an_envelope_within_its_limits_or_none(mut words: [u64; WORDS], kind in 0..6u64, small: bool) {
            if small {
                words[1] = kind | (words[1] % 10_000) << 8;
            }
            match Envelope::decode(&words, 100) {
                Some(Envelope::InLine { len, .. }) => prop_assert!(len <= INSIDE),
                Some(Envelope::Eager { len, .. }) => prop_assert!(len <= 100),
                Some(other) => prop_assert_eq!(other.encode(words[0])[1] >> 8, 0),
                None => {}
            }
        }
    }
}
