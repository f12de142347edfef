//! What no rank writes, where other ranks write.

use std::time::Duration;

use gdsync::Deadline;
use proptest::prelude::*;

use super::envelope::{Envelope, IN_LINES, IN_TWO, INSIDE};
use super::fuzz::pair;
use super::{Source, Tag};
use crate::Error;

#[test]
fn of_several_lines_the_first_alone_ends_the_world() {
    let now = Deadline::after(Duration::ZERO);
    let several = [
        Envelope::Lines { tag: 1, len: INSIDE + 1 },
        Envelope::Lines { tag: 1, len: IN_TWO },
        Envelope::Lent { tag: 1, len: INSIDE + 1 },
        Envelope::Lent { tag: 1, len: IN_LINES },
    ];
    for envelope in several {
        // By who waits for this rank, and by who waits for any.
        for source in [Source::Rank(1), Source::Any] {
            let (_worlds, both) = pair().unwrap();
            let (number, next, _) = both[0].shared.lock().next_words(1, 0);
            let mut line = envelope.encode();
            line[0] = number;
            next.write(&line).unwrap();
            let got = both[0].recv(&mut [0u8; IN_LINES], source, 1, now).unwrap_err().to_string();
            assert!(got.contains("the first line alone"), "{envelope:?}, {source:?}: {got}");
        }
    }
}

#[test]
fn every_length_that_goes_in_lines_and_a_little_more_comes_whole_wherever_it_lies() {
    const LEN: usize = IN_LINES + 20;
    let (_worlds, both) = pair().unwrap();
    let now = Deadline::after(Duration::ZERO);
    let bytes: [u8; LEN + 8] = std::array::from_fn(|at| (at * 7 + 1) as u8);
    for len in 0..LEN {
        for (from_at, to_at) in [(0, 0), (3, 3), (1, 0), (0, 5)] {
            let sent = &bytes[from_at..from_at + len];
            both[1].send(sent, 0, 1, now).unwrap();
            let mut room = [0xee; LEN + 8];
            both[0].recv(&mut room[to_at..to_at + len], 1, 1, now).unwrap();
            assert_eq!(room[to_at..to_at + len], *sent, "{len} from {from_at} to {to_at}");
            assert!(room[..to_at].iter().chain(&room[to_at + len..]).all(|byte| *byte == 0xee));
        }
        // What there is no room for is cut off, and nothing behind the room is touched.
        let cut = len / 2;
        both[1].send(&bytes[..len], 0, 1, now).unwrap();
        let mut room = [0xee; LEN];
        let got = both[0].recv(&mut room[..cut], 1, 1, now);
        assert_eq!(got.is_err(), len > cut, "{got:?}");
        assert_eq!(room[..cut], bytes[..cut]);
        assert!(room[cut..].iter().all(|byte| *byte == 0xee));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn lines_and_credits_that_no_rank_writes_end_the_world_or_are_messages_and_nothing_breaks(
        mut line: [u64; 8],
        kind in 0..8u64,
        len in prop_oneof![0..50u64, 8190..8195u64, any::<u64>()],
        credits: [u64; 9],
        which in 0..3,
    ) {
        let (_worlds, both) = pair().unwrap();
        let (_, next, words) = both[0].shared.lock().next_words(1, 0);
        if which > 0 {
            line[1] = kind | len << 8;
        }
        line[0] = 1;
        // An address that is believed is read: those of this process are.
        line[5] = 0;
        next.write(&line).unwrap();
        if which == 2 {
            words.slice(0..9).unwrap().write(&credits).unwrap();
        }
        let now = Deadline::after(Duration::ZERO);
        let mut room = [0u8; 100];
        let got = both[0].recv(&mut room, Source::Any, Tag::Any, now);
        prop_assert!(matches!(
            got,
            Ok(_) | Err(Error::Truncated { .. } | Error::Waits { .. } | Error::Protocol { .. })
        ), "{got:?}");
        // So many that the credits are looked at.
        for _ in 0..300 {
            let sent = both[0].send(&[1u8; 8], 1, 1, now);
            prop_assert!(matches!(sent, Ok(()) | Err(Error::Waits { .. } | Error::Protocol { .. })), "{sent:?}");
        }
    }
}
