//! A rank's data plane: its arena, the neighbours it reaches, the operations that are not paired yet, and those that wait for
//! help of this rank's calls. Neighbours are the ranks of this host, or, where there is a NIC, all ranks.

mod failure;
mod help;
mod neighbours;
mod post;
mod streams;
mod waiting;

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use gdsync::PeerHandle;
use gdsync::verbs::RdmaOptions;

use super::arena::Arena;
use super::common::Common;
use super::counters::{Counters, PeerCounters};
use super::path::{Path, Paths};
use super::region::Pieces;
use super::sparse::Sparse;
use super::wait::ranks_here;
use crate::control::Control;
use crate::control::message::PeerInfo;
use crate::error::Result;
use crate::trace::{Probes, Trace};
use crate::transport::nic::{Nic, Nics, refused};
pub(crate) use help::{Help, Helpers};
use neighbours::{Neighbour, Neighbours};
pub(crate) use streams::Abort;
use streams::Streams;
use waiting::Waiting;
pub(crate) use waiting::{Place, Wake};

/// Who helps messages on looks without a pause for so long after something has moved.
pub(crate) const EAGER: Duration = Duration::from_micros(200);

/// Between two rounds of help while a rank waits for a stream.
const HELP: Duration = Duration::from_millis(1);

/// How the NIC is made, if some ranks are reached through it.
#[derive(Debug, Clone)]
pub(crate) struct NicOptions {
    /// Where it listens; an error if that cannot be told.
    pub listen: Result<IpAddr>,
    /// The RDMA device that it sends through to ranks that are reached so.
    pub rdma: RdmaOptions,
    /// How long a peer may be silent.
    pub patience: Duration,
    /// Contexts of a device's kernels for each rank, if somebody has said how many.
    pub contexts: Option<u32>,
    /// The NICs of this process.
    pub nics: Nics,
}

/// A rank's data plane.
pub(crate) struct Plane {
    /// Itself, for what is called back.
    this: OnceLock<Weak<Plane>>,
    pub(crate) control: Arc<Control>,
    pub(super) rank: usize,
    peers: Arc<[PeerInfo]>,
    paths: Arc<Paths>,
    /// What it has in common with the other ranks of its process.
    pub(crate) common: Arc<Common>,
    /// All ranks are of this process, and reach each other directly: they need no introduction.
    pub(crate) together: bool,
    /// How long it may take until a loss that this rank has seen has ended the world, if rank 0 is lost as well.
    verdict: Duration,
    /// Where ranks of other processes tell it things.
    arena: Option<Arena>,
    /// The ranks that this one reaches, in rank order, itself among them.
    pub(crate) neighbours: Neighbours,
    /// Their arenas, in the same order, once all ranks have told theirs.
    arenas: OnceLock<Vec<PeerHandle>>,
    /// If some are reached through it.
    pub(crate) nic: Option<Nic>,
    /// Started operations that need a call of this rank to go on.
    pub waiting: Waiting,
    /// What else does.
    pub helpers: Helpers,
    /// How many notices wait for room in a mailbox, for those who only pass by, and the neighbours that these are for.
    pub(super) backlog: AtomicUsize,
    pub(super) backlogged: Mutex<Vec<usize>>,
    pub pieces: Arc<Pieces>,
    /// The timeline, and the operations of streams that are not in it yet.
    pub trace: Trace,
    pub probes: Probes,
    /// For each rank of the world.
    counters: Sparse<Arc<Counters>>,
    /// Ends of operations so far.
    ends: AtomicU32,
    streams: Streams,
}

impl Plane {
    /// The data plane of a rank. Before [`connect`](Self::connect) nothing can be prepared, unless all ranks are `together`
    /// in this process.
    pub fn new(
        control: Arc<Control>,
        peers: Arc<[PeerInfo]>,
        (paths, common, together): (Arc<Paths>, Arc<Common>, bool),
        options: NicOptions,
        trace: Trace,
    ) -> Result<Arc<Plane>> {
        let (rank, patience) = (control.rank(), options.patience);
        ranks_here(peers.iter().filter(|peer| peer.node == peers[rank].node).count());
        let (neighbours, arena, nic) = if together {
            (Neighbours::all(peers.len()), None, None)
        } else {
            let (neighbours, arena, nic) = Plane::reached(rank, &peers, &paths, options)?;
            (neighbours, Some(arena), nic)
        };
        let plane = Arc::new(Plane {
            this: OnceLock::new(),
            control,
            rank,
            counters: Sparse::new(peers.len()),
            peers,
            paths,
            pieces: common.pieces.clone(),
            common,
            together,
            verdict: patience,
            arena,
            ends: AtomicU32::new(0),
            neighbours,
            arenas: OnceLock::new(),
            nic,
            waiting: Waiting::default(),
            helpers: Helpers::default(),
            backlog: AtomicUsize::new(0),
            backlogged: Mutex::default(),
            trace,
            probes: Probes::default(),
            streams: Streams::default(),
        });
        // It is new.
        let _ = plane.this.set(Arc::downgrade(&plane));
        Ok(plane)
    }

