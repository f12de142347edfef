//! What a kernel launch needs besides the kernel: its dimensions and its arguments.

use std::ffi::c_void;
use std::marker::PhantomData;

/// Grid, block and dynamic shared memory of a launch.
///
/// ```
/// use gdsync::Dims;
///
/// let dims = Dims::linear(132, 512); // 132 blocks of 512 threads
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dims {
    /// Blocks in x, y, z.
    pub grid: (u32, u32, u32),
    /// Threads of a block in x, y, z.
    pub block: (u32, u32, u32),
    /// Bytes of dynamic shared memory a block.
    pub shared: u32,
}

impl Dims {
    /// One thread.
    pub fn one() -> Dims {
        Dims::linear(1, 1)
    }

    /// `blocks` blocks of `threads` threads, in x.
    pub fn linear(blocks: u32, threads: u32) -> Dims {
        Dims { grid: (blocks, 1, 1), block: (threads, 1, 1), shared: 0 }
    }
}

/// One argument of a kernel: a reference to its value, which the launch copies.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub struct Arg<'a> {
    value: *const c_void,
    lifetime: PhantomData<&'a ()>,
}

impl<'a> Arg<'a> {
    /// Passes the value behind `value`.
    pub fn new<T: Copy>(value: &'a T) -> Arg<'a> {
        Arg { value: std::ptr::from_ref(value).cast(), lifetime: PhantomData }
    }
}
