//! Memory: device, pinned host and plain host, allocated here or brought by the user. A [`Buffer`] is a shared,
//! typed view of it; nothing is freed while a buffer, an operation or a stream may still use it.

pub(crate) mod access;
pub(crate) mod allocation;
pub(crate) mod copy;
pub mod limits;
pub(crate) mod rows;
pub(crate) mod shared;
mod space;
pub mod word;

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use bytemuck::Pod;

use crate::cuda::driver::cu;
use crate::device::Device;
use crate::error::{Error, Result};
use allocation::{Allocation, Backing};
use shared::SharedSegment;
pub use space::Space;

/// A shared view of `len` elements of memory. Cloning and slicing share the memory.
///
/// The memory is given back when the last view is dropped and, for memory that a GPU can reach, every stream of the
/// device has been idle once; dropping therefore never blocks.
///
/// ```
/// use gdsync::Device;
///
/// let buffer = Device::Host.alloc::<u16>(6)?;
/// buffer.slice(2..4)?.write(&[1, 2])?;
/// assert_eq!(buffer.to_vec()?, [0, 0, 1, 2, 0, 0]);
/// assert_eq!(buffer.bytes().len(), 12);
/// # Ok::<(), gdsync::Error>(())
/// ```
pub struct Buffer<T> {
    allocation: Arc<Allocation>,
    offset: usize,
    len: usize,
    element: PhantomData<T>,
}

impl Device {
    /// Allocates `len` zeroed elements in the device's own memory.
    ///
    /// # Errors
    /// As [`Buffer::new`].
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        Buffer::new(self, Space::Device, len)
    }

    /// Allocates `len` zeroed elements of host memory that the device and other processes can reach.
    ///
    /// # Errors
    /// As [`Buffer::new`].
    pub fn alloc_pinned<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        Buffer::new(self, Space::Pinned, len)
    }
}

impl<T> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        Buffer {
            allocation: self.allocation.clone(),
            offset: self.offset,
            len: self.len,
            element: PhantomData,
        }
    }
}

impl<T> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {} in {}", self.len, std::any::type_name::<T>(), self.allocation.describe())
    }
}

impl<T: Pod> Buffer<T> {
    /// Allocates `len` zeroed elements.
    ///
    /// # Errors
    /// Out of memory or a size past the address space; for a GPU what the driver says.
    pub fn new(device: &Device, space: Space, len: usize) -> Result<Buffer<T>> {
        let bytes = bytes_of::<T>("allocation", len)?;
        Ok(Buffer::whole(Allocation::new(device, space, bytes)?, len))
    }

    /// Allocates and fills with `values`.
    ///
    /// # Errors
    /// As [`Buffer::new`] and [`Buffer::write`].
    pub fn from_slice(device: &Device, space: Space, values: &[T]) -> Result<Buffer<T>> {
        let buffer = Buffer::new(device, space, values.len())?;
        buffer.write(values)?;
        Ok(buffer)
    }

    /// Takes the user's vector and makes it reachable for the device, without copying.
    /// Other processes cannot map it.
    ///
    /// # Errors
    /// What registering with the driver says, for example that part of it is registered already.
    pub fn from_vec(device: &Device, mut values: Vec<T>) -> Result<Buffer<T>>
    where
        T: Send + Sync,
    {
        let (address, len) = (NonNull::from(values.as_mut_slice()).cast(), values.len());
        let bytes = bytes_of::<T>("registration", len)?;
        // SAFETY: a vector's heap block does not move with the vector, which is never touched again.
        let allocation = unsafe { Allocation::user(device, address, bytes, Box::new(values))? };
        Ok(Buffer::whole(allocation, len))
    }

