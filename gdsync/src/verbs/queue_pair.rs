//! A reliable connected queue pair. Its state is its type: Reset → Init → ReadyToReceive → ReadyToSend.

use super::completion_queue::CompletionQueue;
use super::endpoint::Endpoint;
use super::error::{Error, Result, last_errno, returned_errno};
use super::in_flight::{Kind, MAX_SEGMENTS, Queues};
use super::memory_region::{Access, RegionSlice};
use super::port::{GidEntry, LinkLayer, Port};
use super::post::{Pieces, Room, SendRequest, translate};
use super::protection_domain::ProtectionDomain;
use super::shared_receives::SharedReceiveQueue;
use gdsync_sys::verbs::{
    IBV_QP_ACCESS_FLAGS, IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_MAX_DEST_RD_ATOMIC,
    IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT,
    IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT,
    IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPT_RC, ibv_ah_attr, ibv_gid, ibv_qp,
    ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr, ibv_qp_type, ibv_recv_wr, ibv_send_wr,
};
use gdsync_sys::{ibv_post_recv, ibv_post_send};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::time::Duration;

/// How long a sender is told to wait for a receive: 0.64 ms (code 12 of the InfiniBand specification, table 45).
const NOT_READY_TIMER: u8 = 12;

/// Hops that a packet may take over routers, as far as IP's default reaches.
const HOP_LIMIT: u8 = 64;

/// Reads and atomics that are worth having under way at once.
const MAX_READS: u8 = 16;

/// What a queue pair is made for.
///
/// See [`verbs`](super) for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePairOptions {
    /// Requests that the send queue holds.
    pub send_depth: u32,
    /// Receives that the receive queue holds.
    pub receive_depth: u32,
    /// Pieces of memory of a request, at most 4.
    pub segments: u32,
    /// Bytes of inline data of a request.
    pub inline: u32,
}

impl Default for QueuePairOptions {
    fn default() -> Self {
        Self { send_depth: 64, receive_depth: 64, segments: 1, inline: 64 }
    }
}

/// When a sender gives up on its peer.
///
/// ```
/// use std::time::Duration;
///
/// use gdsync::verbs::RetryPolicy;
///
/// // Gives a silent peer up after some 60 ms.
/// let impatient = RetryPolicy { timeout: Duration::from_millis(20), retries: 2, ..RetryPolicy::default() };
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// How long an acknowledgement may take. Rounded up to 4.096 µs × 2ⁿ, n from 1 to 31. A device may wait four
    /// times as long.
    pub timeout: Duration,
    /// How often to send again after that, at most 7. To rdma_rxe 7 means for ever.
    pub retries: u8,
    /// How often to send again when the peer had no receive posted, 0 to 6; 7 for ever. After 0.64 ms or what the peer
    /// asks for.
    pub not_ready_retries: u8,
}

impl Default for RetryPolicy {
    /// Gives up on a silent peer after 7 tries of about a second.
    fn default() -> Self {
        Self { timeout: Duration::from_secs(1), retries: 6, not_ready_retries: 6 }
    }
}

impl RetryPolicy {
    /// The exponent n of the timeout.
    fn exponent(&self) -> u8 {
        let timeout = |n: u8| Duration::from_nanos(4096) * (1 << n);
        (1..31).find(|n| timeout(*n) >= self.timeout).unwrap_or(31)
    }
}

/// Just made. Nothing can be posted.
///
/// See [`verbs`](super) for an example.
#[derive(Debug)]
pub struct Reset(());

/// Has a port. Receives may be posted; they are filled once it is connected.
///
/// See [`verbs`](super) for an example.
#[derive(Debug)]
pub struct Init {
    local: Endpoint,
    route: Route,
}

/// How its packets go.
#[derive(Debug)]
pub(super) struct Route {
    device: String,
    port: u8,
    gid: GidEntry,
    service_level: u8,
    traffic_class: u8,
}

impl Route {
    pub(super) fn of(port: &Port) -> Result<Route> {
        let device = port.context.name().to_owned();
        let Some(gid) = port.gid else {
            let (port, wanted, table) = (port.number, None, Vec::new());
            return Err(Error::NoGid { device, port, wanted, table });
        };
        let Port { number, service_level, traffic_class, .. } = *port;
        Ok(Route { device, port: number, gid, service_level, traffic_class })
    }

