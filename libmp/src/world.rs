//! A world: the ranks that were started together, from `init` to `finish`, and what ends it early.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use gdsync::{CudaDevice, Device};

use crate::bootstrap::{self, Meeting, Place, Session, tcp};
use crate::communicator::Communicator;
use crate::config::Config;
use crate::control::cause::{Cause, Loss};
use crate::control::frame::Preamble;
use crate::control::handshake::Expected;
use crate::control::message::{Hello, Message, PeerInfo};
use crate::control::{Control, Heartbeat, Setup};
use crate::data::Paths;
use crate::data::common::Common;
use crate::data::plane::{NicOptions, Plane};
use crate::error::{Error, Result};
use crate::node;
use crate::trace::{self, Sampler, Summary, Trace, TraceFile};
use crate::transport::nic::Nics;

/// The ranks that were started together, as one of them sees them. It is the [`Communicator`] of all ranks, and more: what
/// the launcher said, and the way a world ends.
///
/// Dropping a world without [`finish`](World::finish) is a failure that every other rank is told of, and so is a panic of
/// the thread that owns it.
///
/// ```
/// use libmp::World;
///
/// # fn main() -> libmp::Result<()> {
/// let world = World::init()?;
/// println!("rank {} of {}, on {}", world.rank(), world.size(), world.host(world.rank())?);
/// world.finish()
/// # }
/// ```
pub struct World {
    all: Communicator,
    control: Arc<Control>,
    local: (usize, usize),
    gpu: Option<String>,
    session: Option<Session>,
    timeline: Option<TraceFile>,
    sampler: Option<Sampler>,
    ended: bool,
}

/// One start at a time for each place in a world: ranks of several worlds of one process pair up in the order of starting.
static STARTS: Mutex<BTreeMap<String, Arc<Mutex<()>>>> = Mutex::new(BTreeMap::new());

impl World {
    /// Starts a world with the ranks that the launcher started: `mprun`, `torchrun` or the like, `mpirun`, `srun`; or
    /// alone. Which one is recognised by its environment variables ([`config`](crate::config)), said at info level, and
    /// overridden by `MP_BOOTSTRAP`. Waits for all ranks, at most `MP_INIT_TIMEOUT`.
    ///
    /// # Errors
    /// [`Error::Variable`], [`Error::MissingVariable`] and [`Error::Launcher`] for an environment that makes no sense,
    /// [`Error::Bind`], [`Error::Unreachable`] and [`Error::Incomplete`] if the ranks do not find each other,
    /// [`Error::Handshake`] if they do not fit together, [`Error::Pmix`] and [`Error::Mpi`] from these.
    pub fn init() -> Result<World> {
        World::with_config(&Config::from_env()?)
    }

    /// As [`init`](World::init), from `config` instead of the environment.
    ///
    /// # Errors
    /// As [`init`](World::init).
    pub fn with_config(config: &Config) -> Result<World> {
        let names = ["MP_RANK", "MP_RENDEZVOUS", "RANK", "MASTER_ADDR", "MASTER_PORT", "PMIX_RANK"];
        let key = names.map(|name| config.variables.get(name).unwrap_or_default()).join("\n");
        let start =
            STARTS.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone();
        let _starting = start.lock().unwrap_or_else(PoisonError::into_inner);

        let deadline = Instant::now() + config.init_timeout;
        config.check()?;
        let Place { rank, size, local, job, token, gpu, meeting, session } =
            bootstrap::find(config)?;
        let me = identity(config);
        let mut setup = setup(
            config,
            size,
            job.clone(),
            Preamble { protocol: config.build.protocol, token },
            &me,
        );
        if rank == 0 {
            setup.trace = TraceFile::open(config);
        }
        // The NIC listens where the control plane was able to.
        let mut address = None;
        let control = match meeting {
            Meeting::Here => Control::root(setup, None, vec![me]),
            Meeting::Listen(listener) => {
                address = listener.local_addr().ok();
                Control::root(setup, Some(listener), vec![me])
            }
            Meeting::Connect(root) => {
                let build = config.build.revision.clone();
                let hello = Message::Hello(Hello { rank, size, job, build, peer: me });
                let greeting = Control::greeting(&setup.expected.preamble, &hello);
                let stream = tcp::join(&root, rank, &greeting, deadline)?;
                address = stream.local_addr().ok();
                Control::leaf(setup, stream, rank).map(|control| vec![control])
            }
        }?;
        let address = address.map(|address| address.ip()).filter(|ip| !ip.is_unspecified());
        let mut worlds = World::assemble(config, control, local, gpu, address)?;
        let mut world = worlds.pop().ok_or_else(no_rank)?;
        world.session = Some(session);
        Ok(world)
    }

