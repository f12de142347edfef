//! A rank's data plane: its arena, the neighbours it reaches, the operations that are not paired yet, and those that wait for
//! help of this rank's calls. Neighbours are the ranks of this host, or, where there is a NIC, all ranks.

mod failure;

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use gdsync::path::PathChoice;
use gdsync::{Buffer, Deadline, Device, PeerHandle, Space, Stream, Watchdog, Word64};
use serde::{Deserialize, Serialize};

use super::arena::Arena;
use super::counters::{Counters, PeerCounters};
use super::mailbox::Mailbox;
use super::operation::Name;
use super::path::{Path, Paths};
use super::post::State;
use super::region::Pieces;
use super::report::{Report, Watch};
use super::waiting::Waiting;
use crate::control::Control;
use crate::control::message::PeerInfo;
use crate::error::{Error, Result};
use crate::trace::{Probes, Trace};
use crate::transport::nic::{
    Link, LinkAddress, Nic, NicIntroduction, RANKS_MAX, RemoteArena, refused,
};

/// Between two rounds of help while a rank waits for a stream.
const HELP: Duration = Duration::from_millis(1);

/// How the NIC is made, if some ranks are reached through it.
#[derive(Debug, Clone)]
pub(crate) struct NicOptions {
    /// Where it listens; an error if that cannot be told.
    pub listen: Result<IpAddr>,
    /// How long a peer may be silent.
    pub patience: Duration,
}

/// What a rank tells the others of its data plane.
#[derive(Serialize, Deserialize)]
struct Introduction {
    choice: PathChoice,
    arena: PeerHandle,
    nic: Option<NicIntroduction>,
}

/// A rank's data plane.
pub(crate) struct Plane {
    /// Itself, for what is called back.
    this: OnceLock<Weak<Plane>>,
    pub(crate) control: Arc<Control>,
    pub(super) rank: usize,
    peers: Arc<[PeerInfo]>,
    paths: Paths,
    /// How long it may take until a loss that this rank has seen has ended the world, if rank 0 is lost as well.
    verdict: Duration,
    arena: Arena,
    /// The ranks that this one reaches, in rank order, itself among them.
    pub(crate) neighbours: Vec<Neighbour>,
    /// Their arenas, in the same order, once all ranks have told theirs.
    arenas: OnceLock<Vec<PeerHandle>>,
    /// If some are reached through it.
    pub(crate) nic: Option<Nic>,
    /// Started operations that need a call of this rank to go on.
    pub(super) waiting: Waiting,
    /// Notices that wait for room in a mailbox.
    pub(super) backlog: AtomicUsize,
    pub pieces: Pieces,
    /// The timeline, and the operations of streams that are not in it yet.
    pub trace: Trace,
    pub probes: Probes,
    /// For each rank of the world.
    counters: Vec<Arc<Counters>>,
    /// Ends of operations so far.
    ends: AtomicU32,
    streams: Mutex<Streams>,
    /// Failures of operations on streams and in kernels.
    watch: Watch,
}

/// Streams of the world, and what ends their waits when it fails.
#[derive(Default)]
struct Streams {
    /// For each device (`None`: the host), because its abort word must be one that the device reaches.
    watchdogs: Vec<(Option<u32>, Watchdog, Abort)>,
}

/// The word that ends waits of a device when the world does.
#[derive(Clone)]
pub(crate) struct Abort {
    /// For the host.
    pub word: Word64,
    /// For the device.
    pub address: u64,
    /// A word in the memory of a GPU by which its kernels tell those behind them that a wait was ended: what they would send was
    /// made of what never came. None for the host.
    pub seen: Option<Buffer<u64>>,
}

/// A rank that this one reaches.
pub(crate) struct Neighbour {
    pub rank: usize,
    pub path: Path,
    pub inbox: Mailbox,
    /// Through the NIC: the host's link, and its arena once it has told.
    pub link: Option<Arc<Link>>,
    pub remote: OnceLock<RemoteArena>,
    pub state: Mutex<State>,
}

