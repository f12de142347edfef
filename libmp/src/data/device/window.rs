//! Windows for kernels: a region of every rank and signals beside it, addressed freely with `mp/window.cuh`.

use std::fmt;
use std::sync::Arc;

use bytemuck::Pod;
use gdsync::{Buffer, Device, PeerHandle, PeerMemory, Space, Word64};
use mp_kernels::WindowPart;
use serde::{Deserialize, Serialize};

use super::far_window::{FarPart, FarShare, OwnShare};
use super::report::Report;
use crate::communicator::Communicator;
use crate::data::nic::OpenedLink;
use crate::data::operation::Name;
use crate::data::path::Path;
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
///
/// Ranks that are reached through a NIC are written, read and signalled by requests that the kernels post by themselves; the
/// signals are in pinned memory then, and a GPU's own memory has no atomics.
pub struct DeviceWindow<T> {
    pub(super) plane: Arc<Plane>,
    pub(super) timeout: std::time::Duration,
    /// Ranks in the world.
    worlds: Vec<usize>,
    parts: Vec<Part<T>>,
    table: Buffer<u64>,
    rank: usize,
    signals: usize,
    bounds: (u64, u64),
    report: Arc<Report>,
    /// This rank's own number of it, where others reach it through a NIC.
    number: Option<u64>,
}

enum Part<T> {
    Near { memory: Option<Buffer<T>>, signals: Option<Buffer<u64>> },
    Far(FarPart),
}

/// What each rank tells the others; the reason if it cannot take part.
#[derive(Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "one for each rank, and only on its way")]
enum Opening {
    Open { memory: Option<PeerHandle>, signals: Option<PeerHandle>, far: Option<FarShare> },
    Failed(String),
}

impl<T: Pod> DeviceWindow<T> {
    pub(crate) fn open(
        communicator: &Communicator,
        plane: &Arc<Plane>,
        region: &Region<T>,
        signals: usize,
    ) -> Result<DeviceWindow<T>> {
        DeviceWindow::open_as(communicator, plane, region, signals, ("window", "of"))
    }

