//! What the software NIC does for a queue pair: it finds the peer and wakes the engine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::address::QueuePairAddress;
use super::dial::Dial;
use super::direct::MapRequest;
use super::engine::{Command, Plan};
use super::instance::Inner;
use super::slot::{SharedSlot, SlotParts, Status};
use super::state::Machine;
use super::wire::PeerProcess;
use super::wire::frame::VERSION;
use super::wire::greeting::Greeting;
use super::wire::rdma::RdmaWire;
use super::wire::shm::Ring;
use crate::cuda::device::lock;
use crate::device::Device;
use crate::nic::address::Address;
use crate::nic::error::{Error, Result};
use crate::nic::options::QueuePairOptions;
use crate::nic::provider::Provider;
use crate::nic::queue_memory::QueueMemory;
use crate::nic::queue_pair::QueuePair;
use crate::nic::wire::WireKind;
use crate::wqe::Syndrome;

/// One end of a connection, in the hands of the engine. Dropping it sends the answers that the peer is waiting for and
/// says goodbye.
struct SoftProvider {
    nic: Arc<Inner>,
    own: QueuePairAddress,
    address: Address,
    /// What the peer writes, if it may be connected over shared memory.
    ring: Option<Ring>,
    status: Arc<Status>,
    slot: Arc<SharedSlot>,
    /// Whether what it sends goes over a socket.
    far: AtomicBool,
    patience: Duration,
}

/// Makes a queue pair and gives it to the engine.
pub(super) fn queue_pair(
    nic: Arc<Inner>,
    qpn: u32,
    device: &Device,
    options: &QueuePairOptions,
    mapper: Sender<MapRequest>,
) -> Result<QueuePair> {
    let memory = QueueMemory::new(device, options)?;
    let status = Arc::new(Status::default());
    let by_ring = matches!(options.wire, None | Some(WireKind::SharedMemory));
    let ring = by_ring.then(Ring::create).transpose()?;
    let mut token = [0; 8];
    rustix::rand::getrandom(&mut token, rustix::rand::GetRandomFlags::empty())
        .map_err(|e| crate::Error::os("getrandom", "a queue pair's secret", e))?;
    let token = u64::from_ne_bytes(token);
    let own = QueuePairAddress {
        version: VERSION,
        host: nic.host.clone(),
        qpn,
        token,
        pid: std::process::id(),
        ring: ring.as_ref().map(Ring::handle).transpose()?,
        tcp: nic.listens(),
        rdma: nic.rdma.as_ref().map(|port| port.endpoint()),
    };
    let door = nic.listener.as_ref().map(|listener| {
        listener.expect().map_err(|e| crate::Error::os("listen", listener.address(), e))
    });
    let slot = Arc::new(SharedSlot::new(SlotParts {
        qpn,
        token,
        machine: Machine::new(qpn, &memory, options)?,
        memory: memory.clone(),
        timeout: options.transport_timeout,
        status: status.clone(),
        map_peers: nic.map_peers,
        mapper,
        door: door.transpose()?,
    }));
    let mut keys = nic.shared.keys.write().unwrap_or_else(PoisonError::into_inner);
    keys.allow_silence(options.transport_timeout);
    drop(keys);
    nic.shared.command(Command::Add(slot.clone()));
    let address = Address::of_soft(own.clone());
    let patience = options.transport_timeout;
    let far = AtomicBool::new(false);
    let provider = Box::new(SoftProvider { nic, own, address, ring, status, slot, far, patience });
    QueuePair::new(qpn, device, options, memory, provider)
}

impl Provider for SoftProvider {
    fn address(&self) -> &Address {
        &self.address
    }

    fn connect(&self, peer: &Address, wire: Option<WireKind>) -> Result<()> {
        let qpn = self.own.qpn;
        let refused = |why: String| Error::Connect { qpn, why, process: None };
        let remote = peer.soft().map_err(refused)?;
        if remote.version != VERSION {
            return Err(refused(format!(
                "the peer speaks version {} of the format, this side version {VERSION}",
                remote.version
            )));
        }
        let own = Greeting { qpn: remote.qpn, to: remote.token, from: self.own.token };
        let peers = Greeting { qpn, to: self.own.token, from: remote.token };
        let wire = wire.unwrap_or_else(|| self.own.wire_to(remote));
        self.far.store(wire == WireKind::Tcp, Ordering::Relaxed);
        let plan = match wire {
            WireKind::SharedMemory => {
                let pid = remote.pid();
                let without = || refused("one of the two was made for another wire".into());
                let inbound = self.ring.clone().ok_or_else(without)?;
                let handle = remote.ring.as_ref().ok_or_else(without)?;
                let outbound = Ring::open(handle).map_err(|error| Error::Connect {
                    qpn,
                    why: error.to_string(),
                    process: Some(pid),
                })?;
                Plan::Shm { inbound, outbound, pid }
            }
            WireKind::Tcp if self.own.token == remote.token => {
                return Err(refused("a queue pair has no TCP connection to itself".into()));
            }
            // One of the two dials; both know which.
            WireKind::Tcp if self.own.token < remote.token => {
                let to = remote.tcp.ok_or_else(|| {
                    refused("the peer's NIC does not listen: its option `listen` is not set".into())
                })?;
                Plan::Dial(Dial::new(to, own, peers))
            }
            WireKind::Tcp => {
                if self.own.tcp.is_none() {
                    return Err(refused(
                        "this NIC does not listen: its option `listen` is not set".into(),
                    ));
                }
                Plan::Await { expected: peers, greeting: own }
            }
            WireKind::Rdma => {
                let without = |whose: &str| {
                    refused(format!("{whose} NIC has no RDMA device: its option `rdma` is not set"))
                };
                let port = self.nic.rdma.as_ref().ok_or_else(|| without("this"))?;
                let peer = remote.rdma.ok_or_else(|| without("the peer's"))?;
                let near = remote.host == self.own.host;
                let process = near.then(|| PeerProcess::new(remote.pid()));
                let (greetings, patience) = ((own, peers), self.patience);
                let wire = RdmaWire::new(port, peer, greetings, patience, process)?;
                Plan::Rdma(Box::new(wire))
            }
        };
        self.nic.shared.command(Command::Connect { qpn, plan });
        Ok(())
    }

    fn is_connected(&self) -> bool {
        self.status.wanted.store(true, Ordering::Relaxed);
        self.status.up.load(Ordering::Acquire)
    }

    fn lost(&self) -> Option<String> {
        lock(&self.status.lost).clone()
    }

    fn cause(&self) -> Option<Syndrome> {
        self.status.cause.get().copied()
    }

    fn rung(&self, hurry: bool) {
        let shared = &self.nic.shared;
        if !hurry && self.far.load(Ordering::Relaxed) && shared.is_helped(Instant::now()) {
            self.status.along.store(true, Ordering::Relaxed);
            return;
        }
        if !self.slot.execute(&shared.keys, shared.is_of_the_cpu()) {
            shared.wake();
        }
    }

    fn progress(&self) {
        self.nic.help();
    }

    fn stopped(&self) -> Option<Error> {
        self.nic.shared.ended.load(Ordering::Acquire).then_some(Error::Stopped)
    }
}

impl Drop for SoftProvider {
    fn drop(&mut self) {
        self.nic.shared.command(Command::Close { qpn: self.own.qpn });
    }
}
