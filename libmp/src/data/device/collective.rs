//! Barrier and all-reduce of the ranks' devices: one launch a rank, or a function inside a kernel (`mp/collective.cuh`). Every
//! rank writes packets straight into every other's inbox. GPUs only: the host has [`Communicator::barrier`],
//! [`Communicator::all_reduce`] and [`AllReduce`](crate::AllReduce).

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use bytemuck::Pod;
use gdsync::{Arg, Buffer, Device, Dims, PeerHandle, PeerMemory, Stream};
use mp_kernels::Collective;

use super::report::Report;
use super::station::PACKET;
use super::window::nanoseconds;
use crate::collective::ReduceOp;
use crate::communicator::Communicator;
use crate::data::operation::Name;
use crate::data::plane::Plane;
use crate::data::region::Region;
use crate::error::{Error, Result};

/// A barrier of the ranks' GPUs: [`Communicator::prepare_device_barrier`].
///
/// # Order
/// What every rank's stream, or group of threads, did before it is visible to all behind it. Runs are counted in the GPU's
/// memory, so a captured graph can be replayed.
pub struct DeviceBarrier {
    shared: Shared,
}

/// An all-reduce of the ranks' GPUs: [`Communicator::prepare_device_all_reduce`]. Every rank gets the same bits: ranks are
/// combined in rank order. Counted as [`DeviceBarrier`].
pub struct DeviceAllReduce<T> {
    shared: Shared,
    element: PhantomData<T>,
}

/// An element that GPUs reduce: `f64` or `u64`.
pub trait DeviceNumber: Pod + sealed::Sealed {}
impl DeviceNumber for f64 {}
impl DeviceNumber for u64 {}

mod sealed {
    pub trait Sealed {
        const KERNEL: &'static str;
    }
    impl Sealed for f64 {
        const KERNEL: &'static str = "mp_all_reduce_f64";
    }
    impl Sealed for u64 {
        const KERNEL: &'static str = "mp_all_reduce_u64";
    }
}

struct Shared {
    plane: Arc<Plane>,
    device: Device,
    handle: Collective,
    report: Arc<Report>,
    held: Vec<Buffer<u8>>,
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
        let inbox = len.max(1).checked_mul(2 * size * PACKET as usize);
        let made: Result<Buffer<u8>> = match (device, inbox) {
            (Device::Host, _) => Err(mismatch(
                "it is for GPUs; the host has Communicator::barrier and all_reduce".into(),
            )),
            (_, None) => Err(mismatch(format!("{len} elements"))),
            (_, Some(bytes)) => plane.pieces.cut_for(device, bytes).map_err(failed),
        };
        // Everybody hears of a failure of anybody.
        let told: Result<(u64, PeerHandle), String> = made
            .as_ref()
            .map_err(ToString::to_string)
            .and_then(|inbox| inbox.export().map_err(|error| error.to_string()))
            .map(|handle| (len as u64, handle));
        let blob = postcard::to_stdvec(&told).map_err(|error| mismatch(error.to_string()))?;
        let blobs = communicator.all_gather(&blob)?;
        let mut held = vec![made?];
        let mut table = Vec::new();
        for (rank, blob) in blobs.iter().enumerate() {
            plane.mapped_neighbour(communicator.world_rank(rank)?)?;
            let told: Result<(u64, PeerHandle), String> = postcard::from_bytes(blob)
                .map_err(|error| mismatch(format!("rank {rank}: {error}")))?;
            let (theirs, handle) = told.map_err(|why| mismatch(format!("rank {rank}: {why}")))?;
            if theirs != len as u64 {
                return Err(mismatch(format!("{len} elements here, {theirs} on rank {rank}")));
            }
            let inbox = PeerMemory::map(&handle, device).map_err(failed)?.buffer;
            table.push(inbox.device_address().unwrap_or_default());
            held.push(inbox);
        }
        // The counter, and behind it the addresses.
        let words: Buffer<u64> = plane
            .pieces
            .cut_for(device, 64 + 8 * size)
            .and_then(|bytes| bytes.cast())
            .map_err(failed)?;
        words.slice(8..8 + size).and_then(|to| to.write(&table)).map_err(failed)?;
        let state = words.word(0).and_then(|word| word.device_address()).map_err(failed)?;
        held.push(words.bytes());
        let rank = communicator.rank();
        let name = Name {
            verb,
            tag: 0,
            direction: "on",
            rank: communicator.world_rank(rank)?,
            host: communicator.host(rank)?.into(),
        };
        let report = plane.report(device, Arc::new(name))?;
        let handle = Collective {
            inboxes: state + 64,
            ranks: size as u64,
            rank: rank as u64,
            len: len as u64,
            state,
            abort: plane.abort_of(device)?.0,
            timeout_ns: nanoseconds(communicator.timeout()),
            report: report.address().map_err(failed)?,
        };
        Ok(Shared { plane: plane.clone(), device: device.clone(), handle, report, held })
    }

    fn launch(&self, stream: &Stream, kernel: &str, threads: u32, args: &[Arg<'_>]) -> Result<()> {
        let op = || self.report.name.to_string();
        self.plane.check_after(Duration::ZERO, op)?;
        let failed = |source| Error::Memory { op: op(), source };
        let ordinal = |device: &Device| device.as_cuda().map(gdsync::CudaDevice::ordinal);
        if ordinal(stream.device()) != ordinal(&self.device) {
            return Err(Error::Mismatch {
                op: op(),
                reason: format!(
                    "prepared for {}, and {} is a stream of {}",
                    self.device,
                    stream.name(),
                    stream.device()
                ),
            });
        }
        let Some(cuda) = self.device.as_cuda() else { return Ok(()) };
        let kernel = cuda.kernel(kernel).map_err(failed)?;
        self.held.iter().for_each(|memory| stream.hold(memory));
        stream.hold(self.report.memory());
        // SAFETY: callers pass the kernel's parameters; its memory is held here, or by the graph being captured.
        unsafe { stream.launch(&kernel, Dims::linear(1, threads), args) }.map_err(failed)
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
    /// [`Error::Mismatch`] for a stream of another device, [`Error::Memory`], what ended the world.
    pub fn run_on(&self, stream: &Stream) -> Result<()> {
        self.shared.launch(stream, "mp_barrier", 32, &[Arg::new(&self.shared.handle)])
    }

    /// What `mp::barrier` of `mp/collective.cuh` takes. Valid while this object lives.
    pub fn handle(&self) -> Collective {
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
        let handle = self.shared.handle;
        let count = values.len() as u64;
        let Some(address) = values.buffer().device_address().filter(|_| count <= handle.len) else {
            return Err(Error::Mismatch {
                op: self.shared.report.name.to_string(),
                reason: format!("{count} values for one prepared for {}", handle.len),
            });
        };
        let code: u32 = match op {
            ReduceOp::Sum => 0,
            ReduceOp::Min => 1,
            ReduceOp::Max => 2,
        };
        stream.hold(values.buffer());
        let args = [Arg::new(&handle), Arg::new(&address), Arg::new(&count), Arg::new(&code)];
        self.shared.launch(stream, T::KERNEL, 256, &args)
    }

    /// What `mp::all_reduce` of `mp/collective.cuh` takes. Valid while this object lives.
    pub fn handle(&self) -> Collective {
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
        write!(f, "{} of {} elements", self.shared.report.name, self.shared.handle.len)
    }
}
