//! Memory that is passed to other processes as a descriptor, with seals on what may become of it: memfd_create(2).
//!
//! ```text
//! create(len): all of it reserved --map--> ours, for writing --seal--> no other size, no new writers --prove--> passed on
//! adopt(fd): seals looked at before anything is mapped --map_to_read--> theirs
//! ```
//!
//! A file that nobody can shrink cannot end its readers by `SIGBUS`; one that is reserved at the start cannot do so for want of memory.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use crate::SyscallError;
use crate::error::check;
use crate::shared_words::{ReadWords, SharedWords};

/// `MFD_NOEXEC_SEAL`, Linux 6.3: the C library's headers have it, the `libc` crate not everywhere.
const MFD_NOEXEC_SEAL: libc::c_uint = 0x8;

/// Seals of a memory file, as in fcntl(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seals(i32);

impl Seals {
    /// Its size stays, and so do the seals: `F_SEAL_SHRINK`, `F_SEAL_GROW`, `F_SEAL_SEAL`.
    pub const SIZE: Seals = Seals(libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL);
    /// Likewise, and nobody can write but through mappings that exist: `F_SEAL_FUTURE_WRITE`, Linux 5.1.
    pub const READ_ONLY: Seals = Seals(Seals::SIZE.0 | libc::F_SEAL_FUTURE_WRITE);

    /// Whether all of `others` are among these.
    pub const fn contain(self, others: Seals) -> bool {
        self.0 & others.0 == others.0
    }

    /// The seals of a descriptor.
    ///
    /// # Errors
    /// `EINVAL` for files that know no seals: those of a disk.
    pub fn of(fd: BorrowedFd<'_>) -> Result<Seals, SyscallError> {
        // SAFETY: fcntl(2) with integers only.
        check("fcntl(F_GET_SEALS)", unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) }).map(Seals)
    }
}

/// A memory file.
#[derive(Debug)]
pub struct Memfd {
    file: File,
}

impl Memfd {
    /// A new one of `len` bytes, all zero, all reserved. `name` is what /proc shows.
    ///
    /// # Errors
    /// What memfd_create(2), ftruncate(2) and fallocate(2) say: `ENOMEM` or `ENOSPC` if there is not so much memory.
    pub fn create(name: &CStr, len: u64) -> Result<Memfd, SyscallError> {
        let file = create(name, libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)?;
        let len =
            libc::off_t::try_from(len).map_err(|_| SyscallError::from_errno("ftruncate", libc::EFBIG))?;
        // SAFETY: both calls take a descriptor of ours and numbers.
        check("ftruncate", unsafe { libc::ftruncate(file.as_raw_fd(), len) })?;
        // SAFETY: as above.
        check("fallocate", unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, len) })?;
        Ok(Memfd { file })
    }

    /// One that somebody else made. Nothing is known of it yet.
    pub fn adopt(fd: OwnedFd) -> Memfd {
        Memfd { file: fd.into() }
    }

    /// Puts seals on it.
    ///
    /// # Errors
    /// What fcntl(2) says: `EINVAL` for a seal that the kernel does not know.
    pub fn seal(&self, seals: Seals) -> Result<(), SyscallError> {
        // SAFETY: fcntl(2) with integers only.
        check("fcntl(F_ADD_SEALS)", unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_ADD_SEALS, seals.0) })
            .map(|_| ())
    }

    /// Its seals.
    ///
    /// # Errors
    /// As [`Seals::of`].
    pub fn seals(&self) -> Result<Seals, SyscallError> {
        Seals::of(self.file.as_fd())
    }

    /// Its size in bytes.
    ///
    /// # Errors
    /// What fstat(2) says.
    pub fn size(&self) -> Result<u64, SyscallError> {
        self.file.metadata().map(|data| data.len()).map_err(|source| SyscallError { call: "fstat", source })
    }

    /// All of it, for reading and writing.
    ///
    /// # Errors
    /// As [`SharedWords::map`].
    pub fn map(&self) -> Result<SharedWords, SyscallError> {
        SharedWords::map(&self.file, self.words()?)
    }

    /// All of it, for reading. Whoever calls this has looked at the seals: a file that can shrink can kill its reader.
    ///
    /// # Errors
    /// As [`SharedWords::map`].
    pub fn map_to_read(&self) -> Result<ReadWords, SyscallError> {
        ReadWords::map(&self.file, self.words()?)
    }

    /// Another descriptor for it.
    ///
    /// # Errors
    /// What fcntl(2) says.
    pub fn duplicate(&self) -> Result<OwnedFd, SyscallError> {
        let copy = self.file.try_clone();
        copy.map(OwnedFd::from).map_err(|source| SyscallError { call: "fcntl(F_DUPFD_CLOEXEC)", source })
    }

    /// Tries all that [`Seals::READ_ONLY`] forbids, and says what worked although it should not: `None` if nothing did.
    ///
    /// Kernels before 5.13 took the seal on huge pages and did not keep to it, so that it is there proves little.
    pub fn breach(&self) -> Option<&'static str> {
        let fd = self.file.as_raw_fd();
        let size = self.size().ok()?;
        let len = usize::try_from(size).unwrap_or(usize::MAX).min(4096);
        if map_succeeds(fd, len, libc::PROT_READ | libc::PROT_WRITE) {
            return Some("mapped for writing");
        }
        if becomes_writable(fd, len) {
            return Some("mapped for reading, then made writable");
        }
        // The last byte is written as it should never be, but only where writing works after all; then nobody gets this file.
        // SAFETY: one byte of a constant is read; the descriptor is ours.
        if unsafe { libc::pwrite(fd, b"!".as_ptr().cast(), 1, size as libc::off_t - 1) } != -1 {
            return Some("written to with write(2)");
        }
        for other in [size / 2, size * 2] {
            // SAFETY: a descriptor of ours and a number.
            if unsafe { libc::ftruncate(fd, other as libc::off_t) } != -1 {
                return Some("given another size");
            }
        }
        let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: as above.
        if unsafe { libc::fallocate(fd, punch, 0, 4096) } != -1 {
            return Some("emptied with fallocate(2)");
        }
        self.reopened_breach(len)
    }

    /// A descriptor that can only be read is no protection, because it can be opened anew; so the seal must hold there too.
    fn reopened_breach(&self, len: usize) -> Option<&'static str> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let again = File::options().read(true).write(true).open(path).ok()?;
        map_succeeds(again.as_raw_fd(), len, libc::PROT_READ | libc::PROT_WRITE)
            .then_some("opened again and mapped for writing")
    }

    fn words(&self) -> Result<usize, SyscallError> {
        let size = self.size()?;
        usize::try_from(size / 8).map_err(|_| SyscallError::from_errno("mmap(a file)", libc::EFBIG))
    }
}