    /// Makes host memory of the user reachable for the device, without copying. `owner` is dropped when the last view is gone and,
    /// for a GPU, the device's streams have been idle once; `()` if somebody else keeps the memory that long.
    ///
    /// # Errors
    /// As [`Buffer::from_vec`].
    ///
    /// # Safety
    /// `address` is aligned for `T` and valid for reads and writes of `len` elements until `owner` is dropped.
    pub unsafe fn from_host_memory(
        device: &Device,
        address: NonNull<T>,
        len: usize,
        owner: impl Any + Send + Sync,
    ) -> Result<Buffer<T>> {
        let bytes = bytes_of::<T>("registration", len)?;
        // SAFETY: the caller's promise.
        let allocation =
            unsafe { Allocation::user(device, address.cast(), bytes, Box::new(owner))? };
        Ok(Buffer::whole(allocation, len))
    }

    /// Makes private memory of this process shareable without moving it: its pages become those of shared memory with the same
    /// bytes, which peers [map](crate::PeerMemory). For what the linker or a library has placed: the variables of a program.
    /// They stay shared until the process ends, also in the processes that it forks, whose writes it then sees.
    ///
    /// # Errors
    /// [`Error::Misaligned`] for what is not whole pages; out of memory; what the system says.
    ///
    /// # Safety
    /// The `len` elements from `address` on are mapped, readable and writable, and no other thread uses them meanwhile. From then
    /// on, others may change them.
    pub unsafe fn share_in_place(address: NonNull<T>, len: usize) -> Result<Buffer<T>> {
        let bytes = bytes_of::<T>("memory to share in place", len)?;
        // SAFETY: the caller's promise.
        let segment = unsafe { SharedSegment::replace(address.cast(), bytes)? };
        let allocation = Allocation::segment(&Device::Host, Space::Pinned, segment, bytes)?;
        Ok(Buffer::whole(allocation, len))
    }