    /// The ranks that a rank reaches, some of them in other processes or through the NIC.
    fn reached(
        rank: usize,
        peers: &[PeerInfo],
        paths: &Paths,
        NicOptions { listen, rdma, patience, contexts, nics }: NicOptions,
    ) -> Result<(Neighbours, Arena, Option<Nic>)> {
        let ranks = 0..peers.len();
        let nic = match paths.all_direct() {
            true => None,
            false => {
                let some = |path| ranks.clone().any(|other| paths.between(rank, other) == path);
                let listen = if some(Path::NicTcp) { Some(listen?) } else { None };
                let rdma = some(Path::NicVerbs).then_some(rdma);
                let nic = nics.of(rank, (listen, rdma));
                let nic = nic.map_err(refused(|| "starting the software NIC".into()))?;
                Some(Nic::new(nic, patience, contexts))
            }
        };
        let is_direct = |other: &usize| paths.between(rank, *other) == Path::Direct;
        let arena = Arena::create(ranks.clone().filter(is_direct).count())?;
        let mut places = 0..;
        let neighbours = ranks
            .map(|other| {
                let path = paths.between(rank, other);
                let mut place = || places.next().unwrap_or_default();
                let inbox = if path == Path::Direct { Some(arena.mailbox(place())?) } else { None };
                Ok(Neighbour::new((other, path), inbox))
            })
            .collect::<Result<Vec<_>>>()?;
        Ok((Neighbours::of(neighbours)?, arena, nic))
    }

    /// Itself, for those who outlive a call.
    pub fn this(&self) -> Option<Arc<Plane>> {
        self.this.get().and_then(Weak::upgrade)
    }

    /// This rank, in the world.
    pub fn rank(&self) -> usize {
        self.rank
    }

    pub fn peer(&self, rank: usize) -> &PeerInfo {
        &self.peers[rank]
    }

    /// What counts the operations with rank `rank` of the world, which exists.
    pub fn counters_of(&self, rank: usize) -> Arc<Counters> {
        let made = self.counters.get_or(rank, || Ok::<_, Infallible>(Arc::default()));
        let Ok(made) = made;
        made.cloned().unwrap_or_default()
    }

    /// Whether there may be something counted for a rank of the world.
    pub fn has_counted(&self, rank: usize) -> bool {
        self.counters.get(rank).is_some()
    }

    /// What has been counted for a rank of the world.
    pub fn counted(&self, world_rank: usize) -> PeerCounters {
        let counters = self.counters.get(world_rank).cloned().unwrap_or_default();
        let [sends, recvs] = counters.messages();
        PeerCounters {
            world_rank,
            host: self.peer(world_rank).host.clone(),
            path: self.path(world_rank).ok(),
            sends,
            recvs,
            puts: counters.puts.read(),
            gets: counters.gets.read(),
            signals: counters.signals.read(),
            atomics: counters.atomics.read(),
            waits: counters.waits.read(),
            retries: counters.retries.read(),
        }
    }

    /// A number for a new end of an operation.
    pub fn next_end(&self) -> u32 {
        self.ends.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether a rank is a thread of this process.
    pub fn is_this_process(&self, rank: usize) -> bool {
        let (own, other) = (self.peer(self.rank), self.peer(rank));
        own.node == other.node && own.pid == other.pid
    }

    /// Helps what cannot go on by itself. Every waiting call does this while it waits. True if something still needs help.
    pub fn progress(&self) -> bool {
        if self.backlog.load(Ordering::Relaxed) > 0 {
            self.flush_all();
        }
        self.waiting.help(self);
        self.helpers.help();
        if let Some(nic) = &self.nic {
            self.look_after_links(nic);
        }
        self.nic.is_some()
            || !self.helpers.is_empty()
            || self.backlog.load(Ordering::Relaxed) > 0
            || !self.waiting.is_empty()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
