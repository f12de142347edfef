//! The symmetric heaps as programs ask for them. Every function that gives or takes memory is called by all PEs and waits for them.

use std::ffi::{c_long, c_void};
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::device::{self, OnDevice};
use crate::failure::die;
use crate::order::barrier;
use crate::parts::Parts;
use crate::world::{Segment, State, state};

/// One of the two heaps, of the host or of the device, and what makes it larger.
struct Heap<'a> {
    memory: &'a Segment,
    parts: &'a Mutex<Parts>,
    what: &'static str,
    size: &'static str,
    device: Option<&'a OnDevice>,
}

impl State {
    fn host_heap(&self) -> Heap<'_> {
        let (memory, parts) = (&self.heap, &self.parts);
        let (what, size) = ("the symmetric heap", "SHMEM_SYMMETRIC_SIZE");
        Heap { memory, parts, what, size, device: None }
    }

    fn device_heap(&self) -> Heap<'_> {
        let Some(device) = &self.device else {
            die(
                "there is no symmetric heap on the device: shmem_init_thread was not asked for SHMEM_DEVICE_HOST_INIT or _KERNEL_INIT",
            )
        };
        let (memory, parts) = (&device.heap, &device.parts);
        let (what, size) = ("the symmetric heap on the device", device::SIZE);
        Heap { memory, parts, what, size, device: Some(device) }
    }
}

impl Heap<'_> {
    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a part of a heap; null, and a sentence, if there is no such part left.
fn take(state: &State, heap: &Heap<'_>, bytes: usize, align: usize) -> *mut u8 {
    let mut parts = heap.parts();
    if let Some(at) = parts.take(bytes, align) {
        return (heap.memory.base + at) as *mut u8;
    }
    let (me, len, largest) = (state.me, heap.memory.len, parts.largest());
    let Heap { what, size, .. } = heap;
    let sentence = format!(
        "shmem: PE {me}: {bytes} bytes are more than is left in one piece of {what}, {largest} of {len} bytes: {size} makes it larger\n"
    );
    // The program hears of it, too: it gets NULL.
    let _ = std::io::stderr().write_all(sentence.as_bytes());
    std::ptr::null_mut()
}

/// Offset in the heap of what a program gives back.
fn given(heap: &Heap<'_>, parts: &Parts, address: *mut c_void) -> usize {
    let at = (address as usize).wrapping_sub(heap.memory.base);
    match parts.len_of(at) {
        Some(_) => at,
        None => die(format!("{address:p} was not given by shmem_malloc, or has been given back")),
    }
}

/// `SHMEM_DEVICE_MALLOC_HOST_INIT` and `SHMEM_DEVICE_MALLOC_KERNEL_INIT`: memory of the device.
const ON_DEVICE: c_long = 3 << 8;
/// The same and `SHMEM_MALLOC_ATOMICS_REMOTE` and `SHMEM_MALLOC_SIGNAL_REMOTE`: all hints that there are.
const HINTS: c_long = ON_DEVICE | 3;

pub(crate) unsafe fn malloc(bytes: usize) -> *mut c_void {
    align_in(&state().host_heap(), 1, bytes)
}

pub(crate) unsafe fn malloc_with_hints(bytes: usize, hints: c_long) -> *mut c_void {
    let state = state();
    // What is no hint, or for a device that the program has not asked for, is no mistake.
    let on_device = state.device.is_some() && hints & ON_DEVICE != 0 && hints & !HINTS == 0;
    align_in(&if on_device { state.device_heap() } else { state.host_heap() }, 1, bytes)
}

pub(crate) unsafe fn calloc(count: usize, bytes: usize) -> *mut c_void {
    calloc_in(&state().host_heap(), count, bytes)
}

pub(crate) unsafe fn align(alignment: usize, bytes: usize) -> *mut c_void {
    align_in(&state().host_heap(), alignment, bytes)
}

pub(crate) unsafe fn device_malloc(bytes: usize) -> *mut c_void {
    align_in(&state().device_heap(), 1, bytes)
}

pub(crate) unsafe fn device_calloc(count: usize, bytes: usize) -> *mut c_void {
    calloc_in(&state().device_heap(), count, bytes)
}

pub(crate) unsafe fn device_align(alignment: usize, bytes: usize) -> *mut c_void {
    align_in(&state().device_heap(), alignment, bytes)
}

fn calloc_in(heap: &Heap<'_>, count: usize, bytes: usize) -> *mut c_void {
    let state = state();
    let Some(bytes) = count.checked_mul(bytes) else {
        die(format!("{count} elements of {bytes} bytes are more than any memory has"))
    };
    if bytes == 0 {
        return std::ptr::null_mut();
    }
    let memory = take(state, heap, bytes, 1);
    match heap.device {
        _ if memory.is_null() => {}
        Some(device) => device.clear(state, memory as usize - heap.memory.base, bytes),
        // SAFETY: so many bytes of the heap, which nobody else has.
        None => unsafe { memory.write_bytes(0, bytes) },
    }
    barrier(state);
    memory.cast()
}

fn align_in(heap: &Heap<'_>, alignment: usize, bytes: usize) -> *mut c_void {
    let state = state();
    if bytes == 0 {
        return std::ptr::null_mut();
    }
    if !alignment.is_power_of_two() {
        die(format!("an alignment of {alignment} bytes, expected a power of two"));
    }
    let memory = take(state, heap, bytes, alignment);
    barrier(state);
    memory.cast()
}

pub(crate) unsafe fn realloc(address: *mut c_void, bytes: usize) -> *mut c_void {
    if address.is_null() {
        // SAFETY: as here.
        return unsafe { malloc(bytes) };
    }
    if bytes == 0 {
        // SAFETY: as here.
        unsafe { free(address) };
        return std::ptr::null_mut();
    }
    let state = state();
    barrier(state);
    let heap = state.host_heap();
    let (at, held) = {
        let parts = heap.parts();
        let at = given(&heap, &parts, address);
        (at, parts.len_of(at).unwrap_or_default())
    };
    let mut memory = address.cast();
    if bytes > held {
        memory = take(state, &heap, bytes, 1);
        if !memory.is_null() {
            // SAFETY: two parts of the heap, which are this program's.
            unsafe { std::ptr::copy_nonoverlapping(address.cast(), memory, held) };
            heap.parts().give_back(at);
        }
    }
    barrier(state);
    memory.cast()
}

pub(crate) unsafe fn free(address: *mut c_void) {
    if address.is_null() {
        return;
    }
    let state = state();
    // What others have begun to do with it happens before.
    barrier(state);
    let on_device = state.device.as_ref().and_then(|it| it.heap.offset(address as usize));
    let heap = if on_device.is_some() { state.device_heap() } else { state.host_heap() };
    let mut parts = heap.parts();
    let at = given(&heap, &parts, address);
    parts.give_back(at);
}
