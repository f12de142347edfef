//! Memory for communication: a typed view of memory that this crate allocated or the user brought.

use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use bytemuck::Pod;
use gdsync::{Buffer, Device, Space};

use crate::error::{Error, Result};

/// A shared, typed view of `len` elements of memory for communication. Cloning and slicing share the memory, which is
/// given back when the last view and the last operation on it are gone.
///
/// While an operation on it is started, the memory is the operation's: what a send reads should not be written, and what a
/// receive writes neither read nor written, until it is complete. Who does it nevertheless, by [`write`](Region::write) or
/// [`to_vec`](Region::to_vec), moves some of the old bytes and some of the new ones.
///
/// ```
/// use libmp::{Device, World};
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// let region = world.alloc::<f64>(&Device::Host, 4)?;
/// region.slice(1..3)?.write(&[1.0, 2.0])?;
/// assert_eq!(region.to_vec()?, [0.0, 1.0, 2.0, 0.0]);
/// # world.finish()
/// # }
/// ```
pub struct Region<T> {
    buffer: Buffer<T>,
}

/// Small regions of host memory come out of one piece: each piece costs a file descriptor here and at every peer that
/// maps it.
const PIECE: usize = 4 << 20;
/// From this size on a region has memory of its own.
const LARGE: usize = 1 << 20;
/// Regions start at a multiple of this: whole cache lines, and any vector load.
const ALIGN: usize = 256;

/// Memory that small things are cut from, in order: for each device and space one piece. A piece goes when all that was cut
/// from it is gone.
#[derive(Default)]
pub(crate) struct Pieces {
    current: Mutex<Vec<Piece>>,
}

struct Piece {
    memory: Buffer<u8>,
    /// From here on it is free.
    at: usize,
}

impl Piece {
    fn is_of(&self, device: &Device, space: Space) -> bool {
        self.memory.device().ordinal() == device.ordinal() && self.memory.space() == space
    }
}

impl Pieces {
    /// Zeroed memory of a device itself, which its peers can map.
    pub fn cut_for(&self, device: &Device, bytes: usize) -> gdsync::Result<Buffer<u8>> {
        let space = if device.as_cuda().is_some() { Space::Device } else { Space::Pinned };
        self.cut(device, space, bytes)
    }

    /// Zeroed memory of a device or pinned memory that it reaches.
    pub fn cut(&self, device: &Device, space: Space, bytes: usize) -> gdsync::Result<Buffer<u8>> {
        if bytes >= LARGE {
            return Buffer::new(device, space, bytes);
        }
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let known = current.iter_mut().find(|piece| piece.is_of(device, space));
        if let Some(Piece { memory, at }) = known {
            if *at + bytes > memory.len() {
                (*memory, *at) = (Buffer::new(device, space, PIECE)?, 0);
            }
            let cut = memory.slice(*at..*at + bytes)?;
            *at = (*at + bytes).next_multiple_of(ALIGN);
            return Ok(cut);
        }
        let memory = Buffer::<u8>::new(device, space, PIECE)?;
        let cut = memory.slice(0..bytes)?;
        current.push(Piece { memory, at: bytes.next_multiple_of(ALIGN) });
        Ok(cut)
    }
}

impl<T: Pod> Region<T> {
    pub(crate) fn alloc(pieces: &Pieces, device: &Device, len: usize) -> Result<Region<T>> {
        let failed = |source| Error::Memory { op: format!("a region of {len} elements"), source };
        let bytes = len.checked_mul(size_of::<T>()).filter(|bytes| *bytes < LARGE);
        let small = bytes.filter(|_| size_of::<T>() > 0);
        let buffer = match (device, small) {
            (Device::Host, Some(bytes)) => {
                pieces.cut_for(device, bytes).and_then(|bytes| bytes.cast())
            }
            _ => device.alloc(len),
        };
        Ok(Region { buffer: buffer.map_err(failed)? })
    }

    /// Memory that the user brings: host, pinned or device memory, whatever made the buffer. A peer in another process
    /// can only write into memory that it can map ([`Buffer::export`]); any memory can be sent from.
    pub fn from_buffer(buffer: Buffer<T>) -> Region<T> {
        Region { buffer }
    }

