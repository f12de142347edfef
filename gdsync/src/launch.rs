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

    /// Whether blocks and threads are in x only.
    pub(crate) fn is_linear(&self) -> bool {
        matches!((self.grid, self.block), ((_, 1, 1), (_, 1, 1)))
    }
}

/// One argument of a kernel: a reference to its value, which the launch copies.
///
/// ```no_run
/// use gdsync::{Arg, Device, Dims};
///
/// # fn image() -> &'static [u8] { &[] }
/// // extern "C" __global__ void scale(double* values, unsigned count, double by)
/// let device = Device::cuda(0)?;
/// let module = device.as_cuda().map(|gpu| gpu.load_module(image(), &["scale"])).transpose()?;
/// let (stream, values) = (device.stream()?, device.alloc::<f64>(1000)?);
/// if let (Some(module), Some(address)) = (module, values.device_address()) {
///     let (count, by) = (values.len() as u32, 0.5_f64);
///     let arguments = [Arg::new(&address), Arg::new(&count), Arg::new(&by)];
///     // SAFETY: the types are those of the kernel, and it writes `count` elements of a buffer that long.
///     unsafe { stream.launch(&module.kernel("scale")?, Dims::linear(4, 256), &arguments)? };
/// }
/// # Ok::<(), gdsync::Error>(())
/// ```
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

    pub(crate) fn address(&self) -> *const c_void {
        self.value
    }
}
