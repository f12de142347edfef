//! A software NIC: its options, its life, and what is made from it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::address::HostId;
use super::direct::start_mapper;
use super::door::Listener;
use super::engine::{self, Engine, Shared, Sockets};
use super::instance::Inner;
use super::keys::RegionMemory;
use super::queue_pair::queue_pair;
use super::rdma::RdmaPort;
use super::region::region;
use crate::cuda::device::lock;
use crate::device::Device;
use crate::memory::Buffer;
use crate::nic::error::{Error, Result};
use crate::nic::memory_region::{Access, MemoryRegion};
use crate::nic::options::QueuePairOptions;
use crate::nic::queue_pair::QueuePair;
use crate::nic::wire::WireKind;
use crate::nic::{Capabilities, Nic};
use crate::verbs::RdmaOptions;
use crate::wqe::MAX_QPN;

/// Options of a software NIC.
///
/// See [`soft`](super) for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SoftNicOptions {
    /// The core that its thread runs on; any, if there is none.
    pub core: Option<usize>,
    /// Where it listens for peers on other hosts: an address of this host that they reach, and a port, 0 for any.
    pub listen: Option<SocketAddr>,
    /// The RDMA device that it sends through to peers on other hosts which have one, too.
    pub rdma: Option<RdmaOptions>,
    /// How long its thread spins without work before it sleeps.
    pub spin: Duration,
    /// Whether memory of peers on this host is mapped, so that writes, reads and atomics are one copy.
    pub map_peers: bool,
}

impl Default for SoftNicOptions {
    fn default() -> Self {
        SoftNicOptions {
            core: None,
            listen: None,
            rdma: None,
            spin: Duration::from_micros(200),
            map_peers: true,
        }
    }
}

/// A NIC in software. Clones share it; it ends with the last clone, queue pair and region.
///
/// See [`soft`](super) for an example.
#[derive(Clone)]
pub struct SoftNic {
    inner: Arc<Inner>,
}

/// Number of the first queue pair; on hardware, too, the lowest are the system's own.
const FIRST_QPN: u32 = 0x40;

impl SoftNic {
    /// Starts one.
    ///
    /// # Errors
    /// An option out of range; an address that cannot be listened at; no such RDMA device or port; what the system says.
    pub fn open(options: &SoftNicOptions) -> Result<SoftNic> {
        let os = |call, what: &str, error: std::io::Error| {
            Error::Device(crate::Error::Os {
                call,
                what: what.to_owned(),
                message: error.to_string(),
            })
        };
        let listener = match options.listen {
            None => None,
            Some(address) if address.ip().is_unspecified() => {
                return Err(Error::Option {
                    option: "listen",
                    value: address.to_string(),
                    expected: "expected an address that peers can reach",
                });
            }
            Some(address) => {
                let bound = Listener::bind(address);
                Some(Arc::new(bound.map_err(|e| os("bind", &address.to_string(), e))?))
            }
        };
        let rdma = options.rdma.as_ref().map(RdmaPort::open).transpose()?;
        let sockets =
            Sockets::new(listener.as_deref()).map_err(|e| os("epoll_create", "the NIC", e))?;
        let shared = Arc::new(Shared::new());
        let mapper =
            start_mapper(shared.clone()).map_err(|e| os("clone", "the mapper thread", e))?;
        let engine = Arc::new(Mutex::new(Engine::new(shared.clone(), sockets)));
        let (threads, core, spin) = (engine.clone(), options.core, options.spin);
        if let Some(core) = core {
            check_core(core)?;
        }
        let thread = std::thread::Builder::new()
            .name("mp-nic".into())
            .spawn(move || {
                if let Some(core) = core {
                    pin(core);
                }
                engine::run(&threads, spin);
            })
            .map_err(|e| os("clone", "the NIC's thread", e))?;
        let mut wires = vec![WireKind::SharedMemory];
        wires.extend(listener.as_ref().map(|_| WireKind::Tcp));
        wires.extend(rdma.as_ref().map(|_| WireKind::Rdma));
        let capabilities =
            Capabilities { name: "the software NIC".into(), wires, gpu_atomics: false };
        Ok(SoftNic {
            inner: Arc::new(Inner {
                capabilities,
                shared,
                engine,
                host: HostId::own()?,
                listener,
                rdma,
                map_peers: options.map_peers,
                mapper: Mutex::new(mapper),
                thread: Mutex::new(Some(thread)),
                next_qpn: AtomicU32::new(FIRST_QPN),
            }),
        })
    }

