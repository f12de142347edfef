//! OpenCL memory of the program that `shmmap` has made symmetric. It has no addresses: the program is given some that are reserved, in which nothing
//! is, and by which calls find it. Puts and gets of other PEs go as messages that a thread of its PE answers (`libmp::tagged::Served`), and have
//! happened when they return; what this PE's own calls name of it is copied from there and back.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use libmp::gdsync::{Rows, opencl};
use libmp::tagged::Served;

use crate::device::by_cpu;
use crate::failure::{OrFail, die};
use crate::rma::region;
use crate::world::{Reach, Segment, State, expect_same};

/// The memory of all PEs, and the addresses that stand for it here.
pub(crate) struct OpenCl {
    served: Served,
    addresses: *mut c_void,
    reserved: usize,
}

impl Drop for OpenCl {
    fn drop(&mut self) {
        // SAFETY: reserved by `open`, and nobody is given them any more.
        unsafe { libc::munmap(self.addresses, self.reserved) };
    }
}

/// # Safety
/// The object is a `cl_mem` that has not been released.
pub(crate) unsafe fn open(state: &State, object: *mut c_void, bytes: usize) -> Segment {
    // SAFETY: the caller's promise.
    let memory = unsafe { opencl::Memory::adopt(object) };
    let memory = memory.and_then(|memory| memory.slice(0..bytes));
    let memory = memory
        .unwrap_or_else(|error| die(format!("shmmap of {bytes} bytes of OpenCL memory: {error}")));
    let served = state.world.serve(&memory).or_fail();
    let lens = (0..state.n).map(|pe| served.len(pe).unwrap_or_default());
    expect_same("what shmmap is given", lens);
    let (private, no_file) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1);
    // SAFETY: new addresses, where the system likes.
    let addresses =
        unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, private, no_file, 0) };
    if addresses == libc::MAP_FAILED {
        let error = std::io::Error::last_os_error();
        die(format!("no addresses for {bytes} bytes of OpenCL memory: {error}"));
    }
    state.away.store(true, Ordering::Relaxed);
    let (peers, views) = (vec![std::ptr::null_mut(); state.n], vec![0; state.n]);
    Segment {
        base: addresses as usize,
        len: bytes,
        peers: peers.into(),
        views: views.into(),
        reach: Reach::OpenCl(OpenCl { served, addresses, reserved: bytes }),
    }
}

/// The OpenCL memory of this PE that an address of the program stands for, and the byte in it.
pub(crate) fn at(state: &State, address: usize) -> Option<(&OpenCl, usize)> {
    if !state.away.load(Ordering::Relaxed) {
        return None;
    }
    let (segment, at) = state.maps.find(address)?;
    Some((segment.opencl()?, at))
}

impl OpenCl {
    /// # Safety
    /// The rows are in the caller's memory.
    unsafe fn put(&self, pe: usize, at: usize, source: *const u8, rows: Rows) {
        let extent = rows.extents().1;
        let put = |_, source: *const u8| {
            // SAFETY: the caller's promise, or a copy.
            let bytes = unsafe { std::slice::from_raw_parts(source, extent) };
            self.served.put(pe, at as u64, bytes, rows).or_fail();
        };
        // SAFETY: the caller's promise.
        unsafe { by_cpu((std::ptr::null_mut(), 0), (source, extent), put) }
    }

    /// # Safety
    /// The rows are in the caller's memory.
    unsafe fn get(&self, pe: usize, at: usize, dest: *mut u8, rows: Rows) {
        let extent = rows.extents().0;
        let get = |dest: *mut u8, _| {
            // SAFETY: the caller's promise, or a copy.
            let bytes = unsafe { std::slice::from_raw_parts_mut(dest, extent) };
            self.served.get(pe, at as u64, bytes, rows).or_fail();
        };
        // SAFETY: the caller's promise.
        unsafe { by_cpu((dest, extent), (std::ptr::null(), 0), get) }
    }
}

/// Copies if either side is OpenCL's: true then.
///
/// # Safety
/// The rows are in memory of the caller, or mapped.
pub(crate) unsafe fn copy(state: &State, to: *mut u8, from: *const u8, rows: Rows) -> bool {
    if rows.elements() == 0 {
        return false;
    }
    // SAFETY: the caller's promise.
    unsafe {
        match (at(state, from as usize), at(state, to as usize)) {
            (Some((memory, at)), _) => memory.get(state.me, at, to, rows),
            (None, Some((memory, at))) => memory.put(state.me, at, from, rows),
            (None, None) => return false,
        }
    }
    true
}

/// Puts to a place that is not mapped, if it or the source is OpenCL's: true then, and it has happened.
///
/// # Safety
/// The source is the caller's.
pub(crate) unsafe fn put(
    state: &State,
    (segment, pe, there): (&Segment, usize, u64),
    source: *const u8,
    rows: Rows,
) -> bool {
    if let Some(memory) = segment.opencl() {
        // SAFETY: the caller's promise.
        unsafe { memory.put(pe, there as usize, source, rows) };
        return true;
    }
    if at(state, source as usize).is_none() {
        return false;
    }
    let extent = rows.extents().1;
    let put = |_, source| {
        // SAFETY: a copy.
        let source = unsafe { region::<u8>(source, extent) };
        segment.window().put(pe, there, (&source, rows)).or_fail();
    };
    // SAFETY: the caller's promise.
    unsafe { by_cpu((std::ptr::null_mut(), 0), (source, extent), put) };
    true
}

/// Gets from a place that is not mapped, if it or the dest is OpenCL's: true then, and it is there.
///
/// # Safety
/// The dest is the caller's.
pub(crate) unsafe fn get(
    state: &State,
    (segment, pe, there): (&Segment, usize, u64),
    dest: *mut u8,
    rows: Rows,
) -> bool {
    if let Some(memory) = segment.opencl() {
        // SAFETY: the caller's promise.
        unsafe { memory.get(pe, there as usize, dest, rows) };
        return true;
    }
    if at(state, dest as usize).is_none() {
        return false;
    }
    let extent = rows.extents().0;
    let get = |dest: *mut u8, _| {
        // SAFETY: a copy.
        let dest = unsafe { region::<u8>(dest.cast_const(), extent) };
        segment.window().get(pe, there, (&dest, rows)).or_fail();
    };
    // SAFETY: the caller's promise.
    unsafe { by_cpu((dest, extent), (std::ptr::null(), 0), get) };
    true
}
