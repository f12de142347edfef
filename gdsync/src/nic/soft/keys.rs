//! Registered memory and its keys: what a NIC may touch, checked at every access.
//!
//! A key is an index and a generation, as on mlx5: a key that was deregistered names nothing, even when its index is
//! taken again. Indices are taken again in turn; one that has had all its generations rests for longer than a frame that
//! carries one of its keys can be under way. Addresses are those of the device that the memory was allocated for, since kernels write them into
//! entries; the table translates.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use crate::cuda::copies::Copies;
use crate::error::Error;
use crate::memory::Buffer;
use crate::memory::copy::copy_bytes;
use crate::nic::memory_region::Access;
use crate::peer::PeerHandle;
use crate::verbs;
use crate::wqe::DataSegment;

/// Memory that the NIC may touch. Holds the memory.
pub(crate) struct RegionMemory {
    buffer: Buffer<u8>,
    /// An address for the CPU, or a GPU's address if `gpu` is there.
    base: *mut u8,
    /// How a GPU's own memory is reached.
    gpu: Option<OfGpu>,
    /// The address that entries name it by.
    pub address: u64,
    pub access: Access,
    /// By which peers of this machine map it, where they can.
    pub handle: Option<PeerHandle>,
    /// As the RDMA device knows it, if that reaches it.
    pub device: Option<Arc<verbs::MemoryRegion>>,
}

/// How a GPU's own memory is reached.
struct OfGpu {
    copies: Arc<Copies>,
    /// The GPU whose memory it is, which need not be the one that copies; none if it is not known.
    owner: Option<u32>,
}

// SAFETY: a view of memory that the buffer holds; copies to and from it are ordered by the protocol, as on a NIC.
unsafe impl Send for RegionMemory {}
// SAFETY: as for Send.
unsafe impl Sync for RegionMemory {}

/// Why an access was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyError {
    /// The key names nothing.
    NoKey,
    /// The range is not inside the region.
    Bounds,
    /// The region does not allow it.
    Permission,
    /// The GPU whose memory it is does not copy.
    Broken,
}

/// What is held until no peer uses a key any more that was taken back: the registration with the RDMA device, if there is one.
#[derive(Default)]
pub(crate) struct TakenBack {
    _device: Option<Arc<verbs::MemoryRegion>>,
}

impl TakenBack {
    pub fn of(memory: &RegionMemory) -> TakenBack {
        TakenBack { _device: memory.device.clone() }
    }
}

/// Where bytes are: in memory of the CPU, or in a GPU's own.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub pointer: *mut u8,
    gpu: Option<&'a OfGpu>,
}

impl Place<'static> {
    /// Memory of the CPU.
    pub const fn host(pointer: *const u8) -> Place<'static> {
        Place { pointer: pointer.cast_mut(), gpu: None }
    }
}

impl Place<'_> {
    /// `bytes` further.
    pub fn after(self, bytes: usize) -> Self {
        Place { pointer: self.pointer.wrapping_add(bytes), ..self }
    }
}

impl RegionMemory {
    /// The memory of `buffer`, named by `address`; `None` if the CPU cannot reach it.
    pub fn new(
        buffer: Buffer<u8>,
        address: u64,
        access: Access,
        handle: Option<PeerHandle>,
    ) -> Option<RegionMemory> {
        let base = buffer.host_address()?.as_ptr();
        Some(RegionMemory { buffer, base, gpu: None, address, access, handle, device: None })
    }

    /// A GPU's own memory, named by `address`, reached by `copies` of a GPU. `owner`: whose it is, if that is known.
    pub fn of_gpu(
        buffer: Buffer<u8>,
        address: u64,
        access: Access,
        handle: Option<PeerHandle>,
        copies: Arc<Copies>,
        owner: Option<u32>,
    ) -> Option<RegionMemory> {
        let base = buffer.device_address()? as *mut u8;
        Some(RegionMemory {
            buffer,
            base,
            gpu: Some(OfGpu { copies, owner }),
            address,
            access,
            handle,
            device: None,
        })
    }

