//! The halo exchange: a rank and its neighbours, each of which has the other's border as its ghosts, as kernels, streams and host
//! streams carry it out. The contract and the protocol are those of `mp/exchange.cuh`.
//!
//! What is exchanged are borders of *fields* ([`Field`]). Every launch that reads or writes ghosts is a *phase*: it begins where
//! the neighbours have finished the last one, and its end tells them that their ghosts of the field written are there and that
//! those of the field read may be overwritten. A launch does not write the field whose ghosts it reads. All ranks have the same
//! phases in the same order.
//!
//! * A kernel does its phases by itself with [`Exchange::handle`] and `mp::Exchange`: it stores into mapped neighbours' ghosts
//!   and signals, or posts one put with a signal for each neighbour behind a NIC.
//! * On a stream, also of the host, [`Exchange::run_on`] is a phase of its own behind kernels that know nothing of it.
//! * Where ranks share a GPU, blocks that wait could keep it from what they wait for: [`Exchange::wait_on`] ahead of the kernel
//!   waits instead, with few blocks.
//!
//! Epochs are in the device's memory, so graphs replay phases, and all three may take turns.
//!
//! ```
//! use libmp::exchange::{Field, Neighbour};
//! use libmp::{Deadline, Device, World};
//!
//! # fn main() -> libmp::Result<()> {
//! let world = World::init()?;
//! let (rank, last) = (world.rank(), world.size() - 1);
//! // A rod of eight cells a rank, with a ghost at each end.
//! let rod = world.alloc::<f64>(&Device::Host, 10)?;
//! let (mut neighbours, mut field) = (Vec::new(), Field::new(&rod, 1, [10, 10]));
//! if rank > 0 {
//!     neighbours.push(Some(Neighbour::new(rank - 1)));
//!     field = field.border([0..1, 0..1, 0..1], [-1..0, 0..1, 0..1]);
//! }
//! if rank < last {
//!     neighbours.push(Some(Neighbour::new(rank + 1)));
//!     field = field.border([7..8, 0..1, 0..1], [8..9, 0..1, 0..1]);
//! }
//! let halo = world.exchange(&Device::Host, &neighbours, &[field])?;
//! let stream = world.stream(&Device::Host)?;
//! halo.run_on(&stream, 0)?;
//! world.synchronize(&stream, Deadline::after(std::time::Duration::from_secs(10)))?;
//! world.finish()
//! # }
//! ```

mod agreement;
mod field;
mod host;
mod route;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use gdsync::{Arg, Buffer, Device, Dims, Stream, Word64};
use mp_kernels::{
    Exchange as Handle, ExchangeHead, ExchangeLink, ExchangeRoute, ExchangeState, WaitBounds,
};
use serde::{Deserialize, Serialize};

pub use field::{Cells, Field};

use crate::communicator::Communicator;
use crate::data::name::Name;
use crate::data::plane::Plane;
use crate::data::report::Report;
use crate::data::window::nanoseconds;
use crate::data::{Region, Window};
use crate::error::{Error, Result};
use crate::transport::{Reach, STRIDE};
use agreement::{Border, Own, Told, agree};
use host::{HostLink, HostSide};
use route::{Ends, without_data};

/// Neighbours of one rank at most: all around a box.
pub const NEIGHBOURS_MAX: usize = 26;

/// Bytes that are worth a block of `mp_exchange`, most blocks for one neighbour, and in all.
const BLOCK_BYTES: u64 = 4096;
const BLOCKS: u64 = 32;
const ALL_BLOCKS: u64 = 224;
/// Threads of such a block.
const THREADS: u32 = 256;
/// What `mp_exchange` does: `starts` and `waits` of `exchange.cu`.
const STARTS: u32 = 1;
const WAITS: u32 = 2;

