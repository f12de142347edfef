//! What a stream waits for: words, and the values that end the wait; and how such a wait is reported and ended.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::cuda::second_context::SecondContext;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memop::Until;
use crate::memory::word::{Word32, Word64};

/// Words and the values that are awaited.
#[derive(Clone)]
pub(crate) enum Target {
    Word32(Word32, Until<u32>),
    Word64(Word64, Until<u64>),
    /// A wait that polls the abort word itself: known for reports, and needs no release.
    Bounded(Word64, Until<u64>),
    /// The waits inside a graph that was launched.
    Graph(Arc<[Target]>),
}

/// An outstanding wait, for reports.
///
/// ```
/// use gdsync::{Device, Watchdog};
///
/// let watchdog = Watchdog::new(&Device::Host)?;
/// let stream = Device::Host.watched_stream(&watchdog)?;
/// let word = Device::Host.alloc_pinned::<u64>(1)?.word(0)?;
/// stream.wait_geq64(&word, 7)?;
/// for wait in watchdog.pending() {
///     println!("{wait}"); // which stream waits, for what, since when
/// }
/// word.store(7)?;
/// # Ok::<(), gdsync::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct PendingWait {
    /// The stream that waits.
    pub stream: String,
    /// The word.
    pub word: String,
    /// What it waits for.
    pub until: Until<u64>,
    /// The value the CPU sees now; `None` if it cannot reach the word.
    pub seen: Option<u64>,
    /// Time since the wait was enqueued.
    pub age: Duration,
}

impl fmt::Display for PendingWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PendingWait { stream, word, until, seen, age } = self;
        match seen {
            Some(seen) => {
                write!(f, "{stream} waits for {word} {until}, sees {seen}, for {age:?}")
            }
            None => write!(f, "{stream} waits for {word} {until}, for {age:?}"),
        }
    }
}

impl Target {
    pub(super) fn release(&self) -> Result<()> {
        match self {
            Target::Word32(word, until) => match word.atomic() {
                Some(atomic) => {
                    until.meet(atomic);
                    Ok(())
                }
                None => second_context(word.device())?.write32(word.device_address()?, until.met()),
            },
            Target::Word64(word, until) => match word.atomic() {
                Some(atomic) => {
                    until.meet(atomic);
                    Ok(())
                }
                None => second_context(word.device())?.write64(word.device_address()?, until.met()),
            },
            Target::Bounded(..) => Ok(()),
            Target::Graph(targets) => targets.iter().try_for_each(Target::release),
        }
    }

    pub(super) fn describe(&self, stream: &str, age: Duration, to: &mut Vec<PendingWait>) {
        let (word, until, seen) = match self {
            Target::Word32(word, until) => {
                (format!("{word:?}"), until.widened(), word.load().map(u64::from))
            }
            Target::Word64(word, until) | Target::Bounded(word, until) => {
                (format!("{word:?}"), *until, word.load())
            }
            Target::Graph(targets) => {
                return targets.iter().for_each(|target| target.describe(stream, age, to));
            }
        };
        to.push(PendingWait { stream: stream.into(), word, until, seen, age });
    }
}

fn second_context(device: &Device) -> Result<&SecondContext> {
    let unreachable = || Error::Unsupported {
        what: "releasing a wait",
        place: device.to_string(),
        why: "the CPU does not reach the word, and it is no CUDA device".into(),
    };
    device.as_cuda().ok_or_else(unreachable)?.second_context()
}
