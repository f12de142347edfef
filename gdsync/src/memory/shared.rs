//! Host memory that other processes of the machine can map: a memfd, reached through `/proc/PID/fd`. It has no
//! name, so nothing is left behind when a process is killed. Its length is sealed: whoever may open it could truncate it
//! otherwise, and the next access of anybody who maps it would be a SIGBUS.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat,
    memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use serde::{Deserialize, Serialize};

use super::limits::{self, Turn};
use crate::error::{Error, Result};

/// What makes a length final: it cannot change, and that it cannot change cannot change.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// A mapped memfd.
#[derive(Debug)]
pub(crate) struct SharedSegment {
    address: NonNull<u8>,
    len: usize,
    file: OwnedFd,
    /// It has taken the place of memory that the program goes on using: it is never unmapped.
    stays: bool,
}

// SAFETY: a mapping is plain memory; who may touch it when is the business of the buffers built on it.
unsafe impl Send for SharedSegment {}
// SAFETY: as for Send.
unsafe impl Sync for SharedSegment {}

/// Where another process finds a segment.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct SegmentName {
    pub pid: u32,
    fd: i32,
    device: u64,
    inode: u64,
    pub len: u64,
}

impl SharedSegment {
    /// A new zeroed segment of `len` bytes (rounded up to whole pages), its memory reserved now: a shortage is an
    /// error here instead of a SIGBUS at the first touch.
    pub fn create(len: usize) -> Result<SharedSegment> {
        let len = round_to_pages(len)?;
        SharedSegment::map(reserve(len)?, len)
    }

    /// Puts a segment with the same bytes in the place of whole pages of private memory of this process.
    ///
    /// # Safety
    /// The pages are mapped, readable and writable, and no other thread writes them meanwhile.
    pub unsafe fn replace(address: NonNull<u8>, len: usize) -> Result<SharedSegment> {
        let page = rustix::param::page_size();
        for offset in [address.as_ptr() as usize, len] {
            if !offset.is_multiple_of(page) {
                return Err(Error::Misaligned {
                    what: "memory to share in place",
                    offset,
                    align: page,
                });
            }
        }
        let file = reserve(len)?;
        let failed = |call| move |e| Error::os(call, format!("{len} bytes to share in place"), e);
        // From here to the mapping nothing may write to these pages: no allocation, whose state may be in them.
        let mut at = 0;
        while at < len {
            // SAFETY: readable, as the caller says.
            let rest = unsafe { std::slice::from_raw_parts(address.as_ptr().add(at), len - at) };
            at += rustix::io::pwrite(&file, rest, at as u64).map_err(failed("pwrite"))?;
        }
        let (access, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        // SAFETY: the caller's pages, whose bytes stay the same.
        unsafe { mmap(address.as_ptr().cast(), len, access, flags, &file, 0) }
            .map_err(failed("mmap"))?;
        Ok(SharedSegment { address, len, file, stays: true })
    }

    /// Maps the segment that another process of this machine (or this one) named.
    pub fn open(name: &SegmentName) -> Result<SharedSegment> {
        let unreachable = |why: String| Error::PeerUnreachable { pid: name.pid, why };
        let path = format!("/proc/{}/fd/{}", name.pid, name.fd);
        let file = File::options().read(true).write(true).open(&path).map_err(|e| {
            unreachable(format!("opening {path}: {e} (ended, or of another user or PID namespace)"))
        })?;
        let stat = fstat(&file).map_err(|e| unreachable(format!("fstat: {e}")))?;
        if (stat.st_dev, stat.st_ino) != (name.device, name.inode)
            || stat.st_size as u64 != name.len
        {
            return Err(unreachable(
                "the handle names another file now: the process has ended".into(),
            ));
        }
        // Of a memfd of ours it is; another file would end this process when its owner shortens it.
        if !fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SEALS)) {
            return Err(unreachable("the length of the memory it names can change".into()));
        }
        let len =
            usize::try_from(name.len).map_err(|_| unreachable(format!("length {}", name.len)))?;
        SharedSegment::map(file.into(), len)
    }

    fn map(file: OwnedFd, len: usize) -> Result<SharedSegment> {
        // SAFETY: a new mapping at an address of the kernel's choice; the file is at least `len` long.
        let address = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file.as_fd(),
                0,
            )
        }
        .map_err(|e| Error::os("mmap", format!("{len} bytes of shared memory"), e))?;
        let address = NonNull::new(address.cast())
            .ok_or_else(|| Error::os("mmap", "shared memory", "null"))?;
        Ok(SharedSegment { address, len, file, stays: false })
    }

    pub fn address(&self) -> NonNull<u8> {
        self.address
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// The name under which other processes find it while this process lives and holds it.
    pub fn name(&self) -> Result<SegmentName> {
        let stat = fstat(&self.file).map_err(|e| Error::os("fstat", "shared memory", e))?;
        Ok(SegmentName {
            pid: std::process::id(),
            fd: self.file.as_raw_fd(),
            device: stat.st_dev,
            inode: stat.st_ino,
            len: self.len as u64,
        })
    }
}

