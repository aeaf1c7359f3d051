//! Memory as 64-bit words that one process writes and others may read meanwhile: a mapped file, or memory of our own.
//!
//! ```text
//! file, at least so long --SharedWords::map--+
//!                                            +--part::<N>(first)--> WordRange<N>: N words, for one writer
//! nothing ---------------SharedWords::private+--to_read()--> ReadWords
//! file of others' --------------------ReadWords::map-------------^      only loaded from
//! ```
//!
//! Words are atomics, because other processes see the file. A process that may write to a file can shrink it, and then
//! a mapping of it kills the process that looks: so a file on a disk is mapped by its writer alone, to whom it belongs,
//! and others read(2) it. A memory file whose size is sealed ([`Memfd`](crate::Memfd)) may be mapped by all.

use std::fs::File;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::SyscallError;

/// 64-bit words, shared or private, from the start of a page on: a cache line of a format is one of the processor. A
/// clone is the same memory.
#[derive(Clone, Debug)]
pub struct SharedWords {
    memory: Arc<Memory>,
}

/// `N` of the words; keeps the memory alive.
#[derive(Clone, Debug)]
pub struct WordRange<const N: usize> {
    words: NonNull<AtomicU64>,
    memory: Arc<Memory>,
}

#[derive(Debug)]
struct Memory {
    base: NonNull<AtomicU64>,
    words: usize,
    is_shared: bool,
}

/// Words that are only loaded from: memory of another process, or a view of [`SharedWords`]. A clone is the same
/// memory.
#[derive(Clone, Debug)]
pub struct ReadWords {
    memory: Arc<Memory>,
}

// SAFETY: the memory belongs to this value alone until it is dropped, and its words are atomics.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}
// SAFETY: a view of atomics in memory that it keeps alive.
unsafe impl<const N: usize> Send for WordRange<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Sync for WordRange<N> {}

impl SharedWords {
    /// The first `words` words of a file that was opened for reading and writing, shared with all processes that have
    /// it open.
    ///
    /// Touching a word whose page the file system cannot provide (a sparse file on a full disk, a file cut short) kills
    /// the process: write to the file first, which says so with an error.
    ///
    /// # Errors
    /// `EINVAL` if the file is shorter, or the number of words is 0; the errors of fstat(2) and mmap(2).
    pub fn map(file: &File, words: usize) -> Result<SharedWords, SyscallError> {
        let base = map(file, words, libc::PROT_READ | libc::PROT_WRITE)?;
        Ok(SharedWords { memory: Arc::new(Memory { base, words, is_shared: true }) })
    }

    /// Maps the file with all its pages present from the start: the first write to each would take the kernel some
    /// microseconds, on the hot path. If memory is short, the missing pages come with the first write to them.
    ///
    /// # Errors
    /// As [`map`](Self::map).
    pub fn map_populated(file: &File, words: usize) -> Result<SharedWords, SyscallError> {
        let base = map_with(file, words, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_POPULATE)?;
        Ok(SharedWords { memory: Arc::new(Memory { base, words, is_shared: true }) })
    }

    /// The words for reading only.
    pub fn to_read(&self) -> ReadWords {
        ReadWords { memory: Arc::clone(&self.memory) }
    }

    /// `words` words that are all zero and that no other process sees.
    ///
    /// # Panics
    /// Without any words.
    pub fn private(words: usize) -> SharedWords {
        assert!(words > 0, "memory without words");
        let len = words * size_of::<AtomicU64>();
        let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // The kernel gives a page when it is first written; an aligned allocation would write zeros to all of them.
        // SAFETY: a mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(ptr::null_mut(), len, rights, flags, -1, 0) };
        let base = NonNull::new(base.cast()).filter(|_| base != libc::MAP_FAILED);
        let Some(base) = base else { panic!("no memory for {len} bytes") };
        SharedWords { memory: Arc::new(Memory { base, words, is_shared: false }) }
    }

    /// `N` words from the word `first` on.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn part<const N: usize>(&self, first: usize) -> WordRange<N> {
        let words = &self[first..][..N];
        // Derived from the base, not from `words`: the part lives longer than that borrow.
        // SAFETY: the slice above has shown that the words are inside of the memory.
        let base = unsafe { self.memory.base.add(first) };
        debug_assert_eq!(base.as_ptr().cast_const(), words.as_ptr());
        WordRange { words: base, memory: Arc::clone(&self.memory) }
    }
}

