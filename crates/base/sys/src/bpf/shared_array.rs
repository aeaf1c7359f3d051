//! An array that programs and we read and write: a map that is in our memory too.
//!
//! ```text
//! | entry 0: value, to a multiple of 8 | entry 1 | ...        programs find an entry by its number, we by its place
//! ```

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use super::attributes::MapCreate;
use super::{command, object_name, open};
use crate::SyscallError;

/// `BPF_MAP_TYPE_ARRAY`.
const KIND: u32 = 2;
/// `BPF_F_MMAPABLE`.
const MMAPABLE: u32 = 1 << 10;
/// Values begin at multiples of this.
const ALIGNMENT: usize = 8;

/// An array of values of one length, shared with programs. Minimum kernel: 5.5. Making one takes the rights that
/// loading a program takes.
#[derive(Debug)]
pub struct SharedArray {
    fd: OwnedFd,
    base: NonNull<u8>,
    stride: usize,
    entries: usize,
}

// SAFETY: the mapping belongs to this value; what programs do with it goes on whatever thread we are in.
unsafe impl Send for SharedArray {}
// SAFETY: through a shared reference words are only read and written as a whole, atomically.
unsafe impl Sync for SharedArray {}

impl SharedArray {
    /// An array of zeros: `entries` values of `value_len` bytes.
    ///
    /// # Errors
    /// `EPERM` without the right; `EINVAL` for no entries, no bytes, or on a kernel without such maps; `E2BIG` or
    /// `ENOMEM` for too much.
    pub fn create(name: &str, value_len: u32, entries: u32) -> Result<SharedArray, SyscallError> {
        let mut attributes = MapCreate {
            map_type: KIND,
            key_size: 4,
            value_size: value_len,
            max_entries: entries,
            map_flags: MMAPABLE,
            map_name: object_name(name),
            ..MapCreate::default()
        };
        // SAFETY: no address in it; the command returns a descriptor.
        let fd = unsafe { open("bpf(BPF_MAP_CREATE)", command::MAP_CREATE, &mut attributes)? };
        let (stride, entries) = ((value_len as usize).next_multiple_of(ALIGNMENT), entries as usize);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new shared mapping at an address that the kernel chooses touches no memory of ours; it checks
        // descriptor and length.
        let base = unsafe {
            libc::mmap(ptr::null_mut(), stride * entries, access, libc::MAP_SHARED, fd.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(SyscallError::last("mmap(BPF_MAP_TYPE_ARRAY)"));
        }
        let base = NonNull::new(base.cast()).expect("the kernel never maps address 0 unless told to");
        Ok(SharedArray { fd, base, stride, entries })
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Word `number` of an entry.
    ///
    /// # Panics
    /// If there is no such entry, or it has no such word.
    #[inline]
    pub fn word(&self, entry: usize, number: usize) -> u64 {
        self.atomic(entry, number).load(Ordering::Acquire)
    }

    /// Sets word `number` of an entry.
    ///
    /// # Panics
    /// If there is no such entry, or it has no such word.
    #[inline]
    pub fn set_word(&self, entry: usize, number: usize, value: u64) {
        self.atomic(entry, number).store(value, Ordering::Release);
    }

    /// Copies bytes into an entry, from byte `at` of it on. No program may read them meanwhile.
    ///
    /// # Panics
    /// If there is no such entry, or they do not fit.
    #[inline]
    pub fn write(&mut self, entry: usize, at: usize, bytes: &[u8]) {
        assert!(entry < self.entries && at <= self.stride && bytes.len() <= self.stride - at);
        // SAFETY: entry and bytes lie in the mapping, as was just checked, and nothing of ours borrows it.
        unsafe {
            let to = self.base.as_ptr().add(entry * self.stride + at);
            ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    fn atomic(&self, entry: usize, number: usize) -> &AtomicU64 {
        assert!(entry < self.entries && number < self.stride / size_of::<u64>());
        // SAFETY: the word lies in the mapping, as was just checked, at a multiple of 8 as entries begin at such; it
        // lives as long as `self`. Programs read and write it as a whole.
        unsafe {
            let at = self.base.as_ptr().add(entry * self.stride + number * size_of::<u64>());
            AtomicU64::from_ptr(at.cast())
        }
    }
}

impl AsFd for SharedArray {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for SharedArray {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this length, and no borrow of it is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.stride * self.entries) };
    }
}
