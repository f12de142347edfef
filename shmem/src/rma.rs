//! Puts and gets. Where the PE's memory is mapped it is a copy, which has happened when the call returns, with or without `_nbi`. Behind
//! a NIC a window takes the bytes from wherever they are and brings them wherever they are to go, private memory included.

use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use bytemuck::Pod;
use libmp::gdsync::{Buffer, Rows};
use libmp::{Device, Region};

use crate::context::Context;
use crate::device;
use crate::failure::{OrFail, die};
use crate::opencl;
use crate::world::{Segment, State, state};

/// `long double`, which Rust does not have: its bytes.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(16))]
pub(crate) struct LongDouble([u8; 16]);

/// A PE's symmetric memory.
pub(crate) enum There<'a> {
    /// Mapped here for the CPU.
    Mapped(*mut u8),
    /// Behind a NIC, or a GPU's: its segment, the PE, and the byte in it.
    Far(&'a Segment, usize, u64),
}

/// What `bytes` bytes of this PE, which are symmetric, are at another. Most of what a put of few bytes takes: a call of it would double that.
#[inline(always)]
pub(crate) fn there(
    state: &State,
    context: Context,
    address: usize,
    bytes: usize,
    pe: c_int,
) -> There<'_> {
    let pe = context.pe(pe);
    let (segment, at) = state.place(address, bytes);
    let base = segment.peers[pe];
    match base.is_null() {
        false => There::Mapped(base.wrapping_add(at)),
        true => There::Far(segment, pe, at as u64),
    }
}

/// Elements of this PE, private or not, for a window or a collective.
///
/// # Safety
/// They are this process's while the region is used.
pub(crate) unsafe fn region<T: Pod>(address: *const T, n: usize) -> Region<T> {
    let address = match NonNull::new(address.cast_mut()) {
        Some(address) => address,
        None if n == 0 => NonNull::dangling(),
        None => die(format!("{} bytes at NULL, expected memory", bytes_of::<T>(n))),
    };
    // SAFETY: the caller's promise.
    let buffer = match unsafe { device::memory(address.as_ptr() as usize, bytes_of::<T>(n)) } {
        Some(memory) => memory.cast(),
        // SAFETY: the caller's promise.
        None => unsafe { Buffer::from_host_memory(&Device::Host, address, n, ()) },
    };
    Region::from_buffer(buffer.unwrap_or_else(|error| die(error)))
}

/// Elements of this PE in the memory of the host, for a collective.
///
/// # Safety
/// They are this process's, and nobody else's, while the slice is used.
pub(crate) unsafe fn slice_of<'a, T: Pod>(address: *mut T, n: usize) -> &'a mut [T] {
    if n == 0 {
        return &mut [];
    }
    if address.is_null() || !address.is_aligned() {
        let (bytes, align) = (bytes_of::<T>(n), align_of::<T>());
        die(format!("{bytes} bytes at {address:p}, expected memory at a multiple of {align}"));
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(address, n) }
}

/// Something has been posted for a PE.
pub(crate) fn used(state: &State, pe: usize) {
    if let Ok(at) = state.far.binary_search_by_key(&pe, |(far, _)| *far) {
        state.far[at].1.store(true, Ordering::Release);
    }
}

/// Bytes of `n` elements.
#[inline]
pub(crate) fn bytes_of<T>(n: usize) -> usize {
    n.checked_mul(size_of::<T>())
        .unwrap_or_else(|| die(format!("{n} elements are more than any memory has")))
}

/// When what goes through a NIC may be forgotten by the caller.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Return {
    /// The memory here is the caller's again.
    Done,
    /// When the context is quiet.
    Begun,
}

#[inline]
unsafe fn put_bytes(
    context: Context,
    dest: usize,
    source: *const u8,
    bytes: usize,
    pe: c_int,
    when: Return,
) {
    if bytes == 0 {
        return;
    }
    let state = state();
    match there(state, context, dest, bytes, pe) {
        // SAFETY: the peer's memory of this length; the source is the caller's, and may be the same memory.
        There::Mapped(to) => unsafe { device::copy(state, to, source, bytes) },
        // SAFETY: the caller's.
        There::Far(segment, pe, at) => unsafe {
            put_far(state, (segment, pe, at), source, bytes, when)
        },
    }
}