    /// The same memory, which an RDMA device reaches as `device`.
    pub fn reached_by(self, device: Option<Arc<verbs::MemoryRegion>>) -> RegionMemory {
        RegionMemory { device, ..self }
    }

    /// The `len` bytes at `pointer`, which [`RegionMemory::check`] returned, for requests of the RDMA device.
    pub fn slice(&self, pointer: *const u8, len: usize) -> Option<verbs::RegionSlice> {
        let at = (pointer as usize).checked_sub(self.base as usize)?;
        self.device.as_ref()?.slice(at..at.checked_add(len)?).ok()
    }

    /// What [`RegionMemory::check`] returned, with the way to get there.
    pub fn place(&self, pointer: *mut u8) -> Place<'_> {
        Place { pointer, gpu: self.gpu.as_ref() }
    }

    pub fn is_on_gpu(&self) -> bool {
        self.gpu.is_some()
    }

    pub fn len(&self) -> u64 {
        self.buffer.size() as u64
    }

    /// Where `len` bytes at `address` are, if all of them are inside and `need` is allowed.
    pub fn check(&self, address: u64, len: u64, need: Access) -> Result<*mut u8, KeyError> {
        let offset = address.checked_sub(self.address).ok_or(KeyError::Bounds)?;
        if offset.checked_add(len).is_none_or(|end| end > self.len()) {
            return Err(KeyError::Bounds);
        }
        if !self.access.includes(need) {
            return Err(KeyError::Permission);
        }
        // Not `add`: it may be a GPU's address.
        Ok(self.base.wrapping_add(offset as usize))
    }
}

/// Is told of pieces of registered memory, one after the other.
pub(crate) type EachPiece<'a> =
    dyn FnMut(&Arc<RegionMemory>, *mut u8, usize) -> Result<(), KeyError> + 'a;

/// The keys of a NIC.
#[derive(Default)]
pub(crate) struct KeyTable {
    slots: Vec<Slot>,
    /// Indices with generations that were not given out, the one that has been free longest first.
    free: VecDeque<u32>,
    /// Indices that have had all of them, and since when nobody holds one, in the order of that.
    resting: VecDeque<(u32, Instant)>,
    /// The longest that a peer of this NIC may be silent.
    silence: Duration,
}

#[derive(Default)]
struct Slot {
    generation: u8,
    region: Option<Arc<RegionMemory>>,
}

/// Key indices below this are never given out: among them is the key that ends a receive (0x100).
const FIRST: u32 = 16;
/// Indices have 24 bits.
const LAST: u32 = 0x00ff_ffff;
/// The shortest rest of an index.
const REST: Duration = Duration::from_secs(60);

impl KeyTable {
    /// Peers may be silent for so long: frames of theirs that are older have arrived, or never will.
    pub fn allow_silence(&mut self, silence: Duration) {
        self.silence = self.silence.max(silence);
    }