    /// From one end to another.
    pub(super) fn to(&self, local: &Endpoint, peer: &Endpoint) -> Result<ibv_ah_attr> {
        if local.link_layer != peer.link_layer {
            let (ours, theirs) = (local.link_layer, peer.link_layer);
            return Err(Error::LinkLayer { device: self.device.clone(), ours, theirs });
        }
        let mut attr = ibv_ah_attr {
            port_num: self.port,
            sl: self.service_level,
            dlid: peer.lid,
            ..ibv_ah_attr::default()
        };
        if needs_global_route(local, peer) {
            attr.is_global = 1;
            attr.grh.dgid = ibv_gid { raw: peer.gid.0 };
            attr.grh.hop_limit = HOP_LIMIT;
            attr.grh.traffic_class = self.traffic_class;
            let index = self.gid.index;
            attr.grh.sgid_index = u8::try_from(index).map_err(|_| Error::TooMuch {
                what: "index of a GID",
                found: index.into(),
                most: u8::MAX.into(),
            })?;
        }
        Ok(attr)
    }
}

/// Knows its peer and receives from it.
///
/// See [`verbs`](super) for an example.
#[derive(Debug)]
pub struct ReadyToReceive {
    local: Endpoint,
    peer: Endpoint,
}

/// Connected: sends and receives.
///
/// See [`verbs`](super) for an example.
#[derive(Debug)]
pub struct ReadyToSend {
    local: Endpoint,
    peer: Endpoint,
}

mod sealed {
    pub trait Sealed {
        fn local(&self) -> &super::Endpoint;
    }
}

/// The states in which receives may be posted: all but [`Reset`].
///
/// See [`verbs`](super) for an example.
pub trait CanReceive: sealed::Sealed {}

macro_rules! can_receive {
    ($($state:ident),*) => {$(
        impl sealed::Sealed for $state {
            fn local(&self) -> &Endpoint {
                &self.local
            }
        }
        impl CanReceive for $state {}
    )*};
}
can_receive!(Init, ReadyToReceive, ReadyToSend);

/// A reliable connected queue pair in the state `S`. Destroyed when dropped, whatever is in flight.
///
/// A step that fails takes the queue pair with it.
///
/// See [`verbs`](super) for an example.
#[derive(Debug)]
pub struct QueuePair<S> {
    inner: Inner,
    state: S,
}

/// What all states share.
pub(super) struct Inner {
    pub(super) pair: NonNull<ibv_qp>,
    number: u32,
    options: QueuePairOptions,
    pub(super) domain: Arc<ProtectionDomain>,
    send_completions: Arc<CompletionQueue>,
    receive_completions: Arc<CompletionQueue>,
    _shared: Option<Arc<SharedReceiveQueue>>,
    /// Last: the memory of requests in flight is let go after the queue pair is destroyed.
    pub(super) queues: Arc<Queues>,
}

// SAFETY: libibverbs serialises the calls on a queue pair.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl QueuePair<Reset> {
    pub(super) fn create(
        domain: &Arc<ProtectionDomain>,
        shared: Option<&Arc<SharedReceiveQueue>>,
        send_completions: &Arc<CompletionQueue>,
        receive_completions: &Arc<CompletionQueue>,
        options: &QueuePairOptions,
    ) -> Result<Self> {
        let completions = (send_completions, receive_completions);
        let inner = Inner::create(IBV_QPT_RC, domain, shared, completions, options)?;
        Ok(Self { inner, state: Reset(()) })
    }

    /// Gives it a port of its device. `access` is what the peer may do through it, within what each region allows.
    ///
    /// # Errors
    /// If the port has no GID, or what the kernel says.
    pub fn init(self, port: &Port, access: Access) -> Result<QueuePair<Init>> {
        let route = Route::of(port)?;
        let mut attr = ibv_qp_attr {
            qp_state: IBV_QPS_INIT,
            port_num: port.number,
            pkey_index: port.pkey_index,
            qp_access_flags: access.bits(),
            ..ibv_qp_attr::default()
        };
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        self.inner.modify(&mut attr, mask, "reset to init")?;
        let local = self.inner.endpoint(port, &route);
        Ok(QueuePair { inner: self.inner, state: Init { local, route } })
    }
}

