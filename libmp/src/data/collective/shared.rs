//! What both collectives have: memory, the handle of kernels, launches, and runs on host streams.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gdsync::{Arg, Buffer, Deadline, Device, Dims, PeerHandle, PeerMemory, Space, Stream, Word64};
use mp_kernels::{Collective, NicCollective, PACKET, WaitStatus};
use serde::{Deserialize, Serialize};

use super::Reduce;
use super::host::{HostSide, Way};
use crate::collective::{Element, Number, ReduceOp};
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

pub(super) struct Shared {
    pub plane: Arc<Plane>,
    pub device: Device,
    pub verb: &'static str,
    /// This rank, and the ranks of the communicator in the world.
    pub rank: usize,
    pub world_rank: usize,
    pub world_ranks: Vec<usize>,
    /// Elements.
    pub len: usize,
    pub timeout: Duration,
    pub handle: Collective,
    /// On memory that the CPU reaches.
    pub host: Option<HostSide>,
    /// For what the host starts on a GPU. Made before kernels of any rank run, since making it may wait for them.
    pub stream: Option<Stream>,
    abort: Word64,
    report: Arc<Report>,
    /// What kernels use; streams and graphs hold it.
    held: Vec<Buffer<u8>>,
    /// Of a GPU, where a rank is reached through a NIC; on the host it is the `HostSide`'s.
    _window: Option<Window<u64>>,
}

/// What is prepared; every rank has to prepare the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Of {
    Barrier,
    AllReduce { len: usize, element: Element },
}

impl fmt::Display for Of {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Of::Barrier => f.write_str("a barrier"),
            Of::AllReduce { len, element } => write!(f, "an all-reduce of {len} {element}"),
        }
    }
}

/// What each rank tells the others.
#[derive(Serialize, Deserialize)]
struct Told {
    of: Of,
    gpu: bool,
    /// Where ranks map each other's memory: where the others write.
    inbox: Option<PeerHandle>,
}

