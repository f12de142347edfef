//! The memory of the other ranks, mapped here, and the signals: what `--comm kernel` and `--comm stream` communicate
//! through. The CPU enqueues; who waits for whom is decided by counts of phases in GPU memory (`cuda/slab.cuh`), so
//! that captured launches can be replayed.

use std::time::Duration;

use gdsync::{Arg, Buffer, Device, Dims, Kernel, Stream, Word64};
use libmp::{Communicator, Region, Window};
use mp_kernels::{WaitBounds, WaitReport};

use super::error::CudaError;
use super::inboxes::Inboxes;
use super::kernels::Kernels;
use super::layout::{GHOSTS, Grid};
use super::links::{AGREED, Agree, Bounds, Exchange, Link, MAX_PEERS, PAIR_WORDS, Route, Slab};
use super::partition::Partition;
use crate::comm::CommError;

/// Words between two signals: they do not share a line.
const SIGNAL: usize = 16;
/// Words that a rank's values to be agreed on take: two turns.
const INBOX: usize = 2 * AGREED;
/// Words of a report.
const REPORT: usize = size_of::<WaitReport>() / 8;
/// Blocks that copy for one peer: enough for the link's bandwidth.
const COPYING_BLOCKS: u32 = 32;

/// A level's vectors in the memory of one rank.
#[derive(Clone, Copy, Debug)]
struct Place {
    base: u64,
    grid: Grid,
}

impl Place {
    /// Address of a vector as kernels take it, see [`Grid::shift`].
    fn vector(&self, index: usize) -> u64 {
        let elements = (index * self.grid.volume()) as u64;
        self.base.wrapping_add(8 * elements).wrapping_sub(8 * self.grid.shift() as u64)
    }

    /// Address of plane `k` of a vector.
    fn plane(&self, index: usize, k: isize) -> u64 {
        self.base + 8 * (index * self.grid.volume() + self.grid.plane_at(k)) as u64
    }
}

/// The other ranks of a run on GPUs that reach each other's memory.
pub(super) struct Peers {
    rank: usize,
    size: usize,
    pub partition: Partition,
    /// Blocks send and signal themselves; else exchanges are launches of their own.
    pub in_kernels: bool,
    /// Where neighbours store, if not straight into the ghosts.
    inboxes: Option<Inboxes>,
    /// No other rank is on this rank's GPU: blocks may wait.
    apart: bool,
    /// By level, as far as others write there, and rank.
    places: Vec<Vec<Place>>,
    /// By rank; this one's is empty.
    links: Vec<Link>,
    agree: Agree,
    bounds: Bounds,
    abort: Word64,
    reports: Buffer<u64>,
    communicator: Communicator,
    signals: Window<u64>,
    /// Keep the peers' memory mapped, and the counts alive.
    _memory: (Vec<Window<f64>>, Buffer<u64>),
}

impl Peers {
    /// Opens the levels' memory, `regions` of the levels that are cut and of the first that is not, to all ranks.
    ///
    /// # Errors
    /// [`CudaError::TooManyRanks`]; if the GPUs do not reach each other; what ended the world.
    pub fn open(
        communicator: &Communicator,
        device: &Device,
        partition: Partition,
        regions: &[Region<f64>],
        dims: &[usize],
        limit: Duration,
    ) -> Result<Self, CudaError> {
        let (rank, size) = (communicator.rank(), communicator.size());
        if size > MAX_PEERS + 1 {
            return Err(CudaError::TooManyRanks { ranks: size, most: MAX_PEERS + 1 });
        }
        let words = size * (SIGNAL + INBOX);
        let own: Region<u64> = communicator.alloc(device, words).map_err(CommError::from)?;
        let signals = communicator.window(&own, 0).map_err(CommError::from)?;
        let (mut windows, mut places) = (Vec::new(), Vec::new());
        for (l, region) in regions.iter().enumerate() {
            let window = communicator.window(region, 0).map_err(CommError::from)?;
            let of = |rank| -> Result<Place, CudaError> {
                let grid = Grid::slab(dims[l], partition.planes_of(l, rank));
                Ok(Place { base: address(&window, rank)?, grid })
            };
            places.push((0..size).map(of).collect::<Result<_, _>>()?);
            windows.push(window);
        }
        let state = device.alloc::<u64>(size * PAIR_WORDS + 2)?;
        let reports = device.alloc_pinned::<u64>(size * REPORT)?;
        let abort = device.alloc_pinned::<u64>(1)?.word(0)?;
        let at = state.device_address().unwrap_or(0);
        let timeout_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let wait = WaitBounds { abort: abort.device_address()?, timeout_ns };
        let bounds = Bounds { wait, failed: at + 8 * (size * PAIR_WORDS) as u64 };
        let mine = address(&signals, rank)?;
        let report = reports.device_address().unwrap_or(0);
        let mut links = vec![Link::default(); size];
        let mut agree =
            Agree { rounds: bounds.failed + 8, bounds, peers: size as i32 - 1, ..Agree::default() };
        for (index, peer) in (0..size).filter(|&peer| peer != rank).enumerate() {
            let theirs = address(&signals, peer)?;
            links[peer] = Link {
                pair: at + 8 * (peer * PAIR_WORDS) as u64,
                theirs: theirs + 8 * (rank * SIGNAL) as u64,
                mine: mine + 8 * (peer * SIGNAL) as u64,
                report: report + 8 * (peer * REPORT) as u64,
            };
            let inbox = |of: usize| 8 * (size * SIGNAL + of * INBOX) as u64;
            agree.links[index] = links[peer];
            agree.outbox[index] = theirs + inbox(rank);
            agree.inbox[index] = mine + inbox(peer);
        }
        Ok(Self {
            rank,
            size,
            partition,
            in_kernels: true,
            inboxes: None,
            apart: true,
            places,
            links,
            agree,
            bounds,
            abort,
            reports,
            communicator: communicator.clone(),
            signals,
            _memory: (windows, state),
        })
    }

