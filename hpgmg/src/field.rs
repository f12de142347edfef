//! Storage of one vector: aligned so that rows start on cache lines, in large pages where there are
//! any.

use std::ops::{Deref, DerefMut};

/// Elements of a cache line.
const LINE: usize = 64 / size_of::<f64>();

/// One vector of all boxes of a level, or a thread's scratch. Its length never changes.
#[derive(Debug, Default)]
pub struct Field {
    storage: Vec<f64>,
    start: usize,
    len: usize,
}

impl Field {
    /// `len` zeros; element `aligned` and every eighth from it start a cache line.
    pub fn zeros(len: usize, aligned: usize) -> Self {
        let storage = vec![0.0; len + LINE];
        advise_large_pages(&storage);
        let address = storage.as_ptr() as usize / size_of::<f64>() + aligned;
        let start = address.next_multiple_of(LINE) - address;
        Self { storage, start, len }
    }
}

impl Deref for Field {
    type Target = [f64];

    #[inline(always)]
    fn deref(&self) -> &[f64] {
        &self.storage[self.start..][..self.len]
    }
}

impl DerefMut for Field {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [f64] {
        &mut self.storage[self.start..][..self.len]
    }
}

/// Asks for large pages under `storage`: the stencils walk through more planes than a translation cache
/// has entries. A wish; without it everything works.
fn advise_large_pages(storage: &[f64]) {
    const LARGE: usize = 2 << 20;
    let start = (storage.as_ptr() as usize).next_multiple_of(LARGE);
    let end = (storage.as_ptr() as usize + size_of_val(storage)) & !(LARGE - 1);
    if end > start {
        // SAFETY: the range lies within the allocation, and the advice does not change its contents.
        let _ = unsafe {
            rustix::mm::madvise(
                start as *mut std::ffi::c_void,
                end - start,
                rustix::mm::Advice::LinuxHugepage,
            )
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_element_starts_a_cache_line() {
        for (len, aligned) in [(1, 0), (1000, 2), (3 << 18, 7)] {
            let field = Field::zeros(len, aligned);
            assert_eq!(field.len(), len);
            assert_eq!((field.as_ptr() as usize + 8 * aligned) % 64, 0);
        }
        assert!(Field::default().is_empty());
    }
}