impl Shared {
    pub fn prepare(
        communicator: &Communicator,
        plane: &Arc<Plane>,
        device: &Device,
        of: Of,
    ) -> Result<Shared> {
        let (verb, len) = match of {
            Of::Barrier => ("barrier", 0),
            Of::AllReduce { len, .. } => ("all-reduce", len),
        };
        let failed = |source| Error::Memory { op: format!("preparing {verb}"), source };
        let mismatch = |reason: String| Error::Mismatch { op: format!("preparing {verb}"), reason };
        let (rank, size) = (communicator.rank(), communicator.size());
        let world_ranks: Vec<usize> =
            (0..size).map(|rank| communicator.world_rank(rank)).collect::<Result<_>>()?;
        let mut far = false;
        for &rank in &world_ranks {
            far |= plane.path(rank)? != Path::Direct;
        }
        // Two turns of all ranks: packets, or words, which a NIC stores in pinned memory with less ado than in a GPU's.
        let each = if far { size_of::<u64>() } else { PACKET as usize };
        let inbox: Result<Buffer<u8>> = match len.max(1).checked_mul(2 * size * each) {
            None => Err(mismatch(format!("{len} elements"))),
            Some(bytes) if far => plane.pieces.cut(device, Space::Pinned, bytes).map_err(failed),
            Some(bytes) => plane.pieces.cut_for(device, bytes).map_err(failed),
        };
        // The counter, and behind it the addresses of the inboxes or the window.
        let table = (8 * size).max(size_of::<NicCollective>());
        let words = || plane.pieces.cut_for(device, 64 + table)?.cast::<u64>();
        let words = words().map_err(failed);
        let gpu = device.as_cuda().is_some();
        let stream =
            if gpu { plane.stream(device, communicator.timeout()).map(Some) } else { Ok(None) };
        let told = || -> Result<Told> {
            stream.as_ref().map_err(Clone::clone)?;
            words.as_ref().map_err(Clone::clone)?;
            let inbox = inbox.as_ref().map_err(Clone::clone)?;
            let inbox = (!far).then(|| inbox.export()).transpose().map_err(failed)?;
            Ok(Told { of, gpu, inbox })
        };
        // Everybody hears of a failure of anybody.
        let told: Result<Told, String> = told().map_err(|error| error.to_string());
        let blob = postcard::to_stdvec(&told).map_err(|error| mismatch(error.to_string()))?;
        let blobs = communicator.all_gather(&blob)?;
        let (inbox, words, stream) = (inbox?, words?, stream?);
        let mut handles = Vec::new();
        for (rank, blob) in blobs.iter().enumerate() {
            let told: Result<Told, String> = postcard::from_bytes(blob)
                .map_err(|error| mismatch(format!("rank {rank}: {error}")))?;
            let theirs = told.map_err(|why| mismatch(format!("rank {rank}: {why}")))?;
            if theirs.of != of {
                let theirs = theirs.of;
                return Err(mismatch(format!("{of} here, {theirs} on rank {rank}")));
            }
            if theirs.gpu != gpu {
                let of = |gpu| if gpu { "a GPU" } else { "the host" };
                let (here, there) = (of(gpu), of(theirs.gpu));
                return Err(mismatch(format!("for {here} here, for {there} on rank {rank}")));
            }
            handles.push(theirs.inbox);
        }
        let word = words.word(0).map_err(failed)?;
        let state = word.device_address().map_err(failed)?;
        let abort = plane.abort_of(device)?;
        let host = communicator.host(rank)?.into();
        let name = Name { verb, tag: 0, direction: "on", rank: world_ranks[rank], host };
        let report = plane.report(device, Arc::new(name))?;
        let mut handle = Collective {
            ranks: size as u64,
            rank: rank as u64,
            len: len as u64,
            state,
            abort: abort.address,
            timeout_ns: nanoseconds(communicator.timeout()),
            report: report.address().map_err(failed)?,
            ..Collective::default()
        };
        let (mut held, table) = (vec![words.bytes()], words.slice(8..words.len()).map_err(failed)?);
        let mut window = None;
        let way = if far {
            let share: Buffer<u64> = inbox.cast().map_err(failed)?;
            let region = Region::from_buffer(share.clone());
            let opened = Window::open_as(communicator, plane, &region, size, (verb, "on"))?;
            handle.nic = state + 64;
            let nic = NicCollective { window: opened.handle()?, collective: handle };
            let row = || table.bytes().slice(0..size_of_val(&nic))?.cast()?.write(&[nic]);
            row().map_err(failed)?;
            held.extend(opened.memory());
            if gpu {
                window = Some(opened);
                None
            } else {
                let mine = communicator.alloc(device, len)?;
                Some(Way::Nic { window: Box::new(opened), share, mine })
            }
        } else {
            handle.inboxes = state + 64;
            let mut inboxes = Vec::new();
            for (other, handle) in handles.iter().enumerate() {
                let handle = handle.as_ref();
                let handle = handle.ok_or_else(|| mismatch("a rank tells no memory".into()))?;
                inboxes.push(match other == rank {
                    true => inbox.clone(),
                    false => {
                        let op = || format!("preparing {verb}");
                        let unmapped =
                            |source| plane.unmapped(world_ranks[other], op, source, failed);
                        PeerMemory::map(handle, device).map_err(unmapped)?.buffer
                    }
                });
            }
            let address = |inbox: &Buffer<u8>| inbox.device_address().unwrap_or_default();
            let addresses: Vec<u64> = inboxes.iter().map(address).collect();
            table.slice(0..size).and_then(|to| to.write(&addresses)).map_err(failed)?;
            let words = inboxes.iter().map(Buffer::cast).collect::<gdsync::Result<Vec<_>>>();
            held.extend(inboxes);
            let words = words.map_err(failed)?;
            (!gpu).then_some(Way::Mapped(words))
        };
        let host = way.map(|way| HostSide { state: word, rank, ranks: size, len, way });
        Ok(Shared {
            plane: plane.clone(),
            device: device.clone(),
            verb,
            rank,
            world_rank: world_ranks[rank],
            world_ranks,
            len,
            timeout: communicator.timeout(),
            handle,
            host,
            stream,
            abort: abort.word,
            report,
            held,
            _window: window,
        })
    }

