//! What a line of a ring of envelopes says: 64 bytes that one rank writes into another's memory. Encoding and decoding, and nothing else.
//!
//! | word | |
//! |---|---|
//! | 0 | number of the line, from 1: written last, so that whoever sees it sees the rest |
//! | 1 | kind in the lowest byte, above it the length of what is in the line or in the eager ring |
//! | 2 | tag; of an answer the number of the send that it is for |
//! | 3–7 | up to 40 bytes of the message; of an offer: length, number of the send, address in the sender's process; of an answer: bytes wanted |
//!
//! In the place of a message's bytes a few lines may say where they are ([`Envelope::Lent`]).
//!
//! A message of a few lines goes on in the lines behind, each of which has its own number in word 0, lest what is left of it is taken for a line
//! the next time round, and 56 bytes in the others. They are written before the first.

use std::ops::Range;

/// Words of a line.
pub(super) const WORDS: usize = 8;
/// Bytes of a line.
pub(super) const LINE: usize = WORDS * size_of::<u64>();
/// Bytes of a message that fit into a line.
pub(super) const INSIDE: usize = size_of::<Inside>();
/// These bytes, as the words of the line that they are.
pub(super) type Inside = [u64; WORDS - HEAD];
/// Words of a line before the bytes of a message.
pub(super) const HEAD: usize = 3;
/// Bytes of a message in a line behind its first.
const BEHIND: usize = (WORDS - 1) * size_of::<u64>();
/// Bytes of a message in two lines, the most that one goes in.
pub(super) const IN_TWO: usize = INSIDE + BEHIND;
/// Bytes that go in the most lines: what says where a message is.
pub(super) const IN_LINES: usize = INSIDE + 4 * BEHIND;

const IN_LINE: u64 = 1;
const EAGER: u64 = 2;
const OFFER: u64 = 3;
const ANSWER: u64 = 4;
const LINES: u64 = 5;
const LENT: u64 = 6;
const READY: u64 = 7;

/// An answer that wants to be told when the memory of a message that is lent may be read.
pub(super) const LATER: u64 = u64::MAX;

/// A line that has no message in it, but for its number. Of one that has: [`Envelope::in_line`], [`Envelope::inside`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Envelope {
    /// A message that begins in this line and goes on in those behind.
    Lines { tag: u64, len: usize },
    /// A message that is in the eager ring, behind the last one.
    Eager { tag: u64, len: usize },
    /// A message that waits at its sender. `address` is where, in its process, if it stays there until the answer, else 0.
    Offer { tag: u64, len: u64, send: u64, address: u64 },
    /// To a sender: so many bytes of its message are wanted, through the bulk ring, behind those that were wanted before; with 0 it is through, with
    /// [`LATER`] it is to say when it may be read.
    Answer { send: u64, wanted: u64 },
    /// A message that waits at its sender, in memory that the receiver may map: so many bytes, in the lines behind as well, say where that is.
    Lent { tag: u64, len: usize },
    /// The memory of a message that was lent may be read now.
    Ready { send: u64 },
}

/// Whether so many bytes go in a few lines, in which at most `most` do.
#[inline]
fn is_of_lines(len: usize, most: usize) -> bool {
    (INSIDE + 1..=most).contains(&len)
}

/// How many lines a message of so many bytes takes, at most [`IN_LINES`].
#[inline]
pub(super) fn lines(len: usize) -> usize {
    1 + len.saturating_sub(INSIDE).div_ceil(BEHIND)
}

/// Where the bytes of a message that goes in a few lines are: of each line its number among them, the word at which they begin, and which
/// they are. The first line comes last, as it is written.
#[inline]
pub(super) fn places(len: usize) -> impl Iterator<Item = (usize, usize, Range<usize>)> {
    let behind = (1..lines(len)).map(move |line| {
        let at = INSIDE + (line - 1) * BEHIND;
        (line, 1, at..len.min(at + BEHIND))
    });
    behind.chain([(0, HEAD, 0..len.min(INSIDE))])
}