/// # Safety
/// The source is the caller's until the flush, or quiet.
#[cold]
unsafe fn put_far(
    state: &State,
    (segment, pe, at): (&Segment, usize, u64),
    source: *const u8,
    bytes: usize,
    when: Return,
) {
    // SAFETY: the caller's promise.
    if unsafe { opencl::put(state, (segment, pe, at), source, Rows::one(bytes)) } {
        return;
    }
    // SAFETY: the caller's promise.
    let source = unsafe { region(source, bytes) };
    segment.window().start_put(pe, at, &source).or_fail();
    used(state, pe);
    if when == Return::Done {
        segment.window().flush(pe).or_fail();
    }
}

#[inline]
unsafe fn get_bytes(
    context: Context,
    dest: *mut u8,
    source: usize,
    bytes: usize,
    pe: c_int,
    when: Return,
) {
    if bytes == 0 {
        return;
    }
    let state = state();
    match there(state, context, source, bytes, pe) {
        // SAFETY: as of a put.
        There::Mapped(from) => unsafe { device::copy(state, dest, from, bytes) },
        // SAFETY: the caller's.
        There::Far(segment, pe, at) => unsafe {
            get_far(state, (segment, pe, at), dest, bytes, when)
        },
    }
}

/// # Safety
/// The memory is the caller's until the flush, or quiet.
#[cold]
unsafe fn get_far(
    state: &State,
    (segment, pe, at): (&Segment, usize, u64),
    dest: *mut u8,
    bytes: usize,
    when: Return,
) {
    // SAFETY: the caller's promise.
    if unsafe { opencl::get(state, (segment, pe, at), dest, Rows::one(bytes)) } {
        return;
    }
    // SAFETY: the caller's promise.
    let dest = unsafe { region(dest, bytes) };
    segment.window().start_get(pe, at, &dest).or_fail();
    used(state, pe);
    if when == Return::Done {
        segment.window().flush(pe).or_fail();
    }
}

pub(crate) unsafe fn put<T>(ctx: Context, dest: *mut T, source: *const T, n: usize, pe: c_int) {
    // SAFETY: as here.
    unsafe { put_bytes(ctx, dest as usize, source.cast(), bytes_of::<T>(n), pe, Return::Done) }
}

pub(crate) unsafe fn put_nbi<T>(ctx: Context, dest: *mut T, source: *const T, n: usize, pe: c_int) {
    // SAFETY: as here.
    unsafe { put_bytes(ctx, dest as usize, source.cast(), bytes_of::<T>(n), pe, Return::Begun) }
}

pub(crate) unsafe fn get<T>(ctx: Context, dest: *mut T, source: *const T, n: usize, pe: c_int) {
    // SAFETY: as here.
    unsafe { get_bytes(ctx, dest.cast(), source as usize, bytes_of::<T>(n), pe, Return::Done) }
}

pub(crate) unsafe fn get_nbi<T>(ctx: Context, dest: *mut T, source: *const T, n: usize, pe: c_int) {
    // SAFETY: as here.
    unsafe { get_bytes(ctx, dest.cast(), source as usize, bytes_of::<T>(n), pe, Return::Begun) }
}

pub(crate) unsafe fn p<T: Copy>(ctx: Context, dest: *mut T, value: T, pe: c_int) {
    match there(state(), ctx, dest as usize, size_of::<T>(), pe) {
        // SAFETY: an element of the peer's, as aligned as here. One store: others may look at it.
        There::Mapped(to) => unsafe { to.cast::<T>().write_volatile(value) },
        // SAFETY: as here.
        There::Far(..) => unsafe { put(ctx, dest, &raw const value, 1, pe) },
    }
}

pub(crate) unsafe fn g<T: Copy>(ctx: Context, source: *const T, pe: c_int) -> T {
    match there(state(), ctx, source as usize, size_of::<T>(), pe) {
        // SAFETY: as of `p`.
        There::Mapped(from) => unsafe { from.cast::<T>().read_volatile() },
        There::Far(..) => {
            let mut value = std::mem::MaybeUninit::uninit();
            // SAFETY: as here; it is there when the call returns.
            unsafe {
                get(ctx, value.as_mut_ptr(), source, 1, pe);
                value.assume_init()
            }
        }
    }
}

/// Blocks of elements that are apart from each other, here and there: how many, the bytes of one, and how many bytes lie from one to the
/// next.
#[derive(Clone, Copy)]
struct Strided {
    n: usize,
    block: usize,
    to: usize,
    from: usize,
}

/// Elements from one to the next, or from a block of `least` elements to the next.
pub(crate) fn stride_of(stride: isize, least: usize) -> usize {
    match usize::try_from(stride) {
        Ok(elements) if elements >= least => elements,
        _ => die(format!("a stride of {stride} elements, expected at least {least}")),
    }
}