    /// Neighbours do not store into ghosts but into buffers, which [`unpack`](Self::unpack) empties.
    ///
    /// # Errors
    /// As [`Inboxes::open`].
    pub fn use_inboxes(&mut self, device: &Device, dims: &[usize]) -> Result<(), CudaError> {
        self.inboxes = Some(Inboxes::open(&self.communicator, device, &self.partition, dims)?);
        Ok(())
    }

    /// Another rank is on this rank's GPU: blocks that wait could keep it from what they wait for.
    pub fn share_gpu(&mut self) {
        self.apart = false;
    }

    /// The rank below (side 0) or above (1).
    fn neighbour(&self, side: usize) -> Option<usize> {
        if side == 0 { self.rank.checked_sub(1) } else { Some(self.rank + 1) }
            .filter(|&rank| rank < self.size)
    }

    /// For a launch over this rank's share of level `l` that writes the vector `written` of a level, if it has ghosts that
    /// others read.
    pub fn slab(&self, l: usize, written: Option<(usize, usize)>) -> Slab {
        let share = self.partition.share(l);
        let held = if self.partition.is_cut(l) { GHOSTS } else { self.places[l][self.rank].grid.n };
        let mut slab = Slab {
            bounds: self.bounds,
            first: share.start as i32,
            end: share.end as i32,
            wait: self.apart.into(),
            held: held as i32,
            ..Slab::default()
        };
        if self.in_kernels {
            for side in 0..2 {
                let Some(peer) = self.neighbour(side) else { continue };
                slab.links[side] = self.links[peer];
                if let Some((level, vector)) = written {
                    slab.peers[side] = self.stored_at(peer, side, level, vector);
                }
            }
        }
        slab
    }

    /// Address of a vector, as kernels take it, for storing this rank's planes at the border with the neighbour on `side`.
    fn stored_at(&self, peer: usize, side: usize, level: usize, vector: usize) -> u64 {
        let Some(inboxes) = &self.inboxes else { return self.places[level][peer].vector(vector) };
        let planes = self.partition.planes(level);
        let first = if side == 0 { planes.start } else { planes.end - GHOSTS };
        let before = Grid::new(self.places[level][peer].grid.n).plane_at(first as isize);
        inboxes.at(peer, level, vector, 1 - side).wrapping_sub(8 * before as u64)
    }

    /// Whether launches that read ghosts come after a wait of their own: their blocks are not to wait.
    pub fn waits_before(&self) -> bool {
        self.in_kernels && !self.apart
    }

    /// Whether ghosts are [unpacked](Self::unpack) before a launch reads them.
    pub fn unpacks(&self) -> bool {
        self.in_kernels && self.inboxes.is_some()
    }

    /// Waits for the neighbours as [`before`](Self::before), and copies what they have sent of a vector into its ghosts.
    pub fn unpack(
        &self,
        stream: &Stream,
        kernels: &Kernels,
        l: usize,
        vector: usize,
    ) -> Result<(), CudaError> {
        let Some(inboxes) = &self.inboxes else { return Ok(()) };
        let here = self.places[l][self.rank];
        let planes = self.partition.planes(l);
        let sides = (0..2).filter_map(|side| Some((side, self.neighbour(side)?)));
        let routes = sides.map(|(side, peer)| Route {
            from: inboxes.at(self.rank, l, vector, side),
            to: here.plane(
                vector,
                if side == 0 {
                    planes.start as isize - GHOSTS as isize
                } else {
                    planes.end as isize
                },
            ),
            pairs: (GHOSTS * here.grid.plane() / 2) as i64,
            link: self.links[peer],
        });
        self.launch(stream, &kernels.unpack, routes)
    }

    /// A vector of a cut level was set to zero, ghosts included: so is what will be unpacked into them.
    pub fn zero(&self, stream: &Stream, l: usize, vector: usize) -> Result<(), CudaError> {
        match &self.inboxes {
            Some(inboxes) if self.partition.is_cut(l) => {
                Ok(stream.fill(&inboxes.own(l, vector)?, 0)?)
            }
            _ => Ok(()),
        }
    }

