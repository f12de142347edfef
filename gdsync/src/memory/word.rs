//! Single words that streams, kernels and CPUs wait on and write: the memory of signals, credits and doorbells.
//! A word keeps its memory alive.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::Buffer;
use super::access::Access;
use super::allocation::Allocation;
use super::copy;
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
    /// For the CPU, if it reaches the word.
    host: Option<NonNull<u64>>,
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
    /// For the CPU, if it reaches the word.
    host: Option<NonNull<u32>>,
}

impl Buffer<u64> {
    /// Element `index` as a word.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn word(&self, index: usize) -> Result<Word64> {
        let element = self.slice(index..index.saturating_add(1))?;
        let (allocation, host) = (element.allocation().clone(), element.host_address());
        Ok(Word64 { allocation, offset: element.offset(), host })
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
        let (allocation, host) = (element.allocation().clone(), element.host_address());
        Ok(Word32 { allocation, offset: element.offset(), host })
    }
}

macro_rules! word {
    ($word:ident, $atomic:ident, $int:ident) => {
        // SAFETY: the address is used for atomic accesses only, and the allocation is `Send` and `Sync`.
        unsafe impl Send for $word {}
        // SAFETY: as for Send.
        unsafe impl Sync for $word {}

        impl $word {
            /// The word as an atomic, if the CPU can reach it.
            #[inline]
            pub fn atomic(&self) -> Option<&$atomic> {
                // SAFETY: the word lies inside the allocation, which `self` keeps; words come from
                // buffers of this integer type, so it is aligned; all who share it access it atomically.
                self.host.map(|word| unsafe { $atomic::from_ptr(word.as_ptr()) })
            }

            /// The value seen by the CPU (acquire at system scope), or `None` if the CPU cannot reach it.
            #[inline]
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

            /// Asks the processor for the word's cache line, and does not wait for it: a look a little later does not have to.
            ///
            /// ```
            /// let word = gdsync::Device::Host.alloc_pinned::<u64>(1)?.word(0)?;
            /// word.prefetch(); // while this one looks at another
            /// # Ok::<(), gdsync::Error>(())
            /// ```
            #[inline]
            pub fn prefetch(&self) {
                self.host.inspect(|word| copy::prefetch(word.as_ptr().cast()));
            }

            /// The same for a store. Nothing happens where the processor has no such instruction.
            ///
            /// ```
            /// let word = gdsync::Device::Host.alloc_pinned::<u64>(1)?.word(0)?;
            /// word.prefetch_for_write(); // while this one writes what comes before it
            /// # Ok::<(), gdsync::Error>(())
            /// ```
            #[inline]
            pub fn prefetch_for_write(&self) {
                self.host.inspect(|word| copy::prefetch_for_write(word.as_ptr().cast()));
            }

            /// Stores from the CPU (release at system scope).
            ///
            /// # Errors
            /// [`Error::NotReachable`] if the CPU cannot reach the word.
            #[inline]
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

            #[cold]
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
