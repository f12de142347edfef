//! Barrier and all-reduce of the ranks' devices: one launch a rank, or a function inside a kernel (`mp/collective.cuh`). Ranks
//! that map each other's memory write packets straight into each other's inbox; where one is reached through a NIC the
//! kernels put and signal on a window (`mp/impl/nic_collective.cuh`). Streams of GPUs only: a host stream's rank has
//! [`Communicator::barrier`], [`Communicator::all_reduce`] and [`AllReduce`](crate::AllReduce).

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use bytemuck::Pod;
use gdsync::{Arg, Buffer, Device, Dims, PeerHandle, PeerMemory, Space, Stream};
use mp_kernels::{Collective, NicCollective};
use serde::{Deserialize, Serialize};

use super::report::Report;
use super::station::PACKET;
use crate::collective::ReduceOp;
use crate::communicator::Communicator;
use crate::data::operation::Name;
use crate::data::path::Path;
use crate::data::plane::Plane;
use crate::data::region::Region;
use crate::data::window::{Window, nanoseconds};
use crate::error::{Error, Result};

/// A barrier of the ranks' GPUs: [`Communicator::prepare_device_barrier`].
///
/// # Order
/// What every rank's stream, or group of threads, did before it is visible to all behind it; through a NIC also what it put to
/// whichever rank. Runs are counted in the GPU's memory, so a captured graph can be replayed.
///
/// # Failure
/// A wait ends with the communicator's timeout, with the world, and, through a NIC, when a request fails: the kernel's call
/// returns the status, and [`Communicator::synchronize`] the error.
pub struct DeviceBarrier {
    shared: Shared,
}

/// An all-reduce of the ranks' GPUs: [`Communicator::prepare_device_all_reduce`]. Every rank gets the same bits: ranks are
/// combined in rank order. Counted, and ended by failures, as [`DeviceBarrier`].
pub struct DeviceAllReduce<T> {
    shared: Shared,
    element: PhantomData<T>,
}

/// What a kernel takes of a barrier or an all-reduce. `mp::barrier` and `mp::all_reduce` of `mp/collective.cuh` are there for
/// both, so a kernel that is a template of the handle's type serves both. Ranks of one collective have the same kind.
#[derive(Debug, Clone, Copy)]
pub enum CollectiveHandle {
    /// All ranks map each other's memory.
    Mapped(Collective),
    /// Some ranks are reached through a NIC.
    Nic(NicCollective),
}

impl CollectiveHandle {
    /// As an argument of a launch.
    pub fn arg(&self) -> Arg<'_> {
        match self {
            CollectiveHandle::Mapped(handle) => Arg::new(handle),
            CollectiveHandle::Nic(handle) => Arg::new(handle),
        }
    }
}

/// An element that GPUs reduce: `f64` or `u64`.
pub trait DeviceNumber: Pod + sealed::Sealed {}
impl DeviceNumber for f64 {}
impl DeviceNumber for u64 {}

mod sealed {
    pub trait Sealed {
        const KERNELS: super::Kernels;
    }
    impl Sealed for f64 {
        const KERNELS: super::Kernels =
            super::Kernels { mapped: "mp_all_reduce_f64", nic: "mp_nic_all_reduce_f64" };
    }
    impl Sealed for u64 {
        const KERNELS: super::Kernels =
            super::Kernels { mapped: "mp_all_reduce_u64", nic: "mp_nic_all_reduce_u64" };
    }
}

/// Names of kernels for the two kinds of handle.
#[derive(Clone, Copy)]
pub struct Kernels {
    mapped: &'static str,
    nic: &'static str,
}

const BARRIER: Kernels = Kernels { mapped: "mp_barrier", nic: "mp_nic_barrier" };

struct Shared {
    plane: Arc<Plane>,
    device: Device,
    len: u64,
    handle: CollectiveHandle,
    report: Arc<Report>,
    /// What kernels use; streams and graphs hold it.
    held: Vec<Buffer<u8>>,
    /// Where a rank is reached through a NIC.
    _window: Option<Window<u64>>,
}

/// What each rank tells the others.
#[derive(Serialize, Deserialize)]
struct Told {
    len: u64,
    gpu: bool,
    /// Where ranks map each other's memory: where the others write.
    inbox: Option<PeerHandle>,
}