impl Plane {
    /// The data plane of a rank. Before [`connect`](Self::connect) nothing can be prepared.
    pub fn new(
        control: Arc<Control>,
        peers: Arc<[PeerInfo]>,
        paths: Paths,
        NicOptions { listen, patience }: NicOptions,
        trace: Trace,
    ) -> Result<Arc<Plane>> {
        let rank = control.rank();
        let with_nic = !paths.all_direct() && peers.len() <= RANKS_MAX;
        let ranks: Vec<usize> = (0..peers.len())
            .filter(|&other| with_nic || paths.between(rank, other) == Path::Direct)
            .collect();
        let arena = Arena::create(ranks.len())?;
        let nic = match with_nic {
            false => None,
            true => {
                let over_tcp =
                    ranks.iter().any(|&other| paths.between(rank, other) == Path::NicTcp);
                let listen = if over_tcp { Some(listen?) } else { None };
                let nic = Nic::open(&arena, listen, patience);
                Some(nic.map_err(refused(|| "starting the software NIC".into()))?)
            }
        };
        let link = |path: Path, other: usize| match (&nic, path) {
            (Some(nic), Path::NicTcp | Path::NicSharedMemory) => {
                let op = || format!("making a queue pair for rank {other}");
                nic.host_link().map(Some).map_err(refused(op))
            }
            _ => Ok(None),
        };
        let neighbours = ranks
            .into_iter()
            .enumerate()
            .map(|(place, other)| {
                let path = paths.between(rank, other);
                Ok(Neighbour {
                    rank: other,
                    path,
                    inbox: arena.mailbox(place)?,
                    link: link(path, other)?,
                    remote: OnceLock::new(),
                    state: Mutex::default(),
                })
            })
            .collect::<Result<_>>()?;
        let counters = peers.iter().map(|_| Arc::default()).collect();
        let plane = Arc::new(Plane {
            this: OnceLock::new(),
            control,
            rank,
            peers,
            paths,
            verdict: patience,
            arena,
            ends: AtomicU32::new(0),
            neighbours,
            arenas: OnceLock::new(),
            nic,
            waiting: Waiting::default(),
            backlog: AtomicUsize::new(0),
            pieces: Pieces::default(),
            trace,
            probes: Probes::default(),
            counters,
            streams: Mutex::default(),
            watch: Watch::default(),
        });
        // It is new.
        let _ = plane.this.set(Arc::downgrade(&plane));
        Ok(plane)
    }

    /// Itself, for those who outlive a call.
    pub fn this(&self) -> Option<Arc<Plane>> {
        self.this.get().and_then(Weak::upgrade)
    }

    /// What the other ranks need to know of this one.
    pub fn introduction(&self) -> Result<Vec<u8>> {
        let nic = self.nic.as_ref().map(|nic| {
            let links: Vec<Option<LinkAddress>> = self
                .neighbours
                .iter()
                .map(|neighbour| neighbour.link.as_ref().map(|link| link.address()))
                .collect();
            nic.introduction(links)
        });
        let introduction =
            Introduction { choice: self.paths.wish, arena: self.arena.export()?, nic };
        postcard::to_stdvec(&introduction)
            .map_err(|error| self.nonsense(self.rank, &error.to_string()))
    }

    /// Takes in the introductions of all ranks, in rank order.
    pub fn connect(&self, introductions: &[Vec<u8>]) -> Result<()> {
        let mut arenas = Vec::new();
        for (rank, blob) in introductions.iter().enumerate() {
            let introduction: Introduction = postcard::from_bytes(blob)
                .map_err(|error| self.nonsense(rank, &error.to_string()))?;
            if introduction.choice != self.paths.wish {
                let (mine, theirs) = (self.paths.wish, introduction.choice);
                let me = self.rank;
                return Err(Error::Handshake {
                    reason: format!(
                        "rank {me} was started with MP_PATH={mine} and rank {rank} with MP_PATH={theirs}; they must be equal"
                    ),
                });
            }
            let Ok(place) = self.neighbour(rank) else { continue };
            arenas.push(introduction.arena);
            let neighbour = &self.neighbours[place];
            let not_faster = self.paths.choice(self.rank, rank).not_faster.unwrap_or_default();
            tracing::info!(rank = self.rank, peer = rank, path = %neighbour.path, not_faster, "path");
            let (Some(link), Some(wire)) = (&neighbour.link, neighbour.path.wire()) else {
                continue;
            };
            let nic = introduction.nic.ok_or_else(|| self.not_introduced(rank))?;
            let _ = neighbour.remote.set(nic.arena());
            let address = nic.links.get(self.neighbour(self.rank)?).and_then(Option::as_ref);
            let address = address.ok_or_else(|| self.not_introduced(rank))?;
            let op = || format!("connecting to rank {rank} on {}", self.peer(rank).host);
            if let Err(error) = link.connect(address, wire) {
                self.news_of_leaving()?;
                return Err(refused(op)(error));
            }
        }
        // A second time would bring the same.
        let _ = self.arenas.set(arenas);
        Ok(())
    }