impl ReadWords {
    /// The first `words` words of a file, shared with all processes that have it open.
    ///
    /// A file that shrinks kills the process that touches the words: look at its seals first.
    ///
    /// # Errors
    /// As [`SharedWords::map`].
    pub fn map(file: &File, words: usize) -> Result<ReadWords, SyscallError> {
        let base = map(file, words, libc::PROT_READ)?;
        Ok(ReadWords { memory: Arc::new(Memory { base, words, is_shared: true }) })
    }

    /// Number of words.
    pub fn len(&self) -> usize {
        self.memory.words
    }

    /// Whether there are none. There always are.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The word at `index`, as it is now; in no order with others: that takes a fence.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline]
    pub fn load(&self, index: usize) -> u64 {
        assert!(index < self.memory.words, "word {index} of {}", self.memory.words);
        // SAFETY: the word is inside of the memory, which lives as long as this value. Relaxed loads of 8 bytes are
        // allowed on memory that may only be read.
        unsafe { self.memory.base.add(index).as_ref() }.load(Relaxed)
    }

    /// The first word. All [`len`](Self::len) words may be read through it while this value or a clone of it lives, and
    /// others may write to them at any time.
    pub fn as_ptr(&self) -> *const u64 {
        self.memory.base.as_ptr().cast_const().cast()
    }
}

impl Deref for SharedWords {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the memory has this many words, aligned, initialised (zeros or the file's bytes: any is a valid
        // word), and stays until `memory` is dropped.
        unsafe { slice::from_raw_parts(self.memory.base.as_ptr(), self.memory.words) }
    }
}

impl<const N: usize> WordRange<N> {
    /// Whether other processes can see the words.
    pub fn is_shared(&self) -> bool {
        self.memory.is_shared
    }
}

impl<const N: usize> Deref for WordRange<N> {
    type Target = [AtomicU64; N];

    #[inline]
    fn deref(&self) -> &[AtomicU64; N] {
        // SAFETY: `SharedWords::part` has shown that N words from here on are inside of the memory, which `memory`
        // keeps alive.
        unsafe { self.words.cast::<[AtomicU64; N]>().as_ref() }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this length, and no view of it is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.words * size_of::<AtomicU64>()) };
    }
}

fn map(file: &File, words: usize, access: libc::c_int) -> Result<NonNull<AtomicU64>, SyscallError> {
    map_with(file, words, access, 0)
}

fn map_with(
    file: &File,
    words: usize,
    access: libc::c_int,
    flags: libc::c_int,
) -> Result<NonNull<AtomicU64>, SyscallError> {
    let len = file.metadata().map_err(|source| SyscallError { call: "fstat", source })?.len();
    let bytes = words.checked_mul(size_of::<AtomicU64>()).filter(|bytes| *bytes > 0 && *bytes as u64 <= len);
    let Some(bytes) = bytes else { return Err(SyscallError::from_errno("mmap(a file)", libc::EINVAL)) };
    // SAFETY: a new mapping at an address that the kernel chooses touches no memory of ours.
    let base =
        unsafe { libc::mmap(ptr::null_mut(), bytes, access, libc::MAP_SHARED | flags, file.as_raw_fd(), 0) };
    if base == libc::MAP_FAILED {
        return Err(SyscallError::last("mmap(a file)"));
    }
    Ok(NonNull::new(base.cast()).expect("the kernel never maps address 0 unless told to"))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn file(len: u64) -> File {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(len).expect("room");
        file
    }

    #[test]
    fn stored_words_are_in_the_file() {
        let mut file = file(8192);
        let words = SharedWords::map(&file, 1024).expect("a mapping");
        let part = words.part::<16>(1008);
        drop(words);
        part[15].store(u64::from_ne_bytes(*b"the last"), Relaxed);
        assert!(part.is_shared());
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).expect("the file");
        assert_eq!(&bytes[8184..], b"the last");
    }

    #[test]
    fn a_short_file_is_refused() {
        assert_eq!(SharedWords::map(&file(8191), 1024).expect_err("too short").errno(), libc::EINVAL);
        assert_eq!(SharedWords::map(&file(64), 0).expect_err("nothing").errno(), libc::EINVAL);
        assert_eq!(SharedWords::map(&file(64), usize::MAX).expect_err("too many").errno(), libc::EINVAL);
    }

    #[test]
    fn private_words_are_zero_and_outlive_the_mapping() {
        let part = SharedWords::private(256).part::<128>(128);
        assert!(!part.is_shared());
        assert!(part.iter().all(|word| word.load(Relaxed) == 0));
        part[127].store(1, Relaxed);
        assert_eq!(part.clone()[127].load(Relaxed), 1);
    }

    #[test]
    #[should_panic]
    fn a_part_lies_inside() {
        SharedWords::private(256).part::<128>(129);
    }
}
