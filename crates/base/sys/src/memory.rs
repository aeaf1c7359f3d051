//! Hints about memory: data that will be read soon, large data that is read all over, data that is to leave the caches.
//!
//! Hints change no byte: wrong ones cost time and nothing else, so the calls are safe.

use std::mem::size_of_val;

/// A page of the ordinary size, and one of the large size that x86-64 and aarch64 (with 4 KiB pages) have.
const PAGE_LEN: usize = 4096;
/// Bytes that processors cache together.
#[cfg(target_arch = "x86_64")]
const CACHE_LINE_LEN: usize = 64;

/// Prefetches the cache line in which an element begins, for reading and writing soon. A place behind the end
/// prefetches an unrelated line, which costs as much.
#[inline(always)]
pub fn prefetch_element<T>(elements: &[T], place: usize) {
    let address = elements.as_ptr().wrapping_add(place);
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing into the program and cannot fault, whatever the address is; SSE is part of
        // x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above: PRFM is a hint, which faults at no address and changes neither registers nor flags nor memory.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

/// Asks the kernel to back `memory` with large pages, as far as whole pages of it lie there. For tables that are read
/// all over this saves most misses of the address cache. Whether the kernel heeds it shows in `AnonHugePages` of
/// /proc/self/smaps; where it has none, nothing changes. Kernel: 2.6.38, with `transparent_hugepage` at `madvise` or
/// `always`.
pub fn advise_large_pages<T>(memory: &mut [T]) {
    let start = memory.as_ptr().addr();
    let end = start + size_of_val(memory);
    let first = start.next_multiple_of(PAGE_LEN);
    let len = end.saturating_sub(first) / PAGE_LEN * PAGE_LEN;
    if len == 0 {
        return;
    }
    let address = memory.as_mut_ptr().cast::<u8>().wrapping_add(first - start);
    debug_assert!(address.addr() + len <= end);
    // SAFETY: the range is whole pages inside of memory that we borrow alone; MADV_HUGEPAGE changes how it is backed,
    // never its contents. The returned error may be that the kernel has no such pages, which is not a fault here.
    unsafe { libc::madvise(address.cast(), len, libc::MADV_HUGEPAGE) };
}

/// Writes `bytes` back to memory and removes them from all caches, so that the next access misses. Returns whether the
/// processor can do that: x86-64 only.
pub fn flush(bytes: &[u8]) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_clflush, _mm_mfence};
        for line in bytes.chunks(CACHE_LINE_LEN) {
            // SAFETY: the address is that of a byte that we borrow; clflush changes no byte, and SSE2 is part of x86-64.
            unsafe { _mm_clflush(line.as_ptr()) };
        }
        // The last byte's line, where `bytes` begins within a line.
        if let Some(last) = bytes.last() {
            // SAFETY: as above.
            unsafe { _mm_clflush(last) };
        }
        // SAFETY: a fence orders accesses and does nothing else.
        unsafe { _mm_mfence() };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
    cfg!(target_arch = "x86_64")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_change_nothing() {
        let mut memory = vec![7_u64; 1 << 20];
        assert_eq!(flush(&[1, 2, 3][1..]), cfg!(target_arch = "x86_64"));
        flush(&[]);
        advise_large_pages(&mut memory);
        (0..memory.len())
            .step_by(1000)
            .chain([usize::MAX])
            .for_each(|place| prefetch_element(&memory, place));
        assert!(memory.iter().all(|word| *word == 7));
        advise_large_pages(&mut memory[..3]);
        advise_large_pages::<u8>(&mut []);
    }
}
