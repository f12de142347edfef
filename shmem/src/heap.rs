//! The symmetric heap for Rust: memory of every PE of a communicator in which all allocate alike, so that an object of one PE names the
//! same object of all. It is a [`Window`], whose rules hold for what others see when; nothing here is unsafe to call.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytemuck::Pod;
use libmp::gdsync::Buffer;
use libmp::{AtomicNumber, AtomicOp, Communicator, Device, Error, Region, Result, Window};

use crate::parts::Parts;

/// A symmetric heap: so many bytes of each PE of a communicator, on the host or on a GPU, out of which all PEs allocate together.
///
/// It is apart from the heap of `shmem_malloc`, and there may be several. [`alloc`](Self::alloc) is collective; an object that is
/// dropped is given back when all PEs have dropped theirs, with the next allocation.
///
/// ```
/// use libmp::{AtomicOp, Device, World};
/// use mp_shmem::Heap;
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// let heap = Heap::new(&world, &Device::Host, 1 << 20)?;
/// let (me, pes) = (world.rank(), world.size());
/// let (from, arrived) = (heap.alloc::<u64>(pes)?, heap.alloc::<u64>(1)?);
/// for pe in 0..pes {
///     from.put(pe, me, &[10 * me as u64])?; // element `me` of PE `pe`
///     arrived.atomic(pe, 0, AtomicOp::Add(1))?;
/// }
/// heap.barrier()?;
/// assert_eq!(from.local().to_vec()?, (0..pes as u64).map(|pe| 10 * pe).collect::<Vec<_>>());
/// assert_eq!(arrived.local().to_vec()?, [pes as u64]);
/// # drop((from, arrived));
/// # drop(heap);
/// # world.finish()
/// # }
/// ```
pub struct Heap {
    communicator: Communicator,
    memory: Buffer<u8>,
    window: Window<u8>,
    shared: Mutex<Shared>,
}

/// What is the same on all PEs but for `dropped`, which waits for them.
struct Shared {
    parts: Parts,
    /// Offsets of what this PE has dropped.
    dropped: Vec<u64>,
}

impl Heap {
    /// A heap of `bytes` bytes of each PE, zeros. Collective: all PEs name as many bytes, and devices of one kind.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if they do not; as [`Communicator::alloc`] and [`Communicator::window`].
    pub fn new(communicator: &Communicator, device: &Device, bytes: usize) -> Result<Heap> {
        let region = communicator.alloc::<u8>(device, bytes)?;
        let window = communicator.window(&region, 0)?;
        for pe in 0..communicator.size() {
            let theirs = window.len(pe)?;
            if theirs != bytes as u64 {
                let reason = format!("{bytes} bytes here, {theirs} of PE {pe}");
                return Err(Error::Mismatch { op: "making a symmetric heap".into(), reason });
            }
        }
        let shared = Mutex::new(Shared { parts: Parts::new(bytes), dropped: Vec::new() });
        let (communicator, memory) = (communicator.clone(), region.buffer().clone());
        Ok(Heap { communicator, memory, window, shared })
    }

    /// `len` elements of every PE, zeros, at the same place of each. Collective: all PEs call it in the same order. It returns when all
    /// have their elements.
    ///
    /// # Errors
    /// [`Error::Mismatch`] on all PEs if they ask for different numbers of bytes, or for more than is left in one piece; what ended the
    /// world.
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<Symmetric<'_, T>> {
        let failed = |reason| Error::Mismatch { op: "allocating symmetric memory".into(), reason };
        let bytes = len.checked_mul(size_of::<T>());
        // What this PE has put into an object that is given back has happened.
        self.quiet()?;
        let mut shared = self.shared();
        // Also who asks for too much says so: the others wait for it.
        let asked = bytes.map_or(u64::MAX, |bytes| bytes as u64);
        let said: Vec<u64> = [asked].into_iter().chain(shared.dropped.iter().copied()).collect();
        let said = self.communicator.all_gather(bytemuck::cast_slice(&said))?;
        let numbers =
            |said: &Vec<u8>| said.as_chunks().0.iter().copied().map(u64::from_ne_bytes).collect();
        let said: Vec<Vec<u64>> = said.iter().map(numbers).collect();
        for (pe, theirs) in said.iter().enumerate() {
            if theirs.first() != Some(&asked) {
                let theirs = theirs.first().copied().unwrap_or_default();
                return Err(failed(format!("{asked} bytes here, {theirs} on PE {pe}")));
            }
        }
        let everywhere = |at: &u64| said.iter().all(|theirs| theirs[1..].contains(at));
        let Shared { parts, dropped } = &mut *shared;
        dropped.retain(|at| !(everywhere(at) && parts.give_back(*at as usize)));
        let place = bytes.and_then(|bytes| parts.take(bytes, align_of::<T>()));
        let at = place.ok_or_else(|| {
            let (largest, all) = (parts.largest(), self.memory.len());
            failed(format!(
                "{asked} bytes are more than is left in one piece, {largest} of {all} bytes"
            ))
        })?;
        drop(shared);
        let memory = |source| Error::Memory { op: "allocating symmetric memory".into(), source };
        let local = self.memory.slice(at..at + asked as usize).and_then(|part| part.cast());
        let local = Region::from_buffer(local.map_err(memory)?);
        local.write(&vec![T::zeroed(); len])?;
        let symmetric = Symmetric { heap: self, at, local };
        self.communicator.barrier()?;
        Ok(symmetric)
    }

    /// Waits until everything that this PE has put into the heap has happened.
    ///
    /// # Errors
    /// As [`Window::quiet`].
    pub fn quiet(&self) -> Result<()> {
        self.window.quiet_all()
    }

    /// Waits for all PEs; what each has put before is there.
    ///
    /// # Errors
    /// As [`Window::quiet`] and [`Communicator::barrier`].
    pub fn barrier(&self) -> Result<()> {
        self.quiet()?;
        self.communicator.barrier()
    }

    /// Memory of this PE, where the heap is, for what comes from or goes to the host's.
    fn staging(&self, bytes: usize) -> Result<Region<u8>> {
        self.communicator.alloc(self.memory.device(), bytes)
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Heap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "symmetric heap of {} bytes, {:?}", self.memory.len(), self.window)
    }
}

