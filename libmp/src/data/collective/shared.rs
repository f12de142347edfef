//! What all starts of a collective have in common: memory, the handle of kernels, launches, and runs on host streams.

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use gdsync::{
    Arg, Buffer, CudaDevice, Deadline, Device, Dims, PeerHandle, PeerMemory, Space, Stream, Word64,
};
use mp_kernels::{
    Collective, CollectiveRun, CollectiveState, Extent, LANE_SLOTS, LANE_STRIDE, LEAST_PIECE,
    LEAST_RING, LaneCounters, NO_REDUCTION, PACKET, RingState, WaitStatus,
};
use serde::{Deserialize, Serialize};

use super::blocks::{List, Phase};
use super::host::{
    HostSide, InRegions, Lanes, Memory, Reach, RingCounts, Rings, Rows, Run, Task, ring_share,
};
use super::job::Job;
use crate::communicator::Communicator;
use crate::data::endpoint::is_set;
use crate::data::name::Name;
use crate::data::path::Path;
use crate::data::plane::Plane;
use crate::data::region::Region;
use crate::data::report::Report;
use crate::data::wait::Backoff;
use crate::data::window::{Window, nanoseconds};
use crate::error::{Error, Result};

/// Blocks of up to so many bytes go as packets of one ring, which takes four times the room.
const SMALL: usize = 8 << 10;
/// Rings of a GPU to all other ranks together: larger blocks go quicker in pieces, which take half of the bytes on the way. Between two
/// H100 a run of 1 MiB takes 10 to 14 µs as packets and 16 to 20 in pieces, one of 4 MiB in pieces no longer than its packets would be on the link.
const RINGS: usize = 128;
/// Rings of the host, which does one after another.
const HOST_RINGS: usize = 2;
/// Bytes of a row through a NIC.
const ROW: usize = 16 << 10;
/// Lanes of a GPU: while some wait until their pieces have arrived, others keep NVLink busy.
const LANES: usize = 128;
/// Bytes of the slots of a GPU's lanes, if pieces are not smaller than the least: pieces of 64 KiB between two ranks, of 32 KiB between
/// four, where those of 16 KiB take 8 % longer, and those of 64 KiB are no faster.
const SLOTS: usize = 64 << 20;
/// Bytes of the largest piece.
const MOST_PIECE: usize = 64 << 10;
/// Lanes of the host and the bytes of a piece: the CPU does one after another.
const HOST_LANES: (usize, usize) = (2, 16 << 10);
/// Threads of a block that serves a ring, of one that serves lanes, and of one that serves a NIC.
const RING_THREADS: u32 = 512;
const LANE_THREADS: u32 = 512;
const NIC_THREADS: u32 = 256;

pub(super) struct Shared {
    pub plane: Arc<Plane>,
    pub device: Device,
    /// This rank, and the ranks of the communicator in the world.
    pub rank: usize,
    pub world_rank: usize,
    pub world_ranks: Vec<usize>,
    /// Bytes that there is room for in a block.
    pub bytes: usize,
    pub timeout: Duration,
    pub handle: Collective,
    /// The most blocks of threads of a launch: those of all ranks on this GPU are to run at once, as they wait for each other.
    blocks: u32,
    /// On memory that the CPU reaches.
    pub host: Option<HostSide>,
    abort: Word64,
    report: Arc<Report>,
    /// What kernels use; streams and graphs hold it.
    held: Vec<Buffer<u8>>,
    /// Of a GPU, where a rank is reached through a NIC; on the host it is the `HostSide`'s.
    _window: Option<Window<u64>>,
}

/// What each rank tells the others.
#[derive(Serialize, Deserialize)]
struct Told {
    bytes: usize,
    /// Its GPU, if it is for one.
    gpu: Option<[u8; 16]>,
    /// Where ranks map each other's memory: where the others write.
    inbox: Option<PeerHandle>,
}

/// How blocks travel, the same on all ranks.
struct Form {
    /// Words that go at once.
    len: usize,
    /// Packets of a ring.
    ring: usize,
    rings: usize,
    lanes: usize,
    piece: usize,
    /// Bytes of what the others write.
    inbox: usize,
}

