//! `shmmap`: memory that a program has allocated by itself becomes symmetric, as the paper "Extending OpenSHMEM for GPU Computing" has it: a
//! segment like the heap, which is not the heap's.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libmp::Region;
use libmp::gdsync::Buffer;

use crate::failure::die;
use crate::opencl;
use crate::order::barrier;
use crate::world::{Segment, State, state};

/// `OSHM_MEMTYPE_HOST` and the others.
const HOST: c_int = 0;
const CUDA: c_int = 1;
const OPENCL: c_int = 2;

/// What is mapped. Each stays where it is until it is given back, by `shmunmap` or the end.
#[derive(Default)]
pub(crate) struct Maps(Mutex<Vec<&'static Segment>>);

impl Maps {
    fn lock(&self) -> MutexGuard<'_, Vec<&'static Segment>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one that an address of this PE is in, and where.
    pub fn find(&self, address: usize) -> Option<(&Segment, usize)> {
        let found = |segment: &&'static Segment| Some((*segment, segment.offset(address)?));
        self.lock().iter().find_map(found)
    }
}

impl Drop for Maps {
    fn drop(&mut self) {
        for segment in self.lock().drain(..) {
            // SAFETY: as in `unmap`; behind the end nobody uses it.
            drop(unsafe { Box::from_raw(std::ptr::from_ref(segment).cast_mut()) });
        }
    }
}

pub(crate) unsafe fn map(object: *mut c_void, bytes: usize, kind: c_int) -> *mut c_void {
    let state = state();
    let Some(address) = NonNull::new(object.cast::<u8>()).filter(|_| bytes > 0) else {
        die(format!("shmmap of {bytes} bytes at {object:p}, expected memory"))
    };
    // A cl_mem is no address.
    if kind != OPENCL && state.find(object as usize).is_some() {
        die(format!("shmmap of {object:p}, which is symmetric already"));
    }
    if kind == OPENCL {
        // SAFETY: C's promise.
        let segment = unsafe { opencl::open(state, object, bytes) };
        return keep(state, segment);
    }
    let memory = match kind {
        // SAFETY: C's promise.
        HOST => unsafe { shared(address, bytes) },
        // SAFETY: C's promise.
        CUDA => unsafe { of_cuda(state, address, bytes) },
        _ => die(format!(
            "{kind} is no type of memory: expected OSHM_MEMTYPE_HOST, _CUDA or _OPENCL, 0 to 2"
        )),
    };
    let region = Region::from_buffer(memory);
    keep(state, Segment::open(&state.world, &region, "what shmmap is given"))
}

/// Gives the address that stands for it.
fn keep(state: &State, segment: Segment) -> *mut c_void {
    let segment: &'static Segment = Box::leak(Box::new(segment));
    state.maps.lock().push(segment);
    barrier(state);
    segment.base as *mut c_void
}

pub(crate) unsafe fn unmap(address: *mut c_void) {
    let state = state();
    // What others have begun to do with it happens before.
    barrier(state);
    let mut maps = state.maps.lock();
    let Some(at) = maps.iter().position(|segment| segment.base == address as usize) else {
        die(format!("{address:p} was not given by shmmap, or has been given back"))
    };
    let segment = maps.swap_remove(at);
    drop(maps);
    // SAFETY: made by `map`; it is in the list no more, and nobody uses it any more, as C promises.
    drop(unsafe { Box::from_raw(std::ptr::from_ref(segment).cast_mut()) });
    barrier(state);
}

/// Memory of the host, whose pages become shared in their place.
///
/// # Safety
/// They are mapped, and no other thread uses them meanwhile.
unsafe fn shared(address: NonNull<u8>, bytes: usize) -> Buffer<u8> {
    // SAFETY: a number of the system.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let before = address.as_ptr() as usize % page;
    let pages = before.checked_add(bytes).and_then(|bytes| bytes.checked_next_multiple_of(page));
    let pages = pages.unwrap_or_else(|| die(format!("{bytes} bytes are more than any memory has")));
    // SAFETY: pages that the caller's bytes are in.
    let memory = unsafe { Buffer::share_in_place(address.sub(before), pages) };
    let memory = memory.and_then(|memory| memory.slice(before..before + bytes));
    memory.unwrap_or_else(|error| die(format!("shmmap of {bytes} bytes at {address:p}: {error}")))
}

/// # Safety
/// It stays allocated while it is mapped.
unsafe fn of_cuda(state: &State, address: NonNull<u8>, bytes: usize) -> Buffer<u8> {
    let Some(device) = state.device.as_ref().filter(|device| device.is_gpu()) else {
        die(
            "shmmap of CUDA memory needs a GPU, and shmem_init_thread to be asked for SHMEM_DEVICE_HOST_INIT",
        )
    };
    // SAFETY: the caller's promise; what is no memory of the GPU is refused.
    let memory = unsafe { device.memory_at(address.as_ptr() as usize, bytes) };
    memory.unwrap_or_else(|error| die(format!("shmmap of {bytes} bytes at {address:p}: {error}")))
}