    /// This rank, in the world.
    pub fn rank(&self) -> usize {
        self.rank
    }

    pub fn peer(&self, rank: usize) -> &PeerInfo {
        &self.peers[rank]
    }

    /// What counts the operations with rank `rank` of the world, which exists.
    pub fn counters_of(&self, rank: usize) -> &Arc<Counters> {
        &self.counters[rank]
    }

    /// What has been counted for each rank of the world.
    pub fn counted(&self) -> Vec<PeerCounters> {
        let count = |(world_rank, counters): (usize, &Arc<Counters>)| PeerCounters {
            world_rank,
            host: self.peer(world_rank).host.clone(),
            path: self.path(world_rank).ok(),
            sends: counters.sends.read(),
            recvs: counters.recvs.read(),
            puts: counters.puts.read(),
            gets: counters.gets.read(),
            signals: counters.signals.read(),
            atomics: counters.atomics.read(),
            waits: counters.waits.read(),
            retries: counters.retries.read(),
        };
        self.counters.iter().enumerate().map(count).collect()
    }

    /// The neighbour that is rank `rank` of the world.
    ///
    /// # Errors
    /// [`Error::NoPath`] if it is on another host and there is no NIC.
    pub fn neighbour(&self, rank: usize) -> Result<usize> {
        let found = self.neighbours.binary_search_by_key(&rank, |neighbour| neighbour.rank);
        found.map_err(|_| {
            self.no_path(rank, "the software NIC connects worlds of at most 256 ranks")
        })
    }

    /// A neighbour behind a NIC that this rank does not have.
    pub fn no_nic(&self, neighbour: usize) -> Error {
        self.no_path(self.neighbours[neighbour].rank, "this rank has no NIC")
    }

    pub fn no_path(&self, rank: usize, reason: &'static str) -> Error {
        let (from, to) = (self.peer(self.rank).host.clone(), self.peer(rank).host.clone());
        Error::NoPath { rank, from, to, reason }
    }