    /// Gives `region` a key `now`; `None` if there are no more.
    pub fn insert(&mut self, region: Arc<RegionMemory>, now: Instant) -> Option<u32> {
        let rest = REST.max(2 * self.silence);
        let rested = |(_, since): &&(u32, Instant)| now.saturating_duration_since(*since) > rest;
        let at = if let Some(at) = self.free.pop_front() {
            at
        } else if self.resting.front().filter(rested).is_some() {
            self.resting.pop_front()?.0
        } else {
            let at = u32::try_from(self.slots.len()).ok().filter(|at| *at <= LAST - FIRST)?;
            self.slots.push(Slot::default());
            at
        };
        let slot = &mut self.slots[at as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.region = Some(region);
        Some((at + FIRST) << 8 | u32::from(slot.generation))
    }

    /// Takes the key back `now`. From then on nobody finds the region by it.
    pub fn remove(&mut self, key: u32, now: Instant) -> Option<Arc<RegionMemory>> {
        self.find(key)?;
        let at = (key >> 8) - FIRST;
        let slot = &mut self.slots[at as usize];
        // The first generation is 1.
        match slot.generation {
            0 => self.resting.push_back((at, now)),
            _ => self.free.push_back(at),
        }
        slot.region.take()
    }

    pub fn find(&self, key: u32) -> Option<&Arc<RegionMemory>> {
        let at = (key >> 8).checked_sub(FIRST)?;
        let slot = self.slots.get(at as usize)?;
        slot.region.as_ref().filter(|_| slot.generation == key as u8)
    }

    /// Where `len` bytes at `address` under `key` are.
    pub fn check(
        &self,
        key: u32,
        address: u64,
        len: u64,
        need: Access,
    ) -> Result<(&Arc<RegionMemory>, *mut u8), KeyError> {
        let region = self.find(key).ok_or(KeyError::NoKey)?;
        Ok((region, region.check(address, len, need)?))
    }

    /// Checks every segment.
    pub fn check_segments(&self, segments: &[DataSegment], need: Access) -> Result<(), KeyError> {
        segments.iter().try_for_each(|segment| {
            self.check(segment.lkey(), segment.address(), u64::from(segment.length()), need)
                .map(|_| ())
        })
    }

    /// Calls `piece` for the parts of `segments` that hold bytes `offset` to `offset + len` of the message.
    pub fn for_pieces(
        &self,
        segments: &[DataSegment],
        mut offset: u64,
        mut len: u64,
        need: Access,
        mut piece: impl FnMut(&Arc<RegionMemory>, *mut u8, usize) -> Result<(), KeyError>,
    ) -> Result<(), KeyError> {
        for segment in segments {
            let there = u64::from(segment.length());
            if offset >= there {
                offset -= there;
                continue;
            }
            if len == 0 {
                break;
            }
            let part = len.min(there - offset);
            let address = segment.address().checked_add(offset).ok_or(KeyError::Bounds)?;
            let (region, pointer) = self.check(segment.lkey(), address, part, need)?;
            piece(region, pointer, part as usize)?;
            (offset, len) = (0, len - part);
        }
        if len == 0 { Ok(()) } else { Err(KeyError::Bounds) }
    }
}

/// Copies to memory of a GPU that have begun. Whatever comes behind them, but for more of them, waits for them first.
#[derive(Default)]
pub(crate) struct Begun {
    gpu: Option<Arc<Copies>>,
    /// One has failed.
    broken: bool,
}

impl Begun {
    /// Copies from place to place, behind all that have begun. Bytes for a GPU are there when it is settled, others when it returns.
    ///
    /// # Errors
    /// [`KeyError::Broken`] if a GPU's driver refuses.
    ///
    /// # Safety
    /// As [`copy_on_host`]; memory of GPUs is valid until it is settled.
    pub unsafe fn copy(
        &mut self,
        from: Place<'_>,
        to: Place<'_>,
        len: usize,
    ) -> Result<(), KeyError> {
        let Some(OfGpu { copies, owner }) = to.gpu else {
            self.settle()?;
            // SAFETY: the caller's promise.
            return unsafe { copy_to_host(from, to.pointer, len) };
        };
        if !self.gpu.as_ref().is_some_and(|gpu| Arc::ptr_eq(gpu, copies)) {
            self.settle()?;
            self.gpu = Some(copies.clone());
        }
        let (source, target) = (from.pointer as u64, to.pointer as u64);
        // SAFETY: the caller's promise.
        let begun = unsafe {
            match from.gpu {
                None => copies.to_device(from.pointer, target, len),
                Some(gpu) if gpu.owner.is_some() && gpu.owner == *owner => {
                    copies.within_device(source, target, len)
                }
                Some(_) => copies.between_devices(source, target, len),
            }
        };
        self.broken |= begun.is_err();
        begun.map_err(broken)
    }

    /// Whether all that have begun are there.
    pub fn is_settled(&self) -> bool {
        self.gpu.is_none() && !self.broken
    }

