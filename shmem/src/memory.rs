//! The symmetric heap as programs ask for it. Every function that gives or takes memory is called by all PEs and waits for them.

use std::ffi::{c_long, c_void};
use std::io::Write;
use std::sync::{MutexGuard, PoisonError};

use crate::failure::die;
use crate::order::barrier;
use crate::parts::Parts;
use crate::world::{State, state};

fn parts(state: &State) -> MutexGuard<'_, Parts> {
    state.parts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a part of the heap; null, and a sentence, if there is no such part left.
fn take(state: &State, bytes: usize, align: usize) -> *mut u8 {
    let mut parts = parts(state);
    if let Some(at) = parts.take(bytes, align) {
        return (state.heap.base + at) as *mut u8;
    }
    let (me, len, largest) = (state.me, state.heap.len, parts.largest());
    let sentence = format!(
        "shmem: PE {me}: {bytes} bytes are more than is left in one piece of the symmetric heap, {largest} of {len} bytes: \
         SHMEM_SYMMETRIC_SIZE makes it larger\n"
    );
    // The program hears of it, too: it gets NULL.
    let _ = std::io::stderr().write_all(sentence.as_bytes());
    std::ptr::null_mut()
}

/// Offset in the heap of what a program gives back.
fn given(state: &State, parts: &Parts, address: *mut c_void) -> usize {
    let at = (address as usize).wrapping_sub(state.heap.base);
    match parts.len_of(at) {
        Some(_) => at,
        None => die(format!("{address:p} was not given by shmem_malloc, or has been given back")),
    }
}

pub(crate) unsafe fn malloc(bytes: usize) -> *mut c_void {
    // SAFETY: as here.
    unsafe { align(1, bytes) }
}

pub(crate) unsafe fn malloc_with_hints(bytes: usize, _: c_long) -> *mut c_void {
    // SAFETY: as here.
    unsafe { align(1, bytes) }
}

pub(crate) unsafe fn calloc(count: usize, bytes: usize) -> *mut c_void {
    let state = state();
    let Some(bytes) = count.checked_mul(bytes) else {
        die(format!("{count} elements of {bytes} bytes are more than any memory has"))
    };
    if bytes == 0 {
        return std::ptr::null_mut();
    }
    let memory = take(state, bytes, 1);
    if !memory.is_null() {
        // SAFETY: so many bytes of the heap, which nobody else has.
        unsafe { memory.write_bytes(0, bytes) };
    }
    barrier(state);
    memory.cast()
}

pub(crate) unsafe fn align(alignment: usize, bytes: usize) -> *mut c_void {
    let state = state();
    if bytes == 0 {
        return std::ptr::null_mut();
    }
    if !alignment.is_power_of_two() {
        die(format!("an alignment of {alignment} bytes, expected a power of two"));
    }
    let memory = take(state, bytes, alignment);
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
    let (at, held) = {
        let parts = parts(state);
        let at = given(state, &parts, address);
        (at, parts.len_of(at).unwrap_or_default())
    };
    let mut memory = address.cast();
    if bytes > held {
        memory = take(state, bytes, 1);
        if !memory.is_null() {
            // SAFETY: two parts of the heap, which are this program's.
            unsafe { std::ptr::copy_nonoverlapping(address.cast(), memory, held) };
            parts(state).give_back(at);
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
    let mut parts = parts(state);
    let at = given(state, &parts, address);
    parts.give_back(at);
}
