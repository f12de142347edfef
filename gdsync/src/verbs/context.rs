//! An opened RDMA device.

use super::completion_queue::CompletionQueue;
use super::device::Device;
use super::error::{Error, Result, last_errno, returned_errno};
use super::library::verbs;
use super::port::{GidEntry, Port, PortChoice, read_gids, read_port};
use super::protection_domain::ProtectionDomain;
use gdsync_sys::Verbs;
use gdsync_sys::verbs::{
    IBV_ATOMIC_GLOB, IBV_ATOMIC_NONE, ibv_context, ibv_device, ibv_device_attr,
};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// An opened RDMA device. Closed when it and everything made from it are dropped.
///
/// See [`verbs`](super) for an example.
pub struct Context {
    context: NonNull<ibv_context>,
    verbs: &'static Verbs,
    name: String,
    limits: Limits,
}

// SAFETY: libibverbs serialises the calls on a context.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// What the device can do at most.
///
/// See [`Device`](super::Device) for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Ports.
    pub ports: u8,
    /// Requests a queue may hold.
    pub requests: u32,
    /// Receives a shared queue may hold; 0 where there are no such queues.
    pub shared_receives: u32,
    /// Pieces of memory a request may have.
    pub segments: u32,
    /// Completions a queue may hold.
    pub completions: u32,
    /// Reads and atomics of peers that a queue pair serves at once.
    pub incoming_reads: u8,
    /// Reads and atomics that a queue pair has under way at once.
    pub outgoing_reads: u8,
    /// Whether it does 64-bit atomics on memory.
    pub atomics: bool,
    /// Whether its atomics are atomic for the CPU, too, and not only among themselves.
    pub atomics_for_all: bool,
}

impl Context {
    pub(super) fn open(device: &Device) -> Result<Arc<Self>> {
        let verbs = verbs()?;
        // SAFETY: the device is alive.
        Self::open_by(device, "ibv_open_device", |device| unsafe { verbs.ibv_open_device(device) })
    }

    /// Opens it by `open`, which is named `call` and returns null and sets errno when it fails.
    pub(crate) fn open_by(
        device: &Device,
        call: &'static str,
        open: impl FnOnce(*mut ibv_device) -> *mut ibv_context,
    ) -> Result<Arc<Self>> {
        let (verbs, name) = (verbs()?, device.name());
        let failed = |call, source| Error::Call {
            call,
            device: name.clone(),
            what: "opening the device".into(),
            source,
        };
        let context = open(device.as_ptr());
        let context = NonNull::new(context).ok_or_else(|| failed(call, last_errno()))?;
        let mut attr = ibv_device_attr::default();
        // SAFETY: the context is open and `attr` writable.
        let rc = unsafe { verbs.ibv_query_device(context.as_ptr(), &mut attr) };
        // From here on dropping closes the device.
        let opened =
            Self { context, verbs, name: name.clone(), limits: Limits::from_device(&attr) };
        match rc {
            0 => Ok(Arc::new(opened)),
            rc => Err(failed("ibv_query_device", returned_errno(rc))),
        }
    }

    /// Name of the device.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it can do at most.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Picks a port and its GID; see [`PortChoice`] for the rule.
    ///
    /// # Errors
    /// If no port fits; the error lists what there is.
    pub fn port(self: &Arc<Self>, choice: &PortChoice) -> Result<Port> {
        choice.choose(self)
    }

    /// Every port, active or not, with the first GID that the rule would pick.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn ports(self: &Arc<Self>) -> Result<Vec<Port>> {
        (1..=self.limits.ports).map(|number| read_port(self, number)).collect()
    }

    /// The GID table of a port.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn gids(self: &Arc<Self>, port: &Port) -> Result<Vec<GidEntry>> {
        read_gids(self, port)
    }

    /// Makes a protection domain.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn protection_domain(self: &Arc<Self>) -> Result<Arc<ProtectionDomain>> {
        ProtectionDomain::new(self)
    }

    /// Makes a completion queue with room for at least `capacity` completions. A queue that overflows breaks its queue
    /// pairs: make it as large as all that may complete before it is polled.
    ///
    /// # Errors
    /// What the kernel says, for example that it is too large.
    pub fn completion_queue(self: &Arc<Self>, capacity: u32) -> Result<Arc<CompletionQueue>> {
        CompletionQueue::new(self, capacity)
    }

    pub(crate) fn verbs(&self) -> &'static Verbs {
        self.verbs
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_context {
        self.context.as_ptr()
    }

    /// The error of a call that returned an errno, or nothing if it returned 0.
    pub(crate) fn check(&self, call: &'static str, rc: i32, what: &str) -> Result<()> {
        match rc {
            0 => Ok(()),
            rc => Err(self.failed(call, what, returned_errno(rc))),
        }
    }

    pub(crate) fn failed(
        &self,
        call: &'static str,
        what: &str,
        source: rustix::io::Errno,
    ) -> Error {
        Error::Call { call, device: self.name.clone(), what: what.to_owned(), source }
    }
}

impl Limits {
    fn from_device(attr: &ibv_device_attr) -> Self {
        let unsigned = |n: i32| n.max(0) as u32;
        let byte = |n: i32| n.clamp(0, 255) as u8;
        Self {
            ports: attr.phys_port_cnt,
            requests: unsigned(attr.max_qp_wr),
            shared_receives: unsigned(attr.max_srq_wr),
            segments: unsigned(attr.max_sge),
            completions: unsigned(attr.max_cqe),
            incoming_reads: byte(attr.max_qp_rd_atom),
            outgoing_reads: byte(attr.max_qp_init_rd_atom),
            atomics: attr.atomic_cap != IBV_ATOMIC_NONE,
            atomics_for_all: attr.atomic_cap == IBV_ATOMIC_GLOB,
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: everything made from the context holds it, so nothing is left.
        let rc = unsafe { self.verbs.ibv_close_device(self.context.as_ptr()) };
        if rc != 0 {
            tracing::warn!(device = self.name, rc, "ibv_close_device failed");
        }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("name", &self.name).field("limits", &self.limits).finish()
    }
}