    /// Starts a world of `ranks` threads of this process: one handle for each, in rank order, each to be moved to its
    /// thread. No launcher, no sockets. At most [`MAX_RANKS`](crate::MAX_RANKS): what is the same for all ranks exists once, and
    /// what a rank needs of another is made when it first has to do with it, so that a rank costs tens of KiB and its thread's
    /// stack.
    ///
    /// ```
    /// # fn main() -> libmp::Result<()> {
    /// let worlds = libmp::World::threads(4)?;
    /// std::thread::scope(|scope| {
    ///     let ranks: Vec<_> = worlds
    ///         .into_iter()
    ///         .map(|world| {
    ///             scope.spawn(move || {
    ///                 let sum = world.sum(world.rank() as u64)?;
    ///                 world.finish()?;
    ///                 Ok::<_, libmp::Error>(sum)
    ///             })
    ///         })
    ///         .collect();
    ///     for rank in ranks {
    ///         assert_eq!(rank.join().expect("a rank panicked")?, 6);
    ///     }
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Variable`] for 0 ranks or too many.
    pub fn threads(ranks: usize) -> Result<Vec<World>> {
        World::threads_with_config(ranks, &Config::from_env()?)
    }

    /// As [`threads`](World::threads), with `config`'s times.
    ///
    /// # Errors
    /// As [`threads`](World::threads).
    pub fn threads_with_config(ranks: usize, config: &Config) -> Result<Vec<World>> {
        config.check()?;
        let place = bootstrap::thread_place(ranks)?;
        let me = identity(config);
        let preamble = Preamble { protocol: config.build.protocol, token: place.token };
        let mut setup = setup(config, place.size, place.job, preamble, &me);
        setup.trace = TraceFile::open(config);
        let control = Control::root(setup, None, vec![me; ranks])?;
        World::assemble(config, control, place.local, place.gpu, tcp::loopback().ok())
    }

    fn assemble(
        config: &Config,
        controls: Vec<Control>,
        local: Option<(u32, u32)>,
        gpu: Option<String>,
        address: Option<IpAddr>,
    ) -> Result<Vec<World>> {
        let count = controls.len();
        let interface = config.interface.as_deref();
        let listen = match (address, interface) {
            (Some(address), None) => Ok(address),
            _ => tcp::local_address(interface, false),
        };
        let (patience, contexts) = (2 * config.heartbeat_timeout, config.contexts);
        let rdma = config.rdma.clone();
        let nic = NicOptions { listen, rdma, patience, contexts, nics: Nics::default() };
        let (mut worlds, mut planes) = (Vec::with_capacity(controls.len()), Vec::new());
        // What is the same for all ranks that are here is found out once.
        let mut known: Option<Known> = None;
        for control in controls {
            let control = Arc::new(control);
            let peers = match control.wait_peers(config.init_timeout) {
                Ok(peers) => peers,
                Err(error) => {
                    control.leave(Loss::Unfinished);
                    return Err(error);
                }
            };
            let rank = control.rank();
            let all_here = known.as_ref().is_some_and(|known| known.all_here);
            let local = match local {
                Some((rank, size)) => (rank as usize, size as usize),
                None if all_here => (rank, peers.len()),
                None => place_on_node(&peers, rank),
            };
            let timeline = control.trace();
            let trace = timeline.as_ref().map_or_else(Trace::off, |file| {
                let host = peers.get(rank).map_or("", |peer| &peer.host);
                let limit = usize::try_from(file.events).unwrap_or(usize::MAX);
                let trace = Trace::detached(rank as u32, host, limit);
                let node = |rank: usize| peers.get(rank).map(|peer| &peer.node);
                trace.set_offset(control.clock_offset(node(rank) == node(0)));
                trace
            });
            let trace = trace.with_nvtx();
            // One for the process: it is its CPU time.
            let first = worlds.is_empty() && trace.is_on();
            let sampler = if first { Sampler::start(&trace) } else { None };
            let (wish, timeout) = (config.path, config.init_timeout);
            let known = match &mut known {
                Some(known) => known,
                none => {
                    let devices = (gpu.as_deref(), &config.rdma);
                    let (paths, turns) =
                        Paths::explore(&control, peers.clone(), wish, devices, timeout)?;
                    none.insert(Known::new(&peers, count, paths, turns))
                }
            };
            tracing::info!(rank, size = peers.len(), nodes = known.nodes, "the world is complete");
            let Known { paths, members, turns, .. } = known;
            let common = match known.together {
                true => known.common.clone(),
                false => Arc::new(Common::with_pieces(known.common.pieces.clone())),
            };
            let paths = (paths.clone(), common, known.together);
            let plane = Plane::new(control.clone(), peers.clone(), paths, nic.clone(), trace)?;
            planes.push(plane.clone());
            let timeout = (config.timeout, *turns);
            let all = (peers.clone(), members.clone());
            let all = Communicator::world(control.clone(), plane, all, rank, timeout);
            worlds.push(World {
                all,
                control,
                local,
                gpu: gpu.clone(),
                session: None,
                timeline,
                sampler,
                ended: false,
            });
        }
        if known.is_some_and(|known| known.together) {
            return Ok(worlds);
        }
        let mut introductions =
            planes.iter().map(|plane| plane.introduction()).collect::<Result<Vec<_>>>()?;
        if let [world] = &mut worlds[..]
            && world.size() > 1
        {
            // The other ranks are in other processes.
            let all = world.all.with_timeout(config.init_timeout);
            introductions = all.all_gather(&introductions[0])?;
        }
        planes.iter().try_for_each(|plane| plane.connect(&introductions))?;
        Ok(worlds)
    }

    /// This rank's number on its host: as the launcher says, or else counted in rank order.
    pub fn local_rank(&self) -> usize {
        self.local.0
    }

    /// How many ranks are on this rank's host: as the launcher says, or else counted.
    pub fn local_size(&self) -> usize {
        self.local.1
    }

    /// The device that the launcher chose for this rank (`MP_GPU`): a number, as the CUDA driver counts.
    pub fn assigned_gpu(&self) -> Option<&str> {
        self.gpu.as_deref()
    }

    /// The device that this rank should use: the GPU that the launcher chose; otherwise one of those that this process sees, which the
    /// ranks of a host take in turns; the host where there is no GPU, or this build has no code for it.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if what the launcher chose is no number; [`Error::Memory`] if that GPU cannot be used.
    pub fn local_device(&self) -> Result<Device> {
        let op = || "opening this rank's device".to_owned();
        let failed = |source| Error::Memory { op: op(), source };
        if let Some(gpu) = &self.gpu {
            let number = gpu.parse().map_err(|_| Error::Mismatch {
                op: op(),
                reason: format!("MP_GPU is {gpu:?}, expected the number of a GPU"),
            })?;
            return Device::cuda(number).map_err(failed);
        }
        match CudaDevice::count() {
            Ok(count @ 1..) if mp_kernels::fatbin().is_ok() => {
                Device::cuda(self.local.0 as u32 % count).map_err(failed)
            }
            _ => Ok(Device::Host),
        }
    }

    /// The timeline of this rank, to add to: on if rank 0 was started with `MP_TRACE`.
    pub fn trace(&self) -> &Trace {
        self.all.trace()
    }

    /// Writes the timeline of all ranks so far, by rank 0, which gets to know what was written; the others get `None`. A
    /// collective call. Ranks without a timeline are not in it.
    ///
    /// # Errors
    /// As [`Communicator::barrier`]; on rank 0 [`Error::Io`] with the path if it cannot be written.
    pub fn write_trace(&self, path: &Path) -> Result<Option<Summary>> {
        self.all.resolve_trace();
        let parts = trace::gather(&self.all, self.trace().part())?;
        let write = |parts: Vec<_>| trace::write(path, &trace::decode(&parts)?);
        parts.map(write).transpose()
    }

    /// Whether the world goes on. Cheap: for loops that wait for something else.
    ///
    /// # Errors
    /// What ended it: [`Error::PeerLost`], [`Error::Aborted`], [`Error::Exited`], [`Error::Timeout`] or [`Error::Protocol`].
    pub fn check(&self) -> Result<()> {
        self.control.check("check")
    }

    /// The word that turns from zero when the world fails, before any waiting call returns (release; read it with acquire).
    /// Bit 63 is set; bits 32 up are the kind: 1 a rank is lost, 2 aborted, 3 a deadline passed, 4 the start was incomplete,
    /// 5 refused, 6 protocol, 7 exited; the low 32 bits are the rank concerned, `u32::MAX` for none. It has a page for itself, at an
    /// address that stays the same as long as the world or one of its communicators lives, so that it can be registered for
    /// devices.
    pub fn abort_word(&self) -> &AtomicU64 {
        self.control.abort_word()
    }

    /// Ends the world for all ranks, with a reason that they all get to see. When this returns the news is on its way.
    /// An earlier failure stays the one that is reported.
    pub fn abort(&self, reason: impl Into<String>) {
        let rank = self.rank() as u32;
        let host = self.host(self.rank()).unwrap_or_default().to_owned();
        let mut reason = reason.into();
        // Cut to what one frame of the control plane surely carries.
        let limit = (0..=REASON_MAX).rev().find(|&at| reason.is_char_boundary(at)).unwrap_or(0);
        reason.truncate(limit);
        self.control.fail(Cause::Aborted { rank, host, reason });
        self.control.wait_passed_on();
    }

    /// Ends the world for all ranks because one of them ends the program, with the status with which every process is to
    /// exit: each hears it as [`Error::Exited`]. When this returns the news is on its way. It is up to the processes to exit; a thread
    /// that [waits for the end](Communicator::wait_for_end) sees to it in a program that computes.
    ///
    /// ```
    /// # fn main() -> libmp::Result<()> {
    /// let worlds = libmp::World::threads(2)?;
    /// worlds[1].exit(3);
    /// let end = worlds[0].wait_for_end();
    /// assert!(matches!(end, Some(libmp::Error::Exited { rank: 1, status: 3, .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn exit(&self, status: i32) {
        let rank = self.rank() as u32;
        let host = self.host(self.rank()).unwrap_or_default().to_owned();
        self.control.fail(Cause::Exited { rank, host, status });
        self.control.wait_passed_on();
    }

    /// Ends the world in good order: waits until every rank has called it. Afterwards its communicators return
    /// [`Error::Finished`], its thread and its sockets are gone, and a new world may be started.
    ///
    /// # Errors
    /// As [`Communicator::barrier`]: a rank that fails or leaves before everybody has finished is lost.
    pub fn finish(mut self) -> Result<()> {
        self.sampler = None;
        if let Some(file) = &self.timeline {
            self.all.resolve_trace();
            file.finish(&self.all, self.all.trace())?;
        }
        for counters in self.all.counters_in_use() {
            tracing::debug!(rank = self.all.rank(), "with {counters}");
        }
        self.all.finish_all()?;
        self.ended = true;
        self.control.close();
        if let Some(session) = self.session.take() {
            session.finish();
        }
        Ok(())
    }
}