impl Drop for SharedSegment {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        // SAFETY: mapped by us with this length, unmapped once; buffers on it hold the segment.
        if let Err(error) = unsafe { munmap(self.address.as_ptr().cast(), self.len) } {
            tracing::debug!("munmap: {error}");
        }
    }
}

/// A file of so many bytes, whole pages, in memory that is reserved.
fn reserve(len: usize) -> Result<OwnedFd> {
    let what = format!("{len} bytes of shared memory");
    // Until the memory is reserved nobody else of this host counts on it.
    let turn = Turn::take();
    limits::check(len as u64, len as u64)?;
    let file = memfd_create("mp", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(|e| Error::os("memfd_create", &what, e))?;
    fallocate(&file, FallocateFlags::empty(), 0, len as u64)
        .map_err(|e| Error::os("fallocate", &what, e))?;
    fcntl_add_seals(&file, SEALS).map_err(|e| Error::os("F_ADD_SEALS", &what, e))?;
    drop(turn);
    Ok(file)
}

fn round_to_pages(len: usize) -> Result<usize> {
    let page = rustix::param::page_size();
    len.max(1)
        .checked_next_multiple_of(page)
        .filter(|len| isize::try_from(*len).is_ok())
        .ok_or(Error::OutOfRange { what: "allocation", offset: 0, len, size: isize::MAX as usize })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_opened_by_name_is_the_same_memory() -> Result<()> {
        let mine = SharedSegment::create(10)?;
        let other = SharedSegment::open(&mine.name()?)?;
        // SAFETY: both mappings are at least a page long.
        unsafe {
            mine.address().write(42);
            assert_eq!(other.address().read(), 42);
        }
        assert_ne!(mine.address(), other.address());
        Ok(())
    }

    #[test]
    fn memory_shared_in_place_keeps_its_bytes_and_address_and_is_seen_by_who_opens_it() -> Result<()>
    {
        let len = 3 * rustix::param::page_size();
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping, which only this test uses.
        let start = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, access, flags) };
        let start = NonNull::new(start.unwrap().cast::<u8>()).unwrap();
        // SAFETY: inside the mapping, which stays when the segment is dropped.
        unsafe {
            start.add(len - 1).write(42);
            let segment = SharedSegment::replace(start, len)?;
            let other = SharedSegment::open(&segment.name()?)?;
            assert_eq!(other.address().add(len - 1).read(), 42);
            other.address().write(7);
            assert_eq!((segment.address(), start.read_volatile()), (start, 7));
            drop(segment);
            start.write(8);
            assert_eq!(other.address().read_volatile(), 8);
            let crooked = SharedSegment::replace(start.add(1), len).unwrap_err().to_string();
            assert!(crooked.contains("memory to share in place"), "{crooked}");
            munmap(start.as_ptr().cast(), len).unwrap();
        }
        Ok(())
    }

    #[test]
    fn a_segment_that_is_gone_is_an_error_that_names_the_process() -> Result<()> {
        let segment = SharedSegment::create(10)?;
        let name = segment.name()?;
        drop(segment);
        let error = SharedSegment::open(&name).unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        Ok(())
    }

    #[test]
    fn nobody_changes_the_length_of_a_segment() -> Result<()> {
        let segment = SharedSegment::create(10)?;
        let name = segment.name()?;
        // As any process of the same user may.
        let path = format!("/proc/{}/fd/{}", name.pid, name.fd);
        let file = File::options().read(true).write(true).open(path).unwrap();
        for len in [0, 1, 2 * name.len] {
            let refused = file.set_len(len).unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied, "{len}: {refused}");
        }
        // SAFETY: at least a page long.
        unsafe { segment.address().write_volatile(1) };
        Ok(())
    }

    #[test]
    fn memory_whose_length_can_change_is_not_mapped() -> Result<()> {
        let file = memfd_create("mp", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 4096).unwrap();
        let len = 4096;
        let segment = SharedSegment::map(file, len)?;
        let refused = SharedSegment::open(&segment.name()?).unwrap_err().to_string();
        assert!(refused.contains("the length of the memory it names can change"), "{refused}");
        Ok(())
    }

    #[test]
    fn a_size_past_the_address_space_is_refused() {
        assert!(matches!(SharedSegment::create(usize::MAX), Err(Error::OutOfRange { .. })));
        let error = SharedSegment::create(1 << 60).unwrap_err().to_string();
        assert!(error.contains("are available"), "{error}");
    }
}
