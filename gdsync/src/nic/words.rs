//! Memory that the CPU, a GPU and a NIC write at the same time, as arrays of atomic words.
//!
//! Queues, doorbells and completions live in such memory: nobody may hold a reference to its bytes, every access is
//! one atomic load or store. Which order it needs is its user's business.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::wqe::{OCTOWORD_BYTES, Octoword, RingMemory, RingMemoryMut};

/// A view of pinned memory as 64-bit words. Cloning shares the memory.
#[derive(Clone)]
pub(crate) struct Words {
    memory: Buffer<u64>,
    base: NonNull<u64>,
}

// SAFETY: the memory is only accessed atomically, and held by the buffer.
unsafe impl Send for Words {}
// SAFETY: as for Send.
unsafe impl Sync for Words {}

impl Words {
    /// # Errors
    /// [`Error::NotReachable`] if the CPU cannot reach the memory.
    pub fn new(memory: Buffer<u64>) -> Result<Words> {
        let base = memory.host_address().ok_or_else(|| Error::NotReachable {
            what: "a queue",
            memory: memory.space().to_string(),
            place: "the CPU".into(),
            hint: "use pinned memory",
        })?;
        Ok(Words { memory, base })
    }

    /// The `len` words from word `first` on.
    pub fn slice(&self, first: usize, len: usize) -> Result<Words> {
        Words::new(self.memory.slice(first..first.saturating_add(len))?)
    }

    pub fn len(&self) -> usize {
        self.memory.len()
    }

    pub fn buffer(&self) -> &Buffer<u64> {
        &self.memory
    }

    /// Word `at`, which is below `len()`.
    pub fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at < self.len(), "word {at} of {}", self.len());
        // SAFETY: inside the memory that `self` holds, aligned, and accessed atomically by all who share it.
        unsafe { AtomicU64::from_ptr(self.base.add(at).as_ptr()) }
    }

    /// The 32 bits at byte `4 * at`.
    pub fn half(&self, at: usize) -> &AtomicU32 {
        assert!(at / 2 < self.len(), "half word {at} of {}", 2 * self.len());
        // SAFETY: as above; a half word of an aligned word is aligned.
        unsafe { AtomicU32::from_ptr(self.base.cast::<u32>().add(at).as_ptr()) }
    }

    /// Address of word `at` for copying whole ranges.
    pub fn pointer(&self, at: usize) -> *mut u8 {
        assert!(at <= self.len(), "word {at} of {}", self.len());
        // SAFETY: inside the memory, or its end.
        unsafe { self.base.add(at) }.as_ptr().cast()
    }
}

impl RingMemory for Words {
    fn octowords(&self) -> usize {
        self.len() / 2
    }

    fn load(&self, at: usize) -> Octoword {
        let mut octoword = [0; OCTOWORD_BYTES];
        for (k, half) in octoword.chunks_exact_mut(8).enumerate() {
            half.copy_from_slice(&self.word(2 * at + k).load(Ordering::Relaxed).to_ne_bytes());
        }
        octoword
    }
}

impl RingMemoryMut for Words {
    fn store(&mut self, at: usize, octoword: Octoword) {
        let value = u128::from_ne_bytes(octoword);
        let (low, high) = (value as u64, (value >> 64) as u64);
        // The halves in the order of memory; the machines that CUDA runs on are little-endian.
        self.word(2 * at).store(low, Ordering::Relaxed);
        self.word(2 * at + 1).store(high, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::memory::Space;

    #[test]
    fn an_octoword_is_stored_in_the_order_of_its_bytes() -> Result<()> {
        let mut words = Words::new(Buffer::new(&Device::Host, Space::Pinned, 8)?)?;
        let octoword: Octoword = std::array::from_fn(|k| k as u8 + 1);
        words.store(2, octoword);
        assert_eq!(words.load(2), octoword);
        assert_eq!(words.buffer().bytes().to_vec()?[32..48], octoword);
        assert_eq!(words.half(8).load(Ordering::Relaxed), u32::from_ne_bytes([1, 2, 3, 4]));
        assert!(words.slice(7, 2).is_err());
        Ok(())
    }
}
