//! Memory of peers, mapped here: of another thread's device in this process, or of another process of this machine.
//!
//! The owner [exports](Buffer::export) a buffer; the handle travels as bytes; the peer [maps](PeerMemory::map) it and
//! gets a buffer like any other. Mapping the same memory twice shares one mapping, which is closed with the last buffer
//! on it. When the owner's process ends, mappings of host memory stay usable; those of device memory stay valid
//! addresses, but what they hold is undefined.

use std::collections::HashMap;
use std::ffi::c_char;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use cudarc::driver::sys;
use serde::{Deserialize, Serialize};

use crate::cuda::device::{CudaDevice, lock};
use crate::cuda::driver::cu;
use crate::cuda::topology::PeerLink;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::allocation::{Allocation, Backing};
use crate::memory::shared::{SegmentName, SharedSegment};
use crate::memory::{Buffer, Space};
use crate::process::Process;

/// Names a buffer to the other processes of this machine while its owner holds it.
///
/// See [`PeerMemory`] for an example.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PeerHandle {
    process: ProcessId,
    /// The owner's number of the allocation.
    export: u64,
    /// Where the buffer begins in the allocation, and its length, in bytes.
    offset: u64,
    len: u64,
    /// Length of the whole allocation in bytes.
    size: u64,
    kind: Kind,
}

/// A process, told apart from later ones with the same number by when it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct ProcessId {
    pid: u32,
    /// [`Process::began`].
    start: u64,
}

/// How a buffer's memory is named.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Kind {
    Segment(SegmentName),
    Cuda {
        /// `CUipcMemHandle`, and where the allocation begins in what it opens.
        handle: Vec<u8>,
        base_offset: u64,
        gpu: [u8; 16],
    },
    /// Only for other devices of the same process; why.
    SameProcess(String),
}

/// How a peer's memory is reached.
///
/// See [`PeerMemory`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerPath {
    /// It belongs to this process.
    SameProcess,
    /// Host memory of another process, mapped.
    SharedMemory,
    /// Device memory of another process, mapped through CUDA IPC.
    CudaIpc,
}

impl fmt::Display for PeerPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PeerPath::SameProcess => "same process",
            PeerPath::SharedMemory => "shared memory",
            PeerPath::CudaIpc => "CUDA IPC",
        })
    }
}

/// A peer's buffer, mapped here.
///
/// ```
/// use gdsync::{Device, PeerMemory};
///
/// let buffer = Device::Host.alloc_pinned::<u64>(4)?;
/// let handle = buffer.export()?; // serialised to another process of this machine
/// let there = PeerMemory::map(&handle, &Device::Host)?;
/// there.buffer.cast::<u64>()?.write(&[1, 2, 3, 4])?;
/// assert_eq!(buffer.to_vec()?, [1, 2, 3, 4]);
/// # Ok::<(), gdsync::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct PeerMemory {
    /// The peer's bytes.
    pub buffer: Buffer<u8>,
    /// How they are reached.
    pub path: PeerPath,
}

static EXPORTS: Mutex<Option<HashMap<u64, Weak<Allocation>>>> = Mutex::new(None);
static NEXT_EXPORT: AtomicU64 = AtomicU64::new(1);

/// What is mapped: by owner's process, allocation, and the device it is mapped for.
type MappingKey = (ProcessId, u64, Option<u32>);
static MAPPINGS: Mutex<Option<HashMap<MappingKey, Weak<Allocation>>>> = Mutex::new(None);

/// Makes room for one more: forgets what is gone, where the table would grow otherwise.
fn prune<K>(known: &mut HashMap<K, Weak<Allocation>>) {
    if known.len() == known.capacity() {
        known.retain(|_, allocation| allocation.strong_count() > 0);
    }
}

