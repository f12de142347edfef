//! Constants, handles and the status of the standard ABI: MPI 5.0, chapter 20 and appendix A. Predefined handles are small numbers, others are
//! this library's.

use std::ffi::c_int;

/// A handle of any kind.
pub type Handle = usize;

pub const COMM_NULL: Handle = 0x100;
pub const COMM_WORLD: Handle = 0x101;
pub const COMM_SELF: Handle = 0x102;
pub const DATATYPE_NULL: Handle = 0x200;
pub const REQUEST_NULL: Handle = 0x180;

pub const ANY_SOURCE: c_int = -1;
pub const ANY_TAG: c_int = -2;
pub const PROC_NULL: c_int = -3;
pub const UNDEFINED: c_int = -32766;

/// `MPI_IN_PLACE`.
pub const IN_PLACE: usize = 1;

pub const THREAD_SINGLE: c_int = 0;
pub const THREAD_MULTIPLE: c_int = 4096;

pub const SUCCESS: c_int = 0;
/// `MPI_MAX_PROCESSOR_NAME` and `MPI_MAX_ERROR_STRING`.
pub const NAME: usize = 256;

/// `MPI_Status`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Status {
    pub source: c_int,
    pub tag: c_int,
    pub error: c_int,
    /// The bytes received, low and high, and whether it was cancelled.
    pub internal: [c_int; 5],
}

impl Status {
    /// Of nothing: as of a receive from `MPI_PROC_NULL`, or of no request.
    pub fn empty(source: c_int) -> Status {
        Status { source, tag: ANY_TAG, ..Status::default() }
    }

    pub fn of(got: libmp::tagged::Status, cancelled: bool) -> Status {
        let (low, high) = (got.bytes as u32 as c_int, (got.bytes as u64 >> 32) as c_int);
        let internal = [low, high, cancelled.into(), 0, 0];
        Status { source: got.source as c_int, tag: got.tag as c_int, error: SUCCESS, internal }
    }

    /// Writes one field by field, if it is wanted: many are written, and a copy of one that has just been made waits for it.
    ///
    /// # Safety
    /// The pointer is NULL or valid for a write.
    #[inline]
    pub unsafe fn put(to: *mut Status, source: c_int, tag: c_int, bytes: usize) {
        if !to.is_null() {
            // SAFETY: the caller's promise; plain numbers.
            unsafe {
                (*to).source = source;
                (*to).tag = tag;
                (*to).error = SUCCESS;
                (*to).internal[0] = bytes as u32 as c_int;
                (*to).internal[1] = (bytes as u64 >> 32) as c_int;
                (*to).internal[2] = 0;
            }
        }
    }

    pub fn bytes(&self) -> usize {
        self.internal[0] as u32 as usize | (self.internal[1] as u32 as usize) << 32
    }
}