const _: () = {
    const fn send_and_sync<T: Send + Sync>() {}
    send_and_sync::<World>();
};

/// Longest reason of an abort, in bytes.
const REASON_MAX: usize = 4096;

impl Drop for World {
    fn drop(&mut self) {
        if !self.ended {
            let how = if std::thread::panicking() { Loss::Panicked } else { Loss::Unfinished };
            self.control.leave(how);
            self.sampler = None;
            if let Some(file) = &self.timeline {
                self.all.resolve_trace();
                file.salvage(self.all.rank(), self.all.trace());
            }
        }
    }
}

/// A world is its communicator of all ranks, and more.
impl Deref for World {
    type Target = Communicator;

    fn deref(&self) -> &Communicator {
        &self.all
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("all", &self.all)
            .field("local", &self.local)
            .finish_non_exhaustive()
    }
}

fn identity(config: &Config) -> PeerInfo {
    PeerInfo {
        host: node::host_name(),
        node: config.node.clone().unwrap_or_else(node::identity),
        pid: std::process::id(),
    }
}

fn setup(config: &Config, size: u32, job: String, preamble: Preamble, me: &PeerInfo) -> Setup {
    Setup {
        expected: Expected {
            preamble,
            size,
            job,
            build: config.build.clone(),
            host: me.host.clone(),
        },
        heartbeat: Heartbeat { interval: config.heartbeat, silence: config.heartbeat_timeout },
        timeout: config.init_timeout,
        trace: None,
    }
}