impl<T: bytemuck::Pod> Buffer<T> {
    /// A handle by which peers on this machine map this buffer, for as long as one view of it lives here.
    ///
    /// # Errors
    /// [`Error::NotExportable`] for plain host memory and for peer memory; what the driver says.
    pub fn export(&self) -> Result<PeerHandle> {
        let allocation = self.allocation();
        let refuse = |why| Error::NotExportable { memory: allocation.describe(), why };
        let kind = match &allocation.backing {
            Some(Backing::Segment(segment)) => Kind::Segment(segment.name()?),
            Some(Backing::CudaMemory(_)) => ipc_handle(allocation)?,
            Some(Backing::User(_)) if allocation.space == Space::Device => ipc_handle(allocation)?,
            Some(Backing::User(_)) => {
                Kind::SameProcess("it is the owner's private host memory".into())
            }
            Some(Backing::Heap(..)) => {
                return Err(refuse("it is plain host memory; use pinned memory"));
            }
            Some(Backing::CudaIpc(_) | Backing::Shared(_)) | None => {
                return Err(refuse("it belongs to a peer, who exports it"));
            }
        };
        let export = *allocation.export_id.get_or_init(|| {
            let export = NEXT_EXPORT.fetch_add(1, Ordering::Relaxed);
            let mut exports = lock(&EXPORTS);
            let exports = exports.get_or_insert_default();
            prune(exports);
            exports.insert(export, Arc::downgrade(allocation));
            export
        });
        Ok(PeerHandle {
            process: ProcessId::own()?,
            export,
            offset: self.offset() as u64,
            len: self.size() as u64,
            size: allocation.len as u64,
            kind,
        })
    }
}

/// What peers are told of a GPU's memory. The driver, which takes its time, is asked once.
fn ipc_handle(allocation: &Allocation) -> Result<Kind> {
    if let Some(known) = allocation.ipc.get() {
        return Ok(known.clone());
    }
    let kind = ask_ipc_handle(allocation)?;
    Ok(allocation.ipc.get_or_init(|| kind).clone())
}

fn ask_ipc_handle(allocation: &Allocation) -> Result<Kind> {
    let (Device::Cuda(cuda), Some(address)) = (&allocation.device, allocation.remote) else {
        return Err(Error::NotExportable {
            memory: allocation.describe(),
            why: "it has no device address",
        });
    };
    cuda.bind()?;
    let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
    // SAFETY: the address is that of a live allocation; writes 64 bytes.
    if let Err(error) = unsafe { cu!(cuIpcGetMemHandle(&mut handle, address)) } {
        // Memory that the user mapped by other means, or a driver without IPC: peers in this process still can.
        return Ok(Kind::SameProcess(error.to_string()));
    }
    let (mut base, mut size) = (0, 0);
    // SAFETY: as above; writes two words.
    unsafe { cu!(cuMemGetAddressRange_v2(&mut base, &mut size, address))? };
    let handle = handle.reserved.iter().map(|byte| *byte as u8).collect();
    Ok(Kind::Cuda { handle, base_offset: address - base, gpu: cuda.uuid() })
}

impl PeerHandle {
    /// Length of the buffer in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether other processes than the owner's can map it.
    pub fn travels(&self) -> bool {
        !matches!(self.kind, Kind::SameProcess(_))
    }

    /// The owner's process.
    pub fn pid(&self) -> u32 {
        self.process.pid
    }

    /// The GPU of this machine whose own memory it is, by ordinal; none for memory of the host, and where that is not known.
    pub(crate) fn gpu(&self) -> Option<u32> {
        match &self.kind {
            Kind::Segment(_) => None,
            Kind::Cuda { gpu, .. } => CudaDevice::ordinal_of(gpu).ok().flatten(),
            Kind::SameProcess(_) => exported(self.export)
                .filter(|owner| owner.space == Space::Device)
                .and_then(|owner| owner.device.ordinal()),
        }
    }

    /// Whether what `device` changes in it by atomic operations is one with what its owner changes: the CPU in host memory, and a GPU
    /// in memory of its own, or of one behind a link with native atomics. False where it is not known.
    pub fn has_native_atomics(&self, device: &Device) -> bool {
        match (device.ordinal(), self.gpu()) {
            (Some(from), Some(to)) => {
                PeerLink::between(from, to).is_ok_and(|link| link.access && link.atomics)
            }
            (from, to) => from == to,
        }
    }
}

