//! Datagrams: short messages to anybody whose endpoint is known, without a connection, and without a promise that they
//! arrive. By them two sides find out that both are ready to be connected.

use super::completion_queue::CompletionQueue;
use super::endpoint::Endpoint;
use super::error::{Result, last_errno};
use super::memory_region::{Access, MemoryRegion};
use super::port::Port;
use super::post::{SendOperation, SendRequest};
use super::protection_domain::ProtectionDomain;
use super::queue_pair::{Inner, QueuePairOptions, Route};
use crate::{Buffer, Device, Space};
use gdsync_sys::verbs::{
    IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY, IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QPS_INIT,
    IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPT_UD, ibv_ah, ibv_qp_attr,
};
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of the largest datagram.
pub const DATAGRAM: usize = 64;
/// What comes before the bytes of a datagram that arrives: a global route header, or room for one.
const HEADER: usize = 40;
/// Datagrams that may wait to be received, and to be sent: more are lost.
const DEPTH: usize = 256;
/// What all such queue pairs have in common, as the InfiniBand specification asks for.
const KEY: u32 = 0x4d50_0001;

/// A queue pair for datagrams of at most 64 bytes ([`DATAGRAM`]).
///
/// ```no_run
/// use gdsync::verbs::{self, PortChoice};
///
/// # fn exchange(mine: verbs::Endpoint) -> verbs::Endpoint { mine }
/// let context = verbs::device(None)?.open()?;
/// let port = context.port(&PortChoice::default())?;
/// let datagrams = context.protection_domain()?.datagrams(&port)?;
/// let peer = datagrams.route(&exchange(datagrams.endpoint()))?;
/// datagrams.send(&peer, b"hello")?;
/// datagrams.receive(|bytes| println!("{bytes:?} came"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Datagrams {
    inner: Inner,
    endpoint: Endpoint,
    route: Route,
    /// One thread at a time takes what has arrived.
    completions: Mutex<Arc<CompletionQueue>>,
    memory: Arc<MemoryRegion>,
}

impl Datagrams {
    pub(super) fn new(domain: &Arc<ProtectionDomain>, port: &Port) -> Result<Self> {
        let route = Route::of(port)?;
        let depth = DEPTH as u32;
        let completions = domain.context().completion_queue(2 * depth)?;
        let options = QueuePairOptions {
            send_depth: depth,
            receive_depth: depth,
            segments: 1,
            inline: DATAGRAM as u32,
        };
        let inner =
            Inner::create(IBV_QPT_UD, domain, None, (&completions, &completions), &options)?;
        let mut attr = ibv_qp_attr {
            qp_state: IBV_QPS_INIT,
            port_num: port.number,
            pkey_index: port.pkey_index,
            qkey: KEY,
            ..ibv_qp_attr::default()
        };
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
        inner.modify(&mut attr, mask, "datagrams, reset to init")?;
        attr.qp_state = IBV_QPS_RTR;
        inner.modify(&mut attr, IBV_QP_STATE, "datagrams, init to ready-to-receive")?;
        attr.qp_state = IBV_QPS_RTS;
        let mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
        inner.modify(&mut attr, mask, "datagrams, ready-to-receive to ready-to-send")?;
        let buffer = Buffer::<u8>::new(&Device::Host, Space::Host, DEPTH * (HEADER + DATAGRAM))?;
        let memory = domain.register(&buffer, Access::LOCAL)?;
        let endpoint = inner.endpoint(port, &route);
        let completions = Mutex::new(completions);
        let datagrams = Self { inner, endpoint, route, completions, memory };
        (0..DEPTH).try_for_each(|slot| datagrams.post(slot))?;
        Ok(datagrams)
    }

    /// What others must know to send to it.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    /// The way to a peer.
    ///
    /// # Errors
    /// If the peer's port is of another kind; what the kernel says.
    pub fn route(&self, peer: &Endpoint) -> Result<DatagramRoute> {
        let mut attr = self.route.to(&self.endpoint, peer)?;
        let domain = self.inner.domain.clone();
        let context = domain.context();
        // SAFETY: the domain is alive, and the handle keeps it so.
        let handle = unsafe { context.verbs().ibv_create_ah(domain.as_ptr(), &mut attr) };
        let handle = NonNull::new(handle).ok_or_else(|| {
            context.failed("ibv_create_ah", &format!("the way to {}", peer.gid), last_errno())
        })?;
        Ok(DatagramRoute { handle, number: peer.qp_num, domain })
    }

    /// Sends a datagram. It may be lost, also because too many are under way.
    ///
    /// # Errors
    /// [`Error::TooMuch`](super::Error::TooMuch) for more than 64 bytes; what the library says.
    pub fn send(&self, to: &DatagramRoute, data: &[u8]) -> Result<()> {
        let request = SendRequest::new(0, SendOperation::SendInline { data, imm: None });
        self.inner.post(&request, |wr| {
            wr.wr.ud.ah = to.handle.as_ptr();
            wr.wr.ud.remote_qpn = to.number;
            wr.wr.ud.remote_qkey = KEY;
        })
    }

    /// Hands over the datagrams that have arrived, a bounded number of them. Never waits.
    ///
    /// # Errors
    /// What the library says.
    pub fn receive(&self, mut take: impl FnMut(&[u8])) -> Result<()> {
        let completions = self.completions.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ends = Vec::new();
        completions.poll(&mut ends)?;
        for end in ends.into_iter().filter(super::Completion::is_receive) {
            let slot = end.id as usize;
            if let Ok(super::Done::Received { length, .. }) = end.outcome {
                let len = (length as usize).saturating_sub(HEADER).min(DATAGRAM);
                let at = slot * (HEADER + DATAGRAM) + HEADER;
                if let Some(memory) = self.memory.memory().host_address() {
                    // SAFETY: inside the memory; the device has written it, and writes no more until it is posted again.
                    take(unsafe { std::slice::from_raw_parts(memory.as_ptr().add(at), len) });
                }
            }
            self.post(slot)?;
        }
        Ok(())
    }

    fn post(&self, slot: usize) -> Result<()> {
        let at = slot * (HEADER + DATAGRAM);
        self.inner.post_receive(slot as u64, &[self.memory.slice(at..at + HEADER + DATAGRAM)?])
    }
}

impl fmt::Debug for Datagrams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Datagrams({:#x})", self.endpoint.qp_num)
    }
}

/// The way to a peer's [`Datagrams`].
///
/// See there for an example.
pub struct DatagramRoute {
    handle: NonNull<ibv_ah>,
    number: u32,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: libibverbs serialises the calls on a handle.
unsafe impl Send for DatagramRoute {}
// SAFETY: as above.
unsafe impl Sync for DatagramRoute {}

impl Drop for DatagramRoute {
    fn drop(&mut self) {
        let context = self.domain.context();
        // SAFETY: datagrams that are under way have taken the address along.
        let rc = unsafe { context.verbs().ibv_destroy_ah(self.handle.as_ptr()) };
        if rc != 0 {
            tracing::warn!(device = context.name(), rc, "ibv_destroy_ah failed");
        }
    }
}

impl fmt::Debug for DatagramRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatagramRoute({:#x})", self.number)
    }
}