impl QueuePair<Init> {
    /// Makes it receive from `peer`.
    ///
    /// # Errors
    /// If the peer's port is of another kind, or what the kernel says, for example that there is no route.
    pub fn connect(self, peer: &Endpoint) -> Result<QueuePair<ReadyToReceive>> {
        let Init { local, route } = self.state;
        let mut attr = ibv_qp_attr {
            qp_state: IBV_QPS_RTR,
            path_mtu: local.mtu.min(peer.mtu).number(),
            dest_qp_num: peer.qp_num,
            rq_psn: peer.psn,
            max_dest_rd_atomic: local.incoming_reads,
            min_rnr_timer: NOT_READY_TIMER,
            ..ibv_qp_attr::default()
        };
        attr.ah_attr = route.to(&local, peer)?;
        let mask = IBV_QP_STATE
            | IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER;
        self.inner.modify(&mut attr, mask, "init to ready-to-receive")?;
        Ok(QueuePair { inner: self.inner, state: ReadyToReceive { local, peer: *peer } })
    }
}

/// Whether packets need a global route header: always on Ethernet; on InfiniBand between subnets, or where a port has
/// no LID.
fn needs_global_route(local: &Endpoint, peer: &Endpoint) -> bool {
    local.link_layer == LinkLayer::Ethernet
        || local.lid == 0
        || peer.lid == 0
        || local.gid.subnet() != peer.gid.subnet()
}

impl QueuePair<ReadyToReceive> {
    /// Makes it send, too.
    ///
    /// # Errors
    /// If a number of retries is too large, or what the kernel says.
    pub fn ready_to_send(self, policy: &RetryPolicy) -> Result<QueuePair<ReadyToSend>> {
        let ReadyToReceive { local, peer } = self.state;
        for (what, found, most) in [
            ("retries", policy.retries, 7),
            ("retries of a receiver that is not ready", policy.not_ready_retries, 7),
        ] {
            if found > most {
                let (found, most) = (found.into(), most.into());
                return Err(Error::TooMuch { what, found, most });
            }
        }
        let outgoing = self.inner.domain.context().limits().outgoing_reads.min(MAX_READS);
        let mut attr = ibv_qp_attr {
            qp_state: IBV_QPS_RTS,
            timeout: policy.exponent(),
            retry_cnt: policy.retries,
            rnr_retry: policy.not_ready_retries,
            sq_psn: local.psn,
            max_rd_atomic: outgoing.min(peer.incoming_reads),
            ..ibv_qp_attr::default()
        };
        let mask = IBV_QP_STATE
            | IBV_QP_TIMEOUT
            | IBV_QP_RETRY_CNT
            | IBV_QP_RNR_RETRY
            | IBV_QP_SQ_PSN
            | IBV_QP_MAX_QP_RD_ATOMIC;
        self.inner.modify(&mut attr, mask, "ready-to-receive to ready-to-send")?;
        Ok(QueuePair { inner: self.inner, state: ReadyToSend { local, peer } })
    }
}

impl QueuePair<ReadyToSend> {
    /// Posts a request. Requests start in the order of posting; the buffers they name are in use until the completion,
    /// or that of a later request of this queue pair.
    ///
    /// # Errors
    /// [`Error::QueueFull`]: poll and post again; [`Error::TooMuch`]: more than the queue pair was made for.
    pub fn post(&self, request: &SendRequest<'_>) -> Result<()> {
        self.inner.post(request, |_| {})
    }

    /// The peer it is connected to.
    #[must_use]
    pub fn peer(&self) -> &Endpoint {
        &self.state.peer
    }
}

impl<S: CanReceive> QueuePair<S> {
    /// What the peer must know to connect to it.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        *self.state.local()
    }

    /// Posts a receive for one message, piece by piece into `into`; none for a write with immediate. The memory is in
    /// use until the completion.
    ///
    /// # Errors
    /// As [`QueuePair::post`].
    pub fn post_receive(&self, id: u64, into: &[RegionSlice]) -> Result<()> {
        self.inner.post_receive(id, into)
    }

    /// Moves it to the error state: everything in flight completes as flushed, and nothing is executed any more.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn abort(&self) -> Result<()> {
        let mut attr = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..ibv_qp_attr::default() };
        self.inner.modify(&mut attr, IBV_QP_STATE, "to the error state")
    }
}

