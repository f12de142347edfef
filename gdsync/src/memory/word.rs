//! Single words that streams, kernels and CPUs wait on and write: the memory of signals, credits and doorbells.
//! A word keeps its memory alive.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::Buffer;
use super::access::Access;
use super::allocation::Allocation;
use crate::device::Device;
use crate::error::{Error, Result};

/// A naturally aligned 64-bit word.
///
/// ```
/// use gdsync::Device;
///
/// let word = Device::Host.alloc_pinned::<u64>(4)?.word(2)?; // keeps the memory
/// word.store(9)?;
/// assert_eq!(word.load(), Some(9));
/// # Ok::<(), gdsync::Error>(())
/// ```
#[derive(Clone)]
pub struct Word64 {
    allocation: Arc<Allocation>,
    offset: usize,
}

/// A naturally aligned 32-bit word.
///
/// ```
/// use gdsync::Device;
///
/// let word = Device::Host.alloc_pinned::<u32>(4)?.word(2)?; // keeps the memory
/// word.store(9)?;
/// assert_eq!(word.load(), Some(9));
/// # Ok::<(), gdsync::Error>(())
/// ```
#[derive(Clone)]
pub struct Word32 {
    allocation: Arc<Allocation>,
    offset: usize,
}

impl Buffer<u64> {
    /// Element `index` as a word.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn word(&self, index: usize) -> Result<Word64> {
        let element = self.slice(index..index.saturating_add(1))?;
        Ok(Word64 { allocation: element.allocation().clone(), offset: element.offset() })
    }
}

impl Buffer<u64> {
    /// The elements as atomics, if the CPU can reach them.
    pub fn atomics(&self) -> Option<&[AtomicU64]> {
        let first = self.host_address()?;
        // SAFETY: the elements lie inside the allocation, which `self` keeps, and are aligned for their type, which is that of
        // the atomics; all who share them access them atomically or, as copies do, by whole bytes.
        Some(unsafe { std::slice::from_raw_parts(first.as_ptr().cast(), self.len()) })
    }
}

impl Buffer<u32> {
    /// Element `index` as a word.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn word(&self, index: usize) -> Result<Word32> {
        let element = self.slice(index..index.saturating_add(1))?;
        Ok(Word32 { allocation: element.allocation().clone(), offset: element.offset() })
    }
}

macro_rules! word {
    ($word:ident, $atomic:ident, $int:ident) => {
        impl $word {
            /// The word as an atomic, if the CPU can reach it.
            pub fn atomic(&self) -> Option<&$atomic> {
                let base = self.allocation.host?;
                // SAFETY: the word lies inside the allocation, which `self` keeps; words come from
                // buffers of this integer type, so it is aligned; all who share it access it atomically.
                Some(unsafe { $atomic::from_ptr(base.add(self.offset).cast().as_ptr()) })
            }

            /// The value seen by the CPU (acquire at system scope), or `None` if the CPU cannot reach it.
            pub fn load(&self) -> Option<$int> {
                self.atomic().map(Access::see)
            }

            /// The value seen by the CPU (acquire at system scope).
            ///
            /// # Errors
            /// [`Error::NotReachable`] if the CPU cannot reach the word.
            pub fn read(&self) -> Result<$int> {
                self.load().ok_or_else(|| self.not_reachable("a load", "the CPU"))
            }

            /// Stores from the CPU (release at system scope).
            ///
            /// # Errors
            /// [`Error::NotReachable`] if the CPU cannot reach the word.
            pub fn store(&self, value: $int) -> Result<()> {
                match self.atomic() {
                    Some(word) => {
                        word.signal(value);
                        Ok(())
                    }
                    None => Err(self.not_reachable("a store", "the CPU")),
                }
            }

            /// Adds from the CPU, as others may at the same time (acquire and release at system scope).
            ///
            /// # Errors
            /// [`Error::NotReachable`] if the CPU cannot reach the word.
            pub fn add(&self, value: $int) -> Result<()> {
                match self.atomic() {
                    Some(word) => {
                        word.fetch_add(value, std::sync::atomic::Ordering::AcqRel);
                        Ok(())
                    }
                    None => Err(self.not_reachable("an addition", "the CPU")),
                }
            }

            /// The address for kernels and streams of the word's device.
            ///
            /// # Errors
            /// [`Error::NotReachable`] if the device cannot reach the word.
            pub fn device_address(&self) -> Result<u64> {
                match self.allocation.remote {
                    Some(base) => Ok(base + self.offset as u64),
                    None => Err(self
                        .not_reachable("a memory operation", &self.allocation.device.to_string())),
                }
            }

            /// The device that the word's memory belongs to.
            pub fn device(&self) -> &Device {
                &self.allocation.device
            }

            pub(crate) fn owner(&self) -> Arc<Allocation> {
                self.allocation.clone()
            }

            fn not_reachable(&self, what: &'static str, place: &str) -> Error {
                Error::NotReachable {
                    what,
                    memory: self.allocation.describe(),
                    place: place.into(),
                    hint: "put the word into pinned or device memory",
                }
            }
        }

        impl fmt::Debug for $word {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "word at byte {} of {}", self.offset, self.allocation.describe())
            }
        }
    };
}

word!(Word64, AtomicU64, u64);
word!(Word32, AtomicU32, u32);

pub use super::access::{reached32, reached64};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Space;

    #[test]
    fn a_word_keeps_its_memory() -> Result<()> {
        let word = Buffer::<u64>::new(&Device::Host, Space::Pinned, 8)?.word(3)?;
        word.store(9)?;
        assert_eq!(word.load(), Some(9));
        assert!(Buffer::<u64>::new(&Device::Host, Space::Pinned, 8)?.word(8).is_err());
        Ok(())
    }
}
