//! The nic path: ranks that have no memory in common reach each other's registered memory through queue pairs of the
//! NIC (`gdsync::nic::Nic`). The protocol is that of the direct path – the same words, epochs and notices – and
//! so is everything on the waiting side, which looks at its own memory. What differs is how a word or a buffer of the
//! *other* side is written: by requests of a [`Link`].
//!
//! * A mailbox ([`FarOutbox`]) is written slot by slot and then its count; the reader tells how far it has read in a word of
//!   its own mailbox at the writer.
//! * A message is one batch: write the bytes, raise the receiver's signal. Requests of a queue pair execute in order, so
//!   whoever sees the signal sees the bytes. The host waits for the completion of the batch.
//! * A window's memory (`window`) is written and read in place; the host waits for the completion, a stream for a counter
//!   that an atomic operation behind the others counts up.
//!
//! The host has one link to each such rank that it has something to say to, through which host streams send messages as well: each
//! side makes its own when the first operation needs it, or the letter comes that the other has (by the control plane, whatever
//! the rank is doing). So a world may have as many ranks as it likes, of which each knows a few. The
//! kernels of a device get their own when the first operation for them is prepared (on host memory: when its handle is first asked
//! for), which the peer answers in any of its calls that wait; so do streams that put into windows, at their first put.
//!
//! A queue without room is back-pressure: a send of the host stays started and is helped later, every other call waits
//! for room, at most its timeout. A queue that has failed is a path that is lost: unless the control plane has told the
//! cause within [`GRACE`](links::GRACE), rank 0 is told of it and decides. The world ends with
//! [`PeerLost`](crate::Error::PeerLost) and the NIC's reason, or with an earlier loss that has led to this one.

mod end;
mod link;
mod links;
mod outbox;
#[cfg(test)]
mod tests;
mod window;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use gdsync::nic::soft::{SoftNic, SoftNicOptions};
use gdsync::nic::{Access, Error, MemoryRegion, Result, WireKind};
use gdsync::verbs::RdmaOptions;
use gdsync::wqe::RemoteAddress;
use gdsync::{Buffer, Device, Space};
use mp_kernels::Context;
use serde::{Deserialize, Serialize};

pub(crate) use end::EndOpening;
pub(super) use end::{End, slots_of};
pub(crate) use link::{Link, LinkAddress, NOWHERE, Post, Use};
pub(crate) use outbox::FarOutbox;
pub(super) use window::{AtomicsByNic, Far, OwnShare, Share, leads_to};

use crate::data::mailbox;
use crate::data::region::Pieces;

/// Contexts of a GPU's kernels for each rank that is reached through the NIC, if those are at most so many.
const CONTEXTS: u32 = 4;
const FEW_RANKS: usize = 32;

/// What a rank tells another one that it first has something to say to, or hears from: where its link is, and the mailbox that
/// is to be written.
#[derive(Serialize, Deserialize)]
pub(crate) struct Letter {
    pub link: LinkAddress,
    pub mailbox: Place,
}

/// The host's link to a rank, and the mailbox that the rank writes.
pub(crate) struct HostLink {
    pub link: Arc<Link>,
    pub memory: Buffer<u8>,
    registered: MemoryRegion,
}

impl HostLink {
    /// What the rank is told.
    pub fn letter(&self) -> Letter {
        Letter { link: self.link.address(), mailbox: Place::of(&self.registered) }
    }
}

/// A rank's NIC.
pub(crate) struct Nic {
    nic: Arc<dyn gdsync::nic::Nic>,
    /// How long a peer may be silent.
    patience: Duration,
    /// Contexts of a device's kernels, if somebody has said how many.
    contexts: Option<u32>,
    /// The first link that failed.
    failing: Mutex<Option<Failing>>,
    /// The world is being finished: a peer that goes away is not lost.
    pub finishing: AtomicBool,
    ticks: AtomicU32,
    windows: Mutex<Windows>,
    /// The links of this rank to itself.
    own: Mutex<OpenedLinks>,
}

struct Failing {
    neighbour: usize,
    detail: String,
    /// Until then somebody else may say why.
    until: Instant,
    /// Rank 0 has been told.
    reported: bool,
}

/// Memory of this rank that peers may still access: windows, and ends of device operations.
#[derive(Default)]
struct Windows {
    next: u64,
    open: HashMap<u64, OpenWindow>,
}

struct OpenWindow {
    /// Held, not used.
    _memory: Vec<MemoryRegion>,
    /// Ranks that have not dropped their side.
    users: usize,
}

/// Something in a rank's registered memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    address: u64,
    rkey: u32,
}

impl Place {
    /// The beginning of a region.
    pub fn of(region: &MemoryRegion) -> Place {
        Place { address: region.address(), rkey: region.rkey() }
    }

    pub fn at(remote: RemoteAddress) -> Place {
        Place { address: remote.address, rkey: remote.rkey }
    }

    /// The byte `offset` further.
    pub fn after(self, offset: usize) -> RemoteAddress {
        RemoteAddress { address: self.address.wrapping_add(offset as u64), rkey: self.rkey }
    }
}