impl AsFd for Memfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl From<Memfd> for OwnedFd {
    fn from(memfd: Memfd) -> OwnedFd {
        memfd.file.into()
    }
}

/// Never executable where the kernel can promise that.
fn create(name: &CStr, flags: libc::c_uint) -> Result<File, SyscallError> {
    // SAFETY: the name ends in a zero and is only read.
    let mut fd = unsafe { libc::memfd_create(name.as_ptr(), flags | MFD_NOEXEC_SEAL) };
    if fd == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL) {
        // SAFETY: as above.
        fd = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    }
    let fd = check("memfd_create", fd)?;
    // SAFETY: the kernel just gave us this descriptor, and nobody else knows it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

fn map_succeeds(fd: i32, len: usize, protection: i32) -> bool {
    try_map(fd, len, protection).is_some_and(|address| {
        // SAFETY: the mapping was made a moment ago, and nobody looked at it.
        unsafe { libc::munmap(address, len) };
        true
    })
}

fn becomes_writable(fd: i32, len: usize) -> bool {
    try_map(fd, len, libc::PROT_READ).is_some_and(|address| {
        // SAFETY: the mapping was made a moment ago, nobody looks at it, and it goes at once.
        unsafe {
            let result = libc::mprotect(address, len, libc::PROT_READ | libc::PROT_WRITE);
            libc::munmap(address, len);
            result == 0
        }
    })
}

fn try_map(fd: i32, len: usize, protection: i32) -> Option<*mut libc::c_void> {
    // SAFETY: a new mapping at an address that the kernel chooses touches no memory of ours.
    let address = unsafe { libc::mmap(ptr::null_mut(), len, protection, libc::MAP_SHARED, fd, 0) };
    (address != libc::MAP_FAILED).then_some(address)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn what_one_mapping_writes_another_reads() {
        let memfd = Memfd::create(c"test", 8192).expect("memory");
        let ours = memfd.map().expect("a mapping");
        memfd.seal(Seals::READ_ONLY).expect("seals");
        let theirs = Memfd::adopt(memfd.duplicate().expect("a descriptor")).map_to_read().expect("a mapping");
        ours[1023].store(7, Relaxed);
        assert_eq!((theirs.len(), theirs.load(1023), theirs.load(0)), (1024, 7, 0));
    }

    #[test]
    fn sealed_memory_has_no_breach() {
        let memfd = Memfd::create(c"test", 8192).expect("memory");
        memfd.seal(Seals::READ_ONLY).expect("seals");
        assert_eq!(memfd.breach(), None);
        assert!(memfd.seals().expect("seals").contain(Seals::READ_ONLY));
        assert_eq!(memfd.map().expect_err("no writers").errno(), libc::EPERM);
        assert_eq!(memfd.seal(Seals::SIZE).expect_err("no more seals").errno(), libc::EPERM);
    }

    #[test]
    fn each_missing_seal_is_a_breach() {
        let kept = libc::F_SEAL_FUTURE_WRITE;
        let size = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
        for (seals, breach) in [
            (0, "mapped for writing"),
            (size, "mapped for writing"),
            (kept | libc::F_SEAL_GROW, "given another size"),
            (kept | libc::F_SEAL_SHRINK, "given another size"),
        ] {
            let memfd = Memfd::create(c"test", 8192).expect("memory");
            memfd.seal(Seals(seals)).expect("seals");
            assert_eq!(memfd.breach(), Some(breach), "{seals:#x}");
        }
    }

    #[test]
    fn files_of_a_disk_know_no_seals() {
        let file = File::open("/proc/self/exe").expect("our program");
        assert_eq!(Seals::of(file.as_fd()).expect_err("no seals").errno(), libc::EINVAL);
    }
}
