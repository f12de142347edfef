//! The rings of tagged messages as `libmp::tagged::rings` uses them: a message is put into a ring of bytes, then its line is written; who has
//! taken both gives back the room of each by a line of credits, whose words are looked at one by one. Or a message is two lines, the second of
//! which is written first.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use super::line::{numbered, store, words};

const LINES: usize = 2;
const WORDS: usize = 2;
/// The room in the ring of bytes.
const BYTES: usize = 1;
const MESSAGES: u64 = 3;

struct Rings {
    lines: [[AtomicU64; WORDS]; LINES],
    bytes: [UnsafeCell<u64>; BYTES],
    credits: [AtomicU64; 2],
}

// SAFETY: bytes are accessed by whoever lines and credits give them to; loom reports it if that is two at a time.
unsafe impl Sync for Rings {}

pub fn model() {
    loom::model(|| {
        let word = || AtomicU64::new(0);
        let rings = Arc::new(Rings {
            lines: [[word(), word()], [word(), word()]],
            bytes: [UnsafeCell::new(0)],
            credits: [word(), word()],
        });
        let writer = rings.clone();
        let writer = thread::spawn(move || {
            for sent in 0..MESSAGES {
                loop {
                    let [lines, bytes] = words(&writer.credits).unwrap();
                    assert!(lines <= sent && bytes <= sent);
                    if sent - lines < LINES as u64 && sent - bytes < BYTES as u64 {
                        break;
                    }
                    thread::yield_now();
                }
                // SAFETY: the credits give the bytes to the writer.
                writer.bytes[sent as usize % BYTES].with_mut(|it| unsafe { *it = 10 + sent });
                store(&writer.lines[sent as usize % LINES], &[sent + 1, 20 + sent]);
            }
        });
        for taken in 0..MESSAGES {
            let line = loop {
                match numbered::<WORDS>(&rings.lines[taken as usize % LINES], taken + 1) {
                    Some(line) => break line,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(line, [taken + 1, 20 + taken]);
            // SAFETY: the line gives the bytes to the reader.
            let found = rings.bytes[taken as usize % BYTES].with(|it| unsafe { *it });
            assert_eq!(found, 10 + taken);
            store(&rings.credits, &[taken + 1, taken + 1]);
        }
        writer.join().unwrap();
    });
}

/// Lines of the ring in [`in_lines`], and of a message, of which the second has the room of the first.
const RING: u64 = 2;
const FEW: u64 = 2;
const LAPS: u64 = 2;

pub fn in_lines() {
    loom::model(|| {
        let line = |_| -> [AtomicU64; WORDS] { [AtomicU64::new(0), AtomicU64::new(0)] };
        let lines: [_; RING as usize] = std::array::from_fn(line);
        let rings = Arc::new((lines, AtomicU64::new(0)));
        let writer = rings.clone();
        let writer = thread::spawn(move || {
            let (lines, taken) = &*writer;
            for sent in (0..LAPS).map(|message| FEW * message) {
                while sent + FEW - words::<1>(std::slice::from_ref(taken)).unwrap()[0] > RING {
                    thread::yield_now();
                }
                for at in (sent..sent + FEW).rev() {
                    let line = &lines[(at % RING) as usize];
                    line[1].store(20 + at, Ordering::Relaxed);
                    store(&line[..1], &[at + 1]);
                }
            }
        });
        let (lines, told) = &*rings;
        for taken in (0..LAPS).map(|message| FEW * message) {
            let line = |at: u64| {
                let line = &lines[(at % RING) as usize];
                numbered::<1>(line, at + 1).map(|_| line[1].load(Ordering::Relaxed))
            };
            let first = loop {
                match line(taken) {
                    Some(first) => break first,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(first, 20 + taken);
            // Who sees the first sees the others.
            assert_eq!(line(taken + 1), Some(21 + taken));
            store(std::slice::from_ref(told), &[taken + FEW]);
        }
        writer.join().unwrap();
    });
}