/// Elements of every PE at the same place of a [`Heap`]. Numbers of PEs are the communicator's, those of elements begin at 0 in each
/// object.
///
/// What others put while this PE reads is seen element by element, old or new, in no order; a [`barrier`](Heap::barrier), or an
/// [`atomic`](Self::atomic) operation behind [`quiet`](Heap::quiet), makes an order.
///
/// ```
/// use libmp::{Device, World};
/// use mp_shmem::{Heap, Symmetric};
///
/// fn right_neighbour(heap: &Heap, mine: &Symmetric<'_, f64>, pe: usize) -> libmp::Result<f64> {
///     heap.barrier()?; // all have written theirs
///     let mut theirs = [0.0];
///     mine.get(pe, 0, &mut theirs)?;
///     Ok(theirs[0])
/// }
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// let heap = Heap::new(&world, &Device::Host, 4096)?;
/// let mine = heap.alloc(1)?;
/// mine.local().write(&[world.rank() as f64])?;
/// let right = (world.rank() + 1) % world.size();
/// assert_eq!(right_neighbour(&heap, &mine, right)?, right as f64);
/// # drop(mine);
/// # drop(heap);
/// # world.finish()
/// # }
/// ```
pub struct Symmetric<'a, T: Pod> {
    heap: &'a Heap,
    /// Where it begins in the heap.
    at: usize,
    local: Region<T>,
}

impl<T: Pod> Symmetric<'_, T> {
    /// This PE's elements.
    pub fn local(&self) -> &Region<T> {
        &self.local
    }

    /// Elements of each PE.
    pub fn len(&self) -> usize {
        self.local.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.local.is_empty()
    }

    /// Copies `values` to PE `pe`, from its element `at` on. They are there when it returns.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] past the object's end; as [`Window::put`].
    pub fn put(&self, pe: usize, at: usize, values: &[T]) -> Result<()> {
        let place = self.place("put", at, values.len())?;
        let source = self.heap.staging(size_of_val(values))?;
        source.write(bytemuck::cast_slice(values))?;
        self.heap.window.put(pe, place, &source)
    }

    /// Copies elements of PE `pe`, from its element `at` on, to `values`.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn get(&self, pe: usize, at: usize, values: &mut [T]) -> Result<()> {
        let place = self.place("get", at, values.len())?;
        let target = self.heap.staging(size_of_val(values))?;
        self.heap.window.get(pe, place, &target)?;
        bytemuck::cast_slice_mut(values).copy_from_slice(&target.to_vec()?);
        Ok(())
    }

    /// [`put`](Self::put) from a region of the heap's device, without a copy of it; it happens by the next [`quiet`](Heap::quiet) or
    /// [`barrier`](Heap::barrier), before which the region is not written.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn start_put(&self, pe: usize, at: usize, values: &Region<T>) -> Result<()> {
        let place = self.place("put", at, values.len())?;
        self.heap.window.start_put(pe, place, &Region::from_buffer(values.buffer().bytes()))
    }

    /// [`get`](Self::get) into a region of the heap's device. The elements are there behind the next [`quiet`](Heap::quiet) or [`barrier`](Heap::barrier).
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn start_get(&self, pe: usize, at: usize, values: &Region<T>) -> Result<()> {
        let place = self.place("get", at, values.len())?;
        self.heap.window.start_get(pe, place, &Region::from_buffer(values.buffer().bytes()))
    }

    /// Changes element `at` of PE `pe` as one step; gives what it held. See [`Window::atomic`].
    ///
    /// # Errors
    /// As [`put`](Self::put) and [`Window::atomic`].
    pub fn atomic(&self, pe: usize, at: usize, op: AtomicOp<T>) -> Result<T>
    where
        T: AtomicNumber,
    {
        self.heap.window.atomic(pe, self.place("atomic operation", at, 1)?, op)
    }

    /// The byte of the heap where element `at` begins, which `count` elements follow.
    fn place(&self, what: &str, at: usize, count: usize) -> Result<u64> {
        let end = at.checked_add(count).filter(|end| *end <= self.len());
        end.map(|_| (self.at + at * size_of::<T>()) as u64).ok_or_else(|| Error::OutOfRange {
            op: format!("{what} of a symmetric object"),
            at: at as u64,
            len: count as u64,
            size: self.len() as u64,
        })
    }
}

impl<T: Pod> Drop for Symmetric<'_, T> {
    fn drop(&mut self) {
        self.heap.shared().dropped.push(self.at as u64);
    }
}

impl<T: Pod> fmt::Debug for Symmetric<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {} of every PE", self.len(), std::any::type_name::<T>())
    }
}