/// A link of a stream or of a device's kernels, from the side that opened it.
pub(crate) struct OpenedLink {
    owner: String,
    pub link: Arc<Link>,
    /// Whether the peer has connected its side, or why not.
    answer: OnceLock<std::result::Result<(), String>>,
}

/// The links of a device's kernels to a rank, one for each context.
pub(crate) struct KernelLinks {
    owner: String,
    /// At least one.
    contexts: Vec<Arc<OpenedLink>>,
    /// A `mp::Context` for each, in the device's memory.
    view: Buffer<Context>,
    /// Messages that were given a context.
    given: AtomicUsize,
    /// Of each context the reply slots, and the words that say which are somebody's. Held, not used.
    _held: Vec<(MemoryRegion, Buffer<u8>)>,
}

impl KernelLinks {
    /// How many contexts there are.
    pub fn count(&self) -> u32 {
        // As many as were asked for.
        self.contexts.len() as u32
    }

    /// Where kernels find the contexts.
    pub fn address(&self) -> u64 {
        self.view.device_address().unwrap_or_default()
    }

    /// The link of the first context, by which goes what all blocks must keep in one order.
    pub fn first(&self) -> &Arc<Link> {
        &self.contexts[0].link
    }

    /// Where kernels find the context of one more message: the contexts take turns.
    pub fn next_address(&self) -> u64 {
        let number = self.given.fetch_add(1, Ordering::Relaxed) % self.contexts.len();
        self.address() + (number * size_of::<Context>()) as u64
    }

    /// Whether everything that was posted is complete, or never will be.
    pub fn are_idle(&self) -> bool {
        self.contexts.iter().all(|context| context.link.is_idle().unwrap_or(true))
    }
}

/// The links of streams and kernels between two ranks, or of a rank to itself.
#[derive(Default)]
pub(crate) struct OpenedLinks {
    opened: Vec<Arc<OpenedLink>>,
    /// Those of kernels, once more.
    kernels: Vec<Arc<KernelLinks>>,
    /// Those that the peer has opened.
    answered: Vec<Link>,
}

impl Nic {
    /// What a rank has of `nic`.
    pub fn new(nic: Arc<dyn gdsync::nic::Nic>, patience: Duration, contexts: Option<u32>) -> Nic {
        Nic {
            nic,
            patience,
            contexts,
            failing: Mutex::default(),
            finishing: AtomicBool::new(false),
            ticks: AtomicU32::new(0),
            windows: Mutex::default(),
            own: Mutex::default(),
        }
    }

    /// A link for the host, and a mailbox for the other side to write.
    pub fn host_link(&self, pieces: &Pieces, wire: WireKind) -> Result<HostLink> {
        let link = Link::new((&*self.nic, pieces), &Device::Host, Use::Host, wire, self.patience)?;
        let memory = pieces.cut(&Device::Host, Space::Pinned, mailbox::SIZE)?;
        let registered = self.nic.register(&memory, Access::ALL)?;
        Ok(HostLink { link: Arc::new(link), memory, registered })
    }

    /// How many contexts the kernels of a device have for each of so many ranks: more are worth their memory, and the time in which
    /// the NIC looks at them, where many blocks run and ranks are few.
    fn contexts(&self, device: &Device, ranks: usize) -> u32 {
        let many = device.as_cuda().is_some() && ranks <= FEW_RANKS;
        self.contexts.unwrap_or(if many { CONTEXTS } else { 1 })
    }
}

/// The NICs of a process. Of ranks that are its threads each has one, as far as there are cores: the threads of more would
/// only take the cores from each other.
#[derive(Debug, Clone, Default)]
pub(crate) struct Nics {
    open: Arc<Mutex<HashMap<usize, Arc<dyn gdsync::nic::Nic>>>>,
}

impl Nics {
    /// The NIC for a rank. It listens at the first of `wires`, if peers reach it over TCP, and has the RDMA device that the
    /// second names, if they do over that: the same for all ranks of a process.
    pub fn of(
        &self,
        rank: usize,
        wires: (Option<IpAddr>, Option<RdmaOptions>),
    ) -> Result<Arc<dyn gdsync::nic::Nic>> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut nics = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let place = rank % cores;
        if let Some(nic) = nics.get(&place) {
            return Ok(nic.clone());
        }
        let nic = open(wires)?;
        nics.insert(place, nic.clone());
        Ok(nic)
    }
}

/// Opens the NIC that this crate communicates through: the only place that knows which one it is.
fn open(
    (listen, rdma): (Option<IpAddr>, Option<RdmaOptions>),
) -> Result<Arc<dyn gdsync::nic::Nic>> {
    let listen = listen.map(|address| SocketAddr::new(address, 0));
    Ok(Arc::new(SoftNic::open(&SoftNicOptions { listen, rdma, ..SoftNicOptions::default() })?))
}

/// An error of the NIC in the words of this crate.
pub(crate) fn refused(op: impl FnOnce() -> String) -> impl FnOnce(Error) -> crate::Error {
    move |source| crate::Error::Nic { op: op(), source }
}
