//! Memory operations of a stream: writes, waits and barriers on single words, enqueued in one driver call.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::memory::access::Access;
use crate::memory::word::{Word32, Word64, reached32, reached64};

/// At most this many operations go to the driver at once; `cuStreamBatchMemOp` documents "less than 256".
pub const MAX_BATCH: usize = 255;

/// One memory operation on a stream.
///
/// Operations of a batch run in order. A write becomes visible at system scope after everything the stream did
/// before it; everything the stream does after a wait sees what was written before the awaited value.
///
/// ```
/// use std::time::Duration;
///
/// use gdsync::{Deadline, Device, MemOp, Until};
///
/// let (stream, words) = (Device::Host.stream()?, Device::Host.alloc_pinned::<u64>(2)?);
/// let (request, reply) = (words.word(0)?, words.word(1)?);
/// stream.batch(&[MemOp::Wait64(&request, Until::And(0b100)), MemOp::Write64(&reply, 1)])?;
/// request.store(0b110)?;
/// stream.synchronize(Deadline::after(Duration::from_secs(10)))?;
/// # Ok::<(), gdsync::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub enum MemOp<'a> {
    /// Stores a 32-bit value.
    Write32(&'a Word32, u32),
    /// Stores a 64-bit value.
    Write64(&'a Word64, u64),
    /// Blocks the stream until the 32-bit word is what is awaited.
    Wait32(&'a Word32, Until<u32>),
    /// Blocks the stream until the 64-bit word is what is awaited.
    Wait64(&'a Word64, Until<u64>),
    /// Orders all memory operations of the stream before it before all after it, at system scope.
    Barrier,
}

/// What a word must be for a wait to be over. Whoever waits looks again and again: a value that has passed before a look is not
/// seen, so what is waited for should stay until somebody who has waited changes it. A number by itself is [`Until::Geq`].
///
/// ```
/// use gdsync::Until;
///
/// assert!(Until::Geq(5_u32).is_met_by(6) && !Until::Geq(5_u32).is_met_by(u32::MAX));
/// assert!(Until::Eq(5_u64).is_met_by(5) && !Until::Eq(5_u64).is_met_by(6));
/// assert!(Until::And(0b110_u64).is_met_by(0b100) && !Until::And(0b110_u64).is_met_by(0b1));
/// assert!(Until::Lt(5_u64).is_met_by(0) && Until::Ne(5_u64).is_met_by(0));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until<T> {
    /// It has reached the value in cyclic order: `word - value`, as a signed number, is not negative.
    Geq(T),
    /// It is the value.
    Eq(T),
    /// It has one of these bits at least. A wait for one of no bits is refused.
    And(T),
    /// It is not the value. This and what follows compare without cyclic order, and are not among the memory operations of a CUDA
    /// stream: a kernel waits for them there, and only for words of 64 bits ([`Stream::wait64`](crate::Stream::wait64)).
    Ne(T),
    /// It is larger than the value. A wait for more than the largest is refused.
    Gt(T),
    /// It is less than the value. A wait for less than 0 is refused.
    Lt(T),
    /// It is the value or less.
    Le(T),
}

impl<T: Copy> Until<T> {
    /// The number that it is compared with.
    pub fn value(self) -> T {
        match self {
            Until::Geq(value) | Until::Eq(value) | Until::And(value) => value,
            Until::Ne(value) | Until::Gt(value) | Until::Lt(value) | Until::Le(value) => value,
        }
    }
}

macro_rules! until {
    ($int:ident, $atomic:ident, $reached:ident) => {
        impl Until<$int> {
            /// Whether the wait is over for whoever sees this value.
            pub fn is_met_by(self, seen: $int) -> bool {
                match self {
                    Until::Geq(value) => $reached(seen, value),
                    Until::Eq(value) => seen == value,
                    Until::And(bits) => seen & bits != 0,
                    Until::Ne(value) => seen != value,
                    Until::Gt(value) => seen > value,
                    Until::Lt(value) => seen < value,
                    Until::Le(value) => seen <= value,
                }
            }

            /// Makes the word what is awaited.
            pub(crate) fn meet(self, word: &$atomic) {
                match self {
                    Until::Geq(value) => word.raise(value),
                    Until::Eq(value) => word.signal(value),
                    Until::And(bits) => drop(word.fetch_or(bits, Ordering::AcqRel)),
                    other => word.signal(other.met()),
                }
            }

            /// A value that ends the wait, if there is one.
            pub(crate) fn met(self) -> $int {
                match self {
                    Until::Ne(value) | Until::Gt(value) => value.wrapping_add(1),
                    Until::Lt(value) => value.wrapping_sub(1),
                    other => other.value(),
                }
            }

            /// Whether there is a value that ends the wait: none is less than 0, for example.
            pub fn can_be_met(self) -> bool {
                self.is_met_by(self.met())
            }
        }

        impl From<$int> for Until<$int> {
            fn from(value: $int) -> Until<$int> {
                Until::Geq(value)
            }
        }
    };
}

until!(u32, AtomicU32, reached32);
until!(u64, AtomicU64, reached64);

impl Until<u64> {
    /// Refuses a wait at `place` that nothing would end.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if there is no value that ends it.
    pub fn check(self, place: &str) -> Result<()> {
        if self.can_be_met() {
            return Ok(());
        }
        let (what, place) = ("a wait for a word", place.into());
        Err(Error::Unsupported {
            what,
            place,
            why: format!("no value is {self}: nothing would end it"),
        })
    }
}

impl Until<u32> {
    /// The same in 64 bits.
    pub fn widened(self) -> Until<u64> {
        match self {
            Until::Geq(value) => Until::Geq(value.into()),
            Until::Eq(value) => Until::Eq(value.into()),
            Until::And(bits) => Until::And(bits.into()),
            Until::Ne(value) => Until::Ne(value.into()),
            Until::Gt(value) => Until::Gt(value.into()),
            Until::Lt(value) => Until::Lt(value.into()),
            Until::Le(value) => Until::Le(value.into()),
        }
    }
}

impl<T: fmt::Display + fmt::LowerHex> fmt::Display for Until<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Until::Geq(value) => write!(f, ">= {value}"),
            Until::Eq(value) => write!(f, "== {value}"),
            Until::And(bits) => write!(f, "& {bits:#x}"),
            Until::Ne(value) => write!(f, "!= {value}"),
            Until::Gt(value) => write!(f, "> {value}"),
            Until::Lt(value) => write!(f, "< {value}"),
            Until::Le(value) => write!(f, "<= {value}"),
        }
    }
}

impl MemOp<'_> {
    /// Refuses a wait that nothing ends.
    pub(crate) fn check(&self) -> Result<()> {
        let until = match self {
            MemOp::Wait32(_, until) if !until.can_be_met() => until.widened(),
            MemOp::Wait64(_, until) if !until.can_be_met() => *until,
            _ => return Ok(()),
        };
        until.check("any stream")
    }

    /// Whether it can block the stream.
    pub fn is_wait(&self) -> bool {
        matches!(self, MemOp::Wait32(..) | MemOp::Wait64(..))
    }

    /// The word's address for the device; 0 for a barrier.
    pub(crate) fn device_address(&self) -> Result<u64> {
        match self {
            MemOp::Write32(word, _) | MemOp::Wait32(word, _) => word.device_address(),
            MemOp::Write64(word, _) | MemOp::Wait64(word, _) => word.device_address(),
            MemOp::Barrier => Ok(0),
        }
    }
}