impl Form {
    /// `None`: more than any memory has.
    fn new(bytes: usize, ranks: usize, far: bool, gpu: bool) -> Option<Form> {
        let len = bytes.min(if far { ROW } else { SMALL }).div_ceil(8).max(1);
        if far {
            // Rows that 16 bytes can be read of at once, and one more, from which puts are made.
            let len = len.next_multiple_of(2);
            let inbox = len.checked_mul(8)?.checked_mul(2 * ranks + 1)?;
            return Some(Form { len, ring: 0, rings: 1, lanes: 0, piece: 0, inbox });
        }
        let ring = (2 * len).next_power_of_two().max(LEAST_RING as usize);
        let (others, slots) = (ranks - 1, LANE_SLOTS as usize);
        let most = if gpu { RINGS / others.max(1) } else { HOST_RINGS };
        let rings = bytes.div_ceil(8 * len).min(most).max(1);
        let packets = rings * ranks * (ring * PACKET as usize + LANE_STRIDE as usize);
        if bytes <= 8 * len * rings {
            return Some(Form { len, ring, rings, lanes: 0, piece: 0, inbox: packets });
        }
        let (lanes, piece) = match gpu {
            true => {
                let fits = (SLOTS / (LANES * slots * others.max(1))).max(1);
                let wanted = bytes.div_ceil(LANES).min(MOST_PIECE).next_power_of_two();
                (LANES, (1 << fits.ilog2()).min(wanted).max(LEAST_PIECE as usize))
            }
            false => HOST_LANES,
        };
        let words = lanes * ranks * LANE_STRIDE as usize;
        Some(Form {
            len,
            ring,
            rings,
            lanes,
            piece,
            inbox: packets + words + lanes * others * slots * piece,
        })
    }
}