    /// Makes a page of a device's registers, mapped into this process, reachable for the device.
    ///
    /// # Safety
    /// `address` is valid for `len` bytes for as long as `owner` lives.
    pub(crate) unsafe fn from_io_memory(
        device: &Device,
        address: NonNull<u8>,
        len: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Buffer<u8>> {
        // SAFETY: the caller's promise.
        let allocation = unsafe { Allocation::registers(device, address, len, owner)? };
        Ok(Buffer::whole(allocation, len))
    }

    /// Takes a range of CUDA device memory that the user allocated, which may be part of a larger allocation. `owner` as in
    /// [`Buffer::from_host_memory`].
    ///
    /// # Errors
    /// If the range is not device memory of this GPU or not inside one allocation.
    ///
    /// # Safety
    /// The memory stays allocated until `owner` is dropped.
    pub unsafe fn from_cuda_memory(
        device: &Device,
        address: u64,
        len: usize,
        owner: impl Any + Send + Sync,
    ) -> Result<Buffer<T>> {
        let bytes = bytes_of::<T>("registration", len)?;
        let Device::Cuda(cuda) = device else {
            return Err(Error::Unsupported {
                what: "registering CUDA memory",
                place: device.to_string(),
                why: "it is no CUDA device".into(),
            });
        };
        cuda.bind()?;
        let (mut base, mut size) = (0, 0);
        // SAFETY: writes two words; an address that is no device memory is refused.
        unsafe { cu!(cuMemGetAddressRange_v2(&mut base, &mut size, address))? };
        let offset = (address - base) as usize;
        if offset.checked_add(bytes).is_none_or(|end| end > size) {
            return Err(Error::OutOfRange {
                what: "registering CUDA memory",
                offset,
                len: bytes,
                size,
            });
        }
        let backing = Backing::User(Box::new(owner));
        let allocation =
            Allocation::raw(device, Space::Device, bytes, None, Some(address), backing);
        Ok(Buffer::whole(allocation, len))
    }

    pub(crate) fn whole(allocation: Allocation, len: usize) -> Buffer<T> {
        Buffer { allocation: Arc::new(allocation), offset: 0, len, element: PhantomData }
    }

    /// All of an allocation that others hold too.
    pub(crate) fn shared(allocation: Arc<Allocation>) -> Buffer<T> {
        let len = allocation.len / size_of::<T>();
        Buffer { allocation, offset: 0, len, element: PhantomData }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size in bytes.
    pub fn size(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// Where the memory lives.
    pub fn space(&self) -> Space {
        self.allocation.space
    }

    /// The device it was allocated or registered for.
    pub fn device(&self) -> &Device {
        &self.allocation.device
    }

    pub(crate) fn allocation(&self) -> &Arc<Allocation> {
        &self.allocation
    }

    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// The elements `range`, sharing the memory.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], with bytes.
    pub fn slice(&self, range: Range<usize>) -> Result<Buffer<T>> {
        let size = size_of::<T>();
        if range.start > range.end {
            let Range { start, end } = range;
            return Err(Error::Reversed { what: "slice", start, end });
        }
        if range.end > self.len {
            return Err(Error::OutOfRange {
                what: "slice",
                offset: range.start.saturating_mul(size),
                len: (range.end - range.start).saturating_mul(size),
                size: self.size(),
            });
        }
        let mut part = self.clone();
        part.offset += range.start * size;
        part.len = range.end - range.start;
        Ok(part)
    }

    /// The same bytes as elements of another type.
    ///
    /// # Errors
    /// If the address is not aligned for `U` or the size is no multiple of it.
    pub fn cast<U: Pod>(&self) -> Result<Buffer<U>> {
        let size = size_of::<U>();
        if size == 0 {
            return Err(Error::NoSize { what: "cast", element: std::any::type_name::<U>() });
        }
        if !self.size().is_multiple_of(size) {
            return Err(Error::LengthMismatch { what: "cast", left: size, right: self.size() });
        }
        let address =
            self.host_address().map(|a| a.as_ptr() as u64).or(self.device_address()).unwrap_or(0);
        if !address.is_multiple_of(align_of::<U>() as u64) {
            return Err(Error::Misaligned {
                what: "cast",
                offset: self.offset,
                align: align_of::<U>(),
            });
        }
        Ok(Buffer {
            allocation: self.allocation.clone(),
            offset: self.offset,
            len: self.size() / size,
            element: PhantomData,
        })
    }

    /// The bytes.
    pub fn bytes(&self) -> Buffer<u8> {
        Buffer {
            allocation: self.allocation.clone(),
            offset: self.offset,
            len: self.size(),
            element: PhantomData,
        }
    }

    /// Address for the CPU, if it can reach the memory.
    pub fn host_address(&self) -> Option<NonNull<T>> {
        // SAFETY: the offset lies inside the allocation.
        self.allocation.host.map(|base| unsafe { base.add(self.offset) }.cast())
    }

    /// Address for kernels of the buffer's device, if they can reach the memory; on the host device the CPU's.
    pub fn device_address(&self) -> Option<u64> {
        self.allocation.remote.map(|base| base + self.offset as u64)
    }

    /// The elements as a slice, for memory that the CPU can reach.
    ///
    /// # Errors
    /// [`Error::NotReachable`] for device memory of a GPU.
    ///
    /// # Safety
    /// Nobody writes the elements while the slice lives: no stream, kernel, peer or thread.
    pub unsafe fn as_slice(&self) -> Result<&[T]> {
        let address = self.host_or_error("reading")?;
        // SAFETY: `len` elements are inside the allocation, aligned for T, initialised (zeroed or written), and by
        // the caller's promise not written meanwhile.
        Ok(unsafe { std::slice::from_raw_parts(address.as_ptr(), self.len) })
    }

    /// The elements as a mutable slice, for memory that the CPU can reach.
    ///
    /// # Errors
    /// [`Error::NotReachable`] for device memory of a GPU.
    ///
    /// # Safety
    /// Nobody else reads or writes the elements while the slice lives, not through another view either.
    #[allow(clippy::mut_from_ref)] // A buffer is a shared handle; exclusiveness is the caller's promise.
    pub unsafe fn as_mut_slice(&self) -> Result<&mut [T]> {
        let address = self.host_or_error("writing")?;
        // SAFETY: as for `as_slice`; exclusive by the caller's promise.
        Ok(unsafe { std::slice::from_raw_parts_mut(address.as_ptr(), self.len) })
    }

    fn host_or_error(&self, what: &'static str) -> Result<NonNull<T>> {
        self.host_address().ok_or_else(|| Error::NotReachable {
            what,
            memory: self.allocation.describe(),
            place: "the CPU".into(),
            hint: "copy it to pinned memory first",
        })
    }

    /// Writes `values` now, from the CPU or, for device memory, by a copy that is waited for. Not ordered with any
    /// stream: for set-up and tests. Whoever reads the memory meanwhile finds some of the old bytes and some of the new ones.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`]; for device memory what the driver says.
    pub fn write(&self, values: &[T]) -> Result<()> {
        if values.len() != self.len {
            let right = std::mem::size_of_val(values);
            return Err(Error::LengthMismatch { what: "write", left: self.size(), right });
        }
        match self.host_address() {
            Some(address) => {
                // SAFETY: `len` elements on both sides, of which others write at most those here, as the copy allows.
                unsafe {
                    copy::copy_bytes(values.as_ptr().cast(), address.cast().as_ptr(), self.size())
                };
                Ok(())
            }
            None => {
                let staging = Buffer::from_slice(self.device(), Space::Pinned, values)?;
                self.copy_now(&staging, true)
            }
        }
    }

    /// The elements now, read by the CPU or, for device memory, by a copy that is waited for. Not ordered with any
    /// stream: for results after a synchronise, and tests. Of what is written meanwhile it has some bytes and not others.
    ///
    /// # Errors
    /// For device memory what the driver says.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let staging;
        let address = match self.host_address() {
            Some(address) => address,
            None => {
                staging = Buffer::new(self.device(), Space::Pinned, self.len)?;
                self.copy_now(&staging, false)?;
                staging.host_or_error("reading")?
            }
        };
        let mut values = vec![T::zeroed(); self.len];
        // SAFETY: `len` elements on both sides; the vector is new, and what others write here the copy allows.
        unsafe {
            copy::copy_bytes(address.cast().as_ptr(), values.as_mut_ptr().cast(), self.size())
        };
        Ok(values)
    }

    /// Copies the elements into `values` now, by the CPU: for memory that it reaches. Otherwise as [`Buffer::to_vec`].
    ///
    /// # Errors
    /// [`Error::LengthMismatch`], [`Error::NotReachable`].
    pub fn read(&self, values: &mut [T]) -> Result<()> {
        if values.len() != self.len {
            let left = std::mem::size_of_val(values);
            return Err(Error::LengthMismatch { what: "read", left, right: self.size() });
        }
        let address = self.host_or_error("reading")?;
        // SAFETY: `len` elements on both sides; `values` is the caller's alone, and what others write here the copy allows.
        unsafe {
            let to = values.as_mut_ptr().cast();
            copy::copy_bytes(address.cast().as_ptr(), to, self.size());
        }
        Ok(())
    }

    /// Copies what `source` holds now, by the CPU: for memory that it reaches on both sides. Not ordered with any stream.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`], [`Error::NotReachable`].
    pub fn copy_from(&self, source: &Buffer<T>) -> Result<()> {
        if source.len != self.len {
            let (left, right) = (self.size(), source.size());
            return Err(Error::LengthMismatch { what: "copy", left, right });
        }
        let (from, to) = (source.host_or_error("reading")?, self.host_or_error("writing")?);
        // SAFETY: `len` elements on both sides; what others do with them meanwhile the copy allows.
        unsafe { copy::copy_bytes(from.cast().as_ptr(), to.cast().as_ptr(), self.size()) };
        Ok(())
    }

    /// Copies `len` elements from `from` on into the buffer, from element `at` on, by the CPU, as [`Buffer::copy_from`] does.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::NotReachable`].
    ///
    /// # Safety
    /// `len` elements are valid for reads at `from`; others write them meanwhile at most as [`Buffer::copy_from`] does.
    pub unsafe fn copy_in(&self, at: usize, from: *const T, len: usize) -> Result<()> {
        let to = self.part_address("writing", at, len)?;
        // SAFETY: the range lies inside the buffer; the caller's promise; what others do with it meanwhile the copy allows.
        unsafe { copy::copy_bytes(from.cast(), to.cast(), len * size_of::<T>()) };
        Ok(())
    }

    /// Copies `len` elements from element `at` on to `to`, by the CPU, as [`Buffer::copy_from`] does.
    ///
    /// # Errors
    /// As [`Buffer::copy_in`].
    ///
    /// # Safety
    /// `len` elements are valid for writes at `to`; others use them meanwhile at most as [`Buffer::copy_from`] does.
    pub unsafe fn copy_out(&self, at: usize, to: *mut T, len: usize) -> Result<()> {
        let from = self.part_address("reading", at, len)?;
        // SAFETY: as in `copy_in`.
        unsafe { copy::copy_bytes(from.cast_const().cast(), to.cast(), len * size_of::<T>()) };
        Ok(())
    }

    /// Asks the processor for the cache line of element `at` as for a write, and does not wait for it: a write by the CPU a little later does
    /// not have to. Nothing happens where the CPU does not reach the element, or has no such instruction.
    ///
    /// ```
    /// use gdsync::{Buffer, Device, Space};
    ///
    /// # fn main() -> gdsync::Result<()> {
    /// let ring = Buffer::<u64>::new(&Device::Host, Space::Host, 64)?;
    /// ring.prefetch_for_write(8); // while this one writes what comes before it
    /// # Ok(())
    /// # }
    /// ```
    pub fn prefetch_for_write(&self, at: usize) {
        if let Ok(address) = self.part_address("prefetching", at, 1) {
            copy::prefetch_for_write(address.cast());
        }
    }

    /// Where element `at` is, behind which `len` are.
    fn part_address(&self, what: &'static str, at: usize, len: usize) -> Result<*mut T> {
        let address = self.host_or_error(what)?;
        if at.checked_add(len).is_none_or(|end| end > self.len) {
            let (offset, len) = (at.saturating_mul(size_of::<T>()), len * size_of::<T>());
            return Err(Error::OutOfRange { what, offset, len, size: self.size() });
        }
        // SAFETY: inside the buffer, or one past its end for no elements.
        Ok(unsafe { address.as_ptr().add(at) })
    }

    /// Copies all of it into pinned memory of the same length and device now, as [`Buffer::to_vec`] does.
    pub(crate) fn bring_to(&self, pinned: &Buffer<T>) -> Result<()> {
        match self.host_address() {
            Some(_) => pinned.copy_from(self),
            None => self.copy_now(pinned, false),
        }
    }

    fn copy_now(&self, staging: &Buffer<T>, upload: bool) -> Result<()> {
        let (Device::Cuda(cuda), Some(device), Some(host)) =
            (self.device(), self.device_address(), staging.device_address())
        else {
            return Err(Error::NotReachable {
                what: "copy",
                memory: self.allocation.describe(),
                place: self.device().to_string(),
                hint: "memory of another process is read through a stream of the device that maps it",
            });
        };
        let (to, from) = if upload { (device, host) } else { (host, device) };
        if self.size() == 0 { Ok(()) } else { cuda.copy_now(to, from, self.size()) }
    }
}

fn bytes_of<T>(what: &'static str, len: usize) -> Result<usize> {
    if size_of::<T>() == 0 {
        return Err(Error::NoSize { what, element: std::any::type_name::<T>() });
    }
    len.checked_mul(size_of::<T>())
        .filter(|bytes| isize::try_from(*bytes).is_ok())
        .ok_or(Error::OutOfRange { what, offset: 0, len: usize::MAX, size: isize::MAX as usize })
}

#[cfg(test)]
mod tests;