/// The other end of borders. Two ranks may be neighbours in several ways, around a ring of two for instance, and a rank its own:
/// each way has a number here and one there.
///
/// ```
/// use libmp::exchange::Neighbour;
///
/// // Rank 3 lies in the direction of +x of rank 2, and so rank 2 in that of -x of rank 3.
/// let (from_2, from_3) = (Neighbour::toward(3, [1, 0, 0]), Neighbour::toward(2, [-1, 0, 0]));
/// assert_eq!((from_2.here, from_2.there), (from_3.there, from_3.here));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// Its rank in the communicator.
    pub rank: usize,
    /// What this rank calls the way to it.
    pub here: u64,
    /// What it calls the same way.
    pub there: u64,
}

impl Neighbour {
    /// A rank that is a neighbour in one way.
    pub fn new(rank: usize) -> Neighbour {
        Neighbour { rank, here: 0, there: 0 }
    }

    /// The rank in that direction of a grid of ranks, -1, 0 or 1 along each axis; this rank is in the opposite direction of it.
    pub fn toward(rank: usize, direction: [i8; 3]) -> Neighbour {
        let [x, y, z] = direction.map(|step| (step.clamp(-1, 1) + 1) as u64);
        let here = x + 3 * y + 9 * z;
        Neighbour { rank, here, there: 26 - here }
    }
}

/// What a launch does with fields, by their numbers.
///
/// ```
/// use libmp::exchange::Phase;
///
/// // A sweep from field 0 to field 1, whose blocks wait for the ghosts by themselves.
/// let sweep = Phase { read: Some(0), written: Some(1), waits: true };
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phase {
    /// The field whose ghosts it reads.
    pub read: Option<usize>,
    /// The field that it writes, whose border the neighbours get.
    pub written: Option<usize>,
    /// Whether its blocks wait for the neighbours; otherwise [`Exchange::wait_on`] was enqueued ahead of it.
    pub waits: bool,
}

/// A prepared exchange: [`Communicator::exchange`]. [`exchange`](self) says what it is.
///
/// # Failure
/// A wait ends with the communicator's timeout, with the world, and, through a NIC, when a request fails. From then on nothing
/// is waited for or signalled, and [`Communicator::synchronize`] names the neighbour.
///
/// # Dropping
/// When nothing that uses it runs any more, and on all ranks.
///
/// [`Exchange::handle`] gives kernels what `mp::Exchange` of `mp/exchange.cuh` is made of.
///
/// See [`exchange`](self) for an example.
pub struct Exchange {
    plane: Arc<Plane>,
    device: Device,
    bounds: WaitBounds,
    failed: u64,
    /// For each field and neighbour its route; behind each field's the same without anything to be sent.
    routes: Buffer<ExchangeRoute>,
    /// Of the neighbours that there are, and the numbers of these among all.
    links: Vec<ExchangeLink>,
    numbers: Vec<usize>,
    count: usize,
    fields: Vec<Prepared>,
    /// For each field the receive buffers that it has.
    inboxes: Vec<Vec<Buffer<u8>>>,
    reports: Vec<Arc<Report>>,
    /// What kernels use; streams and graphs hold it.
    held: Vec<Buffer<u8>>,
    /// Keep peers' memory mapped and the own registered. They go first, and wait for what was posted last.
    _windows: Vec<Window<u8>>,
    host: Option<Arc<HostSide>>,
}

/// What is known of a field.
struct Prepared {
    twins: Vec<u64>,
    unpacks: bool,
    blocks: u32,
}

