//! Common parts of this crate's tests: packets before unmapped memory, and batches of packets.
#![allow(dead_code, reason = "each test uses a part")]

use std::ptr;

use tapline_packet::{Meta, Record};

/// Memory whose end is followed by a page that may not be touched.
pub(crate) struct Guarded {
    base: *mut u8,
    len: usize,
}

const PAGE: usize = 4096;

impl Guarded {
    /// Room for `len` bytes.
    pub(crate) fn new(len: usize) -> Guarded {
        let len = len.next_multiple_of(PAGE).max(PAGE);
        // SAFETY: a new mapping touches no memory of ours; the second call takes the access to its last page away.
        let base = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let base = libc::mmap(ptr::null_mut(), len + PAGE, access, kind, -1, 0);
            assert_ne!(base, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(base.byte_add(len), PAGE, libc::PROT_NONE), 0);
            base.cast()
        };
        Guarded { base, len }
    }

    /// A copy of `bytes` that ends where memory ends.
    pub(crate) fn hold(&mut self, bytes: &[u8]) -> &[u8] {
        assert!(bytes.len() <= self.len);
        // SAFETY: the mapping has room for the bytes, and is borrowed as long as they are.
        unsafe {
            let start = self.base.add(self.len - bytes.len());
            ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len());
            std::slice::from_raw_parts(start, bytes.len())
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no part of it is borrowed.
        unsafe { libc::munmap(self.base.cast(), self.len + PAGE) };
    }
}

/// Packets one after the other, and where they lie.
#[derive(Default)]
pub(crate) struct Packets {
    pub(crate) base: Vec<u8>,
    pub(crate) records: Vec<Record>,
}

impl Packets {
    pub(crate) fn push(&mut self, data: &[u8], meta: Meta) {
        let (offset, cap_len) = (self.base.len(), data.len() as u32);
        self.records.push(Record { offset, cap_len, options_len: 0, meta });
        self.base.extend_from_slice(data);
    }
}
