//! Mappings: rings of the socket, and the memory of the packets.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use crate::SyscallError;
use crate::error::check;

/// The size of huge pages that is asked for: the default one of x86-64 and aarch64.
const HUGE_PAGE_LEN: usize = 2 << 20;

/// Memory of ours until this is dropped. A fork does not inherit it: a mapping of a ring holds the socket open, and
/// pinned memory must not be copied on write.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone and does not depend on the thread that made it.
unsafe impl Send for Mapping {}

impl Mapping {
    /// The words of a descriptor from `offset` on, shared with the kernel.
    pub(super) fn of_file(fd: BorrowedFd<'_>, len: usize, offset: i64) -> Result<Mapping, SyscallError> {
        Mapping::map("mmap(XDP ring)", len, libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), offset)
    }

    /// Zeros, in huge pages if there are any, so that the processor finds its way to them faster. Says whether there
    /// were.
    pub(super) fn anonymous(len: usize, huge: bool) -> Result<(Mapping, bool), SyscallError> {
        const CALL: &str = "mmap(UMEM)";
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        if huge {
            let whole = len.next_multiple_of(HUGE_PAGE_LEN);
            if let Ok(mapping) = Mapping::map(CALL, whole, flags | libc::MAP_HUGETLB, -1, 0) {
                return Ok((mapping, true));
            }
        }
        let mapping = Mapping::map(CALL, len, flags, -1, 0)?;
        if huge {
            // SAFETY: address and length are those of the mapping just made, and only the size of its pages may change.
            // A kernel without transparent huge pages refuses, and nothing is lost.
            unsafe { libc::madvise(mapping.base.as_ptr().cast(), mapping.len, libc::MADV_HUGEPAGE) };
        }
        Ok((mapping, false))
    }

    fn map(
        call: &'static str,
        len: usize,
        flags: i32,
        fd: i32,
        offset: i64,
    ) -> Result<Mapping, SyscallError> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: no address is asked for, so no existing mapping is replaced; the kernel checks the rest.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, offset) };
        if address == libc::MAP_FAILED {
            return Err(SyscallError::last(call));
        }
        let base = NonNull::new(address.cast()).ok_or(SyscallError::from_errno(call, libc::ENOMEM))?;
        let mapping = Mapping { base, len };
        // SAFETY: address and length are those of the mapping just made, and only its inheritance changes.
        check("madvise(MADV_DONTFORK)", unsafe { libc::madvise(address, len, libc::MADV_DONTFORK) })?;
        Ok(mapping)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The address of a byte.
    ///
    /// # Panics
    /// If the mapping does not have it.
    pub(super) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.len, "outside of the mapping");
        // SAFETY: the offset is less than the mapping's length.
        unsafe { self.base.as_ptr().add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this address and length, and what was lent of it borrowed its
        // owner. The result says nothing we could act on.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