    /// Waits until all that have begun are there.
    ///
    /// # Errors
    /// [`KeyError::Broken`] if one has failed, now or before.
    pub fn settle(&mut self) -> Result<(), KeyError> {
        if let Some(gpu) = self.gpu.take() {
            let settled = gpu.settle();
            self.broken |= settled.is_err();
            settled.map_err(broken)?;
        }
        if self.broken { Err(KeyError::Broken) } else { Ok(()) }
    }
}

fn broken(error: Error) -> KeyError {
    tracing::error!("a copy of the software NIC: {error}");
    KeyError::Broken
}

/// Copies to memory of the CPU, and returns when the bytes are there.
///
/// # Errors
/// [`KeyError::Broken`] if a GPU's driver refuses.
///
/// # Safety
/// As [`copy_on_host`].
pub(crate) unsafe fn copy_to_host(
    from: Place<'_>,
    to: *mut u8,
    len: usize,
) -> Result<(), KeyError> {
    // SAFETY: the caller's promise.
    unsafe {
        match from.gpu {
            None => copy_on_host(from.pointer, to, len),
            Some(gpu) => gpu.copies.to_host(from.pointer as u64, to, len).map_err(broken)?,
        }
    }
    Ok(())
}

/// Copies between memories of the CPU. One aligned word of 4 or 8 bytes is one store, so that who polls it never sees
/// half of it; what was copied before is visible before it.
///
/// # Safety
/// Both ranges are valid for `len` bytes. Others may access them meanwhile, as with any NIC: what they then see is
/// theirs to order.
unsafe fn copy_on_host(from: *const u8, to: *mut u8, len: usize) {
    fence(Ordering::Release);
    let (source, target) = (from as usize, to as usize);
    match len {
        // SAFETY: the word stored to is aligned, as just checked, and so is the one loaded atomically; both are valid
        // by the caller's promise. (An entry's inline data and a socket's bytes have any alignment, and no writer.)
        8 if target.is_multiple_of(8) => unsafe {
            let value = if source.is_multiple_of(8) {
                AtomicU64::from_ptr(from.cast_mut().cast()).load(Ordering::Relaxed)
            } else {
                from.cast::<u64>().read_unaligned()
            };
            AtomicU64::from_ptr(to.cast()).store(value, Ordering::Release);
        },
        // SAFETY: as above.
        4 if target.is_multiple_of(4) => unsafe {
            let value = if source.is_multiple_of(4) {
                AtomicU32::from_ptr(from.cast_mut().cast()).load(Ordering::Relaxed)
            } else {
                from.cast::<u32>().read_unaligned()
            };
            AtomicU32::from_ptr(to.cast()).store(value, Ordering::Release);
        },
        // SAFETY: the caller's promise; the ranges may overlap when a queue pair is connected to itself.
        _ => unsafe { copy_bytes(from, to, len) },
    }
}

/// An operation on a 64-bit word of registered memory; returns what it held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Atomic {
    FetchAdd(u64),
    CompareSwap { compare: u64, swap: u64 },
}