impl Shared {
    pub fn prepare(
        communicator: &Communicator,
        plane: &Arc<Plane>,
        device: &Device,
        bytes: usize,
    ) -> Result<Shared> {
        let verb = "collective";
        let failed = |source| Error::Memory { op: format!("preparing a {verb}"), source };
        let mismatch =
            |reason: String| Error::Mismatch { op: format!("preparing a {verb}"), reason };
        let (rank, size) = (communicator.rank(), communicator.size());
        let world_ranks: Vec<usize> =
            (0..size).map(|rank| communicator.world_rank(rank)).collect::<Result<_>>()?;
        let mut far = false;
        for &rank in &world_ranks {
            far |= plane.path(rank)? != Path::Direct;
        }
        let uuid = device.as_cuda().map(CudaDevice::uuid);
        let gpu = uuid.is_some();
        // Whole words; a barrier needs one, too.
        let bytes = bytes.max(8).checked_next_multiple_of(8).unwrap_or(usize::MAX);
        let form = Form::new(bytes, size, far, gpu);
        let form = form.ok_or_else(|| mismatch(format!("room for {bytes} bytes")));
        let cut = |form: &Form| match far {
            // A NIC stores with less ado in pinned memory than in a GPU's.
            true => plane.pieces.cut(device, Space::Pinned, form.inbox).map_err(failed),
            false => plane.pieces.cut_for(device, form.inbox).map_err(failed),
        };
        let inbox: Result<Buffer<u8>> = form.as_ref().map_err(Clone::clone).and_then(cut);
        // The state, behind it the addresses of the inboxes, the states of the rings but the first, and the counters of the lanes.
        let table = size_of::<CollectiveState>();
        let states = table + 8 * size;
        let (lanes, rings) = form.as_ref().map_or((0, 1), |form| (form.lanes, form.rings));
        let counters = states + (rings - 1) * size_of::<RingState>();
        let words = || {
            let bytes = counters + lanes * size * size_of::<LaneCounters>();
            plane.pieces.cut_for(device, bytes)?.cast::<u64>()
        };
        let words = words().map_err(failed);
        let told = || -> Result<Told> {
            words.as_ref().map_err(Clone::clone)?;
            let inbox = inbox.as_ref().map_err(Clone::clone)?;
            let inbox = (!far).then(|| inbox.export()).transpose().map_err(failed)?;
            Ok(Told { bytes, gpu: uuid, inbox })
        };
        // Everybody hears of a failure of anybody.
        let told: Result<Told, String> = told().map_err(|error| error.to_string());
        let blob = postcard::to_stdvec(&told).map_err(|error| mismatch(error.to_string()))?;
        let blobs = communicator.all_gather(&blob)?;
        let (form, inbox, words) = (form?, inbox?, words?);
        let (mut handles, mut sharers) = (Vec::new(), 0);
        for (rank, blob) in blobs.iter().enumerate() {
            let told: Result<Told, String> = postcard::from_bytes(blob)
                .map_err(|error| mismatch(format!("rank {rank}: {error}")))?;
            let theirs = told.map_err(|why| mismatch(format!("rank {rank}: {why}")))?;
            if theirs.bytes != bytes {
                let there = theirs.bytes;
                let reason = format!("room for {bytes} bytes here, for {there} on rank {rank}");
                return Err(mismatch(reason));
            }
            if theirs.gpu.is_some() != gpu {
                let of = |gpu| if gpu { "a GPU" } else { "the host" };
                let (here, there) = (of(gpu), of(!gpu));
                return Err(mismatch(format!("for {here} here, for {there} on rank {rank}")));
            }
            sharers += u32::from(theirs.gpu == uuid);
            handles.push(theirs.inbox);
        }
        let word = |offset: usize| words.word(offset / 8).map_err(failed);
        let counts = |at: usize| -> Result<RingCounts> {
            Ok(RingCounts {
                runs: word(at + offset_of!(RingState, runs))?,
                position: word(at + offset_of!(RingState, position))?,
                heard: word(at + offset_of!(RingState, heard))?,
            })
        };
        let first = counts(offset_of!(CollectiveState, ring))?;
        let address = words.word(0).and_then(|word| word.device_address()).map_err(failed)?;
        let abort = plane.abort_of(device)?;
        let host = communicator.host(rank)?.into();
        let name = Name { verb, tag: 0, direction: "on", rank: world_ranks[rank], host };
        let report = plane.report(device, Arc::new(name))?;
        let mut handle = Collective {
            inboxes: address + table as u64,
            ranks: size as u64,
            rank: rank as u64,
            len: form.len as u64,
            ring: form.ring as u64,
            rings: form.rings as u64,
            states: address + states as u64,
            bytes: bytes as u64,
            lanes: form.lanes as u64,
            piece: form.piece as u64,
            counters: address + counters as u64,
            state: address,
            abort: abort.address,
            timeout_ns: nanoseconds(communicator.timeout()),
            report: report.address().map_err(failed)?,
            ..Collective::default()
        };
        let mut held = vec![words.bytes()];
        let (mut window, mut view) = (None, mp_kernels::Window::default());
        let reach = if far {
            let share: Buffer<u64> = inbox.cast().map_err(failed)?;
            let region = Region::from_buffer(share.clone());
            let opened = Window::open_as(communicator, plane, &region, size, (verb, "on"))?;
            handle.nic = address + offset_of!(CollectiveState, window) as u64;
            view = opened.handle_without_atomics()?;
            held.extend(opened.memory());
            if gpu {
                window = Some(opened);
                None
            } else {
                let (len, by_host) = (form.len, AtomicU64::new(0));
                let mine = region.slice(2 * size * len..region.len())?;
                let window = opened;
                let rows =
                    Rows { window, share, mine, rank, ranks: size, len, state: first, by_host };
                Some(Reach::Nic(Box::new(rows)))
            }
        } else {
            let (mut inboxes, mut adds) = (Vec::new(), true);
            for (other, theirs) in handles.iter().enumerate() {
                let theirs = theirs.as_ref();
                let theirs = theirs.ok_or_else(|| mismatch("a rank tells no memory".into()))?;
                inboxes.push(match other == rank {
                    true => inbox.clone(),
                    false => {
                        adds &= theirs.has_native_atomics(device);
                        let op = || format!("preparing a {verb}");
                        let unmapped =
                            |source| plane.unmapped(world_ranks[other], op, source, failed);
                        PeerMemory::map(theirs, device).map_err(unmapped)?.buffer
                    }
                });
            }
            let address = |inbox: &Buffer<u8>| inbox.device_address().unwrap_or_default();
            let addresses: Vec<u64> = inboxes.iter().map(address).collect();
            let row = || words.slice(table / 8..table / 8 + size)?.write(&addresses);
            row().map_err(failed)?;
            handle.near.iter_mut().zip(&addresses).for_each(|(near, inbox)| *near = *inbox);
            handle.adds = u64::from(adds);
            let mapped = inboxes.iter().map(Buffer::cast).collect::<gdsync::Result<Vec<_>>>();
            held.extend(inboxes);
            let inboxes = mapped.map_err(failed)?;
            let counters = words.slice(counters / 8..words.len()).map_err(failed)?;
            let Form { len, ring, rings, lanes: count, piece, .. } = form;
            let behind =
                (1..rings).map(|number| counts(states + (number - 1) * size_of::<RingState>()));
            let states = std::iter::once(Ok(first)).chain(behind).collect::<Result<_>>()?;
            let met = word(offset_of!(CollectiveState, met))?;
            let rings = Rings { inboxes: inboxes.clone(), rank, len, ring, states, met };
            let lanes = Lanes { inboxes, first: rings.words(), count, piece, counters };
            (!gpu).then_some(Reach::Mapped { rings, lanes })
        };
        let known = CollectiveState { collective: handle, window: view, ..Default::default() };
        let memory = || words.bytes().slice(0..table)?.cast()?.write(&[known]);
        memory().map_err(failed)?;
        let host = reach.map(|reach| HostSide { rank, ranks: size, reach });
        let multiprocessors = |cuda: &CudaDevice| cuda.capabilities().multiprocessors;
        Ok(Shared {
            plane: plane.clone(),
            blocks: (device.as_cuda().map_or(1, multiprocessors) / sharers).max(1),
            device: device.clone(),
            rank,
            world_rank: world_ranks[rank],
            world_ranks,
            bytes,
            timeout: communicator.timeout(),
            handle,
            host,
            abort: abort.word,
            report,
            held,
            _window: window,
        })
    }

