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

mod field;
mod host;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use gdsync::nic::Access;
use gdsync::wqe::RemoteAddress;
use gdsync::{Arg, Buffer, Device, Dims, Stream, Word64};
use mp_kernels::{
    Exchange as Handle, ExchangeHead, ExchangeLink, ExchangeRoute, ExchangeState, WaitBounds,
};
use serde::{Deserialize, Serialize};

pub use field::{Cells, Field};

use crate::communicator::Communicator;
use crate::data::device::Report;
use crate::data::nic::Place;
use crate::data::operation::Name;
use crate::data::plane::Plane;
use crate::data::window::nanoseconds;
use crate::data::{Path, Region, Window};
use crate::error::{Error, Result};
use crate::transport::{Reach, STRIDE};
use field::Placed;
use host::{HostLink, HostRoute, HostSide, Theirs};

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
/// Buffers begin at multiples of this.
const ALIGN: u64 = 256;

/// The other end of borders. Two ranks may be neighbours in several ways, around a ring of two for instance, and a rank its own:
/// each way has a number here and one there.
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
pub struct Exchange {
    plane: Arc<Plane>,
    device: Device,
    bounds: WaitBounds,
    failed: u64,
    /// For each field and neighbour its route; behind each field's the same without anything to be sent.
    routes: Buffer<u64>,
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

/// What a rank tells the others; the reason if it cannot take part.
type Told = std::result::Result<Opening, String>;

#[derive(Serialize, Deserialize)]
struct Opening {
    gpu: bool,
    regions: usize,
    neighbours: Vec<Neighbour>,
    fields: Vec<Vec<Border>>,
}

/// One border of a field, as its owner sees it.
#[derive(Serialize, Deserialize)]
struct Border {
    /// Which of the owner's regions it is in.
    region: usize,
    send: Placed,
    receive: Placed,
    /// Where in the owner's buffers it is received, if not in the ghosts.
    inbox: Option<u64>,
}

/// Memory in the order in which it is asked for.
#[derive(Default)]
struct Layout(u64);

impl Layout {
    fn take(&mut self, bytes: u64) -> u64 {
        let at = self.0;
        self.0 = (at + bytes).next_multiple_of(ALIGN);
        at
    }
}

/// A rank's own side before anybody has heard of it.
struct Own {
    opening: Opening,
    regions: Vec<Buffer<u8>>,
    /// For each field and neighbour, where in the own buffers it is collected for the NIC.
    outboxes: Vec<Vec<Option<u64>>>,
    buffers: u64,
}

impl Own {
    fn new(
        communicator: &Communicator,
        plane: &Plane,
        device: &Device,
        neighbours: &[Neighbour],
        fields: &[Field],
    ) -> std::result::Result<Own, String> {
        if neighbours.len() > NEIGHBOURS_MAX {
            let neighbours = neighbours.len();
            return Err(format!("{neighbours} neighbours; at most {NEIGHBOURS_MAX} are possible"));
        }
        let mut far = Vec::new();
        for (number, neighbour) in neighbours.iter().enumerate() {
            if neighbours[..number].contains(neighbour) {
                return Err(format!("{neighbour:?} twice: ways to it have different numbers"));
            }
            let rank =
                communicator.world_rank(neighbour.rank).map_err(|error| error.to_string())?;
            far.push(plane.path(rank).map_err(|error| error.to_string())? != Path::Direct);
        }
        let mut regions: Vec<Buffer<u8>> = Vec::new();
        let (mut told, mut outboxes, mut layout) = (Vec::new(), Vec::new(), Layout::default());
        for (number, field) in fields.iter().enumerate() {
            let of_field = |reason: String| format!("field {number}: {reason}");
            if field.borders.len() != neighbours.len() {
                let (borders, neighbours) = (field.borders.len(), neighbours.len());
                return Err(of_field(format!("{borders} borders with {neighbours} neighbours")));
            }
            if ordinal(field.memory.device()) != ordinal(device) {
                return Err(of_field(format!(
                    "it belongs to {}, and the exchange to {device}",
                    field.memory.device()
                )));
            }
            let same = |region: &Buffer<u8>| {
                region.device_address() == field.memory.device_address()
                    && region.len() == field.memory.len()
            };
            let region = regions.iter().position(same).unwrap_or_else(|| {
                regions.push(field.memory.clone());
                regions.len() - 1
            });
            let (mut borders, mut collected) = (Vec::new(), Vec::new());
            for ((send, receive), far) in field.borders.iter().zip(&far) {
                let send = field.place(send).map_err(of_field)?;
                let receive = field.place(receive).map_err(of_field)?;
                let buffered = if *far { !receive.is_compact() } else { field.buffered };
                let inbox = buffered.then(|| layout.take(receive.bytes()));
                let collect = *far && !send.is_compact();
                collected.push(collect.then(|| layout.take(send.bytes())));
                borders.push(Border { region, send, receive, inbox });
            }
            told.push(borders);
            outboxes.push(collected);
        }
        let opening = Opening {
            gpu: device.as_cuda().is_some(),
            regions: regions.len(),
            neighbours: neighbours.to_vec(),
            fields: told,
        };
        Ok(Own { opening, regions, outboxes, buffers: layout.0 })
    }
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
        let (abort_address, abort) = plane.abort_of(device)?;
        let timeout = communicator.timeout();
        let bounds = WaitBounds { abort: abort_address, timeout_ns: nanoseconds(timeout) };
        let ends = Ends { plane, windows: &windows, own: &own, buffers: &buffers };
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
                let theirs = match shared.reach_of(neighbour.rank)? {
                    Reach::Near { .. } => {
                        Theirs::Mapped(shared.signal_of(neighbour.rank, others[number])?)
                    }
                    Reach::Far { link, signals, .. } => {
                        let signal = Place::at(signals).after(others[number] * STRIDE);
                        Theirs::Far(link.clone(), signal)
                    }
                };
                host_links.push(HostLink { epoch, mine, theirs, report: report.clone() });
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
                let routes = routes().zip(neighbours);
                let routes = routes.map(|(route, to)| ends.host_route(route, to.rank));
                host_fields.push(routes.collect::<Result<Vec<_>>>()?);
            }
        }
        let words: Vec<u64> = rows.iter().flat_map(words_of).copied().collect();
        let routes = plane.table(device, &words, &op)?;
        let failed_word = word(neighbours.len())?;
        let host = HostSide {
            links: host_links,
            fields: host_fields,
            failed: failed_word.clone(),
            abort,
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
        if ordinal(stream.device()) != ordinal(&self.device) {
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

/// What routes are made of.
struct Ends<'a> {
    /// Registers what the CPU puts.
    plane: &'a Plane,
    /// One for each region, and that of the buffers.
    windows: &'a [Window<u8>],
    own: &'a Own,
    buffers: &'a Buffer<u8>,
}

impl Ends<'_> {
    /// The route of the border of field `number` with neighbour `link`, rank `peer`, which sees it as `theirs` and has it under
    /// its signal `signal`; and where cell (0, 0, 0) is for the neighbour.
    fn route(
        &self,
        field: &Field,
        number: usize,
        link: usize,
        peer: usize,
        theirs: &Border,
        signal: usize,
    ) -> Result<(ExchangeRoute, u64)> {
        let address = |memory: &Buffer<u8>| memory.device_address().unwrap_or_default();
        let (memory, buffers) = (address(&field.memory), address(self.buffers));
        let Border { region, send, receive, inbox } = &self.own.opening.fields[number][link];
        let shared = &self.windows[self.own.regions.len()];
        let cells = &field.borders[link].0;
        let [row, plane] = field.strides;
        let first = [0, 1, 2].map(|axis| cells[axis].start);
        let mut route = ExchangeRoute {
            first0: first[0],
            first1: first[1],
            first2: first[2],
            end0: cells[0].end,
            end1: cells[1].end,
            end2: cells[2].end,
            cell: field.cell as u32,
            cells: memory.wrapping_add(field.origin as u64),
            row,
            plane,
            ..ExchangeRoute::default()
        };
        if let Some(at) = *inbox {
            route.unpack = receive.compact(at).copy_to(buffers, receive, memory);
        }
        // The window and the box where the neighbour gets it.
        let (window, there) = match theirs.inbox {
            Some(at) => (shared, theirs.receive.compact(at)),
            None => (&self.windows[theirs.region], theirs.receive),
        };
        // Where the cells are stored: a box in the neighbour's memory or in a buffer of this rank's.
        let own = self.windows[*region].reach_of(peer)?;
        let stored = match (window.reach_of(peer)?, shared.reach_of(peer)?, own) {
            (
                Reach::Far { link: opened, memory: to, .. },
                Reach::Far { signals, own_key: buffers_key, .. },
                Reach::Far { own_key, .. },
            ) => {
                let signal = Place::at(signals).after(signal * STRIDE);
                let to = Place::at(to).after(there.at as usize);
                let view = opened.view.as_ref().and_then(Buffer::device_address);
                route.queue = view.unwrap_or_default();
                (route.put_to, route.to_key) = (to.address, to.rkey);
                (route.signal, route.signal_key) = (signal.address, signal.rkey);
                route.put_bytes = send.bytes();
                let outbox = self.own.outboxes[number][link];
                (route.put_from, route.from_key) = match outbox {
                    None => (memory.wrapping_add(send.at), own_key),
                    Some(at) => (buffers.wrapping_add(at), buffers_key),
                };
                outbox.map(|at| (send.compact(at), buffers))
            }
            (Reach::Near { memory: to, .. }, ..) => Some((there, to)),
            // All windows reach a rank in the same way.
            _ => None,
        };
        let Some((target, to)) = stored else { return Ok((route, 0)) };
        route.send = send.copy_to(memory, &target, to);
        [route.twin_row, route.twin_plane] = target.steps;
        Ok((route, target.origin(to, first, field.cell)))
    }

    /// The same for the CPU.
    fn host_route(&self, route: &ExchangeRoute, peer: usize) -> Result<HostRoute> {
        let op = || format!("preparing a halo exchange with rank {peer}");
        let failed = |source| Error::Memory { op: op(), source };
        let mut put = None;
        if route.put_bytes > 0 {
            let sources = self.own.regions.iter().chain([self.buffers]);
            let from = sources.into_iter().find_map(|memory| {
                let at = route.put_from.checked_sub(memory.device_address()?)?;
                let end = at.checked_add(route.put_bytes)?;
                (end <= memory.len() as u64).then(|| memory.slice(at as usize..end as usize))
            });
            let from = from.transpose().map_err(failed)?;
            let register = |from| self.plane.register(&from, Access::LOCAL_READ, op).transpose();
            let from = from.and_then(register).transpose()?;
            let to = RemoteAddress { address: route.put_to, rkey: route.to_key };
            put = from.map(|from| (from, to));
        }
        Ok(HostRoute { send: route.send, unpack: route.unpack, put })
    }
}