impl PeerMemory {
    /// Maps the buffer for use by `device` (and, if it is host memory, by the CPU).
    ///
    /// # Errors
    /// [`Error::PeerUnreachable`] if the owner is gone, on another machine or of another user, or the memory is a GPU's
    /// and `device` the host; [`Error::NotReachable`] between GPUs without peer access; what the driver says.
    pub fn map(handle: &PeerHandle, device: &Device) -> Result<PeerMemory> {
        let pid = handle.process.pid;
        let unreachable = |why: String| Error::PeerUnreachable { pid, why };
        let own = handle.process == ProcessId::own()?;
        let key = (handle.process, handle.export, device.ordinal());
        // Held while mapping: set-up is no hot path, and two threads that map the same memory must share it.
        let mut mappings = lock(&MAPPINGS);
        let mappings = mappings.get_or_insert_default();
        let (allocation, path) = match (mappings.get(&key).and_then(Weak::upgrade), &handle.kind) {
            (Some(mapping), Kind::Segment(_)) if !own => (mapping, PeerPath::SharedMemory),
            (Some(mapping), _) if !own => (mapping, PeerPath::CudaIpc),
            (Some(mapping), _) => (mapping, PeerPath::SameProcess),
            (None, kind) => {
                let (allocation, path) = match kind {
                    _ if own => (own_memory(handle, device)?, PeerPath::SameProcess),
                    Kind::Segment(name) => {
                        (map_segment(handle, name, device)?, PeerPath::SharedMemory)
                    }
                    Kind::Cuda { handle: bytes, base_offset, gpu } => (
                        Arc::new(open_ipc(handle, bytes, *base_offset, gpu, device)?),
                        PeerPath::CudaIpc,
                    ),
                    Kind::SameProcess(why) => return Err(unreachable(why.clone())),
                };
                prune(mappings);
                mappings.insert(key, Arc::downgrade(&allocation));
                (allocation, path)
            }
        };
        let range = usize::try_from(handle.offset).ok().zip(usize::try_from(handle.len).ok());
        let (offset, len) =
            range.ok_or_else(|| unreachable("its size is past the address space".into()))?;
        let end = offset.checked_add(len).filter(|end| *end <= allocation.len);
        let end = end.ok_or_else(|| {
            unreachable(format!("the handle's {len} bytes at {offset} exceed it"))
        })?;
        let whole = Buffer::<u8>::shared(allocation);
        Ok(PeerMemory { buffer: whole.slice(offset..end)?, path })
    }
}

/// What this process has exported by that number, while it is there.
fn exported(number: u64) -> Option<Arc<Allocation>> {
    lock(&EXPORTS).as_ref().and_then(|exports| exports.get(&number)?.upgrade())
}

/// Memory of this process, for another of its devices.
fn own_memory(handle: &PeerHandle, device: &Device) -> Result<Arc<Allocation>> {
    let owner = exported(handle.export);
    let gone = || Error::PeerUnreachable {
        pid: handle.process.pid,
        why: "its owner has dropped it".into(),
    };
    let owner = owner.ok_or_else(gone)?;
    let (remote, space) = match (device, &owner.device) {
        (Device::Host, _) => (owner.host.map(|host| host.as_ptr() as u64), owner.space),
        (Device::Cuda(to), Device::Cuda(from)) => {
            if owner.space == Space::Device {
                to.enable_peer(from)?;
            }
            // Under unified addressing the address is the same for every GPU of the process.
            (owner.remote, owner.space)
        }
        (Device::Cuda(_), Device::Host) => match &owner.backing {
            // The GPU needs a registration of its own, and a second mapping can have it.
            Some(Backing::Segment(segment)) => {
                return map_segment(handle, &segment.name()?, device);
            }
            _ => (None, owner.space),
        },
    };
    if remote.is_none() {
        return Err(Error::NotReachable {
            what: "mapping",
            memory: owner.describe(),
            place: device.to_string(),
            hint: "use pinned memory of a GPU of the process",
        });
    }
    let (host, len) = (owner.host, owner.len);
    Ok(Arc::new(Allocation::raw(device, space, len, host, remote, Backing::Shared(owner))))
}

fn map_segment(
    handle: &PeerHandle,
    name: &SegmentName,
    device: &Device,
) -> Result<Arc<Allocation>> {
    let segment = SharedSegment::open(name)?;
    let len = usize::try_from(handle.size).ok().filter(|len| *len <= segment.len());
    let len = len.ok_or_else(|| Error::PeerUnreachable {
        pid: name.pid,
        why: format!("the handle says {} bytes, the memory has {}", handle.size, segment.len()),
    })?;
    Ok(Arc::new(Allocation::segment(device, Space::Pinned, segment, len)?))
}