    /// Where it listens, if it does: while a queue pair is not connected.
    pub fn listens(&self) -> Option<SocketAddr> {
        self.inner.listens()
    }
}

impl Nic for SoftNic {
    fn capabilities(&self) -> &Capabilities {
        &self.inner.capabilities
    }

    /// As [`Nic::register`]. A GPU's own memory is copied by the NIC's thread, on copy engines only: straight to and from
    /// GPU memory of peers that it can map, through a small pinned pool otherwise. It allows no atomics of peers.
    ///
    /// With an RDMA device that carries out requests itself ([`ZeroCopy`](crate::verbs::ZeroCopy)), memory is registered with
    /// that, too; what it does not take, for example for want of locked memory, goes by messages.
    fn register(&self, memory: &Buffer<u8>, access: Access) -> Result<MemoryRegion> {
        let refused = |why| Error::Register {
            nic: self.inner.capabilities.name.clone(),
            what: format!("{} memory of {}", memory.space(), memory.device()),
            why,
        };
        let address = memory.device_address().or(memory.host_address().map(|a| a.as_ptr() as u64));
        let address = address.ok_or_else(|| refused("it has no address"))?;
        // What peers cannot map, frames carry.
        let handle = memory.export().ok();
        let bytes = memory.clone();
        let registered = match memory.device() {
            Device::Cuda(gpu) if memory.host_address().is_none() => {
                if access.includes(Access::REMOTE_ATOMIC) {
                    let why = "atomics on a GPU's own memory are not atomic for the GPU; leave \
                               REMOTE_ATOMIC out, or use pinned memory";
                    return Err(refused(why));
                }
                let copies = self.inner.shared.copies(gpu)?;
                let owner = Some(gpu.ordinal());
                RegionMemory::of_gpu(bytes, address, access, handle, copies, owner)
            }
            _ => RegionMemory::new(bytes, address, access, handle),
        };
        let by_device = self.inner.rdma.as_ref().and_then(|port| port.register(memory, access));
        let registered = registered.ok_or_else(|| refused("it has no address"))?;
        let registered = Arc::new(registered.reached_by(by_device));
        let mut keys = self.inner.shared.keys.write().unwrap_or_else(PoisonError::into_inner);
        let key = keys.insert(registered.clone(), Instant::now());
        let key = key.ok_or_else(|| refused("no keys are left"))?;
        drop(keys);
        Ok(region(self.inner.clone(), key, &registered))
    }

    fn queue_pair(&self, device: &Device, options: &QueuePairOptions) -> Result<QueuePair> {
        if self.inner.shared.ended.load(Ordering::Acquire) {
            return Err(Error::Stopped);
        }
        let qpn = self.inner.next_qpn.fetch_add(1, Ordering::Relaxed);
        if qpn > MAX_QPN {
            return Err(Error::Option {
                option: "the number of queue pairs",
                value: qpn.to_string(),
                expected: "a NIC makes at most 2^24",
            });
        }
        let mapper = lock(&self.inner.mapper).clone();
        queue_pair(self.inner.clone(), qpn, device, options, mapper)
    }

    fn progress(&self) {
        self.inner.help();
    }
}

impl std::fmt::Debug for SoftNic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SoftNic").field("listens", &self.inner.listens()).finish_non_exhaustive()
    }
}

fn check_core(core: usize) -> Result<()> {
    let allowed = rustix::thread::sched_getaffinity(None)
        .map_err(|e| crate::Error::os("sched_getaffinity", "the process", e))?;
    if core < rustix::thread::CpuSet::MAX_CPU && allowed.is_set(core) {
        return Ok(());
    }
    Err(Error::Option {
        option: "core",
        value: core.to_string(),
        expected: "expected a core that this process may run on",
    })
}

fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::warn!("the NIC's thread is not pinned to core {core}: {error}");
    }
}