impl Exchange {
    pub(crate) fn prepare(
        communicator: &Communicator,
        plane: &Arc<Plane>,
        device: &Device,
        all_neighbours: &[Option<Neighbour>],
        fields: &[Field],
    ) -> Result<Exchange> {
        let (numbers, neighbours): (Vec<usize>, Vec<Neighbour>) =
            all_neighbours.iter().enumerate().filter_map(|(n, one)| Some((n, (*one)?))).unzip();
        let (neighbours, count) = (&neighbours[..], all_neighbours.len());
        let op = || "preparing a halo exchange".to_owned();
        let mismatch = |reason: String| Error::Mismatch { op: op(), reason };
        let failed = |source| Error::Memory { op: op(), source };
        let own = Own::new(communicator, plane, device, neighbours, fields);
        // Everybody hears of a failure of anybody.
        let told = own.as_ref().map(|own| &own.opening).map_err(Clone::clone);
        let told = postcard::to_stdvec(&told).map_err(|error| mismatch(error.to_string()))?;
        let mut all = Vec::new();
        for (rank, blob) in communicator.all_gather(&told)?.iter().enumerate() {
            let told: Told = postcard::from_bytes(blob)
                .map_err(|error| mismatch(format!("rank {rank}: {error}")))?;
            all.push(told.map_err(|reason| mismatch(format!("rank {rank}: {reason}")))?);
        }
        let own = own.map_err(mismatch)?;
        let rank = communicator.rank();
        let others = agree(&all, rank).map_err(mismatch)?;
        // Signals and buffers of all ranks, and their regions.
        let signals = all.iter().map(|told| told.neighbours.len()).max().unwrap_or(0);
        let buffers = plane.pieces.cut_for(device, own.buffers as usize).map_err(failed)?;
        let open = |memory: &Buffer<u8>, signals: usize| {
            let region = Region::from_buffer(memory.clone());
            Window::open_as(communicator, plane, &region, signals, ("halo exchange", "of"))
        };
        let mut windows =
            own.regions.iter().map(|region| open(region, 0)).collect::<Result<Vec<_>>>()?;
        windows.push(open(&buffers, signals)?);
        let shared = &windows[own.regions.len()];
        let state_bytes = size_of::<ExchangeState>();
        let state = plane.pieces.cut_for(device, (neighbours.len() + 1) * state_bytes);
        let state = state.map_err(failed)?;
        let word = |number: usize| -> Result<Word64> {
            let at = number * state_bytes;
            let word = state.slice(at..at + 8).and_then(|bytes| bytes.cast::<u64>()?.word(0));
            word.map_err(failed)
        };
        let abort = plane.abort_of(device)?;
        let timeout = communicator.timeout();
        let bounds = WaitBounds { abort: abort.address, timeout_ns: nanoseconds(timeout) };
        let ends = Ends { windows: &windows, own: &own, buffers: &buffers };
        let (mut links, mut reports, mut host_links) = (Vec::new(), Vec::new(), Vec::new());
        for (number, neighbour) in neighbours.iter().enumerate() {
            let name = Name {
                verb: "halo exchange",
                tag: neighbour.here,
                direction: "with",
                rank: communicator.world_rank(neighbour.rank)?,
                host: communicator.host(neighbour.rank)?.into(),
            };
            let report = plane.report(device, Arc::new(name))?;
            let theirs = match shared.reach_of(neighbour.rank)? {
                Reach::Near { signals, .. } => signals + (others[number] * STRIDE) as u64,
                Reach::Far { .. } => 0,
            };
            let mine = shared.signal_of(rank, number)?;
            let epoch = word(number)?;
            links.push(ExchangeLink {
                state: epoch.device_address().map_err(failed)?,
                theirs,
                mine: mine.device_address().map_err(failed)?,
                report: report.address().map_err(failed)?,
                twin: 0,
            });
            if device.as_cuda().is_none() {
                host_links.push(HostLink { epoch, mine, report: report.clone() });
            }
            reports.push(report);
        }
        let (mut rows, mut prepared, mut host_fields) = (Vec::new(), Vec::new(), Vec::new());
        for (number, field) in fields.iter().enumerate() {
            let mut all_routes = Vec::new();
            for (link, neighbour) in neighbours.iter().enumerate() {
                let theirs = &all[neighbour.rank].fields[number][others[link]];
                let signal = others[link];
                all_routes.push(ends.route(field, number, link, neighbour.rank, theirs, signal)?);
            }
            let routes = || all_routes.iter().map(|(route, _)| route);
            let bytes = routes().map(|route| route.send.row * route.send.rows * route.send.planes);
            let most = bytes.max().unwrap_or(0);
            let each = ALL_BLOCKS / (neighbours.len() as u64).max(1);
            prepared.push(Prepared {
                twins: all_routes.iter().map(|(_, twin)| *twin).collect(),
                unpacks: routes().any(|route| route.unpack.to != 0),
                blocks: most.div_ceil(BLOCK_BYTES).clamp(1, BLOCKS.min(each)) as u32,
            });
            let full: Vec<ExchangeRoute> = routes().copied().collect();
            for routes in [full.clone(), full.iter().map(without_data).collect()] {
                let first = rows.len();
                rows.resize(first + count, ExchangeRoute::default());
                numbers.iter().zip(routes).for_each(|(number, route)| rows[first + number] = route);
            }
            if device.as_cuda().is_none() {
                let routes = routes().zip(neighbours.iter().zip(&others));
                let routes = routes.map(|(route, (to, &at))| ends.host_route(route, to.rank, at));
                host_fields.push(routes.collect::<Result<Vec<_>>>()?);
            }
        }
        let routes = plane.table(device, &rows, &op)?;
        let failed_word = word(neighbours.len())?;
        let host = HostSide {
            links: host_links,
            fields: host_fields,
            failed: failed_word.clone(),
            abort: abort.word,
            timeout,
        };
        let inbox = |border: &Border| {
            let at = border.inbox? as usize;
            Some(buffers.slice(at..at + border.receive.bytes() as usize))
        };
        let inboxes =
            own.opening.fields.iter().map(|borders| borders.iter().filter_map(inbox).collect());
        let inboxes = inboxes.collect::<gdsync::Result<_>>().map_err(failed)?;
        let mut held = vec![routes.bytes(), state.clone(), buffers];
        held.extend(windows.iter().flat_map(Window::memory));
        let exchange = Exchange {
            plane: plane.clone(),
            device: device.clone(),
            bounds,
            failed: failed_word.device_address().map_err(failed)?,
            routes,
            links,
            numbers,
            count,
            fields: prepared,
            inboxes,
            reports,
            held,
            host: device.as_cuda().is_none().then(|| Arc::new(host)),
            _windows: windows,
        };
        // Nobody's kernels find a neighbour that is not ready.
        communicator.barrier()?;
        Ok(exchange)
    }