impl Strided {
    fn new<T>(n: usize, block: usize, to: isize, from: isize) -> Strided {
        let [to, from] = [to, from].map(|stride| bytes_of::<T>(stride_of(stride, block)));
        Strided { n, block: bytes_of::<T>(block), to, from }
    }

    /// Bytes from the first to the end of the last.
    fn extent(self, stride: usize) -> usize {
        let last = (self.n - 1).checked_mul(stride).and_then(|bytes| bytes.checked_add(self.block));
        last.unwrap_or_else(|| die(format!("{} elements are more than any memory has", self.n)))
    }

    fn rows(self) -> Rows {
        Rows { len: self.block, count: self.n, to: self.to, from: self.from }
    }

    /// # Safety
    /// There are so many blocks of elements at both places.
    unsafe fn copy<T: Copy>(self, state: &State, to: *mut u8, from: *const u8) {
        // SAFETY: the caller's promise.
        let on_gpu = unsafe {
            let (target, source) = ((to, self.extent(self.to)), (from, self.extent(self.from)));
            device::copy_rows(state, target, source, self.rows())
        };
        if on_gpu {
            return;
        }
        for i in 0..self.n {
            let (to, from) = (to.wrapping_add(i * self.to), from.wrapping_add(i * self.from));
            if self.block == size_of::<T>() {
                // SAFETY: the caller's promise. Elements of a size without a type have any alignment.
                unsafe { to.cast::<T>().write_unaligned(from.cast::<T>().read_unaligned()) };
            } else {
                // SAFETY: the caller's promise; both may be the same memory.
                unsafe { std::ptr::copy(from, to, self.block) };
            }
        }
    }
}

#[allow(clippy::too_many_arguments, reason = "the specification's")]
pub(crate) unsafe fn ibput<T: Copy>(
    ctx: Context,
    dest: *mut T,
    source: *const T,
    dst: isize,
    sst: isize,
    block: usize,
    n: usize,
    pe: c_int,
) {
    if n == 0 || block == 0 {
        return;
    }
    let state = state();
    let strided = Strided::new::<T>(n, block, dst, sst);
    match there(state, ctx, dest as usize, strided.extent(strided.to), pe) {
        // SAFETY: the peer's memory of this extent, and the caller's.
        There::Mapped(to) => unsafe { strided.copy::<T>(state, to, source.cast()) },
        There::Far(segment, pe, at) => {
            // SAFETY: the caller's.
            if unsafe { opencl::put(state, (segment, pe, at), source.cast(), strided.rows()) } {
                return;
            }
            // SAFETY: the caller's, until the flush.
            let source = unsafe { region(source.cast::<u8>(), strided.extent(strided.from)) };
            segment.window().start_put(pe, at, (&source, strided.rows())).or_fail();
            used(state, pe);
            segment.window().flush(pe).or_fail();
        }
    }
}

#[allow(clippy::too_many_arguments, reason = "the specification's")]
pub(crate) unsafe fn ibget<T: Copy>(
    ctx: Context,
    dest: *mut T,
    source: *const T,
    dst: isize,
    sst: isize,
    block: usize,
    n: usize,
    pe: c_int,
) {
    if n == 0 || block == 0 {
        return;
    }
    let state = state();
    let strided = Strided::new::<T>(n, block, dst, sst);
    match there(state, ctx, source as usize, strided.extent(strided.from), pe) {
        // SAFETY: the peer's memory of this extent, and the caller's.
        There::Mapped(from) => unsafe { strided.copy::<T>(state, dest.cast(), from) },
        There::Far(segment, pe, at) => {
            // SAFETY: the caller's.
            if unsafe { opencl::get(state, (segment, pe, at), dest.cast(), strided.rows()) } {
                return;
            }
            // SAFETY: the caller's.
            let dest = unsafe { region(dest.cast::<u8>(), strided.extent(strided.to)) };
            segment.window().get(pe, at, (&dest, strided.rows())).or_fail();
        }
    }
}

/// Blocks of one element.
macro_rules! single {
    ($($name:ident $blocks:ident),+) => {
        $(pub(crate) unsafe fn $name<T: Copy>(
            ctx: Context, dest: *mut T, source: *const T, dst: isize, sst: isize, n: usize, pe: c_int,
        ) {
            // SAFETY: as here.
            unsafe { $blocks(ctx, dest, source, dst, sst, 1, n, pe) }
        })+
    };
}
single!(iput ibput, iget ibget);