    /// The same as part of something else, which failures of kernels name.
    pub(super) fn open_as(
        communicator: &Communicator,
        plane: &Arc<Plane>,
        region: &Region<T>,
        signals: usize,
        (verb, direction): (&'static str, &'static str),
    ) -> Result<DeviceWindow<T>> {
        let op = "opening a device window";
        let failed = |source| Error::Memory { op: op.into(), source };
        let mismatch = |reason: String| Error::Mismatch { op: op.into(), reason };
        let device = region.buffer().device();
        let op_of = || op.to_owned();
        let mut far_ranks = Vec::new();
        for rank in 0..communicator.size() {
            let world = communicator.world_rank(rank)?;
            far_ranks.push(plane.path(world)? != Path::Direct);
        }
        let all_far = communicator.size() == 1 + far_ranks.iter().filter(|far| **far).count();
        let some_far = far_ranks.contains(&true);
        // A NIC stores to pinned memory where GPU memory takes a copy engine.
        let own = match some_far {
            true => plane.pieces.cut(device, Space::Pinned, signals * STRIDE),
            false => plane.pieces.cut_for(device, signals * STRIDE),
        };
        let share = || -> Result<Option<OwnShare>> {
            let own = own.clone().map_err(failed)?;
            let users = 1 + far_ranks.iter().filter(|far| **far).count();
            let bytes = region.buffer().bytes();
            let share = some_far.then(|| OwnShare::new(plane, &bytes, &own, users, &op_of));
            share.transpose()
        };
        let share = share();
        // The links first: whoever answers one has seen that its own was asked for.
        let links = || -> Result<Vec<Option<Arc<OpenedLink>>>> {
            let mut links = Vec::new();
            for (rank, far) in far_ranks.iter().enumerate() {
                let neighbour = plane.neighbour(communicator.world_rank(rank)?)?;
                let link = far.then(|| plane.kernel_link(neighbour, device, &op_of));
                links.push(link.transpose()?);
            }
            Ok(links)
        };
        let links = links();
        let opening = || -> Result<Opening> {
            let (own, share) = (own.clone().map_err(failed)?, share.clone()?);
            links.as_ref().map_err(Clone::clone)?;
            // Nobody maps what all others reach through the NIC.
            let export = |there: bool, buffer: &Buffer<u8>| -> Result<Option<PeerHandle>> {
                (there && !all_far).then(|| buffer.export()).transpose().map_err(failed)
            };
            let memory = export(!region.is_empty(), &region.buffer().bytes())?;
            let signals = export(signals > 0, &own)?;
            Ok(Opening::Open { memory, signals, far: share.map(|share| share.told.clone()) })
        };
        let opening = opening().unwrap_or_else(|error| Opening::Failed(error.to_string()));
        let blob = postcard::to_stdvec(&opening).map_err(|error| mismatch(error.to_string()))?;
        let blobs = communicator.all_gather(&blob)?;
        let map = |handle: &Option<PeerHandle>| -> Result<Option<Buffer<u8>>> {
            let mapped = handle.as_ref().map(|handle| PeerMemory::map(handle, device));
            Ok(mapped.transpose().map_err(failed)?.map(|peer| peer.buffer))
        };
        let mut parts = Vec::new();
        let (own, share, links) = (own.map_err(failed)?, share?, links?);
        for (rank, (blob, link)) in blobs.iter().zip(links).enumerate() {
            let opening = postcard::from_bytes(blob)
                .map_err(|error| mismatch(format!("rank {rank}: {error}")))?;
            let (memory, signals, far) = match opening {
                Opening::Failed(reason) => {
                    return Err(mismatch(format!("rank {rank}: {reason}")));
                }
                Opening::Open { memory, signals, far } => (memory, signals, far),
            };
            if let (Some(link), Some(own), Some(far)) = (link, &share, far) {
                let neighbour = plane.neighbour(communicator.world_rank(rank)?)?;
                plane.until(neighbour, communicator.timeout(), &op_of, || {
                    plane.listen(neighbour);
                    Ok(plane.is_connected(&link, &op_of)?.then_some(()))
                })?;
                let part = FarPart::new(plane, neighbour, device, link, own, far, &op_of)?;
                parts.push(Part::Far(part));
                continue;
            }
            let (memory, signals) = match rank == communicator.rank() {
                true => (
                    (!region.is_empty()).then(|| region.buffer().bytes()),
                    (!own.is_empty()).then(|| own.clone()),
                ),
                false => (map(&memory)?, map(&signals)?),
            };
            let memory = memory.map(|memory| memory.cast()).transpose().map_err(failed)?;
            let signals = signals.map(|signals| signals.cast()).transpose().map_err(failed)?;
            parts.push(Part::Near { memory, signals });
        }
        let rows: Vec<u64> = parts.iter().flat_map(|part| row(part)).collect();
        let bytes = plane.pieces.cut_for(device, rows.len() * 8).map_err(failed)?;
        let table: Buffer<u64> = bytes.cast().map_err(failed)?;
        table.write(&rows).map_err(failed)?;
        let rank = communicator.rank();
        let world = communicator.world_rank(rank)?;
        let host = communicator.host(rank)?.into();
        let name = Name { verb, tag: 0, direction, rank: world, host };
        let report = plane.report(device, Arc::new(name))?;
        let bounds = (plane.abort_of(device)?.0, nanoseconds(communicator.timeout()));
        let number = share.map(|share| share.told.number());
        let (plane, timeout) = (plane.clone(), communicator.timeout());
        let worlds = (0..communicator.size()).map(|rank| communicator.world_rank(rank));
        let worlds = worlds.collect::<Result<_>>()?;
        Ok(DeviceWindow {
            plane,
            timeout,
            worlds,
            parts,
            table,
            rank,
            signals,
            bounds,
            report,
            number,
        })
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
    /// [`Error::NoSuchRank`]; [`Error::NoPath`] for a rank behind a NIC, whose memory is not mapped.
    pub fn memory_of(&self, rank: usize) -> Result<Option<&Buffer<T>>> {
        Ok(self.near(rank)?.0)
    }

    /// A signal of a rank, for [`gdsync::Stream::signal`] and, of this rank's own, [`gdsync::Stream::wait_signal`].
    ///
    /// # Errors
    /// As [`memory_of`](Self::memory_of); [`Error::OutOfRange`].
    pub fn signal_of(&self, rank: usize, signal: usize) -> Result<Word64> {
        let failed = |source| Error::Memory { op: "a signal".into(), source };
        self.signal_memory(rank, signal)?.word(0).map_err(failed)
    }

    /// The one word of a signal.
    pub(super) fn signal_memory(&self, rank: usize, signal: usize) -> Result<Buffer<u64>> {
        let words = self.near(rank)?.1;
        let word = words.and_then(|words| {
            let at = signal.checked_mul(STRIDE / 8)?;
            words.slice(at..at.checked_add(1)?).ok()
        });
        word.ok_or_else(|| Error::OutOfRange {
            op: format!("a signal of rank {rank}"),
            at: signal as u64,
            len: 1,
            size: self.signals as u64,
        })
    }

    /// What kernels use of it, for streams and graphs to hold.
    pub(super) fn memory(&self) -> Vec<Buffer<u8>> {
        let mut memory = vec![self.table.bytes()];
        for part in &self.parts {
            match part {
                Part::Far(far) => memory.push(far.memory()),
                Part::Near { memory: share, signals } => {
                    memory.extend(share.as_ref().map(Buffer::bytes));
                    memory.extend(signals.as_ref().map(Buffer::bytes));
                }
            }
        }
        memory
    }

    /// Where kernels say what failed.
    pub(super) fn report(&self) -> &Arc<Report> {
        &self.report
    }

    /// This rank in the window's communicator.
    pub(super) fn rank(&self) -> usize {
        self.rank
    }

    /// Of a rank of the window.
    pub(super) fn world_rank(&self, rank: usize) -> Result<usize> {
        self.worlds.get(rank).copied().ok_or_else(|| self.no_such(rank))
    }

    /// The device whose memory it is, here.
    pub(super) fn device(&self) -> &Device {
        self.table.device()
    }

    fn no_such(&self, rank: usize) -> Error {
        Error::NoSuchRank {
            rank,
            communicator: "the window's communicator".into(),
            size: self.parts.len(),
        }
    }

    /// Memory and signals of a rank that are mapped here.
    #[allow(clippy::type_complexity, reason = "two optional buffers")]
    fn near(&self, rank: usize) -> Result<(Option<&Buffer<T>>, Option<&Buffer<u64>>)> {
        match self.parts.get(rank) {
            Some(Part::Near { memory, signals }) => Ok((memory.as_ref(), signals.as_ref())),
            Some(Part::Far(far)) => {
                let reason = "its share of a device window is behind the NIC: kernels reach it with mp/window.cuh, and \
                              streams with `Communicator::window`";
                Err(self.plane.no_path(far.rank(&self.plane), reason))
            }
            None => Err(self.no_such(rank)),
        }
    }
}

impl<T> Drop for DeviceWindow<T> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.plane.close_window(number);
        }
        for part in &self.parts {
            if let Part::Far(far) = part {
                far.retire(&self.plane);
            }
        }
    }
}

/// A [`WindowPart`] as the four words it is.
fn row<T: Pod>(part: &Part<T>) -> [u64; 4] {
    let WindowPart { memory, bytes, signals, nic } = match part {
        Part::Far(far) => far.row(),
        Part::Near { memory, signals } => WindowPart {
            memory: memory.as_ref().and_then(Buffer::device_address).unwrap_or_default(),
            bytes: memory.as_ref().map_or(0, |memory| memory.size() as u64),
            signals: signals.as_ref().and_then(Buffer::device_address).unwrap_or_default(),
            nic: 0,
        },
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