    /// What a kernel takes as `mp::Exchange<N>` for one phase. Valid while this object lives; every launch with it is a phase, of
    /// which each block that touches a border takes part.
    ///
    /// # Errors
    /// [`Error::Mismatch`] for more numbers of neighbours than `N`, and for a field that there is not, or that is read and written.
    pub fn handle<const N: usize>(&self, phase: Phase) -> Result<Handle<N>> {
        let Phase { read, written, waits } = phase;
        if self.count > N {
            return Err(self.mismatch(format!("{} neighbours for {N}", self.count)));
        }
        if read.is_some() && read == written {
            return Err(self.mismatch(format!("{phase:?}: its ghosts are read and overwritten")));
        }
        for field in [read, written].into_iter().flatten() {
            self.field(field)?;
        }
        let sends = match (read, written) {
            (_, Some(written)) => self.routes_of(written, false),
            (read, None) => self.routes_of(read.unwrap_or(0), true),
        };
        let unpacks = waits && read.is_some_and(|read| self.fields[read].unpacks);
        let head = ExchangeHead {
            bounds: self.bounds,
            failed: self.failed,
            sends,
            reads: self.routes_of(read.unwrap_or(0), false),
            count: self.count as u32,
            waits: waits.into(),
            unpacks: unpacks.into(),
            reserved: 0,
        };
        let mut handle = Handle { head, ..Handle::default() };
        for (link, (number, here)) in self.numbers.iter().zip(&self.links).enumerate() {
            let twin = written.map_or(0, |written| self.fields[written].twins[link]);
            handle.links[*number] = ExchangeLink { twin, ..*here };
        }
        Ok(handle)
    }

    /// Sends the border of a field to the neighbours when the stream gets there, as a phase that reads no ghosts. The field may be
    /// written again behind it, and its border sent again when the neighbours have answered with a phase.
    ///
    /// # Errors
    /// [`Error::Mismatch`] for a field that there is not and a stream of another device; [`Error::Memory`]; what ended the world.
    pub fn start_on(&self, stream: &Stream, written: usize) -> Result<()> {
        self.enqueue(stream, Some(written), None)
    }