    pub fn name(&self) -> String {
        self.report.name.to_string()
    }

    /// Runs so far, as far as the CPU sees them.
    pub fn runs(&self) -> u64 {
        self.host.as_ref().map_or(0, HostSide::runs)
    }

    /// An error if the world is over.
    pub fn check(&self, age: Duration) -> Result<()> {
        self.plane.check_after(age, || self.name())
    }

    /// An error for more values than it was prepared for.
    pub fn fits(&self, count: usize) -> Result<()> {
        if count <= self.len {
            return Ok(());
        }
        let reason = format!("{count} values for one prepared for {}", self.len);
        Err(Error::Mismatch { op: self.name(), reason })
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
    pub fn launch<T: Number>(&self, stream: &Stream, reduce: Reduce<'_, T>) -> Result<()> {
        let failed = |source| Error::Memory { op: self.name(), source };
        let Some(cuda) = self.device.as_cuda() else { return Err(Error::NoOperations) };
        let name = if reduce.is_some() { "mp_all_reduce" } else { "mp_barrier" };
        let kernel = cuda.kernel(name).map_err(failed)?;
        self.held.iter().for_each(|memory| stream.hold(memory));
        stream.hold(self.report.memory());
        let handle = Arg::new(&self.handle);
        let Some((op, values)) = reduce else {
            // SAFETY: the kernel's parameter; its memory is held here, or by the graph being captured.
            return unsafe { stream.launch(&kernel, Dims::linear(1, 32), &[handle]) }
                .map_err(failed);
        };
        self.fits(values.len())?;
        stream.hold(values.buffer());
        let unreachable = || Error::Mismatch {
            op: self.name(),
            reason: format!("{} does not reach the values", self.device),
        };
        let address = values.buffer().device_address().ok_or_else(unreachable)?;
        let (count, element, op) = (values.len() as u64, T::ELEMENT.code(), op.code());
        let args =
            [handle, Arg::new(&address), Arg::new(&count), Arg::new(&element), Arg::new(&op)];
        // SAFETY: as above.
        unsafe { stream.launch(&kernel, Dims::linear(1, 256), &args) }.map_err(failed)
    }

    /// A run by the thread of a host stream; what fails is in the report.
    pub fn run_on_a_host_stream<T: Number>(&self, reduce: Option<&(ReduceOp, Region<T>)>) {
        let (since, expected) = (Instant::now(), self.runs() + 1);
        let ended = |status| self.report.write(status, expected, expected - 1, since.elapsed());
        let is_aborted = || is_set(&self.abort);
        let run = || -> Result<()> {
            let Some(host) = &self.host else { return Err(Error::NoOperations) };
            if is_aborted() {
                // What the stream did before this may have been cut short: the others are not told that it was done.
                ended(WaitStatus::Aborted);
                return Ok(());
            }
            let mine = reduce.map_or_else(|| Ok(Vec::new()), |(_, values)| values.to_vec())?;
            let op = reduce.map_or(ReduceOp::Sum, |(op, _)| *op);
            let mut combined = mine.clone();
            let mut backoff = Backoff::new(Deadline::after(self.timeout));
            let mut run = host.begin(&mine)?;
            while host.advance(&mut run, op, &mine, &mut combined)?.is_some() {
                if is_aborted() {
                    ended(WaitStatus::Aborted);
                    return Ok(());
                }
                if !backoff.pause() {
                    ended(WaitStatus::TimedOut);
                    return Ok(());
                }
            }
            reduce.map_or(Ok(()), |(_, values)| values.write(&combined))
        };
        if let Err(error) = run() {
            self.report.refuse(error);
        }
    }
}