    /// How bytes go to rank `rank` of the world.
    ///
    /// # Errors
    /// As [`neighbour`](Self::neighbour).
    pub fn path(&self, rank: usize) -> Result<Path> {
        Ok(self.neighbours[self.neighbour(rank)?].path)
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

    pub(super) fn peer_arena(&self, neighbour: usize) -> Result<Arena> {
        let handle = self.arenas.get().and_then(|arenas| arenas.get(neighbour));
        let rank = self.neighbours[neighbour].rank;
        let handle = handle.ok_or_else(|| self.not_introduced(rank))?;
        let failed = match Arena::map(handle, self.neighbours.len()) {
            Ok(arena) => return Ok(arena),
            Err(error) => error,
        };
        if let Error::Memory { source, .. } = &failed {
            self.suspect(neighbour, source);
        }
        self.news_of_leaving()?;
        Err(failed)
    }

    /// A stream whose waits end when the world does. A call that finds it full waits for room at most `timeout`, and helps
    /// meanwhile: other ranks may need an answer before they send what the stream waits for.
    pub fn stream(&self, device: &Device, timeout: Duration) -> Result<Stream> {
        let (watchdog, _) = self.watchdog(device)?;
        let failed = |source| Error::Memory { op: format!("a stream on {device}"), source };
        let stream = device.watched_stream(&watchdog).map_err(failed)?;
        stream.when_full(timeout, self.helper());
        Ok(stream)
    }

    fn helper(&self) -> impl Fn() + Send + Sync + use<> {
        let plane = self.this.get().cloned();
        move || {
            if let Some(plane) = plane.as_ref().and_then(Weak::upgrade) {
                plane.progress();
            }
        }
    }

    /// A stream of the user's, whose waits end when the world does.
    ///
    /// # Safety
    /// As [`Stream::adopt`].
    pub unsafe fn adopt_stream(
        &self,
        device: &Device,
        stream: *mut std::ffi::c_void,
        timeout: Duration,
    ) -> Result<Stream> {
        let failed = |source| Error::Memory { op: format!("a stream on {device}"), source };
        let (watchdog, _) = self.watchdog(device)?;
        // SAFETY: the caller's promise.
        let stream = unsafe { Stream::adopt(device, stream.cast(), Some(&watchdog)) };
        let stream = stream.map_err(failed)?;
        stream.when_full(timeout, self.helper());
        Ok(stream)
    }

    fn watchdog(&self, device: &Device) -> Result<(Watchdog, Abort)> {
        let mut streams = lock(&self.streams);
        let ordinal = device.ordinal();
        if let Some((_, watchdog, abort)) = streams.watchdogs.iter().find(|it| it.0 == ordinal) {
            return Ok((watchdog.clone(), abort.clone()));
        }
        let failed = |source| Error::Memory { op: format!("a watchdog on {device}"), source };
        let watchdog = Watchdog::new(device).map_err(failed)?;
        let word = watchdog.abort_word().clone();
        let seen = ordinal.is_some().then(|| self.pieces.cut_for(device, size_of::<u64>())?.cast());
        let seen = seen.transpose().map_err(failed)?;
        let abort = Abort { address: word.device_address().map_err(failed)?, word, seen };
        let released = watchdog.clone();
        self.control.on_failure(move |cause| released.abort(cause));
        streams.watchdogs.push((ordinal, watchdog.clone(), abort.clone()));
        Ok((watchdog, abort))
    }

    /// The word that is not 0 any more when the world has failed, for a device.
    pub fn abort_of(&self, device: &Device) -> Result<Abort> {
        self.watchdog(device).map(|(_, abort)| abort)
    }

    /// A report for an operation, which [`synchronize`](Self::synchronize) looks at.
    pub fn report(&self, device: &Device, name: Arc<Name>) -> Result<Arc<Report>> {
        let failed = |source| Error::Memory { op: name.to_string(), source };
        let slot = self.pieces.cut(device, Space::Pinned, 8 * Report::WORDS);
        let slot = slot.and_then(|slot| slot.cast()).map_err(failed)?;
        let report = Arc::new(Report::new(name.clone(), slot));
        self.watch.add(&report);
        Ok(report)
    }

    /// Waits for a stream, and helps meanwhile.
    pub fn synchronize(&self, stream: &Stream, deadline: Deadline) -> Result<()> {
        let op = || format!("synchronising {}", stream.name());
        let _span = self.trace.span("wait", "synchronize");
        loop {
            let helping = self.progress();
            let slice = if helping { HELP.min(deadline.remaining()) } else { deadline.remaining() };
            let result = stream.synchronize(Deadline::after(slice));
            self.probes.resolve(&self.trace);
            if matches!(result, Err(gdsync::Error::Timeout { .. })) && !deadline.expired() {
                continue;
            }
            self.check_after(deadline.elapsed(), op)?;
            if let Some((failure, of_path)) = self.watch.failure() {
                // Of a failed path the link knows the reason, and the world ends with it.
                let since = Instant::now();
                while of_path && since.elapsed() < self.verdict {
                    self.progress();
                    self.check_after(deadline.elapsed(), op)?;
                    std::thread::sleep(HELP);
                }
                return Err(failure);
            }
            return result.map_err(|source| Error::Memory { op: op(), source });
        }
    }

    /// Helps what cannot go on by itself. Every waiting call does this while it waits. True if something still needs help.
    pub fn progress(&self) -> bool {
        if self.backlog.load(Ordering::Relaxed) > 0 {
            self.flush_all();
        }
        self.waiting.help(self);
        if let Some(nic) = &self.nic {
            self.look_after_links(nic);
        }
        self.nic.is_some() || self.backlog.load(Ordering::Relaxed) > 0 || !self.waiting.is_empty()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
