//! What no rank writes, where other ranks write.

use std::time::Duration;

use gdsync::Deadline;
use proptest::prelude::*;

use super::fuzz::pair;
use super::{Source, Tag};
use crate::Error;

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
