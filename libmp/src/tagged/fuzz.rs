//! Where fuzzing enters: lines, credits and counts that another rank writes, whatever they say, while this one sends, receives and probes.

use std::time::Duration;

use gdsync::Deadline;

use super::envelope::{LINE, WORDS};
use super::{Options, Source, Tag, Tagged};
use crate::error::{Error, Result};
use crate::world::World;

/// Two ranks of this thread, with tagged messages.
pub(super) fn pair() -> Result<(Vec<World>, Vec<Tagged>)> {
    let worlds = World::threads(2)?;
    let open = |world: &World| world.tagged(&Options::default());
    let both = std::thread::scope(|scope| {
        let made: Vec<_> = worlds.iter().map(|world| scope.spawn(move || open(world))).collect();
        let made = made.into_iter().filter_map(|it| it.join().ok());
        made.collect::<Result<Vec<_>>>()
    })?;
    Ok((worlds, both))
}

/// A sequence of what rank 1 writes – a byte says what, where and how, a line what with – and of what rank 0 calls then. What no rank writes ends the world,
/// and all else is a message or waits.
pub fn lines(data: &[u8]) {
    let (_worlds, both) = pair().expect("two ranks");
    let (now, messages) = (Deadline::after(Duration::ZERO), &both[0]);
    let mut room = [0u8; 100];
    for step in data.chunks(1 + LINE) {
        let Some((&how, bytes)) = step.split_first() else { return };
        let mut words = [0u64; WORDS];
        bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
        let (number, line, own) = messages.shared.lock().next_words(1, usize::from(how >> 4) & 3);
        if how & 1 != 0 {
            own.slice(0..WORDS).and_then(|credits| credits.write(&words)).expect("host memory");
            // How far the bulk ring is written, on the line behind.
            let written = own.slice(WORDS..WORDS + 1);
            written.and_then(|at| at.write(&words[7..])).expect("host memory");
        } else {
            words[0] = number;
            if how & 2 != 0 {
                // One of those that there are.
                words[1] = words[1] & 7 | (words[1] >> 8 & 0x3fff) << 8;
            }
            // An address that is believed is read: those of this process are.
            words[5] = 0;
            line.write(&words).expect("host memory");
        }
        let called = match how >> 2 & 3 {
            0 => messages.recv(&mut room, Source::Any, Tag::Any, now).map(drop),
            1 => messages.recv(&mut room, 1, words[2], now).map(drop),
            2 => messages.improbe(Source::Any, Tag::Any).map(drop),
            _ => messages.send(&[how; 50], 1, words[2], now),
        };
        match called {
            Ok(()) | Err(Error::Waits { .. } | Error::Truncated { .. }) => {}
            Err(Error::Protocol { .. }) => return,
            Err(other) => panic!("{other}"),
        }
    }
}