    /// Makes the stream wait until the neighbours have finished as many phases as this rank; then the ghosts of `read` are there.
    /// It is no phase.
    ///
    /// # Errors
    /// As [`start_on`](Self::start_on).
    pub fn wait_on(&self, stream: &Stream, read: Option<usize>) -> Result<()> {
        self.enqueue(stream, None, Some(read))
    }

    /// [`start_on`](Self::start_on) and [`wait_on`](Self::wait_on) of one field, in one launch.
    ///
    /// # Errors
    /// As [`start_on`](Self::start_on).
    pub fn run_on(&self, stream: &Stream, field: usize) -> Result<()> {
        self.enqueue(stream, Some(field), Some(Some(field)))
    }

    /// Fills the receive buffers of a field with zeros when the stream gets there: for a program that has set all of the field to
    /// zero, ghosts included.
    ///
    /// # Errors
    /// As [`start_on`](Self::start_on).
    pub fn clear_on(&self, stream: &Stream, field: usize) -> Result<()> {
        self.field(field)?;
        let failed = |source| Error::Memory { op: "a halo exchange".into(), source };
        self.inboxes[field].iter().try_for_each(|inbox| stream.fill(inbox, 0).map_err(failed))
    }

    fn enqueue(
        &self,
        stream: &Stream,
        sent: Option<usize>,
        awaited: Option<Option<usize>>,
    ) -> Result<()> {
        let op = || "a halo exchange".to_owned();
        let failed = |source| Error::Memory { op: op(), source };
        self.plane.check_after(Duration::ZERO, op)?;
        let read = awaited.flatten();
        for field in [sent, read].into_iter().flatten() {
            self.field(field)?;
        }
        if stream.device().ordinal() != self.device.ordinal() {
            let (here, there) = (&self.device, stream.device());
            return Err(self.mismatch(format!("prepared for {here}, and the stream is {there}'s")));
        }
        if self.links.is_empty() {
            return Ok(());
        }
        if let Some(host) = &self.host {
            let host = host.clone();
            return stream.call(move || host.run(sent, awaited)).map_err(failed);
        }
        let Some(cuda) = self.device.as_cuda() else { return Ok(()) };
        let mut handle: Handle<NEIGHBOURS_MAX> =
            self.handle(Phase { read: None, written: sent, waits: true })?;
        handle.head.reads = self.routes_of(read.unwrap_or(0), false);
        let unpacks = read.is_some_and(|read| self.fields[read].unpacks);
        handle.head.unpacks = unpacks.into();
        let of = |field: Option<usize>| field.map_or(1, |field| self.fields[field].blocks);
        let blocks = of(sent).max(if unpacks { of(read) } else { 1 });
        let what =
            if sent.is_some() { STARTS } else { 0 } | if awaited.is_some() { WAITS } else { 0 };
        let kernel = cuda.kernel("mp_exchange").map_err(failed)?;
        self.held.iter().for_each(|memory| stream.hold(memory));
        self.reports.iter().for_each(|report| stream.hold(report.memory()));
        let dims = Dims::linear(blocks * self.count as u32, THREADS);
        let args = [Arg::new(&handle), Arg::new(&what), Arg::new(&blocks)];
        // SAFETY: the kernel's parameters; their memory is held here, or by the graph being captured, and phases order its use.
        unsafe { stream.launch(&kernel, dims, &args) }.map_err(failed)
    }

    fn field(&self, number: usize) -> Result<&Prepared> {
        let fields = self.fields.len();
        let none = || self.mismatch(format!("field {number} of {fields}"));
        self.fields.get(number).ok_or_else(none)
    }

    /// Address of a field's routes, or of those that carry no data.
    fn routes_of(&self, field: usize, silent: bool) -> u64 {
        let before = (2 * field + usize::from(silent)) * self.count;
        let at = (before * size_of::<ExchangeRoute>()) as u64;
        self.routes.device_address().unwrap_or_default() + at
    }

    fn mismatch(&self, reason: String) -> Error {
        Error::Mismatch { op: "a halo exchange".into(), reason }
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (fields, neighbours) = (self.fields.len(), self.links.len());
        write!(f, "halo exchange of {fields} fields with {neighbours} neighbours")
    }
}
