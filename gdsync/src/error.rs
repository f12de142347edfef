//! What can go wrong below the level of ranks and messages: one variant per kind of failing operation.

use std::fmt;
use std::time::Duration;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of this crate. Each names the operation, the value that was refused and what was expected.
///
/// ```
/// use gdsync::{Device, Error};
///
/// let buffer = Device::Host.alloc::<u64>(4)?;
/// match buffer.slice(2..9) {
///     Err(Error::OutOfRange { size, .. }) => println!("there are only {size}"),
///     Err(other) => println!("{other}"),
///     Ok(_) => unreachable!("4 elements"),
/// }
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No CUDA driver library could be loaded.
    #[error("no CUDA driver on this machine: libcuda.so.1 could not be loaded")]
    NoDriver,

    /// The driver lacks an entry point that this crate cannot do without.
    #[error("the CUDA driver is too old: version {found}, needs {needed} (no `{symbol}`)")]
    DriverTooOld {
        /// The driver's CUDA version, or "unknown".
        found: String,
        /// The CUDA version that has the entry point.
        needed: &'static str,
        /// The missing entry point.
        symbol: &'static str,
    },

    /// No GPU has the requested ordinal.
    #[error("no CUDA device {ordinal}: the driver reports {count} device(s)")]
    NoSuchDevice {
        /// The ordinal asked for.
        ordinal: u32,
        /// How many the driver reports.
        count: u32,
    },

    /// This build has no GPU code.
    #[error(transparent)]
    NoGpuCode(#[from] mp_kernels::NotBuilt),

    /// The embedded GPU code does not run on this GPU.
    #[error(
        "the GPU code of this build does not run on {gpu} (compute capability {capability}): built for {built}"
    )]
    WrongArchitecture {
        /// The GPU's name.
        gpu: String,
        /// Its compute capability.
        capability: String,
        /// What the fatbin holds.
        built: String,
    },

    /// A kernel is not in the embedded module.
    #[error("no kernel `{name}` in the GPU module")]
    NoSuchKernel {
        /// The entry point asked for.
        name: String,
    },

    /// A launch whose blocks have to run at once has more of them than ever do.
    #[error(
        "{blocks} blocks of `{kernel}` cannot run at once on {place}: {fit} do, with {threads} threads and {shared} bytes of dynamic shared memory each"
    )]
    TooManyBlocks {
        /// The kernel.
        kernel: &'static str,
        /// The stream.
        place: String,
        /// Blocks asked for.
        blocks: u64,
        /// Blocks that run at once.
        fit: u32,
        /// Threads of a block.
        threads: u32,
        /// Bytes of dynamic shared memory of a block.
        shared: u32,
    },

    /// A kernel needs more shared memory than a block can be given.
    #[error(
        "`{kernel}` needs {bytes} bytes of dynamic shared memory a block, {gpu} has at most {most}"
    )]
    SharedMemory {
        /// The kernel.
        kernel: &'static str,
        /// The GPU's name.
        gpu: String,
        /// Bytes asked for.
        bytes: u32,
        /// Bytes there are.
        most: u32,
    },

    /// A CUDA driver call failed.
    #[error("{call} failed: {message} (CUDA error {code})")]
    Cuda {
        /// The driver entry point.
        call: &'static str,
        /// `CUresult`.
        code: u32,
        /// The driver's own words.
        message: String,
    },

    /// No OpenCL library could be loaded.
    #[error(
        "no OpenCL on this machine: libOpenCL.so.1 could not be loaded (Debian's package ocl-icd-libopencl1 has it)"
    )]
    NoOpenCl,

    /// A call of OpenCL failed.
    #[error("{call} failed: {message} (OpenCL error {code})")]
    OpenCl {
        /// The entry point.
        call: &'static str,
        /// Its status.
        code: i32,
        /// The name of the status.
        message: String,
    },

    /// A system call failed.
    #[error("{call} failed for {what}: {message}")]
    Os {
        /// The system call.
        call: &'static str,
        /// What it was called for.
        what: String,
        /// The system's own words.
        message: String,
    },

    /// There is not so much memory.
    #[error(transparent)]
    Shortage(#[from] crate::memory::limits::Shortage),

    /// A range lies outside its buffer.
    #[error("{what}: bytes {offset}..{end} lie outside a buffer of {size} bytes", end = offset.saturating_add(*len))]
    OutOfRange {
        /// The operation.
        what: &'static str,
        /// First byte asked for.
        offset: usize,
        /// Number of bytes asked for.
        len: usize,
        /// The buffer's size in bytes.
        size: usize,
    },

    /// A range whose end lies before its beginning.
    #[error("{what}: the range {start}..{end} ends before it begins")]
    Reversed {
        /// The operation.
        what: &'static str,
        /// The first element.
        start: usize,
        /// The one behind the last.
        end: usize,
    },

    /// Elements of a type without a size take no memory, and are nothing to move.
    #[error("{what}: elements of type {element} have no size")]
    NoSize {
        /// The operation.
        what: &'static str,
        /// The type.
        element: &'static str,
    },

    /// Two lengths that must agree do not.
    #[error("{what}: {left} bytes against {right} bytes")]
    LengthMismatch {
        /// The operation.
        what: &'static str,
        /// Length of the destination or the expected length.
        left: usize,
        /// Length of the source or the length given.
        right: usize,
    },

    /// An address is not aligned for what it is used for.
    #[error("{what}: offset {offset} is not a multiple of {align}")]
    Misaligned {
        /// The operation.
        what: &'static str,
        /// The offset given.
        offset: usize,
        /// The alignment needed.
        align: usize,
    },

    /// Memory cannot be reached from where an operation runs.
    #[error("{what}: {memory} cannot be reached from {place}; {hint}")]
    NotReachable {
        /// The operation.
        what: &'static str,
        /// The memory, in words.
        memory: String,
        /// Where the operation runs.
        place: String,
        /// What to do instead.
        hint: &'static str,
    },

    /// A request that has no meaning on this device or stream.
    #[error("{what} is not possible on {place}: {why}")]
    Unsupported {
        /// The operation.
        what: &'static str,
        /// The device or stream.
        place: String,
        /// The reason.
        why: String,
    },

    /// A deadline passed.
    #[error("{what} not finished after {after:?}{detail}")]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        after: Duration,
        /// The oldest outstanding wait, where one is known (begins with a separator), or empty.
        detail: String,
    },

    /// The watchdog of the stream was aborted; the stream's waits were released, its results mean nothing.
    #[error("{what} aborted: {cause}")]
    Aborted {
        /// What was given up.
        what: String,
        /// Why the watchdog was aborted.
        cause: String,
    },

    /// A bounded wait in a kernel or on a host stream gave up.
    #[error("{what}: wait {status} after {waited:?}: expected >= {expected}, saw {seen}")]
    WaitFailed {
        /// The stream.
        what: String,
        /// "timed out", "aborted" or "was refused".
        status: &'static str,
        /// The value waited for.
        expected: u64,
        /// The value last seen.
        seen: u64,
        /// How long the wait took.
        waited: Duration,
    },

    /// A host callback panicked on a stream.
    #[error("a host callback on {stream} panicked: {message}")]
    CallbackPanicked {
        /// The stream.
        stream: String,
        /// The panic's message.
        message: String,
    },

    /// A peer's memory handle cannot be opened here.
    #[error("memory of process {pid} cannot be mapped here: {why}")]
    PeerUnreachable {
        /// The exporting process.
        pid: u32,
        /// The reason.
        why: String,
    },

    /// Memory of this kind cannot be handed to other processes.
    #[error("{memory} cannot be exported to other processes: {why}")]
    NotExportable {
        /// The memory, in words.
        memory: String,
        /// The reason.
        why: &'static str,
    },
}

impl Error {
    /// An operating-system error of `call` on `what`.
    pub(crate) fn os(
        call: &'static str,
        what: impl fmt::Display,
        error: impl fmt::Display,
    ) -> Error {
        Error::Os { call, what: what.to_string(), message: error.to_string() }
    }
}