    /// The memory, as streams and kernels take it.
    pub fn buffer(&self) -> &Buffer<T> {
        &self.buffer
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The elements `range`, sharing the memory.
    ///
    /// # Errors
    /// [`Error::Memory`] with both ranges if it is outside.
    pub fn slice(&self, range: Range<usize>) -> Result<Region<T>> {
        let buffer = self.buffer.slice(range).map_err(failed("a part of a region"))?;
        Ok(Region { buffer })
    }

    /// Replaces all elements by `values`.
    ///
    /// # Errors
    /// [`Error::Memory`] for another number of values; for device memory what the driver says.
    pub fn write(&self, values: &[T]) -> Result<()> {
        self.buffer.write(values).map_err(failed("writing a region"))
    }

    /// A copy of the elements.
    ///
    /// # Errors
    /// [`Error::Memory`]: for device memory what the driver says.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        self.buffer.to_vec().map_err(failed("reading a region"))
    }

    /// The elements in place, for memory that the CPU can reach.
    ///
    /// # Errors
    /// [`Error::Memory`] for device memory of a GPU.
    ///
    /// # Safety
    /// Nobody writes the elements while the slice lives: no receive into them is started, and no other view of them is
    /// written.
    pub unsafe fn as_slice(&self) -> Result<&[T]> {
        // SAFETY: the caller's promise.
        unsafe { self.buffer.as_slice() }.map_err(failed("reading a region"))
    }

    /// The elements in place, for memory that the CPU can reach.
    ///
    /// # Errors
    /// [`Error::Memory`] for device memory of a GPU.
    ///
    /// # Safety
    /// Nobody else reads or writes the elements while the slice lives: no operation on them is started, and no other view
    /// of them is used.
    #[allow(
        clippy::mut_from_ref,
        reason = "a region is a shared handle; exclusiveness is promised"
    )]
    pub unsafe fn as_mut_slice(&self) -> Result<&mut [T]> {
        // SAFETY: the caller's promise.
        unsafe { self.buffer.as_mut_slice() }.map_err(failed("writing a region"))
    }
}

fn failed(op: &'static str) -> impl FnOnce(gdsync::Error) -> Error {
    move |source| Error::Memory { op: op.into(), source }
}

impl<T> Clone for Region<T> {
    fn clone(&self) -> Self {
        Region { buffer: self.buffer.clone() }
    }
}

impl<T> fmt::Debug for Region<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.buffer.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_regions_share_a_piece_and_do_not_overlap() {
        let pieces = Pieces::default();
        let regions: Vec<Region<u64>> =
            (0..600).map(|n| Region::alloc(&pieces, &Device::Host, n % 40).unwrap()).collect();
        for (number, region) in regions.iter().enumerate() {
            region.write(&vec![number as u64; region.len()]).unwrap();
        }
        for (number, region) in regions.iter().enumerate() {
            assert_eq!(region.to_vec().unwrap(), vec![number as u64; number % 40]);
        }
        let large: Region<u8> = Region::alloc(&pieces, &Device::Host, 5 << 20).unwrap();
        assert_eq!(large.len(), 5 << 20);
        assert!(Region::<u64>::alloc(&pieces, &Device::Host, usize::MAX).is_err());
    }

    #[test]
    fn a_range_backwards_and_elements_without_a_size_are_refused_in_these_words() {
        let pieces = Pieces::default();
        let region: Region<u32> = Region::alloc(&pieces, &Device::Host, 10).unwrap();
        #[allow(clippy::reversed_empty_ranges)]
        let error = region.slice(5..3).unwrap_err().to_string();
        assert!(error.contains("the range 5..3 ends before it begins"), "{error}");
        for len in [0, 3] {
            let error = Region::<()>::alloc(&pieces, &Device::Host, len).unwrap_err().to_string();
            assert!(error.contains("elements of type () have no size"), "{error}");
        }
    }

    #[test]
    fn a_new_region_is_zero() {
        let pieces = Pieces::default();
        let region: Region<u32> = Region::alloc(&pieces, &Device::Host, 100).unwrap();
        assert_eq!(region.to_vec().unwrap(), [0; 100]);
    }
}