    /// That wait.
    pub fn before(&self, stream: &Stream, kernels: &Kernels, slab: &Slab) -> Result<(), CudaError> {
        // SAFETY: the kernel's parameter; signals and counts live as long as `self`. A thread for each side.
        Ok(unsafe { stream.launch(&kernels.wait, Dims::linear(1, 2), &[Arg::new(slab)]) }?)
    }

    /// Sends the border planes of a vector to the neighbours, and waits for theirs.
    pub fn exchange(
        &self,
        stream: &Stream,
        kernels: &Kernels,
        l: usize,
        vector: usize,
    ) -> Result<(), CudaError> {
        let here = self.places[l][self.rank];
        let planes = self.partition.planes(l);
        let mut routes = [None; 2];
        for (side, route) in routes.iter_mut().enumerate() {
            let first = if side == 0 { planes.start } else { planes.end - GHOSTS };
            *route = self.neighbour(side).map(|peer| Route {
                from: here.plane(vector, first as isize),
                to: self.places[l][peer].plane(vector, first as isize),
                pairs: (GHOSTS * here.grid.plane() / 2) as i64,
                link: self.links[peer],
            });
        }
        self.launch(stream, &kernels.exchange, routes.into_iter().flatten())
    }

    /// Gives every rank the shares that the others have written of a vector of the first whole level.
    pub fn gather(
        &self,
        stream: &Stream,
        kernels: &Kernels,
        vector: usize,
    ) -> Result<(), CudaError> {
        let l = self.partition.whole();
        let here = self.places[l][self.rank];
        let share = self.partition.share(l);
        let routes = (0..self.size).filter(|&peer| peer != self.rank).map(|peer| Route {
            from: here.plane(vector, share.start as isize),
            to: self.places[l][peer].plane(vector, share.start as isize),
            pairs: (share.len() * here.grid.plane() / 2) as i64,
            link: self.links[peer],
        });
        self.launch(stream, &kernels.exchange, routes)
    }

    fn launch(
        &self,
        stream: &Stream,
        kernel: &Kernel,
        routes: impl Iterator<Item = Route>,
    ) -> Result<(), CudaError> {
        let mut exchange = Exchange { bounds: self.bounds, ..Exchange::default() };
        let (mut count, mut most) = (0, 0);
        for (to, route) in exchange.routes.iter_mut().zip(routes) {
            *to = route;
            count += 1;
            most = most.max(route.pairs);
        }
        let blocks = (most as u64).div_ceil(256).clamp(1, COPYING_BLOCKS.into()) as u32;
        let dims = Dims { grid: (blocks, count, 1), block: (256, 1, 1), shared: 0 };
        // SAFETY: the kernel's parameter; the ranges are inside vectors of this rank and of peers, which live as long as
        // `self`; phases order their use.
        Ok(unsafe { stream.launch(kernel, dims, &[Arg::new(&exchange)]) }?)
    }

    /// Replaces the first `count` of `values` by the largest of all ranks, which are bit patterns of numbers that are not
    /// negative, and copies all to `results`.
    pub fn agree(
        &self,
        stream: &Stream,
        kernels: &Kernels,
        values: &Buffer<u64>,
        count: usize,
        results: &Buffer<u64>,
    ) -> Result<(), CudaError> {
        let agree = Agree {
            values: values.device_address().unwrap_or(0),
            results: results.device_address().unwrap_or(0),
            count: count as i32,
            others: (values.len() - count) as i32,
            ..self.agree
        };
        // SAFETY: the kernel's parameter; both are buffers of as many words, which live as long as the stream is used.
        Ok(unsafe { stream.launch(&kernels.agree, Dims::linear(1, 32), &[Arg::new(&agree)]) }?)
    }

    /// While the stream is waited for: true if the world is over, and then the kernels' waits end.
    pub fn release_if_over(&self) -> bool {
        let over = self.signals.memory_of(self.rank).is_err();
        if over {
            self.release();
        }
        over
    }

    /// Ends the kernels' waits.
    pub fn release(&self) {
        // Pinned memory: the CPU reaches it.
        let _ = self.abort.store(1);
    }

    /// After the stream has been waited for.
    ///
    /// # Errors
    /// What ended the world; a wait that failed, and for whom.
    pub fn check(&self) -> Result<(), CudaError> {
        self.signals.memory_of(self.rank).map_err(CommError::from)?;
        // SAFETY: no kernel runs; any bits are numbers.
        let reports = unsafe { self.reports.as_slice()? };
        for (peer, report) in reports.chunks(REPORT).enumerate() {
            // The layout of `WaitReport`.
            let [status, expected, seen, waited_ns] = *report else { continue };
            if status as u32 != 0 {
                return Err(CudaError::Peer {
                    peer,
                    host: self.communicator.host(peer).unwrap_or_default().to_owned(),
                    expected,
                    seen,
                    waited: Duration::from_nanos(waited_ns),
                });
            }
        }
        Ok(())
    }
}

/// Address of a rank's part of a window.
pub(super) fn address<T: bytemuck::Pod>(window: &Window<T>, rank: usize) -> Result<u64, CudaError> {
    let memory = window.memory_of(rank).map_err(CommError::from)?;
    Ok(memory.device_address().unwrap_or(0))
}
