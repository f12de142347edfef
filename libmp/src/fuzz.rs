//! Where fuzzing enters: one function for each kind of bytes that a peer sends or writes. They take anything, and panic only
//! if something is wrong. The targets in `fuzz/` call them with what libFuzzer makes up; the tests below with the corpus that
//! this found, on every machine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::build_info::BuildInfo;
use crate::collective::decode_gathered;
use crate::control::frame::{Decoder, FROM_ROOT, Item, Preamble, STRANGER, Token, encode};
use crate::control::handshake::{Expected, check_hello, check_preamble};
use crate::control::message::{Message, Payload, PeerInfo};
use crate::control::{Heartbeat, Hub};
pub use crate::data::fuzz_mailbox as mailbox;
pub use crate::tagged::fuzz_lines as tagged_lines;
use crate::trace::Part;

/// A stream of the control plane, from a stranger or from rank 0, in pieces of any size. What comes out encodes to frames
/// that decode to the same.
pub fn control_stream(data: &[u8]) {
    let Some((&how, data)) = data.split_first() else { return };
    let limit = if how & 1 == 0 { STRANGER } else { FROM_ROOT };
    let mut decoder = Decoder::new(limit);
    if how & 2 != 0 {
        decoder.push(&Preamble { protocol: 1, token: Token([0; 32]) }.encode());
    }
    for piece in data.chunks(1 + usize::from(how >> 2) * 7) {
        decoder.push(piece);
        loop {
            match decoder.next() {
                Ok(None) => break,
                Err(_) => return,
                Ok(Some(Item::Preamble(_))) => {}
                Ok(Some(Item::Frame(message, payload))) => {
                    let Some(mut bytes) = encode(&message, payload.len(), usize::MAX) else {
                        panic!("{message:?} cannot be sent on")
                    };
                    bytes.extend_from_slice(&payload);
                    let mut again = Decoder::new(usize::MAX);
                    again.push(&Preamble { protocol: 1, token: Token([0; 32]) }.encode());
                    again.push(&bytes);
                    assert!(matches!(again.next(), Ok(Some(Item::Preamble(_)))));
                    assert_eq!(again.next(), Ok(Some(Item::Frame(message, payload))));
                }
            }
        }
    }
}

/// Who may join: a connection's first bytes against a secret that the fuzzer cannot know.
pub fn handshake(data: &[u8]) {
    let token: [u8; 32] = std::array::from_fn(|at| (at as u8).wrapping_mul(37) ^ 0x5a);
    let expected = Expected {
        preamble: Preamble { protocol: 4, token: Token(token) },
        size: 4,
        job: "j".into(),
        build: BuildInfo { protocol: 4, revision: "b".into() },
        host: "n0".into(),
    };
    // Half of the inputs have the secret, to get further.
    let Some((&knows, data)) = data.split_first() else { return };
    let mut decoder = Decoder::new(STRANGER);
    if knows & 1 != 0 {
        decoder.push(&expected.preamble.encode());
    }
    decoder.push(data);
    let Ok(Some(Item::Preamble(theirs))) = decoder.next() else { return };
    let admitted = check_preamble(&expected, &theirs, "a:1").is_ok();
    assert_eq!(admitted, theirs == expected.preamble);
    if let (true, Ok(Some(Item::Frame(Message::Hello(hello), _)))) = (admitted, decoder.next()) {
        let claimed = hello.rank;
        if let Ok((rank, _)) = check_hello(&expected, hello, "a:1") {
            assert!(rank == claimed && (1..4).contains(&rank));
        }
    }
}

/// Rank 0 with three ranks that say anything in any order. The input is a sequence of a rank or a happening (a byte), the
/// length of a message (a byte) and the message; its payload is the length of what follows it.
pub fn hub(data: &[u8]) {
    const RANKS: u32 = 4;
    let mut now = Instant::now();
    let second = Duration::from_secs(1);
    let heartbeat = Heartbeat { interval: second, silence: 10 * second };
    let mut hub = Hub::new(RANKS, heartbeat, now, 60 * second);
    let peer = |rank: u32| PeerInfo { host: format!("n{rank}"), node: "n".into(), pid: rank };
    let (mut rest, mut over) = (data, false);
    while let [what, length, tail @ ..] = rest {
        let (message, tail) = tail.split_at(usize::from(*length).min(tail.len()));
        rest = tail;
        let rank = u32::from(what % 4);
        match what / 4 {
            0 => hub.join(rank, peer(rank)),
            1 => {
                now += Duration::from_millis(100) * u32::from(*length);
                hub.tick(now);
            }
            2 => hub.lost(rank, crate::error::Loss::Unfinished),
            _ => {
                if let Ok((message, payload)) = postcard::take_from_bytes::<Message>(message)
                    // Only one that has joined is heard.
                    && !hub.assembling()
                {
                    let payload: Payload = Arc::from(payload);
                    hub.handle(rank, message, payload, now);
                }
            }
        }
        let ended = hub.over();
        assert!(ended || !over, "an end is for good");
        over = ended;
        for (to, message, payload) in hub.take_outputs() {
            assert!(to < RANKS);
            assert!(encode(&message, payload.len(), FROM_ROOT).is_some(), "a rank accepts it");
            // What a rank does with a result that it is told was gathered.
            let _ = decode_gathered(&payload, RANKS as usize);
        }
        assert!(!over || hub.next_deadline().is_none());
    }
}

/// A rank's part of a timeline, as rank 0 gets it from the others.
pub fn trace_part(data: &[u8]) {
    if let Some(part) = Part::from_bytes(data) {
        // As bytes: a counter that is not a number does not equal itself.
        let bytes = part.to_bytes();
        assert_eq!(Part::from_bytes(&bytes).map(|again| again.to_bytes()), Some(bytes));
    }
}

#[cfg(test)]
mod tests {
    /// Gives every file of a target's corpus to its function.
    fn replay(target: &str, function: fn(&[u8])) {
        let folder = format!("../fuzz/corpus/{target}");
        let mut files = 0;
        for entry in std::fs::read_dir(&folder).expect("the corpus is part of the sources") {
            function(&std::fs::read(entry.unwrap().path()).unwrap());
            files += 1;
        }
        assert!(files >= 5, "{folder} has {files} files");
    }

    #[test]
    fn the_corpus_of_control_streams_is_taken() {
        replay("control_stream", super::control_stream);
    }

    #[test]
    fn the_corpus_of_handshakes_is_taken() {
        replay("handshake", super::handshake);
    }

    #[test]
    fn the_corpus_of_the_hub_is_taken() {
        replay("hub", super::hub);
    }

    #[test]
    fn the_corpus_of_parts_of_timelines_is_taken() {
        replay("trace_part", super::trace_part);
    }

    #[test]
    fn the_corpus_of_lines_of_tagged_messages_is_taken() {
        replay("tagged_lines", super::tagged_lines);
    }

    #[test]
    fn the_corpus_of_mailboxes_is_taken() {
        replay("mailbox", super::mailbox);
    }
}
