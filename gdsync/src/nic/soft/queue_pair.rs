//! A queue pair of the software NIC: [`GpuQueuePair`] plus how it finds its peer.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use super::address::QueuePairAddress;
use super::direct::MapRequest;
use super::engine::{Command, Plan};
use super::nic::Inner;
use super::slot::{Slot, SlotParts, Status};
use super::state::Machine;
use super::wire::WireKind;
use super::wire::frame::VERSION;
use super::wire::shm::Ring;
use super::wire::tcp::Greeting;
use crate::cuda::device::lock;
use crate::deadline::Deadline;
use crate::device::Device;
use crate::nic::error::{Error, Result};
use crate::nic::options::QueuePairOptions;
use crate::nic::queue_memory::QueueMemory;
use crate::nic::queue_pair::{GpuQueuePair, Provider};

/// A queue pair of the software NIC. Dropping it sends the answers that its peer is waiting for and says goodbye;
/// requests of its own that are not complete are given up.
pub struct SoftQueuePair {
    queues: GpuQueuePair,
    nic: Arc<Inner>,
    address: QueuePairAddress,
    ring: Ring,
    status: Arc<Status>,
}

struct Engine {
    nic: Arc<Inner>,
    status: Arc<Status>,
}

impl Provider for Engine {
    fn rung(&self) {
        self.nic.shared.wake();
    }

    fn detail(&self) -> String {
        match &*lock(&self.status.lost) {
            Some(why) => format!(" (the peer was lost: {why})"),
            None => String::new(),
        }
    }

    fn stopped(&self) -> Option<Error> {
        self.nic.shared.ended.load(Ordering::Acquire).then_some(Error::Stopped)
    }
}

impl SoftQueuePair {
    pub(super) fn new(
        nic: Arc<Inner>,
        qpn: u32,
        device: &Device,
        options: &QueuePairOptions,
        mapper: Sender<MapRequest>,
    ) -> Result<SoftQueuePair> {
        let memory = QueueMemory::new(device, options)?;
        let status = Arc::new(Status::default());
        let provider = Arc::new(Engine { nic: nic.clone(), status: status.clone() });
        let queues = GpuQueuePair::new(qpn, device, options, memory.clone(), provider)?;
        let ring = Ring::create()?;
        let mut token = [0; 8];
        rustix::rand::getrandom(&mut token, rustix::rand::GetRandomFlags::empty())
            .map_err(|e| crate::Error::os("getrandom", "a queue pair's secret", e))?;
        let token = u64::from_ne_bytes(token);
        let address = QueuePairAddress {
            version: VERSION,
            host: nic.host.clone(),
            qpn,
            token,
            ring: ring.handle()?,
            tcp: nic.listens,
        };
        let slot = Slot::new(SlotParts {
            qpn,
            token,
            machine: Machine::new(qpn, &memory, options)?,
            memory,
            timeout: options.transport_timeout,
            status: status.clone(),
            map_peers: nic.map_peers,
            mapper,
        });
        nic.shared.command(Command::Add(Box::new(slot)));
        Ok(SoftQueuePair { queues, nic, address, ring, status })
    }

    /// Where peers find it.
    pub fn address(&self) -> &QueuePairAddress {
        &self.address
    }

    /// Connects it to the queue pair at `remote`, over the wire that both sides choose by themselves
    /// ([`QueuePairAddress::wire_to`]). Returns at once; the peer connects, too, and requests that are posted before
    /// it has done so wait for it, at most the transport timeout.
    ///
    /// # Errors
    /// [`Error::Connect`] if the two cannot be connected.
    pub fn connect(&self, remote: &QueuePairAddress) -> Result<()> {
        self.connect_over(remote, self.address.wire_to(remote))
    }

    /// The same over a given wire, which the peer must choose, too.
    ///
    /// # Errors
    /// As [`SoftQueuePair::connect`].
    pub fn connect_over(&self, remote: &QueuePairAddress, wire: WireKind) -> Result<()> {
        let qpn = self.address.qpn;
        let refused = |why: String| Error::Connect { qpn, why };
        if remote.version != VERSION {
            return Err(refused(format!(
                "the peer speaks version {} of the format, this side version {VERSION}",
                remote.version
            )));
        }
        let own = Greeting { qpn: remote.qpn, to: remote.token, from: self.address.token };
        let peers = Greeting { qpn, to: self.address.token, from: remote.token };
        let plan = match wire {
            WireKind::SharedMemory => {
                let outbound =
                    Ring::open(&remote.ring).map_err(|error| refused(error.to_string()))?;
                Plan::Shm { inbound: self.ring.clone(), outbound, pid: remote.pid() }
            }
            WireKind::Tcp if self.address.token == remote.token => {
                return Err(refused("a queue pair has no TCP connection to itself".into()));
            }
            // One of the two dials; both know which.
            WireKind::Tcp if self.address.token < remote.token => {
                let to = remote.tcp.ok_or_else(|| {
                    refused("the peer's NIC does not listen: its option `listen` is not set".into())
                })?;
                Plan::Dial { to, greeting: own, expected: peers }
            }
            WireKind::Tcp => {
                if self.address.tcp.is_none() {
                    return Err(refused(
                        "this NIC does not listen: its option `listen` is not set".into(),
                    ));
                }
                Plan::Await { expected: peers, greeting: own }
            }
        };
        self.nic.shared.command(Command::Connect { qpn, plan });
        Ok(())
    }

    /// Waits until the peer has connected, too.
    ///
    /// # Errors
    /// [`Error::Lost`] if it never will; [`Error::Timeout`].
    pub fn wait_connected(&self, deadline: Deadline) -> Result<()> {
        let qpn = self.address.qpn;
        let connected = deadline.poll(|| {
            if self.status.up.load(Ordering::Acquire) {
                return Some(Ok(()));
            }
            let lost = lock(&self.status.lost).clone();
            lost.map(|why| Err(Error::Lost { qpn, why }))
        });
        connected.unwrap_or_else(|| {
            Err(Error::Timeout {
                qpn,
                what: "connecting".into(),
                after: deadline.timeout(),
                detail: String::new(),
            })
        })
    }

    /// Why the peer cannot be reached any more, if so.
    pub fn lost(&self) -> Option<String> {
        lock(&self.status.lost).clone()
    }
}

impl Deref for SoftQueuePair {
    type Target = GpuQueuePair;
    fn deref(&self) -> &GpuQueuePair {
        &self.queues
    }
}

impl Drop for SoftQueuePair {
    fn drop(&mut self) {
        self.nic.shared.command(Command::Close { qpn: self.address.qpn });
    }
}

impl std::fmt::Debug for SoftQueuePair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SoftQueuePair").field("queues", &self.queues).finish_non_exhaustive()
    }
}
