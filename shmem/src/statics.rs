//! The program's variables as symmetric memory. At the start the writable segment of the executable – its `.data` and `.bss` – is put
//! onto shared memory in its place, with the same bytes. An offset in it means the same variable in every PE, wherever the program
//! was loaded. Variables of shared libraries stay private.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use libmp::gdsync::{self, Buffer};

/// The pages of the executable that hold its variables: the first, and how many bytes. Nothing for a program without any.
fn pages() -> Option<(NonNull<u8>, usize)> {
    let mut found: Option<(usize, usize)> = None;
    // SAFETY: called back before it returns, with this pointer.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut found).cast()) };
    let (start, len) = found?;
    Some((NonNull::new(start as *mut u8)?, len))
}

/// Looks at the first object, which is the executable.
///
/// # Safety
/// As `dl_iterate_phdr` calls it; `found` is what [`pages`] gives.
unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    let (info, found) = unsafe { (&*info, &mut *found.cast::<Option<(usize, usize)>>()) };
    // SAFETY: the loader's table.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let base = info.dlpi_addr as usize;
    let range = |header: &libc::Elf64_Phdr| {
        let start = base.wrapping_add(header.p_vaddr as usize);
        (start, start.wrapping_add(header.p_memsz as usize))
    };
    // SAFETY: a number of the system.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    // What the loader has made read-only is no variable; it begins the segment.
    let of = |kind| headers.iter().filter(move |header| header.p_type == kind);
    let fixed = of(libc::PT_GNU_RELRO).map(|header| range(header).1 / page * page).max();
    let writable = of(libc::PT_LOAD).filter(|header| header.p_flags & libc::PF_W != 0).map(range);
    if let Some((start, end)) = writable.max_by_key(|(_, end)| *end) {
        let start = (start / page * page).max(fixed.unwrap_or_default());
        let end = end.next_multiple_of(page);
        *found = (start < end).then(|| (start, end - start));
    }
    // The other objects are libraries.
    1
}

/// Shares the variables of the program, in their place.
///
/// # Errors
/// Out of memory; what the system says.
///
/// # Safety
/// No other thread of the process writes a variable meanwhile.
pub(crate) unsafe fn share() -> gdsync::Result<Option<Buffer<u8>>> {
    let Some((start, len)) = pages() else { return Ok(None) };
    // SAFETY: mapped, readable and writable by the loader; the rest is the caller's promise.
    unsafe { Buffer::share_in_place(start, len) }.map(Some)
}
