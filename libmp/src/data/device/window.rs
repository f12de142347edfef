//! Windows for kernels: a region of every rank and signals beside it, addressed freely with `mp/window.cuh`.

use std::fmt;
use std::sync::Arc;

use bytemuck::Pod;
use gdsync::{Buffer, PeerHandle, PeerMemory, Word64};
use mp_kernels::WindowPart;
use serde::{Deserialize, Serialize};

use super::report::Report;
use crate::communicator::Communicator;
use crate::data::operation::Name;
use crate::data::plane::Plane;
use crate::data::region::Region;
use crate::error::{Error, Result};

/// Bytes between two signals, `signal_stride` of `mp/window.cuh`.
const STRIDE: usize = 64;

/// A region of every rank of a communicator, which kernels of the others write, read and signal:
/// [`Communicator::device_window`]. A rank's signals lie in the memory of its own device, where its kernels poll them.
///
/// # Order
/// As `mp/window.cuh` says for each function: data before a signal, by `put_signal` or `signal` after puts of the same group.
/// Signals only grow, and one rank raises each.
pub struct DeviceWindow<T> {
    parts: Vec<Part<T>>,
    table: Buffer<u64>,
    rank: usize,
    signals: usize,
    bounds: (u64, u64),
    report: Arc<Report>,
}

struct Part<T> {
    memory: Option<Buffer<T>>,
    signals: Option<Buffer<u64>>,
}

/// What each rank tells the others; the reason if it cannot take part.
#[derive(Serialize, Deserialize)]
enum Opening {
    Open { memory: Option<PeerHandle>, signals: Option<PeerHandle> },
    Failed(String),
}

impl<T: Pod> DeviceWindow<T> {
    pub(crate) fn open(
        communicator: &Communicator,
        plane: &Arc<Plane>,
        region: &Region<T>,
        signals: usize,
    ) -> Result<DeviceWindow<T>> {
        let op = "opening a device window";
        let failed = |source| Error::Memory { op: op.into(), source };
        let mismatch = |reason: String| Error::Mismatch { op: op.into(), reason };
        let device = region.buffer().device();
        let own = plane.pieces.cut_for(device, signals * STRIDE);
        let opening = || -> gdsync::Result<Opening> {
            let own = own.clone()?;
            let memory = (!region.is_empty()).then(|| region.buffer().export()).transpose()?;
            let signals = (signals > 0).then(|| own.export()).transpose()?;
            Ok(Opening::Open { memory, signals })
        };
        let opening = opening().unwrap_or_else(|error| Opening::Failed(error.to_string()));
        let blob = postcard::to_stdvec(&opening).map_err(|error| mismatch(error.to_string()))?;
        let blobs = communicator.all_gather(&blob)?;
        let map = |handle: &Option<PeerHandle>| -> Result<Option<Buffer<u8>>> {
            let mapped = handle.as_ref().map(|handle| PeerMemory::map(handle, device));
            Ok(mapped.transpose().map_err(failed)?.map(|peer| peer.buffer))
        };
        let mut parts = Vec::new();
        for (rank, blob) in blobs.iter().enumerate() {
            plane.mapped_neighbour(communicator.world_rank(rank)?)?;
            let opening = postcard::from_bytes(blob)
                .map_err(|error| mismatch(format!("rank {rank}: {error}")))?;
            let (memory, signals) = match opening {
                Opening::Failed(reason) => {
                    return Err(mismatch(format!("rank {rank}: {reason}")));
                }
                Opening::Open { memory, signals } => (map(&memory)?, map(&signals)?),
            };
            let memory = memory.map(|memory| memory.cast()).transpose().map_err(failed)?;
            let signals = signals.map(|signals| signals.cast()).transpose().map_err(failed)?;
            parts.push(Part { memory, signals });
        }
        let rows: Vec<u64> = parts.iter().flat_map(|part| row(part)).collect();
        let bytes = plane.pieces.cut_for(device, rows.len() * 8).map_err(failed)?;
        let table: Buffer<u64> = bytes.cast().map_err(failed)?;
        table.write(&rows).map_err(failed)?;
        let rank = communicator.rank();
        let world = communicator.world_rank(rank)?;
        let host = communicator.host(rank)?.into();
        let name = Name { verb: "window", tag: 0, direction: "of", rank: world, host };
        let report = plane.report(device, Arc::new(name))?;
        let bounds = (plane.abort_of(device)?.0, nanoseconds(communicator.timeout()));
        Ok(DeviceWindow { parts, table, rank, signals, bounds, report })
    }

    /// What the functions of `mp/window.cuh` take. Valid while this object lives; a rank drops it when no kernel of any
    /// rank uses the window any more.
    ///
    /// # Errors
    /// [`Error::Memory`] if the device cannot reach its own tables.
    pub fn handle(&self) -> Result<mp_kernels::Window> {
        let failed = |source| Error::Memory { op: "a device window".into(), source };
        Ok(mp_kernels::Window {
            parts: self.table.word(0).and_then(|word| word.device_address()).map_err(failed)?,
            ranks: self.parts.len() as u64,
            rank: self.rank as u64,
            signals: self.signals as u64,
            abort: self.bounds.0,
            timeout_ns: self.bounds.1,
            report: self.report.address().map_err(failed)?,
        })
    }

    /// The memory of a rank as this rank's device reaches it; `None` if it brought none.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`].
    pub fn memory_of(&self, rank: usize) -> Result<Option<&Buffer<T>>> {
        Ok(self.part(rank)?.memory.as_ref())
    }

    /// A signal of a rank, for [`gdsync::Stream::signal`] and, of this rank's own, [`gdsync::Stream::wait_signal`].
    ///
    /// # Errors
    /// [`Error::NoSuchRank`], [`Error::OutOfRange`].
    pub fn signal_of(&self, rank: usize, signal: usize) -> Result<Word64> {
        let words = self.part(rank)?.signals.as_ref();
        let word = words.and_then(|words| words.word(signal.checked_mul(STRIDE / 8)?).ok());
        word.ok_or_else(|| Error::OutOfRange {
            op: format!("a signal of rank {rank}"),
            at: signal as u64,
            len: 1,
            size: self.signals as u64,
        })
    }

    fn part(&self, rank: usize) -> Result<&Part<T>> {
        self.parts.get(rank).ok_or_else(|| Error::NoSuchRank {
            rank,
            communicator: "the window's communicator".into(),
            size: self.parts.len(),
        })
    }
}

/// A [`WindowPart`] as the four words it is.
fn row<T: Pod>(part: &Part<T>) -> [u64; 4] {
    let WindowPart { memory, bytes, signals, nic } = WindowPart {
        memory: part.memory.as_ref().and_then(Buffer::device_address).unwrap_or_default(),
        bytes: part.memory.as_ref().map_or(0, |memory| memory.size() as u64),
        signals: part.signals.as_ref().and_then(Buffer::device_address).unwrap_or_default(),
        nic: 0,
    };
    [memory, bytes, signals, nic]
}

pub(crate) fn nanoseconds(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl<T> fmt::Debug for DeviceWindow<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device window of {} ranks with {} signals", self.parts.len(), self.signals)
    }
}