impl<S> QueuePair<S> {
    /// Its number, of 24 bits.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.inner.number
    }

    /// What it was made for.
    #[must_use]
    pub fn options(&self) -> &QueuePairOptions {
        &self.inner.options
    }
}

impl Inner {
    pub(super) fn create(
        kind: ibv_qp_type,
        domain: &Arc<ProtectionDomain>,
        shared: Option<&Arc<SharedReceiveQueue>>,
        (send_completions, receive_completions): (&Arc<CompletionQueue>, &Arc<CompletionQueue>),
        options: &QueuePairOptions,
    ) -> Result<Self> {
        if options.segments as usize > MAX_SEGMENTS {
            let (found, most) = (options.segments.into(), MAX_SEGMENTS as u64);
            return Err(Error::TooMuch { what: "pieces of a request", found, most });
        }
        let context = domain.context();
        let mut attr = ibv_qp_init_attr {
            send_cq: send_completions.as_ptr(),
            recv_cq: receive_completions.as_ptr(),
            srq: shared.map_or(null_mut(), |shared| shared.as_ptr()),
            cap: ibv_qp_cap {
                max_send_wr: options.send_depth,
                max_recv_wr: options.receive_depth,
                max_send_sge: options.segments,
                max_recv_sge: options.segments,
                max_inline_data: options.inline,
            },
            qp_type: kind,
            ..ibv_qp_init_attr::default()
        };
        // SAFETY: the domain and the completion queues are alive, and the new queue pair keeps them so.
        let pair = unsafe { context.verbs().ibv_create_qp(domain.as_ptr(), &mut attr) };
        let pair = NonNull::new(pair).ok_or_else(|| {
            context.failed("ibv_create_qp", &format!("{options:?}"), last_errno())
        })?;
        // SAFETY: the queue pair is alive.
        let number = unsafe { pair.as_ref().qp_num };
        let receives = shared.map(|shared| shared.receives.clone());
        let queues = Queues::new(options.send_depth, options.receive_depth, receives);
        let queues = Arc::new(queues);
        send_completions.add(number, &queues);
        receive_completions.add(number, &queues);
        Ok(Self {
            pair,
            number,
            options: *options,
            domain: domain.clone(),
            send_completions: send_completions.clone(),
            receive_completions: receive_completions.clone(),
            _shared: shared.cloned(),
            queues,
        })
    }

    pub(super) fn modify(&self, attr: &mut ibv_qp_attr, mask: u32, step: &str) -> Result<()> {
        let context = self.domain.context();
        // SAFETY: the queue pair is alive.
        let rc = unsafe { context.verbs().ibv_modify_qp(self.pair.as_ptr(), attr, mask as i32) };
        context.check("ibv_modify_qp", rc, &format!("queue pair {:#x}, {step}", self.number))
    }

    pub(super) fn endpoint(&self, port: &Port, route: &Route) -> Endpoint {
        Endpoint {
            qp_num: self.number,
            // Another one each time, so that packets of an earlier connection are not taken for this one's.
            psn: RandomState::new().hash_one(self.number) as u32 & 0x00ff_ffff,
            incoming_reads: self.domain.context().limits().incoming_reads.min(MAX_READS),
            link_layer: port.link_layer,
            mtu: port.mtu,
            lid: port.lid,
            gid: route.gid.gid,
        }
    }

    pub(super) fn room(&self) -> Room {
        let QueuePairOptions { segments, inline, .. } = self.options;
        Room { segments: segments as usize, inline: inline as usize }
    }

