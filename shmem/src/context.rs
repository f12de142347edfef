//! Contexts: streams of operations that are completed apart from each other. Here they share all there is, so what one context is
//! waited for, all are.

use std::ffi::{c_int, c_long};

use crate::failure::die;
use crate::world::state;

/// `shmem_ctx_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Context(*const Made);

/// What a program has made.
pub(crate) struct Made {
    _options: c_long,
}

/// All options: `SHMEM_CTX_SERIALIZED`, `SHMEM_CTX_PRIVATE`, `SHMEM_CTX_NOSTORE`.
const OPTIONS: c_long = 7;

impl Context {
    /// `SHMEM_CTX_DEFAULT`.
    pub const DEFAULT: Context = Context(std::ptr::without_provenance(1));
    /// `SHMEM_CTX_INVALID`.
    pub const INVALID: Context = Context(std::ptr::null());

    /// The PE of all that a PE of the context is.
    #[inline]
    pub fn pe(self, pe: c_int) -> usize {
        let state = state();
        if self == Context::INVALID {
            die("SHMEM_CTX_INVALID is no context to communicate in");
        }
        state.pe(pe)
    }
}

pub(crate) unsafe fn create(options: c_long, context: *mut Context) -> c_int {
    state();
    let made = Made { _options: options & OPTIONS };
    // SAFETY: the caller's pointer.
    unsafe { *context = Context(Box::into_raw(Box::new(made))) };
    0
}

pub(crate) unsafe fn destroy(context: Context) {
    if context == Context::INVALID {
        return;
    }
    if context == Context::DEFAULT {
        die("SHMEM_CTX_DEFAULT cannot be destroyed");
    }
    // SAFETY: as here. What it has begun is complete behind it.
    unsafe { crate::order::quiet(context) };
    // SAFETY: made by `create`, and given back once.
    drop(unsafe { Box::from_raw(context.0.cast_mut()) });
}