fn open_ipc(
    handle: &PeerHandle,
    bytes: &[u8],
    base_offset: u64,
    gpu: &[u8; 16],
    device: &Device,
) -> Result<Allocation> {
    let unreachable =
        |why: &str| Error::PeerUnreachable { pid: handle.process.pid, why: why.into() };
    let Device::Cuda(cuda) = device else {
        return Err(unreachable("it is memory of a GPU, which the host cannot map"));
    };
    let mut raw = sys::CUipcMemHandle { reserved: [0; 64] };
    if bytes.len() != raw.reserved.len() {
        return Err(unreachable("the handle is damaged: an IPC handle has 64 bytes"));
    }
    for (to, from) in raw.reserved.iter_mut().zip(bytes) {
        *to = *from as c_char;
    }
    if let Some(owner) = CudaDevice::ordinal_of(gpu)?
        && !PeerLink::between(cuda.ordinal(), owner)?.access
    {
        return Err(Error::NotReachable {
            what: "mapping",
            memory: format!("memory of cuda:{owner}"),
            place: format!("{cuda:?}"),
            hint: "the two GPUs have no peer access",
        });
    }
    cuda.bind()?;
    let mut base = 0;
    let flags = sys::CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
    // SAFETY: writes one address; a handle that is not valid is refused by the driver.
    unsafe { cu!(cuIpcOpenMemHandle_v2(&mut base, raw, flags))? };
    let (mut start, mut size) = (0, 0);
    // SAFETY: the address was just mapped; writes two words.
    let ranged = unsafe { cu!(cuMemGetAddressRange_v2(&mut start, &mut size, base)) };
    let fits = base_offset.checked_add(handle.size).is_some_and(|end| end <= size as u64);
    if ranged.is_err() || !fits {
        // SAFETY: opened just above and used by nobody.
        let _ = unsafe { cu!(cuIpcCloseMemHandle(base)) };
        ranged?;
        return Err(unreachable("the handle's range exceeds the memory that it opens"));
    }
    let len = handle.size as usize;
    Ok(Allocation::raw(
        device,
        Space::Device,
        len,
        None,
        Some(base + base_offset),
        Backing::CudaIpc(base),
    ))
}

impl ProcessId {
    fn own() -> Result<ProcessId> {
        static OWN: OnceLock<Result<u64>> = OnceLock::new();
        // The pid is asked for anew, since a fork changes it; the start time then is the parent's, which only tells
        // processes apart more strictly.
        let start = OWN.get_or_init(|| {
            let own = Process::own().map_err(|e| Error::os("read", "/proc/self/stat", e))?;
            Ok(own.began)
        });
        Ok(ProcessId { pid: std::process::id(), start: start.clone()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_exported_and_mapped_in_one_process_is_the_same_memory() -> Result<()> {
        let owner = Buffer::<u32>::from_slice(&Device::Host, Space::Pinned, &[1, 2, 3, 4])?;
        let peer = PeerMemory::map(&owner.slice(1..3)?.export()?, &Device::Host)?;
        assert_eq!(peer.path, PeerPath::SameProcess);
        let peer = peer.buffer.cast::<u32>()?;
        assert_eq!(peer.to_vec()?, [2, 3]);
        peer.write(&[7, 8])?;
        assert_eq!(owner.to_vec()?, [1, 7, 8, 4]);
        Ok(())
    }

    #[test]
    fn mapping_twice_shares_and_outlives_the_owner() -> Result<()> {
        let owner = Buffer::<u64>::from_slice(&Device::Host, Space::Pinned, &[5])?;
        let handle = owner.export()?;
        let (one, two) =
            (PeerMemory::map(&handle, &Device::Host)?, PeerMemory::map(&handle, &Device::Host)?);
        assert!(Arc::ptr_eq(one.buffer.allocation(), two.buffer.allocation()));
        drop((owner, one));
        assert_eq!(two.buffer.cast::<u64>()?.to_vec()?, [5]);
        drop(two);
        assert!(matches!(
            PeerMemory::map(&handle, &Device::Host),
            Err(Error::PeerUnreachable { .. })
        ));
        Ok(())
    }

    #[test]
    fn plain_host_memory_is_not_exported() -> Result<()> {
        let buffer = Buffer::<u8>::new(&Device::Host, Space::Host, 8)?;
        assert!(matches!(buffer.export(), Err(Error::NotExportable { .. })));
        Ok(())
    }

    #[test]
    fn a_handle_survives_serialisation_and_a_damaged_one_is_refused() -> Result<()> {
        let owner = Buffer::<u8>::new(&Device::Host, Space::Pinned, 100)?;
        let handle = owner.export()?;
        let text = serde_json::to_string(&handle).expect("plain data");
        let mut read: PeerHandle = serde_json::from_str(&text).expect("its own text");
        assert_eq!(read, handle);
        read.offset = 50;
        assert!(matches!(
            PeerMemory::map(&read, &Device::Host),
            Err(Error::PeerUnreachable { .. })
        ));
        Ok(())
    }
}