/// For each neighbour of this rank which neighbour of that rank it is, if all agree on who they are and what goes between them.
fn agree(all: &[Opening], rank: usize) -> std::result::Result<Vec<usize>, String> {
    let mut found = Vec::new();
    // All ranks find the same, so that none goes on alone.
    for (here, told) in all.iter().enumerate() {
        let kind = |told: &Opening| (told.gpu, told.regions, told.fields.len());
        if kind(told) != kind(&all[0]) {
            let of = |(gpu, regions, fields)| {
                let device = if gpu { "a GPU" } else { "the host" };
                format!("{fields} fields in {regions} regions of {device}")
            };
            let (first, here_has) = (of(kind(&all[0])), of(kind(told)));
            return Err(format!("rank 0 has {first}, rank {here} has {here_has}"));
        }
        for (number, neighbour) in told.neighbours.iter().enumerate() {
            let there = neighbour.rank;
            let other = Neighbour { rank: here, here: neighbour.there, there: neighbour.here };
            let peer = all.get(there).ok_or_else(|| format!("there is no rank {there}"))?;
            let Some(back) = peer.neighbours.iter().position(|known| *known == other) else {
                return Err(format!(
                    "rank {here} has rank {there} as a neighbour ({neighbour:?}), which has no {other:?}"
                ));
            };
            for (field, (mine, theirs)) in told.fields.iter().zip(&peer.fields).enumerate() {
                let sent = mine[number].send.extents();
                let expected = theirs[back].receive.extents();
                if sent != expected {
                    return Err(format!(
                        "field {field}: rank {here} sends rank {there} rows of {} bytes, {} and {} of them, and that \
                         expects rows of {}, {} and {}",
                        sent[0], sent[1], sent[2], expected[0], expected[1], expected[2]
                    ));
                }
            }
            if here == rank {
                found.push(back);
            }
        }
    }
    Ok(found)
}

/// A route of a launch that writes nothing.
fn without_data(route: &ExchangeRoute) -> ExchangeRoute {
    ExchangeRoute { send: Default::default(), put_bytes: 0, ..*route }
}

const _: () =
    assert!(align_of::<ExchangeRoute>() == 8 && size_of::<ExchangeRoute>().is_multiple_of(8));

fn words_of(route: &ExchangeRoute) -> &[u64] {
    let words = size_of::<ExchangeRoute>() / 8;
    // SAFETY: integers without padding between them, so many words, aligned as they are.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(route).cast(), words) }
}

fn ordinal(device: &Device) -> Option<u32> {
    device.as_cuda().map(gdsync::CudaDevice::ordinal)
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (fields, neighbours) = (self.fields.len(), self.links.len());
        write!(f, "halo exchange of {fields} fields with {neighbours} neighbours")
    }
}