/// What ranks of one process know alike of their world.
struct Known {
    paths: Arc<Paths>,
    /// How many collectives it took to find these.
    turns: u64,
    members: Arc<[u32]>,
    nodes: usize,
    /// All ranks are of this process, and several.
    all_here: bool,
    /// They also reach each other directly.
    together: bool,
    common: Arc<Common>,
}

impl Known {
    fn new(peers: &Arc<[PeerInfo]>, here: usize, paths: Paths, turns: u64) -> Known {
        let nodes: BTreeSet<&str> = peers.iter().map(|peer| &peer.node[..]).collect();
        let all_here = here == peers.len() && here > 1;
        Known {
            turns,
            members: (0u32..).zip(peers.iter()).map(|(rank, _)| rank).collect(),
            nodes: nodes.len(),
            all_here,
            together: all_here && paths.all_direct(),
            paths: Arc::new(paths),
            common: Arc::default(),
        }
    }
}

fn place_on_node(peers: &[PeerInfo], rank: usize) -> (usize, usize) {
    let mine = peers.get(rank).map(|peer| &peer.node);
    let here = |(_, peer): &(usize, &PeerInfo)| Some(&peer.node) == mine;
    let all = peers.iter().enumerate().filter(here);
    (all.clone().filter(|(other, _)| *other < rank).count(), all.count())
}

fn no_rank() -> Error {
    Error::Handshake { reason: "the control plane serves no rank of this process".into() }
}
