//! The handles that kernels take, as C gets them.

use std::ffi::c_void;

use crate::status::{Failure, Result};

/// Copies a handle to where the caller's kernel arguments are.
///
/// # Safety
/// `to` is NULL or valid for a write of `bytes` bytes.
pub(crate) unsafe fn copy<T>(handle: T, to: *mut c_void, bytes: usize) -> Result<()> {
    if bytes != size_of::<T>() {
        let expected = size_of::<T>();
        let what = format!("{bytes}, the struct of mp/layout.cuh has {expected} bytes");
        return Err(Failure::argument("bytes", what));
    }
    if to.is_null() {
        return Err(Failure::argument("handle", "is NULL"));
    }
    // SAFETY: the caller's promise, and the size is that of the handle; it need not be aligned.
    unsafe { to.cast::<T>().write_unaligned(handle) };
    Ok(())
}
