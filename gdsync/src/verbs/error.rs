//! What can go wrong with verbs: one variant per kind of failing operation.

use super::port::LinkLayer;
use gdsync_sys::LoadError;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;

/// The result of every fallible call of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of this module. Each names the operation, the device and what was expected.
///
/// ```
/// use gdsync::verbs;
///
/// match verbs::device(Some("mlx5_9")) {
///     Ok(device) => println!("{}", device.name()),
///     Err(error) => println!("{error}"), // no libibverbs, or no such device and which there are
/// }
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// libibverbs is not there.
    #[error(transparent)]
    Library(#[from] Arc<LoadError>),

    /// The list of devices cannot be read.
    #[error("no RDMA devices can be listed: {source} (is the kernel module ib_uverbs loaded?)")]
    DeviceList {
        /// What the kernel said.
        source: Errno,
    },

    /// There is no such device.
    #[error("no RDMA device {wanted}; there are: {}", list(found))]
    NoDevice {
        /// What was asked for.
        wanted: String,
        /// What there is.
        found: Vec<String>,
    },

    /// A call of libibverbs failed.
    #[error("{call} failed on {device} ({what}): {source}")]
    Call {
        /// The C function.
        call: &'static str,
        /// The device.
        device: String,
        /// What it was called for.
        what: String,
        /// What it said.
        source: Errno,
    },

    /// No port is active, or the one asked for is not.
    #[error("{device} has no active port{}: {}", wanted.map(|p| format!(" {p}")).unwrap_or_default(), list(states))]
    NoActivePort {
        /// The device.
        device: String,
        /// The port asked for, if one was.
        wanted: Option<u8>,
        /// Every port and its state.
        states: Vec<String>,
    },

    /// The port has no GID, or not the one asked for.
    #[error("port {port} of {device} has no GID{}; its table: {}", at_index(*wanted), list(table))]
    NoGid {
        /// The device.
        device: String,
        /// The port.
        port: u8,
        /// The index asked for, if one was.
        wanted: Option<u32>,
        /// The entries that there are.
        table: Vec<String>,
    },

    /// The port is not in the partition.
    #[error(
        "port {port} of {device} has no partition key {wanted:#06x}; its table: {}",
        list(table)
    )]
    NoPkey {
        /// The device.
        device: String,
        /// The port.
        port: u8,
        /// The key asked for.
        wanted: u16,
        /// The others that there are.
        table: Vec<String>,
    },

    /// The peer's port is of another kind.
    #[error("cannot connect {device} to its peer: this port is {ours}, the peer's is {theirs}")]
    LinkLayer {
        /// The device.
        device: String,
        /// Of this side.
        ours: LinkLayer,
        /// Of the peer.
        theirs: LinkLayer,
    },

    /// The bytes are no endpoint of this version.
    #[error("not an endpoint: {why}")]
    Endpoint {
        /// What is wrong with them.
        why: String,
    },

    /// There is no memory.
    #[error(transparent)]
    Memory(Box<crate::Error>),

    /// A range is not inside the memory.
    #[error("bytes {start}..{end} of a region of {size} bytes")]
    OutOfRange {
        /// First byte.
        start: u64,
        /// One past the last.
        end: u64,
        /// Size of the region.
        size: u64,
    },

    /// The CPU cannot reach the memory, so it has to be registered as GPU memory.
    #[error("{space} memory cannot be registered as host memory")]
    NotHostMemory {
        /// Where it lives.
        space: crate::Space,
    },

    /// GPU memory cannot be registered, neither way.
    #[error(
        "{size} bytes of GPU memory at {address:#x} cannot be registered with {device}: \
         as a dma-buf: {dmabuf}; by address (nvidia-peermem): {peermem}"
    )]
    GpuMemory {
        /// The device.
        device: String,
        /// First byte.
        address: u64,
        /// Size in bytes.
        size: u64,
        /// Why not as a dma-buf.
        dmabuf: String,
        /// Why not by its address.
        peermem: Errno,
    },

    /// The queue is full: poll its completion queue and post again.
    #[error("the {queue} queue of queue pair {qp_num:#x} is full: {depth} requests are in flight")]
    QueueFull {
        /// "send" or "receive".
        queue: &'static str,
        /// The queue pair.
        qp_num: u32,
        /// Requests that it holds.
        depth: u32,
    },

    /// The shared receive queue is full.
    #[error("a shared receive queue is full: {depth} receives are posted")]
    Full {
        /// Receives that it holds.
        depth: u32,
    },

    /// A request that the queue pair was not made for.
    #[error("{what}: {found}, this queue pair was made for {most}")]
    TooMuch {
        /// What there is too much of.
        what: &'static str,
        /// How much.
        found: u64,
        /// The limit.
        most: u64,
    },

    /// The slice for the result of an atomic operation is not 8 bytes.
    #[error("the result of an atomic operation needs 8 bytes, the slice has {length}")]
    AtomicResult {
        /// Its length.
        length: u32,
    },

    /// No completion came in time.
    #[error("no completion within {waited:?} on {device}")]
    Timeout {
        /// The device.
        device: String,
        /// How long was waited.
        waited: Duration,
    },
}

impl From<crate::Error> for Error {
    fn from(error: crate::Error) -> Error {
        Error::Memory(Box::new(error))
    }
}

fn at_index(wanted: Option<u32>) -> String {
    wanted.map(|index| format!(" at index {index}")).unwrap_or_default()
}

fn list(items: &[String]) -> String {
    if items.is_empty() { "none".into() } else { items.join(", ") }
}

/// The errno that a call left behind when it returned a null pointer.
pub(crate) fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// The errno that a call returned.
pub(super) fn returned_errno(code: i32) -> Errno {
    // A few providers return it negative.
    Errno::from_raw_os_error(code.saturating_abs())
}
