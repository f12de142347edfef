//! Writing disjoint parts of one vector from several threads.
//!
//! The kernels cut a vector into rows that no two tasks share; the borrow checker cannot see that, so
//! this is the one place that says it.

use std::marker::PhantomData;

/// A vector that several tasks write, each its own elements.
#[derive(Clone, Copy)]
pub struct SharedVector<'a> {
    start: *mut f64,
    len: usize,
    lifetime: PhantomData<&'a mut [f64]>,
}

// SAFETY: it only hands out elements through unsafe functions whose callers promise disjointness.
unsafe impl Send for SharedVector<'_> {}
// SAFETY: as above.
unsafe impl Sync for SharedVector<'_> {}

impl<'a> SharedVector<'a> {
    /// Shares `vector` for as long as it is borrowed.
    pub fn new(vector: &'a mut [f64]) -> Self {
        Self { start: vector.as_mut_ptr(), len: vector.len(), lifetime: PhantomData }
    }

    /// Where elements `at .. at + n` start, for loops that work with pointers. Whoever writes through it
    /// sees to it that nobody else touches those elements.
    #[inline(always)]
    pub fn start(&self, at: usize, n: usize) -> *mut f64 {
        assert!(at <= self.len && n <= self.len - at, "part outside of its vector");
        // SAFETY: in bounds by the assertion.
        unsafe { self.start.add(at) }
    }

    /// Elements `at .. at + n`, for writing.
    ///
    /// # Safety
    /// While the slice lives nobody else reads or writes these elements.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn row(&self, at: usize, n: usize) -> &'a mut [f64] {
        assert!(at <= self.len && n <= self.len - at, "row outside of its vector");
        // SAFETY: in bounds by the assertion; exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(at), n) }
    }

    /// Elements `at .. at + n`, for reading.
    ///
    /// # Safety
    /// While the slice lives nobody writes these elements.
    #[inline(always)]
    pub unsafe fn read(&self, at: usize, n: usize) -> &'a [f64] {
        assert!(at <= self.len && n <= self.len - at, "row outside of its vector");
        // SAFETY: in bounds by the assertion; not written meanwhile by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.start.add(at), n) }
    }
}