impl Shared {
    fn prepare(
        communicator: &Communicator,
        plane: &Arc<Plane>,
        device: &Device,
        verb: &'static str,
        len: usize,
    ) -> Result<Shared> {
        let failed = |source| Error::Memory { op: format!("preparing a {verb}"), source };
        let mismatch =
            |reason: String| Error::Mismatch { op: format!("preparing a {verb}"), reason };
        let size = communicator.size();
        let mut far = false;
        for rank in 0..size {
            far |= plane.path(communicator.world_rank(rank)?)? != Path::Direct;
        }
        // Two turns of all ranks: packets, or words, which a NIC stores in pinned memory with less ado than in a GPU's.
        let each = if far { size_of::<u64>() } else { PACKET as usize };
        let inbox: Result<Buffer<u8>> = match len.max(1).checked_mul(2 * size * each) {
            None => Err(mismatch(format!("{len} elements"))),
            Some(bytes) if far => plane.pieces.cut(device, Space::Pinned, bytes).map_err(failed),
            Some(bytes) => plane.pieces.cut_for(device, bytes).map_err(failed),
        };
        // The counter, and behind it the addresses.
        let words = || plane.pieces.cut_for(device, 64 + 8 * size)?.cast::<u64>();
        let words = words().map_err(failed);
        let gpu = device.as_cuda().is_some();
        let told = || -> Result<Told> {
            words.as_ref().map_err(Clone::clone)?;
            let inbox = inbox.as_ref().map_err(Clone::clone)?;
            let inbox = (!far).then(|| inbox.export()).transpose().map_err(failed)?;
            Ok(Told { len: len as u64, gpu, inbox })
        };
        // Everybody hears of a failure of anybody.
        let told: Result<Told, String> = told().map_err(|error| error.to_string());
        let blob = postcard::to_stdvec(&told).map_err(|error| mismatch(error.to_string()))?;
        let blobs = communicator.all_gather(&blob)?;
        let (inbox, words) = (inbox?, words?);
        let mut handles = Vec::new();
        for (rank, blob) in blobs.iter().enumerate() {
            let told: Result<Told, String> = postcard::from_bytes(blob)
                .map_err(|error| mismatch(format!("rank {rank}: {error}")))?;
            let theirs = told.map_err(|why| mismatch(format!("rank {rank}: {why}")))?;
            if theirs.len != len as u64 {
                let theirs = theirs.len;
                return Err(mismatch(format!("{len} elements here, {theirs} on rank {rank}")));
            }
            if theirs.gpu != gpu {
                let of = |gpu| if gpu { "a GPU" } else { "the host" };
                let (here, there) = (of(gpu), of(theirs.gpu));
                return Err(mismatch(format!("for {here} here, for {there} on rank {rank}")));
            }
            handles.push(theirs.inbox);
        }
        let state = words.word(0).and_then(|word| word.device_address()).map_err(failed)?;
        let mut held = vec![words.bytes()];
        let rank = communicator.rank();
        let (plane, device, len) = (plane.clone(), device.clone(), len as u64);
        if far {
            let region = Region::from_buffer(inbox.cast().map_err(failed)?);
            let window = Window::open_as(communicator, &plane, &region, size, (verb, "on"))?;
            let handle =
                CollectiveHandle::Nic(NicCollective { window: window.handle()?, len, state });
            held.extend(window.memory());
            let report = window.report().clone();
            return Ok(Shared { plane, device, len, handle, report, held, _window: Some(window) });
        }
        let mut table = Vec::new();
        for handle in &handles {
            let handle =
                handle.as_ref().ok_or_else(|| mismatch("a rank tells no memory".into()))?;
            let inbox = PeerMemory::map(handle, &device).map_err(failed)?.buffer;
            table.push(inbox.device_address().unwrap_or_default());
            held.push(inbox);
        }
        held.push(inbox);
        words.slice(8..8 + size).and_then(|to| to.write(&table)).map_err(failed)?;
        let name = Name {
            verb,
            tag: 0,
            direction: "on",
            rank: communicator.world_rank(rank)?,
            host: communicator.host(rank)?.into(),
        };
        let report = plane.report(&device, Arc::new(name))?;
        let handle = CollectiveHandle::Mapped(Collective {
            inboxes: state + 64,
            ranks: size as u64,
            rank: rank as u64,
            len,
            state,
            abort: plane.abort_of(&device)?.0,
            timeout_ns: nanoseconds(communicator.timeout()),
            report: report.address().map_err(failed)?,
        });
        Ok(Shared { plane, device, len, handle, report, held, _window: None })
    }