    pub fn name(&self) -> String {
        self.report.name.to_string()
    }

    /// Memory without bytes.
    pub fn nothing(&self) -> Result<Region<u8>> {
        let nothing = self.held.first().ok_or(Error::NoOperations)?.slice(0..0);
        nothing.map(Region::from_buffer).map_err(|source| Error::Memory { op: self.name(), source })
    }

    /// Runs so far, as far as the CPU sees them.
    pub fn runs(&self) -> u64 {
        self.host.as_ref().map_or(0, HostSide::runs)
    }

    /// An error if the world is over.
    pub fn check(&self, age: Duration) -> Result<()> {
        self.plane.check_after(age, || self.name())
    }

    /// An error for a root that there is not.
    pub fn has_rank(&self, rank: usize) -> Result<()> {
        match self.world_ranks.len() {
            size if rank < size => Ok(()),
            size => Err(Error::NoSuchRank { rank, communicator: self.name(), size }),
        }
    }

    /// An error for larger blocks than it was prepared for.
    pub fn fits(&self, what: &str, bytes: u64) -> Result<()> {
        let room = self.bytes as u64;
        if bytes <= room {
            return Ok(());
        }
        let reason = format!("{what}: blocks of {bytes} bytes for one prepared for {room}");
        Err(Error::Mismatch { op: self.name(), reason })
    }

    /// Whether blocks of so many bytes are more than one ring carries.
    pub fn is_large(&self, bytes: usize) -> bool {
        self.handle.nic == 0 && bytes > 8 * self.handle.len as usize
    }

    /// An error for a stream of another device.
    pub fn is_for(&self, stream: &Stream) -> Result<()> {
        if stream.device().ordinal() == self.device.ordinal() {
            return Ok(());
        }
        let (device, name, other) = (&self.device, stream.name(), stream.device());
        let reason = format!("prepared for {device}, and {name} is a stream of {other}");
        Err(Error::Mismatch { op: self.name(), reason })
    }

    /// A wait whose deadline has passed.
    pub fn late(&self, rank: usize, since: Instant) -> Error {
        Error::Late {
            op: self.name(),
            rank,
            host: self.plane.peer(rank).host.clone(),
            tag: 0,
            expected: self.runs() + 1,
            seen: self.runs(),
            age: since.elapsed(),
            why: format!("rank {rank} has not come").into(),
        }
    }

