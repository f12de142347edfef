//! Copies between memories that others may use at the same time: threads, peers, kernels, NICs. Each byte is read and written
//! as by a relaxed atomic operation, so that a race is no undefined behaviour: who reads what nothing orders finds old bytes
//! and new ones. Order is for others to make; a release store after a copy covers it.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const WORD: usize = size_of::<u64>();

/// A hint; see [`Word64::prefetch`](super::Word64::prefetch).
#[inline]
pub(super) fn prefetch(at: *const u8) {
    // SAFETY: it changes nothing that a program sees, for any address.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        std::arch::asm!("prefetcht0 [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// A hint; see [`Buffer::prefetch_for_write`](super::Buffer::prefetch_for_write).
#[inline]
pub(super) fn prefetch_for_write(at: *const u8) {
    // SAFETY: it changes nothing that a program sees, for any address, and does nothing on a processor that has no such hint.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// Copies `len` bytes, each as by a relaxed atomic operation: who reads what another writes meanwhile finds old bytes and new ones; of
/// at most 64 bytes that do not overlap, old and new whole words of 64 bits, where these are aligned at the target. The ranges may overlap.
///
/// # Safety
/// Both ranges are valid for `len` bytes; nobody accesses them meanwhile but atomically, by this function, or from outside of
/// this program.
#[inline]
pub unsafe fn copy_bytes(from: *const u8, to: *mut u8, len: usize) {
    if len == WORD && (from as usize | to as usize).is_multiple_of(WORD) {
        // SAFETY: the caller's promise, and both are aligned.
        unsafe {
            let word = AtomicU64::from_ptr(from.cast_mut().cast()).load(Ordering::Relaxed);
            AtomicU64::from_ptr(to.cast()).store(word, Ordering::Relaxed);
        }
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { copy_any(from, to, len) }
}

/// Copies whatever it is.
///
/// # Safety
/// As [`copy_bytes`].
unsafe fn copy_any(from: *const u8, to: *mut u8, len: usize) {
    let ahead = (to as usize).wrapping_sub(from as usize);
    if ahead > 0 && ahead < len {
        // The end of the source is where the copy begins.
        // SAFETY: the caller's promise; from the end on each byte is read before it is written.
        (0..len).rev().for_each(|at| unsafe { copy_byte(from.add(at), to.add(at)) });
        return;
    }
    let in_words = ahead.is_multiple_of(WORD);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // Up to so many bytes a loop of words starts sooner than the processor's own copy does.
        if len > 512 {
            // SAFETY: the caller's promise, and the direction flag is clear in Rust. What the instruction does with each byte is
            // what a relaxed load and a relaxed store would do.
            unsafe {
                std::arch::asm!(
                    "rep movsb",
                    inout("rcx") len => _,
                    inout("rsi") from => _,
                    inout("rdi") to => _,
                    options(nostack, preserves_flags)
                );
            }
            return;
        }
    }
    let head = to.align_offset(WORD).min(len);
    let words = (len - head) / WORD;
    // SAFETY: the caller's promise; behind the head the target is aligned, and the source if both are alike.
    unsafe {
        (0..head).for_each(|at| copy_byte(from.add(at), to.add(at)));
        let (first, target) = (from.add(head), to.add(head).cast::<u64>());
        for at in 0..words {
            let from = first.add(at * WORD).cast_mut();
            // Loads that the compiler knows make a faster loop.
            let word = match in_words {
                true => AtomicU64::from_ptr(from.cast()).load(Ordering::Relaxed),
                false => gathered(from),
            };
            AtomicU64::from_ptr(target.add(at)).store(word, Ordering::Relaxed);
        }
        (head + words * WORD..len).for_each(|at| copy_byte(from.add(at), to.add(at)));
    }
}

/// A word of bytes, wherever it begins.
///
/// # Safety
/// As [`copy_bytes`], of what is read.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
unsafe fn gathered(from: *mut u8) -> u64 {
    let word;
    // SAFETY: the caller's promise. What the instruction does with each byte is what a relaxed load would do.
    unsafe {
        std::arch::asm!("mov {}, [{}]", out(reg) word, in(reg) from, options(nostack, preserves_flags, readonly));
    }
    word
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline(never)]
unsafe fn gathered(from: *mut u8) -> u64 {
    // SAFETY: the caller's promise; a byte is always aligned.
    let byte = |at| unsafe { AtomicU8::from_ptr(from.add(at)).load(Ordering::Relaxed) };
    u64::from_ne_bytes(std::array::from_fn(byte))
}

/// # Safety
/// As [`copy_bytes`], of one byte.
unsafe fn copy_byte(from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise; a byte is always aligned.
    unsafe {
        let byte = AtomicU8::from_ptr(from.cast_mut()).load(Ordering::Relaxed);
        AtomicU8::from_ptr(to).store(byte, Ordering::Relaxed);
    }
}

/// Sets `len` bytes.
///
/// # Safety
/// As [`copy_bytes`].
pub(crate) unsafe fn fill_bytes(to: *mut u8, byte: u8, len: usize) {
    let block = [byte; 4096];
    let mut at = 0;
    while at < len {
        let part = block.len().min(len - at);
        // SAFETY: the caller's promise; the block is this thread's.
        unsafe { copy_bytes(block.as_ptr(), to.add(at), part) };
        at += part;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_looks_finds_whole_words_wherever_the_source_begins() {
        let target: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(0)).collect();
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // A word of eight equal bytes each; the source begins everywhere in a word.
                for round in 0..20_000u32 {
                    let from = [round as u8; 72];
                    let to = target.as_ptr() as *mut u8;
                    // SAFETY: both are long enough; the target is used atomically.
                    unsafe { copy_bytes(from.as_ptr().add(round as usize % 8), to, 64) };
                }
                over.store(true, Ordering::Release);
            });
            while !over.load(Ordering::Acquire) {
                for word in &target {
                    let bytes = word.load(Ordering::Relaxed).to_ne_bytes();
                    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "{bytes:x?}");
                }
            }
        });
    }

    #[test]
    fn every_length_and_alignment_is_copied_whole_and_nothing_beside_it() {
        let lengths = [0, 1, 7, 8, 9, 16, 63, 511, 512, 513, 1000, 5003];
        for len in lengths {
            for (from_at, to_at) in [(0, 0), (3, 3), (1, 0), (0, 5), (8, 16)] {
                let from: Vec<u8> = (0..from_at + len).map(|at| (at * 7 + 1) as u8).collect();
                let mut to = vec![0xee; to_at + len + 3];
                // SAFETY: both vectors are this test's, and long enough.
                unsafe { copy_bytes(from.as_ptr().add(from_at), to.as_mut_ptr().add(to_at), len) };
                assert_eq!(
                    to[to_at..to_at + len],
                    from[from_at..],
                    "{len} from {from_at} to {to_at}"
                );
                assert!(to[..to_at].iter().chain(&to[to_at + len..]).all(|byte| *byte == 0xee));
            }
        }
    }

    #[test]
    fn ranges_that_overlap_are_copied_as_if_by_a_third_place() {
        for len in [20, 300, 3000] {
            for (from_at, to_at) in [(0, 1), (1, 0), (0, 8), (8, 0), (4, 4)] {
                let mut bytes: Vec<u8> = (0..len + 8).map(|at| at as u8).collect();
                let expected = bytes[from_at..from_at + len].to_vec();
                let base = bytes.as_mut_ptr();
                // SAFETY: inside the vector.
                unsafe { copy_bytes(base.add(from_at), base.add(to_at), len) };
                assert_eq!(bytes[to_at..to_at + len], expected);
            }
        }
    }

    #[test]
    fn a_fill_goes_to_the_end_and_no_further() {
        let mut bytes = vec![0; 10_001];
        // SAFETY: inside the vector.
        unsafe { fill_bytes(bytes.as_mut_ptr(), 9, 10_000) };
        assert!(bytes[..10_000].iter().all(|byte| *byte == 9) && bytes[10_000] == 0);
    }
}