impl Atomic {
    /// # Safety
    /// `word` is aligned and valid.
    pub unsafe fn apply(self, word: *mut u8) -> u64 {
        // SAFETY: the caller's promise.
        let word = unsafe { AtomicU64::from_ptr(word.cast()) };
        match self {
            Atomic::FetchAdd(add) => word.fetch_add(add, Ordering::SeqCst),
            Atomic::CompareSwap { compare, swap } => {
                let order = Ordering::SeqCst;
                word.compare_exchange(compare, swap, order, order).unwrap_or_else(|held| held)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::memory::Space;

    fn region(len: usize, access: Access) -> Arc<RegionMemory> {
        let buffer = Buffer::<u8>::new(&Device::Host, Space::Host, len).unwrap();
        Arc::new(RegionMemory::new(buffer, 0x1000, access, None).unwrap())
    }

    #[test]
    fn a_key_covers_its_range_and_nothing_else() {
        let mut keys = KeyTable::default();
        let key = keys.insert(region(100, Access::REMOTE_READ), Instant::now()).unwrap();
        let check = |address, len, need| keys.check(key, address, len, need).map(|_| ());
        assert_eq!(check(0x1000, 100, Access::REMOTE_READ), Ok(()));
        assert_eq!(check(0x1064, 0, Access::LOCAL_READ), Ok(()));
        assert_eq!(check(0x1001, 100, Access::LOCAL_READ), Err(KeyError::Bounds));
        assert_eq!(check(0xfff, 1, Access::LOCAL_READ), Err(KeyError::Bounds));
        assert_eq!(check(u64::MAX, 2, Access::LOCAL_READ), Err(KeyError::Bounds));
        assert_eq!(check(0x1000, u64::MAX, Access::LOCAL_READ), Err(KeyError::Bounds));
        assert_eq!(check(0x1000, 1, Access::REMOTE_WRITE), Err(KeyError::Permission));
        for other in [0, 0x100, key ^ 1, key + 256, u32::MAX] {
            assert_eq!(
                keys.check(other, 0x1000, 1, Access::LOCAL_READ).map(|_| ()),
                Err(KeyError::NoKey)
            );
        }
    }

    #[test]
    fn a_key_that_was_taken_back_stays_dead_when_its_index_is_used_again() {
        let mut keys = KeyTable::default();
        let now = Instant::now();
        let old = keys.insert(region(8, Access::ALL), now).unwrap();
        assert!(keys.remove(old, now).is_some());
        assert!(keys.remove(old, now).is_none());
        let new = keys.insert(region(8, Access::ALL), now).unwrap();
        assert_eq!(old >> 8, new >> 8);
        assert!(keys.find(old).is_none() && keys.find(new).is_some());
        assert_ne!(old, DataSegment::TERMINATOR.lkey());
    }

    #[test]
    fn a_key_that_was_taken_back_stays_dead_for_as_long_as_a_frame_may_carry_it() {
        let mut keys = KeyTable::default();
        keys.allow_silence(Duration::from_secs(100));
        let (region, begin) = (region(8, Access::ALL), Instant::now());
        let mut seen = std::collections::HashSet::new();
        // Whether all 256 keys of an index, one after the other, are new.
        let mut are_new = |seconds| {
            let now = begin + Duration::from_secs(seconds);
            let key = |_| {
                let key = keys.insert(region.clone(), now).unwrap();
                keys.remove(key, now);
                key
            };
            (0..256).map(key).filter(|key| seen.insert(*key)).count() == 256
        };
        assert!((0..5).all(|_| are_new(0)) && are_new(200));
        assert!(!are_new(201));
        assert_eq!(keys.slots.len(), 6, "indices that have rested are taken again");
    }

    #[test]
    fn free_indices_are_taken_in_turn() {
        let mut keys = KeyTable::default();
        let now = Instant::now();
        let three: Vec<u32> =
            (0..3).map(|_| keys.insert(region(8, Access::ALL), now).unwrap()).collect();
        three.iter().for_each(|key| drop(keys.remove(*key, now)));
        for key in three {
            assert_eq!(keys.insert(region(8, Access::ALL), now).unwrap() >> 8, key >> 8);
        }
    }

    #[test]
    fn pieces_are_found_from_any_offset() {
        let mut keys = KeyTable::default();
        let key = keys.insert(region(100, Access::ALL), Instant::now()).unwrap();
        let segments =
            [DataSegment::new(key, 0x1000, 10).unwrap(), DataSegment::new(key, 0x1050, 5).unwrap()];
        let lengths = |offset, len| {
            let mut lengths = Vec::new();
            keys.for_pieces(&segments, offset, len, Access::LOCAL_READ, |_, _, n| {
                lengths.push(n);
                Ok(())
            })
            .map(|()| lengths)
        };
        assert_eq!(lengths(0, 15), Ok(vec![10, 5]));
        assert_eq!(lengths(7, 5), Ok(vec![3, 2]));
        assert_eq!(lengths(10, 5), Ok(vec![5]));
        assert_eq!(lengths(12, 0), Ok(vec![]));
        assert_eq!(lengths(12, 4), Err(KeyError::Bounds));
    }
}