    /// Launches its kernel on a stream of its GPU.
    pub fn launch(&self, stream: &Stream, job: &Job) -> Result<()> {
        let failed = |source| Error::Memory { op: self.name(), source };
        let Some(cuda) = self.device.as_cuda() else { return Err(Error::NoOperations) };
        let most = job.task().most_of_a_phase();
        let (words, far) = (most.div_ceil(8), self.handle.nic != 0);
        let is_one = far || !self.is_large(job.most as usize);
        let (name, dims) = match (job.is_barrier, is_one) {
            (true, _) => ("mp_barrier", Dims::linear(1, 32)),
            (false, true) if far => ("mp_collective_nic", Dims::linear(1, NIC_THREADS)),
            (false, true) => {
                // A thread a word, as long as there are threads.
                let each = if job.reduction.is_some() { 1 } else { self.handle.ranks };
                let threads = (words * each).clamp(1, 512) as u32;
                ("mp_collective", Dims::linear(1, threads.next_multiple_of(32)))
            }
            (false, false) if words <= self.handle.rings * self.handle.len => {
                let each = ring_share(words, self.handle.len, self.handle.rings);
                let rings = (words.div_ceil(each) as u32).min(self.blocks);
                ("mp_collective_rings", Dims::linear(rings, RING_THREADS))
            }
            (false, false) => {
                let lanes = most.div_ceil(LEAST_PIECE).clamp(1, self.handle.lanes) as u32;
                ("mp_collective_lanes", Dims::linear(lanes.min(self.blocks), LANE_THREADS))
            }
        };
        let kernel = cuda.kernel(name).map_err(failed)?;
        self.held.iter().for_each(|memory| stream.hold(memory));
        stream.hold(self.report.memory());
        let handle = Arg::new(&self.handle);
        if job.is_barrier {
            // SAFETY: the kernel's parameter; its memory is held here, or by the graph being captured.
            return unsafe { stream.launch(&kernel, dims, &[handle]) }.map_err(failed);
        }
        let mut runs = [CollectiveRun::default(); 2];
        for (run, phase) in runs.iter_mut().zip(&job.phases) {
            *run = self.run_of(stream, job, phase)?;
        }
        let [first, second, most] = [Arg::new(&runs[0]), Arg::new(&runs[1]), Arg::new(&most)];
        let args = match is_one {
            true => vec![handle, first, most],
            false => vec![handle, first, second, most],
        };
        // SAFETY: as above.
        unsafe { stream.launch(&kernel, dims, &args) }.map_err(failed)
    }

    /// A phase as kernels take it. The stream holds its memory.
    fn run_of(&self, stream: &Stream, job: &Job, phase: &Phase) -> Result<CollectiveRun> {
        let failed = |source| Error::Memory { op: self.name(), source };
        let unreachable = |what: &str| Error::Mismatch {
            op: self.name(),
            reason: format!("{} does not reach what it {what}", self.device),
        };
        let address = |memory: &Buffer<u8>, list: &List, what| -> Result<u64> {
            if list.extent() == 0 {
                return Ok(0);
            }
            stream.hold(memory);
            memory.device_address().ok_or_else(|| unreachable(what))
        };
        let table = |list: &List| -> Result<u64> {
            if list.table.is_empty() {
                return Ok(0);
            }
            let bytes = size_of_val(&list.table[..]);
            let table = self.plane.pieces.cut(&self.device, Space::Pinned, bytes);
            let table: Buffer<Extent> = table.and_then(|table| table.cast()).map_err(failed)?;
            table.write(&list.table).map_err(failed)?;
            stream.hold(&table);
            table.device_address().ok_or_else(|| unreachable("takes"))
        };
        let given = if phase.again { &job.to } else { &job.from };
        let gives = address(given, &phase.gives, "gives")?;
        let takes = address(&job.to, &phase.takes, "takes")?;
        let reduction = job.reduction.filter(|_| phase.combined);
        Ok(CollectiveRun {
            gives: phase.gives.launched(gives, table(&phase.gives)?),
            takes: phase.takes.launched(takes, table(&phase.takes)?),
            element: reduction.map_or(0, |reduction| reduction.element.code()),
            reduction: reduction.map_or(NO_REDUCTION, |reduction| reduction.op.code()),
        })
    }

    /// Goes on with a run of the host; a rank that is missing.
    pub fn advance<M: Memory>(
        &self,
        run: &mut Run,
        task: &Task<'_>,
        memory: &mut M,
    ) -> Result<Option<usize>> {
        let Some(host) = &self.host else { return Err(Error::NoOperations) };
        host.advance(run, task, memory)
    }

    /// A run by the thread of a host stream; what fails is in the report.
    pub fn run_on_a_host_stream(&self, job: &Job) {
        let (since, expected) = (Instant::now(), self.runs() + 1);
        let ended = |status| self.report.write(status, expected, expected - 1, since.elapsed());
        let is_aborted = || is_set(&self.abort);
        let go = || -> Result<()> {
            if is_aborted() {
                // What the stream did before this may have been cut short: the others are not told that it was done.
                ended(WaitStatus::Aborted);
                return Ok(());
            }
            let mut run = Run::default();
            let mut memory = InRegions { from: &job.from, to: &job.to };
            let mut backoff = Backoff::new(Deadline::after(self.timeout));
            while self.advance(&mut run, &job.task(), &mut memory)?.is_some() {
                backoff.moves(run.moved);
                if is_aborted() {
                    ended(WaitStatus::Aborted);
                    return Ok(());
                }
                if !backoff.pause() {
                    ended(WaitStatus::TimedOut);
                    return Ok(());
                }
            }
            Ok(())
        };
        if let Err(error) = go() {
            self.report.refuse(error);
        }
    }
}