    /// Launches the kernel for the handle, with more arguments behind it.
    fn launch(
        &self,
        stream: &Stream,
        kernels: Kernels,
        threads: u32,
        more: &[Arg<'_>],
    ) -> Result<()> {
        let op = || self.report.name.to_string();
        self.plane.check_after(Duration::ZERO, op)?;
        let failed = |source| Error::Memory { op: op(), source };
        let mismatch = |reason| Error::Mismatch { op: op(), reason };
        let ordinal = |device: &Device| device.as_cuda().map(gdsync::CudaDevice::ordinal);
        if ordinal(stream.device()) != ordinal(&self.device) {
            return Err(mismatch(format!(
                "prepared for {}, and {} is a stream of {}",
                self.device,
                stream.name(),
                stream.device()
            )));
        }
        let Some(cuda) = self.device.as_cuda() else {
            return Err(mismatch(
                "on streams it is for GPUs; the host has Communicator::barrier and all_reduce"
                    .into(),
            ));
        };
        let kernel = match self.handle {
            CollectiveHandle::Mapped(_) => kernels.mapped,
            CollectiveHandle::Nic(_) => kernels.nic,
        };
        let kernel = cuda.kernel(kernel).map_err(failed)?;
        self.held.iter().for_each(|memory| stream.hold(memory));
        stream.hold(self.report.memory());
        let args: Vec<Arg<'_>> =
            [self.handle.arg()].into_iter().chain(more.iter().copied()).collect();
        // SAFETY: callers pass the kernel's parameters; its memory is held here, or by the graph being captured.
        unsafe { stream.launch(&kernel, Dims::linear(1, threads), &args) }.map_err(failed)
    }
}

impl DeviceBarrier {
    pub(crate) fn prepare(
        communicator: &Communicator,
        plane: &Arc<Plane>,
        device: &Device,
    ) -> Result<DeviceBarrier> {
        let shared = Shared::prepare(communicator, plane, device, "device barrier", 0)?;
        Ok(DeviceBarrier { shared })
    }

    /// Makes the stream wait for the streams of all ranks.
    ///
    /// # Errors
    /// [`Error::Mismatch`] for a stream of another device or of the host, [`Error::Memory`], what ended the world.
    pub fn run_on(&self, stream: &Stream) -> Result<()> {
        self.shared.launch(stream, BARRIER, 32, &[])
    }

    /// What `mp::barrier` of `mp/collective.cuh` takes. Valid while this object lives.
    pub fn handle(&self) -> CollectiveHandle {
        self.shared.handle
    }
}

impl<T: DeviceNumber> DeviceAllReduce<T> {
    pub(crate) fn prepare(
        communicator: &Communicator,
        plane: &Arc<Plane>,
        device: &Device,
        len: usize,
    ) -> Result<DeviceAllReduce<T>> {
        let shared = Shared::prepare(communicator, plane, device, "device all-reduce", len)?;
        Ok(DeviceAllReduce { shared, element: PhantomData })
    }

    /// Combines the values of all ranks element by element, in place, when the stream gets there.
    ///
    /// # Errors
    /// As [`DeviceBarrier::run_on`]; [`Error::Mismatch`] for more values than it was prepared for.
    pub fn run_on(&self, stream: &Stream, op: ReduceOp, values: &Region<T>) -> Result<()> {
        let (len, count) = (self.shared.len, values.len() as u64);
        let Some(address) = values.buffer().device_address().filter(|_| count <= len) else {
            return Err(Error::Mismatch {
                op: self.shared.report.name.to_string(),
                reason: format!("{count} values for one prepared for {len}"),
            });
        };
        let code: u32 = match op {
            ReduceOp::Sum => 0,
            ReduceOp::Min => 1,
            ReduceOp::Max => 2,
        };
        stream.hold(values.buffer());
        let args = [Arg::new(&address), Arg::new(&count), Arg::new(&code)];
        self.shared.launch(stream, T::KERNELS, 256, &args)
    }

    /// What `mp::all_reduce` of `mp/collective.cuh` takes. Valid while this object lives.
    pub fn handle(&self) -> CollectiveHandle {
        self.shared.handle
    }
}

impl fmt::Debug for DeviceBarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.shared.report.name)
    }
}

impl<T> fmt::Debug for DeviceAllReduce<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} elements", self.shared.report.name, self.shared.len)
    }
}