impl Envelope {
    /// The words of a line, but for its number.
    pub fn encode(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        match *self {
            Envelope::Lines { tag, len } => {
                (words[1], words[2]) = (LINES | (len as u64) << 8, tag);
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
            Envelope::Lent { tag, len } => {
                (words[1], words[2]) = (LENT | (len as u64) << 8, tag);
            }
            Envelope::Ready { send } => (words[1], words[2]) = (READY, send),
        }
        words
    }

    /// Writes the words of a line, but for its number, with a message of at most [`INSIDE`] bytes; those that it needs, and room for its bytes.
    #[inline]
    pub fn in_line(words: &mut [u64; WORDS], tag: u64, len: usize) -> (usize, &mut [u8]) {
        (words[1], words[2]) = (IN_LINE | (len as u64) << 8, tag);
        let bytes = &mut bytemuck::cast_slice_mut(&mut words[HEAD..])[..len];
        (HEAD + len.div_ceil(size_of::<u64>()), bytes)
    }

    /// The tag and the bytes of a message that is in the line.
    #[inline]
    pub fn inside(words: &[u64; WORDS]) -> Option<(u64, &[u8])> {
        let len = words[1] >> 8;
        let is_in_line = words[1] & 0xff == IN_LINE && len <= INSIDE as u64;
        is_in_line.then(|| (words[2], &bytemuck::cast_slice(&words[HEAD..])[..len as usize]))
    }

    /// What the words say, whatever their number; an eager message has at most `eager` bytes. `None` for what no rank writes.
    pub fn decode(words: &[u64; WORDS], eager: usize) -> Option<Envelope> {
        let (tag, len) = (words[2], usize::try_from(words[1] >> 8).ok()?);
        match words[1] & 0xff {
            LINES if is_of_lines(len, IN_TWO) => Some(Envelope::Lines { tag, len }),
            LENT if is_of_lines(len, IN_LINES) => Some(Envelope::Lent { tag, len }),
            READY if len == 0 => Some(Envelope::Ready { send: tag }),
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
        prop_oneof![
            (any::<u64>(), 0..=8192usize).prop_map(|(tag, len)| Envelope::Eager { tag, len }),
            (any::<u64>(), INSIDE + 1..=IN_TWO).prop_map(|(tag, len)| Envelope::Lines { tag, len }),
            any::<[u64; 4]>().prop_map(|[tag, len, send, address]| Envelope::Offer {
                tag,
                len,
                send,
                address
            }),
            any::<[u64; 2]>().prop_map(|[send, wanted]| Envelope::Answer { send, wanted }),
            (any::<u64>(), INSIDE + 1..=IN_LINES)
                .prop_map(|(tag, len)| Envelope::Lent { tag, len }),
            any::<u64>().prop_map(|send| Envelope::Ready { send }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(envelope in envelope()) {
            let words = envelope.encode();
            prop_assert_eq!(Envelope::decode(&words, 8192), Some(envelope));
            prop_assert!(Envelope::inside(&words).is_none());
        }

        #[test]
        fn a_message_that_is_in_its_line_comes_out_of_it(tag: u64, bytes in prop::collection::vec(any::<u8>(), 0..=INSIDE)) {
            let mut words = [0; WORDS];
            let (used, room) = Envelope::in_line(&mut words, tag, bytes.len());
            room.copy_from_slice(&bytes);
            prop_assert_eq!(Envelope::inside(&words), Some((tag, &bytes[..])));
            prop_assert_eq!(Envelope::decode(&words, 8192), None);
            prop_assert!(words[used..].iter().all(|word| *word == 0));
        }

        #[test]
        fn every_byte_of_a_message_has_one_place_in_as_few_lines_as_there_are(len in INSIDE + 1..=IN_LINES) {
            let mut bytes = vec![None; len];
            for (line, word, part) in places(len) {
                let first = if line == 0 { HEAD } else { 1 };
                prop_assert!(line < lines(len) && word == first);
                prop_assert!(!part.is_empty() && word * size_of::<u64>() + part.len() <= LINE);
                for at in part {
                    prop_assert_eq!(bytes[at].replace(line), None);
                }
            }
            prop_assert!(bytes[0] == Some(0) && bytes.is_sorted());
            prop_assert_eq!(bytes[len - 1], Some(lines(len) - 1));
            prop_assert_eq!(places(len).last().map(|(line, ..)| line), Some(0));
        }

        #[test]
        fn any_words_are_a_message_or_an_envelope_within_its_limits_or_none(mut words: [u64; WORDS], kind in 0..9u64, small: bool) {
            if small {
                words[1] = kind | (words[1] % 10_000) << 8;
            }
            match (Envelope::inside(&words), Envelope::decode(&words, 100)) {
                (Some((_, bytes)), None) => prop_assert!(bytes.len() <= INSIDE),
                (None, Some(Envelope::Eager { len, .. })) => prop_assert!(len <= 100),
                (None, Some(Envelope::Lines { len, .. } | Envelope::Lent { len, .. })) => prop_assert!(INSIDE < len && len <= IN_LINES),
                (None, Some(other)) => prop_assert_eq!(other.encode()[1] >> 8, 0),
                (None, None) => {}
                both => prop_assert!(false, "{both:?}"),
            }
        }
    }
}