    pub(super) fn post_receive(&self, id: u64, into: &[RegionSlice]) -> Result<()> {
        let mut pieces = Pieces::new(into, self.room())?;
        let mut queue = self.queues.receive();
        let depth = self.options.receive_depth;
        let number = queue.push(id, Kind::Receive, pieces.take_held());
        let number = number.ok_or_else(|| self.full("receive", depth))?;
        let (sg_list, num_sge) = pieces.sges();
        let mut wr = ibv_recv_wr { wr_id: number, next: null_mut(), sg_list, num_sge };
        let mut bad = null_mut();
        // SAFETY: as in `post`.
        let rc = unsafe { ibv_post_recv(self.pair.as_ptr(), &mut wr, &mut bad) };
        if rc != 0 {
            queue.undo();
            return Err(self.not_posted("ibv_post_recv", "receive", depth, rc));
        }
        Ok(())
    }

    /// Posts a request, which `direct` may complete.
    pub(super) fn post(
        &self,
        request: &SendRequest<'_>,
        direct: impl FnOnce(&mut ibv_send_wr),
    ) -> Result<()> {
        let (mut wr, mut pieces, kind) = translate(request, self.room())?;
        direct(&mut wr);
        // Held while posting, so that the order here is that of the queue.
        let mut queue = self.queues.send();
        let depth = self.options.send_depth;
        let number = queue.push(request.id, kind, pieces.take_held());
        wr.wr_id = number.ok_or_else(|| self.full("send", depth))?;
        (wr.sg_list, wr.num_sge) = pieces.sges();
        let mut bad = null_mut();
        // SAFETY: the request and its pieces live across the call; the memory behind the pieces is held in the queue.
        let rc = unsafe { ibv_post_send(self.pair.as_ptr(), &mut wr, &mut bad) };
        if rc != 0 {
            queue.undo();
            return Err(self.not_posted("ibv_post_send", "send", depth, rc));
        }
        Ok(())
    }

    fn full(&self, queue: &'static str, depth: u32) -> Error {
        Error::QueueFull { queue, qp_num: self.number, depth }
    }

    fn not_posted(&self, call: &'static str, queue: &'static str, depth: u32, rc: i32) -> Error {
        match returned_errno(rc) {
            rustix::io::Errno::NOMEM => self.full(queue, depth),
            source => {
                let what = format!("queue pair {:#x}", self.number);
                self.domain.context().failed(call, &what, source)
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // First, because a new queue pair may get the number as soon as this one is destroyed.
        self.send_completions.remove(self.number);
        self.receive_completions.remove(self.number);
        let context = self.domain.context();
        // SAFETY: nobody else has the pointer; the memory of requests in flight is let go after this.
        let rc = unsafe { context.verbs().ibv_destroy_qp(self.pair.as_ptr()) };
        if rc != 0 {
            tracing::warn!(device = context.name(), rc, "ibv_destroy_qp failed");
        }
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x} of {}", self.number, self.domain.context().name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::{Gid, Mtu};

    #[test]
    fn a_timeout_is_rounded_up_to_a_power_of_two_of_4096_ns() {
        let exponent = |timeout| RetryPolicy { timeout, ..RetryPolicy::default() }.exponent();
        assert_eq!(exponent(Duration::ZERO), 1);
        assert_eq!(exponent(Duration::from_nanos(8192)), 1);
        assert_eq!(exponent(Duration::from_nanos(8193)), 2);
        assert_eq!(exponent(Duration::from_secs(1)), 18);
        assert_eq!(exponent(Duration::from_secs(1 << 40)), 31);
    }

    #[test]
    fn packets_get_a_global_route_on_ethernet_and_between_subnets() {
        let end = |link_layer, lid, subnet: u8| Endpoint {
            qp_num: 1,
            psn: 2,
            incoming_reads: 1,
            link_layer,
            mtu: Mtu::from_number(3).unwrap(),
            lid,
            gid: Gid([subnet; 16]),
        };
        let (ib, roce) = (LinkLayer::InfiniBand, LinkLayer::Ethernet);
        assert!(!needs_global_route(&end(ib, 3, 1), &end(ib, 4, 1)));
        assert!(needs_global_route(&end(ib, 3, 1), &end(ib, 4, 2)), "another subnet");
        assert!(needs_global_route(&end(ib, 3, 1), &end(ib, 0, 1)), "no LID");
        assert!(needs_global_route(&end(roce, 0, 1), &end(roce, 0, 1)));
    }
}
